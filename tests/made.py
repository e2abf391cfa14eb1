"""Models whose options may be those of a group, as ``made(LSTM, architecture__layer_norm=True)``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from seqmodels.common.parameters import argument_groups


def made(make: Callable[..., Any], /, *args: Any, **options: Any) -> Any:
    """What a class or its ``from_parameters`` makes, with options of its groups put in them."""
    groups = argument_groups(getattr(make, "__self__", make))
    direct, grouped = dict[str, Any](), dict[str, dict[str, Any]]()
    for name, value in options.items():
        group, _, inner = name.partition("__")
        if inner and group in groups:
            grouped.setdefault(group, {})[inner] = value
        else:
            direct[name] = value
    return make(*args, **direct, **{group: groups[group](**of) for group, of in grouped.items()})
