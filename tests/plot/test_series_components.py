"""``plot.components`` draws what ``LinearGaussian.components`` found, and what remains."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot
from matplotlib.dates import date2num
from matplotlib.figure import Figure

import seqmodels as sm

RNG = np.random.default_rng(0)
Y = (50 + RNG.normal(size=60).cumsum() + np.tile([4.0, -1.0, -3.0], 20) + RNG.normal(size=60))[:, None]
MONTHS = pd.date_range("2010-01", periods=60, freq="MS").to_numpy()


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    pyplot.close("all")
    yield
    pyplot.close("all")


@pytest.fixture(scope="module")
def model() -> sm.LinearGaussian:
    return (sm.LinearGaussian.local_level() + sm.LinearGaussian.seasonal(3)).fit([Y])


def test_lines_and_bands_are_the_components(model: sm.LinearGaussian) -> None:
    panels = sm.plot.components(model, sm.Sequences([Y], times=[MONTHS], features=["sales"]), level=0.8)
    assert [ax.get_ylabel() for ax in panels] == ["sales", "seasonal", "remainder"]
    assert panels[2].get_xlabel() == ""
    parts = {str(name): part for name, part in model.components([Y], level=0.8)[0].groupby("component")}
    observed, level = panels[0].get_lines()
    np.testing.assert_array_equal(observed.get_ydata(), Y[:, 0])
    np.testing.assert_allclose(level.get_ydata(), parts["level"]["mean"])
    np.testing.assert_allclose(level.get_xdata(), date2num(MONTHS))
    for ax, name in zip(panels, ("level", "seasonal"), strict=False):
        band = ax.collections[0].get_paths()[0].vertices
        assert band[:, 1].max() == pytest.approx(parts[name]["high"].max())
        assert band[:, 1].min() == pytest.approx(parts[name]["low"].min())
    ends = np.array([path.vertices[1, 1] for path in panels[2].collections[0].get_paths()])
    np.testing.assert_allclose(ends, Y[:, 0] - parts["level"]["mean"] - parts["seasonal"]["mean"].to_numpy())


def test_what_an_input_adds_has_a_panel() -> None:
    promotion = (np.arange(60) % 7 == 0).astype(float)
    x = sm.Sequences([Y + 20 * promotion[:, None]], inputs=[promotion], input_names=["promotion"])
    model = sm.LinearGaussian.local_level(observation_inputs=True).fit(x)
    panels = sm.plot.components(model, x)
    assert [ax.get_ylabel() for ax in panels] == ["value", "promotion", "remainder"]
    added = np.asarray(panels[1].get_lines()[1].get_ydata())
    assert added[0] - added[1] == pytest.approx(20, abs=3)


def test_some_steps_are_drawn_of_what_all_say(model: sm.LinearGaussian) -> None:
    axes = Figure().subplots(3, 1)
    panels = sm.plot.components(model, Y, ax=axes, steps=slice(10, 30), unit="pieces")
    assert list(panels) == list(axes)
    assert panels[0].get_ylabel() == "pieces"
    level = model.components([Y])[0]["mean"][10:30]
    np.testing.assert_allclose(panels[0].get_lines()[1].get_ydata(), level)
    np.testing.assert_array_equal(panels[0].get_lines()[1].get_xdata(), np.arange(10, 30))
    assert panels[2].get_xlabel() == "step"


def test_without_a_level_or_noise_nothing_remains() -> None:
    model = sm.LinearGaussian.arima(1, 0, 1).fit([Y])
    panels = sm.plot.components(model, Y)
    assert [ax.get_ylabel() for ax in panels] == ["value", "arima", "remainder"]
    assert len(panels[0].get_lines()) == 1
    assert all(path.vertices[1, 1] == 0 for path in panels[2].collections[0].get_paths())


def test_what_cannot_be_drawn_is_refused(model: sm.LinearGaussian) -> None:
    with pytest.raises(ValueError, match="pass a fitted LinearGaussian of a structure"):
        sm.plot.components(sm.HMM(2), Y)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="x holds 2 sequences"):
        sm.plot.components(model, [Y, Y])
    with pytest.raises(ValueError, match="ax holds 1 axes, but 3 are drawn on"):
        sm.plot.components(model, Y, ax=Figure().subplots())
    assert pyplot.get_fignums() == []
