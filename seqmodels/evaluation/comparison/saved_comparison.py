"""A comparison on disk: a folder of JSON and safetensors files. Loading one cannot run code.

``comparison.json`` holds the table and names the folder beside it, ``files-...``, that holds the scores of the steps,
the test data and the models; it has a SHA-256 of each file. A new comparison is written into a folder of its own, and
then ``comparison.json`` is replaced, so that at every moment either the old or the new comparison is complete. Other
files in the folder stay.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from seqmodels.common import storage
from seqmodels.common.caller_warnings import warn_caller
from seqmodels.common.display import a_or_an
from seqmodels.common.files import locked_folder, new_folder, remove_folders, write_text
from seqmodels.common.parameters import Configurable, check_argument
from seqmodels.common.storage import MALFORMED, describe
from seqmodels.loading import restored
from seqmodels.sequences import Sequences
from seqmodels.sequences.measure import Measure

if TYPE_CHECKING:
    import pandas as pd

NAME, FORMAT = "seqmodels-comparison-", 2  # in the oldest format the files were in the folder itself, without hashes
MAIN = "comparison.json"
SCALARS = (str, int, float, bool, type(None))
OWN_HASH = "sha256_of_this_file"
BLANK_HASH = "0" * 64
OWN_HASH_ENTRY = re.compile(rb'"sha256_of_this_file": "([0-9a-f]{64})"')
FOLDER = re.compile(r"files-[0-9a-f]{12}")
FILE = re.compile(r"(models/)?[A-Za-z0-9_-][A-Za-z0-9_.-]*")
OLD_FILE = re.compile(r"(steps|test|source)\.(npz|json)|models/[A-Za-z0-9_.-]+\.safetensors")
DTYPE = re.compile(r"[A-Za-z]+[0-9]{0,2}(\[[a-z]{1,2}(, [A-Za-z0-9/_+:-]+)?\])?")
TIME_DTYPE = re.compile(r"(datetime64|timedelta64)\[[a-zA-Z]{1,2}\]|u?int[0-9]{1,2}|float[0-9]{2}")
NAMES = ("features", "symbols", "time_name", "time_unit", "by")  # attributes of ``Sequences`` that are saved by name
# An old compressed file is refused if it unpacks to more bytes than the first plus its own size times the second.
MAX_UNPACKED_BYTES, MAX_UNPACKED_RATIO = 64_000_000, 20
BROKEN = (*MALFORMED, OSError, EOFError, zipfile.BadZipFile, zlib.error)

# -- the folder -----------------------------------------------------------------------------------------------


@contextmanager
def replaced(folder: str | os.PathLike[str]) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Return a context manager that saves a comparison in ``folder``.

    Its block gets a new folder for the files and an empty dictionary for the rest of the content. When the block ends,
    the dictionary is written as JSON, and both replace the old comparison. If anything fails, the old one stays.

    Args:
        folder: the folder of the comparison.

    Raises:
        ValueError: another process or thread is writing there.
    """
    with locked_folder(folder) as root:
        with new_folder(root, "files-") as files:
            content: dict[str, Any] = {}
            yield files, content
            old = _old_files(root)
            header = {
                "format": f"{NAME}{FORMAT}",
                OWN_HASH: BLANK_HASH,
                "folder": files.name,
                "files": _hashes(files),
            }
            text = json.dumps(header | content, indent=1, ensure_ascii=False) + "\n"
            signed = text.replace(BLANK_HASH, sha256(text), 1)
            write_text(root / MAIN, signed)
        remove_folders(root, FOLDER, but=files.name)
        for name in old:
            (root / name).unlink(missing_ok=True)
        if old and (root / "models").is_dir() and not any((root / "models").iterdir()):
            (root / "models").rmdir()


