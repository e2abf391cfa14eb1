"""``Trellis``: a chain and what it saw, ``p(z, x) = initial[z_1] Π transition[z_t, z_t+1] Π b[t, z_t] final[z_T]``."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from seqmodels.hmm.cutting import Cutting
from seqmodels.hmm.densities import Densities
from seqmodels.hmm.packing import Packing
from seqmodels.hmm.scratch import Scratch


@dataclass(frozen=True)
class Trellis:
    """One problem of inference over n sequences and K states; or, with a leading axis R, those of R chains, for the E-step alone.

    Attributes:
        initial: (..., 1, K) or (..., n, K) float64, one row a sequence, in the caller's order.
        transition: (..., K, K) float64.
        final: (..., 1, K) or (..., n, K) float64; ones where the end is no event.
        densities: (..., N, K), by the rows of ``cutting.packing``.
        cutting: how the N rows make up the n sequences.
        scratch: what the passes write on; of two answers from one scratch only the later holds.
        weights: (n,) float64, what each sequence counts in sums over sequences; None: one.
    """

    initial: Tensor
    transition: Tensor
    final: Tensor
    densities: Densities
    cutting: Cutting
    scratch: Scratch = field(default_factory=Scratch)
    weights: Tensor | None = None

    @classmethod
    def of(
        cls,
        initial: Tensor,
        transition: Tensor,
        densities: Densities,
        cutting: Cutting,
        final: Tensor | None = None,
        scratch: Scratch | None = None,
    ) -> Trellis:
        """Check shapes, and bring the parameters to float64 on the device of the densities."""
        *lead, _, K = transition.shape
        n, N = cutting.n_sequences, cutting.packing.n_frames
        if densities.dtype not in (torch.float32, torch.float64):
            raise ValueError(f"log_b is {densities.dtype}; pass float32 or float64")
        if densities.shape != (*lead, N, K):
            raise ValueError(f"log_b has shape {tuple(densities.shape)}, expected {(*lead, N, K)}: frames, states")
        if initial.shape not in ((*lead, K), (*lead, n, K)):
            raise ValueError(f"initial has shape {tuple(initial.shape)}, expected {(*lead, K)} or {(*lead, n, K)}")
        if final is not None and final.shape != (*lead, K):
            raise ValueError(f"final has shape {tuple(final.shape)}, expected {(*lead, K)}")
        ends = torch.ones(*lead, K) if final is None else final
        start, step, end = (p.detach().to(densities.device, torch.float64) for p in (initial, transition, ends))
        rows = (*lead, -1, K)
        return cls(start.reshape(rows), step, end.reshape(rows), densities, cutting, scratch or Scratch())

    @property
    def packing(self) -> Packing:
        """Of the pieces."""
        return self.cutting.packing

    def starts(self, dtype: torch.dtype) -> Tensor:
        """(..., w, K) by rank: ``initial`` where a piece is the first of its sequence, flat elsewhere."""
        starts = self._by_piece(self.initial.to(dtype))
        return starts.index_fill_(-2, self.cutting.links[1], 1 / self.transition.shape[-1])

    def ends(self, dtype: torch.dtype) -> Tensor:
        """(..., w, K) by rank: ``final`` where a piece is the last of its sequence, ones elsewhere."""
        return self._by_piece(self.final.to(dtype)).index_fill_(-2, self.cutting.links[0], 1.0)

    def _by_piece(self, rows: Tensor) -> Tensor:
        """(..., 1, K) or (..., n, K) -> (..., w, K), by rank."""
        *lead, _, K = rows.shape
        return rows.expand(*lead, self.cutting.n_sequences, K)[..., self.owner, :]

    @property
    def owner(self) -> Tensor:
        """(w,) by rank: the sequence of each piece."""
        return self.cutting.owner[self.packing.order]

    @property
    def chains(self) -> list[Trellis]:
        """The problem of each chain; of one, itself."""
        if self.transition.dim() == 2:
            return [self]
        each = zip(self.initial, self.transition, self.final, strict=True)
        return [
            replace(self, initial=initial, transition=step, final=final, densities=self.densities.chain(i))
            for i, (initial, step, final) in enumerate(each)
        ]

    def weighted(self, rows: Tensor, sequence: Tensor) -> Tensor:
        """(..., m, K) rows that belong to sequences (m,), each times the sequence's weight, in place."""
        return rows if self.weights is None else rows.mul_(self.weights.to(rows.dtype)[sequence, None])

    def double(self) -> Trellis:
        """The same problem in float64."""
        return replace(self, densities=self.densities.double(), scratch=Scratch())

    def take(self, sequences: Tensor) -> tuple[Trellis, Tensor]:
        """The problem of these sequences alone, whole, and the row here of each of its rows."""
        return self._again(sequences, Cutting.whole(self.cutting.lengths[sequences], self.densities.device))

    def cut(self, reach: int = 1) -> tuple[Trellis, Tensor]:
        """The same problem in the pieces that suit its precision, and the row here of each of its rows."""
        lengths = self.cutting.lengths
        cutting = Cutting.of(lengths, len(self.transition), self.densities.dtype, self.densities.device, reach)
        if cutting.is_whole and self.cutting.is_whole:
            return self, torch.arange(self.packing.n_frames, device=lengths.device)
        return self._again(torch.arange(len(lengths), device=lengths.device), cutting)

    def _again(self, sequences: Tensor, cutting: Cutting) -> tuple[Trellis, Tensor]:
        rows = self.cutting.rows(sequences[cutting.sequence], cutting.time)
        initial = self.initial if len(self.initial) == 1 else self.initial[sequences]
        final = self.final if len(self.final) == 1 else self.final[sequences]
        weights = None if self.weights is None else self.weights[sequences]
        return Trellis(initial, self.transition, final, self.densities.take(rows), cutting, weights=weights), rows


