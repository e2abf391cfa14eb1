"""The largest model within a number of parameters."""

from __future__ import annotations

from collections.abc import Callable


def largest_size(count: Callable[[int], int], limit: int, step: int, name: str) -> int:
    """The largest multiple of ``step`` whose ``count``, which grows with it, is not above ``limit``.

    >>> largest_size(lambda k: k * k, 90, 1, "n_states")
    9
    """
    if count(step) > limit:
        raise ValueError(f"with {name}={step} it has {count(step):,} parameters already; the budget is {limit:,}")
    fits = 1
    exceeds = 2
    while count(exceeds * step) <= limit:
        fits = exceeds
        exceeds *= 2
    while exceeds - fits > 1:
        middle = (fits + exceeds) // 2
        if count(middle * step) <= limit:
            fits = middle
        else:
            exceeds = middle
    return fits * step
