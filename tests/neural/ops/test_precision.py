"""What cuDNN may take for float32, as a CPU has the switches too."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from seqmodels.neural.ops.precision import without_tf32

ON_GPU: Any = SimpleNamespace(is_cuda=True)


def chosen() -> tuple[str, str, bool]:
    cudnn = torch.backends.cudnn
    return cudnn.rnn.fp32_precision, cudnn.conv.fp32_precision, cudnn.allow_tf32


def test_float32_is_float32_within_and_what_it_was_after() -> None:
    before = chosen()
    assert before == ("tf32", "tf32", True)  # torch's default
    with without_tf32(ON_GPU):
        with without_tf32(ON_GPU):
            assert chosen() == ("none", "none", False)
        assert chosen() == ("none", "none", False)
    assert chosen() == before
    with without_tf32(torch.zeros(1)):
        assert chosen() == before


def test_who_has_switched_it_off_finds_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    before = chosen()
    with without_tf32(ON_GPU):
        assert chosen() == before
    assert chosen() == before
