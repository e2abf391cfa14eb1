"""Checkpoints of training: when they are written, what they hold, and whether a run may resume from one.

With the state as arrays a run continues as if it had not stopped. A fingerprint tells which settings and data it
belongs to.
"""

from __future__ import annotations

import os
import shutil
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from seqmodels.common import distributed, storage
from seqmodels.common.display import a_or_an
from seqmodels.common.parameters import Configurable
from seqmodels.common.version import __version__
from seqmodels.encodings.examples import Example
from seqmodels.training.fingerprint import hash_of, settings_of

Path = str | os.PathLike[str]
SHARDS = ".shards"  # suffix of the folder beside a checkpoint with the tensors that processes hold in shards
LONGEST_SHOWN = 80  # most characters of a setting's value in an error

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
    "parallel",
}


# -- when, and from where --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Checkpoints:
    """The file to which a run's state is written at intervals, and the state from which the run resumes.

    Attributes:
        path: the file; None writes nothing.
        seconds: least seconds from one checkpoint to the next.
        fingerprint: version, model, and hashes of settings and data, which are written with every state.
        state: the state that an earlier run wrote; None starts anew.
        outer: states of the enclosing runs, the outermost first, if this run is a part of others, such as one of
            several starts. In the file each contains the next one as ``state["running"]``.
        written: time of the last checkpoint, by ``time.perf_counter``, as the only entry of a list that enclosing runs
            share.
    """

    path: Path | None = None
    seconds: float = 300.0
    fingerprint: Mapping[str, Any] = field(default_factory=dict)
    state: Mapping[str, Any] | None = None
    outer: tuple[Mapping[str, Any], ...] = ()
    written: list[float] = field(default_factory=lambda: [time.perf_counter()])

    @classmethod
    def from_arguments(
        cls, path: Path | None, seconds: float, resume_from: Path | None, fingerprint: Mapping[str, Any]
    ) -> Checkpoints:
        """Return the checkpoints of a fit, with the state to resume from.

        With several processes the first one reads and writes.

        Args:
            path: the file to write; None writes nothing.
            seconds: least seconds from one checkpoint to the next.
            resume_from: the checkpoint to resume from; ``"auto"`` is ``path`` if that file exists; None starts anew.
            fingerprint: version, model, and hashes of the settings and data of this fit.

        Raises:
            ValueError: ``resume_from`` is no checkpoint, or one with other settings or data.
        """
        written = path if distributed.is_rank_zero() else None
        if resume_from is None:
            return cls(written, seconds, fingerprint)
        source = path if resume_from == "auto" else resume_from
        assert source is not None, "checked with the hyperparameters"
        is_optional = resume_from == "auto"
        content = distributed.broadcast_content(
            lambda: {} if is_optional and not os.path.exists(source) else _with_folder_of_shards(source, read(source))
        )
        if not content:
            return cls(written, seconds, fingerprint)
        check_agrees(source, content.get("fingerprint"), fingerprint)
        chosen = {name: value for name, value in content["fingerprint"].items() if name == "chosen"}
        return cls(written, seconds, {**fingerprint, **chosen}, content["state"])

    @property
    def chosen(self) -> Mapping[str, Any]:
        """The settings, by name, that the resumed run chose by timing or by data, such as its width; else empty."""
        return cast(Mapping[str, Any], self.fingerprint.get("chosen", {}))

    def with_chosen(self, chosen: Mapping[str, Any]) -> Checkpoints:
        """Return checkpoints that also store settings that this run has chosen by timing or by data, such as its width.

        A resumed run takes them and does not choose again.

        Args:
            chosen: the settings, JSON values by name, added to those stored before.
        """
        return replace(self, fingerprint={**self.fingerprint, "chosen": {**self.chosen, **chosen}})

    @property
    def due(self) -> bool:
        """True if at least ``seconds`` have passed since the last checkpoint, so that another one should be written."""
        return self.path is not None and time.perf_counter() - self.written[0] >= self.seconds

    def write(self, state: Mapping[str, Any], shards: Mapping[str, Tensor] | None = None) -> None:
        """Write a checkpoint with the state now, atomically; write nothing without ``path``.

        Args:
            state: the run's state: arrays and JSON values by name.
            shards: tensors of which each process holds a part, by name; all processes then call this. The parts go to a
                new folder beside the file, whose name the file holds; the folder of the checkpoint before is then
                removed.
        """
        content = state
        if shards:
            folder = f"{self.path}{SHARDS}/{uuid.uuid4().hex}"
            folder = distributed.broadcast_content(lambda: {"folder": os.path.abspath(folder)})["folder"]
            from seqmodels.training.shards import write_shards

            write_shards(folder, shards)
            content = {**state, "shards": "/".join(folder.split("/")[-2:])}
        if self.path is None:
            return
        for outer in reversed(self.outer):
            content = {**outer, "running": content}
        write(self.path, {"fingerprint": dict(self.fingerprint), "state": content})
        _remove_other_shards(self.path, content.get("shards"))
        self.written[0] = time.perf_counter()

    def within(self, outer: Mapping[str, Any], running: Mapping[str, Any] | None) -> Checkpoints:
        """Return checkpoints, in the same file, for one part of this run, such as one of several starts.

        Args:
            outer: state of this run apart from the part, which is written around the part's state.
            running: state from which the part resumes; None starts it anew.
        """
        return Checkpoints(self.path, self.seconds, self.fingerprint, running, (*self.outer, outer), self.written)


