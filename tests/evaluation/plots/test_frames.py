"""Pictures of calibration and of vectors over time show what they are given."""

import numpy as np
import pandas as pd
import pytest

from seqmodels.evaluation.plots.calibration import reliability_diagram, transform_histograms
from seqmodels.evaluation.plots.frames import CLIP, Scale, frame_differences, runs, side_by_side, state_strip

FRAMES = np.random.default_rng(0).normal(3, 2, (50, 4))
SCALE = Scale([FRAMES])


def test_frames_are_shown_in_deviations_with_time_across():
    axes = side_by_side({"a": FRAMES, "b": FRAMES[:10]}, scale=SCALE).axes
    (image,) = axes[0].images
    np.testing.assert_allclose(image.get_array(), (FRAMES.T - FRAMES.mean(0)[:, None]) / FRAMES.std(0)[:, None])
    assert image.get_clim() == (-CLIP, CLIP)
    assert [a.get_title() for a in axes[:2]] == ["a", "b"] or [a.get_title(loc="left") for a in axes[:2]] == ["a", "b"]


def test_a_constant_feature_and_missing_values_have_a_scale():
    frames = np.array([[1.0, 5.0], [3.0, 5.0], [np.nan, 5.0]])
    scale = Scale([frames])
    assert scale(np.array([[2.0, 6.0]])).tolist() == [[0.0, 1.0]]


def test_differences_stand_above_and_below_zero():
    difference = np.where(np.arange(51) < 25, 2.0, -1.0)  # one more than frames: the end
    figure = frame_differences(FRAMES, difference, scale=SCALE, better="ours", worse="theirs")
    better, worse = figure.axes[1].collections
    heights = [collection.get_paths()[0].vertices[:, 1] for collection in (better, worse)]
    assert heights[0].max() == 2
    assert heights[1].min() == -1
    assert "ours" in figure.axes[1].get_title(loc="left")


def test_states_are_numbered_where_there_is_room():
    path = np.array([3] * 30 + [1] * 19 + [0])
    figure = state_strip(FRAMES, path, scale=SCALE)
    assert [text.get_text() for text in figure.axes[1].texts] == ["3", "1", "0"]
    assert runs(path) == [(0, 30, 3), (30, 49, 1), (49, 50, 0)]


@pytest.mark.parametrize("n", [1, 3, 9])
def test_a_line_and_an_error_for_each_model(n):
    table = pd.DataFrame({"predicted": [1e-5, 0.1, 0.5], "observed": [0.0, 0.12, 0.4], "n": [90, 9, 4]})
    names = [f"model-{i}" for i in range(n)]
    figure = reliability_diagram(dict.fromkeys(names, table), dict.fromkeys(names, 0.25))
    lines = [line for line in figure.axes[0].lines if line.get_gid() == "model"]
    assert [line.get_xdata().tolist() for line in lines] == [[0.1, 0.5]] * n
    assert [text.get_text() for text in figure.axes[0].get_legend().texts] == [f"{name}  (0.250)" for name in names]


@pytest.mark.parametrize("n", [1, 4, 6])
def test_a_histogram_for_each_model(n):
    heights = {f"model-{i}": np.full(20, 1.0) for i in range(n)}
    figure = transform_histograms(heights, dict.fromkeys(heights, 0.1))
    shown = [axes for axes in figure.axes if axes.get_visible()]
    assert len(shown) == n
    assert all(len(axes.patches) == 20 for axes in shown)
