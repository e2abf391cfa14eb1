"""seqmodels: ``HMM.from_parameters``, then ``fit`` with ``warm_start``. Variants: ``float32`` and ``float64``."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from peers.worker import Iteration, Trainer, serve
from workloads import Workload

from seqmodels import HMM


def hmm(workload: Workload, dtype: str) -> HMM:
    """A fitted HMM whose ``fit`` goes on from the parameters of the workload."""
    chain, emission = (workload.initial, workload.transition), workload.emission
    options: dict[str, Any] = {"dtype": dtype, "warm_start": True, "tol": 0, "device": "cpu"}
    if isinstance(emission, np.ndarray):
        return HMM.from_parameters(*chain, emission=emission, **options)
    weights, means, variances = emission.weights, emission.means, emission.variances
    return HMM.from_parameters(*chain, weights=weights, means=means, covariances=variances, **options)


class SeqmodelsTrainer(Trainer):
    """The history has a line for every E-step: between two lines lie one M-step and one E-step."""

    def __init__(self, workload: Workload, dtype: str) -> None:
        torch.set_num_threads(1)
        self.model = hmm(workload, dtype)
        self.sequences = workload.sequences
        self.n_frames = len(workload.x)

    def iterate(self, n: int) -> list[Iteration]:
        self.model.set_params(max_iter=n).fit(self.sequences)
        history = self.model.history_
        seconds, log_prob = np.diff(history["seconds"]), self.n_frames * history["log_prob"].to_numpy()[:-1]
        return [Iteration(float(s), float(p)) for s, p in zip(seconds, log_prob, strict=True)]

    def versions(self) -> str:
        return f"seqmodels {version('seqmodels')}, torch {torch.__version__}"


if __name__ == "__main__":
    serve(SeqmodelsTrainer)
