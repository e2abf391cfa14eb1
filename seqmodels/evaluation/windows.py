"""What a model loses when its text is cut: how much of a score is memory that reaches beyond a window."""

from __future__ import annotations

from typing import Any

import numpy as np

from seqmodels.evaluation.statistics import Difference, moving_block_difference, paired_difference
from seqmodels.model import SequenceModel
from seqmodels.sequences import Sequences, as_sequences


def window_loss(model: SequenceModel, X: Any, width: int, *, cluster: str | None = None) -> Difference:
    """Nats per unit that a fitted ``model`` of p(x) has from before the window: the score of whole sequences minus that of disjoint windows.

    Each window of ``width`` steps (characters of text) is scored on its own, as a sequence that starts there. A model whose
    figures were taken on windows is that much worse than on the whole, so two figures taken at different widths do not
    belong in one table. Steps are compared one by one; the ends of sequences, which windows would have more of, are left out.

    Args:
        model: fitted to sequences without targets.
        X: held-out sequences, best longer than ``width``.
        width: steps of a window.
        cluster: a metadata column of ``X``, as in ``compare``.

    Returns:
        ``Difference``: ``.difference`` with its interval ``.low`` to ``.high``: over sequences or clusters, or moving blocks of one.

    Raises:
        ValueError: a width below 1; a model of p(y | x).

    >>> from seqmodels import HMM
    >>> model = HMM.from_parameters([0.5, 0.5], [[0, 1], [1, 0]], emission=[[1, 0], [0, 1]])  # after the first step it is sure
    >>> loss = window_loss(model, [np.array([0, 1] * 20)], width=4)
    >>> round(float(loss.difference / np.log(2)), 3)  # ten first steps in the place of one, for 40 symbols
    0.225
    """
    whole = as_sequences(X)
    together = [s[:n] for s, n in zip(model.log_prob_steps(whole), whole.n_units, strict=True)]
    apart = _in_windows(model, whole, width)
    units = whole.n_units
    if len(whole) == 1:
        return moving_block_difference(together[0], apart[0], n_units=float(units[0]))
    in_all, in_windows = (np.array([steps.sum() for steps in each]) for each in (together, apart))
    clusters = whole.clusters if cluster is None else list(whole.metadata[cluster])
    return paired_difference(in_all, in_windows, units, clusters)


def _in_windows(model: SequenceModel, whole: Sequences, width: int) -> list[np.ndarray]:
    """Of each sequence the nats of its units, as its windows have them."""
    windows = whole.chunks(width)
    steps = [s[:n] for s, n in zip(model.log_prob_steps(windows), windows.n_units, strict=True)]
    counts = [-(-len(item) // width) for item in whole]
    ends = np.cumsum(counts)
    return [np.concatenate(steps[end - n : end]) for n, end in zip(counts, ends, strict=True)]
