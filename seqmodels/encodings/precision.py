"""Log-probabilities in the precision they need: finite, or -inf for a true zero.

Sequences whose figures float32 cannot hold are computed in float64, and only these; what float64 cannot hold is
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

# Magnitudes of encoded values:
MAX_SQUARED_IN_FLOAT32 = 1e15  # up to which float32 holds squares, and layers hold squares of sums
MAX_FLOAT64 = 1e50  # the same of float64's fourth powers: a network's precision grows with what it reads
MAX_FLOAT64_SQUARED = 1e140  # up to which float64 holds a square at all


class Computes(Protocol):
    """A model that computes in the precision and on the device that it names when it computes."""

    dtype: str
    device: str


Model = TypeVar("Model", bound=Computes)
Score = Callable[[list[Example]], list[np.ndarray]]


def check_device(device: Any) -> None:
    """Raise ``ValueError`` for what names no device, whether this machine has it or not."""
    try:
        is_known = isinstance(device, str) and (device == "auto" or torch.device(device).type != "meta")
    except RuntimeError:
        is_known = False
    if not is_known:
        raise ValueError(f"device is {device!r}; pass 'auto', or the name of one that torch has, such as 'cuda:0'")


def check_device_is_here(device: str) -> None:
    """Raise ``ValueError`` for a device that this machine does not have."""
    if device in ("auto", "cpu"):
        return
    try:
        torch.empty(0, device=device)
    except (AssertionError, NotImplementedError, RuntimeError) as error:
        first = str(error).strip().partition("\n")[0]
        raise ValueError(f"device is {device!r}, which cannot be used here ({first}); pass 'auto' or 'cpu'") from error


def in_float64(model: Model) -> Model:
    """The same model, computing in float64; the one given stays as it is."""
    return computing_in(model, "float64", model.device)


def computing_in(model: Model, dtype: str, device: str) -> Model:
    """The same model, computing in ``dtype`` on ``device``; the one given stays as it is."""
    if (model.dtype, model.device) == (dtype, device):
        return model
    twin = copy.copy(model)
    twin.dtype, twin.device = dtype, device
    return twin


def checked_log_prob_steps(
    examples: list[Example], score: Score, score_in_float64: Score, what: str
) -> list[np.ndarray]:
    """Log-probabilities of the steps of each example: of ``score`` where certain, else of ``score_in_float64``.

    Without those of its past.

    Args:
        examples: what is scored.
        score: the model in its own precision.
        score_in_float64: the same model in float64.
        what: what the sequences are called in an error: ``X`` or ``y``.

    Raises:
        ValueError: a log-probability that float64 cannot hold, by sequence and position.
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
        if math.isfinite(np.concatenate(steps).sum()):  # and so is the sum of each
            return without_past(examples, steps)
    doubtful = [i for i, (e, s) in enumerate(zip(examples, steps, strict=True)) if not _is_certain(e, s)]
    if not doubtful:
        return without_past(examples, steps)
    steps = list(steps)
    for i in doubtful:  # one at a time: what is lost in one must not reach the others
        steps[i] = _steps_in_float64(i, examples[i], score_in_float64, what)
    return without_past(examples, steps)


def _beyond_float32(examples: list[Example]) -> set[int]:
    """Those that have a value whose square float32 cannot be trusted with."""
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
        # Of a covariance that no precision can hold there is no figure.
        with suppress(torch.linalg.LinAlgError):  # type: ignore[attr-defined]
            (steps,) = score([example])
    if not _is_finite(steps):
        _refuse_unless_zero(i, example, steps, score, what)
    return steps


def squares_exceed_float32(values: np.ndarray | None) -> bool:
    """Whether encoded vectors have a value whose square float32 cannot be trusted with."""
    return _largest(values) > MAX_SQUARED_IN_FLOAT32


def refuse_beyond_float64(values: np.ndarray, what: str) -> None:
    """Raise ``ValueError`` for encoded vectors that have a value whose square float64 cannot hold."""
    if _largest(values) > MAX_FLOAT64:
        raise ValueError(
            f"{what} has {where_largest(values)}; float64 cannot hold its density: remove or rescale the value"
        )


def _is_certain(example: Example, steps: np.ndarray) -> bool:
    """Finite; of symbols also zero, which is the same in any precision."""
    return _is_finite(steps) or (not _is_vectors(example.values) and _is_zero(steps))


def _is_finite(steps: np.ndarray) -> bool:
    return math.isfinite(total(steps))


def _is_zero(steps: np.ndarray) -> bool:
    """Whether some steps are -inf, and all others finite."""
    return bool((steps < np.inf).all()) and bool(np.isneginf(steps).any())


def _refuse_unless_zero(i: int, example: Example, steps: np.ndarray, score: Score, what: str) -> None:
    """Where values of a size that float64 holds have probability zero too, the zero is the model's."""
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
        f"{cause or f'{steps[t]} at step {t}'}; remove or rescale what is far from the training data, or mark it "
        "missing with NaN"
    )


def _is_vectors(values: np.ndarray | None) -> bool:
    return isinstance(values, np.ndarray) and values.ndim == 2


def _largest(values: np.ndarray | None) -> float:
    """Magnitude, of what is not missing; 0 where there are none in memory."""
    if isinstance(values, OnDisk):
        return values.largest if values.ndim == 2 else 0.0
    if values is None or not _is_vectors(values) or not values.size:
        return 0.0
    largest = max(float(np.fmax.reduce(values, axis=None)), -float(np.fmin.reduce(values, axis=None)))
    return 0.0 if math.isnan(largest) else largest


def _clipped(values: np.ndarray) -> np.ndarray:
    return np.clip(values, -MAX_FLOAT64, MAX_FLOAT64) if _is_vectors(values) else values


def where_largest(values: np.ndarray) -> str:
    """The largest of encoded vectors ``(T, D)``, and where it is, for an error."""
    if isinstance(values, OnDisk):
        return f"{values.largest:.3g} times the usual deviation"
    frame, feature = np.unravel_index(int(np.nanargmax(np.abs(values))), values.shape)
    return f"{abs(values[frame, feature]):.3g} times the usual deviation at frame {frame}, feature {feature}"
