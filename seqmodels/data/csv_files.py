"""Reading CSV files as programs write them, with any separator, header, title, comment, unit line and encoding."""

from __future__ import annotations

import codecs
import csv
import io
import re
import shlex
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqmodels.common.caller_warnings import warn_caller
from seqmodels.data.file_contents import decoded, read_bytes
from seqmodels.sequences.columns.index import is_called_time
from seqmodels.sequences.columns.numbers import MISSING, is_number, may_be_numbers, with_numbers

if TYPE_CHECKING:
    import pandas as pd

SEPARATORS = (",", ";", "\t", "|")
MAX_COLUMNS = 10_000  # a table with more has rows in place of columns, or vectors that are better kept in an array
SPACES = " "  # one or more spaces, if every line has as many cells and all are numbers below the header
SAMPLE = 200  # lines from which the separator is chosen
SAID_SEPARATOR = re.compile(r'"?sep=(.)"?\s*', re.IGNORECASE)  # a first line for Excel
CODE = re.compile(r"(?<![\d.])0\d\d")
COMMA = re.compile(r"\d,\d")
DATE = re.compile(r"\d{1,4}[-./]\d{1,2}[-./]\d{1,4}([T ].*)?")
UNICODE = {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}  # encodings by a file's first bytes
UNNAMED = "Unnamed: "  # what pandas calls columns without a name


@dataclass(frozen=True)
class CsvLayout:
    r"""The layout of a CSV file: how its lines are to be read.

    Args:
        path: the path of the file.
        text: its contents, with ``\n`` at line ends.
        separator: the character between cells.
        names: names of the columns; None if the first line is data.
        first: number of lines before the data.
    """

    path: Path
    text: str
    separator: str
    names: list[str] | None
    first: int

    @property
    def is_point_doubtful(self) -> bool:
        """True if ``;`` separates cells, as in countries whose decimal sign is a comma: then ``1.234`` may be 1234."""
        return self.separator == ";"

    def rows(self) -> Iterator[tuple[int, list[str]]]:
        """Yield each row of data as the number of its last line in the file, counted from 1, and its cells.

        Blank rows are left out.
        """
        lines = islice(io.StringIO(self.text), self.first, None)
        return _numbered_rows(self.path, lines, self.separator, self.first)

    def place(self, row: int) -> str:
        """Return the place of a row of the table in the file, as its name and a line number: ``a.csv:7``.

        Args:
            row: number of the row among those of the data, counted from 0.
        """
        numbered = self.rows() if self.width > 1 else self._lines()
        line = next((number for number, _ in islice(numbered, row, None)), None)
        return f"row {row} of {self.path}" if line is None else f"{self.path}:{line}"

    def _lines(self) -> Iterator[tuple[int, list[str]]]:
        lines = self.text.split("\n")[self.first :]
        return ((self.first + 1 + i, [line]) for i, line in enumerate(lines))

    @property
    def width(self) -> int:
        """The number of columns: names in the header or, without a header, cells in the first row."""
        return len(self.names) if self.names is not None else len(next(self.rows(), (0, [""]))[1])


def check_width(where: str, n_columns: int) -> None:
    """Check that a table does not have more than ``MAX_COLUMNS`` columns.

    Args:
        where: what the message calls the table.
        n_columns: number of columns.

    Raises:
        ValueError: if it has more.
    """
    if n_columns > MAX_COLUMNS:
        raise ValueError(
            f"{where} has {n_columns:,} columns, but a table has a row a step and {MAX_COLUMNS:,} columns at most; "
            "exchange its rows and columns, or save an array (T, D) as .npy"
        )


