"""Logistic mixing of symbols: each is a row of binary decisions, whose log-odds are mixed by weights that learn.

A symbol of an alphabet of V is ``D = ceil(log2 V)`` bits, read from the highest, after the decision whether the
sequence ends here. Model k gives each decision log-odds ``l_k``, from the sums of its probabilities on either side, and
the mixture has ``p(1) = sigmoid(w · l)``: normalised over all symbols, whatever the weights (Mahoney 2005, *Adaptive
weighing of context models for lossless data compression*; Knoll and de Freitas 2012, *A machine learning perspective
on predictive coding with PAQ*). w is the sum of the rows that small contexts choose from sets of weights:

- by the decision, that is by the bits of the symbol so far;
- by the decision and the last symbol;
- by the last two symbols.

After a symbol each row that was chosen goes up the gradient of its log-probability: ``w += η (bit - p) l``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

RATES = (0.0003, 0.001, 0.003, 0.01)  # of learning
PASSES = 3
LIMIT = 12.0  # of log-odds: what a model gives no probability has exp(-12) of it, so that weights stay finite
MAX_ROWS = 1 << 17  # of a set, beyond which contexts share rows
STEPS_AT_ONCE = 4_096


@dataclass(frozen=True)
class Layout:
    """Which decisions the symbols of an alphabet are, and which rows of weights belong to them.

    Nodes are numbered as in a heap: 0 is the end, 1 the highest bit, 2i and 2i + 1 are those after node i.

    Attributes:
        size: V.
        has_end: whether the end is an event.
    """

    size: int
    has_end: bool

    @property
    def n_bits(self) -> int:
        """D."""
        return max(0, int(self.size - 1).bit_length())

    @property
    def n_nodes(self) -> int:
        """Of all decisions, with that of the end."""
        return 1 << self.n_bits

    @property
    def n_last(self) -> int:
        """Blocks of rows for the last symbol, which may also be the start."""
        return max(1, min(self.size + 1, MAX_ROWS // self.n_nodes))

    @property
    def n_pairs(self) -> int:
        """Rows for the last two symbols."""
        return min((self.size + 1) ** 2, MAX_ROWS // 2)

    @property
    def n_rows(self) -> int:
        """Of all sets."""
        return self.n_nodes * (1 + self.n_last) + self.n_pairs

    def contexts(self, last: np.ndarray, before: np.ndarray) -> np.ndarray:
        """``(..., 3)`` as in ``kernels.gated_symbol_steps``, of the last symbol and the one before; V at the start."""
        block = self.n_nodes * (1 + last % self.n_last)
        pair = self.n_nodes * (1 + self.n_last) + (last * (self.size + 1) + before) % self.n_pairs
        return np.stack([np.zeros_like(block), block, -1 - pair], axis=-1)

    def is_open(self, nodes: np.ndarray, depth: int) -> np.ndarray:
        """Whether a node of bit ``depth`` has symbols on both sides."""
        return ((2 * nodes + 1) << (self.n_bits - 1 - depth)) - (1 << self.n_bits) < self.size

    def sums(self, p: np.ndarray) -> list[np.ndarray]:
        """For each depth 0 .. D the probabilities ``(N, 2^depth)`` of symbols below each node, of ``p (N, E)``."""
        leaves = np.zeros((len(p), 1 << self.n_bits))
        leaves[:, : self.size] = p[:, : self.size]
        levels = [leaves]
        for _ in range(self.n_bits):
            levels.insert(0, levels[0][:, ::2] + levels[0][:, 1::2])
        return levels


@dataclass(frozen=True)
class GatedDecisions:
    """A sequence as decisions: ``bits (T, B)``, -1 where there is nothing to decide; ``nodes (T, B)``; ``contexts``.

    B is D + 1: the end first.
    """

    bits: np.ndarray
    nodes: np.ndarray
    contexts: np.ndarray

    @classmethod
    def of(cls, layout: Layout, values: np.ndarray) -> GatedDecisions:
        """Of encoded symbols ``(S,)``; under ``has_end`` the end is one step more, and cannot be the first."""
        values = np.asarray(values, np.int64)
        n, n_bits = len(values), layout.n_bits
        n_steps = n + layout.has_end
        bits, nodes = np.full((n_steps, n_bits + 1), -1), np.zeros((n_steps, n_bits + 1), np.int64)
        if layout.has_end:
            bits[1:, 0], bits[n, 0] = 0, 1
        for depth in range(n_bits):
            node = (1 << depth) + (values >> (n_bits - depth))
            bit = (values >> (n_bits - 1 - depth)) & 1
            bits[:n, depth + 1] = np.where(layout.is_open(node, depth), bit, -1)
            nodes[:n, depth + 1] = node
        past = np.concatenate([[layout.size, layout.size], values])
        contexts = layout.contexts(past[1 : n_steps + 1], past[:n_steps])
        return cls(bits, nodes, contexts)


def log_odds_of_path(layout: Layout, log_p: np.ndarray, decisions: GatedDecisions) -> np.ndarray:
    """``(T, B)`` of the decisions of a sequence, of one model's ``log_p (T, E)``."""
    result = np.zeros(decisions.bits.shape)
    for a in range(0, len(log_p), STEPS_AT_ONCE):
        p = np.exp(log_p[a : a + STEPS_AT_ONCE].astype(np.float64))
        sums, row = layout.sums(p), np.arange(len(p))
        part = result[a : a + STEPS_AT_ONCE]
        for depth in range(layout.n_bits):
            first = 2 * (decisions.nodes[a : a + STEPS_AT_ONCE, depth + 1] - (1 << depth))
            first = np.maximum(first, 0)  # at the end there are no bits
            part[:, depth + 1] = _log_odds(sums[depth + 1][row, first + 1], sums[depth + 1][row, first])
        if layout.has_end:
            part[:, 0] = _log_odds(p[:, layout.size], sums[0][:, 0])
    return result


