"""Fan charts: the last steps of a sequence and the intervals of those that follow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from seqmodels.display import listed
from seqmodels.generation.feature_distributions import quantile_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from seqmodels.generation.forecast import Forecast

HISTORY_PER_STEP = 3  # steps of the history that are drawn for each of the forecast
LEAST_HISTORY = 30
MAX_SYMBOLS = 12


def plot_forecast(
    forecast: Forecast,
    ax: Axes | None = None,
    *,
    sequence: Any = None,
    feature: int | str = 0,
    history: int | None = None,
    truth: Any = None,
    paths: int = 0,
    unit: str = "",
) -> Axes:
    """Fan chart of one sequence: its last steps, then median and intervals of those that follow.

    A band lies between each quantile and its counterpart (5 % and 95 %), so levels symmetric about a half make bands;
    others are left out. Of symbols and text: the probability of each symbol at each step, as a heat map. The fan is
    that of the Bank of England's inflation reports (Britton, Fisher & Whitley 1998).

    Args:
        forecast: what ``SequenceModel.forecast`` returned.
        ax: axes to draw on; None: those of a new figure of pyplot.
        sequence: its name; None: the first.
        feature: of vectors, its number, or its name.
        history: how many of the last steps to draw; None: three for each step of the forecast, at least 30.
        truth: what came, ``(T, D)`` or ``(T,)``, drawn over the forecast.
        paths: how many of the forecast's drawn paths to draw, as thin lines.
        unit: of the feature, for the axis; empty: the feature's name.

    Returns:
        The axes; ``ax.figure.savefig("forecast.pdf")`` writes them.

    Raises:
        ValueError: a sequence or feature that the forecast has not.
    """
    names = forecast.history.names
    if sequence is not None and sequence not in names:
        raise ValueError(
            f"there is no sequence {sequence!r} in the forecast; it has {', '.join(map(repr, names[:10]))}"
        )
    i = 0 if sequence is None else names.index(sequence)
    rows = forecast.frame[forecast.frame["sequence"] == names[i]]
    is_of_vectors = forecast.history.kind == "vectors"
    d = _number_of_feature(forecast.features, feature) if is_of_vectors else 0

    from seqmodels.plot_style import axes_or_new, in_style  # imports matplotlib, which takes a second

    with in_style():
        axes = axes_or_new(ax, 3.2)
        if is_of_vectors:
            drawn = rows.iloc[d :: len(forecast.features)]
            _draw_vectors(axes, forecast, drawn, i, d, history=history, truth=truth, paths=paths, unit=unit)
            above: Any = {"loc": "lower left", "bbox_to_anchor": (0, 1), "ncols": 6, "handlelength": 1.5}
            axes.legend(frameon=False, **(above if ax is None else {"loc": "best"}))
        else:
            _draw_symbols(axes, rows)
    return axes


def _number_of_feature(features: Sequence[Any], feature: int | str) -> int:
    if isinstance(feature, str) and feature in features:
        return features.index(feature)
    if isinstance(feature, str) or not 0 <= feature < len(features):
        raise ValueError(f"feature is {feature!r}, but there are {len(features)}, numbered from 0: {listed(features)}")
    return int(feature)


def _draw_vectors(
    ax: Axes, forecast: Forecast, rows: Any, i: int, d: int, *, history: int | None, truth: Any, paths: int, unit: str
) -> None:
    """The end of one feature of the i-th sequence, the fan of what follows, and what came; ``rows``: a step each."""
    from seqmodels.plot_style import COLOURS, INK

    past = np.asarray(forecast.history[i])[:, d]
    k = len(rows)
    n_past = min(len(past), max(LEAST_HISTORY, HISTORY_PER_STEP * k) if history is None else history)
    ax.plot(np.arange(1 - n_past, 1), past[len(past) - n_past :], color=INK, linewidth=1.1, label="observed")
    last = past[-1] if n_past else np.nan
    _draw_fan(ax, rows, forecast.quantiles, last)
    for path in forecast.paths[i][:paths] if paths else []:
        ax.plot(np.arange(1, k + 1), path[:, d], color=COLOURS[0], linewidth=0.5, alpha=0.5)
    if truth is not None:
        came = np.asarray(truth, dtype=float)
        came = (came[:, d] if came.ndim == 2 else came)[:k]
        dashed: Any = {"color": INK, "linewidth": 1.1, "linestyle": (0, (2, 1.2)), "label": "actual"}
        ax.plot(np.arange(len(came) + 1), [last, *came], **dashed)
    ax.set_xlabel("steps ahead")
    name = forecast.features[d]
    number = f"feature {d}" if len(forecast.features) > 1 else "value"
    ax.set_ylabel(unit or (name if isinstance(name, str) else number))
    ax.margins(x=0.01)


def _draw_fan(ax: Axes, rows: Any, levels: tuple[float, ...], last: float) -> None:
    """Bands and median, which begin at the last observed value."""
    from seqmodels.plot_style import COLOURS

    steps = np.arange(len(rows) + 1)

    def line(level: float) -> np.ndarray:
        return np.array([last, *rows[quantile_name(level)]])

    pairs = [(low, high) for low in levels for high in levels if low < 0.5 and abs(low + high - 1) < 1e-9]
    for j, (low, high) in enumerate(pairs):
        shade = 0.18 + 0.32 * j / max(1, len(pairs) - 1) if len(pairs) > 1 else 0.28
        label = f"{100 * (high - low):.4g} %"
        ax.fill_between(steps, line(low), line(high), color=COLOURS[0], alpha=shade, linewidth=0, label=label)
    middle = line(0.5) if 0.5 in levels else np.array([last, *rows["mean"]])
    ax.plot(steps, middle, color=COLOURS[0], linewidth=1.4, label="median" if 0.5 in levels else "mean")


def _draw_symbols(ax: Axes, rows: Any) -> None:
    """A heat map of the symbols that are probable at some step."""
    largest = rows.groupby("symbol")["probability"].max().sort_values(ascending=False).index[:MAX_SYMBOLS]
    table = rows.pivot(index="symbol", columns="step", values="probability").loc[sorted(largest)]
    from seqmodels.plot_style import shades

    ax.grid(visible=False)
    image = ax.imshow(table.to_numpy(), aspect="auto", cmap=shades(), vmin=0, interpolation="nearest", origin="lower")
    ax.set_yticks(range(len(table)), [repr(s) if isinstance(s, str) else str(s) for s in table.index], fontsize=8)
    steps = table.columns.to_numpy()
    every = max(1, len(steps) // 12)
    ax.set_xticks(range(0, len(steps), every), [str(s) for s in steps[::every]])
    ax.set_xlabel("steps ahead")
    ax.set_ylabel("symbol")
    ax.figure.colorbar(image, ax=ax, label="probability", pad=0.02)
