"""Online EM: its figures against sums over all paths and closed forms, and what must not change."""

from __future__ import annotations

import copy
import math
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

import seqmodels as sm
from seqmodels.encodings.raw_data import Data
from seqmodels.wrappers.online_em.model import _folds
from seqmodels.wrappers.online_em.segments import OnlineRule

CHAIN: dict[str, Any] = {
    "initial": [0.6, 0.4],
    "transition": [[0.7, 0.2], [0.3, 0.6]],
    "final": [0.1, 0.1],
    "emission": [[0.6, 0.3, 0.1], [0.1, 0.2, 0.7]],
}
TRAIN = [np.array([0, 0, 1, 2, 2, 0]), np.array([2, 2, 1, 0]), np.array([1, 0, 0, 2, 2])]
TEST = np.array([0, 2, 2, 1, 2, 2, 0, 2])


def online(**options: Any) -> sm.OnlineEM:
    """Around two states of three symbols, with ends."""
    given: dict[str, Any] = {"segment": 3, "prior_steps": 6.0, "decay": 0.25, "dtype": "float64"}
    hmm = sm.HMM.from_parameters(**CHAIN, pseudocount=0.0, dtype="float64")
    return sm.OnlineEM.from_fitted(hmm, **(given | options)).tune(TRAIN)


def path_sums(
    chain: dict[str, np.ndarray], x: np.ndarray, first: np.ndarray
) -> tuple[float, np.ndarray, np.ndarray, np.ndarray]:
    """Of p(x, path) over all paths that begin by ``first (K,)``: the sum, expected transitions, emissions, last."""
    total, xi, emission, last = 0.0, np.zeros((2, 2)), np.zeros((2, 3)), np.zeros(2)
    for path in product(range(2), repeat=len(x)):
        p = first[path[0]] * chain["emission"][path[0], x[0]]
        for a, b, symbol in zip(path, path[1:], x[1:], strict=False):
            p *= chain["transition"][a, b] * chain["emission"][b, symbol]
        total += p
        last[path[-1]] += p
        for a, b in pairwise(path):
            xi[a, b] += p
        for state, symbol in zip(path, x, strict=True):
            emission[state, symbol] += p
    return total, xi / total, emission / total, last / total


def test_symbols_by_sums_over_all_paths() -> None:
    fitted = {name: np.array(value) for name, value in CHAIN.items()}
    xi_train, emission_train, final_train, n = np.zeros((2, 2)), np.zeros((2, 3)), np.zeros(2), 0
    for x in TRAIN:
        xi, emission, last = np.zeros((2, 2)), np.zeros((2, 3)), np.zeros(2)
        weights, parts = [], []
        for path in product(range(2), repeat=len(x)):
            p = fitted["initial"][path[0]] * fitted["final"][path[-1]]
            p *= np.prod([fitted["emission"][z, symbol] for z, symbol in zip(path, x, strict=True)])
            p *= np.prod([fitted["transition"][a, b] for a, b in pairwise(path)])
            weights.append(p)
            parts.append(path)
        total = sum(weights)
        for p, path in zip(weights, parts, strict=True):
            np.add.at(xi, (path[:-1], path[1:]), p / total)
            np.add.at(emission, (path, x), p / total)
            last[path[-1]] += p / total
        xi_train, emission_train, final_train = xi_train + xi, emission_train + emission, final_train + last
        n += len(x)
    chain, predicted, before = fitted, fitted["initial"], np.zeros(2)
    xi_read, emission_read, expected = np.zeros((2, 2)), np.zeros((2, 3)), []
    for begin in range(0, len(TEST), 3):
        x = TEST[begin : begin + 3]
        sums = [1.0, *(path_sums(chain, x[: i + 1], predicted)[0] for i in range(len(x)))]
        expected += np.diff(np.log(sums)).tolist()
        if len(x) < 3:
            break
        _, xi, emission, last = path_sums(chain, x, predicted)
        if begin:  # the transition into the segment
            gamma = np.array([path_sums(chain, x, predicted * (np.arange(2) == z))[0] for z in range(2)])
            gamma /= gamma.sum()
            xi = xi + before[:, None] * chain["transition"] * (gamma / predicted)
        xi_read, emission_read = 0.75 * xi_read + xi, 0.75 * emission_read + emission
        counts = np.column_stack([xi_train + n / 6 * xi_read, final_train])
        counts /= counts.sum(1, keepdims=True)
        table = emission_train + n / 6 * emission_read
        chain = {"transition": counts[:, :2], "final": counts[:, 2], "emission": table / table.sum(1, keepdims=True)}
        before = last
        predicted = last @ chain["transition"]
    _, _, _, last = path_sums(chain, TEST[6:], predicted)
    (steps,) = online().log_prob_steps([TEST])
    assert_allclose(steps[:-1], expected, rtol=0, atol=1e-12)
    assert steps[-1] == pytest.approx(math.log(last @ chain["final"]), abs=1e-12)
    assert np.abs(steps - online().model_.log_prob_steps([TEST])[0])[3:].min() > 1e-3


