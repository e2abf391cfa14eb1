"""Pseudo-residuals by scipy and enumeration, their statistics by their formulas, and what is found in them."""

import itertools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

import seqmodels as sm
from seqmodels.encodings.raw_data import Data
from seqmodels.evaluation.model_check import (
    anderson_darling,
    autocorrelations,
    cdfs_by_cursor,
    cdfs_of_steps,
    check,
    drawn_data,
    ljung_box,
    p_of_anderson_darling,
)
from seqmodels.observations import Gamma, NegativeBinomial, Rounded, StudentT, VonMises, ZeroInflated

Array = np.ndarray
INITIAL, TRANSITION = np.array([0.6, 0.4]), np.array([[0.9, 0.1], [0.3, 0.7]])
FINAL = np.array([0.05, 0.6])
MEANS, VARIANCES = np.array([[0.0, 5.0], [3.0, 4.0]]), np.array([[1.0, 2.0], [4.0, 0.5]])
GAUSSIAN: dict[str, Any] = {"means": MEANS, "covariances": VARIANCES, "dtype": "float64"}
MODEL = sm.HMM.from_parameters(INITIAL, TRANSITION, **GAUSSIAN)
ONE_STATE = sm.HMM.from_parameters([1.0], [[1.0]], means=[[1.0, 4.5]], covariances=[[4.0, 1.5]], dtype="float64")
RATES = np.array([[0.5], [6.0]])
COUNTS = sm.HMM.from_parameters(INITIAL, TRANSITION, rates=RATES, dtype="float64")


def residuals(model: sm.SequenceModel, X: Any, given: str = "past", **options: Any) -> list[Array]:
    return check(model, X, given=given, n_simulations=0, **options).residuals


def state_weights(b: Array, t: int, *, rest: bool, transition: Array = TRANSITION, final: Array | None = None) -> Array:
    """p(z_t | the steps before t, or all others), by a sum over every path; ``b (T, K)`` are the densities."""
    n = len(b) if rest else t + 1
    weights = np.zeros(2)
    for path in itertools.product(range(2), repeat=n):
        p = INITIAL[path[0]]
        for s in range(n):
            p *= transition[path[s - 1], path[s]] if s else 1.0
            p *= b[s, path[s]] if s != t else 1.0
        weights[path[t]] += p * (final[path[-1]] if rest and final is not None else 1.0)
    return weights / weights.sum()


def gaussian_residuals(x: Array, *, rest: bool, **chain: Array) -> Array:
    each = stats.norm.pdf(x[:, None], MEANS, np.sqrt(VARIANCES))
    b = np.where(np.isnan(x)[:, None], 1.0, each).prod(-1)
    cdf = stats.norm.cdf(x[:, None], MEANS, np.sqrt(VARIANCES))
    return np.stack([stats.norm.ppf(state_weights(b, t, rest=rest, **chain) @ cdf[t]) for t in range(len(x))])


