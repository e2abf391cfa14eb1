"""What an HMM's hidden states stand for: the most probable path under the data, and how long states last."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from seqmodels.evaluation.report.data import named, pair_of, scale_of, spelled
from seqmodels.evaluation.report.html import Section, details, escape, paragraph, picture, table
from seqmodels.hmm import HMM
from seqmodels.sequences import Item, Sequences

if TYPE_CHECKING:
    from seqmodels.evaluation.comparison import Comparison

UNITS = 4000  # that are decoded, about
PASSAGE, FRAMES = 400, 400  # steps drawn of a text, frames of vectors
ROWS = 16  # states in the table
N_COLOURS = 7  # of the palette, as in ``style``
N_SYMBOLS = 6  # named for each state


def section(comparison: Comparison) -> Section | None:
    """Every HMM of more than one state."""
    hmms = {name: m for name, m in comparison.models.items() if isinstance(m, HMM) and len(m.initial_) > 1}
    some = decoded_part(comparison)
    if not hmms or some is None:
        return None
    drawn = [_drawn(name, model, *some) for name, model in hmms.items()]
    rest = [details("The other HMMs", "\n".join(drawn[1:]))] if len(drawn) > 1 else []
    words = "The most probable path of hidden states (Viterbi) through some of the test data."
    return Section("states", "Hidden states", "\n".join([paragraph(words), drawn[0], *rest]))


def decoded_part(comparison: Comparison) -> tuple[Sequences, Sequences | None] | None:
    """The first sequences that make up ``UNITS``; the head of a single long one."""
    first = int(np.searchsorted(np.cumsum(comparison.test.n_units), UNITS)) + 1
    if len(comparison.test) == 1 and not comparison.measure.conditional:
        return Sequences([comparison.test.items[0][:UNITS]]), None
    return pair_of(comparison, np.arange(min(first, len(comparison.test))))


def _drawn(name: str, model: HMM, X: Sequences, y: Sequences | None) -> str:
    try:
        joint = model.decode(X, y)
    except ValueError as error:  # no path can explain a sequence
        return paragraph(f"{name}: {error}")
    scored = X if y is None else y
    paths = [path[len(path) - _n_steps(model, item) :] for path, item in zip(joint, scored, strict=True)]
    show = _strip if scored.kind == "vectors" else _coloured
    found = visits(paths)
    if scored.kind != "vectors":
        found["stands for"] = _meanings(model, scored, paths, found["state"].tolist())
    label = f"States of {name}, the {min(ROWS, len(found))} most visited of {len(model.initial_)}"
    return (
        f"<h3>{escape(name)}</h3>"
        + show(name, model, scored, paths)
        + paragraph(label, quiet=True)
        + table(_shown(found), label)
    )


def _n_steps(model: HMM, item: Item) -> int:
    return len(model.encoding_.encode(item))


def visits(paths: list[np.ndarray]) -> pd.DataFrame:
    """A row a state, most visited first: ``state``, ``share`` of the steps, ``mean duration`` and ``longest`` (steps in a row)."""
    from seqmodels.evaluation.plots.frames import runs  # lazily: matplotlib is slow to import

    stretches = [(state, last - first) for path in paths for first, last, state in runs(path)]
    frame = pd.DataFrame(stretches, columns=["state", "steps"]).groupby("state")["steps"]
    table = frame.agg(["sum", "mean", "max"]).reset_index()
    table.columns = pd.Index(["state", "share", "mean duration", "longest"])
    table["share"] /= table["share"].sum()
    return table.sort_values("share", ascending=False, kind="stable").head(ROWS).reset_index(drop=True)


def _shown(found: pd.DataFrame) -> pd.DataFrame:
    shown = found.copy()
    shown["share"] = [f"{share:.1%}" for share in found["share"]]
    shown["mean duration"] = [f"{steps:.1f}" for steps in found["mean duration"]]
    return shown


def _strip(name: str, model: HMM, scored: Sequences, paths: list[np.ndarray]) -> str:
    from seqmodels.evaluation.plots import state_strip  # lazily: matplotlib is slow to import

    i = int(np.argsort(scored.n_units, kind="stable")[len(scored) // 2])
    title = f"{name}: {named(scored, i)}"
    frames, path = np.asarray(scored.items[i][:FRAMES]), paths[i][:FRAMES]
    figure = state_strip(frames, path, scale=scale_of(scored), title=title)
    alt = f"The features of {title} over {len(frames)} frames, and under them its {len(set(path.tolist()))} hidden states in their order"
    return picture(
        figure, alt, "Above: features in standard deviations; below: the state of each frame, colours repeat."
    )


def _coloured(name: str, model: HMM, scored: Sequences, paths: list[np.ndarray]) -> str:
    gap, left, lines = "" if scored.kind == "text" else " ", PASSAGE, []
    for item, path in zip(scored, paths, strict=True):
        if left > 0:
            lines.append(_line(spelled(model.encoding_, item)[:left], path[:left], gap))
            left -= len(path)
    words = f"The first {PASSAGE - max(left, 0)} steps, coloured by state; colours repeat, point at a stretch for its number."
    return f'<p class="passage">{"<br>".join(lines)}</p>' + paragraph(words, quiet=True)


def _line(pieces: list[str], path: np.ndarray, gap: str) -> str:
    return gap.join(
        f'<span class="s{state % N_COLOURS}" title="state {state}">{escape(piece)}</span>'
        for piece, state in _stretches(pieces, path, gap)
    )


def _stretches(pieces: list[str], path: np.ndarray, gap: str) -> list[tuple[str, int]]:
    from seqmodels.evaluation.plots.frames import runs  # lazily: matplotlib is slow to import

    return [(gap.join(pieces[first:last]), state) for first, last, state in runs(path)]


def _meanings(model: HMM, scored: Sequences, paths: list[np.ndarray], states: list[int]) -> list[str]:
    """For each state what it most often emitted, with shares."""
    counts: dict[int, Counter[str]] = {state: Counter() for state in states}
    for item, path in zip(scored, paths, strict=True):
        for piece, state in zip(spelled(model.encoding_, item), path.tolist(), strict=True):
            if state in counts:
                counts[state][piece] += 1
    return [_named(counts[state]) for state in states]


def _named(counter: Counter[str]) -> str:
    total = sum(counter.values())
    return "  ".join(f"{_visible(piece)} {n / total:.0%}" for piece, n in counter.most_common(N_SYMBOLS))


def _visible(piece: str) -> str:
    return {" ": "␣", "\n": "↵", "\t": "⇥"}.get(piece, piece)
