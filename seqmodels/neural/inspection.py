"""Inspection of a fitted network's predictions: gradients with respect to earlier steps, and attention weights."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from seqmodels.encodings.examples import Example
from seqmodels.model.fitting import checked_data
from seqmodels.neural.batches import PaddedBatch, StepRange, assemble
from seqmodels.neural.embedding_and_head import SequenceModule
from seqmodels.neural.model import NeuralModel
from seqmodels.neural.network import Network
from seqmodels.neural.scoring import batch_log_prob

if TYPE_CHECKING:
    import pandas as pd

MAX_STEPS_PER_BATCH = 8_192  # limits memory, changes no result


def gradient_by_lag(model: NeuralModel, X: Any, lags: Sequence[int]) -> pd.DataFrame:
    """Return how strongly predictions depend on earlier inputs: mean norms of gradients, by lag.

    For embedded inputs e it is the norm of ``∂ log p(x_t | x_<t) / ∂ e_{t - lag}``, averaged over all t that have at
    least ``lag`` steps before them. Only gradients through the network count, not the linear skip from the last vector
    or an observation's own past steps. If the past fades (Hochreiter 1991; Bengio et al. 1994), the norm falls
    geometrically with the lag. The computation takes a backward pass for every step of the longest sequence, so pass
    short parts of long sequences (``Sequences.chunks``).

    Args:
        model: a model fitted without targets.
        X: sequences as for ``fit``, at least one longer than the longest lag, none longer than ``model.context_``.
        lags: numbers of steps back, at least 1, which is the step before.

    Returns:
        A frame with columns ``lag``, ``gradient`` (nats per unit of the embedding) and ``n_steps``, the number of steps
        in the mean.

    Raises:
        ValueError: if a lag is below 1 or no sequence is longer than it, if a sequence is longer than the context, or
            if the model is of p(y | x).
    """
    import pandas as pd

    examples, module = _examples(model, X), copy.deepcopy(model._evaluation_module())  # a copy, which gets a hook
    checked = _check_lags(lags, max(len(example.values) for example in examples))
    sums, counts = np.zeros(len(checked)), np.zeros(len(checked), np.int64)
    for batch in _batches(examples):
        norms, lengths = _norms(model, module, batch, max(checked))
        for i, lag in enumerate(checked):
            step = np.arange(norms.shape[1])
            mask = (step >= lag) & (step < lengths[:, None])  # (B, T), True at steps with so long a past
            sums[i] += norms[..., lag - 1][mask].sum()
            counts[i] += mask.sum()
    return pd.DataFrame({"lag": checked, "gradient": sums / counts, "n_steps": counts})


def _examples(model: NeuralModel, X: Any) -> list[Example]:
    if model._setting().measure.conditional:
        raise ValueError("the model was fitted as p(y | x), but the gradient by lag needs p(x); fit without y")
    data = checked_data(model, X, None)
    data.refuse_past("the gradient by lag")
    examples = model._setting().examples(data)
    longest = max(len(example.values) for example in examples)
    if model.context_ is not None and longest > model.context_:
        raise ValueError(
            f"a sequence has {longest} steps, but the context of the model is {model.context_}; pass shorter parts "
            "(Sequences.chunks)"
        )
    return examples


def _check_lags(lags: Sequence[int], longest: int) -> list[int]:
    checked = [int(lag) for lag in lags]
    if not checked or min(checked) < 1:
        raise ValueError(f"lags are {checked}; pass at least one, and none below 1, the step before")
    if max(checked) >= longest:
        raise ValueError(
            f"lag {max(checked)} is asked for but the longest sequence has {longest} steps; pass longer ones"
        )
    return checked


def _batches(examples: list[Example]) -> list[list[Example]]:
    ordered = sorted(examples, key=lambda example: len(example.values))
    size = max(1, MAX_STEPS_PER_BATCH // len(ordered[-1].values))
    return [ordered[i : i + size] for i in range(0, len(ordered), size)]


def _norms(
    model: NeuralModel, module: SequenceModule[Any], examples: list[Example], furthest: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return norms of gradients of a padded batch of B examples by step and lag, and the examples' lengths.

    Args:
        model: the fitted model.
        module: a copy of its module, in evaluation mode.
        examples: B encoded sequences, at most T steps each.
        furthest: the largest lag.

    Returns:
        norms: norm of ``∂ log p(x_t | x_<t) / ∂ e_{t - lag}`` at ``[b, t, lag - 1]``, for lags up to ``furthest``,
            ``(B, T, furthest)``.
        lengths: number of steps of each example, ``(B,)``.
    """
    rows = model._rows(examples)
    parameter = next(module.parameters())
    ranges = [StepRange(i, 0, len(row.values)) for i, row in enumerate(rows)]
    batch = assemble(rows, ranges, model.observation_.n_past, parameter.device, parameter.dtype)
    # cuDNN has no backward pass in evaluation mode.
    with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
        log_prob, inputs = _log_prob_and_inputs(model, module, batch)
        norms = torch.zeros(*log_prob.shape, furthest, dtype=torch.float64)
        for t in range(1, log_prob.shape[1]):
            # Sequences are independent, so the gradient of the sum over them holds the gradient of each.
            (gradient,) = torch.autograd.grad(log_prob[:, t].sum(), inputs, retain_graph=True)
            first = max(1, t + 1 - furthest)  # input s is element s - 1, so element t - lag is input t - lag + 1
            by_lag = gradient[:, first : t + 1].norm(dim=-1).flip(1)  # (B, at most furthest), lag 1 first
            norms[:, t, : by_lag.shape[1]] = by_lag.double().cpu()
    return norms.numpy(), np.array([len(row.values) for row in rows])


