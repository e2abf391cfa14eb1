"""The HTML of an automatic forecast for a notebook: words, plot and table, on light and dark pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from matplotlib import pyplot
from matplotlib.axes import Axes

from seqmodels.common.display import html_table
from seqmodels.common.html import element
from seqmodels.evaluation.comparison.report.elements import as_svg, data_url, with_dark
from seqmodels.plot.style import NARROW, figure_of

if TYPE_CHECKING:
    import pandas as pd

    from seqmodels.plot.style import Panels

MAX_ROWS = 60  # most rows of the table


class ShownForecast(Protocol):
    """Protocol of the part of ``AutomaticForecast`` that its HTML page shows."""

    @property
    def frame(self) -> pd.DataFrame: ...
    @property
    def words(self) -> Sequence[str]: ...
    def plot(self) -> Axes | Panels: ...


def page(forecast: ShownForecast) -> str:
    """Return the words, the plot and the first rows of a forecast as HTML that needs no style sheet."""
    drawn = forecast.plot()
    figure = figure_of(drawn if isinstance(drawn, Axes) else drawn[0])
    wide = as_svg(figure)
    figure.set_size_inches(NARROW, figure.get_figheight())  # drawn again, because scaled text is unreadable on a phone
    urls = [data_url("svg+xml", with_dark(svg).encode()) for svg in (wide, as_svg(figure))]
    picture = element("image", *urls, "Forecast, drawn")
    pyplot.close(figure)  # because a notebook would show it once more
    rows = forecast.frame.head(MAX_ROWS)
    caption = "" if len(rows) == len(forecast.frame) else f"the first {MAX_ROWS} of {len(forecast.frame):,} rows"
    numbers = rows.select_dtypes("number").columns.difference(["step"])
    rows = rows.assign(**{name: [f"{value:.5g}" for value in rows[name]] for name in numbers})
    return "\n".join([*(element("paragraph", each) for each in forecast.words), picture, html_table(rows, caption)])
