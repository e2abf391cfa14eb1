"""Reading numbers as people write them: a column of text as numbers, in the one notation that fits all of its cells.

A cell is ``[sign] [currency] digits [exponent] [unit]`` with spaces anywhere between. A negative number may stand in
brackets, as accountants write it. All cells of a column decide together if ``.`` or ``,`` is the decimal sign. If they
leave it open, the other columns decide: ``1,234`` is 1234 beside ``10.5``, and 1.234 beside ``10,5``.
"""

from __future__ import annotations

import calendar
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from decimal import Decimal
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from seqmodels.common.caller_warnings import warn_caller

if TYPE_CHECKING:
    import pandas as pd

Sign = Literal[".", ","]
Place = Callable[[int], str]  # returns in words where a row of a table is
MISSING = frozenset(("", "na", "n/a", "#n/a", "<na>", "nan", "nat", "null", "none", "nil", "missing", "?", "-", "."))
DOUBTFUL = re.compile(r"[-.]{1,3}")  # cells that mean a missing value, but in some tables 0
# Characters in place of ASCII's: minus signs, spaces within numbers, apostrophes, digits, full-width characters.
AS_ASCII = str.maketrans(
    {
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2212\ufe63\uff0d", "-"),
        **dict.fromkeys("\u00a0\u2002\u2003\u2004\u2005\u2007\u2008\u2009\u200a\u202f\u3000\t", " "),
        **dict.fromkeys("\u2018\u2019\u02bc\u02b9\u2032\u00b4`", "'"),
        **{"\uff0b": "+", "\uff0e": ".", "\u066b": ".", "\uff0c": ",", "\u066c": "'", "\uff05": "%", "\u066a": "%"},
        **{chr(zero + digit): str(digit) for zero in (0x660, 0x6F0, 0x966, 0xFF10) for digit in range(10)},
        **dict.fromkeys("\u200b\u200e\u200f\ufeff", None),
    }
)
CURRENCY = "$€£¥₹₩₽₺₫₴₪₱₦฿₿¢₡₵₸₼₾"
CODES = "EUR|USD|GBP|CHF|JPY|CNY|INR|CAD|AUD|NZD|SEK|NOK|DKK|PLN|CZK|HUF|BRL|MXN|ZAR|TRY|RUB|KRW|SGD|HKD"
CELL = re.compile(
    rf"""
    (?P<sign>[-+]?)\s?
    (?P<before>[A-Z]{{0,3}}[{CURRENCY}]|{CODES}|kr\.?|Kč|zł|Rs\.?|Fr\.?|R(?=\s?\d))?\s?
    (?P<second_sign>[-+]?)\s?
    (?P<number>\d[\d., ']*|[.,]\d+)
    (?P<exponent>[eE][-+]?\d+|[dD][-+]\d+)?\s?
    (?P<after>/?(?:[^\W\d_]|[%‰°{CURRENCY}])(?:[^\W\d_]|[%°/^·{CURRENCY} ]|(?<=[^\W\d_])[2-4])*)?
    (?P<last_sign>-?)
    """,
    re.VERBOSE,
)
IN_BRACKETS = re.compile(r"([^\d()]*)\(([^()]*)\)([^\d()]*)")  # a negative number
IN_QUOTES = re.compile(r"(['\"])(.*)\1|'([^']*)")  # quotes that some exporters leave, and Excel's mark of text
# The digits of a number, by its decimal sign; one of the other signs may separate thousands.
DIGITS: dict[Sign, re.Pattern[str]] = {
    ".": re.compile(r"(?:[1-9]\d{0,2}([, '])\d{3}(?:\1\d{3})*|[1-9]\d?(?:,\d\d)+,\d{3}|\d+)(?:\.\d*)?|\.\d+"),
    ",": re.compile(r"(?:[1-9]\d{0,2}([. '])\d{3}(?:\1\d{3})*|\d+)(?:,\d*)?|,\d+"),
}
IN_PATTERN: dict[Sign, str] = {".": r"\.", ",": ","}  # how a regular expression writes each sign
# For each decimal sign: a whole column of digits with that sign, and a cell in which it can only be the decimal sign.
PLAIN: dict[Sign, tuple[re.Pattern[str], re.Pattern[str]]] = {
    sign: (
        re.compile(rf"(?:-?(?:0|[1-9]\d*)(?:{s}\d+)?|)(?:\n(?:-?(?:0|[1-9]\d*)(?:{s}\d+)?|))*+"),
        re.compile(rf"{s}(?!\d{{3}}(?:\n|$))|(?:^|\n)-?(?:0|\d{{4,}}){s}"),
    )
    for sign, s in IN_PATTERN.items()
}
NO_NUMBER = re.compile(r"0\d+")  # a code such as 007
LONGEST_UNIT = 16
NO_UNITS = frozenset(
    ["am", "pm", "bc", "bce", "ad", "ce", *(m.lower() for m in (*calendar.month_name, *calendar.month_abbr) if m)]
)
SCALES = {"k": "e3", "K": "e3", "M": "e6"}  # read as powers of ten beside numbers without a letter: 5k and 900
LETTERS_OF_SCALE = (*SCALES, "m")
# Notations that are refused, because it is not certain what number they mean.
OTHER_WRITINGS = (
    (
        re.compile(r"[-+]?\d+:[0-5]\d(?::[0-5]\d(?:[.,]\d+)?)?"),
        "which is a duration; write it as one number, as 90 for 1:30",
    ),
    (re.compile(r"0[xX][0-9a-fA-F]+"), "which is a number to the base 16; write it to the base 10"),
    (
        re.compile(r"[-+]?\d{1,3}\s?/\s?\d{1,3}"),
        "which is a fraction, or two numbers; write one number, as 0.5 for 1/2, or two columns",
    ),
)
# Numbers that stand for a missing value: 99, 999, -99.9, ..., 999.25 in well logs, and the ends of integer types.
CODE_OF_MISSING = re.compile(r"99+(?:\.9+)?|9+9\.25|3276[78]|214748364[78]")
FEWEST_BESIDE_CODE = 3  # distinct other numbers in a column before one is said to stand out
OF_TIME = re.compile(r"time|hour|clock|uhr|heure|zeit|date|day|month", re.IGNORECASE)  # names of columns of times
# The least distinct cells of a column (and half of its rows) before 1:30 is a duration, because 2:1 may be a score.
FEWEST_DIFFERENT = 6
MOSTLY = 0.5  # the least share of numbers among the cells that are not empty for a column to be one of numbers
MOSTLY_WITH_WORDS = 0.9  # the same share if a word follows the digits, because names of things look like that too


