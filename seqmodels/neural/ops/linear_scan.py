"""The gated recurrence ``h_t = h_{t-1} + σ(a_t) (c_t - h_{t-1})``, computed for all steps at once.

It is linear in the state. A step back-propagates ``1 - σ(a_t)`` times the gradient that it receives, which is the same
recurrence backwards.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

BLOCK = 512  # number of steps whose views exist at a time


def gated_scan(projected: Tensor, state: Tensor) -> Tensor:
    """Return the states ``h_t = h_{t-1} + z_t (c_t - h_{t-1})`` with ``z_t = σ(a_t)``, ``(B, T, d)`` for t = 1 .. T.

    On a CPU the steps are computed one after the other, one operation each; elsewhere by ``scan_by_doubling``. There
    are no divisions and no logarithms, so nothing is lost that single steps would keep. Memory is proportional to T.
    The result is at least float32 and can be differentiated once.

    Args:
        projected: ``a`` and ``c`` of B sequences side by side, ``(B, T, 2 d)``, in any precision.
        state: ``h_0``, ``(B, d)``.

    >>> projected = torch.tensor([[[0.0, 4.0], [0.0, 8.0]]])
    >>> gated_scan(projected, torch.zeros(1, 1)).flatten().tolist()
    [2.0, 5.0]
    """
    return _apply_gated_scan(projected, state)


def scan_by_doubling(decay: Tensor, added: Tensor, state: Tensor) -> Tensor:
    """Return the states ``h_t = decay_t h_{t-1} + added_t``, ``(B, T, d)``, in ``log2 T`` passes over all T steps.

    In each pass, every step is joined with one twice as far back as in the pass before (Hillis and Steele, 1986): the
    map ``(a, b)`` followed by ``(a', b')`` is ``(a' a, a' b + b')``.

    Args:
        decay, added: factors and terms of all steps of B sequences, each ``(B, T, d)``.
        state: the state before the first step, ``(B, d)``.
    """
    a, b = decay, torch.cat([torch.addcmul(added[:, :1], decay[:, :1], state.unsqueeze(1)), added[:, 1:]], 1)
    reach = 1
    while reach < b.shape[1]:
        b = torch.cat([b[:, :reach], torch.addcmul(b[:, reach:], a[:, reach:], b[:, :-reach])], 1)
        a = torch.cat([a[:, :reach], a[:, reach:] * a[:, :-reach]], 1)
        reach *= 2
    return b


def scans_by_steps(device: torch.device) -> bool:
    """Return True if a recurrence on this device is faster step by step than in ``log2 T`` passes over all steps."""
    return device.type == "cpu"


class _GatedScan(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, projected: Tensor, state: Tensor) -> Tensor:
        d = state.shape[1]
        dtype = torch.promote_types(projected.dtype, torch.float32)
        gate = torch.empty(*projected.shape[:2], d, dtype=dtype, device=projected.device)
        gate.copy_(projected[..., :d]).sigmoid_()
        candidate = projected[..., d:].to(dtype)
        before = state.to(dtype)
        if scans_by_steps(projected.device):
            states = torch.empty_like(gate)
            h = before
            for block in zip(gate.split(BLOCK, 1), candidate.split(BLOCK, 1), states.split(BLOCK, 1), strict=True):
                for z, c, out in zip(*(part.unbind(1) for part in block), strict=True):
                    h = torch.lerp(h, c, z, out=out)
        else:
            states = scan_by_doubling(1 - gate, gate * candidate, before)
        ctx.save_for_backward(gate, candidate, states, before)
        ctx.dtypes = projected.dtype, state.dtype
        return states

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        gate, candidate, states, before = ctx.saved_tensors
        d = gate.shape[2]
        keep = 1 - gate
        of_states = _scan_backwards(keep, gradient)
        d_state = (of_states[:, 0] * keep[:, 0]).to(ctx.dtypes[1])
        d_projected = gate.new_empty(*gate.shape[:2], 2 * d, dtype=ctx.dtypes[0])
        of_candidate = of_states.mul_(gate)
        d_projected[..., d:].copy_(of_candidate)
        change = candidate - torch.cat([before.unsqueeze(1), states[:, :-1]], 1)
        d_projected[..., :d].copy_(change.mul_(of_candidate).mul_(keep))
        return d_projected, d_state


def _scan_backwards(keep: Tensor, gradient: Tensor) -> Tensor:
    """Return the gradients of all states of a linear recurrence, ``D_t = gradient_t + keep_{t+1} D_{t+1}``.

    Args:
        keep: factor of the state before in each of T steps, ``(B, T, d)``.
        gradient: incoming gradient of each state, ``(B, T, d)``, the shape of the result.
    """
    if not scans_by_steps(gradient.device):
        later = torch.cat([keep[:, 1:], torch.zeros_like(keep[:, :1])], 1)
        return scan_by_doubling(later.flip(1), gradient.flip(1), torch.zeros_like(keep[:, 0])).flip(1)
    of_states = torch.empty_like(keep)
    last = of_states[:, -1].copy_(gradient[:, -1])
    pairs = zip(gradient[:, :-1].split(BLOCK, 1), keep[:, 1:].split(BLOCK, 1), of_states.split(BLOCK, 1), strict=False)
    for block in reversed(list(pairs)):
        n = block[0].shape[1]
        for g, k, out in reversed(list(zip(*(part[:, :n].unbind(1) for part in block), strict=True))):
            last = torch.addcmul(g, k, last, out=out)
    return of_states


_apply_gated_scan: Callable[[Tensor, Tensor], Tensor] = _GatedScan.apply
