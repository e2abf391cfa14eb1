"""An LSTM decoder whose previous state attends to the source, with a hand-written backward pass.

``c_t = attention(q_t)``, ``q_t = Q h_{t-1} + b``; gates ``= projected_t + F c_t + V h_{t-1}``. Everything that is not
needed to go from step to step is computed for all steps at once: the derivatives of the gates before the backward loop,
and the gradients of the weights after it, each as one product.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from seqmodels.common.compiled import is_compiling
from seqmodels.neural.ops.linear import repeated_linear
from seqmodels.neural.seq2seq.loop_trace import Loop, LoopGradients, Product, Trace

COMPILED_FROM = 1 << 15  # number of values in all states of a batch from which the loop is compiled

# -- scores ---------------------------------------------------------------------------------------------------


def additive_score(query: Tensor, key: Tensor, energy: Tensor) -> Tensor:
    """Return the additive attention score ``vᵀ tanh(q + k)``, minus the sum of ``v``, which is the same for all keys.

    This uses ``tanh(z) = 2 σ(2 z) - 1``, because σ is faster than tanh on a CPU.

    Args:
        query: twice the projected query, ``(..., d)``, broadcast against the keys.
        key: twice the projected keys, ``(..., d)``.
        energy: the energy weights v, ``(d,)``.
    """
    return torch.sigmoid(query + key) @ (2.0 * energy)


def dot_score(query: Tensor, key: Tensor) -> Tensor:
    """Return the scores ``qᵀ k / √d``, ``(..., T, S)``, of T queries ``(..., T, d)`` and S keys ``(..., S, d)``."""
    return query @ key.transpose(-2, -1) / math.sqrt(key.shape[-1])


class Scoring(ABC):
    """An attention score in a loop over T steps, and its gradients.

    There are G groups of queries and keys: sequences, or heads of them. Each query is scored against the S keys of its
    group, up to a term that is the same for all keys, which the softmax cancels. To add one, define ``score``,
    ``begin_backward``, ``query_gradient`` and ``gradients``.
    """

    @abstractmethod
    def score(self, query: Tensor, t: int) -> Tensor:
        """Return the scores of step t for S keys of G groups, ``(G, S)``; ``query`` are the step's queries, ``(G, d)``.

        A group is a sequence, or a head of one.
        """

    @abstractmethod
    def begin_backward(self) -> None:
        """Prepare for the backward loop, which runs ``query_gradient`` from the last step to the first."""

    @abstractmethod
    def query_gradient(self, d_score: Tensor, t: int) -> Tensor:
        """Return the gradients of the queries of step t, ``(G, d)``, for G groups: sequences, or heads of them.

        Args:
            d_score: gradients of the step's scores of S keys, ``(G, S)``.
            t: the step.
        """

    @abstractmethod
    def gradients(self, d_scores: Tensor, queries: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the gradients of the keys, ``(G, S, d)``, and of the energy weights, ``(d,)``, after the loop.

        The latter are None for a score without energy weights. The backward loop has then run over all T steps. There
        are S keys and G groups: sequences, or heads of them.

        Args:
            d_scores: gradients of all scores, ``(T, G, S)``.
            queries: all queries, ``(T, G, d)``.
        """


class DotScoring(Scoring):
    """Dot-product attention scores ``qᵀ k / √d`` in a loop over steps, and their gradients.

    Args:
        key: S keys of G groups (sequences, or heads of them), ``(G, S, d)``.
    """

    def __init__(self, key: Tensor) -> None:
        self.scale = 1 / math.sqrt(key.shape[-1])
        self.key = key * self.scale
        self.transposed = self.key.transpose(1, 2)

    def score(self, query: Tensor, t: int) -> Tensor:
        return torch.bmm(query[:, None], self.transposed)[:, 0]

    def begin_backward(self) -> None:
        """Do nothing, because the dot product needs no preparation."""

    def query_gradient(self, d_score: Tensor, t: int) -> Tensor:
        return torch.bmm(d_score[:, None], self.key)[:, 0]

    def gradients(self, d_scores: Tensor, queries: Tensor) -> tuple[Tensor, None]:
        return torch.bmm(d_scores.permute(1, 2, 0), queries.transpose(0, 1)) * self.scale, None


