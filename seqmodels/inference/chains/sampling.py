"""Paths drawn from ``p(z_1 .. z_T | x)``: filter forwards, sample backwards (Frühwirth-Schnatter 1994).

Given the state after it, ``p(z_t = i | z_t+1 = j, x) ∝ alpha_t(i) a_ij``: what comes later tells nothing more.
"""

from __future__ import annotations

import torch
from torch import Tensor

from seqmodels.inference.chains import log_space, scaled
from seqmodels.inference.chains.forward_backward import refuse_impossible
from seqmodels.inference.chains.segments import Segments, loops_are_compiled
from seqmodels.inference.chains.trellis import Lengths, Trellis
from seqmodels.inference.chains.viterbi import followed

TERMS_AT_ONCE = 1 << 22  # elements of the (w, n, K) intermediate held at once
NUMBERS_AT_ONCE = 1 << 26  # elements of the (N, n, K) states before that are held at once
MOST_COLUMNS = 1 << 15  # of them, for each frame: they are numbered in 16 bits


@torch.no_grad()
def sample_states(
    initial: Tensor,
    transition: Tensor,
    log_b: Tensor,
    final: Tensor | None = None,
    *,
    n: int = 1,
    lengths: Lengths | None = None,
    generator: torch.Generator,
) -> Tensor:
    """(N, n) int64: ``n`` independent paths of each sequence, drawn from p(z | x).

    Arguments as of ``forward_backward``, and a ``generator`` on the device of ``log_b``.

    Raises:
        ValueError: a sequence has probability zero (named), or shapes or a precision that do not fit.

    >>> even, b = torch.full((2, 2), 0.5), torch.tensor([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]])
    >>> paths = sample_states(even[0], even, b.log(), n=1000, generator=torch.Generator().manual_seed(0))
    >>> paths.float().mean(1).round(decimals=1)
    tensor([0.0000, 0.5000, 1.0000])
    """
    trellis = Trellis.of_concatenated(initial, transition, log_b, final, lengths)
    paths, log_prob = sample_paths(trellis, n, generator)
    refuse_impossible(log_prob)
    return paths


