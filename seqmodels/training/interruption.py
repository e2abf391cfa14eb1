"""Ctrl-C and SIGTERM while a model is fitted: the first ends training and keeps what is best so far, a second Ctrl-C ends at once.

A signal is held back once training has something to keep; before that it acts as it would without this module. Only handlers that are
Python's own are replaced, only in the main thread and only during ``fit``: a program that handles signals itself goes on doing so.
"""

from __future__ import annotations

import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pandas as pd

from seqmodels import distributed

DEFAULTS: dict[signal.Signals, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
}
COLUMN = "interrupted"  # of the history: 1 in the last line of a fit that a signal ended, and absent elsewhere


class Interruption:
    """What a training loop asks after every step: whether a signal has come."""

    def __init__(self, *, may_hold: bool) -> None:
        self.signal: signal.Signals | None = None
        self._may_hold = may_hold
        self._replaced: list[signal.Signals] = []

    @property
    def asked(self) -> bool:
        """Whether training is to end; in several processes at the same step in all, whichever of them was sent a signal."""
        return distributed.stop_agreed() or (self.signal is not None and not distributed.several())

    def hold(self) -> None:
        """From here on there is something to keep: the first signal is noted rather than raised."""
        if self._replaced or not self._may_hold:
            return
        for number, default in DEFAULTS.items():
            if signal.getsignal(number) is default:
                signal.signal(number, self._note)
                self._replaced.append(number)

    def release(self) -> None:
        """Put back the handlers there were."""
        for number in self._replaced:
            signal.signal(number, DEFAULTS[number])
        self._replaced = []

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal = signal.Signals(number)
        distributed.ask_to_stop()


_current: Interruption | None = None  # of the main thread, where alone signals arrive


@contextmanager
def interruptible() -> Iterator[Interruption]:
    """Within, signals can be held back; a fit inside another one shares its ``Interruption``."""
    global _current
    if threading.current_thread() is not threading.main_thread():
        yield Interruption(may_hold=False)
        return
    if _current is not None:
        yield _current
        return
    distributed.begin_anew()
    _current = Interruption(may_hold=True)
    try:
        yield _current
    finally:
        _current.release()
        _current = None


def marked(history: pd.DataFrame) -> pd.DataFrame:
    """The history of a fit that a signal ended."""
    return history.assign(**{COLUMN: [0.0] * (len(history) - 1) + [1.0] * (len(history) > 0)})


def was_interrupted(history: pd.DataFrame) -> bool:
    """Whether it is the history of a fit that a signal ended."""
    return COLUMN in history and bool(history[COLUMN].iloc[-1])


def tell(by: signal.Signals, seconds: float, checkpoint: Any, *, stacklevel: int) -> None:
    """Warn that ``fit`` was cut short.

    Raises:
        KeyboardInterrupt: the fit is one of several that scikit-learn makes, all of which are to end.
    """
    if _among_fits_of_sklearn():
        raise KeyboardInterrupt
    on = (
        f"resume_from={str(checkpoint)!r} goes on from where it stood"
        if checkpoint is not None
        else "with checkpoint='run.ckpt' it could be gone on with"
    )
    warnings.warn(
        f"{by.name} ended fit after {seconds:.1f} s: the model keeps the best that training had found, interrupted_ is True, and "
        f"{on}",
        UserWarning,
        stacklevel=stacklevel + 1,
    )


def _among_fits_of_sklearn() -> bool:
    """Whether ``cross_val_score``, ``GridSearchCV`` or the like called: they know nothing of ``interrupted_``."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).startswith("sklearn.model_selection"):
            return True
        frame = frame.f_back
    return False
