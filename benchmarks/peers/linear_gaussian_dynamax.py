"""An iteration of EM of a linear-Gaussian system by dynamax, in an environment of its own: ``PYTHON this.py PROBLEM``.

Reads a line for each turn, a number of iterations, and writes the processor's seconds of each, in one thread, and what
it found. All iterations are from the same parameters: the M-step of dynamax 1.0.3 takes the covariance of first states
of several sequences for another one (the square of a sum for the sum of squares), so that a second one may be from no
covariance. It adds 1e-9 to what it inverts; here it does not, so that figures can be compared.
"""

import os
import sys
import time

os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

import dynamax.utils.utils as utils  # noqa: E402
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

utils.psd_solve.__defaults__ = (0.0,)
from dynamax.linear_gaussian_ssm import LinearGaussianSSM  # noqa: E402

jax.config.update("jax_enable_x64", True)
BATCHES = (200, 50, 10)  # sequences that are computed together; the fastest is taken


def main() -> None:
    """The command."""
    problem = np.load(sys.argv[1])
    D, K = problem["observation"].shape
    model = LinearGaussianSSM(K, D, has_dynamics_bias=False, has_emissions_bias=False)
    parameters, properties = model.initialize(
        jax.random.PRNGKey(0),
        initial_mean=problem["initial_mean"],
        initial_covariance=problem["initial_covariance"],
        dynamics_weights=problem["transition"],
        dynamics_covariance=problem["state_covariance"],
        emission_weights=problem["observation"],
        emission_covariance=problem["observation_covariance"],
    )
    x = jnp.asarray(problem["x"])
    state = model.initialize_m_step_state(parameters, properties)

    def iteration(batch: int):
        parts = x.reshape(-1, batch, *x.shape[1:])

        @jax.jit
        def of(p):
            statistics, log_probs = jax.lax.map(jax.vmap(lambda one: model.e_step(p, one)), parts)
            statistics = jax.tree_util.tree_map(lambda s: jnp.reshape(s, (-1, *s.shape[2:])), statistics)
            moved, _ = model.m_step(p, properties, statistics, state)
            return moved, log_probs.sum()

        return of

    def seconds(function) -> float:
        began = time.process_time()
        jax.block_until_ready(function(parameters))
        return time.process_time() - began

    functions = [iteration(batch) for batch in BATCHES if len(x) % batch == 0]
    for function in functions:
        seconds(function)  # compiles
    fastest = min(functions, key=seconds)
    moved, log_prob = fastest(parameters)
    found = {
        "log_prob": float(log_prob),
        "transition": np.asarray(moved.dynamics.weights).tolist(),
        "observation": np.asarray(moved.emissions.weights).tolist(),
    }
    print(found, flush=True)
    for line in sys.stdin:
        print([seconds(fastest) for _ in range(int(line))], flush=True)


if __name__ == "__main__":
    main()
