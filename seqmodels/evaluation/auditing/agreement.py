"""Audit rules on figures that must agree: steps with sums and units, cursor with batches, samples with scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from seqmodels.evaluation.auditing.audited_model import Case, MeanScorer, SequenceSampler, Streamer, Subject
from seqmodels.evaluation.auditing.bounds import (
    POWERS,
    log_evidence_of_counts,
    log_evidence_of_powers,
    log_mean_evidence,
    p_value_of_symmetry,
)
from seqmodels.evaluation.auditing.findings import Finding, not_checked
from seqmodels.evaluation.auditing.invariance import Comparisons
from seqmodels.evaluation.auditing.sums_to_one import Effort, drawn_steps, frames_of, next_log_probs, prefixes
from seqmodels.evaluation.auditing.unconstrained import WHOLE, from_reals, log_derivative, to_reals
from seqmodels.sequences.items import n_units_of
from seqmodels.sequences.measure import Values

CURSOR, SAMPLES, UNITS, FINITE = "cursor equals batch", "samples follow scores", "units", "finite"
N_MOVES = 5  # moves of a Metropolis chain
PATH_STEPS = 6  # steps of sequences that are drawn from the start
MAX_COORDINATES = 6  # most features of vectors that are tested one by one


# -- units -----------------------------------------------------------------------------------------------------------


def units(subject: Subject) -> Finding:
    """Check that an audited model gives one log-probability for each unit and each scored end.

    A unit is a frame, byte or symbol. ``log_prob`` must be the sum of a sequence's log-probabilities, and ``score`` the
    sum over all sequences divided by the number of units. Methods that the model lacks are not checked.

    Args:
        subject: the audited model with its sequences.
    """
    cases, unit = subject.cases, subject.measure.unit
    steps = subject.score(cases)
    for case, each in zip(cases, steps, strict=True):
        n = n_units_of(case.item)
        if len(each) != n + subject.ends:
            ends = " and an end" if subject.ends else ""
            words = f"{case.name} has {n} {unit}s{ends}, but log_prob_steps has {len(each)} figures"
            return Finding(UNITS, "broken", float(len(each)), "number of figures of a sequence", words)
    sums = np.array([each.sum() for each in steps])
    seen = Comparisons(subject.tolerance)
    totals = subject.log_prob(cases)
    if totals is not None:
        if totals.shape != sums.shape:
            words = f"log_prob of {len(cases)} sequences has shape {totals.shape}"
            return Finding(UNITS, "broken", float(totals.size), "number of figures", words)
        for i, case in enumerate(cases):
            seen.add(totals[i : i + 1], sums[i : i + 1], f"{case.name}, all its steps", "in log_prob", "summed")
    if isinstance(subject.model, MeanScorer):
        scorer: Any = subject.model
        items, n = [case.item for case in cases], sum(n_units_of(case.item) for case in cases)
        given = ([c.source for c in cases], items) if subject.measure.conditional else (items,)
        mean = np.array([sums.sum() / n])
        score = np.array([float(scorer.score(*given))])
        seen.add(score, mean, "all sequences", f"in score: not the mean over {n} {unit}s", f"a {unit}")
    return seen.finding(UNITS, f"between its steps, log_prob and score, where there are such, per {unit}")


def finite(subject: Subject, others: list[Subject]) -> Finding:
    """Check that no log-probability is NaN or +inf, nor above 0 if the model has no density.

    All log-probabilities that the models have returned in the audit so far are covered.

    Args:
        subject: the audited model with its sequences.
        others: the same model in other forms, such as one that scores encoded symbols.
    """
    wrong = [each.not_finite for each in (subject, *others) if each.not_finite]
    largest = max(each.largest for each in (subject, *others))
    n = sum(each.n_scored for each in (subject, *others))
    return Finding(
        FINITE, "broken" if wrong else "held", largest, f"largest of {n:,} figures, in nats", wrong[0] if wrong else ""
    )


# -- the cursor ------------------------------------------------------------------------------------------------------


def cursor_equals_batch(subject: Subject) -> Finding:
    """Check that the model's ``stream()``, which reads step by step, gives the log-probabilities of ``log_prob_steps``.

    Two sequences are read in turns by two streams, which shows whether streams share a state. The rule is not checked
    if the model has no ``stream`` method.

    Args:
        subject: the audited model with its sequences.
    """
    if not isinstance(subject.model, Streamer):
        return not_checked(CURSOR, "the model has no stream method")
    seen = Comparisons(subject.tolerance)
    for pair in (subject.cases[i : i + 2] for i in range(0, len(subject.cases), 2)):
        streamed = _streamed(subject, pair)
        for case, steps, expected in zip(pair, streamed, subject.score(pair), strict=True):
            if np.isneginf(expected).any():
                continue  # because steps after an impossible one have no prediction
            first = _first_units(case.item, subject.measure.kind == "bound")
            expected = np.add.reduceat(expected, first[: len(steps)])
            seen.add(steps, expected, case.name, "from its stream", "in a batch")
    if not seen.n:
        return not_checked(CURSOR, "every sequence has probability zero")
    return seen.finding(CURSOR, "between the stream and log_prob_steps")


def _first_units(item: Any, is_bound: bool) -> np.ndarray:
    """Return the index of the first unit that each update of a stream reads, then the index of the end, as one array.

    A unit is a byte of a text, else a step. An update reads one step (a character of a text), or a whole sequence.

    Args:
        item: the sequence.
        is_bound: whether an update reads the whole sequence, because its likelihood is a lower bound of a whole
            sequence.
    """
    if is_bound:
        return np.array([0, n_units_of(item)])
    if isinstance(item, str):
        return np.cumsum([0, *(len(character.encode()) for character in item)])
    return np.arange(len(item) + 1)


def _streamed(subject: Subject, cases: list[Case]) -> list[np.ndarray]:
    """Read several sequences in turns, each by a stream of its own; return log p of each update in nats.

    Args:
        subject: the audited model.
        cases: the sequences.

    Returns:
        An array for each sequence, with a last value for its end if ends are scored.
    """
    model: Any = subject.model
    streams = [model.stream(**({"source": c.source} if subject.measure.conditional else {})) for c in cases]
    steps: list[list[float]] = [[] for _ in cases]
    is_bound = subject.measure.kind == "bound"
    inputs = [[case.item] if is_bound else list(case.item) for case in cases]
    for t in range(max(map(len, inputs))):
        for i, each in enumerate(inputs):
            if t < len(each):
                steps[i].append(float(streams[i].update(each[t])))
    if subject.ends:
        for each, stream in zip(steps, streams, strict=True):
            each.append(float(stream.log_end()))
    return [np.array(each) for each in steps]


# -- samples ---------------------------------------------------------------------------------------------------------


def samples_follow_scores(subject: Subject, effort: Effort, alpha: float, rng: np.random.Generator) -> Finding:
    """Check that values drawn from an audited model are as frequent as their probabilities say.

    They are drawn after prefixes of its sequences, and within drawn sequences. The rule is not checked if the model
    cannot be drawn from, and for amounts.

    Args:
        subject: the audited model with its sequences.
        effort: limits of the number of prefixes, draws and scored steps.
        alpha: the largest probability with which chance makes the rule look broken.
        rng: generator of random numbers.
    """
    if not isinstance(subject.model, SequenceSampler):
        return not_checked(SAMPLES, "the model has no sample method")
    if subject.outcomes is not None and subject.has_all:
        return _frequencies(subject, effort, alpha, rng)
    if "amounts" in subject.values:
        return not_checked(SAMPLES, "no move goes between a probability at 0 and a density above it")
    if subject.values:
        return _reversible(subject, effort, alpha, rng)
    return not_checked(SAMPLES, "the values that are drawn cannot be listed")


def _frequencies(subject: Subject, effort: Effort, alpha: float, rng: np.random.Generator) -> Finding:
    """Check by e-values that values drawn for the next step are as frequent as scored, if all values can be listed.

    An e-value is a statistic whose mean is at most one if the hypothesis is true.

    Args:
        subject: the audited model with its sequences.
        effort: limits of the number of prefixes, draws and scored steps.
        alpha: the largest probability with which chance makes the rule look broken.
        rng: generator of random numbers.
    """
    outcomes = subject.outcomes or []
    index = {_key(value): i for i, value in enumerate(outcomes)}
    of_counts, of_powers, worst, n_drawn = 0.0, np.zeros(len(POWERS)), (0.0, ""), 0
    n_prefixes = max(2, min(effort.n_prefixes, effort.n_points // max(1, len(outcomes) * 8)))
    for case, t in prefixes(subject, n_prefixes, rng):
        drawn = subject.draw(effort.n_draws, case, t, int(rng.integers(1 << 30)))
        if drawn is None:
            continue
        log_p = next_log_probs(subject, case, t)
        counts = _counts(drawn, t, index, len(log_p))
        found_n = int(counts.sum())
        if found_n < len(drawn):
            words = f"{case.name}: after {t} steps a value was drawn that is none of the {len(outcomes)} there are"
            return Finding(SAMPLES, "broken", np.inf, "evidence, nats", words)
        evidence, powers = log_evidence_of_counts(counts, log_p), log_evidence_of_powers(counts, log_p)
        of_counts, of_powers, n_drawn = of_counts + evidence, of_powers + powers, n_drawn + found_n
        if max(evidence, powers.max()) > worst[0]:
            expected = np.exp(log_p)
            v = int(np.argmax(np.abs(counts / found_n - expected) / np.sqrt(expected + 1 / found_n)))
            value = "the end" if v == len(outcomes) else f"value {outcomes[v]}"
            words = f"{case.name}, after {t} steps: {value} has probability {expected[v]:.4g}, but share "
            worst = max(evidence, powers.max()), f"{words}{counts[v] / found_n:.4g} of {found_n} draws"
    if not n_drawn:
        return not_checked(SAMPLES, "nothing could be drawn")
    paths = _along_paths(subject, effort, rng, index)
    evidence = log_mean_evidence([of_counts, *of_powers, *paths])
    is_broken = evidence > np.log(1 / alpha)
    meaning = f"log evidence against {n_drawn} draws (broken above {np.log(1 / alpha):.3g})"
    words = worst[1] or "steps within drawn sequences do not follow the predictions after what was drawn before them"
    return Finding(SAMPLES, "broken" if is_broken else "held", evidence, meaning, words if is_broken else "")


def _along_paths(subject: Subject, effort: Effort, rng: np.random.Generator, index: dict[str, int]) -> list[float]:
    """Return log e-values against the hypothesis that steps within drawn sequences follow the model's predictions.

    An e-value is a statistic whose mean is at most one if the hypothesis is true. There is one for each exponent in
    ``POWERS``, the alternatives of ``log_evidence_of_powers``. Each uses one random step of each drawn sequence, scored
    given the steps drawn before it. The list is empty if targets are as long as their sources.

    Args:
        subject: the audited model with its sequences.
        effort: limits of the number of draws and scored steps.
        rng: generator of random numbers.
        index: position among all values of each value, by its key.
    """
    case, n_values, n_steps = subject.cases[0], len(index), PATH_STEPS
    if subject.is_tagger:
        return []
    n = min(effort.n_draws, effort.n_points // (n_values * n_steps))
    drawn = subject.draw(n, case, 0, int(rng.integers(1 << 30)), n_steps)
    paths = [(np.asarray(each), int(rng.integers(1, len(each)))) for each in drawn or [] if len(each) > 1]
    cases = [(Case(path, case.source, "a drawn sequence"), t) for path, t in paths]
    values = subject.outcomes or []
    scored = subject.score([each for c, t in cases for each in subject.with_step(c, t, values, in_place=False)])
    powers = np.zeros(len(POWERS))
    for i, (path, t) in enumerate(paths):
        log_p = np.array([each[t] for each in scored[i * n_values : (i + 1) * n_values]])
        log_p -= np.logaddexp.reduce(log_p)  # given that the sequence went on, because the step was chosen so
        powers += log_evidence_of_powers(_counts([path], t, index, n_values), log_p)
    return powers.tolist()


def _ends(kind: Values, outcomes: Sequence[Any] | None) -> tuple[float, float]:
    """Return the least and the largest value of a feature that a Metropolis move may reach.

    Args:
        kind: kind of the feature's values, such as ``"bits"`` or ``"rounded"``.
        outcomes: grid points of a feature of rounded values, ``(1,)`` each; None for other features.
    """
    if kind == "rounded" and outcomes is not None:
        return float(outcomes[0][0]), float(outcomes[-1][0])
    return {"bits": (0.0, 1.0), "counts": (0.0, np.inf)}.get(kind, (-np.inf, np.inf))


def _counts(drawn: list[Any], t: int, index: dict[str, int], n: int) -> np.ndarray:
    """Return how often each of n values stands at step ``t`` of the drawn sequences, ``(n,)``.

    Args:
        drawn: the sequences.
        t: index of the step.
        index: position of each value, by its key.
        n: number of values, with the end as the last if ends are scored; it counts sequences that ended before step t.
    """
    counts = np.zeros(n, dtype=int)
    for each in drawn:
        if len(each) <= t:
            counts[-1] += 1
        elif (value := index.get(_key(each[t]))) is not None:
            counts[value] += 1
    return counts


def _key(value: Any) -> str:
    return str(np.asarray(value).astype(float).tolist()) if not isinstance(value, str | np.str_) else str(value)


def _reversible(subject: Subject, effort: Effort, alpha: float, rng: np.random.Generator) -> Finding:
    """Check that drawn vectors keep their distribution under Metropolis moves that leave the scored density unchanged.

    If x was drawn from the scored density, then x and the point to which a reversible chain moves it are exchangeable,
    so that ``f(moved) - f(x)`` is symmetric about 0 for every f, whatever the density integrates to (Besag & Clifford
    1989, *Generalized Monte Carlo significance tests*). The functions f are the log-density, the features, and their
    distances from the median.

    Args:
        subject: the audited model with its sequences.
        effort: limits of the number of prefixes, draws and scored steps.
        alpha: the largest probability with which chance makes the rule look broken.
        rng: generator of random numbers.
    """
    n_drawn = 0
    moves: dict[str, list[tuple[str, np.ndarray, np.ndarray]]] = {}  # for each f: where, values before and after
    longest = max(1, effort.n_points // (effort.n_draws * N_MOVES))
    for i, (case, t) in enumerate(prefixes(subject, max(3, effort.n_prefixes // 2), rng)):
        t = min(t, longest) if i != 2 else t  # the third prefix stays long, with fewer draws
        n = max(100, min(2 * effort.n_draws, 2 * effort.n_points // ((t + 1) * N_MOVES)))
        drawn = drawn_steps(subject, case, t, n + n // 4, int(rng.integers(1 << 30)))
        if drawn is None or np.isneginf(subject.score([case])[0][:t]).any():
            continue
        where = f"{case.name}, after {t} steps"
        near, x = np.concatenate([drawn[: n // 4], frames_of(subject)[:200]]), drawn[n // 4 :]
        log_p = subject.figures(case, t, list(x))
        if np.isneginf(log_p).any():
            words = f"{where}: {x[np.argmin(log_p)]} was drawn, which has probability zero"
            return Finding(SAMPLES, "broken", 0.0, "p-value", words)
        moved, log_p_moved = _moved(subject, case, t, x, log_p, near, rng)
        moves.setdefault("log p", []).append((where, log_p, log_p_moved))
        middle = np.median(near, axis=0)
        for d in range(min(x.shape[1], MAX_COORDINATES)):
            distance = f"the distance of feature {d} from the median"
            moves.setdefault(f"feature {d}", []).append((where, x[:, d], moved[:, d]))
            pair = np.abs(x[:, d] - middle[d]), np.abs(moved[:, d] - middle[d])
            moves.setdefault(distance, []).append((where, *pair))
        n_drawn += len(x)
    if not moves:
        return not_checked(SAMPLES, "nothing could be drawn")
    p_values = {f: p_value_of_symmetry([after - before for _, before, after in each]) for f, each in moves.items()}
    f = min(p_values, key=p_values.__getitem__)
    where, before, after = min(moves[f], key=lambda each: p_value_of_symmetry([each[2] - each[1]]))
    words = (
        f"{where}: of {len(before)} draws {f} is {before.mean():.5g} on average, but {after.mean():.5g} once they are "
        "moved by a chain that keeps the scored density"
    )
    p_value = min(1.0, p_values[f] * len(moves))
    is_broken = p_value < alpha
    meaning = f"p-value of {n_drawn} draws, {len(moves)} tests (broken below {alpha:.2g})"
    return Finding(SAMPLES, "broken" if is_broken else "held", p_value, meaning, words if is_broken else "")


def _moved(
    subject: Subject,
    case: Case,
    t: int,
    x: np.ndarray,
    log_p: np.ndarray,
    near: np.ndarray,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Move each row of ``x`` by a Metropolis chain; return the points, ``(n, D)``, and their log-densities, ``(n,)``.

    A proposed move adds the difference of two random rows of ``near``, which is as likely as its opposite. Features
    whose values are not all reals are moved in the unconstrained coordinates of ``to_reals``.

    Args:
        subject: the audited model.
        case, t: the sequence of whose first t steps x is a continuation.
        x: points drawn from the model for step t, ``(n, D)``.
        log_p: log-densities of ``x`` in nats, ``(n,)``.
        near: points whose differences are the moves, ``(m, D)``.
        rng: generator of the moves.
    """
    kinds = subject.values
    whole = np.array([each in WHOLE for each in kinds])
    low, high = np.array([_ends(each, subject.outcomes) for each in kinds]).T
    v, near = to_reals(x, kinds), to_reals(near, kinds)
    moved, log_p_moved, log_p_v = v.copy(), log_p.copy(), log_p + log_derivative(v, kinds)
    for _ in range(N_MOVES):
        a, b = rng.integers(len(near), size=(2, len(x)))
        factor = rng.choice([1.0, 0.5, 0.2], (len(x), 1))
        proposed = moved + np.where(whole, 1.0, factor) * (near[a] - near[b])
        allowed = ((low <= proposed) & (proposed <= high)).all(1)
        log_p_proposed = np.full(len(x), -np.inf)
        if allowed.any():
            log_p_proposed[allowed] = subject.figures(case, t, list(from_reals(proposed[allowed], kinds)))
        log_p_v_proposed = log_p_proposed + log_derivative(proposed, kinds)
        accepted = np.log(rng.random(len(x))) < log_p_v_proposed - log_p_v
        moved[accepted], log_p_moved[accepted] = proposed[accepted], log_p_proposed[accepted]
        log_p_v[accepted] = log_p_v_proposed[accepted]
    return from_reals(moved, kinds), log_p_moved
