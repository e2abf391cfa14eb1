"""k-means (Lloyd 1982) from greedy k-means++ seeds (Arthur and Vassilvitskii 2007, section 7): where EM starts.

Centres are learned from a sample, for several groups of frames (the states of a mixture) at once. Few clusters have
plain seeds and few rounds: carried to its end, k-means comes to the same few clusters from nearly all seeds, and EM
from each to the same optimum; of many clusters it never does, and good ones pay.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from seqmodels.sequences.measure import Values

SAMPLE = 20_000  # frames that centres are learned from, over all groups,
PER_CLUSTER = 128  # or as many for each cluster;
PER_SEED = 64  # frames for each cluster to choose its seed from
ROUNDS = 10
REACH = 2  # frames on either side of one
ROUNDING = 4  # units in the last place of a squared distance that two which are equal may differ by


def in_comparable_units(x: Tensor, values: tuple[Values, ...]) -> Tensor:
    """``x (N, D)`` in units in which distances can be compared: 2 for a bit, 2√x for a count (whose deviation is then
    1), the logarithm of a positive number, 4 for a proportion; missing: the mean.

    Of each angle the cosine, and in a column more the sine: ``(N, D + angles)``.
    """

    def are(kind: Values) -> Tensor:
        return torch.tensor([value == kind for value in values], device=x.device)

    scaled = torch.where(are("bits"), 2 * x, torch.where(are("counts"), 2 * x.clamp(min=0).sqrt(), x))
    if "positive" in values:
        scaled = torch.where(are("positive"), x.clamp(min=torch.finfo(x.dtype).tiny).log(), scaled)
    if "proportions" in values:
        scaled = torch.where(are("proportions"), 4 * x, scaled)
    if "angles" in values:
        scaled = torch.cat([torch.where(are("angles"), x.cos(), scaled), x[:, are("angles")].sin()], 1)
    return torch.where(torch.isnan(scaled), scaled.nanmean(0).nan_to_num(), scaled)


def with_neighbour_means(x: Tensor) -> Tensor:
    """``(N, 2D)``: each frame, and beside it the mean of it and ``REACH`` frames on either side, scaled to vary as a
    frame does if frames are independent.

    Clusters of frames alone tell apart what states emit but not what surrounds them, and EM hardly leaves such a start.
    """
    width = 2 * REACH + 1
    padded = torch.cat([x[:1].expand(REACH, -1), x, x[-1:].expand(REACH, -1)])
    around = torch.stack([padded[i : i + len(x)] for i in range(width)]).sum(0)
    return torch.cat([x, around / width**0.5], dim=1)


def kmeans_labels(x: Tensor, n_clusters: int, generator: torch.Generator) -> Tensor:
    """``(N,)`` cluster of each row of ``x (N, D)``; clusters may be empty where rows repeat or are few."""
    one_group = torch.zeros(len(x), dtype=torch.int64, device=x.device)
    return grouped_labels(x, one_group, 1, n_clusters, generator)


def grouped_labels(x: Tensor, groups: Tensor, n_groups: int, n_clusters: int, generator: torch.Generator) -> Tensor:
    """``(N,)`` cluster of each row of ``x (N, D)`` within its group, ``groups (N,)``: k-means in each by itself."""
    order = torch.randperm(len(x), generator=generator).to(x.device)
    order = order[groups[order].argsort(stable=True)]
    counts = torch.bincount(groups, minlength=n_groups)
    sample, mask = _sampled(order, counts, max(PER_CLUSTER * n_clusters, SAMPLE // n_groups))
    seeds = _seeds(x[sample[:, : PER_SEED * n_clusters]].cpu(), mask, n_clusters, generator)
    centres = _lloyd(x[sample], mask, seeds)
    labels = torch.empty_like(groups)
    for group, members in enumerate(order.split(counts.tolist())):
        for part in members.split(SAMPLE):
            labels[part] = _nearest(x[part].unsqueeze(0), centres[group].unsqueeze(0))[0][0]
    return labels


def _sampled(order: Tensor, counts: Tensor, max_rows: int) -> tuple[Tensor, Tensor]:
    """``(G, S)`` rows of each group, and their mask: shorter groups are repeated to fill up."""
    slots = torch.arange(min(max_rows, int(counts.max())), device=order.device)
    starts = counts.cumsum(0) - counts
    positions = starts.unsqueeze(1) + slots % counts.clamp(min=1).unsqueeze(1)
    return order[positions.clamp(max=len(order) - 1)], slots < counts.unsqueeze(1)


def _seeds(x: Tensor, mask: Tensor, n_clusters: int, generator: torch.Generator) -> Tensor:
    """``(G, M, D)`` of ``x (G, S, D)``: each is the best of some drawn by squared distance from the seeds before."""
    mask = mask[:, : x.shape[1]].cpu()
    groups = torch.arange(len(x))
    n_candidates = max(1, int(math.log(n_clusters)))
    distance = torch.full(x.shape[:2], math.inf, dtype=x.dtype)
    seeds: list[Tensor] = []
    for _ in range(n_clusters):
        n_draws = n_candidates if seeds else 1
        candidate_rows = torch.multinomial(
            _weights(distance, mask), n_draws, replacement=True, generator=generator
        )  # (G, n)
        candidates = x[groups.unsqueeze(1), candidate_rows]  # (G, n, D)
        candidate_distance = torch.stack([(x - c.unsqueeze(1)).square().sum(-1) for c in candidates.unbind(1)], 1)
        candidate_distance = torch.minimum(candidate_distance, distance.unsqueeze(1))  # (G, n, S)
        best = (candidate_distance * mask.unsqueeze(1)).sum(-1).argmin(1)
        distance = candidate_distance[groups, best]
        seeds.append(candidates[groups, best])
    return torch.stack(seeds, 1)


def _weights(distance: Tensor, mask: Tensor) -> Tensor:
    """By which seeds are drawn: uniform for the first, and where every frame is a seed already."""
    weights = torch.where(mask & distance.isfinite(), distance, 0.0).double()
    total = weights.sum(1, keepdim=True)
    uniform = torch.where(mask.any(1, keepdim=True), mask, True).double()
    return torch.where((total > 0) & total.isfinite(), weights, uniform)


def _lloyd(x: Tensor, mask: Tensor, seeds: Tensor) -> Tensor:
    """Centres ``(G, M, D)`` after some rounds on ``x (G, S, D)``."""
    (g, m, d), centres = seeds.shape, seeds.to(x.device)
    offsets = m * torch.arange(g, device=x.device).unsqueeze(1)
    weight = mask.to(x.dtype)
    weighted = (x * weight.unsqueeze(-1)).flatten(0, 1)
    for _ in range(min(ROUNDS, m)):
        labels, distance = _nearest(x, centres)
        which = (labels + offsets).flatten()
        counts = x.new_zeros(g * m).index_add_(0, which, weight.flatten()).view(g, m, 1)
        sums = x.new_zeros(g * m, d).index_add_(0, which, weighted).view(g, m, d)
        centres, is_empty = sums / counts.clamp(min=1), counts == 0
        if bool(is_empty.any()):
            # An empty cluster starts again at a frame far from its centre; there may be more of them than frames.
            # Distances are told apart to a thousandth, so that rounding does not decide between frames equally far.
            far = (distance / distance.amax(1, keepdim=True)).nan_to_num().mul(1_000).round()
            far = far.topk(min(m, x.shape[1]), dim=1).indices[:, torch.arange(m) % min(m, x.shape[1])]
            centres = torch.where(is_empty, x.gather(1, far.unsqueeze(-1).expand(-1, -1, d)), centres)
    return centres


def _nearest(x: Tensor, centres: Tensor) -> tuple[Tensor, Tensor]:
    """Of ``x (G, S, D)`` the nearest of ``centres (G, M, D)`` and its squared distance, ``(G, S)`` each.

    Of centres that are equally near it is the first: where symbols or small numbers make such ties, the rounding of a
    product, which depends on the processor, does not decide where EM starts.
    """
    squares = centres.square().sum(-1, keepdim=True)
    scores = torch.baddbmm(squares, centres, x.mT, alpha=-2)  # (G, M, S)
    least, of_x = scores.amin(1), x.square().sum(-1)
    rounding = ROUNDING * torch.finfo(x.dtype).eps * (of_x + squares.amax(1))
    nearest = (scores <= (least + rounding).unsqueeze(1)).to(torch.uint8).argmax(1)
    return nearest, (least + of_x).clamp(min=0)
