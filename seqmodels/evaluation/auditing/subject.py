"""``Subject``: the model that is audited, what it claims, and the sequences that it is asked about."""

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
MAX_LISTED_BITS = 8  # features of bits, of which all values are listed
MAX_LISTED_POINTS = 20_000  # of a grid
MAX_STEPS_AT_ONCE = 1 << 15  # of sequences that are scored in one call
LEAD_BYTES = (*range(128), *range(0xC2, 0xF5))  # that a character of UTF-8 can begin with


class StepScorer(Protocol):
    """All that an audit needs of a model: ``log p(x_t | x_<t)`` of every step, of every ``SequenceModel`` and of yours.

    A model of p(y | x) takes ``(X, y)``.
    """

    def log_prob_steps(self, X: Any) -> Sequence[Any]:
        """For each sequence ``(T,)`` nats of its steps (of text its bytes), or ``(T + 1,)``, the last the end."""


@runtime_checkable
class SequenceScorer(Protocol):
    """A model that says ``log p`` of whole sequences too."""

    def log_prob(self, X: Any) -> Any:
        """``(n,)`` nats, of each sequence."""


@runtime_checkable
class MeanScorer(Protocol):
    """A model with a score: nats per frame, byte or symbol."""

    def score(self, X: Any) -> float:
        """``Σ log p / Σ units``."""


@runtime_checkable
class SequenceSampler(Protocol):
    """A model that can be drawn from, with ``SequenceModel.sample``'s arguments."""

    def sample(self, n: int, *, length: int | None, prefix: Any, max_length: int, random_state: int) -> Sequence[Any]:
        """``n`` sequences that begin with ``prefix``: then ``length`` steps, or at most ``max_length`` to an end."""


@runtime_checkable
class Streamer(Protocol):
    """A model that reads one sequence step by step: see ``SequenceModel.stream``."""

    def stream(self) -> Any:
        """An object with ``update(x_t) -> log p(x_t | past)`` and, where ends are events, ``log_end()``."""


@runtime_checkable
class Measured(Protocol):
    """A model that says what its figures measure."""

    @property
    def measure_(self) -> Measure:
        """Space, unit, length and kind of the figures."""


@dataclass(frozen=True)
class Case:
    """One sequence, cut to a length that an audit can afford, its source, and what it is called."""

    item: Any
    source: Any = None
    name: str = ""

    def __len__(self) -> int:
        return len(self.item)


def joined(*parts: Any) -> Any:
    """Parts of sequences of one kind, one after the other."""
    return "".join(parts) if isinstance(parts[0], str) else np.concatenate(parts)


