"""From raw sequences to the encoded examples that models fit and score: checked, held out, encoded."""

from __future__ import annotations

import gc
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import repeat
from typing import Any, Literal, cast

import numpy as np

from seqmodels.common.display import listed
from seqmodels.encodings import Bytes, Encoding, Features, Standardize, Symbols
from seqmodels.observations import Observation
from seqmodels.sequences import Item, Kind, Sequences, as_sequences
from seqmodels.sequences.items import UNITS, n_units_of
from seqmodels.sequences.mapped import MappedArray, Summary, any_mapped, parts_of, write_steps
from seqmodels.sequences.measure import Length, Measure, Values, space_of
from seqmodels.sequences.sequences import symbols_of_all


@dataclass(slots=True)  # not frozen: that takes four times as long, and there may be millions
class Example:
    """One encoded sequence: ``values`` are scored, ``source`` is what they are conditioned on.

    ``log_det`` (the sum over its steps) and ``n_units`` turn a sum of encoded log-probabilities into nats per raw unit.
    ``states`` are hidden states that are known, for each step of the source and then the values, -1 where not.
    ``cluster`` is the number of the sequence's cluster among those it was encoded with; None: it names none.
    The first ``n_past`` steps of ``values`` are what came before the sequence: models read them as they read all steps
    before another, and whatever scores leaves them out (``without_past``). ``log_det`` and ``n_units`` are of the rest.
    """

    values: np.ndarray
    source: np.ndarray | None = None
    weight: float = 1.0
    log_det: float = 0.0
    n_units: int = 0
    states: np.ndarray | None = None
    cluster: int | None = None
    n_past: int = 0

    def alone(self) -> Example:
        """The sequence as one that begins where it does."""
        if not self.n_past:
            return self
        values: Any = self.values
        rest = OnDisk(values.encoding, values.item) if isinstance(values, OnDisk) else values[self.n_past :]
        return replace(self, values=cast(np.ndarray, rest), n_past=0)


def without_past(examples: Sequence[Example], steps: list[np.ndarray]) -> list[np.ndarray]:
    """What is known of the steps of each example, less what is of its past."""
    if not any(example.n_past for example in examples):
        return steps
    return [each[example.n_past :] for example, each in zip(examples, steps, strict=True)]


@dataclass(frozen=True)
class TargetLengths:
    """How long the targets of a fit were, in encoded steps: what bounds the search for another.

    Args:
        longest: steps of the longest target.
        ratio: steps of all targets over those of all sources; 0 where sources are not read.
    """

    longest: int
    ratio: float

    @classmethod
    def of(cls, examples: Sequence[Example]) -> TargetLengths:
        """Those of encoded pairs."""
        targets = [len(example.values) for example in examples]
        n_source = sum(len(example.source) for example in examples if example.source is not None)
        return cls(max(targets), sum(targets) / n_source if n_source else 0.0)

    def max_steps(self, n_source: int) -> int:
        """Most steps that are searched for a source: the longest seen, and besides what so long a source has mostly.

        >>> TargetLengths(longest=30, ratio=1.5).max_steps(10)
        45
        """
        return self.longest + math.ceil(self.ratio * n_source)


