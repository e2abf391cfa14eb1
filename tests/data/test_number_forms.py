"""A table of doors by forms of numbers: every door reads the same values, or refuses them by row and value."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from seqmodels import Sequences, data
from seqmodels.cli import app
from seqmodels.cli.inputs import read_inputs
from seqmodels.evaluation.forecasting.tables import regular_sequences

Z = [1.5, 2.5, 3.5]  # the column beside it


def _of_file(frame: pd.DataFrame, folder: Path) -> Path:
    frame.to_csv(folder / "a.csv", index=False, sep="\t")
    return folder / "a.csv"


def _inputs(frame: pd.DataFrame, folder: Path) -> Any:
    names = list(frame.columns)
    return Sequences([read_inputs(str(_of_file(frame, folder)), names)[""]], features=names)


def _arrow(frame: pd.DataFrame) -> Any:
    import pyarrow

    return pyarrow.Table.from_pandas(frame)


def _polars(frame: pd.DataFrame) -> Any:
    import polars

    return polars.from_pandas(frame)


DOORS: dict[str, Callable[[pd.DataFrame, Path], Sequences]] = {
    "read": lambda frame, folder: data.read(_of_file(frame, folder)),
    "table": lambda frame, _: data.table(frame),
    "from_frame": lambda frame, _: Sequences.from_frame(frame),
    "named columns": lambda frame, _: Sequences.from_frame(frame, columns=list(frame.columns)),
    "a list of frames": lambda frame, _: Sequences([frame], features=list(frame.columns)),
    "forecast": lambda frame, _: regular_sequences(frame),
    "inputs of the command line": _inputs,
    "an Arrow table": lambda frame, _: data.table(_arrow(frame)),
    "an Arrow table, forecast": lambda frame, _: regular_sequences(_arrow(frame)),
    "polars": lambda frame, _: Sequences.from_frame(_polars(frame)),
}
NEEDS = {"an Arrow table": "pyarrow", "an Arrow table, forecast": "pyarrow", "polars": "polars"}
READ: dict[str, tuple[Any, list[float]]] = {
    "percent": (["10.5%", "3%", "4 %"], [10.5, 3, 4]),
    "currency": (["€101", "€1,200.5", "-€7"], [101, 1200.5, -7]),
    "thousands": (["10,130.0", "9,900.5", "12"], [10130, 9900.5, 12]),
    "k and M": (["5k", "900", "1.2M"], [5000, 900, 1.2e6]),
    "k in all": (["5k", "9k", "1.5k"], [5, 9, 1.5]),
    "a unit": (["12 kg", "13.5 kg", "14 kg"], [12, 13.5, 14]),
    "decimal commas": (["1.234,5", "2,5", "\u22123"], [1234.5, 2.5, -3]),
    "narrow spaces": (["1\u202f234,5", "2,5", "3"], [1234.5, 2.5, 3]),
    "accounting": (["(1,234.5)", "2.5", "3"], [-1234.5, 2.5, 3]),
    "missing": (["1.5", "n/a", "missing"], [1.5, np.nan, np.nan]),
    "text of numbers": (["1.5", "2.5", "1e3"], [1.5, 2.5, 1000]),
    "Decimal": ([Decimal("1.5"), None, Decimal("2.5")], [1.5, np.nan, 2.5]),
    "Int64": (pd.array([3, None, 5], dtype="Int64"), [3, np.nan, 5]),
    "sparse": (pd.arrays.SparseArray([0.0, 0.0, 1.5]), [0, 0, 1.5]),
}
REFUSED = {
    "a word": (["1.5", "oops", "2.5"], "'oops'"),
    "an open comma": (["1,234", "2,345", "3,456"], "'1,234'"),
    "a second unit": (["1 kg", "500 g", "2 kg"], "'500 g'"),
    "a currency before and after": (["€5", "6 €", "7.5"], "'6 €'"),
    "k and m": (["5k", "12m", "900"], "'12m'"),
    "an error of Excel's": (["#DIV/0!", "2", "3.5"], "'#DIV/0!'"),
    "percent and none": (["1%", "2%", "0.3"], "'0.3'"),
}


@pytest.mark.filterwarnings("ignore:.*read 'y' (in %|without|with)")  # asserted in tests of what is said
@pytest.mark.parametrize("door", DOORS)
def test_every_door_reads_numbers_as_people_write_them(door: str, tmp_path: Path) -> None:
    if door in NEEDS and find_spec(NEEDS[door]) is None:
        pytest.skip(f"{NEEDS[door]} is not installed")
    for form, (cells, values) in READ.items():
        if door in NEEDS and form == "sparse":  # which neither has
            continue
        x = DOORS[door](pd.DataFrame({"y": cells, "z": Z}), tmp_path)
        assert x.features == ("y", "z"), form
        np.testing.assert_array_equal(np.asarray(x[0]), np.column_stack([values, Z]), err_msg=form)


@pytest.mark.parametrize("door", DOORS)
def test_every_door_refuses_what_cannot_be_read_by_row_and_value(door: str, tmp_path: Path) -> None:
    if door in NEEDS and find_spec(NEEDS[door]) is None:
        pytest.skip(f"{NEEDS[door]} is not installed")
    for form, (cells, value) in REFUSED.items():
        other = ["a", "b", "c"] if form == "an open comma" else Z  # points in it would tell
        if form == "an open comma" and door in ("named columns", "a list of frames", "inputs of the command line"):
            continue  # which would refuse the words
        with pytest.raises(ValueError, match=rf"(row \d of|a\.csv:\d) .*{re.escape(value)}"):
            DOORS[door](pd.DataFrame({"y": cells, "z": other}), tmp_path)


def test_a_sign_behind_digits_that_is_a_number_is_no_unit() -> None:
    for cells in (["5²", "6²", "7²"], ["40 BC", "30 BC", "20 BC"]):
        with pytest.warns(UserWarning, match=r"left out y \(words\)"):
            assert data.table(pd.DataFrame({"y": cells, "z": Z})).features == ("z",)


@pytest.mark.parametrize("cells", ["1:{:02d}", "0:{:02d}:30", "0x1{}", "{}/2", "12{}/80"])
def test_numbers_in_a_writing_that_is_not_read_are_no_symbols(cells: str) -> None:
    frame = pd.DataFrame({"run": [cells.format(i) for i in range(10)]})
    first = re.escape(repr(cells.format(0)))
    with pytest.raises(ValueError, match=f"row 0 of the frame has {first} under 'run', which is a"):
        data.table(frame)
    scores = pd.DataFrame({"score": ["2:1", "0:0", "1:1"] * 4})
    assert data.table(scores).kind == "symbols"


@pytest.mark.parametrize("door", DOORS)
def test_a_number_that_codes_missing_values_is_said_at_every_door(door: str, tmp_path: Path) -> None:
    if door in NEEDS and find_spec(NEEDS[door]) is None:
        pytest.skip(f"{NEEDS[door]} is not installed")
    frame = pd.DataFrame({"y": [1.5, -999, 2.5, 3, -999], "z": [1, 2, 9999, 9999, 5.5], "w": [98, 99, 99, 1.5, 97]})
    says = "'y' has the number -999 2 times, far from all others (1.5 to 3); 'z' has the number 9999 2 times, far from"
    with pytest.warns(UserWarning, match=re.escape(says)) as caught:
        x = DOORS[door](frame, tmp_path)
    assert ["'w'" in str(each.message) for each in caught] == [False]
    assert "frame.replace(it, numpy.nan)" in str(caught[0].message)
    np.testing.assert_array_equal(np.asarray(x[0]), frame)


def test_what_is_left_out_is_named_at_every_door(tmp_path: Path) -> None:
    frame = pd.DataFrame({"y": Z, "wind": ["N", "S", "N"]})
    for door in ("read", "table", "from_frame", "forecast"):
        with pytest.warns(UserWarning, match=r"left out wind \((words|no numbers)\)"):
            assert DOORS[door](frame, tmp_path).features == ("y",)


def test_the_command_line_names_file_line_and_value(tmp_path: Path) -> None:
    y = 10 + np.sin(np.arange(30)) + np.random.default_rng(0).normal(size=30)
    frame = pd.DataFrame({"y": [f"{v:.2f}" for v in y], "z": [*map(str, y[:7]), "n.a. (broken)", *map(str, y[8:])]})
    file = _of_file(frame, tmp_path)
    done = CliRunner().invoke(app, ["forecast", str(file), "-k", "2", "--max-seconds", "0.001"])
    assert done.exit_code == 2
    assert "a.csv:9 has 'n.a. (broken)' under 'z', which is not a number, among numbers" in done.stderr
    done = CliRunner().invoke(app, ["forecast", str(file), "-k", "2", "--columns", "y", "--max-seconds", "0.001"])
    assert done.exit_code == 0, done.stderr
