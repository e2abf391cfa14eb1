"""``HiddenChainModel``: the one implementation of models whose steps have K hidden states that form a chain."""

from __future__ import annotations

import copy
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeVar, overload

import numpy as np
import torch

from seqmodels.common.array_checks import array_of
from seqmodels.common.attributes import AbsentAttributeError
from seqmodels.common.caller_warnings import warn_caller
from seqmodels.common.display import a_or_an
from seqmodels.common.distributed import all_reduce_sum, is_distributed, propagate_errors
from seqmodels.common.main_memory import refuse_beyond_memory
from seqmodels.common.parameters import Seed, checked, checked_but, undone_on_failure
from seqmodels.encodings.defaults import may_have_unseen_symbols
from seqmodels.encodings.examples import Example, of_each_frame
from seqmodels.encodings.inputs import InputScaling, chosen_inputs, linear_inputs
from seqmodels.encodings.precision import DTYPES
from seqmodels.encodings.raw_data import Data
from seqmodels.encodings.series import SeriesEncoding
from seqmodels.encodings.terms import Term, terms_of
from seqmodels.encodings.text import symbol_names
from seqmodels.generation import Cursor, CursorState, Prediction
from seqmodels.generation.forecast import encoded_ahead, inputs_with_times
from seqmodels.generation.inputs import encode_source
from seqmodels.hmm.chains.base import HiddenChain, is_impossible
from seqmodels.hmm.conjugate import ConjugateFamily, ConjugatePrior, conjugate_given_inputs, conjugate_of
from seqmodels.hmm.corpus import Corpus, PackedBatch, check_states, joined_values, raw_size, validation_score
from seqmodels.hmm.effects import EffectOn, Effects, effects_table
from seqmodels.hmm.emissions import Emission
from seqmodels.hmm.emissions.autoregressive import AutoregressiveEmission
from seqmodels.hmm.emissions.given_inputs import regressed_columns
from seqmodels.hmm.few_frames import FewFrames
from seqmodels.hmm.fitting import Fitting
from seqmodels.hmm.from_parameters import with_slopes
from seqmodels.hmm.learning.chain_arguments import ChainInputEffects, ChainTraining
from seqmodels.hmm.learning.em import MAPObjective, RunningStatistics
from seqmodels.hmm.learning.first_state import STARTS, Start
from seqmodels.hmm.learning.given_inputs import InputOptions, Part, PenalisedColumns, relative_to_references
from seqmodels.hmm.learning.options import (
    Algorithm,
    StartChoice,
    StartData,
    check_algorithm,
    check_numbers,
    check_observation,
    check_same_inputs,
    check_same_start,
    check_same_structure,
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
from seqmodels.hmm.missing_past import PastFilter, filters_itself, fitted_filter, has_missing, mean_filter
from seqmodels.hmm.new_groups import (
    NewGroupCursor,
    NewGroups,
    NewGroupState,
    check_n_points,
    log_weights_of_points,
    mixed_steps,
)
from seqmodels.hmm.new_levels import warn_of_new_levels
from seqmodels.hmm.observed_information import ExactObjective
from seqmodels.hmm.parameters import Parameters
from seqmodels.hmm.penalised_terms import (
    Coefficients,
    encoded_sds,
    exact_objective,
    marginal_likelihood,
    reordered_terms,
    rows_of_blocks,
    terms_arrays,
    terms_from_arrays,
    terms_table,
    vanished_slopes,
    warn_of_terms,
    with_intervals,
)
from seqmodels.hmm.profile_likelihood import profile_interval
from seqmodels.hmm.standard_errors import FitObjective, check_level, standard_errors
from seqmodels.hmm.state_forecast import StateForecast, StatesAhead, mixed_ahead, uncertain_pasts
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
)
from seqmodels.inference.chains.given_inputs import log_initial
from seqmodels.inference.chains.log_weights import draw, finite
from seqmodels.model import NotFittedError, SequenceModel
from seqmodels.model.fitting import (
    apply_setting,
    check_arguments,
    checked_data,
    fit_model,
    learn_setting,
    resolved_choices,
)
from seqmodels.model.size_for_budget import largest_size
from seqmodels.model.states_frame import named_states, states_frame
from seqmodels.observations import AutoregressiveGaussian, Categorical, GaussianMixture, Observation, PseudoFrames
from seqmodels.sequences import Kind
from seqmodels.training import StopRule, checkpoints_of_fit
from seqmodels.training.fingerprint import check_processes_agree

if TYPE_CHECKING:
    import pandas as pd

Result = TypeVar("Result")
BatchAlgorithm = Callable[[PackedBatch, Any], Sequence[Result]]  # batch and trellis -> a result for each sequence
StatesOfExamples = Callable[["HiddenChainModel", list[Example]], list[np.ndarray]]  # model and sequences -> the results

# With more frames for each coefficient and feature, what is left uncertain costs some 1e-6 nats a step, and densities
# are those at the estimates, which are faster.
FRAMES_PER_COEFFICIENT = 1000
PSEUDO_FRAMES = 10.0  # the default observation of vectors is chosen by experiments/defaults.py
BACKGROUND = 0.01
UNLIMITED_EM_STEPS = 1_000_000  # where time alone ends EM

# dtype="auto" is float64 where it costs nothing, because the part of an E-step that grows with it is short.
FLOAT64_DENSITIES = 1 << 15  # of all frames of training data
FLOAT64_DENSITIES_OF_FRAME = 8  # of a frame, where there are no training data
NO_INPUTS = InputOptions()
NO_INPUT_EFFECTS = ChainInputEffects()
N_VALUES = 100  # of an input at which its effect is shown
USED_BY_ALL = ("checkpoint", "checkpoint_seconds", "resume_from", "step_decay")  # step_decay by partial_fit
NO_POSTERIOR = "the model has no posterior; fit it with algorithm='variational'"


