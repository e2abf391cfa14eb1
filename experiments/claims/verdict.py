"""Verdicts on the parts of a claim: held, contradicted, or undecided at this size.

An effect is signed so that the claim says it is above zero. With an interval, the part held if all of the interval is
above zero, was contradicted if all of it is below, and is undecided otherwise. Of one run there is no interval; then
the effect must be beyond a margin, the smallest effect that would matter, which the script states.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

Verdict = Literal["held", "contradicted", "undecided"]


@dataclass(frozen=True)
class Part:
    """One statement of a claim.

    Attributes:
        claim: the statement.
        verdict: on it.
        seen: the figures that decided.
    """

    claim: str
    verdict: Verdict
    seen: str


def of_interval(low: float, high: float, *, above: float = 0.0) -> Verdict:
    """Of an effect that is claimed to be above ``above``.

    >>> of_interval(0.1, 0.3), of_interval(-0.3, -0.1), of_interval(-0.1, 0.3)
    ('held', 'contradicted', 'undecided')
    """
    if not low <= high:
        raise ValueError(f"the interval goes from {low} to {high}")
    return "held" if low > above else "contradicted" if high < above else "undecided"


def of_one_run(effect: float, margin: float) -> Verdict:
    """Of an effect without an interval, which must be beyond ``margin``.

    >>> of_one_run(1.57, 0.1), of_one_run(-1.0, 0.1), of_one_run(0.05, 0.1)
    ('held', 'contradicted', 'undecided')
    """
    return of_interval(effect - margin, effect + margin)


def of_all(verdicts: Iterable[Verdict]) -> Verdict:
    """Of a statement about each of several: one that is contradicted contradicts it.

    >>> of_all(["held", "held"]), of_all(["held", "undecided"]), of_all(["contradicted", "undecided"])
    ('held', 'undecided', 'contradicted')
    """
    each = set(verdicts)
    if not each:
        raise ValueError("there is no verdict")
    return "contradicted" if "contradicted" in each else "undecided" if "undecided" in each else "held"


def interval_of_mean(effects: Sequence[float]) -> tuple[float, float, float]:
    """Mean and the ends of its 95 % t interval, of repetitions that are independent given what they share.

    >>> [round(x, 2) for x in interval_of_mean([1.0, 2.0, 3.0])]
    [2.0, -0.48, 4.48]
    """
    from scipy.stats import t

    x = np.asarray(effects, dtype=float)
    if x.ndim != 1 or len(x) < 2 or not np.isfinite(x).all():
        raise ValueError(f"effects are {effects!r}; an interval needs two or more finite ones")
    half = float(t.ppf(0.975, len(x) - 1) * x.std(ddof=1) / len(x) ** 0.5)
    return float(x.mean()), float(x.mean()) - half, float(x.mean()) + half


def part(claim: str, effects: Sequence[float], unit: str, *, margin: float = 0.1) -> Part:
    """A part that is decided by the interval of the mean of these effects; of a single one, by the margin."""
    if len(effects) == 1:
        return Part(claim, of_one_run(effects[0], margin), f"{effects[0]:+.3f} {unit}, one run")
    mean, low, high = interval_of_mean(effects)
    return Part(claim, of_interval(low, high), signed(mean, low, high, unit))


def signed(mean: float, low: float, high: float, unit: str) -> str:
    """An effect in words.

    >>> signed(0.5, 0.25, 0.75, "nats")
    '+0.500 [+0.250, +0.750] nats'
    """
    return f"{mean:+.3f} [{low:+.3f}, {high:+.3f}] {unit}"
