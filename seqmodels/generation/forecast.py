"""Forecasts of the next steps of given sequences, as a table, as drawn paths and as a plot."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from seqmodels import plot
from seqmodels.common.caller_warnings import warn_caller
from seqmodels.common.display import a_or_an, listed, quantile_name
from seqmodels.common.main_memory import refuse_beyond_memory
from seqmodels.common.parameters import check_options, checked
from seqmodels.encodings import Encoding
from seqmodels.encodings.examples import Example
from seqmodels.encodings.inputs import TIME
from seqmodels.encodings.raw_data import Data
from seqmodels.encodings.series import SeriesEncoding
from seqmodels.encodings.text import Text
from seqmodels.generation.feature_distributions import FeatureDistributions, quantiles_of_steps
from seqmodels.generation.inputs import GenerativeModel, encode_inputs, with_times
from seqmodels.generation.steps_ahead import Ahead, Paths, ahead_of
from seqmodels.sequences import Sequences
from seqmodels.sequences.times import times_ahead
from seqmodels.sequences.zones import in_unit, with_zone

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from seqmodels.plot.style import Panels

AFTER_THE_END = -1  # in a path of symbols


@dataclass(frozen=True, eq=False, repr=False)
class Forecast:
    """The distribution of the next k steps of each sequence; printing it shows its ``frame``.

    Attributes:
        frame: a pandas data frame. For vectors it has a row for each ``sequence`` (its name), ``step`` (1 to k) and
            ``feature`` (its name or, without names, its number), with the columns ``mean`` and one for each quantile,
            named in per cent (``"5%"``), in raw units. The mean is NaN if it does not exist. For an angle, ``mean`` is
            its direction, from -π to π, and ``5%`` and ``95%`` are the ends of the shortest arc with probability 90 %,
            written as increasing numbers around the direction, so that either may lie beyond π. For symbols and text it
            has a row for each ``sequence``, ``step`` and ``symbol``, the most probable first, with the column
            ``probability``. All of these are conditioned on the sequence having the step; if the model predicts ends,
            ``survival`` is the probability of that, and if it is 0 the other columns are NaN. ``method`` is ``"exact"``
            (closed form) or ``"sampled"`` (a mean over simulated paths). For sequences with times, ``time`` (after
            ``step``) continues their times by their constant step, or by their calendar frequency (months, business
            days). It is missing for a sequence whose times have neither, and there is no such column if no sequence's
            have.
        history: the n sequences that the forecast steps follow.
        quantiles: the levels of the quantiles.
        are_angles: for vectors, True for each feature that is an angle; else empty.
    """

    frame: pd.DataFrame
    history: Sequences
    quantiles: tuple[float, ...]
    are_angles: tuple[bool, ...]
    _draw_paths: list[Callable[[], Paths]]
    _encoding: Encoding = field(repr=False)

    def __repr__(self) -> str:
        return repr(self.frame)

    def _repr_html_(self) -> str:
        return str(self.frame._repr_html_())  # type: ignore[operator]

    @property
    def features(self) -> tuple[Any, ...]:
        """The names or numbers of the features of vectors; empty for symbols and text."""
        return tuple(feature_names(self.history, self._encoding)) if self.history.kind == "vectors" else ()

    @cached_property
    def paths(self) -> list[Any]:
        """A list that has, for each sequence, n simulated paths: joint draws of its next k steps in raw units.

        An entry is an array ``(n, k, D)`` for vectors of D features, NaN after the end of a path; an array ``(n, k)``
        of integers or strings for symbols, -1 after the end; or a list of n strings for text. If the frame is a mean
        over paths, these are the paths.
        """
        return [_raw_paths(draw(), self._encoding) for draw in self._draw_paths]

    @checked
    def plot(self, ax: Axes | Sequence[Axes] | None = None, **options: Any) -> Axes | Panels:
        """Draw a fan chart of one sequence: its last steps and the quantiles of its forecast.

        Args:
            ax: axes to draw on, or several of them; None makes new ones.
            options: further arguments of ``seqmodels.plot.forecast``, such as the sequence to draw.
        """
        return plot.forecast(self, ax, **options)


def forecast(
    model: GenerativeModel,
    data: Data,
    k: int,
    *,
    quantiles: Sequence[float],
    n: int,
    top_k: int | None,
    random_state: int | None,
    inputs: Sequence[Any] | None = None,
) -> Forecast:
    """Return the forecast of the next ``k`` steps of each sequence.

    Args:
        model: the fitted model.
        data: the sequences to continue, after they were checked by the model.
        k: number of steps ahead.
        quantiles: increasing levels of the quantiles, between 0 and 1.
        n: number of simulated paths, for steps without a closed form.
        top_k: number of most probable symbols to list at each step; None lists all.
        random_state: seed of the paths; None uses the model's.
        inputs: for a model that reads inputs, raw inputs of the k steps ahead for each sequence; else None.

    Raises:
        ValueError: if an argument is out of its range, if the model is a tagger, if inputs or times of the steps ahead
            are missing, or if a sequence has probability zero.
    """
    import pandas as pd

    levels = check_arguments(model, k, quantiles, n)
    if top_k is not None and top_k < 1:
        raise ValueError(f"top_k is {top_k}; pass at least 1, or None for every symbol")
    time_column = None if model._input_scaling is None else model._input_scaling.time_column
    if time_column is not None and inputs is None:
        inputs = [{} for _ in data.scored]
    if time_column is not None and isinstance(inputs, Sequence) and not isinstance(inputs, str):
        inputs = _with_times_ahead(data.scored, [_in_zone_of(data.scored, each) for each in inputs], k)
    examples = _with_inputs_ahead(model, data, inputs, k)
    seed = model.random_state if random_state is None else random_state
    frames = data.scored.after_past() if isinstance(model.encoding_, SeriesEncoding) else []
    n_given = [[len(x)] for x in frames] or [[len(e.values)] for e in examples]
    each = list(ahead_of(model, examples, n_given, k, n, seed, frames))
    each.sort(key=lambda ahead: ahead.sequence)
    history, encoding = data.scored, model.encoding_
    if history.kind == "vectors":
        names = feature_names(history, encoding)
        parts = [_rows_of_vectors(a, history, levels, names, has_end=model.length_ == "stop") for a in each]
    else:
        parts = [_rows_of_symbols(a, history, encoding, top_k, has_end=model.length_ == "stop") for a in each]
    times = _given_times(inputs, history, time_column) if time_column is not None else _times_ahead(history, k)
    if times is not None:
        for ahead, part in zip(each, parts, strict=True):
            of_steps = times[ahead.sequence][part["step"].to_numpy() - 1]
            part.insert(2, "time", with_zone(of_steps, history.time_unit))
    frame = parts[0] if len(parts) == 1 else pd.concat(parts, ignore_index=True)
    _warn_of_missing_means(frame)
    known = (step for ahead in each for step in ahead.steps if isinstance(step, FeatureDistributions))
    size = history.n_features if history.kind == "vectors" else 0
    are_angles = next((step.are_angles for step in known), (False,) * size)
    return Forecast(frame, history, tuple(levels.tolist()), are_angles, [a.draw_paths for a in each], encoding)


def _in_zone_of(history: Sequences, inputs: Any) -> Any:
    """Return inputs of the steps ahead with their times converted to the time zone of the sequences.

    Args:
        history: the sequences.
        inputs: inputs of one sequence, as an array or by name; without times they are unchanged.
    """
    if _by_name(inputs):
        return {name: in_unit(inputs[name], history.time_unit) if name == TIME else inputs[name] for name in inputs}
    return in_unit(inputs, history.time_unit)


def _with_inputs_ahead(model: GenerativeModel, data: Data, inputs: Sequence[Any] | None, k: int) -> list[Example]:
    """Return the encoded sequences, each with the standardised inputs of its steps and of the k steps after it.

    Args:
        model: the fitted model.
        data: the raw sequences, with the inputs of their own steps.
        inputs: raw inputs of the k steps ahead for each sequence, or None.
        k: number of steps ahead.
    """
    examples, known = model._setting().examples(data, may_have_no_steps=True), encoded_ahead(model, data, inputs, k)
    if known is None:
        return examples
    return [
        example if example.inputs is None else replace(example, inputs=np.concatenate([example.inputs, ahead]))
        for example, ahead in zip(examples, known, strict=True)
    ]


def encoded_ahead(model: GenerativeModel, data: Data, inputs: Sequence[Any] | None, k: int) -> list[np.ndarray] | None:
    """Return the standardised inputs of the k steps after each sequence, ``(k, U)``; None if there are none.

    Args:
        model: the fitted model, which may read U inputs.
        data: the sequences.
        inputs: raw inputs of the k steps ahead for each sequence, each an array ``(k, U)`` or a mapping by name, or
            None.
        k: number of steps ahead.

    Raises:
        ValueError: inputs are missing, are not read, or are not given for every sequence.
    """
    if model._input_scaling is None or inputs is None:
        encode_inputs(model, inputs, k)  # refuses inputs that are missing or not read
        return None
    n = len(data.scored)
    if isinstance(inputs, np.ndarray | str) or not isinstance(inputs, Sequence) or len(inputs) != n:
        raise ValueError(f"inputs are not a list of {n}; pass for each sequence an array ({k}, U), of the steps ahead")
    return [model._input_scaling.encode_steps(each, k, after=data.scored) for each in inputs]


def inputs_with_times(
    data: Data, k: int, inputs: Sequence[Any] | None, times: Sequence[Any] | None
) -> Sequence[Any] | None:
    """Return the raw inputs of the k steps after each sequence together with their times, if these are given.

    Args:
        data: the sequences.
        k: number of steps ahead.
        inputs: inputs of the steps ahead by name for each sequence, or None.
        times: times of the steps ahead for each sequence; None returns ``inputs`` unchanged.

    Raises:
        ValueError: if the times or inputs are not a list with one entry for each sequence.
    """
    if times is None:
        return inputs
    n = len(data.X)
    each = [None] * n if inputs is None else inputs
    if isinstance(times, str) or len(times) != n or len(each) != n:
        raise ValueError(f"times are not a list of {n}; pass a list with the {k} times ahead of each sequence")
    return [with_times(u, ahead) for u, ahead in zip(each, times, strict=True)]


def check_arguments(
    model: GenerativeModel, k: int, quantiles: Sequence[float], n: int, *, k_name: str = "k"
) -> np.ndarray:
    """Check the arguments of a forecast, and return the levels of its quantiles as an array, ``(Q,)``.

    Args:
        model: the fitted model.
        k: number of steps ahead.
        quantiles: levels of the quantiles.
        n: number of simulated paths.
        k_name: name of the argument ``k`` in messages.

    Raises:
        ValueError: if an argument is out of its range, or if the model is a tagger.
    """
    if model._is_tagger:
        raise ValueError(
            f"the targets of {a_or_an(type(model))} end with their sources, so nothing follows them; use predict"
        )
    for name, value in ((k_name, k), ("n", n)):
        if not (isinstance(value, int | np.integer) and value >= 1):
            raise ValueError(f"{name} is {value!r}; pass a whole number, at least 1")
    refuse_beyond_memory(f"{n} paths of {k} steps", 8.0 * n * k, f"pass a smaller n or {k_name}")
    check_options(check_arguments, quantiles=quantiles)
    levels = np.asarray(quantiles, dtype=np.float64)
    if levels.ndim != 1 or not ((levels > 0) & (levels < 1)).all() or (np.diff(levels) <= 0).any():
        raise ValueError(f"quantiles is {quantiles!r}; pass increasing numbers between 0 and 1, such as (0.05, 0.95)")
    return levels


def feature_names(history: Sequences, encoding: Encoding) -> Sequence[Any]:
    """Return the names of the features of a forecast.

    They are the names in the data or, if there are none, those in the data of the fit, and else the features' numbers.

    Args:
        history: the sequences that are forecast.
        encoding: the model's encoding, which keeps the names of the fit.
    """
    names = encoding.names if history.features is None else history.features
    return range(encoding.n_features) if names is None else names


def _times_ahead(history: Sequences, k: int) -> list[np.ndarray] | None:
    """Return the times of the k steps after each sequence, ``(k,)``; None if no sequence's times can be continued.

    A warning is issued if some sequences have times without a constant step or calendar frequency; their times ahead
    are missing (NaT or NaN).
    """
    if history.times is None:
        return None
    ahead = [times_ahead(times, k) for times in history.times]
    irregular = [str(name) for name, times in zip(history.names, ahead, strict=True) if times is None]
    if irregular:
        warn_caller(
            f"the times of {len(irregular)} of {len(ahead)} sequences ({listed(irregular)}) have no one step, so the "
            "steps ahead have no times; bring them to one frequency, as frame.asfreq of pandas does",
        )
    if len(irregular) == len(ahead):
        return None
    is_date = history.times[0].dtype.kind == "M"
    unknown = np.full(k, np.datetime64("NaT", "s")) if is_date else np.full(k, np.nan)
    return [unknown if times is None else times for times in ahead]


def _times_that_go_on(history: Sequences, k: int) -> list[Mapping[str, np.ndarray]]:
    """Return the times of the k steps after each sequence as an input: ``{TIME: times}``, or ``{}`` without times.

    Args:
        history: the sequences, whose times are continued by their constant step or calendar frequency.
        k: number of steps ahead.

    Raises:
        ValueError: if the times of a sequence have no constant step or calendar frequency.
    """
    if history.times is None:
        return [{} for _ in history]
    ahead = [times_ahead(times, k) for times in history.times]
    irregular = [str(name) for name, times in zip(history.names, ahead, strict=True) if times is None]
    if irregular:
        raise ValueError(
            f"the times of {len(irregular)} of {len(ahead)} sequences ({listed(irregular)}) have no one step, and the "
            f"model reads times; pass times=, for each sequence the {k} times of the steps ahead"
        )
    return [{TIME: times} for times in ahead if times is not None]


def _with_times_ahead(history: Sequences, inputs: list[Any], k: int) -> list[Any]:
    """Add the times of the steps ahead to the inputs of sequences that lack them, by continuing the sequence's times.

    Args:
        history: the sequences.
        inputs: inputs of the k steps ahead for each sequence; only those given by name get times.
        k: number of steps ahead.
    """
    lacking = [i for i, each in enumerate(inputs) if _by_name(each) and TIME not in each]
    if not lacking or len(inputs) != len(history):  # which is refused elsewhere
        return inputs
    later = dict(zip(lacking, _times_that_go_on(history.take(lacking), k), strict=True))
    return [{**each, **later[i]} if i in later else each for i, each in enumerate(inputs)]


def _given_times(inputs: Sequence[Any] | None, history: Sequences, time_column: int) -> list[np.ndarray] | None:
    """Return the times of the steps ahead that are among the given inputs of each sequence; None if there are none.

    Args:
        inputs: inputs of the steps ahead for each sequence, as an array or by name.
        history: the sequences.
        time_column: column of the times in inputs that are not given by name.
    """
    if inputs is None or history.times is None:
        return None
    given = [each.get(TIME) if _by_name(each) else np.asarray(each) for each in inputs]
    if any(each is None for each in given):
        return None
    return [each[:, time_column] if each.ndim == 2 else each for each in map(np.asarray, given)]


def _by_name(inputs: Any) -> bool:
    return isinstance(inputs, Mapping) or hasattr(inputs, "columns")


def _rows_of_vectors(
    ahead: Ahead, history: Sequences, levels: np.ndarray, features: Sequence[Any], *, has_end: bool
) -> pd.DataFrame:
    import pandas as pd

    k, size = len(ahead.steps), len(features)
    means, quantiles = np.full((k, size), np.nan), np.full((k, len(levels), size), np.nan)
    known = {h: step for h, step in enumerate(ahead.steps) if isinstance(step, FeatureDistributions)}
    if known:
        means[[*known]] = [step.mean for step in known.values()]
        quantiles[[*known]] = quantiles_of_steps([*known.values()], levels)
    columns = {quantile_name(level): quantiles[:, i].ravel() for i, level in enumerate(levels)}
    return pd.DataFrame(
        {
            "sequence": [history.names[ahead.sequence]] * (k * size),
            "step": np.repeat(np.arange(1, k + 1), size),
            "feature": [*features] * k,
            "mean": means.ravel(),
            **columns,
            **({"survival": np.repeat(ahead.survival, size)} if has_end else {}),
            "method": np.repeat(np.where(ahead.exact, "exact", "sampled"), size),
        }
    )


def _warn_of_missing_means(frame: pd.DataFrame) -> None:
    if "mean" not in frame or not np.isnan(frame["mean"].to_numpy()).any():
        return
    levels = [name for name in frame.columns if isinstance(name, str) and name.endswith("%")]
    lacks = frame["mean"].isna() & frame[levels].notna().any(axis=1)
    if lacks.any():
        names = [str(name) for name in frame.loc[lacks, "feature"].unique()]
        warn_caller(
            f"the forecast of feature {listed(names)} has no mean and shows NaN, as for a t density of at most 1 "
            "degree of freedom, a power of a heavy-tailed density, or angles without a direction; read the median: "
            "quantiles=(0.05, 0.5, 0.95)",
        )


def _rows_of_symbols(
    ahead: Ahead, history: Sequences, encoding: Encoding, top_k: int | None, *, has_end: bool
) -> pd.DataFrame:
    import pandas as pd

    symbols = _symbols(encoding)
    parts = []
    for h, step in enumerate(ahead.steps):
        p = step if isinstance(step, np.ndarray) else np.full(encoding.size, np.nan)
        best = np.argsort(-p, kind="stable")[:top_k]
        parts.append(
            pd.DataFrame(
                {
                    "sequence": [history.names[ahead.sequence]] * len(best),
                    "step": h + 1,
                    "symbol": [symbols[i] for i in best],
                    "probability": p[best],
                    **({"survival": ahead.survival[h]} if has_end else {}),
                    "method": "exact" if ahead.exact[h] else "sampled",
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


def _symbols(encoding: Encoding) -> list[Any]:
    """Return each encoded symbol in raw form.

    A symbol of text is a string of its characters, with ``\\xe9`` for a byte that is no whole character.
    """
    if isinstance(encoding, Text):
        return [symbol.decode(errors="backslashreplace") for symbol in encoding.spelling()]
    return list(encoding.decode(np.arange(encoding.size)))


def _raw_paths(paths: Paths, encoding: Encoding) -> Any:
    if encoding.reads == "vectors":
        return paths.raw_vectors(encoding)
    if encoding.reads == "symbols":
        return np.where(paths.lasts, encoding.decode(paths.x), AFTER_THE_END)
    decode = encoding.decode_after
    return [decode(x[lasts]) for x, lasts in zip(paths.x, paths.lasts, strict=True)]
