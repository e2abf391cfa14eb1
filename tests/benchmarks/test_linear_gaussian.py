"""Seconds of an iteration of a linear-Gaussian system, on a few sequences."""

from __future__ import annotations

import linear_gaussian
import pytest


@pytest.mark.slow  # the smallest run of a measurement
def test_every_kind_of_data_is_a_row() -> None:
    table = linear_gaussian.rows(4, 20, rounds=2)
    assert [row["data"] for row in table] == ["equal lengths", "of each length", "missing"]
    assert all(row["slowest"] >= row["seconds"] >= row["fastest"] > 0 for row in table)
    assert table[0]["ratio"] == 1
