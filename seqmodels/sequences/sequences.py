"""The container ``Sequences``: ragged sequences of one kind with metadata, and how other forms of data become one."""

from __future__ import annotations

import copy
import hashlib
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import asdict
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, Self, overload

import numpy as np

from seqmodels.common.caller_warnings import warn_caller
from seqmodels.common.display import MAX_LISTED, html_table, listed, sizes_in_words
from seqmodels.common.parameters import PositiveInt, Seed, check_options, checked, in_one_line
from seqmodels.sequences.columns.frames import pandas_frame
from seqmodels.sequences.columns.index import times_of_frames, with_index_as_columns
from seqmodels.sequences.columns.numbers import place_in_frame, refuse_unread, warn_of_codes, with_numbers
from seqmodels.sequences.columns.panels import series_of_rows
from seqmodels.sequences.columns.timed_rows import named_times
from seqmodels.sequences.inputs import Inputs
from seqmodels.sequences.items import (
    UNITS,
    Item,
    Kind,
    check_alike,
    check_n_past,
    checked_items,
    checked_lengths,
    checked_names,
    checked_past,
    checked_times,
    in_words,
    is_mapped_text,
    items_of,
    joined_steps,
    largest_symbol,
    n_units_of,
    named_symbols,
    steps_before,
    times_as_read,
)
from seqmodels.sequences.mapped import MappedArray
from seqmodels.sequences.profile import N_PROFILED, Shape, grid_step, profile_of
from seqmodels.sequences.times import every_step, time_in_words
from seqmodels.sequences.zones import in_unit, on_its_clock, with_zone, without_zone, zone_in_words

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Item", "Kind", "Sequences", "as_sequences", "symbols_of_all"]
MANY_COLUMNS = 100  # columns of a frame from which on converting them together is faster
MAX_ROWS_SHOWN, MAX_CHARACTERS_SHOWN = 10, 60  # sequences, and characters of each, that a notebook shows
PAST_OF_TEST = 10_000  # the most steps before the tail of a single series that the tail keeps as its past
# The shapes that ``profile`` distinguishes, in words.
SHAPES: dict[Shape, str] = {
    "missing": "missing",
    "constant": "constant",
    "bits": "bits",
    "counts": "counts",
    "spike": "real with a spike",
    "grid": "real on a grid",
    "reals": "real",
}


