"""Weights of densities that are learned on-line, by gradient, from how probable each model made the last steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from seqmodels.wrappers.mixture.weights import Weights, log_sum_exp

RATES = (0.0, 0.001, 0.01, 0.03, 0.1)  # of learning
DECAYS = (0.0, 0.5, 0.8, 0.95)
PASSES = 3
LIMIT = 20.0  # nats that one step counts for at most


@dataclass(frozen=True)
class DensityGate(Weights):
    """``w_t = softmax(b + s r_t)``, with ``r_t(k)`` the mean gain of model k over the mixture in the last steps.

    ``r_{t+1}(k) = λ r_t(k) + (1 - λ)(log p_k(x_t) - log p(x_t))``, the gain no larger than ``LIMIT``. After each step b
    and s go up the gradient of its log-probability with rate η: ``b += η (v_t - w_t)`` and ``s += η (v_t - w_t) · r_t``
    with the posterior v_t. Densities have no symbols whose logits could be mixed and normalised, so that only their
    weights are gated. The state is b, s and r.

    Attributes:
        bias: ``(K,)`` b at the start of a sequence.
        scale: s there.
        rate: η.
        decay: λ.
    """

    bias: np.ndarray
    scale: float
    rate: float
    decay: float

    @property
    def n_parameters(self) -> int:
        return len(self.bias) + 2

    def start(self, n: int) -> np.ndarray:
        return np.tile(np.concatenate([self.bias, [self.scale], np.zeros(len(self.bias))]), (n, 1))

    def log_weights(self, state: np.ndarray) -> np.ndarray:
        k = len(self.bias)
        logits = state[:, :k] + state[:, k : k + 1] * state[:, k + 1 :]
        return np.asarray(logits - log_sum_exp(logits)[:, None])

    def after(self, state: np.ndarray, log_p: np.ndarray) -> np.ndarray:
        k = len(self.bias)
        log_weights, recent = self.log_weights(state), state[:, k + 1 :]
        total = log_sum_exp(log_weights + log_p)[:, None]
        impossible = np.isneginf(total)
        total = np.where(impossible, 0.0, total)
        error = np.exp(log_weights + log_p - total) - np.exp(log_weights)
        bias = state[:, :k] + self.rate * error
        scale = state[:, k : k + 1] + self.rate * (error * recent).sum(1, keepdims=True)
        gain = np.clip(log_p - total, -LIMIT, LIMIT)
        after = np.concatenate([bias, scale, self.decay * recent + (1 - self.decay) * gain], axis=1)
        return np.where(impossible, state, after)

    def steps(self, log_p: np.ndarray) -> np.ndarray:
        return self._run(log_p, self.start(1)[0], self.rate)

    def _run(self, log_p: np.ndarray, state: np.ndarray, rate: float) -> np.ndarray:
        # Imported here: numba takes a while to load.
        from seqmodels.wrappers.mixture.kernels import gated_density_steps

        return gated_density_steps(np.ascontiguousarray(log_p, np.float64), state, rate, self.decay, LIMIT)

    @classmethod
    def fit(cls, prior: np.ndarray, log_p: Sequence[np.ndarray]) -> DensityGate:
        """Passes over held-out sequences, from the static weights; η and λ are those of the best last pass."""
        with np.errstate(divide="ignore"):
            log_prior = np.maximum(np.log(prior), -LIMIT)
        best, best_nats = cls(log_prior, 0.0, 0.0, 0.0), -np.inf
        for rate in RATES:
            for decay in DECAYS:
                gate, nats = cls(log_prior, 0.0, rate, decay)._learned(log_p)
                if nats > best_nats:
                    best, best_nats = gate, nats
        return best

    def _learned(self, log_p: Sequence[np.ndarray]) -> tuple[DensityGate, float]:
        """The gate after all passes, and the nats of the last pass as a sequence is scored, from its start on."""
        bias, scale, k = self.bias, self.scale, len(self.bias)
        for n_passes in range(PASSES):
            for each in log_p:
                state = np.concatenate([bias, [scale], np.zeros(k)])
                self._run(each, state, self.rate / (1 + n_passes))
                bias, scale = state[:k] - state[:k].mean(), float(state[k])
        gate = DensityGate(bias, scale, self.rate, self.decay)
        steps = np.concatenate([gate.steps(each) for each in log_p])
        return gate, float(steps[np.isfinite(steps)].sum())
