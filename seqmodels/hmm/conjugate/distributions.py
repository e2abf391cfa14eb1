"""Dirichlet, Gamma and Wishart distributions: expectations, divergences and draws, batched, in float64 and nats."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def expected_log(concentration: Tensor) -> Tensor:
    """Return ``E log p`` of probabilities p with Dirichlet distributions, ``(..., K)``; -inf where the concentration is
    0.

    >>> expected_log(torch.tensor([1.0, 1.0, 0.0])).round(decimals=4).tolist()
    [-1.0, -1.0, -inf]
    """
    allowed = concentration > 0
    terms = torch.digamma(torch.where(allowed, concentration, 1.0)) - torch.digamma(concentration.sum(-1, keepdim=True))
    return torch.where(allowed, terms, -math.inf)


def log_normaliser(concentration: Tensor) -> Tensor:
    """Return ``log B(a) = Σ log Γ(a) - log Γ(Σ a)``, ``(...)``, the log normaliser of Dirichlet distributions.

    The concentrations a are ``(..., K)``. Those that are 0 are left out, and the result is 0 if all are.
    """
    total = concentration.sum(-1)
    each = torch.where(concentration > 0, torch.lgamma(torch.where(concentration > 0, concentration, 1.0)), 0.0)
    return each.sum(-1) - torch.lgamma(torch.where(total > 0, total, 1.0))


def dirichlet_divergence(q: Tensor, p: Tensor) -> Tensor:
    """Return ``KL(q || p)`` in nats, ``(...)``, of Dirichlet distributions with concentrations q and p, ``(..., K)``.

    Entries that are 0 in both are left out.
    """
    expected = torch.where(q > 0, expected_log(q), 0.0)
    return log_normaliser(p) - log_normaliser(q) + ((q - p) * expected).sum(-1)


def dirichlet_log_density(logits: Tensor, concentration: Tensor) -> Tensor:
    """Return the log-density in nats, ``(...)``, of logits ``(..., K)`` whose softmax p has a Dirichlet distribution.

    One logit is fixed, the others are free; logits whose concentration is 0 are left out. The derivative of the
    probabilities in the free logits is the product of all probabilities, so the log-density is ``Σ a log p - log B(a)``
    with concentrations a, ``(..., K)``.
    """
    log_p = torch.log_softmax(torch.where(concentration > 0, logits, -math.inf), -1)
    terms = concentration * torch.where(concentration > 0, log_p, 0.0)
    return terms.sum(-1) - log_normaliser(concentration)


def gamma_divergence(a: Tensor, b: Tensor, a0: Tensor, b0: Tensor) -> Tensor:
    """Return ``KL(Gamma(a, b) || Gamma(a0, b0))`` in nats, elementwise, for Gamma distributions of shapes a, a0 and
    rates b, b0.
    """
    of_shapes = (a - a0) * torch.digamma(a) - torch.lgamma(a) + torch.lgamma(a0)
    return of_shapes + a0 * (b / b0).log() + a * (b0 - b) / b


def log_gamma_log_density(log_values: Tensor, shape: Tensor, rate: Tensor) -> Tensor:
    """Return the log-density in nats of ``log_values``, the logarithms of Gamma variables, elementwise.

    ``shape`` and ``rate`` are the parameters of the Gamma distributions.
    """
    return shape * (rate.log() + log_values) - torch.lgamma(shape) - rate * log_values.exp()


def expected_log_det(freedom: Tensor, scatter: Tensor) -> Tensor:
    """Return ``E log|Λ|`` of matrices Λ with Wishart distributions, ``(...)``.

    Args:
        freedom: degrees of freedom, ``(...)``.
        scatter: inverse scale matrices, ``(..., D, D)``.
    """
    size = scatter.shape[-1]
    steps = torch.arange(size, dtype=freedom.dtype, device=freedom.device)
    digammas = torch.digamma(0.5 * (freedom.unsqueeze(-1) - steps)).sum(-1)
    result: Tensor = digammas + size * math.log(2) - torch.logdet(scatter)
    return result


def wishart_divergence(freedom: Tensor, scatter: Tensor, freedom0: Tensor, scatter0: Tensor) -> Tensor:
    """Return ``KL(W(freedom, scatter) || W(freedom0, scatter0))`` of Wishart distributions in nats, ``(...)``.

    Args:
        freedom, freedom0: degrees of freedom, ``(...)``.
        scatter, scatter0: inverse scale matrices, ``(..., D, D)``.
    """
    size = scatter.shape[-1]
    trace: Tensor = torch.linalg.solve(scatter, scatter0).diagonal(dim1=-2, dim2=-1).sum(-1)
    terms: Tensor = 0.5 * (freedom - freedom0) * expected_log_det(freedom, scatter) + 0.5 * freedom * (trace - size)
    return terms + _log_wishart(freedom0, scatter0) - _log_wishart(freedom, scatter)


def wishart_log_density(factor: Tensor, freedom: Tensor, scatter: Tensor) -> Tensor:
    """Return the log-density in nats of Cholesky factors whose products ``factor @ factor.T`` are Wishart, ``(...)``.

    The density is in the entries of the factor, with the logarithms of its diagonal; the Jacobian of that change of
    variables is ``2^D Π L_ii^(D - i + 2)``, i from 1.

    Args:
        factor: lower triangular matrices, ``(..., D, D)``.
        freedom: degrees of freedom, ``(...)``.
        scatter: inverse scale matrices, ``(..., D, D)``.
    """
    size = factor.shape[-1]
    logs = factor.diagonal(dim1=-2, dim2=-1).log()
    powers = torch.arange(size + 1, 1, -1, dtype=factor.dtype, device=factor.device)
    trace = ((factor.mT @ scatter) * factor.mT).sum((-1, -2))
    log_det = (freedom - size - 1) * logs.sum(-1)
    density: Tensor = log_det - 0.5 * trace - _log_wishart(freedom, scatter)
    return density + size * math.log(2) + (powers * logs).sum(-1)


def _log_wishart(freedom: Tensor, scatter: Tensor) -> Tensor:
    size = scatter.shape[-1]
    powers = 0.5 * freedom * (size * math.log(2) - torch.logdet(scatter))
    result: Tensor = powers + torch.special.multigammaln(0.5 * freedom, size)
    return result


def draw_gamma(shape: Tensor, generator: torch.Generator) -> Tensor:
    """Return random draws from Gamma distributions of rate 1, one for each element of ``shape``.

    Draws that underflow are raised to the smallest normal float, so that none is zero.
    """
    draws = torch._standard_gamma(shape, generator=generator)
    return draws.clamp(min=torch.finfo(draws.dtype).tiny)


def draw_dirichlet(concentration: Tensor, generator: torch.Generator) -> Tensor:
    """Return probabilities drawn from Dirichlet distributions, ``(..., K)`` like ``concentration``; zero where that is
    0.
    """
    allowed = concentration > 0
    draws = torch.where(allowed, draw_gamma(torch.where(allowed, concentration, 1.0), generator), 0.0)
    return draws / draws.sum(-1, keepdim=True)


def draw_wishart(freedom: Tensor, scatter: Tensor, generator: torch.Generator) -> Tensor:
    """Return precision matrices ``(..., D, D)`` drawn from Wishart distributions by Bartlett's (1933) decomposition.

    Args:
        freedom: degrees of freedom, ``(...)``.
        scatter: inverse scale matrices, ``(..., D, D)``.
        generator: random generator.
    """
    size = scatter.shape[-1]
    steps = torch.arange(size, dtype=freedom.dtype)
    chi = (2 * draw_gamma(0.5 * (freedom.unsqueeze(-1) - steps), generator)).sqrt()
    below = torch.randn(scatter.shape, generator=generator, dtype=scatter.dtype).tril(-1)
    factor: Tensor = torch.linalg.cholesky(torch.linalg.inv(scatter)) @ (below + torch.diag_embed(chi))
    return factor @ factor.mT