def read_csv(path: Path, besides: Iterable[Any] | None = ()) -> tuple[pd.DataFrame, CsvLayout]:
    """Read the table in a CSV file, with numbers as people write them.

    Args:
        path: the path of the file; a ``.gz`` file is unpacked.
        besides: names of columns whose cells stay text; None means all columns.

    Returns:
        The table, and the layout of the file: separator, header and lines before the data.

    Raises:
        ValueError: the file is not text in UTF-8 (or UTF-16 with its byte order mark); a line has more or fewer cells
            than the header; or a title stands above the header.
    """
    import pandas as pd

    layout = layout_of(path)
    check_width(str(path), layout.width)
    options: dict[str, Any] = {
        "sep": r"\s+" if layout.separator == SPACES else layout.separator,
        "header": None,
        "names": _different(layout.names) if layout.names else [f"x{i}" for i in range(layout.width)],
        "index_col": False,
        "skipinitialspace": True,
        "skip_blank_lines": layout.width > 1,  # because in a single column blank lines are missing values
        "low_memory": False,  # because otherwise a column may have numbers in one part and words in another
    }
    data = layout.text if not layout.first else layout.text.split("\n", layout.first)[layout.first]
    if layout.width == 1:
        data = data.rstrip("\n") + "\n"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # because it says that cells are lost
            frame = pd.read_csv(io.StringIO(data), **options)
        _check_short_lines(layout, frame)
        if layout.separator == ";" or any(_has_decimal_comma(frame[c]) for c in frame.columns):
            frame = _with_doubtful_points(frame, data, options)
        frame = _with_codes(frame, data, options)
    except pd.errors.EmptyDataError:
        return pd.DataFrame({name: [] for name in layout.names or ()}), layout
    except MemoryError:
        raise ValueError(f"{path} does not fit into memory; save it as Parquet, and leave it on disk") from None
    except (ValueError, OverflowError, pd.errors.ParserWarning) as error:
        check_widths(layout)
        said = " ".join(str(error).split())
        raise ValueError(said if said.startswith(str(path)) else f"{path} is not a CSV: {said}") from None
    frame = _without_what_is_empty(frame)
    if besides is not None:
        frame = with_numbers(frame, str(path), besides=besides, is_point_doubtful=layout.is_point_doubtful)
    return frame, layout


def layout_of(path: Path) -> CsvLayout:
    """Detect the layout of a CSV file: its separator, its header, and the lines before the data.

    Raises:
        ValueError: the file is not text or is empty, or a title stands above the header.
    """
    text = _text_of(path)
    first, said = _lines_before(text)
    rest = islice(io.StringIO(text), first, first + SAMPLE)
    lines = [line for line in rest if line.strip()]
    if not lines:
        raise ValueError(f"{path} is not a CSV: it has no lines")
    # Check the width before any line is cut into cells, because that takes long for very long lines.
    check_width(str(path), max(lines[0].count(each) for each in SEPARATORS) + 1)
    separator = said or _separator_of(path, lines)
    rows = list(_numbered_rows(path, islice(io.StringIO(text), first, first + SAMPLE), separator, first))
    header_line, header = rows[0]
    _refuse_title(path, rows)
    _refuse_quoted_lines(path, rows)
    if _are_data(header, rows[1][1] if len(rows) > 1 else None):
        return CsvLayout(path, text, separator, _names_in_comment(text, first, separator, len(header)), first)
    names = [name.strip() for name in header]
    if _has_row_names(separator, [cells for _, cells in rows]):
        names = ["", *names]
    extra = max((len(row) for _, row in rows[1:2]), default=0) - len(names)
    if extra > 0 and not any(cell.strip() for cell in rows[1][1][len(names) :]):
        names += [""] * extra  # a separator at the end of each line of data
    if len(rows) > 2 and _are_units(rows[1][1], [row for _, row in rows[2:]]):
        line, units = rows[1]
        warn_caller(
            f"{path}:{line} is taken for the units of the columns, {', '.join(filter(None, units))!r:.60}, and left "
            "out; name the columns with them in the header to keep them",
        )
        return CsvLayout(path, text, separator, names, line)
    return CsvLayout(path, text, separator, names, header_line)


def check_widths(layout: CsvLayout) -> None:
    """Check that every line of a CSV file has as many cells as the header or, without a header, as the first line.

    Args:
        layout: the file and how its lines are read.

    Raises:
        ValueError: if a line has more or fewer; the message gives its number.
    """
    names = layout.names
    named = layout.width if names is None else max((i + 1 for i, name in enumerate(names) if name), default=1)
    for line, cells in layout.rows():
        n = len(cells) if len(cells) < named else max(named, _n_filled(cells))
        if n != named and any(cell.strip() for cell in cells):
            way_out = (
                "put text that holds the separator into quotes, or give every column a name"
                if n > named
                else "write all of them, empty where a value is missing"
            )
            whose = "the header has" if names is not None else "the first line has"
            raise ValueError(f"{layout.path}:{line} has {n} cell{'s' * (n != 1)}, but {whose} {named}; {way_out}")


