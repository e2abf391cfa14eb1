"""What EM learns of inputs: transitions by multinomial logistic regression, emissions by linear or generalised linear.

The sufficient statistics are the posterior of each step beside its inputs; those of two batches stand one after the
other, and each process keeps its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqmodels.common.distributed import all_reduce_sum
from seqmodels.hmm.emissions import Emission
from seqmodels.hmm.emissions.given_inputs import finite_start, regression_of
from seqmodels.hmm.emissions.logistic import multinomial_logistic
from seqmodels.hmm.learning.first_state import differentiable_stationary
from seqmodels.hmm.parameters import Parameters

MOST_ITERATIONS = 30  # of a search in an M-step


@dataclass(frozen=True)
class InputOptions:
    """What is regressed on which of the U inputs of a model.

    Attributes:
        n_inputs: U.
        transition: the columns that transitions are regressed on; none: they are the same at all inputs.
        emission: the same of emissions.
        ridge: of the slopes of transitions: the prior ``-½ ridge Σ slope²``, slopes of a row less their mean.
    """

    n_inputs: int = 0
    transition: tuple[int, ...] = ()
    emission: tuple[int, ...] = ()
    ridge: float = 0.0

    def started(self, parameters: Parameters, emission: Emission) -> Parameters:
        """With slopes of zero."""
        if self.transition:
            slopes = parameters.transition.new_zeros(*parameters.transition.shape, self.n_inputs)
            parameters = replace(parameters, transition_slopes=slopes)
        if self.emission:
            table = finite_start(emission.observation, parameters.table)
            parameters = replace(parameters, table=table, table_slopes=table.new_zeros(*table.shape, self.n_inputs))
        return parameters

    def n_parameters(self, allowed: Tensor, is_free: Tensor, emits_freely: Tensor, emission: Emission) -> int:
        """Free slopes: of transitions where ``allowed (K, K)`` of the states whose row ``is_free (K,)``, and of
        emissions of those that ``emits_freely (K,)``.
        """
        of_transitions = len(self.transition) * int((allowed.sum(1) - 1)[is_free].clamp(min=0).sum())
        if not self.emission:
            return of_transitions
        n_free = regression_of(emission.observation, emission.size).n_free
        return of_transitions + len(self.emission) * n_free * int(emits_freely.sum())

    def log_prior(self, parameters: Parameters) -> float:
        """``log p`` of the transitions' slopes under the Gaussian of ``ridge``, in nats, up to a constant."""
        if parameters.transition_slopes is None or not self.ridge:
            return 0.0
        total = 0.0
        for row, slopes in zip(parameters.transition > 0, parameters.transition_slopes, strict=True):
            total += float((slopes[row] - slopes[row].mean(0)).square().sum()) if row.any() else 0.0
        return -0.5 * self.ridge * total


@dataclass(frozen=True)
class InputStatistics:
    """The posterior of N steps, and what of them a regression reads; None: what none reads.

    Attributes:
        inputs: (N, U).
        transitions: (N, K, K) float64, expected transitions into each step, zeros of first ones.
        x: (N, ...) encoded frames.
        past: (N, p, D) those before each.
        gamma: (N, K) float64.
    """

    inputs: Tensor
    transitions: Tensor | None = None
    x: Tensor | None = None
    past: Tensor | None = None
    gamma: Tensor | None = None

    def __add__(self, other: InputStatistics) -> InputStatistics:
        pairs = {f.name: (getattr(self, f.name), getattr(other, f.name)) for f in fields(self)}
        return InputStatistics(**{name: torch.cat(pair) for name, pair in pairs.items() if pair[0] is not None})

    def scaled(self, factor: float) -> InputStatistics:
        """Those of ``factor`` times the data."""
        transitions, gamma = (None if each is None else factor * each for each in (self.transitions, self.gamma))
        return replace(self, transitions=transitions, gamma=gamma)

    def arrays(self) -> dict[str, Any]:
        """By name, to be stored."""
        return {name: each.cpu().numpy() for name, each in vars(self).items() if each is not None}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any], device: torch.device) -> InputStatistics:
        """The inverse of ``arrays``."""
        return cls(**{name: torch.tensor(array, device=device) for name, array in arrays.items()})