@torch.no_grad()
def sample_paths(trellis: Trellis, n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """``n`` independent paths of each sequence, for all sequences and draws at once.

    Returns:
        (N, n) int64 states, one sequence after the other, and float64 log p(x) of each sequence; one of -inf has no
        path, and its states mean nothing.
    """
    tried, log_alpha, log_prob = _log_alpha(trellis)
    if not tried.segments.is_whole:
        at_once = max(1, min(MOST_COLUMNS // len(tried.transition), NUMBERS_AT_ONCE // log_alpha.numel()))
        parts = [min(at_once, n - done) for done in range(0, n, at_once)]
        return torch.cat([_sample_segments(tried, log_alpha, part, generator) for part in parts], 1), log_prob
    if trellis.log_transitions is None and loops_are_compiled(log_alpha.device):
        paths = _sample_in_loops(tried, log_alpha, n, generator)
    else:
        paths = _sample_backwards(tried, log_alpha, n, generator)
    return tried.packing.unpack(paths), log_prob


def _log_alpha(trellis: Trellis) -> tuple[Trellis, Tensor, Tensor]:
    """The trellis as it is sampled from, (N, K) float64 log p(z_t | x_<=t) by its rows, and (n,) log p(x).

    The likeliest way back may lead through a state whose alpha is below what a float can hold: then logarithms are
    computed, of uncut sequences, as they are by loops on a CPU from the first.
    """
    if trellis.log_transitions is None and not loops_are_compiled(trellis.densities.device):
        for is_exact in (False, True) if trellis.segments.are_warmed_up else (False,):
            exact = Segments.exact(trellis.segments.lengths, len(trellis.transition)) if is_exact else None
            tried = trellis if exact is None else trellis.double().cut(exact)[0]
            ran = scaled.forward(tried)
            if not ran.failed.any() and scaled.has_every_state(tried, ran.alpha):
                return tried, ran.alpha.double().log(), tried.segments.totals(ran.steps) + ran.ends
    whole = trellis
    if not trellis.segments.is_whole:
        whole, _ = trellis.take(torch.arange(trellis.segments.n_sequences, device=trellis.densities.device))
    log_alpha, steps = log_space.log_alpha_and_steps(whole)
    ends = torch.logsumexp(log_alpha[whole.segments.last] + whole.final.log(), 1)
    return whole, log_alpha, whole.packing.totals(steps) + ends


def _sample_in_loops(trellis: Trellis, log_alpha: Tensor, n: int, generator: torch.Generator) -> Tensor:
    """(N, n) packed states of an uncut trellis."""
    from seqmodels.inference.chains.compiled_draws import draw_backwards

    N, a = len(log_alpha), trellis.transition.contiguous()
    uniform = torch.rand(N, n, generator=generator, dtype=torch.float64)
    paths, log_ends = torch.empty(N, n, dtype=torch.int64), trellis.ends(torch.float64).log().contiguous()
    least_exact = log_space.LogProduct(a).least_exact
    alpha, log_a = log_alpha.numpy(), a.log().numpy()
    draw_backwards(
        trellis.packing.offsets.numpy(), alpha, a.numpy(), log_a, log_ends.numpy(), least_exact, uniform.numpy(),
        paths.numpy(),
    )  # fmt: skip
    return paths


def _sample_segments(trellis: Trellis, log_alpha: Tensor, n: int, generator: torch.Generator) -> Tensor:
    """(N, n) states, one sequence after the other, of segments side by side.

    At every frame, the state before is drawn for each state that there may be: what is drawn does not depend on what
    follows, only which of it is read. State j of draw d is number ``d K + j``.
    """
    segments, K, device = trellis.segments, len(trellis.transition), log_alpha.device
    into = trellis.transition.log().T.contiguous()  # into[j, i] = log a_ij
    before, after = segments.rows_before
    first_numbers = torch.arange(n, device=device)[:, None] * K  # (n, 1)
    psi = torch.zeros(len(log_alpha), n, K, dtype=torch.int16, device=device)
    size = max(1, TERMS_AT_ONCE // (n * K**2))
    for rows, previous in zip(after.split(size), before.split(size), strict=True):
        log_weights = (log_alpha[previous, None, :] + into).repeat(1, n, 1)
        drawn = draw(log_weights, generator).clamp(min=0).unflatten(1, (n, K))
        psi[rows] = (drawn + first_numbers).to(psi.dtype)
    ends = (log_alpha[segments.last] + trellis.final.log()).unsqueeze(1).expand(-1, n, -1)
    last = draw(ends, generator).clamp(min=0) + first_numbers[:, 0]
    return followed(segments, psi.flatten(1), last[segments.owner]) - first_numbers[:, 0]


def _sample_backwards(trellis: Trellis, log_alpha: Tensor, n: int, generator: torch.Generator) -> Tensor:
    """(N, n) packed states; where there is no way back they mean nothing."""
    packing, log_a = trellis.packing, trellis.log_transitions
    into = trellis.transition.log().T.contiguous()  # into[j, i] = log a_ij
    log_ends = trellis.ends(torch.float64).log()
    paths = torch.empty(packing.n_frames, n, dtype=torch.int64, device=into.device)
    states, after = paths[:0], 0  # and the first row of the step after
    for low, high in reversed(packing.blocks):
        log_alpha_t, n_going_on = log_alpha[low:high], len(states)
        ending = log_alpha_t[n_going_on:] + log_ends[n_going_on : high - low]
        last = draw(ending.unsqueeze(1).expand(-1, n, -1), generator)
        size = max(1, TERMS_AT_ONCE // (max(1, n) * len(into)))
        parts = zip(log_alpha_t[:n_going_on].split(size), states.split(size), strict=True) if n_going_on else ()
        if log_a is None:
            before = [draw(a[:, None, :] + into[z], generator) for a, z in parts]
        else:
            to = log_a[after : after + n_going_on].mT  # (w, K, K) to[w, j, i] = log a_ij
            index = states.unsqueeze(-1).expand(-1, -1, to.shape[-1])
            draws = log_alpha_t[:n_going_on, None, :] + to.gather(1, index)
            before = [draw(draws, generator)] if n_going_on else []
        states = torch.cat([*before, last]).clamp(min=0)
        paths[low:high], after = states, low
    return paths


def draw(log_weights: Tensor, generator: torch.Generator) -> Tensor:
    """(w, n) one index for each row of ``(w, n, K)`` unnormalised log-weights, -1 where all are -inf."""
    peak = log_weights.amax(-1, keepdim=True)
    sums = (log_weights - torch.where(peak == -torch.inf, 0.0, peak)).exp().cumsum(-1)
    total = sums[..., -1:]
    uniform = torch.rand(total.shape, generator=generator, dtype=torch.float64, device=total.device)
    # 1 - uniform is in (0, 1]: a state of weight zero, whose sum is that of the state before, is never drawn.
    index = torch.searchsorted(sums, (1 - uniform) * total).squeeze(-1)
    return torch.where(total.squeeze(-1) > 0, index, -1)
