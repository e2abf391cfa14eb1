"""Context trees against slow implementations of the same equations: dictionaries of contexts, and no hashes."""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

import seqmodels as sm

START = "start"
Past = tuple[object, ...]  # the last symbol first
Bits = list[tuple[int, int]]  # a decision, and which way it went


def decisions(children: list[list[int]]) -> dict[int, Bits]:
    """Those of each outcome, from the root on."""
    found: dict[int, Bits] = {0: []}

    def visit(node: int, path: Bits) -> None:
        for bit, child in enumerate(children[node]):
            below = [*path, (node, bit)]
            if child < 0:
                found[-1 - child] = below
            else:
                visit(child, below)

    if children:
        visit(0, [])
    return found


def smallest_cost(weights: list[float]) -> float:
    """The fewest decisions, each as often as its outcomes weigh, that any binary tree needs: the sum of all merges."""
    heap, cost = sorted(weights), 0.0
    while len(heap) > 1:
        merged = heapq.heappop(heap) + heapq.heappop(heap)
        cost += merged
        heapq.heappush(heap, merged)
    return cost


def events(sequence: np.ndarray, end: int | None) -> list[int]:
    return sequence.tolist() + ([] if end is None else [end])


# -- the Bayesian mixture ----------------------------------------------------------------------------------------


def krichevsky_trofimov(bits: list[int]) -> float:
    """The logarithm of the probability of bits: ``(c + 1/2) / (n + 1)`` each."""
    ones, zeros = sum(bits), len(bits) - sum(bits)
    return math.lgamma(ones + 0.5) + math.lgamma(zeros + 0.5) - math.log(math.pi) - math.lgamma(ones + zeros + 1)


def log_mixture(seen: list[tuple[Past, int]], depth: int, d: int = 0) -> float:
    """``P_w = 1/2 P_e + 1/2 Π_a P_w(a s)`` of the bits of one decision after pasts that share their last d symbols."""
    alone = krichevsky_trofimov([bit for _, bit in seen])
    if d == depth or seen[0][0][d - 1 : d] == (START,):
        return alone
    longer: dict[object, list[tuple[Past, int]]] = defaultdict(list)
    for past, bit in seen:
        longer[past[d]].append((past, bit))
    return float(np.logaddexp(alone, sum(log_mixture(part, depth, d + 1) for part in longer.values()))) - math.log(2)


@dataclass
class Bayes:
    """All bits that were seen of each decision, and what came before them."""

    depth: int
    paths: dict[int, Bits]
    seen: dict[int, list[tuple[Past, int]]] = field(default_factory=lambda: defaultdict(list))

    def log_prob(self, past: Past, outcome: int) -> float:
        """Of an outcome: for each of its decisions what one more bit makes of the probability of all its bits."""
        each = [(self.seen[node], [*self.seen[node], (past, bit)]) for node, bit in self.paths[outcome]]
        return sum(log_mixture(new, self.depth) - (log_mixture(old, self.depth) if old else 0) for old, new in each)

    def read(self, source: list[int], outcomes: list[int]) -> list[float]:
        """The log-probability of each, before it is learned from."""
        past: Past = (*source[::-1], START)
        log_probs = []
        for outcome in outcomes:
            log_probs.append(self.log_prob(past, outcome))
            for node, bit in self.paths[outcome]:
                self.seen[node].append((past, bit))
            past = (outcome, *past)
        return log_probs


# -- the gated mixture -------------------------------------------------------------------------------------------


def size_class(zeros: float, ones: float) -> int:
    """Of how much a context has seen: 12 half-octaves of the sum, other ones where both bits came, one for nothing."""
    n = zeros + ones
    if n == 0:
        return 0
    return 1 + sum(2 * math.log2(n) + 1e-6 >= k for k in range(1, 12)) + (12 if min(zeros, ones) > 0 else 0)


