"""Which parameters of a fitted HMM are estimated, the unconstrained numbers they are functions of, and their raw units.

Probabilities are softmaxes of logits, of which the largest is held fixed; variances, rates and odds are those of the
observation's output parameters, which may take any value. What is frozen, ruled out by the topology or implied is no
estimate. What lies on a boundary has no unconstrained number either: it is held where it is. Slopes of regressions on
inputs may take any value too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, singledispatch
from itertools import product
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from seqmodels.encodings.inputs import InputScaling
from seqmodels.hmm.emissions import Emission
from seqmodels.hmm.emissions.given_inputs import regression_of
from seqmodels.hmm.learning.first_state import Start, differentiable_stationary
from seqmodels.hmm.learning.given_inputs import InputOptions, has_initial_slope, has_transition_slope
from seqmodels.hmm.learning.options import ChainOptions
from seqmodels.hmm.parameters import Parameters
from seqmodels.inference.chains.time_varying import log_initial, log_transitions
from seqmodels.observations import (
    AutoregressiveGaussian,
    Categorical,
    Columns,
    GaussianMixture,
    Observation,
    OfIntervals,
    gaussian,
)
from seqmodels.observations.exponential_family import Bernoulli, ExponentialFamily

STEPS_AT_ONCE = 1 << 14  # over which probabilities given inputs are averaged

ON_BOUNDARY = "on the boundary: less than one in the number of frames away from 0 or 1, where intervals do not hold"
ON_ZERO = "on the boundary: a mean below one in the number of frames, where intervals do not hold"
ON_FLOOR = "on the floor of variances, min_covariance, which sets it in place of the data"

Regressed = Literal["transition", "emission", "start"]  # what depends on inputs
Link = Literal["identity", "log", "logit"]  # the scale on which an interval is symmetric


@dataclass(frozen=True)
class Estimate:
    """One parameter as users know it: ``name`` and ``index`` in the array of that name; ``note`` where it has no
    standard error, and why.
    """

    name: str
    index: tuple[int, ...]
    state: int | None
    feature: Any
    link: Link
    note: str = ""


class Emitted(ABC):
    """The estimated parameters of one observation, of tables ``(G, P)`` of distinct states.

    To add one, define the methods below, and register it with ``emitted_of``.
    """

    def __init__(self, observation: Any, size: int, names: list[Any], least: float) -> None:
        self.observation = observation
        self.size = size
        self.names = names  # of features or symbols
        self.least = least  # the smallest probability that is not on the boundary

    @abstractmethod
    def is_free(self, table: Tensor) -> Tensor:
        """``(G, P)`` whether each output parameter is free."""

    def has_slope(self, table: Tensor) -> Tensor:
        """``(G, P)`` whether the slopes of each output parameter that may depend on inputs are free."""
        return self.is_free(table)

    def expected(self, tables: Tensor) -> Tensor:
        """``(N, G, P)``, of N steps -> ``(N, G, P)``, of which the mean says what is on a boundary."""
        return tables

    def table_of_expected(self, mean: Tensor) -> Tensor:
        """``(G, P)``, the mean of ``expected`` -> a table."""
        return mean

    def lengths(self, table: Tensor) -> Tensor:
        """``(G, P)`` over which change of each the density changes: the unit of its differences."""
        return torch.ones_like(table)

    @abstractmethod
    def raw(self, table: Tensor, shift: Tensor, scale: Tensor) -> Mapping[str, Tensor]:
        """``(K, P)`` -> what ``Emission.raw_parameters`` gives, differentiable."""

    @abstractmethod
    def estimates(self, table: Tensor) -> Iterator[Estimate]:
        """All that a table ``(K, P)`` says."""


@singledispatch
def emitted_of(observation: Observation, size: int, names: list[Any], least: float) -> Emitted:
    """The estimated parameters of an observation; ``ValueError`` for one whose standard errors are not known."""
    raise ValueError(
        f"standard errors of {observation!r} are not known; they are of GaussianMixture, Categorical, Poisson, "
        "Bernoulli and other ExponentialFamily, AutoregressiveGaussian, and Columns of these"
    )


@emitted_of.register(OfIntervals)
class _Intervals(Emitted):
    """The parameters of the density that the intervals are of."""

    def __init__(self, observation: OfIntervals, size: int, names: list[Any], least: float) -> None:
        super().__init__(observation, size, names, least)
        n_features = observation.n_features(size)
        self.columns = size // n_features  # of a feature
        self.inner = emitted_of(observation.observation, n_features, names[:: self.columns], least)

    def is_free(self, table: Tensor) -> Tensor:
        return self.inner.is_free(table)

    def lengths(self, table: Tensor) -> Tensor:
        return self.inner.lengths(table)

    def raw(self, table: Tensor, shift: Tensor, scale: Tensor) -> Mapping[str, Tensor]:
        return self.inner.raw(table, shift[:: self.columns], scale[:: self.columns])

    def estimates(self, table: Tensor) -> Iterator[Estimate]:
        return self.inner.estimates(table)


@emitted_of.register(Columns)
class _Groups(Emitted):
    """The parameters of each group of columns; a name that two groups share has the group's number."""

    def __init__(self, observation: Columns, size: int, names: list[Any], least: float) -> None:
        super().__init__(observation, size, names, least)
        self.groups = list(observation.parts())
        self.parts = [emitted_of(g.observation, g.size, names[g.columns], least) for g in self.groups]

    def _of_each(self, of: Callable[[Emitted, Tensor], Tensor], table: Tensor) -> Tensor:
        each = zip(self.groups, self.parts, strict=True)
        return torch.cat([of(part, table[..., g.outputs]) for g, part in each], -1)

    def is_free(self, table: Tensor) -> Tensor:
        return self._of_each(lambda part, outputs: part.is_free(outputs), table)

    def has_slope(self, table: Tensor) -> Tensor:
        return self._of_each(lambda part, outputs: part.has_slope(outputs), table)

    def expected(self, tables: Tensor) -> Tensor:
        return self._of_each(lambda part, outputs: part.expected(outputs), tables)

    def table_of_expected(self, mean: Tensor) -> Tensor:
        return self._of_each(lambda part, outputs: part.table_of_expected(outputs), mean)

    def lengths(self, table: Tensor) -> Tensor:
        return self._of_each(lambda part, outputs: part.lengths(outputs), table)

    def raw(self, table: Tensor, shift: Tensor, scale: Tensor) -> Mapping[str, Tensor]:
        return {name: value for group in self._raw_by_group(table, shift, scale) for name, value in group.values()}

    def estimates(self, table: Tensor) -> Iterator[Estimate]:
        zeros = torch.zeros(self.size, dtype=torch.float64)
        named = self._raw_by_group(table, zeros, zeros + 1)
        for g, part, names in zip(self.groups, self.parts, named, strict=True):
            for estimate in part.estimates(table[..., g.outputs]):
                yield replace(estimate, name=names[estimate.name][0])

    def _raw_by_group(self, table: Tensor, shift: Tensor, scale: Tensor) -> list[dict[str, tuple[str, Tensor]]]:
        """For each group, by the name that an array has in it, the name that it has here, and the array."""
        each = zip(self.groups, self.parts, strict=True)
        raw = [part.raw(table[..., g.outputs], shift[g.columns], scale[g.columns]) for g, part in each]
        times = Counter(name for group in raw for name in group)
        return [
            {name: (name if times[name] == 1 else f"{name}_{i}", value) for name, value in group.items()}
            for i, group in enumerate(raw)
        ]


