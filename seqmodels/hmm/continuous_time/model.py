"""``ContinuousTimeHMM``: a hidden Markov jump process that is observed at arbitrary times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
import torch
from torch import Tensor

from seqmodels.common.array_checks import numbers_of
from seqmodels.common.attributes import AbsentAttributeError
from seqmodels.common.display import a_or_an
from seqmodels.common.parameters import checked, made_with
from seqmodels.encodings import Encoding
from seqmodels.encodings.inputs import TIME, InputScaling, chosen_inputs
from seqmodels.encodings.raw_to_examples import Setting
from seqmodels.hmm.continuous_time.chain import JumpProcess
from seqmodels.hmm.continuous_time.rates import checked_generator, with_generator
from seqmodels.hmm.from_parameters import chain_parameters, emission_table, input_scaling, with_implied_effects
from seqmodels.hmm.hidden_chain import HiddenChainModel
from seqmodels.hmm.learning.chain_arguments import ChainInputEffects, ChainTraining
from seqmodels.hmm.learning.first_state import Start, check_initial
from seqmodels.hmm.learning.given_inputs import InputOptions
from seqmodels.hmm.learning.options import Algorithm, ChainArguments, StartChoice
from seqmodels.hmm.topology import check_allowed
from seqmodels.inference.chains.continuous_time import generators_at, transition_probabilities
from seqmodels.model.fitting import apply_setting
from seqmodels.observations import Observation
from seqmodels.sequences.times import DateUnit


@dataclass(eq=False, repr=False)
class ContinuousTimeHMM(HiddenChainModel):
    """A hidden Markov model in continuous time, for observations at irregular times, fitted by EM.

    ``p(x | times) = Σ_z π(z_1) b_{z_1}(x_1) Π_n [exp(Q (t_n - t_n-1))]_{z_n-1, z_n} b_{z_n}(x_n)``. The hidden state is
    a Markov jump process: it jumps from state k to state l at the rate ``q_kl`` of the generator matrix Q, and runs on
    between observations (Liu et al. 2015, *Efficient learning of continuous-time hidden Markov models for disease
    progression*, NeurIPS 28).

    The model reads the ``times`` of ``Sequences``, which are numbers or dates. Without times the steps are at 0, 1, 2,
    ..., and the model is an ``HMM`` with ``transition = exp(Q)``. Times are conditions, as inputs are: scores are
    densities of the observations given the times, and may be compared with models that do not read times. Two steps at
    the same time have the same state.

    Args:
        n_states: number of states, K.
        date_unit: unit in which dates and durations are counted, and so the unit of rates: ``"s"``, ``"min"``, ``"h"``,
            ``"D"``, ``"W"`` or ``"Y"`` (365.25 days). Times that are numbers are taken as they are.
        max_iter: most EM steps of a start.
        tol: EM stops when a step improves the objective by less than this, in nats per unit; 0 never stops early.
        n_init: number of starts; the best objective wins. ``"auto"`` is up to 8, fewer the more states and data there
            are.
        max_seconds: limit on the time of all starts together; None is no limit.
        topology: which states may jump to which, in the forms that ``HMM`` takes; rates of impossible jumps stay
            exactly zero. Transitions of a state to itself are ignored.
        start: distribution of the first state: ``"free"`` learns it; ``"stationary"`` is the stationary distribution of
            the process, in which every state must lead to every other; ``"uniform"`` is uniform. ``"auto"`` is
            stationary for fewer than 5 sequences and free otherwise; ``start_`` tells which.
        algorithm: ``"em"``, ``"stepwise"``, ``"gradient"`` or ``"variational"``, as in ``HMM``; mini-batches are of
            whole sequences, and rates have Gamma priors.
        input_effects: a ``ChainInputEffects``, which says which inputs rates (as ``transitions``), emissions and the
            first state depend on. Rates are ``log q_kl(u) = log q_kl + w_kl · u``, as in R's msm (Jackson 2011). Inputs
            hold from step to step: those of a step hold over the gap that ends at this step, as in ``HMM`` they drive
            the transition into it; ``X.with_lagged_inputs(1)`` lets those of a step hold over the gap after it, as in
            msm. Each rate is a Poisson regression in the M-step. The times are no input of ``input_effects``.
        training: a ``ChainTraining``; ``transition`` in its ``frozen`` are the rates.

    The E-step computes exactly the expected number of jumps and the expected time in each state over all paths between
    observations (Hobolth and Jensen 2011); gaps of equal length are computed once. States may be observed exactly or
    with errors, as in panel data (Jackson 2011, *Multi-state models for panel data*): then the observation is
    ``Categorical``, and ``ChainTraining(frozen=["emission"])`` with ``warm_start`` after ``from_parameters`` keeps the
    probabilities of errors. The model cannot express that an observation is made exactly at the time of a jump, such as
    a death.

    ``observation`` is any that an ``HMM`` has, with the same meaning of ``"auto"``. The recursions are float64;
    ``dtype`` is the precision of the densities. Times determine how long a sequence is, so its end is no event:
    ``length`` is ``"given"``. ``sample``, ``predict_next`` and ``forecast`` take ``times``, ``stream().update`` takes a
    ``time``. The other arguments are described in ``SequenceModel``; ``validation`` is scored once, at the end.

    After a fit these attributes are in raw units: ``initial_ (K,)``, ``generator_ (K, K)``, which is Q and has rows
    that sum to zero, ``rates_ (K, K)`` off its diagonal, ``mean_holding_times_ (K,)``, ``transition_ (K, K)`` over one
    unit of time, ``stationary_ (K,)``, and the same attributes of the observation as in ``HMM``. ``starts_`` has a row
    for each start. Where they depend on inputs, these hold where all inputs are at their mean, and
    ``generator_slopes_ (K, K, U)``, ``emission_slopes_`` and ``initial_slopes_`` are for one unit of each raw input, in
    the order of ``input_names_`` without the time; ``generator_at(inputs)`` are the rates at other inputs.

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
    algorithm: Algorithm = "em"
    input_effects: ChainInputEffects = field(default_factory=ChainInputEffects)
    training: ChainTraining = field(default_factory=ChainTraining)

    _bounded_by_data: ClassVar[Mapping[str, str]] = {"n_states": "steps"}
    _sums_out_missing: ClassVar[bool] = True
    _algorithms: ClassVar[tuple[Algorithm, ...]] = ("em", "stepwise", "gradient", "variational")
    _used_of_training: ClassVar[tuple[str, ...]] = ("tied", "frozen", "batches", "lr", "prior")

    @property
    def _reads_inputs(self) -> bool:
        return True

    @property
    def _times_in(self) -> DateUnit | None:
        return self.date_unit

    def _inputs_among(self, names: tuple[str, ...]) -> tuple[str, ...]:
        return (TIME, *super()._inputs_among(tuple(name for name in names if name != TIME)))

    def _chain(self, n_states: int, *, start: Start, length: str, inputs: InputOptions) -> JumpProcess:
        if self.date_unit not in get_args(DateUnit):
            raise ValueError(f"date_unit is {self.date_unit!r}; pass one of {', '.join(map(repr, get_args(DateUnit)))}")
        if any(not isinstance(each, bool) and TIME in chosen_inputs(each, ()) for each in self.input_effects.choices):
            raise ValueError(
                f"input_effects names {TIME!r}, which is the times of the steps; pass the times as an input of another "
                "name, if anything depends on them"
            )
        arguments = (n_states, "given", self.topology, self.training.tied, self.training.frozen)
        return JumpProcess(ChainArguments(*arguments), start, inputs)

    @property
    def _structure(self) -> Mapping[str, Any]:
        return {"date_unit": self.date_unit}

    def _check_restored(self) -> None:
        if self._input_scaling is None or self._input_scaling.date_unit != self.date_unit:
            raise ValueError("the file has no scaling of times in the model's date_unit")

    def transition_over(self, gap: float | np.ndarray, inputs: Any = None) -> np.ndarray:
        """Return the probability of being in state j a given time after being in state i, ``(K, K)``.

        Args:
            gap: a length of time in the model's unit of time, or an array ``(...)`` of them.
            inputs: for rates that depend on inputs, the raw values of the U inputs over each of n gaps, ``(n, U)``, or
                a mapping from names of inputs to their values; one gap holds for all rows. None stands for their mean.

        Returns:
            ``(K, K)`` for one gap, ``(..., K, K)`` for an array of them, and ``(n, K, K)`` with inputs.

        Raises:
            ValueError: a gap is negative or not finite, the numbers of gaps and rows of inputs differ, or inputs are
                given but no rate depends on inputs.
        """
        gaps = numbers_of("gap", gap)
        if not (np.isfinite(gaps).all() and (gaps >= 0).all()):
            raise ValueError(f"gap has values from {gaps.min()} to {gaps.max()}; pass finite numbers, 0 or more")
        generator = self._generator if inputs is None else torch.as_tensor(self.generator_at(inputs))
        if inputs is not None:
            if gaps.shape not in ((), (len(generator),)):
                raise ValueError(f"gap has shape {gaps.shape}; pass one, or one for each of {len(generator)} inputs")
            gaps = np.broadcast_to(gaps, (len(generator),)).copy()
        p = transition_probabilities(generator, torch.as_tensor(gaps).reshape(-1))
        return p.numpy().reshape(*gaps.shape, *self._generator.shape)

    def generator_at(self, inputs: Any) -> np.ndarray:
        """Return the generator of the process (rates of jumps from state i to j) at given inputs, ``(n, K, K)``.

        The diagonal is minus the sum of the other rates of its row.

        Args:
            inputs: n rows of raw values of the U inputs, ``(n, U)``, or a mapping from names of inputs to their values.

        Raises:
            ValueError: no rate depends on inputs; inputs are missing, or have another shape.
        """
        slopes, scaling = self.parameters_.transition_slopes, self._effects_scaling
        if slopes is None or scaling is None:
            raise ValueError("the rates depend on no inputs; see generator_")
        return generators_at(self._generator, slopes, torch.as_tensor(scaling.encode_steps(inputs))).numpy()

    @property
    def generator_slopes_(self) -> np.ndarray:
        """Change of the logarithm of each rate for one unit of each raw input, ``(K, K, U)``, as in R's msm.

        The U inputs are in the order of ``input_names_`` without the time. Rates that are zero, and the diagonal, have
        zeros. ``AbsentAttributeError`` is raised if rates depend on no inputs.
        """
        slopes, scaling = self.parameters_.transition_slopes, self._effects_scaling
        if slopes is None or scaling is None:
            raise AbsentAttributeError(f"this {type(self).__name__} has rates that depend on no inputs")
        return np.asarray(slopes.numpy() / scaling.scale)

    @property
    def transition_slopes_(self) -> np.ndarray:
        """Not available for this model, whose inputs change rates and not log-odds: ``AbsentAttributeError`` is raised.

        ``generator_slopes_`` has the effects of inputs on rates.
        """
        raise AbsentAttributeError(
            f"inputs of {a_or_an(type(self))} change its rates; see generator_slopes_ and generator_at"
        )

    @property
    def _generator(self) -> Tensor:
        generator = self.parameters_.generator
        assert generator is not None
        return generator

    @property
    def generator_(self) -> np.ndarray:
        """Generator Q of the process, ``(K, K)``: expected jumps from state i to j per unit of time.

        The diagonal is minus the rate of leaving the state, so that rows sum to zero. If rates depend on inputs, it
        holds where all inputs are at their mean.
        """
        return self._generator.numpy()

    @property
    def rates_(self) -> np.ndarray:
        """Rates of jumps from state i to state j per unit of time, ``(K, K)``, with zeros on the diagonal."""
        return np.asarray(self.generator_ - np.diag(self.generator_.diagonal()))

    @property
    def mean_holding_times_(self) -> np.ndarray:
        """Mean duration of a visit to each state in units of time, ``(K,)``.

        It is infinite for a state that is never left.
        """
        chain = self._fitted_chain
        return chain.mean_durations(self.parameters_, self._emission_of(chain))

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
        emission_parameters: Mapping[str, Any] | None = None,
        generator_slopes: Any = None,
        emission_slopes: Any = None,
        initial_slopes: Any = None,
        inputs: InputScaling | Mapping[str, float] | None = None,
        encoding: Encoding | None = None,
        observation: Observation | None = None,
        **options: Any,
    ) -> Self:
        """Return a fitted model with the given parameters, in raw units.

        Args:
            generator: rates of jumps from state i to state j per unit of time, ``(K, K)``, with minus their sum on the
                diagonal, so that rows sum to zero.
            initial: probabilities of the first state, ``(K,)``. None is the distribution that ``start`` determines: by
                default the stationary one, and under ``"free"`` the uniform one.
            weights: weights of Gaussian mixtures of M components, ``(K, M)``; without them M is 1 and the axis M is
                left out.
            means: means of D features, ``(K, M, D)``.
            covariances: by ``covariance_type`` ``(K, M, D)`` (diag), ``(K, M, D, D)`` (full), ``(D, D)`` (tied),
                ``(K, M)`` or ``(K, M, D)`` (spherical).
            covariance_type: form of ``covariances``: ``"diag"``, ``"full"``, ``"tied"`` or ``"spherical"``.
            emission: probabilities of V symbols (``Categorical``), ``(K, V)``, instead of a mixture.
            probabilities: probabilities of bits (``Bernoulli``), ``(K, D)``, instead of a mixture.
            rates: rates of counts (``Poisson``), not of jumps, ``(K, D)``, instead of a mixture.
            emission_parameters: parameters of any kind of ``observation``, instead of a mixture: arrays in raw units by
                the names of the attributes of a fitted model without the final ``_``, such as ``{"shapes": ...,
                "rates": ...}`` of ``Gamma()``, each ``(K, D)``. Weights of mixtures of one component may be left out.
            generator_slopes: change of the logarithm of each rate of jumps for one unit of each of U raw inputs,
                ``(K, K, U)``; None if rates depend on no inputs. Here and for the other slopes, that part of the model
                depends on all inputs, unless ``input_effects`` names some.
            emission_slopes: change of the emissions of each state for one unit of each raw input, ``(K, D, U)``; None
                if emissions depend on no inputs.
            initial_slopes: change of the log-odds of starting in a state for one unit of each raw input of the first
                step, ``(K, U)``; None if the first state depends on no inputs.
            inputs: the U inputs by name, each with its value where the other parameters hold, such as
                ``{"heat": 20.0}``; or an ``InputScaling`` of them, from which times are left out.
            encoding: a fitted encoding, or None for one that fits the emissions.
            observation: observation with the options of the M-step, for a ``fit`` that continues with
                ``warm_start=True``; None takes their defaults.
            options: other arguments of ``ContinuousTimeHMM``.

        Raises:
            ValueError: rows do not sum to zero, rates are negative, shapes do not fit, values are out of range, or
                slopes and inputs do not go together.
        """
        q = checked_generator(generator)
        k = len(q)
        encoding, observation, table = emission_table(
            k,
            emission_parameters=emission_parameters,
            emission=emission,
            probabilities=probabilities,
            rates=rates,
            mixture=(weights, means, covariances, covariance_type),
            encoding=encoding,
            observation=observation,
        )
        given = {"transitions": generator_slopes, "emissions": emission_slopes, "first_state": initial_slopes}
        options = with_implied_effects(options, given)
        if options.get("start", "auto") == "auto":
            options["start"] = "free" if initial is not None else "stationary"
        model = made_with(cls, options, n_states=k, observation=observation, length="given")
        model._check_hyperparameters()
        setting = Setting.from_fitted(encoding, observation.clone(), "given", conditional=False)
        times = InputScaling.of_times(model.date_unit)
        if model._regresses or inputs is not None:
            others = input_scaling(inputs).without_times
            times = times if others is None else times.beside(others, (*times.names, *others.names))
        apply_setting(model, setting.with_inputs(times))
        model.start_ = "free" if model.start == "auto" else model.start
        topology = model._chain_of(k).options.topology
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
        parameters = model._with_given_slopes(parameters, given)
        jumps = replace(parameters, transition=torch.as_tensor(q).clamp(min=0.0))
        check_allowed(jumps, topology, model.topology, rows="generator")
        model._set_fitted(parameters, model.start_)
        model._fitted_chain.check_start(parameters, model._emission, "given")
        return model
