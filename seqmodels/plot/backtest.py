"""Plot of the scores of forecasts against the number of steps ahead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from matplotlib.ticker import MaxNLocator

from seqmodels.plot.style import INK, axes_or_new, colour_of, dash_of, in_style, short

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

LABELS = {
    "crps": "CRPS, units of the data",
    "crps_scaled": "CRPS / mean change in training",
    "energy": "energy score, scaled features",
    "pinball": "pinball loss, units of the data",
    "mae": "absolute error of the median, units of the data",
    "mase": "absolute error / mean change in training",
}


def plot_scores_by_step(frame: pd.DataFrame, score: str, ax: Axes | None = None) -> Axes:
    """Draw the mean of a score against the number of steps ahead, with one line per model.

    For the coverage of an interval, a horizontal line shows the nominal coverage.

    Args:
        frame: table with the columns ``model``, ``step`` (number of steps ahead) and the scores (``Backtest.frame``).
        score: name of the score's column, such as ``"crps"`` or ``"covered 90%"``.
        ax: axes to draw on; None creates a figure of pyplot.

    Raises:
        ValueError: the table has no such score.
    """
    if score not in frame or score in ("model", "step", "n"):
        raise ValueError(f"there is no score {score!r}; there are {', '.join(map(str, frame.columns[3:]))}")
    with in_style():
        axes = axes_or_new(ax, 3.4)
        for i, (name, rows) in enumerate(frame.groupby("model", sort=False)):
            style: Any = {"color": colour_of(i), "linestyle": dash_of(i), "label": short(name)}
            axes.plot(rows["step"], rows[score], marker="o", markersize=3, **style)
        if score.startswith("covered"):
            nominal = float(score.removeprefix("covered").rstrip("%")) / 100
            axes.axhline(nominal, color=INK, linewidth=0.9)
            axes.set_ylim(0, 1)
        axes.set_xlabel("steps ahead")
        axes.set_ylabel(LABELS.get(score, f"share {score.replace('covered', 'inside')} intervals"))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.01, 0.5))
    return axes