@pytest.mark.parametrize("rest", [False, True])
class TestByEnumeration:
    def test_of_an_hmm(self, rest: bool):
        x = MODEL.sample(1, length=7, random_state=1)[0]
        x[3] = [7.0, -1.0]  # far from both states
        for found, part in zip(residuals(MODEL, [x, x[:2]], "rest" if rest else "past"), [x, x[:2]], strict=True):
            np.testing.assert_allclose(found, gaussian_residuals(part, rest=rest), rtol=1e-8)

    def test_missing_values_have_none_and_tell_nothing(self, rest: bool):
        x = MODEL.sample(1, length=6, random_state=2)[0]
        x[2, 0], x[4] = np.nan, np.nan
        found = residuals(MODEL, [x], "rest" if rest else "past")[0]
        np.testing.assert_allclose(found, gaussian_residuals(x, rest=rest), rtol=1e-8)
        assert np.isnan(found).tolist() == np.isnan(x).tolist()

    def test_the_end_tells_of_the_steps_before(self, rest: bool):
        transition = TRANSITION * (1 - FINAL)[:, None]
        model = sm.HMM.from_parameters(INITIAL, transition, FINAL, **GAUSSIAN)
        x = MODEL.sample(1, length=5, random_state=3)[0]
        expected = gaussian_residuals(x, rest=rest, transition=transition, final=FINAL)
        np.testing.assert_allclose(residuals(model, [x], "rest" if rest else "past")[0], expected, rtol=1e-8)

    def test_counts_take_the_middle_of_their_range_or_a_draw_from_it(self, rest: bool):
        x = COUNTS.sample(1, length=7, random_state=4)[0]
        b = stats.poisson.pmf(x, RATES[:, 0])
        weights = np.stack([state_weights(b, t, rest=rest) for t in range(len(x))])
        below, up_to = (np.einsum("tk,tk->t", weights, stats.poisson.cdf(x - k, RATES[:, 0])) for k in (1, 0))
        given = "rest" if rest else "past"
        found = residuals(COUNTS, [x], given)[0]
        np.testing.assert_allclose(found[:, 0], stats.norm.ppf(0.5 * (below + up_to)), rtol=1e-6)
        seeds = range(9)
        each = [residuals(COUNTS, [x], given, randomised=True, random_state=seed)[0][:, 0] for seed in seeds]
        drawn = stats.norm.cdf(each)
        assert (below <= drawn).all()
        assert (drawn <= up_to).all()
        assert (drawn.std(0) > 0).all()


class TestOfOneState:
    """The residual is Φ^-1(F(x)) for the cdf F of the fitted density."""

    @pytest.mark.parametrize(
        ("observation", "draw", "cdf"),
        [
            (Gamma(), lambda g: g.gamma(2.0, size=80), lambda m: stats.gamma(m.shapes_, scale=1 / m.rates_).cdf),
            (
                StudentT(),
                lambda g: g.standard_t(3, 80),
                lambda m: stats.t(m.degrees_of_freedom_, m.locations_, m.scales_).cdf,
            ),
            (VonMises(), lambda g: g.vonmises(2.8, 1.0, 80), lambda m: by_quadrature(m)),
        ],
        ids=["gamma", "student", "angles from -π"],
    )
    def test_of_a_density(self, observation: Any, draw: Callable[..., Array], cdf: Callable[..., Any]):
        x = draw(np.random.default_rng(0))[:, None]
        model = sm.HMM(1, observation=observation, n_init=1, dtype="float64").fit([x])
        np.testing.assert_allclose(residuals(model, [x])[0], stats.norm.ppf(cdf(model)(x)), rtol=1e-6, atol=1e-8)

    @pytest.mark.parametrize(
        ("observation", "width", "cdf"),
        [
            (sm.Bernoulli(), 1.0, lambda m: stats.bernoulli(m.probabilities_).cdf),
            (ZeroInflated(sm.Poisson()), 1.0, lambda m: zero_inflated(m)),
            (NegativeBinomial(), 1.0, lambda m: negative_binomial(m)),
            (
                Rounded(sm.GaussianMixture(1), width=0.5),
                0.5,
                lambda m: lambda x: stats.norm.cdf(x + 0.25, m.means_[:, 0], np.sqrt(m.covariances_[:, 0])),
            ),
        ],
        ids=["bits", "zero-inflated counts", "dispersed counts", "rounded"],
    )
    def test_of_values_with_a_probability(self, observation: Any, width: float, cdf: Callable[..., Any]):
        rng = np.random.default_rng(1)
        x = width * (rng.negative_binomial(1.0, 0.3, 80) * (rng.random(80) < 0.8))[:, None]
        x = np.minimum(x, 1.0) if isinstance(observation, sm.Bernoulli) else x
        model = sm.HMM(1, observation=observation, n_init=1, dtype="float64").fit([x])
        middle = 0.5 * (cdf(model)(x) + cdf(model)(x - width))
        np.testing.assert_allclose(residuals(model, [x])[0], stats.norm.ppf(middle), rtol=1e-6, atol=1e-8)

    def test_of_an_amount_of_0_the_middle_of_its_probability(self):
        rng = np.random.default_rng(1)
        x = np.where(rng.random((80, 1)) < 0.3, 0.0, rng.gamma(2.0, 5.0, (80, 1)))
        model = sm.HMM(1, observation=ZeroInflated(Gamma()), n_init=1, dtype="float64").fit([x])
        w = model.zero_weights_
        above = w + (1 - w) * stats.gamma(model.shapes_, scale=1 / model.rates_).cdf(x)
        expected = stats.norm.ppf(np.where(x == 0, 0.5 * w, above))
        np.testing.assert_allclose(residuals(model, [x])[0], expected, rtol=1e-6, atol=1e-8)
        drawn = stats.norm.cdf(residuals(model, [x], randomised=True, random_state=0)[0])
        assert (drawn[x == 0] < w[0]).all()
        assert stats.kstest(drawn[:, 0], "uniform").pvalue > 0.01

    def test_of_columns_each_feature_by_itself(self):
        rng = np.random.default_rng(2)
        x = np.stack([rng.normal(size=60), rng.poisson(2.0, 60)], 1)
        observation = sm.Columns([(sm.GaussianMixture(1), 1), (sm.Poisson(), 1)])
        model = sm.HMM(1, observation=observation, n_init=1, dtype="float64").fit([x])
        alone = [sm.HMM(1, observation=o, n_init=1, dtype="float64") for o in (sm.GaussianMixture(1), sm.Poisson())]
        expected = [residuals(m.fit([x[:, d : d + 1]]), [x[:, d : d + 1]])[0] for d, m in enumerate(alone)]
        np.testing.assert_allclose(residuals(model, [x])[0], np.hstack(expected), rtol=1e-9)

    def test_symbols_follow_their_numbers(self):
        model = sm.HMM.from_parameters([1.0], [[1.0]], emission=[[0.2, 0.5, 0.3]], dtype="float64")
        expected = stats.norm.ppf([[0.1], [0.45], [0.85]])
        np.testing.assert_allclose(residuals(model, [np.array([0, 1, 2])])[0], expected, rtol=1e-9)


