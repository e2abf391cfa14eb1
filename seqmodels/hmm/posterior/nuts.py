"""The no-U-turn sampler of Pyro for a density of unconstrained numbers, and diagnostics of its draws.

The sampler is described by Hoffman and Gelman 2014, *The no-U-turn sampler*.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqmodels.common.progress import ProgressBar, Verbose

JITTER = 0.1  # standard deviation of the starts of chains around zero


@dataclass(frozen=True)
class Sampled:
    """Draws of a Markov chain Monte Carlo run.

    Attributes:
        u: S draws of P unconstrained numbers from each of C chains, ``(C, S, P)``.
        n_divergent: number of draws from trajectories that diverged.
    """

    u: Tensor
    n_divergent: int


def sample_nuts(
    log_density: Callable[[Tensor], Tensor],
    n_numbers: int,
    *,
    n_samples: int,
    warmup: int,
    chains: int,
    max_tree_depth: int,
    seed: int,
    verbose: Verbose = False,
) -> Sampled:
    """Draw from the distribution with a given log-density over P unconstrained numbers, by the no-U-turn sampler.

    Step size and a dense mass matrix are adapted during ``warmup`` steps, whose draws are discarded. Chains run one
    after the other. The state of torch's global generator is left unchanged.

    Args:
        log_density: a differentiable function of ``(P,)`` float64, in nats, up to a constant; its mode is near zero,
            where chains start.
        n_numbers: number of dimensions, P.
        n_samples: number of draws of each chain.
        warmup: number of steps of each chain before its draws.
        chains: number of chains.
        max_tree_depth: a draw takes at most ``2 ** max_tree_depth`` evaluations of the density.
        seed: seed of the first chain; chain i has ``seed + i``.
        verbose: True to show a progress bar.
    """
    from pyro.infer import MCMC, NUTS  # lazily: Pyro is slow to import

    draws, n_divergent = [], 0
    with ProgressBar(chains * (warmup + n_samples), verbose, "NUTS") as bar:
        for chain in range(chains):
            with torch.random.fork_rng(devices=[]):
                torch.default_generator.manual_seed(seed + chain)
                start = JITTER * torch.randn(n_numbers, dtype=torch.float64)
                kernel = NUTS(
                    potential_fn=lambda parameters: -log_density(parameters["u"]),
                    full_mass=True,
                    max_tree_depth=max_tree_depth,
                )
                followed = Followed(bar, chain * (warmup + n_samples), f"chain {chain + 1} of {chains}")
                run = MCMC(
                    kernel,
                    n_samples,
                    warmup_steps=warmup,
                    initial_params={"u": start},
                    disable_progbar=True,
                    hook_fn=followed,
                )
                run.run()
            draws.append(run.get_samples()["u"].double())
            n_divergent += followed.n_divergent
    return Sampled(torch.stack(draws), n_divergent)


@dataclass
class Followed:
    """A callback for one chain of Pyro, which moves a progress bar and counts draws from trajectories that diverged.

    Args:
        bar: progress bar of all chains.
        before: number of steps of the chains before this one.
        text: name of the chain in the bar.
        n_steps: number of steps so far.
        n_divergent: number of divergent draws so far.
    """

    bar: ProgressBar
    before: int
    text: str
    n_steps: int = 0
    n_divergent: int = 0

    def __call__(self, kernel: Any, parameters: Any, stage: str, i: int) -> None:
        self.n_steps += 1
        self.bar.move(self.before + self.n_steps, self.text)
        if not stage.startswith("Warmup"):
            self.n_divergent = len(kernel.diagnostics()["divergences"])


def r_hat(values: np.ndarray) -> np.ndarray:
    """Return split R-hat of each quantity, which is near 1 where chains and halves of chains agree.

    It is NaN for fewer than four draws of a chain, and for a quantity that is constant. ``values (C, S, ...)`` are S
    draws of each quantity from each of C chains; the result is ``(...)``.
    """
    from pyro.ops.stats import split_gelman_rubin

    if values.shape[1] < 4:
        return np.full(values.shape[2:], np.nan)
    return np.asarray(split_gelman_rubin(torch.as_tensor(values), chain_dim=0, sample_dim=1))


def effective_size(values: np.ndarray) -> np.ndarray:
    """Return the effective sample size: how many independent draws would give each quantity's mean the same precision.

    It is NaN for fewer than four draws of a chain. ``values (C, S, ...)`` are S draws of each quantity from each of C
    chains; the result is ``(...)``.
    """
    from pyro.ops.stats import effective_sample_size

    if values.shape[1] < 4:
        return np.full(values.shape[2:], np.nan)
    return np.asarray(effective_sample_size(torch.as_tensor(values), chain_dim=0, sample_dim=1))
