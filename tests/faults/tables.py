"""Small tables as people have them, through every door: read rightly, refused in words, silently wrong, or neither.

A table is one form of dates, numbers, panels or zones in one layout, and it is known what it says. A door reads it
rightly if times, values and series are those, and refuses it by a ``ValueError`` in words, or by a warning that names
the column that it leaves out. All else is wrong: other times or values (``silent``), or another error (``foreign``).
"""

from __future__ import annotations

import io
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

import seqmodels as sm
from seqmodels.cli.forecast import series_of_file
from seqmodels.evaluation.forecasting.tables import regular_sequences
from tests.faults.promise import Promise, main

Outcome = Literal["right", "refused", "silent", "foreign"]
Series = tuple[Any, Any]  # times (None: there are none), and values of y (None: y is no column of numbers)
NAN = np.nan


@dataclass(frozen=True)
class Table:
    """One table.

    Args:
        name: what is in it.
        frame: its cells, with y, and z beside it.
        series: what it says, by the name of each series; empty: nothing that could be read without a guess.
        date: the column of times.
        by: the column of series.
    """

    name: str
    frame: pd.DataFrame
    series: dict[str, Series]
    date: str | None = None
    by: str | None = None


# -- dates ---------------------------------------------------------------------------------------------------

MONTHS = pd.date_range("2018-01-01", periods=24, freq="MS")
DAYS = pd.date_range("2019-01-25", periods=24, freq="D")
QUARTERS = pd.date_range("2015-01-01", periods=24, freq="QS")
HOURS = pd.date_range("2019-01-01", periods=24, freq="h")
MONDAYS = pd.date_range("2018-01-01", periods=24, freq="W-MON")
LEAP = [f"{y}-02-{29 if y % 4 == 0 else 28}" for y in range(2000, 2024)]
GERMAN = "Januar Februar März April Mai Juni Juli August September Oktober November Dezember".split()  # noqa: SIM905
FRENCH = "janvier février mars avril mai juin juillet août septembre octobre novembre décembre".split()  # noqa: SIM905
SPANISH = "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre".split()  # noqa: SIM905
IN_BERLIN = pd.date_range("2019-03-30 22:00", periods=24, freq="h", tz="Europe/Berlin")
IN_AUTUMN = pd.date_range("2019-10-26 20:00", periods=24, freq="h", tz="Europe/Berlin")
WINTER = pd.date_range("1968-12-20", periods=24, freq="D")
YEAR_ENDS = pd.date_range("1955-12-31", periods=24, freq="YE")
ACROSS = pd.date_range("1968-01-01", periods=24, freq="MS")
TENTHS = pd.date_range("2019-01-01", periods=24, freq="100ms")
DAYS_IN_BERLIN = pd.date_range("2019-03-20", periods=24, freq="D", tz="Europe/Berlin")  # clocks change on the 31st
NONE: tuple[()] = ()


def _words(dates: pd.DatetimeIndex, how: str) -> list[str]:
    return list(dates.strftime(how))


def _plain(date: pd.Timestamp, how: str) -> str:
    return how.format(d=date, yy=f"{date.year % 100:02d}", q=date.quarter, w=date.isocalendar())


def _each(dates: pd.DatetimeIndex, how: str) -> list[str]:
    return [_plain(date, how) for date in dates]


