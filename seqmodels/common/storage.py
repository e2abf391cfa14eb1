"""Saving models and their hyperparameters as one safetensors file, which cannot run code.

Arrays are tensors of the file and the rest is JSON in its header. The header also holds a SHA-256 hash of every tensor
and of itself, so that no bit can change unnoticed. The hashes reveal damage, not who wrote the file: whoever changes it
on purpose can compute them again. For this reason ``seqmodels.loading`` and each class also check what was read.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from io import BufferedReader
from types import FunctionType
from typing import Any

import numpy as np

from seqmodels.common.caller_warnings import warn_caller
from seqmodels.common.display import a_or_an
from seqmodels.common.files import replaced
from seqmodels.common.former_names import FORMER_NAMES, LAST_TO_READ
from seqmodels.common.parameters import Configurable, checked_argument, had_no_effect, in_groups, in_one_line, owner_of
from seqmodels.common.version import __version__

FORMAT = 2
OLDEST = 1  # the oldest format that can be read, which had no hashes
NAME = "seqmodels-"  # a file's format is this followed by a number
DTYPES = {
    **{"F64": np.float64, "F32": np.float32, "F16": np.float16, "BOOL": np.bool_},
    **{"I64": np.int64, "I32": np.int32, "I16": np.int16, "I8": np.int8},
    **{"U64": np.uint64, "U32": np.uint32, "U16": np.uint16, "U8": np.uint8},
}
DTYPE_NAMES = {np.dtype(dtype): name for name, dtype in DTYPES.items()}
LONGEST_HEADER = 100_000_000  # bytes, as in safetensors
BLANK = b"0" * 64
# It matches only once in a header, because within a JSON string quotation marks are preceded by a backslash.
DIGEST = re.compile(rb'"sha256":"([0-9a-f]{64})"')
STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
# Hyperparameters that are not saved, because a file describes the model and not what fit reads, writes and calls.
ARGUMENTS_OF_FIT = ("checkpoint", "resume_from", "callbacks")

# -- models ---------------------------------------------------------------------------------------------------


def write(path: str | os.PathLike[str], content: Mapping[str, Any]) -> None:
    """Write nested dictionaries of arrays and JSON values to a safetensors file, which appears complete or not at all.

    Args:
        path: path of the file.
        content: the dictionaries.

    Raises:
        TypeError: an array has a dtype that a safetensors file cannot hold.
    """
    arrays: dict[str, np.ndarray] = {}
    text = json.dumps(_split(dict(content), "", arrays))
    # Arrays of the widest dtype come first, so that each begins at a multiple of its item size.
    order = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))
    begins = np.cumsum([0, *(arrays[name].nbytes for name in order)]).tolist()
    tensors = {
        name: {"dtype": _dtype_name(name, arrays[name]), "shape": list(arrays[name].shape), "data_offsets": [a, b]}
        for name, a, b in zip(order, begins, begins[1:], strict=False)
    }
    hashes = json.dumps({name: _hashed(arrays[name]) for name in order})
    said = {"format": f"{NAME}{FORMAT}", "version": __version__, "content": text, "hashes": hashes}
    head = {"__metadata__": {"sha256": BLANK.decode(), **said}, **tensors}
    header = _signed(json.dumps(head, separators=(",", ":")).encode())
    with replaced(path) as partial, open(partial, "wb") as file:
        file.write(header)
        for name in order:
            file.write(arrays[name].reshape(-1).data)


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the content of a file that ``write`` wrote, in this version or an older one, as nested dictionaries.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file was not written by ``write``, is damaged (the message says in which part), or was written
            in a newer format.
    """
    with opened(path) as file:
        header, arrays = _read_tensors(file, path)
    said = header["__metadata__"]
    try:
        content = _join(parse_json(said["content"], path), "", arrays)
    except RecursionError as error:
        raise ValueError(f"{path} is not a saved model: {error}") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} is not a saved model: its content is not a dictionary")
    return content


