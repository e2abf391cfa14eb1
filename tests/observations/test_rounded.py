"""Rounded values: sums over the grid, scipy, the maximum of likelihood, files, and what is refused."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy import optimize, stats

import seqmodels as sm
from seqmodels.observations import Beta, Gamma, LogNormal, Observation, Rounded, StudentT, VonMises
from tests.made import made


@dataclass(frozen=True)
class Case:
    """A density, the width of a cell, draws of one feature ``(n,)``, and the density in scipy by free parameters."""

    density: Observation
    width: float
    draw: Any
    twin: Any
    start: tuple[float, ...]
    grid: tuple[int, int]  # cells from and to which there is all but 1e-9 of the probability

    def __str__(self) -> str:
        return type(self.density).__name__

    def sequences(self, n: int = 4, seed: int = 0) -> list[np.ndarray]:
        """Of 100 frames each, in runs of ten that are drawn twice as large or not."""
        rng = np.random.default_rng(seed)
        factor = np.repeat(rng.integers(1, 3, (n, 10)), 10, axis=1)
        top = 0.999 if isinstance(self.density, Beta) else np.inf
        drawn = np.minimum(self.draw(rng, (n, 100)) * factor / (2 if top < 1 else 1), top)
        return [(self.width * np.rint(x / self.width))[:, None] for x in drawn]


CASES = [
    Case(
        sm.GaussianMixture(1),
        0.5,
        lambda rng, n: rng.normal(1.0, 1.0, n),
        lambda p: stats.norm(p[0], np.exp(p[1])),
        (1.0, 0.5),
        (-60, 60),
    ),
    Case(
        StudentT(),
        0.5,
        lambda rng, n: rng.standard_t(5, n),
        lambda p: stats.t(np.exp(p[2]), p[0], np.exp(p[1])),
        (0.0, 0.0, 1.0),
        (-20_000, 20_000),
    ),
    Case(
        Gamma(),
        0.5,
        lambda rng, n: rng.gamma(2.0, 1.0, n),
        lambda p: stats.gamma(np.exp(p[0]), scale=np.exp(p[1])),
        (0.5, 0.5),
        (0, 200),
    ),
    Case(
        LogNormal(),
        0.5,
        lambda rng, n: rng.lognormal(0.5, 0.5, n),
        lambda p: stats.lognorm(np.exp(p[1]), scale=np.exp(p[0])),
        (0.5, 0.0),
        (0, 20_000),
    ),
    Case(
        Beta(),
        0.05,
        lambda rng, n: rng.beta(2.0, 3.0, n),
        lambda p: stats.beta(np.exp(p[0]), np.exp(p[1])),
        (0.5, 0.5),
        (0, 20),
    ),
]
every = pytest.mark.parametrize("case", CASES, ids=str)


@pytest.mark.quick_cases(2)
@every
def test_probabilities_sum_to_one_over_the_grid_and_draws_are_on_it(case: Case) -> None:
    X = case.sequences()
    options: dict[str, Any] = {"max_iter": 5, "n_init": 1, "dtype": "float64"}
    model = made(sm.HMM, 2, observation=Rounded(case.density, width=case.width), **options).fit(X)
    assert model.measure_.space == "grid^1"
    assert model.measure_.grid == (case.width,)
    points = case.width * np.arange(case.grid[0], case.grid[1] + 1.0)
    predicted = model.predict_next(X[0][:7])
    p = predicted.log_prob(torch.tensor(points)[:, None]).exp()
    assert_allclose(float(p.sum()), 1.0, atol=2e-9 if not isinstance(case.density, StudentT) else 1e-6)
    drawn = np.concatenate(model.sample(5, length=200, random_state=0))
    assert set(np.rint(drawn / case.width).ravel().tolist()) == set((drawn / case.width).round(9).ravel().tolist())
    ahead = model.forecast(X[:1], 2, n=200)
    assert np.isin(np.round(ahead.paths[0] / case.width, 9), np.arange(case.grid[0], case.grid[1] + 1.0)).all()
    # Draws of the first step have the probabilities of its grid points.
    first = predicted.sample((4_000,)).numpy().ravel()
    common = p.numpy() > 0.05
    counts = np.array([np.isclose(first, x).sum() for x in points[common]])
    expected = 4_000 * p.numpy()[common]
    assert (np.abs(counts - expected) < 5 * np.sqrt(expected)).all()


@pytest.mark.quick_cases(1)
@every
def test_one_state_is_the_estimate_of_maximum_likelihood(case: Case) -> None:
    X = case.sequences()
    observation = Rounded(case.density, width=case.width)
    model = sm.HMM(1, observation=observation, dtype="float64", tol=1e-9, max_iter=5_000).fit(X)
    x, half = np.concatenate(X)[:, 0], 0.5 * case.width

    def loss(p: np.ndarray) -> float:
        twin = case.twin(p)
        low = x < twin.median()
        cells = np.where(low, twin.cdf(x + half) - twin.cdf(x - half), twin.sf(x - half) - twin.sf(x + half))
        return float(-np.log(np.maximum(cells, 1e-300)).mean())

    options = {"xatol": 1e-9, "fatol": 1e-13, "maxiter": 4_000, "maxfev": 4_000}
    best = optimize.minimize(loss, case.start, method="Nelder-Mead", options=options)
    assert model.score(X) == pytest.approx(-best.fun, abs=1e-6)
    assert model.score(X) <= -best.fun + 1e-9


@pytest.mark.quick_cases(2)
@every
def test_em_never_goes_down_also_where_values_are_missing(case: Case) -> None:
    X = [x.copy() for x in case.sequences(seed=1)]
    X[0][3:6] = np.nan
    observation = Rounded(case.density, width=case.width)
    model = sm.HMM(3, observation=observation, max_iter=10, tol=0.0, n_init=1, random_state=5, dtype="float64")
    model.fit(X)
    assert (np.diff(model.history_["objective"]) > -1e-10).all()
    assert len(model.history_) == 11
    hidden = [x.copy() for x in X]
    hidden[0][:] = np.nan
    assert model.log_prob_steps(hidden)[0].tolist() == pytest.approx([0.0] * 100, abs=1e-12)


@pytest.mark.quick_cases(2)
@every
def test_networks_and_files(case: Case, tmp_path: Path) -> None:
    X = case.sequences()
    observation = Rounded(case.density, width=case.width)
    for name, model in (
        ("hmm", sm.HMM(2, observation=observation, max_iter=2, n_init=1)),
        ("lstm", sm.LSTM(d_model=4, max_steps=4, observation=observation)),
    ):
        model.fit(X)
        model.save(tmp_path / name)
        loaded = sm.load(tmp_path / name)
        np.testing.assert_allclose(loaded.log_prob(X), model.log_prob(X), rtol=1e-12 if name == "hmm" else 1e-6)
        stream = loaded.stream()
        first = X[0][:30]
        assert sum(stream.update(x) for x in first) == pytest.approx(float(model.log_prob([first])[0]), rel=1e-5)
        assert np.isfinite(model.score(model.sample(length=20, random_state=0)))


def test_a_cell_has_the_probability_of_the_cdf_whatever_the_units() -> None:
    rng = np.random.default_rng(1)
    X = [np.rint(rng.normal([3.0, 1.0], [1.0, 2.0], (50, 2))) for _ in range(4)]
    model = sm.HMM(1, observation=Rounded(sm.GaussianMixture(1)), dtype="float64", max_iter=3).fit(X)
    twin = stats.norm(model.means_[0, 0], np.sqrt(model.covariances_[0, 0]))
    expected = np.log(twin.cdf(X[0] + 0.5) - twin.cdf(X[0] - 0.5)).sum(1)
    assert_allclose(model.log_prob_steps(X)[0], expected, rtol=1e-10)
    scaled = sm.HMM(1, observation=Rounded(sm.GaussianMixture(1), width=[8.0, 0.25]), dtype="float64", max_iter=3)
    scaled.fit([x * [8.0, 0.25] for x in X])
    assert_allclose(scaled.log_prob([x * [8.0, 0.25] for x in X]), model.log_prob(X), rtol=1e-12)
    # Cells below a point: half a width above it is a point of the grid.
    down = Rounded(sm.GaussianMixture(1), origin=0.5)
    shifted = sm.HMM(1, observation=down, dtype="float64", max_iter=3).fit([x + 0.5 for x in X])
    assert_allclose(shifted.means_, model.means_ + 0.5, rtol=1e-9)


def test_standard_errors_are_those_of_the_density_a_little_wider() -> None:
    rng = np.random.default_rng(2)
    X = [np.rint(rng.normal(20.0, 3.0, (200, 1))) for _ in range(4)]
    model = sm.HMM(1, observation=Rounded(sm.GaussianMixture(1)), dtype="float64", tol=1e-12, max_iter=200).fit(X)
    frame = model.standard_errors(X).set_index("name")
    # The information that rounding leaves, for cells narrower than a deviation (Heitjan 1989): by Sheppard's w² / 12.
    expected = np.sqrt((model.covariances_.item() + 1 / 12) / 800)
    assert frame.loc["means", "standard_error"] == pytest.approx(expected, rel=1e-3)


def test_a_file_of_other_units_than_its_encoding_is_refused(tmp_path: Path) -> None:
    X = CASES[0].sequences()
    model = sm.HMM(1, observation=Rounded(sm.GaussianMixture(1), width=0.5), max_iter=2).fit(X)
    model.observation_ = Rounded(sm.GaussianMixture(1), width=0.5, scale=[3.0])
    model.save(tmp_path / "model")
    with pytest.raises(ValueError, match="its encoding has other units"):
        sm.load(tmp_path / "model")


def test_a_value_that_never_varies_has_a_bounded_figure() -> None:
    X = [np.full((10, 1), 3.0) for _ in range(2)]
    model = sm.HMM(1, observation=Rounded(sm.GaussianMixture(1)), max_iter=20)
    with pytest.warns(UserWarning, match=r"1 state\(s\) ended on the floor"):
        model.fit(X)
    assert -1e-6 < model.score(X) <= 0
    assert model.means_.item() == pytest.approx(3.0, abs=0.5)


def test_what_is_off_the_grid_and_what_has_no_cdf_is_refused() -> None:
    X = [np.array([[1.0], [2.0]]), np.array([[3.0], [3.25]])]
    with pytest.raises(
        ValueError, match=r"sequence 1 has 3.25 at frame 1, feature 0, which is on no point of the grid"
    ):
        sm.HMM(1, observation=Rounded(sm.GaussianMixture(1))).fit(X)
    model = sm.HMM(1, observation=Rounded(sm.GaussianMixture(1), width=0.25), max_iter=2).fit(X)
    with pytest.raises(ValueError, match=r"sequence 0 has 0.1 at frame 0"):
        model.score([np.array([[0.1]])])
    for density in (sm.GaussianMixture(1, "full"), VonMises(), sm.Poisson(), 3):
        with pytest.raises(ValueError, match="which does not know the probability of an interval"):
            Rounded(density).check(1)  # type: ignore[arg-type]
    for wrong in ({"width": 0.0}, {"width": [1.0, 2.0]}, {"origin": np.inf}, {"scale": 1.0}):
        with pytest.raises(ValueError, match=f"{next(iter(wrong))} is .*; pass"):
            Rounded(sm.GaussianMixture(1), **wrong).check(1)
    with pytest.raises(ValueError, match="whose cell contains no positive"):
        sm.HMM(1, observation=Rounded(Gamma())).fit([np.array([[1.0], [-1.0]])])
    with pytest.raises(ValueError, match=r"group 0, .* is of intervals"):
        sm.Columns([(Rounded(sm.GaussianMixture(1)), 1), (sm.Poisson(), 1)]).check(2)


@pytest.mark.filterwarnings("ignore:.*exact copies")
def test_cells_are_compared_with_cells_of_their_width_only() -> None:
    X = CASES[0].sequences(12)
    make = {
        "one": sm.HMM(1, observation=Rounded(sm.GaussianMixture(1), width=0.5), max_iter=2),
        "two": sm.HMM(2, observation=Rounded(StudentT(), width=0.5), max_iter=2),
    }
    table = sm.compare(make, X[:6], test=X[6:]).frame
    assert set(table["model"]) == {"one", "two", "iid"}
    density = sm.HMM(1, observation=sm.GaussianMixture(1), max_iter=2)
    narrow = sm.HMM(1, observation=Rounded(sm.GaussianMixture(1), width=0.25), max_iter=2)
    for other, field in ((density, "space"), (narrow, "grid")):
        with pytest.raises(sm.IncomparableError, match=f"{field} is"):
            sm.compare({"cells": make["one"], "other": other}, X[:6], test=X[6:])
