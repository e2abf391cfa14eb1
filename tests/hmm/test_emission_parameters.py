"""Emissions of any kind by their parameters: a fitted model is its attributes, and scipy's density of what is given."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import scipy.stats
from numpy.testing import assert_allclose

import seqmodels as sm
from seqmodels.hmm import HSMM, ContinuousTimeHMM
from seqmodels.hmm.emissions import emission_of
from seqmodels.observations import (
    Beta,
    Gamma,
    IntervalCensored,
    LogNormal,
    NegativeBinomial,
    Observation,
    Rounded,
    StudentT,
    VonMises,
    ZeroInflated,
)
from tests.inference.chains.enumeration import enumerate_paths

CHAIN: dict[str, Any] = {"initial": [0.3, 0.7], "transition": [[0.9, 0.1], [0.2, 0.8]]}
RNG = np.random.default_rng(0)
REALS = [RNG.normal(size=(30, 2)) * [1, 20] + [[0, 50]] * (1 + (np.arange(30) % 9 > 4))[:, None] for _ in range(3)]
COUNTS = [np.rint(np.abs(x / [0.2, 10])) for x in REALS]
POSITIVE = [np.abs(x) + 0.1 for x in REALS]
CASES: list[tuple[Observation, list[np.ndarray]]] = [
    (sm.GaussianMixture(2), REALS),
    (sm.GaussianMixture(1, "full"), REALS),
    (sm.GaussianMixture(2, "tied"), REALS),
    (sm.GaussianMixture(2, "spherical"), REALS),
    (sm.Poisson(), COUNTS),
    (sm.Bernoulli(), [(x > 0).astype(float) for x in COUNTS]),
    (Gamma(), POSITIVE),
    (LogNormal(), POSITIVE),
    (Beta(), [x / (1 + x) for x in POSITIVE]),
    (VonMises(), [np.arctan2(x[:, :1], x[:, 1:] - 50) for x in REALS]),
    (StudentT(), REALS),
    (NegativeBinomial(), COUNTS),
    (ZeroInflated(sm.Poisson()), [np.where(RNG.random(x.shape) < 0.4, 0.0, x) for x in COUNTS]),
    (ZeroInflated(Gamma()), [np.where(RNG.random(x.shape) < 0.4, 0.0, x) for x in POSITIVE]),
    (Rounded(sm.GaussianMixture(1), width=[0.5, 5.0]), [np.rint(x / [0.5, 5.0]) * [0.5, 5.0] for x in REALS]),
    (IntervalCensored(sm.GaussianMixture(1)), [np.hstack([x[:, :1] + [0, 1], x[:, 1:] + [0, 20]]) for x in REALS]),
    (sm.AutoregressiveGaussian(2, background=0.0), REALS),
    (sm.AutoregressiveGaussian(1, "diag", background=0.0), REALS),
    (sm.AutoregressiveGaussian(1, "tied", background=0.0), REALS),
    (sm.AutoregressiveGaussian(1, background=0.05), REALS),
    (sm.Categorical(), [x[:, 0].astype(int) % 4 for x in COUNTS]),
    (
        sm.Columns([(sm.GaussianMixture(1), 2), (Gamma(), 1), (sm.GaussianMixture(2, "full"), 1)]),
        [np.hstack([a, b[:, :1], a[:, :1] + 1]) for a, b in zip(REALS, POSITIVE, strict=True)],
    ),
]


def attributes_of(model: Any) -> dict[str, np.ndarray]:
    """The fitted parameters of the emissions, by the names that ``emission_parameters`` takes."""
    names = emission_of(model.observation_, model.encoding_.size).example_of_raw(2)
    return {name.removesuffix("_"): getattr(model, name) for name in names}


@pytest.mark.parametrize(("observation", "data"), CASES, ids=[repr(case[0])[:40] for case in CASES])
def test_a_fitted_model_is_its_attributes(observation: Observation, data: list[np.ndarray]) -> None:
    model = sm.HMM(2, observation=observation, max_iter=3, n_init=1, dtype="float64", start="free", length="given").fit(
        data
    )
    chain = {"initial": model.initial_, "transition": model.transition_, "observation": observation}
    given = attributes_of(model)
    again = sm.HMM.from_parameters(
        **chain, emission_parameters=given, encoding=model.encoding_, dtype="float64", start="free"
    )
    assert_allclose(again.log_prob(data), model.log_prob(data), rtol=1e-9)
    for name, values in given.items():
        assert_allclose(getattr(again, f"{name}_"), values, rtol=1e-9)
    # Spheres in some units are none in others, and a background is as wide as the units say.
    if "spherical" not in repr(observation) and not getattr(observation, "background", 0.0):
        own_units = sm.HMM.from_parameters(**chain, emission_parameters=given, dtype="float64", start="free")
        assert_allclose(own_units.log_prob(data), model.log_prob(data), rtol=1e-8)


def test_the_likelihood_is_scipys_summed_over_paths() -> None:
    columns = sm.Columns([(Gamma(), 1), (VonMises(), 1), (sm.GaussianMixture(1), 1)])
    given = {
        "shapes": [[2.0], [5.0]],
        "rates": [[0.01], [0.4]],
        "locations": [[0.0], [2.0]],
        "concentrations": [[3.0], [0.5]],
        "means": [[[1e3]], [[-2.0]]],
        "covariances": [[[4.0]], [[0.5]]],
    }
    x = np.array([[150.0, 0.2, 1001.0], [9.0, -3.0, -1.5], [14.0, 2.5, -2.0], [300.0, -0.4, 999.0]])
    model = sm.HMM.from_parameters(**CHAIN, observation=columns, emission_parameters=given, dtype="float64")
    b = np.stack(
        [
            scipy.stats.gamma.pdf(x[:, 0], shape, scale=1 / rate)
            * scipy.stats.vonmises.pdf(x[:, 1], concentration, loc=location)
            * scipy.stats.norm.pdf(x[:, 2], mean, np.sqrt(variance))
            for shape, rate, location, concentration, mean, variance in zip(
                *(np.ravel(values) for values in given.values()), strict=True
            )
        ],
        axis=1,
    )
    expected = enumerate_paths(np.array(CHAIN["initial"]), np.array(CHAIN["transition"]), b, None)
    assert_allclose(model.log_prob([x]), [expected.log_prob], rtol=1e-10)
    assert model.decode([x])[0].tolist() == list(expected.best_path)


def test_durations_and_jumps_take_them_too() -> None:
    gamma = {"observation": Gamma(), "emission_parameters": {"shapes": [[2.0], [5.0]], "rates": [[0.1], [4.0]]}}
    x = POSITIVE[0][:, :1]
    plain = sm.HMM.from_parameters([1.0, 0.0], [[0.0, 1.0], [1.0, 0.0]], **gamma)
    segments = HSMM.from_parameters(
        [1.0, 0.0], [[0.0, 1.0], [1.0, 0.0]], durations=[[1.0], [1.0]], **gamma
    )  # a new segment at each step
    assert_allclose(segments.log_prob([x]), plain.log_prob([x]), rtol=1e-9)
    jumps = ContinuousTimeHMM.from_parameters([[-1e3, 1e3], [1e3, -1e3]], [1.0, 0.0], **gamma)
    timed = sm.Sequences([x], times=[np.arange(30.0)])
    either = sm.HMM.from_parameters([1.0, 0.0], np.full((2, 2), 0.5), **gamma)  # so many jumps that each is as likely
    assert_allclose(jumps.log_prob(timed), either.log_prob([x]), rtol=1e-9)


def test_an_autoregression_by_its_parameters_is_scipys() -> None:
    given = {
        "coefficients": [[[0.2, 0.7]]],
        "intercepts": [[1.0]],
        "covariances": [[[4.0]]],
        "first_mean": [10.0],
        "first_covariance": [[25.0]],
    }
    observation = sm.AutoregressiveGaussian(2, background=0.1)
    model = sm.HMM.from_parameters([1.0], [[1.0]], observation=observation, emission_parameters=given, dtype="float64")
    x = np.array([12.0, 7.0, 9.0, 90.0])
    centres = [(10.0, 25.0, 10.0)] * 2 + [(0.2 * a + 0.7 * b + 1, 4.0, b) for a, b in pairwise(x[:-1])]
    expected = [
        np.log(0.9 * scipy.stats.norm.pdf(v, m, np.sqrt(s)) + 0.1 * scipy.stats.norm.pdf(v, last, 5 * np.sqrt(10)))
        for v, (m, s, last) in zip(x, centres, strict=True)
    ]  # the background has ten times the variance of the first steps
    assert_allclose(model.log_prob_steps([x[:, None]])[0], expected, rtol=1e-10)


SHAPES = {"shapes": [[2.0], [5.0]], "rates": [[0.1], [4.0]]}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"emission_parameters": SHAPES}, "pass observation= too"),
        ({"emission_parameters": SHAPES, "observation": Gamma(), "rates": [[1.0], [2.0]]}, "different observations"),
        ({"emission_parameters": {}, "observation": Gamma()}, "emission_parameters are none"),
        ({"emission_parameters": {"shapes": [[2.0], [5.0]]}, "observation": Gamma()}, r"rates \(2, 1\)"),
        ({"emission_parameters": {**SHAPES, "scale": [[1.0], [1.0]]}, "observation": Gamma()}, "scale"),
        ({"emission_parameters": {**SHAPES, "rates": [[0.1], [-4.0]]}, "observation": Gamma()}, "rates has values"),
        ({"emission_parameters": {**SHAPES, "rates": [[0.1], [np.nan]]}, "observation": Gamma()}, "rates"),
        ({"emission_parameters": {"emission": [[0.5, 0.4], [0.5, 0.5]]}, "observation": sm.Categorical()}, "sum to 1"),
        (
            {"emission_parameters": {"coefficients": [[[0.5]]] * 2}, "observation": sm.AutoregressiveGaussian()},
            "first_",
        ),
    ],
)
def test_what_cannot_be_is_refused(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        sm.HMM.from_parameters(**CHAIN, **given)
