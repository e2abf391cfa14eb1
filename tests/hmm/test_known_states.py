"""States that are known: exact by enumeration, counted where all are, refused where they do not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from seqmodels import HMM, Categorical, GaussianMixture
from tests.inference.chains.enumeration import path_probabilities
from tests.made import made

K = 3
X = [np.array([0, 2, 1, 1, 0]), np.array([1, 0, 2]), np.array([2, 2])]
KNOWN: list[Any] = [np.array([-1, 2, -1, 0, -1]), None, np.array([1, -1])]


POSSIBLE: list[Any] = [np.array([[1, 1, 0], [0, 1, 1], [1, 1, 1], [1, 0, 0], [0, 0, 1]], bool), None, np.array([1, -1])]


def first(length: Any) -> HMM:
    return HMM(K, length=length, max_iter=0, dtype="float64").fit(X)


def restricted(model: HMM, item: np.ndarray, known: np.ndarray | None) -> dict[tuple[int, ...], float]:
    """The paths that agree with what is known, and their joint probabilities with the end."""
    paths = path_probabilities(model.initial_, model.transition_, model.emission_[:, item].T)
    ends = model.final_ if model.length_ == "stop" else np.ones(K)
    known = np.full(len(item), -1) if known is None else known
    allowed = known if known.ndim == 2 else [[k in (-1, s) for s in range(K)] for k in known]
    return {z: p * ends[z[-1]] for z, p in paths.items() if all(row[s] for row, s in zip(allowed, z, strict=True))}


@pytest.mark.parametrize("algorithm", ["em", "stepwise"])
@pytest.mark.parametrize("length", ["given", "stop"])
@pytest.mark.parametrize("states", [KNOWN, POSSIBLE], ids=["known", "possible"])
def test_one_step_by_the_paths_that_agree(length: Any, algorithm: Any, states: list[Any]) -> None:
    start = first(length)
    p = (start.initial_, start.transition_, start.final_ if length == "stop" else None)
    options: dict[str, Any] = {"warm_start": True, "max_iter": 1, "dtype": "float64", "pseudocount": 0.0}
    model = made(HMM.from_parameters, *p, emission=start.emission_, algorithm=algorithm, training__batches=1, **options)
    model.fit(X, states=states)
    starts, arcs, ends, emitted, total = np.zeros(K), np.zeros((K, K)), np.zeros(K), np.zeros((K, 3)), 0.0
    for item, known in zip(X, states, strict=True):
        paths = restricted(start, item, known)
        mass = sum(paths.values())
        total += np.log(mass)
        for z, share in ((z, q / mass) for z, q in paths.items()):
            starts[z[0]] += share
            ends[z[-1]] += share
            np.add.at(arcs, (z[:-1], z[1:]), share)
            np.add.at(emitted, (z, item), share)
    rows = np.column_stack([arcs, ends if length == "stop" else np.zeros(K)])
    assert_allclose(model.initial_, starts / starts.sum(), rtol=1e-9)
    assert_allclose(model.transition_, (rows / rows.sum(1, keepdims=True))[:, :K], rtol=1e-9)
    assert_allclose(model.final_, (rows / rows.sum(1, keepdims=True))[:, K], rtol=1e-9)
    assert_allclose(model.emission_, emitted / emitted.sum(1, keepdims=True), rtol=1e-9, atol=1e-15)
    assert_allclose(model.history_["log_prob"][0] * sum(map(len, X)), total, rtol=1e-10)


def test_all_known_is_counting() -> None:
    rng = np.random.default_rng(0)
    z = [rng.integers(K, size=n) for n in (30, 10, 1)]
    x = [np.array([[1.0, 0], [0, 3], [-2, 1]])[s] + rng.normal(size=(len(s), 2)) for s in z]
    model = HMM(K, observation=GaussianMixture(1), max_iter=2, dtype="float64").fit(x, states=z)
    frames, states = np.concatenate(x), np.concatenate(z)
    arcs = np.zeros((K, K))
    for s in z:
        np.add.at(arcs, (s[:-1], s[1:]), 1)
    assert_allclose(model.initial_, np.bincount([s[0] for s in z], minlength=K) / 3, atol=1e-12)
    assert_allclose(model.transition_, arcs / arcs.sum(1, keepdims=True), rtol=1e-10, atol=1e-14)
    for k in range(K):
        assert_allclose(model.means_[k, 0], frames[states == k].mean(0), rtol=1e-9)
        assert_allclose(model.covariances_[k, 0], frames[states == k].var(0), rtol=1e-9)


def test_a_few_labels_say_which_state_is_which() -> None:
    """A frame in fifty is labelled; EM then names the states as the labels do, whatever the seed."""
    rng = np.random.default_rng(1)
    z = [np.repeat(rng.integers(K, size=20), 10) for _ in range(3)]
    x = [np.array([[0.0, 0], [0, 8], [8, 0]])[s] + rng.normal(size=(len(s), 2)) for s in z]
    known = [np.where(np.arange(len(s)) % 50 == 3, s, -1) for s in z]
    known[0][:30] = z[0][:30]
    for seed in (0, 1):
        model = HMM(K, observation=GaussianMixture(1), random_state=seed).fit(x, states=known)
        assert np.mean(np.concatenate(model.decode(x)) == np.concatenate(z)) > 0.99


def test_the_objective_rises_with_labels() -> None:
    model = HMM(K, max_iter=10, tol=0, dtype="float64", topology="left-to-right", observation=Categorical(0.1))
    model.fit(X, states=[np.array([0, -1, -1, 1, -1]), None, None])
    assert (np.diff(model.history_["objective"]) >= -1e-12).all()


@pytest.mark.parametrize(
    ("states", "message"),
    [
        ([None, None], "3 sequences but 2 arrays of states"),
        ([None, np.zeros(4, dtype=int), None], r"states of sequence 1 have shape \(4,\).*its 3 encoded steps"),
        ([np.zeros(5), None, None], "type float64"),
        ([np.full(5, 3), None, None], "go from 3 to 3; pass 0 to 2"),
        ([np.full(5, -2), None, None], "go from -2 to -2"),
        (
            [None, np.ones((3, 2), dtype=bool), None],
            r"states of sequence 1 have shape \(3, 2\).*booleans of shape \(3, 3\)",
        ),
        ([None, np.ones((3, 3)), None], "type float64; pass booleans"),
        ([None, np.eye(3, dtype=bool) & [1, 0, 1] > 0, None], "states of sequence 1 allow none at step 1"),
    ],
)
def test_states_that_do_not_fit_are_named(states: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        HMM(K).fit(X, states=states)


def test_labels_that_the_topology_rules_out_are_named() -> None:
    with pytest.raises(ValueError, match=r"sequence 1 has probability zero.*states"):
        HMM(K, topology="left-to-right").fit(X, states=[None, np.array([1, 0, 0]), None])
