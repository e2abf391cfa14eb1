"""How far back a network's predictions reach: the gradient of ``log p(x_t | x_<t)`` with respect to ``x_{t - lag}``."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from seqmodels.neural.batches import Chunk, Span, assemble
from seqmodels.neural.model import NeuralModel
from seqmodels.neural.module import SequenceModule, chunk_log_prob
from seqmodels.preparation import Example

if TYPE_CHECKING:
    import pandas as pd

STEPS_AT_ONCE = 8_192  # in one batch: bounds memory, changes nothing


def gradient_by_lag(model: NeuralModel, X: Any, lags: Sequence[int]) -> pd.DataFrame:
    """The mean norm of ``∂ log p(x_t | x_<t) / ∂ e_{t - lag}``, e the embedded inputs, over every t that has such a past.

    Only what goes through the network counts: not the linear skip from the last vector, nor an observation's own past steps.
    Where the past fades (Hochreiter 1991; Bengio et al. 1994) it falls geometrically with the lag. It takes a backward pass for
    every step of the longest sequence, so pass short pieces of long ones (``Sequences.chunks``).

    Args:
        model: fitted, without targets.
        X: sequences as for ``fit``, at least one longer than the longest lag, none longer than ``model.context_``.
        lags: at least 1, the step before.

    Returns:
        Columns ``lag``, ``gradient`` (nats per unit of the embedding) and ``n_steps``, how many steps the mean is over.

    Raises:
        ValueError: a lag below 1 or that no sequence reaches, a sequence longer than the context, a model of p(y | x).
    """
    import pandas as pd

    examples, module = _examples(model, X), copy.deepcopy(model._ready())  # a copy, which is to be listened to
    wanted = _check_lags(lags, max(len(example.values) for example in examples))
    sums, counts = np.zeros(len(wanted)), np.zeros(len(wanted), np.int64)
    for batch in _batches(examples):
        norms, lengths = _norms(model, module, batch, max(wanted))
        for i, lag in enumerate(wanted):
            real = np.arange(norms.shape[1]) >= lag  # (T,) steps that have so long a past
            real = real & (np.arange(norms.shape[1]) < lengths[:, None])  # (B, T)
            sums[i] += norms[..., lag - 1][real].sum()
            counts[i] += real.sum()
    return pd.DataFrame({"lag": wanted, "gradient": sums / counts, "n_steps": counts})


def _examples(model: NeuralModel, X: Any) -> list[Example]:
    if model._setting().measure.conditional:
        raise ValueError("the model was fitted as p(y | x), but the gradient by lag is of p(x); fit without y")
    examples = model._setting().examples(model._checked_data(X, None))
    longest = max(len(example.values) for example in examples)
    if model.context_ is not None and longest > model.context_:
        raise ValueError(
            f"a sequence has {longest} steps, but the model sees {model.context_} at once; pass shorter pieces "
            "(Sequences.chunks)"
        )
    return examples


def _check_lags(lags: Sequence[int], longest: int) -> list[int]:
    wanted = [int(lag) for lag in lags]
    if not wanted or min(wanted) < 1:
        raise ValueError(f"lags are {wanted}; pass at least one, and none below 1, the step before")
    if max(wanted) >= longest:
        raise ValueError(
            f"lag {max(wanted)} is asked for but the longest sequence has {longest} steps; pass longer ones"
        )
    return wanted


def _batches(examples: list[Example]) -> list[list[Example]]:
    """Of like lengths."""
    ordered = sorted(examples, key=lambda example: len(example.values))
    size = max(1, STEPS_AT_ONCE // len(ordered[-1].values))
    return [ordered[i : i + size] for i in range(0, len(ordered), size)]


def _norms(
    model: NeuralModel, module: SequenceModule, examples: list[Example], furthest: int
) -> tuple[np.ndarray, np.ndarray]:
    """``(B, T, furthest)`` norms, of which the last axis is the lag less one, and the lengths ``(B,)``."""
    rows = model._rows(examples)
    parameter = next(module.parameters())
    spans = [Span(i, 0, len(row.values)) for i, row in enumerate(rows)]
    chunk = assemble(rows, spans, model.observation_.n_past, parameter.device, parameter.dtype)
    with (
        torch.enable_grad(),
        torch.backends.cudnn.flags(enabled=False),
    ):  # cuDNN has no backward pass in evaluation mode
        log_prob, inputs = _forward(model, module, chunk)
        norms = torch.zeros(*log_prob.shape, furthest, dtype=torch.float64)
        for t in range(1, log_prob.shape[1]):
            # Sequences are independent: the gradient of the sum over them is that of each.
            (slope,) = torch.autograd.grad(log_prob[:, t].sum(), inputs, retain_graph=True)
            first = max(1, t + 1 - furthest)  # input s shows element s - 1, so element t - lag is input t - lag + 1
            back = slope[:, first : t + 1].norm(dim=-1).flip(1)  # (B, at most furthest), lag 1 first
            norms[:, t, : back.shape[1]] = back.double().cpu()
    return norms.numpy(), np.array([len(row.values) for row in rows])


def _forward(model: NeuralModel, module: SequenceModule, chunk: Chunk) -> tuple[Tensor, Tensor]:
    """``(B, T)`` log-probabilities and the embedded inputs ``(B, T, d_model)`` that they follow from."""
    heard: list[Tensor] = []
    with module.network.register_forward_pre_hook(lambda _, arguments: heard.append(arguments[0])):
        log_prob, _, _ = chunk_log_prob(module, model.observation_, chunk, module.start(len(chunk.rows), None, None))
    return log_prob, heard[0]
