"""Pictures: every model is in them, nothing overlaps or is cut, and neither do they read nor change global settings."""

import io

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from seqmodels.plot.curves import bin_edges, bin_means, by_position, learning_curves, spread
from seqmodels.plot.forest import forest
from seqmodels.plot.style import COLOURS, NARROW, WIDTH, short_in

SIZES = pytest.mark.parametrize("n", [1, 3, 14])


def names(n):
    return [f"model-{i}" + "-of-some-length" * (i % 3) for i in range(n)]


def table(n):
    difference = np.linspace(0.3, -0.2, n)
    difference -= difference[n // 2]
    frame = pd.DataFrame({"model": names(n), "score": difference - 2, "difference": difference})
    frame["ci_low"], frame["ci_high"] = difference - 0.05, difference + 0.04
    frame["kind"], frame["context"] = "exact", np.nan
    frame.loc[n // 2, ["ci_low", "ci_high"]] = 0.0
    frame.attrs = {"unit": "byte", "baseline": names(n)[n // 2], "title": f"{n} models"}
    return frame


def histories(n, validation=True):
    made = {}
    for i, name in enumerate(names(n)):
        seconds = np.linspace(0.1, 3.0 + i**2, 30)
        log_prob = -2 - 0.02 * i - 5 * np.exp(-np.arange(30) / 4)
        held_out = np.where((np.arange(30) % 3 == 0) & validation, log_prob - 0.1, np.nan)
        columns = {"step": np.arange(30), "seconds": seconds, "log_prob": log_prob, "validation": held_out}
        made[name] = pd.DataFrame(columns)
    return made


def steps(n, lengths=(900, 300, 100, *[40] * 30)):
    rng = np.random.default_rng(0)
    return {name: [rng.normal(-2, 0.5, length) for length in lengths] for name in names(n)}


def pixels(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="rgba")
    return buffer.getvalue()


def texts(figure, gid):
    return [text for text in figure.axes[0].texts if text.get_gid() == gid]


def lines(figure, gid):
    return [line for line in figure.axes[0].lines if line.get_gid() == gid]


def check_layout(figure):
    """Texts outside the curves lie within the figure and do not touch each other."""
    pixels(figure)
    axes = figure.axes[0]
    wanted = ("label", "name", "score", "context", "few", "excluded", "outlier")
    shown = [text for text in axes.texts if text.get_gid() in wanted] + [axes._left_title, axes.xaxis.label]
    shown += [label for label in axes.get_yticklabels() if label.get_text()[:1].isalpha()]  # models, not numbers
    shown += [figure._supxlabel] if figure._supxlabel else []
    boxes = [text.get_window_extent() for text in shown if text.get_text()]
    for i, box in enumerate(boxes):
        assert figure.bbox.x0 <= box.x0, shown[i]
        assert box.x1 <= figure.bbox.x1, shown[i]
        assert figure.bbox.y0 <= box.y0, shown[i]
        assert box.y1 <= figure.bbox.y1, shown[i]
        for k in range(i):
            assert not box.overlaps(boxes[k]), (shown[i], shown[k])


class TestForest:
    @SIZES
    def test_a_point_an_interval_and_a_score_for_each_model(self, n):
        figure, frame = forest(table(n)), table(n)
        check_layout(figure)
        assert [line.get_xdata()[0] for line in lines(figure, "point")] == frame["difference"].tolist()
        whiskers = [tuple(line.get_xdata()) for line in lines(figure, "interval")]
        others = frame["model"] != frame.attrs["baseline"]
        assert whiskers == list(zip(frame.loc[others, "ci_low"], frame.loc[others, "ci_high"], strict=True))
        assert [text.get_text() for text in figure.axes[0].get_yticklabels()] == names(n)
        scores = [text.get_text() for text in texts(figure, "score")]
        assert scores == ["score", *(f"{score:.3f}".replace("-", "−") for score in frame["score"])]
        assert figure.axes[0].yaxis_inverted()

    @SIZES
    def test_a_narrow_one_has_names_and_scores_above_the_rows(self, n):
        figure = forest(table(n), width=NARROW)
        check_layout(figure)
        axes = figure.axes[0]
        assert [text.get_text() for text in texts(figure, "name")] == [short_in(figure, name) for name in names(n)]
        assert [text.get_text()[-5:] for text in texts(figure, "score")] == [f"{s:.3f}"[-5:] for s in table(n)["score"]]
        assert texts(figure, "name")[0].get_fontweight() == "bold"
        assert axes.get_window_extent().width > 0.8 * figure.bbox.width

    def test_a_narrow_one_has_headings_and_no_line_through_its_scores(self):
        frame = table(6)
        frame[["difference", "ci_low", "ci_high"]] -= frame["ci_high"].max()  # zero is where the scores stand
        figure = forest(frame, width=NARROW)
        check_layout(figure)
        axes = figure.axes[0]
        headings = [*texts(figure, "heading of name"), *texts(figure, "heading of score")]
        assert [text.get_text() for text in headings] == ["model", "score"]
        first = texts(figure, "score")[0].get_window_extent()
        assert headings[1].get_window_extent().y0 > first.y1
        zero = next(line for line in axes.lines if line.get_gid() is None)
        assert zero.get_window_extent().x0 > first.x0  # it would cross them
        for text in (*headings, *texts(figure, "score"), *texts(figure, "name")):
            assert text.get_zorder() > zero.get_zorder()
            assert to_hex(text.get_bbox_patch().get_facecolor()) == "#ffffff"

    def test_bounds_are_hollow_and_explained(self):
        frame = table(4)
        assert "hollow" not in forest(frame).get_supxlabel()
        frame.loc[1, "kind"] = "bound"
        figure = forest(frame)
        assert [to_hex(line.get_markerfacecolor()) == "#ffffff" for line in lines(figure, "point")] == [0, 1, 0, 0]
        assert "hollow: a lower bound" in figure.get_supxlabel()

    def test_without_interval_or_score(self):
        frame = table(5)
        frame.loc[0, ["ci_low", "ci_high"]] = np.nan
        frame.loc[3, ["score", "difference", "ci_low", "ci_high"]] = np.nan
        frame.loc[4, ["score", "difference", "ci_low", "ci_high"]] = [-np.inf, -np.inf, np.nan, np.nan]
        figure = forest(frame)
        check_layout(figure)
        assert len(lines(figure, "point")) == 3
        assert len(lines(figure, "interval")) == 1
        assert [text.get_text().strip()[:10] for text in texts(figure, "excluded")] == ["not scored", "−inf: impo"]
        assert [text.get_text() for text in texts(figure, "score")][-2:] == ["–", "−inf"]

    def test_a_score_that_a_floor_made_is_grey_and_says_so(self):
        frame = table(3)
        frame["rank"] = [1.0, 2.0, np.nan]
        (said,) = texts(forest(frame), "floor")
        assert said.get_text() == "set by the floor"

    def test_why_there_is_no_difference(self):
        frame = table(3)
        frame["difference"], frame["score"] = [np.inf, np.nan, -np.inf], [-1.0, -np.inf, -np.inf]
        frame["ci_low"] = frame["ci_high"] = np.nan
        said = [text.get_text().strip() for text in texts(forest(frame), "excluded")]
        assert said == ["+inf: impossible for the baseline", "−inf for the baseline, too", "−inf: impossible test data"]

    def test_a_row_far_from_all_others_does_not_squeeze_them(self):
        frame = table(6)
        frame.loc[5, ["difference", "ci_low", "ci_high"]] = [-40.0, -41.0, -39.0]
        figure = forest(frame)
        assert figure.axes[0].get_xlim()[0] > -1
        assert [text.get_text().strip() for text in texts(figure, "outlier")] == ["◂ −40"]
        assert len(lines(figure, "point")) == 5

    def test_context_is_a_column_where_it_differs(self):
        frame = table(3)
        assert not texts(forest(frame), "context")
        frame["context"] = [np.nan, 4.0, 1024.0]
        figure = forest(frame)
        check_layout(figure)
        assert [text.get_text() for text in texts(figure, "context")] == ["context", "all", "4", "1024"]


class TestLearningCurves:
    @SIZES
    def test_two_curves_and_a_label_for_each_model(self, n):
        figure = learning_curves(histories(n), unit="byte", title="fitting")
        check_layout(figure)
        assert len(lines(figure, "full")) == len(lines(figure, "faint")) == n
        assert {text.get_text() for text in texts(figure, "label")} == set(names(n))
        assert [len(line.get_xdata()) for line in lines(figure, "full")] == [10] * n
        assert figure.axes[0].get_xscale() == ("log" if n > 6 else "linear")

    def test_training_is_drawn_full_where_nothing_was_held_out(self):
        figure = learning_curves(histories(2, validation=False))
        assert [len(line.get_xdata()) for line in lines(figure, "full")] == [30, 30]
        assert [len(line.get_xdata()) for line in lines(figure, "faint")] == [0, 0]
        assert "nothing was held out" in figure.get_supxlabel()

    def test_the_start_does_not_set_the_scale(self):
        assert learning_curves(histories(3)).axes[0].get_ylim()[0] > -3

    def test_a_model_of_one_step_and_one_of_none(self):
        made = histories(3)
        made[names(3)[0]] = made[names(3)[0]].iloc[:1]
        made[names(3)[1]] = made[names(3)[1]].iloc[:0].drop(columns="validation")
        figure = learning_curves(made)
        pixels(figure)
        assert [line.get_marker() for line in lines(figure, "full")] == ["o", "", ""]
        assert len(texts(figure, "label")) == 2


class TestByPosition:
    @SIZES
    def test_a_line_and_a_label_for_each_model(self, n):
        figure = by_position(steps(n), unit="byte", title="position")
        check_layout(figure)
        curves = [line for line in figure.axes[0].lines if line.get_marker() == "o"]
        assert len(curves) == n
        assert {text.get_text() for text in texts(figure, "label")} == set(names(n))

    def test_means_by_hand(self):
        edges = np.array([1, 2, 4])
        means, infinite = bin_means([np.array([-1.0, -2.0, -4.0]), np.array([-3.0, -np.inf])], edges)
        assert means.tolist() == [-2, -3]
        assert infinite == 1

    @pytest.mark.parametrize("longest", [1, 2, 7, 1000, 123_456])
    def test_bins_hold_every_position_once(self, longest):
        edges = bin_edges(longest)
        assert edges[0] == 1
        assert edges[-1] == longest + 1
        assert (np.diff(edges) > 0).all()

    def test_few_sequences_are_counted(self):
        figure = by_position(steps(2))
        assert [text.get_text() for text in texts(figure, "few")] == ["n = 3", "2", "1"]
        assert not texts(by_position(steps(2, lengths=[50] * 20)), "few")

    @pytest.mark.parametrize(("width", "least"), [(WIDTH, 5), (NARROW, 2)])
    def test_numbers_of_sequences_do_not_touch(self, width, least):
        figure = by_position(steps(1, lengths=[int(10 * 1.35**i) for i in range(19)]), width=width)
        check_layout(figure)
        assert least < len(texts(figure, "few")) < 19

    def test_infinite_steps_are_counted_below(self):
        made = steps(2)
        made["model-0"][0][3:5] = -np.inf
        assert by_position(made).get_supxlabel() == "steps of −inf left out: 2 of model-0"


class TestStyle:
    FIGURES = (lambda: forest(table(4)), lambda: learning_curves(histories(8)), lambda: by_position(steps(3)))

    @pytest.mark.parametrize("draw", FIGURES)
    def test_global_settings_are_neither_read_nor_changed(self, draw):
        before = dict(matplotlib.rcParams)
        plain = pixels(draw())
        assert dict(matplotlib.rcParams) == before
        hostile = {"xtick.color": "red", "text.color": "yellow", "axes.facecolor": "black", "figure.facecolor": "black"}
        with matplotlib.rc_context({**hostile, "font.size": 20, "lines.linewidth": 7, "axes.grid": True}):
            assert pixels(draw()) == plain

    def test_png(self):
        buffer = io.BytesIO()
        forest(table(3)).savefig(buffer, format="png")
        assert buffer.getvalue().startswith(b"\x89PNG")

    def test_neighbouring_lines_look_different(self):
        drawn = lines(learning_curves(histories(14)), "full")
        looks = {(to_hex(line.get_color()), str(line.get_linestyle())) for line in drawn}
        assert len({to_hex(line.get_color()) for line in drawn}) == len(COLOURS)
        assert len(looks) == 14

    @pytest.mark.parametrize("width", [WIDTH, NARROW])
    def test_a_very_long_name_is_cut(self, width):
        frame = table(3)
        frame.loc[0, "model"] = "x" * 300
        check_layout(forest(frame, width=width))
        check_layout(by_position({"x" * 300: steps(1)["model-0"]}, width=width))

    @pytest.mark.parametrize("draw", [learning_curves, by_position])
    def test_in_narrow_figures_curves_keep_half_of_the_width(self, draw):
        data = histories(9) if draw is learning_curves else steps(9)
        figure = draw(data, width=NARROW)
        check_layout(figure)
        assert figure.axes[0].get_window_extent().width > 0.4 * figure.bbox.width

    def test_spread_keeps_labels_apart_and_inside(self):
        heights = spread(np.array([0.0, 0.5, 0.51, 0.52, 1.0]), 0.1)
        assert heights == pytest.approx([0.0, 0.41, 0.51, 0.61, 1.0])
        assert np.diff(spread(np.full(5, 1.0), 0.1)) == pytest.approx([0.1] * 4)
        assert spread(np.full(5, 1.0), 0.1)[-1] == pytest.approx(1)
