"""HMMs of hmmlearn, dynamax and Pyro: the same log-probabilities here, also after ``fit``."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pyro.distributions as dist
import pytest
import torch
from hmmlearn import hmm
from numpy.testing import assert_allclose, assert_array_equal

import seqmodels as sm

RNG = np.random.default_rng(0)
LENGTHS = [40, 1, 30]
VECTORS = RNG.normal(size=(71, 2)) * [1.0, 1e3] + [0.0, 5.0]
COUNTS, SYMBOLS = RNG.poisson(3.0, (71, 2)), RNG.integers(0, 4, (71, 1))
TYPES = ["spherical", "diag", "full", "tied"]
OPTIONS: dict[str, Any] = {"n_iter": 2, "random_state": 0, "n_components": 3}


def parts(rows: np.ndarray) -> list[np.ndarray]:
    return np.split(rows, np.cumsum(LENGTHS)[:-1])


@pytest.mark.parametrize(
    ("make", "data"),
    [
        *((lambda t=t: hmm.GaussianHMM(covariance_type=t, **OPTIONS), VECTORS) for t in TYPES),
        *((lambda t=t: hmm.GMMHMM(n_mix=2, covariance_type=t, **OPTIONS), VECTORS) for t in TYPES),
        (lambda: hmm.PoissonHMM(**OPTIONS), COUNTS),
        (lambda: hmm.CategoricalHMM(**OPTIONS), SYMBOLS),
    ],
)
def test_hmmlearn_says_the_same_here(make: Any, data: np.ndarray) -> None:
    theirs = make().fit(data, LENGTHS)
    ours = sm.adapt.from_hmmlearn(theirs)
    items = parts(data[:, 0] if data is SYMBOLS else data.astype(float))
    assert_allclose(ours.log_prob(items).sum(), theirs.score(data, LENGTHS), rtol=1e-10)
    assert_array_equal(np.concatenate(ours.decode(items)), theirs.predict(data, LENGTHS))
    before = ours.log_prob(items)
    assert_allclose(ours.fit(items).log_prob(items), before, rtol=1e-12, atol=1e-12)
    if data is SYMBOLS:  # free again, EM goes on from there
        assert ours.set_params(training__frozen=None).fit(items).log_prob(items).sum() > before.sum()


def test_hmmlearn_stands_in_a_table_as_it_is() -> None:
    theirs = hmm.CategoricalHMM(**OPTIONS).fit(SYMBOLS, LENGTHS)
    train, test = parts(SYMBOLS[:, 0]), [RNG.integers(0, 4, 20) for _ in range(6)]
    ours = sm.HMM(2, max_iter=3, length="given")
    frame = sm.compare({"theirs": sm.adapt.from_hmmlearn(theirs), "ours": ours}, train, test=test).frame
    scores = frame.set_index("model")["score"]
    expected = theirs.score(np.concatenate(test)[:, None], [20] * 6) / 120
    assert scores["theirs"] == pytest.approx(expected, rel=1e-10)


def test_what_is_no_fitted_hmm_of_hmmlearn_is_refused() -> None:
    with pytest.raises(ValueError, match="the GaussianHMM has no transmat_; fit it first"):
        sm.adapt.from_hmmlearn(hmm.GaussianHMM(2))
    with pytest.raises(ValueError, match="a SimpleNamespace is not known here"):
        sm.adapt.from_hmmlearn(SimpleNamespace(transmat_=np.eye(2), startprob_=[1, 0]))


# -- Pyro --------------------------------------------------------------------------------------------------------


def logits(*shape: int) -> torch.Tensor:
    return torch.as_tensor(np.random.default_rng(len(shape)).normal(size=shape))


POSITIVE = logits(3, 2).exp()
OBSERVATIONS: list[tuple[Any, Any]] = [
    (dist.Categorical(logits=logits(3, 4)), SYMBOLS[:9, 0]),
    (dist.Normal(logits(3, 2), POSITIVE).to_event(1), VECTORS[:9]),
    (dist.Normal(logits(3), 2.0), VECTORS[:9, 0]),
    (dist.MultivariateNormal(logits(3, 2), torch.eye(2).double() * 9 + 1), VECTORS[:9]),
    (dist.Poisson(POSITIVE).to_event(1), COUNTS[:9].astype(float)),
    (dist.Bernoulli(logits=logits(3, 2)).to_event(1), (COUNTS[:9] > 3).astype(float)),
]


@pytest.mark.parametrize(("observation", "x"), OBSERVATIONS, ids=lambda v: type(v).__name__)
def test_pyro_says_the_same_here(observation: Any, x: np.ndarray) -> None:
    theirs = dist.DiscreteHMM(logits(3), logits(3, 3), observation, duration=9)
    ours = sm.adapt.from_pyro(theirs)
    item = x[:, None] if x.ndim == 1 and x.dtype.kind == "f" else x
    assert_allclose(ours.log_prob([item]), float(theirs.log_prob(torch.as_tensor(x))), rtol=1e-10)


def test_what_is_no_homogeneous_hmm_of_pyro_is_refused() -> None:
    observation = OBSERVATIONS[0][0]
    for distribution, message in (
        (observation, "a Categorical is not known here"),
        (dist.DiscreteHMM(logits(3), logits(5, 3, 3), observation), r"the transition logits \(5, 3, 3\); pass one"),
        (dist.DiscreteHMM(logits(3), logits(3, 3), dist.Gamma(POSITIVE, 1.0).to_event(1)), "of Gamma are not known"),
        (dist.DiscreteHMM(logits(3), logits(3, 3), dist.Categorical(logits=logits(5, 3, 4))), r"batch shape \(5, 3\)"),
    ):
        with pytest.raises(ValueError, match=message):
            sm.adapt.from_pyro(distribution)


# -- dynamax -----------------------------------------------------------------------------------------------------


class Probs(NamedTuple):
    probs: Any


class Transitions(NamedTuple):
    transition_matrix: Any


def parameters(name: str, **emissions: Any) -> Any:
    """As dynamax has them: named tuples, whose classes say what the numbers are."""
    kind = type(f"Params{name}HMMEmissions", (SimpleNamespace,), {})
    initial, transition = np.array([0.5, 0.5], np.float32), np.array([[0.9, 0.1], [0.2, 0.8]], np.float32)
    return SimpleNamespace(initial=Probs(initial), transitions=Transitions(transition), emissions=kind(**emissions))


CHAIN: dict[str, Any] = {"initial": [0.5, 0.5], "transition": [[0.9, 0.1], [0.2, 0.8]]}
MEANS = np.array([[0.0, 1.0], [2.0, 3.0]])
COVARIANCES = np.array([[[2.0, 0.5], [0.5, 1.0]], [[1.0, 0.0], [0.0, 3.0]]])
BOTH, STACKED = np.stack([MEANS, MEANS + 1]), np.stack([COVARIANCES, COVARIANCES])
WEIGHTS, SCALES = np.array([[0.25, 0.75], [0.5, 0.5]]), np.array([[1.0, 2.0], [0.5, 3.0]])
FRAMES = [VECTORS[:5] / [1.0, 1e3]]
DYNAMAX: list[tuple[str, dict[str, Any], dict[str, Any], list[np.ndarray]]] = [
    (
        "Gaussian",
        {"means": MEANS, "covs": COVARIANCES},
        {"covariances": COVARIANCES, "covariance_type": "full"},
        FRAMES,
    ),
    ("DiagonalGaussian", {"means": MEANS, "scale_diags": SCALES}, {"covariances": SCALES**2}, FRAMES),
    (
        *("SphericalGaussian", {"means": MEANS, "scales": SCALES[:, 0]}),
        *({"covariances": SCALES[:, 0] ** 2, "covariance_type": "spherical"}, FRAMES),
    ),
    (
        *("SharedCovarianceGaussian", {"means": MEANS, "cov": COVARIANCES[0]}),
        *({"covariances": COVARIANCES[0], "covariance_type": "tied"}, FRAMES),
    ),
    (
        *("GaussianMixture", {"weights": WEIGHTS, "means": BOTH, "covs": STACKED}),
        *({"weights": WEIGHTS, "means": BOTH, "covariances": STACKED, "covariance_type": "full"}, FRAMES),
    ),
    (
        *("DiagonalGaussianMixture", {"weights": WEIGHTS, "means": BOTH, "scale_diags": np.stack([SCALES, SCALES])}),
        *({"weights": WEIGHTS, "means": BOTH, "covariances": np.stack([SCALES, SCALES]) ** 2}, FRAMES),
    ),
    ("Categorical", {"probs": WEIGHTS[:, None]}, {"emission": WEIGHTS}, [np.array([0, 1, 1])]),
    ("Poisson", {"rates": SCALES}, {"rates": SCALES}, [COUNTS[:5].astype(float)]),
    ("Bernoulli", {"probs": WEIGHTS}, {"probabilities": WEIGHTS}, [(COUNTS[:5] > 3).astype(float)]),
]


@pytest.mark.parametrize(("name", "theirs", "ours", "x"), DYNAMAX, ids=lambda v: v if isinstance(v, str) else "")
def test_parameters_of_dynamax_are_read(
    name: str, theirs: dict[str, Any], ours: dict[str, Any], x: list[np.ndarray]
) -> None:
    means = {"means": MEANS} if "covariances" in ours and "means" not in ours else {}
    expected = sm.HMM.from_parameters(**CHAIN, **means, **ours, dtype="float64")
    found = sm.adapt.from_dynamax(parameters(name, **theirs))
    assert_allclose(found.log_prob(x), expected.log_prob(x), rtol=1e-6)  # rows of float32


def test_other_parameters_are_refused() -> None:
    with pytest.raises(ValueError, match="a dict has no emissions"):
        sm.adapt.from_dynamax({})
    with pytest.raises(ValueError, match="emissions of 'Gamma' are not known here"):
        sm.adapt.from_dynamax(parameters("Gamma", rate=[1.0]))
    with pytest.raises(ValueError, match="2 categorical features"):
        sm.adapt.from_dynamax(parameters("Categorical", probs=np.full((2, 2, 3), 1 / 3)))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((f"{kind}GaussianHMM", {"emission_dim": 2}) for kind in ("", "Diagonal", "Spherical", "SharedCovariance")),
        *((f"{kind}GaussianMixtureHMM", {"emission_dim": 2, "num_components": 2}) for kind in ("", "Diagonal")),
        ("CategoricalHMM", {"emission_dim": 1, "num_classes": 4}),
        ("PoissonHMM", {"emission_dim": 2}),
        ("BernoulliHMM", {"emission_dim": 2}),
    ],
)
def test_dynamax_says_the_same_here(name: str, options: dict[str, int]) -> None:
    models = pytest.importorskip("dynamax.hidden_markov_model")
    from jax.random import PRNGKey

    theirs = getattr(models, name)(3, **options)
    values, _ = theirs.initialize(PRNGKey(0))
    _, x = theirs.sample(values, PRNGKey(1), 20)
    item = np.asarray(x)[:, 0] if name == "CategoricalHMM" else np.asarray(x, dtype=float)
    found = sm.adapt.from_dynamax(values).log_prob([item])[0]
    assert found == pytest.approx(float(theirs.marginal_log_prob(values, x)), abs=1e-3)
