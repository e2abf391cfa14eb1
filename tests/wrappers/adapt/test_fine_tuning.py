"""Networks of tokens that were made elsewhere, trained by the library's loop."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import seqmodels as sm
from seqmodels.model.fitting import checked_data
from seqmodels.neural.batches import Windowing
from seqmodels.wrappers.adapt.fine_tuning import WindowsOfRows

ITEMS = [np.arange(12) % 3 for _ in range(8)] + [(np.arange(7) + 1) % 3 for _ in range(8)]


class Recurrent(nn.Module):
    """Tokens 0 to 4 -> logits: three symbols, a start 3 and an end 4."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.embedding, self.gru = nn.Embedding(5, 8), nn.GRU(8, 8, batch_first=True)
        self.drop, self.head = nn.Dropout(dropout), nn.Linear(8, 5)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.drop(self.gru(self.embedding(tokens))[0]))


def module(**options: Any) -> Recurrent:
    torch.manual_seed(0)
    return Recurrent(**options).eval()


def tuned(**options: Any) -> Any:
    steps = sm.adapt.FineTuning(max_steps=60, lr=2e-2, batch_size=8)
    return sm.adapt.from_torch(module(), n_symbols=3, training=steps, **{"start": 3, "end": 4, **options})


@pytest.mark.parametrize(
    "options",
    [{}, {"length": "given"}, {"start": None}, {"context": 4}, {"end": None}, {"end": 2}],
    ids=str,
)
def test_what_training_maximises_is_what_is_scored(options: dict[str, Any]) -> None:
    given = {"start": 3, "end": 4, "n_symbols": 3, **options}  # an end of 2 is then no symbol
    items = [np.arange(9) % 2, np.array([1, 0, 0])]
    model = sm.adapt.from_torch(module(), **given)
    model.fit(items)
    has_end = model.length_ == "stop"
    examples = model._setting().examples(checked_data(model, items))
    columns = torch.zeros(5, dtype=torch.bool)
    columns[:3] = True
    if given["end"] is not None:
        columns[given["end"]] = has_end
    rows = [model._training_row(example, has_end) for example in examples]
    windowing = Windowing(model.context_, None)
    windows = WindowsOfRows(model.network_, rows, windowing, 3, columns, given["end"] if has_end else None)
    total = sum(float(windows(batch).log_prob) for batch in windows.epoch(0)(0))
    first = 0.0 if given["start"] is not None else -np.log(3 - (given["end"] == 2)) * len(items)
    assert total + first == pytest.approx(model.log_prob(items).sum(), rel=1e-5)


def test_a_network_of_tokens_learns_and_the_one_that_was_given_stays_as_it_was() -> None:
    model = tuned()
    given, before = model.module, copy.deepcopy(model.module.state_dict())
    assert model.score(ITEMS) < -1.0
    model.fit(ITEMS)
    assert model.score(ITEMS) > -0.5  # two beginnings, two lengths: at best -2 log 2 nats of a sequence of 7 or 12
    assert model.history_["step"].iloc[-1] == 60
    assert "validation" in model.history_
    assert all(torch.equal(value, given.state_dict()[name]) for name, value in before.items())
    again = tuned().fit(ITEMS)
    assert again.score(ITEMS) == pytest.approx(model.score(ITEMS), rel=1e-5)
    assert len(model.sample(length=4)[0]) == 4
    assert np.isclose(sum(map(float, model.log_prob_steps(ITEMS[:1])[0])), model.log_prob(ITEMS[:1])[0])


def test_what_it_came_to_is_saved_where_a_class_makes_the_network(tmp_path: Path) -> None:
    steps = sm.adapt.FineTuning(max_steps=3)
    model = sm.adapt.from_torch(Recurrent, n_symbols=3, start=3, end=4, training=steps)
    untrained = model.score(ITEMS)
    with pytest.warns(UserWarning, match=r"classes=\[Recurrent\]"):
        model.fit(ITEMS).save(tmp_path / "tuned.safetensors")
    loaded = sm.load(tmp_path / "tuned.safetensors", classes=[Recurrent])
    assert loaded.score(ITEMS) == pytest.approx(model.score(ITEMS), rel=1e-6)
    assert abs(loaded.score(ITEMS) - untrained) > 1e-3


def test_without_training_fit_leaves_the_network_as_it_is() -> None:
    model = sm.adapt.from_torch(module(), n_symbols=3, start=3, end=4)
    before = model.score(ITEMS)
    assert model.fit(ITEMS).score(ITEMS) == pytest.approx(before, rel=1e-5)
    assert len(model.history_) == 0


def test_it_is_fitted_in_a_comparison_and_draws_nothing_from_torchs_generator() -> None:
    steps = sm.adapt.FineTuning(max_steps=3)
    mine = sm.adapt.from_torch(module(dropout=0.5), n_symbols=3, start=3, end=4, training=steps)
    state = torch.get_rng_state()
    test = [np.arange(n) % 3 for n in (3, 4, 5, 6, 8)]
    result = sm.compare({"mine": mine, "ngram": sm.NGram(2)}, ITEMS, test=test, baseline="ngram", iid=False)
    assert torch.equal(torch.get_rng_state(), state)
    assert (result.frame["error"] == "").all()
    assert len(mine.history_) == 3


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="max_steps of FineTuning is 0; pass an integer from 1 on"):
        sm.adapt.from_torch(module(), n_symbols=3, start=3, training=sm.adapt.FineTuning(max_steps=0))
    with pytest.raises(ValueError, match="training is 5; pass"):
        sm.adapt.from_torch(module(), n_symbols=3, start=3, training=5)  # type: ignore[arg-type]
