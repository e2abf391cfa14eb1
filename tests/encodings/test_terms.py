"""Design columns of penalised terms beside scipy's B-splines and beside the penalty that they stand for."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.interpolate import BSpline

from seqmodels.encodings.terms import RandomEffect, Smooth, TermColumns, b_splines


def columns_of(term: Smooth | RandomEffect, **inputs: np.ndarray) -> TermColumns:
    return TermColumns.learn(term, inputs, {name: (u - u.mean()) / u.std() for name, u in inputs.items()})


def test_b_splines_are_those_of_scipy() -> None:
    at, knots = np.linspace(0, 5, 41)[:-1], np.arange(-3, 9)
    scipys = BSpline.design_matrix(at, knots.astype(float), 3).toarray()
    np.testing.assert_allclose(b_splines(at, 8), scipys, atol=1e-14)


def test_b_splines_go_on_as_tangents() -> None:
    ends, slope = b_splines(np.array([-2.0, 0.0, 1e-6]), 8), None
    slope = (ends[2] - ends[1]) / 1e-6
    np.testing.assert_allclose(ends[0], ends[1] - 2 * slope, atol=1e-5)


@pytest.mark.parametrize("n_splines", [5, 8, 11])
@pytest.mark.parametrize("period", [None, 7.0])
def test_the_penalty_is_the_sum_of_squares_of_second_differences(n_splines: int, period: float | None) -> None:
    """Whatever the coefficients: least squares finds the B-splines that make the same function."""
    x = np.linspace(0, 7, 200, endpoint=period is None)
    learned = columns_of(Smooth("x", period, n_splines), x=x)
    raw = learned.term.columns(learned.learned, {"x": x}, {})
    a = np.random.default_rng(0).normal(size=raw.shape[1])
    if period is None:
        splines = b_splines(x / 7 * (n_splines - 3), n_splines)
        differences = np.diff(np.eye(n_splines), 2, axis=0)
    else:
        splines = b_splines(x / 7 * n_splines, n_splines + 3)
        splines[:, :3] += splines[:, n_splines:]
        splines = splines[:, :n_splines]
        wrapped = np.concatenate([np.eye(n_splines), np.eye(n_splines)[:2]])
        differences = np.diff(wrapped, 2, axis=0)
    c, *_ = np.linalg.lstsq(splines, raw @ a, rcond=None)
    np.testing.assert_allclose(splines @ c, raw @ a, atol=1e-9)
    np.testing.assert_allclose(np.sum((differences @ c) ** 2), np.sum(a**2), rtol=1e-8)


def test_columns_of_a_smooth_have_mean_zero_and_variances_that_sum_to_one() -> None:
    x = np.random.default_rng(1).uniform(1e9, 1e9 + 10, 300)
    columns = columns_of(Smooth("x"), x=x).columns({"x": x}, {})
    np.testing.assert_allclose(columns.mean(0), 0, atol=1e-12)
    np.testing.assert_allclose(columns.var(0).sum(), 1)


def test_a_cyclic_smooth_repeats_itself() -> None:
    x = np.random.default_rng(2).uniform(0, 24, 50)
    learned = columns_of(Smooth("x", period=24), x=x)
    np.testing.assert_allclose(learned.columns({"x": x + 48}, {}), learned.columns({"x": x}, {}), atol=1e-9)


def test_random_effects_have_a_column_for_each_group_and_one_for_new_groups() -> None:
    group, heat = np.array([3.0, 3.0, 7.0]), np.array([1.0, 2.0, 6.0])
    learned = columns_of(RandomEffect("group", slope="heat"), group=group, heat=heat)
    scaled = (heat - heat.mean()) / heat.std()
    assert learned.labels == ["group=3:heat", "group=7:heat", "group=new:heat"]
    expected = [[scaled[0], 0, 0], [scaled[1], 0, 0], [0, scaled[2], 0]]
    np.testing.assert_array_equal(learned.columns({"group": group}, {"heat": scaled}), expected)
    of_new = learned.columns({"group": np.array([4.0])}, {"heat": np.array([0.5])})
    np.testing.assert_array_equal(of_new, [[0, 0, 0.5]])


def test_too_many_groups_and_bad_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="1001 different values"):
        columns_of(RandomEffect("x"), x=np.arange(1001.0))
    with pytest.raises(ValueError, match="n_splines is 4"):
        columns_of(Smooth("x", n_splines=4), x=np.arange(9.0))
    with pytest.raises(ValueError, match="period is -1"):
        columns_of(Smooth("x", period=-1), x=np.arange(9.0))
