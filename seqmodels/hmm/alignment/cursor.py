"""An alignment model one step at a time: the state of the cursor is the belief of where in the source it stands."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from seqmodels.generation import Given, Prediction, select_rows
from seqmodels.hmm.alignment.blocks import Alphabets
from seqmodels.hmm.alignment.jumps import Jumps
from seqmodels.hmm.alignment.ladder import Ladder
from seqmodels.hmm.alignment.pull import Pull
from seqmodels.observations import Observation


@dataclass(frozen=True)
class Chains:
    """The chain of each of n sources of one length, and ``around (n, S', window)`` each place (and the null).

    ``initial (n, K)``; the rows of ``transition (n, K, K)`` sum to one with the probability of the end.
    """

    initial: Tensor
    transition: Tensor
    around: Tensor


@dataclass(frozen=True)
class AlignmentState:
    """``coming (n, K)`` float64: p(next state | all steps so far, and that there is a next step); ``end (n,)`` p(end | the same)."""

    chains: Chains
    coming: Tensor
    end: Tensor
    previous: Tensor


@dataclass(frozen=True)
class AlignmentCursor:
    """Jumps, pulls and the ladder as a chain of one-step predictions."""

    jumps: Jumps
    pull: Pull
    ladder: Ladder
    window: int
    observation: Observation
    device: torch.device
    dtype: torch.dtype

    def start(self, source: Given = None, n: int = 1) -> AlignmentState:
        """Before the first step of ``n`` targets, of one source or of a list of ``n``."""
        assert source is not None, "the model is fitted with sources"
        each = [self._chain(one) for one in (source if isinstance(source, list) else [source])]
        chains = Chains(*(torch.stack(parts).to(self.device) for parts in zip(*each, strict=True)))
        if len(each) != n:
            chains = select_rows(chains, torch.zeros(n, dtype=torch.int64, device=self.device))
        previous = torch.full((n,), self.ladder.n_target, device=self.device)
        return AlignmentState(chains, chains.initial, chains.initial.new_zeros(n), previous)

    def advance(self, state: AlignmentState, x: Tensor) -> AlignmentState:
        """After ``x (n,)``."""
        x, chains = x.to(self.device), state.chains
        seen = self._emission(state).gather(2, x.view(-1, 1, 1).expand(-1, chains.around.shape[1], 1))[..., 0]
        joint = state.coming * self._of_states(seen, chains)
        belief = joint / joint.sum(1, keepdim=True)
        on = torch.bmm(belief.unsqueeze(1), chains.transition).squeeze(1)
        total = on.sum(1, keepdim=True)
        return AlignmentState(chains, on / total, 1 - total[:, 0], x)

    def distribution(self, state: AlignmentState) -> Prediction:
        """The next symbol, given that there is one, and the end; a target cannot end before its first step."""
        places = self._of_places(state.coming, state.chains)  # (n, S')
        log_p = (places.unsqueeze(1) @ self._emission(state)).log().to(self.dtype)  # (n, 1, V)
        log_end = state.end.clamp(min=0).log() if self.jumps.stops else None
        return Prediction(self.observation, log_p, None, None, log_end)

    def select(self, state: AlignmentState, index: Tensor) -> AlignmentState:
        """Of the targets ``index (m,)``."""
        return select_rows(state, index)

    def _chain(self, source: np.ndarray) -> tuple[Tensor, Tensor, Tensor]:
        n = len(source)
        windows = Alphabets(self.ladder.n_source, self.ladder.n_target).windows(source[None], self.window)
        pull = self.pull(windows[:, :-1])
        sums = self.jumps.sums(pull)
        chain, own = self.jumps.chain(sums), self.jumps.of_states(sums).T  # (K, 1)
        drawn = np.ones(len(own))
        drawn[:n] = pull[0, :-1]
        transition = chain.transition * drawn
        transition[:, :n] /= own  # a null comes with one probability from everywhere
        initial = chain.initial[0] * drawn
        if self.jumps.null is not None:
            initial[n] = self.jumps.null
        kept = [*range(n), *([] if self.jumps.null is None else [n + 1])]
        return torch.from_numpy(initial), torch.from_numpy(transition), torch.from_numpy(windows[0, kept])

    def _emission(self, state: AlignmentState) -> Tensor:
        """``(n, S', V)`` probability of each symbol at each place."""
        around, previous = state.chains.around.cpu().numpy(), state.previous.cpu().numpy()
        p = self.ladder.probability(around[:, :, None], previous[:, None, None], np.arange(self.ladder.n_target))
        return torch.from_numpy(p).to(self.device)

    def _of_states(self, values: Tensor, chains: Chains) -> Tensor:
        """``(n, S')`` -> ``(n, K)``: every null says the same."""
        if self.jumps.null is None:
            return values
        return torch.cat([values[:, :-1], values[:, -1:].expand(-1, chains.around.shape[1])], 1)

    def _of_places(self, belief: Tensor, chains: Chains) -> Tensor:
        """``(n, K)`` -> ``(n, S')``: nulls added up."""
        if self.jumps.null is None:
            return belief
        n = chains.around.shape[1] - 1
        return torch.cat([belief[:, :n], belief[:, n:].sum(1, keepdim=True)], 1)
