"""A process that answers numbers, one a line, with lines of JSON; on one thread and the core of whoever starts it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ONE_THREAD = {
    **{f"{name}_NUM_THREADS": "1" for name in ("OMP", "MKL", "OPENBLAS", "NUMBA")},
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "NPROC": "1",
    "JAX_PLATFORMS": "cpu",
    "CUDA_VISIBLE_DEVICES": "",
}


class EntrantFailed(RuntimeError):
    """A library could not go on."""


class Process:
    """``python -m peers.MODULE ARGUMENTS``, which says one line of JSON when it is ready.

    ``root`` is the checkout whose seqmodels it imports, and whose ``peers``, if this module is among them.
    """

    def __init__(self, python: Path, module: str, *arguments: str, root: Path = HERE.parent) -> None:
        command = [str(python), "-m", f"peers.{module}", *arguments]
        pipe, environment = subprocess.PIPE, {**os.environ, **ONE_THREAD, "PYTHONPATH": str(root)}
        folder = root / "benchmarks"
        if not (folder / "peers" / f"{module}.py").exists():
            folder = HERE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, cwd=folder, env=environment, text=True)
        self.ready = self._answer()

    def ask(self, n: int) -> dict[str, Any]:
        """What it answers to ``n``."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{n}\n")
        self.process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        """Kill the process and wait for its end."""
        self.process.kill()
        self.process.communicate()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise EntrantFailed(f"its process ended with status {self.process.wait()}; its own message is above")
        found: dict[str, Any] = json.loads(line)
        return found
