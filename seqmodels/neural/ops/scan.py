"""Recurrences over time with their own backward pass: two or three operations a step in each direction.

The gradient that a step back-propagates is linear in the gradient that it receives. Its coefficients are computed for
all steps at once beforehand, and the gradients of the weights afterwards, as matrix products (Rumelhart, Hinton and
Williams, 1986). Everything is in the precision of the weights, except the GRU's state, which is at least float32
because it changes little at a step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

Nonlinearity = Literal["tanh", "sigmoid", "relu", "relu6"]


def elman_scan(projected: Tensor, state: Tensor, weight: Tensor, nonlinearity: Nonlinearity) -> Tensor:
    """Return the states ``h_t = σ(projected_t + V h_{t-1})`` of B sequences, ``(T, B, d)`` for t = 1 .. T.

    Args:
        projected: contribution of inputs and biases, ``(T, B, d)``, in the precision of ``weight``.
        state: ``h_0``, ``(B, d)``.
        weight: ``V``, ``(d, d)``.
        nonlinearity: name of ``σ``.
    """
    return _apply_elman_scan(projected, state, weight, nonlinearity)


def gru_scan(projected: Tensor, state: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return the states ``h_t = n + z (h_{t-1} - n)`` of a GRU for B sequences, ``(T, B, d)`` for t = 1 .. T.

    Here ``r, z = σ(projected_rz + V_rz h_{t-1})`` and ``n = tanh(projected_n + r (V_n h_{t-1} + b))``.

    Args:
        projected: contribution of inputs and biases to r, z and n, ``(T, B, 3 d)``, in the precision of ``weight``.
        state: ``h_0``, ``(B, d)``.
        weight: ``V`` for r, z and n, ``(3 d, d)``.
        bias: ``b``, ``(d,)``.
    """
    return _apply_gru_scan(projected, state, weight, bias)


class _ElmanScan(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, projected: Tensor, state: Tensor, weight: Tensor, nonlinearity: Nonlinearity) -> Tensor:
        states = _state_buffer(projected, state, weight)
        transposed = weight.t()
        in_place: dict[Nonlinearity, Callable[[Tensor], Tensor]] = {
            "tanh": torch.tanh_,
            "sigmoid": torch.sigmoid_,
            "relu": torch.relu_,
            "relu6": lambda h: h.clamp_(0, 6),
        }
        activate = in_place[nonlinearity]
        for t, step_inputs in enumerate(projected.unbind(0)):
            activate(torch.addmm(step_inputs, states[t], transposed, out=states[t + 1]))
        ctx.save_for_backward(states, weight)
        ctx.nonlinearity = nonlinearity
        ctx.state_dtype = state.dtype
        return states[1:]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        states, weight = ctx.saved_tensors
        slope = {
            "tanh": lambda h: 1 - h * h,
            "sigmoid": lambda h: h * (1 - h),
            "relu": lambda h: (h > 0).to(h.dtype),
            "relu6": lambda h: ((h > 0) & (h < 6)).to(h.dtype),
        }
        slopes = slope[ctx.nonlinearity](states[1:])
        delta = torch.empty_like(slopes)
        d_state = torch.zeros_like(states[0])
        for gradient, factor, d in reversed(
            list(zip(gradients[0].unbind(0), slopes.unbind(0), delta.unbind(0), strict=True))
        ):
            torch.mul(d_state.add_(gradient), factor, out=d)
            torch.mm(d, weight, out=d_state)
        return delta, d_state.to(ctx.state_dtype), _outer(delta, states), None


