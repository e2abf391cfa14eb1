"""Checks that all taggers share: models whose targets have one step ``y_t`` for each step ``x_t`` of the source."""

from __future__ import annotations

import numpy as np

from seqmodels.encodings import Encoding
from seqmodels.encodings.raw_data import Data
from seqmodels.sequences import Item

WAY_OUT = "pass targets with a step for each of their source's, or take an encoder-decoder such as LSTMSeq2Seq"


def check_choices(name: str, length: str, ignore_source: bool) -> None:
    """Raise ValueError if hyperparameters have values that a tagger, which predicts one target per step, cannot use.

    Args:
        name: name of the model in the message.
        length: hyperparameter ``length`` of the model.
        ignore_source: hyperparameter ``ignore_source`` of the model.
    """
    if length == "stop":
        raise ValueError(
            f"length is 'stop', but the targets of {name} are as long as their sources, so their end cannot be an "
            "event; pass length='given', or leave it out"
        )
    if ignore_source:
        raise ValueError(
            f"{name} needs its sources, which determine the length of its targets; leave ignore_source out, or for "
            "p(y) as a baseline use LSTM(ignore_source=True, length='given')"
        )


def check_has_targets(name: str, data: Data) -> None:
    """Raise ValueError if data for a tagger have no targets.

    Args:
        name: name of the tagger in the message.
        data: sources, with or without targets.
    """
    if data.y is None:
        raise ValueError(f"{name} is p(y | x); pass y, with one step for each step of X")


def check_aligned(encoding: Encoding, source_encoding: Encoding, data: Data) -> None:
    """Raise ValueError unless every target has as many encoded steps as its source; the message names the sequence.

    Args:
        encoding: fitted encoding of the targets ``data.y``.
        source_encoding: fitted encoding of the sources ``data.X``.
        data: sources and targets.
    """
    assert data.y is not None, "a tagger is p(y | x)"
    if data.has_past:
        _check_aligned_past(encoding, source_encoding, data)
    for i, (x, y) in enumerate(zip(data.X, data.y, strict=True)):
        n_source, n_target = _n_steps(source_encoding, x), _n_steps(encoding, y)
        if n_source != n_target:
            raise ValueError(f"sequence {i} has {n_source} steps in X but {n_target} in y; {WAY_OUT}")


def _check_aligned_past(encoding: Encoding, source_encoding: Encoding, data: Data) -> None:
    assert data.y is not None, "a tagger is p(y | x)"
    n = len(data.X)
    pasts = zip(data.X.past or [None] * n, data.y.past or [None] * n, strict=True)
    for i, (x, y) in enumerate(pasts):
        n_source = 0 if x is None else _n_steps(source_encoding, x)
        n_target = 0 if y is None else _n_steps(encoding, y)
        if n_source != n_target:
            raise ValueError(
                f"the past of sequence {i} has {n_source} steps in X but {n_target} in y; keep as many of both "
                "(split(past=)), or pass them without_past()"
            )


def n_steps_left(source: np.ndarray, n_prefix: int, length: int | None) -> int:
    """Return how many steps a tagger still has to predict after a given beginning of the target.

    Args:
        source: encoded source, whose number of steps is that of the whole target.
        n_prefix: number of target steps that are given.
        length: number of further steps that the user asked for; None if the argument was left out.

    Raises:
        ValueError: if the prefix is longer than the source, or ``length`` is not the number of steps that are left.
    """
    n_left = len(source) - n_prefix
    if n_left < 0:
        raise ValueError(
            f"the prefix has {n_prefix} steps, but the source has {len(source)} and its target as many; pass a prefix "
            "that is no longer"
        )
    if length is not None and length != n_left:
        after = f", of which {n_left} follow the prefix" if n_prefix else ""
        raise ValueError(
            f"length is {length}, but the source has {len(source)} steps and its target as many{after}; leave length "
            f"out, or {WAY_OUT}"
        )
    return n_left


def past_the_source(n_steps: int) -> ValueError:
    """Return the ValueError to raise if a tagger is asked for more target steps than its source has.

    Args:
        n_steps: number of steps of the source.
    """
    return ValueError(
        f"the source has {n_steps} steps and so has its target: there is no step {n_steps}, so nothing comes next"
    )


def _n_steps(encoding: Encoding, item: Item) -> int:
    return len(encoding.encode(item)) if isinstance(item, str) else len(item)
