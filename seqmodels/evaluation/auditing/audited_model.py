"""``Subject``: the model that is audited, what its figures are claimed to measure, and the sequences that it scores."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch

from seqmodels.encodings import Grid, OpenSymbols
from seqmodels.encodings.examples import Example
from seqmodels.encodings.raw_data import Data
from seqmodels.encodings.text import Text
from seqmodels.evaluation.auditing.unconstrained import WHOLE
from seqmodels.generation import encode_source, sample_steps
from seqmodels.model import SequenceModel
from seqmodels.sequences import Sequences
from seqmodels.sequences.items import n_units_of
from seqmodels.sequences.measure import Measure, Values, space_of

VALUES: dict[str, Values] = {"R": "reals", "{0,1}": "bits", "N": "counts"}
MAX_LISTED_BITS = 8  # most features of bits whose values are all listed
MAX_LISTED_POINTS = 20_000  # most points of a grid that are listed
MAX_STEPS_AT_ONCE = 1 << 15  # most steps of the sequences that are scored in one call
LEAD_BYTES = (*range(128), *range(0xC2, 0xF5))  # bytes that a character of UTF-8 can begin with


class StepScorer(Protocol):
    """Protocol of the one method that an audited model must have, ``log_prob_steps``; every ``SequenceModel`` has it.

    A model of p(y | x) takes ``(X, y)``.
    """

    def log_prob_steps(self, X: Any) -> Sequence[Any]:
        """Return ``log p(x_t | x_<t)`` of each step of each sequence in nats, a list of ``(T,)`` arrays.

        The steps of a text are its bytes. If ends are events, the arrays are ``(T + 1,)``, and the last value belongs
        to the end.

        Args:
            X: the sequences, a list of texts, integer arrays ``(T,)`` or arrays ``(T, D)`` of D features.
        """


@runtime_checkable
class SequenceScorer(Protocol):
    """Protocol of a model that also returns the log-probability of whole sequences."""

    def log_prob(self, X: Any) -> Any:
        """Return the log-probability of each of n sequences in nats, shape ``(n,)``."""


@runtime_checkable
class MeanScorer(Protocol):
    """Protocol of a model that also has a mean score."""

    def score(self, X: Any) -> float:
        """Return ``Σ log p / Σ units`` over all sequences: the mean, in nats per frame, byte or symbol."""


@runtime_checkable
class SequenceSampler(Protocol):
    """Protocol of a model that sequences can be drawn from, with the arguments of ``SequenceModel.sample``."""

    def sample(self, n: int, *, length: int | None, prefix: Any, max_length: int, random_state: int) -> Sequence[Any]:
        """Draw ``n`` sequences that begin with a prefix and continue by the model's predictions.

        Args:
            n: number of sequences.
            length: number of steps after the prefix; None lets the sequences go on until their ends.
            prefix: steps that all sequences begin with; None means none.
            max_length: most steps after the prefix, if ``length`` is None.
            random_state: seed of the draws.
        """


@runtime_checkable
class Streamer(Protocol):
    """Protocol of a model that can read one sequence step by step, as ``SequenceModel.stream`` does."""

    def stream(self) -> Any:
        """Return an object whose method ``update(x_t)`` reads a step and returns its log p given the steps before.

        If ends are events, it also has ``log_end()``, the log-probability that the sequence ends there.
        """


@runtime_checkable
class Measured(Protocol):
    """Protocol of a model that says what its log-probabilities measure."""

    @property
    def measure_(self) -> Measure:
        """The measure of the log-probabilities: their space, unit, treatment of lengths, and whether they are exact."""


@dataclass(frozen=True)
class Case:
    """One sequence that an audit scores, cut to a length that the audit can afford.

    Attributes:
        item: the sequence: a text or an array.
        source: the source that it is the target of; None for p(x).
        name: name of the sequence, for messages.
    """

    item: Any
    source: Any = None
    name: str = ""

    def __len__(self) -> int:
        return len(self.item)


def joined(*parts: Any) -> Any:
    """Concatenate pieces of a sequence, which are all texts or all arrays."""
    return "".join(parts) if isinstance(parts[0], str) else np.concatenate(parts)


@dataclass
class Subject:
    """A model under audit with the sequences that it scores; its log-probabilities are called figures.

    Attributes:
        model: the model.
        measure: what its figures are claimed to measure: space, unit, length, kind.
        cases: the sequences, cut to a length that the audit can afford.
        outcomes: all values that a next step may have, if they can be listed: symbols, vectors of bits, or for text one
            character for each byte that a character can begin with; None if they cannot.
        has_all: True if ``outcomes`` are certainly all, so that their probabilities must not sum to less than one.
        never_empty: True if the end is known to have probability zero before the first step.
        is_tagger: True if targets are as long as their sources.
        tolerance: difference between figures that is taken for rounding, relative to the largest figure of the sequence
            and at least 1.
        n_scored: number of steps that were scored so far.
        not_finite: where the first figure stands that is NaN, +inf or a probability above one; empty if there is none.
        largest: the largest figure so far.
    """

    model: StepScorer
    measure: Measure
    cases: list[Case]
    outcomes: list[Any] | None
    has_all: bool
    never_empty: bool
    is_tagger: bool
    tolerance: float
    n_scored: int = field(default=0, init=False)
    not_finite: str = field(default="", init=False)
    largest: float = field(default=-np.inf, init=False)

    @property
    def values(self) -> tuple[Values, ...]:
        """Kind of the values of each feature (reals, bits, ...), from the model's encoding; empty for other data."""
        if isinstance(self.model, SequenceModel) and self.model.encoding_.reads == "vectors":
            of_encoding = self.model.encoding_.values()
            if space_of(of_encoding) == self.measure.space:
                return of_encoding
        parts = re.findall(r"(R|\{0,1\}|N)\^(\d+)", self.measure.space)
        return tuple(VALUES[name] for name, n in parts for _ in range(int(n)))

    @property
    def has_density(self) -> bool:
        """True if some feature has a density, so that log-probabilities may be above zero."""
        return any(each not in WHOLE for each in self.values)

    @property
    def ends(self) -> bool:
        """True if the end of a sequence is an event that is scored."""
        return self.measure.length == "stop"

    def score(self, cases: Sequence[Case]) -> list[np.ndarray]:
        """Score sequences in one call of the model; return log p of each unit in nats, an array ``(T,)`` for each.

        A unit is a frame, byte or symbol; if ends are scored, each array has one value more.

        Args:
            cases: the sequences.

        Raises:
            ValueError: the model returns another number of arrays.
        """
        items = [case.item for case in cases]
        model: Any = self.model
        scored = (
            model.log_prob_steps([c.source for c in cases], items)
            if self.measure.conditional
            else model.log_prob_steps(items)
        )
        steps = [np.asarray(each, dtype=np.float64) for each in scored]
        if len(steps) != len(cases):
            raise ValueError(f"log_prob_steps of {len(cases)} sequences gave figures of {len(steps)}")
        self.n_scored += sum(map(len, steps))
        self._look_at(steps, cases)
        return steps

    def alone(self, cases: Sequence[Case]) -> list[np.ndarray]:
        """Score each sequence in a call of its own; return log p of each unit in nats, an array ``(T,)`` for each.

        A unit is a frame, byte or symbol; if ends are scored, each array has one value more.

        Args:
            cases: the sequences.
        """
        return [self.score([case])[0] for case in cases]

    def log_prob(self, cases: Sequence[Case]) -> np.ndarray | None:
        """Return the model's ``log_prob`` of n sequences, in nats, ``(n,)``, or None if it has no such method.

        Args:
            cases: the sequences.
        """
        if not isinstance(self.model, SequenceScorer):
            return None
        items, model = [case.item for case in cases], self.model
        scorer: Any = model
        given = ([c.source for c in cases], items) if self.measure.conditional else (items,)
        return np.asarray(scorer.log_prob(*given), dtype=np.float64)

    def _look_at(self, steps: list[np.ndarray], cases: Sequence[Case]) -> None:
        """Update ``largest`` and ``not_finite`` with log-probabilities that the model has returned.

        Args:
            steps: log-probabilities of the steps of each sequence, ``(T,)`` each.
            cases: the sequences.
        """
        figures = np.concatenate(steps) if steps else np.zeros(0)
        highest = np.inf if self.has_density else self.tolerance
        self.largest = max(self.largest, float(np.nanmax(figures, initial=-np.inf)))
        wrong = np.isnan(figures) | (figures == np.inf) | (figures > highest)
        if wrong.any() and not self.not_finite:
            t, first = int(np.argmax(wrong)), np.cumsum([0, *map(len, steps)])
            i = int(np.searchsorted(first, t, side="right")) - 1
            self.not_finite = f"{cases[i].name}, step {t - first[i]} has log p = {figures[t]:.6g}"

    def with_step(self, case: Case, t: int, values: Sequence[Any], *, in_place: bool) -> list[Case]:
        """Return copies of a sequence, each with one of several values as step ``t``.

        Args:
            case: the sequence.
            t: index of the step.
            values: values of the step.
            in_place: whether the following steps stay; they always do if targets are as long as their sources.
                Otherwise the copies end after step t.
        """
        in_place = in_place or self.is_tagger
        rest = case.item[t + 1 :] if in_place else case.item[:0]
        if isinstance(case.item, str):
            return [replace(case, item=case.item[:t] + value + rest) for value in values]
        return [replace(case, item=np.concatenate([case.item[:t], value[None], rest])) for value in values]

    def figures(self, case: Case, t: int, values: Sequence[Any], *, in_place: bool = False) -> np.ndarray:
        """Return ``log p(x_t = value | x_<t)`` for each of n values in nats, shape ``(n,)``.

        Args:
            case: the sequence whose first t steps are given.
            t: the step whose value is replaced.
            values: n values of the step. The log-probability of a character is that of its first byte.
            in_place: whether the steps after t stay when the model scores the sequence; False cuts them off.

        Raises:
            ValueError: the model returns no log-probability for step t.
        """
        at = n_units_of(case.item[:t])
        size = max(1, MAX_STEPS_AT_ONCE // (len(case) if in_place or self.is_tagger else t + 1))
        parts = [values[i : i + size] for i in range(0, len(values), size)]
        scored = [self.score(self.with_step(case, t, part, in_place=in_place)) for part in parts]
        if any(len(each) <= at for part in scored for each in part):
            raise ValueError(f"log_prob_steps has no figure of step {t} of a sequence that has {t + 1}")
        return np.array([each[at] for part in scored for each in part])

    def log_end(self, case: Case, t: int) -> float:
        """Return ``log p(end | x_<t)`` in nats; -inf if ends are not scored, and at t = 0.

        Args:
            case: the sequence whose first t steps are given.
            t: number of these steps.
        """
        if not self.ends or t == 0:
            return -np.inf
        return float(self.score([replace(case, item=case.item[:t])])[0][-1])

    def draw(self, n: int, case: Case, t: int, seed: int, n_steps: int = 1) -> list[Any] | None:
        """Draw ``n`` sequences that begin with the first ``t`` steps of a given one and go on for at most ``n_steps``.

        Return None if the model has no ``sample`` method, if the sequence is a text, or if no sequence can go on from
        there.

        Args:
            n: number of draws.
            case: the given sequence.
            t: number of steps that are kept.
            seed: seed of the draws.
            n_steps: number of steps that are drawn.
        """
        if not isinstance(self.model, SequenceSampler) or isinstance(case.item, str):
            return None
        sampler: Any = self.model
        to = {"source": case.source} if self.measure.conditional else {}
        limit = {"max_length": n_steps} if self.ends else {"length": n_steps}
        if self.is_tagger:
            limit = {}
        prefix = case.item[:t] if t else None
        try:
            return list(sampler.sample(n, prefix=prefix, random_state=seed, **to, **limit))
        except ValueError:  # raised if no sequence can go on from here
            return None


def difference(steps: np.ndarray, expected: np.ndarray) -> tuple[float, int]:
    """Return the largest difference between two arrays of log-probabilities, and the index of the step that has it.

    The difference is relative to the largest of the expected values and at least 1. It is infinite if one value is -inf
    and the other is not, if one is NaN, or if the lengths differ.

    Args:
        steps: log-probabilities of T steps, ``(T,)``.
        expected: what they should be, ``(T,)``.
    """
    if len(steps) != len(expected):
        return np.inf, min(len(steps), len(expected))
    if not len(steps):
        return 0.0, 0
    size = np.abs(expected[np.isfinite(expected)]).max(initial=1.0)
    with np.errstate(invalid="ignore"):
        apart = np.where(steps == expected, 0.0, np.abs(steps - expected) / size)
    apart = np.where(np.isnan(apart), np.inf, apart)
    t = int(np.argmax(apart))
    return float(apart[t]), t


def figure_at(steps: np.ndarray, t: int) -> str:
    """Return the log-probability of one step as text, or ``"no figure"`` if there is none.

    Args:
        steps: log-probabilities of T steps, ``(T,)``.
        t: index of the step, which may lie beyond them.
    """
    return f"{steps[t]:.6g}" if t < len(steps) else "no figure"


# -- text and open alphabets by their encoded symbols ------------------------------------------------------------------


class EncodedModel:
    """A model of text or of an open alphabet, wrapped to score its encoded symbols, which can all be listed."""

    def __init__(self, model: SequenceModel) -> None:
        self._model = model

    def log_prob_steps(self, X: Any, y: Any = None) -> list[np.ndarray]:
        """Return the log-probability of each step of encoded sequences in nats, an array ``(T,)`` for each.

        Args:
            X: encoded sequences, integer arrays, or raw sources if ``y`` is given.
            y: encoded targets; None for a model of p(x).
        """
        if y is None:
            return self._model._steps([Example(np.asarray(x)) for x in X])
        sources = [encode_source(self._model, x) for x in X]
        return self._model._steps([Example(np.asarray(v), source) for v, source in zip(y, sources, strict=True)])

    def sample(
        self,
        n: int,
        *,
        length: int | None = None,
        prefix: Any = None,
        source: Any = None,
        max_length: int = 1000,
        random_state: int = 0,
    ) -> list[np.ndarray]:
        """Draw ``n`` sequences of encoded symbols, step by step, that begin with ``prefix``.

        Args:
            n: number of sequences.
            length: number of steps; None lets the sequences go on until their ends.
            prefix: encoded symbols that all sequences begin with; None means none.
            source: raw source, for a conditional model; None for others.
            max_length: most steps, if ``length`` is None.
            random_state: seed of the draws.
        """
        return sample_steps(
            self._model.cursor(),
            n,
            prefix=np.zeros(0, np.int64) if prefix is None else np.asarray(prefix),
            source=encode_source(self._model, source),
            length=length,
            max_length=max_length,
            generator=torch.Generator(self._model._device()).manual_seed(random_state),
        )


def is_encoded(model: StepScorer) -> bool:
    """Return True if an audit should list a model's encoded symbols, instead of raw values, as what a step may be.

    It is True for models of text and of open alphabets, unless the model does not predict steps.
    """
    return (
        isinstance(model, SequenceModel) and model._predicts_steps and isinstance(model.encoding_, Text | OpenSymbols)
    )


def encoded(subject: Subject) -> Subject:
    """Return a copy of an audit's subject (model and sequences) that scores encoded symbols, which can all be listed.

    Args:
        subject: the subject, whose model is of text or of an open alphabet.
    """
    model = subject.model
    assert isinstance(model, SequenceModel)
    encoding = model.encoding_
    measure = replace(subject.measure, space="symbols", unit="symbol", kind="exact")
    cases = [replace(case, item=encoding.encode(case.item)) for case in subject.cases]
    listed = list(np.arange(encoding.size))
    return Subject(EncodedModel(model), measure, cases, listed, True, True, subject.is_tagger, subject.tolerance)


# -- what is claimed ---------------------------------------------------------------------------------------------------


def subject_of(
    model: StepScorer,
    data: Data,
    measure: Measure | None,
    n_symbols: int | None,
    tolerance: float,
    chosen: Sequence[int],
    max_steps: int,
) -> Subject:
    """Return the subject of an audit: the model with the chosen sequences, cut to ``max_steps``.

    If the model does not say whether ends are scored, this is read off the number of log-probabilities of a sequence.

    Args:
        model: the model.
        data: the sequences, with targets if the model is conditional.
        measure: what the log-probabilities are claimed to be; None means ``measure_`` of the model, if it has one.
        n_symbols: size of the alphabet; None means unknown.
        tolerance: relative difference between log-probabilities that is taken for rounding.
        chosen: indices of the sequences.
        max_steps: most steps of a sequence.
    """
    is_tagger = isinstance(model, SequenceModel) and model._is_tagger
    name = "sequence" if data.y is None else "target"
    cases = [
        Case(
            _plain(data.scored.items[i])[:max_steps],
            None if data.y is None else (data.X.items[i][:max_steps] if is_tagger else data.X.items[i]),
            f"{name} {i}",
        )
        for i in chosen
    ]
    claimed = measure if measure is not None else model.measure_ if isinstance(model, Measured) else None
    subject = Subject(
        model,
        claimed or _measure_of(data, "given"),
        cases,
        None,
        has_all=False,
        never_empty=isinstance(model, SequenceModel),
        is_tagger=is_tagger,
        tolerance=tolerance,
    )
    if claimed is None and all(
        len(each) == n_units_of(c.item) + 1 for each, c in zip(subject.alone(cases), cases, strict=True)
    ):
        subject.measure = _measure_of(data, "stop")
    subject.outcomes, subject.has_all = _outcomes(model, subject, data.scored, n_symbols)
    return subject


def _plain(item: Any) -> Any:
    return item if isinstance(item, str) else np.asarray(item)


def _measure_of(data: Data, length: Any) -> Measure:
    scored = data.scored
    space = space_of(["reals"] * scored.n_features) if scored.kind == "vectors" else scored.kind
    return Measure(space, scored.unit, length, "exact", data.y is not None)


def _outcomes(
    model: StepScorer, subject: Subject, scored: Sequences, n_symbols: int | None
) -> tuple[list[Any] | None, bool]:
    """List the values that a next step may have; return them and whether they are surely all.

    The values are None if they cannot be listed.

    Args:
        model: the audited model.
        subject: the model with its sequences and measure.
        scored: all sequences that the user gave, from which values are read if the model does not name them.
        n_symbols: size of the alphabet according to the user; None if unknown.
    """
    if scored.kind == "text":  # not all, because bytes that form no text have a probability too and cannot be scored
        return [bytes([b]).decode() if b < 128 else _character(b) for b in LEAD_BYTES], False
    if scored.kind == "symbols":
        if isinstance(model, SequenceModel) and not isinstance(model.encoding_, OpenSymbols):
            names = model.encoding_.names
            return list(np.arange(model.encoding_.size) if names is None else np.array(names)), True
        if scored.symbols is not None:
            return list(np.array(scored.symbols)), False
        size = n_symbols or 1 + max(int(np.max(np.asarray(item))) for item in scored.items)
        return list(np.arange(size)), n_symbols is not None
    if set(subject.values) == {"bits"} and len(subject.values) <= MAX_LISTED_BITS:
        return list(np.array(list(product([0.0, 1.0], repeat=len(subject.values))))), True
    if subject.values == ("counts",):
        largest = max(int(np.nanmax(np.asarray(item), initial=0)) for item in scored.items)
        return list(np.arange(4.0 * largest + 200)[:, None]), False
    if subject.values == ("rounded",) and isinstance(model, SequenceModel) and isinstance(model.encoding_, Grid):
        points = _points_around(model.encoding_, scored)
        return (list(points[:, None]), False) if len(points) <= MAX_LISTED_POINTS else (None, False)
    return None, False


def _points_around(grid: Grid, scored: Sequences) -> np.ndarray:
    """Return the n grid points near the data, for one feature of rounded values, shape ``(n,)``.

    They reach beyond the data by twice their range and 200 points on either side. Points are left out if no possible
    value would be rounded to them.

    Args:
        grid: the encoding that rounds values, with the width and origin of its grid.
        scored: the data.
    """
    width, origin = (float(np.ravel(each)[0]) for each in (grid.width, grid.origin))
    ends = np.array([(np.nanmin(item), np.nanmax(item)) for item in map(np.asarray, scored.items)])
    low, high = np.rint((np.array([ends[:, 0].min(), ends[:, 1].max()]) - origin) / width)
    margin = 2 * (high - low) + 200
    points = origin + width * np.arange(low - margin, high + margin + 1)
    if grid.kind != "reals":
        points = points[points + width / 2 > 0]
    return points[points - width / 2 < 1] if grid.kind == "proportions" else points


def _character(lead: int) -> str:
    """Return the character with the lowest code point whose UTF-8 begins with the byte ``lead``."""
    n = 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
    second = 0x90 if lead in (0xE0, 0xF0) else 0x80
    if lead == 0xE0:
        second = 0xA0
    return bytes([lead, second, *[0x80] * (n - 2)]).decode()
