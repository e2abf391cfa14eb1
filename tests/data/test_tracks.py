"""Steps and turns: by hand, against loops over vectors in the plane and in space, and where positions are missing."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from seqmodels.data import track_steps
from seqmodels.data.tracks import EARTH_RADIUS

NAN = np.nan


def walk(n: int, seed: int = 0) -> np.ndarray:
    return np.cumsum(np.random.default_rng(seed).normal(size=(n, 2)), axis=0)


def angle_between(u: np.ndarray, v: np.ndarray, up: np.ndarray) -> float:
    """The angle from u to v, seen from ``up``, above -π and up to π."""
    angle = math.atan2(np.dot(up, np.cross(u, v)), np.dot(u, v))
    return math.pi if angle == -math.pi else angle


def in_plane(xy: np.ndarray) -> tuple[list[float], list[float]]:
    """Step and turn of each row of one animal, in a loop over vectors."""
    points = np.column_stack([xy, np.zeros(len(xy))])
    length, turn = [NAN], [NAN]
    for t in range(1, len(xy)):
        step = points[t] - points[t - 1]
        length.append(float(np.linalg.norm(step)))
        before = points[t - 1] - points[t - 2] if t > 1 else np.full(3, NAN)
        is_turn = np.linalg.norm(step) > 0 and np.linalg.norm(before) > 0
        turn.append(angle_between(before, step, np.array([0.0, 0.0, 1.0])) if is_turn else NAN)
    return length, turn


def on_sphere(degrees: np.ndarray) -> tuple[list[float], list[float]]:
    """The same by vectors in space: a step lies in a plane through the centre, which meets the ground in a tangent."""
    lon, lat = np.radians(degrees).T
    points = np.column_stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)])
    length, turn = [NAN], [NAN]
    for t in range(1, len(points)):
        a, b = points[t - 1], points[t]
        normal = np.cross(a, b)
        length.append(EARTH_RADIUS * math.atan2(float(np.linalg.norm(normal)), float(a @ b)))
        before = np.cross(points[t - 2], a) if t > 1 else np.full(3, NAN)
        is_turn = np.linalg.norm(normal) > 0 and np.linalg.norm(before) > 0
        turn.append(angle_between(np.cross(before, a), np.cross(normal, a), a) if is_turn else NAN)
    return length, turn


def frame_of(xy: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(xy, columns=["x", "y"])


def test_a_left_turn_is_positive_and_a_turn_back_is_pi() -> None:
    square = frame_of(np.array([[0, 0], [2, 0], [2, 1], [3, 1], [3, -1], [3, 4]]))
    found = track_steps(square)
    assert_array_equal(found["step"], [NAN, 2, 1, 1, 2, 5])
    assert_allclose(found["turn"], [NAN, NAN, np.pi / 2, -np.pi / 2, -np.pi / 2, np.pi])
    assert_array_equal(track_steps(frame_of(np.array([[0, 0], [-1, 0], [0, 0], [-1, 0]])))["turn"][2:], [np.pi, np.pi])
    north = frame_of(np.array([[10.0, 0.0], [10.0, 1.0], [9.0, 1.0]]))  # and then to the west
    turned = track_steps(north, kind="great circle")
    assert_allclose(turned["step"][1], EARTH_RADIUS * np.pi / 180, rtol=1e-12)
    assert turned["turn"][2] == pytest.approx(np.pi / 2, abs=0.01)


@pytest.mark.parametrize("kind", ["plane", "great circle"])
def test_they_are_those_of_vectors(kind: Any) -> None:
    xy = walk(60) * [30.0, 5.0]
    xy[20:22] = xy[22]  # two steps of length 0
    xy[40, 1] = NAN
    expected = (in_plane if kind == "plane" else on_sphere)(xy)
    found = track_steps(frame_of(xy), kind=kind)
    assert_allclose(found["step"], expected[0], rtol=1e-10)
    assert_allclose(found["turn"], expected[1], atol=1e-9)
    assert_array_equal(np.flatnonzero(np.isnan(found["step"])), [0, 40, 41])
    assert_array_equal(np.flatnonzero(np.isnan(found["turn"])), [0, 1, 21, 22, 23, 40, 41, 42])
    assert (found["step"][[21, 22]] == 0).all()


def test_short_steps_on_the_globe_are_those_of_a_map() -> None:
    """Of metres at 60 degrees north, where a degree of longitude is half as long as one of latitude."""
    metres = walk(50)
    degrees = np.array([20.0, 60.0]) + metres / 1000 / EARTH_RADIUS * 180 / np.pi * [2.0, 1.0]
    near, plane = track_steps(frame_of(degrees), kind="great circle"), track_steps(frame_of(metres))
    assert_allclose(1000 * near["step"], plane["step"], rtol=2e-5)
    assert_allclose(near["turn"], plane["turn"], atol=2e-5)
    across = frame_of(np.array([[179.9, 0.0], [-179.9, 0.0], [-179.7, 0.0]]))  # of the date line
    assert_allclose(track_steps(across, kind="great circle")["step"][1:], EARTH_RADIUS * np.radians(0.2), rtol=1e-9)


def test_animals_are_apart_and_time_orders_the_rows() -> None:
    xy = walk(30)
    frame = frame_of(xy).assign(who=np.repeat(["b", "a", "c"], [10, 19, 1]), hour=np.arange(30) % 24, note="kept")
    frame["when"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(30), unit="h")
    expected = pd.concat([track_steps(part) for _, part in frame.groupby("who", sort=False)])
    shuffled = frame.sample(frac=1.0, random_state=0)
    found = track_steps(shuffled, by="who", time="when")
    pd.testing.assert_frame_equal(found.loc[expected.index], expected)
    assert found.index.tolist() == shuffled.index.tolist()  # rows stay where they are
    assert "step" not in shuffled
    renamed = track_steps(frame.rename(columns={"x": "lon", "y": "lat"}), x="lon", y="lat", by="who")
    assert_array_equal(renamed["turn"], expected["turn"])


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({}, {"x": "lon"}, "the frame has no column 'lon'; it has x, y, who, when"),
        ({"x": ["a", "b", "c"]}, {}, "the column 'x' has .* and no numbers"),
        ({"x": [0.0, np.inf, 1.0]}, {}, "the position in row 1 is infinite"),
        ({"y": [0.0, 1.0, 95.0]}, {"kind": "great circle"}, "the column 'y' has a latitude of 95 degrees"),
        ({"turn": 0.0}, {}, "the frame has a column 'turn' already"),
        ({"who": ["a", None, "a"]}, {"by": "who"}, "row 1 belongs to no animal; its 'who' is missing"),
        ({"when": [0.0, NAN, 1.0]}, {"time": "when"}, "row 1 has no time; its 'when' is missing"),
        ({"when": [0.0, 1.0, 1.0]}, {"time": "when"}, "two positions of one animal have the time 1.0, one .* in row 2"),
    ],
)
def test_what_is_no_track_is_refused(change: dict[str, Any], options: dict[str, Any], message: str) -> None:
    frame = pd.DataFrame({"x": [0.0, 1.0, 2.0], "y": 0.0, "who": "a", "when": [0.0, 1.0, 2.0]}).assign(**change)
    with pytest.raises(ValueError, match=message):
        track_steps(frame, **options)
    with pytest.raises(ValueError, match="pass a pandas DataFrame, one row a position"):
        track_steps([[0.0, 1.0]])  # type: ignore[arg-type]
