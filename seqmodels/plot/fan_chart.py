"""Fan charts: the last steps of a sequence, followed by the intervals of its forecast."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from seqmodels.common.array_checks import numbers_of
from seqmodels.common.display import listed, quantile_name
from seqmodels.common.parameters import NotNegative, checked_but
from seqmodels.sequences.times import time_in_words
from seqmodels.sequences.zones import on_its_clock

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from seqmodels.plot.style import Panels
    from seqmodels.sequences import Sequences

HISTORY_PER_STEP = 3  # steps of the history that are drawn by default for each step of the forecast
LEAST_HISTORY = 30  # the least number of steps of the history that are drawn by default
MAX_SYMBOLS = 12  # the most symbols in the image of a forecast of symbols
MAX_PANELS = 12  # the most features that are drawn by default


class DrawnForecast(Protocol):
    """The interface of a forecast that can be drawn, such as ``seqmodels.generation.Forecast``.

    Attributes:
        frame: table with the columns ``sequence``, ``step``, ``feature`` or ``symbol``, and the mean and quantiles of
            each step, or the probability of each symbol.
        history: the sequences that are continued.
        features: names or numbers of the features; empty for symbols and text.
        are_angles: True for each feature that is an angle.
        quantiles: levels of the quantiles.
        paths: for each sequence, its simulated paths, ``(n, k, D)`` for n paths of k steps of D features.
    """

    @property
    def frame(self) -> pd.DataFrame: ...
    @property
    def history(self) -> Sequences: ...
    @property
    def features(self) -> Sequence[Any]: ...
    @property
    def are_angles(self) -> Sequence[bool]: ...
    @property
    def quantiles(self) -> tuple[float, ...]: ...
    @property
    def paths(self) -> list[Any]: ...


@checked_but("forecast")
def forecast(
    forecast: DrawnForecast,
    ax: Axes | Sequence[Axes] | None = None,
    *,
    sequence: Any = None,
    feature: int | str | Sequence[int | str] | None = None,
    history: NotNegative | None = None,
    truth: Any = None,
    paths: NotNegative = 0,
    unit: str = "",
) -> Axes | Panels:
    """Draw the last steps of one sequence, followed by the median and the intervals of its forecast, as a fan chart.

    A band lies between each quantile and its counterpart (5 % and 95 %), so levels symmetric about one half make bands
    and others are left out. Several features have one panel each, one above the other. For symbols and text, the
    probability of each symbol at each step is drawn as an image. If the steps ahead have times, the x axis shows them.
    The form follows the fan charts in the Bank of England's inflation reports (Britton, Fisher & Whitley 1998). If
    there are several sequences, the title says which one is drawn.

    Args:
        forecast: the result of ``SequenceModel.forecast``.
        ax: axes to draw on, as many as features are drawn; None creates a figure of pyplot.
        sequence: name of the sequence; None means the first.
        feature: for vectors, the number or name of a feature, or a list of them. None means all, up to 12, or the first
            if ``ax`` is a single ``Axes``.
        history: number of last steps to draw; None means three for each step of the forecast, and at least 30.
        truth: values that were observed later, shape ``(T, D)``, or ``(T,)`` for one feature; drawn over the forecast.
        paths: number of the forecast's sample paths to draw as thin lines.
        unit: unit of the feature, for the y axis; empty shows the name of the feature.

    Returns:
        The axes; for several features ``Panels``, which is a tuple of axes. ``plot.figure.savefig("forecast.pdf")``
        writes either to a file.

    Raises:
        ValueError: the forecast has no such sequence or feature, the number of axes differs from the number of
            features, or ``truth`` has one column but several features are drawn.
    """
    if not hasattr(type(forecast), "paths"):
        raise ValueError(f"forecast is {forecast!r:.100}; pass what SequenceModel.forecast returned")
    names = forecast.history.names
    if sequence is not None and sequence not in names:
        raise ValueError(
            f"there is no sequence {sequence!r} in the forecast; it has {', '.join(map(repr, names[:10]))}"
        )
    i = 0 if sequence is None else names.index(sequence)
    rows = forecast.frame[forecast.frame["sequence"] == names[i]]

    from seqmodels.plot.style import axes_or_new, in_style, panels_or_new  # imports matplotlib, which takes a second

    if forecast.history.kind != "vectors":
        with in_style():
            axes = axes_or_new(None if ax is None else panels_or_new(ax, 1, 3.2)[0], 3.2)
            _draw_symbols(axes, rows)
        return axes
    numbers, left_out = _features_to_draw(forecast.features, feature, ax)
    came = None if truth is None else _checked_truth(truth, numbers, len(forecast.features))
    with in_style():
        panels = panels_or_new(ax, len(numbers), 3.2 if len(numbers) == 1 else 1.8)
        for axes, d in zip(panels, numbers, strict=True):
            drawn = rows.iloc[d :: len(forecast.features)]
            _draw_vectors(axes, forecast, drawn, i, d, history=history, truth=came, paths=paths, unit=unit)
        if ax is None:
            for axes in panels[:-1]:
                axes.set_xlabel("")
            panels.figure.align_ylabels(panels)
        above: Any = {"loc": "lower left", "bbox_to_anchor": (0, 1), "ncols": 6}
        where = above if ax is None else {"loc": "best"}
        panels[0].legend(frameon=False, handlelength=1.2, columnspacing=1.0, **where)
        if len(names) > 1:
            which = names[i] if isinstance(names[i], str) else f"sequence {names[i]}"
            above_legend = None if ax is not None else 20  # points, since a narrow figure has no room beside it
            panels[0].set_title(f"{which} ({i + 1} of {len(names)})", loc="right", fontsize="medium", pad=above_legend)
        if left_out:
            panels[-1].set_xlabel(f"{panels[-1].get_xlabel()}\n{left_out}".strip())
    return panels[0] if len(panels) == 1 else panels


def _features_to_draw(
    features: Sequence[Any], feature: int | str | Sequence[int | str] | None, ax: Any
) -> tuple[list[int], str]:
    """Return the indices of the features to draw, and a note about features that are not drawn ("" if there are none).

    Args:
        features: names or numbers of all features.
        feature: the features that the caller chose, by name or number; None draws the first ``MAX_PANELS``, or the
            first one if ``ax`` is a single ``Axes``.
        ax: the axes that the caller passed.
    """
    if feature is None:
        if ax is not None and not isinstance(ax, Sequence | np.ndarray):
            return [0], ""
        n = min(len(features), MAX_PANELS)
        left_out = f"the first {n} of {len(features)} features; others by feature=[...]" if n < len(features) else ""
        return list(range(n)), left_out
    chosen = [feature] if isinstance(feature, str | int | np.integer) else list(feature)
    if not chosen:
        raise ValueError("feature is an empty list; pass the features to draw, or None for all")
    return [_number_of_feature(features, each) for each in chosen], ""


def _number_of_feature(features: Sequence[Any], feature: int | str) -> int:
    if isinstance(feature, str) and feature in features:
        return features.index(feature)
    if isinstance(feature, str) or not 0 <= feature < len(features):
        raise ValueError(f"feature is {feature!r}, but there are {len(features)}, numbered from 0: {listed(features)}")
    return int(feature)


def _checked_truth(truth: Any, numbers: list[int], n_features: int) -> np.ndarray:
    """Return observed values with a column for each feature, shape ``(T, D)``.

    Args:
        truth: the values, shape ``(T, D)``, or ``(T,)`` if one feature is drawn; the other columns are then NaN.
        numbers: indices of the features that are drawn.
        n_features: number D of features.

    Raises:
        ValueError: the shape does not fit.
    """
    came = numbers_of("truth", truth)
    if came.ndim == 1 and len(numbers) == 1:
        every = np.full((len(came), n_features), np.nan)
        every[:, numbers[0]] = came
        return every
    if came.ndim != 2 or came.shape[1] != n_features:
        raise ValueError(
            f"truth has shape {came.shape}, but {len(numbers)} of {n_features} features are drawn; pass (T, "
            f"{n_features}), or (T,) and the one feature to draw: feature=0"
        )
    return came


def _draw_vectors(
    ax: Axes,
    forecast: DrawnForecast,
    rows: Any,
    i: int,
    d: int,
    *,
    history: NotNegative | None,
    truth: np.ndarray | None,
    paths: int,
    unit: str,
) -> None:
    """Draw the last steps of one feature of one sequence, the bands of its forecast, and what was observed later.

    Args:
        ax: the axes to draw on.
        forecast: the forecast.
        rows: rows of the forecast's table for this sequence and feature, one per step.
        i: index of the sequence.
        d: index of the feature.
        history: number of last steps to draw; None means three for each step of the forecast, and at least 30.
        truth: observed values, shape ``(T, D)``, or None.
        paths: number of sample paths to draw.
        unit: label of the y axis; empty shows the name of the feature.
    """
    from seqmodels.plot.style import COLOURS, INK

    past = np.asarray(forecast.history[i])[:, d]
    k = len(rows)
    n_past = min(len(past), max(LEAST_HISTORY, HISTORY_PER_STEP * k) if history is None else history)
    t = _positions(ax, forecast, rows, i, n_past)  # (n_past + k,)
    ahead = t[n_past - 1 :] if n_past else np.array([2 * t[0] - t[1] if k > 1 else t[0] - 1, *t])
    last, is_angle = past[-1] if n_past else np.nan, forecast.are_angles[d]
    observed = t[:n_past], past[len(past) - n_past :]
    if is_angle:
        observed, rows = _broken_at_turns(*observed), _on_turns_after(rows, last)
    middle = rows["mean"].to_numpy()
    ax.plot(*observed, color=INK, linewidth=1.1, label="observed")
    _draw_fan(ax, ahead, rows, forecast.quantiles, last)
    for path in forecast.paths[i][:paths] if paths else []:
        drawn = _on_turn_of(path[:, d], middle) if is_angle else path[:, d]
        ax.plot(ahead[1:], drawn, color=COLOURS[0], linewidth=0.5, alpha=0.5)
    if truth is not None:
        came = _on_turn_of(truth[:k, d], middle[: len(truth)]) if is_angle else truth[:k, d]
        dashed: Any = {"color": INK, "linewidth": 1.1, "linestyle": (0, (2, 1.2)), "label": "actual"}
        ax.plot(ahead[: len(came) + 1], [last, *came], **dashed)
    name = forecast.features[d]
    number = f"feature {d}" if len(forecast.features) > 1 else "value"
    ax.set_ylabel(unit or (name if isinstance(name, str) else number))
    ax.margins(x=0.01)


def _broken_at_turns(t: np.ndarray, angles: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return times and angles, each ``(T,)``, with a NaN inserted wherever the angle jumps from π to -π or back.

    A line through them then has a gap in place of a stroke across the whole axis.
    """
    at = np.flatnonzero(np.abs(np.diff(angles)) > np.pi) + 1
    return np.insert(t, at, t[at]), np.insert(angles, at, np.nan)


