"""Whether fitted encodings can read sequences: of their kind, with their features, with missing values or without."""

from __future__ import annotations

from typing import cast

import numpy as np

from seqmodels.common.display import listed
from seqmodels.encodings import Encoding
from seqmodels.sequences import Item, Sequences
from seqmodels.sequences.mapped import MappedArray


def check_readable(what: str, sequences: Sequences, encoding: Encoding, missing_is_summed_out: bool) -> None:
    """Raise ``ValueError``, naming sequence and position, for ``what``, X or y, that the encoding cannot read."""
    if sequences.kind != encoding.reads:
        raise ValueError(f"the model was fitted on {encoding.reads} but got {sequences.kind} as {what}")
    if sequences.kind == "vectors":
        _check_features(what, sequences.features, encoding.names)
    encoding.check_all(sequences)
    if sequences.kind == "vectors" and not missing_is_summed_out:
        for i, item in enumerate(sequences):
            _refuse_missing(what, i, cast(np.ndarray, item))
    for i, past in enumerate(sequences.past or []):
        if past is not None:
            _check_past(what, i, past, encoding, missing_is_summed_out)


def check_reads(name: str, encoding: Encoding, sequences: Sequences) -> None:
    """Raise ``ValueError`` for an encoding, named by its argument, of another kind than the sequences."""
    if encoding.reads != sequences.kind:
        raise ValueError(f"the {name} {encoding!r} reads {encoding.reads} but the sequences are {sequences.kind}")


def _check_past(what: str, i: int, past: Item, encoding: Encoding, missing_is_summed_out: bool) -> None:
    try:
        encoding.check(i, past)
        if encoding.reads == "vectors" and not missing_is_summed_out:
            _refuse_missing(what, i, cast(np.ndarray, past))
    except ValueError as error:
        raise ValueError(f"of the past: {error}") from None


def _check_features(what: str, names: tuple[str, ...] | None, fitted: tuple[str, ...] | None) -> None:
    """Raise ``ValueError`` for names of features other than those of the fit, or in another order."""
    if names is None or fitted is None or names == fitted:
        return
    if sorted(names) == sorted(fitted):
        raise ValueError(
            f"the features of {what} are {listed(names)} but the model was fitted on {listed(fitted)}, in this order; "
            "pass them in this order"
        )
    differing = [
        f"{words} {listed(names)}"
        for words, names in (
            ("lacks", [name for name in fitted if name not in names]),
            ("has the unknown", [name for name in names if name not in fitted]),
        )
        if names
    ]
    raise ValueError(
        f"{what} {' and '.join(differing)}: the model was fitted on the features {listed(fitted)}; pass these, or "
        "sequences whose features have no names"
    )


def _refuse_missing(what: str, i: int, frames: np.ndarray) -> None:
    if isinstance(frames, MappedArray) and frames.is_on_disk:
        first = frames.summary.first_missing
    else:
        missing = np.isnan(frames).any(axis=1)
        first = int(np.argmax(missing)) if missing.any() else None
    if first is not None:
        raise ValueError(
            f"sequence {i} of {what} has a NaN at frame {first}, and this model cannot sum out "
            "missing values; fill them in, leave the frames out, use an HMM with a GaussianMixture, or fit a network "
            "to data in which some are missing, so that it learns to read them"
        )
