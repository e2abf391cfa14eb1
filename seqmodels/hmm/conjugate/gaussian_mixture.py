"""Conjugate families of Gaussian mixtures: normal-Gamma or normal-Wishart components and Dirichlet weights.

The equations are in Bishop (2006), section 10.2.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from seqmodels.common.constants import LOG_2PI
from seqmodels.hmm.conjugate.distributions import (
    dirichlet_divergence,
    dirichlet_log_density,
    draw_dirichlet,
    draw_gamma,
    draw_wishart,
    expected_log,
    expected_log_det,
    gamma_divergence,
    log_gamma_log_density,
    wishart_divergence,
    wishart_log_density,
)
from seqmodels.hmm.conjugate.family import ConjugateFamily, conjugate_of, refuse_other_prior
from seqmodels.hmm.conjugate.prior import ConjugatePrior
from seqmodels.hmm.emissions import Statistics, emission_of, quadratic
from seqmodels.observations import GaussianMixture, gaussian

NO_FLOOR = 1e-280  # variance floor; none is needed, because the prior bounds variances


@conjugate_of.register(GaussianMixture)
def _(observation: GaussianMixture, size: int) -> ConjugateFamily:
    refuse_other_prior("prior", observation.prior, None)
    refuse_other_prior("background", observation.background, 0.0)
    families = {"diag": DiagonalMixtureFamily, "full": FullMixtureFamily}
    if observation.covariance_type not in families:
        raise ValueError(
            f"covariance_type={observation.covariance_type!r} has no conjugate prior here; use 'diag' or 'full'"
        )
    return families[observation.covariance_type](observation, size)


class GaussianMixtureFamily(ConjugateFamily):
    """Base class of conjugate priors of mixtures of M Gaussians in each of K states.

    The hyperparameters, ``(K, M H)``, are for each component the Dirichlet concentration of its weight and then the H -
    1 hyperparameters of its Gaussian.

    Args:
        observation: the mixture.
        size: number of features D.
    """

    def __init__(self, observation: GaussianMixture, size: int) -> None:
        self.observation: GaussianMixture = observation.clone().set_params(min_covariance=NO_FLOOR)
        super().__init__(emission_of(self.observation, size))

    def _split(self, hyper: Tensor) -> tuple[Tensor, Tensor]:
        """Return concentrations of the weights ``(K, M)`` and hyperparameters of the Gaussians ``(K, M, H - 1)``."""
        by_component = hyper.unflatten(1, (self.observation.n_components, -1))
        return by_component[..., 0], by_component[..., 1:]

    def _joined(self, weights: Tensor, *of_gaussians: Tensor) -> Tensor:
        return torch.cat([weights.unsqueeze(-1), *of_gaussians], -1).flatten(1)

    def _of_prior(self, prior: ConjugatePrior, n_states: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Return the hyperparameters of a user's prior for each of M components in each of K states.

        Returns:
            Concentrations of the weights, ``(K, M)``; numbers of observations that variances and means count as, both
            ``(K, M, 1)``; means and variances, both ``(K, M, D)``.
        """
        m, shape = self.observation.n_components, (n_states, self.size)
        weights = prior.concentrations("weights", (n_states, m), 1 / m)
        variance = (n_states * m) ** (-2 / self.size)
        tables = [
            prior.numbers("count", 1.0, (n_states, 1)),
            prior.numbers("mean_count", 1.0, (n_states, 1)),
            prior.numbers("mean", 0.0, shape, least=-torch.inf),
            prior.numbers("covariance", variance, shape),
        ]
        counts, mean_counts, means, variances = (t.unsqueeze(1).expand(-1, m, -1) for t in tables)
        return weights, counts, mean_counts, means, variances

    def _table(self, log_weights: Tensor, means: Tensor, shapes: Tensor) -> Tensor:
        return self.observation.pack(log_weights, means, shapes)


