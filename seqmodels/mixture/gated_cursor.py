"""Logistic mixing one step at a time; weights that learn are copied when they change, so that states stay values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from seqmodels.generation import Cursor, CursorState, Prediction, Source
from seqmodels.mixture.cursor import categorical
from seqmodels.mixture.symbol_gate import GatedDecisions, SymbolGate, log_odds_of_all, log_sigmoid

# The rows of one sequence that differ from the fitted ones, by the number that ``Layout.contexts`` gives their block.
Changed = dict[int, np.ndarray]


@dataclass(frozen=True)
class GatedState:
    """``members``: the state of each; ``changed``: weights of each sequence; ``last``, ``before``: symbols ``(n,)``."""

    members: tuple[CursorState, ...]
    changed: tuple[Changed, ...]
    last: np.ndarray
    before: np.ndarray
    is_first: bool


@dataclass(frozen=True)
class GatedCursor:
    """The predictions of ``members`` mixed by a ``gate``."""

    members: list[Cursor]
    gate: SymbolGate

    def start(self, source: Source = None, n: int = 1) -> GatedState:
        """Before the first step of ``n`` sequences: the fitted weights."""
        start = np.full(n, self.gate.layout.size)
        return GatedState(tuple(cursor.start(source, n) for cursor in self.members), ({},) * n, start, start, True)

    def advance(self, state: GatedState, x: Tensor) -> GatedState:
        """Weights learn from symbols ``x (n,)``, and every member reads them."""
        symbols = x.cpu().numpy().astype(np.int64)
        odds, weights = self._log_odds(self._predictions(state)), self._weights(state)
        z, contexts = np.einsum("nik,nik->ni", odds, weights), self._contexts(state)
        changed = []
        for i, symbol in enumerate(symbols):
            path = GatedDecisions.of(self.gate.layout, symbol[None])
            bits, nodes = path.bits[0].copy(), path.nodes[0]
            if self.gate.layout.has_end and not state.is_first:
                bits[0] = 0
            decided = bits >= 0
            nodes = nodes[decided]
            p = np.exp(log_sigmoid(z[i, nodes]))
            step = self.gate.rate * (bits[decided] - p)[:, None] * odds[i, nodes]  # (B, K)
            changed.append(self._after(state.changed[i], contexts[i], nodes, step))
        members = tuple(cursor.advance(s, x) for cursor, s in zip(self.members, state.members, strict=True))
        return GatedState(members, tuple(changed), symbols, state.last, False)

    def distribution(self, state: GatedState) -> Prediction:
        """All symbols, and the end, which cannot come first."""
        layout, predictions = self.gate.layout, self._predictions(state)
        z = np.einsum("nik,nik->ni", self._log_odds(predictions), self._weights(state))  # (n, n_nodes)
        log_p = np.zeros((len(z), 1))
        for depth in range(layout.n_bits):
            nodes = np.arange(1 << depth, 2 << depth)
            one = np.where(layout.is_open(nodes, depth), z[:, nodes], -np.inf)
            log_p = np.stack([log_p + log_sigmoid(-one), log_p + log_sigmoid(one)], axis=-1).reshape(len(z), -1)
        log_p = log_p[:, : layout.size]
        if layout.has_end:
            end = np.full(len(z), -np.inf) if state.is_first else z[:, 0]
            log_p = np.column_stack([log_p + log_sigmoid(-end)[:, None], log_sigmoid(end)])
        device = predictions[0].output_parameters.device
        return categorical(torch.as_tensor(log_p, device=device), layout.has_end, predictions[0])

    def select(self, state: GatedState, index: Tensor) -> GatedState:
        """Of sequences ``index (m,)``."""
        members = tuple(cursor.select(s, index) for cursor, s in zip(self.members, state.members, strict=True))
        rows = index.cpu().numpy()
        changed = tuple(state.changed[i] for i in rows)
        return GatedState(members, changed, state.last[rows], state.before[rows], state.is_first)

    def _predictions(self, state: GatedState) -> list[Prediction]:
        return [cursor.distribution(s) for cursor, s in zip(self.members, state.members, strict=True)]

    def _log_odds(self, predictions: list[Prediction]) -> np.ndarray:
        """``(n, n_nodes, K)``."""
        each = [log_odds_of_all(self.gate.layout, p.log_probs().cpu().numpy()) for p in predictions]
        return np.stack(each, axis=-1)

    def _contexts(self, state: GatedState) -> np.ndarray:
        """``(n, J)``"""
        return self.gate.layout.contexts(state.last, state.before)

    def _weights(self, state: GatedState) -> np.ndarray:
        """``(n, n_nodes, K)`` the sums of the rows chosen."""
        return np.stack(
            [
                np.sum([self._block(changed, int(c)) for c in row], axis=0)
                for changed, row in zip(state.changed, self._contexts(state), strict=True)
            ]
        )

    def _block(self, changed: Changed, context: int) -> np.ndarray:
        """``(n_nodes, K)`` of a set with nodes, or one row for all of them."""
        if context in changed:
            return changed[context]
        n_nodes, weights = self.gate.layout.n_nodes, self.gate.weights
        if context >= 0:
            return weights[context : context + n_nodes]
        return np.broadcast_to(weights[-1 - context], (n_nodes, weights.shape[1]))

    def _after(self, changed: Changed, contexts: np.ndarray, nodes: np.ndarray, step: np.ndarray) -> Changed:
        after = dict(changed)
        for context in contexts.tolist():
            block = self._block(changed, context)
            if context >= 0:
                block = block.copy()
                block[nodes] += step
                after[context] = block
            else:
                after[context] = np.broadcast_to(block[0] + step.sum(0), block.shape)
        return after