def with_numbers(
    frame: pd.DataFrame,
    where: str,
    *,
    besides: Iterable[Any] = (),
    is_point_doubtful: bool = False,
) -> pd.DataFrame:
    """Return a table in which columns that hold numbers as text, or as Python objects, are numbers of NumPy.

    A column in which a cell is not a number, or whose decimal sign cannot be told, stays as it is; ``refuse_unread``
    gives the reason. A percentage keeps its figure: 10.5% is 10.5. One warning says which units or currencies were
    taken off and which decimal signs were decided by other columns.

    Args:
        frame: the table, with distinct column names.
        where: what the frame is, as the beginning of the warning.
        besides: names of columns that stay as they are.
        is_point_doubtful: True if ``1.234`` is ambiguous too when no column decides, as in files from countries whose
            decimal sign is the comma.

    >>> import pandas as pd
    >>> with_numbers(pd.DataFrame({"a": ["1.234,5", "−3"], "b": ["x", "y"]}), "the frame")["a"].tolist()
    [1234.5, -3.0]
    """
    left = set(besides)
    columns = {name: _read(frame[name]) for name in frame.columns if name not in left and may_be_numbers(frame[name])}
    read = {name: column for name, column in columns.items() if column is not None and column.bad is None}
    signs = {column.sign for column in read.values() if column.sign is not None}
    signs |= {"."} if any(_has_decimals(frame[name]) for name in frame.columns if name not in columns) else set()
    of_others = next(iter(signs)) if len(signs) == 1 else None
    said: list[str] = []
    replaced: dict[Any, pd.Series] = {
        name: _as_complex(frame[name]) for name, column in columns.items() if column is None
    }
    for name, column in read.items():
        sign = column.sign or of_others or ("." if column.has_points and not is_point_doubtful else None)
        if column.is_open and (sign is None or (column.has_points and len(signs) == 2)):
            continue
        values = column.by_sign[sign if column.is_open and sign is not None else next(iter(column.by_sign))]
        replaced[name] = _as_series(values, column, frame)
        said += [f"{name!r} {what}" for what in column.said(of_others)]
    if said:
        warn_caller(
            f"{where}: read {'; '.join(said)}. Where that is wrong, change the cells to plain numbers, or pass "
            "kind='symbols' for words",
        )
    if replaced:
        frame = frame.copy(deep=False)
        for name, numbers in replaced.items():
            frame[name] = numbers
    return frame


