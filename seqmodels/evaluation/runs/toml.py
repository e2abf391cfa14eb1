"""Write objects with hyperparameters as TOML tables, ``{class = "HMM", n_states = 8}``, and read them back.

Tables are formatted here because the standard library's ``tomllib`` reads TOML but does not write it.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from seqmodels.common import storage
from seqmodels.common.display import a_or_an
from seqmodels.common.former_names import FORMER_NAMES
from seqmodels.common.parameters import Configurable, check_argument, had_no_effect, in_groups, owner_of
from seqmodels.loading import CLASSES, PUBLIC

NONE = {"none": True}
EMPTY: tuple[Any, ...] = (None, {"tuple": []})
BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def to_table(configurable: Configurable, classes: Mapping[str, type[Configurable]] = CLASSES) -> dict[str, Any]:
    """Describe an object as a dictionary of its class and its hyperparameters, to be written as a TOML table.

    A hyperparameter that is None, which TOML lacks, or ``()`` is left out if that is its default.

    Args:
        configurable: the object, such as a model, an encoding or a data set.
        classes: the classes of nested objects by name.
    """
    return dict(_nested_table(storage.describe(configurable), classes))


def from_table(table: Mapping[str, Any], classes: Mapping[str, type[Configurable]] = CLASSES) -> Any:
    """Build the object that ``to_table`` described.

    Args:
        table: its ``class`` and its hyperparameters by name; those that are missing have their defaults.
        classes: the allowed classes by name.

    Raises:
        ValueError: the table has no ``class`` or an unknown one, a name that the class does not have, or a value of a
            wrong type.
    """
    if "class" not in table:
        raise ValueError(f'a table has no class: {dict(table)}; write for example class = "HMM"')
    name = table["class"]
    if name in FORMER_NAMES and name not in classes:
        raise ValueError(f"{name} {FORMER_NAMES[name]}")
    if name not in classes:
        raise ValueError(f"there is no class {name!r}; choose from {', '.join(sorted(classes))}")
    said = {k: v for k, v in table.items() if k != "class" and not had_no_effect(classes[name], k, v)}
    named = {k: storage.value_now(*owner_of(classes[name], k), v) for k, v in said.items()}
    params = {k: _parsed_value(v, classes) for k, v in named.items()}
    for key, value in params.items():
        check_argument(*owner_of(classes[name], key), value)
    return classes[name](**in_groups(classes[name], params))


def _nested_table(value: Any, classes: Mapping[str, type[Configurable]]) -> Any:
    if isinstance(value, list):
        return [_nested_table(each, classes) for each in value]
    if not isinstance(value, dict):
        return value
    if "tuple" in value:
        return {"tuple": _nested_table(value["tuple"], classes)}
    if "dict" in value:
        return {"dict": {k: _nested_table(v, classes) for k, v in value["dict"].items()}}
    if "type" in value:
        return value
    defaults = inspect.signature(classes[value["class"]]).parameters
    kept = {k: v for k, v in value["params"].items() if not (v in EMPTY and defaults[k].default in (None, ()))}
    return {"class": value["class"], **{k: _nested_table(v, classes) for k, v in kept.items()}}


def _parsed_value(value: Any, classes: Mapping[str, type[Configurable]]) -> Any:
    if isinstance(value, list):
        return [_parsed_value(each, classes) for each in value]
    if not isinstance(value, dict):
        return value
    if value == NONE:
        return None
    if "tuple" in value:
        return tuple(_parsed_value(value["tuple"], classes))
    if "dict" in value:
        return {k: _parsed_value(v, classes) for k, v in value["dict"].items()}
    return _public_class(value["type"]) if "type" in value else from_table(value, classes)


def _public_class(name: Any) -> type:
    """Return the class of a hyperparameter whose value is itself a class, such as the cell of ``Recurrent``.

    Args:
        name: name of the class.

    Raises:
        ValueError: it is no public class of ``seqmodels``.
    """
    if not isinstance(name, str) or name not in PUBLIC:
        raise ValueError(f"there is no class {name!r} in seqmodels; pass a class of your own in Python")
    return PUBLIC[name]


# -- tables as text -------------------------------------------------------------------------------------------


def dumps(table: Mapping[str, Any]) -> str:
    """Return nested tables as TOML text.

    A table within another that has a ``class`` is inline; None is ``{none = true}``.

    Raises:
        TypeError: a value has a type that TOML lacks (the message names it).

    >>> print(dumps({"seed": 1, "models": {"hmm": {"class": "HMM", "observation": {"class": "Poisson"}}}}), end="")
    seed = 1
    <BLANKLINE>
    [models.hmm]
    class = "HMM"
    observation = {class = "Poisson"}
    """
    return "\n".join(_lines(table, ())).lstrip("\n") + "\n"


def _lines(table: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    tables = {k: v for k, v in table.items() if isinstance(v, Mapping) and "class" not in table}
    values = {k: v for k, v in table.items() if k not in tables}
    if path and (values or not tables):
        yield ""
        yield f"[{'.'.join(map(_key, path))}]"
    yield from (f"{_key(key)} = {inline(value)}" for key, value in values.items())
    for key, value in tables.items():
        yield from _lines(value, (*path, key))


def _key(name: str) -> str:
    return name if BARE_KEY.fullmatch(name) else _string(name)


def _string(text: str) -> str:
    # JSON's escapes are TOML's, except for the one control character that JSON leaves as it is.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def inline(value: Any) -> str:
    """Return one value as TOML text that fits within a line.

    Args:
        value: None, a number, a text, a path, an array, or a list or mapping of these.

    Raises:
        TypeError: TOML lacks the type of the value.
    """
    if value is None:
        return "{none = true}"
    if isinstance(value, np.ndarray | np.generic):
        return inline(value.tolist())
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str | Path):
        return _string(str(value))
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(k)} = {inline(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(inline, value)) + "]"
    raise TypeError(f"TOML cannot hold {value!r}, {a_or_an(type(value))}; pass text, numbers, lists or tables")
