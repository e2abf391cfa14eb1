"""The kernel against torch's operations, on a GPU or, without one, by Triton's interpreter."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

pytest.importorskip("triton", reason="Triton comes with torch for a GPU; make kernels installs it to test without one")

from seqmodels.neural.ops import cross_entropy, triton_softmax
from seqmodels.neural.ops.cross_entropy import linear_log_prob

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("n_symbols", "width"), [(5, 8), (70, 70), (4096, 4096), (9_001, 9_024)])
def test_the_kernel_equals_the_operations(n_symbols: int, width: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(n_symbols)
    logits = (40 * torch.randn(3, width, generator=generator)).to(dtype)
    bias = torch.randn(n_symbols, generator=generator)
    target = torch.tensor([0, n_symbols // 2, n_symbols - 1])
    exact = (logits[:, :n_symbols].double() + bias).log_softmax(1)
    ours = logits.to(DEVICE)
    found = triton_softmax.softmax_rows(ours, bias.to(DEVICE), target.to(DEVICE)).cpu().double()
    torch.testing.assert_close(found, exact.gather(1, target[:, None])[:, 0], rtol=1e-6, atol=1e-5)
    probabilities = ours.cpu().double()
    torch.testing.assert_close(probabilities[:, :n_symbols], exact.exp(), rtol=8e-3, atol=1e-30)
    assert not probabilities[:, n_symbols:].any()


@pytest.mark.parametrize("n_symbols", [24, 61])
def test_values_and_gradients_are_those_of_a_softmax(n_symbols: int, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    shapes = (7, 4), (n_symbols, 4), (n_symbols,)
    inputs = [torch.randn(shape, generator=generator).to(DEVICE).requires_grad_() for shape in shapes]
    target = torch.randint(n_symbols, (7,), generator=generator).to(DEVICE)
    upstream = torch.randn(7, generator=generator).to(DEVICE)
    expected = -F.cross_entropy(F.linear(*inputs), target, reduction="none")
    calls = []
    monkeypatch.setattr(cross_entropy, "_has_kernel", lambda *_: calls.append(1) is None)
    found = linear_log_prob(*inputs, target)
    assert calls
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    gradients = (torch.autograd.grad((x * upstream).sum(), inputs) for x in (found, expected))
    for ours, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
