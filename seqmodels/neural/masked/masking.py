"""What a bidirectional model is asked to predict: some symbols are hidden, and something else stands in their place."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

MaskingObjective = Literal["tokens", "spans"]
MASK, BEGIN, END, N_MARKS = 0, 1, 2, 3  # what a model reads besides its V symbols, numbered from V on


@dataclass(frozen=True)
class Masking:
    """Hide ``fraction`` of the symbols of a sequence (rounded, at least one), anew at every call.

    ``"tokens"`` hides each for itself (BERT: Devlin et al. 2019); ``"spans"`` hides contiguous spans of geometric length
    from uniform starts until the fraction is spent (SpanBERT: Joshi et al. 2020, without its longest length of ten): what
    spans cover twice is hidden once, and the last is cut to what is left. Each symbol (each span as a whole) is
    replaced by the mask, by random symbols, or kept; it is predicted all the same.

    Args:
        objective: ``"tokens"`` or ``"spans"``.
        fraction: of the symbols that is hidden, above 0 and at most 1.
        span_mean: mean length of a span, symbols.
        mask_share, random_share, keep_share: what becomes of the hidden ones; they sum to 1.

    Raises:
        ValueError: for a value that cannot be.
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

    def hide(self, steps: np.ndarray, n_symbols: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """What the model reads instead of ``steps (T,)``, and which of them it must predict ``(T,)``; marks never are.

        Args:
            steps: symbols below ``n_symbols``, and marks from there on.
            n_symbols: V.
            rng: of the choice.
        """
        group = np.full(len(steps), -1)
        symbols = np.flatnonzero(steps < n_symbols)
        group[symbols] = self.choose(len(symbols), rng)
        hidden = group >= 0
        fate = rng.random(len(steps) + 1)[group]  # one for each group; the last, unused, is for what is not hidden
        masked = hidden & (fate < self.mask_share)
        replaced = hidden & ~masked & (fate < self.mask_share + self.random_share)
        drawn = rng.integers(n_symbols, size=len(steps))
        return np.where(masked, n_symbols + MASK, np.where(replaced, drawn, steps)), hidden

    def choose(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """``(n,)``: the number of the group that each symbol is hidden with, -1 where it is not hidden."""
        count = min(n, max(1, round(self.fraction * n)))
        return _tokens(n, count, rng) if self.objective == "tokens" else _spans(n, count, self.span_mean, rng)


def _tokens(n: int, count: int, rng: np.random.Generator) -> np.ndarray:
    group = np.full(n, -1)
    group[rng.permutation(n)[:count]] = np.arange(count)
    return group


def _spans(n: int, count: int, mean: float, rng: np.random.Generator) -> np.ndarray:
    group, n_spans = np.full(n, -1), 0
    while (left := count - int(np.count_nonzero(group >= 0))) > 0:
        length: int = min(int(rng.geometric(1 / mean)), left)
        start = int(rng.integers(n - length + 1))
        span = group[start : start + length]
        span[span < 0] = n_spans
        n_spans = int(group.max()) + 1  # a span that fell on hidden symbols only leaves its number free
    return group


def bracket(values: np.ndarray, n_symbols: int) -> np.ndarray:
    """``(T,)`` symbols between the marks of a sequence's beginning and its end: ``(T + 2,)``."""
    return np.concatenate([[n_symbols + BEGIN], values, [n_symbols + END]])