def mixed(estimates: list[float], log_odds: Any) -> Any:
    """The estimates of contexts, the shortest first, each weighted against the mixture of those longer; all of it."""
    mixtures: list[Any] = [estimates[-1]]
    for estimate, logit in zip(estimates[-2::-1], reversed(log_odds), strict=True):
        weight = 1 / (1 + math.e**-logit)
        mixtures.append(weight * estimate + (1 - weight) * mixtures[-1])
    return mixtures[::-1]


@dataclass
class Gated:
    """Estimates that start from those of shorter contexts; gates that follow the gradient of log p in the fit."""

    depth: int
    paths: dict[int, Bits]
    end: int | None
    max_count: float
    counts: dict[tuple[Past, int], list[float]] = field(default_factory=dict)
    log_odds: dict[tuple[Past, int], float] = field(default_factory=dict)
    gates: dict[tuple[int, int, int], float] = field(default_factory=lambda: defaultdict(float))

    def read(self, source: list[int], outcomes: list[int], *, learns: bool, gate_rate: float = 0.0) -> list[float]:
        past: Past = (*source[::-1], START)
        log_probs = []
        for t, outcome in enumerate(outcomes):
            log_p = 0.0
            if t == 0 and self.end is not None:  # the first event is not the end
                log_p -= math.log(1 - math.prod(self.decide(past, *each) for each in self.paths[self.end]))
            for node, bit in self.paths[outcome]:
                log_p += math.log(self.decide(past, node, bit, learns=learns, gate_rate=gate_rate))
            log_probs.append(log_p)
            past = (outcome, *past)
        return log_probs

    def decide(self, past: Past, node: int, bit: int, *, learns: bool = False, gate_rate: float = 0.0) -> float:
        """The probability of a bit, which is then learned."""
        contexts = [(past[:d], node) for d in range(min(self.depth, len(past)) + 1)]
        counts = [self.counts.get(context, [0.0, 0.0]) for context in contexts]
        estimates = [(counts[0][bit] + 0.5) / (sum(counts[0]) + 1)]
        for each in counts[1:]:
            estimates.append((each[bit] + estimates[-1] + 0.02) / (sum(each) + 1 + 0.04))
        classes = [size_class(*each) for each in counts]
        cells = [(d, *classes[d : d + 2]) for d in range(len(contexts) - 1)]
        of_contexts = [self.log_odds.get(context, 0.0) for context in contexts[:-1]]
        logits = [a + self.gates[cell] for a, cell in zip(of_contexts, cells, strict=True)]
        mixtures = mixed(estimates, logits)
        if gate_rate and cells:
            leaves = [torch.tensor(z, dtype=torch.float64, requires_grad=True) for z in logits]
            mixed(estimates, leaves)[0].log().backward()
            for cell, leaf in zip(cells, leaves, strict=True):
                assert leaf.grad is not None
                self.gates[cell] += gate_rate * float(leaf.grad)
        if learns:
            for d, context in enumerate(contexts):
                if d < len(contexts) - 1:
                    changed = of_contexts[d] + 0.3 * math.log(estimates[d] / mixtures[d + 1])
                    self.log_odds[context] = float(np.float32(min(max(changed, -8), 8)))  # as they are kept
                more = [counts[d][b] + (b == bit) for b in (0, 1)]
                halved = [c / 2 for c in more] if sum(more) > self.max_count else more
                self.counts[context] = [float(np.float32(c)) for c in halved]
        return float(mixtures[0])

    def copy(self) -> Gated:
        """With everything that was learned."""
        return Gated(
            self.depth, self.paths, self.end, self.max_count, dict(self.counts), dict(self.log_odds), self.gates
        )


# -- on data that are hard -----------------------------------------------------------------------------------------


def walk(n_symbols: int, n: int, seed: int) -> np.ndarray:
    """Of steps that are often the same, some of which never come."""
    rng = np.random.default_rng(seed)
    return rng.choice([0, 1, 1, 2], size=n).cumsum() % n_symbols


