"""That all processes hold the same model, data and version before they fit together: compared by SHA-256."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import torch

from seqmodels import distributed, storage
from seqmodels.parameters import Configurable
from seqmodels.preparation import Data
from seqmodels.sequences import AT_ONCE, Sequences

# What may differ: where each process computes, and what it shows and writes.
OWN = {"device", "verbose", "callbacks", "checkpoint", "checkpoint_seconds", "resume_from"}


def check_held_alike(model: Configurable, data: Data, validation: Any = None) -> None:
    """Raise ``ValueError`` in every process, naming what differs and where, unless all would fit the same model to the same data."""
    if not distributed.several():
        return
    params = {name: value for name, value in model.get_params(deep=False).items() if name not in OWN}
    distributed.check_alike(
        {
            "the version of seqmodels": _version(),
            "the class of the model": type(model).__name__,
            **{f"the setting {name}": _short(value) for name, value in params.items()},
            "the data X": _sequences(data.X),
            "the data y": "none" if data.y is None else _sequences(data.y),
            "sample_weight": _digest(data.weights),
            "states": _digest(data.states),
            "validation": _validation(validation),
        }
    )


def _version() -> str:
    try:
        return f"{version('seqmodels')} with torch {torch.__version__}"
    except PackageNotFoundError:  # run from a source tree
        return f"torch {torch.__version__}"


def _validation(validation: Any) -> str:
    if validation is None or isinstance(validation, str):
        return repr(validation)
    parts = validation if isinstance(validation, tuple) else (validation,)
    return ", ".join(_sequences(Data.of(part).X) for part in parts)


def _sequences(sequences: Sequences) -> str:
    return f"{len(sequences)} sequences of SHA-256 {_digest(sequences.items)}"


def _short(value: Any) -> str:
    shown = " ".join(repr(value).split())
    return shown if len(shown) < 60 and " at 0x" not in shown else f"SHA-256 {_digest(value)}"


def _digest(value: Any) -> str:
    """The first 16 digits."""
    found = hashlib.sha256()
    _add(found, value)
    return found.hexdigest()[:16]


def _add(found: Any, value: Any) -> None:
    """Each value with its type and size before it, so that no two read alike."""
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().numpy()
    if isinstance(value, Configurable):
        value = storage.describe(value)
    if isinstance(value, Mapping):
        found.update(f"mapping {len(value)} ".encode())
        for name in sorted(value, key=str):
            found.update(f"{name!r} ".encode())
            _add(found, value[name])
    elif isinstance(value, list | tuple):
        found.update(f"list {len(value)} ".encode())
        for each in value:
            _add(found, each)
    elif isinstance(value, np.ndarray) and value.ndim:
        found.update(f"array {value.shape} {value.dtype.str} ".encode())
        for t in range(0, len(value), AT_ONCE):  # what is on disk is read a part at a time
            found.update(np.ascontiguousarray(value[t : t + AT_ONCE]).tobytes())
    else:
        shown = repr(value)
        # An address differs from process to process and says nothing.
        found.update(f"{type(value).__name__} {len(shown)} {shown.partition(' at 0x')[0]} ".encode())
