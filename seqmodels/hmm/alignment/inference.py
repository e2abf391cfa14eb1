"""Sums over all alignments of a source and a target, and the best alignment, by the recursions of an HMM.

Pairs whose sources have the same length are computed together (``PairBlock``). With a ``JumpPrior`` every source has a
chain of its own, ``w[j - i] v_j / Σ_k w[k - i] v_k``. All factors that differ from source to source belong to one
position, namely its prior weight and the sum that divides the jumps from it. They are therefore moved into the emission
of the position, and all sources share one transition matrix. This applies the sum one step too early, which
``AlignmentTrellis.steps`` corrects.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Self

import numpy as np
import torch
from torch import Tensor

from seqmodels.encodings.examples import Example
from seqmodels.hmm.alignment.jumps import Jumps, PositionChain
from seqmodels.inference.chains.densities import LogDensities
from seqmodels.inference.chains.forward_backward import forward_backward_pass, forward_pass
from seqmodels.inference.chains.parallel_segments import Segments
from seqmodels.inference.chains.scratch import Scratch
from seqmodels.inference.chains.trellis import Trellis
from seqmodels.inference.chains.viterbi import best_paths

CELLS_AT_ONCE = 1 << 20  # cells of a block; a cell is a step of a target at a position of its source


@dataclass(frozen=True)
class Alphabets:
    """The sizes of the source and target alphabets, after whose symbols come codes for special symbols.

    ``n_source`` source symbols are followed by the code for positions outside of the source, and the code for the null
    (no position); ``n_target`` target symbols are followed by the code for the start of a target.
    """

    n_source: int
    n_target: int

    def windows(self, sources: np.ndarray, window: int) -> np.ndarray:
        """Return the source symbols around each position, around the end, and for no position, ``(n, S + 2, window)``.

        Where a window reaches beyond the source, it holds the code of the edge, ``n_source``. The last window is filled
        with the code of the null (no position), ``n_source + 1``.

        Args:
            sources: symbols of n sources of one length S, ``(n, S)``.
            window: number of symbols around a position, odd.
        """
        half = window // 2
        padded = np.pad(sources, ((0, 0), (half, half + 1)), constant_values=self.n_source)
        windows = np.lib.stride_tricks.sliding_window_view(padded, window, axis=1)
        null = np.full((len(sources), 1, window), self.n_source + 1)
        return np.concatenate([windows, null], axis=1)


@dataclass(frozen=True, eq=False)
class PairBlock:
    """A batch of n pairs of source and target, whose sources all have S positions and whose weights are equal.

    The targets have N steps in all, one per row of the arrays, in the order of ``segments.packing``. Without a null
    (alignment with no position), the S positions are the K states. With a null, K is 2 S + 1, because there is a null
    state after each position and one before the first. S' counts positions and, if there is a null, one for all nulls.

    Attributes:
        indices: index of each pair in the data, longest target first.
        windows: source symbols around each position, the end and the null, ``(n, S + 2, window)``.
        y: target symbols, ``(N,)``.
        previous: target symbol before each step, ``(N,)``.
        weight: weight of each pair.
        segments: the parts of the targets that are computed at the same time.
        scratch: buffers that the recursions use again.
        null: True if a step may be aligned with no position.
    """

    indices: list[int]
    windows: np.ndarray
    y: np.ndarray
    previous: np.ndarray
    weight: float
    segments: Segments
    scratch: Scratch
    null: bool

    @classmethod
    def from_examples(
        cls,
        examples: Sequence[Example],
        indices: list[int],
        alphabets: Alphabets,
        window: int,
        *,
        null: bool,
        device: torch.device,
        dtype: torch.dtype,
        scratch: Scratch,
    ) -> Self:
        """Return the batch of some pairs, whose sources must have the same length.

        Args:
            examples: all encoded pairs; the symbols of the source are ``Example.source``, those of the target
                ``Example.values``.
            indices: numbers of the pairs in the batch, longest target first.
            alphabets: sizes of the source and target alphabets.
            window: number of source symbols around a position, odd.
            null: True if a step may be aligned with no position.
            device: device of the recursions.
            dtype: precision of the recursions.
            scratch: buffers that the recursions use again.
        """
        pairs = [examples[i] for i in indices]
        sources = np.stack([np.asarray(e.source) for e in pairs])
        lengths = np.array([len(e.values) for e in pairs])
        n_states = (2 * sources.shape[1] + 1) if null else sources.shape[1]
        segments = Segments.fastest(lengths, n_states, dtype, device)
        sequence, time = segments.sequence.cpu().numpy(), segments.time.cpu().numpy()
        values = np.concatenate([np.asarray(e.values) for e in pairs])
        row = (np.cumsum(lengths) - lengths)[sequence] + time
        previous = np.where(time == 0, alphabets.n_target, values[row - 1])
        windows = alphabets.windows(sources, window)
        return cls(indices, windows, values[row], previous, pairs[0].weight, segments, scratch, null)

    @property
    def n_positions(self) -> int:
        """Number of positions S of each source."""
        return int(self.windows.shape[1]) - 2

    @cached_property
    def sequence(self) -> np.ndarray:
        """Index in the batch of the pair that each of the N target steps (rows) belongs to, ``(N,)``."""
        return self.segments.sequence.cpu().numpy()

    @cached_property
    def last(self) -> np.ndarray:
        """Row of the last target step of each of the n pairs, ``(n,)``."""
        return self.segments.last.cpu().numpy()

    @property
    def windows_of_steps(self) -> np.ndarray:
        """Source symbols around each position for each of the N target steps, ``(N, S', window)``.

        S' is the number S of source positions, or S + 1 if steps may be aligned with no position.
        """
        n = self.n_positions
        windows = np.delete(self.windows, n, axis=1) if self.null else self.windows[:, :n]
        windows_of_steps: np.ndarray = windows[self.sequence]
        return windows_of_steps

    @property
    def windows_of_jumps(self) -> np.ndarray:
        """Source symbols around each of the S positions and the end of n sources, ``(n, S + 1, window)``."""
        return self.windows[:, :-1]

    def sum_nulls(self, gamma: np.ndarray) -> np.ndarray:
        """Return posteriors of source positions with all null states (no position) summed to one column, ``(..., S')``.

        S' is the number S of source positions, or S + 1 if steps may be aligned with no position.

        Args:
            gamma: posteriors of the K states: the positions and, if there are any, the null states, ``(..., K)``.
        """
        if not self.null:
            return gamma
        positions, nulls = gamma[..., : self.n_positions], gamma[..., self.n_positions :]
        return np.concatenate([positions, nulls.sum(-1, keepdims=True)], -1)

    def repeat_nulls(self, values: np.ndarray) -> np.ndarray:
        """Return values of positions as values of the K states, ``(..., K)``; null states get the value of the null.

        Args:
            values: values of the S positions and, if steps may be aligned with no position (null), of the null, ``(...,
                S')``.
        """
        if not self.null:
            return values
        nulls = np.repeat(values[..., -1:], self.n_positions + 1, axis=-1)
        return np.concatenate([values[..., :-1], nulls], -1)


def blocks_of(
    examples: Sequence[Example],
    alphabets: Alphabets,
    window: int,
    *,
    null: bool,
    device: torch.device,
    dtype: torch.dtype,
) -> list[PairBlock]:
    """Return all pairs of positive weight in batches, each of pairs with equal source lengths and equal weights.

    In a batch, target steps times source positions are at most ``CELLS_AT_ONCE``, unless one pair has more.

    Args:
        examples: all encoded pairs of source and target.
        alphabets: sizes of the source and target alphabets.
        window: number of source symbols around a position, odd.
        null: True if a step may be aligned with no position.
        device: device of the recursions.
        dtype: precision of the recursions.
    """

    def key(i: int) -> tuple[int, float]:
        return len(np.asarray(examples[i].source)), examples[i].weight

    lengths = [len(e.values) for e in examples]
    used = [i for i, e in enumerate(examples) if e.weight > 0]
    used.sort(key=lambda i: (*key(i), -lengths[i]))
    scratch = Scratch()
    return [
        PairBlock.from_examples(
            examples, part, alphabets, window, null=null, device=device, dtype=dtype, scratch=scratch
        )
        for (n_positions, _), group in groupby(used, key=key)
        for part in _parts(list(group), lengths, CELLS_AT_ONCE // (n_positions + null))
    ]


def _parts(indices: list[int], lengths: list[int], max_steps: int) -> list[list[int]]:
    """Split ``indices`` into parts of at most ``max_steps`` target steps; a longer pair is a part of its own."""
    parts, steps = list[list[int]](), max_steps
    for i in indices:
        if steps + lengths[i] > max_steps:
            parts.append([])
            steps = 0
        parts[-1].append(i)
        steps += lengths[i]
    return [part for part in parts if part]


@dataclass(frozen=True)
class AlignmentExpectations:
    """The results of the E-step on one batch of n pairs of source and target.

    S' is the number S of source positions, or S + 1 if steps may be aligned with no position.

    Attributes:
        log_prob: log-probability of all pairs in nats.
        gamma: posteriors of positions and of no position (the null) at each of N target steps, ``(N, S')``.
        chain: expected counts of starts, transitions and ends.
        arrivals: expected number of jumps of each pair to each position and to the end, ``(n, S + 1)``.
        departures: expected number of jumps of each pair from the start, from the null before any position, and from
            each position, ``(n, S + 2)``.
    """

    log_prob: float
    gamma: np.ndarray
    chain: PositionChain
    arrivals: np.ndarray
    departures: np.ndarray


@dataclass(frozen=True, eq=False)
class AlignmentTrellis:
    """The hidden Markov model of all alignments of one batch, on which forward, backward and Viterbi passes run.

    Attributes:
        block: the batch of n pairs of source and target.
        jumps: the weights of jumps.
        sums: the sums that normalise the weights of the jumps from each of K states, ``(n, K)``.
        trellis: the Markov chain over positions with the probability of each target step at each of them.
    """

    block: PairBlock
    jumps: Jumps
    sums: Tensor
    trellis: Trellis

    @classmethod
    def from_block(cls, block: PairBlock, jumps: Jumps, prior: np.ndarray, p: np.ndarray, dtype: torch.dtype) -> Self:
        """Return the hidden Markov model of all alignments of the pairs in a batch.

        Args:
            block: the batch of n pairs, whose targets have N steps and whose sources have S positions.
            jumps: the weights of jumps.
            prior: prior weights of the positions and the end of each source, ``(n, S + 1)``.
            p: probability of each target step at each position and, if there is one, at the null (no position), ``(N,
                S')``.
            dtype: precision of the recursions.
        """
        device, sums = block.segments.lengths.device, jumps.sums(prior)
        factors = prior[:, :-1] / sums[:, 2:]
        if block.null:
            # A null has one probability, whatever the sum, because the factor of arriving cancels that of leaving.
            factors = np.concatenate([factors, np.ones((len(factors), 1))], axis=1)
        chain, of_states = jumps.chain(sums), torch.from_numpy(jumps.of_states(sums)).to(device)
        # In float64 first, because probabilities of rare symbols in fine contexts may underflow in float32.
        log_b = torch.from_numpy(block.repeat_nulls(p * factors[block.sequence])).log_().to(device, dtype)
        if chain.final is None:  # no jump leaves the last step
            log_b[block.segments.last] += of_states.log().to(dtype)
        initial, transition = torch.from_numpy(chain.initial), torch.from_numpy(chain.transition)
        final = None if chain.final is None else torch.from_numpy(chain.final)
        trellis = Trellis.of(initial, transition, LogDensities(log_b), block.segments, final, block.scratch)
        return cls(block, jumps, of_states, trellis)

    def steps(self) -> list[np.ndarray]:
        """Return for each pair the log-probability ``log p(y_t | y_<t, x)`` of each step in nats.

        There is one array ``(T,)`` for a target of T steps; if the end is an event, its log-probability follows as
        entry T + 1.
        """
        segments, forward = self.block.segments, forward_pass(self.trellis)
        log_sums = (forward.alpha.double() * self.sums[segments.sequence]).sum(1).log()
        assert forward.ends is not None
        if not self.jumps.has_end:
            log_sums[segments.last] = 0.0
        ends, results = (forward.ends - log_sums[segments.last]).cpu().numpy(), []
        for steps, early, end in zip(segments.split(forward.steps), segments.split(log_sums), ends, strict=True):
            corrected = (steps + early.diff(prepend=early.new_zeros(1))).cpu().numpy()
            results.append(np.append(corrected, end) if self.jumps.has_end else corrected)
        return results

    def expectations(self) -> AlignmentExpectations:
        """Return the results of the E-step: the expected alignments and jumps of each pair of the batch."""
        block, posterior = self.block, forward_backward_pass(self.trellis)
        gamma = posterior.gamma
        zeros = gamma.new_zeros(len(block.indices), gamma.shape[1], dtype=torch.float64)
        visits = zeros.index_add(0, block.segments.sequence, gamma.double()).cpu().numpy()  # (n, K)
        last = gamma[block.segments.last].double().cpu().numpy()
        first = gamma[block.segments.first].double().cpu().numpy()
        initial, xi, final = (a.cpu().numpy() for a in (posterior.initial, posterior.xi, posterior.final))
        return AlignmentExpectations(
            float(posterior.log_prob.sum()),
            block.sum_nulls(gamma.cpu().numpy().copy()),
            PositionChain(initial, xi, final if self.jumps.has_end else None),
            np.column_stack([visits[:, : block.n_positions], np.full(len(visits), float(self.jumps.has_end))]),
            self._departures(visits, first, last),
        )

    def _departures(self, visits: np.ndarray, first: np.ndarray, last: np.ndarray) -> np.ndarray:
        """Return the expected number of departures from the start, the first null and each position, ``(n, S + 2)``.

        Departures are to a position or the end.
        """
        n, has_end = self.block.n_positions, self.jumps.has_end
        null_at_first = first[:, n : n + 1] if self.block.null else np.zeros((len(visits), 1))
        visited = np.concatenate([null_at_first, visits[:, :n]], axis=1)
        if not has_end:
            visited[:, 1:] -= last[:, :n]
            visited -= last[:, n:] if self.block.null else 0.0
        return np.concatenate([1 - null_at_first, visited], axis=1)

    def posterior(self) -> list[np.ndarray]:
        """Return for each pair the posterior of the source position of each target step, ``(T, S')`` float64.

        S' is the number S of source positions, or S + 1 if steps may be aligned with no position.
        """
        gamma = self.block.segments.split(forward_backward_pass(self.trellis).gamma)
        return [self.block.sum_nulls(each.double().cpu().numpy()) for each in gamma]

    def best_alignments(self) -> list[np.ndarray]:
        """Return for each pair the source positions of its most probable alignment, ``(T,)`` integers.

        -1 means no position.
        """
        paths, _ = best_paths(self.trellis)
        positions = torch.where(paths < self.block.n_positions, paths, -1)
        return [path.cpu().numpy() for path in positions.split(self.block.segments.lengths.tolist())]