class Sequences(Sequence[Item]):
    """A list of sequences of one kind (vectors, text or symbols), with one row of metadata for each.

    Args:
        items: arrays of floats, shape ``(T, D)`` (vectors); ``str`` (text); or one-dimensional arrays or lists of
            integers or of strings (symbols). NaN in a vector means missing, and so does an element that a masked array
            masks. Items are validated and copied to float64, int64 or arrays of ``str`` unless they already are.
            Tensors are detached and copied to the CPU. An ``np.memmap`` stays on disk and is read block by block
            (``mapped.MappedArray``).
        names: a name for each sequence, by which it can also be indexed: ``x["s3"]``. None means that they have
            numbers.
        labels: a label for each sequence, such as the digit spoken.
        clusters: the cluster that each sequence belongs to, such as a speaker or a document. Sequences of one cluster
            are not independent of each other.
        metadata: a table of further columns, one row per sequence. Its columns ``name``, ``label`` and ``cluster`` have
            the meaning of the arguments above.
        grid: for each feature of dithered vectors, the width of the noise that ``dithered`` added, in the feature's raw
            unit; None means that they are not dithered.
        features: a name for each feature of vectors; for symbols one name that says what they are.
        symbols: names of the symbols 0 .. V - 1 (a ``Vocabulary`` is accepted). Items of integers then become strings,
            and items of strings may hold only these. None means that the symbols are the strings that occur, in
            alphabetical order.
        times: for each sequence the times of its steps, shape ``(T,)``, as dates or numbers. None may be missing or
            earlier than the one before it. If ``times`` is None and the items are pandas frames, times are taken from
            their index if it holds dates, or numbers and is called ``time``, ``t``, ``date`` or ``timestamp``.
        time_name: the name of the times, which is their column in ``to_frame``.
        time_unit: the unit of times that are numbers, such as ``"s"``. For dates that had a time zone it is the name of
            the zone if they are kept as local times (days, weeks, months), or for example ``"UTC (Europe/Berlin)"`` if
            they are kept in UTC.
        by: what one sequence is, such as ``"subject"``; the column of names in ``to_frame``.
        past: for each sequence the steps immediately before it, as an item, or None if it begins there or nothing is
            known of them. ``split`` of a single series keeps this past. It is not scored: models score the sequence
            given its past (``log p(x_t | past, x_<t)``), and ``fit`` does not read it.
        inputs: for each sequence the exogenous inputs (covariates) known at its steps, finite numbers of shape ``(T,
            U)`` or a pandas frame. They are not modelled. A model that reads them is ``p(x | inputs)`` and knows the
            inputs of step t when it predicts step t; other models ignore them. Texts cannot have inputs.
        input_names: a name for each input; None means the columns of frames, or ``u0, u1, ...``.
        past_inputs: for each sequence the inputs of the steps of its past, shape ``(P, U)``, or None. It is required if
            sequences have both a past and inputs.
        past_times: for each sequence the times of the steps of its past, shape ``(P,)``, or None. Models that read
            times need them.

    Raises:
        ValueError: an argument is invalid; the message names the sequence, the position in it, and the way out.

    >>> x = Sequences([np.zeros((3, 2)), np.ones((2, 2))], clusters=["ann", "bob"], features=["ax", "ay"])
    >>> x.kind, x.n_units.tolist(), x.n_features
    ('vectors', [3, 2], 2)
    >>> Sequences([["sit", "walk", "walk"], ["sit"]]).symbols
    ('sit', 'walk')
    """

    # Defaults in the class, because objects that an earlier version pickled lack these attributes.
    past: list[Item | None] | None = None
    past_times: list[np.ndarray | None] | None = None  # times of the steps of each past; None if they are not known
    _inputs: Inputs | None = None

    def __init__(
        self,
        items: Iterable[Any],
        *,
        names: Sequence[Any] | None = None,
        labels: Sequence[Any] | None = None,
        clusters: Sequence[Any] | None = None,
        metadata: pd.DataFrame | None = None,
        grid: Sequence[float] | None = None,
        features: Iterable[str] | None = None,
        symbols: Iterable[str] | None = None,
        times: Sequence[Any] | None = None,
        time_name: str = "time",
        time_unit: str | None = None,
        by: str = "sequence",
        past: Sequence[Any] | None = None,
        inputs: Sequence[Any] | None = None,
        input_names: Iterable[str] | None = None,
        past_inputs: Sequence[Any] | None = None,
        past_times: Sequence[Any] | None = None,
    ) -> None:
        # The check is left out for the defaults, because a stream makes a container for each step.
        if (time_name, time_unit, by) != ("time", None, "sequence"):
            check_options(Sequences.__init__, time_name=time_name, time_unit=time_unit, by=by)
        self.kind: Kind
        self.items: list[Item]
        raw = items_of(items)
        self.kind, self.items = checked_items(raw)
        before = {} if past is None else checked_past(past, self.kind, self.items)
        if times is None and (of_frames := times_of_frames(raw)) is not None:
            times, time_name, of_frames_unit = of_frames
            _refuse_several_in_one_frame(raw, times, time_name)
            time_unit = of_frames_unit if time_unit is None else time_unit
        self.symbols: tuple[str, ...] | None = None
        if self.kind == "symbols":
            self.symbols, self.items, before = named_symbols(self.items, symbols, before)
        elif symbols is not None:
            raise ValueError(f"symbols are named, but the sequences are {self.kind}; leave symbols out")
        self.features: tuple[str, ...] | None = None if features is None else self._feature_names(features)
        self.times: list[np.ndarray] | None = None
        if times is not None:
            self.times, zone = self._checked_times(times)
            time_unit = zone if zone is not None else time_unit
        self.time_name, self.time_unit, self.by = time_name, time_unit, by
        columns = {"name": names, "label": labels, "cluster": clusters}
        if metadata is not None or any(column is not None for column in columns.values()):
            self.metadata = _metadata(len(self), metadata, columns)
        self.grid: tuple[float, ...] | None = None if grid is None else _checked_grid(grid)
        if self.grid is not None and (self.kind != "vectors" or len(self.grid) != self.n_features):
            raise ValueError(f"grid has {len(self.grid)} steps, one for each feature of vectors; these are {self!r}")
        if before:
            self.past = [before.get(i) for i in range(len(self))]
        if inputs is not None:
            self._inputs = self._checked_inputs(inputs, input_names, past_inputs)
        if past_times is not None:
            self.past_times = self._checked_past_times(past_times)
        if inputs is None and (input_names is not None or past_inputs is not None):
            raise ValueError("there are input_names or past_inputs but no inputs; pass inputs too, or leave them out")

    @cached_property
    def metadata(self) -> pd.DataFrame:
        """The table of metadata with one row per sequence; its columns are ``name``, ``label``, ``cluster`` and others.

        A column that was not given does not exist.
        """
        return _metadata(len(self), None, {})  # made on demand, because it takes half of the constructor's time

    # -- other forms of data -------------------------------------------------------------------------------

    @classmethod
    def from_lengths(cls, X: np.ndarray, lengths: Sequence[int], **metadata: Any) -> Self:
        """Return the sequences in one array in which they are laid end to end, as in hmmlearn.

        Args:
            X: the steps of all sequences, shape ``(N, D)`` or ``(N,)``.
            lengths: the length of each sequence; they sum to N.
            metadata: further keyword arguments of ``Sequences``, such as ``names`` or ``labels``.

        Raises:
            ValueError: the lengths do not sum to N, or ``Sequences`` refuses the data.
        """
        X, counts = _with_mask(X), checked_lengths(lengths)
        if X.ndim == 0:
            raise ValueError("X has no rows; pass an array of shape (N, D) or (N,)")
        if counts.sum() != len(X):
            raise ValueError(f"lengths sum to {counts.sum()} but X has {len(X)} rows; they must agree")
        return cls(np.split(X, np.cumsum(counts)[:-1]), **metadata)

    @classmethod
    def from_padded(cls, array: np.ndarray, lengths: Sequence[int], **metadata: Any) -> Self:
        """Return the sequences in a padded array.

        Args:
            array: the padded sequences, shape ``(n, T, D)`` or ``(n, T)``.
            lengths: the number of real steps of each.
            metadata: further keyword arguments of ``Sequences``, such as ``names`` or ``labels``.

        Raises:
            ValueError: the lengths do not fit the array, or ``Sequences`` refuses the data.
        """
        array, counts = _with_mask(array), checked_lengths(lengths)
        if array.ndim < 2:
            raise ValueError(f"the padded array has shape {array.shape}; pass (n, T, D) or (n, T)")
        if len(counts) != len(array):
            raise ValueError(f"there are {len(array)} padded sequences but {len(counts)} lengths; pass one each")
        too_long = [i for i, n in enumerate(counts) if n > array.shape[1]]
        if too_long:
            raise ValueError(
                f"sequence {too_long[0]} has length {counts[too_long[0]]} but the array holds {array.shape[1]}"
            )
        return cls([row[:n] for row, n in zip(array, counts, strict=True)], **metadata)

    @classmethod
    @checked
    def from_frame(
        cls,
        frame: pd.DataFrame,
        *,
        by: str | None = None,
        columns: Sequence[str] | str | None = None,
        time: str | None = None,
        time_unit: str | None = None,
        label: str | None = None,
        cluster: str | None = None,
        metadata: Sequence[str] = (),
        inputs: Sequence[str] = (),
        date_format: str | None = None,
    ) -> Self:
        """Return the sequences in a pandas frame in long format, with one row per step.

        The columns keep their names; ``to_frame`` is the inverse.

        Args:
            frame: a frame with any index, whose levels can be used as columns by their names.
            by: the column that names the sequence of each row; None means that all rows are one sequence.
            columns: the features of vectors, or a single ``str``: the column of symbols, which are integers or words.
                For a categorical column the categories are the symbols, in their order. None means all columns of
                numbers that no other argument names; if there are none, the only other column is taken as symbols.
            time: the column of dates (which may be words) or numbers that orders the steps of a sequence and becomes
                their ``times``. None means that the rows are in order, and that their times are an index level of
                dates, or of numbers that is called ``time``, ``t``, ``date`` or ``timestamp``.
            time_unit: the unit of times that are numbers. If it is given, ``20190131`` or 2019 is not read as a date.
            label: the column that becomes the label of each sequence, so that all its rows must agree.
            cluster: the column that becomes the cluster of each sequence.
            metadata: columns that become further metadata of each sequence.
            inputs: columns of numbers that are known at each step and not modelled.
            date_format: how dates are written, in the notation of ``datetime.strptime`` (``"%d/%m/%Y"``). None means
                the notation in which all of them can be read; if several fit, the one under which the dates are
                regular.

        Raises:
            ValueError: a column is missing; a row has no sequence or time; times of an index go back within a sequence;
                times repeat within a sequence because there are several series; dates can be read in two ways; a label
                changes within a sequence; or ``Sequences`` refuses the data.
        """
        import pandas as pd

        frame = pandas_frame(frame)
        if not isinstance(frame, pd.DataFrame):
            raise ValueError(f"the frame is {in_words(frame)}; pass a pandas DataFrame, one row a step")
        of_frame = list(frame.columns)  # without the columns that are made of its index below
        of_rows = [by, time, label, cluster, *metadata, *inputs]
        indexed = with_index_as_columns(frame, of_rows, date_format=date_format, keys=by is None)
        frame = indexed.frame
        said = [each for each in (indexed.said, indexed.left_out) if each and time is None]
        is_of_index = time is None and indexed.time is not None
        if is_of_index:
            time, time_unit = indexed.time, indexed.unit if time_unit is None else time_unit
        elif time is not None and time in frame:
            frame = frame.assign(**{time: named_times(frame[time], time_unit, date_format, said)})
        for each in said:
            warn_caller(each)
        left = [c for c in of_frame if c not in {*of_rows, time}]
        numbers = left if columns is None else [] if isinstance(columns, str) else list(columns)
        if len(left) > 1 or columns is not None or not _are_codes(frame[left]):
            frame = with_numbers(frame, "the frame", besides=set(frame.columns) - {*numbers, *inputs})
        if columns is None:
            columns = _columns_left(frame, left)
        features = [columns] if isinstance(columns, str) else list(columns)
        if not features:
            raise ValueError("columns is empty; name one column or more, or leave columns out for all of numbers")
        of_sequences = {"label": label, "cluster": cluster, **{each: each for each in metadata}}
        chosen = [c for c in [by, time, *features, *of_sequences.values(), *inputs] if c is not None]
        missing = [c for c in chosen if c not in frame.columns]
        if missing:
            raise ValueError(f"the frame has no column {missing[0]!r}; it has {', '.join(map(str, frame.columns))}")
        for column, is_without in ((by, "belongs to no sequence"), (time, "has no time")):
            empty = np.zeros(1, dtype=bool) if column is None else frame[column].isna().to_numpy()
            if empty.any():
                raise ValueError(
                    f"row {int(np.argmax(empty))} of the frame {is_without}: its {column!r} is missing; fill it in, or "
                    "leave the row out"
                )
        if not len(frame):
            raise ValueError("the frame has no rows; pass one with a row a step")
        refuse_unread(
            frame, [*([] if isinstance(columns, str) else features), *inputs], place_in_frame, "or name others"
        )
        types = dict(frame.dtypes)
        others = [] if isinstance(columns, str) else [c for c in columns if types[c].kind not in "iufb"]
        words_as_inputs = [c for c in inputs if not pd.api.types.is_numeric_dtype(frame[c])]
        if words_as_inputs:
            raise ValueError(
                f"the column {words_as_inputs[0]!r} holds no numbers, so it is not an input; make columns of 0 and 1 "
                "of it, with pandas.get_dummies"
            )
        words = [c for c in others if pd.api.types.is_string_dtype(frame[c])]
        if words:
            raise ValueError(
                f"the column {words[0]!r} holds words, which cannot be a feature of vectors; leave it out, or for "
                f"symbols pass it alone: columns={words[0]!r}"
            )
        warn_of_codes(frame, [*features, *inputs], "the frame")
        codes, names = (np.zeros(len(frame), np.int64), None) if by is None else pd.factorize(frame[by])
        if names is not None:
            _warn_of_names_alike(str(by), list(names))
        ranks = None if time is None else pd.factorize(frame[time], sort=True)[0]
        if time is not None and ranks is not None:
            others = [c for c in frame if c not in of_rows and c != time]
            if is_of_index:
                _refuse_going_back(frame, time, ranks, codes, by, others)
            _refuse_several_series(frame, time, by, others)
        order = np.lexsort((codes,) if ranks is None else (ranks, codes))
        in_order, cuts = frame.iloc[order], np.flatnonzero(np.diff(codes[order])) + 1
        groups = [in_order.iloc[a:b] for a, b in pairwise([0, *cuts.tolist(), len(frame)])]
        rows = {name: _constant(groups, column, by) for name, column in of_sequences.items() if column is not None}
        categories = getattr(frame[columns].dtype, "categories", None) if isinstance(columns, str) else None
        return cls(
            [_steps_of(group, columns) for group in groups],
            names=None if names is None else list(names),
            metadata=pd.DataFrame(rows, index=range(len(groups))),
            features=[str(c) for c in features],
            symbols=None if categories is None or not all(isinstance(c, str) for c in categories) else categories,
            times=None if time is None else [group[time] for group in groups],
            time_name="time" if time is None else str(time),
            time_unit=time_unit,
            by="sequence" if by is None else str(by),
            inputs=[_steps_of(group, list(inputs)) for group in groups] if inputs else None,
            input_names=[str(c) for c in inputs] if inputs else None,
        )

    def to_frame(self) -> pd.DataFrame:
        """Return a long table with one row per step, the inverse of ``from_frame``.

        Its columns are ``by`` with the name of the sequence (its number if names repeat), ``time_name`` if there are
        times, the features (``x0, x1, ...`` if they have no names; ``symbol`` for symbols), the inputs, and the
        metadata, which repeat in all rows of a sequence. Dates that had a time zone have it again. The grid of dithered
        values and the past of sequences are left out.

        Raises:
            ValueError: the sequences are texts, which have no steps in a table, or two columns would have the same
                name.

        >>> Sequences([["sit", "walk"], ["sit"]], names=["ann", "bob"], by="who", features=["state"]).to_frame()
           who state
        0  ann   sit
        1  ann  walk
        2  bob   sit
        """
        import pandas as pd

        if self.kind == "text":
            raise ValueError("texts have no rows of steps; make a frame of them: pd.DataFrame({'text': list(x)})")
        of_step = np.repeat(np.arange(len(self)), self.n_units)
        is_named = len(set(self.names)) == len(self)
        columns: dict[str, Any] = {self.by: pd.Series(self.names if is_named else range(len(self))).iloc[of_step]}
        if self.times is not None:
            columns[self.time_name] = pd.Series(with_zone(np.concatenate(self.times), self.time_unit))
        steps = np.concatenate([np.asarray(x) for x in self.items])
        names = self.features or (["symbol"] if steps.ndim == 1 else [f"x{i}" for i in range(self.n_features)])
        rest = self.metadata.drop(columns="name") if is_named and "name" in self.metadata else self.metadata
        input_names = self.input_names or ()
        taken = [*columns, *names, *input_names, *map(str, rest.columns)]
        twice = [name for name, n in Counter(taken).items() if n > 1]
        if twice:
            raise ValueError(f"two columns would be called {twice[0]!r}; change by, time_name or features")
        for name, values in zip(names, steps[:, None].T if steps.ndim == 1 else steps.T, strict=True):
            is_category = self.symbols is not None and list(self.symbols) != sorted(set(values))
            columns[name] = pd.Categorical(values, self.symbols) if is_category else values
        if self.inputs is not None:
            columns |= dict(zip(input_names, np.concatenate(self.inputs).T, strict=True))
        columns |= {str(name): values.iloc[of_step] for name, values in rest.items()}
        return pd.DataFrame(
            {name: values.array if isinstance(values, pd.Series) else values for name, values in columns.items()}
        )

    @classmethod
    def from_dataset(cls, dataset: Any, **metadata: Any) -> Self:
        """Return the sequences in a map-style torch dataset.

        Args:
            dataset: its items are tensors, or tuples whose first entry is the sequence.
            metadata: further keyword arguments of ``Sequences``, such as ``names`` or ``labels``.

        Raises:
            ValueError: the dataset has no length or no items by number, or ``Sequences`` refuses the data.
        """
        if not (isinstance(dataset, Sized) and hasattr(dataset, "__getitem__")):
            raise ValueError(
                f"the dataset is {in_words(dataset)}; pass a map-style one, which has a length and items by number"
            )
        items = (dataset[i] for i in range(len(dataset)))
        return cls([item[0] if isinstance(item, tuple) else item for item in items], **metadata)

    @classmethod
    @checked
    def joined(cls, parts: Iterable[Sequences]) -> Sequences:
        """Return the sequences of several containers in one, with their metadata, times, inputs and steps before them.

        The symbols are the union of the parts' symbols. Features, grids, inputs and names of times must agree. Names of
        features, inputs and times are dropped if some part has none.

        Raises:
            ValueError: ``parts`` is empty, or the parts differ in kind, features, grid, inputs or unit of times.
        """
        import pandas as pd

        each = list(parts)
        if not each:
            raise ValueError("parts is empty; pass one Sequences or more")
        kinds, features = {part.kind for part in each}, {part.features for part in each} - {None}
        if len(kinds) > 1 or len(features) > 1 or len({part.grid for part in each}) > 1:
            what = "kinds" if len(kinds) > 1 else "features" if len(features) > 1 else "grids"
            raise ValueError(f"the parts have different {what}: {'; '.join(map(repr, each[:MAX_LISTED]))}")
        if len({part.input_names for part in each} - {None}) > 1:
            named = "; ".join(listed(part.input_names or ()) for part in each[:MAX_LISTED])
            raise ValueError(f"the parts have different inputs: {named}; pass inputs of the same names, in one order")
        items = [item for part in each for item in part]
        check_alike(each[0].kind, items)
        metadata = pd.concat([part.metadata for part in each], ignore_index=True)
        lengths = [len(item) for item in items]
        have_times = all(part.times is not None for part in each)
        are_dates = have_times and any(t.dtype.kind == "M" for part in each for t in part.times or ())
        if are_dates and len({part.time_unit for part in each}) > 1:
            zones = ", ".join(dict.fromkeys(str(part.time_unit) for part in each))
            raise ValueError(
                f"the parts have times of different zones: {zones}; give all one, with tz_convert of pandas"
            )
        times = checked_times([t for part in each for t in part.times or ()], lengths) if have_times else None
        units = sorted({repr(part.time_unit) for part in each})
        if times is not None and times[0].dtype.kind != "M" and len(units) > 1:
            raise ValueError(f"the parts have times of different units: {', '.join(units)}; pass times of one unit")
        past = [before for part in each for before in part.past or [None] * len(part)]
        joined = each[0]._with(items, metadata, times, past, Inputs.joined([part._inputs for part in each]))
        if have_times and joined.past is not None:
            joined.past_times = [before for part in each for before in part.past_times or [None] * len(part)]
        joined.symbols = symbols_of_all(each)
        joined.features = each[0].features if len({part.features for part in each}) == 1 else None
        return joined

    # -- as a container ------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.items)

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: str) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> Sequences: ...
    def __getitem__(self, index: int | str | slice) -> Item | Sequences:
        """Return the sequence at a position or with a name; for a slice of positions return ``Sequences``.

        Raises:
            IndexError: there is no such position.
            KeyError: no sequence, or more than one, has the name.
            TypeError: the index is of any other type.
        """
        if isinstance(index, slice):
            return self.take(np.arange(len(self))[index])
        if isinstance(index, str):
            return self.items[self._position(index)]
        if not hasattr(index, "__index__") or np.ndim(index):  # arrays have the method too
            raise TypeError(
                f"index is {in_one_line(index):.80}; pass a position, a name or a slice; take(...) has lists"
            )
        if not -len(self) <= index < len(self):
            raise IndexError(f"there is no sequence {index}; there are {len(self)}, from 0 on")
        return self.items[index]

    def _position(self, name: str) -> int:
        """Return the position of the sequence with this name; raise ``KeyError`` unless exactly one has it."""
        positions = [i for i, each in enumerate(self.names) if each == name]
        if len(positions) != 1:
            there = ", ".join(map(str, self.names[:MAX_LISTED])) + ", ..." * (len(self) > MAX_LISTED)
            raise KeyError(
                f"{len(positions)} sequences are called {name!r}, at {positions[:MAX_LISTED]}; take one by its position"
                if positions
                else f"no sequence is called {name!r}; there are {there}"
            )
        return positions[0]

    def __iter__(self) -> Iterator[Item]:
        return iter(self.items)

    def __repr__(self) -> str:
        what = f"{self.n_features}-dimensional vectors" if self.kind == "vectors" else self.kind
        past = "" if self.past is None else f", given {self._past_in_words()}"
        inputs = "" if self.input_names is None else f", with inputs {listed(self.input_names)}"
        return f"Sequences({len(self)} of {what}, {int(self.n_units.sum()):,} {self.unit}s{past}{inputs})"

    def _past_in_words(self) -> str:
        n_units = int(self.n_units_of_past.sum())
        return f"{n_units:,} {self.unit}{'s' * (n_units != 1)} before {'it' if len(self) == 1 else 'them'}"

    def _repr_html_(self) -> str:
        """Return HTML for a notebook: the sizes, and a row with the metadata of each of the first sequences."""
        rows = self.metadata.head(MAX_ROWS_SHOWN).copy()
        rows.insert(0, f"{self.unit}s", [int(n) for n in self.n_units[:MAX_ROWS_SHOWN]], allow_duplicates=True)
        if self.kind != "vectors":
            begins_with = [_beginning(item) for item in self.items[:MAX_ROWS_SHOWN]]
            rows.insert(1, "beginning", begins_with, allow_duplicates=True)
        what = f"{self.n_features}-dimensional vectors" if self.kind == "vectors" else self.kind
        first = f"; the first {len(rows)}" if len(self) > len(rows) else ""
        past = "" if self.past is None else f", given {self._past_in_words()}"
        return html_table(rows, f"{what}: {sizes_in_words(self.n_units.tolist(), self.unit)}{past}{first}")

    def take(self, index: Any, axis: Literal[0] = 0) -> Sequences:
        """Return the sequences at given positions, with their metadata, times, inputs and steps before them.

        Args:
            index: positions, shape ``(k,)``, or a mask, shape ``(n,)``.
            axis: 0, which scikit-learn passes.

        Raises:
            IndexError: a position does not exist.
            ValueError: ``index`` is not a list of positions or a mask.
        """
        check_options(Sequences.take, axis=axis)
        rows = self._rows(index)
        times = None if self.times is None else [self.times[i] for i in rows]
        past = None if self.past is None else [self.past[i] for i in rows]
        inputs = None if self._inputs is None else self._inputs.take(rows)
        items = items_of([self.items[i] for i in rows])
        taken = self._with(items, self.metadata.iloc[rows], times, past, inputs)
        taken.past_times = None if self.past_times is None else [self.past_times[i] for i in rows]
        return taken

    @property
    def iloc(self) -> Self:
        """The container itself, so that cross-validation in scikit-learn, which calls ``X.iloc.take``, can use it.

        It then keeps times and inputs.
        """
        return self

    def _rows(self, index: Any) -> np.ndarray:
        """Return the positions ``(k,)`` of sequences that an index selects.

        Args:
            index: a list of existing positions, or a mask.
        """
        which = np.asarray(index)
        if which.ndim != 1 or (which.dtype.kind not in "iub" and which.size):
            raise ValueError(f"index is {in_one_line(index):.80}; pass a list of positions, or a mask")
        if which.dtype.kind == "b" and len(which) != len(self):
            raise ValueError(f"index is a mask of {len(which)} sequences, but there are {len(self)}")
        if which.dtype.kind != "b" and which.size and not -len(self) <= which.min() <= which.max() < len(self):
            raise IndexError(
                f"index has {which.min()} to {which.max()}, but there are {len(self)} sequences, from 0 on"
            )
        rows: np.ndarray = np.arange(len(self))[which if which.size else which.astype(np.int64)]
        return rows

    def segments(self, cuts: Iterable[tuple[int, int, int]], *, past: int | None = 0) -> Sequences:
        """Return parts cut out of sequences as new sequences, with metadata, names, times and inputs.

        Args:
            cuts: ``(i, start, stop)`` of each part, which has the steps ``start`` to ``stop - 1`` of sequence i,
                counted in steps, or in characters of text.
            past: the number of steps before each part that it keeps as its past, which may reach into the past of the
                sequence. 0 keeps none, so that a part is a sequence that begins there. None keeps all. The past is a
                view where possible, so that nothing is read from disk.

        Raises:
            ValueError: ``cuts`` or ``past`` is malformed, or names a sequence that does not exist.
        """
        check_n_past(past)
        parts = _checked_cuts(cuts, len(self))
        times = None if self.times is None else [self.times[i][a:b] for i, a, b in parts]
        rows = self.metadata.iloc[[i for i, _, _ in parts]].reset_index(drop=True)
        before = None if past == 0 else [self._before(i, a, past) for i, a, _ in parts]
        inputs = None if self._inputs is None else self._inputs.segments(parts, past)
        segments = self._like([self.items[i][a:b] for i, a, b in parts], rows, times, before, inputs)
        if segments.past is not None and self.times is not None:
            n_past = [0 if x is None else len(x) for x in segments.past]
            each = [self._times_before(i, a, n) for (i, a, _), n in zip(parts, n_past, strict=True)]
            if all(len(times) == n for times, n in zip(each, n_past, strict=True)):
                segments.past_times = [times if n else None for times, n in zip(each, n_past, strict=True)]
        return segments

    def _times_before(self, i: int, start: int, n: int) -> np.ndarray:
        """Return the times of the ``n`` steps before a step of a sequence; fewer if not all are known.

        Args:
            i: number of the sequence.
            start: number of the step.
            n: number of steps before it, which may be in the past of the sequence.
        """
        assert self.times is not None, "there are some"
        before, known = None if self.past_times is None else self.past_times[i], self.times[i][:start]
        whole = known if before is None else np.concatenate([before, known])
        return whole[max(0, len(whole) - n) :]

    def _before(self, i: int, start: int, n: int | None) -> Item | None:
        """Return the last steps before a step of a sequence, including those of its past; None if there are none.

        Args:
            i: number of the sequence.
            start: number of the step.
            n: number of steps before it; None for all of them.
        """
        item, before = self.items[i], None if self.past is None else self.past[i]
        n_of_item = start if n is None else min(n, start)
        n_before = 0 if before is None else len(before) if n is None else min(n - n_of_item, len(before))
        parts = [steps_before(item, start, n_of_item)] if n_of_item else []
        if n_before and before is not None:
            parts.insert(0, steps_before(before, len(before), n_before))
        return None if not parts else parts[0] if len(parts) == 1 else joined_steps(parts)

    @checked
    def with_metadata(self, metadata: pd.DataFrame) -> Sequences:
        """Return the same sequences with another table of metadata.

        Args:
            metadata: table with one row per sequence; its columns ``name``, ``label`` and ``cluster`` have these
                meanings.
        """
        made = self._with(self.items, metadata, self.times, self.past, self._inputs)
        made.past_times = self.past_times
        return made

    def with_inputs(self, inputs: Sequence[Any], names: Iterable[str] | None = None) -> Sequences:
        """Return the same sequences with other inputs (covariates) and without their past, the steps before them.

        Args:
            inputs: for each sequence the inputs of its steps, shape ``(T, U)``, or a pandas frame.
            names: a name for each input; None means the columns of frames, or ``u0, u1, ...``.

        Raises:
            ValueError: the inputs do not fit the sequences.
        """
        checked = self.without_past()._checked_inputs(inputs, names, None)
        return self._with(self.items, self.metadata, self.times, None, checked)

    def with_lagged_inputs(self, k: int = 1) -> Sequences:
        """Return the same sequences with inputs that are ``k`` steps late: step t has the inputs of step t - k.

        The first k steps have the inputs of the first step, or of the sequence's past if it has one.

        Args:
            k: number of steps by which the inputs are late.

        Raises:
            ValueError: the sequences have no inputs, or ``k`` is not an integer of at least 0.

        >>> x = Sequences([np.zeros((3, 1))], inputs=[[5.0, 6.0, 7.0]], input_names=["level"])
        >>> x.with_lagged_inputs(1).inputs[0].ravel().tolist()
        [5.0, 5.0, 6.0]
        """
        if self._inputs is None:
            raise ValueError("these sequences have no inputs; pass Sequences(items, inputs=[...])")
        made = self._with(self.items, self.metadata, self.times, self.past, self._inputs.lagged(k))
        made.past_times = self.past_times
        return made

    def without_past(self) -> Sequences:
        """Return the same sequences without their past, the steps known before them; return self if there is none."""
        if self.past is None:
            return self
        inputs = None if self._inputs is None else self._inputs.without_past()
        return self._with(self.items, self.metadata, self.times, None, inputs)

    @checked
    def with_past_of(self, n: int) -> Sequences:
        """Return the same sequences with at most the last ``n`` steps of their past, the steps known before each.

        Return self if no sequence has a past.

        Args:
            n: largest number of steps before each sequence that are kept.
        """
        return self if self.past is None else self.segments(((i, 0, len(x)) for i, x in enumerate(self)), past=n)

    def including_past(self) -> Sequences:
        """Return sequences that begin with their past, the steps known before each; return self if none has a past.

        Inputs and times of the past and of the sequence are joined too. Times are dropped if they are unknown for some
        past.

        >>> train, test = Sequences([np.arange(5.0)[:, None]], times=[np.arange(5) * 2.0]).split(0.4)
        >>> test.including_past().times[0].tolist()
        [0.0, 2.0, 4.0, 6.0, 8.0]
        """
        if self.past is None:
            return self
        times = self.times
        if times is not None:
            before = self.past_times or [None] * len(self)
            is_known = all(x is None or t is not None for x, t in zip(self.past, before, strict=True))
            pairs = zip(before, times, strict=True)
            times = [t if b is None else np.concatenate([b, t]) for b, t in pairs] if is_known else None
        inputs = None if self._inputs is None else self._inputs.including_past()
        return self._with(self.after_past(), self.metadata, times, None, inputs)

    def with_items(
        self,
        items: Iterable[Any],
        *,
        times: Sequence[Any] | Literal["keep"] | None = "keep",
        inputs: Sequence[Any] | Literal["keep"] | None = "keep",
        features: Iterable[str] | None = None,
        past: Sequence[Any] | None = None,
    ) -> Sequences:
        """Return new sequences with the names, labels, clusters and other metadata of these sequences.

        Args:
            items: one new sequence, of any kind, for each sequence of this container. The grid of ``dithered`` is not
                kept.
            times: an array with the times of the new steps for each sequence; ``"keep"`` takes the times of the old
                sequences, which must have as many steps; None means no times.
            inputs: an array with the inputs of the new steps for each sequence, under the same names; ``"keep"`` takes
                the inputs of the old sequences, which must have as many steps; None means no inputs.
            features: a name for each feature; None keeps the names if their number fits, and otherwise there are none.
            past: the past of each new sequence, the steps before it, or None for a sequence without one. Its steps have
                the inputs and times of the old sequences' past. If the whole argument is None, there is no past.

        Raises:
            ValueError: the number of sequences, or the number of steps of kept times or inputs, differs; or
                ``Sequences`` refuses the data.
        """
        new = Sequences(items, past=past)
        if len(new) != len(self):
            raise ValueError(f"there are {len(new)} items but {len(self)} sequences; pass one for each")
        of_steps = {"times": times, "inputs": inputs}
        kept = {name: getattr(self, name) if isinstance(v, str) else v for name, v in of_steps.items()}
        for name in of_steps:
            if isinstance(of_steps[name], str) and kept[name] is not None:
                self._check_keeps_steps(new, name)
        has_names = features is None and new.kind == self.kind and new.n_features == self.n_features
        return Sequences(
            new,
            metadata=self.metadata,
            features=self.features if has_names else features,
            symbols=self._symbols_of(new),
            times=kept["times"],
            time_name=self.time_name,
            time_unit=None if kept["times"] is None else self.time_unit,
            by=self.by,
            past=past,
            inputs=kept["inputs"],
            input_names=None if kept["inputs"] is None else self.input_names,
            past_inputs=None if new.past is None or kept["inputs"] is None else self.past_inputs,
            past_times=None if new.past is None or kept["times"] is None else self.past_times,
        )

    def _check_keeps_steps(self, new: Sequences, name: str) -> None:
        """Raise ``ValueError`` if the sequences ``new`` cannot keep the times or inputs of this container.

        They cannot if they are text, or have other numbers of steps. ``name`` is ``"times"`` or ``"inputs"``, for the
        message.
        """
        if new.kind == "text":
            raise ValueError(
                f"these sequences have {name}, which texts do not have; pass {name}=None to leave them out"
            )
        changed = np.flatnonzero(new.n_units != self.n_units)
        if len(changed):
            i = int(changed[0])
            raise ValueError(
                f"sequence {i} has {self.n_units[i]} steps with {name} and becomes one of {new.n_units[i]} steps; pass "
                f"{name}= for the new steps, or {name}=None to leave them out"
            )

    def map(
        self,
        function: Callable[[Any], Any],
        *,
        times: Callable[[np.ndarray], Any] | Literal["keep"] | None = "keep",
        inputs: Callable[[np.ndarray], Any] | Literal["keep"] | None = "keep",
        features: Iterable[str] | None = None,
    ) -> Sequences:
        """Apply a function to each sequence, and return the results as sequences with the same names and metadata.

        Args:
            function: takes one item, such as an array of shape ``(T, D)``, and returns an item of any kind.
            times: function that takes the times of a sequence, shape ``(T,)``, and returns the times of the new steps;
                ``"keep"`` keeps the times, and is an error if the number of steps changes; None means no times.
            inputs: function that takes the inputs of a sequence, shape ``(T, U)``, and returns the inputs of the new
                steps; ``"keep"`` and None as for ``times``.
            features: a name for each new feature; None keeps the names if their number fits.

        Raises:
            ValueError: ``function`` raises a ``ValueError``, which is repeated with the name of the sequence; it
                changes the number of steps while times or inputs are kept; or the sequences have a past.

        >>> x = Sequences([np.arange(4.0)[:, None]], times=[[0.0, 0.1, 0.2, 0.3]], labels=["seven"])
        >>> half = x.map(lambda frames: frames[::2], times=lambda t: t[::2])
        >>> half.times[0].tolist(), half.labels
        ([0.0, 0.2], ['seven'])
        """
        if self.past is not None:
            raise ValueError(
                "these sequences have a past, which map does not change; call map before split, or call it on "
                "X.without_past() or X.including_past()"
            )
        items = []
        for i, item in enumerate(self):
            try:
                items.append(function(item))
            except ValueError as error:
                raise ValueError(f"the function refuses sequence {i}: {error}") from error
        new: dict[str, Any] = {"times": times, "inputs": inputs}
        for name, of_steps in new.items():
            if not (of_steps is None or callable(of_steps) or (isinstance(of_steps, str) and of_steps == "keep")):
                raise ValueError(
                    f"{name} is {in_words(of_steps)}; pass a function of the {name} of a sequence, or None"
                )
            if callable(of_steps):
                if (each := getattr(self, name)) is None:
                    raise ValueError(f"{name} is a function of {name}, but these sequences have none; leave {name} out")
                new[name] = [of_steps(values) for values in each]
        return self.with_items(items, **new, features=features)

    def _symbols_of(self, others: Sequences) -> tuple[str, ...] | None:
        """Return the names of this container's symbols if they include those of another, else those of the other."""
        if self.symbols is None or others.symbols is None or not set(others.symbols) <= set(self.symbols):
            return others.symbols
        return self.symbols

    def after_past(self) -> list[Item]:
        """Return each sequence with its past, the P steps known before it, as one item of P + T steps."""
        if self.past is None:
            return self.items
        return [x if b is None else joined_steps([b, x]) for x, b in zip(self.items, self.past, strict=True)]

    def _like(
        self,
        items: list[Item],
        metadata: pd.DataFrame,
        times: list[np.ndarray] | None,
        past: list[Item | None] | None,
        inputs: Inputs | None,
    ) -> Sequences:
        """Return a container of new items with the features, symbols, grid and name of times of this container.

        The items are checked; the steps before them, ``past``, and ``inputs`` are taken as they are.
        """
        like = Sequences(
            items,
            metadata=metadata,
            grid=self.grid,
            features=self.features,
            symbols=self.symbols,
            times=times,
            time_name=self.time_name,
            time_unit=self.time_unit,
            by=self.by,
        )
        return like._with(like.items, like.metadata, like.times, past, inputs)

    def _with(
        self,
        items: list[Item],
        metadata: pd.DataFrame,
        times: list[np.ndarray] | None,
        past: list[Item | None] | None,
        inputs: Inputs | None,
    ) -> Sequences:
        """Return a copy of this container in which items, metadata, times, past and inputs are replaced.

        Nothing is checked, so all must come from checked containers. The times of the past are dropped.
        """
        made = copy.copy(self)
        made.items, made.times, made.metadata = list(items), times, _metadata(len(items), metadata, {})
        made.past = past if past is not None and any(before is not None for before in past) else None
        made.past_times, made._inputs = None, inputs
        return made

    def _feature_names(self, features: Iterable[str]) -> tuple[str, ...]:
        names = checked_names("features", features)
        if self.kind == "text" or len(names) != self.n_features:
            raise ValueError(
                f"features are {len(names)} names, but the sequences are {self!r}; pass one for each feature of "
                "vectors, or one for all of symbols"
            )
        return names

    def _checked_times(self, times: Sequence[Any]) -> tuple[list[np.ndarray], str | None]:
        """Return the times of each sequence after checking them, and the ``time_unit`` that names their time zone.

        The unit is None if they have no zone. Raise ``ValueError`` if the times do not fit the sequences.
        """
        if self.kind == "text":
            raise ValueError("texts have no times, which only frames and symbols have; leave times out")
        unit = None
        if isinstance(times, Sized) and isinstance(times, Iterable) and not isinstance(times, str):
            times, unit = without_zone([times_as_read(each) for each in times])
        return checked_times(times, [len(item) for item in self.items]), unit

    def _checked_past_times(self, past_times: Sequence[Any]) -> list[np.ndarray | None]:
        past = self.past or []
        rows = [i for i, x in enumerate(past) if x is not None]
        if self.times is None or not rows or len(past_times) != len(self):
            raise ValueError("past_times need sequences with a past and times; pass an array, or None, for each")
        extra = [i for i, t in enumerate(past_times) if i not in set(rows) and t is not None and np.size(t)]
        if extra:
            raise ValueError(
                f"sequence {extra[0]} has past_times but no past; pass its past too, or None in their place"
            )
        given = [in_unit(times_as_read(past_times[i]), self.time_unit) for i in rows]
        each = checked_times(given, [len(x) for x in past if x is not None])
        for i, before in zip(rows, each, strict=True):
            if before.dtype.kind != self.times[i].dtype.kind and "M" in before.dtype.kind + self.times[i].dtype.kind:
                raise ValueError(f"the times of sequence {i} and of its past are not of one kind; pass one kind")
            if before[-1] > self.times[i][0]:
                raise ValueError(
                    f"the past of sequence {i} goes on to {before[-1]}, but it begins at {self.times[i][0]}"
                )
        known = dict(zip(rows, each, strict=True))
        return [known.get(i) for i in range(len(self))]

    def _checked_inputs(self, inputs: Any, names: Iterable[str] | None, past: Any) -> Inputs:
        if self.kind == "text":
            raise ValueError("texts have no inputs, which only frames and symbols have; leave inputs out")
        before = [0 if x is None else len(x) for x in self.past or [None] * len(self)]
        return Inputs.of(inputs, names, past, [len(item) for item in self.items], before)

    @property
    def inputs(self) -> list[np.ndarray] | None:
        """The inputs (covariates) at the steps of each sequence, arrays of shape ``(T, U)``; None if there are none."""
        return None if self._inputs is None else self._inputs.each

    @property
    def input_names(self) -> tuple[str, ...] | None:
        """The names of the U inputs; None if there are no inputs."""
        return None if self._inputs is None else self._inputs.names

    @property
    def past_inputs(self) -> list[np.ndarray | None] | None:
        """The inputs of the steps before each sequence (its past), shape ``(P, U)``, or None for one without a past.

        The property is None if there are no inputs or no past at all.
        """
        return None if self._inputs is None else self._inputs.past

    def inputs_after_past(self) -> list[np.ndarray] | None:
        """Return the U inputs of each sequence, preceded by those of the P steps before it, shape ``(P + T, U)``.

        Return None if there are no inputs.
        """
        return None if self._inputs is None else self._inputs.after_past()

    @property
    def names(self) -> list[Any]:
        """The name of each sequence; its number if no names were given."""
        names = self._column("name")
        return list(range(len(self))) if names is None else names

    @property
    def labels(self) -> list[Any] | None:
        """The label of each sequence; None if there are no labels."""
        return self._column("label")

    @property
    def clusters(self) -> list[Any] | None:
        """The cluster of each sequence (sequences of a cluster are not independent); None if there are no clusters."""
        return self._column("cluster")

    def _column(self, name: str) -> list[Any] | None:
        """Return the values of the column ``name`` of the metadata; None if there is no such column.

        The table is not created if no metadata were given.
        """
        return list(self.metadata[name]) if "metadata" in vars(self) and name in self.metadata else None

    @property
    def unit(self) -> str:
        """The unit in which lengths are counted: ``"frame"``, ``"byte"`` (of UTF-8) or ``"symbol"``."""
        return UNITS[self.kind]

    @property
    def n_units(self) -> np.ndarray:
        """The length of each sequence in frames, UTF-8 bytes or symbols, shape ``(n,)``, int64."""
        if self.kind != "text":
            return np.fromiter(map(len, self.items), np.int64, len(self.items))
        return np.array([n_units_of(x) for x in self.items], dtype=np.int64)

    @property
    def n_units_of_past(self) -> np.ndarray:
        """The number of frames, UTF-8 bytes or symbols known before each sequence (its past), shape ``(n,)``."""
        if self.past is None:
            return np.zeros(len(self), dtype=np.int64)
        return np.array([0 if x is None else n_units_of(x) for x in self.past])

    @property
    def n_features(self) -> int:
        """The number D of features of vectors; 1 for text and symbols."""
        first = self.items[0]
        return 1 if isinstance(first, str) or first.ndim == 1 else int(first.shape[1])

    def regular(
        self,
        *,
        inputs: Literal["hold", "interpolate"] | None = None,
        irregular: Literal["refuse", "keep"] = "refuse",
    ) -> Sequences:
        """Return the same vectors with a row of missing values (NaN) at each step that their times leave out.

        Models take rows for steps, so a missing row would shift a season. The times must have one step, of numbers or
        dates, or one frequency of the calendar: months, quarters, years or business days. All metadata are kept.

        Args:
            inputs: how the inputs of added steps are filled in: ``"hold"`` repeats the step before, and
                ``"interpolate"`` draws a line from the step before to the step after. None refuses sequences with
                inputs if a step is added, because inputs may not be missing.
            irregular: ``"refuse"`` raises an error for a sequence whose times have no common step, or leave out more
                steps than there are; ``"keep"`` leaves such a sequence as it is.

        Raises:
            ValueError: the sequences are not vectors, have no times or have a past; a sequence is irregular; or inputs
                of added steps are unknown.

        >>> x = Sequences([np.array([[1.0], [2.0], [4.0]])], times=[["2024-01-01", "2024-01-02", "2024-01-04"]])
        >>> x.regular().items[0].ravel().tolist()
        [1.0, 2.0, nan, 4.0]
        """
        if self.kind != "vectors" or self.times is None:
            what = f"are {self.kind}, of which none can be missing" if self.kind != "vectors" else "have no times"
            raise ValueError(f"these sequences {what}; regular() needs vectors with times")
        if self.past is not None:
            raise ValueError(
                "these sequences have a past, which would have to be regular too; call regular before split, or pass "
                "X.including_past()"
            )
        check_options(Sequences.regular, inputs=inputs, irregular=irregular)
        each = [every_step(times) for times in self.times]
        for name, times, steps in zip(self.names, self.times, each, strict=True):
            if steps is None and irregular == "refuse":
                raise ValueError(
                    f"the times of sequence {name!r} are not regular: {_gaps_in_words(times)}; bring them to one step, "
                    "as frame.resample of pandas does, or take a model that reads times (time_step=)"
                )
        as_they_are = [(times, np.arange(len(times))) for times in self.times]
        steps_of = [kept if steps is None else steps for kept, steps in zip(as_they_are, each, strict=True)]
        grids, places = [grid for grid, _ in steps_of], [at for _, at in steps_of]
        n_added = sum(map(len, grids)) - sum(map(len, places))
        if not n_added:
            return self
        if self.inputs is not None and inputs is None:
            raise ValueError(
                f"{n_added} steps are added, whose inputs ({listed(self.input_names or ())}) are not known; pass "
                "inputs='hold' or 'interpolate', or give the sequences their inputs afterwards, with with_inputs"
            )
        pairs = [(x, at, len(grid)) for x, at, grid in zip(self, places, grids, strict=True)]
        known = None
        if self.inputs is not None:
            rows = zip(self.inputs, places, grids, strict=True)
            known = [_inputs_at_every_step(u, at, len(grid), inputs == "hold") for u, at, grid in rows]
        made = self.with_items([_on_grid(*pair) for pair in pairs], times=grids, inputs=known)
        made.grid = self.grid
        return made

    # -- cutting -------------------------------------------------------------------------------------------

    def split(
        self,
        test: float = 0.2,
        *,
        by: str | None = None,
        random_state: Seed = 0,
        past: int | None = PAST_OF_TEST,
    ) -> tuple[Sequences, Sequences]:
        """Return a training part and a test part: whole sequences at random, or whole groups of a metadata column.

        A single sequence is cut in time instead: the test part is its tail. It keeps steps before it as its ``past``,
        and models score it given that past.

        Args:
            test: fraction to hold out, between 0 and 1.
            by: the metadata column whose groups are kept together; None means that sequences are drawn one by one.
            random_state: seed of the random draw.
            past: for a single sequence, the number of steps (of text, characters) before the test part that it keeps; 0
                keeps none, None keeps all. The default is bounded because every model reads the past again whenever it
                scores. Steps that a model does not look back to change nothing: a model with ``context=n`` needs n.

        Returns:
            The training part and the test part.

        Raises:
            ValueError: an argument is invalid, all sequences are in one group, or a single sequence is too short.

        >>> train, test = Sequences([np.arange(10.0)[:, None]]).split(0.2, past=3)
        >>> test.items[0].ravel().tolist(), test.past[0].ravel().tolist()
        ([8.0, 9.0], [5.0, 6.0, 7.0])
        """
        import pandas as pd

        if not (isinstance(test, int | float | np.floating) and 0 < test < 1):
            raise ValueError(f"test is {test}; pass the fraction to hold out, between 0 and 1")
        check_options(Sequences.split, by=by, random_state=random_state)
        check_n_past(past)
        if len(self) == 1:
            return self._cut_tail(test, past)
        if by is not None and by not in self.metadata:
            raise ValueError(
                f"there is no column {by!r} to split by; the metadata have "
                f"{', '.join(map(str, self.metadata.columns)) or 'none'}"
            )
        groups = pd.factorize(self.metadata[by])[0] if by else np.arange(len(self))
        if (groups < 0).any():
            raise ValueError(
                f"sequence {int(np.argmax(groups < 0))} has no {by!r} to split by; give it one, or leave it out"
            )
        n_groups = int(groups.max()) + 1
        if n_groups < 2:
            raise ValueError(f"all sequences have the same {by!r}; nothing would be left to train on")
        n_test = min(max(1, round(test * n_groups)), n_groups - 1)
        held_out = np.isin(groups, np.random.default_rng(random_state).permutation(n_groups)[:n_test])
        return self.take(~held_out), self.take(held_out)

    def _cut_tail(self, test: float, past: int | None) -> tuple[Sequences, Sequences]:
        item = self.items[0]
        at = len(item) - max(1, round(test * len(item)))
        if at < 1:
            raise ValueError("the one sequence is too short to split; it needs at least two steps")
        return self.segments([(0, 0, at)], past=past), self.segments([(0, at, len(item))], past=past)

    def chunks(self, length: PositiveInt, *, past: int | None = 0) -> Sequences:
        """Cut the sequences into consecutive pieces of ``length`` steps, or characters of text, and return these.

        If there are several sequences without clusters, the cluster of a piece is the name of its sequence.

        Args:
            length: number of steps of a piece; the last piece of a sequence may have fewer.
            past: number of steps before each piece that it keeps as its past. With 0, a piece is scored as a sequence
                that begins there; ``fit`` reads it so in any case. With None, a piece keeps everything before it. The
                pieces' log-probabilities then sum to the log-probability of the whole (under ``length="given"``), but
                every model reads all of the past again for each piece.
        """
        check_options(Sequences.chunks, length=length)
        cuts = [(i, k, k + length) for i, item in enumerate(self.items) for k in range(0, len(item), length)]
        pieces = self.segments(cuts, past=past)
        if "cluster" not in pieces.metadata and len(self) > 1:
            names = self.names
            return pieces.with_metadata(pieces.metadata.assign(cluster=[names[i] for i, _, _ in cuts]))
        return pieces

    def continuation(self, context: int) -> tuple[Sequences, Sequences]:
        """Return ``(X, y)``: the first ``context`` steps (characters of text) of each sequence, and the rest.

        Neither part has a past. Sequences that are not longer than ``context`` are left out.

        Args:
            context: number of steps, or characters, in the first part.

        Raises:
            ValueError: ``context`` is not an integer of at least 1, or no sequence is longer.
        """
        if not (isinstance(context, int | np.integer) and context >= 1):
            raise ValueError(f"context is {context!r}; pass at least 1")
        long_enough = [i for i, item in enumerate(self.items) if len(item) > context]
        if not long_enough:
            raise ValueError(f"no sequence is longer than context={context}; pass a shorter context")
        return (
            self.segments((i, 0, context) for i in long_enough),
            self.segments((i, context, len(self.items[i])) for i in long_enough),
        )

    @checked
    def dithered(self, random_state: Seed = 0, *, like: Sequences | None = None) -> Sequences:
        """Return the vectors with uniform noise added, one grid step wide, which is the same for every model.

        A density grows without bound on values that lie on a grid; noise prevents that. The step of a feature is the
        smallest gap between its values. Dither before ``split``, or dither the training part first and pass it as
        ``like`` for the others. The grid stays with the sequences and is part of a model's ``Measure``, because wider
        noise lowers densities. The noise depends on the values as well as on the seed, so no two parts get the same.

        Args:
            random_state: seed of the noise.
            like: dithered sequences whose noise widths are used; None means that the widths come from these sequences.

        Raises:
            ValueError: the sequences are not vectors or are dithered already; or ``like`` has other features or no
                grid.
        """
        if self.kind != "vectors":
            raise ValueError(f"only vectors are dithered, these are {self.kind}")
        if self.grid is not None:
            raise ValueError("these sequences are dithered already; take them as they are")
        before = [np.zeros((0, self.n_features)) if x is None else np.asarray(x) for x in self.past or []]
        frames = np.concatenate([np.asarray(x) for x in (*before, *self.items)])
        n_before = sum(map(len, before))
        grid = np.array([grid_step(column) for column in frames[n_before:].T] if like is None else self._grid_of(like))
        content = int.from_bytes(hashlib.blake2b(np.ascontiguousarray(frames).data, digest_size=8).digest())
        noise = np.random.default_rng([random_state, content]).uniform(-0.5, 0.5, frames.shape) * grid
        noisy = np.split(frames + noise, np.cumsum([*map(len, before), *self.n_units])[:-1])
        past: list[Item | None] = [x if len(x) else None for x in noisy[: len(before)]]
        dithered = self._like(list(noisy[len(before) :]), self.metadata, self.times, past or None, self._inputs)
        dithered.grid, dithered.past_times = tuple(grid.tolist()), self.past_times
        return dithered

    def _grid_of(self, like: Sequences) -> tuple[float, ...]:
        if like.grid is None:
            raise ValueError("like is not dithered, so it has no grid; pass like=train.dithered()")
        if like.n_features != self.n_features:
            raise ValueError(f"like has {like.n_features} features but these sequences have {self.n_features}")
        return like.grid

    def profile(self) -> pd.DataFrame:
        """Return a table that shows, for each feature of vectors, values on which a density could grow without bound.

        It has one row per feature and the columns ``missing`` (share of the frames), ``n_values`` (number of distinct
        values), ``low``, ``high``, ``step`` (smallest gap between values; NaN if values hardly repeat), ``spike`` (a
        value that far more frames have than any other; NaN if there is none), ``spike_share`` (its share of the
        observed frames), ``deviation`` (standard deviation of the values other than the spike) and ``kind``, which is
        ``missing``, ``constant``, ``bits``, ``counts``, ``spike``, ``grid`` or ``reals``.

        Raises:
            ValueError: the sequences are not vectors.

        >>> rain = np.where(np.arange(40) % 10 == 0, np.arange(40) * 0.37, 0.0)
        >>> Sequences([np.stack([rain, np.sin(np.arange(40))], axis=1)]).profile()["kind"].tolist()
        ['spike', 'reals']
        """
        import pandas as pd

        if self.kind != "vectors":
            raise ValueError(f"only vectors have a profile by feature, these are {self.kind}")
        frames = np.concatenate([np.asarray(x) for x in self.items])
        return pd.DataFrame([asdict(profile_of(column)) for column in frames.T], index=self.features)

    def describe(self) -> str:
        """Return one line that says how many sequences there are, what they hold, and their times, labels and metadata.

        >>> x = Sequences([["sit", "walk"], ["sit"]], names=["ann", "bob"], by="who", labels=["ill", "well"])
        >>> x.describe()
        '2 sequences, 3 symbols: sit, walk; by who; labels ill, well'
        """
        n_units = int(self.n_units.sum())
        n = f"{len(self):,} {'text' if self.kind == 'text' else 'sequence'}{'s' * (len(self) != 1)}"
        parts = [f"{n}, {n_units:,} {self.unit}{'s' * (n_units != 1)}{self._in_words()}"]
        if self.past is not None:
            parts.append(f"given {self._past_in_words()}")
        if self.input_names is not None:
            parts.append(f"inputs {listed(self.input_names)}")
        if self.by != "sequence":
            parts.append(f"by {self.by}")
        if self.times is not None:
            ends = np.array([min(each[0] for each in self.times), max(each[-1] for each in self.times)])
            begin, end = on_its_clock(ends, self.time_unit)
            is_zone = self.time_unit and ends.dtype.kind == "M"
            unit = f" {zone_in_words(self.time_unit) if is_zone else self.time_unit}" if self.time_unit else ""
            parts.append(f"{self.time_name} from {time_in_words(begin)} to {time_in_words(end)}{unit}")
        for what, values in (("labels", self.labels), ("clusters", self.clusters)):
            if values is not None:
                parts.append(f"{what} {listed(list(dict.fromkeys(values)))}")
        rest = [column for column in self.metadata if column not in ("name", "label", "cluster")]
        return "; ".join([*parts, f"metadata {listed(rest)}"] if rest else parts)

    def _in_words(self) -> str:
        """Return a phrase that says what the steps hold: the symbols, or the kinds of values of the features."""
        if self.kind == "text":
            return ""
        if self.kind == "symbols":
            if self.symbols is not None:
                return f": {listed(self.symbols)}"
            return f": 0 to {max(largest_symbol(item) for item in self.items)}"
        some = _some_frames(self.items)
        kinds: dict[str, list[str]] = {}
        names = self.features or [str(i) for i in range(self.n_features)]
        for name, column in zip(names, some.T, strict=True):
            kinds.setdefault(SHAPES[profile_of(column).kind], []).append(name)
        if self.features is None and len(kinds) == 1:
            said = f", {self.n_features} feature{'s' * (self.n_features != 1)}: {next(iter(kinds))}"
        else:
            said = ", features " + "; ".join(f"{listed(names)}: {kind}" for kind, names in kinds.items())
        missing = float(np.isnan(some).mean())
        return said + (f"; {missing:.1%} of the values missing" if missing else "")


