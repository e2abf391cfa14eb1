"""``d_model="auto"`` of recurrent networks: what it comes to, and that everything asked of a model knows it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seqmodels as sm
from seqmodels.evaluation import Budget

X = [np.random.default_rng(i).integers(0, 3, 40) for i in range(6)]
RECURRENT = [sm.ElmanRNN(), sm.GRU(), sm.LSTM(), sm.neural.Recurrent()]


@pytest.mark.parametrize("model", RECURRENT, ids=lambda model: type(model).__name__)
def test_with_time_alone_it_follows_the_data(model: Any, tmp_path: Path) -> None:
    model = model.clone().set_params(max_seconds=0.05).fit(X)
    assert model.d_model == "auto"
    assert model.d_model_ == 32
    model.save(tmp_path / "model.safetensors")
    again = sm.load(tmp_path / "model.safetensors")
    assert (again.d_model, again.d_model_, again.n_parameters_) == ("auto", 32, model.n_parameters_)
    np.testing.assert_allclose(again.log_prob(X), model.log_prob(X), rtol=1e-5)


@pytest.mark.parametrize(
    "budget", [{"max_steps": 2}, {"max_steps": 2, "max_seconds": 60.0}, {"max_epochs": 1, "max_seconds": 60.0}], ids=str
)
def test_with_any_other_budget_it_is_256_and_runs_repeat(budget: dict[str, Any]) -> None:
    model, by_hand = sm.LSTM(**budget).fit(X), sm.LSTM(d_model=256, **budget).fit(X)
    assert model.d_model_ == 256
    np.testing.assert_allclose(model.log_prob(X), by_hand.log_prob(X), rtol=1e-4, atol=1e-4)


def test_a_number_wins() -> None:
    assert sm.GRU(d_model=16, max_seconds=0.05).fit(X).d_model_ == 16


def test_a_budget_of_seconds_is_time_alone() -> None:
    model = sm.LSTM()
    assert model.set_params(**Budget(seconds=0.05).settings(model)).fit(X).d_model_ == 32


def test_a_warm_start_keeps_its_width() -> None:
    model = sm.GRU(max_steps=1, warm_start=True).fit(X)
    assert model.set_params(max_steps="auto", max_seconds=0.05).fit(X).d_model_ == 256


def test_models_whose_width_is_theirs_refuse_it() -> None:
    with pytest.raises(ValueError, match="d_model is auto; pass at least 1"):
        sm.LSTMSeq2Seq(d_model="auto", max_steps=1).fit(X)  # type: ignore[arg-type]
