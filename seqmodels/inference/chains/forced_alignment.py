"""The best path through given groups of states, in their order: Viterbi's recursion over position and state.

Position s of a sequence is a group of states ``G_s``. The path stays in each group for at least one frame and then goes
on to the next; it starts in the first group and ends in the last. With ``delta_t(s, j)`` the score of the best path to
state j of group s at time t,

    ``delta_t(s, j) = max(from_t(s - 1, j), from_t(s, j)) + log b_t(j)``,
    ``from_t(r, j) = max_{i in G_r} delta_t-1(r, i) + log a_ij``.

Scores are rounded to the grid of ``viterbi``, so that equally probable paths have exactly equal scores.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from seqmodels.inference.chains.log_weights import relative_to_largest
from seqmodels.inference.chains.trellis import Lengths, Trellis
from seqmodels.inference.chains.viterbi import RESCALE_EVERY, log_prob_of_paths, on_grid, rescaled

Groups = Sequence[Sequence[int]]  # the states of each position of one sequence
TERMS_AT_ONCE = 1 << 22  # elements of the (n, S, G, 2G) intermediate held at once
POINTERS_AT_ONCE = 1 << 28  # elements of the (N, S, G) pointers to the states before, a byte each


@torch.no_grad()
def forced_alignment(
    initial: Tensor,
    transition: Tensor,
    log_b: Tensor,
    final: Tensor | None = None,
    *,
    groups: Sequence[Groups],
    lengths: Lengths | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the most probable path of each sequence through given groups of states, in their order.

    The path stays in each group for at least one frame; it starts in the first group and ends in the last. Among
    equally probable alignments, the result is the one whose last groups begin latest; among those, the one with the
    first states of each group, decided from the last frame backwards.

    Args:
        initial: distribution of the first state p(z_1) over K states, ``(K,)``, or ``(n, K)`` with one row for each of
            n sequences.
        transition: transition probabilities p(z_t+1 = j | z_t = i), ``(K, K)``.
        log_b: log-densities log p(x_t | z_t) in nats, ``(N, K)``, float32 or float64: the frames of all sequences, one
            sequence after the other.
        final: probability that the sequence ends after each state, ``(K,)``; None if the length has no probability.
        groups: for each sequence a list of groups, at least one, each a list of different states.
        lengths: number of frames of each sequence, ``(n,)``; None if all N frames belong to one sequence.

    Returns:
        The position of each frame's group in the list, ``(N,)`` int64; its state, ``(N,)`` int64; and log p(path, x) of
        each sequence in nats, ``(n,)`` float64. A sequence without such a path has -inf, and its positions and states
        are arbitrary.

    Raises:
        ValueError: If a shape or precision does not fit, a sequence has no groups, or a group has no state.

    >>> log_b = torch.tensor([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8], [0.7, 0.3]]).log()
    >>> chain = torch.tensor([0.5, 0.5]), torch.full((2, 2), 0.5), log_b
    >>> positions, states, log_prob = forced_alignment(*chain, groups=[[[0], [1], [0, 1]]])
    >>> positions.tolist(), states.tolist()
    ([0, 0, 1, 2], [0, 0, 1, 0])
    """
    trellis = Trellis.of_concatenated(initial, transition, log_b, final, lengths)
    if len(groups) != trellis.segments.n_sequences or not all(each and all(map(len, each)) for each in groups):
        raise ValueError(
            f"there are {trellis.segments.n_sequences} sequences and groups for {len(groups)}; pass one or more groups "
            "for each, with one or more states"
        )
    return best_alignments(trellis, groups)


@torch.no_grad()
def best_alignments(trellis: Trellis, groups: Sequence[Groups]) -> tuple[Tensor, Tensor, Tensor]:
    """Return the most probable path of each sequence of a trellis through given groups of states.

    Args:
        trellis: the problem of inference, with one chain.
        groups: for each sequence a list of groups, each a list of states.

    Returns:
        The position of each frame's group, ``(N,)``, its state, ``(N,)``, and log p(path, x) of each sequence in nats,
            ``(n,)``.
    """
    lengths = trellis.segments.lengths
    positions, states = (torch.zeros(int(lengths.sum()), dtype=torch.int64, device=lengths.device) for _ in range(2))
    log_prob = torch.empty(len(lengths), dtype=torch.float64, device=lengths.device)
    first = lengths.cumsum(0) - lengths
    for part in _parts(lengths.tolist(), groups):
        sequences = torch.tensor(part, device=lengths.device)
        whole, _ = trellis.take(sequences)
        packing = whole.packing
        by_rank = [groups[part[i]] for i in packing.order.tolist()]
        packed_positions, packed_states, is_possible = _align(whole, _Padded.of(by_rank, lengths.device))
        rows = first[sequences][packing.sequence] + packing.time
        positions[rows], states[rows] = packed_positions, packed_states
        log_p = log_prob_of_paths(whole, packing.unpack(packed_states))
        log_prob[sequences] = torch.where(is_possible[packing.rank], log_p, -torch.inf)
    return positions, states, log_prob


def _parts(lengths: list[int], groups: Sequence[Groups]) -> Iterator[list[int]]:
    """Yield lists of numbers of sequences of similar lengths, as many at once as memory can hold.

    Args:
        lengths: number of frames of each sequence.
        groups: groups of states of each sequence.
    """
    part: list[int] = []
    S = G = n_frames = 0
    for i in sorted(range(len(lengths)), key=lambda i: (lengths[i], len(groups[i])), reverse=True):
        S, G, n_frames = max(S, len(groups[i])), max(G, *map(len, groups[i])), n_frames + lengths[i]
        if part and ((len(part) + 1) * S * 2 * G**2 > TERMS_AT_ONCE or n_frames * S * G > POINTERS_AT_ONCE):
            yield part
            part, S, G, n_frames = [], len(groups[i]), max(map(len, groups[i])), lengths[i]
        part.append(i)
    yield part


