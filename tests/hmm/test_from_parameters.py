"""Bits and counts by their parameters, ``HMM.from_parameters``; vectors and symbols are in ``test_hmm_model``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.stats
from numpy.testing import assert_allclose

from seqmodels import HMM, Bernoulli, GaussianMixture, Poisson
from seqmodels.encodings import Features
from tests.hmm.inference.enumeration import enumerate_paths

CHAIN: dict[str, Any] = {"initial": [0.3, 0.7], "transition": [[0.9, 0.1], [0.2, 0.8]]}
PROBABILITIES, RATES = np.array([[0.1, 0.5, 1.0], [0.8, 0.3, 0.25]]), np.array([[0.5, 4.0], [7.0, 0.0]])
BITS, COUNTS = np.array([[0, 1, 1], [1, 0, 1], [1, 1, 0]]), np.array([[1, 3], [6, 0], [0, 0], [9, 0]])
CASES = [
    ("probabilities", PROBABILITIES, BITS, scipy.stats.bernoulli.pmf, Bernoulli),
    ("rates", RATES, COUNTS, scipy.stats.poisson.pmf, Poisson),
]


@pytest.mark.parametrize(("name", "values", "x", "pmf", "observation"), CASES, ids=["bits", "counts"])
@pytest.mark.parametrize("final", [None, [0.05, 0.1]])
def test_the_likelihood_is_scipys_summed_over_paths(
    name: str, values: np.ndarray, x: np.ndarray, pmf: Any, observation: type, final: list[float] | None
) -> None:
    step = np.array(CHAIN["transition"]) * (1 - np.array(final or [0, 0]))[:, None]
    model = HMM.from_parameters(CHAIN["initial"], step, final, **{name: values}, dtype="float64")
    b = np.stack([pmf(x, row).prod(1) for row in values], axis=1)  # (T, K)
    end = None if final is None else np.array(final)
    expected = enumerate_paths(np.array(CHAIN["initial"]), step, b, end)
    frames = x.astype(float)
    assert_allclose(model.log_prob([frames])[0], expected.log_prob, rtol=1e-12)
    assert model.decode([frames])[0].tolist() == list(expected.best_path)
    assert_allclose(getattr(model, f"{name}_"), values, atol=1e-12)
    assert isinstance(model.observation_, observation)


@pytest.mark.parametrize(("name", "values", "x", "pmf", "observation"), CASES, ids=["bits", "counts"])
def test_a_fitted_model_is_its_parameters_and_goes_on(
    name: str, values: np.ndarray, x: np.ndarray, pmf: Any, observation: Any
) -> None:
    data = [x.astype(float), x[::-1].astype(float)]
    emits, options = observation(pseudocount=0.5), {"dtype": "float64", "max_iter": 2, "tol": 0, "start": "free"}
    fitted = HMM(2, observation=emits, **options).fit(data)
    table = {name: getattr(fitted, f"{name}_")}
    again = HMM.from_parameters(
        fitted.initial_, fitted.transition_, **table, observation=emits, warm_start=True, **options
    )
    assert_allclose(again.log_prob(data), fitted.log_prob(data), rtol=1e-10)
    assert again.measure_ == fitted.measure_
    further = fitted.set_params(warm_start=True).fit(data)
    assert_allclose(getattr(again.fit(data), f"{name}_"), getattr(further, f"{name}_"), rtol=1e-8)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            {"probabilities": [[0.5], [1.5]]},
            "probabilities must be numbers from 0 to 1.0, finite; they go from 0.5 to 1.5",
        ),
        ({"rates": [[1.0], [-1.0]]}, "rates must be numbers from 0 to inf"),
        ({"rates": [[1.0], [np.inf]]}, "finite"),
        ({"probabilities": [0.5, 0.5]}, r"probabilities have shape \(2,\); pass \(2, D\)"),
        ({"rates": [[1.0]]}, r"rates have shape \(1, 1\)"),
        (
            {"rates": [[1.0], [1.0]], "probabilities": [[0.5], [0.5]]},
            "probabilities and rates are parameters of different",
        ),
        ({"rates": [[1.0], [1.0]], "means": [[0.5], [0.5]]}, "rates and means are parameters of different"),
        ({"rates": [[1.0], [1.0]], "observation": Bernoulli()}, "rates belong to a Poisson observation"),
        ({"probabilities": [[0.5], [0.5]], "observation": GaussianMixture(1)}, "belong to a Bernoulli"),
        (
            {
                "probabilities": [[0.5], [0.5]],
                "encoding": Features("counts").restore({"mean": np.zeros(1), "scale": np.ones(1)}),
            },
            "leave enc",
        ),
    ],
)
def test_what_cannot_be_is_refused(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        HMM.from_parameters(**CHAIN, **given)


def test_data_of_another_kind_are_refused() -> None:
    with pytest.raises(ValueError, match="must be 0 or 1"):
        HMM.from_parameters(**CHAIN, probabilities=PROBABILITIES).score([np.full((3, 3), 2.0)])