def maximised_transitions(
    parameters: Parameters, statistics: InputStatistics, pseudocounts: Tensor, options: InputOptions
) -> tuple[Tensor, Tensor]:
    """``(K, K)`` and ``(K, K, U)``: transitions where all inputs are zero, and their slopes.

    Each row is a regression of its own; the slopes of a state to itself are zero, or to the first that it leads to.

    Args:
        pseudocounts: ``(K, K)`` of transitions where all inputs are zero.
    """
    assert parameters.transition_slopes is not None
    assert statistics.transitions is not None
    columns = list(options.transition)
    u = statistics.inputs[:, columns].double()
    design = torch.cat([torch.ones_like(u[:, :1]), u], 1)
    transition, slopes = parameters.transition.clone(), parameters.transition_slopes.clone()
    for i in range(len(transition)):
        leads_to = _reference_first(i, (transition[i] > 0).nonzero()[:, 0].tolist())
        if len(leads_to) < 2:
            continue
        intercepts = transition[i, leads_to].log()
        before = torch.cat([intercepts[:, None], slopes[i, leads_to][:, columns]], 1)
        fitted = multinomial_logistic(
            statistics.transitions[:, i, leads_to].double(),
            design,
            before - before[:1],
            ridge=options.ridge,
            at_zero=pseudocounts[i, leads_to],
        )
        transition[i, leads_to] = torch.softmax(fitted[:, 0], 0)
        new_slopes = slopes.new_zeros(len(leads_to), slopes.shape[2])
        new_slopes[:, columns] = fitted[:, 1:]
        slopes[i, leads_to] = new_slopes
    return transition, slopes


