"""Checkpoints by time, of any training that goes by steps, and the fingerprint that says what one may go on with."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from seqmodels import distributed
from seqmodels.parameters import Configurable
from seqmodels.preparation import Example, OnDisk
from seqmodels.sequences import FRAMES_IN_MEMORY
from seqmodels.training import checkpoint as file
from seqmodels.version import __version__

Path = str | os.PathLike[str]
LONGEST_SHOWN = 80  # characters of a setting's value in an error

# Hyperparameters that do not change the steps that training takes.
NOT_COMPARED = {
    "checkpoint",
    "checkpoint_seconds",
    "resume_from",
    "verbose",
    "device",
    "warm_start",
    "max_seconds",
    "callbacks",
}


@dataclass(frozen=True)
class Checkpoints:
    """Where a run's state is written, at least so many seconds apart, and the state that the run goes on from.

    Attributes:
        path: None: nothing is written.
        seconds: from one to the next.
        fingerprint: of settings and data, written with every state.
        state: what an earlier run wrote; None: the run starts anew.
        outer: what the state is part of, as ``outer["running"]``, where one run is made of several.
        written: when the last was, by ``time.perf_counter``.
    """

    path: Path | None = None
    seconds: float = 300.0
    fingerprint: Mapping[str, Any] = field(default_factory=dict)
    state: Mapping[str, Any] | None = None
    outer: tuple[Mapping[str, Any], ...] = ()
    written: list[float] = field(default_factory=lambda: [time.perf_counter()])

    @classmethod
    def of(
        cls, path: Path | None, seconds: float, resume_from: Path | None, fingerprint: Mapping[str, Any]
    ) -> Checkpoints:
        """Raises ``ValueError`` if ``resume_from`` is no checkpoint, or one of other settings or data.

        Of several processes the first reads and writes.
        """
        written = path if distributed.is_first() else None
        if resume_from is None:
            return cls(written, seconds, fingerprint)
        source = path if resume_from == "auto" else resume_from
        assert source is not None, "checked with the hyperparameters"
        is_optional = resume_from == "auto"
        content = distributed.from_first(
            lambda: {} if is_optional and not os.path.exists(source) else dict(file.read(source))
        )
        if not content:
            return cls(written, seconds, fingerprint)
        check_agrees(source, content.get("fingerprint"), fingerprint)
        return cls(written, seconds, fingerprint, content["state"])

    @property
    def due(self) -> bool:
        """Whether it is time to write; checked after every step."""
        return self.path is not None and time.perf_counter() - self.written[0] >= self.seconds

    def write(self, state: Mapping[str, Any]) -> None:
        """Write the state, whether it is time or not; atomically."""
        if self.path is None:
            return
        whole = state
        for around in reversed(self.outer):
            whole = {**around, "running": whole}
        file.write(self.path, {"fingerprint": dict(self.fingerprint), "state": whole})
        self.written[0] = time.perf_counter()

    def within(self, outer: Mapping[str, Any], running: Mapping[str, Any] | None) -> Checkpoints:
        """Of a part of the run, which goes on from ``running``; what it writes stands in ``outer``."""
        return Checkpoints(self.path, self.seconds, self.fingerprint, running, (*self.outer, outer), self.written)


class Resumable(Protocol):
    """A model whose ``fit`` writes checkpoints and can be resumed from one, by three arguments of its constructor.

    Args:
        checkpoint: file to which the state of training is written, atomically: when ``checkpoint_seconds`` have passed,
            at the end, and when Ctrl-C or SIGTERM ends training.
        checkpoint_seconds: from one checkpoint to the next, which a crash loses at most; 0: after every step.
        resume_from: a checkpoint from which ``fit`` goes on, given the same data and hyperparameters, to the parameters
            it would have reached without a break, to the last bit; ``"auto"``: from ``checkpoint`` if that file is
            there, else from the beginning, so that a job that is restarted automatically (``torchrun --max-restarts``)
            goes on.
    """

    checkpoint: str | None
    checkpoint_seconds: float
    resume_from: str | None

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Hyperparameters by name."""


def check_checkpoint_arguments(model: Resumable) -> None:
    """Raise ``ValueError`` for arguments of ``Resumable`` that cannot be."""
    if model.resume_from == "auto" and model.checkpoint is None:
        raise ValueError(
            "resume_from is 'auto', which goes on from checkpoint, but that is None; pass checkpoint='run.ckpt'"
        )
    if not model.checkpoint_seconds >= 0:
        raise ValueError(
            f"checkpoint_seconds is {model.checkpoint_seconds!r}; pass a number of seconds, 0 for a checkpoint after "
            "every step"
        )


