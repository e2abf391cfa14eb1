"""A function of the past frames that returns a distribution, as a model of vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyro.distributions
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm

import seqmodels as sm

RNG = np.random.default_rng(0)
X = [np.cumsum(RNG.normal(size=(n, 2)), 0) * [1.0, 1e6] for n in (6, 1, 9)]
SCALE = np.array([1.0, 1e6])


class Walk:
    """A Gaussian around the last frame, with distributions of torch."""

    distributions: Any = torch.distributions

    def __call__(self, past: np.ndarray) -> Any:
        mean = torch.as_tensor(past[-1] if len(past) else np.zeros(2))
        return self.distributions.Independent(self.distributions.Normal(mean, torch.as_tensor(SCALE)), 1)


class PyroWalk(Walk):
    """The same with Pyro's."""

    distributions = pyro.distributions


@pytest.mark.parametrize("density", [Walk(), PyroWalk(), Walk], ids=["torch", "pyro", "class"])
def test_its_figures_are_those_of_the_distributions(density: Any) -> None:
    model = sm.adapt.from_callable(log_density=density, n_features=2, context=1)
    for x, steps in zip(X, model.log_prob_steps(X), strict=True):
        expected = norm.logpdf(np.diff(x, axis=0, prepend=np.zeros((1, 2))), scale=SCALE).sum(1)
        assert_allclose(steps, expected, rtol=1e-12)
        stream = model.stream()
        assert_allclose([stream.update(frame) for frame in x], expected, rtol=1e-12)
    assert (model.measure_.space, model.length_, model.context_) == ("R^2", "given", 1)
    following = model.predict_next(X[0])
    assert_allclose(following.mean, X[0][-1])
    assert following.p_end == 0.0


def test_it_draws_by_its_own_seed() -> None:
    model = sm.adapt.from_callable(log_density=Walk(), n_features=2)
    before = torch.get_rng_state()
    first, again, other = (model.sample(400, prefix=X[0], length=7 - len(X[0]), random_state=s) for s in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    drawn = (np.array(first)[:, 6] - X[0][-1]) / SCALE
    assert np.abs(drawn.mean(0)).max() < 4 / np.sqrt(400)
    assert np.abs(drawn.std(0) - 1).max() < 4 / np.sqrt(800)


def test_states_of_its_cursor_are_values() -> None:
    cursor = sm.adapt.from_callable(log_density=Walk(), n_features=2).cursor()
    frames = [torch.as_tensor(x[:1]).expand(2, -1) for x in X]
    state = cursor.advance(cursor.start(n=2), frames[0])
    before = cursor.distribution(state).log_prob(frames[1])
    cursor.advance(state, frames[2])
    assert torch.equal(cursor.distribution(cursor.select(state, torch.tensor([1, 0]))).log_prob(frames[1]), before)


def test_counts_are_no_reals() -> None:
    def rates(past: np.ndarray) -> Any:
        return pyro.distributions.Poisson(torch.as_tensor(1.0 + past.sum(0) if len(past) else [1.0, 2.0])).to_event(1)

    model = sm.adapt.from_callable(log_density=rates, n_features=2, kinds="counts")
    assert model.measure_.space == "N^2"
    with pytest.raises(ValueError, match=r"sequence 0 has 0.5 at frame 0, feature 1, which must be a count"):
        model.log_prob([np.array([[1.0, 0.5]])])
    counts = [np.array([[1.0, 0.0], [3.0, i]]) for i in range(6)]
    hmm = sm.HMM(1, observation=sm.Poisson()).fit([np.array([[1.0, 2.0], [0.0, 3.0]])])
    frame = sm.compare({"rates": model, "hmm": hmm}, counts).frame
    assert set(frame["model"]) == {"rates", "hmm"}


@pytest.mark.parametrize(
    ("density", "message"),
    [
        (lambda past: torch.distributions.Normal(torch.zeros(2), torch.ones(2)), r"batch shape \(2,\) and event shape"),
        (lambda past: torch.distributions.Normal(0.0, 1.0), r"event shape \(\); return one over \(2,\)"),
        (3, "log_density is 3; pass a function"),
    ],
)
def test_what_is_no_density_of_a_frame_is_refused(density: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sm.adapt.from_callable(log_density=density, n_features=2)


def test_it_says_what_it_needs() -> None:
    with pytest.raises(ValueError, match="pass n_features="):
        sm.adapt.from_callable(log_density=Walk())
    with pytest.raises(ValueError, match="says nothing of ends"):
        sm.adapt.from_callable(log_density=Walk(), n_features=2, length="stop")
    model = sm.adapt.from_callable(log_density=Walk(), n_features=2)
    with pytest.raises(ValueError, match="sequence 0 has 3 features"):
        model.log_prob([np.zeros((2, 3))])
    with pytest.raises(ValueError, match="log_density models vectors, but the sequences are text"):
        model.fit(["a"])


def test_a_class_can_be_saved(tmp_path: Path) -> None:
    model = sm.adapt.from_callable(log_density=Walk, n_features=2)
    with pytest.warns(UserWarning, match="which seqmodels does not know"):
        model.save(tmp_path / "model")
    assert_array_equal(sm.load(tmp_path / "model", classes=[Walk]).log_prob(X), model.log_prob(X))