def free_logits(probabilities: Tensor, least: float) -> Tensor:
    """``(..., V)`` which logits are free: all but those on the boundary and the largest."""
    inner = is_inner(probabilities, least)
    largest = torch.zeros_like(inner).scatter_(-1, probabilities.argmax(-1, keepdim=True), value=True)
    return inner & ~largest


def is_inner(probabilities: Tensor, least: float) -> Tensor:
    """Which probabilities are not on the boundary."""
    return (probabilities >= least) & (probabilities <= 1 - least)


@emitted_of.register(Categorical)
class _Symbols(Emitted):
    def is_free(self, table: Tensor) -> Tensor:
        return free_logits(table.softmax(-1), self.least)

    def has_slope(self, table: Tensor) -> Tensor:
        return is_inner(table.softmax(-1), self.least) & (torch.arange(self.size) > 0)

    def expected(self, tables: Tensor) -> Tensor:
        return tables.softmax(-1)

    def table_of_expected(self, mean: Tensor) -> Tensor:
        return mean.log()

    def raw(self, table: Tensor, shift: Tensor, scale: Tensor) -> Mapping[str, Tensor]:
        return {"emission": table.softmax(-1)}

    def estimates(self, table: Tensor) -> Iterator[Estimate]:
        inner = is_inner(table.softmax(-1), self.least)
        for i, v in product(range(len(table)), range(self.size)):
            yield Estimate("emission", (i, v), i, self.names[v], "logit", "" if inner[i, v] else ON_BOUNDARY)


