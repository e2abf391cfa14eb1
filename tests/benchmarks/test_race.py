import sys
from pathlib import Path

import numpy as np
import pytest
from race import Entrant, Run, entrants, race
from results import table
from workloads import make

from seqmodels import HMM

SMALL = 3  # sequences


def test_an_entrant_iterates_and_one_that_fails_is_left_out(capfd: pytest.CaptureFixture[str]) -> None:
    ours, absent = Entrant("seqmodels", "float64", "own"), Entrant("dynamax", "float32", "equal")
    where = {"seqmodels": Path(sys.executable), "dynamax": Path("nowhere/python")}
    *_, runs = race("W2", [absent, ours], where, rounds=2, turn=0.0, n_sequences=SMALL)
    assert "dynamax float32 is left out" in capfd.readouterr().out
    (run,) = runs
    assert run.entrant == ours
    assert (len(run.seconds), len(run.history)) == (2, 3)  # a warm-up that does not count, and two rounds
    workload = make("W2").first(SMALL)
    mixture = workload.emission
    model = HMM.from_parameters(
        workload.initial,
        workload.transition,
        weights=mixture.weights,
        means=mixture.means,
        covariances=mixture.variances,
        warm_start=True,
        tol=0,
        max_iter=2,
        dtype="float64",
    ).fit(workload.sequences)
    expected = len(workload.x) * model.history_["log_prob"]  # at once, what the race did in three turns
    np.testing.assert_allclose(run.history, expected, rtol=1e-9)


def test_where_all_lengths_are_equal_nothing_runs_twice() -> None:
    assert len(entrants("W2", ["seqmodels"])) == 3
    assert len(entrants("W3", ["seqmodels"])) == 2
    assert "hmmlearn log" not in [e.name for e in entrants("W4", ["hmmlearn"])]


def test_ratios_and_log_probs_are_of_the_same_data_and_iterations() -> None:
    runs = [
        Run(Entrant("seqmodels", "float32", "own"), "", 9, [2.0], [-5.0, -4.0, -3.0], [1.0], 1.0),
        Run(Entrant("seqmodels", "float32", "equal"), "", 9, [1.0, 1.0, 4.0], [-6.0, -5.5, -5.0], [1.0], 1.0),
        Run(Entrant("hmmlearn", "log", "own"), "", 9, [6.0, 8.0, 9.0], [-5.0, -4.1], [1.0], 1.0),
        Run(Entrant("dynamax", "float32", "equal"), "", 9, [3.0], [-6.0, -5.5, -5.1], [1.0], 1.0),
    ]
    found = table("W2", runs)
    assert found["ratio"].tolist() == [1.0, 1.0, 4.0, 3.0]
    assert found["after"].tolist() == [1, 2, 1, 2]
    assert found["log_prob"].tolist() == [-4.0, -5.0, -4.1, -5.1]
