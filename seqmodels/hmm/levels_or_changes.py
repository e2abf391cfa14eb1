"""Whether a model of states is to read a series as levels, which its states may be, or as changes.

A model of the same kind is fitted to what comes before, once for each reading, and forecasts what follows in the second
half of the series (Dawid 1984, *Present position and potential developments*). The forecasts are judged by the mean
loss of their quantiles, a discrete continuous ranked probability score (Gneiting & Raftery 2007), so that a mixture of
levels and a sum of changes count alike.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from seqmodels.encodings import Encoding
from seqmodels.encodings.auto_series import MOST_FRAMES, SeriesChoice, reaches_new_levels
from seqmodels.encodings.step_maps import as_frames
from seqmodels.model import SequenceModel
from seqmodels.sequences import Sequences

N_FITS = 2  # of each reading, at equal distances in the second half
N_ORIGINS = 6  # of each fit
FEWEST_AHEAD, MOST_AHEAD = 8, 24  # steps
N_PATHS = 60
LEVELS = (0.05, 0.2, 0.35, 0.5, 0.65, 0.8, 0.95)  # of the quantiles
CLEAR_GAIN = 0.2  # share of the loss under levels that changes must take away


def forecasts_changes_better(
    model: SequenceModel, sequences: Sequences, levels: Encoding, changes: SeriesChoice
) -> bool:
    """Whether a ``model``, not fitted, is to read training sequences as ``changes``: they go on to levels that they
    never had, or it forecasts them clearly better so than by the encoding of ``levels``.
    """
    series = [as_frames(item) for item in sequences]
    if reaches_new_levels(series):
        return True
    n_ahead = int(np.clip(changes.season or 0, FEWEST_AHEAD, MOST_AHEAD))
    by_levels, by_changes = (tail_losses(model, series, each, n_ahead) for each in (levels, changes.chain()))
    log_ratios = np.log(by_changes) - np.log(by_levels)  # each fit counts alike, however hard what follows it
    known = log_ratios[np.isfinite(log_ratios)]
    return bool(len(known) and known.mean() < np.log(1 - CLEAR_GAIN))


def tail_losses(model: SequenceModel, series: Sequence[np.ndarray], encoding: Encoding, n_ahead: int) -> np.ndarray:
    """``(S, n_fits)`` mean losses of quantiles, in deviations of a feature, of each of S series ``(T, D)`` after each
    fit to what comes before; NaN where it could not be fitted or forecast.
    """
    losses = np.full((len(series), N_FITS), np.nan)
    for i, whole in enumerate(series):
        x = whole[-MOST_FRAMES:]
        edges = np.linspace(len(x) // 2, len(x), N_FITS + 1).astype(int)
        for j, (first, last) in enumerate(pairwise(edges.tolist())):
            losses[i, j] = _loss(model, x, encoding, first, last, n_ahead)
    return losses


def _loss(model: SequenceModel, x: np.ndarray, encoding: Encoding, first: int, last: int, n_ahead: int) -> float:
    """Of a fit to the frames before ``first``, of forecasts from there on up to ``last``."""
    origins = np.unique(np.linspace(first, last - 1, N_ORIGINS).astype(int)).tolist()
    fitted = model.clone().set_params(encoding=encoding.clone())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            fitted.fit([x[:first]])
            frame = fitted.forecast([x[:t] for t in origins], n_ahead, quantiles=LEVELS, n=N_PATHS).frame
        except ValueError:  # such as a part of the series that does not change
            return np.nan
    shape = (len(origins), n_ahead, x.shape[1], len(LEVELS))
    quantiles = frame.loc[:, "5%":"95%"].to_numpy().reshape(shape)
    later = np.full(shape[:3], np.nan)
    for row, t in zip(later, origins, strict=True):
        row[: len(x) - t] = x[t : t + n_ahead]
    errors = (later[..., None] - quantiles) / np.maximum(np.nanstd(x, axis=0), np.finfo(float).tiny)[:, None]
    observed = errors[~np.isnan(errors).any(-1)]  # (n, levels)
    levels = np.array(LEVELS)
    return float(np.maximum(levels * observed, (levels - 1) * observed).mean()) if len(observed) else np.nan
