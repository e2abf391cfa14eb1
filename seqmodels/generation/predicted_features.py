"""The distribution of each feature of a predicted step in raw units, derived from a model's prediction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqmodels.encodings.cells import ProductCells
from seqmodels.encodings.step_maps import StepMap
from seqmodels.generation.angle_features import AngleFeatures
from seqmodels.generation.cursor import Prediction
from seqmodels.generation.feature_distributions import (
    CellFeatures,
    DensityFeatures,
    EmpiricalFeatures,
    FeatureDistributions,
    GaussianFeatures,
    GridFeatures,
    JoinedFeatures,
    LocationScaleFeatures,
    PowerFeatures,
    StudentFeatures,
)
from seqmodels.observations import AutoregressiveGaussian, Columns, GaussianMixture, Observation
from seqmodels.sequences.measure import Values, is_atom

WITH_DENSITY: set[Values] = {"reals", "positive", "proportions", "angles"}


def feature_distributions(
    prediction: Prediction,
    rows: slice,
    weights: np.ndarray,
    shift: Tensor,
    scale: Tensor,
    step: StepMap | None = None,
) -> FeatureDistributions | None:
    """Return the distribution of each feature of the next vector in raw units, given that the sequence continues.

    Each is a mixture of the predictions for r sequences, such as simulated paths of one sequence.

    Args:
        prediction: prediction for n sequences.
        rows: the r sequences.
        weights: weights of the sequences, not all zero, ``(r,)``.
        shift, scale: raw values of the D features are ``shift + scale · x`` for encoded x, each ``(D,)`` float64.
        step: for a series, the map by which the next vector of each of the n sequences is encoded, which replaces
            ``shift`` and ``scale``; else None.

    Returns:
        The distributions, or None if the cdf of a feature is not known.
    """
    if step is not None and step.cells is not None:
        return _of_cells(prediction, rows, weights, step, step.cells)
    table = prediction.output_parameters[rows].double()  # (r, K, P)
    log_weights = prediction.weights()[rows].double().log() + torch.as_tensor(weights).log().to(table)[:, None]
    kept = (log_weights > -torch.inf).flatten()
    past = prediction.past
    if past is not None:
        past = past[rows].double()[:, None].expand(-1, table.shape[1], -1, -1).flatten(0, 1)[kept]
    log_weights = log_weights.flatten()[kept].log_softmax(0)
    encoded = _of_observation(prediction.observation, table.flatten(0, 1)[kept], log_weights, past, shift, scale)
    if step is None or encoded is None:
        return encoded
    row_of_each = np.repeat(np.arange(len(table)), table.shape[1])[kept.cpu().numpy()]
    return _of_raw_frames(encoded, step, *(np.asarray(each)[rows][row_of_each] for each in (step.shift, step.scale)))


def step_cdfs(prediction: Prediction, x: Tensor, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Return ``P(X < x)`` and ``P(X <= x)`` of each feature of the next step of each of n sequences.

    Both are conditioned on the sequence continuing, and are equal where a feature has a density, as amounts have above
    0. The cdf of a mixture is the mixture of its components' cdfs. The cdf of an angle begins at -π, and that of a
    symbol adds up the probabilities of the symbols in the order of their numbers.

    Args:
        prediction: prediction for the n sequences, or for n steps of one sequence.
        x: the next step of each as the model reads it, a vector of D features, ``(n, D)``, or a symbol, ``(n,)``.
        scale: size of one encoded unit of each feature in raw units, ``(D,)``; not used for symbols.

    Returns:
        Two arrays ``(n, D)``, or ``(n, 1)`` for symbols, NaN where a value is missing and where no next step is
        possible; or None if the cdf of a feature is not known.
    """
    observation = prediction.observation
    if observation.emits == "symbols":
        p = prediction.log_probs(with_end=False).exp().cpu()
        up_to = p.cumsum(1).gather(1, x.cpu().long()[:, None])
        pair = up_to - p.gather(1, x.cpu().long()[:, None]), up_to
    elif observation.has_marginal_cdfs:
        pair = _mixed_cdfs(observation, prediction, x.double().cpu(), scale)
    else:
        return None
    is_known = ~(torch.isnan(pair[1]) | prediction.has_no_next_step.cpu()[:, None])
    below, including = (torch.where(is_known, each.clamp(0.0, 1.0), torch.nan).numpy() for each in pair)
    return below, including


