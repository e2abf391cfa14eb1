"""Audit rules "sums to one" and "scores before it learns", on the total probability of all values of a step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from seqmodels.encodings.series import SeriesEncoding
from seqmodels.encodings.step_maps import as_frames
from seqmodels.evaluation.auditing.audited_model import Case, Subject
from seqmodels.evaluation.auditing.bounds import half_width, share_between
from seqmodels.evaluation.auditing.findings import Finding, not_checked
from seqmodels.evaluation.auditing.proposals import BroadProposal
from seqmodels.evaluation.auditing.unconstrained import WHOLE, from_reals, limits, log_derivative, to_reals
from seqmodels.model.model import SequenceModel
from seqmodels.sequences.measure import is_atom

SUMS, FIRST = "sums to one", "scores before it learns"
NODES, WEIGHTS = np.polynomial.legendre.leggauss(4)
WIDEST = np.arcsinh(1e6)  # end of the integral on both sides: a million standard deviations
N_CELLS, N_BREAKS, MAX_CELLS, MAX_ROUNDS = 64, 16, 4096, 24
NEAR = 0.01  # standard deviations around each value of the data with narrow cells, where a narrow density would be
TOLERATED, MAX_ERROR = 1e-7, 0.01  # largest error of a cell, and of an integral that can be judged
MIN_POINTS = 8_000  # points of a quadrature that are scored whatever they cost
POINTS_A_SEQUENCE = 6  # least number of steps that a sequence counts for, because scoring one has a cost of its own
MOST_WEIGHT = 2.5  # largest importance weight of a point; points above it are counted by draws from the model
MOST_WEIGHT_ALONE = 10.0  # the same for a model without draws, where points above it are left out
MIN_SHARE_SEEN = 0.3  # share of a density that points must cover, because otherwise the estimate shows nothing


@dataclass(frozen=True)
class Total:
    """The total probability, a sum or integral, of all values of one step, as a confidence interval.

    Attributes:
        low, high: ends of the interval.
        high_is_known: True if the total is known to be at most ``high``; False if only ``low`` is reliable.
        estimate: the value to show.
    """

    low: float
    high: float
    high_is_known: bool
    estimate: float


@dataclass(frozen=True)
class Effort:
    """Limits on how much an audit scores.

    Attributes:
        n_sequences: number of sequences that are scored.
        max_steps: number of steps to which they are cut.
        n_prefixes: number of prefixes after which predictions are summed or drawn from.
        n_points: most steps that are scored for the sum of one prediction.
        n_draws: number of draws from the model after each prefix.
    """

    n_sequences: int
    max_steps: int
    n_prefixes: int
    n_points: int
    n_draws: int


def sums_to_one(subject: Subject, effort: Effort, alpha: float, rng: np.random.Generator) -> Finding:
    """Check that after prefixes of a model's sequences the probabilities of all next steps and the end sum to one.

    The first prefix is empty.

    Args:
        subject: the audited model with its sequences.
        effort: limits of the number of prefixes and of scored steps.
        alpha: the largest probability with which chance makes the rule look broken.
        rng: generator of random numbers.
    """
    return _check_totals(SUMS, subject, effort, alpha, rng, prefixes(subject, effort.n_prefixes, rng), in_place=False)


def scores_first(subject: Subject, effort: Effort, alpha: float, rng: np.random.Generator) -> Finding:
    """Check that for a late step of each sequence the probabilities of its values sum to no more than one.

    The steps after it stay as they are. A model that learns from a step before it scores it gives each value more
    probability than it had predicted.

    Args:
        subject: the audited model with its sequences.
        effort: limits of the number of scored steps.
        alpha: the largest probability with which chance makes the rule look broken.
        rng: generator of random numbers.
    """
    late = [(case, len(case) - 1 - int(rng.integers(1 + len(case) // 4))) for case in subject.cases]
    chosen = [late[i] for i in rng.permutation(len(late))[: max(2, effort.n_prefixes // 2)]]
    return _check_totals(FIRST, subject, effort, alpha, rng, chosen, in_place=True)


def prefixes(subject: Subject, n: int, rng: np.random.Generator) -> list[tuple[Case, int]]:
    """Return prefixes of an audit's sequences, as pairs ``(case, t)`` for the first t steps of a sequence.

    One is empty, one has one step, one is the longest, and the others are random.

    Args:
        subject: the audited model with its sequences.
        n: number of prefixes, at least 2.
        rng: generator of random numbers.
    """
    cases = subject.cases
    last = [len(case) - subject.is_tagger for case in cases]
    longest = int(np.argmax(last))
    chosen = [(0, 0), (len(cases) - 1, min(1, last[-1])), (longest, last[longest])]
    while len(chosen) < n:
        i = int(rng.integers(len(cases)))
        chosen.append((i, int(rng.integers(last[i] + 1))))
    return [(cases[i], t) for i, t in chosen[: max(n, 2)]]


def _check_totals(
    rule: str,
    subject: Subject,
    effort: Effort,
    alpha: float,
    rng: np.random.Generator,
    chosen: list[tuple[Case, int]],
    *,
    in_place: bool,
) -> Finding:
    """Compute the total probability of the values of each chosen step, and return the finding of a rule from them.

    Args:
        rule: name of the rule.
        subject: the audited model.
        effort: limits the scored steps.
        alpha: largest probability with which chance makes the rule look broken.
        rng: generator of drawn values.
        chosen: pairs ``(case, t)``: step t of a sequence.
        in_place: whether the steps after t are scored too; the total may then be below one.
    """
    if subject.measure.kind == "bound":
        return not_checked(rule, "only one of several spellings of a text is scored, so there is no sum to check")
    totals = []
    for case, t in chosen:
        if np.isneginf(subject.score([case])[0][:t]).any():
            continue  # because steps after an impossible one have no prediction
        total = _total(subject, case, t, effort, alpha / len(chosen), rng, in_place=in_place)
        if total is not None:
            totals.append((case, t, total))
    if not totals:
        return not_checked(rule, "there is no way to list or to draw all values of a step")
    return _judged(rule, subject, totals, in_place=in_place)


def _judged(rule: str, subject: Subject, totals: list[tuple[Case, int, Total]], *, in_place: bool) -> Finding:
    """Return the finding of a rule that total probabilities of steps are one, or at most one.

    Args:
        rule: name of the rule.
        subject: the audited model.
        totals: triples ``(case, t, total)`` for step t of a sequence.
        in_place: whether the steps after t were scored too, so that totals must only be at most one.
    """
    n_values = 1 if subject.outcomes is None else len(subject.outcomes)
    slack = subject.tolerance * (1 + np.log(n_values))  # a relative error of p is one of log p, which is up to log V
    worst, words, is_broken, is_lacking = 0.0, "", False, ""
    for case, t, total in totals:
        is_low = total.high_is_known and not in_place and total.high < 1 - slack
        if not total.low <= 1 + slack or is_low:  # also if it is NaN
            is_broken = True
            if not words or abs(total.estimate - 1) > abs(worst):
                what = "value, the rest left as it is," if in_place else "next step"
                ends = ", the end with them," if subject.ends and t else ""
                words = (
                    f"{case.name}, step {t}: the probabilities of every {what}{ends} sum to {total.estimate:.6g}, not 1"
                )
        elif not total.high_is_known and not in_place and total.high < 1 - max(slack, 0.05):
            is_lacking = (
                f"after {t} steps of {case.name} only {total.estimate:.3g} was found, the rest may be elsewhere"
            )
        if abs(total.estimate - 1) > abs(worst):
            worst = total.estimate - 1
    resolution = max(total.high - total.low for _, _, total in totals)
    at_most = in_place or not all(total.high_is_known for _, _, total in totals)
    meaning = f"sum less one, the largest of {len(totals)}" + (", which may not be above 0" if at_most else "")
    if resolution > slack:
        meaning += f", known to {resolution / 2:.2g}"
    if is_broken:
        return Finding(rule, "broken", worst, meaning, words)
    if is_lacking and subject.outcomes is None:
        return not_checked(rule, f"{is_lacking}; give the model a sample method")
    return Finding(rule, "held", worst, meaning)


def _total(
    subject: Subject, case: Case, t: int, effort: Effort, delta: float, rng: np.random.Generator, *, in_place: bool
) -> Total | None:
    """Return the total probability of all values of one step; None if it can be neither summed nor integrated.

    Args:
        subject: the audited model.
        case: the sequence.
        t: index of the step.
        effort: limits the scored steps.
        delta: largest probability that the interval of an estimate misses the total.
        rng: generator of random numbers.
        in_place: whether the steps after t are scored too.
    """
    p_end = float(np.exp(subject.log_end(case, t)))
    length = len(case) if in_place or subject.is_tagger else t + 1
    outcomes = subject.outcomes
    if outcomes is not None and len(outcomes) * length <= max(effort.n_points, 4 * len(outcomes)):
        figures = subject.figures(case, t, outcomes, in_place=in_place)
        total = float(np.sum(np.exp(figures))) + p_end
        is_all = subject.has_all and (t > 0 or not subject.ends or subject.never_empty)
        return Total(total, total, is_all, total)
    values = subject.values
    if len(values) == 1 and values[0] not in WHOLE:
        return _integral(subject, case, t, p_end, effort.n_points // length, in_place=in_place)
    n = min(effort.n_points // length, effort.n_points // POINTS_A_SEQUENCE)
    if n < 500 or {"rounded", "amounts"} & set(values):
        return None
    if values:
        return _estimated(subject, case, t, p_end, n, effort, delta, rng, in_place=in_place)
    return None if outcomes is None else _of_many(subject, case, t, p_end, n, delta, rng, in_place=in_place)


# -- one feature that has a density: adaptive quadrature -------------------------------------------------------------


def _integral(subject: Subject, case: Case, t: int, p_end: float, n_points: int, *, in_place: bool) -> Total | None:
    """Integrate the density of one step of one feature by quadrature, and add the end; None if it is too inexact.

    Args:
        subject: the audited model.
        case: the sequence.
        t: index of the step.
        p_end: probability that the sequence ends before step t.
        n_points: number of steps that may be scored.
        in_place: whether the steps after t are scored too.
    """
    kinds = subject.values
    values = np.concatenate([np.asarray(c.item)[:, 0] for c in subject.cases])
    values = values[~(np.isnan(values) | is_atom(values[:, None], kinds)[:, 0])]
    if kinds == ("amounts",):
        p_end += float(np.exp(subject.figures(case, t, [np.zeros(1)], in_place=in_place))[0])
    low, high = limits(values, kinds[0])
    v = to_reals(values[:, None], kinds)[:, 0]
    centre, scale = float(np.median(v)), float(v.std()) or 1.0

    def density(u: np.ndarray) -> np.ndarray:
        v = centre + scale * np.sinh(u)
        p, in_range = np.zeros(len(v)), (low <= v) & (v <= high)
        if in_range.any():
            real = v[in_range, None]
            figures = subject.figures(case, t, list(from_reals(real, kinds)), in_place=in_place)
            p[in_range] = np.exp(figures + log_derivative(real, kinds))
        return np.asarray(p * scale * np.cosh(u))

    u = np.arcsinh((v - centre) / scale)
    breaks = np.unique(np.round(u, 6))[:: max(1, len(u) // N_BREAKS)]
    jumps = np.arcsinh((to_reals(_jumps(subject, case, t)[:, None], kinds)[:, 0] - centre) / scale)
    integral, error = integrate(density, breaks, max(n_points, MIN_POINTS), jumps)
    total = integral + p_end
    if error > MAX_ERROR:
        return None
    return Total(total - error, total + error, True, total)


def _jumps(subject: Subject, case: Case, t: int) -> np.ndarray:
    """Return the n raw values at which the density of a step jumps according to the model's encoding, shape ``(n,)``.

    It is empty if the encoding knows of none.

    Args:
        subject: the audited model.
        case: the sequence.
        t: index of the step.
    """
    encoding = subject.model.encoding_ if isinstance(subject.model, SequenceModel) else None
    if not isinstance(encoding, SeriesEncoding):
        return np.zeros(0)
    return encoding.step_encoder(as_frames(case.item)[:t]).map.jumps()


def integrate(
    density: Callable[[np.ndarray], np.ndarray], breaks: np.ndarray, n_points: int, jumps: np.ndarray | None = None
) -> tuple[float, float]:
    """Integrate a function of one variable over ``[-WIDEST, WIDEST]``; return the integral and a bound of its error.

    The quadrature is adaptive: a cell (subinterval) is halved if halving changes its part of the integral, or if it is
    wide and beside a narrow cell that has a part, because its nodes may miss a peak at its edge.

    Args:
        density: the integrand, called with ``(n,)`` points.
        breaks: points around which narrow cells are placed, ``(m,)``.
        n_points: most evaluations; the error is infinite if they were too few.
        jumps: points where the density is discontinuous, at which cells begin; None means none.
    """
    near = [breaks - NEAR / np.cosh(breaks), breaks + NEAR / np.cosh(breaks), *([] if jumps is None else [jumps])]
    edges = np.unique(np.concatenate([np.linspace(-WIDEST, WIDEST, N_CELLS + 1), *near]))
    low, high = edges[:-1], edges[1:]
    coarse, n_scored = _of_cells(density, low, high), 4 * len(low)
    halves = _of_halves(density, low, high)
    n_scored += 8 * len(low)
    for _ in range(MAX_ROUNDS):
        wrong = np.abs(halves.sum(0) - coarse)
        again = (wrong > TOLERATED) | _is_wide_beside_mass(halves.sum(0), high - low)
        if not again.any():
            break
        if n_scored > n_points or again.sum() > MAX_CELLS:
            return float(halves.sum()), np.inf
        middle = (low[again] + high[again]) / 2
        new_low, new_high = np.concatenate([low[again], middle]), np.concatenate([middle, high[again]])
        n_scored += 8 * len(new_low)
        order = np.argsort(np.concatenate([low[~again], new_low]))
        coarse = np.concatenate([coarse[~again], *halves[:, again]])[order]
        halves = np.concatenate([halves[:, ~again], _of_halves(density, new_low, new_high)], axis=1)[:, order]
        low, high = np.concatenate([low[~again], new_low])[order], np.concatenate([high[~again], new_high])[order]
    wrong = np.abs(halves.sum(0) - coarse)
    return float(halves.sum()), float(wrong.sum())


def _is_wide_beside_mass(parts: np.ndarray, widths: np.ndarray) -> np.ndarray:
    """Return a mask ``(n,)``, True for a cell over twice as wide as a neighbour that has a part of the integral.

    Args:
        parts: integrals over n cells (subintervals), ``(n,)``.
        widths: their widths, ``(n,)``.
    """
    has_mass = parts > TOLERATED
    wide = np.zeros(len(parts), dtype=bool)
    wide[1:] |= has_mass[:-1] & (widths[1:] > 2.1 * widths[:-1])
    wide[:-1] |= has_mass[1:] & (widths[:-1] > 2.1 * widths[1:])
    return wide


def _of_halves(density: Callable[[np.ndarray], np.ndarray], low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return the integrals over the left and the right half of each of n cells (subintervals), shape ``(2, n)``.

    Args:
        density: the integrand, called with an array of points.
        low, high: ends of the cells, ``(n,)`` each.
    """
    middle = (low + high) / 2
    parts = _of_cells(density, np.concatenate([low, middle]), np.concatenate([middle, high]))
    return parts.reshape(2, -1)


