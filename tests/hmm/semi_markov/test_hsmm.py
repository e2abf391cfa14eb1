"""``HSMM``: against an HMM where it is one, EM, data whose durations are known, long sequences, what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from scipy import stats

import seqmodels as sm
from seqmodels.generation.cursor import read_steps
from seqmodels.hmm.semi_markov import chain as semi_markov
from seqmodels.hmm.semi_markov.durations import DurationName
from seqmodels.sequences.measure import Length
from tests.made import made

Array = NDArray[np.float64]
NAMES: tuple[DurationName, ...] = ("negative-binomial", "poisson", "logarithmic", "categorical", "geometric")
MEANS = np.array([-2.0, 0.0, 2.0])
RATES = (3.0, 7.0, 14.0)  # of durations less one


def drawn(n: int, length: int, seed: int) -> tuple[list[Array], list[NDArray[np.int64]]]:
    """Three states in a random order, with Poisson durations; cut out of a process that had gone on for long."""
    rng = np.random.default_rng(seed)
    x, z = [], []
    for _ in range(n):
        path: list[int] = []
        state = int(rng.integers(3))
        while len(path) < length + 60:
            path += [state] * int(rng.poisson(RATES[state]) + 1)
            state = int(rng.choice([i for i in range(3) if i != state]))
        z.append(np.array(path[60 : 60 + length]))
        x.append(MEANS[z[-1]][:, None] + rng.normal(size=(length, 1)))
    return x, z


X, Z = drawn(20, 80, 0)
SYMBOLS = [np.repeat([0, 1, 2, 0, 1], [2, 3, 1, 2, 3]), np.repeat([1, 0, 2, 1], [3, 2, 2, 3]), np.array([0])] * 2


def hsmm(durations: DurationName = "negative-binomial", **options: Any) -> sm.hmm.HSMM:
    chosen = {"max_duration": 30, "n_init": 1, "observation": sm.GaussianMixture(1), **options}
    return made(sm.hmm.HSMM, 3, durations=durations, **chosen)


def test_geometric_durations_are_an_hmm() -> None:
    model = hsmm("geometric", max_iter=5).fit(X)
    like = sm.HMM.from_parameters(
        model.initial_,
        model.transition_,
        weights=model.weights_,
        means=model.means_,
        covariances=model.covariances_,
        encoding=model.encoding_,
        dtype="float64",
    )
    for found, expected in zip(model.log_prob_steps(X), like.log_prob_steps(X), strict=True):
        assert_allclose(found, expected, rtol=0, atol=1e-12)
    for found, expected in zip(model.posterior(X), like.posterior(X), strict=True):
        assert_allclose(found, expected, rtol=0, atol=1e-12)
    assert_array_equal(np.concatenate(model.decode(X)), np.concatenate(like.decode(X)))
    assert_allclose(model.stationary_, like.stationary_)


def test_em_of_geometric_durations_is_that_of_an_hmm(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the same start: 10 steps of an HMM, then as many as there are."""
    monkeypatch.setattr(semi_markov, "STEPS_OF_START", 10)
    options: dict[str, Any] = {"tol": 0.0, "n_init": 1, "observation": sm.GaussianMixture(1), "dtype": "float64"}
    found = made(sm.hmm.HSMM, 3, durations="geometric", max_iter=5, **options).fit(X)
    expected = made(sm.HMM, 3, max_iter=15, start="free", **options).fit(X)
    assert_allclose(found.history_["log_prob"], expected.history_["log_prob"][10:], rtol=0, atol=1e-10)
    assert_allclose(found.transition_, expected.transition_, rtol=0, atol=1e-8)


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize(
    ("durations", "length", "left_censored"),
    [  # two of the four for each, in turns: what an end adds and what a cut start adds are sums of their own
        (durations, length, (length == "stop") ^ (i % 2 == 1))
        for i, durations in enumerate(NAMES)
        for length in ("given", "stop")
    ],
)
def test_em_never_falls(
    durations: DurationName, length: Length, left_censored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(semi_markov, "STEPS_OF_START", 1)
    x = [each[: 30 - 3 * i] for i, each in enumerate(X[:8])]
    weights = np.linspace(0.5, 2.0, len(x))
    model = hsmm(durations, length=length, left_censored=left_censored, max_iter=4, tol=0.0, max_duration=12)
    model.fit(x, sample_weight=weights)
    assert len(model.history_) == 5
    assert np.diff(model.history_["objective"]).min() > -1e-11
    assert model.history_["objective"].iloc[-1] > model.history_["objective"].iloc[0] + 1e-3
    log_prob = float(weights @ model.log_prob(x)) / float(weights @ [len(each) for each in x])
    assert_allclose(log_prob, model.history_["log_prob"].iloc[-1], rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("durations", ["negative-binomial", "poisson", "categorical"])
def test_durations_are_recovered_and_held_out_data_explained_better(durations: DurationName) -> None:
    x, _ = drawn(60, 120, 1)
    test, states = drawn(30, 120, 2)
    model = hsmm(durations, left_censored=True, n_init=1, max_duration=40).fit(x)
    order = np.argsort(model.means_.ravel())
    assert_allclose(model.mean_durations_[order], 1 + np.array(RATES), rtol=0.12)
    expected = stats.poisson.pmf(np.arange(40), RATES[2])
    assert 0.5 * np.abs(model.durations_[order[2]] - expected).sum() < (0.25 if durations == "categorical" else 0.1)
    plain = sm.HMM(3, n_init=2, observation=sm.GaussianMixture(1)).fit(x)
    assert model.score(test) > plain.score(test) + 0.01
    path = np.argsort(order)[np.concatenate(model.decode(test))]
    of_plain = np.argsort(np.argsort(plain.means_.ravel()))[np.concatenate(plain.decode(test))]
    truth = np.concatenate(states)
    assert (path == truth).mean() > max(0.9, (of_plain == truth).mean())


@pytest.mark.parametrize("length", ["given", "stop"])
def test_the_cursor_agrees_with_batches_over_many_durations(length: Length) -> None:
    model = hsmm(max_iter=2, max_duration=9, length=length).fit(X)
    x, _ = drawn(1, 600, 3)
    stream = model.stream()
    assert_allclose([stream.update(step) for step in x[0]], model.log_prob_steps(x)[0][:600], rtol=0, atol=1e-10)
    assert_allclose(stream.filtered, model.filter(x)[0][-1], rtol=0, atol=1e-10)


def test_ten_thousand_far_frames_neither_underflow_nor_lose_a_state() -> None:
    model = hsmm(max_iter=2, max_duration=12).fit(X)
    x = [np.full((10_000, 1), 1e4), np.full((10_000, 1), MEANS[1])]
    assert all(np.isfinite(each).all() for each in model.log_prob_steps(x))
    for gamma in model.posterior(x):
        assert_allclose(gamma.sum(1), 1.0, rtol=1e-12)


def test_what_follows_in_closed_form_is_the_mean_of_draws() -> None:
    model = sm.hmm.HSMM(2, durations="categorical", max_duration=4, n_init=1, length="given").fit(SYMBOLS[:2])
    cursor = model.cursor()
    state = read_steps(cursor, cursor.start(), torch.tensor([[0, 0, 1]]))
    ahead = cursor.predictions_ahead(state, 3)
    assert ahead is not None
    draws = model.sample(4000, length=6, prefix=np.array([0, 0, 1]), random_state=0)
    shares = np.bincount([int(each[5]) for each in draws], minlength=3) / 4000
    assert_allclose(ahead[2].log_probs()[0].exp(), shares, atol=4 * 0.5 / np.sqrt(4000))


def test_missing_values_say_nothing() -> None:
    x = [each.copy() for each in X]
    for each in x:
        each[10:14] = np.nan
    model = hsmm(max_iter=3).fit(x)
    assert np.isfinite(model.log_prob(x)).all()
    assert_allclose(model.log_prob_steps(x)[0][10:14], 0.0, atol=1e-14)
    with pytest.raises(ValueError, match="missing"):
        hsmm(observation=sm.AutoregressiveGaussian(1)).fit(x)


def test_known_states_are_kept() -> None:
    model = hsmm(max_iter=3).fit(X, states=Z)
    assert_allclose(model.means_.ravel(), [np.concatenate(X)[np.concatenate(Z) == k].mean() for k in range(3)])


def test_a_run_that_no_state_can_last_is_named() -> None:
    model = sm.hmm.HSMM(
        2, durations="categorical", max_duration=3, duration_pseudocount=0.0, n_init=1, length="given", tol=0.0
    ).fit([np.repeat([0, 1, 0, 1], 2)] * 3)
    assert np.isneginf(model.log_prob([[0] * 9])[0])
    with pytest.raises(ValueError, match=r"sequence 1 has probability zero .* raise max_duration"):
        model.decode([[0, 0], [0] * 9])


def test_a_fit_goes_on_from_where_it_stands_and_only_with_the_same_durations() -> None:
    model = hsmm(max_iter=2, tol=0.0, warm_start=True).fit(X)
    before = model.history_["objective"].iloc[-1]
    assert_allclose(model.fit(X).history_["objective"].iloc[0], before, rtol=1e-12)
    with pytest.raises(ValueError, match="max_duration"):
        model.set_params(max_duration=9).fit(X)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_duration": 0}, "max_duration is 0"),
        ({"durations": "weibull"}, "durations is 'weibull'"),
        ({"duration_pseudocount": -1.0}, "duration_pseudocount is -1.0"),
        ({"max_duration": 10**12}, "is too long for 8 states; pass at most"),
        ({"n_states": 0}, "n_states is 0"),
        ({"max_seconds": 0.0}, "max_seconds is 0.0"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        made(sm.hmm.HSMM, **options).fit(X)


@pytest.mark.parametrize(("durations", "n"), [("geometric", 0), ("poisson", 1), ("negative-binomial", 2)])
def test_parameters_are_counted(durations: DurationName, n: int) -> None:
    """Initial 2, transitions 3 (6 where states follow themselves), means and variances 6."""
    model = hsmm(durations, max_iter=1).fit(X)
    assert model.n_parameters_ == 2 + (6 if durations == "geometric" else 3) + 6 + 3 * n


def test_one_state_follows_itself() -> None:
    model = sm.hmm.HSMM(1, max_duration=3, n_init=1, length="stop").fit(SYMBOLS)
    assert np.isfinite(model.log_prob(SYMBOLS)).all()
    assert_allclose(model.transition_ + model.final_, 1.0)


def test_a_budget_of_parameters_sets_the_number_of_states() -> None:
    result = sm.compare({"hsmm": hsmm(max_iter=1)}, X[:10], test=X[10:], budget=sm.Budget(parameters=60))
    assert int(result.frame["n_parameters"].iloc[0]) <= 60


def test_drawn_states_are_as_the_posterior_says() -> None:
    model = hsmm(max_iter=3).fit(X)
    draws = model.sample_states(X[:1], 600, random_state=1)[0]
    assert draws.shape == (600, 80)
    shares = np.stack([(draws == k).mean(0) for k in range(3)], 1)
    assert_allclose(shares, model.posterior(X[:1])[0], atol=4.5 * 0.5 / np.sqrt(600))
