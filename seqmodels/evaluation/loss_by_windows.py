"""``window_loss``: what a model loses where it is scored on windows, each without the steps before it."""

from __future__ import annotations

from typing import Any

import numpy as np

from seqmodels.common.parameters import checked
from seqmodels.evaluation.statistics.paired import Difference, moving_block_difference, paired_difference
from seqmodels.model import SequenceModel
from seqmodels.sequences import Sequences, as_sequences


@checked
def window_loss(model: SequenceModel, X: Any, width: int, *, cluster: str | None = None) -> Difference:
    """Nats per unit by which windows lower the score of a fitted ``model`` of p(x): what it gains from longer context.

    Each window of ``width`` steps (characters of text) is scored on its own, as a sequence that starts there. A score
    taken on windows is lower by this loss than one of whole sequences, so two scores taken at different widths do not
    belong in one table. Steps are compared one by one; the ends of sequences, of which windows would have more, are
    left out.

    Args:
        model: fitted to sequences without targets.
        X: held-out sequences, best longer than ``width``.
        width: steps of a window.
        cluster: a metadata column of ``X``, as in ``compare``.

    Returns:
        ``Difference``: ``.difference`` with its interval ``.low`` to ``.high``: over sequences or clusters, or moving
        blocks of one.

    Raises:
        ValueError: a width below 1; a model of p(y | x).

    Of 40 symbols, each of which is certain after the first, ten windows have ten uncertain first steps in place of one:

    >>> from seqmodels import HMM
    >>> model = HMM.from_parameters([0.5, 0.5], [[0, 1], [1, 0]], emission=[[1, 0], [0, 1]])
    >>> loss = window_loss(model, [np.array([0, 1] * 20)], width=4)
    >>> round(float(loss.difference / np.log(2)), 3)
    0.225
    """
    whole = as_sequences(X)
    units = whole.n_units
    whole_steps = [s[:n] for s, n in zip(model.log_prob_steps(whole), units, strict=True)]
    window_steps = _window_steps(model, whole, width)
    if len(whole) == 1:
        return moving_block_difference(whole_steps[0], window_steps[0], n_units=float(units[0]))
    of_whole = np.array([steps.sum() for steps in whole_steps])
    of_windows = np.array([steps.sum() for steps in window_steps])
    if cluster is not None and cluster not in whole.metadata:
        raise ValueError(f"cluster is {cluster!r}, but X has {', '.join(map(str, whole.metadata)) or 'no metadata'}")
    clusters = whole.clusters if cluster is None else list(whole.metadata[cluster])
    return paired_difference(of_whole, of_windows, units, clusters)


def _window_steps(model: SequenceModel, whole: Sequences, width: int) -> list[np.ndarray]:
    """For each sequence the nats of its units when each window is scored on its own."""
    windows = whole.chunks(width)
    steps = [s[:n_units] for s, n_units in zip(model.log_prob_steps(windows), windows.n_units, strict=True)]
    counts = [-(-len(item) // width) for item in whole]
    ends = np.cumsum(counts)
    return [np.concatenate(steps[end - n_windows : end]) for n_windows, end in zip(counts, ends, strict=True)]
