"""Logistic mixing one step at a time. Weights are copied before they change, so that states stay values."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from seqmodels.encodings.binary_code import BinaryDecisions, log_odds_of_all
from seqmodels.generation import Cursor, CursorState, Prediction, Source
from seqmodels.generation.mixture_cursor import categorical, given_to_each
from seqmodels.wrappers.mixture.symbol_gate import RECENT_DECAY, SymbolGate, log_sigmoid

BLOCK = 64  # number of rows that are copied together
# The rows of weights that one sequence has changed, by the number of their block.
Changed = dict[int, np.ndarray]


@dataclass(frozen=True)
class GatedState:
    """The state of a ``GatedCursor`` for n sequences.

    Attributes:
        members: state of each member's cursor.
        changed: rows of mixing weights that each sequence has changed so far, in blocks of rows by their number.
        last: last symbol, ``(n,)``.
        before: symbol before the last, ``(n,)``.
        recent: decayed mean of the log-probability of the last symbols under each of K models, ``(n, K)`` in nats.
        is_first: True if no step was read yet.
    """

    members: tuple[CursorState, ...]
    changed: tuple[Changed, ...]
    last: np.ndarray
    before: np.ndarray
    recent: np.ndarray
    is_first: bool


@dataclass(frozen=True)
class GatedCursor:
    """A predictor, symbol by symbol, that mixes its members' predictions by logistic mixing with weights that learn.

    Attributes:
        members: cursors of the K members.
        gate: fitted weights, with which every sequence begins.
        columns: for each member, the columns of the mixture's inputs that it reads.
    """

    members: list[Cursor]
    gate: SymbolGate
    columns: list[list[int]]

    def given(self, state: GatedState, inputs: Tensor) -> GatedState:
        """Return the state with the inputs of the next step, which members read before they predict it.

        Args:
            state: state of n sequences.
            inputs: the U inputs of each sequence, ``(n, U)``.
        """
        return replace(state, members=given_to_each(self.members, state.members, self.columns, inputs))

    def start(self, source: Source = None, n: int = 1) -> GatedState:
        """Return the state before the first step of ``n`` sequences, with the fitted weights.

        Args:
            source: source (the x of a model of y given x) of all sequences, or a list with one for each; None if there
                is none.
            n: number of sequences.
        """
        start = np.full(n, self.gate.layout.code.size)
        members = tuple(cursor.start(source, n) for cursor in self.members)
        return GatedState(members, ({},) * n, start, start, np.zeros((n, len(members))), True)

    def advance(self, state: GatedState, x: Tensor) -> GatedState:
        """Return the state after the next symbol of each sequence, which members have read and weights have learned."""
        code, symbols = self.gate.layout.code, x.cpu().numpy().astype(np.int64)
        odds = self._log_odds(self._predictions(state))
        rows = self._rows(state, odds)
        z, changed, given = self._mixed(state, odds, rows), [], np.zeros_like(state.recent)
        for i, symbol in enumerate(symbols):
            path = BinaryDecisions.of(code, symbol[None])
            bits, nodes = path.bits[0].copy(), path.nodes[0]
            if code.has_end and not state.is_first:
                bits[0] = 0
            decided = bits >= 0
            bits, nodes = bits[decided], nodes[decided]
            step = self.gate.rate * (bits - np.exp(log_sigmoid(z[i, nodes])))[:, None] * odds[i, nodes]  # (B, K)
            changed.append(self._after(state.changed[i], rows[i, nodes], step))
            given[i] = log_sigmoid(np.where(bits == 1, 1.0, -1.0)[:, None] * odds[i, nodes]).sum(0)
        members = tuple(cursor.advance(s, x) for cursor, s in zip(self.members, state.members, strict=True))
        recent = RECENT_DECAY * state.recent + (1 - RECENT_DECAY) * given
        return GatedState(members, tuple(changed), symbols, state.last, recent, False)

    def distribution(self, state: GatedState) -> Prediction:
        """Return the prediction of the next symbol of each sequence, and of the end, which cannot come first."""
        code, predictions = self.gate.layout.code, self._predictions(state)
        odds = self._log_odds(predictions)
        z = self._mixed(state, odds, self._rows(state, odds))  # (n, n_nodes)
        log_p = np.zeros((len(z), 1))
        for depth in range(code.n_bits):
            nodes = np.arange(1 << depth, 2 << depth)
            one = np.where(code.is_open(nodes, depth), z[:, nodes], -np.inf)
            log_p = np.stack([log_p + log_sigmoid(-one), log_p + log_sigmoid(one)], axis=-1).reshape(len(z), -1)
        log_p = log_p[:, : code.size]
        if code.has_end:
            end = np.full(len(z), -np.inf) if state.is_first else z[:, 0]
            log_p = np.column_stack([log_p + log_sigmoid(-end)[:, None], log_sigmoid(end)])
        device = predictions[0].output_parameters.device
        return categorical(torch.as_tensor(log_p, device=device), code.has_end, predictions[0])

    def select(self, state: GatedState, index: Tensor) -> GatedState:
        """Return the state of some of the sequences, whose indices are ``index``, ``(m,)``."""
        members = tuple(cursor.select(s, index) for cursor, s in zip(self.members, state.members, strict=True))
        rows = index.cpu().numpy()
        changed = tuple(state.changed[i] for i in rows)
        return GatedState(members, changed, state.last[rows], state.before[rows], state.recent[rows], state.is_first)

    def _predictions(self, state: GatedState) -> list[Prediction]:
        return [cursor.distribution(s) for cursor, s in zip(self.members, state.members, strict=True)]

    def _log_odds(self, predictions: list[Prediction]) -> np.ndarray:
        """Return the log-odds of each binary decision of the next symbol under each of K models, ``(n, n_nodes, K)``.

        Args:
            predictions: prediction of the next symbol of n sequences by each model.
        """
        each = [log_odds_of_all(self.gate.layout.code, p.log_probs().cpu().numpy()) for p in predictions]
        return np.stack(each, axis=-1)

    def _rows(self, state: GatedState, odds: np.ndarray) -> np.ndarray:
        """Return the indices of the J rows of mixing weights that each binary decision chooses, ``(n, n_nodes, J)``.

        Args:
            state: state of n sequences.
            odds: log-odds of the decisions under each of K models, ``(n, n_nodes, K)``.
        """
        layout = self.gate.layout
        node = np.arange(layout.code.n_nodes)
        depth = np.array([int(i).bit_length() for i in node])  # 0 is the end, 1 the highest bit
        contexts = layout.contexts(state.last, state.before)[:, None]  # (n, 1, 3)
        of_contexts = np.where(contexts >= 0, contexts + node[:, None], -1 - contexts)
        of_lead = layout.lead(state.recent)[:, None] + depth
        return np.concatenate([of_contexts, layout.binned(odds)[..., None], of_lead[..., None]], axis=-1)

    def _mixed(self, state: GatedState, odds: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return the log-odds of every binary decision under the mixture, ``(n, n_nodes)``.

        Args:
            state: state of n sequences.
            odds: log-odds of the decisions under each of K models, ``(n, n_nodes, K)``.
            rows: indices of the chosen rows of weights, ``(n, n_nodes, J)``.
        """
        weights = self.gate.weights[rows]  # (n, n_nodes, J, K)
        for i, changed in enumerate(state.changed):
            block = rows[i] // BLOCK
            for number in set(np.unique(block).tolist()) & changed.keys():
                here = block == number
                weights[i, here] = changed[number][rows[i, here] % BLOCK]
        return np.asarray(np.einsum("nik,nijk->ni", odds, weights))

    def _after(self, changed: Changed, rows: np.ndarray, step: np.ndarray) -> Changed:
        """Return what a sequence has changed of the weights after one more symbol, coded by B binary decisions.

        Args:
            changed: blocks of rows of weights that it had changed before.
            rows: indices of the rows that each decision chose, ``(B, J)``.
            step: what is added to the weights of K models in these rows, ``(B, K)``.
        """
        if self.gate.rate == 0:
            return changed
        after = dict(changed)
        block = rows // BLOCK
        for number in np.unique(block).tolist():
            fitted = self.gate.weights[number * BLOCK : (number + 1) * BLOCK]
            weights = changed.get(number, fitted).copy()
            decision, place = np.nonzero(block == number)
            np.add.at(weights, rows[decision, place] % BLOCK, step[decision])
            after[number] = weights
        return after
