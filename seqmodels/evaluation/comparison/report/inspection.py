"""The report's sections on single models: the hidden states of HMMs, and alignments of source and target steps."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from seqmodels.common.html import element
from seqmodels.encodings import Encoding
from seqmodels.encodings.examples import n_states_of
from seqmodels.encodings.text import encoded_steps
from seqmodels.evaluation.comparison.report.data import pair_of, scale_of, sequence_label, times_of
from seqmodels.evaluation.comparison.report.elements import Section, picture, table, together
from seqmodels.hmm import HMM
from seqmodels.hmm.alignment import AlignmentHMM
from seqmodels.model import SequenceModel
from seqmodels.neural import LSTMSeq2Seq, TransformerSeq2Seq
from seqmodels.plot import alignment
from seqmodels.plot.alignment_matrix import NULL
from seqmodels.plot.drawn_frames import runs
from seqmodels.plot.drawn_states import state_strip
from seqmodels.plot.style import COLOURS, in_style, new_axes
from seqmodels.sequences import Item, Sequences

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.figure import Figure

    from seqmodels.evaluation.comparison.comparison_data import ComparisonData

N_DECODED_UNITS = 4000  # number of units that are decoded, about
MAX_STEPS, MAX_FRAMES = 400, 400  # most steps of texts, and most frames of vectors, that are drawn
MAX_ROWS = 16  # most states in the table
N_SYMBOLS = 6  # most symbols that are listed for each state
MAX_TARGET_STEPS = 48  # most target steps of an alignment that are drawn
MAX_READABLE_STEPS = 30  # most steps of source and of target of the pair that is aligned, if there is such a pair
ALIGNMENT_HEIGHT = 4.5  # inches

# -- hidden states --------------------------------------------------------------------------------------------


def hidden_states(comparison: ComparisonData) -> Section | None:
    """Return the report's section on the states of every HMM with more than one state, or None if there is none."""
    hmms = {name: m for name, m in comparison.models.items() if isinstance(m, HMM) and len(m.initial_) > 1}
    data = decoded_part(comparison)
    if not hmms or data is None:
        return None
    sections = [_states_of(name, model, *data) for name, model in hmms.items()]
    rest = element("details", "The other HMMs", together(*sections[1:])) if len(sections) > 1 else None
    caption = "The most probable path of hidden states (Viterbi) through some of the test data."
    return Section("states", "Hidden states", together(element("paragraph", caption), sections[0], rest))


def decoded_part(comparison: ComparisonData) -> tuple[Sequences, Sequences | None] | None:
    """Return ``(X, y)`` of the first test sequences, about ``N_DECODED_UNITS`` units, whose hidden states are shown.

    A single long sequence is cut. ``y`` is None for p(x). Return None if the scores are of p(y | x) and the sources
    were not kept.
    """
    n_sequences = int(np.searchsorted(np.cumsum(comparison.test.n_units), N_DECODED_UNITS)) + 1
    if len(comparison.test) == 1 and not comparison.measure.conditional:
        return comparison.test.segments([(0, 0, N_DECODED_UNITS)], past=None), None
    return pair_of(comparison, np.arange(min(n_sequences, len(comparison.test))))


def _states_of(name: str, model: HMM, X: Sequences, y: Sequences | None) -> Markup:
    try:
        joint_paths = model.decode(X, y)
    except ValueError as error:  # a sequence may have no path of positive probability
        return element("paragraph", f"{name}: {error}")
    scored = X if y is None else y
    n_steps = [n_states_of(model.encoding_, item) for item in scored]
    # Of pairs a path runs through source and target, and its end belongs to the target.
    paths = [path[len(path) - n :] for path, n in zip(joint_paths, n_steps, strict=True)]
    visited = visits(paths)
    if scored.kind != "vectors":
        visited["stands for"] = _emitted(model, scored, paths, visited["state"].tolist())
    label = f"States of {name}, the {min(MAX_ROWS, len(visited))} most visited of {len(model.initial_)}"
    strip = _image(name, scored, paths) if scored.kind == "vectors" else coloured_steps_html(model, scored, paths)
    visited["share"] = [f"{share:.1%}" for share in visited["share"]]
    visited["mean duration"] = [f"{steps:.1f}" for steps in visited["mean duration"]]
    return together(element("heading", name), strip, element("paragraph", label, quiet=True), table(visited, label))


