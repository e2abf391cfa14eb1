"""Powers of two for compiled loops, ``2^x = 2^n 2^r``: n is the nearest integer, and ``2^r`` is a Taylor series.

The compiler turns loops over ``power`` into vector instructions, which it cannot do with calls of a library function.
Errors are below two units in the last place. Arguments below the least normal exponent are raised to it; NaN stays NaN.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from seqmodels.common.compiled import compiled

# Coefficients of the series, for |r| <= 1/2: the first term left out is below half a unit of the last digit.
A1, A2, A3, A4, A5, A6, A7, A8, A9, A10, A11, A12, A13 = (math.log(2) ** n / math.factorial(n) for n in range(1, 14))


@compiled(any_order=True, inner=True)
def _power32(x: Any) -> Any:
    x = np.float32(-126) if x < np.float32(-126) else x
    n = np.floor(x + np.float32(0.5))
    r = x - n
    s = np.float32(A6) + r * np.float32(A7)
    s = np.float32(A5) + r * s
    s = np.float32(A4) + r * s
    s = np.float32(A3) + r * s
    s = np.float32(A2) + r * s
    s = np.float32(A1) + r * s
    s = np.float32(1) + r * s
    return s * np.int32(np.int32(np.int32(n) + np.int32(127)) << np.int32(23)).view(np.float32)


@compiled(any_order=True, inner=True)
def _power64(x: Any) -> Any:
    x = -1022.0 if x < -1022.0 else x
    n = np.floor(x + 0.5)
    r = x - n
    s = A12 + r * A13
    s = A11 + r * s
    s = A10 + r * s
    s = A9 + r * s
    s = A8 + r * s
    s = A7 + r * s
    s = A6 + r * s
    s = A5 + r * s
    s = A4 + r * s
    s = A3 + r * s
    s = A2 + r * s
    s = A1 + r * s
    s = 1.0 + r * s
    return s * np.int64((np.int64(n) + 1023) << 52).view(np.float64)


@compiled(any_order=True)
def power(x: Any, wide: bool | None) -> Any:
    """Return the power 2^x of one number, for use in compiled loops.

    ``wide`` only chooses the precision by its type: float32 if it is None and float64 if it is a bool. The type is
    known when numba compiles a call, so that only the branch that is taken is compiled.
    """
    if wide is None:
        return _power32(x)
    return _power64(x)