@dataclass(kw_only=True, eq=False, repr=False)
class Resumable(Configurable):
    """The arguments by which a ``fit`` writes checkpoints and can resume from one.

    Args:
        checkpoint: file to which the state of training is written, atomically: whenever ``checkpoint_seconds`` have
            passed, at the end, and when Ctrl-C or SIGTERM ends training. None writes none.
        checkpoint_seconds: seconds from one checkpoint to the next, which is the most that a crash loses; 0 writes one
            after every step.
        resume_from: a checkpoint from which ``fit`` resumes. Given the same data and hyperparameters it reaches the
            same parameters as without a break, but for the rounding of products. ``"auto"`` resumes from ``checkpoint``
            if that file exists and otherwise starts anew, so that a job that is restarted automatically (``torchrun
            --max-restarts``) continues. None starts anew.
    """

    checkpoint: str | None = None
    checkpoint_seconds: float = 300.0
    resume_from: str | None = None

    def check(self) -> None:
        """Raise an error if these arguments cannot be used.

        Raises:
            FileNotFoundError: the folder of ``checkpoint`` or the file ``resume_from`` does not exist.
            ValueError: ``resume_from`` is ``"auto"`` without a ``checkpoint``, or ``checkpoint_seconds`` is negative.
        """
        if self.resume_from == "auto" and self.checkpoint is None:
            raise ValueError(
                "resume_from is 'auto', which resumes from checkpoint, but checkpoint is None; pass "
                "checkpoint='run.ckpt'"
            )
        folder = os.path.dirname(self.checkpoint or "")
        if folder and distributed.is_rank_zero() and not os.path.isdir(folder):
            raise FileNotFoundError(f"checkpoint is {self.checkpoint}, but there is no folder {folder}; make it first")
        source = None if self.resume_from == "auto" else self.resume_from
        if isinstance(source, str | os.PathLike) and distributed.is_rank_zero() and not os.path.exists(source):
            raise FileNotFoundError(f"resume_from is {source}, but there is no such file; pass a checkpoint")
        if not self.checkpoint_seconds >= 0:
            raise ValueError(
                f"checkpoint_seconds is {self.checkpoint_seconds!r}; pass a number of seconds, 0 for a checkpoint "
                "after every step"
            )


