"""What ``HMM(K)`` is on vectors: one Gaussian a state, a weak prior, a broad background, several starts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy.optimize import linear_sum_assignment

from seqmodels import HMM, GaussianMixture, load
from seqmodels.inference.chains import log_space
from seqmodels.inference.chains.trellis import Trellis
from seqmodels.observations import PseudoFrames
from tests.hmm.learning.test_restarts import series


@pytest.fixture(autouse=True, scope="module")
def _few_starts() -> None:
    """Not here: ``"auto"`` is what it is for users."""


def activities(seed: int, n: int = 12) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Four sensors of scales 0.1 to 130 and three activities of other means and spreads, smoothed in time."""
    rng = np.random.default_rng(seed)
    mean = np.array([[0.0, 0.0, 0.0, 0.0], [2.0, 1.0, -1.0, 2.0], [-1.5, 2.5, 2.0, -1.0]])
    deviation, scale = np.array([0.3, 0.8, 1.3]), np.array([0.1, 1.0, 20.0, 130.0])
    x, states = [], []
    for length in rng.integers(280, 420, n):
        z, level = int(rng.integers(3)), np.zeros(4)
        path, item = np.empty(length, int), np.empty((length, 4))
        for t in range(length):
            z = z if rng.random() < 0.965 else (z + int(rng.integers(1, 3))) % 3
            level = (level + mean[z]) / 2 + 0.5 * deviation[z] * rng.normal(size=4)
            path[t], item[t] = z, level * scale
        x.append(item)
        states.append(path)
    return x, states


def accuracy(paths: Sequence[np.ndarray], states: Sequence[np.ndarray]) -> float:
    """Under the best assignment of three states to three labels."""
    table = np.zeros((3, 3))
    np.add.at(table, (np.concatenate(paths), np.concatenate(states)), 1)
    rows, columns = linear_sum_assignment(table, maximize=True)
    return float(table[rows, columns].sum() / table.sum())


def test_the_default_for_vectors_has_a_prior_that_no_score_has() -> None:
    x = series(60, 40)
    model = HMM(3, max_iter=5).fit(x)
    assert (
        repr(model.observation_) == "GaussianMixture(n_components=1, prior=PseudoFrames(count=10.0), background=0.01)"
    )
    last = model.history_.iloc[-1]
    assert last["objective"] < last["log_prob"] - 0.1
    assert_allclose(model.score(x), last["log_prob"], rtol=1e-5)


def test_an_observation_that_is_named_is_plain_maximum_likelihood() -> None:
    x = series(60, 40)
    history = HMM(3, observation=GaussianMixture(1), max_iter=5).fit(x).history_
    assert (history["objective"] == history["log_prob"]).all()


@pytest.mark.parametrize("seed", [0, 1])
def test_activities_are_found_whatever_the_seed(seed: int) -> None:
    x, states = activities(3)
    train, test = x[:8], x[8:]
    model = HMM(3, random_state=seed).fit(train)
    assert accuracy(model.decode(test), states[8:]) > 0.96
    assert len(model.starts_) == 8


def test_many_states_on_few_frames_are_no_worse_than_one_gaussian() -> None:
    x = series(80, 80, size=3)
    unseen = series(200, size=3, seed=1)
    by_default, one = HMM(24).fit(x), HMM(1, observation=GaussianMixture(1)).fit(x)
    with pytest.warns(UserWarning, match="ended on the floor"):
        plain = HMM(24, observation=GaussianMixture(1), n_init=1).fit(x)
    assert by_default.score(unseen) > one.score(unseen) > plain.score(unseen)


def test_a_parameter_of_the_default_may_be_set() -> None:
    """It keeps the rest of the default; an observation that is named takes its place."""
    model = HMM(2, max_iter=2).set_params(observation__n_components=2)
    observation = model.observation
    assert isinstance(observation, GaussianMixture)
    assert (observation.n_components, observation.background) == (2, 0.01)
    assert isinstance(observation.prior, PseudoFrames)
    assert model.fit(series(30)).weights_.shape == (2, 2)
    strong = HMM(2).set_params(observation__prior__count=20.0)
    assert isinstance(strong.observation, GaussianMixture)
    assert strong.observation.prior is not None
    assert strong.observation.prior.count == 20.0
    assert HMM(2).observation == "auto"
    with pytest.raises(ValueError, match="'observation' is 'auto', which has no parameters"):
        HMM(2).set_params(observation__order=1)


def test_grid_search_goes_from_the_default() -> None:
    model_selection = pytest.importorskip("sklearn.model_selection")
    grid = {"observation__n_components": [1, 3]}
    search = model_selection.GridSearchCV(HMM(2, max_iter=3, n_init=1), grid, cv=2, error_score="raise")
    search.fit(series(30, 30, 20, 20))
    assert len(search.cv_results_["mean_test_score"]) == 2
    assert search.best_estimator_.observation.background == 0.01


def test_the_default_comes_back_from_a_file(tmp_path) -> None:
    x = series(40, 30)
    model = HMM(2, max_iter=3).fit(x)
    model.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert loaded.score(x) == pytest.approx(model.score(x), rel=1e-12)
    assert loaded.observation == "auto"
    assert repr(loaded.observation_) == repr(model.observation_)


@pytest.mark.parametrize("value", [1e4, 1e8, 1e12, 1e18])
def test_a_far_frame_is_as_one_that_is_missing(value: float) -> None:
    """There the background, the same in every state, is all there is: what was known before is kept, on every path."""
    model = HMM(3, max_iter=5, length="given", dtype="float64").fit(series(30))
    x = series(30)[0][:20].copy()
    x[7, 0], missing = value, x.copy()
    missing[7] = np.nan
    elsewhere = np.arange(len(x)) != 7
    steps, expected = model.log_prob_steps([x])[0], model.log_prob_steps([missing])[0]
    np.testing.assert_allclose(steps[elsewhere], expected[elsewhere], rtol=1e-9)
    np.testing.assert_allclose(model.filter([x])[0], model.filter([missing])[0], atol=1e-9)
    np.testing.assert_allclose(model.posterior([x])[0], model.posterior([missing])[0], atol=1e-9)
    np.testing.assert_array_equal(model.decode([x])[0][elsewhere], model.decode([missing])[0][elsewhere])
    stream = model.stream()
    np.testing.assert_allclose(
        np.array([stream.update(frame) for frame in x])[elsewhere], expected[elsewhere], rtol=1e-9
    )
    state = Trellis.of_concatenated(*(torch.as_tensor(a) for a in (model.initial_, model.transition_)), log_b(model, x))
    gamma = log_space.forward_backward_pass(state).gamma
    np.testing.assert_allclose(gamma, model.posterior([missing])[0], atol=1e-9)


def log_b(model: HMM, x: np.ndarray) -> torch.Tensor:
    """``(T, K)``: log-densities of the frames of encoded ``x`` in each state."""
    values = torch.as_tensor(model.encoding_.encode(x))
    return model.observation_.log_prob(model.parameters_.table.unsqueeze(1), values).T.contiguous()
