"""Before several processes fit together: that all hold the same model, data and version, compared by SHA-256."""

from __future__ import annotations

from typing import Any

import torch

from seqmodels import distributed
from seqmodels.parameters import Configurable
from seqmodels.preparation import Data
from seqmodels.sequences import Sequences
from seqmodels.training.resuming import hash_of
from seqmodels.version import __version__

# What may differ: where each process computes, and what it shows and writes.
MAY_DIFFER = {"device", "verbose", "callbacks", "checkpoint", "checkpoint_seconds"}

LONGEST_SHOWN = 60  # characters of a setting's value; of longer ones an error shows the SHA-256


def check_processes_agree(model: Configurable, data: Data, validation: Any = None) -> None:
    """Raise ``ValueError`` in every process, naming what differs and where, unless all would fit alike."""
    if not distributed.several():
        return
    params = {name: value for name, value in model.get_params(deep=False).items() if name not in MAY_DIFFER}
    distributed.check_alike(
        {
            "the version of seqmodels": f"{__version__} with torch {torch.__version__}",
            "the class of the model": type(model).__name__,
            **{f"the setting {name}": _short(value) for name, value in params.items()},
            "the data X": _sequences(data.X),
            "the data y": "none" if data.y is None else _sequences(data.y),
            "sample_weight": _digest(data.weights),
            "states": _digest(data.states),
            "validation": _validation(validation),
        }
    )


def _validation(validation: Any) -> str:
    if validation is None or isinstance(validation, str):
        return repr(validation)
    parts = validation if isinstance(validation, tuple) else (validation,)
    return ", ".join(_sequences(Data.of(part).X) for part in parts)


def _sequences(sequences: Sequences) -> str:
    return f"{len(sequences)} sequences of SHA-256 {_digest(sequences.items)}"


def _short(value: Any) -> str:
    text = " ".join(repr(value).split())
    if " at 0x" in text:  # an address differs from process to process and says nothing
        return type(value).__name__
    return text if len(text) < LONGEST_SHOWN else f"SHA-256 {_digest(value)}"


def _digest(value: Any) -> str:
    """The first 16 digits of the SHA-256."""
    return hash_of(value)[:16]
