"""Context mixing against a slow implementation of the same equations, by dictionaries, with one decision at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import seqmodels as sm
from seqmodels.counts.context_mixing.tables import BUCKET

History = tuple[Any, ...]  # up to four bits; or the counts of both, and the last bit, marked by "long"
LARGEST_OTHER = [60, 40, 20, 12, 9, 8, 7, 7]  # of the larger count, by the smaller
LEVELS = [float(n) if n < 24 else 24 * 1.09 ** (n - 24) for n in range(65)]  # observations that a level stands for


def counts_of(history: History) -> list[int]:
    return list(history[1:3]) if history[:1] == ("long",) else [history.count(0), history.count(1)]


def after(history: History, bit: int) -> History:
    """The history one bit later: opposite counts above two shrink, and large ones give way."""
    is_long = history[:1] == ("long",)
    if not is_long and len(history) < 4:
        return (*history, bit)
    n = counts_of(history)
    n[bit] += 1
    other = n[1 - bit]
    if is_long and other > 2:
        n[1 - bit] = {3: 3, 4: 3, 5: 4}.get(other, other // 2 + 1)
    while min(n) > 7 or max(n) > LARGEST_OTHER[min(n)]:
        n[bit if n[bit] >= n[1 - bit] else 1 - bit] -= 1
    return ("long", *n, bit)


def stretch(place: int) -> float:
    """``log(p / (1 - p))`` in the middle of one of 4096 intervals."""
    p = (place + 0.5) / 4096
    return math.log(p / (1 - p))


def logistic(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def limited(x: float) -> float:
    return min(max(x, -12.0), 12.0)


def hashed(*values: int) -> int:
    """Of 30 bits, by which rows of the tables are told apart that have fewer rows than there are values."""
    h = values[0]
    for value in values[1:]:
        product = (((h ^ value * 0x1F35ABC5) % 2**30) * 0x2C1B3C6D) % 2**58
        h = (product ^ product >> 27) % 2**30
    return h


def rows(n: float, least: int, most: int) -> int:
    """A power of two."""
    return 2 ** math.ceil(math.log2(min(max(n, least), most)))


@dataclass
class Past:
    """What is known of a sequence before an event."""

    symbols: list[int] = field(default_factory=list)
    words: list[tuple[str, ...]] = field(default_factory=lambda: [(), (), ()])  # so far, the last, the one before
    classes: list[int] = field(default_factory=lambda: [0] * 8)  # the last eight
    paragraph: tuple[str, ...] = ()  # its first word
    lines: list[list[int]] = field(default_factory=lambda: [[], []])  # the last whole one, and the one so far
    matches: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0), (0, 0)])  # where it goes on; how long it is
    after_rows: tuple[int, int] = (0, 0)

    def last(self, k: int, none: int) -> int:
        """The symbol k before the last."""
        return self.symbols[-1 - k] if k < len(self.symbols) else none


@dataclass
class Decision:
    """What a bit was predicted from."""

    node: int
    depth: int
    bit: int
    contexts: list[tuple[Any, ...]]
    inputs: np.ndarray
    selected: list[tuple[Any, ...]]
    logits: list[float]
    matched: list[tuple[int, int, int]]
    refined: list[tuple[tuple[int, int, int], float]]
    mixed: float
    p: float


class Oracle:
    """Everything that was learned, by what it belongs to."""

    def __init__(self, size: int, has_end: bool, n_steps: int, characters: list[str] | None = None) -> None:
        self.size, self.has_end, self.characters = size, has_end, characters
        self.n_bits = next(n for n in range(40) if 2**n >= size)
        self.match_lengths = [12, 5] if characters else [6]
        self.n_slots, self.n_after = rows(n_steps, 256, 2**22), rows(n_steps, 256, 2**16)
        self.n_refined = rows(n_steps / 4, 256, 2**16)
        self.n_learned = 0
        self.read_symbols: list[int] = []
        self.counters: dict[Any, tuple[int, int, History]] = {}
        self.maps: dict[Any, list[float]] = {}
        self.chain: dict[Any, list[float]] = {}
        self.matches: dict[Any, float] = {}
        self.weights: dict[Any, np.ndarray] = {}
        self.n_weighted: dict[Any, int] = {}  # bits that each learned from
        self.final: dict[Any, np.ndarray] = {}
        self.refinements: dict[tuple[int, int, int], float] = {}
        self.followers: dict[tuple[int, int], int] = {}
        self.slots: dict[tuple[int, int], int] = {}

    # -- contexts --

    def contexts(self, past: Past) -> list[tuple[Any, ...]]:
        a, b, c = (past.last(k, self.size) for k in range(3))
        orders = [*range(7), 8] if self.characters else [*range(7)]
        strings: list[tuple[Any, ...]] = [tuple(past.last(k, self.size) for k in range(n)) for n in orders]
        follower = self.followers.get((1, past.after_rows[1]), 0)
        if not self.characters:
            return [*enumerate([*strings, (b,), (b, c), (a, c), (follower, a, b)])]
        word, last_word, before = past.words
        column = len(past.lines[1])
        above = past.lines[0][column] if column < len(past.lines[0]) else self.size
        words = [(word, a), (word, last_word, a), (word, before, a), (last_word, a)]
        shape = (min(column, 255), *past.classes[-3:], len(word))
        both = (self.followers.get((0, past.after_rows[0]), 0), follower)
        more = [shape, both, (*past.classes, a), (word, past.paragraph)]
        return [*enumerate([*strings, *words, (b, c), (a, c), (a, above), (follower, a, b), *more])]

    def match(self, past: Past, node: int, depth: int) -> list[tuple[int, int, int]]:
        """Of each string that agrees its number, the length and the bit that came after it."""
        found = []
        for q in range(len(self.match_lengths)):
            at, length = past.matches[q]
            if length == 0:
                continue
            symbol = self.read_symbols[at]
            digits = format(0 if symbol == self.size else symbol, f"0{self.n_bits}b") if self.n_bits else ""
            if int("1" + digits[:depth], 2) != node:
                continue
            bit = int(symbol == self.size) if depth == self.n_bits else int(digits[depth])
            found.append((q, min(length, 31), bit))
        return found

    def selectors(self, past: Past, node: int, depth: int, n_seen: int, matched: list[Any]) -> list[tuple[Any, ...]]:
        """What tells the weight vectors apart that are taken."""
        level = min(depth, 7)
        state: tuple[int, int] | None = None
        if matched:
            _, length, bit = matched[0]
            state = (8 if length > 24 else min(length, 15) // 2, bit)
        each = [(node,), (past.last(0, self.size), level), (n_seen, state), (past.last(1, self.size), level), ()]
        if self.characters:
            each.insert(4, (min(len(past.words[0]), 15), *past.classes[-2:]))
        return [*enumerate(each)]

    # -- prediction --

    def predict(self, past: Past, node: int, depth: int, bit: int) -> Decision:
        contexts = self.contexts(past)
        inputs: list[float] = []
        chained, n_seen = 0.0, 0
        for i, context in contexts:
            p16, _, history = self.counters.get((i, context, node), (32768, 0, ()))
            if history:
                p = self.map_of(i, history)[0]
                slope, shift = self.chain_of(i, history)
                chained = limited(slope * chained + shift)
                inputs += [stretch(int(p * 4095)), stretch(p16 // 16), 4 * (p - 0.5), chained]
                n_seen += i < (8 if self.characters else 7)
            else:
                inputs += [0.0, 0.0, 0.0, chained]
        matched = self.match(past, node, depth)
        of_matches = {q: (length, 2 * expected - 1) for q, length, expected in matched}
        for q in range(len(self.match_lengths)):
            length, sign = of_matches.get(q, (0, 0))
            p = self.matches.get((q, length), 0.8)
            inputs += [sign * stretch(int(p * 4095)), sign * 4 * (p - 0.5)] if sign else [0.0, 0.0]
        inputs.append(0.3)
        vector = np.array(inputs)
        selected = self.selectors(past, node, depth, n_seen, matched)
        logits = [limited(float(self.weights_of(each, len(contexts), len(vector)) @ vector)) for each in selected]
        finals = [self.final_of(each, len(selected)) for each in (node, selected[2])]
        logit = limited(float(sum(finals) @ logits) / 2)
        place = (logit + 12) * 32 / 24
        point = min(int(place), 31)
        total, refined = 2 * logistic(logit), []
        for k in range(3):
            row = hashed(7, *(past.last(j, self.size) for j in range(k)), node) % self.n_refined
            for at, share in ((point, 1 - (place - point)), (point + 1, place - point)):
                refined.append(((k, row, at), share))
                total += share * self.refinements.get((k, row, at), logistic(24 * at / 32 - 12))
        return Decision(
            node, depth, bit, contexts, vector, selected, logits, matched, refined, logistic(logit), total / 5
        )

    def map_of(self, i: int, history: History) -> list[float]:
        """What a history means, and of how many observations."""
        zeros, ones = counts_of(history)
        return self.maps.setdefault((i, history), [(ones + 0.4) / (zeros + ones + 0.8), 4.0])

    def chain_of(self, i: int, history: History) -> list[float]:
        """The factor of the prediction so far, and what is added to it."""
        zeros, ones = counts_of(history)
        return self.chain.setdefault((i, history), [0.7, 0.5 * math.log((ones + 0.4) / (zeros + 0.4))])

    def final_of(self, by: Any, n: int) -> np.ndarray:
        """The weights of the second mixer that a node selects, and those that the match does."""
        return self.final.setdefault(by, np.full(n, 1 / n))

    def weights_of(self, selected: tuple[Any, ...], n_contexts: int, n_inputs: int) -> np.ndarray:
        start = np.zeros(n_inputs)
        start[0 : 4 * n_contexts : 4], start[1 : 4 * n_contexts : 4] = 0.15, 0.05
        start[4 * n_contexts - 1] = 0.4
        return self.weights.setdefault(selected, start)

    def decisions(self, symbol: int, end: bool) -> Iterator[tuple[int, int, int]]:
        """Node, depth and bit of each: those of a symbol that have two outcomes; below symbol 0 that of the end."""
        leaf = 2**self.n_bits + symbol % self.size
        for depth in range(self.n_bits):
            node, bit = leaf >> (self.n_bits - depth), leaf >> (self.n_bits - depth - 1) & 1
            if (2 * node + 1) * 2 ** (self.n_bits - depth - 1) - 2**self.n_bits < self.size:
                yield node, depth, bit
        if end and symbol % self.size == 0:
            yield leaf, self.n_bits, int(symbol == self.size)

    def read(self, source: list[int], outcomes: list[int], *, learns: bool) -> list[float]:
        past, log_probs, n_known = Past(), [], len(self.read_symbols)
        for symbol in source:
            self.go_on(past, symbol, learns=learns)
        for t, symbol in enumerate(outcomes):
            end = self.has_end and t > 0
            decided = [self.predict(past, *each) for each in self.decisions(symbol, end)]
            log_probs.append(sum(math.log(each.p if each.bit else 1 - each.p) for each in decided))
            if learns:
                self.n_learned += 1
                for each in decided:
                    self.learn(each)
            if symbol < self.size:
                self.go_on(past, symbol, learns=learns)
        if not learns:
            del self.read_symbols[n_known:]
        return log_probs

    # -- learning --

    def learn(self, decision: Decision) -> None:
        y, inputs = decision.bit, decision.inputs
        for i, context in decision.contexts:
            key = (i, context, decision.node)
            p, level, history = self.counters.get(key, (32768, 0, ()))
            if history:
                meaning, chain = self.map_of(i, history), self.chain_of(i, history)
                meaning[0] += (y - meaning[0]) / (meaning[1] + 1.5)
                meaning[1] = min(meaning[1] + 1, 255.0)
                error = 0.001 * (y - logistic(inputs[4 * i + 3]))
                chain[0] += error * (inputs[4 * i - 1] if i else 0.0)
                chain[1] += error
            rate = 1 / (min(LEVELS[level], 255) + 1.5)
            goal = 65535 if y else 0
            step = max(1, int(abs(goal - p) * rate))
            p = min(p + step, 65535) if y else max(p - step, 0)
            level += level < 63 and (p * 40503 >> 3) % max(1, round(LEVELS[level + 1] - LEVELS[level])) == 0
            self.counters[key] = (p, level, after(history, y))
        for q, length, expected in decision.matched:
            p = self.matches.get((q, length), 0.8)
            self.matches[q, length] = p + 0.005 * ((expected == y) - p)
        decay = 1 + 5e-5 * self.n_learned
        for by in (decision.node, decision.selected[2]):
            self.final[by] += max(0.001, 0.005 / decay) * (y - decision.mixed) * np.array(decision.logits)
        for each, logit in zip(decision.selected, decision.logits, strict=True):
            n_before = self.n_weighted.get(each, 0)
            self.weights[each] += max(0.0008, 0.02 / (1 + 5e-4 * n_before)) * (y - logistic(logit)) * inputs
            self.n_weighted[each] = n_before + 1
        for key, share in decision.refined:
            before = self.refinements.get(key, logistic(24 * key[2] / 32 - 12))
            self.refinements[key] = before + 0.02 * share * (y - before)

    def go_on(self, past: Past, symbol: int, *, learns: bool) -> None:
        """One symbol more of the past."""
        if learns:
            for order, row in enumerate(past.after_rows):
                self.followers[order, row] = (256 * self.followers.get((order, row), 0) + symbol + 1) % 2**16
        self.read_symbols.append(symbol)
        past.symbols.append(symbol)
        second = past.last(1, self.size)
        past.after_rows = (hashed(4, symbol) % self.n_after, hashed(5, symbol, second) % self.n_after)
        if self.characters:
            self.go_on_in_text(past, self.characters[symbol])
        past.lines[1].append(symbol)
        if self.characters and self.characters[symbol] == "\n":
            past.paragraph = past.paragraph if len(past.lines[1]) > 1 else ()
            past.lines = [past.lines[1], []]
        newest = len(self.read_symbols)
        for q, shortest in enumerate(self.match_lengths):
            at, length = past.matches[q]
            goes_on = length > 0 and self.read_symbols[at] == symbol
            past.matches[q] = (at + 1, length + 1) if goes_on else (0, 0)
            if len(past.symbols) < shortest:
                continue
            slot = (q, hashed(3, *past.symbols[: -shortest - 1 : -1]) % self.n_slots)
            at = self.slots.get(slot, 0)
            if not goes_on:
                length = 0
                while length < min(len(past.symbols), at, 48):
                    if self.read_symbols[at - 1 - length] != self.read_symbols[newest - 1 - length]:
                        break
                    length += 1
                past.matches[q] = (at, length) if length >= shortest else (0, 0)
            if learns:
                self.slots[slot] = newest

    def go_on_in_text(self, past: Past, character: str) -> None:
        if character.isalpha() or character == "'":
            past.words[0] = (*past.words[0], character.lower())
            kind = 1 if character == character.lower() else 2
        else:
            if past.words[0]:
                past.words[1:] = past.words[:2]
                past.paragraph = past.paragraph or past.words[0]
            past.words[0] = ()
            kind = {"\n": 3, " ": 4}.get(character, 5)
        past.classes = [*past.classes[1:], kind]

    def fit(self, items: list[tuple[list[int], list[int]]]) -> float:
        """The log-probability of all of them, as they were read."""
        total = 0.0
        for source, outcomes in items:
            total += sum(self.read(source, outcomes, learns=True))
            self.read_symbols.append(self.size)
        return total


TEXT = "It's the Cat.\nthe cat sat on\nThe mat, the cat's mat;\n\nthe cat sat on the mat, the cat saw!\n"
ASCII = [chr(code) for code in range(256)]
RNG = np.random.default_rng(5)
PERIOD = np.tile([2, 0, 1, 1, 0, 3, 3], 10)
# Name: alphabet, training sequences, a new one.
DATA: dict[str, tuple[int, list[np.ndarray], np.ndarray]] = {
    "one symbol": (1, [np.zeros(4, int), np.zeros(1, int)], np.zeros(3, int)),
    "two symbols": (2, [RNG.integers(2, size=60), np.array([1])], np.array([0, 1, 1, 0, 0, 0, 1])),
    "five symbols": (5, [RNG.choice([0, 1, 1, 2], size=50).cumsum() % 5, np.array([4])], RNG.integers(5, size=20)),
    "long repeats": (4, [PERIOD, np.zeros(70, int)], np.concatenate([PERIOD[3:50], np.zeros(30, int), PERIOD[:20]])),
    "1000 symbols": (1000, [np.array([999, 0, 998, 1, 999, 0, 512, 513]), np.array([999, 0])], np.array([999, 0, 512])),
}


def steps(x: np.ndarray, size: int, has_end: bool) -> list[int]:
    return [*x.tolist(), *([size] if has_end else [])]


def n_used_buckets(model: sm.ContextMixing) -> int:
    return int(np.count_nonzero(model.tables_.counters.reshape(-1, BUCKET)[:, 0]))


def check(model: sm.ContextMixing, oracle: Oracle, log_prob: float, n: int) -> None:
    """It read the training sequences as the model did, and no string replaced another there."""
    assert_allclose(model.history_["log_prob"].iloc[0] * n, log_prob, rtol=1e-10)
    n_first = len({(i, context, node >> (node.bit_length() - 1) % 3) for i, context, node in oracle.counters})
    assert n_used_buckets(model) == n_first


@pytest.mark.parametrize("adaptive", [True, False])
@pytest.mark.parametrize("length", ["given", "stop"])
@pytest.mark.parametrize(("size", "train", "new"), DATA.values(), ids=DATA)
def test_symbols(size: int, train: list[np.ndarray], new: np.ndarray, length: str, adaptive: bool) -> None:
    options: dict[str, Any] = {"encoding": sm.Symbols(size), "n_buckets": 2**12, "length": length}
    model = sm.ContextMixing(adaptive, **options).fit(train)
    has_end = length == "stop"
    oracle = Oracle(size, has_end, sum(map(len, train)))
    check(model, oracle, oracle.fit([([], steps(x, size, has_end)) for x in train]), sum(map(len, train)))
    expected = oracle.read([], steps(new, size, has_end), learns=adaptive)
    assert_allclose(model.log_prob_steps([new])[0], expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("adaptive", [True, False])
def test_text(adaptive: bool) -> None:
    train, new = [TEXT, "A mat!"], "the cat's\nthe Cat sat on a mat"
    model = sm.ContextMixing(adaptive, n_buckets=2**15).fit(train)
    oracle = Oracle(256, True, sum(map(len, train)), ASCII)
    items = [([], [*x.encode(), 256]) for x in train]
    check(model, oracle, oracle.fit(items), sum(map(len, train)))
    expected = oracle.read([], [*new.encode(), 256], learns=adaptive)
    assert_allclose(model.log_prob_steps([new])[0], expected, rtol=0, atol=1e-10)


def test_targets_after_sources() -> None:
    """Contexts, and strings that agree, reach back into the source, of which nothing is predicted."""
    sources, targets = [PERIOD[:20], np.array([3])], [PERIOD[4:30], PERIOD[2:9]]
    model = sm.ContextMixing(length="given", encoding=sm.Symbols(4), n_buckets=2**12).fit(sources, targets)
    oracle = Oracle(4, False, sum(map(len, targets)))
    items = [(x.tolist(), y.tolist()) for x, y in zip(sources, targets, strict=True)]
    check(model, oracle, oracle.fit(items), sum(map(len, targets)))
    expected = oracle.read(items[0][1], items[1][1], learns=True)
    assert_allclose(model.log_prob_steps([targets[0]], [targets[1]])[0], expected, rtol=0, atol=1e-10)
