"""Interval-censored values: scipy, the maximum of likelihood, coarsened data, files, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import optimize, stats

import seqmodels as sm
from seqmodels.observations import Beta, Gamma, IntervalCensored, LogNormal, Observation, StudentT

INF = np.inf


def intervals(seed: int, draw: str = "normal", n: int = 4) -> list[np.ndarray]:
    """``(80, 2)``: values to 0.1, some known only as below or above 2, or as between 1 and 3, or missing; two kinds."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(n):
        far = np.repeat(rng.integers(0, 2, 10), 8)
        x = {
            "normal": rng.normal(1.0 + 3 * far, 1.0),
            "gamma": rng.gamma(1.0 + 3 * far, 1.0) + 0.01,
            "proportions": rng.beta(2.0 + 3 * far, 3.0),
        }[draw]
        cut, wide = (2.0, (1.0, 3.0)) if draw != "proportions" else (0.5, (0.25, 0.75))
        width = 0.1 if draw != "proportions" else 0.02
        low = width * np.floor(x / width)
        high = low + width
        some = np.arange(80) % 5 == 0
        low[some], high[some] = np.where(x[some] < cut, -INF, cut), np.where(x[some] < cut, cut, INF)
        within = (np.arange(80) % 11 == 1) & (x > wide[0]) & (x < wide[1])
        low[within], high[within] = wide
        low[:2] = high[:2] = np.nan
        found.append(np.stack([low, high], 1))
    return found


DENSITIES: list[tuple[Observation, str]] = [
    (sm.GaussianMixture(1), "normal"),
    (sm.GaussianMixture(2), "normal"),
    (StudentT(), "normal"),
    (Gamma(), "gamma"),
    (LogNormal(), "gamma"),
    (Beta(), "proportions"),
]


def test_one_gaussian_is_the_estimate_of_maximum_likelihood_in_raw_units() -> None:
    X = [100 + 20 * x for x in intervals(0)]
    model = sm.HMM(1, observation=IntervalCensored(sm.GaussianMixture(1)), dtype="float64", tol=1e-13, max_iter=2_000)
    model.fit(X)
    low, high = np.concatenate([x[2:] for x in X]).T

    def loss(p: np.ndarray) -> float:
        twin = stats.norm(p[0], np.exp(p[1]))
        return float(-np.log(twin.cdf(high) - twin.cdf(low)).sum())

    start = [150.0, 3.0]
    best = optimize.minimize(loss, start, method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-11})
    assert model.log_prob(X).sum() == pytest.approx(-best.fun, abs=1e-6)
    assert model.means_.item() == pytest.approx(best.x[0], rel=1e-5)
    assert model.covariances_.item() == pytest.approx(np.exp(2 * best.x[1]), rel=1e-5)
    assert model.measure_.space == "ends of intervals^2"


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(("density", "draw"), DENSITIES, ids=lambda x: repr(x))
def test_em_never_goes_down_and_what_is_fitted_scores_decodes_and_smooths(
    density: Observation, draw: str, tmp_path: Path
) -> None:
    X = intervals(1, draw)
    model = sm.HMM(2, observation=IntervalCensored(density), max_iter=6, tol=0.0, n_init=1, dtype="float64").fit(X)
    assert (np.diff(model.history_["objective"]) > -1e-10).all()
    steps = model.log_prob_steps(X)
    assert all(np.isfinite(each).all() and (each <= 1e-12).all() for each in steps)
    assert_allclose([float(each[:2].sum()) for each in steps], 0.0, atol=1e-10)  # both are missing
    assert [len(path) for path in model.decode(X)] == [80] * 4
    assert_allclose(model.posterior(X)[0].sum(1), 1.0)
    stream = model.stream()
    assert sum(stream.update(x) for x in X[0]) == pytest.approx(float(model.log_prob(X[:1])[0]))
    model.save(tmp_path / "model")
    np.testing.assert_allclose(sm.load(tmp_path / "model").log_prob(X), model.log_prob(X), rtol=1e-12)


