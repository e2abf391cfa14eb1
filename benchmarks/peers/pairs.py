"""Pairs to translate, for timing: each target is its source with the symbols renamed."""

from __future__ import annotations

import numpy as np

N_SYMBOLS, LENGTH, BATCH, WIDTH = 4_000, 30, 32, 256
LAYERS, HEADS = 3, 4  # of the Transformers, on either side


def pairs(n: int = 20 * BATCH) -> tuple[np.ndarray, np.ndarray]:
    """Sources and targets (n, LENGTH); every symbol from 0 to ``N_SYMBOLS - 1`` is there."""
    rng = np.random.default_rng(0)
    sources = np.concatenate([rng.permutation(N_SYMBOLS), rng.integers(0, N_SYMBOLS, n * LENGTH - N_SYMBOLS)])
    sources = rng.permutation(sources).reshape(n, LENGTH)
    return sources, rng.permutation(N_SYMBOLS)[sources]