# Cells, and the dates that they are; NONE: what only a guess could read.
DATES: dict[str, tuple[Any, Any]] = {
    "ISO": (_words(MONTHS, "%Y-%m-%d"), MONTHS),
    "ISO, one digit": (_each(DAYS, "{d.year}-{d.month}-{d.day}"), DAYS),
    "with a point at the end": (_words(DAYS, "%Y.%m.%d."), DAYS),
    "2019/1": (_each(MONTHS, "{d.year}/{d.month}"), MONTHS),
    "1/2019": (_each(MONTHS, "{d.month}/{d.year}"), MONTHS),
    "2019M1": (_each(MONTHS, "{d.year}M{d.month}"), MONTHS),
    "German": ([f"{GERMAN[d.month - 1]} {d.year}" for d in MONTHS], MONTHS),
    "German days": ([f"{d.day}. {GERMAN[d.month - 1]} {d.year}" for d in DAYS], DAYS),
    "German, short": ([f"{GERMAN[d.month - 1][:3]} {d.year}" for d in MONTHS], MONTHS),
    "French": ([f"{FRENCH[d.month - 1]} {d.year}" for d in MONTHS], MONTHS),
    "Spanish": ([f"{SPANISH[d.month - 1]} de {d.year}" for d in MONTHS], MONTHS),
    "Japanese": (_each(DAYS, "{d.year}年{d.month}月{d.day}日"), DAYS),
    "two lengths of years": (["1.1.19", *_words(DAYS[1:], "%d.%m.%Y")], NONE),
    "1.1.19": (_each(DAYS, "{d.day}.{d.month}.{yy}"), DAYS),
    "across the pivot of two digits": (_words(ACROSS, "%d.%m.%y"), ACROSS),
    "days across the pivot": (_words(WINTER, "%d.%m.%y"), WINTER),
    "years from 55 on": (_words(YEAR_ENDS, "%d.%m.%y"), YEAR_ENDS),
    "months across the pivot": (_words(ACROSS, "%b-%y"), ACROSS),
    "yymmdd": (_words(DAYS, "%y%m%d"), DAYS),
    "yymmdd, months": (_words(MONTHS, "%y%m%d"), MONTHS),
    "yymmdd, numbers": ([int(x) for x in _words(MONTHS, "%y%m%d")], MONTHS),
    "yyyymm": ([int(x) for x in _words(MONTHS, "%Y%m")], MONTHS),
    "weeks": (_each(MONDAYS, "{d.year}-W{w.week:02d}"), MONDAYS),
    "weeks, week first": (_each(MONDAYS, "W{w.week:02d} {d.year}"), MONDAYS),
    "weeks, no letter": (_each(MONDAYS, "{d.year}-{w.week:02d}"), MONDAYS),
    "days of the year": (_words(DAYS, "%Y-%j"), DAYS),
    "fiscal quarters": (_each(QUARTERS, "FY{yy}Q{q}"), NONE),
    "fiscal quarters, quarter first": (_each(QUARTERS, "Q{q} FY{yy}"), NONE),
    "1Q19": (_each(QUARTERS, "{q}Q{yy}"), QUARTERS),
    "halves": ([f"{2000 + i // 2}H{1 + i % 2}" for i in range(24)], pd.date_range("2000", periods=24, freq="6MS")),
    "20190101T0000": (_words(HOURS, "%Y%m%dT%H%M"), HOURS),
    "20190101 00:00": (_words(HOURS, "%Y%m%d %H:%M"), HOURS),
    "thousandths since 1970": ([int(d.timestamp() * 1000) for d in HOURS], HOURS),
    "seconds as words": ([str(int(d.timestamp())) for d in HOURS], HOURS),
    "Excel's days": ([int((d - pd.Timestamp("1899-12-30")).days) for d in DAYS], DAYS),
    "Excel's months": ([int((d - pd.Timestamp("1899-12-30")).days) for d in MONTHS], MONTHS),
    "24:00": ([f"2019-01-01 {h:02d}:00" for h in range(1, 25)], HOURS + pd.Timedelta("1h")),
    "a leap second": (["2016-12-31 23:59:59", "2016-12-31 23:59:60", "2017-01-01 00:00:00"] * 8, NONE),
    "a gap of clocks": (_words(IN_BERLIN, "%Y-%m-%d %H:%M"), IN_BERLIN.tz_localize(None)),
    "clocks set back": (_words(IN_AUTUMN, "%Y-%m-%d %H:%M"), NONE),
    "offsets": (_words(IN_AUTUMN, "%Y-%m-%dT%H:%M%z"), IN_AUTUMN.tz_convert("UTC").tz_localize(None)),
    "a zone's name": (_words(IN_BERLIN, "%Y-%m-%d %H:%M %Z"), NONE),
    "a zone": (IN_AUTUMN, IN_AUTUMN.tz_convert("UTC").tz_localize(None)),
    "RFC 2822": (_words(HOURS, "%a, %d %b %Y %H:%M:%S GMT"), HOURS),
    "leap days": (LEAP, np.array(LEAP, dtype="datetime64[D]")),
    "year 1": ([f"{y:04d}-01-01" for y in range(1, 25)], np.arange("0001", "0025", dtype="datetime64[Y]")),
    "year 9999": (list(np.arange("9999-12-01", "9999-12-25", dtype="datetime64[D]").astype(str)), np.arange(
        "9999-12-01", "9999-12-25", dtype="datetime64[D]")),
    "a footer": ([*_words(MONTHS[:-1], "%Y-%m-%d"), "Total"], NONE),
    "years and a footer": ([*map(str, range(1990, 2013)), "Total"], NONE),
    "a source": ([*_words(MONTHS[:-1], "%b %Y"), "Source: us"], NONE),
    "an empty row": ([*_words(MONTHS[:-1], "%Y-%m-%d"), None], NONE),
    "twice": ([*_words(MONTHS[:-1], "%Y-%m-%d"), "2018-01-01"], NONE),
    "30 February": ([*_words(DAYS[:-1], "%Y-%m-%d"), "2019-02-30"], NONE),
    "seasons": ([f"{1990 + i}/{(91 + i) % 100:02d}" for i in range(24)], pd.date_range("1990", periods=24, freq="YS")),
    "ranges of years": ([f"{1990 + i}-{1991 + i}" for i in range(24)], pd.date_range("1990", periods=24, freq="YS")),
    "SAS": ([x.upper() for x in _words(DAYS, "%d%b%Y")], DAYS),
    "1st of January": ([f"{d.day}{'st' if d.day % 10 == 1 else 'th'} {d:%B %Y}" for d in DAYS], DAYS),
    "Jan 1, 2019": (_each(DAYS, "{d:%b} {d.day}, {d.year}"), DAYS),
    "before Christ": ([f"{i} BC" for i in range(24, 0, -1)], NONE),
    "circa": ([f"c. {i}" for i in range(1900, 1924)], NONE),
    "2019-Q1": (_each(QUARTERS, "{d.year}-Q{q}"), QUARTERS),
    "Q1-19": (_each(QUARTERS, "Q{q}-{yy}"), QUARTERS),
    "hours of ten digits": (_words(HOURS, "%Y%m%d%H"), HOURS),
    "hours of ten digits, numbers": ([int(x) for x in _words(HOURS, "%Y%m%d%H")], HOURS),
    "fourteen digits": (_words(HOURS, "%Y%m%d%H%M%S"), HOURS),
    "seconds and halves": ([d.timestamp() + 0.5 for d in HOURS], HOURS + pd.Timedelta("500ms")),
    "millionths since 1970": ([int(d.timestamp() * 1e6) for d in HOURS], HOURS),
    "decimal years": ([round(d.year + (d.month - 1) / 12, 4) for d in MONTHS], MONTHS),
    "AM and PM": (_words(HOURS, "%m/%d/%Y %I:%M %p"), HOURS),
    "weekdays and dates": (_words(DAYS, "%A, %B %d, %Y"), DAYS),
    "Jan '19": (_words(MONTHS, "%b '%y"), MONTHS),
    "month and two digits": (_each(MONTHS, "{d.month}/{yy}"), NONE),
    "midnights without a clock": ([f"{d:%d.%m.%Y}" if d.hour == 0 else f"{d:%d.%m.%Y %H:%M}" for d in HOURS], HOURS),
    "years of two digits first": (_words(DAYS, "%y-%m-%d"), DAYS),
    "a space that does not break": (_words(HOURS, "%Y-%m-%d\u00a0%H:%M"), HOURS),
    "commas before tenths": ([x[:-5].replace(".", ",") for x in _words(TENTHS, "%Y-%m-%d %H:%M:%S.%f")], TENTHS),
    "weeks and days": (_each(MONDAYS, "{d.year}-W{w.week:02d}-1"), MONDAYS),
    "weeks in words": (_each(MONDAYS, "Week {w.week}, {d.year}"), NONE),
    "letters of a zone": (_words(HOURS, "%Y-%m-%d %H:%M EST"), NONE),
    "a zone in brackets": ([f"{d.isoformat()}[Europe/Berlin]" for d in IN_BERLIN], NONE),
    "one offset": (_words(HOURS, "%Y-%m-%dT%H:%M+02:00"), HOURS - pd.Timedelta("2h")),
    "some in UTC": ([x + "Z" * (i % 2) for i, x in enumerate(_words(HOURS, "%Y-%m-%dT%H:%M"))], NONE),
    "days of a zone": (DAYS_IN_BERLIN, DAYS_IN_BERLIN.tz_localize(None)),
    "dates of Python": ([d.date() for d in DAYS], DAYS),
    "dates of NumPy": ([np.datetime64(d, "D") for d in DAYS], DAYS),
    "periods": (MONTHS.to_period("M"), MONTHS),
    "years": (list(range(1990, 2014)), pd.date_range("1990", periods=24, freq="YS")),
}  # fmt: skip
NUMBERED = {"yymmdd, numbers", "yyyymm", "thousandths since 1970", "Excel's days", "Excel's months", "years"}
NUMBERED |= {"hours of ten digits, numbers", "seconds and halves", "millionths since 1970", "decimal years"}
DIGITS = {"yymmdd", "yymmdd, months", "seconds as words", "hours of ten digits", "fourteen digits"}


