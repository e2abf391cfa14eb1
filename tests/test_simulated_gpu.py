"""Some models on a device that is not the CPU, as far as a CPU can tell."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CASES = (  # make simulated-gpu runs all
    "test_the_cursor_agrees_with_the_evaluation_in_batches and (offset or lstm-vectors or chords or seq2seq or tagger)"
)

MIXED = """
import torch
from tests.simulated_gpu import GPUMode, DeviceMismatchError

def refused(compute):
    try:
        compute()
    except (DeviceMismatchError, RuntimeError) as error:
        return type(error).__name__
    return "computed"

with GPUMode():
    here, there = torch.ones(2, 2), torch.ones(2, 2, device="gpu")
    generator = torch.Generator().manual_seed(0)
    print((there @ there).device, (there * here[0, 0]).device, there.cpu().device, float(there.sum()))
    print(refused(lambda: here @ there), refused(lambda: here.add_(there)), refused(lambda: there.numpy()))
    print(refused(lambda: torch.rand(2, generator=generator, device="gpu")))
    layer = torch.nn.LSTM(2, 3).to("gpu")
    layer(there)[0].sum().backward()
    print(layer.weight_hh_l0.grad.device)
"""

WAITS = """
import torch
from tests import simulated_gpu

count = 0
compute = simulated_gpu.call
aten = torch.ops.aten

def counted(func, args, kwargs):
    global count
    reads = func in (aten._local_scalar_dense.default, aten.nonzero.default, aten.equal.default)
    count += reads and isinstance(args[0], simulated_gpu.GPUTensor)
    return compute(func, args, kwargs)

simulated_gpu.call = counted
simulated_gpu.pytest_sessionstart()
import seqmodels as sm

counts = []
for steps in (5, 10):
    count = 0
    model = sm.Transformer(d_model=8, n_layers=1, n_heads=2, context=8, batch_size=2, max_steps=steps)
    model.fit(["abcabcabd" * 40], validation=None)
    counts.append(count - 2 * len(model.history_))  # two figures are read for each row of the history
print(counts[1] - counts[0])
"""


def run(*command: str) -> str:
    """What a process of its own prints: the device stays in a process for good."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.mark.slow
def test_it_refuses_what_a_gpu_refuses_and_a_training_step_does_not_wait_for_it() -> None:
    assert run("-c", MIXED + WAITS).splitlines() == [
        "gpu:0 gpu:0 cpu 4.0",
        "DeviceMismatchError DeviceMismatchError RuntimeError",
        "DeviceMismatchError",
        "gpu:0",
        "0",  # what twice as many steps wait more
    ]


@pytest.mark.slow  # in a process, whose tensors all are slower
def test_models_run_on_it() -> None:
    options = ("-q", "-p", "tests.simulated_gpu", "-p", "no:cacheprovider", "--one-row", "-k", CASES)
    assert "passed" in run("-m", "pytest", *options, "-o", "addopts=--import-mode=importlib", "tests/test_contract.py")
