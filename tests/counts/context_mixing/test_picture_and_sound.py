"""Bytes that are samples of pictures and sound: how they are found, predicted, and coded."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import logistic

import seqmodels as sm
from seqmodels.common.range_coder import RangeDecoder, RangeEncoder
from seqmodels.counts.context_mixing import picture_and_sound
from seqmodels.counts.context_mixing.byte_layout import BYTES, WORDS
from seqmodels.counts.context_mixing.tables import N_FEATURES, N_FITS, MixingTables
from seqmodels.counts.context_mixing.untrained import untrained_bytes
from seqmodels.encodings.examples import Example
from seqmodels.generation import ToDecode
from tests.counts.context_mixing.test_byte_layout import picture, sound


@pytest.fixture(scope="module")
def tables() -> MixingTables:
    return untrained_bytes(1000).tables_


def bytes_by_expert(kind: int, mean: float, scale: float, is_high: bool = False, low_byte: int = 0) -> np.ndarray:
    """``(256,)`` probabilities of a byte, of its eight decisions."""
    p, inputs = np.ones(256), np.zeros(1)
    what, expected = picture_and_sound.new_number()
    at = [picture_and_sound.NUMBER_KIND, picture_and_sound.IS_HIGH, picture_and_sound.LOW_BYTE]
    what[at] = kind, is_high, low_byte
    expected[[picture_and_sound.MEANS, picture_and_sound.INVERSES]] = mean, 1 / scale
    for byte in range(256):
        for bit in range(8):
            node = (256 | byte) >> (8 - bit)
            picture_and_sound.set_input(what, expected, 0, node, bit, inputs, 0)
            sign = 1 if byte >> (7 - bit) & 1 else -1
            p[byte] /= 1 + math.exp(-sign * inputs[0])
    return p


@pytest.mark.parametrize(("mean", "scale"), [(100.3, 4.0), (2.0, 9.0), (254.9, 0.7)])
def test_an_expert_has_the_logistic_distribution_of_a_byte(mean: float, scale: float) -> None:
    p = bytes_by_expert(BYTES, mean, scale)
    ends = np.array([-np.inf, *np.arange(0.5, 255), np.inf])
    assert_allclose(p.sum(), 1, rtol=1e-12)
    assert_allclose(p, np.diff(logistic.cdf(ends, mean, scale)), atol=1e-4)


@pytest.mark.parametrize(("mean", "scale"), [(100.3, 4.0), (-300.0, 60.0), (3.0, 90.0), (-20_000.5, 1.0)])
def test_an_expert_has_the_logistic_distribution_of_a_word(mean: float, scale: float) -> None:
    expected = np.diff(logistic.cdf(np.arange(-32_768.5, 32_768), mean, scale)).reshape(256, 256)
    by_low = expected.sum(0)  # a row for each higher byte, those of negative words first
    assert_allclose(bytes_by_expert(WORDS, mean, scale), by_low, atol=2e-4)
    for low in (math.floor(mean - scale) & 255, math.floor(mean + scale) & 255):
        high = np.roll(expected[:, low], 128) / by_low[low]
        assert_allclose(bytes_by_expert(WORDS, mean, scale, True, low), high, atol=0.01)


@pytest.mark.parametrize("fit", range(N_FITS))
def test_a_fit_is_that_of_least_squares_that_forget(tables: MixingTables, fit: int) -> None:
    rng = np.random.default_rng(3)
    changed = tables._replace(floats=tables.floats.copy())
    features, numbers = rng.normal(100, 30, (60, N_FEATURES)), rng.normal(100, 30, 60)
    for x, y in zip(features, numbers, strict=True):
        picture_and_sound.update_fit(changed, fit, 1, x, y)
    picture_and_sound.solve_fit(changed, fit, 1, np.zeros(N_FEATURES * N_FEATURES))
    keep = picture_and_sound.FORGETTING[fit]
    shares = keep ** np.arange(60)[::-1]
    squares = (features * shares[:, None]).T @ features + picture_and_sound.SHRINKAGE * np.eye(N_FEATURES)
    start = picture_and_sound.weights_start(changed.samples_at, fit, 1)
    expected = np.linalg.solve(squares, features.T @ (shares * numbers))
    assert_allclose(changed.floats[start : start + N_FEATURES], expected, rtol=1e-6)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("values", [picture(75, 80), picture(37, 50, 3), sound(3500)], ids=["grey", "colours", "sound"])
def test_numbers_are_coded_in_fewer_bytes_than_symbols_and_decoded(values: np.ndarray) -> None:
    model, without = untrained_bytes(len(values)), untrained_bytes(len(values))
    without.has_numbers_ = False
    without._set_tables(without._empty(np.zeros(0, dtype=np.int64)))
    codes = []
    for each in (model, without):
        encoder = RangeEncoder()
        each._symbol_coder().encode([Example(values)], encoder)
        codes.append(encoder.finish())
    assert len(codes[0]) < 0.9 * len(codes[1])
    (decoded,) = model._symbol_coder().decode([ToDecode(len(values))], RangeDecoder(codes[0]))
    assert_array_equal(decoded, values)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("adaptive", [True, False])
def test_batched_and_incremental_evaluation_agree_on_a_picture(adaptive: bool, tmp_path: Path) -> None:
    item = "".join(map(chr, picture(50, 64, most=127)))
    model = sm.ContextMixing(adaptive, length="given", dtype="float64").fit([item])
    new = item[1000:2100]  # past the search for records after 512 bytes and after 1,024
    steps = model.log_prob_steps([new])[0]
    assert_allclose(model.log_prob_steps(["a text", new])[1], steps, rtol=1e-12)
    stream = model.stream()
    assert_allclose([stream.update(symbol) for symbol in new], steps, rtol=1e-9, atol=1e-12)
    model.save(tmp_path / "model.safetensors")
    assert_array_equal(sm.load(tmp_path / "model.safetensors").log_prob_steps([new])[0], steps)
