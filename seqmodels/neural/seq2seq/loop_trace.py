"""What a loop over the decoder's steps keeps and returns, for each way to compute it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

Product = Callable[[Tensor], Tensor]  # of rows with a weight


@dataclass(frozen=True)
class Trace:
    """What the forward pass keeps for the backward pass; cells and gates in float32 at least.

    Attributes:
        states, cells: (T + 1, B, d), before each step and after the last.
        gates: (T, B, 4 d), after σ; of the candidate, ``tanh(z) = 2 σ(2 z) - 1``, it is ``σ(2 z)``.
        tanh_cells: ``tanh`` of the cells (T, B, d).
        contexts: (T, B, d).
        weights: of attention (T, G, S).
        queries: (T, B, m), none where the states are themselves the queries.
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
        """Empty, but for the first state and cell, and what is projected in the place of the gates."""
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
        """The state before each step (B, d), its gates, context and weights."""
        return zip(
            self.states[:-1].unbind(), self.gates.unbind(), self.contexts.unbind(), self.weights.unbind(), strict=True
        )

    def query(self, t: int | slice) -> Tensor:
        """Of one step (B, m) or of several (T, B, m)."""
        return self.queries[t] if self.queries.shape[2] else self.states[:-1][t]


@dataclass(frozen=True)
class LoopGradients:
    """What a backward loop finds.

    Attributes:
        d_products: of the products of each previous state (T, B, 4 d + m): its part of the gates, and the query.
        d_contexts: (T, B, d).
        d_scores: (T, G, S).
        d_h, d_c: of the first state and cell (B, d).
    """

    d_products: Tensor
    d_contexts: Tensor
    d_scores: Tensor
    d_h: Tensor
    d_c: Tensor


class Loop(ABC):
    """All steps forwards, and then back."""

    @abstractmethod
    def forward(self, trace: Trace, from_state: Product, from_context: Product, query_bias: Tensor) -> None:
        """Fill the trace.

        Args:
            trace: as ``Trace.start`` makes it.
            from_state: (B, d) -> (B, 4 d + m), the product with V and Q.
            from_context: (B, d) -> (B, 4 d), with F.
            query_bias: (m,).
        """

    @abstractmethod
    def backward(
        self, trace: Trace, from_gates: Product, from_query: Product | None, received: tuple[Tensor, Tensor, Tensor]
    ) -> LoopGradients:
        """From the last step to the first.

        Args:
            trace: as it was filled.
            from_gates: gradients of gates (B, 4 d) -> those of the context and of the previous state (B, 2 d).
            from_query: of queries (B, m) -> of the previous state (B, d); None: that is itself the query.
            received: gradients of states (T, B, d), contexts (T, B, d) and the last cell (B, d).
        """

    @abstractmethod
    def key_gradients(self, d_scores: Tensor, queries: Tensor) -> tuple[Tensor, Tensor | None]:
        """All steps' (T, G, S) and queries (T, G, d) -> gradients of the keys (G, S, d), and energy (d,) or None.

        Called after ``backward``.
        """
