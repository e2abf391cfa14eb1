from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from seqmodels import (
    HMM,
    LSTM,
    Bernoulli,
    Columns,
    Features,
    GaussianMixture,
    IncomparableError,
    Poisson,
    Sequences,
    Standardize,
)
from seqmodels.measure import check_comparable
from seqmodels.preparation import default_encoding

MIXED = np.array([[1.0, 10.0, 0.0, 3.0], [3.0, np.nan, 1.0, 0.0], [2.0, 30.0, np.nan, 7.0]])
KINDS: Any = ["reals", "reals", "bits", "counts"]


def test_reals_are_standardised_and_whole_numbers_are_not() -> None:
    encoding, reals = Features(KINDS).fit(Sequences([MIXED])), Standardize().fit(Sequences([MIXED[:, :2]]))
    np.testing.assert_array_equal(encoding.encode(MIXED)[:, :2], reals.encode(MIXED[:, :2]))
    np.testing.assert_array_equal(encoding.encode(MIXED)[:, 2:], MIXED[:, 2:])
    np.testing.assert_allclose(encoding.decode(encoding.encode(MIXED)), MIXED)
    np.testing.assert_allclose(encoding.log_det(MIXED), reals.log_det(MIXED[:, :2]))
    assert encoding.values() == ("reals", "reals", "bits", "counts")
    np.testing.assert_array_equal(Features("bits").fit(Sequences([MIXED[:, 2:3]])).log_det(MIXED[:, 2:3]), 0.0)


def test_a_constant_bit_is_no_trouble_and_a_constant_real_is() -> None:
    constant = MIXED.copy()
    constant[:, 2] = 1.0
    assert Features(KINDS).fit(Sequences([constant])).size == 4
    constant[:, 0] = 1.0
    with pytest.raises(ValueError, match="feature 0 is constant"):
        Features(KINDS).fit(Sequences([constant]))
    constant[:, 3] = np.nan
    with pytest.raises(ValueError, match="feature 3 is missing in every frame"):
        Features(KINDS).fit(Sequences([constant]))
    with pytest.raises(ValueError, match="says what 1 features are but the sequences have 4"):
        Features(["bits"]).fit(Sequences([MIXED]))


@pytest.mark.parametrize("model", [HMM(2, max_iter=2), LSTM(d_model=4, max_steps=2)], ids=repr)
@pytest.mark.parametrize(
    ("observation", "value", "wanted"),
    [
        (Bernoulli(), 2, "which must be 0 or 1; mark .* another observation \\(Poisson for counts"),
        (Bernoulli(), 0.5, "which must be 0 or 1"),
        (Bernoulli(), -1, "which must be 0 or 1"),
        (Poisson(), -1, "which must be a count: 0, 1, 2, ...; mark .* \\(GaussianMixture for reals\\)"),
        (Poisson(), 0.5, "which must be a count"),
        (Columns([(GaussianMixture(1), 1), (Poisson(), 2)]), -1, "which must be a count"),
    ],
)
def test_values_that_cannot_be_are_named_before_any_work(
    model: Any, observation: Any, value: float, wanted: str
) -> None:
    rng = np.random.default_rng(0)
    good = [rng.integers(2, size=(n, 3)).astype(float) for n in (9, 8)]
    if isinstance(observation, Columns):
        for x in good:
            x[:, 0] += rng.random(len(x))
    bad = [x.copy() for x in good]
    bad[1][5, 2] = value
    message = rf"sequence 1 has {value:g} at frame 5, feature 2, {wanted}"
    fitted = model.clone().set_params(observation=observation).fit(good, validation=None)
    before = fitted.log_prob(good)
    for ask in (fitted.fit, fitted.score):
        with pytest.raises(ValueError, match=message):
            ask(bad)
    np.testing.assert_array_equal(fitted.log_prob(good), before)


def test_the_observation_says_what_it_wants() -> None:
    assert repr(default_encoding("vectors", Bernoulli().values(3))) == "Features(kinds='bits')"
    assert repr(default_encoding("vectors", GaussianMixture().values(3))) == "Standardize()"
    bits = [np.array([[0.0, 1.0], [1.0, 0.0]])]
    with pytest.raises(
        ValueError,
        match=re.escape(
            "Bernoulli() emits bits at feature 0 but the encoding Standardize() gives reals; leave encoding='auto'"
        ),
    ):
        HMM(1, observation=Bernoulli(), encoding=Standardize()).fit(bits)


def test_probabilities_and_densities_do_not_share_a_table() -> None:
    rng = np.random.default_rng(0)
    x = [rng.integers(2, size=(40, 2)) + 0.0]
    bits = HMM(1, observation=Bernoulli()).fit(x)
    with pytest.warns(UserWarning, match="exact copies"):
        reals = HMM(1, observation=GaussianMixture(1)).fit(x)
    counts = HMM(1, observation=Poisson()).fit(x)
    assert [m.measure_.space for m in (bits, reals, counts)] == ["{0,1}^2", "R^2", "N^2"]
    for other in (reals, counts):
        with pytest.raises(IncomparableError, match="space is"):
            check_comparable({"bits": bits.measure_, "other": other.measure_})
