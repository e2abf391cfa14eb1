"""k-means (Lloyd 1982) with k-means++ seeding (Arthur and Vassilvitskii 2007): where EM starts."""

from __future__ import annotations

import torch
from torch import Tensor

from seqmodels.measure import Values

SAMPLE = 20_000  # frames that centres are learned from
ITERATIONS = 10


def spread(x: Tensor, values: tuple[Values, ...]) -> Tensor:
    """``x (N, D)`` in units in which distances compare: 2 for a bit, 2√x for a count (whose deviation is then 1); missing: the mean."""
    bits, counts = (torch.tensor([v == kind for v in values], device=x.device) for kind in ("bits", "counts"))
    scaled = torch.where(bits, 2 * x, torch.where(counts, 2 * x.clamp(min=0).sqrt(), x))
    return torch.where(torch.isnan(x), scaled.nanmean(0).nan_to_num(), scaled)


def in_context(x: Tensor, reach: int = 2) -> Tensor:
    """``(N, 2D)``: each frame, and beside it the mean of it and ``reach`` frames on either side, scaled to vary as a frame does if frames are independent.

    Clusters of frames alone tell apart what states emit but not what surrounds them, and EM hardly leaves such a start.
    """
    width = 2 * reach + 1
    padded = torch.cat([x[:1].expand(reach, -1), x, x[-1:].expand(reach, -1)])
    around = torch.stack([padded[i : i + len(x)] for i in range(width)]).sum(0)
    return torch.cat([x, around / width**0.5], dim=1)


def kmeans_labels(x: Tensor, n_clusters: int, generator: torch.Generator) -> Tensor:
    """``(N,)`` cluster of each row of ``x (N, D)``; clusters may be empty where rows repeat or are few."""
    rows = torch.randperm(len(x), generator=generator)[:SAMPLE].to(x.device)
    centres = _centres(x[rows], n_clusters, generator)
    return torch.cat([_nearest(part, centres)[0] for part in x.split(SAMPLE)])


def _centres(x: Tensor, n_clusters: int, generator: torch.Generator) -> Tensor:
    centres = _seeds(x, n_clusters, generator)
    for _ in range(ITERATIONS):
        labels, distance = _nearest(x, centres)
        counts = torch.bincount(labels, minlength=n_clusters).to(x.dtype)
        sums = torch.zeros_like(centres).index_add_(0, labels, x)
        centres = sums / counts.clamp(min=1).unsqueeze(1)
        empty = torch.nonzero(counts == 0).squeeze(1)
        # An empty cluster starts again at a frame far from its centre; there may be more of them than frames.
        far = distance.topk(min(n_clusters, len(x))).indices
        centres[empty] = x[far[torch.arange(len(empty), device=x.device) % len(far)]]
    return centres


def _seeds(x: Tensor, n_clusters: int, generator: torch.Generator) -> Tensor:
    first = int(torch.randint(len(x), (1,), generator=generator))
    centres = [x[first]]
    distance = (x - centres[0]).square().sum(1)
    for _ in range(n_clusters - 1):
        weights = distance.double().cpu() if distance.sum() > 0 else torch.ones(len(x), dtype=torch.float64)
        chosen = int(torch.multinomial(weights, 1, generator=generator))
        centres.append(x[chosen])
        distance = torch.minimum(distance, (x - x[chosen]).square().sum(1))
    return torch.stack(centres)


def _nearest(x: Tensor, centres: Tensor) -> tuple[Tensor, Tensor]:
    distance = (x.square().sum(1, keepdim=True) - 2 * x @ centres.T + centres.square().sum(1)).clamp(min=0)
    nearest = distance.min(1)
    return nearest.indices, nearest.values
