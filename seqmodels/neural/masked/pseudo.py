"""Pseudo-log-likelihood ``Σ_t log p(x_t | x_1 .. x_{t-1}, x_{t+1} .. x_T)``, one forward pass a symbol; not a likelihood."""

from __future__ import annotations

import zlib

import numpy as np
import torch

from seqmodels.neural.masked.bidirectional import BidirectionalModule, batches, log_prob_of, pad
from seqmodels.neural.masked.masking import MASK, bracket

STEPS_AT_ONCE = 16_384  # in one batch: bounds memory, changes nothing


@torch.no_grad()
def conditionals(
    module: BidirectionalModule, values: list[np.ndarray], positions: list[np.ndarray], max_length: int
) -> list[np.ndarray]:
    """For each sequence ``log p(x_t | x_\\t)``, float64 nats, at its ``positions`` t (Salazar et al. 2020).

    Each is asked of a copy of its own, in which only it is masked. A sequence longer than ``max_length`` (its two marks
    counted) is seen through a window of that length with t as near the middle as the sequence's ends allow.

    Args:
        module: in evaluation mode.
        values: symbols (T,) of each sequence.
        positions: of each sequence, from 0.
        max_length: steps that the module sees at once.
    """
    rows = [bracket(v, module.n_symbols) for v in values]
    jobs = [(i, int(t) + 1) for i, at in enumerate(positions) for t in at]  # + 1: the mark of the beginning
    results, device = np.zeros(len(jobs)), module.head.weight.device
    for batch in batches([min(len(rows[i]), max_length) for i, _ in jobs], STEPS_AT_ONCE):
        pieces, places = zip(
            *(_masked(rows[i], t, max_length, module.n_symbols) for i, t in map(jobs.__getitem__, batch)), strict=True
        )
        steps, real = pad(list(pieces), device)
        asked = torch.arange(steps.shape[1], device=device) == torch.tensor(places, device=device).unsqueeze(1)
        answers = torch.tensor([int(rows[i][t]) for i, t in map(jobs.__getitem__, batch)], device=device)
        results[batch] = log_prob_of(module(steps, real, asked).double(), answers).cpu().numpy()
    return np.split(results, np.cumsum([len(at) for at in positions])[:-1])


def _masked(row: np.ndarray, t: int, max_length: int, n_symbols: int) -> tuple[np.ndarray, int]:
    """The window of a row around step t, with t masked, and where in it t stands."""
    begin = max(0, min(t - max_length // 2, len(row) - max_length))
    piece = row[begin : begin + max_length].copy()
    piece[t - begin] = n_symbols + MASK
    return piece, t - begin


def sampled_positions(values: np.ndarray, n_samples: int | None, random_state: int) -> np.ndarray:
    """All positions of a sequence, or ``n_samples`` of them without replacement, each as likely as any other.

    The draw depends on the seed and on the sequence, not on where among others it stands.
    """
    if n_samples is None or n_samples >= len(values):
        return np.arange(len(values))
    rng = np.random.default_rng([random_state, zlib.crc32(values.tobytes())])
    return rng.permutation(len(values))[:n_samples]