class AdditiveScoring(Scoring):
    """Additive attention scores ``vᵀ tanh(q + k)`` in a loop over steps, and their gradients.

    It keeps (T, G, S, d) numbers for the backward pass, for T steps, S keys and G groups: sequences, or heads of them.

    Args:
        key: twice the projected keys, ``(G, S, d)``.
        energy: energy weights v, ``(d,)``.
        n_steps: number of steps T to keep; 0 if there is no backward pass.
        dtype: dtype in which they are kept.
    """

    def __init__(self, key: Tensor, energy: Tensor, n_steps: int, dtype: torch.dtype) -> None:
        self.key = key
        self.doubled_energy = 2.0 * energy
        self.sigmoids = key.new_empty(n_steps, *key.shape, dtype=dtype)

    def score(self, query: Tensor, t: int) -> Tensor:
        sigmoid = (query[:, None] + self.key).sigmoid_()
        if len(self.sigmoids):
            self.sigmoids[t] = sigmoid
        return (sigmoid.flatten(0, 1) @ self.doubled_energy).view(sigmoid.shape[:2])

    def begin_backward(self) -> None:
        """Set the gradients of keys and energy weights to zero, before the backward loop.

        They are summed step by step in the backward loop, while the numbers of a step are in the cache.
        """
        sum_dtype = torch.promote_types(self.key.dtype, torch.float32)
        self.d_key = torch.zeros_like(self.key, dtype=sum_dtype)
        self.d_doubled_energy = torch.zeros_like(self.doubled_energy, dtype=sum_dtype)

    def query_gradient(self, d_score: Tensor, t: int) -> Tensor:
        sigmoid = self.sigmoids[t].to(self.key.dtype)
        self.d_doubled_energy += (d_score.view(1, -1) @ sigmoid.flatten(0, 1))[0]
        d_sum: Tensor = torch.ops.aten.sigmoid_backward(
            d_score[..., None].expand_as(sigmoid), sigmoid
        )  # without the energy factor
        self.d_key += d_sum
        return d_sum.sum(1) * self.doubled_energy

    def gradients(self, d_scores: Tensor, queries: Tensor) -> tuple[Tensor, Tensor]:
        d_key, d_energy = self.d_key * self.doubled_energy, 2.0 * self.d_doubled_energy
        return d_key.to(self.key.dtype), d_energy.to(self.key.dtype)


# -- the loop -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AttendedSource:
    """The source that a decoder attends to, for each of G groups: sequences, or heads of them.

    Attributes:
        key: S keys as the score takes them, ``(G, S, d)``.
        value: values, ``(G, S, d_head)``.
        mask_bias: 0, or -inf at padding, ``(G, S)``.
        energy: weights v of the additive score, ``(d,)``; None for the dot product.
    """

    key: Tensor
    value: Tensor
    mask_bias: Tensor
    energy: Tensor | None


@dataclass(frozen=True)
class QueryMap:
    """The map from decoder states h of width d to attention queries of width m, ``q = Q h + b``.

    If both fields are None, the state itself is the query.

    Attributes:
        weight: Q, ``(m, d)``, or None.
        bias: b, ``(m,)``, or None.
    """

    weight: Tensor | None
    bias: Tensor | None


@dataclass(frozen=True)
class LoopWeights:
    """The weights of an attentive LSTM decoder's recurrence, for states of width d.

    Attributes:
        state: weights of the previous state h: V for the four gates and Q for a query of width m, ``(4 d + m, d)``; m =
            0 if the state itself is the query.
        context: weights F of the context for the gates, ``(4 d, d)``.
        bias: bias of the query, ``(m,)``.
    """

    state: Tensor
    context: Tensor
    bias: Tensor

    @classmethod
    def with_query(cls, state: Tensor, context: Tensor, query: QueryMap) -> LoopWeights:
        """Join an LSTM's weights for the gates with the map from states to queries.

        Args:
            state: weights V of the state, ``(4 d, d)``.
            context: weights F of the context, ``(4 d, d)``.
            query: the map to queries; with its fields None, the state itself is the query.
        """
        if query.weight is None or query.bias is None:
            return cls(state, context, state.new_zeros(0))
        return cls(torch.cat([state, query.weight]), context, query.bias)


