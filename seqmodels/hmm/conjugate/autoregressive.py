"""The conjugate family of autoregressions: matrix-normal coefficients, given innovations that are Gamma or Wishart.

With regressors ``z = (past, 1)`` and ``x = W z + e``, ``e ~ N(0, Λ⁻¹)``, the coefficients W given the precision Λ are
matrix-normal, ``MN(M, Λ⁻¹, V)``: each row has the covariance V times the variance of its innovation. Then
``E (x - W z)ᵀ Λ (x - W z) = (x - M z)ᵀ E[Λ] (x - M z) + D zᵀ V z``, so that the expected log-density is that of a
regression less a quadratic function of the past. The equations are in Minka (2000), *Bayesian linear regression*, and
Bishop (2006), section 10.2; Fox et al. (2011), *Bayesian nonparametric inference of switching dynamic linear models*,
have this prior in a hidden Markov model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqmodels.common.constants import LOG_2PI
from seqmodels.hmm.conjugate.family import ConjugateFamily, conjugate_of
from seqmodels.hmm.conjugate.gaussian_mixture import NO_FLOOR
from seqmodels.hmm.conjugate.innovations import GammaInnovations, WishartInnovations
from seqmodels.hmm.conjugate.prior import ConjugatePrior
from seqmodels.hmm.emissions import Emission, Statistics, emission_of, quadratic
from seqmodels.inference.chains.densities import Densities, LogDensities
from seqmodels.inference.chains.scratch import Scratch
from seqmodels.observations import AutoregressiveGaussian, GaussianMixture, gaussian


@conjugate_of.register(AutoregressiveGaussian)
def _(observation: AutoregressiveGaussian, size: int) -> ConjugateFamily:
    if observation.covariance_type == "tied":
        raise ValueError(
            "covariance_type='tied' has no conjugate prior here, because each state has a posterior of its own; use "
            "'diag' or 'full'"
        )
    if not observation.ridge:
        raise ValueError(
            "ridge=0 of the observation leaves the coefficients without a prior, so that they have no posterior in "
            "states without frames; pass a ridge above 0, such as the default 0.001"
        )
    return AutoregressiveFamily(observation, size)


class AutoregressiveFamily(ConjugateFamily):
    """The conjugate family of ``AutoregressiveGaussian``: a matrix-normal distribution of each state's coefficients.

    There are F regressors, the pD values of the past and the constant 1, or the values alone under ``intercept=False``.
    ``hyper (K, H)`` holds the mean of the coefficients ``(D, F)``, the inverse ``(F, F)`` of their covariance relative
    to the innovations', the hyperparameters of the innovations' precision, and last those of the Gaussian of the first
    p steps, which is a mixture of one component. All states share that Gaussian: their rows of it are equal, the rows
    of tables too, and its density and divergence count in state 0. It is frozen if the emission of state 0 is.
    """

    def __init__(self, observation: AutoregressiveGaussian, size: int) -> None:
        self.observation: AutoregressiveGaussian = observation.clone().set_params(min_covariance=NO_FLOOR)
        shape_type = observation.shape_type
        self.of_first = GaussianMixture(1, shape_type)
        self.first = conjugate_of(self.of_first, size)
        super().__init__(FirstStepsEmission(emission_of(self.observation, size), self.first.emission))
        self.innovations = GammaInnovations(size) if shape_type == "diag" else WishartInnovations(size)
        self.n_past = observation.order * size
        self.n_regressors = self.n_past + observation.intercept

    @property
    def takes_missing(self) -> bool:
        """False: with a missing value in the past, the expected log-density has no closed form."""
        return False

    @property
    def offset_features(self) -> list[int]:
        """Each -1, because offsets belong to whole frames; they are the further columns of ``FirstStepsEmission``."""
        return [-1] * (quadratic.n_features(self.n_past + self.size) + 1)

    def _split(self, hyper: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return means ``(K, D, F)``, inverse relative covariances ``(K, F, F)``, and two parts of ``hyper``.

        These are the hyperparameters of the innovations and of the first steps.
        """
        d, f, n = self.size, self.n_regressors, self.innovations.n_hyper
        mean, precision, noise, first = hyper.split([d * f, f * f, n, hyper.shape[1] - d * f - f * f - n], 1)
        return mean.unflatten(1, (d, f)), precision.unflatten(1, (f, f)), noise, first

    def _joined(self, mean: Tensor, precision: Tensor, noise: Tensor, first: Tensor) -> Tensor:
        return torch.cat([mean.flatten(1), precision.flatten(1), noise, first[:1].expand(len(mean), -1)], 1)

    def prior(self, prior: ConjugatePrior, n_states: int) -> Tensor:
        k, d, order = n_states, self.size, self.observation.order
        counts, mean_counts = prior.numbers("count", 1.0, (k, 1)), prior.numbers("mean_count", 1.0, (k, 1))
        means = prior.numbers("mean", 0.0, (k, d), least=-torch.inf)
        variances = prior.numbers("covariance", k ** (-2 / d), (k, d))
        # As the M-step's penalty: ridge |A|² + unit_root |A_1 + ... + A_p - I|², relative to the innovations.
        all_lags = self.observation.unit_root * torch.eye(d, dtype=torch.float64).repeat(1, order)  # (D, pD)
        of_past = self.observation.ridge * torch.eye(self.n_past, dtype=torch.float64) + all_lags.repeat(order, 1)
        mean = torch.linalg.solve(of_past, all_lags.T).T.expand(k, -1, -1)
        precision = of_past.expand(k, -1, -1)
        if self.observation.intercept:
            mean = torch.cat([mean, means.unsqueeze(-1)], -1)
            precision = torch.nn.functional.pad(precision, (0, 1, 0, 1))
            precision[:, -1, -1] = mean_counts.squeeze(1)
        of_first = self.first.prior(ConjugatePrior(), 1)  # of one state: the whole data
        return self._joined(mean, precision, self.innovations.prior(counts, variances), of_first)

    def updated(self, prior: Tensor, statistics: Statistics) -> Tensor:
        mean0, precision0, noise0, first0 = self._split(prior)
        products, sums, counts = quadratic.moments(statistics[0], self.n_past + self.size)
        # Sums of products of (past, 1, x), without the 1 if there is no intercept.
        every = torch.cat([products, sums.unsqueeze(1)], 1)
        every = torch.cat([every, torch.cat([sums, counts.unsqueeze(1)], 1).unsqueeze(2)], 2)
        last = len(every[0]) - 1
        order = [*range(self.n_past), *([last] if self.observation.intercept else []), *range(self.n_past, last)]
        every, f = every[:, order][:, :, order], self.n_regressors
        precision = precision0 + every[:, :f, :f]
        mean = torch.linalg.solve(precision, (mean0 @ precision0 + every[:, f:, :f]).mT).mT
        # Products of residuals about the posterior mean, and of its deviation from the prior's: each is positive.
        residual = torch.cat([-mean, torch.eye(self.size).to(mean).expand(len(mean), -1, -1)], 2)
        scatter = residual @ every @ residual.mT + (mean - mean0) @ precision0 @ (mean - mean0).mT
        noise = self.innovations.updated(noise0, 0.5 * (scatter + scatter.mT), counts)
        first = self.first.updated(first0[:1], (statistics[1].sum(0, keepdim=True),))
        return self._joined(mean, 0.5 * (precision + precision.mT), noise, first)

    def expected(self, hyper: Tensor) -> tuple[Tensor, Tensor]:
        mean, precision, noise, of_first = self._split(hyper)
        table, offsets = self.first.expected(of_first)
        relative = self.size * torch.linalg.inv(precision)  # D V
        q, both = self.n_past, (0, self.size)
        squares = torch.nn.functional.pad(relative[:, :q, :q], both * 2)
        linear, constant = squares.new_zeros(squares.shape[:2]), self.innovations.log_det_gap(noise)
        if self.observation.intercept:
            linear = -torch.nn.functional.pad(relative[:, :q, q], both)
            constant = constant - 0.5 * relative[:, q, q]
        of_past = quadratic.coefficients(squares, linear, constant)
        of_regressions = self._table(mean, self.innovations.covariance(noise), table)
        return of_regressions, torch.cat([of_past, offsets.sum(1, keepdim=True)], 1)

    def expected_emission(self, hyper: Tensor, fixed: Tensor) -> tuple[Emission, Tensor]:
        return self.emission, torch.cat(self.expected(hyper), 1)

    def _table(self, coefficients: Tensor, covariance: Tensor, of_first: Tensor) -> Tensor:
        """Return output parameters ``(K, P)``; ``of_first``: those of the mixture of one component of first steps."""
        matrix = coefficients[..., : self.n_past]
        intercept = coefficients[..., self.n_past :].sum(-1)  # 0 if there is none
        _, means, shapes = self.of_first.unpack(of_first, self.size)
        shape = self.innovations.shapes(covariance)
        return self.observation.pack(matrix, intercept, shape, means.squeeze(1), shapes.squeeze(1))

    def divergence(self, hyper: Tensor, prior: Tensor) -> Tensor:
        (mean, precision, noise, first), (mean0, precision0, noise0, first0) = self._split(hyper), self._split(prior)
        ratio = torch.linalg.solve(precision, precision0)
        of_size = ratio.diagonal(dim1=-2, dim2=-1).sum(-1) - self.n_regressors - torch.logdet(ratio)
        moved = (mean - mean0) @ precision0 @ (mean - mean0).mT
        distance = torch.linalg.solve(self.innovations.covariance(noise), moved).diagonal(dim1=-2, dim2=-1).sum(-1)
        of_coefficients = 0.5 * (self.size * of_size + distance)
        of_both: Tensor = of_coefficients + self.innovations.divergence(noise, noise0)
        return of_both + self._once(self.first.divergence(first, first0))

    def mean(self, hyper: Tensor) -> Tensor:
        mean, _, noise, of_first = self._split(hyper)
        return self._table(mean, self.innovations.covariance(noise), self.first.mean(of_first))

    def draw(self, hyper: Tensor, generator: torch.Generator) -> Tensor:
        mean, precision, noise, of_first = self._split(hyper)
        covariance = self.innovations.draw(noise, generator)
        white = torch.randn(mean.shape, generator=generator, dtype=mean.dtype)
        # Of V = C⁻ᵀ C⁻¹ with the factor C of the precision, C⁻ᵀ is a square root.
        spread = torch.linalg.solve_triangular(torch.linalg.cholesky(precision), white, upper=False, left=False)
        drawn = mean + torch.linalg.cholesky(covariance) @ spread
        return self._table(drawn, covariance, self.first.draw(of_first[:1], generator).expand(len(mean), -1))

    def log_density(self, table: Tensor, hyper: Tensor) -> Tensor:
        matrix, intercept, shape, first_mean, first_shape = self.observation.unpack(table, self.size)
        mean, precision, noise, of_first = self._split(hyper)
        coefficients = torch.cat([matrix, intercept.unsqueeze(-1)], -1)[..., : self.n_regressors]
        factor = gaussian.precision_factor(shape, self.size, self.observation.shape_type, NO_FLOOR)
        root = torch.linalg.cholesky(precision)
        squares = (factor.mT @ (coefficients - mean) @ root).square().sum((-1, -2))
        log_dets = self.n_regressors * _log_det(factor) + self.size * _log_det(root)
        of_coefficients = log_dets - 0.5 * (squares + self.n_regressors * self.size * LOG_2PI)
        mixture = torch.cat([torch.zeros_like(first_mean[:, :1]), first_mean, first_shape], 1)
        of_both: Tensor = of_coefficients + self.innovations.log_density(shape, noise)
        return of_both + self._once(self.first.log_density(mixture, of_first))

    def _once(self, each: Tensor) -> Tensor:
        """Return numbers ``(K,)`` of what all states share, with zeros for all states but the first."""
        return each * (torch.arange(len(each), device=each.device) == 0)

    def raw(self, hyper: Tensor, shift: np.ndarray, scale: np.ndarray) -> Mapping[str, np.ndarray]:
        mean, precision, noise, of_first = self._split(hyper)
        order, has_intercept = self.observation.order, self.observation.intercept
        shifts, scales = np.tile(shift, order), np.tile(scale, order)
        coefficients = mean[..., : self.n_past].numpy() * scale[:, None] / scales
        intercepts = mean[..., self.n_past :].sum(-1).numpy() * scale + shift - coefficients @ shifts
        # Raw regressors are linear in the encoded ones, and the precision is that of sums of their products.
        units = np.diag(np.append(scales, 1.0) if has_intercept else scales)
        if has_intercept:
            units[:-1, -1] = shifts
        raw_first = self.first.raw(of_first, shift, scale)
        return {
            "coefficients": coefficients,
            "intercepts": intercepts,
            "regressor_precision": units @ precision.numpy() @ units.T,
            **self.innovations.raw(noise, scale),
            **{f"first_{name}": values[:, 0] for name, values in raw_first.items() if name != "weights"},
        }


