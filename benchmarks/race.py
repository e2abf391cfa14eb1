"""Libraries side by side: a process each, all on one core, taking turns at a few iterations of EM."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from process import EntrantFailed, Process
from workloads import SIZES, Lengths

SLOW = 20.0  # seconds: a first iteration longer than this counts, since what it warms up is below a second
MOST_A_TURN = 5


@dataclass(frozen=True)
class Entrant:
    """One library under test.

    Attributes:
        library: name of the module of ``peers`` that runs it, and of its environment.
        variant: such as the dtype.
        lengths: of its sequences: ``"own"``, those of the workload, or ``"equal"``, all of the mean length.
    """

    library: str
    variant: str
    lengths: Lengths

    @property
    def name(self) -> str:
        return f"{self.library} {self.variant}"


ENTRANTS = [
    Entrant("seqmodels", "float32", "own"),
    Entrant("seqmodels", "float32", "equal"),  # on the same data as those that take no other
    Entrant("seqmodels", "float64", "own"),
    Entrant("hmmlearn", "scaling", "own"),
    Entrant("hmmlearn", "log", "own"),
    Entrant("pomegranate", "float32", "equal"),
    Entrant("dynamax", "float32", "equal"),
    Entrant("dynamax", "float64", "equal"),
]
TOO_SLOW = {("W4", "hmmlearn log"): "over five minutes an iteration"}


@dataclass
class Run:
    """What one entrant did so far.

    Attributes:
        seconds: of each timed iteration.
        history: nats of all data before each iteration, those of the warm-up included.
        busy: of each turn, the share of its time that the process had the core.
    """

    entrant: Entrant
    versions: str
    n_frames: int
    seconds: list[float] = field(default_factory=list)
    history: list[float] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)
    peak_mb: float = 0.0


def entrants(workload: str, libraries: list[str]) -> list[Entrant]:
    """Those of ``libraries`` for this workload, each once where all sequences are of one length."""
    chosen = [e for e in ENTRANTS if e.library in libraries and (workload, e.name) not in TOO_SLOW]
    if SIZES[workload].shortest == SIZES[workload].longest:
        chosen = [Entrant(e.library, e.variant, "equal") for e in chosen]
    return list(dict.fromkeys(chosen))


class Runner:
    """The process of one entrant, started on the core this process is pinned to."""

    def __init__(self, entrant: Entrant, python: Path, workload: str, n_sequences: int) -> None:
        arguments = [workload, entrant.lengths, entrant.variant, "--sequences", str(n_sequences)]
        self.process = Process(python, entrant.library, *arguments)
        self.run = Run(entrant, self.process.ready["versions"], self.process.ready["n_frames"])

    def warm_up(self) -> None:
        """One iteration, counted only if it is slow."""
        self.iterate(1)
        if self.run.seconds[0] < SLOW:
            self.run.seconds.clear()

    def take_turn(self, seconds: float, rounds: int) -> None:
        """As many iterations as fill this many seconds, from 1 (the first time) to ``MOST_A_TURN``.

        A library that needs more than ``SLOW`` seconds an iteration does one, until it has done ``rounds``.
        """
        each = statistics.median(self.run.seconds) if self.run.seconds else math.inf
        if each < SLOW or len(self.run.seconds) < rounds:
            self.iterate(max(1, min(MOST_A_TURN, int(seconds / each))))

    def iterate(self, n: int) -> None:
        """Let the process do ``n`` more iterations and record them."""
        answer = self.process.ask(n)
        self.run.seconds += [i["seconds"] for i in answer["iterations"]]
        self.run.history += [i["log_prob"] for i in answer["iterations"]]
        self.run.busy.append(answer["busy"])
        self.run.peak_mb = answer["peak_mb"]

    def close(self) -> None:
        """End the process of this entrant."""
        self.process.close()


def race(
    workload: str, chosen: list[Entrant], pythons: dict[str, Path], *, rounds: int, turn: float, n_sequences: int
) -> Iterator[list[Run]]:
    """All results so far, after each round. An entrant that fails is named and left out; the others go on.

    Args:
        pythons: the interpreter of each library.
        turn: seconds that fast entrants iterate for before the next one's turn.
        n_sequences: only the first so many; 0: all.
    """
    runners: list[Runner] = []
    try:
        for entrant in chosen:
            with _named(entrant):
                runners.append(Runner(entrant, pythons[entrant.library], workload, n_sequences))
        going = [r for r in runners if _went_well(r, r.warm_up)]
        for _ in range(rounds):
            going = [r for r in going if _went_well(r, partial(r.take_turn, turn, rounds))]
            yield [r.run for r in going]
    finally:
        for runner in runners:
            runner.close()


def _went_well(runner: Runner, act: Callable[[], None]) -> bool:
    with _named(runner.run.entrant):
        act()
        return True
    return False


@contextmanager
def _named(entrant: Entrant) -> Iterator[None]:
    """A failure is told, not passed on."""
    try:
        yield
    except (EntrantFailed, OSError) as error:
        print(f"{entrant.name} is left out: {error}", flush=True)
