"""A process that runs EM with one library on one workload, so many iterations at a time as it is asked for.

It reads numbers of iterations from its standard input and answers each with one line of JSON. Between turns it waits,
so that libraries can take turns on one core.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TextIO

from workloads import Workload, make


@dataclass(frozen=True)
class Iteration:
    """One E-step and one M-step.

    Attributes:
        seconds: of wall clock.
        log_prob: of all data in nats, under the parameters before the M-step.
    """

    seconds: float
    log_prob: float


class Trainer(ABC):
    """EM by one library, from the parameters of a workload.

    To add a library, define ``iterate`` and ``versions`` in a module here that ends in ``serve``, and add its variants
    to ``race.RUNNERS``.
    """

    @abstractmethod
    def iterate(self, n: int) -> list[Iteration]:
        """``n`` more iterations from where the last call ended."""

    @abstractmethod
    def versions(self) -> str:
        """Of the library, and of what computes for it."""


def serve(build: Callable[[Workload, str], Trainer]) -> None:
    """Build a trainer for the workload and variant of the command line, and answer until the input ends."""
    channel = open_channel()
    options = _options()
    workload = make(options.workload, options.lengths)
    if options.sequences:
        workload = workload.first(options.sequences)
    trainer = build(workload, options.variant)
    say(channel, {"versions": trainer.versions(), "n_frames": len(workload.x)})
    for line in sys.stdin:
        n, wall, computing = int(line), time.perf_counter(), time.process_time()
        iterations = trainer.iterate(n)
        busy = (time.process_time() - computing) / (time.perf_counter() - wall)
        if len(iterations) != n:
            raise RuntimeError(f"asked for {n} iterations, the library did {len(iterations)}; it must not stop early")
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # kilobytes on Linux
        say(channel, {"iterations": [asdict(i) for i in iterations], "peak_mb": peak, "busy": busy})


def open_channel() -> TextIO:
    """The standard output, for answers alone: what a library prints goes to the standard error."""
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return channel


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("workload")
    parser.add_argument("lengths", choices=("own", "equal"))
    parser.add_argument("variant")
    parser.add_argument("--sequences", type=int, default=0)
    return parser.parse_args()


def say(channel: TextIO, message: dict[str, object]) -> None:
    channel.write(json.dumps(message) + "\n")
    channel.flush()
