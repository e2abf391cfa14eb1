"""Standardization of the inputs that a model of p(x | inputs) reads; it has no log-determinant.

``p(x | u)`` is a density of x, so a one-to-one map of u does not change it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, get_args

import numpy as np

from seqmodels.common.display import listed
from seqmodels.encodings.base import State, names_of_state
from seqmodels.encodings.terms import Term, TermColumns
from seqmodels.sequences import Sequences
from seqmodels.sequences.items import checked_times, times_as_read
from seqmodels.sequences.times import DateUnit, as_numbers, seconds_of
from seqmodels.sequences.zones import in_unit

TIME = "time"  # name of the input that is the times of steps


def chosen_inputs(choice: Sequence[str | Term] | bool | None, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of the inputs (covariates) that a user's choice selects.

    Args:
        choice: True for all inputs, None or False for none, else a name or a sequence of names and penalised terms,
            each of which stands for the inputs that it reads.
        names: names of all inputs.
    """
    if isinstance(choice, bool) or choice is None:
        return names if choice else ()
    if isinstance(choice, str):
        return (choice,)
    each = (item.inputs if isinstance(item, Term) else (item,) for item in choice)
    return tuple(dict.fromkeys(name for inputs in each for name in inputs))


def linear_inputs(choice: Sequence[str | Term] | bool | None, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of the inputs of a user's choice that have a slope without a penalty.

    Args:
        choice: names and penalised terms, as in ``chosen_inputs``.
        names: names of all inputs.
    """
    if isinstance(choice, bool) or choice is None or isinstance(choice, str):
        return chosen_inputs(choice, names)
    each = (item.linear if isinstance(item, Term) else (item,) for item in choice)
    return tuple(dict.fromkeys(name for inputs in each for name in inputs))


@dataclass(frozen=True)
class InputScaling:
    """The standardisation ``(u - mean) / scale`` of each input (covariate) that a model reads.

    Attributes:
        names: names of the U inputs, in the order of the model.
        mean, scale: mean and standard deviation of each input over all steps of the training sequences, each ``(U,)``.
        date_unit: unit in which dates are counted, if the input ``time`` is the times of steps; None if it is not.
        time_unit: unit of the times of the training sequences, to which other times are converted: the ``date_unit``
            for dates, the sequences' ``time_unit`` for numbers, ``""`` for numbers without a unit. None if it is not
            known; numbers are then used unchanged.
        date_zone: time zone of the dates of the training sequences, to which later dates with a zone are converted.
            None if they had no zone; later dates with a zone are then taken in UTC.
        terms: penalised terms, whose columns follow the U standardised inputs in what a model reads: it has C columns.
    """

    names: tuple[str, ...]
    mean: np.ndarray
    scale: np.ndarray
    date_unit: DateUnit | None = None
    time_unit: str | None = None
    date_zone: str | None = None
    terms: tuple[TermColumns, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the C columns that a model reads: those of the inputs, then those of the columns of terms."""
        return (*self.names, *(label for term in self.terms for label in term.labels))

    @property
    def units(self) -> np.ndarray:
        """Size of one unit of each column in raw units, ``(C,)``: the scale of an input, 1 for columns of terms."""
        return np.concatenate([self.scale, np.ones(len(self.columns) - len(self.names))])

    def columns_of(self, term: Term) -> tuple[int, ...]:
        """Return the positions among the C columns of those of a term that have coefficients.

        Raises:
            ValueError: the scaling has no such term, because it was learned for another model.
        """
        columns = self._all_columns_of(term)
        return tuple(columns[:-1] if term.has_new_groups else columns)

    def new_column_of(self, term: Term) -> int | None:
        """Return the position among the C columns of that of the new groups of a term; None if the term has no groups.

        The column is zero where the group was among the training sequences.
        """
        return self._all_columns_of(term)[-1] if term.has_new_groups else None

    def _all_columns_of(self, term: Term) -> range:
        known = [each.term for each in self.terms]
        if term not in known:
            raise ValueError(
                f"{term.label} is a penalised term, which a model fitted by itself can have; leave it out of members "
                "of a Mixture or a classifier, and of a model that is made of given parameters"
            )
        begin = len(self.names) + sum(len(each.labels) for each in self.terms[: known.index(term)])
        return range(begin, begin + len(self.terms[known.index(term)].labels))

    def _encoded(self, raw: np.ndarray) -> np.ndarray:
        """Return the C columns that a model reads at T steps, ``(T, C)``, given raw inputs ``(T, U)``."""
        scaled: np.ndarray = (raw - self.mean) / self.scale
        if not self.terms:
            return scaled
        both = (dict(zip(self.names, values.T, strict=True)) for values in (raw, scaled))
        of_raw, of_scaled = both
        return np.concatenate([scaled, *(term.columns(of_raw, of_scaled) for term in self.terms)], 1)

    @property
    def time_column(self) -> int | None:
        """The position of the times of steps among the inputs; None if they are not an input."""
        return None if self.date_unit is None else self.names.index(TIME)

    @property
    def without_times(self) -> InputScaling | None:
        """The standardisation of all inputs but the times of steps; None if there are no others."""
        others = [name for i, name in enumerate(self.names) if i != self.time_column]
        return self.of(others) if others else None

    @classmethod
    def of_times(cls, date_unit: DateUnit, step: float = 1.0, fitted_to: Sequences | None = None) -> Self:
        """Return the scaling for a model whose only input is the times of steps, divided by ``step`` and not shifted.

        Args:
            date_unit: unit in which dates are counted, such as ``"D"`` for days.
            step: length of a step in this unit, or in the unit of numeric times.
            fitted_to: training sequences, whose times have the unit to which others are converted; None leaves it
                unknown.
        """
        unit, zone = None, None
        if fitted_to is not None and fitted_to.times is not None:
            kind = fitted_to.times[0].dtype.kind
            unit = date_unit if kind in "Mm" else fitted_to.time_unit or ""
            zone = fitted_to.time_unit if kind == "M" else None
        return cls((TIME,), np.zeros(1), np.full(1, step), date_unit, unit, zone)

    def beside(self, others: InputScaling, names: Sequence[str]) -> InputScaling:
        """Return a standardisation that takes the times of steps from this object and all other inputs from another.

        Args:
            others: standardisation of the other inputs.
            names: names of all inputs in the order in which the model reads them, with ``"time"`` for the times.
        """
        parts = [self.of([name]) if name == TIME else others.of([name]) for name in names]
        mean, scale = (np.concatenate(each) for each in zip(*((part.mean, part.scale) for part in parts), strict=True))
        return InputScaling(tuple(names), mean, scale, self.date_unit, self.time_unit, self.date_zone)

    @classmethod
    def learn(cls, sequences: Sequences, names: Sequence[str], terms: Sequence[Term] = ()) -> Self:
        """Return the standardisation of inputs, learned from training sequences.

        Args:
            sequences: training sequences with inputs.
            names: names of the inputs, in the order in which the model reads them.
            terms: penalised terms of these inputs.

        Raises:
            ValueError: if the sequences lack an input, or an input is the same at every step.
        """
        steps = np.concatenate(_chosen(sequences, names, sequences.inputs))
        mean, scale = steps.mean(0), steps.std(0)
        constant = (steps == steps[0]).all(0) | ~(scale > 0) | ~np.isfinite(scale)
        if constant.any():
            i = int(np.argmax(constant))
            raise ValueError(
                f"the input {names[i]!r} is {steps[0, i]} at every step of the training sequences, so nothing can be "
                "learned from it; leave it out"
            )
        both = (dict(zip(names, values.T, strict=True)) for values in (steps, (steps - mean) / scale))
        of_raw, of_scaled = both
        learned = tuple(TermColumns.learn(term, of_raw, of_scaled) for term in terms)
        return cls(tuple(names), mean, scale, terms=learned)

    def of(self, names: Sequence[str]) -> InputScaling:
        """Return the standardisation of some of the inputs alone.

        Args:
            names: names of these inputs, in the new order.
        """
        columns = [self.names.index(name) for name in names]
        of_times = (self.date_unit, self.time_unit, self.date_zone) if TIME in names else (None, None, None)
        terms = tuple(each for each in self.terms if set(each.term.inputs) <= set(names))
        return InputScaling(tuple(names), self.mean[columns], self.scale[columns], *of_times, terms=terms)

    def check(self, sequences: Sequences) -> None:
        """Raise ValueError if a sequence lacks an input that the model reads, or if times of its past are unknown."""
        self._of(sequences)

    def encode(self, sequences: Sequences) -> list[np.ndarray]:
        """Return the columns that a model reads of each sequence, including those of its past, arrays ``(P + T, C)``.

        They are the standardised inputs, and the columns of terms. The P steps of the past come before the T steps of
        the sequence itself.

        Raises:
            ValueError: if a sequence lacks an input, or has a past whose times are not known.
        """
        return [self._encoded(u) for u in self._of(sequences)]

    def _of(self, sequences: Sequences) -> list[np.ndarray]:
        """Return the raw inputs of each sequence, arrays ``(P + T, U)``: P steps of its past, then its T own steps."""
        if self.date_unit is None:
            return _chosen(sequences, self.names, sequences.inputs_after_past())
        at = self.names.index(TIME)
        if sequences.times is None:  # a step after another
            each = (np.arange(p + n) for p, n in zip(sequences.n_units_of_past, sequences.n_units, strict=True))
            times = [float(self.scale[at]) * steps for steps in each]
        else:
            times = [self.counted(each, sequences.time_unit) for each in _times_after_past(sequences)]
        if len(self.names) == 1:
            return [each[:, None] for each in times]
        others = _chosen(sequences, tuple(n for n in self.names if n != TIME), sequences.inputs_after_past())
        return [np.insert(u, at, each, axis=1) for u, each in zip(others, times, strict=True)]

    def counted(self, times: np.ndarray, time_unit: str | None) -> np.ndarray:
        """Return times as float64 numbers ``(T,)`` in the unit of the training sequences.

        Args:
            times: dates, durations or numbers, ``(T,)``.
            time_unit: unit of numbers; None if it is not known.

        Raises:
            ValueError: if the unit cannot be converted to that of the training sequences.
        """
        unit = self.date_unit if self.time_unit is None else self.time_unit
        of_model = "numbers of an unknown unit" if not unit else f"times that count {unit!r}"
        if times.dtype.kind in "Mm":
            if unit is None or seconds_of(unit) is None:
                raise ValueError(
                    f"the times are dates, but the model was fitted to {of_model}; pass numbers as it was fitted to, "
                    "or fit it to dates, or to sequences whose time_unit is 's', 'min', 'h', 'D', 'W' or 'Y'"
                )
            return as_numbers(times, unit)
        if self.time_unit is None or (time_unit or "") == self.time_unit:
            return times.astype(np.float64)
        here, there = seconds_of(time_unit), seconds_of(self.time_unit)
        if here is None or there is None:
            these = "numbers of an unknown unit" if not time_unit else f"numbers that count {time_unit!r}"
            raise ValueError(
                f"the times are {these}, but the model was fitted to {of_model}; say what they count by time_unit= of "
                "Sequences, in fit too, or pass them as they were in fit"
            )
        return times * here / there

    def encode_steps(self, inputs: Any, n: int | None = None, *, after: Sequences | None = None) -> np.ndarray:
        """Return the columns that a model reads at n steps that follow sequences or stand alone, ``(n, C)``.

        They are the standardised values of the U inputs, and the columns of terms.

        Args:
            inputs: an array ``(n, U)`` in the order of ``names``, or a mapping or pandas frame with a column for each
                name.
            n: number of steps; None takes the number of rows.
            after: sequences that the steps follow, whose unit the times of the steps have; None means that numbers have
                the unit of the training sequences.

        Raises:
            ValueError: if there are no inputs, if their shape is wrong, if a name is missing, or if a value is not
                finite.
        """
        if self.date_unit is not None:
            inputs = self._with_times_as_numbers(inputs, n, after)
        said = f"the model reads the inputs {listed(self.names)}"
        if inputs is None:
            raise ValueError(f"{said}; pass inputs=, an array (T, {len(self.names)}) or a mapping from name to values")
        if isinstance(inputs, Mapping) or hasattr(inputs, "columns"):
            lacking = [name for name in self.names if name not in inputs]
            if lacking:
                raise ValueError(f"{said}, but inputs has no {lacking[0]!r}; pass values for each name")
            inputs = np.stack([np.asarray(inputs[name]) for name in self.names], axis=-1)
        try:
            steps = np.asarray(inputs, dtype=np.float64)
        except (TypeError, ValueError):
            raise ValueError(f"{said}, but inputs are no numbers; pass an array (T, {len(self.names)})") from None
        if steps.ndim == 1 and len(self.names) == 1:
            steps = steps[:, None]
        if steps.ndim != 2 or steps.shape[1] != len(self.names) or (n is not None and len(steps) != n):
            expected = f"({'T' if n is None else n}, {len(self.names)})"
            raise ValueError(
                f"{said}, but inputs have shape {steps.shape}; pass {expected}, a row for each step, in this order"
            )
        is_known = np.isfinite(steps)
        if self.date_unit is not None:  # a time that is not given is one step after the one before
            is_known[:, self.names.index(TIME)] = True
        if not is_known.all():
            t, i = (int(k) for k in np.argwhere(~is_known)[0])
            raise ValueError(f"the input {self.names[i]!r} is {steps[t, i]} at step {t}; pass finite numbers")
        return self._encoded(steps)

    def check_names(self, names: Sequence[str]) -> None:
        """Raise ValueError if one of ``names`` is no input that the model reads."""
        unknown = [each for each in names if each not in self.names]
        if unknown:
            raise ValueError(f"the model reads no input {unknown[0]!r}; it reads {listed(self.names)}")

    def values_of(self, name: str, sequences: Sequences, n: int) -> np.ndarray:
        """Return values at which an effect of an input is shown: groups, or n values that span a period or a range.

        Args:
            name: name of the input.
            sequences: sequences whose inputs have the range, if no term has learned it.
            n: number of values of a range. An input that takes two values is shown at these.

        Raises:
            ValueError: there is no input of this name.
        """
        self.check_names([name])
        each = (term.term.values_of(name, term.learned, n) for term in self.terms)
        known = next((values for values in each if values is not None), None)
        if known is not None:
            return known
        different = np.unique(np.concatenate(_chosen(sequences, (name,), sequences.inputs)))
        return different if len(different) <= 2 else np.linspace(different[0], different[-1], n)

    def steps_along(self, name: str, values: np.ndarray, others: Mapping[str, float]) -> np.ndarray:
        """Return the columns that a model reads at n steps that differ in one input alone, ``(n, C)``.

        Args:
            name: name of the input.
            values: its raw values, ``(n,)``.
            others: raw values of other inputs, by name. One that is not listed has its mean, or stands for no group if
                it numbers the groups of a random effect.

        Raises:
            ValueError: there is no input of such a name, or values are not finite.
        """
        self.check_names([name, *others])
        held = dict(zip(self.names, self.mean.tolist(), strict=True))
        for term in self.terms:
            at = {each: term.term.reference(each, term.learned) for each in term.term.inputs}
            held |= {each: value for each, value in at.items() if value is not None}
        held |= others
        columns = {each: np.full(len(values), value) for each, value in held.items()}
        return self.encode_steps(columns | {name: values})

    def _with_times_as_numbers(self, inputs: Any, n: int | None, after: Sequences | None) -> Any:
        """Return raw inputs with the column of times checked and converted to numbers; NaN if there are no times.

        Args:
            inputs: an array in the order of ``names``, or a mapping or pandas frame with a column for each name, or
                None.
            n: number of steps; None takes the number of rows.
            after: sequences that the steps follow, whose unit the times have; None means the unit of the training
                sequences.
        """
        assert self.date_unit is not None
        by_name = isinstance(inputs, Mapping) or hasattr(inputs, "columns")
        if len(self.names) > 1 and not by_name:
            return inputs
        times = inputs[TIME] if by_name and TIME in inputs else None if by_name else inputs
        if times is None and n is None and by_name:  # the other inputs tell how many steps there are
            n = next((len(inputs[name]) for name in self.names if name in inputs), None)
        if times is None and n is None:
            raise ValueError(
                'the model was fitted with length="given", so it has no ends; pass length=, or the times of the '
                "steps as times="
            )
        if times is None:
            numbers = np.full(n or 0, np.nan)
        else:
            whole = np.asarray(times)
            flat = whole[:, 0] if whole.ndim == 2 and whole.shape[1] == 1 else times
            before = None if after is None or after.times is None else after.times[0]
            unit = self.date_zone if after is None or before is None else after.time_unit
            on_clock = in_unit(times_as_read(flat), unit)
            given = checked_times([on_clock], [len(whole) if n is None else n])[0]
            if before is not None and (before.dtype.kind == "M") != (given.dtype.kind == "M"):
                kinds = ["dates" if each.dtype.kind == "M" else "numbers" for each in (before, given)]
                raise ValueError(
                    f"the times of the sequences are {kinds[0]}, but those of the steps that follow are {kinds[1]}; "
                    "pass times of one kind"
                )
            time_unit = self.time_unit if before is None or after is None else after.time_unit
            numbers = self.counted(given, time_unit)
        return {**{name: inputs[name] for name in self.names if by_name and name in inputs}, TIME: numbers}

    def state(self) -> State:
        of_times: dict[str, Any] = {} if self.date_unit is None else {"date_unit": self.date_unit}
        if self.time_unit is not None:
            of_times["time_unit"] = self.time_unit
        if self.date_zone is not None:
            of_times["date_zone"] = self.date_zone
        if self.terms:
            of_times["terms"] = {str(i): term.state() for i, term in enumerate(self.terms)}
        return {"names": list(self.names), "mean": self.mean, "scale": self.scale, **of_times}

    @classmethod
    def of_state(cls, state: Any, terms: Sequence[Term] = ()) -> Self:
        """Return the standardisation whose numbers were stored in a file; the inverse of the method ``state``.

        Args:
            state: the numbers by name.
            terms: penalised terms that the model's hyperparameters name.

        Raises:
            ValueError: if ``state`` is not a result of the method ``state``.
        """
        mean, scale = (np.asarray(state[name], dtype=np.float64) for name in ("mean", "scale"))
        if mean.ndim != 1 or mean.shape != scale.shape or not np.isfinite(mean).all():
            raise ValueError("the inputs should have a finite mean and a scale each")
        if not ((scale > 0) & (scale < np.inf)).all():
            raise ValueError("the scales of inputs should be above zero and finite")
        names = names_of_state(state, len(mean))
        if not names:
            raise ValueError("the inputs should have names")
        date_unit = state.get("date_unit")  # None for inputs that are not times
        if date_unit is not None and (date_unit not in get_args(DateUnit) or TIME not in names):
            raise ValueError(f"date_unit is {date_unit!r}; it should be one of {', '.join(get_args(DateUnit))}")
        time_unit = state.get("time_unit")  # nor in files of earlier versions
        if not (time_unit is None or (isinstance(time_unit, str) and date_unit is not None)):
            raise ValueError(f"time_unit is {time_unit!r:.50}; it should be a word, of a model that reads times")
        date_zone = state.get("date_zone")
        if not (date_zone is None or (isinstance(date_zone, str) and date_unit is not None)):
            raise ValueError(f"date_zone is {date_zone!r:.50}; it should be a word, of a model that reads dates")
        stored = state.get("terms", {})
        if len(stored) != len(terms):
            raise ValueError(f"the inputs have {len(stored)} terms, but the hyperparameters name {len(terms)}")
        learned = tuple(TermColumns.of_state(term, stored[str(i)]) for i, term in enumerate(terms))
        return cls(names, mean, scale, date_unit, time_unit, date_zone, learned)


def _times_after_past(sequences: Sequences) -> list[np.ndarray]:
    """Return the times of each sequence with those of its past before them, arrays ``(P + T,)``.

    There are P steps of the past and T steps of the sequence.

    Raises:
        ValueError: if a sequence has a past whose times are not known.
    """
    assert sequences.times is not None, "there are some"
    n_past = sequences.n_units_of_past
    known = sequences.past_times or [None] * len(sequences)
    unknown = [i for i, (p, before) in enumerate(zip(n_past, known, strict=True)) if p and before is None]
    if unknown:
        raise ValueError(
            f"sequence {unknown[0]} has a past whose times are not known; pass past_times= too, or X.without_past()"
        )
    return [t if b is None else np.concatenate([b, t]) for t, b in zip(sequences.times, known, strict=True)]


def _chosen(sequences: Sequences, names: Sequence[str], inputs: list[np.ndarray] | None) -> list[np.ndarray]:
    """Return some of the inputs of each sequence, arrays ``(T, U)`` for U names.

    Args:
        sequences: sequences of T steps, whose ``input_names`` name the columns of ``inputs``.
        names: names of the inputs to return, in this order.
        inputs: for each sequence an array with all its inputs; None if they have none.

    Raises:
        ValueError: if the sequences lack one of the inputs.
    """
    known = sequences.input_names or ()
    lacking = [name for name in names if name not in known]
    if lacking or inputs is None:
        has = f"have the inputs {listed(known)}" if known else "have no inputs"
        raise ValueError(
            f"the model reads the inputs {listed(names)}, but the sequences {has}; pass Sequences(items, inputs=..., "
            "input_names=...)"
        )
    if tuple(names) == tuple(known):
        return inputs
    columns = [known.index(name) for name in names]
    return [u[:, columns] for u in inputs]
