"""Log-densities of each feature given the others of its step and the steps before, which show what is improbable."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from seqmodels.encodings.examples import Example, without_past
from seqmodels.encodings.precision import in_float64, squares_exceed_float32
from seqmodels.encodings.raw_data import Data
from seqmodels.encodings.series import SeriesEncoding
from seqmodels.generation import Prediction
from seqmodels.model import SequenceModel
from seqmodels.model.fitting import checked_data
from seqmodels.model.teacher_forcing import ForcedBatch
from seqmodels.sequences.measure import is_atom

BATCH = 24  # number of sequences that are read together
MAX_NUMBERS = 1 << 23  # largest number of values in steps that are computed together


def feature_log_probs(model: SequenceModel, X: Any, y: Any = None) -> list[np.ndarray]:
    """Return the log-density of each of D features given the others of its step and all steps before.

    The result is a list with an array ``(T, D)`` for each sequence,
    ``log p(x_td | the other features of step t, the steps before t)``. Values are in nats and raw units: a density for
    a real feature, a probability for a bit or a count. They are exact: the joint log-density minus the log-density of
    the other features. They are NaN where the feature is missing, or the other features are impossible.

    Args:
        model: a fitted model of vectors.
        X: a list of ``(T, D)`` arrays, or ``Sequences``.
        y: sequences to be scored given ``X``, one for each, for a model of y given x; None for a model of ``X``.

    Raises:
        ValueError: If the features of the observation cannot be summed out, or the model cannot read the sequences.
    """
    data = checked_data(model, X, y)
    if not model.observation_.has_full_conditionals(model.encoding_.size):
        raise ValueError(f"{model.observation_!r} does not know its density without one of the features")
    given_past = model._setting().examples(data, may_have_no_steps=True)
    examples = [replace(example, n_past=0) for example in given_past]  # past steps too
    order = np.argsort([len(example.values) for example in examples], kind="stable")
    order = np.array([i for i in order if len(examples[i].values)])
    conditionals: dict[int, np.ndarray] = {}
    width = 1 if data.y is not None else BATCH  # one at a time, because sources differ in length
    for at in range(0, len(order), width):
        rows = order[at : at + width]
        batch = ForcedBatch.from_examples([examples[i] for i in rows], max(len(examples[i].values) for i in rows), 0)
        values = np.concatenate(list(_conditionals(model, batch)), 1)  # (n, T, D)
        conditionals |= {int(i): values[row, : len(examples[i].values)] for row, i in enumerate(rows)}
    if isinstance(model.encoding_, SeriesEncoding):
        return _of_series(model.encoding_, data, given_past, conditionals)
    log_scale, kinds = np.log(model.encoding_.affine()[1]), model.encoding_.values()
    result = []
    for i, example in enumerate(examples):
        values = np.asarray(example.values)
        raw = conditionals[i] - np.where(is_atom(values, kinds), 0.0, log_scale)
        result.append(np.where(np.isnan(values), np.nan, raw))
    return without_past(given_past, result)


def _of_series(
    encoding: SeriesEncoding, data: Data, examples: list[Example], conditionals: dict[int, np.ndarray]
) -> list[np.ndarray]:
    """Convert the log-densities of features to the raw units of each series, and return an array ``(T, D)`` for each.

    Each feature is encoded by itself. First frames that are no encoded steps have independent features.

    Args:
        encoding: encoding of the series.
        data: the raw sequences.
        examples: the encoded sequences.
        conditionals: log-densities of the encoded steps of each sequence by its index, with its past included.
    """
    result = []
    pasts = data.X.past or [None] * len(data.X)
    for i, (item, past, example) in enumerate(zip(data.X, pasts, examples, strict=True)):
        values = encoding.of_values_after(past, item)
        n = len(example.values) - example.n_past
        if n:
            values[len(values) - n :] += conditionals[i][example.n_past :]
        result.append(np.where(np.isnan(np.asarray(item)), np.nan, values))
    return result


def _conditionals(model: SequenceModel, batch: ForcedBatch) -> Iterator[np.ndarray]:
    """Yield the log-densities of features, ``(n, t, D)``, for as many of the steps of n sequences as fit in memory."""
    precise = in_float64(model) if squares_exceed_float32(batch.values.flatten(0, 1).numpy()) else model
    waiting: list[tuple[Prediction, torch.Tensor]] = []
    for prediction, x, _ in batch.steps(precise):
        # A mixture may have more components the longer the past is.
        if waiting and waiting[0][0].output_parameters.shape != prediction.output_parameters.shape:
            yield _joined_conditionals(waiting)
            waiting = []
        waiting.append((prediction, x.to(prediction.output_parameters)))
        size = prediction.output_parameters.numel() * x.shape[-1]
        if len(waiting) * size >= MAX_NUMBERS:
            yield _joined_conditionals(waiting)
            waiting = []
    if waiting:
        yield _joined_conditionals(waiting)


def _joined_conditionals(steps: list[tuple[Prediction, torch.Tensor]]) -> np.ndarray:
    first = steps[0][0]
    n = len(first.output_parameters)

    def joined(name: str) -> Any:
        parts = [getattr(prediction, name) for prediction, _ in steps]
        if name == "past" and parts[0] is not None:  # a past has more rows after a missing value
            rows = max(part.shape[1] for part in parts)
            parts = [torch.nn.functional.pad(part, (0, 0, 0, rows - part.shape[1])) for part in parts]
        return None if parts[0] is None else torch.cat(parts)

    many = Prediction(first.observation, joined("output_parameters"), joined("log_weights"), joined("past"), None)
    conditionals = many.full_conditionals(torch.cat([x for _, x in steps]))
    return conditionals.view(len(steps), n, -1).transpose(0, 1).cpu().numpy()
