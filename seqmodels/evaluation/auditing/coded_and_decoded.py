"""The audit rule that figures are code lengths: sequences are compressed by the model and must be decoded again.

The decoder has the model and the code, but not the steps that are still to come. A model whose figures depend on them
cannot decode, and the length of the code shows what the probabilities really were.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from seqmodels.common.range_coder import RangeDecoder, RangeEncoder
from seqmodels.evaluation.auditing.audited_model import Case, Subject
from seqmodels.evaluation.auditing.findings import Finding, not_checked
from seqmodels.evaluation.auditing.sums_to_one import Effort, next_log_probs
from seqmodels.evaluation.coding import compress, decompress, n_code_bytes
from seqmodels.generation.coding import cumulative_shares
from seqmodels.model import SequenceModel

CODE = "coded and decoded"
RELATIVE = 1e-3  # relative deviation of a code's length that is allowed
MORE_BITS = 9  # bits that whole bytes, and the choice of a number within the last interval, may add to a code


def coded_and_decoded(subject: Subject, effort: Effort) -> Finding:
    """Check that sequences can be decoded from the code that a model gives them, and that its length is ``-log2 p``.

    The rule is not checked if the model is no ``SequenceModel`` and has values that cannot be listed.

    Args:
        subject: the audited model with its sequences.
        effort: limits of the steps that are scored for a model that is no ``SequenceModel``.
    """
    model = subject.model
    figures = np.array([steps.sum() for steps in subject.score(subject.cases)])
    cases = [case for case, log_p in zip(subject.cases, figures, strict=True) if np.isfinite(log_p)]
    bits = -figures[np.isfinite(figures)] / np.log(2)
    if not cases:
        return not_checked(CODE, "every sequence has probability zero")
    if isinstance(model, SequenceModel):
        n_bytes, back = _by_compress(model, cases, subject.measure.conditional)
    elif subject.outcomes is None or subject.measure.conditional or isinstance(cases[0].item, str):
        return not_checked(CODE, "the model is no SequenceModel, and not all values of a next step can be listed")
    else:
        cases = _heads(cases, len(subject.outcomes), effort.n_points)
        bits = np.array([-steps.sum() / np.log(2) for steps in subject.score(cases)])
        n_bytes, back = _by_listing(subject, cases)
    worth = float(bits.sum())
    excess, meaning = 8 * n_bytes - worth, f"bits that the code has more than {worth:.1f}, those of log p"
    for case, item in zip(cases, back, strict=True):
        if item is None or not np.array_equal(item, case.item):
            return Finding(CODE, "broken", excess, meaning, f"{case.name}: what is decoded is not what was coded")
    allowed = MORE_BITS + RELATIVE * worth
    is_certain = subject.has_all or isinstance(model, SequenceModel)  # otherwise unlisted symbols have a share
    if excess > allowed or (is_certain and excess < -allowed):
        words = f"{cases[0].name} and others: log p is {worth:.1f} bits, the code that is decoded has {8 * n_bytes}"
        return Finding(CODE, "broken", excess, meaning, words)
    return Finding(CODE, "held", excess, meaning)


def _by_compress(model: SequenceModel, cases: Sequence[Case], conditional: bool) -> tuple[int, list[Any]]:
    """Compress and decompress sequences with ``compress``; return the code's number of bytes and the decoded sequences.

    If decoding fails, every decoded sequence is None.

    Args:
        model: the model.
        cases: the sequences.
        conditional: whether they are targets given their sources.
    """
    sources, items = [case.source for case in cases], [case.item for case in cases]
    data = compress(model, sources, items) if conditional else compress(model, items)
    try:
        return n_code_bytes(data), decompress(data, model, sources if conditional else None)
    except ValueError:
        return n_code_bytes(data), [None] * len(cases)


def _heads(cases: Sequence[Case], n_outcomes: int, n_points: int) -> list[Case]:
    """Return beginnings of sequences so short that scoring all values of every step takes at most ``n_points`` steps.

    Args:
        cases: the sequences.
        n_outcomes: number of values that a step may have.
        n_points: most steps that may be scored.
    """
    longest = max(1, int(np.sqrt(2 * n_points / (n_outcomes * len(cases)))))
    return [replace(case, item=case.item[:longest]) for case in cases]


def _by_listing(subject: Subject, cases: Sequence[Case]) -> tuple[int, list[Any]]:
    """Code and decode sequences by arithmetic coding with the log-probabilities of all values of each step.

    It needs no method of the model but ``log_prob_steps``.

    Args:
        subject: the audited model, with the values that a step may have.
        cases: the sequences.

    Returns:
        The number of bytes of the code and the decoded sequences, each of which is None if decoding fails.
    """
    values = np.array(subject.outcomes)
    number_of = {str(value): i for i, value in enumerate(values)}
    encoder = RangeEncoder()
    for case in cases:
        events = [*(number_of[str(value)] for value in case.item), *[len(values)] * subject.ends]

        def code(t: int, shares: np.ndarray, events: list[int] = events) -> int:
            encoder.encode(int(shares[events[t]]), int(shares[events[t] + 1] - shares[events[t]]))
            return events[t]

        _follow(subject, case, values, code)
    decoder = RangeDecoder(encoder.finish())
    try:
        return len(decoder.data), [_follow(subject, c, values, lambda _, shares: decoder.decode(shares)) for c in cases]
    except ValueError:
        return len(decoder.data), [None] * len(cases)


def _follow(subject: Subject, case: Case, values: np.ndarray, event: Callable[[int, np.ndarray], int]) -> np.ndarray:
    """Build a sequence step by step with the predictions after each step, while coding or decoding; return it.

    Args:
        subject: the audited model.
        case: the sequence whose source is given, and whose length if ends are not scored.
        values: the V values that a step may have.
        event: a function of t and cumulative shares, integers ``(V + 1,)`` (one more with ends), that codes or decodes
            step t and returns the index of its value. Index V means the end.
    """
    item = case.item[:0]
    while subject.ends or len(item) < len(case):
        known = replace(case, item=item)
        number = event(len(item), cumulative_shares(next_log_probs(subject, known, len(item))[None])[0])
        if number == len(values):
            break
        item = np.append(item, values[number])
    return np.asarray(item)
