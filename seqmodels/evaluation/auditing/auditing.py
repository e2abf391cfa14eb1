"""``audit``: whether a model's figures are log-probabilities that may be compared, rule by rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from seqmodels.common.parameters import PositiveInt, Seed, check_options
from seqmodels.encodings.raw_data import Data
from seqmodels.evaluation.auditing.agreement import (
    CURSOR,
    SAMPLES,
    UNITS,
    cursor_equals_batch,
    finite,
    samples_follow_scores,
    units,
)
from seqmodels.evaluation.auditing.codes import CODE, coded_and_decoded
from seqmodels.evaluation.auditing.findings import Audit, Finding, not_checked
from seqmodels.evaluation.auditing.invariance import (
    BATCH,
    CAUSAL,
    MEMORY,
    TEST,
    causal,
    declared_memory,
    no_look_at_the_test_part,
    same_in_any_batch,
)
from seqmodels.evaluation.auditing.subject import StepScorer, encoded, is_encoded, subject_of
from seqmodels.evaluation.auditing.sums_to_one import FIRST, SUMS, Effort, scores_first, sums_to_one
from seqmodels.model import NotFittedError, SequenceModel
from seqmodels.sequences.items import in_words
from seqmodels.sequences.measure import Measure

EffortName = Literal["quick", "normal", "thorough"]
EFFORTS: dict[EffortName, Effort] = {
    "quick": Effort(n_sequences=4, max_steps=24, n_prefixes=4, n_points=16_000, n_draws=1_000),
    "normal": Effort(n_sequences=8, max_steps=96, n_prefixes=8, n_points=100_000, n_draws=3_000),
    "thorough": Effort(n_sequences=16, max_steps=400, n_prefixes=24, n_points=1_500_000, n_draws=10_000),
}
# What a model may raise where it is asked for something that it cannot do.
REFUSALS = (ValueError, TypeError, LookupError, RuntimeError, ArithmeticError, AttributeError)


def audit(
    model: StepScorer,
    X: Any,
    y: Any = None,
    *,
    measure: Measure | None = None,
    n_symbols: PositiveInt | None = None,
    refit: Callable[[], StepScorer] | None = None,
    effort: EffortName = "normal",
    alpha: float = 1e-6,
    tolerance: float = 1e-4,
    random_state: Seed = 0,
) -> Audit:
    """Whether ``log_prob_steps`` of a model is a log-probability that may stand in a table with others.

    Args:
        model: a fitted ``SequenceModel``, or anything with ``log_prob_steps(X)`` (``auditing.StepScorer``).
            ``log_prob``, ``score``, ``sample``, ``stream`` and ``measure_`` are looked at where it has them.
        X: sequences it was not fitted to; some of them are scored, cut to a length that ``effort`` allows. A past
            that they have is not read.
        y: targets, of a model of p(y | x).
        measure: what the figures are claimed to be, of a model without ``measure_``. By default text is scored per
            byte, vectors have densities, and the end is an event where a sequence has a figure more than units.
        n_symbols: the size of the alphabet, of a model that does not say so itself; without it a sum below one is no
            fault, for there may be symbols that X has not.
        refit: fits the model again from the training data alone, and returns it: the figures must be the same.
        effort: ``"quick"``: a second or so for a small model; ``"thorough"``: a hundred times as much.
        alpha: the probability, at most, that chance alone has a rule called broken that the model keeps.
        tolerance: difference of figures that is rounding, relative to the largest of the sequence and at least 1.
        random_state: seed of what is looked at.

    The rules, and how each is checked:

    - *sums to one*: after several prefixes all next steps, and the end, are scored: listed for symbols; by adaptive
      quadrature for one feature that has a density; else by importance sampling, with an interval that holds for
      certain (empirical Bernstein) but for ``alpha``. Only values that a feature may have are scored, as the encoding
      of the model says: positive ones, proportions, angles.
    - *causal*: what follows step t is replaced, permuted, lengthened and cut off, and figures up to t stay.
    - *scores before it learns*: all values of a late step, the rest left as it is, sum to no more than one.
    - *same in any batch*: alone, together, in other orders, beside copies and longer sequences.
    - *cursor equals batch*: ``stream`` against ``log_prob_steps``.
    - *samples follow scores*: frequencies of symbols by e-values, vectors by reversible moves.
    - *units*: a figure a unit, and ``log_prob`` and ``score`` are their sum and mean.
    - *no look at the test part*: figures stay after others were scored, and when fitted anew.
    - *coded and decoded*, of symbols and text: compressed by the model (``seqmodels.compress``), or by its figures of
      all next steps, they take as many bits as their figures say, and come back.
    - *finite*: neither NaN nor +inf, and no probability above one.
    - *declared memory*: every sequence starts from the fitted model; no more than ``context_`` steps are looked at.

    A rule that held was not refuted, which is no proof. A rule that the model does not let be checked is listed.

    Raises:
        NotFittedError: a ``SequenceModel`` that is not fitted.
        ValueError: arguments that cannot be; sequences that the model cannot read.

    >>> from seqmodels import NGram
    >>> texts = [np.array([0, 1, 2] * 6), np.array([2, 1, 0, 1] * 4)]
    >>> print(audit(NGram(2).fit(texts), texts, effort="quick").summary())
    NGram: 11 rules held, 0 not checked
    """
    check_options(
        audit,
        measure=measure,
        n_symbols=n_symbols,
        refit=refit,
        effort=effort,
        alpha=alpha,
        tolerance=tolerance,
        random_state=random_state,
    )
    _check(model, effort, alpha, tolerance)
    data, rng = Data.of(X, y).without_past(), np.random.default_rng(random_state)
    how_much = EFFORTS[effort]
    chosen = _chosen([len(item) for item in data.scored.items], how_much.n_sequences, rng)
    subject = subject_of(model, data, measure, n_symbols, tolerance, chosen, how_much.max_steps)
    before = subject.alone(subject.cases)
    listed = encoded(subject) if is_encoded(model) else subject
    share = alpha / 3  # of three rules that chance has a part in
    rules: list[tuple[str, Callable[[], Finding]]] = [
        (SUMS, lambda: sums_to_one(listed, how_much, share, rng)),
        (CAUSAL, lambda: causal(listed, rng, how_much.n_prefixes)),
        (FIRST, lambda: scores_first(listed, how_much, share, rng)),
        (BATCH, lambda: same_in_any_batch(subject, rng)),
        (CURSOR, lambda: cursor_equals_batch(subject)),
        (SAMPLES, lambda: samples_follow_scores(listed, how_much, share, rng)),
        (UNITS, lambda: units(subject)),
        (TEST, lambda: no_look_at_the_test_part(subject, before, refit)),
        (MEMORY, lambda: declared_memory(subject, rng)),
    ]
    if not subject.values:
        rules.append((CODE, lambda: coded_and_decoded(subject, how_much)))
    findings = [_finding(rule, check) for rule, check in rules]
    others = [listed] if listed is not subject else []
    findings.append(finite(subject, others))
    n_scored = sum(each.n_scored for each in (subject, *others))
    return Audit(type(model).__name__, tuple(findings), n_scored)


def _check(model: StepScorer, effort: str, alpha: float, tolerance: float) -> None:
    if isinstance(model, type) or not callable(getattr(model, "log_prob_steps", None)):
        raise ValueError(f"model is {in_words(model)}, which has no log_prob_steps(X); pass a fitted model")
    if effort not in EFFORTS:
        raise ValueError(f"effort is {effort!r}; pass one of {', '.join(map(repr, EFFORTS))}")
    for name, value in (("alpha", alpha), ("tolerance", tolerance)):
        if not 0 < value < 1:
            raise ValueError(f"{name} is {value!r}; pass a number between 0 and 1")
    if isinstance(model, SequenceModel) and not model.__sklearn_is_fitted__():
        raise NotFittedError("the model is not fitted; call fit first")
    if isinstance(model, SequenceModel) and model.measure_.inputs:
        raise ValueError(
            f"the model reads the inputs {', '.join(model.measure_.inputs)}, which an audit cannot give it"
        )


def _chosen(lengths: list[int], n: int, rng: np.random.Generator) -> list[int]:
    """The longest sequence, the shortest, and others."""
    order = np.argsort(lengths, kind="stable")
    chosen = dict.fromkeys([int(order[-1]), int(order[0]), *map(int, rng.permutation(len(lengths)))])
    return list(chosen)[:n]


def _finding(rule: str, check: Callable[[], Finding]) -> Finding:
    """What a check says; not checked, where the model refuses what it is asked."""
    try:
        with np.errstate(all="ignore"):  # what is no number is a finding, not a warning
            return check()
    except REFUSALS as error:
        return not_checked(rule, f"the model refused what it was asked: {type(error).__name__}: {error}")
