"""An HMM fitted to labelled sequences: a label is one of its states, or any of several in a row of their own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from seqmodels.hmm.model import HMM
from seqmodels.preparation import Data, Setting
from seqmodels.sequences import Sequences


def fit_labelled(
    hmm: HMM, setting: Setting, X: Sequences, labels: Sequence[np.ndarray], weights: np.ndarray, n_each: int
) -> None:
    """EM within the labels; those of several states start from stretches of one label in equal parts.

    Args:
        hmm: with ``n_each`` states a label, not fitted yet.
        setting: how it reads and emits ``X``.
        X: raw.
        labels: ``(T,)`` of each sequence.
        weights: of each sequence.
        n_each: states i n_each to i n_each + n_each - 1 are label i's.
    """
    hmm._check_hyperparameters()
    hmm._apply_setting(setting)
    states: list[np.ndarray | None] = [parts_of_runs(each, n_each) for each in labels]
    if n_each > 1:
        after = {name: getattr(hmm, name) for name in ("max_iter", "checkpoint", "resume_from")}
        hmm.set_params(max_iter=0, checkpoint=None, resume_from=None)
        hmm._fit(setting.examples(Data(X, None, weights, states)), [])
        hmm.set_params(**after, warm_start=True)
        states = [states_of(torch.from_numpy(each), n_each, hmm.n_states).numpy() for each in labels]
    hmm._fit(setting.examples(Data(X, None, weights, states)), [])
    hmm.set_params(warm_start=False, checkpoint=None, resume_from=None).fit_seconds_ = 0.0


def states_of(labels: Tensor, n_each: int, n_states: int) -> Tensor:
    """``(n, n_states)`` bool: the states of labels ``(n,)``."""
    return torch.arange(n_states, device=labels.device) // n_each == labels[:, None]


def parts_of_runs(labels: np.ndarray, n_parts: int) -> np.ndarray:
    """``(T,)`` states: each stretch of one label i cut into equal parts ``i n_parts .. i n_parts + n_parts - 1``.

    >>> parts_of_runs(np.array([0, 0, 0, 0, 2, 0]), 2).tolist()
    [0, 0, 1, 1, 4, 0]
    """
    starts = np.flatnonzero(np.diff(labels, prepend=labels[0] - 1))
    lengths = np.diff(starts, append=len(labels))
    time = np.arange(len(labels)) - np.repeat(starts, lengths)
    return labels * n_parts + time * n_parts // np.repeat(lengths, lengths)
