"""Small left-to-right chains of all labels at once, by segmental k-means: cheap enough to compare features with.

Frames of segment k under label c are ``N(mean_ck, diag(variance_ck))``, and a sequence passes through them in order,
along its most probable path. Rabiner, Wilpon and Juang (1986), *A segmental k-means training procedure for connected
word recognition*.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

MOST_FRAMES = 200  # of a sequence: of a longer one evenly spaced frames are read


@dataclass(frozen=True)
class PaddedFrames:
    """``values (n, T, D)``, 0 after the end of each sequence, and ``lengths (n,)``."""

    values: np.ndarray
    lengths: np.ndarray

    @classmethod
    def of(cls, items: Sequence[np.ndarray]) -> Self:
        """Frames in units of their standard deviation, less their mean; ``ValueError`` for a constant column."""
        items = [_thinned_out(item) for item in items]
        joined = np.concatenate(items)
        scale = joined.std(axis=0)
        if not (scale > 0).all():
            raise ValueError(f"column {int(np.argmin(scale > 0))} is constant; leave it out")
        lengths = np.array([len(item) for item in items])
        values = np.zeros((len(items), lengths.max(), joined.shape[1]))
        for i, item in enumerate(items):
            values[i, : len(item)] = (item - joined.mean(axis=0)) / scale
        return cls(values, lengths)

    def take(self, mask: np.ndarray) -> PaddedFrames:
        return PaddedFrames(self.values[mask], self.lengths[mask])

    @property
    def is_real(self) -> np.ndarray:
        """``(n, T)`` whether a frame is one of the sequence, and not after its end."""
        return np.asarray(np.arange(self.values.shape[1]) < self.lengths[:, None])


@dataclass(frozen=True)
class SegmentChains:
    """``means (C, K, D)`` and ``variances (C, K, D)`` of C labels and K segments, in units of ``PaddedFrames``."""

    means: np.ndarray
    variances: np.ndarray

    def log_prob(self, frames: PaddedFrames) -> np.ndarray:
        """``(n, C)`` nats of the best path, up to what all labels share."""
        n_frames = frames.values.shape[1]
        log_density = self._log_density(frames.values)  # (n, T, C, K)
        best = np.full(log_density.shape[:1] + log_density.shape[2:], -np.inf)
        best[..., 0] = log_density[:, 0, :, 0]
        for t in range(1, n_frames):
            is_real = t < frames.lengths
            best[is_real] = _from_best(best[is_real])[0] + log_density[is_real, t]
        return np.asarray(best.max(axis=-1))

    def _log_density(self, values: np.ndarray) -> np.ndarray:
        """``(n, T, C, K)``."""
        flat, shape = values.reshape(-1, values.shape[2]), self.means.shape[:2]
        means, precisions = (each.reshape(-1, flat.shape[1]) for each in (self.means, 1 / self.variances))
        constant = (means**2 * precisions - np.log(precisions)).sum(axis=1)
        log_density = flat @ (means * precisions).T - 0.5 * (flat**2 @ precisions.T + constant)
        return np.asarray(log_density.reshape(*values.shape[:2], *shape))

    def paths(self, frames: PaddedFrames, index: np.ndarray) -> np.ndarray:
        """``(n, T)`` segment of each frame on the best path of the sequence's own label."""
        n, n_frames, _ = frames.values.shape
        log_density = np.empty((n, n_frames, self.means.shape[1]))
        for label in np.unique(index):
            chain = SegmentChains(self.means[label, None], self.variances[label, None])
            log_density[index == label] = chain._log_density(frames.values[index == label])[:, :, 0]
        best, has_moved = np.full_like(log_density[:, 0], -np.inf), np.zeros(log_density.shape, dtype=bool)
        best[:, 0] = log_density[:, 0, 0]
        for t in range(1, n_frames):
            is_real = t < frames.lengths
            before, has_moved[is_real, t] = _from_best(best[is_real])
            best[is_real] = before + log_density[is_real, t]
        path = np.empty((n, n_frames), dtype=np.int64)
        path[:, -1] = best.argmax(axis=1)
        for t in range(n_frames - 1, 0, -1):  # after the end nothing moves
            path[:, t - 1] = path[:, t] - has_moved[np.arange(n), t, path[:, t]]
        return path


def fitted_chains(
    frames: PaddedFrames,
    index: np.ndarray,
    n_labels: int,
    *,
    pools_variances: bool,
    mean_count: float,
    n_segments: int = 5,
    n_iter: int = 3,
) -> SegmentChains:
    """Chains of the sequences of each label, which begin with segments of equal length.

    Args:
        frames: of training.
        index: ``(n,)`` number of the label of each sequence, below ``n_labels``.
        pools_variances: one variance a feature for all labels and segments; otherwise each segment has its own, to
            which the pooled one counts as ``mean_count`` frames.
        mean_count: frames at the mean of all, which each segment has seen besides its own.
    """
    equal = np.arange(frames.values.shape[1]) * n_segments // frames.lengths[:, None]
    path = np.minimum(equal, n_segments - 1)
    for i in range(n_iter + 1):
        chains = _chains_of(frames, index, path, (n_labels, n_segments), pools_variances, mean_count)
        if i < n_iter:
            path = chains.paths(frames, index)
    return chains


def _chains_of(
    frames: PaddedFrames,
    index: np.ndarray,
    path: np.ndarray,
    shape: tuple[int, int],
    pools_variances: bool,
    mean_count: float,
) -> SegmentChains:
    """Means and variances of the frames that ``path (n, T)`` puts into each segment."""
    is_real = frames.is_real
    values, segment = frames.values[is_real], (index[:, None] * shape[1] + path)[is_real]
    membership = np.eye(shape[0] * shape[1])[segment]  # (N, C K)
    counts = membership.sum(axis=0)[:, None]
    sums, squares = membership.T @ values, membership.T @ values**2
    means = sums / (counts + mean_count)
    scatter = squares - 2 * means * sums + counts * means**2
    pooled = scatter.sum(axis=0) / len(values)
    if pools_variances:
        variances = np.broadcast_to(pooled, scatter.shape)
    else:
        variances = (scatter + mean_count * pooled) / (counts + mean_count)
    return SegmentChains(means.reshape(*shape, -1), variances.reshape(*shape, -1))


def _from_best(best: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """``(..., K)`` the better of staying and moving on by one, and whether that is moving on."""
    moved = np.concatenate([np.full_like(best[..., :1], -np.inf), best[..., :-1]], axis=-1)
    return np.maximum(best, moved), moved > best


def _thinned_out(item: np.ndarray) -> np.ndarray:
    if len(item) <= MOST_FRAMES:
        return item
    return item[np.linspace(0, len(item) - 1, MOST_FRAMES).round().astype(np.int64)]
