"""The k most probable paths, found one after the other (the serial list Viterbi algorithm, Seshadri and Sundberg 1994).

Let ``delta_t(i)`` be the score of the best path to state i at time t. Take a path that equals the best one from its end
back to time t + 1, is in state i at time t, and has the best past from there. It loses against the best path

    ``loss_t(i) = max_l (delta_t(l) + log a_lj) - (delta_t(i) + log a_ij)``,  j the state at t + 1.

Every path is the best path with some such deviations, each earlier in time than the one before, and loses the sum of
their losses. So the next best path has one more deviation than a path found before, earlier in time than that path's
last deviation. The deviations of each found path are listed by loss, and the smallest loss of all lists comes next.
Beside Viterbi's recursion this takes T·K numbers for each path of a sequence of T frames.

Scores are rounded to the grid of ``viterbi``, so that equally probable paths have exactly equal scores. Equal paths are
ordered by their last states first, the lowest number first, as ``viterbi`` chooses among them.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from seqmodels.inference.chains.trellis import Lengths, Trellis
from seqmodels.inference.chains.viterbi import log_prob_of_paths, on_grid, traced


@torch.no_grad()
def list_viterbi(
    initial: Tensor,
    transition: Tensor,
    log_b: Tensor,
    final: Tensor | None = None,
    *,
    k: int,
    lengths: Lengths | None = None,
) -> list[tuple[Tensor, Tensor]]:
    """Return the ``k`` most probable paths of hidden states of each sequence, the best first.

    Paths whose log-probabilities differ by less than the rounding, T 2^-36 nats for T frames, may come in any order.

    Args:
        initial: distribution of the first state p(z_1) over K states, ``(K,)``, or ``(n, K)`` with one row for each of
            n sequences.
        transition: transition probabilities p(z_t+1 = j | z_t = i), ``(K, K)``.
        log_b: log-densities log p(x_t | z_t) in nats, ``(N, K)``, float32 or float64: the frames of all sequences, one
            sequence after the other.
        final: probability that the sequence ends after each state, ``(K,)``; None if the length has no probability.
        k: number of paths, at least 1.
        lengths: number of frames of each sequence, ``(n,)``; None if all N frames belong to one sequence.

    Returns:
        For each sequence its paths, ``(m, T)`` int64, all different, and log p(path, x) in nats, ``(m,)`` float64. m is
        ``k``, or less if fewer paths have a probability above zero.

    Raises:
        ValueError: If ``k`` is below one, or a shape or precision does not fit.

    >>> log_b = torch.tensor([[0.9, 0.1], [0.2, 0.8]]).log()
    >>> [(paths, log_prob)] = list_viterbi(torch.tensor([0.5, 0.5]), torch.full((2, 2), 0.5), log_b, k=3)
    >>> paths.tolist(), log_prob.exp().numpy().round(3).tolist()
    ([[0, 1], [0, 0], [1, 1]], [0.18, 0.045, 0.02])
    """
    if k < 1:
        raise ValueError(f"k is {k}; pass the number of paths, at least 1")
    return k_best_paths(Trellis.of_concatenated(initial, transition, log_b, final, lengths), k)


@torch.no_grad()
def k_best_paths(trellis: Trellis, k: int) -> list[tuple[Tensor, Tensor]]:
    """Return the ``k`` most probable paths of each sequence, ``(m, T)``, and log p(path, x) in nats, ``(m,)``.

    m is ``k``, or less if fewer paths have a probability above zero. ``trellis`` is the problem of inference, with one
    chain.
    """
    log_b, packing, lengths = trellis.densities.log(), trellis.packing, trellis.segments.lengths.tolist()
    deltas = torch.empty(log_b.shape, dtype=torch.float64, device=log_b.device)
    best, psi = traced(trellis, log_b, deltas)
    log_probs = [log_prob_of_paths(trellis, best, log_b)]
    ends = on_grid(trellis.final.log()).expand(len(lengths), -1).cpu().numpy()
    if trellis.log_transitions is None:
        into = [on_grid(trellis.transition.log()).T.cpu().numpy()[None]] * len(lengths)
    else:
        of_steps = packing.unpack(on_grid(trellis.log_transitions).mT).cpu()
        into = [each.numpy() for each in of_steps.split(lengths)]
    by_sequence = (each.cpu().split(lengths) for each in (best, packing.unpack(deltas), packing.unpack(psi)))
    each_path: list[Tensor] = []  # (m, T) of each sequence
    for path, delta, before, end, into_steps, log_prob in zip(
        *by_sequence, ends, into, log_probs[0].tolist(), strict=True
    ):
        scores = _Scores(into_steps, delta.numpy(), before.numpy(), end)
        paths = _paths_of(scores, path.numpy(), k) if np.isfinite(log_prob) else path[None, :].numpy()[:0]
        each_path.append(torch.as_tensor(paths).to(best.device))
    for rank in range(1, max(map(len, each_path))):
        # A sequence of fewer paths is scored on its last one again, an impossible one on any.
        of_rank = [
            paths[min(rank, len(paths) - 1)] if len(paths) else best[:n]
            for paths, n in zip(each_path, lengths, strict=True)
        ]
        log_probs.append(log_prob_of_paths(trellis, torch.cat(of_rank), log_b))
    by_rank = torch.stack(log_probs)  # (most paths, n)
    return [(paths, by_rank[: len(paths), i]) for i, paths in enumerate(each_path)]


@dataclass(frozen=True)
class _Scores:
    """The Viterbi scores of one sequence of T frames and K states, which give the cost of deviating from a path.

    Attributes:
        into: log-probabilities of the transitions into step t, ``into[t, j, i] = log a_ij``, ``(T, K, K)``; or
            ``(1, K, K)`` if they are the same at all steps.
        delta: scores of the best paths to each state, ``(T, K)``.
        psi: the state before, on the best path to each state, ``(T, K)``.
        ends: log-probabilities of the end after each state, ``(K,)``.
    """

    into: np.ndarray
    delta: np.ndarray
    psi: np.ndarray
    ends: np.ndarray

    def deviations(self, path: np.ndarray, before: int, m: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the ``m`` best deviations from ``path`` before the time ``before``: their losses, times and states.

        A path deviates at time t if it is in another state there, equals ``path`` later and has the best past. Its loss
        is by how much its log-probability is less. Before ``before``, ``path`` must be the best past of its later
        states.
        """
        after = path[1 : before + 1]
        rows = np.zeros_like(after) if len(self.into) == 1 else np.arange(1, len(after) + 1)
        ahead = self.into[rows, after]  # (before, K), or one row less where the path may end elsewhere
        if before == len(path):
            ahead = np.concatenate([ahead, self.ends[None]])
        scores, times = self.delta[:before] + ahead, np.arange(before)
        losses = scores[times, path[:before], None] - scores
        losses[times, path[:before]] = np.inf  # no deviation
        if m < losses.size:
            losses[losses > np.partition(losses, m - 1, axis=None)[m - 1]] = np.inf
        t, i = np.isfinite(losses).nonzero()
        # Deviations of equal loss: one to a lower state comes before those that keep this path's state, others after.
        k = losses.shape[1]
        order = np.lexsort([np.where(i < path[t], i - (t + 1) * k, i + t * k), losses[t, i]])[:m]
        return losses[t, i][order], t[order], i[order]

    def deviating(self, path: np.ndarray, t: int, i: int) -> np.ndarray:
        """Return the path that is in state ``i`` at time ``t``, equals ``path`` later and is the best before ``t``."""
        result = path.copy()
        result[t] = i
        for s in range(t, 0, -1):
            state = self.psi[s, result[s]]
            if state == path[s - 1]:
                break  # both paths follow psi from here back
            result[s - 1] = state
        return result