@dataclass(frozen=True)
class Forward:
    """What the forward pass finds.

    Attributes:
        steps: (N,) float64, packed: log p(x_t | x_<t) in nats.
        ends: (n,) float64: log of the final mass under the last belief, log p(end | x); None where the end is no event.
        alpha: (N, K) packed beliefs p(z_t | x_<=t), rows summing to one (zeros once the sequence is impossible).
    """

    steps: Tensor
    ends: Tensor | None
    alpha: Tensor

    @property
    def chains(self) -> list[Forward]:
        """Itself."""
        return [self]

    def patch(self, rows: Tensor, sequences: Tensor, part: Forward) -> None:
        """Put the answer for some sequences in place of what stands here."""
        self.steps[rows] = part.steps
        self.alpha[rows] = part.alpha.to(self.alpha.dtype)
        if self.ends is not None and part.ends is not None:
            self.ends[sequences] = part.ends


@dataclass(frozen=True)
class Posterior:
    """The E-step: what the states did, given all of each sequence; or, with a leading axis, those of each of several chains.

    Attributes:
        log_prob: (..., n) float64 nats, the end included where there is a ``final``.
        gamma: (..., N, K) packed, p(z_t | x); rows sum to one.
        xi: (..., K, K) float64, expected transitions i -> j, summed over all frames and sequences, by their weights.
        initial: (..., K) float64, expected starts in each state, summed likewise.
        final: (..., K) float64, expected ends in each state (the last frames' gamma), summed likewise.
    """

    log_prob: Tensor
    gamma: Tensor
    xi: Tensor
    initial: Tensor
    final: Tensor

    @property
    def chains(self) -> list[Posterior]:
        """Views of the answer for each chain; of one, itself."""
        if self.xi.dim() == 2:
            return [self]
        parts = (self.log_prob, self.gamma, self.xi, self.initial, self.final)
        return [Posterior(*each) for each in zip(*parts, strict=True)]

    def patch(self, rows: Tensor, sequences: Tensor, part: Posterior) -> None:
        """Put the answer for some sequences, absent from the sums so far, in place of what stands here."""
        self.log_prob[sequences] = part.log_prob
        self.gamma[rows] = part.gamma.to(self.gamma.dtype)
        self.xi.add_(part.xi)
        self.initial.add_(part.initial)
        self.final.add_(part.final)