def _checked_cuts(cuts: Any, n: int) -> list[tuple[int, int, int]]:
    """Return parts of sequences ``(i, start, stop)`` as integers; raise ``ValueError`` if one is malformed.

    Args:
        cuts: the parts, each with the number of a sequence, the first step and the step after the last.
        n: number of sequences.
    """
    try:
        parts = [(operator.index(i), operator.index(a), operator.index(b)) for i, a, b in cuts]
    except (TypeError, ValueError):
        said = in_one_line(cuts)
        raise ValueError(f"cuts is {said:.80}; pass (i, start, stop) of each part, in whole numbers") from None
    outside = [i for i, _, _ in parts if not -n <= i < n]
    if outside:
        raise ValueError(f"cuts has a part of sequence {outside[0]}, but there are {n}, from 0 on")
    return parts


def _beginning(item: Item) -> str:
    """Return a text, or symbols as text, cut to ``MAX_CHARACTERS_SHOWN`` characters for display."""
    if is_mapped_text(item):
        beginning: Any = item[: 4 * (MAX_CHARACTERS_SHOWN + 1)]  # a character has four bytes at most
        item = beginning.tobytes().decode("utf-8", errors="ignore")
    text = (
        repr(item[: MAX_CHARACTERS_SHOWN + 1])[1:-1]
        if isinstance(item, str)
        else " ".join(map(str, item[:MAX_CHARACTERS_SHOWN]))
    )
    return text if len(text) <= MAX_CHARACTERS_SHOWN else f"{text[:MAX_CHARACTERS_SHOWN]}..."


