"""An LSTM in training: products by oneDNN, and what is between them one call of machine code a step.

Gates ``= projected_t + V h_{t-1}``; ``c_t = f c_{t-1} + i tanh(g)``, ``h_t = o tanh(c_t)``. Arrays are those of
``kernel_math.array``: float32, and in bfloat16 what the products read. The gradient of V is one product after the loop.

Import this module where it is first needed: it loads numba.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from seqmodels.compiled import compiled
from seqmodels.neural.ops.kernel_math import ONE, TWO, array, narrowed, sigmoid, widened
from seqmodels.neural.ops.linear import repeated_linear
from seqmodels.neural.ops.precision import compute_dtype

FOUR = np.float32(4)

# -- a step ----------------------------------------------------------------------------------------------------


@compiled(any_order=True)
def apply_gates(
    t: int,
    around: tuple[int, int],
    from_state: np.ndarray,
    from_context: np.ndarray | None,
    gates: np.ndarray,
    cells: np.ndarray,
    tanh_cells: np.ndarray,
    states: np.ndarray,
) -> None:
    """Step t of the cell: what is projected, in the place of the ``gates``, to gates, cell and state.

    Args:
        t: the step.
        around: where among cells and states those before it and after it are.
        from_state: products of the state, the gates' first (B, 4 d or more).
        from_context: another part of the gates (B, 4 d).
        gates: (T, B, 4 d), of the candidate g, ``tanh(z) = 2 σ(2 z) - 1``, then ``σ(2 z)``.
        cells: (T + 1, B, d).
        tanh_cells: (T, B, d).
        states: (T + 1, B, d).
    """
    n_rows, d = cells.shape[1:]
    for b in range(n_rows):
        x, products = gates[t, b], from_state[b]
        i, f, g, o = x[:d], x[d : 2 * d], x[2 * d : 3 * d], x[3 * d :]
        before, cell = cells[around[0], b], cells[around[1], b]
        tanh_cell, state = tanh_cells[t, b], states[around[1], b]
        if from_context is not None:
            more = from_context[b]
            for k in range(4 * d):
                x[k] += widened(more[k])
        for k in range(4 * d):
            x[k] += widened(products[k])
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


@compiled(any_order=True)
def gate_gradients(
    t: int,
    before: int,
    d_states: np.ndarray,
    from_gates: np.ndarray,
    begin: int,
    from_query: np.ndarray | None,
    gates: np.ndarray,
    cells: np.ndarray,
    tanh_cells: np.ndarray,
    d_cell: np.ndarray,
    d_products: np.ndarray,
) -> None:
    """Step t of the cell, back: fills the gates' part of ``d_products`` there.

    Args:
        t: the step.
        before: where the cell before it is.
        d_states: received (T, B, d).
        from_gates: of the step after: the gradient, by its gates, of this state (B, begin + d), in its last columns.
        begin: the first of these.
        from_query: another part of that gradient (B, d).
        gates, cells, tanh_cells: as ``apply_gates`` leaves them.
        d_cell: (B, d) of the cell after this step, and then of that before.
        d_products: (T, B, 4 d or more).
    """
    n_rows, d = cells.shape[1:]
    d_h = np.empty(d, np.float32)
    for b in range(n_rows):
        received, by_gates = d_states[t, b], from_gates[b][begin:]
        x, c, tanh_cell, d_c, out = gates[t, b], cells[before, b], tanh_cells[t, b], d_cell[b], d_products[t, b]
        i, f, g, o = x[:d], x[d : 2 * d], x[2 * d : 3 * d], x[3 * d :]
        d_i, d_f, d_g, d_o = out[:d], out[d : 2 * d], out[2 * d : 3 * d], out[3 * d : 4 * d]
        for k in range(d):
            d_h[k] = widened(received[k]) + widened(by_gates[k])
        if from_query is not None:
            by_query = from_query[b]
            for k in range(d):
                d_h[k] += widened(by_query[k])
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


# -- all steps -------------------------------------------------------------------------------------------------


def lstm_directions(
    inputs: Tensor, states: tuple[Tensor, Tensor], weights: Sequence[Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """As ``precision.lstm_layer``, up to rounding, in the precision of autocast; of both directions with 8 weights."""
    dtype, steps_first = compute_dtype(inputs), inputs.transpose(0, 1).contiguous()
    outputs, last_states, last_cells = [], [], []
    for k in range(len(weights) // 4):
        u, v, b, c = weights[4 * k : 4 * k + 4]
        projected = F.linear(steps_first, u, b + c)  # (T, B, 4 d)
        with torch.autocast(inputs.device.type, enabled=False):
            arguments = projected, states[0][k].to(dtype), states[1][k].float(), v.to(dtype), k == 1
            of_steps, cell = _Recurrence.apply(*arguments)  # type: ignore[no-untyped-call]
        outputs.append(of_steps)
        last_states.append(of_steps[0] if k == 1 else of_steps[-1])
        last_cells.append(cell.to(dtype))
    joined = outputs[0] if len(outputs) == 1 else torch.cat(outputs, 2)
    return joined.transpose(0, 1), torch.stack(last_states), torch.stack(last_cells)


class _Recurrence(torch.autograd.Function):
    """Of what is projected (T, B, 4 d), state and cell (B, d) and V (4 d, d): states (T, B, d) and the last cell."""

    @staticmethod
    def forward(
        ctx: Any, projected: Tensor, h: Tensor, c: Tensor, weight: Tensor, reverse: bool
    ) -> tuple[Tensor, Tensor]:
        n_steps, n_rows, _ = projected.shape
        gates = projected.to(torch.float32, copy=True)
        cells, states = gates.new_empty(n_steps + 1, *c.shape), h.new_empty(n_steps + 1, *h.shape)
        tanh_cells = torch.empty_like(cells[1:])
        first, last = (n_steps, 0) if reverse else (0, n_steps)
        states[first], cells[first] = h, c
        from_state = repeated_linear(weight, n_rows, n_steps)
        arrays = array(gates), array(cells), array(tanh_cells), array(states)
        of_steps = states.unbind()
        for t in reversed(range(n_steps)) if reverse else range(n_steps):
            around = (t + 1, t) if reverse else (t, t + 1)
            apply_gates(t, around, array(from_state(of_steps[around[0]])), None, *arrays)
        ctx.save_for_backward(gates, cells, tanh_cells, states, weight)
        ctx.reverse = reverse
        return states[:-1] if reverse else states[1:], cells[last].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_states: Tensor, d_last_cell: Tensor) -> tuple[Tensor | None, ...]:
        gates, cells, tanh_cells, states, weight = ctx.saved_tensors
        n_steps, n_rows, _ = gates.shape
        from_gates = repeated_linear(weight.t(), n_rows, n_steps)
        d_projected = states.new_empty(gates.shape)
        d_c = d_last_cell.clone(memory_format=torch.contiguous_format)
        by_gates = torch.zeros_like(states[0])
        received, out, d_cell = array(d_states.contiguous()), array(d_projected), array(d_c)
        arrays, d_gates = (array(gates), array(cells), array(tanh_cells)), d_projected.unbind()
        for t in range(n_steps) if ctx.reverse else reversed(range(n_steps)):
            before = t + 1 if ctx.reverse else t
            gate_gradients(t, before, received, array(by_gates), 0, None, *arrays, d_cell, out)
            by_gates = from_gates(d_gates[t])
        states_before = states[1:] if ctx.reverse else states[:-1]
        d_weight = d_projected.flatten(0, 1).t() @ states_before.flatten(0, 1)
        return d_projected, by_gates, d_c, d_weight, None
