"""The exact observed information of a hidden Markov chain: minus the Hessian of its log-likelihood.

By Louis (1982) it is ``E[-∂² log p(x, z) | x] - Var[∂ log p(x, z) | x]`` over paths z of states. Given x the states are a
Markov chain, so that the variance of the score ``Σ_t s_t(z_t-1, z_t)`` is a sum over steps of that of the differences ::

    d_t(i, j) = s_t(i, j) + v_t(j) - v_t-1(i)     v_t(i) = E[Σ_r>t s_r | z_t = i, x]

of a martingale, which one recursion backwards in time gives. The cost is that of a product of matrices with a row for
each step and pair of states, and a column for each parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from seqmodels.hmm.coordinates import Coordinates
from seqmodels.hmm.corpus import PackedBatch
from seqmodels.hmm.emissions import Emission
from seqmodels.hmm.parameters import Parameters
from seqmodels.inference.chains.densities import LogDensities
from seqmodels.inference.chains.forward_backward import forward_backward_pass
from seqmodels.observations import Observation

NUMBERS_AT_ONCE = 1 << 23  # numbers of the scores of some steps that are held at once
STEP = 1e-4  # of the differences of the gradient of the log-prior


class Derivatives(NamedTuple):
    """The value of a function of P numbers, its gradient ``(P,)`` and minus its Hessian, ``(P, P)``, for Newton's
    method."""

    value: float
    gradient: Tensor
    information: Tensor


@dataclass(frozen=True)
class Places:
    """The places of coefficients among P unconstrained numbers u; -1 for a coefficient that is not free.

    The first of the 1 + C coefficients is the value at inputs of zero, the others are slopes on the C inputs.

    Attributes:
        initial: those of the logits of first states, ``(K, 1 + C)``.
        transition: those of the logits of transitions, ``(K, K, 1 + C)``.
        table: those of the L output parameters of emissions, ``(K, L, 1 + C)``.
        unit: change of each coefficient of the table with its u, ``(K, L, 1 + C)``.
    """

    initial: Tensor
    transition: Tensor
    table: Tensor
    unit: Tensor

    @classmethod
    def of(cls, coordinates: Coordinates, n_inputs: int) -> Places:
        """Return the places of all coefficients of a model with C inputs, ``n_inputs``.

        Raises:
            ValueError: a coefficient of an emission is no linear function of one of the numbers.
        """
        places = coordinates.places

        def joined(at_zero: Tensor, slopes: Tensor | None) -> Tensor:
            none = torch.full((*at_zero.shape, n_inputs), -1) if slopes is None else slopes
            return torch.cat([at_zero.unsqueeze(-1), none], -1)

        counted = torch.arange(1.0, coordinates.n + 1, dtype=torch.float64)
        zero, one, number = (
            _table(coordinates.at(u)[0], n_inputs) for u in (torch.zeros_like(counted), torch.ones_like(counted), counted)
        )
        unit = one - zero
        place = torch.where(unit != 0, (number - zero) / torch.where(unit != 0, unit, 1.0), 0.0)
        if bool(((place - place.round()).abs() > 1e-6 * coordinates.n).any()):
            raise ValueError("the parameters of the emissions depend on each other; leave penalised terms out")
        return cls(
            joined(places["initial"], places.get("initial_slopes")),
            joined(places["rows"], places.get("transition_slopes")),
            place.round().long() - 1,
            unit,
        )


def _table(parameters: Parameters, n_inputs: int) -> Tensor:
    table, slopes = parameters.table, parameters.table_slopes
    slopes = table.new_zeros(*table.shape, n_inputs) if slopes is None else slopes
    return torch.cat([table.unsqueeze(-1), slopes], -1)


@dataclass(frozen=True)
class ExactObjective:
    """Log-likelihood plus log-prior of a chain of K states given inputs, as a function of P unconstrained numbers u.

    Attributes:
        coordinates: the map from u to parameters.
        emission: the emission of the states.
        batches: the data, in batches of sequences that are not cut.
        log_prior: function of parameters that returns the log-prior, a scalar, differentiable.
        n_inputs: number of inputs, C.
    """

    coordinates: Coordinates
    emission: Emission
    batches: Sequence[PackedBatch]
    log_prior: Callable[[Parameters, Tensor], Tensor]
    n_inputs: int

    @cached_property
    def places(self) -> Places:
        """The places of coefficients among the unconstrained numbers."""
        return Places.of(self.coordinates, self.n_inputs)

    def value_and_gradient(self, u: Tensor) -> tuple[float, Tensor]:
        """Return the objective at ``u (P,)`` in nats, -inf where a sequence is impossible, and its gradient ``(P,)``."""
        value, gradient = self._prior(u)
        for batch in self.batches:
            pass_ = _Pass.of(self, batch, u, second=False)
            value, gradient = value + batch.weight * pass_.value, gradient + batch.weight * pass_.gradient(self.places)
        return value, gradient

    def derivatives(self, u: Tensor) -> Derivatives:
        """Return the objective at ``u (P,)``, its gradient and minus its Hessian, exact but for that of the prior."""
        value, gradient = self._prior(u)
        information = self._prior_information(u)
        for batch in self.batches:
            pass_ = _Pass.of(self, batch, u, second=True)
            value, gradient = value + batch.weight * pass_.value, gradient + batch.weight * pass_.gradient(self.places)
            information = information + batch.weight * pass_.information(self.places)
        return Derivatives(value, gradient, information)

    def _prior(self, u: Tensor) -> tuple[float, Tensor]:
        with torch.enable_grad():
            u = u.detach().requires_grad_()
            value = self.log_prior(*self.coordinates.at(u))
            if not value.requires_grad:
                return float(value), torch.zeros_like(u)
            (gradient,) = torch.autograd.grad(value, u, allow_unused=True)
        return float(value.detach()), torch.zeros_like(u) if gradient is None else gradient

    def _prior_information(self, u: Tensor) -> Tensor:
        """Return minus the Hessian of the log-prior by central differences, ``(P, P)``; zeros if there is no prior."""
        information = u.new_zeros(len(u), len(u))
        used = self._used_by_prior
        for i in used:
            step = torch.zeros_like(u)
            step[i] = STEP
            information[:, i] = -(self._prior(u + step)[1] - self._prior(u - step)[1]) / (2 * STEP)
        return 0.5 * (information + information.T)

    @cached_property
    def _used_by_prior(self) -> list[int]:
        """The numbers that the log-prior depends on, of which the gradient is not zero at two places."""
        n = self.coordinates.n
        at = torch.linspace(0.01, 0.02, n, dtype=torch.float64)
        return ((self._prior(at)[1] != 0) | (self._prior(-at)[1] != 0)).nonzero()[:, 0].tolist()


@dataclass(frozen=True)
class _Pass:
    """The results of one forward-backward pass over a batch of N steps, from which all derivatives follow.

    Attributes:
        batch: the sequences.
        design: ones, then the inputs of each step, ``(N, 1 + C)``.
        value: log-likelihood in nats; -inf if a sequence is impossible.
        gamma: posterior of states, ``(N, K)``.
        xi: posterior of transitions into each step, ``(N, K, K)``; zeros in first steps.
        transition: transition probabilities into each step, ``(N, K, K)``.
        initial: probabilities of the first state of each sequence, ``(n, K)``.
        first: derivatives of log-densities by output parameters, ``(N, K, L)``.
        second: their second derivatives, ``(N, K, L, L)``, or None.
    """

    batch: PackedBatch
    design: Tensor
    value: float
    gamma: Tensor
    xi: Tensor
    transition: Tensor
    initial: Tensor
    first: Tensor
    second: Tensor | None

    @classmethod
    def of(cls, objective: ExactObjective, batch: PackedBatch, u: Tensor, *, second: bool) -> _Pass:
        p, n_inputs = objective.coordinates.at(u.detach())[0], objective.n_inputs
        assert batch.inputs is not None, "penalised terms are of inputs"
        inputs = batch.inputs.double()
        if p.transition_slopes is None:  # so that there is a matrix of transitions at every step
            p = Parameters(
                p.initial, p.transition, p.final, p.table, p.transition.new_zeros(*p.transition.shape, n_inputs),
                p.table_slopes, p.initial_slopes,
            )  # fmt: skip
        parameters = p.table.expand(len(inputs), -1, -1)
        if p.table_slopes is not None:
            parameters = parameters + torch.einsum("nc,klc->nkl", inputs, p.table_slopes)
        of_density = density_derivatives(
            objective.emission.observation, objective.emission.observed(parameters), batch.x, batch.past, second=second
        )
        trellis = batch.trellis(p, LogDensities(of_density[0]))
        posterior = forward_backward_pass(trellis)
        assert posterior.transitions is not None, "there is a matrix at every step"
        assert trellis.log_transitions is not None
        value, n = float(posterior.log_prob.sum()), batch.segments.n_sequences
        initial = batch.initial(p).expand(n, -1)
        design = torch.cat([torch.ones_like(inputs[:, :1]), inputs], 1)
        of_chain = (posterior.gamma.double(), posterior.transitions, trellis.log_transitions.exp(), initial)
        return cls(batch, design, value, *of_chain, *of_density[1:])

    def gradient(self, places: Places) -> Tensor:
        """Return the gradient of the log-likelihood, ``(P,)``, by Fisher's identity."""
        n = 1 + max(int(each.max()) for each in (places.initial, places.transition, places.table))
        gradient = self.design.new_zeros(n)
        residual = self.xi - self.xi.sum(-1, keepdim=True) * self.transition
        by_coefficient = [
            (places.transition, torch.einsum("nij,nc->ijc", residual, self.design)),
            (places.table, places.unit * torch.einsum("nkl,nc->klc", self.gamma.unsqueeze(-1) * self.first, self.design)),
            (places.initial, (self.gamma[self.rows] - self.initial).T @ self.design[self.rows]),
        ]  # fmt: skip
        for place, values in by_coefficient:
            gradient.index_add_(0, place[place >= 0], values[place >= 0])
        return gradient

    @property
    def rows(self) -> Tensor:
        """The row of the first step of each sequence, ``(n,)``."""
        return self.batch.segments.first

    def information(self, places: Places) -> Tensor:
        """Return minus the Hessian of the log-likelihood, ``(P, P)``."""
        n = 1 + max(int(each.max()) for each in (places.initial, places.transition, places.table))
        information = self._of_densities(places, n)
        numbers = self.batch.segments.split(torch.arange(len(self.design)))
        for sequence, rows in enumerate(numbers):
            self._add_sequence(information, places, sequence, rows)
        return 0.5 * (information + information.T)

    def _of_densities(self, places: Places, n: int) -> Tensor:
        """Return minus the expected Hessian of the log-densities, ``(P, P)``."""
        assert self.second is not None
        information = self.design.new_zeros(n, n)
        for k in range(self.second.shape[1]):
            place, unit = places.table[k], places.unit[k]
            numbers = (place >= 0).any(1).nonzero()[:, 0].tolist()
            for a in numbers:
                for b in numbers:
                    weights = self.gamma[:, k] * self.second[:, k, a, b]
                    products = (self.design.T * weights) @ self.design * unit[a][:, None] * unit[b]
                    of_a, of_b = place[a] >= 0, place[b] >= 0
                    index = (place[a][of_a][:, None], place[b][of_b][None])
                    information.index_put_(index, -products[of_a][:, of_b], accumulate=True)
        return information

    def _add_sequence(self, information: Tensor, places: Places, sequence: int, rows: Tensor) -> None:
        """Add what one sequence adds to the information of the chain, and less the variance of its score.

        Args:
            information: the sum, ``(P, P)``, which is changed.
            places: places of coefficients.
            sequence: number of the sequence in the batch.
            rows: rows of its steps in the order of time, ``(T,)``.
        """
        is_read = (self.design[rows] != 0).any(0)
        local = [each[..., is_read] for each in (places.initial, places.transition, places.table, places.unit)]
        used = torch.unique(torch.cat([each[each >= 0] for each in local[:3]]))
        number = torch.full((len(information) + 1,), -1)
        number[used] = torch.arange(len(used))
        scores = _Scores(*(number[each] for each in local[:3]), local[3], len(used))
        k, sums = self.gamma.shape[1], information.new_zeros(len(used), len(used))
        size = max(1, NUMBERS_AT_ONCE // (k * k * max(1, len(used))))
        after = self.gamma.new_zeros(k, len(used))  # v_t of the last step of a part
        for part in reversed(rows.split(size)):
            begins = bool(part[0] == rows[0])
            of_steps = scores.of_steps(self, part, is_read)  # (T, K, K, p)
            xi = self.xi[part]
            before = xi.sum(-1)  # of the state at the step before, (T, K)
            ratio = xi / torch.where(before > 0, before, 1.0).unsqueeze(-1)
            chain = scores.of_chain(self, part, is_read)
            weighted = (before.unsqueeze(-1) * self.transition[part]).sqrt().unsqueeze(-1) * chain
            flat = weighted.flatten(0, 2)
            sums += flat.T @ flat
            expected = torch.einsum("tij,tijp->tip", ratio, of_steps)
            values = _backward(ratio, expected, after)  # v_t-1 of each step of the part, then v_t of the last
            differences = of_steps + values[1:, None] - values[:-1, :, None]
            flat = (xi.sqrt().unsqueeze(-1) * differences).flatten(0, 2)
            sums -= flat.T @ flat
            if begins:
                self._add_first(sums, scores, sequence, part[:1], is_read, values[1])
            after = values[0]
        information[used[:, None], used[None]] += sums

    def _add_first(
        self, sums: Tensor, scores: _Scores, sequence: int, row: Tensor, is_read: Tensor, after: Tensor
    ) -> None:
        of_first = scores.of_first(self, sequence, row, is_read)  # (K, p)
        flat = self.initial[sequence].sqrt().unsqueeze(-1) * of_first
        sums += flat.T @ flat
        gamma = self.gamma[row[0]]
        total = of_first + scores.of_densities(self, row, is_read)[0] + after
        flat = gamma.sqrt().unsqueeze(-1) * (total - gamma @ total)
        sums -= flat.T @ flat


def _backward(ratio: Tensor, expected: Tensor, after: Tensor) -> Tensor:
    """Return ``v_t-1 = expected_t + ratio_t v_t`` for T steps, and ``after``, v of the last step, ``(T + 1, K, p)``.

    Args:
        ratio: ``p(z_t = j | z_t-1 = i, x)``, ``(T, K, K)``.
        expected: expected score of each step given the state before, ``(T, K, p)``.
        after: expected scores of all later steps given the last state, ``(K, p)``.
    """
    values = torch.cat([expected, after[None]])
    arrays, ratios = values.numpy(), ratio.numpy()
    for t in range(len(ratios) - 1, -1, -1):
        arrays[t] += ratios[t] @ arrays[t + 1]
    return values


@dataclass(frozen=True)
class _Scores:
    """The derivatives of log p(x, z) by the p numbers that one sequence depends on, step by step.

    Attributes:
        initial, transition, table, unit: places and units, as in ``Places``, of the inputs that the sequence has.
        n: number of these numbers, p.
    """

    initial: Tensor
    transition: Tensor
    table: Tensor
    unit: Tensor
    n: int

    def of_chain(self, of: _Pass, rows: Tensor, is_read: Tensor) -> Tensor:
        """Return those of transitions into steps, ``(T, K, K, p)``."""
        design, a = of.design[rows][:, is_read], of.transition[rows]
        k = a.shape[1]
        scores = design.new_zeros(len(rows), k, k, self.n)
        for i in range(k):
            to, column = (self.transition[i] >= 0).nonzero(as_tuple=True)
            if len(to):
                minus_p = torch.nn.functional.one_hot(to, k).T - a[:, i, None, to]  # (T, K, q)
                scores[:, i, :, self.transition[i][to, column]] = minus_p * design[:, None, column]
        return scores

    def of_densities(self, of: _Pass, rows: Tensor, is_read: Tensor) -> Tensor:
        """Return those of densities in each state, ``(T, K, p)``."""
        design, first = of.design[rows][:, is_read], of.first[rows]
        scores = design.new_zeros(len(rows), first.shape[1], self.n)
        for k in range(first.shape[1]):
            which, column = (self.table[k] >= 0).nonzero(as_tuple=True)
            values = first[:, k, which] * design[:, column] * self.unit[k][which, column]
            scores[:, k].index_add_(1, self.table[k][which, column], values)
        return scores

    def of_steps(self, of: _Pass, rows: Tensor, is_read: Tensor) -> Tensor:
        """Return those of steps after a state, of transition and density together, ``(T, K, K, p)``."""
        return self.of_chain(of, rows, is_read) + self.of_densities(of, rows, is_read).unsqueeze(1)

    def of_first(self, of: _Pass, sequence: int, row: Tensor, is_read: Tensor) -> Tensor:
        """Return those of the probability of the first state, ``(K, p)``."""
        design, initial = of.design[row[0]][is_read], of.initial[sequence]
        scores = design.new_zeros(len(initial), self.n)
        to, column = (self.initial >= 0).nonzero(as_tuple=True)
        minus_p = torch.nn.functional.one_hot(to, len(initial)).T - initial[to]  # (K, q)
        scores[:, self.initial[to, column]] = minus_p * design[column]
        return scores


def density_derivatives(
    observation: Observation, parameters: Tensor, x: Tensor, past: Tensor | None, *, second: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return log-densities ``(N, K)``, their derivatives by output parameters ``(N, K, L)``, and second derivatives.

    Args:
        observation: the emission distribution.
        parameters: output parameters of each frame and state, ``(N, K, L)``.
        x: encoded frames, ``(N, D)``, or symbols, ``(N,)``.
        past: the steps before each frame, ``(N, p, D)``, or None.
        second: True to return second derivatives too, ``(N, K, L, L)``, else None in their place.
    """
    frames = x.double() if x.is_floating_point() else x
    before = None if past is None else past.double().unsqueeze(1)
    with torch.enable_grad():
        parameters = parameters.detach().requires_grad_()
        log_prob = observation.log_prob(parameters, frames.unsqueeze(1), before)
        (first,) = torch.autograd.grad(log_prob.sum(), parameters, create_graph=second)
        if not second:
            return log_prob.detach(), first, None
        rows = [
            torch.autograd.grad(first[..., i].sum(), parameters, retain_graph=True, materialize_grads=True)[0]
            if first.requires_grad
            else torch.zeros_like(first)
            for i in range(parameters.shape[-1])
        ]
    return log_prob.detach(), first.detach(), torch.stack(rows, -2).detach()
