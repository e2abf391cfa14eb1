"""Functions that answer questions about the states of a fitted chain: paths, shares of time, and reordering.

A missing value (NaN) tells nothing about its feature; the state of a frame whose values are all missing follows from
its neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqmodels.encodings.examples import Example
from seqmodels.encodings.precision import refuse_beyond_float64, squares_exceed_float32
from seqmodels.encodings.raw_data import Data
from seqmodels.encodings.raw_to_examples import Setting
from seqmodels.hmm.conjugate import ConjugatePrior
from seqmodels.hmm.learning.chain_arguments import ChainTraining
from seqmodels.hmm.learning.constraints import Frozen
from seqmodels.hmm.learning.first_state import invariant
from seqmodels.hmm.learning.priors import Pseudocounts
from seqmodels.hmm.topology import Arcs, as_topology
from seqmodels.observations import GaussianMixture, Observation
from seqmodels.observations.gaussian_mixture import PseudoFrames
from seqmodels.sequences.items import in_words

# -- the states of sequences ---------------------------------------------------------------------------------


def checked_paths(paths: Any, n_steps: Sequence[int], n_states: int) -> list[Tensor]:
    """Return the user's paths of states, checked, as one tensor ``(T,)`` for each sequence.

    Args:
        paths: the user's paths: for each sequence an array of T integers.
        n_steps: number of steps of each sequence.
        n_states: number of states, K.

    Raises:
        ValueError: the number of paths, a length, a type or a state is wrong; the message names the sequence.
    """
    if not isinstance(paths, Iterable):
        raise ValueError(f"paths is {in_words(paths)}; pass a path of states for each sequence, as decode does")
    each = [np.asarray(path) for path in paths]
    if len(each) != len(n_steps):
        raise ValueError(f"there are {len(n_steps)} sequences but {len(each)} paths; pass one each, as decode does")
    for i, (path, n) in enumerate(zip(each, n_steps, strict=True)):
        if path.shape != (n,) or path.dtype.kind not in "iu":
            raise ValueError(
                f"the path of sequence {i} has shape {path.shape} and type {path.dtype}; pass {n} integers, a state "
                "for each step (of x, then y)"
            )
        if not 0 <= path.min() <= path.max() < n_states:
            raise ValueError(
                f"the path of sequence {i} has states from {path.min()} to {path.max()}; the model has 0 to "
                f"{n_states - 1}"
            )
    return [torch.as_tensor(path.astype(np.int64)) for path in each]


def paths_of_steps(paths: Sequence[Tensor], n_initial: Sequence[int]) -> tuple[list[Tensor], np.ndarray]:
    """Return paths of states without the first frames of a series, and whether each path is possible.

    If a series is encoded as changes, its first frames have no change and are no steps of the model.

    Args:
        paths: paths over all frames of each sequence, ``(T,)``.
        n_initial: number of first frames of each sequence that are no steps. They must have the state of the first
            step, or else the path is impossible.

    Returns:
        The paths of steps, and a mask ``(n,)`` that is True for possible paths.
    """
    can_be = [bool((path[:n] == path[n]).all()) for path, n in zip(paths, n_initial, strict=True)]
    return [path[n:] for path, n in zip(paths, n_initial, strict=True)], np.array(can_be)


def need_float64(examples: Sequence[Example]) -> bool:
    """Return True if squares of values in the encoded sequences ``examples`` are too large for float32.

    Raises:
        ValueError: they are too large for float64; the message names the sequence.
    """
    beyond = [
        (i, values)
        for i, example in enumerate(examples)
        for values in (example.source, example.values)
        if squares_exceed_float32(values)
    ]
    for i, values in beyond:
        assert values is not None
        refuse_beyond_float64(values, f"sequence {i}")
    return bool(beyond)


def log_dets(setting: Setting, data: Data, examples: Sequence[Example]) -> np.ndarray:
    """Return the nats that convert the log-probability of each encoded sequence to raw units, ``(n,)``.

    They are the log-determinants of the encoding, summed over the steps of x and y.

    Args:
        setting: encodings of the model.
        data: the raw sequences, with targets y or without.
        examples: the encoded sequences.
    """
    log_det = np.array([example.log_det for example in examples])
    if data.y is not None and setting.source_encoding is not None:  # sources are read by the encoding of targets
        log_det += [source.log_det for source in setting.examples(Data.of(data.X), on_disk=True)]
    return log_det


# -- the share of each state ---------------------------------------------------------------------------------


def stationary(initial: np.ndarray, transition: np.ndarray, final: np.ndarray | None) -> np.ndarray:
    """Return the share of the steps spent in each state in the long run, ``(K,)``, which sum to one.

    Without ``final`` it is ``lim 1/n Σ_t initial A^t``, where A is ``transition``: for each closed class (a set of
    states that is never left), the probability of reaching it times the unique ``π = π A`` of the class. With ``final``
    it is the expected number of visits ``initial (I - A)^-1``, divided by their sum. If a state that is reached never
    leads to an end, sequences that reach it outweigh all others, and the limit without ends is taken.

    Args:
        initial: probabilities of the first state, ``(K,)``.
        transition: transition probabilities, ``(K, K)``.
        final: probabilities of ending after each state, ``(K,)``, or None if ends are no events.

    >>> stationary(np.array([1.0, 0.0]), np.array([[0.9, 0.1], [0.3, 0.7]]), None)
    array([0.75, 0.25])
    """
    classes = closed_classes(transition, final)
    result = np.zeros(len(initial))
    transient = np.ones(len(initial), dtype=bool)
    transient[[state for states in classes for state in states]] = False
    visits = _visits(initial[transient], transition[np.ix_(transient, transient)])
    for states in classes:
        reached = initial[states].sum() + (visits @ transition[np.ix_(transient, states)]).sum()
        result[states] = reached * invariant(transition[np.ix_(states, states)])
    if not result.any():  # every sequence ends
        result[transient] = visits
    shares: np.ndarray = result / result.sum()
    return shares


def closed_classes(transition: np.ndarray, final: np.ndarray | None) -> list[np.ndarray]:
    """Return the closed classes of a chain: sets of states that lead to one another and are never left.

    Each is an array of state numbers.

    A class whose states may end the sequence does not count.

    Args:
        transition: transition probabilities, ``(K, K)``.
        final: probabilities of ending after each state, ``(K,)``, or None if ends are no events.
    """
    from scipy.sparse.csgraph import connected_components

    n, label = connected_components(transition > 0, directed=True, connection="strong")
    members = [np.flatnonzero(label == i) for i in range(n)]
    ends = np.zeros(len(transition)) if final is None else final
    can_leave = [ends[s].any() or transition[np.ix_(s, np.setdiff1d(np.arange(len(label)), s))].any() for s in members]
    return [states for states, leaves in zip(members, can_leave, strict=True) if not leaves]


def _visits(initial: np.ndarray, transition: np.ndarray) -> np.ndarray:
    """Return the expected number of visits to each transient state (one that is left for ever), ``initial (I - A)^-1``.

    Args:
        initial: probabilities that the sequence starts in each transient state, ``(n,)``.
        transition: transition probabilities A among these states, ``(n, n)``.
    """
    return np.linalg.solve(np.eye(len(initial)) - transition.T, initial)


# -- states in another order ---------------------------------------------------------------------------------


def permutation_of_states(
    order: Any, n_states: int, shares: Callable[[], np.ndarray], means: Callable[[], np.ndarray]
) -> np.ndarray:
    """Return the permutation of states, ``(K,)``, that the argument ``order`` of a model's ``reorder`` stands for.

    The new state i is the old state ``permutation[i]``.

    Args:
        order: a permutation, ``"mean"`` (sorted by mean, the first feature first) or ``"stationary"`` (the most visited
            first).
        n_states: number of states, K.
        shares: function that returns the share of the steps spent in each state, ``(K,)``.
        means: function that returns the mean of what each state emits, ``(K, D)`` for D features.

    Raises:
        ValueError: ``order`` is none of these, or states have no mean.
    """
    if not isinstance(order, str):
        permutation = np.array(order)  # a copy, because torch warns of read-only arrays, which pandas returns
        if permutation.shape != (n_states,) or not np.array_equal(np.sort(permutation), np.arange(n_states)):
            raise ValueError(f"order is {order!r}; pass each of the states 0 to {n_states - 1} once")
        return permutation
    if order == "stationary":
        return np.argsort(-shares(), kind="stable")
    if order != "mean":
        raise ValueError(f"order is {order!r}; pass 'mean', 'stationary' or a permutation of the states")
    return np.lexsort(means().T[::-1])


def reordered(choices: Mapping[str, Any], order: np.ndarray) -> dict[str, Any]:
    """Return those constructor arguments that refer to single states, changed to fit renumbered states, by name.

    They are ``topology``, ``pseudocount``, ``tied_durations``, ``observation`` with its priors, and ``training`` with
    what is tied and frozen and its prior.

    Args:
        choices: all arguments of the model by name.
        order: the new state i is the old ``order[i]``, ``(K,)``.
    """
    by_state: dict[str, Callable[[Any, np.ndarray], Any]] = {
        "topology": reordered_topology,
        "tied_durations": _reordered_groups,
        "pseudocount": reordered_counts,
        "observation": reordered_observation,
        "training": _reordered_training,
    }
    return {name: move(choices[name], order) for name, move in by_state.items() if name in choices}


def _reordered_training(training: ChainTraining, order: np.ndarray) -> ChainTraining:
    moved: ChainTraining = training.clone().set_params(
        tied=_reordered_groups(training.tied, order),
        frozen=_reordered_frozen(training.frozen, order),
        prior=_reordered_prior(training.prior, order),
    )
    return moved


def _reordered_groups(groups: Sequence[int] | None, order: np.ndarray) -> list[int] | None:
    return None if groups is None else [int(groups[i]) for i in order]


def reordered_topology(choice: Any, order: np.ndarray) -> Any:
    """Return the argument ``topology`` for renumbered states, given its value ``choice`` for the old numbers.

    The new state i is the old state ``order[i]``; ``order`` is ``(K,)``. The result is ``choice`` itself if the masks
    do not change, and otherwise an ``Arcs``, because a named topology relies on the numbers of the states.
    """
    k = len(order)
    topology, index = as_topology(choice, k), torch.as_tensor(order)
    masks = topology.transition_mask(k), topology.initial_mask(k), topology.final_mask(k)
    reordered_masks = masks[0][index][:, index], masks[1][index], masks[2][index]
    if all(torch.equal(*pair) for pair in zip(reordered_masks, masks, strict=True)):
        return choice
    is_ordered = topology.is_ordered and bool((index.diff() > 0).all())
    transition, initial, final = (mask.tolist() for mask in reordered_masks)
    return Arcs(transition, initial, final, is_ordered)


def reordered_observation(observation: Any, order: np.ndarray) -> Any:
    """Return ``observation`` for renumbered states: the new state i has the prior of the old state ``order[i]``.

    ``order`` is ``(K,)``. An observation without priors of single states is returned unchanged.
    """
    if not (isinstance(observation, GaussianMixture) and isinstance(observation.prior, PseudoFrames)):
        return observation
    prior = observation.prior
    reordered_prior = PseudoFrames(
        _by_state(prior.count, 2, order),
        _by_state(prior.mean, 3, order),
        _by_state(prior.covariance, 3, order),
        _by_state(prior.mean_count, 2, order),
    )
    result: Observation = observation.clone().set_params(prior=reordered_prior)
    return result


def _reordered_frozen(frozen: Any, order: np.ndarray) -> Any:
    if not isinstance(frozen, Frozen):
        return frozen
    by_state = (_renumbered(which, order) for which in (frozen.transition, frozen.emission, frozen.durations))
    return Frozen(frozen.initial, *by_state)


def _renumbered(which: Any, order: np.ndarray) -> Any:
    return which if isinstance(which, bool) else [i for i, old in enumerate(order.tolist()) if old in set(which)]


def reordered_counts(choice: Any, order: np.ndarray) -> Any:
    """Return the argument ``pseudocount`` for renumbered states, given its value ``choice`` for the old numbers.

    The new state i gets the counts of the old state ``order[i]``; ``order`` is ``(K,)``. A number is returned
    unchanged.
    """
    if not isinstance(choice, Pseudocounts):
        return choice
    transition = choice.transition
    if np.ndim(transition) == 2:
        transition = np.asarray(transition)[np.ix_(order, order)]
    initial, sticky, final = (_by_state(each, 1, order) for each in (choice.initial, choice.sticky, choice.final))
    return Pseudocounts(initial, transition, sticky, final)


def _reordered_prior(prior: ConjugatePrior | None, order: np.ndarray) -> ConjugatePrior | None:
    if prior is None:
        return None
    matrices = {name: getattr(prior, name) for name in ("transition", "jumps")}
    matrices = {n: np.asarray(m)[np.ix_(order, order)] if np.ndim(m) == 2 else m for n, m in matrices.items()}
    of_states = ("initial", "final", "count", "mean_count", "time", "mean_duration")
    by_state = {name: _by_state(getattr(prior, name), 1, order) for name in of_states}
    of_features = {name: _by_state(getattr(prior, name), 2, order) for name in ("mean", "covariance", "durations")}
    result: ConjugatePrior = prior.clone().set_params(**matrices, **by_state, **of_features)
    return result


def _by_state(values: Any, n_axes: int, order: np.ndarray) -> Any:
    """Return ``values`` with rows in a new order if they have an axis of states, and unchanged otherwise.

    Args:
        values: a number or an array of an argument that may be given by state.
        n_axes: number of axes that the array has if its first axis is the states; it must also have more than one row.
        order: the new row i is the old row ``order[i]``, ``(K,)``.
    """
    array = np.asarray(values)
    return array[order] if array.ndim == n_axes and len(array) > 1 else values
