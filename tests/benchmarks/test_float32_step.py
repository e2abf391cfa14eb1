from __future__ import annotations

import os

import pytest
import torch
from float32_step import AVX2, ENTRANTS, NANOGPT, OURS, millions_of_operations, step
from peers.networks_nanogpt import BATCH, CONTEXT, GPT
from peers.networks_seqmodels import TASKS
from torch.utils.flop_counter import FlopCounterMode

SIZES = {name: millions_of_operations(*sizes) for (_, name), sizes in ENTRANTS.items()}


def test_operations_of_layers_are_those_that_torch_counts() -> None:
    model, symbols = GPT(), torch.zeros(BATCH, CONTEXT, dtype=torch.long)
    with FlopCounterMode(display=False) as counter:
        model(symbols, symbols).backward()
    counted = sum(
        n for operation, n in counter.get_flop_counts()["Global"].items() if "attention" not in str(operation)
    )
    expected = SIZES["train transformer"]
    assert counted / 1e6 == pytest.approx(sum(expected.values()) - expected["attention"])
    assert expected["previous inputs"] == 0


def test_a_wider_head_and_more_inputs_are_what_differs() -> None:
    narrow, ours, wide = (SIZES[name] for name in SIZES if "float32" in name)
    assert {part for part in ours if ours[part] != narrow[part]} == {"previous inputs"}
    assert {part for part in ours if ours[part] != wide[part]} == {"head"}
    assert {task for module, task in ENTRANTS if module == OURS} <= set(TASKS)


def test_processes_run_with_the_variables_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str | None] = []

    class Fake:
        ready = {"versions": "v"}  # noqa: RUF012

        def __init__(self, python: object, module: str, task: str) -> None:
            seen.append(os.environ.get("ONEDNN_MAX_CPU_ISA"))
            self.seconds = 1.0 if module == NANOGPT else 0.5

        def ask(self, n: int) -> dict[str, float]:
            return {"seconds": n * self.seconds, "busy": 1.0, "peak_mb": 1.0, "extra_mb": 1.0}

        def close(self) -> None: ...

    monkeypatch.setattr("contest.Process", Fake)
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    frame = step("AVX2", AVX2, rounds=1)
    assert seen == ["AVX2"] * 4
    assert "ONEDNN_MAX_CPU_ISA" not in os.environ
    assert frame["times_reference"].tolist() == [1.0, 2.0, 2.0, 2.0]
    assert frame["contest"].unique().tolist() == ["float32 step, AVX2"]
    assert frame["all_products"].iloc[0] == round(sum(SIZES["train transformer"].values()))
