"""Newton's method with halved steps, against functions whose maximum is known."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from seqmodels.hmm.emissions.newton import newton_maximum, solved


@pytest.mark.parametrize("start", [0.1, 9.0])
def test_a_step_too_far_is_halved(start: float) -> None:
    """``-log cosh(x - 1)``, of which a whole step from far away is worse than none."""

    def terms(at: Tensor) -> tuple[float, Tensor, Tensor]:
        slope = torch.tanh(at - 1.0)
        return -float(torch.log(torch.cosh(at - 1.0)).sum()), -slope, torch.diag(1 - slope**2)

    found = newton_maximum(
        terms, torch.tensor([start], dtype=torch.float64), lambda h, g: solved(h, g[:, None])[:, 0], lambda step: step
    )
    np.testing.assert_allclose(found, [1.0], atol=1e-6)


def test_nothing_is_solved_along_what_is_not_known() -> None:
    matrix = torch.tensor([[2.0, 2.0], [2.0, 2.0]], dtype=torch.float64)  # flat along (1, -1)
    right = torch.tensor([[4.0], [4.0]], dtype=torch.float64)
    np.testing.assert_allclose(solved(matrix, right), [[1.0], [1.0]], atol=1e-12)
    whole = torch.tensor([[3.0, 1.0], [1.0, 2.0]], dtype=torch.float64)
    np.testing.assert_allclose(whole @ solved(whole, right), right, atol=1e-12)
