"""``Sequences``: ragged sequences of one kind in one container, and the forms of data it is made from."""

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
MANY_COLUMNS = 100  # of a frame, from which on they are taken together
MAX_ROWS_SHOWN, MAX_CHARACTERS_SHOWN = 10, 60  # of sequences in a notebook
PAST_OF_TEST = 10_000  # steps before the tail of a single series that it keeps
# The shapes of ``profile`` in words.
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
    """A list of sequences of one kind, with one row of metadata each.

    Args:
        items: ``(T, D)`` float arrays (vectors), ``str`` (text), or 1-D arrays or lists of integers or of strings
            (symbols). NaN in a vector means missing, and so does what a masked array masks. Items are validated and
            copied to float64, int64 or arrays of ``str`` unless they already are; tensors are taken off their device
            and their graph; ``np.memmap`` stays on disk, and is read a block at a time (``mapped.MappedArray``).
        names: a name for each sequence, by which it is found, too: ``x["s3"]``.
        labels: a label for each, such as the digit spoken.
        clusters: what each belongs to (a speaker, a document): sequences of one cluster are not independent.
        metadata: any further columns; ``name``, ``label`` and ``cluster`` are those above.
        grid: of vectors, for each feature the width of the noise that ``dithered`` added, in its raw unit; None: not
            dithered.
        features: a name for each feature of vectors; of symbols one, of what they are.
        symbols: the name of each symbol 0 .. V - 1 (a ``Vocabulary`` will do): items of integers become strings. Of
            items of strings all that there may be; None: those that there are, in alphabetical order.
        times: for each sequence ``(T,)`` times of its steps, dates or numbers, none missing and none before the last.
            None: of items that are frames of pandas, what their index holds of dates, or of numbers that are called
            ``time``, ``t``, ``date`` or ``timestamp``.
        time_name: what the times are called; the column of ``to_frame``.
        time_unit: what times that are numbers count, such as ``"s"``; of dates that had a time zone its name, where
            they are local times (days, weeks, months), or ``"UTC (Europe/Berlin)"``, where they are in UTC.
        by: what a sequence is, such as ``"subject"``; the column of ``to_frame``.
        past: for each sequence the steps that came immediately before it, an item as ``items`` has; None: it begins
            there, or nothing is known of what came before. ``split`` of a single series keeps it. It is not scored:
            models score the sequence given its past (``log p(x_t | past, x_<t)``), and ``fit`` does not read it.
        inputs: for each sequence ``(T, U)`` finite numbers, what is known at each of its steps beside it (exogenous
            inputs, covariates), or a frame of pandas. They are not modelled: a model that reads them is
            ``p(x | inputs)``, in which the inputs of step t are known when step t is predicted; others do not look at
            them. Not of text.
        input_names: a name for each input; None: the columns of frames, or ``u0, u1, ...``.
        past_inputs: for each sequence the inputs ``(P, U)`` of the steps of its past, or None; needed where sequences
            have a past and inputs.
        past_times: for each sequence the times ``(P,)`` of the steps of its past, or None; models that read times need
            them.

    Raises:
        ValueError: names the sequence, the position in it, and the way out.

    >>> x = Sequences([np.zeros((3, 2)), np.ones((2, 2))], clusters=["ann", "bob"], features=["ax", "ay"])
    >>> x.kind, x.n_units.tolist(), x.n_features
    ('vectors', [3, 2], 2)
    >>> Sequences([["sit", "walk", "walk"], ["sit"]]).symbols
    ('sit', 'walk')
    """

    # Also of objects that an earlier version pickled:
    past: list[Item | None] | None = None
    past_times: list[np.ndarray | None] | None = None  # of the steps of each past; None: they are not known
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
        if (time_name, time_unit, by) != ("time", None, "sequence"):  # a stream makes one of each step
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
        """A row for each sequence, in columns ``name``, ``label``, ``cluster`` and others, if there are any."""
        return _metadata(len(self), None, {})  # when it is asked for: it takes half of the time

    # -- other forms of data -------------------------------------------------------------------------------

    @classmethod
    def from_lengths(cls, X: np.ndarray, lengths: Sequence[int], **metadata: Any) -> Self:
        """Sequences laid end to end, as in hmmlearn: ``X (N, D)`` or ``(N,)``, and ``lengths`` that sum to N."""
        X, counts = _with_mask(X), checked_lengths(lengths)
        if X.ndim == 0:
            raise ValueError("X has no rows; pass an array of shape (N, D) or (N,)")
        if counts.sum() != len(X):
            raise ValueError(f"lengths sum to {counts.sum()} but X has {len(X)} rows; they must agree")
        return cls(np.split(X, np.cumsum(counts)[:-1]), **metadata)

    @classmethod
    def from_padded(cls, array: np.ndarray, lengths: Sequence[int], **metadata: Any) -> Self:
        """A padded array of shape ``(n, T, D)`` or ``(n, T)`` and the real length of each row."""
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
        """A long frame, one row a step. The columns keep their names; ``to_frame`` is the inverse.

        Args:
            frame: of any index. Its levels are columns too, by their names.
            by: the column that names the sequence of a row; None: all rows are one sequence.
            columns: the features of vectors; one ``str``: the column of symbols, whole numbers or words. Of a
                categorical column the categories are the symbols, in their order. None: all columns of numbers that
                no other argument names, or, where there are none, the one other column, of symbols.
            time: a column of dates (as words, too) or numbers, by which the steps of a sequence are put in order, and
                which are their ``times``; None: rows are in order, and their times are an index (or level) of dates, or
                of numbers that is called ``time``, ``t``, ``date`` or ``timestamp``.
            time_unit: what the times count, where they are numbers; with it ``20190131`` or 2019 is no date.
            label, cluster, metadata: columns that say something of a whole sequence, so that all its rows agree.
            inputs: columns of numbers that are known at each step and not modelled.
            date_format: how dates are written, as ``datetime.strptime`` takes it (``"%d/%m/%Y"``); None: the way in
                which all of them can be read, and under which they are regular if that could be done in several.

        Raises:
            ValueError: a column that is not there; a row without a sequence or a time; times of an index that go back
                in a sequence; times that repeat in a sequence, as those of several series do; dates that can be read in
                two ways; a label that changes within a sequence; what ``Sequences`` refuses.
        """
        import pandas as pd

        frame = pandas_frame(frame)
        if not isinstance(frame, pd.DataFrame):
            raise ValueError(f"the frame is {in_words(frame)}; pass a pandas DataFrame, one row a step")
        of_frame = list(frame.columns)  # not of its index
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
                f"the column {words_as_inputs[0]!r} holds no numbers, so it is no input; make columns of 0 and 1 of "
                "it, with pandas.get_dummies"
            )
        words = [c for c in others if pd.api.types.is_string_dtype(frame[c])]
        if words:
            raise ValueError(
                f"the column {words[0]!r} holds words, which are no feature of vectors; leave it out, or for symbols "
                f"pass it alone: columns={words[0]!r}"
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
        """A long frame, one row a step: the inverse of ``from_frame``.

        Columns: ``by`` with the name of the sequence (its number, where several have one name), ``time_name`` where
        there are times, the features (``x0, x1, ...`` without names; of symbols ``symbol``), the inputs, and the
        metadata, the same in all rows of a sequence. Dates that had a time zone have it. The grid of dithered values
        is not in it, nor is the past of a sequence.

        Raises:
            ValueError: texts, which have no steps in a frame; two columns of one name.

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
        """A map-style torch dataset whose items are tensors, or tuples whose first entry is the sequence."""
        if not (isinstance(dataset, Sized) and hasattr(dataset, "__getitem__")):
            raise ValueError(
                f"the dataset is {in_words(dataset)}; pass a map-style one, which has a length and items by number"
            )
        items = (dataset[i] for i in range(len(dataset)))
        return cls([item[0] if isinstance(item, tuple) else item for item in items], **metadata)

    @classmethod
    @checked
    def joined(cls, parts: Iterable[Sequences]) -> Sequences:
        """The sequences of several containers in one, with their metadata, times, pasts and inputs.

        Symbols are those of all parts; features, grids, inputs and what times are called must agree, or are left out
        where some part has none.

        Raises:
            ValueError: parts of different kinds, with different features, grids, inputs or units of times.
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
        """The sequence at a position or of a name; of a slice of positions ``Sequences``."""
        if isinstance(index, slice):
            return self.take(np.arange(len(self))[index])
        if isinstance(index, str):
            return self.items[self._position(index)]
        if not hasattr(index, "__index__"):
            raise TypeError(
                f"index is {in_one_line(index):.80}; pass a position, a name or a slice; take(...) has lists"
            )
        if not -len(self) <= index < len(self):
            raise IndexError(f"there is no sequence {index}; there are {len(self)}, from 0 on")
        return self.items[index]

    def _position(self, name: str) -> int:
        """Of the sequence of this name; raises ``KeyError`` if there is none, or several."""
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
        """What a notebook shows: the sizes, and a row for each of the first sequences, with its metadata."""
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
        """The sequences at these positions (integers or a mask), with their metadata.

        ``axis`` is 0, as scikit-learn passes it.
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
        """These sequences; scikit-learn cuts what has ``iloc`` by ``take``, so that folds keep times and inputs."""
        return self

    def _rows(self, index: Any) -> np.ndarray:
        """Positions, which are there."""
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
        """Parts of sequences, with metadata, names and times: steps ``start .. stop - 1`` of sequence ``i``.

        Args:
            cuts: ``(i, start, stop)`` of each part, counted in steps (of text in characters).
            past: how many steps before each part it keeps as its past, those of the sequence's own past among them;
                0: none, so that a part is a sequence that begins there; None: all that there are. What is kept is a
                view where it can be; of what is on disk nothing is read.

        Raises:
            ValueError: a number of steps that cannot be.
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
        """Those of the last ``n`` steps before step ``start`` of sequence ``i``, or of as many as are known."""
        assert self.times is not None, "there are some"
        before, known = None if self.past_times is None else self.past_times[i], self.times[i][:start]
        whole = known if before is None else np.concatenate([before, known])
        return whole[max(0, len(whole) - n) :]

    def _before(self, i: int, start: int, n: int | None) -> Item | None:
        """The last ``n`` steps (None: all) before step ``start`` of sequence ``i``; None where there are none."""
        item, before = self.items[i], None if self.past is None else self.past[i]
        n_of_item = start if n is None else min(n, start)
        n_before = 0 if before is None else len(before) if n is None else min(n - n_of_item, len(before))
        parts = [steps_before(item, start, n_of_item)] if n_of_item else []
        if n_before and before is not None:
            parts.insert(0, steps_before(before, len(before), n_before))
        return None if not parts else parts[0] if len(parts) == 1 else joined_steps(parts)

    @checked
    def with_metadata(self, metadata: pd.DataFrame) -> Sequences:
        """The same sequences with another table of metadata, a row each."""
        made = self._with(self.items, metadata, self.times, self.past, self._inputs)
        made.past_times = self.past_times
        return made

    def with_inputs(self, inputs: Sequence[Any], names: Iterable[str] | None = None) -> Sequences:
        """The same sequences with other inputs: arguments as of ``Sequences``; what came before is left out."""
        checked = self.without_past()._checked_inputs(inputs, names, None)
        return self._with(self.items, self.metadata, self.times, None, checked)

    def with_lagged_inputs(self, k: int = 1) -> Sequences:
        """The same sequences with inputs k steps late: at step t those of step t - k, at the first k steps those of the
        first.

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
        """The same sequences, of which nothing is known to have come before; themselves where nothing is."""
        if self.past is None:
            return self
        inputs = None if self._inputs is None else self._inputs.without_past()
        return self._with(self.items, self.metadata, self.times, None, inputs)

    @checked
    def with_past_of(self, n: int) -> Sequences:
        """The same sequences, each with at most the last ``n`` steps of its past; themselves where none has one."""
        return self if self.past is None else self.segments(((i, 0, len(x)) for i, x in enumerate(self)), past=n)

    def including_past(self) -> Sequences:
        """The same sequences, each beginning with the steps of its past; themselves where none has one.

        Inputs are those of the past and of the sequence. So are times, which are left out where those of some past are
        not known.

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
        """Return other sequences in the place of these, with the names, labels, clusters and other metadata of these.

        Args:
            items: one sequence for each, of any kind; the grid of ``dithered`` is not kept.
            times: the times of their steps, an array for each; ``"keep"``: those of these sequences, whose steps must
                be as many; None: no times.
            inputs: likewise the inputs, of the same names.
            features: a name for each feature; None: those of these sequences if there are as many, or else none.
            past: the past of each, or None, with the inputs and times of the steps of the past of these; None: no past.

        Raises:
            ValueError: another number of sequences; another number of steps than times or inputs that are kept; what
                ``Sequences`` refuses.
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
        """Raise ``ValueError`` where new sequences cannot have the ``name`` (times, inputs) of these."""
        if new.kind == "text":
            raise ValueError(
                f"these sequences have {name}, which texts do not have; pass {name}=None to leave them out"
            )
        changed = np.flatnonzero(new.n_units != self.n_units)
        if len(changed):
            i = int(changed[0])
            raise ValueError(
                f"sequence {i} has {self.n_units[i]} steps with {name} and becomes one of {new.n_units[i]} steps; pass "
                f"{name}=, those of the new steps, or {name}=None to leave them out"
            )

    def map(
        self,
        function: Callable[[Any], Any],
        *,
        times: Callable[[np.ndarray], Any] | Literal["keep"] | None = "keep",
        inputs: Callable[[np.ndarray], Any] | Literal["keep"] | None = "keep",
        features: Iterable[str] | None = None,
    ) -> Sequences:
        """Return what ``function`` makes of each sequence, with names, labels, clusters and other metadata.

        Args:
            function: of one item, such as an array ``(T, D)``; it returns an item of any kind.
            times: a function of the times ``(T,)`` of a sequence, where other steps are made; ``"keep"``: they are kept
                where as many steps are made, and otherwise refused; None: they are left out.
            inputs: likewise a function of the inputs ``(T, U)``.
            features: a name for each feature that is made; None: those that there are, if as many are made.

        Raises:
            ValueError: names a sequence that the function refuses, or of which it makes other steps than it has times
                or inputs; sequences with a past.

        >>> x = Sequences([np.arange(4.0)[:, None]], times=[[0.0, 0.1, 0.2, 0.3]], labels=["seven"])
        >>> half = x.map(lambda frames: frames[::2], times=lambda t: t[::2])
        >>> half.times[0].tolist(), half.labels
        ([0.0, 0.2], ['seven'])
        """
        if self.past is not None:
            raise ValueError(
                "these sequences have a past, of which nothing would be made; call map before split, or pass "
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
        """The symbols of these sequences if they are all that others have; else those of the others."""
        if self.symbols is None or others.symbols is None or not set(others.symbols) <= set(self.symbols):
            return others.symbols
        return self.symbols

    def after_past(self) -> list[Item]:
        """Each item after its past, as one."""
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
        """New items, which are checked, but not their past; features, symbols and times are called as these are."""
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
        """Whole items of containers such as this one, which were checked when those were made, and are not again."""
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
        """The times of each sequence, and the ``time_unit`` of those that had a time zone."""
        if self.kind == "text":
            raise ValueError("texts have no times, which are of frames or symbols; leave times out")
        unit = None
        if isinstance(times, Sized) and isinstance(times, Iterable) and not isinstance(times, str):
            times, unit = without_zone([times_as_read(each) for each in times])
        return checked_times(times, [len(item) for item in self.items]), unit

    def _checked_past_times(self, past_times: Sequence[Any]) -> list[np.ndarray | None]:
        past = self.past or []
        rows = [i for i, x in enumerate(past) if x is not None]
        if self.times is None or not rows or len(past_times) != len(self):
            raise ValueError("past_times are of sequences that have a past and times; pass an array, or None, for each")
        extra = [i for i, t in enumerate(past_times) if i not in set(rows) and t is not None and np.size(t)]
        if extra:
            raise ValueError(
                f"sequence {extra[0]} has past_times but no past; pass its past too, or None in their place"
            )
        given = [in_unit(times_as_read(past_times[i]), self.time_unit) for i in rows]
        each = checked_times(given, [len(x) for x in past if x is not None])
        for i, before in zip(rows, each, strict=True):
            if before.dtype.kind != self.times[i].dtype.kind and "M" in before.dtype.kind + self.times[i].dtype.kind:
                raise ValueError(f"the times of sequence {i} and those of its past are not of one kind; pass one kind")
            if before[-1] > self.times[i][0]:
                raise ValueError(
                    f"the past of sequence {i} goes on to {before[-1]}, but it begins at {self.times[i][0]}"
                )
        known = dict(zip(rows, each, strict=True))
        return [known.get(i) for i in range(len(self))]

    def _checked_inputs(self, inputs: Any, names: Iterable[str] | None, past: Any) -> Inputs:
        if self.kind == "text":
            raise ValueError("texts have no inputs, which are of frames or symbols; leave inputs out")
        before = [0 if x is None else len(x) for x in self.past or [None] * len(self)]
        return Inputs.of(inputs, names, past, [len(item) for item in self.items], before)

    @property
    def inputs(self) -> list[np.ndarray] | None:
        """For each sequence ``(T, U)`` inputs of its steps; None: there are none."""
        return None if self._inputs is None else self._inputs.each

    @property
    def input_names(self) -> tuple[str, ...] | None:
        """The names of the U inputs; None: there are none."""
        return None if self._inputs is None else self._inputs.names

    @property
    def past_inputs(self) -> list[np.ndarray | None] | None:
        """For each sequence the inputs of the steps of its past, or None; None: no inputs or no past."""
        return None if self._inputs is None else self._inputs.past

    def inputs_after_past(self) -> list[np.ndarray] | None:
        """For each sequence the inputs of its past and of its steps, as one; None: there are no inputs."""
        return None if self._inputs is None else self._inputs.after_past()

    @property
    def names(self) -> list[Any]:
        names = self._column("name")
        return list(range(len(self))) if names is None else names

    @property
    def labels(self) -> list[Any] | None:
        return self._column("label")

    @property
    def clusters(self) -> list[Any] | None:
        return self._column("cluster")

    def _column(self, name: str) -> list[Any] | None:
        """Values of a column of the metadata; no table is made where none was given."""
        return list(self.metadata[name]) if "metadata" in vars(self) and name in self.metadata else None

    @property
    def unit(self) -> str:
        """What lengths are counted in: ``frame``, ``byte`` (UTF-8) or ``symbol``."""
        return UNITS[self.kind]

    @property
    def n_units(self) -> np.ndarray:
        """``(n,)`` length of each sequence in units of the raw data."""
        if self.kind != "text":
            return np.fromiter(map(len, self.items), np.int64, len(self.items))
        return np.array([n_units_of(x) for x in self.items], dtype=np.int64)

    @property
    def n_units_of_past(self) -> np.ndarray:
        """``(n,)`` length of each sequence's past in units of the raw data; 0 where it has none."""
        if self.past is None:
            return np.zeros(len(self), dtype=np.int64)
        return np.array([0 if x is None else n_units_of(x) for x in self.past])

    @property
    def n_features(self) -> int:
        """D of vectors; 1 for text and symbols."""
        first = self.items[0]
        return 1 if isinstance(first, str) or first.ndim == 1 else int(first.shape[1])

    def regular(
        self,
        *,
        inputs: Literal["hold", "interpolate"] | None = None,
        irregular: Literal["refuse", "keep"] = "refuse",
    ) -> Sequences:
        """Return the same vectors with a row of missing values (NaN) at each step that their times leave out.

        Models take rows for steps, so that a season shifts where a row is missing; of regular sequences it does not.
        Times have one step (of numbers or dates), or one frequency of the calendar: months, quarters, years, business
        days. Names, labels, clusters and all that is said of a sequence stay.

        Args:
            inputs: what the inputs of added steps are: ``"hold"``: those of the step before; ``"interpolate"``: on a
                line from the step before to the one after. None: sequences with inputs are refused if a step is added,
                since inputs may not be missing.
            irregular: a sequence whose times have no one step, or leave out more steps than there are, is refused with
                its name, or kept as it is.

        Raises:
            ValueError: sequences that are no vectors, have no times, or have a past; those said above.

        >>> x = Sequences([np.array([[1.0], [2.0], [4.0]])], times=[["2024-01-01", "2024-01-02", "2024-01-04"]])
        >>> x.regular().items[0].ravel().tolist()
        [1.0, 2.0, nan, 4.0]
        """
        if self.kind != "vectors" or self.times is None:
            what = f"are {self.kind}, of which none can be missing" if self.kind != "vectors" else "have no times"
            raise ValueError(f"these sequences {what}; regular() is of vectors with times")
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
        """Train and test parts: whole sequences at random, or whole groups of the metadata column ``by``.

        A single sequence is cut in time instead: its tail is the test part, which goes on where the training part
        ends. So it keeps the steps before it as its ``past``, given which models score it.

        Args:
            test: fraction to hold out.
            by: the column whose groups are not divided.
            random_state: seed of the draw.
            past: of a single sequence, how many of the steps before the test part (of text, characters) it keeps; 0:
                none; None: all. Bounded, because every model reads the past anew whenever it scores. What no model
                looks back at so far changes nothing: a model with ``context=n`` needs n.

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
        """Consecutive pieces of ``length`` steps (characters of text).

        The cluster of a piece is the sequence it came from, if there are several and they have no clusters.

        Args:
            length: steps of a piece; the last may have fewer.
            past: how many steps before each piece it keeps as its past. 0: none: a piece is scored as a sequence that
                begins there, which is what ``fit`` makes of it in any case. None: all: the pieces' log-probabilities
                then sum to that of the whole (under ``length="given"``), but every model reads all that came before
                anew for each piece.
        """
        check_options(Sequences.chunks, length=length)
        cuts = [(i, k, k + length) for i, item in enumerate(self.items) for k in range(0, len(item), length)]
        pieces = self.segments(cuts, past=past)
        if "cluster" not in pieces.metadata and len(self) > 1:
            names = self.names
            return pieces.with_metadata(pieces.metadata.assign(cluster=[names[i] for i, _, _ in cuts]))
        return pieces

    def continuation(self, context: int) -> tuple[Sequences, Sequences]:
        """``(X, y)``: the first ``context`` steps (characters of text) of each sequence, and the rest.

        The first steps are all that the rest is given: neither has a past. Sequences that are no longer than
        ``context`` are left out.
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
        """Vectors with uniform noise of one step of their grid added, by seed: the same noise for every model.

        Values on a grid make a density unbounded. The step of a feature is the smallest gap between its values: dither
        before ``split``, or learn the grid once, on the training part, and dither the others ``like`` it. The grid
        stays with the sequences and is part of a model's ``Measure``, since densities of data under wider noise are
        lower. The noise depends on the values, too, so that no two parts have the same.

        Args:
            random_state: seed.
            like: sequences that are dithered already: noise as wide as theirs.

        Raises:
            ValueError: sequences other than vectors, dithered already, or of other features than ``like``; ``like``
                without a grid.
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
        """A row a feature of vectors, by its name: what of its values would let a density grow without bound.

        Columns: ``missing`` (share of the frames), ``n_values`` (different ones), ``low``, ``high``, ``step`` (smallest
        gap between values; NaN where values hardly repeat), ``spike`` (the one value that far more frames have than any
        other; NaN: none), ``spike_share`` (of the frames observed), ``kind``: ``missing``, ``constant``, ``bits``,
        ``counts``, ``spike``, ``grid`` or ``reals``.

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
        """What the sequences are, in one line: how many, of what, by what, when, with which labels.

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
        """What the steps are made of."""
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
    """Parts ``(i, start, stop)`` of n sequences; raises ``ValueError`` for what is none."""
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
    """Of a text or symbols, ``MAX_CHARACTERS_SHOWN`` characters at most."""
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
    """What a user passes to a model, as validated ``Sequences``; raises ``ValueError`` as they do."""
    return X if isinstance(X, Sequences) else Sequences(X)


def _with_mask(X: Any) -> np.ndarray:
    """An array, masked if it was."""
    return X if isinstance(X, np.ma.MaskedArray) else np.asarray(X)


def items_of_both(X: Sequences, y: Sequences) -> Sequences:
    """Sources and targets of one kind in one container, which has their symbols and is for fitting an encoding to both.

    The names of features stay where they agree; metadata, times and pasts do not.
    """
    items = [*X, *y]
    check_alike(X.kind, items)
    both = X._with(items, _metadata(len(items), None, {}), None, None, None)
    both.symbols = symbols_of_all([X, y])
    both.features = X.features if X.features == y.features else None
    both.grid = X.grid if X.grid == y.grid else None
    return both


def symbols_of_all(parts: Sequence[Sequences]) -> tuple[str, ...] | None:
    """The symbols of several containers: in alphabetical order where all of theirs are; None of integers."""
    if any(part.symbols is None for part in parts):
        return None
    each = [list(part.symbols or ()) for part in parts]
    symbols = tuple(dict.fromkeys(name for names in each for name in names))
    return tuple(sorted(symbols)) if all(names == sorted(names) for names in each) else symbols


# -- descriptions --------------------------------------------------------------------------------------------


def _some_frames(items: list[Item]) -> np.ndarray:
    """``(N, D)`` frames from all over the sequences; all of them where there are not very many."""
    stride = -(-sum(map(len, items)) // N_PROFILED)
    return np.concatenate([_every(item, stride) for item in items])


def _every(item: Any, stride: int) -> np.ndarray:
    """``(m, D)`` frames 0, ``stride``, 2 ``stride``, ... of an item, in memory."""
    if isinstance(item, MappedArray):
        return np.concatenate([item.read(t, t + 1) for t in range(0, len(item), stride)])
    return np.asarray(item[::stride])


# -- times and frames ----------------------------------------------------------------------------------------


def _on_grid(item: Item, places: np.ndarray, n: int) -> np.ndarray:
    """``(n, D)`` frames at their places, NaN between."""
    frames = np.asarray(item)
    rows = np.full((n, frames.shape[1]), np.nan)
    rows[places] = frames
    return rows


def _inputs_at_every_step(inputs: np.ndarray, places: np.ndarray, n: int, holds: bool) -> np.ndarray:
    """``(n, U)`` inputs at their places, and between them those before, or interpolated."""
    if holds:
        return np.asarray(inputs[np.searchsorted(places, np.arange(n), side="right") - 1])
    return np.stack([np.interp(np.arange(n), places, column) for column in inputs.T], axis=1)


def _gaps_in_words(times: np.ndarray) -> str:
    """Of how many lengths the steps between times are, shortest and longest."""
    steps = np.diff(times)
    if not (steps > np.zeros(1, steps.dtype)).all():
        t = int(np.argmin(steps > np.zeros(1, steps.dtype)))
        return f"steps {t} and {t + 1} are at one time, {time_in_words(times[t])}"
    return f"steps between them are of {len(np.unique(steps))} lengths, {steps.min()} to {steps.max()}"


def _are_codes(columns: pd.DataFrame) -> bool:
    """Whether it is one column of text that is digits alone, which are symbols."""
    import pandas as pd

    if columns.shape[1] != 1 or not pd.api.types.is_string_dtype(columns.dtypes.iloc[0]):
        return False
    return bool(columns.iloc[:, 0].astype(str).str.isdecimal().all())


def _columns_left(frame: pd.DataFrame, left: list[Any]) -> list[Any] | str:
    """The columns of numbers among those ``left``; where there are none, the one column, of symbols."""
    import pandas as pd

    numbers = [c for c in left if pd.api.types.is_numeric_dtype(frame[c])]
    others = [c for c in left if c not in set(numbers)]
    if len(left) > 1:
        refuse_unread(frame, others, place_in_frame, "if it is no feature, name those that are with columns=")
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
    """What a column that holds no numbers is, in words."""
    import pandas as pd

    if column.isna().all():
        return "empty"
    if pd.api.types.is_datetime64_any_dtype(column):
        return "dates"
    return "words" if pd.api.types.is_string_dtype(column.dropna()) else f"no words, no numbers, but {column.dtype}"


def _refuse_going_back(
    frame: pd.DataFrame, time: str, ranks: np.ndarray, codes: np.ndarray, by: str | None, others: Sequence[str]
) -> None:
    """Raise ``ValueError`` where the times of an index, which nobody named, would put the rows into another order."""
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
    """Warn of two names of sequences that differ by spaces or capitals, as those of one that was written twice."""
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
    """Raise ``ValueError`` where rows of several series would be put between each other."""
    series = series_of_rows(frame, time, by, others)
    if series.by != by:
        raise ValueError(f"{series.said}; to from_frame it is said: by={series.by!r}")


def _refuse_several_in_one_frame(frames: Sequence[Any], times: Sequence[pd.Index], time_name: str) -> None:
    """Raise ``ValueError`` where the index of a frame repeats, as of rows of several series."""
    for i, (frame, of_rows) in enumerate(zip(frames, times, strict=True)):
        if of_rows.has_duplicates and frame.ndim == 2:
            rows = frame.reset_index(drop=True).assign(**{time_name: of_rows.array})
            try:
                _refuse_several_series(rows, time_name, None, [c for c in rows if c != time_name])
            except ValueError as error:
                raise ValueError(f"sequence {i}: {error}") from None


def _steps_of(group: pd.DataFrame, columns: Sequence[str] | str) -> np.ndarray:
    """The rows of one sequence as an item: what is missing in a column of numbers is NaN."""
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
    """The value of a column in each sequence; raises ``ValueError`` where it changes within one."""
    values = []
    for group in groups:
        here = group[column]
        if here.nunique(dropna=False) > 1:
            where = "the one sequence" if by is None else f"the sequence whose {by!r} is {group[by].iloc[0]!r}"
            raise ValueError(
                f"{column!r} changes within {where}, so it is no label of it; for a symbol a step make a second "
                f"Sequences with columns={column!r}"
            )
        values.append(here.iloc[0])
    return values


def _checked_grid(grid: Sequence[float]) -> tuple[float, ...]:
    """Widths of noise; raises ``ValueError`` for what is none."""
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