def _mixed_cdfs(
    observation: Observation, prediction: Prediction, x: Tensor, scale: np.ndarray
) -> tuple[Tensor, Tensor]:
    """Return ``P(X < x)`` and ``P(X <= x)`` of each of D features of n predictions, each ``(n, D)`` float64.

    Args:
        observation: family of the components, or that of a group of features.
        prediction: mixtures of K components; its output parameters and past are those of ``observation``.
        x: encoded values, ``(n, D)``, NaN where missing.
        scale: size of one encoded unit of each feature in raw units, ``(D,)``.
    """
    if isinstance(observation, Columns):
        pairs = [
            _mixed_cdfs(
                g.observation,
                replace(
                    prediction,
                    output_parameters=prediction.output_parameters[..., g.outputs],
                    past=g.before(prediction.past),
                ),
                g.of(x),
                scale[g.columns],
            )
            for g in observation.parts()
        ]
        return torch.cat([below for below, _ in pairs], 1), torch.cat([up_to for _, up_to in pairs], 1)
    table, weights = prediction.output_parameters.double().cpu(), prediction.weights().double().cpu()
    if table.stride(0) == 0:  # all rows have the same components
        table = table[:1]
    size, missing = x.shape[1], torch.isnan(x)
    values = set(observation.values(size))
    if values == {"angles"}:
        moments = observation.trigonometric_moments(table)  # (n or 1, K, J, D)
        mixed = torch.einsum("nk,nkjd->njd", weights.to(moments), moments.expand(len(x), -1, -1, -1))
        cdf = torch.from_numpy(AngleFeatures(mixed.numpy()).cdf(x.numpy()))
        return cdf, cdf
    past = None if prediction.past is None else prediction.past.double().cpu()[:, None]

    def up_to(at: Tensor) -> Tensor:
        each = observation.marginal_cdfs(table, torch.where(missing, 0.5, at).unsqueeze(1), past)  # (n, K, D)
        return torch.where(missing, torch.nan, torch.einsum("nk,nkd->nd", weights, each.expand(len(x), -1, -1)))

    if values <= {*WITH_DENSITY, "amounts"}:
        cdf = up_to(x)
        return torch.where(is_atom(x, observation.values(size)), 0.0, cdf), cdf
    grid = observation.grid(size)
    width = torch.ones(size) if grid is None else torch.as_tensor(np.array(grid) / scale)
    return up_to(x - width), up_to(x)


def _of_raw_frames(
    encoded: FeatureDistributions, step: StepMap, shift: np.ndarray, scale: np.ndarray
) -> FeatureDistributions | None:
    """Return the distribution of each feature of a raw frame, given those of the encoded frame; None if unknown.

    Args:
        encoded: distributions of the D encoded features, mixtures that consist of r groups of components.
        step: map from raw frame to encoded frame, with its power transformation.
        shift, scale: the map's numbers for each group, ``(r, D)``.
    """
    raw = _raw(encoded, shift, scale)
    return raw if step.powers is None or raw is None else _powered(raw, step.powers)


def _of_cells(
    prediction: Prediction, rows: slice, weights: np.ndarray, step: StepMap, cells: ProductCells
) -> FeatureDistributions:
    """Return the distribution of each feature of a raw frame, given predictions of the cell in which it lies.

    Args:
        prediction: prediction of the cell, a symbol, for n sequences.
        rows: the r sequences that are mixed. Sequences with equal maps become one histogram.
        weights: weights of the r sequences, ``(r,)``.
        step: for each of the n sequences, the map from raw frame to the values that are divided into cells.
        cells: the partition of the values of each feature into cells; a symbol stands for one cell of each.
    """
    log_probs = prediction.log_probs(with_end=False).cpu().numpy()[rows]
    kept = weights > 0
    p, weights = np.exp(log_probs[kept]), weights[kept] / weights[kept].sum()
    shift, scale = (np.broadcast_to(each, (len(log_probs), each.shape[1]))[kept] for each in (step.shift, step.scale))
    maps, part = np.unique(np.concatenate([shift, scale], axis=1), axis=0, return_inverse=True)
    sums = np.zeros((len(maps), p.shape[1]))
    np.add.at(sums, part.reshape(-1), weights[:, None] * p)
    shift, scale = np.split(maps, 2, axis=1)
    of_parts = sums.sum(1)
    marginals = cells.marginals(sums / of_parts[:, None])
    features = CellFeatures(cells.features, of_parts / of_parts.sum(), marginals, shift, scale)
    return features if step.powers is None else PowerFeatures(features, step.powers)


def _raw(encoded: FeatureDistributions, shift: np.ndarray, scale: np.ndarray) -> FeatureDistributions | None:
    """Return the distributions of raw values ``shift + scale · x``, given those of encoded x.

    Args:
        encoded: distributions of D encoded features, mixtures that consist of r groups of components of equal size.
        shift, scale: the map for each group, ``(r, D)``.

    Returns:
        The distributions; None if a feature is not a density of reals.
    """
    if isinstance(encoded, JoinedFeatures):
        at = np.cumsum([group.n_features for group in encoded.groups])[:-1]
        parts = zip(encoded.groups, np.split(shift, at, axis=1), np.split(scale, at, axis=1), strict=True)
        return _joined([_raw(*each) for each in parts])
    if isinstance(encoded, LocationScaleFeatures | DensityFeatures):
        return encoded.moved(shift, scale)
    return None


