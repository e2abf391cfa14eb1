"""Prediction by partial matching against the definition: a table of counts for every string, written out."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import seqmodels as sm

START = -1
Context = tuple[int, ...]
Cell = tuple[int, int, int, int]


def half_octaves(count: float) -> int:
    """From a half on, 15 at most; 0 of nothing."""
    return min(max(math.floor(2 * math.log2(count) + 2.001), 0), 15) if count > 0 else 0


def length_class(length: int) -> int:
    """Above ten two lengths are alike."""
    return min(length if length < 10 else 5 + length // 2, 15)


def odds_class(among: float, outside: float) -> int:
    """Two thirds of an octave; 8 where both are alike."""
    return min(max(math.floor(1.5 * math.log2((among + 0.1) / (outside + 0.1)) + 8.5), 0), 15)


def log_odds_at_first(cell: Cell) -> float:
    """Of an escape: of symbols that followed to how often they did; the other tables begin at 0."""
    table, n_symbols, double_count, _ = cell
    return math.log(max(n_symbols, 1) / 2 ** (double_count / 2 - 1.75)) if table == 0 else 0.0


@dataclass
class Definition:
    """Counts of what followed every string, each by itself; strings that ended at the same places are tried once.

    Args:
        n_outcomes: symbols, and the end.
        end: its number, which is not the first event; -1: there is none.
    """

    n_outcomes: int
    end: int
    max_depth: float = math.inf
    shorter_weight: float = 8.0
    max_count: float = 255.0
    escape_rate: float = 0.02  # 0 after the fit
    escapes: dict[Cell, float] = field(default_factory=dict)
    counts: dict[Context, dict[int, float]] = field(default_factory=dict)
    places: dict[Context, list[tuple[int, int]]] = field(default_factory=dict)
    n_sequences: int = 0
    learns: bool = True

    def read(self, source: list[int], outcomes: list[int], *, learns: bool = True) -> list[float]:
        """The log-probability of each event of a sequence."""
        self.learns = learns
        history, log_probs = [START], []
        self.n_sequences += 1
        self._end_at([])  # the empty context is before the start too
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
        if not self.learns:
            return
        for n in range(len(history) + 1):
            self.places.setdefault(tuple(history[len(history) - n :]), []).append((self.n_sequences, len(history)))

    def _event(self, history: list[int], outcome: int, excluded: set[int]) -> float:
        suffixes = [tuple(history[len(history) - n :]) for n in range(len(history) + 1)]
        suffixes = [suffix for suffix in suffixes if suffix in self.places]
        groups: list[list[Context]] = []  # from the longest
        for suffix in suffixes[::-1]:
            if groups and self.places[groups[-1][-1]] == self.places[suffix]:
                groups[-1].append(suffix)
            else:
                groups.append([suffix])
        groups = [group for group in groups if len(group[-1]) <= self.max_depth]
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
            weight = self.shorter_weight if len(here) > 1 and sum(shares.values()) else 0.0
            if outcome in here:
                share = shares[outcome] / (sum(shares.values()) or 1.0)
                p = (1 - escape) * (here[outcome] + weight * share) / (sum(here.values()) + weight)
                log_prob = reached + math.log(p)
                self._count(group, outcome, counts[outcome] + 1)
                self._halve(group, outcome)
                if outcome in below:
                    self._count(groups[i + 1], outcome, below[outcome] + 0.5)
                break
            reached += math.log(escape)
            novel.append((group, reached))
            n_before, excluded = len(here), excluded | set(here)
        if log_prob is None:
            log_prob = reached - math.log(self.n_outcomes - len(excluded))
        for group, before in novel:
            p = math.exp(log_prob - before)
            self._count(group, outcome, 0.2 + 3 * p)
        return log_prob

    def _count(self, group: list[Context], outcome: int, count: float) -> None:
        for context in group if self.learns else ():
            counts = self.counts.setdefault(context, {})
            counts[outcome] = count

    def _halve(self, group: list[Context], outcome: int) -> None:
        for context in group if self.learns else ():
            counts = self.counts[context]
            if counts[outcome] > self.max_count:
                counts.update({x: 0.5 * c for x, c in counts.items()})

    def _escape(
        self, here: dict[int, float], below: dict[int, float], excluded: set[int], depth: int, before: int, outcome: int
    ) -> float:
        if len(excluded) + len(here) == self.n_outcomes:
            return 0.0
        among = sum(c for x, c in below.items() if x in here)
        others = [c for x, c in below.items() if x not in here and x not in excluded]
        n, total, length = min(len(here), 15), sum(here.values()), length_class(depth)
        share = min(len(here), 3) * 4 + min(half_octaves(total) // 2, 3)
        cells: list[Cell] = [
            (0, n, half_octaves(total * 2), length),
            (1, odds_class(among, sum(others)), share, length),
            (2, half_octaves(float(len(others))), half_octaves(among + sum(others)), n),
            (3, min(before, 15), n, length),
        ]
        escape = 1 / (1 + math.exp(-sum(self.escapes.setdefault(cell, log_odds_at_first(cell)) for cell in cells)))
        for cell in cells:
            self.escapes[cell] += self.escape_rate * ((outcome not in here) - escape)
        return escape


RNG = np.random.default_rng(0)
SOME = [np.minimum(RNG.geometric(0.5, n) - 1, 3) for n in (60, 1, 12, 25, 2, 18)]
PERIOD = np.tile([2, 0, 1, 1, 0], 14)
FIBONACCI = np.array([int(c) for c in "0100101001001010010100100101001001"])
# Name: the alphabet, training sequences, a new one.
DATA: dict[str, tuple[int, list[np.ndarray], np.ndarray]] = {
    "some": (4, SOME, RNG.integers(4, size=30)),
    "many symbols": (60, [RNG.integers(60, size=50), RNG.integers(40, 60, size=30)], RNG.integers(60, size=30)),
    "one symbol": (1, [np.zeros(5, int), np.zeros(1, int)], np.zeros(4, int)),
    "runs and periods": (3, [PERIOD, np.zeros(40, int), PERIOD[3:30]], np.concatenate([PERIOD[:33], [1] * 30, PERIOD])),
    "few are read": (5, [np.array([k]) for k in (0, 1, 1, 4)], np.array([4, 4, 3])),
    "every string but one": (2, [FIBONACCI], np.concatenate([FIBONACCI[5:], [1, 1, 1], FIBONACCI[:9]])),
}
OPTIONS: list[dict[str, Any]] = [
    {},
    {"depth": 2},
    {"depth": 0},
    {"shorter_weight": 0.0, "max_count": 4.0},
    {"adaptive": False},
    {"adaptive": False, "depth": 3, "max_count": 2.0, "shorter_weight": 1.5},
]


def check(model: sm.PPM, size: int, pairs: list[tuple[list[int], list[int]]], new: tuple[list[int], list[int]]) -> None:
    """What is read in the fit, and then of a new sequence."""
    end = size if model.length_ == "stop" else -1
    depth = math.inf if model.depth is None else model.depth
    oracle = Definition(size + (end > 0), end, depth, model.shorter_weight, model.max_count)
    after = [] if end < 0 else [end]
    total = sum(sum(oracle.read(source, [*x, *after])) for source, x in pairs)
    assert_allclose(model.history_["log_prob"].iloc[0] * sum(len(x) for _, x in pairs), total, rtol=1e-10, atol=1e-12)
    for cell, log_odds in oracle.escapes.items():
        assert_allclose(model.ppm_.escapes[cell], log_odds, rtol=1e-9, atol=1e-11)
    oracle.escape_rate = 0.0
    source, x = new
    found = model.log_prob_steps(*([np.array(each)] for each in (source, x) if each))
    assert_allclose(found[0], oracle.read(source, [*x, *after], learns=model.adaptive), rtol=0, atol=1e-10)


@pytest.mark.parametrize("options", OPTIONS, ids=repr)
@pytest.mark.parametrize("length", ["given", "stop"])
@pytest.mark.parametrize(("size", "train", "new"), DATA.values(), ids=DATA)
def test_it_is_the_definition(
    size: int, train: list[np.ndarray], new: np.ndarray, length: Any, options: dict[str, Any]
) -> None:
    model = sm.PPM(**options, length=length, encoding=sm.Symbols(size)).fit(train)
    check(model, size, [([], x.tolist()) for x in train], ([], new.tolist()))


@pytest.mark.parametrize("length", ["given", "stop"])
@pytest.mark.parametrize("adaptive", [True, False])
def test_targets_after_sources(adaptive: bool, length: Any) -> None:
    sources, targets = [np.array([0, 1]), np.array([3]), np.array([0, 0, 1])], [SOME[0], SOME[3], SOME[2]]
    model = sm.PPM(adaptive=adaptive, length=length, encoding=sm.Symbols(4)).fit(sources, targets)
    pairs = [(a.tolist(), b.tolist()) for a, b in zip(sources, targets, strict=True)]
    check(model, 4, pairs, (pairs[2][0], pairs[0][1]))
