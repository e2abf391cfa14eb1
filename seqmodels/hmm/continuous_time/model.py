"""``ContinuousTimeHMM``: a hidden Markov jump process, observed at any times, as a ``SequenceModel``."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
import torch
from torch import Tensor

from seqmodels.common.array_checks import numbers_of
from seqmodels.common.distributed import propagate_errors
from seqmodels.common.parameters import checked, made_with
from seqmodels.encodings import Encoding
from seqmodels.encodings.defaults import may_have_unseen_symbols
from seqmodels.encodings.examples import Example, without_past
from seqmodels.encodings.inputs import TIME, InputScaling
from seqmodels.encodings.precision import DTYPES, in_float64
from seqmodels.encodings.raw_data import Data
from seqmodels.encodings.setting import Setting
from seqmodels.generation import CursorState
from seqmodels.hmm.continuous_time.cursor import ContinuousTimeCursor, TimedState
from seqmodels.hmm.continuous_time.expectations import e_step
from seqmodels.hmm.continuous_time.rates import RateObjective, generator_of, with_generator
from seqmodels.hmm.corpus import Corpus, check_states, corpus_of, raw_size, validation_score
from seqmodels.hmm.emissions import Emission, emission_of
from seqmodels.hmm.from_parameters import chain_parameters, emission_table
from seqmodels.hmm.hidden_states import HiddenStateModel
from seqmodels.hmm.learning.chain_arguments import ChainTraining
from seqmodels.hmm.learning.em import FitResult, MAPObjective, StopRule, baum_welch
from seqmodels.hmm.learning.first_state import STARTS, Start, check_initial
from seqmodels.hmm.learning.initialise import starts
from seqmodels.hmm.learning.options import (
    ChainOptions,
    StartChoice,
    StartData,
    check_numbers,
    check_observation,
    check_table_size,
)
from seqmodels.hmm.learning.restarts import (
    best_of,
    n_starts,
    starts_arrays,
    starts_from_arrays,
    starts_range,
    starts_table,
    warn_of_disagreement,
    warn_of_floor,
)
from seqmodels.hmm.parameters import Parameters, check_arrays
from seqmodels.hmm.scoring import score_steps
from seqmodels.hmm.state_queries import (
    StateAlgorithm,
    batch_beliefs,
    batch_draws,
    batch_log_prob_of_paths,
    batch_paths,
    batch_posterior,
    checked_paths,
    log_dets,
    need_float64,
    permutation_of_states,
    reordered,
    reordered_observation,
    run_on_corpus,
    stationary,
)
from seqmodels.hmm.topology import Arcs, Topology, as_topology
from seqmodels.inference.chains.continuous_time import transition_probabilities
from seqmodels.model.fitting import apply_setting, checked_data, fit_model, learn_setting, resolved_choices
from seqmodels.model.largest_size import largest_size
from seqmodels.observations import Categorical, GaussianMixture, Observation, PseudoFrames
from seqmodels.sequences import Kind
from seqmodels.sequences.times import DateUnit
from seqmodels.training import Checkpoints, checkpoints_of_fit

PSEUDO_FRAMES = 10.0
BACKGROUND = 0.01
ROWS_SUM_TO_ZERO = 1e-6  # of the largest rate


@dataclass(eq=False, repr=False)
class ContinuousTimeHMM(HiddenStateModel):
    """``p(x | times) = Σ_z π(z_1) b_{z_1}(x_1) Π_n [exp(Q (t_n - t_n-1))]_{z_n-1, z_n} b_{z_n}(x_n)``, fitted by EM:
    the hidden state is a Markov jump process with rates Q, which goes on between observations at any times (Liu et al.
    2015, *Efficient learning of continuous-time hidden Markov models for disease progression*, NeurIPS 28).

    It reads the ``times`` of ``Sequences``, numbers or dates; without times steps are at 0, 1, 2, ..., and the model is
    an ``HMM`` with ``transition = exp(Q)``. Times are given, as inputs are: scores are densities of the observations
    given when they are made, and stand in one table with those of models that do not look at times. Two steps may have
    one time: they are then of one state.

    Args:
        n_states: K.
        date_unit: what dates and durations are counted in, and so the unit of rates: ``"s"``, ``"min"``, ``"h"``,
            ``"D"``, ``"W"`` or ``"Y"`` (of 365.25 days). Times that are numbers are taken as they are.
        max_iter: most EM steps a start.
        tol: EM stops when a step improves the objective by less, in nats per unit; 0 never stops early.
        n_init: starts; the best objective wins. ``"auto"``: as of ``HMM``, up to 8.
        max_seconds: a cap on time, over all starts.
        topology: which state may jump to which, as of ``HMM``; the rates of what is ruled out stay exactly zero. What
            it says of a state after itself is passed over.
        start: the distribution of the first state: ``"free"``: learned; ``"stationary"``: that of the process, of which
            every state leads to every other; ``"uniform"``. ``"auto"``: as of ``HMM``: stationary of fewer than 5
            sequences, else free. ``start_`` says which.
        training: a ``ChainTraining``, of which ``tied``, ``frozen`` (whose ``transition`` is the rates) and checkpoints
            may be set.

    The E-step finds the expected jumps and the expected time in each state in all paths between observations, exactly
    (Hobolth and Jensen 2011); gaps of one length are computed once. States may be observed exactly or with errors, as
    in panel data (Jackson 2011, *Multi-state models for panel data*): then the observation is ``Categorical``, and
    ``training=ChainTraining(frozen=["emission"])`` with ``warm_start`` after ``from_parameters`` keeps the
    probabilities of errors. That an observation is made at the very time of a jump (a death) is not known to the model.

    ``observation`` is any that an ``HMM`` has, and ``"auto"`` as there. The recursions are float64 whatever ``dtype``,
    which is that of the densities. Times say how long a sequence is, so that its end is no event: ``length`` is
    ``"given"``. ``sample``, ``predict_next`` and ``forecast`` take ``times``, ``stream().update`` takes a ``time``. The
    other arguments are described at ``SequenceModel``; ``validation`` is scored once, at the
    end.

    Attributes, raw units: ``initial_ (K,)``, ``generator_ (K, K)``, Q, whose rows sum to zero, ``rates_ (K, K)`` off
    its diagonal, ``mean_holding_times_ (K,)``, ``transition_ (K, K)`` over one unit of time, ``stationary_ (K,)``, and
    those of the observation, as of ``HMM``. ``starts_``: a row for each start.

    >>> from seqmodels import Sequences
    >>> times = np.cumsum([0.1, 3.0, 0.2, 0.1, 5.0, 0.3, 0.2, 4.0, 0.1])
    >>> x = Sequences([np.array([0, 1, 1, 1, 0, 0, 0, 1, 1])], times=[times])
    >>> chain = {"generator": [[-0.2, 0.2], [0.3, -0.3]], "emission": [[0.9, 0.1], [0.2, 0.8]]}
    >>> model = ContinuousTimeHMM.from_parameters(**chain)
    >>> model.decode(x)[0].tolist()
    [0, 1, 1, 1, 0, 0, 0, 1, 1]
    >>> model.mean_holding_times_.round(2), model.transition_over(1.5).round(2)[0]
    (array([5.  , 3.33]), array([0.79, 0.21]))
    """

    n_states: int = 4
    date_unit: DateUnit = "D"
    max_iter: int = 200
    tol: float = 1e-5
    n_init: int | Literal["auto"] = "auto"
    max_seconds: float | None = None
    _: KW_ONLY
    dtype: str = "float64"
    topology: Any = "ergodic"
    start: StartChoice = "auto"
    training: ChainTraining = field(default_factory=ChainTraining)

    _bounded_by_data: ClassVar[Mapping[str, str]] = {"n_states": "steps"}
    _uses_validation: ClassVar[bool] = False
    _size: ClassVar[str | None] = "n_states"
    _sums_out_missing: ClassVar[bool] = True
    _fits_in_parallel: ClassVar[bool] = True

    # -- SequenceModel -------------------------------------------------------------------------------------

    @property
    def context_(self) -> int | None:
        return None

    @property
    def n_parameters_(self) -> int:
        return _chain_options(self, len(self.initial_)).n_parameters("given", _emission(self), self.start_)

    @property
    def _reads_inputs(self) -> bool:
        return True

    @property
    def _times_in(self) -> DateUnit | None:
        return self.date_unit

    def _inputs_among(self, names: tuple[str, ...]) -> tuple[str, ...]:
        return (TIME,)

    def _default_observation(self, kind: Kind) -> Observation:
        if kind == "vectors":
            return GaussianMixture(1, prior=PseudoFrames(PSEUDO_FRAMES), background=BACKGROUND)
        # Training may have no byte, or no symbol of the class of unknown ones, that comes later.
        is_open = kind == "text" or may_have_unseen_symbols(self.encoding)
        return Categorical(pseudocount=0.01 if is_open else 0.0)

    def _limits(self, seconds: float | None, steps: int | None) -> dict[str, Any]:
        if steps is not None:
            return {"max_iter": steps, **({} if seconds is None else {"max_seconds": seconds})}
        return {} if seconds is None else {"max_seconds": seconds}

    def _size_within(self, n_parameters: int, data: Data) -> int | None:
        like = self.clone()
        apply_setting(like, learn_setting(like, data))
        start_data = StartData(len(data.scored), "given", data.states is not None)

        def count(n_states: int) -> int:
            options = _chain_options(like, n_states)
            return options.n_parameters("given", _emission(like), options.resolved_start(like.start, "em", start_data))

        return largest_size(count, n_parameters, 1, "n_states")

    def _check_hyperparameters(self) -> None:
        check_numbers(self.n_states, self.n_init, self.max_iter, self.tol)
        self.training.check()
        self.training.check_unused(self, "batches", "step_decay", "lr", "prior")
        if self.date_unit not in get_args(DateUnit):
            raise ValueError(f"date_unit is {self.date_unit!r}; pass one of {', '.join(map(repr, get_args(DateUnit)))}")
        if self.max_seconds is not None and not self.max_seconds > 0:
            raise ValueError(f"max_seconds is {self.max_seconds}; pass a number above zero, or None for no limit")
        options = _chain_options(self, self.n_states)
        options.check_first_state(self.start, "em", "given")
        if _is_warm_start(self):
            options.check_start(self.parameters_, self.length)
            fitted = {"start": self.start_, "date_unit": self._input_scaling and self._input_scaling.date_unit}
            for name, value in fitted.items():
                if getattr(self, name) not in ("auto", value):
                    raise ValueError(
                        f"{name}={getattr(self, name)!r} differs from what was fitted, {value!r}, so warm_start cannot "
                        "continue; set it back, or warm_start=False"
                    )
            if isinstance(self.observation, Observation):
                check_observation(self.observation, self.observation_, self.encoding_.size)

    @checked
    def fit(
        self, X: Any, y: Any = None, *, validation: Any = "auto", sample_weight: Any = None, states: Any = None
    ) -> Self:
        """As ``SequenceModel.fit``; ``states`` as of ``HMM.fit``: known states, -1 where unknown."""
        with propagate_errors():
            fit_model(self, Data.of(X, y, sample_weight, states), validation)
        return self

    def _fit(self, train: list[Example], validation: list[Example]) -> None:
        check_states(train, self.n_states)
        check_table_size(self.n_states, self.observation_.n_output_parameters(self.encoding_.size))
        checkpoints = checkpoints_of_fit(self, resolved_choices(self), train, validation)
        emission, options = _emission(self), _chain_options(self, self.n_states)
        options.check_together("em", self.observation_)
        if not _is_warm_start(self):
            start_data = StartData(len(train), "given", any(e.states is not None for e in train))
            self.start_: Start = options.resolved_start(self.start, "em", start_data)
        n_units, log_det = raw_size(train, self.encoding_)
        of_chain = MAPObjective(emission, options.pseudocount, options.constraints, n_units, log_det, self.start_)
        corpus = _corpus(self, emission, train)
        n_init = 1 if _is_warm_start(self) else n_starts(self.n_init, "em", options.topology, corpus)
        groups: list[Sequence[Parameters]] = []  # where a checkpoint is resumed, it has those that are left
        if checkpoints.state is None:
            first = _starts(self, of_chain, options, corpus, n_init)
            if _is_warm_start(self):
                first = iter([self.parameters_.to(self._device())])
            groups = [[start.of_first_process()] for start in first]
        stop = StopRule(self.max_iter, self.tol, self.max_seconds and self.max_seconds / n_init)
        best = best_of(
            groups,
            partial(_run, objective=RateObjective(of_chain), emission=emission, corpus=corpus, stop=stop),
            max_iter=self.max_iter,
            verbose=self.verbose,
            checkpoints=checkpoints,
            device=corpus.device,
        )
        self.parameters_: Parameters = best.parameters.to(torch.device("cpu"))
        self.converged_ = best.converged
        self.starts_ = starts_table(best.starts, best.start)
        self.history_ = best.history_with(
            validation=validation_score(self._sums_of_steps, validation), starts_range=starts_range(best.starts)
        )
        warn_of_floor(best, self.observation_)
        warn_of_disagreement(self.starts_, best, n_units)

    # -- many sequences at once ----------------------------------------------------------------------------

    def _steps(self, examples: list[Example]) -> list[np.ndarray]:
        parameters, emission = self.parameters_.to(self._device()), _emission(self)
        corpus = _corpus(self, emission, [replace(e, weight=1.0) for e in examples])
        return score_steps(parameters, emission, corpus, [None] * len(examples))

    def _with_floor(self, factor: float) -> Self:
        other = super()._with_floor(factor)
        table = self.observation_.on_floor(self.parameters_.table, self.encoding_.size, factor)
        other.parameters_ = replace(self.parameters_, table=table)
        return other

    # -- one step at a time --------------------------------------------------------------------------------

    @checked
    def cursor(self, n_steps: int | None = None) -> ContinuousTimeCursor:
        setting, parameters = self._setting(), self.parameters_.to(self._device())
        return ContinuousTimeCursor(parameters, setting.observation, setting.encoding.size, DTYPES[self.dtype_])

    def _filtered(self, state: CursorState) -> np.ndarray:
        assert isinstance(state, TimedState), "of this model's cursor"
        if state.log_alpha is None:
            raise ValueError("the stream has read no step yet, so there is no state to filter; call update first")
        return state.log_alpha[0].exp().cpu().numpy()

    # -- states of given sequences -------------------------------------------------------------------------

    def decode(self, X: Any, y: Any = None) -> list[np.ndarray]:
        """The most probable states of each sequence at the times of its steps, ``(T,)`` (Viterbi); there is no ``y``.

        Of a sequence with a past: the last T states of the path of both; so for the other questions about states.

        Raises:
            ValueError: a sequence that no path can explain, named.
        """
        return _run_on_each(self, X, y, batch_paths)

    def path_log_prob(self, X: Any, paths: Any, y: Any = None) -> np.ndarray:
        """``(n,)`` nats of each sequence together with its states at the times of its steps, as of ``HMM``."""
        data = checked_data(self, X, y)
        data.refuse_past("path_log_prob")
        examples = self._setting().examples(data)
        states = checked_paths(paths, [len(example.values) for example in examples], len(self.initial_))
        encoded = np.array(_run_on_each(self, X, y, partial(batch_log_prob_of_paths, paths=states)))
        return np.asarray(encoded + log_dets(self._setting(), data, examples))

    def _smoothed_states(self, X: Any, y: Any) -> list[np.ndarray]:
        return _run_on_each(self, X, y, batch_posterior)

    def _filtered_states(self, X: Any, y: Any) -> list[np.ndarray]:
        return _run_on_each(self, X, y, batch_beliefs)

    def _shares_and_durations(self) -> tuple[np.ndarray, np.ndarray]:
        return self.stationary_, self.mean_holding_times_

    def _emissions_by_state(self, names: Sequence[str]) -> Mapping[str, np.ndarray]:
        return _emission(self).by_state(self.parameters_.table, *self.encoding_.affine(), names)

    def _drawn_states(self, X: Any, y: Any, n: int, seed: int) -> list[np.ndarray]:
        generator = torch.Generator(self._device()).manual_seed(seed)
        return _run_on_each(self, X, y, partial(batch_draws, n=n, generator=generator))

    # -- the chain -----------------------------------------------------------------------------------------

    @checked
    def reorder(self, order: Sequence[int] | np.ndarray | Literal["mean", "stationary"]) -> Self:
        """A copy whose state i is this model's state ``order[i]``, as of ``HMM``: the same probabilities."""
        k = len(self.initial_)
        permutation = permutation_of_states(order, lambda: self.stationary_, _raw_parameters(self))
        if permutation.shape != (k,) or not np.array_equal(np.sort(permutation), np.arange(k)):
            raise ValueError(f"order is {order!r}; pass each of the states 0 to {k - 1} once")
        choices = {"pseudocount": 0.0, **self.get_params(deep=False)}
        moved = reordered(choices, permutation)
        del moved["pseudocount"]
        other = copy.copy(self).set_params(**moved)
        other.observation_ = reordered_observation(self.observation_, permutation)
        other.parameters_ = self.parameters_.take(torch.as_tensor(permutation.astype(np.int64)))
        return other

    def transition_over(self, gap: float | np.ndarray) -> np.ndarray:
        """``(K, K)``, or of several gaps ``(..., K, K)``: the probability of state j a ``gap`` of time after state i.

        Raises:
            ValueError: gaps below zero or not finite.
        """
        gaps = numbers_of("gap", gap)
        if not (np.isfinite(gaps).all() and (gaps >= 0).all()):
            raise ValueError(f"gap has values from {gaps.min()} to {gaps.max()}; pass finite numbers, 0 or more")
        p = transition_probabilities(self._generator, torch.as_tensor(gaps).reshape(-1))
        return p.numpy().reshape(*gaps.shape, *self._generator.shape)

    # -- parameters ----------------------------------------------------------------------------------------

    @property
    def initial_(self) -> np.ndarray:
        """``(K,)`` probability of each state at the first step."""
        return self.parameters_.initial.numpy()

    @property
    def _generator(self) -> Tensor:
        generator = self.parameters_.generator
        assert generator is not None
        return generator

    @property
    def generator_(self) -> np.ndarray:
        """``(K, K)`` Q: rates from state i to j, an expected number of jumps per unit of time; rows sum to zero."""
        return self._generator.numpy()

    @property
    def rates_(self) -> np.ndarray:
        """``(K, K)`` rates of jumps from state i to j, zeros on the diagonal."""
        return np.asarray(self.generator_ - np.diag(self.generator_.diagonal()))

    @property
    def mean_holding_times_(self) -> np.ndarray:
        """``(K,)`` mean time that a visit of each state lasts, infinite where it is never left."""
        with np.errstate(divide="ignore"):
            return np.asarray(1 / -(self.generator_.diagonal() - 0.0))

    @property
    def transition_(self) -> np.ndarray:
        """``(K, K)`` probability of state j one unit of time after state i."""
        return self.parameters_.transition.numpy()

    @property
    def stationary_(self) -> np.ndarray:
        """``(K,)`` share of its time that a long path from ``initial_`` spends in each state, as of ``HMM``."""
        leaving = -self.generator_.diagonal()
        uniformised = np.eye(len(leaving)) + self.generator_ / (2 * leaving.max() or 1.0)
        return stationary(self.initial_, uniformised, None)

    def _named_parameters(self) -> Mapping[str, Any]:
        return _raw_parameters(self) if "parameters_" in vars(self) else {}

    @classmethod
    @checked
    def from_parameters(
        cls,
        generator: Any,
        initial: Any = None,
        *,
        weights: Any = None,
        means: Any = None,
        covariances: Any = None,
        covariance_type: Literal["diag", "spherical", "full", "tied"] = "diag",
        emission: Any = None,
        probabilities: Any = None,
        rates: Any = None,
        encoding: Encoding | None = None,
        observation: Observation | None = None,
        **options: Any,
    ) -> Self:
        """A fitted model from its parameters, in raw units.

        Args:
            generator: ``(K, K)`` rates per unit of time; rows sum to zero.
            initial: ``(K,)`` probabilities of the first state; None: the stationary distribution, or what ``start``
                says (of ``"free"`` the uniform one).
            weights, means, covariances, covariance_type, emission, probabilities, rates, encoding, observation: as of
                ``HMM.from_parameters``; ``rates`` are those of counts.
            options: other arguments of ``ContinuousTimeHMM``.

        Raises:
            ValueError: rows that do not sum to zero, rates below zero; what ``HMM.from_parameters`` refuses.
        """
        import pandas as pd

        q = _checked_generator(generator)
        k = len(q)
        encoding, observation, table = emission_table(
            k,
            emission=emission,
            probabilities=probabilities,
            rates=rates,
            mixture=(weights, means, covariances, covariance_type),
            encoding=encoding,
            observation=observation,
        )
        if options.get("start", "auto") == "auto":
            options["start"] = "free" if initial is not None else "stationary"
        model = made_with(cls, options, n_states=k, observation=observation, length="given")
        model._check_hyperparameters()
        setting = Setting.from_fitted(encoding, observation.clone(), "given", conditional=False)
        apply_setting(model, setting.with_inputs(InputScaling.of_times(model.date_unit)))
        model.start_ = "free" if model.start == "auto" else model.start
        topology = _chain_options(model, k).topology
        mask = topology.initial_mask(k).numpy()
        first = mask / mask.sum() if initial is None else initial
        parameters = chain_parameters(first, np.eye(k), None, table)
        parameters = with_generator(parameters, q, model.start_ if initial is None else "free")
        if not bool(torch.isfinite(parameters.initial).all()):
            raise ValueError(
                "start='stationary' needs a process in which every state leads to every other, which these rates do "
                "not; pass initial"
            )
        check_initial(parameters, model.start_, topology)
        model.parameters_ = parameters
        _chain_options(model, k).check_start(parameters, "given")
        model.history_, model.converged_, model.fit_seconds_ = pd.DataFrame(), True, 0.0
        model.starts_ = starts_table([], None)
        return model

    def _state(self) -> dict[str, Any]:
        return {**self.parameters_.arrays(), "starts": starts_arrays(self.starts_), "start": self.start_}

    def _restore(self, state: dict[str, Any]) -> None:
        self.starts_ = starts_from_arrays(state.get("starts"))
        self.start_ = state.get("start", "free")
        if self.start_ not in STARTS:
            raise ValueError(f"start is {self.start_!r} in the file; it should be one of {', '.join(STARTS)}")
        state = {name: array for name, array in state.items() if name not in ("starts", "start")}
        check_arrays(state, self.n_states, has_end=False, slopes=["generator"])
        parameters = Parameters.from_arrays(state)
        generator = _checked_generator(state["generator"])
        if not torch.allclose(parameters.transition, with_generator(parameters, generator, "free").transition):
            raise ValueError("the transitions in the file are not those of its generator")
        self.observation_.check(self.encoding_.size)
        self.observation_.check_table(parameters.table, self.encoding_.size)
        if self._input_scaling is None or self._input_scaling.date_unit != self.date_unit:
            raise ValueError("the file does not say that the model reads times, in its date_unit")
        self.parameters_ = parameters


