"""Hyperparameters: stored untouched by the constructor, read and set by name, nested with ``__``."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self


class Configurable:
    """Something described by the arguments of its constructor (scikit-learn's convention).

    A subclass takes its hyperparameters in ``__init__`` and stores each under its own name. Models,
    observations and encodings are all configurable, so ``observation__n_components`` reaches inside.
    """

    @classmethod
    def _parameter_names(cls) -> list[str]:
        return [name for name in inspect.signature(cls).parameters]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Hyperparameters by name; with ``deep`` also those of nested configurables, as ``outer__inner``."""
        params: dict[str, Any] = {name: getattr(self, name) for name in self._parameter_names()}
        if deep:
            for name, value in list(params.items()):
                for path, nested in _nested(name, value):
                    params.update({f"{path}__{inner}": v for inner, v in nested.get_params().items()})
        return params

    def set_params(self, **params: Any) -> Self:
        """Set hyperparameters by name; raises ``ValueError`` for a name that does not exist."""
        known = self._parameter_names()
        for name, value in params.items():
            outer, _, inner = name.partition("__")
            if outer not in known:
                raise ValueError(f"{type(self).__name__} has no parameter {outer!r}; it has {', '.join(known)}")
            if not inner:
                setattr(self, outer, value)
                continue
            setattr(self, outer, _with(getattr(self, outer), outer, inner, value))
        return self

    def clone(self) -> Self:
        """An unfitted copy with the same hyperparameters."""
        params = self.get_params(deep=False)
        return type(self)(**{k: _cloned(v) for k, v in params.items()})

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self)).parameters
        params = self.get_params(deep=False).items()
        shown = [f"{name}={value!r}" for name, value in params if not _same(value, defaults[name].default)]
        return f"{type(self).__name__}({', '.join(shown)})"


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
    """Give back the attributes that ``thing`` had before, if what is done within raises."""
    before = dict(vars(thing))
    try:
        yield
    except BaseException:
        thing.__dict__ = before
        raise


def _same(value: Any, default: Any) -> bool:
    return value is default or (type(value) is type(default) and repr(value) == repr(default))
