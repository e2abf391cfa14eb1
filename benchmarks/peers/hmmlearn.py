"""hmmlearn: ``GMMHMM`` and ``CategoricalHMM``. Variants: the implementation, ``scaling`` or ``log``.

Its default priors are flat. Its variances are about the means from before the M-step, not the new ones: the
likelihood still rises, by other steps.
"""

from __future__ import annotations

import math
import time
from typing import Any

import hmmlearn
import numpy as np
from hmmlearn.base import ConvergenceMonitor
from hmmlearn.hmm import GMMHMM, CategoricalHMM
from peers.worker import Iteration, Trainer, serve
from workloads import Mixture, Workload


class Clock(ConvergenceMonitor):
    """Notes when each iteration ends, and stops none early."""

    def __init__(self, n_iter: int) -> None:
        super().__init__(tol=-math.inf, n_iter=n_iter, verbose=False)
        self.times = [time.perf_counter()]

    def report(self, log_prob: float) -> None:
        self.times.append(time.perf_counter())
        super().report(log_prob)


class HmmlearnTrainer(Trainer):
    """``fit`` over and over, each going on from the parameters of the one before."""

    def __init__(self, workload: Workload, implementation: str) -> None:
        mixture = isinstance(workload.emission, Mixture)
        self.model = (_mixture if mixture else _categorical)(workload, implementation)
        self.model.startprob_, self.model.transmat_ = workload.initial, workload.transition
        self.x = workload.x if mixture else workload.x[:, None]
        self.lengths = workload.lengths

    def iterate(self, n: int) -> list[Iteration]:
        self.model.n_iter = n
        self.model.monitor_ = clock = Clock(n)
        self.model.fit(self.x, self.lengths)
        return [Iteration(float(s), p) for s, p in zip(np.diff(clock.times), clock.history, strict=True)]

    def versions(self) -> str:
        return f"hmmlearn {hmmlearn.__version__}, numpy {np.__version__}"


def _mixture(workload: Workload, implementation: str) -> Any:
    emission = workload.emission
    assert isinstance(emission, Mixture)
    k, m, d = emission.means.shape
    model = GMMHMM(k, m, min_covar=0, covariance_type="diag", init_params="", implementation=implementation)
    model.weights_, model.means_, model.covars_ = emission.weights, emission.means, emission.variances
    model.n_features = d
    model._init = lambda X, lengths=None: None  # it runs k-means even where nothing is to be initialised
    return model


def _categorical(workload: Workload, implementation: str) -> Any:
    emission = workload.emission
    assert isinstance(emission, np.ndarray)
    k, v = emission.shape
    model = CategoricalHMM(k, n_features=v, init_params="", implementation=implementation)
    model.emissionprob_ = emission
    return model


if __name__ == "__main__":
    serve(HmmlearnTrainer)
