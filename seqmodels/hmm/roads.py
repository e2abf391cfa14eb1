"""Which road a sequence takes: each answers for the sequences it can vouch for and leaves the rest to the next."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

from seqmodels.hmm import scaled
from seqmodels.hmm.trellis import Forward, Posterior, Trellis

Answer = TypeVar("Answer", Forward, Posterior)
Road = Callable[[Trellis], tuple[Answer, Tensor]]  # the answer, and (n,) the sequences it does not hold for
WIDE = 16  # times the usual margins, for a chain that is slow to forget


def travel(trellis: Trellis, run: Road[Answer], exact: Callable[[Trellis], Answer]) -> Answer:
    """``run`` as the trellis is cut and in its precision, then in wider margins, in float64, uncut, and at last ``exact``."""
    answer, failed = run(trellis)
    if failed.any():
        sequences = failed.nonzero()[:, 0]
        whole, rows = trellis.take(sequences)
        following = _next(trellis, whole)
        if following is None:
            answer.patch(rows, sequences, exact(whole))
        else:
            again, places = following
            answer.patch(rows[places], sequences, travel(again, run, exact))
    return answer


def _next(tried: Trellis, whole: Trellis) -> tuple[Trellis, Tensor] | None:
    """How to try some sequences again, and their rows in ``whole``; None where scaling has no more to offer."""
    if not tried.cutting.is_whole:
        wide, rows = whole.cut(WIDE)
        if wide.cutting.margin > tried.cutting.margin:
            return wide, rows
    if tried.densities.dtype == torch.float32:
        return whole.double().cut()
    if not tried.cutting.is_whole:
        return whole, torch.arange(whole.packing.n_frames, device=whole.densities.device)
    return None


def scaled_forward(trellis: Trellis) -> tuple[Forward, Tensor]:
    """The scaled forward pass."""
    ran = scaled.forward(trellis)
    return Forward(ran.steps, ran.ends, ran.alpha), ran.failed


def scaled_posterior(trellis: Trellis) -> tuple[Posterior, Tensor]:
    """The scaled E-step; the sequences it fails are left out of the sums."""
    ran, cutting = scaled.forward(trellis, guarded=False), trellis.cutting
    gamma, ahead, failed = scaled.backward(trellis, ran)
    trellis.weighted(ahead, cutting.sequence)
    xi, held = scaled.expected_transitions(trellis, ran.alpha, ahead, failed), (~failed).nonzero()[:, 0]
    edges = (cutting.first[held], cutting.last[held])
    first, last = (trellis.weighted(gamma[rows], held).sum(0, dtype=torch.float64) for rows in edges)
    return Posterior(cutting.totals(ran.steps) + ran.ends, gamma, xi, first, last), failed