def as_sequences(X: Any) -> Sequences:
    """Return what a user passed to a model as validated ``Sequences``.

    Args:
        X: ``Sequences``, or whatever its constructor accepts as items, such as a list of arrays or texts.

    Raises:
        ValueError: it cannot be read as sequences; the message says why.
    """
    return X if isinstance(X, Sequences) else Sequences(X)


def _with_mask(X: Any) -> np.ndarray:
    return X if isinstance(X, np.ma.MaskedArray) else np.asarray(X)


def items_of_both(X: Sequences, y: Sequences) -> Sequences:
    """Return sources and the targets predicted from them in one container, to fit one encoding to both.

    The container has the symbols of both, and names of features and a grid if they agree. Metadata, times and pasts are
    dropped.

    Args:
        X: the sources.
        y: the targets.

    Raises:
        ValueError: sources and targets differ in their number of features or type of symbols.
    """
    items = [*X, *y]
    check_alike(X.kind, items)
    both = X._with(items, _metadata(len(items), None, {}), None, None, None)
    both.symbols = symbols_of_all([X, y])
    both.features = X.features if X.features == y.features else None
    both.grid = X.grid if X.grid == y.grid else None
    return both


def symbols_of_all(parts: Sequence[Sequences]) -> tuple[str, ...] | None:
    """Return the union of the names of symbols of several containers; None if one has integers without names.

    The union is in alphabetical order if each container's symbols are, and otherwise in order of first appearance.

    Args:
        parts: the containers.
    """
    if any(part.symbols is None for part in parts):
        return None
    each = [list(part.symbols or ()) for part in parts]
    symbols = tuple(dict.fromkeys(name for names in each for name in names))
    return tuple(sorted(symbols)) if all(names == sorted(names) for names in each) else symbols


