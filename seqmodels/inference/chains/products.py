"""Products with a chain's transition matrix, computed by torch or by oneDNN, whichever is faster."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from seqmodels.common.onednn import linear, multiplies

Product = Callable[[Tensor, Tensor], Tensor]

# Multiplications in a product from which oneDNN is faster; it takes longer to start, more so on several threads.
WORTH_ONEDNN = 8_000_000
WORTH_ONEDNN_ON_THREADS = 16_000_000
SIZE_MULTIPLE = 32  # numbers of messages are rounded up to this, because oneDNN generates code for each number


def product_with(matrix: Tensor) -> Product:
    """Return a function ``product(x, out)`` that computes ``matrix @ x`` by torch or oneDNN, whichever is faster.

    The result is written to ``out`` or to a new tensor. ``matrix`` is ``(..., K, K)`` and ``x`` is ``(..., K, n)``.
    ``x`` and ``out`` have the same memory layout, and the result has it too.
    """
    by_torch = torch.mm if matrix.dim() == 2 else torch.bmm

    def product(x: Tensor, out: Tensor) -> Tensor:
        if is_worth_onednn(matrix, x):
            return _by_onednn(matrix, x)
        return by_torch(matrix, x, out=out)

    return product


def is_worth_onednn(left: Tensor, right: Tensor) -> bool:
    """Return True if the oneDNN library is faster than torch at the product of ``left (i, k)`` and ``right (k, j)``."""
    least = WORTH_ONEDNN if torch.get_num_threads() == 1 else WORTH_ONEDNN_ON_THREADS
    return left.dim() == 2 and left.numel() * right.shape[1] >= least and multiplies(left)


def _by_onednn(matrix: Tensor, x: Tensor) -> Tensor:
    n = x.shape[1]
    wider = _wider(x, -(-n // SIZE_MULTIPLE) * SIZE_MULTIPLE)
    if x.stride(0) == 1:
        return linear(wider.mT, matrix)[:n].mT
    return linear(matrix, wider.contiguous().mT)[:, :n]


def _wider(x: Tensor, n: int) -> Tensor:
    """Return ``x (K, m)`` with n columns, as a view that goes on into the memory after it.

    If too little memory follows, ``x`` is returned as it is.
    """
    last = x.storage_offset() + (x.shape[0] - 1) * x.stride(0) + (n - 1) * x.stride(1)
    has_room = last < x.untyped_storage().nbytes() // x.element_size()
    return x.as_strided((x.shape[0], n), x.stride()) if has_room else x
