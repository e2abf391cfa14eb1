"""The conjugate family of regressions on the past and on inputs: matrix-normal coefficients, given the innovations'
precision, which is Gamma or Wishart.

With regressors ``z = (past, inputs, 1)`` and ``x = W z + e``, ``e ~ N(0, Λ⁻¹)``, the coefficients W given the precision
Λ are matrix-normal, ``MN(M, Λ⁻¹, V)``: each row has the covariance V times the variance of its innovation. Then
``E (x - W z)ᵀ Λ (x - W z) = (x - M z)ᵀ E[Λ] (x - M z) + D zᵀ V z``, so that the expected log-density is that of a
regression less a quadratic function of the regressors. All of it is a quadratic function of ``w = (past, inputs, x)``,
whose exponential is integrated over the missing values of w that have a Gaussian distribution given the observed ones.
The equations are in Minka (2000), *Bayesian linear regression*, and Bishop (2006), section 10.2; Fox et al. (2011),
*Bayesian nonparametric inference of switching dynamic linear models*, have this prior in a hidden Markov model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqmodels.common.constants import LOG_2PI
from seqmodels.hmm.conjugate.family import ConjugateFamily, ExpectedEmission, conjugate_of
from seqmodels.hmm.conjugate.gaussian_mixture import NO_FLOOR
from seqmodels.hmm.conjugate.innovations import GammaInnovations, WishartInnovations
from seqmodels.hmm.conjugate.prior import ConjugatePrior
from seqmodels.hmm.emissions import Emission, Statistics, emission_of, quadratic
from seqmodels.hmm.emissions.autoregressive import RegressionDesign, add_background
from seqmodels.hmm.emissions.base import IN_CACHE
from seqmodels.inference.chains.densities import Densities, LogDensities
from seqmodels.inference.chains.scratch import Scratch
from seqmodels.observations import AutoregressiveGaussian, GaussianMixture, Observation, gaussian


@conjugate_of.register(AutoregressiveGaussian)
def _(observation: AutoregressiveGaussian, size: int) -> ConjugateFamily:
    if not observation.ridge:
        raise ValueError(
            "ridge=0 of the observation leaves the coefficients without a prior, so that they have no posterior in "
            "states without frames; pass a ridge above 0, such as the default 0.001"
        )
    return AutoregressiveFamily(observation, size)


def conjugate_given_inputs(observation: Observation, size: int, input_scale: np.ndarray) -> ConjugateFamily:
    """Return the conjugate family of an emission distribution whose mean is linear in inputs.

    Its tables have the slopes of each state after the output parameters, as ``InputOptions.joined`` returns them.

    Args:
        observation: the emission distribution.
        size: number of features.
        input_scale: raw size of one unit of each of the U standardised inputs, ``(U,)``.

    Raises:
        ValueError: if the distribution has no conjugate prior, or none given inputs.
    """
    conjugate_of(observation, size)  # which refuses what has none
    is_gaussian = isinstance(observation, GaussianMixture) and observation.n_components == 1
    if not (is_gaussian or isinstance(observation, AutoregressiveGaussian)):
        raise ValueError(
            f"{observation!r} given inputs has no conjugate prior here; use GaussianMixture(1) or "
            "AutoregressiveGaussian, pass algorithm='em', or draw from the posterior with hmm.PosteriorHMM"
        )
    return AutoregressiveFamily(observation, size, input_scale)


class AutoregressiveFamily(ConjugateFamily):
    """The conjugate family of ``AutoregressiveGaussian``, and of ``GaussianMixture(1)`` given inputs: a matrix-normal
    distribution of each state's coefficients.

    A Gaussian whose mean is linear in inputs is an autoregression of order 0. There are F regressors: the pD values of
    the past, the U inputs, and the constant 1, which ``intercept=False`` leaves out. ``hyper (K, H)`` holds the mean of
    the coefficients ``(D, F)``, the inverse ``(F, F)`` of their covariance relative to the innovations', the
    hyperparameters of the innovations' precision, and last those of the Gaussian of the first p steps, which is a
    mixture of one component. All states share that Gaussian, and under ``covariance_type="tied"`` the innovations:
    their rows of it are equal, the rows of tables too, and its density and divergence count in state 0. It is frozen if
    the emission of state 0 is.

    Args:
        observation: the emission distribution.
        size: number of features D.
        input_scale: raw size of one unit of each of the U standardised inputs, ``(U,)``.
    """

    def __init__(self, observation: Observation, size: int, input_scale: np.ndarray | None = None) -> None:
        assert isinstance(observation, AutoregressiveGaussian | GaussianMixture), "others have no regression here"
        free = observation.clone().set_params(min_covariance=NO_FLOOR)
        shape_type = observation.shape_type
        of_inputs = AutoregressiveGaussian(0, "diag" if shape_type == "diag" else "full", background=0.0)
        self.regression = free if isinstance(free, AutoregressiveGaussian) else of_inputs
        self.input_scale = np.empty(0) if input_scale is None else input_scale
        self.first = conjugate_of(GaussianMixture(1, shape_type), size)
        first = ExpectedEmission(self.first.emission, self.first.offset_features)
        self.emission: RegressionEmission
        super().__init__(RegressionEmission(emission_of(free, size), self.regression, first, len(self.input_scale)))
        self.innovations = GammaInnovations(size) if shape_type == "diag" else WishartInnovations(size)
        self.n_past = self.regression.order * size
        self.n_variable = self.n_past + len(self.input_scale)
        self.n_regressors = self.n_variable + self.regression.intercept

    def _split(self, hyper: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return means ``(K, D, F)``, inverse relative covariances ``(K, F, F)``, and two parts of ``hyper``.

        These are the hyperparameters of the innovations and of the first steps.
        """
        d, f, n = self.size, self.n_regressors, self.innovations.n_hyper
        mean, precision, noise, first = hyper.split([d * f, f * f, n, hyper.shape[1] - d * f - f * f - n], 1)
        return mean.unflatten(1, (d, f)), precision.unflatten(1, (f, f)), noise, first

    def _joined(self, mean: Tensor, precision: Tensor, noise: Tensor, first: Tensor) -> Tensor:
        noise = noise[:1].expand_as(noise) if self.is_tied else noise
        return torch.cat([mean.flatten(1), precision.flatten(1), noise, first[:1].expand(len(mean), -1)], 1)

    @property
    def is_tied(self) -> bool:
        """True if all states share the covariance of their innovations."""
        return self.regression.covariance_type == "tied"

    def prior(self, prior: ConjugatePrior, n_states: int) -> Tensor:
        k, d, order, f = n_states, self.size, self.regression.order, self.n_regressors
        counts, mean_counts = prior.numbers("count", 1.0, (k, 1)), prior.numbers("mean_count", 1.0, (k, 1))
        means = prior.numbers("mean", 0.0, (k, d), least=-torch.inf)
        variances = prior.numbers("covariance", k ** (-2 / d), (k, d))
        # As the M-step's penalty: ridge |A|² + unit_root |A_1 + ... + A_p - I|², relative to the innovations.
        all_lags = self.regression.unit_root * torch.eye(d, dtype=torch.float64).repeat(1, order)  # (D, pD)
        of_past = self.regression.ridge * torch.eye(self.n_past, dtype=torch.float64) + all_lags.repeat(order, 1)
        mean, precision = means.new_zeros(k, d, f), means.new_zeros(k, f, f)
        mean[..., : self.n_past] = torch.linalg.solve(of_past, all_lags.T).T
        mean[..., self.n_variable :] = means.unsqueeze(-1)
        precision.diagonal(dim1=1, dim2=2)[:] = mean_counts
        precision.diagonal(dim1=1, dim2=2)[:, : self.n_variable] /= prior.numbers("slopes", 1.0, ()).square()
        precision[:, : self.n_past, : self.n_past] = of_past
        of_first = self.first.prior(ConjugatePrior(), 1)  # of one state: the whole data
        return self._joined(mean, precision, self.innovations.prior(counts, variances), of_first)

    def updated(self, prior: Tensor, statistics: Statistics) -> Tensor:
        mean0, precision0, noise0, first0 = self._split(prior)
        products, sums, counts = quadratic.moments(statistics[0], self.n_variable + self.size)
        # Sums of products of (past, inputs, 1, x), without the 1 if there is no intercept.
        every = torch.cat([products, sums.unsqueeze(1)], 1)
        every = torch.cat([every, torch.cat([sums, counts.unsqueeze(1)], 1).unsqueeze(2)], 2)
        last, n = len(every[0]) - 1, self.n_variable
        order = [*range(n), *([last] if self.regression.intercept else []), *range(n, last)]
        every, f = every[:, order][:, :, order], self.n_regressors
        precision = precision0 + every[:, :f, :f]
        mean = torch.linalg.solve(precision, (mean0 @ precision0 + every[:, f:, :f]).mT).mT
        # Products of residuals about the posterior mean, and of its deviation from the prior's: each is positive.
        residual = torch.cat([-mean, torch.eye(self.size).to(mean).expand(len(mean), -1, -1)], 2)
        scatter = residual @ every @ residual.mT + (mean - mean0) @ precision0 @ (mean - mean0).mT
        if self.is_tied:
            scatter, counts = (each.sum(0, keepdim=True).expand_as(each) for each in (scatter, counts))
        noise = self.innovations.updated(noise0, 0.5 * (scatter + scatter.mT), counts)
        first = self.first.updated(first0[:1], (statistics[1].sum(0, keepdim=True),))
        return self._joined(mean, 0.5 * (precision + precision.mT), noise, first)

    def expected(self, hyper: Tensor) -> tuple[Tensor, Tensor]:
        mean, precision, noise, of_first = self._split(hyper)
        first, offsets = self.first.expected(of_first)
        relative = self.size * torch.linalg.inv(precision)  # D V
        gap = self.innovations.log_det_gap(noise).unsqueeze(1)
        table = self._table(mean, self.innovations.covariance(noise), first)
        return table, torch.cat([relative.flatten(1), gap, offsets], 1)

    def expected_emission(self, hyper: Tensor, fixed: Tensor) -> tuple[Emission, Tensor]:
        return self.emission, torch.cat(self.expected(hyper), 1)

    def _table(self, coefficients: Tensor, covariance: Tensor, first: Tensor) -> Tensor:
        """Return a table ``(K, P + DU)``; ``first``: output parameters of first steps, a mixture of one component."""
        weights, intercept = coefficients.tensor_split([self.n_variable], 2)
        return self.emission.joined(weights, intercept.sum(-1), self.innovations.shapes(covariance), first)

    def divergence(self, hyper: Tensor, prior: Tensor) -> Tensor:
        (mean, precision, noise, first), (mean0, precision0, noise0, first0) = self._split(hyper), self._split(prior)
        ratio = torch.linalg.solve(precision, precision0)
        of_size = ratio.diagonal(dim1=-2, dim2=-1).sum(-1) - self.n_regressors - torch.logdet(ratio)
        moved = (mean - mean0) @ precision0 @ (mean - mean0).mT
        distance = torch.linalg.solve(self.innovations.covariance(noise), moved).diagonal(dim1=-2, dim2=-1).sum(-1)
        of_coefficients = 0.5 * (self.size * of_size + distance)
        of_innovations = self.innovations.divergence(noise, noise0)
        return self._total(of_coefficients, of_innovations, self.first.divergence(first, first0))

    def mean(self, hyper: Tensor) -> Tensor:
        mean, _, noise, of_first = self._split(hyper)
        return self._table(mean, self.innovations.covariance(noise), self.first.mean(of_first))

    def draw(self, hyper: Tensor, generator: torch.Generator) -> Tensor:
        mean, precision, noise, of_first = self._split(hyper)
        covariance = self.innovations.draw(noise[:1] if self.is_tied else noise, generator)
        covariance = covariance.expand(len(mean), -1, -1)
        white = torch.randn(mean.shape, generator=generator, dtype=mean.dtype)
        # Of V = C⁻ᵀ C⁻¹ with the factor C of the precision, C⁻ᵀ is a square root.
        spread = torch.linalg.solve_triangular(torch.linalg.cholesky(precision), white, upper=False, left=False)
        drawn = mean + torch.linalg.cholesky(covariance) @ spread
        return self._table(drawn, covariance, self.first.draw(of_first[:1], generator).expand(len(mean), -1))

    def log_density(self, table: Tensor, hyper: Tensor) -> Tensor:
        weights, intercept, shape, of_first = self.emission.parts(table)
        mean, precision, noise, first = self._split(hyper)
        coefficients = torch.cat([weights, intercept.unsqueeze(-1)], -1)[..., : self.n_regressors]
        factor = gaussian.precision_factor(shape, self.size, self.regression.shape_type, NO_FLOOR)
        root = torch.linalg.cholesky(precision)
        squares = (factor.mT @ (coefficients - mean) @ root).square().sum((-1, -2))
        log_dets = self.n_regressors * _log_det(factor) + self.size * _log_det(root)
        of_coefficients = log_dets - 0.5 * (squares + self.n_regressors * self.size * LOG_2PI)
        of_innovations = self.innovations.log_density(shape, noise)
        return self._total(of_coefficients, of_innovations, self.first.log_density(of_first, first))

    def _total(self, of_coefficients: Tensor, of_innovations: Tensor, of_first: Tensor) -> Tensor:
        """Return the sum ``(K,)`` of three numbers of each state; what all states share counts in the first alone."""
        is_first = torch.arange(len(of_first), device=of_first.device) == 0
        return of_coefficients + of_innovations * (is_first if self.is_tied else 1) + of_first * is_first

    def raw(self, hyper: Tensor, shift: np.ndarray, scale: np.ndarray) -> Mapping[str, np.ndarray]:
        mean, precision, noise, of_first = self._split(hyper)
        order, has_intercept, n = self.regression.order, self.regression.intercept, self.n_past
        shifts, scales = np.tile(shift, order), np.append(np.tile(scale, order), self.input_scale)
        weights = mean[..., : self.n_variable].numpy() * scale[:, None] / scales
        coefficients, slopes = weights[..., :n], weights[..., n:]
        intercepts = mean[..., self.n_variable :].sum(-1).numpy() * scale + shift - coefficients @ shifts
        # Raw regressors are linear in the encoded ones, and the precision is that of sums of their products.
        units = np.diag(np.append(scales, 1.0) if has_intercept else scales)
        if has_intercept:
            units[:n, -1] = shifts
        raw_first = self.first.raw(of_first, shift, scale)
        of_past = {"coefficients": coefficients} if order else {}
        return {
            **of_past,
            **({"slopes": slopes} if slopes.size else {}),
            "intercepts": intercepts,
            "regressor_precision": units @ precision.numpy() @ units.T,
            **self.innovations.raw(noise, scale),
            **{f"first_{name}": v[:, 0] for name, v in raw_first.items() if name != "weights" and order},
        }


