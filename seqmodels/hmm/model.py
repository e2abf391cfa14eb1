"""``HMM``: a hidden Markov chain and an observation as a ``SequenceModel``."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, overload

import numpy as np
import torch

from seqmodels.common.array_checks import array_of, numbers_of
from seqmodels.common.attributes import AbsentAttributeError
from seqmodels.common.distributed import is_rank_zero, propagate_errors
from seqmodels.common.main_memory import refuse_beyond_memory
from seqmodels.common.parameters import Seed, checked, made_with, undone_on_failure
from seqmodels.encodings import Encoding, Standardize
from seqmodels.encodings.auto_series import SeriesChoice
from seqmodels.encodings.defaults import Choices, may_have_unseen_symbols
from seqmodels.encodings.examples import Example, of_each_frame
from seqmodels.encodings.inputs import InputScaling, chosen_inputs
from seqmodels.encodings.precision import DTYPES, in_float64
from seqmodels.encodings.raw_data import Data
from seqmodels.encodings.series import SeriesEncoding
from seqmodels.encodings.setting import Setting
from seqmodels.generation import CursorState, MergedStates
from seqmodels.generation.inputs import encode_source
from seqmodels.hmm.choices_by_clusters import chosen_by_clusters
from seqmodels.hmm.conjugate import ConjugatePrior, conjugate_of
from seqmodels.hmm.corpus import Corpus, check_states, corpus_of, joined_values, raw_size, validation_score
from seqmodels.hmm.cursor import HMMCursor, HMMState, merged_states
from seqmodels.hmm.emissions import Emission, emission_of
from seqmodels.hmm.emissions.autoregressive import AutoregressiveEmission
from seqmodels.hmm.emissions.given_inputs import regression_of
from seqmodels.hmm.estimates import Coordinates, GivenInputs, emitted_of
from seqmodels.hmm.few_frames import FewFrames, are_few
from seqmodels.hmm.from_parameters import (
    chain_parameters,
    emission_table,
    initial_slopes_of,
    input_scaling,
    table_slopes_of,
    transition_slopes_of,
)
from seqmodels.hmm.hidden_states import HiddenStateModel
from seqmodels.hmm.hmmlearn import ARGUMENTS, hint_of_attribute
from seqmodels.hmm.learning.chain_arguments import ChainInputEffects, ChainTraining
from seqmodels.hmm.learning.em import MAPObjective, RunningStatistics, StopRule
from seqmodels.hmm.learning.first_state import STARTS, Start, check_initial
from seqmodels.hmm.learning.fitting import Fitting
from seqmodels.hmm.learning.given_inputs import InputOptions, relative_to_references
from seqmodels.hmm.learning.options import (
    Algorithm,
    ChainOptions,
    StartChoice,
    StartData,
    check_algorithm,
    check_numbers,
    check_observation,
    check_same_inputs,
    check_same_start,
    check_table_size,
    check_variational,
    check_with_inputs,
)
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
from seqmodels.hmm.learning.variational import (
    VariationalObjective,
    VariationalPosterior,
    drawn_parameters,
    mean_parameters,
    prior_hyperparameters,
)
from seqmodels.hmm.levels_or_changes import forecasts_changes_better
from seqmodels.hmm.missing_past import PastFilter, fitted_filter, has_missing, mean_filter
from seqmodels.hmm.parameters import Parameters, check_arrays
from seqmodels.hmm.profile_likelihood import profile_interval
from seqmodels.hmm.scoring import score_steps, score_sums
from seqmodels.hmm.standard_errors import FitObjective, check_level, standard_errors
from seqmodels.hmm.state_forecast import StateForecast, state_forecasts
from seqmodels.hmm.state_paths import (
    ForcedAlignment,
    StatePath,
    batch_alignments,
    batch_best_paths,
    check_n_paths,
    checked_labels,
    forced_alignments,
    state_paths,
)
from seqmodels.hmm.state_queries import (
    Result,
    StateAlgorithm,
    batch_beliefs,
    batch_draws,
    batch_last_log_beliefs,
    batch_log_prob_of_paths,
    batch_paths,
    batch_posterior,
    checked_paths,
    log_dets,
    need_float64,
    paths_of_steps,
    permutation_of_states,
    reordered,
    reordered_observation,
    run_on_corpus,
    stationary,
)
from seqmodels.hmm.topology import Topology
from seqmodels.inference.chains.time_varying import log_initial, log_transitions
from seqmodels.model import NotFittedError
from seqmodels.model.fitting import (
    apply_setting,
    check_arguments,
    checked_data,
    fit_model,
    learn_setting,
    resolved_choices,
)
from seqmodels.model.largest_size import largest_size
from seqmodels.observations import (
    AutoregressiveGaussian,
    Categorical,
    GaussianMixture,
    Observation,
    PseudoFrames,
)
from seqmodels.sequences import Kind, Sequences
from seqmodels.sequences.measure import Length
from seqmodels.training import checkpoints_of_fit
from seqmodels.training.fingerprint import check_processes_agree

if TYPE_CHECKING:
    import pandas as pd

# The default observation of vectors: chosen by experiments/defaults.py.
TRIAL_EM_STEPS = 20  # of models that only say whether a series is to be read as levels
UNLIMITED_EM_STEPS = 1_000_000  # where time alone ends EM
STATES_TO_TRY, STEPS_TO_TRY = 4, 10  # of the small models that observations are compared by, and their EM
PSEUDO_FRAMES = 10.0
BACKGROUND = 0.01

# Up to which float64 costs nothing: what of an E-step hangs on its size is short (on a CPU, of 2 to 48 states).
FLOAT64_DENSITIES = 1 << 15  # of all frames of training data
FLOAT64_DENSITIES_OF_FRAME = 8  # of a frame, where there are no training data
NO_POSTERIOR = "the model has no posterior; fit it with algorithm='variational'"
LEARNED_BESIDE = (
    "starts",
    "shared_autoregression",
    "dtype",
    "start",
    "posterior",
)  # what a file has beside the parameters


@dataclass(eq=False, repr=False)
class HMM(HiddenStateModel):
    """``p(x) = Σ_z π(z_1) b_{z_1}(x_1) Π_t a(z_{t-1}, z_t) b_{z_t}(x_t)``, fitted by EM (Rabiner 1989).

    Args:
        n_states: number of states, K.
        topology: which transitions exist: ``"ergodic"``, ``"left-to-right"``, a ``(K, K)`` mask, or a ``LeftToRight``,
            ``Banded``, ``Arcs`` or ``Series``. The probability of what is ruled out stays exactly zero.
        max_iter: greatest number of EM steps of a start.
        tol: EM stops when a step improves the objective by less than this, in nats per unit; 0 never stops early.
        n_init: number of starts. The start with the best objective wins, and one that ends on a floor loses to one that
            does not (``starts_`` has all). ``"auto"``: up to 8 where data are small (2²⁰ densities in all); 1 where
            they are large, where states are known or ordered, and under other algorithms than EM. On a CPU EM runs from
            several starts side by side where data are small; ``seconds`` in ``history_`` are then those of all. A best
            start that is clearly ahead of all others is warned of.
        pseudocount: number added to every expected count of starts, transitions and ends in the M-step, or a
            ``Pseudocounts`` (asymmetric, sticky). ``"auto"``: 0.01 under ``length="stop"``, where few ends are seen,
            and 0 otherwise.
        max_seconds: seconds after which the fit ends, over all starts; None: no limit.
        algorithm: ``"em"``; ``"stepwise"``, for much data: an M-step after each mini-batch (``max_iter`` counts epochs;
            long sequences are cut, with a warm-up, unless the topology never forgets); ``"gradient"``: AdamW on the
            same objective, whose gradient is the E-step (``max_iter`` is the number of passes over the data, all of
            which are made, and ``tol`` has no effect); or ``"variational"``: variational Bayes (MacKay 1997; Beal 2003)
            for ``Categorical``, ``Bernoulli``, ``Poisson`` and ``GaussianMixture`` (diagonal or full). There the
            ``objective`` is the evidence lower bound, parameters, which score, are the posterior mean, and
            ``observation="auto"`` of vectors is ``GaussianMixture(1)``, without prior and background.
        start: distribution of the first state. ``"free"``: it is learned; ``"stationary"``: it is the one that the
            transitions of an irreducible chain leave as it is (under ``length="stop"``: given that the sequence goes
            on); ``"uniform"``. ``"auto"``: stationary where fewer than 5 sequences, with ``length="given"`` and without
            known states or targets, are fitted by EM with an irreducible topology; free otherwise. ``start_`` says
            which.
        input_effects: a ``ChainInputEffects``: which inputs transitions, emissions and the first state depend on.
        training: a ``ChainTraining``: what few users turn about the fit, such as tied or frozen parameters, the rates
            of the other algorithms, the prior of variational Bayes, and checkpoints.
        dtype: ``"auto"``: ``"float64"`` where it costs nothing, which is where training data have at most 2¹⁵ densities
            in all, frames times states times components; after ``from_parameters`` with up to 8 densities a frame; else
            ``"float32"``. ``dtype_`` says which.

    ``observation="auto"`` is of vectors ``GaussianMixture(1, prior=PseudoFrames(10), background=0.01)``, one diagonal
    Gaussian a state with a weak prior and a broad background: EM then finds the maximum a posteriori, and the prior is
    in ``objective`` and never in ``log_prob`` or ``score``. An observation that is named has no prior unless it says
    so: ``observation=GaussianMixture(1)`` is plain maximum likelihood.

    Where the sequences name three clusters or more (speakers, sensors), of two sequences or more, ``"auto"`` is chosen
    by clusters that small models were not fitted to: where an autoregression predicts these by 0.1 nats a value more,
    ``observation`` comes to ``AutoregressiveGaussian()``, and ``encoding="auto"`` to ``RunningScale(40)`` if that is
    better still. ``reason_`` says so in one line. States then have no ``means_``: name an observation to have them.

    The other arguments are described at ``SequenceModel``. EM needs no held-out data:
    ``validation="auto"`` holds out nothing, and what is passed is scored once, at the end. With targets EM fits p(x,
    y), so the figures of ``history_`` are of x and y together. States that end on the floor of a variance are warned
    of. Parameters are kept in float64.

    Attributes, raw units: ``initial_ (K,)``, ``transition_ (K, K)``, ``final_ (K,)`` (with ``length="stop"``:
    ``transition_.sum(1) + final_ == 1``) and those of the observation: ``weights_ (K, M)``, ``means_ (K, M, D)``,
    ``covariances_ (K, M, D)``, ``(K, M, D, D)`` (full) or ``(D, D)`` (tied); ``emission_ (K, V)``;
    ``coefficients_ (K, D, pD)``, ``intercepts_``, ``covariances_``. ``starts_``: a frame with a row for each start:
    ``start``, ``objective``, ``log_prob`` (both nats per unit), ``floor_hits``, ``chosen``. The last row of
    ``history_`` has the range of their objectives, ``starts_range``. ``shared_autoregression_``: what an autoregressive
    observation was fitted with to missing values (``hmm.missing_past``), encoded; None: nothing. After variational
    Bayes there are ``posterior_`` and ``lower_bound_``, and ``log_prob`` in ``history_`` stands in the last row alone.

    >>> x = [np.array([0, 1, 0, 1, 0, 1]), np.array([1, 0, 1, 0])]
    >>> model = HMM(2, length="given").fit(x)
    >>> round(model.score(x), 3)
    -0.139

    States of given sequences (``decode``, ``posterior``, ``filter``, ``sample_states``, ``forecast_states``) are those
    of encoded steps, of ``x`` and then ``y`` where there are targets. A missing value (NaN) says nothing of its
    feature. Of a series that is read as changes they are of frames: the first ones, of which no difference can be
    taken, have the state of the first step, and ``filter``, which does not look ahead, has ``initial_`` of them.

    ``encoding="auto"`` of up to five series is changes (``encodings.AutoSeries``) where most of them goes on to levels
    that they never had, or where this model, fitted to their first half, forecasts the rest clearly better so.

    >>> chain = {"initial": [0.5, 0.5], "transition": [[0.9, 0.1], [0.2, 0.8]]}
    >>> model, x = HMM.from_parameters(**chain, emission=[[0.9, 0.1], [0.2, 0.8]]), [np.array([0, 0, 1])]
    >>> model.filter(x)[0].round(2)
    array([[0.82, 0.18],
           [0.94, 0.06],
           [0.43, 0.57]])
    >>> model.decode(x)[0]
    array([0, 0, 0])
    >>> model.forecast_states(x, 2)[0].states.round(2)
    array([[0.5 , 0.5 ],
           [0.55, 0.45]])
    >>> model.stationary_.round(3)
    array([0.667, 0.333])
    """

    n_states: int = 8
    max_iter: int = 100
    tol: float = 3e-4
    n_init: int | Literal["auto"] = "auto"
    max_seconds: float | None = None
    pseudocount: float | str | Pseudocounts = "auto"
    topology: Any = "ergodic"
    algorithm: Algorithm = "em"
    _: KW_ONLY
    dtype: str = "auto"
    start: StartChoice = "auto"
    input_effects: ChainInputEffects = field(default_factory=ChainInputEffects)
    training: ChainTraining = field(default_factory=ChainTraining)

    _in_other_words: ClassVar[Mapping[str, str]] = ARGUMENTS
    _bounded_by_data: ClassVar[Mapping[str, str]] = {"n_states": "steps"}
    _dtypes: ClassVar[tuple[str, ...]] = ("auto", *DTYPES)
    _uses_validation: ClassVar[bool] = False
    _reads_series: ClassVar[bool] = True
    _size: ClassVar[str | None] = "n_states"
    _sums_out_missing: ClassVar[bool] = True
    _reads_from_disk: ClassVar[bool] = True
    _fits_in_parallel: ClassVar[bool] = True

    # -- SequenceModel -------------------------------------------------------------------------------------

    @property
    def context_(self) -> int | None:
        return None

    @property
    def dtype_(self) -> str:
        """``"float32"`` or ``"float64"``: ``dtype``, or what ``"auto"`` came to in ``fit``."""
        return self._dtype_of_auto if self.dtype == "auto" else self.dtype

    @property
    def n_parameters_(self) -> int:
        options = _chain_options(self, len(self.parameters_.initial), self.length_)
        free = options.free_rows(len(self.parameters_.initial))
        slopes = _input_options(self).n_parameters(options.n_first_states, *free, _emission(self))
        return options.n_parameters(self.length_, _emission(self), self.start_) + slopes

    @property
    def _reads_inputs(self) -> bool:
        return (
            bool(self.input_effects.transitions)
            or bool(self.input_effects.emissions)
            or bool(self.input_effects.first_state)
        )

    def _inputs_among(self, names: tuple[str, ...]) -> tuple[str, ...]:
        choices = (self.input_effects.transitions, self.input_effects.emissions, self.input_effects.first_state)
        read = [name for choice in choices for name in chosen_inputs(choice, names)]
        return tuple(dict.fromkeys([*(name for name in names if name in read), *read]))

    def _may_read_series(self, data: Data, length: Length) -> bool:
        """Not of states in an order, which say where in the series they are."""
        is_ergodic = isinstance(self.topology, str) and self.topology == "ergodic"
        return (self.n_states == 1 or is_ergodic) and super()._may_read_series(data, length)

    def _changes_of_series(self, sequences: Sequences, encoding: Encoding) -> SeriesChoice | None:
        """States may be levels, so changes are read only where no level is kept, or where they forecast better."""
        changes = super()._changes_of_series(sequences, encoding)
        if changes is None or forecasts_changes_better(self._for_trial(), sequences, encoding, changes):
            return changes
        return None

    def _for_trial(self) -> Self:
        """Unfitted, with the same hyperparameters but for those that make a fit long."""
        limits = {"n_init": 1, "max_iter": min(self.max_iter, TRIAL_EM_STEPS)}
        model = self.clone().set_params(**limits, verbose=False, warm_start=False)
        return model.set_params(training__checkpoint=None, training__resume_from=None)

    def _default_observation(self, kind: Kind) -> Observation:
        if kind == "vectors" and (self.input_effects.emissions or self.algorithm == "variational"):
            return GaussianMixture(1)
        if kind == "vectors":
            return GaussianMixture(1, prior=PseudoFrames(PSEUDO_FRAMES), background=BACKGROUND)
        # Training may have no byte, or no symbol of the class of unknown ones, that comes later.
        is_open = kind == "text" or may_have_unseen_symbols(self.encoding)
        return Categorical(pseudocount=0.01 if is_open and self.algorithm != "variational" else 0.0)

    def _chosen_by_clusters(self, choices: Choices, data: Data) -> Choices:
        """Of several states, whose emissions are not restricted: perhaps an autoregression."""
        is_plain = (
            self.algorithm != "variational"
            and not self._reads_inputs
            and not (self.training.tied or self.training.frozen)
        )
        is_free = self.observation == "auto" and type(choices.encoding) is Standardize
        if not (is_free and is_plain and self.n_states > 1):
            return choices
        chosen = chosen_by_clusters(choices, data, may_encode=self.encoding == "auto", fitted=_tried)
        if self.verbose is True and chosen.reason is not None and is_rank_zero():
            print(chosen.reason)
        return chosen

    def _sums_out(self, observation: Observation) -> bool:
        return super()._sums_out(observation) or isinstance(observation, AutoregressiveGaussian)

    def _limits(self, seconds: float | None, steps: int | None) -> dict[str, Any]:
        time = {} if seconds is None else {"max_seconds": seconds}
        if steps is not None:
            return {"max_iter": steps, **time}
        # The learning rate of gradient ascent follows its number of passes, so there the model's own stands.
        return time if seconds is None or self.algorithm == "gradient" else {"max_iter": UNLIMITED_EM_STEPS, **time}

    def _size_within(self, n_parameters: int, data: Data) -> int | None:
        if self.n_states == 1:  # it stands for no memory
            return None
        like = self.clone()
        apply_setting(like, learn_setting(like, data, by_clusters=True))  # once
        start_data = StartData(len(data.scored), like.length_, data.states is not None, data.y is not None)

        def count(n_states: int) -> int:
            options = _chain_options(like, n_states, like.length_)
            start = options.resolved_start(like.start, like.algorithm, start_data)
            free = options.free_rows(n_states)
            slopes = _input_options(like).n_parameters(options.n_first_states, *free, _emission(like))
            return options.n_parameters(like.length_, _emission(like), start) + slopes

        return largest_size(count, n_parameters, 1, "n_states")

    def _check_hyperparameters(self) -> None:
        check_numbers(self.n_states, self.n_init, self.max_iter, self.tol)
        check_algorithm(
            self.algorithm, self.training.batches, self.training.step_decay, self.max_iter, self.training.lr
        )
        self.training.check()
        if self.max_seconds is not None and not self.max_seconds > 0:
            raise ValueError(f"max_seconds is {self.max_seconds}; pass a number above zero, or None for no limit")
        if self._reads_inputs:
            of_each = {
                "of_transitions": bool(self.input_effects.transitions),
                "of_start": bool(self.input_effects.first_state),
            }
            check_with_inputs(self.algorithm, self.start, self.training.tied, **of_each)
        if not 0 <= self.input_effects.ridge < np.inf:
            raise ValueError(f"ridge is {self.input_effects.ridge}; pass a finite number, 0 or more")
        options = _chain_options(self, self.n_states, self.length)
        options.check_first_state(self.start, self.algorithm, self.length)
        if self.algorithm == "variational":
            check_variational(self.start, self.training.tied, self.training.frozen, self.pseudocount)
        elif self.training.prior is not None:
            raise ValueError(
                "prior is for algorithm='variational'; pass that, or pseudocount and the observation's own prior"
            )
        if _is_warm_start(self):
            options.check_start(self.parameters_, self.length)
            check_same_start(self.start, self.start_)
            known = () if self._input_scaling is None else self._input_scaling.names
            names = ("transitions", "emissions", "first_state")
            slopes = dict(zip(names, self.parameters_.slopes, strict=True))
            choices = {name: getattr(self.input_effects, name) for name in names}
            check_same_inputs(choices, slopes, self._inputs_among(known), known)
            if isinstance(self.observation, Observation):
                check_observation(self.observation, self.observation_, self.encoding_.size)

    @checked
    def fit(
        self, X: Any, y: Any = None, *, validation: Any = "auto", sample_weight: Any = None, states: Any = None
    ) -> Self:
        """As ``SequenceModel.fit``.

        Args:
            states: integers for each sequence (of ``x``, then ``y``), -1 where unknown, or ``(T, K)`` booleans, which
                states are possible, or None; EM then fits p(x, known states).
        """
        with propagate_errors():
            fit_model(self, Data.of(X, y, sample_weight, states), validation)
        return self

    def partial_fit(self, X: Any, y: Any = None, *, sample_weight: Any = None, states: Any = None) -> Self:
        """One step of stepwise EM on these sequences, after all that came before (Cappé and Moulines 2009).

        The first call learns the encoding and a start from them; after ``from_parameters`` or ``load`` it is one EM
        step. It writes no checkpoints. Arguments as of ``fit``.
        """
        import pandas as pd

        with propagate_errors():
            if self.algorithm == "variational":
                raise ValueError("partial_fit is stepwise EM; call fit, or pass algorithm='em'")
            if self._reads_inputs:
                raise ValueError("partial_fit reads no inputs; call fit, or leave input_effects out")
            data = Data.of(X, y, sample_weight, states)
            data.refuse_past("partial_fit")
            check_arguments(self)
            self._check_hyperparameters()
            check_processes_agree(self, data)
            began = time.perf_counter()
            with undone_on_failure(self):
                if not self.__sklearn_is_fitted__():
                    self.shared_autoregression_: torch.Tensor | None = None
                    self._posterior: VariationalPosterior | None = None
                    apply_setting(self, learn_setting(self, data, is_partial=True))
                    self.history_, self.fit_seconds_, self.starts_ = pd.DataFrame(), 0.0, starts_table([], None)
                checked_data(self, data.X, data.y)
                examples = self._setting().examples(data, on_disk=True)
                check_states(examples, self.n_states)
                is_continued = "parameters_" in vars(self)
                fitting, corpus = _fitting_and_corpus(self, examples, is_continued=is_continued, is_partial=True)
                fitted: Parameters | None = self.__dict__.get("parameters_")
                start = next(fitting.starts(corpus)) if fitted is None else fitted.to(self._device())
                statistics: RunningStatistics | None = self.__dict__.get("statistics_")
                parameters, statistics, row = fitting.one_step(
                    start.of_first_process(), statistics, corpus, len(self.history_)
                )
                self.parameters_, self._posterior = parameters.to(torch.device("cpu")), None
                self.statistics_: RunningStatistics | None = statistics
                self.converged_ = False
                self.history_ = pd.concat([self.history_, pd.DataFrame([row])], ignore_index=True)
            self.fit_seconds_ += time.perf_counter() - began
        return self

    def _fit(self, train: list[Example], validation: list[Example]) -> None:
        check_states(train, self.n_states)
        check_table_size(self.n_states, self.observation_.n_output_parameters(self.encoding_.size))
        checkpoints = checkpoints_of_fit(self, resolved_choices(self), train, validation)
        if not _is_warm_start(self):
            self.shared_autoregression_ = None
        fitting, corpus = _fitting_and_corpus(self, train, is_continued=_is_warm_start(self))
        run = fitting.algorithm_on(corpus, torch.Generator().manual_seed(self.random_state))
        groups: list[Sequence[Parameters]] = []  # where a checkpoint is resumed, it has those that are left
        if checkpoints.state is None:
            starts = _first_parameters(self, fitting, corpus) if _is_warm_start(self) else fitting.starts(corpus)
            groups = fitting.groups_of(starts, corpus)
        best = best_of(
            groups,
            run,
            max_iter=self.max_iter,
            verbose=self.verbose,
            checkpoints=checkpoints,
            device=corpus.device,
        )
        self.parameters_ = best.parameters.to(torch.device("cpu"))
        self.statistics_ = best.statistics
        self._posterior = None
        if fitting.variational is not None:
            bound = best.last_row["objective"] * fitting.objective.n_units
            self._posterior, self.statistics_ = VariationalPosterior(self.parameters_, bound), None
            best.rows[-1]["log_prob"] = fitting.variational.score(best.parameters, corpus)
            self.parameters_ = mean_parameters(self.parameters_, fitting.variational.family, self.start_)
        self.converged_ = best.converged
        self.starts_ = starts_table(best.starts, best.start)
        self.history_ = best.history_with(
            validation=validation_score(self._sums_of_steps, validation), starts_range=starts_range(best.starts)
        )
        warn_of_floor(best, self.observation_)
        warn_of_disagreement(self.starts_, best, fitting.objective.n_units)

    # -- many sequences at once ----------------------------------------------------------------------------

    def _steps(self, examples: list[Example]) -> list[np.ndarray]:
        few = _few_frames(self, examples)
        steps = None if few is None else few.steps()
        if steps is not None:
            return steps
        parameters, emission = self.parameters_.to(self._device()), _emission(self)
        corpus = _corpus(self, emission, examples, len(parameters.initial))
        return score_steps(parameters, emission, corpus, [e.source for e in examples])

    def _sums_of_steps(self, examples: list[Example]) -> np.ndarray:
        parameters, emission = self.parameters_.to(self._device()), _emission(self)
        corpus = _corpus(self, emission, examples, len(parameters.initial))
        return score_sums(parameters, emission, corpus, [e.source for e in examples], [e.n_past for e in examples])

    def _with_floor(self, factor: float) -> Self:
        other = super()._with_floor(factor)
        table = self.observation_.on_floor(self.parameters_.table, self.encoding_.size, factor)
        other.parameters_ = replace(self.parameters_, table=table)
        return other

    # -- one step at a time --------------------------------------------------------------------------------

    @checked
    def cursor(self, n_steps: int | None = None) -> HMMCursor:
        setting, parameters = self._setting(), self.parameters_.to(self._device())
        make_filter = partial(_past_filter, self) if isinstance(setting.observation, AutoregressiveGaussian) else None
        return HMMCursor(parameters, setting.observation, setting.encoding.size, DTYPES[self.dtype_], make_filter)

    def _merge_states(self, log_weights: list[float], states: list[CursorState]) -> MergedStates:
        return merged_states(log_weights, states)

    def _filtered(self, state: CursorState) -> np.ndarray:
        assert isinstance(state, HMMState), "of this model's cursor"
        if state.log_alpha is None:
            if isinstance(self.encoding_, SeriesEncoding) and self.encoding_.n_initial:
                return self.initial_  # of the first frames, which are no steps
            raise ValueError("the stream has read no step yet, so there is no state to filter; call update first")
        return state.log_alpha[0].exp().cpu().numpy()

    # -- states of given sequences -------------------------------------------------------------------------

    @overload
    def decode(self, X: Any, y: Any = None, *, k: None = None) -> list[np.ndarray]: ...

    @overload
    def decode(self, X: Any, y: Any = None, *, k: int) -> list[list[StatePath]]: ...

    def decode(self, X: Any, y: Any = None, *, k: int | None = None) -> list[np.ndarray] | list[list[StatePath]]:
        """The most probable path of states of each sequence, ``(T,)`` (Viterbi), or the ``k`` most probable ones (list
        Viterbi, Seshadri and Sundberg 1994).

        Of a sequence with a past: the last T states of the path of both; so for the other questions about states.

        Args:
            k: a number: a list of ``StatePath``, ``states`` and ``log_prob``, for each sequence, the best first; it is
                shorter where fewer paths are possible. Of equally probable paths the one of the lowest states, from the
                last frame backwards, comes first.

        Raises:
            ValueError: a sequence that no path can explain, named; with ``k`` a past.

        >>> model = HMM.from_parameters([0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]], emission=[[0.9, 0.1], [0.2, 0.8]])
        >>> for path in model.decode([[0, 0, 1]], k=3)[0]:
        ...     print(path.states, round(path.log_prob, 3))
        [0 0 0] -3.417
        [0 0 1] -3.535
        [1 1 1] -4.581
        """
        if k is None:
            return _run_on_each(self, X, y, batch_paths, of_few=FewFrames.paths)
        check_n_paths(k)
        data = _without_past(self, X, y, "decode with k")
        examples, best = _states_of_each(self, X, y, partial(batch_best_paths, k=k))
        return state_paths(best, log_dets(self._setting(), data, examples), [e.n_initial for e in examples])

    def path_log_prob(self, X: Any, paths: Any, y: Any = None) -> np.ndarray:
        """``(n,)`` nats of each sequence together with a path of its states: log p(x, z), in raw units.

        ``paths``: for each sequence ``(T,)`` integers, as ``decode`` returns them. Of the most probable path it is what
        hmmlearn's ``decode`` returns first; ``log_prob`` is the logarithm of the sum over all paths. Where there are
        targets: log p(x, y, z).

        Raises:
            ValueError: paths of other lengths or states, by sequence.

        >>> model = HMM.from_parameters([0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]], emission=[[0.9, 0.1], [0.2, 0.8]])
        >>> model.path_log_prob([[0, 1]], [[0, 1]]).round(4)  # log(0.5 * 0.9 * 0.1 * 0.8)
        array([-3.3242])
        """
        data = _without_past(self, X, y, "path_log_prob")
        examples = self._setting().examples(data, on_disk=True)
        paths = checked_paths(paths, [_n_steps(e) + e.n_initial for e in examples], len(self.initial_))
        states, can_be = paths_of_steps(paths, [e.n_initial for e in examples])
        encoded = np.array(_run_on_each(self, X, y, partial(batch_log_prob_of_paths, paths=states), of_steps=False))
        return np.asarray(np.where(can_be, encoded, -np.inf) + log_dets(self._setting(), data, examples))

    def align(self, X: Any, labels: Any, y: Any = None) -> list[ForcedAlignment]:
        """Where each of the ``labels`` of a sequence begins and ends (forced alignment): the most probable path that
        goes through all of them in their order, each for one step at least.

        Its probability is that of the model, log p(x, path): transitions within a label and to the next are those of
        ``transition_``. Between two labels of one state, or that share states, nothing tells where the second begins;
        then it is as late as possible.

        Args:
            labels: for each sequence a list of states in their order; in place of a state may stand a group of states,
                as ``(3, 4, 5)`` for a phone of three, among which the path moves freely. Where there are targets: of x
                and then y.

        Raises:
            ValueError: labels that are no states, or more than there are steps; a sequence that no such path can
                explain; a past.

        >>> model = HMM.from_parameters([0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]], emission=[[0.9, 0.1], [0.2, 0.8]])
        >>> (aligned,) = model.align([[0, 0, 1, 1, 0]], [[0, 1, 0]])
        >>> aligned.starts, aligned.ends
        (array([0, 2, 4]), array([2, 4, 5]))
        """
        data = _without_past(self, X, y, "align")
        examples = self._setting().examples(data, on_disk=True)
        groups = checked_labels(labels, [_n_steps(example) for example in examples], len(self.initial_))
        _, best = _states_of_each(self, X, y, partial(batch_alignments, groups=groups))
        return forced_alignments(best, log_dets(self._setting(), data, examples), [e.n_initial for e in examples])

    def _smoothed_states(self, X: Any, y: Any) -> list[np.ndarray]:
        return _run_on_each(self, X, y, batch_posterior, of_few=FewFrames.posteriors)

    def _filtered_states(self, X: Any, y: Any) -> list[np.ndarray]:
        return _run_on_each(self, X, y, batch_beliefs, first=self.initial_, of_few=FewFrames.beliefs)

    def _shares_and_durations(self) -> tuple[np.ndarray, np.ndarray]:
        p = self.parameters_
        share = stationary(p.initial.numpy(), p.transition.numpy(), None if p.final is None else p.final.numpy())
        with np.errstate(divide="ignore"):
            return share, 1 / (1 - np.diag(p.transition.numpy()))

    def _emissions_by_state(self, names: Sequence[str]) -> Mapping[str, np.ndarray]:
        return _emission(self).by_state(self.parameters_.table, *self.encoding_.affine(), names)

    def _drawn_states(self, X: Any, y: Any, n: int, seed: int) -> list[np.ndarray]:
        generator = torch.Generator(self._device()).manual_seed(seed)
        return _run_on_each(self, X, y, partial(batch_draws, n=n, generator=generator))

    @checked
    def forecast_states(self, X: Any, k: int = 1, *, y: Any = None) -> list[StateForecast]:
        """What follows each sequence, 1 to ``k`` steps ahead: states, and observations in raw units.

        Raises:
            ValueError: a sequence of probability zero, named.
        """
        if k < 1:
            raise ValueError(f"k is {k}; pass at least 1")
        refuse_beyond_memory(f"forecasts of {k} steps", 8.0 * k * self.n_states, "pass a smaller k")
        if self._reads_inputs:
            raise ValueError("forecast_states knows no inputs of the steps ahead; call forecast(X, k, inputs=...)")
        log_beliefs = _run_on_each(self, X, y, batch_last_log_beliefs, of_steps=False)
        examples = self._setting().examples(checked_data(self, X, y))
        past_filter = _past_filter(self) if _misses_past(self, examples) else None
        affine = self.encoding_.affine()
        each = state_forecasts(self.parameters_, self.observation_, log_beliefs, examples, k, affine, past_filter)
        return [forecast.encoded_by(self.encoding_) for forecast in each]

    @checked
    def as_pyro(self, length: int, *, source: Any = None) -> Any:
        """p(x) of raw sequences of ``length`` steps as a Pyro distribution (``seqmodels.model.pyro_distribution``)."""
        from seqmodels.model.pyro_distribution import SequenceDistribution  # lazily: Pyro is slow to import

        encode_source(self, source)  # which refuses one that the model does not read
        return SequenceDistribution(self, length, source)

    # -- the chain -----------------------------------------------------------------------------------------

    @property
    def stationary_(self) -> np.ndarray:
        """``(K,)`` share of its steps that a long sequence from ``initial_`` spends in each state.

        Where ends are events: expected visits of a sequence, as shares. A chain that falls apart has several stationary
        distributions; this is the one that it is led to from ``initial_``.
        """
        p = self.parameters_
        if p.transition_slopes is not None:
            raise AbsentAttributeError(
                "transitions depend on inputs, so there is no stationary distribution; see transition_at, or call "
                "plot.transitions_by_input"
            )
        return stationary(p.initial.numpy(), p.transition.numpy(), None if p.final is None else p.final.numpy())

    @checked
    def reorder(self, order: Sequence[int] | np.ndarray | Literal["mean", "stationary"]) -> Self:
        """A copy whose state i is this model's state ``order[i]``: the same probabilities under other numbers.

        What was said of single states (a topology, ``tied``, ``frozen``, priors) goes with them, so that ``warm_start``
        goes on from the copy as it would from this model. The statistics of earlier batches of ``partial_fit`` do not.

        Args:
            order: a permutation of the states; ``"mean"``: by the means of vectors, the first feature first;
                ``"stationary"``: those visited most first.
        """
        parameters = self.parameters_
        permutation = permutation_of_states(order, lambda: self.stationary_, _raw_parameters(self))
        k = len(parameters.initial)
        if permutation.shape != (k,) or not np.array_equal(np.sort(permutation), np.arange(k)):
            raise ValueError(f"order is {order!r}; pass each of the states 0 to {k - 1} once")
        other = copy.copy(self).set_params(**reordered(self.get_params(deep=False), permutation))
        other.observation_ = reordered_observation(self.observation_, permutation)
        other.parameters_ = relative_to_references(parameters.take(torch.as_tensor(permutation.astype(np.int64))))
        other.statistics_ = None
        if self._posterior is not None:
            other._posterior = self._posterior.take(torch.as_tensor(permutation.astype(np.int64)))
        return other

    # -- how sure the parameters are -----------------------------------------------------------------------

    def standard_errors(self, X: Any, y: Any = None, *, level: float = 0.95) -> pd.DataFrame:
        """A frame with a row for each estimated parameter: ``name``, ``state``, ``feature``, ``estimate``,
        ``standard_error``, ``ci_low``, ``ci_high`` and ``note``, in raw units.

        From the observed information, the negative Hessian of what ``fit`` maximises (the log-likelihood, where there
        are targets of both, and the log-prior where there is one), and the delta method: right for many data, at the
        maximum, and of the right number of states. The Hessian is of central differences of exact gradients, to about
        1e-7 of its largest entries; P free parameters take 2 P + 1 E-steps in float64, on the CPU.

        States have no order: the errors are those of this maximum, under these numbers. ``feature`` is a name or
        number: of transitions the state after it; of several components ``(component, feature)``; of full covariances
        a pair; of autoregressions ``(feature, past feature, steps back)``; of slopes ``(state after it, input)`` or
        ``(feature, input)``, of those of the first state the input; beside slopes, other parameters are those where all
        inputs are at their mean. Intervals of probabilities are symmetric on the scale of log-odds, those of variances
        and rates on that of logarithms. A parameter on a boundary (a probability near 0 or 1, given inputs on average;
        a variance on its floor), or that the data do not identify, has NaN and a ``note`` that says why; the others are
        then given that it stays there.
        What is frozen, or ruled out by the topology, has no row.

        Args:
            X, y: the training data.
            level: of the intervals.

        Raises:
            ValueError: an observation whose standard errors are not known; missing values in the past of an
                autoregression; a sequence of probability zero; a past.

        >>> from seqmodels import Poisson
        >>> x = [np.random.default_rng(0).poisson(4.0, (100, 1))]
        >>> frame = HMM(1, observation=Poisson()).fit(x).standard_errors(x)
        >>> frame[["name", "estimate", "standard_error"]].round(3)
            name  estimate  standard_error
        0  rates      4.32           0.208
        """
        check_level(level)
        data = _without_past(self, X, y, "standard_errors")
        return standard_errors(*_objective_at(self, self._setting().examples(data)), level)

    def profile_interval(
        self, X: Any, name: str, state: int | None = None, feature: Any = None, *, y: Any = None, level: float = 0.95
    ) -> tuple[float, float]:
        """The interval of one parameter by its profile likelihood, in raw units (Venzon and Moolgavkar 1988).

        It has every value for which the largest likelihood over all other parameters is within ``χ²/2`` of the largest
        of all, so it does not take the likelihood for quadratic, as ``standard_errors`` does: for few data, and near
        boundaries. It takes some tens of E-steps more.

        Args:
            X, y: the training data.
            name, state, feature: as in a row of ``standard_errors``.
            level: of the interval.

        Raises:
            ValueError: no such parameter, or one on a boundary or not identified; an end that is not reached, where the
                likelihood stays as large; as ``standard_errors``.

        >>> from seqmodels import Poisson
        >>> x = [np.random.default_rng(0).poisson(4.0, (100, 1))]
        >>> low, high = HMM(1, observation=Poisson()).fit(x).profile_interval(x, "rates", 0, 0)
        >>> round(low, 3), round(high, 3)
        (3.925, 4.74)
        """
        check_level(level)
        data = _without_past(self, X, y, "profile_interval")
        objective, shift, scale = _objective_at(self, self._setting().examples(data))
        return profile_interval(objective, shift, scale, (name, state, feature), level)

    # -- how many states -----------------------------------------------------------------------------------

    @property
    def lower_bound_(self) -> float:
        """The evidence lower bound of the training data, in nats of raw units, by weight: ``log p(X) >=`` this, where
        parameters are integrated out under the prior (``algorithm="variational"``).

        It compares numbers of states on the same data, and is not ranked with log-probabilities of given parameters.
        """
        return _variational(self).lower_bound

    @property
    def posterior_(self) -> Mapping[str, np.ndarray]:
        """Hyperparameters of the posterior, of parameters in raw units (``algorithm="variational"``).

        ``initial (K,)``, ``transition (K, K)``, and ``final (K,)`` under ``length="stop"``: concentrations. Of
        symbols ``emission (K, V)``: concentrations; of counts ``shape`` and ``rate (K, D)``; of bits ``on`` and
        ``off (K, D)``; of mixtures ``weights (K, M)``: concentrations, ``mean (K, M, D)``, ``mean_count``, and of
        precisions ``precision_shape`` and ``precision_rate (K, M, D)``, or ``degrees_of_freedom (K, M)`` and
        ``inverse_scale (K, M, D, D)``.
        """
        hyper, family = _variational(self).hyper, conjugate_of(self.observation_, self.encoding_.size)
        final = {} if hyper.final is None else {"final": hyper.final.numpy()}
        chain = {"initial": hyper.initial.numpy(), "transition": hyper.transition.numpy(), **final}
        return {**chain, **family.raw(hyper.table, *self.encoding_.affine())}

    @checked
    def sample_posterior(self, n: int = 1, *, random_state: Seed | None = None) -> list[Self]:
        """``n`` models whose parameters are drawn from the posterior (``algorithm="variational"``), to be scored,
        sampled from, or decoded with.

        Args:
            n: at least 1.
            random_state: seed; None takes the model's.
        """
        if n < 1:
            raise ValueError(f"n is {n}; pass at least 1")
        hyper, family = _variational(self).hyper, conjugate_of(self.observation_, self.encoding_.size)
        generator = torch.Generator().manual_seed(self.random_state if random_state is None else random_state)
        models = []
        for _ in range(n):
            model = copy.copy(self).set_params(algorithm="em", training__prior=None)
            model.parameters_, model._posterior = drawn_parameters(hyper, family, self.start_, generator), None
            models.append(model)
        return models

    # -- parameters ----------------------------------------------------------------------------------------

    @property
    def initial_(self) -> np.ndarray:
        """``(K,)`` probability of each state at the first step; where it depends on inputs, with all at their mean."""
        return self.parameters_.initial.numpy()

    @property
    def transition_(self) -> np.ndarray:
        """``(K, K)`` probability of state j after state i; where they depend on inputs, with all at their mean."""
        return self.parameters_.transition.numpy()

    @property
    def transition_slopes_(self) -> np.ndarray:
        """``(K, K, U)``: by how much the log-odds of going to j rather than staying rise with a unit of an input.

        In the order of ``input_names_``; zeros of inputs that transitions do not depend on. The reference of a state
        that cannot stay is the first that it leads to.
        """
        slopes, scaling = self.parameters_.transition_slopes, self._input_scaling
        if slopes is None or scaling is None:
            raise AttributeError(f"this {type(self).__name__} has transitions that depend on no inputs")
        return np.asarray(slopes.numpy() / scaling.scale)

    @property
    def initial_slopes_(self) -> np.ndarray:
        """``(K, U)``: by how much the log-odds of starting in a state rather than in the first possible one rise with a
        unit of an input of the first step, in the order of ``input_names_``.
        """
        slopes, scaling = self.parameters_.initial_slopes, self._input_scaling
        if slopes is None or scaling is None:
            raise AttributeError(f"this {type(self).__name__} has a first state that depends on no inputs")
        return np.asarray(slopes.numpy() / scaling.scale)

    @property
    def emission_slopes_(self) -> np.ndarray:
        """``(K, D, U)``, of symbols ``(K, V, U)``: what a unit of each input adds, in the order of ``input_names_``.

        To the mean of a feature in its raw unit, to the log-odds of a bit, the log-rate of a count, or the log-odds of
        a symbol to the first.
        """
        slopes, scaling = self.parameters_.table_slopes, self._input_scaling
        if slopes is None or scaling is None:
            raise AttributeError(f"this {type(self).__name__} has emissions that depend on no inputs")
        location = regression_of(self.observation_, self.encoding_.size).location
        of_location = np.concatenate([slopes[:, each].numpy() for each in location], 1)
        units = self.encoding_.affine()[1] if self.encoding_.emits == "vectors" else np.ones(1)
        return np.asarray(of_location * units[:, None] / scaling.scale)

    def transition_at(self, inputs: Any) -> np.ndarray:
        """``(T, K, K)`` transitions into steps with these inputs, ``(T, U)`` or a mapping from names to values."""
        slopes, scaling = self.parameters_.transition_slopes, self._input_scaling
        if slopes is None or scaling is None:
            raise ValueError("the transitions depend on no inputs; see transition_")
        u = torch.as_tensor(scaling.encode_steps(inputs))
        return log_transitions(self.parameters_.transition, slopes, u).exp().numpy()

    def initial_at(self, inputs: Any) -> np.ndarray:
        """``(n, K)`` the first state where the first step has these inputs, ``(n, U)`` or a mapping from names to
        values.
        """
        slopes, scaling = self.parameters_.initial_slopes, self._input_scaling
        if slopes is None or scaling is None:
            raise ValueError("the first state depends on no inputs; see initial_")
        u = torch.as_tensor(scaling.encode_steps(inputs))
        return log_initial(self.parameters_.initial, slopes, u).exp().numpy()

    @property
    def final_(self) -> np.ndarray:
        """``(K,)`` probability that the sequence ends after a step in each state (zeros where lengths are given)."""
        final = self.parameters_.final
        return np.zeros(len(self.initial_)) if final is None else final.numpy()

    def _named_parameters(self) -> Mapping[str, Any]:
        return _raw_parameters(self) if "parameters_" in vars(self) else {}

    def _hint_of(self, name: str) -> str:
        return hint_of_attribute(name)

    @classmethod
    @checked
    def from_parameters(
        cls,
        initial: Any,
        transition: Any,
        final: Any = None,
        *,
        weights: Any = None,
        means: Any = None,
        covariances: Any = None,
        covariance_type: Literal["diag", "spherical", "full", "tied"] = "diag",
        emission: Any = None,
        probabilities: Any = None,
        rates: Any = None,
        transition_slopes: Any = None,
        emission_slopes: Any = None,
        initial_slopes: Any = None,
        inputs: InputScaling | Mapping[str, float] | None = None,
        encoding: Encoding | None = None,
        observation: Observation | None = None,
        **options: Any,
    ) -> Self:
        """A fitted HMM from its parameters, in raw units.

        Args:
            initial: ``(K,)`` probabilities.
            transition: ``(K, K)`` probabilities; rows, plus ``final``, sum to one.
            final: ``(K,)`` probabilities of the end after each state; None: ``length="given"``.
            weights, means, covariances: ``(K, M)``, ``(K, M, D)``, and ``(K, M, D)`` (diag), ``(K, M, D, D)`` (full),
                ``(D, D)`` (tied), ``(K, M)`` or ``(K, M, D)`` (spherical); without ``weights``, M = 1 and the M axis is
                left out.
            covariance_type: what ``covariances`` are: ``"diag"``, ``"full"``, ``"tied"`` or ``"spherical"``.
            emission: ``(K, V)`` probabilities of symbols, instead of the four above.
            probabilities: ``(K, D)`` of bits (``Bernoulli``), instead of all these.
            rates: ``(K, D)`` of counts (``Poisson``), instead of all these.
            transition_slopes, emission_slopes, initial_slopes: ``(K, K, U)``, ``(K, D, U)`` and ``(K, U)``, as the
                attributes of these names, in units of one unit of each raw input. They depend on all inputs, unless
                ``input_effects`` names some.
            inputs: the U inputs by name, each with its value where the other parameters hold, as ``{"heat": 20.0}``; or
                the ``input_scaling_`` of a fitted model.
            encoding: a fitted one: how symbols are read (``Bytes()`` for text; by default integers as they are), or the
                units that vectors are computed in (by default the model's own mean and deviation).
            observation: for its M-step (``pseudocount``, ``min_covariance``), if ``fit`` is to go on with
                ``warm_start=True``.
            options: other arguments of ``HMM``.

        Raises:
            ValueError: rows that do not sum to one, negative probabilities, shapes that do not fit, values out of
                range, a variance below the floor; slopes without inputs, or of inputs that nothing depends on.

        >>> chain = {"initial": [0.5, 0.5], "transition": [[0.9, 0.1], [0.2, 0.8]], "rates": [[1.0], [5.0]]}
        >>> slopes = [[[0.0], [0.3]], [[0.0], [0.0]]]
        >>> model = HMM.from_parameters(**chain, transition_slopes=slopes, inputs={"heat": 20.0})
        >>> model.transition_at({"heat": [20.0, 25.0]})[:, 0].round(3)
        array([[0.9  , 0.1  ],
               [0.668, 0.332]])
        """
        import pandas as pd

        k = len(numbers_of("initial", initial, "(K,)"))
        encoding, observation, table = emission_table(
            k,
            emission=emission,
            probabilities=probabilities,
            rates=rates,
            mixture=(weights, means, covariances, covariance_type),
            encoding=encoding,
            observation=observation,
        )
        parameters = chain_parameters(initial, transition, final, table)
        length: Length = "given" if final is None else "stop"
        given = {"transitions": transition_slopes, "emissions": emission_slopes, "first_state": initial_slopes}
        named = options.get("input_effects", ChainInputEffects())
        if isinstance(named, ChainInputEffects):  # what depends on inputs, unless it is named, depends on all of them
            implied = {name: True for name, slopes in given.items() if slopes is not None and not getattr(named, name)}
            options["input_effects"] = named.clone().set_params(**implied)
        model = made_with(cls, options, n_states=k, observation=observation, length=length)
        setting = Setting.from_fitted(encoding, observation.clone(), length, conditional=False)
        if model._reads_inputs or inputs is not None:
            setting = setting.with_inputs(input_scaling(inputs))
        apply_setting(model, setting)
        if setting.inputs is not None:
            _check_given_inputs(model)
            slopes_of = _input_options(model), setting.inputs.scale
            if model.input_effects.transitions:
                of_transitions = transition_slopes_of(transition_slopes, k, *slopes_of)
                parameters = replace(parameters, transition_slopes=of_transitions)
            if model.input_effects.emissions:
                of_table = table_slopes_of(emission_slopes, table, observation, encoding, *slopes_of)
                parameters = replace(parameters, table_slopes=of_table)
            if model.input_effects.first_state:
                parameters = replace(parameters, initial_slopes=initial_slopes_of(initial_slopes, k, *slopes_of))
            parameters = relative_to_references(parameters)
        model.parameters_, model.shared_autoregression_, model._posterior = parameters, None, None
        model.history_, model.converged_, model.fit_seconds_ = pd.DataFrame(), True, 0.0
        model.starts_ = starts_table([], None)
        model.start_ = "free" if model.start == "auto" else model.start
        if model.start_ != "free":
            options_of_chain = _chain_options(model, k, length)
            options_of_chain.check_first_state(model.start, model.algorithm, length)
            check_initial(parameters, model.start_, options_of_chain.topology)
        model._dtype_of_auto = dtype_of_size(_emission(model).n_densities(k), FLOAT64_DENSITIES_OF_FRAME)
        return model

    def _state(self) -> dict[str, Any]:
        shared = self.shared_autoregression_
        state = {
            **self.parameters_.arrays(),
            "starts": starts_arrays(self.starts_),
            "dtype": self._dtype_of_auto,
            "start": self.start_,
        }
        if self._posterior is not None:
            state["posterior"] = self._posterior.arrays()
        return state if shared is None else {**state, "shared_autoregression": shared.numpy()}

    def _restore(self, state: dict[str, Any]) -> None:
        self.starts_ = starts_from_arrays(state.get("starts"))
        self.start_: Start = state.get("start", "free")  # which it was in files of earlier versions
        if self.start_ not in STARTS:
            raise ValueError(f"start is {self.start_!r} in the file; it should be one of {', '.join(STARTS)}")
        self._dtype_of_auto = state.get("dtype", "float32")  # which it was in files of earlier versions
        if self._dtype_of_auto not in DTYPES:
            raise ValueError(f"dtype is {self._dtype_of_auto!r} in the file; it should be one of {', '.join(DTYPES)}")
        self.shared_autoregression_ = None
        if "shared_autoregression" in state:
            n_numbers = self.observation_.n_output_parameters(self.encoding_.size)
            row = torch.tensor(array_of(state, "shared_autoregression", np.float64, (n_numbers,)))
            self.observation_.check_table(row[None], self.encoding_.size)
            self.shared_autoregression_ = row
        posterior = state.get("posterior")
        state = {name: array for name, array in state.items() if name not in LEARNED_BESIDE}
        scaling = self._input_scaling
        choices = {
            "transition_slopes": self.input_effects.transitions,
            "table_slopes": self.input_effects.emissions,
            "initial_slopes": self.input_effects.first_state,
        }
        slopes = [name for name, choice in choices.items() if choice]
        n_inputs = 0 if scaling is None else len(scaling.names)
        check_arrays(state, self.n_states, has_end=self.length_ == "stop", slopes=slopes, n_inputs=n_inputs)
        self.parameters_ = Parameters.from_arrays(state)
        self.observation_.check(self.encoding_.size)
        self.observation_.check_table(self.parameters_.table, self.encoding_.size)
        self._posterior = None
        if posterior is not None:
            family = conjugate_of(self.observation_, self.encoding_.size)
            self._posterior = VariationalPosterior.from_arrays(posterior, self.parameters_, family)


def _tried(observation: Observation, encoding: Encoding) -> HMM:
    """A small model, to compare observations by."""
    return HMM(STATES_TO_TRY, STEPS_TO_TRY, n_init=1, observation=observation.clone(), encoding=encoding.clone())


def _check_given_inputs(model: HMM) -> None:
    """Raise ``ValueError`` for inputs that are not those that the hyperparameters name, or that go not with others."""
    assert model._input_scaling is not None
    names = model._input_scaling.names
    read = model._inputs_among(names)
    if read != names:
        lacking = [name for name in read if name not in names]
        unread = [name for name in names if name not in read]
        problem = (
            f"has no {lacking[0]!r}, which is named" if lacking else f"has {unread[0]!r}, which nothing depends on"
        )
        raise ValueError(f"inputs {problem}; pass the inputs that input_effects names, and slopes of them")
    if model.length_ == "stop":
        raise ValueError("the inputs of a sequence say how long it is, so that its end is no event; leave final out")
    of_each = {
        "of_transitions": bool(model.input_effects.transitions),
        "of_start": bool(model.input_effects.first_state),
    }
    check_with_inputs(model.algorithm, model.start, model.training.tied, **of_each)


def dtype_of_size(n_densities: int, most: int) -> str:
    """What ``dtype="auto"`` comes to where there are ``n_densities``."""
    return "float64" if n_densities <= most else "float32"


def objective_of(model: HMM) -> MAPObjective:
    """What the M-steps of a fitted model maximise; its figures would be of encoded data, summed."""
    options = _chain_options(model, len(model.parameters_.initial), model.length_)
    return MAPObjective(
        _emission(model), options.pseudocount, options.constraints, 1.0, 0.0, inputs=_input_options(model)
    )


def _objective_at(model: HMM, examples: list[Example]) -> tuple[FitObjective, torch.Tensor, torch.Tensor]:
    """What ``fit`` maximises on these examples, near the fitted parameters, and the shift and scale to raw units."""
    if model._posterior is not None:
        raise ValueError(
            "the parameters are a posterior mean, at no maximum; posterior_ and sample_posterior say how sure they are"
        )
    if _misses_past(model, examples):
        raise ValueError(
            "standard errors of an autoregression are not known where values are missing that later steps look at; "
            "pass complete sequences"
        )
    parameters, emission, encoding = model.parameters_, _emission(model), model.encoding_
    n_states, n_frames = len(parameters.initial), sum(map(len, joined_values(examples)))
    names = list(range(encoding.size)) if encoding.names is None else list(encoding.names)
    emitted = emitted_of(model.observation_, encoding.size, names, 1 / n_frames)
    options = _chain_options(model, n_states, model.length_)
    computed = (torch.device("cpu"), torch.float64, None)
    corpus = corpus_of(examples, emission, n_states, *computed, has_one_matrix=not model.input_effects.transitions)
    given, scaling = None, model._input_scaling
    if scaling is not None and corpus.inputs is not None:
        given = GivenInputs.of(_input_options(model), scaling, parameters, emitted, corpus.inputs)
    coordinates = Coordinates(parameters, emission, emitted, options, model.start_, 1 / n_frames, given)
    shift, scale = (torch.as_tensor(v, dtype=torch.float64) for v in encoding.affine())
    return FitObjective(coordinates, objective_of(model), corpus.batches), shift, scale


def corpus_of_fitted(model: HMM, examples: list[Example]) -> Corpus:
    """Encoded examples as a fitted model reads them."""
    return _corpus(model, _emission(model), examples, len(model.parameters_.initial))


# -- what a model's hyperparameters come to ----------------------------------------------------------------------------


def _chain_options(model: HMM, n_states: int, length: str) -> ChainOptions:
    tied, frozen = model.training.tied, model.training.frozen
    return ChainOptions.from_arguments(n_states, model.topology, tied, frozen, model.pseudocount, length)


def _input_options(model: HMM) -> InputOptions:
    scaling = model._input_scaling
    if scaling is None:
        return InputOptions()
    choices = (model.input_effects.transitions, model.input_effects.emissions, model.input_effects.first_state)
    chosen = (chosen_inputs(choice, scaling.names) for choice in choices)
    transition, emission, start = (tuple(map(scaling.names.index, names)) for names in chosen)
    return InputOptions(len(scaling.names), transition, emission, model.input_effects.ridge, start)


def _variational(model: HMM) -> VariationalPosterior:
    posterior: VariationalPosterior | None = model.__dict__.get("_posterior")
    if posterior is None:
        raise NotFittedError(NO_POSTERIOR)
    return posterior


def _is_warm_start(model: HMM) -> bool:
    return model.warm_start and "parameters_" in vars(model)


def _emission(model: HMM) -> Emission:
    return emission_of(model.observation_, model.encoding_.size)


def _raw_parameters(model: HMM) -> Mapping[str, np.ndarray]:
    """Those of the observation, in raw units, by attribute name."""
    return _emission(model).raw_parameters(model.parameters_.table, *model.encoding_.affine())


def _corpus(model: HMM, emission: Emission, examples: list[Example], n_states: int) -> Corpus:
    past_filter = _past_filter(model) if _misses_past(model, examples) else None
    computed = (model._device(), DTYPES[model.dtype_], past_filter)
    return corpus_of(examples, emission, n_states, *computed, has_one_matrix=not model.input_effects.transitions)


def _misses_past(model: HMM, examples: list[Example]) -> bool:
    """Whether frames that the observation looks back at have missing values."""
    return isinstance(model.observation_, AutoregressiveGaussian) and has_missing(joined_values(examples))


def _past_filter(model: HMM) -> PastFilter:
    """The one that the model was fitted with, or where it was fitted to complete data, that of its states' mean.

    One state is its own.
    """
    assert isinstance(model.observation_, AutoregressiveGaussian)
    if model.shared_autoregression_ is not None and len(model.parameters_.initial) > 1:
        return PastFilter(model.observation_, model.shared_autoregression_)
    return mean_filter(model.observation_, model.parameters_.table, model.stationary_)


def _learned_past_filter(
    model: HMM, emission: Emission, examples: list[Example], *, is_continued: bool
) -> PastFilter | None:
    """What says what is known of missing past values of training data; None where none are missing.

    That of several states is fixed: EM leaves it as it is, so that its objective only rises.
    """
    if not _misses_past(model, examples):
        return None
    assert isinstance(emission, AutoregressiveEmission)
    if model.n_states > 1 and model.shared_autoregression_ is not None:
        return PastFilter(emission.observation, model.shared_autoregression_)
    takes_own = is_continued and (model.n_states == 1 or model.warm_start)
    learned = _past_filter(model) if takes_own else fitted_filter(emission, joined_values(examples))
    model.shared_autoregression_ = learned.row if model.n_states > 1 else None
    return learned


def _start_of_fit(model: HMM, options: ChainOptions, examples: list[Example], *, is_partial: bool) -> Start:
    # More sequences come later, or there is no one matrix, or no one first state.
    if model.start == "auto" and (is_partial or model.input_effects.transitions or model.input_effects.first_state):
        return "free"
    knows_states = any(e.states is not None for e in examples)
    data = StartData(len(examples), model.length_, knows_states, any(e.source is not None for e in examples))
    return options.resolved_start(model.start, model.algorithm, data)


def _fitting_and_corpus(
    model: HMM, examples: list[Example], *, is_continued: bool, is_partial: bool = False
) -> tuple[Fitting, Corpus]:
    """How the model is to be fitted, and to what.

    ``is_continued``: from the parameters that it has; ``is_partial``: more data may come later.
    """
    options, emission = _chain_options(model, model.n_states, model.length_), _emission(model)
    options.check_together(model.algorithm, model.observation_)
    if _input_options(model).emission:
        regression_of(model.observation_, model.encoding_.size)  # which refuses what has none
        if _misses_past(model, examples):
            raise ValueError("an autoregression on inputs is fitted to frames without missing values; fill them in")
    n_units, log_det = raw_size(examples, model.encoding_)
    if not is_continued:
        model.start_ = _start_of_fit(model, options, examples, is_partial=is_partial)
    n_frames = sum(len(values) for values in joined_values(examples))
    model._dtype_of_auto = dtype_of_size(n_frames * emission.n_densities(model.n_states), FLOAT64_DENSITIES)
    past_filter = _learned_past_filter(model, emission, examples, is_continued=is_continued)
    computed = (model._device(), DTYPES[model.dtype_], past_filter)
    one_matrix = not model.input_effects.transitions
    corpus = corpus_of(examples, emission, model.n_states, *computed, has_one_matrix=one_matrix)
    is_one_regression = model.n_states == 1 and past_filter is not None  # of which all starts are the same
    # An autoregression that clusters chose: the best of several starts predicts others no better.
    is_by_clusters = model.observation == "auto" and isinstance(model.observation_, AutoregressiveGaussian)
    n_init = 1
    if not (_is_warm_start(model) or (model.n_init == "auto" and (is_one_regression or is_by_clusters))):
        n_init = n_starts(model.n_init, model.algorithm, options.topology, corpus)
    objective = MAPObjective(
        emission, options.pseudocount, options.constraints, n_units, log_det, model.start_, _input_options(model)
    )
    fitting = Fitting(
        objective,
        options.topology,
        StopRule(model.max_iter, model.tol, model.max_seconds and model.max_seconds / n_init),
        algorithm=model.algorithm,
        batches=model.training.batches,
        step_decay=model.training.step_decay,
        lr=model.training.lr,
        n_init=n_init,
        random_state=model.random_state,
        has_final=model.length_ == "stop",
        variational=_variational_objective(model, objective, options.topology, examples),
    )
    return fitting, corpus


def _variational_objective(
    model: HMM, objective: MAPObjective, topology: Topology, examples: list[Example]
) -> VariationalObjective | None:
    """What takes the objective's place in variational Bayes; None under other algorithms."""
    if model.algorithm != "variational":
        return None
    family, prior = conjugate_of(model.observation_, model.encoding_.size), model.training.prior or ConjugatePrior()
    if not family.takes_missing and has_missing(joined_values(examples)):
        raise ValueError(
            "a diagonal mixture of several components has no bound in closed form where values are missing; pass "
            "GaussianMixture(1), covariance_type='full', or complete frames"
        )
    has_final = model.length_ == "stop"
    hyper = prior_hyperparameters(prior, family, topology, model.n_states, has_final=has_final)
    return VariationalObjective(
        family, objective.emission, hyper, objective.n_units, objective.log_det, objective.start
    )


def _first_parameters(model: HMM, fitting: Fitting, corpus: Corpus) -> Iterator[Parameters]:
    """Where a fit goes on; of variational Bayes the posterior, or one EM step from parameters that have none."""
    if fitting.variational is None:
        yield model.parameters_.to(corpus.device)
    elif model._posterior is None:
        yield fitting.variational.started(model.parameters_.to(corpus.device), corpus)
    else:
        yield model._posterior.hyper.to(corpus.device)


def _run_on_each(
    model: HMM,
    X: Any,
    y: Any,
    algorithm: StateAlgorithm[torch.Tensor],
    *,
    of_steps: bool = True,
    first: np.ndarray | None = None,
    of_few: Callable[[FewFrames], list[np.ndarray] | None] | None = None,
) -> list[np.ndarray]:
    """What an algorithm over the states finds for each sequence; where that is ``of_steps``, those of a past are left
    out, and first frames of a series, which are no steps, have ``first``, or what the first step has.

    ``of_few`` is the same algorithm on few frames, which returns None where it is not certain.
    """
    examples = _state_examples(model, X, y)
    few = None if of_few is None or need_float64(examples) else _few_frames(model, examples)
    results = None if few is None or of_few is None else of_few(few)
    if results is None:
        results = [result.cpu().numpy() for result in _states_of_examples(model, examples, algorithm)]
    return of_each_frame(examples, results, first) if of_steps else results


def _states_of_each(
    model: HMM, X: Any, y: Any, algorithm: StateAlgorithm[Result]
) -> tuple[list[Example], list[Result]]:
    """Encoded sequences, and what an algorithm over the states finds for each."""
    examples = _state_examples(model, X, y)
    return examples, _states_of_examples(model, examples, algorithm)


def _state_examples(model: HMM, X: Any, y: Any) -> list[Example]:
    """Encoded sequences whose states are asked for."""
    data = checked_data(model, X, y)
    if data.y is not None:
        data.refuse_past("the states of pairs")
    return model._setting().examples(data, on_disk=True)


def _states_of_examples(model: HMM, examples: list[Example], algorithm: StateAlgorithm[Result]) -> list[Result]:
    """What an algorithm over the states finds for each, in float64 where float32 cannot hold the data."""
    precise = in_float64(model) if need_float64(examples) else model
    parameters, emission = model.parameters_.to(model._device()), _emission(model)
    corpus = _corpus(precise, emission, examples, len(parameters.initial))
    return run_on_corpus(parameters, emission, corpus, algorithm)


def _few_frames(model: HMM, examples: list[Example]) -> FewFrames | None:
    """The examples as compiled loops read them; None where they are many, or loops cannot read them."""
    if DTYPES[model.dtype_] != torch.float64 or model._device().type != "cpu":
        return None
    emission = _emission(model)
    return (
        FewFrames.of(model.parameters_, emission, examples) if are_few(model.parameters_, emission, examples) else None
    )


def _without_past(model: HMM, X: Any, y: Any, question: str) -> Data:
    """Checked data; raises ``ValueError`` where sequences have a past."""
    data = checked_data(model, X, y)
    data.refuse_past(question)
    return data


def _n_steps(example: Example) -> int:
    """Its encoded steps, of x and then y, each of which has a state."""
    return len(example.values) + (0 if example.source is None else len(example.source))
