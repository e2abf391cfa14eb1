"""An alignment model one step at a time: the state of the cursor is the belief about its position in the source."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from seqmodels.common.main_memory import refuse_beyond_memory
from seqmodels.generation import Prediction, Source, select_rows
from seqmodels.hmm.alignment.inference import Alphabets
from seqmodels.hmm.alignment.jumps import JumpPrior, Jumps
from seqmodels.hmm.alignment.lexicon import BackoffLexicon, SummedLexicon
from seqmodels.inference.chains.log_space import LogProduct
from seqmodels.observations import Observation


@dataclass(frozen=True)
class Chains:
    """The chain of each of n sources, and ``windows (n, S', window)`` around positions and null.

    ``initial (n, K)``; the rows of ``transition (n, K, K)`` sum to one with ``final (n, K)``, zeros where the end is no
    event. Of sources of several lengths S is the longest, and positions that the others have not are never come to.
    """

    initial: Tensor
    transition: Tensor
    final: Tensor
    windows: Tensor


@dataclass(frozen=True)
class AlignmentState:
    """``log_predicted (n, K)`` float64: log p(there is a next step, in this state | all steps so far); ``log_end (n,)``
    log p(end | the same).

    -inf everywhere once the steps are impossible. ``contexts (n, L, S')``: ids in the L tables of the lexicon.
    """

    chains: Chains
    log_predicted: Tensor
    log_end: Tensor
    contexts: Tensor


@dataclass(frozen=True)
class AlignmentCursor:
    """Jumps, the jump prior and the lexicon as a chain of one-step predictions."""

    jumps: Jumps
    prior: JumpPrior
    lexicon: BackoffLexicon
    window: int
    observation: Observation
    device: torch.device
    dtype: torch.dtype

    @cached_property
    def summed(self) -> SummedLexicon:
        """What the distributions of all steps share."""
        return SummedLexicon.of(self.lexicon)

    def start(self, source: Source = None, n: int = 1) -> AlignmentState:
        """Before the first step of ``n`` targets, of one source or of a list of ``n``, of whatever lengths."""
        assert source is not None, "the model is fitted with sources"
        sources = source if isinstance(source, list) else [source]
        for i, symbols in enumerate(sources):
            check_memory(i, len(symbols), 1, self.jumps.null is not None)
        longest = max(map(len, sources))
        chain_of_each = [self._chain(symbols, longest) for symbols in sources]
        chains = Chains(*(torch.stack(parts).to(self.device) for parts in zip(*chain_of_each, strict=True)))
        if len(chain_of_each) != n:
            chains = select_rows(chains, torch.zeros(n, dtype=torch.int64, device=self.device))
        never = chains.initial.new_full((n,), -torch.inf)
        windows, start = chains.windows.cpu().numpy(), np.full((n, 1), self.lexicon.n_target)
        contexts = self._stacked([*self.lexicon.context_ids(windows, start)], windows.shape[:-1])
        return AlignmentState(chains, chains.initial.log(), never, contexts)

    def advance(self, state: AlignmentState, x: Tensor) -> AlignmentState:
        """The belief over positions after symbols ``x (n,)``, and the log-probability of an end there."""
        chains, y = state.chains, x.cpu().numpy()[:, None]
        windows, contexts = chains.windows.cpu().numpy(), _each(state.contexts)
        p = self.lexicon.probability_in(contexts, y, windows.shape[:-1])  # (n, S')
        joint = state.log_predicted + self._of_states(torch.from_numpy(p).to(self.device).log(), chains)
        log_alpha = joint - _finite(torch.logsumexp(joint, 1, keepdim=True))
        log_end = torch.logsumexp(log_alpha + chains.final.log(), 1)
        known = contexts[: self.lexicon.n_of_source]
        after = self._stacked([*self.lexicon.context_ids(windows, y, known)], windows.shape[:-1])
        return AlignmentState(chains, LogProduct(chains.transition)(log_alpha), log_end, after)

    def distribution(self, state: AlignmentState) -> Prediction:
        """The next symbol, given that there is one, and the end; a target cannot end before its first step."""
        log_continue = torch.logsumexp(state.log_predicted, 1)  # (n,)
        log_states = state.log_predicted - _finite(log_continue).unsqueeze(1)
        of_positions = self._of_positions(log_states, state.chains)  # (n, S')
        p = self.summed.sums(_each(state.contexts), of_positions.exp().cpu().numpy())  # (n, V)
        log_p = torch.from_numpy(p).to(self.device).log().unsqueeze(1).to(self.dtype)  # (n, 1, V)
        if self.jumps.has_end:
            return Prediction(self.observation, log_p, None, None, state.log_end, log_continue)
        return Prediction(self.observation, log_p, None, None, None)

    def select(self, state: AlignmentState, index: Tensor) -> AlignmentState:
        """Of the targets ``index (m,)``."""
        selected: AlignmentState = select_rows(state, index)
        return selected

    def _chain(self, source: np.ndarray, longest: int) -> tuple[Tensor, ...]:
        n_positions, n_missing = len(source), longest - len(source)
        windows = Alphabets(self.lexicon.n_source, self.lexicon.n_target).windows(source[None], self.window)
        prior = self.prior(windows[:, :-1])
        sums = self.jumps.sums(prior)
        chain, of_states = self.jumps.chain(sums), self.jumps.of_states(sums).T  # (K, 1)
        weights = np.ones(len(of_states))
        weights[:n_positions] = prior[0, :-1]
        transition = chain.transition * weights
        transition[:, :n_positions] /= of_states  # a null comes with one probability from everywhere
        final = np.zeros(len(of_states)) if chain.final is None else chain.final * prior[0, -1] / of_states[:, 0]
        initial = chain.initial[0] * weights
        if self.jumps.null is not None:
            initial[n_positions] = self.jumps.null
        # After the positions those that are missing, after their nulls the missing nulls.
        states, around = np.arange(n_positions), np.pad(windows[0, :n_positions], ((0, n_missing), (0, 0)))
        n_states = longest
        if self.jumps.null is not None:
            states = np.concatenate([states, longest + np.arange(n_positions + 1)])
            around, n_states = np.concatenate([around, windows[0, [n_positions + 1]]]), 2 * longest + 1
        padded = np.zeros((n_states + 2, n_states))
        rows = np.concatenate([states, [n_states, n_states + 1]])
        padded[np.ix_(rows, states)] = np.vstack([transition, initial, final])
        arrays = (padded[n_states], padded[:n_states], padded[n_states + 1], around)
        return tuple(torch.from_numpy(array) for array in arrays)

    def _stacked(self, ids: list[np.ndarray], shape: tuple[int, ...]) -> Tensor:
        """Ids ``(n, S')`` in each of L tables -> ``(n, L, S')``."""
        stacked = np.stack(ids, axis=1) if ids else np.zeros((shape[0], 0, shape[1]), np.int32)
        return torch.from_numpy(stacked).to(self.device)

    def _of_states(self, values: Tensor, chains: Chains) -> Tensor:
        """``(n, S')`` -> ``(n, K)``: the nulls after all positions have one value."""
        if self.jumps.null is None:
            return values
        return torch.cat([values[:, :-1], values[:, -1:].expand(-1, chains.windows.shape[1])], 1)

    def _of_positions(self, log_alpha: Tensor, chains: Chains) -> Tensor:
        """``(n, K)`` -> ``(n, S')``: the sum over all nulls."""
        if self.jumps.null is None:
            return log_alpha
        n_positions = chains.windows.shape[1] - 1
        return torch.cat([log_alpha[:, :n_positions], torch.logsumexp(log_alpha[:, n_positions:], 1, keepdim=True)], 1)


def _each(contexts: Tensor) -> list[np.ndarray]:
    """``(n, L, S')`` ids -> ``(n, S')`` in each table, on the CPU."""
    on_cpu = contexts.cpu().numpy()
    return [on_cpu[:, k] for k in range(on_cpu.shape[1])]


def _finite(values: Tensor) -> Tensor:
    """Zero in place of -inf, so that an impossible row stays -inf and does not become NaN."""
    return torch.where(values == -torch.inf, 0.0, values)


def check_memory(i: int, n_source: int, n_target: int, null: bool) -> None:
    """Raise ``ValueError`` for a pair that needs more memory than there is, for its jumps or steps."""
    n_states = 2 * n_source + 1 if null else n_source
    refuse_beyond_memory(
        f"sequence {i}, a source of {n_source} steps and a target of {n_target},",
        8.0 * n_states * (3 * n_states + 4 * n_target),
        "align shorter pairs: cut them into sentences",
    )
