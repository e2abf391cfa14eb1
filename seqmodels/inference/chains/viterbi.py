"""The most probable path, ``delta_t(j) = max_i (delta_t-1(i) + log a_ij) + log b_t(j)`` (Viterbi 1967).

On a CPU the recursion is a compiled loop. On a GPU long sequences run in segments side by side (``parallel_segments``):
the best paths to the states of one frame soon have a common past, from where on their scores differ by a constant from
the scores in the whole sequence. Segments whose scores at the first frame turn out to be wrong are run again from the
right ones, so that the path is that of the whole sequence. If several in a row began wrongly, the effect of each on any
scores is a K x K operator, found side by side: ``O(i, j)`` is the best score of ending in j after arriving in i, and
``max_i (delta(i) + O(i, j))`` leads from one segment to the next (Särkkä and García-Fernández 2021).

Terms are rounded to a grid of ``1 / GRID`` nats, some 1e-11. Sums of such numbers are exact below ``2^53 / GRID``, 1e5
nats, so that neither the order of terms nor the places where a sequence is cut decide between two paths: equal ones
have exactly equal scores. The largest score is subtracted from all every ``RESCALE_EVERY`` frames, to keep them small.
"""

from __future__ import annotations

import torch
from torch import Tensor

from seqmodels.inference.chains import lagged_states
from seqmodels.inference.chains.log_weights import finite, relative_to_largest
from seqmodels.inference.chains.packing import Packing
from seqmodels.inference.chains.parallel_segments import FEW_STATES, FRAME_MULTIPLE, Segments, loops_are_compiled
from seqmodels.inference.chains.trellis import Lengths, Trellis

GRID = 2.0**36  # steps in a nat
TO_GRID = 1.5 * 2**52 / GRID  # numbers near this are 1 / GRID apart; beyond 3e4 nats the grid is coarser
RESCALE_EVERY = FRAME_MULTIPLE  # frames; divides the size of segments, so that scores equal whole sequences'
TERMS_AT_ONCE = 1 << 22  # elements of the (n, K, K) intermediate held at once
THREADS_PER_LOOP = 10  # threads with which tensors are as fast as a loop over one sequence of many states


@torch.no_grad()
def viterbi(
    initial: Tensor, transition: Tensor, log_b: Tensor, final: Tensor | None = None, *, lengths: Lengths | None = None
) -> tuple[Tensor, Tensor]:
    """Return the most probable path of hidden states of each sequence, computed in float64 (Viterbi 1967).

    Each term is rounded to 2^-36 nats, so that ties do not depend on the order of sums; they go to the lowest state,
    decided from the last frame backwards. Beyond ``log_b`` it takes one or two bytes of memory for each frame and
    state.

    Args:
        initial: distribution of the first state p(z_1) over K states, ``(K,)``, or ``(n, K)`` with one row for each of
            n sequences.
        transition: transition probabilities p(z_t+1 = j | z_t = i), ``(K, K)``.
        log_b: log-densities log p(x_t | z_t) in nats, ``(N, K)``, float32 or float64: the frames of all sequences, one
            sequence after the other.
        final: probability that the sequence ends after each state, ``(K,)``; None if the length has no probability.
        lengths: number of frames of each sequence, ``(n,)``; None if all N frames belong to one sequence.

    Returns:
        States, ``(N,)`` int64, and log p(path, x) of each sequence in nats, ``(n,)`` float64. A sequence without a
        possible path has -inf, and its states are arbitrary.

    Raises:
        ValueError: If a shape does not fit, or ``log_b`` is neither float32 nor float64.

    >>> log_b = torch.tensor([[0.9, 0.1], [0.2, 0.8]]).log()
    >>> path, _ = viterbi(torch.tensor([0.5, 0.5]), torch.full((2, 2), 0.5), log_b)
    >>> path.tolist()
    [0, 1]
    """
    return best_paths(Trellis.of_concatenated(initial, transition, log_b, final, lengths))


