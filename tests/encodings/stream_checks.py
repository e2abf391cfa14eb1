"""What every encoding of series is asked of its streams."""

from __future__ import annotations

import numpy as np
import torch
from numpy.testing import assert_allclose

import seqmodels as sm


def assert_streams_agree(model: sm.SequenceModel, items: list[np.ndarray]) -> None:
    """Streams of the second item, from its start and after twelve frames, and predictions give its batch's nats."""
    x, steps = items[1], model.log_prob_steps(items)[1]
    assert len(steps) == len(x)
    stream = model.stream()
    for t, frame in enumerate(x[:12]):
        predicted = (stream.predict_next(), model.predict_next(x[:t]))
        each = [float(p.log_prob(torch.as_tensor(frame))) for p in predicted]
        assert_allclose([*each, stream.update(frame)], steps[t], atol=1e-9)
    later = model.stream(past=x[:12])
    assert_allclose([later.update(frame) for frame in x[12:]], steps[12:], atol=1e-9)
