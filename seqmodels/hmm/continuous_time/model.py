"""``ContinuousTimeHMM``: a hidden Markov jump process, observed at any times, as a ``SequenceModel``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
import torch
from torch import Tensor

from seqmodels.common.array_checks import numbers_of
from seqmodels.common.parameters import checked, made_with
from seqmodels.encodings import Encoding
from seqmodels.encodings.inputs import TIME, InputScaling
from seqmodels.encodings.setting import Setting
from seqmodels.hmm.continuous_time.chain import JumpProcess
from seqmodels.hmm.continuous_time.rates import checked_generator, with_generator
from seqmodels.hmm.from_parameters import chain_parameters, emission_table
from seqmodels.hmm.hidden_chain import HiddenChainModel
from seqmodels.hmm.learning.constraints import Frozen
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
        tied: a group number for each state, ``[0, 0, 1, ...]``: states of a group share one emission.
        frozen: what EM leaves as it is: names among ``initial``, ``transition`` (the rates), ``emission``; or a
            ``Frozen``.

    The E-step finds the expected jumps and the expected time in each state in all paths between observations, exactly
    (Hobolth and Jensen 2011); gaps of one length are computed once. States may be observed exactly or with errors, as
    in panel data (Jackson 2011, *Multi-state models for panel data*): then the observation is ``Categorical``, and
    ``frozen=("emission",)`` with ``warm_start`` after ``from_parameters`` keeps the probabilities of errors. That an
    observation is made at the very time of a jump (a death) is not known to the model.

    ``observation`` is any that an ``HMM`` has, and ``"auto"`` as there. The recursions are float64 whatever ``dtype``,
    which is that of the densities. Times say how long a sequence is, so that its end is no event: ``length`` is
    ``"given"``. ``sample``, ``predict_next`` and ``forecast`` take ``times``, ``stream().update`` takes a ``time``. The
    other arguments are those of ``training.Resumable`` and ``SequenceModel``; ``validation`` is scored once, at the
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
    tied: Sequence[int] | None = None
    frozen: Sequence[str] | Frozen | None = None
    checkpoint: str | None = None
    checkpoint_seconds: float = 300.0
    resume_from: str | None = None

    _bounded_by_data: ClassVar[Mapping[str, str]] = {"n_states": "steps"}
    _sums_out_missing: ClassVar[bool] = True

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
            choice = np.where(np.eye(n_states, dtype=bool), True, choice)  # also of a state that is never left
        topology = _staying(as_topology(choice, n_states), n_states)
        return JumpProcess(ChainArguments(n_states, "given", topology, self.tied, self.frozen), start)

    @property
    def _structure(self) -> Mapping[str, Any]:
        return {"date_unit": self.date_unit}

    def _check_restored(self) -> None:
        if self._input_scaling is None or self._input_scaling.date_unit != self.date_unit:
            raise ValueError("the file does not say that the model reads times, in its date_unit")

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
    """The same, but that any state may stay, which in continuous time it always may."""
    mask = topology.transition_mask(n_states)
    if bool(mask.diagonal().all()):
        return topology
    stays = (mask | torch.eye(n_states, dtype=torch.bool)).tolist()
    return Arcs(stays, topology.initial_mask(n_states).tolist(), ordered=topology.is_ordered)