def attentive_lstm(
    projected: Tensor, h: Tensor, c: Tensor, weights: LoopWeights, source: AttendedSource
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Run all T steps of an LSTM decoder that attends to the source with its previous state, for B sequences.

    Args:
        projected: contribution of inputs and biases to the gates, ``(T, B, 4 d)``, in torch's order; its precision is
            that of the products with weights.
        h, c: state before the first step, ``(B, d)`` each.
        weights: weights of the recurrence.
        source: keys and values of S steps that are attended to, in G groups; G is B times the number of heads.

    Returns:
        States, ``(T, B, d)``; contexts, ``(T, B, d)``; attention weights, ``(T, G, S)``, through which no gradient
        flows; and the last cell, ``(B, d)``.
    """
    dtype = projected.dtype
    attention_dtype = torch.promote_types(dtype, torch.float32) if projected.device.type == "cpu" else dtype
    matrices = [x.to(dtype) for x in (weights.state, weights.context, weights.bias)]
    attended = [x.to(attention_dtype) for x in (source.key, source.value)]
    energy = None if source.energy is None else source.energy.to(attention_dtype)
    needs_gradient = torch.is_grad_enabled()
    arguments = needs_gradient, projected, h.to(dtype), c, *matrices, *attended, source.mask_bias, energy
    with torch.autocast(projected.device.type, enabled=False):  # because the dtypes are already chosen
        states, contexts, attention, cell = _AttentiveLSTM.apply(*arguments)  # type: ignore[no-untyped-call]
    return states, contexts, attention, cell


class _AttentiveLSTM(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        needs_gradient: bool,
        projected: Tensor,
        h: Tensor,
        c: Tensor,
        weight: Tensor,
        context_weight: Tensor,
        bias: Tensor,
        key: Tensor,
        value: Tensor,
        mask_bias: Tensor,
        energy: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        trace = Trace.start(projected, h, c, bias, mask_bias)
        n_steps, n_rows, _ = projected.shape
        loop = _make_loop(key, value, mask_bias, energy, trace, needs_gradient)
        from_state, from_context = (repeated_linear(w, n_rows, n_steps) for w in (weight, context_weight))
        loop.forward(trace, from_state, from_context, bias)
        if needs_gradient:
            ctx.save_for_backward(*trace.tensors, weight, context_weight, value)
            ctx.loop = loop
            ctx.dtypes = (h.dtype, c.dtype)
        ctx.mark_non_differentiable(trace.weights)
        return trace.states[1:], trace.contexts, trace.weights, trace.cells[-1].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *output_gradients: Tensor) -> tuple[Tensor | None, ...]:
        *kept, weight, context_weight, value = ctx.saved_tensors
        trace, loop, gate_width = Trace(*kept), ctx.loop, len(context_weight)
        n_steps, n_groups = trace.weights.shape[:2]
        n_rows = trace.states.shape[1]
        gate_weights = torch.cat([context_weight, weight[:gate_width]], 1)
        from_gates = repeated_linear(gate_weights.t(), n_rows, n_steps)
        from_query = repeated_linear(weight[gate_width:].t(), n_rows, n_steps) if len(weight) > gate_width else None
        d_states, d_contexts, _, d_last_cell = output_gradients
        gradients: LoopGradients = loop.backward(trace, from_gates, from_query, (d_states, d_contexts, d_last_cell))
        weights, d_scores = trace.weights.to(value.dtype), gradients.d_scores.to(value.dtype)
        d_head_contexts = gradients.d_contexts.to(value.dtype).view(n_steps, n_groups, -1)
        d_value = torch.bmm(weights.permute(1, 2, 0), d_head_contexts.transpose(0, 1))
        queries = trace.query(slice(None)).to(value.dtype).reshape(n_steps, n_groups, -1)
        d_key, d_energy = loop.key_gradients(d_scores, queries)
        d_products = gradients.d_products.flatten(0, 1).t()
        d_weight = d_products @ trace.states[:-1].flatten(0, 1)
        d_context_weight = d_products[:gate_width] @ trace.contexts.flatten(0, 1)
        d_bias = d_products[gate_width:].sum(1)
        d_h, d_c = gradients.d_h.to(ctx.dtypes[0]), gradients.d_c.to(ctx.dtypes[1])
        d_projected = gradients.d_products[..., :gate_width]
        return None, d_projected, d_h, d_c, d_weight, d_context_weight, d_bias, d_key, d_value, None, d_energy


class TorchLoop(Loop):
    """The loop over all steps of an LSTM decoder with attention in operations of torch, on any device.

    Args:
        scoring: attention score of the queries.
        value: values of S steps, ``(G, S, d_head)`` for G groups: sequences, or heads of them.
        mask_bias: 0, or -inf at padding, ``(G, S)``.
    """

    def __init__(self, scoring: Scoring, value: Tensor, mask_bias: Tensor) -> None:
        self.scoring, self.value, self.mask_bias = scoring, value, mask_bias

    def forward(self, trace: Trace, from_state: Product, from_context: Product, query_bias: Tensor) -> None:
        value, mask_bias, gate_width = self.value, self.mask_bias, trace.gates.shape[2]
        for t, (state, gates, context, weights) in enumerate(trace.steps()):
            products = from_state(state)
            if len(query_bias):
                torch.add(products[:, gate_width:], query_bias, out=trace.queries[t])
            query = trace.query(t).to(value.dtype).reshape(len(value), -1)
            torch.softmax(self.scoring.score(query, t) + mask_bias, -1, dtype=mask_bias.dtype, out=weights)
            context.copy_(torch.bmm(weights[:, None].to(value.dtype), value).view(context.shape))
            gates.add_(products[:, :gate_width]).add_(from_context(context))
            _apply_gates(trace, t)

    def backward(
        self, trace: Trace, from_gates: Product, from_query: Product | None, received: tuple[Tensor, Tensor, Tensor]
    ) -> LoopGradients:
        d_states, received_d_contexts, d_last_cell = received
        value, scoring = self.value, self.scoring
        scoring.begin_backward()
        cell_to_ifg, state_to_o, state_to_cell, cell_to_cell = _gate_derivatives(trace)
        (n_steps, n_rows, gate_width), sum_dtype = trace.gates.shape, trace.gates.dtype
        d_all_products = trace.states.new_empty(n_steps, n_rows, gate_width + trace.queries.shape[2])
        d_scores = torch.empty_like(trace.weights)
        d_states_before = trace.cells.new_zeros(trace.cells.shape)  # (T + 1, B, d), of the states before each step
        d_states_before[1:] = d_states
        d_contexts = torch.empty_like(trace.tanh_cells).copy_(received_d_contexts)
        d_c = d_last_cell.to(sum_dtype)
        for t in range(n_steps - 1, -1, -1):
            d_h, d_products = d_states_before[t + 1], d_all_products[t]
            d_c = torch.addcmul(d_c, d_h, state_to_cell[t])
            d_gates = d_products[:, :gate_width].unflatten(1, (4, -1))
            torch.mul(cell_to_ifg[t], d_c[:, None], out=d_gates[:, :3])
            torch.mul(state_to_o[t], d_h, out=d_gates[:, 3])
            d_c = d_c * cell_to_cell[t]
            d_context, d_h = from_gates(d_products[:, :gate_width]).chunk(2, 1)
            d_context = d_contexts[t].add_(d_context).to(value.dtype)
            d_weights = torch.bmm(d_context.view(len(value), 1, -1), value.transpose(1, 2))[:, 0].to(sum_dtype)
            d_scores[t] = torch._softmax_backward_data(d_weights, trace.weights[t], -1, sum_dtype)
            d_query = scoring.query_gradient(d_scores[t].to(value.dtype), t).view(n_rows, -1)
            d_states_before[t].add_(d_h)
            if from_query is not None:
                d_query = from_query(d_products[:, gate_width:].copy_(d_query))
            d_states_before[t].add_(d_query)
        return LoopGradients(d_all_products, d_contexts, d_scores, d_states_before[0], d_c)

    def key_gradients(self, d_scores: Tensor, queries: Tensor) -> tuple[Tensor, Tensor | None]:
        return self.scoring.gradients(d_scores, queries)


def _make_loop(
    key: Tensor, value: Tensor, mask_bias: Tensor, energy: Tensor | None, trace: Trace, needs_gradient: bool
) -> Loop:
    """Return the fastest decoder loop for this device and size.

    It is compiled in training on a CPU, if numba is installed and there is enough work to be worth loading it.

    Args:
        key, value: S keys and values of G groups (sequences, or heads of them), ``(G, S, d)`` and ``(G, S, d_head)``.
        mask_bias: 0, or -inf at padding, ``(G, S)``.
        energy: energy weights of additive attention, ``(d,)``; None for the dot product.
        trace: arrays of all steps, from which the size of the work is known.
        needs_gradient: True in training.
    """
    if needs_gradient and _may_be_compiled(trace):
        from seqmodels.neural.seq2seq.compiled_loop import CompiledLoop  # numba takes a while to load

        return CompiledLoop(key, value, mask_bias, energy)
    n_kept = len(trace.weights) if needs_gradient else 0
    return TorchLoop(make_scoring(key, energy, n_kept, trace.states.dtype), value, mask_bias)


def _may_be_compiled(trace: Trace) -> bool:
    is_large = trace.tanh_cells.numel() >= COMPILED_FROM
    in_float32 = trace.gates.dtype == trace.weights.dtype == torch.float32
    half_or_not = trace.states.dtype in (torch.float32, torch.bfloat16)
    on_cpu = trace.states.device.type == "cpu" and not torch.compiler.is_compiling()
    return is_large and in_float32 and half_or_not and on_cpu and is_compiling()


def make_scoring(key: Tensor, energy: Tensor | None, n_steps: int, dtype: torch.dtype) -> Scoring:
    """Return additive scoring if there are ``energy`` weights, else scoring by dot products.

    Args:
        key: S keys of G groups (sequences, or heads of them) as the score takes them, ``(G, S, d)``.
        energy: energy weights, ``(d,)``, or None.
        n_steps, dtype: how many steps additive scoring keeps for the backward pass, and in which dtype.
    """
    return DotScoring(key) if energy is None else AdditiveScoring(key, energy, n_steps, dtype)


def _apply_gates(trace: Trace, t: int) -> None:
    """Compute step t of the LSTM cell in place: turn ``trace.gates`` from arguments of σ into gates, and fill the rest.

    The rest are the cell, its tanh, and the state after the step.
    """
    d = trace.states.shape[2]
    trace.gates[t, :, 2 * d : 3 * d].mul_(2.0)
    i, f, g, o = trace.gates[t].sigmoid_().chunk(4, 1)
    cell = torch.addcmul(f * trace.cells[t], i, g, value=2.0, out=trace.cells[t + 1]).sub_(i)
    tanh_cell = torch.mul(cell, 2.0, out=trace.tanh_cells[t]).sigmoid_().mul_(2.0).sub_(1.0)  # faster than tanh
    trace.states[t + 1] = o * tanh_cell


def _gate_derivatives(trace: Trace) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the factors by which the LSTM cell's backward pass multiplies gradients at every step.

    Args:
        trace: arrays that the forward pass kept, of T steps of B sequences.

    Returns:
        Four factors: from the cell to the arguments of the first three gates, ``(T, B, 3, d)``; and, each ``(T, B,
            d)``, from the state to the argument of the last gate, from the state to the cell, and from the cell to the
            one before.
    """
    gates, tanh_cells = trace.gates.unflatten(-1, (4, -1)), trace.tanh_cells
    i, f, g, o = gates.unbind(2)
    through_sigmoid = torch.ops.aten.sigmoid_backward
    cell_to_ifg = torch.empty_like(gates[:, :, :3])
    to_i, to_f, to_g = cell_to_ifg.unbind(2)
    through_sigmoid(torch.mul(g, 2.0, out=to_i).sub_(1.0), i, grad_input=to_i)
    through_sigmoid(trace.cells[:-1], f, grad_input=to_f)
    through_sigmoid(i, g, grad_input=to_g).mul_(4.0)
    return cell_to_ifg, through_sigmoid(tanh_cells, o), torch.ops.aten.tanh_backward(o, tanh_cells), f
