"""Score against seconds: the table and the picture have every family, at every budget."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest

SCRIPT = Path(__file__).parents[2] / "experiments" / "score_against_seconds.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("score_against_seconds", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_was_measured_has_every_family_size_and_budget(script: ModuleType) -> None:
    scores = pd.read_csv(script.RESULTS / "scores.csv")
    for data, families in script.SIZES.items():
        rows = scores[scores["data"] == data]
        assert set(rows["family"]) == {*families, *script.AT_ONCE[data]}
        for family, (_, smaller, larger) in families.items():
            points = rows[rows["family"] == family]
            assert tuple(points["budget"]) == script.BUDGETS
            assert list(points["size"]) == [repr(smaller)] * 2 + [repr(larger)] * 2


def test_a_line_for_each_family(script: ModuleType) -> None:
    budgets = list(script.BUDGETS)
    rows = [
        {"data": data, "family": family, "seconds": seconds, "score": -2.0 - i + seconds / 40}
        for data, families in script.SIZES.items()
        for i, family in enumerate(families)
        for seconds in budgets
    ]
    rows.append({"data": "text", "family": "n-gram", "seconds": 0.6, "score": -1.2})
    figure = script.picture(pd.DataFrame(rows))
    for axes, (data, families) in zip(figure.axes, script.SIZES.items(), strict=True):
        drawn = [line for line in axes.lines if line.get_marker() == "o"]
        assert len(drawn) == len(families) + (data == "text")
        labels = [text.get_text() for text in axes.texts if text.get_gid() == "label"]
        assert set(labels) >= set(families)
    flat = [line for line in figure.axes[0].lines if line.get_linestyle() == ":"]
    assert [list(line.get_xdata()) for line in flat] == [[0.6, budgets[-1]]]
