"""Seconds of an iteration of an HSMM, on a few sequences."""

from __future__ import annotations

import explicit_durations
import pytest


@pytest.mark.slow  # the smallest run of a measurement
def test_every_size_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explicit_durations, "N_STATES", 2)
    table = explicit_durations.rows(explicit_durations.data(8, 24), explicit_durations.data(1, 50), rounds=1)
    assert [row["what"] for row in table].count("hsmm, poisson") == len(explicit_durations.LONGEST)
    assert {row["what"] for row in table} >= {"hmm", "hsmm, log_prob", "hsmm, decode", "hsmm, negative-binomial"}
    assert all(row["slowest"] >= row["seconds"] for row in table)
    assert all(row["seconds"] > 0 for row in table if row["what"] != "hmm")
