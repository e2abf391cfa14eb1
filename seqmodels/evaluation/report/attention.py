"""Which steps of the source each step of the target came from, for the models that can say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from seqmodels.evaluation.report.data import pair_of
from seqmodels.evaluation.report.html import Section, details, paragraph, picture
from seqmodels.hmm.alignment import AlignmentHMM
from seqmodels.model import SequenceModel
from seqmodels.neural import LSTMSeq2Seq, TransformerSeq2Seq
from seqmodels.sequences import Sequences

if TYPE_CHECKING:
    from seqmodels.evaluation.comparison import Comparison

MOST = 48  # steps of the target that are drawn
HEIGHT = 4.5  # inches


def section(comparison: Comparison) -> Section | None:
    """The alignment of one short test pair by every model that aligns."""
    models = {name: model for name, model in comparison.models.items() if aligns(model)}
    if not models or comparison.source is None:
        return None
    sizes = comparison.test.n_units + comparison.source.n_units
    index = int(np.argmin(np.where(comparison.test.n_units > 1, sizes, sizes.max())))
    data = pair_of(comparison, np.array([index]))
    assert data is not None
    drawn = [_drawn(name, model, *data) for name, model in models.items()]
    words = f"One short test pair ({comparison.test.names[index]}): a row for each step of the target, darker where it looked."
    rest = [details("The other models", "\n".join(drawn[1:]))] if len(drawn) > 1 else []
    return Section("attention", "Attention", "\n".join([paragraph(words), drawn[0], *rest]))


def aligns(model: SequenceModel) -> bool:
    """Whether ``align`` says something: an encoder-decoder with one fixed context vector has nothing to say."""
    if isinstance(model, LSTMSeq2Seq):
        return model.attention is not None
    return isinstance(model, (TransformerSeq2Seq, AlignmentHMM))


def _drawn(name: str, model: SequenceModel, X: Sequences, y: Sequences | None) -> str:
    from seqmodels.evaluation.alignment_plot import plot_alignment  # lazily: matplotlib is slow to import
    from seqmodels.evaluation.plots import WIDTH

    assert isinstance(model, (LSTMSeq2Seq, TransformerSeq2Seq, AlignmentHMM))
    weights = model.align(X, y)[0]
    best = weights[:MOST].argmax(1).tolist()
    peak = ", ".join(map(str, best[:12]))
    figure = plot_alignment(weights[:MOST], title=name, full=float(weights[:MOST].max()))
    figure.set_size_inches(WIDTH, HEIGHT)
    alt = f"Alignment weights of {name}. The first target steps look most at source steps {peak}"
    return picture(figure, alt, f"{name}: target steps downwards, source steps across; numbers count from 0.")
