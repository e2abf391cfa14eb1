"""Rankings that a setting determines: variance floors under repeated values, sequences of probability 0, grids."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np

import seqmodels as sm
from tests.faults.promise import Promise, main

MOVED = 0.05  # nats a frame: a score that moves more when it is fitted with another floor is one of the floor


def hourly(n_hours: int, random_state: int) -> np.ndarray:
    """``(T, 5)``: rounded temperature and pressure, wind, and hours of snow and of rain, nearly always 0."""
    rng = np.random.default_rng(random_state)
    warm = np.zeros(n_hours)
    for t in range(1, n_hours):
        warm[t] = 0.97 * warm[t - 1] + 0.25 * rng.normal()
    snow = np.where(rng.random(n_hours) < 0.01, np.ceil(rng.gamma(1.0, 3.0, n_hours)), 0.0)
    rain = np.where(rng.random(n_hours) < 0.04, np.round(rng.gamma(1.0, 2.0, n_hours), 1), 0.0)
    pressure = np.round(1016 - 6 * warm + rng.normal(size=n_hours))
    return np.stack([np.round(15 + 12 * warm), pressure, rng.gamma(1.5, 3.0, n_hours), snow, rain], axis=1)


def models(quick: bool, **floor: float) -> dict[str, sm.SequenceModel]:
    def observation(covariance_type: str) -> sm.GaussianMixture:
        return sm.GaussianMixture(1, covariance_type, **floor)  # type: ignore[arg-type]

    found: dict[str, sm.SequenceModel] = {
        "one state": sm.HMM(1, observation=observation("diag"), max_iter=2),
        "diagonal": sm.HMM(4, observation=observation("diag"), max_iter=8),
    }
    if not quick:
        found["full"] = sm.HMM(6, observation=observation("full"), max_iter=12)
        found["wide"] = sm.HMM(16, observation=observation("diag"), max_iter=12)
        found["gru"] = sm.GRU(d_model=16, max_steps=60, observation=observation("full"))
    return found


def scores(made: dict[str, sm.SequenceModel], train: sm.Sequences, test: sm.Sequences) -> dict[str, float]:
    return {name: model.fit(train).score(test) for name, model in made.items()}


def floors(quick: bool) -> list[Promise]:
    whole = sm.Sequences([hourly(1200 if quick else 4000, 0)])
    raw, even = whole.chunks(60), whole.dithered().chunks(60)
    cut = len(raw) * 3 // 4
    result = sm.compare(models(quick), raw[:cut], test=raw[cut:], baseline="one state")
    # Independently of what compare does: all models fitted again, with another floor.
    usual = scores(models(quick), raw[:cut], raw[cut:])
    other = scores(models(quick, min_covariance=5e-5), raw[:cut], raw[cut:])
    made = {name for name in usual if abs(usual[name] - other[name]) > MOVED}
    frame = result.frame.set_index("model")
    ranked = [n for n in made if np.isfinite(frame.loc[n, "rank"]) or np.isfinite(frame.loc[n, "p_value"])]
    lost = [n for n in usual if n not in made and math.isnan(frame.loc[n, "rank"])]
    again = sm.compare(models(quick), even[:cut], test=even[cut:], baseline="one state").frame
    unranked = list(again.loc[again["rank"].isna(), "model"])
    return [
        Promise(
            "a score that a variance floor made (columns of rain and snow, nearly always 0) "
            "gets no rank and no p-value",
            f"0 of {len(made)}, and 0 of {len(usual) - len(made)} others lose theirs",
            f"{len(ranked)} of {len(made)} ({', '.join(sorted(made))}), and {len(lost)} of the others",
            bool(made) and not ranked and not lost,
        ),
        Promise(
            "the same data dithered, by a grid that is learned once, rank every model",
            f"{len(again)} of {len(again)} rows",
            f"{len(again) - len(unranked)} of {len(again)} rows",
            not unranked,
        ),
    ]


def impossible() -> Promise:
    """Both, either or neither of two models hold a test sequence to be impossible."""
    train, test = [[0, 1, 0], [1, 0]] * 6, [[0, 1, 1], [2, 0]] * 6
    encoding = sm.Symbols(3)

    def smooth(n_states: int) -> sm.HMM:
        return sm.HMM(n_states, observation=sm.Categorical(pseudocount=0.1), encoding=encoding, max_iter=2)

    def sharp(n_states: int) -> sm.HMM:
        return sm.HMM(n_states, observation=sm.Categorical(), encoding=encoding, max_iter=2)

    cases = [(smooth, smooth, "finite"), (sharp, smooth, "inf"), (smooth, sharp, "-inf"), (sharp, sharp, "nan")]
    right = 0
    for base, model, wanted in cases:
        result = sm.compare({"base": base(1), "model": model(2)}, train, test=test, iid=False)
        found = float(result.frame.set_index("model").loc["model", "difference"])
        shown = result.table().set_index("model").loc["model", "difference"]
        says: Any = "finite" if math.isfinite(found) else str(found)
        printed = {"nan": "", "inf": "+inf", "-inf": "-inf"}.get(wanted, f"{found:+.4f}")
        right += says == wanted and shown == printed
    return Promise(
        "a difference where one, the other or both give a test sequence -inf, in the frame and as printed",
        f"{len(cases)} of {len(cases)} right",
        f"{right} of {len(cases)} right",
        right == len(cases),
    )


def grids(n: int) -> Promise:
    """Parts dithered by grids of their own, with smallest gaps of 0.33 and 1."""
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(n):
        train, test = (sm.Sequences([rng.choice(v, (80, 1)) for _ in range(6)]) for v in ([0, 0.33, 1.33], [0, 1, 2]))
        model = sm.HMM(1, max_iter=1).fit(train.dithered())
        model.score(test.dithered(like=train.dithered()))
        try:
            model.score(test.dithered())
        except ValueError:
            refused += 1
    return Promise(
        "parts that are dithered by grids of their own (0.33 and 1) are refused",
        f"{n} of {n}",
        f"{refused} of {n}",
        refused == n,
    )


def measure(quick: bool) -> list[Promise]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of floors and repeated values, which are what this is about
        return [*floors(quick), impossible(), grids(2 if quick else 20)]


if __name__ == "__main__":
    main(measure)