def _on_turns_after(rows: Any, last: float) -> Any:
    """Unwrap the forecast of an angle: shift mean and quantiles of each step by multiples of 2π to avoid jumps.

    Args:
        rows: rows of the forecast's table for this angle, one per step.
        last: the last observed angle, to which the mean of the first step becomes close.
    """
    columns = [name for name in rows.columns if name == "mean" or str(name).endswith("%")]
    direction = rows["mean"].to_numpy()
    known = np.flatnonzero(~np.isnan(direction))
    before = direction[known[:1]] if np.isnan(last) else np.array([last])
    turns = np.zeros(len(direction))
    turns[known] = np.unwrap(np.concatenate([before, direction[known]]))[-len(known) :] - direction[known]
    return rows.assign(**{name: rows[name] + turns for name in columns})


def _on_turn_of(angles: np.ndarray, near: np.ndarray) -> np.ndarray:
    """Return angles shifted by multiples of 2π to be as close as possible to other angles.

    Args:
        angles: the angles, ``(k,)``.
        near: the other angles, ``(k,)``; where they are NaN, angles are not shifted.
    """
    turns = np.round((np.nan_to_num(near, nan=0.0) - angles) / (2 * np.pi))
    return np.asarray(angles + 2 * np.pi * np.where(np.isnan(near), 0.0, turns))