def test_one_gaussian_is_a_running_mean() -> None:
    rng = np.random.default_rng(0)
    train, test = [rng.normal(5, 2, (40, 1)) for _ in range(3)], rng.normal(9, 1, (12, 1))
    hmm = sm.HMM(1, observation=sm.GaussianMixture(1), encoding=sm.Standardize(), dtype="float64")
    model = sm.OnlineEM(hmm, segment=4, prior_steps=10.0, decay=0.5, dtype="float64").fit(train)
    frames = np.concatenate(train)
    prior = 10 * np.array([1.0, frames.mean(), (frames**2).mean()])
    read, expected = np.zeros(3), []
    for begin in range(0, 12, 4):
        n, first, second = prior + read
        mean, variance = first / n, second / n - (first / n) ** 2
        x = test[begin : begin + 4, 0]
        expected += (-0.5 * (x - mean) ** 2 / variance - 0.5 * np.log(2 * np.pi * variance)).tolist()
        read = 0.5 * read + np.array([4.0, x.sum(), (x**2).sum()])
    assert_allclose(model.log_prob_steps([test])[0], expected, rtol=1e-9)
    assert (model.memory_, model.n_parameters_) == ("adaptive", 4)


def test_one_state_of_a_cursor_goes_on_in_several_ways() -> None:
    """Past the ends of two more segments; sequences that differ are then read with other parameters."""
    model = online(segment=2)
    rng = np.random.default_rng(1)
    start, *ends = rng.integers(3, size=3), *rng.integers(3, size=(3, 5))
    cursor, state = model.cursor(), model.cursor().start(n=2)
    for x in start:
        state = cursor.advance(state, torch.tensor([x, x]))
    rows = cursor.select(state, torch.tensor([1, 0, 1]))
    expected = np.array([model.log_prob_steps([np.append(start, end)])[0][3:] for end in ends])
    for _ in range(2):
        at, found = rows, []
        for x in torch.from_numpy(np.array(ends)).T:
            found.append(cursor.distribution(at).log_prob(x).numpy())
            at = cursor.advance(at, x)
        assert at.groups[0].rows.tolist() == [0]  # and so no longer together
        found.append(cursor.distribution(at).log_end.numpy())
        assert_allclose(np.array(found).T, expected, rtol=0, atol=1e-12)
    picked = cursor.select(at, torch.tensor([2, 0]))
    assert_allclose(
        cursor.distribution(picked).log_probs(), cursor.distribution(at).log_probs()[[2, 0]], rtol=1e-12, atol=1e-12
    )


def test_missing_values_of_an_autoregression() -> None:
    rng = np.random.default_rng(2)
    train = [rng.normal(size=(20, 2)).cumsum(0) for _ in range(2)]
    train[0][4, 1] = np.nan
    hmm = sm.HMM(2, observation=sm.AutoregressiveGaussian(2), n_init=1, max_iter=3, dtype="float64")
    model = sm.OnlineEM(hmm, segment=4, prior_steps=20.0, decay=0.0, dtype="float64").fit(train)
    gaps = [rng.normal(size=(11, 2)).cumsum(0) for _ in range(3)]
    gaps[0][2, 1] = gaps[0][3] = gaps[2][7, 0] = np.nan
    cursor = model.cursor()
    state, found = cursor.start(n=3), []
    for x in torch.from_numpy(np.array([model.encoding_.encode(gap) for gap in gaps])).transpose(0, 1):
        found.append(cursor.distribution(state).log_prob(x).numpy())
        state = cursor.advance(state, x)
    log_dets = np.array([np.broadcast_to(model.encoding_.log_det(gap), len(gap)) for gap in gaps])
    assert_allclose(np.array(found).T + log_dets, model.log_prob_steps(gaps), rtol=0, atol=1e-9)


