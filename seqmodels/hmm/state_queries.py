"""Questions to a fitted HMM about its states: those of sequences, the share of each, another order of them.

A missing value (NaN) says nothing of its feature; a frame of which all is missing leaves the state to its neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from seqmodels.encodings.examples import Example
from seqmodels.encodings.precision import refuse_beyond_float64, squares_exceed_float32
from seqmodels.encodings.raw_data import Data
from seqmodels.encodings.setting import Setting
from seqmodels.hmm.conjugate import ConjugatePrior
from seqmodels.hmm.corpus import Corpus, PackedBatch
from seqmodels.hmm.emissions import Emission
from seqmodels.hmm.learning.constraints import Frozen
from seqmodels.hmm.learning.first_state import invariant
from seqmodels.hmm.learning.priors import Pseudocounts
from seqmodels.hmm.parameters import Parameters
from seqmodels.hmm.topology import Arcs, as_topology
from seqmodels.inference.chains import scaled
from seqmodels.inference.chains.densities import Densities
from seqmodels.inference.chains.forward_backward import forward_backward_pass, forward_pass
from seqmodels.inference.chains.log_space import log_alpha_and_steps
from seqmodels.inference.chains.sampling import sample_paths
from seqmodels.inference.chains.viterbi import best_paths, log_prob_of_paths
from seqmodels.observations import GaussianMixture, Observation
from seqmodels.observations.gaussian_mixture import PseudoFrames
from seqmodels.sequences.items import in_words

Result = TypeVar("Result")
StateAlgorithm = Callable[[Parameters, Densities, PackedBatch], list[Result]]  # a result for each sequence

# -- the states of sequences ---------------------------------------------------------------------------------


def run_on_corpus(
    parameters: Parameters, emission: Emission, corpus: Corpus, algorithm: StateAlgorithm[Result]
) -> list[Result]:
    """What an algorithm over the states, such as ``batch_paths``, finds for each sequence of a corpus."""
    results: dict[int, Result] = {}
    for batch in corpus.each_batch():
        densities = batch.densities(emission, parameters, corpus.dtype)
        results.update(zip(batch.indices, algorithm(parameters, densities, batch), strict=True))
    return [results[i] for i in range(len(corpus.sequences))]


@torch.no_grad()
def batch_posterior(parameters: Parameters, densities: Densities, batch: PackedBatch) -> list[Tensor]:
    """p(z_t | x_1 .. x_T) of each sequence, ``(T, K)``; ``ValueError`` for one of probability zero."""
    posterior = forward_backward_pass(batch.trellis(parameters, densities))
    batch.refuse_impossible(posterior.log_prob)
    return batch.segments.split(posterior.gamma)


@torch.no_grad()
def batch_beliefs(parameters: Parameters, densities: Densities, batch: PackedBatch) -> list[Tensor]:
    """p(z_t | x_<=t) of each sequence, ``(T, K)``; zeros once it is impossible."""
    return batch.segments.split(forward_pass(batch.trellis(parameters, densities)).alpha)


@torch.no_grad()
def batch_last_log_beliefs(parameters: Parameters, densities: Densities, batch: PackedBatch) -> list[Tensor]:
    """log p(z_T | x) of each sequence, ``(K,)`` float64, exact in every state; -inf everywhere if it is impossible."""
    trellis = batch.trellis(parameters, densities)
    if trellis.log_transitions is None:
        ran = scaled.forward(trellis)
        if not ran.failed.any() and scaled.loss_is_negligible(trellis, ran.scale):
            return list(ran.alpha[batch.segments.last].double().log())
    whole, _ = trellis.take(torch.arange(batch.segments.n_sequences, device=densities.device))
    return list(log_alpha_and_steps(whole)[0][whole.segments.last])


@torch.no_grad()
def batch_paths(parameters: Parameters, densities: Densities, batch: PackedBatch) -> list[Tensor]:
    """The best path of each sequence, ``(T,)``."""
    paths, log_prob = best_paths(batch.trellis(parameters, densities))
    batch.refuse_impossible(log_prob)
    return list(paths.split(batch.segments.lengths.tolist()))


@torch.no_grad()
def batch_log_prob_of_paths(
    parameters: Parameters, densities: Densities, batch: PackedBatch, paths: Sequence[Tensor]
) -> list[Tensor]:
    """log p(path, x) of each sequence, float64 nats; ``paths``, ``(T,)`` states, of all sequences of the corpus."""
    path = torch.cat([paths[i] for i in batch.indices]).to(densities.device)
    return list(log_prob_of_paths(batch.trellis(parameters, densities), path))


def batch_draws(
    parameters: Parameters, densities: Densities, batch: PackedBatch, n: int, generator: torch.Generator
) -> list[Tensor]:
    """``n`` paths of each sequence drawn from p(z | x), ``(T, n)``."""
    paths, log_prob = sample_paths(batch.trellis(parameters, densities), n, generator)
    batch.refuse_impossible(log_prob)
    return list(paths.split(batch.segments.lengths.tolist()))


def checked_paths(paths: Any, n_steps: Sequence[int], n_states: int) -> list[Tensor]:
    """A path of states for each sequence; raises ``ValueError``, naming the sequence, for what is none."""
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
    """Of paths of frames those of steps, and ``(n,)`` whether they can be: first frames of a series that are no steps,
    ``n_initial``, have the state of the first step.
    """
    can_be = [bool((path[:n] == path[n]).all()) for path, n in zip(paths, n_initial, strict=True)]
    return [path[n:] for path, n in zip(paths, n_initial, strict=True)], np.array(can_be)


def need_float64(examples: Sequence[Example]) -> bool:
    """Whether float32 cannot hold what is to be read; raises ``ValueError``, naming the sequence, for what float64
    cannot hold.
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
    """``(n,)`` nats to add to the log-probability of each encoded sequence, of x and y, for that in raw units."""
    log_det = np.array([example.log_det for example in examples])
    if data.y is not None and setting.source_encoding is not None:  # sources are read by the encoding of targets
        log_det += [source.log_det for source in setting.examples(Data.of(data.X), on_disk=True)]
    return log_det


