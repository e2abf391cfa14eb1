"""The decomposition of a symbol into binary decisions: the path from the root of a Huffman tree to the symbol's
leaf.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np

from seqmodels.common.array_checks import array_of
from seqmodels.counts.context_tree.contexts import mixed


class DecisionPaths(NamedTuple):
    """The binary decisions from the root of a tree to each outcome (a symbol or the end), as flat arrays.

    Attributes:
        first: index of the first decision of each outcome; those of outcome i are ``first[i]`` to ``first[i + 1] - 1``.
        nodes: node of the tree at which each decision is made.
        bits: bit of each decision, 0 or 1.
    """

    first: np.ndarray
    nodes: np.ndarray
    bits: np.ndarray


@dataclass(frozen=True)
class Decomposition:
    """A binary tree with one leaf for each outcome: the symbols and, if ends are events, the end as the last outcome.

    Every leaf is an outcome, so that the probabilities of all outcomes sum to one. With Huffman codes, frequent symbols
    take few decisions. Willems and Tjalkens (1997), *Complexity reduction of the context-tree weighting algorithm*.

    Args:
        children: both children of each of the N inner nodes, ``(N, 2)``: a node, or ``-1 - outcome``. Parents precede
            children, and node 0 is the root.
        n_outcomes: number of outcomes, N + 1.
    """

    children: np.ndarray
    n_outcomes: int

    @classmethod
    def of_counts(cls, counts: np.ndarray) -> Self:
        """Return the Huffman tree for outcomes (symbols, perhaps the end) that occurred ``counts (n_outcomes,)`` times.

        Half a count is added to each.
        """
        n = len(counts)
        order = np.argsort(counts, kind="stable")
        weights, leaves = (np.asarray(counts)[order] + 0.5).tolist(), order.tolist()
        merged: list[float] = []  # weights of nodes n, n + 1, ..; they increase, like those of the leaves
        pairs: list[tuple[int, int]] = []  # their children
        i = j = 0  # the first leaf and the first node without a parent
        for k in range(n - 1):
            weight, pair = 0.0, []
            for _ in range(2):
                if i < n and (j == k or weights[i] <= merged[j]):
                    weight += weights[i]
                    pair.append(leaves[i])
                    i += 1
                else:
                    weight += merged[j]
                    pair.append(n + j)
                    j += 1
            merged.append(weight)
            pairs.append((pair[0], pair[1]))
        root = n + len(pairs) - 1
        children = np.array(pairs[::-1], np.int64).reshape(-1, 2)
        return cls(np.where(children < n, -1 - children, root - children), n)

    @cached_property
    def paths(self) -> DecisionPaths:
        """The binary decisions that lead from the root of the tree to the leaf of every outcome."""
        n_nodes, n = len(self.children), self.n_outcomes
        flat, is_leaf = self.children.ravel(), self.children.ravel() < 0
        above, bit_above = np.full((2, n_nodes + n), -1)  # entries for every node, then for every outcome
        index = np.where(is_leaf, n_nodes - 1 - flat, flat)
        above[index], bit_above[index] = np.arange(2 * n_nodes) // 2, np.arange(2 * n_nodes) % 2
        ways = [(above[n_nodes:], bit_above[n_nodes:])]  # the last decision of each outcome, the last but one, ...
        while (ways[-1][0] > 0).any():  # the root is 0
            node = ways[-1][0]
            ways.append((np.where(node > 0, above[node], -1), np.where(node > 0, bit_above[node], -1)))
        depths = np.sum([node >= 0 for node, _ in ways], axis=0)
        first = np.concatenate([[0], np.cumsum(depths)])
        nodes, bits = np.empty((2, first[-1]), np.int64)
        for k, (node, bit) in enumerate(ways):
            has = node >= 0
            at = first[1:][has] - 1 - k
            nodes[at], bits[at] = node[has], bit[has]
        return DecisionPaths(first, nodes, bits)

    def node_hashes(self) -> np.ndarray:
        """Return a hash of each of the N inner nodes, ``(N,)`` non-negative int64.

        The key of a pair of a context and a decision is made of the hash of the context and that of the node.
        """
        return mixed(np.arange(1, len(self.children) + 1, dtype=np.uint64))

    @classmethod
    def from_state(cls, state: dict[str, Any], n_outcomes: int) -> Self:
        """Return the tree that a file describes.

        Args:
            state: the array ``children`` by its name.
            n_outcomes: number of leaves.

        Raises:
            ValueError: if it is not a binary tree of ``n_outcomes`` leaves with parents before children.
        """
        children = array_of(state, "children", np.int64, (n_outcomes - 1, 2))
        expected = [*range(-n_outcomes, 0), *range(1, n_outcomes - 1)] if n_outcomes > 1 else []
        parents = np.repeat(np.arange(len(children)), 2)
        if (
            sorted(children.ravel().tolist()) != expected
            or ((children.ravel() >= 0) & (children.ravel() <= parents)).any()
        ):
            raise ValueError(f"'children' should be a binary tree of {n_outcomes} leaves, parents before children")
        return cls(children, n_outcomes)
