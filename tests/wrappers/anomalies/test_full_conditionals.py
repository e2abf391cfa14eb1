"""Features given the others of their step and the past: the joint minus the density of the others, in raw units."""

import numpy as np
import pytest

import seqmodels as sm
from seqmodels.wrappers.anomalies.full_conditionals import feature_log_probs
from tests.families import fitted, halved, marked, one_of_each_class, rows


def vectors(n, length, seed=0):
    """Two features, in raw units far from standardised, of which one goes with the other."""
    rng = np.random.default_rng(seed)
    walks = [np.cumsum(rng.normal(size=(length, 2)), 0) for _ in range(n)]
    return [100.0 + 5.0 * walk @ np.array([[1.0, 0.8], [0.0, 1.0]]) for walk in walks]


def test_features_are_the_joint_minus_the_others():
    """By an HMM of one state, for which the past does not matter."""
    x = vectors(2, 5)
    one = sm.HMM(1, max_iter=2, observation=sm.GaussianMixture(1, "full")).fit(x)
    without = [np.where([False, True], np.nan, item) for item in x]
    for i, each in enumerate(feature_log_probs(one, x)):
        expected = one.log_prob_steps(x)[i] - one.log_prob_steps(without)[i]
        np.testing.assert_allclose(each[:, 1], expected, rtol=1e-5)


def test_the_past_is_whole_and_lengths_do_not_matter():
    """Only the last step of each prefix is without a feature: the steps before it are as they were."""
    x = vectors(6, 12)
    hmm = sm.HMM(2, max_iter=5, observation=sm.GaussianMixture(2, "full")).fit(x)
    (long,), (short,) = vectors(1, 12, seed=1), vectors(1, 3, seed=2)
    together = feature_log_probs(hmm, [long, short])
    for t in range(3):
        for d in range(2):
            without = short[: t + 1].copy()
            without[t, d] = np.nan
            expected = hmm.log_prob([short[: t + 1]]) - hmm.log_prob([without])
            assert together[1][t, d] == pytest.approx(expected[0], rel=1e-4)
    assert together[0].shape == (12, 2)


@pytest.mark.parametrize("observation", [sm.GaussianMixture(2), sm.AutoregressiveGaussian(2)], ids=repr)
def test_networks(observation):
    """Of D = 1 the other features have probability one, so that what is left is the whole."""
    x = [item[:, :1] for item in vectors(8, 6)]
    gru = sm.GRU(d_model=4, max_steps=2, observation=observation).fit(x)
    for each, steps in zip(feature_log_probs(gru, x[:3]), gru.log_prob_steps(x[:3]), strict=True):
        np.testing.assert_allclose(each[:, 0], steps, rtol=1e-4)


def test_bits_are_not_scaled_and_missing_ones_have_no_figure():
    rng = np.random.default_rng(0)
    x = [(rng.random((6, 3)) < 0.4).astype(float) for _ in range(4)]
    hmm = sm.HMM(1, max_iter=2, observation=sm.Bernoulli(0.5)).fit(x)
    x[0][2, 1] = np.nan
    each = feature_log_probs(hmm, x)[0]
    p = np.where(x[0] == 1, hmm.probabilities_[0], 1 - hmm.probabilities_[0])
    np.testing.assert_allclose(each, np.where(np.isnan(x[0]), np.nan, np.log(p)), rtol=1e-6)


def test_an_amount_of_0_has_a_probability_in_any_unit():
    rng = np.random.default_rng(0)
    x = [np.where(rng.random((20, 2)) < 0.4, 0.0, rng.gamma(2.0, 50.0, (20, 2))) for _ in range(4)]
    inflated = sm.observations.ZeroInflated(sm.observations.Gamma())
    hmm = sm.HMM(1, observation=inflated).fit(x)
    each = feature_log_probs(hmm, x)[0]
    np.testing.assert_allclose(each.sum(1), hmm.log_prob_steps(x)[0], rtol=1e-5)  # independent features
    assert set(np.round(each[x[0] == 0] - np.log(hmm.zero_weights_).repeat(20, 0)[x[0] == 0], 5)) == {0.0}


def test_a_value_that_float32_cannot_hold():
    x = vectors(4, 6)
    hmm = sm.HMM(1, max_iter=2, observation=sm.GaussianMixture(1)).fit(x)
    x[0][3, 0] = 1e20
    each = feature_log_probs(hmm, x)[0]
    assert each[3, 0] < -1e30
    assert -20 < each[3, 1] < 0


def test_symbols_have_no_features():
    model = sm.NGram(1).fit([[0, 1, 0]])
    with pytest.raises(ValueError, match="does not know its density without"):
        feature_log_probs(model, [[0, 1]])
    cells = sm.NGram(1, encoding=sm.encodings.Quantize(2)).fit(vectors(2, 5))
    with pytest.raises(ValueError, match="does not know its density without"):
        feature_log_probs(cells, vectors(1, 5))


def with_features():
    """Rows whose models have a density of a feature apart: not those that read cells."""
    given = [row for row in halved(rows("vectors", "bits", "counts", n_features=1)) if row.length == "given"]
    return [row for row in given if "quantized" not in row.family.name]


@pytest.mark.parametrize("row", marked(with_features(), one_of_each_class), ids=str)
def test_a_feature_alone_is_the_whole(row):
    """Of every model, with and without sources in turns: with windows, whatever the lengths."""
    model = fitted(row)
    expected = model.log_prob_steps(*row.data)
    for each, steps in zip(feature_log_probs(model, *row.data), expected, strict=True):
        np.testing.assert_allclose(each[:, 0], steps, rtol=1e-6, atol=1e-8)
