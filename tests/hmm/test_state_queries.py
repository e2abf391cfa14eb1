"""What one asks a fitted HMM, against every path written out, hmmlearn and hand computation."""

from __future__ import annotations

import copy
import itertools
import re
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy.stats import norm

from seqmodels import HMM, AutoregressiveGaussian, GaussianMixture, Standardize
from seqmodels.inference.chains import sampling
from tests.hmm.test_hmm_model import chain, frames, gaussians, hmmlearn_gaussian
from tests.inference.chains.enumeration import enumerate_paths, path_probabilities, random_model

EMISSION = np.array([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8], [0.3, 0.4, 0.3]])
WORDS = [np.array([0, 2, 1, 2]), np.array([1]), np.array([2, 2, 0])]


def symbols(final: bool = False, seed: int = 0, sparse: bool = False) -> HMM:
    initial, transition, end = random_model(np.random.default_rng(seed), 3, final, sparse)
    return HMM.from_parameters(initial, transition, end, emission=EMISSION, dtype="float64")


def ends(model: HMM) -> Any:
    return model.final_ if model.length_ == "stop" else None


def paths(model: HMM, word: np.ndarray) -> dict[tuple[int, ...], float]:
    """p(path | x) of every path."""
    close = np.ones(3) if model.length_ == "given" else model.final_
    found = path_probabilities(model.initial_, model.transition_, EMISSION[:, word].T)
    joint = {z: p * close[z[-1]] for z, p in found.items()}
    return {z: p / sum(joint.values()) for z, p in joint.items()}


# -- filtering, and one step at a time -------------------------------------------------------------------------


@pytest.mark.parametrize("final", [False, True])
def test_filter_is_enumeration(final: bool) -> None:
    model = symbols(final)
    for word, belief in zip(WORDS, model.filter(WORDS), strict=True):
        b = EMISSION[:, word].T
        assert_allclose(belief, enumerate_paths(model.initial_, model.transition_, b, ends(model)).alpha, atol=1e-12)
    smoothed = model.posterior(WORDS)
    if not final:  # the last filtered belief is the last smoothed one
        assert all(np.allclose(f[-1], s[-1]) for f, s in zip(model.filter(WORDS), smoothed, strict=True))


def test_a_stream_holds_the_filtered_beliefs_in_constant_memory() -> None:
    x = frames(np.random.default_rng(0), lengths=[40])
    for observation in (GaussianMixture(2), AutoregressiveGaussian(2)):
        model = HMM(3, observation=observation, max_iter=3, dtype="float64").fit(x)
        cursor = model.cursor()
        state, encoded, sizes = cursor.start(), torch.as_tensor(model.encoding_.encode(x[0])), set()
        for step, belief in zip(encoded, model.filter(x)[0], strict=True):
            state = cursor.advance(state, step[None])
            assert state.log_alpha is not None
            assert_allclose(state.log_alpha[0].exp(), belief, atol=1e-10)
            sizes.add((state.log_alpha.shape, state.past.shape, state.past.untyped_storage().nbytes()))
        assert len(sizes) == 1


def test_beliefs_after_the_impossible_are_zeros() -> None:
    model = HMM.from_parameters([1.0, 0.0], np.eye(2), emission=np.eye(2), dtype="float64")
    with pytest.warns(UserWarning, match=r"1 of 2 sequences have probability zero .* \(sequence 1 from step 1\)"):
        beliefs = model.filter([np.array([0, 0]), np.array([0, 1, 0])])
    assert_allclose(beliefs[1], [[1, 0], [0, 0], [0, 0]])
    for ask in (model.decode, model.posterior, model.sample_states, model.forecast_states):
        with pytest.raises(ValueError, match="sequence 1 has probability zero"):
            ask([np.array([0, 0]), np.array([0, 1, 0])])


