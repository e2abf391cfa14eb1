"""The arrays that the decoder loop keeps for its backward pass, and the interface of such a loop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

Product = Callable[[Tensor], Tensor]  # multiplies rows with a weight


@dataclass(frozen=True)
class Trace:
    """The arrays of T steps of B sequences that an LSTM decoder's forward pass keeps for the backward pass.

    Cells and gates are at least float32.

    Attributes:
        states, cells: states h and cells c before each step and after the last, ``(T + 1, B, d)`` each.
        gates: gates after σ, ``(T, B, 4 d)``; for the candidate ``tanh(z) = 2 σ(2 z) - 1``, ``σ(2 z)`` is stored.
        tanh_cells: ``tanh`` of the cells, ``(T, B, d)``.
        contexts: contexts of the attention, ``(T, B, d)``.
        weights: attention weights on S keys of G groups (sequences, or heads of them), ``(T, G, S)``.
        queries: queries of width m, ``(T, B, m)``; m = 0 if the states themselves are the queries.
    """

    states: Tensor
    cells: Tensor
    gates: Tensor
    tanh_cells: Tensor
    contexts: Tensor
    weights: Tensor
    queries: Tensor

    @classmethod
    def start(cls, projected: Tensor, h: Tensor, c: Tensor, query_bias: Tensor, mask_bias: Tensor) -> Trace:
        """Return a trace with the first state and cell filled in, and ``projected`` in the place of the gates.

        A trace is the arrays of T steps of B sequences that the backward pass needs.

        Args:
            projected: contribution of inputs and biases to the gates, ``(T, B, 4 d)``.
            h, c: state before the first step, ``(B, d)`` each.
            query_bias: bias of the query of width m, ``(m,)``; m = 0 if the states are the queries.
            mask_bias: 0, or -inf at padding of S keys in G groups (sequences, or heads of them), ``(G, S)``.
        """
        n_steps, n_rows, _ = projected.shape
        cells = c.new_empty(n_steps + 1, *c.shape, dtype=torch.promote_types(c.dtype, torch.float32))
        states = projected.new_empty(cells.shape)
        weights = mask_bias.new_empty(n_steps, *mask_bias.shape)
        states[0], cells[0] = h, c
        queries = cells.new_empty(n_steps, n_rows, len(query_bias))
        gates = cells.new_empty(projected.shape).copy_(projected)
        return cls(states, cells, gates, torch.empty_like(cells[1:]), torch.empty_like(states[1:]), weights, queries)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return self.states, self.cells, self.gates, self.tanh_cells, self.contexts, self.weights, self.queries

    def steps(self) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
        """Yield, for each step, views of the state before it, its gates, its context and its attention weights."""
        return zip(
            self.states[:-1].unbind(), self.gates.unbind(), self.contexts.unbind(), self.weights.unbind(), strict=True
        )

    def query(self, t: int | slice) -> Tensor:
        """Return the queries of one step, ``(B, m)``, or of several (a slice ``t``), ``(T, B, m)``.

        If the states themselves are the queries, they are the states before the steps.
        """
        return self.queries[t] if self.queries.shape[2] else self.states[:-1][t]


@dataclass(frozen=True)
class LoopGradients:
    """The gradients that the backward pass of a decoder loop returns, for T steps of B sequences.

    There are S keys in G groups: sequences, or heads of them.

    Attributes:
        d_products: gradients of the products of weights with each previous state, ``(T, B, 4 d + m)``: for the gates,
            then for the query of width m.
        d_contexts: gradients of the contexts, ``(T, B, d)``.
        d_scores: gradients of the attention scores, ``(T, G, S)``.
        d_h, d_c: gradients of the first state and cell, ``(B, d)`` each.
    """

    d_products: Tensor
    d_contexts: Tensor
    d_scores: Tensor
    d_h: Tensor
    d_c: Tensor


class Loop(ABC):
    """A loop over all steps of an LSTM decoder with attention, forwards and back, with hand-written gradients.

    To add one, define these methods.
    """

    @abstractmethod
    def forward(self, trace: Trace, from_state: Product, from_context: Product, query_bias: Tensor) -> None:
        """Run all steps of the decoder, and fill the trace: the arrays that the backward pass needs.

        B sequences have states of width d; V, Q and F are the weights of the previous state for the gates and for the
        query (of width m), and of the context for the gates.

        Args:
            trace: trace that ``Trace.start`` returned.
            from_state: function from states, ``(B, d)``, to their product with V and Q, ``(B, 4 d + m)``.
            from_context: function from contexts, ``(B, d)``, to their product with F, ``(B, 4 d)``.
            query_bias: bias of the query, ``(m,)``.
        """

    @abstractmethod
    def backward(
        self, trace: Trace, from_gates: Product, from_query: Product | None, received: tuple[Tensor, Tensor, Tensor]
    ) -> LoopGradients:
        """Run back from the last step of the decoder to the first, and return the gradients.

        There are T steps of B sequences; states have width d and queries width m.

        Args:
            trace: trace that ``forward`` filled.
            from_gates: function from gradients of gates, ``(B, 4 d)``, to those of the context and of the previous
                state, ``(B, 2 d)``.
            from_query: function from gradients of queries, ``(B, m)``, to those of the previous state, ``(B, d)``; None
                if the state itself is the query.
            received: incoming gradients of states, ``(T, B, d)``, contexts, ``(T, B, d)``, and the last cell,
                ``(B, d)``.
        """

    @abstractmethod
    def key_gradients(self, d_scores: Tensor, queries: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the gradients of the keys, ``(G, S, d)``, and of the energy weights, ``(d,)``, after ``backward``.

        There are S keys in G groups: sequences, or heads of them. The latter are None for a score without energy
        weights.

        Args:
            d_scores: gradients of the scores of T steps, ``(T, G, S)``.
            queries: queries of all steps, ``(T, G, d)``.
        """
