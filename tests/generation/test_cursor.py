from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from seqmodels.generation import Decoding, Prediction, source_of_each, stacked_sources
from seqmodels.generation.decoding import draw
from seqmodels.observations import AutoregressiveGaussian, Categorical, GaussianMixture
from tests.generation.markov import CHAIN, FIRST, IDENTITY, seeded


def mixture(log_end: Tensor | None) -> Prediction:
    tables = torch.stack([FIRST, CHAIN[0]]).log().expand(2, -1, -1)  # (n, K, V)
    weights = torch.tensor([[0.25, 0.75], [1.0, 0.0]], dtype=torch.float64)  # as an HMM's belief
    return Prediction(Categorical(), tables, weights.log(), None, log_end)


def test_a_prediction_is_a_mixture_that_may_end() -> None:
    x = torch.tensor([1, 2])
    expected = torch.tensor([0.25 * 0.3 + 0.75 * 0.6, 0.5], dtype=torch.float64)
    torch.testing.assert_close(mixture(None).log_prob(x).exp(), expected)
    ends = torch.tensor([0.1, 0.0], dtype=torch.float64)
    torch.testing.assert_close(mixture(ends.log()).log_prob(x).exp(), expected * (1 - ends))


def test_as_a_distribution_the_end_is_the_last_category() -> None:
    probs = mixture(None).as_distribution(*IDENTITY).probs
    torch.testing.assert_close(probs, 0.25 * FIRST + 0.75 * CHAIN[0])
    ended = mixture(torch.tensor([0.1, 0.0], dtype=torch.float64).log()).as_distribution(*IDENTITY).probs
    torch.testing.assert_close(ended, torch.cat([0.9 * probs, torch.tensor([0.1])]).double(), rtol=0, atol=1e-7)


@pytest.mark.parametrize(
    "observation", [GaussianMixture(2, "diag"), GaussianMixture(2, "full"), AutoregressiveGaussian(2)]
)
def test_a_step_in_float64_meets_parameters_in_float32(observation: GaussianMixture | AutoregressiveGaussian) -> None:
    output_parameters = torch.randn(1, 3, observation.n_output_parameters(2), generator=seeded())
    past = torch.randn(1, 2, 2, generator=seeded(1)) if observation.n_past else None
    prediction = Prediction(observation, output_parameters, torch.full((1, 3), 1 / 3).double().log(), past, None)
    x, shift, scale = torch.tensor([[0.3, -0.4]]), torch.tensor([5.0, -1.0]), torch.tensor([2.0, 0.5])
    found = prediction.log_prob(x.double())
    torch.testing.assert_close(found, prediction.log_prob(x))
    raw = prediction.as_distribution(shift, scale).log_prob(shift + scale * x[0])
    torch.testing.assert_close(raw.double(), (found - scale.log().sum())[0], rtol=0, atol=1e-5)


def test_a_draw_picks_a_component_and_then_a_value() -> None:
    prediction = mixture(None)
    many = Prediction(
        Categorical(),
        prediction.output_parameters[:1].expand(20_000, -1, -1),
        prediction.log_weights[:1].expand(20_000, -1),
        None,
        None,
    )
    shares = torch.bincount(draw(many, Decoding(), seeded()).x, minlength=3) / 20_000
    torch.testing.assert_close(shares, 0.25 * FIRST + 0.75 * CHAIN[0], rtol=0, atol=0.015)


def test_stacked_sources() -> None:
    one, two = np.array([[1.0, 2.0]]), np.array([[3.0, 4.0]])
    assert stacked_sources(None, 3) is None
    np.testing.assert_array_equal(stacked_sources(one, 3), [one] * 3)
    np.testing.assert_array_equal(stacked_sources([one, two], 2), [one, two])
    with pytest.raises(ValueError, match=r"2 sources of \[1\] steps for 3 sequences"):
        stacked_sources([one, two], 3)
    with pytest.raises(ValueError, match=r"\[1, 2\] steps"):
        stacked_sources([one, np.ones((2, 2))], 2)


def test_source_of_each() -> None:
    one, two = np.array([1, 2]), np.array([3])
    assert source_of_each(None, 2) == [None, None]
    assert source_of_each(one, 2) == [one, one]
    assert source_of_each([one, two], 2) == [one, two]
    with pytest.raises(ValueError, match="2 sources for 3 sequences"):
        source_of_each([one, two], 3)
