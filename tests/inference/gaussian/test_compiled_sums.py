"""Sums of many sequences in loops over sequences, against those of means that are kept."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from seqmodels.common.compiled import is_compiling
from seqmodels.inference.gaussian import compiled_sums
from seqmodels.linear_gaussian.learning import statistics
from seqmodels.linear_gaussian.learning.statistics import Statistics, SystemData, e_step
from seqmodels.linear_gaussian.parameters import Form, NoiseType, SystemParameters
from tests.linear_gaussian.dense import diagonal, random_parameters

LENGTHS = (5, 9, 1, 9, 3, 7, 2, 8, 6, 40)
needs_numba = pytest.mark.skipif(not is_compiling(), reason="numba is not installed")


def problem(noise: NoiseType, offset: float = 0.0) -> tuple[SystemParameters, Form, SystemData]:
    rng = np.random.default_rng(0)
    parameters = random_parameters(0, 3, 6)
    parameters = diagonal(parameters) if noise == "diag" else parameters
    x = [offset + rng.normal(size=(n, 6)) for n in LENGTHS]
    return parameters, Form("learned", "full", "full", noise, True, 1e-6), SystemData(x, rng.random(len(x)))


def both(
    parameters: SystemParameters, form: Form, data: SystemData, monkeypatch: pytest.MonkeyPatch
) -> list[Statistics]:
    blocks = e_step(parameters, form, data)
    assert data.blocks is not None
    with monkeypatch.context() as patched:
        patched.setattr(statistics, "MANY_SEQUENCES", 100)
        apart = SystemData(data.values, data.weights)
        kept = e_step(parameters, form, apart)
        assert apart.blocks is None
    return [blocks, kept]


@needs_numba
@pytest.mark.parametrize("noise", ["full", "diag"])
def test_sums_are_those_of_means_that_are_kept(noise: NoiseType, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks, kept = both(*problem(noise), monkeypatch)
    for f in fields(Statistics):
        np.testing.assert_allclose(getattr(blocks, f.name), getattr(kept, f.name), rtol=1e-12, atol=1e-12)


@needs_numba
def test_some_with_missing_values_are_summed_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    parameters, form, data = problem("full")
    data.values[1][3, 2] = np.nan
    blocks, kept = both(parameters, form, data, monkeypatch)
    for f in fields(Statistics):
        np.testing.assert_allclose(getattr(blocks, f.name), getattr(kept, f.name), rtol=1e-12, atol=1e-12)


@needs_numba
@pytest.mark.parametrize(("noise", "start"), [(1.0, 1.0), (1e-9, 1.0), (1.0, 0.0), (1.0, 1e-9)])
def test_squares_are_summed_by_the_filter_where_digits_would_be_lost(
    noise: float, start: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    parameters, form, data = problem("diag")
    parameters = replace(
        parameters,
        observation_covariance=noise * parameters.observation_covariance,
        initial_covariance=np.diag([1.0, 1.0, start]),
    )
    calls, filter_blocks = [], compiled_sums.filter_blocks
    monkeypatch.setattr(
        compiled_sums, "filter_blocks", lambda *arguments: (calls.append(1), filter_blocks(*arguments))[1]
    )
    blocks, kept = both(parameters, form, data, monkeypatch)
    assert len(calls) == (start < 1)
    assert blocks.log_prob == pytest.approx(kept.log_prob, rel=1e-12)
    monkeypatch.setattr(statistics, "MOST_OF_SQUARES", 1.0)
    assert e_step(parameters, form, data).log_prob == pytest.approx(kept.log_prob, rel=1e-12)
    assert len(calls) == (start < 1) + 1


@needs_numba
def test_far_from_zero_sums_of_squares_keep_their_digits() -> None:
    parameters, form, data = problem("full")
    near = e_step(parameters, form, data)
    moved = SystemParameters(**{**parameters.arrays(), "intercept": parameters.intercept + 2.0**30})
    far = e_step(moved, form, SystemData([x + 2.0**30 for x in data.values], data.weights))
    np.testing.assert_allclose(far.seen_seen, near.seen_seen, rtol=1e-5)  # 2^30 leaves 23 bits after the point
    assert far.log_prob == pytest.approx(near.log_prob, rel=1e-6)


@pytest.mark.parametrize("shape", [(3, 4, 5), (2, 7, 3), (1, 1, 1), (5, 6, 2)])
def test_products_and_grams(shape: tuple[int, int, int]) -> None:
    rng, (i, j, n) = np.random.default_rng(0), shape
    matrix, source, target = rng.normal(size=(i, j)), rng.normal(size=(j, n)), rng.normal(size=(i, n))
    expected = target + matrix @ source
    compiled_sums.add_product(matrix, source, target, n)
    np.testing.assert_allclose(target, expected)
    sums = rng.normal(size=(i, j))
    expected = sums + target @ source.T
    compiled_sums.add_gram(target, source, sums, n)
    np.testing.assert_allclose(sums, expected)


@pytest.mark.parametrize("size", [1, 4, 7, 8])
def test_a_gram_may_be_of_the_upper_triangle_alone(size: int) -> None:
    left, sums = np.random.default_rng(size).normal(size=(size, 5)), np.zeros((size, size))
    compiled_sums.add_gram(left, left, sums, 5, True)
    np.testing.assert_allclose(np.triu(sums), np.triu(left @ left.T))
