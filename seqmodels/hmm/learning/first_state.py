"""The distribution of the first state: learned, the chain's stationary one, or uniform (``HMM(start=...)``).

A few sequences say little about where sequences start: learned freely, ``initial`` ends as the posterior of those first
states, a point mass after one sequence. Where the data are a part of a process that began long before, the first state
has the stationary distribution ``π = π A``. Where ends are events it has the left Perron vector ``π A = ρ π``, the
distribution of the state given that the sequence goes on. The M-step then maximises

    ``Q(A) = Σ_i γ_i log π_i(A) + Σ_ij ξ_ij log a_ij``,

which has no closed form (Zucchini, MacDonald and Langrock 2016, *Hidden Markov models for time series*, section 4.2.5).
With ``dπ = π dA Y``, the derivative of the first sum by ``a_ij`` is ``π_i y_j``, so that at the maximum ``a_ij = (ξ_ij
+ a_ij π_i (y_j - Σ_l a_il y_l)) / Σ_l ξ_il``: counts with a small correction, taken as a step upwards in the natural
gradient's direction, halved until Q rises. Every M-step improves on the parameters before it, so EM stays monotone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from seqmodels.hmm.parameters import Parameters
from seqmodels.hmm.topology import Topology
from seqmodels.inference.chains.parallel_segments import is_ergodic

Start = Literal["free", "stationary", "uniform"]
STARTS: tuple[Start, ...] = ("free", "stationary", "uniform")

ROUNDS = 4  # corrections in one M-step, each from the result of the one before
HALVINGS = 30  # most halvings of a step that does not improve
NEGLIGIBLE_GAIN = 1e-10  # nats per expected transition; a round that gains less is the last


def is_irreducible(topology: Topology, n_states: int) -> bool:
    """Return True if, under ``topology``, every state leads to every other one and every state may be the first."""
    return _leads_everywhere(topology.transition_mask(n_states)) and bool(topology.initial_mask(n_states).all())


def _leads_everywhere(mask: Tensor) -> bool:
    mask = mask.cpu().bool()
    return is_ergodic(mask | torch.eye(len(mask), dtype=torch.bool))  # self-transitions, because periods do not matter


def with_start(parameters: Parameters, start: Start, topology: Topology) -> Parameters:
    """Return the parameters with the distribution of the first state that ``start`` determines.

    It is uniform over the states that ``topology`` allows, or the stationary distribution of the transitions;
    ``"free"`` keeps it as it is.
    """
    if start == "free":
        return parameters
    if start == "uniform":
        mask = topology.initial_mask(len(parameters.initial)).to(parameters.initial)
        return replace(parameters, initial=mask / mask.sum())
    return replace(parameters, initial=stationary_initial(parameters.transition, parameters.final))


def check_initial(parameters: Parameters, start: Start, topology: Topology) -> None:
    """Raise ``ValueError`` unless ``parameters.initial`` is the distribution of the first state that ``start``
    determines.

    Under ``"stationary"`` it is that of the transitions, under ``"uniform"`` the uniform one over the states that
    ``topology`` allows.
    """
    if start == "stationary" and not _leads_everywhere(parameters.transition > 0):
        raise ValueError(
            "start='stationary' needs a chain in which every state leads to every other, which these transitions do "
            "not; pass start='free'"
        )
    expected = with_start(parameters, start, topology).initial
    if not torch.allclose(expected, parameters.initial, rtol=0, atol=1e-6):
        raise ValueError(
            f"start={start!r} means that initial is {expected.numpy().round(6).tolist()}, but it is "
            f"{parameters.initial.numpy().round(6).tolist()}; pass the former, or start='free'"
        )


def stationary_initial(transition: Tensor, final: Tensor | None) -> Tensor:
    """Return the stationary distribution ``(K,)`` of an irreducible chain (every state leads to every other).

    Args:
        transition: transition probabilities, ``(K, K)``.
        final: probabilities of the end after each state, ``(K,)``, or None if ends are not events. Only whether they
            are given matters: with ends the result is the distribution of the state given that the sequence goes on.
    """
    initial, _, _ = _perron(transition.cpu().numpy(), has_final=final is not None)
    return torch.as_tensor(initial, device=transition.device)


def invariant(transition: np.ndarray) -> np.ndarray:
    """Return the unique stationary distribution ``π = π A`` of an irreducible chain with transitions A, ``(K,)``."""
    k = len(transition)
    solution = np.linalg.solve((np.eye(k) - transition + 1.0 / k).T, np.full(k, 1.0 / k)).clip(min=0.0)
    shares: np.ndarray = solution / solution.sum()
    return shares


def differentiable_stationary(transition: Tensor, *, refuses: bool = True, ends: bool = False) -> Tensor:
    """Return the stationary distribution ``(..., K)`` of transitions ``(..., K, K)``, differentiable in the
    transitions.

    Args:
        transition: transition probabilities; rows sum to one, or with ``ends`` to less.
        refuses: True to raise torch's ``LinAlgError`` for a chain without a unique stationary distribution; False to
            return numbers that are not finite for it.
        ends: True if the end of a sequence is an event; the result is then the left Perron vector, which is the
            distribution of the state given that the sequence goes on.
    """
    if ends:
        values, vectors = torch.linalg.eig(transition.mT)
        largest = values.real.argmax(-1)
        perron = vectors.gather(-1, largest[..., None, None].expand(*vectors.shape[:-1], 1)).squeeze(-1)
        shares: Tensor = (perron / perron.sum(-1, keepdim=True)).real
        return shares
    system, even = _stationary_system(transition)
    stationary: Tensor = torch.linalg.solve(system, even) if refuses else torch.linalg.solve_ex(system, even).result
    return stationary.squeeze(-1)


def log_stationary(log_a: Tensor) -> Tensor:
    """Return log-probabilities of the stationary distribution of Markov chains, ``(..., K)``.

    ``log_a`` are the logarithms of the transition probabilities, ``(..., K, K)``. A chain that is not irreducible has
    many stationary distributions; the result is then the least-squares solution, which is spread evenly.
    """
    system, even = _stationary_system(log_a.exp())
    solution, info = torch.linalg.solve_ex(system, even)
    if bool((info != 0).any()):
        solution = torch.where((info != 0)[..., None, None], torch.linalg.pinv(system) @ even, solution)
    log_initial: Tensor = solution.squeeze(-1).clamp(min=0.0).log()
    return log_initial


def _stationary_system(transition: Tensor) -> tuple[Tensor, Tensor]:
    """Return the matrix ``(..., K, K)`` and right side ``(..., K, 1)`` of the equations that the stationary
    distribution solves.
    """
    k = transition.shape[-1]
    system = torch.eye(k, dtype=transition.dtype, device=transition.device) - transition + 1.0 / k
    return system.mT, torch.full_like(transition[..., :1], 1.0 / k)


def stationary_rows(counts: Tensor, previous: Tensor, first: Tensor, is_free: Tensor) -> Tensor:
    """Return transition probabilities after an M-step in which the first state has their stationary distribution.

    Args:
        counts: expected transitions, ``(K, K)``, or ``(K, K + 1)`` with a column of ends.
        previous: probabilities before the M-step, in the same shape; those that are zero stay zero.
        first: expected first states, ``(K,)``.
        is_free: False for states whose rows stay unchanged, ``(K,)``.

    Returns:
        Probabilities in the shape of ``previous``, for which the expected log-probability Q of transitions and first
        states is at least as large as for ``previous``.
    """
    n, rows, g = (t.cpu().numpy().astype(np.float64) for t in (counts, previous, first))
    improved, _ = stationary_step(n, rows, g, is_free.numpy())
    return torch.as_tensor(improved, device=previous.device)


def stationary_step(
    counts: np.ndarray, previous: np.ndarray, first: np.ndarray, is_free: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return transition probabilities after an M-step with a stationary first state, and their stationary distribution.

    The shapes are that of ``previous`` and ``(K,)``. The expected log-probability of transitions and first states does
    not decrease.

    Args:
        counts: expected transitions, ``(K, K)``, or ``(K, K + 1)`` with a column of ends.
        previous: probabilities before the M-step, in the same shape; those that are zero stay zero.
        first: expected first states, ``(K,)``.
        is_free: False for states whose rows stay unchanged, ``(K,)``.
    """
    k = len(first)
    if previous.shape[1] > k:
        rows = _with_ends(counts, previous, first, is_free[:, None])
        return rows, _perron(rows[:, :k], has_final=True)[0]
    from seqmodels.hmm.learning.stationary_loops import ascend

    rows, initial = ascend(counts, previous, first, is_free, ROUNDS, HALVINGS, NEGLIGIBLE_GAIN)
    return rows, invariant(rows) if np.isnan(initial).any() else initial


