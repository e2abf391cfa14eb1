"""Exact log-probabilities of many sequences: whole, or by windows where a network's memory is bounded."""

from __future__ import annotations

import numpy as np
import torch

from seqmodels.neural.batches import Row, StepRange, Windowing, assemble, cut
from seqmodels.neural.evaluation_copy import evaluation_copy
from seqmodels.neural.io_module import SequenceModule, batch_log_prob
from seqmodels.neural.network import CarriedState
from seqmodels.observations import Observation

MAX_STEPS_PER_BATCH = 16_384  # bounds memory, changes nothing
MAX_STEPS_PER_CALL = 2_048  # of one sequence; the state is carried on


@torch.no_grad()
def log_prob_steps(
    module: SequenceModule, observation: Observation, rows: list[Row], windowing: Windowing
) -> list[np.ndarray]:
    """For each row the float64 log-probability of its scored steps; ``module`` stays as it is."""
    if module.training:
        parameter = next(module.parameters())
        module = evaluation_copy(module, parameter.device, parameter.dtype)
    results = [np.zeros(row.n_steps) for row in rows]
    windows = [(StepRange(i, b, e), s) for i, row in enumerate(rows) for b, e, s in windowing.windows(row.n_steps)]
    windows.sort(key=lambda window: len(window[0]))
    at = 0
    while at < len(windows):
        size = 1
        limit = max(MAX_STEPS_PER_BATCH, len(windows[at][0]))
        while at + size < len(windows) and (size + 1) * len(windows[at + size][0]) <= limit:
            size += 1
        batch = windows[at : at + size]
        scored = _score(module, observation, rows, [steps for steps, _ in batch])
        for (steps, scored_from), log_prob in zip(batch, scored, strict=True):
            results[steps.row][scored_from : steps.end] = log_prob[scored_from - steps.begin :]
        at += size
    return [log_prob[row.first :] for row, log_prob in zip(rows, results, strict=True)]


def _score(
    module: SequenceModule, observation: Observation, rows: list[Row], ranges: list[StepRange]
) -> list[np.ndarray]:
    """For each range the log-probability of its steps."""
    parameter = next(module.parameters())
    memory: CarriedState = None
    parts = []
    for k in range(0, max(map(len, ranges)), MAX_STEPS_PER_CALL):
        now = [cut(steps, k, MAX_STEPS_PER_CALL) for steps in ranges]
        batch = assemble(rows, now, observation.n_past, parameter.device, parameter.dtype)
        if k == 0:
            memory = module.start(len(ranges), batch.source, batch.source_mask)
        log_prob, _, memory = batch_log_prob(module, observation, batch, memory)
        parts.append(log_prob.double().cpu().numpy())
    joined = np.concatenate(parts, axis=1)
    return [row[: len(steps)] for row, steps in zip(joined, ranges, strict=True)]
