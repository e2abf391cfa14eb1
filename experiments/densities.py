"""Are densities what scipy says, do they integrate to one, and is EM monotone? ``python experiments/densities.py``.

Each density of vectors that EM fits, of one feature, in float64. For 200 random parameters, at ten draws by scipy's
density of the same parameters and at points of the far tails: the largest difference of log p, divided by its size
where that is above one. For the first 20 of them: the largest distance of the integral (or, of whole numbers, the sum)
from one, between quantiles that leave out 2e-12. Then EM from 100 random starts of 3 states, each on data of its own,
drawn from a random HMM of that density: the largest fall of log p, in nats a frame, from one step to the next, and how
many of the 100 have one above 1e-12. Zero-inflated and rounded ones have no twin in scipy, and only EM is tried.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy import integrate, stats

import seqmodels as sm
from seqmodels.evaluation.comparison.provenance import stamped
from seqmodels.observations import Observation

OUT = Path("experiments/results/densities/densities.csv")
LEVELS = np.array([1e-12, 1e-6, 1e-3, 0.5, 1 - 1e-3, 1 - 1e-6])
FALL = 1e-12


@dataclass(frozen=True)
class Case:
    """A density, how its parameters are drawn, and its twin.

    Args:
        observation: with floors that no draw comes near.
        draw: a generator -> the output parameters ``(P,)`` of one feature.
        twin: output parameters -> the distribution in scipy.
        support: where it is above zero.
    """

    observation: Observation
    draw: Callable[[np.random.Generator], Sequence[float]]
    twin: Callable[[np.ndarray], Any]
    support: tuple[float, float] = (-np.inf, np.inf)
    is_discrete: bool = False


def logs(*ranges: tuple[float, float]) -> Callable[[np.random.Generator], Sequence[float]]:
    """Uniform in each of the ranges."""
    return lambda rng: [rng.uniform(*ends) for ends in ranges]


POSITIVE, FLOOR = (0.0, np.inf), 1e-6
observations = sm.observations
CASES = {
    "StudentT": Case(
        observations.StudentT(FLOOR),
        logs((-3, 3), (-2, 2), (-0.3, 4)),
        lambda p: stats.t(np.exp(p[2]), p[0], np.exp(p[1])),
    ),
    "Gamma": Case(
        observations.Gamma(FLOOR),
        logs((-1, 5), (-2, 2)),
        lambda p: stats.gamma(np.exp(p[0]), scale=np.exp(p[1] - p[0])),
        POSITIVE,
    ),
    "LogNormal": Case(
        observations.LogNormal(FLOOR),
        logs((-2, 2), (-2, 1)),
        lambda p: stats.lognorm(np.exp(p[1]), scale=np.exp(p[0])),
        POSITIVE,
    ),
    "Beta": Case(observations.Beta(FLOOR), logs((0, 4), (0, 4)), lambda p: stats.beta(*np.exp(p)), (0.0, 1.0)),
    "VonMises": Case(
        observations.VonMises(FLOOR),
        logs((-9, 9), (-9, 9)),
        lambda p: stats.vonmises(np.hypot(*p), loc=np.arctan2(p[1], p[0])),
        (-np.pi, np.pi),
    ),
    "Poisson": Case(sm.Poisson(), logs((-2, 4)), lambda p: stats.poisson(np.exp(p[0])), is_discrete=True),
    "NegativeBinomial": Case(
        observations.NegativeBinomial(),
        logs((-1, 4), (-1, 3)),
        lambda p: stats.nbinom(np.exp(p[1]), 1 / (1 + np.exp(p[0] - p[1]))),
        is_discrete=True,
    ),
}


def zero_inflated(p: np.ndarray) -> Any:
    """Draws of a Poisson distribution, of which a share is zero."""
    return stats.rv_discrete(values=(np.arange(60), _with_zeros(stats.poisson.pmf(np.arange(60), np.exp(p[0])))))


def _with_zeros(p: np.ndarray) -> np.ndarray:
    inflated = np.asarray(0.6 * p / p.sum())
    inflated[0] += 0.4
    return inflated


GRID = 0.5
# Without a twin: the distribution in scipy is only drawn from, and values are rounded where the observation is.
ONLY_EM = {
    "ZeroInflated(Poisson)": Case(
        observations.ZeroInflated(sm.Poisson()), logs((-1, 3)), zero_inflated, is_discrete=True
    ),
    "Rounded(GaussianMixture)": Case(
        observations.Rounded(sm.GaussianMixture(1), GRID),
        logs((-5, 5), (-1, 1)),
        lambda p: stats.norm(p[0], np.exp(p[1])),
    ),
    "Rounded(StudentT)": Case(
        observations.Rounded(observations.StudentT(), GRID), CASES["StudentT"].draw, CASES["StudentT"].twin
    ),
    "Rounded(Gamma)": Case(
        observations.Rounded(observations.Gamma(), GRID), logs((-1, 3), (0, 3)), CASES["Gamma"].twin, POSITIVE
    ),
}


def log_prob(case: Case, row: np.ndarray, x: np.ndarray) -> np.ndarray:
    """``(n,)`` of values ``(n,)``."""
    return case.observation.log_prob(torch.as_tensor(row), torch.as_tensor(x, dtype=torch.float64)[:, None]).numpy()


def difference(case: Case, row: np.ndarray, rng: np.random.Generator) -> float:
    """The largest from scipy, relative where log p is below -1."""
    twin = case.twin(row)
    x = np.concatenate([twin.rvs(10, random_state=rng), twin.ppf(LEVELS)]).astype(float)
    low, high = case.support
    x = x[(x > low) & (x < high)]
    theirs = (twin.logpmf if case.is_discrete else twin.logpdf)(x)
    return float((np.abs(log_prob(case, row, x) - theirs) / np.maximum(1, np.abs(theirs))).max())


def distance_from_one(case: Case, row: np.ndarray) -> float:
    """Of the sum of p, or of its integral between quantiles, where it is smooth and which leave out 2e-12."""
    twin = case.twin(row)
    if case.is_discrete:
        return float(abs(np.exp(log_prob(case, row, np.arange(twin.isf(1e-15) + 1))).sum() - 1))
    if case.support == (-np.pi, np.pi):  # scipy's has its support around the location
        cuts = np.linspace(-np.pi, np.pi, 9)
    else:
        cuts = twin.ppf([1e-12, 1e-9, 1e-6, 1e-4, 0.01, 0.2, 0.5, 0.8, 0.99, 1 - 1e-4, 1 - 1e-6, 1 - 1e-9, 1 - 1e-12])

    of_logarithm = case.support == POSITIVE  # there shapes below 1 have a pole at 0
    cuts = np.log(cuts) if of_logarithm else cuts

    def p(z: float) -> float:
        x = np.exp(z) if of_logarithm else z
        return float(np.exp(log_prob(case, row, np.array([x])))[0] * (x if of_logarithm else 1.0))

    pairs = pairwise(cuts)
    return abs(sum(integrate.quad(p, *ends, epsabs=1e-13, epsrel=1e-12, limit=200)[0] for ends in pairs) - 1)


def largest_fall(case: Case, seed: int) -> float:
    """Of log p in EM from one random start, nats a frame; 0 where it never falls."""
    rng = np.random.default_rng(seed)
    twins = [case.twin(np.array(case.draw(rng))) for _ in range(3)]
    states = [np.repeat(rng.integers(3, size=8), 5) for _ in range(6)]
    x = [np.array([twins[k].rvs(random_state=rng) for k in z], dtype=float)[:, None] for z in states]
    low, high = case.support
    x = [np.clip(each, np.nextafter(low, np.inf), np.nextafter(high, -np.inf)) for each in x]
    x = [(each + np.pi) % (2 * np.pi) - np.pi for each in x] if case.support == (-np.pi, np.pi) else x
    if isinstance(case.observation, observations.Rounded):
        x = [GRID * np.rint(each / GRID) for each in x]
    model = sm.HMM(3, observation=case.observation, n_init=1, max_iter=50, tol=0, dtype="float64", random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = model.fit(x).history_["objective"].to_numpy()
    return float(max(0.0, (-np.diff(path)).max()))


def row(name: str, n_parameters: int, n_starts: int) -> dict[str, object]:
    case, rng = {**CASES, **ONLY_EM}[name], np.random.default_rng(0)
    rows = [np.array(case.draw(rng), dtype=float) for _ in range(n_parameters if name in CASES else 0)]
    falls = np.array([largest_fall(case, seed) for seed in range(n_starts)])
    return {
        "density": name,
        "parameters": len(rows),
        "difference": max((difference(case, each, rng) for each in rows), default=np.nan),
        "distance_from_one": max(
            (distance_from_one(case, each) for each in rows[: n_parameters // 10]), default=np.nan
        ),
        "starts": n_starts,
        "largest_fall": falls.max(),
        "starts_that_fall": int((falls > FALL).sum()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=[*CASES, *ONLY_EM], default=[*CASES, *ONLY_EM])
    parser.add_argument("--quick", action="store_true", help="few parameters and starts, and nothing is written")
    arguments = parser.parse_args()
    found = []
    for name in arguments.only:
        found.append(row(name, *((20, 2) if arguments.quick else (200, 100))))
        print(pd.DataFrame(found[-1:]).to_string(index=False, header=len(found) == 1), flush=True)
    if not arguments.quick:
        table = stamped(pd.DataFrame(found))
        if OUT.exists():  # rows of others stay
            before = pd.read_csv(OUT)
            table = pd.concat([before[~before["density"].isin(table["density"])], table])
        OUT.parent.mkdir(parents=True, exist_ok=True)
        table.to_csv(OUT, index=False, float_format="%.3g")


if __name__ == "__main__":
    main()