@contextmanager
def opened(path: str | os.PathLike[str]) -> Iterator[BufferedReader]:
    """Return a context manager that opens an existing regular file for reading in binary mode, and yields it.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the path is a folder or a pipe, on which a read might wait forever.
    """
    if not os.path.exists(path):
        raise FileNotFoundError(f"there is no file {path}; pass the path of a model that was saved")
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise ValueError(f"{path} is not a saved model: it is not a regular file; pass the path of a saved file")
    with open(path, "rb") as file:
        yield file


def parse_json(text: str | bytes, path: str | os.PathLike[str], *, spare: int = 16_000_000) -> Any:
    """Return the value of a JSON text, after checking that its objects will not take far more memory than the text.

    Args:
        text: the JSON text.
        path: the file that the text comes from, for error messages.
        spare: bytes that the objects may take beyond twice the length of the text.

    Raises:
        ValueError: the text is not valid JSON, repeats a key in one object, or would take too much memory.
    """
    try:
        raw = text if isinstance(text, bytes) else text.encode()
        if _room(raw) > spare + 2 * len(raw):  # a cheap bound first, which also counts what is inside of strings
            needed = _room(STRING.sub(b'"', raw))
            if needed > spare + 2 * len(raw):
                raise ValueError(f"its JSON would take {needed / 1e6:.0f} MB")
        return json.loads(raw.decode(), object_pairs_hook=_without_duplicates)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not a saved model: {error}") from None


def _room(text: bytes) -> int:
    """Return an upper bound on the bytes that the objects of a JSON text take in memory.

    Every string in ``text`` must have been replaced by a single quotation mark.
    """
    return 200 * text.count(b"{") + 72 * text.count(b"[") + 60 * text.count(b'"') + 32 * text.count(b",")


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique = dict(pairs)
    if len(unique) < len(pairs):
        raise ValueError("a name stands there twice")
    return unique