def test_states_are_found_again_although_values_are_coarse() -> None:
    rng = np.random.default_rng(0)
    z = np.repeat(rng.integers(0, 2, (8, 10)), 10, axis=1)
    x = rng.normal(np.where(z, 6.0, 1.0), np.where(z, 0.5, 1.0))
    words = np.where(rng.random(x.shape) < 0.5, 1, 0) > 0  # half of them told as short or long
    low, high = (np.where(words, np.where(z, 4.0, -INF), x - 0.01), np.where(words, np.where(z, INF, 4.0), x + 0.01))
    X = [np.stack(each, 1) for each in zip(low, high, strict=True)]
    model = sm.HMM(2, observation=IntervalCensored(sm.GaussianMixture(1)), random_state=0).fit(X).reorder("mean")
    assert_allclose(model.means_.ravel(), [1.0, 6.0], atol=0.1)
    assert_allclose(np.sqrt(model.covariances_).ravel(), [1.0, 0.5], atol=0.1)
    # The density of values, as the error of what cannot be drawn says.
    values = sm.HMM.from_parameters(
        model.initial_, model.transition_, means=model.means_[:, 0], covariances=model.covariances_[:, 0]
    )
    assert np.abs(np.concatenate(values.sample(20, length=50, random_state=0)).mean() - x.mean()) < 0.5


@pytest.mark.parametrize(("density", "draw"), DENSITIES, ids=lambda x: repr(x))
def test_networks_read_infinite_ends(density: Observation, draw: str) -> None:
    X = intervals(2, draw)
    network = sm.LSTM(d_model=4, max_steps=5, observation=IntervalCensored(density), random_state=0).fit(X)
    assert np.isfinite(network.score(X))
    changed = [x.copy() for x in X]
    changed[0][10] = [-INF, INF]
    after = network.log_prob_steps(changed)[0]
    assert after[10] == pytest.approx(0.0, abs=1e-14)
    assert_allclose(after[:10], network.log_prob_steps(X)[0][:10], rtol=1e-5, atol=1e-5)


def test_intervals_are_not_drawn_and_the_error_says_why() -> None:
    X = intervals(0)
    model = sm.HMM(1, observation=IntervalCensored(sm.GaussianMixture(1)), max_iter=2).fit(X)
    for ask in (
        lambda: model.sample(1, length=3),
        lambda: model.predict_next(X[0]),
        lambda: model.forecast(X[:1], 2),
    ):
        with pytest.raises(NotImplementedError, match="no distribution over intervals"):
            ask()


def test_what_is_no_interval_is_refused_by_frame() -> None:
    observation = IntervalCensored(sm.GaussianMixture(1))
    model = sm.HMM(1, observation=observation, max_iter=2).fit(intervals(0))
    for wrong in ([2.0, 1.0], [1.0, 1.0], [np.nan, 1.0], [1.0, np.nan]):
        with pytest.raises(ValueError, match="sequence 1 has at frame 1, feature 0, the interval from"):
            model.score([np.array([[0.0, 1.0]]), np.array([[0.0, 1.0], wrong])])
    with pytest.raises(ValueError, match="3 columns, but an interval has two ends"):
        sm.HMM(1, observation=observation).fit([np.zeros((4, 3))])
    with pytest.raises(ValueError, match="pass low < high with positive between them"):
        sm.HMM(1, observation=IntervalCensored(Gamma())).fit([np.array([[1.0, 2.0], [-2.0, -1.0]])])
    with pytest.raises(ValueError, match="sequence 0 has an infinite value at frame 0"):  # not the ends of an interval
        sm.HMM(1, observation=observation).fit([np.array([[INF, 1.0], [0.0, 1.0]])])
    with pytest.raises(ValueError, match=r"sequence 1 has an infinite value at frame 0.*IntervalCensored"):
        sm.HMM(1).fit([np.array([[0.0, 1.0]]), np.array([[0.0, INF]])])


@pytest.mark.filterwarnings("ignore:.*exact copies")
def test_intervals_are_not_compared_with_densities() -> None:
    X = [np.nan_to_num(x, neginf=-9.0, posinf=9.0, nan=0.5) + np.array([0.0, 0.1]) for x in intervals(0, n=12)]
    models = {"intervals": sm.HMM(1, observation=IntervalCensored(sm.GaussianMixture(1))), "densities": sm.HMM(1)}
    with pytest.raises(sm.IncomparableError, match="space is"):
        sm.compare(models, X[:6], test=X[6:])
