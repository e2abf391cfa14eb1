"""Ctrl-C and SIGTERM during ``fit``: the first ends training and keeps the best so far, a second Ctrl-C ends at once.

A signal is held back once training has something to keep; before that it acts as it would without this module. Only
handlers that are Python's own are replaced, only in the main thread and only during ``fit``: a program that handles
signals itself goes on doing so.
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
COLUMN = "interrupted"  # of the history: 1 in the last row of a fit that a signal ended, and absent elsewhere


class Interruption:
    """The signals that a fit receives: a training loop asks it after every step whether it is to end."""

    def __init__(self, *, may_hold: bool) -> None:
        self.signal: signal.Signals | None = None
        self._may_hold = may_hold
        self._replaced: list[signal.Signals] = []

    @property
    def requested(self) -> bool:
        """True if training is to end. Of several processes all end at the same step, whichever was sent the signal."""
        return distributed.stop_agreed() or (self.signal is not None and not distributed.is_distributed())

    def hold(self) -> None:
        """From here on note the first signal instead of letting it act, because there is something to keep."""
        if self._replaced or not self._may_hold:
            return
        for number, default in DEFAULTS.items():
            if signal.getsignal(number) is default:
                signal.signal(number, self._note)
                self._replaced.append(number)

    def release(self) -> None:
        """Put back the handlers of signals that ``hold`` replaced."""
        for number in self._replaced:
            signal.signal(number, DEFAULTS[number])
        self._replaced = []

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal = signal.Signals(number)
        distributed.request_stop()


_current: Interruption | None = None  # of the main thread, where alone signals arrive


@contextmanager
def interruptible() -> Iterator[Interruption]:
    """Return a context in which signals can be held back; a fit inside another one shares its ``Interruption``."""
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
    """Return the history with a column ``interrupted``, 1 in its last row, which says that a signal ended the fit."""
    return history.assign(**{COLUMN: [0.0] * (len(history) - 1) + [1.0] * (len(history) > 0)})


def was_interrupted(history: pd.DataFrame) -> bool:
    """Return True if ``history`` belongs to a fit that a signal ended."""
    return COLUMN in history and bool(history[COLUMN].iloc[-1])


def warn_interrupted(by: signal.Signals, seconds: float, checkpoint: Any) -> None:
    """Warn that a signal ended ``fit``.

    Args:
        by: the signal.
        seconds: seconds that the fit took.
        checkpoint: file from which it can go on; None: no checkpoint was written.

    Raises:
        KeyboardInterrupt: the fit is one of several that scikit-learn makes, all of which are to end.
    """
    if _called_by_sklearn():
        raise KeyboardInterrupt
    if checkpoint is not None:
        resuming = f"training__resume_from={str(checkpoint)!r} goes on from where it stood"
    else:
        resuming = "a fit with training__checkpoint='run.ckpt' could go on from where it stood"
    warn_caller(
        f"{by.name} ended fit after {seconds:.1f} s: the model keeps the best that training had found, interrupted_ is "
        f"True, and {resuming}",
    )


def _called_by_sklearn() -> bool:
    """Return True if scikit-learn (``cross_val_score``, ...) called, which does not look at ``interrupted_``."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).startswith("sklearn.model_selection"):
            return True
        frame = frame.f_back
    return False
