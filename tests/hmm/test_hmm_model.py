"""The HMM as users meet it: against hmmlearn, by its parameters, and at the edges."""

from __future__ import annotations

import itertools
import time
import warnings
from typing import Any

import hmmlearn.hmm
import numpy as np
import pytest
from numpy.testing import assert_allclose

import seqmodels as sm
from seqmodels import HMM, AutoregressiveGaussian, Bytes, Categorical, GaussianMixture, NotFittedError
from seqmodels.encodings import Standardize
from seqmodels.hmm.emissions import emission_of

LENGTHS = [47, 1, 60, 18, 60]
OPTIONS: dict[str, Any] = {"dtype": "float64", "tol": 0.0}


def chain(rng: np.random.Generator, k: int) -> tuple[np.ndarray, np.ndarray]:
    return rng.dirichlet(np.ones(k)), rng.dirichlet(np.ones(k), size=k)


def spd(rng: np.random.Generator, *shape: int) -> np.ndarray:
    root = rng.normal(size=(*shape, shape[-1]))
    return root @ np.swapaxes(root, -1, -2) + 0.5 * np.eye(shape[-1])


def frames(rng: np.random.Generator, d: int = 2, lengths: list[int] = LENGTHS) -> list[np.ndarray]:
    """Vectors of three kinds that follow one another in runs, far from standardised."""
    centres = rng.normal(scale=3, size=(3, d))
    states = [np.repeat(rng.integers(3, size=n // 3 + 1), 3)[:n] for n in lengths]
    return [5 + 2 * (centres[z] + rng.normal(size=(len(z), d))) for z in states]


def gaussians(kind: str, rng: np.random.Generator, k: int = 3, m: int = 1, d: int = 2) -> dict[str, Any]:
    covariances = 4 * spd(rng, k, m, d) if kind == "full" else rng.uniform(2, 20, size=(k, m, d))
    w = rng.dirichlet(np.ones(m), size=k)
    return {
        "weights": w,
        "means": rng.normal(5, 4, size=(k, m, d)),
        "covariances": covariances,
        "covariance_type": kind,
    }


def hmmlearn_gaussian(kind: str, initial: Any, transition: Any, p: dict[str, Any], n_iter: int) -> Any:
    their = hmmlearn.hmm.GaussianHMM(
        len(initial),
        kind,
        init_params="",
        n_iter=n_iter,
        tol=-np.inf,
        covars_prior=0.0,
        covars_weight=0.0,
        min_covar=0.0,
    )
    their.startprob_, their.transmat_ = initial, transition
    their.means_, their.covars_ = p["means"][:, 0], p["covariances"][:, 0]
    return their


def hmmlearn_mixture(initial: Any, transition: Any, p: dict[str, Any], n_iter: int) -> Any:
    k, m = p["weights"].shape
    their = hmmlearn.hmm.GMMHMM(k, m, covariance_type="diag", init_params="", n_iter=n_iter, tol=-np.inf, min_covar=0.0)
    their.startprob_, their.transmat_ = initial, transition
    their.n_features = p["means"].shape[-1]
    their.weights_, their.means_, their.covars_ = p["weights"], p["means"], p["covariances"]
    return their


def same_chain(our: HMM, their: Any) -> None:
    assert_allclose(our.initial_, their.startprob_, rtol=1e-7, atol=1e-10)
    assert_allclose(our.transition_, their.transmat_, rtol=1e-7, atol=1e-10)


# -- against hmmlearn --------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_iter", [1, 10])
@pytest.mark.parametrize("kind", ["diag", "full"])
def test_gaussian_em_is_hmmlearns(kind: str, n_iter: int) -> None:
    rng = np.random.default_rng(21)
    (initial, transition), x = chain(rng, 3), frames(rng)
    start = gaussians(kind, rng)
    our = HMM.from_parameters(initial, transition, **start, warm_start=True, max_iter=n_iter, **OPTIONS).fit(x)
    their = hmmlearn_gaussian(kind, initial, transition, start, n_iter).fit(np.concatenate(x), LENGTHS)
    same_chain(our, their)
    assert_allclose(our.means_[:, 0], their.means_, rtol=1e-7)
    assert_allclose(our.covariances_[:, 0], their.covars_ if kind == "full" else _diagonals(their.covars_), rtol=1e-6)
    assert_allclose(our.history_["log_prob"][:-1] * sum(LENGTHS), their.monitor_.history, rtol=1e-9)
    assert_allclose(our.log_prob(x).sum(), their.score(np.concatenate(x), LENGTHS), rtol=1e-9)


def _diagonals(covariances: np.ndarray) -> np.ndarray:
    return np.diagonal(covariances, axis1=-2, axis2=-1)


@pytest.mark.parametrize("n_iter", [1, 10])
def test_mixture_em_is_hmmlearns(n_iter: int) -> None:
    rng = np.random.default_rng(1)
    (initial, transition), x = chain(rng, 3), frames(rng)
    start = gaussians("diag", rng, m=2)
    our = HMM.from_parameters(initial, transition, **start, warm_start=True, max_iter=n_iter, **OPTIONS).fit(x)
    their = hmmlearn_mixture(initial, transition, start, 1)
    for _ in range(n_iter):
        before = their.means_
        their.fit(np.concatenate(x), LENGTHS)
        # hmmlearn centres on the means before the step; the M-step of highest likelihood on those after it.
        their.covars_ = their.covars_ - (their.means_ - before) ** 2
    same_chain(our, their)
    assert_allclose(our.weights_, their.weights_, rtol=1e-7)
    assert_allclose(our.means_, their.means_, rtol=1e-7)
    assert_allclose(our.covariances_, their.covars_, rtol=1e-6)
    assert_allclose(our.log_prob(x).sum(), their.score(np.concatenate(x), LENGTHS), rtol=1e-9)


@pytest.mark.parametrize("n_iter", [1, 10])
def test_categorical_em_is_hmmlearns(n_iter: int) -> None:
    rng = np.random.default_rng(2)
    (initial, transition), emission = chain(rng, 3), rng.dirichlet(np.ones(4), size=3)
    x = [rng.integers(4, size=n) for n in LENGTHS]
    our = HMM.from_parameters(initial, transition, emission=emission, warm_start=True, max_iter=n_iter, **OPTIONS).fit(
        x
    )
    their = hmmlearn.hmm.CategoricalHMM(3, init_params="", n_iter=n_iter, tol=-np.inf)
    their.startprob_, their.transmat_, their.emissionprob_ = initial, transition, emission
    their.fit(np.concatenate(x)[:, None], LENGTHS)
    same_chain(our, their)
    assert_allclose(our.emission_, their.emissionprob_, rtol=1e-7, atol=1e-10)
    assert_allclose(our.log_prob(x).sum(), their.score(np.concatenate(x)[:, None], LENGTHS), rtol=1e-9)


@pytest.mark.parametrize("kind", ["diag", "full"])
def test_decode_and_posterior_are_hmmlearns(kind: str) -> None:
    rng = np.random.default_rng(3)
    (initial, transition), x = chain(rng, 3), frames(rng)
    start = gaussians(kind, rng)
    our = HMM.from_parameters(initial, transition, **start, **OPTIONS)
    their = hmmlearn_gaussian(kind, initial, transition, start, 0)
    their.n_features = 2
    assert np.array_equal(np.concatenate(our.decode(x)), their.decode(np.concatenate(x), LENGTHS)[1])
    gamma = their.predict_proba(np.concatenate(x), LENGTHS)
    assert_allclose(np.concatenate(our.posterior(x)), gamma, atol=1e-9)
    assert [len(path) for path in our.decode(x)] == LENGTHS


# -- by its parameters -------------------------------------------------------------------------------------

GOOD: dict[str, Any] = {"initial": [0.5, 0.5], "transition": [[0.5, 0.5], [0.25, 0.75]]}
ONE_D: dict[str, Any] = {"means": [[0.0], [3.0]], "covariances": [[1.0], [2.0]]}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"initial": [0.5, 0.6]}, "initial .*sum to one"),
        ({"initial": [-0.5, 1.5]}, "initial .*probabilities"),
        ({"initial": [np.nan, 1.0]}, "initial .*probabilities"),
        ({"transition": [[0.5, 0.5], [0.25, 0.7]]}, "transition .*sum to one"),
        ({"transition": [[1.0]]}, r"shape \(1, 1\); pass \(2, 2\)"),
        ({"final": [0.5, 0.5]}, "transition with final .*sum to one"),
        ({"final": [0.0]}, r"\(2, 2\) and \(1,\)"),
        ({"means": None}, "pass means and covariances"),
        ({"means": [[0.0], [np.nan]]}, "finite"),
        ({"means": [[0.0], [1.0], [2.0]]}, r"means have shape \(3, 1, 1\)"),
        ({"covariances": [[1.0], [0.0]]}, "positive definite"),
        ({"covariance_type": "round"}, 'pass "diag", "spherical", "full" or "tied"'),
        ({"weights": [[0.5, 0.4]] * 2}, "weights .*sum to one"),
        ({"covariances": [[[1.0]], [[-1.0]]], "covariance_type": "full"}, "positive definite"),
        ({"observation": GaussianMixture(2)}, "observation is GaussianMixture"),
        ({"observation": GaussianMixture(1, min_covariance=0.9)}, "min_covariance=0.9"),
        ({"emission": [[0.5, 0.5]]}, r"emission has shape \(1, 2\); pass \(2, V\): a row for each state"),
        ({"emission": [[0.5, 0.5]] * 2, "encoding": Bytes().restore({})}, "reads 256"),
        ({"emission": [[0.5, 0.5]] * 2, "observation": GaussianMixture(1)}, "Categorical"),
    ],
)
def test_impossible_parameters_are_refused(change: dict[str, Any], says: str) -> None:
    assert HMM.from_parameters(**GOOD, **ONE_D).n_states == 2
    with pytest.raises(ValueError, match=says):
        HMM.from_parameters(**(GOOD | ONE_D | change))