class _GruScan(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, projected: Tensor, state: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        n_steps, n_rows, d = len(projected), *state.shape
        states = _state_buffer(projected, state, weight)
        transposed = weight.t()
        gates, recurrent_n, candidate = (weight.new_empty(n_steps, n_rows, width) for width in (2 * d, d, d))
        h = state.to(torch.promote_types(weight.dtype, torch.float32)).clone()
        for t in range(n_steps):
            product = torch.mm(states[t], transposed)
            rz = gates[t]
            n = candidate[t]
            torch.add(projected[t, :, : 2 * d], product[:, : 2 * d], out=rz).sigmoid_()
            torch.add(product[:, 2 * d :], bias, out=recurrent_n[t])
            torch.addcmul(projected[t, :, 2 * d :], rz[:, :d], recurrent_n[t], out=n).tanh_()
            torch.lerp(n.to(h.dtype), h, rz[:, d:].to(h.dtype), out=h)
            states[t + 1].copy_(h)
        ctx.save_for_backward(states, gates, recurrent_n, candidate, weight)
        ctx.state_dtype = state.dtype
        return states[1:]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        states, gates, recurrent_n, n, weight = ctx.saved_tensors
        d = n.shape[-1]
        factors, candidate_slope = _gru_factors(states[:-1], gates, recurrent_n, n)
        delta = torch.empty_like(factors)
        d_projected = n.new_empty(*n.shape[:-1], 3 * d)
        d_state = torch.zeros_like(states[0])
        for t in range(len(n) - 1, -1, -1):
            d_state.add_(gradients[0][t])
            torch.mul(factors[t], d_state[:, None], out=delta[t])
            torch.mul(candidate_slope[t], d_state, out=d_projected[t, :, 2 * d :])
            torch.addmm(d_state.mul_(gates[t, :, d:]), delta[t].flatten(1), weight, out=d_state)
        delta = delta.flatten(2)
        d_projected[..., : 2 * d] = delta[..., : 2 * d]
        d_bias = delta[..., 2 * d :].sum((0, 1))
        return d_projected, d_state.to(ctx.state_dtype), _outer(delta, states), d_bias


def _gru_factors(previous_states: Tensor, gates: Tensor, recurrent_n: Tensor, n: Tensor) -> tuple[Tensor, Tensor]:
    """Return the factors that lead from the gradient of a GRU's ``h_t`` to those of two terms, at T steps.

    The terms are the products of ``h_{t-1}`` with V for r, z and n, whose factors are ``(T, B, 3, d)``, and the input's
    contribution to n, whose factors are ``(T, B, d)``.

    Args:
        previous_states: ``h_{t-1}`` of all steps, ``(T, B, d)``.
        gates: r and z, ``(T, B, 2 d)``.
        recurrent_n: ``V_n h_{t-1} + b``, ``(T, B, d)``.
        n: the candidate states, ``(T, B, d)``.
    """
    r, z = gates.chunk(2, -1)
    factors = n.new_empty(*n.shape[:-1], 3, n.shape[-1])
    candidate_slope = (1 - z).mul_(1 - n * n)
    torch.mul(candidate_slope, r, out=factors[..., 2, :])
    torch.mul((1 - r).mul_(recurrent_n), factors[..., 2, :], out=factors[..., 0, :])
    torch.mul((previous_states - n).mul_(z), 1 - z, out=factors[..., 1, :])
    return factors, candidate_slope


def _state_buffer(projected: Tensor, state: Tensor, weight: Tensor) -> Tensor:
    """Return a buffer for the states before each of T steps and after the last, ``(T + 1, B, d)``.

    Its dtype and device are those of ``weight``.

    Args:
        projected: contributions of the inputs, whose length is T.
        state: the first state, which is filled in, ``(B, d)``.
        weight: the recurrent weights.
    """
    states = weight.new_empty(len(projected) + 1, *state.shape)
    states[0].copy_(state)
    return states


def _outer(delta: Tensor, states: Tensor) -> Tensor:
    """Return the gradient of recurrent weights, ``Σ_t delta_tᵀ h_{t-1}``, ``(m, d)``.

    Args:
        delta: gradients of the products with the weights at T steps of B sequences, ``(T, B, m)``.
        states: the states h before each step and after the last, ``(T + 1, B, d)``.
    """
    return delta.flatten(0, 1).t() @ states[:-1].flatten(0, 1)


_apply_elman_scan: Callable[[Tensor, Tensor, Tensor, Nonlinearity], Tensor] = _ElmanScan.apply
_apply_gru_scan: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor] = _GruScan.apply
