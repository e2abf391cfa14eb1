"""N-grams against their definitions, written out with dictionaries."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import seqmodels as sm

START, END, V = "start", "end", 4
RNG = np.random.default_rng(0)
X = [np.minimum(RNG.geometric(0.5, n) - 1, V - 1) for n in (30, 1, 12, 25, 2, 18)]
Y = [np.minimum(RNG.geometric(0.4, n) - 1, V - 1) for n in (20, 4, 1, 12, 9, 3)]
NEW = [RNG.integers(V, size=n) for n in (15, 1, 6)]
SMOOTHINGS = ("kneser-ney", "witten-bell")
Context = tuple[object, ...]


@dataclass
class ByDefinition:
    """``events``: (everything before, what came) pairs."""

    events: list[tuple[Context, object]]
    order: int
    smoothing: str
    n_outcomes: int
    min_count: int = 1

    def raw_counts(self, n: int) -> dict[Context, Counter[object]]:
        """How often each event followed contexts of n symbols."""
        raw: dict[Context, Counter[object]] = defaultdict(Counter)
        for before, w in self.events:
            if len(before) >= n:
                raw[before[len(before) - n :]][w] += 1
        return raw

    def counts(self, n: int) -> dict[Context, Counter[object]]:
        """Of what follows contexts of n symbols."""
        raw = self.raw_counts(n)
        older: dict[tuple[Context, object], set[object]] = defaultdict(set)
        for before, w in self.events:
            if len(before) > n:
                older[before[len(before) - n :], w].add(before[len(before) - n - 1])
        if self.smoothing == "kneser-ney" and n < self.order - 1:
            for context, after in raw.items():
                if context[:1] != (START,):
                    raw[context] = Counter({w: len(older[context, w]) for w in after})
        return raw

    def probability(self, w: object, before: Context) -> float:
        p = 1 / self.n_outcomes
        for n in range(min(self.order, len(before) + 1)):
            context = before[len(before) - n :]
            counts = self.counts(n)
            after = counts.get(context, Counter())
            if after and self.smoothing == "witten-bell":
                share = {v: c / (after.total() + len(after)) for v, c in after.items()}
            else:
                d = self.discounts([c for each in counts.values() for c in each.values()])
                share = {v: (c - d[min(c, 3)]) / after.total() for v, c in after.items()}
            if n:
                often = self.raw_counts(n).get(context, Counter())
                share = {v: each for v, each in share.items() if often[v] >= self.min_count}
            p = share.get(w, 0.0) + (1 - sum(share.values())) * p
        return p

    @staticmethod
    def discounts(counts: list[int]) -> list[float]:
        n = [counts.count(k) for k in range(5)]
        found = [0.0]
        for k in (1, 2, 3):
            d = k - (k + 1) * n[1] / (n[1] + 2 * n[2]) * n[k + 1] / n[k] if n[1] and n[k] else -1
            found.append(d if 0 < d < k else k / 2)
        return found


def events_of(x: np.ndarray, y: np.ndarray | None, has_end: bool) -> list[tuple[Context, object]]:
    scored = x if y is None else y
    first = 1 if y is None else 1 + len(x)
    row = [START, *([] if y is None else x.tolist()), *scored.tolist(), *([END] if has_end else [])]
    return [(tuple(row[:i]), row[i]) for i in range(first, len(row))]


@pytest.mark.parametrize(
    ("smoothing", "order", "length", "conditional"),
    [*product(SMOOTHINGS, (1, 3), ("given", "stop"), (False, True)), *product(SMOOTHINGS, (5,), ("stop",), (False,))],
)
def test_it_is_the_definition(smoothing: str, order: int, length: str, conditional: bool) -> None:
    targets, has_end = Y if conditional else [None] * len(X), length == "stop"
    events = [e for x, y in zip(X, targets, strict=True) for e in events_of(x, y, has_end)]
    by_definition = ByDefinition(events, order, smoothing, V + has_end)
    model = sm.NGram(order, smoothing=smoothing, length=length).fit(X, Y if conditional else None)
    pairs = [(NEW[0], NEW[1]), (NEW[1], NEW[0])] if conditional else [(x, None) for x in NEW]
    found = model.log_prob_steps([x for x, _ in pairs], [y for _, y in pairs] if conditional else None)
    for (x, y), steps in zip(pairs, found, strict=True):
        p = np.array([by_definition.probability(w, before) for before, w in events_of(x, y, has_end)])
        if has_end:
            p[0] /= 1 - by_definition.probability(END, events_of(x, y, has_end)[0][0])
        assert_allclose(steps, np.log(p), rtol=1e-12)


@pytest.mark.parametrize(("smoothing", "min_count"), list(product(SMOOTHINGS, (2, 3))))
def test_without_rare_strings_it_is_the_definition(smoothing: str, min_count: int, tmp_path: Path) -> None:
    events = [e for x in X for e in events_of(x, None, has_end=True)]
    by_definition = ByDefinition(events, 4, smoothing, V + 1, min_count)
    model = sm.NGram(4, smoothing=smoothing, min_count=min_count).fit(X)
    for x, steps in zip(NEW, model.log_prob_steps(NEW), strict=True):
        p = np.array([by_definition.probability(w, before) for before, w in events_of(x, None, has_end=True)])
        p[0] /= 1 - by_definition.probability(END, (START,))
        assert_allclose(steps, np.log(p), rtol=1e-11)
    n_often = [sum(c >= min_count for a in by_definition.raw_counts(n).values() for c in a.values()) for n in (1, 2, 3)]
    assert model.n_parameters_ == V + 1 + sum(n_often) < sm.NGram(4).fit(X).n_parameters_
    model.save(tmp_path / "pruned.safetensors")
    assert_array_equal(sm.load(tmp_path / "pruned.safetensors").log_prob(NEW), model.log_prob(NEW))


def test_where_all_longer_strings_are_rare_single_symbols_are_left() -> None:
    model, single = sm.NGram(3, smoothing="witten-bell", min_count=1000).fit(X), sm.NGram(1, smoothing="witten-bell")
    assert_allclose(model.log_prob(NEW), single.fit(X).log_prob(NEW), rtol=1e-13)
    assert len(model.sample(length=5, random_state=0)[0]) == 5


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
def test_all_symbols_and_the_end_sum_to_one_after_any_context(smoothing: str) -> None:
    model = sm.NGram(4, smoothing=smoothing, encoding=sm.Symbols(V + 2), dtype="float64").fit(X)  # two were never seen
    for prefix in product(range(V + 2), repeat=3):
        p = model.predict_next(np.array(prefix)).probs.numpy()
        assert p.shape == (V + 3,)
        assert abs(p.sum() - 1) < 1e-13
        assert (p > 0).all()


def test_what_is_counted_grows_with_the_order_up_to_the_longest_sequence() -> None:
    sizes = [sm.NGram(order).fit(X).n_parameters_ for order in (1, 2, 3, 32, 40)]
    assert sizes[0] == V + 1
    assert sizes[0] < sizes[1] < sizes[2] < sizes[3] == sizes[4]
    assert sm.NGram(40).fit(X[:1]).score(X[:1]) > -0.2  # it knows the one sequence by heart


def test_long_contexts_of_many_symbols_keep_their_codes_apart() -> None:
    x = [np.random.default_rng(5).integers(100_000, size=500)]  # 100,000^12 is far beyond 64 bits
    model = sm.NGram(12, smoothing="witten-bell", encoding=sm.Symbols(100_000), length="given").fit(x)
    steps = model.log_prob_steps(x)[0]
    assert steps[12:].max() < 0
    assert np.exp(steps[12:]).min() > 0.5  # each came once, after a context seen once


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
def test_weights_repeat_sequences(smoothing: str) -> None:
    weighted = sm.NGram(3, smoothing=smoothing).fit(X, sample_weight=[1, 2, 0, 1, 3, 1])
    repeated = sm.NGram(3, smoothing=smoothing).fit([X[i] for i in (0, 1, 1, 3, 4, 4, 4, 5)])
    assert_allclose(weighted.log_prob(NEW), repeated.log_prob(NEW), rtol=1e-13)
    assert_allclose(weighted.history_["log_prob"], repeated.history_["log_prob"], rtol=1e-13)


def test_broken_weights_are_for_witten_bell() -> None:
    weights = [0.5] * len(X)
    assert np.isfinite(sm.NGram(3, smoothing="witten-bell").fit(X, sample_weight=weights).score(X))
    with pytest.raises(ValueError, match=r"sample_weight has 0.5, but Kneser-Ney counts whole sequences"):
        sm.NGram(3).fit(X, sample_weight=weights)


def test_the_history_is_one_row_of_what_score_says() -> None:
    model = sm.NGram(3).fit(X, validation=NEW)
    assert len(model.history_) == 1
    assert_allclose(model.history_[["log_prob", "validation"]].iloc[0], [model.score(X), model.score(NEW)], rtol=1e-12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"order": 0}, "order is 0; pass at least 1"),
        ({"min_count": 0}, "min_count is 0; pass at least 1"),
        ({"smoothing": "good-turing"}, "smoothing is 'good-turing'; pass 'kneser-ney' or 'witten-bell'"),
        ({"warm_start": True}, "nothing to start from"),
        ({"observation": sm.Categorical(0.1)}, "leave observation='auto'"),
        ({"observation": sm.GaussianMixture()}, "leave observation='auto'"),
    ],
)
def test_options_that_cannot_be(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sm.NGram(**options).fit(X)


def test_vectors_are_refused() -> None:
    with pytest.raises(ValueError, match="NGram counts symbols and text, but the sequences are vectors"):
        sm.NGram().fit([np.eye(3)])
