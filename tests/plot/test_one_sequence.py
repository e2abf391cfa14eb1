"""``plot.frames`` shows the frames that it is given, in deviations, at their times."""

import re

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot
from matplotlib.dates import date2num
from matplotlib.figure import Figure

import seqmodels as sm

X = np.random.default_rng(0).normal(3, 2, (50, 4))


@pytest.fixture(autouse=True)
def closed():
    pyplot.close("all")
    yield
    pyplot.close("all")


def test_frames_are_in_deviations_of_the_whole_sequence():
    days = pd.date_range("2024-01-01", periods=50, freq="D")
    ax = Figure().add_subplot()
    assert sm.plot.frames(X, ax=ax, time=days, steps=slice(10, 30)) is ax
    image = ax.collections[0].get_array()
    np.testing.assert_allclose(image, ((X - X.mean(0)) / X.std(0))[10:30].T)
    assert ax.get_xlim() == (date2num(days[10]) - 0.5, date2num(days[29]) + 0.5)
    assert [text.get_text() for text in ax.get_yticklabels()] == ["0", "1", "2", "3"]
    assert ax.get_xlabel() == ""
    assert sm.plot.frames(sm.Sequences([X])).get_xlabel() == "frame"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"x": "a text"}, "x is text; pass vectors (T, D) for an image"),
        ({"x": [X, X]}, "x holds 2 sequences"),
        ({"x": X, "features": "abcd"}, "features is 'abcd'; pass a list of words"),
        ({"x": X, "time": np.arange(3)}, "time has shape (3,)"),
        ({"x": X, "steps": slice(60, 70)}, "leaves none of the 50 steps"),
    ],
)
def test_what_cannot_be_drawn_is_refused(arguments, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        sm.plot.frames(**arguments)
    assert pyplot.get_fignums() == []