@contextmanager
def opened(folder: str | os.PathLike[str]) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Return a context manager that opens a saved comparison.

    Its block gets the folder of the files and the content of ``comparison.json``.

    Args:
        folder: the folder of the comparison.

    Raises:
        ValueError: the folder has no comparison or a damaged one, also if the damage shows in the block.
    """
    root = Path(folder)
    content = read_main(root)
    try:
        files = _checked(root, content)
        yield files, content
    except ValueError as error:
        raise ValueError(f"{folder}: {error}") from error
    except BROKEN as error:
        text = f"{folder} holds no whole comparison: {type(error).__name__} in its content: {error}"
        raise ValueError(text[:500]) from error


def read_main(folder: Path) -> dict[str, Any]:
    """Return the content of ``comparison.json`` after checking its format and hash.

    Args:
        folder: the folder of the comparison.

    Raises:
        ValueError: the folder holds no saved comparison, a damaged one, or one of a newer version.
    """
    path = folder / MAIN
    raw = _bytes(path) if path.exists() else b"{}"
    content = storage.parse_json(raw, path)
    form = content.get("format") if isinstance(content, dict) else None
    version = re.fullmatch(rf"{NAME}([1-9][0-9]{{0,5}})", form) if isinstance(form, str) else None
    if version is None:
        raise ValueError(
            f"{folder} holds no comparison: it has no {MAIN} that seqmodels saved; pass the folder of Comparison.save"
        )
    if int(version[1]) > FORMAT:
        raise ValueError(
            f"{folder} was written by a newer version of seqmodels, in format {version[1]}; this one reads up to "
            f"{FORMAT}: upgrade with pip install -U seqmodels"
        )
    if int(version[1]) == FORMAT:
        entries = list(OWN_HASH_ENTRY.finditer(raw))
        begin = entries[0].start(1) if len(entries) == 1 else 0
        unsigned = raw[:begin] + BLANK_HASH.encode() + raw[begin + len(BLANK_HASH) :]
        if len(entries) != 1 or entries[0][1] != hashlib.sha256(unsigned).hexdigest().encode():
            raise ValueError(f"{path} is damaged: it is not what was written; copy it again, or save it again")
    return dict(content)


def _checked(root: Path, content: dict[str, Any]) -> Path:
    """Return the folder of the files of a saved comparison after checking their names and hashes.

    The oldest format has no hashes, so only names are checked.

    Args:
        root: the folder of the comparison.
        content: content of its ``comparison.json``.

    Raises:
        ValueError: a file is missing or damaged.
    """
    for name, value in content["measure"].items():
        check_argument(Measure, name, value)
    columns = {column["name"]: column["values"] for column in content["frame"]["columns"]}
    if not {"model", "score", "error"} <= columns.keys() or not content["models"].keys() <= set(columns["model"]):
        raise ValueError("its table has no row for a model that it holds; save it again")
    if "baseline" not in content["frame"]["attrs"]:
        raise ValueError("the table does not say what its baseline is; save it again")
    if content["format"] == f"{NAME}1":
        wrong = [name for name in content["models"].values() if not OLD_FILE.fullmatch(name)]
        _refuse_name(wrong)
        _refuse_links(root, [root / name for name in _old_files(root)])
        return root
    _refuse_name([content["folder"]] if not FOLDER.fullmatch(content["folder"]) else [])
    files: Path = root / content["folder"]
    _refuse_name([name for name in (*content["files"], *content["models"].values()) if not FILE.fullmatch(name)])
    _refuse_links(root, [files / name for name in content["files"]])
    for name, expected in content["files"].items():
        if not (files / name).exists():
            raise ValueError(f"it has lost its {name}, without which it cannot be read; save it again")
        with storage.opened(files / name) as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != expected:
                raise ValueError(
                    f"{files.name}/{name} is damaged: it is not what was written; copy it again, or save it again"
                )
    if not {"test.json", *content["models"].values()} <= content["files"].keys():
        raise ValueError("it has lost its test.json or a model, without which it cannot be read; save it again")
    return files


def _refuse_name(wrong: list[Any]) -> None:
    if wrong:
        raise ValueError(f"it names {wrong[0]!r:.100}, which is no file that a saved comparison has")


def _refuse_links(root: Path, files: list[Path]) -> None:
    outside = [file for file in files if not file.resolve().is_relative_to(root.resolve())]
    if outside:
        raise ValueError(f"{outside[0].name} is a link that leaves the folder; copy the file itself")


def _hashes(files: Path) -> dict[str, str]:
    paths = sorted(path for path in files.rglob("*") if path.is_file())
    return {path.relative_to(files).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def _old_files(root: Path) -> list[str]:
    """Return the names of the files of a comparison in the oldest format, which stand in ``root`` itself.

    The list is empty if the folder holds no comparison or one in a newer format.
    """
    try:
        content = read_main(root)
    except ValueError:
        return []
    if content["format"] != f"{NAME}1":
        return []
    models = [name for name in content["models"].values() if isinstance(name, str) and OLD_FILE.fullmatch(name)]
    return [*(f"{name}.{kind}" for name in ("steps", "test", "source") for kind in ("npz", "json")), *models]


def _bytes(path: Path) -> bytes:
    with storage.opened(path) as file:
        return file.read()


def sha256(text: str) -> str:
    """Return the SHA-256 of a text as 64 hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()