def checkpoints_of_fit(
    model: Resumable,
    resolved: Mapping[str, Any],
    train: Sequence[Example],
    validation: Sequence[Example],
    *,
    may_change: frozenset[str] = frozenset(),
) -> Checkpoints:
    """Where a fit of ``model`` to these data writes its state, and the state that it goes on from.

    Args:
        resolved: by name, what else the fit depends on, such as what ``"auto"`` came to.
        may_change: hyperparameters that may differ in a resumed run, besides ``NOT_COMPARED``.
    """
    if model.checkpoint is None and model.resume_from is None:
        return Checkpoints()
    params = {n: v for n, v in model.get_params(deep=False).items() if n not in NOT_COMPARED | may_change}
    fingerprint = {
        "seqmodels": __version__,
        "model": type(model).__name__,
        "settings": {name: _setting(value) for name, value in {**params, **resolved}.items()},
        "data": hashes(train, validation),
    }
    return Checkpoints.of(model.checkpoint, model.checkpoint_seconds, model.resume_from, fingerprint)


def check_agrees(path: Path, then: Mapping[str, Any] | None, now: Mapping[str, Any]) -> None:
    """Raise ``ValueError``, naming what differs, unless a checkpoint is of the same model, settings and data."""
    otherwise = "or start anew without resume_from"
    if then is None:
        raise ValueError(
            f"the checkpoint {path} does not say which settings and data it is of, as those of earlier versions do "
            "not; start anew without resume_from"
        )
    for name in ("model", "seqmodels"):
        if then.get(name) != now.get(name):
            raise ValueError(
                f"the checkpoint {path} was written by {_named(name, then)} but this is {_named(name, now)}; take the "
                f"same, {otherwise}"
            )
    before, here = then.get("settings", {}), now.get("settings", {})
    for name in sorted(before.keys() | here.keys()):
        a, b = before.get(name, {"shown": "?"}), here.get(name, {"shown": "?"})
        if a.get("sha256") != b.get("sha256"):
            raise ValueError(
                f"the checkpoint {path} was written with {name}={a['shown']} but this model has {name}={b['shown']}; "
                f"set it back, {otherwise}"
            )
    for name in sorted(then.get("data", {}).keys() | now.get("data", {}).keys()):
        if then.get("data", {}).get(name) != now.get("data", {}).get(name):
            raise ValueError(
                f"the checkpoint {path} was written for other {name} than fit is given now; pass what it was written "
                f"for, {otherwise}"
            )


def _named(name: str, fingerprint: Mapping[str, Any]) -> str:
    return f"seqmodels {fingerprint.get(name)}" if name == "seqmodels" else f"a {fingerprint.get(name)}"


def hashes(train: Sequence[Example], validation: Sequence[Example]) -> dict[str, str]:
    """SHA-256 of encoded training data, sample weights, known states and validation data."""
    return {
        "training data": hash_of([e.values for e in train], [e.source for e in train], [e.log_det for e in train]),
        "sample_weight": hash_of([e.weight for e in train]),
        "states": hash_of([e.states for e in train]),
        "validation data": hash_of([(e.values, e.source) for e in validation]),
    }


def hash_of(*values: Any) -> str:
    """SHA-256 of arrays and numbers, nested in lists, tuples and dictionaries."""
    digest = hashlib.sha256()
    for value in values:
        _add(digest, value)
    return digest.hexdigest()


def _add(digest: Any, value: Any) -> None:
    """Add a value with its type and length before it, so that no two values give the same bytes."""
    if isinstance(value, Tensor):
        value = value.detach().cpu().numpy()
    if isinstance(value, Configurable):
        value = {"class": type(value).__name__, **value.get_params(deep=False)}
    if isinstance(value, list | tuple):
        digest.update(f"list {len(value)} ".encode())
        for each in value:
            _add(digest, each)
    elif isinstance(value, Mapping):
        digest.update(f"mapping {len(value)} ".encode())
        for name in sorted(value, key=str):
            digest.update(f"{name!r} ".encode())
            _add(digest, value[name])
    elif isinstance(value, np.ndarray | OnDisk) and value.shape:
        digest.update(f"array {tuple(value.shape)} ".encode())
        for t in range(0, len(value), FRAMES_IN_MEMORY):  # what is on disk is read a slice at a time
            part = np.ascontiguousarray(value[t : t + FRAMES_IN_MEMORY])
            digest.update(f"{part.dtype.str} ".encode())
            digest.update(part.tobytes())
    else:
        digest.update(f"{type(value).__name__} {value!r} ".encode())


def _setting(value: Any) -> dict[str, str]:
    text = " ".join(repr(value).split())
    short = text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."
    return {"shown": short, "sha256": hash_of(value)}
