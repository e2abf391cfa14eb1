"""Confidence intervals of one parameter of an HMM by its profile likelihood.

An interval of level 1 - α has every value θ for which the likelihood, maximised over all other parameters, is within
``q / 2`` nats of the largest, where q is the 1 - α quantile of χ² with one degree of freedom (Venzon and Moolgavkar
1988, *A method for computing profile-likelihood-based confidence intervals*). Its ends are the extreme values of θ
where

    ``l(u) >= l(û) - q / 2``,

over all unconstrained numbers u. Unlike ``standard_errors`` it does not assume that the log-likelihood is quadratic,
and it is the same on any scale of θ. Sequential quadratic programming finds the ends (Kraft 1988), in coordinates in
which the observed information is the identity.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqmodels.hmm.estimates import Estimate
from seqmodels.hmm.standard_errors import NOT_IDENTIFIED, FitObjective, Information, raw_values

PRECISION = 1e-9  # tolerance of the search, in standard errors of the parameter
FAR_OFF = 0.1  # distance of an estimate from the maximum of what is profiled, in standard errors, that is too far
WITHIN = 1e-6  # largest error of the log-likelihood at an end, in nats, and of the cosine of the two gradients there
MOST_STEPS = 200


def profile_interval(
    objective: FitObjective, shift: Tensor, scale: Tensor, which: tuple[str, int | None, Any], level: float
) -> tuple[float, float]:
    """Return the lower and the upper end of one parameter's profile-likelihood interval, in raw units.

    Args:
        objective: log-likelihood plus log-prior on the training data, as a function of unconstrained numbers that are
            zero at the estimates.
        shift: raw values of D features are ``shift + scale * encoded``, ``(D,)``.
        scale: see ``shift``, ``(D,)``.
        which: name, state and feature of the parameter, as ``standard_errors`` lists them.
        level: probability with which the interval is to contain the true value, 1 - α.

    Raises:
        ValueError: there is no such parameter, it is on a boundary or not identified, or an end was not reached; or it
            was estimated by the marginal likelihood of penalised terms, whose maximum is elsewhere.
    """
    from scipy.optimize import minimize
    from scipy.stats import chi2

    estimate = chosen_estimate(objective.estimates(), which)
    u = shift.new_zeros(objective.coordinates.n)
    values, jacobian = raw_values(objective.coordinates, [estimate], u, shift, scale)
    information = Information.of(objective.information())
    root, size = information.root, float((jacobian @ information.root).norm())
    if not information.is_identified(jacobian).all():
        raise ValueError(f"{_in_words(which)} has no interval: {NOT_IDENTIFIED}")
    value, half = float(values), float(chi2.ppf(level, 1)) / 2
    largest, gradient = objective.value_and_gradient(u)
    if objective.penalty is not None and abs(float(jacobian @ root @ (root.T @ gradient))) > FAR_OFF * size:
        raise ValueError(
            f"{_in_words(which)} has no profile interval: it maximises the marginal likelihood, in which effects of "
            "penalised terms are integrated out, and not the likelihood of parameters and effects together, which is "
            "profiled; standard_errors has its interval"
        )

    def raw(v: np.ndarray) -> tuple[float, np.ndarray]:
        """Return how far the parameter is from its estimate, in standard errors, and the gradient of this, ``(r,)``.

        ``v (r,)`` are coordinates in which the observed information is the identity.
        """
        at, slope = raw_values(objective.coordinates, [estimate], root @ torch.as_tensor(v), shift, scale)
        return (float(at) - value) / size, (slope @ root)[0].numpy() / size

    def margin(v: np.ndarray) -> tuple[float, np.ndarray]:
        """Return by how many nats the log-likelihood exceeds that at the ends, and the gradient of this, ``(r,)``.

        ``v (r,)`` are coordinates in which the observed information is the identity.
        """
        log_prob, gradient = objective.value_and_gradient(root @ torch.as_tensor(v))
        return log_prob - largest + half, (root.T @ gradient).numpy()

    is_likely: Any = {"type": "ineq", "fun": lambda v: margin(v)[0], "jac": lambda v: margin(v)[1]}

    def end(sign: int) -> float:
        def inwards(v: np.ndarray) -> tuple[float, np.ndarray]:
            at, slope = raw(v)
            return -sign * at, -sign * slope

        start = sign * np.sqrt(2 * half) * (jacobian @ root)[0].numpy() / size  # the end if l were quadratic
        options: Any = {"maxiter": MOST_STEPS, "ftol": PRECISION}
        result = minimize(inwards, start, jac=True, method="SLSQP", constraints=is_likely, options=options)
        # At an extreme value the gradients of the parameter and of the likelihood point in opposite directions.
        (at, outwards), (left, upwards) = raw(result.x), margin(result.x)
        cosine = -sign * (outwards @ upwards) / (np.linalg.norm(outwards) * np.linalg.norm(upwards))
        if not (abs(left) < WITHIN and 1 - cosine < WITHIN):
            side = "upper" if sign > 0 else "lower"
            raise ValueError(
                f"the {side} end of the interval of {_in_words(which)} was not reached: on that side the likelihood "
                f"does not fall by {half:.2f} nats, or the parameters are not at its maximum; fit with a smaller tol, "
                "or read standard_errors"
            )
        return value + at * size

    return end(-1), end(1)


def chosen_estimate(estimates: Sequence[Estimate], which: tuple[str, int | None, Any]) -> Estimate:
    """Return the description of the parameter with a given name, state and feature.

    Args:
        estimates: descriptions of all estimated parameters.
        which: name, state and feature.

    Raises:
        ValueError: there is no such parameter, or it has a note that says why it has no interval.
    """
    matching = [each for each in estimates if (each.name, each.state, each.feature) == which]
    if not matching:
        of_name = [f"({each.state}, {each.feature!r})" for each in estimates if each.name == which[0]]
        known = ", ".join(of_name[:8]) if of_name else f"names {', '.join(dict.fromkeys(e.name for e in estimates))}"
        raise ValueError(f"{_in_words(which)} is no estimated parameter; standard_errors lists them all: {known}")
    (estimate,) = matching
    if estimate.note:
        raise ValueError(f"{_in_words(which)} has no interval: {estimate.note}")
    return estimate


def _in_words(which: tuple[str, int | None, Any]) -> str:
    name, state, feature = which
    return f"{name} of state {state}" + ("" if feature is None else f" and feature {feature!r}")
