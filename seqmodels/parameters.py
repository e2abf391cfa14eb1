"""Hyperparameters: stored untouched by the constructor, read and set by name, nested with ``__``.

Values that come from a file or a command line are checked by the annotations of the constructor's arguments.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING
from functools import cache
from types import UnionType
from typing import Any, ClassVar, Literal, Self, Union, get_args, get_origin, get_type_hints

import numpy as np

LISTS = (list, tuple, np.ndarray)
LARGEST_EXACT = 2**53  # integers up to which a float is one exactly
MAX_SHOWN = 200  # characters of a value in an error


class Configurable:
    """Something described by the arguments of its constructor (scikit-learn's convention).

    A subclass takes its hyperparameters in ``__init__`` and stores each under its own name. Models, observations and
    encodings are all configurable, so ``observation__n_components`` is a parameter of a model.
    """

    _renamed: ClassVar[Mapping[str, str]] = {}  # names that hyperparameters have in older files -> names they have now

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Hyperparameters by name; with ``deep`` also those of nested configurables, as ``outer__inner``."""
        names = argument_names(type(self))  # type: ignore[arg-type]
        params: dict[str, Any] = {name: getattr(self, name) for name in names}
        if deep:
            for name, value in list(params.items()):
                for path, nested in _nested(name, value):
                    params.update({f"{path}__{inner}": v for inner, v in nested.get_params().items()})
        return params

    def set_params(self, **params: Any) -> Self:
        """Set hyperparameters by name; raises ``ValueError`` for a name that does not exist."""
        known = argument_names(type(self))  # type: ignore[arg-type]
        for name, value in params.items():
            outer, _, inner = name.partition("__")
            if outer not in known:
                raise ValueError(f"{type(self).__name__} has no parameter {outer!r}; it has {', '.join(known)}")
            if not inner:
                setattr(self, outer, value)
                continue
            setattr(self, outer, _with(self._value_with(outer, inner.partition("__")[0]), outer, inner, value))
        return self

    def _value_with(self, name: str, inner: str) -> Any:
        """The value of a hyperparameter whose own parameter ``inner`` is named.

        To be defined by a class of which a hyperparameter may be a word, such as ``"auto"``, that stands for something
        with parameters.
        """
        return getattr(self, name)

    def clone(self) -> Self:
        """An unfitted copy with the same hyperparameters."""
        params = self.get_params(deep=False)
        return type(self)(**{k: _cloned(v) for k, v in params.items()})

    def __repr__(self) -> str:
        defaults = {name: p.default for name, p in inspect.signature(type(self)).parameters.items()}
        for field in getattr(self, "__dataclass_fields__", {}).values():
            if field.default_factory is not MISSING:
                defaults[field.name] = field.default_factory()
        params = self.get_params(deep=False).items()
        changed = [f"{name}={value!r}" for name, value in params if not _same(value, defaults[name])]
        return f"{type(self).__name__}({', '.join(changed)})"


def _cloned(value: Any) -> Any:
    if isinstance(value, Configurable):
        return value.clone()
    return type(value)(map(_cloned, value)) if type(value) in (list, tuple) else value


def _nested(path: str, value: Any) -> Iterator[tuple[str, Configurable]]:
    """The configurables in a value: itself, or those in a list, by position: ``groups__0``."""
    if isinstance(value, Configurable):
        yield path, value
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from _nested(f"{path}__{i}", item[0] if type(item) is tuple else item)


def _with(value: Any, name: str, inner: str, new: Any) -> Any:
    """A copy of a nested value in which one parameter, ``inner``, is ``new``."""
    if isinstance(value, Configurable):
        return value.clone().set_params(**{inner: new})
    number, _, rest = inner.partition("__")
    if not (isinstance(value, list) and number.isdigit() and int(number) < len(value) and rest):
        raise ValueError(f"{name!r} is {value!r}, which has no parameters of its own to set")
    copy = list(value)
    item = copy[int(number)]
    head = item[0] if type(item) is tuple else item
    changed = _with(head, f"{name}__{number}", rest, new)
    copy[int(number)] = (changed, *item[1:]) if type(item) is tuple else changed
    return copy


@contextmanager
def undone_on_failure(thing: Configurable) -> Iterator[None]:
    """Within the context, if an exception is raised, ``thing`` gets back the attributes that it had before."""
    attributes = dict(vars(thing))
    try:
        yield
    except BaseException:
        thing.__dict__ = attributes
        raise


def _same(value: Any, default: Any) -> bool:
    return value is default or (type(value) is type(default) and repr(value) == repr(default))


# -- by annotation -----------------------------------------------------------------------------------------


@cache
def argument_names(cls: type) -> tuple[str, ...]:
    """The names of the constructor's arguments, in order."""
    return tuple(inspect.signature(cls).parameters)


@cache
def argument_types(cls: type) -> dict[str, Any]:
    """The annotations of the constructor's arguments."""
    return {**get_type_hints(cls), **_types_of_constructor(cls)}


def _types_of_constructor(cls: Any) -> dict[str, Any]:
    """Of a constructor that is not a dataclass's: those cannot be resolved, but the annotations of their fields can."""
    owner = next(base for base in cls.__mro__ if "__init__" in vars(base))
    return {} if "__dataclass_fields__" in vars(owner) else get_type_hints(owner.__init__)


def check_argument(cls: type, name: str, value: Any, *, any_number: bool = False) -> None:
    """Raise ``ValueError`` unless ``cls`` is constructed with an argument ``name`` whose annotation admits ``value``.

    ``any_number``: or the same number as another type, for what is called takes 1 or 2 for True and 3.0 for 3.
    """
    known = argument_names(cls)
    if name not in known:
        raise ValueError(f"{cls.__name__} has no parameter {name!r}; it has {', '.join(known)}")
    hint = argument_types(cls).get(name, Any)
    if not (admits(hint, value) or (any_number and any(admits(hint, number) for number in _same_number(value)))):
        raise ValueError(f"{name} of {cls.__name__} is {_shortened(value)}; pass {in_words(hint)}")


def _same_number(value: Any) -> list[bool | int | float]:
    if not isinstance(value, bool | int | float) or not abs(value) <= LARGEST_EXACT:
        return []
    integers = [int(value), bool(value)] if value == int(value) else []
    return [*integers, float(value)]


def _shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) < MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


