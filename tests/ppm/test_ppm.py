"""Prediction by partial matching against the definition: a table of counts for every string, written out."""

from __future__ import annotations

import importlib.util
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
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
from seqmodels.ppm.kernels import PPMRule, depth_class, share_class, size_class
from seqmodels.preparation import Data

RNG = np.random.default_rng(0)
X = [np.minimum(RNG.geometric(0.5, n) - 1, 3) for n in (60, 1, 12, 25, 2, 18)]
NEW = [RNG.integers(4, size=n) for n in (40, 1, 7)]
START = -1
Context = tuple[int, ...]


# -- the definition ----------------------------------------------------------------------------------------------


@dataclass
class Definition:
    """Counts of what followed every string, each by itself; strings that ended at the same places are tried once."""

    n_outcomes: int
    end: int
    rule: PPMRule
    escapes: np.ndarray
    counts: dict[Context, dict[int, float]] = field(default_factory=dict)
    places: dict[Context, list[tuple[int, int]]] = field(default_factory=dict)
    n_sequences: int = 0

    def read(self, source: list[int], outcomes: list[int]) -> list[float]:
        """The log-probability of each event of a sequence."""
        history, log_probs = [START], []
        self.n_sequences += 1
        self.places.setdefault((), []).append((self.n_sequences, 0))  # the empty context is before the start too
        self._end_at(history)
        for symbol in source:
            history.append(symbol)
            self._end_at(history)
        for t, outcome in enumerate(outcomes):
            log_probs.append(self._event(history, outcome, {self.end} - {-1} if t == 0 else set()))
            history.append(outcome)
            self._end_at(history)
        return log_probs

    def _end_at(self, history: list[int]) -> None:
        for n in range(len(history) + 1):
            self.places.setdefault(tuple(history[len(history) - n :]), []).append((self.n_sequences, len(history)))

    def _event(self, history: list[int], outcome: int, excluded: set[int]) -> float:
        suffixes = [tuple(history[len(history) - n :]) for n in range(len(history) + 1)]
        groups: list[list[Context]] = []  # from the longest
        for suffix in suffixes[::-1]:
            if groups and self.places[groups[-1][-1]] == self.places[suffix]:
                groups[-1].append(suffix)
            else:
                groups.append([suffix])
        groups = [group for group in groups if len(group[-1]) <= self.rule.max_depth]
        reached, log_prob, n_before, novel = 0.0, None, 0, []
        for i, group in enumerate(groups):
            counts = self.counts.get(group[0], {})
            here = {x: c for x, c in counts.items() if x not in excluded}
            below = self.counts.get(groups[i + 1][0], {}) if i + 1 < len(groups) else {}
            if not here:
                novel.append((group, reached))
                continue
            escape = self._escape(here, below, excluded, len(group[-1]), n_before, outcome)
            shares = {x: below.get(x, 0.0) for x in here}
            weight = self.rule.shorter_weight if len(here) > 1 and sum(shares.values()) else 0.0
            if outcome in here:
                share = shares[outcome] / (sum(shares.values()) or 1.0)
                p = (1 - escape) * (here[outcome] + weight * share) / (sum(here.values()) + weight)
                log_prob = reached + math.log(p)
                self._count(group, outcome, counts[outcome] + 1)
                self._halve(group, outcome)
                if outcome in below:
                    self._count(groups[i + 1], outcome, below[outcome] + self.rule.shorter_update)
                break
            reached += math.log(escape)
            novel.append((group, reached))
            n_before, excluded = len(here), excluded | set(here)
        if log_prob is None:
            log_prob = reached - math.log(self.n_outcomes - len(excluded))
        for group, before in novel:
            p = math.exp(log_prob - before)
            self._count(group, outcome, self.rule.first_count + self.rule.inherited * p)
        return log_prob

    def _count(self, group: list[Context], outcome: int, count: float) -> None:
        for context in group:
            counts = self.counts.setdefault(context, {})
            counts[outcome] = count

    def _halve(self, group: list[Context], outcome: int) -> None:
        for context in group:
            counts = self.counts[context]
            if counts[outcome] > self.rule.max_count:
                counts.update({x: 0.5 * c for x, c in counts.items()})

    def _escape(
        self, here: dict[int, float], below: dict[int, float], excluded: set[int], depth: int, before: int, outcome: int
    ) -> float:
        if len(excluded) + len(here) == self.n_outcomes:
            return 0.0
        among = sum(c for x, c in below.items() if x in here)
        others = [c for x, c in below.items() if x not in here and x not in excluded]
        n, total, length = min(len(here), 15), sum(here.values()), depth_class(depth)
        share = min(len(here), 3) * 4 + min(size_class(total) // 2, 3)
        cells = [
            (0, n, size_class(total * 2), length),
            (1, share_class(among, sum(others)), share, length),
            (2, size_class(float(len(others))), size_class(among + sum(others)), n),
            (3, min(before, 15), n, length),
        ]
        escape = 1 / (1 + math.exp(-sum(self.escapes[cell] for cell in cells)))
        for cell in cells:
            self.escapes[cell] += self.rule.escape_rate * ((outcome not in here) - escape)
        return escape


@pytest.mark.parametrize(
    ("length", "options"), [("stop", {}), ("given", {"depth": 2}), ("stop", {"shorter_weight": 0.0, "max_count": 4})]
)
def test_it_is_the_definition(length: str, options: dict[str, Any]) -> None:
    model = sm.PPM(length=length, **options)
    y = [NEW[0] % 2, X[3], X[0], X[3]]
    source = [np.array([0, 1]), np.array([3]), np.array([0, 0, 1]), np.array([2])]
    model.fit(source, y)
    end = 4 if length == "stop" else -1
    written = Definition(4 + (end > 0), end, model._rule(), kernels.initial_escapes())
    after = [] if end < 0 else [end]
    read = [sum(written.read(s.tolist(), [*x.tolist(), *after])) for s, x in zip(source, y, strict=True)]
    assert_allclose(model.history_["log_prob"].iloc[0] * sum(map(len, y)), sum(read), rtol=1e-10)
    assert_allclose(model.ppm_.escapes, written.escapes, rtol=1e-9, atol=1e-12)
    written.rule = written.rule._replace(escape_rate=0.0)
    (found,) = model.log_prob_steps([source[2]], [X[0]])
    assert_allclose(found, written.read(source[2].tolist(), [*X[0].tolist(), *after]), rtol=1e-10)


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
