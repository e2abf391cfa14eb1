"""The probability of a text summed over its tokenisations: ``p(text) = Σ_z Π_i p(z_i | z_1 .. z_i-1)``.

A tokenisation ``z`` is a sequence of symbols (byte pairs, characters) that spells the text. The sum is computed by a
beam that moves over the bytes of the text.
"""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch

from seqmodels.common.display import a_or_an
from seqmodels.encodings.raw_data import Data
from seqmodels.encodings.text import Text
from seqmodels.generation.cursor import Cursor, CursorState, MergedStates, start_after
from seqmodels.generation.inputs import GenerativeModel, with_enough_precision

# Merges histories, given their log-weights and states, so that ``Σ_i w_i p(future | state_i)`` does not change.
MergeStates = Callable[[list[float], list[CursorState]], MergedStates]
PruningName = Literal["best", "drawn"]


def log_prob_marginal(
    model: GenerativeModel, X: Any, y: Any, *, beam: int | None, pruning: PruningName, random_state: int
) -> np.ndarray:
    """Return the log-probability of each of n texts summed over its tokenizations, in nats, ``(n,)``.

    A tokenisation is a sequence of symbols that spells the text. The result is a lower bound or an unbiased estimate
    unless all tokenizations are summed.

    Args:
        model: the fitted model of text.
        X: the texts or, for a model of p(y | x), the sources.
        y: the texts, for a model of p(y | x); else None.
        beam: number of partial tokenizations that are continued from each byte, besides the encoding's own; None
            continues all.
        pruning: ``"best"`` continues the most probable ones, ``"drawn"`` draws them for an unbiased estimate.
        random_state: seed of the draws.

    Raises:
        ValueError: if ``beam`` or ``pruning`` is out of its range, or if the model is a tagger.
    """
    _check_arguments(model, beam, pruning)
    canonical = model.log_prob(X, y)
    if model.measure_.kind == "exact":
        return canonical
    encoding = model.encoding_
    assert isinstance(encoding, Text), "only text has several tokenisations"
    marginal = [
        log_prob_over_tokenisations(
            with_enough_precision(model, example.source).cursor(),
            model._merge_states,
            Lattice.from_spelling(example.values[example.n_past :], encoding.spelling()),
            _pruning(pruning, random_state, example.values),
            beam,
            has_end=model.length_ == "stop",
            source=example.source,
            past=example.values[: example.n_past],
        )
        for example in model._setting().examples(Data.of(X, y))
    ]
    return np.asarray(np.maximum(canonical, marginal))  # the cursor may round lower than the evaluation in batches


def _check_arguments(model: GenerativeModel, beam: int | None, pruning: str) -> None:
    if beam is not None and beam < 1:
        raise ValueError(f"beam is {beam}; pass at least 1, or None for all spellings")
    if pruning not in ("best", "drawn"):
        raise ValueError(f"pruning is {pruning!r}; pass 'best' or 'drawn'")
    if model._is_tagger:
        raise ValueError(
            f"the targets of {a_or_an(type(model))} have a piece for each step of their source, so other spellings "
            "are other targets; use log_prob"
        )


def _pruning(name: PruningName, random_state: int, steps: np.ndarray) -> Pruning:
    if name == "best":
        return KeepBest()
    return UnbiasedResampling(np.random.default_rng([random_state, zlib.crc32(steps.tobytes())]))