def admits(hint: Any, value: Any) -> bool:
    """Whether an annotation admits a value; lists stand for tuples, sequences and arrays, integers for floats."""
    origin = get_origin(hint)
    if hint is Any:
        return True
    if origin in (Union, UnionType):
        return any(admits(option, value) for option in get_args(hint))
    if origin is Literal:
        return any(type(value) is type(choice) and value == choice for choice in get_args(hint))
    if hint is None or hint is type(None):
        return value is None
    if hint in (int, float):
        return isinstance(value, int if hint is int else int | float) and not isinstance(value, bool)
    kind = origin or hint
    if not isinstance(kind, type):
        return True  # a Protocol or a name that says nothing of its values
    return isinstance(value, LISTS) if kind is np.ndarray else isinstance(value, kind) or _is_list(kind, value)


def _is_list(kind: type, value: Any) -> bool:
    return isinstance(value, LISTS) and (kind in LISTS or issubclass(list, kind))


def in_words(hint: Any) -> str:
    """An annotation for people.

    >>> in_words(int | Literal["auto"] | None)
    'an integer, "auto" or none'
    """
    options = [_word(option) for option in (get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,))]
    return options[0] if len(options) == 1 else f"{', '.join(options[:-1])} or {options[-1]}"


def _word(hint: Any) -> str:
    words = {int: "an integer", float: "a number", str: "a word", bool: "true or false", type(None): "none"}
    if get_origin(hint) is Literal:
        return ", ".join(f'"{choice}"' for choice in get_args(hint))
    if hint in words:
        return words[hint]
    name = getattr(get_origin(hint) or hint, "__name__", str(hint))
    return "a list" if name in ("Sequence", "list", "tuple", "ndarray") else f"a {name}"