def _dates() -> Iterator[Table]:
    y = np.arange(24) ** 2 / 7
    for name, (cells, dates) in DATES.items():
        for column in ("date", "When"):
            if column == "When" and name in NUMBERED | DIGITS:
                continue  # numbers, of which nothing says that they are times
            frame = pd.DataFrame({column: cells, "y": y, "z": Z24})
            series: dict[str, Series] = {"": (dates, y)}
            yield Table(f"dates, {name}, in {column}", frame, series, column)
            if name in ("ISO", "1.1.19", "German", "weeks", "yyyymm"):
                mixed = frame.sample(frac=1, random_state=1, ignore_index=True)
                yield Table(f"dates, {name}, in {column}, in no order", mixed, series, column)


# -- numbers -------------------------------------------------------------------------------------------------

# Eight cells, and the numbers that they are; NONE: no numbers, or none that could be told.
NUMBERS: dict[str, tuple[list[Any], Any]] = {
    "Swiss": (["1'234.50", "12'345'678.00", "999.00", "1'000.00"] * 2, [1234.5, 12345678, 999, 1000] * 2),
    "Swiss, typographic": (["1’234.50", "999.00"] * 4, [1234.5, 999] * 4),
    "Indian": (["1,23,456.78", "12,34,567.00", "999.50", "1,000.00"] * 2, [123456.78, 1234567, 999.5, 1000] * 2),
    "Indian, whole": (["1,23,456", "12,34,567", "999", "1,000"] * 2, [123456, 1234567, 999, 1000] * 2),
    "German": (["1.234,50", "999,00"] * 4, [1234.5, 999] * 4),
    "German, whole": (["1.234.567", "999"] * 4, [1234567, 999] * 4),
    "French": (["1 234,50", "999,00"] * 4, [1234.5, 999] * 4),
    "decimal commas": (["12,5", "3,25"] * 4, [12.5, 3.25] * 4),
    "three decimals": (["0,125", "0,250"] * 4, [0.125, 0.25] * 4),
    "both ways": (["1,234.5", "1.234,5"] * 4, NONE),
    "percent": (["10%", "12.5%"] * 4, [10, 12.5] * 4),
    "percent and none": (["10%", "11%", "12%", "13%", "14%", "15%", "16%", "0.17"], NONE),
    "kg and g": (["1 kg", "2 kg", "3 kg", "4 kg", "5 kg", "6 kg", "7 kg", "500 g"], NONE),
    "half kg, half g": (["1 kg", "500 g"] * 4, NONE),
    "k and M": (["5k", "1.2M"] * 4, [5e3, 1.2e6] * 4),
    "k and none": (["5k", "900", "1k", "2k", "3k", "4k", "7k", "8k"], [5e3, 900, 1e3, 2e3, 3e3, 4e3, 7e3, 8e3]),
    "before": (["€5", "€6.50"] * 4, [5, 6.5] * 4),
    "after": (["5 €", "6,50 €"] * 4, [5, 6.5] * 4),
    "before and after": (["€5", "6 €"] * 4, [5, 6] * 4),
    "two currencies": (["€5", "$6"] * 4, NONE),
    "codes": (["EUR 5", "EUR 6.50"] * 4, [5, 6.5] * 4),
    "brackets": (["(5)", "6", "-7", "8"] * 2, [-5, 6, -7, 8] * 2),
    "brackets around currency": (["($5)", "$6"] * 4, [-5, 6] * 4),
    "brackets alone": (["(5)", "(6)"] * 4, NONE),
    "minus behind": (["5-", "6"] * 4, [-5, 6] * 4),
    "typographic minus": (["−5", "6"] * 4, [-5, 6] * 4),
    "exponents": (["1e3", "2E-2"] * 4, [1000, 0.02] * 4),
    "Fortran": (["1.5D+02", "2.5D-01"] * 4, [150, 0.25] * 4),
    "hexadecimal": (["0x1F", "0x2A"] * 4, NONE),
    "TRUE": (["TRUE", "FALSE"] * 4, [1, 0] * 4),
    "yes": (["yes", "no"] * 4, NONE),
    "yes and numbers": (["1", "0", "1", "0", "1", "0", "1", "yes"], NONE),
    "an error of Excel": (["1.5", "#DIV/0!", "2.5", "3", "4", "5", "6", "7"], NONE),
    "errors of Excel": (["1.5", "#REF!", "#VALUE!", "3", "4", "5", "6", "7"], NONE),
    "a dash": (["1.5", "-", "2.5", "3", "4", "5", "6", "7"], [1.5, NAN, 2.5, 3, 4, 5, 6, 7]),
    "a long dash": (["1.5", "—", "2.5", "3", "4", "5", "6", "7"], [1.5, NAN, 2.5, 3, 4, 5, 6, 7]),
    "fractions": (["1/2", "3/4"] * 4, NONE),
    "mixed fractions": (["1 1/2", "2 3/4"] * 4, NONE),
    "signs of fractions": (["1½", "2¼"] * 4, NONE),
    "a fraction": (["1.5", "1/2", "2.5", "3", "4", "5", "6", "7"], NONE),
    "ranges": (["3-5", "6-8"] * 4, NONE),
    "a range": (["3", "4", "3-5", "6", "7", "8", "9", "5"], NONE),
    "bounds": (["<5", "12", "9", "8", "7", "6", "15", "22"], NONE),
    "about": (["~5", "12", "9", "8", "7", "6", "15", "22"], NONE),
    "footnotes": (["5*", "12", "9", "8", "7", "6", "15", "22"], NONE),
    "estimates": (["5 (e)", "12", "9", "8", "7", "6", "15", "22"], NONE),
    "errors of measurement": (["5 ± 1", "12 ± 2"] * 4, NONE),
    "durations": (["1:30", "2:15"] * 4, NONE),
    "feet": (["5'3\"", "6'1\""] * 4, NONE),
    "feet and inches": (["5 ft 3 in", "6 ft 1 in"] * 4, NONE),
    "coordinates": (["52°31'N", "48°8'N"] * 4, NONE),
    "versions": (["1.2.3", "1.10.0"] * 4, NONE),
    "addresses": (["10.0.0.1", "10.0.0.2"] * 4, NONE),
    "underscores": (["1_000", "2_000"] * 4, [1000, 2000] * 4),
    "infinity": (["1.5", "inf", "2", "3", "4", "5", "6", "7"], NONE),
    "1e999": (["1.5", "1e999", "2", "3", "4", "5", "6", "7"], NONE),
    "full width": (["１２", "３．５"] * 4, [12, 3.5] * 4),
    "Arabic": (["١٢", "٣٫٥"] * 4, [12, 3.5] * 4),
    "superscripts": (["5²", "6²"] * 4, NONE),
    "complex": (["1+2j", "2"] * 4, NONE),
    "spaces": (["  5 ", " 6.5"] * 4, [5, 6.5] * 4),
    "missing": (["5", "n/a", "6", "", "NULL", "7", "?", "8.5"], [5, NAN, 6, NAN, NAN, 7, NAN, 8.5]),
    "a code for missing": (["5", "suppressed", "6", "7", "8", "9", "4", "8.5"], NONE),
    "millions": (["1,234,567", "2,345,678"] * 4, [1234567, 2345678] * 4),
    "an open comma": (["1,234", "2,345"] * 4, NONE),
    "thousands and less": (["1,234", "999"] * 4, [1234, 999] * 4),
    "thin spaces": (["1\u2009234,50", "999,00"] * 4, [1234.5, 999] * 4),
    "narrow spaces": (["1\u202f234,50", "999,00"] * 4, [1234.5, 999] * 4),
    "Arabic thousands": (["١٬٢٣٤", "٥٦٧"] * 4, [1234, 567] * 4),
    "Arabic thousands alone": (["١٬٢٣٤", "٢٬٥٦٧"] * 4, [1234, 2567] * 4),
    "Persian": (["۱۲", "۳٫۵"] * 4, [12, 3.5] * 4),
    "Devanagari": (["१२", "३"] * 4, [12, 3] * 4),
    "codes behind": (["12.50 USD", "3 USD"] * 4, [12.5, 3] * 4),
    "rupees": (["Rs. 500", "Rs. 1,500"] * 4, [500, 1500] * 4),
    "plus": (["+5", "-3"] * 4, [5, -3] * 4),
    "points at either end": (["5.", ".5"] * 4, [5, 0.5] * 4),
    "flags": (["5.2 p", "5.1", "5.0", "4.9", "4.8 e", "4.7", "4.6 b", "4.5"], NONE),
    "colons for missing": (["5.2", ":", "5.0", "4.9", ":", "4.7", "4.6", "4.5"], NONE),
    "leading zeros": (["007", "012"] * 4, NONE),
    "telephones": (["+49 30 123", "+49 30 456"] * 4, NONE),
    "twenty digits": (
        ["12345678901234567890", "92345678901234567890"] * 4,
        [12345678901234567890.0, 92345678901234567890.0] * 4,
    ),
    "powers of ten": (["1.5×10³", "2×10²"] * 4, NONE),
    "degrees": (["21.5°C", "19°C"] * 4, [21.5, 19] * 4),
    "kilometres and metres": (["12 km", "900 m"] * 4, NONE),
    "debit and credit": (["6 CR", "5 DR", "4 CR", "3 CR", "2 CR", "1 CR", "7 CR", "8 CR"], NONE),
    "the sign of infinity": (["1", "∞", "2", "3", "4", "5", "6", "7"], NONE),
    "percent and NaN": (["5%", "NaN", "6%", "7%", "8%", "9%", "4%", "3%"], [5, NAN, 6, 7, 8, 9, 4, 3]),
    "numbers among words": (["north", "1", "south", "2", "north", "3", "4", "5"], NONE),
}
OBJECTS: dict[str, tuple[list[Any], Any]] = {
    "numbers and words": ([1, "2", 3.5, "4.5"] * 2, [1, 2, 3.5, 4.5] * 2),
    "fractions of Python": ([Fraction(1, 2), 1] * 4, [0.5, 1] * 4),
    "bytes": ([b"1", b"2"] * 4, NONE),
    "lists": ([[1, 2], [3]] * 4, NONE),
    "dictionaries": ([{"a": 1}, {}] * 4, NONE),
    "durations of pandas": (list(pd.to_timedelta(range(1, 9), unit="h")), NONE),
    "intervals": (list(pd.interval_range(0, 8)), NONE),
    "times of day": ([pd.Timestamp("2019-01-01 01:30").time()] * 8, NONE),
    "10**400": ([10**400, 1] * 4, NONE),
    "tuples": ([(1, 2), (3, 4)] * 4, NONE),
}
Z8, Z24 = [3, 1, 4, 1, 5, 9, 2, 6], [3, 1, 4, 1, 5, 9, 2, 6] * 3


