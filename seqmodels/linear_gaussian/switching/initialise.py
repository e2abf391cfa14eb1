"""Starting parameters for EM of a switching system, from the states of a system without regimes.

A linear-Gaussian system is fitted first. Given its states, the regimes are those of an autoregressive HMM, which a few
steps of EM find from clusters of neighbouring pairs of states, or from random segments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from seqmodels.linear_gaussian.learning.em import SystemEM, SystemObjective
from seqmodels.linear_gaussian.learning.initialise import starts
from seqmodels.linear_gaussian.learning.statistics import SystemData
from seqmodels.linear_gaussian.learning.statistics import e_step as system_e_step
from seqmodels.linear_gaussian.parameters import SystemParameters
from seqmodels.linear_gaussian.switching.learning import SwitchingStart, floored, given_states, m_step
from seqmodels.linear_gaussian.switching.parameters import SwitchingForm, SwitchingParameters
from seqmodels.linear_gaussian.switching.variational import (
    RegimeBatch,
    RegimeChain,
    RegimeTables,
    StateChain,
    SwitchingStatistics,
    VariationalStep,
    statistics_of,
    variational_step,
)
from seqmodels.training import StopRule, run_em

SYSTEM_STEPS = 30  # of EM of the system without regimes
REGIME_STEPS = 15  # of EM of regimes given its states
CLUSTER_ROUNDS = 10
SOFTNESS = 0.1  # of first regimes: the share that is uniform
LEAST_STATE_NOISE = 1e-4  # eigenvalues of Q of the system, whose states have mean square 1


@dataclass(frozen=True)
class Initialiser:
    """The starting points of a fit with regimes, all derived from one fitted system without regimes.

    Attributes:
        system: the system without regimes.
        states: distribution of its smoothed states, for each batch.
        batches: packed sequences.
        form: which parameters are free.
        seed: seed of clusters and segments.
    """

    system: SwitchingParameters
    states: list[StateChain]
    batches: Sequence[RegimeBatch]
    form: SwitchingForm
    seed: int

    @classmethod
    def of(
        cls,
        values: Sequence[np.ndarray],
        weights: np.ndarray,
        batches: Sequence[RegimeBatch],
        form: SwitchingForm,
        n_states: int,
        seed: int,
    ) -> Initialiser:
        """Fit the system without regimes, and return the initialiser that uses it.

        Args:
            values: encoded sequences, each ``(T, D)``.
            weights: weight of each sequence, ``(n,)``.
            batches: the same sequences, packed.
            form: which parameters are free.
            n_states: number of hidden states.
            seed: seed of random starts.
        """
        fitted = fitted_system(values, weights, form, n_states, seed, SYSTEM_STEPS)
        system = SwitchingParameters.repeated(with_state_noise(fitted), 1)
        tables = RegimeTables.of(system)
        states = [variational_step(tables, batch, np.ones((len(batch.x), 1))).states for batch in batches]
        return cls(system, states, batches, form, seed)

    def start(self, number: int, n_regimes: int) -> SwitchingStart:
        """Return the start with the given number: from clusters of states if even, from random segments if odd."""
        rng = np.random.default_rng([self.seed, number])
        labels = self._clusters(n_regimes, rng) if number % 2 == 0 else self._segments(n_regimes, rng)
        first = SwitchingParameters.repeated(_without_regimes(self.system), n_regimes)
        by_feature = not all(batch.is_complete for batch in self.batches)
        total: SwitchingStatistics | None = None
        for batch, chain, of_batch in zip(self.batches, self.states, labels, strict=True):
            gamma = (1 - SOFTNESS) * np.eye(n_regimes)[of_batch] + SOFTNESS / n_regimes
            n, w = int(batch.packing.offsets[1]), batch.weights
            before, ranks = batch.packing.previous, batch.packing.ranks
            pairs = (gamma[before] * w[ranks[n:], None]).T @ gamma[n:]
            regimes = RegimeChain(gamma, w @ gamma[:n], pairs, np.zeros(n))
            step = VariationalStep(chain, regimes, np.zeros(n), chain.moves(batch.packing), chain.seen())
            sums = statistics_of(batch, step, by_feature=by_feature)
            total = sums if total is None else total + sums
        assert total is not None, "there is one batch at least"
        parameters = m_step(first, self.form, total)
        return SwitchingStart(*given_states(parameters, self.form, self.batches, self.states, REGIME_STEPS))

    def _clusters(self, n_regimes: int, rng: np.random.Generator) -> list[np.ndarray]:
        """Return for each row of each batch its regime, by k-means of the vectors ``(z_t, z_t - z_t-1)``.

        z_t are the smoothed states of the system without regimes; ``n_regimes`` is the number of clusters.
        """
        rows = []
        for batch, chain in zip(self.batches, self.states, strict=True):
            n, change = int(batch.packing.offsets[1]), np.zeros_like(chain.means)
            change[n:] = chain.means[n:] - chain.means[batch.packing.previous]
            rows.append(np.concatenate([chain.means, change], 1))
        joined = np.concatenate(rows)
        joined = joined / np.maximum(joined.std(0), 1e-12)
        labels = _nearest(joined, _means(joined, n_regimes, rng))
        return np.split(labels, np.cumsum([len(each) for each in rows])[:-1])

    def _segments(self, n_regimes: int, rng: np.random.Generator) -> list[np.ndarray]:
        """Return for each row of each batch a random regime, constant over segments of each sequence.

        A segment is a fifth of the batch's longest sequence.
        """
        labels = []
        for batch in self.batches:
            steps = np.repeat(np.arange(batch.packing.n_steps), batch.packing.counts)
            size = max(1, -(-batch.packing.n_steps // 5))
            drawn = rng.integers(n_regimes, size=(batch.packing.offsets[1], 5))
            labels.append(drawn[batch.packing.ranks, steps // size])
        return labels


def fitted_system(
    values: Sequence[np.ndarray], weights: np.ndarray, form: SwitchingForm, n_states: int, seed: int, max_iter: int
) -> SystemParameters:
    """Fit a linear-Gaussian system without regimes by EM, and return its parameters.

    Args:
        values: encoded sequences, each ``(T, D)``.
        weights: weight of each sequence, ``(n,)``.
        form: form of the switching system, whose kind of noise is used.
        n_states: number of hidden states.
        seed: seed of random starts.
        max_iter: number of EM steps.
    """
    data = SystemData(list(values), weights)
    tried = starts(values, n_states, form.of_one, seed)(0)
    log_probs = [float(system_e_step(each, form.of_one, data).log_prob) for each in tried]
    best = tried[int(np.argmax(log_probs))]
    objective = SystemObjective(form.of_one, 1.0, 0.0)
    (fitted,) = run_em(SystemEM(objective, data), [best], StopRule(max_iter, 0.0))
    return fitted.parameters


def with_state_noise(system: SystemParameters) -> SystemParameters:
    """Return the system with the eigenvalues of its state covariances raised to a floor.

    It keeps the precision matrices of states from overflowing.
    """
    return replace(
        system,
        state_covariance=floored(system.state_covariance, LEAST_STATE_NOISE),
        initial_covariance=floored(system.initial_covariance, LEAST_STATE_NOISE),
    )


def _without_regimes(one: SwitchingParameters) -> SystemParameters:
    K, D = one.sizes[1:]
    return SystemParameters(
        *(one.transition[0], one.state_covariance[0], one.observation[0], one.intercept[0]),
        *(one.observation_covariance[0], one.initial_mean, one.initial_covariance),
        *(np.zeros((K, 0)), np.zeros((D, 0))),
    )


def _means(x: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """Return n cluster means ``(n, F)`` of the rows of ``x (N, F)``, by k-means on at most 5,000 of them.

    Means begin by k-means++ (Arthur and Vassilvitskii 2007) and are improved by Lloyd's rounds.
    """
    some = x[rng.choice(len(x), min(len(x), 5_000), replace=False)]
    means = some[rng.integers(len(some))][None]
    while len(means) < n:
        distance = np.square(some[:, None] - means).sum(2).min(1)
        total = distance.sum()
        p = distance / total if total > 0 else np.full(len(some), 1 / len(some))
        means = np.concatenate([means, some[rng.choice(len(some), p=p)][None]])
    for _ in range(CLUSTER_ROUNDS):
        labels = _nearest(some, means)
        means = np.stack([some[labels == j].mean(0) if (labels == j).any() else means[j] for j in range(n)])
    return np.asarray(means)


def _nearest(x: np.ndarray, means: np.ndarray) -> np.ndarray:
    return np.asarray((np.square(means).sum(1) - 2 * x @ means.T).argmin(1))
