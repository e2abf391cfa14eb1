"""SHA-256 fingerprints of settings and data, and the check that several processes hold the same model and data."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqmodels.common import distributed
from seqmodels.common.parameters import Configurable
from seqmodels.common.version import __version__
from seqmodels.encodings.on_disk import OnDisk
from seqmodels.encodings.raw_data import Data
from seqmodels.sequences import Sequences

# Settings that may differ between processes: where each computes, and what it shows and writes.
MAY_DIFFER = {"device", "verbose", "callbacks", "checkpoint", "checkpoint_seconds"}
FRAMES_IN_MEMORY = 1 << 16  # rows of an array that are read and hashed at once; bounds memory
LONGEST_SHOWN = 60  # most characters of a setting's value in an error, which shows the SHA-256 of longer ones


def hash_of(*values: Any) -> str:
    """Return the SHA-256, in hexadecimal, of values: arrays, numbers, models, and lists and mappings of them."""
    digest = hashlib.sha256()
    for value in values:
        _update(digest, value)
    return digest.hexdigest()


def _update(digest: Any, value: Any) -> None:
    """Add a value to a SHA-256 ``digest``, after its type and length, so that different values give different bytes."""
    if isinstance(value, Tensor):
        value = value.detach().cpu().numpy()
    if isinstance(value, Configurable):
        value = {"class": type(value).__name__, **value.get_params(deep=False)}
    if isinstance(value, list | tuple):
        digest.update(f"list {len(value)} ".encode())
        for item in value:
            _update(digest, item)
    elif isinstance(value, Mapping):
        digest.update(f"mapping {len(value)} ".encode())
        for name in sorted(value, key=str):
            digest.update(f"{name!r} ".encode())
            _update(digest, value[name])
    elif isinstance(value, np.ndarray | OnDisk) and value.shape:
        digest.update(f"array {tuple(value.shape)} ".encode())
        for t in range(0, len(value), FRAMES_IN_MEMORY):  # in slices, because the array may be on disk
            part = np.ascontiguousarray(value[t : t + FRAMES_IN_MEMORY])
            digest.update(f"{part.dtype.str} ".encode())
            if part.dtype.kind == "O":  # strings: the array's bytes hold their addresses only
                _update(digest, part.tolist())
            else:
                digest.update(part.tobytes())
    else:
        digest.update(f"{type(value).__name__} {value!r} ".encode())


def settings_of(model: Configurable, ignored: Collection[str]) -> dict[str, Any]:
    """Return a model's hyperparameters by name, except the ignored ones.

    The arguments of its ``training`` are included as ``training__x``.

    Args:
        model: the model.
        ignored: names that are left out, without the prefix ``training__``.
    """
    settings = model.get_params(deep=False)
    training = settings.get("training")
    if isinstance(training, Configurable):
        del settings["training"]
        settings |= {f"training__{name}": value for name, value in training.get_params(deep=False).items()}
    return {name: value for name, value in settings.items() if name.removeprefix("training__") not in ignored}


def check_processes_agree(model: Configurable, data: Data, held_out: Data | None = None) -> None:
    """Raise ``ValueError`` in every process unless all would fit the same model to the same data.

    The message names what differs and in which process. With one process nothing is checked.

    Args:
        model: the model, whose hyperparameters are compared, but for ``device``, ``verbose``, callbacks and
            checkpoints.
        data: all data of the fit.
        held_out: validation data, which were passed to ``fit`` or taken from ``data``; None if there are none.
    """
    if not distributed.is_distributed():
        return
    params = settings_of(model, MAY_DIFFER)
    here = {
        "the version of seqmodels": f"{__version__} with torch {torch.__version__}",
        "the class of the model": type(model).__name__,
        **{f"the setting {name}": _short(value) for name, value in params.items()},
        "the data X": _sequences(data.X),
        "the data y": "none" if data.y is None else _sequences(data.y),
        "sample_weight": _digest(data.weights),
        "states": _digest(data.states),
        "validation": "none" if held_out is None else _validation(held_out),
    }
    distributed.check_equal(here)


def _validation(held_out: Data) -> str:
    targets = "" if held_out.y is None else f", and targets: {_sequences(held_out.y)}"
    return f"{_sequences(held_out.X)}{targets}"


def _sequences(sequences: Sequences) -> str:
    past = "" if sequences.past is None else f", after a past of {_digest(sequences.past)}"
    inputs = "" if sequences.inputs is None else f", with inputs {_digest([sequences.input_names, sequences.inputs])}"
    return f"{len(sequences)} sequences of SHA-256 {_digest(sequences.items)}{past}{inputs}"


def _short(value: Any) -> str:
    text = " ".join(repr(value).split())
    if " at 0x" in text:  # an address differs from process to process although the settings agree
        return type(value).__name__
    return text if len(text) < LONGEST_SHOWN else f"SHA-256 {_digest(value)}"


def _digest(value: Any) -> str:
    """Return the first 16 hexadecimal digits of the SHA-256 of a value."""
    return hash_of(value)[:16]