def test_asymmetric_covariances_are_refused() -> None:
    with pytest.raises(ValueError, match="symmetric"):
        HMM.from_parameters(
            [1.0], [[1.0]], means=[[0.0, 0.0]], covariances=[[[1.0, 0.5], [0.0, 1.0]]], covariance_type="full"
        )


@pytest.mark.parametrize("kind", ["diag", "full", "tied", "spherical"])
@pytest.mark.parametrize("length", ["given", "stop"])
def test_a_model_is_its_parameters(kind: Any, length: Any) -> None:
    x = frames(np.random.default_rng(4))
    fitted = HMM(2, observation=GaussianMixture(2, kind), length=length, dtype="float64", max_iter=5).fit(x)
    final = fitted.final_ if length == "stop" else None
    again = HMM.from_parameters(
        fitted.initial_,
        fitted.transition_,
        final,
        weights=fitted.weights_,
        means=fitted.means_,
        covariances=fitted.covariances_,
        covariance_type=kind,
        dtype="float64",
    )
    assert_allclose(again.log_prob(x), fitted.log_prob(x), rtol=1e-10)
    assert_allclose(again.means_, fitted.means_, rtol=1e-12)
    assert_allclose(again.covariances_, fitted.covariances_, rtol=1e-9)
    assert again.measure_ == fitted.measure_


