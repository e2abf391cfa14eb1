"""The compiled passes of semi-Markov chains are those of tensor operations."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from seqmodels.inference.chains import compiled_semi_markov, semi_markov
from seqmodels.inference.chains.packing import Packing
from seqmodels.inference.chains.semi_markov import (
    Durations,
    SemiMarkovTrellis,
    best_segments,
    forward_backward_pass,
    forward_pass,
)

pytest.importorskip("numba")


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("left_censored", [False, True])
@pytest.mark.parametrize("spread", [1.0, 1e3])
def test_they_are_those_of_tensor_operations(
    spread: float, left_censored: bool, ends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over moves of the open segments; densities and durations of zero; states so far apart that weights underflow."""
    rng = np.random.default_rng(0)
    k, longest = 4, 7
    transition = rng.dirichlet(np.ones(k + ends), k)
    transition[0, 1] = 1e-300
    np.fill_diagonal(transition, 0.0)
    transition /= transition.sum(1, keepdims=True)
    pmf = rng.dirichlet(np.ones(longest), k)
    pmf[0, :2] = pmf[1, 3] = 0.0
    pmf /= pmf.sum(1, keepdims=True)
    packing = Packing.of([3 * compiled_semi_markov.COLUMNS, 1 + 2 * ends, 40, 40])
    log_b = spread * rng.normal(size=(packing.n_frames, k))
    log_b[rng.random(log_b.shape) < 0.05] = -np.inf
    final = torch.from_numpy(transition[:, k].copy()) if ends else None
    trellis = SemiMarkovTrellis(
        torch.from_numpy(rng.dirichlet(np.ones(k))),
        torch.from_numpy(transition[:, :k].copy()),
        final,
        Durations.of(torch.from_numpy(pmf).log(), left_censored=left_censored),
        torch.from_numpy(log_b),
        packing,
    )
    with monkeypatch.context() as patch:
        patch.setattr(semi_markov, "is_compiling", lambda: False)
        assert not trellis.runs_compiled
        expected = [forward_pass(trellis), forward_backward_pass(trellis)]
    assert trellis.runs_compiled
    results = [forward_pass(trellis), forward_backward_pass(trellis)]
    assert bool(torch.isfinite(results[1].log_prob).all())
    for one, other in zip(results, expected, strict=True):
        for name in vars(one):
            assert_close(getattr(one, name), getattr(other, name), rtol=1e-10, atol=1e-11 * spread, msg=name)


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("left_censored", [False, True])
@pytest.mark.parametrize("case", ["zeros", "ties", "levels of -1e9", "underflow"])
def test_best_segments_are_those_of_tensor_operations(
    case: str, left_censored: bool, ends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(1)
    k, longest = 3, 5
    transition = rng.dirichlet(np.ones(k + ends), k)
    np.fill_diagonal(transition, 0.0)
    pmf = rng.dirichlet(np.ones(longest), k)
    pmf[0, 0] = pmf[1, 3] = 0.0
    packing = Packing.of([3 * compiled_semi_markov.COLUMNS, 2, 40, 40])
    log_b = (1e3 if case == "underflow" else 1.0) * rng.normal(size=(packing.n_frames, k))
    log_b[rng.random(log_b.shape) < 0.03] = -np.inf
    log_b[packing.rank[3] + packing.offsets[20]] = -np.inf  # an impossible sequence
    if case == "ties":  # whatever the transitions and durations
        transition, pmf, log_b = 0.5 * (transition > 0), 0.25 * (pmf > 0), np.round(log_b)
    if case == "levels of -1e9":
        log_b -= 1e9
    trellis = SemiMarkovTrellis(
        torch.full((k,), 1 / k, dtype=torch.float64),
        torch.from_numpy(transition[:, :k].copy()),
        torch.full((k,), 0.25, dtype=torch.float64) if ends else None,
        Durations.of(torch.from_numpy(pmf).log(), left_censored=left_censored),
        torch.from_numpy(log_b),
        packing,
    )
    paths, log_prob = best_segments(trellis)
    monkeypatch.setattr(semi_markov, "is_compiling", lambda: False)
    assert not trellis.runs_compiled
    expected, log_expected = best_segments(trellis)
    assert bool(torch.isfinite(log_prob[:3]).all())
    assert bool(torch.isneginf(log_prob[3]))
    assert torch.equal(log_prob, log_expected)
    for i in range(3):
        assert paths[i].tolist() == expected[i].tolist()


def test_what_is_impossible_stays_so() -> None:
    log_b = torch.zeros(20, 2, dtype=torch.float64)
    log_b[12] = -torch.inf
    half = torch.full((2, 2), 0.5, dtype=torch.float64)
    durations = Durations.of(torch.full((2, 3), 1 / 3).log())
    trellis = SemiMarkovTrellis(half[0], half, None, durations, log_b, Packing.of([20]))
    steps = forward_pass(trellis).steps
    assert bool(torch.isfinite(steps[:12]).all())
    assert bool(torch.isneginf(steps[12:]).all())
    assert bool(torch.isneginf(forward_backward_pass(trellis).log_prob).all())


def test_densities_may_lie_in_memory_state_by_state() -> None:
    log_b = torch.randn(20, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    half, initial = torch.full((2, 2), 0.5, dtype=torch.float64), torch.tensor([1.0, 0.0], dtype=torch.float64)
    durations = Durations.of(torch.full((2, 3), 1 / 3).log())
    by_frame, by_state = (
        forward_backward_pass(SemiMarkovTrellis(initial, half, None, durations, each, Packing.of([20])))
        for each in (log_b, log_b.T.contiguous().T)
    )
    assert_close(by_state.gamma.sum(1), torch.ones(20, dtype=torch.float64))
    for name in vars(by_frame):
        assert_close(getattr(by_state, name), getattr(by_frame, name))
