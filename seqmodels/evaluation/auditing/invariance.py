"""Audit rules on what must not change a figure: later steps, other sequences in the batch, sequences scored before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from seqmodels.evaluation.auditing.audited_model import Case, Subject, difference, figure_at, joined
from seqmodels.evaluation.auditing.findings import Finding, not_checked
from seqmodels.model import SequenceModel
from seqmodels.sequences.items import n_units_of

CAUSAL, BATCH, TEST, MEMORY = (
    "causal",
    "same in any batch",
    "no look at the test part",
    "declared memory",
)


@dataclass
class Comparisons:
    """A record of comparisons between log-probabilities that should be equal, and the largest difference among them.

    Differences are relative to the largest log-probability of the sequence and at least 1.

    Attributes:
        tolerance: difference that is taken for rounding.
        largest: the largest difference so far.
        counter_example: description of the first difference that is larger than rounding; empty if there is none.
        n: number of comparisons.
    """

    tolerance: float
    largest: float = 0.0
    counter_example: str = ""
    n: int = 0

    def add(self, steps: np.ndarray, expected: np.ndarray, name: str, by: str, first: str = "") -> None:
        """Compare the log-probabilities of one sequence's steps with the expected ones, and record the difference.

        Args:
            steps: log-probabilities of T steps, ``(T,)``.
            expected: what they should be, ``(T,)``.
            name: name of the sequence.
            by: what was changed for ``steps``, a phrase for the counter-example such as ``"in the other order"``.
            first: how ``expected`` were computed, a phrase such as ``"alone"``.
        """
        apart, t = difference(steps, expected)
        self.n += 1
        self.largest = max(self.largest, apart)
        if apart > self.tolerance and not self.counter_example:
            self.counter_example = (
                f"{name}, step {t}: log p = {figure_at(expected, t)}{f' {first}' if first else ''}, "
                f"but {figure_at(steps, t)} {by}"
            )

    def finding(self, rule: str, what: str) -> Finding:
        """Return the finding of a rule: broken if a difference was larger than rounding, with the first of them.

        Args:
            rule: name of the rule.
            what: a phrase that says where the difference was, such as ``"between the stream and log_prob_steps"``.
        """
        verdict: Any = "broken" if self.counter_example else "held"
        meaning = f"largest difference of a figure, relative to the sequence's largest, {what} ({self.n} comparisons)"
        return Finding(rule, verdict, self.largest, meaning, self.counter_example)


# -- causal ----------------------------------------------------------------------------------------------------------


def causal(subject: Subject, rng: np.random.Generator, n_positions: int) -> Finding:
    """Check that log-probabilities before step t stay the same if steps from t on are replaced, permuted, added or cut.

    The rule is not checked for lower bounds, whose steps are not causal.

    Args:
        subject: the audited model with its sequences.
        rng: generator of random numbers.
        n_positions: number of steps t that are tried in each sequence.
    """
    if subject.measure.kind == "bound":
        return not_checked(
            CAUSAL, "how a text is cut into pieces depends on what follows; a bound's steps are not causal"
        )
    seen = Comparisons(subject.tolerance)
    for case in subject.cases:
        if len(case) < 2:
            continue
        (whole,) = subject.score([case])
        positions = {1, len(case) - 1, *rng.integers(1, len(case), n_positions).tolist()}
        for t in sorted(positions)[:n_positions]:
            units = n_units_of(case.item[:t])
            for name, other in _other_futures(subject, case, t, rng):
                (steps,) = subject.score([other])
                seen.add(steps[:units], whole[:units], case.name, f"when what follows step {t - 1} is {name}")
    if not seen.n:
        return not_checked(CAUSAL, "no sequence has two steps")
    return seen.finding(CAUSAL, "when its future changes")


def _other_futures(subject: Subject, case: Case, t: int, rng: np.random.Generator) -> list[tuple[str, Case]]:
    """Return copies of a sequence with other steps from ``t`` on, as pairs of a word for the change and the copy.

    The steps are replaced, permuted, added to or cut off; for a tagger, whose targets are as long as their sources,
    only replaced or permuted.

    Args:
        subject: the audited model, from whose sequences steps are taken.
        case: the sequence.
        t: the first step that may change.
        rng: generator of random numbers.
    """
    item = case.item
    others = joined(*[c.item for c in subject.cases])
    start = int(rng.integers(max(1, len(others) - len(item))))
    rest = others[start : start + len(item) - t]
    replaced = joined(item[:t], rest, item[t + len(rest) :])
    if subject.outcomes is not None:
        changed = [subject.outcomes[i] for i in rng.integers(len(subject.outcomes), size=len(item) - t)]
        replaced = item[:t] + "".join(changed) if isinstance(item, str) else joined(item[:t], np.array(changed))
    order = rng.permutation(len(item) - t)
    tail = item[t:]
    permuted = joined(item[:t], "".join(tail[i] for i in order) if isinstance(tail, str) else tail[order])
    futures = [("replaced", replaced), ("permuted", permuted)]
    if not subject.is_tagger:
        futures += [("longer", joined(item, others[: len(item) + 3])), ("cut off", item[:t])]
    return [(name, replace(case, item=other)) for name, other in futures]


# -- batches, and scoring again --------------------------------------------------------------------------------------


def same_in_any_batch(subject: Subject, rng: np.random.Generator) -> Finding:
    """Check that sequences have the same log-probabilities alone, together, and in other orders.

    They are also scored beside copies and longer sequences.

    Args:
        subject: the audited model with its sequences.
        rng: generator of random numbers.
    """
    cases = subject.cases
    first = subject.alone(cases)
    seen = Comparisons(subject.tolerance)
    longest = max(cases, key=len)
    strange = longest
    if not subject.is_tagger:
        strange = replace(longest, item=_shuffled(joined(longest.item, longest.item, longest.item), rng))
    batches: dict[str, list[int]] = {
        "together with others": list(range(len(cases))),
        "in the other order": list(range(len(cases)))[::-1],
        "beside copies": [*rng.permutation(len(cases)).tolist(), *range(len(cases))],
        "beside a longer sequence": [-1, *range(len(cases)), -1],
        "as one of two": [0, -1],
    }
    for by, rows in batches.items():
        batch = [strange if i < 0 else cases[i] for i in rows]
        steps, totals = subject.score(batch), subject.log_prob(batch)
        for row, i in enumerate(rows):
            if i >= 0:
                seen.add(steps[row], first[i], cases[i].name, by, "alone")
                if totals is not None:
                    total = np.array([first[i].sum()])
                    seen.add(totals[row : row + 1], total, f"{cases[i].name}, all its steps", f"in log_prob {by}")
    return seen.finding(BATCH, "in another batch")


def _shuffled(item: Any, rng: np.random.Generator) -> Any:
    order = rng.permutation(len(item))
    return "".join(item[i] for i in order) if isinstance(item, str) else item[order]


def no_look_at_the_test_part(subject: Subject, before: list[np.ndarray], refit: Callable[[], Any] | None) -> Finding:
    """Check that log-probabilities are still the same after other sequences were scored, and under a model fitted anew.

    Args:
        subject: the audited model with its sequences.
        before: log-probabilities of each sequence, ``(T,)``, scored alone before the audit.
        refit: function that fits the model again and returns it; None leaves out the second check.
    """
    seen = Comparisons(subject.tolerance)
    for case, steps, expected in zip(subject.cases, subject.alone(subject.cases), before, strict=True):
        seen.add(steps, expected, case.name, "after other sequences were scored", "at first")
    again = subject.alone(subject.cases[:1])[0]
    seen.add(again, subject.alone(subject.cases[:1])[0], subject.cases[0].name, "when scored at once again")
    what = "after other sequences were scored"
    if refit is not None:
        other = replace(subject, model=refit())
        for case, steps, expected in zip(subject.cases, other.alone(subject.cases), before, strict=True):
            seen.add(steps, expected, case.name, "by a model that was fitted anew without it", "by this one")
        what += ", and of a model fitted anew"
    return seen.finding(TEST, what)


# -- memory ----------------------------------------------------------------------------------------------------------


def declared_memory(subject: Subject, rng: np.random.Generator) -> Finding:
    """Check that sequences are scored independently of each other, and that steps over ``context_`` back are not used.

    ``context_`` is the number of earlier steps that the model claims to use. It is checked for static models with exact
    log-probabilities only. A model of unbounded context may depend on all that came before in the sequence, whether it
    is declared static or adaptive, so that its log-probabilities cannot tell the two apart.

    Args:
        subject: the audited model with its sequences.
        rng: generator of random numbers.
    """
    seen = Comparisons(subject.tolerance)
    for case in subject.cases[:3]:
        (alone,) = subject.score([case])
        for copies in (1, 4):
            steps = subject.score([case] * copies + [case])[-1]
            seen.add(steps, alone, case.name, f"after {copies} copies of it in the same call", "alone")
    context = subject.model.context_ if isinstance(subject.model, SequenceModel) else None
    n_before = seen.n
    if context is not None and subject.measure.kind == "exact" and subject.measure.memory == "static":
        for case in subject.cases:
            _look_back(subject, case, context, rng, seen)
    what = f"after other sequences ({subject.measure.memory})"
    if context is not None:
        what += f", or when steps over {context} back change" if seen.n > n_before else ""
    return seen.finding(MEMORY, what)


def _look_back(subject: Subject, case: Case, context: int, rng: np.random.Generator, seen: Comparisons) -> None:
    """Replace all steps more than ``context`` before the last one and compare the log-probability of the last step.

    Args:
        subject: the audited model, from whose sequences other steps are taken.
        case: the sequence.
        context: number of earlier steps that the model claims to use.
        rng: generator of random numbers.
        seen: record of comparisons, to which this one is added.
    """
    n_old = len(case) - 1 - context
    if n_old < 1 or isinstance(case.item, str):
        return
    others = joined(*[c.item for c in subject.cases])
    old = others[rng.integers(len(others), size=n_old)]
    changed = replace(case, item=joined(old, case.item[n_old:]))
    (expected,), (steps,) = subject.score([case]), subject.score([changed])
    last = len(case) - 1
    by = f"when the first {n_old} steps are others, all more than {context} back"
    apart, _ = difference(steps[last : last + 1], expected[last : last + 1])
    if apart > seen.tolerance and not seen.counter_example:
        seen.counter_example = f"{case.name}, step {last}: log p = {expected[last]:.6g}, but {steps[last]:.6g} {by}"
    seen.largest, seen.n = max(seen.largest, apart), seen.n + 1
