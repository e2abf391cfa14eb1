"""A hundred drawn cases of each property; ``tests/faults/properties.py`` draws ten thousand."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from tests.properties import PROPERTIES


@pytest.mark.parametrize("name", PROPERTIES)
def test_property(name: str) -> None:
    cases, check = PROPERTIES[name]

    @settings(max_examples=100, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(cases)
    def holds(case: Any) -> None:
        check(case)

    holds()