def _positions(ax: Axes, forecast: DrawnForecast, rows: Any, i: int, n_past: int) -> np.ndarray:
    """Label the x axis, and return the positions on it of the last ``n_past`` steps and the k steps ahead.

    They are times if the forecast has times, and otherwise counted from the last observed step; shape ``(n_past +
    k,)``.

    Args:
        ax: the axes.
        forecast: the forecast.
        rows: rows of its table for one feature, one per step ahead.
        i: index of the sequence.
        n_past: number of observed steps that are drawn.
    """
    from seqmodels.plot.style import positions, time_label

    X = forecast.history
    ahead = _times(rows)
    if X.times is None or ahead is None:
        ax.set_xlabel("steps ahead")
        return np.arange(1.0 - n_past, len(rows) + 1.0)
    past = on_its_clock(X.times[i][len(X.times[i]) - n_past :], X.time_unit)
    ax.set_xlabel(time_label(X.time_name, X.time_unit, ahead))
    return positions(ax, np.concatenate([past.astype(ahead.dtype), ahead]))


def _times(rows: Any) -> np.ndarray | None:
    """Return the times of the k steps of a forecast in local time, shape ``(k,)``; None without times.

    Args:
        rows: rows of the forecast's table, one per step.
    """
    if "time" not in rows or rows["time"].isna().any():
        return None
    column = rows["time"]
    has_zone = getattr(column.dtype, "tz", None) is not None
    return np.asarray((column.dt.tz_localize(None) if has_zone else column).to_numpy())


