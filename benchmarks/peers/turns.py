"""A process of the network benchmarks: runs the requested number of steps or symbols of one task and times them."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np
from peers.memory import Peak
from peers.worker import open_channel, say

N_SYMBOLS = 65
Turn = Callable[[int], float]  # n -> seconds that n steps or symbols took


def text(length: int = 200_000) -> np.ndarray:
    """Symbols drawn from a second-order Markov chain, so that there is something to learn."""
    rng = np.random.default_rng(0)
    table = rng.permutation(N_SYMBOLS * N_SYMBOLS) % N_SYMBOLS
    found = rng.integers(0, N_SYMBOLS, length)
    copied = rng.random(length) < 0.7
    for t in range(2, length):
        if copied[t]:
            found[t] = table[found[t - 2] * N_SYMBOLS + found[t - 1]]
    return found


def serve(tasks: dict[str, Callable[[], Turn]], versions: str) -> None:
    """Build the task of the command line, warm it up, and answer until the input ends."""
    channel = open_channel()
    turn = tasks[sys.argv[1]]()
    memory = Peak()
    turn(2)
    say(channel, {"versions": versions})
    for line in sys.stdin:
        wall, computing = time.perf_counter(), time.process_time()
        seconds = turn(int(line))
        busy = (time.process_time() - computing) / (time.perf_counter() - wall)
        say(channel, {"seconds": seconds, "peak_mb": memory.mb(), "extra_mb": memory.extra_mb(), "busy": busy})


def timed(act: Callable[[], object]) -> float:
    """Seconds of wall clock."""
    began = time.perf_counter()
    act()
    return time.perf_counter() - began
