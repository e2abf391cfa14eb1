"""``HSMM``: a hidden semi-Markov chain, whose states have durations of their own, as a ``SequenceModel``."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, overload

import numpy as np
import torch
from torch import Tensor

from seqmodels.common.array_checks import numbers_of
from seqmodels.common.distributed import propagate_errors
from seqmodels.common.main_memory import refuse_beyond_memory
from seqmodels.common.parameters import checked, made_with, undone_on_failure
from seqmodels.encodings import Encoding
from seqmodels.encodings.defaults import may_have_unseen_symbols
from seqmodels.encodings.examples import Example, of_each_frame
from seqmodels.encodings.precision import DTYPES, in_float64
from seqmodels.encodings.raw_data import Data
from seqmodels.encodings.series import SeriesEncoding
from seqmodels.encodings.setting import Setting
from seqmodels.generation import CursorState
from seqmodels.hmm.corpus import Corpus, check_states, corpus_of, joined_values, raw_size, validation_score
from seqmodels.hmm.emissions import emission_of
from seqmodels.hmm.estimates import Coordinates, emitted_of
from seqmodels.hmm.from_parameters import chain_parameters, emission_table
from seqmodels.hmm.hidden_states import HiddenStateModel
from seqmodels.hmm.learning import em
from seqmodels.hmm.learning.chain_arguments import ChainTraining
from seqmodels.hmm.learning.constraints import Constraints, Frozen, Tying
from seqmodels.hmm.learning.em import (
    Expectations,
    FitResult,
    MAPObjective,
    RunningStatistics,
    StopRule,
    baum_welch,
)
from seqmodels.hmm.learning.fitting import Fitting
from seqmodels.hmm.learning.initialise import starts
from seqmodels.hmm.learning.options import check_algorithm, check_numbers, check_observation, check_table_size
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
from seqmodels.hmm.profile_likelihood import profile_interval
from seqmodels.hmm.semi_markov.cursor import HSMMCursor, SegmentState
from seqmodels.hmm.semi_markov.durations import DurationName, duration_family
from seqmodels.hmm.semi_markov.estimates import SegmentEmitted, SegmentObjective
from seqmodels.hmm.semi_markov.expectations import (
    SegmentConstraints,
    SegmentEmission,
    e_step,
    e_step_of_batch,
    each_trellis,
)
from seqmodels.hmm.semi_markov.from_parameters import check_successors, duration_table
from seqmodels.hmm.semi_markov.options import SegmentOptions
from seqmodels.hmm.semi_markov.states import (
    Result,
    StateAlgorithm,
    batch_alignments,
    batch_beliefs,
    batch_best_paths,
    batch_draws,
    batch_log_prob_of_paths,
    batch_paths,
    batch_posterior,
    batch_steps_left,
    log_states_ahead,
    segments_ahead,
)
from seqmodels.hmm.standard_errors import check_level, standard_errors
from seqmodels.hmm.state_forecast import StateForecast
from seqmodels.hmm.state_paths import (
    ForcedAlignment,
    StatePath,
    check_n_paths,
    checked_labels,
    forced_alignments,
    state_paths,
)
from seqmodels.hmm.state_queries import (
    checked_paths,
    log_dets,
    need_float64,
    paths_of_steps,
    permutation_of_states,
    reordered,
    reordered_observation,
    stationary,
)
from seqmodels.hmm.topology import Topology, breaks
from seqmodels.inference.chains.semi_markov import SemiMarkovFiltered, SemiMarkovTrellis, forward_pass
from seqmodels.model.fitting import (
    apply_setting,
    check_arguments,
    checked_data,
    fit_model,
    learn_setting,
    resolved_choices,
)
from seqmodels.model.largest_size import largest_size
from seqmodels.observations import Categorical, GaussianMixture, Observation, PseudoFrames
from seqmodels.sequences import Kind
from seqmodels.sequences.measure import Length
from seqmodels.training import Checkpoints, checkpoints_of_fit
from seqmodels.training.fingerprint import check_processes_agree

if TYPE_CHECKING:
    import pandas as pd

PSEUDO_FRAMES = 10.0
BACKGROUND = 0.01
MOST_DURATIONS = 10_000_000  # of all states, of which each takes some 50 bytes
STEPS_OF_START = 100  # most EM steps of the HMM from whose states and mean durations EM starts


@dataclass(eq=False, repr=False)
class HSMM(HiddenStateModel):
    """``p(x) = Σ π(j_1) Π_n p_{j_n}(d_n) Π_t b_{j_n}(x_t) Π_n a(j_n, j_n+1)``, summed over all segmentations: a hidden
    semi-Markov (explicit-duration hidden Markov) model, fitted by EM (Yu 2010, *Hidden semi-Markov models*).

    A state that is entered lasts d steps, ``d ~ p_j(d)``, and is followed by another. In an ``HMM`` durations are
    geometric: one step is the most probable, whatever the mean. An iteration takes ``K D + K²`` terms a step, D being
    ``max_duration``, where an ``HMM`` takes ``K²``.

    Args:
        n_states: K.
        durations: the family of the distributions ``p_j`` over 1 .. D: ``"negative-binomial"`` and ``"poisson"`` are of
            ``d - 1``, ``"logarithmic"`` of ``d``, cut off at D and normalised there; ``"categorical"`` is any
            distribution; ``"geometric"`` is the HMM with self-transitions, exactly, and is not cut off:
            ``max_duration`` has no say in it.
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
        topology: which state may follow a segment of which, as of ``HMM``. What it says of a state after itself is
            passed over, but that a state that nothing else may follow, neither another state nor the end, is followed
            by itself, as is the only state (and all may be where durations are geometric).
        tied_durations: group number of each state, ``[0, 0, 1, ...]``; the states of a group share one distribution of
            durations. None: no states share one.
        algorithm: ``"em"``, or ``"stepwise"``, for much data: an M-step after each mini-batch of whole sequences
            (``max_iter`` counts epochs).
        training: a ``ChainTraining``, of which ``lr`` and ``prior`` may not be set: what few users turn about the fit.
            ``frozen`` may name ``durations`` too.

    With ``length="given"`` the last segment of a sequence may go on after it: it counts by the probability of lasting
    at least as long as was seen, and in EM by the durations that it may have had in full. With ``length="stop"`` a
    sequence ends where a segment does, with probability ``final_`` of its state.

    ``observation`` is any that an ``HMM`` has, and ``"auto"`` as there. The recursions are float64 whatever ``dtype``,
    which is that of the densities. Missing values say nothing of their feature; an autoregressive observation takes
    none here. The other arguments are described at ``SequenceModel``; ``validation`` is scored
    once, at the end, and with targets EM fits p(x, y).

    Attributes, raw units: ``initial_ (K,)``, ``transition_ (K, K)`` from segment to segment (its diagonal zero, but for
    geometric durations), ``final_ (K,)``, ``durations_ (K, D)``, and those of the observation, as of ``HMM``. Of the
    durations before they are cut off: ``duration_rates_ (K,)`` (Poisson, of ``d - 1``); ``duration_sizes_``,
    ``duration_probabilities_`` (negative binomial of ``d - 1``, as in scipy); ``duration_probabilities_`` (logarithmic
    of ``d``, as in scipy). ``starts_``: a row for each start.

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
    topology: Any = "ergodic"
    tied_durations: Sequence[int] | None = None
    algorithm: Literal["em", "stepwise"] = "em"
    training: ChainTraining = field(default_factory=ChainTraining)

    _bounded_by_data: ClassVar[Mapping[str, str]] = {"n_states": "steps", "max_duration": "longest"}
    _costly: ClassVar[frozenset[str]] = frozenset({"n_states"})
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
        return _n_parameters(self, len(self.parameters_.initial))

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
        return largest_size(lambda k: _n_parameters(like, k), n_parameters, 1, "n_states")

    def _check_hyperparameters(self) -> None:
        check_numbers(self.n_states, self.n_init, self.max_iter, self.tol)
        self.training.check()
        self.training.check_unused(self, "lr", "prior")
        if self.max_seconds is not None and not self.max_seconds > 0:
            raise ValueError(f"max_seconds is {self.max_seconds}; pass a number above zero, or None for no limit")
        duration_family(self.durations, self.max_duration, self.duration_pseudocount)
        if self.algorithm not in ("em", "stepwise"):
            raise ValueError(f"algorithm is {self.algorithm!r}; pass 'em' or 'stepwise'")
        check_algorithm(self.algorithm, self.training.batches, self.training.step_decay, self.max_iter, lr=1.0)
        _options(self, self.n_states, self.length)
        _check_durations(self)
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
            options = _options(self, self.n_states, self.length_)
            options.check_start(self.parameters_, self.length, _emission(self).split(self.parameters_.table))

    @checked
    def fit(
        self, X: Any, y: Any = None, *, validation: Any = "auto", sample_weight: Any = None, states: Any = None
    ) -> Self:
        """As ``SequenceModel.fit``; ``states`` as of ``HMM.fit``: known states, -1 where unknown."""
        with propagate_errors():
            fit_model(self, Data.of(X, y, sample_weight, states), validation)
        return self

    def partial_fit(self, X: Any, y: Any = None, *, sample_weight: Any = None, states: Any = None) -> Self:
        """One step of stepwise EM on these sequences, after all that came before, as of ``HMM``.

        The first call learns the encoding and a start from them; after ``from_parameters`` or ``load`` it is one EM
        step. It writes no checkpoints. Arguments as of ``fit``.
        """
        import pandas as pd

        with propagate_errors():
            data = Data.of(X, y, sample_weight, states)
            data.refuse_past("partial_fit")
            check_arguments(self)
            self._check_hyperparameters()
            check_processes_agree(self, data)
            began = time.perf_counter()
            with undone_on_failure(self):
                if not self.__sklearn_is_fitted__():
                    apply_setting(self, learn_setting(self, data, is_partial=True))
                    self.history_, self.fit_seconds_, self.starts_ = pd.DataFrame(), 0.0, starts_table([], None)
                checked_data(self, data.X, data.y)
                examples = self._setting().examples(data)
                check_states(examples, self.n_states)
                fitting, corpus = _fitting_and_corpus(self, examples)
                fitted: Parameters | None = self.__dict__.get("parameters_")
                start = fitted.to(self._device()) if fitted else _starts(self, fitting, corpus, 1)[0]
                statistics: RunningStatistics | None = self.__dict__.get("statistics_")
                parameters, statistics, row = fitting.one_step(
                    start.of_first_process(), statistics, corpus, len(self.history_)
                )
                self.parameters_: Parameters = parameters.to(torch.device("cpu"))
                self.statistics_: RunningStatistics | None = statistics
                self.converged_ = False
                self.history_ = pd.concat([self.history_, pd.DataFrame([row])], ignore_index=True)
            self.fit_seconds_ += time.perf_counter() - began
        return self

    def _fit(self, train: list[Example], validation: list[Example]) -> None:
        check_states(train, self.n_states)
        check_table_size(self.n_states, self.observation_.n_output_parameters(self.encoding_.size))
        checkpoints = checkpoints_of_fit(self, resolved_choices(self), train, validation)
        is_warm = _is_warm_start(self)
        fitting, corpus = _fitting_and_corpus(self, train)
        groups: list[Sequence[Parameters]] = []  # where a checkpoint is resumed, it has those that are left
        if checkpoints.state is None:
            first = [self.parameters_.to(self._device())] if is_warm else _starts(self, fitting, corpus)
            groups = [[start.of_first_process()] for start in first]
        run: Callable[..., list[FitResult]] = partial(_run, fitting=fitting, corpus=corpus)
        if self.algorithm == "stepwise":
            run = fitting.algorithm_on(corpus, torch.Generator().manual_seed(self.random_state))
        best = best_of(
            groups,
            run,
            max_iter=self.max_iter,
            verbose=self.verbose,
            checkpoints=checkpoints,
            device=corpus.device,
        )
        self.parameters_ = best.parameters.to(torch.device("cpu"))
        self.statistics_ = _of_frames(best.statistics, corpus)
        self.converged_ = best.converged
        self.starts_ = starts_table(best.starts, best.start)
        self.history_ = best.history_with(
            validation=validation_score(self._sums_of_steps, validation), starts_range=starts_range(best.starts)
        )
        warn_of_floor(best, self.observation_)
        warn_of_disagreement(self.starts_, best, fitting.objective.n_units)

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
            if isinstance(self.encoding_, SeriesEncoding) and self.encoding_.n_initial:
                return self.initial_  # of the first frames, which are no steps
            raise ValueError("the stream has read no step yet, so there is no state to filter; call update first")
        return state.log_belief[0].exp().cpu().numpy()

    # -- states of given sequences -------------------------------------------------------------------------

    @overload
    def decode(self, X: Any, y: Any = None, *, k: None = None) -> list[np.ndarray]: ...

    @overload
    def decode(self, X: Any, y: Any = None, *, k: int) -> list[list[StatePath]]: ...

    def decode(self, X: Any, y: Any = None, *, k: int | None = None) -> list[np.ndarray] | list[list[StatePath]]:
        """The most probable path of states of each sequence, ``(T,)``, exact (Viterbi over segments), or the ``k`` most
        probable ones.

        Of a sequence with a past: the last T states of the path of both; so for the other questions about states.

        Args:
            k: a number: a list of ``StatePath``, ``states`` and ``log_prob``, for each sequence, the best first; it is
                shorter where fewer paths are possible.

        Raises:
            ValueError: a sequence that no path can explain, named; with ``k`` a past.
        """
        if k is None:
            return _run_on_each(self, X, y, batch_paths)
        check_n_paths(k)
        data = _without_past(self, X, y, "decode with k")
        examples, best = _states_of_each(self, X, y, partial(batch_best_paths, k=k))
        return state_paths(best, log_dets(self._setting(), data, examples), [e.n_initial for e in examples])

    def path_log_prob(self, X: Any, paths: Any, y: Any = None) -> np.ndarray:
        """``(n,)`` nats of each sequence together with a path of its states: log p(x, z), in raw units, as of ``HMM``.

        A path whose last segment may go on counts by the probability of lasting so long; a run that is longer than
        ``max_duration`` is impossible.

        Raises:
            ValueError: paths of other lengths or states, by sequence.

        >>> chain = {"initial": [1.0, 0.0], "transition": [[0.0, 1.0], [1.0, 0.0]], "durations": [[0.6, 0.4]] * 2}
        >>> model = HSMM.from_parameters(**chain, emission=[[0.9, 0.1], [0.2, 0.8]])
        >>> model.path_log_prob([[0, 0, 1]], [[0, 0, 1]]).round(4)  # log(0.4 * 0.9 * 0.9 * 0.8)
        array([-1.3502])
        """
        data = _without_past(self, X, y, "path_log_prob")
        examples = self._setting().examples(data)
        n_steps = list(map(len, joined_values(examples)))
        n_frames = [n + e.n_initial for n, e in zip(n_steps, examples, strict=True)]
        paths = checked_paths(paths, n_frames, len(self.initial_))
        states, can_be = paths_of_steps(paths, [e.n_initial for e in examples])
        encoded = np.array(_run_on_each(self, X, y, partial(batch_log_prob_of_paths, paths=states), of_steps=False))
        return np.asarray(np.where(can_be, encoded, -np.inf) + log_dets(self._setting(), data, examples))

    def align(self, X: Any, labels: Any, y: Any = None) -> list[ForcedAlignment]:
        """Where each of the ``labels`` of a sequence begins and ends (forced alignment): the most probable path that
        goes through all of them in their order, each for one segment at least.

        As of ``HMM``, but that a label has whole segments, so that durations count; a state that is not followed by
        itself cannot be two labels in a row.

        Args:
            labels: for each sequence a list of states in their order; in place of a state may stand a group of states,
                among which the path moves freely. Where there are targets: of x and then y.

        Raises:
            ValueError: labels that are no states, or more than there are steps; a sequence that no such path can
                explain; a past.
        """
        data = _without_past(self, X, y, "align")
        examples = self._setting().examples(data)
        groups = checked_labels(labels, list(map(len, joined_values(examples))), len(self.initial_))
        _, best = _states_of_each(self, X, y, partial(batch_alignments, groups=groups))
        return forced_alignments(best, log_dets(self._setting(), data, examples), [e.n_initial for e in examples])

    def _smoothed_states(self, X: Any, y: Any) -> list[np.ndarray]:
        return _run_on_each(self, X, y, batch_posterior)

    def _filtered_states(self, X: Any, y: Any) -> list[np.ndarray]:
        return _run_on_each(self, X, y, batch_beliefs, first=self.initial_)

    def _shares_and_durations(self) -> tuple[np.ndarray, np.ndarray]:
        return self.stationary_, self.mean_durations_

    def _emissions_by_state(self, names: Sequence[str]) -> Mapping[str, np.ndarray]:
        return _emission(self).by_state(self.parameters_.table, *self.encoding_.affine(), names)

    def _drawn_states(self, X: Any, y: Any, n: int, seed: int) -> list[np.ndarray]:
        generator = torch.Generator().manual_seed(seed)
        return _run_on_each(self, X, y, partial(batch_draws, n=n, generator=generator))

    @checked
    def forecast_states(self, X: Any, k: int = 1, *, y: Any = None) -> list[StateForecast]:
        """What follows each sequence, 1 to ``k`` steps ahead: states, and observations in raw units, as of ``HMM``.

        How long the last state has lasted counts: a segment ends the sooner the less is left of it.

        Raises:
            ValueError: a sequence of probability zero, named.
        """
        if k < 1:
            raise ValueError(f"k is {k}; pass at least 1")
        refuse_beyond_memory(f"forecasts of {k} steps", 8.0 * k * self.n_states, "pass a smaller k")
        examples, left = _states_of_each(self, X, y, batch_steps_left)
        parameters, emission = self.parameters_, _emission(self)
        log_pmf = emission.durations(parameters.table).log_pmf
        of_emission = replace(parameters, table=emission.split(parameters.table)[0])
        shift, scale = (torch.as_tensor(v, dtype=torch.float64) for v in self.encoding_.affine())
        forecasts = []
        for log_left, values in zip(left, joined_values(examples), strict=True):
            log_joint, first = log_states_ahead(log_left.cpu(), parameters.transition, log_pmf, k)
            chain = segments_ahead(first, parameters.transition, log_pmf)
            forecasts.append(
                StateForecast.from_states(of_emission, self.observation_, log_joint, values, shift, scale, chain=chain)
            )
        return [forecast.encoded_by(self.encoding_) for forecast in forecasts]

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

    @checked
    def reorder(self, order: Sequence[int] | np.ndarray | Literal["mean", "stationary"]) -> Self:
        """A copy whose state i is this model's state ``order[i]``, as of ``HMM``: the same probabilities under other
        numbers; what was said of single states goes with them.

        Args:
            order: a permutation of the states; ``"mean"``: by the means of vectors, the first feature first;
                ``"stationary"``: those visited most first.
        """
        parameters = self.parameters_
        raw = _emission(self).raw_parameters(parameters.table, *self.encoding_.affine())
        permutation = permutation_of_states(order, lambda: self.stationary_, raw)
        k = len(parameters.initial)
        if permutation.shape != (k,) or not np.array_equal(np.sort(permutation), np.arange(k)):
            raise ValueError(f"order is {order!r}; pass each of the states 0 to {k - 1} once")
        other = copy.copy(self).set_params(**reordered(self.get_params(deep=False), permutation))
        if self.tied_durations is not None:
            other.tied_durations = [int(self.tied_durations[i]) for i in permutation]
        other.observation_ = reordered_observation(self.observation_, permutation)
        other.parameters_ = parameters.take(torch.as_tensor(permutation.astype(np.int64)))
        other.statistics_ = None
        return other

    # -- how sure the parameters are -----------------------------------------------------------------------

    def standard_errors(self, X: Any, y: Any = None, *, level: float = 0.95) -> pd.DataFrame:
        """A frame with a row for each estimated parameter, as of ``HMM``: from the observed information of what ``fit``
        maximises.

        Durations have the rows ``duration_rates``; ``duration_sizes``, ``duration_probabilities``; or ``durations``,
        whose ``feature`` is the number of steps. P free parameters take 2 P + 1 E-steps.

        Args:
            X, y: the training data.
            level: of the intervals.

        Raises:
            ValueError: as of ``HMM``.
        """
        check_level(level)
        data = _without_past(self, X, y, "standard_errors")
        return standard_errors(*_objective_at(self, self._setting().examples(data)), level)

    def profile_interval(
        self, X: Any, name: str, state: int | None = None, feature: Any = None, *, y: Any = None, level: float = 0.95
    ) -> tuple[float, float]:
        """The interval of one parameter by its profile likelihood, in raw units, as of ``HMM``.

        Args:
            X, y: the training data.
            name, state, feature: as in a row of ``standard_errors``.
            level: of the interval.

        Raises:
            ValueError: as of ``HMM``.
        """
        check_level(level)
        data = _without_past(self, X, y, "profile_interval")
        objective, shift, scale = _objective_at(self, self._setting().examples(data))
        return profile_interval(objective, shift, scale, (name, state, feature), level)

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

    def _named_parameters(self) -> Mapping[str, Any]:
        if "parameters_" not in vars(self):
            return {}
        return _emission(self).raw_parameters(self.parameters_.table, *self.encoding_.affine())

    @classmethod
    @checked
    def from_parameters(
        cls,
        initial: Any,
        transition: Any,
        final: Any = None,
        *,
        durations: Any = None,
        duration_rates: Any = None,
        duration_sizes: Any = None,
        duration_probabilities: Any = None,
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
        """A fitted HSMM from its parameters, in raw units.

        Args:
            initial: ``(K,)`` probabilities of the first state.
            transition: ``(K, K)`` probabilities of the state of the next segment; rows, plus ``final``, sum to one, and
                the diagonal is zero (but for geometric durations, and for states that nothing else follows).
            final: ``(K,)`` probabilities of the end after a segment; None: ``length="given"``.
            durations: ``(K, D)`` probabilities of 1 to D steps: ``durations="categorical"``.
            duration_rates: ``(K,)``, instead of ``durations``: Poisson durations, of ``d - 1``, cut off at
                ``max_duration``.
            duration_sizes, duration_probabilities: ``(K,)`` each, instead of these: negative binomial ones, of
                ``d - 1``, as in scipy, cut off at ``max_duration``; ``duration_probabilities`` alone: logarithmic ones.
                Without any of these durations are geometric.
            weights, means, covariances, covariance_type, emission, probabilities, rates, encoding, observation: as of
                ``HMM.from_parameters``.
            options: other arguments of ``HSMM``.

        Raises:
            ValueError: as of ``HMM.from_parameters``; durations of several families, or that cannot be; a state that
                is followed by itself, or what ``topology`` does not allow.

        >>> chain = {"initial": [1.0, 0.0], "transition": [[0.0, 1.0], [1.0, 0.0]], "duration_rates": [2.0, 4.0]}
        >>> model = HSMM.from_parameters(**chain, means=[[0.0], [5.0]], covariances=[[1.0], [1.0]])
        >>> model.mean_durations_.round(3)
        array([3., 5.])
        """
        import pandas as pd

        k = len(numbers_of("initial", initial, "(K,)"))
        encoding, observation, of_emission = emission_table(
            k,
            emission=emission,
            probabilities=probabilities,
            rates=rates,
            mixture=(weights, means, covariances, covariance_type),
            encoding=encoding,
            observation=observation,
        )
        given = {"durations": durations, "duration_rates": duration_rates, "duration_sizes": duration_sizes}
        family, of_durations = duration_table(k, {**given, "duration_probabilities": duration_probabilities})
        if family == "categorical":
            longest = of_durations.shape[1]
            options = {"max_duration": longest, **options}
            if options["max_duration"] != longest:
                raise ValueError(
                    f"durations are of up to {longest} steps, but max_duration={options['max_duration']}; leave it out"
                )
        parameters = chain_parameters(initial, transition, final, torch.cat([of_emission, of_durations], 1))
        length: Length = "given" if final is None else "stop"
        model = made_with(cls, options, n_states=k, durations=family, observation=observation, length=length)
        model._check_hyperparameters()
        apply_setting(model, Setting.from_fitted(encoding, observation.clone(), length, conditional=False))
        chosen = _options(model, k, length)
        check_successors(parameters, chosen.chain.topology.transition_mask(k))
        if breaks(parameters, chosen.chain.topology):
            raise ValueError(
                f"the parameters allow transitions that topology={model.topology!r} does not; leave it out"
            )
        model.parameters_, model.statistics_ = parameters, None
        model._fitted_durations = (model.durations, model.max_duration, model.left_censored)
        model.history_, model.converged_, model.fit_seconds_ = pd.DataFrame(), True, 0.0
        model.starts_ = starts_table([], None)
        return model

    def _state(self) -> dict[str, Any]:
        return {**self.parameters_.arrays(), "starts": starts_arrays(self.starts_)}

    def _restore(self, state: dict[str, Any]) -> None:
        _check_durations(self)  # of which a file has no array
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


def _check_durations(model: HSMM) -> None:
    """Raise ``ValueError`` for more durations of all states than tables of them should have."""
    if model.n_states * model.max_duration > MOST_DURATIONS:
        raise ValueError(
            f"max_duration is {model.max_duration:,}, which is too long for {model.n_states:,} states; pass at most "
            f"{max(1, MOST_DURATIONS // model.n_states):,}"
        )


def _is_warm_start(model: HSMM) -> bool:
    return model.warm_start and "parameters_" in vars(model)


def _options(model: HSMM, n_states: int, length: str) -> SegmentOptions:
    return SegmentOptions.from_arguments(
        n_states,
        model.topology,
        model.training.tied,
        model.tied_durations,
        model.training.frozen,
        model.pseudocount,
        length,
        follows_itself=model.durations == "geometric",
    )


def _emission(model: HSMM, constraints: SegmentConstraints | None = None) -> SegmentEmission:
    """``constraints`` are those of M-steps."""
    family = duration_family(model.durations, model.max_duration, model.duration_pseudocount)
    inner = emission_of(model.observation_, model.encoding_.size)
    constraints = None if constraints is None or constraints.is_free else constraints
    return SegmentEmission(inner, family, left_censored=model.left_censored, constraints=constraints)


def _n_parameters(model: HSMM, n_states: int) -> int:
    options = _options(model, n_states, model.length_)
    return options.chain.n_parameters(model.length_, _emission(model, options.constraints), "free")


def _corpus(model: HSMM, emission: SegmentEmission, examples: list[Example]) -> Corpus:
    return corpus_of(examples, emission, model.n_states, model._device(), DTYPES[model.dtype_])


def _objective_at(model: HSMM, examples: list[Example]) -> tuple[SegmentObjective, Tensor, Tensor]:
    """What ``fit`` maximises on these examples, near the fitted parameters, and the shift and scale to raw units."""
    parameters, encoding, k = model.parameters_, model.encoding_, len(model.parameters_.initial)
    options, least = _options(model, k, model.length_), 1 / sum(map(len, joined_values(examples)))
    emission = _emission(model, options.constraints)
    names = list(range(encoding.size)) if encoding.names is None else list(encoding.names)
    inner = emitted_of(model.observation_, encoding.size, names, least)
    emitted = SegmentEmitted(inner, emission, options.constraints)
    coordinates = Coordinates(parameters, emission, emitted, options.chain, "free", least)
    corpus = corpus_of(examples, emission, k, torch.device("cpu"), torch.float64)
    shift, scale = (torch.as_tensor(v, dtype=torch.float64) for v in encoding.affine())
    return SegmentObjective(coordinates, emission, options.chain.pseudocount, corpus.batches), shift, scale


# -- EM ----------------------------------------------------------------------------------------------------------------


def _fitting_and_corpus(model: HSMM, examples: list[Example]) -> tuple[Fitting, Corpus]:
    """How the model is to be fitted, and to what."""
    model._fitted_durations = (model.durations, model.max_duration, model.left_censored)
    options = _options(model, model.n_states, model.length_)
    options.check_together(model.observation_)
    emission = _emission(model, options.constraints)
    n_units, log_det = raw_size(examples, model.encoding_)
    chain, corpus = options.chain, _corpus(model, emission, examples)
    n_init = 1 if _is_warm_start(model) else n_starts(model.n_init, model.algorithm, options.steps, corpus)
    fitting = Fitting(
        MAPObjective(emission, chain.pseudocount, chain.constraints, n_units, log_det),
        chain.topology,
        StopRule(model.max_iter, model.tol, model.max_seconds and model.max_seconds / n_init),
        algorithm=model.algorithm,
        batches=model.training.batches,
        step_decay=model.training.step_decay,
        lr=0.0,
        n_init=n_init,
        random_state=model.random_state,
        has_final=model.length_ == "stop",
        e_step_of_batch=e_step_of_batch,
    )
    return fitting, corpus


def _starts(model: HSMM, fitting: Fitting, corpus: Corpus, n_init: int | None = None) -> list[Parameters]:
    """From the states and mean durations of an HMM after some EM steps."""
    objective, options = fitting.objective, _options(model, model.n_states, model.length_)
    emission = objective.emission
    assert isinstance(emission, SegmentEmission), "of this model"
    guesses = starts(
        emission.inner,
        corpus.batches,
        corpus.n_states,
        has_final=model.length_ == "stop",
        generators=[torch.Generator().manual_seed(model.random_state + i) for i in range(n_init or fitting.n_init)],
        topology=options.steps,
        tying=options.constraints.emission,
    )
    constraints = Constraints(Frozen(), options.constraints.emission)
    of_hmm = replace(objective, emission=emission.inner, constraints=constraints)
    stop, segments = StopRule(STEPS_OF_START, model.tol), options.chain.topology
    tying = options.constraints.durations
    return [_with_durations(_as_hmm(guess, of_hmm, corpus, stop), emission, segments, tying) for guess in guesses]


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


def _with_durations(parameters: Parameters, emission: SegmentEmission, segments: Topology, tying: Tying) -> Parameters:
    """The parameters of an HMM, its self-transitions as durations of equal means; ``segments``: what follows what."""
    k, family = len(parameters.initial), emission.family
    mean = 1 / (1 - parameters.transition.diag())
    # A state that is never left: as long as can be.
    mean = torch.where(torch.isfinite(mean), mean, float(family.longest))
    mean = tying.spread(torch.stack([mean[tying.group == g].mean() for g in range(tying.n_groups)]))
    table = torch.cat([parameters.table, family.with_mean(mean)], 1)
    if family.follows_itself:
        return replace(parameters, table=table)
    successors = segments.transition_mask(k).to(parameters.transition)
    rows = parameters.transition * successors
    final = parameters.final
    total = rows.sum(1) + (0.0 if final is None else final)
    # A state that is never left: whatever follows it is as probable.
    rows = torch.where(
        (total > 0)[:, None], rows / total[:, None], successors / successors.sum(1).clamp(min=1)[:, None]
    )
    final = None if final is None else torch.where(total > 0, final / total, 1.0 * (successors.sum(1) == 0))
    return Parameters(parameters.initial, rows, final, table)


def _run(
    group: Sequence[Parameters],
    *,
    fitting: Fitting,
    corpus: Corpus,
    callback: em.Callback,
    checkpoints: Checkpoints,
) -> list[FitResult]:
    batches, emission = corpus.own_batches(), fitting.objective.emission
    assert isinstance(emission, SegmentEmission), "of this model"

    def expectations(parameters: Parameters) -> Expectations:
        return e_step(parameters, emission, batches, corpus.dtype)

    return baum_welch(
        group,
        fitting.objective,
        [],
        corpus.dtype,
        fitting.stop,
        callback=callback,
        checkpoints=checkpoints,
        e_step_of_one=expectations,
    )


def _of_frames(statistics: RunningStatistics | None, corpus: Corpus) -> RunningStatistics | None:
    """Averages over frames, of what EM gives by the number of segments."""
    n_frames = sum(w * len(x) for w, x in zip(corpus.weights, corpus.sequences, strict=True))
    if statistics is None or statistics.n_frames == n_frames:
        return statistics
    return RunningStatistics(statistics.mean.scaled(statistics.n_frames / n_frames), statistics.n_batches, n_frames)


# -- the states of sequences -------------------------------------------------------------------------------------------


def _run_on_each(
    model: HSMM,
    X: Any,
    y: Any,
    algorithm: StateAlgorithm[Tensor],
    *,
    of_steps: bool = True,
    first: np.ndarray | None = None,
) -> list[np.ndarray]:
    """What an algorithm finds for each sequence; where that is ``of_steps``, those of a past are left out, and first
    frames of a series, which are no steps, have ``first``, or what the first step has.
    """
    examples, each = _states_of_each(model, X, y, algorithm)
    results = [result.cpu().numpy() for result in each]
    return of_each_frame(examples, results, first) if of_steps else results


@torch.no_grad()
def _states_of_each(
    model: HSMM, X: Any, y: Any, algorithm: StateAlgorithm[Result]
) -> tuple[list[Example], list[Result]]:
    """Encoded sequences, and what an algorithm finds for each, in float64 where float32 cannot hold the data."""
    data = checked_data(model, X, y)
    if data.y is not None:
        data.refuse_past("the states of pairs")
    examples = [replace(e, weight=1.0) for e in model._setting().examples(data)]
    precise = in_float64(model) if need_float64(examples) else model
    parameters, emission = model.parameters_.to(model._device()), _emission(model)
    corpus = _corpus(precise, emission, examples)
    results: dict[int, Result] = {}
    for batch, trellis in each_trellis(parameters, emission, corpus.each_batch(), corpus.dtype):
        results.update(zip(batch.indices, algorithm(batch, trellis), strict=True))
    return examples, [results[i] for i in range(len(examples))]


def _without_past(model: HSMM, X: Any, y: Any, question: str) -> Data:
    """Checked data; raises ``ValueError`` where sequences have a past."""
    data = checked_data(model, X, y)
    data.refuse_past(question)
    return data


def _log_continue(
    parameters: Parameters, filtered: SemiMarkovFiltered, trellis: SemiMarkovTrellis, sequence: int, frame: int
) -> float:
    """log p(there is a next step | the steps up to and with ``frame``): a segment goes on, or another follows."""
    row = int(trellis.packing.offsets[frame] + trellis.packing.rank[sequence])
    follows = filtered.log_ended[row] + parameters.transition.sum(1).log()
    return float(torch.logsumexp(torch.cat([filtered.log_continues[row], follows]), 0))
