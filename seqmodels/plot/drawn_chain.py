"""Drawing of a Markov chain of hidden states: its transitions as a graph or matrix, and its durations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, FancyArrowPatch
from matplotlib.path import Path
from matplotlib.ticker import MaxNLocator

from seqmodels.plot.drawn_states import colour_bar
from seqmodels.plot.style import INK, MUTED, figure_of, ink_on, shades, short, state_colour, width_of

MAX_NODES = 12  # the most states that are drawn as a graph; more are drawn as a matrix
MAX_TICKS = 40  # the most names beside a matrix; if there are more states, some names are left out
RADIUS = 0.11, 0.26  # radius of a node without visits, and of one with all visits, in a graph of radius 1
BEND = 0.12  # bend of an arrow as a share of its length, so that the two between a pair of states are apart
PLACES = 0.38, 0.3, 0.46, 0.54, 0.24, 0.62, 0.7  # where along an arrow its probability may stand, best first
SIZE = 8.5  # font size in points


def draw_graph(
    ax: Axes, transition: np.ndarray, final: np.ndarray, share: np.ndarray, names: Sequence[str], threshold: float
) -> None:
    """Draw the hidden states as nodes on a circle, with arrows between them and their transition probabilities.

    Beside a node stand the state's name, its share of the steps, and its probabilities of staying and of ending.

    Args:
        ax: the axes to draw on.
        transition: transition probabilities of K states, shape ``(K, K)``.
        final: probabilities of ending after each state, shape ``(K,)``.
        share: share of the steps in each state, shape ``(K,)``; the area of a node grows with it.
        names: names of the K states.
        threshold: an arrow is drawn if its share of all ways to leave its state, another state or the end, is at least
            this.
    """
    k = len(names)
    reach = 1.05 + RADIUS[1]
    ax.set(aspect="equal", xlim=(-reach, reach), ylim=(-reach, reach) if k > 2 else (-0.5, 0.5))
    ax.axis("off")
    angles = np.pi - 2 * np.pi * np.arange(k) / k
    centres = (1.0 if k > 1 else 0.0) * np.stack([np.cos(angles), np.sin(angles)], axis=1)  # (K, 2)
    radius = min(1.0, 8 / k) * np.sqrt(RADIUS[0] ** 2 + (RADIUS[1] ** 2 - RADIUS[0] ** 2) * share)
    for state, name in enumerate(names):
        ax.add_patch(Circle(tuple(centres[state]), radius[state], facecolor=state_colour(state), zorder=3, gid="state"))
        number: Any = {"color": ink_on(state), "fontsize": SIZE, "fontweight": "bold", "zorder": 4}
        ax.text(centres[state, 0], centres[state, 1], str(state), ha="center", va="center", **number)
        facts = _facts(share[state], transition[state, state], final[state])
        _describe(ax, centres[state], radius[state], short(name), facts)
    nodes = np.column_stack([centres, 2 * radius, 2 * radius])
    leaving = transition * ~np.eye(k, dtype=bool)
    with np.errstate(invalid="ignore"):  # because a state that is never left gives 0 / 0
        leaving = np.nan_to_num(leaving / (leaving.sum(axis=1, keepdims=True) + final[:, None]))
    arrows = np.argwhere((leaving > 0) & (leaving >= threshold)).tolist()
    curves = [_curve(centres[i], centres[j], radius[i], radius[j]) for i, j in arrows]
    for (i, j), curve in zip(arrows, curves, strict=True):
        _draw_arrow(ax, curve, float(leaving[i, j]))
    probabilities = [in_digits(float(transition[i, j])) for i, j in arrows]
    _draw_probabilities(ax, curves, probabilities, SIZE * min(1.0, 9 / k), nodes)
    if ((leaving > 0) & (leaving < threshold)).any():
        left_out = f"left out: less than {threshold:.0%} of the times that a state is left"
        ax.annotate(
            left_out, (0, 0), (0, -3.2 * SIZE), "axes fraction", "offset points", fontsize=SIZE, color=MUTED,
            annotation_clip=False, gid="note",
        )  # fmt: skip


def _describe(ax: Axes, centre: np.ndarray, radius: float, name: str, facts: str) -> None:
    """Write the name of a state, and a line of text about it, beside its node on the outside of the circle of states.

    Args:
        ax: the axes to write on.
        centre: centre of the node, shape ``(2,)``.
        radius: radius of the node.
        name: name of the state.
        facts: the line of text, such as its share of the steps.
    """
    distance = float(np.linalg.norm(centre))
    x_out, y_out = centre / distance if distance else (0.0, -1.0)
    at = (centre[0] + (radius + 0.06) * x_out, centre[1] + (radius + 0.06) * y_out)
    ha = "center" if abs(x_out) < 0.35 else "left" if x_out > 0 else "right"
    line = 1.25 * SIZE
    styles: tuple[Any, Any] = {"fontweight": "bold", "color": INK}, {"color": MUTED}
    for row, (text, style) in enumerate(zip((name, facts), styles, strict=True)):
        offset = line * (y_out + 0.5 - row)  # at the top of the circle the text is above its point, at the bottom below
        ax.annotate(
            text, at, (0, offset), textcoords="offset points", ha=ha, va="center", fontsize=SIZE,
            annotation_clip=False, gid="about", **style,
        )  # fmt: skip


def _facts(share: float, stay: float, final: float) -> str:
    return f"{share:.0%} of steps, stays {in_digits(stay)}" + (f", ends {in_digits(final)}" if final > 0 else "")


def _curve(start: np.ndarray, end: np.ndarray, r_start: float, r_end: float) -> np.ndarray:
    """Return an arrow between two nodes as the control points of a quadratic Bézier curve, shape ``(3, 2)``.

    It bends to its left and ends at the rims of the nodes.

    Args:
        start: centre of the node that the arrow leaves, shape ``(2,)``.
        end: centre of the node that it points to, shape ``(2,)``.
        r_start: radius of the first node.
        r_end: radius of the second node.
    """
    along = (end - start) / np.linalg.norm(end - start)
    left = np.array([-along[1], along[0]])
    first = start + r_start * (0.9 * along + 0.43 * left)
    last = end + r_end * (-0.9 * along + 0.43 * left) - 0.015 * along
    control = (first + last) / 2 + BEND * np.linalg.norm(last - first) * left
    return np.stack([first, control, last])


def _draw_arrow(ax: Axes, curve: np.ndarray, share: float) -> None:
    """Draw the arrow of a transition between hidden states.

    Args:
        ax: the axes to draw on.
        curve: control points of its quadratic Bézier curve, ``(3, 2)``.
        share: share of the transition among all ways to leave its state; the arrow is wider the larger it is.
    """
    path = Path(curve, [Path.MOVETO, Path.CURVE3, Path.CURVE3])
    style: Any = {"arrowstyle": "-|>", "mutation_scale": 9, "linewidth": 0.6 + 1.6 * share, "color": MUTED}
    ax.add_patch(FancyArrowPatch(path=path, zorder=2, gid="transition", **style))


def _draw_probabilities(
    ax: Axes, curves: Sequence[np.ndarray], texts: Sequence[str], size: float, covered: np.ndarray
) -> None:
    """Write each transition probability on its arrow, where nodes and other probabilities cover it least.

    Args:
        ax: the axes to draw on.
        curves: control points of each arrow, shape ``(3, 2)``.
        texts: the probability of each arrow as text.
        size: font size in points.
        covered: centre, width and height of the node of each of K states, shape ``(K, 4)``.
    """
    box = ax.get_position()
    width, height = figure_of(ax).get_size_inches() * 72 * (box.width, box.height)
    per_point = max(np.ptp(ax.get_xlim()) / width, np.ptp(ax.get_ylim()) / height)
    for curve, text in zip(curves, texts, strict=True):
        room = np.array([width_of(text, size) + 3, 1.1 * size]) * per_point
        f = np.array(PLACES)[:, None]
        places = (1 - f) ** 2 * curve[0] + 2 * f * (1 - f) * curve[1] + f**2 * curve[2]
        apart = np.abs(places[:, None] - covered[:, :2])  # (places, boxes, 2)
        overlap = ((room + covered[:, 2:]) / 2 - apart).clip(min=0).prod(axis=2).sum(axis=1)
        at = places[int(overlap.argmin())]
        covered = np.vstack([covered, [*at, *room]])
        patch = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
        ax.text(at[0], at[1], text, ha="center", va="center", fontsize=size, color=INK, bbox=patch, zorder=2.5, gid="p")


def draw_matrix(ax: Axes, transition: np.ndarray, names: Sequence[str]) -> None:
    """Draw transition probabilities between hidden states as an image.

    Its darkness is the square root of the probability, so that rare transitions are visible too.

    Args:
        ax: the axes to draw on.
        transition: transition probabilities of K states, row by row, shape ``(K, K)``.
        names: names of the K states.
    """
    k = len(names)
    image = ax.imshow(transition, cmap=shades(), norm=PowerNorm(0.5, vmin=0, vmax=1), interpolation="nearest")
    every = -(-k // MAX_TICKS)
    ax.set_xticks(range(0, k, every), names[::every], rotation=90 if max(map(len, names)) > 2 else 0)
    ax.set_yticks(range(0, k, every), names[::every])
    ax.tick_params(labelsize=0.8 * SIZE)
    ax.set(xlabel="to state", ylabel="from state")
    ax.grid(visible=False)
    colour_bar(ax, image, "probability")


def draw_survival(ax: Axes, observed: Mapping[int, np.ndarray], fitted: np.ndarray, names: Sequence[str]) -> None:
    """Draw the share of visits to each hidden state that last at least d steps, against d, on a logarithmic axis.

    The durations of an HMM are geometric and give straight lines.

    Args:
        ax: the axes to draw on.
        observed: for each state, the share of its visits in the data that last at least 1, 2, ... steps; drawn as a
            full line.
        fitted: the same shares under the model, for K states and 1 to L steps, shape ``(K, L)``; drawn dashed.
        names: names of the K states.
    """
    longest = max(len(shares) for shares in observed.values())
    lowest = min(float(shares[shares > 0].min()) for shares in observed.values())
    for state, shares in observed.items():
        colour = state_colour(state)
        d = np.arange(1, len(shares) + 1)
        positive = shares > 0
        ax.step(d[positive], shares[positive], where="mid", color=colour, label=short(names[state]), gid="observed")
        expected, steps = fitted[state], np.arange(1, longest + 1)
        lasts = expected > 0
        ax.plot(steps[lasts], expected[lasts], color=colour, linestyle=(0, (4, 2)), linewidth=1, gid="fitted")
    ax.set(yscale="log", ylim=(0.7 * lowest, 1.25), xlim=(0.5, longest + 0.5))
    ax.yaxis.set_major_formatter(lambda p, _: f"{p:g}")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set(xlabel="duration d (steps)", ylabel="share of visits of at least d steps")
    handles, _ = ax.get_legend_handles_labels()
    dashed = Line2D([], [], color=MUTED, linestyle=(0, (4, 2)), linewidth=1, label="as fitted")
    ax.legend(
        handles=[*handles, dashed], title="state", frameon=False, fontsize=SIZE, loc="upper left",
        bbox_to_anchor=(1.005, 1.0), borderaxespad=0,
    )  # fmt: skip


def in_digits(p: float) -> str:
    """Return a probability as text with two or three digits, never rounded to 0 or 1.

    >>> in_digits(0.25), in_digits(0.0123), in_digits(0.00042), in_digits(0.9996), in_digits(1.0)
    ('0.25', '0.012', '4.2e-04', '>0.999', '1')
    """
    if p in (0, 1):
        return f"{p:.0f}"
    if p < 0.001:
        return f"{p:.1e}"
    if p > 0.999:
        return ">0.999"
    return f"{p:.2f}" if 0.1 <= p <= 0.99 else f"{p:.3f}"
