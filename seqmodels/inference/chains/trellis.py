"""``Trellis``: a chain and its densities, ``p(z, x) = initial[z_1] Π transition[z_t, z_t+1] Π b[t, z_t] final[z_T]``.

It is the argument of every algorithm here; ``Filtered`` and ``Posterior`` are the results of forward pass and
forward-backward.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from seqmodels.inference.chains.densities import Densities, LogDensities
from seqmodels.inference.chains.packing import Packing
from seqmodels.inference.chains.scratch import Scratch
from seqmodels.inference.chains.segments import FEW_STATES, Segments, runs_sequentially

Lengths = Sequence[int] | np.ndarray | Tensor  # frames of each sequence


@dataclass(frozen=True)
class Trellis:
    """One problem of inference, n sequences and K states; with a leading axis R, of R chains, for forward-backward.

    Attributes:
        initial: (..., 1, K) or (..., n, K) float64, one row a sequence, in the caller's order.
        transition: (..., K, K) float64.
        final: (..., 1, K) or (..., n, K) float64; ones where the end is no event.
        densities: (..., N, K), by the rows of ``segments.packing``.
        segments: how the N rows make up the n sequences.
        scratch: memory that the passes write on; of two results from one scratch only the later is valid.
        weights: (n,) float64, what each sequence counts in sums over sequences; None: one.
        log_transitions: (N, K, K) float64, of each row the logarithms of the transitions into it, where they differ
            from step to step (those of first frames are not read); None: they are ``transition`` at all steps. Of one
            chain and uncut sequences.
    """

    initial: Tensor
    transition: Tensor
    final: Tensor
    densities: Densities
    segments: Segments
    scratch: Scratch = field(default_factory=Scratch)
    weights: Tensor | None = None
    log_transitions: Tensor | None = None

    @classmethod
    def of(
        cls,
        initial: Tensor,
        transition: Tensor,
        densities: Densities,
        segments: Segments,
        final: Tensor | None = None,
        scratch: Scratch | None = None,
    ) -> Trellis:
        """Check shapes, and bring the parameters to float64 on the device of the densities."""
        *lead, _, K = transition.shape
        n, N = segments.n_sequences, segments.packing.n_frames
        if densities.dtype not in (torch.float32, torch.float64):
            raise ValueError(f"log_b is {densities.dtype}; pass float32 or float64")
        if densities.shape != (*lead, N, K):
            raise ValueError(f"log_b has shape {tuple(densities.shape)}, expected {(*lead, N, K)}: frames, states")
        if initial.shape not in ((*lead, K), (*lead, n, K)):
            raise ValueError(f"initial has shape {tuple(initial.shape)}, expected {(*lead, K)} or {(*lead, n, K)}")
        if final is not None and final.shape != (*lead, K):
            raise ValueError(f"final has shape {tuple(final.shape)}, expected {(*lead, K)}")
        ends = torch.ones(*lead, K) if final is None else final
        pi, a, ends = (p.detach().to(densities.device, torch.float64) for p in (initial, transition, ends))
        rows = (*lead, -1, K)
        return cls(pi.reshape(rows), a, ends.reshape(rows), densities, segments, scratch or Scratch())

    @classmethod
    def of_concatenated(
        cls,
        initial: Tensor,
        transition: Tensor,
        log_b: Tensor,
        final: Tensor | None = None,
        lengths: Lengths | None = None,
    ) -> Trellis:
        """The problem of sequences (N, K), one after the other, of ``lengths`` (None: one), in the fastest segments."""
        segments = segments_of_concatenated(transition, log_b, lengths)
        return cls.of(initial, transition, LogDensities(segments.packing.pack(log_b.detach())), segments, final)

    @property
    def packing(self) -> Packing:
        """How the rows of the segments are packed."""
        return self.segments.packing

    @property
    def is_sequential(self) -> bool:
        """Whether the passes are compiled loops over one sequence after the other (``sequential``)."""
        n_steps, device = len(self.packing.batch_sizes), self.densities.device
        fits = self.segments.is_whole and self.log_transitions is None
        return fits and runs_sequentially(self.transition.shape[-1], self.packing.n_frames, n_steps, device)

    def starts(self, dtype: torch.dtype) -> Tensor:
        """(..., w, K) by rank: ``initial`` where a segment is the first of its sequence, flat elsewhere."""
        starts = self._by_segment(self.initial.to(dtype))
        return starts.index_fill_(-2, self.segments.neighbours[1], 1 / self.transition.shape[-1])

    def ends(self, dtype: torch.dtype) -> Tensor:
        """(..., w, K) by rank: ``final`` where a segment is the last of its sequence, ones elsewhere."""
        return self._by_segment(self.final.to(dtype)).index_fill_(-2, self.segments.neighbours[0], 1.0)

    def _by_segment(self, rows: Tensor) -> Tensor:
        """(..., 1, K) or (..., n, K) -> (..., w, K), by rank."""
        *lead, _, K = rows.shape
        return rows.expand(*lead, self.segments.n_sequences, K)[..., self.owner, :]

    @property
    def owner(self) -> Tensor:
        """(w,) by rank: the sequence of each segment."""
        return self.segments.owner[self.packing.order]

    @property
    def chains(self) -> list[Trellis]:
        """The problem of each chain; of one, a list of this one."""
        if self.transition.dim() == 2:
            return [self]
        each = zip(self.initial, self.transition, self.final, strict=True)
        return [
            replace(self, initial=initial, transition=transition, final=final, densities=self.densities.chain(i))
            for i, (initial, transition, final) in enumerate(each)
        ]

    def weighted(self, rows: Tensor, sequence: Tensor) -> Tensor:
        """(..., m, K) rows that belong to sequences (m,), each times the sequence's weight, in place."""
        return rows if self.weights is None else rows.mul_(self.weights.to(rows.dtype)[sequence, None])

    def double(self) -> Trellis:
        """The same problem in float64."""
        return replace(self, densities=self.densities.double(), scratch=Scratch())

    def take(self, sequences: Tensor) -> tuple[Trellis, Tensor]:
        """The problem of these sequences alone, uncut, and the row here of each of its rows."""
        return self._rearranged(sequences, Segments.whole(self.segments.lengths[sequences], self.densities.device))

    def cut(self, segments: Segments) -> tuple[Trellis, Tensor]:
        """The same problem in other segments, and the row here of each of its rows."""
        if segments.is_whole and self.segments.is_whole:
            return self, torch.arange(self.packing.n_frames, device=self.densities.device)
        return self._rearranged(torch.arange(self.segments.n_sequences, device=self.densities.device), segments)

    def _rearranged(self, sequences: Tensor, segments: Segments) -> tuple[Trellis, Tensor]:
        rows = self.segments.rows(sequences[segments.sequence], segments.time)
        initial = self.initial if len(self.initial) == 1 else self.initial[sequences]
        final = self.final if len(self.final) == 1 else self.final[sequences]
        weights = None if self.weights is None else self.weights[sequences]
        log_a = None if self.log_transitions is None else self.log_transitions[rows]
        densities = self.densities.take(rows)
        return Trellis(initial, self.transition, final, densities, segments, Scratch(), weights, log_a), rows


