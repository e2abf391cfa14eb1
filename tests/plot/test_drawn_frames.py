"""Pictures of vectors over time show what they are given."""

import numpy as np
import pandas as pd

from seqmodels.plot.drawn_frames import CLIP, Scale, frame_differences, runs, side_by_side

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


def test_frames_that_have_times_are_called_by_them():
    t = pd.date_range("2024-03-01", periods=50, freq="6h").to_numpy()
    figure = frame_differences(FRAMES, np.zeros(50), scale=SCALE, better="a", worse="b", times=t)
    axis = figure.axes[1].xaxis
    assert axis.get_major_formatter()(8) == "03-03\n00:00"
    assert axis.get_label_text() == "2024"
    hours = {"times": np.arange(50) * 0.5, "time_label": "hour"}
    figure = frame_differences(FRAMES, np.zeros(50), scale=SCALE, better="a", worse="b", **hours)
    assert figure.axes[1].xaxis.get_major_formatter()(3) == "1.5"
    assert figure.axes[1].get_xlabel() == "hour"
    numbered = frame_differences(FRAMES, np.zeros(50), scale=SCALE, better="a", worse="b")
    assert numbered.axes[1].get_xlabel() == "frame"


def test_runs_are_of_equal_states():
    assert runs(np.array([3] * 30 + [1] * 19 + [0])) == [(0, 30, 3), (30, 49, 1), (49, 50, 0)]


def test_few_features_are_named():
    names = ["ax", "ay", "az", "pulse"]
    figure = side_by_side({"a": FRAMES}, scale=Scale([FRAMES], names))
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == names
    many = side_by_side({"a": FRAMES.repeat(3, 1)}, scale=Scale([FRAMES.repeat(3, 1)], [f"f{i}" for i in range(12)]))
    assert many.axes[0].get_ylabel() == "feature"
