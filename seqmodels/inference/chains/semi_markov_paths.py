"""Paths of a hidden semi-Markov chain: their probability, the k best, and the best through given states in their order.

A path of states can be cut into segments in only one way, unless a state may follow itself. Its runs are then taken as
segments of their own, with durations ``w(L) = p(L) + a Σ_d p(d) w(L - d)``, where ``a`` is the probability of staying
(``of_runs``), so that all functions below are about paths.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seqmodels.inference.chains.log_weights import finite
from seqmodels.inference.chains.packing import Packing
from seqmodels.inference.chains.semi_markov import (
    Durations,
    EndingTables,
    SemiMarkovFiltered,
    SemiMarkovTrellis,
    best_segments,
    cumulated,
    forward_pass,
)

Array = NDArray[np.float64]
Groups = Sequence[Sequence[int]]  # the states of each label of one sequence


@torch.no_grad()
def log_prob_of_segment_paths(trellis: SemiMarkovTrellis, paths: Sequence[Tensor]) -> Tensor:
    """Return the joint log-probability of given paths and sequences, log p(path, x) in nats, ``(n,)`` float64.

    ``paths`` has the states of each sequence, ``(T,)``. It is computed as the probability of the sequence with every
    other state made impossible, and so sums over all segmentations of the path.
    """
    states = trellis.packing.pack(torch.cat([path.to(trellis.log_b.device) for path in paths]))
    is_other = torch.arange(len(trellis.transition), device=states.device) != states[:, None]
    filtered = forward_pass(replace(trellis, log_b=trellis.log_b.masked_fill(is_other, -torch.inf)))
    return trellis.packing.totals(filtered.steps) + filtered.ends


@torch.no_grad()
def log_steps_left(trellis: SemiMarkovTrellis, filtered: SemiMarkovFiltered) -> list[Tensor]:
    """Return log p(last state, number of steps that its segment has left | x) of each sequence, ``(K, D)``.

    There is one array for each sequence. Entry r of the second axis, counted from 0, means that r more steps of the
    segment follow the last step. Everything is -inf if the sequence is impossible.
    """
    d, split = trellis.durations, trellis.packing.split
    factors = trellis.relative[0] - finite(filtered.log_scale[:, None])
    results, n = [], trellis.packing.n_sequences
    tables, firsts = [d.log_pmf[None]] * n, [d.log_first] * n
    if d.table_of_row is not None:
        last = torch.arange(-d.log_pmf.shape[-1], 0)
        tables = [d.log_pmf[of_step[last[-len(of_step) :]]] for of_step in split(d.table_of_row)]
        firsts = list(d.log_first[trellis.packing.rank])
    each = split(filtered.log_start), split(factors), tables, firsts
    for log_start, factor, log_pmf, log_first in zip(*each, strict=True):
        alpha = torch.full_like(log_first, -torch.inf)
        since = torch.zeros_like(alpha[:, 0])
        n_steps, longest = len(factor), alpha.shape[1]
        for lasted in range(1, min(n_steps, longest) + 1):
            first = n_steps - lasted
            since = since + factor[first]
            table = log_pmf[-lasted if d.differ else 0] if first else log_first
            of_begin = (log_start[first] + since)[:, None] + table[:, lasted - 1 :]
            left = alpha[:, : longest - lasted + 1]
            left.copy_(torch.logaddexp(left, of_begin))
        results.append(alpha)
    return results


def of_runs(trellis: SemiMarkovTrellis) -> SemiMarkovTrellis:
    """Return an equivalent problem of inference in which segments are runs of a state, so that none follows itself.

    It is the same problem if all durations are one or no state follows itself. Where transitions differ from step to
    step, a state that follows itself must do so with the probability of ``transition`` at every step; a state that
    nothing else may follow does.
    """
    d, stays = trellis.durations, trellis.transition.diagonal()
    follows = (stays > 0).nonzero()[:, 0]
    longest = d.log_pmf.shape[-1]
    if longest == 1 or not len(follows):
        return trellis
    transition, log_transitions = trellis.transition.clone(), trellis.log_transitions
    transition.diagonal().zero_()
    if log_transitions is not None:
        log_transitions = log_transitions.clone()
        log_transitions.diagonal(dim1=1, dim2=2).fill_(-torch.inf)
    durations = _runs_by_row(trellis, follows) if d.differ else _runs(trellis, follows)
    return replace(trellis, transition=transition, durations=durations, log_transitions=log_transitions)


def _runs(trellis: SemiMarkovTrellis, follows: Tensor) -> Durations:
    """Return the durations of runs of the states ``follows``, and of segments of the others, up to the longest run."""
    d, stays, longest = trellis.durations, trellis.transition.diagonal(), trellis.durations.log_pmf.shape[1]
    width = max(longest, len(trellis.packing.blocks))
    pmf, longer, first, first_longer = (
        torch.nn.functional.pad(table, (0, width - longest), value=-torch.inf)
        for table in (d.log_pmf, d.log_longer, d.log_first, d.log_first_longer)
    )
    stay, ahead = stays[follows].log()[:, None], d.log_pmf[follows]
    first_ahead = d.log_first[follows]
    runs = [table[follows].clone() for table in (pmf, longer, first, first_longer)]
    for n in range(1, width):  # runs of n + 1 steps: a segment of 1, 2, ... and a run of what is left
        m = min(n, longest)
        for k, segments in enumerate((ahead, ahead, first_ahead, first_ahead)):
            rest = runs[k % 2][:, n - m : n].flip(1)
            more = torch.logsumexp(segments[:, :m] + rest, 1, keepdim=True) + stay
            runs[k][:, n : n + 1] = torch.logaddexp(runs[k][:, n : n + 1], more)
    tables = [table.clone() for table in (pmf, longer, first, first_longer)]
    for table, of_states in zip(tables, runs, strict=True):
        table[follows] = of_states
    pmf, longer, first, first_longer = tables
    return Durations(pmf, longer, first, first_longer)


def _runs_by_row(trellis: SemiMarkovTrellis, follows: Tensor) -> Durations:
    """Return what ``_runs`` does where durations differ by the row that a segment begins at.

    A run that begins at step s has ``w_s(L) = p_s(L) + a Σ_d p_s(d) w_{s+d}(L - d)``, computed from the last step back.
    """
    d, packing, stay = trellis.durations, trellis.packing, trellis.transition.diagonal()[follows].log()
    longest, n_times, log_pmf = d.log_pmf.shape[-1], len(packing.blocks), d.log_pmf_of_rows
    width = max(longest, n_times)
    pmf, longer, first, first_longer = (
        torch.nn.functional.pad(table, (0, width - longest), value=-torch.inf)
        for table in (log_pmf, d.log_longer[d.table_of_row], d.log_first, d.log_first_longer)
    )
    for t in reversed(range(n_times)):
        low = packing.blocks[t][0]
        for lasted in range(1, min(longest, n_times - t - 1) + 1):
            after, stop = packing.blocks[t + lasted]
            m = stop - after
            pairs = [(pmf[low:], pmf, log_pmf[low:]), (longer[low:], longer, log_pmf[low:])]
            if t == 0:
                pairs += [(first, pmf, d.log_first), (first_longer, longer, d.log_first)]
            for runs, rest, segments in pairs:
                begun = (stay + segments[:m, follows, lasted - 1]).unsqueeze(-1)
                more = begun + rest[after:stop, follows, : width - lasted]
                runs[:m, follows, lasted:] = torch.logaddexp(runs[:m, follows, lasted:], more)
    return Durations(pmf, longer, first, first_longer, table_of_row=torch.arange(len(pmf), device=pmf.device))


# -- the k best --------------------------------------------------------------------------------------------------------


@torch.no_grad()
def k_best_segments(trellis: SemiMarkovTrellis, k: int) -> list[tuple[Tensor, Tensor]]:
    """Return the ``k`` most probable paths of states of each sequence, the best first, and their log-probabilities.

    For each sequence these are ``(m, T)`` states and log p(path, x) in nats, ``(m,)``. The algorithm is Viterbi over
    segments, keeping the ``k`` best of each step and state: ``K D k`` terms a step. m is less than ``k`` if fewer paths
    are possible, and 0 if none is.
    """
    trellis = of_runs(trellis)
    log_b, peaks = trellis.relative
    final = None if trellis.final is None else trellis.final.log().cpu().numpy()
    initial = trellis.log_initial[trellis.packing.rank]
    each = trellis.packing.split(log_b), trellis.packing.totals(peaks).tolist(), trellis.tables_of_each
    results = []
    for of_sequence, peak, (pmf, at_least), *chain in zip(*each, initial, trellis.log_matrices_of_each, strict=True):
        log_initial, log_a = (part.cpu().numpy() for part in chain)
        paths, scores = _ListOfSegments(log_initial, log_a, final, pmf, at_least, k).best(of_sequence.cpu().numpy())
        results.append((torch.as_tensor(paths), torch.as_tensor(scores + peak)))
    return results


@dataclass(frozen=True)
class _ListOfSegments:
    """A hidden semi-Markov chain of K states and durations up to D, whose k best segmentations are searched.

    Attributes:
        initial: log-probabilities of the first segment's state, ``(K,)``.
        transition: log-probabilities of the next segment's state, ``(1, K, K)``, or ``(T, K, K)`` by its first step.
        final: log-probabilities of the end, ``(K,)``; None if the end is no event.
        pmf: log-probabilities of the durations of segments.
        at_least: log-probabilities that segments last at least as long.
        k: number of paths.
    """

    initial: Array
    transition: Array
    final: Array | None
    pmf: EndingTables
    at_least: EndingTables
    k: int

    def best(self, log_b: Array) -> tuple[NDArray[np.int64], Array]:
        """Return the m most probable paths of one sequence, ``(m, T)``, and their log-probabilities, ``(m,)``.

        ``log_b``, ``(T, K)``, are its log-densities.
        """
        n_steps, n_states = log_b.shape
        level, n_zeros = cumulated(log_b)
        start = np.full((n_steps, n_states, self.k), -np.inf)  # scores of the best that begin at a step
        start[0, :, 0] = self.initial
        came_from = np.zeros((n_steps, n_states, self.k), np.int64)  # state before times k plus its rank
        lasted = np.zeros((n_steps, n_states, self.k), np.int64)  # (duration - 1) times k plus the rank of its start

        def ending(t: int, tables: EndingTables) -> Array:
            """Return the scores of segments of 1, 2, ... m steps whose last step is t, ``(m·k, K)``."""
            m = min(tables.of_first.shape[-1], t + 1)
            firsts = np.arange(t, t - m, -1)
            within = level[t + 1] - level[firsts] + tables.at(firsts)
            within[n_zeros[firsts] < n_zeros[t + 1]] = -np.inf
            scores: Array = (start[firsts] + within[:, :, None]).transpose(0, 2, 1).reshape(m * self.k, n_states)
            return scores

        ended = np.empty((n_states, self.k))
        for t in range(n_steps):
            if t:
                into = self.transition[t if len(self.transition) > 1 else 0]
                entering = (ended[:, :, None] + into[:, None, :]).reshape(-1, n_states)
                start[t], came_from[t] = self._top(entering)
            ended, lasted[t] = self._top(ending(t, self.pmf))
        if self.final is None:
            last = ending(n_steps - 1, self.at_least)
            scores, at = self._top(last.reshape(-1, 1))
            places = [(int(p) % n_states, int(p) // n_states) for p in at[0]]
        else:
            scores, at = self._top((ended + self.final[:, None]).reshape(-1, 1))
            places = [(int(p) // self.k, int(lasted[-1].ravel()[p])) for p in at[0]]
        n_possible = int(np.isfinite(scores[0]).sum())
        paths = [self._traced(n_steps, *place, came_from, lasted) for place in places[:n_possible]]
        return np.array(paths, np.int64).reshape(n_possible, n_steps), scores[0, :n_possible]

    def _top(self, scores: Array) -> tuple[Array, NDArray[np.int64]]:
        """Return the ``k`` largest scores of each column, in order, and their rows, each ``(columns, k)``.

        If there are fewer rows, the values are filled up with -inf.
        """
        if len(scores) < self.k:
            scores = np.concatenate([scores, np.full((self.k - len(scores), scores.shape[1]), -np.inf)])
        rows = np.argpartition(-scores, self.k - 1, axis=0)[: self.k]
        values = np.take_along_axis(scores, rows, 0)
        order = np.argsort(-values, axis=0, kind="stable")
        return np.take_along_axis(values, order, 0).T, np.take_along_axis(rows, order, 0).T

    def _traced(
        self, n_steps: int, state: int, segment: int, came_from: NDArray[np.int64], lasted: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        path, stop = np.empty(n_steps, np.int64), n_steps
        while True:
            duration, rank = segment // self.k + 1, segment % self.k
            path[stop - duration : stop] = state
            stop -= duration
            if stop == 0:
                return path
            state, before = divmod(int(came_from[stop, state, rank]), self.k)
            segment = int(lasted[stop - 1, state, before])


# -- through labels in their order -------------------------------------------------------------------------------------


@torch.no_grad()
def best_segment_alignments(
    trellis: SemiMarkovTrellis, groups: Sequence[Groups]
) -> tuple[list[Tensor], list[Tensor], Tensor]:
    """Return the most probable path of each sequence through given groups of states, in their order.

    The results are the number of the group (label) at each step, ``(T,)`` for each sequence, the state at each step,
    ``(T,)``, and log p(path, x), ``(n,)`` in nats. ``groups`` has for each sequence a list of groups, each a list of
    states. The path is in each group for at least one segment. If there is none, log p is -inf and the labels and
    states are arbitrary. It is the best path of the chain whose states are pairs of a label and one of its states.
    """
    runs, packing = of_runs(trellis), trellis.packing
    positions, states, is_possible = [], [], []
    each = packing.split(trellis.log_b), runs.initial.expand(packing.n_sequences, -1), runs.log_matrices_of_each
    for i, (log_b, of_first, log_a, of_sequence) in enumerate(zip(*each, groups, strict=True)):
        label = torch.tensor([s for s, group in enumerate(of_sequence) for _ in group], device=log_b.device)
        state = torch.tensor([j for group in of_sequence for j in group], device=log_b.device)
        ahead = label - label[:, None]
        is_next = (ahead == 0) | (ahead == 1)
        transition, of_steps = runs.transition[state][:, state] * is_next, None
        if runs.log_transitions is not None:
            of_steps = log_a[:, state][:, :, state].masked_fill(~is_next, -torch.inf)
        is_last = label == label[-1]
        emitted = log_b[:, state].clone()
        emitted[-1, ~is_last] = -torch.inf
        d = runs.durations
        of_durations, of_row = (d.log_pmf, d.log_longer, d.log_first, d.log_first_longer), d.table_of_row
        if of_row is not None:
            at, rank = of_row[packing.offsets[: len(log_b)] + packing.rank[i]], packing.rank[i : i + 1]
            of_durations = (d.log_pmf[at], d.log_longer[at], d.log_first[rank], d.log_first_longer[rank])
            of_row = torch.arange(len(at), device=at.device)
        pmf, longer, first, first_longer = (table[..., state, :] for table in of_durations)
        durations = Durations(pmf, longer, first, first_longer, table_of_row=of_row)
        initial, final = of_first[state] * (label == 0), None if runs.final is None else runs.final[state]
        whole = Packing.of([len(emitted)], emitted.device)
        expanded = SemiMarkovTrellis(initial, transition, final, durations, emitted, whole, of_steps)
        (path,), best = best_segments(expanded)
        at = torch.from_numpy(path).to(state.device)
        positions.append(label[at])
        states.append(state[at])
        is_possible.append(bool(best > -torch.inf))
    log_prob = log_prob_of_segment_paths(trellis, states)
    return positions, states, log_prob.masked_fill(~torch.tensor(is_possible, device=log_prob.device), -torch.inf)