@emitted_of.register(ExponentialFamily)
class _Features(Emitted):
    def _is_inner(self, table: Tensor) -> Tensor:
        mean = self.observation.expected_value(table)
        return is_inner(mean, self.least) if self._is_bounded else mean >= self.least

    @property
    def _is_bounded(self) -> bool:
        return isinstance(self.observation, Bernoulli)

    def is_free(self, table: Tensor) -> Tensor:
        return self._is_inner(table) & table.isfinite()

    def expected(self, tables: Tensor) -> Tensor:
        mean: Tensor = self.observation.expected_value(tables)
        return mean

    def table_of_expected(self, mean: Tensor) -> Tensor:
        table: Tensor = self.observation.natural_parameter(mean)
        return table

    def raw(self, table: Tensor, shift: Tensor, scale: Tensor) -> Mapping[str, Tensor]:
        return {self.observation.parameter_name.removesuffix("_"): self.observation.expected_value(table)}

    def estimates(self, table: Tensor) -> Iterator[Estimate]:
        name, inner = self.observation.parameter_name.removesuffix("_"), self._is_inner(table)
        link: Link = "logit" if self._is_bounded else "log"
        boundary = ON_BOUNDARY if self._is_bounded else ON_ZERO
        for i, d in product(range(len(table)), range(self.size)):
            yield Estimate(name, (i, d), i, self.names[d], link, "" if inner[i, d] else boundary)


@emitted_of.register(GaussianMixture)
class _Mixtures(Emitted):
    observation: GaussianMixture

    @property
    def _is_tied(self) -> bool:
        return self.observation.covariance_type == "tied"

    def _is_on_floor(self, table: Tensor) -> Tensor:
        """``(G, M, S)`` numbers of covariances that the floor sets."""
        shapes = self.observation.unpack(table, self.size)[2]
        floor = self.observation.min_covariance
        if self.observation.shape_type == "diag":
            return torch.stack([_hits(shapes[..., d : d + 1], "diag", floor) for d in range(self.size)], -1)
        return _hits(shapes, "full", floor).unsqueeze(-1).expand(shapes.shape)

    def is_free(self, table: Tensor) -> Tensor:
        log_weights, means, _ = self.observation.unpack(table, self.size)
        shapes = ~self._is_on_floor(table)
        if self._is_tied:
            shapes = shapes & (torch.arange(len(table)) == 0)[:, None, None]
        free = free_logits(log_weights.exp(), self.least)
        return self.observation.pack(free.double(), torch.ones_like(means), shapes.double()) > 0

    def lengths(self, table: Tensor) -> Tensor:
        log_weights, _, shapes = self.observation.unpack(table, self.size)
        deviations = _deviations(shapes, self.size, self.observation.shape_type, self.observation.min_covariance)
        return self.observation.pack(torch.ones_like(log_weights), deviations, torch.ones_like(shapes))

    def raw(self, table: Tensor, shift: Tensor, scale: Tensor) -> Mapping[str, Tensor]:
        log_weights, means, shapes = self.observation.unpack(table, self.size)
        floor, shape_type = self.observation.min_covariance, self.observation.shape_type
        covariances = _covariances(shapes, self.size, shape_type, floor, scale)
        return {
            "weights": log_weights.exp(),
            "means": means * scale + shift,
            "covariances": covariances[0, 0] if self._is_tied else covariances,
        }

    def estimates(self, table: Tensor) -> Iterator[Estimate]:
        log_weights, _, _ = self.observation.unpack(table, self.size)
        inner, floor = is_inner(log_weights.exp(), self.least), self._is_on_floor(table)
        states, components, features = (range(n) for n in (len(table), self.observation.n_components, self.size))
        several = len(components) > 1

        def label(m: int, feature: Any) -> Any:
            return (m, feature) if several else feature

        if several:
            for i, m in product(states, components):
                yield Estimate("weights", (i, m), i, m, "logit", "" if inner[i, m] else ON_BOUNDARY)
        for i, m, d in product(states, components, features):
            yield Estimate("means", (i, m, d), i, label(m, self.names[d]), "identity")
        if self._is_tied:
            note = ON_FLOOR if floor.any() else ""
            for d, e in _pairs(self.size):
                yield Estimate("covariances", (d, e), None, (self.names[d], self.names[e]), _link(d, e), note)
            return
        for i, m in product(states, components):
            if self.observation.shape_type == "diag":
                for d in features:
                    note = ON_FLOOR if floor[i, m, d] else ""
                    yield Estimate("covariances", (i, m, d), i, label(m, self.names[d]), "log", note)
                continue
            for d, e in _pairs(self.size):
                pair, note = (self.names[d], self.names[e]), ON_FLOOR if floor[i, m].any() else ""
                yield Estimate("covariances", (i, m, d, e), i, label(m, pair), _link(d, e), note)


