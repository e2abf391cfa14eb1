"""Every cursor of a hidden Markov model against batched figures and the textbook forward pass, on difficult chains."""

from __future__ import annotations

import time

import numpy as np
import torch

import seqmodels as sm
from tests.families import Row, rough, rows
from tests.faults.promise import Promise, main
from tests.hard_chains import CHAINS, batched, deviation, log_steps, walked, with_chain

GOAL = 1e-9
LONG = 10_000  # steps of the longest chains
STATES, FRAMES = 512, 132_072  # of a sequence that is scored in slices
TIMES = 4.0  # as long as its matrix products alone, at most


def measure(quick: bool) -> list[Promise]:
    result = [_cursors(quick), _repeated(quick)]
    return result if quick else [*result, _steps_in_thousands(), _slices()]


def _hmms() -> list[Row]:
    return [row for row in rows() if isinstance(row.model, sm.HMM) and not row.conditional]


def _kept(what: str, n: int, worst: float) -> Promise:
    return Promise(what, f"{GOAL:g}, relative", f"{worst:.1e} in {n} chains", worst < GOAL)


def _cursors(quick: bool) -> Promise:
    """Every observation and topology of an HMM under every chain of the table, on a repeated segment and far frames."""
    rng, worst, n = np.random.default_rng(0), 0.0, 0
    for row in _hmms()[:: 6 if quick else 1]:
        for name in CHAINS:
            model = with_chain(rough(row), name)
            for item in row.scored[: 1 if quick else 3]:
                x = _perturbed(item, 20 if quick else 120, rng)
                expected, n = log_steps(model, x), n + 1
                worst = max(worst, deviation(walked(model, x), expected), deviation(batched(model, x), expected))
    return _kept("the cursor of an HMM is the sum over its paths, and so are the batched figures", n, worst)


def _perturbed(item: object, size: int, rng: np.random.Generator) -> object:
    """Repeated to ``size`` steps; of real numbers a tenth lies 10 to 10^6 times as far."""
    if isinstance(item, str):
        return (item * size)[:size]
    x = np.concatenate([np.asarray(item)] * size)[:size].copy()
    if x.ndim == 2 and not np.array_equal(x, np.round(x)):
        far = rng.random(size) < 0.1
        x[far] *= 10.0 ** rng.integers(1, 7, (far.sum(), 1))
    return x


def _repeated(quick: bool) -> Promise:
    """An HMM as EM fitted it, asked for its own sequences with segments repeated, reversed or shaken."""
    rng, worst, n = np.random.default_rng(1), 0.0, 0
    x = [np.repeat(rng.normal(size=(20, 3)), 5, axis=0) + 0.05 * rng.normal(size=(100, 3)) for _ in range(4)]
    model = sm.HMM(6, observation=sm.GaussianMixture(1), n_init=1, length="given", dtype="float64").fit(x)
    for _ in range(2 if quick else 20):
        item = x[rng.integers(4)]
        start = rng.integers(80)
        for changed in (
            np.concatenate([item[start : start + 20]] * 20),
            item[::-1],
            item + rng.normal(size=item.shape),
        ):
            expected, n = log_steps(model, changed), n + 1
            worst = max(
                worst, deviation(walked(model, changed), expected), deviation(batched(model, changed), expected)
            )
    return _kept("an HMM as EM fits it, on segments repeated, reversed and shaken", n, worst)


def _steps_in_thousands() -> Promise:
    """Chains of two states that emit the wrong symbol for thousands of steps, and then the right one."""
    worst = 0.0
    for name in CHAINS:
        initial, transition = CHAINS[name](2)
        transition = transition / transition.sum(1, keepdims=True)
        emission = [[0.9, 0.05, 0.05], [0.05, 0.9, 0.05]]
        model = sm.HMM.from_parameters(initial, transition, emission=emission, dtype="float64")
        x = np.repeat([0, 1, 0, 1], [LONG // 5, LONG // 5, LONG // 5, 2 * LONG // 5])
        expected = log_steps(model, x)
        worst = max(worst, deviation(walked(model, x), expected), deviation(batched(model, x), expected))
    return _kept(f"chains of {LONG} steps", len(CHAINS), worst)


def _slices() -> Promise:
    """Two groups of states with hardly a transition between them.

    The second half of the sequence is explained by the group that does not explain the first half.
    """
    rng, half = np.random.default_rng(0), STATES // 2
    transition = np.full((STATES, STATES), 1e-60)
    for part in (slice(0, half), slice(half, STATES)):
        transition[part, part] = rng.dirichlet(np.ones(half), half)
    emission = rng.dirichlet(np.ones(8), STATES)
    emission[:half, 0] += 0.05
    emission[half:, 1] += 0.05
    emission /= emission.sum(1, keepdims=True)
    initial, transition = np.full(STATES, 1 / STATES), transition / transition.sum(1, keepdims=True)
    model = sm.HMM.from_parameters(initial, transition, emission=emission)
    means = emission[:half].mean(0), emission[half:].mean(0)
    x = np.concatenate([rng.choice(8, FRAMES // 2, p=mean / mean.sum()) for mean in means])
    began = time.perf_counter()
    found = float(model.log_prob([x])[0])
    times = (time.perf_counter() - began) / _seconds_of_products(transition)
    expected = _in_parts(initial, transition, emission, x)
    apart = abs(found - expected) / abs(expected)
    return Promise(
        f"a sequence of {FRAMES} steps and {STATES} states in two parts, 1e-60 from one to the other, float32",
        f"1e-7, relative, in {TIMES:.0f} times the seconds of its float64 products at most",
        f"{apart:.1e} ({abs(found - expected):.4f} nats) in {times:.1f} times",
        apart < 1e-7 and times < TIMES,
    )


def _seconds_of_products(transition: np.ndarray) -> float:
    """What the products of as many beliefs with the transitions take, by a tenth of them."""
    matrix, belief = torch.from_numpy(transition), torch.full((1, STATES), 1 / STATES, dtype=torch.float64)
    began = time.perf_counter()
    for _ in range(FRAMES // 10):
        belief = belief @ matrix
    return 10 * (time.perf_counter() - began)


def _in_parts(initial: np.ndarray, transition: np.ndarray, emission: np.ndarray, x: np.ndarray) -> float:
    """The forward pass with a scale for each of the two parts, so that neither can underflow."""
    half, seen = len(initial) // 2, emission.T.copy()
    inner = transition[:half, :half].copy(), transition[half:, half:].copy()
    across = transition[half:, :half].copy(), transition[:half, half:].copy()  # into either, from the other
    faint = [np.log(matrix.max()) for matrix in across]
    parts, logs = [initial[:half], initial[half:]], np.zeros(2)
    for t, symbol in enumerate(x):
        if t:
            onward, tops = [], []
            for i in range(2):
                top = max(logs[i], logs[1 - i] + faint[i])
                own, other = np.exp(logs[i] - top), np.exp(logs[1 - i] - top)
                onward.append(own * (parts[i] @ inner[i]) + other * (parts[1 - i] @ across[i]))
                tops.append(top)
            parts, logs = onward, np.array(tops)
        parts = [parts[0] * seen[symbol, :half], parts[1] * seen[symbol, half:]]
        sums = [part.sum() for part in parts]
        parts, logs = [part / total for part, total in zip(parts, sums, strict=True)], logs + np.log(sums)
    return float(np.logaddexp(*logs))


if __name__ == "__main__":
    main(measure)
