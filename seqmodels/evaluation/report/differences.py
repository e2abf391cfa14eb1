"""Where two models differ most: text coloured step by step, or vectors with the difference under them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from seqmodels.evaluation.report.data import by_piece, named, pieces, scale_of
from seqmodels.evaluation.report.html import Section, details, escape, number, paragraph, picture
from seqmodels.sequences import Item

if TYPE_CHECKING:
    from seqmodels.evaluation.comparison import Comparison

PASSAGE = 240  # characters, or symbols
SHOWN, MORE = 4, 8  # passages open, and folded away
SHOWN_FRAMES, STRETCH = 3, 400  # images of vectors, and their frames at most
MOST = 50.0  # nats of one step
LEVELS = (0.1, 0.7, 1.6, 3.0)  # nats from which a step is coloured more strongly


@dataclass(frozen=True)
class Passage:
    """A stretch of one test sequence: its pieces and what two models gave each, nats."""

    name: str
    first: int
    pieces: list[str]
    ours: np.ndarray
    theirs: np.ndarray

    @property
    def difference(self) -> np.ndarray:
        """Ours minus theirs."""
        return bounded(self.ours, self.theirs)

    @property
    def total(self) -> float:
        return float(self.difference.sum())


def section(comparison: Comparison) -> Section | None:
    """The best model against the baseline (or the runner-up, where the baseline is best)."""
    names = compared(comparison)
    if names is None:
        return None
    body = _vectors(comparison, *names) if comparison.test.kind == "vectors" else _text(comparison, *names)
    return Section("differences", f"Where {names[0]} and {names[1]} differ", body)


def compared(comparison: Comparison) -> tuple[str, str] | None:
    """The two models; None if there is only one."""
    frame = comparison.frame
    reference = frame.attrs["iid"] if frame.attrs.get("iid_added") else None
    ranked = frame.loc[frame["rank"].notna() & (frame["model"] != reference), "model"].tolist()
    if len(ranked) < 2:
        return None
    return ranked[0], comparison.baseline if ranked[0] != comparison.baseline else ranked[1]


def bounded(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """Ours minus theirs, nats, at most ``MOST`` either way: what one model thought impossible is no infinite lead here."""
    both = np.isneginf(ours) & np.isneginf(theirs)
    return np.clip(np.where(both, 0.0, ours) - np.where(both, 0.0, theirs), -MOST, MOST)


# -- text and symbols -----------------------------------------------------------------------------------------


def _text(comparison: Comparison, ours: str, theirs: str) -> str:
    found = passages(comparison, ours, theirs)[: SHOWN + MORE]
    drawn = [_drawn(p, ours, theirs) for p in found]
    what = "character" if comparison.test.kind == "text" else "symbol"
    words = (
        f"The test data cut into passages of {PASSAGE} {what}s, those first on which the two models differ most. Every {what} is "
        "coloured by the difference of its log-probability; point at one for the figures."
    )
    rest = details(f"{len(drawn) - SHOWN} more passages", "\n".join(drawn[SHOWN:])) if len(drawn) > SHOWN else ""
    return "\n".join([paragraph(words), _legend(ours, theirs), *drawn[:SHOWN], rest])


def passages(comparison: Comparison, ours: str, theirs: str) -> list[Passage]:
    """All passages of the test data, those with the largest difference (in nats, either way) first."""
    steps, found = comparison.log_prob_steps, []
    test = comparison.test
    for i, (item, a, b) in enumerate(zip(test, steps[ours], steps[theirs], strict=True)):
        found += _cut(named(test, i), item, by_piece(item, a), by_piece(item, b))
    return sorted(found, key=lambda passage: -abs(passage.total))


def _cut(name: str, item: Item, ours: np.ndarray, theirs: np.ndarray) -> list[Passage]:
    shown = pieces(item)
    return [
        Passage(name, t, shown[t : t + PASSAGE], ours[t : t + PASSAGE], theirs[t : t + PASSAGE])
        for t in range(0, len(shown), PASSAGE)
    ]


def _legend(ours: str, theirs: str) -> str:
    blue = "".join(f'<span class="b{i + 1}">{low:g}</span>' for i, low in enumerate(LEVELS))
    orange = "".join(f'<span class="w{i + 1}">{low:g}</span>' for i, low in enumerate(LEVELS))
    return f'<p class="legend quiet">Nats from which: {blue} {escape(ours)} better (blue); {orange} {escape(theirs)} better (orange)</p>'


def _drawn(passage: Passage, ours: str, theirs: str) -> str:
    better, last = (ours if passage.total > 0 else theirs), passage.first + len(passage.pieces)
    whole = passage.first == 0 and len(passage.pieces) < PASSAGE
    where = passage.name if whole else f"{passage.name}, {passage.first + 1:,} to {last:,}"
    head = f"{where}: {better} ahead by {abs(passage.total):.1f} nats"
    gap = "" if all(len(piece) == 1 for piece in passage.pieces) else " "
    spans = gap.join(
        _span(*step, ours, theirs)
        for step in zip(passage.pieces, passage.ours, passage.theirs, passage.difference, strict=True)
    )
    return f'<h3>{escape(head)}</h3>\n<p class="passage">{spans}</p>'


def _span(piece: str, a: float, b: float, difference: float, ours: str, theirs: str) -> str:
    level = int(np.searchsorted(LEVELS, abs(difference), side="right"))
    shown = escape({"\n": "↵\n", "\t": "⇥\t"}.get(piece, piece))
    if not level:
        return shown
    title = f"{ours} {number(a, '.2f')}, {theirs} {number(b, '.2f')}: {number(difference, '+.2f')} nats"
    return f'<span class="{"b" if difference > 0 else "w"}{level}" title="{escape(title)}">{shown}</span>'


# -- vectors --------------------------------------------------------------------------------------------------


def _vectors(comparison: Comparison, ours: str, theirs: str) -> str:
    drawn = [
        _image(comparison, *stretch, ours, theirs) for stretch in stretches(comparison, ours, theirs)[:SHOWN_FRAMES]
    ]
    words = "The test sequences on which the two models differ most, and the frames where they do."
    return "\n".join([paragraph(words), *drawn])


def stretches(comparison: Comparison, ours: str, theirs: str) -> list[tuple[int, int, np.ndarray]]:
    """``(sequence, first frame, differences)`` of all stretches of at most ``STRETCH`` frames, the largest total first."""
    steps, lengths = comparison.log_prob_steps, comparison.test.n_units
    found = [
        (i, t, bounded(a[t : min(t + STRETCH, n)], b[t : min(t + STRETCH, n)]))
        for i, (a, b, n) in enumerate(zip(steps[ours], steps[theirs], lengths, strict=True))
        for t in range(0, int(n), STRETCH)
    ]
    return sorted(found, key=lambda stretch: -abs(float(stretch[2].sum())))


def _image(comparison: Comparison, i: int, first: int, difference: np.ndarray, ours: str, theirs: str) -> str:
    from seqmodels.evaluation.plots import frame_differences  # lazily: matplotlib is slow to import

    frames, total = np.asarray(comparison.test.items[i][first : first + STRETCH]), float(difference.sum())
    name = named(comparison.test, i) + (f", from frame {first}" if first else "")
    title = f"{name}: {ours if total > 0 else theirs} ahead by {abs(total):.1f} nats"
    scale = scale_of(comparison.test)
    figure = frame_differences(frames, difference, scale=scale, better=ours, worse=theirs, title=title)
    alt = f"{frames.shape[1]} features over {len(frames)} frames, and under them the difference of log-probability; {title}"
    return picture(figure, alt, f"{title}. Above: features in standard deviations; below: {ours} minus {theirs}.")
