"""dynamax: ``DiagonalGaussianMixtureHMM`` and ``CategoricalHMM``, compiled. Variants: ``float32`` or ``float64``.

Its priors are set to maximum likelihood where it allows that; Dirichlet priors must stay above one, at 1 +
``ABOVE_ONE``.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import dynamax
import jax
import jax.numpy as jnp
import numpy as np
from dynamax.hidden_markov_model import CategoricalHMM, DiagonalGaussianMixtureHMM
from peers.worker import Iteration, Trainer, serve
from workloads import Mixture, Workload

ABOVE_ONE = 1e-6  # at one the mode of its Dirichlet posterior is NaN where an expected count is zero
SEQUENCES_AT_ONCE = {"W1": 8, "W2": 250, "W3": 1, "W4": 10}  # each the fastest of those tried


class DynamaxTrainer(Trainer):
    """Its E-step over batches of sequences (``vmap``), summed, then its M-step: one compiled function."""

    def __init__(self, workload: Workload, dtype: str) -> None:
        jax.config.update("jax_enable_x64", dtype == "float64")
        build = _mixture if isinstance(workload.emission, Mixture) else _categorical
        self.model, self.params, props = build(workload, np.dtype(dtype))
        x = workload.stacked
        data = x.astype(dtype) if x.ndim == 3 else x[..., None].astype(np.int32)
        self.batches = jnp.asarray(_batched(data, SEQUENCES_AT_ONCE[workload.name]))  # (batches, sequences, T, D)
        self.step = jax.jit(partial(_step, self.model, props))

    def iterate(self, n: int) -> list[Iteration]:
        return [self._iteration() for _ in range(n)]

    def _iteration(self) -> Iteration:
        began = time.perf_counter()
        self.params, log_probs = jax.block_until_ready(self.step(self.params, self.batches))
        seconds = time.perf_counter() - began
        return Iteration(seconds, float(np.asarray(log_probs, dtype=np.float64).sum()))

    def versions(self) -> str:
        return f"dynamax {dynamax.__version__}, jax {jax.__version__}"


def _step(model: Any, props: Any, params: Any, batches: jax.Array) -> tuple[Any, jax.Array]:
    def expect(batch: jax.Array) -> tuple[Any, jax.Array]:
        statistics, log_probs = jax.vmap(partial(model.e_step, params))(batch)
        return jax.tree.map(lambda each: each.sum(0), statistics), log_probs

    statistics, log_probs = jax.lax.map(expect, batches)  # the M-step sums over the batches
    params, _ = model.m_step(params, props, statistics, model.initialize_m_step_state(params, props))
    return params, log_probs


def _batched(data: np.ndarray, most: int) -> np.ndarray:
    """(n, ...) -> (batches, sequences, ...): the largest batch of at most ``most`` sequences that divides n."""
    n = len(data)
    size = max(b for b in range(1, most + 1) if n % b == 0)
    return data.reshape(n // size, size, *data.shape[1:])


def _mixture(workload: Workload, dtype: np.dtype) -> tuple[Any, Any, Any]:
    emission = workload.emission
    assert isinstance(emission, Mixture)
    k, m, d = emission.means.shape
    model = DiagonalGaussianMixtureHMM(
        k,
        m,
        d,
        initial_probs_concentration=1 + ABOVE_ONE,
        transition_matrix_concentration=1 + ABOVE_ONE,
        emission_weights_concentration=1 + ABOVE_ONE,
        emission_prior_mean_concentration=0.0,
        emission_prior_shape=-1.5,  # with a scale of zero the mode is the maximum of the likelihood
        emission_prior_scale=0.0,
    )
    # Its initialize would sample parameters that are not given from the priors, so all are.
    params, props = model.initialize(
        initial_probs=jnp.asarray(workload.initial, dtype),
        transition_matrix=jnp.asarray(workload.transition, dtype),
        emission_weights=jnp.asarray(emission.weights, dtype),
        emission_means=jnp.asarray(emission.means, dtype),
        emission_scale_diags=jnp.asarray(np.sqrt(emission.variances), dtype),
    )
    return model, params, props


def _categorical(workload: Workload, dtype: np.dtype) -> tuple[Any, Any, Any]:
    emission = workload.emission
    assert isinstance(emission, np.ndarray)
    k, v = emission.shape
    model = CategoricalHMM(
        k,
        1,
        v,
        initial_probs_concentration=1 + ABOVE_ONE,
        transition_matrix_concentration=1 + ABOVE_ONE,
        emission_prior_concentration=1 + ABOVE_ONE,
    )
    params, props = model.initialize(
        initial_probs=jnp.asarray(workload.initial, dtype),
        transition_matrix=jnp.asarray(workload.transition, dtype),
        emission_probs=jnp.asarray(emission[:, None], dtype),
    )
    return model, params, props


if __name__ == "__main__":
    serve(DynamaxTrainer)
