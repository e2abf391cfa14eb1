"""Emissions that depend on inputs: output parameters ``θ_k + C_k u_t`` of state k at step t, and their M-step.

Only location parameters depend on inputs: means of Gaussians (linear regression by weighted least squares), log-odds of
symbols and bits, log-rates of counts (generalised linear models by Newton's method), and what ``Observation.locations``
names of any other density (Newton's method on its derivatives). Under distributed training each process has a share of
the frames, and sums over frames are summed over all processes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import singledispatch
from typing import Any, ClassVar

import torch
from torch import Tensor

from seqmodels.common.distributed import all_reduce_sum
from seqmodels.hmm.emissions import Emission, quadratic
from seqmodels.hmm.emissions.logistic import multinomial_logistic
from seqmodels.hmm.emissions.newton import newton_maximum, solved, uphill
from seqmodels.observations import AutoregressiveGaussian, Categorical, Columns, GaussianMixture, Observation, gaussian
from seqmodels.observations.exponential_family import ExponentialFamily

NUMBERS_AT_ONCE = 1 << 22  # output parameters of frames and states that are held at once
MOST_COEFFICIENTS = 1000  # most of a regression of symbols, because Newton's method solves for all of them at once
MOST_NATURAL = 15.0  # largest log-odds and log-rates at a start, because a regression cannot start at infinity


def log_density_given_inputs(
    observation: Observation, table: Tensor, slopes: Tensor, x: Tensor, past: Tensor | None, inputs: Tensor
) -> Tensor:
    """Return the log-density of each frame in each state given its inputs, ``(N, K)`` in nats.

    Args:
        observation: the observation of each state.
        table: output parameters where all inputs are zero, ``(K, P)``.
        slopes: change of each output parameter per unit of each input, ``(K, P, U)``.
        x: encoded frames, ``(N, ...)``.
        past: the p steps before each frame, ``(N, p, D)``, or None.
        inputs: ``(N, U)``.
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
    """The columns of a table of output parameters ``(K, P)`` that depend linearly on inputs.

    There are L such columns, called locations; each has one slope for each input. To add a kind, define the abstract
    methods below, and register the emission that has them with ``regressed_columns``.
    """

    has_reference: ClassVar[bool] = False  # True if the slopes of the first output parameter are fixed at zero
    has_units: ClassVar[bool] = False  # True if a location has the unit of its feature, such as a mean

    @property
    @abstractmethod
    def location(self) -> list[slice]:
        """Slices of the P output parameters that cover the L columns that depend on inputs."""

    @property
    def places(self) -> list[int]:
        """Indices, among the P output parameters, of the L columns that depend on inputs."""
        return [place for each in self.location for place in range(each.start, each.stop)]

    def units(self, scale: Tensor) -> Tensor:
        """Return the factor from encoded to raw units of each of the L columns, ``(L,)``.

        ``scale (D,)`` is this factor for each feature. Columns without a unit, such as log-odds, have 1.
        """
        return scale if self.has_units else scale.new_ones(len(self.places))

    def labels(self, names: Sequence[Any]) -> list[Any]:
        """Return a label for each of the L columns, given the names of features or symbols; by default these names."""
        return list(names)

    @property
    def n_free(self) -> int:
        """Number of the L columns whose slopes are free parameters."""
        return len(self.places) - self.has_reference


