"""``Trellis``: a chain and what it saw, ``p(z, x) = initial[z_1] Π transition[z_t, z_t+1] Π b[t, z_t] final[z_T]``."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from seqmodels.hmm.packing import Packing


@dataclass(frozen=True)
class Trellis:
    """One problem of inference over n sequences and K states.

    Attributes:
        initial: (1, K) or (n, K) float64, one row a sequence, in the caller's order.
        transition: (K, K) float64.
        final: (1, K) or (n, K) float64; ones where the end is no event.
        log_b: (N, K) float32 or float64, packed: nats, -inf where a state cannot have emitted the frame.
        packing: how the N rows make up the n sequences.
    """

    initial: Tensor
    transition: Tensor
    final: Tensor
    log_b: Tensor
    packing: Packing

    @classmethod
    def of(
        cls, initial: Tensor, transition: Tensor, log_b: Tensor, packing: Packing, final: Tensor | None = None
    ) -> Trellis:
        """Check shapes, and bring the parameters to float64 on the device of ``log_b``."""
        K, n = transition.shape[0], packing.n_sequences
        if log_b.dtype not in (torch.float32, torch.float64):
            raise ValueError(f"log_b is {log_b.dtype}; pass float32 or float64")
        if log_b.shape != (packing.n_frames, K):
            raise ValueError(
                f"log_b has shape {tuple(log_b.shape)}, expected ({packing.n_frames}, {K}): frames, states"
            )
        if initial.shape not in ((K,), (n, K)):
            raise ValueError(f"initial has shape {tuple(initial.shape)}, expected ({K},) or ({n}, {K})")
        if final is not None and final.shape != (K,):
            raise ValueError(f"final has shape {tuple(final.shape)}, expected ({K},)")
        ends = torch.ones(K) if final is None else final
        start, step, end = (p.detach().to(log_b.device, torch.float64) for p in (initial, transition, ends))
        return cls(start.reshape(-1, K), step, end.reshape(-1, K), log_b.detach(), packing.to(log_b.device))

    @property
    def starts(self) -> Tensor:
        """(n, K) ``initial`` by rank: the rows of the first block."""
        return self.initial.expand(self.packing.n_sequences, -1)[self.packing.order]

    @property
    def ends(self) -> Tensor:
        """(n, K) ``final`` by rank."""
        return self.final.expand(self.packing.n_sequences, -1)[self.packing.order]

    def double(self) -> Trellis:
        """The same problem with ``log_b`` in float64."""
        return replace(self, log_b=self.log_b.double())

    def take(self, sequences: Tensor) -> tuple[Trellis, Tensor]:
        """The problem of these sequences alone, and the row here of each of its rows."""
        packing, rows = self.packing.take(sequences)
        initial = self.initial if len(self.initial) == 1 else self.initial[sequences]
        final = self.final if len(self.final) == 1 else self.final[sequences]
        return Trellis(initial, self.transition, final, self.log_b.index_select(0, rows), packing), rows


@dataclass(frozen=True)
class Forward:
    """What the forward pass finds.

    Attributes:
        steps: (N,) float64, packed: log p(x_t | x_<t) in nats.
        ends: (n,) float64: log of the final mass under the last belief, log p(end | x); None without ``final``.
        alpha: (N, K) packed beliefs p(z_t | x_<=t), rows summing to one (zeros once the sequence is impossible).
    """

    steps: Tensor
    ends: Tensor | None
    alpha: Tensor

    def patch(self, rows: Tensor, sequences: Tensor, part: Forward) -> None:
        """Put the answer for some sequences in place of what stands here."""
        self.steps[rows] = part.steps
        self.alpha[rows] = part.alpha.to(self.alpha.dtype)
        if self.ends is not None and part.ends is not None:
            self.ends[sequences] = part.ends


@dataclass(frozen=True)
class Posterior:
    """The E-step: what the states did, given all of each sequence.

    Attributes:
        log_prob: (n,) float64 nats, the end included where there is a ``final``.
        gamma: (N, K) packed, p(z_t | x); rows sum to one.
        xi: (K, K) float64, expected transitions i -> j, summed over all frames and sequences.
        initial: (K,) float64, expected starts in each state.
        final: (K,) float64, expected ends in each state (the last frames' gamma summed).
    """

    log_prob: Tensor
    gamma: Tensor
    xi: Tensor
    initial: Tensor
    final: Tensor

    def patch(self, rows: Tensor, sequences: Tensor, part: Posterior) -> None:
        """Put the answer for some sequences, absent from the sums so far, in place of what stands here."""
        self.log_prob[sequences] = part.log_prob
        self.gamma[rows] = part.gamma.to(self.gamma.dtype)
        self.xi.add_(part.xi)
        self.initial.add_(part.initial)
        self.final.add_(part.final)
