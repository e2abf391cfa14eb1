"""A comparison on disk: a folder of JSON, arrays and safetensors, from which the same table comes back. Nothing in it can run code."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from seqmodels.loading import load
from seqmodels.parameters import Configurable
from seqmodels.sequences import Sequences
from seqmodels.storage import describe

FORMAT = "seqmodels-comparison-1"
MAIN = "comparison.json"  # written last: a folder that has it is whole
SCALARS = (str, int, float, bool, type(None))


def write_json(path: Path, content: Any) -> None:
    """To be read by people too."""
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def read_main(folder: Path) -> dict[str, Any]:
    """Raises ``ValueError`` for a folder that holds no saved comparison."""
    path = folder / MAIN
    content = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if content.get("format") != FORMAT:
        raise ValueError(f"{folder} holds no comparison that this version of seqmodels saved; it has no {MAIN} of its")
    return dict(content)


def as_json(value: Any) -> Any:
    """What JSON can hold of a description: arrays as lists, objects with hyperparameters described, anything else in words."""
    if isinstance(value, Mapping):
        return {str(key): as_json(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(inner) for inner in value]
    if isinstance(value, np.ndarray | np.generic):
        return as_json(value.tolist())
    if isinstance(value, Configurable):
        return as_json(describe(value))
    return value if isinstance(value, SCALARS) else repr(value)


# -- frames ---------------------------------------------------------------------------------------------------


def frame_to_json(frame: pd.DataFrame) -> dict[str, Any]:
    """Columns with their dtypes and the frame's ``attrs``; numbers are written so that they come back to the last bit."""
    columns = [
        {"name": name, "dtype": str(values.dtype), "values": [_scalar(name, v) for v in values]}
        for name, values in frame.items()
    ]
    return {"attrs": as_json(dict(frame.attrs)), "n": len(frame), "columns": columns}


def frame_from_json(content: Mapping[str, Any]) -> pd.DataFrame:
    """The inverse of ``frame_to_json``."""
    columns = {column["name"]: _series(column["values"], column["dtype"]) for column in content["columns"]}
    frame = pd.DataFrame(columns, index=range(content["n"]))
    frame.attrs = dict(content["attrs"])
    return frame


def _scalar(column: Any, value: Any) -> Any:
    """JSON knows no NaN (which becomes null) and no infinity."""
    if isinstance(value, pd.Timestamp):
        return value.isoformat()
    plain = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, float) and not math.isfinite(plain):
        return None if math.isnan(plain) else str(plain)
    if not isinstance(plain, SCALARS):
        raise ValueError(
            f"the column {column!r} holds a {type(value).__name__}, which cannot be saved; make it text or a number"
        )
    return plain


def _series(values: list[Any], dtype: str) -> pd.Series:
    if dtype.startswith("float"):
        return pd.Series([math.nan if v is None else float(v) for v in values], dtype=dtype)
    return pd.Series(values, dtype=dtype)


# -- sequences and their steps --------------------------------------------------------------------------------


def write_sequences(folder: Path, name: str, sequences: Sequences) -> None:
    """``NAME.json``: kind, metadata, and texts or symbols; vectors are in ``NAME.npz``."""
    content: dict[str, Any] = {"kind": sequences.kind, "metadata": frame_to_json(sequences.metadata)}
    content["grid"] = sequences.grid
    if sequences.kind == "vectors":
        write_arrays(folder / f"{name}.npz", {"vectors": list(sequences.items)})
    else:
        content["items"] = [item if isinstance(item, str) else item.tolist() for item in sequences]
    write_json(folder / f"{name}.json", content)


def read_sequences(folder: Path, name: str) -> Sequences | None:
    """What was written under this name, if anything was."""
    if not (folder / f"{name}.json").exists():
        return None
    content = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    is_vectors = content["kind"] == "vectors"
    items = read_arrays(folder / f"{name}.npz")["vectors"] if is_vectors else content["items"]
    return Sequences(items, metadata=frame_from_json(content["metadata"]), grid=content.get("grid"))


def write_arrays(path: Path, ragged: Mapping[str, list[Any]]) -> None:
    """Lists of arrays by name, each list laid end to end beside its lengths."""
    laid = [np.concatenate([np.asarray(a) for a in arrays]) for arrays in ragged.values()]
    lengths = [np.array([len(a) for a in arrays]) for arrays in ragged.values()]
    named = {f"values {i}": values for i, values in enumerate(laid)}
    named |= {f"lengths {i}": n for i, n in enumerate(lengths)}
    np.savez_compressed(path, names=np.array(list(ragged), dtype=np.str_), **named)  # type: ignore[arg-type]


def read_arrays(path: Path) -> dict[str, list[np.ndarray]]:
    """The inverse of ``write_arrays``."""
    with np.load(path, allow_pickle=False) as file:
        return {
            str(name): np.split(file[f"values {i}"], np.cumsum(file[f"lengths {i}"])[:-1])
            for i, name in enumerate(file["names"])
        }


# -- models ---------------------------------------------------------------------------------------------------


def write_models(folder: Path, models: Mapping[str, Any]) -> dict[str, str]:
    """A file a model, under a name that a file can have; which is whose."""
    (folder / "models").mkdir(exist_ok=True)
    files = {name: f"models/{i}-{re.sub(r'[^A-Za-z0-9_.-]+', '-', name)}" for i, name in enumerate(models)}
    files = {name: f"{stem}.safetensors" for name, stem in files.items()}
    for name, model in models.items():
        model.save(folder / files[name])
    return files


def read_models(folder: Path, files: Mapping[str, str]) -> dict[str, Any]:
    """The inverse of ``write_models``."""
    return {name: load(folder / file) for name, file in files.items()}
