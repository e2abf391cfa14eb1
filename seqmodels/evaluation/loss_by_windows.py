"""``window_loss``: how much a model loses if it is scored on windows, each without the steps before it."""

from __future__ import annotations

from typing import Any

import numpy as np

from seqmodels.common.parameters import checked
from seqmodels.evaluation.statistics.paired import Difference, moving_block_difference, paired_difference
from seqmodels.model import SequenceModel
from seqmodels.sequences import Sequences, as_sequences


@checked
def window_loss(model: SequenceModel, X: Any, width: int, *, cluster: str | None = None) -> Difference:
    """Return by how much a model's score falls if it is scored on windows: what it gains from longer context.

    The score is the mean log-probability in nats per unit (frame, byte or symbol). Each window of ``width`` steps
    (characters of text) is scored on its own, as a sequence that starts there. A score taken on windows is lower by
    this loss than one of whole sequences, so that two scores taken at different widths do not belong in one table.
    Steps are compared one by one; ends are left out, because windows would have more of them than whole sequences.

    Args:
        model: a fitted model of p(x), that is, one fitted to sequences without targets.
        X: held-out sequences, best longer than ``width``.
        width: number of steps of a window.
        cluster: name of a metadata column of ``X``; sequences that share a value in it are treated as dependent. None
            means the ``cluster`` column if there is one.

    Returns:
        ``Difference``, with the loss ``.difference`` and its interval ``.low`` to ``.high``, over sequences or
        clusters, or over moving blocks of a single sequence.

    Raises:
        ValueError: ``width`` is below 1, ``cluster`` is no column of ``X``, or the model is of p(y | x).

    In this example there are 40 symbols, each of which is certain after the first. Ten windows have ten uncertain first
    steps instead of one:

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
    """Score each window of ``width`` steps as a sequence of its own; return log p of each unit in nats.

    Args:
        model: a fitted model of p(x).
        whole: the sequences that are cut into windows.
        width: number of steps of a window.

    Returns:
        An array ``(T,)`` for each sequence, of its T units (frames, bytes or symbols), in the old order.
    """
    windows = whole.chunks(width)
    steps = [s[:n_units] for s, n_units in zip(model.log_prob_steps(windows), windows.n_units, strict=True)]
    counts = [-(-len(item) // width) for item in whole]
    ends = np.cumsum(counts)
    return [np.concatenate(steps[end - n_windows : end]) for n_windows, end in zip(counts, ends, strict=True)]