def _numbers() -> Iterator[Table]:
    for name, (cells, values) in {**NUMBERS, **OBJECTS}.items():
        series = {"": (None, None if values is NONE else values)}
        yield Table(f"numbers, {name}", pd.DataFrame({"y": pd.Series(cells, dtype=object), "z": Z8}), series)


# -- panels --------------------------------------------------------------------------------------------------


def _panel(starts: dict[Any, int], n: int = 24, key: str = "shop") -> tuple[pd.DataFrame, dict[str, Series]]:
    """Series of months that begin at another month, one below the other."""
    parts, series = [], {}
    for i, (name, start) in enumerate(starts.items()):
        dates = MONTHS[start:n]
        y = (np.arange(len(dates)) + 100 * i) / 7
        parts.append(
            pd.DataFrame({key: [name] * len(dates), "date": dates, "y": y, "z": (np.arange(len(dates)) * 7) % 5})
        )
        series[str(name)] = (dates, y)
    return pd.concat(parts, ignore_index=True), series


def _panels() -> Iterator[Table]:
    def made(name: str, frame: pd.DataFrame, series: dict[str, Series], by: str | None = "shop") -> Table:
        return Table(f"panels, {name}", frame, series, "date", by)

    keys: dict[str, list[Any]] = {"words": ["b", "a"], "whole numbers": [7, 3], "codes": ["007", "003"]}
    keys |= {"words with commas": ["Smith, John", "Doe; Jane"], "three": ["c", "b", "a"], "years": [2001, 2002]}
    keys |= {"words of dates": ["Mon", "Tue"], "True": [True, False], "ten": list("abcdefghij"), "long": [10**12, 5]}
    for name, named in keys.items():
        for lengths, starts in {"alike": [0] * 10, "other starts": [0, 5, 9] * 4}.items():
            frame, series = _panel(dict(zip(named, starts, strict=False)))
            yield made(f"{name}, {lengths}", frame, series)
            yield made(
                f"{name}, {lengths}, by date", frame.sort_values("date", kind="stable", ignore_index=True), series
            )
            yield made(
                f"{name}, {lengths}, in no order", frame.sample(frac=1, random_state=0, ignore_index=True), series
            )
    frame, series = _panel({"b": 0, "a": 5})
    yield made("German dates", frame.assign(date=frame["date"].dt.strftime("%d.%m.%Y")), series)
    yield made("a number of the row", frame.assign(id=range(len(frame))), series)
    yield made("ids from 1 in each", frame.assign(id=frame.groupby("shop").cumcount() + 1), series)
    yield made("categories not there", frame.assign(shop=pd.Categorical(frame["shop"], ["a", "b", "c"])), series)
    yield made("rows twice", pd.concat([frame, frame.iloc[:5]], ignore_index=True), {})
    yield made("a key missing", frame.assign(shop=frame["shop"].where(frame.index != 7)), {})
    yield made("an empty row", pd.concat([frame, pd.DataFrame({"y": [NAN]})], ignore_index=True), series)
    yield made("another key that is constant", frame.assign(country="x"), series)
    yield made("a key and its code", frame.assign(code=frame["shop"].map({"a": "A1", "b": "B2"})), series)
    yield made("zoned", frame.assign(date=frame["date"].dt.tz_localize("Europe/Berlin")), series)
    yield made("months in words", frame.assign(date=frame["date"].dt.strftime("%b %Y")), series)
    yield made("hours of ten digits", frame.assign(date=frame["date"].dt.strftime("%Y%m%d%H").astype(int)), series)
    named = frame.assign(shop=frame["shop"].map({"a": "yes", "b": "2019-01-01"}))
    yield made("keys like dates and bits", named, {"yes": series["a"], "2019-01-01": series["b"]})
    written = frame["shop"].where(frame.index % 2 == 0, frame["shop"] + " ")
    yield made("a space behind some keys", frame.assign(shop=written), {})
    yield made(
        "capitals in some keys",
        frame.assign(shop=frame["shop"].where(frame.index % 3 > 0, frame["shop"].str.upper())),
        {},
    )
    total = frame.groupby("date", as_index=False)[["y", "z"]].sum().assign(shop="Total")
    whole = {**series, "Total": (total["date"], total["y"])}
    yield made("totals", pd.concat([frame, total], ignore_index=True), whole)
    yield made(
        "a grand total", pd.concat([frame, pd.DataFrame({"shop": ["Total"], "y": [99.0]})], ignore_index=True), {}
    )
    two = pd.concat([frame.assign(region=r) for r in ("x", "y")], ignore_index=True)
    yield made("two columns", two, {}, None)
    yield made("two columns by date", two.sort_values("date", ignore_index=True), {}, None)
    single, alone = _panel({"b": 0})
    yield made("a single series", single, {"": alone["b"]}, None)
    for levels in (["shop", "date"], ["date", "shop"]):
        yield made(f"levels {levels}", frame.set_index(levels), series)
        yield made(f"sorted levels {levels}", frame.set_index(levels).sort_index(), series)
    yield made("the date as index", frame.set_index("date"), series)
    short, of_short = _panel(dict.fromkeys("abcdefghij", 0), n=2)
    yield made("many short", short, of_short)
    wide = frame.pivot(index="shop", columns="date", values="y").reset_index()
    wide.columns = [str(c)[:10] for c in wide.columns]
    yield Table("panels, a column for each date", wide, {})
    years = pd.DataFrame({"country": list("abcdef"), **{str(y): np.arange(6) * 1.5 + y for y in range(2010, 2018)}})
    yield Table("panels, a column for each year", years, {})
    months = pd.DataFrame({"year": range(2010, 2016), **{f"{d:%b}": np.arange(6) * 1.5 for d in MONTHS[:12]}})
    yield Table("panels, a column for each month", months, {})


