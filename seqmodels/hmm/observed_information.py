"""The exact observed information of a hidden Markov chain: minus the Hessian of its log-likelihood.

By Louis (1982) it is ``E[-∂² log p(x, z) | x] - Var[∂ log p(x, z) | x]`` over paths z of states. Given x the states are
a Markov chain, so that the variance of the score ``Σ_t s_t(z_t-1, z_t)`` is the sum of those of the differences ::

    d_t(i, j) = s_t(i, j) + v_t(j) - v_t-1(i)     v_t(i) = E[Σ_r>t s_r | z_t = i, x]

of a martingale, which one recursion backwards in time gives. The cost is that of a product of matrices with a row for
each step and pair of states, and a column for each parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from seqmodels.hmm.coordinates import Coordinates
from seqmodels.hmm.corpus import PackedBatch
from seqmodels.hmm.emissions import Emission
from seqmodels.hmm.parameters import Parameters
from seqmodels.inference.chains.densities import LogDensities
from seqmodels.inference.chains.forward_backward import forward_backward_pass
from seqmodels.inference.chains.trellis import Trellis
from seqmodels.observations import Observation

NUMBERS_AT_ONCE = 1 << 23  # numbers of the scores of some steps that are held at once
STEP = 1e-4  # of the differences of the gradient of the log-prior
ALONG = 1e-2  # of the second differences of the gradient, in standard errors up to 1


@dataclass(frozen=True)
class Places:
    """The places of coefficients among P unconstrained numbers u; -1 for a coefficient that is not free.

    The first of the 1 + C coefficients is the value at inputs of zero, the others are slopes on the C inputs.

    Attributes:
        initial: those of the logits of first states, ``(K, 1 + C)``.
        transition: those of the logits of transitions, ``(K, K, 1 + C)``.
        table: those of the L output parameters of emissions, ``(K, L, 1 + C)``.
        unit: change of each coefficient of the table with its u, ``(K, L, 1 + C)``.
        duration: those of the A numbers of durations, ``(K, A, 1 + C)``, of which the last is what is added to
            ``log p(d) / (d - 1)``, and the others have no slopes; A is 0 if states have no durations.
        duration_unit: change of each coefficient of durations with its u, in the shape of ``duration``.
    """

    initial: Tensor
    transition: Tensor
    table: Tensor
    unit: Tensor
    duration: Tensor
    duration_unit: Tensor

    @property
    def n(self) -> int:
        """Number of the numbers u that have a place, if all have."""
        arrays = (self.initial, self.transition, self.table, self.duration)
        return 1 + max(int(each.max()) for each in arrays if each.numel())

    def reading(self, columns: Tensor) -> Places:
        """Return the places of the coefficients of some of the 1 + C columns, ``columns (1 + C,)`` a mask."""
        of_chain = (self.initial, self.transition, self.table, self.unit)
        return Places(*(each[..., columns] for each in (*of_chain, self.duration, self.duration_unit)))

    def merged(self, columns: Tensor) -> tuple[Tensor, Tensor, Tensor, Places]:
        """Return the p numbers that have a place, which of q sums of them each is in, and the places of these sums.

        Coefficients of columns of the design that are equal, such as an intercept and the effect of the one group of a
        sequence, act by their sum alone.

        Args:
            columns: for each of the 1 + C columns the number of the distinct column that it equals, ``(1 + C,)``.

        Returns:
            The columns that count as distinct, as ``columns`` has them: all of them if some numbers act elsewhere too,
            as those of tied states may. The numbers, ``(p,)``; for each the number of its sum, ``(p,)``; and the places
            of distinct columns among the q sums.
        """
        n = int(columns.max()) + 1
        acts: dict[int, list[tuple[int, int, int, float]]] = {}
        arrays = self.initial, self.transition, self.table, self.duration
        units = {2: self.unit, 3: self.duration_unit}
        for i, array in enumerate(arrays):
            flat = array.flatten(0, -2)
            for entry, column in (flat >= 0).nonzero().tolist():
                size = float(units[i].flatten(0, -2)[entry, column]) if i in units else 1.0
                acts.setdefault(int(flat[entry, column]), []).append((i, entry, int(columns[column]), size))
        used = sorted(acts)
        sums: dict[tuple[tuple[int, int, int, float], ...], int] = {}
        number = [sums.setdefault(tuple(sorted(acts[each])), len(sums)) for each in used]
        moved = [torch.full((array[..., 0].numel(), n), -1) for array in arrays]
        sizes = {i: torch.ones(moved[i].shape, dtype=unit.dtype) for i, unit in units.items()}
        for each, total in zip(used, number, strict=True):
            for i, entry, column, size in acts[each]:
                if moved[i][entry, column] not in (-1, total):  # coefficients of one column that act elsewhere too
                    return self.merged(torch.arange(len(columns)))
                moved[i][entry, column] = total
                if i in sizes:
                    sizes[i][entry, column] = size
        shaped = [each.view(*array.shape[:-1], n) for each, array in zip(moved, arrays, strict=True)]
        initial, transition, table, duration = shaped
        of_durations = duration, sizes[3].view(duration.shape)
        merged = Places(initial, transition, table, sizes[2].view(table.shape), *of_durations)
        return columns, torch.tensor(used), torch.tensor(number), merged

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

        emission = coordinates.emission

        def table(parameters: Parameters) -> Tensor:
            observed, slopes = emission.observed(parameters.table), parameters.table_slopes
            none = observed.new_zeros(*observed.shape, n_inputs)
            return torch.cat([observed.unsqueeze(-1), none if slopes is None else emission.observed(slopes)], -1)

        return cls(
            joined(places["initial"], places.get("initial_slopes")),
            joined(places["rows"], places.get("transition_slopes")),
            *places_of(coordinates, table),
            torch.empty(0, 0, 1 + n_inputs, dtype=torch.long),
            torch.empty(0, 0, 1 + n_inputs, dtype=torch.float64),
        )


def places_of(coordinates: Coordinates, array: Callable[[Parameters], Tensor]) -> tuple[Tensor, Tensor]:
    """Return the place of the number that each entry of an array moves with, -1 for none, and its change with it.

    Args:
        coordinates: the map from the unconstrained numbers to parameters.
        array: function of parameters that returns the array, whose entries each are a linear function of one number.

    Raises:
        ValueError: an entry is no such function.
    """
    counted = torch.arange(1.0, coordinates.n + 1, dtype=torch.float64)
    zero, one, number = (array(coordinates.at(u)[0]) for u in (0 * counted, torch.ones_like(counted), counted))
    unit = one - zero
    place = torch.where(unit != 0, (number - zero) / torch.where(unit != 0, unit, 1.0), 0.0)
    if bool(((place - place.round()).abs() > 1e-6 * coordinates.n).any()):
        raise ValueError("the parameters of the emissions depend on each other; leave penalised terms out")
    return place.round().long() - 1, unit


@dataclass(frozen=True)
class ExactObjective:
    """Log-likelihood plus log-prior of a chain of K states given inputs, as a function of P unconstrained numbers u.

    Attributes:
        coordinates: the map from u to parameters.
        emission: the emission of the states.
        batches: the data, in batches of sequences that are not cut.
        log_prior: function of parameters and the table of distinct emissions that returns the log-prior, a scalar.
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

    @cached_property
    def steps(self) -> list[BatchSteps]:
        """The steps of each batch."""
        return [BatchSteps.of(batch, self.places) for batch in self.batches]

    def value_and_gradient(self, u: Tensor) -> tuple[float, Tensor]:
        """Return the objective at ``u (P,)`` in nats, -inf if a sequence is impossible, and its gradient ``(P,)``."""
        value, gradient = self._prior(u)
        for steps in self.steps:
            value_of_batch, gradient_of_batch = self._predicted(steps, u).posterior().value_and_gradient(self.places)
            value, gradient = value + value_of_batch, gradient + gradient_of_batch
        return value, gradient

    def derivatives(self, u: Tensor) -> tuple[float, Tensor, Tensor]:
        """Return the objective at ``u (P,)``, its gradient ``(P,)`` and minus its Hessian, ``(P, P)``.

        All are exact, but for the Hessian of the log-prior, which is a difference of gradients.
        """
        value, gradient = self._prior(u)
        information = self._prior_information(u)
        for steps in self.steps:
            posterior = self._predicted(steps, u, second=True).posterior()
            value_of_batch, gradient_of_batch = posterior.value_and_gradient(self.places)
            value, gradient = value + value_of_batch, gradient + gradient_of_batch
            if not np.isfinite(value):
                break
            information = information + posterior.information(self.places)
        return value, gradient, information

    def information_gradient(self, u: Tensor, covariance: Tensor) -> Tensor:
        """Return the gradient of ``tr(covariance @ information)`` by u, ``(P,)``, of the log-likelihood's information.

        It is a sum of second differences of the gradient along factors of the covariance. They are of each sequence by
        itself, which depends on few of the numbers, and are taken side by side.

        Args:
            u: the numbers, ``(P,)``.
            covariance: a positive semi-definite matrix, ``(P, P)``.
        """
        total = torch.zeros_like(u)
        for steps in self.steps:
            predicted = self._predicted(steps, u)
            centre = predicted.posterior().value_and_gradient(self.places)[1]
            for shift in steps.shifts(self.places, covariance):
                along = ALONG / max(1.0, shift.largest)
                for sign in (along, -along):
                    shifted = predicted.shifted(shift, sign, self.emission.observation, steps.batch)
                    total += (centre - shifted.posterior().value_and_gradient(self.places)[1]) / along**2
        return total

    def _predicted(self, steps: BatchSteps, u: Tensor, *, second: bool = False) -> _Predicted:
        """Return the probabilities and densities of the steps of a batch.

        Args:
            steps: the steps of the batch.
            u: the numbers, ``(P,)``.
            second: True if the information is asked for.
        """
        p, inputs, batch = self.coordinates.at(u.detach())[0], steps.design[:, 1:], steps.batch
        if p.transition_slopes is None:  # so that there is a matrix of transitions at every step
            p = replace(p, transition_slopes=p.transition.new_zeros(*p.transition.shape, self.n_inputs))
        if p.table_slopes is None:
            outputs = p.table.expand(len(inputs), -1, -1)
        else:
            outputs = p.table + torch.einsum("nc,klc->nkl", inputs, p.table_slopes)
        log_b, first, hessians = density_derivatives(
            self.emission.observation, outputs, batch.x, batch.past, second=second
        )
        return _Predicted(steps, batch.trellis(p, LogDensities(log_b)), outputs, first, hessians)

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
        for i in self._used_by_prior:
            step = torch.zeros_like(u)
            step[i] = STEP
            information[:, i] = -(self._prior(u + step)[1] - self._prior(u - step)[1]) / (2 * STEP)
        return 0.5 * (information + information.T)

    @cached_property
    def _used_by_prior(self) -> list[int]:
        """The numbers that the log-prior depends on: its gradient there is not zero at one of two places."""
        at = torch.linspace(0.01, 0.02, self.coordinates.n, dtype=torch.float64)
        used: list[int] = ((self._prior(at)[1] != 0) | (self._prior(-at)[1] != 0)).nonzero()[:, 0].tolist()
        return used


