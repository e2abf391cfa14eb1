"""One-threaded torch in forked worker processes, where more threads would wait forever.

Threads that computed in a parent do not exist in its forks, but OpenMP waits for them without end. On one thread
nothing waits. Spawned workers are not affected, so spawn workers that need several threads each.
"""

from __future__ import annotations

import os
import sys


def compute_on_one_thread_in_forks() -> None:
    """Make torch compute on one thread in every later fork of this process."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_compute_on_one_thread)


def _compute_on_one_thread() -> None:
    if "torch" not in sys.modules:  # a fork that loads it later starts its own threads
        return
    import torch

    if torch.get_num_threads() > 1:
        torch.set_num_threads(1)
