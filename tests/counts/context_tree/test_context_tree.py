"""Context trees against the definition: a mixture over all trees of contexts, written out."""

from __future__ import annotations

import importlib.util
import math
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

import seqmodels as sm
from seqmodels.common import compiled
from seqmodels.counts.base import learner
from seqmodels.counts.context_tree import kernels, tables
from seqmodels.counts.context_tree import model as model_module
from seqmodels.counts.context_tree.decomposition import Decomposition

RNG = np.random.default_rng(0)
X = [np.minimum(RNG.geometric(0.5, n) - 1, 3) for n in (60, 1, 12, 25, 2, 18)]
NEW = [RNG.integers(4, size=n) for n in (40, 1, 7)]
START = "start"
Context = tuple[object, ...]


# -- the definition ----------------------------------------------------------------------------------------------


def trees(context: Context, depth: int, alphabet: tuple[object, ...]) -> list[tuple[float, list[Context]]]:
    """Every tree of contexts below one (the last symbol first): its prior probability, and its leaves."""
    if len(context) == depth or context[-1:] == (START,):
        return [(1.0, [context])]
    below = [trees((*context, symbol), depth, alphabet) for symbol in alphabet]
    split = [
        (0.5 * math.prod(p for p, _ in parts), [leaf for _, leaves in parts for leaf in leaves])
        for parts in product(*below)
    ]
    return [(0.5, [context]), *split]


def krichevsky_trofimov(bits: list[int]) -> float:
    """The probability of bits: ``(c + 1/2) / (n + 1)`` each."""
    p, counts = 1.0, [0.5, 0.5]
    for bit in bits:
        p *= counts[bit] / sum(counts)
        counts[bit] += 1
    return p


def mixture(rows: list[np.ndarray], depth: int) -> float:
    """The probability of binary sequences, each after a start symbol."""
    total = 0.0
    for prior, leaves in trees((), depth, (0, 1, START)):
        seen: dict[Context, list[int]] = {leaf: [] for leaf in leaves}
        for row in rows:
            for t, bit in enumerate(row.tolist()):
                past = (*row[:t][::-1].tolist(), START)
                leaf = next(past[:k] for k in range(depth + 1) if past[:k] in seen)
                seen[leaf].append(bit)
        total += prior * math.prod(krichevsky_trofimov(bits) for bits in seen.values())
    return total


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_it_is_the_mixture_over_all_trees(depth: int) -> None:
    train, new = [np.array([0, 1, 1, 0, 1]), np.array([1, 1])], np.array([0, 1, 0, 0, 1, 1])
    model = sm.ContextTree(depth, weighting="bayes", length="given", encoding=sm.Symbols(2)).fit(train)
    first = sum(len(row) for row in train)
    assert_allclose(model.history_["log_prob"].iloc[0] * first, math.log(mixture(train, depth)), rtol=1e-6)
    expected = math.log(mixture([*train, new], depth) / mixture(train, depth))
    assert_allclose(model.log_prob([new])[0], expected, rtol=1e-6)


# -- one probability ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"weighting": "bayes"}, {"adaptive": False}, {"max_count": 3}])
def test_all_symbols_and_the_end_sum_to_one_after_any_context(options: dict[str, Any]) -> None:
    model = sm.ContextTree(3, encoding=sm.Symbols(6), dtype="float64", **options).fit(X)  # two were never seen
    for prefix in product(range(6), repeat=2):
        p = model.predict_next(np.array([0, 1, *prefix])).probs.numpy()
        assert p.shape == (7,)
        assert abs(p.sum() - 1) < 1e-13
        assert (p > 0).all()


@pytest.mark.parametrize("length", ["given", "stop"])
@pytest.mark.parametrize("n_symbols", [1, 2, 1000])
def test_alphabets_of_any_size(n_symbols: int, length: str) -> None:
    x = [np.arange(20) * 7 % n_symbols, np.zeros(3, int)]
    model = sm.ContextTree(length=length, encoding=sm.Symbols(n_symbols), dtype="float64").fit(x)
    steps = model.log_prob_steps(x)
    assert all(np.isfinite(each).all() for each in steps)
    stream = model.stream()
    streamed = [stream.update(symbol) for symbol in x[0]]
    assert_allclose(streamed, steps[0][:20], rtol=0, atol=1e-12)
    assert abs(model.predict_next(x[1]).probs.numpy().sum() - 1) < 1e-12
    if (n_symbols, length) == (1, "given"):
        assert not steps[0].any()


def test_large_alphabets_are_read_and_larger_ones_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    x = [np.array([0, 50_000, 0, 3])]
    assert np.isfinite(sm.ContextTree(1).fit(x).log_prob(x)).all()
    assert model_module.MAX_SYMBOLS > 10**6
    monkeypatch.setattr(model_module, "MAX_SYMBOLS", 50_000)
    with pytest.raises(ValueError, match=r"are 0 to 50,000, but ContextTree, .* at most 50,000; .*or use NGram"):
        sm.ContextTree().fit(x)


def test_a_tree_of_decisions_is_huffmans() -> None:
    tree = Decomposition.of_counts(np.array([10, 0, 3, 2, 0]))
    first = tree.paths.first
    assert np.diff(first).tolist() == [1, 4, 2, 3, 4]


# -- one function, whoever runs it -------------------------------------------------------------------------------


