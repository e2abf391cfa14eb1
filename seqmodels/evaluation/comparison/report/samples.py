"""The report's section of samples: one draw from each model, beside a real test sequence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from seqmodels.common.html import element
from seqmodels.evaluation.comparison.report.data import pair_of, readable_steps, scale_of
from seqmodels.evaluation.comparison.report.elements import Section, picture, together
from seqmodels.model import SequenceModel
from seqmodels.plot.drawn_frames import side_by_side
from seqmodels.sequences import Item, Sequences

if TYPE_CHECKING:
    from markupsafe import Markup

    from seqmodels.evaluation.comparison.comparison_data import ComparisonData

MAX_LENGTHS = {"text": 280, "symbols": 100, "vectors": 120}  # characters, symbols, frames
REAL = "what really came"  # the title of the test sequence


def section(comparison: ComparisonData) -> Section | None:
    """Return the report's section with a draw from each model; for pairs, given the source of one test pair.

    Return None if the scores are of p(y | x) and the sources were not kept.
    """
    test = comparison.test
    index = int(np.argsort(test.n_units, kind="stable")[len(test) // 2])  # the sequence of median length
    data = pair_of(comparison, np.array([index]))
    if data is None:
        return None
    source = data[0].items[0] if comparison.measure.conditional else None
    target = test.items[index]
    drawn, failed = draws(comparison, target, source, test.take([index]))
    given = ", given the same source" if source is not None else ""
    if any(model.measure_.inputs for model in comparison.models.values()):
        given = ", given the same inputs where it reads some"
    items = {REAL: _truncated(target), **drawn}
    is_readable = source is not None and not (isinstance(source, np.ndarray) and source.ndim == 2)
    body = together(
        element("paragraph", f"One draw from each model (random_state 0){given}; nothing was chosen."),
        _texts({"the source": source}) if source is not None and is_readable else None,
        _images(comparison, items) if test.kind == "vectors" else _texts(items),
        *(element("paragraph", sentence) for sentence in failed),
    )
    return Section("samples", "Samples", body)


def draws(
    comparison: ComparisonData, target: Item, source: Item | None, like: Sequences | None = None
) -> tuple[dict[str, Item], list[str]]:
    """Return a draw from each model of a comparison, and a sentence for each model that could not be drawn from.

    Args:
        comparison: the comparison with the models.
        target: the test sequence; a draw is as long as it, or ends by itself under ``length="stop"``.
        source: the source that draws are conditioned on; None for p(x).
        like: the test sequence with its inputs and times, which models that read some are given; None means none.
    """
    drawn: dict[str, Item] = {}
    failed = []
    for name, model in comparison.models.items():
        try:
            drawn[name] = _truncated(_draw(model, target, source, like))
        except (ValueError, RuntimeError, ArithmeticError) as error:
            failed.append(f"{name} could not be drawn from: {error}")
    return drawn, failed


def _draw(model: SequenceModel, target: Item, source: Item | None, like: Sequences | None) -> Item:
    longest = MAX_LENGTHS[model.encoding_.reads]
    options: Any = {"source": source, "random_state": 0}
    if model.length_ == "stop":
        return model.sample(1, max_length=longest, **options)[0]
    length = None if model._is_tagger and source is not None else min(longest, len(target))
    if model.measure_.inputs and like is not None and like.inputs is not None:
        options["inputs"] = dict(zip(like.input_names or (), like.inputs[0][:length].T, strict=True))
    if model._times_in is not None and like is not None and like.times is not None:
        options["times"] = like.times[0][:length]
    return model.sample(1, length=length, **options)[0]


def _truncated(item: Item) -> Item:
    if isinstance(item, str):
        return item[: MAX_LENGTHS["text"]]
    return item[: MAX_LENGTHS["vectors" if item.ndim == 2 else "symbols"]]


def _texts(items: dict[str, Item]) -> Markup:
    return element("columns", [(name, _text(item)) for name, item in items.items()])


def _text(item: Item) -> str:
    return item if isinstance(item, str) else " ".join(readable_steps(item[: MAX_LENGTHS["symbols"]]))


def _images(comparison: ComparisonData, items: dict[str, Item]) -> Markup:
    images = {name: np.asarray(item) for name, item in items.items()}
    scale = scale_of(comparison.test)
    alt = f"Images over time of one real sequence and of one draw from each of {', '.join(list(images)[1:])}"
    caption = "Features over time, all with one colour scale: what really came, and a draw from each model."
    return picture(lambda width: side_by_side(images, scale=scale, width=width), alt, caption)
