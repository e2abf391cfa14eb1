"""Plots of hidden states show the path, the posterior and the chain of the model that they are given."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot
from matplotlib.dates import date2num
from matplotlib.figure import Figure
from scipy import stats

import seqmodels as sm
from seqmodels.plot.hidden_states import MAX_CHARACTERS, duration_shares
from seqmodels.plot.style import state_colour

TRANSITION = np.array([[0.9, 0.08, 0.02], [0.03, 0.95, 0.02], [0.0, 0.2, 0.8]])
CHAIN = {"initial": [0.5, 0.3, 0.2], "transition": TRANSITION}
VECTORS = sm.HMM.from_parameters(**CHAIN, means=[[0, 9], [4, 9], [8, 1]], covariances=np.ones((3, 2)))
SYMBOLS = sm.HMM.from_parameters(**CHAIN, emission=[[0.9, 0.1, 0, 0], [0.1, 0.1, 0.8, 0], [0, 0, 0.1, 0.9]])
X = VECTORS.sample(1, length=120, random_state=3)[0]


@pytest.fixture(autouse=True)
def closed():
    pyplot.close("all")
    yield
    pyplot.close("all")


def drawn_path(ax, gid, n):
    """(n,) the state of each step by the shapes on the axes, -1 where there is none."""
    states = {state_colour(k): k for k in range(14)}
    path = np.full(n, -1)
    for collection in ax.collections:
        if collection.get_gid() == gid:
            (colour,) = {pyplot.matplotlib.colors.to_hex(c) for c in collection.get_facecolor()}
            for shape in collection.get_paths():
                low, high = shape.vertices[:, 0].min(), shape.vertices[:, 0].max()
                path[(np.arange(n) > low) & (np.arange(n) < high)] = states[colour]
    return path


def data_of(ax):
    """What the lines of the data are drawn at, the top one first."""
    return [line.get_ydata() for line in ax.lines if line.get_gid() == "data"][::-1]


# -- a sequence over its states -----------------------------------------------------------------------------------


@pytest.mark.parametrize("gid", ["strip", "background"])
def test_colours_are_those_of_the_most_probable_path(gid):
    ax = sm.plot.states(VECTORS, X)
    np.testing.assert_array_equal(drawn_path(ax, gid, 120), VECTORS.decode([X])[0])
    assert len(set(VECTORS.decode([X])[0])) == 3


def test_one_feature_is_drawn_in_its_unit():
    model = sm.HMM.from_parameters(**CHAIN, means=[[0], [4], [8]], covariances=np.ones((3, 1)))
    ax = sm.plot.states(model, X[:, :1], features=["speed (m/s)"])
    np.testing.assert_array_equal(data_of(ax), [X[:, 0]])
    assert ax.get_ylabel() == "speed (m/s)"
    assert ax.get_xlabel() == "step"


def test_several_features_stand_one_above_the_other_with_their_ranges():
    ax = sm.plot.states(VECTORS, X, features=["speed (m/s)", "pulse (1/min)"])
    above, below = data_of(ax)
    assert above.min() > below.max()
    for drawn, values in ((above, X[:, 0]), (below, X[:, 1])):
        assert stats.pearsonr(drawn, values).statistic == pytest.approx(1)
    assert [text.get_text() for text in ax.get_yticklabels()] == ["pulse (1/min)", "speed (m/s)"]
    ends = [text.get_text() for text in ax.get_yticklabels(minor=True)]
    assert ends == [f"{v:.3g}" for v in (X[:, 1].min(), X[:, 1].max(), X[:, 0].min(), X[:, 0].max())]


def test_missing_values_and_constant_features_leave_gaps_and_a_level_line():
    frames = X.copy()
    frames[5, 0] = np.nan
    frames[:, 1] = 9
    ax = sm.plot.states(VECTORS, frames)
    gap, level = data_of(ax)
    assert np.flatnonzero(np.isnan(gap)).tolist() == [5]
    assert len(set(level)) == 1


def test_many_features_are_an_image_over_the_strip():
    means = np.arange(3)[:, None] * np.linspace(-1, 2, 9)
    model = sm.HMM.from_parameters(**CHAIN, means=means, covariances=np.ones((3, 9)))
    x = model.sample(1, length=80, random_state=1)[0]
    ax = sm.plot.states(model, x, features=[f"c{d}" for d in range(9)])
    mesh = next(c for c in ax.collections if c.get_gid() is None and c.get_array() is not None)
    np.testing.assert_allclose(mesh.get_array(), ((x - x.mean(0)) / x.std(0)).T)
    np.testing.assert_array_equal(drawn_path(ax, "strip", 80), model.decode([x])[0])
    assert ax.get_ylim()[1] == 9
    assert ax.get_ylim()[0] < 0
    assert [text.get_text() for text in ax.get_yticklabels()] == [f"c{d}" for d in range(9)]


def test_only_visited_states_are_in_the_legend():
    path = np.repeat([2, 0], 60)
    ax = sm.plot.states(VECTORS, X, path=path, state_names=["rest", "walk", "run"])
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["rest", "run"]
    assert [text.get_text() for text in ax.texts if text.get_gid() == "state"] == ["run", "rest"]
    np.testing.assert_array_equal(drawn_path(ax, "strip", 120), path)


def test_times_are_those_of_the_steps():
    days = pd.date_range("2024-02-27", periods=120, freq="D")
    ax = sm.plot.states(VECTORS, X, time=days)
    np.testing.assert_array_equal(ax.lines[0].get_xdata(), date2num(days.to_numpy()))
    assert ax.get_xlim() == (date2num(days[0]) - 0.5, date2num(days[-1]) + 0.5)
    assert ax.get_xlabel() == ""
    uneven = np.cumsum(np.arange(1.0, 121))
    ax = sm.plot.states(VECTORS, X, time=uneven, path=np.repeat([0, 1], 60))
    strip = [c for c in ax.collections if c.get_gid() == "strip"]
    assert strip[0].get_paths()[0].vertices[:, 0].max() == (uneven[59] + uneven[60]) / 2
    local = pd.Series(days.tz_localize("Europe/Paris"))
    assert sm.plot.states(VECTORS, X, time=local).get_xlim()[0] == pytest.approx(date2num(local)[0] - 0.5, abs=1e-6)


def test_a_part_is_drawn_as_it_is_decoded_in_the_whole():
    ax = sm.plot.states(VECTORS, X, steps=slice(40, 70))
    assert ax.get_xlim() == (39.5, 69.5)
    np.testing.assert_array_equal(drawn_path(ax, "strip", 120)[40:70], VECTORS.decode([X])[0][40:70])
    assert (drawn_path(ax, "strip", 120)[70:] == -1).all()


def test_symbols_are_dots_at_their_numbers():
    x = SYMBOLS.sample(1, length=90, random_state=0)[0]
    ax = sm.plot.states(SYMBOLS, x, features=list("ACGT"))
    np.testing.assert_array_equal(data_of(ax), [x])
    np.testing.assert_array_equal(drawn_path(ax, "strip", 90), SYMBOLS.decode([x])[0])
    assert [text.get_text() for text in ax.get_yticklabels()] == list("ACGT")


@pytest.mark.parametrize("encoding", [sm.Bytes(), sm.BPE(270)], ids=repr)
def test_every_character_stands_on_the_colour_of_its_state(encoding):
    text = "née at the sea, at the end of the day " * 4
    model = sm.HMM(2, encoding=encoding, max_iter=3).fit([text])
    ax = sm.plot.states(model, text)
    colours = {}
    for c in ax.collections:
        for shape in c.get_paths():
            (low, row), high = shape.vertices.min(0), shape.vertices[:, 0].max()
            columns = range(round(low), round(high))
            colours |= {
                (column + 0.5, row + 0.5): pyplot.matplotlib.colors.to_hex(c.get_facecolor()[0]) for column in columns
            }
    drawn = [(t.get_text(), colours[t.get_position()]) for t in ax.texts if t.get_text() != "·"]
    (path,) = model.decode([text])
    spelling = model.encoding_.spelling()
    of_bytes = np.repeat(path, [len(spelling[symbol]) for symbol in model.encoding_.encode(text)])
    last_bytes = np.cumsum([len(character.encode()) for character in text]) - 1
    assert drawn == [(c, state_colour(k)) for c, k in zip(text, of_bytes[last_bytes].tolist(), strict=True)]


def test_a_long_text_is_cut():
    model = sm.HMM(2, max_iter=2).fit(["abc " * 400])
    ax = sm.plot.states(model, "abc " * 400, steps=slice(2, None))
    characters = [t.get_text() for t in ax.texts]
    assert len(characters) == MAX_CHARACTERS
    assert "".join(characters[:6]) == "c abc "


def test_targets_are_drawn_with_their_states_after_the_source():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(30, 1)), rng.normal(2, 1, size=(20, 1))
    model = sm.HMM(2, observation=sm.GaussianMixture(1), max_iter=5).fit([x], [y])
    ax = sm.plot.states(model, x, y)
    np.testing.assert_array_equal(data_of(ax), [y[:, 0]])
    np.testing.assert_array_equal(drawn_path(ax, "strip", 20), model.decode([x], [y])[0][30:])
    assert sm.plot.posterior(model, x, y).collections[0].get_array().shape == (2, 20)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(
    ("plot", "suffix"),
    [
        (lambda model, ax: sm.plot.states(model, X, ax=ax), "pdf"),
        (lambda model, ax: sm.plot.states(model, X, ax=ax), "png"),
        (lambda model, ax: sm.plot.states(model, X, ax=ax), "svg"),
        (lambda model, ax: sm.plot.posterior(model, X, ax=ax), "svg"),
        (lambda model, ax: sm.plot.transitions(model, ax=ax), "svg"),
        (lambda model, ax: sm.plot.durations(model, [X], ax=ax), "svg"),
    ],
    ids=["states in PDF", "states in PNG", "states", "posterior", "transitions", "durations"],
)
def test_a_loaded_model_draws_on_given_axes_what_the_fitted_one_draws(plot, suffix, tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    monkeypatch.setitem(pyplot.rcParams, "svg.hashsalt", "states")
    VECTORS.save(tmp_path / "model.safetensors")
    for name, model in (("fitted", VECTORS), ("loaded", sm.load(tmp_path / "model.safetensors"))):
        figure = Figure(figsize=(5, 3), layout="constrained")
        ax = figure.add_subplot()
        assert plot(model, ax) is ax
        figure.savefig(tmp_path / f"{name}.{suffix}")
    fitted, loaded = ((tmp_path / f"{name}.{suffix}").read_bytes() for name in ("fitted", "loaded"))
    assert fitted == loaded
    assert len(fitted) > 3000
    assert pyplot.get_fignums() == []


def test_names_and_times_come_with_the_sequence():
    times = pd.date_range("2024-05-01", periods=120, freq="h")
    x = sm.Sequences([X], features=["speed", "pulse"], times=[times], time_name="when")
    model = sm.HMM(3, observation=sm.GaussianMixture(1), max_iter=2).fit(x)
    ax = sm.plot.states(model, x)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["pulse", "speed"]  # from below
    assert ax.get_xlim()[0] >= date2num(times[0]) - 1
    assert ax.get_xlabel() == ""
    assert sm.plot.posterior(model, x).get_xlim()[0] >= date2num(times[0]) - 1
    image = sm.plot.frames(x)
    assert [label.get_text() for label in image.get_yticklabels()] == ["speed", "pulse"]


def test_strings_are_drawn_as_the_symbols_they_name():
    x = ["sit", "walk", "walk", "run"] * 5
    model = sm.HMM(2, max_iter=2).fit([x])
    ax = sm.plot.states(model, x)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["run", "sit", "walk"]


def test_matplotlibs_settings_stay_as_they_are():
    before = dict(pyplot.rcParams)
    sm.plot.states(VECTORS, X)
    sm.plot.transitions(VECTORS)
    assert dict(pyplot.rcParams) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"x": [X, X]}, "x holds 2 sequences; pass one of them, such as x[0]"),
        ({"x": sm.Sequences([X, X])}, "x holds 2 sequences"),
        ({"x": X[:, :1]}, "1 features"),
        ({"x": X, "features": ["a"]}, "features is ['a'], but the model has 2 features"),
        ({"x": X, "state_names": "abc"}, "state_names is 'abc'; pass a list of words"),
        ({"x": X, "time": np.arange(9)}, "time has shape (9,), but the sequence has 120 steps"),
        ({"x": X, "time": [1, *range(119)]}, "time falls at step 1: 0 comes after 1"),
        ({"x": X, "time": [np.nan] * 120}, "time falls at step 1: nan comes after nan"),
        ({"x": X, "time": ["2024-01-01"] * 120}, "pandas.to_datetime(time)"),
        ({"x": X, "path": np.full(120, 3)}, "path has states from 3 to 3; the model has 0 to 2"),
        ({"x": X, "path": np.zeros(119, int)}, "path has shape (119,)"),
        ({"x": X, "steps": slice(5, 5)}, "leaves none of the 120 steps"),
        ({"x": X, "steps": slice(0, 9, 2)}, "a slice of neighbours"),
    ],
)
def test_what_cannot_be_drawn_is_refused(arguments, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        sm.plot.states(VECTORS, **arguments)
    assert pyplot.get_fignums() == []


@pytest.mark.parametrize("plot", [sm.plot.states, sm.plot.posterior, sm.plot.durations])
def test_only_an_hmm_has_hidden_states(plot):
    with pytest.raises(ValueError, match=r"NGram\(order=3\), which has no hidden states"):
        plot(sm.NGram(3).fit([[0, 1, 0]]), [0, 1])
    with pytest.raises(ValueError, match="not fitted"):
        plot(sm.HMM(2), X)


# -- their probabilities ------------------------------------------------------------------------------------------


def test_the_heat_map_is_the_posterior():
    ax = sm.plot.posterior(VECTORS, X, state_names=["rest", "walk", "run"], steps=slice(10, 50))
    expected = VECTORS.posterior([X])[0][10:50].T
    np.testing.assert_allclose(ax.collections[0].get_array(), expected, rtol=1e-9, atol=1e-12)
    assert ax.collections[0].get_clim() == (0, 1)
    assert ax.get_ylim() == (2.5, -0.5)  # the first state on top
    assert ax.get_xlim() == (9.5, 49.5)


# -- their transitions --------------------------------------------------------------------------------------------


def texts(ax, gid):
    return [text.get_text() for text in ax.texts if text.get_gid() == gid]


def test_an_arrow_for_each_transition_that_is_not_rare_where_its_state_is_left():
    ax = sm.plot.transitions(VECTORS, threshold=0.3)
    assert texts(ax, "p") == ["0.080", "0.030", "0.020", "0.20"]
    assert len([patch for patch in ax.patches if patch.get_gid() == "transition"]) == 4
    assert texts(ax, "note") == ["left out: less than 30% of the times that a state is left"]
    assert texts(sm.plot.transitions(VECTORS, threshold=0.19), "note") == []
    lasting = sm.HMM.from_parameters([1, 0], [[0.9996, 0.0004], [0, 1]], emission=np.eye(2))
    assert texts(sm.plot.transitions(lasting), "p") == ["4.0e-04"]
    assert texts(sm.plot.transitions(lasting), "about")[3].endswith("stays 1")


def test_nodes_are_large_by_their_share():
    ax = sm.plot.transitions(VECTORS, state_names=["rest", "walk", "run"])
    shares = np.linalg.matrix_power(TRANSITION, 10_000)[0]
    radii = np.array([patch.radius for patch in ax.patches if patch.get_gid() == "state"])
    assert stats.pearsonr(radii**2, shares).statistic == pytest.approx(1)
    assert texts(ax, "about")[::2] == ["rest", "walk", "run"]
    assert texts(ax, "about")[1] == f"{shares[0]:.0%} of steps, stays 0.90"


def test_ends_are_told():
    model = sm.HMM.from_parameters([1, 0], [[0.5, 0.25], [0, 0.9]], final=[0.25, 0.1], emission=np.eye(2))
    assert texts(sm.plot.transitions(model), "about")[3].endswith("stays 0.90, ends 0.10")


def test_probabilities_do_not_cover_one_another():
    rng = np.random.default_rng(0)
    for k in (3, 6, 12):
        transition = 0.7 * np.eye(k) + 0.3 * rng.dirichlet(np.full(k, 0.2), k)
        model = sm.HMM.from_parameters(np.full(k, 1 / k), transition, emission=np.full((k, 2), 0.5))
        ax = sm.plot.transitions(model)
        ax.figure.canvas.draw()
        boxes = [text.get_window_extent().padded(-2) for text in ax.texts if text.get_gid() in ("p", "about", "note")]
        crossing = [(a, b) for i, a in enumerate(boxes) for b in boxes[:i] if a.overlaps(b)]
        assert crossing == [], k


def test_many_states_are_a_matrix():
    transition = np.random.default_rng(0).dirichlet(np.ones(13), 13)
    model = sm.HMM.from_parameters(np.full(13, 1 / 13), transition, emission=np.full((13, 2), 0.5))
    ax = sm.plot.transitions(model)
    np.testing.assert_array_equal(ax.images[0].get_array(), transition)
    assert ax.get_xlabel() == "to state"


def test_a_threshold_is_a_probability():
    with pytest.raises(ValueError, match="threshold is 0; pass a share above 0"):
        sm.plot.transitions(VECTORS, threshold=0)


# -- how long they last -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("are_cut_off", [True, False])
def test_shares_are_kaplan_and_meiers(are_cut_off):
    rng = np.random.default_rng(0)
    paths = [np.repeat(rng.integers(0, 2, 30), rng.geometric(0.2, 30)) for _ in range(5)]
    shares = duration_shares(paths, are_cut_off=are_cut_off)
    for state in (0, 1):
        ended, cut = [], []
        for path in paths:
            bounds = np.flatnonzero(np.diff(path)) + 1
            for part in np.split(path, bounds):
                if part[0] == state:
                    ended.append(len(part))
            if are_cut_off and path[-1] == state:
                cut.append(ended.pop())
        survival = stats.ecdf(stats.CensoredData(ended, right=cut)).sf  # of more than d steps
        expected = survival.evaluate(np.arange(len(shares[state])))
        np.testing.assert_allclose(shares[state], expected)


def test_drawn_paths_last_as_the_chain_says_and_most_probable_ones_longer():
    model = sm.HMM.from_parameters([0.5, 0.5], [[0.7, 0.3], [0.1, 0.9]], means=[[0], [1]], covariances=np.ones((2, 1)))
    data = model.sample(60, length=100, random_state=0)

    def shares(n_draws):
        ax = sm.plot.durations(model, data, n_draws=n_draws)
        return [line.get_ydata()[:6] for line in ax.lines if line.get_gid() == "observed"]

    for drawn, decoded, stay in zip(shares(2), shares(0), (0.7, 0.9), strict=True):
        np.testing.assert_allclose(drawn, stay ** np.arange(6), atol=0.05)
        assert (decoded[1:] > drawn[1:] + 0.02).all()


def test_the_dashed_lines_are_the_chains():
    ax = sm.plot.durations(VECTORS, [X])
    lines = [line for line in ax.lines if line.get_gid() == "fitted"]
    for line, stay in zip(lines, np.diag(TRANSITION), strict=True):
        np.testing.assert_allclose(line.get_ydata(), stay ** (line.get_xdata() - 1.0))
    with pytest.raises(ValueError, match="n_draws is -1"):
        sm.plot.durations(VECTORS, [X], n_draws=-1)


@pytest.mark.parametrize("durations", ["categorical", "geometric"])
def test_the_dashed_lines_of_explicit_durations_are_theirs(durations):
    rng = np.random.default_rng(0)
    lasting = [np.repeat(rng.permutation(3).tolist() * 4, rng.integers(2, 5, 12)) for _ in range(10)]
    model = sm.hmm.HSMM(3, durations=durations, max_duration=6, n_init=1, length="given").fit(lasting)
    lines = [line for line in sm.plot.durations(model, lasting, n_draws=1).lines if line.get_gid() == "fitted"]
    assert len(lines) == 3
    for line, pmf, stay in zip(lines, model.durations_, np.diag(model.transition_), strict=True):
        d = line.get_xdata()
        expected = stay ** (d - 1.0) if durations == "geometric" else np.array([pmf[n - 1 :].sum() for n in d])
        np.testing.assert_allclose(line.get_ydata(), expected)


# -- over what is drawn already ---------------------------------------------------------------------------------


def spectrogram(first=0.5, last=2.5):
    """An image over 2 seconds, of 100 Hz."""
    ax = Figure().subplots()
    ax.imshow(np.arange(12.0).reshape(3, 4), extent=(first, last, 0, 100), aspect="auto", origin="lower")
    ax.set(xlabel="seconds", ylabel="Hz")
    return ax


def spans(ax, gid="background"):
    """The stretches of the x axis that are in the colours of states, from left to right."""
    boxes = [path.get_extents() for c in ax.collections if c.get_gid() == gid for path in c.get_paths()]
    return sorted((round(box.x0, 6), round(box.x1, 6)) for box in boxes)


TWO_MEANS = sm.HMM.from_parameters([0.5, 0.5], [[0.9, 0.1], [0.1, 0.9]], means=[[0], [5]], covariances=[[1], [1]])
X_OVER = np.array([[0.0], [0.1], [5.0], [5.1]])


@pytest.mark.parametrize("by", ["times", "time", "nothing"])
def test_states_over_a_spectrogram_leave_it_to_be_seen(by):
    ax = spectrogram()
    seconds = np.array([0.75, 1.25, 1.75, 2.25])
    x = sm.Sequences([X_OVER], times=[seconds]) if by == "times" else X_OVER
    assert sm.plot.states(TWO_MEANS, x, ax=ax, time=seconds if by == "time" else None) is ax
    assert spans(ax) == [(0.5, 1.5), (1.5, 2.5)]
    assert ax.get_xlim() == (0.5, 2.5)
    assert ax.get_ylim()[0] == 0
    assert spans(ax, "strip") == spans(ax)
    assert (ax.get_xlabel(), ax.get_ylabel(), len(ax.lines)) == ("seconds", "Hz", 0)
    background = [c for c in ax.collections if c.get_gid() == "background"]
    assert {c.get_alpha() for c in background} == {0.35}
    assert all(c.get_zorder() > ax.images[0].get_zorder() for c in background)
    strip = [path.get_extents().y0 for c in ax.collections if c.get_gid() == "strip" for path in c.get_paths()]
    assert min(strip) == 100  # above the picture


def test_states_over_as_many_steps_stand_at_their_numbers():
    ax = Figure().subplots()
    ax.imshow(np.zeros((3, 4)), aspect="auto")  # its first row on top
    sm.plot.states(TWO_MEANS, X_OVER, ax=ax)
    assert spans(ax) == [(-0.5, 1.5), (1.5, 3.5)]
    low, high = ax.get_ylim()
    assert low == 2.5
    assert high < -0.5
    lines = Figure().subplots()
    lines.plot(range(4), X_OVER)
    sm.plot.states(TWO_MEANS, X_OVER, ax=lines, steps=slice(1, 4))
    assert spans(lines) == [(0.5, 1.5), (1.5, 3.5)]
    assert len(lines.lines) == 1


def test_times_that_the_axes_do_not_show_are_refused():
    with pytest.raises(ValueError, match=r"times of x run from 100 to 103, but ax shows 0\.5 to 2\.5; pass time="):
        sm.plot.states(TWO_MEANS, X_OVER, ax=spectrogram(), time=np.arange(100, 104))


def test_times_of_sequences_that_are_numbers_name_the_axis():
    x = sm.Sequences([X_OVER], times=[np.arange(4) / 2], time_unit="s")
    assert sm.plot.states(TWO_MEANS, x).get_xlabel() == "time, s"
    assert sm.plot.posterior(TWO_MEANS, x).get_xlabel() == "time, s"
    frame = pd.DataFrame(X_OVER, index=pd.date_range("2024-01-01", periods=4))
    ax = sm.plot.states(TWO_MEANS, [frame])
    assert (ax.get_xlabel(), ax.get_xlim()[0]) == ("", date2num(frame.index[0]) - 0.5)
