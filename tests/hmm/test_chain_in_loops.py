"""A chain read in compiled loops is the chain read by tensors, however small its probabilities."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

import seqmodels as sm
from seqmodels.generation.cursor import ScoredSteps, single_steps
from seqmodels.hmm import cursor as cursors
from seqmodels.hmm.cursor import BeliefSteps, HMMCursor, HMMState

rng = np.random.default_rng(3)
TRAINED_ON = [np.repeat(rng.integers(0, 3, 6), 5)[:, None] * 3.0 + rng.standard_normal((30, 2)) for _ in range(3)]
FRAMES = [x[:20].copy() for x in TRAINED_ON]
FRAMES[0][3, 0], FRAMES[0][7], FRAMES[0][11] = np.nan, np.nan, 1e5
FRAMES[1][2:4] = -3e8  # so far from every state that only logarithms tell them apart
COUNTS = [rng.poisson(2.0, (20, 2)).astype(float) for _ in range(2)]
SYMBOLS = [rng.integers(0, 4, 20) for _ in range(3)]
MIXTURES = {
    "diag": sm.GaussianMixture(2),
    "spherical": sm.GaussianMixture(1, "spherical"),
    "full": sm.GaussianMixture(2, "full"),
    "tied": sm.GaussianMixture(1, "tied"),
    "background": sm.GaussianMixture(1, background=0.01),
}


def fitted(data: Any, **options: Any) -> sm.HMM:
    encoding = "auto" if data is not TRAINED_ON else sm.Standardize()
    return sm.HMM(3, max_iter=2, n_init=1, dtype="float64", encoding=encoding, **options).fit(data)


MODELS: dict[str, tuple[Any, dict[str, Any], list[np.ndarray]]] = {
    **{name: (TRAINED_ON, {"observation": each, "length": "stop"}, FRAMES) for name, each in MIXTURES.items()},
    "counts": (COUNTS, {"observation": sm.observations.Poisson()}, COUNTS),
    "symbols": (SYMBOLS, {"length": "stop"}, SYMBOLS),
    "left to right": (TRAINED_ON, {"topology": "left-to-right", "length": "stop"}, FRAMES),
}


@cache
def model_and_data(name: str) -> tuple[sm.HMM, list[np.ndarray]]:
    trained_on, options, data = MODELS[name]
    return fitted(trained_on, **options), data


def by_tensors(cursor: HMMCursor, monkeypatch: pytest.MonkeyPatch) -> HMMCursor:
    """The same cursor, without compiled loops."""
    with monkeypatch.context() as patch:
        patch.setattr(cursors, "steps_are_compiled", lambda *_: False)
        assert cursor._densities is None
    return cursor


def encoded(model: sm.HMM, x: np.ndarray) -> torch.Tensor:
    return torch.as_tensor(model.encoding_.encode(x))[None]


def assert_same(a: HMMState, b: HMMState) -> None:
    assert a.n_scored == b.n_scored
    assert a.log_alpha is not None
    assert_allclose(a.log_alpha, b.log_alpha, rtol=1e-12, atol=1e-12)
    assert_allclose(a.log_predicted, b.log_predicted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_loops_and_tensors_agree(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, data = model_and_data(name)
    cursor = model.cursor()
    steps = single_steps(cursor)
    assert isinstance(steps, BeliefSteps)
    for x in data[:2]:
        x_t, state, read = encoded(model, x), cursor.start(), cursor.start()
        at, nats = steps.enter(state), []
        states = [state]
        for step in x_t[0]:
            at, log_prob = steps.advance(at, step.numpy())
            nats.append(log_prob)
            states.append(cursor.advance(states[-1], step[None]))
            assert_same(steps.leave(at), states[-1])
        read, together = cursor.read_and_score(read, x_t)
        assert_same(read, states[-1])
        assert_same(cursor.read(cursor.start(), x_t), states[-1])
        plain = model.cursor()
        with monkeypatch.context() as patch:
            patch.setattr(cursors, "steps_are_compiled", lambda *_: False)
            slow, expected = plain.start(), []
            for step in x_t[0]:
                expected.append(float(plain.distribution(slow).log_prob(step[None])))
                slow = plain.advance(slow, step[None])
            assert isinstance(single_steps(plain), ScoredSteps)
            other, scored = plain.read_and_score(plain.start(), x_t)
            ahead = plain.predictions_ahead(slow, 4)
        assert_same(read, slow)
        assert_same(other, slow)
        for each in (nats, together[0], scored[0]):
            assert_allclose(each, expected, rtol=1e-12, atol=1e-12)
        fast = cursor.predictions_ahead(read, 4)
        assert fast is not None
        assert ahead is not None
        for one, two in zip(fast, ahead, strict=True):
            assert_allclose(one.log_weights, two.log_weights, rtol=1e-12, atol=1e-12)
            assert_allclose(one.log_continue, two.log_continue, rtol=1e-12, atol=1e-12)
            assert (one.log_end is None) == (two.log_end is None)
            if one.log_end is not None:
                assert_allclose(one.log_end, two.log_end, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["diag", "full", "symbols", "left to right"])
def test_a_stream_adds_up_to_the_score(name: str) -> None:
    model, data = model_and_data(name)
    stream = model.stream()
    steps = [stream.update(frame) for frame in data[0]]
    expected = model.log_prob_steps(data[:1])[0]
    assert_allclose([*steps, stream.log_end()], expected, rtol=1e-12, atol=1e-11)


def test_several_rows_are_stepped_as_one_by_one() -> None:
    model, data = model_and_data("diag")
    cursor = model.cursor()
    rows = torch.cat([encoded(model, x[:6]) for x in data[:3]])
    together = cursor.read(cursor.start(n=3), rows)
    for i, x in enumerate(rows):
        alone = cursor.read(cursor.start(), x[None])
        assert_same(cursor.select(together, torch.tensor([i])), alone)


def test_after_an_impossible_step_all_is_impossible() -> None:
    """Also where the step's density is zero in every state."""
    model = sm.HMM.from_parameters([1.0, 0.0], [[1.0, 0.0], [0.0, 1.0]], emission=[[1.0, 0.0], [0.0, 1.0]])
    stream = model.stream()
    assert [stream.update(symbol) for symbol in (0, 1, 0)] == [0.0, -np.inf, -np.inf]
    assert stream.filtered.tolist() == [0.0, 0.0]


class Halved(sm.GaussianMixture):
    """A density of a user's own, by another ``log_prob``."""

    def log_prob(self, *args: Any, **options: Any) -> torch.Tensor:
        return super().log_prob(*args, **options) - np.log(2.0)


def test_a_class_derived_from_a_mixture_keeps_its_own_density() -> None:
    table, x = model_and_data("diag")[0].parameters_.table, torch.zeros(1, 2, dtype=torch.float64)
    parameters, size = model_and_data("diag")[0].parameters_, 2
    ours, theirs = (
        HMMCursor(parameters, observation, size, torch.float64) for observation in (sm.GaussianMixture(2), Halved(2))
    )
    assert table.shape[0] == 3
    _, log_prob = ours.advance_and_score(ours.start(), x)
    _, halved = theirs.advance_and_score(theirs.start(), x)
    assert_allclose(halved, log_prob - np.log(2.0), rtol=1e-12)
