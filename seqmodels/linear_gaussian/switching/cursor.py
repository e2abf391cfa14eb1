"""A switching linear-Gaussian system one step at a time; the state of the cursor has the particles of each sequence."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from seqmodels.generation import Prediction, Source, select_rows, stacked_sources
from seqmodels.linear_gaussian.cursor import predicted_by
from seqmodels.linear_gaussian.switching.particle_filter import WhitenedSystem, n_paths, uniforms
from seqmodels.observations import Observation
from seqmodels.observations.gaussian import shape_of_covariance

BLOCK_STEPS = 1024  # uniform numbers that are drawn at once


@dataclass(frozen=True)
class ParticleState:
    """The state of a ``ParticleCursor``: L particles (weighted paths of regimes) for each of n sequences.

    Attributes:
        log_weights: normalised log-weights, ``(n, L)``; None before the first step.
        regimes: last regime of each path, ``(n, L)``.
        means, covariances: mean and covariance of the K hidden states given the path and the steps so far,
            ``(n, L, K)`` and ``(n, L, K, K)``.
        n_read: number of steps so far.
    """

    log_weights: Tensor | None
    regimes: Tensor
    means: Tensor
    covariances: Tensor
    n_read: int


@dataclass(frozen=True)
class ParticleCursor:
    """The step-by-step Rao-Blackwellized particle filter of a switching system, in float64 on the CPU.

    Attributes:
        system: switching system with whitened observations.
        n_particles: largest number of paths of regimes to keep.
        seed: seed of the random numbers that decide which paths are kept.
    """

    system: WhitenedSystem
    n_particles: int
    seed: int

    def start(self, source: Source = None, n: int = 1) -> ParticleState:
        """Return the state of n sequences before their first scored step.

        Args:
            source: steps before the first, which are read but not scored; None if there are none.
            n: number of sequences.
        """
        K = self.system.parameters.sizes[1]
        nothing = torch.zeros((n, 0), dtype=torch.int64)
        empty = torch.zeros((n, 0, K), dtype=torch.float64)
        state = ParticleState(None, nothing, empty, torch.zeros((n, 0, K, K), dtype=torch.float64), 0)
        rows = stacked_sources(source, n)
        for step in rows.unbind(1) if rows is not None else []:
            state = self.advance(state, step)
        return state

    def advance(self, state: ParticleState, x: Tensor) -> ParticleState:
        """Return the state after n sequences have read their next steps, ``x (n, D)``, NaN where a value is missing."""
        from seqmodels.linear_gaussian.switching.compiled_filter import chosen_children, update_children

        values = x.double().cpu().numpy()
        S, K, _ = self.system.parameters.sizes
        t, n = state.n_read, len(values)
        n_left = n_paths(t + 1, S, self.n_particles)
        log_weights, regimes = np.empty((n, n_left)), np.empty((n, n_left), dtype=np.int64)
        means, covariances = np.empty((n, n_left, K)), np.empty((n, n_left, K, K))
        white, observed, u = self.system.whitened(values), ~np.isnan(values), self._uniform(t)
        for i in range(n):
            log_p, m, P = self._children(state, i)
            update_children(
                self.system.observation, self.system.log_dets, white[i], observed[i], len(log_p), log_p, m, P
            )
            children = np.zeros(n_left, dtype=np.int64)
            chosen_children(log_p, n_left, u, children, log_weights[i])
            regimes[i], means[i], covariances[i] = children % S, m[children], P[children]
        tensor = torch.from_numpy
        return ParticleState(tensor(log_weights), tensor(regimes), tensor(means), tensor(covariances), t + 1)

    def distribution(self, state: ParticleState) -> Prediction:
        """Return the prediction of the next step, a mixture of Gaussians over all paths and next regimes."""
        p, n = self.system.parameters, len(state.means)
        S = len(p.initial)
        weights, tables = [], []
        for i in range(n):
            log_p, m, P = self._children(state, i)
            s = np.arange(len(log_p)) % S
            C = p.observation[s]
            mean = np.einsum("jdk,jk->jd", C, m) + p.intercept[s]
            covariance = C @ P @ C.swapaxes(1, 2) + p.observation_covariance[s]
            shape = shape_of_covariance(torch.from_numpy(0.5 * (covariance + covariance.swapaxes(1, 2))))
            mean_of_each = torch.from_numpy(mean)
            tables.append(torch.cat([torch.zeros_like(mean_of_each[:, :1]), mean_of_each, shape], 1))
            weights.append(torch.from_numpy(log_p))
        return Prediction(self._observation, torch.stack(tables), torch.stack(weights), None, None)

    def select(self, state: ParticleState, index: Tensor) -> ParticleState:
        selected: ParticleState = select_rows(state, index)
        return selected

    def filtered(self, state: ParticleState) -> np.ndarray:
        """Return the probability of each of S regimes at the last step, ``(S,)``, for the first sequence.

        Steps up to the last are given. Before any step it is the probability of the first regime.
        """
        S = self.system.parameters.sizes[0]
        if state.log_weights is None:
            return self.system.parameters.initial.copy()
        return np.bincount(state.regimes[0].numpy(), state.log_weights[0].exp().numpy(), minlength=S)

    @cached_property
    def _observation(self) -> Observation:
        return predicted_by()

    @cached_property
    def _drawn(self) -> dict[int, np.ndarray]:
        return {}

    def _uniform(self, t: int) -> float:
        block = t // BLOCK_STEPS
        if block not in self._drawn:
            self._drawn[block] = uniforms(self.seed, (block + 1) * BLOCK_STEPS)[block * BLOCK_STEPS :]
        return float(self._drawn[block][t - block * BLOCK_STEPS])

    def _children(self, state: ParticleState, i: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Continue every particle of sequence ``i`` by every regime, and predict its next hidden state.

        A particle is a weighted path of regimes.

        Returns:
            Log-weights ``(C,)``, means ``(C, K)`` and covariances ``(C, K, K)`` of the C continued particles.
        """
        from seqmodels.linear_gaussian.switching.compiled_filter import first_children, next_children

        log_initial, log_transition, A, b, Q, m, P = self.system.matrices
        S, K, _ = self.system.parameters.sizes
        n = S * (1 if state.log_weights is None else state.log_weights.shape[1])
        children = (np.empty(n), np.empty((n, K)), np.empty((n, K, K)))
        if state.log_weights is None:
            first_children(log_initial, m, P, *children)
        else:
            weights, regimes = state.log_weights[i].numpy(), state.regimes[i].numpy()
            moments = (state.means[i].numpy(), state.covariances[i].numpy())
            next_children(log_transition, A, b, Q, weights, regimes, *moments, *children)
        return children
