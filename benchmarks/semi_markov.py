"""An iteration of EM of an HSMM beside others: ``OMP_NUM_THREADS=1 python benchmarks/semi_markov.py``.

500 sequences of 200 steps, one feature, 8 states, categorical durations of up to 50 steps, float64, one thread; all
begin with the same parameters. ``numpy`` is the textbook's recursion over segments below, vectorised over states and
durations, one sequence after the other, and ``numpy, side by side`` the same with 50 sequences in each operation.
Before anything is timed their log-probabilities must be those of ``HSMM`` to 1e-8 nats a step, before each of three
M-steps. ``--gaussian-hsmm PYTHON`` adds the package gaussian-hsmm, which that interpreter has, on some of the
sequences: there a segment ends with its sequence, and the log-probability that must agree is that of such
segmentations.

Seconds are of the processor, the median over rounds in which all take turns.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from explicit_durations import data
from numpy.typing import NDArray

import seqmodels as sm
from seqmodels.inference.chains.packing import Packing
from seqmodels.inference.chains.semi_markov import Durations, SemiMarkovTrellis, forward_pass

HERE = Path(__file__).resolve().parent
N_STATES, LONGEST = 8, 50
PSEUDOCOUNT = 0.01  # of each duration
SAME = 1e-8  # nats a step
STEPS_COMPARED = 3
SIDE_BY_SIDE = 50  # sequences: of more or fewer numpy takes longer
SEQUENCES_OF_PEER = 5

Array = NDArray[np.float64]


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--gaussian-hsmm", default="", metavar="PYTHON", help="an interpreter that has gaussian-hsmm")
    parser.add_argument("--hardware", default="", help="as it shall stand in the table")
    parser.add_argument("--out", default=str(HERE / "results" / "semi_markov.csv"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    table = rows(data(500, 200), LONGEST, options.rounds, options.gaussian_hsmm).assign(
        hardware=options.hardware,
        date=date.today().isoformat(),
        command=shlex.join(["python", *("PYTHON" if arg == options.gaussian_hsmm else arg for arg in sys.argv)]),
        torch=torch.__version__,
        numpy=np.__version__,
    )
    table.to_csv(options.out, index=False, float_format="%.4g")
    print(table.iloc[:, :6].to_string(index=False))


def rows(sequences: list[Array], longest: int, rounds: int, peer: str = "") -> pd.DataFrame:
    """Seconds of an iteration of each; sequences of one length."""
    model = sm.hmm.HSMM(
        N_STATES,
        durations="categorical",
        max_duration=longest,
        duration_pseudocount=PSEUDOCOUNT,
        observation=sm.GaussianMixture(1),
        length="given",
        n_init=1,
        tol=0.0,
        max_iter=1,
    ).fit(sequences)
    start = Chain.of(model)
    x = np.stack(sequences)[..., 0]
    check_same(model, start, x)
    n = len(sequences)
    turns: dict[str, tuple[int, Callable[[], float]]] = {
        "seqmodels": (n, lambda: _seconds_of_model(model, sequences)),
        "numpy, side by side": (n, lambda: _seconds(lambda: iterate(start, x, SIDE_BY_SIDE))),
        "numpy": (n, lambda: _seconds(lambda: iterate(start, x, 1))),
    }
    if peer:
        few = x[:SEQUENCES_OF_PEER]
        turns["gaussian-hsmm"] = (len(few), lambda: _seconds_of_peer(peer, start, few))
    seconds: dict[str, list[float]] = {name: [] for name in turns}
    for _ in range(rounds):
        for name, (_, turn) in turns.items():
            seconds[name].append(turn())
    table = pd.DataFrame(
        {
            "what": name,
            "sequences": count,
            "seconds": float(np.median(seconds[name])),
            "slowest": max(seconds[name]),
            "ms_per_1000_steps": 1e6 * float(np.median(seconds[name])) / (count * x.shape[1]),
        }
        for name, (count, _) in turns.items()
    )
    table.insert(5, "times_seqmodels", table["ms_per_1000_steps"] / table["ms_per_1000_steps"].iloc[0])
    return table


def check_same(model: Any, start: Chain, x: Array) -> None:
    """Raise ``AssertionError`` unless the figures before each M-step are those of ``HSMM``."""
    sequences = list(x[..., None])
    continued = _copied(model).set_params(warm_start=True, max_iter=STEPS_COMPARED).fit(sequences)
    found, chain = [], start
    for _ in range(STEPS_COMPARED + 1):
        chain, log_prob = iterate(chain, x, len(x))
        found.append(log_prob / x.size)
    np.testing.assert_allclose(found, continued.history_["log_prob"], rtol=0, atol=SAME)


def _copied(model: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model")
        return sm.load(Path(folder) / "model")


# -- the textbook ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Chain:
    """``initial (K,)``, ``transition (K, K)``, ``means (K,)``, ``variances (K,)`` and ``durations (K, D)``, raw."""

    initial: Array
    transition: Array
    means: Array
    variances: Array
    durations: Array

    @classmethod
    def of(cls, model: Any) -> Chain:
        """Those of a fitted model of one feature."""
        of_emission = model.means_.ravel(), model.covariances_.ravel()
        return cls(model.initial_.copy(), model.transition_.copy(), *of_emission, model.durations_.copy())

    def log_b(self, x: Array) -> Array:
        """``(..., K)`` log-densities of ``x``."""
        z = (x[..., None] - self.means) ** 2 / self.variances
        result: Array = -0.5 * (z + np.log(2 * np.pi * self.variances))
        return result


def log_sum(values: Array, axis: int) -> Array:
    """``log Σ exp``, also where all are -inf."""
    peak = values.max(axis, keepdims=True)
    peak[np.isneginf(peak)] = 0.0
    with np.errstate(divide="ignore"):
        result: Array = np.log(np.exp(values - peak).sum(axis)) + peak.squeeze(axis)
    return result


def iterate(chain: Chain, x: Array, at_once: int) -> tuple[Chain, float]:
    """An E-step over ``at_once`` of the sequences ``x (n, T)`` at a time and an M-step; log p(x) before it, in nats."""
    total, sums = 0.0, None
    for first in range(0, len(x), at_once):
        part = x[first : first + at_once]
        log_prob, gamma, *counts = expectations(chain, chain.log_b(part))
        moments = [np.einsum("ntk,nt->k", gamma, part**power) for power in (0, 1, 2)]
        total, of_part = total + log_prob, [*counts, *moments]
        sums = of_part if sums is None else [a + b for a, b in zip(sums, of_part, strict=True)]
    assert sums is not None
    initial, xi, durations, weight, first_moment, second_moment = sums
    means = first_moment / weight
    durations = durations + PSEUDOCOUNT
    return Chain(
        initial / initial.sum(),
        xi / xi.sum(1, keepdims=True),
        means,
        second_moment / weight - means**2,
        durations / durations.sum(1, keepdims=True),
    ), total


def expectations(chain: Chain, log_b: Array) -> tuple[float, Array, Array, Array, Array]:
    """log p(x), ``gamma (n, T, K)``, first states ``(K,)``, transitions ``(K, K)`` and durations in full ``(K, D)``.

    Forward-backward over segments of ``log_b (n, T, K)``; the last may go on after the sequence.
    """
    n, T, k = log_b.shape
    longest = min(chain.durations.shape[1], T)
    with np.errstate(divide="ignore"):
        log_a, log_pmf = np.log(chain.transition), np.log(chain.durations[:, :longest].T)  # (D, K)
        longer = np.maximum(1.0 - chain.durations.cumsum(1)[:, :longest].T, 0.0)
        longer[-1] = chain.durations[:, longest:].sum(1)
        log_longer = np.log(longer)
        log_initial = np.log(chain.initial)
    level = np.concatenate([np.zeros((n, 1, k)), log_b.cumsum(1)], 1)
    # Of segments that begin at t, and that have t as their last step, with all steps up to there.
    begins, ends = np.full((n, T, k), -np.inf), np.empty((n, T, k))
    begins[:, 0] = log_initial
    for t in range(T):
        m = min(longest, t + 1)
        firsts = np.arange(t, t - m, -1)  # of the segments of 1, 2, ... steps
        ends[:, t] = log_sum(begins[:, firsts] - level[:, firsts] + log_pmf[:m], 1) + level[:, t + 1]
        if t + 1 < T:
            begins[:, t + 1] = log_sum(ends[:, t, :, None] + log_a, 1)
    last = np.arange(T - 1, T - 1 - longest, -1)
    open_ended = begins[:, last] - level[:, last] + level[:, T, None] + log_longer
    log_prob = log_sum(np.concatenate([ends[:, -1:], open_ended], 1).reshape(n, -1), 1)
    after_end, after_begin = np.zeros((n, T, k)), np.empty((n, T, k))
    counts = np.zeros((longest, k))
    gamma_change = np.zeros((n, T + 1, k))
    beyond = np.zeros((longest, k))
    for t in reversed(range(T)):
        m = min(longest, T - t)
        terms = log_pmf[:m] + level[:, t + 1 : t + m + 1] - level[:, t, None] + after_end[:, t : t + m]
        joint = terms
        if T - t <= longest:
            goes_on = log_longer[T - t - 1] + level[:, T] - level[:, t]
            joint = np.concatenate([terms, goes_on[:, None]], 1)
            beyond[T - t - 1] += np.exp(begins[:, t] + goes_on - log_prob[:, None]).sum(0)
        after_begin[:, t] = log_sum(joint, 1)
        p = np.exp(begins[:, t, None] + terms - log_prob[:, None, None])
        counts[:m] += p.sum(0)
        gamma_change[:, t] += np.exp(begins[:, t] + after_begin[:, t] - log_prob[:, None])
        gamma_change[:, t + 1 : t + m + 1] -= p
        if t:
            after_end[:, t - 1] = log_sum(log_a[None] + after_begin[:, t, None, :], 2)
    gamma = np.maximum(gamma_change[:, :T].cumsum(1), 0.0)
    to_next = ends[:, :-1, :, None] + log_a + after_begin[:, 1:, None, :] - log_prob[:, None, None, None]
    return (
        float(log_prob.sum()),
        gamma,
        gamma[:, 0].sum(0),
        np.exp(to_next).sum((0, 1)),
        _in_full(chain, counts, beyond),
    )


def _in_full(chain: Chain, counts: Array, beyond: Array) -> Array:
    """``(K, D)``: segments that go on after e steps, ``beyond (e, K)``, have ``p(d) / P(d > e)`` of each d > e."""
    result = np.zeros_like(chain.durations)
    result[:, : len(counts)] = counts.T
    for e in range(1, len(beyond) + 1):
        tail = chain.durations[:, e:]
        total = tail.sum(1, keepdims=True)
        result[:, e:] += beyond[e - 1][:, None] * np.divide(tail, total, out=np.zeros_like(tail), where=total > 0)
    return result


# -- the clock ---------------------------------------------------------------------------------------------------------


def _seconds(call: Callable[[], Any]) -> float:
    before = time.process_time()
    call()
    return time.process_time() - before


def _seconds_of_model(model: Any, sequences: list[Array]) -> float:
    """What a fit of four steps more takes more, over four."""
    runs = [_copied(model).set_params(warm_start=True, max_iter=n) for n in (1, 5)]
    one, five = (_seconds(lambda run=run: run.fit(sequences)) for run in runs)
    return (five - one) / 4


def _seconds_of_peer(python: str, start: Chain, x: Array) -> float:
    """Of an iteration in a process of its own; its log-probability must be that of segments that end with x."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "start.npz"
        np.savez(file, x=x, **vars(start))
        command = [python, str(HERE / "peers" / "gaussian_hsmm.py"), str(file)]
        result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    np.testing.assert_allclose(result["log_prob"] / x.size, closed_log_prob(start, x) / x.size, rtol=0, atol=SAME)
    return float(result["seconds"])


def closed_log_prob(chain: Chain, x: Array) -> float:
    """Nats of ``x (n, T)`` by ``seqmodels`` where the last segment ends with its sequence."""
    packing = Packing.of([x.shape[1]] * len(x))
    tensors = [torch.from_numpy(each) for each in (chain.initial, chain.transition, np.ones(len(chain.initial)))]
    log_b = packing.pack(torch.from_numpy(chain.log_b(x)).flatten(0, 1))
    durations = Durations.of(torch.from_numpy(chain.durations).log())
    filtered = forward_pass(SemiMarkovTrellis(*tensors, durations, log_b, packing))
    return float((packing.totals(filtered.steps) + filtered.ends).sum())


if __name__ == "__main__":
    main()
