"""An alignment model one step at a time: the state of the cursor is the belief of where in the source it stands."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from seqmodels.generation import Prediction, select_rows
from seqmodels.hmm.alignment.blocks import Alphabets
from seqmodels.hmm.alignment.jumps import Jumps
from seqmodels.hmm.alignment.ladder import Ladder
from seqmodels.hmm.alignment.pull import Pull
from seqmodels.observations import Observation


@dataclass(frozen=True)
class Given:
    """One source: its chain, whose rows sum to one with ``final``, and ``around (S', window)`` each place (and the null)."""

    initial: np.ndarray
    transition: np.ndarray
    final: np.ndarray | None
    around: np.ndarray


@dataclass(frozen=True)
class AlignmentState:
    """``coming (n, K)`` float64: p(next state | all steps so far, and that there is a next step); ``end (n,)`` p(end | the same)."""

    given: Given
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

    def start(self, source: np.ndarray | None = None, n: int = 1) -> AlignmentState:
        """Before the first step of ``n`` targets of one ``source``."""
        assert source is not None, "the model is fitted with sources"
        given = self._given(np.asarray(source))
        coming = torch.from_numpy(given.initial).to(self.device).expand(n, -1)
        previous = torch.full((n,), self.ladder.n_target, device=self.device)
        return AlignmentState(given, coming, coming.new_zeros(n), previous)

    def advance(self, state: AlignmentState, x: Tensor) -> AlignmentState:
        """After ``x (n,)``."""
        x, given = x.to(self.device), state.given
        seen = self._emission(state).gather(2, x.view(-1, 1, 1).expand(-1, given.around.shape[0], 1))[..., 0]
        joint = state.coming * self._of_states(seen, given)
        belief = joint / joint.sum(1, keepdim=True)
        on = belief @ torch.from_numpy(given.transition).to(self.device)
        total = on.sum(1, keepdim=True)
        return AlignmentState(given, on / total, 1 - total[:, 0], x)

    def distribution(self, state: AlignmentState) -> Prediction:
        """The next symbol, given that there is one, and the end; a target cannot end before its first step."""
        places = self._of_places(state.coming, state.given)  # (n, S')
        log_p = (places.unsqueeze(1) @ self._emission(state)).log().to(self.dtype)  # (n, 1, V)
        log_end = None if state.given.final is None else state.end.clamp(min=0).log()
        return Prediction(self.observation, log_p, None, None, log_end)

    def select(self, state: AlignmentState, index: Tensor) -> AlignmentState:
        """Of the targets ``index (m,)``."""
        return select_rows(state, index)

    def _given(self, source: np.ndarray) -> Given:
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
        final = None if chain.final is None else chain.final / own[:, 0]
        kept = [*range(n), *([] if self.jumps.null is None else [n + 1])]
        return Given(initial, transition, final, windows[0, kept])

    def _emission(self, state: AlignmentState) -> Tensor:
        """``(n, S', V)`` probability of each symbol at each place."""
        previous, which = np.unique(state.previous.cpu().numpy(), return_inverse=True)
        symbols = np.arange(self.ladder.n_target)
        p = self.ladder.probability(state.given.around[:, None], previous[:, None, None], symbols)
        return torch.from_numpy(p[which]).to(self.device)

    def _of_states(self, values: Tensor, given: Given) -> Tensor:
        """``(n, S')`` -> ``(n, K)``: every null says the same."""
        if self.jumps.null is None:
            return values
        return torch.cat([values[:, :-1], values[:, -1:].expand(-1, len(given.around))], 1)

    def _of_places(self, belief: Tensor, given: Given) -> Tensor:
        """``(n, K)`` -> ``(n, S')``: nulls added up."""
        if self.jumps.null is None:
            return belief
        n = len(given.around) - 1
        return torch.cat([belief[:, :n], belief[:, n:].sum(1, keepdim=True)], 1)
