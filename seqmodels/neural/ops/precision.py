"""The precision in which a network computes: how it is chosen, switched on, and read by this package's operations."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache

import torch
from torch import Tensor


def autocast_dtype(name: str, device: torch.device) -> torch.dtype | None:
    """Return the dtype of matrix products on a device; None for the dtype of the weights, without autocast.

    Args:
        name: ``"float32"``, ``"bfloat16"`` or ``"auto"``, which is bfloat16 on GPUs, and on processors that have
            instructions for it.
        device: the device.
    """
    if name == "auto":
        pays = device.type == "cuda" or bool(torch.cpu.get_capabilities().get("avx512_bf16"))
        return torch.bfloat16 if pays else None
    return torch.bfloat16 if name == "bfloat16" else None


def autocast(device: torch.device, precision: torch.dtype | None) -> torch.autocast:
    """Return a context in which matrix products are computed in this dtype; None means the dtype of the weights.

    torch's cache of weights in low precision is off. It is shared by all threads, and whichever thread first ends a
    step empties it, so that a weight that is read twice in a step would be cast once or twice by chance, and its
    gradient rounded once or twice.
    """
    return torch.autocast(device.type, dtype=precision, enabled=precision is not None, cache_enabled=False)


_LOCK = threading.Lock()
_WITHOUT_TF32 = [0]  # number of calls that are inside ``without_tf32``


def without_tf32(x: Tensor) -> AbstractContextManager[None]:
    """Return a context in which cuDNN's recurrent layers and convolutions of float32 on a GPU have full precision.

    By default cuDNN uses TF32 for them, which has three digits; torch's own products use float32. ``x`` is an input of
    the layers; if it is not on a GPU, the context does nothing.
    """
    return _without_tf32() if x.is_cuda and not torch.compiler.is_compiling() else nullcontext()


@contextmanager
def _without_tf32() -> Iterator[None]:
    cudnn = torch.backends.cudnn
    with _LOCK:
        before = cudnn.rnn.fp32_precision, cudnn.conv.fp32_precision  # type: ignore[attr-defined]
        takes_tf32 = _WITHOUT_TF32[0] > 0 or before == ("tf32", "tf32")
        if takes_tf32:
            cudnn.allow_tf32 = False
            _WITHOUT_TF32[0] += 1
    try:
        yield
    finally:
        if takes_tf32:
            with _LOCK:
                _WITHOUT_TF32[0] -= 1
                cudnn.allow_tf32 = _WITHOUT_TF32[0] == 0


def compute_dtype(x: Tensor) -> torch.dtype:
    """Return the dtype of matrix products with ``x``: autocast's if it is on, else the dtype of ``x``."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


def lacks_lstm(inputs: Tensor) -> bool:
    """Return True if torch's LSTM has no kernel for the dtype of ``inputs``: bfloat16 on a CPU without AVX-512."""
    return inputs.device.type == "cpu" and compute_dtype(inputs) == torch.bfloat16 and not has_kernels_for_bfloat16()


@cache
def has_kernels_for_bfloat16() -> bool:
    """Return True if oneDNN computes in bfloat16 on this processor."""
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def lstm_layer(
    inputs: Tensor,
    states: tuple[Tensor, Tensor],
    weights: Sequence[Tensor],
    *,
    training: bool,
    bidirectional: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Run one LSTM layer by torch's kernel, in float32 if there is no kernel for the dtype of the inputs.

    Args:
        inputs: m features at T steps of B sequences, ``(B, T, m)``.
        states: h and c before the first step, of width d, each ``(directions, B, d)``.
        weights: torch's weights and biases of the layer.
        training: True in training.
        bidirectional: True for two directions.

    Returns:
        The outputs, ``(B, T, directions d)``, and h and c after the last step, each ``(directions, B, d)``.
    """
    if lacks_lstm(inputs):
        wide = (states[0].float(), states[1].float())
        with torch.autocast(inputs.device.type, enabled=False):
            return lstm_layer(inputs.float(), wide, weights, training=training, bidirectional=bidirectional)
    with without_tf32(inputs):
        result: tuple[Tensor, Tensor, Tensor] = torch.lstm(
            inputs, states, tuple(weights), True, 1, 0.0, training, bidirectional, True
        )
    return result
