"""Encoding of one raw step after another, faster than by ``encode_prefix``."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from seqmodels.encodings.step_maps import as_frames
from seqmodels.encodings.vectors import Vectors
from seqmodels.generation.inputs import GenerativeModel, encode_prefix, raw_step
from seqmodels.sequences import Sequences

EncodedSteps = tuple[np.ndarray, list[float]]

MOST_KNOWN = 1 << 12  # symbols and pieces of text whose steps are kept
LONGEST_KNOWN = 32  # characters of such a piece


class StepReader:
    """An encoder of the raw steps of one sequence as they arrive, faster than encoding each as a sequence.

    Called with a raw step, it returns the S encoded steps (several for a piece of text), symbols ``(S,)`` or vectors
    ``(S, D)``, and for each the log-determinant of the encoding, which turns log-densities of encoded into those of raw
    values. Symbols and short pieces of text that occurred before are looked up. Any step that is not plain is read by
    ``encode_prefix``, which checks it.

    Args:
        model: the fitted model.

    Raises:
        ValueError: if the model cannot read a step.
    """

    def __init__(self, model: GenerativeModel) -> None:
        self._model, self._encoding = model, model.encoding_
        self._reads_missing = model._reads_missing()
        self._is_affine = isinstance(self._encoding, Vectors) and not self._encoding.has_atoms
        self._known: dict[int | str | np.integer, EncodedSteps] = {}
        self._of_complete: list[float] | None = None  # log-determinant of a frame that misses nothing

    def __call__(self, x: Any) -> EncodedSteps:
        """Return the encoded steps of the next raw step and the log-determinant of the encoding for each.

        Args:
            x: the raw step, a frame, a symbol or a piece of text; not the first of a text, for which ``first`` is
                called.
        """
        if isinstance(x, int | str | np.integer):
            known = self._known.get(x)
            if known is None:
                known = self._encode(x)
                if len(self._known) < MOST_KNOWN and not (isinstance(x, str) and len(x) > LONGEST_KNOWN):
                    self._known[x] = known
            return known
        if self._encoding.reads != "vectors":
            return self._encode(x)
        frame, is_complete = self._plain_frame(x)
        if frame is None:
            return self._encode(x)
        if not is_complete or not self._is_affine:
            return self._encoding.encode(frame), self._log_dets(frame, 1)
        if self._of_complete is None:  # one affine map for all frames
            self._of_complete = self._log_dets(frame, 1)
        return self._encoding.encode(frame), self._of_complete

    def first(self, x: Any) -> EncodedSteps:
        """Return the encoded steps of the first raw step of a sequence, and the log-determinant of each.

        The log-determinant is that of the encoding. The first piece of a text may have other tokens than the same piece
        later.

        Args:
            x: the raw step, a frame, a symbol or a piece of text.
        """
        if not isinstance(x, str) or self._encoding.reads != "text":
            return self(x)
        steps = encode_prefix(self._model, x)
        return steps, self._log_dets(x, len(steps))

    def frame(self, x: Any) -> np.ndarray:
        """Return a raw vector as an array ``(1, D)`` float64, after checking that the model can read it.

        Raises:
            ValueError: if the model cannot read it.
        """
        frame, _ = self._plain_frame(x)
        if frame is None:
            item = raw_step(self._model, x)
            encode_prefix(self._model, item)  # checks it
            frame = as_frames(Sequences([item]).items[0])
        return frame

    def _encode(self, x: Any) -> EncodedSteps:
        if isinstance(x, str) and x and self._encoding.reads == "text" and x.isascii():  # there is nothing to refuse
            steps = self._encoding.encode_after(x)
            return steps, self._log_dets(x, len(steps))
        item = raw_step(self._model, x)
        steps = encode_prefix(self._model, item)
        if isinstance(item, str):
            steps = self._encoding.encode_after(item)
        return steps, self._log_dets(item, len(steps))

    def _log_dets(self, item: Any, n_steps: int) -> list[float]:
        log_det = self._encoding.log_det(item)
        return [log_det] * n_steps if isinstance(log_det, float) else log_det.tolist()

    def _plain_frame(self, x: Any) -> tuple[np.ndarray | None, bool]:
        """Return a raw vector as an array ``(1, D)`` float64, and whether it has no missing values.

        The array is None if the vector does not consist of plain numbers, so that ``encode_prefix`` must check it.
        """
        frame = x[None] if type(x) is np.ndarray else raw_step(self._model, x)
        if type(frame) is not np.ndarray or frame.shape != (1, self._encoding.n_features):
            return None, False
        if frame.dtype != np.float64:
            if frame.dtype.kind not in "fiub" or frame.dtype.itemsize > 8:
                return None, False
            frame = frame.astype(np.float64)
        values = frame[0]
        is_complete = all(map(math.isfinite, values.tolist()))
        if not is_complete and (not self._reads_missing or np.isinf(values).any()):
            return None, False
        self._encoding.check(0, frame)
        return frame, is_complete
