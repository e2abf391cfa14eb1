"""An HMM's ``"auto"`` stays a chain of Gaussian levels, and a series that leaves its levels is warned about."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose

import seqmodels as sm
from seqmodels.encodings import AutoSeries
from seqmodels.hmm import HSMM

NOISE = np.random.default_rng(3).normal(size=(200, 1))
GROWS = 0.5 * np.arange(200)[:, None] + NOISE
SEASON = 5 * np.sin(2 * np.pi * np.arange(200) / 12)[:, None] + NOISE
JUMPS = np.repeat([0.0, 6.0, 0.0, 6.0, 0.0], [30, 50, 30, 60, 30])[:, None] + NOISE


def states(**arguments: object) -> sm.HMM:
    return sm.HMM(2, n_init=1, max_iter=3).set_params(**arguments)


def warned(model: sm.HMM | HSMM, x: object) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(x)
    return [str(w.message) for w in caught]


@pytest.mark.parametrize("model", [states(), HSMM(2, n_init=1, max_iter=2)], ids=["hmm", "hsmm"])
def test_a_series_that_grows_is_read_as_levels_and_warned_about_once(model: sm.HMM | HSMM) -> None:
    (message,) = warned(model, [GROWS])
    assert message.startswith("the series goes on to levels that it never had before")
    assert "pass encoding=AutoSeries()" in message
    assert type(model.encoding_) is sm.Standardize
    assert model.means_.shape == (2, 1, 1)


def test_what_the_warning_names_reads_changes() -> None:
    model = states(encoding=AutoSeries())
    assert warned(model, [GROWS]) == []
    assert model.encoding_.n_initial == 1
    assert warned(states(encoding=sm.Standardize()), [GROWS]) == []


@pytest.mark.parametrize("x", [SEASON, JUMPS, GROWS[:29]], ids=["season", "jumps", "short"])
def test_series_that_come_back_are_levels_without_a_word(x: np.ndarray) -> None:
    model = states()
    assert warned(model, [x]) == []
    assert type(model.encoding_) is sm.Standardize


def test_models_that_follow_a_growing_series_are_not_warned_about() -> None:
    inputs = sm.Sequences([GROWS], inputs=[NOISE], input_names=["u"])
    assert warned(states(input_effects__emissions=True), inputs) == []
    assert warned(states(observation=sm.AutoregressiveGaussian()), [GROWS]) == []
    assert warned(states(topology="left-to-right"), [GROWS]) == []


def test_names_of_clusters_change_nothing() -> None:
    rng = np.random.default_rng(1)
    levels = np.repeat(rng.normal(0, 4.0, (4, 1, 2)), 6, axis=0)
    smooth = list(levels + np.cumsum(rng.normal(0, 0.3, (24, 30, 2)), axis=1))
    named = states().fit(sm.Sequences(smooth, clusters=[f"speaker {k // 6}" for k in range(24)]))
    assert isinstance(named.observation_, sm.GaussianMixture)
    assert_allclose(named.means_, states().fit(smooth).means_, rtol=1e-12)