def _log_prob_and_inputs(model: NeuralModel, module: SequenceModule[Any], batch: PaddedBatch) -> tuple[Tensor, Tensor]:
    """Return each step's log-probability ``(B, T)`` and the network's embedded inputs, ``(B, T, d_model)``.

    The first can be differentiated by the second.

    Args:
        model: the fitted model.
        module: a copy of its module.
        batch: B sequences of T steps.
    """
    captured: list[Tensor] = []
    with module.network.register_forward_pre_hook(lambda _, arguments: captured.append(arguments[0])):
        log_prob, _, _ = batch_log_prob(module, model.observation_, batch, module.start(len(batch.rows), None, None))
    return log_prob, captured[0]


@torch.no_grad()
def self_attention(
    model: NeuralModel, X: Any, attention_weights: Callable[[Network[Any], Tensor], Tensor]
) -> list[np.ndarray]:
    """Return, for each sequence, the attention weights ``(T, T)`` with which its T steps were predicted.

    Row t has the weights for the prediction of step t, from the inputs of steps up to t. Long sequences are read in
    windows, as they are for scoring; weights outside the window are 0.

    Args:
        model: a model fitted without ``y``.
        X: sequences.
        attention_weights: computes weights (1, T, T) from the network and embedded inputs (1, T, d) that begin a
            sequence, d the width of the model.

    Raises:
        ValueError: if the model was fitted with ``y``, or ``X`` has a past.
    """
    if model._setting().measure.conditional:
        raise ValueError("the model was fitted as p(y | x), but self-attention needs a model of p(x); fit without y")
    data = checked_data(model, X, None)
    data.refuse_past("attention")
    examples = model._setting().examples(data)
    rows, module, windowing = model._rows(examples), model._evaluation_module(), model._windowing()
    parameter, result = next(module.parameters()), []
    for i, example in enumerate(examples):
        n = len(example.values)
        weights = np.zeros((n, n))
        for begin, end, scored_from in windowing.windows(n):
            batch = assemble(rows, [StepRange(i, begin, end)], 0, parameter.device, parameter.dtype)
            inputs = module.embed(batch.inputs, batch.is_start, batch.is_after_source, batch.exogenous)
            of_window = attention_weights(module.network, inputs)[0].double().cpu().numpy()
            weights[scored_from:end, begin:end] = of_window[scored_from - begin :]
        result.append(weights)
    return result


@torch.no_grad()
def source_attention(
    model: NeuralModel, X: Any, y: Any, attention_weights: Callable[[Tensor, Any], Tensor]
) -> list[np.ndarray]:
    """Return, for each pair of source and target, the attention weights ``(S_y, S_x)`` of an encoder-decoder.

    S_y is the number of steps of the target as the model reads it, without its end, and S_x that of the source.

    Args:
        model: a model with an encoder, fitted with ``y``.
        X: sources.
        y: targets; row t has the weights with which step t was predicted.
        attention_weights: computes weights (1, T, S) from embedded inputs (1, T, d) and the network's state before
            them, d the width of the model.
    """
    data = checked_data(model, X, y)
    data.refuse_past("attention")
    examples = model._setting().examples(data)
    rows, module = model._rows(examples), model._evaluation_module()
    parameter, result = next(module.parameters()), []
    for i, (row, example) in enumerate(zip(rows, examples, strict=True)):
        batch = assemble(rows, [StepRange(i, 0, row.n_steps)], 0, parameter.device, parameter.dtype)
        state = module.start(1, batch.source, batch.source_mask)
        weights = attention_weights(
            module.embed(batch.inputs, batch.is_start, batch.is_after_source, batch.exogenous), state
        )
        result.append(weights[0, : len(example.values)].double().cpu().numpy())
    return result