def _draw_fan(ax: Axes, t: np.ndarray, rows: Any, levels: tuple[float, ...], last: float) -> None:
    """Draw the bands and the median of a forecast, which begin at the last observed value.

    Args:
        ax: the axes to draw on.
        t: positions of the last observed step and of the k steps ahead, shape ``(k + 1,)``.
        rows: rows of the forecast's table, one per step.
        levels: levels of the quantiles.
        last: the last observed value.
    """
    from seqmodels.plot.style import COLOURS

    def line(level: float) -> np.ndarray:
        return np.array([last, *rows[quantile_name(level)]])

    pairs = [(low, high) for low in levels for high in levels if low < 0.5 and abs(low + high - 1) < 1e-9]
    for j, (low, high) in enumerate(pairs):
        shade = 0.18 + 0.32 * j / max(1, len(pairs) - 1) if len(pairs) > 1 else 0.28
        label = f"{100 * (high - low):.4g} %"
        ax.fill_between(t, line(low), line(high), color=COLOURS[0], alpha=shade, linewidth=0, label=label)
    middle = line(0.5) if 0.5 in levels else np.array([last, *rows["mean"]])
    ax.plot(t, middle, color=COLOURS[0], linewidth=1.4, label="median" if 0.5 in levels else "mean")


def _draw_symbols(ax: Axes, rows: Any) -> None:
    """Draw the probabilities of the most probable symbols at each step of a forecast as an image.

    Args:
        ax: the axes to draw on.
        rows: rows of the forecast's table, with the columns ``step``, ``symbol`` and ``probability``.
    """
    largest = rows.groupby("symbol")["probability"].max().sort_values(ascending=False).index[:MAX_SYMBOLS]
    table = rows.pivot(index="symbol", columns="step", values="probability").loc[sorted(largest)]
    from seqmodels.plot.style import shades

    ax.grid(visible=False)
    image = ax.imshow(table.to_numpy(), aspect="auto", cmap=shades(), vmin=0, interpolation="nearest", origin="lower")
    ax.set_yticks(range(len(table)), [repr(s) if isinstance(s, str) else str(s) for s in table.index], fontsize=8)
    steps = table.columns.to_numpy()
    every = max(1, len(steps) // 12)
    times = _times(rows.drop_duplicates("step").sort_values("step"))
    if times is None:
        ax.set_xticks(range(0, len(steps), every), [str(step) for step in steps[::every]])
        ax.set_xlabel("steps ahead")
    else:
        labels = [time_in_words(time) for time in times[::every]]
        ax.set_xticks(range(0, len(steps), every), labels, rotation=30, ha="right")
    ax.set_ylabel("symbol")
    ax.figure.colorbar(image, ax=ax, label="probability", pad=0.02)
