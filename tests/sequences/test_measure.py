from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from seqmodels.sequences.measure import IncomparableError, Measure, check_comparable

FRAMES = Measure("R^2", "frame", "given", "exact", conditional=False)


@pytest.mark.parametrize(
    ("field", "value"),
    [("space", "R^3"), ("unit", "byte"), ("length", "stop"), ("conditional", True), ("grid", (0.5, 1.0))],
)
def test_what_may_not_differ(field: str, value: Any) -> None:
    other = replace(FRAMES, **{field: value})
    with pytest.raises(
        IncomparableError, match=re.escape(f"'b' and 'a' measure different things: {field} is {value!r} for")
    ):
        check_comparable({"a": FRAMES, "same": FRAMES, "b": other})


def test_what_may() -> None:
    check_comparable({})
    check_comparable({"a": FRAMES, "b": replace(FRAMES, kind="bound")})


def test_json_round_trip() -> None:
    for measure in (FRAMES, replace(FRAMES, grid=(0.1, 2.0))):
        assert Measure(**json.loads(json.dumps(measure.to_json()))) == measure