def refuse_unread(frame: pd.DataFrame, columns: Iterable[Any], place: Place, way_out: str) -> None:
    """Raise ``ValueError`` for a column that holds numbers except for some cell, or whose decimal sign cannot be told.

    Args:
        frame: a frame that ``with_numbers`` returned.
        columns: names of the columns to check.
        place: function that returns in words where a row is, such as ``"row 3 of the frame"`` or ``"a.csv:5"``.
        way_out: what to do other than correcting the cell, as the end of the message.
    """
    for name in columns:
        column = frame[name]
        read = _read(column) if may_be_numbers(column) else None
        if read is None:
            continue
        if read.bad is not None:
            row, why = read.bad
            raise ValueError(
                f"{place(row)} has {str(column.iloc[row])!r:.40} under {name!r}, {why}; correct it, or leave the cell "
                f"empty where it is missing; {way_out}"
            )
        if not read.is_open or read.sign is not None:
            continue
        row = read.row_of_open
        cell = str(column.iloc[row]).strip()
        sign: Sign = "." if read.has_points else ","
        other: Sign = "," if read.has_points else "."
        raise ValueError(
            f"{place(row)} has {cell!r:.40} under {name!r}, which is {read.by_sign[other][row]:.10g} if its {sign!r} "
            f"stands between thousands and {read.by_sign[sign][row]:.10g} if it begins decimals, and no other cell "
            "tells; write the numbers without the sign of thousands, or with another digit behind the decimals, or "
            "pass a frame: pandas.read_csv(..., thousands=...) or pandas.read_csv(..., decimal=...)"
        )


def holds_numbers(column: pd.Series) -> bool:
    """Return True if a column of text holds numbers, even if some of its cells are not numbers."""
    return may_be_numbers(column) and _read(column) is not None


def warn_of_codes(frame: pd.DataFrame, columns: Iterable[Any], where: str) -> None:
    """Warn of numbers such as -999 that repeat far from all others of their column and may mean a missing value.

    Args:
        frame: the table.
        columns: names of the columns to check.
        where: what the frame is, as the beginning of the warning.
    """
    said = [f"{name!r} has {words}" for name in columns if (words := _code_in_words(frame[name]))]
    if said:
        warn_caller(
            f"{where}: {'; '.join(said)}. It is read as a number; if it says that a value is missing, pass "
            "frame.replace(it, numpy.nan), or read the file by pandas.read_csv(..., na_values=[it])",
        )


