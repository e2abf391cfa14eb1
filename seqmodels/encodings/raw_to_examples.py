"""The setting of a fit: encodings, observation and measure; and the conversion of raw data to encoded examples."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import repeat
from typing import cast

import numpy as np

from seqmodels.common.display import listed
from seqmodels.encodings import Bytes, Encoding
from seqmodels.encodings.aligned_targets import check_aligned
from seqmodels.encodings.defaults import Choices, Sources
from seqmodels.encodings.examples import Example, no_garbage_collection
from seqmodels.encodings.inputs import InputScaling
from seqmodels.encodings.on_disk import OnDisk
from seqmodels.encodings.raw_data import Data
from seqmodels.encodings.series import SeriesEncoding
from seqmodels.observations import Observation
from seqmodels.sequences import Item, Sequences
from seqmodels.sequences.items import UNITS, n_units_of
from seqmodels.sequences.mapped import MappedArray, any_mapped, write_steps
from seqmodels.sequences.measure import Length, Measure, space_of
from seqmodels.sequences.sequences import items_of_both


@dataclass(frozen=True)
class Setting:
    """The parts of a model that are determined before its parameters: fitted encodings, observation and measure.

    Attributes:
        encoding: fitted encoding of the sequences that are scored.
        observation: distribution of an encoded step.
        measure: what the model's log-probabilities are about (space, unit, ends), which decides what is comparable.
        source_encoding: encoding of the sources that targets are predicted from, which may be ``encoding`` itself; None
            if sources are not read.
        inputs: standardisation of the inputs (covariates); None if none are read.
    """

    encoding: Encoding
    observation: Observation
    measure: Measure
    source_encoding: Encoding | None = None
    inputs: InputScaling | None = None

    @classmethod
    def learn(cls, data: Data, choices: Choices, *, alphabet: Data | None = None) -> Setting:
        """Return the fitted encodings, the observation and the measure of a fit; encodings are fitted to the data.

        Args:
            data: training data.
            choices: encodings, not yet fitted, observation and the like that the model's arguments mean for these data.
            alphabet: training and held-out data, to which encodings of symbols are fitted, so that all models have the
                same alphabet whether they hold out data or not; None takes ``data``.

        Raises:
            ValueError: if the encodings, the observation and the data do not go together.
        """
        encoding, observation, kind = choices.encoding, choices.observation, data.scored.kind
        _check_reads("encoding", encoding, data.scored)
        if observation.emits != encoding.emits:
            is_changed = kind == "vectors" and encoding.emits == "symbols"
            what = f"{encoding!r} makes {encoding.emits}" if is_changed else f"the sequences are {kind}"
            raise ValueError(f"the observation {observation!r} emits {observation.emits} but {what}")
        encoding.check_finite(
            (alphabet or data).scored
        )  # all of the data, so that sequences go by the caller's numbers
        if data.y is not None:
            _refuse_series_of_pairs(encoding, choices.sources)
        both = data.y is not None and choices.sources == "shared"
        if not choices.is_fitted:
            seen = data if alphabet is None or kind != "symbols" else alphabet
            encoding = fitted_to(encoding, items_of_both(seen.X, seen.scored) if both else seen.scored)
        if encoding.emits == "vectors":
            _check_values(encoding, observation)
            _check_past_steps(observation, data)
        source_encoding = encoding if both else _fit_sources(data, choices.sources, alphabet)
        return cls.from_fitted(
            encoding, observation, choices.length, data.y is not None, source_encoding, grid=data.scored.grid
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
        """Return the setting (encodings, observation and measure) of a model whose encodings are fitted already.

        Args:
            encoding: encoding of the sequences that are scored.
            observation: distribution of an encoded step.
            length: ``"stop"`` if the ends of sequences are events, else ``"given"``.
            conditional: True for a model of p(y | x).
            source_encoding: encoding of the sources x; None if they are not read.
            grid: for each feature of dithered vectors, the width of the added noise in raw units; None if values are
                not dithered.
        """
        kind = encoding.reads
        if kind == "vectors":
            observation, grid = observation.in_units(tuple(encoding.affine()[1].tolist())), encoding.grid() or grid
        space = space_of(encoding.values()) if kind == "vectors" else kind
        measure = Measure(space, UNITS[kind], length, encoding.exactness, conditional, grid)
        return cls(encoding, observation, measure, source_encoding)

    @property
    def n_initial(self) -> int:
        """The number of first frames of a sequence that have no encoded step, because they have no difference."""
        return self.encoding.n_initial if isinstance(self.encoding, SeriesEncoding) else 0

    def with_inputs(self, inputs: InputScaling | None) -> Setting:
        """Return this setting for a model of p(x | inputs) that reads inputs; return it unchanged for None.

        Args:
            inputs: names and standardisation of the inputs, or None.

        Raises:
            ValueError: if the model reads the times of all frames, but the encoding leaves out the first ones.
        """
        if inputs is None:
            return self
        if inputs.time_column is not None and self.n_initial:
            raise ValueError(
                f"the model reads the times of all frames, but {self.encoding!r} leaves out the first "
                f"{self.n_initial}; pass differences as sequences, or leave encoding='auto'"
            )
        return replace(self, inputs=inputs, measure=replace(self.measure, inputs=inputs.names))

    def reading(self, names: tuple[str, ...]) -> Setting:
        """Return this setting for a model that reads only some of the inputs.

        Args:
            names: names of these inputs, in the order in which the model reads them; empty for none.
        """
        if self.inputs is None and names == self.measure.inputs:
            return self
        inputs = self.inputs.of(names) if names and self.inputs is not None else None
        return replace(self, inputs=inputs, measure=replace(self.measure, inputs=names))

    def check(self, data: Data, missing_is_summed_out: bool, *, aligned: bool = False, is_prefix: bool = False) -> None:
        """Raise ValueError if the model cannot read data; the message names sequence, position and a way out.

        Args:
            data: sequences, with targets if there are any.
            missing_is_summed_out: True if the model marginalises out missing values (NaN), so that they are allowed.
            aligned: True if the model is a tagger, so that targets must have one step for each step of their source.
            is_prefix: True if more frames follow, so that an item may be too short to have an encoded step.
        """
        if None not in (self.measure.grid, data.scored.grid) and self.measure.grid != data.scored.grid:
            raise ValueError(
                f"the sequences are dithered over a grid of {data.scored.grid} but the model was fitted on "
                f"{self.measure.grid}; dither both by one grid: test.dithered(like=train) of the raw values, where "
                "train is dithered"
            )
        if self.inputs is not None:
            self.inputs.check(data.scored)
        if data.y is None:
            _check_readable("X", data.X, self.encoding, missing_is_summed_out)
            if isinstance(self.encoding, SeriesEncoding) and self.measure.length == "stop" and not is_prefix:
                for i, n_frames in enumerate((data.X.n_units + data.X.n_units_of_past).tolist()):
                    self.encoding.check_length(i, n_frames)
            return None
        self.check_sources(data.X, missing_is_summed_out)
        _check_readable("y", data.y, self.encoding, missing_is_summed_out)
        if aligned:
            assert self.source_encoding is not None, "a tagger reads its sources"
            check_aligned(self.encoding, self.source_encoding, data)
        return None

    def check_sources(self, X: Sequences, missing_is_summed_out: bool) -> None:
        """Raise ValueError if the model reads sources, from which it predicts targets, and cannot read these.

        Args:
            X: the sources.
            missing_is_summed_out: True if the model marginalises out missing values (NaN). They are then allowed in
                sources that share the encoding of the targets.
        """
        if self.source_encoding is not None:
            separate = self.source_encoding is not self.encoding
            _check_readable("X", X, self.source_encoding, missing_is_summed_out and not separate)

    def examples(self, data: Data, *, on_disk: bool = False, may_have_no_steps: bool = False) -> list[Example]:
        """Return each sequence encoded as an ``Example``, the form that models fit and score.

        The encoded steps of a sequence's past come before its own. Both are encoded separately, so that no symbol
        belongs to both.

        Args:
            data: raw data that ``check`` has accepted.
            on_disk: if True, memory-mapped sequences are left on disk and encoded when they are read.
            may_have_no_steps: if True, series too short to have a difference become examples without steps.

        Raises:
            ValueError: if ``may_have_no_steps`` is False and a series is too short; the message names the first one.
        """
        encoding = self.source_encoding if data.y is not None else None
        sources = [None] * len(data.X) if encoding is None else encoding.encode_all(data.X)
        states = [None] * len(data.X) if data.states is None else data.states
        weights, n_units = data.weights.tolist(), data.scored.n_units.tolist()
        if isinstance(self.encoding, SeriesEncoding):
            past = [None] * len(data.X) if data.scored.past is None else data.scored.past
            rows = zip(data.scored, past, n_units, weights, states, strict=True)
            examples = [_series_example(self.encoding, *row) for row in rows]
            for i, example in enumerate(examples):
                if not may_have_no_steps and not len(example.values):
                    self.encoding.check_length(i, n_units[i])
        elif self.encoding.has_log_det or any_mapped(data.scored):
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
        if data.scored.past is not None and not isinstance(self.encoding, SeriesEncoding):
            each = zip(examples, data.scored, data.scored.past, strict=True)
            examples = [self._after_past(example, item, past) for example, item, past in each]
        if encoding is not None and data.X.past is not None:
            each = zip(examples, data.X, data.X.past, strict=True)
            examples = [
                example if past is None else replace(example, source=_encoded_after(encoding, past, item)[0])
                for example, item, past in each
            ]
        if self.inputs is not None:
            pairs = zip(examples, self.inputs.encode(data.scored), strict=True)
            examples = [replace(example, inputs=inputs[self.n_initial :]) for example, inputs in pairs]
        return examples

    def _after_past(self, example: Example, item: Item, past: Item | None) -> Example:
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
        """Return True if a sequence is in a file and any slice of it can be encoded alone with the same result.

        Text can if it is read as bytes, and vectors unless an encoded step depends on earlier ones.
        """
        if isinstance(self.encoding, SeriesEncoding):
            return False
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
        if isinstance(log_dets, float):
            log_det = log_dets * len(values)
        else:
            log_det = float(log_dets.sum())
        return Example(values, source, weight, log_det, n_units, states)

    def all_in_raw_units(self, sequences: Sequences, steps: list[np.ndarray]) -> list[np.ndarray]:
        """Convert log-probabilities of encoded steps of sequences to those of raw units (frames, symbols or bytes).

        They are returned unchanged if encoded steps are raw units already.

        Args:
            sequences: the raw sequences.
            steps: log-probabilities in nats of the encoded steps of each sequence, and of its end if that is an event.
        """
        if self.encoding.is_unit_wise and not self.encoding.has_log_det and not any_mapped(sequences):
            return steps
        past = [None] * len(sequences) if sequences.past is None else sequences.past
        return [self.in_raw_units(*each) for each in zip(sequences, steps, past, strict=True)]

    def in_raw_units(self, item: Item, steps: np.ndarray, past: Item | None = None) -> np.ndarray:
        """Convert log-probabilities of a sequence's encoded steps to those of its raw units (frames, symbols or bytes).

        The result, in nats, is ``(U + 1,)`` for U raw units and the end of the sequence, or ``(U,)`` if ``steps`` does
        not include the end.

        Args:
            item: the raw sequence.
            steps: log-probabilities of its encoded steps in nats, without the steps of its past.
            past: raw steps before the sequence; None if there are none.
        """
        if isinstance(self.encoding, SeriesEncoding):
            return self.encoding.in_raw_units(item, np.asarray(steps), past)
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
        # np.add.at, because symbols that spell no byte share their last unit with another symbol.
        np.add.at(raw, last_unit, steps[:n_steps] + self.encoding.log_det(item))
        raw[n_units:] = steps[n_steps:]
        return raw


def _series_example(
    encoding: SeriesEncoding,
    item: Item,
    past: Item | None,
    n_units: int,
    weight: float,
    states: np.ndarray | None,
) -> Example:
    """Return the encoded ``Example`` of vectors whose encoding depends on earlier frames, as differences do.

    The log-determinant includes the log-density of first frames that are not steps; known states of these frames are
    dropped.

    Args:
        encoding: the fitted encoding.
        item: raw frames of the sequence.
        past: raw frames before it; None if there are none.
        n_units: number of frames of the sequence.
        weight: weight of the sequence in the objective.
        states: known hidden states of its frames, or None.
    """
    values, n_past = (encoding.encode(item), 0) if past is None else encoding.encoded_after(past, item)
    log_det = float(encoding.of_frames_after(past, item).sum())
    known = None if states is None else states[len(states) - (len(values) - n_past) :]
    n_initial = len(item) - (len(values) - n_past)
    return Example(values, None, weight, log_det, n_units, known, n_past=n_past, n_initial=n_initial)


def _refuse_series_of_pairs(*encodings: Encoding | str) -> None:
    for encoding in encodings:
        if isinstance(encoding, SeriesEncoding):
            raise ValueError(
                f"{encoding!r} encodes single series, but these are pairs: leave y out, or leave encoding='auto'"
            )


def _encoded_after(encoding: Encoding, past: Item, item: Item) -> tuple[np.ndarray, int]:
    """Encode a past and a sequence that follows it, separately; return all their steps and how many are of the past."""
    before = encoding.encode(past)
    return np.concatenate([before, encoding.encode_after(item)]), len(before)


def _fit_sources(data: Data, sources: Sources, alphabet: Data | None) -> Encoding | None:
    if data.y is None or not isinstance(sources, Encoding):
        return None
    _check_reads("source_encoding", sources, data.X)
    return fitted_to(sources, data.X if alphabet is None or data.X.kind != "symbols" else alphabet.X)


def fitted_to(encoding: Encoding, sequences: Sequences) -> Encoding:
    """Return a copy of an encoding that is fitted to sequences and knows the names of their features."""
    encoding.check_finite(sequences)
    learned = encoding.clone().fit(sequences)
    if sequences.kind == "vectors":
        learned.names = sequences.features
    return learned


def _check_values(encoding: Encoding, observation: Observation) -> None:
    pairs = zip(encoding.values(), observation.values(encoding.size), strict=True)
    for feature, (encoded, emitted) in enumerate(pairs):
        if encoded != emitted:
            raise ValueError(
                f"the observation {observation!r} emits {emitted} at feature {feature} but the encoding {encoding!r} "
                f"gives {encoded}; leave encoding='auto'"
            )
    if encoding.grid() != observation.grid(encoding.size):
        raise ValueError(
            f"the observation {observation!r} has a grid of {observation.grid(encoding.size)} but the encoding "
            f"{encoding!r} has one of {encoding.grid()}; leave encoding='auto'"
        )


def _check_past_steps(observation: Observation, data: Data) -> None:
    """Raise ValueError if the observation depends on more earlier steps than any sequence has before its last one."""
    pasts = data.scored.past or [None] * len(data.scored)
    sources = [0] * len(data.X) if data.y is None else data.X.n_units
    each = zip(data.scored.n_units, pasts, sources, strict=True)
    longest = max(int(n) + (0 if past is None else len(past)) + int(before) for n, past, before in each)
    if observation.n_past >= longest:
        raise ValueError(
            f"{observation!r} looks back at {observation.n_past} steps, but the longest sequence has {longest}, so no "
            f"step has such a past; pass an order below {longest}, or longer sequences"
        )


# -- whether the encodings can read data -----------------------------------------------------------------------


def _check_readable(what: str, sequences: Sequences, encoding: Encoding, missing_is_summed_out: bool) -> None:
    """Raise ValueError if an encoding cannot read sequences; the message names sequence and position.

    Args:
        what: name of the sequences in the message, ``"X"`` or ``"y"``.
        sequences: the raw sequences.
        encoding: the fitted encoding.
        missing_is_summed_out: True if missing values (NaN) are allowed.
    """
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


def _check_reads(name: str, encoding: Encoding, sequences: Sequences) -> None:
    """Raise ValueError if an encoding reads another kind of sequences (vectors, text or symbols) than these.

    Args:
        name: name of the model's argument that is the encoding.
        encoding: the encoding.
        sequences: the raw sequences.
    """
    if encoding.reads != sequences.kind:
        raise ValueError(f"the {name} {encoding!r} reads {encoding.reads} but the sequences are {sequences.kind}")


def _check_past(what: str, i: int, past: Item, encoding: Encoding, missing_is_summed_out: bool) -> None:
    try:
        encoding.check(i, past)
        if encoding.reads == "vectors" and not missing_is_summed_out:
            _refuse_missing(what, i, cast(np.ndarray, past))
    except ValueError as error:
        raise ValueError(f"of the past: {error}") from None


def _check_features(what: str, names: tuple[str, ...] | None, fitted: tuple[str, ...] | None) -> None:
    """Raise ValueError if the features of data are not those of the fit, in the same order; unnamed ones are accepted.

    Args:
        what: name of the data in the message.
        names: names of their features, or None.
        fitted: names of the features in the fit, or None.
    """
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
