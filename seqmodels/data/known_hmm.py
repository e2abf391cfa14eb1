"""Sequences drawn from a known HMM, to measure how far a fitted model is from the best possible one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from seqmodels.common.main_memory import refuse_beyond_memory
from seqmodels.common.parameters import NotNegativeFloat, Seed, checked
from seqmodels.sequences import Sequences


@dataclass(frozen=True)
class KnownHMM:
    """The HMM that sequences were drawn from: ``p(x) = Σ_z initial[z_1] Π transition[z_{t-1}, z_t] Π b_{z_t}(x_t)``.

    K is the number of states, D of features, V of symbols, T of steps; ``b_k`` is the density or probability of a step
    in state k.

    Args:
        initial: probabilities of the first state, shape ``(K,)``.
        transition: probabilities of the next state, shape ``(K, K)``.
        means: means of the states, shape ``(K, D)``; None for symbols.
        covariances: variances of the states, shape ``(K, D)``, or full covariances, shape ``(K, D, D)``; None for
            symbols.
        emission: probabilities of the symbols in each state, shape ``(K, V)``; None for vectors.
        states: the path of states behind each sequence, shape ``(T,)``.
    """

    initial: np.ndarray
    transition: np.ndarray
    means: np.ndarray | None
    covariances: np.ndarray | None
    emission: np.ndarray | None
    states: list[np.ndarray]


@checked
def hmm_draws(
    n_sequences: int = 100,
    length: int = 50,
    *,
    n_states: int = 4,
    n_features: int | None = None,
    n_symbols: int | None = None,
    covariance_type: Literal["diag", "full"] = "diag",
    stay: float = 0.8,
    separation: NotNegativeFloat = 2.0,
    random_state: Seed = 0,
) -> tuple[Sequences, KnownHMM]:
    """Draw sequences from a random HMM and return them with it, so that the best possible score can be computed.

    Args:
        n_sequences: number of sequences.
        length: number of steps in every sequence.
        n_states: number K of states.
        n_features: number D of features of Gaussian vectors. Pass either this or ``n_symbols``.
        n_symbols: number V of symbols.
        covariance_type: form of the covariances of Gaussian states, whose variances are about one.
        stay: probability of staying in a state; the rest is divided among the other states at random.
        separation: standard deviation of the states' means, in units of the standard deviation within a state.
        random_state: seed of the HMM and of the draws.

    Returns:
        The sequences, and the HMM.

    Raises:
        ValueError: both or none of ``n_features`` and ``n_symbols`` are given, a size is below 1, ``stay`` is not a
            probability, or the draws do not fit into memory.

    >>> x, truth = hmm_draws(10, 20, n_states=3, n_symbols=5)
    >>> x.kind, truth.emission.shape
    ('symbols', (3, 5))
    """
    _check_hmm(n_sequences, length, n_states, n_features, n_symbols, stay)
    rng = np.random.default_rng(random_state)
    initial = rng.dirichlet(np.full(n_states, 2.0))
    transition = _transition(n_states, stay, rng)
    means = covariances = emission = None
    if n_features is not None:
        means = separation * rng.standard_normal((n_states, n_features))
        covariances = _covariances(n_states, n_features, covariance_type, rng)
    elif n_symbols is not None:
        emission = rng.dirichlet(np.full(n_symbols, 0.5), size=n_states)
    states = _draw_paths(n_sequences, length, initial, transition, rng)
    truth = KnownHMM(initial, transition, means, covariances, emission, list(states))
    draw = _vectors if emission is None else _symbols
    return Sequences(list(draw(states, truth, rng))), truth


def _check_hmm(
    n_sequences: int,
    length: int,
    n_states: int,
    n_features: int | None,
    n_symbols: int | None,
    stay: float,
) -> None:
    if (n_features is None) == (n_symbols is None):
        raise ValueError(
            f"n_features is {n_features} and n_symbols is {n_symbols}; pass n_features for vectors or n_symbols for "
            "symbols"
        )
    size = (n_features if n_symbols is None else n_symbols) or 0
    if min(n_sequences, length, n_states, size) < 1:
        raise ValueError(
            f"n_sequences, length, n_states and the size of a step are {n_sequences}, {length}, {n_states}, {size}; "
            "all count from 1"
        )
    if not 0 <= stay <= 1:
        raise ValueError(f"stay is {stay}; pass a probability")
    numbers = float(n_sequences) * length * (2 + (n_features or 1)) + float(n_states) * (n_states + size)
    refuse_beyond_memory("the draws", 8 * numbers, "pass fewer sequences, steps, states or features")


def _transition(n_states: int, stay: float, rng: np.random.Generator) -> np.ndarray:
    if n_states == 1:
        return np.ones((1, 1))
    transition = np.diag(np.full(n_states, stay))
    transition[~np.eye(n_states, dtype=bool)] = (1 - stay) * rng.dirichlet(np.ones(n_states - 1), n_states).ravel()
    return transition


def _covariances(n_states: int, n_features: int, kind: str, rng: np.random.Generator) -> np.ndarray:
    if kind == "diag":
        return rng.gamma(8.0, 1 / 8, (n_states, n_features))
    roots = rng.standard_normal((n_states, n_features, n_features)) / np.sqrt(n_features)
    covariances: np.ndarray = 0.5 * np.eye(n_features) + 0.5 * roots @ roots.swapaxes(1, 2)
    return covariances


def _draw_paths(
    n_sequences: int, length: int, initial: np.ndarray, transition: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Draw paths of states, ``(n_sequences, length)``, by inverting the cumulative distribution at each step.

    Args:
        n_sequences: number of paths.
        length: number of steps of each.
        initial: probabilities of the first of K states, ``(K,)``.
        transition: probabilities of the next state, ``(K, K)``.
        rng: generator of the draws.
    """
    uniform = rng.uniform(size=(length, n_sequences))
    states = np.empty((length, n_sequences), dtype=np.int64)
    states[0] = _invert(np.broadcast_to(initial, (n_sequences, len(initial))), uniform[0])
    for t in range(1, length):
        states[t] = _invert(transition[states[t - 1]], uniform[t])
    return states.T


