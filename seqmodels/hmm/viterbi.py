"""The single most probable path, ``delta_t(j) = max_i (delta_t-1(i) + log a_ij) + log b_t(j)`` (Viterbi, 1967).

Long sequences are climbed in pieces side by side (``seqmodels.hmm.cutting``): best paths that lead to the states of one frame soon
have a common past, from where on scores differ by a constant from those of the whole sequence. A piece whose scores at its first
frame prove to be others is climbed again from the right ones, so that the path is that of the whole.
"""

from __future__ import annotations

import torch
from torch import Tensor

from seqmodels.hmm.cutting import Cutting
from seqmodels.hmm.densities import LogDensities
from seqmodels.hmm.max_plus import RENEWED, climb, on_grid, step, warm_up
from seqmodels.hmm.packing import Packing
from seqmodels.hmm.trellis import Trellis

STEP, ARC = 60_000.0, 2.5  # nanoseconds of a time step, and in it of each frame's pairs of states
PATIENCE = 0.25  # of the time to climb uncut, in which all pieces that began wrongly are climbed again; then, the first of each sequence


@torch.no_grad()
def viterbi(
    initial: Tensor, transition: Tensor, log_b: Tensor, packing: Packing, final: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The best path of states of each sequence, in float64 whatever the precision of ``log_b``.

    Each term is rounded to 2^-36 nats, so ties do not depend on the order of sums; they go to the lowest state, decided from
    the last frame backwards. The memory it takes beyond ``log_b`` is one or two bytes for each frame and state.

    Args:
        initial: (K,) p(z_1), or (n, K), one row a sequence in the caller's order.
        transition: (K, K) p(z_t+1 | z_t).
        log_b: (N, K) packed log p(x_t | z_t) in nats.
        packing: which rows belong to which sequence.
        final: (K,) p(end | z_T), where the end is an event.

    Returns:
        (N,) int64 packed states, and (n,) float64 nats, log p(path, x). A sequence no path can explain has -inf, and its
        states mean nothing.

    >>> log_b = torch.tensor([[0.9, 0.1], [0.2, 0.8]]).log()
    >>> path, _ = viterbi(torch.tensor([0.5, 0.5]), torch.full((2, 2), 0.5), log_b, Packing.of([2]))
    >>> path.tolist()
    [0, 1]
    """
    whole = Cutting.whole(packing.lengths, log_b.device)
    trellis = Trellis.of(initial, transition, LogDensities(log_b.detach()), whole, final)
    states, log_prob = best_paths(trellis.cut()[0])
    return packing.pack(states), log_prob


@torch.no_grad()
def best_paths(trellis: Trellis) -> tuple[Tensor, Tensor]:
    """The best path of each sequence, sequence after sequence (N,), and (n,) its log-probability, as of ``viterbi``."""
    packing, log_b = trellis.packing, trellis.densities.log()
    closing, came_from = _climb(trellis, log_b)
    ending = (closing + on_grid(trellis.ends(torch.float64).log()))[packing.rank].argmax(1)  # (w,), by piece
    if not trellis.cutting.is_whole:
        ending = _followed(trellis.cutting, _origins(packing, came_from), ending)
    states = _trace(packing, came_from, ending[packing.order, None])[0][:, 0]
    emitted = packing.unpack(log_b.gather(1, states[:, None])[:, 0])
    path = packing.unpack(states)
    return path, _log_prob(trellis, path, emitted.double())


def _climb(trellis: Trellis, log_b: Tensor) -> tuple[Tensor, Tensor]:
    """(w, K) by rank, scores after each piece, up to a constant; (N, K) the states before, but for the first frames of sequences."""
    cutting, packing = trellis.cutting, trellis.packing
    assert cutting.is_whole or cutting.size % RENEWED == 0, "scores are renewed where those of the whole are"
    into = on_grid(trellis.transition.log()).T.contiguous()  # into[j, i] = log a_ij
    given, (before, after) = on_grid(trellis.starts(torch.float64).log()), cutting.links
    if len(after):
        given[after] = step(warm_up(into, log_b, cutting.size, cutting.margin, packing)[before], into)[0]
    closing, came_from = climb(into, log_b, packing, given)
    left = PATIENCE * STEP * int(cutting.lengths.max())
    while len(after):
        handed, chosen = step(closing[before], into)
        came_from[after] = chosen.to(came_from.dtype)  # a piece's first frame stands at its rank
        wrong = (handed != given[after]).any(1).nonzero()[:, 0]
        if not len(wrong):
            break
        left -= cutting.size * (STEP + ARC * len(wrong) * len(into) ** 2)
        again = wrong if left > 0 else _first_of_each(cutting, wrong)
        ranks = after[again]
        given[ranks] = handed[again]
        part, rows = packing.take(packing.order[ranks])
        here = ranks[part.order]
        closing[here], came_from[rows] = climb(into, log_b[rows], part, given[here])
    return closing, came_from


def _first_of_each(cutting: Cutting, wrong: Tensor) -> Tensor:
    """Of links that are wrong the first of each sequence, before which all is final."""
    owner = cutting.owner[cutting.packing.order[cutting.links[1][wrong]]]
    return wrong[torch.cat([owner.new_ones(1, dtype=torch.bool), owner[1:] != owner[:-1]])]


def _origins(packing: Packing, came_from: Tensor) -> Tensor:
    """(w, K) by piece: the state before the piece of the best path that ends it in each state."""
    every = torch.arange(came_from.shape[1], device=came_from.device)
    return _trace(packing, came_from, every.expand(packing.n_sequences, -1), keep=False)[1][packing.rank]


def _followed(cutting: Cutting, origins: Tensor, ending: Tensor) -> Tensor:
    """(w,) the last state of each piece, given those of the last pieces of sequences."""
    states, owner, back = ending.tolist(), cutting.owner.tolist(), origins.tolist()
    for piece in reversed(range(1, len(states))):
        if owner[piece - 1] == owner[piece]:
            states[piece - 1] = back[piece][states[piece]]
    return torch.tensor(states, device=ending.device)


def _trace(packing: Packing, came_from: Tensor, last: Tensor, *, keep: bool = True) -> tuple[Tensor, Tensor]:
    """(N, m) states, followed back from ``last`` (w, m) by rank, and (w, m) those before first frames; not ``keep``: only these."""
    path = torch.empty(len(came_from) if keep else 0, last.shape[1], dtype=torch.int64, device=came_from.device)
    state = last[:0]
    for low, high in reversed(packing.blocks):
        state = torch.cat([state, last[len(state) : high - low]])
        if keep:
            path[low:high] = state
        state = came_from[low:high].gather(1, state).long()
    return path, state


def _log_prob(trellis: Trellis, path: Tensor, emitted: Tensor) -> Tensor:
    """(n,) of paths (N,) whose frames have log-densities ``emitted`` (N,), sequence after sequence."""
    lengths = trellis.cutting.lengths
    n, last = len(lengths), lengths.cumsum(0) - 1
    first = last + 1 - lengths
    which = torch.arange(n, device=path.device)
    terms = emitted.clone()
    terms[1:] += trellis.transition.log()[path[:-1], path[1:]]
    terms[first] = emitted[first] + trellis.initial.log().expand(n, -1)[which, path[first]]
    terms[last] += trellis.final.log().expand(n, -1)[which, path[last]]
    sums = torch.zeros(n, dtype=torch.float64, device=path.device)
    return sums.index_add_(0, which.repeat_interleave(lengths), terms)