# -- doors ---------------------------------------------------------------------------------------------------


def _csv(frame: pd.DataFrame, separator: str = ",", **options: Any) -> str:
    text = io.StringIO()
    frame.to_csv(text, sep=separator, index=not isinstance(frame.index, pd.RangeIndex), **options)
    return text.getvalue()


LAYOUTS: dict[str, Callable[[pd.DataFrame], bytes]] = {
    "comma": lambda frame: _csv(frame).encode(),
    "semicolon": lambda frame: _csv(frame, ";").encode(),
    "tab": lambda frame: _csv(frame, "\t").encode(),
    "pipe": lambda frame: _csv(frame, "|").encode(),
    "BOM": lambda frame: _csv(frame, ";").encode("utf-8-sig"),
    "UTF-16": lambda frame: _csv(frame, "\t").encode("utf-16"),
    "CRLF": lambda frame: _csv(frame, lineterminator="\r\n").encode(),
    "all quoted": lambda frame: _csv(frame, quoting=1).encode(),
    "sep=": lambda frame: ("sep=;\n" + _csv(frame, ";")).encode(),
    "a comment": lambda frame: ("# exported\n" + _csv(frame)).encode(),
    "separators at the end": lambda frame: _csv(frame).replace("\n", ",,\n").encode(),
    "empty lines": lambda frame: (_csv(frame, ";") + "\n\n").encode(),
    "empty rows": lambda frame: (_csv(frame, ";") + ";" * frame.shape[1] + "\n").encode(),
    "units": lambda frame: _with_second_line(frame, "unit").encode(),
    "a header in two lines": lambda frame: _with_second_line(frame, "(of all)").encode(),
    "the header again": lambda frame: (_csv(frame) + _csv(frame)).encode(),
    "a footer": lambda frame: (_csv(frame) + "Source: the office\n").encode(),
    "a title": lambda frame: ("Sales of 2019\n" + _csv(frame)).encode(),
}
BROKEN = {"the header again", "a footer", "a title"}  # layouts that have no reading