def _code_in_words(column: pd.Series) -> str:
    """Return a phrase that names a number of a column that looks like a code for missing values, and its frequency.

    Return "" if there is none.
    """
    import pandas as pd

    if not pd.api.types.is_numeric_dtype(column) or pd.api.types.is_complex_dtype(column) or not column.notna().any():
        return ""
    for value in (column.min(), column.max()):
        if CODE_OF_MISSING.fullmatch(f"{abs(float(value)):.12g}") is None:
            continue
        is_code = column == value
        others = column[~is_code & column.notna()]
        n = int(is_code.sum())
        if n < 2 or others.nunique() < FEWEST_BESIDE_CODE:
            continue
        low, high = float(others.min()), float(others.max())
        if max(low - float(value), float(value) - high) > high - low:
            return f"the number {value:.12g} {n:,} times, far from all others ({low:.6g} to {high:.6g})"
    return ""


def place_in_frame(row: int) -> str:
    """Return the position of a row in words for a message, such as "row 3 of the frame".

    Args:
        row: number of the row.
    """
    return f"row {row} of the frame"


def numbers_the_rows(column: pd.Series, codes: np.ndarray | None = None) -> bool:
    """Return True if a column only numbers the rows: n, n + 1, n + 2, ... from n = 0 or 1.

    An index that was written into a file looks like this. The numbers may also begin anew in each sequence.

    Args:
        column: the column.
        codes: number of the sequence that each row belongs to, shape ``(N,)``; None if it is not known.
    """
    import pandas as pd

    if not pd.api.types.is_integer_dtype(column) or column.isna().any() or len(column) < 3:
        return False
    values = column.to_numpy()
    places: list[np.ndarray] = [np.arange(len(column))]
    if codes is not None:
        places.append(column.groupby(codes).cumcount().to_numpy())
    for place in places:
        starts = np.unique(values - place)
        if len(starts) == 1 and starts[0] in (0, 1) and place.max() >= 2:
            return True
    return False


def is_number(cell: str) -> bool:
    """Return True if a cell, taken by itself, is a number as people write it.

    >>> is_number("1 234,5"), is_number("(12 %)"), is_number("n/a"), is_number("1 May")
    (True, True, False, False)
    """
    part = _parts(_plain(cell))
    return part is not None and any(digits.fullmatch(part.number) for digits in DIGITS.values())


# -- a column ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Column:
    """A column of text that was read as numbers.

    Args:
        by_sign: values of the column, shape ``(N,)``, for each decimal sign under which all cells are numbers.
        sign: the decimal sign; None if both signs fit or it cannot be told.
        is_open: True if both signs fit and give different values, as in ``1,234``.
        row_of_open: the first row whose value depends on the sign.
        has_points: True if the sign in the numbers of such a column is a point.
        before: text before each number, such as a currency.
        after: text after each number, such as a unit.
        scaled: a cell with k for thousands or M for millions; empty if there is none.
        doubtful: cells such as ``-`` that were read as missing, with the number of times each occurs.
        is_whole: True if each cell is digits only.
        bad: the first row that is not a number, and why; None if all are.
    """

    by_sign: dict[Sign, np.ndarray]
    sign: Sign | None = None
    is_open: bool = False
    row_of_open: int = 0
    has_points: bool = False
    before: str = ""
    after: str = ""
    scaled: str = ""
    doubtful: tuple[tuple[str, int], ...] = ()
    is_whole: bool = False
    bad: tuple[int, str] | None = None

    def said(self, of_others: Sign | None) -> list[str]:
        """Return phrases about what was assumed in reading the column as numbers, each to follow its name in a warning.

        The list is empty if nothing was assumed.

        Args:
            of_others: decimal sign in the other columns, or None.
        """
        words = []
        if "%" in self.after:
            words.append("in % (10.5% is 10.5)")
        elif self.before or self.after:
            words.append(f"without {' and '.join(repr(unit) for unit in (self.before, self.after) if unit)}")
        if self.scaled:
            words.append(f"with k for thousands and M for millions ({self.scaled!r})")
        if self.doubtful:
            words.append(
                "with " + ", ".join(f"{n} cell{'s' * (n > 1)} {cell!r}" for cell, n in self.doubtful) + " as missing"
            )
        if self.is_open and self.sign is None and of_others is not None and not (self.has_points and of_others == "."):
            words.append(f"with {of_others!r} before decimals, as other columns are written")
        return words


