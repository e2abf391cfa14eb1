"""k-means (Lloyd 1982) from greedy k-means++ seeds (Arthur and Vassilvitskii 2007, section 7), from which EM starts.

Centres are learned from a sample, for several groups of frames (the states of a mixture) at once. Few clusters get
plain seeds and few rounds: run to its end, k-means reaches the same few clusters from nearly all seeds, and EM from
each the same optimum. With many clusters it does not, and better seeds pay.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from seqmodels.sequences.measure import Values

SAMPLE = 20_000  # frames in all groups from which centres are learned,
PER_CLUSTER = 128  # or so many for each cluster if that is more
PER_SEED = 64  # frames for each cluster from which its seed is chosen
ROUNDS = 10  # most rounds of k-means
REACH = 2  # frames on either side that count as neighbours
ROUNDING = 4  # units in the last place by which equal squared distances may differ


def in_comparable_units(x: Tensor, values: tuple[Values, ...]) -> Tensor:
    """Return frames ``x (N, D)`` in units in which distances between features can be compared.

    A bit is multiplied by 2, a count becomes 2√x (whose standard deviation is then 1), an amount too (whose logarithm
    may be infinite), a positive number its logarithm, and a proportion is multiplied by 4. An angle becomes its cosine,
    and its sine in an extra column, so that the result is ``(N, D + angles)``. Missing values become the mean.

    Args:
        x: N frames of D features, NaN where missing.
        values: kind of each feature, such as ``"bits"`` or ``"angles"``.
    """

    def are(kind: Values) -> Tensor:
        return torch.tensor([value == kind for value in values], device=x.device)

    scaled = torch.where(are("bits"), 2 * x, torch.where(are("counts") | are("amounts"), 2 * x.clamp(min=0).sqrt(), x))
    if "positive" in values:
        scaled = torch.where(are("positive"), x.clamp(min=torch.finfo(x.dtype).tiny).log(), scaled)
    if "proportions" in values:
        scaled = torch.where(are("proportions"), 4 * x, scaled)
    if "angles" in values:
        scaled = torch.cat([torch.where(are("angles"), x.cos(), scaled), x[:, are("angles")].sin()], 1)
    return torch.where(torch.isnan(scaled), scaled.nanmean(0).nan_to_num(), scaled)


def with_neighbour_means(x: Tensor) -> Tensor:
    """Return each frame of ``x (N, D)`` joined to the mean of the frames around it, ``(N, 2D)``.

    The mean is over the frame and ``REACH`` frames on either side, scaled so that it varies as much as a frame if
    frames are independent. Clusters of single frames would separate states by what they emit but not by their
    surroundings, and EM hardly moves away from such a start.
    """
    width = 2 * REACH + 1
    padded = torch.cat([x[:1].expand(REACH, -1), x, x[-1:].expand(REACH, -1)])
    around = torch.stack([padded[i : i + len(x)] for i in range(width)]).sum(0)
    return torch.cat([x, around / width**0.5], dim=1)


def kmeans_labels(x: Tensor, n_clusters: int, generator: torch.Generator) -> Tensor:
    """Return the k-means cluster of each row of ``x (N, D)``, ``(N,)`` integers below ``n_clusters``.

    Clusters may be empty if rows repeat or are few.
    """
    one_group = torch.zeros(len(x), dtype=torch.int64, device=x.device)
    return grouped_labels(x, one_group, 1, n_clusters, generator)


def grouped_labels(x: Tensor, groups: Tensor, n_groups: int, n_clusters: int, generator: torch.Generator) -> Tensor:
    """Return the k-means cluster of each row of ``x (N, D)`` within its group, ``(N,)`` integers below ``n_clusters``.

    K-means runs in each group of rows by itself. ``groups (N,)`` are the numbers of the groups, integers below
    ``n_groups``.
    """
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
    """Return the row numbers of a random sample of up to S rows of each of G groups, ``(G, S)``, and a mask ``(G, S)``.

    The mask is False where rows of a smaller group are repeated as padding. ``order``: all row numbers in random order,
    sorted by group, ``(N,)``; ``counts``: number of rows of each group, ``(G,)``; ``max_rows``: largest S.
    """
    slots = torch.arange(min(max_rows, int(counts.max())), device=order.device)
    starts = counts.cumsum(0) - counts
    positions = starts.unsqueeze(1) + slots % counts.clamp(min=1).unsqueeze(1)
    return order[positions.clamp(max=len(order) - 1)], slots < counts.unsqueeze(1)


def _seeds(x: Tensor, mask: Tensor, n_clusters: int, generator: torch.Generator) -> Tensor:
    """Return M first centres of each group, ``(G, M, D)``, chosen from rows ``x (G, S, D)`` by greedy k-means++.

    Each seed is the best of some candidates drawn in proportion to squared distance from the seeds before it. ``mask``
    is False for rows that are padding, ``(G, S)``.
    """
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
    """Return each row's weight ``(G, S)`` in the draw of the next seed: its squared distance from the seeds so far.

    Weights are uniform for the first seed, and where every row is a seed already. ``mask`` is False for padding.
    """
    weights = torch.where(mask & distance.isfinite(), distance, 0.0).double()
    total = weights.sum(1, keepdim=True)
    uniform = torch.where(mask.any(1, keepdim=True), mask, True).double()
    return torch.where((total > 0) & total.isfinite(), weights, uniform)


def _lloyd(x: Tensor, mask: Tensor, seeds: Tensor) -> Tensor:
    """Return the centres ``(G, M, D)`` after some rounds of k-means on ``x (G, S, D)`` from the centres ``seeds``.

    ``mask`` is False for rows that are padding, ``(G, S)``.
    """
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
            # Distances are compared to a thousandth, so that rounding does not decide between frames equally far.
            far = (distance / distance.amax(1, keepdim=True)).nan_to_num().mul(1_000).round()
            far = far.topk(min(m, x.shape[1]), dim=1).indices[:, torch.arange(m) % min(m, x.shape[1])]
            centres = torch.where(is_empty, x.gather(1, far.unsqueeze(-1).expand(-1, -1, d)), centres)
    return centres


def _nearest(x: Tensor, centres: Tensor) -> tuple[Tensor, Tensor]:
    """Return the nearest of ``centres (G, M, D)`` to each of ``x (G, S, D)`` and its squared distance, both ``(G, S)``.

    The first of equally near centres is chosen up to rounding. Symbols and small numbers make such ties often, and
    otherwise the rounding of a product, which depends on the processor, would decide where EM starts.
    """
    squares = centres.square().sum(-1, keepdim=True)
    scores = torch.baddbmm(squares, centres, x.mT, alpha=-2)  # (G, M, S)
    least, of_x = scores.amin(1), x.square().sum(-1)
    rounding = ROUNDING * torch.finfo(x.dtype).eps * (of_x + squares.amax(1))
    nearest = (scores <= (least + rounding).unsqueeze(1)).to(torch.uint8).argmax(1)
    return nearest, (least + of_x).clamp(min=0)