def by_quadrature(model: Any) -> Callable[[Array], Array]:
    density = stats.vonmises(model.concentrations_, model.locations_).pdf
    nodes, weights = np.polynomial.legendre.leggauss(200)

    def cdf(x: Array) -> Array:
        half = 0.5 * (x + np.pi)
        return half * (density(half * (1 + nodes) - np.pi) @ weights)[:, None]

    return cdf


def zero_inflated(model: Any) -> Callable[[Array], Array]:
    w = model.zero_weights_
    return lambda x: np.where(x < 0, 0.0, w + (1 - w) * stats.poisson.cdf(x, model.rates_))


def negative_binomial(model: Any) -> Callable[[Array], Array]:
    size = 1 / model.dispersions_
    return stats.nbinom(size, size / (size + model.means_)).cdf


class TestOfOtherModels:
    @pytest.mark.parametrize("level", [0.0, 1e9])
    def test_a_kalman_filter_has_its_standardised_innovations(self, level: float):
        """The filter written out, for two states and two features, some of them unseen."""
        A, Q = np.array([[0.9, 0.2], [-0.3, 0.7]]), np.array([[0.5, 0.1], [0.1, 0.3]])
        C, R = np.array([[1.0, 0.5], [0.0, 2.0]]), np.array([[0.4, 0.2], [0.2, 1.0]])
        d, mean, P = np.full(2, level), np.array([1.0, -1.0]), np.array([[2.0, 0.5], [0.5, 1.0]])
        model = sm.LinearGaussian.from_parameters(A, Q, C, R, mean, P, intercept=d)
        x = model.sample(1, length=60, random_state=5)[0]
        x[10:14], x[30, 1] = np.nan, np.nan
        expected = np.empty_like(x)
        for t, value in enumerate(x):
            S = C @ P @ C.T + R
            innovation = value - d - C @ mean
            expected[t] = innovation / np.sqrt(np.diag(S))
            seen = ~np.isnan(value)
            gain = P @ C[seen].T @ np.linalg.inv(S[np.ix_(seen, seen)])
            mean, P = A @ (mean + gain @ innovation[seen]), A @ (P - gain @ C[seen] @ P) @ A.T + Q
        np.testing.assert_allclose(residuals(model, [x])[0], expected, rtol=1e-6, atol=1e-6)

    def test_an_autoregression_has_its_errors(self):
        rng = np.random.default_rng(6)
        x = np.zeros((300, 1))
        for t in range(1, 300):
            x[t] = 0.8 * x[t - 1] + rng.normal()
        observation = sm.AutoregressiveGaussian(1, background=0.01, predictive="plug-in")
        model = sm.HMM(1, observation=observation, n_init=1, dtype="float64").fit([x])
        error = x[1:] - model.coefficients_[0, 0] * x[:-1] - model.intercepts_[0]
        jump = (x[1:] - x[:-1]) / (np.sqrt(10.0) * model.encoding_.affine()[1])
        u = 0.99 * stats.norm.cdf(error / np.sqrt(model.covariances_[0])) + 0.01 * stats.norm.cdf(jump)
        np.testing.assert_allclose(residuals(model, [x])[0][1:], stats.norm.ppf(u), rtol=1e-6, atol=1e-8)

    def test_an_autoregression_of_few_steps_has_those_of_its_student_t(self):
        x = np.random.default_rng(7).normal(size=(30, 1)).cumsum(0)
        observation = sm.AutoregressiveGaussian(1, background=0.0, ridge=0.0)
        model = sm.HMM(1, observation=observation, n_init=1, dtype="float64").fit([x])
        design = np.column_stack([x[:-1], np.ones(29)])
        coefficients, rest, *_ = np.linalg.lstsq(design, x[1:], rcond=None)
        spread = 1 + np.einsum("ti,ij,tj->t", design, np.linalg.inv(design.T @ design), design)
        n, degrees, _ = (float(each.flatten()[0]) for each in model.observation_.posterior(model.parameters_.table, 1))
        errors = (x[1:] - design @ coefficients)[:, 0] / np.sqrt(rest[0] / 29 * n / degrees * spread)
        expected = stats.norm.ppf(stats.t(degrees).cdf(errors))
        np.testing.assert_allclose(residuals(model, [x])[0][1:, 0], expected, rtol=1e-5, atol=1e-7)

    @pytest.mark.parametrize(
        "model",
        [
            sm.hmm.HSMM(2, max_duration=6, observation=sm.GaussianMixture(2), n_init=1, max_iter=4),
            sm.hmm.ContinuousTimeHMM(2, n_init=1, max_iter=4),
            sm.hmm.MarkovSwitchingAR(2, n_init=1, max_iter=4),
            sm.HMM(3, observation=StudentT(), n_init=1, max_iter=4),
            sm.GRU(d_model=8, max_steps=20),
            sm.LinearGaussian(2, max_iter=4),
        ],
        ids=lambda model: type(model).__name__,
    )
    def test_draws_of_the_model_itself_are_normal_and_white(self, model: sm.SequenceModel):
        fitted = model.fit([MODEL.sample(1, length=200, random_state=8)[0][:, :1]], validation=None)
        found = check(fitted, fitted.sample(4, length=500, random_state=9), n_simulations=0, level=0.999)
        assert found.findings == ()
        assert stats.kstest(np.concatenate(found.residuals)[:, 0], "norm").pvalue > 0.01

    def test_inputs_and_pasts_are_read(self):
        rng = np.random.default_rng(10)
        u = [rng.normal(size=(60, 1)) for _ in range(3)]
        x = sm.Sequences([3.0 * each + rng.normal(size=(60, 1)) for each in u], inputs=u, input_names=["u"])
        model = sm.HMM(
            1, observation=sm.GaussianMixture(1), input_effects=sm.hmm.ChainInputEffects(emissions=["u"]), n_init=1
        ).fit(x)
        found = residuals(model, x)
        data = Data.of(x)
        examples = model._setting().examples(data)
        for each, (below, up_to) in zip(found, cdfs_by_cursor(model, examples), strict=True):
            np.testing.assert_allclose(each, stats.norm.ppf(0.5 * (below + up_to)), rtol=1e-5, atol=1e-6)
        assert np.concatenate(found).std() == pytest.approx(1.0, abs=0.05)
        past = {"past": [x[0][:20]], "past_inputs": [u[0][:20]]}
        late = sm.Sequences([x[0][20:]], inputs=[u[0][20:]], input_names=["u"], **past)
        np.testing.assert_allclose(residuals(model, late)[0], found[0][20:], rtol=1e-9)

    def test_of_targets_given_sources(self):
        x = [MODEL.sample(1, length=n, random_state=n)[0] for n in (5, 9, 7)]
        y = [MODEL.sample(1, length=n, random_state=n)[0] for n in (8, 4, 6)]
        model = sm.HMM(2, observation=sm.GaussianMixture(1), n_init=1, max_iter=3, dtype="float64").fit(x, y)
        for given in ("past", "rest"):
            found = check(model, x, y, given=given, n_simulations=20).residuals
            assert [len(each) for each in found] == [8, 4, 6]
        examples = model._setting().examples(Data.of(x, y))
        together = [
            cdfs_of_steps(model, *each) for each in zip(model._step_predictions(examples), examples, strict=True)
        ]
        for (_, a), (_, b) in zip(together, cdfs_by_cursor(model, examples), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9)

    def test_a_series_that_is_read_as_changes_has_none_in_its_first_frame(self):
        x = np.random.default_rng(11).normal(size=(300, 1)).cumsum(0)
        encoding = sm.encodings.Chain([sm.encodings.Differences(1), sm.Standardize()])
        model = sm.HMM(1, observation=sm.GaussianMixture(1), encoding=encoding, n_init=1).fit([x])
        found = check(model, [x]).residuals[0]
        change = np.diff(x, axis=0)
        assert np.isnan(found[0]).all()
        np.testing.assert_allclose(found[1:], (change - change.mean()) / change.std(), rtol=1e-3, atol=1e-3)