def write_json(path: Path, content: Any) -> None:
    """Write ``content`` as JSON, indented so that people can read it."""
    write_text(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def as_json(value: Any) -> Any:
    """Convert a value to one that JSON can hold.

    Arrays become lists, configurable objects (models, encodings, ...) descriptions of their settings, and others their
    ``repr``.
    """
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
    """Convert a frame to a dictionary for JSON with its columns, their dtypes and its ``attrs``; numbers stay exact.

    Raises:
        ValueError: a cell is neither text nor a number, bool, date or None.
    """
    columns = [
        {"name": name, "dtype": str(values.dtype), "values": [_scalar(name, v) for v in values]}
        for name, values in frame.items()
    ]
    return {"attrs": as_json(dict(frame.attrs)), "n": len(frame), "columns": columns}


def frame_from_json(content: Mapping[str, Any]) -> pd.DataFrame:
    """Restore a frame from the dictionary of ``frame_to_json``.

    Raises:
        ValueError: columns differ in length or have an invalid dtype.
    """
    import pandas as pd

    n = content["n"]
    wrong = [c["name"] for c in content["columns"] if len(c["values"]) != n or not DTYPE.fullmatch(c["dtype"])]
    if type(n) is not int or wrong:
        raise ValueError(f"a table should have columns of {n} values each, but {wrong[:1]} has not")
    columns = {column["name"]: _series(column["values"], column["dtype"]) for column in content["columns"]}
    frame = pd.DataFrame(columns, index=range(n))
    frame.attrs = dict(content["attrs"])
    return frame


def _scalar(column: Any, value: Any) -> Any:
    """Convert a cell of a frame to a JSON value.

    NaN becomes null and an infinity becomes a string, because JSON has neither.

    Args:
        column: name of the column, for the message.
        value: the cell.

    Raises:
        ValueError: the cell is neither text nor a number, bool, date or None.
    """
    import pandas as pd

    if isinstance(value, pd.Timestamp):
        return value.isoformat()
    plain = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, float) and not math.isfinite(plain):
        return None if math.isnan(plain) else str(plain)
    if not isinstance(plain, SCALARS):
        raise ValueError(
            f"the column {column!r} holds {a_or_an(type(value))}, which cannot be saved; make it text or a number"
        )
    return plain


def _series(values: list[Any], dtype: str) -> pd.Series:
    import pandas as pd

    if dtype.startswith("float"):
        return pd.Series([math.nan if v is None else float(v) for v in values], dtype=dtype)
    return pd.Series(values, dtype=dtype)


# -- sequences and their steps --------------------------------------------------------------------------------


