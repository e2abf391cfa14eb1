"""EM for the alignment model: from IBM's model 1 over jumps to ever finer contexts, with an objective that never falls.

One table of contexts after the other is fitted (``TableEstimate``), together with the jumps and the jump prior; it is
then fixed, and the next finer table backs off to it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Literal, Self

import numpy as np
import torch

from seqmodels.common.progress import ProgressBar, Verbose
from seqmodels.hmm.alignment.inference import AlignmentExpectations, AlignmentTrellis, PairBlock
from seqmodels.hmm.alignment.jumps import JumpPrior, Jumps, PositionChain, PositionContexts
from seqmodels.hmm.alignment.lexicon import UNKNOWN, BackoffLexicon, ContextTable, find
from seqmodels.training import (
    Callback,
    Checkpoints,
    FitResult,
    Interruption,
    Row,
    StopRule,
    interruptible,
    run_em,
    show_row,
)

Strength = float | Literal["auto"]

# A symbol gets a probability of its own in the contexts of positions that have at least this share of the posterior
# of the most probable position of a step.
MIN_SHARE = 0.01
STRENGTHS = np.geomspace(0.05, 200.0, 25)  # pseudocounts that "auto" chooses from
MAX_COUNTS = 100_000  # most counts from which "auto" chooses

# -- one table of contexts -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class TableLookup:
    """The contexts of every target step of one batch at every source position, looked up in a table of contexts.

    There are N steps and S' positions, which include the null (no position) if there is one. Contexts are surrounding
    symbols, on which the distribution of a target symbol depends. All arrays are ``(N, S')``.

    Attributes:
        index: index of each step and position in the table's probabilities.
        coarser: probability of the step's symbol in the coarser context.
        ids: ids of the contexts in the table.
    """

    index: np.ndarray
    coarser: np.ndarray
    ids: np.ndarray

    @classmethod
    def from_indices(
        cls, pairs: np.ndarray, ids: np.ndarray, coarser: np.ndarray, n_pairs: int, n_contexts: int
    ) -> Self:
        """Return the lookup of N target steps at S' source positions, given where their contexts are in the table.

        Args:
            pairs: index in the table of each pair of context and target symbol, ``(N, S')``; ``UNKNOWN`` where it has
                none.
            ids: index in the table of each context, ``(N, S')``; ``UNKNOWN`` where it has none.
            coarser: probability of the step's symbol in the coarser context, ``(N, S')``.
            n_pairs: number of pairs of context and symbol in the table.
            n_contexts: number of contexts in the table.
        """
        others = np.where(ids == UNKNOWN, np.int32(n_pairs + n_contexts), np.int32(n_pairs) + ids)
        return cls(np.where(pairs == UNKNOWN, others, pairs), coarser, ids)

    def probability(self, values: np.ndarray, n_pairs: int) -> np.ndarray:
        """Return the probability of each of N target steps at each of S' source positions, ``(N, S')``.

        Args:
            values: probability of each pair of context and symbol in the table, then for each of C contexts the factor
                that multiplies the coarser probability of all other symbols, and one, ``(n_pairs + C + 1,)``.
            n_pairs: number of pairs in the table.
        """
        p = values[self.index]
        probability: np.ndarray = np.where(self.index < n_pairs, p, p * self.coarser)
        return probability


@dataclass(frozen=True)
class BlockContexts:
    """A batch of pairs of source and target with the contexts from which a new table of contexts is begun.

    Arrays are ``(N, S')``, for N target steps and S' source positions, which include the null (no position) if there is
    one.

    Attributes:
        block: the batch of pairs.
        codes: codes of the contexts in the new table.
        gamma: posterior of each position at each step.
        coarser: probability of each step in the coarser contexts.
    """

    block: PairBlock
    codes: np.ndarray
    gamma: np.ndarray
    coarser: np.ndarray

    @classmethod
    def for_next_table(
        cls, block: PairBlock, lexicon: BackoffLexicon, ids: np.ndarray, gamma: np.ndarray, coarser: np.ndarray
    ) -> Self:
        """Return the batch with the codes of its contexts in the next, finer table of the lexicon.

        All arrays are ``(N, S')``, for N target steps and S' source positions, which include the null (no position) if
        there is one.

        Args:
            block: the batch of pairs.
            lexicon: the tables of contexts estimated so far.
            ids: ids of the contexts in the lexicon's last table.
            gamma: posterior of each position at each step.
            coarser: probability of each step in the last table.
        """
        order = lexicon.orders[len(lexicon.tables)]
        codes = lexicon.codes(order, ids, block.windows_of_steps, block.previous[:, None])
        return cls(block, codes, gamma, coarser)

    @cached_property
    def counted(self) -> np.ndarray:
        """Mask of the steps and positions whose context and symbol get a probability of their own, ``(N, S')``.

        There are N target steps and S' source positions. The context must be known, and the position's posterior at
        least ``MIN_SHARE`` of that of the step's most probable position.
        """
        counted: np.ndarray = (self.gamma >= MIN_SHARE * self.gamma.max(1, keepdims=True)) & (self.codes != UNKNOWN)
        return counted

    def pairs(self, ids: np.ndarray, n_target: int) -> np.ndarray:
        """Return an integer code for each pair of a context and the target symbol of its step, ``(N, S')``.

        Args:
            ids: ids of the contexts of N target steps at S' source positions, ``(N, S')``; an ``UNKNOWN`` one gives
                ``UNKNOWN``.
            n_target: number of target symbols.
        """
        return np.where(ids == UNKNOWN, UNKNOWN, ids * np.int64(n_target) + self.block.y[:, None])


@dataclass(frozen=True)
class TableEstimate:
    """A table of distributions of target symbols in contexts, while EM fits it.

    It has C contexts, and G pairs of a context and a target symbol that get probabilities of their own. All other
    symbols of a context are its *rest*, with probabilities in proportion to the coarser context.

    Attributes:
        contexts: sorted codes of the contexts, ``(C,)``.
        pairs: sorted codes of the pairs, ``(G,)``.
        context_ids: context of each pair and of each rest, ``(G + C,)``.
        mass: probability of each pair and of each rest in the coarser context, ``(G + C,)``.
        strength: the pseudocount τ: number of target symbols that the coarser context counts as.
        values: probability of each pair, factor of each rest, and one, ``(G + C + 1,)``.
        lookups: the contexts of each batch looked up in the table.
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
        """Return a table for EM to fit, which starts with the distributions of the coarser table.

        Args:
            blocks: the batches of pairs with their contexts.
            n_target: number of target symbols.
            strength: the pseudocount, the number of target symbols that the coarser context counts as; ``"auto"``
                chooses the value under which the expected counts are most probable.
        """
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
        """Return the table as arrays by name for a checkpoint, without ``lookups``, which ``resume`` computes again."""
        tables = {"contexts": self.contexts, "pairs": self.pairs, "owner": self.context_ids, "mass": self.mass}
        return {**tables, "values": self.values, "strength": float(self.strength)}

    @classmethod
    def resume(cls, blocks: Sequence[BlockContexts], arrays: Mapping[str, Any], n_target: int) -> Self:
        """Return the table that a checkpoint stores as ``arrays``, to go on fitting it.

        Args:
            blocks: the batches of pairs with which it was begun; their posteriors are not used.
            arrays: what the method ``arrays`` returned.
            n_target: number of target symbols.
        """
        contexts, pairs = arrays["contexts"], arrays["pairs"]
        ids = [find(contexts, b.codes) for b in blocks]
        lookups = [
            TableLookup.from_indices(find(pairs, b.pairs(each, n_target)), each, b.coarser, len(pairs), len(contexts))
            for b, each in zip(blocks, ids, strict=True)
        ]
        return cls(contexts, pairs, arrays["owner"], arrays["mass"], arrays["strength"], arrays["values"], lookups)

    @property
    def table(self) -> ContextTable:
        """The table of contexts with its current probabilities, as part of a lexicon."""
        n_pairs = len(self.pairs)
        return ContextTable(self.contexts, self.pairs, self.values[:n_pairs], self.values[n_pairs:-1])

    def probability(self, i: int) -> np.ndarray:
        """Return the probability of the N target steps of batch ``i`` at each of S' source positions, ``(N, S')``."""
        return self.lookups[i].probability(self.values, len(self.pairs))

    def count(self, blocks: Sequence[PairBlock], gammas: Sequence[np.ndarray]) -> np.ndarray:
        """Return the expected counts of the G pairs of context and symbol and of the other symbols of C contexts, ``(G
        + C,)``.

        Args:
            blocks: the batches of pairs.
            gammas: for each batch the posteriors ``(N, S')`` of N target steps at S' source positions, which include
                the null (no position) if there is one.
        """
        counts = np.zeros(len(self.values))
        for lookup, block, gamma in zip(self.lookups, blocks, gammas, strict=True):
            counts += block.weight * np.bincount(lookup.index.ravel(), gamma.ravel(), len(counts))
        return counts[:-1]

    def maximised(self, counts: np.ndarray) -> TableEstimate:
        """Return the table after the exact M-step.

        Args:
            counts: expected counts of the G pairs of context and symbol and of the other symbols of C contexts, ``(G +
                C,)``.
        """
        posterior = counts + self.strength * self.mass
        p = posterior / np.bincount(self.context_ids, posterior, len(self.contexts))[self.context_ids]
        n_pairs, rest_mass = len(self.pairs), self.mass[len(self.pairs) :]
        # Where the coarser context leaves no mass, no other symbol occurs.
        rest = np.divide(p[n_pairs:], rest_mass, out=np.ones_like(rest_mass), where=rest_mass > 0)
        return replace(self, values=np.concatenate([p[:n_pairs], rest, [1.0]]))

    def log_prior(self) -> float:
        """Return the log-density in nats of the prior on the table's distributions, up to a constant.

        It is ``-τ Σ_c KL(coarser || this table)`` with the pseudocount τ and a sum over contexts c.
        """
        from scipy.special import xlogy

        n_pairs = len(self.pairs)
        ratio = np.concatenate([self.values[:n_pairs] / self.mass[:n_pairs], self.values[n_pairs:-1]])
        return self.strength * float(xlogy(self.mass, ratio).sum())

    def likeliest_strength(self, counts: np.ndarray) -> float:
        """Return the pseudocount τ under which the counts are most probable, with the distributions integrated out.

        It maximises ``Σ_c log Γ(τ) / Γ(n_c + τ) + Σ_y log Γ(n_cy + τ m_cy) / Γ(τ m_cy)``, the likelihood of Pólya's
        urns, over the values of ``STRENGTHS`` and a sample of the contexts c, whose coarser contexts give symbol y the
        probability m_cy.

        Args:
            counts: expected counts n of the G pairs of context and symbol and of the other symbols of C contexts, ``(G
                + C,)``.
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
    """The three pseudocounts of ``AlignmentHMM``.

    Attributes:
        emission: number of target symbols that the coarser context counts as; ``"auto"`` chooses it from the data.
        jump: number added to the expected count of each jump.
        jump_prior: number added to the expected and predicted counts of each factor of the prior weights of positions.
    """

    emission: Strength
    jump: float
    jump_prior: float


@dataclass(frozen=True)
class AlignmentParameters:
    """All parameters of the alignment model that EM estimates.

    Attributes:
        jumps: weights of jumps between source positions by distance.
        prior: prior weights of source positions.
        lexicon: distributions of target symbols in contexts.
    """

    jumps: Jumps
    prior: JumpPrior
    lexicon: BackoffLexicon

    @property
    def n_parameters(self) -> int:
        """Number of free parameters of jumps, prior weights of positions and lexicon together."""
        return self.jumps.n_parameters + self.prior.n_parameters + self.lexicon.n_parameters

    def arrays(self) -> dict[str, Any]:
        """Return jumps, prior weights of positions and lexicon as nested dictionaries of arrays, for a file."""
        return {"jumps": self.jumps.arrays(), "pull": self.prior.arrays(), "ladder": self.lexicon.arrays()}

    def restored(self, arrays: Mapping[str, Any]) -> AlignmentParameters:
        """Return the parameters that a file stores as ``arrays``, which the method ``arrays`` returned.

        Settings and sizes, such as the levels of contexts and the number of symbols, are taken from ``self``.

        Raises:
            ValueError: if the arrays cannot be such parameters.
        """
        jumps, prior, lexicon = self.jumps, self.prior, self.lexicon
        return AlignmentParameters(
            Jumps.from_arrays(arrays["jumps"], jumps.max_jump, has_end=jumps.has_end),
            JumpPrior.from_arrays(arrays["pull"], prior.orders, prior.n_source),
            BackoffLexicon.from_arrays(arrays["ladder"], lexicon.orders, lexicon.n_source, lexicon.n_target),
        )


@dataclass(frozen=True)
class AlignmentStart:
    """The parameters from which an EM step starts: finished ones, and the table of contexts being fitted.

    Attributes:
        parameters: jumps, jump prior and finished tables.
        estimate: the table being fitted.
        n_steps: number of M-steps made so far for the table being fitted, in the present stage of the fit.
    """

    parameters: AlignmentParameters
    estimate: TableEstimate
    n_steps: int = 0

    @property
    def whole(self) -> AlignmentParameters:
        """The parameters of the model, including the table of contexts that is being fitted."""
        return replace(self.parameters, lexicon=self.parameters.lexicon.with_table(self.estimate.table))


class AlignmentEM:
    """EM of the alignment model on batches of pairs, which fits one table of contexts after the other, from coarse to
    fine.

    The first table is fitted in two stages, the first of them without jumps and their prior; each other table is fitted
    in one.

    Args:
        blocks: the pairs of source and target, in batches.
        parameters: parameters to start from; their lexicon has the finished tables.
        pseudocounts: pseudocounts of the objective.
        stop: rule that ends each stage.
        dtype: precision of the recursions.
        n_units: number of units (symbols or bytes) of the targets, by which the log-probabilities in ``history_`` are
            divided.
    """

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
        self._rows: list[Row] = []
        self.converged = True  # whether all finished tables converged

    def run(
        self, *, verbose: Verbose = False, checkpoints: Checkpoints | None = None
    ) -> FitResult[AlignmentParameters]:
        """Fit the jumps and all tables of contexts and return the result with the history of the fit.

        The fit starts as IBM's model 1, whose jumps are all alike. A signal (Ctrl-C or SIGTERM) stops it between two
        batches of an E-step, and the result has the parameters of the last row of history.

        Args:
            verbose: whether to show progress.
            checkpoints: where to save the state of the fit, and a saved state to continue from; None for neither.

        Raises:
            KeyboardInterrupt: if a signal came before the first table had a row in the history.
        """
        checkpoints = checkpoints or Checkpoints()
        total = self.stop.max_iter * (len(self.parameters.lexicon.orders) + 1)
        with ProgressBar(total, verbose, "EM") as bar, interruptible():
            return self._run(partial(show_row, bar), checkpoints)

    def _run(self, callback: Callback, checkpoints: Checkpoints) -> FitResult[AlignmentParameters]:
        stages = [(0, False), *((table, True) for table in range(len(self.parameters.lexicon.orders)))]
        state, estimate = None, None
        if checkpoints.state is not None:
            state = self._restored(checkpoints.state)
            n_tables = len(self.parameters.lexicon.tables)
            stages = stages[stages.index((n_tables, state["moves"])) if n_tables < len(stages) - 1 else len(stages) :]
        ids, coarser = self._coarser()
        expectations = self._first_expectations(coarser, callback) if state is None else []
        last: AlignmentStart | None = None  # the parameters of the last row
        for table, with_jumps in stages:
            if state is None and estimate is None:
                contexts = self._contexts_of_table(ids, coarser, [e.gamma for e in expectations])
                n_target = self.parameters.lexicon.n_target
                estimate = TableEstimate.start(contexts, n_target, self.pseudocounts.emission)
            prior = self.parameters.prior
            if state is None and with_jumps and self.parameters.lexicon.orders[table].columns and prior.orders:
                wider = prior.with_order([b.windows_of_jumps for b in self.blocks])
                self.parameters = replace(self.parameters, prior=wider)
            problem = _Stage.of(self, with_jumps=with_jumps)
            if estimate is not None:
                starts, n_steps = [problem.m_step(AlignmentStart(self.parameters, estimate), expectations)], 1
                where = replace(checkpoints, state=None)
                store = _StageStore(self, with_jumps)
            else:  # in the middle of a stage
                assert state is not None, "without a checkpoint there is a table"
                starts, n_steps, where = [], state["n_done"] + 1, checkpoints
                store = _StageStore(self, with_jumps, self._contexts_of_table(ids, coarser, coarser))
            stop = replace(self.stop, max_iter=len(self._rows) + self.stop.max_iter - n_steps)
            options: dict[str, Any] = {"checkpoints": where, "store": store, "rows": self._rows}
            results, state = run_em(problem, starts, stop, callback=callback, **options), None
            if results:
                last, self._rows, expectations = results[0].parameters, results[0].rows, results[0].kept
            if last is None:
                raise KeyboardInterrupt
            if not results or results[0].interrupted:
                return FitResult(last.whole, self._rows, False, interrupted=True)
            self.parameters, estimate = last.parameters, last.estimate
            if with_jumps:  # the table is finished
                self.converged &= results[0].converged
                ids = [lookup.ids for lookup in estimate.lookups]
                coarser = [estimate.probability(i) for i in range(len(self.blocks))]
                self.parameters, estimate = last.whole, None
        checkpoints.write({"model": self.parameters.arrays(), "rows": self._rows, "converged": self.converged})
        return FitResult(self.parameters, self._rows, self.converged)

    def _restored(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """Restore the finished parameters from a checkpoint, and return the part about the unfinished table."""
        state = state.get("climbs", {"0": state})["0"]  # the key of ``run_em``; at the end there is none
        self.parameters = self.parameters.restored(state["model"])
        self.converged = bool(state.get("all_converged", state["converged"]))
        self._rows = list(state["rows"])
        self._began -= self._rows[-1]["seconds"]
        return state

    def _first_expectations(self, p: Sequence[np.ndarray], callback: Callback) -> list[AlignmentExpectations]:
        """Return the results of the E-step on each batch before there is a table, and report a row of the history.

        Args:
            p: probability of each of N target steps at each of S' source positions, ``(N, S')`` for each batch.
            callback: function that gets the row.
        """
        stage = _Stage.of(self, with_jumps=False)
        expectations = [trellis.expectations() for trellis in stage.trellises(self.parameters, p)]
        self._rows.append(self.row(0, self.parameters, expectations, 0.0, np.nan))
        callback(self._rows[-1])
        return expectations

    def _coarser(self) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Return for each batch the ids of contexts in the last finished table, and the probability of each step there.

        All arrays are ``(N, S')``: N target steps, S' source positions (with the null, if there is one).
        """
        lexicon = self.parameters.lexicon
        p = [lexicon.probability(b.windows_of_steps, b.previous[:, None], b.y[:, None]) for b in self.blocks]
        ids = [np.zeros(each.shape, np.int64) for each in p]
        for i, b in enumerate(self.blocks):
            for each in lexicon.context_ids(b.windows_of_steps, b.previous[:, None]):
                ids[i] = each
        return ids, p

    def _contexts_of_table(
        self, ids: Sequence[np.ndarray], coarser: Sequence[np.ndarray], gammas: Sequence[np.ndarray]
    ) -> list[BlockContexts]:
        lexicon = self.parameters.lexicon
        return [
            BlockContexts.for_next_table(block, lexicon, each, gamma, p)
            for block, each, gamma, p in zip(self.blocks, ids, gammas, coarser, strict=True)
        ]

    def row(
        self,
        step: int,
        parameters: AlignmentParameters,
        expectations: Sequence[AlignmentExpectations],
        log_prior: float,
        strength: float,
    ) -> Row:
        """Return a row of the history: log-probability and objective after one EM step, in nats per unit.

        Args:
            step: number of the EM step.
            parameters: jumps, prior weights of positions and the finished tables of contexts.
            expectations: results of the E-step on each batch.
            log_prior: log-density of the prior of the table of contexts being fitted, in nats.
            strength: pseudocount of that table.
        """
        log_prob = sum(b.weight * e.log_prob for b, e in zip(self.blocks, expectations, strict=True))
        log_prior += parameters.jumps.log_prior(self.pseudocounts.jump)
        log_prior += parameters.prior.log_prior(self.pseudocounts.jump_prior)
        return {
            "step": step,
            "seconds": time.perf_counter() - self._began,
            "log_prob": log_prob / self.n_units,
            "objective": (log_prob + log_prior) / self.n_units,
            "level": len(parameters.lexicon.tables) + 1,
            "pseudocount": strength,
            "floor_hits": 0,
        }


@dataclass(frozen=True)
class _Stage:
    """EM of one table of contexts, and if ``with_jumps`` of jumps and jump prior (an ``EMProblem`` of ``run_em``).

    Attributes:
        em: the whole fit.
        contexts: contexts of each batch's positions in the jump prior.
        with_jumps: False in the first stage, in which all jumps stay alike.
    """

    em: AlignmentEM
    contexts: list[PositionContexts]
    with_jumps: bool

    @classmethod
    def of(cls, em: AlignmentEM, *, with_jumps: bool) -> _Stage:
        return cls(em, [em.parameters.prior.look_up(b.windows_of_jumps) for b in em.blocks], with_jumps)

    def trellises(self, parameters: AlignmentParameters, p: Sequence[np.ndarray]) -> Iterator[AlignmentTrellis]:
        """Yield the alignment model of each batch, given the probabilities ``p`` of its steps at each position."""
        for block, contexts, each in zip(self.em.blocks, self.contexts, p, strict=True):
            weights = parameters.prior.weights(contexts)
            yield AlignmentTrellis.from_block(block, parameters.jumps, weights, each, self.em.dtype)

    def e_step(
        self, parameters: Sequence[AlignmentStart], interruption: Interruption
    ) -> list[list[AlignmentExpectations]] | None:
        (start,) = parameters
        p = [start.estimate.probability(i) for i in range(len(self.em.blocks))]
        expectations = list[AlignmentExpectations]()
        for trellis in self.trellises(start.parameters, p):
            if interruption.requested:
                return None
            expectations.append(trellis.expectations())
        return [expectations]

    def row(
        self, step: int, seconds: float, parameters: AlignmentStart, expectations: list[AlignmentExpectations]
    ) -> Row:
        estimate = parameters.estimate
        return self.em.row(step, parameters.parameters, expectations, estimate.log_prior(), estimate.strength)

    def m_step(self, parameters: AlignmentStart, expectations: list[AlignmentExpectations]) -> AlignmentStart:
        estimate, moved = parameters.estimate, parameters.parameters
        estimate = estimate.maximised(estimate.count(self.em.blocks, [e.gamma for e in expectations]))
        if self.with_jumps:
            moved = self._with_jumps(moved, expectations)
        return AlignmentStart(moved, estimate, parameters.n_steps + 1)

    def ended(
        self, parameters: AlignmentStart, expectations: list[AlignmentExpectations], n_rows: int
    ) -> tuple[AlignmentStart, list[AlignmentExpectations]]:
        return parameters, expectations

    def _with_jumps(
        self, parameters: AlignmentParameters, expectations: Sequence[AlignmentExpectations]
    ) -> AlignmentParameters:
        """Return the parameters after an M-step of the jump prior and then of the jumps.

        Each is a step of majorisation with the other fixed, the jumps under the new prior. The objective rises in
        either order, because the bounds hold at any values of the other. ``Jumps.maximised`` explains the slopes.
        """
        prior, jumps, pseudocounts = parameters.prior, parameters.jumps, self.em.pseudocounts
        if prior.orders:
            prior = self._maximised_prior(parameters, expectations)
        chains, majoriser_slopes = dict[int, PositionChain](), dict[int, np.ndarray]()
        for block, contexts, expected in zip(self.em.blocks, self.contexts, expectations, strict=True):
            prior_weights, n_positions = prior.weights(contexts), block.n_positions
            chain = expected.chain.weighted(block.weight)
            # Row i, column j: Σ over sources of departures_i / (Σ_k w[k - i] v_k) · v_j.
            slope = block.weight * (expected.departures / jumps.sums(prior_weights)).T @ prior_weights
            if n_positions in chains:
                chain = chains[n_positions] + chain
                slope = majoriser_slopes[n_positions] + slope
            chains[n_positions], majoriser_slopes[n_positions] = chain, slope
        return replace(parameters, jumps=jumps.maximised(chains, majoriser_slopes, pseudocounts.jump), prior=prior)

    def _maximised_prior(
        self, parameters: AlignmentParameters, expectations: Sequence[AlignmentExpectations]
    ) -> JumpPrior:
        prior, jumps = parameters.prior, parameters.jumps
        n_factors = len(prior.factors[-1])
        arrivals = np.zeros(n_factors)
        predicted = np.zeros(n_factors)
        for block, contexts, expected in zip(self.em.blocks, self.contexts, expectations, strict=True):
            prior_weights, ids = prior.weights(contexts), contexts.ids.ravel()
            jumping = (expected.departures / jumps.sums(prior_weights)) @ jumps.table(block.n_positions)
            arrivals += block.weight * np.bincount(ids, expected.arrivals.ravel(), n_factors)
            predicted += block.weight * np.bincount(ids, (prior_weights * jumping).ravel(), n_factors)
        return prior.maximised(arrivals, predicted, self.em.pseudocounts.jump_prior)


@dataclass(frozen=True)
class _StageStore:
    """The conversion of a stage's state to arrays that a checkpoint stores, and back.

    ``contexts`` are each batch's contexts of the table, needed to continue from a checkpoint in the middle of a stage.
    """

    em: AlignmentEM
    with_jumps: bool
    contexts: Sequence[BlockContexts] = ()

    def arrays(self, parameters: AlignmentStart, kept: Any) -> dict[str, Any]:
        return {  # the keys are those of checkpoints already written
            "model": parameters.parameters.arrays(),
            "climb": parameters.estimate.arrays(),
            "n_done": parameters.n_steps - 1,
            "moves": self.with_jumps,
            "all_converged": self.em.converged,
        }

    def from_arrays(self, arrays: Mapping[str, Any]) -> tuple[AlignmentStart, Any]:
        parameters = self.em.parameters
        estimate = TableEstimate.resume(self.contexts, arrays["climb"], parameters.lexicon.n_target)
        return AlignmentStart(parameters, estimate, arrays["n_done"] + 1), None
