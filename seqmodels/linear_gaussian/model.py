"""``LinearGaussian``: a linear-Gaussian state-space model as a ``SequenceModel``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, get_args

import numpy as np
import torch

from seqmodels.common.array_checks import array_of, check_between, numbers_of
from seqmodels.common.attributes import AbsentAttributeError
from seqmodels.common.distributed import share_of
from seqmodels.common.parameters import checked, made_with
from seqmodels.encodings.examples import Example, without_past
from seqmodels.encodings.inputs import TIME, InputScaling, chosen_inputs
from seqmodels.encodings.raw_data import Data
from seqmodels.generation import Prediction
from seqmodels.generation.forecast import feature_names
from seqmodels.inference.gaussian.diffuse import diffuse_moments, split_by_length
from seqmodels.inference.gaussian.kalman import (
    Gains,
    covariances_by_adjoints,
    filter_group,
    predicted_variances,
    smooth_group,
    smooth_group_by_adjoints,
    summed_covariances,
)
from seqmodels.inference.gaussian.missing import log_probs_of_block
from seqmodels.inference.gaussian.packing import StepPacking
from seqmodels.linear_gaussian.cursor import SMALLEST_VARIANCE, SystemCursor, predicted_by
from seqmodels.linear_gaussian.innovations import N_PARAMETERS, InnovationSteps, InnovationsType, StudentTInnovations
from seqmodels.linear_gaussian.input_effects import SlopesOfInputs
from seqmodels.linear_gaussian.learning.banded_arima import BandedARIMA
from seqmodels.linear_gaussian.learning.em import SystemEM, SystemObjective, SystemStore
from seqmodels.linear_gaussian.learning.initialise import starts
from seqmodels.linear_gaussian.learning.statistics import SystemData, check_determined, e_step
from seqmodels.linear_gaussian.learning.structural import StructuralNumbers, first_moments, run_structural
from seqmodels.linear_gaussian.parameters import (
    Form,
    NoiseType,
    Start,
    StateNoiseType,
    SystemParameters,
    TransitionType,
    check_covariance,
    stationary_covariance,
)
from seqmodels.linear_gaussian.state_space import StateSpaceModel, encoded_sequences, raw_size
from seqmodels.linear_gaussian.structures import (
    ARIMA,
    Component,
    Cycle,
    LocalLevel,
    OrnsteinUhlenbeck,
    Seasonal,
    SmoothTrend,
    Structure,
    Trend,
)
from seqmodels.linear_gaussian.time_gaps import SystemCursorOverGaps, gaps_of
from seqmodels.linear_gaussian.time_grid import SystemCursorOnGrid, places_of, values_on_grid
from seqmodels.linear_gaussian.timed_cursor import TimedSystemCursor
from seqmodels.model.fitting import checked_data, resolved_choices
from seqmodels.observations import GaussianMixture, Observation
from seqmodels.sequences import Kind
from seqmodels.sequences.times import DateUnit
from seqmodels.training import (
    Callback,
    Checkpoints,
    EMTraining,
    FitResult,
    Starts,
    checkpoints_of_fit,
    run_em,
)

if TYPE_CHECKING:
    import pandas as pd

MOST_STATES = 64  # by default
INTERCEPT = "intercept"  # a component, where no other holds the level
# What a structure takes: how its states move and begin is its own.
STRUCTURAL: dict[str, Any] = {"start": "diffuse", "transition": "full", "state_noise": "diag"}


@dataclass(frozen=True)
class StateMoments:
    """Means and covariances of the Gaussian hidden states of one sequence, of T steps and K states.

    Attributes:
        means: mean of the state at each step, ``(T, K)``.
        covariances: covariance of the state at each step, ``(T, K, K)``.
    """

    means: np.ndarray
    covariances: np.ndarray


@dataclass(eq=False, repr=False)
class LinearGaussian(StateSpaceModel[SystemParameters]):
    """A linear-Gaussian state-space model of sequences of vectors, with continuous hidden states, fitted by EM::

        z_1 ~ N(m, P),  z_t = A z_t-1 + B u_t + w_t,  w_t ~ N(0, Q)
        x_t = C z_t + D u_t + d + v_t,                v_t ~ N(0, R)

    Here z_t are K hidden states, x_t is a step with D features, and u_t are inputs. ``p(x_t | x_<t)``, the prediction
    of a step from those before, is the Gaussian of the Kalman filter (Kalman 1960), in square-root form and float64
    whatever ``dtype`` says. It runs on the CPU whatever ``device`` says, but for single steps (``predict_next``,
    ``stream``, ``sample``). EM is that of Shumway and Stoffer (1982) and of Ghahramani and Hinton (1996). Values may be
    missing (NaN), each by itself. The length of a sequence is taken as given and has no probability.

    Args:
        n_states: number of states K. ``"auto"`` takes two for each feature, so that one may follow its value and one
            its slope, and 64 at most; ``n_states_`` has the number. It is ignored with a ``structure``.
        start: distribution of the first state. ``"learned"`` is a Gaussian of its own; ``"stationary"`` is the
            stationary distribution of the transitions, of mean 0. Under ``"diffuse"`` nothing is known of it in
            ``fit``, which maximises the diffuse log-likelihood (Durbin and Koopman 2012, section 7.2.2): the first
            values, as many as there are states, contribute no density to it. ``diffuse_log_prob`` returns this figure,
            which cannot be compared with scores of other models; ``score`` still counts every step, from a start with
            the mean and covariance of the first states that are estimated from the training sequences.
        observation_noise: form of R, ``"diag"`` or ``"full"``; ``"none"`` (no noise) is allowed only with a structure
            that ends with an ARIMA.
        transition: form of A, ``"full"`` or ``"diag"``; ``"diag"`` needs ``state_noise`` ``"diag"`` or ``"identity"``.
        state_noise: form of Q, ``"full"``, ``"diag"`` or ``"identity"``. Under ``transition="full"`` it does not
            restrict p(x), but only chooses the coordinates of the states.
        intercept: True if d is learned; without it the mean of x where z is 0 is the mean of the training steps.
        structure: components (``LocalLevel()``, ``Trend()``, ``Seasonal(12)``, ``ARIMA(1, 1, 1)``) whose sum, with
            noise, is the one feature. ``local_level``, ``trend``, ``smooth_trend``, ``ornstein_uhlenbeck``, ``cycle``,
            ``seasonal`` and ``arima`` make such models, which may be added. L-BFGS finds the few numbers
            (``components_``) that maximise the diffuse likelihood.
        min_covariance: floor of the variances of R, in units of the standardised data; of its eigenvalues under
            ``"full"``. A start whose variances end at the floor loses to one whose variances do not.
        max_iter: maximum number of EM steps of each start.
        tol: EM stops when a step improves the log-probability by less than this, in nats per unit; 0 never stops early.
        max_seconds: maximum number of seconds of a fit, over all starts; None sets no limit.
        n_init: number of starts; the one with the best objective wins. The first is the likelier of two guesses, one
            from canonical variates of past and future steps, one from principal components; others are random.
        state_inputs, observation_inputs: names of inputs (``Sequences(items, inputs=...)``) that states and
            observations are regressed on; True takes all, None or False takes none. Inputs do not affect the first
            state.
        time_step: time between two steps of the state. The ``times`` of sequences are then read, and may be any whole
            number of steps apart: over a gap of n steps the state moves exactly, by ``A^n`` and the noise of n steps,
            and scores are of p(x | times). Sequences without times are taken to be one step apart. With None, times are
            not read. If all components of a ``structure`` are in continuous time (``LocalLevel``, ``SmoothTrend``,
            ``OrnsteinUhlenbeck``, ``Cycle``), gaps are any numbers from 0 on, and ``time_step`` is the unit of time of
            the fitted numbers.
        date_unit: unit of ``time_step`` where times are dates: ``"s"``, ``"min"``, ``"h"``, ``"D"``, ``"W"`` or ``"Y"``
            (of 365.25 days).
        innovations: density of the innovations, the errors of one-step predictions in deviations of the filter.
            ``"gaussian"`` is that of the system above, under which a jump costs its square. The others are innovations
            forms (Harvey 1989, section 3.3): the recursions of the filter stay, and ``p(x_t | x_<t)`` is a multivariate
            Student t density around its mean, under which a jump costs its logarithm. Under ``"t"`` it has degrees of
            freedom, from 2 to 10 D, and one scale. Under ``"beta-t-egarch"`` the scale follows past innovations too:
            its logarithm moves by a multiple, at least 0.02, of the score of the t density (Harvey and Chakravarty
            2008, *Beta-t-(E)GARCH*, of unit persistence), and stays where nothing is observed. Predictions of one step
            are exact; those of several steps are made of drawn paths.

    ``training`` is a ``training.EMTraining``, which says where the fit writes checkpoints and from where it resumes: EM
    continues at the step it had reached; the fit of a structure is repeated with the evaluations that the checkpoint
    stores. The other arguments are those of ``SequenceModel``. EM needs no held-out data: ``validation="auto"`` holds
    out nothing. With targets y, EM maximises p(x, y), and ``history_`` reports this joint likelihood.

    If ``innovations`` are not Gaussian, ``fit`` estimates the system as if they were, and ``history_`` reports this.
    Then two or three numbers are estimated that make the innovations of the training sequences most probable, with the
    system held fixed. ``innovations_`` has them as ``degrees_of_freedom``, ``scale`` (in deviations of the filter) and
    ``gain`` (0 under ``"t"``); it is None if innovations are Gaussian. ``filter``, ``smooth``, ``components``,
    ``input_effects`` and ``diffuse_log_prob`` are always those of the Gaussian system.

    Attributes, in raw units but for the states, which have units of their own (under a ``structure`` those of the
    series): ``transition_ (K, K)``, ``state_covariance_ (K, K)``, ``observation_matrix_ (D, K)``, ``intercept_ (D,)``,
    ``observation_covariance_ (D, D)``, ``initial_mean_ (K,)``, ``initial_covariance_ (K, K)``.

    >>> x = [np.array([[1.0], [2.0], [1.5], [2.5], [3.0]])]
    >>> model = LinearGaussian.from_parameters([[1.0]], [[0.5]], [[1.0]], [[0.1]], [0.0], [[10.0]])
    >>> model.log_prob(x).round(3)
    array([-6.83])
    >>> model.smooth(x)[0].means[:, 0].round(2)
    array([1.13, 1.83, 1.68, 2.44, 2.91])
    """

    n_states: int | Literal["auto"] = "auto"
    start: Start = "learned"
    observation_noise: NoiseType = "diag"
    transition: TransitionType = "full"
    state_noise: StateNoiseType = "full"
    intercept: bool = True
    structure: Sequence[Component] | None = None
    min_covariance: float = 1e-6
    max_iter: int = 100
    tol: float = 1e-5
    n_init: int = 1
    _: KW_ONLY
    max_seconds: float | None = None
    state_inputs: Sequence[str] | bool | None = None
    observation_inputs: Sequence[str] | bool | None = None
    time_step: float | None = None
    date_unit: DateUnit = "D"
    innovations: InnovationsType = "gaussian"
    training: EMTraining = field(default_factory=EMTraining)

    _bounded_by_data: ClassVar[Mapping[str, str]] = {"n_states": "steps"}
    _costly: ClassVar[frozenset[str]] = frozenset({"n_states"})
    _fits_in_parallel: ClassVar[bool] = True

    # -- structures ----------------------------------------------------------------------------------------

    @classmethod
    def local_level(cls, **options: Any) -> Self:
        """Return an unfitted model of a random walk (the level) that is observed with noise.

        Args:
            options: other arguments of ``LinearGaussian``.
        """
        return cls._structural(LocalLevel(), options)

    @classmethod
    def trend(cls, **options: Any) -> Self:
        """Return an unfitted local linear trend model: a level and its slope, both random walks, observed with noise.

        Args:
            options: other arguments of ``LinearGaussian``.
        """
        return cls._structural(Trend(), options)

    @classmethod
    def seasonal(cls, period: int, **options: Any) -> Self:
        """Return an unfitted model of seasonal effects that repeat every ``period`` steps, observed with noise.

        It has no level of its own, so it is usually added to a level or a trend: ``LinearGaussian.trend() +
        LinearGaussian.seasonal(12)``.

        Args:
            period: number of steps in a period, 2 or more.
            options: other arguments of ``LinearGaussian``.
        """
        return cls._structural(Seasonal(period), options)

    @classmethod
    def arima(
        cls, p: int = 1, d: int = 0, q: int = 0, *, seasonal: Sequence[int] = (0, 0, 0, 1), **options: Any
    ) -> Self:
        """Return an unfitted ARIMA model, with optional seasonal terms and no observation noise (Box and Jenkins 1970).

        It has an intercept if nothing is differenced. If it is the only component, it is fitted, and series without
        missing values are scored, by banded matrices where these are faster than the Kalman filter; the results are the
        same.

        Args:
            p, d, q: order of the autoregression, number of differences, and order of the moving average.
            seasonal: orders P, D and Q of the seasonal polynomials, and the number of steps in a season.
            options: other arguments of ``LinearGaussian``.

        Raises:
            ValueError: ``seasonal`` does not have four numbers.

        >>> rng = np.random.default_rng(0)
        >>> y = np.arange(96) % 12 + rng.normal(size=96).cumsum()
        >>> airline = LinearGaussian.arima(0, 1, 1, seasonal=(0, 1, 1, 12)).fit([y[:, None]])
        >>> sorted(airline.components_)
        ['arima_ma1', 'arima_seasonal_ma1', 'arima_variance']
        """
        if len(seasonal) != 4:
            raise ValueError(
                f"seasonal is {seasonal!r}; pass the orders P, D and Q and the steps of a season, as (0, 1, 1, 12)"
            )
        P, D, Q, season = seasonal
        component = ARIMA(p, d, q, seasonal_p=P, seasonal_d=D, seasonal_q=Q, season=season)
        intercept = not d and not D
        return cls._structural(component, {"observation_noise": "none", "intercept": intercept, "n_init": 5, **options})

    @classmethod
    def smooth_trend(cls, **options: Any) -> Self:
        """Return an unfitted model of a smooth level, whose slope is a Wiener process, observed with noise.

        The smoothed level is a cubic spline. With ``time_step`` the series may be observed at any times.

        Args:
            options: other arguments of ``LinearGaussian``.
        """
        return cls._structural(SmoothTrend(), options)

    @classmethod
    def ornstein_uhlenbeck(cls, **options: Any) -> Self:
        """Return an unfitted model of an Ornstein-Uhlenbeck process with an intercept, observed with noise.

        The process is stationary, with correlation ``exp(-θ δ)`` at times δ apart. With ``time_step`` the series may be
        observed at any times.

        Args:
            options: other arguments of ``LinearGaussian``.
        """
        return cls._structural(OrnsteinUhlenbeck(), {"intercept": True, **options})

    @classmethod
    def cycle(cls, period: float, **options: Any) -> Self:
        """Return an unfitted model of a stochastic cycle with an intercept, observed with noise.

        The amplitude and phase of the cycle change slowly. With ``time_step`` the series may be observed at any times.

        Args:
            period: length of the cycle in steps, any number above 0.
            options: other arguments of ``LinearGaussian``.
        """
        return cls._structural(Cycle(period), {"intercept": True, **options})

    @classmethod
    def _structural(cls, component: Component, options: dict[str, Any]) -> Self:
        defaults = {**STRUCTURAL, "intercept": False, "max_iter": 500, "tol": 1e-11}
        return made_with(cls, {**defaults, **options}, structure=[component])

    def __add__(self, other: LinearGaussian) -> Self:
        """Return an unfitted model of the sum of two structural models, with the components of both.

        It has observation noise if either model has it, and an intercept only if both have one. Its other arguments are
        those of the first model.

        Args:
            other: a model with a ``structure``, such as ``LinearGaussian.trend()``.

        Raises:
            ValueError: one of the models has no ``structure``.
        """
        if not isinstance(other, LinearGaussian):
            return NotImplemented
        if self.structure is None or other.structure is None:
            raise ValueError("only models of a structure add, such as LinearGaussian.trend()")
        noise = self.observation_noise if self.observation_noise != "none" else other.observation_noise
        intercept = self.intercept and other.intercept  # of a level, which is diffuse, it would add nothing
        together = {
            "structure": [*self.structure, *other.structure],
            "observation_noise": noise,
            "intercept": intercept,
        }
        return self.clone().set_params(**together)

    # -- SequenceModel -------------------------------------------------------------------------------------

    @property
    def n_parameters_(self) -> int:
        structure, n = self._structure(), N_PARAMETERS[self.innovations]
        if structure is not None:  # and its diffuse first states
            return n + len(StructuralNumbers(structure, self._form()).start(0, 0)) + int(structure.diffuse().sum())
        D, K = self.parameters_.observation.shape
        return n + self._form().n_parameters(K, D)

    @property
    def n_states_(self) -> int:
        """The number of hidden states K: ``n_states``, the choice of ``"auto"``, or that of the ``structure``."""
        structure = self._structure()
        if structure is not None:
            return structure.n_states
        return min(2 * self.encoding_.size, MOST_STATES) if self.n_states == "auto" else self.n_states

    @property
    def _reads_inputs(self) -> bool:
        return bool(self.state_inputs) or bool(self.observation_inputs) or self.time_step is not None

    @property
    def _times_in(self) -> DateUnit | None:
        return None if self.time_step is None else self.date_unit

    @property
    def _time_step(self) -> float:
        return 1.0 if self.time_step is None else float(self.time_step)

    def _inputs_among(self, names: tuple[str, ...]) -> tuple[str, ...]:
        if self.time_step is not None:
            return (TIME,)
        read = [*chosen_inputs(self.state_inputs, names), *chosen_inputs(self.observation_inputs, names)]
        return tuple(dict.fromkeys([*(name for name in names if name in read), *read]))

    def _default_observation(self, kind: Kind) -> Observation:
        gaussian = super()._default_observation(kind)
        return gaussian if self.innovations == "gaussian" else predicted_by(is_gaussian=False)

    def _size_within(self, n_parameters: int, data: Data) -> int | None:
        if self.structure is not None:  # which says how many states there are
            return None
        n = n_parameters - N_PARAMETERS[self.innovations]
        return self._largest_n_states(n, data, lambda like, k: like._form().n_parameters(k, like.encoding_.size))

    def _check_hyperparameters(self) -> None:
        choices = {
            **{"start": Start, "observation_noise": NoiseType},
            **{"transition": TransitionType, "state_noise": StateNoiseType, "innovations": InnovationsType},
        }
        self._check_arguments_of_fit(
            (("n_states", 1), ("n_init", 1), ("max_iter", 0)),
            [(name, get_args(words)) for name, words in choices.items()],
        )
        self._check_time_step()
        if self.transition == "diag" and self.state_noise == "full":
            raise ValueError(
                "transition is 'diag' and state_noise 'full'; pass state_noise='diag' or 'identity', under which each "
                "state has a regression of its own"
            )
        if self.start == "stationary" and self.state_inputs:
            raise ValueError("start is 'stationary', but state_inputs drive the states; pass start='learned'")
        if self.structure is not None:
            self._check_structure(self.structure)
        elif self.observation_noise == "none":
            raise ValueError("observation_noise is 'none', but only an ARIMA has no other noise; pass 'diag' or 'full'")

    def _check_time_step(self) -> None:
        if self.date_unit not in get_args(DateUnit):
            raise ValueError(f"date_unit is {self.date_unit!r}; pass one of {', '.join(map(repr, get_args(DateUnit)))}")
        if self.time_step is None:
            return
        if not 0 < self.time_step < np.inf:
            raise ValueError(f"time_step is {self.time_step}; pass a number above zero, or None")
        if self.state_inputs or self.observation_inputs:
            raise ValueError(
                "with time_step there are steps between those of a sequence, whose inputs are not known; leave "
                "state_inputs and observation_inputs out, or time_step"
            )
        scaling = self._input_scaling if self.warm_start else None
        if scaling is not None and not _reads_in_steps(scaling, self.time_step, self.date_unit):
            raise ValueError(
                f"time_step={self.time_step} and date_unit={self.date_unit!r} are not what the model was fitted with, "
                "so warm_start cannot continue; set them back, or warm_start=False"
            )

    def _check_structure(self, structure: Sequence[Component]) -> None:
        if not structure or not all(isinstance(component, Component) for component in structure):
            raise ValueError(f"structure is {structure!r}; pass components, such as [LocalLevel(), Seasonal(12)]")
        for component in structure:
            component.check()
        wrong = [name for name, value in STRUCTURAL.items() if getattr(self, name) != value]
        if wrong:
            raise ValueError(
                f"{wrong[0]} is {getattr(self, wrong[0])!r}, but a structure says how its states move; pass "
                f"{STRUCTURAL[wrong[0]]!r}"
            )
        if self.state_inputs:
            raise ValueError("state_inputs cannot drive the states of a structure; pass observation_inputs")
        if self.observation_noise == "none" and not isinstance(structure[-1], ARIMA):
            raise ValueError(
                "observation_noise is 'none', which only a structure that ends with an ARIMA has; pass 'diag'"
            )

    def _form(self) -> Form:
        scaling, structure = self._input_scaling, self._structure()
        names = () if scaling is None else scaling.names
        of_state, of_observation = (
            tuple(names.index(name) for name in chosen_inputs(choice, names))
            for choice in (self.state_inputs, self.observation_inputs)
        )
        return Form(
            *(self.start, self.transition, self.state_noise, self.observation_noise),
            *(self.intercept, self.min_covariance),
            diffuse=None if structure is None else structure.diffuse(),
            state_inputs=of_state,
            observation_inputs=of_observation,
        )

    def _structure(self) -> Structure | None:
        return None if self.structure is None else Structure.of(self.structure)

    def _fit(self, train: list[Example], validation: list[Example]) -> None:
        form, corpus = self._form(), self._corpus(train)
        if self.structure is not None and self.encoding_.size != 1:
            raise ValueError(f"a structure is of one feature, but the sequences have {self.encoding_.size}; pass one")
        self._check_enough_values(form, corpus)
        objective = SystemObjective(form, *raw_size(train, self.encoding_))
        shard = share_of(len(corpus.values))
        share = SystemData(
            *(corpus.values[shard], corpus.weights[shard]),
            inputs=None if corpus.inputs is None else corpus.inputs[shard],
            gaps=None if corpus.gaps is None else corpus.gaps[shard],
        )
        checkpoints = checkpoints_of_fit(self, resolved_choices(self), train, validation)
        best, structure = self._best_run(objective, corpus, share, checkpoints), self._structure()
        # Without a step of its own a warm start stays what it was, such as one that from_parameters made.
        stays = self.warm_start and not self.max_iter and bool(vars(self).get("converged_", False))
        self.parameters_, self.converged_ = best.parameters, best.converged or stays
        self.numbers_: np.ndarray | None = best.kept  # of a structure
        if form.start == "diffuse":
            if structure is not None and best.kept is not None:
                moments = first_moments(StructuralNumbers(structure, form), best.kept, share)
            else:
                moments = e_step(best.parameters, form, share).first_states.summed_over_processes().moments()
            self.parameters_ = form.learned_start(best.parameters, *moments)
        self.innovations_, hits = self._fitted_innovations(corpus)
        self.observation_ = self._default_observation("vectors")  # a warm start may go on from other innovations
        self.history_ = best.history_with(validation=self._held_out_score(validation))
        self.history_.loc[self.history_.index[-1:], "floor_hits"] += hits

    def _fitted_innovations(self, corpus: SystemData) -> tuple[StudentTInnovations | None, int]:
        """Return the density of the innovations of the fitted system, None if it is Gaussian, and its floor hits."""
        if self.innovations == "gaussian":
            return None, 0
        steps = InnovationSteps.of(self.parameters_, self._form(), corpus)
        follows = self.innovations == "beta-t-egarch"
        fitted = StudentTInnovations.fitted(steps, corpus.weights, self.encoding_.size, follows=follows)
        return fitted, fitted.floor_hits(steps)

    def _check_enough_values(self, form: Form, corpus: SystemData) -> None:
        """Raise ``ValueError`` if the structure has more numbers to fit than ``corpus`` has observed values."""
        structure = self._structure()
        if structure is not None:
            n = len(StructuralNumbers(structure, form).start(0, 0))
            n_values = sum(int(np.isfinite(x).sum()) for x in corpus.values)
            if n > n_values:
                raise ValueError(
                    f"the structure has {n} numbers to fit (coefficients, variances, the intercept), but the sequences "
                    f"have {n_values} values; pass smaller orders, fewer components or more data"
                )

    def _best_run(
        self, objective: SystemObjective, corpus: SystemData, share: SystemData, checkpoints: Checkpoints
    ) -> FitResult[SystemParameters]:
        """Fit the model from every start, and return the result with the best objective.

        Args:
            objective: what the rows of the training history report.
            corpus: sequences of all processes.
            share: sequences of this process.
            checkpoints: where to write progress, and what to resume from.
        """
        is_warm = self.warm_start and "parameters_" in vars(self)
        n, structure = 1 if is_warm else self.n_init, self._structure()
        stop = self._stop_rule(n)
        if structure is None:

            def start(number: int) -> SystemParameters:
                return self.parameters_ if is_warm else self._start(number, objective.form, corpus, share)

            store = SystemStore()
            em = partial(run_em, SystemEM(objective, share), stop=stop, store=store)
            return Starts(n, start, em, store, self.max_iter, self.verbose).best(checkpoints)[0]
        every, before = StructuralNumbers(structure, objective.form), self.numbers_ if is_warm else None

        def numbers(number: int) -> np.ndarray:
            return every.start(number, self.random_state) if before is None else before

        def run(
            starts: Iterable[np.ndarray], *, callback: Callback, checkpoints: Checkpoints
        ) -> list[FitResult[SystemParameters]]:
            state = checkpoints.state
            (first,) = starts if state is None else [np.array(state["start"])]
            return [run_structural(every, first, objective, share, stop, callback, checkpoints)]

        return Starts(n, numbers, run, SystemStore(every.process), self.max_iter, self.verbose).best(checkpoints)[0]

    def _start(self, number: int, form: Form, corpus: SystemData, share: SystemData) -> SystemParameters:
        tried = starts(corpus.values, self.n_states_, form, self.random_state, corpus.inputs)(number)
        if len(tried) == 1:
            return tried[0]
        log_probs = [float(e_step(each, form, share).summed_over_processes().log_prob) for each in tried]
        return tried[int(np.argmax(log_probs))]

    # -- many sequences at once ----------------------------------------------------------------------------

    def _steps(self, examples: list[Example]) -> list[np.ndarray]:
        places = self._places(examples)
        corpus, steps = self._corpus(examples), [np.empty(0)] * len(examples)
        if self.innovations_ is not None:
            of_all = InnovationSteps.of(self.parameters_, self._form(), corpus)
            ends = np.cumsum(of_all.lengths)[:-1]
            for i, each in enumerate(np.split(self.innovations_.log_prob(of_all), ends)):
                steps[i] = each[len(each) - len(examples[i].values) :] if places is None else each[places[i]]
            return steps
        system, summed = self.parameters_.system, set[int]()
        for i, each in self._steps_of_arima(corpus).items():
            steps[i] = each[len(each) - len(examples[i].values) :] if places is None else each[places[i]]
            summed.add(i)
        for block in corpus.missing if self.observation_noise == "diag" else []:
            log_probs = log_probs_of_block(system, self.parameters_.intercept, block)
            for i, each in zip(block.numbers.tolist(), log_probs.T, strict=True):
                n = len(corpus.values[i])
                steps[i] = each[n - len(examples[i].values) : n].copy() if places is None else each[places[i]]
                summed.add(i)
        for group, _ in corpus.groups(self.parameters_, self._form(), without=summed):
            system = self.parameters_.system_over(group.gaps)
            gains = Gains.of(system, group.packing.n_steps, group.observed)
            lengths = [len(corpus.values[i]) for i in group.numbers]
            log_prob = filter_group(system, gains, group).log_prob
            for i, each in zip(group.numbers, group.packing.unpack(log_prob, lengths), strict=True):
                steps[i] = each[len(each) - len(examples[i].values) :] if places is None else each[places[i]]
        return steps

    def _step_predictions(self, examples: list[Example], *, given_rest: bool = False) -> list[Prediction] | None:
        if given_rest or self.innovations != "gaussian":
            return None
        places, corpus, form, p = self._places(examples), self._corpus(examples), self._form(), self.parameters_
        observation, tables = GaussianMixture(1, min_covariance=SMALLEST_VARIANCE), [np.empty(0)] * len(examples)
        for group, inputs in corpus.groups(p, form):
            system = p.system_over(group.gaps)
            gains = Gains.of(system, group.packing.n_steps, group.observed)
            mean = filter_group(system, gains, group).predicted @ system.observation.T + p.intercept
            if inputs is not None:
                mean += inputs[:, form.observation_inputs] @ p.observation_slopes.T
            variances = predicted_variances(system, gains)
            steps = np.minimum(np.arange(group.packing.n_steps), len(variances) - 1)
            log_variance = np.repeat(np.log(variances[steps]), group.packing.counts, axis=0)
            rows = np.concatenate([np.zeros((len(mean), 1)), mean, log_variance], 1)
            lengths = [len(corpus.values[i]) for i in group.numbers]
            for i, each in zip(group.numbers, group.packing.unpack(rows, lengths), strict=True):
                tables[i] = each[len(each) - len(examples[i].values) :] if places is None else each[places[i]]
        return [Prediction(observation, torch.from_numpy(table)[:, None], None, None, None) for table in tables]

    def _steps_of_arima(self, corpus: SystemData) -> dict[int, np.ndarray]:
        """Return the log-probabilities of steps of sequences without missing values, if the model is one ARIMA.

        They are computed with banded matrices. The result is empty where the Kalman filter is faster or the model is
        another.

        Args:
            corpus: encoded sequences.

        Returns:
            Arrays ``(T,)`` in nats by the number of the sequence in ``corpus``.
        """
        banded = BandedARIMA.of(self._structure(), self._form())
        complete = [i for i, x in enumerate(corpus.values) if not np.isnan(x).any()]
        if banded is None or self.numbers_ is None or not banded.is_faster([corpus.values[i] for i in complete]):
            return {}
        added = [
            self.parameters_.intercept + banded.inputs_of(corpus, i) @ self.parameters_.observation_slopes.T
            for i in complete
        ]
        values = [corpus.values[i] - each for i, each in zip(complete, added, strict=True)]
        return dict(zip(complete, banded.log_prob_steps(self.numbers_, self.parameters_, values), strict=True))

    def _with_floor(self, factor: float) -> Self:
        floored = super()._with_floor(factor)
        floored.min_covariance = factor * self.min_covariance
        floored.innovations_ = self.innovations_ and self.innovations_.with_floor(factor)
        form, covariance = self._form(), self.parameters_.observation_covariance
        if form.floor_hits(covariance):
            values, vectors = np.linalg.eigh(covariance)
            on_floor = values <= (1 + 1e-6) * self.min_covariance
            moved = (vectors * np.where(on_floor, floored.min_covariance, values)) @ vectors.T
            floored.parameters_ = replace(self.parameters_, observation_covariance=0.5 * (moved + moved.T))
        return floored

    @property
    def _is_continuous(self) -> bool:
        """True if the model is in continuous time, so that its steps may be any times apart."""
        structure = self._structure()
        return structure is not None and structure.is_continuous and vars(self).get("numbers_", True) is not None

    def _places(self, examples: Sequence[Example]) -> list[np.ndarray] | None:
        """Return the index of each example's steps among the steps of the system; None if times are not on a grid."""
        if self.time_step is None or self._is_continuous:
            return None
        return [places_of(e, i) for i, e in enumerate(examples)]

    def _corpus(self, examples: Sequence[Example]) -> SystemData:
        """Return the examples as encoded sequences with weights, inputs and gaps of time, as the filter reads them."""
        places = self._places(examples)
        if places is None and self.time_step is None:
            return _corpus(examples)
        if places is None:
            values = [np.asarray(e.values, dtype=np.float64) for e in examples]
            weights = np.array([e.weight for e in examples], dtype=np.float64)
            return SystemData(values, weights, gaps=gaps_of(examples))
        return SystemData(values_on_grid(examples, places), np.array([e.weight for e in examples], dtype=np.float64))

    # -- one step at a time --------------------------------------------------------------------------------

    @checked
    def cursor(self, n_steps: int | None = None) -> SystemCursor | TimedSystemCursor:
        self._setting()
        if self.time_step is not None and self._is_continuous:
            return SystemCursorOverGaps.of(self.parameters_, self._form(), self._device(), self.innovations_)
        cursor = SystemCursor.of(self.parameters_, self._form(), self._device(), self.innovations_)
        return cursor if self.time_step is None else SystemCursorOnGrid(cursor)

    # -- states of given sequences -------------------------------------------------------------------------

    def filter(self, X: Any, y: Any = None) -> list[StateMoments]:
        """Return the filtered hidden states of each sequence: the Gaussian of z_t given the steps 1 to t.

        Args:
            X: sequences of vectors.
            y: target sequences, whose steps follow those of ``X``; None if there are none.

        Returns:
            ``StateMoments`` for each sequence, with means ``(T, K)`` and covariances ``(T, K, K)`` for T steps and K
                states. For a sequence with a past (earlier steps that are not scored), only its own steps are returned.
        """
        return self._moments(X, y, smooths=False)

    def smooth(self, X: Any, y: Any = None) -> list[StateMoments]:
        """Return the smoothed hidden states of each sequence: the Gaussian of z_t given all steps of the sequence.

        They are computed by the smoother of Rauch, Tung and Striebel (1965).

        Args:
            X: sequences of vectors.
            y: target sequences, whose steps follow those of ``X``; None if there are none.

        Returns:
            ``StateMoments`` for each sequence, with means ``(T, K)`` and covariances ``(T, K, K)`` for T steps and K
                states. For a sequence with a past (earlier steps that are not scored), only its own steps are returned.
        """
        return self._moments(X, y, smooths=True)

    def _moments(self, X: Any, y: Any, *, smooths: bool) -> list[StateMoments]:
        data = checked_data(self, X, y)
        if data.y is not None:
            data.refuse_past("the states of pairs")
        examples = self._setting().examples(data)
        corpus, results = self._corpus(examples), [StateMoments(np.empty(0), np.empty(0))] * len(examples)
        scale, is_noisy = self._state_scale, self.observation_noise != "none"
        for whole, _ in corpus.groups(self.parameters_, self._form()):
            system = self.parameters_.system_over(whole.gaps)
            gains = Gains.of(system, whole.packing.n_steps, whole.observed, smooths=smooths and is_noisy)
            for group in split_by_length(whole):
                length = group.packing.n_steps
                filtered = filter_group(system, gains, group)
                means, steps = filtered.filtered, np.minimum(np.arange(length), len(gains.filtered) - 1)
                covariances = gains.filtered[steps]
                if smooths and is_noisy:
                    means = smooth_group(gains, group, filtered)
                    covariances = summed_covariances(gains, StepPacking.of([length]), np.ones(1)).now
                elif smooths:
                    means = smooth_group_by_adjoints(system, gains, group, filtered)
                    covariances = covariances_by_adjoints(system, gains, group).now
                for i, each in zip(
                    group.numbers, means.reshape(length, len(group.numbers), -1).swapaxes(0, 1), strict=True
                ):
                    results[i] = StateMoments(scale * each, scale**2 * covariances)
        if (places := self._places(examples)) is not None:
            pairs = zip(results, places, strict=True)
            results = [StateMoments(moments.means[at], moments.covariances[at]) for moments, at in pairs]
        return [
            StateMoments(*(without_past([e], [part])[0] for part in (moments.means, moments.covariances)))
            for e, moments in zip(examples, results, strict=True)
        ]

    def diffuse_log_prob(self, X: Any) -> np.ndarray:
        """Return the diffuse log-likelihood of each of n sequences, in nats, ``(n,)``: its first state is unknown.

        It is not a probability of the sequence but the limit of ``log p(x) + ½ r log κ`` as κ grows, for a first state
        of covariance κ of which the values determine r elements (Durbin and Koopman 2012, section 7.2.2, with their
        constant). The first r values contribute no density, so the result depends on the units of the states and
        compares only with models of the same states. For a ``structure``, whose states have the units of the series, it
        is the figure that other software reports.

        Args:
            X: sequences of vectors, without a past.
        """
        data = checked_data(self, X)
        data.refuse_past("diffuse_log_prob")
        examples = self._setting().examples(data)
        form, corpus = self._form(), self._corpus(examples)
        at, results = form.without_start(self.parameters_), np.empty(len(examples))
        directions = form.directions(len(at.transition))
        for whole, _ in corpus.groups(self.parameters_, form):
            system = at.system_over(whole.gaps)
            for group in split_by_length(whole):
                moments = diffuse_moments(system, group, directions)
                results[group.numbers] = moments.log_prob + moments.rank * np.log(self._state_scale)
        return np.asarray(results + np.array([e.log_det for e in examples]))

    def components(self, X: Any, *, level: float = 0.9) -> list[pd.DataFrame]:
        """Return for each sequence a table of the components of the ``structure`` at each step, in raw units.

        Values are estimated from the whole sequence. As in ``fit``, the first states are unknown (diffuse); variances
        and effects of inputs are taken as certain. At each step the components and the noise, which is not listed, add
        up to the series. ``intercept_`` is part of the first component that contains the level of the series (a level,
        a trend, an ARIMA of differences); if all components move around 0, it is a component ``"intercept"``. Each
        input is a component under its name, and is 0 where the input has its mean of the training steps.

        Args:
            X: sequences of one feature, without a past.
            level: probability that a component lies between ``low`` and ``high``, above 0 and below 1.

        Returns:
            A table for each sequence with columns ``step``, ``component``, ``mean``, ``deviation`` (standard
                deviation), ``low`` and ``high``.

        Raises:
            ValueError: the model has no ``structure``, or a sequence has too few values to determine its first state.
        """
        import pandas as pd

        structure = self._structure()
        if structure is None:
            raise ValueError("the model has no structure, so that its states are no components; call smooth")
        if not 0 < level < 1:
            raise ValueError(f"level is {level}; pass a probability between 0 and 1, as 0.9")
        data = checked_data(self, X)
        data.refuse_past("components")
        examples, form = self._setting().examples(data), self._form()
        corpus, frames = self._corpus(examples), [pd.DataFrame()] * len(examples)
        at, directions = form.without_start(self.parameters_), form.directions(structure.n_states)
        width, offset = NormalDist().inv_cdf(0.5 + 0.5 * level), float(self.intercept_[0])
        for whole, _ in corpus.groups(self.parameters_, form):
            system = at.system_over(whole.gaps)
            for group in split_by_length(whole):
                moments = diffuse_moments(system, group, directions)
                n, length = len(group.numbers), group.packing.n_steps
                check_determined(moments.rank, int(group.numbers[0]), length, len(directions))
                means = moments.means.reshape(length, n, -1)
                for rank, number in enumerate(group.numbers):
                    parts = []
                    for name, here in zip(structure.names, structure.states, strict=True):
                        weights = self._state_scale * system.observation[0, here]
                        mean = means[:, rank, here] @ weights + offset * (name == structure.name_of_level)
                        variance = np.einsum("k,tkl,l->t", weights, moments.covariances.now[:, here, here], weights)
                        deviation = np.sqrt(np.maximum(variance, 0.0))
                        parts.append(_component(name, mean, deviation, width))
                    if structure.name_of_level is None:
                        parts.append(_component(INTERCEPT, np.full(length, offset), np.zeros(length), width))
                    for name, added in self._added_by_inputs(examples[number].inputs).items():
                        parts.append(_component(name, added, np.zeros(length), width))
                    frames[number] = pd.concat(parts, ignore_index=True)
        if (places := self._places(examples)) is not None:
            frames = [_at_places(frame, at) for frame, at in zip(frames, places, strict=True)]
        return frames

    def input_effects(self, X: Any, *, level: float = 0.95) -> pd.DataFrame:
        """Return the effect of one more unit of each input on each feature at the same step, with standard errors.

        Effects are in raw units. Standard errors are those of generalised least squares with the other parameters held
        fixed; they are asymptotic, and hold at the maximum of the likelihood.

        Args:
            X: the training sequences.
            level: probability of the confidence intervals, above 0 and below 1.

        Returns:
            A table with a row for each of ``observation_inputs`` and each feature, and columns ``input``, ``feature``
                (its name or number), ``estimate``, ``standard_error``, ``ci_low`` and ``ci_high``.

        Raises:
            ValueError: the model has no ``observation_inputs`` (the effects of ``state_inputs`` have no raw units), or
                sequences have a past (earlier steps that are not scored).

        >>> from seqmodels import Sequences
        >>> u = np.arange(40.0) % 5
        >>> x = Sequences([(3 + 2 * u + np.sin(np.arange(40.0) ** 2))[:, None]], inputs=[u], input_names=["price"])
        >>> model = LinearGaussian.local_level(observation_inputs=True).fit(x)
        >>> model.input_effects(x)[["input", "estimate", "standard_error"]].round(1)
           input  estimate  standard_error
        0  price       2.0             0.1
        """
        if not 0 < level < 1:
            raise ValueError(f"level is {level}; pass a probability between 0 and 1, as 0.95")
        form, scaling = self._form(), self._input_scaling
        if scaling is None or not form.observation_inputs:
            raise ValueError(
                "the model has no observation_inputs, whose slopes have raw units; fit it with "
                "observation_inputs=True, or with their names"
            )
        data = checked_data(self, X)
        data.refuse_past("input_effects")
        columns = list(form.observation_inputs)
        slopes = SlopesOfInputs.of(self.parameters_, form, self._corpus(self._setting().examples(data)))
        _, scale = self.encoding_.affine()
        to_raw = np.reshape(scale, (-1, 1)) / scaling.scale[columns]
        features = feature_names(data.scored, self.encoding_)
        return slopes.frame([scaling.names[i] for i in columns], list(features), to_raw, level)

    def _added_by_inputs(self, inputs: np.ndarray | None) -> dict[str, np.ndarray]:
        """Return what each input adds to the single feature at T steps, in raw units, ``(T,)`` by the input's name.

        ``inputs (T, U)`` are the U inputs, standardised; None gives an empty result.
        """
        scaling, form = self._input_scaling, self._form()
        if scaling is None or inputs is None or not form.observation_inputs:
            return {}
        _, scale = self.encoding_.affine()
        slopes = float(np.ravel(scale)[0]) * self.parameters_.observation_slopes[0]
        each = zip(form.observation_inputs, slopes, strict=True)
        return {scaling.names[i]: slope * inputs[:, i] for i, slope in each}

    @property
    def components_(self) -> dict[str, float]:
        """The fitted numbers of a ``structure`` by name, in raw units.

        They are the variances of the components' disturbances, their coefficients, and ``"noise_variance"``, the
        variance of the observation noise.

        Raises:
            AttributeError: the model has no ``structure``.
        """
        structure = self._structure()
        if structure is None or self.numbers_ is None:
            raise AbsentAttributeError(
                "the model has no structure, so that its states are no components; see transition_"
            )
        named = structure.named(self.numbers_[: len(structure.start())], self._state_scale)
        noise = (
            {} if self.observation_noise == "none" else {"noise_variance": float(self.observation_covariance_[0, 0])}
        )
        return named | noise

    # -- parameters ----------------------------------------------------------------------------------------

    @property
    def _state_scale(self) -> float:
        """The size of a unit of the states in raw units: the scale of the series under a ``structure``, else 1."""
        return 1.0 if self.structure is None else float(np.asarray(self.encoding_.affine()[1]).reshape(-1)[0])

    @classmethod
    @checked
    def from_parameters(
        cls,
        transition: Any,
        state_covariance: Any,
        observation_matrix: Any,
        observation_covariance: Any,
        initial_mean: Any = None,
        initial_covariance: Any = None,
        *,
        intercept: Any = None,
        **options: Any,
    ) -> Self:
        """Return a fitted model with the given parameters, in raw units, for K states and D features.

        Args:
            transition, state_covariance: A and the covariance Q of the states' noise, both ``(K, K)``; Q may be
                singular.
            observation_matrix, observation_covariance: C, ``(D, K)``, and the covariance R of the observation noise,
                ``(D, D)``, which must be positive definite.
            initial_mean, initial_covariance: mean ``(K,)`` and covariance ``(K, K)`` of the first state, which may be
                singular; None stands for mean 0 and the stationary covariance.
            intercept: d, which is added to every observation, ``(D,)``; None stands for zeros.
            options: other arguments of ``LinearGaussian``. With ``warm_start=True``, ``fit`` continues from these
                parameters. ``observation_noise`` is ``"diag"`` by default if R is diagonal, else ``"full"``.

        Raises:
            ValueError: shapes that do not fit together, matrices that are not covariances, or dynamics without a
                stationary distribution where one is needed.
        """

        A, Q = (
            numbers_of("transition", transition, "(K, K)"),
            numbers_of("state_covariance", state_covariance, "(K, K)"),
        )
        C = numbers_of("observation_matrix", observation_matrix, "(D, K)")
        R = numbers_of("observation_covariance", observation_covariance, "(D, D)")
        D, K = C.shape
        P = (
            stationary_covariance(A, Q)
            if initial_covariance is None
            else numbers_of("initial_covariance", initial_covariance, "(K, K)")
        )
        m = np.zeros(K) if initial_mean is None else numbers_of("initial_mean", initial_mean, "(K,)")
        d = np.zeros(D) if intercept is None else numbers_of("intercept", intercept, "(D,)")
        parameters = SystemParameters(A, Q, C, d, R, m, P, np.zeros((K, 0)), np.zeros((D, 0)))
        expected = {
            **{"transition": (K, K), "state_covariance": (K, K), "observation_covariance": (D, D)},
            **{"initial_mean": (K,), "initial_covariance": (K, K), "intercept": (D,)},
        }
        for name, shape in expected.items():
            array = getattr(parameters, name)
            if array.shape != shape or not np.isfinite(array).all():
                raise ValueError(f"{name} has shape {array.shape}; pass finite numbers of shape {shape}")
            if name.endswith("covariance"):
                check_covariance(name, array)
        if not np.linalg.eigvalsh(R).min() > 0:
            raise ValueError("observation_covariance is singular, so that there is no density; add some noise")
        is_diagonal = not (R - np.diag(np.diagonal(R))).any()
        model = made_with(cls, {"observation_noise": "diag" if is_diagonal else "full", **options}, n_states=K)
        of_times = None if model._times_in is None else InputScaling.of_times(model._times_in, model._time_step)
        if model.innovations != "gaussian":
            raise ValueError(
                f"innovations is {model.innovations!r}, whose degrees of freedom are estimated from data; leave it "
                "'gaussian', then call set_params(innovations=..., warm_start=True, max_iter=0) and fit, which keeps "
                "these parameters"
            )
        model._set_fitted(parameters, D, of_times)
        model.numbers_ = model.innovations_ = None
        return model

    def _state(self) -> dict[str, Any]:
        numbers = {} if self.numbers_ is None else {"numbers": self.numbers_}
        innovations = {} if self.innovations_ is None else {"innovations": self.innovations_.numbers()}
        return {**self.parameters_.arrays(), **numbers, **innovations}

    def _restore(self, state: dict[str, Any]) -> None:
        self._check_observation()
        scaling = self._input_scaling
        if self.time_step is not None and not (scaling and _reads_in_steps(scaling, self.time_step, self.date_unit)):
            raise ValueError("the file does not say that the model reads times, in its time_step and date_unit")
        form, structure = self._form(), self._structure()
        K, n_inputs = self.n_states_, (len(form.state_inputs), len(form.observation_inputs))
        self.parameters_ = SystemParameters.from_arrays(state, K, self.encoding_.size, n_inputs)
        self.numbers_ = self.innovations_ = None
        if self.innovations != "gaussian":
            numbers = array_of(state, "innovations", np.float64, (3,))
            self.innovations_ = StudentTInnovations.of_numbers(numbers, self.encoding_.size)
        if structure is not None:
            n = len(StructuralNumbers(structure, form).start(0, 0))
            self.numbers_ = check_between("numbers", array_of(state, "numbers", np.float64, (n,)), -np.inf)
            process = StructuralNumbers(structure, form).process(self.numbers_)
            self.parameters_ = replace(self.parameters_, process=process)