class OnDisk:
    """A sequence in a file, ``(T, D)`` or ``(T,)``, encoded a slice at a time; ``np.asarray`` reads it all.

    It stands for the array of its encoded steps wherever models read slices of one. With ``past``, in a file or not,
    the steps of that come first.
    """

    def __init__(self, encoding: Encoding, item: MappedArray, past: np.ndarray | None = None) -> None:
        self.encoding, self.item = encoding, item
        self.parts = [item] if past is None else [past, item]
        self.shape = (sum(map(len, self.parts)), *item.shape[1:])
        self.ndim = len(self.shape)

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def __getitem__(self, index: int | slice) -> np.ndarray:
        if not isinstance(index, slice):
            index = range(len(self))[index]
            return np.asarray(self[index : index + 1][0])
        start, stop, stride = index.indices(len(self))
        assert stride == 1, "steps are read as they follow each other"
        if len(self.parts) == 1:
            return self.encoding.encode(self.item.read(start, stop))
        read, first = [], 0
        for part in self.parts:
            a, b = max(0, start - first), max(0, min(stop - first, len(part)))
            read.append(part.read(a, b) if isinstance(part, MappedArray) else np.asarray(part[a:b]))
            first += len(part)
        return self.encoding.encode(np.concatenate(read))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self[:], dtype=dtype)

    def blocks(self) -> Iterator[np.ndarray]:
        """All steps in order, a block at a time."""
        return (self.encoding.encode(np.asarray(block)) for part in self.parts for _, block in parts_of(part))

    @cached_property
    def summary(self) -> Summary:
        """Extremes, moments and missing values of all raw steps, those of the past among them."""
        first, *rest = (part.summary if isinstance(part, MappedArray) else Summary.of(part) for part in self.parts)
        return first.with_(rest[0]) if rest else first

    @property
    def has_missing(self) -> bool:
        """Whether a value is NaN."""
        return self.summary.first_missing is not None

    @property
    def largest(self) -> float:
        """The largest magnitude of an encoded value of vectors that is not missing; 0 where there is none."""
        shift, scale = self.encoding.affine()
        with np.errstate(over="ignore"):
            ends = np.abs((np.stack([self.summary.lowest, self.summary.highest]) - shift) / scale)
        return float(np.nan_to_num(ends, nan=0.0, posinf=np.inf).max())

    def sum(self) -> np.ndarray:
        """``(D,)`` the sum of encoded frames, of what is not missing."""
        shift, scale = self.encoding.affine()
        summary = self.summary
        return np.asarray((summary.n - summary.n_missing) * (summary.mean - shift) / scale)

    def log_det(self) -> float:
        """The log-determinant of the whole sequence, nats, less that of its past."""
        if self.ndim == 2 and self.item.summary.first_missing is None:
            return len(self.item) * float(np.sum(self.encoding.log_det(self.item.read(0, 1))))
        return sum(float(np.sum(part)) for _, part in self.log_dets())

    def log_dets(self) -> Iterator[tuple[int, np.ndarray]]:
        """The log-determinant of each step after the past, nats, by blocks, each after the number of its first step."""
        if self.encoding.reads == "text":
            return
        for t, part in self.item.blocks():
            yield t, np.broadcast_to(self.encoding.log_det(part), len(part))


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Put off the search for cycles while very many objects are made: it looks at all of them again and again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@dataclass(frozen=True)
class Data:
    """Sequences ``X``, targets ``y`` if there are any, a weight for each sequence, and known hidden states."""

    X: Sequences
    y: Sequences | None
    weights: np.ndarray
    states: list[np.ndarray | None] | None = None

    @classmethod
    def of(cls, X: Any, y: Any = None, weights: Any = None, states: Any = None) -> Data:
        """Check that sequences, targets and weights belong together."""
        x, target = as_sequences(X), None if y is None else as_sequences(y)
        if target is not None and len(target) != len(x):
            raise ValueError(f"there are {len(x)} sequences in X but {len(target)} in y; pass one target for each")
        try:
            w = np.ones(len(x)) if weights is None else np.asarray(weights, dtype=np.float64)
        except (ValueError, TypeError):
            w = np.empty(0)
        if w.shape != (len(x),) or not (np.isfinite(w).all() and (w >= 0).all() and 0 < _sum(w) < np.inf):
            raise ValueError(f"sample_weight must be {len(x)} finite numbers, none negative and not all zero")
        if not (states is None or isinstance(states, Iterable)):
            raise ValueError(f"states is {states!r}; pass an array of integers for each sequence, or None")
        known = None if states is None else [None if s is None else np.asarray(s) for s in states]
        if known is not None and len(known) != len(x):
            raise ValueError(f"there are {len(x)} sequences but {len(known)} arrays of states; pass one each, or None")
        return cls(x, target, w, known)

    @property
    def scored(self) -> Sequences:
        """The sequences whose probability is computed: the targets, if there are any."""
        return self.X if self.y is None else self.y

    def take(self, mask: np.ndarray) -> Data:
        """The part where ``mask`` is true."""
        states = None if self.states is None else [s for s, taken in zip(self.states, mask, strict=True) if taken]
        return Data(self.X.take(mask), None if self.y is None else self.y.take(mask), self.weights[mask], states)

    @property
    def has_past(self) -> bool:
        """Whether of a sequence or its source it is known what came before it."""
        return self.X.past is not None or self.scored.past is not None

    def refuse_past(self, what: str) -> None:
        """Raise ``ValueError`` for sequences that have a past, of which ``what`` knows nothing."""
        if self.has_past:
            raise ValueError(
                f"{what} reads whole sequences, but some of these have a past; pass X.without_past(), which takes each "
                "for one that begins where it does"
            )

    def without_past(self) -> Data:
        """Each sequence as one that begins where it does."""
        if not self.has_past:
            return self
        return replace(self, X=self.X.without_past(), y=None if self.y is None else self.y.without_past())


