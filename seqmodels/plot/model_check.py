"""Plot of the pseudo-residuals of one feature: quantiles, histogram, values over time, and autocorrelations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from seqmodels.plot.style import COLOURS, INK, MUTED, Panels, in_style, panels_or_new, short

MOST_POINTS = 5_000  # residuals over time that are drawn
N_BINS = 30
OUTER = 1.96  # between minus this and this lie 95 % of the standard normal distribution


def plot_residuals(
    name: str,
    residuals: Sequence[np.ndarray],
    quantiles: pd.DataFrame,
    autocorrelations: pd.DataFrame,
    ax: Sequence[Axes] | None = None,
) -> Panels:
    """Draw four panels of the pseudo-residuals of one feature, which are standard normal if the model is right.

    They are the quantiles of the residuals against those of the standard normal distribution, a histogram with its
    density, the residuals over time, and their autocorrelations. The shaded bands are where quantiles and
    autocorrelations lie if the model is right.

    Args:
        name: name of the feature.
        residuals: residuals of each sequence, ``(T,)``, NaN where there is none.
        quantiles: table with the columns ``normal``, ``residual``, ``low`` and ``high`` (``ModelCheck.quantiles``).
        autocorrelations: table with the columns ``lag``, ``autocorrelation``, ``low`` and ``high``.
        ax: four axes to draw on; None creates a figure of pyplot.

    Returns:
        The four axes, row by row.
    """
    with in_style():
        panels = panels_or_new(ax, 4, 2.6, share_x=False, columns=2)
        _draw_quantiles(panels[0], quantiles)
        _draw_histogram(panels[1], np.concatenate(residuals))
        _draw_over_time(panels[2], residuals)
        _draw_autocorrelations(panels[3], autocorrelations)
        panels[0].set_title(f"Pseudo-residuals of {short(name)}")
    return panels


def _draw_quantiles(axes: Axes, table: pd.DataFrame) -> None:
    normal = table["normal"].to_numpy()
    axes.fill_between(normal, table["low"], table["high"], color=MUTED, alpha=0.25, linewidth=0, gid="band")
    axes.plot(normal[[0, -1]], normal[[0, -1]], color=INK, linewidth=0.9)
    axes.plot(
        normal, table["residual"], color=COLOURS[0], linestyle="none", marker="o", markersize=2.5, gid="quantiles"
    )
    axes.set(xlabel="quantile of N(0, 1)", ylabel="quantile of the residuals")


def _draw_histogram(axes: Axes, values: np.ndarray) -> None:
    seen = values[~np.isnan(values)]
    limit = max(4.0, float(np.abs(seen).max(initial=0.0)))
    axes.hist(seen, bins=N_BINS, range=(-limit, limit), density=True, color=COLOURS[0], alpha=0.6)
    x = np.linspace(-limit, limit, 201)
    axes.plot(x, np.exp(-0.5 * x**2) / np.sqrt(2 * np.pi), color=INK, linewidth=0.9)
    axes.set(xlabel="residual", ylabel="density")


def _draw_over_time(axes: Axes, residuals: Sequence[np.ndarray]) -> None:
    """Draw the residuals of one sequence after the other, with a line where each begins; not all of very many."""
    ends = np.cumsum([len(each) for each in residuals])
    step = max(1, int(ends[-1]) // MOST_POINTS)
    values = np.concatenate(residuals)[::step]
    axes.plot(np.arange(len(values)) * step, values, color=COLOURS[0], linestyle="none", marker="o", markersize=1.5)
    for at in (-OUTER, 0.0, OUTER):
        axes.axhline(at, color=INK, linewidth=0.9 if at == 0 else 0.6, linestyle="-" if at == 0 else (0, (5, 3)))
    if len(ends) <= N_BINS:
        for end in ends[:-1]:
            axes.axvline(end - 0.5, color=MUTED, linewidth=0.6)
    axes.set(xlabel="frame" if len(ends) == 1 else "frame, sequences in turn", ylabel="residual")


def _draw_autocorrelations(axes: Axes, table: pd.DataFrame) -> None:
    lags = table["lag"].to_numpy()
    axes.fill_between(lags, table["low"], table["high"], color=MUTED, alpha=0.25, linewidth=0, gid="band")
    axes.axhline(0, color=INK, linewidth=0.9)
    axes.vlines(lags, 0, table["autocorrelation"], color=COLOURS[0], linewidth=2.0)
    axes.plot(lags, table["autocorrelation"], color=COLOURS[0], linestyle="none", marker="o", markersize=3, gid="lags")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(xlabel="lag", ylabel="autocorrelation")
