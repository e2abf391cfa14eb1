"""The k best paths against every path written out, and against a plain list of the k best paths to each state."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from seqmodels.inference.chains import list_viterbi, viterbi
from seqmodels.inference.chains.densities import LogDensities
from seqmodels.inference.chains.list_viterbi import k_best_paths
from seqmodels.inference.chains.parallel_segments import Segments
from seqmodels.inference.chains.trellis import Trellis
from tests.inference.chains.enumeration import Array, random_model

pytestmark = pytest.mark.usefixtures("recursions")

GRID = 2.0**36
Tensors = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None]


def tensors(initial: Array, transition: Array, log_b: Array, final: Array | None) -> Tensors:
    end = None if final is None else torch.as_tensor(final)
    return torch.as_tensor(initial), torch.as_tensor(transition), torch.as_tensor(log_b), end


def whole_numbers(*probabilities: Array | None) -> list[Array]:
    """Logarithms in steps of the grid: sums of such are exact."""
    with np.errstate(divide="ignore"):
        return [np.zeros(1) if p is None else np.rint(np.log(p) * GRID) for p in probabilities]


def all_paths(initial: Array, transition: Array, log_b: Array, final: Array | None) -> list[tuple[float, list[int]]]:
    """Every possible path with its score on the grid, in order; of equal ones the lowest last states come first."""
    (pi, a, end), b = whole_numbers(initial, transition, final), np.rint(log_b * GRID)
    scored = []
    for path in itertools.product(range(len(initial)), repeat=len(b)):
        score = pi[path[0]] + b[0, path[0]] + (end[path[-1]] if final is not None else 0.0)
        score += sum(a[path[t - 1], path[t]] + b[t, path[t]] for t in range(1, len(b)))
        if np.isfinite(score):
            scored.append((-score, path[::-1]))
    return [(-cost / GRID, list(path[::-1])) for cost, path in sorted(scored)]


def plain_list(initial: Array, transition: Array, log_b: Array, k: int) -> list[tuple[float, list[int]]]:
    """The k best paths to each state, frame after frame (the parallel list Viterbi algorithm)."""
    (pi, a), b = whole_numbers(initial, transition), np.rint(log_b * GRID)
    states = range(len(pi))
    best: list[list[tuple[float, tuple[int, ...]]]] = [[(-pi[i] - b[0, i], (i,))] for i in states]
    for frame in b[1:]:
        arrivals = [[(c - a[i, j] - frame[j], (j, *p)) for i in states for c, p in best[i]] for j in states]
        best = [sorted(each)[:k] for each in arrivals]
    return [(-cost / GRID, list(path[::-1])) for cost, path in sorted(itertools.chain(*best))[:k]]


@pytest.mark.parametrize("with_final", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
def test_they_are_the_best_of_all_paths(with_final: bool, sparse: bool) -> None:
    rng, n_short = np.random.default_rng(0), 0
    for _ in range(60):
        K, T, k = int(rng.integers(1, 5)), int(rng.integers(1, 6)), int(rng.integers(1, 12))
        initial, transition, final = random_model(rng, K, with_final, sparse)
        log_b = np.log(rng.gamma(0.5, size=(T, K)))
        log_b[rng.random((T, K)) < 0.1] = -np.inf
        expected = all_paths(initial, transition, log_b, final)[:k]
        [(paths, log_prob)] = list_viterbi(*tensors(initial, transition, log_b, final), k=k)
        assert paths.tolist() == [path for _, path in expected]
        assert paths.shape[1] == T
        assert_allclose(log_prob, [score for score, _ in expected], rtol=1e-9, atol=1e-9)
        n_short += len(expected) < k
    assert n_short > 10


def test_equal_paths_come_in_order_of_their_last_states() -> None:
    rng, uniform = np.random.default_rng(1), np.full((3, 3), 1 / 3)
    for k in (1, 5, 12, 20, 40, 100, 300):
        log_b = rng.integers(-1, 1, (5, 3)).astype(float)
        expected = all_paths(uniform[0], uniform, log_b, None)[:k]
        [(paths, _)] = list_viterbi(*tensors(uniform[0], uniform, log_b, None), k=k)
        assert paths.tolist() == [path for _, path in expected]
    [(paths, log_prob)] = list_viterbi(*tensors(uniform[0], uniform, np.zeros((3, 3)), None), k=27)
    assert paths.tolist() == [list(path[::-1]) for path in itertools.product(range(3), repeat=3)]
    assert_allclose(log_prob, 3 * np.log(1 / 3), rtol=1e-12)


@pytest.mark.parametrize("name", ["forgets", "left-to-right", "apart", "tied", "ends"])
@pytest.mark.parametrize("size", [16, 400])
def test_of_long_sequences_cut_into_segments_too(name: str, size: int) -> None:
    rng, K, lengths = np.random.default_rng(2), 3, [301, 1, 70]
    initial, transition, log_b = rng.dirichlet(np.ones(K)), rng.dirichlet(np.ones(K), K), rng.normal(size=(372, K))
    if name == "left-to-right":
        initial, transition = np.eye(K)[0], np.array([[0.9, 0.1, 0.0], [0.0, 0.9, 0.1], [0.0, 0.0, 1.0]])
    if name == "apart":
        initial, transition = np.full(K, 1 / K), np.eye(K)
    if name == "tied":
        initial, transition, log_b = np.full(K, 1 / K), np.full((K, K), 1 / K), np.rint(log_b)
    final = np.array([0.02, 0.5, 0.1]) if name == "ends" else None
    if final is not None:
        transition = transition * (1 - final[:, None])
    parts = np.split(log_b, np.cumsum(lengths)[:-1])
    segments = Segments.of_size(torch.tensor(lengths), size, 16)
    pi, a, b, end = tensors(initial, transition, log_b, final)
    found = k_best_paths(Trellis.of(pi, a, LogDensities(segments.packing.pack(b)), segments, end), 9)
    for (paths, log_prob), part in zip(found, parts, strict=True):
        if final is not None:
            part[-1] += np.log(final)
        expected = plain_list(initial, transition, part, 9)
        expected = [each for each in expected if np.isfinite(each[0])]
        assert paths.tolist() == [path for _, path in expected]
        assert_allclose(log_prob, [score for score, _ in expected], rtol=1e-9)
    assert name != "apart" or [len(paths) for paths, _ in found] == [3, 3, 3]


def test_a_batch_is_each_alone_and_an_impossible_sequence_has_no_path() -> None:
    rng, lengths = np.random.default_rng(3), [4, 2, 6]
    initial, transition, _ = random_model(rng, 3, with_final=False, sparse=False)
    pi, a, b, _ = tensors(initial, transition, rng.normal(size=(12, 3)), None)
    b[5] = -torch.inf
    found = list_viterbi(pi, a, b, k=10_000, lengths=lengths)
    assert [paths.shape for paths, _ in found] == [(3**4, 4), (0, 2), (3**6, 6)]
    for i, (paths, log_prob) in enumerate(found):
        [(alone, log_prob_alone)] = list_viterbi(pi, a, b.split(lengths)[i], k=10_000)
        assert torch.equal(paths, alone)
        assert_allclose(log_prob, log_prob_alone, rtol=1e-12)
        assert len(torch.unique(paths, dim=0)) == len(paths)
    path, log_prob = viterbi(pi, a, b[6:])
    assert torch.equal(found[2][0][0], path)
    assert found[2][1][0] == log_prob[0]


def test_a_k_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="k is 0; pass the number of paths, at least 1"):
        list_viterbi(torch.ones(1), torch.ones(1, 1), torch.zeros(1, 1), k=0)
