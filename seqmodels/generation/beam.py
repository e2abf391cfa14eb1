"""Beam search on the cursor: the most probable whole sequences that a beam of ``width`` beginnings comes upon, for many sources at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from seqmodels.generation.cursor import Cursor, CursorState


@dataclass(frozen=True)
class Hypothesis:
    """A whole sequence of encoded ``steps (T,)``, prefix included; ``log_prob`` in nats, with the end where ends are events."""

    steps: np.ndarray
    log_prob: float


@dataclass(frozen=True)
class Search:
    """What is searched for, and how.

    Args:
        width: beginnings that are followed at once.
        n_best: how many sequences are wanted.
        length: number of steps; None: where ends are events, sequences of at most ``max_length`` steps.
        max_length: see ``length``.
        alpha: sequences of several lengths are compared by ``log_prob / ((5 + units) / 6)^alpha``, units being the steps and one for
            the end (Wu et al. 2016, *Google's neural machine translation system*, eq. 14). 0: the most probable wins, which is
            often a short one. ``"mean"``: by ``log_prob / units``.

    Raises:
        ValueError: a number out of its range.
    """

    width: int = 5
    n_best: int = 1
    length: int | None = None
    max_length: int = 1000
    alpha: float | Literal["mean"] = 0.0

    def __post_init__(self) -> None:
        if self.width < 1 or self.n_best < 1:
            raise ValueError(f"n_beams is {self.width} and n is {self.n_best}; pass at least 1 of each")
        if self.longest < 1:
            raise ValueError(f"sequences of {self.longest} steps are asked for; pass a length of at least 1")
        if self.alpha != "mean" and not (isinstance(self.alpha, int | float) and 0 <= self.alpha < float("inf")):
            raise ValueError(f"alpha is {self.alpha!r}; pass a finite number, 0 (no normalisation) or more, or 'mean'")

    @property
    def longest(self) -> int:
        """Most steps of a sequence."""
        return self.max_length if self.length is None else self.length

    def score(self, log_prob: float, n_steps: int) -> float:
        """What ranks a sequence; higher is better."""
        if self.alpha == "mean":
            return float(log_prob / (1 + n_steps))
        return float(log_prob / ((6 + n_steps) / 6) ** self.alpha)


@dataclass(frozen=True)
class Beam:
    """The beginnings that are alive, ``steps (r, t)``, their ``log_prob (r,)`` float64, whose they are and the cursor's state.

    ``owner (r,)``: number of the source, ascending: those of one source stand together, best first. ``longest (r,)``: most steps of
    its sequences. ``stops``: whether ends are events.
    """

    steps: Tensor
    log_prob: Tensor
    owner: Tensor
    longest: Tensor
    state: CursorState
    stops: bool

    def take(self, rows: Tensor) -> Beam:
        """These rows; the state is for the cursor to select."""
        steps, log_prob, owner = self.steps[rows], self.log_prob[rows], self.owner[rows]
        return replace(self, steps=steps, log_prob=log_prob, owner=owner, longest=self.longest[rows])

    @property
    def done(self) -> Tensor:
        """``(r,)`` whether this was the last step there may be."""
        return self.longest == self.steps.shape[1]


def beam_search(
    cursor: Cursor, search: Search, *, prefix: np.ndarray, source: np.ndarray | None = None
) -> list[Hypothesis]:
    """``beam_searches`` of one source, or of none."""
    return beam_searches(cursor, search, prefixes=[prefix], sources=None if source is None else [source])[0]


@torch.inference_mode()
def beam_searches(
    cursor: Cursor,
    search: Search,
    *,
    prefixes: Sequence[np.ndarray],
    sources: list[np.ndarray] | None = None,
    longest: Sequence[int] | None = None,
) -> list[list[Hypothesis]]:
    """For each source the best of the sequences of symbols found, best first; fewer than asked for if there are no more.

    At each step the most probable ways on are kept, ``width`` a source; one that ends leaves the beam. Where ends are events a sequence
    is whole with its end, and the probability of that end counts, also where ``length`` or ``max_length`` sets it. The search
    for a source stops when what is alive can no longer better what has ended. Width 1 is greedy; a width of all beginnings is exhaustive.

    Args:
        prefixes: with which each source's sequences begin, all of one length.
        sources: of one length, unless the cursor takes several; None: sequences are given nothing.
        longest: most steps of each source's sequences, under ``search.length`` their number; None: as ``search`` says, of all alike.

    Raises:
        ValueError: prefixes longer than the sequences.
    """
    n_prefix, limits = len(prefixes[0]), [search.longest] * len(prefixes) if longest is None else list(longest)
    if n_prefix > min(limits):
        raise ValueError(f"the prefix has {n_prefix} steps, the sequences at most {min(limits)}; raise the length")
    found: list[list[Hypothesis]] = [[] for _ in prefixes]
    beam = _first(cursor, torch.as_tensor(np.stack(prefixes)), sources, torch.tensor(limits))
    while not bool(beam.done.all()):
        beam = _extend(cursor, beam, search, found)
    if len(beam.owner):
        # Of the step after the last a tagger says nothing, so it is asked only if the end is one.
        _finish(beam, cursor.distribution(beam.state).log_end if beam.stops else None, found)
    return [_best(each, search) for each in found]


def _best(found: list[Hypothesis], search: Search) -> list[Hypothesis]:
    return sorted(found, key=lambda h: search.score(h.log_prob, len(h.steps)), reverse=True)[: search.n_best]


def _first(cursor: Cursor, prefixes: Tensor, sources: list[np.ndarray] | None, longest: Tensor) -> Beam:
    """One beginning a source: the prefix, with its own log-probability."""
    n, stops = len(prefixes), False
    state, log_prob = cursor.start(sources, n), torch.zeros(n, dtype=torch.float64)
    for symbols in prefixes.unbind(1):
        prediction = cursor.distribution(state)
        log_prob = log_prob + prediction.log_prob(symbols.to(prediction.output_parameters.device)).double().cpu()
        state, stops = cursor.advance(state, symbols), prediction.log_end is not None
    return Beam(prefixes, log_prob, torch.arange(n), longest, state, stops)


def _extend(cursor: Cursor, beam: Beam, search: Search, found: list[list[Hypothesis]]) -> Beam:
    """The most probable ways on; those that ended instead are ``found``. The end counts against going on even where it may not come."""
    prediction = cursor.distribution(beam.state)
    n_symbols, device = prediction.output_parameters.shape[-1], prediction.output_parameters.device
    rows = _finish(beam, prediction.log_end, found)
    log_probs = prediction.log_probs().cpu()[rows]  # (r, V), or (r, V + 1) with the end
    if search.length is not None:
        log_probs = log_probs[:, :n_symbols]
    parent, symbol, log_prob = _ways_on(beam.take(rows), log_probs, search.width)
    parent, ends = rows[parent], symbol == n_symbols
    _collect(replace(beam.take(parent[ends]), log_prob=log_prob[ends]), found)
    parent, symbol, log_prob = parent[~ends], symbol[~ends], log_prob[~ends]
    grown = replace(beam.take(parent), log_prob=log_prob, stops=prediction.log_end is not None)
    open_ = ~_settled(found, grown, search)
    parent, symbol, grown = parent[open_], symbol[open_], grown.take(open_)
    grown = replace(grown, steps=torch.cat([grown.steps, symbol.unsqueeze(1)], dim=1), state=None)
    if not len(parent):
        return grown
    state = beam.state
    if not torch.equal(parent, torch.arange(len(beam.owner))):  # a greedy search hardly ever needs to move its memory
        state = cursor.select(state, parent.to(device))
    return replace(grown, state=cursor.advance(state, symbol.to(device)))


def _ways_on(beam: Beam, log_probs: Tensor, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """Of each source the ``width`` most probable: the row that each comes from, its symbol, its log-probability.

    By source, best first; of equal ones those of better beginnings and lower symbols.
    """
    _, number, counts = beam.owner.unique_consecutive(return_inverse=True, return_counts=True)
    first = counts.cumsum(0) - counts  # (m,) of m sources, the row at which each begins
    n, rank = log_probs.shape[1], torch.arange(len(number)) - first[number]
    table = log_probs.new_full((len(counts), int(counts.max()), n), -torch.inf)
    table[number, rank] = beam.log_prob.unsqueeze(1) + log_probs
    table = table.flatten(1)
    place = table.topk(min(width, table.shape[1]), dim=1).indices.sort(dim=1).values
    log_prob, order = table.gather(1, place).sort(dim=1, descending=True, stable=True)
    place = place.gather(1, order)
    possible = log_prob > -torch.inf
    return (first.unsqueeze(1) + place // n)[possible], (place % n)[possible], log_prob[possible]


def _finish(beam: Beam, log_end: Tensor | None, found: list[list[Hypothesis]]) -> Tensor:
    """What has come to its last step ends there; the rows ``(m,)`` of the others."""
    done = beam.done
    log_prob = beam.log_prob if log_end is None else beam.log_prob + log_end.double().cpu()
    ended = done & (log_prob > -torch.inf)
    _collect(replace(beam.take(ended), log_prob=log_prob[ended]), found)
    return (~done).nonzero()[:, 0]


def _collect(ended: Beam, found: list[list[Hypothesis]]) -> None:
    for owner, steps, log_prob in zip(ended.owner.tolist(), ended.steps.numpy(), ended.log_prob.tolist(), strict=True):
        found[owner].append(Hypothesis(steps, log_prob))


def _settled(found: list[list[Hypothesis]], beam: Beam, search: Search) -> Tensor:
    """``(r,)`` whether nothing alive of the row's source can come to be among the best."""
    settled = torch.zeros(len(beam.owner), dtype=torch.bool)
    owners, counts = beam.owner.unique_consecutive(return_counts=True)
    for owner, end, count in zip(owners.tolist(), counts.cumsum(0).tolist(), counts.tolist(), strict=True):
        if len(found[owner]) < search.n_best:
            continue
        scores = sorted((search.score(h.log_prob, len(h.steps)) for h in found[owner]), reverse=True)
        # Log-probabilities are not positive: divided by the most they come nearest to zero.
        most = search.score(float(beam.log_prob[end - count]), int(beam.longest[end - count]))
        settled[end - count : end] = scores[search.n_best - 1] >= most
    return settled
