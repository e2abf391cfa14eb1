from __future__ import annotations

import numpy as np
from numpy.testing import assert_allclose

from seqmodels.encodings.step_maps import (
    ConstantEncoder,
    StepMap,
    decoded_after,
    inverse_power,
    log_slope,
    power,
    repeated,
)

POWERS = np.array([0.0, 0.5, 1.0, 2.0])
X = np.random.default_rng(0).uniform(0.1, 9.0, size=(5, 4))


def test_a_power_is_undone_and_has_the_slope_that_it_says() -> None:
    assert_allclose(inverse_power(power(X, POWERS), POWERS), X, rtol=1e-12)
    e = 1e-6
    assert_allclose(np.exp(log_slope(X, POWERS)), (power(X + e, POWERS) - power(X - e, POWERS)) / (2 * e), rtol=1e-6)
    negative = -X[:, 1:]
    assert_allclose(inverse_power(power(negative, POWERS[1:]), POWERS[1:]), negative, rtol=1e-12)


def test_one_map_after_another_is_both() -> None:
    first = StepMap(np.full((5, 4), 0.3), np.full((5, 4), 2.0), POWERS)
    second = StepMap(np.full((5, 4), -1.0), np.full((5, 4), 0.5), is_modelled=False)
    both = second.after(first)
    assert_allclose(both.encode(X), second.encode(first.encode(X)), rtol=1e-12)
    assert_allclose(both.decode(both.encode(X)), X, rtol=1e-12)
    assert_allclose(both.log_det(X), first.log_det(X) + second.log_det(first.encode(X)), rtol=1e-12)
    assert not both.is_modelled


def test_a_missing_value_has_no_determinant() -> None:
    step, x = StepMap(np.zeros((1, 4)), np.full((1, 4), 3.0), POWERS), X[:1].copy()
    whole = step.log_det(x)
    x[0, 1] = np.nan
    assert_allclose(whole - step.log_det(x), log_slope(X[:1, 1], POWERS[1]) - np.log(3))


def test_rows_are_decoded_each_after_its_own_past() -> None:
    constant = ConstantEncoder(StepMap(np.array([[1.0]]), np.array([[2.0]])))
    z = np.arange(6.0).reshape(3, 2, 1)
    assert_allclose(decoded_after(repeated(constant, 3), z), 1 + 2 * z)
