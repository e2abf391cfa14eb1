"""What a fitted HMM of seqmodels is asked besides EM: scoring, listening step by step, sampling, decoding."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from peers.seqmodels import hmm
from peers.turns import Turn, serve, timed
from workloads import make

N_SEQUENCES = 32


def score(dtype: str) -> Turn:
    """Passes over the data."""
    workload = make("W1", "own").first(N_SEQUENCES)
    model = hmm(workload, dtype)
    return lambda n: timed(lambda: [model.log_prob(workload.sequences) for _ in range(n)])


def decode(dtype: str) -> Turn:
    """Passes over the data."""
    workload = make("W1", "own").first(N_SEQUENCES)
    model = hmm(workload, dtype)
    return lambda n: timed(lambda: [model.decode(workload.sequences) for _ in range(n)])


def stream(dtype: str) -> Turn:
    """Steps of one sequence, one at a time."""
    workload = make("W4", "own").first(N_SEQUENCES)
    model, steps = hmm(workload, dtype), np.concatenate(workload.sequences)

    def listen(n: int) -> None:
        stream = model.stream()
        for step in steps[:n]:
            stream.update(step)

    return lambda n: timed(lambda: listen(n))


def sample(dtype: str) -> Turn:
    """Steps of a batch of sequences."""
    model = hmm(make("W4", "own").first(1), dtype)
    return lambda n: timed(lambda: model.sample(N_SEQUENCES, length=n))


TASKS = {task.__name__: partial(task, "float32") for task in (score, decode, stream, sample)}

if __name__ == "__main__":
    torch.set_num_threads(1)
    serve(TASKS, f"torch {torch.__version__}")
