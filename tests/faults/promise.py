"""A promise, and what was measured of it: what every script of this folder returns and prints."""

from __future__ import annotations

import argparse
import json
import signal
from collections.abc import Callable
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Promise:
    """One row of docs/reliability.md.

    Args:
        promise: what is promised, in a few words.
        goal: the figure that keeps it.
        measured: the figure that was measured.
        kept: whether ``measured`` reaches ``goal``.
    """

    promise: str
    goal: str
    measured: str
    kept: bool


Measure = Callable[[bool], list[Promise]]  # given whether it is quick: a small part, for the unit tests


def main(measure: Measure) -> None:
    """Measure and print; ``--json`` prints a line of JSON a promise, for ``python -m tests.faults``."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="the small part that the unit tests run")
    parser.add_argument("--json", action="store_true", help="a line of JSON a promise")
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets jobs in the background ignore it
    for row in measure(options.quick):
        as_text = f"{'kept' if row.kept else 'BROKEN'}: {row.promise}: {row.measured} (goal: {row.goal})"
        print(json.dumps(asdict(row)) if options.json else as_text, flush=True)