@dataclass(frozen=True)
class Shift:
    """A change of the linear predictors of N steps in n sequences, which is added to them.

    Attributes:
        initial: to the logits of first states, ``(n, K)``.
        transition: to the logits of transitions, ``(N, K, K)``.
        table: to the output parameters of densities, ``(N, K, L)``; None for nothing.
        duration: to ``log p(d) / (d - 1)`` of the durations of segments, ``(N, K)``; None for nothing.
    """

    initial: Tensor
    transition: Tensor
    table: Tensor | None
    duration: Tensor | None = None

    @property
    def largest(self) -> float:
        """Largest change of a logit, which is large along directions that the data do not determine."""
        return max(float(self.initial.abs().max()), float(self.transition.abs().max()))


@dataclass(frozen=True)
class SequenceSteps:
    """The steps of one sequence, and the numbers that its probability depends on.

    Attributes:
        rows: rows of its T steps among those of the batch, ``(T,)``.
        read: columns of the design that are not zero at all of its steps and differ from each other, ``(c,)``.
        used: places of the p numbers that its probability depends on, ``(p,)``.
        sums: for each of these numbers, which of q sums it is part of, ``(p,)``: the probability depends on these sums
            alone, because some columns are equal at all of its steps.
        places: places of coefficients of the columns ``read`` among the q sums.
    """

    rows: Tensor
    read: Tensor
    used: Tensor
    sums: Tensor
    places: Places

    @classmethod
    def of(cls, rows: Tensor, design: Tensor, places: Places) -> SequenceSteps:
        """Return the steps of a sequence.

        Args:
            rows: rows of its T steps among those of the batch, ``(T,)``.
            design: their design, ``(T, 1 + C)``.
            places: places of coefficients among all numbers.
        """
        is_read = (design != 0).any(0)
        _, columns = torch.unique(design[:, is_read], dim=1, return_inverse=True)
        columns, used, sums, merged = places.reading(is_read).merged(columns)
        first = [int((columns == i).nonzero()[0]) for i in range(int(columns.max()) + 1)]
        return cls(rows, is_read.nonzero()[first, 0], used, sums, merged)

    @property
    def n_sums(self) -> int:
        """Number of the sums, q."""
        return 1 + int(self.sums.max()) if len(self.sums) else 0

    def covariance(self, covariance: Tensor) -> Tensor:
        """Return the covariance of the q sums, ``(q, q)``, given that of all P numbers, ``(P, P)``."""
        rows = covariance.new_zeros(self.n_sums, len(self.used))
        rows.index_add_(0, self.sums, covariance[self.used[:, None], self.used])
        return covariance.new_zeros(self.n_sums, self.n_sums).index_add_(1, self.sums, rows)


