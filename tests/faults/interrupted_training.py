"""Ctrl-C and SIGTERM while models are fitted: seconds until ``fit`` returns, and what it leaves.

Every fit runs in a forked process and would take hours. Once it has something to keep (its first checkpoint is there) a
signal comes at a random instant.
"""

from __future__ import annotations

import json
import os
import signal
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import seqmodels as sm
from tests.faults.killed_training import PAIRS, TEXT, TWO, Make, X, in_a_fork, ready_to_fork
from tests.faults.promise import Promise, main

WITHIN = 2.0  # seconds
ENDLESS = 10**7
LONG = [np.random.default_rng(0).normal(size=(20_000, 4)).cumsum(0) % 7]
CASES: dict[str, Make] = {
    "LSTM": lambda **o: (
        sm.LSTM(
            d_model=16, bptt=8, max_steps=ENDLESS, training=sm.training.GradientTraining(patience=ENDLESS)
        ).set_params(**o),
        (TEXT,),
    ),
    "Transformer": lambda **o: (
        sm.Transformer(
            d_model=64, context=32, max_steps=ENDLESS, training=sm.training.GradientTraining(patience=ENDLESS)
        ).set_params(**o),
        (TEXT,),
    ),
    "Baum-Welch": lambda **o: (sm.HMM(8, observation=TWO, tol=0, max_iter=ENDLESS).set_params(**o), (LONG,)),
    "restarts": lambda **o: (sm.HMM(4, n_init=2, tol=0, max_iter=ENDLESS).set_params(**o), (X,)),
    "stepwise EM": lambda **o: (sm.HMM(4, algorithm="stepwise", tol=0, max_iter=ENDLESS).set_params(**o), (LONG,)),
    "EM by gradient": lambda **o: (sm.HMM(4, algorithm="gradient", max_iter=ENDLESS).set_params(**o), (X,)),
    "AlignmentHMM": lambda **o: (sm.AlignmentHMM(tol=0, max_iter=ENDLESS).set_params(**o), PAIRS),
}


def fit(make: Make, folder: Path) -> None:
    """Fit, and write what there is once ``fit`` has returned."""
    model, data = make(training__checkpoint=str(folder / "run.ckpt"), training__checkpoint_seconds=0.02)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        model.fit(*data)
    returned = time.monotonic()
    history = model.history_
    figures = model.log_prob(*data)
    model.save(folder / "model.safetensors")
    loaded = sm.load(folder / "model.safetensors")
    facts = {
        "returned": returned,
        "said": any("ended fit" in str(w.message) for w in warned),
        "interrupted": model.interrupted_ and loaded.interrupted_ and not model.converged_,
        "loads": bool(np.array_equal(loaded.log_prob(*data), figures)),
        "best": is_best(model, history, data),
    }
    (folder / "partial").write_text(json.dumps(facts))
    os.replace(folder / "partial", folder / "facts")


def is_best(model: Any, history: Any, data: tuple[Any, ...]) -> bool:
    """Whether the model is the one that the history says is best so far."""
    if isinstance(model, sm.HMM) and model.algorithm == "stepwise":
        return bool(model.score(*data) > history["log_prob"].iloc[0])  # its lines are of parameters before an M-step
    if history["validation"].isna().all():
        return bool(abs(history["log_prob"].iloc[-1] - model.score(*data)) < 1e-5)
    _, held_out = sm.encodings.raw_data.hold_out(sm.encodings.raw_data.Data.of(*data), "auto", True, model.random_state)
    assert held_out is not None
    return bool(abs(history["validation"].max() - model.score(held_out.X, held_out.y)) < 1e-5)


def interrupted(name: str, number: signal.Signals, wait: float) -> tuple[float, dict[str, Any]]:
    """Seconds from the signal to the end of ``fit``, and the facts."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        pid = in_a_fork(lambda: fit(CASES[name], folder))
        while not (folder / "run.ckpt").exists():
            time.sleep(0.01)
            assert os.waitpid(pid, os.WNOHANG) == (0, 0), f"{name} ended by itself"
        time.sleep(wait)
        sent = time.monotonic()
        os.kill(pid, number)
        _, status = os.waitpid(pid, 0)
        assert status == 0, f"{name} was not fitted after {number.name}: {status}"
        facts = json.loads((folder / "facts").read_text())
    return facts["returned"] - sent, facts


def twice(wait: float) -> float:
    """Seconds from the second Ctrl-C to the KeyboardInterrupt of ``fit``.

    A callback keeps the first from ending it.
    """
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)

        def stuck(row: dict[str, float]) -> None:
            begun = (folder / "begun").exists()
            (folder / ("stuck" if begun else "begun")).touch()
            time.sleep(60.0 * begun)

        def work() -> None:
            try:
                sm.LSTM(d_model=8, max_steps=ENDLESS, training=sm.training.GradientTraining(callbacks=[stuck])).fit(
                    TEXT
                )
            except KeyboardInterrupt:
                (folder / "raised").write_text(str(time.monotonic()))

        pid = in_a_fork(work)
        await_file(folder / "begun")
        time.sleep(wait)
        os.kill(pid, signal.SIGINT)
        await_file(folder / "stuck")
        sent = time.monotonic()
        os.kill(pid, signal.SIGINT)
        os.waitpid(pid, 0)
        return float((folder / "raised").read_text()) - sent


def await_file(path: Path) -> None:
    """Wait for a file."""
    while not path.exists():
        time.sleep(0.01)


def row(name: str, signals: list[signal.Signals], rng: np.random.Generator) -> Promise:
    """The measured row of one case: how fast ``fit`` ended, and what it left."""
    found = [interrupted(name, number, rng.uniform(0, 0.5)) for number in signals]
    slowest = max(seconds for seconds, _ in found)
    broken = sorted({key for _, facts in found for key, value in facts.items() if value is False})
    print(f"{name}: {len(found)} signals, the slowest {slowest:.2f} s, broken: {broken or 'nothing'}", flush=True)
    says = f"{sum(False not in facts.values() for _, facts in found)} of {len(found)}, the slowest in {slowest:.2f} s"
    promise = f"Ctrl-C and SIGTERM leave a fitted, loadable model, the best so far, and `interrupted_`: {name}"
    return Promise(
        promise, f"{len(found)} of {len(found)}, within {WITHIN:.0f} s", says, slowest <= WITHIN and not broken
    )


def measure(quick: bool) -> list[Promise]:
    """A row a case, and one for the second Ctrl-C."""
    rng = np.random.default_rng(0)
    names = ["restarts"] if quick else list(CASES)
    with ready_to_fork():
        rows = [row(name, [signal.SIGINT, signal.SIGTERM] * (1 if quick else 5), rng) for name in names]
        ends = [twice(float(rng.uniform(0.1, 0.4))) for _ in range(1 if quick else 5)]
    says = f"{max(ends):.2f} s at most"
    return [*rows, Promise("a second Ctrl-C ends at once", "within 0.5 s", says, max(ends) <= 0.5)]


if __name__ == "__main__":
    main(measure)
