"""What ``dropout="auto"`` and ``averaging="auto"`` come to, and that everything asked of a model knows it."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seqmodels as sm
from seqmodels.neural import model as module
from seqmodels.neural.training_options import SMALL_DATA, learns_by_heart, train_config

X = [np.random.default_rng(i).integers(0, 3, 40) for i in range(6)]


@pytest.fixture
def configs(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Those that training is called with, which takes two steps only."""
    seen: list[Any] = []
    plain = module.train

    def recorded(*arguments: Any, **rest: Any) -> Any:
        seen.append(arguments[4])
        return plain(*arguments[:4], replace(arguments[4], max_steps=2), *arguments[5:], **rest)

    monkeypatch.setattr(module, "train", recorded)
    return seen


def test_few_steps_are_averaged_and_dropped_more(configs: list[Any], tmp_path: Path) -> None:
    model = sm.LSTM(d_model=8).fit(X)
    assert (configs[0].averaging, model.dropout, model.dropout_) == (0.1, "auto", 0.3)
    assert model.module_.network.dropout == 0.3
    model.save(tmp_path / "model.safetensors")
    again = sm.load(tmp_path / "model.safetensors")
    assert again.dropout == "auto"
    np.testing.assert_allclose(again.log_prob(X), model.log_prob(X), rtol=1e-5)


def test_transformers_too(configs: list[Any]) -> None:
    model = sm.Transformer(d_model=8, n_layers=1, n_heads=2).fit(X)
    assert (configs[0].averaging, model.dropout_) == (0.1, 0.3)
    assert model.module_.network.decoder.config.dropout == 0.3
    assert sm.Transformer(d_model=8, n_layers=1, n_heads=2, max_steps=2).fit(X).dropout_ == 0.1


@pytest.mark.parametrize(
    "budget", [{"max_steps": 2}, {"max_epochs": 1}, {"max_seconds": 60.0, "max_steps": 2}], ids=str
)
def test_with_a_budget_of_steps_they_are_as_ever(configs: list[Any], budget: dict[str, Any]) -> None:
    model = sm.GRU(d_model=8, **budget).fit(X)
    assert (configs[0].averaging, model.dropout_) == (0.0, 0.1)


@pytest.mark.parametrize(
    ("passes", "dropout", "averaging"), [(1.5, 0.0, 0.0), (3.0, 0.1, 0.0), (8.0, 0.3, 0.1)], ids=str
)
def test_in_given_seconds_passes_over_the_data_decide(
    configs: list[Any], monkeypatch: pytest.MonkeyPatch, passes: float, dropout: float, averaging: float
) -> None:
    seen: list[float] = []

    def seconds(network: Any, batches: Any, objective: Any, budget: float) -> float:
        seen.append(budget)
        return 60.0 / (passes * len(list(batches)))

    monkeypatch.setattr(module, "seconds_per_batch", seconds)
    model = sm.LSTM(d_model=8, batch_size=2, bptt=10, max_seconds=60.0).fit(X, validation=None)
    assert (configs[0].averaging, model.dropout_, model.module_.network.dropout) == (averaging, dropout, dropout)
    assert configs[0].patience == (40 if passes < 2 else 5)
    assert (
        sm.LSTM(d_model=8, batch_size=2, bptt=10, max_seconds=60.0, training=sm.training.GradientTraining(patience=3))
        .fit(X)
        .dropout_
        == dropout
    )
    assert configs.pop().patience == 3
    numbers = sm.LSTM(
        d_model=8,
        batch_size=2,
        bptt=10,
        max_seconds=60.0,
        dropout=0.2,
        training=sm.training.GradientTraining(averaging=0.05),
    )
    assert numbers.fit(X).dropout_ == 0.2
    assert configs[1].averaging == 0.05
    assert seen == [60.0, 60.0]


@pytest.mark.parametrize(("n_batches", "width"), [(299.0, 128), (301.0, 256)], ids=str)
def test_few_batches_are_of_a_narrower_network(
    configs: list[Any], monkeypatch: pytest.MonkeyPatch, n_batches: float, width: int
) -> None:
    monkeypatch.setattr(module, "width_for", lambda n_steps: 256)
    asked: list[int] = []

    def seconds(network: Any, batches: Any, objective: Any, budget: float) -> float:
        asked.append(network.network.d_model)
        return budget / n_batches * network.network.d_model / 256

    monkeypatch.setattr(module, "seconds_per_batch", seconds)
    model = sm.LSTM(max_seconds=60.0).fit(X)
    assert (model.d_model_, model.module_.network.d_model) == (width, width)
    assert asked == [256, 128][: 1 + (width == 128)]
    assert sm.LSTM(max_seconds=60.0, d_model=160).fit(X).d_model_ == 160
    wide = sm.LSTM(d_model=256, max_steps=1, warm_start=True).fit(X).set_params(d_model="auto", max_steps="auto")
    assert wide.set_params(max_seconds=60.0).fit(X).d_model_ == 256


def _untrained(monkeypatch: pytest.MonkeyPatch, model: Any, X: list[Any]) -> Any:
    """The module that training is called with."""
    seen: list[Any] = []
    plain = module.train

    def recorded(network: Any, *rest: Any, **named: Any) -> Any:
        seen.append(copy.deepcopy(network))
        return plain(network, *rest, **named)

    with monkeypatch.context() as patch:
        patch.setattr(module, "train", recorded)
        model.fit(X, validation=None)
    return seen[0]


