"""A symbol as binary decisions: the path from the root of a Huffman tree to its leaf."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np

from seqmodels.array_checks import array_of
from seqmodels.context_tree.contexts import mixed


class DecisionPaths(NamedTuple):
    """The decisions of outcome i are ``first[i]`` to ``first[i + 1]`` of ``nodes`` and ``bits``, from the root on."""

    first: np.ndarray
    nodes: np.ndarray
    bits: np.ndarray


@dataclass(frozen=True)
class Decomposition:
    """A binary tree with one leaf for each outcome: the symbols and, where ends are events, the end, the last.

    Every leaf is an outcome, so that the probabilities of all outcomes sum to one. Willems & Tjalkens 1997, *Complexity
    reduction of the context-tree weighting algorithm*; by Huffman's codes, frequent symbols take few decisions.

    Args:
        children: ``(N, 2)`` of the N inner nodes, parents before children, the root 0: a node, or ``-1 - outcome``.
        n_outcomes: N + 1.
    """

    children: np.ndarray
    n_outcomes: int

    @classmethod
    def of_counts(cls, counts: np.ndarray) -> Self:
        """Huffman's tree of how often each outcome came; one that never came counts as half a time."""
        n = len(counts)
        heap = [(float(count) + 0.5, i) for i, count in enumerate(counts)]
        heapq.heapify(heap)
        pairs: list[tuple[int, int]] = []  # node n + i has these children
        while len(heap) > 1:
            (one, a), (other, b) = heapq.heappop(heap), heapq.heappop(heap)
            heapq.heappush(heap, (one + other, n + len(pairs)))
            pairs.append((a, b))
        root = n + len(pairs) - 1
        children = [[-1 - child if child < n else root - child for child in pair] for pair in pairs[::-1]]
        return cls(np.array(children, np.int64).reshape(-1, 2), n)

    def paths(self) -> DecisionPaths:
        """The decisions of every outcome, from the root of the tree to its leaf."""
        decisions: list[list[tuple[int, int]]] = [[] for _ in range(self.n_outcomes)]
        reached: list[list[tuple[int, int]]] = [[] for _ in self.children]
        for node, pair in enumerate(self.children.tolist()):
            for bit, child in enumerate(pair):
                path = [*reached[node], (node, bit)]
                if child < 0:
                    decisions[-1 - child] = path
                else:
                    reached[child] = path
        first = np.cumsum([0, *map(len, decisions)], dtype=np.int64)
        flat = np.array([step for path in decisions for step in path], np.int64).reshape(-1, 2)
        return DecisionPaths(first, np.ascontiguousarray(flat[:, 0]), np.ascontiguousarray(flat[:, 1]))

    def node_hashes(self) -> np.ndarray:
        """``(N,)`` int64, from 0 on: what tells the nodes apart in the keys of records."""
        return mixed(np.arange(1, len(self.children) + 1, dtype=np.uint64))

    @classmethod
    def from_state(cls, state: dict[str, Any], n_outcomes: int) -> Self:
        """From a file; ``ValueError`` for what is no such tree."""
        children = array_of(state, "children", np.int64, (n_outcomes - 1, 2))
        expected = [*range(-n_outcomes, 0), *range(1, n_outcomes - 1)] if n_outcomes > 1 else []
        parents = np.repeat(np.arange(len(children)), 2)
        if (
            sorted(children.ravel().tolist()) != expected
            or ((children.ravel() >= 0) & (children.ravel() <= parents)).any()
        ):
            raise ValueError(f"'children' should be a binary tree of {n_outcomes} leaves, parents before children")
        return cls(children, n_outcomes)
