"""Sizes that the data cannot determine are refused in one sentence, before any array of that size is made."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import seqmodels as sm
from seqmodels.hmm import HSMM, ContinuousTimeHMM, MarkovSwitchingAR
from seqmodels.linear_gaussian import SwitchingLinearGaussian

VALUES = [np.random.default_rng(0).normal(size=(40, 1))]
SYMBOLS = [np.arange(40) % 3]
LAYER = {"d_model": 8, "max_steps": 1}
ABSURD: dict[str, tuple[Any, Any]] = {
    "p of ARIMA is 1000000; pass an integer from 0 to 100000": (sm.LinearGaussian.arima(10**6, 0, 0), VALUES),
    "d of ARIMA is 1,000, but the longest sequence has 40 steps": (sm.LinearGaussian.arima(1, 10**3, 0), VALUES),
    "period of Seasonal is 100,000": (sm.LinearGaussian.seasonal(10**5), VALUES),
    "n_states of LinearGaussian is 1,000, but the data have 40 steps; pass at most 40": (
        sm.LinearGaussian(1000),
        VALUES,
    ),
    "n_states of LinearGaussian is 60, but the data have 40 steps; pass at most 40": (sm.LinearGaussian(60), VALUES),
    "the structure has 41 numbers to fit .*, but the sequences have 40 values; pass smaller orders": (
        sm.LinearGaussian.arima(39, 0, 0),
        VALUES,
    ),
    "n_states of HSMM is 100, but the data have 40 steps; pass at most 40": (HSMM(100), VALUES),
    "n_regimes of SwitchingLinearGaussian is 1,000,000": (SwitchingLinearGaussian(10**6), VALUES),
    "n_states of HMM is 10,000": (sm.HMM(10**4), VALUES),
    "the transitions of 1000000 states would take": (sm.HMM(10**6), SYMBOLS),
    "max_duration of HSMM is 1,000,000": (HSMM(max_duration=10**6), VALUES),
    "n_states of ContinuousTimeHMM is 5,000": (ContinuousTimeHMM(5000), VALUES),
    "order=1000000 make 2\\^1000001 states": (MarkovSwitchingAR(2, 10**6), VALUES),
    "order of NGram is 1,000,000,000": (sm.NGram(10**9), SYMBOLS),
    "depth of ContextTree is 1,000,000,000": (sm.counts.ContextTree(10**9), SYMBOLS),
    "order of AutoregressiveGaussian is 1,000,000": (
        sm.HMM(1, observation=sm.AutoregressiveGaussian(10**6)),
        VALUES,
    ),
    "n_components of GaussianMixture is 1,000,000": (sm.HMM(1, observation=sm.GaussianMixture(10**6)), VALUES),
    "n_components of GaussianMixture is 100,000,000": (
        sm.LSTM(**LAYER, observation=sm.GaussianMixture(10**8)),
        VALUES,
    ),
    "order of NGram is 1,000": (sm.Mixture([sm.NGram(2), sm.NGram(1000)]), SYMBOLS),
    "n_cells of Quantize is 1000000000; pass an integer from 2 to 16384": (
        sm.HMM(2, encoding=sm.encodings.Quantize(10**9)),
        VALUES,
    ),
    "Differences.season=1000000. takes no difference of the first": (
        sm.HMM(2, encoding=sm.encodings.Differences(season=10**6)),
        VALUES,
    ),
    "n_layers is 1,000,000; pass at most 10,000": (sm.LSTM(n_layers=10**6), VALUES),
    "training an LSTM of 10,000,000 x 10,000,000 weights would take": (sm.LSTM(d_model=10**7), VALUES),
    "training a Transformer of 8 x 1,000,000,000,000 weights would take": (
        sm.Transformer(d_model=8, n_heads=1, d_feedforward=10**12),
        VALUES,
    ),
}


@pytest.mark.parametrize("words", ABSURD)
def test_a_size_that_no_data_determine_is_refused(words: str) -> None:
    model, data = ABSURD[words]
    with pytest.raises(ValueError, match=words):
        model.clone().fit(data)


def test_sizes_of_some_use_are_not_refused() -> None:
    """A warm start adapts a large model to few data; small sizes cost nothing."""
    large = sm.HMM(70, max_iter=1, n_init=1, encoding=sm.Symbols(3)).fit([np.arange(200) % 3])
    assert large.set_params(warm_start=True).fit(SYMBOLS).n_states == 70
    assert sm.NGram(50).fit(SYMBOLS).order == 50


def test_a_vocabulary_larger_than_the_text_makes_no_room_for_it() -> None:
    many, few = (sm.encodings.BPE(n).fit(sm.Sequences(["to be or not to be"])) for n in (10**9, 300))
    assert (many.size, many.encode("not to")) == (few.size, pytest.approx(few.encode("not to")))
