"""Which steps of the source each step of the target came from, for the models that can say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from seqmodels.encodings import Encoding
from seqmodels.evaluation.report.data import named, pair_of, spelled
from seqmodels.evaluation.report.html import Section, details, paragraph, picture
from seqmodels.hmm.alignment import AlignmentHMM
from seqmodels.model import SequenceModel
from seqmodels.neural import LSTMSeq2Seq, TransformerSeq2Seq
from seqmodels.sequences import Item, Sequences

if TYPE_CHECKING:
    from seqmodels.evaluation.comparison import Comparison

MOST = 48  # steps of the target that are drawn
READABLE = 30  # steps
HEIGHT = 4.5  # inches
NOWHERE = "∅"  # an alignment HMM's last column: from no place


def section(comparison: Comparison) -> Section | None:
    """The alignment of one readable test pair by every model that aligns."""
    models = {name: model for name, model in comparison.models.items() if aligns(model)}
    if not models or comparison.source is None:
        return None
    index = chosen(comparison.source.n_units, comparison.test.n_units)
    data = pair_of(comparison, np.array([index]))
    assert data is not None
    drawn = [_drawn(name, model, *data) for name, model in models.items()]
    words = (
        f"One test pair ({named(comparison.test, index)}): a row for each step of the target, darker where it looked."
    )
    rest = [details("The other models", "\n".join(drawn[1:]))] if len(drawn) > 1 else []
    return Section("attention", "Attention", "\n".join([paragraph(words), drawn[0], *rest]))


def chosen(sources: np.ndarray, targets: np.ndarray) -> int:
    """The pair with the longest target of those with ``READABLE`` steps or fewer on both sides; where there are none, the shortest."""
    longer = np.maximum(sources, targets)
    readable = longer <= READABLE
    return int(np.argmax(np.where(readable, targets, -1)) if readable.any() else np.argmin(longer))


def aligns(model: SequenceModel) -> bool:
    """Whether ``align`` says something: an encoder-decoder with one fixed context vector has nothing to say."""
    if isinstance(model, LSTMSeq2Seq):
        return model.attention is not None
    return isinstance(model, (TransformerSeq2Seq, AlignmentHMM))


def _drawn(name: str, model: SequenceModel, X: Sequences, y: Sequences | None) -> str:
    from seqmodels.evaluation.alignment_plot import plot_alignment  # lazily: matplotlib is slow to import
    from seqmodels.evaluation.plots import WIDTH

    assert isinstance(model, (LSTMSeq2Seq, TransformerSeq2Seq, AlignmentHMM))
    assert y is not None
    assert model.source_encoding_ is not None
    weights = model.align(X, y)[0][:MOST]
    source = _labels(model.source_encoding_, X.items[0])
    target = _labels(model.encoding_, y.items[0])
    if source is not None and weights.shape[1] > len(source):
        source = [*source, NOWHERE]
    figure = plot_alignment(weights, source, target and target[:MOST], title=name, full=float(weights.max()))
    figure.set_size_inches(WIDTH, HEIGHT)
    peaks = ", ".join(map(str, weights.argmax(1)[:12].tolist()))
    alt = f"Alignment weights of {name}. The first target steps look most at source steps {peaks}, counted from 0"
    return picture(figure, alt, f"{name}: target steps downwards, source steps across.")


def _labels(encoding: Encoding, item: Item) -> list[str] | None:
    """None: numbers."""
    if encoding.reads == "vectors":
        return None
    return [{" ": "␣", "\n": "↵"}.get(piece, piece) for piece in spelled(encoding, item)]
