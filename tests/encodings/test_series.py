from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm

import seqmodels as sm
from seqmodels.encodings import BoxCox, Chain, Differences, Log, RunningScale
from seqmodels.encodings.raw_data import hold_out
from seqmodels.encodings.series import SeriesEncoding
from seqmodels.encodings.step_maps import inverse_power, log_slope, power
from seqmodels.wrappers.anomalies.full_conditionals import feature_log_probs
from tests.encodings.stream_checks import assert_streams_agree
from tests.made import made

RNG = np.random.default_rng(0)
ITEMS = [np.exp(3 + np.cumsum(RNG.normal(size=(n, 2)), axis=0) * 0.1) for n in (60, 40, 20)]  # positive

CHAINS: dict[str, Callable[[], sm.encodings.Encoding]] = {
    "differences": lambda: Chain([Differences(1), sm.Standardize()]),
    "seasonal": lambda: Chain([Differences(1, 4), sm.Standardize()]),
    "log": lambda: Chain([Log(), sm.Standardize()]),
    "log-differences": lambda: Chain([Log(), Differences(1), sm.Standardize()]),
    "all": lambda: Chain(
        [
            BoxCox(0.5),
            RunningScale(),
            Differences(2),
            Chain([sm.Standardize()]),
        ]
    ),
    "running": RunningScale,
}
MODELS: dict[str, Callable[..., sm.SequenceModel]] = {
    "hmm": lambda **k: made(sm.HMM, 2, n_init=1, max_iter=4, dtype="float64", **k),
    "hmm-ar": lambda **k: made(
        sm.HMM, 1, observation=sm.AutoregressiveGaussian(1), n_init=1, max_iter=2, dtype="float64", **k
    ),
    "lstm": lambda **k: sm.LSTM(d_model=6, max_steps=5, dtype="float64", **k),
    "transformer": lambda **k: sm.Transformer(d_model=8, n_heads=2, n_layers=1, max_steps=5, dtype="float64", **k),
}


@cache
def fitted(model: str, chain: str, **options: Any) -> sm.SequenceModel:
    """Not to be changed."""
    return MODELS[model](encoding=CHAINS[chain](), **options).fit(ITEMS, validation=None)


# Every chain with a model of densities and a network; the two others with the chains that remember most.
EACH = [
    (model, chain) for chain in CHAINS for model in MODELS if model in ("hmm", "lstm") or chain in ("seasonal", "all")
]


@pytest.mark.quick_cases(5)
@pytest.mark.parametrize(("model", "chain"), EACH)
def test_a_stream_and_predictions_agree_with_the_evaluation_in_batches(model: str, chain: str) -> None:
    pytest.importorskip("pyro")
    assert_streams_agree(fitted(model, chain), ITEMS)


def with_holes() -> list[np.ndarray]:
    """``ITEMS``, of which values are missing: first and last ones, long gaps, those of a feature, scattered ones."""
    one, two, three = (x.copy() for x in ITEMS)
    one[[0, 1, 2, -1]], one[14:30] = np.nan, np.nan
    two[:9, 0], two[20:22, 1] = np.nan, np.nan
    return [one, two, np.where(np.random.default_rng(3).random(three.shape) < 0.3, np.nan, three)]


@cache
def fitted_with_holes(model: str, chain: str) -> sm.SequenceModel:
    """Not to be changed."""
    return MODELS[model](encoding=CHAINS[chain]()).fit(with_holes(), validation=None)