def _with_second_line(frame: pd.DataFrame, words: str) -> str:
    header, _, rest = _csv(frame).partition("\n")
    return f"{header}\n{','.join(['', *[words] * (header.count(','))])}\n{rest}"


def _read(table: Table, folder: Path, layout: str) -> sm.Sequences:
    file = folder / "a.csv"
    file.write_bytes(LAYOUTS[layout](table.frame))
    return sm.data.read(file, kind="vectors")


def _of_frames(table: Table, folder: Path) -> sm.Sequences:
    """A list of one frame, whose index is the time: no column is guessed to be it."""
    frame = table.frame if table.date is None else table.frame.set_index(table.date)
    return sm.Sequences([frame], features=list(frame.columns))


def _command_line(table: Table, folder: Path) -> sm.Sequences:
    file = folder / "a.csv"
    file.write_text(_csv(table.frame), encoding="utf-8")
    return series_of_file(str(file), None, None, None, None, (), None)


def _arrow(table: Table, folder: Path) -> sm.Sequences:
    import pyarrow

    return sm.data.table(
        pyarrow.Table.from_pandas(_with_plain_index(table.frame), preserve_index=False), kind="vectors"
    )


def _polars(table: Table, folder: Path) -> sm.Sequences:
    import polars

    return sm.data.table(polars.from_pandas(_with_plain_index(table.frame)), kind="vectors")