class InputRegression(RegressedColumns):
    """The M-step of an observation whose location parameters depend on inputs, over D features or V symbols.

    To add one, define ``maximise``, and ``locations`` of the observation, and put
    ``@regression_of.register(MyObservation)`` before the class.
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
        """Return output parameters ``(P,)`` and slopes ``(P, U)`` of one state that are no worse than those given.

        Args:
            row, slopes: output parameters ``(P,)`` and slopes ``(P, U)`` before the step.
            x, past: N encoded frames, and the steps before each, or None.
            inputs: ``(N, U)``.
            gamma: posterior of the state in each frame, ``(N,)`` float64.
        """


@singledispatch
def regression_of(observation: Observation, size: int) -> InputRegression:
    """Return the M-step of an observation whose locations depend on inputs, over ``size`` features or symbols.

    Raises:
        ValueError: the observation cannot depend on inputs, or not with its present hyperparameters.
    """
    if observation.locations(size):
        return DensityRegression(observation, size)
    raise ValueError(
        f"{observation!r} cannot depend on inputs, because it has no locations; pass a density that has, such as "
        "GaussianMixture(1), StudentT, Gamma or Poisson, or leave emissions of input_effects out"
    )


@singledispatch
def regressed_columns(emission: Emission) -> RegressedColumns:
    """Return which output parameters of an emission depend on inputs: by default those of its observation.

    Raises:
        ValueError: the observation cannot depend on inputs, or not with its present hyperparameters.
    """
    return regression_of(emission.observation, emission.size)


# -- Gaussians ---------------------------------------------------------------------------------------------------------


def weighted_least_squares(
    x: Tensor, design: Tensor, weights: Tensor, penalty: Tensor
) -> tuple[Tensor, Tensor, Tensor] | None:
    """Return coefficients ``(F, D)``, residual products ``(D, D)`` and the sum of weights of a ridge regression.

    It minimises ``Σ_n w_n |x_n - Bᵀ z_n|² + Σ_f penalty_f |B_f|²``; the residual products include the penalty. Return
    None if the weights sum to zero.

    Args:
        x: responses, ``(N, D)``.
        design: regressors z, ``(N, F)``.
        weights: weight of each frame, ``(N,)``.
        penalty: ridge penalty of each regressor, ``(F,)``.
    """
    weighted = weights.unsqueeze(1) * design
    (gram, cross, total), _ = all_reduce_sum([weighted.T @ design, weighted.T @ x, weights.sum()])
    if not total > 0:
        return None
    coefficients = solved(gram + torch.diag(penalty), cross)
    residual = x - design @ coefficients
    (products,), _ = all_reduce_sum([(weights.unsqueeze(1) * residual).T @ residual])
    return coefficients, products + (penalty.unsqueeze(1) * coefficients).T @ coefficients, total


def _refuse_missing(observation: Observation, x: Tensor) -> None:
    if torch.isnan(x).any():
        raise ValueError(
            f"some values are missing, but {observation!r} given inputs is fitted to complete frames only; fill the "
            "missing values in, or pass GaussianMixture(1), whose covariances are diagonal"
        )


@regression_of.register(GaussianMixture)
class GaussianRegression(InputRegression):
    """The M-step of ``N(x; μ + B u, Σ)``, one Gaussian for each state.

    Raises:
        ValueError: the mixture has several components, a prior, a background, or a ``"tied"`` or ``"lowrank"``
            covariance.
    """

    observation: GaussianMixture
    has_units = True

    def __init__(self, observation: GaussianMixture, size: int) -> None:
        super().__init__(observation, size)
        kinds = ("diag", "spherical", "full")
        is_plain = observation.n_components == 1 and observation.prior is None and not observation.background
        if not is_plain or observation.covariance_type not in kinds:
            raise ValueError(
                f"{observation!r} cannot depend on inputs; pass a GaussianMixture(1) without prior and background, "
                f"whose covariance_type is one of {', '.join(map(repr, kinds))}"
            )

    def maximise(
        self, row: Tensor, slopes: Tensor, x: Tensor, past: Tensor | None, inputs: Tensor, gamma: Tensor
    ) -> tuple[Tensor, Tensor]:
        design, missing = torch.cat([torch.ones_like(inputs[:, :1]), inputs], 1), torch.isnan(x)
        log_weights, means, shapes = self.observation.unpack(row, self.size)
        coefficients = torch.cat([means, slopes[self.location[0]].T])  # (1 + U, D)
        penalty = design.new_zeros(design.shape[1])
        covariance = None
        if self.observation.covariance_type == "diag":
            variances = gaussian.variances_of_shape(shapes[0], self.observation.min_covariance)
            for d in range(self.size):
                seen = torch.where(missing[:, d], 0.0, gamma)
                solution = weighted_least_squares(
                    torch.where(missing[:, d], 0.0, x[:, d])[:, None], design, seen, penalty
                )
                if solution is not None:
                    coefficients[:, d], variances[d] = solution[0][:, 0], solution[1][0, 0] / solution[2]
            covariance = torch.diag(variances)
        else:
            _refuse_missing(self.observation, x)
            solution = weighted_least_squares(x, design, gamma, penalty)
            if solution is not None:
                coefficients, covariance = solution[0], solution[1] / solution[2]
        if covariance is not None:
            shapes = self._shape(covariance).unsqueeze(0)
        new_slopes = torch.zeros_like(slopes)
        new_slopes[self.location[0]] = coefficients[1:].T
        return self.observation.pack(log_weights, coefficients[:1], shapes), new_slopes

    def _shape(self, covariance: Tensor) -> Tensor:
        floor = self.observation.min_covariance
        if self.observation.covariance_type == "full":
            return gaussian.shape_of_covariance(quadratic.clip_eigenvalues(covariance, floor))
        variances = covariance.diagonal()
        if self.observation.covariance_type == "spherical":
            variances = variances.mean().expand(self.size)
        return variances.clamp(min=floor).log()


@regression_of.register(AutoregressiveGaussian)
class AutoregressiveRegression(InputRegression):
    """The M-step of ``N(x; A past + c + B u, Σ)``; the Gaussian of the first steps does not depend on inputs.

    Raises:
        ValueError: the observation has a ``unit_root`` prior.
    """

    observation: AutoregressiveGaussian
    has_units = True

    def __init__(self, observation: AutoregressiveGaussian, size: int) -> None:
        super().__init__(observation, size)
        if observation.unit_root:
            raise ValueError(
                f"{observation!r} cannot depend on inputs; pass unit_root=0, or leave emissions of input_effects out"
            )

    def maximise(
        self, row: Tensor, slopes: Tensor, x: Tensor, past: Tensor | None, inputs: Tensor, gamma: Tensor
    ) -> tuple[Tensor, Tensor]:
        assert past is not None, "an autoregressive observation is always given its past"
        _refuse_missing(self.observation, x)
        history, width = past.flatten(1).double(), self.size * self.observation.order
        later = ~torch.isnan(history).any(1)
        ones = torch.ones_like(inputs[later, :1])
        design = torch.cat([history[later], ones, inputs[later]], 1)
        penalty = design.new_zeros(design.shape[1])
        penalty[:width] = self.observation.ridge
        solution = weighted_least_squares(x[later], design, gamma[later], penalty)
        if solution is None:
            return row, slopes
        coefficients, products, total = solution
        _, _, _, first_mean, first_shape = self.observation.unpack(row, self.size)
        covariance, floor = products / total, self.observation.min_covariance
        if self.observation.covariance_type == "diag":
            shape = covariance.diagonal().clamp(min=floor).log()
        else:
            shape = gaussian.shape_of_covariance(quadratic.clip_eigenvalues(covariance, floor))
        new_slopes = torch.zeros_like(slopes)
        new_slopes[self.location[0]] = coefficients[width + 1 :].T
        matrix = coefficients[:width].T
        return self.observation.pack(matrix, coefficients[width], shape, first_mean, first_shape), new_slopes


# -- symbols, bits and counts ------------------------------------------------------------------------------------------


@regression_of.register(Categorical)
class CategoricalRegression(InputRegression):
    """The M-step of symbols with probabilities ``softmax(b + W u)``."""

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
    """The M-step of natural parameters ``η + C u``: log-odds of bits or log-rates of counts.

    Each feature has a regression of its own.
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
    """The M-step of a density whose ``Observation.locations`` are linear in inputs, by Newton's method.

    All P output parameters of a state and the slopes of its L locations are maximised together. The derivatives of the
    log-density are by automatic differentiation. It need not be concave, so that a step goes up along every direction
    of curvature, and is halved until it gains something.
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
    """The M-step of ``Columns`` given inputs: each group of columns is maximised by its own regression."""

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


def finite_start(observation: Observation, table: Tensor) -> Tensor:
    """Return ``table``, ``(K, P)``, with natural parameters clipped to a finite range, where a regression can start."""
    if isinstance(observation, Columns):
        parts = [finite_start(group.observation, table[:, group.outputs]) for group in observation.parts()]
        return torch.cat(parts, 1)
    if isinstance(observation, Categorical | ExponentialFamily):
        return table.clamp(-MOST_NATURAL, MOST_NATURAL)
    return table
