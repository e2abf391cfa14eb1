"""Worker processes that are forked: torch computes on one thread there, for the others did not come along.

Threads that computed in a parent do not exist in its forks, and OpenMP waits for them for ever. On one thread nothing
waits. Spawned workers are not concerned; they are the way to several threads a worker.
"""

from __future__ import annotations

import os
import sys


def compute_on_one_thread_in_forks() -> None:
    """From now on, in every fork of this process."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_compute_on_one_thread)


def _compute_on_one_thread() -> None:
    if "torch" not in sys.modules:  # a fork that loads it later starts its own threads
        return
    import torch

    if torch.get_num_threads() > 1:
        torch.set_num_threads(1)
