"""``SwitchingLinearGaussian``: linear-Gaussian states whose matrices switch, as a ``SequenceModel``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, get_args

import numpy as np

from seqmodels.common.array_checks import numbers_of
from seqmodels.common.parameters import LARGEST_FLOOR, Range, checked, checked_but, made_with
from seqmodels.common.progress import ProgressBar
from seqmodels.encodings import Encoding, Features
from seqmodels.encodings.examples import Example
from seqmodels.encodings.raw_data import Data
from seqmodels.encodings.setting import Setting
from seqmodels.linear_gaussian.cursor import predicted_by
from seqmodels.linear_gaussian.learning.steps import Row, Starts, StopAfter, copied
from seqmodels.linear_gaussian.parameters import stationary_covariance
from seqmodels.linear_gaussian.switching.cursor import ParticleCursor
from seqmodels.linear_gaussian.switching.initialise import Initialiser, fitted_system
from seqmodels.linear_gaussian.switching.learning import SwitchingObjective, SwitchingRun, run_variational_em
from seqmodels.linear_gaussian.switching.parameters import Switching, SwitchingForm, SwitchingParameters
from seqmodels.linear_gaussian.switching.particle_em import run_particle_em
from seqmodels.linear_gaussian.switching.particle_filter import FilteredPaths, WhitenedSystem, filter_sequence
from seqmodels.linear_gaussian.switching.variational import RegimeTables, batches_of, variational_step
from seqmodels.model import SequenceModel
from seqmodels.model.fitting import apply_setting, checked_data, learn_setting, resolved_choices
from seqmodels.model.largest_size import largest_size
from seqmodels.model.states_frame import named_states, states_frame
from seqmodels.observations import Observation
from seqmodels.sequences import Kind
from seqmodels.sequences.measure import Length
from seqmodels.training import Checkpoints, EMTraining, checkpoints_of_fit

if TYPE_CHECKING:
    import pandas as pd

Likelihood = Literal["particles", "bound"]
ERROR_RUNS = 8  # filters of other seeds, whose spread is the standard error
BOUND_STEPS = 20  # of q(z) and q(s) in turn
MOST_PARTICLES = 1_000_000
UNLIMITED_STEPS = 1_000_000  # where time alone ends a fit


@dataclass(eq=False, repr=False)
class SwitchingLinearGaussian(SequenceModel):
    """A linear-Gaussian system whose matrices are those of a regime, and regimes a Markov chain::

        s_1 ~ π,        s_t ~ T[s_t-1]
        z_1 ~ N(m, P),  z_t = A[s_t] z_t-1 + b[s_t] + w_t,  w_t ~ N(0, Q[s_t])
        x_t = C[s_t] z_t + d[s_t] + v_t,                    v_t ~ N(0, R[s_t])

    (Bar-Shalom and Li 1993; Murphy 1998; Ghahramani and Hinton 2000.) ``p(x)`` is a sum over all paths of regimes, too
    many to list. Computed in float64 whatever ``dtype`` says. Lengths are given.

    Args:
        n_regimes: S.
        n_states: K.
        switching: what differs between regimes: ``"dynamics"``: A, b and Q; ``"observation"``: C, d and R, and b is 0;
            ``"both"``.
        likelihood: what ``log_prob`` and ``score`` are. ``"particles"``: of a Rao-Blackwellised particle filter
            (``measure_.kind`` is ``"estimate"``, with ``score_error``): every step's prediction is a mixture of
            Gaussians that integrates to one, ``exp(log_prob)`` has the mean p(x) over seeds, and no more than
            ``n_particles`` paths are exact. ``"bound"``: the lower bound of structured mean field
            (``measure_.kind`` is ``"bound"``), of a step the bound of the sequence up to it less that of the sequence
            before, which takes time in the square of the length; ``bound`` has that of whole sequences. Predictions,
            samples and forecasts are always of particles.
        n_particles: paths of regimes that the filter keeps.
        observation_noise: the form of R: ``"diag"`` or ``"full"``. Values may be missing (NaN) under ``"diag"``.
        min_covariance: floor of the variances of R, in units of the standardised data (under ``"full"`` of its
            eigenvalues), and of the eigenvalues of Q, whose states are of mean square about 1. A start that ends on
            that of R loses to one that does not.
        max_iter: most EM steps a start.
        tol: EM stops when a step improves the bound by less, in nats per unit; 0 never stops early.
        n_init: starts; the best bound wins.
        particle_steps: of EM after that, whose expectations are of drawn paths of the filter, not of mean field: where
            noise leaves regimes in doubt the bound is loose, and its maximum is not that of the likelihood. They take
            the time of the filter over the training data each. 0: none.
        max_seconds: a cap on time, over all starts.

    ``training`` is a ``training.EMTraining``: where the fit writes checkpoints, through all starts and EM of particles,
    and from where it goes on. The other arguments are described at ``SequenceModel``. It is fitted by variational EM,
    whose bound never falls (it is EM where there is one regime), then by EM of particles, whose rows of ``history_``
    have ``particles`` 1, and the estimate in the place of the bound. What is kept at a step depends on ``random_state``
    and on what came before alone, so that figures repeat. EM needs no held-out data: ``validation="auto"`` holds out
    nothing.

    Attributes, raw units but for the states, which have their own: ``initial_ (S,)``, ``regime_transition_ (S, S)``,
    ``transition_ (S, K, K)``, ``drift_ (S, K)``, ``state_covariance_ (S, K, K)``, ``observation_matrix_ (S, D, K)``,
    ``intercept_ (S, D)``, ``observation_covariance_ (S, D, D)``, ``initial_mean_ (K,)``,
    ``initial_covariance_ (K, K)``.

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

    _uses_validation: ClassVar[bool] = False
    _size: ClassVar[str | None] = "n_states"
    _sums_out_missing: ClassVar[bool] = True

    # -- SequenceModel -------------------------------------------------------------------------------------

    @property
    def _predicts_steps(self) -> bool:  # type: ignore[override]
        return self.likelihood == "particles"

    @property
    def context_(self) -> int | None:
        return None

    @property
    def n_parameters_(self) -> int:
        return self._form().n_parameters(*self.parameters_.sizes)

    def _limits(self, seconds: float | None, steps: int | None) -> dict[str, Any]:
        time = {} if seconds is None else {"max_seconds": seconds}
        if steps is not None:
            return {"max_iter": steps, **time}
        return time if seconds is None else {"max_iter": UNLIMITED_STEPS, **time}

    def _size_within(self, n_parameters: int, data: Data) -> int | None:
        like = self.clone()
        apply_setting(like, learn_setting(like, data))
        count = partial(self._form().n_parameters, self.n_regimes, n_features=like.encoding_.size)
        return largest_size(lambda k: count(k), n_parameters, 1, "n_states")

    def _default_length(self, kind: Kind) -> Length:
        return "given"

    def _default_observation(self, kind: Kind) -> Observation:
        if kind != "vectors":
            raise ValueError(
                f"a SwitchingLinearGaussian is of vectors, but the sequences are {kind}; use an HMM or a network"
            )
        return predicted_by()

    def _sums_out(self, observation: Observation) -> bool:
        return super()._sums_out(observation) and self.observation_noise == "diag"

    def _check_hyperparameters(self) -> None:
        self.training.check()
        least = (
            ("n_regimes", 1),
            ("n_states", 1),
            ("n_particles", 1),
            ("n_init", 1),
            ("max_iter", 0),
            ("particle_steps", 0),
        )
        for name, minimum in least:
            if getattr(self, name) < minimum:
                raise ValueError(f"{name} is {getattr(self, name)}; pass at least {minimum}")
        choices = (("switching", get_args(Switching)), ("likelihood", get_args(Likelihood)))
        for name, known in (*choices, ("observation_noise", ("diag", "full"))):
            if getattr(self, name) not in known:
                raise ValueError(f"{name} is {getattr(self, name)!r}; pass one of {', '.join(map(repr, known))}")
        if not 0 < self.min_covariance <= LARGEST_FLOOR or not self.tol >= 0:
            raise ValueError(
                f"min_covariance is {self.min_covariance} and tol {self.tol}; pass a number above 0 to "
                f"{LARGEST_FLOOR:g}, in variances of the data, and one from 0 on"
            )
        if self.max_seconds is not None and not self.max_seconds > 0:
            raise ValueError(f"max_seconds is {self.max_seconds}; pass a number above zero, or None for no limit")
        if self.observation != "auto":
            raise ValueError(
                f"observation is {self.observation!r}, but a SwitchingLinearGaussian has Gaussian noise; leave it "
                "'auto', and choose observation_noise"
            )
        if self.length == "stop":
            raise ValueError("length is 'stop', but a linear-Gaussian system says nothing of ends; leave 'given'")

    def _form(self) -> SwitchingForm:
        return SwitchingForm(self.switching, self.observation_noise, self.min_covariance)

    def _fit(self, train: list[Example], validation: list[Example]) -> None:
        import pandas as pd

        values = _values(train)
        weights = np.array([e.weight for e in train], dtype=np.float64)
        objective = SwitchingObjective(self._form(), *_raw_size(train, self.encoding_))
        checkpoints = checkpoints_of_fit(self, resolved_choices(self), train, validation)
        best, after = self._starts(objective, values, weights).best(checkpoints)
        self.parameters_, self.converged_ = best.parameters, best.converged
        rows = [{**row, "particles": 0.0} for row in best.rows]
        if self.particle_steps and self.n_regimes > 1 and not best.interrupted:
            rows += self._particle_rows(objective, values, weights, rows[-1], after)
        self.measure_ = replace(self.measure_, kind="bound" if self.likelihood == "bound" else "estimate")
        last = np.nan
        if validation:
            log_prob = float(self._sums_of_steps(validation).sum()) + sum(e.log_det for e in validation)
            last = log_prob / sum(e.n_units for e in validation)
        self.history_ = pd.DataFrame(rows).assign(validation=[*[np.nan] * (len(rows) - 1), last])

    def _starts(
        self, objective: SwitchingObjective, values: list[np.ndarray], weights: np.ndarray
    ) -> Starts[SwitchingRun]:
        form, (batches, _) = objective.form, batches_of(values, weights)
        before: SwitchingParameters | None = vars(self).get("parameters_") if self.warm_start else None
        stop = StopAfter(self.max_iter, self.tol, self.max_seconds and self.max_seconds / self.n_init)

        @cache
        def initialiser() -> Initialiser:
            return Initialiser.of(values, weights, batches, form, self.n_states, self.random_state)

        def first(number: int) -> SwitchingRun:
            if before is not None:
                regimes = [self._marginals(WhitenedSystem(before), each) for each in values]
                return SwitchingRun(before, _packed(regimes, values, weights))
            if self.n_regimes == 1:
                system = fitted_system(values, weights, form, self.n_states, self.random_state, 0)
                return SwitchingRun(SwitchingParameters.repeated(system, 1), [np.ones((len(b.x), 1)) for b in batches])
            start = initialiser().start(number, self.n_regimes)
            return SwitchingRun(start.parameters, start.regimes)

        def run(number: int, at: Checkpoints) -> SwitchingRun:
            with ProgressBar(self.max_iter, self.verbose, f"start {number + 1}") as bar:
                steps = first(number) if at.state is None else SwitchingRun.from_state(at.state)
                return run_variational_em(steps, objective, batches, stop, partial(_show, bar), at)

        def from_arrays(kept: Mapping[str, Any]) -> SwitchingRun:
            p = SwitchingParameters(**copied(kept["parameters"]))
            return SwitchingRun(p, [], rows=list(kept["rows"]), converged=bool(kept["converged"]))

        n = 1 if before is not None else self.n_init
        return Starts(n, run, lambda steps: {"parameters": steps.parameters.arrays()}, from_arrays)

    def _particle_rows(
        self,
        objective: SwitchingObjective,
        values: list[np.ndarray],
        weights: np.ndarray,
        last: Row,
        checkpoints: Checkpoints,
    ) -> list[Row]:
        """Sets the parameters to those after EM of particles; its rows, steps and seconds after those of ``last``."""
        left = None if self.max_seconds is None else max(0.0, self.max_seconds - last["seconds"])
        with ProgressBar(self.particle_steps, self.verbose, "particles") as bar:
            self.parameters_, rows = run_particle_em(
                *(self.parameters_, objective, values, weights, self.particle_steps, self.n_particles),
                *(self.random_state, left, partial(_show, bar), checkpoints),
            )
        after = {"step": last["step"] + 1, "seconds": last["seconds"]}
        return [{**row, **{name: row[name] + shift for name, shift in after.items()}, "particles": 1.0} for row in rows]

    # -- many sequences at once ----------------------------------------------------------------------------

    def _steps(self, examples: list[Example]) -> list[np.ndarray]:
        values = _values(examples)
        if self.likelihood == "particles":
            steps = [each.log_prob for each in self._filtered_sequences(values, self.random_state)]
        else:
            steps = self._steps_of_bound(values)
        return [each[len(each) - len(e.values) :] for e, each in zip(examples, steps, strict=True)]

    def _steps_of_bound(self, values: list[np.ndarray]) -> list[np.ndarray]:
        """Of each step what it adds to the bound."""
        prefixes = [x[:t] for x in values for t in range(1, len(x) + 1)]
        bounds = np.split(self._bounds(prefixes), np.cumsum([len(x) for x in values])[:-1])
        return [np.diff(each, prepend=0.0) for each in bounds]

    def _filtered_sequences(self, values: Sequence[np.ndarray], seed: int) -> list[FilteredPaths]:
        system = WhitenedSystem(self.parameters_)
        return [filter_sequence(system, x, self.n_particles, seed) for x in values]

    def _marginals(self, system: WhitenedSystem, x: np.ndarray) -> np.ndarray:
        """``(T, S)`` of the paths of the filter, with a small share of all regimes."""
        S = len(system.log_initial)
        filtered = filter_sequence(system, x, self.n_particles, self.random_state)
        marginals = np.einsum("l,lts->ts", np.exp(filtered.log_weights), np.eye(S)[filtered.paths])
        return np.asarray(0.95 * marginals + 0.05 / S)

    def _bounds(self, values: list[np.ndarray]) -> np.ndarray:
        """``(n,)`` nats of encoded sequences, the marginals of regimes beginning at those of the filter."""
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
        """``(n,)`` nats of each sequence, raw units: a lower bound of log p(x), that of structured mean field."""
        data = checked_data(self, X)
        data.refuse_past("bound")
        examples = self._setting().examples(data)
        return np.asarray(self._bounds(_values(examples)) + np.array([e.log_det for e in examples]))

    def score_error(self, X: Any, y: Any = None) -> float:
        """The Monte Carlo standard error of ``score``, in nats per unit: the spread of filters of other seeds.

        0 of a bound.
        """
        if self.likelihood == "bound":
            return 0.0
        data = checked_data(self, X, y)
        examples = self._setting().examples(data)
        values, skipped = _values(examples), [e.n_past for e in examples]
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
        """``(T,)`` of each sequence the regimes of the most probable of the paths that the filter keeps."""
        return [each.paths[int(np.argmax(each.log_weights))] for each in self._of_data(X)]

    def filter_regimes(self, X: Any) -> list[np.ndarray]:
        """``(T, S)`` of each sequence p(s_t | x_1 .. x_t), by the filter."""
        return [each.regimes for each in self._of_data(X)]

    def posterior(self, X: Any) -> list[np.ndarray]:
        """``(T, S)`` of each sequence p(s_t | x), by the paths that are left at its end.

        Of a long sequence these have one beginning in common: more ``n_particles`` tell more of the doubt about it.
        """
        S = self.n_regimes
        return [np.einsum("l,lts->ts", np.exp(each.log_weights), np.eye(S)[each.paths]) for each in self._of_data(X)]

    @checked_but("X")
    def decode_frame(self, X: Any, *, state_names: Sequence[str] | None = None) -> pd.DataFrame:
        """Return the most probable regimes of each sequence as one table, a row for each step: ``decode`` and
        ``posterior`` side by side.

        Args:
            state_names: of the S regimes, which take the place of their numbers; None: the numbers.

        Returns:
            Columns ``sequence`` (its number, from 0), ``name``, ``position`` (from 1), the times by their name where
            the sequences have some, ``state``, the regime, and ``probability``, that of this regime at this step.

        Raises:
            ValueError: names that are not S different ones.
        """
        scored = checked_data(self, X).scored
        frame = states_frame(self.encoding_, scored, self.decode(scored), self.posterior(scored))
        return frame.assign(state=named_states(frame["state"], state_names, self.n_regimes))

    def _of_data(self, X: Any) -> list[FilteredPaths]:
        data = checked_data(self, X)
        data.refuse_past("regimes")
        return self._filtered_sequences(_values(self._setting().examples(data)), self.random_state)

    def _filtered(self, state: Any) -> np.ndarray:
        return self.cursor().filtered(state)

    # -- parameters ----------------------------------------------------------------------------------------

    @property
    def initial_(self) -> np.ndarray:
        """``(S,)`` π, the distribution of the first regime."""
        return self.parameters_.initial

    @property
    def regime_transition_(self) -> np.ndarray:
        """``(S, S)`` T, a row of probabilities of the next regime for each."""
        return self.parameters_.regime_transition

    @property
    def transition_(self) -> np.ndarray:
        """``(S, K, K)`` A of each regime, which takes the state of a step to the mean of the next."""
        return self.parameters_.transition

    @property
    def drift_(self) -> np.ndarray:
        """``(S, K)`` b of each regime, added to the mean of the next state."""
        return self.parameters_.drift

    @property
    def state_covariance_(self) -> np.ndarray:
        """``(S, K, K)`` Q of each regime, the covariance of the noise of the state."""
        return self.parameters_.state_covariance

    @property
    def initial_mean_(self) -> np.ndarray:
        """``(K,)`` m, the mean of the first state."""
        return self.parameters_.initial_mean

    @property
    def initial_covariance_(self) -> np.ndarray:
        """``(K, K)`` P, the covariance of the first state."""
        return self.parameters_.initial_covariance

    @property
    def observation_matrix_(self) -> np.ndarray:
        """``(S, D, K)`` C of each regime, which takes the state of a step to the mean of its frame, in raw units."""
        _, scale = self.encoding_.affine()
        return np.asarray(np.reshape(scale, (-1, 1)) * self.parameters_.observation)

    @property
    def intercept_(self) -> np.ndarray:
        """``(S, D)`` d of each regime, what a frame is where the state is 0, in raw units."""
        shift, scale = self.encoding_.affine()
        return np.asarray(shift + scale * self.parameters_.intercept)

    @property
    def observation_covariance_(self) -> np.ndarray:
        """``(S, D, D)`` R of each regime, the covariance of the noise of a frame, in raw units."""
        _, scale = self.encoding_.affine()
        return np.asarray(np.outer(scale, scale) * self.parameters_.observation_covariance)

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
        """A fitted model with these parameters, raw units; with ``warm_start=True`` ``fit`` goes on from them.

        Args:
            initial, regime_transition: π ``(S,)``, T ``(S, S)``.
            transition, state_covariance: A, Q, ``(S, K, K)``, or ``(K, K)`` the same for all regimes.
            observation_matrix, observation_covariance: C ``(S, D, K)`` or ``(D, K)``; R ``(S, D, D)`` or ``(D, D)``,
                which must be positive definite.
            initial_mean, initial_covariance: m ``(K,)``, P ``(K, K)``; None: of mean 0, and what the transitions of the
                first regime leave as it is.
            drift, intercept: b ``(S, K)``, d ``(S, D)`` or ``(D,)``; None: zeros.
            options: other arguments of the class; ``switching`` is by default ``"dynamics"`` where C, d and R have no
                axis of regimes, else ``"both"``, and ``observation_noise`` ``"diag"`` where R is diagonal.

        Raises:
            ValueError: shapes that do not fit; what is no covariance; no probabilities; no stationary start.
        """
        import pandas as pd

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
        encoding: Encoding = Features("reals").identity(D)
        apply_setting(model, Setting.from_fitted(encoding, predicted_by(), "given", conditional=False))
        model.measure_ = replace(model.measure_, kind="bound" if model.likelihood == "bound" else "estimate")
        model.parameters_, model.history_ = parameters, pd.DataFrame()
        model.converged_, model.fit_seconds_ = True, 0.0
        return model

    def _state(self) -> dict[str, Any]:
        return self.parameters_.arrays()

    def _restore(self, state: dict[str, Any]) -> None:
        if repr(self.observation_) != repr(predicted_by()):
            raise ValueError(
                f"its observation is {self.observation_!r}, but a SwitchingLinearGaussian has one Gaussian"
            )
        self.parameters_ = SwitchingParameters.from_arrays(state, self.n_regimes, self.n_states, self.encoding_.size)