def _with_ends(n: np.ndarray, previous: np.ndarray, g: np.ndarray, free: np.ndarray) -> np.ndarray:
    """Return transition and end probabilities after an M-step in which the first state has the stationary distribution.

    The chain has ends as events; its first state has the distribution of the state given that the sequence goes on.

    Args:
        n: expected transitions and, in the last column, ends, ``(K, K + 1)``.
        previous: probabilities before, ``(K, K + 1)``.
        g: expected first states, ``(K,)``.
        free: False for rows that stay unchanged, ``(K, 1)``.
    """
    rows, k, total = previous, len(g), n.sum(1, keepdims=True)
    value, perron = _objective(rows, n, g)
    if perron is None or value == -np.inf:
        return previous  # because a reducible chain has no unique stationary distribution
    for _ in range(ROUNDS):
        pi = perron[0][:, None]
        y = np.append(_influence(rows[:, :k], g, *perron), 0.0)  # 0 for the end, because it leads to no state
        along = (rows @ y)[:, None]
        # The step is divided by the largest downward correction too, so that no probability becomes negative.
        room = pi * np.maximum(along - np.where(rows > 0, y, np.inf).min(1, keepdims=True), 0.0)
        size = np.where(total + room > 0, total + room, 1.0)
        step = np.where(free & (total + room > 0), (n - total * rows + rows * pi * (y - along)) / size, 0.0)
        before = value
        for halving in range(HALVINGS):
            candidate = np.maximum(rows + step * 0.5**halving, 0.0)
            candidate /= candidate.sum(1, keepdims=True)
            candidate = np.where(free, candidate, rows)
            new_value, new_perron = _objective(candidate, n, g)
            if new_perron is not None and new_value > value:
                rows, value, perron = candidate, new_value, new_perron
                break
        if value - before <= NEGLIGIBLE_GAIN * max(float(total.sum()), 1.0):
            break
    return rows