def _sum(weights: np.ndarray) -> float:
    with np.errstate(over="ignore"):
        return float(weights.sum())


# How sources are read: by an encoding of their own; by that of the targets; or not at all.
Sources = Encoding | Literal["shared", "ignored"]

# Units: more would be taken from training, and scored at each evaluation, than early stopping needs.
MAX_HELD_OUT = 10_000

# With fewer, what is left to train on would be half of the clusters or less.
MIN_CLUSTERS_TO_HOLD_OUT = 3


def hold_out(data: Data, validation: Any, automatic: bool, random_state: int) -> tuple[Data, Data | None]:
    """The training and the validation part. Only held-out sequences keep their past: none is read to fit.

    ``"auto"`` holds out a tenth of the sequences, or of a single one its head; ``MAX_HELD_OUT`` units at most. Where
    the sequences have three clusters or more, it is whole clusters: one at least, about a tenth of the units together.
    """
    if validation is None or (isinstance(validation, str) and validation == "auto" and not automatic):
        return data, None
    if isinstance(validation, str):
        if validation != "auto":
            raise ValueError(f"validation is {validation!r}; pass 'auto', None, or sequences to hold out")
        return _hold_out_tenth(data, random_state)
    if data.y is None:
        return data, Data.of(validation)
    if not (isinstance(validation, tuple) and len(validation) == 2):
        raise ValueError("the model is fitted with y, so validation is a pair (X, y)")
    return data, Data.of(*validation)


