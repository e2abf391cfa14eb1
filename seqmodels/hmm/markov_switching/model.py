"""``MarkovSwitchingAR``: an autoregression of deviations from the mean of a hidden state, as a ``SequenceModel``."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from torch import Tensor

from seqmodels.common.array_checks import numbers_of
from seqmodels.common.attributes import AbsentAttributeError
from seqmodels.common.caller_warnings import warn_caller
from seqmodels.common.display import a_or_an
from seqmodels.common.distributed import propagate_errors
from seqmodels.common.parameters import Floor, PositiveInt, checked, made_with
from seqmodels.encodings import Standardize
from seqmodels.encodings.examples import Example, of_each_frame
from seqmodels.encodings.inputs import chosen_inputs
from seqmodels.encodings.precision import DTYPES, in_float64
from seqmodels.encodings.raw_data import Data
from seqmodels.encodings.setting import Setting
from seqmodels.generation import CursorState
from seqmodels.hmm.corpus import Corpus, PackedBatch, check_states, corpus_of, raw_size, refuse, validation_score
from seqmodels.hmm.from_parameters import chain_parameters
from seqmodels.hmm.hidden_states import HiddenStateModel
from seqmodels.hmm.learning.chain_arguments import ChainInputEffects
from seqmodels.hmm.learning.constraints import Constraints
from seqmodels.hmm.learning.em import FitResult, MAPObjective, StopRule, baum_welch
from seqmodels.hmm.learning.first_state import STARTS, check_initial, with_start
from seqmodels.hmm.learning.given_inputs import InputOptions
from seqmodels.hmm.learning.initialise import starts
from seqmodels.hmm.learning.options import ChainOptions, check_numbers
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
from seqmodels.hmm.markov_switching.cursor import LastStates, MarkovSwitchingCursor
from seqmodels.hmm.markov_switching.deviations import DeviationEmission
from seqmodels.hmm.markov_switching.expectations import e_step, each_trellis
from seqmodels.hmm.markov_switching.from_parameters import RawRegressions
from seqmodels.hmm.parameters import Parameters, check_arrays
from seqmodels.hmm.state_queries import need_float64, permutation_of_states, reordered_counts, stationary
from seqmodels.hmm.topology import Banded
from seqmodels.inference.chains.last_states import (
    LastStatesTrellis,
    best_paths,
    forward_backward_pass,
    forward_pass,
    sample_paths,
)
from seqmodels.inference.chains.time_varying import log_transitions
from seqmodels.model.fitting import apply_setting, checked_data, fit_model, learn_setting, resolved_choices
from seqmodels.model.largest_size import largest_size
from seqmodels.observations import AutoregressiveGaussian, Observation
from seqmodels.sequences import Kind
from seqmodels.sequences.measure import Length
from seqmodels.training import Checkpoints, EMTraining, checkpoints_of_fit

MOST_TUPLES_A_STEP = 10  # of the data, beyond which a fit warns that nothing determines them
MOST_TUPLES = 1 << 14  # states of the last p + 1 steps, K^(p+1)

StateAlgorithm = Callable[[PackedBatch, LastStatesTrellis], list[Tensor]]  # a result for each sequence


@dataclass(eq=False, repr=False)
class MarkovSwitchingAR(HiddenStateModel):
    """``x_t - mu_{z_t} = Σ_k phi_k (x_t-k - mu_{z_t-k}) + e_t``, ``e_t ~ N(0, sigma²)``, z a hidden Markov chain of K
    states that is summed out; fitted by EM (Hamilton 1989, *A new approach to the economic analysis of nonstationary
    time series and the business cycle*, Econometrica 57; Kim and Nelson 1999, *State-space models with regime
    switching*).

    A change of state moves the level at once, and what is left of a deviation dies away. In
    ``HMM(observation=AutoregressiveGaussian(p))`` the intercept switches, and the level follows slowly. A density
    depends on the states of the last p + 1 steps: there are K^(p+1) of them, at most 2¹⁴, and a step takes as many
    terms. Features are independent given the states, each with coefficients and a variance of its own.

    Args:
        n_states: K.
        order: p, how many past steps enter. The first p steps of a sequence have a Gaussian of their own, the same in
            all states, estimated once, from those steps and two average ones; EM leaves it as it is.
        switching_ar: whether the coefficients phi are those of the state z_t; else all states share them.
        switching_variance: whether sigma² is that of the state z_t.
        min_covariance: floor of the variances, in standardised units.
        max_iter: most EM steps a start.
        tol: EM stops when a step improves the objective by less, in nats per unit; 0 never stops early.
        n_init: starts, from clusters or from frames drawn as means of the states; the best objective wins. ``"auto"``:
            as of ``HMM``, up to 8. Likelihoods of few frames have several maxima.
        max_seconds: a cap on time, over all starts.
        pseudocount: added to every expected count of starts, transitions and ends in the M-step, or a ``Pseudocounts``;
            ``"auto"``: 0.01 under ``length="stop"``, otherwise 0.
        start: the distribution of the first state: ``"stationary"``: that which the transitions leave as it is, and
            where they depend on inputs, those given the inputs of the first step; ``"free"``: learned; ``"uniform"``.
        input_effects: a ``ChainInputEffects``, of which only ``transitions`` and ``ridge`` may be set: the input of a
            step drives the transition into it (Filardo 1994, *Business-cycle phases and their transitional dynamics*).
        training: an ``EMTraining``: where the fit writes checkpoints, and from where it goes on.

    An M-step maximises over phi, the means and sigma² in turn, each given the others, so that the likelihood never
    falls. Steps ahead are forecast in closed form, a Gaussian for each path of states, where there are at most 2¹² of
    these at the last of k steps, K^(p + k); else by paths that are drawn. Frames with missing values are refused: what
    is known of a missing past depends on all states since, which no filter of few numbers holds; ``HMM`` takes them.
    ``observation`` is its own, so ``"auto"``. The other arguments are described at ``SequenceModel``; ``validation`` is
    scored once, at the end, and with targets EM fits p(x, y). The recursions are float64 whatever ``dtype``, which is
    that of the densities.

    Attributes, raw units: ``initial_ (K,)``, ``transition_ (K, K)``, ``final_ (K,)``, ``means_ (K, D)``,
    ``autoregression_ (p, D)``, one step back first, or with ``switching_ar`` ``(K, p, D)``, ``variances_ (D,)``, or
    with ``switching_variance`` ``(K, D)``; ``first_means_`` and ``first_variances_ (D,)`` of the first p steps.
    ``starts_``: a row for each start.

    >>> rng = np.random.default_rng(0)
    >>> levels = np.repeat([0.0, 5.0, 0.0, 5.0], 25)
    >>> x = levels[:, None] + 0.5 * rng.normal(size=(100, 1))
    >>> model = MarkovSwitchingAR(2, order=1).fit([x])
    >>> np.sort(model.means_[:, 0]).round()
    array([0., 5.])
    """

    n_states: int = 2
    order: PositiveInt = 1
    switching_ar: bool = False
    switching_variance: bool = False
    min_covariance: Floor = 1e-6
    max_iter: int = 500
    tol: float = 1e-6
    n_init: int | Literal["auto"] = "auto"
    max_seconds: float | None = None
    pseudocount: float | str | Pseudocounts = "auto"
    _: KW_ONLY
    dtype: str = "float64"
    start: Literal["stationary", "free", "uniform"] = "stationary"
    input_effects: ChainInputEffects = field(default_factory=ChainInputEffects)
    training: EMTraining = field(default_factory=EMTraining)

    _bounded_by_data: ClassVar[Mapping[str, str]] = {"n_states": "steps", "order": "longest"}
    _uses_validation: ClassVar[bool] = False
    _size: ClassVar[str | None] = "n_states"
    _fits_in_parallel: ClassVar[bool] = True

    # -- SequenceModel -------------------------------------------------------------------------------------

    @property
    def context_(self) -> int | None:
        return None

    @property
    def n_parameters_(self) -> int:
        return _n_parameters(self, len(self.parameters_.initial), _emission(self))

    @property
    def _reads_inputs(self) -> bool:
        return bool(self.input_effects.transitions)

    def _inputs_among(self, names: tuple[str, ...]) -> tuple[str, ...]:
        read = chosen_inputs(self.input_effects.transitions, names)
        return tuple(dict.fromkeys([*(name for name in names if name in read), *read]))

    def _default_observation(self, kind: Kind) -> Observation:
        if kind != "vectors":
            raise ValueError(
                f"{a_or_an(type(self))} is of vectors, but the sequences are {kind}; use HMM, or pass (T, D) floats"
            )
        return self._own_observation()

    def _own_observation(self) -> AutoregressiveGaussian:
        return AutoregressiveGaussian(self.order, "diag", min_covariance=self.min_covariance, ridge=0.0)

    def _limits(self, seconds: float | None, steps: int | None) -> dict[str, Any]:
        if steps is not None:
            return {"max_iter": steps, **({} if seconds is None else {"max_seconds": seconds})}
        return {} if seconds is None else {"max_seconds": seconds}

    def _size_within(self, n_parameters: int, data: Data) -> int | None:
        like = self.clone()
        apply_setting(like, learn_setting(like, data))
        emission = _emission(like)
        most = largest_size(lambda k: _n_parameters(like, k, emission), n_parameters, 1, "n_states")
        return min(most, int(MOST_TUPLES ** (1 / (self.order + 1)) + 1e-9))

    def _check_hyperparameters(self) -> None:
        check_numbers(self.n_states, self.n_init, self.max_iter, self.tol)
        self.training.check()
        if self.max_seconds is not None and not self.max_seconds > 0:
            raise ValueError(f"max_seconds is {self.max_seconds}; pass a number above zero, or None for no limit")
        if self.n_states ** (self.order + 1) > MOST_TUPLES:
            raise ValueError(
                f"n_states={self.n_states} and order={self.order} make {self.n_states}^{self.order + 1} states of the "
                f"last {self.order + 1} steps, more than {MOST_TUPLES}; pass fewer states or a smaller order"
            )
        if self.start not in STARTS:
            raise ValueError(f"start is {self.start!r}; pass 'stationary', 'free' or 'uniform'")
        for name in ("emissions", "first_state"):
            if getattr(self.input_effects, name):
                raise ValueError(
                    f"{name} of input_effects is {getattr(self.input_effects, name)!r}, but only the transitions of a "
                    "MarkovSwitchingAR depend on inputs; pass input_effects=ChainInputEffects(transitions=...)"
                )
        if not 0 <= self.input_effects.ridge < np.inf:
            raise ValueError(f"ridge is {self.input_effects.ridge}; pass a finite number, 0 or more")
        if self.observation != "auto" and repr(self.observation) != repr(self._own_observation()):
            raise ValueError(
                f"observation is {self.observation!r}, but {a_or_an(type(self))} has its own; leave "
                "observation='auto', and pass order and min_covariance"
            )
        _pseudocounts(self, self.n_states, self.length)
        if _is_warm_start(self):
            fitted = (len(self.parameters_.initial), *self._fitted_choices)
            now = (self.n_states, *_choices(self))
            if fitted != now:
                raise ValueError(
                    "n_states, order, switching_ar, switching_variance, start and input_effects are "
                    f"{now}, but the model was fitted with {fitted}, so warm_start cannot continue; set them back, or "
                    "warm_start=False"
                )

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
        n_tuples, n_steps = self.n_states ** (self.order + 1), sum(len(each.values) for each in train)
        if n_tuples > MOST_TUPLES_A_STEP * n_steps:
            warn_caller(
                f"n_states={self.n_states} and order={self.order} make {n_tuples:,} states of "
                f"{self.order + 1} steps, of data with {n_steps:,} steps, which determine few of them; "
                "pass a smaller order, or fewer states"
            )
        self._fitted_choices = _choices(self)
        emission = _emission(self)
        checkpoints = checkpoints_of_fit(self, resolved_choices(self), train, validation)
        n_units, log_det = raw_size(train, self.encoding_)
        constraints, pseudocount = Constraints.none(self.n_states), _pseudocounts(self, self.n_states, self.length_)
        objective = MAPObjective(emission, pseudocount, constraints, n_units, log_det, self.start, _input_options(self))
        corpus = _corpus(self, emission, train)
        is_warm = _is_warm_start(self)
        n_init = 1 if is_warm else n_starts(self.n_init, "em", Banded(), corpus)
        groups: list[Sequence[Parameters]] = []  # where a checkpoint is resumed, it has those that are left
        if checkpoints.state is None:
            first = [self.parameters_.to(self._device())] if is_warm else _starts(self, objective, corpus, n_init)
            groups = [[start.of_first_process()] for start in first]
        best = best_of(
            groups,
            partial(
                _run,
                objective=objective,
                emission=emission,
                corpus=corpus,
                stop=StopRule(self.max_iter, self.tol, self.max_seconds and self.max_seconds / n_init),
            ),
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

    @torch.no_grad()
    def _steps(self, examples: list[Example]) -> list[np.ndarray]:
        parameters, emission = self.parameters_.to(self._device()), _emission(self)
        results: list[np.ndarray] = [np.empty(0)] * len(examples)
        corpus = _corpus(self, emission, [replace(e, weight=1.0) for e in examples])
        for batch, trellis in each_trellis(parameters, emission, corpus.each_batch(), corpus.dtype, self.start):
            filtered = forward_pass(trellis)
            steps, ends = trellis.packing.split(filtered.steps), filtered.ends.cpu().numpy()
            beliefs = trellis.packing.split(filtered.log_beliefs)
            for j, i in enumerate(batch.indices):
                source = examples[i].source
                first = 0 if source is None else len(source)
                scored = steps[j][first:].cpu().numpy().copy()
                if first and parameters.final is not None and scored[0] > -np.inf:
                    # After a source the sequence cannot end at once.
                    log_continue = beliefs[j][first - 1] + parameters.transition.sum(1).log()
                    scored[0] -= float(torch.logsumexp(log_continue, 0))
                results[i] = scored if parameters.final is None else np.append(scored, ends[j])
        return results

    def _with_floor(self, factor: float) -> Self:
        other = super()._with_floor(factor)
        table = _emission(self).on_floor(self.parameters_.table, factor)
        other.parameters_ = replace(self.parameters_, table=table)
        return other

    # -- one step at a time --------------------------------------------------------------------------------

    @checked
    def cursor(self, n_steps: int | None = None) -> MarkovSwitchingCursor:
        self._setting()  # which refuses a model that is not fitted
        parameters = self.parameters_.to(self._device())
        return MarkovSwitchingCursor(parameters, _emission(self), DTYPES[self.dtype_], self.start)

    def _filtered(self, state: CursorState) -> np.ndarray:
        assert isinstance(state, LastStates), "of this model's cursor"
        if state.log_alpha is None:
            raise ValueError("the stream has read no step yet, so there is no state to filter; call update first")
        return torch.logsumexp(state.log_alpha[0], 1).exp().cpu().numpy()

    # -- states of given sequences -------------------------------------------------------------------------

    def decode(self, X: Any, y: Any = None) -> list[np.ndarray]:
        """The most probable path of states of each sequence, ``(T,)`` (Viterbi over the states of the last p + 1
        steps).

        Of a sequence with a past: the last T states of the path of both; so for the other questions about states.

        Raises:
            ValueError: a sequence that no path can explain, named.
        """
        return _run_on_each(self, X, y, _paths)

    def _smoothed_states(self, X: Any, y: Any) -> list[np.ndarray]:
        return _run_on_each(self, X, y, _posteriors)

    def _filtered_states(self, X: Any, y: Any) -> list[np.ndarray]:
        return _run_on_each(self, X, y, _beliefs, first=self.initial_)

    def _shares_and_durations(self) -> tuple[np.ndarray, np.ndarray]:
        p = self.parameters_
        share = stationary(p.initial.numpy(), p.transition.numpy(), None if p.final is None else p.final.numpy())
        with np.errstate(divide="ignore"):
            return share, 1 / (1 - np.diag(p.transition.numpy()))

    def _emissions_by_state(self, names: Sequence[str]) -> Mapping[str, np.ndarray]:
        return _emission(self).by_state(self.parameters_.table, *self.encoding_.affine(), names)

    def _drawn_states(self, X: Any, y: Any, n: int, seed: int) -> list[np.ndarray]:
        generator = torch.Generator(self._device()).manual_seed(seed)
        return _run_on_each(self, X, y, partial(_draws, n=n, generator=generator))

    # -- the chain -----------------------------------------------------------------------------------------

    @checked
    def reorder(self, order: Sequence[int] | np.ndarray | Literal["mean", "stationary"]) -> Self:
        """A copy whose state i is this model's state ``order[i]``: the same probabilities under other numbers.

        Args:
            order: a permutation of the states; ``"mean"``: by their means, the first feature first;
                ``"stationary"``: those visited most first.
        """
        k = len(self.parameters_.initial)
        raw = {"weights_": np.ones((k, 1)), "means_": self.means_[:, None]}
        permutation = permutation_of_states(order, lambda: self.stationary_, raw)
        if permutation.shape != (k,) or not np.array_equal(np.sort(permutation), np.arange(k)):
            raise ValueError(f"order is {order!r}; pass each of the states 0 to {k - 1} once")
        other = copy.copy(self)
        other.pseudocount = reordered_counts(self.pseudocount, permutation)
        other.parameters_ = self.parameters_.take(torch.as_tensor(permutation.astype(np.int64)))
        return other

    # -- parameters ----------------------------------------------------------------------------------------

    @property
    def initial_(self) -> np.ndarray:
        """``(K,)`` probability of each state at the first step; where transitions depend on inputs and ``start`` is
        stationary, with all inputs at their mean.
        """
        return self.parameters_.initial.numpy()

    @property
    def transition_(self) -> np.ndarray:
        """``(K, K)`` probability of state j after state i; where they depend on inputs, with all at their mean."""
        return self.parameters_.transition.numpy()

    @property
    def final_(self) -> np.ndarray:
        """``(K,)`` probability that the sequence ends after a step in each state (zeros where lengths are given)."""
        final = self.parameters_.final
        return np.zeros(len(self.initial_)) if final is None else final.numpy()

    @property
    def stationary_(self) -> np.ndarray:
        """``(K,)`` share of its steps that a long sequence from ``initial_`` spends in each state, as of ``HMM``."""
        p = self.parameters_
        if p.transition_slopes is not None:
            raise AbsentAttributeError(
                "transitions depend on inputs, so there is no stationary distribution; see transition_at"
            )
        return stationary(p.initial.numpy(), p.transition.numpy(), None if p.final is None else p.final.numpy())

    @property
    def transition_slopes_(self) -> np.ndarray:
        """``(K, K, U)``: by how much the log-odds of going to j rather than staying rise with a unit of an input."""
        slopes, scaling = self.parameters_.transition_slopes, self._input_scaling
        if slopes is None or scaling is None:
            raise AttributeError(f"this {type(self).__name__} has transitions that depend on no inputs")
        return np.asarray(slopes.numpy() / scaling.scale)

    def transition_at(self, inputs: Any) -> np.ndarray:
        """``(T, K, K)`` transitions into steps with these inputs, ``(T, U)`` or a mapping from names to values."""
        slopes, scaling = self.parameters_.transition_slopes, self._input_scaling
        if slopes is None or scaling is None:
            raise ValueError("the transitions depend on no inputs; see transition_")
        u = torch.as_tensor(scaling.encode_steps(inputs))
        return log_transitions(self.parameters_.transition, slopes, u).exp().numpy()

    def _named_parameters(self) -> Mapping[str, Any]:
        if "parameters_" not in vars(self):
            return {}
        return _emission(self).raw_parameters(self.parameters_.table, *self.encoding_.affine())

    @classmethod
    @checked
    def from_parameters(
        cls,
        transition: Any,
        *,
        means: Any,
        autoregression: Any,
        variances: Any,
        initial: Any = None,
        final: Any = None,
        first_means: Any = None,
        first_variances: Any = None,
        **options: Any,
    ) -> Self:
        """A fitted model with these parameters, in raw units.

        Args:
            transition: (K, K) probabilities of the next state.
            means: (K, D) of the states.
            autoregression: (p, D), one step back first, or (K, p, D).
            variances: (D,), or (K, D).
            initial: (K,) distribution of the first state; None: the stationary one, or what ``start`` says (of
                ``"free"`` the uniform one).
            final: (K,) probability of ending after each state, so that ``transition`` rows and it sum to one; None: the
                length is given.
            first_means, first_variances: (D,) of the first p steps; None: mean and variance of means and innovations,
                by the shares of the states.
            options: other arguments of ``MarkovSwitchingAR``.

        Raises:
            ValueError: rows that do not sum to one, shapes that do not fit, a variance below the floor.

        >>> chain = [[0.9, 0.1], [0.25, 0.75]]
        >>> parameters = {"means": [[1.2], [-0.4]], "autoregression": [[0.1], [-0.2]], "variances": [0.6]}
        >>> model = MarkovSwitchingAR.from_parameters(chain, **parameters)
        >>> model.initial_.round(3), model.order
        (array([0.714, 0.286]), 2)
        """
        import pandas as pd

        raw = RawRegressions.of(means, autoregression, variances)
        k = len(raw.mean)
        if initial is not None:
            options = {"start": "free", **options}
        model = made_with(
            cls,
            options,
            n_states=k,
            order=raw.order,
            switching_ar=raw.coefficients.ndim == 3,
            switching_variance=raw.variance.ndim == 2,
            length="given" if final is None else "stop",
        )
        model._check_hyperparameters()
        if model.input_effects.transitions:
            raise ValueError("from_parameters makes no model of inputs; leave input_effects out")
        first = np.full(k, 1 / k) if initial is None else initial
        chain = chain_parameters(first, transition, final, torch.zeros(k, 1, dtype=torch.float64))
        if initial is None:
            with suppress(np.linalg.LinAlgError):  # of a chain that has come apart, which the check names
                chain = with_start(chain, model.start, Banded())
        check_initial(chain, model.start, Banded())
        mean, variance = raw.moments(chain.initial.numpy())
        encoding = Standardize().restore({"mean": mean, "scale": np.sqrt(variance)})
        length: Length = "given" if final is None else "stop"
        apply_setting(model, Setting.from_fitted(encoding, model._own_observation(), length, conditional=False))
        first_mean = mean if first_means is None else numbers_of("first_means", first_means)
        first_variance = variance if first_variances is None else numbers_of("first_variances", first_variances)
        table = raw.encoded(_emission(model), encoding, first_mean, first_variance)
        model.parameters_ = replace(chain, table=table)
        model.history_, model.converged_, model.fit_seconds_ = pd.DataFrame(), True, 0.0
        model.starts_, model._fitted_choices = starts_table([], None), _choices(model)
        return model

    def _state(self) -> dict[str, Any]:
        return {**self.parameters_.arrays(), "starts": starts_arrays(self.starts_)}

    def _restore(self, state: dict[str, Any]) -> None:
        self._fitted_choices = _choices(self)
        self.starts_ = starts_from_arrays(state.get("starts"))
        state = {name: array for name, array in state.items() if name != "starts"}
        slopes = ["transition_slopes"] if self.input_effects.transitions else []
        scaling = self._input_scaling
        n_inputs = 0 if scaling is None else len(scaling.names)
        check_arrays(state, self.n_states, has_end=self.length_ == "stop", slopes=slopes, n_inputs=n_inputs)
        if repr(self.observation_) != repr(self._own_observation()):
            raise ValueError(f"the observation in the file is {self.observation_!r}, not that of this model")
        parameters = Parameters.from_arrays(state)
        _emission(self).check_table(parameters.table)
        self.parameters_ = parameters


# -- what a model's hyperparameters come to ----------------------------------------------------------------------------


def _is_warm_start(model: MarkovSwitchingAR) -> bool:
    return model.warm_start and "parameters_" in vars(model)


def _choices(model: MarkovSwitchingAR) -> tuple[Any, ...]:
    """What parameters must have been fitted with, to go on from them."""
    inputs = model.input_effects.transitions
    names = inputs if inputs is None or isinstance(inputs, bool) else tuple(inputs)
    return model.order, model.switching_ar, model.switching_variance, model.start, names


def _emission(model: MarkovSwitchingAR) -> DeviationEmission:
    observation = model.observation_
    assert isinstance(observation, AutoregressiveGaussian), "its own"
    return DeviationEmission(
        observation,
        model.encoding_.size,
        switching_ar=model.switching_ar,
        switching_variance=model.switching_variance,
    )


def _pseudocounts(model: MarkovSwitchingAR, n_states: int, length: str) -> Pseudocounts:
    return ChainOptions.from_arguments(n_states, "ergodic", None, None, model.pseudocount, length).pseudocount


def _input_options(model: MarkovSwitchingAR) -> InputOptions:
    scaling = model._input_scaling
    if scaling is None:
        return InputOptions()
    chosen = tuple(map(scaling.names.index, chosen_inputs(model.input_effects.transitions, scaling.names)))
    return InputOptions(len(scaling.names), chosen, (), model.input_effects.ridge)


def _n_parameters(model: MarkovSwitchingAR, n_states: int, emission: DeviationEmission) -> int:
    in_row = n_states - 1 + (model.length_ == "stop")
    n_initial = n_states - 1 if model.start == "free" else 0
    n_slopes = len(_input_options(model).transition) * n_states * (n_states - 1)
    return n_initial + n_states * in_row + n_slopes + emission.n_parameters(n_states)


def _corpus(model: MarkovSwitchingAR, emission: DeviationEmission, examples: list[Example]) -> Corpus:
    # The recursion is that of whole sequences, as where there are several matrices.
    return corpus_of(examples, emission, model.n_states, model._device(), DTYPES[model.dtype_], has_one_matrix=False)


# -- EM ----------------------------------------------------------------------------------------------------------------


def _starts(model: MarkovSwitchingAR, objective: MAPObjective, corpus: Corpus, n_init: int) -> Iterator[Parameters]:
    guesses = starts(
        objective.emission,
        corpus.batches,
        corpus.n_states,
        has_final=model.length_ == "stop",
        generators=[torch.Generator().manual_seed(model.random_state + i) for i in range(n_init)],
    )
    started = (with_start(guess, objective.start, Banded()) for guess in guesses)
    return (objective.inputs.started(start, objective.emission) for start in started)


def _run(
    group: Sequence[Parameters],
    *,
    objective: MAPObjective,
    emission: DeviationEmission,
    corpus: Corpus,
    stop: StopRule,
    callback: Callable[..., None],
    checkpoints: Checkpoints,
) -> list[FitResult]:
    e_step_of_one = partial(
        e_step, emission=emission, batches=corpus.own_batches(), dtype=corpus.dtype, start=objective.start
    )
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


@torch.no_grad()
def _run_on_each(
    model: MarkovSwitchingAR, X: Any, y: Any, algorithm: StateAlgorithm, first: np.ndarray | None = None
) -> list[np.ndarray]:
    """What an algorithm finds for each sequence, in float64 where float32 cannot hold the data; first frames of a
    series, which are no steps, have ``first``, or what the first step has.
    """
    data = checked_data(model, X, y)
    if data.y is not None:
        data.refuse_past("the states of pairs")
    examples = [replace(e, weight=1.0) for e in model._setting().examples(data)]
    precise = in_float64(model) if need_float64(examples) else model
    parameters, emission = model.parameters_.to(model._device()), _emission(model)
    corpus = _corpus(precise, emission, examples)
    results: list[np.ndarray] = [np.empty(0)] * len(examples)
    for batch, trellis in each_trellis(parameters, emission, corpus.each_batch(), corpus.dtype, model.start):
        for i, result in zip(batch.indices, algorithm(batch, trellis), strict=True):
            results[i] = result.cpu().numpy()
    return of_each_frame(examples, results, first)


def _paths(batch: PackedBatch, trellis: LastStatesTrellis) -> list[Tensor]:
    paths, log_prob = best_paths(trellis)
    refuse(batch.impossible(log_prob))
    return paths


def _posteriors(batch: PackedBatch, trellis: LastStatesTrellis) -> list[Tensor]:
    posterior = forward_backward_pass(trellis)
    refuse(batch.impossible(posterior.log_prob))
    return trellis.packing.split(posterior.gamma.sum(2))


def _draws(batch: PackedBatch, trellis: LastStatesTrellis, n: int, generator: torch.Generator) -> list[Tensor]:
    """``(T, n)`` of each."""
    paths, log_prob = sample_paths(trellis, n, generator)
    refuse(batch.impossible(log_prob))
    return paths


def _beliefs(batch: PackedBatch, trellis: LastStatesTrellis) -> list[Tensor]:
    return trellis.packing.split(forward_pass(trellis).log_beliefs.exp())
