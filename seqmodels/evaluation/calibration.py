"""Calibration of predictions: whether events of predicted probability p occur in a share p of the cases."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from seqmodels.generation.predicted_features import WITH_DENSITY, step_cdfs
from seqmodels.model import SequenceModel
from seqmodels.model.teacher_forcing import forced_batches

if TYPE_CHECKING:
    import pandas as pd

BIN_EDGES = np.array([0, 1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.97, 1])
HISTOGRAM_BINS = 20  # bins of the probability integral transform
SYMBOL_STEPS, VECTOR_STEPS = 1536, 480  # steps that are evaluated by default


@dataclass(frozen=True)
class Reliability:
    """The result of ``reliability``: predictions grouped into bins by their probability, with the share that came true.

    A prediction is one symbol at one step; V symbols make V predictions for each step.

    Attributes:
        table: a frame with a row for each bin in use: ``predicted`` (mean probability of its predictions),
            ``observed`` (the share whose symbol occurred), ``n`` (number of predictions).
        error: expected calibration error, the sum over bins of ``|n_occurred - n_expected| / n_steps``, where the
            symbols of a bin are counted together; 0 is best, 2 worst.
        by_chance: the error that the same predictions would have if they were right, with symbols drawn from them once.
        n_steps: number of steps that were evaluated.
    """

    table: pd.DataFrame
    error: float
    by_chance: float
    n_steps: int


def reliability(
    model: SequenceModel, X: Any, y: Any = None, *, n_steps: int = SYMBOL_STEPS, random_state: int = 0
) -> Reliability:
    """Measure how well a model of symbols is calibrated on about ``n_steps`` held-out steps.

    Every symbol of the model's alphabet (bytes, characters, subwords) is a prediction at every step, given that the
    sequence goes on. A single long sequence is evaluated on windows spread over it, each read from its own start. Among
    pairs only those with the most common source lengths are used, so that they can be read together. Reference: Guo et
    al. (2017), *On calibration of modern neural networks*, here over all symbols instead of the likeliest.

    Args:
        model: a fitted model of symbols.
        X: held-out sequences, or sources.
        y: targets of the sources, whose steps are evaluated; None for a model of p(x).
        n_steps: about how many steps are evaluated.
        random_state: seed of the choice of sequences.

    Returns:
        ``Reliability``, with the calibration error ``.error`` and a row for each bin of probabilities in ``.table``.

    Raises:
        ValueError: the model is of vectors; use ``pit``.
    """
    import pandas as pd

    if model.observation_.emits != "symbols":
        raise ValueError("a model of vectors has no probabilities of symbols; use pit")
    generator = torch.Generator().manual_seed(random_state)
    n_bins = len(BIN_EDGES) - 1
    n_read = 0
    counts = np.zeros(n_bins)
    predicted = np.zeros(n_bins)
    observed = np.zeros(n_bins)
    simulated = np.zeros(n_bins)
    for probabilities, x in _symbol_steps(model, X, y, n_steps, random_state):
        drawn = torch.multinomial(probabilities, 1, generator=generator).squeeze(1)
        bins = np.clip(np.searchsorted(BIN_EDGES, probabilities.numpy(), side="right") - 1, 0, n_bins - 1)  # (m, V)
        rows = np.arange(len(x))
        counts += np.bincount(bins.ravel(), minlength=n_bins)
        predicted += np.bincount(bins.ravel(), probabilities.numpy().ravel(), minlength=n_bins)
        observed += np.bincount(bins[rows, x.numpy()], minlength=n_bins)
        simulated += np.bincount(bins[rows, drawn.numpy()], minlength=n_bins)
        n_read += len(x)
    used = counts > 0
    columns = {"predicted": predicted[used] / counts[used], "observed": observed[used] / counts[used]}
    table = pd.DataFrame({**columns, "n": counts[used].astype(int)})
    error, by_chance = (float(np.abs(hits - predicted).sum() / n_read) for hits in (observed, simulated))
    return Reliability(table, error, by_chance, n_read)


def _symbol_steps(
    model: SequenceModel, X: Any, y: Any, n_steps: int, random_state: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield predicted probabilities, ``(m, V)``, and the symbols that occurred, ``(m,)``, for each batch of m steps.

    V is the number of symbols. A step after a symbol of probability zero is left out, because it has no prediction.

    Args:
        model: a fitted model of symbols.
        X: held-out sequences, or sources.
        y: targets of the sources; None for a model of p(x).
        n_steps: about how many steps are yielded.
        random_state: seed of the choice of sequences.
    """
    for batch in forced_batches(model, X, y, n_steps, random_state):
        for prediction, x, rows in batch.steps(model):
            probabilities = prediction.log_probs(with_end=False)[rows].exp().cpu()
            defined = torch.isfinite(probabilities).all(-1) & (probabilities.sum(-1) > 0)
            if defined.any():
                yield probabilities[defined], x[rows][defined]


