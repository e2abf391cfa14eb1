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
                if isinstance(value, Configurable):
                    params.update({f"{name}__{inner}": v for inner, v in value.get_params().items()})
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
            nested = getattr(self, outer)
            if not isinstance(nested, Configurable):
                raise ValueError(f"{outer!r} is {nested!r}, which has no parameters of its own to set")
            setattr(self, outer, nested.clone().set_params(**{inner: value}))
        return self

    def clone(self) -> Self:
        """An unfitted copy with the same hyperparameters."""
        params = self.get_params(deep=False)
        return type(self)(**{k: v.clone() if isinstance(v, Configurable) else v for k, v in params.items()})

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self)).parameters
        params = self.get_params(deep=False).items()
        shown = [f"{name}={value!r}" for name, value in params if not _same(value, defaults[name].default)]
        return f"{type(self).__name__}({', '.join(shown)})"


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
