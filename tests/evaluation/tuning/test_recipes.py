"""Recipes: what is proposed for which model and data, and that ``choose`` finds and fits the one that is right."""

from __future__ import annotations

import numpy as np
import pytest

import seqmodels as sm
from seqmodels.data import FrameFeatures
from seqmodels.encodings import RunningScale
from seqmodels.evaluation import Proposal, propose_recipes
from seqmodels.hmm import HSMM

GROWS = 0.5 * np.arange(90)[:, None] + np.random.default_rng(3).normal(size=(90, 1))


def speakers(memory: float, n_each: int = 4) -> sm.Sequences:
    """Autoregressions of 30 frames around the levels of four speakers in feature 0; feature 1 has the label."""
    rng = np.random.default_rng(1)
    items, names, labels = [], [], []
    for k in range(4):
        level = np.array([rng.normal(0, 8.0), 0.0])
        for i in range(n_each):
            x = np.zeros((30, 2))
            for t in range(1, 30):
                x[t] = memory * x[t - 1] + rng.normal(size=2)
            items.append(x + level + [0.0, 0.5 * (-1) ** i])
            names.append(f"speaker {k}")
            labels.append("up" if i % 2 else "down")
    return sm.Sequences(items, clusters=names, labels=labels)


def proposed(model: object, x: object) -> list[str]:
    return [repr(recipe) for recipe in propose_recipes(model, x)]


def test_what_is_proposed_for_states_and_networks() -> None:
    x = speakers(0.9)
    autoregression = "observation=AutoregressiveGaussian(), n_init=1"
    assert proposed(sm.HMM(2), x) == [
        "the arguments as they are",
        autoregression,
        f"{autoregression}, encoding={RunningScale(40.0)!r}",
    ]
    assert proposed(sm.HMM(2, encoding=sm.Standardize(), n_init=2), x)[1:] == ["observation=AutoregressiveGaussian()"]
    assert proposed(sm.GRU(), x)[1:] == ["linear_start=True", "linear_start=True, perturbation=Perturbation()"]
    assert proposed(sm.GRU(), list(x))[1:] == ["linear_start=True"]


def test_a_series_that_grows_is_proposed_as_changes() -> None:
    assert propose_recipes(HSMM(2), [GROWS])[1].arguments["encoding"].encodings[0].order == 1
    choice = sm.choose(sm.HMM(2, n_init=1, max_iter=5, encoding=sm.Standardize()), [GROWS], folds=2, recipe=[{}])
    assert choice.chosen.arguments == {}
    read = sm.choose(HSMM(2, n_init=1, max_iter=3), [GROWS], folds=2, recipe=propose_recipes(HSMM(2), [GROWS])[1:])
    assert read.model.encoding_.n_initial == 1


def test_a_classifier_is_proposed_features_without_the_levels_of_speakers() -> None:
    recipes = propose_recipes(sm.GenerativeClassifier(sm.HMM(2)), speakers(0.0))
    assert [recipe.arguments["features"].mean for recipe in recipes[1:]] == [False, (0,), True, True]
    assert all("model__observation" in recipe.arguments for recipe in recipes[1:])
    named = sm.GenerativeClassifier(sm.HMM(2, observation=sm.GaussianMixture(1)))
    assert set(propose_recipes(named, speakers(0.0))[1].arguments) == {"features"}


@pytest.mark.parametrize(
    ("model", "x"),
    [
        (sm.HMM(2), ["ab", "ba"]),
        (sm.HMM(2, observation=sm.GaussianMixture(1)), speakers(0.0)),
        (sm.GRU(linear_start=True), speakers(0.0)),
        (sm.GenerativeClassifier(sm.HMM(2), features=FrameFeatures(1)), speakers(0.0)),
    ],
    ids=["text", "named observation", "named start", "named features"],
)
def test_what_the_arguments_name_is_left_alone(model: object, x: object) -> None:
    with pytest.raises(ValueError, match="there is no recipe for"):
        propose_recipes(model, x)


def test_choose_finds_the_autoregression_and_says_it_in_words() -> None:
    x = speakers(0.95)
    choice = sm.choose(sm.HMM(2, n_init=1, max_iter=5), x, folds=4, recipe="proposed")
    assert choice.parameter == "recipe"
    assert isinstance(choice.chosen, Proposal)
    assert isinstance(choice.model.observation, sm.AutoregressiveGaussian)
    assert "recipe = observation=AutoregressiveGaussian()" in repr(choice)
    assert choice.chosen.why in repr(choice)
    by_hand = sm.HMM(2, n_init=1, max_iter=5).set_params(**choice.chosen.arguments).fit(x)
    assert choice.model.score(x) == pytest.approx(by_hand.score(x), rel=1e-9)


def test_choose_of_a_classifier_counts_labels_that_are_right() -> None:
    x, classifier = speakers(0.0), sm.GenerativeClassifier(sm.HMM(2, n_init=1, max_iter=5), calibrate=False)
    recipes = [{}, {"features": FrameFeatures(0, mean=(0,), variance=False)}]
    choice = sm.choose(classifier, x, folds=4, recipe=recipes)
    assert choice.unit == "sequence"
    assert choice.frame["cv"].iloc[1] == 1.0 > choice.frame["cv"].iloc[0]
    assert choice.frame["train"].iloc[1] == choice.model.score(x) == 1.0
    assert choice.by("bic") is None
    assert "which labels 1.0000 of the sequences right that were held out" in repr(choice)
    with pytest.raises(ValueError, match="a classifier has none of; pass 'cv'"):
        sm.choose(classifier, x, criterion="bic", recipe=recipes)


def test_a_recipe_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="a recipe is 3; pass a dictionary of arguments"):
        sm.choose(sm.HMM(2), [GROWS], recipe=[3])
