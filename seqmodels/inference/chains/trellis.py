"""The problem of inference in a chain, ``p(z, x) = initial[z_1] Π transition[z_t, z_t+1] Π b[t, z_t] final[z_T]``.

A ``Trellis`` is the argument of every algorithm here; ``Filtered`` and ``Posterior`` are the results of the forward
pass and of forward-backward.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from seqmodels.inference.chains.densities import Densities, LogDensities
from seqmodels.inference.chains.packing import Packing
from seqmodels.inference.chains.parallel_segments import FEW_STATES, Segments, runs_sequentially
from seqmodels.inference.chains.scratch import Scratch

Lengths = Sequence[int] | np.ndarray | Tensor  # frames of each sequence


@dataclass(frozen=True)
class Trellis:
    """A problem of inference in hidden Markov chains: n sequences of N frames, and a chain of K states.

    For forward-backward there may be R chains over the same sequences; arrays then have a leading axis R.

    Attributes:
        initial: distribution of the first state, ``(..., 1, K)`` or, one row for each sequence in the caller's order,
            ``(..., n, K)``; float64.
        transition: transition probabilities, ``(..., K, K)`` float64.
        final: probability that the sequence ends after each state, ``(..., 1, K)`` or ``(..., n, K)`` float64; ones if
            the length has no probability.
        densities: densities of the frames, ``(..., N, K)``, in the rows of ``segments.packing``.
        segments: how the N rows make up the n sequences.
        scratch: buffers that the passes reuse; a result is valid only until the next pass with the same buffers.
        weights: weight of each sequence in sums over sequences, ``(n,)`` float64; None means 1 for every sequence.
        log_transitions: log-probabilities of the transitions into each row, ``(N, K, K)`` float64, if they differ from
            step to step; first frames are not read. Only for one chain and uncut sequences. None if ``transition``
            holds at all steps.
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
        """Return a trellis after checking shapes, with the parameters in float64 on the device of the densities.

        Args:
            initial: distribution of the first state over K states, ``(..., K)``, or ``(..., n, K)`` with one row for
                each sequence.
            transition: transition probabilities, ``(..., K, K)``.
            densities: densities of the frames, ``(..., N, K)``, in the rows of ``segments.packing``.
            segments: how the N rows make up the n sequences.
            final: probability that the sequence ends after each state, ``(..., K)``; None if the length has no
                probability.
            scratch: buffers that the passes reuse; None for new ones.

        Raises:
            ValueError: If a shape does not fit, or the densities are neither float32 nor float64.
        """
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
        """Return the trellis of sequences that lie one after the other, cut into the segments that run fastest.

        Args:
            initial: distribution of the first state over K states, ``(K,)``, or ``(n, K)`` with one row for each
                sequence.
            transition: transition probabilities, ``(K, K)``.
            log_b: log-densities in nats, ``(N, K)``: the frames of all sequences, one sequence after the other.
            final: probability that the sequence ends after each state, ``(K,)``; None if the length has no probability.
            lengths: number of frames of each sequence, ``(n,)``; None means one sequence.

        Raises:
            ValueError: If there are no sequences, one is empty, or a shape or precision does not fit.
        """
        segments = segments_of_concatenated(transition, log_b, lengths)
        return cls.of(initial, transition, LogDensities(segments.packing.pack(log_b.detach())), segments, final)

    @property
    def packing(self) -> Packing:
        """The packing of the segments: which frame each of the N rows of densities and results belongs to."""
        return self.segments.packing

    @property
    def is_sequential(self) -> bool:
        """True if the passes run as compiled loops over one sequence after the other, instead of tensor operations."""
        n_steps, device = len(self.packing.batch_sizes), self.densities.device
        fits = self.segments.is_whole and self.log_transitions is None
        return fits and runs_sequentially(self.transition.shape[-1], self.packing.n_frames, n_steps, device)

    def starts(self, dtype: torch.dtype) -> Tensor:
        """Return the distribution of the first state of each of w segments, ``(..., w, K)`` by rank.

        It is ``initial`` for the first segment of each sequence and flat for the others. Ranks order segments by
        length, the longest first.
        """
        starts = self._by_segment(self.initial.to(dtype))
        return starts.index_fill_(-2, self.segments.neighbours[1], 1 / self.transition.shape[-1])

    def ends(self, dtype: torch.dtype) -> Tensor:
        """Return the backward message beta at the last frame of each of w segments, ``(..., w, K)`` by rank.

        It is ``final`` for the last segment of each sequence and ones for the others. Ranks order segments by length,
        the longest first.
        """
        return self._by_segment(self.final.to(dtype)).index_fill_(-2, self.segments.neighbours[0], 1.0)

    def _by_segment(self, rows: Tensor) -> Tensor:
        """Return the row of each segment's sequence, ``(..., w, K)`` by rank (longest segment first).

        ``rows (..., 1, K)`` or ``(..., n, K)`` has one row for all sequences or one for each.
        """
        *lead, _, K = rows.shape
        return rows.expand(*lead, self.segments.n_sequences, K)[..., self.owner, :]

    @property
    def owner(self) -> Tensor:
        """The number of the sequence that each of w segments belongs to, ``(w,)`` by rank (longest segment first)."""
        return self.segments.owner[self.packing.order]

    @property
    def chains(self) -> list[Trellis]:
        """The trellis of each chain; if there is one chain, a list of this trellis alone."""
        if self.transition.dim() == 2:
            return [self]
        each = zip(self.initial, self.transition, self.final, strict=True)
        return [
            replace(self, initial=initial, transition=transition, final=final, densities=self.densities.chain(i))
            for i, (initial, transition, final) in enumerate(each)
        ]

    def weighted(self, rows: Tensor, sequence: Tensor) -> Tensor:
        """Return ``rows (..., m, K)``, multiplied in place by the weight of the sequence that each belongs to.

        ``sequence (m,)`` is the number of each row's sequence.
        """
        return rows if self.weights is None else rows.mul_(self.weights.to(rows.dtype)[sequence, None])

    def double(self) -> Trellis:
        """Return the same trellis in float64."""
        return replace(self, densities=self.densities.double(), scratch=Scratch())

    def take(self, sequences: Tensor) -> tuple[Trellis, Tensor]:
        """Return the trellis of some of the sequences, uncut, and the index of each of its rows among the rows here.

        ``sequences`` are the numbers of the sequences.
        """
        return self._rearranged(sequences, Segments.whole(self.segments.lengths[sequences], self.densities.device))

    @property
    def whole(self) -> Trellis:
        """The same problem of inference, with sequences that are not cut into segments."""
        every = torch.arange(self.segments.n_sequences, device=self.densities.device)
        return self if self.segments.is_whole else self.take(every)[0]

    def cut(self, segments: Segments) -> tuple[Trellis, Tensor]:
        """Return this trellis cut into other segments, and the index of each of its N rows here, ``(N,)``."""
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
    """Return the segments into which sequences that lie one after the other are cut to run fastest.

    Args:
        transition: transition probabilities, ``(K, K)``.
        log_b: log-densities, ``(N, K)``.
        lengths: number of frames of each sequence, ``(n,)``; None means one sequence.

    Raises:
        ValueError: If there are no sequences, one is empty, or a shape or precision does not fit.
    """
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
    # Loops over one sequence at a time read the concatenated layout; packing segments would take longer.
    if n_states <= FEW_STATES and runs_sequentially(n_states, len(log_b), int(frames.max()), log_b.device):
        return Segments.whole(frames, log_b.device)
    return Segments.fastest(frames, n_states, log_b.dtype, log_b.device)


