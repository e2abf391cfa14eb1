"""Logistic mixing of symbols: each is a row of binary decisions, whose log-odds are mixed by weights that learn.

Model k gives each decision of ``binary_code`` log-odds ``l_k``, and the mixture has ``p(1) = sigmoid(w · l)``, which is
normalised over all symbols whatever the weights are (Mahoney 2005, *Adaptive weighing of context models for lossless
data compression*; Knoll and de Freitas 2012, *A machine learning perspective on predictive coding with PAQ*). w is the
sum of rows that small contexts choose from sets of weights:

- by the decision, that is by the bits of the symbol so far;
- by the decision and the last symbol;
- by the last two symbols;
- by the log-odds of the models, each in a few bins, so that the weight of a model that is certain is learned;
- by the place of the decision in the symbol, the model that was best in the last symbols, and by how much.

After a symbol, each chosen row is moved along the gradient of its log-probability: ``w += η (bit - p) l``. A gate whose
weights stay as they were fitted has η = 0, and does not use the best model of the last symbols.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from seqmodels.encodings.binary_code import BinaryCode, BinaryDecisions
from seqmodels.wrappers.mixture.gate_rows import Leads, OddsBins

RATES = (0.0003, 0.001, 0.003, 0.01)  # learning rates that are tried
PASSES = 3
MAX_ROWS = 1 << 17  # largest number of rows of a set, beyond which contexts share rows
LARGEST_BINNED = 9.0  # log-odds beyond this are in the last bin
N_BINS = (9, 9, 9, 5)  # number of bins by the number of models; odd, so that 0 is inside a bin
FEWEST_BINS, MOST_BINNED = 3, 6  # number of bins with more models, and number of models that choose rows
RECENT_DECAY = 0.8  # decay of the mean nats that models gave to the last symbols
LEAD_STEP, LEADS = 0.125, 4  # nats of one step of the best model's lead, and number of steps


@dataclass(frozen=True)
class Layout:
    """The order of all rows of mixing weights in one matrix, for the binary decisions of an alphabet.

    A row has a weight for each of K models. Contexts, such as the last symbol, choose rows; a set is all rows for one
    kind of context.

    Attributes:
        code: binary code of the alphabet, which says what is decided.
        n_models: K, the number of models.
        n_leads: number of steps in which the lead of the best model is measured; 0 if weights do not depend on it.
    """

    code: BinaryCode
    n_models: int
    n_leads: int = LEADS

    @property
    def n_last(self) -> int:
        """The number of last symbols that have rows of weights of their own; others share these.

        The start of a sequence counts as a symbol.
        """
        return max(1, min(self.code.size + 1, MAX_ROWS // self.code.n_nodes))

    @property
    def n_pairs(self) -> int:
        """The number of rows of weights for pairs of last symbols, at most ``MAX_ROWS // 2``, which pairs may share."""
        return min((self.code.size + 1) ** 2, MAX_ROWS // 2)

    @property
    def n_bins(self) -> int:
        """The number of bins to which the log-odds of one model are rounded when they choose a row of weights."""
        return N_BINS[self.n_models - 1] if self.n_models <= len(N_BINS) else FEWEST_BINS

    @property
    def n_binned(self) -> int:
        """The number of models, the first ones, whose log-odds choose rows of weights."""
        return min(self.n_models, MOST_BINNED)

    @property
    def bins_at(self) -> int:
        """The index of the first row of the set of rows among which the models' log-odds choose."""
        return self.code.n_nodes * (1 + self.n_last) + self.n_pairs

    @property
    def leads_at(self) -> int:
        """The index of the first row of the set of rows among which the best model of the last symbols chooses."""
        return self.bins_at + int(self.n_bins**self.n_binned)

    @property
    def n_rows(self) -> int:
        return self.leads_at + (1 + self.n_leads * self.n_models) * (self.code.n_bits + 1)

    @property
    def odds_bins(self) -> OddsBins:
        """The set of rows of weights among which the models' log-odds choose, for compiled loops."""
        return OddsBins(self.bins_at, self.n_bins, self.n_binned, LARGEST_BINNED)

    @property
    def leads(self) -> Leads:
        """The set of rows of weights among which the best model of the last symbols chooses, for compiled loops."""
        return Leads(self.leads_at, self.n_leads, LEAD_STEP, RECENT_DECAY)

    def contexts(self, last: np.ndarray, before: np.ndarray) -> np.ndarray:
        """Return the rows that the last two symbols choose in the first three sets of rows, ``(..., 3)``.

        They are the first row of a block, to which the number of a decision's node is added, or ``-1 - row`` for a
        single row.

        Args:
            last: last symbol, ``(...)``; V, the number of symbols, stands for the start of the sequence.
            before: symbol before the last, ``(...)``.
        """
        n_nodes = self.code.n_nodes
        block = n_nodes * (1 + last % self.n_last)
        pair = n_nodes * (1 + self.n_last) + (last * (self.code.size + 1) + before) % self.n_pairs
        return np.stack([np.zeros_like(block), block, -1 - pair], axis=-1)

    def binned(self, log_odds: np.ndarray) -> np.ndarray:
        """Return the index of the row of weights that a decision's log-odds under the models choose, ``(...)``.

        Args:
            log_odds: log-odds of the decision under each of K models, ``(..., K)``.
        """
        n = self.n_bins
        bins = np.floor((log_odds[..., : self.n_binned] + LARGEST_BINNED) * (n / (2 * LARGEST_BINNED)))
        place = n ** np.arange(self.n_binned - 1, -1, -1)
        return np.asarray(self.bins_at + (np.clip(bins, 0, n - 1).astype(np.int64) * place).sum(-1))

    def lead(self, recent: np.ndarray) -> np.ndarray:
        """Return the index of the row of weights that the last symbols' best model, and its lead, choose, ``(n,)``.

        It is the row for the first decision of a symbol; the rows of the other decisions follow it.

        Args:
            recent: mean log-probability of the last symbols under each of K models, ``(n, K)`` in nats.
        """
        best = recent.argmax(-1)
        others = np.sort(recent, axis=-1)
        lead = others[:, -1] - others[:, -2] if self.n_models > 1 else np.zeros(len(recent))
        level = np.minimum(np.floor(lead / LEAD_STEP + 0.5), self.n_leads).astype(np.int64)
        number = np.where(level > 0, self.n_leads * best + level, 0)
        return np.asarray(self.leads_at + number * (self.code.n_bits + 1))


@dataclass(frozen=True)
class GatedDecisions:
    """The symbols of a sequence as binary decisions, B for each of T steps, with what chooses their mixing weights.

    Attributes:
        bits: outcome of each decision, ``(T, B)``; -1 where there is nothing to decide.
        nodes: node of each decision in the binary code, ``(T, B)``.
        contexts: rows of weights that the last two symbols choose, ``(T, 3)``, see ``Layout.contexts``.
    """

    bits: np.ndarray
    nodes: np.ndarray
    contexts: np.ndarray

    @classmethod
    def of(cls, layout: Layout, values: np.ndarray) -> GatedDecisions:
        """Return the binary decisions of a sequence.

        Args:
            layout: binary code of the symbols, and order of the rows of weights.
            values: encoded symbols of the sequence, ``(S,)``.
        """
        code = layout.code
        decisions = BinaryDecisions.of(code, values)
        past, n_steps = np.concatenate([[code.size, code.size], np.asarray(values, np.int64)]), len(decisions.bits)
        contexts = layout.contexts(past[1 : n_steps + 1], past[:n_steps])
        return cls(decisions.bits, decisions.nodes, contexts)


def log_sigmoid(x: np.ndarray) -> np.ndarray:
    """Return ``log(1 / (1 + exp(-x)))``, element by element."""
    return np.asarray(np.minimum(x, 0.0) - np.log1p(np.exp(-np.abs(x))))


@dataclass(frozen=True)
class SymbolGate:
    """A fitted gate for logistic mixing: the weights with which every sequence begins, and their learning rate.

    The log-odds of each binary decision of a symbol are summed over K models with weights that contexts choose.

    Attributes:
        layout: what the R rows of weights stand for.
        weights: weights of K models in all rows, ``(R, K)``.
        rate: learning rate η; 0 if weights stay as they are.
    """

    layout: Layout
    weights: np.ndarray
    rate: float

    @property
    def n_parameters(self) -> int:
        """The number of learned weights, without rows that held-out steps never chose, and 1 for the learning rate."""
        return int(
            (self.weights[self.layout.code.n_nodes :] != 0).sum() + self.weights[: self.layout.code.n_nodes].size + 1
        )

    @classmethod
    def fit(
        cls,
        layout: Layout,
        prior: np.ndarray,
        log_odds: Sequence[np.ndarray],
        decisions: Sequence[GatedDecisions],
        *,
        learns: bool = True,
    ) -> SymbolGate:
        """Return a gate learned by passes over held-out sequences; its rate η is the one that is best in a single pass.

        Args:
            layout: what the rows of weights stand for.
            prior: static weights of the K models, with which the rows of the decisions themselves begin, ``(K,)``;
                others begin with 0.
            log_odds: log-odds of each sequence's B decisions at T steps under each model, ``(T, B, K)``.
            decisions: decisions of each sequence.
            learns: True if weights go on learning within a sequence.
        """
        initial = np.zeros((layout.n_rows, len(prior)))
        initial[: layout.code.n_nodes] = prior
        best = max(RATES, key=lambda rate: _run(layout, initial.copy(), rate, log_odds, decisions))
        weights = initial.copy()
        for n_passes in range(PASSES):
            _run(layout, weights, best / (1 + n_passes), log_odds, decisions)
        return cls(layout, weights, best if learns else 0.0)

    def steps(self, log_odds: Sequence[np.ndarray], decisions: Sequence[GatedDecisions]) -> list[np.ndarray]:
        """Return the log-probability of each step of each sequence in nats, a list of ``(T,)`` arrays.

        Args:
            log_odds: log-odds of the B decisions at each step under each of K models, ``(T, B, K)`` for each sequence.
            decisions: decisions of each sequence.
        """
        # Imported here because numba takes a while to load.
        from seqmodels.wrappers.mixture.kernels import restore_rows

        weights, results = self.weights.copy(), []
        for odds, each in zip(log_odds, decisions, strict=True):
            results.append(_steps(self.layout, weights, self.rate, odds, each))
            if self.rate == 0:
                continue
            restore_rows(each.bits, each.nodes, each.contexts, weights, self.weights)
            weights[self.layout.bins_at :] = self.weights[self.layout.bins_at :]
        return results


def _run(
    layout: Layout,
    weights: np.ndarray,
    rate: float,
    log_odds: Sequence[np.ndarray],
    decisions: Sequence[GatedDecisions],
) -> float:
    """Learn weights in place from sequences, one after the other; return the log-probability of all in nats.

    A step is scored before it is learned from.

    Args:
        layout: what the R rows of weights stand for.
        weights: weights of K models, ``(R, K)``, which are changed.
        rate: learning rate.
        log_odds: log-odds of the B decisions at each step under each model, ``(T, B, K)`` for each sequence.
        decisions: decisions of each sequence.
    """
    each = zip(log_odds, decisions, strict=True)
    return sum(float(_steps(layout, weights, rate, odds, one).sum()) for odds, one in each)


def _steps(
    layout: Layout, weights: np.ndarray, rate: float, log_odds: np.ndarray, decisions: GatedDecisions
) -> np.ndarray:
    """Return the log-probability of each step of one sequence, ``(T,)`` nats, while the weights learn from each.

    Args:
        layout: what the R rows of weights stand for.
        weights: weights of K models, ``(R, K)``, which are changed.
        rate: learning rate.
        log_odds: log-odds of the B decisions at each step under each model, ``(T, B, K)``.
        decisions: the decisions.
    """
    from seqmodels.wrappers.mixture.kernels import gated_symbol_steps

    bits, nodes, contexts = decisions.bits, decisions.nodes, decisions.contexts
    return gated_symbol_steps(log_odds, bits, nodes, contexts, weights, rate, layout.odds_bins, layout.leads)