def _of_cells(density: Callable[[np.ndarray], np.ndarray], low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return the integral over each of n cells (subintervals) by Gauss-Legendre quadrature, shape ``(n,)``.

    Args:
        density: the integrand, called with an array of points.
        low, high: ends of the cells, ``(n,)`` each.
    """
    half = (high - low)[:, None] / 2
    u = (low + high)[:, None] / 2 + half * NODES
    return np.asarray((density(u.ravel()).reshape(u.shape) * WEIGHTS * half).sum(1))


# -- importance sampling ---------------------------------------------------------------------------------------------


def drawn_steps(subject: Subject, case: Case, t: int, n: int, seed: int) -> np.ndarray | None:
    """Draw continuations of the first ``t`` steps of a sequence and return their step t, ``(m, D)`` for D features.

    Return None if the model cannot be drawn from, or if fewer than 100 draws have a step t.

    Args:
        subject: the audited model.
        case: the sequence.
        t: number of steps that are kept.
        n: number of draws, of which m have a step t.
        seed: seed of the draws.
    """
    drawn = subject.draw(n, case, t, seed)
    if drawn is None:
        return None
    steps = [np.asarray(each)[t] for each in drawn if len(each) > t]
    return np.array(steps) if len(steps) >= 100 else None


def frames_of(subject: Subject) -> np.ndarray:
    """Return the n frames of all sequences that have no missing value, one after the other, ``(n, D)`` for D features.

    Args:
        subject: the audited model with its sequences.
    """
    frames = np.concatenate([np.asarray(case.item) for case in subject.cases])
    return np.asarray(frames[~np.isnan(frames).any(1)])


def _estimated(
    subject: Subject,
    case: Case,
    t: int,
    p_end: float,
    n: int,
    effort: Effort,
    delta: float,
    rng: np.random.Generator,
    *,
    in_place: bool,
) -> Total | None:
    """Estimate the total probability of vectors at one step by importance sampling; None if samples miss the density.

    ``∫ p = E_q[w; w <= c] + P_p(w > c)``, with ``w = p / q``: both are means of bounded values. The proposal q is
    fitted to half of the draws from the model, and the other half of the draws counts what q leaves out. If the model
    cannot be drawn from, only the first part is known, and the integral is not bounded from above.

    Args:
        subject: the audited model.
        case, t: the sequence whose first t steps are given.
        p_end: probability of the end, which is added.
        n: number of points drawn from q.
        effort: limits the number of draws from the model.
        delta: largest probability that the interval misses the total.
        rng: generator of the points.
        in_place: whether the steps after t are scored too.
    """
    drawn = drawn_steps(subject, case, t, effort.n_draws, int(rng.integers(1 << 30)))
    near = frames_of(subject) if drawn is None else drawn[::2]
    if len(near) < 2:
        return None
    proposal = BroadProposal.around(near, subject.values, rng)
    points = proposal.draw(n, rng)
    log_w = subject.figures(case, t, list(points), in_place=in_place) - proposal.log_prob(points)
    most = MOST_WEIGHT_ALONE if drawn is None else MOST_WEIGHT
    w = np.where(log_w <= np.log(most), np.exp(np.minimum(log_w, most)), 0.0)
    seen, width = float(w.mean()), half_width(w, most, delta / 2)
    if drawn is None:
        return Total(seen - width + p_end, seen + width + p_end, False, seen + p_end)
    others = drawn[1::2]
    heavy = subject.figures(case, t, list(others), in_place=in_place) - proposal.log_prob(others) > np.log(most)
    below, above = share_between(int(heavy.sum()), len(heavy), delta / 2)
    goes_on_p = 1 - p_end
    low, high = seen - width + below * goes_on_p + p_end, seen + width + above * goes_on_p + p_end
    if seen < MIN_SHARE_SEEN and low <= 1 <= high:
        return None  # because the points are not where the model's draws are, and show nothing
    return Total(low, high, True, seen + float(heavy.mean()) * goes_on_p + p_end)


def _of_many(
    subject: Subject,
    case: Case,
    t: int,
    p_end: float,
    n: int,
    delta: float,
    rng: np.random.Generator,
    *,
    in_place: bool,
) -> Total:
    """Estimate the total probability of an alphabet too large to score every symbol, from about ``n`` scored ones.

    Symbols in the data are scored exactly, and of the others some, drawn evenly. The sum is bounded from below only,
    because a symbol that was not drawn may have all the rest.

    Args:
        subject: the audited model, with all symbols that a step may have.
        case, t: the sequence whose first t steps are given.
        p_end: probability of the end, which is added.
        n: number of symbols that are scored.
        delta: largest probability that the bound is missed.
        rng: generator of the drawn symbols.
        in_place: whether the steps after t are scored too.
    """
    outcomes = subject.outcomes
    assert outcomes is not None
    index = {_key(value): i for i, value in enumerate(outcomes)}
    seen = sorted({index[_key(v)] for c in subject.cases for v in np.asarray(c.item) if _key(v) in index})[: n // 2]
    others = np.setdiff1d(np.arange(len(outcomes)), seen)
    drawn = rng.choice(others, min(len(others), n - len(seen)), replace=False)
    p_seen = np.exp(subject.figures(case, t, [outcomes[i] for i in seen], in_place=in_place))
    p_drawn = np.exp(subject.figures(case, t, [outcomes[i] for i in drawn], in_place=in_place))
    low = float(p_seen.sum() + p_drawn.sum()) + p_end
    rest = (len(others) - len(drawn)) * p_drawn
    most = 1.0 * len(others) / len(drawn)  # largest value of a term that is cut at 1 / n_drawn
    cut = np.minimum(p_drawn * len(others), most)
    bounded = float(p_seen.sum()) + float(cut.mean()) - half_width(cut, most, delta) + p_end
    return Total(max(low, bounded), np.inf, False, low + float(rest.mean()))


def _key(value: object) -> str:
    return str(value)


def next_log_probs(subject: Subject, case: Case, t: int) -> np.ndarray:
    """Return log p of each of V values after the first ``t`` steps of a sequence, in nats, shape ``(V,)``.

    Under ``length="stop"``, where the end is an event, the shape is ``(V + 1,)``, with the end last.

    Args:
        subject: the audited model, with the values that a step may have in ``outcomes``.
        case: the sequence.
        t: number of steps that are given.
    """
    outcomes: Sequence[object] = subject.outcomes or []
    figures = subject.figures(case, t, outcomes)
    return np.append(figures, subject.log_end(case, t)) if subject.ends else figures
