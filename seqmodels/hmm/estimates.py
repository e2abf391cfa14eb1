"""The parameters of each observation that have standard errors: which of them are free, their raw units and names.

Probabilities are softmaxes of logits, and the largest logit is held fixed; variances, rates and odds are functions of
the observation's output parameters, which may take any value. A parameter that is frozen, ruled out by the topology or
implied by others is not an estimate. A parameter on a boundary has no unconstrained value, and is held where it is.
Slopes of regressions on inputs may take any value too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import singledispatch
from itertools import product
from typing import Any, Literal

import torch
from torch import Tensor

from seqmodels.hmm.emissions.columns import names_among_groups
from seqmodels.observations import (
    AutoregressiveGaussian,
    Categorical,
    Columns,
    GaussianMixture,
    Observation,
    OfIntervals,
    ZeroInflated,
    gaussian,
)
from seqmodels.observations.exponential_family import Bernoulli, ExponentialFamily
from seqmodels.observations.independent_features import FeatureMoments, IndependentFeatures

ON_BOUNDARY = "on the boundary: less than 1 / (number of frames) away from 0 or 1, where intervals do not hold"
ON_ZERO = "on the boundary: a mean below 1 / (number of frames), where intervals do not hold"
ON_FLOOR = "on the floor of variances, min_covariance, which determines it instead of the data"

Link = Literal["identity", "log", "logit"]  # the scale on which an interval is symmetric


@dataclass(frozen=True)
class Estimate:
    """A description of one estimated parameter, as standard errors list it.

    Attributes:
        name: name of the array of parameters that it belongs to, such as ``"means"``.
        index: its index in that array.
        state: its state; None for a parameter that all states share.
        feature: its feature, symbol or component, or a pair of features.
        link: scale on which its confidence interval is symmetric: ``"identity"``, ``"log"`` or ``"logit"``.
        note: reason why it has no standard error; empty if it has one.
    """

    name: str
    index: tuple[int, ...]
    state: int | None
    feature: Any
    link: Link
    note: str = ""


class Emitted(ABC):
    """Base class for the output parameters of one kind of observation, which says which of them have standard errors.

    A *table* ``(G, P)`` holds the P output parameters, the numbers that the observation takes, for each of G distinct
    emissions; states that are tied share one. To add a kind of observation, define the methods below, and register the
    class with ``emitted_of``.

    Args:
        observation: the observation.
        size: number of features or symbols.
        names: name of each feature or symbol.
        least: smallest probability that does not count as on the boundary.
    """

    def __init__(self, observation: Any, size: int, names: list[Any], least: float) -> None:
        self.observation = observation
        self.size = size
        self.names = names  # names of features or symbols
        self.least = least  # the smallest probability that is not on the boundary

    @abstractmethod
    def is_free(self, table: Tensor) -> Tensor:
        """Return a mask ``(G, P)`` of the output parameters that are estimated.

        The others are on a boundary, or implied by others. ``table (G, P)`` has P parameters for each of G distinct
        emissions.
        """

    def has_slope(self, table: Tensor) -> Tensor:
        """Return a mask ``(G, P)`` of the output parameters that have free slopes if emissions depend on inputs.

        ``table (G, P)`` has P output parameters for each of G distinct emissions.
        """
        return self.is_free(table)

    def expected(self, tables: Tensor) -> Tensor:
        """Return output parameters in a form that may be averaged over steps, such as probabilities in place of logits.

        It serves emissions that depend on inputs: the mean over steps decides which parameters are on a boundary.
        ``tables (N, G, P)`` has P output parameters of G emissions at each of N steps; so has the result.
        """
        return tables

    def table_of_expected(self, mean: Tensor) -> Tensor:
        """Return the table of output parameters, ``(G, P)``, given means of the form that ``expected`` returns.

        It is the inverse of ``expected``; ``mean`` is ``(G, P)``.
        """
        return mean

    def lengths(self, table: Tensor) -> Tensor:
        """Return how far each output parameter must move to change the density noticeably, ``(G, P)``.

        It is the unit of the steps of numerical differentiation. ``table (G, P)`` has P output parameters for each of G
        distinct emissions.
        """
        return torch.ones_like(table)

    @abstractmethod
    def raw(self, table: Tensor, shift: Tensor, scale: Tensor) -> Mapping[str, Tensor]:
        """Return the parameters in raw units by name, such as ``means``, differentiable in the table.

        Names and shapes are those of the attributes of a fitted model, the names without the final "_".

        Args:
            table: output parameters of K states, ``(K, P)``, in encoded units.
            shift: with ``scale``, the encoding of D features: a raw value is ``shift + scale * encoded``, ``(D,)``.
            scale: see ``shift``, ``(D,)``.
        """

    @abstractmethod
    def estimates(self, table: Tensor) -> Iterator[Estimate]:
        """Yield a description of every estimated parameter, with a note if it is on a boundary.

        ``table (K, P)`` has P output parameters for each of K states.
        """


@singledispatch
def emitted_of(observation: Observation, size: int, names: list[Any], least: float) -> Emitted:
    """Return a description of the parameters of an observation for which standard errors are computed.

    A class derived from ``Emitted`` is registered for each kind of observation.

    Args:
        observation: the observation of the states.
        size: number of features or symbols.
        names: name of each feature or symbol.
        least: smallest probability that does not count as being on the boundary.

    Raises:
        ValueError: no description is registered for this kind of observation.
    """
    raise ValueError(
        f"standard errors of {observation!r} are not known, because nothing says which of its parameters are free; "
        "register a description of them with seqmodels.hmm.estimates.emitted_of"
    )


@emitted_of.register(OfIntervals)
class _Intervals(Emitted):
    """The estimated parameters of interval-censored observations, which are those of the underlying density."""

    def __init__(self, observation: OfIntervals, size: int, names: list[Any], least: float) -> None:
        super().__init__(observation, size, names, least)
        n_features = observation.n_features(size)
        self.columns = size // n_features  # columns of each feature
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
    """The estimated parameters of ``Columns``, an observation with a density for each of several groups of features.

    If several groups have an array of one name, the number of the group is added to the name.
    """

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
        """Return the arrays of each group of features by their name in the group, each with its name among all groups.

        Args:
            table: output parameters of K states, ``(K, P)``.
            shift: raw values of D features are ``shift + scale * encoded``, ``(D,)``.
            scale: see ``shift``, ``(D,)``.
        """
        each = zip(self.groups, self.parts, strict=True)
        raw = [part.raw(table[..., g.outputs], shift[g.columns], scale[g.columns]) for g, part in each]
        named = zip(names_among_groups(raw), raw, strict=True)
        return [{name: (names[name], value) for name, value in group.items()} for names, group in named]


def free_logits(probabilities: Tensor, least: float) -> Tensor:
    """Return a mask of the logits that are estimated, ``(..., V)``: all but the largest one and those on the boundary.

    Args:
        probabilities: the softmax of V logits, ``(..., V)``. The largest logit is held fixed, because adding a number
            to all of them changes nothing.
        least: probabilities below this, or above one minus this, count as on the boundary.
    """
    inner = is_inner(probabilities, least)
    largest = torch.zeros_like(inner).scatter_(-1, probabilities.argmax(-1, keepdim=True), value=True)
    return inner & ~largest


def is_inner(probabilities: Tensor, least: float) -> Tensor:
    """Return a mask of the ``probabilities`` from ``least`` to ``1 - least``; all others count as on the boundary."""
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
    """The estimated parameters of ``AutoregressiveGaussian``.

    The Gaussian of the first steps is not an estimate, because EM leaves it as it was at the start.
    """

    observation: AutoregressiveGaussian

    def _is_on_floor(self, table: Tensor) -> Tensor:
        shape, floor = self.observation.unpack(table, self.size)[2], self.observation.min_covariance
        if self.observation.covariance_type == "diag":
            return torch.stack([_hits(shape[..., d : d + 1], "diag", floor) for d in range(self.size)], -1)
        return _hits(shape, "full", floor).unsqueeze(-1).expand(shape.shape)

    def is_free(self, table: Tensor) -> Tensor:
        coefficients, intercept, _, first_mean, first_shape = self.observation.unpack(table, self.size)
        of_first = torch.zeros_like(first_mean), torch.zeros_like(first_shape)
        of_intercept = torch.full_like(intercept, float(self.observation.intercept))
        shape = ~self._is_on_floor(table)
        free = self.observation.pack(torch.ones_like(coefficients), of_intercept, shape.double(), *of_first)
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


@emitted_of.register(IndependentFeatures)
class _IndependentFeatures(Emitted):
    """The estimated parameters of observations with independent features, whose tables are unconstrained."""

    observation: IndependentFeatures

    def _is_on_floor(self, table: Tensor) -> Tensor:
        if not isinstance(self.observation, FeatureMoments):
            return torch.zeros(len(table), self.size, dtype=torch.bool)
        return self.observation.is_on_floor(table)

    def is_free(self, table: Tensor) -> Tensor:
        moves = ~self._is_on_floor(table).repeat(1, self.observation.n_per_feature)
        return table.isfinite() & moves

    def raw(self, table: Tensor, shift: Tensor, scale: Tensor) -> Mapping[str, Tensor]:
        raw = self.observation.raw_parameters(self.observation.unpack(table), shift, scale)
        return {name.removesuffix("_"): values for name, values in raw.items()}

    def estimates(self, table: Tensor) -> Iterator[Estimate]:
        floor, zeros = self._is_on_floor(table), torch.zeros(self.size, dtype=torch.float64)
        names = self.raw(table, zeros, zeros + 1)
        for name, i, d in product(names, range(len(table)), range(self.size)):
            link: Link = "identity" if name == "locations" else "log"
            yield Estimate(name, (i, d), i, self.names[d], link, ON_FLOOR if floor[i, d] else "")


@emitted_of.register(ZeroInflated)
class _ZeroInflated(Emitted):
    """The estimated parameters of ``ZeroInflated``: weights of extra zeros, and parameters of the counts."""

    observation: ZeroInflated

    def __init__(self, observation: ZeroInflated, size: int, names: list[Any], least: float) -> None:
        super().__init__(observation, size, names, least)
        self.inner = [emitted_of(observation.observation, 1, [name], least) for name in names]

    def _is_inner(self, logits: Tensor) -> Tensor:
        return is_inner(logits.sigmoid(), self.least)

    def is_free(self, table: Tensor) -> Tensor:
        logits, inner = self.observation.unpack(table, self.size)
        of_counts = [each.is_free(inner[:, d]) for d, each in enumerate(self.inner)]
        return torch.cat([self._is_inner(logits), *of_counts], 1)

    def raw(self, table: Tensor, shift: Tensor, scale: Tensor) -> Mapping[str, Tensor]:
        logits, inner = self.observation.unpack(table, self.size)
        each = [part.raw(inner[:, d], shift[d : d + 1], scale[d : d + 1]) for d, part in enumerate(self.inner)]
        of_counts = {name: torch.cat([raw[name] for raw in each], 1) for name in each[0]}
        return {"zero_weights": logits.sigmoid(), **of_counts}

    def estimates(self, table: Tensor) -> Iterator[Estimate]:
        logits, inner = self.observation.unpack(table, self.size)
        weights = self._is_inner(logits)
        for i, d in product(range(len(table)), range(self.size)):
            note = "" if weights[i, d] else ON_BOUNDARY
            yield Estimate("zero_weights", (i, d), i, self.names[d], "logit", note)
        for d, part in enumerate(self.inner):
            for each in part.estimates(inner[:, d]):
                yield replace(each, index=(each.index[0], d))


def _pairs(size: int) -> Iterator[tuple[int, int]]:
    return ((d, e) for d in range(size) for e in range(d + 1))


def _link(d: int, e: int) -> Link:
    return "log" if d == e else "identity"


def _hits(shape: Tensor, shape_type: Literal["diag", "full"], floor: float) -> Tensor:
    """Return a mask of the covariances that EM has put on their lower bound ``floor``, ``(...)``.

    A full covariance is on it if its smallest eigenvalue is.

    Args:
        shape: parameters of the covariances, log-variances or entries of a Cholesky factor, ``(..., Q)``.
        shape_type: form of the covariances.
        floor: lower bound of a variance.
    """
    if shape_type == "diag":
        return gaussian.at_floor(shape, shape.shape[-1], "diag", floor)
    size = next(d for d in range(1, shape.shape[-1] + 1) if d * (d + 1) // 2 == shape.shape[-1])
    eigenvalues: Tensor = torch.linalg.eigvalsh(gaussian.covariance_of_shape(shape, size, floor))
    return eigenvalues[..., 0] <= floor * (1 + 1e-6)


def _deviations(shape: Tensor, size: int, shape_type: Any, floor: float) -> Tensor:
    """Return the standard deviation of each of D features given all others, ``(..., D)``, in encoded units.

    Args:
        shape: parameters of the covariances, ``(..., Q)``.
        size: number of features D.
        shape_type: form of the covariances, ``"diag"`` or ``"full"``.
        floor: lower bound of a variance.
    """
    if shape_type == "diag":
        return gaussian.variances_of_shape(shape, floor).sqrt()
    deviations: Tensor = gaussian.precision_cholesky(shape, size, floor).square().sum(-1).rsqrt()
    return deviations


def _covariances(shape: Tensor, size: int, shape_type: Any, floor: float, scale: Tensor) -> Tensor:
    """Return variances ``(..., D)`` or covariances ``(..., D, D)`` in raw units.

    Args:
        shape: parameters of the covariances in encoded units, ``(..., Q)``.
        size: number of features D.
        shape_type: form of the covariances, ``"diag"`` or ``"full"``.
        floor: lower bound of a variance.
        scale: raw size of one encoded unit of each feature, ``(D,)``.
    """
    if shape_type == "diag":
        return gaussian.variances_of_shape(shape, floor) * scale.square()
    return gaussian.covariance_of_shape(shape, size, floor) * torch.outer(scale, scale)
