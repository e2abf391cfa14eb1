"""Going on from a checkpoint with another setting, seed or data: refused, naming what differs."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import seqmodels as sm
from tests.faults.promise import Promise, main

RNG = np.random.default_rng(0)
DATA = [RNG.integers(0, 3, 12) for _ in range(20)]
OTHER = [*DATA[:-1], DATA[-1][::-1].copy()]  # one sequence backwards
FITS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "LSTM": (
        lambda **options: sm.LSTM(d_model=8, max_steps=4, batch_size=4).set_params(**options),
        {
            "lr": 0.5,
            "batch_size": 5,
            "random_state": 1,
            "training__optimizer": sm.training.Muon(),
            "training__schedule": sm.training.Cosine(),
            "training__weight_decay": 0.5,
            "dropout": 0.5,
            "d_model": 16,
            "bptt": 3,
            "training__precision": "float32",
        },
    ),
    "HMM by EM": (
        lambda **options: sm.HMM(3, max_iter=3, tol=0).set_params(**options),
        {
            "n_states": 4,
            "max_iter": 5,
            "tol": 0.5,
            "n_init": 2,
            "random_state": 1,
            "dtype": "float64",
            "pseudocount": 1.0,
        },
    ),
    "HMM by stepwise EM": (
        lambda **options: sm.HMM(3, algorithm="stepwise", max_iter=3, tol=0).set_params(**options),
        {"algorithm": "em", "training__batches": 3, "training__step_decay": 0.9, "random_state": 1},
    ),
}


def refused(make: Callable[..., Any], changed: dict[str, Any], data: list[np.ndarray], named: str, **fit: Any) -> bool:
    """Whether going on with something ``changed`` is a ``ValueError`` that says what."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "run.ckpt")
        make(training__checkpoint=path).fit(DATA)
        try:
            make(training__resume_from=path, **changed).fit(data, **fit)
        except ValueError as error:
            return named in str(error)
    return False


def measure(quick: bool) -> list[Promise]:
    """A row a model; quick or not, all of it takes seconds."""
    rows = []
    for name, (make, otherwise) in FITS.items():
        tried = {setting: refused(make, {setting: value}, DATA, setting) for setting, value in otherwise.items()}
        tried["data"] = refused(make, {}, OTHER, " data")
        tried["sample_weight"] = refused(make, {}, DATA, "sample_weight", sample_weight=np.arange(1.0, 21.0))
        missed = [setting for setting, is_refused in tried.items() if not is_refused]
        measured = f"{len(tried) - len(missed)} of {len(tried)}" + (f", not {', '.join(missed)}" if missed else "")
        goal = "all refused, naming what differs"
        rows.append(Promise(f"`resume_from` with another setting, seed or data: {name}", goal, measured, not missed))
    return rows


if __name__ == "__main__":
    main(measure)
