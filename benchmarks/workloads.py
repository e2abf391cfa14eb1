"""The four workloads: data drawn from a known HMM, and the parameters every library starts from; numpy alone, by seed.

W1 is of the size of a small speech corpus, W2 many short sequences of few dimensions, W3 one long sequence, W4 symbols
with many states.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

Lengths = Literal["own", "equal"]


@dataclass(frozen=True)
class MixtureData:
    """Sizes of a Gaussian-mixture workload (M components, D features) and the spread of its states and components."""

    n_components: int
    n_features: int
    between_states: float
    between_components: float


@dataclass(frozen=True)
class Size:
    """``n_sequences`` of ``shortest`` to ``longest`` frames; the emissions are mixtures, or ``n_symbols`` symbols."""

    seed: int
    n_sequences: int
    shortest: int
    longest: int
    n_states: int
    mixture: MixtureData | None = None
    n_symbols: int = 0


SIZES = {
    "W1": Size(11, 200, 150, 450, 48, MixtureData(8, 39, 0.40, 0.35)),
    "W2": Size(12, 1000, 50, 150, 5, MixtureData(3, 2, 1.5, 0.7)),
    "W3": Size(13, 1, 200_000, 200_000, 8, MixtureData(2, 1, 2.0, 0.7)),
    "W4": Size(14, 500, 200, 200, 256, n_symbols=64),
}


@dataclass(frozen=True)
class Mixture:
    """``weights (K, M)``, ``means (K, M, D)``, ``variances (K, M, D)``."""

    weights: np.ndarray
    means: np.ndarray
    variances: np.ndarray


@dataclass(frozen=True)
class Workload:
    """Data ``x``, ``(N, D)`` float64 or ``(N,)`` int64, sequences one after another, and where EM starts.

    Attributes:
        lengths: ``(n,)`` frames in each sequence.
        initial, transition: ``(K,)``, ``(K, K)``.
        emission: a ``Mixture``, or ``(K, V)`` probabilities of symbols.
    """

    name: str
    x: np.ndarray
    lengths: np.ndarray
    initial: np.ndarray
    transition: np.ndarray
    emission: Mixture | np.ndarray

    @property
    def sequences(self) -> list[np.ndarray]:
        """One array a sequence."""
        return np.split(self.x, self.lengths.cumsum()[:-1])

    @property
    def stacked(self) -> np.ndarray:
        """``(n, T, D)`` or ``(n, T)``; the sequences must be of equal lengths."""
        assert (self.lengths == self.lengths[0]).all(), "only sequences of equal lengths stack"
        return self.x.reshape(len(self.lengths), self.lengths[0], *self.x.shape[1:])

    def first(self, n_sequences: int) -> Workload:
        """The first sequences alone."""
        lengths = self.lengths[:n_sequences]
        return replace(self, lengths=lengths, x=self.x[: lengths.sum()])


def make(name: str, lengths: Lengths = "own") -> Workload:
    """One of ``SIZES``; ``"equal"``: every sequence has the mean length, for libraries that take no others."""
    if name not in SIZES:
        raise ValueError(f"there is no workload {name!r}; pass one of {', '.join(SIZES)}")
    size = SIZES[name]
    random = np.random.default_rng(size.seed)
    frames = random.integers(size.shortest, size.longest + 1, size=size.n_sequences)
    if lengths == "equal":
        frames[:] = (size.shortest + size.longest) // 2
    k = size.n_states
    initial, transition = _chain(k, random)
    states = _states(initial, transition, frames, random)
    begun = 0.7 * transition + 0.3 * random.dirichlet(np.ones(k), size=k)
    begun /= begun.sum(1, keepdims=True)
    x, emission = _symbols(size, states, random) if size.mixture is None else _vectors(k, size.mixture, states, random)
    return Workload(name, x, frames, np.full(k, 1 / k), begun, emission)


def _chain(k: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """The true chain: a state stays with 0.8 and more."""
    initial = random.dirichlet(np.ones(k))
    return initial, 0.8 * np.eye(k) + 0.2 * random.dirichlet(np.full(k, 0.5), size=k)


def _states(
    initial: np.ndarray, transition: np.ndarray, lengths: np.ndarray, random: np.random.Generator
) -> np.ndarray:
    """(N,) hidden states, all sequences side by side to the longest, then cut."""
    uniform = random.random((lengths.max(), len(lengths)))
    into = transition.cumsum(1)
    path = np.empty(uniform.shape, dtype=np.int64)
    path[0] = _choose(np.broadcast_to(initial.cumsum(), (len(lengths), len(initial))), uniform[0])
    for t in range(1, len(path)):
        path[t] = _choose(into[path[t - 1]], uniform[t])
    return np.concatenate([path[:length, i] for i, length in enumerate(lengths)])


def _choose(cumulative: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """(n,) one index per row of (n, k) cumulative probabilities; the last where rounding leaves their sum below one."""
    return np.minimum((cumulative < uniform[:, None]).sum(1), cumulative.shape[1] - 1)


def _vectors(k: int, data: MixtureData, states: np.ndarray, random: np.random.Generator) -> tuple[np.ndarray, Mixture]:
    """(N, D) draws from the true mixtures, and the mixtures to start from: means moved a little, unit variances."""
    m, d = data.n_components, data.n_features
    means = data.between_states * random.standard_normal((k, 1, d))
    means = means + data.between_components * random.standard_normal((k, m, d))
    variances = random.uniform(0.5, 1.5, size=(k, m, d)) * (0.5 if d <= 2 else 1.0)
    weights = random.dirichlet(np.full(m, 5.0), size=k)
    component = _choose(weights.cumsum(1)[states], random.random(len(states)))
    noise = random.standard_normal((len(states), d))
    x = means[states, component] + np.sqrt(variances[states, component]) * noise
    begun = means + 0.15 * random.standard_normal(means.shape)
    return x, Mixture(np.full((k, m), 1 / m), begun, np.ones_like(variances))


def _symbols(size: Size, states: np.ndarray, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """(N,) draws from the true tables, and the ``(K, V)`` table to start from: halfway to a random one."""
    table = random.dirichlet(np.full(size.n_symbols, 0.1), size=size.n_states)
    x = _choose(table.cumsum(1)[states], random.random(len(states)))
    return x, 0.5 * table + 0.5 * random.dirichlet(np.ones(size.n_symbols), size=size.n_states)
