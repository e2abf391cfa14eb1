"""Reading a column as dates: the known notations, the choice between several readings, and what is refused.

A form is a pattern of a whole cell, and a reading says what its numbers mean: ``01/02/2019`` is day and month, or month
and day. A reading that some cell contradicts is dropped. If several are left, the one under which the steps are regular
is taken, because rows are at regular times far more often than by chance. If that does not decide, the column is
refused. Words that do not name a year are not dates. Names of months may be English, German or French, whose
abbreviations do not contradict each other.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any

import numpy as np

from seqmodels.sequences.calendar_steps import grid_of

if TYPE_CHECKING:
    import pandas as pd

MOST_GAPS = 2.0  # the most steps per row for times to count as regular; steps without a row are missing
N_LOOKED_AT = 200  # cells from which the possible forms of a column are found
FEWEST_OF_DIGITS = 6  # the least numbers such as 201901 that are taken for dates in a column of any name
OF_OUR_TIME = np.datetime64("1950-01-01"), np.datetime64("2100-01-01")
MOSTLY = 0.8  # the share of dates among the cells from which on a cell that is not a date is refused
PIVOT = 69  # two-digit years from here on belong to the twentieth century, as in POSIX
MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
OF_OTHER_LANGUAGES = (  # German, of Austria too, and French, with the abbreviations in use
    "januar jänner jän janvier janv",
    "februar feber février fevrier févr fevr fév",
    "märz maerz mär mrz mars",
    "avril avr",
    "mai",
    "juni juin",
    "juli juillet juil",
    "août aout",
    "septembre",
    "oktober okt octobre",
    "novembre",
    "dezember dez décembre decembre déc",
)
MONTH_OF = {name[:n]: i + 1 for i, name in enumerate(MONTHS) for n in range(3, len(name) + 1)} | {"sept": 9}
MONTH_OF |= {name: i + 1 for i, names in enumerate(OF_OTHER_LANGUAGES) for name in names.split()}
WEEKDAYS = "(?:mon|tues?|wed(?:nes)?|thu(?:rs?)?|fri|sat(?:ur)?|sun)(?:day)?"
YEARLESS = re.compile(  # months, weekdays, quarters, half-years, times of day and days of months, all without a year
    rf"{WEEKDAYS}|(?:{'|'.join(MONTH_OF)})\.?(?:[-/ ]\d{{1,2}})?|\d{{1,2}}[-/ ](?:{'|'.join(MONTH_OF)})\.?|q[1-4]|h[12]"
    r"|\d{1,2}:\d\d(?::\d\d(?:\.\d+)?)?(?:\s*[ap]\.?m\.?)?|\d{1,2}\s*[ap]\.?m\.?",
    re.IGNORECASE,
)
SCALARS = (str, int, float, date, np.generic)  # datetimes and timestamps of pandas are subclasses of date
NAME = r"(?P<name>[^\W\d_]{3,9})\.?"
CLOCK = (
    r"(?:(?:T|\s*,?\s+|_)(?P<H>\d{1,2})(?::(?P<M>\d\d)(?::(?P<S>\d\d)(?:[.,](?P<f>\d{1,9}))?)?)?"
    r"(?:\s*(?P<p>[AaPp])\.?[Mm]\.?)?\s*(?P<z>Z|z|UTC|GMT|[+-]\d\d(?::?\d\d)?)?)?"
)


@dataclass(frozen=True)
class DateForm:
    """One way to write a date and to read it, such as day/month/year.

    Attributes:
        says: name of this way for messages.
        pattern: pattern of a whole cell. Its groups are y (year), m (month), name (of a month), d (day), h (half-year),
            q (quarter), w (week), yd (day of the year), H, M, S, f (fraction of a second), p (am or pm) and z (zone).
        order: the strptime format of the date if the cell can be read in another order too, with ``{}`` for the
            separator of its numbers; otherwise empty.
        only_named: True if the column must have a usual name of a time, because plain numbers or versions look the
            same.
        must_be_regular: True if cells are dates only if the steps between them are regular.
    """

    says: str
    pattern: re.Pattern[str]
    order: str = ""
    only_named: bool = False
    must_be_regular: bool = False


def _form(says: str, pattern: str, **more: bool | str) -> DateForm:
    return DateForm(says, re.compile(pattern + CLOCK), **more)  # type: ignore[arg-type]


_Y, _YY, _D, _M = r"(?P<y>\d{4})", r"'?(?P<y>\d\d)", r"(?P<d>\d{1,2})", r"(?P<m>\d{1,2})"
_SEP = r"(?P<sep>\s*[-/.]\s*|\s)"
_SAME = "(?P=sep)"
_WEEKDAY = rf"(?:{WEEKDAYS},?\s+)?"
FORMS = (
    _form("year, month, day", rf"{_Y}{_SEP}{_M}{_SAME}{_D}"),
    _form("day first", rf"{_D}{_SEP}{_M}{_SAME}{_Y}", order="%d{}%m{}%Y"),
    _form("month first", rf"{_M}{_SEP}{_D}{_SAME}{_Y}", order="%m{}%d{}%Y"),
    _form("day first", rf"{_D}{_SEP}{_M}{_SAME}{_YY}", order="%d{}%m{}%y", only_named=True),
    _form("month first", rf"{_M}{_SEP}{_D}{_SAME}{_YY}", order="%m{}%d{}%y", only_named=True),
    _form("year first", rf"{_YY}{_SEP}{_M}{_SAME}{_D}", order="%y{}%m{}%d", only_named=True),
    _form("year and month", rf"{_Y}(?:[-/.\s]|M|m){_M}"),
    _form("month and year", rf"{_M}[-/.\s]{_Y}"),
    _form("day, month, year", rf"(?i:{_WEEKDAY}){_D}(?:st|nd|rd|th)?[-/.\s]*{NAME}[-/,\s]*{_Y}"),
    _form("day, month, year", rf"{_D}[-/.\s]*{NAME}[-/,\s]*{_YY}"),
    _form("month, day, year", rf"(?i:{_WEEKDAY}){NAME}[-/\s]*{_D}(?:st|nd|rd|th)?(?:,\s*|[-/\s]+){_Y}"),
    _form("year, month, day", rf"{_Y}[-/.\s]*{NAME}[-/.\s]*{_D}"),
    _form("month and year", rf"{NAME}[-/,.\s]*{_Y}"),
    _form("year and month", rf"{_Y}[-/.\s]*{NAME}"),
    _form("month and year", rf"{NAME}[-/\s]*{_YY}", must_be_regular=True),
    _form("year and month", rf"{_YY}[-/\s]*{NAME}", must_be_regular=True),
    _form("year and quarter", rf"{_Y}[-/.:\s]*[Qq](?P<q>[1-4])"),
    _form("quarter and year", rf"(?:[Qq](?P<q>[1-4])|(?P<q2>[1-4])[Qq])[-/.:\s]*(?:{_Y}|'?(?P<yy>\d\d))"),
    _form("year and half-year", rf"{_Y}[-/.:\s]*[HhSs](?P<h>[12])"),
    _form(  # with a sign between H1 and a year, as H12019 is a code
        "half-year and year",
        rf"(?:[HhSs](?P<h>[12])(?:[-/.:\s]+|(?='))|(?P<h2>[12])[HhSs][-/.:\s]*)(?:{_Y}|'?(?P<yy>\d\d))",
    ),
    _form("year and day of the year", rf"{_Y}[-/\s](?P<yd>\d{{3}})", only_named=True),
    _form("year and week", rf"{_Y}[-/\s]?[Ww](?P<w>\d{{1,2}})(?:-(?P<wd>[1-7]))?"),
    DateForm(
        "year, month, day",
        re.compile(r"(?P<y>\d{4})(?P<m>\d\d)(?P<d>\d\d)(?:T?(?P<H>\d\d)(?P<M>\d\d)(?P<S>\d\d)?)?(?P<z>Z)?"),
        only_named=True,
    ),
    DateForm(  # 2019013112, which seconds since 1970 are not before 2030
        "year, month, day, hour",
        re.compile(r"(?P<y>(?:19|20)\d\d)(?P<m>\d\d)(?P<d>\d\d)T?(?P<H>\d\d)"),
        only_named=True,
    ),
    DateForm("year and day of the year", re.compile(r"(?P<y>(?:19|20)\d\d)(?P<yd>\d{3})"), only_named=True),
    DateForm("year, month, day", re.compile(r"(?P<y>\d\d)(?P<m>\d\d)(?P<d>\d\d)"), only_named=True),
    DateForm("year and month", re.compile(r"(?P<y>\d{4})(?P<m>\d\d)"), only_named=True),
    DateForm("years", re.compile(r"(?P<y>[12]\d{3})"), only_named=True),
)
FISCAL_YEARS = DateForm("fiscal years", re.compile(r"(?i:FY)[-\s]?(?P<y>[12]\d{3})"))
ISO = FORMS[0]
OF_DIGITS = FORMS[-6:]
YYYYMMDD, _, DAYS_OF_YEARS, YYMMDD, YYYYMM, YEARS = OF_DIGITS
# A year from one calendar year into the next, 2019/20, which is no month.
SEASON_OF_YEARS = DateForm("years that begin in", re.compile(r"(?P<y>\d{4})[-/](?P<next>\d\d)"))


@dataclass(frozen=True)
class Dates:
    """The dates that a column of a table holds, and what was assumed to read them.

    Attributes:
        times: the date of each cell, datetime64, with a time zone if the cells have one; NaT where a cell is empty.
        said: a sentence that says what was assumed if the cells could be read in several ways; otherwise empty.
    """

    times: pd.Series
    said: str = ""


def read_dates(column: pd.Series, *, date_format: str | None = None, is_time: bool = False) -> Dates | None:
    """Read a column of dates, periods or words as dates; return None if it does not hold dates.

    Args:
        column: a column of any type. Numbers (``20190131``, ``201901``, ``2019031``, years, seconds since 1970) are
            read only if ``is_time``.
        date_format: how the dates are written, in the notation of ``datetime.strptime``; it decides between readings.
        is_time: True if the column has a usual name of a time or the caller named it as the time. Then cells that look
            like dates only by chance, such as numbers or two-digit years, are read too.

    Raises:
        ValueError: most cells are dates but some are not; two readings fit equally well; dates with and without a time
            zone are mixed; or ``date_format`` does not fit a cell.
    """
    import pandas as pd

    column = _plain(column)
    if isinstance(column.dtype, pd.DatetimeTZDtype) or column.dtype.kind == "M":
        return Dates(column)
    if isinstance(column.dtype, pd.PeriodDtype):
        return Dates(column.dt.to_timestamp())
    if pd.api.types.is_bool_dtype(column) or column.dtype.kind in "mc" or not column.notna().any():
        return None
    if not _are_scalars(column):
        return None
    codes, cells = pd.factorize(column)  # because in a panel each date is there often but need be read only once
    read: tuple[pd.DatetimeIndex, str] | None
    if date_format is not None and (is_time or not pd.api.types.is_numeric_dtype(column)):
        read = _by_format(column, _as_words(cells), date_format)
    elif pd.api.types.is_numeric_dtype(column):
        read = _numbers(str(column.name), np.asarray(cells, dtype=np.float64)) if is_time else None
    else:
        read = _words(column, cells, is_time)
    if read is None:
        return None
    times, said = read
    filled = times.take(codes, allow_fill=True, fill_value=np.datetime64("NaT"))
    return Dates(filled.to_series(column.index, column.name), said)


def names_no_year(column: pd.Series) -> bool:
    """Return True if a column holds words for dates without a year, such as months, weekdays or times of day."""
    import pandas as pd

    column = _plain(column)
    if pd.api.types.is_numeric_dtype(column) or column.dtype.kind in "Mm" or not _are_scalars(column):
        return False
    cells = [cell for cell in column.dropna().unique()[:N_LOOKED_AT] if isinstance(cell, str)]
    return bool(cells) and all(YEARLESS.fullmatch(cell.strip()) for cell in cells)


def are_dates_in_order(words: list[str]) -> bool:
    """Return True if all words are dates or recent years, each later than the one before it."""
    import pandas as pd

    are_years = all(re.fullmatch(r"(1[89]|20)\d\d", word.strip()) for word in words)
    if not are_years and any(word.strip().isdecimal() for word in words):
        return False
    try:
        read = read_dates(pd.Series(words, dtype=object, name="columns"), is_time=are_years)
    except ValueError:
        return False
    return read is not None and read.times.is_monotonic_increasing and _regularity(read.times.to_numpy()) > 0


def _are_scalars(column: pd.Series) -> bool:
    """Return True if every cell is a word, a date or a number; columns of Parquet files may hold lists."""
    return column.dtype != object or all(isinstance(cell, SCALARS) for cell in column.dropna())


def _plain(column: pd.Series) -> pd.Series:
    """Return the column with a categorical or Arrow type converted to plain values."""
    import pandas as pd

    if isinstance(column.dtype, pd.CategoricalDtype):
        column = column.astype(column.cat.categories.dtype if not column.isna().any() else object)
    if isinstance(column.dtype, pd.ArrowDtype) and column.dtype.kind == "M":
        zone = column.dtype.pyarrow_dtype.tz
        in_utc = column.astype("datetime64[us]" if zone is None else "datetime64[us, UTC]")
        return in_utc if zone is None else in_utc.dt.tz_convert(zone)
    if isinstance(column.dtype, pd.ArrowDtype) and "date" in str(column.dtype):
        return column.astype("datetime64[s]")
    return column


# -- words ---------------------------------------------------------------------------------------------------


def _as_words(cells: pd.Index | np.ndarray | list[Any]) -> list[str]:
    """Return cells as text: Python dates in ISO 8601, integers without a decimal point."""
    import pandas as pd

    words = []
    for cell in cells:
        if isinstance(cell, date | pd.Timestamp):  # a datetime is a date
            words.append(cell.isoformat())
        elif isinstance(cell, float) and cell.is_integer():
            words.append(str(int(cell)))
        else:
            words.append(str(cell).strip())
    return words


def _words(column: pd.Series, cells: pd.Index | np.ndarray, is_time: bool) -> tuple[pd.DatetimeIndex, str] | None:
    """Return the dates of distinct cells of text, and a sentence that says what was assumed to read them.

    Args:
        column: the column, for error messages.
        cells: its distinct cells, shape ``(n,)``.
        is_time: True if notations that only a time column may have are tried too.

    Returns:
        Dates, shape ``(n,)``, and the sentence, which may be empty; or None if the cells are not dates.

    Raises:
        ValueError: cells can be read in two ways that fit equally well, or most cells are dates but some are not.
    """
    looked_at = _as_words(cells[:: max(1, len(cells) // N_LOOKED_AT)])
    forms = [
        form
        for form in (*FORMS, SEASON_OF_YEARS, FISCAL_YEARS)
        if (is_time or not form.only_named) and any(form.pattern.fullmatch(word) for word in looked_at)
    ]
    if not forms:
        return None
    if forms == [ISO] and (in_iso := _iso(cells)) is not None:
        return in_iso, ""
    words = _as_words(cells)
    whole_sample = [form for form in forms if not np.isnat(_read(form, looked_at)[0]).any()]
    read = [(form, *_read(form, words)) for form in whole_sample or forms]
    whole = [each for each in read if not np.isnat(each[1]).any()]
    whole = _without_unlikely(whole)
    if any(form is SEASON_OF_YEARS for form, *_ in whole) and len(words) > 1:
        whole = [each for each in whole if each[0] is SEASON_OF_YEARS]
    whole = [each for each in whole if not each[0].must_be_regular or _are_months_in_order(each[1])]
    if not whole:
        _refuse_some(column, words, read, is_time)
        return None
    form, times, offsets = _best(str(column.name), words, whole)
    others = [each for each in whole if (each[1] != times).any()]
    said = ""
    if others:
        at = _where_different(times, others[0][1])
        said = (
            f"{column.name!r} is read as {form.says}: {words[at]!r} is {_day(times[at])}, as the steps are then "
            f"regular; otherwise pass date_format={_format(others[0][0], words[at])!r}"
        )
    return _with_zone(column, words, times, offsets, said)


def _iso(cells: pd.Index | np.ndarray) -> pd.DatetimeIndex | None:
    """Return the dates of cells in ISO 8601, which pandas reads fast; None if some are not, or have UTC offsets."""
    import pandas as pd

    try:
        times = pd.to_datetime(pd.Index(cells), format="ISO8601")
    except (ValueError, TypeError):
        return None
    return times if isinstance(times, pd.DatetimeIndex) and times.tz is None else None


def _without_unlikely(
    whole: list[tuple[DateForm, np.ndarray, np.ndarray]],
) -> list[tuple[DateForm, np.ndarray, np.ndarray]]:
    """Drop ``yymmdd`` from the ways to read a column if ``yyyymm`` fits too and gives several months of 1950 to 2099.

    Each way is a tuple of its form, the dates of the distinct cells and their offsets from UTC.
    """
    months = next((times.astype("datetime64[M]").astype(np.int64) for form, times, _ in whole if form is YYYYMM), None)
    if months is None:
        return whole
    years = 1970 + months // 12
    is_likely = years.min() >= 1950 and years.max() < 2100 and len(np.unique(months % 12)) > 1
    return [each for each in whole if each[0] is not YYMMDD] if is_likely else whole


def _best(
    name: str, words: list[str], whole: list[tuple[DateForm, np.ndarray, np.ndarray]]
) -> tuple[DateForm, np.ndarray, np.ndarray]:
    """Return the way to read a column under which the steps between its dates are the most regular.

    Args:
        name: name of the column, for the error.
        words: its distinct cells.
        whole: ways that fit all cells, each a form, the dates of the cells and their offsets from UTC.

    Raises:
        ValueError: two ways are equally regular but give different dates.
    """
    ranks = [_regularity(times) for _, times, _ in whole]
    best = [each for each, rank in zip(whole, ranks, strict=True) if rank == max(ranks)]
    others = [each for each in best[1:] if (each[1] != best[0][1]).any()]
    if others:
        (first, a, _), (second, b, _) = best[0], others[0]
        at = _where_different(a, b)
        raise ValueError(
            f"the column {name!r} can be read in two ways, and its steps do not say which: {words[at]!r} is "
            f"{_day(a[at])} ({first.says}) or {_day(b[at])} ({second.says}); pass "
            f"date_format={_format(first, words[at])!r} or date_format={_format(second, words[at])!r}"
        )
    return best[0]


def _regularity(times: np.ndarray) -> int:
    """Return how regular times in any order are: 2 if they have one step, 1 if some steps are only missing, else 0."""
    times = np.unique(times)
    grid = grid_of(times, most=int(MOST_GAPS * len(times)))
    return 2 if len(times) < 2 else 0 if grid is None else 1 + grid.is_regular


def _are_months_in_order(times: np.ndarray) -> bool:
    """Return True if cells such as ``Feb-19`` can be months of 2019 rather than days of an unnamed year.

    ``times`` are the dates of the cells read as months. ``Jan-01`` to ``Jan-31``, for example, are days.
    """
    months: np.ndarray = times.astype("datetime64[M]").astype(np.int64)
    steps = np.diff(months)
    is_in_order = bool((steps > 0).all() or (steps < 0).all())
    return _regularity(times) > 1 - is_in_order and not (len(steps) > 1 and (steps % 12 == 0).all())


def _where_different(a: np.ndarray, b: np.ndarray) -> int:
    return int(np.argmax(a != b))


def _day(time: np.datetime64) -> str:
    text = str(time.astype("datetime64[s]"))
    return text.removesuffix("T00:00:00").replace("T", " ")


def _format(form: DateForm, word: str) -> str:
    """Return the argument ``date_format`` that makes ``word`` be read in the way ``form``."""
    match = form.pattern.fullmatch(word)
    assert match is not None, "it was read so"
    groups = match.groupdict()
    if form.order:
        text = form.order.format(groups["sep"], groups["sep"])
    else:
        text = word[: match.start("H") if groups.get("H") else len(word)].rstrip("T, ")
        codes = {"y": "%Y" if len(groups["y"] or "") == 4 else "%y", "m": "%m", "name": "%b", "d": "%d", "yd": "%j"}
        spans = sorted(((match.start(g), match.end(g), c) for g, c in codes.items() if groups.get(g)), reverse=True)
        for start, end, code in spans:
            text = text[:start] + code + text[end:]
    if groups.get("H"):
        date_end = max(match.end(g) for g in ("y", "m", "name", "d", "yd") if groups.get(g))
        clock = "%I" if groups["p"] else "%H"
        clock += "" if groups["M"] is None else ":%M" if groups["S"] is None else ":%M:%S"
        clock += ".%f" if groups.get("f") else ""
        between = word[date_end : match.start("H")]
        text += between + clock + (" %p" if groups["p"] else "") + ("%z" if groups["z"] else "")
    return text


def _read(form: DateForm, words: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Read words in one notation, and return their dates and their offsets from UTC.

    Returns:
        Dates, shape ``(n,)``, NaT for a word that does not have this form; and offsets in seconds, shape ``(n,)``, NaN
        for a word without one.
    """
    each_match = [form.pattern.fullmatch(word) for word in words]
    rows = np.array([i for i, match in enumerate(each_match) if match is not None], dtype=np.int64)
    if not len(rows):
        return np.full(len(words), np.datetime64("NaT", "s")), np.full(len(words), np.nan)
    matches = [match for match in each_match if match is not None]
    groups = form.pattern.groupindex

    def texts(group: str, default: str) -> np.ndarray:
        """Return the text that a group of the pattern matched in each of m words, or ``default``, shape ``(m,)``."""
        each = [match[group] or default for match in matches] if group in groups else [default] * len(matches)
        return np.array(each, dtype=str)

    def whole(group: str, default: int) -> np.ndarray:
        return texts(group, str(default)).astype(np.int64)

    years, months, days = (
        _years(texts("y", "") if "yy" not in groups else texts("yy", "")),
        whole("m", 1),
        whole("d", 1),
    )
    if "yy" in groups:
        years = np.where(texts("y", "") == "", years, whole("y", 0))
    if "name" in groups:
        months = np.array([MONTH_OF.get(match["name"].lower(), 0) for match in matches], dtype=np.int64)
    if "q" in groups:
        months = 3 * (whole("q", 0) + whole("q2", 0)) - 2
    if "h" in groups:
        months = 6 * (whole("h", 0) + whole("h2", 0)) - 5
    hours, minutes, seconds, halves = whole("H", 0), whole("M", 0), whole("S", 0), np.char.lower(texts("p", ""))
    is_date = (months >= 1) & (months <= 12) & (hours < 24) & (minutes < 60) & (seconds < 60)
    is_date &= (halves == "") | ((hours >= 1) & (hours <= 12))
    hours = np.where(halves == "", hours, hours % 12 + 12 * (halves == "p"))
    if "next" in groups:
        is_date &= (years + 1) % 100 == whole("next", 0)
    first = ((years - 1970) * 12 + months - 1).astype("datetime64[M]")
    dates = first.astype("datetime64[D]") + (days - 1)
    is_date &= (days >= 1) & (dates.astype("datetime64[M]") == first)
    if "yd" in groups:
        dates = first.astype("datetime64[D]") + (whole("yd", 0) - 1)
        is_date &= dates.astype("datetime64[Y]") == first.astype("datetime64[Y]")
    if "w" in groups:
        dates, is_week = _days_of_weeks(first, whole("w", 1), whole("wd", 1))
        is_date &= is_week
    fraction = np.char.ljust(texts("f", "0"), 9, "0").astype(np.int64)  # billionths of a second
    unit, per = ("s", 10**9) if not fraction.any() else ("us", 1000) if not (fraction % 1000).any() else ("ns", 1)
    each = dates.astype(f"datetime64[{unit}]") + (3600 * hours + 60 * minutes + seconds).astype("timedelta64[s]")
    each += (fraction // per).astype(f"timedelta64[{unit}]")
    times = np.full(len(words), np.datetime64("NaT"), dtype=f"datetime64[{unit}]")
    times[rows[is_date]] = each[is_date]
    offsets = np.full(len(words), np.nan)
    if "z" in groups:
        offsets[rows] = [np.nan if match["z"] is None else _offset_of(match["z"]) for match in matches]
    return times, offsets


def _years(digits: np.ndarray) -> np.ndarray:
    """Return the years that texts of four digits, or of two, stand for, shape ``(m,)``."""
    years = np.where(digits == "", "0", digits).astype(np.int64)
    is_short = np.char.str_len(digits) <= 2
    if is_short.any():
        years[is_short] = _with_century(years[is_short])
    return years


def _with_century(short: np.ndarray) -> np.ndarray:
    """Return two-digit years with a century added, shape ``(m,)``.

    ``PIVOT`` decides the century, unless another choice brings the years closer together, as for 68 and 69.
    """
    by_pivot = short + np.where(short >= PIVOT, 1900, 2000)
    there = np.unique(short)
    first = there[(int(np.argmax(np.diff(there, append=there[0] + 100))) + 1) % len(there)]  # after the longest gap
    since = (short - first) % 100
    if since.max() == np.ptp(by_pivot):
        return np.asarray(by_pivot)
    return np.asarray(by_pivot[np.argmax(since)] - since.max() + since)


def _offset_of(zone: str) -> float:
    """Return the offset of a time zone such as ``+01:00`` in seconds east of Greenwich; names of UTC give 0."""
    if zone[0] not in "+-":
        return 0.0
    digits = zone[1:].replace(":", "")
    return (-1 if zone[0] == "-" else 1) * (3600.0 * int(digits[:2]) + 60.0 * int(digits[2:] or 0))


def _days_of_weeks(years: np.ndarray, weeks: np.ndarray, weekdays: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the days that years, ISO 8601 weeks and weekdays name, and True for each year that has the week.

    ``years`` are dates, ``weeks`` count from 1, and ``weekdays`` from 1 for Monday to 7; each has the shape ``(m,)``.
    """
    fourth = years.astype("datetime64[Y]").astype("datetime64[D]") + 3  # of January: it lies in the first week
    monday = fourth - (fourth.astype(np.int64) + 3) % 7 + 7 * (weeks - 1)
    is_week = (weeks >= 1) & ((monday + 3).astype("datetime64[Y]") == years.astype("datetime64[Y]"))
    return monday + (weekdays - 1), is_week


def _with_zone(
    column: pd.Series, words: list[str], times: np.ndarray, offsets: np.ndarray, said: str
) -> tuple[pd.DatetimeIndex, str]:
    """Return dates in the time zone that their offsets indicate, and a sentence that says what was assumed.

    One offset gives a fixed zone. Several offsets are the local times of one zone if the local times are more regular,
    and otherwise UTC.

    Args:
        column: the column, for the error.
        words: its distinct cells, shape ``(n,)``.
        times: dates without a zone, shape ``(n,)``.
        offsets: offsets from UTC in seconds, shape ``(n,)``; NaN for a cell without one.
        said: the sentence to return if nothing is assumed here.

    Raises:
        ValueError: some dates have an offset and others do not.
    """
    import pandas as pd

    has_zone = ~np.isnan(offsets)
    if not has_zone.any():
        return pd.DatetimeIndex(times), said
    if not has_zone.all():
        a, b = int(np.argmax(has_zone)), int(np.argmin(has_zone))
        raise ValueError(
            f"the column {column.name!r} has dates with a time zone ({words[a]!r}) and without one ({words[b]!r}); "
            "write all with it, or all without"
        )
    instants = times - offsets.astype("timedelta64[s]")
    different = np.unique(offsets)
    if len(different) == 1:
        zone = "UTC" if different[0] == 0 else f"UTC{_offset(different[0])}"
        return pd.DatetimeIndex(instants).tz_localize("UTC").tz_convert(zone), said
    named = " and ".join(_offset(each) for each in different[:2])
    if _regularity(times) > _regularity(instants):
        taken = (
            f"{column.name!r} has the offsets {named}, which are taken for one zone's clock: its times are local times"
        )
        return pd.DatetimeIndex(times), taken
    taken = (
        f"{column.name!r} has the offsets {named}: its times are in UTC; for those of a zone convert it with pandas: "
    )
    return pd.DatetimeIndex(instants).tz_localize("UTC"), taken + "pd.to_datetime(x, utc=True).dt.tz_convert(zone)"


def _offset(seconds: float) -> str:
    minutes = int(abs(seconds)) // 60
    return f"{'-' if seconds < 0 else '+'}{minutes // 60:02d}:{minutes % 60:02d}"


def _refuse_some(
    column: pd.Series, words: list[str], read: list[tuple[DateForm, np.ndarray, np.ndarray]], is_time: bool
) -> None:
    """Raise ``ValueError`` if most cells of a column are dates in one notation but some are not; otherwise do nothing.

    Args:
        column: the column.
        words: its distinct cells.
        read: ways that were tried, each a form, dates (NaT for a cell that does not fit) and offsets from UTC.
        is_time: True for a time column, in which a smaller share of dates counts as most.
    """
    form, times, _ = min(read, key=lambda each: int(np.isnat(each[1]).sum()))
    wrong = np.isnat(times)
    if form.must_be_regular and not wrong.any():
        return
    share = 1 - wrong.mean()
    if share < (0.5 if is_time else MOSTLY):
        return
    word = words[int(np.argmax(wrong))]
    row = next(i for i, cell in enumerate(column) if str(cell).strip() == word or _as_words([cell])[0] == word)
    example = words[int(np.argmin(wrong))]
    raise ValueError(
        f"the column {column.name!r} holds {word!r} in row {row}, which is not a date as the others are ({example!r}, "
        f"read as {form.says}); correct it, or leave the row out"
    )


def _by_format(column: pd.Series, words: list[str], date_format: str) -> tuple[pd.DatetimeIndex, str]:
    """Return the dates of ``words`` in the notation ``date_format``, and an empty sentence about assumptions.

    Raise ``ValueError`` if the format is invalid or does not fit a cell; the message names ``column``.
    """
    import pandas as pd

    try:
        times = pd.to_datetime(
            pd.Series(words, dtype=object), format=date_format, errors="coerce", utc="%z" in date_format
        )
    except ValueError as error:
        raise ValueError(
            f"date_format is {date_format!r}, which is not a format of datetime.strptime ({error}); pass one such as "
            "'%d/%m/%Y'"
        ) from None
    if times.isna().any():
        word = words[int(np.argmax(times.isna()))]
        raise ValueError(
            f"the column {column.name!r} holds {word!r}, which is not written as date_format={date_format!r}"
        )
    return pd.DatetimeIndex(times), ""


# -- numbers -------------------------------------------------------------------------------------------------


def _numbers(name: str, numbers: np.ndarray) -> tuple[pd.DatetimeIndex, str] | None:
    """Return the dates that numbers such as ``20190131`` stand for in a time column, and a sentence about assumptions.

    The sentence is empty if nothing was assumed. Return None if the numbers are not dates. ``name`` is the name of the
    column.
    """
    import pandas as pd

    if not np.isfinite(numbers).all():
        return None
    if (numbers == np.rint(numbers)).all():
        words = [str(int(each)) for each in numbers]
        read = [(form, *_read(form, words)) for form in OF_DIGITS if form is not YEARS or names_years(name)]
        every = [each for each in read if not np.isnat(each[1]).any()]
        read = _without_unlikely(every)
        if read:
            form, times, _ = _best(name, words, read)
            if is_counted(name) and form is DAYS_OF_YEARS:  # because hardly anything is counted up to seven digits
                said = (
                    f"{name!r} is read as {form.says}: {words[0]} is {_day(times[0])}; if it counts something else pass"
                )
                return pd.DatetimeIndex(times), f"{said} time_unit='step'"
            if is_counted(name) and _regularity_of_numbers(numbers) >= _regularity(times):
                return None
            others = [each for each in every if (each[1] != times).any()]
            other = next((each for each in others if OF_OUR_TIME[0] <= each[1].min() <= OF_OUR_TIME[1]), None)
            said = ""
            if other is not None:
                said = (
                    f"{name!r} is read as {form.says}: {words[0]} is {_day(times[0])}; if it is {_day(other[1][0])} "
                    f"({other[0].says}) pass date_format={_format(other[0], words[0])!r}"
                )
            return pd.DatetimeIndex(times), said
        return _since_1970(name, numbers) or _days_of_excel(name, numbers)
    return _decimals(name, numbers) or _since_1970(name, numbers) or _days_of_excel(name, numbers)


def dates_in_digits(column: pd.Series) -> Dates | None:
    """Return the dates of integers such as ``201901``, ``20190131`` or ``2019031`` in a column of any name.

    Return None unless they lie in the years 1950 to 2099 and are regular as dates but not as numbers.
    """
    import pandas as pd

    if not pd.api.types.is_integer_dtype(column) or len(column) < FEWEST_OF_DIGITS or column.isna().any():
        return None
    numbers = column.to_numpy(dtype=np.int64)
    ranges = (YYYYMM, 195001, 209912), (YYYYMMDD, 19500101, 20991231), (DAYS_OF_YEARS, 1950001, 2099365)
    for form, least, most in ranges:
        if not ((numbers >= least) & (numbers <= most)).all():
            continue
        words = [str(each) for each in numbers]
        times = _read(form, words)[0]
        if not np.isnat(times).any() and _regularity(times) == 2 > _regularity_of_numbers(numbers.astype(float)):
            said = f"{str(column.name)!r} is read as {form.says}: {words[0]} is {_day(times[0])}"
            return Dates(pd.Series(pd.DatetimeIndex(times), column.index, name=column.name), said)
    return None


def said_of_counted(column: pd.Series) -> str:
    """Return a sentence for a warning that numbers in a time column are read as counts but could be dates; "" if not.

    Args:
        column: the column of numbers.
    """
    if column.dtype.kind == "m":
        return ""
    numbers = column.to_numpy(dtype=np.float64, na_value=np.nan)
    if not len(numbers) or not np.isfinite(numbers).all() or not (numbers == np.rint(numbers)).all():
        return ""
    words = [str(int(each)) for each in numbers]
    for form, date_format in ((YYYYMM, "%Y%m"), (YYMMDD, "%y%m%d"), (YYYYMMDD, "%Y%m%d")):
        times = _read(form, words)[0]
        if not np.isnat(times).any():
            return (
                f"{str(column.name)!r} is taken for numbers that count ({words[0]}, {words[-1]}), as their steps are "
                f"regular; if {words[0]} is {_day(times[0])} pass date_format={date_format!r}"
            )
    return ""


def names_years(name: str) -> bool:
    """Return True if the name of a column is a usual one for years or dates."""
    return bool(re.search(r"year|date|^yr$|^ds$|period", name.lower()))


def is_counted(name: str) -> bool:
    """Return True if the name of a time column suits numbers that count steps from a start, as ``t`` does."""
    return not re.search(r"year|date|month|^yr$|^ds$|period", name.lower())


def _regularity_of_numbers(numbers: np.ndarray) -> int:
    numbers = np.unique(numbers)
    grid = grid_of(numbers, most=int(MOST_GAPS * len(numbers)))
    return 0 if grid is None else 1 + grid.is_regular


def _since_1970(name: str, numbers: np.ndarray) -> tuple[pd.DatetimeIndex, str] | None:
    """Return the dates of numbers that count seconds, or fractions of seconds, since 1970, and a sentence that says so.

    The fractions are milli-, micro- or nanoseconds. Return None unless all dates lie in the years 1990 to 2100.
    ``name`` is the name of the column.
    """
    import pandas as pd

    for unit, factor in (("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)):
        if (numbers >= 631_152_000 * factor).all() and (numbers < 4_102_444_800 * factor).all():
            millionths = np.rint(numbers * (10**6 / factor)).astype(np.int64)
            times = pd.DatetimeIndex(millionths.astype("datetime64[us]"))
            said = f"{name!r} is read as {unit} since 1970, from {times.min()} on; if it counts something else pass"
            return times.tz_localize("UTC"), f"{said} time_unit={unit!r}"
    return None


def _days_of_excel(name: str, numbers: np.ndarray) -> tuple[pd.DatetimeIndex, str] | None:
    """Return dates from days as Excel counts them, and a sentence that says so.

    Return None unless ``name``, the name of the column, is usual for dates and all days lie in the years 1955 to 2100.
    """
    import pandas as pd

    if is_counted(name) or not ((numbers >= 20_090) & (numbers < 73_051)).all():
        return None
    seconds = np.rint(86_400 * numbers).astype("timedelta64[s]")
    times = pd.DatetimeIndex(np.datetime64("1899-12-30", "s") + seconds)
    said = f"{name!r} is read as days as Excel counts them, from {_day(times.to_numpy().min())} on; if it counts"
    return times, f"{said} something else pass time_unit='day'"


def _decimals(name: str, numbers: np.ndarray) -> tuple[pd.DatetimeIndex, str] | None:
    """Return dates from numbers such as ``2019.02``, and a sentence that says how they were read.

    The decimals are the month (``2019.1`` is October), the quarter, or a fraction of the year. Return None if the dates
    are regular under none of these. Raise ``ValueError`` if two are equally regular. ``name`` is the name of the
    column.
    """
    import pandas as pd

    if not names_years(name) and is_counted(name):
        return None
    years = np.floor(numbers)
    if not ((years >= 1000) & (years < 3000)).all():
        return None
    rest = numbers - years
    readings: list[tuple[str, np.ndarray, Callable[[np.ndarray], np.ndarray]]] = [
        (
            "year and month, so that .1 is October",
            np.rint(100 * rest),
            lambda m: (m >= 1) & (m <= 12) & (np.abs(100 * rest - m) < 1e-4),
        ),
        (
            "year and quarter",
            3 * np.rint(10 * rest) - 2,
            lambda m: (m >= 1) & (m <= 10) & (np.abs(10 * rest - np.rint(10 * rest)) < 1e-5),
        ),
        ("years and twelfths of them", np.rint(12 * rest) + 1, lambda m: (m >= 1) & (np.abs(12 * rest + 1 - m) < 0.07)),
    ]
    read = [(says, _month(years, months)) for says, months, fits in readings if fits(months).all()]
    ranks = [_regularity(times) if len(np.unique(times)) == len(np.unique(numbers)) else -1 for _, times in read]
    best = [each for each, rank in zip(read, ranks, strict=True) if rank == max(ranks) and rank > 0]
    if not best:
        return None
    says, times = best[0]
    different = [each for each in best[1:] if (each[1] != times).any()]
    if different:
        at = _where_different(times, different[0][1])
        raise ValueError(
            f"the column {name!r} can be read in two ways: {numbers[at]:.10g} is {_day(times[at])} ({says}) or "
            f"{_day(different[0][1][at])} ({different[0][0]}); write words such as '2019-10', or pass time_unit='year'"
        )
    at = int(np.argmax(rest))
    return pd.DatetimeIndex(times), f"{name!r} is read as {says}: {numbers[at]:.10g} is {_day(times[at])}"


def _month(years: np.ndarray, months: np.ndarray) -> np.ndarray:
    since_1970 = ((years - 1970) * 12 + months - 1).astype(np.int64)
    return np.asarray(since_1970.astype("datetime64[M]").astype("datetime64[s]"))