class QuadraticForm(NamedTuple):
    """A function ``constant + linear · w - ½ wᵀ precision w`` of W values w for each of K states.

    Attributes:
        precision: ``(K, W, W)``.
        linear: ``(K, W)``.
        constant: ``(K,)``.
    """

    precision: Tensor
    linear: Tensor
    constant: Tensor

    def integral(self, mean: Tensor, spread: Tensor, is_free: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the logarithm of the integral of the exponential of this function, and the moments of w under it.

        Args:
            mean: mean of the values under Gaussian beliefs about n vectors w, with which the exponential is multiplied;
                of observed values the value itself, ``(n, W)``.
            spread: covariance of these beliefs, zero for observed values, ``(n, W, W)``.
            is_free: True for values that are integrated over without beliefs, ``(n, W)``.

        Returns:
            Logarithms ``(K, n)``, means ``(K, n, W)`` and covariances ``(K, n, W, W)``.
        """
        values, vectors = torch.linalg.eigh(spread)
        # w = mean + moves v, where v is standard normal, or free.
        moves = (vectors * values.clamp(min=0.0).sqrt().unsqueeze(1)) @ vectors.mT + torch.diag_embed(is_free.to(mean))
        precision = self.precision.unsqueeze(1)
        slope = self.linear.unsqueeze(1) - (precision @ mean.unsqueeze(-1)).squeeze(-1)  # (K, n, W)
        factor = torch.linalg.cholesky(moves @ precision @ moves + torch.diag_embed((~is_free).to(mean)))
        both = torch.cat([moves.expand(len(slope), -1, -1, -1), moves @ slope.unsqueeze(-1)], 3)
        root, white = torch.linalg.solve_triangular(factor, both, upper=False).split([mean.shape[1], 1], 3)
        at_mean = self.constant.unsqueeze(1) + 0.5 * ((self.linear.unsqueeze(1) + slope) * mean).sum(-1)
        log_integral = at_mean + 0.5 * white.square().sum((-1, -2)) - _log_det(factor)
        moved = mean + (root.mT @ white).squeeze(-1)
        return log_integral + 0.5 * LOG_2PI * is_free.to(mean).sum(1), moved, root.mT @ root


class RegressionEmission(Emission):
    """The emission of a regression on the past and on inputs, which takes a posterior's densities.

    ``past`` is ``(N, p, D)``, or ``(N, p + p²D, D)`` with beliefs about its missing values; with U inputs, it is the
    past of complete frames and the inputs, ``(N, pD + U)``. There are Z = pD + U variable regressors. Tables are
    ``(K, P + DU)``: output parameters, then slopes. Where densities are ``exp(E log p(x))`` under a posterior, there
    are offsets behind: the covariance of the coefficients of the F regressors relative to the innovations' times D, the
    difference ``½ (E log|Λ| - log|E Λ|)``, and the offsets of first steps. A frame without observed values has the
    density 1. Statistics are those of regressions, then those of the first p steps.

    Args:
        inner: emission without inputs.
        regression: the regression on the past, of order 0 for a mixture of one component.
        first: emission of the Gaussian of the first p steps, a mixture of one component.
        n_inputs: number of inputs, U.
    """

    def __init__(
        self, inner: Emission, regression: AutoregressiveGaussian, first: ExpectedEmission, n_inputs: int
    ) -> None:
        super().__init__(inner.observation, inner.size)
        self.inner, self.regression, self.first, self.n_inputs = inner, regression, first, n_inputs
        self.n_outputs = inner.observation.n_output_parameters(inner.size)
        self.n_variable = regression.order * inner.size + n_inputs

    @property
    def n_statistics(self) -> int:
        return 2

    @property
    def shares(self) -> bool:
        return self.inner.shares

    def tie(self, table: Tensor) -> Tensor:
        return torch.cat([self.inner.tie(table[:, : self.n_outputs]), table[:, self.n_outputs :]], 1)

    def parts(self, table: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return coefficients ``(K, D, Z)``, intercepts ``(K, D)``, numbers of covariances, and tables of first steps.

        These are output parameters of a mixture of one component.
        """
        d, n = self.size, self.n_outputs
        of_frames, slopes = table[:, :n], table[:, n : n + d * self.n_inputs].unflatten(1, (d, self.n_inputs))
        if not self.regression.order:  # a mixture has weights, and no first steps
            of_frames = torch.nn.functional.pad(of_frames[:, 1:], (0, n - 1))
        matrix, intercept, shape, *first = self.regression.unpack(of_frames, d)
        of_first = torch.cat([torch.zeros_like(intercept[:, :1]), *first], 1)
        return torch.cat([matrix, slopes], 2), intercept, shape, of_first

    def joined(self, weights: Tensor, intercept: Tensor, shape: Tensor, first: Tensor) -> Tensor:
        """Return the table ``(K, P + DU)`` of parts, the inverse of ``parts``."""
        matrix, slopes = weights.tensor_split([self.n_variable - self.n_inputs], 2)
        of_frames = self.regression.pack(matrix, intercept, shape, first[:, 1:])
        if not self.regression.order:
            of_frames = torch.nn.functional.pad(of_frames[:, : self.n_outputs - 1], (1, 0))
        return torch.cat([of_frames, slopes.flatten(1)], 1)

    def _form(self, table: Tensor) -> tuple[QuadraticForm, Tensor]:
        """Return the log-density as a function of (past, inputs, x), and the table of first steps with its offsets."""
        n, d, f = self.n_variable, self.size, self.n_variable + self.regression.intercept
        weights, intercept, shape, first = self.parts(table)
        factor = gaussian.precision_factor(shape, d, self.regression.shape_type, NO_FLOOR)
        residual = factor.mT @ torch.cat([-weights, torch.eye(d).to(table).expand(len(table), -1, -1)], 2)
        white = factor.mT @ intercept.unsqueeze(-1)
        offsets = table[:, self.n_outputs + d * self.n_inputs :]
        if not offsets.shape[1]:
            offsets = table.new_zeros(len(table), f * f + 1 + self.first.n_offsets)
        relative, gap, of_first = offsets.tensor_split([f * f, f * f + 1], 1)
        relative = torch.nn.functional.pad(relative.unflatten(1, (f, f)), (0, n + 1 - f) * 2)  # (K, Z + 1, Z + 1)
        of_x = (0, d)
        precision = residual.mT @ residual + torch.nn.functional.pad(relative[:, :n, :n], of_x * 2)
        linear = (residual.mT @ white).squeeze(-1) - torch.nn.functional.pad(relative[:, :n, n], of_x)
        constant = _log_det(factor) - 0.5 * (white.square().sum((1, 2)) + d * LOG_2PI + relative[:, n, n])
        return QuadraticForm(precision, linear, constant + gap.squeeze(1)), torch.cat([first, of_first], 1)

    def _design(self, x: Tensor, past: Tensor) -> tuple[RegressionDesign, Tensor, Tensor, Tensor | None]:
        """Return the complete frames, the numbers of the incomplete ones, and regressors with their covariance."""
        regressors, spread = (past, None) if past.dim() == 2 else self.regression.split_past(past)
        missing, is_early = torch.isnan(x), torch.isnan(regressors).any(1)
        incomplete = missing.any(1) if spread is None else missing.any(1) | (spread != 0).flatten(1).any(1)
        columns = torch.cat([regressors.T, x.T, x.new_ones(1, len(x))])
        columns.masked_fill_(is_early | incomplete, 0.0)  # density 1, and no statistics
        rows = (incomplete & ~is_early & ~missing.all(1)).nonzero().squeeze(1)
        jumps = None
        if self.regression.background:
            steps = regressors[:, : self.regression.order * self.size].unflatten(1, (-1, self.size))
            jumps = self.regression.log_background(x, steps).unsqueeze(1)
        return RegressionDesign(columns, is_early.nonzero().squeeze(1), None, jumps), rows, regressors, spread

    def _completed(
        self, form: QuadraticForm, x: Tensor, memo: tuple[RegressionDesign, Tensor, Tensor, Tensor | None]
    ) -> Iterator[tuple[Tensor, tuple[Tensor, Tensor, Tensor]]]:
        """Yield numbers of incomplete frames, some at a time, with their log-densities and the moments of (z, x)."""
        _, incomplete, regressors, spread = memo
        width = self.n_variable + self.size
        for rows in incomplete.split(max(1, IN_CACHE // (len(form.constant) * 4 * width * width))):
            mean = torch.cat([regressors[rows], x[rows]], 1).double()
            beliefs = mean.new_zeros(len(rows), width, width)
            if spread is not None:
                beliefs[:, : self.n_variable, : self.n_variable] = spread[rows]
            yield rows, form.integral(torch.nan_to_num(mean), beliefs, torch.isnan(mean))

    def evaluate(
        self, table: Tensor, x: Tensor, past: Tensor | None, dtype: torch.dtype, scratch: Scratch
    ) -> tuple[Densities, Any]:
        assert past is not None
        (form, first), memo = self._form(table), self._design(x, past)
        design, coefficients = memo[0], quadratic.coefficients(*form)
        log_b = scratch.buffer("log_b", (len(table), len(x)), dtype, x.device).T
        for rows, features in design.blocks():  # zeros but for complete frames after the first p steps
            log_b.T[:, rows] = (coefficients @ features).to(dtype)
        for numbers, (log_integral, _, _) in self._completed(form, x, memo):
            log_b[numbers] = log_integral.T.to(dtype)
        if len(design.early):
            early = x[design.early].double()
            log_b[design.early] = self.first.log_prob(first[:1], early, None, torch.float64).to(dtype)
        share = add_background(log_b, design.log_background, self.regression.background, scratch)
        return LogDensities(log_b), (memo, share)

    def log_prob(self, table: Tensor, x: Tensor, past: Tensor | None, dtype: torch.dtype) -> Tensor:
        if table.shape[1] == self.n_outputs:
            return self.inner.log_prob(table, x, past, dtype)
        return self.evaluate(table, x, past, dtype, Scratch())[0].log()

    def statistics(self, table: Tensor, x: Tensor, past: Tensor | None, gamma: Tensor, memo: Any = None) -> Statistics:
        assert past is not None
        (form, first), (memo, share) = self._form(table), memo or self.evaluate(table, x, past, x.dtype, Scratch())[1]
        gamma = gamma if share is None else gamma * share.to(gamma.dtype)
        design, weights = memo[0], gamma.T.double()  # (K, N)
        sums = table.new_zeros(len(table), quadratic.n_features(self.n_variable + self.size))
        for rows, features in design.blocks():
            sums.addmm_(weights[:, rows], features.T)
        for numbers, (_, mean, spread) in self._completed(form, x, memo):
            w = weights[:, numbers]
            products = torch.einsum("kn,knvw->kvw", w, mean.unsqueeze(-1) * mean.unsqueeze(-2) + spread)
            sums += quadratic.sums_of_moments(products, torch.einsum("kn,knv->kv", w, mean), w.sum(1))
        return sums, *self.first.statistics(first, x[design.early].double(), None, gamma[design.early])

    def maximise(self, statistics: Statistics, table: Tensor) -> Tensor:
        raise NotImplementedError("the hyperparameters are updated by their conjugate family and have no M-step")

    def raw_parameters(self, table: Tensor, shift: np.ndarray, scale: np.ndarray) -> Mapping[str, np.ndarray]:
        return self.inner.raw_parameters(table[:, : self.n_outputs], shift, scale)


def _log_det(factor: Tensor) -> Tensor:
    """Return the log-determinants ``(...)`` of triangular matrices ``(..., n, n)`` with positive diagonals."""
    return factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
