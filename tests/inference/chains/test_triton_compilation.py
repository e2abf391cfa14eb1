"""The kernels compiled to machine code, which needs no GPU: the registers and the memory that they take of a device."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip(
    "triton", "3.6", reason="Triton comes with torch for a GPU; make kernels installs it to test without one"
)

SHARED_MEMORY = {75: 65_536, 80: 166_912, 86: 101_376, 90: 232_448, 120: 101_376}  # bytes a program, by CUDA's guide
MOST_SPILLED = 128  # bytes a thread
COMPILER = Path(__file__).with_name("compile_kernels.py")


@pytest.mark.parametrize("capability", list(SHARED_MEMORY))
def test_kernels_fit_the_device(capability: int) -> None:
    memory = SHARED_MEMORY[capability]
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, str(COMPILER), str(capability), str(memory)]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    kernels = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(k["kernel"], k.get("states")) for k in kernels] == [
        *((kernel, states) for states in (16, 64, 128, 256) for kernel in ("_forward", "_backward")),
        ("_sum_up", None),
        ("_softmax_rows", None),
    ]
    for kernel in kernels:
        assert kernel["memory"] <= memory, kernel
        assert kernel["spilled"] <= MOST_SPILLED, kernel
    assert kernels[4]["is_shared"] == (capability in (80, 90))