def _with_plain_index(frame: pd.DataFrame) -> pd.DataFrame:
    return frame if isinstance(frame.index, pd.RangeIndex) else frame.reset_index()


# Tables of other libraries, where these are installed.
OTHER_TABLES: dict[str, Callable[[Table, Path], sm.Sequences]] = {
    **({"Arrow": _arrow} if find_spec("pyarrow") else {}),
    **({"polars": _polars} if find_spec("polars") and find_spec("pyarrow") else {}),
}
DOORS: dict[str, Callable[[Table, Path], sm.Sequences]] = {
    "table": lambda table, _: sm.data.table(table.frame, kind="vectors"),
    "from_frame": lambda table, _: sm.Sequences.from_frame(table.frame, time=table.date, by=table.by),
    "forecast": lambda table, _: regular_sequences(table.frame),
    "list of frames": _of_frames,
    "command line": _command_line,
    **OTHER_TABLES,
    **{f"read, {layout}": lambda table, folder, layout=layout: _read(table, folder, layout) for layout in LAYOUTS},
}


def _of_reading(x: sm.Sequences, said: str, table: Table) -> Outcome:
    """Whether the sequences are those of the table, or have columns less, which are named."""
    if len(x) != len(table.series) or (len(x) > 1 and set(map(str, x.names)) != set(table.series)):
        return "silent"
    came: Outcome = "right"
    for i, name in enumerate(x.names):
        times, y = table.series[str(name)] if len(x) > 1 else next(iter(table.series.values()))
        names = x.features or ()
        if "y" not in names:
            if "y (" not in said:
                return "silent"
            came = "refused"
            continue
        if y is None or (x.times is not None and times is NONE):
            return "silent"
        values = np.asarray(x[i], dtype=float)[:, names.index("y")]
        if times is not None and x.times is None:
            if f"{table.date} (" not in said and f"'{table.date}'" not in said:
                return "silent"
            came, y = "refused", table.frame["y"]  # in the order of the rows
        elif times is not None:
            assert x.times is not None
            meant = np.asarray(times, x.times[i].dtype)
            there = ~np.isnan(values) | np.isin(x.times[i], meant)
            if not np.array_equal(x.times[i][there], meant):
                return "silent"
            values = values[there]
        if not np.array_equal(values, np.asarray(y, dtype=float), equal_nan=True):
            return "silent"
    return came


