"""pomegranate: ``DenseHMM`` with diagonal Gaussian mixtures or ``Categorical``. One variant: ``float32``, its dtype.

Its HMM has end probabilities. After each M-step they are set to one and the transitions normalised again, so that it
fits p(x | T) as the others do.
"""

from __future__ import annotations

import time
from importlib.metadata import version

import numpy as np
import torch
from peers.worker import Iteration, Trainer, serve
from pomegranate.distributions import Categorical, Normal
from pomegranate.distributions._distribution import Distribution
from pomegranate.gmm import GeneralMixtureModel
from pomegranate.hmm import DenseHMM
from workloads import Mixture, Workload

ARCS_AT_ONCE = 1 << 27  # elements of its (n, T, K, K) intermediate: bounds memory; larger was no faster


class PomegranateTrainer(Trainer):
    """The loop of its ``fit`` (``summarize`` per batch, then ``from_summaries``) without the convergence test."""

    def __init__(self, workload: Workload, dtype: str, device: str = "cpu") -> None:
        assert dtype == "float32", "its statistics are float32"
        torch.set_num_threads(1)
        k = len(workload.initial)
        edges, starts = (_tensor(p) for p in (workload.transition, workload.initial))
        states = _states(workload.emission)
        self.model = DenseHMM(states, edges=edges, starts=starts, ends=torch.ones(k), check_data=False).to(device)
        x = workload.stacked
        data = (_tensor(x) if x.ndim == 3 else torch.as_tensor(x).unsqueeze(-1)).to(device)
        self.batches = data.split(max(1, ARCS_AT_ONCE // (data.shape[1] * k * k)))

    def iterate(self, n: int) -> list[Iteration]:
        return [self._iteration() for _ in range(n)]

    def _iteration(self) -> Iteration:
        began = time.perf_counter()
        log_prob = sum(float(self.model.summarize(batch).double().sum()) for batch in self.batches)
        self.model.from_summaries()
        self.model.edges -= torch.logsumexp(self.model.edges, dim=1, keepdim=True)
        self.model.ends.zero_()
        return Iteration(time.perf_counter() - began, log_prob)

    def versions(self) -> str:
        return f"pomegranate {version('pomegranate')}, torch {torch.__version__}"


def _states(emission: Mixture | np.ndarray) -> list[Distribution]:
    if isinstance(emission, Mixture):
        every = zip(emission.weights, emission.means, emission.variances, strict=True)
        return [_mixture(weights, means, variances) for weights, means, variances in every]
    return [Categorical(_tensor(row[None]), check_data=False) for row in emission]


def _mixture(weights: np.ndarray, means: np.ndarray, variances: np.ndarray) -> GeneralMixtureModel:
    components = [
        Normal(_tensor(mean), _tensor(variance), covariance_type="diag", check_data=False)
        for mean, variance in zip(means, variances, strict=True)
    ]
    return GeneralMixtureModel(components, priors=_tensor(weights), check_data=False)


def _tensor(array: np.ndarray) -> torch.Tensor:
    return torch.as_tensor(array, dtype=torch.float32)


if __name__ == "__main__":
    serve(PomegranateTrainer)
