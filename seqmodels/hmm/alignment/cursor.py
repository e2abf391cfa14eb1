"""The cursor of an alignment model, whose state is the belief about the position in the source after each step."""

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
from seqmodels.inference.chains.log_weights import finite
from seqmodels.observations import Observation


@dataclass(frozen=True)
class Chains:
    """The Markov chains of n alignments, each over the positions of one source, padded to the longest source.

    The K hidden states are the S positions of the longest source and, if a target step may be aligned with no position,
    one null state before the first and after each position. S' is S, or S + 1 with one column for all null states.
    Positions beyond the end of a shorter source are never reached. Each row of ``transition`` sums to one together with
    its entry of ``final``.

    Attributes:
        initial: probabilities of the first state, ``(n, K)``.
        transition: transition probabilities, ``(n, K, K)``.
        final: probabilities of the end after each state, ``(n, K)``; zeros if the end is not an event.
        windows: source symbols around each position and, if there is one, for the null, ``(n, S', window)``.
    """

    initial: Tensor
    transition: Tensor
    final: Tensor
    windows: Tensor


@dataclass(frozen=True)
class AlignmentState:
    """The state of the cursor of an alignment model: what is known of n targets before their next step.

    Attributes:
        chains: the chains over the positions of the n sources, with K states; S' counts positions and, as one, all
            states of alignment with no position (nulls).
        log_predicted: log-probability that there is a next step and that it is in this state, given all steps so far,
            ``(n, K)`` float64; -inf everywhere after an impossible step.
        log_end: log-probability of the end, given all steps so far, ``(n,)``.
        contexts: ids of the contexts of the next step in each of the L tables of the lexicon, one for each level of
            contexts, ``(n, L, S')``.
    """

    chains: Chains
    log_predicted: Tensor
    log_end: Tensor
    contexts: Tensor


@dataclass(frozen=True)
class AlignmentCursor:
    """The fitted alignment model as a cursor, which predicts targets one step at a time, given their sources.

    Attributes:
        jumps: the weights of jumps between source positions by distance.
        prior: the prior weights of source positions.
        lexicon: the distributions of a target symbol given its context.
        window: number of source symbols around a position, odd.
        observation: family of the distribution of a target step.
        device: device to compute on.
        dtype: precision of the computation.
    """

    jumps: Jumps
    prior: JumpPrior
    lexicon: BackoffLexicon
    window: int
    observation: Observation
    device: torch.device
    dtype: torch.dtype

    @cached_property
    def summed(self) -> SummedLexicon:
        """The lexicon (distributions of target symbols in contexts), prepared for distributions over all symbols at
        once.
        """
        return SummedLexicon.of(self.lexicon)

    def start(self, source: Source = None, n: int = 1) -> AlignmentState:
        """Return the state before the first step of ``n`` targets.

        Args:
            source: symbols of one source for all targets, or a list of ``n`` sources of any lengths.
            n: number of targets.
        """
        assert source is not None, "AlignmentHMM models p(y | x) and needs a source"
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
        """Return the state after the next symbol of each of n targets, ``x (n,)``."""
        chains, y = state.chains, x.cpu().numpy()[:, None]
        windows, contexts = chains.windows.cpu().numpy(), _each(state.contexts)
        p = self.lexicon.probability_in(contexts, y, windows.shape[:-1])  # (n, S')
        joint = state.log_predicted + self._of_states(torch.from_numpy(p).to(self.device).log(), chains)
        log_alpha = joint - finite(torch.logsumexp(joint, 1, keepdim=True))
        log_end = torch.logsumexp(log_alpha + chains.final.log(), 1)
        known = contexts[: self.lexicon.n_of_source]
        after = self._stacked([*self.lexicon.context_ids(windows, y, known)], windows.shape[:-1])
        return AlignmentState(chains, LogProduct(chains.transition)(log_alpha), log_end, after)

    def distribution(self, state: AlignmentState) -> Prediction:
        """Return the distribution of the next symbol of each target, given that there is one, and the probability of
        the end.

        A target cannot end before its first step.
        """
        log_continue = torch.logsumexp(state.log_predicted, 1)  # (n,)
        log_states = state.log_predicted - finite(log_continue).unsqueeze(1)
        of_positions = self._of_positions(log_states, state.chains)  # (n, S')
        p = self.summed.sums(_each(state.contexts), of_positions.exp().cpu().numpy())  # (n, V)
        log_p = torch.from_numpy(p).to(self.device).log().unsqueeze(1).to(self.dtype)  # (n, 1, V)
        if self.jumps.has_end:
            return Prediction(self.observation, log_p, None, None, state.log_end, log_continue)
        return Prediction(self.observation, log_p, None, None, None)

    def select(self, state: AlignmentState, index: Tensor) -> AlignmentState:
        """Return the state of only the targets numbered ``index (m,)``, in this order."""
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
        transition[:, :n_positions] /= of_states  # because a null has the same probability from every position
        final = np.zeros(len(of_states)) if chain.final is None else chain.final * prior[0, -1] / of_states[:, 0]
        initial = chain.initial[0] * weights
        if self.jumps.null is not None:
            initial[n_positions] = self.jumps.null
        # Missing positions come after the positions, and missing nulls after the nulls.
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
        """Return the ids ``(n, S')`` in each of L tables as one tensor ``(n, L, S')``."""
        stacked = np.stack(ids, axis=1) if ids else np.zeros((shape[0], 0, shape[1]), np.int32)
        return torch.from_numpy(stacked).to(self.device)

    def _of_states(self, values: Tensor, chains: Chains) -> Tensor:
        """Return values of the S' positions and null, ``(n, S')``, repeated as values of the K states, ``(n, K)``.

        All null states get the value of the null.
        """
        if self.jumps.null is None:
            return values
        return torch.cat([values[:, :-1], values[:, -1:].expand(-1, chains.windows.shape[1])], 1)

    def _of_positions(self, log_alpha: Tensor, chains: Chains) -> Tensor:
        """Return log-probabilities of the K states, ``(n, K)``, summed to those of positions and null, ``(n, S')``.

        The probabilities of all null states are added.
        """
        if self.jumps.null is None:
            return log_alpha
        n_positions = chains.windows.shape[1] - 1
        return torch.cat([log_alpha[:, :n_positions], torch.logsumexp(log_alpha[:, n_positions:], 1, keepdim=True)], 1)


def _each(contexts: Tensor) -> list[np.ndarray]:
    """Return the context ids ``(n, L, S')`` as L arrays ``(n, S')``, one for each table of the lexicon, on the CPU."""
    on_cpu = contexts.cpu().numpy()
    return [on_cpu[:, k] for k in range(on_cpu.shape[1])]


def check_memory(i: int, n_source: int, n_target: int, null: bool) -> None:
    """Raise ``ValueError`` if a pair needs more memory for its jumps and steps than there is.

    Args:
        i: number of the pair, for the error message.
        n_source: number of steps of the source.
        n_target: number of steps of the target.
        null: True if a step may be aligned with no position.
    """
    n_states = 2 * n_source + 1 if null else n_source
    refuse_beyond_memory(
        f"sequence {i}, a source of {n_source} steps and a target of {n_target},",
        8.0 * n_states * (3 * n_states + 4 * n_target),
        "align shorter pairs: cut them into sentences",
    )
