"""Every attribute that a model lists can be read, and ``hasattr`` is an answer; fitted or not."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import seqmodels as sm
from seqmodels.wrappers.classification import GenerativeClassifier
from tests.families import fitted
from tests.test_arguments import LABELS, X, one_row_of_each_class

INPUTS = sm.Sequences(X, inputs=[np.arange(20.0)[:, None]] * len(X), input_names=["heat"])


def problems(model: Any) -> list[str]:
    """The names that ``dir`` lists and that cannot be read, or are refused by another error than an AttributeError."""
    found = []
    listed = set(dir(model))
    for name in sorted({*listed, *object.__dir__(model)}):
        try:
            has = hasattr(model, name)
        except Exception as error:
            found.append(f"{type(model).__name__}.{name}: {type(error).__name__}: {error}")
        else:
            if has != (name in listed):
                found.append(f"{type(model).__name__}.{name}: {'not ' if has else ''}listed")
    return found


def test_what_is_listed_can_be_read_and_the_rest_is_absent() -> None:
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for row in one_row_of_each_class():
            found += [*problems(row.model), *problems(fitted(row))]
        for model, labels in (
            (GenerativeClassifier(sm.NGram(1)), LABELS),
            (sm.Anomalies(sm.NGram(1), quantile=0.8), None),
        ):
            found += [*problems(model), *problems(model.fit(X, labels))]
        masked = sm.MaskedTransformer(d_model=8, max_steps=1)
        found += [*problems(masked), *problems(masked.fit(X))]
    assert found == []


def test_an_absent_attribute_says_why() -> None:
    driven = sm.HMM(2, max_iter=1, n_init=1, input_effects=sm.hmm.ChainInputEffects(transitions=True)).fit(INPUTS)
    plain = sm.HMM(2, max_iter=1, n_init=1).fit(X)
    for model, name, words in (
        (driven, "stationary_", "transitions depend on inputs, so there is no stationary distribution"),
        (plain, "transition_slopes_", "has transitions that depend on no inputs"),
        (plain, "posterior_", "fit it with algorithm='variational'"),
        (plain, "feature_names_in_", "without names of features"),
        (sm.LinearGaussian(1), "transition_", "this LinearGaussian is not fitted, so it has no transition_; call fit"),
        (sm.LSTM(), "n_parameters_", "this LSTM is not fitted, so it has no n_parameters_; call fit first"),
    ):
        assert not hasattr(model, name)
        with pytest.raises(AttributeError, match=words):
            getattr(model, name)
    assert "emission_" in dir(plain)