@pytest.mark.quick_cases(5)
@pytest.mark.parametrize(("model", "chain"), EACH)
def test_where_values_are_missing_a_stream_agrees_with_batches(model: str, chain: str) -> None:
    pytest.importorskip("pyro")
    one, holes = fitted_with_holes(model, chain), with_holes()
    unseen = np.full((6, 2), np.nan)
    items = [holes[0][:36], *holes[1:], unseen, np.concatenate([holes[2], unseen])]  # 36: six past the long gap
    steps = one.log_prob_steps(items)
    assert_allclose(steps[3], 0.0, atol=1e-12)
    for x, expected in zip(items, steps, strict=True):
        assert len(expected) == len(x)
        stream = one.stream()
        assert_allclose([stream.update(frame) for frame in x], expected, rtol=1e-12, atol=1e-12)
        for cut in (2, 18):
            past = sm.Sequences([x[cut:]], past=[x[:cut]]) if len(x) > cut else [x]
            assert_allclose(one.log_prob_steps(past)[0], expected[-len(past[0]) :], rtol=1e-9, atol=1e-12)
    x, t = ITEMS[0], 33  # after the gap
    predicted = float(one.predict_next(holes[0][:t]).log_prob(torch.as_tensor(x[t])))
    assert_allclose(predicted, steps[0][t], rtol=1e-9)


@cache
def fitted_to_one_feature(chain: str) -> sm.SequenceModel:
    """Not to be changed."""
    return MODELS["hmm"](encoding=CHAINS[chain]()).fit([x[:, :1] for x in with_holes()], validation=None)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("past", [3, 18, 31])
def test_after_missing_values_densities_integrate_to_one(chain: str, past: int) -> None:
    model, holes = fitted_to_one_feature(chain), [x[:, :1] for x in with_holes()]
    # Nodes stand closest where the last observed value is, in the unit of the map: few are then enough.
    powers = np.array([{"log": 0.0, "log-differences": 0.0, "all": 0.5}.get(chain, 1.0)])
    nodes, before = np.linspace(-6, 6, 81), holes[0][:past]
    observed, width = before[~np.isnan(before)], {0.0: 0.1, 0.5: 0.5, 1.0: 2.0}[powers.item()]
    level = observed[-1:] if len(observed) else np.nanmean(holes[0], axis=0)
    x = inverse_power(power(level, powers) + width * np.sinh(nodes), powers)
    slope = width * np.cosh(nodes) / np.exp(log_slope(x, powers))
    items = sm.Sequences([np.array([[value]]) for value in x], past=[before] * len(x))
    log_prob = model.log_prob_steps(items)
    density = np.exp(np.concatenate(log_prob))
    assert abs(np.trapezoid(density * slope, nodes) - 1) < 1e-9


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("model", ["hmm", "lstm"])
def test_after_missing_values_forecasts_are_the_moments_of_what_is_drawn(model: str, chain: str) -> None:
    one, holes, n = fitted_with_holes(model, chain), with_holes(), 500
    frame = one.forecast(holes[:1], 3, n=n, random_state=1).frame.set_index(["step", "feature"])
    drawn = np.stack(one.sample(n, prefix=holes[0], length=3, random_state=2))
    assert_array_equal(drawn[:, :-3], np.broadcast_to(holes[0], (n, 60, 2)))
    for h in range(3):
        for d in range(2):
            values = drawn[:, 60 + h, d]
            assert abs(values.mean() - frame.loc[(h + 1, d), "mean"]) < 6 * values.std() / np.sqrt(n)


def test_a_random_walk_with_gaps_has_the_likelihood_of_one() -> None:
    walk = np.cumsum(np.random.default_rng(5).normal(0.2, 1.0, size=(3_000, 1)), axis=0)
    holes = np.where(np.random.default_rng(6).random(walk.shape) < 0.4, np.nan, walk)
    model = sm.HMM(1, observation=sm.GaussianMixture(1), encoding=Differences(1), dtype="float64").fit([holes])
    at = np.flatnonzero(~np.isnan(holes[:, 0]))
    gaps, changes = np.diff(at), np.diff(holes[at, 0])
    mean, deviation = model.means_.item(), np.sqrt(model.covariances_.item())
    encoding = model.encoding_
    assert isinstance(encoding, Differences)
    assert_allclose([mean, deviation], [0.2, 1.0], atol=0.05)
    c = encoding.step_mean
    log_prob = norm.logpdf(changes, gaps * c + np.sqrt(gaps) * (mean - c), np.sqrt(gaps) * deviation)
    assert_allclose(model.log_prob_steps([holes])[0][at[1:]], log_prob, rtol=1e-9)


