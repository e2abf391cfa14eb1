"""Progress bars on standard error: where they are asked for, or after three seconds where a person looks on."""

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
    """A bar of one piece of work; within another's work, ``verbose="auto"`` says in the other's bar how far it is.

    Args:
        total: of what ``move`` counts.
        verbose: True: a bar at once, which stays; False: none, nor of what is done within; ``"auto"``: one after
            ``AFTER`` seconds that goes when it is done, in a terminal or a notebook alone.
        name: what is done, in a word or two.
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
        """Say that so much of the total is done, and ``text`` beside it."""
        if self._outer is not None:
            self._outer._say(f"{self.name} {100 * min(1.0, to / max(self.total, 1e-9)):.0f} % {text}")
        elif self._bar is not None:
            self._bar.set_postfix_str(text, refresh=False)
            self._bar.update(min(to, self.total) - self._bar.n)

    def _say(self, text: str) -> None:
        if self._bar is not None:
            self._bar.set_postfix_str(text, refresh=False)
            self._bar.update(0)  # which draws it anew, but not more often than ten times a second

    def close(self) -> None:
        """End the bar; calling it again does nothing."""
        if self._bar is not None:
            self._bar.close()
        _OPEN[:] = [each for each in _OPEN if each() not in (None, self)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


@contextmanager
def silent_if(verbose: Verbose) -> Iterator[None]:
    """Context in which nothing of ``verbose="auto"`` shows a bar, if ``verbose`` is False."""
    if verbose is not False:
        yield
        return
    with ProgressBar(1, verbose, ""):
        yield


_OPEN: list[weakref.ref[ProgressBar]] = []  # the outermost of the main thread, if any; one that was left is forgotten


def _outermost() -> ProgressBar | None:
    if threading.current_thread() is not threading.main_thread():
        return None
    return next((bar for bar in (each() for each in _OPEN) if bar is not None), None)


def is_watched() -> bool:
    """Whether a person sees standard error: in a terminal or a notebook, from the main thread of the main process."""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or multiprocessing.current_process().name != "MainProcess":
        return False
    shell = sys.modules.get("IPython")
    in_notebook = shell is not None and getattr(shell.get_ipython(), "kernel", None) is not None
    return in_notebook or bool(sys.stderr is not None and sys.stderr.isatty())
