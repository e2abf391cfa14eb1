"""The kernel against the operations it stands for, on a GPU or, without one, by Triton's interpreter."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton", reason="Triton comes with torch for a GPU; make kernels installs it to test without one")

from seqmodels.hmm.emissions import triton_mixtures
from seqmodels.hmm.emissions.gaussian_mixture import UNDERFLOW, ComponentBlock

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize(("m", "n"), [(2, 5), (3, 700), (8, 300), (33, 70)])
def test_the_kernel_equals_the_operations(m: int, n: int) -> None:
    generator = torch.Generator().manual_seed(m)
    components = 60 * torch.randn(m, 3, n, generator=generator)
    components[1:, 0, 0] = -torch.inf
    rows = slice(4, 4 + n)  # within what more frames need
    expected = torch.zeros(2, 3, n + 9)
    found = expected.clone().to(DEVICE)
    block = ComponentBlock(rows, components.clone())
    block.sum_up(*expected)
    ours = components.to(DEVICE)
    triton_mixtures.sum_up(ours, found[0, :, rows], found[1, :, rows], UNDERFLOW[torch.float32])
    torch.testing.assert_close(found.cpu(), expected, rtol=2e-6, atol=0)
    torch.testing.assert_close(ours.cpu(), block.components, rtol=2e-6, atol=1e-37)


def test_a_frame_that_nothing_explains_has_a_sum() -> None:
    components = torch.full((3, 1, 4), -torch.inf, device=DEVICE)
    exponent, factor = torch.zeros(2, 1, 4, device=DEVICE)
    triton_mixtures.sum_up(components, exponent, factor, UNDERFLOW[torch.float32])
    assert torch.isneginf(exponent).all()
    assert factor.isfinite().all()
