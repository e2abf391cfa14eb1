"""Student t densities of the innovations of the Kalman filter, with one scale or a scale that follows the past."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from seqmodels.inference.gaussian.kalman import Gains, filter_group
from seqmodels.inference.gaussian.missing import innovations_of_block
from seqmodels.linear_gaussian.learning.statistics import SystemData
from seqmodels.linear_gaussian.parameters import Form, SystemParameters

InnovationsType = Literal["gaussian", "t", "beta-t-egarch"]
N_PARAMETERS: dict[InnovationsType, int] = {"gaussian": 0, "t": 2, "beta-t-egarch": 3}
LEAST_DEGREES = 2.0  # below which there is no variance
# At most, for each feature: few training steps cannot tell more, and Gaussian data lose no more than 0.006 nats a step.
DEGREES_OF_A_FEATURE = 10.0
# A scale that follows costs less than half its gain in nats a step where the true one is constant. It does follow under
# the smallest gain, whose memory is 25 steps, also where the training sequences gave no reason to.
GAINS = 0.02, 1.0
LEAST_SCALE = 1e-2  # in deviations of the filter: repeated values would make the density unbounded
LARGEST_SCALE = 1e40
TOL = 1e-12  # of the search, in nats a step
FIRST_DEGREES, FIRST_GAINS = 5.0, (0.05, 0.2)  # from where the search starts


@dataclass(frozen=True)
class InnovationSteps:
    """The innovations of the Gaussian Kalman filter at all N steps of sequences that stand one after another.

    Attributes:
        lengths: number of steps of each sequence, ``(n,)``.
        squares: sum of the squares of the standardised innovations of a step, ``(N,)``.
        n_observed: number of observed features of a step, ``(N,)``.
        log_det: logarithm of the determinant of the factor of the innovation's covariance, ``(N,)``.
    """

    lengths: np.ndarray
    squares: np.ndarray
    n_observed: np.ndarray
    log_det: np.ndarray

    @classmethod
    def of(cls, parameters: SystemParameters, form: Form, corpus: SystemData) -> InnovationSteps:
        """Return the innovations of all sequences of a corpus.

        Args:
            parameters: parameters of the system.
            form: which inputs the system reads.
            corpus: the sequences.
        """
        lengths = np.array([len(x) for x in corpus.values])
        starts = np.cumsum(lengths) - lengths
        squares, log_det = np.empty((2, lengths.sum()))
        n_observed = np.concatenate([np.isfinite(x).sum(1, dtype=np.float64) for x in corpus.values])
        blocks = corpus.missing if form.observation_noise == "diag" else []
        for block in blocks:
            of_block = innovations_of_block(parameters.system, parameters.intercept, block)
            for i, *each in zip(block.numbers, *(x.T for x in of_block), strict=True):
                rows = slice(starts[i], starts[i] + lengths[i])
                squares[rows], log_det[rows] = (x[: lengths[i]] for x in each)
        done = {int(i) for block in blocks for i in block.numbers}
        for group, _ in corpus.groups(parameters, form, without=done):
            system = parameters.system_over(group.gaps)
            filtered = filter_group(system, Gains.of(system, group.packing.n_steps, group.observed), group)
            step = np.repeat(np.arange(group.packing.n_steps), group.packing.counts)
            at = starts[group.numbers[group.packing.order]][group.packing.ranks] + step
            squares[at], log_det[at] = filtered.squares, filtered.log_det
        return cls(lengths, squares, n_observed, log_det)


@dataclass(frozen=True)
class StudentTInnovations:
    """The Student t density of the standardised innovations of a Kalman filter, as ``fit`` has estimated it::

        w_t ~ t(0, e^(2 λ_t) I; ν),  λ_1 = log scale
        λ_t+1 = λ_t + gain / D ((ν + n_t) b_t - n_t),  b_t = q_t / (q_t + ν e^(2 λ_t))

    Here w_t has n_t observed features of D, and q_t is the sum of their squares. λ_t+1 - λ_t is ``gain / D`` times the
    derivative of the log-density of w_t by λ_t (Harvey and Chakravarty 2008, *Beta-t-(E)GARCH*), which is 0 for a step
    of which nothing is observed.

    Attributes:
        degrees_of_freedom: ν, 2 to 10 D.
        scale: scale of the t density at the first step of a sequence, in deviations of the Gaussian innovations.
        gain: 0 if the scale is the same at all steps; else 0.02 to 1.
        n_features: number of features D.
        least_scale: lower bound of the scale.
    """

    degrees_of_freedom: float
    scale: float
    gain: float
    n_features: int
    least_scale: float = LEAST_SCALE

    @classmethod
    def fitted(
        cls, steps: InnovationSteps, weights: np.ndarray, n_features: int, *, follows: bool
    ) -> StudentTInnovations:
        """Return the density that makes the innovations of the training sequences most probable.

        Args:
            steps: innovations of the training sequences.
            weights: weight of each sequence, ``(n,)``.
            n_features: number of features D.
            follows: True if the scale follows past innovations; False if it is the same at all steps.
        """
        from scipy.optimize import minimize

        each = np.repeat(weights, steps.lengths)

        def made(numbers: np.ndarray) -> StudentTInnovations:
            degrees, scale = np.exp(numbers[:2]).tolist()
            return cls(degrees, scale, math.exp(numbers[2]) if follows else 0.0, n_features)

        def loss(numbers: np.ndarray) -> float:
            return -float(each @ made(numbers).log_prob(steps)) / float(each.sum())

        degrees, scales = (LEAST_DEGREES, DEGREES_OF_A_FEATURE * n_features), (LEAST_SCALE, LARGEST_SCALE)
        bounds = np.log([degrees, scales, GAINS][: 2 + follows])
        limits = [(float(low), float(high)) for low, high in bounds]
        results = [
            minimize(loss, np.log([FIRST_DEGREES, 1.0, gain])[: len(limits)], method="L-BFGS-B", bounds=limits, tol=TOL)
            for gain in FIRST_GAINS[: 1 + follows]
        ]
        return made(min(results, key=lambda result: float(result.fun)).x)

    @classmethod
    def of_numbers(cls, numbers: np.ndarray, n_features: int) -> StudentTInnovations:
        """Return the density that ``numbers`` has described, after checking what a file holds.

        Raises:
            ValueError: numbers that are not finite, degrees of freedom or a scale of 0 or less, or a negative gain.
        """
        degrees, scale, gain = map(float, numbers)
        if not (np.isfinite(numbers).all() and min(degrees, scale) > 0 and gain >= 0):
            raise ValueError(f"its innovations have the numbers {numbers}, which are no Student t density")
        return cls(degrees, scale, gain, n_features)

    def log_scales(self, steps: InnovationSteps) -> np.ndarray:
        """Return λ_t, the logarithm of the scale at each step, ``(N,)``."""
        first = float(np.log(self.scale))
        if not self.gain:
            return np.full(len(steps.squares), first)
        from seqmodels.inference.gaussian.compiled_scales import follow_scales

        log_scales = np.empty(len(steps.squares))
        numbers = (self.degrees_of_freedom, first, self.gain / self.n_features, float(np.log(self.least_scale)))
        follow_scales(steps.squares, steps.n_observed, steps.lengths, *numbers, log_scales)
        return log_scales

    def log_prob(self, steps: InnovationSteps) -> np.ndarray:
        """Return the log-density of each step given those before, in nats, ``(N,)``."""
        from scipy import special

        nu, n, log_scales = self.degrees_of_freedom, steps.n_observed, self.log_scales(steps)
        constant = special.gammaln(0.5 * (nu + n)) - special.gammaln(0.5 * nu) - 0.5 * n * np.log(np.pi * nu)
        tails = 0.5 * (nu + n) * np.log1p(steps.squares * np.exp(-2 * log_scales) / nu)
        return np.asarray(constant - n * log_scales - steps.log_det - tails)

    def after(self, log_scale: Tensor, squares: Tensor, n_observed: Tensor) -> Tensor:
        """Return the logarithm λ of the scale of each of n sequences after a step, ``(n,)``.

        Args:
            log_scale: λ at the step, ``(n,)``.
            squares: sum of the squares of the standardised innovations, ``(n,)``.
            n_observed: number of observed features, ``(n,)``.
        """
        share = squares / (squares + self.degrees_of_freedom * torch.exp(2 * log_scale))
        score = (self.degrees_of_freedom + n_observed) * share - n_observed
        moved = log_scale + self.gain / self.n_features * score
        return moved.clamp(min=float(np.log(self.least_scale))) if self.gain else log_scale

    def floor_hits(self, steps: InnovationSteps) -> int:
        """Return 1 if the scale is at its lower bound at a step, else 0."""
        return int(self.log_scales(steps).min() <= np.log(self.least_scale) + 1e-6)

    def with_floor(self, factor: float) -> StudentTInnovations:
        """Return the density with the lower bound of its squared scale multiplied by ``factor``."""
        least = self.least_scale * float(np.sqrt(factor))
        at_floor = self.scale <= self.least_scale * (1 + 1e-6)
        return replace(self, least_scale=least, scale=least if at_floor else max(self.scale, least))

    def numbers(self) -> np.ndarray:
        """Return the degrees of freedom, the scale and the gain, in the form that files store, ``(3,)``."""
        return np.array([self.degrees_of_freedom, self.scale, self.gain])
