"""Fits of networks that experiments compare."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any

import pandas as pd

import seqmodels as sm
from seqmodels.evaluation.comparison.provenance import stamped


def fitted_figures(
    model: sm.SequenceModel, train: Any, validation: Any, *, scores_training: bool = True
) -> dict[str, Any]:
    """What ``model`` reaches, fitted to ``train``.

    Returns:
        ``score`` of ``validation``, and with ``scores_training`` the ``train_score``, in nats a unit; ``steps`` taken,
        and ``best_step``, the one of the best score of what the fit holds out; ``cpu_seconds`` of the process for the
        fit and the scores.
    """
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of floors
        model.fit(train)
    history = model.history_
    scores = {"train_score": model.score(train)} if scores_training else {}
    return {
        **scores,
        "score": model.score(validation),
        "steps": int(history["step"].iloc[-1]),
        "best_step": int(history["step"][history["validation"].idxmax()]),
        "cpu_seconds": round(time.process_time() - began, 1),
    }


def add_row(row: dict[str, Any], file: Path) -> None:
    """Print a row, and write it behind those of ``file`` (CSV), with the command, date and hardware."""
    print(row, flush=True)
    stamped(pd.DataFrame([row])).to_csv(file, mode="a", header=not file.exists(), index=False)
