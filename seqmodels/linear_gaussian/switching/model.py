"""``SwitchingLinearGaussian``: linear-Gaussian states whose matrices switch, as a ``SequenceModel``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, get_args

import numpy as np

from seqmodels.common.array_checks import numbers_of
from seqmodels.common.parameters import Range, checked, checked_but, made_with
from seqmodels.common.progress import ProgressBar
from seqmodels.encodings.examples import Example
from seqmodels.encodings.raw_data import Data
from seqmodels.linear_gaussian.parameters import stationary_covariance
from seqmodels.linear_gaussian.state_space import StateSpaceModel, encoded_sequences, raw_size
from seqmodels.linear_gaussian.switching.cursor import ParticleCursor
from seqmodels.linear_gaussian.switching.initialise import Initialiser, fitted_system
from seqmodels.linear_gaussian.switching.learning import (
    SwitchingObjective,
    SwitchingStart,
    SwitchingStore,
    VariationalEM,
)
from seqmodels.linear_gaussian.switching.parameters import Switching, SwitchingForm, SwitchingParameters
from seqmodels.linear_gaussian.switching.particle_em import run_particle_em
from seqmodels.linear_gaussian.switching.particle_filter import FilteredPaths, WhitenedSystem, filter_sequence
from seqmodels.linear_gaussian.switching.variational import RegimeTables, batches_of, variational_step
from seqmodels.model.fitting import checked_data, resolved_choices
from seqmodels.model.states_frame import named_states, states_frame
from seqmodels.observations import Observation
from seqmodels.training import (
    Checkpoints,
    EMTraining,
    Row,
    Starts,
    checkpoints_of_fit,
    run_em,
    show_row,
)

if TYPE_CHECKING:
    import pandas as pd

Likelihood = Literal["particles", "bound"]
ERROR_RUNS = 8  # filters of other seeds, whose spread is the standard error
BOUND_STEPS = 20  # of q(z) and q(s) in turn
MOST_PARTICLES = 1_000_000


@dataclass(eq=False, repr=False)
class SwitchingLinearGaussian(StateSpaceModel[SwitchingParameters]):
    """A linear-Gaussian system whose matrices depend on a regime, where the regimes are a Markov chain::

        s_1 ~ π,        s_t ~ T[s_t-1]
        z_1 ~ N(m, P),  z_t = A[s_t] z_t-1 + b[s_t] + w_t,  w_t ~ N(0, Q[s_t])
        x_t = C[s_t] z_t + d[s_t] + v_t,                    v_t ~ N(0, R[s_t])

    (Bar-Shalom and Li 1993; Murphy 1998; Ghahramani and Hinton 2000.) Here s_t is the regime (one of S), z_t are K
    hidden states, and x_t is a step with D features. ``p(x)`` is a sum over all paths of regimes, too many to list, so
    it is estimated by particles or bounded from below. Everything is computed in float64 whatever ``dtype`` says. The
    length of a sequence is taken as given and has no probability.

    Args:
        n_regimes: number of regimes S.
        n_states: number of states K.
        switching: what differs between regimes: ``"dynamics"`` (A, b and Q), ``"observation"`` (C, d and R; b is then
            0) or ``"both"``.
        likelihood: what ``log_prob`` and ``score`` return. ``"particles"`` estimates them by a Rao-Blackwellized
            particle filter: every prediction of a step is a mixture of Gaussians that integrates to one, and the mean
            of ``exp(log_prob)`` over seeds is p(x); it is exact while there are at most ``n_particles`` paths.
            ``measure_.kind`` is then ``"estimate"``, and ``score_error`` returns its standard error. ``"bound"`` takes
            the lower bound of structured mean field (``measure_.kind`` is ``"bound"``): the figure of a step is the
            bound of the sequence up to it minus the bound of the sequence before it, whose computing time grows with
            the square of the length; ``bound`` returns that of whole sequences. Predictions, samples and forecasts
            always come from particles.
        n_particles: maximum number of paths of regimes that the filter keeps at each step.
        observation_noise: form of R, ``"diag"`` or ``"full"``. Values may be missing (NaN) under ``"diag"``.
        min_covariance: floor of the variances of R in units of the standardised data (of its eigenvalues under
            ``"full"``), and of the eigenvalues of Q, whose states have mean square about 1. A start whose variances end
            at the floor of R loses to one whose variances do not.
        max_iter: maximum number of variational EM steps of each start.
        tol: EM stops when a step improves the bound by less than this, in nats per unit; 0 never stops early.
        n_init: number of starts; the one with the best bound wins.
        particle_steps: number of further EM steps whose expectations come from paths drawn by the filter instead of
            mean field. Where noise leaves regimes in doubt the bound is loose, and its maximum differs from that of the
            likelihood. Each of these steps takes the time of the filter over the training data. 0 takes none.
        max_seconds: maximum number of seconds of a fit, over all starts; None sets no limit.

    ``training`` is a ``training.EMTraining``, which says where the fit writes checkpoints, and from where it resumes.
    The other arguments are those of ``SequenceModel``.

    The fit is variational EM, whose bound never falls (with one regime it is EM), followed by ``particle_steps`` steps
    of EM with the particle filter. The rows of ``history_`` of the latter have ``particles`` 1, and the estimated
    log-likelihood in place of the bound. Which paths are kept at a step depends only on ``random_state`` and the steps
    before, so results are reproducible. EM needs no held-out data: ``validation="auto"`` holds out nothing.

    Attributes, in raw units but for the states, which have units of their own: ``initial_ (S,)``,
    ``regime_transition_ (S, S)``, ``transition_ (S, K, K)``, ``drift_ (S, K)``, ``state_covariance_ (S, K, K)``,
    ``observation_matrix_ (S, D, K)``, ``intercept_ (S, D)``, ``observation_covariance_ (S, D, D)``,
    ``initial_mean_ (K,)``, ``initial_covariance_ (K, K)``.

    >>> chain = {"initial": [0.5, 0.5], "regime_transition": [[0.9, 0.1], [0.1, 0.9]]}
    >>> model = SwitchingLinearGaussian.from_parameters(
    ...     **chain, transition=[[[1.0]], [[-1.0]]], state_covariance=[[[0.1]], [[0.1]]], observation_matrix=[[1.0]],
    ...     observation_covariance=[[0.1]], initial_mean=[0.0], initial_covariance=[[4.0]]
    ... )
    >>> model.decode([[[1.5], [1.4], [1.6], [-1.5], [1.4], [-1.5]]])
    [array([0, 0, 0, 1, 1, 1])]
    """

    _bounded_by_data: ClassVar[Mapping[str, str]] = {"n_regimes": "steps", "n_states": "steps"}
    _costly: ClassVar[frozenset[str]] = frozenset({"n_regimes", "n_states"})

    n_regimes: int = 2
    n_states: int = 2
    switching: Switching = "dynamics"
    likelihood: Likelihood = "particles"
    n_particles: Annotated[int, Range(1, MOST_PARTICLES)] = 64
    observation_noise: Literal["diag", "full"] = "diag"
    min_covariance: float = 1e-6
    max_iter: int = 100
    tol: float = 1e-5
    n_init: int = 1
    particle_steps: int = 20
    _: KW_ONLY
    max_seconds: float | None = None
    training: EMTraining = field(default_factory=EMTraining)

    # -- SequenceModel -------------------------------------------------------------------------------------

    @property
    def _predicts_steps(self) -> bool:  # type: ignore[override]
        return self.likelihood == "particles"

    @property
    def n_parameters_(self) -> int:
        return self._form().n_parameters(*self.parameters_.sizes)

    def _size_within(self, n_parameters: int, data: Data) -> int | None:
        return self._largest_n_states(
            n_parameters, data, lambda like, k: like._form().n_parameters(like.n_regimes, k, like.encoding_.size)
        )

    def _sums_out(self, observation: Observation) -> bool:
        return super()._sums_out(observation) and self.observation_noise == "diag"

    def _check_hyperparameters(self) -> None:
        sizes = (("n_regimes", 1), ("n_states", 1), ("n_particles", 1), ("n_init", 1))
        choices = (("switching", get_args(Switching)), ("likelihood", get_args(Likelihood)))
        self._check_arguments_of_fit(
            (*sizes, ("max_iter", 0), ("particle_steps", 0)), (*choices, ("observation_noise", ("diag", "full")))
        )

    def _form(self) -> SwitchingForm:
        return SwitchingForm(self.switching, self.observation_noise, self.min_covariance)

    def _fit(self, train: list[Example], validation: list[Example]) -> None:
        values = encoded_sequences(train)
        weights = np.array([e.weight for e in train], dtype=np.float64)
        objective = SwitchingObjective(self._form(), *raw_size(train, self.encoding_))
        checkpoints = checkpoints_of_fit(self, resolved_choices(self), train, validation)
        best, after = self._starts(objective, values, weights).best(checkpoints)
        self.parameters_, self.converged_ = best.parameters.parameters, best.converged
        rows = [{**row, "particles": 0.0} for row in best.rows]
        if self.particle_steps and self.n_regimes > 1 and not best.interrupted:
            rows += self._particle_rows(objective, values, weights, rows[-1], after)
        self.measure_ = replace(self.measure_, kind="bound" if self.likelihood == "bound" else "estimate")
        self.history_ = replace(best, rows=rows).history_with(validation=self._held_out_score(validation))

    def _starts(
        self, objective: SwitchingObjective, values: list[np.ndarray], weights: np.ndarray
    ) -> Starts[SwitchingStart, SwitchingStart]:
        form, (batches, _) = objective.form, batches_of(values, weights)
        before: SwitchingParameters | None = vars(self).get("parameters_") if self.warm_start else None
        n, store = 1 if before is not None else self.n_init, SwitchingStore()
        stop = self._stop_rule(n)

        @cache
        def initialiser() -> Initialiser:
            return Initialiser.of(values, weights, batches, form, self.n_states, self.random_state)

        def first(number: int) -> SwitchingStart:
            if before is not None:
                regimes = [self._marginals(WhitenedSystem(before), each) for each in values]
                return SwitchingStart(before, _packed(regimes, values, weights))
            if self.n_regimes == 1:
                system = fitted_system(values, weights, form, self.n_states, self.random_state, 0)
                ones = [np.ones((len(b.x), 1)) for b in batches]
                return SwitchingStart(SwitchingParameters.repeated(system, 1), ones)
            return initialiser().start(number, self.n_regimes)

        run = partial(run_em, VariationalEM(objective, batches), stop=stop, store=store)
        return Starts(n, first, run, store, self.max_iter, self.verbose)

    def _particle_rows(
        self,
        objective: SwitchingObjective,
        values: list[np.ndarray],
        weights: np.ndarray,
        last: Row,
        checkpoints: Checkpoints,
    ) -> list[Row]:
        """Run EM with the particle filter, set ``parameters_`` to its result, and return its rows of the history.

        Args:
            objective: what the rows report.
            values: encoded sequences, each ``(T, D)``.
            weights: weight of each sequence, ``(n,)``.
            last: last row before it, from which steps and seconds are counted on.
            checkpoints: where to write progress, and what to resume from.
        """
        left = None if self.max_seconds is None else max(0.0, self.max_seconds - last["seconds"])
        with ProgressBar(self.particle_steps, self.verbose, "particles") as bar:
            self.parameters_, rows = run_particle_em(
                *(self.parameters_, objective, values, weights, self.particle_steps, self.n_particles),
                *(self.random_state, left, partial(show_row, bar), checkpoints),
            )
        after = {"step": last["step"] + 1, "seconds": last["seconds"]}
        return [{**row, **{name: row[name] + shift for name, shift in after.items()}, "particles": 1.0} for row in rows]

    # -- many sequences at once ----------------------------------------------------------------------------

    def _steps(self, examples: list[Example]) -> list[np.ndarray]:
        values = encoded_sequences(examples)
        if self.likelihood == "particles":
            steps = [each.log_prob for each in self._filtered_sequences(values, self.random_state)]
        else:
            steps = self._steps_of_bound(values)
        return [each[len(each) - len(e.values) :] for e, each in zip(examples, steps, strict=True)]

    def _steps_of_bound(self, values: list[np.ndarray]) -> list[np.ndarray]:
        """Return by how much each step changes the lower bound of log p(x) in nats, ``(T,)`` for each sequence."""
        prefixes = [x[:t] for x in values for t in range(1, len(x) + 1)]
        bounds = np.split(self._bounds(prefixes), np.cumsum([len(x) for x in values])[:-1])
        return [np.diff(each, prepend=0.0) for each in bounds]

    def _filtered_sequences(self, values: Sequence[np.ndarray], seed: int) -> list[FilteredPaths]:
        system = WhitenedSystem(self.parameters_)
        return [filter_sequence(system, x, self.n_particles, seed) for x in values]

    def _marginals(self, system: WhitenedSystem, x: np.ndarray) -> np.ndarray:
        """Return probabilities of S regimes at each step of ``x (T, D)`` by the particle filter, ``(T, S)``.

        A small share of equal probabilities is mixed in, so that no regime is excluded.
        """
        S = len(system.log_initial)
        filtered = filter_sequence(system, x, self.n_particles, self.random_state)
        marginals = np.einsum("l,lts->ts", np.exp(filtered.log_weights), np.eye(S)[filtered.paths])
        return np.asarray(0.95 * marginals + 0.05 / S)

    def _bounds(self, values: list[np.ndarray]) -> np.ndarray:
        """Return the mean-field lower bound of log p(x) of each of n encoded sequences in nats, ``(n,)``.

        Mean field begins with the probabilities of regimes that the particle filter estimates.
        """
        system, tables = WhitenedSystem(self.parameters_), RegimeTables.of(self.parameters_)
        batches, numbers = batches_of(values, np.ones(len(values)))
        bounds = np.empty(len(values))
        for batch, here in zip(batches, numbers, strict=True):
            gamma = batch.packing.pack([self._marginals(system, values[i]) for i in here])
            for _ in range(BOUND_STEPS):
                step = variational_step(tables, batch, gamma)
                gamma = step.regimes.gamma
            bounds[here[batch.packing.order]] = step.bounds
        return bounds

    def bound(self, X: Any) -> np.ndarray:
        """Return the mean-field lower bound of log p(x) of each of n sequences in nats, for raw units, ``(n,)``.

        Args:
            X: sequences of vectors, without a past.
        """
        data = checked_data(self, X)
        data.refuse_past("bound")
        examples = self._setting().examples(data)
        return np.asarray(self._bounds(encoded_sequences(examples)) + np.array([e.log_det for e in examples]))

    def score_error(self, X: Any, y: Any = None) -> float:
        """Return the Monte Carlo standard error of ``score`` in nats per unit.

        It is estimated from the spread of particle filters with other seeds, and is 0 under ``likelihood="bound"``.

        Args:
            X: sequences of vectors.
            y: target sequences; None if there are none.
        """
        if self.likelihood == "bound":
            return 0.0
        data = checked_data(self, X, y)
        examples = self._setting().examples(data)
        values, skipped = encoded_sequences(examples), [e.n_past for e in examples]
        seeds = np.random.SeedSequence(self.random_state).generate_state(ERROR_RUNS)
        totals = []
        for seed in seeds.tolist():
            steps = [each.log_prob for each in self._filtered_sequences(values, seed)]
            scored = [s[len(s) - len(e.values) + k :] for s, e, k in zip(steps, examples, skipped, strict=True)]
            totals.append(sum(float(each.sum()) for each in scored))
        return float(np.std(totals, ddof=1) / data.scored.n_units.sum())

    def _with_floor(self, factor: float) -> Self:
        floored = super()._with_floor(factor)
        floored.min_covariance = factor * self.min_covariance
        floored.parameters_ = self.parameters_.with_floor(self.min_covariance, floored.min_covariance)
        return floored

    # -- one step at a time --------------------------------------------------------------------------------

    @checked
    def cursor(self, n_steps: int | None = None) -> ParticleCursor:
        self._setting()
        return ParticleCursor(WhitenedSystem(self.parameters_), self.n_particles, self.random_state)

    # -- regimes of given sequences ------------------------------------------------------------------------

    def decode(self, X: Any) -> list[np.ndarray]:
        """Return the most probable path of regimes that the particle filter keeps of each sequence.

        Args:
            X: sequences of vectors, without a past.

        Returns:
            Arrays ``(T,)`` of regime numbers from 0, one for each sequence of T steps.
        """
        return [each.paths[int(np.argmax(each.log_weights))] for each in self._of_data(X)]

    def filter_regimes(self, X: Any) -> list[np.ndarray]:
        """Return the probability of each regime at each step, given the steps up to it: p(s_t | x_1 .. x_t).

        Args:
            X: sequences of vectors, without a past.

        Returns:
            Arrays ``(T, S)``, one for each sequence of T steps, for S regimes.
        """
        return [each.regimes for each in self._of_data(X)]

    def posterior(self, X: Any) -> list[np.ndarray]:
        """Return the probability of each regime at each step, given the whole sequence: p(s_t | x).

        It is estimated from the paths that the particle filter has left at the end. In a long sequence these share one
        beginning, so its probabilities are too close to 0 and 1 there; a larger ``n_particles`` reduces this.

        Args:
            X: sequences of vectors, without a past.

        Returns:
            Arrays ``(T, S)``, one for each sequence of T steps, for S regimes.
        """
        S = self.n_regimes
        return [np.einsum("l,lts->ts", np.exp(each.log_weights), np.eye(S)[each.paths]) for each in self._of_data(X)]

    @checked_but("X")
    def decode_frame(self, X: Any, *, state_names: Sequence[str] | None = None) -> pd.DataFrame:
        """Return the most probable regimes of all sequences in one table with a row for each step.

        It has the results of ``decode`` and ``posterior`` side by side.

        Args:
            X: sequences of vectors, without a past.
            state_names: a different name for each regime, which replaces its number; None keeps the numbers.

        Returns:
            A table with columns ``sequence`` (its number, from 0), ``name``, ``position`` (from 1), a column of times
                if the sequences have times, ``state`` (the regime) and ``probability`` (of this regime at this step).

        Raises:
            ValueError: ``state_names`` does not have a different name for each regime.
        """
        scored = checked_data(self, X).scored
        frame = states_frame(self.encoding_, scored, self.decode(scored), self.posterior(scored))
        return frame.assign(state=named_states(frame["state"], state_names, self.n_regimes))

    def _of_data(self, X: Any) -> list[FilteredPaths]:
        data = checked_data(self, X)
        data.refuse_past("regimes")
        return self._filtered_sequences(encoded_sequences(self._setting().examples(data)), self.random_state)

    def _filtered(self, state: Any) -> np.ndarray:
        return self.cursor().filtered(state)

    # -- parameters ----------------------------------------------------------------------------------------

    @property
    def _state_scale(self) -> float:
        return 1.0

    @property
    def initial_(self) -> np.ndarray:
        """The probabilities π of the S regimes at the first step, ``(S,)``."""
        return self.parameters_.initial

    @property
    def regime_transition_(self) -> np.ndarray:
        """The transition matrix T of the regimes, ``(S, S)``; each row has the probabilities of the next regime."""
        return self.parameters_.regime_transition

    @property
    def drift_(self) -> np.ndarray:
        """The drift b of each of S regimes, a vector that is added to the mean of the next state, ``(S, K)``."""
        return self.parameters_.drift

    @classmethod
    @checked
    def from_parameters(
        cls,
        initial: Any,
        regime_transition: Any,
        transition: Any,
        state_covariance: Any,
        observation_matrix: Any,
        observation_covariance: Any,
        initial_mean: Any = None,
        initial_covariance: Any = None,
        *,
        drift: Any = None,
        intercept: Any = None,
        **options: Any,
    ) -> Self:
        """Return a fitted model with the given parameters, in raw units, for S regimes, K states and D features.

        Args:
            initial, regime_transition: probabilities of the first regime, ``(S,)``, and of the next regime after each
                (a row), ``(S, S)``.
            transition, state_covariance: A and the covariance Q of the states' noise, ``(S, K, K)``, or ``(K, K)`` if
                all regimes share them.
            observation_matrix, observation_covariance: C, ``(S, D, K)`` or ``(D, K)``, and the covariance R of the
                observation noise, ``(S, D, D)`` or ``(D, D)``, which must be positive definite.
            initial_mean, initial_covariance: mean ``(K,)`` and covariance ``(K, K)`` of the first state; None stands
                for mean 0 and the stationary covariance of the first regime's dynamics.
            drift, intercept: b, which is added to the next state, ``(S, K)`` or ``(K,)``, and d, which is added to
                every observation, ``(S, D)`` or ``(D,)``; None stands for zeros.
            options: other arguments of the class. By default ``switching`` is ``"dynamics"`` if C, d and R have no axis
                of regimes, else ``"both"``, and ``observation_noise`` is ``"diag"`` if R is diagonal, else ``"full"``.
                With ``warm_start=True``, ``fit`` continues from these parameters.

        Raises:
            ValueError: shapes that do not fit together, matrices that are not covariances, rows that are not
                probabilities, or dynamics without a stationary distribution where one is needed.
        """
        pi = numbers_of("initial", initial, "(S,)")
        S = len(pi)
        A, C = np.asarray(transition, dtype=np.float64), np.asarray(observation_matrix, dtype=np.float64)
        if A.ndim < 2 or C.ndim < 2:
            raise ValueError(
                "transition and observation_matrix are too flat; pass matrices, one or one for each regime"
            )
        D, K = C.shape[-2:]
        given = {
            "initial": pi,
            "regime_transition": regime_transition,
            "transition": A,
            "drift": np.zeros(K) if drift is None else drift,
            "state_covariance": state_covariance,
            "observation": C,
            "intercept": np.zeros(D) if intercept is None else intercept,
            "observation_covariance": observation_covariance,
            "initial_mean": np.zeros(K) if initial_mean is None else initial_mean,
        }
        arrays = {name: np.asarray(value, dtype=np.float64) for name, value in given.items()}
        Q = np.broadcast_to(arrays["state_covariance"], (S, K, K))
        P = (
            stationary_covariance(np.broadcast_to(A, (S, K, K))[0], Q[0])
            if initial_covariance is None
            else initial_covariance
        )
        arrays["initial_covariance"] = np.asarray(P, dtype=np.float64)
        full = {}
        for name, shape in SwitchingParameters.shapes(S, K, D).items():
            if arrays[name].shape not in (shape, shape[1:]):
                raise ValueError(f"{name} has shape {arrays[name].shape}; pass numbers of shape {shape}")
            full[name] = np.array(np.broadcast_to(arrays[name], shape))
        parameters = SwitchingParameters(**full)
        parameters.check()
        shared = all(
            arrays[name].ndim < len(shape)
            for name, shape in (
                ("observation", (S, D, K)),
                ("intercept", (S, D)),
                ("observation_covariance", (S, D, D)),
            )
        )
        is_diagonal = not (full["observation_covariance"] * (1 - np.eye(D))).any()
        defaults = {
            "switching": "dynamics" if shared else "both",
            "observation_noise": "diag" if is_diagonal else "full",
        }
        model = made_with(cls, {**defaults, **options}, n_regimes=S, n_states=K)
        model._set_fitted(parameters, D)
        model.measure_ = replace(model.measure_, kind="bound" if model.likelihood == "bound" else "estimate")
        return model

    def _state(self) -> dict[str, Any]:
        return self.parameters_.arrays()

    def _restore(self, state: dict[str, Any]) -> None:
        self._check_observation()
        self.parameters_ = SwitchingParameters.from_arrays(state, self.n_regimes, self.n_states, self.encoding_.size)


def _packed(parts: list[np.ndarray], values: list[np.ndarray], weights: np.ndarray) -> list[np.ndarray]:
    """Return arrays ``(T, ...)``, one for each sequence, as packed rows of the batches that ``batches_of`` makes.

    Args:
        parts: an array for each sequence, with a row for each of its T steps.
        values: encoded sequences, each ``(T, D)``, which decide how batches are made.
        weights: weight of each sequence, ``(n,)``.
    """
    batches, numbers = batches_of(values, weights)
    return [batch.packing.pack([parts[i] for i in here]) for batch, here in zip(batches, numbers, strict=True)]
