"""Drawn paths are as frequent as they are probable, whichever way they are drawn."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from seqmodels.inference.chains import forward_backward, sample_states, sampling, scaled
from seqmodels.inference.chains import parallel_segments as segments_module
from seqmodels.inference.chains.densities import LogDensities
from seqmodels.inference.chains.parallel_segments import Segments
from seqmodels.inference.chains.sampling import sample_paths
from seqmodels.inference.chains.trellis import Trellis
from tests.inference.chains.enumeration import path_probabilities

INITIAL = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
TRANSITION = torch.tensor([[0.6, 0.3, 0.1], [0.0, 0.5, 0.5], [0.2, 0.0, 0.8]], dtype=torch.float64)
FINAL = torch.tensor([0.2, 0.9, 0.5], dtype=torch.float64)
LENGTHS = [5, 1, 4]
N = 4000


def problem(size: int | None) -> Trellis:
    log_b = torch.randn(sum(LENGTHS), 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    log_b[2, 1] = -torch.inf
    whole = Segments.whole(LENGTHS)
    trellis = Trellis.of(INITIAL, TRANSITION, LogDensities(whole.packing.pack(log_b)), whole, FINAL)
    return trellis if size is None else trellis.cut(Segments.of_size(torch.tensor(LENGTHS), size, 0))[0]


@pytest.mark.parametrize("size", [None, 1, 2, 3])
def test_paths_are_as_frequent_as_they_are_probable(size: int | None, recursions: str) -> None:
    trellis = problem(size)
    paths, log_prob = sample_paths(trellis, N, torch.Generator().manual_seed(0))
    log_b = trellis.segments.split(trellis.densities.log())
    for drawn, each, log_p in zip(paths.split(LENGTHS), log_b, log_prob, strict=True):
        joint = path_probabilities(INITIAL.numpy(), TRANSITION.numpy(), each.exp().numpy())
        joint = {path: p * float(FINAL[path[-1]]) for path, p in joint.items()}
        total = sum(joint.values())
        assert float(log_p) == pytest.approx(np.log(total), abs=1e-12)
        found, counts = torch.unique(drawn.T, dim=0, return_counts=True)
        frequency = dict(zip(map(tuple, found.tolist()), counts.tolist(), strict=True))
        for path, p in joint.items():
            expected = N * p / total
            assert abs(frequency.pop(path, 0) - expected) <= 4.5 * np.sqrt(expected) + (p > 0)
        assert not frequency


def test_loops_draw_what_tensors_do(monkeypatch: pytest.MonkeyPatch) -> None:
    trellis = problem(None)
    in_loops, _ = sample_paths(trellis, 50, torch.Generator().manual_seed(1))
    monkeypatch.setattr(sampling, "loops_are_compiled", lambda device: False)
    assert torch.equal(sample_paths(trellis, 50, torch.Generator().manual_seed(1))[0], in_loops)


def test_a_path_through_a_state_below_the_smallest_number(recursions: str) -> None:
    """State 0 is all but excluded by the first frames, cannot be entered, and is the only one for the last."""
    transition = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    log_b = torch.zeros(40, 2, dtype=torch.float64)
    log_b[:4, 0], log_b[-1, 1] = -300.0, -torch.inf
    half = torch.full((2,), 0.5, dtype=torch.float64)
    whole = Trellis.of(half, transition, LogDensities(log_b), Segments.whole([40]))
    for trellis in (whole, whole.cut(Segments.of_size(torch.tensor([40]), 16, 0))[0]):
        assert not sample_paths(trellis, 3, torch.Generator().manual_seed(0))[0].any()


def test_a_long_sequence_on_a_device_is_drawn_in_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments_module, "_has_numba", lambda: False)
    drawn_in: list[int] = []
    followed = sampling.followed

    def counted(segments: Segments, psi: Tensor, last: Tensor) -> Tensor:
        drawn_in.append(segments.packing.n_sequences)
        return followed(segments, psi, last)

    monkeypatch.setattr(sampling, "followed", counted)
    log_b = torch.randn(6000, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    slow, n = torch.full((3, 3), 1e-9, dtype=torch.float64).fill_diagonal_(1 - 2e-9), 400
    for transition, scale in ((TRANSITION, 1.0), (slow, 0.002)):
        paths = sample_states(INITIAL, transition, log_b * scale, n=n, generator=torch.Generator().manual_seed(0))
        gamma = forward_backward(INITIAL, transition, log_b * scale).gamma[::1000]
        shares = torch.stack([(paths[::1000] == j).double().mean(1) for j in range(3)], 1)
        assert ((shares - gamma).abs() <= 4.5 * (gamma * (1 - gamma) / n).sqrt() + 1e-9).all()
        assert (transition[paths[:-1], paths[1:]] > 0).all()
    assert len(drawn_in) == 2
    assert min(drawn_in) > 4


@pytest.mark.parametrize(("lost", "has_all"), [(-200.0, True), (-800.0, False)])
def test_whether_a_state_was_lost(lost: float, has_all: bool) -> None:
    stay, half = torch.eye(2, dtype=torch.float64), torch.full((2,), 0.5, dtype=torch.float64)
    log_b = torch.zeros(12, 2, dtype=torch.float64)
    log_b[4, 0], log_b[9, 1] = lost, -torch.inf
    whole = Trellis.of(half, stay, LogDensities(log_b), Segments.whole([12]))
    for trellis in (whole, whole.cut(Segments.of_size(torch.tensor([12]), 5, 0))[0]):
        assert scaled.has_every_state(trellis, scaled.forward(trellis).alpha) == has_all