# -- what a model's hyperparameters come to ----------------------------------------------------------------------------


def _chain_options(model: ContinuousTimeHMM, n_states: int) -> ChainOptions:
    choice = model.topology
    if not isinstance(choice, str | Topology) and np.shape(choice) == (n_states, n_states):
        choice = np.where(np.eye(n_states, dtype=bool), True, choice)  # of a state that is never left, too
    topology = _staying(as_topology(choice, n_states), n_states)
    return ChainOptions.from_arguments(n_states, topology, model.training.tied, model.training.frozen, 0.0, "given")


def _staying(topology: Topology, n_states: int) -> Topology:
    """The same, but that any state may stay, which in continuous time it always may."""
    mask = topology.transition_mask(n_states)
    if bool(mask.diagonal().all()):
        return topology
    stays = (mask | torch.eye(n_states, dtype=torch.bool)).tolist()
    return Arcs(stays, topology.initial_mask(n_states).tolist(), ordered=topology.is_ordered)


def _is_warm_start(model: ContinuousTimeHMM) -> bool:
    return model.warm_start and "parameters_" in vars(model)


def _emission(model: ContinuousTimeHMM) -> Emission:
    return emission_of(model.observation_, model.encoding_.size)


def _raw_parameters(model: ContinuousTimeHMM) -> Any:
    """Those of the observation, in raw units, by attribute name."""
    return _emission(model).raw_parameters(model.parameters_.table, *model.encoding_.affine())


