"""A model listening to one sequence."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqmodels.generation.cursor import Cursor


class Stream:
    """A model listening to one sequence: the log-probability of each step as it comes.

    Made by ``SequenceModel.stream``. ``encode`` maps one raw step to encoded steps and the log-determinants to add.
    """

    def __init__(self, cursor: Cursor, encode: Any, affine: tuple[Tensor, Tensor], source: np.ndarray | None) -> None:
        self._cursor, self._encode, self._affine = cursor, encode, affine
        self._state = cursor.start(source, 1)

    def update(self, x: Any) -> float:
        """Take the next step (a frame ``(D,)``, a symbol, or a piece of text); returns its log p given the past, nats."""
        steps, log_dets = self._encode(x)
        total = 0.0
        for step, log_det in zip(steps, log_dets, strict=True):
            value = torch.as_tensor(step).unsqueeze(0)
            prediction = self._cursor.distribution(self._state)
            total += float(prediction.log_prob(value.to(prediction.parameters.device))) + float(log_det)
            self._state = self._cursor.advance(self._state, value)
        return total

    def predict_next(self) -> Any:
        """A Pyro distribution over the next raw step."""
        return self._cursor.distribution(self._state).as_distribution(*self._affine)

    def log_end(self) -> float:
        """Log-probability that the sequence ends here (``length="stop"``)."""
        log_end = self._cursor.distribution(self._state).log_end
        if log_end is None:
            raise ValueError('the model was fitted with length="given", so ends have no probability')
        return float(log_end)
