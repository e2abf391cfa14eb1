"""Emissions that depend on inputs: output parameters ``θ_k + C_k u_t`` of state k at step t, and their M-step.

Only location parameters depend on inputs: means of Gaussians (linear regression by weighted least squares), log-odds of
symbols and bits, log-rates of counts (generalised linear models by Newton's method), and what ``Observation.locations``
names of any other density (Newton's method on its derivatives). Under distributed training each process has a share of
the frames, and sums over frames are summed over all processes.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from functools import singledispatch
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from seqmodels.common.distributed import all_reduce_sum
from seqmodels.hmm.emissions import Emission, quadratic
from seqmodels.hmm.emissions.autoregressive import add_background
from seqmodels.hmm.emissions.logistic import multinomial_logistic
from seqmodels.hmm.emissions.mixture_components import new_log_weights
from seqmodels.hmm.emissions.newton import newton_maximum, solved, uphill
from seqmodels.hmm.emissions.pseudo_frames import Believed
from seqmodels.inference.chains.scratch import Scratch
from seqmodels.observations import AutoregressiveGaussian, Categorical, Columns, GaussianMixture, Observation, gaussian
from seqmodels.observations.exponential_family import ExponentialFamily

NUMBERS_AT_ONCE = 1 << 22  # output parameters of frames and states that are held at once
MOST_COEFFICIENTS = 1000  # most of a regression of symbols, because Newton's method solves for all of them at once
MOST_NATURAL = 15.0  # largest log-odds and log-rates at a start, because a regression cannot start at infinity


def log_density_given_inputs(
    observation: Observation, table: Tensor, slopes: Tensor, x: Tensor, past: Tensor | None, inputs: Tensor
) -> Tensor:
    """Return the log-density of each of N frames in each of K states given the inputs of its step, ``(N, K)`` in nats.

    Args:
        observation: the emission distribution.
        table: P output parameters of each state where all inputs are zero, ``(K, P)``.
        slopes: change of each emission parameter per unit of each of U inputs, ``(K, P, U)``.
        x: encoded frames, ``(N, D)``, or symbols, ``(N,)``.
        past: the p steps before each frame, ``(N, p, D)``, or None.
        inputs: inputs of each step, ``(N, U)``.
    """
    size = max(1, NUMBERS_AT_ONCE // table.numel())
    pasts = [None] * -(-len(x) // size) if past is None else list(past.split(size))
    parts = []
    for frames, before, u in zip(x.split(size), pasts, inputs.split(size), strict=True):
        parameters = table + torch.einsum("nu,kpu->nkp", u.to(table), slopes)  # (n, K, P)
        frames = frames.double() if frames.is_floating_point() else frames
        before = None if before is None else before.double().unsqueeze(1)
        parts.append(observation.log_prob(parameters, frames.unsqueeze(1), before))
    return torch.cat(parts)


class RegressedColumns(ABC):
    """Abstract base of descriptions of which of the P output parameters of a state depend linearly on inputs.

    There are L such parameters, called locations; each has one slope for each input. To add a kind, define the abstract
    methods below, and register the emission that has them with ``regressed_columns``.
    """

    has_reference: ClassVar[bool] = False  # True if the slopes of the first output parameter are fixed at zero
    has_units: ClassVar[bool] = False  # True if a location has the unit of its feature, such as a mean

    @property
    @abstractmethod
    def location(self) -> list[slice]:
        """Slices of the P output parameters of a state that cover the L parameters that depend on inputs."""

    @property
    def places(self) -> list[int]:
        """Indices, among the P output parameters of a state, of the L parameters that depend on inputs."""
        return [place for each in self.location for place in range(each.start, each.stop)]

    def units(self, scale: Tensor) -> Tensor:
        """Return the factor from encoded to raw units of each of the L parameters that depend on inputs, ``(L,)``.

        Parameters without a unit, such as log-odds, have 1.

        Args:
            scale: factor from encoded to raw units of each of D features, ``(D,)``.
        """
        return scale if self.has_units else scale.new_ones(len(self.places))

    def labels(self, names: Sequence[Any]) -> list[Any]:
        """Return a label for each of the L parameters that depend on inputs; by default ``names``, of features or
        symbols.
        """
        return list(names)

    @property
    def n_free(self) -> int:
        """Number of the L output parameters depending on inputs whose slopes are free, not fixed at zero as a
        reference.
        """
        return len(self.places) - self.has_reference


class InputRegression(RegressedColumns):
    """Abstract base of M-steps of emission distributions whose location parameters depend linearly on inputs.

    To add one, define ``maximise``, and ``locations`` of the observation, and put
    ``@regression_of.register(MyObservation)`` before the class.

    Args:
        observation: the emission distribution.
        size: number of features D, or of symbols V.
    """

    def __init__(self, observation: Observation, size: int) -> None:
        self.observation, self.size = observation, size

    @property
    def location(self) -> list[slice]:
        return self.observation.locations(self.size)

    @abstractmethod
    def maximise(
        self, row: Tensor, slopes: Tensor, x: Tensor, past: Tensor | None, inputs: Tensor, gamma: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return output parameters ``(P,)`` and slopes on U inputs ``(P, U)`` of one state after an M-step.

        The objective, the expected log-density plus log-prior, does not decrease.

        Args:
            row, slopes: output parameters ``(P,)`` and slopes ``(P, U)`` before the step.
            x, past: N encoded frames, and the steps before each, or None.
            inputs: inputs of each step, ``(N, U)``.
            gamma: posterior of the state in each frame, ``(N,)`` float64.
        """

    def maximise_all(
        self, rows: Tensor, slopes: Tensor, x: Tensor, past: Tensor | None, inputs: Tensor, gammas: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return output parameters ``(G, P)`` and slopes ``(G, P, U)`` of all states after one M-step.

        By default each state is a regression of its own. States that share numbers, such as a covariance, override it.

        Args:
            rows, slopes: output parameters ``(G, P)`` and slopes ``(G, P, U)`` of G states before the step.
            x, past, inputs: as in ``maximise``.
            gammas: posterior of each state in each frame, ``(G, N)`` float64.
        """
        given = zip(rows, slopes, gammas, strict=True)
        each = [self.maximise(row, of_row, x, past, inputs, gamma) for row, of_row, gamma in given]
        return torch.stack([row for row, _ in each]), torch.stack([of_row for _, of_row in each])


@singledispatch
def regression_of(observation: Observation, size: int) -> InputRegression:
    """Return the M-step of an emission distribution whose location parameters depend on inputs.

    Args:
        observation: the emission distribution.
        size: number of features or symbols.

    Raises:
        ValueError: if the distribution cannot depend on inputs, or not with its present hyperparameters.
    """
    if observation.locations(size):
        return DensityRegression(observation, size)
    raise ValueError(
        f"{observation!r} cannot depend on inputs, because it has no locations; pass a density that has, such as "
        "GaussianMixture(1), StudentT, Gamma or Poisson, or leave emissions of input_effects out"
    )


@singledispatch
def regressed_columns(emission: Emission) -> RegressedColumns:
    """Return which parameters of an emission depend on inputs: by default the locations of its distribution.

    Raises:
        ValueError: if the distribution cannot depend on inputs, or not with its present hyperparameters.
    """
    return regression_of(emission.observation, emission.size)


# -- Gaussians ---------------------------------------------------------------------------------------------------------


class PriorFrames(NamedTuple):
    """The R frames that a prior adds to a regression.

    Attributes:
        x: responses, ``(R, D)``.
        design: regressors, ``(R, F)``.
        weights: weight of each frame, ``(R,)``.
    """

    x: Tensor
    design: Tensor
    weights: Tensor


def weighted_least_squares(
    x: Tensor, design: Tensor, weights: Tensor, penalty: Tensor | None = None, pseudo: PriorFrames | None = None
) -> tuple[Tensor, Tensor, Tensor] | None:
    """Return coefficients B ``(F, D)``, products of residuals ``(D, D)`` and the sum of weights of a ridge regression.

    It minimises ``Σ_n w_n |x_n - Bᵀ z_n|² + Σ_f penalty_f |B_f|²``, the first sum over the frames of all processes and
    the pseudo-frames. The residual products include the penalty and the pseudo-frames, the sum of weights neither.
    Return None if there are no frames and no pseudo-frames, or only such of weight zero.

    Args:
        x: responses, ``(N, D)``.
        design: regressors z, ``(N, F)``.
        weights: weight of each frame, ``(N,)``.
        penalty: ridge penalty of each regressor, ``(F,)``; None means no penalty.
        pseudo: frames that a prior adds, or None.
    """
    weighted = weights.unsqueeze(1) * design
    (gram, cross, total), _ = all_reduce_sum([weighted.T @ design, weighted.T @ x, weights.sum()])
    if not total > 0 and (pseudo is None or not pseudo.weights.any()):
        return None
    if penalty is not None:
        gram = gram + torch.diag(penalty)
    if pseudo is not None:
        weighted = pseudo.weights.unsqueeze(1) * pseudo.design
        gram, cross = gram + weighted.T @ pseudo.design, cross + weighted.T @ pseudo.x
    coefficients = solved(gram, cross)
    residual = x - design @ coefficients
    (products,), _ = all_reduce_sum([(weights.unsqueeze(1) * residual).T @ residual])
    if penalty is not None:
        products = products + (penalty.unsqueeze(1) * coefficients).T @ coefficients
    if pseudo is not None:
        residual = pseudo.x - pseudo.design @ coefficients
        products = products + (pseudo.weights.unsqueeze(1) * residual).T @ residual
    return coefficients, products, total


def _refuse_missing(observation: Observation, x: Tensor) -> None:
    if torch.isnan(x).any():
        raise ValueError(
            f"some values are missing, but {observation!r} given inputs is fitted to complete frames only; fill the "
            "missing values in, or pass GaussianMixture(1), whose covariances are diagonal"
        )


def _clipped_shape(observation: GaussianMixture | AutoregressiveGaussian, covariance: Tensor) -> Tensor:
    """Return the numbers that describe a covariance ``(D, D)``, its variances clipped from below, ``(S,)``."""
    floor = observation.min_covariance
    if observation.shape_type == "full":
        return gaussian.shape_of_covariance(quadratic.clip_eigenvalues(covariance, floor))
    variances = covariance.diagonal()
    if observation.covariance_type == "spherical":
        variances = variances.mean().expand(len(variances))
    return variances.clamp(min=floor).log()


@regression_of.register(GaussianMixture)
class GaussianRegression(InputRegression):
    """The M-step of Gaussian mixtures given inputs u, ``Σ_m w_m N(x; μ_m + B_m u, Σ_m)``, with slopes B of each
    component.

    Each component is a regression by least squares, in which a frame counts with the probability of its state and
    component. A prior's pseudo-frames have inputs of zero. A background depends on no inputs. A ``"tied"`` covariance
    is that of the residuals of all components of all states.
    """

    observation: GaussianMixture

    def units(self, scale: Tensor) -> Tensor:
        return self.observation.location_units(scale)

    def labels(self, names: Sequence[Any]) -> list[Any]:
        return self.observation.location_labels(names)

    def maximise(
        self, row: Tensor, slopes: Tensor, x: Tensor, past: Tensor | None, inputs: Tensor, gamma: Tensor
    ) -> tuple[Tensor, Tensor]:
        rows, of_rows = self.maximise_all(row[None], slopes[None], x, past, inputs, gamma[None])
        return rows[0], of_rows[0]

    def maximise_all(
        self, rows: Tensor, slopes: Tensor, x: Tensor, past: Tensor | None, inputs: Tensor, gammas: Tensor
    ) -> tuple[Tensor, Tensor]:
        log_weights, means, shapes = (each.clone() for each in self.observation.unpack(rows, self.size))
        columns, (n_states, n_components) = self.location[0], log_weights.shape
        of_means = slopes[:, columns].unflatten(1, (n_components, self.size)).clone()  # (G, M, D, U)
        posterior = self._posterior(rows, slopes, x, inputs, gammas)  # (G, M, N)
        (counts,), _ = all_reduce_sum([posterior.sum(-1)])
        prior = self.observation.prior
        believed = None if prior is None else Believed.of(prior, log_weights, self.size)
        products, totals = shapes.new_zeros(self.size, self.size), shapes.new_zeros(())  # of all, for "tied"
        for g in range(n_states):
            for m in range(n_components):
                prior_here = None if believed is None else believed.of_component(g, m)
                estimate = self._least_squares(means[g, m], of_means[g, m], x, inputs, posterior[g, m], prior_here)
                if estimate is None:  # nothing to learn from
                    continue
                coefficients, scatter, total = estimate
                means[g, m], of_means[g, m] = coefficients[0], coefficients[1:].T
                if self.observation.covariance_type == "tied":
                    products, totals = products + scatter, totals + total[0]
                    continue
                seen = total > 0
                new = _clipped_shape(self.observation, scatter / torch.where(seen, total, 1.0))
                shapes[g, m] = new if seen.all() else torch.where(seen, new, shapes[g, m])  # not all seen: diagonal
        if totals > 0:
            shapes[:] = _clipped_shape(self.observation, products / totals)
        if believed is not None:
            counts = counts + believed.count[..., 0]
        log_weights = new_log_weights(torch.where(log_weights == -math.inf, 0.0, counts), log_weights)
        new_slopes = torch.zeros_like(slopes)
        new_slopes[:, columns] = of_means.flatten(1, 2)
        return self.observation.pack(log_weights, means, shapes), new_slopes

    def _posterior(self, rows: Tensor, slopes: Tensor, x: Tensor, inputs: Tensor, gammas: Tensor) -> Tensor:
        """Return the posterior of each state with each of its components in each frame, ``(G, M, N)``."""
        observation = self.observation
        n = observation.n_components
        if n == 1 and not observation.background:
            return gammas.unsqueeze(1)
        one = observation.clone().set_params(n_components=1, background=0.0, prior=None)
        log_weights, means, shapes = observation.unpack_all(rows, self.size)  # a background is the last component
        of_one = one.pack(torch.zeros_like(means[:, :n, :1]), means[:, :n, None], shapes[:, :n, None]).flatten(0, 1)
        slopes_of_one = of_one.new_zeros(*of_one.shape, inputs.shape[1])
        columns = one.locations(self.size)[0]
        slopes_of_one[:, columns] = slopes[:, self.location[0]].unflatten(1, (n, self.size)).flatten(0, 1)
        densities = log_density_given_inputs(one, of_one, slopes_of_one, x, None, inputs).T.unflatten(0, (-1, n))
        if observation.background:
            broad = (means[0, n], shapes[0, n], observation.shape_type, observation.min_covariance)
            of_background = gaussian.log_density(x.double(), *broad)
            densities = torch.cat([densities, of_background.expand(len(rows), 1, -1)], 1)
        joint = log_weights.unsqueeze(-1) + densities
        posterior: Tensor = gammas.unsqueeze(1) * joint.softmax(1)[:, :n]
        return posterior

    def _least_squares(
        self, mean: Tensor, slopes: Tensor, x: Tensor, inputs: Tensor, weights: Tensor, believed: Believed | None
    ) -> tuple[Tensor, Tensor, Tensor] | None:
        """Return the regression of one component.

        Args:
            mean, slopes: ``(D,)`` and ``(D, U)`` before the step, which a feature without frames keeps.
            x, inputs: frames ``(N, D)`` and inputs ``(N, U)``.
            weights: posterior of the component in each frame, ``(N,)``.
            believed: the prior of this component alone, or None.

        Returns:
            Coefficients ``(1 + U, D)``, sums of products of residuals ``(D, D)``, and the number of frames of each
                feature, ``(D,)``; the last two include the pseudo-frames. None if there are no frames.
        """
        design, missing = torch.cat([torch.ones_like(inputs[:, :1]), inputs], 1), torch.isnan(x)
        coefficients = torch.cat([mean[None], slopes.T])
        products, totals = design.new_zeros(self.size, self.size), design.new_zeros(self.size)
        if self.observation.covariance_type == "diag":
            groups = [slice(d, d + 1) for d in range(self.size)]  # features, each with missing values of its own
        else:
            _refuse_missing(self.observation, x)
            groups = [slice(0, self.size)]
        for group in groups:
            seen = torch.where(missing[:, group].any(1), 0.0, weights)
            at_zero = None  # frames of the prior's mean, with inputs of zero
            if believed is not None:
                at_zero = PriorFrames(believed.mean[:, group], torch.eye(1, design.shape[1]).to(x), believed.mean_count)
            solution = weighted_least_squares(torch.nan_to_num(x[:, group]), design, seen, pseudo=at_zero)
            if solution is not None:
                coefficients[:, group], products[group, group], totals[group] = solution
        if believed is not None:
            products = products + torch.diag(believed.count * believed.variance[0])
            totals = totals + believed.count
        return (coefficients, products, totals) if totals.any() else None


@regression_of.register(AutoregressiveGaussian)
class AutoregressiveRegression(InputRegression):
    """The M-step of autoregressive Gaussians given inputs u, ``N(x; A past + c + B u, Σ)``.

    The Gaussian of the first steps of a sequence does not depend on inputs, nor does a background.

    A ``"tied"`` covariance is that of the residuals of all states.
    """

    observation: AutoregressiveGaussian
    has_units = True

    def maximise(
        self, row: Tensor, slopes: Tensor, x: Tensor, past: Tensor | None, inputs: Tensor, gamma: Tensor
    ) -> tuple[Tensor, Tensor]:
        rows, of_rows = self.maximise_all(row[None], slopes[None], x, past, inputs, gamma[None])
        return rows[0], of_rows[0]

    def maximise_all(
        self, rows: Tensor, slopes: Tensor, x: Tensor, past: Tensor | None, inputs: Tensor, gammas: Tensor
    ) -> tuple[Tensor, Tensor]:
        assert past is not None, "an autoregressive observation is always given its past"
        _refuse_missing(self.observation, x)
        history, width = past.flatten(1).double(), self.size * self.observation.order
        later = ~torch.isnan(history).any(1)
        ones = torch.full_like(inputs[later, :1], float(self.observation.intercept))  # of zeros: no intercept
        design = torch.cat([history[later], ones, inputs[later]], 1)
        penalty = design.new_zeros(design.shape[1])
        penalty[:width] = self.observation.ridge
        matrices, intercepts, shapes, *first = (each.clone() for each in self.observation.unpack(rows, self.size))
        new_slopes, columns = slopes.clone(), self.location[0]
        products, totals = design.new_zeros(self.size, self.size), design.new_zeros(())  # of all states, for "tied"
        if self.observation.background:
            gammas = gammas * self._share(rows, slopes, x, past, inputs).T
        for g, gamma in enumerate(gammas):
            solution = weighted_least_squares(x[later], design, gamma[later], penalty, self._at_unit_root(design))
            if solution is None or not solution[2] > 0:  # nothing to learn from
                continue
            coefficients, scatter, total = solution
            matrices[g] = coefficients[:width].T
            intercepts[g] = coefficients[width] if self.observation.intercept else 0.0
            new_slopes[g] = 0.0
            new_slopes[g, columns] = coefficients[width + 1 :].T
            if self.observation.covariance_type == "tied":
                products, totals = products + scatter, totals + total
            else:
                shapes[g] = _clipped_shape(self.observation, scatter / total)
        if totals > 0:
            shapes[:] = _clipped_shape(self.observation, products / totals)
        return self.observation.pack(matrices, intercepts, shapes, *first), new_slopes

    def _share(self, rows: Tensor, slopes: Tensor, x: Tensor, past: Tensor, inputs: Tensor) -> Tensor:
        """Return the probability that each frame follows the regression of each state and is no jump, ``(N, G)``."""
        regressions = replace(self.observation, background=0.0)
        log_density = log_density_given_inputs(regressions, rows, slopes, x, past, inputs)
        log_background = self.observation.log_background(x.double(), past.double()).unsqueeze(1)
        share = add_background(log_density, log_background, self.observation.background, Scratch())
        assert share is not None, "there is a background"
        return share

    def _at_unit_root(self, design: Tensor) -> PriorFrames | None:
        """Return the prior ``unit_root``: for each feature a frame before which the feature was 1 at all lags."""
        if not self.observation.unit_root:
            return None
        identity = torch.eye(self.size).to(design)
        lags = identity.repeat(1, self.observation.order)
        rest = design.new_zeros(self.size, design.shape[1] - lags.shape[1])
        weights = design.new_full((self.size,), float(self.observation.unit_root))
        return PriorFrames(identity, torch.cat([lags, rest], 1), weights)


# -- symbols, bits and counts ------------------------------------------------------------------------------------------


@regression_of.register(Categorical)
class CategoricalRegression(InputRegression):
    """The M-step of categorical emissions given inputs u, with symbol probabilities ``softmax(b + W u)``."""

    observation: Categorical
    has_reference = True

    def maximise(
        self, row: Tensor, slopes: Tensor, x: Tensor, past: Tensor | None, inputs: Tensor, gamma: Tensor
    ) -> tuple[Tensor, Tensor]:
        design = torch.cat([torch.ones_like(inputs[:, :1]), inputs], 1)
        if self.size * design.shape[1] > MOST_COEFFICIENTS:
            raise ValueError(
                f"a regression of {self.size} symbols on {inputs.shape[1]} inputs has {self.size * design.shape[1]} "
                f"coefficients, more than {MOST_COEFFICIENTS}; leave emissions of input_effects out, or use a network"
            )
        counts = gamma.unsqueeze(1) * torch.nn.functional.one_hot(x, self.size)
        before = torch.cat([row.unsqueeze(1), slopes], 1)
        prior = None
        if self.observation.pseudocount:
            prior = row.new_full((self.size,), float(self.observation.pseudocount))
        fitted = multinomial_logistic(counts, design, before - before[:1], at_zero=prior)
        return torch.log_softmax(fitted[:, 0], 0), fitted[:, 1:]


@regression_of.register(ExponentialFamily)
class NaturalRegression(InputRegression):
    """The M-step of exponential families given inputs u, with natural parameters ``η + C u``.

    These are log-odds of bits or log-rates of counts. Each feature has a regression of its own.
    """

    observation: ExponentialFamily

    def maximise(
        self, row: Tensor, slopes: Tensor, x: Tensor, past: Tensor | None, inputs: Tensor, gamma: Tensor
    ) -> tuple[Tensor, Tensor]:
        design = torch.cat([torch.ones_like(inputs[:, :1]), inputs], 1)
        coefficients = torch.cat([row.unsqueeze(1), slopes], 1)
        for d in range(self.size):
            seen = ~torch.isnan(x[:, d])
            fitted = self._fitted(d, x[seen, d], design[seen], gamma[seen], coefficients[d])
            coefficients[d] = fitted
        return coefficients[:, 0], coefficients[:, 1:]

    def _fitted(self, d: int, x: Tensor, design: Tensor, weights: Tensor, coefficients: Tensor) -> Tensor:
        """Return the coefficients ``(F,)`` of feature ``d`` that maximise ``Σ_n w_n (x_n η_n - A(η_n))``.

        ``x (N,)`` is the feature in each frame, and η is ``design (N, F)`` times the coefficients; Newton's method
        starts at ``coefficients``. ``pseudocount`` adds that many frames at the prior mean with inputs of zero.
        """
        count, mean = float(self.observation.pseudocount), float(self.observation.prior_mean(self.size)[d])

        def terms(at: Tensor) -> tuple[float, Tensor, Tensor]:
            sums, _ = all_reduce_sum(list(self._terms(x, design, weights, at)))
            if count:
                zero = torch.eye(1, len(at)).to(at)
                of_prior = self._terms(at.new_tensor([mean]), zero, at.new_tensor([count]), at)
                sums = [a + b for a, b in zip(sums, of_prior, strict=True)]
            return float(sums[0]), sums[1], sums[2]

        def direction(curvature: Tensor, gradient: Tensor) -> Tensor:
            return solved(curvature, gradient.unsqueeze(1))[:, 0]

        def change(step: Tensor) -> Tensor:
            return step * (MOST_NATURAL / step.abs().max()).clamp(max=1.0)

        return newton_maximum(terms, coefficients, direction, change)

    def _terms(self, x: Tensor, design: Tensor, weights: Tensor, at: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        with torch.enable_grad():
            natural = (design @ at).requires_grad_()
            mean = self.observation.expected_value(natural)
            (variance,) = torch.autograd.grad(mean.sum(), natural)
        natural, mean = natural.detach(), mean.detach()
        value = (weights * (x * natural - self.observation.log_normaliser(natural))).sum()
        return value, design.T @ (weights * (x - mean)), (design.T * (weights * variance)) @ design


# -- any other density -------------------------------------------------------------------------------------------------


class DensityRegression(InputRegression):
    """The M-step of any other density whose location parameters are linear in inputs, by Newton's method.

    All output parameters of a state and the slopes of its locations are fitted together. The derivatives of the
    log-density are by automatic differentiation. The objective need not be concave, so that a step goes up along every
    direction of curvature, and is halved until it gains something.
    """

    def units(self, scale: Tensor) -> Tensor:
        return self.observation.location_units(scale)

    def labels(self, names: Sequence[Any]) -> list[Any]:
        return self.observation.location_labels(names)

    def maximise(
        self, row: Tensor, slopes: Tensor, x: Tensor, past: Tensor | None, inputs: Tensor, gamma: Tensor
    ) -> tuple[Tensor, Tensor]:
        places, n = self.places, len(row)
        shape = (len(places), inputs.shape[1])
        seen = gamma > 0
        frames, design, weights = x[seen], inputs[seen], gamma[seen]

        def terms(at: Tensor) -> tuple[float, Tensor, Tensor]:
            size = max(1, NUMBERS_AT_ONCE // (len(at) * n))
            sums = [at.new_zeros(()), torch.zeros_like(at), at.new_zeros(len(at), len(at))]
            for part in zip(frames.split(size), design.split(size), weights.split(size), strict=True):
                sums = [a + b for a, b in zip(sums, self._terms(at[:n], at[n:].view(shape), *part), strict=True)]
            (value, gradient, curvature), _ = all_reduce_sum(sums)
            return float(value) if value.isfinite() else -torch.inf, gradient, curvature

        def change(step: Tensor) -> Tensor:
            return step * (MOST_NATURAL / step.abs().max()).clamp(max=1.0)

        best = newton_maximum(terms, torch.cat([row, slopes[places].flatten()]), uphill, change)
        new_slopes = torch.zeros_like(slopes)
        new_slopes[places] = best[n:].view(shape)
        return best[:n], new_slopes

    def _terms(
        self, row: Tensor, slopes: Tensor, x: Tensor, inputs: Tensor, weights: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return ``Σ_n w_n log p(x_n)``, its gradient ``(Q,)`` and its negative Hessian ``(Q, Q)``.

        The Q = P + L·U coordinates are the output parameters ``row (P,)``, then the ``slopes`` of L of them for U
        inputs.
        """
        places, n = self.places, len(row)
        with torch.enable_grad():
            shift = row.new_zeros(len(x), n)
            shift[:, places] = inputs @ slopes.T
            parameters = (row + shift).requires_grad_()  # (N, P)
            log_prob = self.observation.log_prob(parameters, x)
            (first,) = torch.autograd.grad(log_prob.sum(), parameters, create_graph=True)
            second = [
                torch.autograd.grad(first[:, i].sum(), parameters, retain_graph=True, materialize_grads=True)[0]
                if first.requires_grad
                else torch.zeros_like(first)
                for i in range(n)
            ]
        first, hessians = weights[:, None] * first.detach(), -weights[:, None, None] * torch.stack(second, 1).detach()
        of_slopes = torch.einsum("npl,nu->plu", hessians[:, :, places], inputs).flatten(1)
        of_both = torch.einsum("nlm,nu,nv->lumv", hessians[:, places][:, :, places], inputs, inputs)
        curvature = torch.cat(
            [
                torch.cat([hessians.sum(0), of_slopes], 1),
                torch.cat([of_slopes.T, of_both.reshape(slopes.numel(), slopes.numel())], 1),
            ]
        )
        gradient = torch.cat([first.sum(0), (first[:, places].T @ inputs).flatten()])
        return (weights * log_prob.detach()).sum(), gradient, curvature


@regression_of.register(Columns)
class ColumnsRegression(InputRegression):
    """The M-step of ``Columns`` given inputs: each group of features is fitted by its own regression."""

    observation: Columns

    def __init__(self, observation: Columns, size: int) -> None:
        super().__init__(observation, size)
        self.parts = [(group, regression_of(group.observation, group.size)) for group in observation.parts()]

    def units(self, scale: Tensor) -> Tensor:
        return torch.cat([regression.units(scale[group.columns]) for group, regression in self.parts])

    def labels(self, names: Sequence[Any]) -> list[Any]:
        return [label for group, regression in self.parts for label in regression.labels(names[group.columns])]

    def maximise(
        self, row: Tensor, slopes: Tensor, x: Tensor, past: Tensor | None, inputs: Tensor, gamma: Tensor
    ) -> tuple[Tensor, Tensor]:
        row, slopes = row.clone(), slopes.clone()
        for group, regression in self.parts:
            before = (row[group.outputs], slopes[group.outputs])
            maximised = regression.maximise(*before, group.of(x), group.before(past), inputs, gamma)
            row[group.outputs], slopes[group.outputs] = maximised
        return row, slopes

    def maximise_all(
        self, rows: Tensor, slopes: Tensor, x: Tensor, past: Tensor | None, inputs: Tensor, gammas: Tensor
    ) -> tuple[Tensor, Tensor]:
        rows, slopes = rows.clone(), slopes.clone()
        for group, regression in self.parts:
            before = (rows[:, group.outputs], slopes[:, group.outputs])
            maximised = regression.maximise_all(*before, group.of(x), group.before(past), inputs, gammas)
            rows[:, group.outputs], slopes[:, group.outputs] = maximised
        return rows, slopes


def finite_start(observation: Observation, table: Tensor) -> Tensor:
    """Return output parameters with log-odds, log-rates and the like clipped to a finite range, for a regression's
    start.

    Args:
        observation: the emission distribution.
        table: P output parameters of each of K states, ``(K, P)``.
    """
    if isinstance(observation, Columns):
        parts = [finite_start(group.observation, table[:, group.outputs]) for group in observation.parts()]
        return torch.cat(parts, 1)
    if isinstance(observation, Categorical | ExponentialFamily):
        return table.clamp(-MOST_NATURAL, MOST_NATURAL)
    return table