def plain(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The kernels as they are without numba."""
    monkeypatch.setattr(compiled, "is_compiling", lambda: False)
    spec = importlib.util.spec_from_file_location("plain_kernels", Path(kernels.__file__))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("options", [{}, {"weighting": "bayes"}, {"adaptive": False, "max_count": 5}])
def test_plain_python_gives_the_same_figures(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    model = sm.ContextTree(3, **options).fit(X)
    expected, tree = model.log_prob_steps(NEW), model.tree_.to_state()
    module = plain(monkeypatch)
    assert not hasattr(module.predict, "py_func")
    monkeypatch.setattr(tables, "kernels", module)
    again = sm.ContextTree(3, **options).fit(X)
    for each, other in zip(again.log_prob_steps(NEW), expected, strict=True):
        assert_allclose(each, other, rtol=1e-9)
    assert_array_equal(again.tree_.to_state()["record_keys"], tree["record_keys"])
    assert_allclose(again.tree_.to_state()["values"], tree["values"], rtol=1e-5, atol=1e-6)


def test_without_numba_a_long_fit_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    plain(monkeypatch)
    monkeypatch.setattr(compiled, "STEPS_IN_PLAIN_PYTHON", 100)
    with pytest.warns(UserWarning, match=r"reads 124 steps in plain Python.*pip install numba"):
        sm.ContextTree(1).fit(X)


def test_small_tables_and_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = sm.ContextTree(4).fit(X).log_prob_steps(NEW)
    monkeypatch.setattr(tables, "SMALLEST", 1)
    monkeypatch.setattr(tables, "STEPS_AT_ONCE", 7)
    for each, other in zip(sm.ContextTree(4).fit(X).log_prob_steps(NEW), expected, strict=True):
        assert_array_equal(each, other)


def test_threads_score_as_one_does() -> None:
    model = sm.ContextTree(4).fit(X)
    long = [RNG.integers(4, size=2000) for _ in range(4)]
    expected = model.log_prob(long)
    with ThreadPoolExecutor(4) as pool:
        for each in pool.map(lambda _: model.log_prob(long), range(8)):
            assert_array_equal(each, expected)


def test_states_share_what_was_learned_and_stay_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any order of questions to states of many branches gives what a sequence read alone gives."""
    monkeypatch.setattr(learner, "MAX_UNDO", 12)
    rng, models = np.random.default_rng(1), [sm.ContextTree(3), sm.NGram(3, adaptive=True)]
    for model in models:
        model.set_params(length="given", dtype="float64").fit(X)
        cursor = model.cursor()
        states = [(np.zeros(0, int), cursor.start())]
        for _ in range(80):
            row, state = states[rng.integers(len(states))] if rng.random() < 0.3 else states[-1]
            symbol = int(rng.integers(4))
            states.append((np.append(row, symbol), cursor.advance(state, torch.tensor([symbol]))))
            row, state = states[rng.integers(len(states))]
            symbol = int(rng.integers(4))
            step = float(cursor.distribution(state).log_prob(torch.tensor([symbol])))
            assert abs(step - model.log_prob_steps([np.append(row, symbol)])[0][-1]) < 1e-12


# -- learning ----------------------------------------------------------------------------------------------------


def test_it_learns_within_a_sequence_and_forgets_at_its_end() -> None:
    model = sm.ContextTree(3).fit(X)
    period = np.tile([3, 0, 3, 1, 2], 30)
    steps = model.log_prob_steps([period, NEW[0], period])
    assert steps[0][100:150].mean() > steps[0][:20].mean() + 0.5
    assert_array_equal(steps[2], steps[0])
    assert_array_equal(steps[1], model.log_prob_steps([NEW[0]])[0])
    frozen = sm.ContextTree(3, adaptive=False).fit(X)
    assert (frozen.memory_, frozen.context_) == ("static", 3)
    assert (model.memory_, model.context_) == ("adaptive", None)
    assert frozen.log_prob([period])[0] < model.log_prob([period])[0] - 50


def test_weights_repeat_sequences() -> None:
    weighted = sm.ContextTree(2).fit(X, sample_weight=[1, 2, 0, 1, 3, 1])
    repeated = sm.ContextTree(2).fit([X[i] for i in (0, 1, 1, 3, 4, 4, 4, 5)])
    assert_array_equal(weighted.log_prob(NEW), repeated.log_prob(NEW))
    with pytest.raises(ValueError, match=r"sample_weight has 0.5, but ContextTree reads whole sequences"):
        sm.ContextTree(2).fit(X, sample_weight=[0.5] * len(X))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"depth": -1}, "depth is -1; pass at least 0"),
        ({"weighting": "equal"}, "weighting is 'equal'; pass 'gated' or 'bayes'"),
        ({"max_count": 1}, "max_count is 1; pass at least 2"),
        ({"warm_start": True}, "warm_start=True"),
        ({"observation": sm.Categorical(0.1)}, "leave observation='auto'"),
    ],
)
def test_options_that_cannot_be(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sm.ContextTree(**options).fit(X)


def test_vectors_are_refused() -> None:
    with pytest.raises(ValueError, match="ContextTree counts symbols and text, but the sequences are vectors"):
        sm.ContextTree().fit([np.eye(3)])


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("record_keys", np.array([3, 2]), "'record_keys' should be increasing"),
        ("values", np.array([[1, -1, 0]], np.float32), "'values' has"),
        ("gates", np.full((3, kernels.N_CLASSES, kernels.N_CLASSES), np.nan), "'gates' has nan"),
        ("children", np.array([[0, -1], [-2, -3], [-4, -5], [-1, -1]]), "'children' should be a binary tree"),
    ],
)
def test_a_file_of_no_tree_is_refused(name: str, value: np.ndarray, message: str) -> None:
    model = sm.ContextTree(2).fit(X)
    state = model.tree_.to_state()
    for records in ("record_keys", "values"):
        state[records] = state[records][: len(value)]
    with pytest.raises(ValueError, match=message):
        model._restore(state | {name: value})
