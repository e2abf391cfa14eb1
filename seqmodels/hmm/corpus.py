"""The data of an HMM: encoded sequences, packed into batches that fit into memory, or into mini-batches.

Mini-batches are for stepwise EM. They consist of subsequences from all over the data, each with the frames around it
that its posteriors depend on. Subsequences are to a long sequence what a batch of sequences is to many sequences.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqmodels.common.distributed import is_distributed, shard
from seqmodels.common.main_memory import memory_of_process
from seqmodels.encodings import Encoding
from seqmodels.encodings.examples import Example
from seqmodels.encodings.on_disk import OnDisk
from seqmodels.hmm.emissions import Emission
from seqmodels.hmm.emissions.given_inputs import log_density_given_inputs
from seqmodels.hmm.missing_past import Beliefs, PastFilter, with_beliefs
from seqmodels.hmm.parameters import Parameters
from seqmodels.inference.chains.continuous_time import log_transitions_over
from seqmodels.inference.chains.densities import Densities, LogDensities, clamped, possible_states
from seqmodels.inference.chains.given_inputs import log_initial, log_transitions
from seqmodels.inference.chains.parallel_segments import FEW_STATES, Segments, runs_compiled
from seqmodels.inference.chains.scratch import Scratch
from seqmodels.inference.chains.threads import WORTH_A_RECURSION
from seqmodels.inference.chains.trellis import Trellis

ELEMENTS_AT_ONCE = {"cpu": 1 << 25}  # most frames of a batch times densities of a frame, which bounds memory
# A GPU's batch may have one element for so many bytes of its memory in float32. Few large batches keep it busy; a batch
# takes up to half of this memory in logarithms, which are float64, and a sixth otherwise.
BYTES_AN_ELEMENT_ON_GPU = 128
# Most frames of a batch read from disk times densities, or times features in float64, which bounds memory.
ELEMENTS_FROM_DISK = 1 << 22
LEAST_ELEMENTS = 16  # fewest elements of a frame, because its indices among packed frames take as much memory
# Most frames of a batch read from disk, because with few features and densities other results take more memory.
FRAMES_FROM_DISK = 1 << 16
ELEMENTS_READ = 1 << 18  # elements that are read and encoded at once
MAX_SUBSEQUENCES = 1 << 17  # subsequences of all data on disk, each of which is an object
SIDE_BY_SIDE = 32  # subsequences in a mini-batch of one long sequence, enough for matrix products to be fast
WARM_UP = 200  # frames before and after a subsequence whose statistics do not count
SHORTEST = 4 * WARM_UP  # fewest frames of a subsequence, so that its warm-up costs at most half as much

WAY_OUT = "keep emissions and transitions from being exactly zero (pseudocount, topology, states)"


@dataclass(frozen=True)
class PackedBatch:
    """Some sequences of equal weight, packed into one array of N frames for inference.

    K states, D features, U inputs. ``segments.packing`` says which frame of which sequence each of the N rows is.

    Attributes:
        x: encoded frames, ``(N, D)`` or ``(N,)``.
        past: the p frames before each, ``(N, p, D)``, or with beliefs about their missing values ``(N, p + p²D, D)``,
            in the form that ``AutoregressiveGaussian`` takes; None if the observation needs none.
        segments: parts of the sequences over which recursions run in parallel.
        weight: weight of each sequence.
        indices: number of each sequence in the corpus.
        scratch: buffers for intermediate results; batches made together share them, because they are computed one after
            the other.
        states: state of each frame where it is known, ``(N,)``, -1 elsewhere; or a mask of possible states, ``(N, K)``
            bool; None if all states are possible everywhere.
        inputs: standardised inputs of each frame, ``(N, U)``; None if nothing is regressed on inputs.
        gaps: time since the frame before, ``(N,)``, 0 for first frames; None but in continuous time.
    """

    x: Tensor
    past: Tensor | None
    segments: Segments
    weight: float
    indices: list[int]
    scratch: Scratch
    states: Tensor | None = None
    inputs: Tensor | None = None
    gaps: Tensor | None = None

    def trellis(self, parameters: Parameters, densities: Densities) -> Trellis:
        """Return the ``Trellis`` of the batch, the parameters and densities from which forward and Viterbi passes run.

        In a frame whose state is known, all other states have density zero.

        Args:
            parameters: parameters of one chain, or of R chains stacked.
            densities: densities of the N frames in each state, ``(N, K)`` or ``(R, N, K)``.
        """
        if self.states is not None:
            densities = clamped(densities, self.states)
        p, initial = parameters, self.initial(parameters)
        trellis = Trellis.of(initial, p.transition, densities, self.segments, p.final, self.scratch)
        if p.generator is not None:
            assert self.gaps is not None
            k = initial.shape[-1]  # a generator may have one state more, into which the process is lost
            over = log_transitions_over(p.generator, self.gaps, p.transition_slopes, self.inputs)
            return replace(trellis, log_transitions=over[:, :k, :k])
        if p.transition_slopes is None:
            return trellis
        assert self.inputs is not None
        return replace(trellis, log_transitions=log_transitions(p.transition, p.transition_slopes, self.inputs))

    def initial(self, parameters: Parameters) -> Tensor:
        """Return the distribution of the first state under ``parameters``: ``(K,)``, or ``(n, K)`` by inputs.

        It has a row for each of n sequences if it depends on the inputs of their first step.
        """
        if parameters.initial_slopes is None:
            return parameters.initial
        return log_initial(parameters.initial, parameters.initial_slopes, self.first_inputs).exp()

    @property
    def first_inputs(self) -> Tensor:
        """Standardized inputs of the first step of each of n sequences, ``(n, U)``."""
        assert self.inputs is not None
        return self.inputs[self.segments.first]

    def densities(self, emission: Emission, parameters: Parameters, dtype: torch.dtype) -> Densities:
        """Return the densities of the N frames in the K states of one chain, ``(N, K)``.

        Args:
            emission: the emission of the states.
            parameters: parameters of the chain and its emissions.
            dtype: precision of the densities.
        """
        return self.evaluate(emission, parameters, dtype)[0]

    def evaluate(self, emission: Emission, parameters: Parameters, dtype: torch.dtype) -> tuple[Densities, Any]:
        """Return the densities of the N frames in the K states of one chain, and intermediate results for the M-step.

        Args:
            emission: the emission of the states.
            parameters: parameters of the chain and its emissions.
            dtype: precision of the densities.

        Returns:
            Densities ``(N, K)``, and what ``Emission.statistics`` takes as its argument ``memo`` so that it need not
            compute it again.
        """
        p = parameters
        if p.table_slopes is None:
            return emission.evaluate(p.table, self.x, self.past, dtype, self.scratch)
        return LogDensities(self.log_densities_given_inputs(emission, p).to(dtype)), None

    def log_densities_given_inputs(self, emission: Emission, parameters: Parameters) -> Tensor:
        """Return the log-densities of the N frames in K states whose emissions depend on inputs, ``(N, K)`` in nats.

        They are differentiable in the parameters.

        Args:
            emission: the emission of the states.
            parameters: parameters of the chain and its emissions, with slopes on inputs.
        """
        p = parameters
        assert p.table_slopes is not None, "its emissions depend on inputs"
        assert self.inputs is not None
        of_states = emission.observed(p.table.to(p.table_slopes)), emission.observed(p.table_slopes)
        return log_density_given_inputs(emission.observation, *of_states, self.x, self.past, self.inputs)

    def refuse_impossible(self, log_prob: Tensor) -> None:
        """Raise ``ValueError`` if a sequence has log-probability -inf; the message has its number in the corpus.

        ``log_prob`` holds the log-probability of each of n sequences in nats, ``(n,)``, or under each of R chains
        ``(R, n)``.
        """
        refuse(self.impossible(log_prob))

    def impossible(self, log_prob: Tensor) -> list[int]:
        """Return the numbers in the corpus of the sequences that have log-probability -inf under any chain.

        ``log_prob`` holds the log-probability of each of n sequences in nats, ``(n,)``, or under each of R chains
        ``(R, n)``.
        """
        return [self.indices[i] for i in (log_prob == -math.inf).nonzero()[:, -1].tolist()]

    def dealt(self, n_chains: int, n_states: int, dtype: torch.dtype) -> list[PackedBatch]:
        """Return the batch as a list of batches, one for each thread of torch, if computing them in threads is faster.

        Otherwise the list has this batch alone.

        Args:
            n_chains: number of chains that are computed side by side.
            n_states: number of states of each chain.
            dtype: precision of the computation.
        """
        if self.inputs is not None or self.gaps is not None:
            return [self]
        n, sequences = torch.get_num_threads(), self.segments.n_sequences
        if runs_compiled(n_states, len(self.x), self.x.device):
            # With few states the loops share their work among threads by themselves.
            is_faster = n_states > FEW_STATES and runs_compiled(n_states, len(self.x) // n, self.x.device)
        else:
            is_faster = n_chains * n_states**2 * (sequences // n) >= WORTH_A_RECURSION[dtype]
        is_dealt = 1 < n <= sequences and self.x.device.type == "cpu" and self.segments.is_whole and is_faster
        if not is_dealt:
            return [self]
        *scratches, kept = self.scratch.of_threads(n + 1)
        return kept.once(self.x, lambda _: [self._dealt(i, n, scratch) for i, scratch in enumerate(scratches)])

    def _dealt(self, i: int, n: int, scratch: Scratch) -> PackedBatch:
        """Return the batch of the sequences i, i + n, i + 2 n, ... of this one in order of length.

        Args:
            i: position of the first of them.
            n: number of batches into which the sequences are dealt out.
            scratch: buffers of the new batch.
        """
        sequences = self.segments.packing.order[i::n]
        segments = Segments.whole(self.segments.lengths[sequences])
        rows = self.segments.rows(sequences[segments.sequence], segments.time)
        past, states = (None if each is None else each[rows] for each in (self.past, self.states))
        indices = [self.indices[j] for j in sequences.tolist()]
        return PackedBatch(self.x[rows], past, segments, self.weight, indices, scratch, states)


def refuse(impossible: Sequence[int], way_out: str = WAY_OUT) -> None:
    """Raise ``ValueError`` if ``impossible``, the numbers of sequences of probability zero, is not empty.

    The message has the smallest number, and ends with ``way_out``, which says what the user can change.
    """
    if impossible:
        raise ValueError(
            f"sequence {min(impossible)} has probability zero under this model, so its states have no posterior; "
            f"leave it out, or {way_out}"
        )


@dataclass(frozen=True)
class Subsequence:
    """The frames from ``first`` up to but not including ``stop`` of one sequence of a corpus.

    Attributes:
        sequence: number of the sequence.
        first: number of its first frame.
        stop: number of the frame after its last.
        length: number of frames of the whole sequence.
    """

    sequence: int
    first: int
    stop: int
    length: int

    def __len__(self) -> int:
        return self.stop - self.first

    @property
    def warm_up_before(self) -> Subsequence:
        """The frames before it, on which a forward pass starts, so that its first state is given its past."""
        return Subsequence(self.sequence, max(0, self.first - WARM_UP), self.first, self.length)

    @property
    def warm_up_after(self) -> Subsequence:
        """The frames after it, on which a backward pass starts, so that its last state is given its future."""
        return Subsequence(self.sequence, self.stop, min(self.length, self.stop + WARM_UP), self.length)


MiniBatch = list[list[Subsequence]]  # groups, each of one weight and of a size that memory can hold


@dataclass(frozen=True)
class Portion:
    """The part of a batch that one process of distributed training computes.

    Attributes:
        packed: the part; None if it is empty.
        batch_frames: number of frames of the whole batch, multiplied by the weight of its sequences.
    """

    packed: PackedBatch | None
    batch_frames: float


@dataclass(frozen=True)
class Corpus:
    """Encoded training or test sequences in the order of the data, read one batch at a time.

    Attributes:
        sequences: the sequences, vectors ``(T, D)`` or symbols ``(T,)`` each.
        weights: weight of each sequence; sequences of weight zero are not read.
        states: known states of each sequence: integers ``(T,)``, -1 where unknown, or masks of the possible ones,
            ``(T, K)``; None if none are known.
        n_past: number of frames before a frame that its density depends on.
        n_states: number of states K.
        n_densities: number of densities of a frame, over all states and components.
        device, dtype: device and precision of the computation.
        scratch: buffers for intermediate results.
        past_filter: Kalman filter for missing values among the frames before a frame; None if none are missing.
        inputs: standardised inputs of each sequence, ``(T, U)``; None if nothing is regressed on inputs.
        has_one_matrix: True if transitions are the same at all steps, so that sequences may be cut into segments.
        gaps: time of each step since the step before, ``(T,)`` for each sequence; None but in continuous time.
    """

    sequences: Sequence[np.ndarray]
    weights: Sequence[float]
    states: Sequence[np.ndarray] | None
    n_past: int
    n_states: int
    n_densities: int
    device: torch.device
    dtype: torch.dtype
    scratch: Scratch = field(default_factory=Scratch)
    past_filter: PastFilter | None = None
    inputs: Sequence[np.ndarray] | None = None
    has_one_matrix: bool = True
    gaps: Sequence[np.ndarray] | None = None

    @cached_property
    def beliefs(self) -> Sequence[Beliefs | None] | None:
        """Distributions of the missing values in the past frames of each sequence; None if no values are missing."""
        return None if self.past_filter is None else self.past_filter.beliefs(self.sequences)

    # -- whole sequences -------------------------------------------------------------------------------------

    @cached_property
    def batches(self) -> list[PackedBatch]:
        """All sequences of positive weight in batches, packed once and kept, because they are read several times."""
        return self._pack_groups(self._groups(self._used()))

    def each_batch(self) -> Iterator[PackedBatch]:
        """Return an iterator over the sequences of positive weight in batches, packed one by one and not kept."""
        scratch = Scratch()
        return (self._pack_whole(group, scratch) for group in self._groups(self._used()))

    def own_batches(self) -> list[PackedBatch]:
        """Return the batches of sequences that this process of distributed training computes.

        If there are more processes than sequences, some of them have a batch of weight zero. A single process has all
        batches.
        """
        if not is_distributed():
            return self.batches
        indices = self._used()
        part = shard(indices)
        batches = self._pack_groups(self._groups(part or indices[:1]))
        return batches if part else [replace(batch, weight=0.0) for batch in batches]

    def own_portions(self) -> list[Portion]:
        """Return this process's part of each batch of the data.

        The batches are those that a single process would have, so that a step of gradient ascent is over the same data.
        """
        if not is_distributed():
            return [Portion(batch, batch.weight * len(batch.x)) for batch in self.batches]
        groups = self._groups(self._used())
        batches = iter(self._pack_groups([part for part in map(shard, groups) if part]))
        lengths = [sum(len(self.sequences[i]) for i in group) for group in groups]
        return [
            Portion(next(batches) if shard(group) else None, self.weights[group[0]] * length)
            for group, length in zip(groups, lengths, strict=True)
        ]

    @property
    def frames_at_once(self) -> int:
        """Largest number of frames in one batch."""
        is_bounded = self.is_on_disk and self.device.type == "cpu"
        return min(self.frames_in_group, FRAMES_FROM_DISK) if is_bounded else self.frames_in_group

    @property
    def frames_in_group(self) -> int:
        """Largest number of frames of a mini-batch that are computed together, as memory permits."""
        elements = ELEMENTS_AT_ONCE["cpu"]
        if self.device.type == "cuda":
            bytes_of_one = BYTES_AN_ELEMENT_ON_GPU * self.dtype.itemsize // torch.float32.itemsize
            elements = max(elements, int(memory_of_process(self.device)) // bytes_of_one)
        most = elements // self.n_densities
        if self.is_on_disk:
            shape = self.sequences[0].shape
            n_values = (1 + self.n_past) * (shape[1] if len(shape) == 2 else 1)
            most = min(most, ELEMENTS_FROM_DISK // max(self.n_densities, n_values, LEAST_ELEMENTS))
        return max(1, most)

    @cached_property
    def is_on_disk(self) -> bool:
        """True if any sequence is on disk, so that the amount read at once must be bounded."""
        types: set[type] = set(map(type, self.sequences))
        return OnDisk in types

    def _used(self) -> list[int]:
        return [i for i, w in enumerate(self.weights) if w > 0]

    def _groups(self, indices: list[int]) -> list[list[int]]:
        numbers = np.asarray(indices, dtype=np.int64)
        weights = np.asarray(self.weights, dtype=np.float64)[numbers]
        lengths = np.fromiter(map(len, self.sequences), np.int64, len(self.sequences))[numbers]
        return [numbers[group].tolist() for group in grouped(weights, lengths, self.frames_at_once)]

    def _pack_groups(self, groups: list[list[int]]) -> list[PackedBatch]:
        scratch = Scratch()
        return [self._pack_whole(group, scratch) for group in groups]

    def _pack_whole(self, indices: list[int], scratch: Scratch) -> PackedBatch:
        sequences = [self.sequences[i] for i in indices]
        of_frames = (self.states, self.inputs, self.gaps)
        if self.n_past or any(each is not None for each in of_frames) or self.is_on_disk:
            whole = [Subsequence(i, 0, len(x), len(x)) for i, x in zip(indices, sequences, strict=True)]
            return self._pack(whole, scratch)
        lengths = np.fromiter(map(len, sequences), np.int64, len(sequences))
        segments = Segments.fastest(lengths, self.n_states, self.dtype, self.device)
        x = segments.packing.pack(self._in_precision(np.concatenate(sequences)).to(self.device))
        return PackedBatch(x, None, segments, self.weights[indices[0]], indices, scratch)

    # -- subsequences ----------------------------------------------------------------------------------------

    def pack(self, subsequences: list[Subsequence]) -> PackedBatch:
        """Return a batch of ``subsequences``, whose sequences must all have one weight.

        The frames before a subsequence are read only where its densities depend on them.
        """
        return self._pack(subsequences, self.scratch)

    def _pack(self, parts: list[Subsequence], scratch: Scratch) -> PackedBatch:
        lengths = [len(part) for part in parts]
        if self.has_one_matrix:
            segments = Segments.fastest(lengths, self.n_states, self.dtype, self.device)
        else:
            segments = Segments.whole(torch.tensor(lengths), self.device)
        pack = segments.packing.pack
        x = pack(self._frames(parts).to(self.device))
        past = None

        def of_parts(arrays: Sequence[np.ndarray] | None) -> Tensor | None:
            if arrays is None:
                return None
            joined = np.concatenate([arrays[p.sequence][p.first : p.stop] for p in parts])
            return pack(torch.as_tensor(joined, device=self.device))

        if self.n_past:
            past_frames = np.concatenate([_past(self.sequences[p.sequence], p, self.n_past) for p in parts])
            if self.beliefs is None:
                past = pack(torch.as_tensor(past_frames, device=self.device, dtype=self.dtype))
            else:
                known = [(self.beliefs[p.sequence], p.first, p.stop) for p in parts]
                past = pack(with_beliefs(torch.as_tensor(past_frames), known).to(self.device))
        indices = [p.sequence for p in parts]
        common_weight = self.weights[indices[0]]
        of_frames = map(of_parts, (self.states, self.inputs, self.gaps))
        return PackedBatch(x, past, segments, common_weight, indices, scratch, *of_frames)

    def _frames(self, parts: list[Subsequence]) -> Tensor:
        """Return the frames of the subsequences ``parts`` one after the other, ``(N, ...)``.

        Floats are in the precision of the computation. Data on disk are converted in small pieces, because they are
        read in float64 and memory is bounded.
        """
        if not self.is_on_disk:
            return self._in_precision(np.concatenate([self.sequences[p.sequence][p.first : p.stop] for p in parts]))
        shape = self.sequences[0].shape[1:]
        frames = torch.empty((sum(map(len, parts)), *shape), dtype=self.dtype if shape else torch.int64)
        size, row = max(1, ELEMENTS_READ // math.prod(shape)), 0
        for part in parts:
            for t in range(part.first, part.stop, size):
                read = np.asarray(self.sequences[part.sequence][t : min(t + size, part.stop)])
                frames[row : row + len(read)] = torch.from_numpy(read)
                row += len(read)
        return frames

    def _in_precision(self, frames: np.ndarray) -> Tensor:
        values = torch.as_tensor(frames)
        return values.to(self.dtype) if values.is_floating_point() else values

    def mini_batches(self, n: int, generator: torch.Generator, *, may_cut: bool = True) -> list[MiniBatch]:
        """Return mini-batches of about equally many frames, each made of subsequences from all over the data.

        Args:
            n: number of mini-batches.
            generator: random generator that assigns subsequences to mini-batches.
            may_cut: True if long sequences may be cut into subsequences; otherwise each sequence is one subsequence.

        Returns:
            Mini-batches, each a list of groups of subsequences; a group has sequences of one weight, and fits into
            memory.
        """
        indices = self._used()
        total = sum(len(self.sequences[i]) for i in indices)
        size = max(SHORTEST, total // (n * SIDE_BY_SIDE)) if may_cut else total
        # With much data on disk only a group of subsequences fits into memory.
        bounded = max(SHORTEST, self.frames_in_group // SIDE_BY_SIDE, total // MAX_SUBSEQUENCES)
        is_bounded = self.is_on_disk and may_cut and bounded < size
        size = bounded if is_bounded else size
        order = [indices[j] for j in torch.randperm(len(indices), generator=generator).tolist()]
        parts = [part for i in order for part in cut(i, len(self.sequences[i]), size)]
        if is_bounded:  # a mini-batch then has many groups, each with parts from all over the data
            parts = [parts[j] for j in torch.randperm(len(parts), generator=generator).tolist()]
        mini_batches = [parts[b::n] for b in range(min(n, len(parts)))]
        return [self._in_groups(each) for each in mini_batches]

    def _in_groups(self, parts: list[Subsequence]) -> MiniBatch:
        weights = np.array([self.weights[part.sequence] for part in parts])
        groups = grouped(weights, np.array(list(map(len, parts))), self.frames_in_group)
        return [[parts[j] for j in group.tolist()] for group in groups]

    def in_batches(self, group: list[Subsequence]) -> Iterator[list[Subsequence]]:
        """Yield the subsequences of ``group``, of one weight, in lists of at most ``frames_at_once`` frames."""
        if sum(map(len, group)) <= self.frames_at_once:
            yield group
            return
        weights = np.array([self.weights[part.sequence] for part in group])
        for batch in grouped(weights, np.array(list(map(len, group))), self.frames_at_once):
            yield [group[j] for j in batch.tolist()]

    def n_frames(self, mini_batch: MiniBatch) -> float:
        """Return the number of frames of a mini-batch, each counted with the weight of its sequence."""
        return sum(self.weights[part.sequence] * len(part) for group in mini_batch for part in group)


def cut(sequence: int, length: int, size: int) -> list[Subsequence]:
    """Return the subsequences that cut one sequence into equal parts.

    A sequence that is shorter than two parts stays whole.

    Args:
        sequence: number of the sequence.
        length: its number of frames.
        size: about how many frames a part has.
    """
    n = max(1, length // size)
    edges = [length * i // n for i in range(n + 1)]
    return [Subsequence(sequence, a, b, length) for a, b in pairwise(edges)]


def grouped(weights: np.ndarray, lengths: np.ndarray, most: int) -> list[np.ndarray]:
    """Return groups of sequences of one weight and similar length, as arrays of their positions.

    Args:
        weights: weight of each of n sequences, ``(n,)``.
        lengths: number of frames of each, ``(n,)``.
        most: largest number of frames of a group, unless a single sequence has more.

    >>> [group.tolist() for group in grouped(np.array([1.0, 1.0, 2.0, 1.0]), np.array([3, 9, 1, 2]), most=5)]
    [[3, 0], [1], [2]]
    """
    order = np.lexsort((lengths, weights))
    in_order, n_frames = weights[order], np.cumsum(lengths[order])
    groups: list[np.ndarray] = []
    start = 0
    while start < len(order):
        before = n_frames[start - 1] if start else 0
        full = int(np.searchsorted(n_frames, before + most, side="right"))
        stop = min(max(full, start + 1), int(np.searchsorted(in_order, in_order[start], side="right")))
        groups.append(order[start:stop])
        start = stop
    return groups


def _past(frames: np.ndarray, part: Subsequence, n_past: int) -> np.ndarray:
    """Return the p frames before each of the n frames of a subsequence, the oldest first, ``(n, p, D)``.

    Frames before the start of the sequence are NaN.

    Args:
        frames: the whole sequence, ``(T, D)``.
        part: the subsequence.
        n_past: number of frames, p.
    """
    early = np.full((max(0, n_past - part.first), frames.shape[1]), np.nan)
    padded = np.concatenate([early, frames[max(0, part.first - n_past) : part.stop]])
    return np.stack([padded[i : i + len(part)] for i in range(n_past)], axis=1)


# -- from encoded examples -----------------------------------------------------------------------------------


def corpus_of(
    examples: Sequence[Example],
    emission: Emission,
    n_states: int,
    device: torch.device,
    dtype: torch.dtype,
    past_filter: PastFilter | None = None,
    *,
    has_one_matrix: bool = True,
) -> Corpus:
    """Return the corpus of encoded examples, in which each source is joined with the target after it.

    If some examples have known states, all others count as unknown.

    Args:
        examples: encoded sequences.
        emission: the emission, which says how many frames before a frame its density depends on.
        n_states: number of states.
        device: device of the computation.
        dtype: precision of the computation.
        past_filter: Kalman filter for missing values among the frames before a frame; None if none are missing.
        has_one_matrix: True if transitions are the same at all steps.
    """
    n_past, n_densities = emission.observation.n_past, emission.n_densities(n_states)
    joined = joined_values(examples)
    if past_filter is not None:
        n_densities = max(n_densities, (n_past + n_past**2 * emission.size) * emission.size)
    states = None
    if any(e.states is not None for e in examples):
        states = [np.full(len(x), -1) if e.states is None else e.states for x, e in zip(joined, examples, strict=True)]
        if any(known.ndim == 2 for known in states):
            states = [possible_states(torch.from_numpy(known), n_states).numpy() for known in states]
    weights = [e.weight for e in examples]
    inputs = [e.inputs for e in examples if e.inputs is not None] or None
    if not has_one_matrix:  # there is one for each frame
        n_densities = max(n_densities, n_states * n_states)
    of_model = (n_past, n_states, n_densities, device, dtype, Scratch(), past_filter, inputs, has_one_matrix)
    return Corpus(joined, weights, states, *of_model)


def joined_values(examples: Sequence[Example]) -> list[np.ndarray]:
    """Return the encoded steps of each of ``examples``, those of its source followed by those of its target."""
    return [e.values if e.source is None else np.concatenate([e.source, e.values]) for e in examples]


def raw_size(examples: Sequence[Example], encoding: Encoding) -> tuple[float, float]:
    """Return the number of units and the log-determinant of all data that EM fits.

    Units are raw steps, or bytes of text; the log-determinant, in nats, converts the log-density of encoded data to raw
    units. Both are weighted by sequence, and sources count as well.

    Args:
        examples: encoded sequences.
        encoding: their encoding.
    """
    units = 0.0
    log_det = 0.0
    for e in examples:
        units += e.weight * e.n_units
        log_det += e.weight * e.log_det
        if e.source is not None:
            raw = encoding.decode(e.source)
            log_dets = np.broadcast_to(encoding.log_det(raw), len(e.source))
            units += e.weight * len(raw.encode() if isinstance(raw, str) else raw)
            log_det += e.weight * float(log_dets.sum())
    return units, log_det


def validation_score(sums_of_steps: Callable[[list[Example]], np.ndarray], examples: list[Example]) -> float:
    """Return the score of held-out examples in nats per raw unit (a step, or a byte of text); NaN if there are none.

    Args:
        sums_of_steps: function that returns the log-probability of each encoded example in nats, ``(n,)``.
        examples: the held-out examples.
    """
    if not examples:
        return np.nan
    log_prob = float(sums_of_steps(examples).sum()) + sum(e.log_det for e in examples)
    return log_prob / sum(e.n_units for e in examples)


def check_states(examples: Sequence[Example], n_states: int) -> None:
    """Raise ``ValueError`` if known states of an example do not fit its encoded steps or the number of states.

    The message has the number of the sequence. Known states are integers ``(T,)``, -1 where unknown, or booleans
    ``(T, K)``, True where a state is possible.

    Args:
        examples: encoded sequences with their known states.
        n_states: number of states, K.
    """
    for i, example in enumerate(examples):
        if example.states is None:
            continue
        n = len(example.values) + (0 if example.source is None else len(example.source))
        if example.states.ndim == 2:
            _check_possible(i, example.states, (n, n_states))
            continue
        if example.states.shape != (n,) or example.states.dtype.kind not in "iu":
            raise ValueError(
                f"states of sequence {i} have shape {example.states.shape} and type {example.states.dtype}; pass an "
                f"integer for each of its {n} encoded steps, -1 where the state is not known"
            )
        if example.states.min() < -1 or example.states.max() >= n_states:
            raise ValueError(
                f"states of sequence {i} go from {example.states.min()} to {example.states.max()}; pass 0 to "
                f"{n_states - 1}, or -1 where the state is not known"
            )


def _check_possible(i: int, states: np.ndarray, shape: tuple[int, int]) -> None:
    if states.shape != shape or states.dtype != bool:
        raise ValueError(
            f"states of sequence {i} have shape {states.shape} and type {states.dtype}; pass booleans of shape "
            f"{shape}, True for the states that are possible at each encoded step, or an integer for each step"
        )
    if not states.any(1).all():
        raise ValueError(
            f"states of sequence {i} allow none at step {int(np.argmin(states.any(1)))}; allow at least one"
        )