@torch.no_grad()
def best_paths(trellis: Trellis) -> tuple[Tensor, Tensor]:
    """Return the most probable path of states of each sequence of a trellis (a problem of inference).

    Returns:
        States, ``(N,)`` int64, one sequence after the other, and log p(path, x) of each sequence in nats, ``(n,)``
            float64.
    """
    if _runs_in_loops(trellis):
        from seqmodels.inference.chains import sequential

        return sequential.best_paths(trellis.whole, TO_GRID)
    log_b, log_a, packing = trellis.densities.log(), trellis.log_transitions, trellis.packing
    if log_a is not None and lagged_states.runs_compiled(packing, log_b.unsqueeze(2)):
        from seqmodels.inference.chains import compiled_lagged_states

        start, end = (each.log() for each in (trellis.starts(torch.float64), trellis.ends(torch.float64)))
        path, _ = compiled_lagged_states.best_paths(packing, log_a, log_b.unsqueeze(2), start, end, TO_GRID)
    else:
        path, _ = traced(trellis, log_b)
    return path, log_prob_of_paths(trellis, path, log_b)


def _runs_in_loops(trellis: Trellis) -> bool:
    """Return True if the recursion runs as a compiled loop over each sequence.

    Transitions must be the same at all steps.
    """
    if trellis.log_transitions is not None or not loops_are_compiled(trellis.densities.device):
        return False
    has_few_states = trellis.transition.shape[-1] <= FEW_STATES
    return has_few_states or torch.get_num_threads() <= THREADS_PER_LOOP * trellis.segments.n_sequences


