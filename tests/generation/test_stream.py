from __future__ import annotations

import numpy as np
import pytest
import torch

from seqmodels.generation import Stream
from tests.generation.markov import CHAIN, IDENTITY, Markov


def pair(x: int) -> tuple[np.ndarray, np.ndarray]:
    """A raw step that is two encoded ones, with log-determinants."""
    return np.array([x, 1]), np.array([0.5, -2.0])


def test_a_stream_adds_up_the_encoded_steps() -> None:
    stream = Stream(Markov(end=0.25), pair, IDENTITY, None)
    assert stream.log_end() == -np.inf
    assert stream.update(0) == pytest.approx(np.log(0.2 * 0.6 * 0.75) - 1.5)
    assert stream.update(2) == pytest.approx(np.log(0.3 * 1.0 * 0.75**2) - 1.5)
    assert stream.log_end() == pytest.approx(np.log(0.25))
    assert stream.predict_next().p_end == pytest.approx(0.25)
    torch.testing.assert_close(
        stream.predict_next().probs, torch.cat([0.75 * CHAIN[1], torch.tensor([0.25])]).double(), rtol=0, atol=1e-7
    )


def test_where_lengths_are_given_a_stream_has_no_ends() -> None:
    stream = Stream(Markov(), pair, IDENTITY, np.array([2]))
    assert stream.predict_next().probs.tolist() == [0.0, 0.0, 1.0]
    assert stream.predict_next().p_end == 0
    with pytest.raises(ValueError, match="ends have no probability"):
        stream.log_end()


@pytest.mark.parametrize("past", [[2], [0, 2]])
def test_what_comes_after_a_past_is_encoded_as_no_first_step_is(past: list[int]) -> None:
    """As tokenizers do that put a space, here the symbol 0, before a text."""
    steps = Stream(
        Markov(),
        lambda x: (np.array([0, x]), np.zeros(2)),
        IDENTITY,
        None,
        encode_after=lambda x: (np.array([x]), np.zeros(1)),
        past=np.array(past),
    )
    assert steps.update(1) == pytest.approx(float(CHAIN[2, 1].log()))
    assert steps.update(0) == pytest.approx(float(CHAIN[1, 0].log()))