def write_sequences(folder: Path, name: str, sequences: Sequences) -> None:
    """Write sequences to ``NAME.json``: kind, metadata, inputs, times, and texts or symbols.

    Vectors and their past are written to ``NAME.safetensors``.

    Args:
        folder: folder of the files.
        name: name of the files without its ending.
        sequences: the sequences.
    """
    content: dict[str, Any] = {"kind": sequences.kind, "metadata": frame_to_json(sequences.metadata)}
    content["grid"] = sequences.grid
    content |= {name: getattr(sequences, name) for name in NAMES}
    if sequences.times is not None:
        content["times"] = [_times_to_json(times) for times in sequences.times]
    if sequences.past_times is not None:
        content["past_times"] = [None if times is None else _times_to_json(times) for times in sequences.past_times]
    past = sequences.past
    if sequences.inputs is not None:
        content["input_names"] = sequences.input_names
        content["inputs"] = [inputs.tolist() for inputs in sequences.inputs]
        if sequences.past_inputs is not None:
            content["past_inputs"] = [None if inputs is None else inputs.tolist() for inputs in sequences.past_inputs]
    if sequences.kind == "vectors":
        arrays = {"vectors": list(sequences.items)}
        if past is not None:  # a sequence without a past gets an array of no frames
            arrays["past"] = [np.zeros((0, sequences.n_features)) if x is None else x for x in past]
        write_arrays(folder / f"{name}.safetensors", arrays)
    else:
        content["items"] = [item if isinstance(item, str) else item.tolist() for item in sequences]
        if past is not None:
            content["past"] = [x if isinstance(x, str | None) else x.tolist() for x in past]
    write_json(folder / f"{name}.json", content)


def read_sequences(folder: Path, name: str) -> Sequences | None:
    """Read the sequences from the files of ``write_sequences``; return None if there are none under this name.

    Args:
        folder: folder of the files.
        name: name of the files without its ending.
    """
    if not (folder / f"{name}.json").exists():
        return None
    content = storage.parse_json(_bytes(folder / f"{name}.json"), f"{name}.json")
    is_vectors = content["kind"] == "vectors"
    arrays = read_arrays(folder, name) if is_vectors else {}
    times, past_times = content.get("times"), content.get("past_times")
    return Sequences(
        arrays["vectors"] if is_vectors else content["items"],
        past=arrays.get("past") if is_vectors else content.get("past"),  # earlier files have none
        metadata=frame_from_json(content["metadata"]),
        grid=content.get("grid"),
        inputs=content.get("inputs"),
        input_names=content.get("input_names"),
        past_inputs=content.get("past_inputs"),
        times=None if times is None else [_times_from_json(each) for each in times],
        past_times=None if past_times is None else [each and _times_from_json(each) for each in past_times],
        **{name: content[name] for name in NAMES if content.get(name) is not None},
    )


def _times_to_json(times: np.ndarray) -> dict[str, Any]:
    """Return times as JSON. Dates and time differences are written as integers in the unit of their dtype."""
    return {
        "dtype": str(times.dtype),
        "values": (times.astype(np.int64) if times.dtype.kind in "Mm" else times).tolist(),
    }


def _times_from_json(content: dict[str, Any]) -> np.ndarray:
    return np.array(content["values"], dtype=_time_dtype(content["dtype"]))


def _time_dtype(name: Any) -> np.dtype:
    if not isinstance(name, str) or not TIME_DTYPE.fullmatch(name):
        raise ValueError(f"times should be dates or numbers, not {name!r:.50}")
    return np.dtype(name)


def write_arrays(path: Path, ragged: Mapping[str, list[Any]]) -> None:
    """Write lists of arrays to a safetensors file.

    The arrays of a list, which may differ in length, are concatenated, and their lengths are stored.

    Args:
        path: the file.
        ragged: lists of arrays by name.
    """
    values = {str(i): np.concatenate([np.asarray(a) for a in arrays]) for i, arrays in enumerate(ragged.values())}
    lengths = {str(i): np.array([len(a) for a in arrays], np.int64) for i, arrays in enumerate(ragged.values())}
    storage.write(path, {"names": list(ragged), "values": values, "lengths": lengths})


def read_arrays(folder: Path, name: str) -> dict[str, list[np.ndarray]]:
    """Read lists of arrays, by name, from ``NAME.safetensors`` (oldest format: ``NAME.npz``).

    Args:
        folder: folder of the file.
        name: name of the file without its ending.

    Raises:
        ValueError: arrays and their lengths do not fit, or an old file would unpack to too many bytes.
    """
    path = folder / f"{name}.safetensors"
    if not path.exists():
        return _read_npz(folder / f"{name}.npz")
    content = storage.read(path)
    each = ((content["values"][str(i)], content["lengths"][str(i)]) for i in range(len(content["names"])))
    return {str(name): _split(*pair) for name, pair in zip(content["names"], each, strict=True)}


