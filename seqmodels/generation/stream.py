"""A model listening to one sequence."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqmodels.precision import is_beyond_float32, refuse_beyond_float64
from seqmodels.generation.cursor import Cursor
from seqmodels.generation.prediction import Prediction

LEAST = -1e29  # nats: a step that has fewer is looked into; encoded values that float32 can be trusted with have more


class Stream:
    """A model listening to one sequence: the log-probability of each step as it comes.

    Made by ``SequenceModel.stream``. ``encode`` maps one raw step to encoded steps and the log-determinants to add.
    """

    def __init__(self, cursor: Cursor, encode: Any, affine: tuple[Tensor, Tensor], source: np.ndarray | None) -> None:
        self._cursor, self._encode, self._affine = cursor, encode, affine
        self._state = cursor.start(source, 1)

    def update(self, x: Any) -> float:
        """Take the next step (a frame ``(D,)``, a symbol, or a piece of text); returns its log p given the past, nats.

        Raises:
            ValueError: what cannot be read, or has a log-probability that the precision cannot hold; the stream is as before.
        """
        steps, log_dets = self._encode(x)
        total, state = 0.0, self._state
        for step, log_det in zip(steps, log_dets, strict=True):
            value = torch.as_tensor(step).unsqueeze(0)
            prediction = self._cursor.distribution(state)
            nats = float(prediction.log_prob(value.to(prediction.output_parameters.device)))
            if not LEAST < nats < math.inf:
                _refuse_unless_zero(prediction, value, nats)
            total += nats + float(log_det)
            state = self._cursor.advance(state, value)
        self._state = state
        return total

    def predict_next(self) -> Any:
        """A Pyro distribution over the next raw step, as of ``SequenceModel.predict_next``, with ``p_end``."""
        return self._cursor.distribution(self._state).as_distribution(*self._affine)

    def log_end(self) -> float:
        """Log-probability that the sequence ends here (``length="stop"``)."""
        log_end = self._cursor.distribution(self._state).log_end
        if log_end is None:
            raise ValueError('the model was fitted with length="given", so ends have no probability')
        return float(log_end)


def _refuse_unless_zero(prediction: Prediction, value: Tensor, nats: float) -> None:
    """Raise ``ValueError`` unless the model itself gives this step so little."""
    step = value.cpu().numpy()  # (1, D) or (1,)
    refuse_beyond_float64(step, "the step")
    narrow = prediction.output_parameters.dtype == torch.float32
    lost = math.isnan(nats) or nats == math.inf or (narrow and is_beyond_float32(step))
    if not lost and prediction.observation.emits == "vectors":
        each = prediction.each(value.to(prediction.output_parameters.device))
        lost = not bool(torch.isfinite(each).all())  # in every state, whatever its probability
    if lost:
        way_out = "set_params(dtype='float64') and begin a new stream, or rescale it" if narrow else "rescale it"
        raise ValueError(
            f"the step has a log-probability that {'float32' if narrow else 'float64'} cannot hold; {way_out}"
        )