def test_a_text_model_is_its_parameters() -> None:
    x = ["abba", "bab", "a"]
    fitted = HMM(2, dtype="float64", max_iter=5).fit(x)
    again = HMM.from_parameters(
        fitted.initial_,
        fitted.transition_,
        fitted.final_,
        emission=fitted.emission_,
        encoding=fitted.encoding_,
        dtype="float64",
    )
    assert_allclose(again.log_prob(x), fitted.log_prob(x), rtol=1e-10)


def test_narrow_far_gaussians_score_alike_in_float32() -> None:
    x = [1e4 + 0.1 * np.random.default_rng(5).normal(size=(40, 2))]
    given: dict[str, Any] = {"means": [[1e4, 1e4]], "covariances": [[0.01, 0.01]]}
    models = [HMM.from_parameters([1.0], [[1.0]], **given, dtype=d) for d in ("float32", "float64")]
    assert_allclose(models[0].log_prob_steps(x)[0], models[1].log_prob_steps(x)[0], atol=1e-4)


def test_given_units_are_used() -> None:
    units = Standardize().restore({"mean": np.array([1.0]), "scale": np.array([4.0])})
    a = HMM.from_parameters(**GOOD, **ONE_D, encoding=units, dtype="float64")
    b = HMM.from_parameters(**GOOD, **ONE_D, dtype="float64")
    assert a.encoding_ is units
    assert_allclose(a.log_prob([np.arange(5.0)[:, None]]), b.log_prob([np.arange(5.0)[:, None]]), rtol=1e-12)