@pytest.mark.parametrize("tied", [False, True], ids=str)
def test_in_given_seconds_symbols_start_from_their_frequencies(monkeypatch: pytest.MonkeyPatch, tied: bool) -> None:
    monkeypatch.setattr(module, "SYMBOLS_AT_ONCE", 7)
    start = _untrained(
        monkeypatch,
        sm.LSTM(d_model=8, max_seconds=0.05, architecture=sm.neural.RecurrentArchitecture(tie_embeddings=tied)),
        X,
    )
    counts = np.bincount(np.concatenate(X), minlength=3)
    expected = np.log((counts + 0.5) / (counts.sum() + 1.5))
    np.testing.assert_allclose(start.head.bias.detach()[:3], expected, atol=1e-6)
    assert start.head.bias.detach()[-1] == -3.0
    by_steps = _untrained(
        monkeypatch,
        sm.LSTM(d_model=8, max_steps=1, architecture=sm.neural.RecurrentArchitecture(tie_embeddings=tied)),
        X,
    )
    assert by_steps.head.bias.detach()[:3].tolist() == [0.0, 0.0, 0.0]


def test_seconds_are_of_the_batches_of_the_run(configs: list[Any]) -> None:
    model = sm.Transformer(d_model=8, n_layers=1, n_heads=2, max_seconds=60.0).fit(X)
    assert (configs[0].averaging, model.dropout_) == (0.1, 0.3)
    long = sm.LSTM(d_model=32, max_seconds=0.2).fit([np.random.default_rng(0).integers(0, 3, 400_000)], validation=None)
    assert (configs[1].averaging, long.dropout_) == (0.0, 0.0)


def test_short_series_are_as_ever(configs: list[Any]) -> None:
    series = sm.LSTM(d_model=8).fit([np.random.default_rng(0).normal(size=(60, 1))])
    assert ([config.averaging for config in configs], series.dropout_) == ([0.0], 0.1)


# 6 pairs are 3 batches of 2: 11 steps are less than four passes, and 12 are not
@pytest.mark.parametrize(
    ("budget", "dropout"),
    [
        ({"max_steps": 11}, 0.0),
        ({"max_steps": 12}, 0.1),
        ({"max_epochs": 3}, 0.0),
        ({"max_epochs": 40}, 0.1),
        ({"max_epochs": 40, "max_steps": 11}, 0.0),
        ({"max_seconds": 60.0, "max_steps": 11}, 0.0),
        ({}, 0.1),
    ],
    ids=str,
)
def test_pairs_seen_less_than_four_times_have_no_dropout(
    configs: list[Any], budget: dict[str, Any], dropout: float
) -> None:
    models = [sm.TransformerSeq2Seq(d_model=8, n_layers=1, batch_size=2), sm.LSTM(d_model=8, batch_size=2, bptt=100)]
    for model in models:
        model.set_params(**budget).fit(X, X, validation=None)
        assert (configs.pop().averaging, model.dropout_) == (0.0, dropout)
    assert models[0].module_.network.decoder.config.dropout == dropout
    assert models[0].set_params(dropout=0.3).fit(X, X).dropout_ == 0.3


@pytest.mark.parametrize(("passes", "dropout", "patience"), [(1.5, 0.0, 40), (3.5, 0.0, 5), (4.5, 0.1, 5)], ids=str)
def test_pairs_in_given_seconds(
    configs: list[Any], monkeypatch: pytest.MonkeyPatch, passes: float, dropout: float, patience: int
) -> None:
    monkeypatch.setattr(
        module,
        "seconds_per_batch",
        lambda network, batches, objective, budget: budget / (passes * len(list(batches))),
    )
    model = sm.TransformerSeq2Seq(d_model=8, n_layers=1, batch_size=2, max_seconds=60.0).fit(X, X, validation=None)
    assert (model.dropout_, configs[0].averaging, configs[0].patience) == (dropout, 0.0, patience)


def test_numbers_win(configs: list[Any]) -> None:
    model = sm.LSTM(d_model=8, dropout=0.2, training=sm.training.GradientTraining(averaging=0.05)).fit(X)
    assert (configs[0].averaging, model.dropout_) == (0.05, 0.2)


def test_many_steps_are_as_ever() -> None:
    model = sm.LSTM()
    assert learns_by_heart(model, SMALL_DATA - 1)
    assert not learns_by_heart(model, SMALL_DATA)
    assert train_config(model).averaging == 0.0


def test_what_else_is_refused() -> None:
    with pytest.raises(ValueError, match="averaging is 1; pass a fraction from 0 up to 1, or 'auto'"):
        sm.LSTM(training=sm.training.GradientTraining(averaging=1)).fit(X)
    with pytest.raises(ValueError, match="dropout is auto; pass a fraction from 0 up to 1"):
        sm.LSTMSeq2Seq(dropout="auto", max_steps=1).fit(X)


def test_what_was_chosen_is_said_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    sm.LSTM(max_seconds=0.05, dropout=0.1, training=sm.training.GradientTraining(averaging=0.0), verbose=True).fit(
        X, validation=None
    )
    said = next(line for line in capsys.readouterr().err.splitlines() if line.startswith("LSTM("))
    assert "d_model=32, n_layers=1, dropout=0.1, averaging=0.0, batch_size=24, max_seconds=0.05" in said
    assert said.endswith("246 steps of training data")