def _has_decimal_comma(column: pd.Series) -> bool:
    return may_be_numbers(column) and any(COMMA.search(str(cell)) for cell in column.head(SAMPLE))


def _with_doubtful_points(frame: pd.DataFrame, data: str, options: dict[str, Any]) -> pd.DataFrame:
    """Return the table with those columns as text in which a point may separate thousands.

    In such a column every number is at most three digits long, or has a point before three last digits, such as 1.234.
    If decimals begin with a comma, that point separates thousands, so the numbers must not be read yet.

    Args:
        frame: the table as pandas read it.
        data: the text that it was read from.
        options: the arguments of ``pandas.read_csv``.
    """
    import pandas as pd

    floats = [i for i, dtype in enumerate(frame.dtypes) if dtype.kind == "f"]
    if not floats:
        return frame
    beginning = pd.read_csv(io.StringIO(data), **options, dtype=str, usecols=floats, nrows=SAMPLE)
    doubtful = [i for i, name in zip(floats, beginning.columns, strict=True) if _has_doubtful_points(beginning[name])]
    if not doubtful:
        return frame
    text = pd.read_csv(io.StringIO(data), **options, dtype=str, usecols=doubtful)
    return frame.assign(**{name: text[name] for name in text.columns if _has_doubtful_points(text[name])})


def _with_codes(frame: pd.DataFrame, data: str, options: dict[str, Any]) -> pd.DataFrame:
    """Return the table with columns of codes such as ``007`` as text.

    The cells of such a column are equally long, and some begin with a zero.

    Args:
        frame: the table as pandas read it.
        data: the text that it was read from.
        options: the arguments of ``pandas.read_csv``.
    """
    import pandas as pd

    whole = [i for i, dtype in enumerate(frame.dtypes) if dtype.kind == "i" and not is_called_time(frame.columns[i])]
    if not whole or CODE.search(data) is None:
        return frame
    text = pd.read_csv(io.StringIO(data), **options, dtype=str, usecols=whole)
    codes = [name for name in text.columns if _are_codes(text[name])]
    return frame.assign(**{name: text[name] for name in codes})


def _are_codes(text: pd.Series) -> bool:
    cells = text.str.strip()
    return bool(cells.str.startswith("0").any() and cells.str.len().nunique() == 1 and len(cells[0]) > 2)


def _has_doubtful_points(text: pd.Series) -> bool:
    cells = text.dropna()
    fits = cells.str.fullmatch(r"\s*[-+]?[1-9]\d{0,2}(\.\d{3})?\s*|0").all()
    return bool(fits and cells.str.contains(".", regex=False).any())


def _check_short_lines(layout: CsvLayout, frame: pd.DataFrame) -> None:
    """Check that no line has too few cells, which pandas reads as missing values.

    Args:
        layout: the file and how its lines are read.
        frame: the table as pandas read it.

    Raises:
        ValueError: if a line has too few.
    """
    if len(frame) and frame.iloc[:, -1].isna().any():
        check_widths(layout)


def _n_filled(cells: list[str]) -> int:
    return max((i + 1 for i, cell in enumerate(cells) if cell.strip()), default=0)


# -- text and lines ------------------------------------------------------------------------------------------


def _text_of(path: Path) -> str:
    r"""Return the text of a file without a byte order mark and with ``\n`` at line ends.

    Raises:
        ValueError: if it is not text in UTF-8 or UTF-16.
    """
    raw = read_bytes(path)
    encoding = next((name for mark, name in UNICODE.items() if raw.startswith(mark)), None)
    try:
        text = decoded(path, raw) if encoding is None else raw.decode(encoding)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} begins as UTF-16 does, but is none at byte {error.start}; save it as UTF-8") from None
    except ValueError as error:
        raise ValueError(
            f"{path} is not a CSV in UTF-8: {error}; a table that Excel wrote in a Western country is often in "
            "Windows-1252: save it as 'CSV UTF-8', or pass a frame of pandas.read_csv(..., encoding='cp1252')"
        ) from None
    text = text.removeprefix("\ufeff")
    return text.replace("\r\r\n", "\n").replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def _lines_before(text: str) -> tuple[int, str | None]:
    """Return the number of lines before the header, and the separator that a first line ``sep=`` states for Excel.

    The lines counted are that line, blank lines and comments (``#``). The separator is None if the first line is not of
    this form.
    """
    said, comments = None, 0
    for number, line in enumerate(io.StringIO(text)):
        match = SAID_SEPARATOR.fullmatch(line)
        if match is not None and number == 0:
            said = match[1]
        elif line.startswith("#"):
            comments += 1
        elif line.strip():
            return number, said
    return 0, said


