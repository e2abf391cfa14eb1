"""Ctrl-C and SIGTERM during ``fit``, which end training and keep the best model so far.

A second Ctrl-C ends at once. A signal is held back only once training has something to keep; before that it acts as
usual. Only Python's own handlers are replaced, only in the main thread and only during ``fit``, so that a program that
handles signals itself is not disturbed.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

from seqmodels.common import distributed
from seqmodels.common.caller_warnings import warn_caller

if TYPE_CHECKING:
    import pandas as pd

DEFAULTS: dict[signal.Signals, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
}
COLUMN = "interrupted"  # column of the history with 1 in the last row if a signal ended the fit, else absent


class Interruption:
    """The record of Ctrl-C and SIGTERM, which a training loop reads after every step to end early.

    Args:
        may_hold: True if signals may be held back, which only the main thread can do.
    """

    def __init__(self, *, may_hold: bool) -> None:
        self.signal: signal.Signals | None = None
        self._may_hold = may_hold
        self._replaced: list[signal.Signals] = []

    @property
    def requested(self) -> bool:
        """True if training is to end because of Ctrl-C or SIGTERM.

        With several processes it becomes true in all of them at the same step.
        """
        return distributed.stop_agreed() or (self.signal is not None and not distributed.is_distributed())

    def hold(self) -> None:
        """Hold back signals from now on: the first Ctrl-C or SIGTERM sets ``requested`` instead of raising an error.

        A loop calls this once it has a result to keep.
        """
        if self._replaced or not self._may_hold:
            return
        for number, default in DEFAULTS.items():
            if signal.getsignal(number) is default:
                signal.signal(number, self._note)
                self._replaced.append(number)

    def release(self) -> None:
        """Restore the signal handlers that ``hold`` replaced."""
        for number in self._replaced:
            signal.signal(number, DEFAULTS[number])
        self._replaced = []

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal = signal.Signals(number)
        distributed.request_stop()


_current: Interruption | None = None  # one is enough, because signals arrive in the main thread only


@contextmanager
def interruptible() -> Iterator[Interruption]:
    """Return a context whose ``Interruption`` can hold back Ctrl-C and SIGTERM; nested fits share one.

    In another thread than the main one signals are not held back.
    """
    global _current
    if threading.current_thread() is not threading.main_thread():
        yield Interruption(may_hold=False)
        return
    if _current is not None:
        yield _current
        return
    distributed.clear_stop_requests()
    _current = Interruption(may_hold=True)
    try:
        yield _current
    finally:
        _current.release()
        _current = None


def mark_interrupted(history: pd.DataFrame) -> pd.DataFrame:
    """Return the history of a fit with the column ``interrupted``, 1 in the last row and else 0.

    It records that Ctrl-C or SIGTERM ended the fit.
    """
    return history.assign(**{COLUMN: [0.0] * (len(history) - 1) + [1.0] * (len(history) > 0)})


def was_interrupted(history: pd.DataFrame) -> bool:
    """Return True if the history says, in the column ``interrupted``, that Ctrl-C or SIGTERM ended the fit."""
    return COLUMN in history and bool(history[COLUMN].iloc[-1])


def warn_interrupted(by: signal.Signals, seconds: float, checkpoint: Any) -> None:
    """Warn that a signal ended ``fit``, and how to resume.

    Args:
        by: the signal.
        seconds: seconds that the fit took.
        checkpoint: the checkpoint that was written, or None.

    Raises:
        KeyboardInterrupt: scikit-learn makes this fit as one of several, all of which have to end.
    """
    if _called_by_sklearn():
        raise KeyboardInterrupt
    if checkpoint is not None:
        resuming = f"training__resume_from={str(checkpoint)!r} resumes it"
    else:
        resuming = "with training__checkpoint='run.ckpt' it could be resumed"
    warn_caller(
        f"{by.name} ended fit after {seconds:.1f} s: the model keeps the best that training had found, interrupted_ is "
        f"True, and {resuming}",
    )


def _called_by_sklearn() -> bool:
    """Return True if scikit-learn's model selection called ``fit``; it would not look at ``interrupted_``."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).startswith("sklearn.model_selection"):
            return True
        frame = frame.f_back
    return False
