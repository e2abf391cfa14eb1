"""Training by code that is made for one network: ``torch.compile``."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from typing import Any, Literal, TypeVar, cast

import torch

Compile = bool | Literal["reduce-overhead", "max-autotune"]
CHOICES: tuple[Compile, ...] = (False, True, "reduce-overhead", "max-autotune")
Function = TypeVar("Function", bound=Callable[..., Any])


def check_compile(how: object) -> None:
    """Raises ``ValueError`` for what is no ``Compile``, and where nothing can be compiled for want of a C++ compiler."""
    if how not in CHOICES:
        raise ValueError(f"compile is {how!r}; pass one of {', '.join(map(repr, CHOICES))}")
    if how and shutil.which(_compiler()) is None:
        raise ValueError(
            f"compile={how!r} needs a C++ compiler, but there is no {_compiler()!r} on the path; install one, name one in "
            "the environment variable CXX, or pass compile=False"
        )


def compiled(function: Function, how: Compile) -> Function:
    """The function, or what ``torch.compile`` makes of it once for all sizes of arrays but one.

    Were sizes fixed, the first batch that is shorter would be compiled for anew, which takes longer than fixed sizes save.
    """
    if not how:
        return function
    return cast(Function, torch.compile(function, dynamic=True, mode=None if how is True else how))


def _compiler() -> str:
    """The one that ``torch.compile`` calls."""
    return os.environ.get("CXX", "clang++" if sys.platform == "darwin" else "g++")
