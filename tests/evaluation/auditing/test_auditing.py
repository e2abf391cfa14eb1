"""audit: every planted cheat is caught by the rule it breaks, and models that are right are not accused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import seqmodels as sm
from seqmodels.evaluation.auditing import StepScorer
from tests.evaluation.auditing.cheats import CHEATS, Autoregression, Bigram, Cheat, V, audit_of, symbols, texts, vectors
from tests.families import Row, rough, rows

RULES = [
    "sums to one",
    "causal",
    "scores before it learns",
    "same in any batch",
    "cursor equals batch",
    "samples follow scores",
    "units",
    "no look at the test part",
    "declared memory",
    "coded and decoded",
    "finite",
]


def verdicts(result: sm.evaluation.Audit) -> dict[str, str]:
    return dict(zip(result.frame["rule"], result.frame["verdict"], strict=True))


def name_of(cheat: Cheat) -> str:
    return getattr(cheat.make, "__name__", str(cheat.number))


@pytest.mark.parametrize("cheat", CHEATS, ids=name_of)
def test_a_cheat_is_caught_by_the_rule_that_it_breaks(cheat: Cheat) -> None:
    model, result = audit_of(cheat, seed=3)
    assert cheat.rule in result.broken
    assert not result.passed
    (finding,) = [each for each in result.findings if each.rule == cheat.rule]
    assert finding.counter_example.startswith(("sequence ", "all sequences"))
    assert sum(character.isdigit() for character in finding.counter_example) > 2, "two figures and a place"
    assert f"BROKEN: {', '.join(result.broken)}" in result.summary()
    assert isinstance(model, object)


@pytest.mark.parametrize("ends", [False, True])
def test_a_model_of_someone_else_needs_only_steps(ends: bool) -> None:
    class StepsOnly:
        def log_prob_steps(self, X: Any) -> list[np.ndarray]:
            return model.log_prob_steps(X)

    model = Bigram(symbols(0), ends)
    scorer: StepScorer = StepsOnly()
    for n_symbols in (V, None):
        result = sm.audit(scorer, symbols(1), n_symbols=n_symbols, effort="quick")
        assert result.passed, str(result)
        unchecked = {rule for rule, verdict in verdicts(result).items() if verdict == "not checked"}
        assert unchecked == {"cursor equals batch", "samples follow scores"}
    sampled = verdicts(sm.audit(model, symbols(1), n_symbols=V, effort="quick"))
    assert sampled["samples follow scores"] == "held"


# One row of each family of architectures, and of each kind of data.
CHOSEN = [
    *(
        "hmm-ar-vectors-x-stop",
        "hmm-categorical-symbols-x-stop",
        "hmm-bernoulli-bits-x-given",
    ),
    *("ngram-kneser-ney-text-x-stop", "lstm-text-x-stop"),
    *("transformer-pre-symbols-x-stop", "lstm-seq2seq-additive-symbols-y|x-stop"),
    *("alignment-symbols-y|x-stop", "hmm-tagger-from-vectors-symbols-y|x-given", "ngram-open-symbols-x-stop"),
    *("lstm-tagger-symbols-y|x-given", "elman-tanh-symbols-x-given", "lstm-chords-bits-x-stop"),
]


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("row", [row for row in rows() if str(row) in CHOSEN], ids=str)
def test_no_family_is_accused(row: Row) -> None:
    result = sm.audit(rough(row), *row.data, effort="quick")
    assert result.passed, str(result)
    kept = [rule for rule in RULES if rule != "coded and decoded" or row.kind in ("symbols", "text")]
    assert result.frame["rule"].tolist() == kept
    unchecked = [rule for rule, verdict in verdicts(result).items() if verdict == "not checked"]
    assert unchecked == []


def test_the_chosen_rows_are_there() -> None:
    assert {str(row) for row in rows()} >= set(CHOSEN)


def test_pieces_of_text_are_summed_one_by_one() -> None:
    result = sm.audit(sm.NGram(2, encoding=sm.BPE(270)).fit(texts(0)), texts(1), effort="quick")
    assert set(verdicts(result).values()) == {"held"}


def test_a_mixture_of_encodings_is_a_bound_and_what_cannot_be_checked_says_so() -> None:
    model = sm.Mixture([sm.NGram(2), sm.NGram(2, encoding=sm.Characters())]).fit(texts(0))
    result = sm.audit(model, texts(1), effort="quick")
    assert result.passed
    unchecked = result.frame[result.frame["verdict"] == "not checked"].set_index("rule")["meaning"]
    assert "several spellings" in unchecked["sums to one"]
    assert "a bound's steps" in unchecked["causal"]
    assert verdicts(result)["same in any batch"] == "held"


def test_text_of_a_model_of_someone_else() -> None:
    class OfText:
        def __init__(self, factor: float) -> None:
            self.model, self.factor = sm.NGram(3).fit(texts(0)), factor

        def log_prob_steps(self, X: Any) -> list[np.ndarray]:
            return [self.factor * steps for steps in self.model.log_prob_steps(X)]

    assert sm.audit(OfText(1.0), texts(1), effort="quick").passed
    assert "sums to one" in sm.audit(OfText(0.8), texts(1), effort="quick").broken


# -- single rules ------------------------------------------------------------------------------------------------------


class Changed:
    """A model of which one method is another."""

    def __init__(self, model: Any, **methods: Any) -> None:
        self.model = model
        self.__dict__ |= methods

    def log_prob_steps(self, X: Any) -> list[np.ndarray]:
        return self.model.log_prob_steps(X)


def test_a_stream_that_shares_its_state_is_caught() -> None:
    class SharedStream(Changed):
        def stream(self) -> Any:
            return self.shared

    model = sm.HMM(2, max_iter=3, length="given").fit(symbols(0))
    scorer = SharedStream(model, shared=model.stream())
    assert sm.audit(scorer, symbols(1), n_symbols=V, effort="quick").broken == ("cursor equals batch",)


def test_a_context_that_is_longer_than_declared_is_caught() -> None:
    class Trigram(sm.NGram):
        @property
        def context_(self) -> int:
            return 1

    models = Trigram(3).fit(symbols(0)), sm.NGram(3).fit(symbols(0))
    results = [sm.audit(model, symbols(1), effort="quick") for model in models]
    assert [result.broken for result in results] == [("declared memory",), ()]
    assert "all more than 1 back" in str(results[0])


def test_a_model_that_was_fitted_to_the_test_part_is_caught_by_fitting_again() -> None:
    train, test = symbols(0), symbols(1)

    def refit() -> Bigram:
        return Bigram(train)

    assert sm.audit(Bigram(train), test, n_symbols=V, refit=refit, effort="quick").passed
    peeked = sm.audit(Bigram([*train, *test]), test, n_symbols=V, refit=refit, effort="quick")
    assert peeked.broken == ("no look at the test part",)


@pytest.mark.parametrize("value", [np.nan, np.inf, 0.5])
def test_figures_that_are_no_figures(value: float) -> None:
    class Spoiled(Bigram):
        def of_steps(self, x: np.ndarray) -> np.ndarray:
            steps = super().of_steps(x)
            steps[-1] = value
            return steps

    assert "finite" in sm.audit(Spoiled(symbols(0)), symbols(1), n_symbols=V, effort="quick").broken


def test_a_claim_about_the_end_is_held_to() -> None:
    class Claims(Bigram):
        measure_ = sm.Measure("symbols", "symbol", "stop", "exact", False)

    result = sm.audit(Claims(symbols(0)), symbols(1), n_symbols=V, effort="quick")
    assert "units" in result.broken
    assert "symbols and an end, but log_prob_steps has" in str(result)


class Plane:
    """Two independent Gaussian features, of deviations 1 and 100, of a density times ``exp(constant)``."""

    def __init__(self, constant: float) -> None:
        self.constant = constant

    def log_prob_steps(self, X: Any) -> list[np.ndarray]:
        return [-0.5 * ((x / [1, 100]) ** 2).sum(1) - np.log(2 * np.pi * 100) + self.constant for x in X]


class PlaneWithDraws(Plane):
    def sample(
        self, n: int, *, length: int | None = None, prefix: Any = None, max_length: int = 100, random_state: int = 0
    ) -> list[np.ndarray]:
        rng, head = np.random.default_rng(random_state), np.zeros((0, 2)) if prefix is None else prefix
        return [np.concatenate([head, rng.normal(size=(length or 0, 2)) * [1, 100]]) for _ in range(n)]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("cls", "constant", "expected"),
    [
        (Plane, 0.7, "broken"),
        (Plane, -0.7, "not checked"),
        (PlaneWithDraws, 0.0, "held"),
        (PlaneWithDraws, -0.7, "broken"),
    ],
)
def test_a_density_that_is_too_low_is_known_by_draws(cls: type[Plane], constant: float, expected: str) -> None:
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(n, 2)) * [1, 100] for n in (20, 9, 4, 30)]
    assert verdicts(sm.audit(cls(constant), X, effort="quick"))["sums to one"] == expected


@pytest.mark.slow
def test_of_many_symbols_some_are_summed() -> None:
    class Uniform:
        def __init__(self, excess: float) -> None:
            self.excess = excess

        def log_prob_steps(self, X: Any) -> list[np.ndarray]:
            return [np.full(len(x), np.log((1 + self.excess) / 20_000)) for x in X]

    X = [np.arange(n) * 7 for n in (5, 9, 3)]
    results = [sm.audit(Uniform(excess), X, n_symbols=20_000, effort="quick") for excess in (0.0, 1.0)]
    assert [result.passed for result in results] == [True, False]


# -- the report --------------------------------------------------------------------------------------------------------


def test_the_report_says_what_was_seen() -> None:
    result = sm.audit(Bigram(symbols(0)), symbols(1), n_symbols=V, effort="quick")
    lines = str(result).splitlines()
    assert lines[0] == "Bigram: 10 rules held, 1 not checked"
    assert [line[:26].strip() for line in lines[1:]] == RULES
    assert result.frame.columns.tolist() == ["rule", "verdict", "statistic", "meaning", "counter_example"]
    html = result._repr_html_()
    assert html.count("<tr>") == 1 + len(RULES)
    assert "Bigram: 10 rules held" in html
    assert result.n_steps > 1000
    assert str(sm.audit(Bigram(symbols(0)), symbols(1), n_symbols=V, effort="quick")) == str(result), "by seed"


def test_what_cannot_be_is_refused() -> None:
    for options, message in (
        ({"effort": "much"}, "effort is 'much'"),
        ({"alpha": 0}, "alpha is 0"),
        ({"tolerance": 2}, "tolerance is 2"),
    ):
        with pytest.raises(ValueError, match=message):
            sm.audit(Bigram(symbols(0)), symbols(1), **options)
    with pytest.raises(sm.NotFittedError, match="call fit"):
        sm.audit(sm.NGram(2), symbols(1))


def test_a_model_that_refuses_is_not_checked() -> None:
    class Unreadable(Bigram):
        def sample(self, n: int, **options: Any) -> Any:
            raise TypeError("not today")

    result = sm.audit(Unreadable(symbols(0)), symbols(1), n_symbols=V, effort="quick")
    assert result.passed
    assert verdicts(result)["samples follow scores"] == "not checked"
    assert "TypeError: not today" in str(result)


def test_vectors_of_a_model_of_someone_else() -> None:
    result = verdicts(sm.audit(Autoregression(vectors(0)), vectors(1), effort="quick"))
    assert {rule for rule, verdict in result.items() if verdict != "held"} == {"cursor equals batch"}
