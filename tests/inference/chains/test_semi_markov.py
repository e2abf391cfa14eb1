"""Hidden semi-Markov inference against the list of all segmentations, and against chains with a state a step left."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

from seqmodels.inference.chains import forward_backward, semi_markov, viterbi
from seqmodels.inference.chains.given_inputs import log_durations
from seqmodels.inference.chains.packing import Packing
from seqmodels.inference.chains.semi_markov import (
    Durations,
    SemiMarkovTrellis,
    best_segments,
    forward_backward_pass,
    forward_pass,
    sample_paths,
)
from seqmodels.inference.chains.semi_markov_paths import best_segment_alignments, k_best_segments, log_steps_left

Array = NDArray[np.float64]
LENGTHS = (6, 1, 4, 7)


@dataclass(frozen=True)
class Chain:
    """A chain of one sequence or several; ``transition (T, K, K)`` is the one into each step of one sequence, and
    ``pmf (T, K, D)`` that of segments that begin at each.
    """

    initial: Array
    transition: Array
    final: Array | None
    pmf: Array
    left_censored: bool = False

    @property
    def first_pmf(self) -> Array:
        pmf = self.pmf_at(0)
        at_least = np.cumsum(pmf[:, ::-1], 1)[:, ::-1]
        return at_least / at_least.sum(1, keepdims=True) if self.left_censored else pmf

    def pmf_at(self, t: int) -> Array:
        pmf: Array = self.pmf if self.pmf.ndim == 2 else self.pmf[t]
        return pmf

    @property
    def durations(self) -> Durations:
        return Durations.of(torch.from_numpy(self.pmf).log(), left_censored=self.left_censored)

    def trellis(self, log_b: list[Array]) -> SemiMarkovTrellis:
        packing = Packing.of([len(each) for each in log_b])
        final = None if self.final is None else torch.from_numpy(self.final)
        initial, transition = torch.from_numpy(self.initial), torch.from_numpy(self.transition)
        packed = packing.pack(torch.from_numpy(np.concatenate(log_b)))
        return SemiMarkovTrellis(initial, transition, final, self.durations, packed, packing)


def random_chain(seed: int, k: int = 3, longest: int = 4, *, ends: bool = False, left: bool = False) -> Chain:
    rng = np.random.default_rng(seed)
    transition = rng.dirichlet(np.ones(k + ends), k)
    transition[np.arange(k), np.arange(k)] = 0.0
    transition /= transition.sum(1, keepdims=True)
    pmf = rng.dirichlet(np.ones(longest), k)
    pmf[0, 0] = 0.0
    pmf /= pmf.sum(1, keepdims=True)
    return Chain(rng.dirichlet(np.ones(k)), transition[:, :k], transition[:, k] if ends else None, pmf, left)


def densities(seed: int, lengths: tuple[int, ...] = LENGTHS, k: int = 3) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [np.log(rng.random((n, k))) for n in lengths]


Segmentation = tuple[tuple[int, int, bool], ...]  # state, duration, whether it goes on after the last step


def segmentations(chain: Chain, b: Array, t: int = 0, state: int = -1) -> Iterator[tuple[Segmentation, float]]:
    """Every segmentation of the rest of one sequence and its probability; what is cut off is one that goes on."""
    n_steps, n_states = b.shape
    pmf = chain.pmf_at(t) if t else chain.first_pmf
    transition = chain.transition if chain.transition.ndim == 2 else chain.transition[t]
    for j in range(n_states):
        enters = chain.initial[j] if t == 0 else transition[state, j]
        for d in range(1, min(pmf.shape[1], n_steps - t) + 1):
            emitted = enters * b[t : t + d, j].prod()
            if t + d < n_steps:
                for rest, p in segmentations(chain, b, t + d, j):
                    yield ((j, d, False), *rest), emitted * pmf[j, d - 1] * p
                continue
            yield ((j, d, False),), emitted * pmf[j, d - 1] * (1.0 if chain.final is None else chain.final[j])
            if chain.final is None:
                yield ((j, d, True),), emitted * pmf[j, d:].sum()


@dataclass
class Enumerated:
    log_prob: float
    gamma: Array
    xi: Array
    durations: Array
    first_durations: Array
    segments: Array
    steps: Array
    best_path: tuple[int, ...]
    best: float


def enumerated(chain: Chain, log_b: Array) -> Enumerated:
    table = list(segmentations(chain, np.exp(log_b)))
    total = sum(p for _, p in table)
    (n_steps, k), longest = log_b.shape, chain.pmf.shape[-1]
    gamma, xi = np.zeros((n_steps, k)), np.zeros((n_steps, k, k))
    n_segments, steps = np.zeros((n_steps, k)), np.zeros((n_steps, k))
    durations, first_durations = np.zeros((k, longest)), np.zeros((k, longest))
    of_path: dict[tuple[int, ...], float] = {}
    for segments, p in table:
        path = tuple(j for j, d, _ in segments for _ in range(d))
        of_path[path] = of_path.get(path, 0.0) + p
        gamma[np.arange(n_steps), path] += p / total
        begins = np.cumsum([d for _, d, _ in segments])
        for t, ((i, *_), (j, *_)) in zip(begins, pairwise(segments), strict=False):
            xi[t, i, j] += p / total
        for number, (j, d, continues) in enumerate(segments):
            is_first, begin = chain.left_censored and number == 0, int(begins[number]) - d
            pmf, counts = (chain.first_pmf, first_durations) if is_first else (chain.pmf_at(begin), durations)
            in_full = np.eye(longest)[d - 1]
            if continues:
                in_full = np.where(np.arange(longest) < d, 0.0, pmf[j])
                in_full /= max(in_full.sum(), 1e-300)
            counts[j] += p / total * in_full
            if not is_first:
                n_segments[begin, j] += p / total
                steps[begin, j] += p / total * in_full @ np.arange(longest)
    best_path = max(of_path, key=lambda path: of_path[path])
    of_durations = (durations, first_durations, n_segments, steps)
    return Enumerated(np.log(total), gamma, xi, *of_durations, best_path, np.log(of_path[best_path]))


CHAINS = [
    pytest.param(random_chain(seed, ends=ends, left=left), id=f"{seed}-{'stop' if ends else 'given'}-{left}")
    for seed in range(2)
    for ends in (False, True)
    for left in (False, True)
]


@pytest.mark.parametrize("chain", CHAINS)
def test_all_is_as_the_list_of_segmentations_says(chain: Chain) -> None:
    lengths = LENGTHS if chain.final is None else (6, 2, 4, 7)  # one state lasts two steps at least
    log_b = densities(7, lengths)
    trellis = chain.trellis(log_b)
    posterior, (paths, best) = forward_backward_pass(trellis), best_segments(trellis)
    expected = [enumerated(chain, each) for each in log_b]
    assert_allclose(posterior.log_prob, [e.log_prob for e in expected], rtol=0, atol=1e-12)
    for gamma, e in zip(trellis.packing.split(posterior.gamma), expected, strict=True):
        assert_allclose(gamma, e.gamma, rtol=0, atol=1e-12)
    assert_allclose(posterior.xi, sum(e.xi.sum(0) for e in expected), rtol=0, atol=1e-12)
    assert_allclose(posterior.initial, sum(e.gamma[0] for e in expected), rtol=0, atol=1e-12)
    assert_allclose(posterior.final, sum(e.gamma[-1] for e in expected), rtol=0, atol=1e-12)
    assert_allclose(posterior.durations, sum(e.durations for e in expected), rtol=0, atol=1e-12)
    assert_allclose(posterior.first_durations, sum(e.first_durations for e in expected), rtol=0, atol=1e-12)
    assert [tuple(path.tolist()) for path in paths] == [e.best_path for e in expected]
    assert_allclose(best, [e.best for e in expected], rtol=0, atol=1e-12)


def driven(
    left: bool, lengths: tuple[int, ...] = LENGTHS, *, durations: bool = False, ends: bool = False
) -> list[Chain]:
    """A chain for each sequence, with other first states, and transitions that differ from step to step; durations
    as well if they shall, and ends if they are events.
    """
    chain, rng = random_chain(3, left=left), np.random.default_rng(6)
    chains = []
    for n in lengths:
        steps = chain.transition * rng.gamma(1.0, size=(n, 3, 3))
        steps /= steps.sum(2, keepdims=True)
        pmf = chain.pmf
        if durations:
            pmf = chain.pmf * rng.gamma(1.0, size=(n, *chain.pmf.shape))
            pmf[:, 1, -1] = 0.0
            pmf /= pmf.sum(2, keepdims=True)
        final = np.full(3, 0.2) if ends else None
        chains.append(Chain(rng.dirichlet(np.ones(3)), 0.8 * steps if ends else steps, final, pmf, left))
    return chains


def trellis_of(chains: list[Chain], log_b: list[Array]) -> SemiMarkovTrellis:
    """One problem of a chain for each sequence."""
    packing = Packing.of([len(each) for each in log_b])
    initial = torch.from_numpy(np.stack([chain.initial for chain in chains]))
    packed, log_a = (
        packing.pack(torch.from_numpy(np.concatenate(each)))
        for each in (log_b, [np.log(chain.transition) for chain in chains])
    )
    durations, final = chains[0].durations, chains[0].final
    if chains[0].pmf.ndim == 3:
        log_pmf = packing.pack(torch.from_numpy(np.log(np.concatenate([chain.pmf for chain in chains]))))
        durations = Durations.of(
            log_pmf,
            left_censored=chains[0].left_censored,
            table_of_row=torch.arange(len(log_pmf)),
            n_sequences=len(chains),
        )
    mean = torch.from_numpy(random_chain(3).transition)
    of_chain = (initial, mean, None if final is None else torch.from_numpy(final), durations)
    return SemiMarkovTrellis(*of_chain, packed, packing, log_a)


@pytest.mark.filterwarnings("ignore:divide by zero")
@pytest.mark.parametrize("compiles", [False, True])
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize(("durations", "ends"), [(False, False), (True, False), (True, True)])
def test_transitions_and_durations_that_differ_are_those_of_the_first_step_of_a_segment(
    durations: bool, ends: bool, left: bool, compiles: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not compiles:
        monkeypatch.setattr(semi_markov, "is_compiling", lambda: False)
    lengths = (6, 3, 4, 7)
    chains, log_b = driven(left, lengths, durations=durations, ends=ends), densities(7, lengths)
    trellis = trellis_of(chains, log_b)
    posterior, (paths, best) = forward_backward_pass(trellis), best_segments(trellis)
    expected = [enumerated(chain, each) for chain, each in zip(chains, log_b, strict=True)]
    assert_allclose(posterior.log_prob, [e.log_prob for e in expected], rtol=0, atol=1e-12)
    split = trellis.packing.split
    for gamma, xi, e in zip(split(posterior.gamma), split(posterior.xi), expected, strict=True):
        assert_allclose(gamma, e.gamma, rtol=0, atol=1e-12)
        assert_allclose(xi, e.xi, rtol=0, atol=1e-12)
    assert_allclose(posterior.initial, sum(e.gamma[0] for e in expected), rtol=0, atol=1e-12)
    assert_allclose(posterior.final, sum(e.gamma[-1] for e in expected), rtol=0, atol=1e-12)
    assert_allclose(posterior.durations, sum(e.durations for e in expected), rtol=0, atol=1e-12)
    if durations:
        firsts = posterior.first_durations[trellis.packing.rank]
        for segments, steps, first, e in zip(
            split(posterior.segments), split(posterior.steps), firsts, expected, strict=True
        ):
            assert_allclose(segments, e.segments, rtol=0, atol=1e-12)
            assert_allclose(steps, e.steps, rtol=0, atol=1e-12)
            assert_allclose(first, e.first_durations, rtol=0, atol=1e-12)
    else:
        assert_allclose(posterior.first_durations, sum(e.first_durations for e in expected), rtol=0, atol=1e-12)
    assert [tuple(path.tolist()) for path in paths] == [e.best_path for e in expected]
    assert_allclose(best, [e.best for e in expected], rtol=0, atol=1e-12)


@pytest.mark.filterwarnings("ignore:divide by zero")
@pytest.mark.parametrize(
    ("left", "durations", "ends"), [(False, False, False), (True, True, False), (False, True, True)]
)
def test_long_sequences_with_what_differs_are_the_same_compiled(
    left: bool, durations: bool, ends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths = (200, 90, 199)
    trellis = trellis_of(driven(left, lengths, durations=durations, ends=ends), densities(9, lengths))
    results = [forward_backward_pass(trellis), best_segments(trellis)]
    monkeypatch.setattr(semi_markov, "is_compiling", lambda: False)
    posterior, (paths, best) = forward_backward_pass(trellis), best_segments(trellis)
    for name in vars(posterior):
        assert_allclose(getattr(results[0], name), getattr(posterior, name), rtol=1e-10, atol=1e-12, err_msg=name)
    assert_array_equal(np.concatenate(results[1][0]), np.concatenate(paths))
    assert_allclose(results[1][1], best, rtol=1e-12)


@pytest.mark.filterwarnings("ignore:divide by zero")
@pytest.mark.parametrize("compiles", [False, True])
@pytest.mark.parametrize(("left", "ends"), [(False, False), (True, False), (False, True)])
def test_tables_that_rows_share_are_as_good_as_one_for_each_row(
    left: bool, ends: bool, compiles: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In runs of rows of one table, shorter and longer than the longest segment, and from one row to the next."""
    if not compiles:
        monkeypatch.setattr(semi_markov, "is_compiling", lambda: False)
    lengths, rng, of_steps = (80, 40, 79), np.random.default_rng(10), []
    for n in lengths:
        runs = rng.integers(1, 10, size=n)
        of_steps.append(np.repeat(rng.integers(5, size=n), runs)[:n])
    trellis = trellis_of(driven(left, lengths, durations=True, ends=ends), densities(11, lengths))
    of_row, tables = trellis.packing.pack(torch.from_numpy(np.concatenate(of_steps))), trellis.durations.log_pmf[:5]
    options: dict[str, Any] = {"left_censored": left, "n_sequences": len(lengths)}
    shared = replace(trellis, durations=Durations.of(tables, table_of_row=of_row, **options))
    each = replace(trellis, durations=Durations.of(tables[of_row], table_of_row=torch.arange(len(of_row)), **options))
    posteriors = forward_backward_pass(shared), forward_backward_pass(each)
    for name in vars(posteriors[0]):
        assert_allclose(*(getattr(one, name) for one in posteriors), rtol=1e-10, atol=1e-12, err_msg=name)
    groups = [[[0, 1], [2], [0, 1]]] * len(lengths)
    for paths in (
        best_segments,
        lambda trellis: best_segment_alignments(trellis, groups)[1:],
        lambda trellis: zip(*k_best_segments(trellis, 3), strict=True),
        lambda trellis: sample_paths(trellis, 3, torch.Generator().manual_seed(0)),
    ):
        (found, log_prob), (expected, expected_log_prob) = paths(shared), paths(each)
        assert_array_equal(np.concatenate(found, -1), np.concatenate(expected, -1))
        assert_allclose(np.stack(log_prob), np.stack(expected_log_prob), rtol=1e-12)
    for one, other in zip(*(log_steps_left(t, forward_pass(t)) for t in (shared, each)), strict=True):
        assert_allclose(one, other, rtol=1e-10)