def may_be_numbers(column: pd.Series) -> bool:
    """Return True if a column holds text or Python objects rather than numbers, dates or categories of pandas."""
    import pandas as pd

    if isinstance(column, pd.DataFrame):
        return False
    return bool(pd.api.types.is_object_dtype(column.dtype) or isinstance(column.dtype, pd.StringDtype)) or (
        str(column.dtype).startswith(("string", "large_string", "decimal", "bool["))  # of Arrow
    )


def _has_decimals(column: pd.Series) -> bool:
    import pandas as pd

    if not pd.api.types.is_float_dtype(column.dtype):
        return False
    values = column.to_numpy(dtype=np.float64, na_value=np.nan)
    return bool((np.isfinite(values) & (values != np.rint(values))).any())


def _as_series(values: np.ndarray, column: _Column, frame: pd.DataFrame) -> pd.Series:
    import pandas as pd

    whole = column.is_whole and bool(np.isfinite(values).all()) and bool((np.abs(values) < 2**53).all())
    return pd.Series(values.astype(np.int64) if whole else values, index=frame.index)


def _read(column: pd.Series) -> _Column | None:
    """Return the numbers in a column of text; None if it holds words, or neither text nor numbers."""
    if (plain := _read_plain(column)) is not None:
        return plain
    cells = _cells_of(column)
    if cells is None:
        return None
    parts = [_parts(cell) for cell in cells]
    scaled = next((cell for cell, part in zip(cells, parts, strict=True) if part is not None and part.scale), "")
    if scaled and _have_scales(parts):
        parts = [None if part is None else part.without_scale() for part in parts]
    else:
        scaled = ""
    known = [i for i, cell in enumerate(cells) if not _is_missing(cell)]
    if known and (other := _of_other_writing(column, cells, known)) is not None:
        return other
    if not known or all(parts[i] is None for i in known):
        return None
    units = Counter(part.unit for part in parts if part is not None)
    unit = max(units, key=lambda each: units[each])
    by_sign: dict[Sign, np.ndarray] = {}
    numbers_by_sign: dict[Sign, list[int]] = {}
    for sign in DIGITS:
        values = np.full(len(cells), np.nan)
        fitting = []
        for i in known:
            part = parts[i]
            if part is not None and part.unit == unit and (value := part.value(sign)) is not None:
                values[i] = value
                fitting.append(i)
        numbers_by_sign[sign] = fitting
        if len(fitting) == len(known):
            by_sign[sign] = values
    if not by_sign:
        return _with_bad_cell(parts, known, unit, max(numbers_by_sign.values(), key=len))
    brackets = [part.is_in_brackets for part in parts if part is not None]
    if len(brackets) > 1 and all(brackets):
        return _Column(
            {}, bad=(known[0], "where all numbers are in brackets, so it cannot be told if they are negative")
        )
    read = _Column(
        by_sign,
        before=unit[0],
        after=unit[1],
        scaled=scaled,
        doubtful=tuple(Counter(cell for cell in cells if DOUBTFUL.fullmatch(cell)).items()),
        is_whole=all(part is not None and part.is_whole for part in parts),
    )
    if len(by_sign) == 1:
        return replace(read, sign=next(iter(by_sign)))
    differ = np.flatnonzero(~((by_sign["."] == by_sign[","]) | np.isnan(by_sign["."])))
    if not len(differ):
        return read
    texts = [part.number for part in parts if part is not None]
    has_points = any("." in text for text in texts)
    whole = [text for text in texts if text.isdecimal()]
    has_thousands = not has_points and bool(whole) and all(len(text) <= 3 for text in whole)  # 999 beside 1,234
    of_whole: Sign | None = "." if has_thousands else None
    return replace(read, sign=of_whole, is_open=True, row_of_open=int(differ[0]), has_points=has_points)


