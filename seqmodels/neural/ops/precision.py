"""The precision in which a network computes: chosen, switched on, and read by operations of our own."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor


def autocast_dtype(name: str, device: torch.device) -> torch.dtype | None:
    """What ``"float32"``, ``"bfloat16"`` or ``"auto"`` stands for on this device, as ``autocast`` takes it."""
    if name == "auto":
        pays = device.type == "cuda" or bool(torch.cpu.get_capabilities().get("avx512_bf16"))
        return torch.bfloat16 if pays else None
    return torch.bfloat16 if name == "bfloat16" else None


def autocast(device: torch.device, precision: torch.dtype | None) -> torch.autocast:
    """Within, products are in this precision; None: in that of the weights.

    Without torch's cache of weights in low precision: one for all threads, which whoever comes first to the end of a
    step empties. A weight that is read twice in a step would be cast once or twice as it happens, and its gradient
    rounded once or twice.
    """
    return torch.autocast(device.type, dtype=precision, enabled=precision is not None, cache_enabled=False)


def compute_dtype(x: Tensor) -> torch.dtype:
    """The type in which matrix products of ``x`` are computed: that of autocast where it is on, else that of ``x``."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


def lacks_lstm(inputs: Tensor) -> bool:
    """Whether torch's LSTM has no kernel for what ``inputs`` are computed in: bfloat16 on a CPU without AVX-512."""
    return inputs.device.type == "cpu" and compute_dtype(inputs) == torch.bfloat16 and not has_kernels_for_bfloat16()


@cache
def has_kernels_for_bfloat16() -> bool:
    """Whether oneDNN computes in bfloat16 on this processor."""
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def lstm_layer(
    inputs: Tensor,
    states: tuple[Tensor, Tensor],
    weights: Sequence[Tensor],
    *,
    training: bool,
    bidirectional: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """``torch.lstm`` of one layer with biases on ``inputs (B, T, m)``; in float32 where there is no other kernel."""
    if lacks_lstm(inputs):
        wide = (states[0].float(), states[1].float())
        with torch.autocast(inputs.device.type, enabled=False):
            return lstm_layer(inputs.float(), wide, weights, training=training, bidirectional=bidirectional)
    result: tuple[Tensor, Tensor, Tensor] = torch.lstm(
        inputs, states, tuple(weights), True, 1, 0.0, training, bidirectional, True
    )
    return result
