"""Small matrix products on one thread: waking a second one takes longer than they do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

WORTH_SHARING = 200_000  # multiplications in a product


@contextmanager
def one_if_small(transition: Tensor, n: int) -> Iterator[None]:
    """Within, torch uses one thread on this CPU if products of (K, K) with (K, n) are small; after, as many as before."""
    threads = torch.get_num_threads()
    if threads == 1 or transition.is_cuda or transition.numel() * n >= WORTH_SHARING:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