# -- paths -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("final", [False, True])
def test_log_prob_of_a_path_is_its_product_and_all_of_them_sum_to_log_prob(final: bool) -> None:
    model = symbols(final, sparse=True)
    close = np.ones(3) if not final else model.final_
    for word in WORDS:
        joint = path_probabilities(model.initial_, model.transition_, EMISSION[:, word].T)
        log_probs = model.path_log_prob([word] * len(joint), list(joint))
        with np.errstate(divide="ignore"):
            assert_allclose(log_probs, np.log([p * close[z[-1]] for z, p in joint.items()]), rtol=1e-12)
        assert_allclose(np.exp(log_probs).sum(), np.exp(model.log_prob([word])[0]), rtol=1e-12)
    best = model.path_log_prob(WORDS, model.decode(WORDS))
    assert_allclose(np.exp(best), [max(paths(model, w).values()) * np.exp(model.log_prob([w])[0]) for w in WORDS])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_log_prob_of_a_path_is_in_raw_units(dtype: str) -> None:
    x = np.array([[1e3, 1.0], [2e3, np.nan], [5e3, -1.0]])
    means, sds = np.array([[1e3, 0.0], [4e3, 1.0]]), np.array([[500.0, 1.0], [900.0, 2.0]])
    model = HMM.from_parameters([0.4, 0.6], [[0.9, 0.1], [0.3, 0.7]], means=means, covariances=sds**2, dtype=dtype)
    log_b = np.nansum(norm.logpdf(x[:, None], means, sds), axis=2)
    by_hand = np.log(0.6 * 0.3 * 0.1) + log_b[[0, 1, 2], [1, 0, 1]].sum()
    assert_allclose(model.path_log_prob([x], [[1, 0, 1]]), [by_hand], rtol=1e-5 if dtype == "float32" else 1e-12)
    all_paths = list(itertools.product(range(2), repeat=3))
    total = np.logaddexp.reduce(model.path_log_prob([x] * 8, all_paths))
    assert_allclose(total, model.log_prob([x])[0], rtol=1e-5 if dtype == "float32" else 1e-12)


def test_log_prob_of_a_path_with_targets_is_of_both() -> None:
    rng = np.random.default_rng(0)
    X, Y = ([rng.normal(3, 2, (n, 1)) for n in lengths] for lengths in ((30, 2), (40, 1)))
    model = HMM(2, observation=GaussianMixture(1), max_iter=3, dtype="float64").fit(X, Y)
    joint = HMM.from_parameters(
        model.initial_,
        model.transition_,
        means=model.means_[:, 0],
        covariances=model.covariances_[:, 0],
        dtype="float64",
    )
    decoded = model.decode(X, Y)
    both = [np.concatenate(pair) for pair in zip(X, Y, strict=True)]
    assert_allclose(model.path_log_prob(X, decoded, Y), joint.path_log_prob(both, decoded), rtol=1e-9)


