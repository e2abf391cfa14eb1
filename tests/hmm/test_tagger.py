from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import multivariate_normal

import seqmodels as sm
from seqmodels.inference.chains.messages import log_messages
from tests.inference.chains.enumeration import Array, path_probabilities, random_model

K, T = 3, 4
WORDS = [np.array([0, 1, 2, 3, 1]), np.array([2, 2, 0]), np.array([3]), np.array([1, 0, 3, 2])]
TAGS = [np.array([0, 1, 2, 0, 1]), np.array([2, 2, 0]), np.array([1]), np.array([1, 0, 0, 2])]


def vectors(seed: int = 0) -> tuple[list[Array], list[np.ndarray]]:
    rng = np.random.default_rng(seed)
    labels = [rng.integers(K, size=n) for n in (6, 3, 9, 5, 8, 7)]
    return [np.stack([y, -y], 1) + rng.standard_normal((len(y), 2)) for y in labels], labels


def tagger(**options: Any) -> sm.HMMTagger:
    return sm.HMMTagger(**{"dtype": "float64", "emission": sm.GaussianMixture(1, "full")} | options).fit(*vectors())


def densities(model: sm.HMMTagger, x: Array) -> Array:
    """p(x_t | label), by scipy."""
    means, covariances = model.hmm_.means_[:, 0], model.hmm_.covariances_[:, 0]
    return np.stack([multivariate_normal(m, c).pdf(x) for m, c in zip(means, covariances, strict=True)], 1)


def test_targets_given_a_source_are_paths_over_their_sum() -> None:
    model, x = tagger(), vectors(1)[0][0][:T]
    paths = path_probabilities(model.hmm_.initial_, model.hmm_.transition_, densities(model, x))
    total = sum(paths.values())
    given = model.log_prob_steps([x] * len(paths), [np.array(path) for path in paths])
    assert_allclose([steps.sum() for steps in given], np.log(np.array(list(paths.values())) / total), atol=1e-10)
    for path, steps in zip(paths, given, strict=True):
        alike = [sum(p for other, p in paths.items() if other[:t] == path[:t]) for t in range(T + 1)]
        assert_allclose(np.exp(steps), np.divide(alike[1:], alike[:-1]), rtol=1e-10)


def test_what_is_predicted_is_the_best_path_and_the_posterior_that_of_each_step() -> None:
    model = tagger()
    for x in vectors(2)[0][:2]:
        paths = path_probabilities(model.hmm_.initial_, model.hmm_.transition_, densities(model, x[:T]))
        assert_array_equal(model.predict([x[:T]])[0], max(paths, key=lambda path: paths[path]))
        gamma = np.zeros((len(x[:T]), K))
        for path, p in paths.items():
            gamma[np.arange(len(path)), path] += p / sum(paths.values())
        assert_allclose(model.posterior([x[:T]])[0], gamma, atol=1e-10)