class TestSimulatedData:
    """They have the lengths, pasts, inputs, times and missing values of the data."""

    def test_of_counts_given_inputs_and_a_past(self):
        rng = np.random.default_rng(23)
        u = [rng.normal(size=(n, 1)) for n in (50, 30)]
        x = [rng.poisson(np.exp(1 + each)).astype(float) for each in u]
        data = sm.Sequences(x, inputs=u, input_names=["u"])
        effects = sm.hmm.ChainInputEffects(emissions=["u"])
        model = sm.HMM(1, observation=sm.Poisson(), input_effects=effects, n_init=1).fit(data)
        x[0][7] = np.nan
        past: dict[str, Any] = {"past": [x[1][:9], None], "past_inputs": [u[1][:9], None]}
        data = sm.Sequences(x, inputs=u, input_names=["u"], **past)
        (drawn,) = drawn_data(model, Data.of(data), 30, 0)
        assert [len(each) for each in drawn.X] == [50, 30] * 30
        assert np.isnan(drawn.X[0]).nonzero()[0].tolist() == [7]
        np.testing.assert_array_equal(drawn.X.past[2], x[1][:9])
        every = np.stack([drawn.X[i][:, 0] for i in range(1, 60, 2)])
        expected = np.exp(1 + u[1][:, 0])
        assert (np.abs(every.mean(0) - expected) < 5 * np.sqrt(expected / 30) + 0.1).all()
        assert check(model, data, n_simulations=20).findings == ()

    def test_they_go_on_from_the_past(self):
        """States never change, and the past tells which one it is."""
        model = sm.HMM.from_parameters([0.5, 0.5], np.eye(2), rates=[[0.1], [50.0]])
        x = sm.Sequences([np.full((20, 1), 50.0)], past=[np.full((3, 1), 50.0)])
        (drawn,) = drawn_data(model, Data.of(x), 20, 0)
        assert min(each.min() for each in drawn.X) > 10

    def test_of_times(self):
        rng = np.random.default_rng(26)
        times = [np.cumsum(rng.exponential(size=40)) for _ in range(2)]
        x = sm.Sequences([rng.normal(size=(40, 1)) for _ in times], times=times)
        model = sm.hmm.ContinuousTimeHMM(2, n_init=1, max_iter=3).fit(x)
        (drawn,) = drawn_data(model, Data.of(x), 20, 0)
        np.testing.assert_array_equal(drawn.X.times[2], times[0])
        assert check(model, x, given="rest", n_simulations=20).findings == ()

    def test_of_symbols_in_several_parts(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr("seqmodels.evaluation.model_check.MAX_DRAWN", 100)
        model = sm.HMM.from_parameters(INITIAL, TRANSITION, emission=[[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]])
        x = model.sample(1, length=40, random_state=25)
        assert [len(each.X) for each in drawn_data(model, Data.of(x), 5, 0)] == [2, 2, 1]
        assert check(model, x, n_simulations=20).findings == ()


class TestNothingElseCounts:
    X = MODEL.sample(5, length=40, random_state=12)

    def test_order_file_and_threads(self, tmp_path):
        expected = residuals(MODEL, self.X)
        MODEL.save(tmp_path / "model.safetensors")
        loaded = sm.load(tmp_path / "model.safetensors")
        for a, b in zip(residuals(loaded, self.X), expected, strict=True):
            np.testing.assert_array_equal(a, b)
        for a, b in zip(residuals(MODEL, self.X[::-1])[::-1], expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12)
        results: dict[int, list[Array]] = {}
        threads = [
            threading.Thread(target=lambda i=i: results.__setitem__(i, residuals(MODEL, self.X))) for i in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for each in results.values():
            for a, b in zip(each, expected, strict=True):
                np.testing.assert_array_equal(a, b)

    def test_a_shift_and_a_scale(self):
        moved = sm.HMM.from_parameters(
            INITIAL, TRANSITION, means=1e9 + 1024 * MEANS, covariances=1024.0**2 * VARIANCES, dtype="float64"
        )
        for a, b in zip(residuals(moved, [1e9 + 1024 * x for x in self.X]), residuals(MODEL, self.X), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)

    def test_the_seed_repeats(self):
        first, second = (check(COUNTS, COUNTS.sample(2, length=30), n_simulations=20, random_state=3) for _ in range(2))
        assert first.table.equals(second.table)
        assert first.quantiles.equals(second.quantiles)


class TestStatistics:
    def test_autocorrelations_and_ljung_box_by_their_sums(self):
        x = np.random.default_rng(13).normal(size=(1, 50)).cumsum(1)
        found, n_pairs = autocorrelations(x, 4)
        centred = x[0] - x[0].mean()
        plain = [(centred[k:] * centred[:-k]).sum() / np.square(centred).sum() for k in range(1, 5)]
        np.testing.assert_allclose(found[:, 0] * n_pairs[:, 0] / 50, plain)
        q = 50 * 52 * sum(r**2 / (50 - k) for k, r in enumerate(plain, 1))
        np.testing.assert_allclose(ljung_box(found, n_pairs, np.array([50])), [q])

    def test_no_pair_spans_two_sequences_or_a_missing_value(self):
        parts = [np.array([1.0, -1.0, 1.0]), np.array([1.0, -1.0])]
        joined = np.concatenate([parts[0], [np.nan], parts[1]])[None]
        found, n_pairs = autocorrelations(joined, 1)
        mean = 0.2
        products = [(a - mean) * (b - mean) for each in parts for a, b in itertools.pairwise(each)]
        assert n_pairs[0, 0] == 3
        assert found[0, 0] == pytest.approx(np.mean(products) / np.var(np.concatenate(parts)))

    def test_anderson_darling_by_its_integral_and_its_critical_values(self):
        x = np.sort(np.random.default_rng(14).normal(size=9))
        grid = np.linspace(1e-7, 1 - 1e-7, 2_000_001)
        empirical = np.searchsorted(stats.norm.cdf(x), grid, side="right") / 9
        integral = 9 * np.trapezoid((empirical - grid) ** 2 / (grid * (1 - grid)), grid)
        assert anderson_darling(x) == pytest.approx(integral, rel=1e-4)
        # Stephens (1974), table 1, case 0
        np.testing.assert_allclose(p_of_anderson_darling(np.array([1.933, 2.492, 3.857])), [0.1, 0.05, 0.01], rtol=0.03)

    def test_the_table_has_moments_by_scipy(self):
        x = ONE_STATE.sample(3, length=50, random_state=15)
        found = check(ONE_STATE, x, n_simulations=0)
        r = np.concatenate(found.residuals)
        table = found.table
        np.testing.assert_allclose(table["mean"], r.mean(0))
        np.testing.assert_allclose(table["deviation"], r.std(0))
        np.testing.assert_allclose(table["skewness"], stats.skew(r))
        np.testing.assert_allclose(table["kurtosis"], stats.kurtosis(r))
        assert table["n"].tolist() == [150, 150]
        bound = 1.959964 / np.sqrt(3 * 49)
        np.testing.assert_allclose(table["autocorrelation_high"], bound, rtol=1e-5)
        squares = check(ONE_STATE, [x[0]], n_simulations=0).residuals[0] ** 2
        expected = autocorrelations(squares.T, 1)[0][0]
        found_one = check(ONE_STATE, [x[0]], n_simulations=0).table
        np.testing.assert_allclose(found_one["squares_autocorrelation"], expected)


class TestFindings:
    def test_a_model_that_lacks_states_is_told_what_it_lacks(self):
        x = MODEL.sample(3, length=300, random_state=16)
        found = check(ONE_STATE, x)
        assert any("feature 0 are correlated at lag" in each for each in found.findings)
        assert any("feature 0 do not have the distribution" in each for each in found.findings)
        assert found.table.loc[0, "p_ljung_box"] < 1e-10
        assert "correlated" in repr(found)
        assert "correlated" in found._repr_html_()

    def test_a_spread_that_changes_is_found_in_the_squares(self):
        rng = np.random.default_rng(17)
        spread = np.repeat(rng.choice([0.3, 2.0], 60), 20)
        x = sm.Sequences([(spread * rng.normal(size=1200))[:, None]], features=["return"])
        model = sm.HMM(1, observation=sm.GaussianMixture(1), n_init=1).fit(x)
        found = check(model, x)
        assert [each.split(" are ")[0] for each in found.findings if "squared" in each] == [
            "The squared residuals of `return`"
        ]
        assert any("tails of the data are heavier" in each for each in found.findings)

    @pytest.mark.parametrize(("scale", "words"), [(2.0, "too narrow"), (0.5, "too wide")])
    def test_a_wrong_deviation_says_which_way(self, scale: float, words: str):
        x = [1.0 + scale * (each - 1.0) for each in ONE_STATE.sample(1, length=500, random_state=18)]
        assert words in check(ONE_STATE, x).findings[0]

    @pytest.mark.slow
    @pytest.mark.parametrize(("model", "given"), [(MODEL, "past"), (MODEL, "rest"), (COUNTS, "past"), (COUNTS, "rest")])
    def test_the_right_model_is_seldom_accused(self, model: sm.HMM, given: str):
        """At 80 %, of 40 short data sets; Binomial(40, 0.2) is 2 to 17 with probability 0.998."""
        draws = (model.sample(2, length=40, random_state=i) for i in range(40))
        accused = sum(bool(check(model, x, given=given, level=0.8, n_simulations=30).findings) for x in draws)
        assert 2 <= accused <= 17

    def test_given_the_rest_correlations_are_compared_with_those_of_simulations(self):
        """An ordinary residual is conditioned on its neighbours, so that neighbours' residuals are correlated."""
        rows = np.array([[0.97, 0.03], [0.03, 0.97]])
        model = sm.HMM.from_parameters([0.5, 0.5], rows, means=[[0.0], [1.5]], covariances=[[1.0], [1.0]])
        x = model.sample(4, length=500, random_state=19)
        found = check(model, x, given="rest")
        assert found.findings == ()
        low, high = found.table[["autocorrelation_low", "autocorrelation_high"]].iloc[0]
        assert low + high < -0.02

    def test_a_long_sequence_and_a_short_one(self):
        x = MODEL.sample(1, length=20_000, random_state=20)
        assert check(MODEL, x, n_simulations=20).findings == ()
        tiny = check(MODEL, [x[0][:1]], n_simulations=20)
        assert tiny.n_lags == 0
        assert np.isnan(tiny.table["p_ljung_box"]).all()
        assert tiny.findings == ()
        tiny.plot().figure.canvas.draw()


class TestRefusals:
    X = MODEL.sample(1, length=10, random_state=21)

    def test_of_arguments(self):
        with pytest.raises(ValueError, match="pass 20 to 100000, or 0"):
            check(MODEL, self.X, n_simulations=5)
        with pytest.raises(ValueError, match="probability between 0 and 1"):
            check(MODEL, self.X, level=95)
        with pytest.raises(ValueError, match="no feature 'speed'"):
            check(MODEL, self.X, n_simulations=0).plot("speed")

    def test_of_models(self):
        with pytest.raises(ValueError, match="no order"):
            check(sm.NGram(1).fit(["to be", "or not"]), ["to be"])
        hsmm = sm.hmm.HSMM(2, max_duration=3, n_init=1, max_iter=1).fit(self.X)
        with pytest.raises(ValueError, match="given='past'"):
            check(hsmm, self.X, given="rest")
        with pytest.raises(ValueError, match="given='past'"):
            check(sm.LinearGaussian(1, max_iter=1).fit(self.X), self.X, given="rest")
        ar = sm.HMM(2, observation=sm.AutoregressiveGaussian(1), n_init=1, max_iter=1).fit(self.X)
        with pytest.raises(ValueError, match="depends on past steps"):
            check(ar, self.X, given="rest")


def test_the_picture_shows_the_feature_that_stands_out():
    x = [
        np.hstack([each[:, :1], 4.5 + np.random.default_rng(22).normal(size=(300, 1))])
        for each in MODEL.sample(1, length=300)
    ]
    found = check(ONE_STATE, sm.Sequences(x, features=["speed", "noise"]))
    panels = found.plot()
    assert len(panels) == 4
    assert panels[0].get_title(loc="left") == "Pseudo-residuals of speed"
    (points,) = [line for line in panels[0].lines if line.get_gid() == "quantiles"]
    of_speed = found.quantiles[found.quantiles["feature"] == "speed"]
    np.testing.assert_array_equal(points.get_ydata(), of_speed["residual"])
    (lags,) = [line for line in panels[3].lines if line.get_gid() == "lags"]
    of_speed = found.autocorrelations[found.autocorrelations["feature"] == "speed"]
    np.testing.assert_array_equal(lags.get_ydata(), of_speed["autocorrelation"])
    again = found.plot("noise", ax=panels)
    assert again[0].get_title(loc="left") == "Pseudo-residuals of noise"
