"""``HMM``: a hidden Markov chain and an observation as a ``SequenceModel``."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
import torch

from seqmodels.agreement import check_processes_agree
from seqmodels.distributed import together
from seqmodels.encodings import Encoding
from seqmodels.generation import CursorState, MergedStates
from seqmodels.hmm.baum_welch import Memory, Schedule
from seqmodels.hmm.blocks import Block
from seqmodels.hmm.constraints import Frozen
from seqmodels.hmm.cursor import HMMCursor, merged_states
from seqmodels.hmm.emissions import Emission, emission_of
from seqmodels.hmm.fitting import Fitting, check_states, corpus_of, raw_size
from seqmodels.hmm.given import given_chain, given_table
from seqmodels.hmm.learning import Algorithm, Learning, check_algorithm, check_numbers, check_observation
from seqmodels.hmm.parameters import Parameters, check_arrays
from seqmodels.hmm.pieces import Corpus
from seqmodels.hmm.priors import Pseudocounts
from seqmodels.hmm.queries import Queries
from seqmodels.hmm.restarts import warn_of_floor
from seqmodels.hmm.scoring import score_steps
from seqmodels.measure import Length
from seqmodels.model import DTYPES, NotFittedError
from seqmodels.observations import Categorical, GaussianMixture, Observation
from seqmodels.observations.gaussian import CovarianceType
from seqmodels.parameters import undone_on_failure
from seqmodels.preparation import Data, Example, Setting
from seqmodels.resources import refuse_beyond_memory
from seqmodels.sequences import Kind
from seqmodels.training import check_checkpoint_arguments, checkpoints_of_fit


@dataclass(eq=False, repr=False)
class HMM(Queries):
    """``p(x) = Σ_z π(z_1) b_{z_1}(x_1) Π_t a(z_{t-1}, z_t) b_{z_t}(x_t)``, fitted by EM (Rabiner 1989).

    Args:
        n_states: K.
        max_iter: most EM steps a start.
        tol: EM stops when a step improves the objective by less, in nats per unit; 0 never stops early.
        n_init: starts; the best objective wins, a start that ends on a floor loses to one that does not. On a CPU EM from
            several runs side by side where data are small; ``seconds`` in ``history_`` are then those of all.
        max_seconds: a cap on time, over all starts.
        pseudocount: added to every expected count of starts, transitions and ends in the M-step, or a ``Pseudocounts``
            (asymmetric, sticky); ``"auto"``: 0.01 under ``length="stop"``, where few ends are seen, otherwise 0.
        topology: which transitions exist: ``"ergodic"``, ``"left-to-right"``, a ``(K, K)`` mask, or a ``LeftToRight``, ``Banded``,
            ``Arcs`` or ``Series``. What is ruled out stays exactly zero.
        tied: a group number for each state, ``[0, 0, 1, ...]``: states of a group share one emission.
        frozen: what EM leaves as it is: names among ``initial``, ``transition`` (ends too), ``emission``; or a ``Frozen``.
        algorithm: ``"em"``, or ``"stepwise"``: an M-step after each of ``batches`` mini-batches an epoch (``max_iter`` counts
            epochs), for much data; long sequences are cut, with a warm-up, unless the topology never forgets;
            or ``"gradient"``: AdamW on the same objective, whose gradient is the E-step; ``max_iter`` is then passes over the
            data, all of which are taken, and ``tol`` has no say.
        step_decay: of stepwise EM and ``partial_fit``, from 0.5 (the newest batch counts most) to 1.
        lr: peak learning rate of ``algorithm="gradient"``.

    The other arguments are those of ``training.Resumable`` and ``SequenceModel``. EM needs no held-out data: ``validation="auto"`` holds out nothing, and
    what is passed is scored once, at the end. With targets EM fits p(x, y), so the figures of ``history_`` are of x and y
    together. States that end on the floor of a variance are warned of. Parameters are kept in float64.

    Attributes, raw units: ``initial_ (K,)``, ``transition_ (K, K)``, ``final_ (K,)`` (with ``length="stop"``:
    ``transition_.sum(1) + final_ == 1``) and those of the observation: ``weights_ (K, M)``, ``means_ (K, M, D)``,
    ``covariances_ (K, M, D)``, ``(K, M, D, D)`` (full) or ``(D, D)`` (tied); ``emission_ (K, V)``; ``coefficients_ (K, D, pD)``, ``intercepts_``, ``covariances_``.

    >>> x = [np.array([0, 1, 0, 1, 0, 1]), np.array([1, 0, 1, 0])]
    >>> model = HMM(2, length="given").fit(x)
    >>> round(model.score(x), 3)
    -0.139
    """

    n_states: int = 8
    max_iter: int = 100
    tol: float = 1e-4
    n_init: int = 1
    max_seconds: float | None = None
    pseudocount: float | str | Pseudocounts = "auto"
    topology: Any = "ergodic"
    tied: Sequence[int] | None = None
    frozen: Sequence[str] | Frozen | None = None
    algorithm: Algorithm = "em"
    batches: int = 6
    step_decay: float = 0.7
    lr: float = 0.05
    _: KW_ONLY
    checkpoint: str | None = None
    checkpoint_seconds: float = 300.0
    resume_from: str | None = None

    _uses_validation: ClassVar[bool] = False
    _sums_out_missing: ClassVar[bool] = True
    _reads_from_disk: ClassVar[bool] = True
    _fits_in_parallel: ClassVar[bool] = True

    # -- SequenceModel -------------------------------------------------------------------------------------

    @property
    def context_(self) -> int | None:
        return None

    @property
    def n_parameters_(self) -> int:
        learning = self._learning(len(self.parameters_.initial), self.length_)
        return learning.n_parameters(self.length_, self._emission())

    def _default_observation(self, kind: Kind) -> Observation:
        if kind == "vectors":
            return GaussianMixture(n_components=4, covariance_type="diag")
        return Categorical(pseudocount=0.01 if kind == "text" else 0.0)

    def _check_hyperparameters(self) -> None:
        check_numbers(self.n_states, self.n_init, self.max_iter, self.tol)
        check_algorithm(self.algorithm, self.batches, self.step_decay, self.max_iter, self.lr)
        check_checkpoint_arguments(self)
        learning = self._learning(self.n_states, self.length)
        if self._continues():
            learning.check_start(self.parameters_, self.length)
            if isinstance(self.observation, Observation):
                check_observation(self.observation, self.observation_, self.encoding_.size)

    def _continues(self) -> bool:
        return self.warm_start and "parameters_" in self.__dict__

    def _emission(self) -> Emission:
        return emission_of(self.observation_, self.encoding_.size)

    def _learning(self, n_states: int, length: str) -> Learning:
        return Learning.of(n_states, self.topology, self.tied, self.frozen, self.pseudocount, length)

    def fit(
        self, X: Any, y: Any = None, *, validation: Any = "auto", sample_weight: Any = None, states: Any = None
    ) -> Self:
        """As ``SequenceModel.fit``.

        Args:
            states: integers for each sequence (of ``x``, then ``y``), -1 where unknown, or ``(T, K)`` booleans, which states are
                possible, or None; EM then fits p(x, known states).
        """
        with together():
            return self._fit_to(Data.of(X, y, sample_weight, states), validation)

    def partial_fit(self, X: Any, y: Any = None, *, sample_weight: Any = None, states: Any = None) -> Self:
        """One step of stepwise EM on these sequences, after all that came before (Cappé and Moulines 2009).

        The first call learns the encoding and a start from them; after ``from_parameters`` or ``load`` it is one EM step. It writes no
        checkpoints.
        """
        with together():
            return self._fit_partly(Data.of(X, y, sample_weight, states))

    def _fit_partly(self, data: Data) -> Self:
        self._check_choices()
        self._check_hyperparameters()
        check_processes_agree(self, data)
        began = time.perf_counter()
        with undone_on_failure(self):
            if not self.__sklearn_is_fitted__():
                self._apply_setting(self._learn_setting(data))
                self.history_, self.fit_seconds_ = pd.DataFrame(), 0.0
            self._check_data(data)
            self._one_step(self._setting().examples(data, on_disk=True))
        self.fit_seconds_ += time.perf_counter() - began
        return self

    def _one_step(self, examples: list[Example]) -> None:
        check_states(examples, self.n_states)
        fitting, corpus = self._fitting(examples), self._corpus(examples, self.n_states)
        known: Parameters | None = self.__dict__.get("parameters_")
        first = next(self._starts(fitting, corpus)) if known is None else known.to(self._device())
        first = first.of_first_process()
        after, memory, row = fitting.one_step(first, self.__dict__.get("memory_"), corpus, len(self.history_))
        self._keep(after, memory, converged=False)
        self.history_ = pd.concat([self.history_, pd.DataFrame([row])], ignore_index=True)

    def _fit(self, train: list[Example], validation: list[Example]) -> None:
        check_states(train, self.n_states)
        self._check_table()
        checkpoints = checkpoints_of_fit(self, self._resolved_choices(), train, validation)
        fitting, corpus = self._fitting(train), self._corpus(train, self.n_states)
        generator = torch.Generator().manual_seed(self.random_state)
        starts = self._starts(fitting, corpus) if checkpoints.state is None else iter(())
        best = fitting.run(starts, corpus, generator, verbose=self.verbose, checkpoints=checkpoints)
        self._keep(best.parameters, best.memory, converged=best.converged)
        scored = [np.nan] * (len(best.history) - 1) + [self._validation(validation)]
        self.history_ = best.history.assign(validation=scored)
        warn_of_floor(best, self.observation_)

    def _check_table(self) -> None:
        width = self.observation_.n_output_parameters(self.encoding_.size)
        refuse_beyond_memory(
            f"the emissions of {self.n_states} states, {width} numbers each,",
            24.0 * self.n_states * width,  # a table, its statistics and the table after
            "pass a smaller n_states, or data of fewer symbols or features",
        )

    def _keep(self, parameters: Parameters, memory: Memory | None, *, converged: bool) -> None:
        self.parameters_, self.memory_ = parameters.to(torch.device("cpu")), memory
        self.converged_ = converged

    def _fitting(self, examples: list[Example]) -> Fitting:
        schedule = Schedule(self.max_iter, self.tol, self.max_seconds and self.max_seconds / self.n_init)
        how = (self.algorithm, self.batches, self.step_decay, self.lr, *raw_size(examples, self.encoding_))
        learning = self._learning(self.n_states, self.length_)
        learning.check_together(self.algorithm, self.observation_)
        return Fitting(self._emission(), learning, schedule, *how)

    def _starts(self, fitting: Fitting, corpus: Corpus) -> Iterator[Parameters]:
        if self._continues():
            return iter([self.parameters_.to(self._device())])
        stops = self.length_ == "stop"
        return fitting.starts(corpus, self.n_states, self.n_init, self.random_state, stops=stops)

    def _validation(self, examples: list[Example]) -> float:
        if not examples:
            return np.nan
        total = sum(float(steps.sum()) for steps in self._steps(examples)) + sum(e.log_det for e in examples)
        return total / sum(e.n_units for e in examples)

    # -- many sequences at once ----------------------------------------------------------------------------

    def _corpus(self, examples: list[Example], n_states: int) -> Corpus:
        n_densities, n_past = self._emission().n_densities(n_states), self.observation_.n_past
        return corpus_of(examples, n_past, n_states, n_densities, self._device(), DTYPES[self.dtype])

    def _blocks(self, examples: list[Example], n_states: int) -> list[Block]:
        return self._corpus(examples, n_states).blocks

    def _steps(self, examples: list[Example]) -> list[np.ndarray]:
        parameters = self.parameters_.to(self._device())
        corpus = self._corpus(examples, len(parameters.initial))
        return score_steps(parameters, self._emission(), corpus, [e.source for e in examples])

    def _with_floor(self, factor: float) -> Self:
        other = super()._with_floor(factor)
        table = self.observation_.on_floor(self.parameters_.table, self.encoding_.size, factor)
        other.parameters_ = replace(self.parameters_, table=table)
        return other

    # -- one step at a time --------------------------------------------------------------------------------

    def cursor(self) -> HMMCursor:
        parameters = self._parameters().to(self._device())
        return HMMCursor(parameters, self.observation_, self.encoding_.size, DTYPES[self.dtype])

    def _merge_states(self, log_weights: list[float], states: list[CursorState]) -> MergedStates:
        return merged_states(log_weights, states)

    # -- parameters ----------------------------------------------------------------------------------------

    def _parameters(self) -> Parameters:
        self._setting()
        return self.parameters_

    @property
    def initial_(self) -> np.ndarray:
        """``(K,)`` probability of each state at the first step."""
        return self._parameters().initial.numpy()

    @property
    def transition_(self) -> np.ndarray:
        """``(K, K)`` probability of state j after state i."""
        return self._parameters().transition.numpy()

    @property
    def final_(self) -> np.ndarray:
        """``(K,)`` probability that the sequence ends after a step in each state (zeros where lengths are given)."""
        final = self._parameters().final
        return np.zeros(len(self.initial_)) if final is None else final.numpy()

    def __getattr__(self, name: str) -> Any:
        """The observation's parameters: ``weights_``, ``means_``, ``covariances_``, ``emission_``, ..."""
        if name.endswith("_") and not name.startswith("_"):
            if "parameters_" not in self.__dict__:
                raise NotFittedError(f"this {type(self).__name__} is not fitted, so it has no {name}; call fit first")
            raw = self._emission().raw_parameters(self.parameters_.table, *self.encoding_.affine())
            if name in raw:
                return raw[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @classmethod
    def from_parameters(
        cls,
        initial: Any,
        transition: Any,
        final: Any = None,
        *,
        weights: Any = None,
        means: Any = None,
        covariances: Any = None,
        covariance_type: CovarianceType = "diag",
        emission: Any = None,
        probabilities: Any = None,
        rates: Any = None,
        encoding: Encoding | None = None,
        observation: Observation | None = None,
        **options: Any,
    ) -> Self:
        """A fitted HMM from its parameters, in raw units.

        Args:
            initial: ``(K,)``. transition: ``(K, K)``. final: ``(K,)`` end probabilities; rows of ``transition`` plus ``final`` sum to one.
            weights, means, covariances: ``(K, M)``, ``(K, M, D)``, and ``(K, M, D)`` (diag), ``(K, M, D, D)`` (full), ``(D, D)`` (tied), ``(K, M)``
                or ``(K, M, D)`` (spherical); without ``weights``, M = 1 and the M axis is left out.
            emission: ``(K, V)`` probabilities of symbols, instead of the three above.
            probabilities: ``(K, D)`` of bits (``Bernoulli``). rates: ``(K, D)`` of counts (``Poisson``). Either instead of all above.
            encoding: a fitted one: how symbols are read (``Bytes()`` for text; by default integers as they are), or the units that
                vectors are computed in (by default the model's own mean and deviation).
            observation: for its M-step (``pseudocount``, ``min_covariance``), if ``fit`` is to go on with ``warm_start=True``.
            options: other arguments of ``HMM``.

        Raises:
            ValueError: rows that do not sum to one, negative probabilities, shapes that do not fit, values out of range, a variance below the floor.
        """
        k = len(initial)
        reader, emits, table = given_table(
            k,
            emission=emission,
            probabilities=probabilities,
            rates=rates,
            mixture=(weights, means, covariances, covariance_type),
            encoding=encoding,
            observation=observation,
        )
        parameters = given_chain(initial, transition, final, table)
        length: Length = "given" if final is None else "stop"
        model = cls(k, observation=emits, length=length, **options)
        model._apply_setting(Setting.of(reader, emits.clone(), length, conditional=False))
        model.parameters_ = parameters
        model.history_, model.converged_, model.fit_seconds_ = pd.DataFrame(), True, 0.0
        return model

    def _state(self) -> dict[str, Any]:
        return self.parameters_.arrays()

    def _restore(self, state: dict[str, Any]) -> None:
        check_arrays(state, self.n_states, stops=self.length_ == "stop")
        self.parameters_ = Parameters.of(state)
        self.observation_.check(self.encoding_.size)
        self.observation_.check_table(self.parameters_.table, self.encoding_.size)
