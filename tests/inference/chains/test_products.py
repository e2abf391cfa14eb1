"""Products with the matrix of a chain are torch's, whichever library computes them."""

from __future__ import annotations

import pytest
import torch

from seqmodels.common import onednn
from seqmodels.inference.chains import products, scaled
from seqmodels.inference.chains.densities import LogDensities
from seqmodels.inference.chains.forward_backward import forward_backward_pass
from seqmodels.inference.chains.parallel_segments import Segments
from seqmodels.inference.chains.products import SIZE_MULTIPLE, is_worth_onednn, product_with
from seqmodels.inference.chains.trellis import Posterior, Trellis

K = 4


@pytest.fixture
def _always_onednn(monkeypatch: pytest.MonkeyPatch) -> None:
    if not onednn.has_avx512():
        pytest.skip("the processor has no AVX-512")
    for name in ("WORTH_ONEDNN", "WORTH_ONEDNN_ON_THREADS"):
        monkeypatch.setattr(products, name, 0)


def _rows(n: int, by_state: bool, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    x = torch.rand(n, K, generator=torch.Generator().manual_seed(n), dtype=dtype)
    return x.T.contiguous().T if by_state else x


@pytest.mark.parametrize("by_state", [True, False])
@pytest.mark.parametrize("n", [1, 3, SIZE_MULTIPLE, 3 * SIZE_MULTIPLE + 5])
@pytest.mark.usefixtures("_always_onednn")
def test_products_by_onednn_are_those_of_torch(n: int, by_state: bool) -> None:
    rows, matrix = _rows(4 * SIZE_MULTIPLE, by_state), _rows(K, by_state=False)
    for low in (0, 7, len(rows) - n):  # with what follows in memory, and without
        x = rows[low : low + n].T
        found = product_with(matrix)(x, torch.empty(0))
        torch.testing.assert_close(found, matrix @ x)
        assert n == 1 or (found.stride(0) == 1) == (x.stride(0) == 1)


@pytest.mark.usefixtures("_always_onednn")
def test_onednn_is_for_one_chain_in_float32() -> None:
    assert is_worth_onednn(torch.ones(K, K), torch.ones(K, 3))
    assert not is_worth_onednn(torch.ones(K, K).double(), torch.ones(K, 3).double())
    assert not is_worth_onednn(torch.ones(2, K, K), torch.ones(2, K, 3))
    with torch.autocast("cpu", torch.bfloat16):
        assert not is_worth_onednn(torch.ones(K, K), torch.ones(K, 3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_small_products_are_written_where_they_are_asked_for(dtype: torch.dtype) -> None:
    matrix, x = _rows(K, False, dtype), _rows(3, False, dtype).T
    out = torch.empty_like(x)
    assert product_with(matrix)(x, out) is out
    torch.testing.assert_close(out, matrix @ x)


@pytest.mark.parametrize("by_state", [True, False])
@pytest.mark.usefixtures("_always_onednn")
def test_forward_backward_of_ragged_sequences_is_the_same(by_state: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(scaled.ROWS_PER_SUM, torch.float32, 4)
    generator = torch.Generator().manual_seed(0)
    lengths = [3, 40, 17, 1, 40, 9]
    transition = torch.rand(K, K, generator=generator, dtype=torch.float64)
    transition /= transition.sum(1, keepdim=True)
    log_b = torch.randn(sum(lengths), K, generator=generator)

    def run(log_b: torch.Tensor) -> Posterior:
        segments = Segments.whole(lengths)
        packed = segments.packing.pack(log_b)
        densities = LogDensities(packed.T.contiguous().T if by_state else packed)
        return forward_backward_pass(Trellis.of(torch.full((K,), 1 / K), transition, densities, segments))

    found, expected = run(log_b), run(log_b.double())
    for name in ("log_prob", "gamma", "xi", "initial", "final"):
        torch.testing.assert_close(getattr(found, name).double(), getattr(expected, name), rtol=1e-5, atol=1e-5)