def _checked_generator(generator: Any) -> Tensor:
    """``(K, K)``; raises ``ValueError`` for what is no matrix of rates."""
    q = numbers_of("generator", generator, "(K, K)")
    if q.ndim != 2 or q.shape[0] != q.shape[1] or not len(q):
        raise ValueError(f"generator has shape {q.shape}; pass (K, K): rates from state i to state j")
    off = q - np.diag(q.diagonal())
    if not (np.isfinite(q).all() and (off >= 0).all()):
        raise ValueError(
            f"generator must be finite, with rates of 0 or more off its diagonal; the least is {off.min()}"
        )
    if np.abs(q.sum(1)).max() > ROWS_SUM_TO_ZERO * max(off.sum(1).max(), 1e-300):
        raise ValueError(
            f"rows of the generator must sum to zero, the diagonal being what is left; they sum to {q.sum(1)}"
        )
    return generator_of(torch.as_tensor(off))


def _corpus(model: ContinuousTimeHMM, emission: Emission, examples: list[Example]) -> Corpus:
    """With the time since the step before, of each step, in the place of its time."""
    timed = [replace(e, inputs=_gaps(e)) for e in examples]
    return corpus_of(timed, emission, model.n_states, model._device(), DTYPES[model.dtype_], has_one_matrix=False)


