"""What all commands have in common: exit codes, one-line errors, warnings in a line, JSON and nothing else on stdout."""

from __future__ import annotations

import json
import math
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import typer

FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130
CODES = "Exit codes: 0 done; 1 a model failed; 2 bad input, said in one line; 130 interrupted."

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar and no warnings.")]
Json = Annotated[bool, typer.Option("--json", help="The result as JSON on stdout, and nothing else there.")]


@dataclass(frozen=True)
class Console:
    """Where a command's words go.

    Args:
        json: the result goes to stdout as JSON; what is meant for people goes to stderr.
        quiet: no progress, no warnings.
    """

    json: bool = False
    quiet: bool = False

    def say(self, text: str) -> None:
        """For people."""
        typer.echo(text, err=self.json)

    def result(self, value: Any, text: str) -> None:
        """What was asked for, in either form."""
        typer.echo(json.dumps(plain(value), allow_nan=False) if self.json else text)

    @property
    def shows_progress(self) -> bool:
        return not self.quiet and sys.stderr.isatty()

    @contextmanager
    def errors(self, code: int = BAD_INPUT) -> Iterator[None]:
        """Errors within end the command with one line on stderr and this exit code."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore" if self.quiet else "once")
            warnings.showwarning = _in_a_line
            try:
                yield
            except KeyboardInterrupt:
                raise _ended("interrupted", INTERRUPTED) from None
            except (ValueError, ImportError, OSError) as error:
                raise _ended(str(error), code) from None
            except (RuntimeError, ArithmeticError, MemoryError) as error:
                if isinstance(error, typer.Exit):
                    raise
                raise _ended(f"{type(error).__name__}: {error}", FAILED) from None


def plain(value: Any) -> Any:
    """As JSON allows: keys are strings, and a figure that is not there is null."""
    if isinstance(value, dict):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _ended(text: str, code: int) -> typer.Exit:
    typer.echo(f"seqmodels: {' '.join(text.split())}", err=True)
    return typer.Exit(code)


def _in_a_line(message: Warning | str, *_: Any, **__: Any) -> None:
    typer.echo(f"seqmodels: warning: {' '.join(str(message).split())}", err=True)