def test_log_prob_of_the_best_path_is_hmmlearns() -> None:
    rng = np.random.default_rng(1)
    (initial, transition), x = chain(rng, 3), frames(rng, lengths=[50, 7, 900])
    start = gaussians("full", rng)
    model = HMM.from_parameters(initial, transition, **start, dtype="float64")
    theirs = hmmlearn_gaussian("full", initial, transition, start, 0)
    for item, log_prob in zip(x, model.path_log_prob(x, model.decode(x)), strict=True):
        assert_allclose(log_prob, theirs.decode(item)[0], rtol=1e-9)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([[0, 1]], "there are 2 sequences but 1 paths"),
        ([[0, 1], [0, 1]], "path of sequence 1 has shape (2,) and type int64; pass 1 integers"),
        ([[0, 1], [3]], "path of sequence 1 has states from 3 to 3; the model has 0 to 2"),
        ([[0, 1], [0.5]], "type float64"),
    ],
)
def test_paths_that_are_none_are_refused(given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        symbols().path_log_prob([np.array([0, 1]), np.array([2])], given)


def test_decode_breaks_ties_by_the_lowest_state() -> None:
    model = HMM.from_parameters(np.full(3, 1 / 3), np.full((3, 3), 1 / 3), emission=[[0.5, 0.5]] * 3, dtype="float64")
    assert model.decode([np.array([0, 1, 0])])[0].tolist() == [0, 0, 0]


@pytest.mark.parametrize("final", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
def test_drawn_paths_are_as_frequent_as_they_are_probable(final: bool, sparse: bool) -> None:
    model, n = symbols(final, seed=3, sparse=sparse), 20_000
    for word, draws in zip(WORDS, model.sample_states(WORDS, n), strict=True):
        assert draws.shape == (n, len(word))
        expected = paths(model, word)
        seen = _counts(draws)
        assert all(expected[z] > 0 for z in seen)
        for z, p in expected.items():
            assert abs(seen.get(z, 0) / n - p) < 4.5 * np.sqrt(p * (1 - p) / n) + 1e-12


def _counts(draws: np.ndarray) -> dict[tuple[int, ...], int]:
    found, counts = np.unique(draws, axis=0, return_counts=True)
    return {tuple(z): int(c) for z, c in zip(found, counts, strict=True)}


def test_draws_repeat_by_seed_in_chunks_and_have_the_posterior_as_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    x = frames(np.random.default_rng(1), lengths=[12, 3, 25])
    model = HMM(3, observation=GaussianMixture(1), max_iter=3, dtype="float64").fit(x)
    draws = model.sample_states(x, 4000)
    for path, gamma in zip(draws, model.posterior(x), strict=True):
        assert_allclose(np.eye(3)[path].mean(0), gamma, atol=0.04)
    assert all(np.array_equal(a, b) for a, b in zip(draws, model.sample_states(x, 4000), strict=True))
    other = model.sample_states(x, 4000, random_state=5)
    assert any(not np.array_equal(a, b) for a, b in zip(draws, other, strict=True))
    monkeypatch.setattr(sampling, "TERMS_AT_ONCE", 4000 * 3)
    for path, gamma in zip(model.sample_states(x, 4000), model.posterior(x), strict=True):
        assert_allclose(np.eye(3)[path].mean(0), gamma, atol=0.04)


def test_a_path_through_a_belief_too_small_for_a_float_is_found() -> None:
    """State 1 explains the first frames e^-2000 times worse, and is the only way to the last."""
    model = HMM.from_parameters(
        [0.5, 0.5, 0.0], [[1.0, 0, 0], [0, 0.5, 0.5], [0, 0, 1.0]],
        means=[[0.0], [20.0], [1000.0]], covariances=[[0.1]] * 3, dtype="float64",
    )  # fmt: skip
    x = [np.array([[0.0], [0.0], [1000.0]]), np.array([[0.1], [-0.1]])]
    assert model.filter(x)[0][1, 1] == 0
    first, second = model.sample_states(x, 3)
    assert first.tolist() == [[1, 1, 2]] * 3
    assert second.tolist() == [[0, 0]] * 3


# -- what follows ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("final", [False, True])
def test_forecast_is_enumeration_of_what_may_follow(final: bool) -> None:
    model, k = symbols(final, seed=1), 3
    for word, forecast in zip(WORDS, model.forecast_states(WORDS, k), strict=True):
        for h in range(1, k + 1):
            states, values, total = np.zeros(3), np.zeros(3), 0.0
            for z, p in path_probabilities(model.initial_, model.transition_, EMISSION[:, word].T).items():
                total += p
                for tail in itertools.product(range(3), repeat=h):
                    q = p * np.prod([model.transition_[i, j] for i, j in itertools.pairwise((z[-1], *tail))])
                    states[tail[-1]] += q
            values = states @ EMISSION
            assert_allclose(forecast.survival[h - 1], states.sum() / total if final else 1.0, rtol=1e-10)
            assert_allclose(forecast.states[h - 1], states / states.sum(), rtol=1e-10)
            assert_allclose(forecast.distribution(h).probs, values / states.sum(), rtol=1e-6)


def test_one_step_ahead_is_predict_next() -> None:
    x = frames(np.random.default_rng(2), lengths=[9, 1])
    for observation in (GaussianMixture(2), GaussianMixture(1, "full"), AutoregressiveGaussian(2)):
        model = HMM(2, observation=observation, max_iter=3, dtype="float64").fit(x)
        for item, forecast in zip(x, model.forecast_states(x, 2), strict=True):
            ahead, value = model.predict_next(item), torch.as_tensor(x[0][3])
            assert_allclose(forecast.distribution().log_prob(value), ahead.log_prob(value), rtol=1e-9)
            assert_allclose(forecast.mean[0], ahead.mean, rtol=1e-9)


@pytest.mark.parametrize("n_frames", [1, 6])
def test_means_are_those_of_many_draws(n_frames: int) -> None:
    rng = np.random.default_rng(3)
    x = [5 + np.cumsum(0.3 * rng.normal(size=(30, 2)), axis=0) for _ in range(3)]
    for observation in (GaussianMixture(2), AutoregressiveGaussian(2)):
        model = HMM(2, observation=observation, max_iter=4, dtype="float64").fit(x)
        prefix, k, n = x[0][:n_frames], 4, 8000
        drawn = np.stack(model.sample(n, prefix=prefix, length=k))[:, n_frames:]
        error = drawn.std(0) / np.sqrt(n)
        assert (np.abs(model.forecast_states([prefix], k)[0].mean - drawn.mean(0)) < 4.5 * error).all()


def test_an_autoregression_of_one_state_forecasts_by_hand() -> None:
    rng = np.random.default_rng(4)
    x = [3 + np.cumsum(rng.normal(size=(50, 1)), axis=0)]
    model = HMM(
        1, observation=AutoregressiveGaussian(2, background=0.0), max_iter=3, dtype="float64", encoding=Standardize()
    ).fit(x)
    coefficients, c = model.coefficients_[0], model.intercepts_[0]
    before, last = x[0][-2:, 0]
    forecast, expected = model.forecast_states(x, 3)[0], []
    for _ in range(3):
        before, last = last, coefficients[0] @ [before, last] + c[0]
        expected.append(last)
    assert_allclose(forecast.mean[:, 0], expected, rtol=1e-9)
    with pytest.raises(ValueError, match="closed form"):
        forecast.distribution(2)


def test_forecasts_that_cannot_be_are_refused() -> None:
    word = [np.array([0])]
    model = HMM.from_parameters([1.0, 0.0], [[0, 0.5], [0, 0]], [0.5, 1.0], emission=[[0.5, 0.5]] * 2)
    forecast = model.forecast_states(word, 3)[0]
    assert_allclose(forecast.survival, [0.5, 0, 0])
    assert_allclose(forecast.states, [[0, 1], [0, 0], [0, 0]])
    for step, says in ((0, "from 1 to 3"), (4, "from 1 to 3"), (2, "cannot last")):
        with pytest.raises(ValueError, match=says):
            forecast.distribution(step)
    with pytest.raises(ValueError, match="symbols have no mean"):
        _ = forecast.mean
    for ask in (model.forecast_states, model.sample_states):
        with pytest.raises(ValueError, match="at least 1"):
            ask(word, 0)


def test_a_conditional_model_is_asked_over_source_and_target() -> None:
    x = frames(np.random.default_rng(5), lengths=[4, 6])
    y = frames(np.random.default_rng(6), lengths=[3, 2])
    model = HMM(2, observation=GaussianMixture(1), max_iter=3, dtype="float64").fit(x, y)
    assert [len(f) for f in model.filter(x, y)] == [7, 8]
    assert [f.shape for f in model.sample_states(x, 5, y=y)] == [(5, 7), (5, 8)]
    ahead = model.predict_next(y[0], source=x[0])
    assert_allclose(model.forecast_states(x, y=y)[0].mean[0], ahead.mean, rtol=1e-9)
    assert np.isfinite(model.bic(x, y))


# -- missing values --------------------------------------------------------------------------------------------


def one_feature() -> HMM:
    initial, transition, _ = random_model(np.random.default_rng(7), 3, False, False)
    means, variances = [[-1.0], [0.5], [2.0]], [[1.0], [0.3], [2.0]]
    return HMM.from_parameters(initial, transition, means=means, covariances=variances, dtype="float64")


def test_a_missing_frame_says_nothing() -> None:
    model, x = one_feature(), np.array([[0.3], [np.nan], [1.5], [np.nan], [np.nan]])
    deviation = np.sqrt([1.0, 0.3, 2.0])
    b = np.where(np.isnan(x), 1.0, norm.pdf(x, [-1.0, 0.5, 2.0], deviation))
    expected = enumerate_paths(model.initial_, model.transition_, b)
    assert_allclose(model.posterior([x])[0], expected.gamma, atol=1e-10)
    assert_allclose(model.filter([x])[0], expected.alpha, atol=1e-10)
    assert tuple(model.decode([x])[0]) == expected.best_path
    assert_allclose(model.log_prob([x])[0], expected.log_prob, rtol=1e-10)
    # A forecast h steps ahead is the belief after h missing frames.
    forecast = model.forecast_states([x[:3]], 3)[0]
    assert_allclose(forecast.states[:2], expected.alpha[3:], atol=1e-10)
    assert_allclose(forecast.mean[:, 0], forecast.states @ [-1.0, 0.5, 2.0], rtol=1e-10)
    assert_allclose(np.eye(3)[model.sample_states([x], 20_000)[0]].mean(0), expected.gamma, atol=0.02)


# -- the chain, and criteria -----------------------------------------------------------------------------------


def test_stationary_distributions() -> None:
    model = symbols(seed=2)
    assert_allclose(model.stationary_, np.linalg.matrix_power(model.transition_, 200)[0], rtol=1e-10)

    def of(initial: Any, transition: Any, final: Any = None) -> np.ndarray:
        emission = np.full((len(initial), 2), 0.5)
        return HMM.from_parameters(initial, transition, final, emission=emission).stationary_

    assert_allclose(of([1, 0], [[0, 1], [1, 0]]), [0.5, 0.5])  # periodic
    assert_allclose(of([0.5, 0.5, 0], [[0.5, 0.2, 0.3], [0, 1, 0], [0, 0, 1]]), [0, 0.7, 0.3])  # falls apart
    assert_allclose(of([1, 0], [[0.5, 0.25], [0, 0.5]], [0.25, 0.5]), [2 / 3, 1 / 3])  # visits: 2 and 1
    assert_allclose(of([1, 0], [[0.5, 0.25], [0, 1]], [0.25, 0]), [0, 1])  # may never end
    assert_allclose(of([1, 0], [[0.5, 0], [0, 1]], [0.5, 0]), [1, 0])  # not from here


def test_reordered_states_are_the_same_model() -> None:
    x = frames(np.random.default_rng(9))
    model = HMM(3, observation=GaussianMixture(2), length="stop", max_iter=4, dtype="float64").fit(x)
    turned = model.reorder([2, 0, 1])
    assert_allclose(turned.log_prob(x), model.log_prob(x), rtol=1e-10)
    assert_allclose(turned.posterior(x)[0], model.posterior(x)[0][:, [2, 0, 1]], atol=1e-9)
    assert_allclose(turned.transition_, model.transition_[np.ix_([2, 0, 1], [2, 0, 1])])
    assert_allclose(turned.final_, model.final_[[2, 0, 1]])
    assert_allclose(turned.means_, model.means_[[2, 0, 1]])
    means = np.einsum("km,kmd->kd", *(getattr(model.reorder("mean"), name) for name in ("weights_", "means_")))
    assert (np.diff(means[:, 0]) > 0).all()
    assert (np.diff(model.reorder("stationary").stationary_) <= 0).all()
    for bad in ([0, 1], [0, 1, 1], [1, 2, 3], "size"):
        with pytest.raises(ValueError, match="order is"):
            model.reorder(bad)
    with pytest.raises(ValueError, match="have no mean; pass 'stationary' or a permutation"):
        symbols().reorder("mean")


@pytest.mark.parametrize("kind", ["diag", "full"])
def test_criteria_are_hmmlearns(kind: str) -> None:
    rng = np.random.default_rng(10)
    (initial, transition), x = chain(rng, 3), frames(rng)
    start = gaussians(kind, rng)
    our = HMM.from_parameters(initial, transition, **start, dtype="float64")
    their = hmmlearn_gaussian(kind, initial, transition, start, 0)
    their.n_features = 2
    joined, lengths = np.concatenate(x), [len(s) for s in x]
    assert_allclose(our.bic(x), their.bic(joined, lengths), rtol=1e-9)
    assert_allclose(our.aic(x), their.aic(joined, lengths), rtol=1e-9)
    log_prob, gamma = their.score_samples(joined, lengths)
    assert_allclose(our.log_prob(x).sum(), log_prob, rtol=1e-9)
    assert_allclose(np.concatenate(our.posterior(x)), gamma, atol=1e-9)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_paths_go_through_a_state_that_is_far_behind(dtype: Any) -> None:
    """Starting in the second state costs 1e-50, going there later 1e-200, which a float32 belief would prefer."""
    x = np.repeat([0, 1], [40, 80])
    chain = ([0.5, 0.5], [[1.0, 1e-200], [1e-200, 1.0]])
    model = HMM.from_parameters(*chain, emission=[[0.9, 0.05, 0.05], [0.05, 0.9, 0.05]], dtype=dtype)
    assert (model.sample_states([x], 5)[0] == 1).all()


@pytest.mark.parametrize("ask", ["decode", "posterior", "filter", "sample_states"])
def test_states_of_a_frame_that_float32_cannot_hold_are_those_of_float64(ask):
    x = [np.random.default_rng(0).normal(size=(30, 2))]
    model = HMM(3, observation=GaussianMixture(1), max_iter=3).fit(x)
    far = [np.where(np.arange(30)[:, None] == 10, 1e20, x[0])]
    before = getattr(copy.deepcopy(model).set_params(dtype="float64"), ask)(far)[0]
    np.testing.assert_allclose(getattr(model, ask)(far)[0], before, atol=1e-6)
    with pytest.raises(ValueError, match=r"sequence 0 has .* at frame 10"):
        getattr(model, ask)([np.where(far[0] == 1e20, 1e120, far[0])])
