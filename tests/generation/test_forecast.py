from __future__ import annotations

import io
import itertools
from typing import Any

import matplotlib as mpl
import matplotlib.dates
import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib import pyplot
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

import seqmodels as sm
from seqmodels.encodings import OpenSymbols
from seqmodels.encodings.raw_data import Data
from seqmodels.generation.cursor import ClosedFormCursor, ReadingCursor, read_steps
from seqmodels.plot.style import WIDTH
from tests.families import Row, fitted, marked, one_of_each_class, rough, rows

mpl.use("agg")
MEANS, DEVIATIONS = [[0.0], [5.0]], [1.0, 2.0]
TRANSITION = np.array([[0.9, 0.1], [0.3, 0.7]])
CHAIN = sm.HMM.from_parameters(
    [0.4, 0.6], TRANSITION, means=MEANS, covariances=[[1.0], [4.0]], dtype="float64", random_state=1
)
STOPPING = sm.HMM.from_parameters(
    [0.5, 0.5], [[0.5, 0.2], [0.1, 0.3]], [0.3, 0.6], emission=[[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]], dtype="float64"
)


def one_of_each_family() -> list[Row]:
    """One row a family and kind, and one of its rows with sources; taggers have no forecast."""
    found: dict[tuple[str, str], Row] = {}
    for row in rows():
        if not row.family.aligned:
            found.setdefault((row.family.name, "with sources" if row.conditional else row.kind), row)
    return list(found.values())


# -- in closed form ----------------------------------------------------------------------------------------------


def test_a_chain_of_gaussians_by_hand() -> None:
    x = np.array([[0.3], [4.0], [-0.5]])
    frame = CHAIN.forecast([x], 3, quantiles=(0.1, 0.5, 0.975)).frame
    belief = np.array([0.4, 0.6])
    for t, value in enumerate(x[:, 0]):
        belief = (belief if t == 0 else belief @ TRANSITION) * stats.norm.pdf(value, [0.0, 5.0], DEVIATIONS)
        belief /= belief.sum()
    for h in range(3):
        belief = belief @ TRANSITION
        row = frame.iloc[h]
        assert_allclose(row["mean"], belief @ [0.0, 5.0], rtol=1e-9)
        for name, level in (("10%", 0.1), ("50%", 0.5), ("97.5%", 0.975)):
            assert_allclose(belief @ stats.norm.cdf(row[name], [0.0, 5.0], DEVIATIONS), level, rtol=1e-7)
    assert list(frame.columns) == ["sequence", "step", "feature", "mean", "10%", "50%", "97.5%", "method"]
    assert set(frame["method"]) == {"exact"}


def test_symbols_that_may_end_by_enumeration() -> None:
    """p(the sequence lasts, and has this symbol h steps ahead), from the probabilities of whole beginnings."""
    word, k = np.array([0, 2]), 3
    frame = STOPPING.forecast([word], k, top_k=None).frame

    def p_beginning(symbols: tuple[int, ...]) -> float:
        """Of all sequences that begin so: they end there, or go on."""
        alpha = np.array([0.5, 0.5]) * STOPPING.emission_[:, symbols[0]]
        for symbol in symbols[1:]:
            alpha = (alpha @ STOPPING.transition_) * STOPPING.emission_[:, symbol]
        return float(alpha.sum())

    for h in range(1, k + 1):
        joint = np.zeros(3)
        for tail in itertools.product(range(3), repeat=h):
            joint[tail[-1]] += p_beginning((*word, *tail)) / p_beginning(tuple(word))
        rows_of_step = frame[frame["step"] == h].set_index("symbol").sort_index()
        assert_allclose(rows_of_step["survival"], joint.sum(), rtol=1e-9)
        assert_allclose(rows_of_step["probability"], joint / joint.sum(), rtol=1e-9)
        assert frame[frame["step"] == h]["probability"].is_monotonic_decreasing


