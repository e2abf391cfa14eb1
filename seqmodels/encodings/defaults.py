"""The encodings that ``encoding="auto"`` and ``source_encoding="auto"`` mean for given data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from seqmodels.encodings import Bytes, Encoding, Features, Grid, Intervals, OpenSymbols, Standardize, Symbols
from seqmodels.encodings.auto_series import AutoSeries, SeriesChoice, choose
from seqmodels.encodings.raw_data import Data
from seqmodels.encodings.step_maps import as_frames
from seqmodels.observations import IntervalCensored, Observation, OneOf, Rounded
from seqmodels.sequences import Kind, Sequences
from seqmodels.sequences.mapped import MappedArray
from seqmodels.sequences.measure import Length

MOST_SERIES_BY_DEFAULT = 5  # data of more sequences are not treated as series
FRAMES_PER_INITIAL = 3  # the shortest series must have this many frames for each initial one without a difference

# How sources are read: by an encoding of their own; by that of the targets; or not at all.
Sources = Encoding | Literal["shared", "ignored"]


@dataclass(frozen=True)
class Choices:
    """The encodings and other arguments of a model, with ``"auto"`` resolved for the data of a fit.

    Encodings are not fitted yet, unless ``is_fitted`` says so.

    Args:
        encoding: encoding of the sequences that are scored.
        observation: distribution of an encoded step.
        length: ``"stop"`` if the ends of sequences are events, else ``"given"``.
        sources: encoding of the sources; ``"shared"`` to use the encoding of the targets, ``"ignored"`` to read none.
        is_fitted: True if ``encoding`` is fitted already and stays as it is.
    """

    encoding: Encoding
    observation: Observation
    length: Length
    sources: Sources = "shared"
    is_fitted: bool = False


def default_encoding(kind: Kind, observation: Observation | None = None, n_features: int = 0) -> Encoding:
    """Return the encoding that ``encoding="auto"`` means for data of this kind.

    Args:
        kind: kind of the raw data: vectors, symbols or text.
        observation: distribution of an encoded step, which decides how vectors are scaled; None means reals.
        n_features: number of features of vectors.
    """
    if isinstance(observation, OneOf):
        observation = observation.observations[0]
    heavy = [] if observation is None or kind != "vectors" else list(observation.has_heavy_tails(n_features))
    robust = heavy[0] if len(set(heavy)) == 1 else heavy or False
    if isinstance(observation, Rounded):
        return Grid(observation.width, observation.origin, observation.kind, any(heavy))
    if isinstance(observation, IntervalCensored):
        return Intervals(observation.kind, any(heavy))
    values = () if observation is None or kind != "vectors" else observation.values(n_features)
    if kind == "vectors" and set(values) - {"reals"}:
        return Features(values[0] if len(set(values)) == 1 else list(values), robust)
    if kind == "vectors":
        return Standardize(robust=robust)
    return Bytes() if kind == "text" else Symbols()


def kind_of_steps(kind: Kind, encoding: Encoding | Literal["auto"]) -> Kind:
    """Return the kind of steps that an encoding makes of data: vectors, symbols or text.

    It is ``"symbols"`` if the encoding quantised vectors, and otherwise the kind of the data.

    Args:
        kind: kind of the raw data.
        encoding: the encoding, or ``"auto"``.
    """
    return "symbols" if kind == "vectors" and encoding != "auto" and _makes_symbols_of_vectors(encoding) else kind


def _makes_symbols_of_vectors(encoding: Encoding) -> bool:
    return encoding.reads == "vectors" and encoding.emits == "symbols"


def may_have_unseen_symbols(encoding: Encoding | Literal["auto"]) -> bool:
    """Return True if, under an encoding, later data may contain symbols that no training sequence has.

    Args:
        encoding: the encoding, or ``"auto"``.
    """
    return isinstance(encoding, OpenSymbols) or (encoding != "auto" and _makes_symbols_of_vectors(encoding))


def changes_of_series(sequences: Sequences, encoding: Encoding) -> SeriesChoice | None:
    """Return the logarithms and differences that ``encoding="auto"`` should take of training series; None for none.

    They are considered for one or few long series of reals in memory, and taken if the series wander, grow or have a
    season.

    Args:
        sequences: training sequences.
        encoding: the encoding that is used without them.
    """
    few = len(sequences) <= MOST_SERIES_BY_DEFAULT and type(encoding) is Standardize and encoding.with_mean
    if not few or any(isinstance(item, MappedArray) for item in sequences):
        return None
    choice = choose([as_frames(item) for item in sequences])
    n_initial = choice.order + (choice.season or 0)
    shortest = int(sequences.n_units.min())
    return choice if n_initial and shortest >= FRAMES_PER_INITIAL * n_initial else None


def reading_of(choice: SeriesChoice, sequences: Sequences) -> AutoSeries:
    """Return an encoding of series that takes given logarithms and differences, fitted to training sequences.

    Args:
        choice: logarithms and differences that were chosen before.
        sequences: training sequences of vectors.
    """
    encoding = AutoSeries()
    encoding.check_finite(sequences)
    encoding.fit_as(choice, sequences).names = sequences.features
    return encoding


def choose_sources(
    data: Data,
    chosen: Encoding | Literal["auto"],
    like_targets: Encoding | None,
    default: Encoding,
    *,
    model: str,
    shared: bool,
) -> Sources:
    """Choose how a model reads its sources: by an encoding, by that of the targets (``"shared"``), or not at all.

    In the last case the result is ``"ignored"``.

    Args:
        data: sources ``X`` and targets ``y``; without targets the result is ``"ignored"``.
        chosen: the user's argument ``source_encoding``.
        like_targets: encoding for sources of the same kind as the targets, to be fitted to the sources; None if there
            is no such case, so that ``default`` is taken.
        default: encoding for sources of another kind than the targets.
        model: name of the model, for errors.
        shared: True if the model reads sources and targets by one encoding.

    Raises:
        ValueError: if one encoding cannot read both; the message says what to do instead.
    """
    if data.y is None:
        return "ignored"
    alike = (data.X.kind, data.X.n_features) == (data.y.kind, data.y.n_features)
    if shared and not alike:
        raise ValueError(
            f"X is {_in_words(data.X)} but y is {_in_words(data.y)}, and this {model} reads them alike, by one "
            "encoding: pass both of one kind; or take a model with an encoder of its own, such as LSTMSeq2Seq; or "
            "ignore_source=True, which gives p(y) as a baseline"
        )
    if shared and chosen != "auto":
        raise ValueError(
            f"source_encoding is {chosen!r}, but this {model} reads sources by the encoding of its targets: leave "
            "source_encoding='auto'; a model reads them by two if it has an encoder and no tied embeddings"
        )
    if shared:
        return "shared"
    if chosen != "auto":
        return chosen
    return like_targets if alike and like_targets is not None else default


def _in_words(sequences: Sequences) -> str:
    return f"{sequences.n_features}-dimensional vectors" if sequences.kind == "vectors" else sequences.kind
