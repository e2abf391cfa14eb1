from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes

import seqmodels as sm
from seqmodels import plot


@pytest.fixture(scope="module")
def model() -> sm.HMM:
    rng = np.random.default_rng(0)
    x = [rng.normal(size=(60, 1)) + 4 * (np.arange(60)[:, None] // 10 % 2) for _ in range(4)]
    inputs = [np.stack([20.0 + 3 * rng.normal(size=60), rng.normal(size=60)], 1) for _ in range(4)]
    data = sm.Sequences(x, inputs=inputs, input_names=["heat", "wind"])
    return sm.HMM(
        2,
        input_effects=sm.hmm.ChainInputEffects(transitions=True),
        max_iter=5,
        n_init=1,
        observation=sm.GaussianMixture(1),
    ).fit(data)


def test_the_lines_are_the_probabilities(model: sm.HMM) -> None:
    panels: Any = plot.transitions_by_input(
        model, "heat", values=[10.0, 20.0, 30.0], others={"wind": 1.0}, state_names=["rest", "walk"]
    )
    assert len(panels) == 2
    expected = model.transition_at({"heat": [10.0, 20.0, 30.0], "wind": [1.0, 1.0, 1.0]})
    for i, axes in enumerate(panels):
        for j, line in enumerate(axes.get_lines()):
            np.testing.assert_array_equal(line.get_xdata(), [10.0, 20.0, 30.0])
            np.testing.assert_array_equal(line.get_ydata(), expected[:, i, j])
        assert [text.get_text() for text in axes.get_legend().get_texts()] == ["rest", "walk"]
    assert panels[1].get_xlabel() == "heat"
    assert panels[0].get_ylabel() == "probability after rest"


def test_one_state_and_the_range_of_the_data(model: sm.HMM) -> None:
    axes = plot.transitions_by_input(model, "heat", states=[1])
    assert isinstance(axes, Axes)
    low, high = np.asarray(axes.get_lines()[0].get_xdata())[[0, -1]]
    assert low == pytest.approx(20 - 2.5 * 3, abs=1.5)
    assert high == pytest.approx(20 + 2.5 * 3, abs=1.5)
    assert plot.transitions_by_input(model, "wind", states=[0], ax=axes) is axes


def test_refused(model: sm.HMM) -> None:
    refused: list[tuple[dict[str, Any], str]] = [
        ({"name": "rain"}, "reads no input 'rain'; it reads heat, wind"),
        ({"name": "heat", "others": {"rain": 1.0}}, "no input 'rain'"),
        ({"name": "heat", "states": [2]}, "some of 0 to 1"),
        ({"name": "heat", "state_names": ["one"]}, "a name for each"),
    ]
    for options, match in refused:
        with pytest.raises(ValueError, match=match):
            plot.transitions_by_input(model, **options)
    with pytest.raises(ValueError, match="reads no input 'heat'; it reads none"):
        plot.transitions_by_input(sm.HMM(1, max_iter=1).fit([np.arange(9.0)[:, None]]), "heat")
    with pytest.raises(ValueError, match="which has no transitions"):
        plot.transitions_by_input(sm.NGram(2), "heat")  # type: ignore[arg-type]
