"""Transitions over gaps and integrals over paths: against scipy, Van Loan's block exponential, and known limits."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from numpy.typing import NDArray
from scipy.linalg import expm

from seqmodels.inference.chains import parallel_segments
from seqmodels.inference.chains.continuous_time import (
    ExponentialSeries,
    distinct_gaps,
    expected_path,
    generators_at,
    log_transitions_over,
    path_integrals,
    stationary_of_generator,
    transition_probabilities,
)

Array = NDArray[np.float64]
GAPS = np.array([0.0, 1e-9, 0.1, 1.0, 2.5, 37.0])


def generator(k: int, zeros: float, seed: int, absorbing: int | None = None) -> Array:
    rng = np.random.default_rng(seed)
    q = rng.gamma(1.0, 1.0, (k, k)) * (rng.random((k, k)) >= zeros)
    np.fill_diagonal(q, 0.0)
    if absorbing is not None:
        q[absorbing] = 0.0
    np.fill_diagonal(q, -q.sum(1))
    return q


GENERATORS = {
    "one state": np.zeros((1, 1)),
    "never left": np.zeros((3, 3)),
    "two": generator(2, 0.0, 0),
    "four": generator(4, 0.3, 1),
    "absorbing": generator(5, 0.5, 2, absorbing=3),
    "equal eigenvalues": np.array([[-1.0, 1.0, 0.0], [0.0, -1.0, 1.0], [0.0, 0.0, 0.0]]),
    "periodic": np.array([[-1.0, 1.0, 0.0], [0.0, -1.0, 1.0], [1.0, 0.0, -1.0]]),
}
each_generator = pytest.mark.parametrize("name", GENERATORS)


@each_generator
def test_transitions_are_the_exponential(name: str) -> None:
    q = GENERATORS[name]
    p = transition_probabilities(torch.tensor(q), torch.tensor(GAPS)).numpy()
    assert_allclose(p, np.stack([expm(q * gap) for gap in GAPS]), rtol=1e-12, atol=1e-13)
    assert_allclose(p.sum(-1), 1.0, rtol=1e-14)
    assert (p >= 0).all()


def test_each_gap_may_have_a_generator_of_its_own() -> None:
    names = ["never left", "equal eigenvalues", "periodic"] * 2
    q, gaps = torch.tensor(np.stack([GENERATORS[name] for name in names])), torch.tensor(GAPS)
    p = transition_probabilities(q, gaps)
    assert_allclose(p, np.stack([expm(a * b) for a, b in zip(q.numpy(), GAPS, strict=True)]), rtol=1e-12, atol=1e-13)
    counts = p * torch.rand(p.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    alone = [expected_path(*each) for each in zip(q, gaps[:, None], counts[:, None], strict=True)]
    assert_allclose(expected_path(q, gaps, counts), torch.stack(alone), rtol=1e-12, atol=1e-15)
    assert transition_probabilities(q[:0], gaps[:0]).shape == (0, 3, 3)


def test_gaps_are_told_apart_by_the_inputs_that_rates_depend_on() -> None:
    q, slopes = torch.tensor(GENERATORS["periodic"]), torch.zeros(3, 3, 2, dtype=torch.float64)
    slopes[0, 1, 0], gaps = 0.7, torch.tensor([1.0, 1.0, 2.5, 1.0], dtype=torch.float64)
    inputs = torch.tensor([[1.0, 0.0], [1.0, 9.0], [1.0, 0.0], [-2.0, 0.0]], dtype=torch.float64)
    distinct = distinct_gaps(q, gaps, slopes, inputs)
    assert len(distinct.lengths) == 3
    assert distinct.which[0] == distinct.which[1]
    assert len(distinct_gaps(q, gaps, slopes, inputs, [0, 1]).lengths) == 4
    for log_p, gap, u in zip(log_transitions_over(q, gaps, slopes, inputs), gaps, inputs, strict=True):
        faster = q.numpy().copy()
        faster[0, 1] *= np.exp(0.7 * float(u[0]))
        faster[0, 0] = -faster[0, 1]
        assert_allclose(log_p.exp(), expm(faster * float(gap)), rtol=1e-12)
    extreme = transition_probabilities(generators_at(q, 1e6 * slopes, inputs), gaps)
    assert bool(torch.isfinite(extreme).all())


def test_small_probabilities_have_their_leading_digits() -> None:
    k, gap = 30, 1e-9
    q = np.diag(np.full(k - 1, 2.0), 1) - np.diag(np.append(np.full(k - 1, 2.0), 0.0))
    p = transition_probabilities(torch.tensor(q), torch.tensor([gap], dtype=torch.float64))[0, 0].numpy()
    expected = [(2.0 * gap) ** n / math.factorial(n) for n in range(k - 1)]
    assert_allclose(p[:-1], expected, rtol=1e-7)  # exp(-2 gap) less
    assert p[-2] < 1e-270
    slow = np.array([[-1e3, 1e3, 0.0], [1e3, -1e3 - 1e-12, 1e-12], [0.0, 0.0, 0.0]])
    over = transition_probabilities(torch.tensor(slow), torch.tensor([1e3], dtype=torch.float64))[0].numpy()
    assert over[0, 2] == pytest.approx(0.5e-9, rel=1e-5)


def test_after_a_very_long_gap_the_start_is_forgotten() -> None:
    q = torch.tensor(generator(4, 0.0, 3))
    p = transition_probabilities(q, torch.tensor([1e6, 1e15], dtype=torch.float64))
    shares = stationary_of_generator(q)
    assert_allclose(p.numpy(), np.broadcast_to(shares.numpy(), p.shape), rtol=1e-12)
    assert_allclose((shares @ q).numpy(), 0.0, atol=1e-15)


def test_gaps_of_one_length_have_one_matrix() -> None:
    q = torch.tensor(GENERATORS["four"])
    gaps = torch.tensor([0.5, 2.0, 0.5, 0.0], dtype=torch.float64)
    log_a = log_transitions_over(q, gaps)
    assert_allclose(log_a.exp(), np.stack([expm(q.numpy() * gap) for gap in gaps.tolist()]), atol=1e-13)
    assert torch.equal(log_a[0], log_a[2])
    assert torch.equal(log_a[3].exp(), torch.eye(4, dtype=torch.float64))


@each_generator
def test_integrals_over_paths_are_those_of_the_block_exponential(name: str) -> None:
    q = GENERATORS[name]
    k = len(q)
    weights = np.random.default_rng(4).random((len(GAPS), k, k))
    expected = np.zeros((k, k))
    for gap, w in zip(GAPS, weights, strict=True):
        block = np.block([[q.T, w], [np.zeros((k, k)), q.T]])
        expected += expm(block * gap)[:k, k:]
    found = path_integrals(torch.tensor(q), torch.tensor(GAPS), torch.tensor(weights)).numpy()
    assert_allclose(found, expected, rtol=1e-10)


@each_generator
def test_times_in_all_states_are_the_whole_time(name: str) -> None:
    q, rng = GENERATORS[name], np.random.default_rng(5)
    gaps = torch.tensor(np.append(GAPS, 1e5))
    transitions = transition_probabilities(torch.tensor(q), gaps) * torch.tensor(rng.random((len(gaps), 1, 1)))
    path = expected_path(torch.tensor(q), gaps, transitions)
    assert float(path.trace()) == pytest.approx(float(transitions.sum((1, 2)) @ gaps), rel=1e-10)
    assert (path.numpy()[(q == 0) & ~np.eye(len(q), dtype=bool)] == 0).all()


def test_paths_of_hardly_any_probability_are_finite() -> None:
    k = 36
    q = torch.tensor(np.diag(np.full(k - 1, 2.0), 1) - np.diag(np.append(np.full(k - 1, 2.0), 0.0)))
    transitions = torch.zeros(1, k, k, dtype=torch.float64)
    transitions[0, 0, 20] = 1.0
    gap = torch.tensor([1e-9], dtype=torch.float64)
    path = expected_path(q, gap, transitions)
    assert_allclose(path.diagonal(offset=1)[:20], 1.0, rtol=1e-10)
    assert float(path.trace()) == pytest.approx(1e-9)
    transitions[0, 0] = 0.0
    transitions[0, 0, 33] = 1.0  # which is 1e-314
    assert bool(expected_path(q, gap, transitions).isfinite().all())


def test_jumps_and_times_are_those_of_drawn_paths() -> None:
    q, gap, start, end = generator(4, 0.0, 7), 1.3, 0, 2
    rng, k = np.random.default_rng(6), 4
    total, n = np.zeros((k, k)), 0
    for _ in range(20_000):
        state, time, path = start, 0.0, np.zeros((k, k))
        while True:
            stay = rng.exponential(1 / -q[state, state])
            path[state, state] += min(stay, gap - time)
            time += stay
            if time >= gap:
                break
            following = rng.choice(k, p=np.where(np.arange(k) == state, 0.0, q[state]) / -q[state, state])
            path[state, following] += 1
            state = following
        if state == end:
            total, n = total + path, n + 1
    transitions = torch.zeros(1, k, k, dtype=torch.float64)
    transitions[0, start, end] = 1.0
    found = expected_path(torch.tensor(q), torch.tensor([gap], dtype=torch.float64), transitions).numpy()
    assert n > 2000
    assert_allclose(found, total / n, atol=0.05)


def test_loops_and_matrix_products_agree_on_every_digit_of_small_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    rates = torch.tensor([[0.0, 1e-8, 0.0], [2.0, 0.0, 1e-3], [0.0, 5.0, 0.0]], dtype=torch.float64)
    generator = rates - torch.diag(rates.sum(1))
    gaps = torch.tensor([0.0, 1e-12, 0.1, 0.7, 3.0, 1e3, 1e9], dtype=torch.float64)
    found = transition_probabilities(generator, gaps)
    log_alpha = torch.tensor([[-1.0, -800.0, -0.5]], dtype=torch.float64).expand(len(gaps), -1)
    beliefs = ExponentialSeries.of(generator).beliefs_over(log_alpha, gaps)
    monkeypatch.setattr(parallel_segments, "_has_numba", lambda: False)
    expected = transition_probabilities(generator, gaps)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0.0)
    of_paths = torch.logsumexp(log_alpha.unsqueeze(2) + expected.log(), 1)
    torch.testing.assert_close(beliefs, of_paths, rtol=1e-12, atol=1e-12)
