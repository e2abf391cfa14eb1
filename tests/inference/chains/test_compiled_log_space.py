"""The compiled forward pass in logarithms is that of tensor operations."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from seqmodels.inference.chains import log_space
from seqmodels.inference.chains.densities import LogDensities
from seqmodels.inference.chains.parallel_segments import Segments
from seqmodels.inference.chains.trellis import Trellis

pytest.importorskip("numba")


@pytest.mark.parametrize("between", [0.3, 1e-60, 1e-300, 0.0], ids=str)
@pytest.mark.parametrize("spread", [1.0, 1e3])
def test_it_is_that_of_tensor_operations(between: float, spread: float, monkeypatch: pytest.MonkeyPatch) -> None:
    K, generator = 5, torch.Generator().manual_seed(0)
    transition = torch.rand(K, K, generator=generator, dtype=torch.float64)
    transition[:2, 2:] *= between
    transition[2:, :2] *= between
    transition /= transition.sum(1, keepdim=True)
    lengths = [70, 1, 40, 40]
    log_b = spread * torch.randn(sum(lengths), K, generator=generator, dtype=torch.float64)
    log_b[torch.rand(len(log_b), K, generator=generator) < 0.2] = -torch.inf
    log_b[100] = -torch.inf  # of the third sequence, which is impossible from there on
    segments = Segments.whole(lengths)
    log_b = segments.packing.pack(log_b)
    trellis = Trellis.of(torch.full((K,), 1 / K, dtype=torch.float64), transition, LogDensities(log_b), segments)
    found = log_space.log_alpha_and_steps(trellis)
    monkeypatch.setattr(log_space, "loops_are_compiled", lambda device: False)
    expected = log_space.log_alpha_and_steps(trellis)
    for one, other in zip(found, expected, strict=True):
        assert_close(one, other, rtol=1e-12, atol=1e-11)
    assert np.isneginf(segments.split(found[1])[2].numpy()[29:]).all()


def test_what_is_not_a_number_stays_so() -> None:
    log_b = torch.zeros(4, 2, dtype=torch.float64)
    log_b[2] = torch.nan
    half = torch.full((2, 2), 0.5, dtype=torch.float64)
    trellis = Trellis.of(half[0], half, LogDensities(log_b), Segments.whole([4]))
    assert log_space.log_alpha_and_steps(trellis)[1][2].isnan()