def _show(bar: ProgressBar, row: dict[str, float]) -> None:
    bar.move(row["step"], f"{row['log_prob']:.4f} nats per unit")


def _values(examples: Sequence[Example]) -> list[np.ndarray]:
    """The encoded steps of each source and what follows it."""
    return [
        np.asarray(e.values if e.source is None else np.concatenate([e.source, e.values]), dtype=np.float64)
        for e in examples
    ]


def _packed(parts: list[np.ndarray], values: list[np.ndarray], weights: np.ndarray) -> list[np.ndarray]:
    """Arrays ``(T_i, ...)``, one a sequence, in the batches of ``batches_of``."""
    batches, numbers = batches_of(values, weights)
    return [batch.packing.pack([parts[i] for i in here]) for batch, here in zip(batches, numbers, strict=True)]


def _raw_size(examples: Sequence[Example], encoding: Encoding) -> tuple[float, float]:
    """Units and log-determinant of all that EM fits, sources too, by weight."""
    units = sum(e.weight * e.n_units for e in examples)
    log_det = sum(e.weight * e.log_det for e in examples)
    for e in examples:
        if e.source is not None:
            raw = encoding.decode(e.source)
            units += e.weight * len(raw)
            log_det += e.weight * float(np.broadcast_to(encoding.log_det(raw), len(e.source)).sum())
    return units, log_det
