"""Beam search for the most probable whole sequences of symbols."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from seqmodels.encodings.examples import Example
from seqmodels.encodings.raw_data import Data
from seqmodels.generation.cursor import Cursor, CursorState
from seqmodels.generation.inputs import (
    GenerativeModel,
    encode_prefix,
    encode_source,
    most_steps,
    n_new_steps,
    with_enough_precision,
)
from seqmodels.sequences import Item, Kind, Sequences

MOST_ALPHA = 10.0  # far above published values, which are about 0.6


@dataclass(frozen=True)
class BeamSearch:
    """The settings of a beam search, which looks for the most probable whole sequences.

    Args:
        width: number of partial sequences kept at each step (the beam).
        n_best: number of sequences returned.
        length: number of steps after the prefix; None searches sequences that end, after at most ``max_length`` steps.
        max_length: most steps after the prefix, if ``length`` is None.
        alpha: sequences of different lengths are compared by ``log_prob / ((5 + units) / 6)^alpha``, where units are
            the steps plus one for the end (Wu et al. 2016, *Google's neural machine translation system*, eq. 14). With
            0 the most probable sequence wins, which is often a short one; ``"mean"`` compares ``log_prob / units``.

    Raises:
        ValueError: if a number is out of its range.
    """

    width: int = 5
    n_best: int = 1
    length: int | None = None
    max_length: int = 1000
    alpha: float | Literal["mean"] = 0.0

    def __post_init__(self) -> None:
        if self.width < 1 or self.n_best < 1:
            raise ValueError(f"n_beams is {self.width} and n is {self.n_best}; pass at least 1 of each")
        if self.max_steps < 0:
            raise ValueError(f"sequences would have {self.max_steps} steps; pass a length of at least 1")
        if self.alpha != "mean" and not (isinstance(self.alpha, int | float) and 0 <= self.alpha <= MOST_ALPHA):
            raise ValueError(
                f"alpha is {self.alpha!r}; pass a number from 0 (no normalisation) to {MOST_ALPHA:g}, or 'mean'"
            )

    @property
    def max_steps(self) -> int:
        return self.max_length if self.length is None else self.length

    def score(self, log_prob: float, n_steps: int) -> float:
        """Return the number by which finished sequences are ranked; higher is better.

        Args:
            log_prob: log-probability of the sequence in nats.
            n_steps: number of its steps, without its end.
        """
        if self.alpha == "mean":
            return float(log_prob / (1 + n_steps))
        return float(log_prob / ((6 + n_steps) / 6) ** self.alpha)


# -- raw sequences ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Candidate:
    """A raw sequence found by a search, with its log-probability and its score.

    For a text that can be divided into symbols in several ways (byte pairs), the log-probability is of the one division
    that was found.

    Attributes:
        item: the raw sequence.
        log_prob: log-probability under the model, in nats.
        score: number by which candidates are ranked, the log-probability normalised by length; higher is better.
    """

    item: Item
    log_prob: float
    score: float


@dataclass(frozen=True)
class Request:
    """One search: the source whose most probable target is to be found, and how the target begins.

    Attributes:
        source: encoded source, ``(S,)`` symbols or ``(S, D)`` vectors; None if the model ignores sources.
        prefix: encoded symbols with which the target begins, ``(P,)``.
        length: number of steps after the prefix; None searches for targets of any length.
    """

    source: np.ndarray | None
    prefix: np.ndarray
    length: int | None

    @property
    def n_source(self) -> int:
        return 0 if self.source is None else len(self.source)

    def batch_key(self, *, pads: bool) -> tuple[bool, int, int]:
        """Return the values that requests must share to be searched in one batch.

        They are whether ``length`` is None, the length of the prefix, and the length of the source. With ``pads=True``
        the model pads sources, so they may differ in length and count as 0.
        """
        return self.length is None, len(self.prefix), 0 if pads else self.n_source


def n_best(
    model: GenerativeModel,
    n: int,
    *,
    prefix: Any,
    source: Any,
    n_beams: int | None,
    length: int | None,
    max_length: int | None,
    alpha: float | Literal["mean"],
) -> list[Candidate]:
    """Return the ``n`` most probable whole sequences that a beam search finds, best first.

    Args:
        model: the fitted model, of symbols or text.
        n: number of sequences.
        prefix: raw steps with which every sequence begins; None begins at the first step.
        source: raw source that the sequences are conditioned on, or None.
        n_beams: number of partial sequences kept at each step; None keeps n, but at least 5.
        length: number of encoded steps after the prefix; None searches sequences that end.
        max_length: most encoded steps after the prefix if ``length`` is None; None takes a bound learned in the fit.
        alpha: exponent of the length normalisation, or ``"mean"``; see ``BeamSearch``.

    Raises:
        ValueError: if an argument is out of its range, if the model is of vectors, or if no possible sequence begins
            with the prefix.
    """
    if n < 1:
        raise ValueError(f"n is {n}; pass at least 1")
    steps, encoded_source = encode_prefix(model, prefix), encode_source(model, source)
    _check_listable(model)
    length = n_new_steps(model, length, encoded_source, len(steps))
    n_steps = most_steps(model, max_length, 0 if encoded_source is None else len(encoded_source))
    search = BeamSearch(max(n, 5) if n_beams is None else n_beams, n, length, n_steps, alpha)
    cursor = with_enough_precision(model, encoded_source).cursor()
    hypotheses = beam_search(cursor, search, prefix=steps, source=encoded_source)
    _refuse_none(hypotheses)
    return _candidates(model, hypotheses, encoded_source, search)


def predict(
    model: GenerativeModel,
    X: Any,
    *,
    n_beams: int | None,
    n_best: int | None,
    prefix: Any,
    length: int | Sequence[int] | None,
    max_length: int | None,
    max_ratio: float,
    alpha: float | Literal["mean"],
    batch_size: int,
) -> list[Any]:
    """Return the most probable target of each source, or a list of candidates for each source.

    Args:
        model: the fitted model of p(y | x).
        X: raw sources.
        n_beams: number of partial sequences kept at each step; None keeps one, or finds the exact target if the model
            can.
        n_best: number of candidates for each source; None returns only the best raw target.
        prefix: raw beginning of every target, or a list with one for each.
        length: number of encoded steps after the prefix, for all targets or for each; None searches targets that end.
        max_length: most encoded steps of a target after the prefix; None takes a bound learned in the fit.
        max_ratio: number of additional steps allowed for each step of the source.
        alpha: exponent of the length normalisation, or ``"mean"``; see ``BeamSearch``.
        batch_size: most sources searched at once.

    Raises:
        ValueError: if an argument is out of its range, if the model was fitted without targets or is of vectors, or if
            no possible target begins with the prefix.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size is {batch_size}; pass at least 1")
    sources = Data.of(X).X
    if not model._setting().measure.conditional:
        raise ValueError(
            "the model was fitted without y, so there are no targets to predict; n_best(prefix=) continues a sequence, "
            "and the states of an HMM are decode(X), their probabilities posterior(X)"
        )
    requests = _requests(model, sources, prefix, length)
    if n_beams is None and n_best is None and not any(len(request.prefix) for request in requests):
        exact = model._most_probable_targets([request.source for request in requests])
        if exact is not None:
            return [model.encoding_.decode(steps) for steps in exact]
    width = max(n_best or 1, n_beams or 1)
    cursor = with_enough_precision(model, *(request.source for request in requests)).cursor()
    results: list[Any] = [None] * len(requests)
    for numbers in batches(requests, batch_size, pads=model._pads_sources):
        batch = [requests[i] for i in numbers]
        max_steps = [
            most_steps(model, max_length, r.n_source) + int(max_ratio * r.n_source) if r.length is None else r.length
            for r in batch
        ]
        search = BeamSearch(width, 1 if n_best is None else n_best, batch[0].length, min(max_steps), alpha)
        batch_hypotheses = beam_searches(
            cursor,
            search,
            prefixes=[request.prefix for request in batch],
            sources=[request.source for request in batch if request.source is not None] or None,
            max_steps=max_steps,
        )
        for i, hypotheses in zip(numbers, batch_hypotheses, strict=True):
            _refuse_none(hypotheses, f"source {i}: ")
            if n_best is None:
                results[i] = model.encoding_.decode(hypotheses[0].steps)
            else:
                results[i] = _candidates(model, hypotheses, requests[i].source, search)
    return results


def batches(requests: Sequence[Request], size: int, *, pads: bool) -> Iterator[list[int]]:
    """Yield batches of search requests as lists of at most ``size`` indices.

    The requests of a batch have prefixes of equal length, and sources of equal length or, if ``pads`` is True, of
    similar lengths.

    Args:
        requests: the searches, one for each source.
        size: most requests in a batch.
        pads: True if the model pads sources.

    Raises:
        ValueError: if ``size`` is below 1.
    """
    if size < 1:
        raise ValueError(f"batch_size is {size}; pass at least 1")
    keys = [request.batch_key(pads=pads) for request in requests]
    for key in sorted(set(keys)):
        numbers = sorted((i for i, each in enumerate(keys) if each == key), key=lambda i: requests[i].n_source)
        yield from (numbers[k : k + size] for k in range(0, len(numbers), size))


def _requests(
    model: GenerativeModel, sources: Sequences, prefix: Any, length: int | Sequence[int] | None
) -> list[Request]:
    lengths = [length] * len(sources) if length is None or isinstance(length, int | np.integer) else list(length)
    if len(lengths) != len(sources):
        raise ValueError(f"there are {len(sources)} sources but {len(lengths)} lengths; pass one for each")
    several = _is_several(prefix, model.encoding_.reads)
    prefixes = list(prefix) if several else [prefix] * len(sources)
    if len(prefixes) != len(sources):
        raise ValueError(f"there are {len(sources)} sources but {len(prefixes)} prefixes; pass one, or one for each")
    _check_listable(model)
    encoded_prefixes = [encode_prefix(model, item) for item in prefixes]
    encoded_sources = [encode_source(model, item) for item in sources]
    return [
        Request(source, encoded_prefix, n_new_steps(model, target_steps, source, len(encoded_prefix)))
        for source, encoded_prefix, target_steps in zip(encoded_sources, encoded_prefixes, lengths, strict=True)
    ]


def _is_several(prefix: Any, kind: Kind) -> bool:
    """Return True if ``prefix`` is a list of prefixes, one for each source, and not a single prefix.

    A single prefix of symbols may be a list too, of numbers or of strings.

    Args:
        prefix: the argument that the user passed.
        kind: kind of the targets, such as ``"text"``.
    """
    several = isinstance(prefix, list | tuple) and len(prefix) > 0
    is_text = kind == "text"
    return several and any(item is None or (is_text and isinstance(item, str)) or np.ndim(item) > 0 for item in prefix)


def _candidates(
    model: GenerativeModel, hypotheses: list[Hypothesis], source: np.ndarray | None, search: BeamSearch
) -> list[Candidate]:
    # Scored again in a batch, so that the values equal those of log_prob.
    steps_of_each = with_enough_precision(model, source)._steps([Example(h.steps, source) for h in hypotheses])
    log_probs = [float(log_prob_steps.sum()) for log_prob_steps in steps_of_each]
    return [
        Candidate(model.encoding_.decode(h.steps), log_prob, search.score(log_prob, len(h.steps)))
        for h, log_prob in zip(hypotheses, log_probs, strict=True)
    ]


def _check_listable(model: GenerativeModel) -> None:
    if model.encoding_.reads == "vectors":
        raise ValueError("a search cannot enumerate vectors, which have densities; draw from the model with sample()")


def _refuse_none(hypotheses: list[Hypothesis], where: str = "") -> None:
    if not hypotheses:
        raise ValueError(
            f"{where}no sequence that begins with the prefix is possible under the model; pass another prefix or length"
        )


# -- encoded steps ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Hypothesis:
    """A finished sequence that a beam search has found.

    Attributes:
        steps: its T encoded symbols, including the prefix, ``(T,)``.
        log_prob: log-probability in nats, including that of the end if the model predicts ends.
    """

    steps: np.ndarray
    log_prob: float


@dataclass(frozen=True)
class Beam:
    """The unfinished sequences of a beam search for several sources, grouped by source, best first within a source.

    Args:
        steps: the t symbols so far of each of r sequences, ``(r, t)``.
        log_prob: log-probability of each sequence in nats, ``(r,)`` float64.
        source: index of the source of each sequence, ascending, ``(r,)``.
        max_steps: most steps of each sequence, ``(r,)``.
        state: state of the model's cursor after these steps.
        has_end: True if the model predicts ends.
    """

    steps: Tensor
    log_prob: Tensor
    source: Tensor
    max_steps: Tensor
    state: CursorState
    has_end: bool

    def take(self, rows: Tensor) -> Beam:
        """Return the beam with only the unfinished sequences ``rows (m,)``; its ``state`` is kept unchanged.

        The caller must select the same rows of ``state``.
        """
        steps, log_prob, source = self.steps[rows], self.log_prob[rows], self.source[rows]
        return replace(self, steps=steps, log_prob=log_prob, source=source, max_steps=self.max_steps[rows])

    @property
    def is_full(self) -> Tensor:
        """A bool ``(r,)`` that is True for those of the r sequences that have reached their largest number of steps."""
        return self.max_steps == self.steps.shape[1]


def beam_search(
    cursor: Cursor, search: BeamSearch, *, prefix: np.ndarray, source: np.ndarray | None = None
) -> list[Hypothesis]:
    """Return the most probable finished sequences for one source, or without a source, best first.

    Args:
        cursor: cursor of the model.
        search: settings, such as the width and the number of sequences.
        prefix: encoded symbols with which the sequences begin, ``(P,)``.
        source: encoded source; None for unconditional sequences.
    """
    return beam_searches(cursor, search, prefixes=[prefix], sources=None if source is None else [source])[0]


@torch.inference_mode()
def beam_searches(
    cursor: Cursor,
    search: BeamSearch,
    *,
    prefixes: Sequence[np.ndarray],
    sources: list[np.ndarray] | None = None,
    max_steps: Sequence[int] | None = None,
) -> list[list[Hypothesis]]:
    """Return, for each source, the most probable finished sequences of symbols that a beam search finds, best first.

    There are at most ``search.n_best`` for each. At each step the ``width`` most probable extensions of each source are
    kept; a sequence that ends leaves the beam. If the model predicts ends, a sequence includes its end, whose
    probability counts even where ``length`` or ``max_length`` forces it. The search for a source stops when nothing in
    its beam can become better than the finished sequences. Width 1 is a greedy search; a width that holds all partial
    sequences is exhaustive.

    Args:
        cursor: cursor of the model.
        search: settings.
        prefixes: encoded symbols with which the sequences of each source begin, each ``(P,)``.
        sources: encoded sources, of one length unless the model pads sources; None for unconditional sequences.
        max_steps: most steps after the prefix for each source, or their exact number if ``search.length`` is set; None
            means ``search.max_steps`` for all.

    Raises:
        ValueError: if sequences would have no step.
    """
    n_new = [search.max_steps] * len(prefixes) if max_steps is None else max_steps
    limits = [len(prefixes[0]) + n for n in n_new]
    if min(limits) < 1:
        raise ValueError(f"sequences would have {min(limits)} steps; pass a length of at least 1")
    finished: list[list[Hypothesis]] = [[] for _ in prefixes]
    beam = _initial_beam(cursor, torch.as_tensor(np.stack(prefixes)), sources, torch.tensor(limits))
    while not bool(beam.is_full.all()):
        beam = _extend(cursor, beam, search, finished)
    if len(beam.source):
        # A tagger has no prediction after its last step, so the cursor is asked for one only where there are ends.
        _finish_full(beam, cursor.distribution(beam.state).log_end if beam.has_end else None, finished)
    return [_best(each, search) for each in finished]


def _best(finished: list[Hypothesis], search: BeamSearch) -> list[Hypothesis]:
    return sorted(finished, key=lambda h: search.score(h.log_prob, len(h.steps)), reverse=True)[: search.n_best]


def _initial_beam(cursor: Cursor, prefixes: Tensor, sources: list[np.ndarray] | None, max_steps: Tensor) -> Beam:
    """Return the beam with which a search begins: one unfinished sequence for each of m sources, its prefix.

    Args:
        cursor: cursor of the model.
        prefixes: encoded symbols with which the sequence of each source begins, ``(m, P)``.
        sources: encoded sources, or None.
        max_steps: most steps of each sequence, ``(m,)``.
    """
    n, has_end = len(prefixes), False
    state, log_prob = cursor.start(sources, n), torch.zeros(n, dtype=torch.float64)
    for symbols in prefixes.unbind(1):
        prediction = cursor.distribution(state)
        log_prob = log_prob + prediction.log_prob(symbols.to(prediction.output_parameters.device)).double().cpu()
        state, has_end = cursor.advance(state, symbols), prediction.log_end is not None
    return Beam(prefixes, log_prob, torch.arange(n), max_steps, state, has_end)


def _extend(cursor: Cursor, beam: Beam, search: BeamSearch, finished: list[list[Hypothesis]]) -> Beam:
    """Return the beam after one more symbol, and append the sequences that end instead to ``finished``.

    The end and all symbols share one distribution, even while the sequence may not end yet.

    Args:
        cursor: cursor of the model.
        beam: the unfinished sequences.
        search: settings of the search.
        finished: list of the finished sequences of each source, which is extended in place.
    """
    prediction = cursor.distribution(beam.state)
    n_symbols, device = prediction.output_parameters.shape[-1], prediction.output_parameters.device
    open_rows = _finish_full(beam, prediction.log_end, finished)
    log_probs = prediction.log_probs().cpu()[open_rows]  # (r, V), or (r, V + 1) with the end
    if search.length is not None:
        log_probs = log_probs[:, :n_symbols]
    parent, symbol, log_prob = _top_extensions(beam.take(open_rows), log_probs, search.width)
    parent, ends = open_rows[parent], symbol == n_symbols
    _collect(replace(beam.take(parent[ends]), log_prob=log_prob[ends]), finished)
    parent, symbol, log_prob = parent[~ends], symbol[~ends], log_prob[~ends]
    extended = replace(beam.take(parent), log_prob=log_prob, has_end=prediction.log_end is not None)
    is_open = ~_is_over(finished, extended, search)
    parent, symbol, extended = parent[is_open], symbol[is_open], extended.take(is_open)
    extended = replace(extended, steps=torch.cat([extended.steps, symbol.unsqueeze(1)], dim=1), state=None)
    if not len(parent):
        return extended
    state = beam.state
    if not torch.equal(parent, torch.arange(len(beam.source))):  # a greedy search hardly ever reorders its state
        state = cursor.select(state, parent.to(device))
    return replace(extended, state=cursor.advance(state, symbol.to(device)))


def _top_extensions(beam: Beam, log_probs: Tensor, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the ``width`` most probable extensions of the sequences of each source by one symbol or the end.

    They are ordered by source, best first. Ties are broken by the better sequence, then by the lower symbol.

    Args:
        beam: r unfinished sequences.
        log_probs: log-probability of each of E next events (the symbols and possibly the end) after each sequence,
            ``(r, E)``.
        width: number of extensions for each source.

    Returns:
        rows: for each extension, the row of the sequence that is extended. events: the symbol, or the end. log_probs:
        log-probability of the extended sequence.
    """
    _, source_index, counts = beam.source.unique_consecutive(return_inverse=True, return_counts=True)
    first_row = counts.cumsum(0) - counts  # (m,) of m sources, the row at which each begins
    n_events, rank = log_probs.shape[1], torch.arange(len(source_index)) - first_row[source_index]
    table = log_probs.new_full((len(counts), int(counts.max()), n_events), -torch.inf)
    table[source_index, rank] = beam.log_prob.unsqueeze(1) + log_probs
    table = table.flatten(1)
    index = table.topk(min(width, table.shape[1]), dim=1).indices.sort(dim=1).values
    log_prob, order = table.gather(1, index).sort(dim=1, descending=True, stable=True)
    index = index.gather(1, order)
    has_probability = log_prob > -torch.inf
    parent, symbol = first_row.unsqueeze(1) + index // n_events, index % n_events
    return parent[has_probability], symbol[has_probability], log_prob[has_probability]


def _finish_full(beam: Beam, log_end: Tensor | None, finished: list[list[Hypothesis]]) -> Tensor:
    """Append the sequences of a beam that have reached their most steps to ``finished``; return the other rows.

    Sequences whose log-probability is -inf are dropped.

    Args:
        beam: r unfinished sequences.
        log_end: log-probability that each ends here, ``(r,)``, which is added to its own; None if the model predicts no
            ends.
        finished: list of the finished sequences of each source, which is extended in place.
    """
    is_full = beam.is_full
    log_prob = beam.log_prob if log_end is None else beam.log_prob + log_end.double().cpu()
    ended = is_full & (log_prob > -torch.inf)
    _collect(replace(beam.take(ended), log_prob=log_prob[ended]), finished)
    return (~is_full).nonzero()[:, 0]


def _collect(ended: Beam, finished: list[list[Hypothesis]]) -> None:
    hypotheses = zip(ended.source.tolist(), ended.steps.numpy(), ended.log_prob.tolist(), strict=True)
    for source, steps, log_prob in hypotheses:
        finished[source].append(Hypothesis(steps, log_prob))


def _is_over(finished: list[list[Hypothesis]], beam: Beam, search: BeamSearch) -> Tensor:
    """Return for each of the r sequences of a beam whether the search for its source is over, bool ``(r,)``.

    It is over if no unfinished sequence can still be among the best.

    Args:
        finished: the finished sequences of each source.
        beam: the unfinished sequences.
        search: settings of the search.
    """
    over = torch.zeros(len(beam.source), dtype=torch.bool)
    sources, counts = beam.source.unique_consecutive(return_counts=True)
    for source, end, count in zip(sources.tolist(), counts.cumsum(0).tolist(), counts.tolist(), strict=True):
        if len(finished[source]) < search.n_best:
            continue
        scores = sorted((search.score(h.log_prob, len(h.steps)) for h in finished[source]), reverse=True)
        # An upper bound, because log-probabilities are not positive, and dividing by the most steps brings them
        # nearest to zero.
        bound = search.score(float(beam.log_prob[end - count]), int(beam.max_steps[end - count]))
        over[end - count : end] = scores[search.n_best - 1] >= bound
    return over
