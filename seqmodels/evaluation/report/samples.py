"""What each model makes up: one draw of each, side by side with what really came."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from seqmodels.evaluation.report.data import pair_of, pieces, scale_of
from seqmodels.evaluation.report.html import Section, escape, paragraph, picture
from seqmodels.model import SequenceModel
from seqmodels.sequences import Item, Sequences

if TYPE_CHECKING:
    from seqmodels.evaluation.comparison import Comparison

CHARACTERS, SYMBOLS, FRAMES = 280, 100, 120  # at most
TRUE = "what really came"


def section(comparison: Comparison) -> Section | None:
    """A draw from each model; of pairs, given the source of one test pair."""
    index = _chosen(comparison.test)
    data = pair_of(comparison, np.array([index]))
    if data is None:
        return None
    source = data[0].items[0] if comparison.measure.conditional else None
    true = comparison.test.items[index]
    drawn, failed = _draws(comparison, true, source)
    words = f"One draw from each model (random_state 0){', given the same source' if source is not None else ''}; nothing was chosen."
    show = _images if comparison.test.kind == "vectors" else _texts
    given = (
        [] if source is None or (isinstance(source, np.ndarray) and source.ndim == 2) else [_text("the source", source)]
    )
    body = [paragraph(words), *given, show(comparison, {TRUE: _head(true), **drawn}), *map(paragraph, failed)]
    return Section("samples", "Samples", "\n".join(body))


def _chosen(test: Sequences) -> int:
    """The sequence of median length: what models are asked to continue, or to be as long as."""
    return int(np.argsort(test.n_units, kind="stable")[len(test) // 2])


def _draws(comparison: Comparison, true: Item, source: Item | None) -> tuple[dict[str, Item], list[str]]:
    drawn: dict[str, Item] = {}
    failed = []
    for name, model in comparison.models.items():
        try:
            drawn[name] = _draw(model, true, source)
        except (ValueError, RuntimeError, ArithmeticError) as error:
            failed.append(f"{name} could not be drawn from: {error}")
    return drawn, failed


def _draw(model: SequenceModel, true: Item, source: Item | None) -> Item:
    most = {"text": CHARACTERS, "vectors": FRAMES, "symbols": SYMBOLS}[model.encoding_.reads]
    given: Any = {"source": source, "random_state": 0}
    if model.length_ == "stop":
        return _head(model.sample(1, max_length=most, **given)[0])
    length = None if model._is_tagger and source is not None else min(most, len(true))
    return _head(model.sample(1, length=length, **given)[0])


def _head(item: Item) -> Item:
    if isinstance(item, str):
        return item[:CHARACTERS]
    return item[: FRAMES if item.ndim == 2 else SYMBOLS]


def _texts(comparison: Comparison, drawn: dict[str, Item]) -> str:
    return '<div class="columns">' + "\n".join(_text(name, item) for name, item in drawn.items()) + "</div>"


def _text(name: str, item: Item) -> str:
    shown = "".join(pieces(item)) if isinstance(item, str) else " ".join(pieces(item[:SYMBOLS]))
    return f'<div><h3>{escape(name)}</h3><p class="passage">{escape(shown)}</p></div>'


def _images(comparison: Comparison, drawn: dict[str, Item]) -> str:
    from seqmodels.evaluation.plots import side_by_side  # lazily: matplotlib is slow to import

    images = {name: np.asarray(item) for name, item in drawn.items()}
    figure = side_by_side(images, scale=scale_of(comparison.test))
    alt = f"Images over time of one real sequence and of one draw from each of {', '.join(list(images)[1:])}"
    return picture(
        figure, alt, "Features over time, all with one colour scale: what really came, and a draw from each model."
    )
