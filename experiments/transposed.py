"""Piano rolls read in another key: as probable as a model has the rolls some keys higher."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqmodels.encodings.examples import Example
from seqmodels.generation import Cursor, CursorState, Prediction, Source
from seqmodels.observations import Observation
from seqmodels.sequences.measure import MemoryKind, Values
from seqmodels.wrappers.wrapped_model import WrappedModel


@dataclass(eq=False, repr=False)
class Transposed(WrappedModel):
    """``p(x_1 .. x_T) = q(x_1 .. x_T`` moved by ``shift`` keys``)``, q that of ``model``.

    To move keys, the highest of them to the lowest place, is one-to-one, so that this is a probability as q is. A
    network that was trained in all keys errs differently in each, and the mixture of its readings is better than any.
    Its weights are counted once, with the reading as it is.

    Args:
        shift: keys (semitones).
    """

    shift: int = 0

    @property
    def memory_(self) -> MemoryKind:
        return self.model.memory_

    @property
    def context_(self) -> int | None:
        return self.model_.context_

    @property
    def n_parameters_(self) -> int:
        return 0 if self.shift else self.model_.n_parameters_

    def _steps(self, examples: list[Example]) -> list[np.ndarray]:
        return self._inner()._steps([replace(e, values=np.roll(e.values, self.shift, axis=1)) for e in examples])

    def cursor(self, n_steps: int | None = None) -> Cursor:
        return TransposedCursor(self._inner().cursor(n_steps), self.shift)

    def _state(self) -> dict[str, Any]:
        return {}  # all is in the model and the shift

    def _restore(self, state: dict[str, Any]) -> None:
        assert not state, "nothing was kept"


@dataclass(frozen=True)
class TransposedCursor:
    """``cursor``, which reads each step moved by ``shift`` keys."""

    cursor: Cursor
    shift: int

    def start(self, source: Source = None, n: int = 1) -> CursorState:
        assert source is None, "piano rolls have no sources"
        return self.cursor.start(None, n)

    def advance(self, state: CursorState, x: Tensor) -> CursorState:
        return self.cursor.advance(state, x.roll(self.shift, -1))

    def distribution(self, state: CursorState) -> Prediction:
        prediction = self.cursor.distribution(state)
        return replace(prediction, observation=TransposedKeys(prediction.observation, self.shift))

    def select(self, state: CursorState, index: Tensor) -> CursorState:
        return self.cursor.select(state, index)


@dataclass(eq=False, repr=False)
class TransposedKeys(Observation):
    """``observation`` of a step moved by ``shift`` keys."""

    observation: Observation
    shift: int
    emits = "vectors"

    def values(self, size: int) -> tuple[Values, ...]:
        return self.observation.values(size)

    def n_output_parameters(self, size: int) -> int:
        return self.observation.n_output_parameters(size)

    def log_prob(self, output_parameters: Tensor, x: Tensor, past: Tensor | None = None) -> Tensor:
        return self.observation.log_prob(output_parameters, x.roll(self.shift, -1), past)

    def sample(self, output_parameters: Tensor, past: Tensor | None, generator: torch.Generator) -> Tensor:
        return self.observation.sample(output_parameters, past, generator).roll(-self.shift, -1)
