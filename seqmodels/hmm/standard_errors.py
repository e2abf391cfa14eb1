"""Standard errors of an HMM's parameters from the observed information.

At the maximum of the log-likelihood ``l`` the estimates are asymptotically normal, and their covariance is estimated by
the inverse of the observed information ``-∂²l / ∂u ∂u'`` (Lystig and Hughes 2002, *Exact computation of the observed
information matrix for hidden Markov models*; Zucchini, MacDonald and Langrock 2016, section 3.6). ``u`` are
unconstrained numbers (``hmm.coordinates``); the delta method takes their covariance to raw units, ``J Cov J'`` with ``J
= ∂ raw / ∂u``.

The gradient of ``l`` is exact, by an E-step (Fisher's identity). Its central differences, in float64 and over ``STEP``
of the width of a density, are the Hessian to about 1e-7 of its largest entries: P numbers take 2 P + 1 E-steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from seqmodels.common.caller_warnings import warn_caller
from seqmodels.hmm.coordinates import Coordinates
from seqmodels.hmm.corpus import PackedBatch
from seqmodels.hmm.estimates import Estimate, Link
from seqmodels.hmm.learning.em import MAPObjective
from seqmodels.hmm.parameters import Parameters

if TYPE_CHECKING:
    import pandas as pd

STEP = 1e-4  # step of the central differences, in units of the width of a density
FLAT = 1e-6  # eigenvalues of the scaled information below this share of the largest are rounding
NOISE = 1e-9  # diagonal entries of an information below this share of the largest are rounding, of either sign
SAME = 1e-3  # largest share of a parameter's gradient in flat directions with which it counts as identified
FAR = 0.25  # distance of the estimates from the maximum, in standard errors, beyond which a warning is given
VANISHED = (
    "on the boundary: the standard deviation of its term is estimated as zero, and given that it is zero whatever the "
    "data; see term_intervals"
)
NOT_IDENTIFIED = "not identified: the log-likelihood is flat, or not at a maximum, in a direction that changes it"


@dataclass(frozen=True)
class Penalty:
    """The penalty ``½ Σ precision (base + u)²`` of slopes with a normal distribution of mean zero.

    Attributes:
        precision: reciprocal of the variance of each of P numbers, ``(P,)``; 0 without a penalty.
        base: the numbers at ``u = 0``, ``(P,)``.
    """

    precision: Tensor
    base: Tensor


@dataclass(frozen=True)
class FitObjective:
    """The objective of ``fit``, log-likelihood plus log-prior, as a function of P unconstrained numbers ``u (P,)``.

    Attributes:
        coordinates: the map from u to parameters.
        prior: the objective of EM, of which only the log-prior is used.
        batches: the data.
        log_prob: function of parameters and a batch that returns log p(x) of its n sequences, ``(n,)``, whose sum is
            differentiable.
        refuse: function that is called with the numbers of sequences of probability zero, and raises ``ValueError`` if
            there are any.
        penalty: that of penalised terms of inputs; None without such terms.
        exact_information: function of u that returns minus the exact Hessian of the objective without the penalty,
            ``(P, P)``; None if it is to be computed by differences.
        vanished: name and index of the slopes of penalised terms whose standard deviation is estimated as zero.
    """

    coordinates: Coordinates
    prior: MAPObjective
    batches: Sequence[PackedBatch]
    log_prob: Callable[[Parameters, PackedBatch], Tensor]
    refuse: Callable[[Sequence[int]], None]
    penalty: Penalty | None = None
    exact_information: Callable[[Tensor], Tensor] | None = None
    vanished: Set[tuple[str, tuple[int, ...]]] = frozenset()

    def estimates(self) -> list[Estimate]:
        """Return a description of every estimated parameter, with a note if it is on a boundary."""
        return [
            replace(each, note=VANISHED) if (each.name, each.index) in self.vanished else each
            for each in self.coordinates.estimates()
        ]

    def information(self) -> Tensor:
        """Return minus the Hessian of the objective at the estimates, ``(P, P)``.

        Raises:
            ValueError: a sequence has probability zero.
        """
        u = torch.zeros(self.coordinates.n, dtype=torch.float64)
        if self.exact_information is None:
            return -hessian(self.gradient, u)
        information = self.exact_information(u)
        return information if self.penalty is None else information + torch.diag(self.penalty.precision)

    def gradient(self, u: Tensor) -> Tensor:
        """Return the exact gradient of the objective at ``u (P,)``, ``(P,)`` float64, in nats.

        Raises:
            ValueError: a sequence has probability zero.
        """
        return self.value_and_gradient(u)[1]

    def value_and_gradient(self, u: Tensor) -> tuple[float, Tensor]:
        """Return the objective at ``u (P,)`` in nats of encoded data, up to a constant, and its gradient ``(P,)``.

        Raises:
            ValueError: a sequence has probability zero.
        """
        u = u.detach().requires_grad_()
        parameters, table = self.coordinates.at(u)
        log_prior = self.prior.emission.log_prior(table) + self.prior.pseudocount.log_prior(parameters)
        log_prior = log_prior + self.prior.inputs.log_prior(parameters)
        value, gradient = float(log_prior.detach()), gradient_of(log_prior, u)
        if self.penalty is not None:
            pull = self.penalty.precision * (self.penalty.base + u.detach())
            value, gradient = value - 0.5 * float(pull @ (self.penalty.base + u.detach())), gradient - pull
        for batch in self.batches:
            parameters, _ = self.coordinates.at(u)
            log_prob = self.log_prob(parameters, batch)
            self.refuse(batch.impossible(log_prob.detach()))
            weighted = batch.weight * log_prob.sum()
            value, gradient = value + float(weighted.detach()), gradient + gradient_of(weighted, u)
        return value, gradient

    def newton_step(self, information: Information) -> Tensor:
        """Return the step of Newton's method from the estimates to the maximum, ``(P,)``, by the inverse information.

        It is zero for an objective with a penalty, because there variances are where the marginal likelihood is
        largest, and not the objective.
        """
        u = torch.zeros(self.coordinates.n, dtype=torch.float64)
        if self.penalty is not None:
            return u
        return information.root @ (information.root.T @ self.gradient(u))


def gradient_of(value: Tensor, u: Tensor) -> Tensor:
    """Return the gradient of the scalar ``value`` with respect to ``u (P,)``; zeros if it does not depend on ``u``."""
    if not value.requires_grad:
        return torch.zeros_like(u)
    (gradient,) = torch.autograd.grad(value, u, allow_unused=True)
    return torch.zeros_like(u) if gradient is None else gradient


def hessian(gradient: Callable[[Tensor], Tensor], u: Tensor, length: float = STEP) -> Tensor:
    """Return the Hessian at ``u (P,)`` by central differences of a gradient, made symmetric, ``(P, P)``.

    Args:
        gradient: function of ``u`` that returns the gradient there, ``(P,)``.
        u: where, ``(P,)``.
        length: length of the steps to either side.
    """
    columns = []
    for i in range(len(u)):
        step = torch.zeros_like(u)
        step[i] = length
        columns.append((gradient(u + step) - gradient(u - step)) / (2 * length))
    matrix = torch.stack(columns, 1) if columns else u.new_zeros(0, 0)
    return 0.5 * (matrix + matrix.T)


@dataclass(frozen=True)
class Information:
    """The inverse of the observed information of P parameters, in the directions in which the information is positive.

    Attributes:
        root: a matrix R whose ``R @ R.T`` is the estimated covariance of the parameters, ``(P, r)``, where r is the
            number of these directions.
        flat: the other directions, in which the data say nothing, ``(P, P - r)``.
    """

    root: Tensor
    flat: Tensor

    @classmethod
    def of(cls, information: Tensor) -> Information:
        """Return the inverse of an observed information matrix, ``information (P, P)``: minus a Hessian.

        The matrix is first scaled by its diagonal, so that the units of parameters do not decide what is flat. Diagonal
        entries that are rounding errors are not scaled to 1, because their sign would then decide.
        """
        diagonal = information.diagonal().abs()
        largest = diagonal.amax() if len(diagonal) else diagonal.new_ones(())
        scale = torch.where(diagonal > NOISE * largest, diagonal, largest.where(largest > 0, 1.0)).rsqrt()
        values, vectors = torch.linalg.eigh(scale[:, None] * information * scale)
        is_flat = values <= FLAT * values.abs().amax() if len(values) else values > 0
        directions = scale[:, None] * vectors
        return cls(directions[:, ~is_flat] / values[~is_flat].sqrt(), directions[:, is_flat])

    def is_identified(self, jacobian: Tensor) -> Tensor:
        """Return a mask ``(R,)``, True for the quantities that the data determine: no flat direction changes them.

        ``jacobian (R, P)`` holds the derivatives of the R quantities by the P parameters.
        """
        along = (jacobian @ self.flat).square().sum(1)
        across = (jacobian @ self.root).square().sum(1)
        return along <= SAME**2 * across


def check_level(level: float) -> None:
    """Raise ``ValueError`` unless ``level`` is between 0 and 1."""
    if not 0 < level < 1:
        raise ValueError(f"level is {level}; pass a probability between 0 and 1, as 0.95")


def standard_errors(objective: FitObjective, shift: Tensor, scale: Tensor, level: float) -> pd.DataFrame:
    """Return a frame with the estimate, standard error and confidence interval of each parameter, in raw units.

    It has a row for each estimated parameter, and the columns ``name``, ``state``, ``feature``, ``estimate``,
    ``standard_error``, ``ci_low``, ``ci_high`` and ``note``, which says why a parameter has no standard error.

    Args:
        objective: log-likelihood plus log-prior on the training data, as a function of unconstrained numbers that are
            zero at the estimates.
        shift: raw values of D features are ``shift + scale * encoded``, ``(D,)``.
        scale: see ``shift``, ``(D,)``.
        level: probability with which an interval is to contain the true value.
    """
    import pandas as pd

    coordinates, estimates = objective.coordinates, objective.estimates()
    u = shift.new_zeros(coordinates.n)
    values, jacobian = raw_values(coordinates, estimates, u, shift, scale)
    information = Information.of(objective.information())
    errors = (jacobian @ information.root).square().sum(1).sqrt()
    is_identified = information.is_identified(jacobian)
    notes = [
        estimate.note or ("" if identified else NOT_IDENTIFIED)
        for estimate, identified in zip(estimates, is_identified.tolist(), strict=True)
    ]
    has_error = torch.tensor([not note for note in notes], dtype=torch.bool, device=errors.device)
    newton = jacobian @ objective.newton_step(information)
    warn_far(estimates, (newton / errors).abs().where(has_error & (errors > 0), 0.0))
    errors = errors.where(has_error, torch.nan)
    intervals = [
        wald_interval(value, error, estimate.link, level)
        for value, error, estimate in zip(values.tolist(), errors.tolist(), estimates, strict=True)
    ]
    return pd.DataFrame(
        {
            "name": [estimate.name for estimate in estimates],
            "state": pd.array([estimate.state for estimate in estimates], dtype="Int64"),
            "feature": pd.Series([estimate.feature for estimate in estimates], dtype=object),
            "estimate": values.cpu().numpy(),
            "standard_error": errors.cpu().numpy(),
            "ci_low": [low for low, _ in intervals],
            "ci_high": [high for _, high in intervals],
            "note": notes,
        }
    )


def raw_values(
    coordinates: Coordinates, estimates: Sequence[Estimate], u: Tensor, shift: Tensor, scale: Tensor
) -> tuple[Tensor, Tensor]:
    """Return R estimates in raw units, ``(R,)``, and their derivatives by the unconstrained numbers, ``(R, P)``.

    Args:
        coordinates: the map from P unconstrained numbers to parameters.
        estimates: the R parameters.
        u: the unconstrained numbers, ``(P,)``.
        shift: raw values of D features are ``shift + scale * encoded``, ``(D,)``.
        scale: see ``shift``, ``(D,)``.
    """

    def each(u: Tensor) -> Tensor:
        raw = coordinates.raw(u, shift, scale)
        return torch.stack([raw[estimate.name][estimate.index] for estimate in estimates])

    jacobian: Tensor = torch.autograd.functional.jacobian(each, u)
    return each(u), jacobian


def wald_interval(value: float, error: float, link: Link, level: float) -> tuple[float, float]:
    """Return the two ends of a Wald interval, which is symmetric about the estimate on the scale of a link.

    It contains possible values only. An error that is infinite, or too large for the exponential, gives all possible
    values: (0, 1) for a probability, (0, inf) for a variance or a rate. So does a value that is rounded to an end of
    its range. If the error is NaN, so are both ends.

    Args:
        value: the estimate, in raw units.
        error: its standard error, in raw units.
        link: the scale on which the interval is symmetric.
        level: probability with which the interval is to contain the true value.
    """
    from scipy.special import expit, logit

    if np.isnan(error):
        return np.nan, np.nan
    width = NormalDist().inv_cdf(0.5 + level / 2) * error
    if link == "identity":
        return value - width, value + width
    if link == "log" and value == 0.0:
        return 0.0, np.inf
    if link == "logit" and value in (0.0, 1.0):
        return 0.0, 1.0
    if link == "log":
        with np.errstate(over="ignore"):  # an end past the largest float is infinite
            return float(np.exp(np.log(value) - width / value)), float(np.exp(np.log(value) + width / value))
    half = width / (value * (1 - value))
    return float(expit(logit(value) - half)), float(expit(logit(value) + half))


def warn_far(estimates: Sequence[Estimate], distances: Tensor) -> None:
    """Warn if a Newton step would move an estimate by more than ``FAR`` standard errors, away from a maximum.

    Args:
        estimates: descriptions of R parameters.
        distances: how far the Newton step moves each of them, in standard errors, ``(R,)``.
    """
    if not len(distances) or float(distances.max()) <= FAR:
        return
    of = estimates[int(distances.argmax())]
    where = "" if of.state is None else f" of state {of.state}"
    warn_caller(
        f"the parameters are not at the maximum of their likelihood on these data: {of.name}{where} is about "
        f"{float(distances.max()):.1f} standard errors away, so intervals are around another value; pass the training "
        "data, and fit with a smaller tol and a larger max_iter",
    )