def test_labels_of_several_states_are_sums_over_their_paths() -> None:
    model = tagger(n_states_per_label=2, max_iter=5)
    assert (np.diff(model.history_["objective"]) > -1e-9).all()
    assert model.hmm_.transition_.shape == (2 * K, 2 * K)
    x = vectors()[0][2][:T]
    paths = path_probabilities(model.hmm_.initial_, model.hmm_.transition_, densities(model, x))
    sums: dict[tuple[int, ...], float] = dict.fromkeys(product(range(K), repeat=T), 0.0)
    for path, p in paths.items():
        sums[tuple(state // 2 for state in path)] += p
    found = model.log_prob([x] * len(sums), [np.array(labels) for labels in sums])
    assert_allclose(np.exp(found), np.array(list(sums.values())) / sum(paths.values()), rtol=1e-9)
    assert_allclose(model.posterior([x])[0].sum(1), 1.0)
    assert_array_equal(model.predict([x])[0], np.array(max(paths, key=lambda path: paths[path])) // 2)


def test_fitting_is_counting() -> None:
    model = sm.HMMTagger(pseudocount=0.0, emission=sm.Categorical(0.5), dtype="float64").fit(WORDS, TAGS)
    assert_allclose(model.hmm_.initial_, [0.25, 0.5, 0.25])
    assert_allclose(model.hmm_.transition_, [[0.25, 0.5, 0.25], [0.5, 0, 0.5], [2 / 3, 0, 1 / 3]], atol=1e-12)
    emitted = np.full((3, 4), 0.5)
    for word, tag in zip(np.concatenate(WORDS), np.concatenate(TAGS), strict=True):
        emitted[tag, word] += 1
    assert_allclose(model.hmm_.emission_, emitted / emitted.sum(1, keepdims=True), atol=1e-12)


def test_pseudocounts_leave_no_transition_impossible() -> None:
    model = sm.HMMTagger(pseudocount=0.5, dtype="float64").fit(WORDS, TAGS)
    assert_allclose(model.hmm_.transition_[1], np.array([1.5, 0.5, 1.5]) / 3.5, atol=1e-12)
    assert np.isfinite(model.log_prob([np.array([0, 0])], [np.array([1, 1])])).all()


def test_means_are_those_of_each_label_and_mixtures_are_fitted_within() -> None:
    X, y = vectors()
    frames, labels = np.concatenate(X), np.concatenate(y)
    expected = [frames[labels == k].mean(0) for k in range(K)]
    assert_allclose(tagger().hmm_.means_[:, 0], expected, atol=1e-10)
    mixed = tagger(emission=sm.GaussianMixture(2)).hmm_
    assert_allclose(np.einsum("km,kmd->kd", mixed.weights_, mixed.means_), expected, atol=1e-10)


def test_a_label_that_was_never_seen_stays_possible() -> None:
    model = sm.HMMTagger(encoding=sm.Symbols(5), dtype="float64").fit(WORDS, TAGS)
    every = [np.array(y) for y in product(range(5), repeat=3)]
    assert_allclose(np.exp(model.log_prob([WORDS[0][:3]] * len(every), every)).sum(), 1.0, atol=1e-12)
    assert model.hmm_.transition_.shape == (5, 5)
    assert np.isfinite(model.log_prob([WORDS[1]], [np.array([4, 3, 0])])).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_label_far_from_its_frame_keeps_its_figure(dtype: str) -> None:
    x = [np.array([[0.0], [0.1], [100.0], [100.1]]), np.array([[0.05], [100.05]])]
    y = [np.array([0, 0, 1, 1]), np.array([0, 1])]
    model = sm.HMMTagger(emission=sm.GaussianMixture(1, min_covariance=1e-9), pseudocount=1.0, dtype=dtype).fit(x, y)
    means, deviation = model.hmm_.means_[:, 0, 0], np.sqrt(model.hmm_.covariances_[0, 0, 0])
    odds = ((0.05 - means[1]) ** 2 - (0.05 - means[0]) ** 2) / (2 * deviation**2)
    assert odds > 1e5  # below what any float can hold
    found = model.log_prob([np.array([[0.05]])], [np.array([1])])[0]
    first = np.log(model.hmm_.initial_[1] / model.hmm_.initial_[0])
    assert_allclose(found, first - odds, rtol=1e-4 if dtype == "float32" else 1e-9)


def test_sources_and_prefixes_of_probability_zero_are_named() -> None:
    none = {"pseudocount": 0.0, "emission": sm.Categorical(0.0), "source_encoding": sm.Symbols(5)}
    model = sm.HMMTagger(**none, dtype="float64").fit(WORDS, TAGS)
    with pytest.raises(ValueError, match="source 1 has probability zero whatever its labels"):
        model.log_prob([WORDS[0], np.array([4])], [TAGS[0], np.array([0])])
    steps = model.log_prob_steps([WORDS[0]], [np.array([0, 2, 2, 0, 1])])[0]  # word 1 is never labelled 2
    assert_array_equal(np.isfinite(steps), [True, False, False, False, False])
    stream = model.stream(source=WORDS[0])
    assert_allclose([stream.update(label) for label in (0, 2, 2, 0, 1)], steps, rtol=1e-12, atol=1e-12)
    with pytest.raises(ValueError, match="what came before has probability zero"):
        model.predict_next(np.array([0, 2]), source=WORDS[0])


@pytest.mark.parametrize("seed", range(3))
def test_messages_are_sums_over_all_that_may_follow(seed: int) -> None:
    rng = np.random.default_rng(seed)
    _, transition, final = random_model(rng, K, with_final=seed > 0, sparse=seed > 1)
    lengths = (4, 1, 3)
    b = [rng.random((n, K)) + 0.1 for n in lengths]
    ends = None if final is None else torch.as_tensor(final)
    found = log_messages(torch.as_tensor(transition), [torch.as_tensor(each).log() for each in b], ends)
    for each, messages in zip(b, found, strict=True):
        for t in range(len(each)):
            flat = path_probabilities(np.ones(K), transition, each[t:])
            closing = np.ones(K) if final is None else final
            expected = [sum(p * closing[z[-1]] for z, p in flat.items() if z[0] == k) for k in range(K)]
            assert_allclose(messages[t].exp().numpy(), np.divide(expected, sum(expected)), atol=1e-12)


@pytest.mark.parametrize(
    ("options", "y", "message"),
    [
        ({"length": "stop"}, TAGS, "the targets of HMMTagger are as long as their sources"),
        ({"ignore_source": True}, TAGS, "which determine the length of its targets"),
        ({}, None, r"HMMTagger is p\(y \| x\); pass y"),
        ({}, [*TAGS[:3], TAGS[3][:2]], "sequence 3 has 4 steps in X but 2 in y; pass targets with a step for each"),
        ({}, [y[:, None] + 0.5 for y in TAGS], "integers from 0, but y is vectors"),
        ({"observation": sm.Categorical(1.0)}, TAGS, "pass emission="),
        ({"emission": "gaussian"}, TAGS, "emission is 'gaussian'"),
        ({"emission": sm.GaussianMixture(2)}, TAGS, "emits vectors but the sources are symbols"),
        ({"max_iter": -1}, TAGS, "max_iter=-1"),
        ({"n_states_per_label": 0}, TAGS, "n_states_per_label is 0"),
    ],
)
def test_what_cannot_be_is_refused_and_leaves_an_earlier_fit_alone(options: dict, y: Any, message: str) -> None:
    model = sm.HMMTagger(dtype="float64").fit(WORDS, TAGS)
    before, kept = model.log_prob(WORDS, TAGS), model.get_params(deep=False)
    with pytest.raises(ValueError, match=message):
        model.set_params(**options).fit(WORDS, y)
    assert_allclose(model.set_params(**kept).log_prob(WORDS, TAGS), before, rtol=1e-12, atol=1e-12)


def test_counts_are_read_as_counts_and_validation_is_scored_once() -> None:
    X = [np.array([[0.0], [3.0], [4.0]]), np.array([[5.0], [1.0]])]
    y = [np.array([0, 1, 1]), np.array([1, 0])]
    model = sm.HMMTagger(emission=sm.Poisson(), dtype="float64").fit(X, y, validation=(X, y))
    assert_allclose(model.hmm_.rates_[:, 0], [0.5, 4.0])
    assert_allclose(model.history_["validation"].iloc[-1], model.score(X, y))
    with pytest.raises(ValueError, match="leave source_encoding='auto'"):
        sm.HMMTagger(emission=sm.Poisson(), source_encoding=sm.Standardize()).fit(X, y)