def segments_of_concatenated(transition: Tensor, log_b: Tensor, lengths: Lengths | None) -> Segments:
    """The fastest segments of sequences (N, K), one after the other; ``ValueError`` for shapes that do not fit."""
    n_states = transition.shape[-1]
    frames = torch.as_tensor([len(log_b)] if lengths is None else lengths, device="cpu")
    if frames.numel() == 0:
        raise ValueError("there are no sequences; pass the frames of at least one")
    if int(frames.min()) < 1:
        raise ValueError(f"sequence {int(frames.argmin())} is empty; leave it out")
    expected = (int(frames.sum()), n_states)
    if log_b.dtype not in (torch.float32, torch.float64):
        raise ValueError(f"log_b is {log_b.dtype}; pass float32 or float64")
    if log_b.shape != expected:
        raise ValueError(f"log_b has shape {tuple(log_b.shape)}, expected {expected}: frames of all sequences, states")
    # Sequences that are one after the other already are so for loops; to pack segments of them would take longer.
    if n_states <= FEW_STATES and runs_sequentially(n_states, len(log_b), int(frames.max()), log_b.device):
        return Segments.whole(frames, log_b.device)
    return Segments.fastest(frames, n_states, log_b.dtype, log_b.device)


@dataclass(frozen=True)
class Filtered:
    """What the forward pass finds; N rows, packed by a trellis's rows or concatenated in the caller's order.

    Attributes:
        alpha: (N, K) p(z_t | x_<=t), rows summing to one (zeros once the sequence is impossible).
        steps: (N,) float64: log p(x_t | x_<t) in nats; -inf from the first impossible frame on.
        ends: (n,) float64: log of the final mass under the last belief, log p(end | x); None where the end is no event.
    """

    alpha: Tensor
    steps: Tensor
    ends: Tensor | None

    @property
    def chains(self) -> list[Filtered]:
        """A list of this one: the forward pass alone is never run on several chains."""
        return [self]

    def replace_sequences(self, rows: Tensor, sequences: Tensor, recomputed: Filtered) -> None:
        """Put the result for some sequences, of these rows, in place of what is here."""
        self.steps[rows] = recomputed.steps
        self.alpha[rows] = recomputed.alpha.to(self.alpha.dtype)
        if self.ends is not None and recomputed.ends is not None:
            self.ends[sequences] = recomputed.ends


@dataclass(frozen=True)
class Posterior:
    """What forward-backward finds, given all of each sequence; with a leading axis, of each of several chains.

    N rows, packed by a trellis's rows or concatenated in the caller's order.

    Attributes:
        log_prob: (..., n) float64 nats, the end included where there is a ``final``.
        gamma: (..., N, K), p(z_t | x); rows sum to one.
        xi: (..., K, K) float64, expected transitions i -> j, summed over all frames and sequences, by their weights.
        initial: (..., K) float64, expected starts in each state (the first frames' gamma), summed likewise.
        final: (..., K) float64, expected ends in each state (the last frames' gamma), summed likewise.
        transitions: (N, K, K) float64, p(z_t-1 = i, z_t = j | x) of each row, zeros of first frames; None where
            transitions are the same at all steps.
    """

    log_prob: Tensor
    gamma: Tensor
    xi: Tensor
    initial: Tensor
    final: Tensor
    transitions: Tensor | None = None

    @property
    def chains(self) -> list[Posterior]:
        """Views of the result for each chain; of one, a list of this one."""
        if self.xi.dim() == 2:
            return [self]
        parts = (self.log_prob, self.gamma, self.xi, self.initial, self.final)
        return [Posterior(*each) for each in zip(*parts, strict=True)]

    def replace_sequences(self, rows: Tensor, sequences: Tensor, recomputed: Posterior) -> None:
        """Put the result for some sequences, of these rows and not in the sums yet, in place of what is here."""
        self.log_prob[sequences] = recomputed.log_prob
        self.gamma[rows] = recomputed.gamma.to(self.gamma.dtype)
        self.xi.add_(recomputed.xi)
        self.initial.add_(recomputed.initial)
        self.final.add_(recomputed.final)