def _powered(features: FeatureDistributions, powers: np.ndarray) -> FeatureDistributions:
    """Return the distributions of x, given those of its power transformation h(x).

    Args:
        features: distributions of h(x) for D features.
        powers: power of each feature, ``(D,)``.
    """
    if isinstance(features, JoinedFeatures):
        parts = np.split(powers, np.cumsum([group.n_features for group in features.groups])[:-1])
        return JoinedFeatures([_powered(*each) for each in zip(features.groups, parts, strict=True)])
    return (
        replace(features, powers=powers) if isinstance(features, DensityFeatures) else PowerFeatures(features, powers)
    )


def _joined(groups: list[FeatureDistributions | None]) -> JoinedFeatures | None:
    known = [group for group in groups if group is not None]
    return JoinedFeatures(known) if len(known) == len(groups) else None


def _of_observation(
    observation: Observation,
    output_parameters: Tensor,
    log_weights: Tensor,
    past: Tensor | None,
    shift: Tensor,
    scale: Tensor,
) -> FeatureDistributions | None:
    if isinstance(observation, Columns):
        return _joined(
            [
                _of_observation(
                    g.observation,
                    output_parameters[:, g.outputs],
                    log_weights,
                    g.before(past),
                    shift[g.columns],
                    scale[g.columns],
                )
                for g in observation.parts()
            ]
        )
    components = _components(observation, output_parameters, shift, scale)
    if components is not None:
        return components.mixture(log_weights)
    if isinstance(observation, AutoregressiveGaussian):
        of_t = observation.marginals(output_parameters, log_weights, past, len(shift))
        if of_t is not None:
            log_weights, loc, deviation, degrees = (each.double().cpu() for each in of_t)
            loc, deviation = shift.cpu() + scale.cpu() * loc, scale.cpu() * deviation
            return StudentFeatures(log_weights.exp().numpy(), loc.numpy(), deviation.numpy(), degrees.numpy())
    gaussian = _of_gaussians(
        observation.distribution(output_parameters, log_weights=log_weights, past=past, shift=shift, scale=scale)
    )
    if gaussian is not None or not observation.has_marginal_cdfs:
        return gaussian
    weights = log_weights.exp().cpu().numpy()
    values, table = set(observation.values(len(shift))), output_parameters.cpu()
    if values == {"angles"}:
        moments = observation.trigonometric_moments(table).numpy()  # (C, J, D)
        return AngleFeatures(np.einsum("c,cjd->jd", weights, moments))
    units = shift.double().cpu().numpy()[None], scale.double().cpu().numpy()[None]
    if values <= {"reals", "positive", "proportions", "amounts"}:
        return DensityFeatures(observation, table, weights, *units)
    widths = np.array(observation.grid(len(shift)) or [1.0] * len(shift))
    return GridFeatures(observation, table, weights, *units, widths)


@dataclass(frozen=True)
class _Gaussians:
    """The components of C mixtures of M Gaussians each, in raw units, as arrays instead of Pyro objects.

    Attributes:
        log_weights: log-weights within each mixture, ``(C, M)`` float64.
        loc, scale: means and standard deviations of D features, each ``(C · M, D)`` float64.
    """

    log_weights: Tensor
    loc: np.ndarray
    scale: np.ndarray

    def mixture(self, log_weights: Tensor) -> GaussianFeatures:
        """Return the mixture of the C mixtures of Gaussians as one mixture.

        Args:
            log_weights: log-weight of each of the C mixtures, ``(C,)``.
        """
        weights = (log_weights.to(self.log_weights)[:, None] + self.log_weights).flatten().softmax(0)
        return GaussianFeatures(weights.numpy(), self.loc, self.scale)

    def split(self, n: int) -> list[_Gaussians]:
        """Divide the C mixtures of Gaussians into ``n`` groups of equally many consecutive ones, and return them."""
        parts = (np.split(each, n) for each in (self.loc, self.scale))
        return [_Gaussians(*part) for part in zip(self.log_weights.chunk(n), *parts, strict=True)]

    def without_impossible(self, log_weights: Tensor) -> GaussianFeatures:
        """Return the mixture of those of the C mixtures of Gaussians whose weight is not zero, as one mixture.

        Args:
            log_weights: log-weight of each of the C mixtures, ``(C,)``.
        """
        kept = log_weights > -torch.inf
        if bool(kept.all()):
            return self.mixture(log_weights)
        rows = np.repeat(kept.numpy(), self.log_weights.shape[1])
        return _Gaussians(self.log_weights[kept], self.loc[rows], self.scale[rows]).mixture(log_weights[kept])


