"""Few frames in loops, beside the textbook's recursions and batches of tensors, and where loops cannot be trusted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from seqmodels import HMM, AutoregressiveGaussian
from seqmodels.encodings.raw_data import Data
from seqmodels.hmm.emissions import emission_of
from seqmodels.hmm.few_frames import FewFrames, are_few
from seqmodels.hmm.hidden_chain import HiddenChainModel
from seqmodels.inference.chains import textbook

LENGTHS = (1, 30, 7, 30)
TRANSITION = np.array([[0.5, 0.5, 0.0], [0.0, 0.6, 0.4], [0.3, 0.0, 0.7]])
MEANS = np.array([[0.0, 1.0], [2.0, -1.0], [4.0, 0.0]])


def model_of(initial: Any = (0.6, 0.4, 0.0), final: Any = None, scale: float = 1.0) -> HMM:
    chain = np.array(initial), TRANSITION if final is None else TRANSITION * (1 - np.array(final))[:, None]
    return HMM.from_parameters(*chain, final=final, means=scale * MEANS, covariances=np.full((3, 2), scale**2))


def sequences(scale: float = 1.0) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [scale * (MEANS[rng.integers(0, 3, n)] + rng.normal(size=(n, 2))) for n in LENGTHS]


def answers(model: HMM, X: list[np.ndarray]) -> tuple[list[np.ndarray], ...]:
    return model.decode(X), model.posterior(X), model.filter(X), model.log_prob_steps(X)


def log_densities(model: HMM, x: np.ndarray) -> torch.Tensor:
    squares = (((x[:, None] - model.means_[:, 0]) ** 2) / model.covariances_[:, 0]).sum(-1)
    log_det = np.log(2 * np.pi * model.covariances_[:, 0]).sum(-1)
    return torch.from_numpy(-0.5 * (squares + log_det))


@pytest.mark.parametrize("final", [None, [0.1, 0.0, 0.2]])
def test_they_are_the_recursions_of_the_textbook(final: list[float] | None) -> None:
    model = model_of(final=final)
    initial, transition = torch.from_numpy(model.initial_), torch.from_numpy(model.transition_)
    for x, path, gamma, belief, steps in zip(sequences(), *answers(model, sequences()), strict=True):
        log_b = log_densities(model, x)
        log_alpha = textbook.forward(initial, transition, log_b)
        stop = torch.ones(3, dtype=torch.float64) if final is None else torch.tensor(final, dtype=torch.float64)
        log_p = torch.logsumexp(log_alpha[-1] + stop.log(), 0)
        assert_allclose(steps.sum(), log_p, rtol=1e-12)
        assert_allclose(belief, torch.softmax(log_alpha, 1), atol=1e-13)
        log_beta = textbook.backward(transition, log_b, stop)
        assert_allclose(gamma, (log_alpha + log_beta - log_p).exp(), atol=1e-13)
        assert_array_equal(path, textbook.viterbi(initial, transition, log_b, stop))


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
@pytest.mark.parametrize("final", [None, [0.1, 0.0, 0.2]])
def test_batches_of_tensors_say_the_same(
    scale: float, final: list[float] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, X = model_of(final=final, scale=scale), sequences(scale)
    in_loops = answers(model, X)
    monkeypatch.setattr(HiddenChainModel, "_few_frames", lambda *_: None)
    for of_loops, of_tensors in zip(in_loops, answers(model, X), strict=True):
        for each, other in zip(of_loops, of_tensors, strict=True):
            assert each.dtype == other.dtype
            assert_allclose(each, other, rtol=1e-9, atol=1e-12)


def test_where_loops_lose_a_state_that_matters_tensors_find_it() -> None:
    """After 60 frames that all but exclude state 0 come 61 that only it explains."""
    model = HMM.from_parameters(
        [0.5, 0.5], np.eye(2), means=np.array([[0.0], [10.0]]), covariances=np.array([[1.0], [1.0]])
    )
    x = np.r_[np.full(60, 10.0), np.zeros(61)][:, None]
    few = FewFrames.of(model.parameters_, emission_of(model.observation_, 1), model._setting().examples(Data.of([x])))
    assert few.posteriors() is None
    assert few.beliefs() is None
    assert few.steps() is None
    assert_allclose(model.log_prob([x])[0], np.log(0.5) - 60 * 50 - 121 * 0.5 * np.log(2 * np.pi), rtol=1e-12)
    assert_allclose(model.posterior([x])[0][:, 0], 1.0)
    assert_array_equal(model.decode([x])[0], 0)


def test_what_is_impossible_is_refused_by_its_number() -> None:
    model = HMM.from_parameters([1.0, 0.0], [[0.0, 1.0], [0.0, 1.0]], emission=[[1.0, 0.0], [0.0, 1.0]])
    X = [[0, 1, 1], [0, 0, 1]]
    for ask in (model.decode, model.posterior):
        with pytest.raises(ValueError, match="sequence 1 has probability zero"):
            ask(X)
    with pytest.warns(UserWarning, match="sequence 1 from step 1"):
        assert_array_equal(model.filter(X)[1], [[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]])
    assert_array_equal(model.log_prob(X), [0.0, -np.inf])


def test_values_that_no_float_squares_are_refused() -> None:
    with pytest.raises(ValueError, match="sequence 0"):
        model_of().filter([np.full((3, 2), 1e200)])


def test_what_loops_cannot_read_is_left_to_tensors() -> None:
    model = model_of()
    (example,) = model._setting().examples(Data.of(sequences()[1:2]))
    emission = emission_of(model.observation_, 2)
    assert are_few(model.parameters_, emission, [example])
    example.states = np.full(30, -1)
    assert not are_few(model.parameters_, emission, [example])
    example.states, example.source = None, np.zeros((2, 2))
    assert not are_few(model.parameters_, emission, [example])
    example.source, example.values = None, np.zeros((0, 2))
    assert not are_few(model.parameters_, emission, [example])
    example.values = np.zeros((1 << 21, 2))
    assert not are_few(model.parameters_, emission, [example])
    example.values = np.zeros((30, 2))
    assert not are_few(model.parameters_, emission_of(AutoregressiveGaussian(1), 2), [example])
