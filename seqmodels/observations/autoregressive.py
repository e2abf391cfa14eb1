"""Vectors given the last p: ``x_t = A_1 x_{t-1} + ... + A_p x_{t-p} + c + e_t``, ``e_t ~ N(0, Σ)``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from seqmodels.observations import gaussian
from seqmodels.observations.base import FullConditionals, Observation


@dataclass(eq=False, repr=False)
class AutoregressiveGaussian(Observation):
    """A linear-Gaussian regression on the last ``order`` vectors; under an HMM of one state it is a VAR.

    The first ``order`` steps of a sequence, whose past is incomplete, have a Gaussian of their own.

    Args:
        order: p, how many past steps enter.
        covariance_type: of the innovations and of the first steps: ``"full"`` or ``"diag"``.
        min_covariance: floor of the innovations' variances (eigenvalues under ``full`` in EM), in standardised units.
        ridge: strength of a Gaussian prior on the coefficients in an M-step (``ridge`` pseudo-frames of unit variance).

    The output parameters of a state are the coefficients (D, pD), the intercept (D), the innovations' shape, and mean
    and shape of the first steps. Reference: Hamilton (1990), *Analysis of time series subject to changes in regime*.
    """

    order: int = 1
    covariance_type: Literal["diag", "full"] = "full"
    min_covariance: float = 1e-6
    ridge: float = 1e-3
    emits = "vectors"

    def check(self, size: int) -> None:
        if self.covariance_type not in ("diag", "full"):
            raise ValueError(f"covariance_type is {self.covariance_type!r}; pass 'diag' or 'full'")

    @property
    def n_past(self) -> int:
        return self.order

    def n_output_parameters(self, size: int) -> int:
        return sum(self._widths(size))

    def _size(self, n_output_parameters: int) -> int:
        """D, the number of features that has P output parameters."""
        return next(d for d in range(1, n_output_parameters) if self.n_output_parameters(d) == n_output_parameters)

    def _widths(self, size: int) -> list[int]:
        shape = gaussian.n_shape_parameters(self.covariance_type, size)
        return [size * size * self.order, size, shape, size, shape]

    def unpack(self, output_parameters: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """``(..., P)`` -> coefficients ``(..., D, pD)``, oldest step first; intercept, shape; first mean and shape."""
        coefficients, *rest = output_parameters.split(self._widths(size), dim=-1)
        intercept, shape, first_mean, first_shape = rest
        return coefficients.unflatten(-1, (size, size * self.order)), intercept, shape, first_mean, first_shape

    def pack(self, coefficients: Tensor, *rest: Tensor) -> Tensor:
        """The inverse of ``unpack``."""
        return torch.cat([coefficients.flatten(-2), *rest], dim=-1)

    def log_prob(self, output_parameters: Tensor, x: Tensor, past: Tensor | None = None) -> Tensor:
        mean, shape = self._conditional(output_parameters, x.shape[-1], past)
        return gaussian.log_density(x, mean, shape, self.covariance_type, self.min_covariance)

    def has_full_conditionals(self, size: int) -> bool:
        return True

    def full_conditionals(self, output_parameters: Tensor, x: Tensor, past: Tensor | None = None) -> FullConditionals:
        mean, shape = self._conditional(output_parameters, x.shape[-1], past)
        return gaussian.full_conditionals(x, mean, shape, self.covariance_type, self.min_covariance)

    def _conditional(self, output_parameters: Tensor, size: int, past: Tensor | None) -> tuple[Tensor, Tensor]:
        assert past is not None, "an autoregressive observation is always given its past"
        coefficients, intercept, shape, first_mean, first_shape = self.unpack(output_parameters, size)
        history = past.flatten(-2)  # (..., pD)
        has_past = ~torch.isnan(history).any(-1, keepdim=True)
        predicted = intercept + torch.einsum("...ij,...j->...i", coefficients, torch.where(has_past, history, 0.0))
        return torch.where(has_past, predicted, first_mean), torch.where(has_past, shape, first_shape)

    def tempered(self, output_parameters: Tensor, temperature: float) -> Tensor:
        """Covariances times the temperature, but at least the floor."""
        size = self._size(output_parameters.shape[-1])
        coefficients, intercept, shape, first_mean, first_shape = self.unpack(output_parameters, size)
        shape = gaussian.scaled(shape, size, self.covariance_type, temperature)
        first_shape = gaussian.scaled(first_shape, size, self.covariance_type, temperature)
        return self.pack(coefficients, intercept, shape, first_mean, first_shape)

    def sample(self, output_parameters: Tensor, past: Tensor | None, generator: torch.Generator) -> Tensor:
        assert past is not None
        mean, shape = self._conditional(output_parameters, past.shape[-1], past)
        noise = torch.randn(mean.shape, generator=generator, dtype=mean.dtype, device=mean.device)
        return gaussian.draw(mean, shape, self.covariance_type, self.min_covariance, noise)

    def distribution(
        self, output_parameters: Tensor, *, log_weights: Tensor, past: Tensor | None, shift: Tensor, scale: Tensor
    ) -> Any:
        import pyro.distributions as dist

        mean, shape = self._conditional(output_parameters, len(shift), past)  # (K, D), (K, S)
        loc = shift + scale * mean
        if self.covariance_type == "diag":
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

    def with_floor(self, factor: float) -> AutoregressiveGaussian:
        return replace(self, min_covariance=factor * self.min_covariance)

    def on_floor(self, output_parameters: Tensor, size: int, factor: float) -> Tensor:
        matrix, intercept, shape, first_mean, first_shape = self.unpack(output_parameters, size)
        shape = gaussian.on_floor(shape, size, self.covariance_type, self.min_covariance, factor)
        first_shape = gaussian.on_floor(first_shape, size, self.covariance_type, self.min_covariance, factor)
        return self.pack(matrix, intercept, shape, first_mean, first_shape)

    def floor_hits(self, output_parameters: Tensor, size: int) -> Tensor:
        _, _, shape, _, first_shape = self.unpack(output_parameters, size)
        hits = gaussian.at_floor(shape, size, self.covariance_type, self.min_covariance)
        return hits | gaussian.at_floor(first_shape, size, self.covariance_type, self.min_covariance)