def _read_tensors(file: BufferedReader, path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the header of a safetensors file and its arrays by name, after checking their hashes.

    Files of the oldest format have no hashes.

    Args:
        file: the open file, at its beginning.
        path: its path, for errors.

    Raises:
        ValueError: the file is damaged or not one of this package.
    """
    size = os.fstat(file.fileno()).st_size
    length = file.read(8)
    n = int.from_bytes(length, "little")
    if len(length) < 8 or not 2 <= n <= min(size - 8, LONGEST_HEADER):
        raise ValueError(f"{path} is not a saved model: the header length in its first 8 bytes is impossible")
    raw = file.read(n)
    header = parse_json(raw, path)
    said = header.get("__metadata__") if isinstance(header, dict) else None
    if not isinstance(said, dict) or not all(isinstance(value, str) for value in said.values()):
        said = {}
    number = _format(said, path)
    if "content" not in said:
        raise ValueError(f"{path} is damaged: its header has lost its content; copy it again, or save it again")
    hashes = None if number < 2 else _checked_hashes(length, raw, said, path)
    arrays, end = {}, 0
    for name, tensor in sorted(_tensors(header, path).items(), key=lambda item: item[1]["data_offsets"]):
        array, end = _read_tensor(file, name, tensor, end, size - 8 - n, path)
        if hashes is not None and hashes.get(name) != _hashed(array):
            raise ValueError(f"{path} is damaged: the tensor {name!r} is not what was written; copy or save it again")
        arrays[name] = array
    if end != size - 8 - n or (hashes is not None and len(hashes) != len(arrays)):
        raise ValueError(f"{path} is not a saved model: it has bytes after its tensors, or tensors without a hash")
    return header, arrays


def _format(said: Mapping[str, str], path: str | os.PathLike[str]) -> int:
    match = re.fullmatch(rf"{NAME}([1-9][0-9]{{0,5}})", said.get("format", ""))
    if match is None:
        raise ValueError(f"{path} is a safetensors file, but not one that seqmodels wrote")
    number = int(match[1])
    if number > FORMAT:
        raise ValueError(
            f"{path} was written by a newer version of seqmodels ({said.get('version', 'unknown')}), in format "
            f"{number}; this one reads formats {OLDEST} to {FORMAT}: upgrade with pip install -U seqmodels"
        )
    return number


def _tensors(header: dict[str, Any], path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the entries of the header that describe tensors, by name, after checking their form.

    Each has a dtype, a shape and offsets.

    Raises:
        ValueError: an entry has any other form.
    """
    tensors = {name: tensor for name, tensor in header.items() if name != "__metadata__"}
    for name, tensor in tensors.items():
        if not (
            isinstance(tensor, dict)
            and tensor.keys() == {"dtype", "shape", "data_offsets"}
            and all(isinstance(tensor[key], list) for key in ("shape", "data_offsets"))
            and all(type(n) is int and 0 <= n < 2**63 for key in ("shape", "data_offsets") for n in tensor[key])
            and len(tensor["data_offsets"]) == 2
            and len(tensor["shape"]) <= 32
        ):
            raise ValueError(f"{path} is not a saved model: its description of the tensor {name[:80]!r} is malformed")
        if tensor["dtype"] not in DTYPES:
            raise ValueError(
                f"{path} is not a saved model: the tensor {name!r} has the unknown dtype {tensor['dtype']!r:.80}"
            )
    return tensors


def _read_tensor(
    file: BufferedReader, name: str, tensor: Mapping[str, Any], end: int, n_bytes: int, path: str | os.PathLike[str]
) -> tuple[np.ndarray, int]:
    """Read the next tensor of a file, and return it with the byte where it ends.

    Args:
        file: the open file, positioned at the tensor.
        name: name of the tensor, for errors.
        tensor: its dtype, shape and offsets, from the header.
        end: the byte where the tensor before it ended.
        n_bytes: the size of all tensors.
        path: path of the file, for errors.

    Raises:
        ValueError: shape, offsets and sizes do not agree or the file ends too early.
    """
    begin, stop = tensor["data_offsets"]
    dtype, shape = np.dtype(DTYPES[tensor["dtype"]]), tensor["shape"]
    if begin != end or not begin <= stop <= n_bytes or math.prod(shape) * dtype.itemsize != stop - begin:
        raise ValueError(
            f"{path} is not a saved model: the tensor {name!r} of shape {shape} does not fit in its place; if it was a "
            "saved model, the file is damaged or cut off: copy it again"
        )
    flat = np.empty(stop - begin, np.uint8)
    if file.readinto(flat.data) != len(flat):
        raise ValueError(f"{path} is not a saved model: it was cut off while it was read")
    if dtype == np.bool_ and flat.max(initial=0) > 1:
        raise ValueError(f"{path} is damaged: the tensor {name!r} holds booleans that are neither true nor false")
    return flat.view(dtype).reshape(shape), stop


def _dtype_name(name: str, array: np.ndarray) -> str:
    if array.dtype not in DTYPE_NAMES:
        raise TypeError(
            f"{name} is an array of {array.dtype}, which a safetensors file cannot hold; make it of numbers"
        )
    return DTYPE_NAMES[array.dtype]


def _hashed(array: np.ndarray) -> str:
    return hashlib.sha256(array.reshape(-1).view(np.uint8).data).hexdigest()


def _signed(header: bytes) -> bytes:
    """Return the beginning of a safetensors file: the length of the header in 8 bytes, low byte first, and the header.

    The header is padded with spaces to a multiple of 8 bytes. ``BLANK``, which it must contain, is replaced by the
    SHA-256 hash of everything returned, computed while ``BLANK`` stood there.
    """
    header += b" " * (-len(header) % 8)
    unsigned = len(header).to_bytes(8, "little") + header
    begin = unsigned.index(BLANK)
    return unsigned[:begin] + hashlib.sha256(unsigned).hexdigest().encode() + unsigned[begin + len(BLANK) :]


def _checked_hashes(length: bytes, raw: bytes, said: Mapping[str, str], path: str | os.PathLike[str]) -> dict[str, str]:
    """Check the hash of the header, and return the hashes of the tensors by name.

    Args:
        length: the first 8 bytes of the file.
        raw: the header as bytes.
        said: the metadata of the parsed header.
        path: path of the file, for errors.

    Raises:
        ValueError: the header was changed or has no hashes.
    """
    places = list(DIGEST.finditer(raw))
    begin = places[0].start(1) if len(places) == 1 else 0
    unsigned = hashlib.sha256(length)
    for part in (memoryview(raw)[:begin], BLANK, memoryview(raw)[begin + len(BLANK) :]):
        unsigned.update(part)
    if len(places) != 1 or places[0][1] != unsigned.hexdigest().encode():
        raise ValueError(f"{path} is damaged: its header is not what was written; copy it again, or save it again")
    hashes = parse_json(said.get("hashes", ""), path)
    if not isinstance(hashes, dict):
        raise ValueError(f"{path} is not a saved model: the hashes of its tensors are missing")
    return hashes


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
            if path not in arrays:
                raise ValueError(f"the file has lost its tensor {path!r}; save it again")
            return arrays[path]
        return {key: _join(inner, f"{path}/{key}", arrays) for key, inner in value.items()}
    return value


# -- configurables --------------------------------------------------------------------------------------------

GIVEN = "*."  # prefix, in tables of classes, of a class that the caller of ``load`` gives


def name_of(thing: Any) -> str:
    """Return the name by which a file refers to a class or function.

    A class of seqmodels goes by its bare name. Any other goes by its module and name, and is never imported from a
    file.

    >>> import collections
    >>> name_of(Configurable), name_of(collections.Counter)
    ('Configurable', 'collections.Counter')
    """
    is_own = thing.__module__.partition(".")[0] == __name__.partition(".")[0]
    return str(thing.__name__ if is_own else f"{thing.__module__}.{thing.__qualname__}")


class NotSavableError(ValueError):
    """An error raised when a model has a hyperparameter, such as a function, that a file cannot hold."""


def describe(thing: Configurable, *, by_name: bool = False) -> dict[str, Any]:
    """Return the class name and the hyperparameters of an object, nested, as JSON values that ``build`` can read.

    Arguments that concern only ``fit`` (``ARGUMENTS_OF_FIT``, such as checkpoints) are left out.

    Args:
        thing: a model, observation, encoding or other configurable object.
        by_name: if True, a function or other object that a file cannot hold is replaced by its name, from which it
            cannot be made again.

    Raises:
        NotSavableError: ``by_name`` is False and a hyperparameter is such an object.
    """
    params = thing.get_params(deep=False).items()
    instead = thing._in_place_of_code
    described = {k: _described(v, by_name=by_name, instead=instead) for k, v in params if k not in ARGUMENTS_OF_FIT}
    return {"class": name_of(type(thing)), "params": described}


def _described(value: Any, *, by_name: bool, instead: str) -> Any:
    """Return the value of a hyperparameter in a form that JSON can hold.

    Tuples, dictionaries and classes are marked so that ``build`` can tell them apart. Functions within a list are left
    out, because a file holds no code.

    Args:
        value: the value.
        by_name: True to replace a function by its name.
        instead: end of the message, which says what to pass in place of a function.

    Raises:
        NotSavableError: the value is a function, and ``by_name`` is False.
    """
    if isinstance(value, Configurable):
        return describe(value, by_name=by_name)
    if isinstance(value, dict):
        return {"dict": {key: _described(v, by_name=by_name, instead=instead) for key, v in value.items()}}
    if isinstance(value, type):
        return {"type": name_of(value)}
    if callable(value) and by_name:
        return f"<{name_of(value if isinstance(value, FunctionType) else type(value))}>"
    if callable(value):
        raise NotSavableError(
            f"a hyperparameter is {in_one_line(value):.80}, and a file cannot hold how to make one; {instead}"
        )
    if not isinstance(value, list | tuple):
        return value
    kept = [
        _described(v, by_name=by_name, instead=instead) for v in value if isinstance(v, Configurable) or not callable(v)
    ]
    return {"tuple": kept} if isinstance(value, tuple) else kept


def warn_of_classes_to_give(*things: Any) -> None:
    """Warn if what is to be saved contains classes of users, because ``load`` then needs them as its argument.

    Args:
        things: models and other objects that will be saved.

    Raises:
        ValueError: two different classes have the same name, so that ``load`` could not tell them apart.
    """
    to_give: dict[str, type] = {}
    for cls in (cls for thing in things for cls in _classes_in(thing) if "." in name_of(cls)):
        if to_give.setdefault(cls.__name__, cls) is not cls:
            raise ValueError(
                f"{name_of(cls)} and {name_of(to_give[cls.__name__])} have one name, so that a file with both could "
                "not be loaded; rename one"
            )
    if to_give:
        names = ", ".join(to_give)
        warn_caller(
            f"what is saved holds {', '.join(map(name_of, to_give.values()))}, which seqmodels does not know: load it "
            f"with seqmodels.load(path, classes=[{names}]), and a comparison with "
            f"seqmodels.evaluation.Comparison.load(folder, classes=[{names}])",
        )


def _classes_in(value: Any) -> Iterator[type]:
    if isinstance(value, type):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _classes_in(item)
    elif isinstance(value, dict):
        yield from _classes_in(list(value.values()))
    elif isinstance(value, Configurable):
        yield type(value)
        for name, inner in value.get_params(deep=False).items():
            if name not in ARGUMENTS_OF_FIT:
                yield from _classes_in(inner)


def given_classes(classes: Iterable[type]) -> dict[str, type]:
    """Return a table of users' classes, by the names under which ``build`` looks them up.

    Args:
        classes: the classes that a caller of ``load`` passes.

    Raises:
        ValueError: an entry is not a class, or two classes have the same name.
    """
    table: dict[str, type] = {}
    for cls in classes:
        if not isinstance(cls, type):
            raise ValueError(f"classes has {cls!r:.100}, which is not a class; pass a list such as [MyModel]")
        if table.setdefault(f"{GIVEN}{cls.__name__}", cls) is not cls:
            raise ValueError(f"classes has two of the name {cls.__name__!r}; rename one")
    return table


# What Python raises if content is not what a saved model has: a list in place of a dictionary, a missing name, ...
MALFORMED = (ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, RuntimeError, TypeError)


class MalformedPartError(ValueError):
    """An error raised when a part of a file's content has another form than a saved model has there.

    Attributes:
        place: names from the outermost part to the malformed one, joined by ``/``.
        why: the reason, as text.
    """

    def __init__(self, place: str, why: str) -> None:
        super().__init__(f"its {place!r} is not what a saved model has there: {why}")
        self.place, self.why = place, why


@contextmanager
def part(name: str) -> Iterator[None]:
    """Return a context manager that adds the name of a part of a file's content to errors of malformed content.

    The error is a ``MalformedPartError``. Nested blocks join their names from the outside inwards.

    Args:
        name: name of the part.
    """
    try:
        yield
    except MalformedPartError as error:
        raise MalformedPartError(f"{name}/{error.place}", error.why) from error
    except KeyError as error:
        raise MalformedPartError(name, f"there is no {error}") from error
    except MALFORMED as error:
        raise MalformedPartError(name, f"{type(error).__name__}: {error}"[:300]) from error


def part_of(content: Any, name: str, kind: type | tuple[type, ...] = dict) -> Any:
    """Return one entry of a file's content, after checking its type.

    Args:
        content: a dictionary that was read from a file.
        name: name of the entry.
        kind: the type, or types, that it must have.

    Raises:
        MalformedPartError: the content has no such entry, or the entry is not an instance of ``kind``.
    """
    if not isinstance(content, dict) or not isinstance(content.get(name), kind):
        stated = f"{content[name]!r:.100}" if isinstance(content, dict) and name in content else "not there"
        words = " or ".join(each.__name__ for each in (kind if isinstance(kind, tuple) else (kind,)))
        raise MalformedPartError(name, f"it is {stated}, and should be a {words}")
    return content[name]


def check_parts(content: Any, parts: Mapping[str, type | tuple[type, ...]]) -> None:
    """Check that a file's content has certain entries, of certain types.

    Args:
        content: a dictionary that was read from a file.
        parts: the type, or types, that each entry must have, by name.

    Raises:
        MalformedPartError: an entry is missing or has another type; the first one is named.
    """
    for name, kind in parts.items():
        part_of(content, name, kind)


def class_of_part(content: Any, name: str, classes: Mapping[str, type]) -> type[Configurable]:
    """Return the class that a part of a file's content describes, without building an object.

    Args:
        content: content of the file.
        name: name of the part.
        classes: classes of seqmodels and of the user, by name.

    Raises:
        ValueError: the description is malformed, or its class is unknown or not configurable.
    """
    description = part_of(content, name)
    with part(name):
        return _configurable_class(description, classes)


def build_part(content: Any, name: str, classes: Mapping[str, type]) -> Any:
    """Build and return the object that a part of a file's content describes.

    Args:
        content: content of the file.
        name: name of the part, which errors mention.
        classes: classes of seqmodels and of the user, by name.

    Raises:
        ValueError: the description is malformed, or a class or a hyperparameter is unknown or has a wrong value.
    """
    description = part_of(content, name)
    with part(name):
        return build(description, classes)


def build(description: Mapping[str, Any], classes: Mapping[str, type]) -> Any:
    """Build and return the object that ``describe`` described, using only classes from a given table.

    Nothing is imported by name. ``ARGUMENTS_OF_FIT``, which older versions stored, keep their defaults, because a file
    must not say where the next ``fit`` writes. Former names and former values of hyperparameters are accepted, also
    beside the group of arguments to which a hyperparameter belongs now.

    Args:
        description: the result of ``describe``.
        classes: classes of seqmodels and of the user, by name.

    Raises:
        ValueError: a class or a hyperparameter is unknown, or a value does not have the hyperparameter's type.
    """
    cls = _configurable_class(description, classes)
    kept = {k: v for k, v in part_of(description, "params").items() if k not in ARGUMENTS_OF_FIT}
    params = dict(cls._lacked)
    for key, value in kept.items():
        if had_no_effect(cls, key, value):
            continue
        with part(key):
            name = cls._renamed.get(key, key)
            owner, inner = owner_of(cls, name)
            params[name] = checked_argument(owner, inner, _built(value_now(owner, inner, value), classes))
    with part("params"):
        return cls(**in_groups(cls, params))


def value_now(cls: type[Configurable], name: str, value: Any) -> Any:
    """Return the value of a hyperparameter from a file, or what replaces it if only older versions had that value.

    Args:
        cls: the class that has the hyperparameter.
        name: its name.
        value: its value in the file.
    """
    return cls._former_values.get(name, {}).get(value, value) if isinstance(value, str) else value


def _configurable_class(description: Mapping[str, Any], classes: Mapping[str, type]) -> type[Configurable]:
    cls = _class_named(part_of(description, "class", str), classes)
    if not issubclass(cls, Configurable):
        raise ValueError(f"the file holds {a_or_an(cls)}, which has no hyperparameters")
    return cls


def _class_named(name: str, classes: Mapping[str, type]) -> type:
    bare = name.rpartition(".")[2]
    known = classes.get(name, classes.get(f"{GIVEN}{bare}"))
    if known is None and bare != name:
        raise ValueError(
            f"the file holds {a_or_an(name)}, which is not one of seqmodels' classes; pass classes=[{bare}]"
        )
    if known is None and name in FORMER_NAMES:
        raise ValueError(
            f"the file holds {a_or_an(name)}, which {FORMER_NAMES[name]}; seqmodels {LAST_TO_READ} was the last "
            "version that could read the file"
        )
    if known is None:
        raise ValueError(f"the file holds {a_or_an(name)}, which this version of seqmodels does not know")
    return known


def _built(value: Any, classes: Mapping[str, type]) -> Any:
    if isinstance(value, list):
        return [_built(v, classes) for v in value]
    if not isinstance(value, dict):
        return value
    if "tuple" in value:
        return tuple(_built(v, classes) for v in value["tuple"])
    if "dict" in value:
        return {key: _built(v, classes) for key, v in value["dict"].items()}
    return _class_named(value["type"], classes) if "type" in value else build(value, classes)