@dataclass
class Subject:
    """A model under audit.

    Attributes:
        model: what is asked for figures.
        measure: what it claims that they are.
        cases: heads of the sequences of X.
        outcomes: all values that a next step may have, where they can be listed: symbols, vectors of bits, or for text
            a character for each byte that a character can begin with.
        has_all: whether ``outcomes`` certainly are all, so that their probabilities must not sum to less than one.
        never_empty: whether the end is known to have probability zero before the first step.
        is_tagger: whether targets are as long as their sources.
        tolerance: difference of figures, relative to the largest of the sequence and at least 1, that is rounding.
        n_scored: steps that were scored so far.
        not_finite: of the first figure that is NaN, +inf or a probability above one, where it stands.
        largest: of all figures so far.
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
        """Of vectors what each feature may be, as the encoding says where there is one; empty for symbols and text."""
        if isinstance(self.model, SequenceModel) and self.model.encoding_.reads == "vectors":
            of_encoding = self.model.encoding_.values()
            if space_of(of_encoding) == self.measure.space:
                return of_encoding
        parts = re.findall(r"(R|\{0,1\}|N)\^(\d+)", self.measure.space)
        return tuple(VALUES[name] for name, n in parts for _ in range(int(n)))

    @property
    def has_density(self) -> bool:
        """Whether figures may be above zero."""
        return any(each not in WHOLE for each in self.values)

    @property
    def ends(self) -> bool:
        """Whether an end is an event."""
        return self.measure.length == "stop"

    def score(self, cases: Sequence[Case]) -> list[np.ndarray]:
        """Figures of all steps of these, asked for together."""
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
        """Figures of each of these, asked for by itself."""
        return [self.score([case])[0] for case in cases]

    def log_prob(self, cases: Sequence[Case]) -> np.ndarray | None:
        """``log_prob`` of these; None where the model has no such method."""
        if not isinstance(self.model, SequenceScorer):
            return None
        items, model = [case.item for case in cases], self.model
        scorer: Any = model
        given = ([c.source for c in cases], items) if self.measure.conditional else (items,)
        return np.asarray(scorer.log_prob(*given), dtype=np.float64)

    def _look_at(self, steps: list[np.ndarray], cases: Sequence[Case]) -> None:
        figures = np.concatenate(steps) if steps else np.zeros(0)
        highest = np.inf if self.has_density else self.tolerance
        self.largest = max(self.largest, float(np.nanmax(figures, initial=-np.inf)))
        wrong = np.isnan(figures) | (figures == np.inf) | (figures > highest)
        if wrong.any() and not self.not_finite:
            t, first = int(np.argmax(wrong)), np.cumsum([0, *map(len, steps)])
            i = int(np.searchsorted(first, t, side="right")) - 1
            self.not_finite = f"{cases[i].name}, step {t - first[i]} has log p = {figures[t]:.6g}"

    def with_step(self, case: Case, t: int, values: Sequence[Any], *, in_place: bool) -> list[Case]:
        """The case with each of these values at step t; ``in_place`` with what follows it, else ending there."""
        in_place = in_place or self.is_tagger
        rest = case.item[t + 1 :] if in_place else case.item[:0]
        if isinstance(case.item, str):
            return [replace(case, item=case.item[:t] + value + rest) for value in values]
        return [replace(case, item=np.concatenate([case.item[:t], value[None], rest])) for value in values]

    def figures(self, case: Case, t: int, values: Sequence[Any], *, in_place: bool = False) -> np.ndarray:
        """``log p(x_t = value | x_<t)`` of each of the values; of text of the first byte."""
        at = n_units_of(case.item[:t])
        size = max(1, MAX_STEPS_AT_ONCE // (len(case) if in_place or self.is_tagger else t + 1))
        parts = [values[i : i + size] for i in range(0, len(values), size)]
        scored = [self.score(self.with_step(case, t, part, in_place=in_place)) for part in parts]
        if any(len(each) <= at for part in scored for each in part):
            raise ValueError(f"log_prob_steps has no figure of step {t} of a sequence that has {t + 1}")
        return np.array([each[at] for part in scored for each in part])

    def log_end(self, case: Case, t: int) -> float:
        """``log p(end | x_<t)``; -inf where ends are no events, and before the first step."""
        if not self.ends or t == 0:
            return -np.inf
        return float(self.score([replace(case, item=case.item[:t])])[0][-1])

    def draw(self, n: int, case: Case, t: int, seed: int, n_steps: int = 1) -> list[Any] | None:
        """``n`` sequences that begin with the first t steps, drawn for ``n_steps`` more, or to their ends.

        None where the model has no ``sample``, or none goes on from there.
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
        except ValueError:  # nothing can follow here
            return None


def difference(steps: np.ndarray, expected: np.ndarray) -> tuple[float, int]:
    """How far figures are apart, relative to the largest of the expected and at least 1, and at which step most.

    Infinite where one is -inf and the other not, where one is NaN, or where there are not as many.
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
    """The figure of step t, or that there is none."""
    return f"{steps[t]:.6g}" if t < len(steps) else "no figure"


# -- text and open alphabets by their encoded symbols ------------------------------------------------------------------


class EncodedModel:
    """A model of text, or of an open alphabet, as one of the symbols that its encoding has: all can be listed."""

    def __init__(self, model: SequenceModel) -> None:
        self._model = model

    def log_prob_steps(self, X: Any, y: Any = None) -> list[np.ndarray]:
        """Of encoded steps; ``X`` are raw sources where ``y`` is given."""
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
        """``n`` encoded sequences drawn from the cursor; ``prefix`` is encoded, ``source`` raw."""
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
    """Whether the model's symbols are to be listed as its encoding has them: not where its members read apart."""
    return (
        isinstance(model, SequenceModel) and model._predicts_steps and isinstance(model.encoding_, Text | OpenSymbols)
    )


def encoded(subject: Subject) -> Subject:
    """The same subject, of encoded symbols."""
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
    """The model and heads of the ``chosen`` sequences; what the model does not say itself is taken from the figures."""
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
    """What a next step may be, and whether that certainly is all."""
    if scored.kind == "text":  # bytes that are no text have a probability too, but no text to score
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
    """``(n,)`` points of the grid of one feature, five times as far as the data and more, whose cells hold values."""
    width, origin = (float(np.ravel(each)[0]) for each in (grid.width, grid.origin))
    ends = np.array([(np.nanmin(item), np.nanmax(item)) for item in map(np.asarray, scored.items)])
    low, high = np.rint((np.array([ends[:, 0].min(), ends[:, 1].max()]) - origin) / width)
    margin = 2 * (high - low) + 200
    points = origin + width * np.arange(low - margin, high + margin + 1)
    if grid.kind != "reals":
        points = points[points + width / 2 > 0]
    return points[points - width / 2 < 1] if grid.kind == "proportions" else points


def _character(lead: int) -> str:
    n = 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
    second = 0x90 if lead in (0xE0, 0xF0) else 0x80
    if lead == 0xE0:
        second = 0xA0
    return bytes([lead, second, *[0x80] * (n - 2)]).decode()
