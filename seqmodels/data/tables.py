"""Reading tables with one row per step (CSV, Parquet and data frames), and recognition of their columns' meanings."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from seqmodels.common.caller_warnings import warn_caller
from seqmodels.common.display import listed
from seqmodels.common.parameters import checked_but
from seqmodels.data.csv_files import check_width, read_csv
from seqmodels.data.file_contents import check_file, unpacked_limit
from seqmodels.data.file_format import FileFormat
from seqmodels.data.kinds import suffix_of
from seqmodels.sequences import Kind, Sequences
from seqmodels.sequences.columns.frames import pandas_frame
from seqmodels.sequences.columns.numbers import Place, numbers_the_rows, place_in_frame, refuse_unread, with_numbers
from seqmodels.sequences.columns.timed_rows import TimedRows, separated, text_dates, timed_rows
from seqmodels.sequences.items import in_words

if TYPE_CHECKING:
    import pandas as pd

LABEL_NAMES, CLUSTER_NAMES = ("label", "class"), ("cluster",)
PARQUET = b"PAR1"  # the first and the last bytes of a Parquet file
CORRECT = "if it says which sequence a row is of, name it with by="
SEQUENCE = "sequence"  # the column that ``Sequences.to_frame`` writes
MAX_DISTINCT = 0.5  # a column of words, most with spaces, holds texts if a larger share of its cells is distinct


@checked_but("source")
def table(
    source: str | Path | pd.DataFrame,
    *,
    by: str | None = None,
    columns: str | Sequence[str] | None = None,
    time: str | None = None,
    time_unit: str | None = None,
    label: str | None = None,
    cluster: str | None = None,
    kind: Kind | None = None,
    inputs: str | Sequence[str] | None = None,
    date_format: str | None = None,
) -> Sequences:
    """Read a CSV or Parquet file or a data frame, with one row per step, as sequences. Columns left out are warned of.

    Numbers are read as people write them (``1,234.5``, ``1.234,5``, ``(12)``, ``€5``, ``12 kg``, ``n/a``): a column of
    text becomes numbers if all of its cells are. A percentage keeps its figure: 10.5% is 10.5. Units that are taken off
    are warned of. Whether ``1,234`` is 1234 or 1.234 is decided by the column it is in, then by the other columns.

    Roles that are not named are recognised by the columns:

    - ``by``: a column called ``sequence``. Otherwise all rows are one sequence, unless times repeat or go back and
      exactly one column separates them; its values are then the sequences, which a warning says. If no single column
      does, the table is refused.
    - ``time``: the index of a frame if it holds dates, or numbers and is called ``time``, ``t``, ``date`` or
      ``timestamp``; otherwise the only column of dates; or ``year`` with ``month``, ``quarter`` or ``week`` (and
      ``day``, ``hour`` and so on); or numbers with such a name, or ``year``, that never go back in a sequence. The time
      is not a feature. Dates are read in the many ways in which people write them; words that name no year are not
      dates.
    - ``label`` and ``cluster``: columns with these names (or ``class``) that are constant within each sequence. Other
      columns that are constant within each sequence become metadata. None of this applies if there is only one
      sequence.
    - ``columns``: all other columns of numbers. A column that only numbers the rows, of the table or of each sequence,
      is left out, and so are words beside numbers.
    - ``kind``: a single column of integers from 0, or of words, is symbols; several columns, or reals, are vectors. A
      column of words that are mostly distinct and contain spaces is texts, one per row.

    Args:
        source: path of a file (``.csv``, ``.tsv``, ``.parquet``, also with ``.gz``), or a frame of pandas, polars or
            Arrow. A CSV may be separated by ``,``, ``;``, ``|``, tabs or spaces; comments (``#``) and Excel's ``sep=``
            may precede its header. If its first line is numbers, its columns are called ``x0, x1, ...``.
        by: the column that names the sequence of each row.
        columns: the features, or the column of symbols or texts. A column named here has no other role.
        time: the column of times.
        time_unit: the unit of times that are numbers. If it is given, ``20190131`` or 2019 is not read as a date.
        label: the column of labels.
        cluster: the column of clusters.
        kind: ``"vectors"``, also for a single column of integers; ``"symbols"`` for one column; ``"text"`` for one
            column with a text in each row. None decides by the columns.
        inputs: columns of numbers that are known at each step and not modelled (``Sequences(items, inputs=...)``). A
            column named here has no other role.
        date_format: how dates are written, in the notation of ``datetime.strptime`` (``"%d/%m/%Y"``). None means the
            notation in which all of them can be read; if several fit, the one under which the dates are regular, which
            a warning says.

    Raises:
        ValueError: the file is not a table, or is a pipe or a device; a line has more or fewer cells than the header
            (the message gives its number); there are more than ``MAX_COLUMNS`` columns, or two with one name in a
            frame; a named column is missing; no column is left; a cell in a column of numbers is not a number, is
            ambiguous as ``1,234`` may be, complex or infinite; dates cannot be read, or in two ways; or times repeat
            because there are several sequences, and no single column separates them.
        ImportError: the file is Parquet and pyarrow is not installed.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"who": ["a", "a", "b"], "t": [0, 1, 0], "ax": [0.5, 1.5, 1.0], "ay": [2.0, 0.1, 2]})
    >>> print(table(frame, by="who").describe())
    2 sequences, 3 frames, features ax, ay: real; by who; t from 0 to 1
    """
    import pandas as pd

    source = pandas_frame(source)
    if not isinstance(source, str | os.PathLike | pd.DataFrame):
        raise ValueError(f"source is {in_words(source)}; pass a path, or a frame of pandas, polars or Arrow")
    named = {*_names(columns), *_names(inputs)}
    of_sequences = {by, label, cluster, SEQUENCE, *LABEL_NAMES, *CLUSTER_NAMES}
    words = None if kind in ("symbols", "text") else of_sequences - named
    place: Place
    if isinstance(source, pd.DataFrame):
        frame, where, place = _with_names(source.copy(), "the frame"), "the frame", place_in_frame
        if words is not None:
            frame = with_numbers(frame, where, besides=words | text_dates(frame, time, date_format))
    else:
        where = str(source)
        frame, place = read_table(Path(source), words if words is None else words | {time})
    return table_of_rows(
        frame,
        where,
        place,
        by=by,
        columns=columns,
        time=time,
        time_unit=time_unit,
        label=label,
        cluster=cluster,
        kind=kind,
        inputs=inputs,
        date_format=date_format,
    )


def table_of_rows(
    frame: pd.DataFrame,
    where: str,
    place: Place,
    *,
    by: str | None,
    columns: str | Sequence[str] | None,
    time: str | None,
    time_unit: str | None = None,
    label: str | None,
    cluster: str | None,
    kind: Kind | None,
    inputs: str | Sequence[str] | None,
    date_format: str | None,
) -> Sequences:
    """Return the sequences of a data frame with one row per step, in which numbers have already been read.

    Columns that are not named are recognised as in ``table``.

    Args:
        frame: the table.
        where: what errors and warnings call the table.
        place: function that says in words where a row is.
        by: column that names the sequence of each row, or None.
        columns: the features, or the column of symbols or texts, or None.
        time: column of times, or None.
        time_unit: unit of times that are numbers, or None.
        label: column of labels, or None.
        cluster: column of clusters, or None.
        kind: ``"vectors"``, ``"symbols"`` or ``"text"``; None decides by the columns.
        inputs: columns that are known at each step and not modelled, or None.
        date_format: how dates are written, as for ``datetime.strptime``, or None.

    Raises:
        ValueError: the table is empty, a named column is missing or cannot be read, or no column is left to model.
    """
    frame = _with_names(frame, where)
    if not len(frame):
        raise ValueError(f"{where} has no rows; pass a table with a row a step")
    named, known = _names(columns), _names(inputs)
    there = {*frame.columns, *frame.index.names}
    missing = [c for c in [by, time, label, cluster, *named, *known] if c is not None and c not in there]
    if missing:
        raise ValueError(f"{where} has no column {missing[0]!r}; it has {', '.join(frame.columns)}")
    twice = [c for c in known if c in {by, time, label, cluster, *named}]
    if twice:
        raise ValueError(f"{where}: the input {twice[0]!r} is named as something else too; name it once")
    by = SEQUENCE if by is None and SEQUENCE in frame and SEQUENCE not in (time, label, cluster, *named, *known) else by
    rows = _rows_of(where, frame, kind, named, (label, cluster, *known), by, time, time_unit, date_format)
    for said in rows.said:
        warn_caller(f"{where}: {said}")
    roles = _Roles(where, rows.frame, {*named, *known}, rows.by, rows.time, label, cluster, disordered=rows.disordered)
    if kind not in ("symbols", "text"):
        single = named[0] if len(named) == 1 and not known and kind is None else None
        refuse_unread(roles.frame, [c for c in (*named, *known) if c != single], place, CORRECT)
    chosen = named or roles.features(kind, place)
    if kind == "text" or (kind is None and len(chosen) == 1 and _are_texts(frame[chosen[0]])):
        if known:
            raise ValueError(f"{where} is read as texts, which have no inputs; leave inputs out")
        sequences = roles.texts(chosen)
        warn_of_missing_labels(where, sequences)
        return sequences
    if kind is None and len(chosen) == 1:
        refuse_unread(roles.frame, chosen, place, "if they are words, pass kind='symbols'")
    _refuse_infinite(place, roles.frame, chosen)
    columns = chosen[0] if roles.are_symbols(chosen, kind) else chosen
    try:
        sequences = Sequences.from_frame(
            roles.frame,
            by=roles.by,
            columns=columns,
            time=roles.time,
            time_unit=rows.unit,
            label=roles.label,
            cluster=roles.cluster,
            metadata=roles.metadata,
            inputs=known,
        )
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    warn_of_missing_labels(where, sequences)
    return sequences


def _rows_of(
    where: str,
    frame: pd.DataFrame,
    kind: Kind | None,
    named: list[str],
    others: Sequence[str | None],
    by: str | None,
    time: str | None,
    time_unit: str | None,
    date_format: str | None,
) -> TimedRows:
    """Return the rows of a table with their time, and with the column that separates several series.

    Rows of texts are returned without separation, because they have no order.

    Args:
        where: what errors call the table.
        frame: the table.
        kind: kind to read it as, or None.
        named: columns that the caller named as features.
        others: columns that the caller gave another role; None is skipped.
        by: column that names the sequence of each row, or None.
        time: column of times, or None.
        time_unit: unit of times that are numbers, or None.
        date_format: how dates are written, as for ``datetime.strptime``, or None.

    Raises:
        ValueError: if times cannot be read, or several series cannot be separated.
    """
    taken = (*others, *named)
    try:
        rows = timed_rows(frame, time=time, time_unit=time_unit, by=by, taken=taken, date_format=date_format)
        chosen = named or list(frame.columns)
        are_texts = kind == "text" or (
            kind is None
            and (bool(named) or not any(_is_numeric(frame[c]) for c in frame))
            and any(c in frame and _are_texts(frame[c]) for c in chosen)
        )
        return rows if are_texts else separated(rows, taken)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _is_numeric(column: pd.Series) -> bool:
    import pandas as pd

    return bool(pd.api.types.is_numeric_dtype(column))


TABLE = FileFormat(
    "CSV, Parquet",
    (".csv", ".tsv", ".parquet"),
    table,
    options=("kind", "by", "columns", "time", "label", "cluster", "inputs", "date_format"),
    binary=(".parquet",),
)


def _names(columns: str | Sequence[str] | None) -> list[str]:
    return [columns] if isinstance(columns, str) else list(columns or [])


def _with_names(frame: pd.DataFrame, where: str) -> pd.DataFrame:
    """Return a data frame with text as names of its columns.

    Args:
        frame: the data frame, whose column names are replaced in place.
        where: what errors call it.

    Raises:
        ValueError: if two columns have the same name, or there are too many columns.
    """
    check_width(where, frame.shape[1])
    frame.columns = [str(column) for column in frame.columns]
    twice = [name for name, n in Counter(frame.columns).items() if n > 1]
    if twice:
        raise ValueError(f"{where} has two columns called {twice[0]!r}; give them different names")
    return frame


def _refuse_infinite(place: Place, frame: pd.DataFrame, columns: list[str]) -> None:
    types = dict(frame.dtypes)
    reals = [column for column in columns if types[column].kind == "f"]
    infinite = np.isinf(frame[reals].to_numpy(dtype=np.float64, na_value=np.nan))
    if infinite.any():
        row, column = np.argwhere(infinite)[0]
        raise ValueError(
            f"{place(int(row))} has an infinite number under {reals[column]!r}; correct it, or leave the cell empty "
            "where it is missing"
        )


def warn_of_missing_labels(where: str, sequences: Sequences) -> None:
    """Warn if some sequences have labels and others have none (None or NaN).

    Args:
        where: what the warning calls the table, at its beginning.
        sequences: the sequences.
    """
    import pandas as pd

    if sequences.labels is None:
        return
    without = np.flatnonzero(pd.isna(pd.Series(sequences.labels, dtype=object)))
    if len(without):
        warn_caller(
            f"{where}: {len(without)} of {len(sequences)} sequences have no label, the first is "
            f"{sequences.names[without[0]]!r}; a classifier is fitted to those that have one: x.take(mask)",
        )


# -- the roles of columns ------------------------------------------------------------------------------------


@dataclass
class _Roles:
    """The roles of the columns of a table (such as time, label or feature), named by the caller or recognised.

    Attributes:
        where: what errors and warnings call the table.
        frame: the table.
        named: columns that the caller named as features or inputs.
        by: the column that names the sequence of a row; None if all rows are one sequence.
        time: the column of times; None if there are none.
        label: the column of labels, or None.
        cluster: the column of clusters, or None.
        metadata: columns of further metadata.
        disordered: columns of numbers that have a name of a time but decrease.
    """

    where: str
    frame: pd.DataFrame
    named: set[str]
    by: str | None
    time: str | None
    label: str | None
    cluster: str | None
    metadata: list[str] = field(default_factory=list)
    disordered: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.by is not None:
            self._recognise_metadata()

    def _free(self) -> list[str]:
        taken = {self.by, self.time, self.label, self.cluster, *self.metadata, *self.named}
        return [str(column) for column in self.frame if column not in taken]

    def _codes(self) -> np.ndarray:
        """Return for each of the N rows the number of its sequence, counted from 0, shape ``(N,)``."""
        import pandas as pd

        return np.zeros(len(self.frame), np.int64) if self.by is None else pd.factorize(self.frame[self.by])[0]

    # -- metadata --------------------------------------------------------------------------------------------

    def _recognise_metadata(self) -> None:
        codes = self._codes()
        if codes.max() == 0 or np.bincount(codes[codes >= 0]).max() < 2:
            return  # because with one sequence, or one row in each, all columns are constant
        for column in self._free():
            if not _are_hashable(self.frame[column]):
                continue
            if self.frame[column].groupby(codes).nunique(dropna=False).max() == 1:
                if self.label is None and column.lower() in LABEL_NAMES:
                    self.label = column
                elif self.cluster is None and column.lower() in CLUSTER_NAMES:
                    self.cluster = column
                elif column not in ("name", "label", "cluster"):
                    self.metadata.append(column)

    # -- features --------------------------------------------------------------------------------------------

    def features(self, kind: Kind | None, place: Place) -> list[str]:
        """Return the columns to be modelled if the caller named none, and warn of columns that are left out.

        Args:
            kind: the kind to read them as, or None.
            place: function that says in words where a row is, for errors.

        Raises:
            ValueError: there is no such column, several columns may be the symbols, or a cell in a column of numbers is
                not a number.
        """
        import pandas as pd

        free, types = self._free(), dict(self.frame.dtypes)
        numbers = [c for c in free if pd.api.types.is_numeric_dtype(types[c]) and c not in self.disordered]
        words = [c for c in free if not pd.api.types.is_numeric_dtype(types[c]) and _are_words(self.frame[c])]
        codes = self._codes()
        rows = [c for c in numbers if numbers_the_rows(self.frame[c], codes)]
        if len(rows) < len(numbers):
            numbers = [c for c in numbers if c not in rows]
        else:
            rows = []
        if (kind is None and len(words) + len(numbers) > 1) or kind == "vectors":
            refuse_unread(self.frame, words, place, f"{CORRECT}, or name what is to be modelled with columns=")
        wants_words = kind == "text" or (kind != "vectors" and not numbers)
        chosen = words if wants_words and words else numbers
        if not chosen:
            others = f" besides {self.by!r}" if self.by else ""
            raise ValueError(f"{self.where} has no numeric column{others}; it has {', '.join(self.frame.columns)}")
        if (kind in ("symbols", "text") or chosen is words) and len(chosen) > 1:
            raise ValueError(
                f"{self.where} has several columns that may be the {kind or 'symbols'}, {listed(chosen)}; name one "
                "with columns="
            )
        modelled = set(chosen)
        left_out = [c for c in free if c not in modelled]
        if left_out:
            counts = "numbers the rows" if self.by is None else f"numbers the rows of each {self.by}, as a time does"
            why = {**dict.fromkeys(rows, counts), **dict.fromkeys(words, "words")}
            why |= dict.fromkeys(self.disordered, "a time that goes back")
            said = [f"{c} ({why.get(c, 'no words, no numbers')})" for c in left_out]
            warn_caller(
                f"{self.where}: left out {listed(said)}; name what is to be modelled with columns=",
            )
        return chosen

    def are_symbols(self, chosen: list[str], kind: Kind | None) -> bool:
        """Return True if the columns to be modelled are a single column of symbols, which are words or integers from 0.

        Args:
            chosen: the columns to be modelled.
            kind: kind that the caller asked for, which then decides; None decides by the column.

        Raises:
            ValueError: if it is ``"symbols"`` and there are several columns.
        """
        import pandas as pd

        if kind == "symbols" and len(chosen) > 1:
            raise ValueError(f"symbols are one column, but columns are {listed(chosen)}; name one of them")
        if kind is not None or len(chosen) > 1:
            return kind == "symbols"
        column = self.frame[chosen[0]]
        if not pd.api.types.is_numeric_dtype(column):
            return True
        return pd.api.types.is_integer_dtype(column) and not column.isna().any() and int(column.min()) >= 0

    def texts(self, chosen: list[str]) -> Sequences:
        """Return the texts of a column, one per row, as sequences with their names, labels and clusters.

        Args:
            chosen: the columns to be modelled.

        Raises:
            ValueError: if there are several.
        """
        import pandas as pd

        if len(chosen) > 1:
            raise ValueError(f"texts are one column, but columns are {listed(chosen)}; name one of them")
        meanings = {"name": self.by, "label": self.label, "cluster": self.cluster}
        for meaning, names in (("label", LABEL_NAMES), ("cluster", CLUSTER_NAMES)):
            there = [c for c in self._free() if c.lower() in names and c not in chosen]
            meanings[meaning] = meanings[meaning] or next(iter(there), None)
        rows = self.frame[self.frame[chosen[0]].notna()]
        metadata = {meaning: rows[c].to_numpy() for meaning, c in meanings.items() if c is not None}
        return Sequences(rows[chosen[0]].tolist(), metadata=pd.DataFrame(metadata, index=range(len(rows))))


def _are_words(column: pd.Series) -> bool:
    import pandas as pd

    if pd.api.types.is_numeric_dtype(column.dtype):
        return False
    return isinstance(column.dtype, pd.CategoricalDtype) or pd.api.types.is_string_dtype(column.dropna())


def _are_texts(column: pd.Series) -> bool:
    import pandas as pd

    if not _are_words(column) or isinstance(column.dtype, pd.CategoricalDtype):
        return False
    return column.nunique() > MAX_DISTINCT * len(column) and bool(column.dropna().str.contains(r"\s").mean() > 0.5)


def _are_hashable(column: pd.Series) -> bool:
    """Return True if the cells of a column can be compared; lists, which columns of Parquet files may hold, cannot."""
    return column.dtype != object or not any(isinstance(cell, list | dict | set | np.ndarray) for cell in column)


# -- files ---------------------------------------------------------------------------------------------------


def read_table(path: Path, besides: Iterable[Any] | None = ()) -> tuple[pd.DataFrame, Place]:
    """Read the table in a CSV or Parquet file.

    Args:
        path: the path of the file.
        besides: names of columns whose cells stay as they are, while numbers in the others are read as people write
            them; None means all columns.

    Returns:
        The table, and a function that says in words where a row of it is in the file.

    Raises:
        ValueError: the file is not a table.
    """
    check_file(path)
    if suffix_of(path) != ".parquet":
        frame, layout = read_csv(path, besides)
        return frame, layout.place
    frame = _read_parquet(path)
    if besides is not None:
        frame = with_numbers(frame, str(path), besides=besides)
    return frame, lambda row: f"row {row} of {path}"


def _read_parquet(path: Path) -> pd.DataFrame:
    import pandas as pd

    with path.open("rb") as file:
        beginning = file.read(4)
        file.seek(max(0, path.stat().st_size - 4))
        if (beginning, file.read()) != (PARQUET, PARQUET):
            raise ValueError(f"{path} does not begin and end with {PARQUET!r}, so it is not a Parquet file, or cut off")
    try:
        _check_rows(path)
        return pd.read_parquet(path)
    except ImportError as error:
        raise ImportError("reading Parquet needs pyarrow: pip install 'seqmodels[parquet]'") from error
    except MemoryError:
        raise ValueError(f"{path} does not fit into memory; leave it on disk: seqmodels.data.on_disk") from None
    except (ValueError, OSError, TypeError, KeyError, NotImplementedError, OverflowError) as error:
        raise ValueError(f"{path} is not a Parquet file, or a damaged one: {error}") from None


def _check_rows(path: Path) -> None:
    """Check that a Parquet file does not unpack to far more bytes than its size allows.

    A value, also one within a list, counts for at least 8 bytes. Pages are unpacked too, and each string of a
    dictionary may occur in every row.

    Raises:
        ValueError: if it does.
    """
    try:
        import pyarrow.parquet as pq
    except ImportError:
        return  # pandas may use another reader, or raises an error itself
    n_packed = path.stat().st_size
    said = pq.read_metadata(path)
    chunks = [
        said.row_group(i).column(j) for i in range(said.num_row_groups) for j in range(said.row_group(i).num_columns)
    ]
    n_bytes = max(
        8 * said.num_rows * said.num_columns, sum(8 * c.num_values + c.total_uncompressed_size for c in chunks)
    )
    limit = unpacked_limit(n_packed)
    strings = {c.path_in_schema: 0 for c in chunks if c.physical_type == "BYTE_ARRAY"}
    for c in chunks:
        if c.path_in_schema in strings:
            strings[c.path_in_schema] += c.num_values * c.total_uncompressed_size  # an upper bound
    if n_bytes <= limit < sum(strings.values()):
        n_bytes += _bytes_of_strings(path, [name for name, most in strings.items() if most > limit // len(strings)])
    if n_bytes > limit:
        raise ValueError(
            f"of {n_packed:,} bytes it unpacks to {n_bytes:,}, {said.num_rows:,} rows of {said.num_columns:,}, as "
            "files do that are made to fill the memory; if it is meant so, leave it on disk: seqmodels.data.on_disk"
        )


def _bytes_of_strings(path: Path, columns: list[str]) -> int:
    """Return the number of bytes of all strings in columns of a Parquet file, reading each distinct string once."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    table = pq.read_table(path, columns=columns, read_dictionary=columns)
    n_bytes = 0
    for column in table.columns:
        for chunk in column.chunks if hasattr(column, "chunks") else []:
            if hasattr(chunk, "dictionary"):  # strings within lists have none
                lengths = pc.cast(pc.binary_length(chunk.dictionary), "int64")
                n_bytes += pc.sum(lengths.take(chunk.indices)).as_py() or 0
    return n_bytes
