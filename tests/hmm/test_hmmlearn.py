"""Whoever writes what hmmlearn calls otherwise is told what it is called here."""

from __future__ import annotations

import inspect
import pickle

import numpy as np
import pytest

import seqmodels as sm
from seqmodels.hmm.hmmlearn import ARGUMENTS, ATTRIBUTES

X = np.random.default_rng(0).normal(size=(20, 1))
CHAIN = {"initial": [0.5, 0.5], "transition": [[0.9, 0.1], [0.2, 0.8]]}
MODEL = sm.HMM.from_parameters(**CHAIN, means=[[0], [1]], covariances=[[1], [1]])


@pytest.mark.parametrize(
    ("name", "here"),
    [("n_components", "n_states"), ("n_iter", "max_iter"), ("covariance_type", "GaussianMixture(1, covariance_type=")],
)
def test_an_argument_of_hmmlearns_names_the_one_here(name, here):
    with pytest.raises(TypeError) as error:
        sm.HMM(**{name: 3})
    assert here in str(error.value)
    assert name in str(error.value)


def test_every_name_is_unknown_here_and_known_there():
    hmm = pytest.importorskip("hmmlearn.hmm")
    models = (hmm.GaussianHMM, hmm.GMMHMM, hmm.CategoricalHMM, hmm.PoissonHMM)
    theirs = {name for model in models for name in inspect.signature(model).parameters}
    here = set(inspect.signature(sm.HMM).parameters)
    assert set(ARGUMENTS) <= theirs - here
    assert theirs - here - set(ARGUMENTS) == {"lambdas_prior", "lambdas_weight"}  # Poisson has no prior here
    for name in ATTRIBUTES:
        with pytest.raises(AttributeError, match=f"hmmlearn's {name} is"):
            getattr(MODEL, name)


def test_other_errors_and_signatures_stay_as_they_are():
    with pytest.raises(TypeError, match="HMM has no argument 'nope'; it has n_states, max_iter"):
        sm.HMM(nope=3)
    assert next(iter(inspect.signature(sm.HMM).parameters)) == "n_states"
    assert "max_iter" in sm.HMM().get_params()
    assert pickle.loads(pickle.dumps(sm.HMM(3))).n_states == 3
    with pytest.raises(AttributeError, match=r"no attribute 'nope_'$"):
        _ = MODEL.nope_


@pytest.mark.parametrize("arguments", [(X, [10, 10]), ([X], [10, 10])])
def test_lengths_are_not_targets(arguments):
    with pytest.raises(ValueError, match=r"Sequences\.from_lengths\(X, lengths\)"):
        sm.HMM(2).fit(*arguments)


def test_states_are_decoded_not_predicted():
    with pytest.raises(ValueError, match=r"the states of an HMM are decode\(X\)"):
        MODEL.predict([X])
    np.testing.assert_allclose(MODEL.predict_proba([X])[0], MODEL.posterior([X])[0], rtol=1e-12, atol=1e-12)


def test_the_default_observation_can_be_searched():
    """Its parameters are named although ``observation`` is ``"auto"``, as hmmlearn's ``n_mix`` would be."""
    selection = pytest.importorskip("sklearn.model_selection")
    rng = np.random.default_rng(0)
    two_levels = [rng.choice([-5.0, 5.0], (40, 1)) + rng.normal(size=(40, 1)) for _ in range(12)]
    grid = {"observation__n_components": [1, 2]}
    search = selection.GridSearchCV(sm.HMM(1, max_iter=20), grid, cv=3).fit(two_levels)
    assert search.best_params_ == {"observation__n_components": 2}
    assert search.best_estimator_.observation_.n_components == 2
    by_hand = sm.HMM(1, max_iter=20, observation=sm.HMM()._default_observation("vectors"))
    by_hand.set_params(observation__n_components=2)
    expected = by_hand.fit(two_levels).score(two_levels)
    assert search.best_estimator_.score(two_levels) == pytest.approx(expected, rel=1e-9)


def test_a_parameter_of_the_default_observation_is_that_of_the_family():
    assert sm.HMM().set_params(observation__covariance_type="full").observation.covariance_type == "full"
    assert sm.HMM().set_params(observation__pseudocount=2.0).observation.pseudocount == 2.0
    network = sm.GRU().set_params(observation__n_components=3)
    default = sm.GRU()._default_observation("vectors")
    assert network.observation.get_params() == {**default.get_params(), "n_components": 3}
    assert sm.NGram(2).set_params(observation__pseudocount=0.5).observation.pseudocount == 0.5
    with pytest.raises(ValueError, match="'observation' is 'auto', which has no parameters of its own to set"):
        sm.HMM().set_params(observation__order=2)
    with pytest.raises(ValueError, match="'observation' is 'auto'"):
        sm.NGram(2).set_params(observation__n_components=2)
    with pytest.raises(ValueError, match="'encoding' is 'auto'"):
        sm.HMM().set_params(encoding__size=2)