def maximised_stationary_transitions(
    parameters: Parameters, statistics: InputStatistics, pseudocounts: Tensor, options: InputOptions
) -> tuple[Tensor, Tensor]:
    """``maximised_transitions`` where the first state of a sequence has the stationary distribution of the transitions
    given the inputs of its first step.

    The expected log-probability of first states has no closed form: a quasi-Newton search goes on from the regressions
    without it, or from the parameters before where these are better, and is never below the latter.

    Args:
        statistics: with ``gamma``, which is read at first steps, those that no transition leads to.
    """
    from scipy.optimize import minimize

    objective = _StationaryObjective.of(parameters, statistics, pseudocounts, options)
    regressions = maximised_transitions(parameters, statistics, pseudocounts, options)
    assert parameters.transition_slopes is not None
    before = (parameters.transition, parameters.transition_slopes)
    begun = max([objective.free(*before), objective.free(*regressions)], key=lambda free: objective(free)[0])

    def loss(free: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = objective(free)
        return -value, -gradient

    with np.errstate(invalid="ignore", over="ignore"):  # of steps to where there is no stationary distribution
        searched = minimize(loss, begun, jac=True, method="BFGS", options={"maxiter": MOST_ITERATIONS}).x
    best = max([begun, searched], key=lambda free: objective(free)[0])
    return objective.transitions(best)


@dataclass(frozen=True)
class _StationaryObjective:
    """What an M-step maximises, of the coefficients of all transitions but one of each state; of all processes.

    Attributes:
        counts: (N, K, K) expected transitions.
        design: (N, F) ones, then inputs.
        first: (n, K) expected first states, and their ``first_design`` (n, F).
        pseudocounts: (K, K) of transitions where all inputs are zero.
        allowed, is_free: (K, K) bool, which transitions there are, and all of them but one of each row.
        columns: of the inputs, among ``n_inputs``.
        ridge: of the slopes.
    """

    counts: Tensor
    design: Tensor
    first: Tensor
    first_design: Tensor
    pseudocounts: Tensor
    allowed: Tensor
    is_free: Tensor
    columns: list[int]
    n_inputs: int
    ridge: float

    @classmethod
    def of(
        cls, parameters: Parameters, statistics: InputStatistics, pseudocounts: Tensor, options: InputOptions
    ) -> _StationaryObjective:
        assert statistics.transitions is not None
        assert statistics.gamma is not None
        columns = list(options.transition)
        u = statistics.inputs[:, columns].double()
        design, allowed = torch.cat([torch.ones_like(u[:, :1]), u], 1), parameters.transition > 0
        is_first = (statistics.transitions == 0).all(2).all(1) & (statistics.gamma > 0).any(1)  # of some weight
        is_free = allowed.clone()
        for i, row in enumerate(allowed):
            is_free[i, _reference_first(i, row.nonzero()[:, 0].tolist())[0]] = False
        return cls(
            statistics.transitions,
            design,
            statistics.gamma[is_first],
            design[is_first],
            pseudocounts.expand_as(allowed),
            allowed,
            is_free,
            columns,
            options.n_inputs,
            options.ridge,
        )

    def free(self, transition: Tensor, slopes: Tensor) -> np.ndarray:
        """The coefficients, relative to the transition of each row that is not free."""
        logits = torch.where(self.allowed, transition, 1.0).log()
        both = torch.cat([logits.unsqueeze(2), slopes[:, :, self.columns]], 2)  # (K, K, F)
        reference = (self.allowed & ~self.is_free).double()
        relative: np.ndarray = (both - torch.einsum("ij,ijf->if", reference, both)[:, None])[self.is_free].cpu().numpy()
        return relative.ravel()

    def transitions(self, free: np.ndarray) -> tuple[Tensor, Tensor]:
        """``(K, K)`` where all inputs are zero, and slopes ``(K, K, U)``."""
        both = self._coefficients(torch.as_tensor(free, device=self.design.device))
        slopes = both.new_zeros(*self.allowed.shape, self.n_inputs)
        slopes[:, :, self.columns] = both[..., 1:]
        return self._log_p(both[..., 0]).exp(), slopes

    def __call__(self, free: np.ndarray) -> tuple[float, np.ndarray]:
        """Value and gradient; -inf where a chain has no stationary distribution."""
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
        both = free.new_zeros(*self.allowed.shape, self.design.shape[1])
        return both.index_put(
            (self.is_free.nonzero()[:, 0], self.is_free.nonzero()[:, 1]), free.view(-1, both.shape[2])
        )

    def _log_p(self, logits: Tensor) -> Tensor:
        """``(..., K, K)``, of what there is."""
        return torch.where(self.allowed, logits, -torch.inf).log_softmax(-1)

    def _values(self, free: Tensor) -> tuple[Tensor, Tensor]:
        both = self._coefficients(free)

        def expected(counts: Tensor, design: Tensor) -> Tensor:
            log_p = self._log_p(torch.einsum("nf,ijf->nij", design, both))
            return (counts * torch.where(self.allowed, log_p, 0.0)).sum()

        of_first = self._log_p(torch.einsum("nf,ijf->nij", self.first_design, both)).exp()
        # Not a number where a chain has come apart, so that all processes go on to the sum over them.
        log_initial = differentiable_stationary(of_first, refuses=False).clamp(min=np.finfo(float).tiny).log()
        of_data = expected(self.counts, self.design) + (self.first * log_initial).sum()
        at_zero = torch.eye(1, both.shape[2], dtype=both.dtype, device=both.device)
        centred = both - (both * self.allowed.unsqueeze(2)).sum(1, keepdim=True) / self.allowed.sum(1)[:, None, None]
        slopes = torch.where(self.allowed.unsqueeze(2), centred, 0.0)[..., 1:]
        return of_data, expected(self.pseudocounts[None], at_zero) - 0.5 * self.ridge * slopes.square().sum()


def maximised_emissions(
    parameters: Parameters, statistics: InputStatistics, emission: Emission, options: InputOptions
) -> tuple[Tensor, Tensor]:
    """``(K, P)`` output parameters where all inputs are zero, and ``(K, P, U)`` slopes; each state by itself."""
    assert parameters.table_slopes is not None
    assert statistics.x is not None
    assert statistics.gamma is not None
    columns, regression = list(options.emission), regression_of(emission.observation, emission.size)
    inputs = statistics.inputs[:, columns].double()
    x = statistics.x.double() if statistics.x.is_floating_point() else statistics.x
    table, slopes = parameters.table.clone(), torch.zeros_like(parameters.table_slopes)
    for k, gamma in enumerate(statistics.gamma.double().T):
        before = parameters.table_slopes[k][:, columns]
        table[k], slopes[k][:, columns] = regression.maximise(table[k], before, x, statistics.past, inputs, gamma)
    return table, slopes


def _reference_first(i: int, states: Sequence[int]) -> list[int]:
    return [i, *(j for j in states if j != i)] if i in states else list(states)
