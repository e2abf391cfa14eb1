from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from seqmodels.encodings.cells import Cells, ProductCells
from seqmodels.encodings.step_maps import StepMap

pytest.importorskip("pyro")

from seqmodels.generation.pyro_cells import CellDistribution

CELLS = ProductCells(
    (
        Cells(np.array([-1.0, 0.0, 2.0]), np.array([0.5, 3.0])),
        Cells(np.array([10.0]), np.array([1.0, 2.0])),
    )
)
LOG_P = torch.tensor([0.1, 0.05, 0.2, 0.05, 0.1, 0.3, 0.15, 0.05], dtype=torch.float64).log()
STEP = StepMap(np.array([[5.0, -1.0]]), np.array([[2.0, 0.1]]), cells=CELLS)


def test_a_prediction_has_the_moments_of_its_draws() -> None:
    predicted = CellDistribution(STEP, LOG_P)
    torch.manual_seed(0)
    drawn = predicted.sample((100_000,))
    assert drawn.shape == (100_000, 2)
    deviation = predicted.variance.sqrt()
    assert_allclose((drawn.mean(0) - predicted.mean) / deviation, 0, atol=5 / np.sqrt(100_000))
    assert_allclose(drawn.var(0), predicted.variance, rtol=0.05)
    assert predicted.sample().shape == (2,)


def test_its_density_by_hand() -> None:
    predicted = CellDistribution(STEP, LOG_P)
    z = np.array([[1.0, 12.0], [-2.0, 9.0]])
    by_hand = [0.3 / 2 * np.exp(-1.0) / 2, 0.1 * np.exp(-2.0) / 0.5 * np.exp(-1.0)]
    x = torch.as_tensor(STEP.shift + STEP.scale * z)
    assert_allclose(predicted.log_prob(x), np.log(by_hand) - np.log(0.2), rtol=1e-12)
    assert_allclose(predicted.log_prob(x[0]), np.log(by_hand[0] / 0.2), rtol=1e-12)


def test_after_a_logarithm_nothing_is_below_zero_and_moments_have_no_closed_form() -> None:
    predicted = CellDistribution(StepMap(STEP.shift, STEP.scale, np.zeros(2), cells=CELLS), LOG_P)
    x = torch.tensor([[2.0, 1.0], [-1.0, 1.0]], dtype=torch.float64)
    linear = CellDistribution(STEP, LOG_P).log_prob(x[0].log())
    assert_allclose(predicted.log_prob(x), [float(linear) - np.log(2.0), -np.inf], rtol=1e-12)
    assert (predicted.sample((100,)) > 0).all()
    with pytest.raises(NotImplementedError, match="no closed form"):
        _ = predicted.mean
