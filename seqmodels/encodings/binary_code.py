"""Symbols as sequences of binary decisions, and the log-odds that a distribution over symbols gives each decision.

A symbol of an alphabet of V symbols is coded by ``D = ceil(log2 V)`` bits, highest bit first, after the decision
whether the sequence ends here. The log-odds of a decision are ``log(p(1) / p(0))``, where each probability is the sum
over the symbols on that side.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

LIMIT = 12.0  # bound of log-odds, so that they stay finite: an impossible side gets odds of exp(-12)
STEPS_AT_ONCE = 4_096


@dataclass(frozen=True)
class BinaryCode:
    """The binary decisions that code one symbol of an alphabet, or the end of the sequence.

    Decisions are nodes of a binary tree, numbered as in a heap: node 0 asks whether the sequence ends, node 1 is the
    highest bit, and nodes 2i and 2i + 1 are the next bit after bit 0 or 1 at node i.

    Attributes:
        size: number of symbols V.
        has_end: True if the end of a sequence is an event beside the symbols.
    """

    size: int
    has_end: bool

    @property
    def n_bits(self) -> int:
        """The number of bits of a symbol, which is the number of its decisions without that about the end."""
        return max(0, int(self.size - 1).bit_length())

    @property
    def n_nodes(self) -> int:
        return 1 << self.n_bits

    def is_open(self, nodes: np.ndarray, depth: int) -> np.ndarray:
        """Return a mask of the nodes at which the bit is undecided, because both values lead to symbols.

        Args:
            nodes: numbers of nodes, all at bit ``depth``.
            depth: number of the bit, 0 for the highest.
        """
        return ((2 * nodes + 1) << (self.n_bits - 1 - depth)) - (1 << self.n_bits) < self.size

    def sums(self, p: np.ndarray) -> list[np.ndarray]:
        """Return the probability of the symbols below each node of the tree, ``(N, 2^depth)`` for each depth from 0 on.

        Args:
            p: N distributions over the E events, which are the V symbols and, if ``has_end``, the end, ``(N, E)``.
        """
        leaves = np.zeros((len(p), 1 << self.n_bits))
        leaves[:, : self.size] = p[:, : self.size]
        levels = [leaves]
        for _ in range(self.n_bits):
            levels.insert(0, levels[0][:, ::2] + levels[0][:, 1::2])
        return levels


@dataclass(frozen=True)
class BinaryDecisions:
    """The binary decisions that code a sequence of symbols, B at each of T steps.

    They are whether the sequence ends, and then the B - 1 bits of the symbol, the highest first.

    Attributes:
        bits: outcome of each decision, 0 or 1, ``(T, B)``; -1 if there is nothing to decide.
        nodes: number of the node of ``BinaryCode`` at which each decision is made, ``(T, B)``.
    """

    bits: np.ndarray
    nodes: np.ndarray

    @classmethod
    def of(cls, code: BinaryCode, values: np.ndarray) -> BinaryDecisions:
        """Return the binary decisions that code a sequence of symbols.

        If the end is an event, there are S + 1 steps, else S. The end is not decided at the first step, because
        sequences are not empty.

        Args:
            code: the code of the alphabet.
            values: encoded symbols, ``(S,)``.
        """
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
    """Return the log-odds of the binary decisions that code a sequence of symbols, ``(T, B)``.

    There are T steps, with S symbols and perhaps the end, and B decisions at each. The log-odds are 0 where there is
    nothing to decide.

    Args:
        code: the code of the alphabet.
        log_p: log-probability of each of the E events (symbols and end) at each step, ``(T, E)``.
        values: the symbols, ``(S,)``.
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
    """Return the log-odds of the decision at every node of a code, ``(N, n_nodes)``, for N distributions over symbols.

    Args:
        code: the code of the alphabet.
        log_p: log-probabilities of the E events, the V symbols and, if the code has one, the end, ``(N, E)``.
    """
    p = np.exp(log_p)
    sums = code.sums(p)
    each = [_log_odds(level[:, 1::2], level[:, ::2]) for level in sums[1:]]
    end = _log_odds(p[:, code.size], sums[0][:, 0]) if code.has_end else np.zeros(len(p))
    return np.concatenate([end[:, None], *each], axis=1)


def limited(odds: np.ndarray) -> np.ndarray:
    """Return log-odds clipped to ``-LIMIT .. LIMIT``; NaN, where both outcomes have probability 0, becomes 0.

    Args:
        odds: the log-odds, any shape.
    """
    return np.asarray(np.clip(np.nan_to_num(odds, nan=0.0, posinf=LIMIT, neginf=-LIMIT), -LIMIT, LIMIT))


def _log_odds(p_one: np.ndarray, p_zero: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore", invalid="ignore"):
        return limited(np.log(p_one) - np.log(p_zero))
