"""What dynamic evaluation learns from the training part: statistics of gradients, and how far to step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from seqmodels.encodings.examples import Example
from seqmodels.encodings.raw_data import MAX_HELD_OUT
from seqmodels.neural.batches import Row
from seqmodels.wrappers.dynamic.segments import FlatWeights, SegmentReader, clip_factor, length

LONGEST_SEGMENT, SHORTEST_SEGMENT = 256, 8  # steps, of segment="auto",
LONGEST_IN_WINDOWS = 128  # of networks with a context, which read the windows of a segment side by side,
SEGMENTS_PER_SEQUENCE = 4  # and how many a sequence of the mean length then has, if it has fewer steps than that
SEGMENTS_FOR_NORM, SEGMENTS_FOR_RMS = 16, 96  # of the training part, whose gradients are taken
NORMS = 2.0  # how many times as long as the median a gradient may be
FIRST_RATE, RATE_FACTOR = 1e-3, 3.0
RATES = 5  # at most in either direction
DECAYS = (0.001, 0.003, 0.01, 0.03, 0.1)
STANDARD_ERRORS = 2.0  # by how many of them the gain on held-out steps must be above zero

# Of learning rate and decay: the gain in nats of each held-out segment over the fitted weights.
Gains = Callable[[float, float], np.ndarray]


@dataclass(frozen=True)
class GradientStatistics:
    """Of the gradients of segments, with the fitted weights.

    Attributes:
        rms: (P,) root mean squares.
        max_norm: the length of the longest gradient that is followed as it is.
    """

    rms: Tensor
    max_norm: float


def segment_length(examples: Sequence[Example], context: int | None) -> int:
    """Of ``segment="auto"``: 256 steps (with a context 128), and a quarter of the mean length where that is less."""
    mean = np.mean([len(example.values) for example in examples])
    longest = LONGEST_SEGMENT if context is None else LONGEST_IN_WINDOWS
    return int(np.clip(mean // SEGMENTS_PER_SEQUENCE, SHORTEST_SEGMENT, longest))


def gradient_statistics(reader: SegmentReader, weights: FlatWeights, rows: Sequence[Row]) -> GradientStatistics:
    """Of the first segments of the rows.

    A gradient much longer than the others, as at a first step that training met once, would otherwise be all that root
    mean squares tell of, so all are clipped to twice the median length first.
    """

    def gradients(n: int) -> Iterator[Tensor]:
        every = (each.gradient for row in rows for each in reader.segments(weights, row, last=True))
        return islice((gradient for gradient in every if gradient is not None), n)

    norms = [float(length(g)) for g in gradients(SEGMENTS_FOR_NORM)]
    max_norm = NORMS * float(np.median(norms)) if norms else 0.0
    total, n = torch.zeros_like(weights.vector), 0
    for gradient in gradients(SEGMENTS_FOR_RMS):
        total.addcmul_(gradient, gradient, value=clip_factor(gradient, max_norm) ** 2)
        n += 1
    return GradientStatistics((total / max(n, 1)).sqrt(), max_norm)


def held_out_part(train: list[Example], validation: list[Example]) -> tuple[list[Example], list[Example]]:
    """What statistics are taken from, and what rates are chosen on: the validation part, or the end of training.

    About a tenth, of at most ``MAX_HELD_OUT`` steps: of several examples the last ones, of one its end.
    """
    if validation:
        return train, at_most(validation)
    if len(train) > 1:
        n = max(1, len(train) // 10)
        return train[:-n], at_most(train[-n:])
    (example,) = train
    n_steps = len(example.values)
    at = n_steps - max(1, min(MAX_HELD_OUT, n_steps // 10))
    if at < 1:
        return train, train
    return [replace(example, values=example.values[:at])], [replace(example, values=example.values[at:])]


def at_most(examples: list[Example]) -> list[Example]:
    """The first examples, of ``MAX_HELD_OUT`` steps together."""
    kept: list[Example] = []
    n_steps = 0
    for example in examples:
        if n_steps >= MAX_HELD_OUT:
            break
        values = example.alone().values[: MAX_HELD_OUT - n_steps]
        kept.append(replace(example, values=values, n_past=0))
        n_steps += len(values)
    return kept


def choose_rates(gains: Gains, lr: float | None, decay: float | None) -> tuple[float, float]:
    """The learning rate and the decay that gain most on held-out steps; None: to be chosen.

    Rates are tried by factors of three, up and down from 0.001 for as long as they gain; then decays. Where what is
    gained is not above two standard errors over the segments, the chosen rate is 0: the model stays the static one.
    """
    if lr is not None and decay is not None:
        return lr, decay
    known = cache(gains)

    def total(lr: float, decay: float) -> float:
        """The sum of the gains; -inf for what is no number."""
        gained = float(known(lr, decay).sum())
        return gained if math.isfinite(gained) else -math.inf

    rate = _best_rate(lambda each: total(each, decay or 0.0)) if lr is None else lr
    best = 0.0 if decay is None else decay
    for each in DECAYS if decay is None and rate > 0 else ():
        if total(rate, each) <= total(rate, best):
            break
        best = each
    return (rate if lr is not None or is_above_zero(known(rate, best)) else 0.0), best


def _best_rate(total: Callable[[float], float]) -> float:
    best = FIRST_RATE
    for _ in range(RATES):
        if total(best * RATE_FACTOR) <= total(best):
            break
        best *= RATE_FACTOR
    for _ in range(RATES if best == FIRST_RATE else 0):
        if total(best / RATE_FACTOR) <= total(best) and total(best) > 0:
            break
        best /= RATE_FACTOR
    return best


def is_above_zero(gains: np.ndarray) -> bool:
    """Whether the mean of the gains is above zero by more than two standard errors."""
    n = len(gains)
    if n < 2 or not np.isfinite(gains).all():
        return False
    return bool(gains.mean() > STANDARD_ERRORS * gains.std(ddof=1) / math.sqrt(n))
