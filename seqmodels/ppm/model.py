"""``PPM``: prediction by partial matching as a ``SequenceModel``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from seqmodels.measure import MemoryKind
from seqmodels.precision import DTYPES
from seqmodels.preparation import Example
from seqmodels.single_pass import SinglePassModel, n_weighted_units

if TYPE_CHECKING:  # numba, which takes a while to load, is loaded when a model is fitted or read
    from seqmodels.ppm.cursor import PPMCursor
    from seqmodels.ppm.kernels import PPMRule
    from seqmodels.ppm.tables import Row


@dataclass(eq=False, repr=False)
class PPM(SinglePassModel):
    """Prediction by partial matching (Cleary & Witten 1984), with contexts of unbounded length.

    The contexts of an event are all suffixes of what was read that came before, from the longest to the empty one. In
    each the event is one of the symbols that followed it, or escapes to the next shorter one that was followed by
    others too, where the symbols of the longer are excluded; after the empty context what is left of the alphabet is
    uniform. With ``c_s(x)`` the count of x in context s, κ ``shorter_weight``, ``s'`` the next shorter context, and all
    sums over the symbols of s that are not excluded::

        p_s(x) = (1 - e_s) (c_s(x) + κ c_s'(x) / Σ c_s') / (Σ c_s + κ),    p_s(x) = e_s p_s'(x) for all others

    Contexts are the states of a suffix automaton, so their length is bounded by that of the sequence alone, as in PPM*
    (Cleary & Teahan 1997, *Unbounded length contexts for PPM*), while contexts that ended at the same places are one. A
    symbol that is new in a context inherits what the shorter ones gave to it: its first count is ``0.2 + 3 p``
    (information inheritance: Shkarin 2002, *PPM: one step to practicality*). Events are counted in the contexts down to
    the one that predicted them (update exclusion), and half in the next. The log-odds of an escape ``e_s`` are a sum of
    four numbers, learned by gradient in ``fit``, which classes of the context choose: how many symbols followed it, how
    often, its length, what share they have in the next shorter context, and how many symbols the longer one had
    (secondary escape estimation, after Bloom 1998).

    Args:
        depth: symbols of the longest context that predicts; None: unbounded.
        adaptive: go on learning within a sequence; at the start of each it is the fitted model again. False: the
            model of the fit all along.
        shorter_weight: κ, in counts.
        max_count: of a symbol in a context; above it all counts of the context are halved.

    The other arguments are those of ``SequenceModel``. For symbols and text. With targets what is learned is y, in
    contexts that reach back into x. ``fit`` reads the sequences in their order, each once; ``sample_weight`` says how
    often, in whole numbers. ``history_`` has the log-probability of the training sequences as they were read, each step
    before it was learned from. ``n_parameters_`` is the number of pairs of a context and a symbol that followed.
    Compiled by numba where it is installed (the extra ``adaptive``), else slow.

    >>> model = PPM(length="given").fit([np.tile([0, 1], 50)])
    >>> [round(float(p), 2) for p in model.predict_next(np.array([0, 1, 0])).probs]
    [0.29, 0.71]
    """

    depth: int | None = None
    adaptive: bool = True
    shorter_weight: float = 8.0
    max_count: float = 255.0

    @property
    def memory_(self) -> MemoryKind:
        return "adaptive" if self.adaptive else "static"

    @property
    def context_(self) -> int | None:
        return None if self.adaptive else self.depth

    @property
    def n_parameters_(self) -> int:
        self._setting()
        return self.ppm_.n_counts

    def _check_options(self) -> None:
        if self.depth is not None and self.depth < 0:
            raise ValueError(f"depth is {self.depth}; pass at least 0, or None for contexts of any length")
        if not 0 <= self.shorter_weight < np.inf:
            raise ValueError(f"shorter_weight is {self.shorter_weight}; pass a finite number from 0 on")
        if not self.max_count >= 2:
            raise ValueError(f"max_count is {self.max_count}; pass at least 2")

    def _learn(self, train: list[Example]) -> float:
        from seqmodels.ppm.tables import FittedPPM

        rows = [self._row(example) for example in self._repeated(train)]
        self.ppm_, log_prob = FittedPPM.fit(rows, self.encoding_.size, self.length_ == "stop", self._rule())
        return float(log_prob.sum()) / n_weighted_units(train)

    def _rule(self) -> PPMRule:
        from seqmodels.ppm.kernels import PPMRule

        return PPMRule(
            first_count=0.2,
            inherited=3.0,
            shorter_update=0.5,
            shorter_weight=float(self.shorter_weight),
            max_count=float(self.max_count),
            max_depth=np.inf if self.depth is None else float(self.depth),
            escape_rate=0.02,
        )

    def _row(self, example: Example) -> Row:
        """The source, and what is predicted."""
        source = np.zeros(0, np.int64) if example.source is None else np.asarray(example.source)
        values = np.asarray(example.values).astype(np.int64)
        return source, np.append(values, self.encoding_.size) if self.length_ == "stop" else values

    # -- many sequences ------------------------------------------------------------------------------------

    def _steps(self, examples: list[Example]) -> list[np.ndarray]:
        from seqmodels.compiled import warn_if_slow

        warn_if_slow("PPM", sum(len(example.values) for example in examples))
        return [self._read(example) for example in examples]

    def _event_log_probs(self, examples: list[Example]) -> list[np.ndarray]:
        from seqmodels.compiled import warn_if_slow

        warn_if_slow("PPM", sum(len(example.values) for example in examples))
        return [self._read(example, of_all=True) for example in examples]

    def _read(self, example: Example, *, of_all: bool = False) -> np.ndarray:
        source, outcomes = self._row(example)
        reader = self.ppm_.reader(1 + len(source) + len(outcomes))
        return reader.read_row((source, outcomes), is_adaptive=self.adaptive, of_all=of_all)

    # -- one step at a time --------------------------------------------------------------------------------

    def cursor(self, n_steps: int | None = None) -> PPMCursor:
        from seqmodels.ppm.cursor import PPMCursor

        self._setting()
        return PPMCursor(self.ppm_, self.adaptive, self.observation_, self._device(), DTYPES[self.dtype])

    # -- keeping -------------------------------------------------------------------------------------------

    def _state(self) -> dict[str, Any]:
        return self.ppm_.to_state()

    def _restore(self, state: dict[str, Any]) -> None:
        from seqmodels.ppm.tables import FittedPPM

        rule = self._rule()._replace(escape_rate=0.0)
        self.ppm_ = FittedPPM.from_state(state, self.encoding_.size, self.length_ == "stop", rule)
