"""Observations proposed by the values of features: which are, in words why, and that the right one is chosen."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import seqmodels as sm
from seqmodels.evaluation import propose_observations
from seqmodels.observations import (
    Beta,
    Gamma,
    LogNormal,
    NegativeBinomial,
    Observation,
    StudentT,
    VonMises,
    ZeroInflated,
)

RNG = np.random.default_rng(0)
N = 1500
T_OF_FOUR = 2.78  # 97.5 % quantile of Student t with the degrees of freedom of five folds
Draw = Callable[[np.random.Generator, int], np.ndarray]


def names(column: np.ndarray, name: str = "x", **options: object) -> list[str]:
    """The proposals of one feature, without arguments."""
    X = sm.Sequences([np.asarray(column, dtype=float)[:, None]], features=[name])
    proposals: list[Observation] = list(propose_observations(X, **options))  # type: ignore[arg-type]
    return [
        repr(each).replace("n_components=1", "").replace("Zero", "").replace("observation=", "") for each in proposals
    ]


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (RNG.integers(0, 2, N), ["Bernoulli()"]),
        (RNG.poisson(4.0, N), ["Poisson()"]),
        (RNG.negative_binomial(5, 0.4, N), ["Poisson()", "NegativeBinomial()"]),
        (
            np.where(RNG.random(N) < 0.4, 0, RNG.poisson(6.0, N)),
            ["Poisson()", "NegativeBinomial()", "Inflated(Poisson())", "Inflated(NegativeBinomial())"],
        ),
        (RNG.normal(size=N), ["GaussianMixture()", "StudentT()"]),
        (RNG.standard_t(3, N), ["GaussianMixture()", "StudentT()"]),
        (RNG.gamma(2.0, size=N), ["GaussianMixture()", "Gamma()", "LogNormal()"]),
        (1000.0 + RNG.normal(size=N), ["GaussianMixture()", "StudentT()"]),
        (RNG.beta(2.0, 3.0, N), ["GaussianMixture()", "Beta()", "Gamma()", "LogNormal()"]),
        (RNG.uniform(-np.pi, np.pi, N), ["GaussianMixture()", "VonMises()"]),
        (RNG.uniform(-3.0, 3.0, N), ["GaussianMixture()", "StudentT()"]),
        (np.clip(RNG.normal(size=N), -3.14, 3.14), ["GaussianMixture()", "StudentT()"]),
    ],
)
def test_what_is_proposed(column: np.ndarray, expected: list[str]) -> None:
    assert names(column) == expected


def test_a_name_or_the_caller_says_that_it_is_an_angle() -> None:
    column = RNG.vonmises(1.0, 8.0, N) % 1.0
    assert names(column, "wind_dir") == ["GaussianMixture()", "VonMises()"]
    assert names(column, "turning_angle") == names(column, "turn") == ["GaussianMixture()", "VonMises()"]
    assert names(column, "director") == ["GaussianMixture()", "Beta()", "Gamma()", "LogNormal()"]
    assert (
        names(column, kinds={"x": "angles"})
        == names(column, kinds={0: "angles"})
        == ["GaussianMixture()", "VonMises()"]
    )
    counts = RNG.poisson(4.0, N)
    assert names(counts, kinds={"x": "reals"}) == ["GaussianMixture()", "StudentT()"]


def test_cautions_say_what_no_density_does_justice_to() -> None:
    rain = np.where(np.arange(N) % 5 < 3, 0.0, RNG.gamma(2.0, size=N))
    frames = np.stack([rain, np.round(RNG.normal(size=N), 1), RNG.uniform(0, 360, N), RNG.poisson(2.0, N)], axis=1)
    proposals = propose_observations(sm.Sequences([frames], features=["rain", "rounded", "heading", "visits"]))
    said = repr(proposals)
    assert "rain: caution: 60% of the frames are 0, where a density has no bound" in said
    assert "kinds={'rain': 'amounts'} gives 0 a probability" in said
    amounts = propose_observations([rain[:, None]], kinds={0: "amounts"})
    assert repr(amounts) == "0: as said, amounts of 0 or above, so a probability at 0: " + ", ".join(
        f"ZeroInflated(observation={inner}())" for inner in ("Gamma", "LogNormal")
    )
    assert "rounded: caution: the values lie on a grid of step 0.1" in said
    assert "heading: caution: its name is of an angle; as radians from -π to π it would have VonMises too" in said
    assert "visits: caution" not in said
    measured = sm.Sequences([np.round(100 * RNG.gamma(2.0, size=(N, 1)))], features=["pm"])
    assert "pm: caution: if it is a rounded measurement and no count, kinds={'pm': 'reals'}" in repr(
        propose_observations(measured)
    )
    dithered = sm.Sequences([frames[:, 1:2]], features=["rounded"]).dithered()
    assert "caution" not in repr(propose_observations(dithered))


def test_features_of_unlike_kinds_are_groups() -> None:
    frames = np.stack([RNG.normal(size=N), RNG.normal(size=N), RNG.gamma(2.0, size=N), RNG.poisson(2.0, N)], axis=1)
    proposals = propose_observations([frames])
    assert [n for _, n in proposals.groups] == [2, 1, 1]
    assert [repr(o) for o in proposals] == [
        f"Columns(groups=[({each}, 2), ({positive}, 1), (Poisson(), 1)])"
        for each, positive in (
            ("GaussianMixture(n_components=1)", "GaussianMixture(n_components=1)"),
            ("StudentT()", "GaussianMixture(n_components=1)"),
            ("GaussianMixture(n_components=1)", "Gamma()"),
            ("GaussianMixture(n_components=1)", "LogNormal()"),
        )
    ]
    assert proposals.combination([-3.0, -4.0, -2.0, -1.0]) is None  # one group alone is a row already
    combined = proposals.combination([-3.0, -2.0, -1.0, np.nan])
    assert repr(combined) == "Columns(groups=[(StudentT(), 2), (Gamma(), 1), (Poisson(), 1)])"


def _chain(draw: Draw, other: Draw) -> sm.Sequences:
    """Sequences that stay in one of two states for ten steps on average, and are drawn in each."""
    rng = np.random.default_rng(3)
    states = [np.cumsum(rng.random(150) < 0.1) % 2 for _ in range(10)]
    return sm.Sequences([np.where(z == 0, draw(rng, 150), other(rng, 150))[:, None].astype(float) for z in states])


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize(
    ("expected", "draw", "other"),
    [
        (sm.Poisson(), lambda rng, n: rng.poisson(2.0, n), lambda rng, n: rng.poisson(9.0, n)),
        (
            NegativeBinomial(),
            lambda rng, n: rng.negative_binomial(2, 0.5, n),
            lambda rng, n: rng.negative_binomial(2, 0.1, n),
        ),
        (
            ZeroInflated(sm.Poisson()),
            lambda rng, n: (rng.random(n) < 0.6) * rng.poisson(5.0, n),
            lambda rng, n: (rng.random(n) < 0.6) * rng.poisson(20.0, n),
        ),
        (sm.GaussianMixture(1), lambda rng, n: rng.normal(0.0, 1.0, n), lambda rng, n: rng.normal(6.0, 1.0, n)),
        (StudentT(), lambda rng, n: rng.standard_t(2, n), lambda rng, n: 9 + rng.standard_t(2, n)),
        (Gamma(), lambda rng, n: rng.gamma(1.0, 1.0, n), lambda rng, n: rng.gamma(2.0, 9.0, n)),
        (LogNormal(), lambda rng, n: rng.lognormal(0.0, 0.8, n), lambda rng, n: rng.lognormal(3.0, 0.8, n)),
        (Beta(), lambda rng, n: rng.beta(0.7, 3.0, n), lambda rng, n: rng.beta(5.0, 0.7, n)),
        (VonMises(), lambda rng, n: rng.vonmises(3.0, 2.0, n), lambda rng, n: rng.vonmises(0.0, 2.0, n)),
    ],
    ids=lambda each: repr(each) if isinstance(each, Observation) else "",
)
def test_the_right_family_wins_or_is_within_noise(expected: Observation, draw: Draw, other: Draw) -> None:
    found = sm.choose(sm.HMM(2, max_iter=10, n_init=1), _chain(draw, other), observation="proposed", folds=5)
    row = found.frame.set_index(found.frame["value"].map(repr)).loc[repr(expected)]
    assert repr(expected) in [repr(value) for value in found.values]
    assert row["difference"] >= -T_OF_FOUR * row["difference_se"]
    assert found.chosen is found.best or repr(found.chosen) == repr(expected)
    if repr(expected) != repr(found.values[0]):
        plainest = found.frame.iloc[0]
        assert plainest["difference"] < -T_OF_FOUR * plainest["difference_se"]


def test_all_are_named_and_the_combination_is_tried() -> None:
    frames = [np.stack([RNG.gamma(1.0, size=150), RNG.negative_binomial(1, 0.2, 150)], axis=1) for _ in range(6)]
    X = sm.Sequences(frames, features=["amount", "visits"])
    found = sm.choose(sm.HMM(1, max_iter=5, n_init=1), X, observation="proposed", folds=3)
    said = repr(found)
    assert "    amount: reals above 0: GaussianMixture(n_components=1), Gamma(), LogNormal()" in said
    assert "    visits: whole numbers from 0 on, so probabilities and no densities" in said
    assert repr(found.values[-1]) == "Columns(groups=[(Gamma(), 1), (NegativeBinomial(), 1)])"
    assert found.chosen is found.values[-1]
    assert found.model.measure_.space == "R^1 x N^1"
    assert found.rule == "paired_se"
    assert "try more than" not in said
    by_hand = sm.choose(sm.HMM(1, max_iter=5, n_init=1), X, observation=propose_observations(X), folds=3)
    assert by_hand.frame["cv"].tolist() == pytest.approx(found.frame["cv"].tolist(), rel=1e-9)
    listed = sm.choose(sm.HMM(1, max_iter=5, n_init=1), X, observation=found.values, folds=3)
    assert listed.proposals is None
    assert listed.rule == "one_se"


def test_what_cannot_be_is_refused() -> None:
    columns = np.stack([RNG.normal(size=50), np.ones(50), np.full(50, 2.5), np.full(50, np.nan)], axis=1)
    for chosen, kinds, said in (
        ("a", {"z": "reals"}, "kinds names the feature 'z', but there are a"),
        ("a", {"a": "floats"}, "kinds says 'floats' of 'a'; pass one of 'reals'"),
        ("a", {"a": "counts"}, "kinds says 'counts' of a, which must be a count: 0, 1, 2, ..., but"),
        ("c", {}, "feature c is constant"),
        ("d", {}, "feature d is missing in every frame"),
    ):
        part = sm.Sequences([columns[:, "abcd".index(chosen)][:, None]], features=[chosen])
        with pytest.raises(ValueError, match=said):
            propose_observations(part, kinds=kinds)  # type: ignore[arg-type]
    assert names(columns[:, 1]) == ["Bernoulli()"]  # constant bits have a probability
    with pytest.raises(ValueError, match="the sequences are text, which have Categorical"):
        sm.choose(sm.HMM(2), ["abc", "abd"], observation="proposed")