@emitted_of.register(AutoregressiveGaussian)
class _Regressions(Emitted):
    """The Gaussian of the first steps is that of the start of EM, and no estimate."""

    observation: AutoregressiveGaussian

    def _is_on_floor(self, table: Tensor) -> Tensor:
        """``(G, S)`` numbers of innovations' covariances that the floor sets."""
        shape, floor = self.observation.unpack(table, self.size)[2], self.observation.min_covariance
        if self.observation.covariance_type == "diag":
            return torch.stack([_hits(shape[..., d : d + 1], "diag", floor) for d in range(self.size)], -1)
        return _hits(shape, "full", floor).unsqueeze(-1).expand(shape.shape)

    def is_free(self, table: Tensor) -> Tensor:
        coefficients, intercept, _, first_mean, first_shape = self.observation.unpack(table, self.size)
        of_first = torch.zeros_like(first_mean), torch.zeros_like(first_shape)
        shape = ~self._is_on_floor(table)
        free = self.observation.pack(
            torch.ones_like(coefficients), torch.ones_like(intercept), shape.double(), *of_first
        )
        return free > 0

    def lengths(self, table: Tensor) -> Tensor:
        coefficients, _, shape, first_mean, first_shape = self.observation.unpack(table, self.size)
        deviations = _deviations(shape, self.size, self.observation.covariance_type, self.observation.min_covariance)
        of_first = torch.ones_like(first_mean), torch.ones_like(first_shape)
        by_target = deviations.unsqueeze(-1).expand(coefficients.shape)
        return self.observation.pack(by_target, deviations, torch.ones_like(shape), *of_first)

    def raw(self, table: Tensor, shift: Tensor, scale: Tensor) -> Mapping[str, Tensor]:
        matrix, intercept, shape, *_ = self.observation.unpack(table, self.size)
        floor, order = self.observation.min_covariance, self.observation.order
        coefficients = matrix * scale[:, None] / scale.repeat(order)
        return {
            "coefficients": coefficients,
            "intercepts": intercept * scale + shift - coefficients @ shift.repeat(order),
            "covariances": _covariances(shape, self.size, self.observation.covariance_type, floor, scale),
        }

    def estimates(self, table: Tensor) -> Iterator[Estimate]:
        floor, order = self._is_on_floor(table), self.observation.order
        states, features = range(len(table)), range(self.size)
        for i, d, j in product(states, features, range(order * self.size)):
            lag, past = order - j // self.size, self.names[j % self.size]
            yield Estimate("coefficients", (i, d, j), i, (self.names[d], past, lag), "identity")
        for i, d in product(states, features):
            yield Estimate("intercepts", (i, d), i, self.names[d], "identity")
        for i in states:
            if self.observation.covariance_type == "diag":
                for d in features:
                    yield Estimate("covariances", (i, d), i, self.names[d], "log", ON_FLOOR if floor[i, d] else "")
                continue
            for d, e in _pairs(self.size):
                note = ON_FLOOR if floor[i].any() else ""
                yield Estimate("covariances", (i, d, e), i, (self.names[d], self.names[e]), _link(d, e), note)


def _pairs(size: int) -> Iterator[tuple[int, int]]:
    """The entries of a symmetric matrix on and below its diagonal."""
    return ((d, e) for d in range(size) for e in range(d + 1))


def _link(d: int, e: int) -> Link:
    return "log" if d == e else "identity"


