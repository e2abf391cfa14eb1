"""Prediction by partial matching: one probability whatever the alphabet; compiled or not, from whatever thread."""

from __future__ import annotations

import importlib.util
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

import seqmodels as sm
from seqmodels import compiled
from seqmodels.generation import histories
from seqmodels.ppm import kernels, tables
from seqmodels.preparation import Data

RNG = np.random.default_rng(0)
X = [np.minimum(RNG.geometric(0.5, n) - 1, 3) for n in (60, 1, 12, 25, 2, 18)]
NEW = [RNG.integers(4, size=n) for n in (40, 1, 7)]


# -- one probability ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", ["given", "stop"])
@pytest.mark.parametrize("n_symbols", [1, 2, 6, 1000])
@pytest.mark.parametrize("adaptive", [True, False])
def test_all_events_sum_to_one_in_any_alphabet(n_symbols: int, length: str, adaptive: bool) -> None:
    x = [np.arange(30) * 7 % n_symbols, np.zeros(3, int), *(each % n_symbols for each in X)]
    new = [np.arange(20) * 3 % n_symbols, *(each % n_symbols for each in NEW)]
    model = sm.PPM(length=length, encoding=sm.Symbols(n_symbols), adaptive=adaptive, dtype="float64").fit(x)
    steps = model.log_prob_steps(new)
    tables_of_all = model._event_log_probs(model._setting().examples(Data.of(new)))
    for item, each, log_p in zip(new, steps, tables_of_all, strict=True):
        assert_allclose(np.exp(log_p).sum(1), 1, rtol=0, atol=1e-12)
        chosen = np.append(item, n_symbols) if length == "stop" else item
        assert_allclose(log_p[np.arange(len(chosen)), chosen], each, rtol=0, atol=1e-12)
        stream = model.stream()
        assert_allclose([stream.update(symbol) for symbol in item], each[: len(item)], rtol=0, atol=1e-12)
    if (n_symbols, length) == (1, "given"):
        assert not steps[0].any()


def test_long_repetitions_fit_in_the_arrays() -> None:
    """The longest chains of contexts, and those with most splits."""
    rng = np.random.default_rng(2)
    fibonacci = [np.array([0]), np.array([0, 1])]
    while len(fibonacci[-1]) < 1000:
        fibonacci.append(np.concatenate([fibonacci[-1], fibonacci[-2]]))
    hard = [
        np.zeros(400, int),
        np.tile([0, 1, 2], 200),
        np.repeat([0, 1], 300),
        fibonacci[-1],
        rng.integers(3, size=900),
    ]
    for train, new in [(hard, hard), (hard[:1], hard), (hard, [np.concatenate(hard)])]:
        model = sm.PPM(encoding=sm.Symbols(3)).fit(train)
        assert all(np.isfinite(each).all() for each in model.log_prob_steps(new))
    fitted = model.ppm_
    assert len(fitted.fitted.states) <= 2 * fitted.n_read + 2
    assert len(fitted.fitted.edges) <= 3 * fitted.n_read + 2
    assert model.score([hard[1]]) > -0.05


def test_contexts_have_no_longest() -> None:
    rng = np.random.default_rng(0)
    key = rng.integers(2, size=60)
    x = np.concatenate([part for bit in rng.integers(2, size=40) for part in ([bit], key, [bit])])
    after_key = np.arange(61, len(x), 62)[20:]
    steps = sm.PPM(length="given", encoding=sm.Symbols(2)).fit([x[:62]]).log_prob_steps([x])[0]
    short = sm.PPM(8, length="given", encoding=sm.Symbols(2)).fit([x[:62]]).log_prob_steps([x])[0]
    assert steps[after_key].mean() > -0.4
    assert short[after_key].mean() < -0.6


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


