"""Which steps of the source each step of the target was aligned to, for the models that align."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from seqmodels.encodings import Encoding
from seqmodels.evaluation.report.data import encoded_steps, pair_of, sequence_label
from seqmodels.evaluation.report.html import Section, details, paragraph, picture
from seqmodels.hmm.alignment import AlignmentHMM
from seqmodels.model import SequenceModel
from seqmodels.neural import LSTMSeq2Seq, TransformerSeq2Seq
from seqmodels.sequences import Item, Sequences

if TYPE_CHECKING:
    from seqmodels.evaluation.comparison import Comparison

MAX_TARGET_STEPS = 48  # that are drawn
MAX_READABLE_STEPS = 30  # of a pair
HEIGHT = 4.5  # inches
NULL = "∅"  # an alignment HMM's last column: aligned to no source step


def section(comparison: Comparison) -> Section | None:
    """The alignment of one short test pair by every model that aligns."""
    models = {name: model for name, model in comparison.models.items() if aligns(model)}
    if not models or comparison.source is None:
        return None
    index = readable_pair(comparison.source.n_units, comparison.test.n_units)
    data = pair_of(comparison, np.array([index]))
    assert data is not None
    alignments = [_alignment(name, model, *data) for name, model in models.items()]
    words = (
        f"One test pair ({sequence_label(comparison.test, index)}): a row for each step of the target, darker where it "
        "looked."
    )
    rest = [details("The other models", "\n".join(alignments[1:]))] if len(alignments) > 1 else []
    return Section("attention", "Attention", "\n".join([paragraph(words), alignments[0], *rest]))


def readable_pair(sources: np.ndarray, targets: np.ndarray) -> int:
    """The pair of at most ``MAX_READABLE_STEPS`` with the longest target; if there is none, the shortest pair."""
    longer = np.maximum(sources, targets)
    is_readable = longer <= MAX_READABLE_STEPS
    return int(np.argmax(np.where(is_readable, targets, -1)) if is_readable.any() else np.argmin(longer))


def aligns(model: SequenceModel) -> bool:
    """Whether a model aligns: an encoder-decoder with one fixed context vector does not."""
    if isinstance(model, LSTMSeq2Seq):
        return model.attention is not None
    return isinstance(model, (TransformerSeq2Seq, AlignmentHMM))


def _alignment(name: str, model: SequenceModel, X: Sequences, y: Sequences | None) -> str:
    from seqmodels.evaluation.plots.alignment import plot_alignment
    from seqmodels.evaluation.plots.style import WIDTH

    assert isinstance(model, (LSTMSeq2Seq, TransformerSeq2Seq, AlignmentHMM))
    assert y is not None
    assert model.source_encoding_ is not None
    weights = model.align(X, y)[0][:MAX_TARGET_STEPS]
    source = _labels(model.source_encoding_, X.items[0])
    target = _labels(model.encoding_, y.items[0])
    if source is not None and weights.shape[1] > len(source):
        source = [*source, NULL]
    target = target and target[:MAX_TARGET_STEPS]
    figure = plot_alignment(weights, source, target, title=name, full=float(weights.max()))
    figure.set_size_inches(WIDTH, HEIGHT)
    peaks = ", ".join(map(str, weights.argmax(1)[:12].tolist()))
    alt = f"Alignment weights of {name}. The first target steps look most at source steps {peaks}, counted from 0"
    return picture(figure, alt, f"{name}: target steps downwards, source steps across.")


def _labels(encoding: Encoding, item: Item) -> list[str] | None:
    """The label of each step; None: they are numbered."""
    if encoding.reads == "vectors":
        return None
    return [{" ": "␣", "\n": "↵"}.get(piece, piece) for piece in encoded_steps(encoding, item)]
