"""EM for the alignment model: from IBM's model 1 over jumps to ever finer contexts, the objective never falling.

A table of contexts after the other is fitted (``TableEstimate``), together with the jumps and the jump prior;
it then stays as it is and is what the next finer one backs off to.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import torch

from seqmodels.common.progress import ProgressBar, Verbose
from seqmodels.hmm.alignment.inference import AlignmentExpectations, AlignmentTrellis, PairBlock
from seqmodels.hmm.alignment.jumps import JumpPrior, Jumps, PositionChain
from seqmodels.hmm.alignment.lexicon import UNKNOWN, BackoffLexicon, ContextTable, find
from seqmodels.hmm.learning.em import History, StopRule
from seqmodels.training import Checkpoints, Interruption, interruptible

if TYPE_CHECKING:
    import pandas as pd

Strength = float | Literal["auto"]

MIN_SHARE = 0.01  # of the likeliest position of a step: what is less likely gives a symbol no probability of its own
STRENGTHS = np.geomspace(0.05, 200.0, 25)  # pseudocounts that "auto" chooses from
MAX_COUNTS = 100_000  # that it looks at

# -- one table of contexts -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class TableLookup:
    """One block in a table, all ``(N, S')``: ``index`` in the table's counts, ``coarser`` the probability in the
    coarser contexts, ``ids`` of the contexts in the table.
    """

    index: np.ndarray
    coarser: np.ndarray
    ids: np.ndarray

    @classmethod
    def from_indices(
        cls, pairs: np.ndarray, ids: np.ndarray, coarser: np.ndarray, n_pairs: int, n_contexts: int
    ) -> Self:
        """From the indices of the pairs and of the contexts in the table, or ``UNKNOWN``."""
        others = np.where(ids == UNKNOWN, np.int32(n_pairs + n_contexts), np.int32(n_pairs) + ids)
        return cls(np.where(pairs == UNKNOWN, others, pairs), coarser, ids)

    def probability(self, values: np.ndarray, n_pairs: int) -> np.ndarray:
        """``(N, S')`` of the steps, given those of the pairs and factors of the rest."""
        p = values[self.index]
        probability: np.ndarray = np.where(self.index < n_pairs, p, p * self.coarser)
        return probability


@dataclass(frozen=True)
class BlockContexts:
    """One block when a table begins: ``codes (N, S')`` of contexts, posteriors ``gamma``, probabilities ``coarser``."""

    block: PairBlock
    codes: np.ndarray
    gamma: np.ndarray
    coarser: np.ndarray

    @classmethod
    def for_next_table(
        cls, block: PairBlock, lexicon: BackoffLexicon, ids: np.ndarray, gamma: np.ndarray, coarser: np.ndarray
    ) -> Self:
        """For the next table of the lexicon, given the ids of contexts in its last."""
        order = lexicon.orders[len(lexicon.tables)]
        codes = lexicon.codes(order, ids, block.windows_of_steps, block.previous[:, None])
        return cls(block, codes, gamma, coarser)

    @cached_property
    def counted(self) -> np.ndarray:
        """``(N, S')`` bool: where contexts and symbols get probabilities of their own."""
        counted: np.ndarray = (self.gamma >= MIN_SHARE * self.gamma.max(1, keepdims=True)) & (self.codes != UNKNOWN)
        return counted

    def pairs(self, ids: np.ndarray, n_target: int) -> np.ndarray:
        """``(N, S')`` codes of contexts and symbols."""
        return np.where(ids == UNKNOWN, UNKNOWN, ids * np.int64(n_target) + self.block.y[:, None])


@dataclass(frozen=True)
class TableEstimate:
    """One table while EM fits it: G pairs of a context and a symbol, C of a context and all others, and all else.

    Attributes:
        contexts: (C,) as of ``ContextTable``.
        pairs: (G,) as of ``ContextTable``.
        context_ids: (G + C,) the context of each.
        mass: (G + C,) what the coarser context gives them.
        strength: τ.
        values: (G + C + 1,) as of ``ContextTable.p`` and ``ContextTable.rest``, and one.
        lookups: where the cells of each block stand.
    """

    contexts: np.ndarray
    pairs: np.ndarray
    context_ids: np.ndarray
    mass: np.ndarray
    strength: float
    values: np.ndarray
    lookups: list[TableLookup]

    @classmethod
    def start(cls, blocks: Sequence[BlockContexts], n_target: int, strength: Strength) -> Self:
        """A table that at first says what the coarser one says."""
        contexts = np.unique(np.concatenate([b.codes[b.counted] for b in blocks]))
        ids = [find(contexts, b.codes) for b in blocks]
        counted = np.concatenate([b.pairs(each, n_target)[b.counted] for b, each in zip(blocks, ids, strict=True)])
        pairs, first = np.unique(counted, return_index=True)
        p = np.concatenate([b.coarser[b.counted] for b in blocks])[first]
        n_pairs, n_contexts = len(pairs), len(contexts)
        context_ids = np.concatenate([pairs // n_target, np.arange(n_contexts)])
        rest_mass = np.maximum(1 - np.bincount(context_ids[:n_pairs], p, n_contexts), 0.0)
        lookups = [
            TableLookup.from_indices(find(pairs, b.pairs(each, n_target)), each, b.coarser, n_pairs, n_contexts)
            for b, each in zip(blocks, ids, strict=True)
        ]
        values, mass = np.concatenate([p, np.ones(n_contexts + 1)]), np.concatenate([p, rest_mass])
        estimate = cls(contexts, pairs, context_ids, mass, 1.0 if strength == "auto" else strength, values, lookups)
        if strength != "auto":
            return estimate
        counts = estimate.count([b.block for b in blocks], [b.gamma for b in blocks])
        return replace(estimate, strength=estimate.likeliest_strength(counts))

    def arrays(self) -> dict[str, Any]:
        """To be stored, without the lookups, which ``resume`` finds."""
        tables = {"contexts": self.contexts, "pairs": self.pairs, "owner": self.context_ids, "mass": self.mass}
        return {**tables, "values": self.values, "strength": float(self.strength)}

    @classmethod
    def resume(cls, blocks: Sequence[BlockContexts], arrays: Mapping[str, Any], n_target: int) -> Self:
        """The inverse of ``arrays``, on the same blocks; their posteriors are not looked at."""
        contexts, pairs = arrays["contexts"], arrays["pairs"]
        ids = [find(contexts, b.codes) for b in blocks]
        lookups = [
            TableLookup.from_indices(find(pairs, b.pairs(each, n_target)), each, b.coarser, len(pairs), len(contexts))
            for b, each in zip(blocks, ids, strict=True)
        ]
        return cls(contexts, pairs, arrays["owner"], arrays["mass"], arrays["strength"], arrays["values"], lookups)

    @property
    def table(self) -> ContextTable:
        """The table as it is now."""
        n_pairs = len(self.pairs)
        return ContextTable(self.contexts, self.pairs, self.values[:n_pairs], self.values[n_pairs:-1])

    def probability(self, i: int) -> np.ndarray:
        """``(N, S')`` of the steps of block i at each position."""
        return self.lookups[i].probability(self.values, len(self.pairs))

    def count(self, blocks: Sequence[PairBlock], gammas: Sequence[np.ndarray]) -> np.ndarray:
        """``(G + C,)`` expected counts."""
        counts = np.zeros(len(self.values))
        for lookup, block, gamma in zip(self.lookups, blocks, gammas, strict=True):
            counts += block.weight * np.bincount(lookup.index.ravel(), gamma.ravel(), len(counts))
        return counts[:-1]

    def maximised(self, counts: np.ndarray) -> TableEstimate:
        """The exact M-step, given expected counts."""
        posterior = counts + self.strength * self.mass
        p = posterior / np.bincount(self.context_ids, posterior, len(self.contexts))[self.context_ids]
        n_pairs, rest_mass = len(self.pairs), self.mass[len(self.pairs) :]
        # Where nothing is left, no other symbol is ever asked for.
        rest = np.divide(p[n_pairs:], rest_mass, out=np.ones_like(rest_mass), where=rest_mass > 0)
        return replace(self, values=np.concatenate([p[:n_pairs], rest, [1.0]]))

    def log_prior(self) -> float:
        """``-τ Σ_c KL(coarser || here)`` nats."""
        from scipy.special import xlogy

        n_pairs = len(self.pairs)
        ratio = np.concatenate([self.values[:n_pairs] / self.mass[:n_pairs], self.values[n_pairs:-1]])
        return self.strength * float(xlogy(self.mass, ratio).sum())

    def likeliest_strength(self, counts: np.ndarray) -> float:
        """The τ under which the counts are most probable, with the distributions summed out.

        ``Σ_c log Γ(τ) / Γ(n_c + τ) + Σ_y log Γ(n_cy + τ m_cy) / Γ(τ m_cy)``, the likelihood of Pólya's urns, over a
        sample of contexts.
        """
        from scipy.special import gammaln

        every = max(1, len(counts) // MAX_COUNTS)
        sample = (self.context_ids % every == 0) & (self.mass > 0)
        n, m = counts[sample], self.mass[sample]
        totals = np.bincount(self.context_ids, counts, len(self.contexts))[::every]
        scores = [
            float((gammaln(t) - gammaln(totals + t)).sum() + (gammaln(n + t * m) - gammaln(t * m)).sum())
            for t in STRENGTHS
        ]
        return float(STRENGTHS[int(np.argmax(scores))])


# -- all of the model ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AlignmentPseudocounts:
    """Of the contexts of emissions (or ``"auto"``), of each jump, of each factor of the jump prior; see
    ``AlignmentHMM``.
    """

    emission: Strength
    jump: float
    jump_prior: float


@dataclass(frozen=True)
class AlignmentParameters:
    """All that EM learns."""

    jumps: Jumps
    prior: JumpPrior
    lexicon: BackoffLexicon

    @property
    def n_parameters(self) -> int:
        """The sum over all three."""
        return self.jumps.n_parameters + self.prior.n_parameters + self.lexicon.n_parameters

    def arrays(self) -> dict[str, Any]:
        """By name, to be stored."""
        return {"jumps": self.jumps.arrays(), "pull": self.prior.arrays(), "ladder": self.lexicon.arrays()}

    def restored(self, arrays: Mapping[str, Any]) -> AlignmentParameters:
        """The inverse of ``arrays``, with orders and sizes as here; ``ValueError`` for what cannot be parameters."""
        jumps, prior, lexicon = self.jumps, self.prior, self.lexicon
        return AlignmentParameters(
            Jumps.from_arrays(arrays["jumps"], jumps.max_jump, has_end=jumps.has_end),
            JumpPrior.from_arrays(arrays["pull"], prior.orders, prior.n_source),
            BackoffLexicon.from_arrays(arrays["ladder"], lexicon.orders, lexicon.n_source, lexicon.n_target),
        )


@dataclass(frozen=True)
class AlignmentFit:
    """Where EM ended. History row i holds the figures before M-step i, the last row those of the end."""

    parameters: AlignmentParameters
    history: pd.DataFrame
    converged: bool


class AlignmentEM:
    """EM on blocks of pairs; ``parameters.lexicon`` has the tables that are finished. ``stop`` is of each stage."""

    def __init__(
        self,
        blocks: Sequence[PairBlock],
        parameters: AlignmentParameters,
        pseudocounts: AlignmentPseudocounts,
        stop: StopRule,
        dtype: torch.dtype,
        n_units: float,
    ) -> None:
        self.blocks = blocks
        self.parameters = parameters
        self.pseudocounts = pseudocounts
        self.stop = stop
        self.dtype = dtype
        self.n_units = n_units
        self._began = time.perf_counter()
        self._history = History()
        self._converged = True
        self._checkpoints = Checkpoints()
        self._interruption = Interruption(may_hold=False)
        self._last: AlignmentParameters | None = None  # those of the last row

    def run(self, *, verbose: Verbose = False, checkpoints: Checkpoints | None = None) -> AlignmentFit:
        """A table after the other; the first begins as IBM's model 1, whose jumps are all alike.

        A signal ends it before an E-step or between two blocks of one, with the parameters that the last row of history
        is of.
        """
        self._checkpoints = checkpoints or Checkpoints()
        self._last = None
        self._n_moves = 0
        total = self.stop.max_iter * (len(self.parameters.lexicon.orders) + 1)
        with ProgressBar(total, verbose, "EM") as self._bar, interruptible() as self._interruption:
            return self._run()

    def _run(self) -> AlignmentFit:
        orders = self.parameters.lexicon.orders
        state = self._checkpoints.state
        if state is not None:
            self._restore(state)
        self._contexts = [self.parameters.prior.look_up(b.windows_of_jumps) for b in self.blocks]
        ids, coarser = self._coarser()
        expectations = None if state is not None else self._expect(coarser)
        if expectations is not None:
            self._add_row(expectations, 0.0, np.nan)
        while len(self.parameters.lexicon.tables) < len(orders):
            order = orders[len(self.parameters.lexicon.tables)]
            # Whether jumps and their prior are fitted too: not at first.
            stages = [True] if self.parameters.lexicon.tables else [False, True]
            estimate = self._next_estimate(ids, coarser, expectations, None if state is None else state["climb"])
            if state is not None:
                stages = stages[stages.index(state["moves"]) :]
            for with_jumps in stages:
                if state is None and with_jumps and order.columns and self.parameters.prior.orders:
                    self._widen_prior()
                n_done = None if state is None else state["n_done"]
                state = None
                estimate, expectations, done = self._stage(
                    estimate, expectations, with_jumps=with_jumps, resume_at=n_done
                )
                if expectations is None:
                    assert self._last is not None
                    self.parameters = self._last
                    return AlignmentFit(self.parameters, self._history.frame(), False)
            self._converged &= done
            ids = [lookup.ids for lookup in estimate.lookups]
            coarser = [estimate.probability(i) for i in range(len(self.blocks))]
            self.parameters = self._with_table(estimate)
            del estimate  # its memory is needed for the next
        self._checkpoints.write(self._state())
        return AlignmentFit(self.parameters, self._history.frame(), self._converged)

    def _with_table(self, estimate: TableEstimate) -> AlignmentParameters:
        return replace(self.parameters, lexicon=self.parameters.lexicon.with_table(estimate.table))

    def _coarser(self) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Of each block, ``(N, S')``: the ids of contexts in the last finished table, and probabilities there."""
        lexicon = self.parameters.lexicon
        p = [lexicon.probability(b.windows_of_steps, b.previous[:, None], b.y[:, None]) for b in self.blocks]
        ids = [np.zeros(each.shape, np.int64) for each in p]
        for i, b in enumerate(self.blocks):
            for each in lexicon.context_ids(b.windows_of_steps, b.previous[:, None]):
                ids[i] = each
        return ids, p

    def _state(
        self, estimate: TableEstimate | None = None, n_done: int = 0, *, with_jumps: bool = False
    ) -> dict[str, Any]:
        """To be stored: after an M-step, the E-step of which is to come; or after all."""
        return {
            "model": self.parameters.arrays(),
            "climb": None if estimate is None else estimate.arrays(),
            "n_done": n_done,
            "moves": with_jumps,
            "converged": self._converged,
            "rows": self._history.rows,
            "seconds": time.perf_counter() - self._began,
        }

    def _restore(self, state: Mapping[str, Any]) -> None:
        """The inverse of ``_state``, but for the table that is not finished."""
        self.parameters = self.parameters.restored(state["model"])
        self._converged = bool(state["converged"])
        self._history = History(list(state["rows"]))
        self._began = time.perf_counter() - state["seconds"]

    def _widen_prior(self) -> None:
        """Give the jump prior one order of contexts more."""
        prior = self.parameters.prior.with_order([b.windows_of_jumps for b in self.blocks])
        self.parameters = replace(self.parameters, prior=prior)
        self._contexts = [prior.look_up(b.windows_of_jumps) for b in self.blocks]

    def _next_estimate(
        self,
        ids: Sequence[np.ndarray],
        coarser: Sequence[np.ndarray],
        expectations: Sequence[AlignmentExpectations] | None,
        stored: Mapping[str, Any] | None,
    ) -> TableEstimate:
        """The next table as it begins, given expectations, or as it was stored."""
        lexicon = self.parameters.lexicon
        gammas = coarser if expectations is None else [e.gamma for e in expectations]
        blocks = [
            BlockContexts.for_next_table(block, lexicon, each, gamma, p)
            for block, each, gamma, p in zip(self.blocks, ids, gammas, coarser, strict=True)
        ]
        if stored is not None:
            return TableEstimate.resume(blocks, stored, lexicon.n_target)
        assert expectations is not None, "EM goes on from the posteriors of the last table"
        return TableEstimate.start(blocks, lexicon.n_target, self.pseudocounts.emission)

    def _stage(
        self,
        estimate: TableEstimate,
        expectations: list[AlignmentExpectations] | None,
        *,
        with_jumps: bool,
        resume_at: int | None = None,
    ) -> tuple[TableEstimate, list[AlignmentExpectations] | None, bool]:
        """EM steps of the table, and of jumps and their prior if ``with_jumps``. No expectations: a signal came.

        ``resume_at``: the step whose M-step an earlier run has taken.
        """
        for i in range(resume_at or 0, self.stop.max_iter):
            if resume_at is None:
                assert expectations is not None
                counts = estimate.count(self.blocks, [e.gamma for e in expectations])
                estimate = estimate.maximised(counts)
                if with_jumps:
                    self._maximise_jumps(expectations)
            resume_at = None
            if self._checkpoints.due:
                self._interruption.hold()  # from here on there is something to keep
                self._checkpoints.write(self._state(estimate, i, with_jumps=with_jumps))
            expectations = self._expect([estimate.probability(b) for b in range(len(self.blocks))])
            if expectations is None:
                self._checkpoints.write(self._state(estimate, i, with_jumps=with_jumps))
                return estimate, None, False
            self._add_row(expectations, estimate.log_prior(), estimate.strength)
            self._last = self._with_table(estimate)
            self._interruption.hold()
            if self.stop.converged(self._history):
                return estimate, expectations, True
        return estimate, expectations, False

    def _expect(self, p: Sequence[np.ndarray]) -> list[AlignmentExpectations] | None:
        """The E-step on all blocks; None if a signal came and there are parameters to keep."""
        jumps, prior = self.parameters.jumps, self.parameters.prior
        expectations = list[AlignmentExpectations]()
        for block, contexts, each in zip(self.blocks, self._contexts, p, strict=True):
            if self._interruption.requested and self._last is not None:
                return None
            trellis = AlignmentTrellis.from_block(block, jumps, prior.weights(contexts), each, self.dtype)
            expectations.append(trellis.expectations())
        return expectations

    def _maximise_jumps(self, expectations: Sequence[AlignmentExpectations]) -> None:
        """The M-step of the jump prior, and then of the jumps.

        Each is a step of majorisation with the other as it is, the jumps under the new prior; in either order the
        objective rises, for the bounds hold at any values of the other. The slopes are those of ``Jumps.maximised``.
        """
        if self.parameters.prior.orders:
            self.parameters = replace(self.parameters, prior=self._maximised_prior(expectations))
        jumps = self.parameters.jumps
        chains, majoriser_slopes = dict[int, PositionChain](), dict[int, np.ndarray]()
        for block, contexts, expected in zip(self.blocks, self._contexts, expectations, strict=True):
            prior_weights, n_positions = self.parameters.prior.weights(contexts), block.n_positions
            chain = expected.chain.weighted(block.weight)
            # Row i, column j: Σ over sources of departures_i / (Σ_k w[k - i] v_k) · v_j.
            slope = block.weight * (expected.departures / jumps.sums(prior_weights)).T @ prior_weights
            if n_positions in chains:
                chain = chains[n_positions] + chain
                slope = majoriser_slopes[n_positions] + slope
            chains[n_positions], majoriser_slopes[n_positions] = chain, slope
        jumps = jumps.maximised(chains, majoriser_slopes, self.pseudocounts.jump)
        self.parameters = replace(self.parameters, jumps=jumps)

    def _maximised_prior(self, expectations: Sequence[AlignmentExpectations]) -> JumpPrior:
        prior, jumps = self.parameters.prior, self.parameters.jumps
        n_factors = len(prior.factors[-1])
        arrivals = np.zeros(n_factors)
        predicted = np.zeros(n_factors)
        for block, contexts, expected in zip(self.blocks, self._contexts, expectations, strict=True):
            prior_weights, ids = prior.weights(contexts), contexts.ids.ravel()
            jumping = (expected.departures / jumps.sums(prior_weights)) @ jumps.table(block.n_positions)
            arrivals += block.weight * np.bincount(ids, expected.arrivals.ravel(), n_factors)
            predicted += block.weight * np.bincount(ids, (prior_weights * jumping).ravel(), n_factors)
        return prior.maximised(arrivals, predicted, self.pseudocounts.jump_prior)

    def _add_row(self, expectations: Sequence[AlignmentExpectations], log_prior: float, strength: float) -> None:
        log_prob = sum(b.weight * e.log_prob for b, e in zip(self.blocks, expectations, strict=True))
        log_prior += self.parameters.jumps.log_prior(self.pseudocounts.jump)
        log_prior += self.parameters.prior.log_prior(self.pseudocounts.jump_prior)
        row = {
            "step": len(self._history.rows),
            "seconds": time.perf_counter() - self._began,
            "log_prob": log_prob / self.n_units,
            "objective": (log_prob + log_prior) / self.n_units,
            "level": len(self.parameters.lexicon.tables) + 1,
            "pseudocount": strength,
            "floor_hits": 0,
        }
        self._history.add(row)
        self._n_moves += 1
        self._bar.move(self._n_moves, f"{row['log_prob']:.4f} nats per unit")
