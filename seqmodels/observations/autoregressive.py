"""A linear regression of each vector on the last p: ``x_t = A_1 x_{t-1} + ... + A_p x_{t-p} + c + e_t``, ``e_t ~ N(0,
Σ)``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from seqmodels.common.parameters import Floor, NotNegativeFloat, PositiveInt, refuse_wrong_arguments
from seqmodels.observations import gaussian, multivariate_t
from seqmodels.observations.base import FullConditionals, Observation, full_conditionals_of_mixture
from seqmodels.observations.gaussian_mixture import BACKGROUND_COVARIANCE
from seqmodels.observations.special_functions import gaussian_cdf, student_t_cdf


class Conditional(NamedTuple):
    """The distribution of a step of D features given its past: a Gaussian, or Student t with the same location.

    Attributes:
        mean: means or locations, ``(..., D)``.
        shape: the S numbers that describe each covariance, ``(..., S)``.
        shape_type: form of the covariances, ``"diag"`` or ``"full"``.
        spread: degrees of freedom and factors of the scale matrices of t densities; None if all are Gaussian.
    """

    mean: Tensor
    shape: Tensor
    shape_type: Literal["diag", "full"]
    spread: multivariate_t.Spread | None


@dataclass(eq=False, repr=False)
class AutoregressiveGaussian(Observation):
    """A linear-Gaussian regression of each vector on the last ``order`` vectors; an HMM with one state is a VAR.

    The first ``order`` steps of a sequence, whose past is incomplete, have a Gaussian of their own.

    Args:
        order: p, the number of past steps in the regression.
        covariance_type: form of the covariances of the innovations and of the first steps: ``"full"``, ``"diag"``, or
            ``"tied"``, one full matrix for the innovations of all states of an HMM, so that the states differ only in
            their regressions.
        min_covariance: lower bound of the variances of the innovations in units of the standardised data; for full
            covariances in EM, of their eigenvalues.
        ridge: strength of a Gaussian prior on the coefficients in an M-step, as a number of pseudo-frames of unit
            variance. Variational Bayes and draws have the same prior, together with ``hmm.ConjugatePrior``.
        unit_root: strength, in the same pseudo-frames, of a prior that the coefficients ``A_1 + ... + A_p`` sum to the
            identity, as they do for a level that drifts. Least squares without it pulls forecasts towards the mean of
            the training data (Doan, Litterman and Sims 1984, *Forecasting and conditional projection using realistic
            prior distributions*). A value far above the number of frames (1e6) makes the model a regression of
            differences.
        intercept: False fixes c at zero in encoded units, for an HMM only. The regression then passes through the mean
            of the training data, or through zero with ``encoding=Standardize(with_mean=False)``.
        background: fixed probability w that a step is a jump that no regression foresees, the same in all states:
            ``x_t ~ (1 - w) N(A past + c, Σ) + w N(x_{t-1}, 10 I)``, in units of the standardised data, in which 1 is
            the standard deviation of a feature. It bounds what a jump costs: one of 30 standard deviations some 55
            nats, where the regression alone may lose thousands; other steps lose ``-log(1 - w)`` nats each. EM gives
            steps that are probably jumps little weight. The first steps jump from the mean of the training data. It is
            not learned, and ``coefficients_``, ``intercepts_`` and ``covariances_`` do not include it. 0 is the
            regression alone: with one state and ``ridge=0`` it is ordinary least squares. Compare the gross errors of
            Huber (1964), *Robust estimation of a location parameter*.
        predictive: how the density of a step after p others follows from the fit. ``"plug-in"`` is the Gaussian at the
            estimates. Few frames leave these uncertain, so that it is too narrow: fitted to 25 frames, 90 % bands hold
            some 70 % of the values of real series. ``"posterior"`` integrates the coefficients and the innovations'
            covariance over their posterior given the training data, under Jeffreys' prior ``|Σ|^(-(D + 1) / 2)`` times
            that of ``ridge`` and ``unit_root``. That is a Student t density, which is wider after unusual pasts
            (Zellner 1971, *An introduction to Bayesian inference in econometrics*, section 8.2). Its degrees of freedom
            and its scale are then estimated from the density of each training frame given all others, because a
            posterior of Gaussian innovations knows of no heavy tails (``seqmodels.hmm.emissions.left_out``). Sequences
            that are scored do not change the posterior. ``"auto"`` is ``"posterior"`` for an ``HMM`` of one state that
            EM fits to enough frames for a t density with a variance (``pD + D + 3``, and p more in each sequence), if
            emissions depend on no inputs and are not frozen, and to at most ``1000 (pD + D + 1)`` frames; otherwise
            ``"plug-in"``. So the density of more frames is Gaussian, and may be lower where innovations have heavy
            tails. ``observation_.predictive`` of a fitted model is ``"posterior"`` if that was chosen; passing it means
            ``"auto"``. ``aic``, ``bic``, standard errors and ``history_`` are of the likelihood at the estimates.

    The output parameters of a state are the coefficients (D × pD, for D features), the intercept (D), the numbers that
    describe the innovations' covariance, and the mean and the covariance of the first steps
    (``seqmodels.observations.gaussian`` says which numbers describe a covariance); under ``predictive="posterior"``
    those of the method ``posterior`` follow. Reference: Hamilton (1990), *Analysis of time series subject to changes in
    regime*.

    Missing values (NaN) of x are marginalised out. If past values are missing, ``past`` has the shape
    ``(..., p + p²D, D)``: first the expected values of the p steps, then, row by row, the covariance ``P (pD, pD)`` of
    these values, so that x is Gaussian with covariance ``A P Aᵀ + Σ``. An HMM computes both from the observed steps
    before (``hmm.missing_past``).
    """

    _bounded_by_data: ClassVar[Mapping[str, str]] = {"order": "longest"}
    _lacked: ClassVar[Mapping[str, Any]] = {"background": 0.0, "predictive": "plug-in"}

    order: PositiveInt = 1
    covariance_type: Literal["diag", "full", "tied"] = "full"
    min_covariance: Floor = 1e-6
    ridge: NotNegativeFloat = 1e-3
    unit_root: NotNegativeFloat = 0.0
    intercept: bool = True
    background: float = 0.001
    predictive: Literal["auto", "plug-in", "posterior"] = "auto"
    emits = "vectors"

    def check(self, size: int) -> None:
        refuse_wrong_arguments(self)
        if not 0 <= self.background < 1:
            raise ValueError(f"background is {self.background}; pass a probability of 0 or more, and below 1")

    @property
    def n_past(self) -> int:
        return self.order

    def at_estimates(self) -> AutoregressiveGaussian:
        """Return the observation whose output parameters are estimates alone, without those of a posterior."""
        return replace(self, predictive="auto") if self.predictive == "posterior" else self

    @property
    def has_marginal_cdfs(self) -> bool:
        return True

    @property
    def shape_type(self) -> Literal["diag", "full"]:
        """The form of the numbers that describe a covariance: ``"diag"`` (log-variances) or ``"full"`` (a factor)."""
        return "diag" if self.covariance_type == "diag" else "full"

    def starting_point(self, size: int, generator: torch.Generator) -> Tensor:
        if self.covariance_type == "tied":
            raise ValueError(
                'covariance_type="tied" shares one matrix over the states of an HMM, and a network has no states; '
                'use "full" or "diag"'
            )
        if self.predictive == "posterior":
            raise ValueError(
                "predictive='posterior' is of a regression that an HMM of one state fitted, and a network has none; "
                "pass 'auto'"
            )
        if not self.intercept:
            raise ValueError(
                "intercept=False applies to the regressions of an HMM only, because a network computes the intercept "
                "of every step; leave it out"
            )
        return super().starting_point(size, generator)

    def locations(self, size: int) -> list[slice]:
        n_coefficients = size * size * self.order
        return [slice(n_coefficients, n_coefficients + size)]

    def n_output_parameters(self, size: int) -> int:
        of_posterior = 2 + (size * self.order + 1) ** 2
        return sum(self._widths(size)) + (of_posterior if self.predictive == "posterior" else 0)

    def _size(self, n_output_parameters: int) -> int:
        """Return the number of features D for which there are ``n_output_parameters`` output parameters."""
        return next(d for d in range(1, n_output_parameters) if self.n_output_parameters(d) == n_output_parameters)

    def _widths(self, size: int) -> list[int]:
        shape = gaussian.n_shape_parameters(self.shape_type, size)
        return [size * size * self.order, size, shape, size, shape]

    def unpack(self, output_parameters: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Split the parameters of a regression on the last p steps into its five parts, without those of ``posterior``.

        Args:
            output_parameters: the P parameters of each regression, ``(..., P)``.
            size: number of features D.

        Returns:
            The coefficients ``(..., D, pD)``, oldest step first; the intercept ``(..., D)``; the S numbers ``(..., S)``
                that describe the innovations' covariance in the form ``shape_type``; the mean ``(..., D)`` of the first
                p steps; and the numbers ``(..., S)`` that describe their covariance.
        """
        widths = self._widths(size)
        coefficients, *rest = output_parameters[..., : sum(widths)].split(widths, dim=-1)
        intercept, shape, first_mean, first_shape = rest
        return coefficients.unflatten(-1, (size, size * self.order)), intercept, shape, first_mean, first_shape

    def regression(self, output_parameters: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Return the coefficients, intercept, means and covariance matrices of a regression on the last p steps.

        Args:
            output_parameters: the P parameters of each regression, ``(..., P)``.
            size: number of features D.

        Returns:
            The coefficients ``(..., D, pD)``, oldest step first; the intercept ``(..., D)``; the covariance of the
                innovations ``(..., D, D)``; the mean ``(..., D)`` and the covariance ``(..., D, D)`` of the first p
                steps.
        """
        coefficients, intercept, shape, first_mean, first_shape = self.unpack(output_parameters, size)
        covariance, first_covariance = self._covariance(shape, size), self._covariance(first_shape, size)
        return coefficients, intercept, covariance, first_mean, first_covariance

    def pack(self, coefficients: Tensor, *rest: Tensor) -> Tensor:
        """Join the five parts of a regression into its P parameters, ``(..., P)``; the inverse of ``unpack``.

        Args:
            coefficients: coefficients of the last p steps of D features, oldest first, ``(..., D, pD)``.
            rest: the intercept, the numbers of the innovations' covariance, and mean and numbers of the covariance of
                the first steps.
        """
        return torch.cat([coefficients.flatten(-2), *rest], dim=-1)

    def posterior(self, output_parameters: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return what ``predictive="posterior"`` keeps of the posterior of a regression beside its estimates.

        Args:
            output_parameters: the P parameters of each regression, ``(..., P)``.
            size: number of features D.

        Returns:
            The number n ``(...)`` by which the scale matrix of the next step is ``n / ν (1 + zᵀ (ZᵀZ)⁻¹ z) Σ`` with the
                estimated covariance Σ: the number of frames, before it is corrected together with ν; the degrees of
                freedom ν ``(...)``; and a square root C of the inverse of the regressors' products, ``CᵀC = (ZᵀZ)⁻¹``
                for regressors ``z = (past, 1)``, ``(..., pD + 1, pD + 1)``.
        """
        rest = output_parameters[..., sum(self._widths(size)) :]
        width = size * self.order + 1
        return rest[..., 0], rest[..., 1], rest[..., 2:].unflatten(-1, (width, width))

    def log_prob(self, output_parameters: Tensor, x: Tensor, past: Tensor | None = None) -> Tensor:
        mean, shape, covariance_type, spread = self._conditional(output_parameters, x.shape[-1], past)
        x = x.to(mean.dtype)
        if spread is None:
            log_density = gaussian.log_density(x, mean, shape, covariance_type, self.min_covariance)
        else:
            log_density = multivariate_t.log_density(x, mean, shape, covariance_type, self.min_covariance, spread)
        if not self.background:
            return log_density
        return torch.logaddexp(log_density + math.log1p(-self.background), self.log_background(x, past))

    def marginal_cdfs(self, output_parameters: Tensor, x: Tensor, past: Tensor | None = None) -> Tensor:
        size, x = x.shape[-1], x.double().cpu()
        past = None if past is None else past.double().cpu()
        mean, shape, covariance_type, spread = self._conditional(output_parameters.double().cpu(), size, past)
        if covariance_type == "diag":
            variance = gaussian.variances_of_shape(shape, self.min_covariance)
        else:
            variance = gaussian.covariance_cholesky(shape, size, self.min_covariance).square().sum(-1)
        z = (x - mean) / variance.sqrt()
        of_regression = gaussian_cdf(z)
        if spread is not None:
            degrees, factor, is_t = (each.unsqueeze(-1) for each in spread)
            z = z / factor.sqrt()
            of_regression = torch.where(is_t, student_t_cdf(z, degrees.expand_as(z)), of_regression)
        if not self.background:
            return of_regression
        centre, log_variance = self._jump(past)
        of_jump = gaussian_cdf((x - centre) * (-0.5 * log_variance).exp())
        return (1 - self.background) * of_regression + self.background * of_jump

    def log_background(self, x: Tensor, past: Tensor | None) -> Tensor:
        """Return ``log(w b(x))``, the log-density of steps as jumps times their probability w, in nats, ``(...)``.

        It does not depend on the parameters of the regressions, and there is none if ``background`` is 0.

        Args:
            x: encoded vectors, ``(..., D)``, NaN where missing.
            past: the last p steps before each, oldest first, ``(..., p, D)`` or ``(..., p + p²D, D)``.
        """
        centre, log_variance = self._jump(past)
        of_jump = gaussian.log_density(x.to(centre.dtype), centre, log_variance, "diag", self.min_covariance)
        return of_jump + math.log(self.background)

    def _jump(self, past: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return mean and log-variances of the background after some past, each ``(..., D)``.

        The mean is the last step, or 0, the mean of the training data, where the past reaches back before the sequence.
        """
        assert past is not None, "an autoregressive observation is always given its past"
        known = past[..., : self.order, :]
        has_past = ~torch.isnan(known).flatten(-2).any(-1, keepdim=True)
        centre = torch.where(has_past, known[..., -1, :], 0.0)
        return centre, torch.full_like(centre, math.log(BACKGROUND_COVARIANCE))

    def has_full_conditionals(self, size: int) -> bool:
        return True

    def full_conditionals(self, output_parameters: Tensor, x: Tensor, past: Tensor | None = None) -> FullConditionals:
        mean, shape, covariance_type, spread = self._conditional(output_parameters, x.shape[-1], past)
        floor = self.min_covariance
        if spread is None:
            regressed = gaussian.full_conditionals(x, mean, shape, covariance_type, floor)
        else:
            regressed = multivariate_t.full_conditionals(x, mean, shape, covariance_type, floor, spread)
        if not self.background:
            return regressed
        jump = gaussian.full_conditionals(x, *self._jump(past), "diag", self.min_covariance)
        both = [torch.stack(torch.broadcast_tensors(*pair), -2) for pair in zip(regressed, jump, strict=True)]
        weights = torch.tensor([1 - self.background, self.background], dtype=torch.float64, device=x.device)
        return full_conditionals_of_mixture(weights.log(), FullConditionals(*both))

    def _conditional(self, output_parameters: Tensor, size: int, past: Tensor | None) -> Conditional:
        """Return the distribution of the next step x given its past, without the background.

        Where the past reaches back before the sequence, mean and covariance are those of first steps. If ``past`` has
        covariances of missing values, all are float64, the form is ``"full"``, and the covariance includes the
        uncertainty about these values. Where the density is Student t, its scale matrix is then the sum of both.

        Args:
            output_parameters: the P parameters of each regression, ``(..., P)``.
            size: number of features D.
            past: the last p steps, oldest first, ``(..., p, D)`` or ``(..., p + p²D, D)``; not None.
        """
        assert past is not None, "an autoregressive observation is always given its past"
        history, uncertain = self.split_past(past)
        spread = self._spread(output_parameters, history, uncertain) if self.predictive == "posterior" else None
        if uncertain is not None:
            mean, _, covariance = self._predicted(output_parameters, history.double(), uncertain.double())
            if spread is not None:
                noise = self._covariance(self.unpack(output_parameters.double(), size)[2], size)
                more = torch.where(spread.is_t, spread.factor - 1, 0.0)
                covariance = covariance + more[..., None, None] * noise
                spread = spread._replace(factor=torch.ones_like(spread.factor))
            shape = gaussian.shape_of_covariance(0.5 * (covariance + covariance.mT))
            return Conditional(mean, shape, "full", spread)
        coefficients, intercept, shape, first_mean, first_shape = self.unpack(output_parameters, size)
        has_past = ~torch.isnan(history).any(-1, keepdim=True)
        predicted = intercept + torch.einsum("...ij,...j->...i", coefficients, torch.where(has_past, history, 0.0))
        mean, shape = torch.where(has_past, predicted, first_mean), torch.where(has_past, shape, first_shape)
        return Conditional(mean, shape, self.shape_type, spread)

    def _spread(self, output_parameters: Tensor, history: Tensor, uncertain: Tensor | None) -> multivariate_t.Spread:
        """Return how the density of the next step given its past is wider than a Gaussian with the estimates.

        Args:
            output_parameters: the P parameters of each regression, ``(..., P)``.
            history: values of the last p steps of D features, oldest first, ``(..., pD)``.
            uncertain: covariance of these values, ``(..., pD, pD)``; None if all are known.
        """
        n, degrees, root = self.posterior(output_parameters, history.shape[-1] // self.order)
        has_past = ~torch.isnan(history).any(-1)
        regressors = pad(torch.where(has_past.unsqueeze(-1), history, 0.0), (0, 1), value=1.0).to(root.dtype)
        leverage = torch.einsum("...ij,...j->...i", root, regressors).square().sum(-1)
        if uncertain is not None:
            of_past = root[..., :-1]
            leverage = leverage + (of_past @ uncertain.to(root.dtype) * of_past).sum((-1, -2))
        return multivariate_t.Spread(degrees.double(), n / degrees * (1 + leverage), has_past)

    def variance_factor(self, output_parameters: Tensor, history: Tensor, uncertain: Tensor) -> Tensor | None:
        """Return the factor by which innovations vary more than their estimated covariance says, ``(...)``.

        Under ``predictive="posterior"`` it is the mean of ``n / (ν - 2) (1 + zᵀ (ZᵀZ)⁻¹ z)`` over pasts, else None.

        Args:
            output_parameters: the P parameters of the regression, ``(P,)``.
            history: means of the last p steps of D features, oldest first, ``(..., pD)``.
            uncertain: covariances of the last p steps, ``(..., pD, pD)``.
        """
        if self.predictive != "posterior":
            return None
        degrees, factor, _ = self._spread(output_parameters, history, uncertain)
        return factor * degrees / (degrees - 2)

    # -- missing values of the past ------------------------------------------------------------------------

    def split_past(self, past: Tensor) -> tuple[Tensor, Tensor | None]:
        """Split a past into the values of the last p steps and the covariance of those that are uncertain.

        Args:
            past: the last p steps of D features, oldest first, ``(..., p, D)``; if some were missing,
                ``(..., p + p²D, D)``, with expected values first and then the rows of their covariance.

        Returns:
            The values ``(..., pD)``, NaN before the start of the sequence; and their covariance ``(..., pD, pD)``, 0
                before the start, or None for a past in which all values are known.
        """
        history = past[..., : self.order, :].flatten(-2)
        if past.shape[-2] == self.order:
            return history, None
        width = history.shape[-1]
        return history, past[..., self.order :, :].flatten(-2).unflatten(-1, (width, width))

    def join_past(self, history: Tensor, spread: Tensor) -> Tensor:
        """Join the values of the last p steps and their covariance into one array that ``log_prob`` takes as past.

        It is the inverse of ``split_past``; the result is ``(..., p + p²D, D)`` for D features.

        Args:
            history: expected values of the last p steps, oldest first, ``(..., pD)``.
            spread: covariance of these values, ``(..., pD, pD)``.
        """
        size = history.shape[-1] // self.order
        rows = spread.flatten(-2).unflatten(-1, (-1, size))
        return torch.cat([history.unflatten(-1, (-1, size)), rows], dim=-2)

    def joint(self, output_parameters: Tensor, history: Tensor, spread: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean and the covariance of the last p steps and the next step x together.

        In the first p steps of a sequence, x has a Gaussian of its own and does not depend on the past.

        Args:
            output_parameters: the P parameters of the regression, ``(..., P)``.
            history: mean of the last p steps of D features, oldest first, ``(..., pD)``; NaN before the start of the
                sequence.
            spread: covariance of the last p steps, ``(..., pD, pD)``.

        Returns:
            The mean ``(..., pD + D)`` and the covariance ``(..., pD + D, pD + D)``, both float64.
        """
        history, spread = history.double(), spread.double()
        mean, cross, covariance = self._predicted(output_parameters, history, spread)
        lead = torch.broadcast_shapes(mean.shape[:-1], history.shape[:-1])
        spread = spread.expand(*lead, *spread.shape[-2:])
        top = torch.cat([spread, cross.mT.expand(*lead, *cross.mT.shape[-2:])], dim=-1)
        bottom = torch.cat([cross, covariance], dim=-1)
        joint = torch.cat([top, bottom.expand(*lead, *bottom.shape[-2:])], dim=-2)
        mean = torch.cat([history.expand(*lead, -1), mean.expand(*lead, -1)], dim=-1)
        return mean, 0.5 * (joint + joint.mT)

    def joint_mean(self, output_parameters: Tensor, history: Tensor) -> Tensor:
        """Return the mean of the last p steps and the next step x together, ``(..., pD + D)`` float64.

        Args:
            output_parameters: the P parameters of the regression, ``(..., P)``.
            history: mean of the last p steps of D features, oldest first, ``(..., pD)``; NaN before the start of the
                sequence.
        """
        history = history.double()
        nothing = history.new_zeros(history.shape[-1], history.shape[-1])
        return torch.cat([history, self._predicted(output_parameters, history, nothing)[0]], dim=-1)

    def _predicted(self, output_parameters: Tensor, history: Tensor, spread: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the mean of the next step x, its covariance with the last p steps, and its own covariance, float64.

        Args:
            output_parameters: the P parameters of each regression, ``(..., P)``.
            history: mean of the last p steps of D features, oldest first, ``(..., pD)``.
            spread: covariance of the last p steps, ``(..., pD, pD)``.

        Returns:
            Arrays ``(..., D)``, ``(..., D, pD)`` and ``(..., D, D)``.
        """
        size = history.shape[-1] // self.order
        matrix, intercept, noise, first_mean, first_noise = self.regression(output_parameters.double(), size)
        has_past = ~torch.isnan(history).any(-1, keepdim=True)  # (..., 1)
        predicted = intercept + torch.einsum("...ij,...j->...i", matrix, torch.where(has_past, history, 0.0))
        mean = torch.where(has_past, predicted, first_mean)
        cross = torch.where(has_past.unsqueeze(-1), matrix @ spread, 0.0)
        return mean, cross, cross @ matrix.mT + torch.where(has_past.unsqueeze(-1), noise, first_noise)

    def mean_parameters(self, table: Tensor, share: Tensor) -> Tensor:
        """Return the parameters ``(P,)`` of the weighted average of K regressions.

        Coefficients, means and covariance matrices are averaged, not the numbers that encode them.

        Args:
            table: the P parameters of each regression, ``(K, P)``.
            share: weight of each regression, ``(K,)``.
        """
        size = self._size(table.shape[-1])
        matrix, intercept, shape, first_mean, first_shape = self.unpack(table, size)

        def mean(values: Tensor) -> Tensor:
            return (share.unsqueeze(-1) * values.flatten(1)).sum(0).view(values.shape[1:])

        def mean_shape(shape: Tensor) -> Tensor:
            covariance = mean(self._covariance(shape, size))
            is_diagonal = self.shape_type == "diag"
            return covariance.diagonal().log() if is_diagonal else gaussian.shape_of_covariance(covariance)

        if len(table) == 1:
            return table[0]
        return self.pack(mean(matrix), mean(intercept), mean_shape(shape), mean(first_mean), mean_shape(first_shape))

    def _covariance(self, shape: Tensor, size: int) -> Tensor:
        if self.shape_type == "diag":
            return torch.diag_embed(gaussian.variances_of_shape(shape, self.min_covariance))
        return gaussian.covariance_of_shape(shape, size, self.min_covariance)

    def tempered(self, output_parameters: Tensor, temperature: float) -> Tensor:
        """Return the parameters of regressions with covariances multiplied by ``temperature``, ``(..., P)``.

        Variances do not fall below their floor ``min_covariance``, and a background stays as it is. The powers of t
        densities (``predictive="posterior"``) are t densities with other degrees of freedom.

        Args:
            output_parameters: the P parameters of each regression, ``(..., P)``.
            temperature: a number above 0.

        Raises:
            ValueError: if no degrees of freedom would be left of a t density.
        """
        size = self._size(output_parameters.shape[-1])
        coefficients, intercept, shape, first_mean, first_shape = self.unpack(output_parameters, size)
        first_shape = gaussian.scaled(first_shape, size, self.shape_type, temperature)
        if self.predictive != "posterior":
            shape = gaussian.scaled(shape, size, self.shape_type, temperature)
            return self.pack(coefficients, intercept, shape, first_mean, first_shape)
        n, degrees, root = self.posterior(output_parameters, size)
        together = 1 if self.shape_type == "diag" else size  # features of one t density
        degrees = (degrees + together) / temperature - together
        if not bool((degrees > 0).all()):
            raise ValueError(
                f"temperature {temperature:g} leaves a t density without degrees of freedom; pass a lower one"
            )
        plain = self.pack(coefficients, intercept, shape, first_mean, first_shape)
        return torch.cat([plain, torch.stack([n, degrees], -1), root.flatten(-2)], -1)

    def sample(self, output_parameters: Tensor, past: Tensor | None, generator: torch.Generator) -> Tensor:
        assert past is not None
        mean, shape, covariance_type, spread = self._conditional(output_parameters, past.shape[-1], past)
        floor = self.min_covariance
        noise = torch.randn(mean.shape, generator=generator, dtype=mean.dtype, device=mean.device)
        if spread is None:
            drawn = gaussian.draw(mean, shape, covariance_type, floor, noise)
        else:
            drawn = multivariate_t.draw(mean, shape, covariance_type, floor, spread, noise, generator)
        if self.background:
            jump = gaussian.draw(*self._jump(past), "diag", self.min_covariance, noise)
            uniform = torch.rand(mean.shape[:-1], generator=generator, dtype=torch.float64, device=mean.device)
            drawn = torch.where((uniform < self.background).unsqueeze(-1), jump, drawn)
        return drawn.to(output_parameters.dtype)

    def distribution(
        self, output_parameters: Tensor, *, log_weights: Tensor, past: Tensor | None, shift: Tensor, scale: Tensor
    ) -> Any:
        import pyro.distributions as dist

        mean, shape, covariance_type, spread = self._conditional(output_parameters, len(shift), past)  # (K, D), (K, S)
        if spread is not None and bool(spread.is_t.any()):
            return self._mixture_of_t(output_parameters, log_weights, past, shift, scale)
        if self.background:
            centre, log_variance = (each.to(mean).expand_as(mean) for each in self._jump(past))
            below = shape.shape[-1] - len(shift)  # numbers below the diagonal of the precision's factor, if it is full
            broad = log_variance if covariance_type == "diag" else pad(-0.5 * log_variance, (0, below))
            both = log_weights + math.log1p(-self.background), log_weights + math.log(self.background)
            # Both components of a row stand side by side, because rows may be moved by maps of their own.
            pairs = (mean, centre), (shape, broad.expand_as(shape)), both
            mean, shape, log_weights = (torch.stack(pair, 1).flatten(0, 1) for pair in pairs)  # (2 K, ...)
        loc = shift + scale * mean
        if covariance_type == "diag":
            deviation = scale * gaussian.variances_of_shape(shape, self.min_covariance).sqrt()
            return dist.MixtureSameFamily(
                dist.Categorical(logits=log_weights, validate_args=True),
                dist.Normal(loc, deviation, validate_args=True).to_event(1),
                validate_args=True,
            )
        factor = scale.unsqueeze(-1) * gaussian.covariance_cholesky(shape, len(shift), self.min_covariance)
        return dist.MixtureSameFamily(
            dist.Categorical(logits=log_weights, validate_args=True),
            dist.MultivariateNormal(loc, scale_tril=factor, validate_args=True),
            validate_args=True,
        )

    def _mixture_of_t(
        self, output_parameters: Tensor, log_weights: Tensor, past: Tensor | None, shift: Tensor, scale: Tensor
    ) -> Any:
        """Return ``distribution`` where densities are Student t, which Pyro does not mix with the background."""
        import pyro.distributions as dist

        from seqmodels.observations.pyro_mixtures import MixtureOfProducts

        mean, shape, covariance_type, spread = self._conditional(output_parameters, len(shift), past)
        assert spread is not None, "there are t densities"
        loc, wider = shift + scale * mean, torch.where(spread.is_t, spread.factor, 1.0).sqrt().to(mean)
        if covariance_type == "diag":
            factor = wider.unsqueeze(-1) * scale * gaussian.variances_of_shape(shape, self.min_covariance).sqrt()
        else:
            factor = gaussian.covariance_cholesky(shape, len(shift), self.min_covariance)
            factor = wider[..., None, None] * scale.unsqueeze(-1) * factor
        each: list[list[Any]] = []
        for of_row, is_t, df in zip(zip(loc, factor, strict=True), spread.is_t, spread.degrees.to(loc), strict=True):
            if covariance_type == "diag":
                each.append([(dist.StudentT(df, *of_row) if is_t else dist.Normal(*of_row)).to_event(1)])
            elif is_t:
                each.append([dist.MultivariateStudentT(df, *of_row)])
            else:
                each.append([dist.MultivariateNormal(of_row[0], scale_tril=of_row[1])])
        if not self.background:
            return MixtureOfProducts(log_weights, each)
        centre, log_variance = (part.to(mean).expand_as(mean) for part in self._jump(past))
        jumps = zip(shift + scale * centre, scale * (0.5 * log_variance).exp(), strict=True)
        each += [[dist.Normal(*of_row).to_event(1)] for of_row in jumps]
        w = self.background
        return MixtureOfProducts(torch.cat([log_weights + math.log1p(-w), log_weights + math.log(w)]), each)

    def marginals(
        self, output_parameters: Tensor, log_weights: Tensor, past: Tensor | None, size: int
    ) -> tuple[Tensor, Tensor, Tensor, Tensor] | None:
        """Return the next step's features as mixtures of Student t densities; None if all densities are Gaussian.

        Args:
            output_parameters: the P parameters of each of C regressions, ``(C, P)``.
            log_weights: log-weight of each regression, ``(C,)``.
            past: the last p steps before, ``(C, p, D)``.
            size: number of features D.

        Returns:
            Log-weights ``(C',)``, locations and scales ``(C', D)``, in encoded units, and degrees of freedom ``(C',)``,
                infinite for Gaussians. The components of a regression follow each other.
        """
        mean, shape, covariance_type, spread = self._conditional(output_parameters, size, past)
        if spread is None or not bool(spread.is_t.any()):
            return None
        if covariance_type == "diag":
            variance = gaussian.variances_of_shape(shape, self.min_covariance)
        else:
            covariance = gaussian.covariance_of_shape(shape, size, self.min_covariance)
            variance = covariance.diagonal(dim1=-2, dim2=-1)
        wider = torch.where(spread.is_t, spread.factor, 1.0).sqrt().unsqueeze(-1)
        degrees = torch.where(spread.is_t, spread.degrees, torch.inf)
        parts = [(log_weights + math.log1p(-self.background), mean, wider * variance.sqrt(), degrees)]
        if self.background:
            centre, log_variance = (part.to(mean).expand_as(mean) for part in self._jump(past))
            log_jump = log_weights + math.log(self.background)
            parts.append((log_jump, centre, (0.5 * log_variance).exp(), torch.full_like(degrees, torch.inf)))
        log_weights, loc, scale, degrees = (torch.stack(each, 1).flatten(0, 1) for each in zip(*parts, strict=True))
        return log_weights, loc, scale, degrees

    def is_valid(self, table: Tensor, size: int) -> Tensor:
        if self.predictive != "posterior":
            return super().is_valid(table, size)
        n, degrees, _ = self.posterior(table, size)
        return torch.cat([table.isfinite(), (n > 0).unsqueeze(-1), (degrees > 0).unsqueeze(-1)], -1)

    def with_floor(self, factor: float) -> AutoregressiveGaussian:
        return replace(self, min_covariance=factor * self.min_covariance)

    def on_floor(self, output_parameters: Tensor, size: int, factor: float) -> Tensor:
        matrix, intercept, shape, first_mean, first_shape = self.unpack(output_parameters, size)
        shape = gaussian.on_floor(shape, size, self.shape_type, self.min_covariance, factor)
        first_shape = gaussian.on_floor(first_shape, size, self.shape_type, self.min_covariance, factor)
        plain = self.pack(matrix, intercept, shape, first_mean, first_shape)
        return torch.cat([plain, output_parameters[..., plain.shape[-1] :]], -1)  # with the numbers of a posterior

    def floor_hits(self, output_parameters: Tensor, size: int) -> Tensor:
        _, _, shape, _, first_shape = self.unpack(output_parameters, size)
        hits = gaussian.at_floor(shape, size, self.shape_type, self.min_covariance)
        return hits | gaussian.at_floor(first_shape, size, self.shape_type, self.min_covariance)