def _components(observation: Observation, output_parameters: Tensor, shift: Tensor, scale: Tensor) -> _Gaussians | None:
    """Return C mixtures of Gaussians as arrays in raw units.

    Args:
        observation: family of the mixtures.
        output_parameters: the P parameters of each mixture, ``(C, P)``.
        shift, scale: raw values of the D features are ``shift + scale · x``, each ``(D,)``.

    Returns:
        The mixtures; None if the observation is not a Gaussian mixture, or if a parameter is not finite.
    """
    if type(observation) is not GaussianMixture:  # a subclass may define another density
        return None
    log_weights, loc, variances = observation.diagonals(output_parameters, len(shift))
    loc, deviation = shift.to(loc) + scale.to(loc) * loc, scale.to(loc) * variances.sqrt()
    if not bool(torch.isfinite(loc).all() & torch.isfinite(deviation).all()):
        return None
    return _Gaussians(log_weights, loc.flatten(0, 1).numpy(), deviation.flatten(0, 1).numpy())


def mixtures_of_steps(
    predictions: Sequence[Prediction], shift: Tensor, scale: Tensor, step: StepMap | None = None
) -> list[list[FeatureDistributions | None]] | None:
    """Return the distributions of the features at each of k steps of n sequences, if all are Gaussian mixtures.

    They are in raw units, equal those of ``feature_distributions`` and are computed together. Components that are the
    same at all steps, as those of an HMM, are computed once.

    Args:
        predictions: predictions of k steps for n sequences.
        shift, scale: raw values of the D features are ``shift + scale · x`` for encoded x, each ``(D,)``.
        step: for a series, the map by which vectors are encoded, which replaces ``shift`` and ``scale``; else None.

    Returns:
        A list for each step of the distributions for each sequence; None if one is not a mixture of Gaussians.
    """
    first = predictions[0]
    table = first.output_parameters
    is_alike = all(
        p.past is None and p.observation is first.observation and p.output_parameters.shape == table.shape
        for p in predictions
    )
    if not is_alike or table.device.type != "cpu":
        return None
    is_shared = all(
        p.log_weights is not None
        and p.output_parameters.data_ptr() == table.data_ptr()
        and (len(table) == 1 or table.stride(0) == 0)
        for p in predictions
    )
    tables = table[:1] if is_shared else torch.cat([p.output_parameters for p in predictions])  # (1 or k n, C, P)
    components = _components(first.observation, tables.flatten(0, 1).double(), shift, scale)
    if components is None:
        return None
    weights = torch.cat([p.weights() for p in predictions]).double().log()  # (k n, C)
    each = [components] * len(weights) if is_shared else components.split(len(weights))
    rows = [mixtures.without_impossible(row) for mixtures, row in zip(each, weights, strict=True)]
    raw = rows if step is None else [_of_raw_frames(row, step, step.shift, step.scale) for row in rows]
    n = len(table)
    return [[*raw[h * n : (h + 1) * n]] for h in range(len(predictions))]


def _of_gaussians(mixture: Any) -> GaussianFeatures | None:
    """Convert a Pyro mixture of Gaussians to arrays; None if the distribution is not one.

    Args:
        mixture: Pyro distribution that ``Observation.distribution`` returned.
    """
    from torch import distributions

    if not isinstance(mixture, distributions.MixtureSameFamily):
        return None
    component = mixture.component_distribution
    base = component.base_dist if isinstance(component, distributions.Independent) else component
    if not isinstance(
        base, distributions.Normal | distributions.MultivariateNormal | distributions.LowRankMultivariateNormal
    ):
        return None
    weights, means = (each.double().cpu().numpy() for each in (mixture.mixture_distribution.probs, component.mean))
    return GaussianFeatures(weights, means, component.variance.double().sqrt().cpu().numpy())


def features_of_draws(x: np.ndarray, are_angles: Sequence[bool]) -> FeatureDistributions:
    """Return the empirical distribution of each of D features, given draws of them; angles are smoothed.

    Args:
        x: n draws in raw units, ``(n, D)``.
        are_angles: True for each feature that is an angle.
    """
    groups: list[FeatureDistributions] = []
    at = 0
    for is_angle, run in groupby(are_angles):
        n = len(list(run))
        columns = x[:, at : at + n]
        groups.append(AngleFeatures.of_draws(columns) if is_angle else EmpiricalFeatures(columns))
        at += n
    return groups[0] if len(groups) == 1 else JoinedFeatures(groups)
