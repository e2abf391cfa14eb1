"""The report's section on where two models differ most: coloured text, or vectors with the difference below them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from seqmodels.common.html import element
from seqmodels.evaluation.comparison.report.data import (
    readable_nats,
    readable_steps,
    scale_of,
    sequence_label,
    times_of,
)
from seqmodels.evaluation.comparison.report.elements import Section, number, picture, together
from seqmodels.plot.drawn_frames import frame_differences

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.figure import Figure

    from seqmodels.evaluation.comparison.comparison_data import ComparisonData

PASSAGE_LENGTH = 240  # characters, or symbols
N_OPEN, N_FOLDED = 4, 8  # number of passages that are shown at once, and that are folded away
N_IMAGES, IMAGE_FRAMES = 3, 400  # number of images of vectors, and most frames of each
MAX_DIFFERENCE = 50.0  # bound of the difference at one step, in nats
COLOUR_LEVELS = (0.1, 0.7, 1.6, 3.0)  # differences in nats from which a step is coloured more strongly


@dataclass(frozen=True)
class Passage:
    """A part of one test sequence, with its log-probability under two models.

    Attributes:
        sequence: label of the sequence.
        start: its first step in the sequence, from 0.
        steps: its steps as text.
        nats_a, nats_b: log-probability of each step under model a and model b, in nats.
    """

    sequence: str
    start: int
    steps: list[str]
    nats_a: np.ndarray
    nats_b: np.ndarray

    @property
    def difference(self) -> np.ndarray:
        """Log-probability under model a minus that under model b, in nats for each step."""
        return bounded_difference(self.nats_a, self.nats_b)

    @property
    def total(self) -> float:
        """Difference of the log-probabilities under model a and model b, summed over the steps."""
        return float(self.difference.sum())


def section(comparison: ComparisonData) -> Section | None:
    """Return the report's section on the steps where the best model differs most from the baseline in log-probability.

    If the best model is the baseline, it is compared with the second. Return None if fewer than two models have a rank.
    """
    names = two_models(comparison)
    return None if names is None else _section_of(comparison, "differences", *names)


def runner_up_section(comparison: ComparisonData) -> Section | None:
    """Return the report's section on where the best model differs most from the second.

    Return None if ``section`` is on the same two models, or if fewer than two have a rank.
    """
    ranked = comparison.ranked
    if len(ranked) < 2 or two_models(comparison) == (ranked[0], ranked[1]):
        return None
    return _section_of(comparison, "differences-second", ranked[0], ranked[1])


def _section_of(comparison: ComparisonData, anchor: str, a: str, b: str) -> Section:
    body = _vectors(comparison, a, b) if comparison.test.kind == "vectors" else _text(comparison, a, b)
    return Section(anchor, f"Where {a} and {b} differ", body)


def two_models(comparison: ComparisonData) -> tuple[str, str] | None:
    """Return the names of the best model and of the baseline, or of the second if the best is the baseline.

    Return None if fewer than two models have a rank.
    """
    ranked = comparison.ranked
    if len(ranked) < 2:
        return None
    return ranked[0], comparison.baseline if ranked[0] != comparison.baseline else ranked[1]


def bounded_difference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return ``a - b``, clipped to ``±MAX_DIFFERENCE``, so that no difference of log-probabilities is infinite.

    The difference is 0.0 where both are -inf.

    Args:
        a, b: log-probabilities of T steps in nats, ``(T,)``.
    """
    both = np.isneginf(a) & np.isneginf(b)
    difference = np.where(both, 0.0, a) - np.where(both, 0.0, b)
    bounded: np.ndarray = np.clip(difference, -MAX_DIFFERENCE, MAX_DIFFERENCE)
    return bounded


# -- text and symbols -----------------------------------------------------------------------------------------


def _text(comparison: ComparisonData, a: str, b: str) -> Markup:
    drawn = [_coloured(passage, a, b) for passage in passages(comparison, a, b)[: N_OPEN + N_FOLDED]]
    what = "character" if comparison.test.kind == "text" else "symbol"
    words = (
        f"The test data cut into passages of {PASSAGE_LENGTH} {what}s, those first on which the two models differ "
        f"most. Every {what} is coloured by the difference of its log-probability; point at one for the figures."
    )
    folded = drawn[N_OPEN:]
    return together(
        element("paragraph", words),
        element("legend", [f"{level:g}" for level in COLOUR_LEVELS], a, b),
        *drawn[:N_OPEN],
        element("details", f"{len(folded)} more passages", together(*folded)) if folded else None,
    )


