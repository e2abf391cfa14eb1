"""``Coordinates``: the parameters of a fitted chain and its emissions as a function of unconstrained numbers.

Probabilities are softmaxes of logits, the largest of which is held fixed, and rates are exponentials. The parameters of
emissions are described in ``hmm.estimates``. Slopes of regressions on inputs may take any value. Parameters that are
frozen, forbidden by the topology or implied by others are not estimated, and parameters on a boundary are held where
they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from seqmodels.encodings.inputs import InputScaling
from seqmodels.hmm.emissions import Emission
from seqmodels.hmm.emissions.given_inputs import regressed_columns
from seqmodels.hmm.estimates import ON_BOUNDARY, Emitted, Estimate, free_logits, is_inner
from seqmodels.hmm.learning.first_state import Start, differentiable_stationary
from seqmodels.hmm.learning.given_inputs import InputOptions, has_initial_slope, has_transition_slope
from seqmodels.hmm.learning.options import ChainOptions
from seqmodels.hmm.parameters import SLOPES, Parameters
from seqmodels.inference.chains.continuous_time import generator_of, generators_at
from seqmodels.inference.chains.given_inputs import log_initial, log_transitions

STEPS_AT_ONCE = 1 << 14  # steps whose probabilities given inputs are averaged at once; bounds memory
ON_LEAST_RATE = "on the boundary: a rate of less than one jump in all of the time, where intervals do not hold"

Regressed = Literal["transition", "emission", "start", "duration"]  # the parts of a model that may depend on inputs


@dataclass(frozen=True)
class GivenInputs:
    """The regressions of a model on its U inputs, and its parameters averaged over the inputs of the data.

    Attributes:
        options: columns of the inputs that transitions, emissions and the first state are regressed on.
        names: names of the inputs, and of the columns of terms after them.
        scale: size of one unit of each standardised input in raw units, ``(U,)``; 1 for columns of terms.
        rows: transition probabilities on average over all steps, ``(K, K)``; in continuous time rates (generators).
        table: output parameters (the P numbers that the observation takes for a state) of emissions averaged over all
            steps, ``(K, P)``.
        initial: probabilities of the first state on average over all sequences, ``(K,)``.
    """

    options: InputOptions
    names: tuple[str, ...]
    scale: Tensor
    rows: Tensor
    table: Tensor
    initial: Tensor

    @classmethod
    def of(
        cls, options: InputOptions, scaling: InputScaling, p: Parameters, emitted: Emitted, inputs: Sequence[np.ndarray]
    ) -> GivenInputs:
        """Return the regressions on inputs, with the parameters averaged over the inputs of some sequences.

        Args:
            options: columns of the inputs that transitions, emissions and the first state are regressed on.
            scaling: names of the inputs, and the raw size of one standardised unit of each.
            p: parameters with slopes.
            emitted: description of the parameters of the emission, which says in which form they may be averaged.
            inputs: standardised inputs of each sequence, ``(T, U)``.
        """
        rows = p.transition if p.generator is None else p.generator
        table, initial, data = p.table, p.initial, torch.as_tensor(np.concatenate(inputs))
        if p.initial_slopes is not None:
            first = torch.as_tensor(np.stack([u[0] for u in inputs]))
            initial = log_initial(p.initial, p.initial_slopes, first).exp().mean(0)
        if p.transition_slopes is not None:
            sums = [
                log_transitions(p.transition, p.transition_slopes, u).exp().sum(0)
                if p.generator is None
                else generators_at(p.generator, p.transition_slopes, u).sum(0)
                for u in data.split(STEPS_AT_ONCE)
            ]
            rows = torch.stack(sums).sum(0) / len(data)
        if p.table_slopes is not None:
            at = (p.table + torch.einsum("nu,kpu->nkp", u, p.table_slopes) for u in data.split(STEPS_AT_ONCE))
            table = emitted.table_of_expected(torch.stack([emitted.expected(t).sum(0) for t in at]).sum(0) / len(data))
        return cls(options, scaling.columns, torch.as_tensor(scaling.units), rows, table, initial)


@dataclass(frozen=True)
class Numbers:
    """An array of numbers of which some are free: ``base + unit * u``, with one unconstrained coordinate u for each.

    Attributes:
        free: True for the free numbers.
        base: the numbers at ``u = 0``, in the shape of ``free``.
        unit: change of each number for a change of u by 1, in the shape of ``free``.
    """

    free: Tensor
    base: Tensor
    unit: Tensor

    def at(self, u: Tensor) -> Tensor:
        """Return the array at given coordinates of its free numbers, differentiable; the other numbers keep their base.

        ``u`` has one coordinate for each free number, in the order of the array.
        """
        changed = self.base[self.free] + self.unit[self.free] * u
        return self.base.index_put(self.free.nonzero(as_tuple=True), changed)


@dataclass(frozen=True)
class Coordinates:
    """The parameters of a fitted model as a function of unconstrained numbers ``u (P,)``, zero at the estimates.

    The numbers are logits of probabilities, output parameters of the emissions and slopes on inputs; a chain in
    continuous time has logarithms of its rates where another has logits of its transitions.

    Attributes:
        parameters: the estimates.
        emission: the emission of the states.
        emitted: description of the emission's parameters, which says which of them are estimated.
        options: topology of the chain, and what is tied and frozen.
        start: how the distribution of the first state is determined.
        least: the smallest probability that does not count as being on the boundary.
        given: the regressions on inputs, or None.
        least_rate: the smallest rate that does not count as being on the boundary, for a chain in continuous time.
        goes_far: True if u goes far from zero, as the draws of a sampler do. Output parameters are then transformed by
            ``Emission.unbounded``, because a probability plus a number may be no probability.
    """

    parameters: Parameters
    emission: Emission
    emitted: Emitted
    options: ChainOptions
    start: Start
    least: float
    given: GivenInputs | None = None
    least_rate: float = 0.0
    goes_far: bool = False

    @property
    def _state_of_row(self) -> Tensor:
        return torch.arange(len(self.parameters.transition)) % self._n_states

    @property
    def _n_states(self) -> int:
        return len(self.parameters.initial)

    @property
    def _rows(self) -> Tensor:
        """Transition probabilities, ``(K, K)``, with one more column for ends where these are events."""
        p = self.parameters
        return p.transition if p.final is None else torch.cat([p.transition, p.final[:, None]], 1)

    @property
    def _table(self) -> Tensor:
        """Output parameters of the G distinct emissions, ``(G, P)``; tied states share one."""
        return self.options.constraints.tying.one_each(self.parameters.table)

    @property
    def _mean_rows(self) -> Tensor:
        """The transition probabilities ``(K, K)``, with a column for ends, that are tested for being on a boundary.

        They are averages over the data if transitions depend on inputs. In continuous time they are the generator.
        """
        rows = self._rows if self.parameters.generator is None else self.parameters.generator
        return rows if self.given is None else self.given.rows

    @property
    def _is_inner_row(self) -> Tensor:
        if self.parameters.generator is not None:
            return self._mean_rows > self.least_rate
        return is_inner(self._mean_rows, self.least)

    @property
    def _mean_table(self) -> Tensor:
        """Output parameters of the G distinct emissions, ``(G, P)``; averages over the data if inputs change them."""
        return self._table if self.given is None else self.options.constraints.tying.one_each(self.given.table)

    @property
    def _mean_initial(self) -> Tensor:
        return self.parameters.initial if self.given is None else self.given.initial

    @property
    def _is_jump(self) -> Tensor:
        """A mask ``(K, K)`` that is True for the rates of a chain in continuous time that are not fixed at zero."""
        generator = self.parameters.generator
        assert generator is not None, "of a chain in continuous time"
        return ~torch.eye(len(generator), dtype=torch.bool) & (generator > 0)

    @cached_property
    def _numbers(self) -> dict[str, Numbers]:
        """All numbers, free or not, by name: logits of first state and transitions (or log-rates), table, slopes."""
        p, frozen, k = self.parameters, self.options.constraints.frozen, self._n_states
        initial = free_logits(self._mean_initial, self.least)
        if frozen.initial or self.start != "free":
            initial = torch.zeros_like(initial)
        moves = ~frozen.rows(frozen.transition, k)[self._state_of_row][:, None]
        is_frozen = self.options.constraints.frozen_groups
        emits, table, lengths = ~is_frozen[:, None], self._table, self.emitted.lengths(self._table)
        if self.goes_far:
            table = self.emission.unbounded(table)
            lengths = torch.where(table == self._table, lengths, 1.0)
        if p.generator is None:
            is_free, base = free_logits(self._mean_rows, self.least) & moves, self._rows.log()
        else:
            is_free = self._is_jump & moves & self._is_inner_row
            base = torch.where(self._is_jump, p.generator, 1.0).log()
        numbers = {
            "initial": Numbers(initial, p.initial.log(), torch.ones_like(p.initial)),
            "rows": Numbers(is_free, base, torch.ones_like(base)),
            "table": Numbers(self.emitted.is_free(self._mean_table) & emits, table, lengths),
        }
        if p.transition_slopes is not None:
            has_slope = has_transition_slope(p) & self._is_inner_row & moves
            free = self._of_inputs(has_slope, "transition")
            numbers["transition_slopes"] = Numbers(free, p.transition_slopes, torch.ones_like(p.transition_slopes))
        if p.table_slopes is not None:
            has_slope = torch.zeros_like(table, dtype=torch.bool)
            places = regressed_columns(self.emission).places
            has_slope[:, places] = (self.emitted.has_slope(self._mean_table) & emits)[:, places]
            tying = self.options.constraints.tying
            is_first = self.options.constraints.tying_of(self.emission).is_first
            free = self._of_inputs(tying.spread(has_slope) & is_first[:, None], "emission")
            of_slopes = tying.spread(lengths).unsqueeze(-1).expand_as(p.table_slopes)
            numbers["table_slopes"] = Numbers(free, p.table_slopes, of_slopes)
        if p.initial_slopes is not None:
            has_slope = (
                has_initial_slope(self.parameters.initial)
                & is_inner(self._mean_initial, self.least)
                & (not frozen.initial)
            )
            free = self._of_inputs(has_slope, "start")
            numbers["initial_slopes"] = Numbers(free, p.initial_slopes, torch.ones_like(p.initial_slopes))
        if p.duration_slopes is not None:
            free = self._of_inputs(self.emission.has_free_durations(k), "duration")
            numbers["duration_slopes"] = Numbers(free, p.duration_slopes, torch.ones_like(p.duration_slopes))
        return numbers

    def _of_inputs(self, has_slope: Tensor, which: Regressed) -> Tensor:
        """Return a mask of the slopes on U inputs that are estimated, ``(..., U)``.

        It is True where ``has_slope (...)``, a mask of parameters that depend on inputs, is True and the input is used.

        ``which`` is the part of the model whose slopes these are.
        """
        assert self.given is not None
        is_read = torch.zeros(len(self.given.names), dtype=torch.bool)
        is_read[list(self._columns(which))] = True
        return has_slope.unsqueeze(-1) & is_read

    def _columns(self, which: Regressed) -> tuple[int, ...]:
        """Return the columns of the inputs that one part of the model depends on; empty if it depends on none.

        ``which`` is that part: transitions, emissions, the first state or durations.
        """
        if self.given is None:
            return ()
        o = self.given.options
        return {"transition": o.transition, "emission": o.emission, "start": o.start, "duration": o.duration}[which]

    @property
    def places(self) -> dict[str, Tensor]:
        """The place of each number among the unconstrained numbers, by name; -1 where a number is not free."""
        begin, places = 0, {}
        for name, numbers in self._numbers.items():
            count = numbers.free.flatten().cumsum(0).view(numbers.free.shape)
            places[name] = torch.where(numbers.free, begin + count - 1, -1)
            begin += int(numbers.free.sum())
        return places

    @property
    def units(self) -> dict[str, Tensor]:
        """Change of each number with its unconstrained coordinate, by name."""
        return {name: numbers.unit for name, numbers in self._numbers.items()}

    @property
    def bases(self) -> dict[str, Tensor]:
        """The numbers at ``u = 0`` by name: logarithms of probabilities or rates, output parameters, and slopes."""
        return {name: numbers.base for name, numbers in self._numbers.items()}

    @property
    def n(self) -> int:
        """Number of unconstrained numbers, P, the length of ``u``."""
        return sum(int(numbers.free.sum()) for numbers in self._numbers.values())

    def at(self, u: Tensor) -> tuple[Parameters, Tensor]:
        """Return the parameters at the unconstrained numbers ``u (P,)``, and the table of distinct emissions.

        Both are differentiable in ``u``. The table ``(G, P')`` has the output parameters of G emissions; states that
        are tied share one.
        """
        changes = u.split([int(numbers.free.sum()) for numbers in self._numbers.values()])
        moved = {
            name: numbers.at(change) for (name, numbers), change in zip(self._numbers.items(), changes, strict=True)
        }
        rows, k, generator = moved["rows"].softmax(-1), self._n_states, None
        transition = rows[:, :k].contiguous()
        if self.parameters.generator is not None:
            generator = generator_of(torch.where(self._is_jump, moved["rows"].exp(), 0.0))
            transition = torch.linalg.matrix_exp(generator)
        initial = moved["initial"].softmax(-1)
        if self.start == "stationary":
            initial = differentiable_stationary(transition, ends=self.parameters.final is not None)
        final = None if self.parameters.final is None else rows[:, k].contiguous()
        table_of = self.emission.of_unbounded if self.goes_far else self.emission.tie
        table = table_of(self.options.constraints.tying.spread(moved["table"]))
        of_transition, of_table, of_initial, of_durations = map(moved.get, SLOPES)
        if of_durations is not None:
            of_durations = self.emission.with_shared_durations(of_durations)
        if of_table is not None:
            of_table = self.options.constraints.tying_of(self.emission).shared(of_table)
        slopes = (of_transition, of_table, of_initial, of_durations)
        at = Parameters(initial, transition, final, table, *slopes, generator)
        of_groups = self.options.constraints.tying.one_each(table) if self.goes_far else moved["table"]
        return at, of_groups

    def raw(self, u: Tensor, shift: Tensor, scale: Tensor) -> dict[str, Tensor]:
        """Return all parameters at the unconstrained numbers ``u (P,)`` by name, in raw units, differentiable in ``u``.

        Args:
            u: the unconstrained numbers, ``(P,)``.
            shift: raw values of D features are ``shift + scale * encoded``, ``(D,)``.
            scale: see ``shift``, ``(D,)``.
        """
        parameters, _ = self.at(u)
        final = {} if parameters.final is None else {"final": parameters.final}
        chain = {"initial": parameters.initial, "transition": parameters.transition, **final}
        if parameters.generator is not None:
            chain["generator"] = parameters.generator
        return {**chain, **self.emitted.raw(parameters.table, shift, scale), **self.raw_slopes(parameters, scale)}

    @property
    def _name_of_slopes(self) -> str:
        return "transition_slopes" if self.parameters.generator is None else "generator_slopes"

    def raw_slopes(self, parameters: Parameters, scale: Tensor) -> dict[str, Tensor]:
        slopes = {}
        if self.given is not None and parameters.transition_slopes is not None:
            slopes[self._name_of_slopes] = parameters.transition_slopes / self.given.scale
        if self.given is not None and parameters.table_slopes is not None:
            regression = regressed_columns(self.emission)
            of_location = parameters.table_slopes[:, regression.places]
            slopes["emission_slopes"] = of_location * regression.units(scale)[:, None] / self.given.scale
        if self.given is not None and parameters.initial_slopes is not None:
            slopes["initial_slopes"] = parameters.initial_slopes / self.given.scale
        if self.given is not None and parameters.duration_slopes is not None:
            slopes["duration_slopes"] = parameters.duration_slopes / self.given.scale
        return slopes

    def estimates(self) -> list[Estimate]:
        """Return a description of every estimated parameter, with a note if it is on a boundary."""
        frozen, topology, k = self.options.constraints.frozen, self.options.topology, self._n_states
        result: list[Estimate] = []
        if not frozen.initial and self.start != "uniform":
            result += self._of_row("initial", self._mean_initial, topology.initial_mask(k), None)
            result += self._initial_slopes()
        is_frozen = frozen.rows(frozen.transition, k)
        mask = topology.transition_mask(k)
        if self.parameters.final is not None:
            mask = torch.cat([mask, topology.final_mask(k)[:, None]], 1)
        for row, i in enumerate(self._state_of_row.tolist() if self.parameters.generator is None else ()):
            if not is_frozen[i]:
                result += self._of_row("transition", self._mean_rows[row], mask[i], row)
        result += self._rates(is_frozen)
        frozen_emission = frozen.rows(frozen.emission, k)
        of_states = self.emitted.estimates(self.parameters.table if self.given is None else self.given.table)
        result += [e for e in of_states if not (frozen_emission.all() if e.state is None else frozen_emission[e.state])]
        of_inputs = (*self._transition_slopes(is_frozen), *self._emission_slopes(frozen_emission))
        return [*result, *of_inputs, *self._duration_slopes()]

    def _rates(self, is_frozen: Tensor) -> Iterator[Estimate]:
        generator = self.parameters.generator
        if generator is None:
            return
        for i, j in (self._is_jump & ~is_frozen[:, None]).nonzero().tolist():
            note = "" if self._is_inner_row[i, j] else ON_LEAST_RATE
            yield Estimate("generator", (i, j), i, j, "log", note)

    def _initial_slopes(self) -> Iterator[Estimate]:
        columns, inner = self._columns("start"), is_inner(self._mean_initial, self.least)
        if self.given is None or not columns:
            return
        for j in has_initial_slope(self.parameters.initial).nonzero()[:, 0].tolist():
            for u in columns:
                yield Estimate(
                    "initial_slopes", (j, u), j, self.given.names[u], "identity", "" if inner[j] else ON_BOUNDARY
                )

    def _duration_slopes(self) -> Iterator[Estimate]:
        columns = self._columns("duration")
        if self.given is None or not columns:
            return
        free = self.emission.has_free_durations(self._n_states).double()[:, None]
        for k in self.emission.with_shared_durations(free)[:, 0].nonzero()[:, 0].tolist():
            for u in columns:
                yield Estimate("duration_slopes", (k, u), k, self.given.names[u], "identity")

    def _transition_slopes(self, is_frozen: Tensor) -> Iterator[Estimate]:
        columns, inner = self._columns("transition"), self._is_inner_row
        if self.given is None or not columns:
            return
        boundary = ON_BOUNDARY if self.parameters.generator is None else ON_LEAST_RATE
        for i, j in (has_transition_slope(self.parameters) & ~is_frozen[:, None]).nonzero().tolist():
            for u in columns:
                feature, note = (j, self.given.names[u]), "" if inner[i, j] else boundary
                yield Estimate(self._name_of_slopes, (i, j, u), i, feature, "identity", note)

    def _emission_slopes(self, is_frozen: Tensor) -> Iterator[Estimate]:
        columns = self._columns("emission")
        if self.given is None or not columns:
            return
        regression = regressed_columns(self.emission)
        if self.emission.frozen_states is not None:
            is_frozen = is_frozen | self.emission.frozen_states
        free = self.options.constraints.tying_of(self.emission).shared(self.emitted.has_slope(self.given.table))
        free_of_location, labels = free[:, regression.places], regression.labels(self.emitted.names)
        for i, d in product(range(len(free)), range(int(regression.has_reference), len(labels))):
            for u in columns if not is_frozen[i] else ():
                note = "" if free_of_location[i, d] else ON_BOUNDARY
                yield Estimate("emission_slopes", (i, d, u), i, (labels[d], self.given.names[u]), "identity", note)

    def _of_row(self, name: str, row: Tensor, mask: Tensor, state: int | None) -> Iterator[Estimate]:
        """Yield a description of each probability of one distribution over states, if more than one state is possible.

        Args:
            name: name of the array that it belongs to.
            row: the probabilities, ``(K,)`` or with the end ``(K + 1,)``.
            mask: True for possible states, in the shape of ``row``.
            state: the state before; None for the distribution of the first state.
        """
        if int(mask.sum()) < 2:
            return
        inner = is_inner(row, self.least)
        for j in mask.nonzero()[:, 0].tolist():
            note = "" if inner[j] else ON_BOUNDARY
            if state is None:
                yield Estimate(name, (j,), j, None, "logit", note)
            elif j == len(self.parameters.initial):
                yield Estimate("final", (state,), state, None, "logit", note)
            else:
                yield Estimate(name, (state, j), state, j, "logit", note)