def _hold_out_tenth(data: Data, random_state: int) -> tuple[Data, Data | None]:
    n = len(data.X)
    clusters = cluster_numbers(data)
    if clusters is not None and clusters.max() + 1 >= MIN_CLUSTERS_TO_HOLD_OUT:
        mask = _clusters_to_hold_out(clusters, data.scored.n_units, random_state)
        return data.take(~mask), data.take(mask)
    if n > 1:
        order = np.random.default_rng(random_state).permutation(n)[: max(1, n // 10)]
        n_units_before = np.cumsum(data.scored.n_units[order]) - data.scored.n_units[order]
        mask = np.zeros(n, dtype=bool)
        mask[order[n_units_before < MAX_HELD_OUT]] = True
        return data.take(~mask), data.take(mask)
    length = len(data.X.items[0])
    if data.y is not None or length < 20:
        return data, None
    at = min(MAX_HELD_OUT, max(1, length // 10))
    # The head: of a text or a recording the end is nearest to what comes after, and would be missed most.
    # It is scored as a sequence that begins there, as training sequences are; what came before the series it keeps.
    head, rest = data.X.segments([(0, 0, at)], past=None), data.X.segments([(0, at, length)])
    return Data(rest, None, data.weights), Data.of(head)


def cluster_numbers(data: Data) -> np.ndarray | None:
    """``(n,)`` the number of each sequence's cluster (of the targets, else of the sources), from 0; None: no clusters.

    A sequence that names none is a cluster of its own.
    """
    import pandas as pd

    clusters = data.scored.clusters or data.X.clusters
    if clusters is None:
        return None
    numbers = np.asarray(pd.factorize(np.asarray(pd.Series(clusters)))[0])
    unnamed = numbers < 0
    return np.where(unnamed, numbers.max() + np.cumsum(unnamed), numbers)


def _clusters_to_hold_out(clusters: np.ndarray, n_units: np.ndarray, random_state: int) -> np.ndarray:
    """``(n,)`` mask of whole clusters, drawn by seed.

    Each that is drawn is held out if that brings the held-out units nearer to a tenth of all, or to ``MAX_HELD_OUT``;
    the smallest cluster if none does.
    """
    sizes = np.bincount(clusters, n_units)
    target = min(MAX_HELD_OUT, sizes.sum() / 10)
    order = np.random.default_rng(random_state).permutation(len(sizes))
    held_out, total = [], 0.0
    for cluster in order:
        if abs(total + sizes[cluster] - target) < abs(total - target):
            held_out.append(cluster)
            total += sizes[cluster]
    return np.isin(clusters, held_out or [order[np.argmin(sizes[order])]])


@dataclass(frozen=True)
class Setting:
    """What is settled before any number is fitted: how data are encoded, how steps are emitted, what is measured."""

    encoding: Encoding
    observation: Observation
    measure: Measure
    source_encoding: Encoding | None = None  # of sources: ``encoding`` itself, one of their own, or they are not read

    @classmethod
    def learn(
        cls,
        data: Data,
        encoding: Encoding,
        observation: Observation,
        length: Length,
        sources: Sources = "shared",
        *,
        fitted: bool = False,
        alphabet: Data | None = None,
    ) -> Setting:
        """Fit the encodings, unless that of what is scored is ``fitted``, and say what will be measured.

        Encodings of symbols are fitted to ``alphabet``, if that is given: held-out sequences are among it, so that all
        models have one alphabet, whether they hold out some or not.
        """
        kind = data.scored.kind
        _check_reads("encoding", encoding, data.scored)
        emitted = "vectors" if kind == "vectors" else "symbols"
        if observation.emits != emitted:
            raise ValueError(f"the observation {observation!r} emits {observation.emits} but the sequences are {kind}")
        both = data.y is not None and sources == "shared"
        if not fitted:
            seen = data if alphabet is None or kind != "symbols" else alphabet
            encoding = fitted_to(encoding, _together(seen.X, seen.scored) if both else seen.scored)
        if emitted == "vectors":
            _check_values(encoding, observation)
        source_encoding = encoding if both else _fit_sources(data, sources, alphabet)
        return cls.from_fitted(
            encoding, observation, length, data.y is not None, source_encoding, grid=data.scored.grid
        )

    @classmethod
    def from_fitted(
        cls,
        encoding: Encoding,
        observation: Observation,
        length: Length,
        conditional: bool,
        source_encoding: Encoding | None = None,
        *,
        grid: tuple[float, ...] | None = None,
    ) -> Setting:
        """With encodings that are fitted already."""
        kind = encoding.reads
        space = space_of(encoding.values()) if kind == "vectors" else kind
        measure = Measure(space, UNITS[kind], length, encoding.exactness, conditional, grid)
        return cls(encoding, observation, measure, source_encoding)

    def check(self, data: Data, missing_is_summed_out: bool) -> None:
        """Raise ``ValueError``, naming sequence, position and way out, for data the model cannot read."""
        if None not in (self.measure.grid, data.scored.grid) and self.measure.grid != data.scored.grid:
            raise ValueError(
                f"the sequences are dithered over a grid of {data.scored.grid} but the model was fitted on "
                f"{self.measure.grid}; dither both by one grid: test.dithered(like=train) of the raw values, where "
                "train is dithered"
            )
        if data.y is None:
            return _check("X", data.X, self.encoding, missing_is_summed_out)
        self.check_sources(data.X, missing_is_summed_out)
        return _check("y", data.y, self.encoding, missing_is_summed_out)

    def check_sources(self, X: Sequences, missing_is_summed_out: bool) -> None:
        """The same for sources, if they are read."""
        if self.source_encoding is not None:
            separate = self.source_encoding is not self.encoding
            _check("X", X, self.source_encoding, missing_is_summed_out and not separate)

    def examples(self, data: Data, *, on_disk: bool = False) -> list[Example]:
        """Encoded sequences, after their past; ``on_disk``: those that are memory-mapped are left there.

        A past and what follows it are encoded apart, so that no symbol is of both.
        """
        encoding = self.source_encoding if data.y is not None else None
        sources = [None] * len(data.X) if encoding is None else encoding.encode_all(data.X)
        states = [None] * len(data.X) if data.states is None else data.states
        weights, n_units = data.weights.tolist(), data.scored.n_units.tolist()
        if self.encoding.has_log_det or any_mapped(data.scored):
            examples = [
                self._on_disk(item, source, n, w, known)
                if on_disk and isinstance(item, MappedArray) and self._reads_parts(item)
                else self._example(item, source, n, w, known)
                for item, source, n, w, known in zip(data.scored, sources, n_units, weights, states, strict=True)
            ]
        else:
            encoded = self.encoding.encode_all(data.scored)
            with no_garbage_collection():
                examples = list(map(Example, encoded, sources, weights, repeat(0.0), n_units, states))
        if data.scored.past is not None:
            each = zip(examples, data.scored, data.scored.past, strict=True)
            examples = [self._after_past(example, item, past) for example, item, past in each]
        if encoding is not None and data.X.past is not None:
            each = zip(examples, data.X, data.X.past, strict=True)
            examples = [
                example if past is None else replace(example, source=_encoded_after(encoding, past, item)[0])
                for example, item, past in each
            ]
        clusters = cluster_numbers(data)
        if clusters is None:
            return examples
        return [replace(example, cluster=int(k)) for example, k in zip(examples, clusters, strict=True)]

    def _after_past(self, example: Example, item: Item, past: Item | None) -> Example:
        """The encoded ``item`` after its encoded past."""
        if past is None:
            return example
        if isinstance(example.values, OnDisk):
            before = np.frombuffer(past.encode(), np.uint8) if isinstance(past, str) else past
            assert isinstance(item, MappedArray)
            values = cast(np.ndarray, OnDisk(self.encoding, item, before))
            return replace(example, values=values, n_past=len(before))
        values, n_past = _encoded_after(self.encoding, past, item)
        return replace(example, values=values, n_past=n_past)

    def _reads_parts(self, item: MappedArray) -> bool:
        """Whether the encoding of a part is that part of the encoding: of a text only where it is read as bytes."""
        return item.is_on_disk and (not item.is_text or isinstance(self.encoding, Bytes))

    def _on_disk(
        self, item: MappedArray, source: np.ndarray | None, n_units: int, weight: float, states: np.ndarray | None
    ) -> Example:
        values = OnDisk(self.encoding, item)
        return Example(cast(np.ndarray, values), source, weight, values.log_det(), n_units, states)

    def _example(
        self, item: Item, source: np.ndarray | None, n_units: int, weight: float, states: np.ndarray | None
    ) -> Example:
        values = self.encoding.encode(item)
        log_dets = self.encoding.log_det(item)
        log_det = 0.0
        if not isinstance(log_dets, float) or log_dets != 0.0:
            log_det = float(np.sum(np.broadcast_to(log_dets, len(values))))
        return Example(values, source, weight, log_det, n_units, states)

    def all_in_raw_units(self, sequences: Sequences, steps: list[np.ndarray]) -> list[np.ndarray]:
        """``in_raw_units`` of each."""
        if self.encoding.is_unit_wise and not self.encoding.has_log_det and not any_mapped(sequences):
            return steps
        past = [None] * len(sequences) if sequences.past is None else sequences.past
        return [self.in_raw_units(*each) for each in zip(sequences, steps, past, strict=True)]

    def in_raw_units(self, item: Item, steps: np.ndarray, past: Item | None = None) -> np.ndarray:
        """Encoded steps (and perhaps the end) of one sequence -> one log-probability a raw unit (and the end).

        ``past`` is what came before the sequence, of which there are no steps.
        """
        if isinstance(item, MappedArray) and self._reads_parts(item):  # a step a unit
            raw = steps if isinstance(steps, MappedArray) else steps.copy()
            for t, log_det in OnDisk(self.encoding, item).log_dets():
                write_steps(raw, t, np.asarray(raw[t : t + len(log_det)]) + log_det)
            return raw
        if self.encoding.is_unit_wise:
            of_steps = self.encoding.log_det(item)
            if isinstance(of_steps, float) and of_steps == 0.0:
                return steps
            n_units = len(item)
            return np.concatenate([steps[:n_units] + of_steps, steps[n_units:]])
        n_units = n_units_of(item)
        if past is None:
            encoded = self.encoding.encode(item)
            last_unit = self.encoding.last_unit(encoded)
        else:
            encoded, n_past = _encoded_after(self.encoding, past, item)
            last_unit = self.encoding.last_unit(encoded)[n_past:] - n_units_of(past)
        n_steps = len(last_unit)
        raw = np.zeros(n_units + len(steps) - n_steps)
        # Added up, since of symbols that spell no byte several have one last unit.
        np.add.at(raw, last_unit, steps[:n_steps] + self.encoding.log_det(item))
        raw[n_units:] = steps[n_steps:]
        return raw


def _encoded_after(encoding: Encoding, past: Item, item: Item) -> tuple[np.ndarray, int]:
    """A past and what follows it, encoded apart, and how many steps are of the past."""
    before = encoding.encode(past)
    return np.concatenate([before, encoding.encode_after(item)]), len(before)


def _check_reads(name: str, encoding: Encoding, sequences: Sequences) -> None:
    if encoding.reads != sequences.kind:
        raise ValueError(f"the {name} {encoding!r} reads {encoding.reads} but the sequences are {sequences.kind}")


def _fit_sources(data: Data, sources: Sources, alphabet: Data | None) -> Encoding | None:
    if data.y is None or not isinstance(sources, Encoding):
        return None
    _check_reads("source_encoding", sources, data.X)
    return fitted_to(sources, data.X if alphabet is None or data.X.kind != "symbols" else alphabet.X)


def fitted_to(encoding: Encoding, sequences: Sequences) -> Encoding:
    """A copy of an encoding, fitted; it knows the names of the features."""
    learned = encoding.clone().fit(sequences)
    if sequences.kind == "vectors":
        learned.names = sequences.features
    return learned


def _together(X: Sequences, y: Sequences) -> Sequences:
    """Sources and targets that one encoding reads; with names of features where they agree."""
    features = X.features if X.features == y.features else None
    return Sequences([*X, *y], symbols=symbols_of_all([X, y]), features=features)


def _check(what: str, sequences: Sequences, encoding: Encoding, missing_is_summed_out: bool) -> None:
    if sequences.kind != encoding.reads:
        raise ValueError(f"the model was fitted on {encoding.reads} but got {sequences.kind} as {what}")
    if sequences.kind == "vectors":
        _check_features(what, sequences.features, encoding.names)
    encoding.check_all(sequences)
    if sequences.kind == "vectors" and not missing_is_summed_out:
        for i, item in enumerate(sequences):
            _refuse_missing(what, i, cast(np.ndarray, item))
    for i, past in enumerate(sequences.past or []):
        if past is not None:
            _check_past(what, i, past, encoding, missing_is_summed_out)


def _check_past(what: str, i: int, past: Item, encoding: Encoding, missing_is_summed_out: bool) -> None:
    try:
        encoding.check(i, past)
        if encoding.reads == "vectors" and not missing_is_summed_out:
            _refuse_missing(what, i, cast(np.ndarray, past))
    except ValueError as error:
        raise ValueError(f"of the past: {error}") from None


def _check_features(what: str, names: tuple[str, ...] | None, fitted: tuple[str, ...] | None) -> None:
    """Raise ``ValueError`` for names of features other than those of the fit, or in another order."""
    if names is None or fitted is None or names == fitted:
        return
    if sorted(names) == sorted(fitted):
        raise ValueError(
            f"the features of {what} are {listed(names)} but the model was fitted on {listed(fitted)}, in this order; "
            "pass them in this order"
        )
    differing = [
        f"{words} {listed(names)}"
        for words, names in (
            ("lacks", [name for name in fitted if name not in names]),
            ("has the unknown", [name for name in names if name not in fitted]),
        )
        if names
    ]
    raise ValueError(
        f"{what} {' and '.join(differing)}: the model was fitted on the features {listed(fitted)}; pass these, or "
        "sequences whose features have no names"
    )


def _check_values(encoding: Encoding, observation: Observation) -> None:
    pairs = zip(encoding.values(), observation.values(encoding.size), strict=True)
    for feature, (encoded, emitted) in enumerate(pairs):
        if encoded != emitted:
            raise ValueError(
                f"the observation {observation!r} emits {emitted} at feature {feature} but the encoding {encoding!r} "
                f"gives {encoded}; leave encoding='auto'"
            )


def default_encoding(kind: Kind, values: tuple[Values, ...] = ()) -> Encoding:
    """What ``encoding="auto"`` means, for vectors by what the observation says of their features."""
    if kind == "vectors" and set(values) - {"reals"}:
        return Features(values[0] if len(set(values)) == 1 else list(values))
    if kind == "vectors":
        return Standardize()
    return Bytes() if kind == "text" else Symbols()


def choose_sources(
    data: Data,
    chosen: Encoding | Literal["auto"],
    like_targets: Encoding | None,
    default: Encoding,
    *,
    model: str,
    shared: bool,
) -> Sources:
    """How a ``model`` reads sources: by the encoding of targets, by one chosen, or by one like that of targets.

    Args:
        data: sources and targets.
        chosen: the encoding that the user chose for sources.
        like_targets: that of the targets, to be fitted to sources of the same kind; None: they are never alike.
        default: for sources of another kind.
        model: its name, for errors.
        shared: whether the model reads sources and targets by one encoding.

    Raises:
        ValueError: what cannot be shared; says what could be done instead.
    """
    if data.y is None:
        return "ignored"
    alike = (data.X.kind, data.X.n_features) == (data.y.kind, data.y.n_features)
    if shared and (chosen != "auto" or not alike):
        raise ValueError(
            f"X is {_in_words(data.X)} but y is {_in_words(data.y)}, and this {model} reads them alike, by one "
            "encoding: pass both of one kind and leave source_encoding='auto'; or take a model with an encoder of its "
            "own, such as LSTMSeq2Seq; or ignore_source=True, which gives p(y) as a baseline"
        )
    if shared:
        return "shared"
    if chosen != "auto":
        return chosen
    return like_targets if alike and like_targets is not None else default


def _in_words(sequences: Sequences) -> str:
    return f"{sequences.n_features}-dimensional vectors" if sequences.kind == "vectors" else sequences.kind


def _refuse_missing(what: str, i: int, frames: np.ndarray) -> None:
    if isinstance(frames, MappedArray) and frames.is_on_disk:
        first = frames.summary.first_missing
    else:
        missing = np.isnan(frames).any(axis=1)
        first = int(np.argmax(missing)) if missing.any() else None
    if first is not None:
        raise ValueError(
            f"sequence {i} of {what} has a NaN at frame {first}, and this model cannot sum out "
            "missing values; fill them in, leave the frames out, use an HMM with a GaussianMixture, or fit a network "
            "to data in which some are missing, so that it learns to read them"
        )
