"""The small part of every script of this folder."""

from __future__ import annotations

from importlib import import_module

import pytest

from tests.faults.__main__ import scripts


@pytest.mark.slow  # measurements, of which some kill processes again and again
@pytest.mark.products_repeat  # threads are compared to the bit
@pytest.mark.parametrize("script", scripts())
def test_the_small_part_keeps_its_promises(script: str) -> None:
    broken = [row for row in import_module(f"tests.faults.{script}").measure(True) if not row.kept]
    assert broken == []
