"""Whether a model means what it says: does what it gives probability p come in a share p of the cases?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from seqmodels.evaluation.walking import walks
from seqmodels.generation import Prediction
from seqmodels.model import SequenceModel

EDGES = np.array([0, 1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.97, 1])
BINS = 20  # of the histogram of the probability integral transform
SYMBOL_STEPS, VECTOR_STEPS = 1536, 480


@dataclass(frozen=True)
class Reliability:
    """How often symbols came that were given a probability in each bin.

    Attributes:
        table: a row for each bin in use: ``predicted`` (mean probability), ``observed`` (share that came), ``n`` (predictions: V a step).
        error: expected calibration error: ``Σ_bins |came - expected| / steps``, pooled over all symbols; 0 is best, 2 worst.
        by_chance: the error that the same predictions would have were they right (symbols drawn from them once).
        n_steps: steps that were judged.
    """

    table: pd.DataFrame
    error: float
    by_chance: float
    n_steps: int


def reliability(
    model: SequenceModel, X: Any, y: Any = None, *, n_steps: int = SYMBOL_STEPS, random_state: int = 0
) -> Reliability:
    """How well a model of symbols or text is calibrated on about ``n_steps`` held-out steps, of ``y`` given ``X`` where there are both.

    Every symbol of the model's alphabet (bytes, characters, pieces) is a prediction at every step, given that the sequence goes on.
    A single long sequence is judged on pieces from all over it, each read from its own start; of pairs only the commonest lengths of
    the source take part, so that they are read together. Reference: Guo et al. (2017), *On calibration of modern neural networks*,
    here over all symbols instead of the likeliest.

    Raises:
        ValueError: a model of vectors; see ``pit``.
    """
    if model.observation_.emits != "symbols":
        raise ValueError("a model of vectors has no probabilities of symbols; use pit")
    generator = torch.Generator().manual_seed(random_state)
    predicted, came, drawn = np.zeros(len(EDGES) - 1), np.zeros(len(EDGES) - 1), np.zeros(len(EDGES) - 1)
    counts, n = np.zeros(len(EDGES) - 1), 0
    for probabilities, x in _symbol_steps(model, X, y, n_steps, random_state):
        chance = torch.multinomial(probabilities, 1, generator=generator).squeeze(1)
        bins = np.clip(np.searchsorted(EDGES, probabilities.numpy(), side="right") - 1, 0, len(counts) - 1)  # (m, V)
        rows, size = np.arange(len(x)), len(counts)
        counts += np.bincount(bins.ravel(), minlength=size)
        predicted += np.bincount(bins.ravel(), probabilities.numpy().ravel(), minlength=size)
        came += np.bincount(bins[rows, x.numpy()], minlength=size)
        drawn += np.bincount(bins[rows, chance.numpy()], minlength=size)
        n += len(x)
    used = counts > 0
    columns = {"predicted": predicted[used] / counts[used], "observed": came[used] / counts[used]}
    table = pd.DataFrame({**columns, "n": counts[used].astype(int)})
    error, by_chance = (float(np.abs(hits - predicted).sum() / n) for hits in (came, drawn))
    return Reliability(table, error, by_chance, n)


def _symbol_steps(
    model: SequenceModel, X: Any, y: Any, n_steps: int, random_state: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Probabilities ``(m, V)`` and what came ``(m,)``, without the rows of which the model knows nothing (impossible before)."""
    for walk in walks(model, X, y, n_steps, random_state):
        for prediction, x, real in walk.steps(model):
            probabilities = prediction.log_probs(with_end=False)[real].exp().cpu()
            known = torch.isfinite(probabilities).all(-1) & (probabilities.sum(-1) > 0)
            if known.any():
                yield probabilities[known], x[real][known]


def pit(
    model: SequenceModel, X: Any, y: Any = None, *, n_steps: int = VECTOR_STEPS, random_state: int = 0
) -> np.ndarray:
    """``(n, D)`` probability integral transforms ``P(X_td <= x_td | x_<t)`` of about ``n_steps`` held-out frames; NaN where missing.

    Of a calibrated model each column is uniform on 0..1: heaped in the middle, the predictions are too wide; at the ends, too
    narrow. Each feature is judged by its own distribution given the past, exactly: a mixture of normal distributions has a mixture of
    normal cdfs. Which sequences are judged is as in ``reliability``. Reference: Dawid (1984), *Statistical theory: the
    prequential approach*; Gneiting et al. (2007), *Probabilistic forecasts, calibration and sharpness*.

    Raises:
        ValueError: a model of symbols (see ``reliability``), or of bits or counts, whose cdf is a staircase.
    """
    size = model.encoding_.size
    if model.observation_.emits != "vectors" or set(model.observation_.values(size)) != {"reals"}:
        raise ValueError(f"{model.observation_!r} has no density in every feature; of symbols see reliability")
    found = [np.empty((0, size))]
    for walk in walks(model, X, y, n_steps, random_state):
        for prediction, x, real in walk.steps(model):
            found += [_cdfs(prediction, row, x[row]).numpy()[None] for row in real if not prediction.has_no_next_step[row]]
    return np.concatenate(found)


def _cdfs(prediction: Prediction, row: int, x: Tensor) -> Tensor:
    """``(D,)`` float64 of one frame, in encoded units: an affine map changes no probability."""
    past = None if prediction.past is None else prediction.past[row : row + 1]
    output_parameters = prediction.output_parameters[row].double()
    none, one = torch.zeros_like(x, dtype=torch.float64), torch.ones_like(x, dtype=torch.float64)
    log_weights = prediction.weights()[row].double().log()
    past = None if past is None else past.double()
    distribution = prediction.observation.distribution(output_parameters, log_weights, past, none, one)
    return marginal_cdf(distribution, x.double()).cpu()


def marginal_cdf(distribution: Any, x: Tensor) -> Tensor:
    """``(D,)`` P(X_d <= x_d) of each feature of a mixture of Gaussians, or of products of such."""
    from seqmodels.observations.product import MixtureOfProducts  # lazily: it imports Pyro

    if isinstance(distribution, MixtureOfProducts):
        parts = x.split(distribution.sizes)
        each = [torch.cat(list(map(marginal_cdf, row, parts))) for row in distribution.components]
        return distribution.weights.double() @ torch.stack(each)
    components = distribution.component_distribution
    z = (x - components.mean) / components.variance.sqrt()  # (M, D)
    return distribution.mixture_distribution.probs.double() @ torch.special.ndtr(z.double())


def histogram(transforms: np.ndarray) -> tuple[np.ndarray, float]:
    """Density of all transforms in ``BINS`` bins, ``(BINS,)`` with mean 1, and the share that would have to move to make it flat."""
    values = transforms[~np.isnan(transforms)]
    counts, _ = np.histogram(values, bins=BINS, range=(0, 1))
    shares = counts / max(1, len(values))
    return shares * BINS, float(0.5 * np.abs(shares - 1 / BINS).sum())
