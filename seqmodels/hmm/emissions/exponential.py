"""EM for exponential families with independent features (Bernoulli, Poisson): means, in closed form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqmodels.hmm.emissions.base import SUMMED, Emission, Statistics, emission_of, empty_by_state, row_blocks
from seqmodels.observations import Chords
from seqmodels.observations.exponential_family import ExponentialFamily

LARGEST_TERM = 300.0  # largest term for which a sum in float32 is precise to about 1e-4 nats
STARTING_FRAMES = 2.0  # frames at the mean of all data that are added to each state at the start


@emission_of.register(ExponentialFamily)
class ExponentialEmission(Emission):
    """EM computations for exponential families of independent features, such as ``Bernoulli`` and ``Poisson``.

    The parameters are the natural parameters of D features in each of K states, ``(K, D)``. Log-densities are linear in
    the features ``φ(x) = (x, observed)``, so that all states are one matrix product.
    """

    observation: ExponentialFamily

    # -- E-step --------------------------------------------------------------------------------------------

    def log_prob(self, table: Tensor, x: Tensor, past: Tensor | None, dtype: torch.dtype) -> Tensor:
        result = empty_by_state(len(table), len(x), dtype, x.device)
        has_missing = bool(torch.isnan(x).any())
        has_certain = bool(torch.isinf(table).any())
        theta = self._coefficients(table, has_missing)
        compute_dtype = self._precision(theta, x, dtype)
        for rows in row_blocks(len(x), max(theta.shape), x.device):
            features = self._features(x[rows].to(compute_dtype), has_missing)
            log_b = theta.to(compute_dtype) @ features.T + self._base(x[rows].to(compute_dtype))
            result.T[:, rows] = log_b
            if has_certain:
                result.T[:, rows].masked_fill_(self._impossible(table, features), -torch.inf)
        return result

    def _coefficients(self, natural: Tensor, has_missing: bool) -> Tensor:
        """Return the coefficients of the features of ``_features`` in the log-densities, ``(K, 2D)``.

        They are ``(K, D + 1)`` if nothing is missing. ``natural``: natural parameters, ``(K, D)``. An infinite one,
        which makes a value certain, gets a coefficient of zero; ``_impossible`` then finds the frames with another
        value.
        """
        is_certain, constant = torch.isinf(natural), -self.observation.log_normaliser(natural)
        linear, constant = (torch.where(is_certain, 0.0, t) for t in (natural, constant))
        return torch.cat([linear, constant if has_missing else constant.sum(1, keepdim=True)], dim=1)

    def _precision(self, theta: Tensor, x: Tensor, dtype: torch.dtype) -> torch.dtype:
        """Return the dtype for precise log-densities: float64 if ``theta`` times ``x`` is large, else ``dtype``.

        ``theta``: coefficients of the features, ``(K, F)``; ``x``: frames, ``(N, D)``.
        """
        largest = torch.nan_to_num(x).amax().clamp(min=1.0)
        return torch.float64 if bool((theta[:, : self.size].abs() * largest).amax() > LARGEST_TERM) else dtype

    def _features(self, x: Tensor, has_missing: bool) -> Tensor:
        """Return features of the frames, ``(N, 2D)``: x, zero where missing, then 1 where a value was observed.

        If nothing is missing, one column of ones replaces the second half: ``(N, D + 1)``.
        """
        if not has_missing:
            return torch.cat([x, torch.ones_like(x[:, :1])], dim=1)
        observed = ~torch.isnan(x)
        return torch.cat([torch.where(observed, x, 0.0), observed.to(x.dtype)], dim=1)

    def _base(self, x: Tensor) -> Tensor:
        return torch.where(torch.isnan(x), 0.0, self.observation.log_base_measure(torch.nan_to_num(x))).sum(1)

    def _impossible(self, natural: Tensor, features: Tensor) -> Tensor:
        """Return True where a frame is impossible in a state that allows only one value of a feature, ``(K, N)``.

        ``natural``: natural parameters, ``(K, D)``, infinite where only one value is possible; ``features``: from
        ``_features``.
        """
        x, observed = features[:, : self.size], features[:, self.size :]
        zero, one = (torch.eq(natural, sign * torch.inf).to(x.dtype) for sign in (-1, 1))
        return zero @ x.T + one @ (observed - x).T > 0

    def statistics(self, table: Tensor, x: Tensor, past: Tensor | None, gamma: Tensor, memo: Any = None) -> Statistics:
        has_missing = bool(torch.isnan(x).any())
        width = 2 * self.size if has_missing else self.size + 1
        sums = torch.zeros(gamma.shape[1], width, dtype=torch.float64, device=x.device)
        for frames, weights in zip(x.split(SUMMED), gamma.split(SUMMED), strict=True):
            sums += weights.T @ self._features(frames.to(gamma.dtype), has_missing)
        weighted_x, observed = sums[:, : self.size], sums[:, self.size :]
        return (torch.cat([weighted_x, observed.expand(-1, self.size)], dim=1),)  # (K, 2D)

    # -- M-step --------------------------------------------------------------------------------------------

    def maximise(self, statistics: Statistics, table: Tensor) -> Tensor:
        weighted_x, observed = statistics[0].split(self.size, dim=1)
        prior = self.observation.pseudocount
        frames = observed + prior
        average = (weighted_x + prior * self._prior_mean(table)) / torch.where(frames > 0, frames, 1.0)
        average = average.clamp(max=self.observation.largest_mean)  # because rounding may exceed it
        # A feature that no frame shows keeps its parameter, because there is nothing to learn it from.
        return torch.where(frames > 0, self.observation.natural_parameter(average), table)

    def _prior_mean(self, table: Tensor) -> Tensor:
        return self.observation.prior_mean(self.size).to(table.device)

    def log_prior(self, table: Tensor) -> Tensor:
        if self.observation.pseudocount == 0:
            return table.new_zeros(())
        density = self._prior_mean(table) * table - self.observation.log_normaliser(table)
        return self.observation.pseudocount * density.sum()

    # -- the start -----------------------------------------------------------------------------------------

    def from_labels(
        self, x: Tensor, past: Tensor | None, labels: Tensor, n_states: int, generator: torch.Generator
    ) -> Tensor:
        sums = torch.zeros(n_states, 2 * self.size, dtype=torch.float64, device=x.device)
        sums.index_add_(0, labels, self._features(x, has_missing=True).double())
        sum_x, observed = sums.sum(0).split(self.size)
        table = torch.zeros(n_states, self.size, dtype=torch.float64, device=x.device)
        mean = sum_x / observed.clamp(min=1)
        sums += STARTING_FRAMES * torch.cat([mean, torch.ones_like(mean)])
        return self.maximise((sums,), table)

    # -- for users -----------------------------------------------------------------------------------------

    def n_parameters(self, n_states: int) -> int:
        return n_states * self.size

    def raw_parameters(self, table: Tensor, shift: np.ndarray, scale: np.ndarray) -> Mapping[str, np.ndarray]:
        return {self.observation.parameter_name: self.observation.expected_value(table).cpu().numpy()}

    def table_of_raw(self, raw: Mapping[str, np.ndarray], shift: np.ndarray, scale: np.ndarray) -> Tensor:
        return self.observation.natural_parameter(torch.as_tensor(raw[self.observation.parameter_name]))


@emission_of.register(Chords)
def _(observation: Chords, size: int) -> Emission:
    raise ValueError(f"{observation!r} has weights that only a network trains; under an HMM use Bernoulli")
