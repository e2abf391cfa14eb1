"""``AlignmentHMM``: a model of p(y | x) with a hidden Markov chain over the positions of the source."""

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
from seqmodels.model import SequenceModel
from seqmodels.model.fitting import checked_data, resolved_choices
from seqmodels.observations import Categorical, Observation
from seqmodels.sequences import Kind
from seqmodels.training import EMTraining, StopRule, checkpoints_of_fit

MAX_WINDOW = 9_999  # largest window that is read from a file


@dataclass(eq=False, repr=False)
class AlignmentHMM(SequenceModel):
    """Hidden Markov alignment model of p(y | x): each step of the target is emitted from a position of the source.

    ``p(y | x) = Σ_a Π_t p(a_t | a_t-1, x) p(y_t | x around a_t, y_t-1) · p(end | a_T, x)``. It is the HMM of Vogel, Ney
    and Tillmann (1996) and of Och and Ney (2003), summed exactly over all alignments ``a`` and fitted by EM. Jumps from
    one position to the next have weights by distance, normalised over the positions of the source (and the end). The
    distribution of a target symbol is looked up in ever finer contexts, each the prior of the next: the symbol at the
    position, its right and left neighbour, the target symbol before, and so on outwards. EM starts as IBM's model 1
    (Brown et al. 1993), then learns the jumps, then one level of contexts after the other; the objective never falls.

    ``X`` are the sources and ``y`` the targets, which are symbols or text and may be of different kinds; the model is
    always fitted with ``y``. Nothing is held out unless sequences are passed as ``validation``, which are scored once.
    ``warm_start=True`` raises an error. ``history_`` has a row for each EM step, with the columns ``level``, the number
    of levels of contexts, and ``pseudocount``, the pseudocount of the finest level of contexts. ``n_parameters_``
    counts jumps, factors of the jump prior, and in each context the symbols seen there and one for the rest.

    Args:
        window: number of source symbols around the position that a step and a jump may depend on, odd.
        previous: whether a step also depends on the target symbol before it.
        jump_prior: whether positions have a prior weight that depends on the source symbols there, so that the model
            can learn to jump over silent letters. If False, jumps depend on distances alone.
        max_jump: largest distance with a weight of its own; larger jumps have the weight of this one.
        null: whether a step may be aligned with no position, with a probability that is learned.
        pseudocount: number of target symbols that the coarser context counts as; ``"auto"`` chooses for each level the
            number that makes the training data most probable (MacKay and Peto 1995).
        jump_pseudocount: number added to the expected count of each jump, above 0 so that every position can be left.
        jump_prior_pseudocount: number added to the expected and to the predicted count of jumps to each context of the
            source, which pulls prior weights of positions towards one.
        max_iter: largest number of EM steps of each stage.
        tol: a stage ends when a step improves the objective by less than this, in nats per unit; 0 never ends it early.
        source_encoding: how sources are read. ``"auto"`` reads them as the targets are read if both are of one kind,
            else as ``encoding="auto"`` would.

    The argument ``training`` is a ``training.EMTraining``, the options of EM such as checkpoints. The other arguments
    are those of every ``SequenceModel``.

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
            raise ValueError("AlignmentHMM emits symbols or text, but y is vectors; use an encoder-decoder network")
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
            raise ValueError("ignore_source=True, but AlignmentHMM aligns y with a source; for p(y) use HMM or NGram")
        if self.warm_start:
            raise ValueError(
                "warm_start=True, but every fit of AlignmentHMM counts contexts anew; fit on all of the data at once"
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
        self.history_ = result.history_with(validation=validation_score(self._sums_of_steps, validation))

    def _without_contexts(self, jumps: Jumps) -> AlignmentParameters:
        """Return the parameters with which EM starts: equally probable positions and equally probable symbols."""
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
                "AlignmentHMM models p(y | x), each step of y from a position of x, but there is no y; pass fit(X, y)"
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
        """Return for each pair the posterior of the source position of each target step, ``p(a_t | x, y)``.

        There is one array ``(S_y, S_x)`` for each pair, with S_y encoded steps of the target and S_x encoded steps of
        the source; its rows sum to one. With ``null=True`` there is one more column, the last, for no position.
        Positions whose windows of source symbols overlap can replace each other: for the sharpest alignments, if not
        the best likelihood, fit with ``window=1``.

        Args:
            X: sources, in any form that ``fit`` accepts.
            y: targets, one for each source.
        """
        return self._of_each(self._setting().examples(self._pairs(X, y)), AlignmentTrellis.posterior)

    def decode_alignment(self, X: Any, y: Any) -> list[np.ndarray]:
        """Return for each pair the source position of each target step in the most probable alignment (Viterbi).

        There is one integer array ``(S_y,)`` for each pair, with S_y encoded steps of the target. Positions are counted
        from 0 in encoded steps of the source; -1 means that the step is aligned with no position.

        Args:
            X: sources, in any form that ``fit`` accepts.
            y: targets, one for each source.
        """
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
        jumps = Jumps(
            np.empty(0), self.max_jump, self.length_ == "stop", None
        )  # only their number is used, to check the file
        self.model_ = self._without_contexts(jumps).restored(state)