def _corpus(examples: Sequence[Example]) -> SystemData:
    """Return the examples as encoded sequences with their weights and inputs.

    An example with targets becomes one sequence, its source steps followed by the steps of the target.
    """
    inputs = [e.inputs for e in examples if e.inputs is not None]
    weights = np.array([e.weight for e in examples], dtype=np.float64)
    return SystemData(encoded_sequences(examples), weights, inputs or None)


def _reads_in_steps(scaling: InputScaling, time_step: float, date_unit: DateUnit) -> bool:
    expected = InputScaling.of_times(date_unit, time_step)
    return scaling.date_unit == date_unit and np.array_equal(
        [scaling.mean, scaling.scale], [expected.mean, expected.scale]
    )


def _component(name: str, mean: np.ndarray, deviation: np.ndarray, width: float) -> pd.DataFrame:
    """Return a table with a row for each step of one component, with columns for its mean, standard deviation and band.

    Args:
        name: name of the component.
        mean, deviation: mean and standard deviation at each of T steps, ``(T,)``.
        width: half the width of the band in standard deviations.
    """
    import pandas as pd

    band = {"low": mean - width * deviation, "high": mean + width * deviation}
    numbers = {"mean": mean, "deviation": deviation}
    return pd.DataFrame({"step": np.arange(len(mean)), "component": name, **numbers, **band})


def _at_places(frame: pd.DataFrame, places: np.ndarray) -> pd.DataFrame:
    """Return the rows of a table of components that belong to steps of the sequence, with steps renumbered from 0.

    Args:
        frame: a table with rows for all steps of the system, also those between the steps of the sequence.
        places: index of each step of the sequence among the steps of the system, ``(T,)``.
    """
    numbers = np.full(int(frame["step"].max()) + 1, -1)
    numbers[places] = np.arange(len(places))
    numbered = frame.assign(step=numbers[frame["step"].to_numpy()])
    return numbered[numbered["step"] >= 0].reset_index(drop=True)