RNG = np.random.default_rng(3)
PERIOD = np.tile([2, 0, 1, 1, 0], 6)
# Name: depth, the alphabet, training sequences, a new one.
DATA: dict[str, tuple[int, int, list[np.ndarray], np.ndarray]] = {
    "two symbols": (3, 2, [walk(2, 50, 0), np.array([1])], walk(2, 30, 1)),
    "a symbol after itself": (1, 3, [RNG.integers(0, 2, 80).cumsum() % 3], np.array([0, 0, 1, 1, 2, 2, 0])),
    "many symbols": (2, 40, [walk(40, 50, 2), RNG.integers(40, size=20)], walk(40, 15, 3)),
    "deep": (7, 4, [walk(4, 40, 4), np.array([3]), np.array([0]), walk(4, 9, 5)], walk(4, 30, 6)),
    "repeated": (6, 3, [PERIOD, np.zeros(40, int)], np.concatenate([PERIOD, np.ones(20, int), PERIOD])),
    "short": (5, 5, [np.array([k]) for k in (0, 1, 1, 4)], np.array([4])),
    "no contexts": (0, 6, [walk(6, 40, 7)], walk(6, 20, 8)),
    "one symbol": (2, 1, [np.zeros(5, int), np.zeros(1, int)], np.zeros(4, int)),
}
each_data = pytest.mark.parametrize(("depth", "n_symbols", "train", "new"), DATA.values(), ids=DATA)
each_length = pytest.mark.parametrize("length", ["given", "stop"])


def fitted(model: sm.ContextTree, n_symbols: int, train: list[np.ndarray]) -> tuple[dict[int, Bits], int | None]:
    """Fit it; the decisions of each outcome, which are as few as may be, and what the end is."""
    model.set_params(encoding=sm.Symbols(n_symbols), dtype="float64").fit(train)
    paths, end = decisions(model.tree_.decomposition.children.tolist()), n_symbols if model.length == "stop" else None
    n_outcomes = n_symbols + (end is not None)
    counts = np.bincount([x for each in train for x in events(each, end)], minlength=n_outcomes) + 0.5
    assert sorted(paths) == list(range(n_outcomes))
    assert sum(counts[x] * len(path) for x, path in paths.items()) == pytest.approx(smallest_cost(counts.tolist()))
    return paths, end


@each_data
@each_length
def test_bayes(length: str, depth: int, n_symbols: int, train: list[np.ndarray], new: np.ndarray) -> None:
    """To the float32 in which the odds of contexts are kept."""
    model = sm.ContextTree(depth, weighting="bayes", length=length)
    paths, end = fitted(model, n_symbols, train)
    oracle = Bayes(depth, paths)
    read = [sum(oracle.read([], events(each, end))) for each in train]
    continues = 0.0 if end is None else -math.log1p(-math.exp(oracle.log_prob((START,), end)))
    p = model.predict_next(new[:0]).probs.numpy()
    each_outcome = [oracle.log_prob((START,), x) + continues for x in range(n_symbols)]
    assert_allclose(p[:n_symbols], np.exp(each_outcome), rtol=0, atol=2e-6)
    outcomes = events(new, end)
    expected = oracle.read([], outcomes)
    expected[0] += continues
    assert_allclose(model.log_prob_steps([new])[0], expected, rtol=0, atol=2e-6)
    p = model.predict_next(new).probs.numpy()
    whole = Bayes(depth, paths, oracle.seen)
    for node, _ in () if end is None else paths[end]:
        whole.seen[node].pop()  # the end that was read
    past = (*new.tolist()[::-1], START)
    assert_allclose(p, np.exp([whole.log_prob(past, x) for x in range(len(p))]), rtol=0, atol=2e-6)
    if end is None:
        assert_allclose(model.history_["log_prob"].iloc[0] * sum(map(len, train)), sum(read), rtol=1e-6)


