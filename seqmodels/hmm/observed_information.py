"""The exact observed information of a hidden Markov chain: minus the Hessian of its log-likelihood.

By Louis (1982) it is ``E[-∂² log p(x, z) | x] - Var[∂ log p(x, z) | x]`` over paths z of states. Given x the states are
a Markov chain, so that the variance of the score ``Σ_t s_t(z_t-1, z_t)``, with scores less their expectations, is ::

    Σ_t E[s_t s_t' + s_t v_t' + v_t s_t' | x]     v_t(i) = E[Σ_r>t s_r | z_t = i, x]

which one recursion backwards in time gives (``score_loops``). The cost at each step is that of the outer product of the
numbers that a sequence depends on with themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from torch import Tensor

from seqmodels.hmm.coordinates import Coordinates
from seqmodels.hmm.corpus import PackedBatch
from seqmodels.hmm.emissions import Emission
from seqmodels.hmm.parameters import Parameters
from seqmodels.inference.chains.densities import LogDensities
from seqmodels.inference.chains.forward_backward import forward_backward_pass
from seqmodels.inference.chains.log_weights import relative_to_largest, safe_log
from seqmodels.inference.chains.trellis import Trellis
from seqmodels.observations import Observation

if TYPE_CHECKING:
    from seqmodels.hmm.score_loops import ScoreLayout, Smoothed

LEAST_DENSITY = 1e-300  # of possible densities relative to the largest of a step
NUMBERS_AT_ONCE = 1 << 23  # numbers of some shifts that are held at once
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

    @property
    def has_duration_slopes(self) -> bool:
        """True if durations depend on inputs."""
        return bool(self.duration.numel()) and bool((self.duration[:, -1, 1:] >= 0).any())

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


class HasDerivatives(Protocol):
    """The results of a forward-backward pass over a batch, from which derivatives of its log-likelihood follow."""

    def value_and_gradient(self, places: Places) -> tuple[float, Tensor]:
        """Return the log-likelihood times the batch's weight, and its gradient ``(P,)`` by Fisher's identity."""

    def information(self, places: Places) -> Tensor:
        """Return minus the Hessian of the log-likelihood times the batch's weight, ``(P, P)``."""