def pit(
    model: SequenceModel, X: Any, y: Any = None, *, n_steps: int = VECTOR_STEPS, random_state: int = 0
) -> np.ndarray:
    """Return the probability integral transforms ``P(X_td <= x_td | x_<t)`` of held-out frames, shape ``(n, D)``.

    They are the predicted cumulative probabilities of the values that came, for n frames of D features; NaN where a
    value is missing. Under a calibrated model each column is uniform on 0 to 1. If values crowd in the middle, the
    predictions are too wide; if at the ends, too narrow. Each feature is evaluated exactly under its own distribution
    given the steps before: the cdf of a mixture is the mixture of its components' cdfs, and the cdf of angles begins at
    -π. Reference: Dawid (1984), *Statistical theory: the prequential approach*; Gneiting et al. (2007), *Probabilistic
    forecasts, calibration and sharpness*.

    Args:
        model: a fitted model of vectors.
        X: held-out sequences, or sources. A single long sequence is evaluated on windows spread over it; among pairs
            only those with the most common source lengths are used.
        y: targets of the sources, whose steps are evaluated; None for a model of p(x).
        n_steps: about how many steps are evaluated.
        random_state: seed of the choice of sequences.

    Raises:
        ValueError: the model is of symbols (use ``reliability``), of bits or counts, whose cdf has steps, or of a
            density whose cdf is not known.
    """
    size = model.encoding_.size
    if model.observation_.emits != "vectors" or not set(model.observation_.values(size)) <= WITH_DENSITY:
        raise ValueError(f"{model.observation_!r} has no density in every feature; of symbols see reliability")
    transforms = [np.empty((0, size))]
    for batch in forced_batches(model, X, y, n_steps, random_state):
        for prediction, x, rows in batch.steps(model):
            cdfs = step_cdfs(prediction, x, model.encoding_.affine()[1])
            if cdfs is None:
                raise ValueError(f"{model.observation_!r} does not know the cdf of each feature")
            transforms.append(cdfs[1][rows[~prediction.has_no_next_step.cpu().numpy()[rows]]])
    return np.concatenate(transforms)


def histogram(transforms: np.ndarray) -> tuple[np.ndarray, float]:
    """Return a histogram of probability integral transforms in 20 equal bins with mean 1, and its calibration error.

    The error is the share of all values that would have to move to make the histogram uniform.

    Args:
        transforms: cumulative probabilities between 0 and 1, of any shape; NaN is left out.

    Returns:
        The height of each bin, shape ``(20,)``, and the error, 0 to 1.
    """
    values = transforms[~np.isnan(transforms)]
    counts, _ = np.histogram(values, bins=HISTOGRAM_BINS, range=(0, 1))
    shares = counts / max(1, len(values))
    return shares * HISTOGRAM_BINS, float(0.5 * np.abs(shares - 1 / HISTOGRAM_BINS).sum())
