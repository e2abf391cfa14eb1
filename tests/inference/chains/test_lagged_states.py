"""Chains whose densities depend on the last states, or whose transitions differ, against all paths written out."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from numpy.typing import NDArray

from seqmodels.inference.chains import forward_backward, lagged_states, sampling
from seqmodels.inference.chains.densities import LogDensities
from seqmodels.inference.chains.forward_backward import forward_backward_pass as posterior_of
from seqmodels.inference.chains.forward_backward import forward_pass as filtered_of
from seqmodels.inference.chains.lagged_states import (
    LaggedStatesTrellis,
    best_paths,
    first_tuples,
    forward_backward_pass,
    forward_pass,
    next_tuples,
    sample_paths,
    tuples,
)
from seqmodels.inference.chains.packing import Packing
from seqmodels.inference.chains.parallel_segments import Segments
from seqmodels.inference.chains.trellis import Trellis
from seqmodels.inference.chains.viterbi import best_paths as viterbi_paths
from seqmodels.inference.chains.viterbi import log_prob_of_paths

Array = NDArray[np.float64]
LENGTHS = [5, 1, 3, 6, 2]


def trellis(
    k: int, order: int, lengths: list[int], *, seed: int = 0, final: bool = False, varying: bool = False
) -> LaggedStatesTrellis:
    """Random, its densities of the first p steps the same whatever came before the first; some transitions are 0."""
    rng = np.random.default_rng(seed)
    packing = Packing.of(lengths)
    shape = (packing.n_frames, k, k) if varying else (k, k)
    weights = rng.gamma(1.0, size=shape)
    weights[..., 1:] *= rng.random((*shape[:-1], k - 1)) > 0.2 * varying
    ends = rng.uniform(0.1, 0.3, size=k) * final
    weights *= (1.0 - ends)[:, None] / weights.sum(-1, keepdims=True)
    log_b = torch.tensor(2.0 * rng.normal(size=(packing.n_frames, k, k**order)))
    log_b[packing.time < order] = log_b[packing.time < order][:, :, :1]
    initial = rng.gamma(1.0, size=k)
    return LaggedStatesTrellis(
        torch.tensor(initial / initial.sum()).log().expand(len(lengths), -1),
        torch.tensor(weights).log(),
        torch.tensor(ends).log() if final else None,
        log_b,
        packing,
    )


def of_paths(trellis: LaggedStatesTrellis, sequence: int) -> dict[tuple[int, ...], float]:
    """p(path, x) of one sequence, by the definition."""
    k, m = trellis.log_b.shape[1:]
    order = round(np.log(m) / np.log(k))
    n, rank = int(trellis.packing.lengths[sequence]), int(trellis.packing.rank[sequence])
    rows = [int(trellis.packing.offsets[t]) + rank for t in range(n)]
    result = {}
    for path in itertools.product(range(k), repeat=n):
        total = float(trellis.log_initial[rank, path[0]])
        for t, row in enumerate(rows):
            earlier = [path[t - lag] if t >= lag else 0 for lag in range(1, order + 1)]
            index = sum(state * k ** (order - 1 - i) for i, state in enumerate(earlier))
            total += float(trellis.log_b[row, path[t], index])
            if t:
                log_a = trellis.log_transition
                total += float((log_a[row] if log_a.dim() == 3 else log_a)[path[t - 1], path[t]])
        total += float(trellis.log_ends[rank, path[-1]])
        result[path] = np.exp(total)
    return result


# With order 0, densities depend on the newest state alone.
CASES = [(2, 1, False, False), (2, 2, True, False), (3, 2, False, True), (2, 3, False, True), (3, 0, True, True)]
each_case = pytest.mark.parametrize(("k", "order", "final", "varying"), CASES)


@each_case
def test_all_is_that_of_all_paths(k: int, order: int, final: bool, varying: bool) -> None:
    problem = trellis(k, order, LENGTHS, final=final, varying=varying)
    posterior, filtered = forward_backward_pass(problem), forward_pass(problem)
    paths, best = best_paths(problem)
    gamma = problem.packing.split(posterior.gamma.sum(2))
    transitions = problem.packing.split(posterior.transitions)
    steps = problem.packing.split(filtered.steps)
    first = np.zeros(k)
    for i, n in enumerate(LENGTHS):
        probabilities = of_paths(problem, i)
        total = sum(probabilities.values())
        assert_allclose(float(posterior.log_prob[i]), np.log(total), rtol=0, atol=1e-10)
        assert_allclose(float(steps[i].sum() + filtered.ends[i]), np.log(total), rtol=0, atol=1e-10)
        expected, pairs = np.zeros((n, k)), np.zeros((n, k, k))
        for path, p in probabilities.items():
            for t, state in enumerate(path):
                expected[t, state] += p / total
                if t:
                    pairs[t, path[t - 1], state] += p / total
        first += expected[0]
        assert_allclose(gamma[i], expected, rtol=0, atol=1e-10)
        assert_allclose(transitions[i], pairs, rtol=0, atol=1e-10)
        likeliest = max(probabilities, key=lambda path: probabilities[path])
        assert tuple(paths[i].tolist()) == likeliest
        assert_allclose(float(best[i]), np.log(probabilities[likeliest]), rtol=0, atol=1e-10)
    assert_allclose(posterior.initial, first, rtol=0, atol=1e-10)


def test_it_is_one_dense_chain_of_tuples() -> None:
    k, order, lengths = 2, 5, [40, 12]
    problem = trellis(k, order, lengths)
    states = tuples(k, order)
    follows = (states[:, None, :-1] == states[None, :, 1:]).all(2)
    dense = torch.where(follows, problem.log_transition.exp()[states[:, :1], states[:, 0]], 0.0)
    initial = first_tuples(problem.log_initial[:1], k**order).exp().flatten()
    log_b = problem.packing.unpack(problem.log_b.flatten(1))
    expected = forward_backward(initial, dense, log_b, lengths=lengths)
    posterior = forward_backward_pass(problem)
    assert_allclose(posterior.log_prob, expected.log_prob, rtol=1e-12)
    assert_allclose(problem.packing.unpack(posterior.gamma.flatten(1)), expected.gamma, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("order", "varying"), [(2, False), (2, True), (0, True)])
def test_compiled_loops_equal_tensor_operations(order: int, varying: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba", reason="without numba the loops are not compiled")
    problem = trellis(3, order, [7, 1, 4, 7], final=not varying, varying=varying, seed=2)
    problem.log_b[problem.packing.time == 3] = -torch.inf  # an impossible step
    results = []
    for has_numba in (True, False):
        monkeypatch.setattr(lagged_states, "is_compiling", lambda has_numba=has_numba: has_numba)
        posterior, filtered = forward_backward_pass(problem), forward_pass(problem)
        results.append([*vars(posterior).values(), *vars(filtered).values()])
    assert torch.isneginf(results[0][0]).tolist() == [True, False, True, True]
    for found, expected in zip(*results, strict=True):
        assert not bool(torch.isnan(found).any())
        assert_allclose(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("case", ["dense", "varying", "ties", "levels of -1e9"])
def test_best_paths_in_loops_are_those_of_tensor_operations(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba", reason="without numba the loops are not compiled")
    problem = trellis(3, 2, [30, 1, 4, 30], final=case != "varying", varying=case == "varying", seed=2)
    problem.log_b[torch.rand(problem.log_b.shape, generator=torch.Generator().manual_seed(0)) < 0.05] = -torch.inf
    problem.log_b[problem.packing.time == 3, :, :4] = -torch.inf
    problem.log_b[problem.packing.rank[2] + problem.packing.offsets[2]] = -torch.inf  # an impossible sequence
    if case == "ties":
        problem.log_b.round_()
        problem.log_transition.zero_()
        problem.log_initial.zero_()
    if case == "levels of -1e9":
        problem.log_b.sub_(1e9)
    paths, log_prob = best_paths(problem)
    monkeypatch.setattr(lagged_states, "is_compiling", lambda: False)
    expected, log_expected = best_paths(problem)
    assert torch.isneginf(log_prob).tolist() == [False, False, True, False]
    assert torch.equal(log_prob, log_expected)
    for i in (0, 1, 3):
        assert torch.equal(paths[i], expected[i])


def test_one_step_is_that_of_the_forward_pass() -> None:
    problem = trellis(3, 2, [6])
    filtered = forward_pass(problem)
    predicted = next_tuples(filtered.log_alpha[3:4], problem.log_a)
    step = torch.logsumexp((predicted + problem.log_b[4:5]).flatten(), 0)
    assert_allclose(step, filtered.steps[4], rtol=1e-12)


def test_drawn_paths_have_their_posterior_probabilities() -> None:
    problem, n = trellis(2, 2, [4, 2], final=True), 20_000
    paths, log_prob = sample_paths(problem, n, torch.Generator().manual_seed(0))
    for i in range(2):
        probabilities = of_paths(problem, i)
        total = sum(probabilities.values())
        assert_allclose(float(log_prob[i]), np.log(total), rtol=1e-12)
        drawn = [tuple(path) for path in paths[i].T.tolist()]
        for path, p in probabilities.items():
            share = p / total
            assert abs(drawn.count(path) / n - share) < 5 * np.sqrt(share * (1 - share) / n) + 1e-12


def test_densities_far_apart_lose_nothing() -> None:
    problem = trellis(2, 1, [30])
    shifted = LaggedStatesTrellis(
        problem.log_initial, problem.log_transition, None, problem.log_b - 1e6, problem.packing
    )
    assert_allclose(forward_pass(shifted).steps + 1e6, forward_pass(problem).steps, rtol=0, atol=1e-8)


# -- hidden Markov models whose transitions differ from step to step ---------------------------------------------------


def hidden_markov(problem: LaggedStatesTrellis) -> Trellis:
    """The problem of a chain whose densities depend on the newest state alone, as other algorithms take it."""
    final = None if problem.log_final is None else problem.log_final.exp()
    k, segments = problem.n_states, Segments.whole(problem.packing.lengths)
    densities = LogDensities(problem.log_b[:, :, 0])
    chain = Trellis.of(problem.log_initial[0].exp(), torch.zeros(k, k), densities, segments, final)
    return replace(chain, log_transitions=problem.log_transition)


@pytest.mark.parametrize("final", [False, True])
def test_a_hidden_markov_model_has_the_same_posterior_and_paths(final: bool) -> None:
    problem = trellis(3, 0, LENGTHS, final=final, varying=True)
    chain = hidden_markov(problem)
    expected, of_passes = forward_backward_pass(problem), forward_pass(problem)
    posterior, filtered = posterior_of(chain), filtered_of(chain)
    assert_allclose(posterior.gamma, expected.gamma.sum(2), rtol=0, atol=1e-12)
    assert posterior.transitions is not None
    assert_allclose(posterior.transitions, expected.transitions, rtol=0, atol=1e-12)
    assert_allclose(posterior.xi, expected.transitions.sum(0), rtol=0, atol=1e-12)
    for name in ("log_prob", "initial", "final"):
        assert_allclose(getattr(posterior, name), getattr(expected, name), rtol=0, atol=1e-12)
    assert_allclose(filtered.alpha.log(), of_passes.log_beliefs, rtol=0, atol=1e-12)
    assert_allclose(filtered.steps, of_passes.steps, rtol=0, atol=1e-12)
    path, log_prob = viterbi_paths(chain)
    paths, log_best = best_paths(problem)
    assert torch.equal(path, torch.cat(paths))
    assert_allclose(log_prob, log_best, rtol=0, atol=1e-12)
    assert_allclose(log_prob_of_paths(chain, path), log_prob, rtol=0, atol=1e-12)


def test_drawn_states_of_a_hidden_markov_model_have_the_posterior() -> None:
    problem = trellis(3, 0, [4, 1, 3], varying=True)
    chain, expected = hidden_markov(problem), forward_backward_pass(problem)
    paths, log_prob = sampling.sample_paths(chain, 20_000, torch.Generator().manual_seed(0))
    paths = problem.packing.pack(paths)
    assert torch.allclose(log_prob, expected.log_prob)
    pairs = torch.nn.functional.one_hot(paths[problem.packing.previous] * 3 + paths[3:], 9).double().mean(1)
    assert float((pairs - expected.transitions[3:].flatten(1)).abs().max()) < 0.02


def test_transitions_that_are_the_same_at_all_steps() -> None:
    problem = trellis(3, 0, LENGTHS, final=True)
    matrix = problem.log_transition.expand(problem.packing.n_frames, -1, -1).contiguous()
    at_each = hidden_markov(replace(problem, log_transition=matrix))
    plain = replace(at_each, log_transitions=None, transition=problem.log_transition.exp())
    left, right = posterior_of(plain), posterior_of(at_each)
    for name in ("log_prob", "gamma", "xi", "initial", "final"):
        assert torch.allclose(getattr(left, name), getattr(right, name), atol=1e-12)
    assert torch.equal(viterbi_paths(plain)[0], viterbi_paths(at_each)[0])


def test_weights_of_sequences_and_a_part_of_them() -> None:
    chain = hidden_markov(trellis(3, 0, [4, 1, 3], varying=True))
    weights = torch.tensor([2.0, 0.0, 1.0], dtype=torch.float64)
    weighted, whole = (posterior_of(replace(chain, weights=each)) for each in (weights, None))
    assert whole.transitions is not None
    assert torch.allclose(weighted.xi, torch.einsum("n,nij->ij", weights[chain.packing.sequence], whole.transitions))
    part, rows = chain.take(torch.tensor([2]))
    assert torch.allclose(posterior_of(part).gamma, whole.gamma[rows])


@pytest.mark.parametrize("case", ["dense", "ties", "levels of -1e9"])
def test_best_paths_of_a_hidden_markov_model_in_loops(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba", reason="without numba the loops are not compiled")
    problem = trellis(3, 0, [40, 1, 7, 40], final=True, varying=True)
    problem.log_b[torch.rand(problem.log_b.shape, generator=torch.Generator().manual_seed(0)) < 0.1] = -torch.inf
    if case == "ties":
        problem.log_b.round_()
        problem.log_transition.zero_()
        problem.log_initial.zero_()
    if case == "levels of -1e9":
        problem.log_b.sub_(1e9 * torch.rand(len(problem.log_b), 1, 1, generator=torch.Generator().manual_seed(1)))
    chain = hidden_markov(problem)
    found, log_found = viterbi_paths(chain)
    monkeypatch.setattr(lagged_states, "is_compiling", lambda: False)
    path, log_prob = viterbi_paths(chain)
    possible = torch.isfinite(log_prob)
    assert int(possible.sum()) >= 2
    assert torch.equal(torch.isfinite(log_found), possible)
    is_possible = possible.repeat_interleave(problem.packing.lengths)
    assert torch.equal(found[is_possible], path[is_possible])
    assert torch.equal(log_found[possible], log_prob[possible])
