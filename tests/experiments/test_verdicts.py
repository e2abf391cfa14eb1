"""Verdicts of the claims: three, by intervals or a margin; those that are committed are what the rules give."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import ttest_1samp
from verdict import Part, interval_of_mean, of_all, of_interval, of_one_run, part

RESULTS = Path(__file__).parents[2] / "experiments" / "results" / "claims"
# Scripts whose verdicts follow from the committed table alone.
FROM_TABLES = (
    "autoregressive", "bpe_size", "entropy_rate", "families_speech", "families_text", "fixed_context", "heads", "hop",
    "positions", "vanishing_gradient",
)  # fmt: skip


def test_an_interval_decides() -> None:
    assert [of_interval(*ends) for ends in ((0.1, 0.2), (-0.2, -0.1), (-0.1, 0.2), (0.0, 0.2))] == [
        "held", "contradicted", "undecided", "undecided",
    ]  # fmt: skip
    assert of_interval(0.1, 0.2, above=0.5) == "contradicted"
    assert [of_one_run(x, 0.1) for x in (0.3, 0.05, -0.3)] == ["held", "undecided", "contradicted"]
    with pytest.raises(ValueError, match=r"from 1\.0 to 0\.0"):
        of_interval(1.0, 0.0)


def test_one_that_is_contradicted_contradicts_a_statement_about_each() -> None:
    assert of_all(["held", "undecided", "contradicted"]) == "contradicted"
    assert of_all(["held", "undecided"]) == "undecided"
    assert of_all(["held"]) == "held"
    with pytest.raises(ValueError, match="no verdict"):
        of_all([])


def test_the_interval_is_students() -> None:
    x = np.random.default_rng(0).normal(1.0, 2.0, 7)
    expected = ttest_1samp(x, 0.0).confidence_interval(0.95)
    np.testing.assert_allclose(interval_of_mean(x.tolist()), [x.mean(), expected.low, expected.high])
    assert part("more", x.tolist(), "nats").verdict == of_interval(expected.low, expected.high)
    assert part("more", [0.3], "nats") == Part("more", "held", "+0.300 nats, one run")
    for wrong in ([1.0], [1.0, np.nan]):
        with pytest.raises(ValueError, match="two or more finite"):
            interval_of_mean(wrong)


@pytest.mark.parametrize("name", FROM_TABLES)
def test_committed_verdicts_are_those_of_the_committed_tables(name: str) -> None:
    script = import_module(name)
    found = script.parts(pd.read_csv(RESULTS / f"{name}.csv"))
    said = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))["parts"]
    assert [(each.claim, each.verdict) for each in found] == [(each["claim"], each["verdict"]) for each in said]
