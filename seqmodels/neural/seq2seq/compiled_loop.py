"""The parts of ``decoder_loop`` between the products with weights, as two calls of compiled code for each step.

A row of the batch, or a group (a row, or a head of one), is taken through all operations of a step while it is in the
nearest cache. Padded keys are skipped. Arrays are made by ``kernel_math.array``: float32, and bfloat16 for the operands
of products.

Import this module where it is first needed, because it loads numba.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from seqmodels.common.compiled import compiled
from seqmodels.neural.ops.kernel_math import ONE, TWO, array, exponential, narrowed, sigmoid, widened
from seqmodels.neural.seq2seq.loop_trace import Loop, LoopGradients, Product, Trace

ZERO, FOUR = np.float32(0), np.float32(4)

# -- forwards --------------------------------------------------------------------------------------------------


@compiled(any_order=True)
def attend_additively(
    t: int,
    query: np.ndarray,
    key: np.ndarray,
    energy: np.ndarray,
    value: np.ndarray,
    mask_bias: np.ndarray,
    weights: np.ndarray,
    contexts: np.ndarray,
    sigmoids: np.ndarray,
) -> None:
    """Compute step t of additive attention: fill ``weights``, ``contexts`` and ``sigmoids`` at t.

    There are T steps, G groups (sequences, or heads of them) and S keys; queries and keys have width m.

    Args:
        t: the step.
        query: queries of all steps, doubled, ``(T, G, m)``.
        key: keys, doubled, ``(G, S, m)``.
        energy: twice the energy weights v, ``(m,)``.
        value: values, ``(G, S, d_head)``.
        mask_bias: 0, or -inf at padding, ``(G, S)``.
        weights: result: attention weights, ``(T, G, S)``.
        contexts: result: contexts, ``(T, G, d_head)``.
        sigmoids: result, kept for the backward pass: sigmoid of query plus key, ``(T, G, S, m)``.
    """
    n_groups, n_keys, m = key.shape
    q, scores, total = np.empty(m, np.float32), np.empty(n_keys, np.float32), np.empty(value.shape[2], np.float32)
    for g in range(n_groups):
        query_g = query[t, g]
        for i in range(m):
            q[i] = widened(query_g[i])
        for s in range(n_keys):
            if mask_bias[g, s] == ZERO:
                key_s, kept, score = key[g, s], sigmoids[t, g, s], ZERO
                for i in range(m):
                    p = sigmoid(q[i] + key_s[i])
                    kept[i] = narrowed(p, kept[i])
                    score += p * energy[i]
                scores[s] = score
        _weigh(scores, mask_bias[g], value[g], weights[t, g], total, contexts[t, g])


@compiled(any_order=True)
def attend_by_products(
    t: int,
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    mask_bias: np.ndarray,
    weights: np.ndarray,
    contexts: np.ndarray,
) -> None:
    """Compute step t of dot-product attention: fill ``weights`` and ``contexts`` at t.

    There are T steps, G groups (sequences, or heads of them) and S keys; queries and keys have width m.

    Args:
        t: the step.
        query: queries of all steps, ``(T, G, m)``.
        key: keys, already divided by √m, ``(G, S, m)``.
        value: values, ``(G, S, d_head)``.
        mask_bias: 0, or -inf at padding, ``(G, S)``.
        weights: result: attention weights, ``(T, G, S)``.
        contexts: result: contexts, ``(T, G, d_head)``.
    """
    n_groups, n_keys, m = key.shape
    q, scores, total = np.empty(m, np.float32), np.empty(n_keys, np.float32), np.empty(value.shape[2], np.float32)
    for g in range(n_groups):
        query_g = query[t, g]
        for i in range(m):
            q[i] = widened(query_g[i])
        for s in range(n_keys):
            if mask_bias[g, s] == ZERO:
                key_s, score = key[g, s], ZERO
                for i in range(m):
                    score += q[i] * key_s[i]
                scores[s] = score
        _weigh(scores, mask_bias[g], value[g], weights[t, g], total, contexts[t, g])


@compiled(any_order=True, inner=True)
def _weigh(
    scores: np.ndarray,
    mask_bias: np.ndarray,
    value: np.ndarray,
    weights: np.ndarray,
    total: np.ndarray,
    context: np.ndarray,
) -> None:
    """Fill ``weights (S,)`` with the softmax of S scores, and ``context`` with the weighted mean of the values.

    Args:
        scores: scores of the keys, ``(S,)``.
        mask_bias: 0, or -inf at padding, ``(S,)``.
        value: values, ``(S, d_head)``.
        weights: result: attention weights.
        total: a buffer, ``(d_head,)``.
        context: result: weighted mean of the values, ``(d_head,)``.
    """
    n_keys, largest, norm = len(scores), np.float32(-np.inf), ZERO
    for s in range(n_keys):
        if mask_bias[s] == ZERO and not scores[s] <= largest:
            largest = scores[s]
    for s in range(n_keys):
        weights[s] = exponential(scores[s] - largest) if mask_bias[s] == ZERO else ZERO
        norm += weights[s]
    for i in range(len(total)):
        total[i] = ZERO
    for s in range(n_keys):
        weights[s] /= norm
    for s in range(n_keys):
        weight, value_s = weights[s], value[s]
        if mask_bias[s] == ZERO:
            for i in range(len(total)):
                total[i] += weight * value_s[i]
    for i in range(len(total)):
        context[i] = narrowed(total[i], context[i])


@compiled(any_order=True)
def apply_gates(
    t: int,
    from_state: np.ndarray,
    from_context: np.ndarray,
    gates: np.ndarray,
    cells: np.ndarray,
    tanh_cells: np.ndarray,
    states: np.ndarray,
) -> None:
    """Compute step t of the LSTM cell: turn ``gates`` from contributions of the inputs into gates; fill cell and state.

    There are T steps of B sequences, and states of width d.

    Args:
        t: the step.
        from_state: products of weights with the previous state, ``(B, 4 d + m)``: for the gates, then for the query of
            width m.
        from_context: products with the context, ``(B, 4 d)``.
        gates: gates, ``(T, B, 4 d)``; for the candidate g = ``tanh(z) = 2 σ(2 z) - 1``, ``σ(2 z)`` is stored.
        cells: cells before each step and after the last, ``(T + 1, B, d)``.
        tanh_cells: result: tanh of the cells, ``(T, B, d)``.
        states: states before each step and after the last, ``(T + 1, B, d)``.
    """
    n_rows, d = cells.shape[1:]
    for b in range(n_rows):
        x, products, products_of_context = gates[t, b], from_state[b], from_context[b]
        i, f, g, o = x[:d], x[d : 2 * d], x[2 * d : 3 * d], x[3 * d :]
        before, cell = cells[t, b], cells[t + 1, b]
        tanh_cell, state = tanh_cells[t, b], states[t + 1, b]
        for k in range(4 * d):
            x[k] += widened(products[k]) + widened(products_of_context[k])
        for k in range(d):
            g[k] *= TWO
        for k in range(4 * d):
            x[k] = sigmoid(x[k])
        for k in range(d):
            cell[k] = f[k] * before[k] + i[k] * (TWO * g[k] - ONE)
        for k in range(d):
            tanh_cell[k] = TWO * sigmoid(TWO * cell[k]) - ONE
        for k in range(d):
            state[k] = narrowed(o[k] * tanh_cell[k], state[k])


# -- backwards -------------------------------------------------------------------------------------------------


@compiled(any_order=True)
def gate_gradients(
    t: int,
    d_states: np.ndarray,
    from_gates: np.ndarray,
    from_query: np.ndarray,
    gates: np.ndarray,
    cells: np.ndarray,
    tanh_cells: np.ndarray,
    d_cell: np.ndarray,
    d_products: np.ndarray,
) -> None:
    """Compute step t of the LSTM cell's backward pass: fill the gates' part of ``d_products`` at t.

    There are T steps of B sequences; states have width d and queries width m.

    Args:
        t: the step.
        d_states: incoming gradients of the states, ``(T, B, d)``.
        from_gates: gradients that the gates of step t + 1 send back, ``(B, 2 d)``: to its context, then to this state.
        from_query: gradient that the query of step t + 1 sends back to this state, ``(B, d)``.
        gates, cells, tanh_cells: arrays that ``apply_gates`` filled.
        d_cell: gradient of the cell after this step, ``(B, d)``, which is replaced by that of the cell before it.
        d_products: result: gradients of the products with previous states, ``(T, B, 4 d + m)``.
    """
    n_rows, d = cells.shape[1:]
    d_h = np.empty(d, np.float32)
    for b in range(n_rows):
        received, by_gates, by_query = d_states[t, b], from_gates[b][d:], from_query[b]
        x, c, tanh_cell, d_c, out = gates[t, b], cells[t, b], tanh_cells[t, b], d_cell[b], d_products[t, b]
        i, f, g, o = x[:d], x[d : 2 * d], x[2 * d : 3 * d], x[3 * d :]
        d_i, d_f, d_g, d_o = out[:d], out[d : 2 * d], out[2 * d : 3 * d], out[3 * d : 4 * d]
        for k in range(d):
            d_h[k] = widened(received[k]) + widened(by_gates[k]) + widened(by_query[k])
        for k in range(d):
            d_c[k] += d_h[k] * o[k] * (ONE - tanh_cell[k] * tanh_cell[k])
        for k in range(d):
            d_o[k] = narrowed(d_h[k] * tanh_cell[k] * o[k] * (ONE - o[k]), d_o[k])
        for k in range(d):
            d_i[k] = narrowed(d_c[k] * (TWO * g[k] - ONE) * i[k] * (ONE - i[k]), d_i[k])
        for k in range(d):
            d_f[k] = narrowed(d_c[k] * c[k] * f[k] * (ONE - f[k]), d_f[k])
        for k in range(d):
            d_g[k] = narrowed(FOUR * d_c[k] * i[k] * g[k] * (ONE - g[k]), d_g[k])
        for k in range(d):
            d_c[k] *= f[k]


@compiled(any_order=True)
def additive_gradients(
    t: int,
    from_gates: np.ndarray,
    value: np.ndarray,
    weights: np.ndarray,
    sigmoids: np.ndarray,
    energy: np.ndarray,
    d_contexts: np.ndarray,
    d_scores: np.ndarray,
    d_query: np.ndarray,
    begin: int,
    d_key: np.ndarray,
    d_energy: np.ndarray,
) -> None:
    """Compute step t of additive attention's backward pass: fill ``d_scores`` and ``d_query``.

    There are T steps, S keys, and G = B sequences; queries and keys have width m.

    Args:
        t: the step.
        from_gates: gradients that the gates send back, ``(B, 2 d)``, whose first half is added to those of the
            contexts.
        value, weights, sigmoids, energy: arrays that ``attend_additively`` takes and fills.
        d_contexts: incoming gradients of the contexts, ``(T, G, d_head)``, which are replaced by their full gradients.
        d_scores: result: gradients of the scores, ``(T, G, S)``.
        d_query: result: gradients of the queries, in the last columns of ``(B, begin + m)``.
        begin: the first of these columns.
        d_key: gradients of keys, ``(G, S, m)``, to which those of this step are added; the factor ``energy`` is applied
            after the loop.
        d_energy: gradient of ``energy``, ``(m,)``, to which that of this step is added.
    """
    n_groups, n_keys, m = d_key.shape
    d_q, d_e = np.empty(m, np.float32), np.empty(m, np.float32)
    for g in range(n_groups):
        _score_gradients(from_gates[g], value[g], weights[t, g], d_contexts[t, g], d_scores[t, g])
        for i in range(m):
            d_q[i], d_e[i] = ZERO, ZERO
        for s in range(n_keys):
            kept, d_key_s, d_score = sigmoids[t, g, s], d_key[g, s], d_scores[t, g, s]
            if weights[t, g, s] > ZERO:
                for i in range(m):
                    p = widened(kept[i])
                    d_sum = d_score * p * (ONE - p)
                    d_e[i] += d_score * p
                    d_q[i] += d_sum
                    d_key_s[i] += d_sum
        d_query_g = d_query[g][begin:]
        for i in range(m):
            d_query_g[i] = narrowed(d_q[i] * energy[i], d_query_g[i])
        for i in range(m):
            d_energy[i] += d_e[i]


@compiled(any_order=True)
def product_gradients(
    t: int,
    from_gates: np.ndarray,
    value: np.ndarray,
    weights: np.ndarray,
    key: np.ndarray,
    d_contexts: np.ndarray,
    d_scores: np.ndarray,
    d_query: np.ndarray,
    begin: int,
) -> None:
    """Compute step t of dot-product attention's backward pass: fill ``d_scores`` and ``d_query``.

    There are T steps of B sequences, S keys, and G groups, B times the number of heads; queries and keys have width m.
    The gradient of the keys is computed after the loop.

    Args:
        t: the step.
        from_gates: gradients that the gates send back, ``(B, 2 d)``, whose first half is added to those of the
            contexts.
        value: values, ``(G, S, d_head)``.
        weights: attention weights, ``(T, G, S)``.
        key: keys, divided by √m, ``(G, S, m)``.
        d_contexts: incoming gradients of the contexts, ``(T, G, d_head)``, which are replaced by their full gradients.
        d_scores: result: gradients of the scores, ``(T, G, S)``.
        d_query: result: gradients of the queries, in the columns of ``(B, ...)`` from ``begin`` on.
        begin: the first of these columns.
    """
    n_groups, n_keys, m = key.shape
    n_heads, d_head = n_groups // len(d_query), value.shape[2]
    d_q = np.empty(m, np.float32)
    for g in range(n_groups):
        b, head = g // n_heads, g % n_heads
        by_gates = from_gates[b][head * d_head : (head + 1) * d_head]
        _score_gradients(by_gates, value[g], weights[t, g], d_contexts[t, g], d_scores[t, g])
        for i in range(m):
            d_q[i] = ZERO
        for s in range(n_keys):
            key_s, d_score = key[g, s], d_scores[t, g, s]
            if weights[t, g, s] > ZERO:
                for i in range(m):
                    d_q[i] += d_score * key_s[i]
        d_query_g = d_query[b][begin + head * m : begin + (head + 1) * m]
        for i in range(m):
            d_query_g[i] = narrowed(d_q[i], d_query_g[i])


@compiled(any_order=True, inner=True)
def _score_gradients(
    by_gates: np.ndarray, value: np.ndarray, weights: np.ndarray, d_context: np.ndarray, d_scores: np.ndarray
) -> None:
    """Fill ``d_scores (S,)``, the gradients of the attention scores of S keys, given the gradient of the context.

    Args:
        by_gates: gradient of the context from the gates, which is added to ``d_context``.
        value: values, ``(S, d_head)``.
        weights: attention weights, ``(S,)``.
        d_context: incoming gradient of the context, ``(d_head,)``.
        d_scores: result.
    """
    mean = ZERO
    for i in range(len(d_context)):
        d_context[i] += widened(by_gates[i])
    for s in range(len(weights)):
        value_s, d_weight = value[s], ZERO
        if weights[s] > ZERO:
            for i in range(len(d_context)):
                d_weight += d_context[i] * value_s[i]
        d_scores[s] = d_weight
        mean += weights[s] * d_weight
    for s in range(len(weights)):
        d_scores[s] = weights[s] * (d_scores[s] - mean)


# -- the loop --------------------------------------------------------------------------------------------------


class CompiledLoop(Loop):
    """The loop over all steps of an LSTM decoder with attention in compiled code, for training on a CPU.

    It computes in float32 or bfloat16. Results are those of ``TorchLoop`` up to rounding.

    Args:
        key: S keys as the score takes them, ``(G, S, m)`` for G groups: sequences, or heads of them.
        value: values, ``(G, S, d_head)``.
        mask_bias: 0, or -inf at padding, ``(G, S)``.
        energy: energy weights v of additive attention, ``(m,)``; None if the score is the dot product.
    """

    def __init__(self, key: Tensor, value: Tensor, mask_bias: Tensor, energy: Tensor | None) -> None:
        self.scale = 1 / math.sqrt(key.shape[2]) if energy is None else 1.0
        self.key = (key * self.scale if energy is None else key).contiguous()
        self.value, self.mask_bias = value.contiguous(), mask_bias.contiguous()
        self.doubled_energy = None if energy is None else 2.0 * energy

    def forward(self, trace: Trace, from_state: Product, from_context: Product, query_bias: Tensor) -> None:
        gate_width, n_groups = trace.gates.shape[2], len(self.key)
        gates, cells, tanh_cells, states = map(array, (trace.gates, trace.cells, trace.tanh_cells, trace.states))
        key, value, mask_bias, weights = map(array, (self.key, self.value, self.mask_bias, trace.weights))
        contexts = array(trace.contexts.view(len(weights), n_groups, -1))
        query = array(trace.query(slice(None)).view(len(weights), n_groups, -1))
        if self.doubled_energy is not None:
            energy = array(self.doubled_energy)
            self.sigmoids = trace.states.new_empty(len(weights), *self.key.shape)
            sigmoids = array(self.sigmoids)
        for t, (state, context) in enumerate(zip(trace.states[:-1].unbind(), trace.contexts.unbind(), strict=True)):
            products = from_state(state)
            if len(query_bias):
                torch.add(products[:, gate_width:], query_bias, out=trace.queries[t])
            if self.doubled_energy is None:
                attend_by_products(t, query, key, value, mask_bias, weights, contexts)
            else:
                attend_additively(t, query, key, energy, value, mask_bias, weights, contexts, sigmoids)
            apply_gates(t, array(products), array(from_context(context)), gates, cells, tanh_cells, states)

    def backward(
        self, trace: Trace, from_gates: Product, from_query: Product | None, received: tuple[Tensor, Tensor, Tensor]
    ) -> LoopGradients:
        (n_steps, n_rows, gate_width), d = trace.gates.shape, trace.cells.shape[2]
        d_products = trace.states.new_empty(n_steps, n_rows, gate_width + trace.queries.shape[2])
        d_contexts = torch.empty_like(trace.tanh_cells).copy_(received[1])
        d_c = received[2].to(torch.float32, copy=True).contiguous()
        d_scores = torch.empty_like(trace.weights)
        by_gates = trace.states.new_zeros(n_rows, 2 * d)
        by_query = trace.states.new_zeros(n_rows, d)
        begin = gate_width  # where the queries' gradients begin within the products' gradients
        if from_query is None:
            by_query, begin = by_query.float(), 0
        gates, cells, tanh_cells, d_states = map(
            array, (trace.gates, trace.cells, trace.tanh_cells, received[0].contiguous())
        )
        key, value, weights = map(array, (self.key, self.value, trace.weights))
        out, d_cell, d_score = map(array, (d_products, d_c, d_scores))
        d_context = array(d_contexts.view(n_steps, len(key), -1))
        d_gates, d_queries = d_products[..., :gate_width].unbind(), d_products[..., gate_width:].unbind()
        if self.doubled_energy is not None:
            self.d_key, self.d_energy = torch.zeros_like(self.key), torch.zeros_like(self.doubled_energy)
            energy, sigmoids = array(self.doubled_energy), array(self.sigmoids)
            d_key, d_energy = array(self.d_key), array(self.d_energy)
        for t in range(n_steps - 1, -1, -1):
            by, by_queries = array(by_gates), array(by_query)
            gate_gradients(t, d_states, by, by_queries, gates, cells, tanh_cells, d_cell, out)
            by_gates = from_gates(d_gates[t])
            by = array(by_gates)
            to = array(by_query) if from_query is None else out[t]
            if self.doubled_energy is None:
                product_gradients(t, by, value, weights, key, d_context, d_score, to, begin)
            else:
                additive_gradients(
                    t, by, value, weights, sigmoids, energy, d_context, d_score, to, begin, d_key, d_energy
                )
            if from_query is not None:
                by_query = from_query(d_queries[t])
        d_h = by_gates[:, d:].float().add_(by_query)
        return LoopGradients(d_products, d_contexts, d_scores, d_h, d_c)

    def key_gradients(self, d_scores: Tensor, queries: Tensor) -> tuple[Tensor, Tensor | None]:
        if self.doubled_energy is None:
            return torch.bmm(d_scores.permute(1, 2, 0), queries.transpose(0, 1)) * self.scale, None
        return self.d_key * self.doubled_energy, 2.0 * self.d_energy
