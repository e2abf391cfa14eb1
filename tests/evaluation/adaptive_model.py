"""A small adaptive model for tests: a fitted model of symbols, mixed with counts of what the sequence had so far."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from seqmodels.encodings.examples import Example
from seqmodels.generation import Cursor
from seqmodels.sequences.measure import MemoryKind
from seqmodels.wrappers.wrapped_model import WrappedModel


@dataclass(kw_only=True, eq=False, repr=False)
class CountCache(WrappedModel):
    """``p(x_t | x_<t) = (1 - r) p_model + r (n(x_t) + 1) / (t - 1 + V + 1)`` with counts n over ``x_<t``, V symbols and
    the end, which the counts know as a symbol that has not come.
    """

    rate: float = 0.5

    @property
    def memory_(self) -> MemoryKind:
        return "adaptive"

    @property
    def context_(self) -> int | None:
        return None

    @property
    def n_parameters_(self) -> int:
        return self._inner().n_parameters_

    def _steps(self, examples: list[Example]) -> list[np.ndarray]:
        result = []
        for example, steps in zip(examples, self._inner()._steps(examples), strict=True):
            symbols = [int(s) for s in np.asarray(example.values)]
            counts = np.ones(self.encoding_.size + 1)
            cached = np.empty(len(steps))
            for t, symbol in enumerate([*symbols, self.encoding_.size][: len(steps)]):
                cached[t] = counts[symbol] / counts.sum()
                counts[symbol] += 1
            result.append(np.logaddexp(np.log(1 - self.rate) + steps, np.log(self.rate * cached)))
        return result

    def cursor(self, n_steps: int | None = None) -> Cursor:
        raise NotImplementedError("only scored in these tests")

    def _state(self) -> dict[str, Any]:
        return {}

    def _restore(self, state: dict[str, Any]) -> None:
        self.history_, self.converged_ = self.model_.history_, self.model_.converged_