class HiddenChainModel(SequenceModel):
    """Base class of models ``p(x) = Σ_z p(z) p(x | z)`` of sequences whose steps have hidden states z in a chain.

    To add a model, define its constructor's arguments, ``from_parameters``, and ``_chain``, which returns a
    ``HiddenChain``: the transitions between states, inference over them and their part of EM. The base class has
    everything else: EM, scores, cursors, decoding, forecasts, standard errors and files.
    """

    # The constructor's arguments; a model that has no such argument keeps what stands here.
    n_states: int
    max_iter: int
    tol: float
    n_init: int | Literal["auto"]
    max_seconds: float | None
    training: ChainTraining
    pseudocount: float | str | Pseudocounts = 0.0
    topology: Any = "ergodic"
    start: StartChoice = "free"
    algorithm: Algorithm = "em"
    input_effects: ChainInputEffects = NO_INPUT_EFFECTS

    # What a fit learns beside the parameters.
    start_: Start
    shared_autoregression_: torch.Tensor | None
    statistics_: RunningStatistics | None
    _posterior: VariationalPosterior | None

    _algorithms: ClassVar[tuple[Algorithm, ...]] = ("em",)
    _used_of_training: ClassVar[tuple[str, ...]] = ()  # what the fit uses of ``training`` besides ``USED_BY_ALL``
    _filters_past: ClassVar[bool] = False  # whether missing values in the past of an autoregression are filtered
    _stationary_follows_inputs: ClassVar[bool] = False  # whether start="stationary" is that of the first step's inputs
    _has_durations: ClassVar[bool] = False  # whether visits to a state have distributions of their durations
    _takes_terms: ClassVar[bool] = False  # whether inputs may have penalised terms
    _integrates: ClassVar[bool] = False  # whether one state's regression may be integrated over its posterior
    _uses_validation: ClassVar[bool] = False
    _reads_from_disk: ClassVar[bool] = True
    _size: ClassVar[str | None] = "n_states"
    _fits_in_parallel: ClassVar[bool] = True

    # -- what a subclass defines -----------------------------------------------------------------------------

    @abstractmethod
    def _chain(self, n_states: int, *, start: Start, length: str, inputs: InputOptions) -> HiddenChain[Any]:
        """Return the hidden chain that the constructor's arguments describe, which fitting and inference use.

        Args:
            n_states: number of states, K.
            start: how the distribution of the first state is determined: learned, uniform, or that of the transitions.
            length: ``"stop"`` if the end of a sequence is an event, else ``"given"``.
            inputs: which columns of the inputs each part of the model depends on.

        Raises:
            ValueError: an argument is not allowed, or arguments do not go together.
        """

    @property
    def _structure(self) -> Mapping[str, Any]:
        """The arguments of a subclass that must not change if a fit is to continue from fitted parameters, by name."""
        return {}

    def _warn_before_fit(self, train: list[Example]) -> None:
        """Warn if the training sequences ``train`` are too few for the arguments; by default there is no warning."""

    def _check_restored(self) -> None:
        """Raise ``ValueError`` if a file's encoding or observation is not one that this model can have.

        It is called while a model is loaded. The base class accepts any.
        """

    # -- SequenceModel -------------------------------------------------------------------------------------

    @property
    def context_(self) -> int | None:
        return None

    @property
    def dtype_(self) -> str:
        """Precision of the computation, ``"float32"`` or ``"float64"``: the argument ``dtype``, resolved in ``fit``."""
        return self._dtype_of_auto if self.dtype == "auto" else self.dtype

    @property
    def n_parameters_(self) -> int:
        chain = self._fitted_chain
        linear = replace(chain, inputs=chain.inputs.without_terms).n_parameters(self._emission)
        return linear + round(float(self._terms_table["edf"].sum())) if self._terms else linear

    @property
    def _reads_inputs(self) -> bool:
        return self._regresses

    @property
    def _terms(self) -> tuple[Term, ...]:
        return terms_of(self.input_effects.choices)

    def _inputs_among(self, names: tuple[str, ...]) -> tuple[str, ...]:
        read = [name for choice in self.input_effects.choices for name in chosen_inputs(choice, names)]
        return tuple(dict.fromkeys([*(name for name in names if name in read), *read]))

    def _default_observation(self, kind: Kind) -> Observation:
        if kind == "vectors" and (self.input_effects.emissions or self.algorithm == "variational"):
            return GaussianMixture(1)
        if kind == "vectors":
            return GaussianMixture(1, prior=PseudoFrames(PSEUDO_FRAMES), background=BACKGROUND)
        # Training may have no byte, or no symbol of the class of unknown ones, that comes later.
        is_open = kind == "text" or may_have_unseen_symbols(self.encoding)
        return Categorical(pseudocount=0.01 if is_open and self.algorithm != "variational" else 0.0)

    def _sums_out(self, observation: Observation) -> bool:
        of_past = self._filters_past and isinstance(observation, AutoregressiveGaussian)
        return super()._sums_out(observation) or of_past

    def _limits(self, seconds: float | None, steps: int | None) -> dict[str, Any]:
        time_limit = {} if seconds is None else {"max_seconds": seconds}
        if steps is not None:
            return {"max_iter": steps, **time_limit}
        # The learning rate of gradient ascent follows its number of passes, so there the model's own number stands.
        keeps_number = seconds is None or self.algorithm == "gradient"
        return time_limit if keeps_number else {"max_iter": UNLIMITED_EM_STEPS, **time_limit}

    def _size_within(self, n_parameters: int, data: Data) -> int | None:
        if self.n_states == 1:  # a model of one state stands for no memory
            return None
        like = self.clone()
        apply_setting(like, learn_setting(like, data))  # once for all sizes
        start_data = StartData(len(data.scored), like.length_, data.states is not None, data.y is not None)

        def count(n_states: int) -> int:
            if self._admitted(n_states) < n_states:
                return n_parameters + 1
            chain = like._chain_of(n_states, start="free")
            resolved = chain.options.resolved_start(like.start, like.algorithm, start_data)
            return replace(chain, start=resolved).n_parameters(like._emission_of(chain))

        return largest_size(count, n_parameters, 1, "n_states")

    def _admitted(self, n_states: int) -> int:
        """Return ``n_states``, or the largest smaller number that the other arguments admit."""
        return n_states

    def _check_hyperparameters(self) -> None:
        check_numbers(self.n_states, self.n_init, self.max_iter, self.tol)
        training, effects = self.training, self.input_effects
        check_algorithm(
            self.algorithm, self._algorithms, training.batches, training.step_decay, self.max_iter, training.lr
        )
        training.check()
        training.check_unused(self, but=(*USED_BY_ALL, *self._used_of_training))
        if self.max_seconds is not None and not self.max_seconds > 0:
            raise ValueError(f"max_seconds is {self.max_seconds}; pass a number above zero, or None for no limit")
        if self._regresses:
            self._check_with_inputs()
        if self._terms:
            self._check_with_terms()
        if not 0 <= effects.ridge < np.inf:
            raise ValueError(f"ridge is {effects.ridge}; pass a finite number, 0 or more")
        length = "stop" if self.length == "stop" else "given"
        chain = self._chain(self.n_states, start="free", length=length, inputs=InputOptions())
        chain.options.check_first_state(self.start, self.algorithm, self.length)
        if self.algorithm == "variational":
            check_variational(self.start, self.pseudocount)
        elif training.prior is not None:
            raise ValueError(
                "prior is for algorithm='variational'; pass that, or pseudocount and the observation's own prior"
            )
        if self._is_warm_start:
            self._check_warm_start()

    def _check_warm_start(self) -> None:
        """Raise ``ValueError`` if EM cannot continue from the fitted parameters under the current arguments."""
        if len(self.parameters_.initial) != self.n_states:
            check_same_structure({"n_states": self.n_states}, {"n_states": len(self.parameters_.initial)})
        check_same_structure(self._structure, self._fitted_structure)
        known = () if self._input_scaling is None else self._input_scaling.names
        names = ("transitions", "emissions", "first_state", "durations")
        slopes = dict(zip(names, self.parameters_.slopes, strict=True))
        choices = dict(zip(names, self.input_effects.choices, strict=True))
        if self._regresses or any(each is not None for each in slopes.values()):
            check_same_inputs(choices, slopes, self._inputs_among(known), known)
        check_same_start(self.start, self.start_)
        if isinstance(self.observation, Observation):
            check_observation(_estimated(self.observation), _estimated(self.observation_), self.encoding_.size)
        self._chain_of(self.n_states).check_start(self.parameters_, self._emission, self.length)

    @checked
    def fit(
        self, X: Any, y: Any = None, *, validation: Any = "auto", sample_weight: Any = None, states: Any = None
    ) -> Self:
        """Fit the model to sequences by EM, or by the ``algorithm`` that the constructor names.

        Args:
            X: list of n sequences, such as arrays ``(T, D)`` of D features, arrays ``(T,)`` of symbols or strings, or
                ``Sequences``; T, the number of steps, may differ from sequence to sequence.
            y: list of n target sequences, one for each in ``X``, or None. With targets EM fits p(x, y).
            validation: sequences that are scored once, at the end; ``"auto"`` holds out none.
            sample_weight: weight of each sequence, shape ``(n,)``; None means 1 for every sequence.
            states: what is known of the hidden states of each sequence, or None. It is an array ``(T,)`` of integers,
                -1 where the state is unknown, or of booleans ``(T, K)``, True where one of the K states is possible.
                Steps of ``X`` come before those of ``y``. EM then fits p(x, known states).

        Returns:
            The fitted model itself.
        """
        with propagate_errors():
            fit_model(self, Data.of(X, y, sample_weight, states), validation)
        return self

    def partial_fit(self, X: Any, y: Any = None, *, sample_weight: Any = None, states: Any = None) -> Self:
        """Take one step of stepwise EM, on these sequences and those of earlier calls (Cappé and Moulines 2009).

        The expected counts of the sequences are averaged with those of earlier batches, and one M-step follows. The
        first call learns the encoding and guesses parameters from the sequences; after ``from_parameters`` or ``load``,
        and after EM of a model with inputs, it is one EM step. If the model depends on inputs, the data of earlier
        calls are kept until their weight is small, because a logistic regression has no statistics of fixed size. No
        checkpoints are written.

        Args:
            X: list of n sequences, as ``fit`` takes them.
            y: list of n target sequences, or None.
            sample_weight: weight of each sequence, shape ``(n,)``; None means 1 for every sequence.
            states: what is known of the hidden states of each sequence, in the forms that ``fit`` takes, or None.

        Returns:
            The fitted model itself.

        Raises:
            ValueError: ``algorithm`` is ``"variational"``, sequences have a past, or ``fit`` would raise it.
        """
        import pandas as pd

        with propagate_errors():
            if self._terms:
                raise ValueError("penalised terms are fitted to all sequences at once; call fit")
            if self.algorithm == "variational":
                raise ValueError("partial_fit is stepwise EM; call fit, or pass algorithm='em'")
            data = Data.of(X, y, sample_weight, states)
            data.refuse_past("partial_fit")
            check_arguments(self)
            self._check_hyperparameters()
            check_processes_agree(self, data)
            began = time.perf_counter()
            with undone_on_failure(self):
                if not self.__sklearn_is_fitted__():
                    self._clear_learned()
                    apply_setting(self, learn_setting(self, data, is_partial=True))
                    self.history_, self.fit_seconds_, self.starts_ = pd.DataFrame(), 0.0, starts_table([], None)
                self._check_has_inputs()
                checked_data(self, data.X, data.y)
                examples = self._setting().examples(data, on_disk=True)
                check_states(examples, self.n_states)
                self._drop_posterior()
                is_continued = "parameters_" in vars(self)
                fitting, corpus = self._fitting_and_corpus(examples, is_continued=is_continued, is_partial=True)
                fitted: Parameters | None = self.__dict__.get("parameters_")
                if fitted is not None:
                    fitting.chain.check_start(fitted, self._emission, self.length)
                start = next(fitting.starts(corpus)) if fitted is None else fitted.to(self._device())
                statistics: RunningStatistics | None = self.__dict__.get("statistics_")
                parameters, statistics, row = fitting.stepwise.one_step(
                    start.of_first_process(), statistics, corpus, len(self.history_)
                )
                self.parameters_, self._posterior = parameters.to(torch.device("cpu")), None
                self.statistics_ = statistics
                self.converged_ = False
                self.history_ = pd.concat([self.history_, pd.DataFrame([row])], ignore_index=True)
            self.fit_seconds_ += time.perf_counter() - began
        return self

    def _fit(self, train: list[Example], validation: list[Example]) -> None:
        self._check_has_inputs()
        check_states(train, self.n_states)
        self._drop_posterior()
        check_table_size(self.n_states, self.observation_.n_output_parameters(self.encoding_.size))
        self._warn_before_fit(train)
        is_warm = self._is_warm_start
        if not is_warm:
            self._clear_learned()
            if isinstance(self.topology, str) and self.topology == "ergodic":
                warn_of_new_levels(train, self.encoding, self.encoding_, self.observation_)
        checkpoints = checkpoints_of_fit(self, resolved_choices(self), train, validation)
        fitting, corpus = self._fitting_and_corpus(train, is_continued=is_warm)
        of_bound = fitting.variational
        if of_bound is not None and of_bound.constraints.freezes(of_bound.fixed, of_bound.family.emission):
            fixed = self.parameters_ if is_warm else next(fitting.guesses(corpus)).of_first_process()
            fitting = replace(fitting, variational=of_bound.with_fixed(fixed))
        starts = partial(self._first_parameters, fitting) if is_warm else fitting.starts
        best = best_of(
            partial(starts, corpus),
            fitting.n_init,
            fitting.algorithm_on(corpus),
            max_iter=self.max_iter,
            verbose=self.verbose,
            checkpoints=checkpoints,
            device=corpus.device,
            together=fitting.n_together(corpus),
        )
        self.parameters_ = best.parameters.to(torch.device("cpu"))
        is_stepwise = self.algorithm == "stepwise"  # whose statistics are means over frames already, of all epochs
        self.statistics_ = best.kept if is_stepwise else fitting.chain.statistics_of_frames(best.kept, corpus)
        self._posterior = None
        if fitting.variational is not None:
            bound = best.last_row["objective"] * fitting.objective.n_units
            self._posterior, self.statistics_ = VariationalPosterior(self.parameters_, bound), None
            self.parameters_ = fitting.variational.mean(self.parameters_)
            if corpus.past_filter is not None:  # of one state scores follow its own
                corpus = replace(corpus, past_filter=self._past_filter())
            best.rows[-1]["log_prob"] = fitting.variational.score(best.parameters, corpus)
        self._integrate(fitting.objective.emission, corpus)
        self.converged_ = best.converged
        self.starts_ = starts_table(best.starts, best.start)
        self.history_ = best.history_with(
            validation=validation_score(self._sums_of_steps, validation), starts_range=starts_range(best.starts)
        )
        warn_of_floor(best, self.observation_)
        warn_of_disagreement(self.starts_, best, fitting.objective.n_units)
        if self._terms:
            self._fit_terms(train, validation, fitting.objective)

    def _fit_terms(self, train: list[Example], validation: list[Example], of_em: MAPObjective) -> None:
        """Add the penalised terms to the parameters that EM found without them.

        Args:
            train: encoded training sequences.
            validation: held-out sequences, which are scored once more.
            of_em: the objective of EM, for the units of the history.
        """
        import pandas as pd

        if is_distributed():
            raise ValueError("penalised terms are fitted by one process; call fit without torchrun")
        if any(example.states is not None for example in train):
            raise ValueError("penalised terms are not fitted to known states; leave states out")
        began, chain = time.perf_counter(), self._fitted_chain
        emission = self._emission_of(chain)
        self.parameters_ = chain.inputs.started(self.parameters_, emission)
        objective, _, scale = self._objective_at(train)
        exact = self._exact(objective, train)
        marginal, blocks = marginal_likelihood(exact, chain.inputs, restricted=self.input_effects.restricted)
        maximum = marginal.maximise(torch.zeros(objective.coordinates.n, dtype=torch.float64))
        self.parameters_ = objective.coordinates.at(maximum.u)[0].detached()
        self._terms_table = terms_table(blocks, maximum, emission, scale, self._names_of_features())
        warn_of_terms(self._terms_table, maximum)
        self.converged_ = self.converged_ and maximum.converged
        last = self.history_.iloc[-1]
        value, _ = exact.value_and_gradient(maximum.u)
        row = of_em.row(
            last["step"] + 1, last["seconds"] + time.perf_counter() - began, value, 0.0, self.parameters_.table
        )
        row["objective"] = (maximum.value + of_em.log_det) / of_em.n_units
        row["validation"] = validation_score(self._sums_of_steps, validation)
        row["starts_range"] = last["starts_range"]
        self.history_ = pd.concat([self.history_, pd.DataFrame([row])], ignore_index=True)

    def _names_of_features(self) -> list[Any]:
        names = self.encoding_.names
        return list(range(self.encoding_.size)) if names is None else list(names)

    def _integrate(self, emission: Emission, corpus: Corpus) -> None:
        """Integrate an autoregression of one state over its posterior, if it has one and few frames determine it.

        Args:
            emission: the emission of the state.
            corpus: the training data.
        """
        observation, parameters = self.observation_, self.parameters_
        if not (self._integrates and isinstance(observation, AutoregressiveGaussian) and self.n_states == 1):
            return
        is_estimate = self.algorithm == "em" and not self.training.frozen and not self.input_effects.emissions
        if observation.predictive != "auto" or not is_estimate:
            return
        assert isinstance(emission, AutoregressiveEmission)
        n_numbers = emission.n_regressors + 1 + emission.size
        if sum(map(len, corpus.sequences)) > FRAMES_PER_COEFFICIENT * n_numbers:
            return
        table, sums, frames = parameters.table.to(corpus.device), [], []
        for batch in corpus.own_batches():
            assert batch.past is not None, "an autoregression reads the past"
            sums += [batch.weight * each for each in emission.statistics_of_complete(table, batch.x, batch.past)]
        summed, _ = all_reduce_sum([torch.stack(sums).sum(0)])
        integrated = emission.with_posterior(table, tuple(summed))
        if integrated is None:
            return
        for batch in corpus.own_batches():
            assert batch.past is not None, "an autoregression reads the past"
            frames.append(emission.left_out(integrated, batch.x, batch.past, batch.weight))
        self.observation_ = replace(observation, predictive="posterior")
        self.parameters_ = replace(parameters, table=emission.with_tails(integrated, frames).cpu())

    def _drop_posterior(self) -> None:
        """Make the densities of an integrated autoregression those of its estimates, from which a fit can continue."""
        self.observation_ = _estimated(self.observation_)
        has_regression = self._integrates and isinstance(self.observation_, AutoregressiveGaussian)
        if has_regression and "parameters_" in vars(self):
            n_numbers = self.observation_.n_output_parameters(self.encoding_.size)
            self.parameters_ = replace(self.parameters_, table=self.parameters_.table[:, :n_numbers])

    def _at_estimates(self) -> Self:
        other = copy.copy(self)
        other._drop_posterior()
        return other

    def _check_has_inputs(self) -> None:
        """Raise ``ValueError`` if the model regresses on inputs and the sequences that it was given have none."""
        if self._regresses and self._effects_scaling is None:
            raise ValueError(
                f"input_effects of {a_or_an(type(self))} reads inputs, but the sequences have none; pass "
                "Sequences(items, inputs=..., times=...)"
            )

    def _clear_learned(self) -> None:
        self.shared_autoregression_, self._posterior = None, None
        self._terms_table = terms_from_arrays(None)

    def _fitting_and_corpus(
        self, examples: list[Example], *, is_continued: bool, is_partial: bool = False
    ) -> tuple[Fitting, Corpus]:
        """Return the settings of the fit and the training data in batches.

        Args:
            examples: encoded training sequences.
            is_continued: True if EM continues from the parameters that the model has.
            is_partial: True if more data may come later, as in ``partial_fit``.

        Raises:
            ValueError: the observation does not go with other arguments or with missing values in the data.
        """
        if not is_continued:
            self.start_ = self._start_of_fit(examples, is_partial=is_partial)
            self._fitted_structure = dict(self._structure)
        chain = self._chain_of(self.n_states)
        chain = replace(chain, inputs=chain.inputs.without_terms)
        emission = self._emission_of(chain)
        chain.check_together(self.algorithm, self.observation_)
        if chain.inputs.emission:
            regressed_columns(emission)  # which refuses what has none
            if self._misses_past(examples):
                raise ValueError("an autoregression on inputs is fitted to frames without missing values; fill them in")
        n_units, log_det = raw_size(examples, self.encoding_)
        n_frames = sum(len(values) for values in joined_values(examples))
        self._dtype_of_auto = dtype_of_size(n_frames * emission.n_densities(self.n_states), FLOAT64_DENSITIES)
        past_filter = self._learned_past_filter(emission, examples, is_continued=is_continued)
        corpus = chain.corpus(examples, emission, self._device(), DTYPES[self.dtype_], past_filter)
        is_one_regression = self.n_states == 1 and past_filter is not None  # all of its starts are the same
        n_init = 1
        if not (self._is_warm_start or (self.n_init == "auto" and is_one_regression)):
            n_init = n_starts(self.n_init, self.algorithm, chain.topology_of_start, corpus)
        objective = chain.objective(emission, n_units, log_det)
        fitting = Fitting(
            chain,
            objective,
            StopRule(self.max_iter, self.tol, self.max_seconds and self.max_seconds / n_init),
            algorithm=self.algorithm,
            batches=self.training.batches,
            step_decay=self.training.step_decay,
            lr=self.training.lr,
            n_init=n_init,
            random_state=self.random_state,
            variational=self._variational_objective(chain, emission, n_units, log_det, examples),
        )
        return fitting, corpus

    def _start_of_fit(self, examples: list[Example], *, is_partial: bool) -> Start:
        # More sequences come later, or there is no one matrix, or no one first state.
        effects = self.input_effects
        if self.start == "auto" and (is_partial or effects.transitions or effects.first_state or self._terms):
            return "free"
        knows_states = any(e.states is not None for e in examples)
        data = StartData(len(examples), self.length_, knows_states, any(e.source is not None for e in examples))
        options = self._chain_of(self.n_states, start="free").options
        return options.resolved_start(self.start, self.algorithm, data)

    def _variational_objective(
        self, chain: HiddenChain[Any], emission: Emission, n_units: float, log_det: float, examples: list[Example]
    ) -> VariationalObjective | None:
        """Return the evidence lower bound that variational Bayes maximises; None under other algorithms.

        Args:
            chain: the hidden chain.
            emission: the emission of its states.
            n_units: number of raw units of the data (steps, or bytes of text), by which the reported bound is divided.
            log_det: nats to add to the log-density of the encoded data for that of raw data.
            examples: encoded training sequences.

        Raises:
            ValueError: values are missing for which the bound has no closed form.
        """
        if self.algorithm != "variational":
            return None
        family, prior = self._conjugate_family(chain), self.training.prior or ConjugatePrior()
        if not family.takes_missing and has_missing(joined_values(examples)):
            raise ValueError(
                "a diagonal mixture of several components has no bound in closed form where values are missing; pass "
                "GaussianMixture(1) or GaussianMixture(1, 'full'), or complete frames"
            )
        has_final = self.length_ == "stop"
        rows, constraints = chain.rows_family(examples), chain.options.constraints
        of_chain: dict[str, Any] = {"has_final": has_final, "rows": rows, "n_rows": chain.n_rows}
        of_chain["constraints"] = constraints
        hyper = prior_hyperparameters(prior, family, chain.options.topology, self.n_states, **of_chain)
        fixed = mean_parameters(hyper, family, chain.start, rows)  # of the right shapes, until there is a first guess
        of_data = (n_units, log_det, rows, chain.expectations, chain.start, constraints, fixed, chain.inputs)
        return VariationalObjective(family, emission, hyper, *of_data)

    def _conjugate_family(self, chain: HiddenChain[Any]) -> ConjugateFamily:
        make: Callable[[Observation, int], ConjugateFamily] = conjugate_of
        if (scaling := self._effects_scaling) is not None:
            make = partial(conjugate_given_inputs, input_scale=scaling.scale)
        family = chain.emission_prior(self.observation_, self.encoding_.size, make)
        assert isinstance(family, ConjugateFamily), "the chains and their checks refuse the others"
        return family

    def _first_parameters(self, fitting: Fitting, corpus: Corpus) -> Iterator[Parameters]:
        """Yield the parameters from which a fit continues, or under variational Bayes a posterior's hyperparameters.

        If the model has parameters but no posterior, or has one that was learned with other parameters frozen, one EM
        step makes the posterior.

        Args:
            fitting: settings of the fit.
            corpus: the training data.
        """
        if fitting.variational is None:
            yield self.parameters_.to(corpus.device)
        elif self._posterior is None or not fitting.variational.continues(self._posterior.hyper):
            yield fitting.variational.started(self.parameters_.to(corpus.device), corpus)
        else:
            yield self._posterior.hyper.to(corpus.device)

    # -- the chain and its emissions as values ------------------------------------------------------------------

    @property
    def _is_warm_start(self) -> bool:
        return self.warm_start and "parameters_" in vars(self)

    def _input_options(self) -> InputOptions:
        """Return the column numbers of the inputs that each part of the model depends on."""
        scaling = self._effects_scaling
        if scaling is None:
            return NO_INPUTS
        columns: list[tuple[int, ...]] = []
        terms: list[PenalisedColumns] = []
        parts: tuple[Part, ...] = ("transition", "emission", "start", "duration")
        for part, choice in zip(parts, self.input_effects.choices, strict=True):
            of_part = [
                PenalisedColumns(
                    part,
                    term.label,
                    scaling.columns_of(term),
                    tuple(map(scaling.names.index, term.linear)),
                    scaling.new_column_of(term),
                )
                for term in terms_of([choice])
            ]
            linear = tuple(map(scaling.names.index, linear_inputs(choice, scaling.names)))
            columns.append((*linear, *(column for term in of_part for column in term.columns)))
            terms += of_part
        transition, emission, start, duration = columns
        n_inputs = len(scaling.columns)
        return InputOptions(n_inputs, transition, emission, self.input_effects.ridge, start, tuple(terms), duration)

    @property
    def _effects_scaling(self) -> InputScaling | None:
        """The scaling of the inputs that regressions use, without times; None if nothing depends on inputs."""
        scaling = self._input_scaling
        return scaling.without_times if scaling is not None and self._regresses else None

    @property
    def _regresses(self) -> bool:
        """True if some part of the model depends on inputs other than times."""
        return any(self.input_effects.choices)

    def _chain_of(self, n_states: int, start: Start | None = None) -> HiddenChain[Any]:
        """Return the hidden chain that the arguments describe, with ``n_states`` states.

        Args:
            n_states: number of states.
            start: how the distribution of the first state is determined; None takes the choice that ``fit`` made.
        """
        start = self.start_ if start is None else start
        return self._chain(n_states, start=start, length=self.length_, inputs=self._input_options())

    @property
    def _fitted_chain(self) -> HiddenChain[Any]:
        return self._chain_of(len(self.parameters_.initial))

    def _emission_of(self, chain: HiddenChain[Any]) -> Emission:
        return chain.emission(self.observation_, self.encoding_.size)

    @property
    def _emission(self) -> Emission:
        return self._emission_of(self._fitted_chain)

    def _raw_parameters(self) -> Mapping[str, np.ndarray]:
        """Return the parameters of the emissions, in raw units, by attribute name."""
        return self._emission.raw_parameters(self.parameters_.table, *self.encoding_.affine())

    # -- missing values in the past of an autoregression --------------------------------------------------------

    def _misses_past(self, examples: list[Example]) -> bool:
        """Return True if the observation depends on past steps, and steps of ``examples`` have missing values."""
        looks_back = self._filters_past and isinstance(self.observation_, AutoregressiveGaussian)
        return looks_back and has_missing(joined_values(examples))

    def _past_filter(self) -> PastFilter:
        """Return the Kalman filter for missing values among the past steps that an autoregression reads.

        It is the one that the model was fitted with. After a fit to complete data it is the filter of the average of
        the states' autoregressions, weighted with ``stationary_``. A model of one state without a background uses that
        state's own autoregression.
        """
        assert isinstance(self.observation_, AutoregressiveGaussian)
        if self.shared_autoregression_ is not None and not filters_itself(self.observation_, self.n_states):
            return PastFilter(self.observation_, self.shared_autoregression_)
        return mean_filter(self.observation_, self.parameters_.table, self.stationary_)

    def _learned_past_filter(
        self, emission: Emission, examples: list[Example], *, is_continued: bool
    ) -> PastFilter | None:
        """Return the Kalman filter for missing values among the past steps of training data; None if none are missing.

        EM does not change it, so that the objective never falls, but for one state without a background, whose EM
        filters by the state itself.

        Args:
            emission: the emission of the chain's states, which is autoregressive where values are missing.
            examples: encoded training sequences.
            is_continued: True if EM continues from the parameters that the model has.
        """
        if not self._misses_past(examples):
            return None
        assert isinstance(emission, AutoregressiveEmission)
        is_own = filters_itself(emission.observation, self.n_states)
        if not is_own and self.shared_autoregression_ is not None:
            return PastFilter(emission.observation, self.shared_autoregression_)
        takes_own = is_continued and (is_own or self.warm_start)
        learned = self._past_filter() if takes_own else fitted_filter(emission, joined_values(examples))
        self.shared_autoregression_ = None if is_own else learned.row
        return learned

    # -- groups that the model was not fitted to ---------------------------------------------------------------

    @property
    def _new_groups(self) -> NewGroups | None:
        """The distribution of the random effects of a new group; None if the model has none."""
        if not any(term.has_new_groups for term in self._terms):
            return None
        chain = self._fitted_chain
        emission = self._emission_of(chain)
        return NewGroups.of(
            self.parameters_,
            chain.inputs,
            self._terms_table,
            emission,
            chain.options.constraints.tying_of(emission),
            torch.as_tensor(self.encoding_.affine()[1], dtype=torch.float64),
            self._names_of_features(),
            self.input_effects.new_group_points,
        )

    def _given_effects(self, new_groups: NewGroups) -> Self:
        """Return this model as one whose inputs have the effects of a new group as further columns."""
        other = copy.copy(self)
        other.parameters_, other._terms_table = new_groups.parameters, terms_from_arrays(None)
        return other

    def _of_known_and_new(
        self,
        examples: list[Example],
        of_known: Callable[[list[Example]], list[Result]],
        of_new: Callable[[NewGroups, Example], Result],
    ) -> list[Result]:
        """Return the result for each encoded sequence, in their order.

        Args:
            examples: the sequences.
            of_known: function that returns the results for those whose groups are those of the training sequences.
            of_new: function that returns the result for one of a new group, given the distribution of its effects.
        """
        new_groups = self._new_groups
        if new_groups is None:
            return of_known(examples)
        known = [i for i, example in enumerate(examples) if not new_groups.has(example)]
        results = dict(zip(known, of_known([examples[i] for i in known]) if known else [], strict=True))
        return [results[i] if i in results else of_new(new_groups, each) for i, each in enumerate(examples)]

    def _at_points(
        self, new_groups: NewGroups, example: Example, run: Callable[[HiddenChainModel, list[Example]], list[Result]]
    ) -> list[Result]:
        """Return the M results of ``run`` for an encoded sequence of a new group, at each point of its effects.

        Args:
            new_groups: the distribution of the effects.
            example: the sequence.
            run: function of a model and of encoded sequences that it reads, which returns a result for each.
        """
        model = self._given_effects(new_groups)
        return [result for examples in new_groups.at_all(example) for result in run(model, examples)]

    def _steps_at_points(self, new_groups: NewGroups, example: Example) -> np.ndarray:
        """Return the log-probability of each step of a sequence given the steps before it at each point, ``(M, T)``."""
        steps: list[np.ndarray] = self._at_points(new_groups, example, lambda model, examples: model._steps(examples))
        return np.stack(steps)

    def _at_most_probable_points(self, new_groups: NewGroups, examples: list[Example]) -> list[Example]:
        """Return sequences that the model given effects reads, at the most probable point of those of new groups."""
        result = []
        for example in examples:
            best = np.zeros(len(new_groups.columns))
            if new_groups.has(example):
                best = new_groups.points[np.argmax(self._steps_at_points(new_groups, example).sum(1))]
            result += new_groups.at(example, best[None])
        return result

    def _mean_given_past(self, new_groups: NewGroups, example: Example, run: StatesOfExamples) -> np.ndarray:
        """Return the mean over the points of a new group's effects of what ``run`` returns for each step, ``(T, K)``.

        The points are weighted at each step by their probability given the steps up to it.
        """
        weights = np.exp(log_weights_of_points(self._steps_at_points(new_groups, example)))  # (M, T)
        at_points: list[np.ndarray] = self._at_points(new_groups, example, run)  # of (T, K)
        return np.asarray((weights[:, :, None] * np.stack(at_points)).sum(0))

    def _mean_given_all(self, new_groups: NewGroups, example: Example, run: StatesOfExamples) -> np.ndarray:
        """Return the same as ``_mean_given_past`` with points weighted by their probability given the sequence."""
        weights = np.exp(log_weights_of_points(self._steps_at_points(new_groups, example))[:, -1])
        at_points: list[np.ndarray] = self._at_points(new_groups, example, run)  # of (T, K)
        return np.tensordot(weights, np.stack(at_points), 1)

    # -- many sequences at once ----------------------------------------------------------------------------

    def _steps(self, examples: list[Example]) -> list[np.ndarray]:
        def of_new(new_groups: NewGroups, example: Example) -> np.ndarray:
            return mixed_steps(self._steps_at_points(new_groups, example))

        return self._of_known_and_new(examples, self._steps_of_known, of_new)

    def _steps_of_known(self, examples: list[Example]) -> list[np.ndarray]:
        """Return what ``_steps`` does, for sequences whose groups are those of the training sequences."""
        chain = self._fitted_chain
        emission = self._emission_of(chain)
        few = self._few_frames(chain, emission, examples)
        steps = None if few is None else few.steps()
        if steps is not None:
            return steps
        corpus = self._corpus(chain, emission, examples)
        return chain.scored(self.parameters_.to(self._device()), emission, corpus, [e.source for e in examples])

    def _sums_of_steps(self, examples: list[Example]) -> np.ndarray:
        new_groups = self._new_groups
        if new_groups is not None and any(map(new_groups.has, examples)):
            return super()._sums_of_steps(examples)
        chain = self._fitted_chain
        emission = self._emission_of(chain)
        corpus = self._corpus(chain, emission, examples)
        sources, n_past = [e.source for e in examples], [e.n_past for e in examples]
        return chain.score_sums(self.parameters_.to(self._device()), emission, corpus, sources, n_past)

    def _step_predictions(self, examples: list[Example], *, given_rest: bool = False) -> list[Prediction] | None:
        chain, table, table_slopes = self._fitted_chain, self.parameters_.table, self.parameters_.table_slopes
        looks_back, new_groups = self.observation_.n_past > 0, self._new_groups
        if new_groups is not None and any(map(new_groups.has, examples)):
            if not given_rest:
                return None
            raise ValueError(
                "the steps of a group that the model was not fitted to are not known given all others; pass "
                "given='past', or sequences of the groups of the fit"
            )
        if given_rest and looks_back:
            raise ValueError(
                f"{self.observation_!r} depends on past steps, so a step given all others is not a mixture over its "
                "states; pass given='past'"
            )
        if looks_back and table_slopes is not None:
            return None
        emission = self._emission_of(chain)
        log_weights = chain.log_given_others if given_rest else chain.log_predicted

        def of_batch(batch: PackedBatch, trellis: Any) -> list[tuple[torch.Tensor, torch.Tensor | None]]:
            each = log_weights(trellis)
            past = [None] * len(each) if batch.past is None else batch.segments.split(batch.past)
            return list(zip(each, past, strict=True))

        results = self._states_of_examples(chain, emission, examples, of_batch, is_large=need_float64(examples))
        predictions = []
        for example, (weights, past) in zip(examples, results, strict=True):
            n = len(example.values)  # the steps of a source come before them
            rows = weights[-n:]
            rows = rows - finite(torch.logsumexp(rows, 1, keepdim=True))
            inputs = None if table_slopes is None else torch.as_tensor(example.inputs)[-n:]
            tables = None if inputs is None else self._tables_at(inputs, chain, emission)
            of_states = chain.observed_table(emission, table)[None] if tables is None else torch.stack(tables)
            past = None if past is None else past[-n:].double()
            predictions.append(Prediction(self.observation_, of_states.expand(n, -1, -1), rows, past, None))
        return predictions

    def _corpus(
        self, chain: HiddenChain[Any], emission: Emission, examples: list[Example], dtype: torch.dtype | None = None
    ) -> Corpus:
        past_filter = self._past_filter() if self._misses_past(examples) else None
        return chain.corpus(examples, emission, self._device(), dtype or DTYPES[self.dtype_], past_filter)

    def _few_frames(self, chain: HiddenChain[Any], emission: Emission, examples: list[Example]) -> FewFrames | None:
        """Return the examples in a form for compiled loops, or None if batches of tensors serve them better.

        That is the case for many frames, on a GPU, in float32, and for data that the loops cannot read.

        Args:
            chain: the hidden chain.
            emission: the emission of its states.
            examples: encoded sequences.
        """
        if DTYPES[self.dtype_] != torch.float64 or self._device().type != "cpu":
            return None
        return chain.few_frames(self.parameters_, emission, examples)

    def _with_floor(self, factor: float) -> Self:
        other = super()._with_floor(factor)
        chain = self._fitted_chain
        table = chain.on_floor(self._emission_of(chain), self.parameters_.table, factor)
        other.parameters_ = replace(self.parameters_, table=table)
        return other

    # -- one step at a time --------------------------------------------------------------------------------

    @checked
    def cursor(self, n_steps: int | None = None) -> Cursor:
        setting, new_groups = self._setting(), self._new_groups
        parameters = (self.parameters_ if new_groups is None else new_groups.parameters).to(self._device())
        looks_back = self._filters_past and isinstance(setting.observation, AutoregressiveGaussian)
        make_filter = self._past_filter if looks_back else None
        size, dtype = setting.encoding.size, DTYPES[self.dtype_]
        cursor = self._fitted_chain.cursor(parameters, setting.observation, size, dtype, make_filter)
        if new_groups is None:
            return cursor
        return NewGroupCursor(cursor, new_groups)

    def _filtered(self, state: CursorState) -> np.ndarray:
        if isinstance(state, NewGroupState):
            log_belief = state.mixed(self._fitted_chain.belief_of(state.state))
        else:
            log_belief = self._fitted_chain.belief_of(state)
        if log_belief is not None:
            return log_belief[0].exp().cpu().numpy()
        if isinstance(self.encoding_, SeriesEncoding) and self.encoding_.n_initial:
            return self.initial_  # of the first frames, which are no steps
        raise ValueError("the stream has read no step yet, so there is no state to filter; call update first")

    # -- states of given sequences -------------------------------------------------------------------------

    @overload
    def decode(self, X: Any, y: Any = None, *, k: None = None) -> list[np.ndarray]: ...

    @overload
    def decode(self, X: Any, y: Any = None, *, k: int) -> list[list[StatePath]]: ...

    def decode(self, X: Any, y: Any = None, *, k: int | None = None) -> list[np.ndarray] | list[list[StatePath]]:
        """Return the most probable path of states of each sequence (Viterbi), or its ``k`` most probable paths.

        Several paths are found by list Viterbi (Seshadri and Sundberg 1994). If a sequence has a past (earlier steps
        that ``Sequences`` gives it as context), the path is that of past and sequence together, without the states of
        the past.

        Args:
            X: list of sequences.
            y: list of target sequences, or None; the states of each target then follow those of its sequence in ``X``.
            k: number of paths of each sequence, or None for the best one.

        Returns:
            For each sequence its states, ``(T,)`` integers; with ``k`` a list of ``StatePath``, each with ``states``
            and ``log_prob``, the best first. The list is shorter where fewer paths are possible. Of equally probable
            paths the one of the lowest states, from the last frame backwards, comes first.

        Raises:
            ValueError: no path can explain a sequence, which the message names; a past together with ``k``.

        >>> from seqmodels import HMM
        >>> model = HMM.from_parameters([0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]], emission=[[0.9, 0.1], [0.2, 0.8]])
        >>> for path in model.decode([[0, 0, 1]], k=3)[0]:
        ...     print(path.states, round(path.log_prob, 3))
        [0 0 0] -3.417
        [0 0 1] -3.535
        [1 1 1] -4.581
        """
        chain = self._fitted_chain
        if k is None:
            paths = partial(_possible, chain, chain.best_paths)
            return self._run_on_each(chain, X, y, paths, of_few=FewFrames.paths)
        check_n_paths(k)
        data = self._without_past(X, y, "decode with k")

        def best_of_batch(batch: PackedBatch, trellis: Any) -> list[tuple[torch.Tensor, torch.Tensor]]:
            best = chain.k_best_paths(trellis, k)
            chain.refuse(batch.impossible(torch.tensor([0.0 if len(paths) else -torch.inf for paths, _ in best])))
            return best

        examples, each = self._states_of_each(chain, X, y, best_of_batch)
        return state_paths(each, log_dets(self._setting(), data, examples), [e.n_initial for e in examples])

    def path_log_prob(self, X: Any, paths: Any, y: Any = None) -> np.ndarray:
        """Return the log-probability of each sequence x together with a given path z of its states, log p(x, z).

        It is what hmmlearn's ``decode`` returns first for the most probable path; ``log_prob`` is the logarithm of the
        sum over all paths.

        Args:
            X: list of n sequences.
            paths: for each sequence its states, ``(T,)`` integers, as ``decode`` returns them. Where there are targets,
                the states of x come before those of y.
            y: list of n target sequences, or None. With targets the result is log p(x, y, z).

        Returns:
            Nats of raw units, ``(n,)``; -inf for a path that cannot be.

        Raises:
            ValueError: paths of other lengths or states; the message names the sequence.

        >>> from seqmodels import HMM
        >>> model = HMM.from_parameters([0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]], emission=[[0.9, 0.1], [0.2, 0.8]])
        >>> model.path_log_prob([[0, 1]], [[0, 1]]).round(4)  # log(0.5 * 0.9 * 0.1 * 0.8)
        array([-3.3242])
        """
        chain, data = self._fitted_chain, self._without_past(X, y, "path_log_prob")
        examples = self._setting().examples(data, on_disk=True)
        paths = checked_paths(paths, [_n_steps(e) + e.n_initial for e in examples], len(self.initial_))
        states, can_be = paths_of_steps(paths, [e.n_initial for e in examples])

        def of_paths(batch: PackedBatch, trellis: Any) -> list[torch.Tensor]:
            return list(chain.log_prob_of_paths(trellis, [states[i] for i in batch.indices]))

        encoded = np.array(self._run_on_each(chain, X, y, of_paths, of_steps=False))
        return np.asarray(np.where(can_be, encoded, -np.inf) + log_dets(self._setting(), data, examples))

    def align(self, X: Any, labels: Any, y: Any = None) -> list[ForcedAlignment]:
        """Return for each sequence where each of its labels begins and ends (forced alignment).

        The alignment is the most probable path that goes through all labels in their order, each for one step at least
        (of an HSMM for one segment at least). Its probability is that of the model, log p(x, path). Between two labels
        of one state, or that share states, nothing tells where the second begins; then it is as late as possible.

        Args:
            X: list of sequences.
            labels: for each sequence a list of states in their order. In the place of a state may stand a group of
                states, such as ``(3, 4, 5)`` for a phone of three, among which the path moves freely. Where there are
                targets, the labels are of x and then y.
            y: list of target sequences, or None.

        Returns:
            For each sequence a ``ForcedAlignment`` with ``starts``, ``ends``, ``states`` and ``log_prob``.

        Raises:
            ValueError: labels that are no states, or more labels than steps; a sequence that no such path can explain;
                a sequence with a past.

        >>> from seqmodels import HMM
        >>> model = HMM.from_parameters([0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]], emission=[[0.9, 0.1], [0.2, 0.8]])
        >>> (aligned,) = model.align([[0, 0, 1, 1, 0]], [[0, 1, 0]])
        >>> aligned.starts, aligned.ends
        (array([0, 2, 4]), array([2, 4, 5]))
        """
        chain, data = self._fitted_chain, self._without_past(X, y, "align")
        examples = self._setting().examples(data, on_disk=True)
        groups = checked_labels(labels, [_n_steps(example) for example in examples], len(self.initial_))

        def aligned(batch: PackedBatch, trellis: Any) -> list[tuple[torch.Tensor, torch.Tensor, float]]:
            positions, states, log_prob = chain.alignments(trellis, [groups[i] for i in batch.indices])
            if impossible := batch.impossible(log_prob):
                raise ValueError(
                    f"no path of sequence {min(impossible)} goes through its labels in their order: "
                    f"{chain.needs_of_path} has probability zero; check the labels and {chain.checks_of_path}"
                )
            return list(zip(positions, states, log_prob.tolist(), strict=True))

        _, best = self._states_of_each(chain, X, y, aligned)
        return forced_alignments(best, log_dets(self._setting(), data, examples), [e.n_initial for e in examples])

    def posterior(self, X: Any, y: Any = None) -> list[np.ndarray]:
        """Return the probability of each state at each step given the whole sequence, p(z_t | x_1 .. x_T) (smoothing).

        Args:
            X: list of sequences.
            y: list of target sequences, or None; the rows of each target then follow those of its sequence in ``X``.

        Returns:
            For each sequence an array ``(T, K)`` of T steps and K states whose rows sum to one. If a sequence has a
            past (earlier steps that ``Sequences`` gives it as context), there are no rows for the past.

        Raises:
            ValueError: a sequence has probability zero; the message names it.
        """
        chain = self._fitted_chain
        posteriors = partial(_possible, chain, chain.posteriors)
        return self._run_on_each(chain, X, y, posteriors, of_few=FewFrames.posteriors, of_new=self._mean_given_all)

    def predict_proba(self, X: Any, y: Any = None) -> list[np.ndarray]:
        """Return the probability of each state at each step given the whole sequence, as ``posterior`` does.

        The name is that of hmmlearn.

        Args:
            X: list of sequences.
            y: list of target sequences, or None.

        Returns:
            For each sequence an array ``(T, K)`` of T steps and K states.
        """
        return self.posterior(X, y)

    def filter(self, X: Any, y: Any = None) -> list[np.ndarray]:
        """Return the probability of each state at each step given the steps so far, p(z_t | x_1 .. x_t).

        For a sequence that comes step by step, ``stream().filtered`` is the same after each ``update``.

        Args:
            X: list of sequences.
            y: list of target sequences, or None; the rows of each target then follow those of its sequence in ``X``.

        Returns:
            For each sequence an array ``(T, K)`` of T steps and K states. Once the steps are impossible its rows are
            zero, and a warning says so. If a series is read as changes, its first frames, which have no change, have
            ``initial_``.
        """
        chain = self._fitted_chain

        def beliefs(batch: PackedBatch, trellis: Any) -> list[torch.Tensor]:
            return chain.beliefs(trellis)

        of_forms: dict[str, Any] = {"of_few": FewFrames.beliefs, "of_new": self._mean_given_past}
        filtered = self._run_on_each(chain, X, y, beliefs, first=self.initial_, **of_forms)
        impossible = {i: int(np.argmin(rows.any(1))) for i, rows in enumerate(filtered) if not rows.any(1).all()}
        if impossible:
            i, t = next(iter(impossible.items()))
            warn_caller(
                f"{len(impossible)} of {len(filtered)} sequences have probability zero under this model, so their "
                f"filtered states are rows of zeros from some step on (sequence {i} from step {t}); leave them out, or "
                "keep emissions and transitions from being exactly zero (pseudocount, topology, states)",
            )
        return filtered

    @checked
    def sample_states(self, X: Any, n: int = 1, *, y: Any = None, random_state: Seed | None = None) -> list[np.ndarray]:
        """Draw paths of states of each sequence from p(z | x), exactly, by forward filtering and backward sampling.

        Args:
            X: list of sequences.
            n: number of independent paths of each sequence.
            y: list of target sequences, or None.
            random_state: seed, or None for the model's.

        Returns:
            For each sequence an array ``(n, T)`` of integers, a path of T states in each row.

        Raises:
            ValueError: ``n`` is below 1, or a sequence has probability zero, which the message names.
        """
        if n < 1:
            raise ValueError(f"n is {n}; pass at least 1")
        refuse_beyond_memory(f"{n} paths of each sequence", 8.0 * n, "pass a smaller n")
        chain, seed = self._fitted_chain, self.random_state if random_state is None else random_state
        generator = torch.Generator(chain.device_of_draws(self._device())).manual_seed(seed)
        draws = partial(_possible, chain, partial(chain.draws, n=n, generator=generator))

        def of_new(new_groups: NewGroups, example: Example, run: StatesOfExamples) -> np.ndarray:
            """Draw the effects of each path, then the path."""
            log_weights = log_weights_of_points(self._steps_at_points(new_groups, example))[:, -1]
            each = draw(torch.as_tensor(log_weights).expand(n, 1, -1), generator)[:, 0].numpy()
            drawn, path_point = np.unique(each, return_inverse=True)
            at_points = run(self._given_effects(new_groups), new_groups.at(example, new_groups.points[drawn]))
            return np.stack([at_points[point][:, j] for j, point in enumerate(path_point)], 1)

        return [path.T for path in self._run_on_each(chain, X, y, draws, of_new=of_new)]

    @checked
    def forecast_states(
        self,
        X: Any,
        k: int = 1,
        *,
        y: Any = None,
        inputs: Sequence[Any] | None = None,
        times: Sequence[Any] | None = None,
    ) -> list[StateForecast]:
        """Return what follows each sequence, 1 to ``k`` steps ahead: states, and observations in raw units.

        Args:
            X: list of n sequences.
            k: number of steps ahead.
            y: list of target sequences, or None; the forecast is then of what follows the target.
            inputs: for a model that reads inputs, their values at the k steps ahead of each sequence, ``(k, U)`` each,
                or a mapping from names of inputs to values; None otherwise.
            times: for a model that reads times, the times of the k steps ahead of each sequence, ``(k,)`` each; None
                means one unit of time after the step before.

        Returns:
            For each sequence a ``StateForecast``: the probabilities ``states (k, K)`` of K states, and the distribution
            and mean of the observations.

        Raises:
            ValueError: ``k`` is below 1, a sequence has probability zero, which the message names, or inputs of the
                steps ahead are missing.
        """
        if k < 1:
            raise ValueError(f"k is {k}; pass at least 1")
        refuse_beyond_memory(f"forecasts of {k} steps", 8.0 * k * self.n_states, "pass a smaller k")
        known = None
        if self._input_scaling is not None or inputs is not None or times is not None:
            data = checked_data(self, X, y)
            known = encoded_ahead(self, data, inputs_with_times(data, k, inputs, times), k)
        chain = self._fitted_chain
        emission = self._emission_of(chain)

        def last(batch: PackedBatch, trellis: Any) -> list[torch.Tensor]:
            return chain.last_beliefs(trellis)

        examples, each = self._states_of_each(chain, X, y, last)
        impossible = [i for i, log_belief in enumerate(each) if is_impossible(log_belief)]
        if impossible:
            raise ValueError(
                f"sequence {impossible[0]} has probability zero under this model; nothing can be said of what follows"
            )
        joined = joined_values(examples)
        pasts = uncertain_pasts(self._past_filter() if self._misses_past(examples) else None, joined)
        of_places = replace(self.parameters_, table=chain.observed_table(emission, self.parameters_.table))
        new_groups = self._new_groups
        shift, scale = (torch.as_tensor(v, dtype=torch.float64) for v in self.encoding_.affine())
        forecasts = []
        for i, (log_belief, values, past) in enumerate(zip(each, joined, pasts, strict=True)):
            read = None if known is None else _of_last_and(examples[i].inputs, known[i])
            ahead = chain.states_ahead(self.parameters_, emission, log_belief.cpu(), k, read)
            tables = None if read is None else self._tables_at(read[1:], chain, emission)
            if read is not None and new_groups is not None and bool(read[:, new_groups.columns].any()):
                ahead, tables = self._ahead_of_new(new_groups, examples[i], last, read)
            forecast = StateForecast.of(of_places, self.observation_, ahead, values, shift, scale, past, tables)
            forecasts.append(forecast.encoded_by(self.encoding_))
        return forecasts

    def _ahead_of_new(
        self, new_groups: NewGroups, example: Example, last: BatchAlgorithm[torch.Tensor], read: torch.Tensor
    ) -> tuple[StatesAhead, list[torch.Tensor]]:
        """Return the states of the k steps after a sequence of a new group, and their output parameters.

        Both are of the K states at each of the M points of the group's effects, ``M K`` places.

        Args:
            new_groups: the distribution of the effects.
            example: the encoded sequence.
            last: the algorithm that returns log-probabilities of the states of the last step.
            read: inputs of the last step and of the k steps ahead, ``(1 + k, C)``.
        """
        chain, model = self._fitted_chain, self._given_effects(new_groups)
        emission, is_large = self._emission_of(chain), need_float64([example])
        k, n_points = len(read) - 1, len(new_groups.points)

        def run(of_point: HiddenChainModel, some: list[Example]) -> list[torch.Tensor]:
            return of_point._states_of_examples(chain, emission, some, last, is_large=is_large)

        log_weights = log_weights_of_points(self._steps_at_points(new_groups, example))[:, -1]
        at_points = new_groups.at_each_point(read).view(1 + k, n_points, -1).unbind(1)
        each, tables = [], []
        for log_belief, inputs in zip(self._at_points(new_groups, example, run), at_points, strict=True):
            each.append(chain.states_ahead(model.parameters_, emission, log_belief.cpu(), k, inputs))
            of_steps = model._tables_at(inputs[1:], chain, emission)
            tables.append(of_steps or [chain.observed_table(emission, self.parameters_.table)] * k)
        ahead = mixed_ahead(each, torch.as_tensor(log_weights), self.parameters_.transition)
        return ahead, [torch.cat(of_step) for of_step in zip(*tables, strict=True)]

    def _tables_at(
        self, inputs: torch.Tensor, chain: HiddenChain[Any], emission: Emission
    ) -> list[torch.Tensor] | None:
        """Return the output parameters of the states at each row of ``inputs``; None if they depend on no inputs.

        Args:
            inputs: standardised inputs of some steps, with times first where the model reads them, ``(n, U)``.
            chain: the hidden chain.
            emission: the emission of its states.

        Returns:
            A table ``(K, P)`` for each row: P parameters of the observation for each of K states.
        """
        slopes, scaling = self.parameters_.table_slopes, self._effects_scaling
        if slopes is None or scaling is None:
            return None
        others = inputs[:, -slopes.shape[-1] :]  # times come first
        return [chain.observed_table(emission, self.parameters_.table + slopes @ u) for u in others]

    @checked_but("X", "y")
    def decode_frame(self, X: Any, y: Any = None, *, state_names: Sequence[str] | None = None) -> pd.DataFrame:
        """Return the most probable path of each sequence as one table with a row for each step.

        The table has ``decode`` and ``posterior`` side by side, as ``seqmodels decode --out`` writes them.

        Args:
            X: list of sequences.
            y: list of target sequences, or None. Where there are targets, the rows are their steps.
            state_names: names of the K states, which take the place of their numbers, or None for the numbers.

        Returns:
            Columns ``sequence`` (its number, from 0), ``name``, ``position`` (from 1), the times by their name where
            the sequences have some, ``symbol`` of symbols and texts, ``state``, and ``probability``, the probability of
            the state at this step given the whole sequence. Where it is low, another state explains the step as well.

        Raises:
            ValueError: ``state_names`` are not K different names, or no path can explain a sequence.
        """
        scored = checked_data(self, X, y).scored
        frame = states_frame(self.encoding_, scored, self.decode(X, y), self.posterior(X, y))
        return frame.assign(state=named_states(frame["state"], state_names, len(self.initial_)))

    @checked
    def state_summary(self, *, state_names: Sequence[str] | None = None) -> pd.DataFrame:
        """Return the fitted parameters of each state in raw units, with a row for each state.

        Args:
            state_names: names of the K states, which take the place of their numbers, or None for the numbers.

        Returns:
            ``share`` of the steps that a long sequence spends in the state (``stationary_``), ``mean_duration`` of a
            visit in steps (in units of time for ``ContinuousTimeHMM``), and then the parameters of the observation,
            with a column for each of them and each feature: ``mean_pulse`` and ``sd_pulse`` of Gaussians and their
            mixtures, where a feature is called pulse, ``rates_pulse`` of ``Poisson``, ``p(a)`` of a symbol. Features
            without names are x0, x1, ...; a single one has none. Parameters that depend on inputs are those where all
            inputs are at their mean.

        Raises:
            ValueError: ``state_names`` are not K different names.
        """
        import pandas as pd

        chain = self._fitted_chain
        emission = self._emission_of(chain)
        durations = chain.mean_durations(self.parameters_, emission)
        columns = {"share": chain.stationary(self.parameters_, emission), "mean_duration": durations}
        names = symbol_names(self.encoding_)
        of_emission = emission.by_state(self.parameters_.table, *self.encoding_.affine(), names)
        frame = pd.DataFrame({**columns, **of_emission})
        frame.index = pd.Index(named_states(frame.index.to_series(), state_names, len(frame)), name="state")
        return frame

    @checked
    def as_pyro(self, length: int, *, source: Any = None) -> Any:
        """Return p(x) of raw sequences of ``length`` steps as a Pyro distribution.

        Args:
            length: number of steps of every sequence.
            source: the source that sequences are conditioned on, for a model that reads one; else None.

        Returns:
            A ``seqmodels.model.pyro_distribution.SequenceDistribution``.
        """
        from seqmodels.model.pyro_distribution import SequenceDistribution  # lazily: Pyro is slow to import

        encode_source(self, source)  # which refuses one that the model does not read
        return SequenceDistribution(self, length, source)

    def _run_on_each(
        self,
        chain: HiddenChain[Any],
        X: Any,
        y: Any,
        algorithm: BatchAlgorithm[torch.Tensor],
        *,
        of_steps: bool = True,
        first: np.ndarray | None = None,
        of_few: Callable[[FewFrames], list[np.ndarray] | None] | None = None,
        of_new: Callable[[NewGroups, Example, StatesOfExamples], np.ndarray] | None = None,
    ) -> list[np.ndarray]:
        """Return the results of an inference algorithm, such as the forward pass, for each sequence.

        Args:
            chain: the model's hidden chain.
            X: list of sequences.
            y: list of target sequences, or None.
            algorithm: function that takes a batch of sequences and its trellis (the parameters and densities of the
                batch) and returns a result for each sequence.
            of_steps: True if results have a row for each step; then the steps of a past are left out.
            first: the row of first frames of a series, which are no steps; None repeats that of the first step.
            of_few: the same algorithm for few frames in compiled loops, which returns None where it may have lost
                precision; None if there is none.
            of_new: function that returns the result for a sequence of a new group, given the distribution of its
                effects and a function that applies ``algorithm`` to given effects; None takes the most probable ones.
        """
        examples, emission = self._state_examples(X, y), self._emission_of(chain)
        is_large = need_float64(examples)
        few = None if of_few is None or is_large else self._few_frames(chain, emission, examples)
        results = None if few is None or of_few is None else of_few(few)
        if results is None:

            def run(model: HiddenChainModel, some: list[Example]) -> list[np.ndarray]:
                each = model._states_of_examples(chain, emission, some, algorithm, is_large=is_large)
                return [result.cpu().numpy() for result in each]

            of_all = partial(run, self)
            if of_new is None:
                results = of_all(examples)
            else:
                results = self._of_known_and_new(examples, of_all, lambda groups, each: of_new(groups, each, run))
        return of_each_frame(examples, results, first) if of_steps else results

    def _states_of_each(
        self, chain: HiddenChain[Any], X: Any, y: Any, algorithm: BatchAlgorithm[Result]
    ) -> tuple[list[Example], list[Result]]:
        """Return the encoded sequences, and for each the result of an inference algorithm such as Viterbi's.

        Args:
            chain: the model's hidden chain.
            X: list of sequences.
            y: list of target sequences, or None.
            algorithm: function that takes a batch of sequences and its trellis (the parameters and densities of the
                batch) and returns a result for each sequence.
        """
        examples, emission = self._state_examples(X, y), self._emission_of(chain)
        is_large = need_float64(examples)
        return examples, self._states_of_examples(chain, emission, examples, algorithm, is_large=is_large)

    def _state_examples(self, X: Any, y: Any) -> list[Example]:
        data = checked_data(self, X, y)
        if data.y is not None:
            data.refuse_past("the states of pairs")
        return self._setting().examples(data, on_disk=True)

    @torch.no_grad()
    def _states_of_examples(
        self,
        chain: HiddenChain[Any],
        emission: Emission,
        examples: list[Example],
        algorithm: BatchAlgorithm[Result],
        *,
        is_large: bool,
    ) -> list[Result]:
        """Return the result of an inference algorithm for each example.

        Args:
            chain: the model's hidden chain.
            emission: the emission of its states.
            examples: encoded sequences.
            algorithm: function that takes a batch of sequences and its trellis (the parameters and densities of the
                batch) and returns a result for each sequence.
            is_large: True to compute in float64 because float32 would overflow; False computes in the model's dtype.
        """
        new_groups = self._new_groups
        if new_groups is not None and any(map(new_groups.has, examples)):
            model, placed = self._given_effects(new_groups), self._at_most_probable_points(new_groups, examples)
            return model._states_of_examples(chain, emission, placed, algorithm, is_large=is_large)
        parameters = self.parameters_.to(self._device())
        corpus = self._corpus(chain, emission, examples, torch.float64 if is_large else DTYPES[self.dtype_])
        results: dict[int, Result] = {}
        for batch, trellis in chain.each_trellis(parameters, emission, corpus):
            results.update(zip(batch.indices, algorithm(batch, trellis), strict=True))
        return [results[i] for i in range(len(examples))]

    def _without_past(self, X: Any, y: Any, question: str) -> Data:
        """Return the checked data of a call of a method that takes no sequences with a past (earlier steps as context).

        Args:
            X: list of sequences.
            y: list of target sequences, or None.
            question: what was called, for the error message.

        Raises:
            ValueError: sequences have a past.
        """
        data = checked_data(self, X, y)
        data.refuse_past(question)
        return data

    # -- how sure the parameters are -----------------------------------------------------------------------

    def standard_errors(self, X: Any, y: Any = None, *, level: float = 0.95) -> pd.DataFrame:
        """Return the standard error and a confidence interval of each estimated parameter, in raw units.

        They follow from the observed information, the negative Hessian of what ``fit`` maximises (the log-likelihood,
        of x and y where there are targets, and the log-prior where there is one), and the delta method. That is right
        for many data, at the maximum, and for the right number of states. The Hessian is of central differences of
        exact gradients, to about 1e-7 of its largest entries; P free parameters take 2 P + 1 E-steps in float64, on the
        CPU. A renumbering of the states gives another maximum with the same likelihood; the errors are those of this
        one.

        Args:
            X: list of the training sequences.
            y: list of their targets, or None.
            level: probability with which an interval is to contain the true value, between 0 and 1.

        Returns:
            A row for each estimated parameter, with columns ``name``, ``state``, ``feature``, ``estimate``,
            ``standard_error``, ``ci_low``, ``ci_high`` and ``note``. ``feature`` is a name or number: of transitions
            the state after it; of several components ``(component, feature)``; of full covariances a pair; of
            autoregressions ``(feature, past feature, steps back)``; of durations the number of steps; of slopes
            ``(state after it, input)`` or ``(feature, input)``, and of slopes of the first state and of durations the
            input. Beside
            slopes, other parameters are those where all inputs are at their mean. Intervals of probabilities are
            symmetric on the scale of log-odds, intervals of variances and rates on the scale of logarithms. A parameter
            on a boundary (a probability near 0 or 1, given inputs on average; a variance on its floor), or that the
            data do not identify, has NaN and a ``note`` that says why; the others are then given that it stays there.
            What is frozen, or ruled out by the topology, has no row.

        Raises:
            ValueError: an observation whose standard errors are not known; missing values in the past of an
                autoregression; a sequence of probability zero; a sequence with a past.

        >>> from seqmodels import HMM, Poisson
        >>> x = [np.random.default_rng(0).poisson(4.0, (100, 1))]
        >>> frame = HMM(1, observation=Poisson()).fit(x).standard_errors(x)
        >>> frame[["name", "estimate", "standard_error"]].round(3)
            name  estimate  standard_error
        0  rates      4.32           0.208
        """
        check_level(level)
        data = self._without_past(X, y, "standard_errors")
        return standard_errors(*self._objective_at(self._setting().examples(data)), level)

    def profile_interval(
        self, X: Any, name: str, state: int | None = None, feature: Any = None, *, y: Any = None, level: float = 0.95
    ) -> tuple[float, float]:
        """Return the interval of one parameter by its profile likelihood, in raw units (Venzon and Moolgavkar 1988).

        The interval contains every value for which the log-likelihood, maximised over all other parameters, is within
        ``q / 2`` nats of its maximum, where q is the quantile of χ² with one degree of freedom at ``level``. So it does
        not assume that the log-likelihood is quadratic, as ``standard_errors`` does. It is the better one for few data
        and near boundaries, and takes some tens of E-steps more.

        Args:
            X: list of the training sequences.
            name: name of the parameter's array, the column ``name`` of ``standard_errors``, such as ``"means"``.
            state: number of its state, the column ``state``; None for a parameter that all states share.
            feature: its feature, symbol or next state, the column ``feature``; None for a parameter without one.
            y: list of their targets, or None.
            level: probability with which the interval is to contain the true value, between 0 and 1.

        Returns:
            The lower and the upper end.

        Raises:
            ValueError: there is no such parameter, or it is on a boundary or not identified; it is a coefficient of a
                term whose standard deviation is estimated as zero, because it is then zero whatever the data; with
                penalised terms it is a number, such as a variance, whose estimate is not where the likelihood of
                parameters and effects together has its maximum; an end is not reached, because the likelihood does not
                fall enough on that side; or ``standard_errors`` would raise it.

        >>> from seqmodels import HMM, Poisson
        >>> x = [np.random.default_rng(0).poisson(4.0, (100, 1))]
        >>> low, high = HMM(1, observation=Poisson()).fit(x).profile_interval(x, "rates", 0, 0)
        >>> round(low, 3), round(high, 3)
        (3.925, 4.74)
        """
        check_level(level)
        data = self._without_past(X, y, "profile_interval")
        objective, shift, scale = self._objective_at(self._setting().examples(data))
        return profile_interval(objective, shift, scale, (name, state, feature), level)

    @checked
    def effects(
        self,
        X: Any,
        name: str,
        on: EffectOn = "transitions",
        *,
        y: Any = None,
        values: Sequence[float] | np.ndarray | None = None,
        others: Mapping[str, float] | None = None,
        level: float = 0.95,
    ) -> pd.DataFrame:
        """Return what an input does: probabilities or parameters of emissions at values of the input, with intervals.

        Standard errors follow from the observed information, as those of ``standard_errors``, and the delta method.
        With penalised terms the information includes the penalties, so that intervals are those of the posterior given
        the variances of the terms, as in R's ``mgcv``: how sure these variances are is no part of them. Intervals of
        probabilities are symmetric on the scale of log-odds, those of rates on the scale of logarithms. They are for
        each value by itself, not for the whole function. ``plot.effects`` draws the table.

        Args:
            X: list of the training sequences.
            name: name of the input.
            on: what the input changes: ``"transitions"``, the probabilities of transitions (in continuous time over one
                unit of time); ``"stationary"``, the share of its steps that a long sequence spends in each state while
                the inputs stay as they are; ``"first_state"``, the probabilities of the first state;
                ``"emissions"``, the parameters of emissions that depend on inputs, such as means; or ``"durations"``,
                the mean duration of the segments of each state of an ``HSMM`` that begin at a step with the inputs.
            y: list of the targets of the sequences, or None.
            values: raw values of the input; None means 100 that span its range in ``X``, or the period of a ``Smooth``;
                the groups of a ``RandomEffect``; or the two values of an input that has no others.
            others: raw values of other inputs, by name. An input that is not listed has its mean. The input that
                numbers the groups of a ``RandomEffect`` stands for the mean of the population, an effect of zero.
            level: probability with which an interval is to contain the true value, between 0 and 1.

        Returns:
            A row for each value and each quantity, with columns ``input`` (its name), ``value``, ``name``, ``state``,
            ``feature``, ``estimate``, ``standard_error``, ``ci_low`` and ``ci_high``. ``name``, ``state`` and
            ``feature`` are those of ``standard_errors``, and ``name`` may be ``"stationary"`` or
            ``"mean_durations"``. Errors and ends are NaN
            where the data do not identify a quantity, or where it depends on nothing that was estimated. Transitions
            that the topology rules out have no rows, nor have shares of states that are left for ever.

        Raises:
            ValueError: this part of the model depends on no inputs, or the model reads no input of that name; there are
                several stationary distributions; or ``standard_errors`` would raise it.

        >>> from seqmodels import HMM, Poisson, Sequences
        >>> u = np.linspace(0, 1, 100)
        >>> x = np.random.default_rng(0).poisson(np.exp(1 + u))[:, None]
        >>> X = Sequences([x], inputs=[u[:, None]], input_names=["heat"])
        >>> model = HMM(1, observation=Poisson(), input_effects=ChainInputEffects(emissions=["heat"])).fit(X)
        >>> frame = model.effects(X, "heat", "emissions", values=[0.0, 1.0])
        >>> frame[["value", "name", "estimate", "ci_low", "ci_high"]].round(2)
           value   name  estimate  ci_low  ci_high
        0    0.0  rates       3.2    2.64     3.89
        1    1.0  rates       7.6    6.50     8.88
        """
        check_level(level)
        data, scaling = self._without_past(X, y, "effects"), self._effects_scaling
        if scaling is None:
            raise ValueError("the model depends on no inputs; pass input_effects=ChainInputEffects(...) and fit it")
        grid = scaling.values_of(name, data.X, N_VALUES) if values is None else np.asarray(values, dtype=np.float64)
        if grid.ndim != 1 or not len(grid):
            raise ValueError(f"values has the shape {grid.shape}; pass a list of at least one number")
        steps = scaling.steps_along(name, grid, others or {})
        objective, shift, scale = self._objective_at(self._setting().examples(data))
        effects = Effects.of(on, self._fitted_chain, objective.coordinates, shift, scale)
        frame = effects_table(objective, effects, torch.as_tensor(steps), level)
        frame.insert(0, "value", grid[frame.pop("step")])
        frame.insert(0, "input", name)
        return frame

    def _objective_at(self, examples: list[Example]) -> tuple[FitObjective, torch.Tensor, torch.Tensor]:
        """Return the objective of ``fit`` as a function of unconstrained numbers, and the shift and scale to raw units.

        The numbers are zero at the fitted parameters. Shift and scale are ``(D,)`` for D features: a raw value is
        ``shift + scale * encoded``.

        Args:
            examples: encoded sequences, on which the objective is computed.

        Raises:
            ValueError: the parameters are a posterior mean of variational Bayes, or values are missing among the past
                steps of an autoregression.
        """
        if self._posterior is not None:
            raise ValueError(
                "the parameters are a posterior mean, at no maximum; posterior_ and sample_posterior say how sure they "
                "are"
            )
        if self._misses_past(examples):
            raise ValueError(
                "standard errors of an autoregression are not known where values are missing that later steps look at; "
                "pass complete sequences"
            )
        estimated = self._at_estimates()
        chain, encoding = self._fitted_chain, self.encoding_
        emission = estimated._emission_of(chain)
        names = self._names_of_features()
        corpus = chain.corpus(examples, emission, torch.device("cpu"), torch.float64)
        objective = chain.fit_objective(estimated.parameters_, emission, names, corpus, self._effects_scaling)
        shift, scale = (torch.as_tensor(v, dtype=torch.float64) for v in encoding.affine())
        if len(self._terms_table):
            coefficients = Coefficients.of(objective.coordinates, chain.inputs)
            terms = rows_of_blocks(self._terms_table, coefficients.blocks, emission, names)
            sds = encoded_sds(terms, coefficients.blocks, emission, scale)
            exact = self._exact(objective, examples)
            objective = replace(
                objective,
                penalty=coefficients.penalty(sds),
                exact_information=lambda u: exact.derivatives(u)[2],
                vanished=vanished_slopes(terms, coefficients.blocks, emission),
            )
        return objective, shift, scale

    def _exact(self, objective: FitObjective, examples: list[Example]) -> ExactObjective:
        """Return the objective of ``fit`` on encoded sequences with exact second derivatives, without penalties."""
        chain, emission = self._fitted_chain, objective.coordinates.emission
        corpus = chain.corpus(examples, emission, torch.device("cpu"), torch.float64)
        return exact_objective(objective, corpus, chain.inputs.n_inputs, chain.exact)

    @checked
    def term_intervals(self, X: Any, y: Any = None, *, level: float = 0.95) -> pd.DataFrame:
        """Return ``terms_`` with a standard error and a confidence interval of each standard deviation.

        They follow from the Hessian of the marginal likelihood that ``fit`` maximises, by the logarithms of all
        standard deviations and by the parameters that are not integrated out, such as those of the emissions if the
        terms are of transitions. Intervals are symmetric on the scale of logarithms. The Hessian is of central
        differences of exact gradients: with F such parameters and B rows it takes 2 (F + B) of them, which may take as
        long as the fit.

        A standard deviation that is estimated as zero is on the boundary of its values, where no Hessian says how sure
        it is. Its interval has every value at which the marginal likelihood, maximised over all other parameters, is
        within ``q / 2`` nats of its maximum, where q is the quantile of χ² with one degree of freedom at ``level``. It
        begins at zero. Were the true value zero, twice the difference would be zero with probability one half and χ²
        otherwise (Self and Liang 1987, *Asymptotic properties of maximum likelihood estimators and likelihood ratio
        tests under nonstandard conditions*), so that the interval then contains it more often than ``level`` says. It
        takes some ten fits more.

        Args:
            X: list of the training sequences.
            y: list of their targets, or None.
            level: probability with which an interval is to contain the true value, between 0 and 1.

        Returns:
            The rows and columns of ``terms_``, and the columns ``standard_error``, ``ci_low`` and ``ci_high`` of
            ``sd``. The error of a term that vanishes is NaN, and so are all three where the regression has come to a
            boundary, such as a transition of probability zero. An interval reaches to infinity if the marginal
            likelihood does not fall by so much up to the upper bound of a standard deviation.

        Raises:
            ValueError: ``input_effects`` has no terms; a sequence has a past.
        """
        check_level(level)
        data = self._without_past(X, y, "term_intervals")
        if not len(self._terms_table):
            raise ValueError("input_effects has no penalised terms; see standard_errors for other parameters")
        objective, _, scale = self._objective_at(examples := self._setting().examples(data))
        inputs = self._fitted_chain.inputs
        exact = self._exact(objective, examples)
        marginal, blocks = marginal_likelihood(exact, inputs, restricted=self.input_effects.restricted)
        terms = rows_of_blocks(self.terms_, blocks, exact.emission, self._names_of_features())
        intervals = with_intervals(terms, blocks, marginal, encoded_sds(terms, blocks, exact.emission, scale), level)
        return self.terms_.join(intervals[["standard_error", "ci_low", "ci_high"]])

    # -- the chain -----------------------------------------------------------------------------------------

    @property
    def stationary_(self) -> np.ndarray:
        """Share of its steps that a long sequence from ``initial_`` spends in each state, ``(K,)``.

        Where ends are events, it is the expected number of visits of a sequence to each state, divided by their sum. If
        some states can never be left for others, there are several stationary distributions; this is the one that the
        chain approaches from ``initial_``. ``AbsentAttributeError`` is raised if transitions or durations depend on
        inputs.
        """
        if self.parameters_.duration_slopes is not None:
            raise AbsentAttributeError(
                "durations depend on inputs, so there is no stationary distribution; call effects(X, name, "
                "'stationary') for those at values of an input"
            )
        if self.parameters_.transition_slopes is not None:
            raise AbsentAttributeError(
                "transitions depend on inputs, so there is no stationary distribution; see transition_at, or call "
                "effects(X, name, 'stationary') for those at values of an input"
            )
        chain = self._fitted_chain
        return chain.stationary(self.parameters_, self._emission_of(chain))

    @checked
    def reorder(self, order: Sequence[int] | np.ndarray | Literal["mean", "stationary"]) -> Self:
        """Return a copy whose state i is this model's state ``order[i]``: the same probabilities under other numbers.

        Arguments that speak of single states (a topology, ``tied``, ``frozen``, priors) change with them, so that
        ``warm_start`` goes on from the copy as it would from this model. The statistics of earlier batches of
        ``partial_fit`` are dropped.

        Args:
            order: a permutation of the states; ``"mean"`` sorts states by the mean of what they emit, the first feature
                first; ``"stationary"`` puts states that are visited most first (where transitions depend on inputs,
                with all inputs at their mean).

        Raises:
            ValueError: ``order`` is no permutation of the states, or it is ``"mean"`` for symbols or an autoregression,
                whose states have no mean.
        """
        chain, k = self._fitted_chain, len(self.parameters_.initial)
        shares = partial(chain.stationary, self.parameters_, self._emission_of(chain))
        permutation = permutation_of_states(order, k, shares, self._means_by_state)
        other = copy.copy(self).set_params(**reordered(self.get_params(deep=False), permutation))
        index = torch.as_tensor(permutation.astype(np.int64))
        other.observation_ = reordered_observation(self.observation_, permutation)
        other.parameters_ = relative_to_references(chain.reordered(self.parameters_, index))
        other.statistics_ = None
        if len(self._terms_table):
            group = other._fitted_chain.options.constraints.tying.group
            of_both = self.parameters_, other.parameters_
            other._terms_table = reordered_terms(self._terms_table, permutation.tolist(), *of_both, group)
        if self._posterior is not None:
            other._posterior = replace(self._posterior, hyper=chain.reordered(self._posterior.hyper, index))
        return other

    def _means_by_state(self) -> np.ndarray:
        """Return the mean of what each state emits, ``(K, D)`` for K states and D features, in raw units.

        Raises:
            ValueError: states have no mean, because they emit symbols or are autoregressive.
        """
        raw = self._raw_parameters()
        if "means_" in raw:
            means = raw["means_"]
            return means if means.ndim == 2 else np.einsum("km,kmd->kd", raw["weights_"], means)
        if self.observation_.emits == "symbols" or self.observation_.n_past:
            raise ValueError(
                f"order is 'mean', but states of {self.observation_!r} have no mean; pass 'stationary' or a "
                "permutation, such as np.argsort of a column of state_summary()"
            )
        table = self.parameters_.table
        shift, scale = (torch.as_tensor(v, dtype=torch.float64) for v in self.encoding_.affine())
        states = torch.eye(len(table), dtype=torch.float64).log()

        def mean(log_weights: torch.Tensor) -> np.ndarray:
            of_state = self.observation_.distribution(
                table, log_weights=log_weights, past=None, shift=shift, scale=scale
            )
            return np.asarray(of_state.mean)

        return np.stack([mean(log_weights) for log_weights in states])

    # -- variational Bayes ---------------------------------------------------------------------------------

    @property
    def lower_bound_(self) -> float:
        """Evidence lower bound on the log-probability of the training data, in nats (``algorithm="variational"``).

        It bounds ``log p(X)``, in which the parameters are integrated out under the prior, from below; each sequence
        counts with its weight, and densities are of raw units. It compares numbers of states on the same data, and is
        not ranked with log-probabilities of given parameters. Where an autoregression reads missing values, their
        distribution is that of a filter fitted to the data (``hmm.missing_past``) and no part of the bound.
        ``NotFittedError`` is raised after other algorithms.
        """
        return self._variational().lower_bound

    @property
    def posterior_(self) -> Mapping[str, np.ndarray]:
        """Hyperparameters of the posterior of the parameters by name, in raw units (``algorithm="variational"``).

        K states, D features (or longest duration), V symbols, M components. Concentrations are the parameters of
        Dirichlet distributions: ``initial (K,)``, ``transition (K, K)``, ``final (K,)`` under ``length="stop"``, and
        ``durations (K, D)`` of a semi-Markov model with categorical durations. Gamma distributions of rates in
        continuous time have shapes ``jumps (K, K)`` and rates ``time (K,)``. Symbols have the concentrations
        ``emission (K, V)``; counts have Gamma distributions with ``shape`` and ``rate (K, D)``; bits have Beta
        distributions with ``on`` and ``off (K, D)``. Mixtures have the concentrations ``weights (K, M)``, then
        ``mean (K, M, D)`` and ``mean_count``, and for precisions ``precision_shape`` and ``precision_rate (K, M, D)``,
        or ``degrees_of_freedom (K, M)`` and ``inverse_scale (K, M, D, D)``. ``Columns`` have those of all groups; a
        name that several groups share gets the number of the group, ``mean_0``. Autoregressions, and Gaussians given
        inputs, have the means ``coefficients (K, D, pD)``, ``slopes (K, D, U)`` and ``intercepts (K, D)``;
        ``regressor_precision (K, F, F)``, the inverse of the covariance of a row of coefficients, slopes on inputs less
        their means, then the intercept, divided by the variance of its innovation; the numbers of the innovations'
        precisions, which have the names of mixtures without the axis M; and autoregressions the same of the first
        steps, ``first_mean (K, D)`` and so on, equal for all states. Of a frozen emission they are those of the prior.
        ``NotFittedError`` is raised after other algorithms.
        """
        hyper, chain = self._variational().hyper, self._fitted_chain
        of_chain = {"initial": hyper.initial.numpy(), **chain.rows_family().raw(hyper)}
        return {**of_chain, **self._conjugate_family(chain).raw(hyper.table, *self.encoding_.affine())}

    @checked
    def sample_posterior(self, n: int = 1, *, random_state: Seed | None = None) -> list[Self]:
        """Draw ``n`` models from the posterior of their parameters (``algorithm="variational"``).

        Args:
            n: number of models, at least 1.
            random_state: seed, or None for the model's.

        Returns:
            Fitted models, each with its drawn parameters, for scoring, sampling or decoding.

        Raises:
            NotFittedError: the model was not fitted with ``algorithm="variational"``.
            ValueError: ``n`` is below 1.
        """
        if n < 1:
            raise ValueError(f"n is {n}; pass at least 1")
        hyper, chain = self._variational().hyper, self._fitted_chain
        family, constraints = self._conjugate_family(chain), chain.options.constraints
        of_posterior = (hyper, family, self.start_, chain.rows_family())
        generator = torch.Generator().manual_seed(self.random_state if random_state is None else random_state)
        models, mean = [], chain.inputs.joined(self.parameters_, self._emission)
        for _ in range(n):
            model = copy.copy(self).set_params(algorithm="em", training__prior=None)
            drawn = constraints.keep(mean, drawn_parameters(*of_posterior, generator), family.emission)
            drawn = replace(drawn, table=family.emission.tie(drawn.table))  # of a frozen state and the others
            model.parameters_, model._posterior = chain.inputs.parted(drawn, self._emission), None
            models.append(model)
        return models

    def _variational(self) -> VariationalPosterior:
        posterior: VariationalPosterior | None = self.__dict__.get("_posterior")
        if posterior is None:
            raise NotFittedError(NO_POSTERIOR)
        return posterior

    # -- parameters ----------------------------------------------------------------------------------------

    @property
    def initial_(self) -> np.ndarray:
        """Probability of each state at the first step, ``(K,)``; if it depends on inputs, with all at their mean."""
        return self.parameters_.initial.numpy()

    @property
    def transition_(self) -> np.ndarray:
        """Probability of going from state i to state j, ``(K, K)``; if it depends on inputs, with all at their mean.

        It is from step to step, in an ``HSMM`` from segment to segment (visits to a state), and in a
        ``ContinuousTimeHMM`` over one unit of time.
        """
        return self.parameters_.transition.numpy()

    @property
    def final_(self) -> np.ndarray:
        """Probability that the sequence ends after each state, ``(K,)``; zeros under ``length="given"``."""
        final = self.parameters_.final
        return np.zeros(len(self.initial_)) if final is None else final.numpy()

    @property
    def transition_slopes_(self) -> np.ndarray:
        """Change of the log-odds of going from state i to j rather than staying, per unit of each input, ``(K, K, U)``.

        Units are those of raw inputs. The U inputs are in the order of ``input_names_``; those that transitions do not
        depend on have zeros. For a state that cannot stay, the odds are against the first state that it leads to.
        ``AttributeError`` is raised if transitions depend on no inputs.
        """
        slopes, scaling = self.parameters_.transition_slopes, self._effects_scaling
        if slopes is None or scaling is None:
            raise AttributeError(f"this {type(self).__name__} has transitions that depend on no inputs")
        return np.asarray(slopes.numpy() / scaling.units)

    @property
    def terms_(self) -> pd.DataFrame:
        """The estimated variances of penalised terms of inputs: a row for each term in each regression.

        The columns are ``part`` (``transitions``, ``emissions`` or ``first_state``), ``state``, ``feature`` (the state
        after it, or the feature or symbol), ``term``, ``sd``, the standard deviation of a random effect, or of a smooth
        function at a step of the training sequences by its variance, and ``edf``, the effective degrees of freedom of
        the term, with its linear part. Standard deviations of means are in raw units, those of log-odds and log-means
        have none. There are no rows if ``input_effects`` has no terms.
        """
        return self._terms_table.copy()

    @property
    def initial_slopes_(self) -> np.ndarray:
        """Change of the log-odds of starting in each state, per unit of each input of the first step, ``(K, U)``.

        Units are those of raw inputs. The odds are against the first possible state. The U inputs are in the order of
        ``input_names_``. ``AttributeError`` is raised if the first state depends on no inputs.
        """
        slopes, scaling = self.parameters_.initial_slopes, self._effects_scaling
        if slopes is None or scaling is None:
            raise AttributeError(f"this {type(self).__name__} has a first state that depends on no inputs")
        return np.asarray(slopes.numpy() / scaling.units)

    @property
    def emission_slopes_(self) -> np.ndarray:
        """Effect of one unit of each raw input on the D features, or V symbols, of each state: ``(K, D or V, U)``.

        It is added to the mean or location of a feature in its raw unit, to the log-odds of a bit or of the mean of a
        proportion, to the log-mean of a count or of a positive value, or to the log-odds of a symbol against the first.
        For mixtures of M Gaussians the shape is ``(K, M D, U)``, component by component. For angles it is
        ``(K, 2 D, U)``: an input adds to κ cos μ of each, then to κ sin μ. Inputs are in the order of ``input_names_``.
        ``AttributeError`` is raised if emissions depend on no inputs.
        """
        slopes, scaling = self.parameters_.table_slopes, self._effects_scaling
        if slopes is None or scaling is None:
            raise AttributeError(f"this {type(self).__name__} has emissions that depend on no inputs")
        regression = regressed_columns(self._emission)
        units = regression.units(torch.as_tensor(self.encoding_.affine()[1], dtype=torch.float64)).numpy()
        return np.asarray(slopes[:, regression.places].numpy() * units[:, None] / scaling.units)

    def transition_at(self, inputs: Any) -> np.ndarray:
        """Return the transition probabilities into steps with given inputs, ``(T, K, K)`` for T steps and K states.

        In continuous time they are over one unit of time.

        Args:
            inputs: raw values of the U inputs at each step, ``(T, U)``, or a mapping from names of inputs to their
                values.

        Raises:
            ValueError: transitions depend on no inputs, or inputs are missing or have another shape.
        """
        u = self._encoded_inputs(self.parameters_.transition_slopes, inputs, "transitions depend", "transition_")
        return self._fitted_chain.transitions_at(self.parameters_, u).numpy()

    def initial_at(self, inputs: Any) -> np.ndarray:
        """Return the probabilities of the first state of n sequences whose first step has given inputs, ``(n, K)``.

        Args:
            inputs: raw values of the U inputs at each first step, ``(n, U)``, or a mapping from names of inputs to
                their values.

        Raises:
            ValueError: the first state depends on no inputs, or inputs are missing or have another shape.
        """
        slopes = self.parameters_.initial_slopes
        u = self._encoded_inputs(slopes, inputs, "first state depends", "initial_")
        assert slopes is not None, "checked"
        return log_initial(self.parameters_.initial, slopes, u).exp().numpy()

    def _encoded_inputs(self, slopes: torch.Tensor | None, inputs: Any, what: str, instead: str) -> torch.Tensor:
        """Return standardised inputs of T steps, ``(T, U)``, given their raw values.

        Args:
            slopes: slopes on the inputs, or None if there are none.
            inputs: raw values, ``(T, U)``, or a mapping from names of inputs to their values.
            what: what would depend on the inputs, with the verb, for the error message.
            instead: the attribute that has it where nothing depends on inputs.

        Raises:
            ValueError: there are no slopes, or inputs are missing or have another shape.
        """
        scaling = self._effects_scaling
        if slopes is None or scaling is None:
            raise ValueError(f"the {what} on no inputs; see {instead}")
        return torch.as_tensor(scaling.encode_steps(inputs))

    def _with_given_slopes(self, parameters: Parameters, slopes: Mapping[str, Any]) -> Parameters:
        """Return ``parameters`` with the slopes that were passed to ``from_parameters``, once the encoding is known.

        Slopes of transitions and first states become relative to the reference of their row, which changes no
        probability. A model that reads no inputs gets its parameters back.

        Args:
            parameters: parameters where all inputs are at their mean.
            slopes: slopes for raw inputs of ``"transitions"``, ``"emissions"``, ``"first_state"`` and, in a model that
                has such, ``"durations"``; None for a part without slopes.

        Raises:
            ValueError: inputs that ``input_effects`` does not name, or does not find; slopes of a wrong shape; choices
                that exclude inputs.
        """
        self._check_given_inputs()
        scaling, k = self._effects_scaling, len(parameters.initial)
        if scaling is None:
            return parameters
        emission = self._emission_of(self._chain_of(k, start="free"))
        fitted = (self.input_effects, self._input_options(), scaling.units, emission, self.encoding_)
        return relative_to_references(with_slopes(parameters, slopes, *fitted))

    def _named_parameters(self) -> Mapping[str, Any]:
        return self._raw_parameters() if "parameters_" in vars(self) else {}

    def _check_given_inputs(self) -> None:
        """Raise ``ValueError`` for inputs of ``from_parameters`` that do not fit the arguments.

        That is so for inputs that ``input_effects`` does not name or does not have, and for arguments that exclude
        inputs.
        """
        names = () if self._input_scaling is None else self._input_scaling.names
        read = self._inputs_among(names)
        if read != names:
            lacking = [name for name in read if name not in names]
            unread = [name for name in names if name not in read]
            problem = (
                f"has no {lacking[0]!r}, which is named" if lacking else f"has {unread[0]!r}, which nothing depends on"
            )
            raise ValueError(f"inputs {problem}; pass the inputs that input_effects names, and slopes of them")
        if self._effects_scaling is None:
            return
        if self.length_ == "stop":
            raise ValueError(
                "the inputs of a sequence say how long it is, so that its end cannot be an event; leave final out"
            )
        self._check_with_inputs()

    def _check_with_inputs(self) -> None:
        """Raise ``ValueError`` for arguments that do not go with effects of inputs."""
        effects = self.input_effects
        if effects.durations and not self._has_durations:
            raise ValueError(
                f"{a_or_an(type(self))} has no durations apart from its transitions; name the inputs as transitions of "
                "input_effects, or fit an hmm.HSMM"
            )
        of_transitions = bool(effects.transitions) and not self._stationary_follows_inputs
        of_each = {"of_transitions": of_transitions, "of_start": bool(effects.first_state)}
        check_with_inputs(self.start, **of_each)
        if self.algorithm == "variational" and (effects.transitions or effects.first_state or effects.durations):
            raise ValueError(
                "transitions, first states and durations that depend on inputs have no conjugate prior; leave them out "
                "of input_effects, pass algorithm='em', or draw from the posterior with hmm.PosteriorHMM"
            )

    def _check_with_terms(self) -> None:
        """Raise ``ValueError`` for arguments that do not go with penalised terms of inputs."""
        term = self._terms[0].label
        if not self._takes_terms:
            raise ValueError(
                f"{a_or_an(type(self))} has no penalised terms such as {term}; pass them to an HMM or an hmm.HSMM"
            )
        if self.algorithm != "em":
            raise ValueError(
                f"algorithm={self.algorithm!r} does not fit penalised terms such as {term}; pass algorithm='em'"
            )
        if self.start == "stationary":
            raise ValueError(f"start='stationary' does not go with penalised terms such as {term}; pass start='free'")
        if self._is_warm_start:
            raise ValueError(f"a fit with penalised terms such as {term} cannot be continued; pass warm_start=False")
        check_n_points(self.input_effects.new_group_points)

    def _set_fitted(self, parameters: Parameters, start: Start) -> None:
        """Set the fitted attributes to given parameters; ``from_parameters`` calls it once the encoding is known.

        Args:
            parameters: parameters of the chain and its emissions.
            start: how the distribution of the first state is determined.
        """
        import pandas as pd

        self._clear_learned()
        self.parameters_, self.statistics_, self.start_ = parameters, None, start
        self._fitted_structure = dict(self._structure)
        self.history_, self.converged_, self.fit_seconds_ = pd.DataFrame(), True, 0.0
        self.starts_ = starts_table([], None)
        n_densities = self._emission.n_densities(len(parameters.initial))
        self._dtype_of_auto = dtype_of_size(n_densities, FLOAT64_DENSITIES_OF_FRAME)

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
        if len(self._terms_table):
            state["terms"] = terms_arrays(self._terms_table)
        return state if shared is None else {**state, "shared_autoregression": shared.numpy()}

    def _restore(self, state: dict[str, Any]) -> None:
        self._check_restored()
        state = dict(state)
        self._clear_learned()
        self._fitted_structure = dict(self._structure)
        self.starts_ = starts_from_arrays(state.pop("starts", None))
        # Files of earlier versions have no start where it was "free", or what the argument says, and no dtype.
        self.start_ = state.pop("start", "free" if self.start == "auto" else self.start)
        if self.start_ not in STARTS:
            raise ValueError(f"start is {self.start_!r} in the file; it should be one of {', '.join(STARTS)}")
        self._dtype_of_auto = state.pop("dtype", "float32")
        if self._dtype_of_auto not in DTYPES:
            raise ValueError(f"dtype is {self._dtype_of_auto!r} in the file; it should be one of {', '.join(DTYPES)}")
        if "shared_autoregression" in state:
            observation = _estimated(self.observation_)
            n_numbers = observation.n_output_parameters(self.encoding_.size)
            row = torch.tensor(array_of(state, "shared_autoregression", np.float64, (n_numbers,)))
            observation.check_table(row[None], self.encoding_.size)
            self.shared_autoregression_ = row
            del state["shared_autoregression"]
        posterior = state.pop("posterior", None)
        self._terms_table = terms_from_arrays(state.pop("terms", None))
        chain = self._chain_of(self.n_states)
        self.observation_.check(self.encoding_.size)
        self.parameters_ = chain.parameters_of_file(state, self._emission_of(chain))
        if posterior is not None:
            family = self._conjugate_family(chain)
            self._posterior = VariationalPosterior.from_arrays(posterior, self.parameters_, family)


