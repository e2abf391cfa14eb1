"""``plot.track`` draws each step between known positions in the colour of the state of the row that it leads to."""

import re

import numpy as np
import pytest
from matplotlib import pyplot
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

import seqmodels as sm
from seqmodels.plot.style import state_colour

XY = np.array([[np.nan, np.nan], [0.0, 60.0], [1.0, 60.0], [np.nan, 61.0], [2.0, 61.0], [3.0, 61.0], [3.0, 59.0]])
PATH = np.array([1, 1, 0, 0, 0, 2, 0])


@pytest.fixture(autouse=True)
def closed():
    pyplot.close("all")
    yield
    pyplot.close("all")


def test_steps_have_the_colours_of_their_states():
    ax = Figure().add_subplot()
    assert sm.plot.track(XY, PATH, ax=ax, state_names=["rest", "graze", "travel"]) is ax
    lines, dots = ax.collections
    assert dots.get_offsets().tolist() == [[1, 60], [3, 61], [3, 59]]
    assert (dots.get_facecolors() == lines.get_colors()).all()
    drawn = [segment.tolist() for segment in lines.get_segments()]
    assert drawn == [[[0, 60], [1, 60]], [[2, 61], [3, 61]], [[3, 61], [3, 59]]]
    assert [to_hex(each).lower() for each in lines.get_colors()] == [state_colour(k).lower() for k in (0, 2, 0)]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["rest", "travel"]
    assert [line.get_xydata().tolist() for line in ax.lines] == [[[0, 60]]]  # where it begins
    assert ax.get_aspect() == 1
    assert ax.get_xlim()[1] >= 3
    assert [text.get_text() for text in sm.plot.track(XY, PATH).get_legend().get_texts()] == ["0", "2"]


def test_a_degree_of_longitude_is_shorter_far_from_the_equator():
    ax = sm.plot.track(XY, PATH, kind="great circle")
    assert ax.get_aspect() == pytest.approx(1 / np.cos(np.radians(np.nanmean(XY[:, 1]))))
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("longitude", "latitude")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"positions": XY[:, :1]}, "positions have shape (7, 1)"),
        ({"positions": np.where(np.arange(7)[:, None] < 6, np.nan, XY)}, "pass x and y of two known positions or more"),
        ({"path": PATH[1:]}, "path has shape (6,)"),
        ({"path": PATH / 2}, "pass 7 integers from 0"),
        ({"path": -PATH}, "pass 7 integers from 0"),
        ({"state_names": ["rest", "travel"]}, "path has a state 2, but state_names has 2"),
    ],
)
def test_what_cannot_be_drawn_is_refused(arguments, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        sm.plot.track(**{"positions": XY, "path": PATH} | arguments)
    assert pyplot.get_fignums() == []
