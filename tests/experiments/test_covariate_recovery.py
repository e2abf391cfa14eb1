"""Coefficients of inputs, found again: a few small drawings, and what was measured."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest

RESULTS = Path(__file__).parents[2] / "experiments" / "results" / "covariate_recovery"
SCRIPT = Path(__file__).parents[2] / "experiments" / "covariate_recovery.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("covariate_recovery", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("case", "name", "n_slopes"), [("transitions", "transition_slopes", 6), ("emissions", "emission_slopes", 4)]
)
def test_slopes_of_a_drawing_are_near_the_true_ones(script: ModuleType, case: str, name: str, n_slopes: int) -> None:
    frame = script.one(case, seed=0, n=10, length=150)
    slopes = frame[frame["name"] == name]
    assert len(slopes) == n_slopes
    distance = (slopes["estimate"] - slopes["true"]) / slopes["standard_error"]
    assert distance.abs().max() < 4
    assert slopes["standard_error"].max() < 0.1
    means = frame[frame["name"] == "means"]
    assert ((means["estimate"] - means["true"]) / means["standard_error"]).abs().max() < 4


def test_what_was_measured_is_what_the_page_says(script: ModuleType) -> None:
    table = pd.read_csv(RESULTS / "coverage.csv")
    assert (RESULTS / "README.md").read_text() == script.page(table)
    slopes = table[table["name"].str.endswith("slopes")]
    assert slopes["case"].tolist() == list(script.CASES)
    assert (slopes["runs"] >= 100).all()
    assert (slopes["within_three"] >= 0.95).all()
    assert slopes["coverage"].between(0.93, 0.97).all()