def _estimated(observation: Observation) -> Observation:
    return observation.at_estimates() if isinstance(observation, AutoregressiveGaussian) else observation


def dtype_of_size(n_densities: int, most: int) -> str:
    """Return what ``dtype="auto"`` becomes where there are ``n_densities``: float64 up to ``most``, else float32."""
    return "float64" if n_densities <= most else "float32"


def _possible(
    chain: HiddenChain[Any],
    algorithm: Callable[[Any], tuple[list[torch.Tensor], torch.Tensor]],
    batch: PackedBatch,
    trellis: Any,
) -> list[torch.Tensor]:
    """Return the result of an inference algorithm for each sequence of a batch, after checking that none is impossible.

    Args:
        chain: the hidden chain, which words the error.
        algorithm: function that takes the trellis and returns these results and each sequence's log-probability.
        batch: the sequences.
        trellis: parameters and densities of the batch.

    Raises:
        ValueError: a sequence has probability zero; the message names it.
    """
    results, log_prob = algorithm(trellis)
    chain.refuse(batch.impossible(log_prob))
    return results


def _of_last_and(inputs: np.ndarray | None, ahead: np.ndarray) -> torch.Tensor:
    """Return the inputs of the last observed step, and below them those of the k steps ahead, ``(1 + k, U)``.

    Args:
        inputs: inputs of the T observed steps, ``(T, U)``; never None for a model that reads inputs.
        ahead: inputs of the k steps ahead, ``(k, U)``.
    """
    assert inputs is not None, "a model that reads inputs has those of all steps"
    return torch.as_tensor(np.concatenate([inputs[-1:], ahead]))


def _n_steps(example: Example) -> int:
    """Return the number of encoded steps of ``example``, of its source and then its values, each with a state."""
    return len(example.values) + (0 if example.source is None else len(example.source))