def test_an_autoregression_of_one_state_is_that_of_many_draws() -> None:
    rng = np.random.default_rng(0)
    x = [np.cumsum(rng.normal(size=(60, 2)), axis=0) @ np.array([[1.0, 0.6], [0.0, 100.0]]) for _ in range(3)]
    for covariance_type in ("full", "diag"):
        observation = sm.AutoregressiveGaussian(2, covariance_type)
        model = sm.HMM(1, observation=observation, max_iter=3, encoding=sm.Standardize(), dtype="float64").fit(x)
        frame = model.forecast(x[:1], 5).frame
        assert set(frame["method"]) == {"exact"}
        drawn = np.stack(model.sample(20_000, prefix=x[0], length=5))[:, 60:]
        error = drawn.std(0) / np.sqrt(20_000)
        assert (np.abs(frame["mean"].to_numpy().reshape(5, 2) - drawn.mean(0)) < 4.5 * error).all()
        inside = (drawn >= frame["5%"].to_numpy().reshape(5, 2)) & (drawn <= frame["95%"].to_numpy().reshape(5, 2))
        assert_allclose(inside.mean(0), 0.9, atol=0.01)


def test_a_random_walk_has_the_variance_of_its_steps() -> None:
    rng = np.random.default_rng(1)
    walk = [np.cumsum(rng.normal(size=(4000, 1)), axis=0)]
    options: dict[str, Any] = {"max_iter": 3, "encoding": sm.Standardize(), "dtype": "float64"}
    model = sm.HMM(1, observation=sm.AutoregressiveGaussian(1, background=0.0), **options).fit(walk)
    frame = model.forecast(walk, 9).frame
    width = (frame["95%"] - frame["5%"]).to_numpy() / (2 * stats.norm.ppf(0.95))
    phi, noise = model.coefficients_[0, 0, 0], width[0]
    assert_allclose(width**2, noise**2 * np.cumsum(phi ** (2 * np.arange(9))), rtol=1e-6)
    assert_allclose(noise, 1.0, rtol=0.05)


# -- every family ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", marked(one_of_each_family(), one_of_each_class), ids=str)
def test_one_step_ahead_is_predict_next(row: Row) -> None:
    model, (X, y) = rough(row), row.data
    X, y = X[1:3], None if y is None else y[1:3]  # one step and six
    frame = model.forecast(X, 2, y=y, n=8, top_k=None).frame
    for i in range(2):
        source = {} if y is None else {"source": X[i]}
        ahead = model.predict_next(X[i] if y is None else y[i], **source)
        first = frame[(frame["sequence"] == i) & (frame["step"] == 1)]
        if model.length_ == "stop":
            assert_allclose(first["survival"], 1 - ahead.p_end, rtol=1e-6)
        if "symbol" in frame:
            assert_allclose(first["probability"].sum(), 1.0, rtol=1e-6)
            expected = np.sort(ahead.probs.cpu().numpy()[: len(first)])[::-1] / (1 - ahead.p_end)
            assert_allclose(first["probability"], expected, rtol=1e-5, atol=1e-7)
        elif first["method"].iloc[0] == "exact":
            assert_allclose(first["mean"], ahead.mean.detach().cpu().numpy(), rtol=1e-5, atol=1e-6)
    assert np.isfinite(frame[frame["step"] == 1].select_dtypes("number")).all(axis=None)


@pytest.mark.parametrize("row", marked(one_of_each_family(), one_of_each_class), ids=str)
def test_reading_at_once_is_reading_step_by_step(row: Row) -> None:
    model, cursor = fitted(row), fitted(row).cursor()
    if not isinstance(cursor, ReadingCursor):
        pytest.skip("it reads step by step")
    example = max(model._setting().examples(Data.of(*row.data)), key=lambda e: len(e.values))
    x = torch.as_tensor(np.stack([example.values, example.values[::-1].copy()]))
    source = None if example.source is None else [example.source] * 2
    stepwise = cursor.start(source, 2)
    for step in x.unbind(1):
        stepwise = cursor.advance(stepwise, step)
    at_once = read_steps(cursor, read_steps(cursor, cursor.start(source, 2), x[:, :3]), x[:, 3:])
    for _ in range(3):
        values = x[:, 1]
        expected, computed = (cursor.distribution(state).log_prob(values).cpu() for state in (stepwise, at_once))
        assert_allclose(computed, expected, rtol=1e-9)
        stepwise, at_once = cursor.advance(stepwise, values), cursor.advance(at_once, values)