def outcome(door: str, table: Table, folder: Path) -> tuple[Outcome, str]:
    """What came of one table at one door, and a few words on it."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            x = DOORS[door](table, folder)
        except ValueError as error:
            is_ours = len(str(error).split()) >= 6 and "Traceback" not in str(error) and "errors=" not in str(error)
            return ("refused" if is_ours else "foreign"), str(error)
        except Exception as error:  # whatever comes is what is measured
            return "foreign", repr(error)
    foreign = [each for each in caught if each.category is not UserWarning]
    if foreign:
        return "foreign", str(foreign[0].message)
    said = " ".join(str(each.message) for each in caught)
    if "are called as dates" in said or "differ by spaces or capitals" in said or "index holds words" in said:
        return "refused", said
    came = "silent" if door.removeprefix("read, ") in BROKEN else _of_reading(x, said, table)
    if came != "silent":
        return came, said
    times = None if x.times is None else [str(t) for t in x.times[0][:3]]
    return "silent", f"{x.describe()} {x.names[:3]} {times} {np.asarray(x[0])[:3].tolist()} {said}"


def cases(quick: bool) -> list[tuple[str, Table]]:
    """Every table at the doors of frames, and in two layouts of files, in turn; every fifteenth of them if quick."""
    found = []
    layouts = [f"read, {layout}" for layout in LAYOUTS]
    for i, table in enumerate((*_dates(), *_numbers(), *_panels())):
        is_in_memory = any(not isinstance(cell, str | float | int) for cell in table.frame.iloc[0]) and not table.date
        doors = ["table", "from_frame", "forecast", *OTHER_TABLES]
        doors += [] if table.name.startswith("panels") else ["list of frames"]
        doors += (
            []
            if is_in_memory
            else ["read, comma", "command line", *(layouts[(5 * i + k) % len(layouts)] for k in (1, 2, 3))]
        )
        if table.name.startswith("panels, a column for"):
            doors.remove("from_frame")  # which guesses nothing
        found += [(door, table) for door in dict.fromkeys(doors)]
    return found[:: 15 if quick else 1]


def measure(quick: bool) -> list[Promise]:
    """All tables at all doors."""
    counts: Counter[Outcome] = Counter()
    chosen = cases(quick)
    with tempfile.TemporaryDirectory() as folder:
        for door, table in chosen:
            came, words = outcome(door, table, Path(folder))
            counts[came] += 1
            if came in ("silent", "foreign"):
                print(f"{came}: {door}: {table.name}: {words:.300}")
    print(f"{len(chosen)} calls: {dict(counts)}")
    n = len({table.name for _, table in chosen})
    return [
        Promise(
            f"tables read as something else, without a word, of {n} forms of dates, numbers and panels "
            f"({len(chosen):,} calls: {counts['right']} read rightly, {counts['refused']} refused in words)",
            "0",
            str(counts["silent"]),
            counts["silent"] == 0,
        ),
        Promise("of them, errors and warnings of other libraries", "0", str(counts["foreign"]), counts["foreign"] == 0),
    ]


if __name__ == "__main__":
    main(measure)
