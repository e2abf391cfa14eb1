"""Training through ``torch.compile``."""

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
    """Raise ``ValueError`` for an unknown mode, and where there is no C++ compiler to compile with."""
    if how not in CHOICES:
        raise ValueError(f"compile is {how!r}; pass one of {', '.join(map(repr, CHOICES))}")
    if how and shutil.which(_compiler()) is None:
        raise ValueError(
            f"compile={how!r} needs a C++ compiler, but there is no {_compiler()!r} on the path; install one, name one "
            "in the environment variable CXX, or pass compile=False"
        )


def compiled(function: Function, how: Compile) -> Function:
    """The function itself, or compiled with dynamic shapes.

    With fixed shapes the first shorter batch would be compiled for anew, which takes longer than fixed shapes save.
    """
    if not how:
        return function
    return cast(Function, torch.compile(function, dynamic=True, mode=None if how is True else how))


def _compiler() -> str:
    """The one that ``torch.compile`` calls."""
    return os.environ.get("CXX", "clang++" if sys.platform == "darwin" else "g++")
