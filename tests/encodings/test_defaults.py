from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

import seqmodels as sm
from seqmodels.encodings import AutoSeries

LEVEL = np.random.default_rng(3).normal(size=(200, 1))
WALK = 50 + np.cumsum(np.random.default_rng(1).normal(size=(200, 1)), axis=0)
SEASON = 5 * np.sin(2 * np.pi * np.arange(120) / 12)[:, None] + np.random.default_rng(2).normal(size=(120, 1))
HOLE = np.where(np.arange(200)[:, None] % 50 == 7, np.nan, WALK)
HOLES = np.where(np.arange(200)[:, None] % 3 == 1, np.nan, WALK)


MANY = list(50 + np.cumsum(np.random.default_rng(4).normal(size=(6, 200, 1)), axis=1))


def model(**arguments: object) -> sm.GRU:
    return sm.GRU(d_model=4, max_steps=2).set_params(**arguments)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(
    "x", [[WALK], [SEASON], [WALK, WALK + 0.1 * LEVEL], [HOLE]], ids=["walk", "season", "two", "hole"]
)
def test_few_series_that_wander_or_have_a_season_are_read_as_changes(x: list[np.ndarray], tmp_path: Path) -> None:
    fitted, by_hand = model().fit(x), model(encoding=AutoSeries()).fit(x)
    assert fitted.encoding == "auto"
    assert isinstance(fitted.encoding_, AutoSeries)
    assert fitted.encoding_.n_initial > 0
    assert fitted.encoding_.note is not None
    assert fitted.encoding_.note in fitted.describe()
    assert_allclose(fitted.log_prob(x), by_hand.log_prob(x), rtol=1e-4)  # trained in float32
    fitted.save(tmp_path / "model")
    again = sm.load(tmp_path / "model")
    assert again.encoding_.note == fitted.encoding_.note
    assert_allclose(again.log_prob(x), fitted.log_prob(x), rtol=1e-5)
    assert fitted.clone().encoding == "auto"


@pytest.mark.parametrize(
    "x",
    [[LEVEL], [HOLES], MANY, [WALK[:29]], [WALK, WALK[:2]]],
    ids=["level", "holes", "many", "short", "one of two frames"],
)
def test_all_else_is_standardised(x: list[np.ndarray]) -> None:
    fitted, by_hand = model().fit(x), model(encoding=sm.Standardize()).fit(x)
    assert isinstance(fitted.encoding_, sm.Standardize)
    assert_allclose(fitted.log_prob(x), by_hand.log_prob(x), rtol=1e-4)  # trained in float32


def test_a_network_holds_out_a_season_more_of_a_series() -> None:
    """Else none of its held-out frames would be a step, and nothing would end training."""
    fitted = sm.LSTM(max_steps=2).fit([SEASON])
    assert isinstance(fitted.encoding_, AutoSeries)
    assert fitted.encoding_.n_initial == 12
    assert fitted.history_["validation"].notna().all()
    assert fitted.d_model_ == 32  # of a short series


@pytest.mark.slow
def test_a_network_takes_few_steps_on_a_short_series() -> None:
    shown = [LEVEL[:40]]
    assert int(sm.GRU(d_model=2).fit(shown, validation=None).history_["step"].max()) == 25
    assert (
        int(
            sm.GRU(d_model=2, training=sm.training.GradientTraining(patience=1_000))
            .fit(shown, validation=shown)
            .history_["step"]
            .max()
        )
        == 200
    )
