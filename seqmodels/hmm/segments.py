"""Long sequences cut into overlapping windows that run side by side; the chain forgets, and whether it did is checked.

A window has a margin on each side of the frames it answers for. Its messages start flat at the margins' outer edges and
have converged at the inner ones if they equal the neighbours' there. Errors do not grow from there: positive maps do not
expand the ratios of forward messages, nor stochastic ones (backward, over gamma) differences.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from seqmodels.hmm.packing import Packing
from seqmodels.hmm.trellis import Trellis

MARGIN = {torch.float32: 128, torch.float64: 192}  # frames
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}  # of forward messages, relative; of gamma, absolute
OVERHEAD = 100  # a time step costs about as much as this many frames


@dataclass(frozen=True)
class Windows:
    """Windows as the sequences of a trellis of their own.

    Attributes:
        trellis: the windows, those of one sequence next to each other, in order.
        owner: (w,) the sequence of each.
        source: (N,) for each row of the original trellis, the row of the window that answers for it.
        before: (b, 2) pairs of window rows, one frame seen from two windows, just before the second one's own frames.
        after: (b, 2) the same just after the first one's own frames.
        closing: (n,) the last window of each sequence.
        follower: (b,) the second window of each pair, its neighbour being the one before it.
    """

    trellis: Trellis
    owner: Tensor
    source: Tensor
    before: Tensor
    after: Tensor
    closing: Tensor
    follower: Tensor

    @property
    def answering(self) -> Tensor:
        """Of all rows of windows, True for those outside the margins."""
        core = torch.zeros(self.trellis.packing.n_frames, dtype=torch.bool, device=self.source.device)
        return core.index_fill_(0, self.source, True)

    def unforgotten(self, alpha: Tensor) -> Tensor:
        """(w,) windows whose forward messages did not converge to their neighbour's, or the other way round."""
        here, there = alpha[self.before[:, 1]], alpha[self.before[:, 0]]
        close = (here - there).abs() <= TOLERANCE[alpha.dtype] * torch.maximum(here, there)
        return self._flag(~close.all(1))

    def unsettled(self, gamma: Tensor) -> Tensor:
        """(w,) windows whose smoothed beliefs did not converge."""
        difference = (gamma[self.after[:, 0]] - gamma[self.after[:, 1]]).abs().sum(1)
        return self._flag(~(difference <= TOLERANCE[gamma.dtype]))

    def sequences(self, windows: Tensor, n: int) -> Tensor:
        """(n,) the sequences any of whose windows are flagged in ``windows`` (w,)."""
        flagged = torch.zeros(n, dtype=torch.bool, device=windows.device)
        flagged[self.owner[windows]] = True
        return flagged

    def _flag(self, boundaries: Tensor) -> Tensor:
        flagged = torch.zeros_like(self.owner, dtype=torch.bool)
        flagged[self.follower[boundaries]] = True
        return flagged


def cut(trellis: Trellis, reach: int = 1) -> Windows | None:
    """The windows of a trellis, with margins ``reach`` times the usual, or None where cutting does not pay."""
    size = window_size(trellis, reach)
    return None if size is None else windows(trellis, size, reach * MARGIN[trellis.log_b.dtype])


def window_size(trellis: Trellis, reach: int = 1) -> int | None:
    """The frames a window should answer for, or None where windows would not at least halve the time."""
    margin = reach * MARGIN[trellis.log_b.dtype]
    frames, longest = trellis.packing.n_frames, len(trellis.packing.blocks)
    # Minimises (size + 2 margin) OVERHEAD + frames (1 + 2 margin / size), the cost of windows of this size.
    size = max(2 * margin, int(math.sqrt(2 * margin * frames / OVERHEAD)))
    cost = (size + 2 * margin) * OVERHEAD + frames * (1 + 2 * margin / size)
    return size if 2 * cost < longest * OVERHEAD + frames else None


def windows(trellis: Trellis, size: int, margin: int) -> Windows:
    """Windows that answer for ``size`` frames each (the last of a sequence for fewer) and see ``margin`` more on each side."""
    assert margin <= size, "a margin must lie within the neighbouring window"
    lengths = trellis.packing.lengths
    count = (lengths + size - 1) // size
    owner = torch.repeat_interleave(count)
    first = count.cumsum(0) - count
    core = (torch.arange(len(owner), device=owner.device) - first[owner]) * size  # first frame answered for
    end = torch.minimum(core + size, lengths[owner])
    begin, stop = (core - margin).clamp(min=0), torch.minimum(end + margin, lengths[owner])
    packing = Packing.of(stop - begin, device=lengths.device)
    rows = trellis.packing.rows(owner[packing.sequence], begin[packing.sequence] + packing.time)
    initial, final = _edges(trellis, owner, core == 0, end == lengths[owner])
    seen = Trellis(initial, trellis.transition, final, trellis.log_b.index_select(0, rows), packing)
    time, sequence = trellis.packing.time, trellis.packing.sequence
    answering = first[sequence] + time // size
    source = packing.rows(answering, time - begin[answering])
    follower = (core > 0).nonzero()[:, 0]
    frame = core[follower]
    pairs = [
        torch.stack([packing.rows(w, frame + shift - begin[w]) for w in (follower - 1, follower)], 1)
        for shift in (-1, 0)
    ]
    return Windows(seen, owner, source, pairs[0], pairs[1], count.cumsum(0) - 1, follower)


def _edges(trellis: Trellis, owner: Tensor, starts: Tensor, ends: Tensor) -> tuple[Tensor, Tensor]:
    """The true ``initial`` and ``final`` at the ends of sequences, flat ones elsewhere; (w, K) each."""
    n, K = trellis.packing.n_sequences, len(trellis.transition)
    initial, final = (p.expand(n, -1)[owner] for p in (trellis.initial, trellis.final))
    return torch.where(starts[:, None], initial, 1 / K), torch.where(ends[:, None], final, 1.0)
