from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot
from matplotlib.axes import Axes

from seqmodels import plot


def effects(n: int, name: str, pairs: list[tuple[int, Any]]) -> pd.DataFrame:
    rows = [("heat", float(t), name, state, feature, t / n + state / 10) for t in range(n) for state, feature in pairs]
    frame = pd.DataFrame(rows, columns=["input", "value", "name", "state", "feature", "estimate"])
    frame["feature"] = frame["feature"].astype(object)
    return frame.assign(ci_low=frame["estimate"] - 0.1, ci_high=frame["estimate"] + 0.2)


def test_transitions_have_a_panel_for_each_state_and_a_line_for_each_next_state() -> None:
    frame = effects(50, "transition", [(0, 0), (0, 1), (1, 0), (1, 1)])
    panels: Any = plot.effects(frame, state_names=["rest", "walk"])
    assert [axes.get_ylabel() for axes in panels] == ["probability after rest", "probability after walk"]
    for i, axes in enumerate(panels):
        assert axes.get_ylim() == (-0.02, 1.02)
        assert [text.get_text() for text in axes.get_legend().get_texts()] == ["rest", "walk"]
        for j, (line, band) in enumerate(zip(axes.get_lines(), axes.collections, strict=True)):
            rows = frame[(frame["state"] == i) & (frame["feature"] == j)]
            np.testing.assert_array_equal(line.get_xdata(), rows["value"])
            np.testing.assert_array_equal(line.get_ydata(), rows["estimate"])
            ends = band.get_paths()[0].vertices[:, 1]
            np.testing.assert_allclose([ends.min(), ends.max()], [rows["ci_low"].min(), rows["ci_high"].max()])
    assert panels[1].get_xlabel() == "heat"
    pyplot.close(panels[0].figure)


def test_few_values_are_points_beside_each_other() -> None:
    _, own = pyplot.subplots()
    axes = plot.effects(effects(4, "stationary", [(0, None), (1, None), (2, None)]), ax=own)
    assert axes is own
    assert axes.get_ylabel() == "share of steps"
    first, second, third = (each.lines[0].get_xdata() for each in own.containers)  # type: ignore[attr-defined]
    np.testing.assert_allclose(second, [0, 1, 2, 3], atol=1e-12)
    np.testing.assert_allclose(second - first, 0.125)
    np.testing.assert_allclose(third - second, 0.125)
    for state, container in enumerate(own.containers):
        (bars,) = container.lines[2]  # type: ignore[attr-defined]
        ends = np.array([segment[:, 1] for segment in bars.get_segments()])
        middle = np.arange(4) / 4 + state / 10
        np.testing.assert_allclose(ends, np.stack([middle - 0.1, middle + 0.2], 1))
    pyplot.close(own.figure)


def test_emissions_have_a_panel_for_each_feature() -> None:
    panels: Any = plot.effects(effects(50, "means", [(0, "speed"), (0, "turn"), (1, "speed"), (1, "turn")]))
    assert [axes.get_ylabel() for axes in panels] == ["means: speed", "means: turn"]
    assert [len(axes.get_lines()) for axes in panels] == [2, 2]
    pyplot.close(panels[0].figure)
    one = plot.effects(effects(50, "rates", [(0, 0)]))
    assert isinstance(one, Axes)
    assert one.get_legend() is None
    pyplot.close(one.figure)


def test_refused() -> None:
    frame = effects(3, "transition", [(0, 1), (1, 0)])
    with pytest.raises(ValueError, match="state_names is \\['one'\\], but there are 2 states"):
        plot.effects(frame, state_names=["one"])
    with pytest.raises(ValueError, match="frame has no column 'ci_low'"):
        plot.effects(frame.drop(columns="ci_low"))
    with pytest.raises(ValueError, match="frame has no rows"):
        plot.effects(frame[:0])
    with pytest.raises(ValueError, match="frame is None; pass a result of the method effects"):
        plot.effects(None)  # type: ignore[arg-type]
