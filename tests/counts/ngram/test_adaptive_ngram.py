"""Adaptive n-grams against their definition, counted with dictionaries."""

from __future__ import annotations

from collections import Counter
from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import seqmodels as sm
from seqmodels.counts.ngram.interpolation import BACKOFF_EDGES, SIZE_EDGES, Interpolation, components
from seqmodels.counts.ngram.read_counts import ReadCounts

V = 4
RNG = np.random.default_rng(0)
X = [np.minimum(RNG.geometric(0.5, n) - 1, V - 1) for n in (60, 1, 12, 25, 2, 18, 30, 7, 9, 40, 22)]
NEW = [RNG.integers(V, size=n) for n in (50, 1, 6)]


def by_definition(model: sm.NGram, x: np.ndarray, has_end: bool) -> list[float]:
    """Each step from Counters; trained shares from the fitted tables, one context at a time."""
    tables, weights = model.tables_, model.interpolation_.weights
    row, base = [V, *x.tolist()], V + 1
    outcomes = [*x.tolist(), *([V] if has_end else [])]
    read: dict[tuple[int, ...], Counter[int]] = {}

    def probability(t: int, w: int) -> float:
        p, context_id = 1 / (V + has_end), 0
        for k in range(min(model.order, t + 2)):
            context = tuple(row[t + 1 - k : t + 1])
            level = tables.levels[k]
            if k and context_id >= 0:
                where = np.flatnonzero(level.contexts == context_id * base + context[0])
                context_id = int(where[0]) if len(where) else -1
            trained, f = 0, 0.0
            if context_id >= 0:
                trained = 1 + sum(edge < level.backoff[context_id] for edge in BACKOFF_EDGES)
                where = np.flatnonzero(level.grams == context_id * base + w)
                f = level.share[where[0]] / (1 - level.backoff[context_id]) if len(where) else 0.0
            after = read.get(context, Counter())
            n, seen = after.total(), 0
            if n:
                spread = 0 if len(after) == 1 else 1 if 2 * len(after) <= n else 2
                seen = 1 + 3 * sum(edge <= n for edge in SIZE_EDGES) + spread
            a, b, rest = weights[k, trained, seen]
            p = a * after[w] / max(n, 1) + b * f + rest * p
        return float(p)

    steps = []
    for t, w in enumerate(outcomes):
        first = 1 - probability(0, V) if has_end and t == 0 else 1.0
        steps.append(float(np.log(probability(t, w) / first)))
        for k in range(min(model.order, t + 2)):
            read.setdefault(tuple(row[t + 1 - k : t + 1]), Counter())[w] += 1
    return steps


@pytest.mark.parametrize(
    ("smoothing", "length", "order"), list(product(("kneser-ney", "witten-bell"), ("given", "stop"), (1, 4)))
)
def test_it_is_the_definition(smoothing: str, length: str, order: int) -> None:
    model = sm.NGram(order, smoothing=smoothing, length=length, adaptive=True).fit(X)
    for x, steps in zip(NEW, model.log_prob_steps(NEW), strict=True):
        assert_allclose(steps, by_definition(model, x, length == "stop"), rtol=1e-12)


def test_all_symbols_and_the_end_sum_to_one_after_any_context() -> None:
    model = sm.NGram(3, adaptive=True, encoding=sm.Symbols(V + 2), dtype="float64").fit(X)  # two were never seen
    for prefix in product(range(V + 2), repeat=3):
        p = model.predict_next(np.array([0, 5, *prefix])).probs.numpy()
        assert abs(p.sum() - 1) < 1e-13
        assert (p > 0).all()


@pytest.mark.parametrize("n_symbols", [1, 1000])
def test_alphabets_of_any_size(n_symbols: int) -> None:
    x = [np.arange(40) * 7 % n_symbols, np.zeros(3, int)]
    model = sm.NGram(4, adaptive=True, encoding=sm.Symbols(n_symbols)).fit(x)
    assert all(np.isfinite(each).all() for each in model.log_prob_steps(x))
    assert abs(model.predict_next(x[1]).probs.numpy().sum() - 1) < 1e-6


def test_each_step_of_em_raises_the_probability_of_what_is_held_out() -> None:
    rng = np.random.default_rng(2)
    tables = sm.NGram(1, length="given").fit(X).tables_
    event = np.tile([0, 3, 3, 1], 50)
    total = np.arange(len(event))
    count = ReadCounts(total, np.minimum(total, 3), np.where(event == 3, total // 2, total // 4))
    levels = components(tables, [np.zeros(len(event), np.int64)], event, [count])
    weights = rng.integers(1, 4, len(event)).astype(float)
    before = Interpolation.before_learning(1)

    def log_prob(interpolation: Interpolation) -> float:
        return float(weights @ np.log(interpolation.probability(levels, tables.uniform)))

    learned = before.learn(levels, tables.uniform, weights)
    assert log_prob(learned) > log_prob(before) + 1
    assert_allclose(learned.weights.sum(-1), 1, rtol=1e-12)
    unseen = learned.weights[0, 0]  # of trained contexts that are not there
    assert_allclose(unseen, before.weights[0, 0], rtol=1e-12)


def test_it_learns_within_a_sequence_and_forgets_at_its_end() -> None:
    model, static = (sm.NGram(4, adaptive=adaptive).fit(X) for adaptive in (True, False))
    period = np.tile([3, 0, 3, 1, 2], 30)
    steps = model.log_prob_steps([period, NEW[0], period])
    assert steps[0][100:150].mean() > steps[0][:20].mean() + 0.5
    assert_array_equal(steps[2], steps[0])
    assert_array_equal(steps[1], model.log_prob_steps([NEW[0]])[0])
    assert model.log_prob([period])[0] > static.log_prob([period])[0] + 50
    assert (model.memory_, model.context_, static.memory_, static.context_) == ("adaptive", None, "static", 3)


def test_weights_of_few_sequences_are_learned_on_tails_given_what_came_before() -> None:
    x = np.arange(3000) % 60  # each symbol comes 45 times before the last tenth, and 5 times in it
    model = sm.NGram(2, adaptive=True, encoding=sm.Symbols(60), length="given").fit([x])
    prior = Interpolation.before_learning(2).weights[1]
    has_learned = (np.abs(model.interpolation_.weights[1] - prior).max(-1) > 1e-3).any(0)  # by class of what was read
    sizes = np.searchsorted(SIZE_EDGES, [5, 45, 50], side="right")
    assert [bool(has_learned[1 + 3 * k]) for k in sizes] == [False, True, True]


def test_what_was_fitted_static_is_not_made_adaptive_by_a_setting() -> None:
    model = sm.NGram(2).fit(X)
    with pytest.raises(ValueError, match="fitted with adaptive=False; fit it anew"):
        model.set_params(adaptive=True).score(X)
    adaptive = sm.NGram(2, adaptive=True).fit(X)
    static = sm.NGram(2).fit(X)
    assert_array_equal(adaptive.set_params(adaptive=False).log_prob(NEW), static.log_prob(NEW))


def test_weights_of_a_file_are_checked() -> None:
    model = sm.NGram(2, adaptive=True).fit(X)
    state = model._state()
    weights = state["interpolation"]["weights"].copy()
    weights[0, 0, 0] = [0, 0.5, 0.5]
    with pytest.raises(ValueError, match="contexts that were never seen"):
        model._restore({**state, "interpolation": {"weights": weights}})
    with pytest.raises(ValueError, match="should sum to one"):
        model._restore({**state, "interpolation": {"weights": 0.9 * weights}})