def log_odds_of_all(layout: Layout, log_p: np.ndarray) -> np.ndarray:
    """``(N, n_nodes)`` of every decision, of ``log_p (N, E)``."""
    p = np.exp(log_p)
    sums = layout.sums(p)
    each = [_log_odds(level[:, 1::2], level[:, ::2]) for level in sums[1:]]
    end = _log_odds(p[:, layout.size], sums[0][:, 0]) if layout.has_end else np.zeros(len(p))
    return np.concatenate([end[:, None], *each], axis=1)


def _log_odds(p_one: np.ndarray, p_zero: np.ndarray) -> np.ndarray:
    """Within ``LIMIT``; 0 where a model gives neither any probability."""
    with np.errstate(divide="ignore", invalid="ignore"):
        odds = np.log(p_one) - np.log(p_zero)
    return np.asarray(np.clip(np.nan_to_num(odds, nan=0.0, posinf=LIMIT, neginf=-LIMIT), -LIMIT, LIMIT))


def log_sigmoid(x: np.ndarray) -> np.ndarray:
    """``log(1 / (1 + exp(-x)))``."""
    return np.asarray(np.minimum(x, 0.0) - np.log1p(np.exp(-np.abs(x))))


@dataclass(frozen=True)
class SymbolGate:
    """Fitted sets of weights, with which every sequence begins.

    Attributes:
        layout: of the symbols.
        weights: ``(R, K)``.
        rate: η.
        n_changed: rows that learning has changed.
    """

    layout: Layout
    weights: np.ndarray
    rate: float

    @property
    def n_parameters(self) -> int:
        """Weights of the rows that held-out steps chose."""
        return int((self.weights[self.layout.n_nodes :] != 0).sum() + self.weights[: self.layout.n_nodes].size + 1)

    @classmethod
    def fit(
        cls, layout: Layout, prior: np.ndarray, log_odds: Sequence[np.ndarray], decisions: Sequence[GatedDecisions]
    ) -> SymbolGate:
        """Passes over held-out sequences, from the static weights; η is the best of the first pass."""
        initial = np.zeros((layout.n_rows, len(prior)))
        initial[: layout.n_nodes] = prior
        best = max(RATES, key=lambda rate: _run(initial.copy(), rate, log_odds, decisions))
        weights = initial.copy()
        for n_passes in range(PASSES):
            _run(weights, best / (1 + n_passes), log_odds, decisions)
        return cls(layout, weights, best)

    def steps(self, log_odds: Sequence[np.ndarray], decisions: Sequence[GatedDecisions]) -> list[np.ndarray]:
        """Nats of each step of each sequence."""
        # Imported here: numba takes a while to load.
        from seqmodels.mixture.kernels import gated_symbol_steps, restore_rows

        weights, results = self.weights.copy(), []
        for odds, each in zip(log_odds, decisions, strict=True):
            results.append(gated_symbol_steps(odds, each.bits, each.nodes, each.contexts, weights, self.rate))
            restore_rows(each.bits, each.nodes, each.contexts, weights, self.weights)
        return results


def _run(
    weights: np.ndarray, rate: float, log_odds: Sequence[np.ndarray], decisions: Sequence[GatedDecisions]
) -> float:
    """Learn from sequences, one after the other; the nats of all, each step before it was learned from."""
    from seqmodels.mixture.kernels import gated_symbol_steps

    nats = 0.0
    for odds, each in zip(log_odds, decisions, strict=True):
        nats += float(gated_symbol_steps(odds, each.bits, each.nodes, each.contexts, weights, rate).sum())
    return nats