def test_far_ahead_paths_agree_with_the_closed_form(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same HMM with and without its closed form; its own noise says how far they may be apart."""
    x = [np.array([[0.3], [4.0]]), np.array([[6.0]])]
    words = [np.array([0, 2]), np.array([1])]
    exact = CHAIN.forecast(x, 6).frame, STOPPING.forecast(words, 4, top_k=None).frame
    monkeypatch.setattr("seqmodels.hmm.cursor.HMMCursor.predictions_ahead", lambda *_: None)
    sampled = CHAIN.forecast(x, 6, n=4000).frame, STOPPING.forecast(words, 4, n=4000, top_k=None).frame
    assert sampled[0]["method"].tolist() == (["exact"] + ["sampled"] * 5) * 2
    for column in ("mean", "5%", "50%", "95%"):
        assert_allclose(sampled[0][column], exact[0][column], atol=0.25)
    first, second = (f.sort_values(["sequence", "step", "symbol"], ignore_index=True) for f in (exact[1], sampled[1]))
    assert_allclose(second["probability"], first["probability"], atol=0.03)
    assert_allclose(second["survival"], first["survival"], atol=0.03)


@pytest.mark.parametrize("observation", [sm.AutoregressiveGaussian(1), sm.GaussianMixture(2)], ids=repr)
def test_the_frame_agrees_with_its_paths(observation: sm.observations.Observation) -> None:
    rng = np.random.default_rng(2)
    x = [3 + 0.1 * np.cumsum(rng.normal(size=(40, 2)), axis=0) for _ in range(4)]
    options: dict[str, Any] = {"max_iter": 5, "n_init": 1, "encoding": sm.Standardize(), "dtype": "float64"}
    model = sm.HMM(2, observation=observation, **options).fit(x)
    forecast = model.forecast(x[:3], 6, n=3000)
    for i, paths in enumerate(forecast.paths):
        assert paths.shape == (3000, 6, 2)
        of_sequence = forecast.frame[forecast.frame["sequence"] == i]
        mean = of_sequence["mean"].to_numpy().reshape(6, 2)
        assert (np.abs(mean - paths.mean(0)) < 5 * paths.std(0) / np.sqrt(3000)).all()
        for name, level in (("5%", 0.05), ("50%", 0.5), ("95%", 0.95)):
            at = of_sequence[name].to_numpy().reshape(6, 2)
            assert_allclose((paths <= at).mean(0), level, atol=0.025)


def test_paths_of_symbols_and_text_end() -> None:
    forecast = STOPPING.forecast([np.array([0]), np.array([2, 2])], 4, n=4000)
    for i, paths in enumerate(forecast.paths):
        assert paths.shape == (4000, 4)
        ended = paths == -1
        assert (ended[:, 1:] >= ended[:, :-1]).all()
        lasts = forecast.frame[forecast.frame["sequence"] == i].drop_duplicates("step")["survival"]
        assert_allclose((~ended).mean(0), lasts, atol=0.04)
    model = sm.NGram(3).fit(["to be or not to be"] * 3)
    continued = model.forecast(["to b", "no"], 5, n=20)
    assert [len(paths) for paths in continued.paths] == [20, 20]
    assert all(isinstance(path, str) and len(path) <= 5 for path in continued.paths[0])
    first = continued.frame[(continued.frame["sequence"] == 0) & (continued.frame["step"] == 1)]
    assert first["symbol"].iloc[0] == "e"


def test_symbols_are_named_as_in_the_data() -> None:
    words = [["sit", "walk", "run"] * 6] * 4
    forecast = sm.NGram(3).fit(words).forecast([["sit", "walk"]], 2, n=20)
    assert forecast.frame["symbol"].iloc[0] == "run"
    assert set(forecast.frame["symbol"]) <= {"sit", "walk", "run"}
    assert (forecast.paths[0][:, 0] == "run").mean() > 0.5
    model = sm.NGram(3, encoding=OpenSymbols()).fit([np.array([3, 30, 700] * 6)] * 4)
    forecast = model.forecast([np.array([3, 30])], 2, n=20)
    assert forecast.frame["symbol"].iloc[0] == 700
    assert set(np.unique(forecast.paths[0])) <= {-1, 0, 3, 30, 700}  # 0 stands for all that are unknown


def test_a_sequence_that_cannot_last_has_no_values() -> None:
    model = sm.HMM.from_parameters([1.0, 0.0], [[0, 0.5], [0, 0]], [0.5, 1.0], emission=[[0.5, 0.5]] * 2)
    frame = model.forecast([np.array([0])], 3, top_k=None).frame
    assert_allclose(frame.drop_duplicates("step")["survival"], [0.5, 0, 0])
    assert frame["probability"].isna().tolist() == [False] * 2 + [True] * 4


def test_draws_repeat_by_seed_and_sequences_keep_their_names() -> None:
    rng = np.random.default_rng(3)
    x = sm.Sequences([rng.normal(size=(n, 2)) for n in (9, 3, 30)], names=["b", "a", "c"])
    model = sm.GRU(d_model=4, max_steps=2).fit(x)
    first, again = model.forecast(x, 3, n=20), model.forecast(x, 3, n=20)
    pd.testing.assert_frame_equal(first.frame, again.frame)
    assert not first.frame.equals(model.forecast(x, 3, n=20, random_state=7).frame)
    assert first.frame["sequence"].drop_duplicates().tolist() == ["b", "a", "c"]
    alone = model.forecast(x.take([2]), 1).frame
    assert_allclose(alone["mean"], first.frame[first.frame["sequence"] == "c"]["mean"][:2], rtol=1e-5)


def test_missing_values_are_summed_out() -> None:
    x = np.array([[0.3], [np.nan], [np.nan]])
    two_ahead = CHAIN.forecast([x[:1]], 3).frame["mean"].iloc[2]
    assert_allclose(CHAIN.forecast([x], 1).frame["mean"].iloc[0], two_ahead, rtol=1e-9)


def test_only_cursors_with_a_closed_form_say_so() -> None:
    assert isinstance(CHAIN.cursor(), ClosedFormCursor)
    rng = np.random.default_rng(4)
    network = sm.GRU(d_model=4, max_steps=1).fit([rng.normal(size=(9, 1)) for _ in range(3)])
    assert not isinstance(network.cursor(), ClosedFormCursor)


# -- refused -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"k": 0}, "k is 0; pass a whole number"),
        ({"k": 2.5}, "k is 2.5"),
        ({"n": 0}, "n is 0"),
        ({"quantiles": (0.5, 0.1)}, "increasing numbers between 0 and 1"),
        ({"quantiles": (0.0, 0.5)}, "increasing numbers"),
        ({"top_k": 0}, "top_k is 0"),
    ],
)
def test_arguments_that_cannot_be_are_refused(options: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        CHAIN.forecast([np.zeros((2, 1))], **({"k": 1} | options))  # type: ignore[arg-type]


def test_what_cannot_be_forecast_is_refused() -> None:
    impossible = sm.HMM.from_parameters([1.0, 0.0], np.eye(2), emission=np.eye(2), dtype="float64")
    with pytest.raises(ValueError, match="sequence 1 has probability zero"):
        impossible.forecast([np.array([0, 0]), np.array([0, 1])], 2)
    tagger = sm.HMMTagger(max_iter=2).fit([np.array([0, 1, 2])] * 3, [np.array([0, 1, 0])] * 3)
    with pytest.raises(ValueError, match="nothing follows"):
        tagger.forecast([np.array([0, 1])], 1, y=[np.array([0, 1])])
    with pytest.raises(ValueError, match="has 2 features but the model was fitted on 1"):
        CHAIN.forecast([np.zeros((2, 2))], 1)


# -- the picture -------------------------------------------------------------------------------------------------


def test_a_fan_chart_has_the_bands_of_the_frame() -> None:
    x = [np.random.default_rng(5).normal(size=(50, 1))]
    forecast = CHAIN.forecast(x, 4, quantiles=(0.05, 0.25, 0.5, 0.75, 0.95))
    ax = sm.plot.forecast(forecast, truth=np.ones(9), paths=3, unit="metres")
    observed, *_paths, actual = [line for line in ax.lines if line.get_label() in ("observed", "actual")]
    assert_array_equal(observed.get_xdata(), np.arange(-29, 1))
    assert_array_equal(observed.get_ydata(), x[0][-30:, 0])
    assert_array_equal(actual.get_ydata(), [x[0][-1, 0], 1, 1, 1, 1])
    (median,) = [line for line in ax.lines if line.get_label() == "median"]
    assert_allclose(median.get_ydata()[1:], forecast.frame["50%"])
    assert [band.get_label() for band in ax.collections] == ["90 %", "50 %"]
    upper = ax.collections[0].get_paths()[0].vertices[:, 1].max()
    assert_allclose(upper, max(forecast.frame["95%"].max(), x[0][-1, 0]))
    assert len(ax.lines) == 3 + 3
    assert ax.get_ylabel() == "metres"
    for form, start in (("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")):
        buffer = io.BytesIO()
        ax.figure.savefig(buffer, format=form)
        assert buffer.getvalue().startswith(start)


def test_a_fan_chart_of_angles_has_no_line_from_pi_to_minus_pi() -> None:
    x = np.random.default_rng(0).vonmises(3.1, 8.0, size=(80, 1))
    forecast = sm.HMM(1, observation=sm.observations.VonMises(), random_state=0).fit([x]).forecast([x], 4, n=20)
    assert forecast.are_angles == (True,)
    ax = sm.plot.forecast(forecast, truth=x[:4], paths=3)
    for line in ax.lines:
        assert np.nanmax(np.abs(np.diff(line.get_ydata()))) < np.pi
    observed = next(line for line in ax.lines if line.get_label() == "observed")
    assert_array_equal(observed.get_ydata()[~np.isnan(observed.get_ydata())], x[-30:, 0])  # as they are, with gaps
    assert np.isnan(observed.get_ydata()).sum() == (np.abs(np.diff(x[-30:, 0])) > np.pi).sum() > 0


def test_a_fan_chart_is_drawn_as_other_plots_are() -> None:
    """On a figure of pyplot, or on what is given; matplotlib's settings stay as they are."""
    before = dict(mpl.rcParams)
    forecast = CHAIN.forecast([np.zeros((9, 1))], 4)
    ax = forecast.plot()
    assert pyplot.get_fignums() == [ax.figure.number]
    assert ax.figure.get_figwidth() == WIDTH
    mine = mpl.figure.Figure().subplots()
    assert forecast.plot(mine) is mine
    assert len(pyplot.get_fignums()) == 1
    assert dict(mpl.rcParams) == before


def test_features_are_called_by_their_names() -> None:
    rng = np.random.default_rng(0)
    named = sm.Sequences([rng.normal(size=(20, 2)) for _ in range(3)], features=["flow", "heat"])
    model = sm.HMM(1, observation=sm.AutoregressiveGaussian()).fit(named)
    by_name = model.forecast(named, 2)
    assert by_name.frame["feature"].tolist() == ["flow", "heat"] * 6
    assert by_name.features == ("flow", "heat")
    plain = model.forecast(named.items, 2)  # the names that the model was fitted to
    assert plain.frame["feature"].tolist() == ["flow", "heat"] * 6
    number = by_name.plot(feature=1, sequence=1)
    name = plain.plot(feature="heat", sequence=1)
    assert number.get_ylabel() == name.get_ylabel() == "heat"
    assert number.get_title(loc="right") == "sequence 1 (2 of 3)"
    medians = [next(line.get_ydata() for line in ax.lines if line.get_label() == "median") for ax in (number, name)]
    np.testing.assert_allclose(medians[0], medians[1], rtol=1e-12)
    rows = by_name.frame[(by_name.frame["sequence"] == 1) & (by_name.frame["feature"] == "heat")]
    assert_array_equal(medians[0], [named[1][-1, 1], *rows["50%"]])
    unnamed = sm.HMM(1, observation=sm.AutoregressiveGaussian()).fit(named.items).forecast(named.items, 1)
    assert unnamed.frame["feature"].tolist() == [0, 1] * 3
    assert unnamed.plot(feature=1).get_ylabel() == "feature 1"
    with pytest.raises(ValueError, match="feature is 'cold', but there are 2, numbered from 0: flow, heat"):
        by_name.plot(feature="cold")


def test_features_go_by_their_names() -> None:
    x = sm.Sequences([np.random.default_rng(6).normal(size=(40, 2))], features=["pulse", "pressure"])
    model = sm.HMM(1, observation=sm.GaussianMixture(1)).fit(x)
    for history in (x, [np.asarray(x[0])]):  # the model knows the names, too
        forecast = model.forecast(history, 2)
        assert forecast.frame["feature"].tolist() == ["pulse", "pressure"] * 2
        named, numbered = forecast.plot(feature="pressure"), forecast.plot(feature=1)
        assert named.get_ylabel() == numbered.get_ylabel() == "pressure"
        assert_array_equal(named.lines[0].get_ydata(), x[0][-30:, 1])
    with pytest.raises(ValueError, match="feature is 'weight', but there are 2, numbered from 0: pulse, pressure"):
        forecast.plot(feature="weight")


def test_a_picture_of_symbols_is_a_map_of_probabilities() -> None:
    forecast = STOPPING.forecast([np.array([0])], 4, top_k=None)
    (image,) = forecast.plot().images
    assert image.get_array().shape == (3, 4)
    assert_allclose(image.get_array().sum(0), 1.0)


def test_a_picture_of_what_is_not_there_is_refused() -> None:
    forecast = CHAIN.forecast([np.zeros((3, 1))], 2)
    with pytest.raises(ValueError, match="no sequence 'x'"):
        forecast.plot(sequence="x")
    with pytest.raises(ValueError, match="feature is 1, but there are 1"):
        forecast.plot(feature=1)


# -- times -------------------------------------------------------------------------------------------------------

MONTHS = pd.date_range("2023-01-31", periods=14, freq="ME")
TWO = sm.HMM.from_parameters([1.0], [[1.0]], means=[[0.0, 5.0]], covariances=[[1.0, 1.0]])


def dated(n_features: int = 2) -> pd.DataFrame:
    values = np.random.default_rng(1).normal(size=(12, n_features))
    return pd.DataFrame(values, index=MONTHS[:12], columns=["flow", "heat"][:n_features])


def test_the_steps_ahead_have_the_dates_that_follow() -> None:
    for history in ([dated()], sm.Sequences.from_frame(dated())):
        frame = TWO.forecast(history, 2).frame
        assert list(frame.columns[:4]) == ["sequence", "step", "time", "feature"]
        assert frame["time"].tolist() == [*MONTHS[12:13]] * 2 + [*MONTHS[13:14]] * 2
    zoned = TWO.forecast([dated().tz_localize("UTC")], 2).frame
    assert zoned["time"].tolist() == [*MONTHS[12:13].tz_localize("UTC")] * 2 + [*MONTHS[13:14].tz_localize("UTC")] * 2
    assert "time" not in TWO.forecast([dated().to_numpy()], 2).frame
    symbols = STOPPING.forecast([pd.Series([0, 1, 0], index=MONTHS[:3])], 2, top_k=1).frame
    assert symbols["time"].tolist() == [*MONTHS[3:5]]


def test_times_that_do_not_go_on_are_said() -> None:
    irregular = dated().iloc[[0, 1, 5]]
    with pytest.warns(UserWarning, match=r"1 of 1 sequences \(0\) have no one step.*asfreq"):
        assert "time" not in TWO.forecast([irregular], 2).frame
    both = sm.Sequences([dated(), irregular], names=["a", "b"])
    with pytest.warns(UserWarning, match=r"1 of 2 sequences \(b\)"):
        forecast = TWO.forecast(both, 1)
    assert forecast.frame["time"].isna().tolist() == [False, False, True, True]
    assert [forecast.plot(sequence=name, feature=0).get_xlabel() for name in ("a", "b")] == ["", "steps ahead"]


def test_a_fan_chart_of_dates_has_a_panel_for_each_feature() -> None:
    forecast = TWO.forecast(sm.Sequences.from_frame(dated()), 2)
    panels = forecast.plot(truth=np.ones((2, 2)))
    assert [ax.get_ylabel() for ax in panels] == ["flow", "heat"]
    assert panels.figure is panels[0].figure
    for d, ax in enumerate(panels):
        (observed,) = [line for line in ax.lines if line.get_label() == "observed"]
        assert_array_equal(observed.get_ydata(), dated().to_numpy()[:, d])
        (median,) = [line for line in ax.lines if line.get_label() == "median"]
        assert_array_equal(observed.get_xdata(), mpl.dates.date2num(MONTHS[:12]))
        assert_array_equal(median.get_xdata(), mpl.dates.date2num(MONTHS[11:]))
        assert median.get_ydata()[-1] == pytest.approx([0, 5][d], abs=1e-6)
    assert isinstance(panels[1].xaxis.get_major_formatter(), mpl.dates.ConciseDateFormatter)
    mine = mpl.figure.Figure().subplots(2)
    assert forecast.plot(mine) == tuple(mine)
    assert forecast.plot(feature=["heat"]).get_ylabel() == "heat"
    alone = mpl.figure.Figure().subplots()
    assert forecast.plot(alone).get_ylabel() == "flow"  # one axes: the first feature
    for options, says in (
        ({"ax": mine, "feature": 0}, "ax holds 2 axes, but 1 are drawn on"),
        ({"truth": np.ones(2)}, r"truth has shape \(2,\), but 2 of 2 features"),
        ({"feature": []}, "empty list"),
    ):
        with pytest.raises(ValueError, match=says):
            forecast.plot(**options)  # type: ignore[arg-type]


def test_numbers_as_times_are_called_by_their_name_and_unit() -> None:
    x = sm.Sequences([dated().to_numpy()], times=[np.arange(12) * 0.5], time_unit="s")
    forecast = TWO.forecast(x, 2)
    assert forecast.frame["time"].tolist() == [6, 6, 6.5, 6.5]
    ax = forecast.plot(feature=0)
    assert ax.get_xlabel() == "time, s"
    assert ax.lines[-1].get_xdata().tolist() == [5.5, 6, 6.5]


def test_many_features_are_not_all_drawn_and_that_is_said() -> None:
    wide = sm.HMM.from_parameters([1.0], [[1.0]], means=[np.zeros(14)], covariances=[np.ones(14)])
    panels = wide.forecast([np.zeros((3, 14))], 1).plot()
    assert len(panels) == 12
    assert "the first 12 of 14 features" in panels[-1].get_xlabel()


def test_a_map_of_symbols_has_dates() -> None:
    forecast = STOPPING.forecast([pd.Series([0, 1, 0], index=MONTHS[:3])], 2)
    ax = forecast.plot()
    assert [label.get_text() for label in ax.get_xticklabels()] == ["2023-04-30", "2023-05-31"]


@pytest.mark.parametrize(
    "model",
    [
        sm.HMM(2, observation=sm.AutoregressiveGaussian(1, background=0.1), n_init=1),
        sm.HMM(1, observation=sm.AutoregressiveGaussian(1, background=0.1, predictive="plug-in")),
        sm.HMM(1, observation=sm.AutoregressiveGaussian(1, background=0.1)),
    ],
    ids=["two states", "estimates", "posterior"],
)
def test_each_drawn_path_maps_all_of_its_own_components(model: sm.HMM) -> None:
    # A change is like the last one, so that its distribution belongs to the level that its own path has reached.
    changes, rng = np.zeros(300), np.random.default_rng(0)
    for t in range(1, 300):
        changes[t] = 0.9 * changes[t - 1] + rng.normal()
    x = changes.cumsum()[:, None]
    model = model.set_params(encoding=sm.encodings.Differences(), random_state=0, max_iter=5).fit([x])
    frame = model.forecast([x], 2, n=2000, quantiles=(0.1, 0.9), random_state=0).frame
    drawn = np.array([each[-1, 0] for each in model.sample(4000, length=2, prefix=x, random_state=1)])
    width = np.subtract(*np.quantile(drawn, [0.9, 0.1]))
    second = frame[frame["step"] == 2].iloc[0]
    assert second["method"] == "sampled"
    assert second["90%"] - second["10%"] == pytest.approx(width, rel=0.06)
