"""Any causal module is a model: it scores, streams and samples as the others; one that is not causal is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import seqmodels as sm
from seqmodels.neural.custom_module import CausalModel, check_causal

D = 8
X = [np.array([0, 1, 2, 1, 0, 2, 2, 1, 0, 1, 1]), np.array([2, 1, 0]), np.array([1])]


class Convolution(nn.Module):
    """Padded on the left by ``left`` steps of two, on the right by the others."""

    def __init__(self, d_model: int = D, left: int = 2) -> None:
        super().__init__()
        self.convolution, self.left = nn.Conv1d(d_model, d_model, 3), left
        self.dropout = nn.Dropout(0.3)

    def forward(self, x: Tensor) -> Tensor:
        padded = F.pad(x.transpose(1, 2), (self.left, 2 - self.left))
        return self.dropout(torch.relu(self.convolution(padded)).transpose(1, 2))


class Changed(nn.Module):
    """What ``function`` makes of its inputs."""

    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def make(**options: object) -> CausalModel:
    module = options.pop("module", Convolution)
    return sm.neural.from_module(module, D, **({"max_steps": 3, "dtype": "float64", "context": 4} | options))


def test_it_streams_what_it_scores_and_samples() -> None:
    model = make().fit(X, validation=None)
    steps = model.log_prob_steps(X)
    for x, expected in zip(X, steps, strict=True):
        stream = model.stream()
        found = [stream.update(symbol) for symbol in x]
        np.testing.assert_allclose(found, expected[: len(x)], rtol=0, atol=1e-10)
    assert all(len(x) == 5 for x in model.sample(3, length=5))


def test_probabilities_come_to_one() -> None:
    model = make(length="given", encoding=sm.Symbols(3)).fit(X, validation=None)
    every = [np.array([a, b, c]) for a in range(3) for b in range(3) for c in range(3)]
    assert np.exp(model.log_prob(every)).sum() == pytest.approx(1.0, abs=1e-10)


def test_fits_repeat_and_an_instance_is_not_trained() -> None:
    assert make().fit(X).score(X) == pytest.approx(make().fit(X).score(X), rel=1e-4)  # dropout in the module too
    module = Convolution()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    first = sm.neural.from_module(module, D, max_steps=3).fit(X)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert first.clone().fit(X).score(X) == pytest.approx(first.score(X), rel=1e-5)


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (Convolution(left=1), "not causal: changing its inputs from step 1 on"),
        (nn.Linear(D, D + 1), r"to \(2, 9, 9\); both should have one shape"),
        (nn.GRU(D, D, batch_first=True), "returns a tuple"),
        (Changed(lambda x: x + torch.rand_like(x)), "two outputs for one input"),
        (Changed(lambda x: x * x.shape[1]), "when its inputs end after 1 steps"),
        (Changed(lambda x: x - x.mean(0)), "the other sequences of the batch"),
        (Changed(lambda x: x - x.mean(1, keepdim=True)), "not causal"),
    ],
)
def test_what_is_not_causal_is_refused(module: nn.Module, message: str) -> None:
    with pytest.raises(ValueError, match=message), torch.random.fork_rng(devices=[]):
        sm.neural.from_module(module, D)
    with pytest.raises(ValueError, match=message), torch.random.fork_rng(devices=[]):
        CausalModel(module=module, d_model=D, max_steps=2).fit(X)


def test_causal_modules_pass() -> None:
    with torch.random.fork_rng(devices=[]):
        rounded = Changed(lambda x: x * (1 + 1e-15 * torch.rand(())))  # products may be so
        for module in (Convolution(), nn.Linear(D, D), nn.Identity(), rounded):
            check_causal(module, D)


def test_what_makes_no_module_is_refused() -> None:
    with pytest.raises(ValueError, match="module makes an int; pass an nn"):
        sm.neural.from_module(lambda d: d, D)


def test_a_class_is_saved_by_name_and_an_instance_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    model = make().fit(X, validation=None)
    with pytest.warns(UserWarning, match=r"classes=\[Convolution\]"):
        model.save(path)
    assert sm.load(path, classes=[Convolution]).score(X) == pytest.approx(model.score(X), rel=1e-5)
    with pytest.raises(ValueError, match="pass a class in its place"):
        make(module=Convolution()).fit(X, validation=None).save(path)