def test_every_sequence_begins_with_the_fitted_parameters_and_short_ones_teach_nothing() -> None:
    model = online()
    before = {name: array.copy() for name, array in model.model_.parameters_.arrays().items()}
    first, short, again = model.log_prob_steps([TEST, TEST[:2], TEST])
    assert_allclose(first, again, rtol=1e-12, atol=1e-12)
    assert_allclose(short, model.model_.log_prob_steps([TEST[:2]])[0], rtol=1e-12, atol=1e-12)
    assert_allclose(first[:3], model.model_.log_prob_steps([TEST])[0][:3], rtol=0, atol=1e-14)
    for name, array in model.model_.parameters_.arrays().items():
        assert_array_equal(array, before[name])
    endless = online(prior_steps=math.inf)
    assert_allclose(endless.log_prob_steps([TEST])[0], model.model_.log_prob_steps([TEST])[0], rtol=1e-12, atol=1e-12)
    assert endless.cursor().__class__ is model.model_.cursor().__class__


def test_what_is_frozen_or_zero_stays_so() -> None:
    rules: list[OnlineRule] = []
    for frozen in (("transition",), ("emission",), ()):
        model = online(frozen=frozen)
        rule = model._fitted_rule(model._hmm())
        rules.append(rule)
        after = rule.parameters(rule.train)
        assert torch.equal(after.transition, rule.fitted.transition) == ("transition" in frozen)
        assert torch.equal(after.table, rule.fitted.table) == ("emission" in frozen)
    left_to_right = sm.HMM(3, topology="left-to-right", max_iter=3, n_init=1, dtype="float64").fit(TRAIN)
    model = sm.OnlineEM.from_fitted(left_to_right, segment=2, prior_steps=3.0, decay=0.0).tune(TRAIN)
    rule = model._fitted_rule(model._hmm())
    assert not rule.parameters(rule.train).transition.tril(-1).any()


def test_a_segment_of_probability_zero_teaches_nothing() -> None:
    hmm = sm.HMM.from_parameters([1.0], [[1.0]], emission=[[0.7, 0.3, 0.0]], dtype="float64")
    train = [np.array([0, 1, 0, 0])]
    model = sm.OnlineEM.from_fitted(hmm, segment=2, prior_steps=4.0, decay=0.0, dtype="float64").tune(train)
    (steps,) = model.log_prob_steps([np.array([0, 2, 1, 1, 1])])
    assert np.isneginf(steps[1:]).all()
    stream = model.stream()
    assert [stream.update(x) for x in (0, 2)] == [pytest.approx(math.log(0.7)), -math.inf]


def test_float32_is_near_float64() -> None:
    model = online()
    double = model.log_prob_steps([TEST])[0]
    assert_allclose(copy.deepcopy(model).set_params(dtype="float32").log_prob_steps([TEST])[0], double, atol=1e-5)


def test_auto_learns_where_sequences_differ_and_not_where_they_are_alike() -> None:
    def series(seed: int, spread: float) -> np.ndarray:
        rng = np.random.default_rng(seed)
        level = spread * rng.normal(size=(2, 1))
        return level[(rng.random(120) < 0.1).cumsum() % 2] + rng.normal(size=(120, 1))

    hmm = sm.HMM(1, n_init=1, max_iter=2, dtype="float32")  # as OnlineEM computes
    for spread, learns in ((4.0, True), (0.0, False)):
        train = [series(seed, spread) for seed in range(10)]
        model = sm.OnlineEM(hmm, segment=15, decay=0.0).fit(train)
        assert (model.prior_steps_ < math.inf) == learns
        test = [series(100 + seed, spread) for seed in range(3)]
        gain = model.score(test) - model.model_.score(test)
        assert gain > 0.3 if learns else gain == pytest.approx(0.0, abs=1e-5)


