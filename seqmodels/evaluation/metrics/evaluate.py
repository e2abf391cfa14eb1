"""``evaluate``: score a fitted p(y | x) by its likelihood and by metrics of the sequences that it decodes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from seqmodels.common.parameters import PositiveInt, checked
from seqmodels.evaluation.metrics.errors import error_rate, exact_match
from seqmodels.evaluation.metrics.translation import bleu, chrf, sacrebleu_module
from seqmodels.model import SequenceModel
from seqmodels.sequences import as_sequences

if TYPE_CHECKING:
    import pandas as pd

# A function of references (one or several for each hypothesis) and hypotheses.
Metric = Callable[[Sequence[Any], Sequence[Any]], float]


@checked
def evaluate(
    model: SequenceModel,
    X: Any,
    y: Any,
    *,
    references: Sequence[Any] | None = None,
    beam: PositiveInt = 1,
    max_length: int | None = None,
    max_ratio: float = 0.0,
    alpha: float | Literal["mean"] = 0.0,
    metrics: Mapping[str, Metric] | None = None,
) -> pd.Series:
    """Evaluate a fitted p(y | x) by its likelihood of ``y`` and by metrics of what it decodes from ``X``.

    Sequences are decoded with ``predict``, which searches for the most probable target of each source.

    Args:
        model: a model that was fitted with targets.
        X: source sequences.
        y: target sequences.
        references: the sequences that decoded ones are compared to, one or a list of several for each; None means
            ``y``.
        beam: number of hypotheses that beam search keeps; 1 is greedy search. Under ``length="given"`` decoded
            sequences get the lengths of the targets.
        max_length: most steps of a decoded sequence, under ``length="stop"``; None means a limit from the lengths in
            training.
        max_ratio: number of additional steps that a decoded sequence may have for each step of its source.
        alpha: exponent of the length penalty of beam search: sequences of n steps are compared by
            ``log p / ((6 + n) / 6)^alpha``; 0 compares log p itself, and ``"mean"`` compares ``log p / (n + 1)``.
        metrics: further metrics by name, functions of references and hypotheses that return a number; None means none.

    Returns:
        A series with ``score`` (nats per unit of y, higher is better), ``bits`` (``-score / log 2``, lower is better),
        ``exact_match``, ``error_rate`` (of characters, for text), ``n`` (number of pairs), for text ``bleu`` and
        ``chrf``, and then ``metrics``. The name of the series is the unit.

    Raises:
        ImportError: the targets are text and sacrebleu is not installed.
    """
    import pandas as pd

    targets = as_sequences(y)
    if targets.kind == "text":
        sacrebleu_module()  # here, because an error should come before the search and not after it
    score = model.score(X, targets)
    lengths = [len(model.encoding_.encode(item)) for item in targets] if model.length_ == "given" else None
    decoded = model.predict(X, n_beams=beam, length=lengths, max_length=max_length, max_ratio=max_ratio, alpha=alpha)
    expected = list(targets) if references is None else references
    row = {"score": score, "bits": -score / math.log(2), "exact_match": exact_match(expected, decoded)}
    row |= {"error_rate": error_rate(expected, decoded), "n": float(len(targets))}
    if targets.kind == "text":
        row |= {"bleu": bleu(expected, decoded), "chrf": chrf(expected, decoded)}
    row |= {name: float(metric(expected, decoded)) for name, metric in (metrics or {}).items()}
    return pd.Series(row, name=targets.unit)
