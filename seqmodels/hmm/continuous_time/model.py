"""``ContinuousTimeHMM``: a hidden Markov jump process that is observed at arbitrary times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
import torch
from torch import Tensor

from seqmodels.common.array_checks import numbers_of
from seqmodels.common.parameters import checked, made_with
from seqmodels.encodings import Encoding
from seqmodels.encodings.inputs import TIME, InputScaling
from seqmodels.encodings.raw_to_examples import Setting
from seqmodels.hmm.continuous_time.chain import JumpProcess
from seqmodels.hmm.continuous_time.rates import checked_generator, with_generator
from seqmodels.hmm.from_parameters import chain_parameters, emission_table
from seqmodels.hmm.hidden_chain import HiddenChainModel
from seqmodels.hmm.learning.chain_arguments import ChainTraining
from seqmodels.hmm.learning.first_state import Start, check_initial
from seqmodels.hmm.learning.given_inputs import InputOptions
from seqmodels.hmm.learning.options import ChainArguments, StartChoice
from seqmodels.hmm.topology import Arcs, Topology, as_topology
from seqmodels.inference.chains.continuous_time import transition_probabilities
from seqmodels.model.fitting import apply_setting
from seqmodels.observations import Observation
from seqmodels.sequences.times import DateUnit


@dataclass(eq=False, repr=False)
class ContinuousTimeHMM(HiddenChainModel):
    """A hidden Markov model in continuous time, for observations at irregular times, fitted by EM.

    ``p(x | times) = Σ_z π(z_1) b_{z_1}(x_1) Π_n [exp(Q (t_n - t_n-1))]_{z_n-1, z_n} b_{z_n}(x_n)``. The hidden state is
    a Markov jump process with rates Q, which runs on between observations (Liu et al. 2015, *Efficient learning of
    continuous-time hidden Markov models for disease progression*, NeurIPS 28).

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
        training: a ``ChainTraining``, of which ``batches``, ``lr`` and ``prior`` may not be set; ``transition`` in its
            ``frozen`` are the rates.

    The E-step computes exactly the expected number of jumps and the expected time in each state over all paths between
    observations (Hobolth and Jensen 2011); gaps of equal length are computed once. States may be observed exactly or
    with errors, as in panel data (Jackson 2011, *Multi-state models for panel data*): then the observation is
    ``Categorical``, and ``ChainTraining(frozen=["emission"])`` with ``warm_start`` after ``from_parameters`` keeps the
    probabilities of errors. The model cannot express that an observation is made exactly at the time of a jump, such as
    a death.

    ``observation`` is any that an ``HMM`` has, with the same meaning of ``"auto"``. The recursions are float64;
    ``dtype`` is the precision of the densities. Times determine how long a sequence is, so its end is no event:
    ``length`` is ``"given"``. ``sample``, ``predict_next`` and ``forecast`` take ``times``, ``stream().update`` takes a
    ``time``. The other arguments are described in ``SequenceModel``; ``validation`` is
    scored once, at the end.

    After a fit these attributes are in raw units: ``initial_ (K,)``, ``generator_ (K, K)``, which is Q and has rows
    that sum to zero, ``rates_ (K, K)`` off its diagonal, ``mean_holding_times_ (K,)``, ``transition_ (K, K)`` over one
    unit of time, ``stationary_ (K,)``, and the same attributes of the observation as in ``HMM``. ``starts_`` has a row
    for each start.

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
    _sums_out_missing: ClassVar[bool] = True
    _used_of_training: ClassVar[tuple[str, ...]] = ("tied", "frozen")

    @property
    def _reads_inputs(self) -> bool:
        return True

    @property
    def _times_in(self) -> DateUnit | None:
        return self.date_unit

    def _inputs_among(self, names: tuple[str, ...]) -> tuple[str, ...]:
        return (TIME,)

    def _chain(self, n_states: int, *, start: Start, length: str, inputs: InputOptions) -> JumpProcess:
        if self.date_unit not in get_args(DateUnit):
            raise ValueError(f"date_unit is {self.date_unit!r}; pass one of {', '.join(map(repr, get_args(DateUnit)))}")
        choice = self.topology
        if not isinstance(choice, str | Topology) and np.shape(choice) == (n_states, n_states):
            choice = np.where(np.eye(n_states, dtype=bool), True, choice)  # a state that is never left needs it
        topology = _staying(as_topology(choice, n_states), n_states)
        arguments = (n_states, "given", topology, self.training.tied, self.training.frozen)
        return JumpProcess(ChainArguments(*arguments), start)

    @property
    def _structure(self) -> Mapping[str, Any]:
        return {"date_unit": self.date_unit}

    def _check_restored(self) -> None:
        if self._input_scaling is None or self._input_scaling.date_unit != self.date_unit:
            raise ValueError("the file has no scaling of times in the model's date_unit")

    def transition_over(self, gap: float | np.ndarray) -> np.ndarray:
        """Return the probability of each state a ``gap`` of time after each state, ``(K, K)``; ``(..., K, K)`` for an
        array.

        Raises:
            ValueError: a gap is negative or not finite.
        """
        gaps = numbers_of("gap", gap)
        if not (np.isfinite(gaps).all() and (gaps >= 0).all()):
            raise ValueError(f"gap has values from {gaps.min()} to {gaps.max()}; pass finite numbers, 0 or more")
        p = transition_probabilities(self._generator, torch.as_tensor(gaps).reshape(-1))
        return p.numpy().reshape(*gaps.shape, *self._generator.shape)

    @property
    def _generator(self) -> Tensor:
        generator = self.parameters_.generator
        assert generator is not None
        return generator

    @property
    def generator_(self) -> np.ndarray:
        """Generator Q of the process, ``(K, K)``: expected jumps from state i to j per unit of time.

        Rows sum to zero.
        """
        return self._generator.numpy()

    @property
    def rates_(self) -> np.ndarray:
        """Rates of jumps from state i to state j, ``(K, K)``, with zeros on the diagonal."""
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
        encoding: Encoding | None = None,
        observation: Observation | None = None,
        **options: Any,
    ) -> Self:
        """Return a fitted model with the given parameters, in raw units.

        Args:
            generator: rates of jumps per unit of time, ``(K, K)``; rows sum to zero.
            initial: probabilities of the first state, ``(K,)``. None is the distribution that ``start`` determines: by
                default the stationary one, and under ``"free"`` the uniform one.
            weights, means, covariances, covariance_type, emission, probabilities, rates, encoding, observation: the
                emissions, as in ``HMM.from_parameters``; ``rates`` are the rates of counts, not of jumps.
            options: other arguments of ``ContinuousTimeHMM``.

        Raises:
            ValueError: rows do not sum to zero, rates are negative, or ``HMM.from_parameters`` would raise it for the
                emissions.
        """
        q = checked_generator(generator)
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
        model._set_fitted(parameters, model.start_)
        model._fitted_chain.check_start(parameters, model._emission, "given")
        return model


def _staying(topology: Topology, n_states: int) -> Topology:
    """Return the topology with all self-transitions allowed, because in continuous time every state may stay."""
    mask = topology.transition_mask(n_states)
    if bool(mask.diagonal().all()):
        return topology
    stays = (mask | torch.eye(n_states, dtype=torch.bool)).tolist()
    return Arcs(stays, topology.initial_mask(n_states).tolist(), ordered=topology.is_ordered)