def checkpoints_of_fit(
    model: Configurable,
    resolved: Mapping[str, Any],
    train: Sequence[Example],
    validation: Sequence[Example],
    *,
    may_change: frozenset[str] = frozenset(),
) -> Checkpoints:
    """Return the checkpoints of a fit of ``model`` to these data, with the state to resume from.

    Args:
        model: the model, whose argument ``training``, a ``Resumable``, names the files.
        resolved: other values that the fit depends on, by name, such as what ``"auto"`` stands for.
        train: encoded training data.
        validation: encoded validation data.
        may_change: hyperparameters that may differ in a resumed run, besides those that change no step of training,
            such as ``device``, ``verbose`` and ``max_seconds``.

    Raises:
        ValueError: the checkpoint to resume from has other settings or data.
    """
    training: Resumable = model.get_params(deep=False)["training"]
    if training.checkpoint is None and training.resume_from is None:
        return Checkpoints()
    settings = {**settings_of(model, NOT_COMPARED | may_change), **resolved}
    fingerprint = {
        "seqmodels": __version__,
        "model": type(model).__name__,
        "settings": {name: _setting(value) for name, value in settings.items()},
        "data": hashes(train, validation),
    }
    arguments = training.checkpoint, training.checkpoint_seconds, training.resume_from
    return Checkpoints.from_arguments(*arguments, fingerprint)


def check_agrees(path: Path, saved: Mapping[str, Any] | None, current: Mapping[str, Any]) -> None:
    """Raise ``ValueError``, naming the difference, unless a checkpoint has the same model, settings and data.

    Args:
        path: the checkpoint's file, for the message.
        saved: the checkpoint's fingerprint: version, model, and hashes of settings and data; None in early versions.
        current: the fingerprint of this fit.
    """
    otherwise = "or start anew without resume_from"
    if saved is None:
        raise ValueError(
            f"the checkpoint {path}, of an earlier version, does not name the settings and data that it belongs "
            "to; start anew without resume_from"
        )
    for name in ("model", "seqmodels"):
        if saved.get(name) != current.get(name):
            raise ValueError(
                f"the checkpoint {path} was written by {_named(name, saved)} but this is {_named(name, current)}; use "
                f"the same, {otherwise}"
            )
    saved_settings, current_settings = saved.get("settings", {}), current.get("settings", {})
    for name in sorted(saved_settings.keys() | current_settings.keys()):
        a, b = saved_settings.get(name, {"shown": "?"}), current_settings.get(name, {"shown": "?"})
        if a.get("sha256") != b.get("sha256"):
            raise ValueError(
                f"the checkpoint {path} was written with {name}={a['shown']} but this model has {name}={b['shown']}; "
                f"set it back, {otherwise}"
            )
    for name in sorted(saved.get("data", {}).keys() | current.get("data", {}).keys()):
        if saved.get("data", {}).get(name) != current.get("data", {}).get(name):
            raise ValueError(
                f"the checkpoint {path} was written for other {name} than fit is given now; pass what it was written "
                f"for, {otherwise}"
            )


def _with_folder_of_shards(path: Path, content: dict[str, Any]) -> dict[str, Any]:
    """Return the content of a checkpoint with the full path of its folder of shards, which is beside the file.

    Shards are the parts of tensors that several processes hold. Content without shards is returned as it is.

    Args:
        path: the checkpoint's file.
        content: its content.

    Raises:
        ValueError: the folder does not exist.
    """
    state = content.get("state")
    if not isinstance(state, dict) or "shards" not in state:
        return content
    folder = os.path.join(os.path.dirname(os.path.abspath(path)), state["shards"])
    if not os.path.isdir(folder):
        raise ValueError(f"the checkpoint {path} has its weights in the folder {folder}, which does not exist")
    return {**content, "state": {**state, "shards": folder}}


def _remove_other_shards(path: Path, kept: str | None) -> None:
    """Remove the folders of shards of earlier checkpoints, which hold the parts of tensors of several processes.

    Args:
        path: the checkpoint's file.
        kept: the folder that this checkpoint names, or None if it has none.
    """
    folder = f"{path}{SHARDS}"
    if not os.path.isdir(folder):
        return
    for name in os.listdir(folder):
        if kept is None or name != os.path.basename(kept):
            shutil.rmtree(os.path.join(folder, name))
    if kept is None:
        os.rmdir(folder)


def _named(name: str, fingerprint: Mapping[str, Any]) -> str:
    return f"seqmodels {fingerprint.get(name)}" if name == "seqmodels" else a_or_an(str(fingerprint.get(name)))