@pytest.mark.parametrize("chain", CHAINS)
def test_the_score_has_no_unit_and_a_file_keeps_the_model(chain: str, tmp_path: Path) -> None:
    model = fitted("hmm-ar", chain)
    scaled = [1024 * x for x in ITEMS]
    other = MODELS["hmm-ar"](encoding=CHAINS[chain]()).fit(scaled)
    assert_allclose(other.score(scaled), model.score(ITEMS) - 2 * np.log(1024), atol=1e-9)
    model.save(tmp_path / "model")
    again = sm.load(tmp_path / "model")
    assert repr(again.encoding_) == repr(model.encoding_)
    assert_allclose(again.log_prob_steps(ITEMS)[0], model.log_prob_steps(ITEMS)[0], rtol=1e-12)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("model", ["hmm", "hmm-ar", "lstm"])
def test_forecasts_are_the_moments_of_what_is_drawn(model: str, chain: str) -> None:
    one, n = fitted(model, chain), 500
    forecast = one.forecast(ITEMS[:1], 3, n=n, quantiles=(0.1, 0.5, 0.9), random_state=1)
    drawn = np.stack(one.sample(n, prefix=ITEMS[0], length=3, random_state=2))
    assert_allclose(drawn[:, :-3], np.broadcast_to(ITEMS[0], (n, 60, 2)))
    frame = forecast.frame.set_index(["step", "feature"])
    for h in range(3):
        for d in range(2):
            values = drawn[:, 60 + h, d]
            for level, name in ((0.1, "10%"), (0.5, "50%"), (0.9, "90%")):
                reached = (values <= frame.loc[(h + 1, d), name]).mean()
                assert abs(reached - level) < 5 * np.sqrt(level * (1 - level) * 2 / n)
            assert abs(values.mean() - frame.loc[(h + 1, d), "mean"]) < 6 * values.std() / np.sqrt(n)
    assert forecast.paths[0].shape == (n, 3, 2)
    assert_allclose(forecast.paths[0].mean(0), drawn[:, 60:].mean(0), atol=6 * drawn[:, 60:].std() / np.sqrt(n))


def test_a_random_walk_is_forecast_in_closed_form() -> None:
    model = sm.HMM(1, observation=sm.GaussianMixture(1), encoding=Differences(1), dtype="float64").fit(ITEMS)
    changes = np.concatenate([np.diff(x, axis=0) for x in ITEMS])
    frame = model.forecast(ITEMS[:1], 4, n=20_000, quantiles=(0.05, 0.5, 0.95)).frame
    for _, row in frame.iterrows():
        h, d = row["step"], row["feature"]
        mean, deviation = ITEMS[0][-1, d] + h * changes[:, d].mean(), np.sqrt(h) * changes[:, d].std()
        expected = [mean, *norm.ppf([0.05, 0.5, 0.95], mean, deviation)]
        assert_allclose(row[["mean", "5%", "50%", "95%"]].astype(float), expected, atol=0.05 * deviation)
    assert frame["method"].tolist() == ["exact"] * 2 + ["sampled"] * 6


def test_one_map_for_all_steps_leaves_forecasts_in_closed_form() -> None:
    frame = fitted("hmm", "log").forecast(ITEMS[:2], 3).frame
    assert set(frame["method"]) == {"exact"}


@pytest.mark.parametrize("chain", CHAINS)
def test_a_past_is_read_and_not_scored(chain: str) -> None:
    model, (x, _, _) = fitted("lstm", chain), ITEMS
    whole = model.log_prob_steps([x])[0]
    for cut in (1, 3, 20):
        steps = model.log_prob_steps(sm.Sequences([x[cut:]], past=[x[:cut]]))[0]
        assert_allclose(steps, whole[cut:], atol=1e-9)