@dataclass(frozen=True)
class _Deviations:
    """The deviations from one path, in order of the log-probability that each loses.

    ``losses`` are relative to the best path of the sequence, so that they include the loss of ``path``; ``times`` and
    ``states`` say at which time and to which state each deviates. ``scores`` are the Viterbi scores of the sequence.
    """

    scores: _Scores
    path: np.ndarray
    losses: np.ndarray
    times: np.ndarray
    states: np.ndarray


@dataclass(frozen=True)
class _Candidate:
    """A candidate for the next best path: deviation number ``rank`` from an earlier path, listed in ``of``.

    Candidates compare by loss, and candidates of equal loss by their states, the last state first.
    """

    of: _Deviations
    rank: int

    @property
    def loss(self) -> float:
        return float(self.of.losses[self.rank])

    @property
    def time(self) -> int:
        return int(self.of.times[self.rank])

    @cached_property
    def path(self) -> np.ndarray:
        return self.of.scores.deviating(self.of.path, self.time, int(self.of.states[self.rank]))

    def __lt__(self, other: _Candidate) -> bool:
        if self.loss != other.loss:
            return self.loss < other.loss
        return _from_the_last(self.path) < _from_the_last(other.path)


def _from_the_last(path: np.ndarray) -> bytes:
    """Return the states of a path in reverse order as bytes, which sort as the reversed paths do."""
    return path[::-1].astype(">i4").tobytes()


def _paths_of(scores: _Scores, best: np.ndarray, k: int) -> np.ndarray:
    """Return the ``k`` most probable paths of a sequence, ``(m, T)``, the first of which is ``best``.

    m is less than ``k`` if there are no more paths. ``scores`` are the Viterbi scores of the sequence.
    """
    paths = [best]
    candidates: list[_Candidate] = []
    loss, before = 0.0, len(best)
    while len(paths) < k:
        losses, times, states = scores.deviations(paths[-1], before, k - len(paths))
        if len(losses):
            heapq.heappush(candidates, _Candidate(_Deviations(scores, paths[-1], loss + losses, times, states), 0))
        if not candidates:
            break
        chosen = heapq.heappop(candidates)
        if chosen.rank + 1 < len(chosen.of.losses):
            heapq.heappush(candidates, _Candidate(chosen.of, chosen.rank + 1))
        paths.append(chosen.path)
        loss, before = chosen.loss, chosen.time
    return np.stack(paths)