@dataclass(frozen=True)
class _Padded:
    """The groups of states that n sequences must pass through, padded to S positions and G states in each.

    Attributes:
        states: states of each group, ``(n, S, G)``; 0 where padded.
        is_state: False where padded, ``(n, S, G)`` bool.
        last: last position of each sequence, ``(n,)``.
    """

    states: Tensor
    is_state: Tensor
    last: Tensor

    @classmethod
    def of(cls, groups: Sequence[Groups], device: torch.device) -> _Padded:
        S, G = max(map(len, groups)), max(len(group) for each in groups for group in each)
        rows = [
            [[*group, *[-1] * (G - len(group))] for group in each] + [[-1] * G] * (S - len(each)) for each in groups
        ]
        states = torch.tensor(rows, device=device)
        return cls(states.clamp(min=0), states >= 0, torch.tensor([len(each) - 1 for each in groups], device=device))

    def arcs(self, transition: Tensor) -> Tensor:
        """Return the log-probabilities of the transitions into each state of each group, ``(n, S, G, 2G)``.

        The last axis holds first the states of the group before, then the states of the same group. ``transition``
        holds those of all transitions, ``(K, K)``; or ``(m, K, K)``, one matrix for each of the first m sequences, and
        the result is then for these m alone. Transitions from or to padding have -inf.
        """
        m = len(self.states) if transition.dim() == 2 else len(transition)
        states, is_state = self.states[:m], self.is_state[:m]
        before = torch.cat([states[:, :1], states[:, :-1]], 1)
        is_before = torch.cat([torch.zeros_like(is_state[:, :1]), is_state[:, :-1]], 1)
        sources, is_source = torch.cat([before, states], 2), torch.cat([is_before, is_state], 2)
        pairs = (sources[:, :, None, :], states[:, :, :, None])
        if transition.dim() == 2:
            arcs = transition[pairs]
        else:
            arcs = transition[torch.arange(m, device=states.device)[:, None, None, None], *pairs]
        return arcs.masked_fill(~(is_source[:, :, None, :] & is_state[:, :, :, None]), -torch.inf)


def _align(trellis: Trellis, padded: _Padded) -> tuple[Tensor, Tensor, Tensor]:
    """Return group and state of each packed row, ``(N,)``, and True for sequences that have a path, ``(n,)``.

    The last result is by rank (longest first).

    Args:
        trellis: problem of inference, whose sequences must not be cut into segments.
        padded: groups of states of each sequence, by rank.
    """
    packing, (n, S, G) = trellis.packing, padded.states.shape
    arcs = padded.arcs(on_grid(trellis.transition.log()))  # read only where transitions are the same at all steps
    log_b = on_grid(relative_to_largest(trellis.densities.log().double())[0])
    start = on_grid(trellis.starts(torch.float64).log()).gather(1, padded.states[:, 0])
    delta = log_b.new_full((n, S, G), -torch.inf)
    delta[:, 0] = start.masked_fill(~padded.is_state[:, 0], -torch.inf)
    scores = torch.empty_like(delta)
    psi = torch.zeros(packing.n_frames, S, G, dtype=torch.uint8 if 2 * G <= 256 else torch.int16, device=delta.device)
    for t, (low, high) in enumerate(packing.blocks):
        running = high - low
        if t:
            scores[running : len(delta)] = delta[running:]
            going_on = delta[:running]
            before = torch.cat([going_on.new_full((running, 1, G), -torch.inf), going_on[:, :-1]], 1)
            if trellis.log_transitions is None:
                into = arcs[:running]
            else:
                into = padded.arcs(on_grid(trellis.log_transitions[low:high]))
            arrivals = torch.cat([before, going_on], 2)[:, :, None, :] + into
            delta, psi[low:high] = arrivals.max(3)
        delta = delta + log_b[low:high].gather(1, padded.states[:running].flatten(1)).view(running, S, G)
        if (t + 1) % RESCALE_EVERY == 0:
            delta = rescaled(delta.flatten(1)).view(running, S, G)
    scores[: len(delta)] = delta
    ranks, position = torch.arange(n, device=delta.device), padded.last
    ends = on_grid(trellis.ends(torch.float64).log()).gather(1, padded.states[ranks, position])
    at_end, member = (scores[ranks, position] + ends).max(1)
    return *_trace(trellis, padded, psi, member), at_end > -torch.inf


def _trace(trellis: Trellis, padded: _Padded, psi: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
    """Return group and state of each of N packed rows, ``(N,)``, by following ``psi`` back from the last frames.

    ``psi`` says for each row and state from which state the best path comes. ``last``, ``(n,)`` by rank (longest
    first), is the index of the last state within the last group.
    """
    G = psi.shape[2]
    positions = torch.empty(len(psi), dtype=torch.int64, device=psi.device)
    states, position, member = torch.empty_like(positions), padded.last[:0], last[:0]
    for low, high in reversed(trellis.packing.blocks):
        running = high - low
        position = torch.cat([position, padded.last[len(position) : running]])
        member = torch.cat([member, last[len(member) : running]])
        ranks = torch.arange(running, device=psi.device)
        positions[low:high], states[low:high] = position, padded.states[ranks, position, member]
        source = psi[low:high][ranks, position, member].long()
        position = torch.where(source < G, position - 1, position).clamp(min=0)  # clamped where there is no path
        member = source % G
    return positions, states
