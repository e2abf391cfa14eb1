"""``HSMM``: a hidden semi-Markov chain, whose states have durations of their own, as a ``SequenceModel``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from torch import Tensor

from seqmodels.common.distributed import propagate_errors
from seqmodels.common.main_memory import refuse_beyond_memory
from seqmodels.common.parameters import Seed, checked
from seqmodels.encodings import OpenSymbols
from seqmodels.encodings.examples import Example, without_past
from seqmodels.encodings.precision import DTYPES, in_float64
from seqmodels.encodings.raw_data import Data
from seqmodels.generation import CursorState
from seqmodels.hmm.corpus import Corpus, PackedBatch, check_states, corpus_of, raw_size, validation_score
from seqmodels.hmm.emissions import emission_of
from seqmodels.hmm.inference.semi_markov import (
    SemiMarkovFiltered,
    SemiMarkovTrellis,
    best_segments,
    forward_backward_pass,
    forward_pass,
    sample_paths,
)
from seqmodels.hmm.learning import em
from seqmodels.hmm.learning.constraints import Constraints
from seqmodels.hmm.learning.em import Expectations, FitResult, MAPObjective, StopRule, baum_welch
from seqmodels.hmm.learning.initialise import starts
from seqmodels.hmm.learning.options import ChainOptions, check_numbers, check_observation, check_table_size
from seqmodels.hmm.learning.priors import Pseudocounts
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
from seqmodels.hmm.semi_markov.cursor import HSMMCursor, SegmentState
from seqmodels.hmm.semi_markov.durations import DurationName, duration_family
from seqmodels.hmm.semi_markov.expectations import SegmentEmission, e_step, each_trellis, refuse_impossible
from seqmodels.hmm.state_queries import need_float64, stationary
from seqmodels.hmm.topology import Banded
from seqmodels.model import NotFittedError, SequenceModel
from seqmodels.model.fitting import checked_data, fit_model, resolved_choices
from seqmodels.model.largest_size import largest_size
from seqmodels.observations import Categorical, GaussianMixture, Observation, PseudoFrames
from seqmodels.sequences import Kind
from seqmodels.training import Checkpoints, check_checkpoint_arguments, checkpoints_of_fit

PSEUDO_FRAMES = 10.0
BACKGROUND = 0.01
STEPS_OF_START = 100  # most EM steps of the HMM from whose states and mean durations EM starts

StateAlgorithm = Callable[[PackedBatch, SemiMarkovTrellis], list[Tensor]]  # a result for each sequence


@dataclass(eq=False, repr=False)
class HSMM(SequenceModel):
    """``p(x) = Σ π(j_1) Π_n p_{j_n}(d_n) Π_t b_{j_n}(x_t) Π_n a(j_n, j_n+1)``, summed over all segmentations: a hidden
    semi-Markov (explicit-duration hidden Markov) model, fitted by EM (Yu 2010, *Hidden semi-Markov models*).

    A state that is entered lasts d steps, ``d ~ p_j(d)``, and is followed by another. In an ``HMM`` durations are
    geometric: one step is the most probable, whatever the mean. An iteration takes ``K D + K²`` terms a step, D being
    ``max_duration``, where an ``HMM`` takes ``K²``.

    Args:
        n_states: K.
        durations: the family of the distributions ``p_j`` over 1 .. D: ``"negative-binomial"`` and ``"poisson"`` are of
            ``d - 1``, cut off at D and normalised there; ``"categorical"`` is any distribution; ``"geometric"`` is the
            HMM with self-transitions, exactly, and is not cut off: ``max_duration`` has no say in it.
        max_duration: D, the most steps of a segment. A longer run of one state is possible only with another state in
            between; pass more than the longest run that is expected.
        left_censored: the first segment of a sequence may have begun before it: what is left of it has
            ``P(d >= r) / E[d]``, as in a process that was cut at any step. False: it begins with the sequence.
        duration_pseudocount: added to the expected count of every duration in the M-step of categorical durations, so
            that none that was not seen is impossible.
        max_iter: most EM steps a start.
        tol: EM stops when a step improves the objective by less, in nats per unit; 0 never stops early.
        n_init: starts, each from an HMM after EM of up to 100 steps; the best objective wins. ``"auto"``: as of
            ``HMM``, a density being a state and a duration.
        max_seconds: a cap on time, over all starts.
        pseudocount: added to every expected count of starts, transitions and ends in the M-step, or a ``Pseudocounts``;
            ``"auto"``: 0.01 under ``length="stop"``, otherwise 0.

    With ``length="given"`` the last segment of a sequence may go on after it: it counts by the probability of lasting
    at least as long as was seen, and in EM by the durations that it may have had in full. With ``length="stop"`` a
    sequence ends where a segment does, with probability ``final_`` of its state.

    ``observation`` is any that an ``HMM`` has, and ``"auto"`` as there. The recursions are float64 whatever ``dtype``,
    which is that of the densities. Missing values say nothing of their feature; an autoregressive observation takes
    none here. The other arguments are those of ``training.Resumable`` and ``SequenceModel``; ``validation`` is scored
    once, at the end, and with targets EM fits p(x, y).

    Attributes, raw units: ``initial_ (K,)``, ``transition_ (K, K)`` from segment to segment (its diagonal zero, but for
    geometric durations), ``final_ (K,)``, ``durations_ (K, D)``, and those of the observation, as of ``HMM``. Of the
    durations before they are cut off: ``duration_rates_ (K,)`` (Poisson, of ``d - 1``); ``duration_sizes_``,
    ``duration_probabilities_`` (negative binomial of ``d - 1``, as in scipy). ``starts_``: a row for each start.

    >>> x = [np.repeat([0, 1, 0, 1, 0], [3, 4, 3, 4, 3]), np.repeat([1, 0, 1], [4, 3, 4])]
    >>> model = HSMM(2, durations="categorical", max_duration=6, length="given", duration_pseudocount=0.0).fit(x)
    >>> model.mean_durations_[model.decode([[0, 0, 0]])[0][0]].round(2)
    np.float64(3.0)
    """

    n_states: int = 8
    durations: DurationName = "negative-binomial"
    max_duration: int = 50
    left_censored: bool = False
    duration_pseudocount: float = 0.01
    max_iter: int = 100
    tol: float = 3e-4
    n_init: int | Literal["auto"] = "auto"
    max_seconds: float | None = None
    pseudocount: float | str | Pseudocounts = "auto"
    _: KW_ONLY
    dtype: str = "float64"
    checkpoint: str | None = None
    checkpoint_seconds: float = 300.0
    resume_from: str | None = None

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
        return _n_parameters(self, len(self.parameters_.initial), _emission(self))

    def _default_observation(self, kind: Kind) -> Observation:
        if kind == "vectors":
            return GaussianMixture(1, prior=PseudoFrames(PSEUDO_FRAMES), background=BACKGROUND)
        # Training may have no byte, or no symbol of the class of unknown ones, that comes later.
        is_open = kind == "text" or isinstance(self.encoding, OpenSymbols)
        return Categorical(pseudocount=0.01 if is_open else 0.0)

    def _limits(self, seconds: float | None, steps: int | None) -> dict[str, Any]:
        if steps is not None:
            return {"max_iter": steps, **({} if seconds is None else {"max_seconds": seconds})}
        return {} if seconds is None else {"max_seconds": seconds}

    def _size_within(self, n_parameters: int, data: Data) -> int | None:
        from seqmodels.model.fitting import apply_setting, learn_setting

        like = self.clone()
        apply_setting(like, learn_setting(like, data))
        emission = _emission(like)
        return largest_size(lambda k: _n_parameters(like, k, emission), n_parameters, 1, "n_states")

    def _check_hyperparameters(self) -> None:
        check_numbers(self.n_states, self.n_init, self.max_iter, self.tol)
        check_checkpoint_arguments(self)
        if self.max_seconds is not None and not self.max_seconds > 0:
            raise ValueError(f"max_seconds is {self.max_seconds}; pass a number above zero, or None for no limit")
        duration_family(self.durations, self.max_duration, self.duration_pseudocount)
        _pseudocounts(self, self.n_states, self.length)
        refuse_beyond_memory(
            f"the durations of {self.n_states} states up to {self.max_duration} steps",
            48.0 * self.n_states * self.max_duration,
            "pass a smaller max_duration",
        )
        if _is_warm_start(self):
            if len(self.parameters_.initial) != self.n_states:
                raise ValueError(
                    f"n_states={self.n_states} differs from what was fitted, so warm_start cannot continue; set it "
                    "back, or warm_start=False"
                )
            fitted = (self.durations, self.max_duration, self.left_censored)
            if self._fitted_durations != fitted:
                raise ValueError(
                    f"durations, max_duration and left_censored are {fitted}, but the model was fitted with "
                    f"{self._fitted_durations}, so warm_start cannot continue; set them back, or warm_start=False"
                )
            if isinstance(self.observation, Observation):
                check_observation(self.observation, self.observation_, self.encoding_.size)

    def fit(
        self, X: Any, y: Any = None, *, validation: Any = "auto", sample_weight: Any = None, states: Any = None
    ) -> Self:
        """As ``SequenceModel.fit``; ``states`` as of ``HMM.fit``: known states, -1 where unknown."""
        with propagate_errors():
            fit_model(self, Data.of(X, y, sample_weight, states), validation)
        return self

    def _fit(self, train: list[Example], validation: list[Example]) -> None:
        check_states(train, self.n_states)
        self._fitted_durations = (self.durations, self.max_duration, self.left_censored)
        emission = _emission(self)
        check_table_size(self.n_states, self.observation_.n_output_parameters(self.encoding_.size))
        checkpoints = checkpoints_of_fit(self, resolved_choices(self), train, validation)
        n_units, log_det = raw_size(train, self.encoding_)
        constraints, pseudocount = Constraints.none(self.n_states), _pseudocounts(self, self.n_states, self.length_)
        objective = MAPObjective(emission, pseudocount, constraints, n_units, log_det)
        corpus = _corpus(self, emission, train)
        is_warm = _is_warm_start(self)
        n_init = 1 if is_warm else n_starts(self.n_init, "em", Banded(), corpus)
        groups: list[Sequence[Parameters]] = []  # where a checkpoint is resumed, it has those that are left
        if checkpoints.state is None:
            first = [self.parameters_.to(self._device())] if is_warm else _starts(self, objective, corpus, n_init)
            groups = [[start.of_first_process()] for start in first]
        stop = StopRule(self.max_iter, self.tol, self.max_seconds and self.max_seconds / n_init)
        best = best_of(
            groups,
            partial(_run, objective=objective, emission=emission, corpus=corpus, stop=stop),
            max_iter=self.max_iter,
            verbose=self.verbose,
            checkpoints=checkpoints,
            device=corpus.device,
        )
        self.parameters_: Parameters = best.parameters.to(torch.device("cpu"))
        self.converged_ = best.converged
        self.starts_ = starts_table(best.starts, best.start)
        last = {
            "validation": validation_score(self._sums_of_steps, validation),
            "starts_range": starts_range(self.starts_),
        }
        before = [np.nan] * (len(best.history) - 1)
        self.history_ = best.history.assign(**{name: [*before, value] for name, value in last.items()})
        warn_of_floor(best, self.observation_)
        warn_of_disagreement(self.starts_, best, n_units)

    # -- many sequences at once ----------------------------------------------------------------------------

    @torch.no_grad()
    def _steps(self, examples: list[Example]) -> list[np.ndarray]:
        parameters, emission = self.parameters_.to(self._device()), _emission(self)
        results: list[np.ndarray] = [np.empty(0)] * len(examples)
        corpus = _corpus(self, emission, [replace(e, weight=1.0) for e in examples])
        for batch, trellis in each_trellis(parameters, emission, corpus.each_batch(), corpus.dtype):
            filtered = forward_pass(trellis)
            steps, ends = trellis.packing.split(filtered.steps), filtered.ends.cpu().numpy()
            for j, i in enumerate(batch.indices):
                source = examples[i].source
                first = 0 if source is None else len(source)
                scored = steps[j][first:].cpu().numpy().copy()
                if first and parameters.final is not None and scored[0] > -np.inf:
                    # After a source the sequence cannot end at once.
                    scored[0] -= _log_continue(parameters, filtered, trellis, j, first - 1)
                results[i] = scored if parameters.final is None else np.append(scored, ends[j])
        return results

    def _with_floor(self, factor: float) -> Self:
        other = super()._with_floor(factor)
        emission, durations = _emission(self).split(self.parameters_.table)
        table = torch.cat([self.observation_.on_floor(emission, self.encoding_.size, factor), durations], 1)
        other.parameters_ = replace(self.parameters_, table=table)
        return other

    # -- one step at a time --------------------------------------------------------------------------------

    @checked
    def cursor(self, n_steps: int | None = None) -> HSMMCursor:
        setting, parameters, emission = self._setting(), self.parameters_.to(self._device()), _emission(self)
        table, durations = emission.split(parameters.table)[0], emission.durations(parameters.table)
        return HSMMCursor(parameters, table, durations, setting.observation, setting.encoding.size, DTYPES[self.dtype_])

    def _filtered(self, state: CursorState) -> np.ndarray:
        assert isinstance(state, SegmentState), "of this model's cursor"
        if state.log_belief is None:
            raise ValueError("the stream has read no step yet, so there is no state to filter; call update first")
        return state.log_belief[0].exp().cpu().numpy()

    # -- states of given sequences -------------------------------------------------------------------------

    def decode(self, X: Any, y: Any = None) -> list[np.ndarray]:
        """The most probable path of states of each sequence, ``(T,)``, exact (Viterbi over segments).

        Of a sequence with a past: the last T states of the path of both; so for the other questions about states.

        Raises:
            ValueError: a sequence that no path can explain, named.
        """
        return _run_on_each(self, X, y, _paths)

    def posterior(self, X: Any, y: Any = None) -> list[np.ndarray]:
        """``(T, K)`` p(z_t | x_1 .. x_T): each state at each step, given the whole sequence (smoothing).

        Raises:
            ValueError: a sequence of probability zero, named.
        """
        return _run_on_each(self, X, y, _posteriors)

    def predict_proba(self, X: Any, y: Any = None) -> list[np.ndarray]:
        """``posterior``, by the name that it has in hmmlearn."""
        return self.posterior(X, y)

    def filter(self, X: Any, y: Any = None) -> list[np.ndarray]:
        """``(T, K)`` p(z_t | x_1 .. x_t), given what came so far; rows of zeros once that is impossible."""
        return _run_on_each(self, X, y, _beliefs)

    @checked
    def sample_states(self, X: Any, n: int = 1, *, y: Any = None, random_state: Seed | None = None) -> list[np.ndarray]:
        """``(n, T)`` paths of states of each sequence, drawn independently from p(z | x), exactly.

        Args:
            n: draws of each sequence.
            random_state: seed; None takes the model's.

        Raises:
            ValueError: a sequence of probability zero, named.
        """
        if n < 1:
            raise ValueError(f"n is {n}; pass at least 1")
        generator = torch.Generator().manual_seed(self.random_state if random_state is None else random_state)
        return [path.T for path in _run_on_each(self, X, y, partial(_draws, n=n, generator=generator))]

    # -- the chain -----------------------------------------------------------------------------------------

    @property
    def durations_(self) -> np.ndarray:
        """``(K, max_duration)`` probability that a segment of each state lasts 1, 2, ... steps.

        Rows sum to one, but for geometric durations, which may be longer.
        """
        if self.durations == "geometric":
            stays = np.diag(self.transition_)[:, None]
            shares: np.ndarray = stays ** np.arange(self.max_duration) * (1 - stays)
            return shares
        return _emission(self).durations(self.parameters_.table).log_pmf.exp().numpy()

    @property
    def mean_durations_(self) -> np.ndarray:
        """``(K,)`` expected steps of a segment of each state."""
        if self.durations == "geometric":
            with np.errstate(divide="ignore"):
                return np.asarray(1 / (1 - np.diag(self.transition_)))
        return np.asarray(self.durations_ @ np.arange(1.0, self.max_duration + 1))

    @property
    def stationary_(self) -> np.ndarray:
        """``(K,)`` share of its steps that a long sequence from ``initial_`` spends in each state, as of ``HMM``."""
        p = self.parameters_
        segments = stationary(p.initial.numpy(), p.transition.numpy(), None if p.final is None else p.final.numpy())
        steps = segments if self.durations == "geometric" else segments * self.mean_durations_
        return np.asarray(steps / steps.sum())

    def bic(self, X: Any, y: Any = None) -> float:
        """Bayesian information criterion, as of ``HMM``. Lower is better (Schwarz 1978)."""
        n = float(checked_data(self, X, y).scored.n_units.sum())
        return float(self.n_parameters_ * np.log(n) - 2 * self.log_prob(X, y).sum())

    def aic(self, X: Any, y: Any = None) -> float:
        """Akaike's information criterion, ``2 n_parameters_ - 2 log p``. Lower is better (Akaike 1974)."""
        return float(2 * self.n_parameters_ - 2 * self.log_prob(X, y).sum())

    # -- parameters ----------------------------------------------------------------------------------------

    @property
    def initial_(self) -> np.ndarray:
        """``(K,)`` probability that the first step is in each state."""
        return self.parameters_.initial.numpy()

    @property
    def transition_(self) -> np.ndarray:
        """``(K, K)`` probability that a segment of i is followed by one of j; geometric: step j after step i."""
        return self.parameters_.transition.numpy()

    @property
    def final_(self) -> np.ndarray:
        """``(K,)`` probability that the sequence ends after a segment of each state (zeros where lengths are given)."""
        final = self.parameters_.final
        return np.zeros(len(self.initial_)) if final is None else final.numpy()

    def __getattr__(self, name: str) -> Any:
        """The parameters of observation and durations: ``means_``, ``emission_``, ``duration_rates_``, ..."""
        if name.endswith("_") and not name.startswith("_"):
            if "parameters_" not in self.__dict__:
                raise NotFittedError(f"this {type(self).__name__} is not fitted, so it has no {name}; call fit first")
            raw = _emission(self).raw_parameters(self.parameters_.table, *self.encoding_.affine())
            if name in raw:
                return raw[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _state(self) -> dict[str, Any]:
        return {**self.parameters_.arrays(), "starts": starts_arrays(self.starts_)}

    def _restore(self, state: dict[str, Any]) -> None:
        self._fitted_durations = (self.durations, self.max_duration, self.left_censored)
        self.starts_ = starts_from_arrays(state.get("starts"))
        state = {name: array for name, array in state.items() if name != "starts"}
        check_arrays(state, self.n_states, has_end=self.length_ == "stop")
        parameters, emission = Parameters.from_arrays(state), _emission(self)
        self.observation_.check(self.encoding_.size)
        n_columns = self.observation_.n_output_parameters(self.encoding_.size) + emission.family.n_columns
        if parameters.table.shape[1] != n_columns:
            raise ValueError(f"a state has {parameters.table.shape[1]} numbers in the file; it should have {n_columns}")
        of_emission, durations = emission.split(parameters.table)
        self.observation_.check_table(of_emission, self.encoding_.size)
        emission.family.check(durations)
        self.parameters_ = parameters


# -- what a model's hyperparameters come to ----------------------------------------------------------------------------


def _is_warm_start(model: HSMM) -> bool:
    return model.warm_start and "parameters_" in vars(model)


def _emission(model: HSMM) -> SegmentEmission:
    family = duration_family(model.durations, model.max_duration, model.duration_pseudocount)
    inner = emission_of(model.observation_, model.encoding_.size)
    return SegmentEmission(inner, family, left_censored=model.left_censored)


def _pseudocounts(model: HSMM, n_states: int, length: str) -> Pseudocounts:
    return ChainOptions.from_arguments(n_states, "ergodic", None, None, model.pseudocount, length).pseudocount


def _n_parameters(model: HSMM, n_states: int, emission: SegmentEmission) -> int:
    in_row = int(_successors(n_states, emission).sum(1)[0]) - 1 + (model.length_ == "stop")
    return n_states - 1 + n_states * in_row + emission.n_parameters(n_states)


def _successors(n_states: int, emission: SegmentEmission) -> Tensor:
    """``(K, K)`` which states may follow a segment of each: another one, if there is one."""
    if emission.family.follows_itself or n_states == 1:
        return torch.ones(n_states, n_states, dtype=torch.bool)
    return ~torch.eye(n_states, dtype=torch.bool)


def _corpus(model: HSMM, emission: SegmentEmission, examples: list[Example]) -> Corpus:
    return corpus_of(examples, emission, model.n_states, model._device(), DTYPES[model.dtype_])


# -- EM ----------------------------------------------------------------------------------------------------------------


def _starts(model: HSMM, objective: MAPObjective, corpus: Corpus, n_init: int) -> list[Parameters]:
    """From the states and mean durations of an HMM after some EM steps."""
    emission = objective.emission
    assert isinstance(emission, SegmentEmission), "of this model"
    guesses = starts(
        emission.inner,
        corpus.batches,
        corpus.n_states,
        has_final=model.length_ == "stop",
        generators=[torch.Generator().manual_seed(model.random_state + i) for i in range(n_init)],
    )
    of_hmm = replace(objective, emission=emission.inner)
    stop = StopRule(STEPS_OF_START, model.tol)
    return [_with_durations(_as_hmm(guess, of_hmm, corpus, stop), emission) for guess in guesses]


def _as_hmm(parameters: Parameters, objective: MAPObjective, corpus: Corpus, stop: StopRule) -> Parameters:
    """After EM of an HMM; all processes do the same steps, each on all of the data, as they do for the guess itself."""
    history = em.History()
    for step in range(stop.max_iter):
        e_steps = em.e_step([parameters], objective.emission, corpus.batches, corpus.dtype)
        assert e_steps is not None, "nothing interrupts it"
        prior = objective.log_prior(parameters)
        history.add(objective.row(step, 0.0, e_steps[0].log_prob, prior, parameters.table))
        if stop.converged(history):
            break
        parameters = em.m_step(parameters, e_steps[0], objective)
    return parameters


def _with_durations(parameters: Parameters, emission: SegmentEmission) -> Parameters:
    """The parameters of an HMM, its self-transitions as durations of equal means."""
    k, family = len(parameters.initial), emission.family
    table = torch.cat([parameters.table, family.with_mean(1 / (1 - parameters.transition.diag()))], 1)
    if family.follows_itself:
        return replace(parameters, table=table)
    successors = _successors(k, emission).to(parameters.transition)
    rows = parameters.transition * successors
    final = parameters.final
    total = rows.sum(1) + (0.0 if final is None else final)
    # A state that is never left: whatever follows it is as probable.
    rows = torch.where((total > 0)[:, None], rows / total[:, None], successors / max(k - 1, 1))
    final = None if final is None else torch.where(total > 0, final / total, 0.0)
    return Parameters(parameters.initial, rows, final, table)


def _run(
    group: Sequence[Parameters],
    *,
    objective: MAPObjective,
    emission: SegmentEmission,
    corpus: Corpus,
    stop: StopRule,
    callback: em.Callback,
    checkpoints: Checkpoints,
) -> list[FitResult]:
    batches = corpus.own_batches()

    def expectations(parameters: Parameters) -> Expectations:
        return e_step(parameters, emission, batches, corpus.dtype)

    return baum_welch(
        group,
        objective,
        [],
        corpus.dtype,
        stop,
        callback=callback,
        checkpoints=checkpoints,
        e_step_of_one=expectations,
    )


# -- the states of sequences -------------------------------------------------------------------------------------------


@torch.no_grad()
def _run_on_each(model: HSMM, X: Any, y: Any, algorithm: StateAlgorithm) -> list[np.ndarray]:
    """What an algorithm finds for each sequence, in float64 where float32 cannot hold the data."""
    data = checked_data(model, X, y)
    if data.y is not None:
        data.refuse_past("the states of pairs")
    examples = [replace(e, weight=1.0) for e in model._setting().examples(data)]
    precise = in_float64(model) if need_float64(examples) else model
    parameters, emission = model.parameters_.to(model._device()), _emission(model)
    corpus = _corpus(precise, emission, examples)
    results: list[np.ndarray] = [np.empty(0)] * len(examples)
    for batch, trellis in each_trellis(parameters, emission, corpus.each_batch(), corpus.dtype):
        for i, result in zip(batch.indices, algorithm(batch, trellis), strict=True):
            results[i] = result.cpu().numpy()
    return without_past(examples, results)


def _paths(batch: PackedBatch, trellis: SemiMarkovTrellis) -> list[Tensor]:
    paths, log_prob = best_segments(trellis)
    refuse_impossible(batch, log_prob)
    return [torch.from_numpy(path) for path in paths]


def _posteriors(batch: PackedBatch, trellis: SemiMarkovTrellis) -> list[Tensor]:
    posterior = forward_backward_pass(trellis)
    refuse_impossible(batch, posterior.log_prob)
    return trellis.packing.split(posterior.gamma)


def _draws(batch: PackedBatch, trellis: SemiMarkovTrellis, n: int, generator: torch.Generator) -> list[Tensor]:
    """``(T, n)`` of each."""
    paths, log_prob = sample_paths(trellis, n, generator)
    refuse_impossible(batch, log_prob)
    return [torch.from_numpy(each.T) for each in paths]


def _beliefs(batch: PackedBatch, trellis: SemiMarkovTrellis) -> list[Tensor]:
    return trellis.packing.split(forward_pass(trellis).log_beliefs.exp())


def _log_continue(
    parameters: Parameters, filtered: SemiMarkovFiltered, trellis: SemiMarkovTrellis, sequence: int, frame: int
) -> float:
    """log p(there is a next step | the steps up to and with ``frame``): a segment goes on, or another follows."""
    row = int(trellis.packing.offsets[frame] + trellis.packing.rank[sequence])
    follows = filtered.log_ended[row] + parameters.transition.sum(1).log()
    return float(torch.logsumexp(torch.cat([filtered.log_continues[row], follows]), 0))
