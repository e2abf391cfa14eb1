"""Paths drawn from ``p(z_1 .. z_T | x)``: filter forwards, sample backwards (Frühwirth-Schnatter 1994).

Given the state after it, ``p(z_t = i | z_t+1 = j, x) ∝ alpha_t(i) a_ij``: later frames carry no more information.
"""

from __future__ import annotations

import torch
from torch import Tensor

from seqmodels.inference.chains import log_space, scaled
from seqmodels.inference.chains.forward_backward import refuse_impossible
from seqmodels.inference.chains.log_weights import draw
from seqmodels.inference.chains.parallel_segments import Segments, loops_are_compiled
from seqmodels.inference.chains.trellis import Lengths, Trellis
from seqmodels.inference.chains.viterbi import followed

TERMS_AT_ONCE = 1 << 22  # elements of the (w, n, K) intermediate held at once
NUMBERS_AT_ONCE = 1 << 26  # elements of the (N, n, K) states before that are held at once
MOST_COLUMNS = 1 << 15  # largest number of states before for one frame, because they are numbered in 16 bits


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
    """Draw ``n`` independent paths of hidden states of each sequence from p(z | x), as ``(N, n)`` int64.

    Args:
        initial: distribution of the first state p(z_1) over K states, ``(K,)``, or with one row for each sequence,
            ``(n_sequences, K)``.
        transition: transition probabilities p(z_t+1 = j | z_t = i), ``(K, K)``; with ``final``,
            ``transition.sum(1) + final == 1``.
        log_b: log-densities log p(x_t | z_t) in nats, ``(N, K)``, float32 or float64: the frames of all sequences, one
            sequence after the other.
        final: probability that the sequence ends after each state, ``(K,)``; None if the length has no probability.
        n: number of paths of each sequence.
        lengths: number of frames of each sequence; None if all N frames belong to one sequence.
        generator: source of random numbers, on the device of ``log_b``.

    Raises:
        ValueError: If a sequence has probability zero (the message names it), or a shape or precision does not fit.

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
    """Draw ``n`` independent paths of states of each sequence of a trellis (a problem of inference) from p(z | x).

    Returns:
        States, ``(N, n)`` int64, one sequence after the other, and log p(x) of each sequence, ``(n_sequences,)``
        float64. A sequence whose log p(x) is -inf has no path, and its states are arbitrary.
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
    """Run the forward pass from which paths are drawn, and return the trellis that it ran on with its results.

    The most probable path backwards may lead through a state whose alpha is too small for a float. Then, and always
    where loops are compiled on a CPU, the pass is computed in logarithms on uncut sequences.

    Returns:
        The trellis to sample from; log p(z_t | x_<=t) in its rows, ``(N, K)`` float64; and log p(x), ``(n,)``.
    """
    if trellis.log_transitions is None and not loops_are_compiled(trellis.densities.device):
        for is_exact in (False, True) if trellis.segments.are_warmed_up else (False,):
            exact = Segments.exact(trellis.segments.lengths, len(trellis.transition)) if is_exact else None
            tried = trellis if exact is None else trellis.double().cut(exact)[0]
            ran = scaled.forward(tried)
            if not ran.failed.any() and scaled.has_every_state(tried, ran.alpha):
                return tried, ran.alpha.double().log(), tried.segments.totals(ran.steps) + ran.ends
    whole = trellis.whole
    log_alpha, steps = log_space.log_alpha_and_steps(whole)
    ends = torch.logsumexp(log_alpha[whole.segments.last] + whole.final.log(), 1)
    return whole, log_alpha, whole.packing.totals(steps) + ends


def _sample_in_loops(trellis: Trellis, log_alpha: Tensor, n: int, generator: torch.Generator) -> Tensor:
    """Draw ``n`` paths of uncut sequences by a compiled loop, ``(N, n)`` in packed rows.

    ``log_alpha``, ``(N, K)``, is log p(z_t | x_<=t).
    """
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
    """Return ``n`` drawn paths, ``(N, n)``, one sequence after the other, from segments that run side by side.

    At every frame, the state before is drawn for each possible state, because the draw depends on the state that
    follows but not on later frames. A path is then followed back through the draws. State j of draw d has the number
    ``d K + j``. ``log_alpha (N, K)`` is log p(z_t | x_<=t).
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
    """Draw ``n`` paths, ``(N, n)`` in packed rows, from the last frame to the first.

    Frames without a possible state have an arbitrary one. ``log_alpha``, ``(N, K)``, is log p(z_t | x_<=t).
    """
    packing, log_a = trellis.packing, trellis.log_transitions
    into = trellis.transition.log().T.contiguous()  # into[j, i] = log a_ij
    log_ends = trellis.ends(torch.float64).log()
    paths = torch.empty(packing.n_frames, n, dtype=torch.int64, device=into.device)
    states, after = paths[:0], 0  # states of the step after, and its first row
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
