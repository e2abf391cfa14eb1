"""``audit``: check, rule by rule, that a model's figures are log-probabilities that may be compared."""

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
from seqmodels.evaluation.auditing.audited_model import StepScorer, encoded, is_encoded, subject_of
from seqmodels.evaluation.auditing.coded_and_decoded import CODE, coded_and_decoded
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
# Errors that a model may raise if it is asked for something that it cannot do.
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
    """Check that ``log_prob_steps`` of a model returns log-probabilities that can be compared with other models.

    Args:
        model: a fitted ``SequenceModel``, or any object with ``log_prob_steps(X)`` (``auditing.StepScorer``).
            ``log_prob``, ``score``, ``sample``, ``stream`` and ``measure_`` are used if it has them.
        X: sequences that it was not fitted to. Some of them are scored, cut to a length that ``effort`` allows; a past
            that they carry is not read.
        y: targets, if the model is of p(y | x); None means that there are none.
        measure: what the figures are claimed to be, for a model without ``measure_``. None means that text is scored
            per byte, vectors have densities, and the end is an event if each sequence has one figure more than units.
        n_symbols: size of the alphabet, for a model that does not say so itself. None means that it is unknown; a sum
            below one is then no fault, because there may be symbols that X lacks.
        refit: a function that fits the model again from the training data alone and returns it; its figures must be the
            same. None means that this is not checked.
        effort: how much is scored: ``"quick"`` takes about a second for a small model, and ``"thorough"`` a hundred
            times as long.
        alpha: the largest probability with which chance alone makes the audit call a rule broken that the model keeps.
        tolerance: difference between figures that is taken for rounding, relative to the largest figure of the sequence
            and at least 1.
        random_state: seed of the sequences, prefixes and values that are chosen.

    Returns:
        ``Audit``: a finding for each rule; ``print`` it.

    The rules, and how each is checked:

    - *sums to one*: after several prefixes all next steps, and the end, are scored. Symbols are listed. One feature
      with a density is integrated by adaptive quadrature. Other vectors are integrated by importance sampling, with an
      interval that is missed with probability at most ``alpha`` (empirical Bernstein). Only values that a feature may
      have, according to the model's encoding, are scored: for example positive ones, proportions, angles.
    - *causal*: the steps after step t are replaced, permuted, lengthened and cut off, and figures up to t must stay the
      same.
    - *scores before it learns*: for a late step, the probabilities of all values, with the other steps left as they
      are, must not sum to more than one.
    - *same in any batch*: figures must be the same alone, together, in other orders, and beside copies and longer
      sequences.
    - *cursor equals batch*: ``stream`` must give the figures of ``log_prob_steps``.
    - *samples follow scores*: drawn symbols must be as frequent as scored (e-values), and drawn vectors must keep their
      distribution under reversible moves.
    - *units*: there must be one figure for each unit, and ``log_prob`` and ``score`` must be their sum and mean.
    - *no look at the test part*: figures must stay the same after other sequences were scored, and after a new fit.
    - *coded and decoded*, for symbols and text: sequences are compressed by the model (``seqmodels.compress``), or by
      its figures of all next steps. They must take as many bits as their figures say, and must be decoded to the same
      sequences.
    - *finite*: no figure may be NaN or +inf, and no probability may exceed one.
    - *declared memory*: every sequence must be scored from the fitted model's initial state, and figures must not
      depend on more than ``context_`` steps back.

    A rule that held is not proved, only not refuted. Rules that cannot be checked for the model are listed as
    such.

    Raises:
        NotFittedError: the model is a ``SequenceModel`` that is not fitted.
        ValueError: an argument is invalid, the model reads inputs, or it cannot read the sequences.

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
    share = alpha / 3  # because chance plays a part in three rules
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
            f"the model reads the inputs {', '.join(model.measure_.inputs)}, which an audit cannot give it; audit a "
            "model that reads none"
        )


def _chosen(lengths: list[int], n: int, rng: np.random.Generator) -> list[int]:
    """Choose n sequences: the longest, the shortest, and others at random; return their indices.

    Args:
        lengths: length of each sequence.
        n: number of sequences to choose.
        rng: generator of random numbers.
    """
    order = np.argsort(lengths, kind="stable")
    chosen = dict.fromkeys([int(order[-1]), int(order[0]), *map(int, rng.permutation(len(lengths)))])
    return list(chosen)[:n]


def _finding(rule: str, check: Callable[[], Finding]) -> Finding:
    """Check one rule of an audit; return its finding, or that it was not checked if the model raises an error.

    Args:
        rule: name of the rule.
        check: function that checks it and returns the finding.
    """
    try:
        with np.errstate(all="ignore"):  # because NaN should become a finding and not a warning
            return check()
    except REFUSALS as error:
        return not_checked(rule, f"the model refused what it was asked: {type(error).__name__}: {error}")
