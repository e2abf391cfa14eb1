"""Weights of densities that are learned while reading, by gradient, from each model's gains in the last steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from seqmodels.wrappers.mixture.weights import Weights, log_sum_exp

RATES = (0.0, 0.001, 0.01, 0.03, 0.1)  # learning rates that are tried
DECAYS = (0.0, 0.5, 0.8, 0.95)
PASSES = 3
LIMIT = 20.0  # largest gain of one step, in nats


@dataclass(frozen=True)
class DensityGate(Weights):
    """Weights of K densities that are learned while reading, ``w_t = softmax(b + s r_t)``.

    ``r_t(k)`` is the recent mean gain of model k over the mixture, in nats:
    ``r_{t+1}(k) = λ r_t(k) + (1 - λ)(log p_k(x_t) - log p(x_t))``, with the gain clipped to ``LIMIT``. After each step,
    b and s are moved along the gradient of its log-probability with learning rate η: ``b += η (v_t - w_t)`` and
    ``s += η (v_t - w_t) · r_t``, where v_t is the posterior of the models given the step. Densities have no symbols
    whose logits could be mixed and normalised, so only their weights are learned. The state is b, s and r.

    Attributes:
        bias: b at the start of a sequence, ``(K,)``.
        scale: s at the start of a sequence.
        rate: learning rate η.
        decay: λ, the decay of the recent gains.
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
        # Imported here because numba takes a while to load.
        from seqmodels.wrappers.mixture.kernels import gated_density_steps

        return gated_density_steps(np.ascontiguousarray(log_p, np.float64), state, rate, self.decay, LIMIT)

    @classmethod
    def fit(cls, prior: np.ndarray, log_p: Sequence[np.ndarray]) -> DensityGate:
        """Return weights learned on held-out sequences, by several passes that adapt their start, b and s.

        The learning rate η and the decay λ are those of a grid under which the learned weights give the sequences the
        highest log-probability.

        Args:
            prior: static weights of K models, with which the passes begin, ``(K,)``.
            log_p: log-probabilities of each step under each model, ``(T, K)`` nats for each sequence.
        """
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
        """Return the weights after all passes over the sequences, and the log-probability of the sequences under them.

        Args:
            log_p: log-probabilities of each step under each of K models, ``(T, K)`` nats for each sequence.
        """
        bias, scale, k = self.bias, self.scale, len(self.bias)
        for n_passes in range(PASSES):
            for each in log_p:
                state = np.concatenate([bias, [scale], np.zeros(k)])
                self._run(each, state, self.rate / (1 + n_passes))
                bias, scale = state[:k] - state[:k].mean(), float(state[k])
        gate = DensityGate(bias, scale, self.rate, self.decay)
        steps = np.concatenate([gate.steps(each) for each in log_p])
        return gate, float(steps[np.isfinite(steps)].sum())