class FirstStepsEmission(Emission):
    """The emission of an autoregression that also has statistics of first steps and takes a posterior's densities.

    Its tables are ``(K, P)``, or ``(K, P + Q + 1)`` where densities are ``exp(E log p(x))`` under a posterior. Then Q
    coefficients of the quadratic features of ``(past, x)`` are added to the log-densities of frames with a past, and
    the last number of state 0 to those of the first p steps. Its statistics are those of the regressions, then those
    of the first p steps.

    Args:
        inner: emission of the autoregression.
        first: emission of the Gaussian of the first p steps, a mixture of one component.
    """

    observation: AutoregressiveGaussian

    def __init__(self, inner: Emission, first: Emission) -> None:
        super().__init__(inner.observation, inner.size)
        self.inner, self.first = inner, first
        self.n_columns = inner.observation.n_output_parameters(inner.size)

    @property
    def n_statistics(self) -> int:
        return self.inner.n_statistics + 1

    @property
    def shares(self) -> bool:
        return self.inner.shares

    def tie(self, table: Tensor) -> Tensor:
        return self.inner.tie(table)

    def evaluate(
        self, table: Tensor, x: Tensor, past: Tensor | None, dtype: torch.dtype, scratch: Scratch
    ) -> tuple[Densities, Any]:
        densities, design = self.inner.evaluate(table[:, : self.n_columns], x, past, dtype, scratch)
        if table.shape[1] == self.n_columns:
            return densities, design
        assert design.incomplete is None, "variational Bayes refuses missing values"
        log_b, coefficients = densities.log(), table[:, self.n_columns : -1]
        for rows, features in design.blocks():  # zeros in the first p steps
            log_b.T[:, rows] += (coefficients @ features).to(dtype)
        log_b[design.early] += table[0, -1].to(dtype)
        return LogDensities(log_b), design

    def log_prob(self, table: Tensor, x: Tensor, past: Tensor | None, dtype: torch.dtype) -> Tensor:
        return self.inner.log_prob(table, x, past, dtype)

    def statistics(self, table: Tensor, x: Tensor, past: Tensor | None, gamma: Tensor, memo: Any = None) -> Statistics:
        assert past is not None
        of_regressions = self.inner.statistics(table[:, : self.n_columns], x, past, gamma, memo)
        is_early = torch.isnan(past[:, : self.observation.order]).flatten(1).any(1)
        plain = table.new_zeros(len(table), self.first.observation.n_output_parameters(self.size))
        return *of_regressions, *self.first.statistics(plain, x[is_early], None, gamma[is_early])

    def maximise(self, statistics: Statistics, table: Tensor) -> Tensor:
        return self.inner.maximise(statistics[:-1], table)

    def raw_parameters(self, table: Tensor, shift: np.ndarray, scale: np.ndarray) -> Mapping[str, np.ndarray]:
        return self.inner.raw_parameters(table[:, : self.n_columns], shift, scale)

    def by_state(
        self, table: Tensor, shift: np.ndarray, scale: np.ndarray, names: Sequence[str]
    ) -> Mapping[str, np.ndarray]:
        return self.inner.by_state(table[:, : self.n_columns], shift, scale, names)


def _log_det(factor: Tensor) -> Tensor:
    """Return the log-determinants ``(...)`` of triangular matrices ``(..., n, n)`` with positive diagonals."""
    return factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
