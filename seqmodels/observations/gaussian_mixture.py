"""Mixtures of Gaussians for vectors, ``p(x) = Σ_m w_m N(x; μ_m, Σ_m)``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from seqmodels.common.parameters import Configurable, Floor, PositiveInt, refuse_wrong_arguments
from seqmodels.observations import gaussian
from seqmodels.observations.base import (
    FullConditionals,
    LinearOutputs,
    LinearPrediction,
    Observation,
    full_conditionals_of_mixture,
)
from seqmodels.observations.gaussian import CovarianceType, ShapeType
from seqmodels.observations.interval_probabilities import log_gaussian_probability
from seqmodels.observations.special_functions import gaussian_cdf

SHAPE_TYPES: dict[str, ShapeType] = {
    "diag": "diag",
    "spherical": "diag",
    "full": "full",
    "tied": "full",
    "lowrank": "lowrank",
}
BACKGROUND_COVARIANCE = 10.0  # in variances of the training frames
LOG_UNIT = math.log(
    2 * math.pi * BACKGROUND_COVARIANCE
)  # of a feature of the background: -2 log of its largest density
EM_TYPES = ("diag", "spherical", "full", "tied")  # covariance types that EM can fit


@dataclass(eq=False, repr=False)
class PseudoFrames(Configurable):
    """A prior for EM: every component has also seen ``count`` frames with a given mean and covariance.

    With it, EM finds the maximum a posteriori. It is the conjugate prior of Gauvain and Lee (1994): a Dirichlet on the
    weights, ``w ∝ Σ γ + count`` (γ is the probability that a frame belongs to the component), and a normal-Wishart on
    means and covariances, ``mean = (Σ γ x + mean_count mean_0) / (Σ γ + mean_count)`` (``mean_count`` is their τ) and
    ``covariance = (Σ γ (x - mean)² + mean_count (mean_0 - mean)² + count covariance_0) / (Σ γ + count)`` (``count`` is
    their α - D). Diagonal covariances use the diagonal form. Under a ``"tied"`` covariance, the pseudo-frames of all
    components are pooled with the observed frames. Networks do not use the prior.

    Args:
        count: number of frames, 0 or more: one number, or an array ``(K, M)`` for the M components of K states.
        mean: mean of the frames in units of the standardised data, in which 0 is the mean of the training frames: a
            number, ``(D,)`` for D features, or ``(K, M, D)``.
        covariance: variances of the frames in units of the standardised data: a number, ``(D,)`` or ``(K, M, D)``; full
            covariances have zeros off the diagonal. ``"auto"`` is ``(K M)^(-2/D)``, which divides the training data
            into K M equal volumes (Fraley and Raftery 2007, *Bayesian regularization for normal mixture estimation*).
        mean_count: number of frames that the mean has seen, if it differs from ``count``; 0 leaves the mean to the
            data. None means ``count``.
    """

    count: Any = 1.0
    mean: Any = 0.0
    covariance: Any = 1.0
    mean_count: Any = None


@dataclass(eq=False, repr=False)
class GaussianMixture(Observation):
    """A mixture of Gaussians as the distribution of vectors, which models of vectors use by default.

    Args:
        n_components: number of Gaussians M.
        covariance_type: ``"diag"`` has a variance for each feature of each component; ``"spherical"`` has one variance
            for each component, in standardised units; ``"full"`` has a matrix for each component; ``"tied"`` has one
            full matrix for all components of all states (EM only); ``"lowrank"`` has a variance for each feature of
            each component and ``rank`` directions of common variation, ``diag(v) + W Wᵀ`` (networks only).
        min_covariance: lower bound of the variances in units of the standardised data, in which 1 is the variance of a
            feature over the training frames. Under ``full`` and ``tied`` it bounds the eigenvalues in EM and, in a
            network, the variance of each feature given the later ones; under ``lowrank`` it bounds v.
        prior: a conjugate prior for EM; None means no prior.
        rank: number of columns r of W under ``lowrank``, at most D.
        background: fixed weight w of one more component in every state, which is so broad that it bounds the cost of a
            frame far from the training data: ``(1 - w) Σ_m w_m N(x; μ_m, Σ_m) + w N(x; 0, 10 I)``, in units of the
            standardised data. It is not learned, and ``weights_``, ``means_`` and ``covariances_`` do not include it.
            Ordinary frames lose ``-log(1 - w)`` nats each. It cannot be used with ``"tied"``. Compare Banfield and
            Raftery (1993), *Model-based Gaussian and non-Gaussian clustering*, where noise is a component of its own.

    The output parameters of a state are M log-weights, M means and the numbers that describe its covariances, such as
    log-variances (``seqmodels.observations.gaussian`` says which); under ``spherical`` these are M numbers, and under
    ``tied`` they describe one matrix, repeated in the row of every state. Missing values are marginalised out exactly
    under every type. References: Bishop (1994), *Mixture density networks*; Williams (1996) for the Cholesky factor of
    the precision; Ghahramani and Hinton (1996), *The EM algorithm for mixtures of factor analyzers*.
    """

    _bounded_by_data: ClassVar[Mapping[str, str]] = {"n_components": "steps"}

    n_components: PositiveInt = 4
    covariance_type: CovarianceType = "diag"
    min_covariance: Floor = 1e-4
    prior: PseudoFrames | None = None
    rank: PositiveInt = 1
    background: float = 0.0
    emits = "vectors"

    def check(self, size: int) -> None:
        refuse_wrong_arguments(self)
        if not 0 <= self.background < 1:
            raise ValueError(f"background is {self.background}; pass a weight of 0 or more, and below 1")
        if self.background and self.covariance_type == "tied":
            raise ValueError(
                "covariance_type='tied' is one covariance for all components, and a background has another; pass "
                "background=0, or another covariance_type"
            )
        if self.covariance_type == "lowrank" and self.rank > size:
            raise ValueError(f"rank is {self.rank}; pass at least 1, and at most {size}, the number of features")

    @property
    def sums_out_missing(self) -> bool:
        return True

    @property
    def n_densities(self) -> int:
        """The number of Gaussians in the mixture, including the fixed broad one that ``background`` adds."""
        return self.n_components + (self.background > 0)

    @property
    def shape_type(self) -> ShapeType:
        """The form of the numbers that describe a covariance in ``unpack``: ``"diag"``, ``"full"`` or ``"lowrank"``.

        They are log-variances, the Cholesky factor of the precision, or log-variances and loadings.

        Raises:
            ValueError: if ``covariance_type`` is unknown.
        """
        if self.covariance_type not in SHAPE_TYPES:
            raise ValueError(
                f"covariance_type is {self.covariance_type!r}; pass one of {', '.join(map(repr, SHAPE_TYPES))}"
            )
        return SHAPE_TYPES[self.covariance_type]

    def locations(self, size: int) -> list[slice]:
        m = self.n_components
        return [slice(m, m * (1 + size))]

    def location_units(self, scale: Tensor) -> Tensor:
        return scale.repeat(self.n_components)

    def location_labels(self, names: Sequence[Any]) -> list[Any]:
        if self.n_components == 1:
            return list(names)
        return [(m, name) for m in range(self.n_components) for name in names]

    def is_valid(self, table: Tensor, size: int) -> Tensor:
        m = self.n_components
        # A log-weight of -inf is a true zero, but not all may be.
        weights = table[:, :m].logsumexp(-1, keepdim=True).isfinite() & ~table[:, :m].isnan()
        return torch.cat([weights, table[:, m:].isfinite()], -1)

    def n_output_parameters(self, size: int) -> int:
        return self.n_components * (1 + size) + self._n_shape_parameters(size)

    def _n_shape_parameters(self, size: int) -> int:
        each = gaussian.n_shape_parameters(self.shape_type, size, self.rank)
        return {"spherical": self.n_components, "tied": each}.get(self.covariance_type, self.n_components * each)

    def unpack(self, output_parameters: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor]:
        """Split the parameters of a mixture into weights, means and covariances of its M Gaussians.

        Args:
            output_parameters: the P parameters of each mixture, ``(..., P)``.
            size: number of features D.

        Returns:
            Normalised log-weights ``(..., M)``; means ``(..., M, D)``; and the S numbers ``(..., M, S)`` that describe
                each covariance in the form ``shape_type``: log-variances for ``"diag"``, for example.
        """
        m = self.n_components
        logits, means, numbers = output_parameters.split([m, m * size, self._n_shape_parameters(size)], dim=-1)
        return torch.log_softmax(logits, dim=-1), means.unflatten(-1, (m, size)), self._shapes(numbers, size)

    def _shapes(self, numbers: Tensor, size: int) -> Tensor:
        if self.covariance_type == "spherical":
            return numbers.unsqueeze(-1).expand(*numbers.shape, size)
        if self.covariance_type == "tied":
            return numbers.unsqueeze(-2).expand(*numbers.shape[:-1], self.n_components, -1)
        shapes: Tensor = numbers.unflatten(-1, (self.n_components, -1))
        return shapes

    def unpack_all(self, output_parameters: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor]:
        """Split the parameters of a mixture into weights, means and covariances of all Gaussians and the background.

        The background, a fixed broad Gaussian, comes last if there is one; M below is then one more than
        ``n_components``.

        Args:
            output_parameters: the P parameters of each mixture, ``(..., P)``.
            size: number of features D.

        Returns:
            Normalised log-weights ``(..., M)``; means ``(..., M, D)``; and the S numbers ``(..., M, S)`` that describe
                each covariance in the form ``shape_type``.
        """
        log_weights, means, shapes = self.unpack(output_parameters, size)
        if not self.background:
            return log_weights, means, shapes
        # Log-variances, or the log-diagonal of the precision's factor, come first; what follows is 0.
        variance = math.log(BACKGROUND_COVARIANCE) * (-0.5 if self.shape_type == "full" else 1.0)
        shapes = pad(shapes, (0, 0, 0, 1), value=variance)
        if shapes.shape[-1] > size:
            shapes[..., -1, size:] = 0.0
        log_weights = pad(log_weights + math.log1p(-self.background), (0, 1), value=math.log(self.background))
        return log_weights, pad(means, (0, 0, 0, 1)), shapes

    def pack(self, log_weights: Tensor, means: Tensor, shapes: Tensor) -> Tensor:
        """Join the weights, means and covariances of M Gaussians into the P parameters of a mixture, ``(..., P)``.

        It is the inverse of ``unpack``. A variance that all features share (``"spherical"``) is taken from the first
        feature, and a covariance that all components share (``"tied"``) from the first component.

        Args:
            log_weights: log-weights, ``(..., M)``.
            means: means of D features, ``(..., M, D)``.
            shapes: the S numbers that describe each covariance in the form ``shape_type``, ``(..., M, S)``.
        """
        if self.covariance_type == "spherical":
            numbers = shapes[..., 0]
        elif self.covariance_type == "tied":
            numbers = shapes[..., 0, :]
        else:
            numbers = shapes.flatten(-2)
        return torch.cat([log_weights, means.flatten(-2), numbers], dim=-1)

    def log_prob(self, output_parameters: Tensor, x: Tensor, past: Tensor | None = None) -> Tensor:
        log_weights, means, shapes = self.unpack(output_parameters, x.shape[-1])
        density = gaussian.log_density(x.unsqueeze(-2), means, shapes, self.shape_type, self.min_covariance)
        log_prob = torch.logsumexp(log_weights + density, dim=-1)
        if not self.background:
            return log_prob
        # By itself, because the components are matrices where they are full.
        terms = -0.5 * (x.square() / BACKGROUND_COVARIANCE + LOG_UNIT)
        broad = torch.where(torch.isnan(x), 0.0, terms).sum(-1)
        return torch.logaddexp(log_prob + math.log1p(-self.background), broad + math.log(self.background))

    def step_log_prob(self, output_parameters: np.ndarray, x: np.ndarray) -> float:
        m, size = self.n_components, len(x)
        if self.covariance_type in ("diag", "full") and type(self) is GaussianMixture:
            logits, means, shapes = (
                output_parameters[:m],
                output_parameters[m : m + m * size],
                output_parameters[m + m * size :],
            )
            density = gaussian.array_log_density(
                x.astype(means.dtype),
                means.reshape(m, size),
                shapes.reshape(m, -1),
                self.shape_type,
                self.min_covariance,
            )
            nats = _log_sum_exp(logits + density) - _log_sum_exp(logits)
            if self.background:
                broad = math.log(self.background) - 0.5 * (float(x @ x) / BACKGROUND_COVARIANCE + size * LOG_UNIT)
                nats += math.log1p(-self.background)
                nats = max(nats, broad) + math.log1p(math.exp(-abs(nats - broad)))
            if math.isfinite(nats):
                return nats
        return super().step_log_prob(output_parameters, x)  # which sums out missing values

    def full_conditionals(self, output_parameters: Tensor, x: Tensor, past: Tensor | None = None) -> FullConditionals:
        log_weights, means, shapes = self.unpack_all(output_parameters, x.shape[-1])
        x = x.unsqueeze(-2)
        components = gaussian.full_conditionals(x, means, shapes, self.shape_type, self.min_covariance)
        return full_conditionals_of_mixture(log_weights, components)

    @property
    def has_interval_probabilities(self) -> bool:
        return self.covariance_type in ("diag", "spherical")

    def interval_log_prob(self, output_parameters: Tensor, low: Tensor, high: Tensor) -> Tensor:
        return torch.logsumexp(self.interval_components(output_parameters, low, high), -1)

    def interval_components(self, output_parameters: Tensor, low: Tensor, high: Tensor) -> Tensor:
        """Return ``log w_m p_m(low <= x < high)`` of each Gaussian m with weight w_m in nats, ``(..., M)`` float64.

        Args:
            output_parameters: the P parameters of each mixture, ``(..., P)``.
            low, high: ends of the interval of each of D features in encoded units, each ``(..., D)``; NaN in both means
                that the feature is missing.

        Raises:
            ValueError: if the covariances are neither diagonal nor spherical.
        """
        if not self.has_interval_probabilities:
            raise ValueError(f"{self!r} does not know the probability of an interval; use covariance_type='diag'")
        log_weights, means, shapes = self.unpack_all(output_parameters.double(), low.shape[-1])
        log_deviations = 0.5 * shapes.clamp(math.log(self.min_covariance), gaussian.LARGEST_LOG_VARIANCE)
        each = log_gaussian_probability(low.unsqueeze(-2), high.unsqueeze(-2), means, log_deviations)
        return log_weights + each.sum(-1)

    @property
    def has_marginal_cdfs(self) -> bool:
        return True

    def marginal_cdfs(self, output_parameters: Tensor, x: Tensor, past: Tensor | None = None) -> Tensor:
        log_weights, means, variances = self.diagonals(output_parameters, x.shape[-1])
        each = gaussian_cdf((x.double().cpu().unsqueeze(-2) - means) / variances.sqrt())
        return (log_weights.exp().unsqueeze(-1) * each).sum(-2)

    def marginal_log_probs(self, output_parameters: Tensor, x: Tensor) -> Tensor:
        log_weights, means, variances = self.diagonals(output_parameters, x.shape[-1])
        squares = (x.double().cpu().unsqueeze(-2) - means).square() / variances
        each = -0.5 * (squares + variances.log() + math.log(2 * math.pi))
        return torch.logsumexp(log_weights.unsqueeze(-1) + each, -2)

    def marginal_means(self, output_parameters: Tensor) -> Tensor:
        size = self._size(output_parameters.shape[-1])
        log_weights, means, _ = self.diagonals(output_parameters, size)
        return (log_weights.exp().unsqueeze(-1) * means).sum(-2)

    def diagonals(self, output_parameters: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return the log-weight, the mean and the variances of each Gaussian of a mixture, float64 on the CPU.

        A background, a fixed broad Gaussian, counts as one more component.

        Args:
            output_parameters: the P parameters of each mixture, ``(..., P)``.
            size: number of features D.

        Returns:
            Log-weights ``(..., M)``, means ``(..., M, D)`` and variances ``(..., M, D)``.
        """
        log_weights, means, shapes = self.unpack_all(output_parameters.double().cpu(), size)
        if self.shape_type == "diag":
            return log_weights, means, gaussian.variances_of_shape(shapes, self.min_covariance)
        if self.shape_type == "lowrank":
            log_variance, w = gaussian.unpack_lowrank(shapes, size, self.min_covariance)
            return log_weights, means, log_variance.exp() + w.square().sum(-1)
        factor = gaussian.covariance_cholesky(shapes, size, self.min_covariance)
        return log_weights, means, factor.square().sum(-1)

    def tempered(self, output_parameters: Tensor, temperature: float) -> Tensor:
        """Return the parameters of mixtures, ``(..., P)``, made sharper (temperature below 1) or flatter (above 1).

        Weights are raised to the power ``1/temperature``, and covariances multiplied by ``temperature``. Covariances do
        not fall below the floor, and a background stays as it is.

        Args:
            output_parameters: the P parameters of each mixture, ``(..., P)``.
            temperature: a number above 0.
        """
        size = self._size(output_parameters.shape[-1])
        log_weights, means, shapes = self.unpack(output_parameters, size)
        return self.pack(log_weights / temperature, means, gaussian.scaled(shapes, size, self.shape_type, temperature))

    def sample(self, output_parameters: Tensor, past: Tensor | None, generator: torch.Generator) -> Tensor:
        size = self._size(output_parameters.shape[-1])
        log_weights, means, shapes = self.unpack_all(output_parameters, size)
        chosen = torch.multinomial(log_weights.exp(), 1, generator=generator)  # (n, 1)
        rows = torch.arange(len(output_parameters), device=output_parameters.device).unsqueeze(-1)
        mean, shape = means[rows, chosen].squeeze(1), shapes[rows, chosen].squeeze(1)
        width = gaussian.n_noise(self.shape_type, size, self.rank)
        noise = torch.randn(len(mean), width, generator=generator, dtype=mean.dtype, device=mean.device)
        return gaussian.draw(mean, shape, self.shape_type, self.min_covariance, noise)

    def distribution(
        self, output_parameters: Tensor, *, log_weights: Tensor, past: Tensor | None, shift: Tensor, scale: Tensor
    ) -> Any:
        import pyro.distributions as dist

        log_inner, means, shapes = self.unpack_all(output_parameters, len(shift))
        logits = (log_weights.unsqueeze(-1) + log_inner).flatten()  # (K * M,)
        loc = shift + scale * means.flatten(0, 1)
        if self.shape_type == "diag":
            deviation = scale * gaussian.variances_of_shape(shapes, self.min_covariance).sqrt().flatten(0, 1)
            return dist.MixtureSameFamily(
                dist.Categorical(logits=logits, validate_args=True),
                dist.Normal(loc, deviation, validate_args=True).to_event(1),
                validate_args=True,
            )
        if self.shape_type == "lowrank":
            # In float64: torch's density is a difference of squares.
            log_variance, w = gaussian.unpack_lowrank(shapes.flatten(0, 1).double(), len(shift), self.min_covariance)
            variance = scale.square() * log_variance.exp()
            wide = dist.LowRankMultivariateNormal(loc.double(), scale.unsqueeze(-1) * w, variance, validate_args=True)
            return dist.MixtureSameFamily(dist.Categorical(logits=logits, validate_args=True), wide, validate_args=True)
        factor = gaussian.covariance_cholesky(shapes, len(shift), self.min_covariance).flatten(0, 1)
        normal = dist.MultivariateNormal(loc, scale_tril=scale.unsqueeze(-1) * factor, validate_args=True)
        return dist.MixtureSameFamily(dist.Categorical(logits=logits, validate_args=True), normal, validate_args=True)

    def starting_point(self, size: int, generator: torch.Generator) -> Tensor:
        if self.covariance_type == "tied":
            raise ValueError(
                'covariance_type="tied" shares one matrix over the states of an HMM, and a network has no states; '
                'use "full", "lowrank", "diag" or "spherical"'
            )
        means = 0.5 * torch.randn(self.n_components, size, generator=generator)
        shapes = torch.zeros(self.n_components, gaussian.n_shape_parameters(self.shape_type, size, self.rank))
        if self.shape_type == "lowrank":  # at W = 0 its gradient is zero
            shapes[:, size:] = 0.1 * torch.randn(self.n_components, size * self.rank, generator=generator)
        return self.pack(torch.zeros(self.n_components), means, shapes)

    @property
    def starts_linear(self) -> bool:
        return True

    def starting_linear(self, start: Tensor, linear: LinearPrediction) -> LinearOutputs:
        """Return the parameters of a mixture around a linear prediction, as a linear function of the last step.

        The covariance of each component is twice that of the one before, and their geometric mean is the covariance of
        the prediction's errors. The means differ from the prediction by a tenth of the means in ``start``, in standard
        deviations of the errors.

        Args:
            start: the P parameters of a mixture, whose means and weights are used, ``(P,)``.
            linear: a linear prediction of each vector from the one before.
        """
        size, m = len(linear.intercept), self.n_components
        log_weights, apart, shapes = self.unpack(start.double(), size)
        factors = 2.0 ** (torch.arange(m, dtype=torch.float64) - (m - 1) / 2)

        def shapes_around(covariance: Tensor) -> Tensor:
            each = factors[:, None, None] * covariance  # (M, D, D)
            if self.shape_type == "full":
                return gaussian.shape_of_covariance(each)
            variances = each.diagonal(dim1=-2, dim2=-1)
            if self.covariance_type == "spherical":
                variances = variances.mean(-1, keepdim=True).expand_as(variances)
            directions = shapes[:, size:].unflatten(-1, (size, -1)) * variances.sqrt().unsqueeze(-1)
            return torch.cat([variances.log(), directions.flatten(-2)], -1)

        spread = 0.1 * apart @ torch.linalg.cholesky(linear.covariance).T
        around = shapes_around(linear.covariance)
        bias = self.pack(log_weights, linear.intercept + spread, around)
        skip = torch.zeros(len(bias), size)
        skip[m : m + m * size] = linear.coefficients.float().repeat(m, 1)  # rows of the means, as ``pack`` lays them
        first = self.pack(
            0 * log_weights,
            (linear.first_mean - linear.intercept).expand(m, size),
            shapes_around(linear.first_covariance) - around,
        )
        return LinearOutputs(bias.float(), skip, first.float())

    def with_floor(self, factor: float) -> GaussianMixture:
        return replace(self, min_covariance=factor * self.min_covariance)

    def on_floor(self, output_parameters: Tensor, size: int, factor: float) -> Tensor:
        m = self.n_components
        logits, means, _ = output_parameters.split([m, m * size, self._n_shape_parameters(size)], dim=-1)
        shapes = self.unpack(output_parameters, size)[2]
        moved = gaussian.on_floor(shapes, size, self.shape_type, self.min_covariance, factor)
        return self.pack(logits, means.unflatten(-1, (m, size)), moved)

    def floor_hits(self, output_parameters: Tensor, size: int) -> Tensor:
        shapes = self.unpack(output_parameters, size)[2]
        return gaussian.at_floor(shapes, size, self.shape_type, self.min_covariance).any(-1)

    def _size(self, n_output_parameters: int) -> int:
        return next(d for d in range(1, n_output_parameters) if self.n_output_parameters(d) == n_output_parameters)


def _log_sum_exp(x: np.ndarray) -> float:
    largest = np.maximum.reduce(x)
    return float(largest) + math.log(np.add.reduce(np.exp(x - largest)))