def test_sequences_without_a_difference_have_the_density_of_first_frames() -> None:
    model = fitted("hmm", "seasonal")
    assert isinstance(model.encoding_, SeriesEncoding)
    assert model.encoding_.n_initial == 5
    short = ITEMS[0][:5]
    assert_allclose(model.log_prob_steps([short, *ITEMS])[0], model.encoding_.of_each_frame(short), rtol=1e-12)
    assert_allclose(model.log_prob_steps([short])[0], model.log_prob_steps(ITEMS)[0][:5], rtol=1e-12, atol=1e-12)
    assert len(model.sample(length=3)[0]) == 3
    with pytest.raises(ValueError, match="sequence 1 has 5 frames, but Chain"):
        model.decode([ITEMS[0], short])
    for name in ("hmm", "lstm"):  # which learn what they begin with
        anew = MODELS[name](encoding=CHAINS["seasonal"]()).fit([short, *ITEMS], validation=None)
        assert anew.log_prob([short])[0] != model.log_prob([short])[0]
    with pytest.raises(ValueError, match="sequence 0 has 5 frames, but Chain"):
        model.fit([short], validation=None)


def test_where_ends_are_events_none_comes_before_the_first_difference() -> None:
    model = fitted("hmm", "seasonal", length="stop")
    assert min(len(x) for x in model.sample(50, random_state=1)) > 5
    stream = model.stream()
    steps = [stream.update(x) for x in ITEMS[2]]
    assert_allclose([*steps, stream.log_end()], model.log_prob_steps(ITEMS)[2], atol=1e-9)
    with pytest.raises(ValueError, match="sequence 0 has 5 frames"):
        model.log_prob([ITEMS[0][:5]])
    assert model.predict_next(ITEMS[0][:5]).p_end == 0


def test_the_head_that_is_held_out_of_a_series_has_differences() -> None:
    x = RNG.normal(size=(100, 1))
    data = sm.encodings.raw_data.Data.of([x])
    train, held_out = hold_out(data, "auto", True, 0, n_initial=13)
    assert held_out is not None
    assert (len(held_out.X.items[0]), len(train.X.items[0])) == (23, 77)
    assert hold_out(data, "auto", True, 0, n_initial=30)[1] is None
    network = sm.LSTM(d_model=4, max_steps=2, encoding=Differences(0, 12)).fit([x])
    assert np.isfinite(network.history_["validation"].dropna()).all()


def test_what_an_encoding_of_series_cannot_do_is_refused() -> None:
    with pytest.raises(ValueError, match="these are pairs"):
        MODELS["hmm"](encoding=CHAINS["log"]()).fit(ITEMS, ITEMS)
    with pytest.raises(ValueError, match=r"BoxCox\(lmbda=1.0\) is number 1 of .* put a power"):
        Chain([sm.Standardize(with_mean=False), BoxCox(1.0)]).fit(sm.Sequences(ITEMS))
    with pytest.raises(ValueError, match="encodings is empty"):
        Chain([]).fit(sm.Sequences(ITEMS))
    with pytest.raises(ValueError, match="which is not an encoding of vectors"):
        Chain([sm.Bytes()]).fit(sm.Sequences(ITEMS))  # type: ignore[list-item]
    model = fitted("hmm", "differences")
    with pytest.raises(ValueError, match="depend on the frames before them"):
        model.encoding_.decode(np.zeros((3, 2)))
    with pytest.raises(ValueError, match="call forecast"):
        model.forecast_states(ITEMS, 2)[0].distribution()
    with pytest.raises(ValueError, match="3 frames of sequence 0 are given"):
        sm.backtest({"a": fitted("hmm", "seasonal")}, ITEMS[:1], horizon=2, first=3, baselines=False)
    with pytest.raises(ValueError, match=r"reads the times of all frames, but .* leaves out the first 1; pass diff"):
        sm.LinearGaussian(1, time_step=1.0, encoding=CHAINS["differences"]()).fit(
            sm.Sequences(ITEMS, times=[np.arange(len(x)) for x in ITEMS])
        )


READ_INPUTS: dict[str, Callable[..., sm.SequenceModel]] = {
    "hmm": lambda **k: made(
        sm.HMM,
        2,
        n_init=1,
        max_iter=4,
        dtype="float64",
        input_effects=sm.hmm.ChainInputEffects(emissions=["u"], transitions=["v"]),
        **k,
    ),
    "lstm": lambda **k: sm.LSTM(d_model=6, max_steps=5, dtype="float64", inputs=True, **k),
    "system": lambda **k: sm.LinearGaussian(1, max_iter=3, state_inputs=["u"], observation_inputs=["v"], **k),
}


