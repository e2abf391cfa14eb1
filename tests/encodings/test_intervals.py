"""Grids and ends of intervals as a model reads them: inverses, units, and no log-determinant."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import seqmodels as sm
from seqmodels.encodings import Grid, Intervals
from seqmodels.encodings.defaults import default_encoding
from seqmodels.observations import Gamma, IntervalCensored, OneOf, Rounded

INF = np.inf
GRID = np.array([[0.5, 10.0], [1.5, 40.0], [np.nan, 30.0], [0.0, 20.0]])


def test_points_of_a_grid_come_back_exactly_and_the_shift_is_a_multiple_of_the_width() -> None:
    encoding = Grid([0.5, 10.0]).fit(sm.Sequences([GRID]))
    assert_array_equal(encoding.mean % [0.5, 10.0], 0.0)
    steps = encoding.encode(GRID)
    assert_allclose(np.nanstd(steps, axis=0), 1.0, rtol=1e-12)
    assert_array_equal(encoding.decode(steps.astype(np.float32)), GRID)
    assert (encoding.values(), encoding.grid()) == (("rounded",) * 2, (0.5, 10.0))
    assert (encoding.log_det(GRID), encoding.has_log_det) == (0.0, False)
    assert_array_equal(Grid([0.5, 10.0]).restore(encoding.state()).encode(GRID), steps)
    encoding.check(0, GRID + np.array([1e-9, 0.0]))  # rounding noise
    with pytest.raises(ValueError, match=r"sequence 3 has 0.6 at frame 0, feature 0, .* grid 0 \+ k \* 0.5"):
        encoding.check(3, GRID + np.array([0.1, 0.0]))


def test_a_grid_of_one_point_has_a_unit_and_one_not_of_reals_no_shift(tmp_path: Path) -> None:
    one = Grid(2.0).fit(sm.Sequences([np.full((3, 1), 4.0)]))
    assert (one.mean.tolist(), one.scale.tolist()) == ([4.0], [2.0])
    positive = Grid(0.5, 0.25, "positive").fit(sm.Sequences([np.array([[0.25], [1.75]])]))
    assert positive.mean.tolist() == [0.0]
    assert Grid(0.1, kind="proportions").fit(sm.Sequences([np.array([[0.1], [0.9]])])).scale.tolist() == [1.0]
    with pytest.raises(ValueError, match="whose cell contains no proportions"):
        Grid(0.5, kind="proportions").identity(1).check(0, np.array([[1.5]]))
    with pytest.raises(ValueError, match="feature 0 is missing in every frame"):
        Grid(0.5).fit(sm.Sequences([np.full((2, 1), np.nan)]))
    np.save(tmp_path / "x.npy", GRID)
    mapped = sm.Sequences([np.load(tmp_path / "x.npy", mmap_mode="r")])
    assert_allclose(Grid(0.5).fit(mapped).scale, Grid(0.5).fit(sm.Sequences([GRID])).scale, rtol=1e-12)
    model = sm.HMM(1, observation=Rounded(sm.GaussianMixture(1), width=0.5), max_iter=3)
    assert model.fit(mapped).score(mapped) == pytest.approx(model.fit([GRID]).score([GRID]), rel=1e-6)


def test_ends_share_a_unit_and_infinite_ones_come_back() -> None:
    ends = np.array([[0.0, 4.0, -INF, 1.0], [6.0, 10.0, 2.0, INF], [np.nan, np.nan, -INF, INF]])
    encoding = Intervals().fit(sm.Sequences([ends]))
    assert encoding.mean.tolist() == [5.0, 5.0, 1.5, 1.5]
    assert encoding.scale.tolist() == [3.0, 3.0, 0.5, 0.5]
    steps = encoding.encode(ends)
    assert np.isfinite(steps[:2]).all()
    assert_allclose(encoding.decode(steps.astype(np.float32)), ends, atol=1e-6)
    assert (encoding.values(), encoding.grid(), encoding.log_det(ends)) == (("ends",) * 4, None, 0.0)
    positive = Intervals("positive").fit(sm.Sequences([np.array([[-INF, 2.0], [4.0, 6.0]])]))
    assert (positive.mean.tolist(), positive.scale.tolist()) == ([0.0, 0.0], [2.0, 2.0])  # 0 to 2 is around 1
    with pytest.raises(ValueError, match="feature 1 is missing in every frame"):
        Intervals().fit(sm.Sequences([np.array([[0.0, 1.0, -INF, INF]])]))
    with pytest.raises(ValueError, match="the interval from 1 to 2; pass low < high with proportions"):
        Intervals("proportions").identity(2).check(0, np.array([[1.0, 2.0]]))


def test_the_observation_says_which_encoding() -> None:
    gaussian = sm.GaussianMixture(1)
    chosen = [
        default_encoding("vectors", Rounded(gaussian, width=2.0, origin=1.0), 1),
        default_encoding("vectors", OneOf([Rounded(Gamma(), width=2.0)]), 1),
        default_encoding("vectors", IntervalCensored(Gamma()), 2),
    ]
    assert list(map(repr, chosen)) == [
        "Grid(width=2.0, origin=1.0)",
        "Grid(width=2.0, kind='positive')",
        "Intervals(kind='positive')",
    ]
    with pytest.raises(ValueError, match=r"has a grid of \(1.0, 1.0\) but the encoding"):
        sm.HMM(1, observation=Rounded(gaussian), encoding=Grid(0.5)).fit([GRID])
    with pytest.raises(ValueError, match="emits rounded at feature 0 but the encoding"):
        sm.HMM(1, observation=Rounded(gaussian), encoding=sm.Standardize()).fit([GRID])
