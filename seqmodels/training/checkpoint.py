"""Checkpoint files, and the state of a training run as arrays: with them it goes on as if it had not stopped."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from seqmodels import storage


def to_arrays(tensors: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
    """Copies of tensors as numpy arrays; numpy has no bfloat16, which float32 holds exactly."""
    wide = {name: t.detach().float() if t.dtype == torch.bfloat16 else t.detach() for name, t in tensors.items()}
    return {name: t.cpu().numpy().copy() for name, t in wide.items()}


def to_tensors(arrays: Mapping[str, np.ndarray]) -> dict[str, Tensor]:
    """Copies of arrays in torch's own memory: products of matrices may depend on the alignment of their memory."""
    return {name: torch.tensor(array) for name, array in arrays.items()}


def optimizer_state(optimizers: list[torch.optim.Optimizer]) -> dict[str, np.ndarray]:
    """What the optimisers keep of every weight, by ``optimizer.weight.name``."""
    values = {
        f"{i}.{j}.{name}": value
        for i, optimizer in enumerate(optimizers)
        for j, of_weight in optimizer.state_dict()["state"].items()
        for name, value in of_weight.items()
    }
    return to_arrays({name: torch.as_tensor(value) for name, value in values.items()})


def restore_optimizers(optimizers: list[torch.optim.Optimizer], arrays: Mapping[str, np.ndarray]) -> None:
    """The inverse of ``optimizer_state``."""
    for i, optimizer in enumerate(optimizers):
        state: dict[int, dict[str, Tensor]] = {}
        for path, value in to_tensors(arrays).items():
            which, weight, name = path.split(".", 2)
            if int(which) == i:
                state.setdefault(int(weight), {})[name] = value
        optimizer.load_state_dict({**optimizer.state_dict(), "state": state})


def random_state(generator: torch.Generator) -> dict[str, np.ndarray]:
    """The state of the generator that dropout draws from, by the kind of its device."""
    return to_arrays({generator.device.type: generator.get_state()})


def restore_random_state(generator: torch.Generator, arrays: Mapping[str, np.ndarray]) -> None:
    """The inverse of ``random_state``; a checkpoint from another kind of device leaves the generator as it is."""
    state = to_tensors(arrays).get(generator.device.type)
    if state is not None:
        generator.set_state(state)


def flatten_state(state: Any, path: str = "") -> tuple[Any, dict[str, Tensor]]:
    """Nested tuples of tensors and of JSON values -> nested lists with names for tensors, and the tensors by name.

    Anything else, which training does not look at, becomes None.
    """
    if isinstance(state, Tensor):
        return {"tensor": path, "bfloat16": state.dtype == torch.bfloat16}, {path: state}
    if not isinstance(state, tuple):
        return state if isinstance(state, int | float | str) else None, {}
    parts = [flatten_state(part, f"{path}.{i}") for i, part in enumerate(state)]
    named = {name: tensor for _, tensors in parts for name, tensor in tensors.items()}
    return [structure for structure, _ in parts], named


def unflatten_state(structure: Any, tensors: Mapping[str, Tensor]) -> Any:
    """The inverse of ``flatten_state``."""
    if isinstance(structure, dict):
        tensor = tensors[structure["tensor"]]
        return tensor.bfloat16() if structure["bfloat16"] else tensor
    return tuple(unflatten_state(part, tensors) for part in structure) if isinstance(structure, list) else structure


def load_weights(module: nn.Module, arrays: Mapping[str, np.ndarray]) -> None:
    """Load weights from a checkpoint; raises ``ValueError`` if they are of another module."""
    expected = {name: tuple(value.shape) for name, value in module.state_dict().items()}
    if expected != {name: value.shape for name, value in arrays.items()}:
        raise ValueError(
            "the checkpoint is of a model with other hyperparameters or other data, so training cannot go on from it; "
            "pass those it was made with, or leave resume_from out"
        )
    module.load_state_dict(to_tensors(arrays))


def write(path: str | os.PathLike[str], state: Mapping[str, Any]) -> None:
    """Write a checkpoint atomically: the file is the one before or this one."""
    storage.write(path, {"kind": "checkpoint", **state})


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What ``write`` wrote; raises ``ValueError`` for any other file."""
    content = storage.read(path)
    if content.get("kind") != "checkpoint":
        raise ValueError(f"{path} is a saved model, not a checkpoint; load it and fit with warm_start=True")
    return content
