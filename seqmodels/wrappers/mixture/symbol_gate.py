"""Logistic mixing of symbols: each is a row of binary decisions, whose log-odds are mixed by weights that learn.

Model k gives each decision of ``binary_code`` log-odds ``l_k``, and the mixture has ``p(1) = sigmoid(w · l)``:
normalised over all symbols, whatever the weights (Mahoney 2005, *Adaptive weighing of context models for lossless data
compression*; Knoll and de Freitas 2012, *A machine learning perspective on predictive coding with PAQ*). w is the sum
of the rows that small contexts choose from sets of weights:

- by the decision, that is by the bits of the symbol so far;
- by the decision and the last symbol;
- by the last two symbols;
- by the log-odds of the models, each in a few bins, so that what a model that is sure counts is learned;
- by the place of the decision in the symbol, and by the model that was best in the last symbols, and by how much.

After a symbol each row that was chosen goes up the gradient of its log-probability: ``w += η (bit - p) l``. A gate that
is to stay as it was fitted has η = 0, and does not look at which model was best.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from seqmodels.encodings.binary_code import BinaryCode, BinaryDecisions
from seqmodels.wrappers.mixture.gate_rows import Leads, OddsBins

RATES = (0.0003, 0.001, 0.003, 0.01)  # of learning
PASSES = 3
MAX_ROWS = 1 << 17  # of a set, beyond which contexts share rows
LARGEST_BINNED = 9.0  # log-odds beyond which all are in the last bin
N_BINS = (9, 9, 9, 5)  # of the log-odds of each of so many models: odd, so that 0 is within a bin
FEWEST_BINS, MOST_BINNED = 3, 6  # of more models these bins, and the first so many of them
RECENT_DECAY = 0.8  # of what models gave to the last symbols
LEAD_STEP, LEADS = 0.125, 4  # nats by which the best model leads


@dataclass(frozen=True)
class Layout:
    """Which rows of weights belong to the decisions of an alphabet.

    Attributes:
        code: the decisions.
        n_models: K.
        n_leads: how many leads of the best model are told apart; 0: weights do not follow which that was.
    """

    code: BinaryCode
    n_models: int
    n_leads: int = LEADS

    @property
    def n_last(self) -> int:
        """Blocks of rows for the last symbol, which may also be the start."""
        return max(1, min(self.code.size + 1, MAX_ROWS // self.code.n_nodes))

    @property
    def n_pairs(self) -> int:
        """Rows for the last two symbols."""
        return min((self.code.size + 1) ** 2, MAX_ROWS // 2)

    @property
    def n_bins(self) -> int:
        """Of one model's log-odds."""
        return N_BINS[self.n_models - 1] if self.n_models <= len(N_BINS) else FEWEST_BINS

    @property
    def n_binned(self) -> int:
        """Models whose log-odds are looked at."""
        return min(self.n_models, MOST_BINNED)

    @property
    def bins_at(self) -> int:
        """The first row that log-odds choose."""
        return self.code.n_nodes * (1 + self.n_last) + self.n_pairs

    @property
    def leads_at(self) -> int:
        """The first row that the best model of the last symbols chooses."""
        return self.bins_at + int(self.n_bins**self.n_binned)

    @property
    def n_rows(self) -> int:
        """How many rows of weights all sets have together."""
        return self.leads_at + (1 + self.n_leads * self.n_models) * (self.code.n_bits + 1)

    @property
    def odds_bins(self) -> OddsBins:
        """The set of rows that log-odds choose."""
        return OddsBins(self.bins_at, self.n_bins, self.n_binned, LARGEST_BINNED)

    @property
    def leads(self) -> Leads:
        """The set of rows that the best model of the last symbols chooses."""
        return Leads(self.leads_at, self.n_leads, LEAD_STEP, RECENT_DECAY)

    def contexts(self, last: np.ndarray, before: np.ndarray) -> np.ndarray:
        """``(..., 3)`` as in ``kernels.gated_symbol_steps``, of the last symbol and the one before; V at the start."""
        n_nodes = self.code.n_nodes
        block = n_nodes * (1 + last % self.n_last)
        pair = n_nodes * (1 + self.n_last) + (last * (self.code.size + 1) + before) % self.n_pairs
        return np.stack([np.zeros_like(block), block, -1 - pair], axis=-1)

    def binned(self, log_odds: np.ndarray) -> np.ndarray:
        """``(...)`` the row that log-odds ``(..., K)`` choose."""
        n = self.n_bins
        bins = np.floor((log_odds[..., : self.n_binned] + LARGEST_BINNED) * (n / (2 * LARGEST_BINNED)))
        place = n ** np.arange(self.n_binned - 1, -1, -1)
        return np.asarray(self.bins_at + (np.clip(bins, 0, n - 1).astype(np.int64) * place).sum(-1))

    def lead(self, recent: np.ndarray) -> np.ndarray:
        """``(n,)`` the row of the first decision that ``recent (n, K)`` nats choose; the others follow it."""
        best = recent.argmax(-1)
        others = np.sort(recent, axis=-1)
        lead = others[:, -1] - others[:, -2] if self.n_models > 1 else np.zeros(len(recent))
        level = np.minimum(np.floor(lead / LEAD_STEP + 0.5), self.n_leads).astype(np.int64)
        number = np.where(level > 0, self.n_leads * best + level, 0)
        return np.asarray(self.leads_at + number * (self.code.n_bits + 1))


