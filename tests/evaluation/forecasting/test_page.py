"""What a notebook shows of an automatic forecast."""

from __future__ import annotations

import base64
import re

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot

from seqmodels import HMM, AutoregressiveGaussian, Sequences, Standardize
from seqmodels.evaluation.forecasting.page import MAX_ROWS, page
from seqmodels.plot.style import NARROW


class Shown:
    """A forecast of a model, and words."""

    def __init__(self, k: int):
        rng = np.random.default_rng(0)
        days = pd.date_range("2026-01-01", periods=50)
        frame = pd.DataFrame(np.cumsum(rng.normal(size=(50, 2)), axis=0), index=days, columns=["a<b", "c"])
        x = Sequences.from_frame(frame)
        model = HMM(1, observation=AutoregressiveGaussian(1), encoding=Standardize(), max_iter=2)
        self.forecast = model.fit(x).forecast(x, k)
        self.frame = self.forecast.frame
        self.words = ["It rises & falls.", "2 < 3."]

    def plot(self):
        return self.forecast.plot()


@pytest.fixture(scope="module")
def shown():
    return Shown(3)


def test_words_picture_and_table_are_there_and_escaped(shown):
    html = page(shown)
    assert "<p>It rises &amp; falls.</p>" in html
    svg = base64.b64decode(re.search(r"image/svg\+xml;base64,([^\"]+)", html)[1]).decode()
    assert "prefers-color-scheme:dark" in svg
    assert html.count("<tr") == 1 + 6
    assert "a&lt;b" in html
    assert "2026-02-20" in html
    assert not pyplot.get_fignums()  # a notebook would show the figure again


def test_a_telephone_has_a_narrow_picture_whose_text_can_be_read(shown):
    wide, narrow = (
        base64.b64decode(url).decode()
        for url in re.search(
            r'(?s)(?=.*<img [^>]*src="data:image/svg\+xml;base64,([^"]+)).*<source media="\(max-width: 36rem\)" '
            r'srcset="data:image/svg\+xml;base64,([^"]+)"',
            page(shown),
        ).groups()
    )
    assert ('width="504pt"' in wide, 'width="270pt"' in narrow) == (True, True)  # 7 and 3.75 inches


def test_the_legend_of_a_narrow_forecast_is_in_the_picture(shown):
    panels = shown.plot()
    panels.figure.set_size_inches(NARROW, 4)
    panels.figure.canvas.draw()
    assert panels[0].get_legend().get_window_extent().x1 <= panels.figure.bbox.x1
    pyplot.close(panels.figure)


@pytest.mark.slow
def test_a_long_table_is_cut_and_says_so():
    html = page(Shown(40))
    assert html.count("<tr") == 1 + MAX_ROWS
    assert "the first 60 of 80 rows" in html
