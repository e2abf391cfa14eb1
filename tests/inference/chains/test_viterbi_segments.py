"""Cut into segments or not, the best path is the one that a plain recursion finds, frame after frame."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from seqmodels import HMM
from seqmodels.inference.chains.densities import LogDensities
from seqmodels.inference.chains.packing import Packing
from seqmodels.inference.chains.parallel_segments import Segments
from seqmodels.inference.chains.trellis import Trellis
from seqmodels.inference.chains.viterbi import best_paths, best_scores

module = sys.modules[best_paths.__module__]  # the package's name for it is the function

K, LENGTHS = 4, [701, 33, 300, 1, 128, 64]
SIZE, MARGIN = 32, 16


def chain(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    rng = np.random.default_rng(len(name))
    even, mixed = np.full((K, K), 1 / K), rng.dirichlet(np.ones(K), size=K)
    if name == "left-to-right":
        ahead = 0.9 * np.eye(K) + 0.1 * np.eye(K, k=1)
        ahead[-1, -1] = 1.0
        return np.eye(K)[0], ahead, None
    if name == "sparse":
        mixed *= rng.random((K, K)) > 0.3
        mixed += 0.05 * np.eye(K) + 0.05 * np.roll(np.eye(K), 1, axis=1)
        return even[0], mixed / mixed.sum(1, keepdims=True), None
    if name == "slow":
        return even[0], 0.9999 * np.eye(K) + 0.0001 * even, None
    if name == "apart":
        return even[0], np.eye(K), None
    if name == "ends":
        return mixed[0], 0.98 * mixed, 0.02 * np.ones(K)
    return (even[0], even, None) if name == "tied" else (mixed[0], mixed, None)


def seen(name: str) -> np.ndarray:
    rng = np.random.default_rng(7)
    log_b = rng.normal(size=(sum(LENGTHS), K))
    if name == "sparse":
        log_b[rng.random(log_b.shape) < 0.1] = -np.inf
        log_b[:, 1] = rng.normal(size=len(log_b))
    return np.rint(log_b) if name == "tied" else log_b


def plain(start: np.ndarray, step: np.ndarray, end: np.ndarray | None, log_b: np.ndarray) -> tuple[list[int], float]:
    """By the book, with whole numbers of 2^-36 nats for scores, so that sums are exact."""
    with np.errstate(divide="ignore"):
        a, pi, f = (np.log(p) for p in (step, start, np.ones(K) if end is None else end))
    grid = [np.rint(v * 2.0**36) for v in (a, pi, f, log_b)]
    delta, before = grid[1] + grid[3][0], []
    for frame in grid[3][1:]:
        scores = delta[:, None] + grid[0]
        before.append(scores.argmax(0))
        delta = scores.max(0) + frame
    path = [int((delta + grid[2]).argmax())]
    for came_from in reversed(before):
        path.append(int(came_from[path[-1]]))
    path.reverse()
    log_prob = pi[path[0]] + log_b[np.arange(len(path)), path].sum() + a[path[:-1], path[1:]].sum() + f[path[-1]]
    return path, float(log_prob)


def trellis(name: str, size: int | None, dtype: torch.dtype = torch.float64) -> Trellis:
    start, step, end = (None if p is None else torch.as_tensor(p) for p in chain(name))
    assert start is not None
    assert step is not None
    segments = Segments.whole(LENGTHS) if size is None else Segments.of_size(torch.tensor(LENGTHS), size, MARGIN)
    log_b = segments.packing.pack(torch.as_tensor(seen(name)).to(dtype))
    return Trellis.of(start, step, LogDensities(log_b), segments, end)


@pytest.mark.parametrize("size", [None, SIZE, 128])
@pytest.mark.parametrize("name", ["mixed", "ends", "left-to-right", "sparse", "slow", "apart", "tied"])
def test_segments_make_the_path_of_a_plain_recursion(name: str, size: int | None, recursions: str) -> None:
    states, log_prob = best_paths(trellis(name, size))
    parts = np.split(seen(name), np.cumsum(LENGTHS)[:-1])
    for path, score, log_b in zip(states.split(LENGTHS), log_prob, parts, strict=True):
        expected, best = plain(*chain(name), log_b)
        assert path.tolist() == expected
        assert_allclose(score, best, rtol=1e-12)


def test_a_chain_that_forgets_is_run_once_one_that_does_not_again(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def counted(into: torch.Tensor, log_b: torch.Tensor, packing: Packing, *scores: torch.Tensor) -> object:
        sizes.append(packing.n_sequences)
        return best_scores(into, log_b, packing, *scores)

    monkeypatch.setattr(module, "best_scores", counted)
    monkeypatch.setattr(
        "seqmodels.inference.chains.parallel_segments._has_numba", lambda: False
    )  # loops need no segments
    best_paths(trellis("mixed", 128))
    assert sizes == [13]
    best_paths(trellis("apart", 128))
    assert sizes == [13, 13, 7]  # two sequences of 3 and 6 segments, all but the first at once


def test_scores_far_below_zero_stay_exact() -> None:
    """Frames improbable in every state: what they add is the same for all, and must not blur what differs."""
    here, far = trellis("mixed", SIZE), trellis("mixed", SIZE)
    lower = LogDensities(far.densities.log() - 2.0**14)
    moved = best_paths(Trellis(far.initial, far.transition, far.final, lower, far.segments))[0]
    assert torch.equal(moved, best_paths(here)[0])


def test_scores_of_thousands_of_frames_stay_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths of a chain that never moves, 4e5 nats below frames' peaks in a segment and a few nats from one another."""
    monkeypatch.setattr("seqmodels.inference.chains.parallel_segments._has_numba", lambda: False)
    whole_nats = np.random.default_rng(0).integers(-4000, 0, size=(640, 3)).astype(float)
    whole_nats[-1] += (whole_nats.sum(0).min() - whole_nats.sum(0)) + np.array([-1.0, 0.0, -2.0])
    third, log_b = torch.full((3,), 1 / 3, dtype=torch.float64), torch.as_tensor(whole_nats)
    segments = Segments.of_size(torch.tensor([640]), 128, MARGIN)
    cut = Trellis.of(third, torch.eye(3, dtype=torch.float64), LogDensities(segments.packing.pack(log_b)), segments)
    path, log_prob = best_paths(cut)
    assert (path == 1).all()
    assert_allclose(log_prob, [whole_nats[:, 1].sum() - np.log(3)], rtol=1e-14)


def test_an_impossible_sequence_spoils_no_other_and_no_segment() -> None:
    found = trellis("mixed", SIZE)
    log_b = found.segments.split(found.densities.log())
    log_b[0] = log_b[0].clone()
    log_b[0][350] = -torch.inf
    blocked = LogDensities(found.packing.pack(torch.cat(log_b)))
    states, log_prob = best_paths(Trellis(found.initial, found.transition, found.final, blocked, found.segments))
    assert log_prob[0] == -torch.inf
    assert torch.isfinite(log_prob[1:]).all()
    assert torch.equal(states[LENGTHS[0] :], best_paths(found)[0][LENGTHS[0] :])


def test_a_long_sequence_decodes_as_its_frames_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """Through the public door, cut in float32: every frame says which state it is from."""
    path = np.repeat(np.random.default_rng(0).integers(3, size=500), 10)
    model = HMM.from_parameters(np.full(3, 1 / 3), np.full((3, 3), 1 / 3), emission=np.eye(3))
    monkeypatch.setattr(
        "seqmodels.inference.chains.parallel_segments._has_numba", lambda: False
    )  # compiled loops need no segments
    assert not Segments.fastest([len(path)], 3, torch.float32).is_whole
    assert (model.decode([path])[0] == path).all()