@dataclass(frozen=True)
class Filtered:
    """The result of the forward pass over n sequences with N frames in all, and K states.

    Attributes:
        alpha: probability of each state given the frames so far, p(z_t | x_<=t), ``(N, K)``; rows sum to one, or are
            zero once the sequence is impossible.
        steps: log p(x_t | x_<t) in nats, ``(N,)`` float64; -inf from the first impossible frame on.
        ends: log-probability that each sequence ends after its last frame, log p(end | x), ``(n,)`` float64; None if
            the length has no probability.
    """

    alpha: Tensor
    steps: Tensor
    ends: Tensor | None

    @property
    def chains(self) -> list[Filtered]:
        """A list of this object alone, because the forward pass is never run on several chains."""
        return [self]

    def replace_sequences(self, rows: Tensor, sequences: Tensor, recomputed: Filtered) -> None:
        """Replace the results of some sequences in place by those in ``recomputed``.

        ``rows`` are the indices of their frames, and ``sequences`` their numbers.
        """
        self.steps[rows] = recomputed.steps
        self.alpha[rows] = recomputed.alpha.to(self.alpha.dtype)
        if self.ends is not None and recomputed.ends is not None:
            self.ends[sequences] = recomputed.ends


@dataclass(frozen=True)
class Posterior:
    """The result of forward-backward over n sequences with N frames in all, and K states.

    Results of several chains have a leading axis.

    Attributes:
        log_prob: log p(x) of each sequence in nats, ``(..., n)`` float64, including its end if that has a probability.
        gamma: probability of each state given the whole sequence, p(z_t | x), ``(..., N, K)``; rows sum to one.
        xi: expected number of transitions i -> j, ``(..., K, K)`` float64, summed over all frames and over sequences by
            their weights.
        initial: expected number of starts in each state (gamma of first frames), ``(..., K)`` float64, summed the same
            way.
        final: expected number of ends in each state (gamma of last frames), ``(..., K)`` float64, summed the same way.
        transitions: p(z_t-1 = i, z_t = j | x) of each row, ``(N, K, K)`` float64, zeros in first frames; None if
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
        """The result of each chain; if there is one chain, a list of this object alone."""
        if self.xi.dim() == 2:
            return [self]
        parts = (self.log_prob, self.gamma, self.xi, self.initial, self.final)
        return [Posterior(*each) for each in zip(*parts, strict=True)]

    def replace_sequences(self, rows: Tensor, sequences: Tensor, recomputed: Posterior) -> None:
        """Replace the results of some sequences in place by those in ``recomputed``, and add the latter to the sums.

        ``rows`` are the indices of their frames, and ``sequences`` their numbers; the sums do not include them yet.
        """
        self.log_prob[sequences] = recomputed.log_prob
        self.gamma[rows] = recomputed.gamma.to(self.gamma.dtype)
        self.xi.add_(recomputed.xi)
        self.initial.add_(recomputed.initial)
        self.final.add_(recomputed.final)