Perron = tuple[np.ndarray, float, np.ndarray]


def _objective(rows: np.ndarray, counts: np.ndarray, first: np.ndarray) -> tuple[float, Perron | None]:
    """Return the M-step's objective Q of a chain with ends in nats, and the chain's Perron vectors (see ``_perron``).

    They are -inf and None if the chain has no stationary distribution. ``rows`` and ``counts``: transitions and, in the
    last column, ends, ``(K, K + 1)``; ``first``: expected first states, ``(K,)``.
    """
    try:
        perron = _perron(rows[:, : len(first)], has_final=True)
    except np.linalg.LinAlgError:
        return -np.inf, None
    with np.errstate(divide="ignore", invalid="ignore"):
        of_rows = counts[counts > 0] @ np.log(rows[counts > 0])
        of_first = first[first > 0] @ np.log(perron[0][first > 0])
    value = float(of_rows + of_first)
    return (value, perron) if value > -np.inf else (-np.inf, perron)


def _perron(transition: np.ndarray, *, has_final: bool) -> Perron:
    """Return the largest eigenvalue ``ρ`` of the transitions, with its left and right eigenvectors π and v, ``(K,)``.

    They satisfy ``π A = ρ π``, ``A v = ρ v``, ``Σ π = 1`` and ``π v = 1``, and are returned in the order ``π, ρ, v``.
    Without ends ``ρ`` is 1 and ``v`` is all ones.
    """
    k = len(transition)
    if not has_final:
        return invariant(transition), 1.0, np.ones(k)
    values, right = np.linalg.eig(transition)
    largest = int(np.argmax(values.real))
    left_values, left = np.linalg.eig(transition.T)
    initial = np.abs(left[:, int(np.argmax(left_values.real))].real)
    initial, v = initial / initial.sum(), np.abs(right[:, largest].real)
    return initial, float(values[largest].real), v / (initial @ v)


def _influence(transition: np.ndarray, first: np.ndarray, pi: np.ndarray, rho: float, v: np.ndarray) -> np.ndarray:
    """Return y ``(K,)``, for which the derivative of ``Σ γ_i log π_i`` by the transition ``a_ij`` is ``π_i y_j``.

    Args:
        transition: transition probabilities, ``(K, K)``.
        first: expected first states γ, ``(K,)``.
        pi, rho, v: the results of ``_perron``.
    """
    slope = np.divide(first, pi, out=np.zeros_like(pi), where=first > 0) - first.sum()
    influence: np.ndarray = np.linalg.solve(rho * np.eye(len(pi)) - transition + np.outer(v, pi), slope)
    return influence