class DiagonalMixtureFamily(GaussianMixtureFamily):
    """The conjugate family of diagonal Gaussian mixtures: normal-Gamma distributions of each feature of a component.

    The hyperparameters of a feature are the expected mean, the number of observations that this mean counts as, and the
    shape and rate of the Gamma distribution of the precision (inverse variance).
    """

    @property
    def takes_missing(self) -> bool:
        """True if frames may have missing values (NaN), which is so if the mixture has one component.

        The E-step of variational Bayes adds an offset to log-densities. With one component it is a sum over the
        observed features. With several components it is part of each component's weight, which must not depend on the
        frame.
        """
        return self.observation.n_components == 1

    @property
    def offset_features(self) -> list[int]:
        return list(range(self.size)) if self.takes_missing else [-1]

    def _gaussians(self, hyper: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return means, counts of the means, and shapes and rates of the precisions, each ``(K, M, D)``."""
        mean, count, shape, rate = self._split(hyper)[1].split(self.size, -1)
        return mean, count, shape, rate

    def prior(self, prior: ConjugatePrior, n_states: int) -> Tensor:
        weights, counts, mean_counts, means, variances = self._of_prior(prior, n_states)
        shape = (0.5 * counts).expand_as(means)
        return self._joined(weights, means, mean_counts.expand_as(means), shape, shape * variances)

    def updated(self, prior: Tensor, statistics: Statistics) -> Tensor:
        mean0, count0, shape0, rate0 = self._gaussians(prior)
        first, second, observed, frames = statistics[0].split([self.size, self.size, self.size, 1], -1)
        count = count0 + observed
        mean = (count0 * mean0 + first) / count
        # Squares about the posterior mean, second + count0 mean0² - count mean², without a difference of large sums.
        average = first / observed.clamp(min=1e-300)
        within = (second - observed * average.square()).clamp(min=0.0)
        between = count0 * observed / count * (average - mean0).square()
        rate = rate0 + 0.5 * torch.where(observed > 0, within + between, 0.0)
        weights = self._split(prior)[0] + frames.squeeze(-1)
        return self._joined(weights, mean, count, shape0 + 0.5 * observed, rate)

    def expected(self, hyper: Tensor) -> tuple[Tensor, Tensor]:
        mean, count, shape, rate = self._gaussians(hyper)
        offsets = 0.5 * (torch.digamma(shape) - shape.log()) - 0.5 / count
        log_weights = expected_log(self._split(hyper)[0])
        if self.observation.n_components == 1:
            return self._table(log_weights, mean, (rate / shape).log()), offsets.squeeze(1)
        log_weights = log_weights + offsets.sum(-1)
        return self._table(log_weights, mean, (rate / shape).log()), log_weights.logsumexp(-1, keepdim=True)

    def divergence(self, hyper: Tensor, prior: Tensor) -> Tensor:
        mean, count, shape, rate = self._gaussians(hyper)
        mean0, count0, shape0, rate0 = self._gaussians(prior)
        ratio = count0 / count
        of_means = 0.5 * (ratio - 1 - ratio.log() + count0 * shape / rate * (mean - mean0).square())
        of_gaussians = (gamma_divergence(shape, rate, shape0, rate0) + of_means).sum((1, 2))
        return of_gaussians + dirichlet_divergence(self._split(hyper)[0], self._split(prior)[0])

    def mean(self, hyper: Tensor) -> Tensor:
        mean, _, shape, rate = self._gaussians(hyper)
        weights = self._split(hyper)[0]
        return self._table((weights / weights.sum(-1, keepdim=True)).log(), mean, (rate / shape).log())

    def draw(self, hyper: Tensor, generator: torch.Generator) -> Tensor:
        mean, count, shape, rate = self._gaussians(hyper)
        weights = draw_dirichlet(self._split(hyper)[0], generator)
        variance = rate / draw_gamma(shape, generator)
        noise = torch.randn(mean.shape, generator=generator, dtype=mean.dtype)
        return self._table(weights.log(), mean + noise * (variance / count).sqrt(), variance.log())

    def log_density(self, table: Tensor, hyper: Tensor) -> Tensor:
        log_weights, means, log_variances = self.observation.unpack(table, self.size)
        mean, count, shape, rate = self._gaussians(hyper)
        of_means = _normal_log_density(means, mean, count.log() - log_variances)
        of_gaussians = (of_means + log_gamma_log_density(-log_variances, shape, rate)).sum((1, 2))
        return of_gaussians + dirichlet_log_density(log_weights, self._split(hyper)[0])

    def raw(self, hyper: Tensor, shift: np.ndarray, scale: np.ndarray) -> Mapping[str, np.ndarray]:
        mean, count, shape, rate = (t.numpy() for t in self._gaussians(hyper))
        return {
            "weights": self._split(hyper)[0].numpy(),
            "mean": mean * scale + shift,
            "mean_count": count,
            "precision_shape": shape,
            "precision_rate": rate * scale**2,
        }


class FullMixtureFamily(GaussianMixtureFamily):
    """The conjugate family of full-covariance Gaussian mixtures: a normal-Wishart distribution of each component.

    The hyperparameters of a component are the expected mean, the number of observations that this mean counts as, and
    the degrees of freedom and inverse scale matrix of the precision (inverse covariance). Missing values are latent
    variables, distributed given the observed features of the frame.
    """

    @property
    def offset_features(self) -> list[int]:
        return [-1]

    def _gaussians(self, hyper: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the hyperparameters of the Gaussians, the last axis of ``hyper`` split.

        They are means, ``(K, M, D)``, mean counts and degrees of freedom, ``(K, M)``, and inverse scales,
        ``(K, M, D, D)``.
        """
        d = self.size
        mean, count, freedom, scatter = self._split(hyper)[1].split([d, 1, 1, d * d], -1)
        return mean, count.squeeze(-1), freedom.squeeze(-1), scatter.unflatten(-1, (d, d))

    def _hyper(self, weights: Tensor, mean: Tensor, count: Tensor, freedom: Tensor, scatter: Tensor) -> Tensor:
        return self._joined(weights, mean, count.unsqueeze(-1), freedom.unsqueeze(-1), scatter.flatten(-2))

    def prior(self, prior: ConjugatePrior, n_states: int) -> Tensor:
        weights, counts, mean_counts, means, variances = self._of_prior(prior, n_states)
        freedom = counts + self.size - 1
        scatter = torch.diag_embed(freedom * variances)
        return self._hyper(weights, means, mean_counts.squeeze(-1), freedom.squeeze(-1), scatter)

    def updated(self, prior: Tensor, statistics: Statistics) -> Tensor:
        mean0, count0, freedom0, scatter0 = self._gaussians(prior)
        products, first, frames = quadratic.moments(statistics[0], self.size)
        count = count0 + frames
        mean = (count0.unsqueeze(-1) * mean0 + first) / count.unsqueeze(-1)
        average = first / frames.clamp(min=1e-300).unsqueeze(-1)
        within = products - frames[..., None, None] * _outer(average)
        between = (count0 * frames / count)[..., None, None] * _outer(average - mean0)
        scatter = scatter0 + torch.where(frames[..., None, None] > 0, within + between, 0.0)
        weights = self._split(prior)[0] + frames
        return self._hyper(weights, mean, count, freedom0 + frames, 0.5 * (scatter + scatter.mT))

    def expected(self, hyper: Tensor) -> tuple[Tensor, Tensor]:
        mean, count, freedom, scatter = self._gaussians(hyper)
        log_det = torch.logdet(scatter) - self.size * freedom.log()  # log|inverse of the mean precision|
        offsets = 0.5 * (expected_log_det(freedom, scatter) + log_det) - 0.5 * self.size / count
        log_weights = expected_log(self._split(hyper)[0]) + offsets
        return self._table(log_weights, mean, self._shapes(hyper)), log_weights.logsumexp(-1, keepdim=True)

    def _shapes(self, hyper: Tensor) -> Tensor:
        """Return the covariance parameters of the components: their covariance is the inverse of the mean precision."""
        _, _, freedom, scatter = self._gaussians(hyper)
        return gaussian.shape_of_covariance(scatter / freedom[..., None, None])

    def divergence(self, hyper: Tensor, prior: Tensor) -> Tensor:
        mean, count, freedom, scatter = self._gaussians(hyper)
        mean0, count0, freedom0, scatter0 = self._gaussians(prior)
        ratio, deviation = count0 / count, (mean - mean0).unsqueeze(-1)
        distance = (deviation.mT @ torch.linalg.solve(scatter, deviation)).squeeze((-1, -2))
        of_means = 0.5 * (self.size * (ratio - 1 - ratio.log()) + count0 * freedom * distance)
        of_gaussians: Tensor = (wishart_divergence(freedom, scatter, freedom0, scatter0) + of_means).sum(1)
        return of_gaussians + dirichlet_divergence(self._split(hyper)[0], self._split(prior)[0])

    def mean(self, hyper: Tensor) -> Tensor:
        weights = self._split(hyper)[0]
        return self._table(
            (weights / weights.sum(-1, keepdim=True)).log(), self._gaussians(hyper)[0], self._shapes(hyper)
        )

    def draw(self, hyper: Tensor, generator: torch.Generator) -> Tensor:
        mean, count, freedom, scatter = self._gaussians(hyper)
        weights = draw_dirichlet(self._split(hyper)[0], generator)
        covariance = torch.linalg.inv(draw_wishart(freedom, scatter, generator))
        noise = torch.randn(mean.shape, generator=generator, dtype=mean.dtype).unsqueeze(-1)
        deviation = (torch.linalg.cholesky(covariance) @ noise).squeeze(-1) / count.sqrt().unsqueeze(-1)
        return self._table(weights.log(), mean + deviation, gaussian.shape_of_covariance(covariance))

    def log_density(self, table: Tensor, hyper: Tensor) -> Tensor:
        log_weights, means, shapes = self.observation.unpack(table, self.size)
        mean, count, freedom, scatter = self._gaussians(hyper)
        factor = gaussian.precision_cholesky(shapes, self.size, NO_FLOOR)
        whitened = (factor.mT @ (means - mean).unsqueeze(-1)).squeeze(-1) * count.sqrt().unsqueeze(-1)
        log_det = factor.diagonal(dim1=-2, dim2=-1).log().sum(-1) + 0.5 * self.size * count.log()
        of_means = log_det - 0.5 * whitened.square().sum(-1) - 0.5 * self.size * LOG_2PI
        of_gaussians = (of_means + wishart_log_density(factor, freedom, scatter)).sum(1)
        return of_gaussians + dirichlet_log_density(log_weights, self._split(hyper)[0])

    def raw(self, hyper: Tensor, shift: np.ndarray, scale: np.ndarray) -> Mapping[str, np.ndarray]:
        mean, count, freedom, scatter = (t.numpy() for t in self._gaussians(hyper))
        return {
            "weights": self._split(hyper)[0].numpy(),
            "mean": mean * scale + shift,
            "mean_count": count,
            "degrees_of_freedom": freedom,
            "inverse_scale": scatter * np.outer(scale, scale),
        }


def _normal_log_density(x: Tensor, mean: Tensor, log_precision: Tensor) -> Tensor:
    return 0.5 * (log_precision - LOG_2PI - log_precision.exp() * (x - mean).square())


def _outer(vectors: Tensor) -> Tensor:
    return vectors.unsqueeze(-1) * vectors.unsqueeze(-2)
