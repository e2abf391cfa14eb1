"""What holds for every model and every sequence, however degenerate: strategies that draw cases, and a check of one.

``tests/test_properties.py`` draws a few hundred cases of each, ``tests/faults/properties.py`` ten thousand.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import seqmodels as sm
from tests.made import made

WEIGHTS = (0.0, 0.0, 1.0, 1.0, 0.5, 1e-5, 1e-30, 1e-160, 1e-300)
EPS = np.finfo(np.float64).eps


@dataclass(frozen=True)
class Chain:
    """A hidden Markov chain with its emissions.

    Attributes:
        emission: ``(K, V)`` of symbols, or ``means`` and ``variances``, ``(K, D)``.
        final: end probabilities; None where lengths are given.
    """

    initial: np.ndarray
    transition: np.ndarray
    final: np.ndarray | None
    emission: np.ndarray | None = None
    means: np.ndarray | None = None
    variances: np.ndarray | None = None

    @property
    def model(self) -> sm.HMM:
        """The same as a model, in float64."""
        return sm.HMM.from_parameters(
            self.initial,
            self.transition,
            self.final,
            emission=self.emission,
            means=self.means,
            covariances=self.variances,
            dtype="float64",
        )

    def log_b(self, x: np.ndarray) -> np.ndarray:
        """``(T, K)``: log-probability of every step in every state, in nats."""
        with np.errstate(all="ignore"):
            if self.emission is not None:
                return np.log(self.emission[:, x].T)
            deviation = x[:, None] - self.means  # (T, K, D)
            z = deviation / np.sqrt(self.variances)
            each = -0.5 * np.log(2 * np.pi * self.variances) - 0.5 * z * z  # half of z first: its square may overflow
            return np.where(np.isnan(x)[:, None], 0.0, each).sum(-1)

    @property
    def height(self) -> np.ndarray:
        """``(K,)`` nats: the largest log-density of each state."""
        return -0.5 * np.log(2 * np.pi * self.variances).sum(-1)

    def log_prob(self, log_b: np.ndarray) -> tuple[np.ndarray, float]:
        """The textbook forward algorithm in log space: steps, and the end (0 where it is no event)."""
        with np.errstate(divide="ignore"):
            log_a, ahead = np.log(self.transition), np.log(self.initial)
            log_final = np.zeros(len(ahead)) if self.final is None else np.log(self.final)
        steps = np.full(len(log_b), -np.inf)
        for t, row in enumerate(log_b):
            joint = ahead + row
            steps[t] = _logsumexp(joint)
            if steps[t] == -np.inf:
                return steps, -np.inf if self.final is not None else 0.0
            ahead = _logsumexp((joint - steps[t])[:, None] + log_a)
            last = joint - steps[t]
        return steps, float(_logsumexp(last + log_final)) if self.final is not None else 0.0


def _logsumexp(values: np.ndarray) -> Any:
    peak = values.max(0)
    safe = np.where(np.isfinite(peak), peak, 0.0)
    with np.errstate(divide="ignore"):
        return np.log(np.exp(values - safe).sum(0)) + safe


# -- what is drawn -------------------------------------------------------------------------------------------------


@st.composite
def shares(draw: st.DrawFn, n: int) -> np.ndarray:
    """``n`` probabilities, some zero or nearly so."""
    weights = np.array(draw(st.lists(st.sampled_from(WEIGHTS), min_size=n, max_size=n)))
    if not weights.any():
        weights[draw(st.integers(0, n - 1))] = 1.0
    return weights / weights.sum()


@st.composite
def chains(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Start, transitions and ends of one to three states, among them absorbing, block and left-to-right chains."""
    k, has_end = draw(st.integers(1, 3)), draw(st.booleans())
    rows = np.stack([draw(shares(k + has_end)) for _ in range(k)])
    return draw(shares(k)), rows[:, :k], rows[:, k] if has_end else None


@st.composite
def of_symbols(draw: st.DrawFn) -> tuple[Chain, list[np.ndarray]]:
    """A chain that emits symbols, and sequences, in which a segment may repeat."""
    initial, transition, final = draw(chains())
    v = draw(st.integers(1, 3))
    emission = np.stack([draw(shares(v)) for _ in initial])
    segment = st.lists(st.integers(0, v - 1), min_size=1, max_size=5)
    repeated = st.tuples(segment, st.sampled_from([1, 1, 2, 5]), segment, st.sampled_from([0, 0, 1, 4]))
    items = draw(st.lists(repeated, min_size=1, max_size=3))
    return Chain(initial, transition, final, emission), [np.array(a * m + b * n) for a, m, b, n in items]


MEANS = st.sampled_from((0.0, 1.0, -3.0, 1e-8, 1e3, -1e8, 1e30, -1e60))
VARIANCES = st.integers(-30, 30).map(lambda power: 10.0**power)
VALUES = st.one_of(MEANS, st.floats(-5, 5), st.floats(allow_nan=True, allow_infinity=False))