# -- the share of each state ---------------------------------------------------------------------------------


def stationary(initial: np.ndarray, transition: np.ndarray, final: np.ndarray | None) -> np.ndarray:
    """``(K,)`` shares of the steps spent in each state; sums to one.

    Without ``final``: ``lim 1/n Σ_t initial A^t``: the chance of ending up in each closed class of states, times the
    one ``π = π A`` of the class. With it: expected visits ``initial (I - A)^-1``, as shares; where some state that is
    reached never leads to an end, such a sequence outweighs all others and the limit is taken.

    >>> stationary(np.array([1.0, 0.0]), np.array([[0.9, 0.1], [0.3, 0.7]]), None)
    array([0.75, 0.25])
    """
    classes = _closed_classes(transition, final)
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


def _closed_classes(transition: np.ndarray, final: np.ndarray | None) -> list[np.ndarray]:
    """The sets of states that lead to one another and to nothing else."""
    from scipy.sparse.csgraph import connected_components

    n, label = connected_components(transition > 0, directed=True, connection="strong")
    members = [np.flatnonzero(label == i) for i in range(n)]
    ends = np.zeros(len(transition)) if final is None else final
    can_leave = [ends[s].any() or transition[np.ix_(s, np.setdiff1d(np.arange(len(label)), s))].any() for s in members]
    return [states for states, leaves in zip(members, can_leave, strict=True) if not leaves]


def _visits(initial: np.ndarray, transition: np.ndarray) -> np.ndarray:
    """Expected visits of transient states, ``initial (I - A)^-1``."""
    return np.linalg.solve(np.eye(len(initial)) - transition.T, initial)


# -- states in another order ---------------------------------------------------------------------------------


def permutation_of_states(order: Any, shares: Callable[[], np.ndarray], raw: Mapping[str, np.ndarray]) -> np.ndarray:
    """``(K,)``: what ``HMM.reorder(order)`` means; state i is to be what was state ``permutation[i]``.

    Args:
        order: a permutation, ``"mean"`` or ``"stationary"``.
        shares: computes the ``(K,)`` shares of the steps spent in each state.
        raw: the parameters of the emissions, by attribute name.
    """
    if not isinstance(order, str):
        return np.array(order)  # a copy: torch warns of arrays that cannot be written to, as those of pandas
    if order == "stationary":
        return np.argsort(-shares(), kind="stable")
    if order != "mean" or not {"weights_", "means_"} <= raw.keys():
        raise ValueError(
            f"order is {order!r}; pass 'stationary', 'mean' where each state has the mean of a Gaussian, or a "
            "permutation, such as np.argsort of a column of state_summary()"
        )
    means = np.einsum("km,kmd->kd", raw["weights_"], raw["means_"])
    return np.lexsort(means.T[::-1])


def reordered(choices: Mapping[str, Any], order: np.ndarray) -> dict[str, Any]:
    """Return the hyperparameters of a chain that are said of single states, for the states in another order.

    These are its topology and pseudocounts, the priors of its observation, and in ``training`` what is tied and frozen
    and the prior.
    """
    training = choices["training"]
    tied, frozen = training.tied, training.frozen
    return {
        "topology": reordered_topology(choices["topology"], order),
        "pseudocount": reordered_counts(choices["pseudocount"], order),
        "observation": reordered_observation(choices["observation"], order),
        "training": training.clone().set_params(
            tied=None if tied is None else [int(tied[i]) for i in order],
            frozen=_reordered_frozen(frozen, order) if isinstance(frozen, Frozen) else frozen,
            prior=_reordered_prior(training.prior, order),
        ),
    }


def reordered_topology(choice: Any, order: np.ndarray) -> Any:
    """The choice itself where all states are alike, otherwise ``Arcs``: states no longer follow by number."""
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
    """With the prior of each state at its new place; what has no such prior, or is ``"auto"``, is returned as it is."""
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


def _reordered_frozen(frozen: Frozen, order: np.ndarray) -> Frozen:
    by_state = (_renumbered(which, order) for which in (frozen.transition, frozen.emission, frozen.durations))
    return Frozen(frozen.initial, *by_state)


def _renumbered(which: Any, order: np.ndarray) -> Any:
    return which if isinstance(which, bool) else [i for i, old in enumerate(order.tolist()) if old in set(which)]


def reordered_counts(choice: Any, order: np.ndarray) -> Any:
    """``pseudocount`` with those of each state at its new place."""
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
    transition = prior.transition
    if np.ndim(transition) == 2:
        transition = np.asarray(transition)[np.ix_(order, order)]
    by_state = {name: _by_state(getattr(prior, name), 1, order) for name in ("initial", "final", "count", "mean_count")}
    of_features = {name: _by_state(getattr(prior, name), 2, order) for name in ("mean", "covariance")}
    result: ConjugatePrior = prior.clone().set_params(transition=transition, **by_state, **of_features)
    return result


def _by_state(values: Any, n_axes: int, order: np.ndarray) -> Any:
    """Rows at their new places where there is an axis of states, the first of ``n_axes``, and it is not one for all."""
    array = np.asarray(values)
    return array[order] if array.ndim == n_axes and len(array) > 1 else values
