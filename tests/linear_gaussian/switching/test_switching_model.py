"""``SwitchingLinearGaussian`` as a model: what its figures are, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import seqmodels as sm
from seqmodels.linear_gaussian import SwitchingLinearGaussian
from tests.linear_gaussian.switching.enumerated import enumerated, random_parameters

S, K, D = 2, 2, 2


def model_of(seed: int, **options: Any) -> SwitchingLinearGaussian:
    p = random_parameters(seed, S, K, D, full=False)
    return SwitchingLinearGaussian.from_parameters(
        *(p.initial, p.regime_transition, p.transition, p.state_covariance, p.observation),
        *(p.observation_covariance, p.initial_mean, p.initial_covariance),
        drift=p.drift,
        intercept=p.intercept,
        **options,
    )


def drawn(n: int, length: int, seed: int = 0) -> list[np.ndarray]:
    return model_of(1).sample(n, length=length, random_state=seed)


def test_exact_bound_and_estimate_of_one_sequence() -> None:
    x = drawn(5, 7)
    model = model_of(1)
    exact = np.array([enumerated(model.parameters_, each).log_prob for each in x])
    assert_allclose(model.set_params(n_particles=S**7).log_prob(x), exact, rtol=1e-11)
    assert (model.bound(x) < exact).all()
    few = model_of(1, n_particles=8)
    error = few.score_error(x) * 35
    assert 0 < error < 1
    assert abs(few.log_prob(x).sum() - exact.sum()) < 4 * error
    bound = model_of(1, likelihood="bound")
    assert_allclose(bound.log_prob(x), model.bound(x), rtol=1e-10)
    assert (few.measure_.kind, bound.measure_.kind) == ("estimate", "bound")
    assert bound.score_error(x) == 0


@pytest.mark.slow
def test_the_standard_error_is_that_of_other_seeds() -> None:
    x, error, found = drawn(6, 40, 3), [], []
    for seed in range(40):
        model = model_of(1, n_particles=4, random_state=seed)
        found.append(model.score(x))
        error.append(model.score_error(x))
    assert np.sqrt(np.mean(np.square(error))) == pytest.approx(np.std(found, ddof=1), rel=0.35)
    more = model_of(1, n_particles=400).score(x)
    assert np.mean(found) < more  # the logarithm of what is unbiased


def test_regimes_are_decoded_filtered_and_smoothed() -> None:
    x = drawn(3, 6)
    model = model_of(1, n_particles=S**6)
    known = [enumerated(model.parameters_, each) for each in x]
    for found, each in zip(model.decode(x), known, strict=True):
        assert_array_equal(found, each.best)
    for found, each in zip(model.posterior(x), known, strict=True):
        assert_allclose(found, each.regimes, atol=1e-10)
    stream = model.stream()
    for step, expected in zip(x[0], model.filter_regimes(x[:1])[0], strict=True):
        stream.update(step)
        assert_allclose(stream.filtered, expected, atol=1e-10)


@pytest.mark.slow
def test_what_is_drawn_is_likelier_than_under_other_parameters() -> None:
    x, other = drawn(40, 30, 7), model_of(2)
    true = model_of(1)
    assert true.score(x) > other.score(x) + 0.1
    own = other.sample(40, length=30, random_state=7)
    assert other.score(own) > true.score(own) + 0.1


def test_a_saved_model_keeps_its_figures_and_a_warm_start_goes_on(tmp_path: Path) -> None:
    x = drawn(8, 20)
    model = SwitchingLinearGaussian(2, 1, max_iter=5, tol=0, switching="both", particle_steps=0).fit(x)
    model.save(tmp_path / "model")
    loaded = sm.load(tmp_path / "model")
    assert isinstance(loaded, SwitchingLinearGaussian)
    assert_allclose(loaded.log_prob(x), model.log_prob(x), rtol=1e-12)
    assert_array_equal(loaded.decode(x)[0], model.decode(x)[0])
    before = model.bound(x).sum()
    model.set_params(warm_start=True).fit(x)
    assert model.bound(x).sum() > before


def test_a_table_compares_it_with_a_system_and_says_that_it_is_an_estimate() -> None:
    x = drawn(14, 15)
    models = {"one": sm.LinearGaussian(1, max_iter=5), "two": SwitchingLinearGaussian(2, 1, max_iter=5)}
    frame = sm.compare(models, x[:8], test=x[8:], baseline="one").frame.set_index("model")
    assert frame.loc["two", "kind"] == "estimate"
    assert frame.loc["two", "score_error"] >= 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_regimes": 0}, "n_regimes is 0"),
        ({"n_particles": 0}, "n_particles is 0"),
        ({"switching": "noise"}, "switching is 'noise'; pass one of 'dynamics'"),
        ({"likelihood": "exact"}, "likelihood is 'exact'"),
        ({"observation_noise": "none"}, "observation_noise is 'none'"),
        ({"length": "stop"}, "says nothing of ends"),
        ({"max_seconds": 0.0}, "max_seconds is 0"),
        ({"min_covariance": 0.0}, "min_covariance is 0"),
        ({"observation": sm.GaussianMixture(1)}, "leave it 'auto'"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SwitchingLinearGaussian(**options).fit([np.random.default_rng(0).normal(size=(9, 2))])


def test_parameters_that_cannot_be_are_refused() -> None:
    good: dict[str, Any] = {
        **{"initial": [0.5, 0.5], "regime_transition": 0.5 * np.ones((2, 2)), "transition": [[0.5]]},
        **{"state_covariance": [[1.0]], "observation_matrix": [[1.0]], "observation_covariance": [[1.0]]},
    }
    SwitchingLinearGaussian.from_parameters(**good)
    for wrong, message in (
        ({"initial": [0.5, 0.6]}, "sum to 1"),
        ({"observation_covariance": [[0.0]]}, "singular"),
        ({"state_covariance": [[-1.0]]}, "eigenvalue"),
        ({"regime_transition": np.ones((3, 3)) / 3}, "regime_transition has shape"),
        ({"transition": [[2.0]]}, "no distribution is stationary"),
        ({"transition": 0.5}, "too flat"),
    ):
        with pytest.raises(ValueError, match=message):
            SwitchingLinearGaussian.from_parameters(**{**good, **wrong})


def test_a_frame_has_the_regime_and_its_probability_at_every_step() -> None:
    model, (x, *_) = model_of(0), drawn(1, 8)
    frame = model.decode_frame([x], state_names=["slow", "fast"])
    (path,), (posterior,) = model.decode([x]), model.posterior([x])
    assert frame.columns.tolist() == ["sequence", "name", "position", "state", "probability"]
    assert frame["state"].tolist() == [("slow", "fast")[regime] for regime in path]
    assert frame["probability"].tolist() == posterior[np.arange(8), path].tolist()