def _gaps(example: Example) -> np.ndarray:
    """``(T, 1)`` time since the step before; of the first zero, and one where no times are known."""
    if example.inputs is None:
        return np.minimum(np.arange(len(example.values), dtype=np.float64), 1.0)[:, None]
    gaps: np.ndarray = np.diff(example.inputs, axis=0, prepend=example.inputs[:1])
    return gaps


# -- EM ----------------------------------------------------------------------------------------------------------------


def _starts(
    model: ContinuousTimeHMM, objective: MAPObjective, options: ChainOptions, corpus: Corpus, n_init: int
) -> Iterator[Parameters]:
    """Guesses as of an HMM; rates are the transitions between different states over the mean gap."""
    guesses = starts(
        objective.emission,
        corpus.batches,
        corpus.n_states,
        has_final=False,
        generators=[torch.Generator().manual_seed(model.random_state + i) for i in range(n_init)],
        topology=options.topology,
        tying=options.constraints.tying,
    )
    gaps = np.concatenate([each[1:, 0] for each in corpus.inputs or []] or [np.empty(0)])
    total = float(gaps.sum())
    n_gaps = int((gaps > 0).sum())
    mean_gap = total / n_gaps if n_gaps else 1.0
    mask = options.topology.initial_mask(corpus.n_states)
    for guess in guesses:
        if objective.start == "uniform":
            even = mask.to(guess.initial)
            guess = replace(guess, initial=even / even.sum())
        yield with_generator(guess, generator_of(guess.transition / mean_gap), objective.start)


