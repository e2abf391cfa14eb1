"""How hidden states are drawn: where they stand, in which colours, and where their names have room."""

import numpy as np
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from seqmodels.plot import drawn_states as states
from seqmodels.plot.drawn_frames import Scale
from seqmodels.plot.drawn_states import draw_strip, edges_of, state_strip
from seqmodels.plot.style import COLOURS, ink_on, state_colour

FRAMES = np.random.default_rng(0).normal(3, 2, (50, 4))


def test_states_are_numbered_where_there_is_room():
    path = np.array([3] * 30 + [1] * 17 + [0] * 3)
    figure = state_strip(FRAMES, path, scale=Scale([FRAMES]))
    below = figure.axes[1]
    assert [text.get_text() for text in below.texts] == ["3", "1", "0"]
    assert (below.get_xlim(), below.get_ylim()) == ((-0.5, 49.5), (0, 1))
    assert figure.axes[0].get_xlim() == (-0.5, 49.5)


def test_a_name_without_room_is_left_out():
    ax = Figure(figsize=(4, 2)).add_subplot()
    ax.set(xlim=(-0.5, 99.5), ylim=(0, 1))
    draw_strip(ax, np.arange(100.0), np.repeat([0, 1, 0], [60, 3, 37]), ["long name", "another"], (0, 1))
    assert [text.get_text() for text in ax.texts] == ["long name", "long name"]
    assert [text.get_position()[0] for text in ax.texts] == [29.5, 81.0]


def test_many_runs_are_pixels_in_a_vector_file(monkeypatch):
    monkeypatch.setattr(states, "MAX_SHAPES", 6)
    for n, rasterized in ((6, False), (8, True)):
        ax = Figure().add_subplot()
        draw_strip(ax, np.arange(float(n)), np.arange(n) % 2, ["a", "b"], (0, 1))
        assert [bool(collection.get_rasterized()) for collection in ax.collections] == [rasterized] * 2


def test_steps_reach_half_way_to_their_neighbours():
    np.testing.assert_array_equal(edges_of(np.array([0.0, 1.0, 3.0])), [-0.5, 0.5, 2.0, 4.0])
    np.testing.assert_array_equal(edges_of(np.array([7.0])), [6.5, 7.5])


def test_states_have_colours_of_their_own_and_text_that_is_legible():
    n = len(COLOURS)
    colours = [state_colour(state) for state in range(2 * n + 1)]
    assert len(set(colours[: 2 * n])) == 2 * n
    assert colours[2 * n] == colours[0]
    assert colours[:n] == [to_hex(colour) for colour in COLOURS]
    assert ink_on(6) == "white"  # on black
    assert ink_on(n + 4) != "white"  # on light blue
