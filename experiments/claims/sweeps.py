"""One picture for every sweep: a line for each model, a panel for each kind of data, intervals as bands."""

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from seqmodels.evaluation.plots import COLOURS, DASHES, GRID, INK, MUTED, WIDTH


def sweep_plot(
    frame: pd.DataFrame,
    x: str,
    y: str,
    by: str,
    *,
    title: str,
    x_label: str,
    y_label: str,
    panel: str | None = None,
    base: int | None = 10,
    band: bool = True,
) -> Figure:
    """``y`` against ``x``, a line for each value of ``by``, side by side for each value of ``panel``.

    Args:
        base: of the logarithmic x axis, all of whose values are marked; None: a linear one.
        band: draw ``ci_low`` to ``ci_high`` behind the lines.
    """
    panels = [None] if panel is None else list(dict.fromkeys(frame[panel]))
    names = list(dict.fromkeys(frame[by]))
    figure = Figure(figsize=(WIDTH if len(panels) == 1 else WIDTH * 1.35, 4.0), layout="constrained")
    figure.suptitle(title, x=0.01, ha="left", fontsize=10, fontweight="bold", color=INK)
    for i, value in enumerate(panels):
        axes = figure.add_subplot(1, len(panels), i + 1)
        shown = frame if value is None else frame[frame[panel] == value]
        _lines(axes, shown, x, y, by, names, band=band)
        _dressed(axes, sorted(set(shown[x])), base)
        axes.set_xlabel(x_label)
        axes.set_title("" if value is None else str(value), fontsize=9, loc="left", color=INK)
        if i == 0:
            axes.set_ylabel(y_label)
    handles = {line.get_label(): line for axes in figure.axes for line in axes.get_lines()}
    handles = {name: handles[name] for name in names}
    figure.legend(handles.values(), handles.keys(), loc="outside right upper", frameon=False, fontsize=9)
    return figure


def _lines(axes: Axes, frame: pd.DataFrame, x: str, y: str, by: str, names: Sequence[str], *, band: bool) -> None:
    for i, name in enumerate(names):
        rows = frame[frame[by] == name].sort_values(x)
        if rows.empty:
            continue
        colour = COLOURS[i % len(COLOURS)]
        axes.plot(rows[x], rows[y], color=colour, linestyle=DASHES[i // len(COLOURS)], marker="o", ms=3.5, label=name)
        if band and rows["ci_low"].notna().any():
            axes.fill_between(rows[x], rows["ci_low"], rows["ci_high"], color=colour, alpha=0.15, linewidth=0)


def _dressed(axes: Axes, values: Sequence[float], base: int | None) -> None:
    if base is not None:
        axes.set_xscale("log", base=base)
        axes.minorticks_off()
    axes.set_xticks(values, [_short(value) for value in values], fontsize=8)
    axes.tick_params(colors=INK, labelsize=8)
    axes.grid(color=GRID, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(MUTED)


def _short(value: float) -> str:
    """12, 1024, 4k, 65.5k, 1M."""
    for size, letter in ((1_000_000, "M"), (1_000, "k")):
        if value >= size and (value >= 10_000 or not value % size):
            return f"{value / size:.3g}{letter}"
    return f"{value:g}"
