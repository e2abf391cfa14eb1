"""A search for the largest model within a budget of parameters."""

from __future__ import annotations

from collections.abc import Callable


def largest_size(count: Callable[[int], int], limit: int, step: int, name: str) -> int:
    """Return the largest size, a multiple of ``step``, for which ``count(size)`` is at most ``limit``.

    Args:
        count: function from a size to a number of parameters, which grows with the size.
        limit: largest number of parameters allowed.
        step: the size is a multiple of this number.
        name: name of the hyperparameter that sets the size, for the error message.

    Raises:
        ValueError: if a model of size ``step`` already has more parameters.

    >>> largest_size(lambda k: k * k, 90, 1, "n_states")
    9
    """
    if count(step) > limit:
        raise ValueError(
            f"the smallest model, with {name}={step}, has {count(step):,} parameters already; the budget is {limit:,}"
        )
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
