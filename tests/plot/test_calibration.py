"""Calibration plots show what they are given."""

import numpy as np
import pandas as pd
import pytest

from seqmodels.plot.calibration import reliability_diagram, transform_histograms


@pytest.mark.parametrize("n", [1, 3, 9])
def test_a_line_and_an_error_for_each_model(n):
    table = pd.DataFrame({"predicted": [1e-5, 0.1, 0.5], "observed": [0.0, 0.12, 0.4], "n": [90, 9, 4]})
    names = [f"model-{i}" for i in range(n)]
    figure = reliability_diagram(dict.fromkeys(names, table), dict.fromkeys(names, 0.25))
    lines = [line for line in figure.axes[0].lines if line.get_gid() == "model"]
    assert [line.get_xdata().tolist() for line in lines] == [[0.1, 0.5]] * n
    assert [text.get_text() for text in figure.axes[0].get_legend().texts] == [f"{name}  (0.250)" for name in names]


@pytest.mark.parametrize("n", [1, 4, 6])
def test_a_histogram_for_each_model(n):
    heights = {f"model-{i}": np.full(20, 1.0) for i in range(n)}
    figure = transform_histograms(heights, dict.fromkeys(heights, 0.1))
    shown = [axes for axes in figure.axes if axes.get_visible()]
    assert len(shown) == n
    assert all(len(axes.patches) == 20 for axes in shown)
