"""Computation of log-probabilities in the precision that they need, so that they are finite, or -inf for a true zero.

Only sequences whose log-probabilities float32 cannot hold are computed in float64; those that float64 cannot hold are
refused.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol, TypeVar

import numpy as np
import torch

from seqmodels.encodings.examples import Example, without_past
from seqmodels.encodings.on_disk import OnDisk
from seqmodels.sequences.items import MANY, are_many_short
from seqmodels.sequences.mapped import any_mapped, total

DTYPES = {"float32": torch.float32, "float64": torch.float64}

# Largest magnitudes of encoded values:
MAX_SQUARED_IN_FLOAT32 = 1e15  # float32 holds squares, also those of sums in a network's layers
MAX_FLOAT64 = 1e50  # float64 holds fourth powers, because a network's output precision can grow with its input
MAX_FLOAT64_SQUARED = 1e140  # float64 holds a square at all


class Computes(Protocol):
    """The protocol of objects with the attributes ``dtype`` and ``device``, the precision and place of computations."""

    dtype: str
    device: str


Model = TypeVar("Model", bound=Computes)
Score = Callable[[list[Example]], list[np.ndarray]]


def check_device(device: Any) -> None:
    """Raise ValueError unless a device is ``"auto"`` or a name that torch knows, even of one not in this machine."""
    try:
        is_known = isinstance(device, str) and (device == "auto" or torch.device(device).type != "meta")
    except RuntimeError:
        is_known = False
    if not is_known:
        raise ValueError(f"device is {device!r}; pass 'auto', or the name of one that torch has, such as 'cuda:0'")


def check_device_is_here(device: str) -> None:
    """Raise ValueError if this machine does not have a device, given by its name."""
    if device in ("auto", "cpu"):
        return
    try:
        torch.empty(0, device=device)
    except (AssertionError, NotImplementedError, RuntimeError) as error:
        first = str(error).strip().partition("\n")[0]
        raise ValueError(f"device is {device!r}, which cannot be used here ({first}); pass 'auto' or 'cpu'") from error


def in_float64(model: Model) -> Model:
    """Return the model if it computes in float64, else a copy that does; the model itself is not changed."""
    return computing_in(model, "float64", model.device)


def computing_in(model: Model, dtype: str, device: str) -> Model:
    """Return the model if it computes in a given precision and place, else a shallow copy of it that does.

    Args:
        model: the model.
        dtype: ``"float32"`` or ``"float64"``.
        device: name of a device, or ``"auto"``.
    """
    if (model.dtype, model.device) == (dtype, device):
        return model
    twin = copy.copy(model)
    twin.dtype, twin.device = dtype, device
    return twin


def checked_log_prob_steps(
    examples: list[Example], score: Score, score_in_float64: Score, what: str
) -> list[np.ndarray]:
    """Return the log-probabilities of the steps of each encoded sequence in nats, without those of its past.

    Each sequence is scored by ``score`` if its precision suffices, else by ``score_in_float64``.

    Args:
        examples: encoded sequences.
        score: function that returns log-probabilities of the steps of examples, in the model's own precision.
        score_in_float64: the same function in float64.
        what: name of the sequences in errors, ``"X"`` or ``"y"``.

    Raises:
        ValueError: if float64 cannot hold a log-probability; the message names the sequence and position.
    """
    if any(not len(e.values) for e in examples):  # series of which no difference can be taken
        kept = [example for example in examples if len(example.values)]
        of_kept = iter(checked_log_prob_steps(kept, score, score_in_float64, what) if kept else [])
        return [next(of_kept) if len(example.values) else np.zeros(0) for example in examples]
    beyond = _beyond_float32(examples)
    if not beyond:
        steps = score(examples)
    else:
        others = [e for i, e in enumerate(examples) if i not in beyond]
        steps_of_others = iter(score(others) if others else [])
        steps = [np.array([np.nan]) if i in beyond else next(steps_of_others) for i in range(len(examples))]
    if len(steps) >= MANY and not any_mapped(steps):
        if math.isfinite(np.concatenate(steps).sum()):  # then the sum of each is finite too
            return without_past(examples, steps)
    doubtful = [i for i, (e, s) in enumerate(zip(examples, steps, strict=True)) if not _is_certain(e, s)]
    if not doubtful:
        return without_past(examples, steps)
    steps = list(steps)
    for i in doubtful:  # one at a time, so that an overflow in one does not affect the others
        steps[i] = _steps_in_float64(i, examples[i], score_in_float64, what)
    return without_past(examples, steps)


def _beyond_float32(examples: list[Example]) -> set[int]:
    """Return the indices of encoded sequences that have a value whose square is too large for float32."""
    values = [e.values for e in examples]
    if are_many_short(values) and all(type(v) is np.ndarray and v.ndim == 2 for v in values):
        if not squares_exceed_float32(np.concatenate(values)) and all(e.source is None for e in examples):
            return set()
    vectors = (i for i, e in enumerate(examples) if e.values.ndim == 2 or e.source is not None)
    return {
        i for i in vectors if squares_exceed_float32(examples[i].values) or squares_exceed_float32(examples[i].source)
    }


def _steps_in_float64(i: int, example: Example, score: Score, what: str) -> np.ndarray:
    steps = np.full(len(example.values), np.nan)
    if max(_largest(example.values), _largest(example.source)) <= MAX_FLOAT64_SQUARED:
        # A covariance that no precision can hold leaves the steps NaN.
        with suppress(torch.linalg.LinAlgError):  # type: ignore[attr-defined]
            (steps,) = score([example])
    if not _is_finite(steps):
        _refuse_unless_zero(i, example, steps, score, what)
    return steps


def squares_exceed_float32(values: np.ndarray | None) -> bool:
    """Return True if encoded vectors have a value whose square is too large for float32; False for symbols and None."""
    return _largest(values) > MAX_SQUARED_IN_FLOAT32


def refuse_beyond_float64(values: np.ndarray, what: str) -> None:
    """Raise ValueError if encoded vectors have a value so large that float64 cannot hold its density.

    Args:
        values: the encoded vectors.
        what: name of the vectors in the message.
    """
    if _largest(values) > MAX_FLOAT64:
        raise ValueError(
            f"{what} has a value {where_largest(values)}, whose density float64 cannot hold; remove or rescale it"
        )


def _is_certain(example: Example, steps: np.ndarray) -> bool:
    """Return True if the log-probabilities of the steps of a sequence need no check in float64.

    They are all finite or, for symbols, some are -inf, which is the same in any precision.

    Args:
        example: the encoded sequence.
        steps: log-probabilities of its steps.
    """
    return _is_finite(steps) or (not _is_vectors(example.values) and _is_zero(steps))


def _is_finite(steps: np.ndarray) -> bool:
    return math.isfinite(total(steps))


def _is_zero(steps: np.ndarray) -> bool:
    """Return True if some log-probabilities are -inf and all others are finite."""
    return bool((steps < np.inf).all()) and bool(np.isneginf(steps).any())


def _refuse_unless_zero(i: int, example: Example, steps: np.ndarray, score: Score, what: str) -> None:
    """Raise ValueError unless every -inf among log-probabilities is a true zero probability and not an overflow.

    The -inf are true zeros if the example, with its values clipped to what float64 can hold, has -inf at the same
    steps.

    Args:
        i: number of the example in the message.
        example: the encoded sequence.
        steps: its log-probabilities in float64.
        score: function that scores examples in float64.
        what: name of the sequences in the message, X or y.
    """
    wrong = ~np.isfinite(steps)
    if _is_zero(steps):
        if max(_largest(example.values), _largest(example.source)) <= MAX_FLOAT64:
            return
        source = None if example.source is None else _clipped(example.source)
        (clipped,) = score([replace(example, values=_clipped(example.values), source=source)])
        if np.array_equal(np.isneginf(clipped), wrong):
            return
    large = [v for v in (example.values, example.source) if v is not None and _largest(v) > MAX_SQUARED_IN_FLOAT32]
    cause = where_largest(large[0]) if large else None
    t = int(np.argmax(wrong)) if wrong.any() else int(np.argmin(steps))
    if example.n_past:
        what = f"{what}, counted from the beginning of its past,"
    raise ValueError(
        f"sequence {i} of {what} has no log-probability that float64 can hold: it has "
        f"{cause or f'{steps[t]} at step {t}'}; remove or rescale values far from the training data, or mark it "
        "missing with NaN"
    )


def _is_vectors(values: np.ndarray | None) -> bool:
    return isinstance(values, np.ndarray) and values.ndim == 2


def _largest(values: np.ndarray | None) -> float:
    """Return the largest magnitude in encoded vectors, leaving out missing values; 0 for symbols and None."""
    if isinstance(values, OnDisk):
        return values.largest if values.ndim == 2 else 0.0
    if values is None or not _is_vectors(values) or not values.size:
        return 0.0
    largest = max(float(np.fmax.reduce(values, axis=None)), -float(np.fmin.reduce(values, axis=None)))
    return 0.0 if math.isnan(largest) else largest


def _clipped(values: np.ndarray) -> np.ndarray:
    return np.clip(values, -MAX_FLOAT64, MAX_FLOAT64) if _is_vectors(values) else values


def where_largest(values: np.ndarray) -> str:
    """Return a phrase for an error that says how large the largest encoded value is, and where it is.

    Args:
        values: encoded vectors, ``(T, D)``.
    """
    if isinstance(values, OnDisk):
        return f"{values.largest:.3g} times the usual deviation"
    frame, feature = np.unravel_index(int(np.nanargmax(np.abs(values))), values.shape)
    return f"{abs(values[frame, feature]):.3g} times the usual deviation at frame {frame}, feature {feature}"
