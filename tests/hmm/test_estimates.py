"""What is estimated of each observation, and that it is what the model's attributes say, in raw units."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

import seqmodels as sm
from seqmodels.hmm.coordinates import Coordinates
from seqmodels.hmm.estimates import free_logits
from seqmodels.observations import PseudoFrames
from tests.hmm.test_standard_errors import BITS, COUNTS, VECTORS
from tests.made import made

OBSERVATIONS: list[tuple[Any, Any]] = [
    (sm.GaussianMixture(2), VECTORS),
    (sm.GaussianMixture(1, prior=PseudoFrames(10), background=0.01), VECTORS),
    (sm.GaussianMixture(2, covariance_type="spherical"), VECTORS),
    (sm.GaussianMixture(1, covariance_type="full"), VECTORS),
    (sm.GaussianMixture(1, covariance_type="tied"), VECTORS),
    (sm.AutoregressiveGaussian(2), VECTORS),
    (sm.AutoregressiveGaussian(1, covariance_type="diag"), VECTORS),
    (sm.Poisson(), COUNTS),
    (sm.Bernoulli(), BITS),
    (sm.Categorical(), [np.array([0, 1, 2, 1, 0, 0, 2, 2, 1] * 9)]),
]


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize(("observation", "x"), OBSERVATIONS, ids=[repr(each) for each, _ in OBSERVATIONS])
@pytest.mark.filterwarnings("ignore:the parameters are not at the maximum", "ignore:the best start")
def test_estimates_are_the_models_attributes(observation: Any, x: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    n_free: list[int] = []
    estimates = Coordinates.estimates

    def noted(self: Coordinates) -> list[Any]:
        n_free.append(self.n)
        seen.extend(estimates(self))
        return estimates(self)

    monkeypatch.setattr(Coordinates, "estimates", noted)
    model = sm.HMM(2, observation=observation, max_iter=3, n_init=1, start="free").fit(x)
    frame = model.standard_errors(x)
    values = [getattr(model, f"{each.name}_")[each.index] for each in seen]
    assert_allclose(frame["estimate"], values, rtol=1e-12)
    assert not frame.duplicated(["name", "state", "feature"]).any()
    if frame["note"].eq("").all() and not isinstance(
        observation, sm.AutoregressiveGaussian
    ):  # whose first steps are no estimates
        assert n_free == [model.n_parameters_]


GIVEN_INPUTS = [sm.GaussianMixture(1), sm.GaussianMixture(1, "full"), sm.AutoregressiveGaussian(1), sm.Poisson()]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("observation", [*GIVEN_INPUTS, sm.Bernoulli(), sm.Categorical()], ids=repr)
@pytest.mark.filterwarnings("ignore:the parameters are not at the maximum", "ignore:the best start")
def test_estimates_given_inputs_are_the_models_attributes(observation: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    n_free: list[int] = []
    estimates = Coordinates.estimates

    def noted(self: Coordinates) -> list[Any]:
        n_free.append(self.n)
        seen.extend(estimates(self))
        return estimates(self)

    monkeypatch.setattr(Coordinates, "estimates", noted)
    x = {repr(each): data for each, data in OBSERVATIONS}.get(repr(observation), VECTORS)
    rng = np.random.default_rng(0)
    given = sm.Sequences(x, inputs=[5 + rng.normal(size=(len(item), 2)) for item in x], input_names=["a", "b"])
    which: dict[str, Any] = {"input_effects__transitions": ["b"], "input_effects__emissions": True, "length": "given"}
    model = made(sm.HMM, 2, observation=observation, max_iter=3, n_init=1, start="uniform", **which).fit(given)
    frame = model.standard_errors(given)
    values = [getattr(model, f"{each.name}_")[each.index] for each in seen]
    assert_allclose(frame["estimate"], values, rtol=1e-9, atol=1e-12)
    assert not frame.duplicated(["name", "state", "feature"]).any()
    slopes = frame.groupby("name").size()
    n_emitted = 2 if isinstance(observation, sm.Categorical) else len(x[0][0])
    assert (slopes["transition_slopes"], slopes["emission_slopes"]) == (2, 2 * 2 * n_emitted)
    if frame["note"].eq("").all() and not isinstance(observation, sm.AutoregressiveGaussian):
        assert n_free == [model.n_parameters_]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        frozen = model.set_params(training__frozen=sm.hmm.Frozen(transition=[0], emission=[1])).standard_errors(given)
    assert set(frozen.loc[frozen["name"] == "transition_slopes", "state"]) == {1}
    assert set(frozen.loc[frozen["name"] == "emission_slopes", "state"]) == {0}


def test_what_is_frozen_is_no_estimate() -> None:
    model = sm.HMM(2, observation=sm.GaussianMixture(1), max_iter=2, n_init=1, start="free").fit(VECTORS)
    for frozen, names in (
        (["transition"], {"initial", "means", "covariances"}),
        (["initial", "emission"], {"transition"}),
        (sm.hmm.Frozen(initial=True, transition=[0], emission=[1]), {"transition", "means", "covariances"}),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            frame = model.set_params(training__frozen=frozen).standard_errors(VECTORS)
        assert set(frame["name"]) == names
    assert set(frame.loc[frame["name"] == "transition", "state"]) == {1}
    assert set(frame.loc[frame["name"] == "means", "state"]) == {0}


def test_of_a_distribution_all_logits_but_the_largest_and_those_on_the_boundary_are_free() -> None:
    p = torch.tensor([[0.2, 0.5, 0.3, 0.0], [1e-4, 0.4, 0.0, 0.6 - 1e-4], [1 - 1e-4, 1e-4, 0.0, 0.0]])
    free = free_logits(p, 1e-3).tolist()
    assert free == [[True, False, True, False], [False, True, False, False], [False] * 4]