# -- descriptions --------------------------------------------------------------------------------------------


def _some_frames(items: list[Item]) -> np.ndarray:
    """Return frames from all over the sequences, shape ``(N, D)``: all frames unless they are very many."""
    stride = -(-sum(map(len, items)) // N_PROFILED)
    return np.concatenate([_every(item, stride) for item in items])


def _every(item: Any, stride: int) -> np.ndarray:
    """Return frames 0, ``stride``, 2 ``stride``, ... of a sequence in memory or in a file, shape ``(m, D)``."""
    if isinstance(item, MappedArray):
        return np.concatenate([item.read(t, t + 1) for t in range(0, len(item), stride)])
    return np.asarray(item[::stride])


# -- times and frames ----------------------------------------------------------------------------------------


def _on_grid(item: Item, places: np.ndarray, n: int) -> np.ndarray:
    """Return frames at every step of a grid, ``(n, D)``: known ones at their positions, and NaN at all others.

    Args:
        item: the known frames, ``(T, D)``.
        places: position of each known frame, ``(T,)``.
        n: number of steps of the grid.
    """
    frames = np.asarray(item)
    rows = np.full((n, frames.shape[1]), np.nan)
    rows[places] = frames
    return rows


def _inputs_at_every_step(inputs: np.ndarray, places: np.ndarray, n: int, holds: bool) -> np.ndarray:
    """Return inputs at every step of a grid, ``(n, U)``, from the inputs at some of its steps.

    Args:
        inputs: the known inputs, ``(T, U)``.
        places: position of each known step, ``(T,)``.
        n: number of steps of the grid.
        holds: True if other steps repeat the inputs before them; False if they are interpolated.
    """
    if holds:
        return np.asarray(inputs[np.searchsorted(places, np.arange(n), side="right") - 1])
    return np.stack([np.interp(np.arange(n), places, column) for column in inputs.T], axis=1)


def _gaps_in_words(times: np.ndarray) -> str:
    """Return a phrase that says why times are irregular: two steps at one time, or steps of different lengths."""
    steps = np.diff(times)
    if not (steps > np.zeros(1, steps.dtype)).all():
        t = int(np.argmin(steps > np.zeros(1, steps.dtype)))
        return f"steps {t} and {t + 1} are at one time, {time_in_words(times[t])}"
    return f"steps between them are of {len(np.unique(steps))} lengths, {steps.min()} to {steps.max()}"


def _are_codes(columns: pd.DataFrame) -> bool:
    """Return True if a table has a single column, of text made of digits only and without missing cells.

    Such a column is read as symbols.
    """
    import pandas as pd

    if columns.shape[1] != 1 or not pd.api.types.is_string_dtype(columns.dtypes.iloc[0]):
        return False
    return bool(columns.iloc[:, 0].astype(str).str.isdecimal().all())


def _columns_left(frame: pd.DataFrame, left: list[Any]) -> list[Any] | str:
    """Return the columns of numbers among those without another use; or the only column if it holds symbols.

    Warn of columns that are left out. Raise ``ValueError`` if no choice is possible.

    Args:
        frame: the table.
        left: names of the columns without another use.
    """
    import pandas as pd

    numbers = [c for c in left if pd.api.types.is_numeric_dtype(frame[c])]
    others = [c for c in left if c not in set(numbers)]
    if len(left) > 1:
        refuse_unread(frame, others, place_in_frame, "if it is not a feature, name those that are with columns=")
    if numbers:
        if others:
            said = listed([f"{c} ({_taken_for(frame[c])})" for c in others])
            warn_caller(
                f"the frame: left out {said}; name what is to be modelled with columns=, and what says something of a "
                "whole sequence with metadata=",
            )
        return numbers
    if len(left) != 1:
        raise ValueError(f"no column of numbers is left beside {len(left)} others; name the symbols: columns='...'")
    refuse_unread(frame, left, place_in_frame, f"if they are words, pass columns={left[0]!r}")
    if pd.api.types.is_timedelta64_dtype(frame[left[0]]):
        raise ValueError(f"the column {left[0]!r} holds durations, no numbers; pass column.dt.total_seconds()")
    return str(left[0])


def _taken_for(column: pd.Series) -> str:
    """Return a phrase that says what a column that does not hold numbers holds, such as words or dates."""
    import pandas as pd

    if column.isna().all():
        return "empty"
    if pd.api.types.is_datetime64_any_dtype(column):
        return "dates"
    return "words" if pd.api.types.is_string_dtype(column.dropna()) else f"no words, no numbers, but {column.dtype}"


def _refuse_going_back(
    frame: pd.DataFrame, time: str, ranks: np.ndarray, codes: np.ndarray, by: str | None, others: Sequence[str]
) -> None:
    """Raise ``ValueError`` if times of the index decrease within a sequence although the caller did not name them.

    Sorting by these times would change the order of the rows. ``ranks (N,)`` are the ranks of the rows' times, which
    the column ``time`` holds, and ``codes (N,)`` the numbers of their sequences, which the column ``by`` names.
    ``others`` are columns that may separate several series, for advice in the message.
    """
    order = np.lexsort((np.arange(len(codes)), codes))
    back = (np.diff(ranks[order]) < 0) & (np.diff(codes[order]) == 0)
    if back.any():
        row = int(order[int(np.argmax(back)) + 1])
        separating = None if by is not None else series_of_rows(frame, time, by, others).by
        said = "" if separating is None else repr(separating)
        several = "" if by is not None else f", or name the column that says which sequence a row is of, with by={said}"
        raise ValueError(
            f"the times of the frame's index go back at row {row}, to {frame[time].iloc[row]}; sort the rows by time "
            f"(frame.sort_index()){several}, or leave the times out: frame.reset_index(drop=True)"
        )


def _warn_of_names_alike(by: str, names: list[Any]) -> None:
    """Warn of two names of sequences that differ only in spaces or capitals, because they may be one name."""
    seen: dict[str, str] = {}
    for name in names:
        alike = seen.setdefault(" ".join(name.split()).casefold(), name) if isinstance(name, str) else name
        if alike != name:
            warn_caller(
                f"the column {by!r} has {alike!r} and {name!r}, which differ by spaces or capitals alone and are taken "
                f"for two sequences; if they are one, write them alike: frame[{by!r}].str.strip().str.lower()"
            )
            return


def _refuse_several_series(frame: pd.DataFrame, time: str, by: str | None, others: Sequence[str]) -> None:
    """Raise ``ValueError`` if the rows of ``frame`` hold several series that the column ``by`` does not separate.

    ``time`` is the column of times. If ``by`` is None, all rows are one sequence. ``others`` are columns that may
    separate the series, for advice in the message.
    """
    series = series_of_rows(frame, time, by, others)
    if series.by != by:
        raise ValueError(f"{series.said}; pass by={series.by!r} to from_frame")


def _refuse_several_in_one_frame(frames: Sequence[Any], times: Sequence[pd.Index], time_name: str) -> None:
    """Raise ``ValueError`` if the ``times`` in the index of one of ``frames`` repeat, because it holds several series.

    There is a frame for each sequence; ``time_name`` is the name of the times.
    """
    for i, (frame, of_rows) in enumerate(zip(frames, times, strict=True)):
        if of_rows.has_duplicates and frame.ndim == 2:
            rows = frame.reset_index(drop=True).assign(**{time_name: of_rows.array})
            try:
                _refuse_several_series(rows, time_name, None, [c for c in rows if c != time_name])
            except ValueError as error:
                raise ValueError(f"sequence {i}: {error}") from None


def _steps_of(group: pd.DataFrame, columns: Sequence[str] | str) -> np.ndarray:
    """Return the rows of one sequence as vectors of the ``columns``, NaN where missing, or symbols of one column."""
    if isinstance(columns, str):
        return group[columns].to_numpy()
    if len(columns) >= MANY_COLUMNS and all(dtype.kind in "iufb" for dtype in group[list(columns)].dtypes):
        return group[list(columns)].to_numpy(dtype=np.float64, na_value=np.nan)
    return np.stack([_numbers_of(group[column]) for column in columns], axis=1)


def _numbers_of(column: pd.Series) -> np.ndarray:
    import pandas as pd

    if pd.api.types.is_complex_dtype(column):
        raise ValueError(
            f"the column {column.name!r} holds complex numbers; model their real and imaginary parts as two columns"
        )
    if pd.api.types.is_numeric_dtype(column):
        return column.to_numpy(dtype=np.float64, na_value=np.nan)
    return column.to_numpy()


def _constant(groups: list[pd.DataFrame], column: str, by: str | None) -> list[Any]:
    """Return the value that ``column`` has in each sequence; raise ``ValueError`` if it changes within one.

    ``groups`` are the rows of each sequence. ``by`` is the column that names a sequence, for the message, or None.
    """
    values = []
    for group in groups:
        here = group[column]
        if here.nunique(dropna=False) > 1:
            where = "the one sequence" if by is None else f"the sequence whose {by!r} is {group[by].iloc[0]!r}"
            raise ValueError(
                f"{column!r} changes within {where}, so it cannot be its label; for a symbol a step make a second "
                f"Sequences with columns={column!r}"
            )
        values.append(here.iloc[0])
    return values


def _checked_grid(grid: Sequence[float]) -> tuple[float, ...]:
    """Return the widths of noise as a tuple; raise ``ValueError`` if one is negative or not a finite number."""
    try:
        widths = tuple(map(float, grid))
    except (TypeError, ValueError):
        raise ValueError(f"grid is {grid!r:.80}; pass a width for each feature, as dithered() writes them") from None
    for i, width in enumerate(widths):
        if not 0 <= width < np.inf:
            raise ValueError(f"grid has {width} for feature {i}; a width of noise is finite, and 0 where there is none")
    return widths


def _metadata(n: int, metadata: pd.DataFrame | None, columns: dict[str, Sequence[Any] | None]) -> pd.DataFrame:
    import pandas as pd

    if not isinstance(metadata, pd.DataFrame | None):
        raise ValueError(f"metadata is {in_words(metadata)}; pass a pandas DataFrame, a row for each sequence")
    table = pd.DataFrame(index=range(n)) if metadata is None else metadata.reset_index(drop=True).copy()
    if len(table) != n:
        raise ValueError(f"metadata has {len(table)} rows but there are {n} sequences; pass one row each")
    for name, values in columns.items():
        if values is not None:
            if not (isinstance(values, Sized) and isinstance(values, Iterable)):
                raise ValueError(f"{name}s is {in_words(values)}; pass a list, a {name} for each sequence")
            if len(values) != n:
                raise ValueError(f"there are {len(values)} {name}s but {n} sequences; pass one each")
            table[name] = list(values)
    return table
