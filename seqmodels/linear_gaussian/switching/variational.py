"""Structured mean field of a switching linear-Gaussian system (Ghahramani and Hinton 2000).

``q(z) q(s)`` stands for ``p(z, s | x)``: a Gaussian chain of states and a Markov chain of regimes, each exact given the
other. Given q(s), ``q(z)`` has the block-tridiagonal precision that the expected quadratic forms add up to; given q(z),
``q(s)`` is that of an HMM whose log-densities are expected ones. The bound is

    E[log p(x, z | s)] + log-evidence of that HMM + entropy of q(z)  <=  log p(x)

and neither step lowers it. Of one regime it is log p(x).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from seqmodels.common.constants import LOG_2PI
from seqmodels.inference.gaussian.packing import StepPacking
from seqmodels.linear_gaussian.switching.parameters import SwitchingParameters

FRAMES_AT_ONCE = 4_096


@dataclass(frozen=True)
class RegimeBatch:
    """A batch of n sequences, packed into N rows: all first steps, then all second steps, and so on.

    Attributes:
        packing: order of the sequences and number of them at each step.
        weights: weight of each sequence, the longest first, ``(n,)``.
        x: packed values, ``(N, D)``, NaN where one is missing.
        patterns: groups of rows that miss the same features: indices of the rows, and True for each feature that is
            observed, ``(D,)``.
    """

    packing: StepPacking
    weights: np.ndarray
    x: np.ndarray
    patterns: list[tuple[np.ndarray, np.ndarray]]

    @classmethod
    def of(cls, values: Sequence[np.ndarray], weights: np.ndarray) -> RegimeBatch:
        """Return a batch of the given sequences, each ``(T, D)``, packed, with their ``weights (n,)``."""
        packing = StepPacking.of([len(each) for each in values])
        x = packing.pack([np.asarray(each, dtype=np.float64) for each in values])
        observed, which = np.unique(~np.isnan(x), axis=0, return_inverse=True)
        patterns = [(np.flatnonzero(which.reshape(-1) == i), observed[i]) for i in range(len(observed))]
        return cls(packing, weights[packing.order], x, patterns)

    @property
    def is_complete(self) -> bool:
        """True if no value of the batch is missing."""
        return len(self.patterns) == 1 and bool(self.patterns[0][1].all())


def batches_of(values: Sequence[np.ndarray], weights: np.ndarray) -> tuple[list[RegimeBatch], list[np.ndarray]]:
    """Divide sequences into batches of similar lengths, of a few thousand steps each.

    Args:
        values: encoded sequences, each ``(T, D)``.
        weights: weight of each sequence, ``(n,)``.

    Returns:
        The batches, and for each batch the numbers of its sequences.
    """
    order = np.argsort([-len(each) for each in values], kind="stable")
    batches, numbers, start = [], [], 0
    while start < len(order):
        stop, n = start + 1, len(values[order[start]])
        while stop < len(order) and n + len(values[order[stop]]) <= FRAMES_AT_ONCE:
            n += len(values[order[stop]])
            stop += 1
        here = order[start:stop]
        batches.append(RegimeBatch.of([values[i] for i in here], weights[here]))
        numbers.append(here)
        start = stop
    return batches, numbers


@dataclass(frozen=True)
class StateChain:
    """The mean-field distribution q(z) of the K hidden states of n packed sequences, a Gaussian Markov chain.

    Attributes:
        means: E[z_t] of each of N packed rows (steps of sequences), ``(N, K)``.
        covariances: Cov[z_t], ``(N, K, K)``.
        across: Cov[z_t, z_t-1], ``(N, K, K)``; 0 for first steps.
        entropy: entropy of each sequence in nats, ``(n,)``.
    """

    means: np.ndarray
    covariances: np.ndarray
    across: np.ndarray
    entropy: np.ndarray

    def moves(self, packing: StepPacking) -> np.ndarray:
        """Return second moments of each pair of successive states: E[u uᵀ] of ``u = (z_t, z_t-1, 1)``.

        ``packing`` is the packing of the n sequences.

        Returns:
            Flattened matrices, ``(N - n, (2K + 1)²)``, for all packed rows but first steps.
        """
        K, n, before = self.means.shape[1], packing.offsets[1], packing.previous
        mean = np.concatenate([self.means[n:], self.means[before], np.ones((len(before), 1))], 1)
        second = mean[:, :, None] * mean[:, None, :]
        second[:, :K, :K] += self.covariances[n:]
        second[:, K : 2 * K, K : 2 * K] += self.covariances[before]
        second[:, :K, K : 2 * K] += self.across[n:]
        second[:, K : 2 * K, :K] += self.across[n:].swapaxes(1, 2)
        return np.asarray(second.reshape(len(second), (2 * K + 1) ** 2))

    def seen(self) -> np.ndarray:
        """Return second moments of each step's state: E[y yᵀ] of ``y = (z_t, 1)``, flattened, ``(N, (K + 1)²)``."""
        K = self.means.shape[1]
        mean = np.concatenate([self.means, np.ones((len(self.means), 1))], 1)
        second = mean[:, :, None] * mean[:, None, :]
        second[:, :K, :K] += self.covariances
        return np.asarray(second.reshape(len(second), -1))


