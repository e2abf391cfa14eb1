"""First guesses of an HMM's parameters, from known states, clustering, or equal parts of each sequence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from seqmodels.hmm.corpus import PackedBatch
from seqmodels.hmm.emissions import Emission
from seqmodels.hmm.emissions.base import MANY_STATES, jitter
from seqmodels.hmm.learning.constraints import Tying
from seqmodels.hmm.parameters import Parameters
from seqmodels.hmm.topology import Banded, Topology, restrict

SMOOTHING = 0.1  # share of a first guess that is spread evenly, so that every transition stays possible
FRAMES_AT_ONCE = 1 << 16  # frames whose densities are compared at once; bounds memory


def starts(
    emission: Emission,
    batches: list[PackedBatch],
    n_states: int,
    *,
    has_final: bool,
    generators: Sequence[torch.Generator],
    topology: Topology | None = None,
    tying: Tying | None = None,
) -> Iterator[Parameters]:
    """Yield a first guess of a hidden Markov model's parameters for each generator, from which EM can start.

    The sequences are counted without their weights.

    Args:
        emission: the emission distribution, which estimates its parameters from frames with a guessed state.
        batches: the sequences to guess from.
        n_states: number of states, K.
        has_final: True if the end of a sequence is an event.
        generators: a random generator for each guess.
        topology: transitions that are possible; None means all.
        tying: states that share an emission, which then start with the same parameters; None means that none do.
    """
    frames = _Frames.from_batches(batches)
    topology = topology or Banded()
    tying = tying or Tying.from_argument(None, n_states)
    for generator in generators:
        yield _start(emission, frames, topology, tying, generator, has_final=has_final)


def _start(
    emission: Emission,
    frames: _Frames,
    topology: Topology,
    tying: Tying,
    generator: torch.Generator,
    *,
    has_final: bool,
) -> Parameters:
    n_states = len(tying.group)
    labels = _labels(emission, frames, topology, tying, generator)
    group = tying.group.to(labels.device)
    table = tying.spread(emission.from_labels(frames.x, frames.past, group[labels], tying.n_groups, generator))
    initial_counts, transition_counts = _counts(labels, frames.lengths, n_states)
    # Jitter, because EM never separates two states that start with equal emissions and equal transitions.
    strong = emission.observation.emits == "symbols" and n_states >= MANY_STATES
    probabilities = _smoothed(transition_counts)
    probabilities = probabilities * jitter(probabilities.shape, generator, strong=strong).to(frames.x.device)
    if not has_final:
        probabilities = probabilities[:, :n_states]
    probabilities = probabilities / probabilities.sum(1, keepdim=True)
    final = probabilities[:, n_states].contiguous() if has_final else None
    parameters = Parameters(_smoothed(initial_counts), probabilities[:, :n_states].contiguous(), final, table)
    return restrict(parameters, topology)


@dataclass(frozen=True)
class _Frames:
    """All N frames of the batches, sequence after sequence.

    Attributes:
        x: encoded frames or symbols, ``(N, ...)``.
        past: frames before each frame, ``(N, p, D)``, or None.
        lengths: length of each sequence, ``(n,)``.
        known: state of each frame, ``(N,)``, -1 where unknown; None if no states are known.
    """

    x: Tensor
    past: Tensor | None
    lengths: Tensor
    known: Tensor | None

    @classmethod
    def from_batches(cls, batches: list[PackedBatch]) -> _Frames:
        pasts = [b.segments.packing.unpack(b.past) for b in batches if b.past is not None]
        known = [_known_state(b.segments.packing.unpack(b.states)) for b in batches if b.states is not None]
        return cls(
            torch.cat([b.segments.packing.unpack(b.x) for b in batches]),
            torch.cat(pasts) if pasts else None,
            torch.cat([b.segments.lengths for b in batches]),
            torch.cat(known) if known else None,
        )


def _known_state(states: Tensor) -> Tensor:
    """Return the known state of each frame, ``(N,)``, or -1 where it is unknown.

    ``states`` are such states already, or a mask of the possible ones, ``(N, K)``; one possible state is a known one.
    """
    if states.dim() == 1:
        return states
    return torch.where(states.sum(1) == 1, states.long().argmax(1), -1)


def _labels(
    emission: Emission, frames: _Frames, topology: Topology, tying: Tying, generator: torch.Generator
) -> Tensor:
    """Return a first guess of the state of each frame, ``(N,)``; a known state is kept."""
    k, known = len(tying.group), frames.known
    if topology.is_ordered:
        guess = _equal_parts(frames.lengths, k)
    elif known is not None and bool((known >= 0).any()):
        guess = _most_probable(emission, frames, known, tying, generator)
    elif tying.is_free:
        guess = emission.labels(frames.x, k, generator)
    else:
        guess = _state_of_group(emission.labels(frames.x, tying.n_groups, generator), tying, generator)
    return guess if known is None else torch.where(known >= 0, known, guess)


def _equal_parts(lengths: Tensor, n_states: int) -> Tensor:
    """Return a state for each frame, ``(N,)``, by cutting each sequence into K equal parts (a flat start, as in
    speech).
    """
    first = torch.repeat_interleave(lengths.cumsum(0) - lengths, lengths)
    time = torch.arange(int(lengths.sum()), device=lengths.device) - first
    return time * n_states // torch.repeat_interleave(lengths, lengths)


def _most_probable(
    emission: Emission, frames: _Frames, known: Tensor, tying: Tying, generator: torch.Generator
) -> Tensor:
    """Return for each frame the state whose emission, fitted to labelled frames, makes it most probable, ``(N,)``."""
    labelled, group = (known >= 0).nonzero()[:, 0], tying.group.to(known.device)
    past = None if frames.past is None else frames.past[labelled]
    distinct = emission.from_labels(frames.x[labelled], past, group[known[labelled]], tying.n_groups, generator)
    table, dtype = tying.spread(distinct), frames.x.dtype if frames.x.is_floating_point() else torch.float32
    parts = []
    for part in torch.arange(len(known), device=known.device).split(FRAMES_AT_ONCE):
        past = None if frames.past is None else frames.past[part]
        parts.append(emission.log_prob_by_state(table, frames.x[part], past, dtype).argmax(1))
    return torch.cat(parts)


def _state_of_group(groups: Tensor, tying: Tying, generator: torch.Generator) -> Tensor:
    """Return a state for each frame, ``(N,)``, drawn evenly from the states of the frame's group of tied states."""
    size = torch.bincount(tying.group)
    order, first = torch.argsort(tying.group, stable=True), size.cumsum(0) - size
    choice = torch.rand(len(groups), generator=generator, dtype=torch.float64)
    group = groups.cpu()
    return order[first[group] + (choice * size[group]).long()].to(groups.device)


def _counts(labels: Tensor, lengths: Tensor, n_states: int) -> tuple[Tensor, Tensor]:
    """Return counts of first states, ``(K,)``, and of what follows each state, ``(K, K + 1)``, in guessed paths.

    The last column counts ends. ``labels (N,)``: states of all frames, sequence after sequence; ``lengths (n,)``:
    number of frames of each sequence.
    """
    last = lengths.cumsum(0) - 1
    next_label = torch.full_like(labels, n_states)
    next_label[:-1] = labels[1:]
    next_label[last] = n_states
    pairs = labels * (n_states + 1) + next_label
    transition_counts = torch.bincount(pairs, minlength=n_states * (n_states + 1)).view(n_states, n_states + 1)
    initial_counts = torch.bincount(labels[last - lengths + 1], minlength=n_states)
    return initial_counts.double(), transition_counts.double()


def _smoothed(counts: Tensor) -> Tensor:
    """Return probabilities from counts along the last axis, none of them zero; a row without counts becomes uniform."""
    total = counts.sum(-1, keepdim=True)
    even = torch.full_like(counts, 1 / counts.shape[-1])
    return torch.where(total > 0, (1 - SMOOTHING) * counts / total + SMOOTHING * even, even)