@dataclass(frozen=True)
class BatchSteps:
    """The N steps of a batch.

    Attributes:
        batch: the sequences.
        design: ones, then the C inputs of each step, ``(N, 1 + C)``.
        sequences: the steps of each sequence.
    """

    batch: PackedBatch
    design: Tensor
    sequences: list[SequenceSteps]

    @classmethod
    def of(cls, batch: PackedBatch, places: Places) -> BatchSteps:
        """Return the steps of a batch of sequences that are not cut."""
        assert batch.inputs is not None, "penalised terms are of inputs"
        inputs = batch.inputs.double()
        design, sequences = torch.cat([torch.ones_like(inputs[:, :1]), inputs], 1), []
        for rows in batch.segments.split(torch.arange(len(design))):
            sequences.append(SequenceSteps.of(rows, design[rows], places))
        return cls(batch, design, sequences)

    def shifts(self, places: Places, covariance: Tensor) -> Iterator[Shift]:
        """Yield shifts of the linear predictors along the columns of a factor of a covariance of the P numbers.

        The factor is of the rows and columns of the numbers that a sequence depends on, for each sequence by itself.
        """
        factors = [_factor(each.covariance(covariance)) for each in self.sequences]
        n, k = max((factor.shape[1] for factor in factors), default=0), len(places.initial)
        n_outputs = places.table.shape[1]
        is_moved = torch.zeros(places.n + 1, dtype=torch.bool)
        is_moved[: places.n] = covariance.diagonal() > 0
        moves_table, moves_durations = (bool(is_moved[each].any()) for each in (places.table, places.duration))
        size = max(1, NUMBERS_AT_ONCE // (len(self.design) * k * (k + n_outputs)))
        for begin in range(0, n, size):
            m = min(size, n - begin)
            initial = self.design.new_zeros(m, len(self.sequences), k)
            transition = self.design.new_zeros(m, len(self.design), k, k)
            table = self.design.new_zeros(m, len(self.design), k, n_outputs) if moves_table else None
            duration = self.design.new_zeros(m, len(self.design), k) if moves_durations else None
            for i, (each, factor) in enumerate(zip(self.sequences, factors, strict=True)):
                along = factor[:, begin : begin + m]
                padded = torch.cat([along, along.new_zeros(1, along.shape[1])])  # the place -1 is this zero
                d = self.design[each.rows][:, each.read]
                initial[: along.shape[1], i] = torch.einsum("c,kcm->mk", d[0], padded[each.places.initial])
                transition[: along.shape[1], each.rows] = torch.einsum(
                    "tc,ijcm->mtij", d, padded[each.places.transition]
                )
                if table is not None:
                    moved = padded[each.places.table] * each.places.unit.unsqueeze(-1)
                    table[: along.shape[1], each.rows] = torch.einsum("tc,klcm->mtkl", d, moved)
                if duration is not None:
                    moved = padded[each.places.duration[:, -1]] * each.places.duration_unit[:, -1].unsqueeze(-1)
                    duration[: along.shape[1], each.rows] = torch.einsum("tc,kcm->mtk", d, moved)
            for i in range(m):
                of_outputs = (None if each is None else each[i] for each in (table, duration))
                yield Shift(initial[i], transition[i], *of_outputs)


def _factor(matrix: Tensor) -> Tensor:
    """Return R with ``R R' = matrix``, a positive semi-definite matrix ``(p, p)``, without columns of zeros."""
    values, vectors = torch.linalg.eigh(matrix)
    is_positive = values > 1e-14 * values.abs().amax() if len(values) else values > 0
    result: Tensor = vectors[:, is_positive] * values[is_positive].sqrt()
    return result


@dataclass(frozen=True)
class _Predicted:
    """The probabilities and densities of N steps, from which a forward-backward pass runs.

    Attributes:
        steps: the steps of the batch.
        trellis: probabilities of transitions at each step, of first states, and densities.
        outputs: output parameters of the density of each step in each state, ``(N, K, L)``.
        first: derivatives of log-densities by output parameters, ``(N, K, L)``.
        second: their second derivatives, ``(N, K, L, L)``, or None.
    """

    steps: BatchSteps
    trellis: Trellis
    outputs: Tensor
    first: Tensor
    second: Tensor | None

    def shifted(self, shift: Shift, factor: float, observation: Observation, batch: PackedBatch) -> _Predicted:
        """Return the same with linear predictors to which ``factor`` times a shift is added, without ``second``.

        Args:
            shift: the shift.
            factor: what it is multiplied by.
            observation: the emission distribution.
            batch: the sequences.
        """
        assert self.trellis.log_transitions is not None
        log_a = torch.add(self.trellis.log_transitions, shift.transition, alpha=factor).log_softmax(-1)
        initial = (self.trellis.initial.log() + factor * shift.initial).softmax(-1)
        trellis = replace(self.trellis, log_transitions=log_a, initial=initial)
        if shift.table is None:
            return replace(self, trellis=trellis, second=None)
        outputs = self.outputs + factor * shift.table
        log_b, first, _ = density_derivatives(observation, outputs, batch.x, batch.past, second=False)
        return _Predicted(self.steps, replace(trellis, densities=LogDensities(log_b)), outputs, first, None)

    def posterior(self) -> _Posterior:
        """Return the results of the forward-backward pass."""
        ran, log_a = forward_backward_pass(self.trellis), self.trellis.log_transitions
        assert ran.transitions is not None, "there is a matrix at every step"
        assert log_a is not None
        initial = self.trellis.initial.expand(self.steps.batch.segments.n_sequences, -1)
        of_chain = (ran.gamma.double(), ran.transitions, log_a.exp(), initial)
        return _Posterior(self.steps, float(ran.log_prob.sum()), *of_chain, self.first, self.second)


@dataclass(frozen=True)
class _Posterior:
    """The results of one forward-backward pass over a batch of N steps, from which all derivatives follow.

    Attributes:
        steps: the steps of the batch.
        value: log-likelihood in nats; -inf if a sequence is impossible.
        gamma: posterior of states, ``(N, K)``.
        xi: posterior of transitions into each step, ``(N, K, K)``; zeros in first steps.
        transition: transition probabilities into each step, ``(N, K, K)``.
        initial: probabilities of the first state of each of n sequences, ``(n, K)``.
        first: derivatives of log-densities by output parameters, ``(N, K, L)``.
        second: their second derivatives, ``(N, K, L, L)``, or None.
    """

    steps: BatchSteps
    value: float
    gamma: Tensor
    xi: Tensor
    transition: Tensor
    initial: Tensor
    first: Tensor
    second: Tensor | None

    def value_and_gradient(self, places: Places) -> tuple[float, Tensor]:
        """Return the log-likelihood times the batch's weight, and its gradient ``(P,)`` by Fisher's identity."""
        design, batch = self.steps.design, self.steps.batch
        gradient, rows = design.new_zeros(places.n), batch.segments.first
        residual = self.xi - self.xi.sum(-1, keepdim=True) * self.transition
        score = self.gamma.unsqueeze(-1) * self.first
        for place, values in (
            (places.transition, (residual.flatten(1).T @ design).view(places.transition.shape)),
            (places.table, places.unit * (score.flatten(1).T @ design).view(places.table.shape)),
            (places.initial, (self.gamma[rows] - self.initial).T @ design[rows]),
        ):
            gradient.index_add_(0, place[place >= 0], values[place >= 0])
        return batch.weight * self.value, batch.weight * gradient

    def information(self, places: Places) -> Tensor:
        """Return minus the Hessian of the log-likelihood times the batch's weight, ``(P, P)``."""
        information = self._of_densities(places)
        for number, each in enumerate(self.steps.sequences):
            information[each.used[:, None], each.used] += self._of_chain(number, each)[each.sums[:, None], each.sums]
        return 0.5 * self.steps.batch.weight * (information + information.T)

    def _of_densities(self, places: Places) -> Tensor:
        """Return minus the expected Hessian of the log-densities, ``(P, P)``."""
        assert self.second is not None
        information = self.gamma.new_zeros(places.n, places.n)
        for k, (place, unit) in enumerate(zip(places.table, places.unit, strict=True)):
            is_free = place >= 0
            designs = [
                self.steps.design[:, free] * of_place[free] for free, of_place in zip(is_free, unit, strict=True)
            ]
            numbers = is_free.any(1).nonzero()[:, 0].tolist()
            for a in numbers:
                for b in numbers:
                    weights = self.gamma[:, k] * self.second[:, k, a, b]
                    index = (place[a][is_free[a]][:, None], place[b][is_free[b]][None])
                    information.index_put_(index, -(designs[a].T * weights) @ designs[b], accumulate=True)
        return information

    def _of_chain(self, number: int, of: SequenceSteps) -> Tensor:
        """Return minus the expected Hessian of the chain's log-probabilities, less the variance of the score.

        Args:
            number: number of the sequence in the batch.
            of: its steps.

        Returns:
            What one sequence adds to the information of the q sums that it depends on, ``(q, q)``.
        """
        k, p = self.gamma.shape[1], of.n_sums
        sums, after = self.gamma.new_zeros(p, p), self.gamma.new_zeros(k, p)  # v of the last step of a part
        rows = [(of.places.transition[i] >= 0).nonzero(as_tuple=True) for i in range(k)]
        of_row = [of.places.transition[i][row] for i, row in enumerate(rows)]
        for part in reversed(of.rows.split(max(1, NUMBERS_AT_ONCE // (k * k * max(1, p))))):
            design, xi, a = self.steps.design[part][:, of.read], self.xi[part], self.transition[part]
            before = xi.sum(-1)  # of the state at the step before, (T, K)
            ratio = xi / torch.where(before > 0, before, 1.0).unsqueeze(-1)
            of_density = self._density_scores(of, part, design)  # (T, K, p)
            expected, of_moves = ratio @ of_density, []
            for i, (to, column) in enumerate(rows):
                minus_p = torch.nn.functional.one_hot(to, k).T - a[:, i, None, to]  # (T, K, q)
                of_moves.append(minus_p * design[:, None, column])
                flat = ((before[:, i, None] * a[:, i]).sqrt().unsqueeze(-1) * of_moves[i]).flatten(0, 1)
                sums[of_row[i][:, None], of_row[i]] += flat.T @ flat
                expected[:, i, of_row[i]] += torch.einsum("tj,tjq->tq", ratio[:, i], of_moves[i])
            values = _backward(ratio, expected, after)  # v of the step before the part, then of each of its steps
            differences = (of_density + values[1:]).unsqueeze(1) - values[:-1].unsqueeze(2)  # (T, K, K, p)
            for i in range(k):
                differences[:, i, :, of_row[i]] += of_moves[i]
            flat = differences.mul_(xi.sqrt().unsqueeze(-1)).flatten(0, 2)
            sums -= flat.T @ flat
            after = values[0]
        to, column = (of.places.initial >= 0).nonzero(as_tuple=True)
        of_first = design.new_zeros(k, p)
        minus_p = torch.nn.functional.one_hot(to, k).T - self.initial[number, to]
        of_first[:, of.places.initial[to, column]] = minus_p * design[0, column]
        flat = self.initial[number].sqrt().unsqueeze(-1) * of_first
        sums += flat.T @ flat
        gamma, total = self.gamma[of.rows[0]], of_first + of_density[0] + values[1]
        flat = gamma.sqrt().unsqueeze(-1) * (total - gamma @ total)
        return sums - flat.T @ flat

    def _density_scores(self, of: SequenceSteps, part: Tensor, design: Tensor) -> Tensor:
        """Return the derivatives of the log-densities of some steps by the q sums of a sequence, ``(T, K, q)``."""
        k = self.gamma.shape[1]
        scores = design.new_zeros(len(part), k, of.n_sums)
        for i in range(k):
            which, column = (of.places.table[i] >= 0).nonzero(as_tuple=True)
            values = self.first[part][:, i, which] * design[:, column] * of.places.unit[i][which, column]
            scores[:, i].index_add_(1, of.places.table[i][which, column], values)
        return scores


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
