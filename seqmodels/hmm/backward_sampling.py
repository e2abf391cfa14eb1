"""Paths drawn from ``p(z_1 .. z_T | x)``: filter forwards, sample backwards (Frühwirth-Schnatter 1994).

Given the state after it, ``p(z_t = i | z_t+1 = j, x) ∝ alpha_t(i) a_ij``: what comes later tells nothing more.
"""

from __future__ import annotations

import torch
from torch import Tensor

from seqmodels.hmm import log_semiring, scaled
from seqmodels.hmm.trellis import Trellis

CHUNK = 1 << 22  # elements of the (w, n, K) intermediate held at once


@torch.no_grad()
def sample_paths(trellis: Trellis, n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """``n`` independent paths of each sequence, whole, for all sequences and draws at once.

    Returns:
        (N, n) int64 packed states, and the sequences' (w,) float64 log p(x); one of -inf has no path, and its states mean nothing.
    """
    assert trellis.cutting.is_whole, "a path is followed from end to end"
    ran = scaled.forward(trellis)
    if not ran.failed.any() and scaled.refills(trellis, ran.scale):
        return _backward(trellis, ran.alpha.double().log(), n, generator), trellis.packing.totals(ran.steps) + ran.ends
    # The likeliest way back may lead through a state whose belief is below what a float can hold.
    log_alpha, steps = log_semiring.beliefs_and_steps(trellis)
    ends = torch.logsumexp(log_alpha[trellis.cutting.last] + trellis.final.log(), 1)
    return _backward(trellis, log_alpha, n, generator), trellis.packing.totals(steps) + ends


def _backward(trellis: Trellis, log_alpha: Tensor, n: int, generator: torch.Generator) -> Tensor:
    """(N, n) states; where there is no way back they mean nothing."""
    packing, into = trellis.packing, trellis.transition.log().T.contiguous()  # into[j, i] = log a_ij
    ends = trellis.ends(torch.float64).log()
    paths = torch.empty(packing.n_frames, n, dtype=torch.int64, device=into.device)
    later = paths[:0]
    for low, high in reversed(packing.blocks):
        here, going = log_alpha[low:high], len(later)
        last = _draw((here[going:] + ends[going : high - low]).unsqueeze(1).expand(-1, n, -1), generator)
        before = [_draw(a[:, None, :] + into[z], generator) for a, z in _pieces(here[:going], later, len(into))]
        later = torch.cat([*before, last])
        later = later.clamp(min=0)
        paths[low:high] = later
    return paths


def _pieces(beliefs: Tensor, states: Tensor, n_states: int) -> list[tuple[Tensor, Tensor]]:
    size = max(1, CHUNK // (max(1, states.shape[1]) * n_states))
    return list(zip(beliefs.split(size), states.split(size), strict=True)) if len(states) else []


def _draw(log_weights: Tensor, generator: torch.Generator) -> Tensor:
    """(w, n) one index for each row of ``(w, n, K)`` unnormalised log-weights, -1 where all are -inf."""
    peak = log_weights.amax(-1, keepdim=True)
    sums = (log_weights - torch.where(peak == -torch.inf, 0.0, peak)).exp().cumsum(-1)
    total = sums[..., -1:]
    chance = torch.rand(total.shape, generator=generator, dtype=torch.float64, device=total.device)
    # 1 - chance is in (0, 1]: a state of weight zero, whose sum is that of the state before, is never drawn.
    chosen = torch.searchsorted(sums, (1 - chance) * total).squeeze(-1)
    return torch.where(total.squeeze(-1) > 0, chosen, -1)
