"""Anything that hyperparameters describe as a TOML table, and back: ``{class = "HMM", n_states = 8}``."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from seqmodels import storage
from seqmodels.loading import CLASSES
from seqmodels.parameters import Configurable, check_argument

NONE = {"none": True}
NOTHING: tuple[Any, ...] = (None, {"tuple": []})


def to_table(thing: Configurable, classes: Mapping[str, type[Configurable]] = CLASSES) -> dict[str, Any]:
    """Its class and every hyperparameter, but for nothing by default: None (for which TOML has no word) and ``()``."""
    return dict(_flat(storage.describe(thing), classes))


def from_table(table: Mapping[str, Any], classes: Mapping[str, type[Configurable]] = CLASSES) -> Any:
    """What ``to_table`` described; hyperparameters that are not there have their defaults.

    Raises:
        ValueError: no ``class`` or an unknown one, a name that the class does not have, or a value of another type.
    """
    if "class" not in table:
        raise ValueError(f'a table has no class: {dict(table)}; write for example class = "HMM"')
    name = table["class"]
    if name not in classes:
        raise ValueError(f"there is no class {name!r}; choose from {', '.join(sorted(classes))}")
    params = {k: _built(v, classes) for k, v in table.items() if k != "class"}
    for key, value in params.items():
        check_argument(classes[name], key, value)
    return classes[name](**params)


def _flat(value: Any, classes: Mapping[str, type[Configurable]]) -> Any:
    if isinstance(value, list):
        return [_flat(each, classes) for each in value]
    if not isinstance(value, dict):
        return value
    if "tuple" in value:
        return {"tuple": _flat(value["tuple"], classes)}
    defaults = inspect.signature(classes[value["class"]]).parameters
    kept = {k: v for k, v in value["params"].items() if not (v in NOTHING and defaults[k].default in (None, ()))}
    return {"class": value["class"], **{k: _flat(v, classes) for k, v in kept.items()}}


def _built(value: Any, classes: Mapping[str, type[Configurable]]) -> Any:
    if isinstance(value, list):
        return [_built(each, classes) for each in value]
    if not isinstance(value, dict):
        return value
    if value == NONE:
        return None
    return tuple(_built(value["tuple"], classes)) if "tuple" in value else from_table(value, classes)
