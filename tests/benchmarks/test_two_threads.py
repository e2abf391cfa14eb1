"""One thread against several, on a few sequences."""

from __future__ import annotations

from argparse import Namespace

import pytest
import torch
import two_threads
from workloads import Lengths, Workload, make


def test_a_row_compares_the_threads_and_gives_their_number_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def few(name: str, lengths: Lengths = "own") -> Workload:
        return make(name, lengths).first(3)

    monkeypatch.setattr(two_threads, "make", few)
    before = torch.get_num_threads()
    row = two_threads.row("W2", "float64", Namespace(threads=2, rounds=2, iterations=2))
    assert torch.get_num_threads() == before
    assert (row["workload"], row["dtype"], row["threads"]) == ("W2", "float64", 2)
    assert 0 < row["lowest"] <= row["ratio"] <= row["highest"]