def _names_in_comment(text: str, first: int, separator: str, width: int) -> list[str] | None:
    """Return the names of columns in a comment just before the data, as ``numpy.savetxt`` writes them.

    Return None if there is no such comment.

    Args:
        text: text of the file.
        first: number of lines before the data.
        separator: separator of the names.
        width: number of columns, which must be the number of names.
    """
    line = next(islice(io.StringIO(text), first - 1, first), "") if first else ""
    if not line.startswith("#"):
        return None
    names = line.lstrip("#").split(None if separator == SPACES else separator)
    return [name.strip() for name in names] if len(names) == width and all(map(str.strip, names)) else None


def _numbered_rows(path: Path, lines: Any, separator: str, first: int) -> Iterator[tuple[int, list[str]]]:
    if separator == SPACES:
        for i, line in enumerate(lines, start=1):
            if line.strip():
                yield first + i, shlex.split(line) if '"' in line else line.split()
        return
    reader = csv.reader(lines, delimiter=separator, skipinitialspace=True)
    try:
        for row in reader:
            if row:
                yield first + reader.line_num, row
    except csv.Error as error:
        raise ValueError(f"{path}:{first + reader.line_num} is not a line of a CSV: {error}") from None


# -- what lines look like ------------------------------------------------------------------------------------


def _separator_of(path: Path, lines: list[str]) -> str:
    """Return the separator with which the header and most lines have equally many cells, and most cells are data.

    Data are numbers, dates and missing values.

    Args:
        path: path of the file, for errors.
        lines: its first lines, the header among them.
    """
    best, best_key = ",", (-1.0,) * 4
    for separator in (*SEPARATORS, SPACES):
        try:
            rows = [row for _, row in _numbered_rows(path, lines, separator, 0)]
        except ValueError:
            continue
        header, data = rows[0], rows[1:] or rows
        widths = Counter(len(row) - (len(row) > 1 and not row[-1].strip()) for row in data)
        width, n = widths.most_common(1)[0]
        cells = [cell for row in data for cell in row]
        share = sum(_is_datum(cell) for cell in cells) / max(1, len(cells))
        fits_header = len(header) - (len(header) > 1 and not header[-1].strip()) == width
        if _has_row_names(separator, rows):
            fits_header, cells = True, [cell for row in data for cell in row[1:]]
            share = sum(_is_datum(cell.strip('"')) for cell in cells) / max(1, len(cells))
        if separator == SPACES and not (fits_header and n == len(data) and share == 1.0):
            continue
        if width < 2:  # a single column, if all cells are numbers whose decimals begin with a comma, or text
            continue
        key = (float(fits_header), n / len(data), share, float(width))
        if key > best_key:
            best, best_key = separator, key
    alone = [line.strip() for line in lines]
    if best_key[0] < 1 and all(is_number(line) for line in alone[1:]) and len(alone) > 1:
        return "\t" if best != "\t" else ";"  # numbers with commas for decimals, in a single column
    return best


def _has_row_names(separator: str, rows: list[list[str]]) -> bool:
    """Return True if each line begins with a distinct name of its row that the header has no cell for.

    R writes such tables. It can only be so if spaces or tabs separate. With commas and semicolons the extra cell may be
    the decimals of a number, and if the header contains them, they are the separator and spaces part words.

    Args:
        separator: character between cells.
        rows: cells of the first lines, with the header first.
    """
    header, data = rows[0], rows[1:]
    is_of_others = any(mark in name for name in header for mark in ",;|")
    if separator not in (SPACES, "\t") or is_of_others or not data or any(len(r) != len(header) + 1 for r in data):
        return False
    names = [row[0].strip('"') for row in data]
    return len(set(names)) == len(names) and bool(data[0][-1].strip())


