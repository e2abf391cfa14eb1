"""Calibration, of symbols and of real features."""

import numpy as np
import pytest
import torch
from scipy import stats

import seqmodels as sm
from seqmodels.evaluation.calibration import (
    HISTOGRAM_BINS,
    histogram,
    pit,
    reliability,
)
from seqmodels.generation.cursor import Prediction
from seqmodels.generation.predicted_features import feature_distributions

COIN = sm.HMM.from_parameters([1.0], [[1.0]], emission=[[0.75, 0.25]])
GAUSSIAN = {"means": [[1.0, -2.0]], "covariances": [[[4.0, 1.0], [1.0, 0.5]]]}
NORMAL = sm.HMM.from_parameters([1.0], [[1.0]], **GAUSSIAN, covariance_type="full", dtype="float64")


class TestReliability:
    def test_shares_are_counted_in_bins_of_probability(self):
        found = reliability(COIN, [np.array([0, 0, 1, 1, 1]), np.array([0, 1, 1])])
        assert found.n_steps == 8
        assert found.table["predicted"].tolist() == pytest.approx([0.25, 0.75])
        assert found.table["observed"].tolist() == [5 / 8, 3 / 8]
        assert found.table["n"].tolist() == [8, 8]
        assert found.error == pytest.approx(2 * 3 / 8)  # three of eight too many of the one, and too few of the other

    def test_a_model_of_its_own_draws_is_as_good_as_chance(self):
        x = COIN.sample(200, length=60, random_state=1)
        found = reliability(COIN, x)
        assert found.error < 0.08
        assert found.by_chance < 0.08
        wrong = sm.HMM.from_parameters([1.0], [[1.0]], emission=[[0.25, 0.75]])
        assert reliability(wrong, x).error == pytest.approx(1, abs=0.1)

    def test_the_end_is_no_symbol(self):
        ends = sm.HMM.from_parameters([1.0], [[0.5]], final=[0.5], emission=[[0.75, 0.25]], dtype="float64")
        found = reliability(ends, [np.array([0, 0, 0, 1])])
        assert found.table["predicted"].tolist() == pytest.approx([0.25, 0.75])
        assert found.error == pytest.approx(0)

    def test_steps_after_an_impossible_one_are_left_out(self):
        chain = sm.HMM.from_parameters([1.0, 0.0], [[0.0, 1.0], [1.0, 0.0]], emission=[[1.0, 0.0], [0.0, 1.0]])
        assert reliability(chain, [np.array([0, 1, 1, 0, 1])]).n_steps == 3

    def test_vectors_are_refused(self):
        with pytest.raises(ValueError, match="use pit"):
            reliability(NORMAL, [np.zeros((3, 2))])


class TestPit:
    def test_a_gaussian_by_scipy(self):
        x = np.array([[1.0, -2.0], [3.0, -1.0], [-5.0, -2.5]])
        scale = np.sqrt([4.0, 0.5])
        expected = stats.norm.cdf(x, loc=[1.0, -2.0], scale=scale)
        np.testing.assert_allclose(pit(NORMAL, [x]), expected, rtol=0, atol=1e-12)

    def test_the_past_counts(self):
        """States tell themselves by the first feature, so the second frame's mixture is a row of the transition
        matrix.
        """
        model = sm.HMM.from_parameters(
            [0.5, 0.5],
            [[0.9, 0.1], [0.2, 0.8]],
            means=[[0.0], [100.0]],
            covariances=[[1.0], [4.0]],
            dtype="float64",
        )
        found = pit(model, [np.array([[100.0], [1.0]])])
        assert found[0, 0] == pytest.approx(0.5 + 0.5 * 0.5)
        assert found[1, 0] == pytest.approx(0.2 * stats.norm.cdf(1.0), abs=1e-9)

    def test_draws_of_the_model_itself_are_uniform(self):
        transforms = pit(NORMAL, NORMAL.sample(40, length=30, random_state=2))
        assert transforms.shape == (480, 2)
        assert all(stats.kstest(column, "uniform").pvalue > 0.01 for column in transforms.T)

    def test_too_wide_is_humped_and_too_narrow_hollow(self):
        x = NORMAL.sample(40, length=30, random_state=2)
        for factor, humped in ((4.0, True), (0.25, False)):
            covariances = factor * np.array(GAUSSIAN["covariances"])
            model = sm.HMM.from_parameters(
                [1.0], [[1.0]], means=GAUSSIAN["means"], covariances=covariances, covariance_type="full"
            )
            heights, error = histogram(pit(model, x))
            assert (heights[HISTOGRAM_BINS // 2] > heights[0]) == humped
            assert error > 0.1

    def test_an_affine_map_of_the_data_changes_nothing(self):
        x, _ = sm.data.hmm_draws(6, 20, n_states=2, n_features=2, random_state=0)
        models = [sm.HMM(2, max_iter=3, random_state=0).fit(data) for data in (x, [8 * item for item in x])]
        np.testing.assert_allclose(
            *(pit(m, d) for m, d in zip(models, (x, [8 * i for i in x]), strict=True)), atol=1e-5
        )

    @pytest.mark.parametrize(
        "observation",
        [
            sm.AutoregressiveGaussian(),
            sm.GaussianMixture(2, "lowrank", rank=1),
            sm.Columns([(sm.GaussianMixture(2, "full"), 2), (sm.GaussianMixture(1), 1)]),
        ],
        ids=["autoregressive", "lowrank", "columns"],
    )
    def test_cdfs_agree_with_draws(self, observation):
        size, generator = 3, torch.Generator().manual_seed(0)
        output_parameters = 0.3 * torch.randn(1, observation.n_output_parameters(size), generator=generator)
        past = torch.randn(1, observation.n_past, size, generator=generator) if observation.n_past else None
        draws = observation.sample(
            output_parameters.expand(4000, -1), None if past is None else past.expand(4000, -1, -1), generator
        )
        prediction = Prediction(observation, output_parameters[None], torch.zeros(1, 1), past, None)
        units = torch.zeros(size, dtype=torch.float64), torch.ones(size, dtype=torch.float64)
        features = feature_distributions(prediction, slice(0, 1), np.ones(1), *units)
        at = draws.median(0).values + 0.2
        shares = (draws <= at).double().mean(0)
        np.testing.assert_allclose(features.cdf(at.double().numpy()), shares, atol=0.03)

    def test_missing_values_stay_missing(self):
        x = np.array([[1.0, np.nan], [np.nan, -1.0]])
        np.testing.assert_array_equal(np.isnan(pit(NORMAL, [x])), np.isnan(x))

    def test_symbols_and_bits_are_refused(self):
        bits = sm.HMM(1, observation=sm.Bernoulli(), max_iter=1).fit([np.eye(4)])
        for model, x in ((COIN, [np.array([0])]), (bits, [np.eye(4)])):
            with pytest.raises(ValueError, match="no density in every feature"):
                pit(model, x)


def test_histogram_by_hand():
    heights, error = histogram(np.array([[0.01, np.nan], [0.02, 0.99]]))
    assert heights[0] == pytest.approx(HISTOGRAM_BINS * 2 / 3)
    assert heights[-1] == pytest.approx(HISTOGRAM_BINS / 3)
    assert error == pytest.approx(1 - 2 / HISTOGRAM_BINS)
