"""Context-tree weighting as a ``SequenceModel``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import numpy as np

from seqmodels.counts.base import CountModel, Learners, n_weighted_units
from seqmodels.encodings.examples import Example

if TYPE_CHECKING:  # numba, which takes a while to load, is loaded when a tree is fitted or read
    from seqmodels.counts.context_tree.kernels import Rule

Weighting = Literal["gated", "bayes"]
MAX_SYMBOLS = 2**20


@dataclass(eq=False, repr=False)
class ContextTree(CountModel):
    """A mixture over all Markov models whose order may differ from context to context, up to ``depth``.

    A symbol is a path of binary decisions (in a Huffman tree of the training counts, with one leaf for each symbol and,
    under ``length="stop"``, one for the end). For each decision, every context ``s`` of 0 to ``depth`` symbols counts
    both bits. By context-tree weighting (Willems, Shtarkov and Tjalkens 1995)

        P_w(s) = 1/2 P_e(s) + 1/2 Π_a P_w(a s),    P_w(s) = P_e(s) at the longest contexts

    where ``P_e`` is the probability of the bits seen after ``s`` given their counts, and ``a s`` are the contexts one
    symbol longer. Sequences follow a start symbol, which contexts may contain.

    Args:
        depth: number of symbols of the longest context.
        adaptive: if True, the model goes on learning within a sequence, and at the start of each sequence it is the
            fitted model again; if False, it stays the fitted model.
        weighting: ``"bayes"`` is exactly the formula above with the estimator of Krichevsky and Trofimov (1981), ``(c +
            1/2) / (n + 1)``, which is a Bayesian mixture over all trees of contexts. Under ``"gated"``, an estimate
            starts from that of the context one symbol shorter (whose prediction counts as one observation), counts
            above ``max_count`` are halved, and the log-odds of stopping at a context start from values that ``fit``
            learns by gradient, for each depth and each confidence (size of the counts, and whether only one bit was
            seen) of the context and of the one a symbol longer. On text, ``"gated"`` is better by some hundredths of a
            nat.
        max_count: largest count of a decision in a context under ``"gated"``; smaller values forget the past sooner.

    The other arguments are described in ``SequenceModel``. The model is for symbols and text. With targets it learns y,
    in contexts that reach back into x. ``fit`` reads the sequences once, in their order; ``sample_weight`` says how
    often each is read, in whole numbers. ``history_`` has the log-probability of the training sequences as they were
    read, each step before it was learned. ``n_parameters_`` is the number of pairs of a context and a decision that
    were seen, which take 20 bytes each. The loops are compiled if numba is installed (the extra ``adaptive``), and slow
    otherwise.

    Raises:
        ValueError: in ``fit``, for an alphabet of more than 1,048,576 symbols; one of that size takes seconds and 1 GB.

    >>> model = ContextTree(2, weighting="bayes", length="given").fit([np.array([0, 1, 0, 1, 0, 1])])
    >>> [round(float(p), 3) for p in model.predict_next(np.array([0])).probs]
    [0.197, 0.803]
    """

    _bounded_by_data: ClassVar[Mapping[str, str]] = {"depth": "longest"}

    depth: int = 7
    adaptive: bool = True
    weighting: Weighting = "gated"
    max_count: float = 255.0

    @property
    def context_(self) -> int | None:
        return None if self.adaptive else self._context_of(self.depth)

    @property
    def n_parameters_(self) -> int:
        self._setting()
        return self.tree_.n_records

    def _check_options(self) -> None:
        if self.depth < 0:
            raise ValueError(f"depth is {self.depth}; pass at least 0")
        if self.weighting not in get_args(Weighting):
            raise ValueError(f"weighting is {self.weighting!r}; pass 'gated' or 'bayes'")
        if not self.max_count >= 2:
            raise ValueError(f"max_count is {self.max_count}; pass at least 2")

    def _learn(self, train: list[Example]) -> float:
        from seqmodels.counts.context_tree.tables import FittedTree

        if self.encoding_.size > MAX_SYMBOLS:
            raise ValueError(
                f"the symbols are 0 to {self.encoding_.size - 1:,}, but ContextTree, which keeps a path of decisions "
                f"for each, takes at most {MAX_SYMBOLS:,}; number those that occur from 0 on, or use NGram"
            )
        rows = list(self._rows(self._repeated(train)))
        self.tree_, log_prob = FittedTree.fit(
            rows, self.encoding_.size, self.length_ == "stop", self.depth, self._rule()
        )
        return float(log_prob.sum()) / n_weighted_units(train)

    def _rule(self) -> Rule:
        from seqmodels.counts.context_tree.kernels import Rule

        if self.weighting == "bayes":
            return Rule(0.5, 0.5, 0.0, np.inf, 1.0, 700.0, 0.0)
        return Rule(0.5, 0.02, 1.0, float(self.max_count), 0.3, 8.0, 0.1)

    # -- many sequences ------------------------------------------------------------------------------------

    def _steps(self, examples: list[Example]) -> list[np.ndarray]:
        from seqmodels.common.compiled import warn_if_slow

        warn_if_slow("ContextTree", sum(len(example.values) for example in examples))
        return [self.tree_.learner(is_adaptive=self.adaptive).read_row(row) for row in self._rows(examples)]

    def _event_log_probs(self, examples: list[Example]) -> list[np.ndarray]:
        from seqmodels.common.compiled import warn_if_slow

        warn_if_slow("ContextTree", self.encoding_.size * sum(len(example.values) for example in examples))
        return [self.tree_.learner(is_adaptive=self.adaptive).read_all(row) for row in self._rows(examples)]

    # -- one step at a time --------------------------------------------------------------------------------

    def _learners(self) -> Learners:
        return Learners(partial(self.tree_.learner, is_adaptive=self.adaptive, can_undo=True), self.depth)

    # -- keeping -------------------------------------------------------------------------------------------

    def _state(self) -> dict[str, Any]:
        return self.tree_.to_state()

    def _restore(self, state: dict[str, Any]) -> None:
        from seqmodels.counts.context_tree.tables import FittedTree

        rule = self._rule()._replace(gate_rate=0.0)
        self.tree_ = FittedTree.from_state(state, self.encoding_.size, self.length_ == "stop", self.depth, rule)
