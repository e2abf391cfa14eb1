"""Figures of the literature: what the script finds, and that its page shows what it found."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("published", ROOT / "experiments/published.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["published"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_earthquakes_have_the_figures_of_the_book(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(script.STARTS, "n_init", 2)
    monkeypatch.setitem(script.TO_THE_END, "max_iter", 100)
    cases = [case for case in script.CASES if case.data == "earthquakes"]
    x = script.read("earthquakes", [])
    found = pd.DataFrame([row for case in cases for row in script.rows(case, x)])
    is_of_steps = found["figure"].str.contains("log p")
    assert is_of_steps.sum() == len(cases) == 8
    assert set(found["agreement"][is_of_steps]) == {"all digits"}
    assert set(found["agreement"]) == {"all digits", "2 in the last digit"}  # the latter of one transition


def test_the_page_shows_the_table_that_was_measured(script: ModuleType) -> None:
    frame = pd.read_csv(ROOT / script.RESULTS)
    assert script.markdown(frame) in (ROOT / script.PAGE).read_text(encoding="utf-8")
    named = [(case.data, case.model, name) for case in script.CASES for name in case.figures]
    assert list(frame[["data", "model", "figure"]].itertuples(index=False, name=None)) == named
    page = f"a\n{script.ABOVE}\nold\n{script.BELOW}\nb\n"
    assert script.with_table(page, "new") == f"a\n{script.ABOVE}\n\nnew\n\n{script.BELOW}\nb\n"


def test_a_row_without_data_stays(script: ModuleType) -> None:
    by_data = {case.data: case for case in script.CASES}
    (no_data,) = script.rows(by_data["speed"], None)
    assert "ours" not in no_data
    assert no_data["published"] == "-58.386"  # the last of them
    assert no_data["agreement"] == f"no data: {script.SPEED}"
    assert f"no data: {script.SPEED}" in script.markdown(pd.DataFrame([no_data]))


def test_series_are_read_as_they_stand(script: ModuleType, tmp_path: Path) -> None:
    assert script.read("fedfunds", [tmp_path]) is None
    (tmp_path / "results_wpi1_ar3_stata.csv").write_text("wpi\n" + "\n".join(str(t * t) for t in range(25)))
    changes = script.read("wholesale prices", [tmp_path])[:, 0]
    assert changes[:9].tolist() == list(range(1, 18, 2))  # of squares
    assert changes[20:].tolist() == [41, 43, 45, 47]
    assert pd.isna(changes[9:20]).all()
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_markov_regression.py").write_text("import nothing\nfedfunds = [1.5, -2]\nother = f()\n")
    (tmp_path / "speed.csv").write_text("rt,corr,Pacc\n6.5,cor,0.0\n5.5,inc,0.25\n")
    assert script.read("fedfunds", [tmp_path]).tolist() == [[1.5], [-2.0]]
    assert script.read("speed", [tmp_path]).tolist() == [[6.5], [5.5]]
    assert script.read("speed, three sessions", [tmp_path]).tolist() == [[6.5, 1.0, 0.0], [5.5, 0.0, 0.25]]
    (tmp_path / "tests/test_markov_autoregression.py").write_text("rgnp = [2.5, 3]\nrec = [0, 1]\n")
    (tmp_path / "tests/mar_filardo.csv").write_text("dlip,other,dmdlleading\n1.0,7,-2.0\n0.5,7,4.0\n")
    assert script.read("rgnp", [tmp_path]).tolist() == [[2.5], [3.0]]
    assert script.read("rgnp, recessions", [tmp_path]).tolist() == [[2.5, 0.0], [3.0, 1.0]]
    production = script.read("production, leading index", [tmp_path])
    assert production.tolist() == [[1.0, -2.0], [0.5, 4.0]]
    assert script.with_lag(production).tolist() == [[0.5, -2.0]]
    minutes = [4.0166667, 2, 4.1, 4, 1.9, 3, 2, 4, 5]  # the first 2 and 4 stand alone, and were measured
    (tmp_path / "geyser.csv").write_text(
        "waiting,duration\n" + "".join(f"{70 + i},{m}\n" for i, m in enumerate(minutes))
    )
    assert script.read("geyser, waiting", [tmp_path])[:3].tolist() == [[70.0], [71.0], [72.0]]
    ends = script.read("geyser, durations", [tmp_path])
    assert ends[0].tolist() == [240.5 / 60, 241.5 / 60]
    assert ends[[1, 3]].tolist() == [[119.5 / 60, 120.5 / 60], [239.5 / 60, 240.5 / 60]]
    assert ends[5:8].tolist() == [[2.5, 3.5], [0.0, 3.0], [3.0, 20.0]]
    with pytest.raises(ValueError, match="the file assigns no areturns"):
        script.read("areturns", [tmp_path])
    assert script.read("earthquakes", []).shape == (107, 1)


@pytest.mark.parametrize(
    ("ours", "is_maximum", "expected"),
    [
        ([1.2344, -5.0], False, "all digits"),
        ([1.2356, -5.0], False, "2 in the last digit"),
        ([1.234, -4.0], False, "differs"),
        ([1.250, -5.0], True, "ours is higher"),
        ([1.218, -5.0], True, "differs"),
    ],
)
def test_agreement_is_that_of_printed_digits(
    script: ModuleType, ours: list[float], is_maximum: bool, expected: str
) -> None:
    printed = "1.234 -5.00"
    shown, difference = script.as_printed(ours, printed), script.largest_difference(ours, printed)
    assert script.agreement(shown, printed, difference, is_maximum=is_maximum) == expected