@st.composite
def of_vectors(draw: st.DrawFn) -> tuple[Chain, list[np.ndarray]]:
    """A chain that emits vectors, variances from 1e-30 to 1e30, means far apart, and sequences of values to 1.8e308."""
    initial, transition, final = draw(chains())
    k, d = len(initial), draw(st.integers(1, 2))
    means = np.array(draw(st.lists(MEANS, min_size=k * d, max_size=k * d))).reshape(k, d)
    variances = np.array(draw(st.lists(VARIANCES, min_size=k * d, max_size=k * d))).reshape(k, d)
    near = st.tuples(st.integers(0, k - 1), st.floats(-3, 3)).map(
        lambda at: means[at[0]] + at[1] * np.sqrt(variances[at[0]])
    )
    frame = st.one_of(near, st.lists(VALUES, min_size=d, max_size=d).map(np.array))
    items = draw(st.lists(st.lists(frame, min_size=1, max_size=5), min_size=1, max_size=3))
    return Chain(initial, transition, final, means=means, variances=variances), [np.array(x) for x in items]


# -- checks --------------------------------------------------------------------------------------------------------


def log_prob_or_refusal(model: sm.SequenceModel, items: list[Any]) -> list[np.ndarray] | None:
    """Steps; None where they are refused in words."""
    try:
        return model.log_prob_steps(items)
    except ValueError as error:
        if "float64" not in str(error):
            raise
        return None


def check_symbols(case: tuple[Chain, list[np.ndarray]]) -> None:
    """Equal to the forward algorithm in log space to 1e-9, -inf where and only where that is.

    Scored alone, together, in any order, and streamed.
    """
    chain, items = case
    model = chain.model
    found = model.log_prob_steps(items)
    for item, steps in zip(items, found, strict=True):
        expected, end = chain.log_prob(chain.log_b(item))
        expected = expected if chain.final is None else np.append(expected, end)
        assert_array_equal(np.isneginf(steps), np.isneginf(expected))
        assert_allclose(steps, expected, rtol=1e-9, atol=1e-9)
    check_alike(model, items, found)
    check_stream(model, items[0], found[0])


def check_vectors(case: tuple[Chain, list[np.ndarray]]) -> None:
    """As for symbols, up to the rounding of the values; or a refusal where float64 cannot hold the figure."""
    chain, items = case
    try:
        model = chain.model
    except ValueError as error:
        if "float64" not in str(error):
            raise
        return
    found = [log_prob_or_refusal(model, [item]) for item in items]
    for item, steps in zip(items, found, strict=True):
        log_b = chain.log_b(item)
        if steps is None:
            assert np.isinf(log_b).any() or np.nanmax(np.abs(item)) > 1e50, "refused what float64 can hold"
            continue
        assert not np.isnan(steps[0]).any()
        slack, total = _rounding(chain, model, item), float(steps[0].sum())
        held = np.isfinite(
            slack
        )  # else the value is lost in the rounding, and only the height of the density bounds it
        with np.errstate(invalid="ignore"):
            low, low_rounding = _total(*chain.log_prob(np.where(held, log_b - slack, -np.inf)))
            high, high_rounding = _total(*chain.log_prob(np.where(held, log_b + slack, chain.height)))
        assert low == total or low - low_rounding <= total
        assert high == total or total <= high + high_rounding
    kept = [i for i, steps in enumerate(found) if steps is not None]
    if kept:
        alone = [found[i][0] for i in kept]  # type: ignore[index]
        check_alike(model, [items[i] for i in kept], alone)


def _total(steps: np.ndarray, end: float) -> tuple[float, float]:
    """Nats of the whole, and by how much they may be rounded: a total may be small beside the steps whose sum it is."""
    each = np.append(steps, end)
    total = float(each.sum())
    largest = np.abs(each[np.isfinite(each)]).max(initial=1.0)
    return total, 1e-9 * max(1.0, abs(total)) + 8 * EPS * len(each) * float(largest) if np.isfinite(total) else 0.0


def _rounding(chain: Chain, model: sm.HMM, x: np.ndarray) -> np.ndarray:
    """``(T, K)`` nats by which a log-density can change if values, means and their differences are rounded."""
    shift, scale = model.encoding_.affine()
    with np.errstate(all="ignore"):
        size = np.maximum(np.maximum(np.abs(x[:, None]), np.abs(chain.means)), np.abs(shift) + scale)
        delta, deviation = 8 * EPS * size, np.abs(x[:, None] - chain.means)
        each = ((2 * deviation + delta) / np.sqrt(chain.variances)) * (delta / np.sqrt(chain.variances))
    return np.where(np.isnan(x)[:, None], 0.0, each).sum(-1)


def check_alike(model: sm.SequenceModel, items: list[Any], steps: list[np.ndarray]) -> None:
    """Each alone, and all in the other order, as together."""
    if len(items) == 1:
        return
    _close(model.log_prob_steps(items[:1])[0], steps[0])
    for back, forth in zip(reversed(model.log_prob_steps(items[::-1])), steps, strict=True):
        _close(back, forth)


