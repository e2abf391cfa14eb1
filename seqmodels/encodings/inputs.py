"""``InputScaling``: raw inputs as a model reads them, standardised; they have no log-determinant.

``p(x | u)`` is a density of x: whatever one-to-one map is applied to u, it stays what it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from seqmodels.common.display import listed
from seqmodels.encodings.base import State, names_of_state
from seqmodels.sequences import Sequences


def chosen_inputs(choice: Sequence[str] | bool | None, names: tuple[str, ...]) -> tuple[str, ...]:
    """The inputs that an argument names: True: all of ``names``; None or False: none."""
    if isinstance(choice, bool) or choice is None:
        return names if choice else ()
    return (choice,) if isinstance(choice, str) else tuple(choice)


@dataclass(frozen=True)
class InputScaling:
    """``(u - mean) / scale`` of each input, by name.

    Attributes:
        names: of the U inputs that a model reads, in its order.
        mean, scale: ``(U,)``, of all steps of the training sequences.
    """

    names: tuple[str, ...]
    mean: np.ndarray
    scale: np.ndarray

    @classmethod
    def learn(cls, sequences: Sequences, names: Sequence[str]) -> Self:
        """Raises ``ValueError`` for an input that the sequences lack, or that is the same at every step."""
        steps = np.concatenate(_chosen(sequences, names, sequences.inputs))
        mean, scale = steps.mean(0), steps.std(0)
        constant = (steps == steps[0]).all(0) | ~(scale > 0) | ~np.isfinite(scale)
        if constant.any():
            i = int(np.argmax(constant))
            raise ValueError(
                f"the input {names[i]!r} is {steps[0, i]} at every step of the training sequences, so nothing can be "
                "learned of it; leave it out"
            )
        return cls(tuple(names), mean, scale)

    def of(self, names: Sequence[str]) -> InputScaling:
        """That of these inputs alone, in this order."""
        columns = [self.names.index(name) for name in names]
        return InputScaling(tuple(names), self.mean[columns], self.scale[columns])

    def check(self, sequences: Sequences) -> None:
        """Raise ``ValueError`` for sequences that lack an input."""
        _chosen(sequences, self.names, sequences.inputs)

    def encode(self, sequences: Sequences) -> list[np.ndarray]:
        """For each sequence ``(P + T, U)`` standardised inputs of its past and its steps; raises as ``check``."""
        return [(u - self.mean) / self.scale for u in _chosen(sequences, self.names, sequences.inputs_after_past())]

    def encode_steps(self, inputs: Any, n: int | None = None) -> np.ndarray:
        """``(n, U)`` standardised inputs of n steps, from an array ``(n, U)`` in the order of ``names``, or by name.

        Args:
            inputs: numbers; a mapping or a frame of pandas has a column for each name.
            n: how many steps; None: as many as there are.

        Raises:
            ValueError: none, another number of steps or of inputs, a name that is not there, what is missing.
        """
        said = f"the model reads the inputs {listed(self.names)}"
        if inputs is None:
            raise ValueError(f"{said}; pass inputs=, an array (T, {len(self.names)}) or a mapping from name to values")
        if isinstance(inputs, Mapping) or hasattr(inputs, "columns"):
            lacking = [name for name in self.names if name not in inputs]
            if lacking:
                raise ValueError(f"{said}, but inputs has no {lacking[0]!r}; pass values for each name")
            inputs = np.stack([np.asarray(inputs[name]) for name in self.names], axis=-1)
        try:
            steps = np.asarray(inputs, dtype=np.float64)
        except (TypeError, ValueError):
            raise ValueError(f"{said}, but inputs are no numbers; pass an array (T, {len(self.names)})") from None
        if steps.ndim == 1 and len(self.names) == 1:
            steps = steps[:, None]
        if steps.ndim != 2 or steps.shape[1] != len(self.names) or (n is not None and len(steps) != n):
            expected = f"({'T' if n is None else n}, {len(self.names)})"
            raise ValueError(
                f"{said}, but inputs have shape {steps.shape}; pass {expected}, a row for each step, in this order"
            )
        if not np.isfinite(steps).all():
            t, i = (int(k) for k in np.argwhere(~np.isfinite(steps))[0])
            raise ValueError(f"the input {self.names[i]!r} is {steps[t, i]} at step {t}; pass finite numbers")
        encoded: np.ndarray = (steps - self.mean) / self.scale
        return encoded

    def state(self) -> State:
        """As arrays and JSON values."""
        return {"names": list(self.names), "mean": self.mean, "scale": self.scale}

    @classmethod
    def of_state(cls, state: Any) -> Self:
        """The inverse of ``state``; raises ``ValueError`` for what it did not return."""
        mean, scale = (np.asarray(state[name], dtype=np.float64) for name in ("mean", "scale"))
        if mean.ndim != 1 or mean.shape != scale.shape or not np.isfinite(mean).all():
            raise ValueError("the inputs should have a finite mean and a scale each")
        if not ((scale > 0) & (scale < np.inf)).all():
            raise ValueError("the scales of inputs should be above zero and finite")
        names = names_of_state(state, len(mean))
        if not names:
            raise ValueError("the inputs should have names")
        return cls(names, mean, scale)


def _chosen(sequences: Sequences, names: Sequence[str], inputs: list[np.ndarray] | None) -> list[np.ndarray]:
    """For each sequence its inputs of these names; raises ``ValueError`` where there are none of one."""
    known = sequences.input_names or ()
    lacking = [name for name in names if name not in known]
    if lacking or inputs is None:
        has = f"have the inputs {listed(known)}" if known else "have no inputs"
        raise ValueError(
            f"the model reads the inputs {listed(names)}, but the sequences {has}; pass Sequences(items, inputs=..., "
            "input_names=...)"
        )
    if tuple(names) == tuple(known):
        return inputs
    columns = [known.index(name) for name in names]
    return [u[:, columns] for u in inputs]
