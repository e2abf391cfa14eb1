"""What an HMM was told of single states, under other numbers: state i is what was ``order[i]``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from seqmodels.hmm.constraints import Frozen
from seqmodels.hmm.priors import Pseudocounts
from seqmodels.hmm.topology import Arcs, Topology, as_topology
from seqmodels.observations import GaussianMixture, Observation
from seqmodels.observations.gaussian_mixture import PseudoFrames


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
    """The choice itself where all states are alike; otherwise ``Arcs``, whose states no longer follow one another by number."""
    k = len(order)
    topology, to = as_topology(choice, k), torch.as_tensor(order)
    arcs, starts, ends = topology.arcs(k), topology.starts(k), topology.ends(k)
    moved = arcs[to][:, to], starts[to], ends[to]
    if all(torch.equal(*pair) for pair in zip(moved, (arcs, starts, ends), strict=True)):
        return choice
    ordered = topology.is_ordered and bool((to.diff() > 0).all())
    transition, initial, final = (mask.tolist() for mask in moved)
    made: Topology = Arcs(transition, initial, final, ordered)
    return made


def reordered_observation(observation: Any, order: np.ndarray) -> Any:
    """With the prior of each state at its new place; fitted or ``"auto"``, anything without such a prior is returned as it is."""
    if not (isinstance(observation, GaussianMixture) and isinstance(observation.prior, PseudoFrames)):
        return observation
    prior = observation.prior
    moved = PseudoFrames(
        _by_state(prior.count, 2, order), _by_state(prior.mean, 3, order), _by_state(prior.covariance, 3, order)
    )
    changed: Observation = observation.clone().set_params(prior=moved)
    return changed


def _frozen(frozen: Frozen, order: np.ndarray) -> Frozen:
    return Frozen(frozen.initial, _states(frozen.transition, order), _states(frozen.emission, order))


def _states(which: Any, order: np.ndarray) -> Any:
    return which if isinstance(which, bool) else [i for i, old in enumerate(order.tolist()) if old in set(which)]


def _counts(choice: Any, order: np.ndarray) -> Any:
    if not isinstance(choice, Pseudocounts):
        return choice
    arcs = choice.transition if np.ndim(choice.transition) < 2 else np.asarray(choice.transition)[np.ix_(order, order)]
    each = (_by_state(values, 1, order) for values in (choice.initial, choice.sticky, choice.final))
    initial, sticky, final = each
    return Pseudocounts(initial, arcs, sticky, final)


def _by_state(values: Any, n_axes: int, order: np.ndarray) -> Any:
    """Rows at their new places where there is an axis of states, the first of ``n_axes``, and it is not one for all."""
    given = np.asarray(values)
    return given[order] if given.ndim == n_axes and len(given) > 1 else values