def given_inputs(items: list[np.ndarray]) -> sm.Sequences:
    inputs = [np.random.default_rng(len(x)).normal(2.0, 3.0, size=(len(x), 2)) for x in items]
    return sm.Sequences(items, inputs=inputs, input_names=["u", "v"])


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("model", READ_INPUTS)
@pytest.mark.parametrize("chain", ["log-differences", "seasonal"])
def test_inputs_are_those_of_the_frame_whose_difference_is_read(model: str, chain: str) -> None:
    X = given_inputs(with_holes())
    assert X.inputs is not None
    one = READ_INPUTS[model](encoding=CHAINS[chain]()).fit(X, validation=None)
    d, steps = one.encoding_.n_initial, one.log_prob_steps(X)
    for x, u, expected in zip(X, X.inputs, steps, strict=True):
        stream = one.stream()
        assert_allclose([stream.update(*each) for each in zip(x, u, strict=True)], expected, atol=1e-12, rtol=1e-12)
        later = one.stream(past=x[:12], past_inputs=u[:12])
        assert_allclose([later.update(*each) for each in zip(x[12:], u[12:], strict=True)], expected[12:], atol=1e-9)
        begun = one.stream(past=x[: d - 1], past_inputs=u[: d - 1])
        each = zip(x[d - 1 :], u[d - 1 :], strict=True)
        assert_allclose([begun.update(*pair) for pair in each], expected[d - 1 :], atol=1e-9)
    x, u = ITEMS[0], X.inputs[0]
    changed = u.copy()
    changed[:d] += 10.0  # of the first frames none are read
    changed[40:] += 10.0
    other = one.log_prob_steps(X[:1].with_inputs([changed], X.input_names))[0]
    assert_allclose(other[:40], steps[0][:40], atol=1e-12)
    assert (other[40:59] != steps[0][40:59]).all()
    with pytest.raises(ValueError, match="reads the inputs u, v"):
        one.stream().update(x[0])


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("model", READ_INPUTS)
def test_with_inputs_forecasts_are_the_moments_of_what_is_drawn(model: str) -> None:
    pytest.importorskip("pyro")
    X, n = given_inputs(with_holes()), 1_000
    assert X.inputs is not None
    one = READ_INPUTS[model](encoding=CHAINS["seasonal"]()).fit(X, validation=None)
    x, u, ahead = X[0], X.inputs[0], np.array([[2.0, -1.0], [8.0, 3.0], [0.0, 0.0]])
    frame = one.forecast(X[:1], 3, n=n, random_state=1, inputs=[ahead]).frame.set_index(["step", "feature"])
    whole = np.concatenate([u, ahead])
    drawn = np.stack(one.sample(n, prefix=x, inputs=whole, random_state=2))
    assert drawn.shape == (n, 63, 2)
    means = one.predict_next(x, inputs=whole[:61]).mean
    assert_allclose(frame.loc[1, "mean"], means, rtol=1e-9)
    for h in range(3):
        for feature in range(2):
            values = drawn[:, 60 + h, feature]
            assert abs(values.mean() - frame.loc[(h + 1, feature), "mean"]) < 6 * values.std() / np.sqrt(n)
    assert one.sample(inputs=whole[:7])[0].shape == (7, 2)
    assert sm.backtest({"a": one}, X[:1], horizon=2, first=40, every=10, n=50, baselines=False).errors == {}


def test_a_change_is_regressed_on_its_inputs() -> None:
    rng = np.random.default_rng(4)
    u = rng.normal(size=(300, 1))
    x = np.cumsum(0.5 + 2.0 * u + 0.1 * rng.normal(size=u.shape), axis=0)
    X = sm.Sequences([x], inputs=[u])
    model = sm.HMM(
        1,
        observation=sm.GaussianMixture(1),
        encoding=Differences(1),
        input_effects=sm.hmm.ChainInputEffects(emissions=True),
    ).fit(X)
    errors = np.diff(x[:, 0]) - np.polyval(np.polyfit(u[1:, 0], np.diff(x[:, 0]), 1), u[1:, 0])
    expected = norm.logpdf(errors, 0, errors.std())
    assert_allclose(model.log_prob_steps(X)[0][1:], expected, atol=1e-4)