@dataclass(frozen=True)
class Lattice:
    """All symbols that can occur in a text of N bytes, ordered by the byte at which they begin.

    Every path from the first byte to the end of the text is a tokenisation.

    Args:
        edges: for each byte, the pairs ``(symbol, end)`` of all symbols whose spelling matches the text from that byte
            to before byte ``end``.
        canonical: the tokenisation that the encoding itself makes: its symbols by the byte at which they begin.
    """

    edges: list[list[tuple[int, int]]]
    canonical: dict[int, int]

    @classmethod
    def from_spelling(cls, canonical: np.ndarray, spelling: Sequence[bytes]) -> Lattice:
        """Return the lattice of a text: all symbols that can occur at each of its bytes.

        Args:
            canonical: symbols of the encoding's own tokenisation of the text.
            spelling: bytes of each symbol.
        """
        parts = [spelling[symbol] for symbol in canonical.tolist()]
        begins = np.cumsum([0, *map(len, parts)])[:-1].tolist()
        symbols: dict[bytes, list[int]] = {}
        for symbol, part in enumerate(spelling):
            symbols.setdefault(part, []).append(symbol)
        text, longest = b"".join(parts), max(map(len, spelling))
        edges = [
            [(s, end) for end in range(at + 1, min(at + longest, len(text)) + 1) for s in symbols.get(text[at:end], ())]
            for at in range(len(text))
        ]
        return cls(edges, dict(zip(begins, canonical.tolist(), strict=True)))


@dataclass(frozen=True)
class Partial:
    """A partial tokenisation of a text, symbols that spell it up to some byte, or several of them merged.

    Args:
        log_weight: log-probability in nats; after resampling, that of all the partial tokenizations that this one
            represents.
        state: state of the cursor before ``symbol``, or after the last symbol if ``symbol`` is None.
        symbol: last symbol, if the cursor has not read it yet; else None.
        canonical: True if the beginning of the encoding's own tokenisation is among them.
    """

    log_weight: float
    state: CursorState
    symbol: int | None
    canonical: bool


class Pruning(ABC):
    """A rule that selects which partial tokenizations of a text are continued from a byte; to add one, define ``keep``.

    A partial tokenisation is a sequence of symbols that spells the text up to that byte. The beginning of the
    encoding's own (canonical) tokenisation is always continued.
    """

    @abstractmethod
    def keep(self, partials: list[Partial], n: int) -> list[Partial]:
        """Return at most ``n`` of the partial tokenizations, possibly with changed weights.

        Args:
            partials: partial tokenizations that end at the same byte.
            n: most of them that are returned.
        """

    def __call__(self, partials: list[Partial], beam: int | None) -> list[Partial]:
        """Return the canonical partial tokenisation and ``beam`` of the others; all of them if ``beam`` is None.

        Args:
            partials: partial tokenizations that end at the same byte.
            beam: number of others that are kept.
        """
        others = [partial for partial in partials if not partial.canonical]
        kept = others if beam is None or len(others) <= beam else self.keep(others, beam)
        return [partial for partial in partials if partial.canonical] + kept


class KeepBest(Pruning):
    """A pruning rule that keeps the most probable partial tokenizations, so that their sum is a lower bound."""

    def keep(self, partials: list[Partial], n: int) -> list[Partial]:
        return sorted(partials, key=lambda partial: partial.log_weight, reverse=True)[:n]


@dataclass
class UnbiasedResampling(Pruning):
    """A pruning rule that draws which partial tokenizations to keep, so that the sum is an unbiased estimate.

    For a threshold ``c``, partial tokenizations of weight ``c`` or more are kept unchanged; each of the others is kept
    with probability ``weight / c`` and then has weight ``c``. Fearnhead and Clifford (2003), *On-line inference for
    hidden Markov models via particle filters*.

    Args:
        rng: generator of the draws.
    """

    rng: np.random.Generator = field(default_factory=np.random.default_rng)

    def keep(self, partials: list[Partial], n: int) -> list[Partial]:
        ordered = sorted(partials, key=lambda partial: partial.log_weight, reverse=True)
        largest = ordered[0].log_weight
        weights = np.exp(np.array([partial.log_weight for partial in ordered]) - largest)
        tail = weights[::-1].cumsum()[::-1]  # (r,) of this one and those below
        n_kept = next(k for k in range(n) if weights[k] * (n - k) <= tail[k])
        threshold = tail[n_kept] / (n - n_kept)
        if threshold == 0:  # the others are so improbable that their weights underflow beside the largest
            return ordered[:n]
        positions = (self.rng.uniform() + np.arange(n - n_kept)) * threshold
        drawn = n_kept + np.searchsorted(weights[n_kept:].cumsum(), positions, side="right")
        log_weight = largest + float(np.log(threshold))
        resampled = [replace(ordered[min(i, len(ordered) - 1)], log_weight=log_weight) for i in drawn.tolist()]
        return ordered[:n_kept] + resampled


