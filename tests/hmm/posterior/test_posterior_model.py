"""Draws from posteriors that are known in closed form, states that keep their numbers, and figures in a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy import stats

import seqmodels as sm
from seqmodels.hmm import ConjugatePrior, PosteriorHMM, sample_posterior
from seqmodels.hmm.posterior.nuts import effective_size, r_hat
from seqmodels.hmm.posterior.relabelling import matching_order
from tests.made import made

PRIOR = ConjugatePrior(count=2.0, mean=1.5)
COUNTS = [np.array([[1.0], [0.0]])]  # few, so that the derivative of a logarithm matters
SHAPE, RATE = 2.0 * 1.5 + 1, 2.0 + 2  # of the Gamma distribution that is the posterior of the rate


@pytest.fixture(scope="module")
def counted() -> PosteriorHMM:
    hmm = sm.HMM(1, observation=sm.Poisson())
    return PosteriorHMM(hmm, n_samples=180, warmup=40, chains=2, prior=PRIOR, dtype="float64").fit(COUNTS)


def two_states(n: int, seed: int) -> list[np.ndarray]:
    true = sm.HMM.from_parameters(
        [0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]], means=[[-1.5], [1.5]], covariances=np.full((2, 1), 0.5)
    )
    return true.sample(n, length=40, random_state=seed)


@pytest.fixture(scope="module")
def gaussian() -> PosteriorHMM:
    return PosteriorHMM(sm.HMM(2, observation=sm.GaussianMixture(1)), n_samples=30, warmup=30).fit(two_states(3, 1))


@pytest.mark.slow
def test_draws_of_a_rate_are_those_of_its_gamma_distribution(counted: PosteriorHMM) -> None:
    (row,) = counted.summary().to_dict("records")
    exact = stats.gamma(SHAPE, scale=1 / RATE)
    error = exact.std() / np.sqrt(row["ess"])
    assert row["ess"] > 100
    assert abs(row["mean"] - exact.mean()) < 4 * error
    assert row["sd"] == pytest.approx(exact.std(), rel=0.15)
    tolerance = 3.5 * np.sqrt(0.05 * 0.95 / row["ess"])
    assert exact.cdf(row["5%"]) == pytest.approx(0.05, abs=tolerance)
    assert exact.cdf(row["95%"]) == pytest.approx(0.95, abs=tolerance)
    assert row["r_hat"] == pytest.approx(1.0, abs=0.02)


@pytest.mark.slow
def test_the_predictive_distribution_is_negative_binomial_within_its_error(counted: PosteriorHMM) -> None:
    exact = stats.nbinom(SHAPE, RATE / (RATE + 1))
    for value in (0.0, 1.0, 4.0):
        x = [np.array([[value]])]
        error = counted.score_error(x)
        assert 0 < error < 0.5
        assert abs(counted.score(x) - exact.logpmf(value)) < 4 * error
    assert sm.HMM(1, observation=sm.Poisson()).fit(COUNTS).score_error(COUNTS) == 0.0


@pytest.mark.slow
def test_the_error_of_a_score_does_not_average_out_over_sequences(counted: PosteriorHMM) -> None:
    """All sequences share the draws, so the error of one that is scored twice is that of one."""
    x = np.array([[3.0], [1.0]])
    assert counted.score_error([x, x]) == pytest.approx(counted.score_error([x]))


def test_steps_of_a_sequence_learn_from_those_before(counted: PosteriorHMM) -> None:
    """The mean of products of two steps is not the product of means."""
    x, few = [np.array([[9.0], [9.0]])], counted.thinned(40)
    steps = few.log_prob_steps(x)[0]
    each = np.array([model.log_prob_steps(x)[0] for model in few.models()])
    assert steps[0] == pytest.approx(np.log(np.exp(each[:, 0]).mean()))
    assert steps.sum() == pytest.approx(np.log(np.exp(each.sum(1)).mean()))
    assert steps[1] > steps[0] + 0.05
    stream = few.stream()
    assert_allclose([stream.update(frame) for frame in x[0]], steps, rtol=1e-9)


def test_draws_repeat_and_leave_torch_as_it_was() -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    one, other = (
        PosteriorHMM(sm.HMM(1, observation=sm.Poisson()), n_samples=5, warmup=10, random_state=seed).fit(COUNTS)
        for seed in (1, 1)
    )
    assert torch.equal(torch.get_rng_state(), before)
    assert_allclose(one.draws_["rates"], other.draws_["rates"], rtol=1e-9)
    assert len(np.unique(one.draws_["rates"])) > 1


@pytest.mark.slow
def test_states_keep_the_numbers_of_the_model(gaussian: PosteriorHMM) -> None:
    frame = gaussian.summary()
    means = frame[frame["name"] == "means"]
    assert_allclose(means["mean"], gaussian.model_.means_[:, 0, 0], atol=0.3)
    assert (means["sd"] < 0.3).all()
    assert list(frame["name"].unique()) == ["initial", "transition", "means", "covariances"]
    assert_allclose(gaussian.draws_["transition"].sum(2), 1.0)
    reordered = sample_posterior(gaussian.model_.reorder([1, 0]), two_states(3, 1), n_samples=10, warmup=20)
    assert_allclose(reordered.draws_["means"].mean(0), gaussian.model_.means_[::-1], atol=0.4)


def test_states_are_matched_where_they_are_at_the_same_frames() -> None:
    generator = torch.Generator().manual_seed(0)
    gamma = torch.rand(50, 4, generator=generator, dtype=torch.float64).square().softmax(1) ** 4
    order = torch.tensor([2, 0, 3, 1])
    found_order = matching_order([gamma], [gamma[:, order.argsort()]])
    assert found_order.tolist() == order.tolist()


@pytest.mark.slow
def test_a_stationary_start_and_ends_have_posteriors() -> None:
    x = [np.array([0, 1, 1, 0, 0, 1]), np.array([1, 0])]
    for options in ({"start": "stationary", "length": "given"}, {"length": "stop"}):
        model = PosteriorHMM(made(sm.HMM, 2, **options), n_samples=5, warmup=10, chains=1).fit(x)
        rows = model.draws_["transition"].sum(2) + model.draws_.get("final", 0.0)
        assert_allclose(rows, 1.0)
        assert np.isfinite(model.score(x))
        if "start" in options:
            assert_allclose(np.einsum("sk,skj->sj", model.draws_["initial"], model.draws_["transition"]),
                            model.draws_["initial"], atol=1e-6)  # fmt: skip


def test_the_topology_keeps_its_zeros() -> None:
    model = PosteriorHMM(sm.HMM(3, topology="left-to-right"), n_samples=5, warmup=10, chains=1, length="given")
    model.fit([np.array([0, 0, 1, 1, 2, 2, 2]), np.array([0, 1, 1, 2])])
    assert (model.draws_["transition"][:, [1, 2, 2], [0, 0, 1]] == 0).all()
    assert (model.draws_["initial"] == [1.0, 0.0, 0.0]).all()


def test_a_table_labels_estimates_and_gives_their_error(gaussian: PosteriorHMM) -> None:
    test = two_states(6, 2)
    result = sm.compare({"mean": gaussian.model_, "draws": gaussian}, test, baseline="mean")
    rows = result.frame.set_index("model")
    assert rows["kind"].to_dict() == {"mean": "exact", "draws": "estimate"}
    assert rows.loc["draws", "score_error"] == pytest.approx(gaussian.score_error(test))
    assert np.isnan(rows.loc["mean", "score_error"])
    text = str(result)
    assert "MC error" in text
    assert 'An "estimate" is a mean over draws' in text
    assert "kind" in text
    alone = sm.compare({"mean": gaussian.model_, "other": gaussian.models()[0]}, test, baseline="mean")
    assert "score_error" not in alone.frame
    assert "MC error" not in str(alone)


def test_a_file_keeps_the_draws(gaussian: PosteriorHMM, tmp_path: Path) -> None:
    gaussian.save(tmp_path / "draws.safetensors")
    loaded = sm.load(tmp_path / "draws.safetensors")
    assert isinstance(loaded, PosteriorHMM)
    x = two_states(2, 3)
    assert_allclose(loaded.log_prob(x), gaussian.log_prob(x))
    assert loaded.score_error(x) == pytest.approx(gaussian.score_error(x))
    assert loaded.measure_.kind == "estimate"
    assert loaded.summary().equals(gaussian.summary())


def test_r_hat_and_effective_size_tell_good_chains_from_bad() -> None:
    rng = np.random.default_rng(0)
    good = rng.normal(size=(2, 500))
    assert float(r_hat(good)) == pytest.approx(1.0, abs=0.01)
    assert float(effective_size(good)) > 600
    apart = good + np.array([[0.0], [3.0]])
    assert float(r_hat(apart)) > 1.5
    slow = np.cumsum(good, axis=1)
    assert float(effective_size(slow)) < 50
    assert np.isnan(r_hat(good[:, :2]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_samples": 0}, "n_samples"),
        ({"chains": 0}, "chains"),
        ({"model": sm.NGram(2)}, "HMM"),
        ({"warm_start": True}, "warm_start"),
        ({"model": sm.HMM(1, observation=sm.Categorical(0.5))}, "pseudocount"),
    ],
)
def test_what_cannot_be_sampled_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PosteriorHMM(**({"model": sm.HMM(1), "n_samples": 2, "warmup": 2} | options)).fit([np.array([0, 1, 0])])


def test_targets_and_observations_without_a_prior_are_refused(gaussian: PosteriorHMM) -> None:
    x = [np.array([0, 1, 0]), np.array([1, 0])]
    with pytest.raises(ValueError, match="without y"):
        PosteriorHMM(sm.HMM(1), n_samples=2, warmup=2).fit(x, x)
    fitted = sm.HMM(2, n_init=1).fit(two_states(2, 1))  # whose observation has a prior of its own
    with pytest.raises(ValueError, match="PseudoFrames"):
        sample_posterior(fitted, two_states(2, 1), n_samples=2, warmup=2)
    many = gaussian.thinned(30)
    many._draws = gaussian._draws[:1] * 2049
    with pytest.raises(ValueError, match="thin the draws"):
        many.cursor()
