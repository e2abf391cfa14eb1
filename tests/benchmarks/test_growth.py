"""Slopes, and the table that is kept from one call to the next."""

from __future__ import annotations

import math
from itertools import count
from pathlib import Path

import growth
import pandas as pd
import pytest
from growth import AXES, DIAGONAL, PROCESSES, Axis, different_strings, merged, seconds_of_one_more, with_slopes


def rows(what: str = DIAGONAL, size: str = "states K") -> list[dict[str, object]]:
    """Of seconds that are quadratic from the second size on, where operations are cubic."""
    return [
        {"what": what, "size": size, "value": n, "seconds": max(4.0, n**2), "operations": n**3, "oversubscribed": n > 8}
        for n in (1, 2, 4, 8, 16)
    ]


def test_slopes_are_of_the_three_largest_sizes_that_count() -> None:
    group = with_slopes(rows())
    assert group["slope"].tolist() == pytest.approx([2.0] * 5)
    assert group["expected"].tolist() == pytest.approx([3.0] * 5)
    assert "operations" not in group


def test_a_line_takes_the_place_of_the_one_before_in_the_order_of_the_script(tmp_path: Path) -> None:
    path, second = tmp_path / "growth.csv", with_slopes(rows(AXES[1].what, AXES[1].size))
    merged(path, second.assign(seconds=0.0)).to_csv(path, index=False)
    first = with_slopes(rows(AXES[0].what, AXES[0].size))
    merged(path, first).to_csv(path, index=False)
    table = merged(path, second)
    assert list(dict.fromkeys(table["size"])) == [AXES[0].size, AXES[1].size]
    assert (table["seconds"] > 0).all()


def test_seconds_are_of_the_steps_that_are_more() -> None:
    clock = count()
    taken: list[int] = []
    assert seconds_of_one_more(taken.append, (2, 6), lambda: float(next(clock) + sum(taken))) == (6 - 2) / 4
    assert taken[:3] == [2, 2, 6]


def test_few_symbols_make_few_strings() -> None:
    assert different_strings(1000, 2, 3) == pytest.approx(2 + 4 + 8)
    assert different_strings(1000, 1000, 5) == pytest.approx(1000 * (1 - math.exp(-1)) + 4 * 1000, rel=0.01)


def test_the_picture_has_a_panel_for_each_kind(tmp_path: Path) -> None:
    lines = [with_slopes([*rows(axis.what, axis.size)]) for axis in AXES] + [with_slopes(rows(PROCESSES, "LSTM"))]
    frame = pd.concat(lines).assign(peak_mb=1.0, memory_slope=0.0, memory_expected=0.0)
    growth.draw(frame, tmp_path)
    assert (tmp_path / "growth.png").stat().st_size > 0


def test_lines_have_names_of_their_own() -> None:
    assert len({(axis.what, axis.size) for axis in AXES}) == len(AXES)
    assert all(isinstance(axis, Axis) and len(axis.values) >= 3 for axis in AXES)
