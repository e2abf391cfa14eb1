"""The rule that sequences come back from a code as long as their figures say, and models that break it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import seqmodels as sm
from seqmodels.encodings.examples import Example
from seqmodels.evaluation.auditing.findings import Finding
from tests.evaluation.auditing.cheats import Bigram, V, symbols, texts


def finding(model: Any, X: Any, **options: Any) -> Finding:
    result = sm.audit(model, X, **{"effort": "quick", **options})
    (found,) = [each for each in result.findings if each.rule == "coded and decoded"]
    return found


class Added:
    """Figures of another model, to which something is added."""

    def __init__(self, model: Bigram, add: Any) -> None:
        self.model, self.add = model, add

    def log_prob_steps(self, X: Any) -> list[np.ndarray]:
        return [steps + self.add(steps) for steps in self.model.log_prob_steps(X)]


@pytest.mark.parametrize("ends", [False, True])
def test_the_code_of_a_model_of_someone_else_is_as_long_as_its_figures(ends: bool) -> None:
    held = finding(Bigram(symbols(0), ends), symbols(1), n_symbols=V)
    assert held.verdict == "held"
    assert abs(held.statistic) < 9
    assert finding(Bigram(symbols(0), ends), symbols(1)).verdict == "held"  # also where the alphabet is not known


def test_figures_that_are_too_high_have_a_longer_code() -> None:
    broken = finding(Added(Bigram(symbols(0)), lambda _: 0.2), symbols(1), n_symbols=V)
    assert broken.verdict == "broken"
    assert broken.statistic > 9
    assert "the code that is decoded has" in broken.counter_example


def test_figures_that_are_too_low_have_a_shorter_code() -> None:
    broken = finding(Added(Bigram(symbols(0)), lambda _: -0.2), symbols(1), n_symbols=V)
    assert (broken.verdict, broken.statistic < -9) == ("broken", True)
    assert finding(Added(Bigram(symbols(0)), lambda _: -0.2), symbols(1)).verdict == "held"  # others may come


def test_a_model_that_looks_ahead_does_not_code_as_it_scores() -> None:
    """It gives what comes next nearly all, if it is there to be seen; a decoder cannot see it."""

    def hint(steps: np.ndarray) -> np.ndarray:
        return np.append(-0.9 * steps[:-1], 0.0)

    assert finding(Added(Bigram(symbols(0)), hint), symbols(1), n_symbols=V).verdict == "broken"


def test_what_is_not_the_same_twice_cannot_be_decoded() -> None:
    rng = np.random.default_rng(0)
    broken = finding(Added(Bigram(symbols(0)), lambda s: rng.normal(0, 2, len(s))), symbols(1), n_symbols=V)
    assert "what is decoded is not what was coded" in broken.counter_example


def test_models_of_the_library_are_compressed_by_their_cursor() -> None:
    class Doubled(sm.NGram):
        def _steps(self, examples: list[Example]) -> list[np.ndarray]:
            return [0.8 * steps for steps in super()._steps(examples)]

    assert finding(sm.NGram(2).fit(texts(0)), texts(1)).verdict == "held"
    assert finding(Doubled(2).fit(texts(0)), texts(1)).verdict == "broken"


def test_what_cannot_be_listed_or_has_no_probability_is_not_checked() -> None:
    class OfText:
        def log_prob_steps(self, X: Any) -> list[np.ndarray]:
            return model.log_prob_steps(X)

    model = sm.NGram(2).fit(texts(0))
    assert finding(OfText(), texts(1)).verdict == "not checked"
    nothing = sm.HMM.from_parameters([1.0], [[0.5]], final=[0.5], emission=[[1.0, 0.0]])
    assert "probability zero" in finding(nothing, [[1, 0], [0, 1]]).meaning
