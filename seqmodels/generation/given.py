"""What sequences are conditioned on when they are generated: one source for all, or one for each."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

# One encoded source for all n sequences; a list of n, of equal length unless the model pads them; or none.
Given = np.ndarray | list[np.ndarray] | None


def given_each(given: Given, n: int) -> list[np.ndarray | None]:
    """The source of each of ``n`` sequences, of whatever lengths; ``ValueError`` for a list of another number."""
    if not isinstance(given, list):
        return [given] * n
    if len(given) != n:
        raise ValueError(f"{len(given)} sources for {n} sequences; pass one each")
    return [*given]


def given_rows(given: Given, n: int) -> Tensor | None:
    """``(n, S, D)`` or ``(n, S)``: the source of each of ``n`` sequences; None where there is none.

    Raises:
        ValueError: a list that has not n sources, or sources of several lengths.
    """
    if given is None:
        return None
    if not isinstance(given, list):
        return torch.as_tensor(given).expand(n, *given.shape)
    lengths = {len(source) for source in given}
    if len(given) != n or len(lengths) != 1:
        raise ValueError(
            f"{len(given)} sources of {sorted(lengths)} steps for {n} sequences; pass one each, all of one length"
        )
    return torch.as_tensor(np.stack(given))
