"""Log-probabilities of every possible next symbol at every step of a sequence."""

from __future__ import annotations

import numpy as np
import torch

from seqmodels.generation.cursor import Cursor, Source


@torch.inference_mode()
def event_log_probs(cursor: Cursor, values: np.ndarray, source: Source = None) -> np.ndarray:
    """Return the log-probability of every possible symbol at each of S steps of a sequence, in nats, ``(S, V)``.

    There are V symbols, and each row is conditioned on the steps before it. If the model predicts ends, the result is
    ``(S + 1, V + 1)``, and the last column is the end.

    Args:
        cursor: cursor of the model.
        values: the encoded symbols, ``(S,)``.
        source: encoded source that the sequence is conditioned on, or None.
    """
    state, log_p = cursor.start(source), []
    for symbol in values:
        prediction = cursor.distribution(state)
        log_p.append(prediction.log_probs())
        state = cursor.advance(state, torch.as_tensor(symbol).view(1))
    if prediction.log_end is not None:  # not for taggers, which have no prediction after the last step
        log_p.append(cursor.distribution(state).log_probs())
    return torch.cat(log_p).cpu().numpy()
