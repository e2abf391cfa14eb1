"""``ContinuousTimeHMM``: against a forward recursion written out, an ``HMM`` on a grid, direct maxima, hard cases."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from scipy.linalg import expm
from scipy.optimize import minimize

import seqmodels as sm
from seqmodels.hmm import HMM, ChainInputEffects, ChainTraining, ContinuousTimeHMM
from tests.made import made

Array = NDArray[np.float64]
GENERATOR = np.array([[-0.3, 0.2, 0.1], [0.5, -0.9, 0.4], [0.1, 0.1, -0.2]])
INITIAL = np.array([0.5, 0.3, 0.2])
EMISSION = np.array([[0.8, 0.1, 0.1], [0.1, 0.7, 0.2], [0.2, 0.2, 0.6]])
MOMENTS: dict[str, Any] = {"means": [[0.0], [3.0], [-4.0]], "covariances": [[1.0], [0.5], [2.0]]}


def irregular(n: int, lengths: tuple[int, ...], seed: int = 0) -> sm.Sequences:
    """Symbols at irregular times, two of them at one time."""
    rng = np.random.default_rng(seed)
    times = [np.cumsum(rng.gamma(0.5, 2.0, length)) for length in lengths]
    for each in times:
        if len(each) > 3:
            each[3] = each[2]
    return sm.Sequences([rng.integers(0, n, length) for length in lengths], times=times)


def symbol_model(**options: Any) -> ContinuousTimeHMM:
    return made(ContinuousTimeHMM.from_parameters, GENERATOR, INITIAL, emission=EMISSION, **options)


def log_prob(q: Array, initial: Array, b: Array, times: Array) -> float:
    """The forward recursion, ``b (T, K)`` densities."""
    alpha, total = initial * b[0], 0.0
    transitions = expm(q * np.diff(times)[:, None, None])
    for t in range(1, len(b)):
        total += np.log(alpha.sum())
        alpha = (alpha / alpha.sum()) @ transitions[t - 1] * b[t]
    return float(total + np.log(alpha.sum()))


# -- one probability -----------------------------------------------------------------------------------------


def test_it_is_the_forward_recursion_over_matrix_exponentials() -> None:
    X = irregular(3, (9, 1, 6, 4))
    assert X.times is not None
    expected = [log_prob(GENERATOR, INITIAL, EMISSION[:, x].T, t) for x, t in zip(X, X.times, strict=True)]
    assert_allclose(symbol_model().log_prob(X), expected, atol=1e-12)
    strings = [np.array(x) for x in itertools.product(*[range(3)] * 3)]
    p = np.exp(symbol_model().log_prob(sm.Sequences(strings, times=[[0.0, 0.3, 5.0]] * 27)))
    assert p.sum() == pytest.approx(1.0, abs=1e-12)


def test_on_a_grid_it_is_an_hmm_whose_transitions_are_the_exponential() -> None:
    rng = np.random.default_rng(1)
    hmm = made(HMM.from_parameters, INITIAL, expm(GENERATOR), **MOMENTS)
    timed = made(ContinuousTimeHMM.from_parameters, GENERATOR, INITIAL, **MOMENTS)
    x = [rng.normal(0.0, 3.0, (n, 1)) for n in (30, 1, 7)]
    for a, b in zip(timed.log_prob_steps(x), hmm.log_prob_steps(x), strict=True):
        assert_allclose(a, b, atol=1e-10)
    for name in ("posterior", "filter", "decode"):
        for a, b in zip(getattr(timed, name)(x), getattr(hmm, name)(x), strict=True):
            assert_allclose(a, b, atol=1e-10)
    paths = hmm.decode(x)
    assert_allclose(timed.path_log_prob(x, paths), hmm.path_log_prob(x, paths), atol=1e-10)
    columns = ["mean", "5%", "95%"]
    assert_allclose(timed.forecast(x, 4).frame[columns], hmm.forecast(x, 4).frame[columns], atol=1e-8)
    drawn = [np.concatenate(model.sample_states(x[:1], 4000)).mean() for model in (timed, hmm)]
    assert drawn[0] == pytest.approx(drawn[1], abs=0.05)
    half = sm.Sequences(x, times=[0.5 * np.arange(len(each)) + 7.0 for each in x])
    twice = made(ContinuousTimeHMM.from_parameters, 2 * GENERATOR, INITIAL, **MOMENTS)
    assert_allclose(twice.log_prob(half), hmm.log_prob(x), atol=1e-10)


def test_a_missing_step_is_a_longer_gap() -> None:
    rng = np.random.default_rng(2)
    timed = made(ContinuousTimeHMM.from_parameters, GENERATOR, INITIAL, **MOMENTS)
    x, t = rng.normal(0.0, 3.0, (8, 1)), np.cumsum(rng.gamma(1.0, 1.0, 8))
    x[[2, 3, 6]] = np.nan
    seen = ~np.isnan(x[:, 0])
    whole, without = sm.Sequences([x], times=[t]), sm.Sequences([x[seen]], times=[t[seen]])
    assert_allclose(timed.log_prob(whole), timed.log_prob(without), atol=1e-12)
    assert_allclose(timed.posterior(whole)[0][seen], timed.posterior(without)[0], atol=1e-12)


def test_dates_are_counted_in_their_unit() -> None:
    days = np.array([0.0, 0.5, 4.0, 11.0])
    dates = np.datetime64("2024-02-27", "h") + (24 * days).astype("timedelta64[h]")
    x = [np.array([0, 1, 1, 2])]
    expected = symbol_model().log_prob(sm.Sequences(x, times=[days]))
    assert_allclose(symbol_model().log_prob(sm.Sequences(x, times=[dates])), expected, rtol=1e-12)
    weekly = ContinuousTimeHMM.from_parameters(7 * GENERATOR, INITIAL, emission=EMISSION, date_unit="W")
    assert_allclose(weekly.log_prob(sm.Sequences(x, times=[dates])), expected, rtol=1e-12)
    frame = pd.DataFrame({"at": dates, "state": x[0], "who": "ann"})
    of_frame = sm.Sequences.from_frame(frame, by="who", columns="state", time="at")
    assert_allclose(symbol_model().log_prob(of_frame), expected, rtol=1e-12)


def test_a_tail_is_scored_given_the_times_of_its_past() -> None:
    X, model = irregular(3, (40,)), symbol_model()
    train, test = X.split(0.3)
    assert model.log_prob(train) + model.log_prob(test) == pytest.approx(model.log_prob(X), abs=1e-10)
    assert_allclose(np.concatenate([*model.filter(train), *model.filter(test)]), model.filter(X)[0], atol=1e-12)
    of_pieces = model.log_prob(X.chunks(9, past=None).take([3, 0, 1, 2, 4]))
    assert of_pieces.sum() == pytest.approx(model.log_prob(X)[0], abs=1e-10)
    assert train.past is None
    assert test.past is not None
    without = sm.Sequences(test.items, times=test.times, past=test.past)
    with pytest.raises(ValueError, match="sequence 0 has a past whose times are not known"):
        model.log_prob(without)


def test_other_models_do_not_look_at_times() -> None:
    X, test = irregular(3, (30, 20, 25, 9, 12, 17)), irregular(3, (10, 20, 5, 9, 12, 11), seed=1)
    few: dict[str, Any] = {"n_init": 1, "max_iter": 5}
    models = {"grid": made(HMM, 2, length="given", **few), "times": made(ContinuousTimeHMM, 2, start="free", **few)}
    table = sm.compare(models, X, test=test, baseline="grid").frame.set_index("model")
    without = made(HMM, 2, length="given", **few).fit(X.items).score(test.items)
    assert table.loc["grid", "score"] == pytest.approx(without)
    assert table.loc[["grid", "times"], "inputs"].tolist() == ["none", "time"]
    assert models["times"].measure_.inputs == ("time",)
    assert models["grid"].measure_.inputs == ()


# -- one step at a time --------------------------------------------------------------------------------------


def test_a_stream_is_told_the_time_of_each_step() -> None:
    X, model = irregular(3, (9,)), symbol_model()
    assert X.times is not None
    stream = model.stream()
    steps = [stream.update(x, time=t) for x, t in zip(X[0], X.times[0], strict=True)]
    assert_allclose(steps, model.log_prob_steps(X)[0], atol=1e-12)
    assert_allclose(stream.filtered, model.filter(X)[0][-1], atol=1e-12)
    after = X.times[0][-1] + 2.5
    expected = model.filter(X)[0][-1] @ expm(2.5 * GENERATOR) @ EMISSION
    assert_allclose(stream.predict_next(time=after).probs, expected, atol=1e-12)
    assert_allclose(model.predict_next(X[0], times=[*X.times[0], after]).probs, expected, atol=1e-12)
    with pytest.raises(ValueError, match="the time of a step goes back"):
        stream.update(0, time=X.times[0][-1] - 1.0)
    later = model.stream(past=X[0], past_times=X.times[0])
    assert later.update(1, time=after) == pytest.approx(np.log(expected[1]))


def test_without_a_time_a_step_is_one_unit_later() -> None:
    x, model = np.array([0, 2, 1, 1]), symbol_model()
    stream = model.stream()
    assert_allclose([stream.update(each) for each in x], model.log_prob_steps([x])[0], atol=1e-12)


def test_forecasts_are_of_the_times_that_are_asked_for() -> None:
    X, model = irregular(3, (9, 5)), symbol_model()
    assert X.times is not None
    ahead = [t[-1] + np.array([0.5, 3.0, 1e6]) for t in X.times]
    frame = model.forecast(X, 3, times=ahead, top_k=None).frame
    assert_allclose(frame["time"].unique(), np.concatenate(ahead))
    for i, last in enumerate(x[-1] for x in model.filter(X)):
        for h, gap in enumerate((0.5, 3.0, 1e6)):
            rows = frame[(frame["sequence"] == i) & (frame["step"] == h + 1)].sort_values("symbol")
            assert_allclose(rows["probability"], last @ expm(gap * GENERATOR) @ EMISSION, atol=1e-10)
    with pytest.raises(ValueError, match="have no one step, and the model reads times; pass times="):
        model.forecast(X, 3)
    regular = sm.Sequences([X[0]], times=[np.arange(9) * 0.5])
    first = model.forecast(regular, 2, top_k=None).frame
    assert first["time"].unique().tolist() == [4.5, 5.0]
    given = model.forecast(regular, 2, top_k=None, times=[[4.5, 5.0]]).frame
    pd.testing.assert_frame_equal(first, given)


def test_what_is_drawn_at_given_times_is_as_frequent_as_it_is_probable() -> None:
    model, times = symbol_model(), [2.0, 2.1, 9.0]
    drawn = model.sample(4000, times=times)
    strings = list(itertools.product(*[range(3)] * 3))
    p = np.exp(model.log_prob(sm.Sequences([np.array(s) for s in strings], times=[times] * 27)))
    shares = [np.mean([tuple(x) == s for x in drawn]) for s in strings]
    assert_allclose(shares, p, atol=0.02)
    assert [len(x) for x in model.sample(2, prefix=[0, 1], times=[0.0, 1.0, 1.5])] == [3, 3]
    with pytest.raises(ValueError, match="pass length=, or the times of the steps"):
        model.sample()


# -- EM ------------------------------------------------------------------------------------------------------


def drawn(model: ContinuousTimeHMM, lengths: tuple[int, ...], scale: float = 2.0) -> sm.Sequences:
    rng = np.random.default_rng(7)
    times = [np.cumsum(rng.gamma(0.7, scale, n)) for n in lengths]
    items = [model.sample(1, times=t, random_state=1000 + i)[0] for i, t in enumerate(times)]
    return sm.Sequences(items, times=times)


@pytest.mark.slow
@pytest.mark.parametrize("start", ["free", "stationary", "uniform"])
def test_em_ends_where_direct_maximisation_does(start: Any) -> None:
    q, b = np.array([[-0.2, 0.2], [0.5, -0.5]]), np.array([[0.97, 0.03], [0.05, 0.95]])  # told apart: few steps of EM
    X = drawn(ContinuousTimeHMM.from_parameters(q, emission=b), (40, 25, 30, 8, 12, 5))
    assert X.times is not None
    pairs = list(zip(X, X.times, strict=True))

    def negative(theta: Array) -> float:
        up, down = np.exp(theta[:2])
        p = 1 / (1 + np.exp(-theta[2:]))
        emission = np.array([[p[0], 1 - p[0]], [p[1], 1 - p[1]]])
        first = {"free": p[2], "stationary": down / (up + down), "uniform": 0.5}[start]
        generator = np.array([[-up, up], [down, -down]])
        return -sum(log_prob(generator, np.array([first, 1 - first]), emission[:, x].T, t) for x, t in pairs)

    model = ContinuousTimeHMM.from_parameters(
        q, None if start != "free" else [0.5, 0.5], emission=b, start=start, warm_start=True, tol=1e-9, max_iter=3000
    ).fit(X)
    rises = np.diff(model.history_["objective"])
    assert (rises > -1e-12).all()
    assert model.converged_
    begun = np.concatenate([np.log([0.2, 0.5]), [2.2, -1.4, 0.0]])
    best = minimize(negative, begun, method="BFGS", options={"gtol": 1e-6})
    assert model.log_prob(X).sum() == pytest.approx(-best.fun, abs=1e-4)
    assert_allclose(model.generator_[[0, 1], [1, 0]], np.exp(best.x[:2]), rtol=5e-3)


def test_a_step_of_em_rises_from_anywhere() -> None:
    X = irregular(3, (30, 12, 25))
    for start in ("free", "stationary"):
        model = ContinuousTimeHMM(3, start=start, n_init=1, max_iter=25, tol=0, random_state=3).fit(X)
        assert (np.diff(model.history_["objective"]) > -1e-12).all()
        assert model.start_ == start
        assert_allclose(model.generator_.sum(1), 0.0, atol=1e-12)
        assert_allclose(model.transition_, expm(model.generator_), atol=1e-12)
    assert_allclose(model.initial_ @ model.generator_, 0.0, atol=1e-12)


def test_em_begins_with_transitions_divided_by_the_mean_time_between_steps() -> None:
    X = irregular(3, (30, 12, 25, 9, 14, 20))  # some of whose times are the same
    assert X.times is not None
    gaps = np.concatenate([np.diff(t) for t in X.times])
    begun: dict[str, Any] = {"start": "free", "n_init": 1, "max_iter": 0}
    hmm, model = HMM(3, length="given", **begun).fit(X.items), ContinuousTimeHMM(3, **begun).fit(X)
    rates = hmm.transition_ * (1 - np.eye(3)) / gaps[gaps > 0].mean()
    assert_allclose(model.generator_, rates - np.diag(rates.sum(1)), rtol=1e-10)
    assert_allclose(model.initial_, hmm.initial_, rtol=1e-10)


def test_a_uniform_start_is_even_over_possible_first_states() -> None:
    X = irregular(3, (30, 12, 25, 9, 14, 20))
    begun: dict[str, Any] = {"start": "uniform", "n_init": 1, "max_iter": 2}
    assert_allclose(ContinuousTimeHMM(3, **begun).fit(X).initial_, 1 / 3)
    forwards = ContinuousTimeHMM(3, topology="left-to-right", **begun).fit(X)
    assert_array_equal(forwards.initial_, [1.0, 0.0, 0.0])


def test_states_that_are_seen_exactly() -> None:
    q = np.array([[-0.2, 0.15, 0.05], [0.1, -0.3, 0.2], [0.0, 0.0, 0.0]])
    X = drawn(ContinuousTimeHMM.from_parameters(q, [1.0, 0.0, 0.0], emission=np.eye(3)), (12,) * 30)
    exact = {
        "emission": np.eye(3),
        "training__frozen": ("emission",),
        "warm_start": True,
        "tol": 1e-11,
        "max_iter": 2000,
    }
    begin = np.array([[-0.5, 0.25, 0.25], [0.25, -0.5, 0.25], [0.0, 0.0, 0.0]])
    model = made(ContinuousTimeHMM.from_parameters, begin, [0.4, 0.3, 0.3], **exact).fit(X)
    assert_array_equal(model.emission_, np.eye(3))
    assert_array_equal(model.generator_[2], 0.0)
    assert np.isinf(model.mean_holding_times_[2])
    assert_allclose(model.initial_, [1.0, 0.0, 0.0])
    assert_allclose(model.generator_, q, atol=0.06)
    assert_array_equal(model.stationary_.round(9), [0.0, 0.0, 1.0])
    known = ContinuousTimeHMM(3, topology=q != 0, start="free", tol=1e-11, max_iter=2000).fit(X, states=[*X])
    assert_allclose(known.generator_, model.generator_, atol=1e-3)


def test_what_is_ruled_out_or_frozen_stays() -> None:
    X = irregular(3, (30, 12, 25, 9, 14, 20))
    forwards = ContinuousTimeHMM(3, topology="left-to-right", max_iter=20).fit(X)
    assert_array_equal(forwards.generator_[[0, 1, 2, 2], [2, 0, 0, 1]], 0.0)
    assert forwards.n_parameters_ == 2 + 6
    begun = {"warm_start": True, "max_iter": 5, "tol": 0}
    frozen = symbol_model(training__frozen=("transition",), **begun).fit(X)
    assert_array_equal(frozen.generator_, symbol_model().generator_)
    assert not np.array_equal(frozen.emission_, EMISSION)
    one_row = symbol_model(training__frozen=sm.hmm.Frozen(transition=[1]), **begun).fit(X)
    assert_array_equal(one_row.generator_[1], symbol_model().generator_[1])
    assert not np.array_equal(one_row.generator_[0], symbol_model().generator_[0])
    tied = ContinuousTimeHMM(4, training=ChainTraining(tied=[0, 0, 1, 1]), max_iter=5).fit(X)
    assert_array_equal(tied.emission_[0], tied.emission_[1])


def test_known_rates_are_found_again() -> None:
    q = np.array([[-0.2, 0.2], [0.6, -0.6]])
    moments = {"means": [[0.0], [3.0]], "covariances": [[1.0], [0.5]]}
    X = drawn(made(ContinuousTimeHMM.from_parameters, q, **moments), (150,) * 6, scale=1.0)
    model = ContinuousTimeHMM(2, observation=sm.GaussianMixture(1), n_init=1).fit(X).reorder("mean")
    assert_allclose(model.generator_, q, atol=0.12)
    assert_allclose(model.means_[:, 0, 0], [0.0, 3.0], atol=0.2)
    assert_allclose(model.mean_holding_times_, 1 / -np.diag(model.generator_))


# -- hard cases ----------------------------------------------------------------------------------------------


def test_gaps_of_all_sizes() -> None:
    gaps = np.array([0.0, 1e-9, 1e6, 0.0, 0.0, 1e-9, 3.0, 1e6])
    X = sm.Sequences([np.array([0, 0, 2, 2, 2, 2, 1, 0])], times=[np.cumsum(gaps)])
    expected = log_prob(GENERATOR, INITIAL, EMISSION[:, X[0]].T, np.cumsum(gaps))
    assert symbol_model().log_prob(X)[0] == pytest.approx(expected, abs=1e-10)
    fitted = symbol_model(warm_start=True, max_iter=30, tol=0).fit(X)
    assert (np.diff(fitted.history_["objective"]) > -1e-12).all()
    assert np.isfinite(fitted.generator_).all()


def test_two_steps_at_one_time_are_of_one_state() -> None:
    model = ContinuousTimeHMM.from_parameters(GENERATOR, INITIAL, emission=np.eye(3))
    assert model.log_prob(sm.Sequences([[0, 0]], times=[[1.0, 1.0]]))[0] == pytest.approx(np.log(0.5))
    assert model.log_prob(sm.Sequences([[0, 1]], times=[[1.0, 1.0]]))[0] == -np.inf
    with pytest.raises(ValueError, match="sequence 0 has probability zero"):
        model.decode(sm.Sequences([[0, 1]], times=[[1.0, 1.0]]))


def test_a_long_sequence_of_improbable_steps_does_not_underflow() -> None:
    rng = np.random.default_rng(8)
    model = made(ContinuousTimeHMM.from_parameters, GENERATOR, INITIAL, **MOMENTS)
    x, t = rng.normal(0.0, 300.0, (3000, 1)), np.cumsum(rng.gamma(0.1, 1.0, 3000))
    steps = model.log_prob_steps(sm.Sequences([x], times=[t]))[0]
    assert np.isfinite(steps).all()
    assert steps.sum() < -1e6


def test_an_autoregression_looks_at_the_steps_before() -> None:
    rng = np.random.default_rng(9)
    x = [np.cumsum(rng.normal(size=(50, 1)), 0) for _ in range(3)]
    X = sm.Sequences(x, times=[np.cumsum(rng.gamma(1.0, 1.0, 50)) for _ in x])
    model = ContinuousTimeHMM(2, observation=sm.AutoregressiveGaussian(1), n_init=1, max_iter=10).fit(X)
    assert X.times is not None
    stream = model.stream()
    steps = [stream.update(frame, time=t) for frame, t in zip(x[0], X.times[0], strict=True)]
    assert_allclose(steps, model.log_prob_steps(X)[0], atol=1e-9)


# -- in other models -----------------------------------------------------------------------------------------


def vectors_at(n: int, seed: int, labels: list[str] | None = None) -> sm.Sequences:
    """Of two levels, with an input."""
    rng = np.random.default_rng(seed)
    times = [np.cumsum(rng.gamma(0.7, 2.0, 20)) for _ in range(n)]
    items = [rng.normal(size=(20, 1)) + 3.0 * (np.sin(t)[:, None] > 0) for t in times]
    return sm.Sequences(items, times=times, labels=labels, inputs=[np.sin(t) for t in times], input_names=["u"])


@pytest.mark.slow
def test_a_mixture_gives_its_members_times_and_inputs() -> None:
    X, small = vectors_at(12, 0), {"n_init": 1, "max_iter": 5, "dtype": "float64"}
    members = [
        made(HMM, 2, input_effects=ChainInputEffects(transitions=["u"]), **small),
        made(ContinuousTimeHMM, 2, **small),
    ]
    mixture = sm.Mixture(members, weights="switching", dtype="float64", random_state=1).fit(X)
    assert mixture.measure_.inputs == ("u", "time")
    assert X.inputs is not None
    assert X.times is not None
    stream = mixture.stream()
    rows = zip(X[0], X.inputs[0][:, 0], X.times[0], strict=True)
    steps = [stream.update(x, {"u": u}, time=t) for x, u, t in rows]
    assert_allclose(steps, mixture.log_prob_steps(X)[0], atol=1e-8)
    later = [{"u": [0.0, 0.5], "time": t[-1] + np.array([1.0, 3.0])} for t in X.times]
    together, uneven = mixture.forecast(X, 2, inputs=later, n=50), X.segments([(0, 0, 20), (1, 0, 12)])
    assert together.frame["mean"].notna().all()
    ahead = [{"u": [0.0, 0.5], "time": t[-1] + np.array([1.0, 3.0])} for t in uneven.times or []]
    alone = mixture.forecast(uneven[1:], 1, inputs=[{name: each[:1] for name, each in ahead[1].items()}]).frame
    both = mixture.forecast(uneven, 1, inputs=[{name: each[:1] for name, each in a.items()} for a in ahead]).frame
    assert_allclose(both["mean"].iloc[1:], alone["mean"], atol=1e-9)
    assert both["time"].tolist() == pytest.approx([a["time"][0] for a in ahead])
    hourly = made(ContinuousTimeHMM, 2, date_unit="h", **small)
    with pytest.raises(ValueError, match="the models count times in 1 D and 1 h; pass one date_unit"):
        sm.Mixture([members[1], hourly]).fit(X)


def test_a_classifier_keeps_the_times() -> None:
    X = vectors_at(12, 0, ["a", "b"] * 6)
    model = ContinuousTimeHMM(2, n_init=1, max_iter=5, start="free")
    classifier = sm.GenerativeClassifier(model, calibrate=False).fit(X)
    alone = model.clone().fit_encoded(classifier.encoding_, X.take(np.arange(12) % 2 == 0))
    assert_allclose(classifier.models_[0].log_prob(X), alone.log_prob(X), atol=1e-12)
    with pytest.raises(ValueError, match="reads times, but features make other steps"):
        sm.GenerativeClassifier(model, features=lambda x: x[::2], calibrate=False).fit(X)


# -- files, other orders, refusals ---------------------------------------------------------------------------


def test_it_is_saved_and_goes_on(tmp_path: Path) -> None:
    X = irregular(3, (30, 12))
    model = ContinuousTimeHMM(2, date_unit="h", max_iter=5, n_init=2, warm_start=True).fit(X)
    model.save(tmp_path / "model.safetensors")
    loaded = sm.load(tmp_path / "model.safetensors")
    assert isinstance(loaded, ContinuousTimeHMM)
    assert_allclose(loaded.log_prob(X), model.log_prob(X), rtol=1e-12)
    assert_array_equal(loaded.generator_, model.generator_)
    assert loaded.measure_ == model.measure_
    assert loaded.start_ == "stationary"
    before = model.score(X)
    assert model.fit(X).score(X) > before
    other = model.reorder([1, 0])
    assert_allclose(other.log_prob(X), model.log_prob(X), atol=1e-12)
    assert_array_equal(other.generator_, model.generator_[::-1, ::-1])


def test_transitions_over_any_gap() -> None:
    over = symbol_model().transition_over(np.array([[0.0, 1.0], [2.5, 40.0]]))
    assert over.shape == (2, 2, 3, 3)
    assert_allclose(over[1, 0], expm(2.5 * GENERATOR), atol=1e-12)
    assert_allclose(symbol_model().transition_over(1.0), symbol_model().transition_, atol=1e-15)
    with pytest.raises(ValueError, match="pass finite numbers, 0 or more"):
        symbol_model().transition_over(-1.0)


def test_refusals_name_the_way_out() -> None:
    with pytest.raises(ValueError, match="rows of the generator must sum to zero"):
        ContinuousTimeHMM.from_parameters([[0.5, 0.5], [0.1, 0.9]], emission=np.eye(2))
    with pytest.raises(ValueError, match="rates of 0 or more"):
        ContinuousTimeHMM.from_parameters([[0.5, -0.5], [0.1, -0.1]], emission=np.eye(2))
    with pytest.raises(ValueError, match="date_unit"):
        ContinuousTimeHMM(2, date_unit="fortnight").fit([[0, 1, 1, 0]])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="every state leads to every other"):
        ContinuousTimeHMM.from_parameters([[-0.5, 0.5], [0.0, 0.0]], emission=np.eye(2))
    with pytest.raises(ValueError, match="the times of a sequence say how long it is"):
        ContinuousTimeHMM(2, length="stop").fit([[0, 1, 1, 0]])
    with pytest.raises(ValueError, match="leave y out"):
        ContinuousTimeHMM(2).fit([[0, 1, 1, 0]], [[0, 1]])
    with pytest.raises(ValueError, match=r"topology has shape \(1, 1\)"):
        ContinuousTimeHMM(2, topology=[[True]]).fit([[0, 1, 1, 0]])
    X = irregular(3, (30, 12))
    model = ContinuousTimeHMM(2, max_iter=2, warm_start=True).fit(X)
    with pytest.raises(ValueError, match="differs from what was fitted"):
        model.set_params(date_unit="s").fit(X)


def test_times_are_refused_where_nothing_reads_them() -> None:
    hmm = HMM.from_parameters(INITIAL, expm(GENERATOR), emission=EMISSION)
    with pytest.raises(ValueError, match="the model reads no times; leave times out"):
        hmm.sample(1, times=[0.0, 1.0])
    with pytest.raises(ValueError, match="the model reads no times; leave times out"):
        hmm.stream().update(0, time=1.0)
    with pytest.raises(ValueError, match="pass inputs= as a mapping"):
        symbol_model().predict_next([0], inputs=[[0.0], [1.0]], times=[0.0, 1.0])
    with pytest.raises(ValueError, match="times are not a list of 1; pass a list with the 2 times ahead"):
        symbol_model().forecast([[0, 1]], 2, times=[[0.0, 1.0], [2.0, 3.0]])


def test_times_with_a_zone_of_single_steps_are_on_the_clock_of_those_fitted_to(tmp_path: Path) -> None:
    days = pd.date_range("2024-01-01", periods=33, freq="D", tz="Europe/Berlin")
    values = np.random.default_rng(0).normal(size=(33, 1)).cumsum(0)
    frame = pd.DataFrame(values, index=days, columns=["v"])
    model = sm.hmm.ContinuousTimeHMM(2, max_iter=3).fit([frame.iloc[:30]])
    over_a_change = pd.date_range("2024-03-30", periods=3, freq="D", tz="Europe/Berlin")  # 24 hours, then 23
    expected = model.log_prob([frame.iloc[30:].set_axis(over_a_change)])
    model.save(tmp_path / "model")
    loaded = sm.load(tmp_path / "model")
    for times in (list(over_a_change), [t.to_pydatetime() for t in over_a_change.tz_convert("UTC")]):
        stream = loaded.stream()
        total = sum(stream.update(x, time=t) for x, t in zip(values[30:], times, strict=True))
        assert total == pytest.approx(expected[0], rel=1e-12)
    local = over_a_change.tz_localize(None)
    for times in (over_a_change, over_a_change.tz_convert("UTC")):
        np.testing.assert_array_equal(*(model.sample(times=t, random_state=0)[0] for t in (times, local)))
