"""``HMMTagger``: an HMM whose states are the labels of labelled sequences, used as a model of p(y | x)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from seqmodels.common.parameters import checked
from seqmodels.encodings import Encoding
from seqmodels.encodings.aligned_targets import past_the_source
from seqmodels.encodings.defaults import default_encoding
from seqmodels.encodings.examples import Example
from seqmodels.encodings.precision import DTYPES
from seqmodels.encodings.raw_data import Data
from seqmodels.encodings.raw_to_examples import Setting
from seqmodels.generation import Prediction, Source, select_rows
from seqmodels.hmm.corpus import corpus_of, validation_score
from seqmodels.hmm.emissions import emission_of
from seqmodels.hmm.learning.options import check_numbers
from seqmodels.hmm.learning.priors import Pseudocounts
from seqmodels.hmm.model import HMM
from seqmodels.hmm.parameters import Parameters
from seqmodels.inference.chains.messages import log_messages, log_next, log_steps, log_update
from seqmodels.model import SequenceModel
from seqmodels.model.fitting import apply_setting
from seqmodels.observations import Categorical, GaussianMixture, Observation
from seqmodels.sequences import Kind, Sequences
from seqmodels.training import EMTraining


@dataclass(frozen=True)
class TaggerState:
    """The state of a tagger's cursor before the label at step ``position``, for n sources of T steps.

    Each of K labels has S hidden states of its own, so that there are K S hidden states.

    Attributes:
        log_b: log-densities of the source in each hidden state, ``(n, T, K S)``.
        messages: log p(source from step t on | hidden state at t) in nats, up to a constant at each step, ``(n, T, K
            S)``.
        belief: log-probabilities of the hidden states after the labels so far, ``(n, K S)``, -inf everywhere once the
            labels are impossible; None at the first step.
        position: index of the next step.
    """

    log_b: Tensor
    messages: Tensor
    belief: Tensor | None
    position: int

    @property
    def is_over(self) -> bool:
        """True if there is no next step."""
        return self.position >= self.messages.shape[1]


@dataclass(frozen=True)
class TaggerCursor:
    """The cursor of ``HMMTagger``, which predicts the labels of given sources step by step.

    Its methods take and return a ``TaggerState``.

    Args:
        parameters: parameters of the HMM of the sources, which has S hidden states for each of K labels.
        log_messages: function of encoded sources that returns for each its log-densities in the hidden states, and the
            backward messages log p(source from step t on | hidden state at t), both ``(T, K S)``.
        observation: observation of the labels.
        n_states_per_label: number of states S of each label.
    """

    parameters: Parameters
    log_messages: Callable[[list[np.ndarray]], tuple[list[Tensor], list[Tensor]]]
    observation: Observation
    n_states_per_label: int

    def start(self, source: Source = None, n: int = 1) -> TaggerState:
        """Return the state before the first label of ``n`` target sequences.

        ``source`` is one encoded source for all targets or a list of ``n`` sources of equal length.
        """
        sources = source if isinstance(source, list) else [_source(source)]
        log_b, messages = (torch.stack(each) for each in self.log_messages(sources))
        return TaggerState(log_b.expand(n, *log_b.shape[1:]), messages.expand(n, *messages.shape[1:]), None, 0)

    def advance(self, state: TaggerState, x: Tensor) -> TaggerState:
        """Return the state of the cursor after the next label of each target.

        Args:
            state: state of the cursor before the label.
            x: the label of each of n targets, ``(n,)`` integers.

        Raises:
            ValueError: the source has no further step.
        """
        _check_not_over(state)
        labels = x.to(state.log_b.device)
        of_label = states_of(labels, self.n_states_per_label, len(self.parameters.initial))
        log_b = state.log_b[:, state.position].masked_fill(~of_label, -torch.inf)
        p = self.parameters
        belief = log_update(p.initial, p.transition, log_b, state.belief)
        return replace(state, belief=belief, position=state.position + 1)

    def distribution(self, state: TaggerState) -> Prediction:
        """Return the distribution of the label of the next step, given the labels so far and the whole source.

        Args:
            state: state of the cursor after the labels so far.

        Raises:
            ValueError: the source has no further step.
        """
        _check_not_over(state)
        p = self.parameters
        of_states = log_next(p.initial, p.transition, state.messages[:, state.position], state.belief)
        log_prob = of_states.unflatten(-1, (-1, self.n_states_per_label)).logsumexp(-1)  # (n, K)
        impossible = torch.isneginf(log_prob).all(-1, keepdim=True)
        log_weights = torch.where(impossible, -torch.inf, 0.0)
        table = torch.where(impossible, 0.0, log_prob).unsqueeze(1)
        return Prediction(self.observation, table, log_weights, None, None)

    def select(self, state: TaggerState, index: Tensor) -> TaggerState:
        """Return the state of some of the target sequences.

        Args:
            state: state of the cursor.
            index: numbers of the targets in the new order, ``(m,)``.
        """
        selected: TaggerState = select_rows(state, index)
        return selected


@dataclass(kw_only=True, eq=False, repr=False)
class HMMTagger(SequenceModel):
    """Hidden Markov model of labelled sequences, whose states are the labels, used as ``p(y | x) = p(x, y) / p(x)``.

    ``p(x, y) = π(y_1) b_{y_1}(x_1) Π_t a(y_{t-1}, y_t) b_{y_t}(x_t)`` for a source sequence x and its labels y, one for
    each step. The states of an ``HMM`` of the sources are the labels ``y_t``, integers from 0. It is fitted to p(x, y),
    which amounts to counting (Rabiner 1989; for words and their parts of speech: Church 1988), and where a label has a
    mixture, to EM within the label. Its steps are ``p(y_t | y_1 .. y_{t-1}, x_1 .. x_T)``, computed exactly and given
    all of the source. With ``n_states_per_label`` = S a label is any of S states, which are summed out as in ``p(x)``
    of an ``HMM``; the beginning of a word may then sound different from its end.

    Args:
        emission: the observation of a source step given its label, any that an ``HMM`` can have. ``"auto"`` is
            ``GaussianMixture(4)`` for vectors, and for symbols ``Categorical`` with a pseudocount of 0.01, so that a
            symbol never seen with a label is not impossible. (``observation`` is the distribution of labels, always
            ``Categorical``.)
        n_states_per_label: number of states S of each label; states i S to i S + S - 1 belong to label i. EM within the
            labels starts from each run of one label cut into S equal parts.
        max_iter: largest number of EM steps.
        tol: EM stops when a step improves the objective by less than this, in nats per unit of the source.
        pseudocount: number added to every count of first states and of transitions, or a ``Pseudocounts``.
        source_encoding: how sources are read; ``"auto"`` reads them as ``encoding="auto"`` would.

    The number of labels is set by ``encoding=Symbols(n_symbols=...)``; by default it is one more than the largest label
    in the data. ``training`` is a ``training.EMTraining``. ``SequenceModel`` describes the other arguments. The figures
    of ``history_`` are of p(x, y).

    Attributes: ``hmm_``, the fitted ``HMM`` of the sources, with ``transition_`` and all other attributes of an HMM.

    Raises:
        ValueError: a source and its target have different lengths, or targets are not integers.

    >>> words, tags = [np.array([0, 1, 2]), np.array([0, 2])], [np.array([0, 1, 0]), np.array([0, 0])]
    >>> model = HMMTagger().fit(words, tags)
    >>> [labels.tolist() for labels in model.predict(words)]
    [[0, 1, 0], [0, 0]]
    """

    emission: Observation | str = "auto"
    n_states_per_label: int = 1
    max_iter: int = 100
    tol: float = 1e-4
    pseudocount: float | Pseudocounts = 0.01
    source_encoding: Encoding | Literal["auto"] = "auto"
    training: EMTraining = field(default_factory=EMTraining)

    _bounded_by_data: ClassVar[Mapping[str, str]] = {"n_states_per_label": "steps"}
    _is_tagger: ClassVar[bool] = True
    _has_encoder: ClassVar[bool] = True
    _uses_validation: ClassVar[bool] = False
    _fits_in_parallel: ClassVar[bool] = True  # because the HMM of the sources does

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
                f"the labels of an HMMTagger are its states, integers from 0, but y is {kind}; use LSTMTagger or "
                "TransformerTagger"
            )
        return Categorical()

    def _default_source_encoding(self, X: Sequences) -> Encoding:
        return default_encoding(X.kind, self._emission(X.kind), X.n_features)

    def _emission(self, kind: Kind) -> Observation:
        if isinstance(self.emission, Observation):
            return self.emission.clone()
        return GaussianMixture(4, "diag") if kind == "vectors" else Categorical(pseudocount=0.01)

    def _limits(self, seconds: float | None, steps: int | None) -> dict[str, Any]:
        return {} if steps is None else {"max_iter": steps}

    def _check_hyperparameters(self) -> None:
        if self.observation != "auto":
            raise ValueError(
                f"observation is {self.observation!r}, but labels are always Categorical; to choose the emission of "
                f"a label pass emission={self.observation!r}"
            )
        if not (self.emission == "auto" or isinstance(self.emission, Observation)):
            raise ValueError(f"emission is {self.emission!r}; pass 'auto' or an object such as GaussianMixture(4)")
        check_numbers(1, 1, self.max_iter, self.tol)
        self.training.check()
        if self.n_states_per_label < 1:
            raise ValueError(f"n_states_per_label is {self.n_states_per_label}; pass at least 1")

    # -- fitting -------------------------------------------------------------------------------------------

    def _fit(self, train: list[Example], validation: list[Example]) -> None:
        encoding = self._encoding_of_sources()
        setting = Setting.from_fitted(encoding, self._checked_emission(encoding), "given", conditional=False)
        raw = Sequences([encoding.decode(_source(e.source)) for e in train])
        labels, weights = [e.values for e in train], np.array([e.weight for e in train])
        self.hmm_ = self._unfitted_hmm()
        resumed = self.training.get_params(deep=False)
        self.hmm_.set_params(**{f"training__{name}": value for name, value in resumed.items()})
        fit_labelled(self.hmm_, setting, raw, labels, weights, self.n_states_per_label)
        self.converged_ = self.hmm_.converged_
        scored = [np.nan] * (len(self.hmm_.history_) - 1) + [validation_score(self._sums_of_steps, validation)]
        self.history_ = self.hmm_.history_.assign(validation=scored)

    def _unfitted_hmm(self) -> HMM:
        return HMM(
            self.encoding_.size * self.n_states_per_label,
            length="given",
            max_iter=self.max_iter,
            tol=self.tol,
            pseudocount=self.pseudocount,
            random_state=self.random_state,
            device=self.device,
            dtype=self.dtype,
            verbose=self.verbose,
        )

    def _checked_emission(self, encoding: Encoding) -> Observation:
        emission = self._emission(encoding.reads)
        vectors = encoding.reads == "vectors"
        if emission.emits != ("vectors" if vectors else "symbols"):
            raise ValueError(f"the emission {emission!r} emits {emission.emits} but the sources are {encoding.reads}")
        emission.check(encoding.size)
        if vectors and emission.values(encoding.size) != encoding.values():
            raise ValueError(
                f"the emission {emission!r} does not fit the values of {encoding!r}; leave source_encoding='auto'"
            )
        return emission

    def _encoding_of_sources(self) -> Encoding:
        assert self.source_encoding_ is not None, "a tagger reads its sources"
        return self.source_encoding_

    # -- labels, given a source ----------------------------------------------------------------------------

    def posterior(self, X: Any) -> list[np.ndarray]:
        return [gamma.reshape(len(gamma), self.encoding_.size, -1).sum(-1) for gamma in self._chain().posterior(X)]

    def _most_probable_targets(self, sources: list[np.ndarray | None]) -> list[np.ndarray] | None:
        """Return the most probable labels of each encoded source, ``(T,)`` integers, by Viterbi.

        If a label has several states, they are the labels of the most probable path of states.
        """
        paths = self._chain().decode([self._encoding_of_sources().decode(_source(x)) for x in sources])
        return [path // self.n_states_per_label for path in paths]

    def _steps(self, examples: list[Example]) -> list[np.ndarray]:
        p, device = self._parameters(), self._device()
        log_b, messages = self._messages([_source(e.source) for e in examples])
        labels = (torch.as_tensor(e.values, device=device) for e in examples)
        allowed = [states_of(each, self.n_states_per_label, self.hmm_.n_states) for each in labels]
        return [steps.cpu().numpy() for steps in log_steps(p.initial, p.transition, log_b, messages, allowed)]

    def _messages(self, sources: list[np.ndarray]) -> tuple[list[Tensor], list[Tensor]]:
        """Return log p(x_t | z_t) and the backward messages of each encoded source, both ``(T, K S)``.

        The messages are log p(x_t .. x_T | z_t) in nats, up to a constant at each step; z_t is one of K S hidden
        states.

        Raises:
            ValueError: a source has probability zero; the message says which.
        """
        hmm, parameters = self.hmm_, self._parameters()
        emission = emission_of(hmm.observation_, hmm.encoding_.size)
        corpus = corpus_of(
            [Example(x) for x in sources], emission, len(parameters.initial), self._device(), DTYPES[self.dtype]
        )
        all_log_b, all_messages = [torch.empty(0)] * len(sources), [torch.empty(0)] * len(sources)
        for batch in corpus.batches:
            densities, _ = emission.evaluate(parameters.table, batch.x, batch.past, corpus.dtype, batch.scratch)
            log_b = batch.segments.split(densities.log().double())
            messages = log_messages(parameters.transition, log_b, parameters.final)
            for i, log_b_of_source, messages_of_source in zip(batch.indices, log_b, messages, strict=True):
                if torch.isneginf(parameters.initial.log() + messages_of_source[0]).all():
                    raise ValueError(
                        f"source {i} has probability zero whatever its labels, so they have no probability given it; "
                        "keep emissions and transitions from being exactly zero by the pseudocount of the tagger "
                        "and of its emission"
                    )
                all_log_b[i] = log_b_of_source
                all_messages[i] = messages_of_source
        return all_log_b, all_messages

    def _chain(self) -> HMM:
        """Return a copy of the HMM of the sources with the device, dtype and random state of this model."""
        self._setting()
        return copy.copy(self.hmm_).set_params(device=self.device, dtype=self.dtype, random_state=self.random_state)

    # -- one step at a time --------------------------------------------------------------------------------

    @checked
    def cursor(self, n_steps: int | None = None) -> TaggerCursor:
        self._setting()
        return TaggerCursor(self._parameters(), self._messages, self.observation_, self.n_states_per_label)

    def _parameters(self) -> Parameters:
        return self.hmm_.parameters_.to(self._device())

    # -- keeping -------------------------------------------------------------------------------------------

    def _state(self) -> dict[str, Any]:
        return self.hmm_._state()

    def _restore(self, state: dict[str, Any]) -> None:
        encoding = self._encoding_of_sources()
        self.hmm_ = self._unfitted_hmm()
        apply_setting(
            self.hmm_, Setting.from_fitted(encoding, self._emission(encoding.reads), "given", conditional=False)
        )
        self.hmm_._restore(state)
        self.hmm_.history_, self.hmm_.converged_, self.hmm_.fit_seconds_ = self.history_, self.converged_, 0.0


def _source(encoded: np.ndarray | None) -> np.ndarray:
    assert encoded is not None, "a tagger reads its sources"
    return encoded


def _check_not_over(state: TaggerState) -> None:
    if state.is_over:
        raise past_the_source(state.messages.shape[1])


# -- supervised initialisation -------------------------------------------------------------------------------


def fit_labelled(
    hmm: HMM, setting: Setting, X: Sequences, labels: Sequence[np.ndarray], weights: np.ndarray, n_each: int
) -> None:
    """Fit an HMM in place to sequences whose label is known at each step, by EM.

    With several states for a label, EM estimates which of them it is. It starts from each run of one label cut into
    equal parts, one for each of its states.

    Args:
        hmm: an HMM with ``n_each`` states for each label, not fitted yet.
        setting: encoding of ``X`` and observation of the HMM's states.
        X: raw sequences.
        labels: labels of each sequence, ``(T,)``.
        weights: weight of each sequence, ``(n,)``.
        n_each: number of states of a label; states i n_each to i n_each + n_each - 1 belong to label i.
    """
    hmm._check_hyperparameters()
    apply_setting(hmm, setting)
    states: list[np.ndarray | None] = [parts_of_runs(each, n_each) for each in labels]
    if n_each > 1:
        options = {"max_iter": hmm.max_iter, "training": hmm.training}
        hmm.set_params(max_iter=0, training__checkpoint=None, training__resume_from=None)
        hmm._fit(setting.examples(Data(X, None, weights, states)), [])
        hmm.set_params(**options, warm_start=True)
        states = [states_of(torch.from_numpy(each), n_each, hmm.n_states).numpy() for each in labels]
    hmm._fit(setting.examples(Data(X, None, weights, states)), [])
    hmm.set_params(warm_start=False, training__checkpoint=None, training__resume_from=None).fit_seconds_ = 0.0


def states_of(labels: Tensor, n_each: int, n_states: int) -> Tensor:
    """Return a mask of the hidden states that belong to each of n labels, ``(n, n_states)`` bool.

    Args:
        labels: labels, ``(n,)`` integers; label i has the ``n_each`` states from ``i n_each`` on.
        n_each: number of states of a label.
        n_states: number of states of all labels.
    """
    return torch.arange(n_states, device=labels.device) // n_each == labels[:, None]


def parts_of_runs(labels: np.ndarray, n_parts: int) -> np.ndarray:
    """Return a state for each of T steps, which cut each run of one label into equal parts, ``(T,)`` integers.

    Args:
        labels: label of each step, ``(T,)`` integers.
        n_parts: number of parts of a run; those of a run of label i are ``i n_parts`` to ``i n_parts + n_parts - 1``.

    >>> parts_of_runs(np.array([0, 0, 0, 0, 2, 0]), 2).tolist()
    [0, 0, 1, 1, 4, 0]
    """
    starts = np.flatnonzero(np.diff(labels, prepend=labels[0] - 1))
    lengths = np.diff(starts, append=len(labels))
    time = np.arange(len(labels)) - np.repeat(starts, lengths)
    parts: np.ndarray = labels * n_parts + time * n_parts // np.repeat(lengths, lengths)
    return parts
