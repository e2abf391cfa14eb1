"""Sums over all alignments of a block of pairs, and the best of them, by the recursions of the HMM.

Where jumps are drawn by the pulls of places, every source has a chain of its own, ``w[j - i] v_j / Σ_k w[k - i] v_k``. All that differs from
source to source belongs to one place, what it draws and the sum that divides what leaves it: so it is put with what the place
emits, and the sources share one transition matrix. The sum comes a step too early that way, which ``steps`` puts right.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor

from seqmodels.hmm.alignment.blocks import Block
from seqmodels.hmm.alignment.jumps import Chain, Jumps
from seqmodels.hmm.inference.densities import LogDensities
from seqmodels.hmm.inference.forward_backward import forward_backward_pass, forward_pass
from seqmodels.hmm.inference.trellis import Trellis
from seqmodels.hmm.inference.viterbi import best_paths


@dataclass(frozen=True)
class Visits:
    """What EM asks of a block: ``log_prob`` nats of all, posteriors ``gamma (N, S')``, ``expected`` starts, jumps and ends, and of each
    pair the ``arrivals (n, S + 1)`` at places and the end, and the ``departures (n, S + 2)`` from the rows of ``Jumps.features``."""

    log_prob: float
    gamma: np.ndarray
    expected: Chain
    arrivals: np.ndarray
    departures: np.ndarray


@dataclass(frozen=True, eq=False)
class Alignment:
    """A block's problem: ``sums (n, K)`` of the ways out of each state, what it sees in ``trellis``."""

    block: Block
    jumps: Jumps
    sums: Tensor
    trellis: Trellis

    @classmethod
    def of(cls, block: Block, jumps: Jumps, pull: np.ndarray, p: np.ndarray, dtype: torch.dtype) -> Self:
        """Given pulls ``(n, S + 1)`` and probabilities ``p (N, S')`` of each step at each place (and the null)."""
        device, sums = block.segments.lengths.device, jumps.sums(pull)
        own = pull[:, :-1] / sums[:, 2:]
        if block.null:  # comes with one probability, whatever the sum: arriving makes good for leaving
            own = np.concatenate([own, np.ones((len(own), 1))], axis=1)
        chain, of_states = jumps.chain(sums), torch.from_numpy(jumps.of_states(sums)).to(device)
        # In float64 first: what the finest contexts hardly ever saw may be less than float32 can hold.
        log_b = torch.from_numpy(block.spread(p * own[block.sequence])).log_().to(device, dtype)
        if chain.final is None:  # the last step is not left
            log_b[block.segments.last] += of_states.log().to(dtype)
        initial, transition = torch.from_numpy(chain.initial), torch.from_numpy(chain.transition)
        final = None if chain.final is None else torch.from_numpy(chain.final)
        trellis = Trellis.of(initial, transition, LogDensities(log_b), block.segments, final, block.scratch)
        return cls(block, jumps, of_states, trellis)

    def steps(self) -> list[np.ndarray]:
        """For each pair log p(y_t | y_<t, x), and where ends are events that of the end."""
        segments, found = self.block.segments, forward_pass(self.trellis)
        early = (found.alpha.double() * self.sums[segments.sequence]).sum(1).log()
        assert found.ends is not None
        if not self.jumps.stops:
            early[segments.last] = 0.0
        ends, results = (found.ends - early[segments.last]).cpu().numpy(), []
        for steps, late, end in zip(segments.split(found.steps), segments.split(early), ends, strict=True):
            right = (steps + late.diff(prepend=late.new_zeros(1))).cpu().numpy()
            results.append(np.append(right, end) if self.jumps.stops else right)
        return results

    def visits(self) -> Visits:
        """The E-step."""
        block, found = self.block, forward_backward_pass(self.trellis)
        gamma = found.gamma
        each = gamma.new_zeros(len(block.indices), gamma.shape[1], dtype=torch.float64)
        stays = each.index_add(0, block.segments.sequence, gamma.double()).cpu().numpy()
        last = gamma[block.segments.last].double().cpu().numpy()
        first = gamma[block.segments.first].double().cpu().numpy()
        expected = [a.cpu().numpy() for a in (found.initial, found.xi, found.final)]
        return Visits(
            float(found.log_prob.sum()),
            block.shares(gamma.cpu().numpy().copy()),
            Chain(expected[0], expected[1], expected[2] if self.jumps.stops else None),
            np.column_stack([stays[:, : block.n_places], np.full(len(stays), float(self.jumps.stops))]),
            self._departures(stays, first, last),
        )

    def _departures(self, stays: np.ndarray, first: np.ndarray, last: np.ndarray) -> np.ndarray:
        """A row is left for a place or the end once for each time it is come to, if it is left."""
        n, stops = self.block.n_places, self.jumps.stops
        before = first[:, n : n + 1] if self.block.null else np.zeros((len(stays), 1))  # a null at first
        rows = np.concatenate([before, stays[:, :n]], axis=1)
        if not stops:
            rows[:, 1:] -= last[:, :n]
            rows -= last[:, n:] if self.block.null else 0.0
        return np.concatenate([1 - before, rows], axis=1)

    def posterior(self) -> list[np.ndarray]:
        """For each pair ``(T, S')`` the posterior of places, and of the null."""
        gamma = self.block.segments.split(forward_backward_pass(self.trellis).gamma)
        return [self.block.shares(each.double().cpu().numpy()) for each in gamma]

    def best(self) -> list[np.ndarray]:
        """For each pair ``(T,)`` the places of the best alignment, -1 the null."""
        paths, _ = best_paths(self.trellis)
        places = torch.where(paths < self.block.n_places, paths, -1)
        return [path.cpu().numpy() for path in places.split(self.block.segments.lengths.tolist())]
