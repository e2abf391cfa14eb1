"""Each feature given the others: the joint over what is left when the feature is integrated, or summed, out."""

import numpy as np
import pytest
import torch

import seqmodels as sm
from seqmodels.generation import Prediction
from seqmodels.observations.base import Observation

GRID = torch.linspace(-40, 40, 8001, dtype=torch.float64)
VALUES = {"reals": GRID, "bits": torch.tensor([0.0, 1.0]), "counts": torch.arange(300.0)}

OBSERVATIONS = [
    *(sm.GaussianMixture(3, covariance) for covariance in ("diag", "spherical", "full", "tied")),
    sm.GaussianMixture(2, "lowrank", rank=2),
    sm.AutoregressiveGaussian(2),
    sm.GaussianMixture(2, background=0.2),
    sm.GaussianMixture(1, "full", background=0.2),
    sm.AutoregressiveGaussian(1, "diag"),
    sm.Bernoulli(),
    sm.Poisson(),
    sm.Chords(5),
    sm.Columns([(sm.GaussianMixture(2, "full"), 2), (sm.Bernoulli(), 1)]),
    sm.Columns([(sm.AutoregressiveGaussian(1), 2), (sm.Poisson(), 1)]),
]


def prediction_of(observation: Observation, size: int) -> tuple[Prediction, torch.Tensor]:
    """Two components, as an HMM's states are, at random; and a step of each of two sequences."""
    generator = torch.Generator().manual_seed(1)
    shared = observation.shared(size)
    if shared is not None:
        observation = observation.bound(shared.double())
    numbers = 0.5 * torch.randn(2, 2, observation.n_output_parameters(size), generator=generator, dtype=torch.float64)
    weights = torch.tensor([[0.3, 0.7], [0.9, 0.1]], dtype=torch.float64).log()
    past = torch.randn(2, observation.n_past, size, generator=generator, dtype=torch.float64)
    x = torch.randn(2, size, generator=generator, dtype=torch.float64)
    for d, kind in enumerate(observation.values(size)):
        x[:, d] = x[:, d] if kind == "reals" else (x[:, d] > 0).double()
    return Prediction(observation, numbers, weights, past if observation.n_past else None, None), x


@pytest.mark.parametrize("observation", OBSERVATIONS, ids=repr)
def test_features_given_the_others(observation):
    prediction, x = prediction_of(observation, 3)
    conditionals = prediction.full_conditionals(x)
    joint = prediction.log_prob(x)
    for d, kind in enumerate(prediction.observation.values(3)):
        values = VALUES[kind].double()
        log_probs = torch.stack([with_each_value(prediction, x, i, d, values) for i in range(2)], 1)
        if kind == "reals":
            others = torch.trapezoid(log_probs.exp(), values, dim=0).log()
        else:
            others = torch.logsumexp(log_probs, 0)
        torch.testing.assert_close(conditionals[:, d], joint - others, rtol=1e-6, atol=1e-6)


def with_each_value(prediction, x, i, d, values):
    """``(len(values),)`` log-probability of row i with each value of feature d."""
    rows = [i] * len(values)
    past = None if prediction.past is None else prediction.past[rows]
    changed = x[rows]
    changed[:, d] = values
    many = Prediction(
        prediction.observation, prediction.output_parameters[rows], prediction.log_weights[rows], past, None
    )
    return many.log_prob(changed)


def with_value(x, d, value):
    changed = x.clone()
    changed[:, d] = value
    return changed


@pytest.mark.parametrize("covariance", ["diag", "full", "lowrank"])
def test_missing_features_are_summed_out(covariance):
    prediction, x = prediction_of(sm.GaussianMixture(2, covariance), 3)
    x[0, 1] = torch.nan
    conditionals = prediction.full_conditionals(x)
    assert abs(conditionals[0, 1]) < 1e-15
    without = with_value(x, 0, torch.nan)
    torch.testing.assert_close(conditionals[0, 0], (prediction.log_prob(x) - prediction.log_prob(without))[0])


@pytest.mark.parametrize("covariance", ["diag", "full"])
def test_an_extreme_feature_leaves_the_others_their_digits(covariance):
    """In float32, one feature 10^6 deviations away."""
    observation = sm.GaussianMixture(1, covariance)
    table = torch.zeros(1, 1, observation.n_output_parameters(3))
    extreme = torch.tensor([[1e6, 0.5, -0.5]])
    found = Prediction(observation, table, None, None, None).full_conditionals(extreme)
    expected = -0.5 * (np.log(2 * np.pi) + np.array([[1e12, 0.25, 0.25]]))
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_given_an_impossible_feature_there_is_no_probability():
    table = torch.tensor([[[torch.inf, 0.0, -torch.inf]]])
    found = Prediction(sm.Bernoulli(), table, None, None, None).full_conditionals(torch.tensor([[1.0, 1.0, 1.0]]))
    torch.testing.assert_close(found[0], torch.tensor([torch.nan, torch.nan, -torch.inf]).double(), equal_nan=True)


def test_a_density_that_does_not_know_is_refused():
    class Own(Observation):
        emits = "vectors"

        def n_output_parameters(self, size):
            return size

        def log_prob(self, output_parameters, x, past=None):
            return -(x - output_parameters).abs().sum(-1)

        def sample(self, output_parameters, past, generator):
            return output_parameters

    assert not Own().has_full_conditionals(2)
    assert not sm.Categorical().has_full_conditionals(2)
    with pytest.raises(ValueError, match="does not know its density without"):
        Own().full_conditionals(torch.zeros(2), torch.zeros(2))