class CanShift(Protocol):
    """The probabilities and densities of the steps of a batch, whose linear predictors can be shifted."""

    def shifted(self, shift: Shift, factor: float, observation: Observation) -> CanShift:
        """Return the same with ``factor`` times a shift added to the linear predictors."""

    def posterior(self) -> HasDerivatives:
        """Return the results of the forward-backward pass."""


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
            value_of_batch, gradient_of_batch = self._posterior(steps, u).value_and_gradient(self.places)
            value, gradient = value + value_of_batch, gradient + gradient_of_batch
        return value, gradient

    def derivatives(self, u: Tensor) -> tuple[float, Tensor, Tensor]:
        """Return the objective at ``u (P,)``, its gradient ``(P,)`` and minus its Hessian, ``(P, P)``.

        All are exact, but for the Hessian of the log-prior, which is a difference of gradients.
        """
        value, gradient = self._prior(u)
        information = self._prior_information(u)
        for steps in self.steps:
            posterior = self._posterior(steps, u, second=True)
            value_of_batch, gradient_of_batch = posterior.value_and_gradient(self.places)
            value, gradient = value + value_of_batch, gradient + gradient_of_batch
            if not np.isfinite(value):
                break
            information = information + posterior.information(self.places)
        return value, gradient, information

    def information_gradient(self, u: Tensor, covariance: Tensor) -> Tensor:
        """Return the gradient of ``tr(covariance @ information)`` by u, ``(P,)``, of the log-likelihood's information.

        It is a sum of second differences of the gradient along directions that change the tables of emissions, for each
        sequence by itself, side by side. For the others it is in closed form.

        Args:
            u: the numbers, ``(P,)``.
            covariance: a positive semi-definite matrix, ``(P, P)``.
        """
        total = torch.zeros_like(u)
        for steps in self.steps:
            predicted, factors = self._predicted(steps, u), steps.factors(covariance)
            posterior = predicted.posterior()
            total += posterior.trace_gradient(self.places, [rest for _, rest in factors])
            shifts = steps.shifts_along([along for along, _ in factors], self.places, moves_table=True)
            total += self._second_differences(predicted, posterior, shifts)
        return total

    def _second_differences(self, predicted: CanShift, posterior: HasDerivatives, shifts: Iterator[Shift]) -> Tensor:
        """Return minus the sum of the second differences of a batch's gradient along shifts, ``(P,)``."""
        centre = posterior.value_and_gradient(self.places)[1]
        total = torch.zeros_like(centre)
        for shift in shifts:
            along = ALONG / max(1.0, shift.largest)
            for sign in (along, -along):
                shifted = predicted.shifted(shift, sign, self.emission.observation)
                total += (centre - shifted.posterior().value_and_gradient(self.places)[1]) / along**2
        return total

    def _posterior(self, steps: BatchSteps, u: Tensor, *, second: bool = False) -> HasDerivatives:
        """Return what derivatives follow from, with arguments as for ``_predicted``."""
        return self._predicted(steps, u, second=second).posterior()

    def _predicted(self, steps: BatchSteps, u: Tensor, *, second: bool = False) -> _Predicted:
        """Return the probabilities and densities of the steps of a batch.

        Args:
            steps: the steps of the batch.
            u: the numbers, ``(P,)``.
            second: True if the information is asked for.
        """
        p, inputs, batch = self.coordinates.at(u.detach())[0], steps.design[:, 1:], steps.batch
        outputs, log_b, first, hessians = self._densities(p, steps, second=second)
        logits = safe_log(p.transition).expand(len(inputs), -1, -1)
        if p.transition_slopes is not None:
            logits = logits + (inputs @ p.transition_slopes.flatten(0, 1).T).view(logits.shape)
        trellis = batch.trellis(replace(p, transition_slopes=None), LogDensities(log_b))
        return _Predicted.of(steps, trellis, logits, outputs, (first, hessians))

    def _densities(
        self, p: Parameters, steps: BatchSteps, *, second: bool
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Return output parameters at each step, ``(N, K, L)``, and what ``density_derivatives`` returns at them."""
        outputs, batch = self.emission.observed(p.table).expand(len(steps.design), -1, -1), steps.batch
        if p.table_slopes is not None:
            slopes = self.emission.observed(p.table_slopes)
            outputs = outputs + torch.einsum("nc,klc->nkl", steps.design[:, 1:], slopes)
        return outputs, *density_derivatives(self.emission.observation, outputs, batch.x, batch.past, second=second)

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

    @cached_property
    def layout(self) -> ScoreLayout:
        """The steps and their terms as arrays, in the form that compiled loops read."""
        from seqmodels.hmm.score_loops import ScoreLayout

        each, counts = self.sequences, [len(each.rows) for each in self.sequences]
        most = max((len(of.read) for of in each), default=0)
        design = [self.design[of.rows][:, of.read].T for of in each]
        padded = [torch.nn.functional.pad(of, (0, 0, 0, most - len(of))) for of in design]  # (c, T)
        n_terms, bounds = 0, list[Tensor]()
        terms = list[tuple[Tensor, Tensor, Tensor]]()
        for of in each:
            arrays = of.places.transition, of.places.table, of.places.initial
            places = torch.cat([array.flatten(0, -2) for array in arrays])  # (M, c)
            units = [torch.ones_like(array, dtype=torch.float64) for array in arrays]
            units[1] = of.places.unit
            number, column = (places >= 0).nonzero(as_tuple=True)
            unit = torch.cat([array.flatten(0, -2) for array in units])[number, column]
            bounds.append(n_terms + torch.searchsorted(number, torch.arange(len(places) + 1)))
            n_terms += len(number)
            terms.append((column, places[number, column], unit))
        column_of, place_of, unit_of = (torch.cat(of).numpy() for of in zip(*terms, strict=True))
        return ScoreLayout(
            np.cumsum([0, *counts]),
            torch.cat([of.rows for of in each]).numpy(),
            torch.cat(padded, 1).numpy(),
            torch.stack(bounds).numpy(),
            column_of,
            place_of,
            unit_of,
            np.cumsum([0, *(len(of.used) for of in each)]),
            torch.cat([of.used for of in each]).numpy(),
            torch.cat([of.sums for of in each]).numpy(),
        )

    def shifts(self, places: Places, covariance: Tensor) -> Iterator[Shift]:
        """Yield shifts of the linear predictors along the columns of a factor of a covariance of the P numbers.

        The factor is of the rows and columns of the numbers that a sequence depends on, for each sequence by itself.
        Its last columns leave the tables of emissions as they are, so that densities are computed for the first alone.
        """
        factors = self.factors(covariance)
        yield from self.shifts_along([along for along, _ in factors], places, moves_table=True)
        yield from self.shifts_along([rest for _, rest in factors], places, moves_table=False)

    def factors(self, covariance: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Return factors R and S of the covariance of the q sums of each sequence, given that of the P numbers.

        The covariance is ``R R' + S S'``, and S is zero in the rows of numbers of the tables of emissions.
        """
        return [_factors(each.covariance(covariance), each.places.table) for each in self.sequences]

    def shifts_along(self, parts: Sequence[Tensor], places: Places, *, moves_table: bool) -> Iterator[Shift]:
        """Yield shifts of the linear predictors along columns ``(q, m)`` of changes of the sums of each sequence.

        Args:
            parts: the columns of each sequence.
            places: places of coefficients among all numbers.
            moves_table: True if they change the tables of emissions.
        """
        n, k, n_outputs = len(self.design), *places.table.shape[:2]
        size = max(1, NUMBERS_AT_ONCE // (n * k * (k + n_outputs)))
        n_shifts = max((part.shape[1] for part in parts), default=0)
        for begin in range(0, n_shifts, size):
            m = min(size, n_shifts - begin)
            initial = self.design.new_zeros(m, len(self.sequences), k)
            transition = self.design.new_zeros(n, m, k, k)
            table = self.design.new_zeros(n, m, k, n_outputs) if moves_table else None
            duration = self.design.new_zeros(n, m, k) if places.has_duration_slopes else None
            for i, (each, part) in enumerate(zip(self.sequences, parts, strict=True)):
                along = part[:, begin : begin + m].T
                padded = torch.cat([along, along.new_zeros(len(along), 1)], 1)  # the place -1 is this zero
                d = self.design[each.rows][:, each.read]
                initial[: len(along), i] = padded[:, each.places.initial] @ d[0]
                by_column = padded[:, each.places.transition].permute(3, 0, 1, 2)  # (c, m, K, K)
                transition[each.rows, : len(along)] = torch.tensordot(d, by_column, 1)
                if table is not None:
                    by_column = (padded[:, each.places.table] * each.places.unit).permute(3, 0, 1, 2)
                    table[each.rows, : len(along)] = torch.tensordot(d, by_column, 1)
                if duration is not None:
                    coefficients = padded[:, each.places.duration[:, -1]] * each.places.duration_unit[:, -1]
                    duration[each.rows, : len(along)] = torch.tensordot(d, coefficients.permute(2, 0, 1), 1)
            for i in range(m):
                of_outputs = (None if each is None else each[:, i] for each in (table, duration))
                yield Shift(initial[i], transition[:, i], *of_outputs)


def _factors(matrix: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
    """Return R and S with ``R R' + S S' = matrix``, where S is zero in the rows of the places of a table.

    Args:
        matrix: a positive semi-definite matrix, ``(q, q)``.
        table: numbers of rows in any shape; -1 is none.
    """
    is_first = torch.zeros(len(matrix) + 1, dtype=torch.bool)
    is_first[table] = True
    first, rest = is_first[:-1], ~is_first[:-1]
    least = 1e-14 * float(matrix.diagonal().max()) if len(matrix) else 0.0
    of_first = _root(matrix[first][:, first], least)
    along = matrix[:, first] @ (of_first / of_first.square().sum(0))
    after = matrix.new_zeros(len(matrix), int(rest.sum()))
    after[rest] = torch.eye(after.shape[1], dtype=matrix.dtype)
    return along, after @ _root((matrix - along @ along.T)[rest][:, rest], least)


def _root(matrix: Tensor, least: float) -> Tensor:
    """Return R with ``R R' = matrix``, a positive semi-definite matrix ``(p, p)``, and orthogonal columns.

    Directions with variances up to ``least`` are left out.
    """
    values, vectors = torch.linalg.eigh(matrix)
    result: Tensor = vectors[:, values > least] * values[values > least].sqrt()
    return result


@dataclass(frozen=True)
class _Predicted:
    """The probabilities and densities of N steps, from which a forward-backward pass runs.

    Attributes:
        steps: the steps of the batch.
        trellis: probabilities of first states and ends, and densities.
        b: densities relative to the largest of each step, ``(N, K)``.
        peak: the sum of the logarithms of the largest densities.
        logits: logits of the transitions into each step, ``(N, K, K)``.
        outputs: output parameters of the density of each step in each state, ``(N, K, L)``.
        first: derivatives of log-densities by output parameters, ``(N, K, L)``.
        second: their second derivatives, ``(N, K, L, L)``, or None.
    """

    steps: BatchSteps
    trellis: Trellis
    b: Tensor
    peak: float
    logits: Tensor
    outputs: Tensor
    first: Tensor
    second: Tensor | None

    @classmethod
    def of(
        cls,
        steps: BatchSteps,
        trellis: Trellis,
        logits: Tensor,
        outputs: Tensor,
        derivatives: tuple[Tensor, Tensor | None],
    ) -> _Predicted:
        """Return the probabilities of steps, given the first and second derivatives of the densities of a trellis."""
        log_b, peak = relative_to_largest(trellis.densities.log().double())
        b = log_b.exp().clamp_(min=LEAST_DENSITY).masked_fill_(log_b == -torch.inf, 0.0)
        first, second = derivatives
        return cls(steps, trellis, b, float(peak.sum()), logits, outputs, first.contiguous(), second)

    def shifted(self, shift: Shift, factor: float, observation: Observation) -> _Predicted:
        """Return the same with linear predictors to which ``factor`` times a shift is added, without ``second``.

        Args:
            shift: the shift.
            factor: what it is multiplied by.
            observation: the emission distribution.
        """
        batch, logits = self.steps.batch, torch.add(self.logits, shift.transition, alpha=factor)
        initial = (self.trellis.initial.log() + factor * shift.initial).softmax(-1)
        trellis = replace(self.trellis, initial=initial)
        if shift.table is None:
            return replace(self, trellis=trellis, logits=logits, second=None)
        outputs = self.outputs + factor * shift.table
        log_b, first, _ = density_derivatives(observation, outputs, batch.x, batch.past, second=False)
        trellis = replace(trellis, densities=LogDensities(log_b))
        return _Predicted.of(self.steps, trellis, logits, outputs, (first, None))

    def posterior(self) -> _Posterior:
        """Return the results of the forward-backward pass, in logarithms where probabilities would be too small."""
        from seqmodels.hmm.score_loops import Smoothed, smooth

        layout, n = self.steps.layout, self.steps.batch.segments.n_sequences
        ends = self.trellis.initial, self.trellis.final
        initial, final = (each.expand(n, -1).contiguous().numpy() for each in ends)
        smoothed, log_prob = Smoothed.of(self.logits.shape, initial), np.empty(n)
        buffer, odds = np.empty(self.b.shape), self.logits.exp().numpy()
        if smooth(layout.starts, layout.order, odds, self.b.numpy(), final, smoothed, buffer, log_prob):
            value = float(log_prob.sum()) + self.peak
        else:
            log_a = self.logits.log_softmax(-1)
            ran = forward_backward_pass(replace(self.trellis, log_transitions=log_a))
            assert ran.transitions is not None, "there is a matrix at every step"
            of_rows = log_a.exp(), ran.gamma.double(), ran.transitions
            transition, gamma, xi = (each.numpy()[layout.order] for each in of_rows)
            smoothed, value = Smoothed(transition, gamma, xi, initial), float(ran.log_prob.sum())
        return _Posterior(self.steps, value, smoothed, self.first, self.second)


@dataclass(frozen=True)
class _Posterior:
    """The results of one forward-backward pass over a batch of N steps, from which all derivatives follow.

    Attributes:
        steps: the steps of the batch.
        value: log-likelihood in nats; -inf if a sequence is impossible.
        smoothed: posterior of the states.
        first: derivatives of log-densities by output parameters, ``(N, K, L)``.
        second: their second derivatives, ``(N, K, L, L)``, or None.
    """

    steps: BatchSteps
    value: float
    smoothed: Smoothed
    first: Tensor
    second: Tensor | None

    def value_and_gradient(self, places: Places) -> tuple[float, Tensor]:
        """Return the log-likelihood times the batch's weight, and its gradient ``(P,)`` by Fisher's identity."""
        from seqmodels.hmm.score_loops import add_gradient

        gradient, weight = np.zeros(places.n), self.steps.batch.weight
        add_gradient(self.steps.layout, self.smoothed, self.first.numpy(), gradient)
        return weight * self.value, weight * torch.from_numpy(gradient)

    def information(self, places: Places) -> Tensor:
        """Return minus the Hessian of the log-likelihood times the batch's weight, ``(P, P)``."""
        from seqmodels.hmm.score_loops import add_information

        assert self.second is not None
        information = np.zeros((places.n, places.n))
        add_information(self.steps.layout, self.smoothed, self.first.numpy(), self.second.numpy(), information)
        return self.steps.batch.weight * torch.from_numpy(information)

    def trace_gradient(self, places: Places, factors: Sequence[Tensor]) -> Tensor:
        """Return the gradient of the sum of ``tr(S' @ information @ S)`` of all sequences times the weight, ``(P,)``.

        Args:
            places: places of coefficients among all numbers.
            factors: S of each sequence, ``(q, m)``, zero in the rows of numbers of the tables of emissions.
        """
        from seqmodels.hmm.score_loops import add_trace_gradient

        most, gradient = max((len(factor) for factor in factors), default=0), np.zeros(places.n)
        covariances = np.zeros((len(factors), most, most))
        for covariance, factor in zip(covariances, factors, strict=True):
            covariance[: len(factor), : len(factor)] = (factor @ factor.T).numpy()
        add_trace_gradient(self.steps.layout, self.smoothed, self.first.numpy(), covariances, gradient)
        return self.steps.batch.weight * torch.from_numpy(gradient)


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
