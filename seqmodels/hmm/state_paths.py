"""Paths of states of given sequences: the k most probable ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from seqmodels.hmm.corpus import PackedBatch
from seqmodels.hmm.inference.densities import Densities
from seqmodels.hmm.inference.list_viterbi import k_best_paths
from seqmodels.hmm.parameters import Parameters


@dataclass(frozen=True, eq=False)
class StatePath:
    """A path of states of one sequence.

    Attributes:
        states: ``(T,)`` integers.
        log_prob: nats, log p(x, path) in raw units, as ``HMM.path_log_prob``.
    """

    states: np.ndarray
    log_prob: float


def check_n_paths(k: int) -> None:
    """Raise ``ValueError`` unless ``k`` is a number of paths."""
    if not (isinstance(k, int | np.integer) and k >= 1):
        raise ValueError(f"k is {k!r}; pass the number of paths of each sequence, at least 1, or None for the best one")


@torch.no_grad()
def batch_best_paths(
    parameters: Parameters, densities: Densities, batch: PackedBatch, k: int
) -> list[tuple[Tensor, Tensor]]:
    """The ``k`` best paths of each sequence, ``(m, T)``, and log p(path, x), ``(m,)`` nats of encoded data."""
    best = k_best_paths(batch.trellis(parameters, densities), k)
    batch.refuse_impossible(torch.tensor([0.0 if len(paths) else -torch.inf for paths, _ in best]))
    return best


def state_paths(best: Sequence[tuple[Tensor, Tensor]], log_det: np.ndarray) -> list[list[StatePath]]:
    """What ``batch_best_paths`` finds, in raw units: ``log_det (n,)`` is added to log-probabilities."""
    each = ((paths.cpu().numpy(), log_prob.cpu().numpy()) for paths, log_prob in best)
    return [
        [StatePath(path, float(value + shift)) for path, value in zip(paths, log_prob, strict=True)]
        for (paths, log_prob), shift in zip(each, log_det, strict=True)
    ]
