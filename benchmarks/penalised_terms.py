"""Seconds of processor time of fits with penalised terms: ``python benchmarks/penalised_terms.py``.

``animals`` is 20 animals with 2,000 steps each in three states, a random effect of the animal on transitions and on
emissions, and a smooth function of the hour, which repeats itself, on transitions. ``few steps`` are ``--small`` fits
to two to five animals with 10 to 25 steps each in two states, every other one with missing values. The criterion is the
restricted marginal log-likelihood in nats, so that two versions of the package are compared by both columns.
``--small 0`` leaves the latter out.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np

import seqmodels as sm

RANDOM, SMOOTH = sm.hmm.RandomEffect("animal"), sm.hmm.Smooth("hour", period=24)
MANY = sm.hmm.ChainInputEffects(transitions=[RANDOM, SMOOTH], emissions=[RANDOM])
FEW = sm.hmm.ChainInputEffects(transitions=[RANDOM], emissions=[SMOOTH])
LOG_ODDS = np.array([[0.0, -2.0, -2.5], [-2.0, 0.0, -2.0], [-2.5, -2.0, 0.0]])


def animals(seed: int, n: int = 20, length: int = 2000) -> sm.Sequences:
    """A sequence of one feature for each animal, from three states."""
    rng, items, inputs = np.random.default_rng(seed), [], []
    of_transitions, of_means = 0.5 * rng.normal(size=(n, 3, 3)), 0.4 * rng.normal(size=(n, 3))
    for animal in range(n):
        hour, z, states = (rng.integers(24) + np.arange(length)) % 24.0, 0, []
        for wave, uniform in zip(0.6 * np.sin(2 * np.pi * hour / 24), rng.random(length), strict=True):
            odds = np.exp(LOG_ODDS[z] + (np.arange(3) != z) * (of_transitions[animal, z] + wave))
            z = min(int(np.searchsorted(np.cumsum(odds / odds.sum()), uniform)), 2)
            states.append(z)
        means = np.array([0.0, 2.5, 5.0]) + of_means[animal]
        items.append(means[states][:, None] + rng.normal(size=(length, 1)))
        inputs.append(np.stack([np.full(length, float(animal)), hour], 1))
    return sm.Sequences(items, inputs=inputs, input_names=["animal", "hour"])


def few_steps(seed: int) -> sm.Sequences:
    """Two to five animals with 10 to 25 steps each, from two states; with missing values if the seed is odd."""
    rng, items, inputs = np.random.default_rng(seed), [], []
    for animal in range(int(rng.integers(2, 6))):
        length = int(rng.integers(10, 26))
        hour, effect, z, states = (rng.integers(24) + np.arange(length)) % 24.0, 0.7 * rng.normal(size=2), 0, []
        for _ in range(length):
            states.append(z := 1 - z if rng.random() < 1 / (1 + np.exp(1.5 - effect[z])) else z)
        x = 2.0 * np.array(states) + 0.5 * np.sin(2 * np.pi * hour / 24) + rng.normal(size=length)
        items.append(np.where((seed % 2 == 1) & (rng.random(length) < 0.15), np.nan, x)[:, None])
        inputs.append(np.stack([np.full(length, float(animal)), hour], 1))
    return sm.Sequences(items, inputs=inputs, input_names=["animal", "hour"])


def fitted(X: sm.Sequences, n_states: int, effects: sm.hmm.ChainInputEffects) -> tuple[float, float, bool]:
    """Seconds of processor time, the criterion in nats, and whether the fit converged."""
    model = sm.HMM(
        n_states, observation=sm.GaussianMixture(1), n_init=1, dtype="float64", input_effects=effects, random_state=0
    )
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="the standard deviation of")
        model.fit(X)
    return time.process_time() - began, model.history_["objective"].iloc[-1] * sum(map(len, X)), model.converged_


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="of the animals")
    parser.add_argument("--small", type=int, default=28, help="number of fits to few steps")
    parser.add_argument("--length", type=int, default=2000, help="steps of an animal")
    arguments = parser.parse_args()
    seconds, criterion, converged = fitted(animals(arguments.seed, length=arguments.length), 3, MANY)
    print(f"animals    {seconds:6.1f} s  criterion {criterion:.3f}  converged {converged}", flush=True)
    if arguments.small:
        rows = np.array([fitted(few_steps(seed), 2, FEW) for seed in range(arguments.small)])
        print(
            f"few steps  {np.median(rows[:, 0]):6.1f} s  at most {rows[:, 0].max():.1f} s  "
            f"criterion {rows[:, 1].sum():.3f} summed  converged {int(rows[:, 2].sum())} of {len(rows)}"
        )


if __name__ == "__main__":
    main()
