"""Output that all commands share: exit codes, errors and warnings of one line, and JSON alone on stdout."""

from __future__ import annotations

import json
import math
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

import typer

from seqmodels.common.progress import silent_if

FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130
CODES = "Exit codes: 0 done; 1 a model failed; 2 bad input, explained in one line; 130 interrupted."

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress bar and no warnings.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout, and nothing else there.")]


@dataclass(frozen=True)
class Console:
    """The output of a command: its results, warnings and errors.

    Args:
        json: True to print the result as JSON on stdout and text for people on stderr.
        quiet: True to show neither progress nor warnings.
    """

    json: bool = False
    quiet: bool = False

    def say(self, text: str) -> None:
        """Print a text for people: on stdout, or on stderr if stdout is for JSON."""
        typer.echo(text, err=self.json)

    def result(self, value: Any, text: str) -> None:
        """Print the result of a command, as JSON if the user asked for it, otherwise as text.

        Args:
            value: the result for JSON; NaN and infinities become null.
            text: the result for people.
        """
        typer.echo(json.dumps(as_plain(value), allow_nan=False) if self.json else text)

    @property
    def shows_progress(self) -> bool:
        """True if progress bars are shown: stderr is a terminal and ``quiet`` is False."""
        return not self.quiet and sys.stderr.isatty()

    @contextmanager
    def errors(self, code: int = BAD_INPUT) -> Iterator[None]:
        """Return a context manager that ends the command with one line on stderr if its block raises an error.

        Warnings are printed in one line each, or not at all if ``quiet``.

        Args:
            code: exit code for errors of input; running out of memory and errors of computation always have ``FAILED``.
        """
        with warnings.catch_warnings(), silent_if(False if self.quiet else "auto"):
            warnings.simplefilter("ignore" if self.quiet else "once")
            warnings.showwarning = _warn_in_one_line
            try:
                yield
            except KeyboardInterrupt:
                raise _exit("interrupted", INTERRUPTED) from None
            except (ValueError, ImportError, OSError) as error:
                raise _exit(str(error), code) from None
            except MemoryError:
                raise _exit("there is not enough memory; pass less data or a smaller model", FAILED) from None
            except (RuntimeError, ArithmeticError) as error:
                if isinstance(error, typer.Exit):
                    raise
                raise _exit(f"{type(error).__name__}: {error}", FAILED) from None


def as_plain(value: Any) -> Any:
    """Return a value in the form that JSON allows.

    Keys become strings, arrays lists and dates texts in ISO 8601; NaN, infinities and missing dates become null.
    """
    import numpy as np

    if isinstance(value, dict):
        return {str(key): as_plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [as_plain(each) for each in value]
    if isinstance(value, np.ndarray | np.generic):
        return as_plain(value.tolist())
    if isinstance(value, datetime):  # a missing date of pandas is a datetime too, and does not equal itself
        return value.isoformat() if value == value else None
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _exit(text: str, code: int) -> typer.Exit:
    typer.echo(f"seqmodels: {' '.join(text.split())}", err=True)
    return typer.Exit(code)


def _warn_in_one_line(message: Warning | str, *_: Any, **__: Any) -> None:
    typer.echo(f"seqmodels: warning: {' '.join(str(message).split())}", err=True)
