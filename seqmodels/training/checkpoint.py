"""Where a training run stands, on disk: with it, it goes on as if it had never stopped."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from seqmodels import storage


def to_arrays(tensors: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
    """Copies; numpy has no bfloat16, which float32 holds exactly."""
    wide = {name: t.detach().float() if t.dtype == torch.bfloat16 else t.detach() for name, t in tensors.items()}
    return {name: t.cpu().numpy().copy() for name, t in wide.items()}


def to_tensors(arrays: Mapping[str, np.ndarray]) -> dict[str, Tensor]:
    """Copies, in torch's own memory: products of matrices may depend on where in memory they stand."""
    return {name: torch.tensor(array) for name, array in arrays.items()}


def optimizer_state(optimizers: list[torch.optim.Optimizer]) -> dict[str, np.ndarray]:
    """What they remember of every weight, by ``optimizer/weight/name``."""
    found = {
        f"{i}.{j}.{name}": value
        for i, optimizer in enumerate(optimizers)
        for j, kept in optimizer.state_dict()["state"].items()
        for name, value in kept.items()
    }
    return to_arrays({name: torch.as_tensor(value) for name, value in found.items()})


def restore_optimizers(optimizers: list[torch.optim.Optimizer], arrays: Mapping[str, np.ndarray]) -> None:
    """The inverse of ``optimizer_state``."""
    for i, optimizer in enumerate(optimizers):
        state: dict[int, dict[str, Tensor]] = {}
        for path, value in to_tensors(arrays).items():
            which, weight, name = path.split(".", 2)
            if int(which) == i:
                state.setdefault(int(weight), {})[name] = value
        optimizer.load_state_dict({**optimizer.state_dict(), "state": state})


def random_state() -> dict[str, np.ndarray]:
    """Of torch's generators, which dropout draws from."""
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    return to_arrays(states)


def restore_random_state(arrays: Mapping[str, np.ndarray]) -> None:
    """The inverse of ``random_state``."""
    states = to_tensors(arrays)
    torch.set_rng_state(states["cpu"])
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"])


def taken_apart(memory: Any, path: str = "") -> tuple[Any, dict[str, Tensor]]:
    """Nested tuples of tensors and of JSON values -> nested lists with names for tensors, and the tensors.

    Anything else (the mark of a cache, which training does not look at) becomes None.
    """
    if isinstance(memory, Tensor):
        return {"tensor": path, "bfloat16": memory.dtype == torch.bfloat16}, {path: memory}
    if not isinstance(memory, tuple):
        return memory if isinstance(memory, int | float | str) else None, {}
    parts = [taken_apart(part, f"{path}.{i}") for i, part in enumerate(memory)]
    return [shape for shape, _ in parts], {name: tensor for _, found in parts for name, tensor in found.items()}


def put_together(shape: Any, tensors: Mapping[str, Tensor]) -> Any:
    """The inverse of ``taken_apart``."""
    if isinstance(shape, dict):
        found = tensors[shape["tensor"]]
        return found.bfloat16() if shape["bfloat16"] else found
    return tuple(put_together(part, tensors) for part in shape) if isinstance(shape, list) else shape


def load_weights(module: nn.Module, arrays: Mapping[str, np.ndarray]) -> None:
    """Raises ``ValueError`` if they are of another module."""
    fresh = {name: tuple(value.shape) for name, value in module.state_dict().items()}
    if fresh != {name: value.shape for name, value in arrays.items()}:
        raise ValueError(
            "the checkpoint is of a model with other hyperparameters or other data, so training cannot go on from it; pass "
            "those it was made with, or leave resume_from out"
        )
    module.load_state_dict(to_tensors(arrays))


def write(path: str | os.PathLike[str], state: Mapping[str, Any]) -> None:
    """Atomically: the file is the one before or this one."""
    storage.write(path, {"kind": "checkpoint", **state})


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Raises ``ValueError`` for any other file."""
    content = storage.read(path)
    if content.get("kind") != "checkpoint":
        raise ValueError(f"{path} is a saved model, not a checkpoint; load it and fit with warm_start=True")
    return content
