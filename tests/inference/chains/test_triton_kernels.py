"""The kernels against the recursions they stand for, on a GPU or, without one, by Triton's interpreter."""

from __future__ import annotations

import pytest
import torch
from numpy.testing import assert_allclose
from torch import Tensor

from seqmodels.inference.chains import scaled
from seqmodels.inference.chains.packing import Packing
from seqmodels.inference.chains.scaled import ScaledChain
from seqmodels.inference.chains.scratch import Scratch

pytest.importorskip("triton", reason="Triton comes with torch for a GPU; make kernels installs it to test without one")

from seqmodels.inference.chains import triton_kernels

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
LENGTHS = [7, 1, 12, 12, 3, *range(1, 19)]  # more sequences than one program takes


def case(K: int, by_state: bool) -> tuple[Tensor, Tensor, Tensor, Tensor, Packing]:
    """``transition``, ``b``, ``starts``, ``ends``, in float32."""
    generator = torch.Generator().manual_seed(K)
    packing = Packing.of(LENGTHS, DEVICE)
    transition = torch.rand(K, K, generator=generator) ** 3
    transition = transition / transition.sum(1, keepdim=True)
    starts = torch.softmax(torch.randn(len(LENGTHS), K, generator=generator), 1)
    ends = torch.rand(len(LENGTHS), K, generator=generator)
    b = torch.exp(-5 * torch.rand(packing.n_frames, K, generator=generator))
    b = b / b.amax(1, keepdim=True)
    b = b.T.contiguous().T if by_state else b
    return transition.to(DEVICE), b.to(DEVICE), starts.to(DEVICE), ends.to(DEVICE), packing


@pytest.mark.parametrize("by_state", [False, True])
@pytest.mark.parametrize(("K", "memory"), [(1, 2), (5, 2), (16, 2), (20, 2), (5, 0), (40, 0), (150, 2)])
def test_kernels_equal_the_recursions(K: int, memory: int, by_state: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if memory == 0:  # too little for any matrix: read in bands
        monkeypatch.setattr(triton_kernels, "shared_memory", lambda device: 0)
    transition, b, starts, ends, packing = case(K, by_state)
    expected_ahead = b.cpu().clone()
    chain = ScaledChain(transition.cpu(), b.cpu(), Packing.of(LENGTHS))
    expected_alpha, expected_scale = scaled.forward_recursion(chain, starts.cpu(), Scratch())
    alpha, scale = torch.empty_like(b), b.new_empty(len(b))
    triton_kernels.forward(transition, b, packing, starts=starts, alpha=alpha, scale=scale, flush=1e-34)
    assert_allclose(alpha.cpu(), expected_alpha, rtol=2e-6, atol=1e-7)
    assert_allclose(scale.cpu(), expected_scale, rtol=2e-6)

    last_alpha = alpha[packing.last[packing.order]]
    ends = ends / (last_alpha * ends).sum(1, keepdim=True)
    expected_gamma, expected_beta_max, beta_max = (
        torch.empty_like(expected_ahead),
        expected_scale.clone(),
        scale.clone(),
    )
    chain = ScaledChain(transition.cpu(), expected_ahead, Packing.of(LENGTHS))
    expected_messages, drifted = scaled.backward_recursion(
        chain, expected_alpha, expected_scale, ends.cpu(), expected_gamma, beta_max=expected_beta_max
    )
    assert not drifted.any()
    gamma, ahead = torch.empty_like(b), b.clone()
    messages, drifted = triton_kernels.backward(
        transition,
        ahead,
        packing,
        alpha=alpha,
        scale=scale,
        ends=ends,
        gamma=gamma,
        drift=1e-3,
        beta_max=beta_max,
    )
    assert not drifted.any()
    assert_allclose(beta_max.cpu(), expected_beta_max, rtol=1e-4)
    assert_allclose(gamma.cpu(), expected_gamma, rtol=1e-4, atol=1e-6)
    assert_allclose(ahead.cpu(), expected_ahead, rtol=1e-4, atol=1e-6)
    assert_allclose(messages.cpu(), expected_messages, rtol=1e-4, atol=1e-6)


def test_a_sequence_that_drifts_is_told() -> None:
    transition, b, starts, ends, packing = case(5, by_state=False)
    alpha, scale = torch.empty_like(b), b.new_empty(len(b))
    triton_kernels.forward(transition, b, packing, starts=starts, alpha=alpha, scale=scale, flush=1e-34)
    last_alpha = alpha[packing.last[packing.order]]
    ends = ends / (last_alpha * ends).sum(1, keepdim=True)
    alpha[packing.sequence == 2] *= 1.1
    alpha[packing.sequence == 3] = torch.nan
    gamma = torch.empty_like(b)
    _, drifted = triton_kernels.backward(
        transition, b, packing, alpha=alpha, scale=scale, ends=ends, gamma=gamma, drift=1e-3
    )
    assert drifted[packing.rank].nonzero()[:, 0].tolist() == [2, 3]
