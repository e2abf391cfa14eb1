"""Progress bars on standard error, shown on request, or after three seconds if a person is watching."""

from __future__ import annotations

import multiprocessing
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Literal, Self

from tqdm.auto import tqdm

Verbose = bool | Literal["auto"]
AFTER = 3.0  # seconds after which a bar of ``verbose="auto"`` appears
FORMAT = "{l_bar}{bar}| {elapsed}<{remaining} {postfix}"


class ProgressBar:
    """A progress bar of one piece of work, shown on standard error.

    Within the work of another bar, ``verbose="auto"`` shows no second bar and writes its progress into the outer one.

    Args:
        total: the progress, as passed to ``move``, at which the work is done.
        verbose: True shows a bar at once and leaves it there. False shows none, nor a bar of work within. ``"auto"``
            shows one after ``AFTER`` seconds, only in a terminal or a notebook, and removes it at the end.
        name: a word or two that say what the work is.
    """

    def __init__(self, total: float, verbose: Verbose, name: str) -> None:
        self.name, self.total = name, total
        self._outer = _outermost() if verbose == "auto" else None
        self._bar: tqdm[Any] | None = None
        if verbose is True:
            self._bar = tqdm(total=total, desc=name, bar_format=FORMAT)
        elif self._outer is None and verbose == "auto" and is_watched():
            self._bar = tqdm(total=total, desc=name, bar_format=FORMAT, delay=AFTER, leave=False, miniters=0)
        if _outermost() is None and threading.current_thread() is threading.main_thread():
            _OPEN.append(weakref.ref(self))

    def move(self, to: float, text: str = "") -> None:
        """Set the progress of the bar, and show a text beside it.

        Args:
            to: progress so far, out of the bar's ``total``.
            text: the text.
        """
        if self._outer is not None:
            self._outer._say(f"{self.name} {100 * min(1.0, to / max(self.total, 1e-9)):.0f} % {text}")
        elif self._bar is not None:
            self._bar.set_postfix_str(text, refresh=False)
            self._bar.update(min(to, self.total) - self._bar.n)

    def _say(self, text: str) -> None:
        if self._bar is not None:
            self._bar.set_postfix_str(text, refresh=False)
            self._bar.update(0)  # it redraws the bar at most ten times a second

    def close(self) -> None:
        """End the bar and remove it from the screen, unless ``verbose`` is True; calling it again does nothing."""
        if self._bar is not None:
            self._bar.close()
        _OPEN[:] = [each for each in _OPEN if each() not in (None, self)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


@contextmanager
def silent_if(verbose: Verbose) -> Iterator[None]:
    """Return a context manager that hides progress bars of ``verbose="auto"`` in its block if ``verbose`` is False.

    Otherwise it does nothing.
    """
    if verbose is not False:
        yield
        return
    with ProgressBar(1, verbose, ""):
        yield


# The outermost bar of the main thread, if there is one. A weak reference, so that a bar that was not closed is dropped.
_OPEN: list[weakref.ref[ProgressBar]] = []


def _outermost() -> ProgressBar | None:
    if threading.current_thread() is not threading.main_thread():
        return None
    return next((bar for bar in (each() for each in _OPEN) if bar is not None), None)


def is_watched() -> bool:
    """Return True if a person may see standard error: a terminal or a notebook, in the main thread and process."""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or multiprocessing.current_process().name != "MainProcess":
        return False
    shell = sys.modules.get("IPython")
    in_notebook = shell is not None and getattr(shell.get_ipython(), "kernel", None) is not None
    return in_notebook or bool(sys.stderr is not None and sys.stderr.isatty())