def _read_plain(column: pd.Series) -> _Column | None:
    """Return a column of plain digits whose decimal sign is certain; None for any other column.

    It reads the whole column at once, which is fast.
    """
    cells = ["" if is_missing else cell for is_missing, cell in zip(column.isna(), column, strict=True)]
    if not all(isinstance(cell, str) for cell in cells):
        return None
    text = "\n".join(cells)
    for sign, (plain, telling) in PLAIN.items():
        if plain.fullmatch(text) and telling.search(text):
            values = [float(cell.replace(sign, ".")) if cell else np.nan for cell in cells]
            return _Column({sign: np.array(values)}, sign)
    return None


def _of_other_writing(column: pd.Series, cells: list[str], known: list[int]) -> _Column | None:
    """Return a column marked as invalid if all its cells are in one of the ambiguous notations ``OTHER_WRITINGS``.

    The first cell is marked. Return None if they are not, or if few cells are distinct.

    Args:
        column: the column.
        cells: texts of all cells.
        known: indices of the rows that are not missing.
    """
    different = {cells[i] for i in known}
    if len(different) < max(FEWEST_DIFFERENT, len(known) // 2) or OF_TIME.search(str(column.name)):
        return None
    for pattern, why in OTHER_WRITINGS:
        if all(pattern.fullmatch(cell) for cell in different):
            return _Column({}, bad=(known[0], why))
    return None


def _with_bad_cell(
    parts: list[_Parts | None], known: list[int], unit: tuple[str, str], fitting: list[int]
) -> _Column | None:
    """Return a column marked as invalid at its first cell that is not a number.

    Return None if too few cells are numbers, so that the column is one of words.

    Args:
        parts: each cell split into number and unit; None for a cell that cannot be split so.
        known: indices of the rows that are not missing.
        unit: the most frequent unit, as text before and after the number.
        fitting: indices of the rows that fit the notation that fits most rows.
    """
    is_word = any(part is not None and part.has_word and part.unit == unit for part in parts)
    others = [parts[i] for i in known if i not in set(fitting)]
    n = len(fitting) + (0 if is_word else sum(each is not None and each.is_number for each in others))
    if n < (MOSTLY_WITH_WORDS if is_word else MOSTLY) * len(known):
        return None
    row = min(set(known) - set(fitting))
    part = parts[row]
    if part is not None and part.unit != unit:
        has = " and ".join(repr(each) for each in unit if each)
        why = f"where the other numbers have {has}" if has else "where the other numbers have no unit"
    elif part is not None:
        why = "where other numbers have another sign before decimals"
    else:
        why = "which is not a number, among numbers"
    return _Column({}, bad=(row, why))


# -- a cell --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Parts:
    """A number as it is written, split into digits with signs, exponent, and the text around it.

    Attributes:
        number: the digits with points, commas, apostrophes and spaces between them.
        is_negative: True if there is a minus sign or brackets around it.
        exponent: the exponent as ``"e3"``, or empty.
        unit: text before and after the number.
        has_word: True if a letter follows the digits directly, as in names of things.
        is_in_brackets: True if brackets stand around it.
    """

    number: str
    is_negative: bool
    exponent: str
    unit: tuple[str, str]
    has_word: bool
    is_in_brackets: bool

    @property
    def scale(self) -> str:
        """The exponent that a letter behind the digits stands for, such as ``"e3"`` for k; empty if there is none."""
        return "" if self.exponent else SCALES.get(self.unit[1], "")

    def without_scale(self) -> _Parts:
        """Return the same number with a letter such as k for thousands turned into an exponent."""
        return replace(self, exponent=self.scale, unit=(self.unit[0], ""), has_word=False) if self.scale else self

    @property
    def is_whole(self) -> bool:
        return self.number.isdecimal() and not self.exponent and self.unit == ("", "") and not self.is_in_brackets

    @property
    def is_number(self) -> bool:
        """True if the digits are a number, with any unit, rather than the beginning of a name."""
        return not self.has_word and any(self.value(sign) is not None for sign in DIGITS)

    def value(self, sign: Sign) -> float | None:
        """Return the number, read with the decimal sign ``sign``; None if it is not a number in that notation."""
        if not DIGITS[sign].fullmatch(self.number) or NO_NUMBER.fullmatch(self.number):
            return None
        digits = "".join("." if c == sign else c for c in self.number if c.isdecimal() or c == sign)
        return float(("-" if self.is_negative else "") + digits + self.exponent)


def _have_scales(parts: list[_Parts | None]) -> bool:
    """Return True if some numbers have k or M behind them and others nothing.

    If all had the same letter, it would be their unit.
    """
    behind = {part.unit[1] for part in parts if part is not None}
    return len(behind) > 1 and behind <= {"", *SCALES}


def _parts(cell: str) -> _Parts | None:
    brackets = IN_BRACKETS.fullmatch(cell)
    match = CELL.fullmatch("".join(brackets.groups()) if brackets else cell)
    if match is None:
        return None
    after = (match["after"] or "").strip()
    signs = [sign for sign in (match["sign"], match["second_sign"], match["last_sign"]) if sign]
    if len(signs) + bool(brackets) > 1 or len(after) > LONGEST_UNIT or after.lower() in NO_UNITS:
        return None
    if after[:1].isnumeric():  # 1½ and 5²
        return None
    if match["last_sign"] and after:
        return None
    exponent = (match["exponent"] or "").lower().replace("d", "e")
    number = match["number"].strip()
    has_word = after[:1].isalpha() and after not in LETTERS_OF_SCALE and not match["number"].endswith(" ")
    is_negative = bool(brackets) or "-" in signs
    return _Parts(number, is_negative, exponent, (match["before"] or "", after), has_word, bool(brackets))


def _is_missing(cell: str) -> bool:
    return cell.lower() in MISSING or bool(DOUBTFUL.fullmatch(cell))


def _cells_of(column: pd.Series) -> list[str] | None:
    """Return the text of each cell, ``""`` where it is missing; None if a cell is neither text nor a number."""
    missing = column.isna().to_numpy()
    cells: list[str] = []
    for is_missing, value in zip(missing, column.tolist(), strict=True):
        if is_missing:
            cells.append("")
        elif isinstance(value, str):
            cells.append(_plain(value))
        elif _is_real(value):
            cells.append(_digits_of(value))
        else:
            return None
    return cells


def _digits_of(value: Any) -> str:
    """Return a real number as text; True becomes ``1.0``, so that it is not taken as an integer symbol."""
    if isinstance(value, int | np.integer) and not isinstance(value, bool) and abs(int(value)) < 2**63:
        return str(int(value))
    try:
        return repr(float(value))
    except OverflowError:
        return "1e999"


def _as_complex(column: pd.Series) -> pd.Series:
    """Return a column of Python complex numbers with a complex dtype, so that later checks refuse it by name.

    Other columns are returned unchanged.
    """
    known = column.dropna()
    are_complex = len(known) > 0 and all(isinstance(value, complex | np.complexfloating) for value in known)
    return column.astype(complex) if are_complex else column


def _is_real(value: Any) -> bool:
    """Return True for a real number of Python or NumPy, including ``Decimal``, ``Fraction``, True and False."""
    return isinstance(value, Real | Decimal | np.bool_)


def _plain(text: str) -> str:
    """Return a cell without surrounding spaces and quotes, its signs and digits replaced by those in ASCII."""
    text = (text if text.isascii() else text.translate(AS_ASCII)).strip()
    quoted = IN_QUOTES.fullmatch(text) if text[:1] in ("'", '"') else None
    return text if quoted is None else (quoted[2] if quoted[3] is None else quoted[3]).strip()
