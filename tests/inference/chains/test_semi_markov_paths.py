"""Paths of hidden semi-Markov chains against the list of all segmentations."""

from __future__ import annotations

from itertools import groupby

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from seqmodels.inference.chains.semi_markov import best_segments, forward_pass
from seqmodels.inference.chains.semi_markov_paths import (
    best_segment_alignments,
    k_best_segments,
    log_prob_of_segment_paths,
    log_steps_left,
    of_runs,
)
from tests.inference.chains.test_semi_markov import (
    CHAINS,
    Array,
    Chain,
    densities,
    expanded,
    random_chain,
    segmentations,
)

LENGTHS = (6, 2, 5)
Path = tuple[int, ...]


def staying(seed: int, *, ends: bool = False, left: bool = False) -> Chain:
    """State 2 may be followed by itself, and by nothing else but the end."""
    chain = random_chain(seed, ends=ends, left=left)
    transition = chain.transition.copy()
    transition[2] = [0.0, 0.0, 0.7 if ends else 1.0]
    final = None if chain.final is None else np.array([*chain.final[:2], 0.3])
    return Chain(chain.initial, transition, final, chain.pmf, left)


STAYING = [
    pytest.param(staying(seed, ends=ends, left=left), id=f"staying-{ends}-{left}")
    for seed, ends, left in ((0, False, False), (1, True, False), (2, False, True), (3, True, True))
]


def all_paths(chain: Chain, log_b: Array) -> dict[Path, float]:
    """log p(path, x) of every possible path."""
    of_path: dict[Path, float] = {}
    for segments, p in segmentations(chain, np.exp(log_b)):
        if p > 0:
            path = tuple(j for j, d, _ in segments for _ in range(d))
            of_path[path] = of_path.get(path, 0.0) + p
    return {path: float(np.log(p)) for path, p in of_path.items()}


@pytest.mark.parametrize("chain", [*CHAINS, *STAYING])
def test_a_path_has_the_probability_of_its_segmentations(chain: Chain) -> None:
    log_b = densities(7, LENGTHS)
    expected = [all_paths(chain, each) for each in log_b]
    rng = np.random.default_rng(0)
    for _ in range(10):
        chosen = [list(each)[int(rng.integers(len(each)))] for each in expected]
        found = log_prob_of_segment_paths(chain.trellis(log_b), [torch.tensor(path) for path in chosen])
        assert_allclose(found, [each[path] for each, path in zip(expected, chosen, strict=True)], rtol=0, atol=1e-12)
    never = [torch.zeros(n, dtype=torch.int64) for n in LENGTHS]  # some longer than state 0 may last
    found = log_prob_of_segment_paths(chain.trellis(log_b), never)
    assert_allclose(found, [each.get((0,) * len(b), -np.inf) for each, b in zip(expected, log_b, strict=True)])


@pytest.mark.parametrize("chain", [*CHAINS, *STAYING])
def test_the_k_best_are_the_k_best(chain: Chain) -> None:
    log_b = densities(8, LENGTHS)
    log_b[0][3, 1] = -np.inf
    for k in (1, 4, 1000):
        for (paths, log_prob), each in zip(k_best_segments(chain.trellis(log_b), k), log_b, strict=True):
            expected = all_paths(chain, each)
            assert len(paths) == min(k, len(expected))
            assert_allclose(log_prob, sorted(expected.values(), reverse=True)[:k], rtol=0, atol=1e-12)
            assert len({tuple(path.tolist()) for path in paths}) == len(paths)
            assert_allclose(log_prob, [expected[tuple(path.tolist())] for path in paths], rtol=0, atol=1e-12)


@pytest.mark.parametrize("chain", STAYING)
def test_runs_of_a_state_that_follows_itself_are_its_segments(chain: Chain) -> None:
    log_b = densities(9, LENGTHS)
    paths, best = best_segments(of_runs(chain.trellis(log_b)))
    for path, log_prob, each in zip(paths, best.tolist(), log_b, strict=True):
        expected = all_paths(chain, each)
        assert tuple(path.tolist()) == max(expected, key=lambda p: expected[p])
        assert_allclose(log_prob, max(expected.values()), rtol=0, atol=1e-12)
    plain = random_chain(0).trellis(log_b)
    assert of_runs(plain) is plain


def test_an_impossible_sequence_has_no_path() -> None:
    (log_b,) = densities(1, (5,))
    log_b[2] = -np.inf
    ((paths, log_prob),) = k_best_segments(random_chain(0).trellis([log_b]), 3)
    assert paths.shape == (0, 5)
    assert log_prob.shape == (0,)


@pytest.mark.parametrize("chain", CHAINS)
def test_steps_left_are_those_of_the_chain_of_states_and_steps_left(chain: Chain) -> None:
    log_b = densities(4, (6, 2, 9))
    trellis = chain.trellis(log_b)
    initial, transition, _ = expanded(chain)
    k, longest = chain.pmf.shape
    for found, each in zip(log_steps_left(trellis, forward_pass(trellis)), log_b, strict=True):
        alpha = initial * np.exp(each[0]).repeat(longest)
        for b in each[1:]:
            alpha = (alpha @ transition) * np.exp(b).repeat(longest)
        assert_allclose(found.exp(), (alpha / alpha.sum()).reshape(k, longest), rtol=0, atol=1e-13)


@pytest.mark.parametrize("chain", [*CHAINS, *STAYING])
def test_an_alignment_is_the_best_path_of_its_segments(chain: Chain) -> None:
    log_b = densities(5, (6, 5))
    groups = [[[1], [0], [2]], [[1], [0, 2]]]
    positions, states, found = best_segment_alignments(chain.trellis(log_b), groups)
    for i, (each, labels) in enumerate(zip(log_b, groups, strict=True)):
        expected = {path: p for path, p in all_paths(chain, each).items() if _passes(path, labels)}
        best = max(expected, key=lambda path: expected[path])
        assert tuple(states[i].tolist()) == best
        assert_allclose(found[i], expected[best], rtol=0, atol=1e-12)
        assert positions[i][0] == 0
        assert set(positions[i].diff().tolist()) <= {0, 1}
        assert all(int(j) in labels[int(s)] for s, j in zip(positions[i], states[i], strict=True))


def test_labels_that_no_path_goes_through_have_probability_zero() -> None:
    log_b = densities(5, (6, 5))
    groups = [[[0], [1], [0], [1], [0]], [[1]]]  # state 0 lasts two steps at least, state 1 four at most
    assert bool(torch.isneginf(best_segment_alignments(random_chain(0).trellis(log_b), groups)[2]).all())


def _passes(path: Path, labels: list[list[int]]) -> bool:
    """Whether the runs of the path go through all labels in their order, which have no state in common."""
    passed = [next((s for s, group in enumerate(labels) if j in group), -1) for j, _ in groupby(path)]
    return [s for s, _ in groupby(passed)] == list(range(len(labels)))
