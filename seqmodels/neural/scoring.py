"""Exact log-probabilities of many sequences: whole, or by windows where a network's memory is bounded."""

from __future__ import annotations

import numpy as np
import torch

from seqmodels.neural.batches import Reach, Row, Span, assemble
from seqmodels.neural.evaluated import evaluated
from seqmodels.neural.module import SequenceModule, chunk_log_prob
from seqmodels.neural.network import Memory
from seqmodels.observations import Observation

STEPS_AT_ONCE = 16_384  # steps in one batch: bounds memory, changes nothing
LONGEST_CHUNK = 2_048  # steps of one sequence at once; the memory is carried on


@torch.no_grad()
def log_prob_steps(module: SequenceModule, observation: Observation, rows: list[Row], reach: Reach) -> list[np.ndarray]:
    """For each row the float64 log-probability of its scored steps; ``module`` stays as it is."""
    if module.training:
        parameter = next(module.parameters())
        module = evaluated(module, parameter.device, parameter.dtype)
    results = [np.zeros(row.n_steps) for row in rows]
    jobs = [(Span(i, b, e), s) for i, row in enumerate(rows) for b, e, s in reach.windows(row.n_steps)]
    jobs.sort(key=lambda job: job[0].end - job[0].begin)
    at = 0
    while at < len(jobs):
        longest = jobs[at][0].end - jobs[at][0].begin
        size = 1
        while at + size < len(jobs) and (size + 1) * _length(jobs[at + size][0]) <= max(STEPS_AT_ONCE, longest):
            size += 1
        batch = jobs[at : at + size]
        for (span, scored_from), steps in zip(batch, _score(module, observation, rows, batch), strict=True):
            results[span.row][scored_from : span.end] = steps[scored_from - span.begin :]
        at += size
    return [steps[row.first :] for row, steps in zip(rows, results, strict=True)]


def _length(span: Span) -> int:
    return span.end - span.begin


def _score(
    module: SequenceModule, observation: Observation, rows: list[Row], batch: list[tuple[Span, int]]
) -> list[np.ndarray]:
    parameter = next(module.parameters())
    spans = [span for span, _ in batch]
    memory: Memory = None
    pieces = []
    for k in range(0, max(_length(span) for span in spans), LONGEST_CHUNK):
        cut = [Span(s.row, min(s.begin + k, s.end), min(s.begin + k + LONGEST_CHUNK, s.end)) for s in spans]
        chunk = assemble(rows, cut, observation.n_past, parameter.device, parameter.dtype)
        if k == 0:
            memory = module.start(len(spans), chunk.source, chunk.source_mask)
        log_prob, _, memory = chunk_log_prob(module, observation, chunk, memory)
        pieces.append(log_prob.double().cpu().numpy())
    steps = np.concatenate(pieces, axis=1)
    return [row[: _length(span)] for row, span in zip(steps, spans, strict=True)]
