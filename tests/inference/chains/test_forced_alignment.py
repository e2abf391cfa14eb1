"""Forced alignments against every path through the groups, written out."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from seqmodels.inference.chains import forced_alignment, viterbi
from tests.inference.chains.enumeration import Array, random_model

module = sys.modules[forced_alignment.__module__]
GRID = 2.0**36
Chain = tuple[Array, Array, Array | None]


def enumerated(chain: Chain, log_b: Array, groups: Sequence[Sequence[int]]) -> tuple[float, list[int], list[int]]:
    """The best score, positions and states of all; of equal ones that of the latest last groups, lowest last states."""
    with np.errstate(divide="ignore"):
        pi, a, end = (np.zeros(len(log_b[0])) if p is None else np.rint(np.log(p) * GRID) for p in chain)
    b, best = np.rint(log_b * GRID), (np.inf, (), ())
    for cuts in itertools.combinations(range(1, len(b)), len(groups) - 1):
        positions = np.searchsorted(cuts, np.arange(len(b)), side="right")
        for path in itertools.product(*(groups[s] for s in positions)):
            score = pi[path[0]] + end[path[-1]] + sum(b[t, z] for t, z in enumerate(path))
            score += sum(a[i, j] for i, j in itertools.pairwise(path))
            # Read from the last frame: earlier positions first, then the order of states in a group.
            order = tuple((int(s), groups[s].index(z)) for s, z in zip(positions[::-1], path[::-1], strict=True))
            if np.isfinite(score):
                best = min(best, (-score, order, path))
    return -best[0] / GRID, [s for s, _ in best[1][::-1]], list(best[2])


def aligned(chain: Chain, log_b: Array, groups: Sequence[Sequence[Sequence[int]]], lengths: list[int]) -> list[object]:
    pi, a, end = (None if p is None else torch.as_tensor(p) for p in chain)
    assert pi is not None
    assert a is not None
    positions, states, log_prob = forced_alignment(pi, a, torch.as_tensor(log_b), end, groups=groups, lengths=lengths)
    return [
        list(zip(p.tolist(), z.tolist(), strict=True))
        for p, z in zip(positions.split(lengths), states.split(lengths), strict=True)
    ] + [log_prob.numpy()]


@pytest.mark.parametrize("with_final", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("at_once", [1, 1 << 22])
def test_it_is_the_best_of_all_paths(
    with_final: bool, sparse: bool, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TERMS_AT_ONCE", at_once)
    rng, n_impossible = np.random.default_rng(0), 0
    for case in range(25):
        K, lengths = int(rng.integers(1, 5)), rng.integers(1, 7, 4).tolist()
        chain = random_model(rng, K, with_final, sparse)
        groups = [
            [rng.permutation(K)[: rng.integers(1, K + 1)].tolist() for _ in range(rng.integers(1, min(n, 3) + 1))]
            for n in lengths
        ]
        log_b = rng.normal(size=(sum(lengths), K))
        if case % 3 == 0:
            log_b = np.rint(log_b)  # ties
        log_b[rng.random(log_b.shape) < 0.05] = -np.inf
        *each, log_prob = aligned(chain, log_b, groups, lengths)
        parts = np.split(log_b, np.cumsum(lengths)[:-1])
        for found, value, part, states in zip(each, log_prob, parts, groups, strict=True):
            score, positions, path = enumerated(chain, part, states)
            assert_allclose(value, score, rtol=1e-9, atol=1e-9)
            if np.isfinite(score):
                assert found == list(zip(positions, path, strict=True))
            n_impossible += not np.isfinite(score)
    assert n_impossible >= (10 if sparse else 1)


def test_one_group_of_all_states_is_viterbi() -> None:
    rng = np.random.default_rng(1)
    initial, transition, final = random_model(rng, 4, True, False)
    pi, a, end, b = (torch.as_tensor(p) for p in (initial, transition, final, rng.normal(size=(500, 4))))
    positions, states, log_prob = forced_alignment(pi, a, b, end, groups=[[range(4)]])
    path, best = viterbi(pi, a, b, end)
    assert torch.equal(states, path)
    assert torch.equal(positions, torch.zeros_like(path))
    assert_allclose(log_prob, best, rtol=1e-14)


def test_a_long_left_to_right_chain_is_cut_where_its_frames_change() -> None:
    rng, K, n = np.random.default_rng(2), 6, 50
    transition = 0.98 * np.eye(K) + 0.02 * np.roll(np.eye(K), 1, axis=1)
    durations = rng.integers(5, 40, 2 * K)
    truth = np.repeat(np.arange(2 * K), durations)
    log_b = np.where(np.arange(K) == truth[:, None] % K, 0.0, -float(n))
    groups = [[s % K] for s in range(2 * K)]
    positions, states, log_prob = forced_alignment(
        torch.full((K,), 1 / K, dtype=torch.float64),
        torch.as_tensor(transition),
        torch.as_tensor(log_b),
        groups=[groups],
    )
    assert positions.tolist() == truth.tolist()
    assert states.tolist() == (truth % K).tolist()
    expected = np.log(1 / K) + (len(truth) - 2 * K) * np.log(0.98) + (2 * K - 1) * np.log(0.02)
    assert_allclose(log_prob, [expected], rtol=1e-12)


def test_fewer_frames_than_groups_are_impossible_and_spoil_no_other() -> None:
    chain = (np.full(2, 0.5), np.full((2, 2), 0.5), None)
    *each, log_prob = aligned(chain, np.zeros((5, 2)), [[[0], [1], [0]], [[0], [1]]], [2, 3])
    assert log_prob[0] == -np.inf
    assert_allclose(log_prob[1], 3 * np.log(0.5), rtol=1e-12)
    assert each[1] == [(0, 0), (0, 0), (1, 1)]


def test_groups_that_are_none_are_refused() -> None:
    chain = torch.ones(1), torch.ones(1, 1), torch.zeros(3, 1)
    for groups in ([], [[]], [[[0], []]], [[[0]], [[0]]]):
        with pytest.raises(ValueError, match="pass one or more groups for each"):
            forced_alignment(*chain, groups=groups)
