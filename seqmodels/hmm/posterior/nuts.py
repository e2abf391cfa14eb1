"""Draws from a density of unconstrained numbers by the no-U-turn sampler of Pyro (Hoffman and Gelman 2014), and how far
they can be trusted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqmodels.common.progress import ProgressBar, Verbose

JITTER = 0.1  # deviation of where chains start, in units of the unconstrained numbers


@dataclass(frozen=True)
class Sampled:
    """Draws ``u (C, S, P)`` of C chains, and how many of them came from trajectories that diverged."""

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
    """Draws from a log-density of ``(P,)`` float64, in nats, known up to a constant; zero is near its mode.

    Step size and a dense mass matrix are adapted during ``warmup`` steps, which are left out. Chains run one after the
    other, from starts ``JITTER`` apart; torch's own generator is left as it was.
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
    """A chain that Pyro draws, followed at each of its steps: moves a bar on, and counts draws that diverged.

    Args:
        bar: of all chains.
        before: steps of the chains before it.
        text: which chain it is.
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
    """Split R-hat of ``(C, S, ...)`` draws; 1 where chains agree, NaN of fewer than four draws or of constants."""
    from pyro.ops.stats import split_gelman_rubin

    if values.shape[1] < 4:
        return np.full(values.shape[2:], np.nan)
    return np.asarray(split_gelman_rubin(torch.as_tensor(values), chain_dim=0, sample_dim=1))


def effective_size(values: np.ndarray) -> np.ndarray:
    """How many independent draws ``(C, S, ...)`` draws are worth for their mean; NaN of one draw a chain."""
    from pyro.ops.stats import effective_sample_size

    if values.shape[1] < 4:
        return np.full(values.shape[2:], np.nan)
    return np.asarray(effective_sample_size(torch.as_tensor(values), chain_dim=0, sample_dim=1))
