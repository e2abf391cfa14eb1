from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

import seqmodels as sm
from seqmodels.encodings import RunningScale

RNG = np.random.default_rng(0)
ITEMS = [RNG.normal(30, 5, size=(40, 2)) * RNG.uniform(0.3, 3, 2) for _ in range(6)]


def by_hand(x: np.ndarray, encoding: RunningScale) -> tuple[np.ndarray, np.ndarray]:
    """Shift and scale of each frame, from all values before it, one after the other."""
    prior, shift, scale = encoding.prior_frames, np.empty_like(x), np.empty_like(x)
    for t, d in np.ndindex(x.shape):
        seen = x[:t, d][~np.isnan(x[:t, d])]
        weight = prior + len(seen)
        mean = (prior * encoding.mean[d] + seen.sum()) / weight
        squares = prior * (encoding.scale[d] ** 2 + encoding.mean[d] ** 2) + (seen**2).sum()
        shift[t, d], scale[t, d] = mean, np.sqrt(squares / weight - mean**2)
    return shift, scale


def test_each_frame_is_scaled_by_those_before_it_that_are_not_missing() -> None:
    encoding, x = RunningScale(3.0).fit(sm.Sequences(ITEMS)), ITEMS[0].copy()
    x[3, 0] = x[7] = np.nan
    shift, scale = by_hand(x, encoding)
    assert_allclose(encoding.encode(x), (x - shift) / scale, rtol=1e-9)
    expected = np.where(np.isnan(x), 0.0, -np.log(scale)).sum(1)
    assert_allclose(encoding.of_each_frame(x), expected, rtol=1e-9)
    encoder = encoding.step_encoder(x[:0])
    for t, frame in enumerate(x):
        for step in (encoder.map, encoding.step_encoder(x[:t]).map):
            assert_allclose(step.shift[0], shift[t], rtol=1e-9)
            assert_allclose(step.scale[0], scale[t], rtol=1e-9)
        encoder = encoder.after(frame[None])


def test_missing_values_are_summed_out_batched_and_one_by_one() -> None:
    model = sm.HMM(2, encoding=RunningScale(), dtype="float64", n_init=1, max_iter=5)
    items = [x.copy() for x in ITEMS]
    items[0][4, 1] = items[1][5] = np.nan
    steps = model.fit(items).log_prob_steps(items)
    for x, expected in zip(items[:2], steps, strict=False):
        stream = model.stream()
        assert_allclose([stream.update(frame) for frame in x], expected, atol=1e-9)
    # A frame of which all is missing has no density, and leaves the states to the transitions.
    assert abs(steps[1][5]) < 1e-12


def test_a_file_keeps_what_was_learned() -> None:
    encoding = RunningScale().fit(sm.Sequences(ITEMS))
    assert_allclose(RunningScale().restore(encoding.state()).encode(ITEMS[1]), encoding.encode(ITEMS[1]), rtol=0)
    with pytest.raises(ValueError, match="'scale' has 0"):
        RunningScale().restore({**encoding.state(), "scale": np.zeros(2)})
