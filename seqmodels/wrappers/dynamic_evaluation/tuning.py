"""The fitting of dynamic evaluation to training data: statistics of gradients, the step size and the decay."""

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
from seqmodels.wrappers.dynamic_evaluation.segment_gradients import FlatWeights, SegmentReader, clip_factor, length

LONGEST_SEGMENT, SHORTEST_SEGMENT = 256, 8  # steps of segment="auto"
LONGEST_IN_WINDOWS = 128  # the longest for networks with a context, which read a segment's windows side by side
SEGMENTS_PER_SEQUENCE = 4  # number of segments in a training sequence of mean length, within these limits
SEGMENTS_FOR_NORM, SEGMENTS_FOR_RMS = 16, 96  # number of training segments whose gradients are taken
NORMS = 2.0  # longest gradient, as a multiple of the median length
FIRST_RATE, RATE_FACTOR = 1e-3, 3.0
RATES = 5  # largest number of learning rates tried in either direction
DECAYS = (0.001, 0.003, 0.01, 0.03, 0.1)
STANDARD_ERRORS = 2.0  # number of them by which the held-out gain must exceed zero

# Takes learning rate and decay; returns the gain of each held-out segment over the fitted weights, in nats.
Gains = Callable[[float, float], np.ndarray]


@dataclass(frozen=True)
class GradientStatistics:
    """Statistics of gradients of segments (runs of steps) at the fitted weights, by which updates are scaled.

    Attributes:
        rms: root mean square of the gradient of each of P weights, ``(P,)``.
        max_norm: norm to which longer gradients are scaled down.
    """

    rms: Tensor
    max_norm: float


def segment_length(examples: Sequence[Example], context: int | None) -> int:
    """Return the length of a segment in steps for ``segment="auto"``: a quarter of the mean length of the sequences.

    It is at least 8 and at most 256, or 128 for a network with a limited context.

    Args:
        examples: encoded training sequences.
        context: number of steps that the network reads at once; None if there is no limit.
    """
    mean = np.mean([len(example.values) for example in examples])
    longest = LONGEST_SEGMENT if context is None else LONGEST_IN_WINDOWS
    return int(np.clip(mean // SEGMENTS_PER_SEQUENCE, SHORTEST_SEGMENT, longest))


def gradient_statistics(reader: SegmentReader, weights: FlatWeights, rows: Sequence[Row]) -> GradientStatistics:
    """Return root mean squares and the largest norm of the gradients of the first segments of training sequences.

    All are first clipped to twice the median norm, because one much longer than the others, as at a first step that
    training met once, would otherwise dominate.

    Args:
        reader: reader that cuts sequences into segments and computes their gradients.
        weights: network with the fitted weights.
        rows: the sequences.
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
    """Return two lists: sequences to measure gradients on, and sequences to choose learning rates on.

    The second are the validation part or, without one, the end of the training part: about a tenth and at most
    ``MAX_HELD_OUT`` steps, the last ones of several sequences or the end of a single one.

    Args:
        train: encoded training sequences.
        validation: encoded sequences for validation; empty if there are none.
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
    """Return as many of the first sequences as have ``MAX_HELD_OUT`` steps together; the last one may be cut.

    Each is without its past, the steps that are read but not scored.
    """
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
    """Return the learning rate and the decay that improve the log-probability of held-out steps most.

    Learning rates are tried by factors of three, up and down from 0.001 for as long as they gain, and then decays. If
    the gain is not above zero by two standard errors over the segments, the chosen learning rate is 0, which gives the
    static model.

    Args:
        gains: function from a learning rate and a decay to the gain of each held-out segment (run of steps) over the
            static model, in nats.
        lr: learning rate to keep; None means that it is chosen.
        decay: decay to keep; None means that it is chosen.
    """
    if lr is not None and decay is not None:
        return lr, decay
    known = cache(gains)

    def total(lr: float, decay: float) -> float:
        """Return the sum of the gains, or -inf if it is not finite."""
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
    """Return True if the mean gain of held-out segments is above zero by more than two standard errors.

    Args:
        gains: gain of each of n segments (runs of steps), ``(n,)``; one that is not finite gives False.
    """
    n = len(gains)
    if n < 2 or not np.isfinite(gains).all():
        return False
    return bool(gains.mean() > STANDARD_ERRORS * gains.std(ddof=1) / math.sqrt(n))
