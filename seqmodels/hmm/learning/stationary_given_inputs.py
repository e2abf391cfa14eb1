"""The M-step of transitions that depend on inputs where the first state has a stationary distribution."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from seqmodels.common.distributed import all_reduce_sum
from seqmodels.hmm.learning.first_state import differentiable_stationary
from seqmodels.hmm.learning.given_inputs import (
    InputOptions,
    InputStatistics,
    design_of,
    maximised_transitions,
    reference_first,
)
from seqmodels.hmm.parameters import Parameters

MOST_ITERATIONS = 30  # BFGS iterations in one M-step


def maximised_stationary_transitions(
    parameters: Parameters,
    statistics: InputStatistics,
    pseudocounts: Tensor,
    options: InputOptions,
    leaves_freely: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return transitions that depend on inputs after an M-step in which the first state has a stationary distribution.

    The distribution of the first state is the stationary one of the transition matrix at the inputs of the first step.
    The expected log-probability of first states has then no closed form in the coefficients, so BFGS maximises the
    whole objective. It starts from the better of the previous coefficients and of ``maximised_transitions``, which
    ignores the first states; the result is never worse than the previous coefficients.

    Args:
        parameters: the parameters before the M-step.
        statistics: expected transitions and inputs of each step, and posterior and inputs of the first steps.
        pseudocounts: counts added to the transitions at inputs of zero, ``(K, K)``.
        options: which inputs the transitions depend on, and the strength of the prior of slopes.
        leaves_freely: False for those of the K states whose transitions stay unchanged, ``(K,)``.

    Returns:
        The transition matrix at inputs of zero, ``(K, K)``, and the slopes of its logits on U inputs, ``(K, K, U)``.
    """
    from scipy.optimize import minimize

    objective = _StationaryObjective.of(parameters, statistics, pseudocounts, options, leaves_freely)
    assert parameters.transition_slopes is not None
    if not objective.is_free.any():
        return parameters.transition, parameters.transition_slopes
    regressions = maximised_transitions(parameters, statistics, pseudocounts, options)
    before = (parameters.transition, parameters.transition_slopes)
    begun = max([objective.free(*before), objective.free(*regressions)], key=lambda free: objective(free)[0])

    def loss(free: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = objective(free)
        return -value, -gradient

    with np.errstate(invalid="ignore", over="ignore"):  # because a step may reach a chain that is not irreducible
        searched = minimize(loss, begun, jac=True, method="BFGS", options={"maxiter": MOST_ITERATIONS}).x
    best = max([begun, searched], key=lambda free: objective(free)[0])
    return objective.transitions(best)


@dataclass(frozen=True)
class _StationaryObjective:
    """The objective of an M-step as a function of the free transition coefficients, summed over processes.

    The logits of each row are relative to one of its transitions, the reference, whose coefficients are not free.

    Attributes:
        counts: expected transitions into each step, ``(N, K, K)``.
        design: regressors of each step, ``(N, F)``: a one, then the inputs.
        first: posterior of the first state of each sequence, ``(n, K)``.
        first_design: regressors of the first step of each sequence, ``(n, F)``.
        pseudocounts: counts added to the transitions at inputs of zero, ``(K, K)``.
        allowed: True for transitions that are possible, ``(K, K)``.
        is_free: True for transitions with free coefficients, ``(K, K)``: all possible ones but the reference of each
            row, and but frozen rows.
        fixed: coefficients that are not free, ``(K, K, F)``; zeros for rows that are.
        columns: columns of the inputs that transitions depend on.
        n_inputs: number of inputs of the model, U.
        ridge: precision of the Gaussian prior of the slopes.
    """

    counts: Tensor
    design: Tensor
    first: Tensor
    first_design: Tensor
    pseudocounts: Tensor
    allowed: Tensor
    is_free: Tensor
    fixed: Tensor
    columns: list[int]
    n_inputs: int
    ridge: float

    @classmethod
    def of(
        cls,
        parameters: Parameters,
        statistics: InputStatistics,
        pseudocounts: Tensor,
        options: InputOptions,
        leaves_freely: Tensor,
    ) -> _StationaryObjective:
        assert statistics.transitions is not None
        assert statistics.first is not None
        assert statistics.first_inputs is not None
        columns, allowed = list(options.transition), parameters.transition > 0
        is_free = allowed.clone()
        for i, row in enumerate(allowed):
            is_free[i, reference_first(i, row.nonzero()[:, 0].tolist())[0]] = False
        is_fixed = ~leaves_freely.to(allowed.device)
        is_free &= ~is_fixed[:, None]
        assert parameters.transition_slopes is not None
        before = _coefficients_of(parameters.transition, parameters.transition_slopes[:, :, columns], allowed)
        return cls(
            statistics.transitions,
            design_of(statistics.inputs, columns),
            statistics.first,
            design_of(statistics.first_inputs, columns),
            pseudocounts.expand_as(allowed),
            allowed,
            is_free,
            torch.where(is_fixed[:, None, None], before, 0.0),
            columns,
            options.n_inputs,
            options.ridge,
        )

    def free(self, transition: Tensor, slopes: Tensor) -> np.ndarray:
        """Return the free coefficients as one vector, relative to the reference transition of each row.

        Args:
            transition: transition matrix at inputs of zero, ``(K, K)``.
            slopes: slopes of its logits on U inputs, ``(K, K, U)``.
        """
        both = _coefficients_of(transition, slopes[:, :, self.columns], self.allowed)
        reference = (self.allowed & ~self.is_free).double()
        relative: np.ndarray = (both - torch.einsum("ij,ijf->if", reference, both)[:, None])[self.is_free].cpu().numpy()
        return relative.ravel()

    def transitions(self, free: np.ndarray) -> tuple[Tensor, Tensor]:
        """Return the transition matrix at inputs of zero, ``(K, K)``, and the slopes of its logits, ``(K, K, U)``.

        ``free`` is a vector of free coefficients, as the method ``free`` returns it.
        """
        both = self._coefficients(torch.as_tensor(free, device=self.design.device))
        slopes = both.new_zeros(*self.allowed.shape, self.n_inputs)
        slopes[:, :, self.columns] = both[..., 1:]
        return self._log_p(both[..., 0]).exp(), slopes

    def __call__(self, free: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the objective in nats and its gradient at ``free``, a vector of free coefficients.

        The value is -inf, and the gradient zero, where the chain has no unique stationary distribution at some inputs.
        """
        with torch.enable_grad():
            at = torch.tensor(free, device=self.design.device, requires_grad=True)
            of_data, of_prior = self._values(at)
            (gradient,) = torch.autograd.grad(of_data, at, retain_graph=True)
            gradient_of_prior = torch.autograd.grad(of_prior, at)[0]
        (value, gradient), _ = all_reduce_sum([of_data.detach().view(1), gradient], [])
        total, slope = value + of_prior.detach(), gradient + gradient_of_prior
        if not bool(torch.isfinite(total).all() & torch.isfinite(slope).all()):
            return -np.inf, np.zeros(len(free))
        return float(total), slope.cpu().numpy()

    def _coefficients(self, free: Tensor) -> Tensor:
        places = (self.is_free.nonzero()[:, 0], self.is_free.nonzero()[:, 1])
        return self.fixed.index_put(places, free.view(-1, self.fixed.shape[2]))

    def _log_p(self, logits: Tensor) -> Tensor:
        """Return log-probabilities of transitions for logits ``(..., K, K)``: -inf where these are impossible."""
        return torch.where(self.allowed, logits, -torch.inf).log_softmax(-1)

    def _values(self, free: Tensor) -> tuple[Tensor, Tensor]:
        both = self._coefficients(free)

        def expected(counts: Tensor, design: Tensor) -> Tensor:
            log_p = self._log_p(torch.einsum("nf,ijf->nij", design, both))
            return (counts * torch.where(self.allowed, log_p, 0.0)).sum()

        of_first = self._log_p(torch.einsum("nf,ijf->nij", self.first_design, both)).exp()
        # NaN instead of an error where no stationary distribution exists, because every process must reach the sum.
        log_initial = differentiable_stationary(of_first, refuses=False).clamp(min=np.finfo(float).tiny).log()
        of_data = expected(self.counts, self.design) + (self.first * log_initial).sum()
        at_zero = torch.eye(1, both.shape[2], dtype=both.dtype, device=both.device)
        centred = both - (both * self.allowed.unsqueeze(2)).sum(1, keepdim=True) / self.allowed.sum(1)[:, None, None]
        slopes = torch.where(self.allowed.unsqueeze(2), centred, 0.0)[..., 1:]
        return of_data, expected(self.pseudocounts[None], at_zero) - 0.5 * self.ridge * slopes.square().sum()


def _coefficients_of(transition: Tensor, slopes: Tensor, allowed: Tensor) -> Tensor:
    logits = torch.where(allowed, transition, 1.0).log()
    return torch.cat([logits.unsqueeze(2), slopes], 2)
