"""``HMMTagger``: an HMM whose states are the labels, fitted to labelled sequences, as p(y | x)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from seqmodels.encodings import Encoding
from seqmodels.generation import Prediction
from seqmodels.hmm.learning import check_numbers
from seqmodels.hmm.messages import log_messages, log_next, log_path
from seqmodels.hmm.model import HMM
from seqmodels.hmm.priors import Pseudocounts
from seqmodels.model import DTYPES, SequenceModel
from seqmodels.observations import Categorical, GaussianMixture, Observation
from seqmodels.preparation import Data, Example, Setting, default_encoding
from seqmodels.sequences import Kind, Sequences
from seqmodels.tagging import past_the_source


@dataclass(frozen=True)
class TaggerState:
    """Before step ``position``: ``messages (n, T, K)`` of the source, the labels before, ``(n,)``, None at the first step, and
    whether they were possible."""

    messages: Tensor
    before: Tensor | None
    possible: Tensor
    position: int

    @property
    def is_over(self) -> bool:
        """Whether there is no next step."""
        return self.position >= self.messages.shape[1]


@dataclass(kw_only=True, eq=False, repr=False)
class HMMTagger(SequenceModel):
    """``p(x, y) = π(y_1) b_{y_1}(x_1) Π_t a(y_{t-1}, y_t) b_{y_t}(x_t)``, and by it ``p(y | x) = p(x, y) / p(x)``, exactly.

    The states of an ``HMM`` of the sources are the labels ``y_t``, integers from 0; it is fitted to both, which is counting (Rabiner
    1989; for words and their parts of speech: Church 1988), and where a label has a mixture EM within the label. Its steps are
    ``p(y_t | y_1 .. y_{t-1}, x_1 .. x_T)``: all of the source is seen, and of the labels before the last is enough.

    Args:
        emission: how a label emits a step of the source: any observation that an ``HMM`` has; ``"auto"``: as there, and symbols
            with a pseudocount of 0.01, so that one never seen with a label is not impossible. (``observation`` is how labels are
            emitted, which is always ``Categorical``.)
        max_iter: most EM steps.
        tol: EM stops when a step improves the objective by less, in nats per unit of the source.
        pseudocount: added to every count of first labels and of transitions between labels, or a ``Pseudocounts``.

    Labels are as many as ``encoding=Symbols(n_symbols=...)`` says, or the largest that was seen and one. The other arguments
    are those of ``SequenceModel``. It is fitted to p(x, y), and figures of ``history_`` are of both together.

    Attributes: ``hmm_``, the fitted ``HMM`` of the sources, with ``transition_`` and all else that can be asked of one.

    Raises:
        ValueError: sources and targets of different lengths; targets that are not integers.

    >>> words, tags = [np.array([0, 1, 2]), np.array([0, 2])], [np.array([0, 1, 0]), np.array([0, 0])]
    >>> model = HMMTagger().fit(words, tags)
    >>> [labels.tolist() for labels in model.predict(words)]
    [[0, 1, 0], [0, 0]]
    """

    emission: Observation | str = "auto"
    max_iter: int = 100
    tol: float = 1e-4
    pseudocount: float | Pseudocounts = 0.01

    _aligned: ClassVar[bool] = True
    _has_encoder: ClassVar[bool] = True
    _holds_out: ClassVar[bool] = False

    # -- SequenceModel -------------------------------------------------------------------------------------

    @property
    def context_(self) -> int | None:
        return None

    @property
    def n_parameters_(self) -> int:
        return self.hmm_.n_parameters_

    def _default_observation(self, kind: Kind) -> Observation:
        if kind != "symbols":
            raise ValueError(
                f"the labels of an HMMTagger are its states, integers from 0, but y is {kind}; take LSTMTagger or TransformerTagger"
            )
        return Categorical()

    def _default_source_encoding(self, X: Sequences) -> Encoding:
        return default_encoding(X.kind, self._emission(X.kind).values(X.n_features))

    def _emission(self, kind: Kind) -> Observation:
        """How labels emit sources of this kind."""
        if isinstance(self.emission, Observation):
            return self.emission.clone()
        return GaussianMixture(4, "diag") if kind == "vectors" else Categorical(pseudocount=0.01)

    def _check_hyperparameters(self) -> None:
        if self.observation != "auto":
            raise ValueError(
                f"observation is {self.observation!r}, but labels are always Categorical; for what a label emits pass "
                f"emission={self.observation!r}"
            )
        if not (self.emission == "auto" or isinstance(self.emission, Observation)):
            raise ValueError(f"emission is {self.emission!r}; pass 'auto' or an object such as GaussianMixture(4)")
        check_numbers(1, 1, self.max_iter, self.tol)

    # -- fitting -------------------------------------------------------------------------------------------

    def _fit(self, train: list[Example], validation: list[Example]) -> None:
        reads = self._reads()
        self.hmm_ = self._new(self.encoding_.size)
        self.hmm_._check_hyperparameters()
        setting = Setting.of(reads, self._checked_emission(reads), "given", conditional=False)
        raw = Sequences([reads.decode(e.source) for e in train if e.source is not None])
        known = Data(raw, None, np.array([e.weight for e in train]), [e.values for e in train])
        self.hmm_._set(setting)
        self.hmm_._fit(setting.examples(known), [])
        self.hmm_.fit_seconds_ = 0.0
        self.converged_ = self.hmm_.converged_
        scored = [np.nan] * (len(self.hmm_.history_) - 1) + [self._validation(validation)]
        self.history_ = self.hmm_.history_.assign(validation=scored)

    def _new(self, n_labels: int) -> HMM:
        return HMM(
            n_labels,
            length="given",
            max_iter=self.max_iter,
            tol=self.tol,
            pseudocount=self.pseudocount,
            random_state=self.random_state,
            device=self.device,
            dtype=self.dtype,
            verbose=self.verbose,
        )

    def _checked_emission(self, reads: Encoding) -> Observation:
        emission = self._emission(reads.reads)
        vectors = reads.reads == "vectors"
        if emission.emits != ("vectors" if vectors else "symbols"):
            raise ValueError(f"the emission {emission!r} emits {emission.emits} but the sources are {reads.reads}")
        emission.check(reads.size)
        if vectors and emission.values(reads.size) != reads.values():
            raise ValueError(f"the emission {emission!r} is not for what {reads!r} gives; leave source_encoding='auto'")
        return emission

    def _reads(self) -> Encoding:
        assert self.source_encoding_ is not None, "a tagger reads its sources"
        return self.source_encoding_

    def _validation(self, examples: list[Example]) -> float:
        if not examples:
            return np.nan
        return sum(float(steps.sum()) for steps in self._steps(examples)) / sum(e.n_units for e in examples)

    # -- labels, given a source ----------------------------------------------------------------------------

    def posterior(self, X: Any) -> list[np.ndarray]:
        """``(T, K)`` p(y_t | x_1 .. x_T) of each source: each label at each step, whatever the others are."""
        return self._chain().posterior(X)

    def _most_probable(self, sources: list[np.ndarray | None]) -> list[np.ndarray] | None:
        """By Viterbi."""
        return self._chain().decode([self._reads().decode(x) for x in sources if x is not None])

    def _steps(self, examples: list[Example]) -> list[np.ndarray]:
        parameters = self._chain().parameters_.to(self._device())
        messages = self._messages([_source(e.source) for e in examples])
        paths = [torch.as_tensor(e.values, device=self._device()) for e in examples]
        found = [log_path(parameters, m, path) for m, path in zip(messages, paths, strict=True)]
        return [steps.cpu().numpy() for steps in found]

    def _messages(self, sources: list[np.ndarray]) -> list[Tensor]:
        """``(T, K)`` of each encoded source; ``ValueError`` for one of probability zero, named."""
        chain, results = self._chain(), [torch.empty(0)] * len(sources)
        parameters = chain.parameters_.to(self._device())
        for block in chain._blocks([Example(x) for x in sources], len(parameters.initial)):
            densities, _ = chain._emission().evaluate(
                parameters.table, block.x, block.past, DTYPES[self.dtype], block.scratch
            )
            found = log_messages(parameters, block.cutting.split(densities.log()))
            for i, messages in zip(block.indices, found, strict=True):
                if torch.isneginf(parameters.initial.log() + messages[0]).all():
                    raise ValueError(
                        f"source {i} has probability zero whatever its labels, so they have no probability given it; keep "
                        "emissions and transitions from being exactly zero (pseudocount, of the tagger and of its emission)"
                    )
                results[i] = messages
        return results

    def _chain(self) -> HMM:
        """The HMM of the sources, which computes where and as precisely as this model."""
        self._setting()
        return self.hmm_.set_params(device=self.device, dtype=self.dtype, random_state=self.random_state)

    # -- one step at a time --------------------------------------------------------------------------------

    def start(self, source: np.ndarray | None = None, n: int = 1) -> TaggerState:
        (messages,) = self._messages([_source(source)])
        possible = torch.ones(n, dtype=torch.bool, device=messages.device)
        return TaggerState(messages.expand(n, *messages.shape), None, possible, 0)

    def advance(self, state: TaggerState, x: Tensor) -> TaggerState:
        label = x.to(state.messages.device)
        each = self._log_next(state).gather(1, label[:, None])[:, 0]
        return TaggerState(state.messages, label, state.possible & ~torch.isneginf(each), state.position + 1)

    def distribution(self, state: TaggerState) -> Prediction:
        """The label of the next step; ``ValueError`` where the source has none."""
        possible, log_prob = state.possible[:, None], self._log_next(state)
        log_weights = torch.where(possible, 0.0, -torch.inf)
        return Prediction(self.observation_, torch.where(possible, log_prob, 0.0).unsqueeze(1), log_weights, None, None)

    def _log_next(self, state: TaggerState) -> Tensor:
        """``(n, K)``."""
        if state.is_over:
            raise past_the_source(state.messages.shape[1])
        return log_next(self.hmm_.parameters_.to(self._device()), state.messages[:, state.position], state.before)

    # -- keeping -------------------------------------------------------------------------------------------

    def _state(self) -> dict[str, Any]:
        return self.hmm_._state()

    def _restore(self, state: dict[str, Any]) -> None:
        reads = self._reads()
        self.hmm_ = self._new(self.encoding_.size)
        self.hmm_._set(Setting.of(reads, self._emission(reads.reads), "given", conditional=False))
        self.hmm_._restore(state)
        self.hmm_.history_, self.hmm_.converged_, self.hmm_.fit_seconds_ = self.history_, self.converged_, 0.0


def _source(encoded: np.ndarray | None) -> np.ndarray:
    assert encoded is not None, "a tagger reads its sources"
    return encoded