def _hits(shape: Tensor, shape_type: Literal["diag", "full"], floor: float) -> Tensor:
    """Whether the floor sets a covariance; EM puts the eigenvalues of full ones on it."""
    if shape_type == "diag":
        return gaussian.at_floor(shape, shape.shape[-1], "diag", floor)
    size = next(d for d in range(1, shape.shape[-1] + 1) if d * (d + 1) // 2 == shape.shape[-1])
    eigenvalues: Tensor = torch.linalg.eigvalsh(gaussian.covariance_of_shape(shape, size, floor))
    return eigenvalues[..., 0] <= floor * (1 + 1e-6)


def _deviations(shape: Tensor, size: int, shape_type: Any, floor: float) -> Tensor:
    """``(..., D)`` standard deviations of each feature given all others, encoded."""
    if shape_type == "diag":
        return gaussian.variances_of_shape(shape, floor).sqrt()
    deviations: Tensor = gaussian.precision_cholesky(shape, size, floor).square().sum(-1).rsqrt()
    return deviations


def _covariances(shape: Tensor, size: int, shape_type: Any, floor: float, scale: Tensor) -> Tensor:
    """``(..., D)`` variances or ``(..., D, D)`` matrices in raw units."""
    if shape_type == "diag":
        return gaussian.variances_of_shape(shape, floor) * scale.square()
    return gaussian.covariance_of_shape(shape, size, floor) * torch.outer(scale, scale)


@dataclass(frozen=True)
class GivenInputs:
    """What of a model depends on U inputs, and on average over data.

    Attributes:
        options: what is regressed on which of them.
        names: of the inputs.
        scale: (U,) a unit of each standardised input in raw units.
        rows: (K, K) the transitions of a step, on average over all steps.
        table: (K, P) likewise, output parameters of the expected emissions.
        initial: (K,) the first state, on average over all sequences.
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
        """``inputs``: those of each sequence, ``(T, U)``, standardised."""
        rows, table, initial, data = p.transition, p.table, p.initial, torch.as_tensor(np.concatenate(inputs))
        if p.initial_slopes is not None:
            first = torch.as_tensor(np.stack([u[0] for u in inputs]))
            initial = log_initial(p.initial, p.initial_slopes, first).exp().mean(0)
        if p.transition_slopes is not None:
            sums = [
                log_transitions(p.transition, p.transition_slopes, u).exp().sum(0) for u in data.split(STEPS_AT_ONCE)
            ]
            rows = torch.stack(sums).sum(0) / len(data)
        if p.table_slopes is not None:
            at = (p.table + torch.einsum("nu,kpu->nkp", u, p.table_slopes) for u in data.split(STEPS_AT_ONCE))
            table = emitted.table_of_expected(torch.stack([emitted.expected(t).sum(0) for t in at]).sum(0) / len(data))
        return cls(options, scaling.names, torch.as_tensor(scaling.scale), rows, table, initial)


@dataclass(frozen=True)
class _Numbers:
    """Numbers of which some are ``free``: ``base + unit * u``."""

    free: Tensor
    base: Tensor
    unit: Tensor

    def at(self, u: Tensor) -> Tensor:
        changed = self.base[self.free] + self.unit[self.free] * u
        return self.base.index_put(self.free.nonzero(as_tuple=True), changed)


@dataclass(frozen=True)
class Coordinates:
    """A fitted model's parameters as a function of ``u (P,)``, unconstrained numbers that are zero at the estimates.

    Attributes:
        parameters: the estimates.
        emission: of the observation.
        emitted: what of the observation is estimated.
        options: of the chain: its topology, what is tied and frozen.
        start: how the first state is distributed.
        least: the smallest probability that is not on the boundary.
        given: what depends on inputs; None: nothing.
    """

    parameters: Parameters
    emission: Emission
    emitted: Emitted
    options: ChainOptions
    start: Start
    least: float
    given: GivenInputs | None = None

    def __post_init__(self) -> None:
        if self.start == "stationary" and self.parameters.final is not None:
            raise ValueError("standard errors of start='stationary' where the end is an event are not known")

    @property
    def _rows(self) -> Tensor:
        """(K, K), or with ends (K, K + 1)."""
        p = self.parameters
        return p.transition if p.final is None else torch.cat([p.transition, p.final[:, None]], 1)

    @property
    def _table(self) -> Tensor:
        """(G, P) of distinct emissions."""
        return self.options.constraints.tying.one_each(self.parameters.table)

    @property
    def _mean_rows(self) -> Tensor:
        """The rows that say what is on a boundary: given inputs, those on average."""
        return self._rows if self.given is None else self.given.rows

    @property
    def _mean_table(self) -> Tensor:
        """(G, P) distinct emissions; given inputs, those on average."""
        return self._table if self.given is None else self.given.table

    @property
    def _mean_initial(self) -> Tensor:
        """(K,) distribution of the first state; given inputs, that on average."""
        return self.parameters.initial if self.given is None else self.given.initial

    @cached_property
    def _numbers(self) -> dict[str, _Numbers]:
        """Logits of the first state and of rows, the table, and slopes, by name."""
        p, frozen, tying = self.parameters, self.options.constraints.frozen, self.options.constraints.tying
        k = len(self._rows)
        initial = free_logits(self._mean_initial, self.least)
        if frozen.initial or self.start != "free":
            initial = torch.zeros_like(initial)
        moves = ~frozen.rows(frozen.transition, k)[:, None]
        is_frozen = torch.zeros(tying.n_groups, dtype=torch.bool)
        is_frozen[tying.group[frozen.rows(frozen.emission, k)]] = True
        emits, table, lengths = ~is_frozen[:, None], self._table, self.emitted.lengths(self._table)
        rows = free_logits(self._mean_rows, self.least) & moves
        numbers = {
            "initial": _Numbers(initial, p.initial.log(), torch.ones_like(p.initial)),
            "rows": _Numbers(rows, self._rows.log(), torch.ones_like(self._rows)),
            "table": _Numbers(self.emitted.is_free(self._mean_table) & emits, table, lengths),
        }
        if p.transition_slopes is not None:
            has_slope = has_transition_slope(self.parameters.transition) & is_inner(self._mean_rows, self.least) & moves
            free = self._of_inputs(has_slope, "transition")
            numbers["transition_slopes"] = _Numbers(free, p.transition_slopes, torch.ones_like(p.transition_slopes))
        if p.table_slopes is not None:
            has_slope = torch.zeros_like(table, dtype=torch.bool)
            for each in regression_of(self.emitted.observation, self.emitted.size).location:
                has_slope[:, each] = (self.emitted.has_slope(self._mean_table) & emits)[:, each]
            free = self._of_inputs(has_slope, "emission")
            numbers["table_slopes"] = _Numbers(free, p.table_slopes, lengths.unsqueeze(-1).expand_as(p.table_slopes))
        if p.initial_slopes is not None:
            has_slope = (
                has_initial_slope(self.parameters.initial)
                & is_inner(self._mean_initial, self.least)
                & (not frozen.initial)
            )
            free = self._of_inputs(has_slope, "start")
            numbers["initial_slopes"] = _Numbers(free, p.initial_slopes, torch.ones_like(p.initial_slopes))
        return numbers

    def _of_inputs(self, has_slope: Tensor, which: Regressed) -> Tensor:
        """``(..., U)`` from ``(...)``: with the inputs that these depend on."""
        assert self.given is not None
        is_read = torch.zeros(len(self.given.names), dtype=torch.bool)
        is_read[list(self._columns(which))] = True
        return has_slope.unsqueeze(-1) & is_read

    def _columns(self, which: Regressed) -> tuple[int, ...]:
        """The inputs that transitions, emissions or the first state depend on."""
        if self.given is None:
            return ()
        options = self.given.options
        return {"transition": options.transition, "emission": options.emission, "start": options.start}[which]

    @property
    def n(self) -> int:
        """How many unconstrained numbers there are: the length P of ``u`` in ``at``."""
        return sum(int(numbers.free.sum()) for numbers in self._numbers.values())

    def at(self, u: Tensor) -> tuple[Parameters, Tensor]:
        """The parameters, differentiable, and the table (G, P) of distinct emissions."""
        changes = u.split([int(numbers.free.sum()) for numbers in self._numbers.values()])
        moved = {
            name: numbers.at(change) for (name, numbers), change in zip(self._numbers.items(), changes, strict=True)
        }
        rows, k = moved["rows"].softmax(-1), len(self._rows)
        transition = rows[:, :k].contiguous()
        is_stationary = self.start == "stationary"
        initial = differentiable_stationary(transition) if is_stationary else moved["initial"].softmax(-1)
        final = None if self.parameters.final is None else rows[:, k].contiguous()
        table = self.emission.tie(self.options.constraints.tying.spread(moved["table"]))
        slopes = (moved.get(name) for name in ("transition_slopes", "table_slopes", "initial_slopes"))
        return Parameters(initial, transition, final, table, *slopes), moved["table"]

    def raw(self, u: Tensor, shift: Tensor, scale: Tensor) -> dict[str, Tensor]:
        """All parameters by name, in raw units, differentiable."""
        parameters, _ = self.at(u)
        final = {} if parameters.final is None else {"final": parameters.final}
        chain = {"initial": parameters.initial, "transition": parameters.transition, **final}
        return {**chain, **self.emitted.raw(parameters.table, shift, scale), **self._raw_slopes(parameters, scale)}

    def _raw_slopes(self, parameters: Parameters, scale: Tensor) -> dict[str, Tensor]:
        slopes = {}
        if self.given is not None and parameters.transition_slopes is not None:
            slopes["transition_slopes"] = parameters.transition_slopes / self.given.scale
        if self.given is not None and parameters.table_slopes is not None:
            location = regression_of(self.emitted.observation, self.emitted.size).location
            of_location = torch.cat([parameters.table_slopes[:, each] for each in location], 1)
            units = scale if len(scale) == of_location.shape[1] else scale.new_ones(1)
            slopes["emission_slopes"] = of_location * units[:, None] / self.given.scale
        if self.given is not None and parameters.initial_slopes is not None:
            slopes["initial_slopes"] = parameters.initial_slopes / self.given.scale
        return slopes

    def estimates(self) -> list[Estimate]:
        """All that is estimated, with a note where it is on a boundary."""
        frozen, topology, k = self.options.constraints.frozen, self.options.topology, len(self._rows)
        result: list[Estimate] = []
        if not frozen.initial and self.start != "uniform":
            result += self._of_row("initial", self._mean_initial, topology.initial_mask(k), None)
            result += self._initial_slopes()
        is_frozen = frozen.rows(frozen.transition, k)
        mask = topology.transition_mask(k)
        if self.parameters.final is not None:
            mask = torch.cat([mask, topology.final_mask(k)[:, None]], 1)
        for i in range(k):
            if not is_frozen[i]:
                result += self._of_row("transition", self._mean_rows[i], mask[i], i)
        frozen_emission = frozen.rows(frozen.emission, k)
        of_states = self.emitted.estimates(self.parameters.table if self.given is None else self.given.table)
        result += [e for e in of_states if not (frozen_emission.all() if e.state is None else frozen_emission[e.state])]
        return [*result, *self._transition_slopes(is_frozen), *self._emission_slopes(frozen_emission)]

    def _initial_slopes(self) -> Iterator[Estimate]:
        columns, inner = self._columns("start"), is_inner(self._mean_initial, self.least)
        if self.given is None or not columns:
            return
        for j in has_initial_slope(self.parameters.initial).nonzero()[:, 0].tolist():
            for u in columns:
                yield Estimate(
                    "initial_slopes", (j, u), j, self.given.names[u], "identity", "" if inner[j] else ON_BOUNDARY
                )

    def _transition_slopes(self, is_frozen: Tensor) -> Iterator[Estimate]:
        columns, inner = self._columns("transition"), is_inner(self._mean_rows, self.least)
        if self.given is None or not columns:
            return
        for i, j in (has_transition_slope(self.parameters.transition) & ~is_frozen[:, None]).nonzero().tolist():
            for u in columns:
                feature, note = (j, self.given.names[u]), "" if inner[i, j] else ON_BOUNDARY
                yield Estimate("transition_slopes", (i, j, u), i, feature, "identity", note)

    def _emission_slopes(self, is_frozen: Tensor) -> Iterator[Estimate]:
        columns = self._columns("emission")
        if self.given is None or not columns:
            return
        regression = regression_of(self.emitted.observation, self.emitted.size)
        free = self.emitted.has_slope(self.given.table)
        free_of_location = torch.cat([free[:, each] for each in regression.location], 1)
        first = self.emitted.size - regression.n_free  # of symbols the first is the reference
        for i, d in product(range(len(free)), range(first, self.emitted.size)):
            for u in columns if not is_frozen[i] else ():
                feature, note = (
                    (self.emitted.names[d], self.given.names[u]),
                    "" if free_of_location[i, d] else ON_BOUNDARY,
                )
                yield Estimate("emission_slopes", (i, d, u), i, feature, "identity", note)

    def _of_row(self, name: str, row: Tensor, mask: Tensor, state: int | None) -> Iterator[Estimate]:
        """The probabilities of a distribution over states, ends last; of only one possible value there is none."""
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
