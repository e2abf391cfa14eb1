"""Windows against the whole: where a model's memory is shorter than the past that every window holds, they agree."""

import copy

import numpy as np
import pytest

import seqmodels as sm

MEMORY = 3  # steps that the only layer sees, itself among them
SMALL = {"d_model": 8, "n_layers": 1, "n_heads": 2, "max_steps": 30, "batch_size": 4, "dtype": "float64"}
TEST = list(np.random.default_rng(1).integers(4, size=(2, 50)))


@pytest.fixture(scope="module")
def model() -> sm.Transformer:
    x = np.random.default_rng(0).integers(4, size=(6, 40))
    whole = sm.Transformer(window=MEMORY, convolution_lags=0, positions=None, context=64, **SMALL)
    return whole.fit(list(x), validation=None)


def read_in_windows(model: sm.Transformer, context: int, stride: int | None) -> sm.Transformer:
    return copy.deepcopy(model).set_params(context=context, stride=stride)


@pytest.mark.parametrize(("context", "stride"), [(8, None), (12, 9), (5, 2), (9, 1)])
def test_windows_that_hold_the_memory_change_nothing(model: sm.Transformer, context: int, stride: int | None) -> None:
    assert context - (stride or context // 2) >= MEMORY
    windowed = read_in_windows(model, context, stride).log_prob_steps(TEST)
    for ours, theirs in zip(windowed, model.log_prob_steps(TEST), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9)


def test_windows_that_cut_the_memory_change_the_score(model: sm.Transformer) -> None:
    assert np.abs(read_in_windows(model, 2, None).log_prob(TEST) - model.log_prob(TEST)).min() > 1e-6