def traced(trellis: Trellis, log_b: Tensor, deltas: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return the most probable path of each sequence, and for each frame and state the best state before (psi).

    Args:
        trellis: problem of inference, with one chain.
        log_b: logarithms of its densities, ``(N, K)`` packed.
        deltas: filled with the scores of the best paths to each state, ``(N, K)`` float64 packed, rounded to the grid
            of ``1 / GRID`` nats and up to a constant in each frame; None if they are not needed.

    Returns:
        States, ``(N,)``, one sequence after the other, and psi, ``(N, K)`` packed: the state before on the best path to
        each state. psi is arbitrary in first frames of sequences.
    """
    packing = trellis.packing
    scores, psi = _scores_of_segments(trellis, log_b, deltas)
    last = (scores + on_grid(trellis.ends(torch.float64).log()))[packing.rank].argmax(1)  # (w,), by segment
    return followed(trellis.segments, psi, last[:, None])[:, 0], psi


@torch.no_grad()
def log_prob_of_paths(trellis: Trellis, path: Tensor, log_b: Tensor | None = None) -> Tensor:
    """Return the joint log-probability of given paths and sequences, log p(path, x) in nats, ``(n,)`` float64.

    It is ``log π(z_1) + Σ_t log a(z_t-1, z_t) + Σ_t log b_z_t(x_t)``, plus the log-probability of the end.

    Args:
        trellis: problem of inference, with one chain of K states.
        path: states of n sequences, ``(N,)``, one after the other.
        log_b: logarithms of the trellis's densities, ``(N, K)`` packed; None computes them.
    """
    log_b = trellis.densities.log() if log_b is None else log_b
    lengths = trellis.segments.lengths
    n, last = len(lengths), lengths.cumsum(0) - 1
    first = last + 1 - lengths
    sequences = torch.arange(n, device=path.device)
    terms = trellis.packing.unpack(log_b.gather(1, trellis.packing.pack(path)[:, None])[:, 0]).double()
    log_b_first = terms[first]
    if trellis.log_transitions is None:
        terms[1:] += trellis.transition.log()[path[:-1], path[1:]]
    else:  # terms of the first frames of other sequences are overwritten below
        rows = trellis.packing.unpack(torch.arange(len(path), device=path.device))
        terms[1:] += trellis.log_transitions[rows[1:], path[:-1], path[1:]]
    terms[first] = log_b_first + trellis.initial.log().expand(n, -1)[sequences, path[first]]
    terms[last] += trellis.final.log().expand(n, -1)[sequences, path[last]]
    sums = torch.zeros(n, dtype=torch.float64, device=path.device)
    return sums.index_add_(0, sequences.repeat_interleave(lengths), terms)


# -- delta and psi -----------------------------------------------------------------------------------------------------


def best_scores(
    into: Tensor, log_b: Tensor, packing: Packing, arriving: Tensor, deltas: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Run Viterbi's recursion over time, and return the last scores and pointers to the states before.

    Args:
        into: log-probabilities rounded to the grid of ``1 / GRID`` nats, ``(K, K)`` with ``into[j, i] = log a_ij``, or
            ``(N, K, K)`` packed for the transitions into each row.
        log_b: log-densities, ``(N, K)`` packed.
        packing: packing of the N rows. The recursion is ``delta_t(j) = max_i (delta_t-1(i) + log a_ij) + log b_t(j)``.
        arriving: scores before the first frames, ``(w, K)`` by rank (longest first).
        deltas: filled with the scores of every frame, ``(N, K)`` packed; None if they are not needed.

    Returns:
        The scores after the last frames less their largest, ``(w, K)`` by rank, and psi, the states before, ``(N, K)``;
        psi is arbitrary in first frames.
    """
    dtype = torch.uint8 if into.shape[-1] <= 256 else torch.int16
    psi = torch.zeros(log_b.shape, dtype=dtype, device=log_b.device)
    scores, delta, blocks = torch.empty_like(arriving), arriving, packing.blocks
    for start in range(0, len(blocks), RESCALE_EVERY):
        window = blocks[start : start + RESCALE_EVERY]
        offset = window[0][0]
        window_log_b = on_grid(relative_to_largest(log_b[offset : window[-1][1]].double())[0])
        for t, (low, high) in enumerate(window, start):
            if t:
                scores[high - low : len(delta)] = delta[high - low :]
                of_rows = into if into.dim() == 2 else into[low:high]
                delta, psi[low:high] = best_step(delta[: high - low], of_rows)
            delta = window_log_b[low - offset : high - offset].add_(delta)
            if deltas is not None:
                deltas[low:high] = delta
        delta = rescaled(delta)
    scores[: len(delta)] = delta
    return rescaled(scores), psi


def warm_start(into: Tensor, log_b: Tensor, segments: Segments) -> Tensor:
    """Approximate the Viterbi scores after each of the m segments of full size, ``(m, K)`` by rank.

    The recursion starts with equal scores ``segments.margin`` frames before the end of a segment.

    Args:
        into: log-probabilities of transitions, ``(K, K)``: ``into[j, i]`` is that from i to j.
        log_b: packed log-densities, ``(N, K)``.
        segments: segments of the N rows; ranks order them by length, the longest first.
    """
    size, margin, packing = segments.size, segments.margin, segments.packing
    m = packing.batch_sizes[size - 1]
    delta = torch.zeros(m, len(into), dtype=torch.float64, device=into.device)
    for t in range(size - margin, size):
        low = packing.blocks[t][0]
        if t > size - margin:
            delta = torch.cat([_arrivals(rows, into).amax(2) for rows in _split(delta, into)])
        delta = delta + on_grid(relative_to_largest(log_b[low : low + m].double())[0])
        if (t + 1) % RESCALE_EVERY == 0:
            delta = rescaled(delta)
    return rescaled(delta)


def best_step(delta: Tensor, into: Tensor) -> tuple[Tensor, Tensor]:
    """Return the best score of each state after a transition, and the state it comes from, both ``(n, K)``.

    Ties go to the lowest state.

    Args:
        delta: scores before, ``(n, K)``.
        into: log-probabilities of transitions, ``into[j, i]`` from i to j, ``(K, K)``, or ``(n, K, K)`` with one matrix
            for each row.
    """
    if into.dim() == 3:  # not split, because ``into`` is as large as its sum with the scores
        arrivals = _arrivals(delta, into).max(2)
        return arrivals.values, arrivals.indices
    best = [_arrivals(rows, into).max(2) for rows in _split(delta, into)]
    if len(best) == 1:
        return best[0].values, best[0].indices
    return torch.cat([part.values for part in best]), torch.cat([part.indices for part in best])


def on_grid(nats: Tensor) -> Tensor:
    """Return log-probabilities rounded to multiples of ``1 / GRID`` nats, in float64.

    Sums of such numbers are exact, so equally probable paths have exactly equal scores.
    """
    return torch.empty(nats.shape, dtype=torch.float64, device=nats.device).copy_(nats).add_(TO_GRID).sub_(TO_GRID)


def rescaled(delta: Tensor) -> Tensor:
    """Return scores ``(n, K)`` less the largest of each row; rows that are all -inf stay so."""
    return delta - delta.amax(1, keepdim=True).clamp_(min=torch.finfo(delta.dtype).min)


def _arrivals(delta: Tensor, into: Tensor) -> Tensor:
    """Return the score of each state j when coming from each state i, ``(n, K, K)``, with i on the last axis.

    ``delta (n, K)`` are the scores before, and ``into[j, i]`` the log-probability of the transition from i to j.
    """
    return delta[:, None, :] + into


def _split(delta: Tensor, into: Tensor) -> tuple[Tensor, ...]:
    parts: tuple[Tensor, ...] = delta.split(max(1, TERMS_AT_ONCE // into.numel()))
    return parts


# -- segments side by side ---------------------------------------------------------------------------------------------


def _scores_of_segments(trellis: Trellis, log_b: Tensor, deltas: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the Viterbi scores after each segment, ``(w, K)`` by rank, and the states before (psi), ``(N, K)``.

    Scores are up to a constant in each segment, and psi is arbitrary in first frames of sequences. ``deltas (N, K)``,
    if not None, is filled with the scores of all frames; ``log_b (N, K)`` are packed log-densities.
    """
    segments, packing = trellis.segments, trellis.packing
    assert segments.is_whole or segments.size % RESCALE_EVERY == 0, "scores are rescaled where those of the whole are"
    if trellis.log_transitions is None:
        into = on_grid(trellis.transition.log()).T.contiguous()  # into[j, i] = log a_ij
    else:
        into = on_grid(trellis.log_transitions).mT.contiguous()
    arriving, (before, after) = on_grid(trellis.starts(torch.float64).log()), segments.neighbours
    if len(after):
        arriving[after] = best_step(warm_start(into, log_b, segments)[before], into)[0]
    scores, psi = best_scores(into, log_b, packing, arriving, deltas)
    for _ in range(
        len(after)
    ):  # each time one segment of every sequence at least is right from then on, most often all
        true_arriving, came_from = best_step(scores[before], into)
        psi[after] = came_from.to(psi.dtype)  # a segment's first frame stands at its rank
        is_wrong = (true_arriving != arriving[after]).any(1)
        if not is_wrong.any():
            break
        exact = _exact_arrivals(into, log_b, segments, arriving, scores, after[is_wrong])
        ranks = (exact != arriving).any(1).nonzero()[:, 0]
        arriving[ranks] = exact[ranks]
        part, rows = packing.take(packing.order[ranks])
        part_ranks = ranks[part.order]
        part_deltas = None if deltas is None else deltas[rows]
        scores[part_ranks], psi[rows] = best_scores(into, log_b[rows], part, arriving[part_ranks], part_deltas)
        if deltas is not None and part_deltas is not None:
            deltas[rows] = part_deltas
    return scores, psi


def _exact_arrivals(
    into: Tensor, log_b: Tensor, segments: Segments, arriving: Tensor, scores: Tensor, wrong: Tensor
) -> Tensor:
    """Return the exact Viterbi scores before the first frames of all segments, ``(w, K)`` by rank.

    They are up to a constant in each segment. The segments of a sequence are passed one after the other: one that began
    with right scores by its ``scores``, another by its operator, the best scores from each first to each last state.
    The results are exact if the scores of the segments that began rightly are.

    Args:
        into: log-probabilities on the grid, ``(K, K)``, ``into[j, i] = log a_ij``.
        log_b: log-densities, ``(N, K)`` packed.
        segments: segments of the N rows.
        arriving: scores before first frames that were assumed, ``(w, K)`` by rank (longest first).
        scores: scores after each segment, ``(w, K)`` by rank.
        wrong: ranks of the segments that began with other scores than their neighbour ended with.
    """
    packing, rank = segments.packing, segments.packing.rank.tolist()
    segment = packing.order[wrong]
    is_wrong = torch.zeros(packing.n_sequences + 1, dtype=torch.bool, device=into.device)
    is_wrong[segment] = True
    in_a_row = segment[is_wrong[segment + 1]]  # the operator of the last one in a row is not needed
    operators = _operators(into, log_b, packing, in_a_row) if len(in_a_row) else {}
    owner, into_here, arriving_here, after = (
        segments.owner.tolist(),
        into.cpu(),
        arriving.to("cpu", copy=True),
        scores.cpu(),
    )
    for s in range(1, len(owner)):
        if owner[s] == owner[s - 1]:
            delta = after[rank[s - 1]]
            if s - 1 in operators:
                delta = _after_operator(arriving_here[rank[s - 1]], *operators[s - 1])
            arriving_here[rank[s]] = (into_here + delta).amax(1)
    return arriving_here.to(into.device)


def _after_operator(arriving: Tensor, units: Tensor, values: Tensor) -> Tensor:
    """Return the Viterbi scores after a segment less their largest, ``(K,)``, given those before it.

    ``arriving (K,)`` are the scores before. ``units`` and ``values`` hold the best scores of passing the segment from
    each state to each state, as ``_operators`` returns them.
    """
    is_possible = (arriving > -torch.inf) & (values > -torch.inf).any(1)
    if not is_possible.any():
        return torch.full_like(arriving, -torch.inf)
    level = (arriving[is_possible] * GRID).long() + units[is_possible]
    before = (level - level.max()).double() / GRID
    return rescaled((before[:, None] + values[is_possible]).amax(0, keepdim=True))[0]


def _operators(into: Tensor, log_b: Tensor, packing: Packing, segments: Tensor) -> dict[int, tuple[Tensor, Tensor]]:
    """Return the best scores of passing segments from each state i to each state j, by segment number.

    Each matrix O is a pair ``(units, values)`` on a CPU. ``values``, ``(K, K)``, are the rows of O less their largest
    entries; ``units``, ``(K,)``, are these largest entries as whole numbers of grid steps, so that sums of any length
    are exact.

    Args:
        into: log-probabilities on the grid, ``(K, K)``, ``into[j, i] = log a_ij``.
        log_b: log-densities, ``(N, K)`` packed.
        packing: packing of the segments.
        segments: numbers of the segments.
    """
    part, rows = packing.take(segments)
    log_b, K = log_b[rows], len(into)
    values = torch.full((K, K), -torch.inf, dtype=torch.float64, device=into.device).fill_diagonal_(0.0)
    values = values.repeat(part.n_sequences, 1, 1)
    units = torch.zeros(values.shape[:2], dtype=torch.int64, device=into.device)
    for t, (low, high) in enumerate(part.blocks):
        delta = values[: high - low]
        if t:
            best = [_arrivals(each, into).amax(2) for each in _split(delta.flatten(0, 1), into)]
            delta.copy_(torch.cat(best).view_as(delta))
        delta += on_grid(relative_to_largest(log_b[low:high].double())[0])[:, None, :]
        if (t + 1) % RESCALE_EVERY == 0 or t + 1 == len(part.blocks):
            largest = finite(values.amax(2))
            values -= largest.unsqueeze(2)
            units += (largest * GRID).long()
    of_segments = zip(part.order.tolist(), units.cpu(), values.cpu(), strict=True)
    return {int(segments[i]): (of_rows, of_entries) for i, of_rows, of_entries in of_segments}


def followed(segments: Segments, psi: Tensor, last: Tensor) -> Tensor:
    """Return the paths of states that lead to given last states, ``(N, m)``, one sequence after the other.

    Args:
        segments: segments of the N rows.
        psi: best state before each state, ``(N, K)`` packed; first frames of sequences are not read.
        last: states at the last frame of each of w segments on m paths, ``(w, m)``, in the order of segment numbers;
            only the last segment of each sequence is read.
    """
    packing = segments.packing
    if not segments.is_whole:
        last = _last_states(segments, _states_before(packing, psi), last)
    return packing.unpack(_trace(packing, psi, last[packing.order])[0])


def _states_before(packing: Packing, psi: Tensor) -> Tensor:
    """Return the state before each of w segments on the best path to each of its last states, ``(w, K)``.

    ``psi``, ``(N, K)`` packed, holds the state before each state on the best path.
    """
    every = torch.arange(psi.shape[1], device=psi.device)
    return _trace(packing, psi, every.expand(packing.n_sequences, -1), keep=False)[1][packing.rank]


def _last_states(segments: Segments, states_before: Tensor, last: Tensor) -> Tensor:
    """Return the state at the last frame of each of w segments, ``(w, m)``, on each of m paths.

    ``last``, ``(w, m)``, has these states for the last segments of sequences. ``states_before`` is the result of
    ``_states_before``.
    """
    states, owner, before = last.to("cpu", copy=True), segments.owner.tolist(), states_before.cpu()
    for segment in reversed(range(1, len(states))):
        if owner[segment - 1] == owner[segment]:
            states[segment - 1] = before[segment, states[segment]]
    return states.to(last.device)


def _trace(packing: Packing, psi: Tensor, last: Tensor, *, keep: bool = True) -> tuple[Tensor, Tensor]:
    """Return the paths that lead to given last states, ``(N, m)`` packed, and states before them, ``(w, m)``.

    Args:
        packing: packing of the N rows.
        psi: best state before each state, ``(N, K)`` packed.
        last: states at the last frames on m paths, ``(w, m)`` by rank (longest first).
        keep: if False, the first result has no rows.
    """
    path = torch.empty(len(psi) if keep else 0, last.shape[1], dtype=torch.int64, device=psi.device)
    state = last[:0]
    for low, high in reversed(packing.blocks):
        state = torch.cat([state, last[len(state) : high - low]])
        if keep:
            path[low:high] = state
        state = psi[low:high].gather(1, state).long()
    return path, state