def _is_datum(cell: str) -> bool:
    """Return True if a cell is a number, a date or empty."""
    cell = cell.strip()
    return cell.lower() in MISSING or bool(DATE.fullmatch(cell)) or is_number(cell)


def _are_data(first: list[str], second: list[str] | None) -> bool:
    """Return True if the first line of a table is data: only numbers, or a date in a column of dates.

    Args:
        first: cells of the first line.
        second: cells of the second line, or None.
    """
    cells = [cell.strip() for cell in first]
    are_dates = [bool(DATE.fullmatch(cell)) for cell in cells]
    if any(are_dates) and second is not None:
        return any(a and DATE.fullmatch(b.strip()) for a, b in zip(are_dates, second, strict=False))
    known = [cell for cell in cells if cell.lower() not in MISSING]
    return bool(known) and all(is_number(cell) for cell in known)


def _are_units(row: list[str], below: list[list[str]]) -> bool:
    """Return True if a row holds only words, each above a column of numbers or dates, as a row of units does.

    Args:
        row: cells of the row.
        below: cells of the rows below it.
    """
    words = [i for i, cell in enumerate(row) if cell.strip()]
    if not words or any(_is_datum(row[i]) or row[i].strip()[0] == "#" for i in words):  # "#" begins Excel's errors
        return False
    beneath = [[rest[i] for rest in below if i < len(rest) and rest[i].strip()] for i in words]
    return all(cells and all(_is_datum(cell) for cell in cells) for cells in beneath)


def _refuse_title(path: Path, rows: list[tuple[int, list[str]]]) -> None:
    """Check that no title stands above the header: a first line of one cell before lines of several.

    Args:
        path: path of the file, for the message.
        rows: its first rows with their line numbers.

    Raises:
        ValueError: if there is a title.
    """
    line, header = rows[0]
    filled = [_n_filled(row) for _, row in rows]
    if filled[0] == 1 and len(rows) > 2 and min(filled[1:3]) > 1 and len(header[0].strip()) > 0:
        raise ValueError(
            f"{path}:{line} has one cell, {header[0].strip()!r:.60}, but the lines after it {filled[1]}; if it is a "
            "title, delete it, or begin it with #, else give every column a name"
        )


def _refuse_quoted_lines(path: Path, rows: list[tuple[int, list[str]]]) -> None:
    """Check that not every line as a whole is in quotes, so that its separators do not count.

    Args:
        path: path of the file, for the message.
        rows: its first rows with their line numbers.

    Raises:
        ValueError: if every line is.
    """
    some = rows[:20]
    if len(some) < 2 or any(len(row) != 1 for _, row in some):
        return
    for separator in SEPARATORS:
        counts = {row[0].count(separator) for _, row in some}
        if len(counts) == 1 and counts != {0} and not is_number(some[0][1][0]):
            raise ValueError(
                f"{path}:{some[0][0]} is one cell, {some[0][1][0]!r:.60}, as are all lines, each in quotes as a whole; "
                "take the quotes away"
            )


def _different(names: list[str]) -> list[str]:
    """Return distinct names of columns as pandas makes them: a second ``a`` becomes ``a.1``, and "" is numbered."""
    there: Counter[str] = Counter()
    different = []
    for i, name in enumerate(names):
        called = name or f"{UNNAMED}{i}"
        different.append(f"{called}.{there[called]}" if there[called] else called)
        there[called] += 1
    return different


def _without_what_is_empty(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the frame without columns that have neither a name nor values, and without empty rows at the end."""
    nameless = [c for c in frame.columns if str(c).startswith(UNNAMED) and frame[c].isna().all()]
    frame = frame.drop(columns=nameless) if nameless and len(nameless) < frame.shape[1] else frame
    if len(frame) and frame.iloc[-1].isna().all():
        filled = frame.notna().any(axis=1).to_numpy()
        frame = frame.iloc[: len(filled) - int(filled[::-1].argmax())] if filled.any() else frame
    return frame
