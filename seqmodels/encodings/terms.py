"""Terms of regressions on inputs whose coefficients are penalised: random effects of groups, and smooth functions.

Each term is brought to the form of a mixed model: some columns of the design whose coefficients have independent normal
distributions of mean zero and one variance, which the fit estimates (Ruppert, Wand and Carroll 2003). For a smooth
function the variance stands for the penalty of its roughness.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from seqmodels.common.array_checks import array_of
from seqmodels.common.parameters import Configurable
from seqmodels.encodings.base import State

DEGREE = 3  # of the B-splines
MOST_GROUPS = 1000  # because the fit solves for the effects of all groups at once


class Term(Configurable, ABC):
    """Base class of penalised terms of a regression on inputs, which a list of names of inputs may hold beside names.

    To add a kind, define the properties and methods below.
    """

    @property
    @abstractmethod
    def inputs(self) -> tuple[str, ...]:
        """Names of the inputs that the term reads."""

    @property
    def linear(self) -> tuple[str, ...]:
        """Names of those of its inputs that have a slope without a penalty as well."""
        return ()

    @property
    def has_new_groups(self) -> bool:
        """True if the last column is of groups that were not among the training sequences; it has no coefficient."""
        return False

    @property
    @abstractmethod
    def label(self) -> str:
        """Name of the term in tables."""

    @abstractmethod
    def learn(self, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return what the term learns from the training sequences, such as the groups that there are, ``(L,)``.

        Args:
            inputs: raw values of each input over all N steps, ``(N,)``.

        Raises:
            ValueError: there are too few or too many different values.
        """

    @abstractmethod
    def columns(self, learned: np.ndarray, raw: Mapping[str, np.ndarray], scaled: Mapping[str, np.ndarray]) -> Any:
        """Return the Q columns of the design at T steps, ``(T, Q)``, before they are shifted and scaled.

        Args:
            learned: what ``learn`` returned.
            raw: raw values of each input, ``(T,)``.
            scaled: standardised values of each input, ``(T,)``.
        """

    @abstractmethod
    def labels(self, learned: np.ndarray) -> list[str]:
        """Return the names of the Q columns, given what ``learn`` returned."""

    def values_of(self, name: str, learned: np.ndarray, n: int) -> np.ndarray | None:
        """Return values of one of its inputs at which an effect of the input is shown: groups, or n that span a range.

        Return None if the term has learned nothing about the values of this input, as by default.

        Args:
            name: name of the input.
            learned: what ``learn`` returned.
            n: number of values of a range.
        """
        return None

    def reference(self, name: str, learned: np.ndarray) -> float | None:
        """Return the value at which an input is held while another one changes; None for its mean, as by default.

        The arguments are those of ``values_of``.
        """
        return None

    def centre_and_scale(self, columns: np.ndarray) -> tuple[np.ndarray, float]:
        """Return what is subtracted from each column, ``(Q,)``, and by what number all are divided then.

        By default the columns stay as they are. ``columns (N, Q)`` are those of the training sequences.
        """
        return np.zeros(columns.shape[1]), 1.0


