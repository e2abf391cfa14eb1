"""The training objective of a bidirectional model: some symbols are masked, and it predicts them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

MaskingObjective = Literal["tokens", "spans"]
MASK, BEGIN, END, N_SPECIAL = 0, 1, 2, 3  # special symbols that a model reads besides its V, numbered from V on


@dataclass(frozen=True)
class Masking:
    """Mask ``fraction`` of the symbols of a sequence (rounded, at least one), drawn anew at every call.

    ``"tokens"`` masks symbols independently (BERT: Devlin et al. 2019); ``"spans"`` masks contiguous spans of geometric
    length from uniform starts until the fraction is reached (SpanBERT: Joshi et al. 2020, without its longest length of
    ten): spans may overlap, and the last is cut to the number left. Each masked symbol (each span as a whole) is
    replaced by the mask symbol, by random symbols, or kept; it is predicted in every case.

    Args:
        objective: ``"tokens"`` or ``"spans"``.
        fraction: of the symbols that is masked, above 0 and at most 1.
        span_mean: mean length of a span, symbols.
        mask_share, random_share, keep_share: of the masked symbols, replaced by the mask symbol, by random ones, kept;
            they sum to 1.

    Raises:
        ValueError: for a value out of its range.
    """

    objective: MaskingObjective = "tokens"
    fraction: float = 0.15
    span_mean: float = 3.0
    mask_share: float = 0.8
    random_share: float = 0.1
    keep_share: float = 0.1

    def __post_init__(self) -> None:
        if self.objective not in get_args(MaskingObjective):
            raise ValueError(f'objective is {self.objective!r}; pass "tokens" or "spans"')
        if not 0 < self.fraction <= 1:
            raise ValueError(f"mask_fraction is {self.fraction}; pass a fraction above 0, at most 1")
        if not self.span_mean >= 1:
            raise ValueError(f"span_mean is {self.span_mean}; pass a mean length of at least 1 symbol")
        shares = (self.mask_share, self.random_share, self.keep_share)
        if min(shares) < 0 or not math.isclose(sum(shares), 1):
            raise ValueError(f"mask_share, random_share and keep_share are {shares}; pass three shares that sum to 1")

    def apply(self, symbols: np.ndarray, n_symbols: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Inputs ``(T,)`` of the model, and which of ``symbols (T,)`` are masked ``(T,)``; special symbols never are.

        Args:
            symbols: below ``n_symbols``, and special symbols from there on.
            n_symbols: V.
            rng: of the choice.
        """
        group = np.full(len(symbols), -1)
        maskable = np.flatnonzero(symbols < n_symbols)
        group[maskable] = self.choose(len(maskable), rng)
        masked = group >= 0
        u = rng.random(len(symbols) + 1)[group]  # one for each group; the last, unused, is for what is not masked
        replaced_by_mask = masked & (u < self.mask_share)
        replaced_at_random = masked & ~replaced_by_mask & (u < self.mask_share + self.random_share)
        random_symbols = rng.integers(n_symbols, size=len(symbols))
        inputs = np.where(replaced_by_mask, n_symbols + MASK, np.where(replaced_at_random, random_symbols, symbols))
        return inputs, masked

    def choose(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """``(n,)``: the number of the group that each symbol is masked with, -1 where it is not masked."""
        count = min(n, max(1, round(self.fraction * n)))
        return _tokens(n, count, rng) if self.objective == "tokens" else _spans(n, count, self.span_mean, rng)


def _tokens(n: int, count: int, rng: np.random.Generator) -> np.ndarray:
    group = np.full(n, -1)
    group[rng.permutation(n)[:count]] = np.arange(count)
    return group


def _spans(n: int, count: int, mean: float, rng: np.random.Generator) -> np.ndarray:
    group = np.full(n, -1)
    n_spans = 0
    while (left := count - int(np.count_nonzero(group >= 0))) > 0:
        length: int = min(int(rng.geometric(1 / mean)), left)
        start = int(rng.integers(n - length + 1))
        span = group[start : start + length]
        span[span < 0] = n_spans
        n_spans = int(group.max()) + 1  # a span that fell on masked symbols only leaves its number free
    return group


def with_boundaries(values: np.ndarray, n_symbols: int) -> np.ndarray:
    """``(T,)`` symbols between the special symbols of a sequence's beginning and end: ``(T + 2,)``."""
    return np.concatenate([[n_symbols + BEGIN], values, [n_symbols + END]])