@pytest.mark.parametrize("options", [{}, {"adaptive": False, "depth": 3, "max_count": 5}])
def test_plain_python_gives_the_same_figures(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    model = sm.PPM(**options).fit(X)
    expected, state = model.log_prob_steps(NEW), model.ppm_.to_state()
    module = plain(monkeypatch)
    assert not hasattr(module.predict, "py_func")
    monkeypatch.setattr(tables, "kernels", module)
    again = sm.PPM(**options).fit(X)
    for each, other in zip(again.log_prob_steps(NEW), expected, strict=True):
        assert_allclose(each, other, rtol=1e-10)
    for name, value in again.ppm_.to_state().items():
        assert_allclose(value, state[name], rtol=1e-10, atol=1e-12)


def test_without_numba_a_long_fit_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    plain(monkeypatch)
    monkeypatch.setattr(compiled, "STEPS_IN_PLAIN_PYTHON", 100)
    with pytest.warns(UserWarning, match=r"reads 124 steps in plain Python.*seqmodels\[adaptive\]"):
        sm.PPM().fit(X)


def test_threads_score_as_one_does() -> None:
    model = sm.PPM().fit(X)
    long = [RNG.integers(4, size=2000) for _ in range(4)]
    expected = model.log_prob(long)
    with ThreadPoolExecutor(4) as pool:
        for each in pool.map(lambda _: model.log_prob(long), range(8)):
            assert_array_equal(each, expected)


@pytest.mark.parametrize("max_logged", [4096, 3])  # what can be undone, and what is read again
@pytest.mark.parametrize("adaptive", [True, False])
def test_states_stay_as_they_were(adaptive: bool, max_logged: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any order of questions to states of many branches gives what a sequence read alone gives."""
    monkeypatch.setattr(histories, "MAX_UNDO", 12)
    monkeypatch.setattr(tables, "MAX_LOGGED", max_logged)
    monkeypatch.setattr(tables, "ROOM", 4)
    rng, model = np.random.default_rng(1), sm.PPM(adaptive=adaptive, length="given", dtype="float64").fit(X)
    cursor = model.cursor()
    states = [(np.zeros(0, int), cursor.start())]
    for _ in range(120):
        row, state = states[rng.integers(len(states))] if rng.random() < 0.3 else states[-1]
        symbol = int(rng.integers(4))
        states.append((np.append(row, symbol), cursor.advance(state, torch.tensor([symbol]))))
        row, state = states[rng.integers(len(states))]
        symbol = int(rng.integers(4))
        step = float(cursor.distribution(state).log_prob(torch.tensor([symbol])))
        assert abs(step - model.log_prob_steps([np.append(row, symbol)])[0][-1]) < 1e-12


# -- learning ----------------------------------------------------------------------------------------------------


def test_it_learns_within_a_sequence_and_forgets_at_its_end() -> None:
    model = sm.PPM().fit(X)
    period = np.tile([3, 0, 3, 1, 2], 30)
    steps = model.log_prob_steps([period, NEW[0], period])
    assert steps[0][100:150].mean() > steps[0][:20].mean() + 0.5
    assert_array_equal(steps[2], steps[0])
    assert_array_equal(steps[1], model.log_prob_steps([NEW[0]])[0])
    frozen = sm.PPM(3, adaptive=False).fit(X)
    assert (frozen.memory_, frozen.context_) == ("static", 3)
    assert (model.memory_, model.context_) == ("adaptive", None)
    assert frozen.log_prob([period])[0] < model.log_prob([period])[0] - 50


def test_a_frozen_model_sees_no_further_than_its_depth() -> None:
    model = sm.PPM(3, adaptive=False, length="given").fit(X)
    a, b = (model.log_prob_steps([np.concatenate([head, X[0][:30]])])[0] for head in (X[3][:9], NEW[0][:9]))
    assert_array_equal(a[12:], b[12:])
    assert (a[9:12] != b[9:12]).any()


def test_weights_repeat_sequences() -> None:
    weighted = sm.PPM().fit(X, sample_weight=[1, 2, 0, 1, 3, 1])
    repeated = sm.PPM().fit([X[i] for i in (0, 1, 1, 3, 4, 4, 4, 5)])
    assert_array_equal(weighted.log_prob(NEW), repeated.log_prob(NEW))
    with pytest.raises(ValueError, match=r"sample_weight has 0.5, but PPM reads whole sequences"):
        sm.PPM().fit(X, sample_weight=[0.5] * len(X))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"depth": -1}, "depth is -1; pass at least 0, or None"),
        ({"shorter_weight": -1.0}, "shorter_weight is -1.0; pass a finite number"),
        ({"max_count": 1}, "max_count is 1; pass at least 2"),
        ({"warm_start": True}, "warm_start=True"),
        ({"observation": sm.Categorical(0.1)}, "leave observation='auto'"),
    ],
)
def test_options_that_cannot_be(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sm.PPM(**options).fit(X)


def test_vectors_are_refused() -> None:
    with pytest.raises(ValueError, match="PPM counts symbols and text, but the sequences are vectors"):
        sm.PPM().fit([np.eye(3)])


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("links", lambda v: np.arange(len(v), dtype=np.int32), "'links' should go"),
        ("lengths", lambda v: v + np.int32(1), "'lengths' should be 0"),
        ("edges", lambda v: v[::-1].copy(), "'edges' should be codes that rise"),
        ("targets", lambda v: v * 0 + np.int32(10**6), "'targets' should be states"),
        ("counts", lambda v: -v, "'counts' has"),
        ("escapes", lambda v: v * np.nan, "'escapes' has nan"),
        ("n_read", lambda v: 1, "'n_read' is 1"),
    ],
)
def test_a_file_of_no_automaton_is_refused(name: str, change: Any, message: str) -> None:
    model = sm.PPM().fit(X)
    state = model.ppm_.to_state()
    with pytest.raises(ValueError, match=message):
        model._restore(state | {name: change(state[name])})


def test_an_automaton_that_is_none_stops_before_it_leaves_its_arrays() -> None:
    x = [np.array([0, k]) for k in range(50)]
    model = sm.PPM(length="given", encoding=sm.Symbols(50)).fit(x)
    state = model.ppm_.to_state()
    # After any context comes one that 50 symbols follow and that is too long: every step splits it.
    widest = 2 + int(np.bincount(state["edges"] // 50)[2:].argmax())
    state["targets"] = np.full_like(state["targets"], widest)
    state["lengths"][2:] += 10**6
    model._restore(state)
    with pytest.raises(ValueError, match="the file that it is from was changed"):
        model.log_prob([np.tile(np.arange(50), 40)])