@torch.inference_mode()
def log_prob_over_tokenisations(
    cursor: Cursor,
    merge_states: MergeStates,
    lattice: Lattice,
    pruning: Pruning,
    beam: int | None,
    *,
    has_end: bool,
    source: np.ndarray | None = None,
    past: Sequence[Any] | np.ndarray = (),
) -> float:
    """Return the log-probability of a text in nats, summed over the tokenizations that a pruning rule keeps.

    A tokenisation is a sequence of symbols that spells the text; the encoding's own (canonical) one is always kept.
    Every tokenisation passes each byte at most once, so the beams are a set of tokenizations or, with resampling, give
    an unbiased estimate of the sum over all. The model reads a symbol only if the partial tokenisation that ends with
    it is kept, so the cost is ``beam`` steps of the model for each byte.

    Args:
        cursor: cursor over the lattice's symbols.
        merge_states: function that merges partial tokenizations whose futures are the same up to their weights.
        lattice: symbols that can occur in the text, by the byte at which they begin.
        pruning: rule that selects partial tokenizations.
        beam: number of partial tokenizations continued from each byte besides the canonical one; None continues all.
        has_end: True if the model predicts ends; the probability of the end is then included.
        source: encoded source of the text; None if there is none.
        past: symbols of the text that came before, in one tokenisation.
    """
    from scipy.special import logsumexp

    waiting: list[list[Partial]] = [[] for _ in range(len(lattice.edges) + 1)]
    waiting[0] = [Partial(0.0, start_after(cursor, source, past, 1), None, canonical=True)]
    for at, edges in enumerate(lattice.edges):
        for partial in _advanced(cursor, merge_states, pruning(waiting[at], beam)):
            log_probs = cursor.distribution(partial.state).log_probs()[0].cpu()
            for symbol, end in edges:
                log_weight = partial.log_weight + float(log_probs[symbol])
                if log_weight > -np.inf:
                    canonical = partial.canonical and lattice.canonical.get(at) == symbol
                    waiting[end].append(Partial(log_weight, partial.state, symbol, canonical))
        waiting[at] = []
    whole = waiting[-1]
    if has_end:
        whole = [_ended(cursor, partial) for partial in _advanced(cursor, merge_states, pruning(whole, beam))]
    return float(logsumexp([partial.log_weight for partial in whole])) if whole else -np.inf


def _advanced(cursor: Cursor, merge_states: MergeStates, partials: list[Partial]) -> list[Partial]:
    """Return the partial tokenizations after reading their last symbols, merged if their futures are the same.

    Args:
        cursor: cursor of the model.
        merge_states: function that merges those whose futures are the same up to their weights.
        partials: partial tokenizations that end at the same byte.
    """
    from scipy.special import logsumexp

    states = [
        partial.state if partial.symbol is None else cursor.advance(partial.state, torch.tensor([partial.symbol]))
        for partial in partials
    ]
    log_weights = [partial.log_weight for partial in partials]
    return [
        Partial(
            float(logsumexp([log_weights[i] for i in group])), state, None, any(partials[i].canonical for i in group)
        )
        for group, state in merge_states(log_weights, states)
    ]


def _ended(cursor: Cursor, partial: Partial) -> Partial:
    log_end = cursor.distribution(partial.state).log_end
    assert log_end is not None, "ends are events"
    return replace(partial, log_weight=partial.log_weight + float(log_end))