def _invert(probability: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """Draw an index below K from each of n distributions by inverting its cumulative distribution.

    The last cumulative sum is not read, so rounding cannot give K.

    Args:
        probability: probabilities of K indices, ``(n, K)``.
        uniform: uniform random numbers from 0 to 1, ``(n,)``.
    """
    draws: np.ndarray = (probability.cumsum(axis=1)[:, :-1] <= uniform[:, None]).sum(axis=1)
    return draws


def _vectors(states: np.ndarray, truth: KnownHMM, rng: np.random.Generator) -> np.ndarray:
    """Draw Gaussian vectors of D features, ``(n, T, D)``, from the densities of known states.

    Args:
        states: state at each of T steps of n sequences, ``(n, T)``.
        truth: the HMM, with means and covariances.
        rng: generator of the draws.
    """
    assert truth.means is not None
    assert truth.covariances is not None
    noise = rng.standard_normal((*states.shape, truth.means.shape[1]))
    deviation: np.ndarray
    if truth.covariances.ndim == 2:
        deviation = np.sqrt(truth.covariances)[states] * noise
    else:
        deviation = np.einsum("ntde,nte->ntd", np.linalg.cholesky(truth.covariances)[states], noise)
    frames: np.ndarray = truth.means[states] + deviation
    return frames


def _symbols(states: np.ndarray, truth: KnownHMM, rng: np.random.Generator) -> np.ndarray:
    """Draw symbols, ``(n, T)``, from the emission probabilities of known states.

    Args:
        states: state at each of T steps of n sequences, ``(n, T)``.
        truth: the HMM, with emission probabilities.
        rng: generator of the draws.
    """
    assert truth.emission is not None
    return _invert(truth.emission[states.ravel()], rng.uniform(size=states.size)).reshape(states.shape)
