"""Log-probabilities of all that could come next, at every step of a sequence of symbols."""

from __future__ import annotations

import numpy as np
import torch

from seqmodels.generation.cursor import Cursor, Source


@torch.inference_mode()
def event_log_probs(cursor: Cursor, values: np.ndarray, source: Source = None) -> np.ndarray:
    """``(S, V)`` nats of every symbol given the steps before; with ends ``(S + 1, V + 1)``, the end last."""
    state, log_p = cursor.start(source), []
    for symbol in values:
        prediction = cursor.distribution(state)
        log_p.append(prediction.log_probs())
        state = cursor.advance(state, torch.as_tensor(symbol).view(1))
    if prediction.log_end is not None:  # else nothing is asked of what comes after the last, of which a tagger has none
        log_p.append(cursor.distribution(state).log_probs())
    return torch.cat(log_p).cpu().numpy()
