"""The kernels against the recursions they stand for, on a GPU or, without one, by Triton's interpreter."""

from __future__ import annotations

import os

import pytest
import torch
from numpy.testing import assert_allclose
from torch import Tensor

from seqmodels.hmm import recursions
from seqmodels.hmm.packing import Packing
from seqmodels.hmm.scratch import Scratch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
pytest.importorskip("triton", reason="Triton comes with torch for a GPU; make kernels installs it to test without one")

from seqmodels.hmm import kernels

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
@pytest.mark.parametrize(("K", "held"), [(1, 128), (5, 128), (16, 128), (20, 128), (5, 4), (40, 32), (150, 128)])
def test_kernels_equal_the_recursions(K: int, held: int, by_state: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "HELD_STATES", held)
    transition, b, starts, ends, packing = case(K, by_state)
    cpu = [a.cpu() for a in (transition, b, starts)]
    wanted_alpha, wanted_scale = recursions.forward(*cpu, Packing.of(LENGTHS), Scratch())
    alpha, scale = torch.empty_like(b), b.new_empty(len(b))
    kernels.forward(transition, b, starts, packing, alpha, scale, flush=1e-34)
    assert_allclose(alpha.cpu(), wanted_alpha, rtol=2e-6, atol=1e-7)
    assert_allclose(scale.cpu(), wanted_scale, rtol=2e-6)

    closing = alpha[packing.last[packing.order]]
    ends = ends / (closing * ends).sum(1, keepdim=True)
    wanted_gamma, wanted_ahead = torch.empty_like(cpu[1]), cpu[1].clone()
    given = (cpu[0], wanted_alpha, wanted_ahead, wanted_scale, ends.cpu(), wanted_gamma, Packing.of(LENGTHS))
    wanted_reach, reach = wanted_scale.clone(), scale.clone()
    wanted_messages, drifted = recursions.backward(*given, wanted_reach)
    assert not drifted.any()
    gamma, ahead = torch.empty_like(b), b.clone()
    messages, drifted = kernels.backward(transition, alpha, ahead, scale, ends, gamma, packing, 1e-3, reach)
    assert not drifted.any()
    assert_allclose(reach.cpu(), wanted_reach, rtol=1e-4)
    assert_allclose(gamma.cpu(), wanted_gamma, rtol=1e-4, atol=1e-6)
    assert_allclose(ahead.cpu(), wanted_ahead, rtol=1e-4, atol=1e-6)
    assert_allclose(messages.cpu(), wanted_messages, rtol=1e-4, atol=1e-6)


def test_a_sequence_that_drifts_is_told() -> None:
    transition, b, starts, ends, packing = case(5, by_state=False)
    alpha, scale = torch.empty_like(b), b.new_empty(len(b))
    kernels.forward(transition, b, starts, packing, alpha, scale, flush=1e-34)
    closing = alpha[packing.last[packing.order]]
    ends = ends / (closing * ends).sum(1, keepdim=True)
    alpha[packing.sequence == 2] *= 1.1
    alpha[packing.sequence == 3] = torch.nan
    _, drifted = kernels.backward(transition, alpha, b, scale, ends, torch.empty_like(b), packing, drift=1e-3)
    assert drifted[packing.rank].nonzero()[:, 0].tolist() == [2, 3]
