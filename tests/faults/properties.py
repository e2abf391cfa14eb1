"""Ten thousand drawn cases of each property of ``tests/properties.py``, or as many as the time allows."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.faults.promise import Promise, main
from tests.properties import PROPERTIES

N, SECONDS = 10_000, 700.0  # of each property


def drawn(cases: st.SearchStrategy[Any], check: Callable[[Any], None], n: int, seconds: float) -> tuple[int, str]:
    """How many cases were drawn, and the first that broke the property, in words."""
    began, number = time.perf_counter(), [0]

    class OutOfTimeError(Exception):
        """Raised to end the drawing of examples."""

    @settings(
        max_examples=n, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
    )
    @given(cases)
    def holds(case: Any) -> None:
        if time.perf_counter() - began > seconds:
            raise OutOfTimeError
        check(case)
        number[0] += 1

    try:
        holds()
    except OutOfTimeError:
        return number[0], ""
    except Exception as error:  # of whatever kind: it is what is measured
        notes = " ".join(getattr(error, "__notes__", []))
        return number[0], f"{type(error).__name__}: {error} {notes}"
    return number[0], ""


def measure(quick: bool) -> list[Promise]:
    """A row a property."""
    torch.set_num_threads(1)
    n, seconds = (20, 5.0) if quick else (N, SECONDS)
    rows = []
    for name, (cases, check) in PROPERTIES.items():
        number, broken = drawn(cases, check, n, seconds)
        if broken:
            print(f"{name}: after {number}: {broken}")
        measured = (
            f"broken after {number:,}"
            if broken
            else f"{number:,} cases" + ("" if number >= n else f", all that {seconds:.0f} s allowed")
        )
        rows.append(
            Promise(
                f"property: {name}",
                f"none of {n:,} cases breaks it, or of those that {seconds:.0f} s allow",
                measured,
                not broken,
            )
        )
    return rows


if __name__ == "__main__":
    main(measure)
