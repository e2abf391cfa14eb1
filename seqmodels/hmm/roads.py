"""Which road a sequence takes: each answers for the sequences it can vouch for and leaves the rest to the next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from seqmodels.hmm import scaled
from seqmodels.hmm.packing import Packing
from seqmodels.hmm.segments import Windows, cut, window_size
from seqmodels.hmm.trellis import Forward, Posterior, Trellis

Answer = TypeVar("Answer", Forward, Posterior)
Road = Callable[[Trellis], tuple[Answer, Tensor]]  # the answer, and (n,) the sequences it does not hold for
Scaled = Callable[[Trellis, Windows | None], tuple[Answer, Tensor]]
WIDE = 16  # times the usual margins, for a chain that is slow to forget


def travel(trellis: Trellis, run: Scaled[Answer], exact: Callable[[Trellis], Answer]) -> Answer:
    """``run`` in the precision of ``log_b``, then in float64, each in windows where that pays, and at last ``exact``."""

    def whole(part: Trellis) -> tuple[Answer, Tensor]:
        return run(part, None)

    def in_windows(part: Trellis) -> tuple[Answer, Tensor]:
        return run(part, cut(part))

    def in_wide_windows(part: Trellis) -> tuple[Answer, Tensor]:
        return run(part, cut(part, reach=WIDE))

    def scaled_road(part: Trellis) -> tuple[Answer, Tensor]:
        if window_size(part) is None:
            return whole(part)
        # As slow in float32, from end to end, but less exact: that is left to float64.
        ways: list[Road[Answer]] = [in_windows, in_wide_windows]
        if part.log_b.dtype == torch.float64:
            ways.append(whole)
        return _first_to_vouch(part, ways)

    def double_road(part: Trellis) -> tuple[Answer, Tensor]:
        return scaled_road(part.double())

    def exact_road(part: Trellis) -> tuple[Answer, Tensor]:
        return exact(part), torch.zeros_like(part.packing.lengths, dtype=torch.bool)

    roads: list[Road[Answer]] = [scaled_road, double_road, exact_road]
    if trellis.log_b.dtype == torch.float64:
        roads.remove(double_road)
    return _first_to_vouch(trellis, roads)[0]


def _first_to_vouch(trellis: Trellis, ways: Sequence[Road[Answer]]) -> tuple[Answer, Tensor]:
    answer, failed = ways[0](trellis)
    if len(ways) > 1 and failed.any():
        sequences = failed.nonzero()[:, 0]
        part, rows = trellis.take(sequences)
        again, still = _first_to_vouch(part, ways[1:])
        answer.patch(rows, sequences, again)
        failed[sequences] = still
    return answer, failed


def scaled_forward(trellis: Trellis, windows: Windows | None) -> tuple[Forward, Tensor]:
    """The scaled forward pass, from end to end or in windows."""
    if windows is None:
        ran = scaled.forward(trellis)
        return Forward(ran.steps, ran.ends, ran.alpha), ran.failed
    ran = scaled.forward(windows.trellis)
    failed = windows.sequences(ran.failed | windows.unforgotten(ran.alpha), trellis.packing.n_sequences)
    return Forward(
        ran.steps[windows.source], ran.ends[windows.closing], ran.alpha.index_select(0, windows.source)
    ), failed


def scaled_posterior(trellis: Trellis, windows: Windows | None) -> tuple[Posterior, Tensor]:
    """The scaled E-step, from end to end or in windows; the sequences it fails are left out of the sums."""
    packing = trellis.packing
    if windows is None:
        ran = scaled.forward(trellis)
        gamma, ahead, failed = scaled.backward(trellis, ran)
        counted = (~failed)[packing.sequence]
        xi = scaled.expected_transitions(trellis, ran.alpha, ahead, counted)
        return _summed(packing, ran.steps, ran.ends, gamma, xi, failed), failed
    ran = scaled.forward(windows.trellis)
    seen, ahead, astray = scaled.backward(windows.trellis, ran)
    astray |= windows.unforgotten(ran.alpha) | windows.unsettled(seen)
    failed = windows.sequences(astray, packing.n_sequences)
    counted = windows.answering & (~failed)[windows.owner][windows.trellis.packing.sequence]
    xi = scaled.expected_transitions(windows.trellis, ran.alpha, ahead, counted)
    gamma, steps = seen.index_select(0, windows.source), ran.steps[windows.source]
    return _summed(packing, steps, ran.ends[windows.closing], gamma, xi, failed), failed


def _summed(packing: Packing, steps: Tensor, ends: Tensor, gamma: Tensor, xi: Tensor, failed: Tensor) -> Posterior:
    first, last = (gamma[rows[~failed]].sum(0, dtype=torch.float64) for rows in (packing.rank, packing.last))
    return Posterior(packing.totals(steps) + ends, gamma, xi, first, last)
