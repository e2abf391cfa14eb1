"""``MarkovSwitchingAR``: against all paths written out, EM, least squares, data whose states are known, refusals."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from scipy import stats

import seqmodels as sm
from seqmodels.encodings.raw_data import Data
from seqmodels.hmm import ChainInputEffects, ChainTraining, Frozen, LeftToRight, MarkovSwitchingAR
from seqmodels.hmm.markov_switching import cursor
from tests.made import made

Array = NDArray[np.float64]
STAYS = (0.95, 0.9)
MEANS, PHI, DEVIATION = np.array([0.0, 4.0]), np.array([0.5, -0.2]), 0.7


def drawn(lengths: list[int], seed: int) -> tuple[list[Array], list[NDArray[np.int64]]]:
    """Two states, two lags."""
    rng = np.random.default_rng(seed)
    x, states = [], []
    for n in lengths:
        z, y = [int(rng.integers(2))], [0.0]
        for _ in range(n + 20):
            z.append(z[-1] if rng.random() < STAYS[z[-1]] else 1 - z[-1])
            past = [y[-lag] - MEANS[z[-1 - lag]] for lag in (1, 2) if lag <= len(y)]
            y.append(float(MEANS[z[-1]] + PHI[: len(past)] @ past + DEVIATION * rng.normal()))
        x.append(np.array(y[-n:])[:, None])
        states.append(np.array(z[-n:]))
    return x, states


X, Z = drawn([60, 9, 1, 30, 2, 45], 0)


def inputs_of(x: list[Array], seed: int = 5) -> sm.Sequences:
    rng = np.random.default_rng(seed)
    return sm.Sequences(x, inputs=[5.0 + rng.normal(size=(len(each), 2)) for each in x], input_names=["a", "b"])


def by_paths(model: MarkovSwitchingAR, x: Array, inputs: Array | None = None) -> dict[tuple[int, ...], float]:
    """p(path, x) of one sequence in raw units, by the equation."""
    k, p = model.n_states, model.order
    phi = np.broadcast_to(model.autoregression_, (k, p, x.shape[1]))
    deviation = np.broadcast_to(np.sqrt(model.variances_), (k, x.shape[1]))
    transitions = (
        model.transition_at(inputs)
        if model.input_effects.transitions
        else np.broadcast_to(model.transition_, (len(x), k, k))
    )
    initial, levels = model.initial_, np.broadcast_to(model.means_, (len(x), k, x.shape[1]))
    if model.input_effects.first_state:
        initial = model.initial_at(inputs)[0]
    if model.input_effects.emissions:
        levels = levels + np.einsum("tu,kdu->tkd", inputs - model.input_scaling_.mean, model.emission_slopes_)
    if model.input_effects.transitions and model.start == "stationary":
        values, vectors = np.linalg.eig(transitions[0].T)
        initial = np.real(vectors[:, np.argmax(values.real)])
        initial = initial / initial.sum()
    result = {}
    for path in itertools.product(range(k), repeat=len(x)):
        total = log(initial[path[0]])
        for t, z in enumerate(path):
            if t:
                total += log(transitions[t][path[t - 1], z])
            loc, scale = model.first_means_, np.sqrt(model.first_variances_)
            if t >= p:
                lags = range(1, p + 1)
                loc = levels[t, z] + sum(phi[z, i - 1] * (x[t - i] - levels[t - i, path[t - i]]) for i in lags)
                scale = deviation[z]
            total += float(stats.norm.logpdf(x[t], loc, scale).sum())
        if model.length_ == "stop":
            total += log(model.final_[path[-1]])
        result[path] = np.exp(total)
    return result


def log(p: float) -> float:
    return float(np.log(p)) if p > 0 else -np.inf


CASES: list[dict[str, Any]] = [
    {"n_states": 2, "order": 2},
    {"n_states": 3, "order": 1, "switching_ar": True, "start": "free"},
    {"n_states": 2, "order": 3, "switching_variance": True, "length": "stop"},
    {"n_states": 2, "order": 1, "switching_ar": True, "input_effects__transitions": ["b"]},
    {"n_states": 2, "order": 2, "start": "uniform", "input_effects__transitions": True},
    {
        "n_states": 3,
        "order": 1,
        "start": "free",
        "topology": [[1, 1, 0], [0, 1, 1], [1, 0, 1]],
        "switching_variance": True,
        "input_effects__transitions": ["b"],
        "input_effects__emissions": ["b"],
        "input_effects__first_state": ["b"],
        "input_effects__ridge": 0.1,
    },
    {"n_states": 2, "order": 2, "switching_ar": True, "input_effects__emissions": True},
    {"n_states": 3, "order": 2, "topology": [[1, 1, 0], [0, 1, 1], [1, 0, 1]], "training__tied": [0, 1, 0]},
    {"n_states": 3, "order": 1, "start": "free", "length": "stop", "topology": LeftToRight(skips=1)},
]


def needs_inputs(options: dict[str, Any]) -> bool:
    return any(name.startswith("input_effects") for name in options)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("options", CASES)
@pytest.mark.parametrize("n_features", [1, 2])
def test_it_is_the_sum_over_all_paths(options: dict[str, Any], n_features: int) -> None:
    x = [np.concatenate([each, 10 - each[::-1] ** 2], 1)[:, :n_features] for each in X]
    data: Any = inputs_of(x) if needs_inputs(options) else x
    model = made(MarkovSwitchingAR, max_iter=4, n_init=1, **options).fit(data)
    short = [x[0][20:25], x[3][:4], x[5][:1]]
    scored: Any = inputs_of(short, 8) if needs_inputs(options) else short
    posterior, path, steps = model.posterior(scored), model.decode(scored), model.log_prob(scored)
    for i, each in enumerate(short):
        u = None if isinstance(scored, list) else scored.inputs[i]
        if u is not None:
            u = u[:, [["a", "b"].index(name) for name in model.input_names_]]
        paths = by_paths(model, each, u)
        total = sum(paths.values())
        assert_allclose(steps[i], np.log(total), rtol=0, atol=1e-10)
        expected = np.zeros_like(posterior[i])
        for states, p in paths.items():
            expected[np.arange(len(each)), states] += p / total
        assert_allclose(posterior[i], expected, rtol=0, atol=1e-10)
        assert_array_equal(path[i], max(paths, key=lambda states: paths[states]))
        if model.length_ == "given":  # else what is expected is given the end, too
            assert_allclose(model.filter(scored)[i][-1], expected[-1], rtol=0, atol=1e-10)
        if u is None:
            stream = model.stream()
            log_prob = [stream.update(step) for step in each]
            assert_allclose(log_prob, model.log_prob_steps([each])[0][: len(each)], rtol=0, atol=1e-10)
            assert_allclose(stream.filtered, model.filter([each])[0][-1], rtol=0, atol=1e-10)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("options", CASES)
def test_em_never_falls(options: dict[str, Any], seed: int) -> None:
    data: Any = inputs_of(X) if needs_inputs(options) else X
    weights = np.linspace(0.5, 2.0, len(X))
    model = made(MarkovSwitchingAR, max_iter=8, tol=0.0, n_init=1, random_state=seed, pseudocount=0.0, **options)
    model.fit(data, sample_weight=weights)
    assert len(model.history_) == 9
    assert np.diff(model.history_["objective"]).min() > -1e-11
    assert model.history_["objective"].iloc[-1] > model.history_["objective"].iloc[0] + 1e-2
    log_prob = float(weights @ model.log_prob(data)) / float(weights @ [len(each) for each in X])
    assert_allclose(log_prob, model.history_["log_prob"].iloc[-1], rtol=1e-12)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("inputs", [False, True])
def test_at_the_end_of_em_no_small_change_is_better(inputs: bool) -> None:
    """Of transitions too, which the distribution of the first state follows; many sequences begin."""
    x, _ = drawn([12] * 15, 1)
    data: Any = inputs_of(x) if inputs else x
    model = MarkovSwitchingAR(
        2, 1, max_iter=3000, tol=1e-12, n_init=1, input_effects=ChainInputEffects(transitions=["a"] if inputs else None)
    )
    model.fit(data)
    fitted = model.parameters_
    best = model.log_prob(data).sum()

    def log_prob(i: int, change: float, slope: float, column: int, of_table: float) -> float:
        log_a = fitted.transition.log()
        log_a[i, 0] += change
        transition = log_a.softmax(1)
        slopes = fitted.transition_slopes
        if slopes is not None:
            slopes = slopes.clone()
            slopes[i, 0] += slope
        table = fitted.table.clone()
        table[i if column == 0 else slice(None), column] += of_table
        updated = replace(fitted, transition=transition, transition_slopes=slopes, table=table)
        if slopes is None:
            initial = np.array([transition[1, 0], transition[0, 1]])
            updated = replace(updated, initial=fitted.initial.new_tensor(initial / initial.sum()))
        model.parameters_ = updated
        return float(model.log_prob(data).sum())

    for i, sign in itertools.product(range(2), (-1, 1)):
        changes = [(0.05 * sign, 0.0, 0, 0.0), (0.0, 0.0, 0, 0.01 * sign), (0.0, 0.0, 1, 0.01 * sign)]
        changes += [(0.0, 0.0, 2, 0.02 * sign)]
        if inputs:
            changes += [(0.0, 0.05 * sign, 0, 0.0)]
        for change in changes:
            assert log_prob(i, *change) < best


@pytest.mark.slow
def test_inputs_that_separate_transitions_leave_all_finite(tmp_path: Path) -> None:
    """The input of a step is the state: transitions go to zero and one, so that states never change on their own."""
    x = sm.Sequences(X, inputs=[each[:, None].astype(float) for each in Z], input_names=["state"])
    model = MarkovSwitchingAR(
        2, 1, input_effects=ChainInputEffects(transitions=["state"]), max_iter=15, tol=0.0, n_init=1
    ).fit(x)
    assert np.diff(model.history_["objective"]).min() > -1e-11
    assert np.isfinite(model.log_prob(x)).all()
    transition = model.transition_at([[0.0], [1.0], [1e6], [-1e6]])
    assert np.isfinite(transition).all()
    assert_allclose(transition[1, :, np.argmax(model.means_[:, 0])], 1.0, atol=0.05)
    far = x.with_inputs([np.full((len(each), 1), 1e6) for each in X], ["state"])
    assert np.isfinite(model.log_prob_steps(far)[0][0])
    model.save(tmp_path / "model.safetensors")
    assert_allclose(sm.load(tmp_path / "model.safetensors").log_prob(x), model.log_prob(x), rtol=1e-12, atol=1e-12)


def test_the_first_state_has_the_stationary_distribution() -> None:
    model = MarkovSwitchingAR(2, 2, n_init=1, max_iter=5).fit(X)
    assert_allclose(model.initial_ @ model.transition_, model.initial_, rtol=1e-10)
    assert_allclose(model.initial_, model.stationary_, rtol=1e-10)
    assert MarkovSwitchingAR(2, 2, n_init=1, max_iter=5, start="free").fit(X).n_parameters_ == model.n_parameters_ + 1
    assert_allclose(MarkovSwitchingAR(2, 2, max_iter=5, start="uniform").fit(X).initial_, 0.5)


@pytest.mark.parametrize("order", [1, 3])
def test_one_state_is_least_squares(order: int) -> None:
    x = X[0]
    model = MarkovSwitchingAR(1, order, tol=0.0, max_iter=25).fit([x])
    columns = [x[order - lag : len(x) - lag] for lag in range(1, order + 1)]
    design = np.concatenate([np.ones((len(x) - order, 1)), *columns], 1)
    coefficients, squares, *_ = np.linalg.lstsq(design, x[order:], rcond=None)
    assert_allclose(model.autoregression_[:, 0], coefficients[1:, 0], rtol=1e-8)
    assert_allclose(model.means_[0, 0] * (1 - model.autoregression_.sum()), coefficients[0, 0], rtol=1e-8)
    assert_allclose(model.variances_[0], squares[0] / (len(x) - order), rtol=1e-8)
    observation = sm.AutoregressiveGaussian(order, "diag", ridge=0.0, background=0.0, predictive="plug-in")
    like = sm.HMM(1, observation=observation, dtype="float64").fit([x])
    assert_allclose(model.log_prob_steps([x])[0][order:], like.log_prob_steps([x])[0][order:], rtol=0, atol=1e-7)


def test_what_the_data_were_drawn_from_is_found() -> None:
    x, z = drawn([1500], 3)
    model = MarkovSwitchingAR(2, 2).fit(x).reorder("mean")
    assert_allclose(model.means_[:, 0], MEANS, atol=0.25)
    assert_allclose(model.autoregression_[:, 0], PHI, atol=0.08)
    assert_allclose(model.variances_, DEVIATION**2, rtol=0.1)
    assert_allclose(np.diag(model.transition_), STAYS, atol=0.03)
    assert (model.decode(x)[0] == z[0]).mean() > 0.97
    intercepts = sm.HMM(2, observation=sm.AutoregressiveGaussian(2), start="stationary", dtype="float64").fit(x)
    test, _ = drawn([800], 4)
    assert model.score(test) > intercepts.score(test) + 0.05


def test_nearly_all_starts_find_levels_that_are_clear() -> None:
    """Of those from frames drawn as means fewer do: the others explain what lasts by the coefficients."""
    rng = np.random.default_rng(0)
    levels = np.repeat([1.0, -1.0, 1.0], [20, 10, 20])[:, None]
    model = MarkovSwitchingAR(2, 1, n_init=8, max_iter=60).fit([rng.normal(levels, 0.5) for _ in range(8)])
    assert (model.starts_["objective"] > model.starts_["objective"].max() - 0.01).sum() >= 7
    assert_allclose(np.sort(model.means_[:, 0]), [-1.0, 1.0], atol=0.15)


def means_ahead(model: MarkovSwitchingAR, prefix: Array, k: int) -> Array:
    """Expected raw vectors of the k steps after one sequence, ``(k, D)``, summed over all paths of two states."""
    p, means, expected = model.order, model.means_, np.zeros((k, prefix.shape[1]))
    phi = np.broadcast_to(model.autoregression_, (2, p, prefix.shape[1]))
    last: dict[tuple[int, ...], float] = {}
    for path, weight in by_paths(model, prefix).items():
        last[path[-p:]] = last.get(path[-p:], 0.0) + weight
    for (before, of_past), ahead in itertools.product(last.items(), itertools.product(range(2), repeat=k)):
        states, weight = [*before, *ahead], of_past / sum(last.values())
        for a, b in itertools.pairwise(states[p - 1 :]):
            weight *= model.transition_[a, b]
        deviations = list(prefix[-p:] - means[list(before)])
        for h in range(k):
            deviations.append((phi[ahead[h]] * deviations[: -p - 1 : -1]).sum(0))
            expected[h] += weight * (means[ahead[h]] + deviations[-1])
    return expected


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("options", [CASES[0], {"n_states": 2, "order": 3, "switching_ar": True}])
def test_forecasts_in_closed_form_and_by_paths_are_those_of_all_states(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = made(MarkovSwitchingAR, max_iter=5, n_init=1, **options).fit(X)
    prefix, k = [X[0][:8]], 4
    expected = means_ahead(model, prefix[0], k)[:, 0]
    exact = model.forecast(prefix, k).frame
    assert set(exact["method"]) == {"exact"}
    assert_allclose(exact["mean"], expected, rtol=1e-10)
    monkeypatch.setattr(cursor, "MOST_PATHS", 0)
    drawn = model.forecast(prefix, k, n=10_000, random_state=0).frame
    assert drawn["method"].tolist() == ["exact", *["sampled"] * (k - 1)]
    assert_allclose(drawn["mean"], expected, atol=4 * 3.0 / np.sqrt(10_000))
    for quantile in ("5%", "50%", "95%"):
        assert_allclose(drawn[quantile], exact[quantile], atol=0.2)


@pytest.mark.parametrize("order", [1, 2])
def test_means_of_states_ahead_are_summed_over_all_paths(order: int) -> None:
    x = [np.concatenate([each, 10 - each[::-1] ** 2], 1) for each in X]
    model = MarkovSwitchingAR(2, order, switching_ar=True, n_init=1, max_iter=2).fit(x)
    forecast = model.forecast_states([x[0][:5]], 4)[0]
    assert_allclose(forecast.mean, means_ahead(model, x[0][:5], 4), rtol=1e-10)


def test_forecasts_of_one_state_are_those_of_a_vector_autoregression() -> None:
    x = [np.concatenate([each, each**2], 1) for each in X[:1]]
    model = MarkovSwitchingAR(1, 2, tol=0.0, max_iter=5).fit(x)
    phi, means = model.autoregression_, model.means_[0]
    weights, deviation = [np.ones(2), phi[0]], [*(x[0][-2:] - means)]
    while len(weights) < 30:
        weights.append(phi[0] * weights[-1] + phi[1] * weights[-2])
    frame = model.forecast(x, 30, quantiles=(0.5, 0.975)).frame
    assert set(frame["method"]) == {"exact"}
    for h in range(30):
        deviation.append(phi[0] * deviation[-1] + phi[1] * deviation[-2])
        rows = frame[frame["step"] == h + 1]
        assert_allclose(rows["mean"], means + deviation[-1], rtol=1e-9)
        spread = np.sqrt(model.variances_ * np.square(weights[: h + 1]).sum(0))
        assert_allclose(rows["97.5%"] - rows["50%"], stats.norm.ppf(0.975) * spread, rtol=1e-6)


def test_where_ends_are_events_forecasts_are_given_that_there_is_a_step() -> None:
    model = MarkovSwitchingAR(2, 1, max_iter=5, n_init=1, length="stop").fit(X)
    frame = model.forecast([X[0][:5]], 3).frame
    paths = by_paths(model, X[0][:5])
    belief = np.zeros(2)
    for path, weight in paths.items():
        belief[path[-1]] += weight / model.final_[path[-1]]
    belief /= belief.sum()
    survival = [float((belief @ np.linalg.matrix_power(model.transition_, h)).sum()) for h in (1, 2, 3)]
    assert_allclose(frame["survival"], survival, rtol=1e-10)


def test_drawn_sequences_score_as_their_model_says() -> None:
    model = MarkovSwitchingAR(2, 2).fit(X)
    lengths = {len(each) for each in model.sample(3, length=50, random_state=0)}
    assert lengths == {50}
    sample = model.sample(300, length=60, random_state=1)
    again = MarkovSwitchingAR(2, 2).fit(sample).reorder("mean")
    like = model.reorder("mean")
    assert_allclose(again.means_, like.means_, atol=0.1)
    assert_allclose(again.autoregression_, like.autoregression_, atol=0.03)
    assert_allclose(again.transition_, like.transition_, atol=0.02)


def test_drawn_states_are_as_the_posterior_says() -> None:
    model = MarkovSwitchingAR(2, 2, max_iter=5, n_init=1).fit(X)
    draws = model.sample_states(X[:2], 600, random_state=1)[0]
    assert draws.shape == (600, 60)
    shares = np.stack([(draws == k).mean(0) for k in range(2)], 1)
    assert_allclose(shares, model.posterior(X[:2])[0], atol=4.5 * 0.5 / np.sqrt(600))


def test_known_states_are_kept() -> None:
    model = MarkovSwitchingAR(2, 1, max_iter=30).fit(X, states=Z)
    assert_allclose(model.means_[:, 0], MEANS, atol=0.5)
    pairs = np.concatenate([2 * each[:-1] + each[1:] for each in Z])
    counts = np.bincount(pairs, minlength=4).reshape(2, 2)
    free = MarkovSwitchingAR(2, 1, max_iter=3, start="free").fit(X, states=Z)
    assert_allclose(free.transition_, counts / counts.sum(1, keepdims=True), rtol=1e-10)
    assert_allclose(free.initial_[0], np.mean([each[0] == 0 for each in Z]), rtol=1e-10)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("options", [CASES[0], CASES[2], CASES[3], CASES[5], CASES[7]])
def test_a_file_and_another_order_of_states_have_the_same_probabilities(
    options: dict[str, Any], tmp_path: Path
) -> None:
    data: Any = inputs_of(X) if needs_inputs(options) else X
    model = made(MarkovSwitchingAR, max_iter=3, n_init=2, warm_start=True, tol=0.0, **options).fit(data)
    model.save(tmp_path / "model.safetensors")
    loaded = sm.load(tmp_path / "model.safetensors")
    assert_allclose(loaded.log_prob(data), model.log_prob(data), rtol=1e-12)
    k = model.n_states
    swapped = model.reorder(range(k)[::-1])
    assert_allclose(swapped.log_prob(data), model.log_prob(data), rtol=1e-12)
    assert_array_equal(swapped.means_, model.means_[::-1])
    assert_array_equal(swapped.decode(data)[0], k - 1 - model.decode(data)[0])
    before = model.history_["objective"].iloc[-1]
    for each in (loaded, swapped):
        assert_allclose(each.fit(data).history_["objective"].iloc[0], before, rtol=1e-12)
    with pytest.raises(ValueError, match="switching_ar"):
        model.set_params(switching_ar=not model.switching_ar).fit(data)


@pytest.mark.parametrize("options", [*CASES[:3], {"order": 1, "switching_ar": True, "switching_variance": True}])
@pytest.mark.parametrize("n_features", [1, 2])
def test_a_model_of_given_parameters_is_the_one_that_has_them(
    options: dict[str, Any], n_features: int, tmp_path: Path
) -> None:
    x = [np.concatenate([each, 10 - each[::-1] ** 2], 1)[:, :n_features] for each in X]
    model = made(MarkovSwitchingAR, max_iter=4, n_init=1, **options).fit(x)
    names = ("means", "autoregression", "variances", "first_means", "first_variances")
    given: dict[str, Any] = {name: getattr(model, f"{name}_") for name in names}
    if model.start == "free":
        given["initial"] = model.initial_
    if model.length_ == "stop":
        given["final"] = model.final_
    like = made(MarkovSwitchingAR.from_parameters, model.transition_, **given, warm_start=True)
    assert_allclose(like.log_prob(x), model.log_prob(x), rtol=1e-10)
    assert like.n_parameters_ == model.n_parameters_
    for name in (*names, "initial", "transition", "final"):
        assert_allclose(getattr(like, f"{name}_"), getattr(model, f"{name}_"), rtol=1e-10, atol=1e-14)
    like.save(tmp_path / "model.safetensors")
    assert_allclose(sm.load(tmp_path / "model.safetensors").log_prob(x), like.log_prob(x), rtol=1e-12, atol=1e-12)
    before = like.score(x)
    assert like.set_params(max_iter=2).fit(x).score(x) > before


GIVEN: dict[str, Any] = {
    "transition": [[0.9, 0.1], [0.2, 0.8]],
    "means": [[0.0], [4.0]],
    "autoregression": [[0.5], [-0.2]],
    "variances": [0.49],
}


def test_given_parameters_alone_begin_with_the_moments_of_their_states() -> None:
    model = made(MarkovSwitchingAR.from_parameters, **GIVEN)
    assert_allclose(model.initial_, [2 / 3, 1 / 3], rtol=1e-12)
    assert_allclose(model.first_means_, [4 / 3], rtol=1e-12)
    assert_allclose(model.first_variances_, [0.49 + 2 / 9 * 16], rtol=1e-12)
    x = model.sample(1, length=4000, random_state=0)
    assert_allclose(np.mean(x[0]), 4 / 3, atol=0.25)
    with pytest.raises(ValueError, match="set it back"):
        model.set_params(warm_start=True, order=1).fit(X)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"transition": [[0.9, 0.2], [0.2, 0.8]]}, "sum to one"),
        ({"transition": [[1.0]]}, r"shape \(1, 1\)"),
        ({"transition": [[1.0, 0.0], [0.0, 1.0]]}, "every state leads to every other"),
        ({"initial": [0.5, 0.5], "start": "stationary"}, "start='stationary' means that initial is"),
        ({"means": [0.0, 4.0]}, r"pass an array \(K, D\)"),
        ({"autoregression": [0.5, 0.2]}, r"autoregression has shape \(2,\)"),
        ({"autoregression": np.zeros((3, 1, 1))}, r"autoregression has shape \(3, 1, 1\)"),
        ({"variances": 0.5}, r"variances has shape \(\)"),
        ({"variances": [np.nan]}, "should be finite"),
        ({"variances": [-1.0], "first_variances": [1.0]}, "below the floor"),
        ({"variances": [1e-9]}, "below the floor"),
        ({"first_means": [0.0, 1.0]}, r"first_means has shape \(2,\)"),
        ({"input_effects__transitions": ["a"]}, "pass the value of each input, by name"),
    ],
)
def test_parameters_that_cannot_be_are_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        made(MarkovSwitchingAR.from_parameters, **{**GIVEN, **changed})


FROZEN = [(False, False, False), (True, False, True), (False, True, True), (True, True, True)]


@pytest.mark.quick_cases(2)
@pytest.mark.filterwarnings("ignore:the parameters are not at the maximum")
@pytest.mark.parametrize(("switching_ar", "switching_variance", "inputs"), FROZEN)
def test_what_is_frozen_stays_and_em_maximises_over_the_rest(
    switching_ar: bool, switching_variance: bool, inputs: bool
) -> None:
    """A mean enters the densities of other states, so the free ones have to be maximised given the frozen ones."""
    options: dict[str, Any] = {"input_effects": ChainInputEffects(emissions=inputs or None)}
    data: Any = inputs_of(X) if inputs else X
    start = made(
        MarkovSwitchingAR,
        *(3, 1),
        switching_ar=switching_ar,
        switching_variance=switching_variance,
        n_init=1,
        max_iter=3,
        tol=0.0,
        warm_start=True,
        **options,
    ).fit(data)
    before = {name: getattr(start, name) for name in ("means_", "autoregression_", "variances_")}
    free, n_free = start.n_parameters_, 1 + switching_ar + switching_variance + 2 * inputs
    shared = 4 - switching_ar - switching_variance  # those of all states, and the Gaussian of the first steps
    start.set_params(training__frozen=Frozen(emission=[0]), max_iter=12).fit(data)
    assert start.n_parameters_ == free - n_free - shared
    assert np.diff(start.history_["objective"]).min() > -1e-11
    assert start.history_["objective"].iloc[-1] > start.history_["objective"].iloc[0] + 1e-3
    kept = slice(1)
    assert_array_equal(start.means_[kept], before["means_"][kept])
    assert_array_equal(start.autoregression_[kept], before["autoregression_"][kept])
    assert_array_equal(start.variances_[kept], before["variances_"][kept])
    assert (start.means_[1:] != before["means_"][1:]).all()
    names = start.standard_errors(data)[["name", "state"]]
    assert 0 not in names[names["name"].isin(["means", "autoregression", "variances", "emission_slopes"])]["state"]
    assert ("autoregression" in set(names["name"])) == switching_ar


def test_frozen_transitions_stay_where_the_first_state_follows_inputs() -> None:
    data = inputs_of(drawn([8] * 12, 1)[0])  # so that first states count
    effects = ChainInputEffects(transitions=["a"])
    model = MarkovSwitchingAR(2, 1, n_init=1, max_iter=3, tol=0.0, warm_start=True, input_effects=effects).fit(data)
    before, slopes = model.transition_, model.transition_slopes_
    model.set_params(training__frozen=Frozen(transition=[1]), max_iter=6).fit(data)
    assert np.diff(model.history_["objective"]).min() > -1e-11
    assert_array_equal(model.transition_[1], before[1])
    assert_array_equal(model.transition_slopes_[1], slopes[1])
    assert (model.transition_[0] != before[0]).all()
    stationary = np.array([model.transition_[1, 0], model.transition_[0, 1]])
    assert_allclose(model.initial_, stationary / stationary.sum(), rtol=1e-10)


@pytest.mark.filterwarnings("ignore:the parameters are not at the maximum")
def test_a_topology_and_tied_states_are_obeyed_everywhere() -> None:
    ring = [[1, 1, 0], [0, 1, 1], [1, 0, 1]]
    options: dict[str, Any] = {"topology": ring, "start": "free", "training": ChainTraining(tied=[0, 1, 0])}
    model = made(MarkovSwitchingAR, 3, 1, n_init=2, max_iter=5, **options).fit(X)
    assert_array_equal(model.transition_ > 0, np.array(ring, bool))
    assert_array_equal(model.means_[0], model.means_[2])
    assert model.n_parameters_ == 2 + 3 + 2 + 1 + 1 + 2  # first states, transitions, means, and what states share
    errors = model.standard_errors(X)
    assert (errors["name"] == "transition").sum() == 6
    assert_array_equal(model.reorder([1, 2, 0]).get_params()["topology"], np.roll(ring, (-1, -1), (0, 1)).tolist())
    with pytest.raises(ValueError, match=r"allow transitions that topology=LeftToRight\(\) does not"):
        model.set_params(topology="left-to-right", warm_start=True).fit(X)
    with pytest.raises(ValueError, match="start='stationary' needs a chain in which every state leads to every other"):
        MarkovSwitchingAR(2, 1, topology="left-to-right").fit(X)
    with pytest.raises(ValueError, match="but topology='left-to-right' does not allow it"):
        made(MarkovSwitchingAR.from_parameters, **GIVEN, topology="left-to-right", start="free")
    begins = made(
        MarkovSwitchingAR.from_parameters,
        **{**GIVEN, "transition": [[0.9, 0.1], [0.0, 1.0]]},
        topology="left-to-right",
        start="free",
    )
    assert_array_equal(begins.initial_, [1.0, 0.0])


def test_stepwise_em_of_one_batch_is_em() -> None:
    options: dict[str, Any] = {"n_init": 1, "max_iter": 3, "tol": 0.0, "switching_variance": True}
    weights = np.linspace(0.5, 2.0, len(X))
    em = made(MarkovSwitchingAR, 2, 2, **options).fit(X, sample_weight=weights)
    stepwise = made(MarkovSwitchingAR, 2, 2, algorithm="stepwise", training__batches=1, **options)
    stepwise.fit(X, sample_weight=weights)
    assert len(stepwise.history_) == 3  # the last M-step is in no row
    assert_allclose(stepwise.history_["objective"], em.history_["objective"].iloc[:3], rtol=1e-10)
    for name in ("transition_", "means_", "autoregression_", "variances_"):
        assert_allclose(getattr(stepwise, name), getattr(em, name), rtol=1e-8)
    several = stepwise.clone().set_params(training__batches=3, max_iter=6).fit(X)
    assert several.score(X) > made(MarkovSwitchingAR, 2, 2, **options).set_params(max_iter=1).fit(X).score(X)


def test_far_frames_neither_underflow_nor_lose_a_state() -> None:
    model = MarkovSwitchingAR(2, 2, max_iter=3, n_init=1).fit(X)
    x = [np.full((3_000, 1), 1e4), np.full((500, 1), MEANS[1])]
    assert all(np.isfinite(each).all() for each in model.log_prob_steps(x))
    for gamma in model.posterior(x):
        assert_allclose(gamma.sum(1), 1.0, rtol=1e-12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_states": 0}, "n_states is 0"),
        ({"order": 0}, "order is 0"),
        ({"n_states": 3, "order": 9}, r"make 3\^10 states of the last 10 steps, more than 16384"),
        ({"start": "first"}, "start is 'first'"),
        ({"input_effects__ridge": -1.0}, "ridge is -1.0"),
        ({"max_seconds": 0.0}, "max_seconds is 0.0"),
        ({"observation": sm.GaussianMixture(1)}, "has its own; leave observation='auto'"),
        ({"input_effects__transitions": ["a"]}, "the sequences have no inputs"),
        ({"input_effects__transitions": ["a"], "length": "stop"}, "length is 'stop'"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        made(MarkovSwitchingAR, **options).fit(X)


def test_what_cannot_be_read_is_refused() -> None:
    missing = [each.copy() for each in X]
    missing[0][5] = np.nan
    with pytest.raises(ValueError, match="missing"):
        MarkovSwitchingAR(2, 1).fit(missing)
    with pytest.raises(ValueError, match="describes vectors, but the sequences are symbols"):
        MarkovSwitchingAR(2, 1).fit([[0, 1, 1]])
    model = MarkovSwitchingAR(2, 1, max_iter=2, n_init=1).fit(X)
    with pytest.raises(ValueError, match="missing"):
        model.log_prob(missing)


@pytest.mark.parametrize(
    ("options", "n"),
    [({}, 2 + 2 + 1 + 1 + 2), ({"switching_ar": True, "switching_variance": True}, 2 + 2 + 2 + 2 + 2)],
)
def test_parameters_are_counted(options: dict[str, Any], n: int) -> None:
    """Transitions, means, coefficients, variances, and the Gaussian of the first step."""
    model = made(MarkovSwitchingAR, 2, 1, max_iter=1, **options).fit(X)
    assert model.n_parameters_ == n
    data = inputs_of(X)
    assert (
        made(MarkovSwitchingAR, 2, 1, max_iter=1, input_effects=ChainInputEffects(transitions=["a"]), **options)
        .fit(data)
        .n_parameters_
        == n + 2
    )


def test_a_budget_of_parameters_sets_the_number_of_states() -> None:
    result = sm.compare(
        {"ar": MarkovSwitchingAR(2, 3, max_iter=1, n_init=1)}, X[:4], test=X[4:], budget=sm.Budget(parameters=40)
    )
    assert 30 < int(result.frame["n_parameters"].iloc[0]) <= 40
    model = MarkovSwitchingAR(2, 3)
    assert model._size_within(10_000, sm_data(X)) == 11  # 11⁴ states of the last steps, at most 2¹⁴


def sm_data(x: list[Array]) -> Any:

    return Data.of(x)


def test_an_order_beyond_every_sequence_is_refused() -> None:
    x = [np.random.default_rng(0).normal(size=(72, 1))]
    with pytest.raises(ValueError, match="looks back at 100 steps, but the longest sequence has 72"):
        MarkovSwitchingAR(1, order=100).fit(x)
    with pytest.raises(ValueError, match="pass an order below 72"):
        sm.HMM(1, observation=sm.AutoregressiveGaussian(72)).fit(x)


def test_a_floor_beyond_all_data_is_refused() -> None:
    x = [np.random.default_rng(0).normal(size=(72, 1))]
    with pytest.raises(ValueError, match=r"min_covariance is 1e\+300; pass a number above 0 and at most 1e\+06"):
        MarkovSwitchingAR(1, min_covariance=1e300).fit(x)
    for model in (
        sm.LinearGaussian(1, min_covariance=1e300),
        sm.HMM(1, observation=sm.GaussianMixture(1, min_covariance=1e300)),
    ):
        with pytest.raises(ValueError, match="min_covariance"):
            model.fit(x)


def test_far_more_tuples_than_steps_are_warned_of():
    x = [np.random.default_rng(0).normal(size=(20, 1))]
    with pytest.warns(UserWarning, match="order=7 make 256 states of 8 steps, but 20 steps of data.*smaller"):
        MarkovSwitchingAR(2, order=7, max_iter=1, n_init=1).fit(x)