def passages(comparison: ComparisonData, a: str, b: str) -> list[Passage]:
    """Cut the test texts into passages and return them, the largest difference between two models first.

    Args:
        comparison: the comparison.
        a, b: names of the two models.
    """
    test = comparison.test
    each_a, each_b = (comparison.log_prob_steps[name] for name in (a, b))
    every_passage = []
    for i, item in enumerate(test):
        label = sequence_label(test, i)
        steps = readable_steps(item)
        nats_a, nats_b = (readable_nats(item, each[i]) for each in (each_a, each_b))
        for start in range(0, len(steps), PASSAGE_LENGTH):
            part = slice(start, start + PASSAGE_LENGTH)
            every_passage.append(Passage(label, start, steps[part], nats_a[part], nats_b[part]))
    return sorted(every_passage, key=lambda passage: -abs(passage.total))


def _coloured(passage: Passage, a: str, b: str) -> Markup:
    """Return a passage as HTML with a heading, each step coloured by the difference of two models, with a tooltip.

    Args:
        passage: part of a test sequence.
        a, b: names of the two models.
    """
    better = a if passage.total > 0 else b
    end = passage.start + len(passage.steps)
    is_whole = passage.start == 0 and len(passage.steps) < PASSAGE_LENGTH
    where = passage.sequence if is_whole else f"{passage.sequence}, {passage.start + 1:,} to {end:,}"
    heading = f"{where}: {better} ahead by {abs(passage.total):.1f} nats"
    gap = "" if all(len(step) == 1 for step in passage.steps) else " "
    runs = []
    for step, nats_a, nats_b, difference in zip(
        passage.steps, passage.nats_a, passage.nats_b, passage.difference, strict=True
    ):
        level = int(np.searchsorted(COLOUR_LEVELS, abs(difference), side="right"))
        title = f"{a} {number(nats_a, '.2f')}, {b} {number(nats_b, '.2f')}: {number(difference, '+.2f')} nats"
        colour = f"{'b' if difference > 0 else 'w'}{level}" if level else ""
        runs.append(({"\n": "↵\n", "\t": "⇥\t"}.get(step, step), colour, title))
    return together(element("heading", heading), element("passage", [runs], gap))


# -- vectors --------------------------------------------------------------------------------------------------


def _vectors(comparison: ComparisonData, a: str, b: str) -> Markup:
    images = [_image(comparison, clip, a, b) for clip in clips(comparison, a, b)[:N_IMAGES]]
    words = "The test sequences on which the two models differ most, and the frames where they do."
    return together(element("paragraph", words), *images)


@dataclass(frozen=True)
class Clip:
    """Some frames of one test sequence, with the difference of two models on each.

    Attributes:
        sequence: index of the sequence.
        start: its first frame in the sequence, from 0.
        difference: log-probability of each frame under model a minus that under model b, in nats.
    """

    sequence: int
    start: int
    difference: np.ndarray


def clips(comparison: ComparisonData, a: str, b: str) -> list[Clip]:
    """Cut the test sequences of vectors into clips of at most ``IMAGE_FRAMES`` frames and return them all.

    Clips with the largest total difference between two models, either way, come first.

    Args:
        comparison: the comparison.
        a, b: names of the two models.
    """
    each_a, each_b = (comparison.log_prob_steps[name] for name in (a, b))
    every_clip = []
    for i, n in enumerate(comparison.test.n_units):
        for start in range(0, int(n), IMAGE_FRAMES):
            part = slice(start, min(start + IMAGE_FRAMES, n))
            every_clip.append(Clip(i, start, bounded_difference(each_a[i][part], each_b[i][part])))
    return sorted(every_clip, key=lambda clip: -abs(float(clip.difference.sum())))


def _image(comparison: ComparisonData, clip: Clip, a: str, b: str) -> Markup:
    test = comparison.test
    frames = np.asarray(test.items[clip.sequence][clip.start : clip.start + IMAGE_FRAMES])
    total = float(clip.difference.sum())
    name = sequence_label(test, clip.sequence) + (f", from frame {clip.start}" if clip.start else "")
    title = f"{name}: {a if total > 0 else b} ahead by {abs(total):.1f} nats"
    scale, times = scale_of(test), times_of(test, clip.sequence, clip.start, clip.start + IMAGE_FRAMES)
    alt = (
        f"{frames.shape[1]} features over {len(frames)} frames, and under them the difference of log-probability; "
        f"{title}"
    )

    def draw(width: float) -> Figure:
        return frame_differences(frames, clip.difference, scale=scale, better=a, worse=b, width=width, **times)

    return picture(draw, alt, f"{title}. Above: features in standard deviations; below: {a} minus {b}.")