def test_n_parameters() -> None:
    x = frames(np.random.default_rng(6))
    symbols = [np.array([0, 1, 2, 2, 1]), np.array([2, 0])]
    quick: dict[str, Any] = {"max_iter": 1, "dtype": "float64"}
    chain_of_3 = 2 + 3 * 2
    assert HMM(3, observation=GaussianMixture(2), **quick).fit(x).n_parameters_ == chain_of_3 + 3 * (1 + 4 + 4)
    assert HMM(3, observation=GaussianMixture(2, "full"), **quick).fit(x).n_parameters_ == chain_of_3 + 3 * (1 + 4 + 6)
    assert HMM(3, **quick).fit(symbols).n_parameters_ == chain_of_3 + 3 + 3 * 2  # ends, too
    ar = HMM(3, observation=AutoregressiveGaussian(2), **quick).fit(x)
    assert ar.n_parameters_ == chain_of_3 + 3 * (2 * 5 + 3) + (2 + 3)  # the first steps' Gaussian is shared


def test_an_unfitted_model_says_so() -> None:
    for name in ("initial_", "means_", "n_parameters_"):
        with pytest.raises(NotFittedError, match="not fitted"):
            getattr(HMM(2), name)
    with pytest.raises(AttributeError, match="no attribute 'emission_'"):
        _ = HMM.from_parameters(**GOOD, **ONE_D).emission_


# -- fitting -----------------------------------------------------------------------------------------------


def test_rows_sum_to_one_with_the_end() -> None:
    model = HMM(3, dtype="float64").fit([np.array([0, 1, 1, 0]), np.array([1]), np.array([2, 2, 0])])
    assert_allclose(model.transition_.sum(1) + model.final_, 1, rtol=1e-12)
    assert (model.final_ > 0).any()
    given = HMM(3, length="given", dtype="float64").fit([np.array([0, 1, 1, 0])])
    assert_allclose(given.transition_.sum(1), 1, rtol=1e-12)
    assert (given.final_ == 0).all()


def test_n_init_keeps_the_best() -> None:
    x = [np.random.default_rng(7).integers(4, size=60)]
    options: dict[str, Any] = {"max_iter": 15, "length": "given", "start": "free", **OPTIONS}
    alone = [HMM(3, n_init=1, random_state=seed, **options).fit(x).history_["objective"].iloc[-1] for seed in range(5)]
    assert len(set(alone)) > 1
    together = HMM(3, n_init=5, **options).fit(x)
    assert max(alone) > alone[0]
    # Side by side the sums are those of each alone, in another order.
    assert_allclose(together.history_["objective"].iloc[-1], max(alone), rtol=1e-13)


def test_a_start_that_ends_on_the_floor_loses() -> None:
    rng = np.random.default_rng(12)
    near = 0.3 + 1e-3 * rng.normal(size=(80, 1))
    x = [np.where(rng.random((80, 1)) < 0.1, near, rng.normal(size=(80, 1)))]
    options: dict[str, Any] = {"observation": GaussianMixture(1, min_covariance=0.001), "max_iter": 30, **OPTIONS}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        alone = [HMM(4, n_init=1, random_state=seed, **options).fit(x).history_.iloc[-1] for seed in range(3)]
    clean = [row["objective"] for row in alone if row["floor_hits"] == 0]
    collapsed = [row["objective"] for row in alone if row["floor_hits"] > 0]
    assert max(collapsed) > max(clean)
    best = HMM(4, n_init=3, **options).fit(x).history_["objective"].iloc[-1]
    assert best == pytest.approx(max(clean), rel=1e-12)


