"""An alignment model one step at a time: the state of the cursor is the belief of where in the source it stands."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from seqmodels.generation import Prediction, Source, select_rows
from seqmodels.hmm.alignment.blocks import Alphabets
from seqmodels.hmm.alignment.jumps import Jumps
from seqmodels.hmm.alignment.ladder import Ladder
from seqmodels.hmm.alignment.pull import Pull
from seqmodels.hmm.log_product import LogProduct
from seqmodels.observations import Observation
from seqmodels.resources import refuse_beyond_memory


@dataclass(frozen=True)
class Chains:
    """The chain of each of n sources of one length, and ``around (n, S', window)`` each place (and the null).

    ``initial (n, K)``; the rows of ``transition (n, K, K)`` sum to one with ``final (n, K)``, zeros where the end is no event.
    """

    initial: Tensor
    transition: Tensor
    final: Tensor
    around: Tensor


@dataclass(frozen=True)
class AlignmentState:
    """``log_coming (n, K)`` float64: log p(there is a next step, in this state | all steps so far); ``log_end (n,)`` log p(end | the same).

    -inf everywhere once the steps are impossible.
    """

    chains: Chains
    log_coming: Tensor
    log_end: Tensor
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

    def start(self, source: Source = None, n: int = 1) -> AlignmentState:
        """Before the first step of ``n`` targets, of one source or of a list of ``n``."""
        assert source is not None, "the model is fitted with sources"
        sources = source if isinstance(source, list) else [source]
        for i, one in enumerate(sources):
            check_memory(i, len(one), 1, self.jumps.null is not None)
        each = [self._chain(one) for one in sources]
        chains = Chains(*(torch.stack(parts).to(self.device) for parts in zip(*each, strict=True)))
        if len(each) != n:
            chains = select_rows(chains, torch.zeros(n, dtype=torch.int64, device=self.device))
        previous = torch.full((n,), self.ladder.n_target, device=self.device)
        return AlignmentState(chains, chains.initial.log(), chains.initial.new_full((n,), -torch.inf), previous)

    def advance(self, state: AlignmentState, x: Tensor) -> AlignmentState:
        """After ``x (n,)``."""
        x, chains = x.to(self.device), state.chains
        seen = self._emission(state).gather(2, x.view(-1, 1, 1).expand(-1, chains.around.shape[1], 1))[..., 0]
        joint = state.log_coming + self._of_states(seen.log(), chains)
        belief = joint - _finite(torch.logsumexp(joint, 1, keepdim=True))
        log_end = torch.logsumexp(belief + chains.final.log(), 1)
        return AlignmentState(chains, LogProduct(chains.transition)(belief), log_end, x)

    def distribution(self, state: AlignmentState) -> Prediction:
        """The next symbol, given that there is one, and the end; a target cannot end before its first step."""
        log_continue = torch.logsumexp(state.log_coming, 1)  # (n,)
        places = self._of_places(state.log_coming - _finite(log_continue).unsqueeze(1), state.chains)  # (n, S')
        log_p = torch.logsumexp(places.unsqueeze(2) + self._emission(state).log(), 1, keepdim=True).to(
            self.dtype
        )  # (n, 1, V)
        if self.jumps.stops:
            return Prediction(self.observation, log_p, None, None, state.log_end, log_continue)
        return Prediction(self.observation, log_p, None, None, None)

    def select(self, state: AlignmentState, index: Tensor) -> AlignmentState:
        """Of the targets ``index (m,)``."""
        return select_rows(state, index)

    def _chain(self, source: np.ndarray) -> tuple[Tensor, ...]:
        n = len(source)
        windows = Alphabets(self.ladder.n_source, self.ladder.n_target).windows(source[None], self.window)
        pull = self.pull(windows[:, :-1])
        sums = self.jumps.sums(pull)
        chain, own = self.jumps.chain(sums), self.jumps.of_states(sums).T  # (K, 1)
        drawn = np.ones(len(own))
        drawn[:n] = pull[0, :-1]
        transition = chain.transition * drawn
        transition[:, :n] /= own  # a null comes with one probability from everywhere
        final = np.zeros(len(own)) if chain.final is None else chain.final * pull[0, -1] / own[:, 0]
        initial = chain.initial[0] * drawn
        if self.jumps.null is not None:
            initial[n] = self.jumps.null
        kept = [*range(n), *([] if self.jumps.null is None else [n + 1])]
        arrays = (initial, transition, final, windows[0, kept])
        return tuple(torch.from_numpy(array) for array in arrays)

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

    def _of_places(self, log_belief: Tensor, chains: Chains) -> Tensor:
        """``(n, K)`` -> ``(n, S')``: nulls added up."""
        if self.jumps.null is None:
            return log_belief
        n = chains.around.shape[1] - 1
        return torch.cat([log_belief[:, :n], torch.logsumexp(log_belief[:, n:], 1, keepdim=True)], 1)


def _finite(values: Tensor) -> Tensor:
    """Zero in place of -inf, so that an impossible row stays -inf and does not become NaN."""
    return torch.where(values == -torch.inf, 0.0, values)


def check_memory(i: int, n_source: int, n_target: int, null: bool) -> None:
    """Raise ``ValueError`` for a pair whose jumps from place to place, or steps at all places, are more than there is room for."""
    n_states = 2 * n_source + 1 if null else n_source
    refuse_beyond_memory(
        f"sequence {i}, a source of {n_source} steps and a target of {n_target},",
        8.0 * n_states * (3 * n_states + 4 * n_target),
        "align shorter pairs: cut them into sentences",
    )
