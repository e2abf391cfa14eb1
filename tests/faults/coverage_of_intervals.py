"""Do 95 % intervals of ``compare`` cover the true difference, and does the p-value beside each agree with it?

Differences of 5 to 50 clusters are drawn from distributions whose mean is known, on other seeds than those that the
constants of ``paired_difference`` were fitted to.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from seqmodels.evaluation.statistics.paired import Difference, paired_difference
from tests.faults.promise import Promise, main

SIZES = (5, 8, 12, 20, 50)
REPETITIONS, QUICK_REPETITIONS = 10_000, 300
GOAL = "94 to 96 % at every size, to the nearest percent"

Draw = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]
DISTRIBUTIONS: dict[str, tuple[Draw, float]] = {
    "normal": (lambda rng, shape: rng.normal(size=shape), 0.0),
    "Student's t with 3 degrees of freedom": (lambda rng, shape: rng.standard_t(3, shape), 0.0),
    "exponential": (lambda rng, shape: rng.exponential(size=shape), 1.0),
    "log-normal": (lambda rng, shape: rng.lognormal(size=shape), float(np.exp(0.5))),
}


def measure(quick: bool) -> list[Promise]:
    repetitions = QUICK_REPETITIONS if quick else REPETITIONS
    rows, n_disagreeing, n_intervals = [], 0, 0
    for i, (name, (draw, mean)) in enumerate(DISTRIBUTIONS.items()):
        covered = []
        for n in SIZES:
            rng = np.random.default_rng([2026, i, n])
            found = [_interval(d) for d in draw(rng, (repetitions, n))]
            covered.append(float(np.mean([f.low <= mean <= f.high for f in found])))
            # Differences whose mean is near zero: their intervals leave it out about half of the time.
            near = draw(rng, (repetitions // 10, n)) - mean + rng.normal(0, 2 / np.sqrt(n), (repetitions // 10, 1))
            found += [_interval(d) for d in near]
            n_disagreeing += sum((f.p_value < 0.05) != (f.low > 0 or f.high < 0) for f in found)
            n_intervals += len(found)
        rows.append(_row(name, covered, repetitions))
    measured = f"{n_disagreeing} of {n_intervals:,}"
    rows.append(
        Promise("intervals that leave out zero beside p above 0.05, or the reverse", "0", measured, n_disagreeing == 0)
    )
    return rows


def _interval(d: np.ndarray) -> Difference:
    return paired_difference(d, np.zeros(len(d)), np.ones(len(d)))


def _row(name: str, covered: list[float], repetitions: int) -> Promise:
    """Whether it is kept is judged with two standard errors of as many repetitions as there were."""
    allowed = [2 * np.sqrt(c * (1 - c) / repetitions) for c in (0.94, 0.96)]
    kept = all(0.935 - allowed[0] <= c < 0.965 + allowed[1] for c in covered)
    figures = ", ".join(f"{100 * c:.1f} % of {n}" for n, c in zip(SIZES, covered, strict=True))
    measured = f"{figures} clusters, {repetitions:,} repetitions"
    return Promise(f"95 % intervals cover {name} differences of 5 to 50 clusters", GOAL, measured, kept)


if __name__ == "__main__":
    main(measure)
