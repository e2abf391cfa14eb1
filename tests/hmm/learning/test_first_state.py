"""Distributions of the first state: stationary, uniform, free."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy.optimize import minimize
from scipy.stats import poisson

import seqmodels as sm
from seqmodels.hmm.emissions import emission_of
from seqmodels.hmm.learning.constraints import Constraints, Frozen
from seqmodels.hmm.learning.em import Expectations, MAPObjective, m_step
from seqmodels.hmm.learning.first_state import differentiable_stationary, log_stationary, stationary_rows
from seqmodels.hmm.learning.given_inputs import InputOptions, InputStatistics
from seqmodels.hmm.learning.priors import Pseudocounts
from seqmodels.hmm.parameters import Parameters
from tests.made import made

SWITCHES = np.random.default_rng(5).random(90) < 0.15
COUNTS = np.random.default_rng(4).poisson(np.where(SWITCHES.cumsum() % 2, 9.0, 3.0)).astype(float)[:, None]
ROUNDS = {"max_iter": 25, "tol": 0.0, "n_init": 1}
SYMBOLS = [np.array([0, 0, 1, 1, 2, 0, 1]), np.array([2, 2, 0, 0]), np.array([1, 1, 1, 2, 0, 0, 0])]


def poisson_hmm(n_states: int = 2, **arguments: Any) -> sm.HMM:
    return made(sm.HMM, n_states, observation=sm.Poisson(), **{**ROUNDS, **arguments})


def log_prob_by_hand(x: np.ndarray, gamma: np.ndarray, rates: np.ndarray) -> float:
    """log p(x) of a Poisson HMM whose first state has the stationary distribution, by the scaled forward recursion."""
    k = len(rates)
    alpha = np.linalg.lstsq(np.vstack([(np.eye(k) - gamma).T, np.ones(k)]), np.append(np.zeros(k), 1.0), rcond=None)[0]
    total = 0.0
    for t, each in enumerate(x[:, 0]):
        alpha = (alpha if t == 0 else alpha @ gamma) * poisson.pmf(each, rates)
        total += np.log(alpha.sum())
        alpha /= alpha.sum()
    return total


@pytest.mark.slow
def test_a_stationary_chain_has_the_maximum_likelihood_of_a_general_optimiser() -> None:
    model = poisson_hmm(start="stationary", max_iter=400).fit([COUNTS])

    def negative(v: np.ndarray) -> float:
        a, b = 1 / (1 + np.exp(-v[:2]))
        return -log_prob_by_hand(COUNTS, np.array([[a, 1 - a], [1 - b, b]]), np.exp(v[2:]))

    best = minimize(negative, [2.0, 2.0, np.log(3.0), np.log(9.0)], method="BFGS")
    assert_allclose(model.log_prob([COUNTS])[0], -best.fun, atol=1e-6)
    assert_allclose(log_prob_by_hand(COUNTS, model.transition_, model.rates_[:, 0]), -best.fun, atol=1e-6)
    # Plain M-steps that put the stationary distribution in afterwards would end below.
    assert_allclose(model.initial_ @ model.transition_, model.initial_, atol=1e-12)
    assert model.n_parameters_ == 4
    assert poisson_hmm(start="free").fit([COUNTS]).n_parameters_ == 5


@pytest.mark.parametrize("length", ["given", "stop"])
@pytest.mark.parametrize("n_sequences", [1, 3])
def test_em_never_falls(length: str, n_sequences: int) -> None:
    model = made(sm.HMM, 3, start="stationary", length=length, **ROUNDS).fit(SYMBOLS[:n_sequences])
    assert (np.diff(model.history_["objective"]) > -1e-12).all()
    assert model.start_ == "stationary"
    flow = model.initial_ @ model.transition_
    assert_allclose(flow / flow.sum(), model.initial_, atol=1e-9)  # what goes on is distributed as it was
    assert_allclose(model.transition_.sum(1) + model.final_, 1.0)


@pytest.mark.parametrize("has_final", [False, True])
def test_the_m_step_finds_the_maximum(has_final: bool) -> None:
    generator = torch.Generator().manual_seed(3)
    counts = 20 * torch.rand(4, 4 + has_final, generator=generator, dtype=torch.float64)
    first = torch.tensor([3.0, 0.0, 1.0, 0.5], dtype=torch.float64)

    def objective(rows: torch.Tensor) -> float:
        values, vectors = np.linalg.eig(rows[:, :4].numpy().T)
        pi = np.abs(vectors[:, np.argmax(values.real)].real)
        return float((counts * rows.log()).sum()) + float(first.numpy() @ np.log(pi / pi.sum()))

    rows, free = counts / counts.sum(1, keepdim=True), torch.ones(4, dtype=torch.bool)
    before = objective(rows)
    for _ in range(20):
        rows = stationary_rows(counts, rows, first, free)
    best = objective(rows)
    assert best > before + 1e-3
    for i in range(4):
        for j in range(rows.shape[1]):
            for size in (-1e-3, 1e-3):
                moved = rows.clone()
                moved[i, j] *= 1 + size
                assert objective(moved / moved.sum(1, keepdim=True)) < best + 1e-9
    frozen = stationary_rows(counts, before_rows := counts.flip(1) / counts.sum(1, keepdim=True), first, ~free)
    assert torch.equal(frozen, before_rows)


@pytest.mark.parametrize("has_inputs", [False, True])
def test_the_m_step_of_one_free_row_finds_its_maximum(has_inputs: bool) -> None:
    rng = np.random.default_rng(2)
    u, of_first = rng.normal(size=30), rng.normal(size=4)
    counts, first = rng.random((30, 2, 2)), np.array([[0.9, 0.1], [0.2, 0.8], [0.7, 0.3], [1.0, 0.0]])
    slope_of_1 = 0.8 if has_inputs else 0.0

    def rows(v: np.ndarray, u: np.ndarray) -> np.ndarray:
        """Transitions at each input, ``(n, 2, 2)``: row 0 leads to state 1 with log-odds ``v[0] + v[1] u``."""
        leaves = 1 / (1 + np.exp(-np.stack([v[0] + v[1] * u, np.log(0.3 / 0.7) + slope_of_1 * u], 1)))
        return np.stack([1 - leaves[:, 0], leaves[:, 0], leaves[:, 1], 1 - leaves[:, 1]], 1).reshape(-1, 2, 2)

    def negative(v: np.ndarray) -> float:
        v = v if has_inputs else np.append(v, 0.0)
        at_first = rows(v, of_first)
        pi = np.stack([at_first[:, 1, 0], at_first[:, 0, 1]], 1)
        return -float((counts * np.log(rows(v, u))).sum() + (first * np.log(pi / pi.sum(1, keepdims=True))).sum())

    best = minimize(negative, np.zeros(1 + has_inputs), options={"gtol": 1e-7}).x
    x, of_steps, at_start, posterior = map(torch.as_tensor, (u[:, None], counts, of_first[:, None], first))
    given = InputStatistics(x, of_steps, first_inputs=at_start, first=posterior) if has_inputs else None
    expectations = Expectations(0.0, posterior.sum(0), of_steps.sum(0), torch.zeros(2), (), given)
    begun = torch.tensor([[0.5, 0.5], [0.3, 0.7]], dtype=torch.float64)
    slopes = torch.tensor([[[0.0], [0.0]], [[slope_of_1], [0.0]]], dtype=torch.float64) if has_inputs else None
    found = Parameters(begun[0], begun, None, torch.zeros(2, 2, dtype=torch.float64), transition_slopes=slopes)
    objective = MAPObjective(
        emission_of(sm.Categorical(), 2),
        Pseudocounts.even(0.0),
        replace(Constraints.none(2), frozen=Frozen(transition=[1])),
        n_units=1.0,
        log_det=0.0,
        start="stationary",
        inputs=InputOptions(1, transition=(0,)) if has_inputs else InputOptions(),
    )
    for _ in range(10):
        found = m_step(found, expectations, objective)
    assert_allclose(found.transition[0], rows(np.append(best, 0.0), np.zeros(1))[0, 0], rtol=1e-4)
    assert_allclose(found.transition[1], [0.3, 0.7], rtol=1e-12)
    if has_inputs:
        assert found.transition_slopes is not None
        assert_allclose(found.transition_slopes[:, :, 0], [[0.0, best[1]], [slope_of_1, 0.0]], rtol=1e-4)


def test_auto_is_stationary_for_few_sequences_alone() -> None:
    few, many = [COUNTS, COUNTS[::-1]], [COUNTS[i : i + 30] for i in range(5)]
    assert poisson_hmm(max_iter=1).fit(few).start_ == "stationary"
    assert poisson_hmm(max_iter=1).fit(many).start_ == "free"
    assert poisson_hmm(max_iter=1, topology="left-to-right").fit(few).start_ == "free"
    assert poisson_hmm(max_iter=1, algorithm="stepwise").fit(few).start_ == "free"
    assert poisson_hmm(max_iter=1, training__frozen=("initial",)).fit(few).start_ == "free"
    assert poisson_hmm(max_iter=1).fit(few, states=[np.zeros(90, int)] * 2).start_ == "free"
    assert poisson_hmm().partial_fit(few).start_ == "free"
    assert sm.HMM(2, max_iter=1).fit(SYMBOLS).start_ == "free"  # their ends are events


def test_a_uniform_start_is_left_as_it_is() -> None:
    model = poisson_hmm(start="uniform").fit([COUNTS])
    assert model.initial_.tolist() == [0.5, 0.5]
    assert model.n_parameters_ == 4
    ends = sm.HMM(2, topology=sm.LeftToRight(), start="uniform", length="stop", max_iter=3).fit(SYMBOLS)
    assert ends.initial_.tolist() == [1.0, 0.0]


@pytest.mark.parametrize("start", ["stationary", "uniform"])
@pytest.mark.parametrize("algorithm", ["stepwise", "gradient"])
def test_other_algorithms_keep_it(algorithm: Any, start: Any) -> None:
    model = poisson_hmm(start=start, algorithm=algorithm, max_iter=3, training__batches=2).fit([COUNTS])
    expected = model.stationary_ if start == "stationary" else np.full(2, 0.5)
    assert_allclose(model.initial_, expected, atol=1e-9)
    assert model.log_prob([COUNTS])[0] > -320


def test_partial_fit_and_warm_start_keep_it(tmp_path: Path) -> None:
    model = poisson_hmm(start="stationary", max_iter=4).fit([COUNTS])
    model.partial_fit([COUNTS])
    assert_allclose(model.initial_, model.stationary_, atol=1e-9)
    model.save(tmp_path / "model.safetensors")
    loaded = sm.load(tmp_path / "model.safetensors")
    assert loaded.start_ == "stationary"
    assert loaded.n_parameters_ == model.n_parameters_
    before = loaded.log_prob([COUNTS])[0]
    loaded.set_params(warm_start=True, start="auto").fit([COUNTS])
    assert loaded.start_ == "stationary"
    assert loaded.log_prob([COUNTS])[0] >= before
    with pytest.raises(ValueError, match="start='free' differs from what was fitted"):
        loaded.set_params(start="free").fit([COUNTS])


def test_what_cannot_be_is_refused() -> None:
    for arguments, message in (
        ({"start": "Stationary"}, "start is 'Stationary'; pass 'auto', 'free', 'stationary' or 'uniform'"),
        ({"start": "stationary", "topology": "left-to-right"}, "every state leads to every other"),
        ({"start": "uniform", "training__frozen": ("initial",)}, "cannot be frozen too"),
        ({"start": "stationary", "algorithm": "gradient", "length": "stop"}, "algorithm='em' or 'stepwise'"),
    ):
        with pytest.raises(ValueError, match=message):
            made(sm.HMM, 2, **arguments).fit(SYMBOLS)
    chain = {"transition": [[0.9, 0.1], [0.2, 0.8]], "rates": [[1.0], [5.0]]}
    with pytest.raises(ValueError, match=r"start='stationary' means that initial is \[0.666667, 0.333333\]"):
        made(sm.HMM.from_parameters, [0.5, 0.5], **chain, start="stationary")
    model = made(sm.HMM.from_parameters, [2 / 3, 1 / 3], **chain, start="stationary", warm_start=True, max_iter=2)
    assert_allclose(model.fit([COUNTS]).stationary_, model.initial_, atol=1e-9)
    with pytest.raises(ValueError, match="which these transitions do not"):
        sm.HMM.from_parameters([0.5, 0.5], [[1.0, 0.0], [0.2, 0.8]], rates=[[1.0], [5.0]], start="stationary")


def test_many_chains_at_once_and_one_that_has_come_apart() -> None:
    chains = torch.tensor(
        [[[0.9, 0.1], [0.3, 0.7]], [[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [0.0, 1.0]]], dtype=torch.float64
    )
    expected = [[0.75, 0.25], [0.5, 0.5], [0.0, 1.0]]
    assert_allclose(log_stationary(chains.log()).exp(), expected, rtol=0, atol=1e-15)
    assert_allclose(differentiable_stationary(chains[::2]), expected[::2], rtol=0, atol=1e-15)
    assert_allclose(differentiable_stationary(chains[0]), expected[0], rtol=1e-14)
    assert not bool(torch.isfinite(differentiable_stationary(chains[1:], refuses=False)[0]).any())
    with pytest.raises(torch.linalg.LinAlgError):
        differentiable_stationary(chains)