@dataclass(frozen=True)
class RegimeTables:
    """The expected log-densities under each regime as quadratic forms, ``-½ (E[uᵀ W u] + constant)``.

    Attributes:
        parameters: parameters of the switching system.
        dynamics, dynamics_constant: W ``(S, (2K + 1)²)``, flattened, for moves of the states, ``u = (z_t, z_t-1, 1)``,
            and the constant ``(S,)``.
    """

    parameters: SwitchingParameters
    dynamics: np.ndarray
    dynamics_constant: np.ndarray

    @classmethod
    def of(cls, p: SwitchingParameters) -> RegimeTables:
        """Return the quadratic forms of the log-densities under the given parameters."""
        S, K, _ = p.sizes
        form = np.concatenate([np.broadcast_to(np.eye(K), (S, K, K)), -p.transition, -p.drift[:, :, None]], 2)
        weighted = np.linalg.solve(p.state_covariance, form)
        constant = K * LOG_2PI + np.linalg.slogdet(p.state_covariance)[1]
        return cls(p, (form.swapaxes(1, 2) @ weighted).reshape(S, -1), constant)

    def observation(self, observed: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return the quadratic forms of the log-densities of some of the features under each regime.

        Returns:
            ``GᵀR⁻¹G (S, (K + 1)²)``, ``R⁻¹G (S, D', K + 1)``, ``R⁻¹ (S, D', D')`` and constants ``(S,)``, where ``G =
                (C, d)`` is the observation matrix with the intercept, R the noise covariance, and D' the number of True
                entries in ``observed (D,)``.
        """
        p, n = self.parameters, int(observed.sum())
        G = np.concatenate([p.observation, p.intercept[:, :, None]], 2)[:, observed]
        R = p.observation_covariance[:, observed][:, :, observed]
        inverse = np.linalg.inv(R)
        weighted = inverse @ G
        quadratic = (G.swapaxes(1, 2) @ weighted).reshape(len(G), -1)
        return quadratic, weighted, inverse, n * LOG_2PI + np.linalg.slogdet(R)[1]


def state_chain(tables: RegimeTables, batch: RegimeBatch, regimes: np.ndarray) -> StateChain:
    """Return the best distribution q(z) of the hidden states given the probabilities of regimes.

    Args:
        tables: quadratic forms of the parameters.
        batch: packed sequences.
        regimes: probability of each regime at each packed row, ``(N, S)``.
    """
    p, packing = tables.parameters, batch.packing
    S, K, _ = p.sizes
    n, N, before = packing.offsets[1], len(batch.x), packing.previous
    moved = (regimes[n:] @ tables.dynamics).reshape(-1, 2 * K + 1, 2 * K + 1)
    precision, linear = np.zeros((N, K, K)), np.zeros((N, K))
    start = np.linalg.inv(p.initial_covariance)
    precision[:n] += start
    linear[:n] += start @ p.initial_mean
    precision[n:] += moved[:, :K, :K]
    linear[n:] -= moved[:, :K, 2 * K]
    coupling = moved[:, :K, K : 2 * K]  # of z_t and z_t-1
    precision[before] += moved[:, K : 2 * K, K : 2 * K]
    linear[before] -= moved[:, K : 2 * K, 2 * K]
    for rows, observed in batch.patterns:
        if not observed.any():
            continue
        quadratic, weighted, _, _ = tables.observation(observed)
        h = regimes[rows]
        added = (h @ quadratic).reshape(-1, K + 1, K + 1)
        precision[rows] += added[:, :K, :K]
        x = batch.x[rows][:, observed]
        linear[rows] -= added[:, :K, K]
        by_feature = (h @ weighted[:, :, :K].reshape(S, -1)).reshape(len(rows), -1, K)
        linear[rows] += np.einsum("nd,ndk->nk", x, by_feature)
    return _solved(packing, precision, coupling, linear)


def _solved(packing: StepPacking, precision: np.ndarray, coupling: np.ndarray, linear: np.ndarray) -> StateChain:
    """Return the means, covariances and entropy of Gaussian chains with a block-tridiagonal precision matrix.

    Args:
        packing: packing of the N rows.
        precision: diagonal blocks of the precision, ``(N, K, K)``.
        coupling: blocks between a step and the one before, ``(N - n, K, K)``, for all rows but first steps.
        linear: precision times mean, ``(N, K)``.
    """
    offsets, n, K = packing.offsets, int(packing.offsets[1]), linear.shape[1]
    inverse, shift = np.empty_like(precision), np.empty_like(linear)
    entropy = 0.5 * K * (1 + LOG_2PI) * np.bincount(packing.ranks, minlength=n)
    for t in range(packing.n_steps):
        a, b = offsets[t], offsets[t + 1]
        here, eta = precision[a:b], linear[a:b]
        if t:
            c = coupling[a - n : b - n]
            previous = offsets[t - 1]
            gain = c @ inverse[previous : previous + b - a]
            here = here - gain @ c.swapaxes(1, 2)
            eta = eta - np.einsum("nij,nj->ni", c, shift[previous : previous + b - a])
        here = 0.5 * (here + here.swapaxes(1, 2))
        factor = np.linalg.cholesky(here)
        entropy[: b - a] -= np.log(np.diagonal(factor, axis1=1, axis2=2)).sum(1)
        inverse[a:b] = np.linalg.inv(here)
        shift[a:b] = np.einsum("nij,nj->ni", inverse[a:b], eta)
    means, covariances, across = shift.copy(), inverse.copy(), np.zeros_like(inverse)
    for t in range(packing.n_steps - 2, -1, -1):
        a, b = offsets[t], offsets[t + 1]
        m = int(offsets[t + 2] - b)
        gain = -inverse[a : a + m] @ coupling[b - n : b - n + m].swapaxes(1, 2)
        means[a : a + m] += np.einsum("nij,nj->ni", gain, means[b : b + m])
        across[b : b + m] = covariances[b : b + m] @ gain.swapaxes(1, 2)
        here = covariances[a : a + m] + gain @ across[b : b + m]
        covariances[a : a + m] = 0.5 * (here + here.swapaxes(1, 2))
    return StateChain(means, covariances, across, entropy)


def expected_log_densities(
    tables: RegimeTables, batch: RegimeBatch, chain: StateChain, moves: np.ndarray, seen: np.ndarray
) -> np.ndarray:
    """Return the expected log-density of each step's state and values under each regime, in nats, ``(N, S)``.

    It is E[log p(z_t | z_t-1) + log p(x_t | z_t)], where the states have the distribution q(z); first steps have no
    first term.

    Args:
        tables: quadratic forms of the parameters.
        batch: packed sequences.
        chain: q(z).
        moves, seen: second moments that the methods of ``chain`` with these names return.
    """
    n = int(batch.packing.offsets[1])
    log_b = np.zeros((len(batch.x), len(tables.dynamics)))
    log_b[n:] -= 0.5 * (moves @ tables.dynamics.T + tables.dynamics_constant)
    y = np.concatenate([chain.means, np.ones((len(chain.means), 1))], 1)
    for rows, observed in batch.patterns:
        if not observed.any():
            continue
        quadratic, weighted, inverse, constant = tables.observation(observed)
        x = batch.x[rows][:, observed]
        squares = np.einsum("nd,sde,ne->ns", x, inverse, x, optimize=True)
        cross = np.einsum("nd,sdk,nk->ns", x, weighted, y[rows], optimize=True)
        log_b[rows] -= 0.5 * (squares - 2 * cross + seen[rows] @ quadratic.T + constant)
    return log_b


@dataclass(frozen=True)
class RegimeChain:
    """The mean-field distribution q(s) of the S regimes of n packed sequences, a Markov chain.

    Attributes:
        gamma: probability of each regime at each of N packed rows, ``(N, S)``.
        initial, transition: weighted sums over sequences of the probabilities of first regimes ``(S,)`` and of expected
            transitions ``(S, S)``.
        log_prob: log-evidence of the HMM of the regimes for each sequence, in nats, ``(n,)``.
    """

    gamma: np.ndarray
    initial: np.ndarray
    transition: np.ndarray
    log_prob: np.ndarray


def regime_chain(p: SwitchingParameters, batch: RegimeBatch, log_b: np.ndarray) -> RegimeChain:
    """Return the distribution q(s) of the regimes by the forward-backward algorithm.

    Args:
        p: parameters, with the chain of regimes.
        batch: packed sequences.
        log_b: log-density of each packed row under each regime, in nats, ``(N, S)``.
    """
    from seqmodels.linear_gaussian.switching.compiled_regimes import forward_backward  # lazily: numba takes a while

    S, n = len(p.initial), int(batch.packing.offsets[1])
    gamma, pairs, log_prob = np.empty_like(log_b), np.zeros((S, S)), np.empty(n)
    arrays = (np.ascontiguousarray(p.initial), np.ascontiguousarray(p.regime_transition), batch.packing.offsets)
    forward_backward(*arrays, np.ascontiguousarray(log_b), batch.weights, gamma, pairs, log_prob)
    return RegimeChain(gamma, batch.weights @ gamma[:n], pairs, log_prob)


@dataclass(frozen=True)
class SwitchingStatistics:
    """The result of an E-step: weighted sums of expectations over sequences, for S regimes, K states and D features.

    Attributes:
        bound: lower bound of the log-probability of the encoded data in nats, ``()``.
        n_first, first, first_square: weighted number of sequences ``()``, and sums of E[z_1] ``(K,)`` and E[z_1 z_1ᵀ]
            ``(K, K)``.
        initial, regime_transition: sums of the probabilities of first regimes ``(S,)`` and of pairs of successive
            regimes ``(S, S)``.
        moves: sums of E[u uᵀ] of ``u = (z_t, z_t-1, 1)`` in each regime, ``(S, 2K + 1, 2K + 1)``.
        seen: sums of E[y yᵀ] of ``y = (z_t, 1)`` where the feature is observed, ``(S, F, K + 1, K + 1)``; F is 1 where
            nothing is missing, else D.
        seen_x: sums of E[x yᵀ], ``(S, D, K + 1)``.
        squares: sums of x xᵀ, ``(S, D, D)``; only the diagonal is filled where something is missing.
    """

    bound: np.ndarray
    n_first: np.ndarray
    first: np.ndarray
    first_square: np.ndarray
    initial: np.ndarray
    regime_transition: np.ndarray
    moves: np.ndarray
    seen: np.ndarray
    seen_x: np.ndarray
    squares: np.ndarray

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the sums as arrays by name, in the form in which checkpoints store them."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def __add__(self, other: SwitchingStatistics) -> SwitchingStatistics:
        return SwitchingStatistics(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def moved_to(self, other: SwitchingStatistics, share: float) -> SwitchingStatistics:
        """Return the weighted average of these sums and those of ``other``, whose weight is ``share``, from 0 to 1."""
        both = ((getattr(self, f.name), getattr(other, f.name)) for f in fields(self))
        return SwitchingStatistics(*((1 - share) * mine + share * theirs for mine, theirs in both))


@dataclass(frozen=True)
class VariationalStep:
    """The result of one step of mean field: a distribution of the states, and the best one of the regimes given it.

    Attributes:
        states, regimes: distributions q(z) of the states and q(s) of the regimes.
        bounds: lower bound of the log-probability of each packed sequence in nats, ``(n,)``.
        moves, seen: second moments of the states that the methods of ``StateChain`` with these names return.
    """

    states: StateChain
    regimes: RegimeChain
    bounds: np.ndarray
    moves: np.ndarray
    seen: np.ndarray


def regimes_given_states(tables: RegimeTables, batch: RegimeBatch, states: StateChain) -> VariationalStep:
    """Return the best distribution of the regimes given that of the hidden states, with the lower bounds.

    Args:
        tables: quadratic forms of the parameters.
        batch: packed sequences.
        states: distribution of the hidden states.
    """
    p, n = tables.parameters, int(batch.packing.offsets[1])
    moves, seen = states.moves(batch.packing), states.seen()
    regimes = regime_chain(p, batch, expected_log_densities(tables, batch, states, moves, seen))
    off = states.means[:n] - p.initial_mean
    spread = states.covariances[:n] + off[:, :, None] * off[:, None, :]
    trace = np.einsum("ij,nij->n", np.linalg.inv(p.initial_covariance), spread)
    constant = len(p.initial_mean) * LOG_2PI + np.linalg.slogdet(p.initial_covariance)[1]
    return VariationalStep(states, regimes, regimes.log_prob + states.entropy - 0.5 * (trace + constant), moves, seen)


def variational_step(tables: RegimeTables, batch: RegimeBatch, regimes: np.ndarray) -> VariationalStep:
    """Run one step of mean field: update the distribution of the hidden states, then that of the regimes.

    Args:
        tables: quadratic forms of the parameters.
        batch: packed sequences.
        regimes: probability of each regime at each packed row to begin with, ``(N, S)``.
    """
    return regimes_given_states(tables, batch, state_chain(tables, batch, regimes))


def statistics_of(batch: RegimeBatch, step: VariationalStep, *, by_feature: bool) -> SwitchingStatistics:
    """Return the sums of expectations of a batch, from the distributions of its states and regimes.

    Args:
        batch: packed sequences.
        step: distributions of states and regimes.
        by_feature: True to sum the states' moments for each feature by itself, as is needed if values are missing
            anywhere in the data.
    """
    packing, gamma = batch.packing, step.regimes.gamma
    S, n, (N, D), K = gamma.shape[1], int(packing.offsets[1]), batch.x.shape, step.states.means.shape[1]
    w = batch.weights
    weighted = gamma * w[packing.ranks][:, None]
    first, covariances = step.states.means[:n], step.states.covariances[:n]
    y = np.concatenate([step.states.means, np.ones((N, 1))], 1)
    x, observed = np.nan_to_num(batch.x), ~np.isnan(batch.x)
    if by_feature:
        seen = np.stack([(weighted * observed[:, d : d + 1]).T @ step.seen for d in range(D)], 1)
        squares = np.zeros((S, D, D))
        squares[:, np.arange(D), np.arange(D)] = weighted.T @ np.square(x)
    else:
        seen = (weighted.T @ step.seen)[:, None]
        squares = np.stack([(weighted[:, s, None] * x).T @ x for s in range(S)])
    return SwitchingStatistics(
        np.array(w @ step.bounds),
        np.array(w.sum()),
        w @ first,
        (w[:, None] * first).T @ first + np.tensordot(w, covariances, 1),
        step.regimes.initial,
        step.regimes.transition,
        (weighted[n:].T @ step.moves).reshape(S, 2 * K + 1, 2 * K + 1),
        seen.reshape(S, -1, K + 1, K + 1),
        np.stack([(weighted[:, s, None] * x).T @ y for s in range(S)]),
        squares,
    )