def test_what_is_chosen_is_for_clusters_never_met() -> None:
    """Each speaker has a level of its own; within a speaker there is nothing to learn that training had not."""
    rng = np.random.default_rng(5)
    speakers = [s for s in range(6) for _ in range(2)]
    levels = 4 * rng.normal(size=6)
    items = [levels[s] + rng.normal(size=(24, 1)) for s in speakers]
    hmm = sm.HMM(3, n_init=1, max_iter=3)
    model = sm.OnlineEM(hmm, segment=8, decay=0.0).fit(sm.Sequences(items, clusters=speakers))
    folds = _folds(model._setting().examples(Data.of(sm.Sequences(items, clusters=speakers))))
    assert [len(rest) for rest, _ in folds] == [8, 8, 8]
    assert all({e.cluster for e in rest}.isdisjoint(e.cluster for e in out) for rest, out in folds)
    unmet = [9.0 + rng.normal(size=(24, 1)) for _ in range(3)]
    assert model.score(unmet) > model.model_.score(unmet) + 0.5


# -- around a fitted HMM, and what is refused --------------------------------------------------------------------------


def test_a_fitted_hmm_is_wrapped_and_tuned(tmp_path: Any) -> None:
    hmm = sm.HMM(2, max_iter=3, n_init=1, dtype="float64").fit(TRAIN)
    model = sm.OnlineEM.from_fitted(hmm, segment=2, prior_steps=5.0, decay=0.1, dtype="float64")
    with pytest.raises(sm.NotFittedError, match="call tune"):
        model.score(TRAIN)
    with pytest.raises(sm.NotFittedError, match="call tune"):
        model.stream()
    fitted = sm.OnlineEM(hmm.clone(), segment=2, prior_steps=5.0, decay=0.1, dtype="float64").fit(TRAIN)
    assert_allclose(model.tune(TRAIN).log_prob(TRAIN), fitted.log_prob(TRAIN), rtol=1e-9)
    assert model.model_ is hmm
    model.save(tmp_path / "model")
    assert_allclose(sm.load(tmp_path / "model").log_prob([TEST]), model.log_prob([TEST]), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sm.OnlineEM(sm.LSTM()), "LSTM is none; pass an HMM"),
        (lambda: sm.OnlineEM(sm.HMM(), segment=0), "segment is 0; pass at least 1 step"),
        (lambda: sm.OnlineEM(sm.HMM(), prior_steps=0.0), "prior_steps is 0.0; pass a number above 0"),
        (lambda: sm.OnlineEM(sm.HMM(), decay=1.5), "decay is 1.5; pass a part from 0 to 1"),
        (lambda: sm.OnlineEM(sm.HMM(), frozen=("initial",)), "pass a tuple of names among transition, emission"),
        (lambda: sm.OnlineEM(sm.HMM(), frozen="emission"), "pass a tuple of names"),
    ],
)
def test_what_cannot_be_is_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make().fit(TRAIN)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"segment": 0}, "segment is 0 in the file"),
        ({"prior_steps": -1.0}, "prior_steps is -1.0 in the file"),
        ({"n_steps": 0.0}, "n_steps is 0.0 in the file"),
        ({"decay": 2.0}, "decay is 2.0 in the file"),
        ({"xi": np.full((2, 2), np.nan)}, "xi should be finite"),
        ({"xi": np.ones((3, 3))}, "xi"),
        ({"emission": {}}, "there should be 1 statistics"),
        ({"emission": {"0": np.full((2, 3), np.inf)}}, "statistics 0 of the emissions should be finite"),
    ],
)
def test_a_file_with_other_numbers_is_refused(wrong: dict[str, Any], message: str) -> None:
    model = online()
    state = model._state()
    of_train = {name: value for name, value in wrong.items() if name in state["train"]}
    changed = {**state, **wrong, "train": {**state["train"], **of_train}}
    with pytest.raises(ValueError, match=message):
        model._restore(changed)
