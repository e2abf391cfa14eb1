"""What a likelihood is a likelihood of. Two figures may stand in one table when their measures agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any, Literal

from seqmodels.common.parameters import check_fields

Length = Literal["given", "stop"]
Exactness = Literal["exact", "bound", "estimate"]
MemoryKind = Literal["static", "adaptive"]
# What a feature of a vector may be. Of bits and counts there are probabilities, and of points of a grid ("rounded") and
# of intervals, whose ends are features. The others have a density over reals, whichever of them it is above zero for:
# positive ones, those between 0 and 1, angles in radians from -π to π.
Values = Literal["reals", "positive", "proportions", "angles", "bits", "counts", "rounded", "ends"]
SPACES: dict[Values, str] = {
    "reals": "R",
    "positive": "R",
    "proportions": "R",
    "angles": "R",
    "bits": "{0,1}",
    "counts": "N",
    "rounded": "grid",
    "ends": "ends of intervals",
}


class IncomparableError(ValueError):
    """Two likelihoods that do not belong in one table: they measure different things."""


@dataclass(frozen=True)
class Measure:
    """The reference measure of a model's log-probabilities.

    Args:
        space: what one sequence is made of: ``"text"``, ``"symbols"``, ``"R^13"`` (raw units), ``"{0,1}^88"``,
            ``"N^1"``, ``"grid^1"`` (rounded values), ``"ends of intervals^2"`` (of one feature), or a product of them.
            Probabilities and densities of reals are not comparable.
        unit: what a score is a mean over: ``"byte"``, ``"symbol"`` or ``"frame"``.
        length: ``"given"``: p(x | T); ``"stop"``: the end is an event that is scored too.
        kind: ``"exact"``, or ``"bound"`` where only a lower bound of log p is known (several spellings), or
            ``"estimate"``: a mean over draws of parameters or of hidden paths, with a Monte Carlo standard error.
        conditional: p(y | x) rather than p(x).
        grid: of dithered vectors, for each feature the width of the noise, in its raw unit (``Sequences.dithered``); of
            rounded ones that of a cell; None: neither.
        memory: ``"static"``: the parameters are those of the fit; ``"adaptive"``: within a sequence they follow what of
            it has been read, and are those of the fit again at the start of the next, so that by the chain rule it is
            one probability all the same.
        inputs: the names of the inputs that a model of p(x | inputs) reads; none of p(x). Both are densities of one
            x, so they may stand in one table, which says of each model what it was given.
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
        """The fields by name, as they stand in a saved model."""
        fields = asdict(self)
        if not self.inputs:  # as in files of versions that had none
            del fields["inputs"]
        return fields


def space_of(values: Sequence[Values]) -> str:
    """The space of vectors whose features are these.

    >>> space_of(["reals", "reals", "bits"])
    'R^2 x {0,1}^1'
    >>> space_of(["reals", "positive"])
    'R^2'
    """
    return " x ".join(f"{space}^{len(list(run))}" for space, run in groupby(SPACES[value] for value in values))


def check_comparable(measures: Mapping[str, Measure]) -> None:
    """Raise ``IncomparableError``, naming the first field in which two differ; ``kind``, ``memory``, ``inputs`` may."""
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