@dataclass(repr=False)
class RandomEffect(Term):
    """A random effect of the groups of an input, such as an intercept for each animal, drawn from ``N(0, σ²)``.

    The effect of a group that was among the training sequences is the mode of its posterior. That of a new group is not
    known, so scores and predictions average over it, as ``new_group_points`` of ``ChainInputEffects`` says. All steps
    of a sequence whose groups are new have the same effect, and no other sequence does: nothing that a model read in
    one sequence of a new group counts in the next.

    Args:
        group: name of the input whose values, as numbers, are the groups.
        slope: name of an input of which each group has a slope of its own, added to the slope of the population (if the
            input is named too); None for an intercept. The input is standardised, so that intercepts hold at its mean.

    >>> RandomEffect("animal").label, RandomEffect("animal", slope="heat").label
    ('random(animal)', 'random(animal, heat)')
    """

    group: str
    slope: str | None = None

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.group,) if self.slope is None else (self.group, self.slope)

    @property
    def has_new_groups(self) -> bool:
        return True

    @property
    def label(self) -> str:
        return f"random({', '.join(self.inputs)})"

    def learn(self, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
        groups = np.unique(inputs[self.group])
        if len(groups) > MOST_GROUPS:
            raise ValueError(
                f"the input {self.group!r} has {len(groups)} different values, more than {MOST_GROUPS}, so it numbers "
                "no groups of a random effect; pass Smooth for a quantity"
            )
        return groups

    def columns(self, learned: np.ndarray, raw: Mapping[str, np.ndarray], scaled: Mapping[str, np.ndarray]) -> Any:
        is_in = raw[self.group][:, None] == learned
        is_in = np.concatenate([is_in, ~is_in.any(1, keepdims=True)], 1).astype(np.float64)  # the last is a new group
        return is_in if self.slope is None else is_in * scaled[self.slope][:, None]

    def labels(self, learned: np.ndarray) -> list[str]:
        slope = "" if self.slope is None else f":{self.slope}"
        return [*(f"{self.group}={group:g}{slope}" for group in learned.tolist()), f"{self.group}=new{slope}"]

    def values_of(self, name: str, learned: np.ndarray, n: int) -> np.ndarray | None:
        return learned if name == self.group else None

    def reference(self, name: str, learned: np.ndarray) -> float | None:
        return float(learned.max()) + 1 if name == self.group else None  # no group, so that the effect is zero


@dataclass(repr=False)
class Smooth(Term):
    """A smooth function of an input, a P-spline (Eilers and Marx 1996): cubic B-splines on equidistant knots.

    The penalty is the sum of the squared second differences of the coefficients of neighbouring B-splines. The knots
    span the values of the training sequences, and the function goes on as a straight line beyond them.

    Args:
        input: name of the input.
        period: length after which the function repeats itself, such as 24 for an hour of the day; None if it does not.
        n_splines: number of B-splines, at least 5. The penalty decides how smooth the function is, so that more cost
            time and change little.

    >>> Smooth("hour", period=24).label
    'smooth(hour)'
    """

    input: str
    period: float | None = None
    n_splines: int = 10

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.input,)

    @property
    def linear(self) -> tuple[str, ...]:
        return (self.input,) if self.period is None else ()

    @property
    def label(self) -> str:
        return f"smooth({self.input})"

    def learn(self, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
        if self.n_splines < DEGREE + 2:
            raise ValueError(f"n_splines is {self.n_splines}; pass at least {DEGREE + 2}")
        if self.period is not None:
            if not 0 < self.period < np.inf:
                raise ValueError(f"period is {self.period}; pass a positive number, or None")
            return np.array([0.0, float(self.period)])
        return np.array([inputs[self.input].min(), inputs[self.input].max()])

    def columns(self, learned: np.ndarray, raw: Mapping[str, np.ndarray], scaled: Mapping[str, np.ndarray]) -> Any:
        k, (low, high) = self.n_splines, learned
        if self.period is None:
            differences = np.diff(np.eye(k), 2, axis=0)  # (k - 2, k)
            to_columns = differences.T @ np.linalg.inv(differences @ differences.T)
            return b_splines((raw[self.input] - low) / (high - low) * (k - DEGREE), k) @ to_columns
        splines = b_splines((raw[self.input] - low) / (high - low) * k % k, k + DEGREE)
        splines[:, :DEGREE] += splines[:, k:]
        return splines[:, :k] @ _harmonics(k)

    def labels(self, learned: np.ndarray) -> list[str]:
        n = self.n_splines - (2 if self.period is None else 1)
        return [f"{self.label}.{i}" for i in range(1, n + 1)]

    def values_of(self, name: str, learned: np.ndarray, n: int) -> np.ndarray | None:
        return np.linspace(learned[0], learned[1], n) if name == self.input else None

    def centre_and_scale(self, columns: np.ndarray) -> tuple[np.ndarray, float]:
        mean = columns.mean(0)
        return mean, float(np.sqrt(np.square(columns - mean).sum(1).mean()))


def b_splines(at: np.ndarray, n: int) -> np.ndarray:
    """Return the values of n cubic B-splines with knots at the integers, ``(T, n)``, at positions ``at (T,)``.

    Positions 0 to n - 3 are those at which they sum to one; beyond these each goes on as its tangent.

    >>> b_splines(np.array([0.5]), 4).round(4)
    array([[0.0208, 0.4792, 0.4792, 0.0208]])
    """
    within = np.clip(at, 0, n - DEGREE)
    cell = np.minimum(within.astype(int), n - DEGREE - 1)
    f, beyond = within - cell, at - within
    values = np.stack([(1 - f) ** 3, 3 * f**3 - 6 * f**2 + 4, -3 * f**3 + 3 * f**2 + 3 * f + 1, f**3], 1) / 6
    slopes = np.stack([-((1 - f) ** 2), 3 * f**2 - 4 * f, -3 * f**2 + 2 * f + 1, f**2], 1) / 2
    result = np.zeros((len(at), n))
    rows = np.arange(len(at))[:, None]
    result[rows, cell[:, None] + np.arange(DEGREE + 1)] = values + beyond[:, None] * slopes
    return result


def _harmonics(k: int) -> np.ndarray:
    """Return coefficients of k cyclic B-splines whose penalty is the sum of squares of k - 1 numbers, ``(k, k - 1)``.

    They are the waves in which cyclic second differences are diagonal, each divided by its difference. A formula and no
    decomposition, because a saved model must mean the same on every machine.
    """
    steps, waves = np.arange(k), []
    for i in range(1, k // 2 + 1):
        angle = 2 * np.pi * i * steps / k
        size = np.sqrt((1 if 2 * i == k else 2) / k) / (4 * np.sin(np.pi * i / k) ** 2)
        waves += [size * np.cos(angle)] if 2 * i == k else [size * np.cos(angle), size * np.sin(angle)]
    return np.stack(waves, 1)


@dataclass(frozen=True)
class TermColumns:
    """A term with what it learned from the training sequences, which turns raw inputs into its Q columns of the design.

    Attributes:
        term: the term.
        learned: its groups, or the range of its knots, ``(L,)``.
        centre: mean of each column that is subtracted, ``(Q,)``.
        scale: number that the columns are divided by.
    """

    term: Term
    learned: np.ndarray
    centre: np.ndarray
    scale: float

    @classmethod
    def learn(cls, term: Term, raw: Mapping[str, np.ndarray], scaled: Mapping[str, np.ndarray]) -> Self:
        """Return the columns of a term, learned from the inputs of all N steps of the training sequences.

        Args:
            term: the term.
            raw: raw values of each input, ``(N,)``.
            scaled: standardised values of each input, ``(N,)``.
        """
        learned = term.learn(raw)
        return cls(term, learned, *term.centre_and_scale(term.columns(learned, raw, scaled)))

    @property
    def labels(self) -> list[str]:
        """Names of the Q columns."""
        return self.term.labels(self.learned)

    def columns(self, raw: Mapping[str, np.ndarray], scaled: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the columns at T steps, ``(T, Q)``, given raw and standardised values of each input, ``(T,)``."""
        return np.asarray((self.term.columns(self.learned, raw, scaled) - self.centre) / self.scale)

    def state(self) -> State:
        """Return the numbers by name, in the form in which a file stores them; hyperparameters hold the term."""
        return {"learned": self.learned, "centre": self.centre, "scale": self.scale}

    @classmethod
    def of_state(cls, term: Term, state: Any) -> Self:
        """Return the columns of ``term`` whose numbers were stored in a file; the inverse of ``state``.

        Raises:
            ValueError: ``state`` is not what the method ``state`` returns.
        """
        learned, centre = (array_of(state, name, np.float64, (None,)) for name in ("learned", "centre"))
        scale = state["scale"]
        if not (isinstance(scale, float) and 0 < scale < np.inf and np.isfinite(learned).all()):
            raise ValueError(f"the numbers of {term.label} should be finite")
        if len(centre) != len(term.labels(learned)) or not np.isfinite(centre).all():
            raise ValueError(f"{term.label} should have a finite mean for each of its columns")
        return cls(term, learned, centre, scale)


def terms_of(choices: Sequence[Any]) -> tuple[Term, ...]:
    """Return the different terms among choices of inputs, each a list of names and terms, True, a name or None."""
    different: list[Term] = []
    for choice in choices:
        for each in choice if isinstance(choice, list | tuple) else ():
            if isinstance(each, Term) and each not in different:
                different.append(each)
    return tuple(different)