def check_stream(model: sm.SequenceModel, item: Any, steps: np.ndarray) -> None:
    """Streamed equals batched, as far as the sequence has a probability."""
    stream = model.stream()
    for x, expected in zip(item, steps, strict=False):
        _close(np.array([stream.update(x)]), np.array([expected]))
    if len(steps) > len(item):
        _close(np.array([stream.log_end()]), steps[-1:])


def _close(found: np.ndarray, expected: np.ndarray, tolerance: float = 1e-9) -> None:
    """NaN is like nothing, -inf like -inf."""
    assert not np.isnan(found).any()
    assert_array_equal(np.isneginf(found), np.isneginf(expected))
    largest = np.abs(expected[np.isfinite(expected)]).max(initial=1.0)
    assert_allclose(found, expected, rtol=tolerance, atol=tolerance * largest)


# -- networks and n-grams, fitted once -------------------------------------------------------------------------------

NETWORKS: dict[str, Callable[..., sm.SequenceModel]] = {
    "lstm": lambda **o: sm.LSTM(d_model=4, max_steps=2, **o),
    "elman": lambda **o: sm.ElmanRNN(d_model=4, max_steps=2, observation=sm.GaussianMixture(2, "diag"), **o),
    "transformer": lambda **o: sm.Transformer(d_model=4, n_heads=1, max_steps=2, context=4, **o),
    "hmm": lambda **o: made(sm.HMM, 2, max_iter=2, **o),
    "hmm-full": lambda **o: made(sm.HMM, 2, max_iter=2, observation=sm.GaussianMixture(1, "full"), **o),
}


@cache
def network(name: str, dtype: str) -> sm.SequenceModel:
    """Fitted to a little noise."""
    rng = np.random.default_rng(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return NETWORKS[name](dtype=dtype).fit([rng.standard_normal((n, 2)) for n in (9, 5, 12)], validation=None)


@st.composite
def of_networks(draw: st.DrawFn) -> tuple[str, str, list[np.ndarray]]:
    """A model, its precision, and sequences of any finite values, most of them small."""
    value = st.one_of(st.floats(-3, 3), st.floats(-3, 3), st.floats(allow_nan=False, allow_infinity=False))
    items = st.lists(st.lists(st.lists(value, min_size=2, max_size=2), min_size=1, max_size=4), min_size=1, max_size=3)
    name, dtype = draw(st.sampled_from(sorted(NETWORKS))), draw(st.sampled_from(["float32", "float64"]))
    return name, dtype, [np.array(x) for x in draw(items)]


def check_network(case: tuple[str, str, list[np.ndarray]]) -> None:
    """Finite, or refused; what is refused does not touch the others, and together each is as alone."""
    name, dtype, items = case
    model = network(name, dtype)
    alone = [log_prob_or_refusal(model, [x]) for x in items]
    kept = [i for i, steps in enumerate(alone) if steps is not None]
    assert all(np.abs(items[i]).max() > 1e20 for i in range(len(items)) if i not in kept), (
        "refused what float64 can hold"
    )
    for steps in alone:
        assert steps is None or np.isfinite(steps[0]).all()
    if len(kept) < len(items):
        assert log_prob_or_refusal(model, items) is None
    if kept:
        tolerance = 1e-9 if dtype == "float64" else 1e-4
        for i, steps in zip(kept, model.log_prob_steps([items[i] for i in kept]), strict=True):
            _close(steps, alone[i][0], tolerance)  # type: ignore[index]


@st.composite
def of_ngrams(draw: st.DrawFn) -> tuple[int, str, list[np.ndarray], list[np.ndarray]]:
    """Order, smoothing, training sequences, and others of the same symbols."""
    sequence = st.lists(st.integers(0, 2), min_size=1, max_size=6).map(np.array)
    several = st.lists(sequence, min_size=1, max_size=3)
    return draw(st.integers(1, 4)), draw(st.sampled_from(["kneser-ney", "witten-bell"])), draw(several), draw(several)


def check_ngram(case: tuple[int, str, list[np.ndarray], list[np.ndarray]]) -> None:
    """Never NaN; alone, together, in any order and streamed alike; the next symbols' probabilities sum to one."""
    order, smoothing, train, items = case
    model = sm.NGram(order, smoothing=smoothing, encoding=sm.Symbols(3), dtype="float64").fit(train)
    found = model.log_prob_steps(items)
    for steps in found:
        assert not np.isnan(steps).any()
        assert (steps <= 1e-12).all()
    check_alike(model, items, found)
    check_stream(model, items[0], found[0])
    assert abs(float(model.predict_next(items[0]).probs.sum()) - 1) < 1e-6


PROPERTIES: dict[str, tuple[st.SearchStrategy[Any], Callable[[Any], None]]] = {
    "an HMM of symbols is the forward algorithm in logarithms, batched and streamed": (of_symbols(), check_symbols),
    "an HMM of vectors is so too, or refuses": (of_vectors(), check_vectors),
    "a fitted model of vectors is finite or refuses, in any batch": (of_networks(), check_network),
    "an n-gram model is never NaN, batched and streamed": (of_ngrams(), check_ngram),
}
