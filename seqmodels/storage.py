"""Models on disk: one safetensors file, arrays as tensors and the rest as JSON in its header. Nothing in it can run code."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from seqmodels.parameters import Configurable

FORMAT = "seqmodels-1"


def write(path: str | os.PathLike[str], content: Mapping[str, Any]) -> None:
    """Write nested dictionaries of arrays and JSON values, atomically: the file is there whole or not at all."""
    arrays: dict[str, np.ndarray] = {}
    header = _split(dict(content), "", arrays)
    target = Path(path)
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        save_file(arrays, partial, metadata={"format": FORMAT, "content": json.dumps(header)})
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read what ``write`` wrote. Raises ``ValueError`` for any other file."""
    try:
        with safe_open(str(path), framework="numpy") as file:
            header = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except SafetensorError as error:
        raise ValueError(f"{path} is not a saved model: {error}") from None
    if header.get("format") != FORMAT:
        raise ValueError(f"{path} is a safetensors file, but not one that seqmodels wrote")
    content: dict[str, Any] = _join(json.loads(header["content"]), "", arrays)
    return content


def _split(value: Any, path: str, arrays: dict[str, np.ndarray]) -> Any:
    if isinstance(value, np.ndarray):
        arrays[path] = np.asarray(value, order="C")  # ascontiguousarray would give a scalar an axis
        return {"__array__": True}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return {key: _split(inner, f"{path}/{key}", arrays) for key, inner in value.items()}
    return value


def _join(value: Any, path: str, arrays: dict[str, np.ndarray]) -> Any:
    if isinstance(value, dict):
        if "__array__" in value:
            return arrays[path]
        return {key: _join(inner, f"{path}/{key}", arrays) for key, inner in value.items()}
    return value


def describe(thing: Configurable) -> dict[str, Any]:
    """A configurable as JSON: its class's name and its hyperparameters, nested."""
    params = thing.get_params(deep=False).items()
    return {"class": type(thing).__name__, "params": {k: _described(v) for k, v in params}}


def _described(value: Any) -> Any:
    """As JSON, which has no tuples; functions in a list are left out, for a file holds no code."""
    if isinstance(value, Configurable):
        return describe(value)
    if not isinstance(value, list | tuple):
        return value
    kept = [_described(v) for v in value if isinstance(v, Configurable) or not callable(v)]
    return {"tuple": kept} if isinstance(value, tuple) else kept


def build(description: Mapping[str, Any], classes: Mapping[str, type[Configurable]]) -> Any:
    """The configurable that ``describe`` described, from a closed table of classes."""
    params = {k: _built(v, classes) for k, v in description["params"].items()}
    if description["class"] not in classes:
        raise ValueError(f"the file holds a {description['class']}, which this version of seqmodels does not know")
    return classes[description["class"]](**params)


def _built(value: Any, classes: Mapping[str, type[Configurable]]) -> Any:
    if isinstance(value, dict):
        return tuple(_built(v, classes) for v in value["tuple"]) if "tuple" in value else build(value, classes)
    return [_built(v, classes) for v in value] if isinstance(value, list) else value