@dataclass(frozen=True)
class GatedDecisions:
    """A sequence as decisions: ``bits (T, B)``, ``nodes (T, B)``, rows that they choose: ``contexts (T, 3)``."""

    bits: np.ndarray
    nodes: np.ndarray
    contexts: np.ndarray

    @classmethod
    def of(cls, layout: Layout, values: np.ndarray) -> GatedDecisions:
        """Of encoded symbols ``(S,)``."""
        code = layout.code
        decisions = BinaryDecisions.of(code, values)
        past, n_steps = np.concatenate([[code.size, code.size], np.asarray(values, np.int64)]), len(decisions.bits)
        contexts = layout.contexts(past[1 : n_steps + 1], past[:n_steps])
        return cls(decisions.bits, decisions.nodes, contexts)


def log_sigmoid(x: np.ndarray) -> np.ndarray:
    """``log(1 / (1 + exp(-x)))``."""
    return np.asarray(np.minimum(x, 0.0) - np.log1p(np.exp(-np.abs(x))))


@dataclass(frozen=True)
class SymbolGate:
    """Fitted sets of weights, with which every sequence begins.

    Attributes:
        layout: of the symbols.
        weights: ``(R, K)``.
        rate: η; 0: weights stay as they are.
    """

    layout: Layout
    weights: np.ndarray
    rate: float

    @property
    def n_parameters(self) -> int:
        """Weights of the rows that held-out steps chose."""
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
        """Passes over held-out sequences, from the static weights; η is the best of the first pass.

        ``learns``: whether weights go on learning within a sequence.
        """
        initial = np.zeros((layout.n_rows, len(prior)))
        initial[: layout.code.n_nodes] = prior
        best = max(RATES, key=lambda rate: _run(layout, initial.copy(), rate, log_odds, decisions))
        weights = initial.copy()
        for n_passes in range(PASSES):
            _run(layout, weights, best / (1 + n_passes), log_odds, decisions)
        return cls(layout, weights, best if learns else 0.0)

    def steps(self, log_odds: Sequence[np.ndarray], decisions: Sequence[GatedDecisions]) -> list[np.ndarray]:
        """Nats of each step of each sequence."""
        # Imported here: numba takes a while to load.
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
    """Learn from sequences, one after the other; the nats of all, each step before it was learned from."""
    each = zip(log_odds, decisions, strict=True)
    return sum(float(_steps(layout, weights, rate, odds, one).sum()) for odds, one in each)


def _steps(
    layout: Layout, weights: np.ndarray, rate: float, log_odds: np.ndarray, decisions: GatedDecisions
) -> np.ndarray:
    """``(T,)`` nats; ``weights`` are changed."""
    from seqmodels.wrappers.mixture.kernels import gated_symbol_steps

    bits, nodes, contexts = decisions.bits, decisions.nodes, decisions.contexts
    return gated_symbol_steps(log_odds, bits, nodes, contexts, weights, rate, layout.odds_bins, layout.leads)
