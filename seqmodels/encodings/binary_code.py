"""Symbols as rows of binary decisions, and the log-odds that a distribution over symbols gives to each of them.

A symbol of an alphabet of V is ``D = ceil(log2 V)`` bits, read from the highest, after the decision whether the
sequence ends here. A decision's log-odds are ``log(p(1) / p(0))``, of the sums of the probabilities on either side.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

LIMIT = 12.0  # of log-odds: what is given no probability has odds of exp(-12), so that they stay finite
STEPS_AT_ONCE = 4_096


@dataclass(frozen=True)
class BinaryCode:
    """Which decisions the symbols of an alphabet are.

    Nodes are numbered as in a heap: 0 is the end, 1 the highest bit, 2i and 2i + 1 are those after node i.

    Attributes:
        size: V.
        has_end: whether the end is an event.
    """

    size: int
    has_end: bool

    @property
    def n_bits(self) -> int:
        """D, the binary digits of the largest symbol: how many decisions a symbol takes, but for that of the end."""
        return max(0, int(self.size - 1).bit_length())

    @property
    def n_nodes(self) -> int:
        """How many different decisions there are, with that of the end."""
        return 1 << self.n_bits

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
class BinaryDecisions:
    """A sequence as decisions: ``bits (T, B)``, -1 where there is nothing to decide; ``nodes (T, B)``.

    B is D + 1: the end first.
    """

    bits: np.ndarray
    nodes: np.ndarray

    @classmethod
    def of(cls, code: BinaryCode, values: np.ndarray) -> BinaryDecisions:
        """Of encoded symbols ``(S,)``; under ``has_end`` the end is one step more, and cannot be the first."""
        values = np.asarray(values, np.int64)
        n, n_bits = len(values), code.n_bits
        n_steps = n + code.has_end
        bits, nodes = np.full((n_steps, n_bits + 1), -1), np.zeros((n_steps, n_bits + 1), np.int64)
        if code.has_end:
            bits[1:, 0], bits[n, 0] = 0, 1
        for depth in range(n_bits):
            node = (1 << depth) + (values >> (n_bits - depth))
            bit = (values >> (n_bits - 1 - depth)) & 1
            bits[:n, depth + 1] = np.where(code.is_open(node, depth), bit, -1)
            nodes[:n, depth + 1] = node
        return cls(bits, nodes)


def log_odds_of_path(code: BinaryCode, log_p: np.ndarray, values: np.ndarray) -> np.ndarray:
    """``(T, B)`` of the decisions of a sequence of symbols ``values (S,)``, of a model's ``log_p (T, E)``.

    0 where there is nothing to decide.
    """
    decisions = BinaryDecisions.of(code, values)
    result = np.zeros(decisions.bits.shape)
    for a in range(0, len(log_p), STEPS_AT_ONCE):
        p = np.exp(log_p[a : a + STEPS_AT_ONCE].astype(np.float64))
        sums, row = code.sums(p), np.arange(len(p))
        part = result[a : a + STEPS_AT_ONCE]
        for depth in range(code.n_bits):
            first = 2 * (decisions.nodes[a : a + STEPS_AT_ONCE, depth + 1] - (1 << depth))
            first = np.maximum(first, 0)  # at the end there are no bits
            part[:, depth + 1] = _log_odds(sums[depth + 1][row, first + 1], sums[depth + 1][row, first])
        if code.has_end:
            part[:, 0] = _log_odds(p[:, code.size], sums[0][:, 0])
    result[decisions.bits < 0] = 0.0
    return result


def log_odds_of_all(code: BinaryCode, log_p: np.ndarray) -> np.ndarray:
    """``(N, n_nodes)`` of every decision, of ``log_p (N, E)``."""
    p = np.exp(log_p)
    sums = code.sums(p)
    each = [_log_odds(level[:, 1::2], level[:, ::2]) for level in sums[1:]]
    end = _log_odds(p[:, code.size], sums[0][:, 0]) if code.has_end else np.zeros(len(p))
    return np.concatenate([end[:, None], *each], axis=1)


def limited(odds: np.ndarray) -> np.ndarray:
    """Log-odds within ``LIMIT``; 0 where neither side has any probability."""
    return np.asarray(np.clip(np.nan_to_num(odds, nan=0.0, posinf=LIMIT, neginf=-LIMIT), -LIMIT, LIMIT))


def _log_odds(p_one: np.ndarray, p_zero: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore", invalid="ignore"):
        return limited(np.log(p_one) - np.log(p_zero))
