"""Which road a sequence takes: each answers for the sequences it can vouch for and leaves the rest to the next."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

from seqmodels.hmm import scaled
from seqmodels.hmm.topology import forgets
from seqmodels.hmm.trellis import Forward, Posterior, Trellis

Answer = TypeVar("Answer", Forward, Posterior)
Road = Callable[[Trellis], tuple[Answer, Tensor]]  # the answer, and (n,) the sequences it does not hold for
HARDLY = 1e-12  # probability of a transition that no margin of frames makes up for


def travel(
    trellis: Trellis, run: Road[Answer], exact: Callable[[Trellis], Answer], *, exact_is_quick: bool = False
) -> Answer:
    """``run`` as the trellis is cut and in its precision, then in wider margins, in float64, uncut, and at last ``exact``.

    Where pieces fail and the transitions say that others would, for parts of the chain hardly lead to one another, it goes on uncut; or,
    if ``exact`` is about as quick as that, with ``exact``.
    Of chains side by side each mends its own failures alone.
    """
    answer, failed = run(trellis)
    if failed.any():
        for chain, own, lost in zip(trellis.chains, answer.chains, torch.atleast_2d(failed), strict=True):
            if lost.any():
                _mend(chain, own, lost.nonzero()[:, 0], run, exact, exact_is_quick)
    return answer


def _mend(
    trellis: Trellis,
    answer: Answer,
    sequences: Tensor,
    run: Road[Answer],
    exact: Callable[[Trellis], Answer],
    exact_is_quick: bool,
) -> None:
    """Put the answer of the next road in place of what this one could not vouch for."""
    whole, rows = trellis.take(sequences)
    following = _next(trellis, whole, exact_is_quick)
    if following is None:
        answer.patch(rows, sequences, exact(whole))
    else:
        again, places = following
        answer.patch(rows[places], sequences, travel(again, run, exact, exact_is_quick=exact_is_quick))


def _next(tried: Trellis, whole: Trellis, exact_is_quick: bool) -> tuple[Trellis, Tensor] | None:
    """How to try some sequences again, and their rows in ``whole``; None where scaling has no more to offer."""
    arcs = tried.transition
    if not tried.cutting.is_whole and forgets(arcs > 0) and not forgets(arcs > HARDLY):
        if exact_is_quick:
            return None
        return whole.double(), torch.arange(whole.packing.n_frames, device=whole.densities.device)
    if not tried.cutting.is_whole:
        wide, rows = whole.cut(scaled.WIDE)
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
    xi = scaled.expected_transitions(trellis, ran.alpha, ahead, failed)
    everyone = torch.arange(cutting.n_sequences, device=failed.device)
    edges = (gamma[..., rows, :] for rows in (cutting.first, cutting.last))
    held = (edge.masked_fill_(failed.unsqueeze(-1), 0.0) for edge in edges)
    first, last = (trellis.weighted(edge, everyone).sum(-2, dtype=torch.float64) for edge in held)
    return Posterior(cutting.totals(ran.steps) + ran.ends, gamma, xi, first, last), failed
