"""Paths of states of given sequences: the k most probable ones, and the best path through given labels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from seqmodels.sequences.items import in_words


@dataclass(frozen=True, eq=False)
class StatePath:
    """A path of states of one sequence, with its log-probability.

    Attributes:
        states: state of each step, ``(T,)`` integers.
        log_prob: log p(x, path) in nats in raw units, as ``HMM.path_log_prob`` returns it.
    """

    states: np.ndarray
    log_prob: float


@dataclass(frozen=True, eq=False)
class ForcedAlignment:
    """The best segmentation of one sequence by S labels in their order, as ``HMM.align`` finds it.

    A label is a state or a group of states that the path goes through; label s has the steps from ``starts[s]`` to
    ``ends[s] - 1`` of the T steps.

    Attributes:
        starts: first step of each label, ``(S,)``.
        ends: step after the last step of each label, ``(S,)``: the start of the next label, or T.
        states: state of each step, which is one of its label's, ``(T,)``.
        log_prob: log p(x, states) in nats in raw units, as ``HMM.path_log_prob`` returns it.
    """

    starts: np.ndarray
    ends: np.ndarray
    states: np.ndarray
    log_prob: float


def check_n_paths(k: int) -> None:
    """Raise ``ValueError`` unless ``k`` is an integer of at least 1."""
    if not (isinstance(k, int | np.integer) and k >= 1):
        raise ValueError(f"k is {k!r}; pass the number of paths of each sequence, at least 1, or None for the best one")


def state_paths(
    best: Sequence[tuple[Tensor, Tensor]], log_det: np.ndarray, n_initial: Sequence[int]
) -> list[list[StatePath]]:
    """Return the most probable paths of each sequence, best first, with their log-probabilities in raw units.

    Args:
        best: for each of n sequences m paths of states, ``(m, T)``, and their log-probabilities ``(m,)`` for encoded
            steps.
        log_det: nats to add to the log-probabilities of each sequence for raw units, ``(n,)``.
        n_initial: number of first frames of each sequence that have no change, if a series is read as changes; they get
            the state of the first step.
    """
    each = ((paths.cpu().numpy(), log_prob.cpu().numpy()) for paths, log_prob in best)
    return [
        [
            StatePath(np.concatenate([np.repeat(path[:1], n), path]), float(value + shift))
            for path, value in zip(paths, log_prob, strict=True)
        ]
        for (paths, log_prob), shift, n in zip(each, log_det, n_initial, strict=True)
    ]


# -- labels in their order ---------------------------------------------------------------------------------------------


def checked_labels(labels: Any, n_steps: Sequence[int], n_states: int) -> list[list[list[int]]]:
    """Return for each sequence, and each of its labels in order, the list of the states that the label stands for.

    Args:
        labels: the user's labels for each sequence: a list of states, or of groups of states.
        n_steps: number of steps of each sequence.
        n_states: number of states, K.

    Raises:
        ValueError: labels are missing, too many for the steps, or no states; the message names the sequence.
    """
    way_out = "pass for each sequence a list of states, or of groups of states, in the order in which they come"
    if not isinstance(labels, Iterable):
        raise ValueError(f"labels is {in_words(labels)}; {way_out}")
    each = list(labels)
    if len(each) != len(n_steps):
        raise ValueError(f"there are {len(n_steps)} sequences but labels of {len(each)}; {way_out}")
    groups = []
    for i, (of_sequence, n) in enumerate(zip(each, n_steps, strict=True)):
        if isinstance(of_sequence, str) or not isinstance(of_sequence, Iterable):
            raise ValueError(f"the labels of sequence {i} are {in_words(of_sequence)}; {way_out}")
        groups.append([_states_of_label(label, i, s, n_states) for s, label in enumerate(of_sequence)])
        if not groups[-1]:
            raise ValueError(f"sequence {i} has no labels; {way_out}")
        if n < len(groups[-1]):
            raise ValueError(
                f"sequence {i} has {n} steps but {len(groups[-1])} labels, each of which takes one step at least; pass "
                "fewer labels"
            )
    return groups


def _states_of_label(label: Any, i: int, s: int, n_states: int) -> list[int]:
    states = np.atleast_1d(np.asarray(list(label) if isinstance(label, set | frozenset | range) else label))
    if states.ndim != 1 or states.dtype.kind not in "iu" or not states.size:
        raise ValueError(f"label {s} of sequence {i} is {label!r}; pass a state, as 2, or a group of states, as (0, 1)")
    if not 0 <= states.min() <= states.max() < n_states:
        raise ValueError(f"label {s} of sequence {i} is {label!r}; the model has states 0 to {n_states - 1}")
    return [int(state) for state in np.unique(states)]


def forced_alignments(
    best: Sequence[tuple[Tensor, Tensor, float]], log_det: np.ndarray, n_initial: Sequence[int]
) -> list[ForcedAlignment]:
    """Return the ``ForcedAlignment`` of each sequence, with its log-probability in raw units.

    Args:
        best: for each of n sequences the number of the label of each step, ``(T,)``, the state of each step, ``(T,)``,
            and the log-probability of path and encoded steps.
        log_det: nats to add to the log-probability of each sequence for raw units, ``(n,)``.
        n_initial: number of first frames of each sequence that have no change, if a series is read as changes; they
            belong to the first label.
    """
    results = []
    for (positions, states, log_prob), shift, n in zip(best, log_det, n_initial, strict=True):
        ends = n + np.bincount(positions.cpu().numpy()).cumsum()
        starts = np.concatenate([[0], ends[:-1]])
        path = np.concatenate([np.repeat(states.cpu().numpy()[:1], n), states.cpu().numpy()])
        results.append(ForcedAlignment(starts, ends, path, float(log_prob + shift)))
    return results
