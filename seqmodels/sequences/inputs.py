"""Inputs of sequences (exogenous inputs, covariates): numbers known at each step, on which a model may depend."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from seqmodels.common.display import listed
from seqmodels.sequences.items import checked_names, in_words


@dataclass(frozen=True)
class Inputs:
    """Inputs (exogenous covariates) of n sequences, which a model of p(x | inputs) reads.

    Attributes:
        names: names of the U inputs, all different.
        each: the inputs of each sequence, n arrays of shape ``(T, U)``, float64 and finite.
        past: the inputs of the P steps before each sequence, arrays of shape ``(P, U)``, or None for a sequence without
            a past. It is None if no sequence has a past.
    """

    names: tuple[str, ...]
    each: list[np.ndarray]
    past: list[np.ndarray | None] | None = None

    @classmethod
    def of(
        cls,
        inputs: Any,
        names: Iterable[str] | None,
        past: Any,
        lengths: Sequence[int],
        lengths_of_past: Sequence[int],
    ) -> Self:
        """Return the inputs (exogenous covariates) of sequences after checking them.

        Args:
            inputs: for each sequence numbers of shape ``(T, U)`` for U inputs, or ``(T,)`` for one, or a pandas frame.
            names: names of the inputs; None means the columns of frames, or ``u0, u1, ...``.
            past: for each sequence the inputs of its past, the P steps before it, or None.
            lengths: number of steps T of each sequence.
            lengths_of_past: number of steps P of each sequence's past; 0 if it has none.

        Raises:
            ValueError: the inputs do not fit the sequences, or are not finite numbers. The message names the sequence,
                the step and the way out.
        """
        given = _one_each("inputs", inputs, len(lengths))
        each = [
            _checked(f"the inputs of sequence {i}", u, n) for i, (u, n) in enumerate(zip(given, lengths, strict=True))
        ]
        n_inputs = each[0].shape[1]
        if names is None:
            columns = getattr(given[0], "columns", None)
            names = [f"u{i}" for i in range(n_inputs)] if columns is None else [str(column) for column in columns]
        checked = checked_names("input_names", names)
        for i, u in enumerate(each):
            _check_width(f"sequence {i}", u, checked)
        if past is not None:
            _check_have_past(past, lengths_of_past)
        if not any(lengths_of_past):
            return cls(checked, each)
        if past is None:
            raise ValueError(
                "sequences have a past and inputs; pass past_inputs too, the inputs at the steps of each past, or no "
                "past"
            )
        before: list[np.ndarray | None] = []
        for i, (u, n) in enumerate(zip(_one_each("past_inputs", past, len(lengths)), lengths_of_past, strict=True)):
            before.append(_checked(f"the past inputs of sequence {i}", u, n) if n else None)
            if n:
                _check_width(f"the past of sequence {i}", before[-1], checked)
        return cls(checked, each, before)

    @classmethod
    def joined(cls, parts: Sequence[Inputs | None]) -> Inputs | None:
        """Return the inputs of the sequences of several containers in one; None if one of the containers has no inputs.

        The names are taken from the first, so all must have the same.

        Args:
            parts: the inputs of each container, or None.
        """
        whole = [part for part in parts if part is not None]
        if not whole or len(whole) < len(parts):
            return None
        past = [before for part in whole for before in part.past or [None] * len(part.each)]
        has_past = any(before is not None for before in past)
        return cls(whole[0].names, [u for part in whole for u in part.each], past if has_past else None)

    def take(self, rows: Sequence[int] | np.ndarray) -> Inputs:
        past = None if self.past is None else [self.past[i] for i in rows]
        return Inputs(self.names, [self.each[i] for i in rows], past)

    def segments(self, parts: Sequence[tuple[int, int, int]], n_past: int | None) -> Inputs:
        """Return the inputs of consecutive steps cut out of the sequences.

        Args:
            parts: ``(i, start, stop)`` of each part: steps ``start`` to ``stop - 1`` of sequence i.
            n_past: number of steps before each part whose inputs are kept as its past; None means all there are.
        """
        each = [self.each[i][a:b] for i, a, b in parts]
        if n_past == 0:
            return Inputs(self.names, each)
        before: list[np.ndarray | None] = []
        for i, a, _ in parts:
            known = self.each[i][:a]
            if self.past is not None and (earlier := self.past[i]) is not None:
                known = np.concatenate([earlier, known])
            known = known if n_past is None else known[max(0, len(known) - n_past) :]
            before.append(known if len(known) else None)
        return Inputs(self.names, each, before if any(u is not None for u in before) else None)

    def without_past(self) -> Inputs:
        return self if self.past is None else Inputs(self.names, self.each)

    def including_past(self) -> Inputs:
        """Return inputs for sequences that begin with their past: inputs of the steps before each, then its own."""
        return self if self.past is None else Inputs(self.names, self.after_past())

    def after_past(self) -> list[np.ndarray]:
        """Return, for each sequence, the inputs of its past and its own joined, shape ``(P + T, U)``.

        The past are P steps before the T steps of the sequence; there are U inputs.
        """
        if self.past is None:
            return self.each
        return [u if b is None else np.concatenate([b, u]) for u, b in zip(self.each, self.past, strict=True)]

    def lagged(self, k: int) -> Inputs:
        """Return inputs of which step t has the values that step t - k had before.

        The first k steps have the first known inputs.

        Args:
            k: number of steps by which the inputs are late.

        Raises:
            ValueError: ``k`` is not an integer of at least 0.
        """
        if not (isinstance(k, int | np.integer) and not isinstance(k, bool) and k >= 0):
            raise ValueError(f"k is {k!r}; pass a number of steps, 0 or more")
        whole = self.after_past()
        moved = [u[np.maximum(np.arange(len(u)) - k, 0)] for u in whole]
        if self.past is None:
            return Inputs(self.names, moved)
        n_past = [0 if b is None else len(b) for b in self.past]
        past = [u[:n] if n else None for u, n in zip(moved, n_past, strict=True)]
        return Inputs(self.names, [u[n:] for u, n in zip(moved, n_past, strict=True)], past)


def _one_each(name: str, values: Any, n: int) -> list[Any]:
    if isinstance(values, str | np.ndarray) or not (isinstance(values, Iterable) and isinstance(values, Sized)):
        raise ValueError(f"{name} is {in_words(values)}; pass a list, an array (T, U) for each sequence")
    if isinstance(values, Mapping) or hasattr(values, "columns"):
        raise ValueError(f"{name} is one {type(values).__name__}; pass a list, one for each sequence")
    if len(values) != n:
        raise ValueError(
            f"there are {name} of {len(values)} sequences but {n} sequences; pass an array (T, U) for each"
        )
    return list(values)


def _check_have_past(past: Any, lengths_of_past: Sequence[int]) -> None:
    """Raise ``ValueError`` if inputs are given for the past of a sequence that has no past.

    Args:
        past: for each sequence the inputs of its past, or None.
        lengths_of_past: number of steps of each sequence's past.
    """
    each = _one_each("past_inputs", past, len(lengths_of_past))
    for i, (u, n) in enumerate(zip(each, lengths_of_past, strict=True)):
        if not n and u is not None and np.size(u):
            raise ValueError(
                f"sequence {i} has past_inputs but no past that they could belong to; pass its past too, or None in "
                "their place"
            )


def _checked(what: str, values: Any, n: int) -> np.ndarray:
    """Return inputs as float64 of shape ``(n, U)`` after checking them.

    Raise ``ValueError`` if they are not finite numbers of that shape.

    Args:
        what: name of the inputs in the message.
        values: the inputs.
        n: number of steps.
    """
    if isinstance(values, np.ndarray) or hasattr(values, "columns"):  # NumPy itself refuses complex numbers in lists
        if np.iscomplexobj(values if isinstance(values, np.ndarray) else np.asarray(values)):
            raise ValueError(f"{what} are complex numbers; pass their real and imaginary parts as two inputs")
    try:
        array = np.ma.filled(np.ma.asarray(values, dtype=np.float64), np.nan)
    except (TypeError, ValueError):
        raise ValueError(f"{what} are not numbers; pass an array (T, U), words as columns of 0 and 1") from None
    array = array[:, None] if array.ndim == 1 else array
    if array.ndim != 2 or len(array) != n or array.shape[1] == 0:
        raise ValueError(f"{what} have shape {array.shape}; pass (T, U), a row for each of its {n} steps")
    wrong = ~np.isfinite(array)
    if wrong.any():
        t, column = (int(k) for k in np.argwhere(wrong)[0])
        raise ValueError(
            f"{what} have {array[t, column]} at step {t}, input {column}; inputs are given and not modelled, so none "
            "may be missing: fill it in, or leave the input out"
        )
    return array


def _check_width(whose: str, inputs: np.ndarray | None, names: tuple[str, ...]) -> None:
    if inputs is not None and inputs.shape[1] != len(names):
        raise ValueError(
            f"{whose} has {inputs.shape[1]} inputs but there are {len(names)} ({listed(names)}); all must agree"
        )