def _split(values: np.ndarray, lengths: np.ndarray) -> list[np.ndarray]:
    if values.dtype.kind not in "iuf" or lengths.dtype.kind != "i" or lengths.ndim != 1 or not len(lengths):
        raise ValueError("sequences should be arrays of numbers beside their lengths")
    if lengths.min() < 0 or lengths.sum() != len(values):
        raise ValueError(f"the lengths of {len(lengths)} sequences do not sum to the {len(values)} steps there are")
    return np.split(values, np.cumsum(lengths)[:-1])


def _read_npz(path: Path) -> dict[str, list[np.ndarray]]:
    with storage.opened(path) as file:
        with zipfile.ZipFile(file) as archive:
            unpacked = sum(member.file_size for member in archive.infolist())
        if unpacked > MAX_UNPACKED_BYTES + MAX_UNPACKED_RATIO * path.stat().st_size:
            raise ValueError(
                f"{path.name} would take {unpacked / 1e6:.0f} MB unpacked, {unpacked / path.stat().st_size:.0f} times "
                "its own size, which no comparison needs; save it again"
            )
    with np.load(path, allow_pickle=False) as arrays:
        return {
            str(name): _split(arrays[f"values {i}"], arrays[f"lengths {i}"]) for i, name in enumerate(arrays["names"])
        }


def check_steps(steps: Mapping[str, list[np.ndarray]], test: Sequences) -> None:
    """Check that every model has an array of log-probabilities for every test sequence.

    Args:
        steps: for each model, by name, an array of the steps of each sequence.
        test: the test sequences.

    Raises:
        ValueError: a model has another number of arrays.
    """
    for name, each in steps.items():
        if len(each) != len(test):
            raise ValueError(f"{name!r} has steps of {len(each)} sequences, but there are {len(test)}")


def check_seeds(by_seed: Mapping[str, list[np.ndarray]], steps: Mapping[str, list[np.ndarray]]) -> None:
    """Check that each seed has a log-probability of each test sequence, or of each step of a single one.

    Args:
        by_seed: for each model, by name, an array for each seed.
        steps: for each model, by name, an array for each test sequence.

    Raises:
        ValueError: an array has another length.
    """
    for name, rows in by_seed.items():
        of_model = steps.get(name, [])
        n = len(of_model[0]) if len(of_model) == 1 else len(of_model)
        if not rows or any(len(row) != n for row in rows):
            raise ValueError(f"the seeds of {name!r} have {[len(row) for row in rows][:3]} figures, but there are {n}")


# -- models ---------------------------------------------------------------------------------------------------


def write_models(folder: Path, models: Mapping[str, Any]) -> dict[str, str]:
    """Write each model to a file of its own, under a valid file name, and return the file name of each model.

    Models that cannot be saved, for example because they hold a function, are left out with a warning.

    Args:
        folder: folder in which the subfolder ``models`` is made.
        models: models by name.
    """
    (folder / "models").mkdir(exist_ok=True)
    files = {name: f"models/{i}-{re.sub(r'[^A-Za-z0-9_.-]+', '-', name)[:100]}" for i, name in enumerate(models)}
    files = {name: f"{stem}.safetensors" for name, stem in files.items()}
    left_out: dict[str, str] = {}
    for name, model in models.items():
        try:
            model.save(folder / files[name])
        except storage.NotSavableError as error:
            left_out[name] = str(error)
    for name, reason in left_out.items():
        warn_caller(f"the comparison is saved without the model {name!r}: {reason}")
    return {name: file for name, file in files.items() if name not in left_out}


def read_models(folder: Path, files: Mapping[str, str], classes: Iterable[type] = ()) -> dict[str, Any]:
    """Load the models of a saved comparison, by name.

    Args:
        folder: folder of the files.
        files: file name of each model, as ``write_models`` returned them.
        classes: the user's own classes that the models use, as in ``seqmodels.load``.
    """
    return {name: restored(storage.read(folder / file), folder / file, classes) for name, file in files.items()}