def hashes(train: Sequence[Example], validation: Sequence[Example]) -> dict[str, str]:
    """Return SHA-256 hashes of the encoded data of a fit, by name, which a resumed fit must reproduce.

    The names are ``training data``, ``sample_weight``, ``states``, ``inputs`` (if there are any) and ``validation
    data``.

    Args:
        train: encoded training data.
        validation: encoded validation data.
    """
    return {
        "training data": hash_of([e.values for e in train], [e.source for e in train], [e.log_det for e in train]),
        "sample_weight": hash_of([e.weight for e in train]),
        "states": hash_of([e.states for e in train]),
        **({"inputs": hash_of([e.inputs for e in train])} if any(e.inputs is not None for e in train) else {}),
        "validation data": hash_of([(e.values, e.source) for e in validation]),
    }


def _setting(value: Any) -> dict[str, str]:
    text = " ".join(repr(value).split())
    short = text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."
    return {"shown": short, "sha256": hash_of(value)}


# -- the state of a run as arrays ------------------------------------------------------------------------------


def to_arrays(tensors: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
    """Return copies of tensors, by name, as NumPy arrays; bfloat16, which NumPy lacks, becomes float32."""
    wide = {name: t.detach().float() if t.dtype == torch.bfloat16 else t.detach() for name, t in tensors.items()}
    return {name: t.cpu().numpy().copy() for name, t in wide.items()}


def to_tensors(arrays: Mapping[str, np.ndarray]) -> dict[str, Tensor]:
    """Return copies of arrays, by name, as tensors.

    They are copies because products of matrices may depend on the alignment of memory, and torch's is always the same.
    """
    return {name: torch.tensor(array) for name, array in arrays.items()}


def optimizer_state(optimizers: list[torch.optim.Optimizer]) -> dict[str, Tensor]:
    """Return the tensors that the optimisers keep for every weight, such as means of gradients, by name.

    A name is ``"i.j.name"``: index of the optimiser, index of the weight in it, and torch's name of the tensor.
    """
    return {
        f"{i}.{j}.{name}": torch.as_tensor(value)
        for i, optimizer in enumerate(optimizers)
        for j, of_weight in optimizer.state_dict()["state"].items()
        for name, value in of_weight.items()
    }


def weight_of_state(optimizers: list[torch.optim.Optimizer], path: str) -> Tensor:
    """Return the weight to which a tensor of an optimiser's state belongs.

    Args:
        optimizers: the optimisers.
        path: name of the tensor, ``"i.j.name"``: index of the optimiser, index of the weight in it, and torch's name.
    """
    which, weight, _ = path.split(".", 2)
    weights: list[Tensor] = [p for group in optimizers[int(which)].param_groups for p in group["params"]]
    return weights[int(weight)]


def restore_optimizers(optimizers: list[torch.optim.Optimizer], tensors: Mapping[str, Tensor]) -> None:
    """Load the tensors that ``optimizer_state`` returned, by name, into the optimisers."""
    for i, optimizer in enumerate(optimizers):
        state: dict[int, dict[str, Tensor]] = {}
        for path, value in tensors.items():
            which, weight, name = path.split(".", 2)
            if int(which) == i:
                state.setdefault(int(weight), {})[name] = value
        optimizer.load_state_dict({**optimizer.state_dict(), "state": state})


def random_state(generator: torch.Generator) -> dict[str, np.ndarray]:
    """Return the state of a random generator as an array, under the type of its device (``"cpu"`` or ``"cuda"``)."""
    return to_arrays({generator.device.type: generator.get_state()})


def restore_random_state(generator: torch.Generator, arrays: Mapping[str, np.ndarray]) -> None:
    """Set a generator to the state that ``random_state`` returned; do nothing if it is from another kind of device.

    ``arrays`` has the state as an array, under the type of its device.
    """
    state = to_tensors(arrays).get(generator.device.type)
    if state is not None:
        generator.set_state(state)


def flatten_state(state: Any, path: str = "") -> tuple[Any, dict[str, Tensor]]:
    """Split a recurrent state, nested tuples of tensors and numbers, into its structure and its tensors.

    Args:
        state: the nested tuples.
        path: prefix of the names of the tensors.

    Returns:
        structure: nested lists as JSON, in which the name of a tensor stands in its place, and None for anything else
            than tensors, numbers and strings.
        tensors: the tensors by name.
    """
    if isinstance(state, Tensor):
        return {"tensor": path, "bfloat16": state.dtype == torch.bfloat16}, {path: state}
    if not isinstance(state, tuple):
        return state if isinstance(state, int | float | str) else None, {}
    parts = [flatten_state(part, f"{path}.{i}") for i, part in enumerate(state)]
    named = {name: tensor for _, tensors in parts for name, tensor in tensors.items()}
    return [structure for structure, _ in parts], named


def unflatten_state(structure: Any, tensors: Mapping[str, Tensor]) -> Any:
    """Return the recurrent state that ``flatten_state`` split: nested tuples of tensors and numbers.

    Args:
        structure: nested lists, in which the name of a tensor stands in its place.
        tensors: the tensors by name.
    """
    if isinstance(structure, dict):
        tensor = tensors[structure["tensor"]]
        return tensor.bfloat16() if structure["bfloat16"] else tensor
    return tuple(unflatten_state(part, tensors) for part in structure) if isinstance(structure, list) else structure


def join_rows(structure: Any, tensors: Mapping[str, Tensor]) -> tuple[Any, dict[str, Tensor]]:
    """Join the states that the processes carry for their sequences of a batch into the state of the whole batch.

    All processes call this at once. A process without sequences passes None and no tensors; process 0 always has some.

    Args:
        structure: form of the state, in which the name of a tensor stands in its place, as ``flatten_state`` returns
            it.
        tensors: the tensors by name; their first axis is the sequences, which ``distributed.shard`` distributed.

    Returns:
        Structure and tensors of the whole batch, complete in process 0.
    """
    told = distributed.broadcast_content(
        lambda: {"structure": structure, "sizes": {name: list(t.shape[1:]) for name, t in tensors.items()}}
    )
    n_rows = len(next(iter(tensors.values()))) if tensors else 0
    (total,), _ = distributed.all_reduce_sum([torch.tensor(float(n_rows), dtype=torch.float64)])
    joined = []
    for name, size in told["sizes"].items():
        every = torch.zeros(int(total), *size, dtype=torch.float64)
        if n_rows:
            every[distributed.share_of(int(total))] = tensors[name].detach().cpu().double()
        joined.append(every)
    summed, _ = distributed.all_reduce_sum(joined)
    whole = {name: t.to(tensors[name].dtype) if tensors else t for name, t in zip(told["sizes"], summed, strict=True)}
    return told["structure"], whole


def rows_of_process(structure: Any, tensors: Mapping[str, Tensor]) -> tuple[Any, dict[str, Tensor]]:
    """Return the part of a batch's state that belongs to the sequences of this process: the inverse of ``join_rows``.

    Args:
        structure: form of the state, in which the name of a tensor stands in its place, as ``flatten_state`` returns
            it.
        tensors: the tensors by name, whose first axis is the sequences of the batch.

    Returns:
        Structure and tensors of this process; ``(None, {})`` if it has no sequences.
    """
    mine = {name: t[distributed.share_of(len(t))] for name, t in tensors.items()}
    return (None, {}) if any(len(t) == 0 for t in mine.values()) else (structure, mine)


def check_weights(module: nn.Module, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Raise ``ValueError`` unless a module's weights have exactly these shapes, by name."""
    if {name: tuple(value.shape) for name, value in module.state_dict().items()} != dict(shapes):
        raise ValueError(
            "the checkpoint is of a model with other hyperparameters or other data, so training cannot resume from it; "
            "pass the same as when it was written, or leave resume_from out"
        )


# -- files -----------------------------------------------------------------------------------------------------


def write(path: str | os.PathLike[str], state: Mapping[str, Any]) -> None:
    """Write a checkpoint atomically to ``path``: at any time the file is the old one or the new one.

    ``state`` has its content, arrays and JSON values by name.
    """
    storage.write(path, {"kind": "checkpoint", **state})


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the content of a checkpoint that ``write`` wrote to ``path``: arrays and JSON values by name.

    Raises:
        ValueError: for any other file.
    """
    content = storage.read(path)
    if content.get("kind") != "checkpoint":
        raise ValueError(f"{path} is a saved model, not a checkpoint; load it and fit with warm_start=True")
    return content