@each_data
@each_length
@pytest.mark.parametrize("adaptive", [True, False])
def test_gated(
    adaptive: bool, length: str, depth: int, n_symbols: int, train: list[np.ndarray], new: np.ndarray
) -> None:
    max_count = 6.0 if depth % 2 else 255.0
    model = sm.ContextTree(depth, adaptive=adaptive, max_count=max_count, length=length)
    paths, end = fitted(model, n_symbols, train)
    oracle = Gated(depth, paths, end, max_count)
    read = [oracle.read([], events(each, end), learns=True, gate_rate=0.1) for each in train]
    assert_allclose(model.history_["log_prob"].iloc[0] * sum(map(len, train)), sum(map(sum, read)), rtol=1e-9)
    for each in (new, train[0]):
        expected = oracle.copy().read([], events(each, end), learns=adaptive)
        assert_allclose(model.log_prob_steps([each])[0], expected, rtol=0, atol=1e-9)
    assert model.n_parameters_ == len(oracle.counts)


@pytest.mark.parametrize("weighting", ["gated", "bayes"])
def test_targets_after_sources(weighting: Any) -> None:
    """Contexts reach back into the source, and to the start before it."""
    sources, targets = [walk(5, n, n) for n in (3, 1, 6)], [walk(5, 12, n) for n in (7, 8, 9)]
    model = sm.ContextTree(4, weighting=weighting, length="given", encoding=sm.Symbols(5)).fit(sources, targets)
    paths = decisions(model.tree_.decomposition.children.tolist())
    pairs = [(source.tolist(), target.tolist()) for source, target in zip(sources, targets, strict=True)]
    if weighting == "gated":
        oracle = Gated(4, paths, None, 255.0)
        for pair in pairs:
            oracle.read(*pair, learns=True, gate_rate=0.1)
        expected = sum(oracle.read(*pairs[0][::-1], learns=True))
    else:
        written = Bayes(4, paths)
        for pair in pairs:
            written.read(*pair)
        expected = sum(written.read(*pairs[0][::-1]))
    found = model.log_prob([targets[0]], [sources[0]])[0]
    assert_allclose(found, expected, rtol=0, atol=1e-9 if weighting == "gated" else 1e-5)


def test_what_never_follows_is_improbable() -> None:
    """Of a chain in which 0 is never followed by 2, the counts say so."""
    x = np.random.default_rng(0).integers(0, 2, 400).cumsum() % 3
    model = sm.ContextTree(1, weighting="bayes", length="given").fit([x])
    pairs = np.zeros((3, 3))
    np.add.at(pairs, (x[:-1], x[1:]), 1)
    assert_allclose(model.predict_next(np.array([0])).probs.numpy(), pairs[0] / pairs[0].sum(), atol=0.005)


@pytest.mark.parametrize("n_symbols", [8, 20, 60])
def test_a_markov_chain_is_learned(n_symbols: int) -> None:
    """As well as by a table of counts, whose pseudocounts suit rows in which few symbols are probable."""
    rng = np.random.default_rng(n_symbols)
    chain = rng.dirichlet(np.full(n_symbols, 0.2), n_symbols)
    uniform, x = rng.random(9000), [0]
    cumulative = np.minimum(chain.cumsum(1), 1)
    for u in uniform:
        x.append(min(int(np.searchsorted(cumulative[x[-1]], u)), n_symbols - 1))
    train, test = np.array(x[:8000]), np.array(x[8000:])
    counts = np.full((n_symbols, n_symbols), 0.2)
    np.add.at(counts, (train[:-1], train[1:]), 1)
    by_counts = np.log(counts / counts.sum(1, keepdims=True))[test[:-1], test[1:]].mean()
    model = sm.ContextTree(1, weighting="bayes", length="given", encoding=sm.Symbols(n_symbols)).fit([train])
    assert model.log_prob_steps([test])[0][1:].mean() > by_counts - 0.02
