"""Scalar functions for loops that numba compiles: exp as vector instructions, and conversions of bfloat16.

Import this module where it is first needed, because it loads numba.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numba import types
from numba.extending import overload
from torch import Tensor

from seqmodels.common.compiled import compiled

LOWEST, HIGHEST = np.float32(-87.0), np.float32(88.0)  # where exp is about 1e-38 and 1e38
PER_LOG_2, LOG_2 = np.float32(1.44269504), np.float32(0.693147182)
# Coefficients of exp(x) = 1 + x + x² (c5 + x (c4 + ...)) for |x| <= log(2) / 2 (Cephes, expf).
C0, C1, C2 = np.float32(1.9875691500e-4), np.float32(1.3981999507e-3), np.float32(8.3334519073e-3)
C3, C4, C5 = np.float32(4.1665795894e-2), np.float32(1.6666665459e-1), np.float32(5.0000001201e-1)
ONE, TWO = np.float32(1), np.float32(2)


def array(x: Tensor) -> np.ndarray:
    """Return a tensor as an array that shares its memory, for compiled loops; bfloat16 is seen as 16-bit integers.

    ``widened`` and ``narrowed`` convert an element to and from float32.
    """
    if x.dtype == torch.bfloat16:
        return x.detach().view(torch.int16).numpy().view(np.uint16)
    return x.detach().numpy()


def widened(x: Any) -> Any:
    """Convert an element of an array that ``array`` returned, which may hold bfloat16, to float32.

    It is only for loops that numba compiles.
    """
    raise NotImplementedError


def narrowed(x: Any, like: Any) -> Any:
    """Round a float32 to the type of ``like``, an element of an array that ``array`` returned.

    It is only for loops that numba compiles.
    """
    raise NotImplementedError


def _widened(x: Any) -> Callable[[Any], Any]:
    if x == types.uint16:
        return lambda x: np.uint32(np.uint32(x) << np.uint32(16)).view(np.float32)
    return lambda x: x


def _narrowed(x: Any, like: Any) -> Callable[[Any, Any], Any]:
    if like == types.uint16:
        return lambda x, like: _upper_half(np.float32(x).view(np.uint32))
    return lambda x, like: x


for function, implementation in ((widened, _widened), (narrowed, _narrowed)):
    overload(function, inline="always", strict=False)(implementation)


@compiled
def _upper_half(bits: Any) -> Any:
    """Round a float32, given by its bits, to the 16 bits of a bfloat16; ties go to even, and NaN stays NaN."""
    odd = (bits >> np.uint32(16)) & np.uint32(1)
    return np.uint16(np.uint32(bits + np.uint32(0x7FFF) + odd) >> np.uint32(16))


@compiled(any_order=True)
def exponential(x: Any) -> Any:
    """Return ``exp x`` of a float32, correct to about its last digit; only for loops that numba compiles.

    It is 0 below -87, its value at 88 above that, and NaN for NaN.
    """
    is_low = x < LOWEST
    x = LOWEST if is_low else x
    x = HIGHEST if x > HIGHEST else x
    n = np.int32(x * PER_LOG_2 + np.float32(128.5)) - np.int32(128)  # exp x = 2^n exp(rest)
    rest = x - np.float32(n) * LOG_2
    series = ((((C0 * rest + C1) * rest + C2) * rest + C3) * rest + C4) * rest + C5
    power = np.int32((n + np.int32(127)) << np.int32(23)).view(np.float32)
    return np.float32(0) if is_low else (series * rest * rest + rest + ONE) * power


@compiled(any_order=True)
def sigmoid(x: Any) -> Any:
    """Return the logistic sigmoid of a float32; only for loops that numba compiles."""
    return ONE / (ONE + exponential(-x))
