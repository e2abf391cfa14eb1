"""Arguments of wrong types, and numbers that are none, are refused by name before any work."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import seqmodels as sm
from seqmodels.common.parameters import admits, argument_names, argument_types
from tests.families import Row, rows

X = [np.arange(20) % 3 for _ in range(6)]
LABELS = list("aabbab")
V = [np.random.default_rng(i).normal(size=(8, 2)) for i in range(5)]
WRONG: tuple[Any, ...] = ("no such word", math.nan, np.float32("nan"), 1.5, ["a"], {}, object(), None, True)
# What a function or an alphabet of another size is, its own errors say.
IN_OTHER_WORDS = {"n_symbols", "symbols", "alphabet", "text", "tokenizer"}


def one_row_of_each_class() -> Iterator[Row]:
    seen: set[type] = set()
    for row in rows("vectors", "symbols", "text"):
        cls = type(row.model)
        if cls not in seen:
            seen.add(cls)
            yield row


def arguments() -> list[tuple[Row, str]]:
    """Each argument of each class; those that several classes have alike, once."""
    found: dict[tuple[str, str], Row] = {}
    for row in one_row_of_each_class():
        hints = argument_types(type(row.model))
        for name in argument_names(type(row.model)):
            found.setdefault((name, str(hints.get(name))), row)
    return [(row, name) for (name, _), row in found.items() if name not in IN_OTHER_WORDS]


@pytest.mark.parametrize("kind", ["a-d", "e-m", "n-r", "s-z"])
def test_what_an_annotation_does_not_admit_is_refused_by_name(kind: str) -> None:
    came = []
    for row, name in arguments():
        if not kind[0] <= name[0] <= kind[-1]:
            continue
        hint = argument_types(type(row.model)).get(name, Any)
        for value in WRONG:
            if admits(hint, value.item() if isinstance(value, np.generic) else value):
                continue
            what = f"{type(row.model).__name__}({name}={value!r})"
            try:
                row.model.set_params(**{name: value}).fit(*row.data)
                came.append(f"{what} is accepted")
            except ValueError as error:
                if name not in str(error):
                    came.append(f"{what}: {error}")
            except Exception as error:
                came.append(f"{what}: {type(error).__name__}: {error}")
    assert came == []


def hmm(**observation: Any) -> sm.HMM:
    return sm.HMM(2, observation=sm.GaussianMixture(**observation), max_iter=1)


class OfPolars:
    def to_pandas(self) -> None:
        raise ImportError("pyarrow is required")


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "a model for models": (lambda: sm.compare(sm.HMM(), X), "models is of type HMM; pass a dictionary"),
    "a list for models": (lambda: sm.compare([sm.HMM()], X), "models is of type list; pass a dictionary"),
    "search": (lambda: sm.compare({"a": sm.HMM(2)}, X, test=X, search=5), "search is 5; pass a Search"),
    "a grid": (lambda: sm.Search({"a": 5}), "the grid of 'a' is 5"),
    "a grid's values": (lambda: sm.Search({"a": {"lr": 5}}), "'lr' in the grid of 'a' is 5; pass a list"),
    "folds": (lambda: sm.Search({"a": {"lr": [5]}}, folds=math.nan), "folds is nan"),
    "seeds": (lambda: sm.compare({"a": sm.HMM(2)}, X, test=X, seeds=1.5), "seeds is 1.5; pass an integer"),
    "baseline": (lambda: sm.compare({"a": sm.HMM(2)}, X, test=X, baseline=[]), "baseline is"),
    "the seed": (lambda: sm.compare({"a": sm.HMM(2)}, X, test=X, random_state=math.nan), "random_state is nan"),
    "a budget": (lambda: sm.Budget(seconds="x"), "seconds is 'x'; pass a number or none"),
    "parameters": (lambda: sm.Budget(parameters=1.5), "parameters is 1.5; pass an integer"),
    "None to audit": (lambda: sm.audit(None, X), "model is None, which has no log_prob_steps"),
    "a class to audit": (lambda: sm.audit(sm.HMM, X), "has no log_prob_steps"),
    "a frame of another package": (
        lambda: sm.data.table(OfPolars()),
        "the OfPolars cannot be made .*; install pyarrow",
    ),
    "no frame": (lambda: sm.data.table(None), "source is None; pass a path, or a frame of pandas"),
    "choose": (lambda: sm.choose(sm.HMM(), X, n_states=[1], random_state=math.nan), "random_state is nan"),
    "adaptive": (lambda: sm.NGram(adaptive="foo").fit(X), "adaptive is 'foo'; pass true or false"),
    "segment": (lambda: sm.Dynamic(sm.GRU(max_steps=1), segment=math.inf).fit(X), "segment is inf"),
    "refit": (lambda: sm.Mixture([sm.NGram(1)], refit=["a"]).fit(X), r"refit is \['a'\]"),
    "n_folds": (lambda: sm.GenerativeClassifier(sm.NGram(2), n_folds=math.nan).fit(X, LABELS), "n_folds is nan"),
    "calibrate": (lambda: sm.GenerativeClassifier(sm.NGram(2), calibrate="x").fit(X, LABELS), "calibrate is 'x'"),
    "of anomalies": (lambda: sm.Anomalies(sm.NGram(2), random_state=math.nan).fit(X), "random_state is nan"),
    "of a masked model": (lambda: sm.MaskedTransformer(random_state=math.nan).fit(X), "random_state is nan"),
    "a device": (lambda: sm.NGram(1, device="x").fit(X), "device is 'x'; pass 'auto'"),
    "a seed below zero": (lambda: sm.NGram(1, random_state=-1).fit(X), "random_state is -1"),
    "lr": (lambda: sm.GRU(lr=math.inf).fit(X), "lr is inf; pass a finite number"),
    "weight_decay": (lambda: sm.GRU(weight_decay=-1).fit(X), "weight_decay is -1"),
    "eps": (lambda: sm.GRU(optimizer=sm.training.AdamW(eps=-1)).fit(X), "eps is -1"),
    "betas": (lambda: sm.GRU(optimizer=sm.training.AdamW(betas=(0.9, 2))).fit(X), "betas is"),
    "warm_up": (lambda: sm.GRU(schedule=sm.training.Cosine(warm_up=2)).fit(X), "warm_up is 2; pass a number from 0 on"),
    "tol": (lambda: sm.HMM(2, tol=math.inf).fit(X), "tol=inf must be finite"),
    "max_seconds": (lambda: sm.HMM(2, max_seconds=-1).fit(X), "max_seconds is -1"),
    "n_components": (lambda: hmm(n_components=0).fit(V), "n_components of GaussianMixture is 0"),
    "min_covariance": (
        lambda: hmm(min_covariance=0).fit(V),
        "min_covariance of .* is 0; pass a number above 0",
    ),
    "of a nested one": (lambda: hmm(covariance_type="x").fit(V), "covariance_type"),
    "order": (
        lambda: sm.HMM(1, observation=sm.AutoregressiveGaussian(0)).fit(V),
        "order of .* is 0",
    ),
    "pseudocount": (lambda: sm.HMM(1, observation=sm.Categorical(-1)).fit(X), "pseudocount of Categorical is -1"),
    "max_length": (lambda: sm.TransformerSeq2Seq(max_length=0).fit(X, X), "max_length is 0"),
}
ASKED = {
    "sample": ["max_length", "random_state", "temperature", "top_k", "top_p", "min_p", "stop"],
    "n_best": ["n", "n_beams", "length", "max_length", "alpha"],
    "log_prob_marginal": ["beam", "pruning", "random_state"],
    "forecast": ["k", "quantiles", "n", "top_k", "random_state"],
}


@pytest.mark.parametrize("name", REFUSED)
def test_calls_are_refused_by_the_name_of_the_argument(name: str) -> None:
    call, message = REFUSED[name]
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("method", ASKED)
def test_what_a_fitted_model_is_asked_is_checked(method: str) -> None:
    model = sm.HMM(2, max_iter=1).fit(X)
    given: dict[str, Any] = {"log_prob_marginal": {"X": X}, "forecast": {"X": X, "k": 1}}.get(method, {})
    for name in ASKED[method]:
        for value in (math.nan, "no such word", object()):
            with pytest.raises(ValueError, match=name):
                getattr(model, method)(**given | {name: value})
