"""The most main memory that a block held."""

import math
from pathlib import Path

import numpy as np
import pytest

from seqmodels.common import peak_memory as module
from seqmodels.common.peak_memory import peak_memory

known = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the system does not say")


@known
def test_memory_that_is_given_back_within_counts_and_what_was_held_before_does_not():
    before = np.ones(8_000_000)
    with peak_memory() as first:
        np.ones(5_000_000).sum()
    with peak_memory() as second:
        np.ones(1_000_000).sum()
    assert 39 < first.megabytes < 60
    assert 7 < second.megabytes < 25
    assert before[0] == 1


def test_a_system_that_does_not_say_gives_no_figure(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "PROC_STATUS", tmp_path / "none")
    monkeypatch.setattr(module, "PROC_CLEAR_REFS", tmp_path / "none" / "either")
    with peak_memory() as peak:
        pass
    assert math.isnan(peak.megabytes)
