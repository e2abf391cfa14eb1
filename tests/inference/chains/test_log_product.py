"""One step of a chain on logarithms, against the sum of exponentials."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from seqmodels.inference.chains.log_space import LogProduct


def matrices(K: int, generator: torch.Generator) -> dict[str, Tensor]:
    full = torch.rand(K, K, generator=generator, dtype=torch.float64)
    some = torch.rand(K, K, generator=generator) < 0.4
    return {
        "full": full,
        "unit": torch.eye(K, dtype=torch.float64),
        "left-to-right": torch.triu(full),
        "zeros": full * some,
        "tiny": full**800,
        "subnormal": torch.where(some, 1e-310, full),
    }


@pytest.mark.parametrize("K", [1, 2, 7])
@pytest.mark.parametrize("spread", [1.0, 300.0, 1e3, 1e6])
def test_it_is_the_sum_of_exponentials(K: int, spread: float) -> None:
    generator = torch.Generator().manual_seed(K)
    for name, matrix in matrices(K, generator).items():
        rows = spread * torch.randn(20, K, generator=generator, dtype=torch.float64)
        rows[torch.rand(20, K, generator=generator) < 0.2] = -torch.inf
        rows[3] = -torch.inf
        expected = torch.logsumexp(rows[:, :, None] + matrix.log(), 1)
        for each in (matrix, matrix.expand(20, K, K).contiguous()):
            assert_close(LogProduct(each)(rows), expected, rtol=1e-12, atol=1e-11, msg=f"{name} {tuple(each.shape)}")