def test_inputs_have_a_table_for_each_distinct_row_of_those_that_are_read() -> None:
    """All inputs are read where derivatives by their slopes are needed."""
    rng = np.random.default_rng(12)
    u = torch.from_numpy(np.stack([rng.integers(3, size=20) - 1.0, rng.normal(size=20)], 1))
    slopes, durations = torch.tensor([[0.0, 0.0], [0.5, 0.0], [-0.2, 0.0]]).double(), random_chain(0).durations
    found = durations.given_inputs(slopes, u, 2)
    assert len(found.log_pmf) == 3
    assert_allclose(found.log_pmf_of_rows, log_durations(durations.log_pmf, slopes, u), rtol=1e-14)
    assert_array_equal(found.log_first, found.log_pmf_of_rows[:2])
    slopes[1, 1] = 0.3
    for read in (slopes, torch.zeros_like(slopes).requires_grad_()):
        found = durations.given_inputs(read, u, 2)
        assert len(found.log_pmf) == 20
        assert_allclose(found.log_pmf_of_rows.detach(), log_durations(durations.log_pmf, read, u).detach(), rtol=1e-14)


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("scale", [1.0, 3000.0])
def test_durations_of_rows_are_those_of_each_row(scale: float, left: bool) -> None:
    """With zeros, and with probabilities that no exponential keeps."""
    log_pmf = (scale * torch.from_numpy(np.random.default_rng(0).normal(size=(4, 2, 5)))).double()
    log_pmf[1, 0, 2:] = -torch.inf
    log_pmf = log_pmf.log_softmax(2)
    found, each = (
        Durations.of(log_pmf, left_censored=left, table_of_row=torch.arange(4), n_sequences=2),
        [Durations.of(row, left_censored=left) for row in log_pmf],
    )
    for name in ("log_pmf", "log_longer", "log_at_least"):
        assert_allclose(getattr(found, name), np.stack([getattr(one, name) for one in each]), rtol=1e-12, atol=1e-12)
    for name in ("log_first", "log_first_longer", "log_first_at_least"):
        expected = np.stack([getattr(one, name) for one in each[:2]])
        assert_allclose(getattr(found, name), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("chain", CHAINS)
def test_the_steps_are_those_of_prefixes(chain: Chain) -> None:
    (log_b,) = densities(3, (6,))
    open_ended = Chain(chain.initial, chain.transition, None, chain.pmf, chain.left_censored)
    prefixes = [_open_log_prob(chain, open_ended, log_b[: t + 1]) for t in range(6)]
    assert_allclose(forward_pass(chain.trellis([log_b])).steps, np.diff(prefixes, prepend=0.0), rtol=0, atol=1e-12)


def _open_log_prob(chain: Chain, open_ended: Chain, log_b: Array) -> float:
    """log p(these steps, and perhaps more): what comes after a segment but the end is still to come."""
    return float(np.log(sum(p for _, p in segmentations(open_ended, np.exp(log_b)))))


def expanded(chain: Chain) -> tuple[Array, Array, Array | None]:
    """The plain chain whose states are (state, steps left): ``initial``, ``transition``, ``final``."""
    k, longest = chain.pmf.shape
    initial = (chain.initial[:, None] * chain.first_pmf).ravel()
    transition = np.zeros((k, longest, k, longest))
    for i in range(k):
        transition[i, 0] = chain.transition[i][:, None] * chain.pmf
        for left in range(1, longest):
            transition[i, left, i, left - 1] = 1.0
    final = np.zeros((k, longest))
    final[:, 0] = 0.0 if chain.final is None else chain.final
    return initial, transition.reshape(k * longest, -1), None if chain.final is None else final.ravel()


@pytest.mark.parametrize("ends", [False, True])
def test_long_sequences_are_as_in_the_chain_of_states_and_steps_left(ends: bool) -> None:
    """Past many moves of the window; of several lengths."""
    chain = random_chain(5, k=2, longest=6, ends=ends)
    log_b = densities(8, (400, 150, 399, 7), k=2)
    trellis = chain.trellis(log_b)
    initial, transition, final = (None if a is None else torch.from_numpy(a) for a in expanded(chain))
    assert initial is not None
    assert transition is not None
    of_states = torch.from_numpy(np.concatenate(log_b)).repeat_interleave(6, 1)
    lengths = [len(each) for each in log_b]
    expected = forward_backward(initial, transition, of_states, final, lengths=lengths)
    posterior = forward_backward_pass(trellis)
    assert_allclose(posterior.log_prob, expected.log_prob, rtol=1e-13)
    gamma = expected.gamma.unflatten(1, (2, 6)).sum(-1)
    assert_allclose(trellis.packing.unpack(posterior.gamma), gamma, rtol=0, atol=1e-11)
    if ends:  # then no segment is cut off, and one path of the chain is one of states
        path, log_prob = viterbi(initial, transition, of_states, final, lengths=lengths)
        paths, best = best_segments(trellis)
        assert_array_equal(np.concatenate(paths), path // 6)
        assert_allclose(best, log_prob, rtol=1e-10)


def test_a_plain_chain_is_durations_of_one_step() -> None:
    rng = np.random.default_rng(2)
    initial, transition = rng.dirichlet(np.ones(3)), rng.dirichlet(np.ones(3), 3)
    log_b = densities(4, (200, 30))
    trellis = Chain(initial, transition, None, np.ones((3, 1))).trellis(log_b)
    flat = torch.from_numpy(np.concatenate(log_b))
    expected = forward_backward(*map(torch.from_numpy, (initial, transition)), flat, lengths=[200, 30])
    posterior = forward_backward_pass(trellis)
    assert_allclose(posterior.log_prob, expected.log_prob, rtol=1e-13)
    assert_allclose(trellis.packing.unpack(posterior.gamma), expected.gamma, rtol=0, atol=1e-12)
    assert_allclose(posterior.xi, expected.xi, rtol=1e-12)


def test_nothing_that_matters_underflows() -> None:
    """States thousands of nats apart, and runs longer than a state can last: another state must be visited between."""
    pmf = np.array([[0.0, 0.5, 0.5], [1.0, 0.0, 0.0]])
    chain = Chain(np.array([1.0, 0.0]), np.array([[0.0, 1.0], [1.0, 0.0]]), None, pmf)
    log_b = np.tile([0.0, -2000.0], (10_000, 1))
    trellis = chain.trellis([log_b])
    posterior = forward_backward_pass(trellis)
    # Of 10,000 steps every fourth at least is the other state's, whose turn comes after three steps of the first.
    fewest = 2500 * -2000.0
    assert fewest - 10_000 < float(posterior.log_prob) < fewest + 1
    assert_allclose(posterior.gamma[:, 1].sum(), 2500, rtol=1e-3)
    initial, transition, _ = expanded(chain)
    of_states = torch.from_numpy(log_b[:400]).repeat_interleave(3, 1)
    expected = forward_backward(torch.from_numpy(initial), torch.from_numpy(transition), of_states)
    assert_allclose(forward_backward_pass(chain.trellis([log_b[:400]])).log_prob, expected.log_prob, rtol=1e-12)


def test_what_underflows_beside_a_segment_that_cannot_end_is_computed_again() -> None:
    """Only states 1, 1, 0, 1 explain it; the segment of 0 begins a step after one that is a thousand nats ahead."""
    pmf = np.array([[0.5, 0.0, 0.0, 0.5], [0.5, 0.5, 0.0, 0.0]])
    chain = Chain(np.array([0.5, 0.5]), np.array([[0.0, 1.0], [1.0, 0.0]]), None, pmf)
    log_b = np.array([[-np.inf, 0.0], [0.0, -1000.0], [0.0, -np.inf], [-np.inf, 0.0]])
    posterior = forward_backward_pass(chain.trellis([log_b]))
    assert_allclose(posterior.log_prob, 3 * np.log(0.5) - 1000.0, rtol=1e-14)
    assert_array_equal(posterior.gamma.round(decimals=9), [[0, 1], [0, 1], [1, 0], [0, 1]])


def test_what_is_impossible_has_probability_zero_and_only_that() -> None:
    chain = random_chain(1)
    (log_b,) = densities(2, (7,))
    log_b[4, [0, 1]] = -np.inf
    assert_allclose(forward_backward_pass(chain.trellis([log_b])).log_prob, enumerated(chain, log_b).log_prob)
    gamma = forward_backward_pass(chain.trellis([log_b])).gamma
    assert_array_equal(gamma[4], [0.0, 0.0, 1.0])
    log_b[6] = -np.inf
    steps = forward_pass(chain.trellis([log_b])).steps
    assert bool(torch.isfinite(steps[:6]).all())
    assert bool(torch.isneginf(steps[6:]).all())


@pytest.mark.parametrize("chain", CHAINS[:4])
def test_drawn_paths_have_their_probabilities(chain: Chain) -> None:
    log_b = densities(5, (5,))[0]
    log_b[2, 1] = -np.inf
    n = 4000
    (paths,), log_prob = sample_paths(chain.trellis([log_b]), n, torch.Generator().manual_seed(0))
    assert_allclose(log_prob, enumerated(chain, log_b).log_prob)
    table = list(segmentations(chain, np.exp(log_b)))
    expected: dict[tuple[int, ...], float] = {}
    for segments, p in table:
        path = tuple(j for j, d, _ in segments for _ in range(d))
        expected[path] = expected.get(path, 0.0) + p / sum(p for _, p in table)
    drawn, times = np.unique(paths, axis=0, return_counts=True)
    shares = {tuple(path.tolist()): float(k) / n for path, k in zip(drawn, times, strict=True)}
    assert all(expected[path] > 0 for path in shares)
    for path, p in expected.items():
        assert abs(shares.get(path, 0.0) - p) < 4.5 * np.sqrt(p * (1 - p) / n) + 4 / n
