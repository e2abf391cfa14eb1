from __future__ import annotations

import numpy as np
import pytest
import torch

pytest.importorskip("numba", reason="without numba nothing is compiled")

from seqmodels.common.compiled import compiled
from seqmodels.neural.ops.kernel_math import array, exponential, narrowed, sigmoid, widened


@compiled
def exponentials(x: np.ndarray, y: np.ndarray) -> None:
    for i in range(len(x)):
        y[i] = exponential(x[i])


@compiled
def sigmoids(x: np.ndarray, y: np.ndarray) -> None:
    for i in range(len(x)):
        y[i] = sigmoid(x[i])


@compiled
def copy(x: np.ndarray, y: np.ndarray) -> None:
    for i in range(len(x)):
        y[i] = narrowed(widened(x[i]), y[i])


def test_exp_is_exact_to_about_its_last_digit() -> None:
    x = np.linspace(-86.9, 87.9, 100_001, dtype=np.float32)
    y = np.empty_like(x)
    exponentials(x, y)
    np.testing.assert_allclose(y, np.exp(x.astype(np.float64)), rtol=5e-7)


def test_exp_at_its_ends() -> None:
    x = np.array([-np.inf, -200, 0, np.nan], np.float32)
    y = np.empty_like(x)
    exponentials(x, y)
    np.testing.assert_array_equal(y, np.array([0, 0, 1, np.nan], np.float32))


def test_sigmoid_is_torchs() -> None:
    x = torch.tensor([-torch.inf, -90.0, -20.0, -1.0, 0.0, 1e-3, 5.0, 90.0, torch.inf, torch.nan])
    y = np.empty(len(x), np.float32)
    sigmoids(x.numpy(), y)
    torch.testing.assert_close(torch.from_numpy(y), x.sigmoid(), rtol=3e-7, atol=1e-30, equal_nan=True)


def test_bfloat16_is_rounded_as_torch_rounds_it() -> None:
    drawn = torch.randn(1_000, generator=torch.Generator().manual_seed(0))
    halfway = torch.tensor([1 + 2**-8, 1 + 3 * 2**-8, -(1 + 2**-8), torch.inf, torch.nan, 0.0])
    x = torch.cat([drawn, halfway])
    narrow, wide = torch.empty(len(x), dtype=torch.bfloat16), torch.empty(len(x))
    copy(array(x), array(narrow))
    torch.testing.assert_close(narrow, x.bfloat16(), rtol=0, atol=0, equal_nan=True)
    copy(array(narrow), array(wide))
    torch.testing.assert_close(wide, narrow.float(), rtol=0, atol=0, equal_nan=True)


def test_an_array_is_the_tensors_own_memory() -> None:
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.ones(3, dtype=dtype)
        array(x)[1] = 0
        assert x.tolist() == [1, 0, 1]
