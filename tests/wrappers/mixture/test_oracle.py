"""Mixtures against slow implementations of the same equations, of what their members say of each step by themselves."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import logsumexp, softmax

import seqmodels as sm

Decision = tuple[int, int, int, np.ndarray]  # its place in the symbol, its node, the outcome, log-odds of the members


def walk(size: int, n: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).choice([0, 1, 1, 2], size=n).cumsum() % size


def limited(x: float) -> float:
    return min(max(x, -12.0), 12.0)


def log_odds(one: float, zero: float) -> float:
    """0 where neither can be."""
    if one == 0 == zero:
        return 0.0
    return limited((math.log(one) if one else -math.inf) - (math.log(zero) if zero else -math.inf))


def decisions(members: list[sm.SequenceModel], x: np.ndarray, size: int, *, has_end: bool) -> list[list[Decision]]:
    """Of each step: first whether it is the end, then the bits of the symbol from the highest, where there are two."""
    n_bits = max(size - 1, 0).bit_length()
    steps = []
    for t in range(len(x) + has_end):
        each = [np.append(m.predict_next(x[:t]).probs.numpy(), 0)[: size + 1] for m in members]
        step: list[Decision] = []
        if has_end and t > 0:
            step.append((0, 0, int(t == len(x)), np.array([log_odds(p[size], p[:size].sum()) for p in each])))
        for depth in range(n_bits if t < len(x) else 0):
            width = 2 ** (n_bits - depth - 1)
            first = int(x[t]) // (2 * width) * (2 * width)
            if first + width < size:
                zero, one = slice(first, first + width), slice(first + width, min(first + 2 * width, size))
                node, bit = 2**depth + first // (2 * width), int(int(x[t]) >= first + width)
                step.append((depth + 1, node, bit, np.array([log_odds(p[one].sum(), p[zero].sum()) for p in each])))
        steps.append(step)
    return steps


class Gate:
    """Rows of weights by what chooses them."""

    def __init__(self, prior: np.ndarray, size: int, *, follows_leads: bool) -> None:
        self.size, self.follows_leads = size, follows_leads
        self.n_models = len(prior)
        self.rows: dict[Any, np.ndarray] = defaultdict(lambda: np.zeros(len(prior)))
        self.prior = prior

    def row(self, key: Any) -> np.ndarray:
        if key not in self.rows:
            self.rows[key] = self.prior.copy() if key[0] == "node" else np.zeros(self.n_models)
        return self.rows[key]

    def read(self, steps: list[list[Decision]], x: np.ndarray, rate: float) -> list[float]:
        past, recent, nats = [self.size, self.size], np.zeros(self.n_models), []
        n_bins = {1: 9, 2: 9, 3: 9, 4: 5}.get(self.n_models, 3)
        for t, step in enumerate(steps):
            lead: Any = 0
            if self.follows_leads and self.n_models > 1:
                best, second = int(recent.argmax()), np.sort(recent)[-2]
                level = min(math.floor((recent[best] - second) / 0.125 + 0.5), 4)
                lead = (best, level) if level else 0
            log_p, given, changes = 0.0, np.zeros(self.n_models), []
            for place, node, bit, odds in step:
                bins = tuple(min(max(math.floor((o + 9) / 18 * n_bins), 0), n_bins - 1) for o in odds[:6])
                chosen = [("node", node), ("last", past[-1], node), ("pair", past[-1], past[-2]), ("bins", bins)]
                chosen.append(("lead", place, lead))
                p = 1 / (1 + math.exp(-float(sum(self.row(key) for key in chosen) @ odds)))
                log_p += math.log(p if bit else 1 - p)
                given += -np.log1p(np.exp(-odds if bit else odds))
                changes += [(key, rate * (bit - p) * odds) for key in chosen]
            for key, change in changes:
                self.rows[key] = self.rows[key] + change
            recent = 0.8 * recent + 0.2 * given
            nats.append(log_p)
            past.append(int(x[t]) if t < len(x) else -1)
        return nats


HELD_OUT, NEW = [walk(5, 14, 1), walk(5, 1, 2), np.array([4, 4, 4, 0])], [walk(5, 12, 3), np.array([2, 2, 2, 2])]


@pytest.mark.parametrize("n_models", [1, 2, 3, 4])
@pytest.mark.parametrize("length", ["given", "stop"])
@pytest.mark.parametrize("weights", ["gated", "contextual"])
def test_logistic_mixing_of_symbols(weights: Any, length: Any, n_models: int) -> None:
    size, has_end = 5, length == "stop"
    train = [walk(size, 40, 4), walk(size, 12, 5)]
    options: dict[str, Any] = {"length": length, "dtype": "float64", "encoding": sm.Symbols(size)}
    members: list[sm.SequenceModel] = [sm.NGram(k + 1, **options).fit(train) for k in range(n_models)]
    model = sm.Mixture.from_fitted(members, HELD_OUT, weights=weights)
    prior = sm.Mixture.from_fitted(members, HELD_OUT).weights_.prior
    held_out = [(decisions(members, x, size, has_end=has_end), x) for x in HELD_OUT]

    def fresh() -> Gate:
        return Gate(prior, size, follows_leads=weights == "gated")

    def run(gate: Gate, rate: float) -> float:
        return sum(sum(gate.read(steps, x, rate)) for steps, x in held_out)

    rate = max((0.0003, 0.001, 0.003, 0.01), key=lambda rate: run(fresh(), rate))
    gate = fresh()
    for n_passes in range(3):
        run(gate, rate / (1 + n_passes))
    fitted = dict(gate.rows)
    for x in NEW:
        gate.rows.clear()
        gate.rows.update(fitted)
        expected = gate.read(decisions(members, x, size, has_end=has_end), x, rate if weights == "gated" else 0.0)
        assert_allclose(model.log_prob_steps([x])[0], expected, rtol=0, atol=1e-10)


def density_gate(
    log_p: np.ndarray, bias: np.ndarray, scale: float, rate: float, decay: float
) -> tuple[list[float], np.ndarray, float]:
    """Nats of each step; the bias and the scale after them."""
    recent, nats = np.zeros(len(bias)), []
    for row in log_p:
        weights = softmax(bias + scale * recent)
        total = float(logsumexp(row, b=weights))
        error = weights * np.exp(row - total) - weights
        bias, scale = bias + rate * error, scale + rate * float(error @ recent)
        recent = decay * recent + (1 - decay) * np.clip(row - total, -20, 20)
        nats.append(total)
    return nats, bias, scale


def test_weights_of_densities() -> None:
    rng = np.random.default_rng(0)
    series = [3.0 * (rng.random((n, 1)).cumsum(0) % 8 < 4) + rng.normal(size=(n, 1)) for n in (40, 30, 1, 30)]
    encoding = sm.HMM(1).learned_encoding(series)
    members: list[sm.SequenceModel] = [
        sm.HMM(k, dtype="float64", max_iter=3).fit_encoded(encoding, series[:1]) for k in (1, 2)
    ]
    model = sm.Mixture.from_fitted(members, series[1:3], weights="gated")
    prior = np.log(sm.Mixture.from_fitted(members, series[1:3]).weights_.prior)
    each = zip(*(m.log_prob_steps(series[1:]) for m in members), strict=True)
    *held_out, new = (np.column_stack(steps) for steps in each)
    best: tuple[float, Any] = (-math.inf, None)
    for rate in (0.0, 0.001, 0.01, 0.03, 0.1):
        for decay in (0.0, 0.5, 0.8, 0.95):
            bias, scale = prior, 0.0
            for n_passes in range(3):
                for x in held_out:
                    _, bias, scale = density_gate(x, bias, scale, rate / (1 + n_passes), decay)
                    bias = bias - bias.mean()
            nats = sum(sum(density_gate(x, bias, scale, rate, decay)[0]) for x in held_out)
            best = max(best, (nats, (bias, scale, rate, decay)), key=lambda each: each[0])
    assert_allclose(model.log_prob_steps(series[3:])[0], density_gate(new, *best[1])[0], rtol=0, atol=1e-9)