def test_a_fit_on_the_floor_warns_once() -> None:
    x = [np.repeat(np.random.default_rng(9).normal(size=(20, 2)), 2, axis=0)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        HMM(3, observation=GaussianMixture(1, min_covariance=0.9), n_init=3, max_iter=3).fit(x)
    floor = [w for w in caught if "min_covariance=0.9" in str(w.message)]
    assert len(floor) == 1
    assert floor[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        HMM(2, observation=GaussianMixture(1), max_iter=3).fit(frames(np.random.default_rng(9)))


def test_warm_start_goes_on() -> None:
    x = frames(np.random.default_rng(10))
    options: dict[str, Any] = {"observation": GaussianMixture(2), **OPTIONS}
    long = HMM(2, max_iter=7, **options).fit(x)
    parts = HMM(2, max_iter=4, warm_start=True, **options).fit(x).set_params(max_iter=3).fit(x)
    assert_allclose(parts.means_, long.means_, rtol=1e-12)
    assert_allclose(parts.history_["objective"], long.history_["objective"][4:], rtol=1e-12)
    with pytest.raises(ValueError, match="n_states=3 differs"):
        parts.set_params(n_states=3).fit(x)
    with pytest.raises(ValueError, match=r"observation=.* differs"):
        parts.set_params(n_states=2, observation=GaussianMixture(3)).fit(x)
    with pytest.raises(ValueError, match="length='stop' differs"):
        parts.set_params(observation=GaussianMixture(2), length="stop").fit(x)
    assert_allclose(parts.log_prob(x), long.log_prob(x), rtol=1e-12)  # refused before anything was touched


def test_how_long_em_runs() -> None:
    x = frames(np.random.default_rng(11))
    model = HMM(1, observation=GaussianMixture(1), max_iter=6, **OPTIONS).fit(x)
    assert len(model.history_) == 7  # converged after the first step, and yet
    assert not model.converged_
    slow = HMM(3, observation=GaussianMixture(1), dtype="float64").fit(x)  # tol=1e-4
    assert slow.converged_
    *earlier, last = slow.history_["objective"].diff()[1:]
    assert min(earlier) >= 1e-4 > last
    began = time.perf_counter()
    model.set_params(tol=0.0, max_iter=10**6, max_seconds=0.05).fit(x)
    assert time.perf_counter() - began < 2
    assert len(HMM(2, max_iter=0).fit(x).history_) == 1


def test_history_is_in_raw_units() -> None:
    x = frames(np.random.default_rng(12))
    model = HMM(2, max_iter=3, **OPTIONS).fit(x, validation=x[:2])
    assert_allclose(model.history_["log_prob"].iloc[-1], model.score(x), rtol=1e-10)
    assert model.history_["validation"].isna().tolist() == [True, True, True, False]
    assert_allclose(model.history_["validation"].iloc[-1], model.score(x[:2]), rtol=1e-10)


def test_a_weight_is_a_number_of_copies() -> None:
    x = frames(np.random.default_rng(13))
    start = HMM(2, max_iter=0, warm_start=True, observation=GaussianMixture(2), **OPTIONS).fit(x)
    parameters = start.parameters_
    weighted = start.set_params(max_iter=3).fit(x, sample_weight=[1, 2, 1, 0, 3]).means_
    start.parameters_ = parameters
    copied = start.fit([x[0], x[1], x[1], x[2], x[4], x[4], x[4]]).means_
    assert_allclose(weighted, copied, rtol=1e-9)


@pytest.mark.parametrize("covariance_type", ["full", "diag"])
def test_one_autoregressive_state_is_least_squares(covariance_type: Any) -> None:
    rng = np.random.default_rng(14)
    a, series = np.array([[0.6, 0.3], [-0.2, 0.5]]), [np.zeros(2)]
    for _ in range(300):
        series.append(a @ series[-1] + [1, -2] + rng.normal(size=2) * [1, 0.5])
    x = [np.array(series[1:200]) * [100, 1] + 7, np.array(series[200:]) * [100, 1] + 7]
    observation = AutoregressiveGaussian(2, covariance_type, ridge=0.0, background=0.0)
    model = HMM(1, observation=observation, dtype="float64", max_iter=2).fit(x)
    rows = [np.hstack([s[:-2], s[1:-1], np.ones((len(s) - 2, 1))]) for s in x]  # oldest first
    regressors, target = np.vstack(rows), np.vstack([s[2:] for s in x])
    solution = np.linalg.lstsq(regressors, target, rcond=None)[0].T
    assert_allclose(model.coefficients_[0], solution[:, :4], rtol=1e-7, atol=1e-9)
    assert_allclose(model.intercepts_[0], solution[:, 4], rtol=1e-7)
    residuals = target - regressors @ solution.T
    covariance = residuals.T @ residuals / len(residuals)
    assert_allclose(model.covariances_[0], covariance if covariance_type == "full" else np.diag(covariance), rtol=1e-7)


# -- p(y | x) ----------------------------------------------------------------------------------------------


def test_conditional_is_joint_over_marginal() -> None:
    rng = np.random.default_rng(15)
    x, y = frames(rng, lengths=[3, 6, 2]), frames(rng, lengths=[4, 1, 5])
    model = HMM(2, observation=GaussianMixture(4), n_init=1, max_iter=3, dtype="float64").fit(x, y)
    chain_ = HMM.from_parameters(
        model.initial_,
        model.transition_,
        weights=model.weights_,
        means=model.means_,
        covariances=model.covariances_,
        dtype="float64",
    )
    both = [np.concatenate(pair) for pair in zip(x, y, strict=True)]
    assert_allclose(model.log_prob(x, y), chain_.log_prob(both) - chain_.log_prob(x), rtol=1e-9)
    assert_allclose(model.history_["log_prob"].iloc[-1], chain_.score(both), rtol=1e-9)
    assert [len(path) for path in model.decode(x, y)] == [7, 7, 7]


def test_conditional_with_an_end_sums_to_one() -> None:
    model = HMM(2, dtype="float64", max_iter=4).fit(
        [np.array([0, 1]), np.array([1])], [np.array([0]), np.array([1, 1])]
    )
    assert model.parameters_.final is not None
    model.parameters_.final.fill_(0.6)
    model.parameters_.transition.mul_(0.4 / model.parameters_.transition.sum(1, keepdim=True))
    total = 0.0
    for size in range(1, 12):
        y = [np.array(word) for word in itertools.product(range(2), repeat=size)]
        total += np.exp(model.log_prob([np.array([1, 0])] * len(y), y)).sum()
    assert_allclose(total, 1 - 0.4**11, rtol=1e-9)


# -- at the edges ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("observation", [GaussianMixture(4), GaussianMixture(3, "full"), AutoregressiveGaussian(2)])
@pytest.mark.parametrize("lengths", [[1, 2], [3], [1, 1, 1]])
@pytest.mark.filterwarnings("ignore:.*min_covariance")
def test_fewer_frames_than_states_and_components(observation: Any, lengths: list[int]) -> None:
    x = frames(np.random.default_rng(16), lengths=lengths)
    if isinstance(observation, AutoregressiveGaussian) and max(lengths) <= observation.order:
        with pytest.raises(ValueError, match="so no step has such a past"):
            HMM(6, observation=observation, max_iter=10).fit(x)
        return
    _valid(HMM(6, observation=observation, max_iter=10).fit(x), x)


@pytest.mark.parametrize("observation", [GaussianMixture(4), GaussianMixture(3, "full"), AutoregressiveGaussian(1)])
@pytest.mark.filterwarnings("ignore:.*min_covariance")
def test_fewer_distinct_frames_than_states(observation: Any) -> None:
    x = [np.repeat(s, 15, axis=0) for s in frames(np.random.default_rng(17), lengths=[2, 1])]
    _valid(HMM(7, observation=observation, max_iter=10).fit(x), x)


@pytest.mark.parametrize("x", [[np.array([0])], [np.array([0, 1, 1, 0, 1])], ["a"], ["ab", "ba", "b"]])
def test_fewer_symbols_than_states(x: Any) -> None:
    _valid(HMM(5, n_init=1, max_iter=10).fit(x), x)


def test_a_state_that_is_never_visited_stays() -> None:
    x = frames(np.random.default_rng(18))
    start: dict[str, Any] = {"means": [[5.0, 5.0], [1e6, 1e6]], "covariances": [[9.0, 9.0], [1.0, 1.0]]}
    model = HMM.from_parameters(
        [1.0, 0.0], [[1.0, 0.0], [0.3, 0.7]], **start, observation=GaussianMixture(1, min_covariance=1e-15),
        warm_start=True, max_iter=3, **OPTIONS,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _valid(model.fit(x), x)
    assert_allclose(model.transition_, np.array([[1.0, 0.0], [0.3, 0.7]]))
    assert_allclose(model.means_[1], 1e6)
    assert_allclose(model.means_[0, 0], np.concatenate(x).mean(0))


def test_an_impossible_sequence_is_named_by_its_place() -> None:
    model = HMM.from_parameters([1.0], [[1.0]], emission=[[0.0, 1.0]], warm_start=True)
    x = [np.array([1, 1, 1]), np.array([1]), np.array([0, 1]), np.array([1, 1])]
    for ask in (model.fit, model.posterior):
        with pytest.raises(ValueError, match="sequence 2 has probability zero"):
            ask(x)
    assert_allclose(model.log_prob(x), [0.0, 0.0, -np.inf, 0.0], atol=1e-15)
    ending = HMM.from_parameters([1.0], [[0.5]], [0.5], emission=[[0.0, 1.0]])
    for listener, going_on in ((model.stream(), 0.0), (ending.stream(), np.log(0.5))):
        assert_allclose([listener.update(s) for s in (1, 1, 0, 1)], [0.0, going_on, -np.inf, -np.inf], rtol=1e-6)
    assert_allclose(ending.log_prob_steps([x[2]])[0], [-np.inf] * 3)


def test_bad_hyperparameters_are_refused() -> None:
    for bad in (
        {"n_states": 0},
        {"n_init": 0},
        {"max_iter": -1},
        {"tol": -1.0},
        {"pseudocount": -1},
        {"pseudocount": "some"},
    ):
        with pytest.raises(ValueError, match=next(iter(bad))):
            HMM(**bad).fit([np.array([0, 1])])


def test_a_pseudocount_keeps_the_unseen_possible() -> None:
    x = [np.array([0, 1, 0, 1, 2])]
    kept = HMM(2, observation=Categorical(pseudocount=0.5), length="given", **OPTIONS).fit(x)
    assert kept.emission_.min() > 0.01
    assert HMM(2, length="given", max_iter=200, **OPTIONS).fit(x).emission_.min() < 1e-3


def _valid(model: HMM, x: Any) -> None:
    assert np.isfinite(model.score(x))
    for table in (model.initial_, np.c_[model.transition_, model.final_]):
        assert (table >= 0).all()
        assert_allclose(table.sum(-1), 1, rtol=1e-9)
    raw = emission_of(model.observation_, model.encoding_.size).raw_parameters(
        model.parameters_.table, *model.encoding_.affine()
    )
    assert all(np.isfinite(values).all() for values in raw.values())


def test_a_number_of_states_that_is_none_names_choose() -> None:
    for n_states in ("auto", 0):
        with pytest.raises(ValueError, match=r"pass at least 1; choose\(HMM\(\), X, n_states=range\(1, 13\)\)"):
            sm.HMM(n_states).fit([np.array([0, 1])])  # type: ignore[arg-type]


def test_a_stream_filters_the_states_step_by_step() -> None:
    x = np.random.default_rng(0).normal(size=(30, 2)) + 2 * (np.arange(30) % 10 > 4)[:, None]
    x[7] = np.nan
    for observation in (sm.GaussianMixture(1), sm.AutoregressiveGaussian(1)):
        model = sm.HMM(3, observation=observation, max_iter=3, n_init=1).fit([x])
        stream = model.stream()
        with pytest.raises(ValueError, match="has read no step yet"):
            _ = stream.filtered
        each = []
        for step in x:
            stream.update(step)
            each.append(stream.filtered)
        assert_allclose(np.stack(each), model.filter([x])[0], atol=1e-9)
        assert_allclose(each[-1], model.posterior([x])[0][-1], atol=1e-9)
    impossible = sm.HMM.from_parameters([1.0, 0.0], np.eye(2), emission=np.eye(2)).stream()
    impossible.update(1)
    assert impossible.filtered.tolist() == [0.0, 0.0]
    with pytest.raises(AttributeError, match="NGram has no hidden states with probabilities; an HMM's stream"):
        _ = sm.NGram(2).fit(["ab"]).stream().filtered