def test_forecasts_are_scored_from_origins() -> None:
    models = {chain: MODELS["hmm"](encoding=CHAINS[chain]()) for chain in ("differences", "seasonal")}
    result = sm.backtest(models, ITEMS[:1], horizon=2, first=30, every=10, n=100)
    assert result.errors == {}
    assert set(result.table()["model"]) == {"differences", "seasonal", "naive", "VAR"}


def test_states_are_drawn_under_the_frames_that_they_are_of() -> None:
    items = [x[:, :1] for x in ITEMS]
    ax = sm.plot.states(MODELS["hmm"](encoding=CHAINS["seasonal"]()).fit(items), items[:1])
    assert_array_equal(ax.lines[0].get_xdata()[:2], [0, 1])
    drawn = np.asarray(ax.lines[0].get_ydata())  # in a lane of its own
    assert_allclose(np.corrcoef(drawn, ITEMS[0][:, 0])[0, 1], 1.0, rtol=1e-9)


def test_parameters_of_a_chain_are_parameters_of_the_model() -> None:
    model = MODELS["hmm"](encoding=CHAINS["log-differences"]())
    model.set_params(encoding__encodings__1__order=2)
    copied = model.clone()
    assert copied.encoding.encodings[1].order == 2
    assert copied.encoding is not model.encoding
    assert model.clone().fit(ITEMS).encoding_.n_initial == 2


def test_units_of_parameters_are_those_of_what_is_modelled() -> None:
    model = sm.HMM(1, observation=sm.GaussianMixture(1), encoding=CHAINS["log-differences"]()).fit(ITEMS)
    changes = np.concatenate([np.diff(np.log(x), axis=0) for x in ITEMS])
    assert_allclose(model.means_.ravel(), changes.mean(0), atol=1e-6)
    assert_allclose(model.covariances_.ravel(), changes.var(0), rtol=1e-5)


@pytest.mark.parametrize("chain", CHAINS)
def test_independent_features_add_up_to_the_frame(chain: str) -> None:
    model = sm.HMM(1, observation=sm.GaussianMixture(1), encoding=CHAINS[chain](), dtype="float64").fit(ITEMS)
    past = sm.Sequences([ITEMS[0][8:], ITEMS[1]], past=[ITEMS[0][:8], ITEMS[2][:2]])
    for X in (ITEMS, past, [ITEMS[0][:1]]):
        by_feature = feature_log_probs(model, X)
        for each, steps in zip(by_feature, model.log_prob_steps(X), strict=True):
            assert_allclose(each.sum(1), steps, atol=1e-9)


def test_states_that_are_known_are_those_of_the_frames_that_have_a_difference() -> None:
    x = np.concatenate([np.zeros(1), np.cumsum(np.tile([1.0, 1.1, -3.0, -3.1], 10))])[:, None]
    states = np.concatenate([[0], np.tile([0, 0, 1, 1], 10)])
    items = [x + 0.01 * RNG.normal(size=x.shape)]
    model = sm.HMM(2, observation=sm.GaussianMixture(1), encoding=Differences(1)).fit(items, states=[states])
    assert_allclose(model.means_.ravel(), [1.05, -3.05], atol=0.05)
    assert_array_equal(model.decode(items)[0], states)  # the first frame, of which there is no change, is of the second


@pytest.mark.parametrize("weights", ["static", "switching", "gated"])
def test_a_mixture_of_one_series_reads_changes(weights: Any) -> None:
    members = [sm.HMM(2, n_init=1, max_iter=3), sm.LSTM(d_model=4, max_steps=3)]
    options = {"encoding": CHAINS["log-differences"](), "dtype": "float64"}
    model = sm.Mixture(members, weights=weights, **options).fit([ITEMS[0]])
    stream = model.stream()
    assert_allclose([stream.update(x) for x in ITEMS[1]], model.log_prob_steps(ITEMS)[1], atol=1e-9)
