"""Hyperparameters of an HMM that go by state, under other numbers: state i is what was ``order[i]``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from seqmodels.hmm.constraints import Frozen
from seqmodels.hmm.priors import Pseudocounts
from seqmodels.hmm.topology import Arcs, Topology, as_topology
from seqmodels.observations import GaussianMixture, Observation
from seqmodels.observations.pseudo_frames import PseudoFrames


def reordered(choices: Mapping[str, Any], order: np.ndarray) -> dict[str, Any]:
    """The hyperparameters of ``HMM`` that go by state: topology, tied groups, what is frozen, priors."""
    tied, frozen = choices["tied"], choices["frozen"]
    return {
        "topology": reordered_topology(choices["topology"], order),
        "tied": None if tied is None else [int(tied[i]) for i in order],
        "frozen": _frozen(frozen, order) if isinstance(frozen, Frozen) else frozen,
        "pseudocount": _counts(choices["pseudocount"], order),
        "observation": reordered_observation(choices["observation"], order),
    }


def reordered_topology(choice: Any, order: np.ndarray) -> Any:
    """The choice itself where all states are alike, otherwise ``Arcs``: states no longer follow by number."""
    k = len(order)
    topology, index = as_topology(choice, k), torch.as_tensor(order)
    masks = topology.arcs(k), topology.starts(k), topology.ends(k)
    reordered_masks = masks[0][index][:, index], masks[1][index], masks[2][index]
    if all(torch.equal(*pair) for pair in zip(reordered_masks, masks, strict=True)):
        return choice
    ordered = topology.is_ordered and bool((index.diff() > 0).all())
    transition, initial, final = (mask.tolist() for mask in reordered_masks)
    result: Topology = Arcs(transition, initial, final, ordered)
    return result


def reordered_observation(observation: Any, order: np.ndarray) -> Any:
    """With the prior of each state at its new place; what has no such prior, or is ``"auto"``, is returned as it is."""
    if not (isinstance(observation, GaussianMixture) and isinstance(observation.prior, PseudoFrames)):
        return observation
    prior = observation.prior
    reordered_prior = PseudoFrames(
        _by_state(prior.count, 2, order), _by_state(prior.mean, 3, order), _by_state(prior.covariance, 3, order)
    )
    result: Observation = observation.clone().set_params(prior=reordered_prior)
    return result


def _frozen(frozen: Frozen, order: np.ndarray) -> Frozen:
    return Frozen(frozen.initial, _states(frozen.transition, order), _states(frozen.emission, order))


def _states(which: Any, order: np.ndarray) -> Any:
    return which if isinstance(which, bool) else [i for i, old in enumerate(order.tolist()) if old in set(which)]


def _counts(choice: Any, order: np.ndarray) -> Any:
    if not isinstance(choice, Pseudocounts):
        return choice
    transition = choice.transition
    if np.ndim(transition) == 2:
        transition = np.asarray(transition)[np.ix_(order, order)]
    initial, sticky, final = (_by_state(values, 1, order) for values in (choice.initial, choice.sticky, choice.final))
    return Pseudocounts(initial, transition, sticky, final)


def _by_state(values: Any, n_axes: int, order: np.ndarray) -> Any:
    """Rows at their new places where there is an axis of states, the first of ``n_axes``, and it is not one for all."""
    array = np.asarray(values)
    return array[order] if array.ndim == n_axes and len(array) > 1 else values
