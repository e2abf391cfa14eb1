"""Variances of random effects, found again: a drawing, and what was measured."""

import importlib.util
import itertools
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest

RESULTS = Path(__file__).parents[2] / "experiments" / "results" / "random_effect_recovery"
SCRIPT = Path(__file__).parents[2] / "experiments" / "random_effect_recovery.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("random_effect_recovery", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_effects_of_a_drawing_are_near_the_true_ones(script: ModuleType) -> None:
    rows = script.one(seed=0, restricted=True, durations=False)
    assert rows["state"].tolist() == [0, 1]
    assert ((rows["sd"] / script.SD).between(0.5, 1.6)).all()
    assert (rows["coverage"] >= 0.8).all()


def test_a_drawing_has_the_effects_that_it_says(script: ModuleType) -> None:
    X, effects = script.drawn(3)
    assert effects.shape == (2, script.GROUPS)
    assert X.inputs is not None
    assert [float(u[0, 0]) for u in X.inputs] == list(range(script.GROUPS))
    for state in range(2):
        leaves = []
        for x in X:
            z = (x.ravel() > 1.5).astype(int)
            leaves.append(np.mean(z[1:][z[:-1] == state] != state))
        assert np.corrcoef(leaves, effects[state])[0, 1] > 0.7


def test_durations_have_the_effects_that_they_say(script: ModuleType) -> None:
    X, effects = script.drawn_durations(3)
    assert effects.shape == (2, script.GROUPS)
    for state in range(2):
        shares = [np.mean((x.ravel() > 1.5) == state) for x in X]
        assert np.corrcoef(shares, effects[state] - effects[1 - state])[0, 1] > 0.7


def test_a_summary_is_of_the_runs_of_each_method(script: ModuleType) -> None:
    runs = []
    for seed, restricted in itertools.product(range(3), (True, False)):
        sd = [0.8 + 0.1 * seed, 0.8] if restricted else [0.4, 0.4]
        rows = {"state": [0, 1], "sd": sd, "coverage": [0.9, 1.0], "seconds": [2.0, 2.0]}
        runs.append(pd.DataFrame(rows).assign(restricted=restricted))
    table = script.summary(pd.concat(runs), script.SD).set_index("method")
    assert table["runs"].to_dict() == {"REML": 3, "ML": 3}
    assert table["sd_ratio"].to_dict() == pytest.approx({"REML": (5 * 0.8 + 0.8 + 0.3) / 6 / 0.8, "ML": 0.5})
    assert table["coverage"].tolist() == pytest.approx([0.95, 0.95])
    assert table["cpu_seconds"].tolist() == [6.0, 6.0]


def test_what_was_measured_keeps_the_rule(script: ModuleType) -> None:
    table = pd.read_csv(RESULTS / "recovery.csv").set_index("method")
    assert table.index.tolist() == ["REML", "ML"]
    reml = table.loc["REML"]
    assert abs(reml["sd_ratio"] - 1) < 0.05 + 2 * reml["sd_ratio_error"]
    assert 0.93 - 2 * reml["coverage_error"] < reml["coverage"] < 0.97 + 2 * reml["coverage_error"]
