"""``AlignmentHMM``: a hidden Markov chain over the positions of a source as a ``SequenceModel``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np

from seqmodels.common.parameters import checked
from seqmodels.encodings import Encoding
from seqmodels.encodings.examples import Example
from seqmodels.encodings.precision import DTYPES
from seqmodels.encodings.raw_data import Data
from seqmodels.hmm.alignment.cursor import AlignmentCursor, check_memory
from seqmodels.hmm.alignment.inference import AlignmentTrellis, Alphabets, PairBlock, blocks_of
from seqmodels.hmm.alignment.jumps import JumpPrior, Jumps
from seqmodels.hmm.alignment.lexicon import BackoffLexicon, context_orders
from seqmodels.hmm.alignment.training import AlignmentEM, AlignmentParameters, AlignmentPseudocounts
from seqmodels.hmm.corpus import validation_score
from seqmodels.hmm.learning.em import StopRule
from seqmodels.model import SequenceModel
from seqmodels.model.fitting import checked_data, resolved_choices
from seqmodels.observations import Categorical, Observation
from seqmodels.sequences import Kind
from seqmodels.training import EMTraining, checkpoints_of_fit

MAX_WINDOW = 9_999  # that is read from a file


@dataclass(eq=False, repr=False)
class AlignmentHMM(SequenceModel):
    """``p(y | x) = Σ_a Π_t p(a_t | a_t-1, x) p(y_t | x around a_t, y_t-1) · p(end | a_T, x)``: each step comes from a
    position of the source.

    The HMM of Vogel, Ney and Tillmann (1996) and of Och and Ney (2003), summed over all alignments ``a`` exactly,
    fitted by EM. Jumps have weights by distance, normalised over the positions there are (and the end); what a step
    emits is looked up in ever finer contexts, each of which is a prior of the next: the symbol at the position, its
    right and left neighbour, the target symbol before, and so on outwards. EM begins as IBM's model 1 (Brown et al.
    1993), then moves the jumps, then opens one level of contexts after the other; the objective never falls.

    Args:
        window: how many source symbols, an odd number, a step and a jump may look at around the position.
        previous: whether a step also looks at the target symbol before it.
        jump_prior: whether positions have a prior weight too, by the source symbols there, so that silent letters are
            learned to be jumped over; without, jumps know distances alone.
        max_jump: a jump farther than this many positions weighs as much as one of so many.
        null: whether a step may come from no position at all, with a probability of its own.
        pseudocount: counts that a context borrows from the coarser one, in target symbols; ``"auto"``: for each level
            as many as make the training data likeliest (MacKay and Peto 1995).
        jump_pseudocount: added to the expected count of each jump. Above 0, so that there is a way from everywhere.
        jump_prior_pseudocount: added to the arrivals at each context of the source, expected and predicted: prior
            weights are then nearer to one.
        max_iter: most EM steps of each stage.
        tol: a stage ends when a step improves the objective by less, in nats per unit; 0 never ends it early.
        source_encoding: how sources are read; ``"auto"``: as the targets where both are of one kind, and otherwise as
            ``encoding="auto"`` would.

    ``training`` is a ``training.EMTraining``; the other arguments are described at ``SequenceModel``. For symbols and
    text, as targets and as sources, of different kinds too; always fitted with ``y``. Nothing is held out unless
    sequences are passed as ``validation``, which are scored once. ``warm_start`` is refused. ``history_`` has a line
    for each EM step, with columns ``level``: how many levels of contexts are open, and ``pseudocount``: what the last
    of them borrows. ``n_parameters_`` counts jumps, factors of the jump prior, and in each context the symbols seen
    there and one for the rest.

    >>> X, y = ["ab", "ba", "a", "bb"] * 4, ["AB", "BA", "A", "BB"] * 4
    >>> model = AlignmentHMM(window=1).fit(X, y)
    >>> model.predict(["aab"])
    ['AAB']
    >>> model.decode_alignment(["abb"], ["ABB"])[0]
    array([0, 1, 2])
    """

    window: int = 5
    previous: bool = True
    jump_prior: bool = True
    max_jump: int = 3
    null: bool = False
    pseudocount: float | Literal["auto"] = "auto"
    jump_pseudocount: float = 0.1
    jump_prior_pseudocount: float = 0.5
    max_iter: int = 3
    tol: float = 1e-3
    _: KW_ONLY
    source_encoding: Encoding | Literal["auto"] = "auto"
    training: EMTraining = field(default_factory=EMTraining)

    _bounded_by_data: ClassVar[Mapping[str, str]] = {"window": "longest", "max_jump": "longest"}
    _uses_validation: ClassVar[bool] = False
    _has_encoder: ClassVar[bool] = True
    _pads_sources: ClassVar[bool] = True
    _renamed: ClassVar[Mapping[str, str]] = {"pull": "jump_prior", "pull_pseudocount": "jump_prior_pseudocount"}

    # -- SequenceModel -------------------------------------------------------------------------------------

    @property
    def context_(self) -> int | None:
        return None

    @property
    def n_parameters_(self) -> int:
        self._setting()
        return self.model_.n_parameters

    def _default_observation(self, kind: Kind) -> Observation:
        if kind == "vectors":
            raise ValueError("AlignmentHMM emits symbols and text, but y is vectors; use an encoder-decoder network")
        return Categorical()

    def _limits(self, seconds: float | None, steps: int | None) -> dict[str, Any]:
        return {} if steps is None else {"max_iter": steps}

    def _check_hyperparameters(self) -> None:
        if self.window < 1 or self.window % 2 == 0:
            raise ValueError(f"window is {self.window}; pass an odd number of source symbols, 1 or more")
        for name, least in (("max_jump", 1), ("max_iter", 1), ("tol", 0)):
            if not least <= getattr(self, name) < np.inf:
                raise ValueError(f"{name} is {getattr(self, name)}; pass at least {least}")
        for name in ("pseudocount", "jump_pseudocount", "jump_prior_pseudocount"):
            value = getattr(self, name)
            if (name, value) != ("pseudocount", "auto") and (isinstance(value, str) or not 0 < value < np.inf):
                raise ValueError(f"{name} is {value!r}; pass a number above 0")
        self.training.check()
        if self.ignore_source:
            raise ValueError("ignore_source=True, but an alignment is with a source; for p(y) use HMM or NGram")
        if self.warm_start:
            raise ValueError(
                "warm_start=True, but the levels of contexts are counted anew; fit on all of the data at once"
            )
        if self.observation != "auto" and repr(self.observation) != repr(Categorical()):
            raise ValueError(
                f"observation is {self.observation!r}, but AlignmentHMM emits symbols by contexts of its own; leave "
                "observation='auto'"
            )

    def _fit(self, train: list[Example], validation: list[Example]) -> None:
        self._check_sources()
        checkpoints = checkpoints_of_fit(self, resolved_choices(self), train, validation)
        self.model_ = self._without_contexts(Jumps.flat(self.max_jump, has_end=self.length_ == "stop", null=self.null))
        blocks = self._blocks(train)
        n_units = sum(e.weight * e.n_units for e in train)
        counts = AlignmentPseudocounts(self.pseudocount, self.jump_pseudocount, self.jump_prior_pseudocount)
        stop = StopRule(self.max_iter, self.tol)
        em = AlignmentEM(blocks, self.model_, counts, stop, DTYPES[self.dtype], n_units)
        result = em.run(verbose=self.verbose, checkpoints=checkpoints)
        self.model_ = result.parameters
        self.converged_ = result.converged
        scored = [np.nan] * (len(result.history) - 1) + [validation_score(self._sums_of_steps, validation)]
        self.history_ = result.history.assign(validation=scored)

    def _without_contexts(self, jumps: Jumps) -> AlignmentParameters:
        """With all positions and all symbols alike, as EM begins."""
        assert self.source_encoding_ is not None
        orders = tuple(context_orders(self.window, self.previous))
        of_source = tuple(order for order in orders if order.columns) if self.jump_prior else ()
        n_source, n_target = self.source_encoding_.size, self.encoding_.size
        return AlignmentParameters(
            jumps,
            JumpPrior((), (), of_source, n_source),
            BackoffLexicon((), orders, n_source, n_target),
        )

    def _check_sources(self) -> None:
        if not self.measure_.conditional:
            raise ValueError(
                "AlignmentHMM is p(y | x), each step of y from a position of x, but there is no y; pass fit(X, y)"
            )
        if self.source_encoding_ is None or self.source_encoding_.reads == "vectors":
            raise ValueError(
                "AlignmentHMM looks source symbols up in tables, but X is vectors; pass symbols or text, or use an "
                "encoder-decoder network"
            )

    # -- many pairs at once --------------------------------------------------------------------------------

    def _blocks(self, examples: list[Example]) -> list[PairBlock]:
        lexicon = self.model_.lexicon
        alphabets = Alphabets(lexicon.n_source, lexicon.n_target)
        device, dtype = self._device(), DTYPES[self.dtype]
        for i, example in enumerate(examples):
            check_memory(i, len(np.asarray(example.source)), len(example.values), self.null)
        return blocks_of(examples, alphabets, self.window, null=self.null, device=device, dtype=dtype)

    def _trellises(self, examples: list[Example]) -> Iterator[AlignmentTrellis]:
        model, dtype = self.model_, DTYPES[self.dtype]
        for block in self._blocks(examples):
            p = model.lexicon.probability(block.windows_of_steps, block.previous[:, None], block.y[:, None])
            yield AlignmentTrellis.from_block(block, model.jumps, model.prior(block.windows_of_jumps), p, dtype)

    def _steps(self, examples: list[Example]) -> list[np.ndarray]:
        return self._of_each(examples, AlignmentTrellis.steps)

    def _of_each(
        self, examples: list[Example], algorithm: Callable[[AlignmentTrellis], list[np.ndarray]]
    ) -> list[np.ndarray]:
        results: list[np.ndarray] = [np.empty(0)] * len(examples)
        for trellis in self._trellises(examples):
            for i, result in zip(trellis.block.indices, algorithm(trellis), strict=True):
                results[i] = result
        return results

    # -- alignments ----------------------------------------------------------------------------------------

    def align(self, X: Any, y: Any) -> list[np.ndarray]:
        """For each pair the ``(S_y, S_x)`` posterior of the position that each step of y came from, over encoded steps;
        rows sum to one.

        With ``null`` there is one column more, the last, for none. Positions whose windows overlap can stand for each
        other: for the sharpest alignments, if not the best likelihood, fit with ``window=1``.
        """
        return self._of_each(self._setting().examples(self._pairs(X, y)), AlignmentTrellis.posterior)

    def decode_alignment(self, X: Any, y: Any) -> list[np.ndarray]:
        """For each pair ``(S_y,)`` the positions of the most probable alignment (Viterbi), -1 where from none."""
        return self._of_each(self._setting().examples(self._pairs(X, y)), AlignmentTrellis.best_alignments)

    def _pairs(self, X: Any, y: Any) -> Data:
        data = checked_data(self, X, y)
        data.refuse_past("an alignment")
        return data

    # -- one step at a time --------------------------------------------------------------------------------

    @checked
    def cursor(self, n_steps: int | None = None) -> AlignmentCursor:
        self._setting()
        model = self.model_
        where = self._device(), DTYPES[self.dtype]
        return AlignmentCursor(model.jumps, model.prior, model.lexicon, self.window, self.observation_, *where)

    # -- keeping -------------------------------------------------------------------------------------------

    def _state(self) -> dict[str, Any]:
        return self.model_.arrays()

    def _restore(self, state: dict[str, Any]) -> None:
        if not 1 <= self.window <= MAX_WINDOW:
            raise ValueError(f"window is {self.window}; a saved model has one of 1 to {MAX_WINDOW}")
        jumps = Jumps(np.empty(0), self.max_jump, self.length_ == "stop", None)  # their number is checked, not made
        self.model_ = self._without_contexts(jumps).restored(state)
