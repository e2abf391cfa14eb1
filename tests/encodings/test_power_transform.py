from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

import seqmodels as sm
from seqmodels.encodings import BoxCox, Chain, Log
from seqmodels.encodings.power_transform import most_probable_power

DECADES = np.exp(np.random.default_rng(0).normal(2.0, 0.5, size=(300, 1)))


def test_a_gaussian_of_logarithms_is_a_log_normal_density() -> None:
    chain = Chain([Log(), sm.Standardize()])
    model = sm.HMM(1, observation=sm.GaussianMixture(1), encoding=chain, dtype="float64").fit([DECADES])
    logs = np.log(DECADES)
    expected = stats.lognorm.logpdf(DECADES[:, 0], logs.std(), scale=np.exp(logs.mean()))
    assert_allclose(model.log_prob_steps([DECADES])[0], expected, atol=1e-9)
    pytest.importorskip("pyro")
    predicted = model.predict_next(DECADES[:3])
    assert_allclose(float(predicted.log_prob(np_tensor(DECADES[3]))), expected[3], atol=1e-9)
    assert float(predicted.log_prob(np_tensor([-1.0]))) == -np.inf


def np_tensor(values: object) -> object:
    import torch

    return torch.as_tensor(np.asarray(values, dtype=np.float64))


@pytest.mark.parametrize("lmbda", [0.0, 0.3, 1.0, 1.6])
def test_densities_integrate_to_one_over_all_reals(lmbda: float) -> None:
    chain = Chain([BoxCox(lmbda), sm.Standardize()])
    model = sm.HMM(2, encoding=chain, dtype="float64", n_init=1, max_iter=3).fit([DECADES])
    h = np.linspace(-40, 40, 801)  # deviations of the transformed values, in equal steps
    shift, scale = model.encoding_.affine()
    transformed = h * scale + shift
    x = (
        np.exp(transformed)
        if lmbda == 0
        else np.sign(1 + lmbda * transformed) * np.abs(1 + lmbda * transformed) ** (1 / lmbda)
    )
    log_prob = np.array(model.log_prob([np.array([[each]]) for each in x]))
    slope = scale * (x if lmbda == 0 else np.abs(x) ** (1 - lmbda))  # dx/dh
    assert abs(np.trapezoid(np.exp(log_prob) * slope, h) - 1) < 1e-9


def test_the_most_probable_power_is_that_of_scipy_and_has_no_unit() -> None:
    squares = np.random.default_rng(1).normal(8, 1.5, size=500) ** 2
    _, expected = stats.boxcox(squares)
    assert abs(most_probable_power(squares) - expected) < 1e-4
    assert abs(most_probable_power(1e6 * squares) - most_probable_power(squares)) < 1e-5
    assert most_probable_power(np.exp(np.arange(9.0) ** 3)) == 0.0  # below 0 it would be better still
    assert most_probable_power(np.full(5, 2.0)) == 1.0


def test_each_feature_has_its_own_power() -> None:
    z = np.random.default_rng(2).normal(8, 1, size=(400, 1))
    encoding = BoxCox().fit(sm.Sequences([np.concatenate([z**2, np.exp(z)], axis=1)]))
    assert_allclose(encoding.powers, [0.5, 0.0], atol=0.25)
    x = np.array([[9.0, np.nan]])
    expected = (encoding.powers[0] - 1) * np.log(9)
    assert_allclose(encoding.of_each_frame(x), [expected])
    assert np.isnan(encoding.encode(x)[0, 1])


def test_values_that_are_not_positive_are_refused() -> None:
    with pytest.raises(ValueError, match=r"sequence 1 has -2 at frame 0, feature 0, but Log\(\) needs positive values"):
        Log().fit(sm.Sequences([np.array([[1.0]]), np.array([[-2.0]])]))
    with pytest.raises(ValueError, match="has 0 at frame 1"):
        BoxCox().fit(sm.Sequences([np.array([[1.0], [0.0]])]))
    with pytest.raises(ValueError, match="has -1 at frame 0"):
        Log().fit(sm.Sequences([DECADES])).check(0, np.array([[-1.0]]))
    half = BoxCox(0.5).fit(sm.Sequences([DECADES]))
    half.check(0, np.array([[-1.0]]))  # a draw may be negative
    with pytest.raises(ValueError, match="has 0 at frame 0"):
        half.check(0, np.array([[0.0]]))
    with pytest.raises(ValueError, match="lmbda"):
        sm.HMM(1, encoding=BoxCox(-1.0)).fit([DECADES])


def test_a_file_keeps_the_powers() -> None:
    encoding = BoxCox().fit(sm.Sequences([DECADES]))
    assert_array_equal(BoxCox().restore(encoding.state()).encode(DECADES), encoding.encode(DECADES))
    with pytest.raises(ValueError, match="'powers' has -1"):
        BoxCox().restore({"powers": np.array([-1.0])})