def visits(paths: list[np.ndarray]) -> pd.DataFrame:
    """Count how often and how long HMM states are visited; return a frame, the most visited state first.

    A visit is a run of steps in one state. The columns are ``state``, ``share`` (of all steps), ``mean duration`` and
    ``longest`` (visits in steps).

    Args:
        paths: decoded states of each sequence of T steps, ``(T,)``.
    """
    durations = [(state, end - first) for path in paths for first, end, state in runs(path)]
    frame = pd.DataFrame(durations, columns=["state", "steps"]).groupby("state")["steps"]
    table = frame.agg(["sum", "mean", "max"]).reset_index()
    table.columns = pd.Index(["state", "share", "mean duration", "longest"])
    table["share"] /= table["share"].sum()
    return table.sort_values("share", ascending=False, kind="stable").head(MAX_ROWS).reset_index(drop=True)


def _image(name: str, scored: Sequences, paths: list[np.ndarray]) -> Markup:
    """Return a picture of the sequence of median length above its hidden states.

    Args:
        name: name of the model.
        scored: the sequences.
        paths: states of each sequence of T steps, ``(T,)``.
    """
    i = int(np.argsort(scored.n_units, kind="stable")[len(scored) // 2])
    title = f"{name}: {sequence_label(scored, i)}"
    frames = np.asarray(scored.items[i][:MAX_FRAMES])
    path = paths[i][:MAX_FRAMES]
    scale, times = scale_of(scored), times_of(scored, i, 0, MAX_FRAMES)
    n_states = len(set(path.tolist()))
    alt = (
        f"The features of {title} over {len(frames)} frames, and under them its {n_states} hidden states in their order"
    )
    caption = f"{title}. Above: features in standard deviations; below: the state of each frame, colours repeat."
    return picture(lambda width: state_strip(frames, path, scale=scale, width=width, **times), alt, caption)


def coloured_steps_html(model: HMM, scored: Sequences, paths: list[np.ndarray]) -> Markup:
    """Return the first steps of the sequences as HTML, coloured by their hidden states.

    Args:
        model: the HMM.
        scored: the sequences.
        paths: states of each sequence of T steps, ``(T,)``.
    """
    separator = "" if scored.kind == "text" else " "
    steps_left = MAX_STEPS
    lines = []
    for item, path in zip(scored, paths, strict=True):
        if steps_left > 0:
            steps = encoded_steps(model.encoding_, item)[:steps_left]
            lines.append(_coloured_runs(steps, path[:steps_left], separator))
            steps_left -= len(path)
    n_shown = MAX_STEPS - max(steps_left, 0)
    caption = f"The first {n_shown} steps, coloured by state; colours repeat, point at a run for its number."
    return together(element("passage", lines, separator), element("paragraph", caption, quiet=True))


def _coloured_runs(steps: list[str], path: np.ndarray, separator: str) -> list[tuple[str, str, str]]:
    """Group steps into runs of the same hidden state; return the text, CSS class and tooltip of each run.

    Args:
        steps: text of each of T steps.
        path: state of each step, ``(T,)``.
        separator: text that joins the steps of a run.
    """
    return [
        (separator.join(steps[first:stop]), f"s{state % len(COLOURS)}", f"state {state}")
        for first, stop, state in runs(path)
    ]


def _emitted(model: HMM, scored: Sequences, paths: list[np.ndarray], states: list[int]) -> list[str]:
    """Return, for each of several hidden states, the steps that it emitted most often, with their shares, as text.

    Args:
        model: the HMM.
        scored: the sequences.
        paths: states of each sequence of T steps, ``(T,)``.
        states: the states.
    """
    counts: dict[int, Counter[str]] = {state: Counter() for state in states}
    for item, path in zip(scored, paths, strict=True):
        for step, state in zip(encoded_steps(model.encoding_, item), path.tolist(), strict=True):
            if state in counts:
                counts[state][step] += 1
    visible = {" ": "␣", "\n": "↵", "\t": "⇥"}
    lists = []
    for state in states:
        n_steps = sum(counts[state].values())
        common = counts[state].most_common(N_SYMBOLS)
        lists.append("  ".join(f"{visible.get(step, step)} {count / n_steps:.0%}" for step, count in common))
    return lists


# -- alignments -----------------------------------------------------------------------------------------------


def attention(comparison: ComparisonData) -> Section | None:
    """Return the report's section on alignments of one short test pair, by every model that aligns; None if none does.

    An alignment says how much each target step depends on each source step.
    """
    models = {name: model for name, model in comparison.models.items() if aligns(model)}
    if not models or comparison.source is None:
        return None
    index = readable_pair(comparison.source.n_units, comparison.test.n_units)
    data = pair_of(comparison, np.array([index]))
    assert data is not None
    alignments = [_alignment(name, model, *data) for name, model in models.items()]
    caption = (
        f"One test pair ({sequence_label(comparison.test, index)}): a row for each step of the target, with "
        "the more colour the more it looked there."
    )
    rest = element("details", "The other models", together(*alignments[1:])) if len(alignments) > 1 else None
    return Section("attention", "Attention", together(element("paragraph", caption), alignments[0], rest))


def readable_pair(sources: np.ndarray, targets: np.ndarray) -> int:
    """Return the index of the pair with the longest target among pairs of at most ``MAX_READABLE_STEPS`` steps.

    If no pair is that short, return the index of the shortest.

    Args:
        sources, targets: lengths of the sources and targets of n pairs, ``(n,)``.
    """
    longer = np.maximum(sources, targets)
    is_readable = longer <= MAX_READABLE_STEPS
    return int(np.argmax(np.where(is_readable, targets, -1)) if is_readable.any() else np.argmin(longer))


def aligns(model: SequenceModel) -> bool:
    """Return True if the model can align source and target; an encoder-decoder with one fixed context vector cannot."""
    if isinstance(model, LSTMSeq2Seq):
        return model.attention is not None
    return isinstance(model, (TransformerSeq2Seq, AlignmentHMM))


def _alignment(name: str, model: SequenceModel, X: Sequences, y: Sequences | None) -> Markup:
    assert isinstance(model, (LSTMSeq2Seq, TransformerSeq2Seq, AlignmentHMM))
    assert y is not None
    assert model.source_encoding_ is not None
    weights = model.align(X, y)[0][:MAX_TARGET_STEPS]
    source = _step_labels(model.source_encoding_, X.items[0])
    target = _step_labels(model.encoding_, y.items[0])
    if source is not None and weights.shape[1] > len(source):
        source = [*source, NULL]
    target = target and target[:MAX_TARGET_STEPS]
    peaks = ", ".join(map(str, weights.argmax(1)[:12].tolist()))
    alt = f"Alignment weights of {name}. The first target steps look most at source steps {peaks}, counted from 0"

    def draw(width: float) -> Figure:
        with in_style():
            figure, axes = new_axes(ALIGNMENT_HEIGHT, "", width)
        alignment(weights, source, target, full=float(weights.max()), ax=axes)
        return figure

    return picture(draw, alt, f"{name}: target steps downwards, source steps across.", invert=True)


def _step_labels(encoding: Encoding, item: Item) -> list[str] | None:
    """Return the label of each step of a sequence, or None for vectors, whose steps are numbered."""
    if encoding.reads == "vectors":
        return None
    return [{" ": "␣", "\n": "↵"}.get(piece, piece) for piece in encoded_steps(encoding, item)]
