"""The measure of a likelihood: of which space it is a probability or density, which decides if two are comparable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any, Literal

from seqmodels.common.parameters import check_fields

Length = Literal["given", "stop"]
Exactness = Literal["exact", "bound", "estimate"]
MemoryKind = Literal["static", "adaptive"]
# The values that a feature of a vector may have. Bits, counts, points of a grid ("rounded") and intervals, whose ends
# are features, have probabilities. Amounts have a probability at 0 and a density above it. The others have a density
# over the reals, even if it is zero outside the positive numbers, the numbers between 0 and 1, or the angles from -π to
# π in radians.
Values = Literal["reals", "positive", "proportions", "angles", "amounts", "bits", "counts", "rounded", "ends"]
SPACES: dict[Values, str] = {
    "reals": "R",
    "positive": "R",
    "proportions": "R",
    "angles": "R",
    "amounts": "({0}+R)",
    "bits": "{0,1}",
    "counts": "N",
    "rounded": "grid",
    "ends": "ends of intervals",
}


class IncomparableError(ValueError):
    """An error raised when two likelihoods measure different things, so that they must not be compared."""


@dataclass(frozen=True)
class Measure:
    """A description of what a model's log-probabilities are about; two scores are comparable if these agree.

    Args:
        space: what one sequence is made of: ``"text"``, ``"symbols"``, ``"R^13"`` (raw units), ``"{0,1}^88"``,
            ``"N^1"``, ``"grid^1"`` (rounded values), ``"({0}+R)^1"`` (a probability at 0, a density above),
            ``"ends of intervals^2"`` (of one feature), or a product of them. Probabilities are not comparable with
            densities.
        unit: the unit that a score is a mean over: ``"byte"``, ``"symbol"`` or ``"frame"``.
        length: ``"given"`` for p(x | T), or ``"stop"`` if the end is an event that is scored too.
        kind: ``"exact"``, also of a mixture over fixed points, which is itself a probability; ``"bound"`` if only a
            lower bound of log p is known, for example because a text has several spellings; or ``"estimate"`` for a
            mean over draws of parameters or hidden paths, which has a Monte Carlo standard error.
        conditional: True for p(y | x), False for p(x).
        grid: for each feature of dithered vectors, the width of the noise in its raw unit (``Sequences.dithered``); for
            rounded vectors, the width of a cell; None for all others.
        memory: ``"static"`` if the parameters stay as fitted; ``"adaptive"`` if they follow what was read of the
            sequence and return to the fitted ones at the next sequence, which by the chain rule is still one
            probability.
        inputs: names of the inputs that a model of p(x | inputs) reads; empty for p(x). Both are densities of the same
            x, so they may stand in one table, which says what each model was given.
    """

    space: str
    unit: str
    length: Length
    kind: Exactness
    conditional: bool
    grid: tuple[float, ...] | None = None
    memory: MemoryKind = "static"
    inputs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_fields(self)
        if self.grid is not None:  # JSON has lists only
            object.__setattr__(self, "grid", tuple(self.grid))
        object.__setattr__(self, "inputs", tuple(self.inputs))

    def to_json(self) -> dict[str, Any]:
        fields = asdict(self)
        if not self.inputs:  # so that files are the same as in versions without inputs
            del fields["inputs"]
        return fields


def is_atom(x: Any, values: Sequence[Values]) -> Any:
    """Return a mask, in the shape of ``x``, of the amounts that are 0, which have a probability and no density.

    Args:
        x: vectors of D features, ``(..., D)``, an array or a tensor; raw and encoded amounts are 0 alike.
        values: kind of the values of each feature, such as ``"amounts"``.
    """
    mask = x == 0
    mask[..., [d for d, value in enumerate(values) if value != "amounts"]] = False
    return mask


def space_of(values: Sequence[Values]) -> str:
    """Return the name of the space of vectors, given the kind of values of each feature.

    >>> space_of(["reals", "reals", "bits"])
    'R^2 x {0,1}^1'
    >>> space_of(["reals", "positive"])
    'R^2'
    """
    return " x ".join(f"{space}^{len(list(run))}" for space, run in groupby(SPACES[value] for value in values))


def check_comparable(measures: Mapping[str, Measure]) -> None:
    """Raise ``IncomparableError`` if likelihoods of models measure different things, naming the first difference.

    Measures may differ in ``kind``, ``memory`` and ``inputs``.

    Args:
        measures: measure of each model's log-probabilities, by name for the message.
    """
    items = list(measures.items())
    if not items:
        return
    first_name, first = items[0]
    for name, measure in items[1:]:
        for field in ("space", "unit", "length", "conditional", "grid"):
            value, first_value = getattr(measure, field), getattr(first, field)
            if value != first_value:
                raise IncomparableError(
                    f"{name!r} and {first_name!r} measure different things: {field} is {value!r} for {name!r} and "
                    f"{first_value!r} for {first_name!r}; compare models that agree in {field}"
                )
