"""The hidden states of HMMs: the most probable path under the data, how long states last and what they emit."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from seqmodels.evaluation.report.data import encoded_steps, pair_of, scale_of, sequence_label
from seqmodels.evaluation.report.html import Section, details, escape, paragraph, picture, table
from seqmodels.hmm import HMM
from seqmodels.sequences import Sequences

if TYPE_CHECKING:
    from seqmodels.evaluation.comparison import Comparison

N_DECODED_UNITS = 4000  # about
MAX_STEPS, MAX_FRAMES = 400, 400  # of a text, and of vectors, that are drawn
MAX_ROWS = 16  # states in the table
N_COLOURS = 7  # of the style sheet's classes s0 to s6
N_SYMBOLS = 6  # that are listed for each state


def section(comparison: Comparison) -> Section | None:
    """The states of every HMM with more than one."""
    hmms = {name: m for name, m in comparison.models.items() if isinstance(m, HMM) and len(m.initial_) > 1}
    data = decoded_part(comparison)
    if not hmms or data is None:
        return None
    each = [_states_of(name, model, *data) for name, model in hmms.items()]
    rest = [details("The other HMMs", "\n".join(each[1:]))] if len(each) > 1 else []
    words = "The most probable path of hidden states (Viterbi) through some of the test data."
    return Section("states", "Hidden states", "\n".join([paragraph(words), each[0], *rest]))


def decoded_part(comparison: Comparison) -> tuple[Sequences, Sequences | None] | None:
    """The first sequences that have ``N_DECODED_UNITS`` together; the head of a single long one."""
    n = int(np.searchsorted(np.cumsum(comparison.test.n_units), N_DECODED_UNITS)) + 1
    if len(comparison.test) == 1 and not comparison.measure.conditional:
        return Sequences([comparison.test.items[0][:N_DECODED_UNITS]]), None
    return pair_of(comparison, np.arange(min(n, len(comparison.test))))


def _states_of(name: str, model: HMM, X: Sequences, y: Sequences | None) -> str:
    try:
        joint_paths = model.decode(X, y)
    except ValueError as error:  # no path can explain a sequence
        return paragraph(f"{name}: {error}")
    scored = X if y is None else y
    n_steps = [len(model.encoding_.encode(item)) for item in scored]
    paths = [path[len(path) - n :] for path, n in zip(joint_paths, n_steps, strict=True)]
    visited = visits(paths)
    if scored.kind != "vectors":
        visited["stands for"] = _emitted(model, scored, paths, visited["state"].tolist())
    label = f"States of {name}, the {min(MAX_ROWS, len(visited))} most visited of {len(model.initial_)}"
    strip = _image(name, scored, paths) if scored.kind == "vectors" else _coloured(model, scored, paths)
    visited["share"] = [f"{share:.1%}" for share in visited["share"]]
    visited["mean duration"] = [f"{steps:.1f}" for steps in visited["mean duration"]]
    return f"<h3>{escape(name)}</h3>{strip}{paragraph(label, quiet=True)}{table(visited, label)}"


def visits(paths: list[np.ndarray]) -> pd.DataFrame:
    """For each state ``share`` of the steps, ``mean duration`` and ``longest`` visit in steps; most visited first."""
    from seqmodels.evaluation.plots.frames import runs

    durations = [(state, end - first) for path in paths for first, end, state in runs(path)]
    frame = pd.DataFrame(durations, columns=["state", "steps"]).groupby("state")["steps"]
    table = frame.agg(["sum", "mean", "max"]).reset_index()
    table.columns = pd.Index(["state", "share", "mean duration", "longest"])
    table["share"] /= table["share"].sum()
    return table.sort_values("share", ascending=False, kind="stable").head(MAX_ROWS).reset_index(drop=True)


def _image(name: str, scored: Sequences, paths: list[np.ndarray]) -> str:
    """The sequence of median length over its states."""
    from seqmodels.evaluation.plots.frames import state_strip

    i = int(np.argsort(scored.n_units, kind="stable")[len(scored) // 2])
    title = f"{name}: {sequence_label(scored, i)}"
    frames = np.asarray(scored.items[i][:MAX_FRAMES])
    path = paths[i][:MAX_FRAMES]
    figure = state_strip(frames, path, scale=scale_of(scored), title=title)
    n_states = len(set(path.tolist()))
    alt = (
        f"The features of {title} over {len(frames)} frames, and under them its {n_states} hidden states in their order"
    )
    caption = "Above: features in standard deviations; below: the state of each frame, colours repeat."
    return picture(figure, alt, caption)


def _coloured(model: HMM, scored: Sequences, paths: list[np.ndarray]) -> str:
    """The first steps of the sequences, coloured by state."""
    gap = "" if scored.kind == "text" else " "
    left = MAX_STEPS
    lines = []
    for item, path in zip(scored, paths, strict=True):
        if left > 0:
            lines.append(_coloured_line(encoded_steps(model.encoding_, item)[:left], path[:left], gap))
            left -= len(path)
    n = MAX_STEPS - max(left, 0)
    words = f"The first {n} steps, coloured by state; colours repeat, point at a run for its number."
    return f'<p class="passage">{"<br>".join(lines)}</p>' + paragraph(words, quiet=True)


def _coloured_line(steps: list[str], path: np.ndarray, gap: str) -> str:
    from seqmodels.evaluation.plots.frames import runs

    return gap.join(
        f'<span class="s{state % N_COLOURS}" title="state {state}">{escape(gap.join(steps[first:end]))}</span>'
        for first, end, state in runs(path)
    )


def _emitted(model: HMM, scored: Sequences, paths: list[np.ndarray], states: list[int]) -> list[str]:
    """For each state the steps that it most often emitted, with shares."""
    counts: dict[int, Counter[str]] = {state: Counter() for state in states}
    for item, path in zip(scored, paths, strict=True):
        for step, state in zip(encoded_steps(model.encoding_, item), path.tolist(), strict=True):
            if state in counts:
                counts[state][step] += 1
    visible = {" ": "␣", "\n": "↵", "\t": "⇥"}
    lists = []
    for state in states:
        total = sum(counts[state].values())
        common = counts[state].most_common(N_SYMBOLS)
        lists.append("  ".join(f"{visible.get(step, step)} {n / total:.0%}" for step, n in common))
    return lists