def _run(
    group: Sequence[Parameters],
    *,
    objective: RateObjective,
    emission: Emission,
    corpus: Corpus,
    stop: StopRule,
    callback: Callable[..., None],
    checkpoints: Checkpoints,
) -> list[FitResult]:
    e_step_of_one = partial(e_step, emission=emission, batches=corpus.own_batches(), dtype=corpus.dtype)
    return baum_welch(
        group,
        objective,
        [],
        corpus.dtype,
        stop,
        callback=callback,
        checkpoints=checkpoints,
        e_step_of_one=e_step_of_one,
    )


# -- the states of sequences -------------------------------------------------------------------------------------------


def _run_on_each(model: ContinuousTimeHMM, X: Any, y: Any, algorithm: StateAlgorithm[Tensor]) -> list[np.ndarray]:
    """What an algorithm over the states finds for each sequence, in float64 where float32 cannot hold the data."""
    examples = [replace(e, weight=1.0) for e in model._setting().examples(checked_data(model, X, y))]
    precise = in_float64(model) if need_float64(examples) else model
    parameters, emission = model.parameters_.to(model._device()), _emission(model)
    results = run_on_corpus(parameters, emission, _corpus(precise, emission, examples), algorithm)
    return without_past(examples, [result.cpu().numpy() for result in results])
