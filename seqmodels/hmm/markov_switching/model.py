"""``MarkovSwitchingAR``: an autoregression of deviations from a mean that switches with a hidden state."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch

from seqmodels.common.array_checks import numbers_of
from seqmodels.common.caller_warnings import warn_caller
from seqmodels.common.display import a_or_an
from seqmodels.common.parameters import Floor, PositiveInt, checked, made_with
from seqmodels.encodings import Standardize
from seqmodels.encodings.examples import Example
from seqmodels.encodings.inputs import InputScaling
from seqmodels.encodings.raw_to_examples import Setting
from seqmodels.hmm.from_parameters import chain_parameters, input_scaling, with_implied_effects
from seqmodels.hmm.hidden_chain import HiddenChainModel
from seqmodels.hmm.learning.chain_arguments import ChainInputEffects, ChainTraining
from seqmodels.hmm.learning.first_state import Start, check_initial, with_start
from seqmodels.hmm.learning.given_inputs import InputOptions
from seqmodels.hmm.learning.options import Algorithm, ChainArguments
from seqmodels.hmm.learning.priors import Pseudocounts
from seqmodels.hmm.markov_switching.chain import LaggedChain
from seqmodels.hmm.markov_switching.from_parameters import RawRegressions
from seqmodels.hmm.topology import check_allowed
from seqmodels.model.fitting import apply_setting
from seqmodels.observations import AutoregressiveGaussian, Observation
from seqmodels.sequences import Kind
from seqmodels.sequences.measure import Length

MOST_TUPLES_A_STEP = 10  # tuples of states per step of data beyond which a fit warns that the data determine few
MOST_TUPLES = 1 << 14  # most tuples of the states of p + 1 steps, K^(p+1); bounds memory


@dataclass(eq=False, repr=False)
class MarkovSwitchingAR(HiddenChainModel):
    """A Markov-switching autoregression (Hamilton's model): deviations from a switching mean are autoregressive.

    ``x_t - mu_{z_t} = Σ_k phi_k (x_t-k - mu_{z_t-k}) + e_t`` for k = 1 .. p, with innovations ``e_t ~ N(0, sigma²)``,
    where z is a hidden Markov chain of K states that is summed out. It is fitted by EM (Hamilton 1989, *A new approach
    to the economic analysis of nonstationary time series and the business cycle*, Econometrica 57; Kim and Nelson 1999,
    *State-space models with regime switching*).

    A change of state moves the level at once, and the rest of an earlier deviation dies away. In
    ``HMM(observation=AutoregressiveGaussian(p))`` the intercept switches instead, and the level follows slowly. A
    density depends on the states of the last p + 1 steps: there are K^(p+1) such tuples, at most 2¹⁴, and a step takes
    as many terms. Features are independent given the states, each with its own coefficients and variance.

    Args:
        n_states: number of states, K.
        order: number of past steps that a density depends on, p. The first p steps of a sequence have a Gaussian of
            their own, the same in all states, which is estimated once from those steps and two average ones; EM leaves
            it unchanged.
        switching_ar: True if each state has its own coefficients phi; False if all states share them.
        switching_variance: True if each state has its own variance sigma²; False if all states share it.
        min_covariance: floor of the variances, in standardised units.
        max_iter: most EM steps of a start.
        tol: EM stops when a step improves the objective by less than this, in nats per unit; 0 never stops early.
        n_init: number of starts, from clusters or from frames drawn as means of the states; the best objective wins.
            ``"auto"`` is up to 8, fewer the more tuples of states and data there are. The likelihood of few frames has
            several maxima.
        max_seconds: limit on the time of all starts together; None is no limit.
        pseudocount: count added to every expected count of starts, transitions and ends in the M-step, or a
            ``Pseudocounts``; ``"auto"`` is 0.01 under ``length="stop"`` and 0 otherwise.
        topology: the transitions that exist, in the forms that ``HMM`` takes; others have a probability of zero. One in
            which some state cannot be reached again needs ``start="free"``.
        algorithm: how the parameters are learned: ``"em"``, ``"stepwise"`` (EM over mini-batches of whole sequences) or
            ``"gradient"`` (AdamW), which also changes the Gaussian of the first p steps.
        start: distribution of the first state: ``"stationary"`` is the stationary distribution of the transitions,
            which where they depend on inputs are those at the inputs of the first step; ``"free"`` learns it;
            ``"uniform"`` is uniform.
        input_effects: a ``ChainInputEffects``, which says which inputs transitions, emissions and the first state
            depend on. The input of a step drives the transition into it (Filardo 1994, *Business-cycle phases and their
            transitional dynamics*). Inputs of emissions shift the mean of a state, as described below. Inputs of the
            first state need ``start="free"``.
        training: a ``ChainTraining``, of which ``prior`` may not be set. States that are tied share their mean, and
            with it coefficients and variance. If the emission of a state is frozen, so is what all states share.

    Where emissions depend on inputs u, the mean of state z at step t is ``mu_z + B_z u_t``, so that deviations are
    ``x_t - mu_{z_t} - B_{z_t} u_t`` and a step depends on the inputs of the last p + 1 steps. ``emission_slopes_`` are
    B. That is also the meaning of ``exog`` in statsmodels' ``MarkovAutoregression`` with ``switching_exog=True``, whose
    likelihood is that of the steps after the first p given those. What the first p steps emit depends on no inputs.

    An M-step maximises over phi, the means with their slopes, and sigma² in turn, each given the others, so that the
    likelihood never falls. Forecasts are in closed form, a Gaussian for each path of states, as long as there are at
    most 2¹² paths at the last of k steps, K^(p + k); beyond that, and with inputs, they average over drawn paths.
    Frames with missing values are refused, because a missing value is then a mixture with a Gaussian for each path of
    states from p steps before a gap of g steps to p steps after it: there are K^(2 p + g), which grow exponentially
    with the gap. ``HMM`` takes them. ``observation`` must stay ``"auto"``, because the model has its own. The other
    arguments are described in ``SequenceModel``; ``validation`` is scored once, at the end, and with targets EM fits
    p(x, y). The recursions are float64; ``dtype`` is the precision of the densities.

    After a fit these attributes are in raw units: ``initial_ (K,)``, ``transition_ (K, K)``, ``final_ (K,)``, ``means_
    (K, D)``, ``autoregression_ (p, D)`` with one step back first, or ``(K, p, D)`` with ``switching_ar``, ``variances_
    (D,)``, or ``(K, D)`` with ``switching_variance``, and ``first_means_`` and ``first_variances_ (D,)`` of the first p
    steps. ``starts_`` has a row for each start.

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
    topology: Any = "ergodic"
    algorithm: Algorithm = "em"
    _: KW_ONLY
    dtype: str = "float64"
    start: Literal["stationary", "free", "uniform"] = "stationary"
    input_effects: ChainInputEffects = field(default_factory=ChainInputEffects)
    training: ChainTraining = field(default_factory=ChainTraining)

    _algorithms: ClassVar[tuple[Algorithm, ...]] = ("em", "stepwise", "gradient", "variational")
    _used_of_training: ClassVar[tuple[str, ...]] = ("tied", "frozen", "batches", "lr")
    _stationary_follows_inputs: ClassVar[bool] = True
    _bounded_by_data: ClassVar[Mapping[str, str]] = {"n_states": "steps", "order": "longest"}

    def _default_observation(self, kind: Kind) -> Observation:
        if kind != "vectors":
            raise ValueError(
                f"{a_or_an(type(self))} describes vectors, but the sequences are {kind}; use HMM, or pass (T, D) floats"
            )
        return self._own_observation()

    def _own_observation(self) -> AutoregressiveGaussian:
        return AutoregressiveGaussian(self.order, "diag", min_covariance=self.min_covariance, ridge=0.0, background=0.0)

    def _admitted(self, n_states: int) -> int:
        return min(n_states, int(MOST_TUPLES ** (1 / (self.order + 1)) + 1e-9))

    def _chain(self, n_states: int, *, start: Start, length: str, inputs: InputOptions) -> LaggedChain:
        if n_states ** (self.order + 1) > MOST_TUPLES:
            raise ValueError(
                f"n_states={n_states} and order={self.order} make {n_states}^{self.order + 1} states of the "
                f"last {self.order + 1} steps, more than {MOST_TUPLES}; pass fewer states or a smaller order"
            )
        if self.observation != "auto" and repr(self.observation) != repr(self._own_observation()):
            raise ValueError(
                f"observation is {self.observation!r}, but {a_or_an(type(self))} has its own; leave "
                "observation='auto', and pass order and min_covariance"
            )
        if self.algorithm == "variational":
            raise ValueError(
                "a mean and a coefficient enter the density as a product, so they have no conjugate prior; pass "
                "algorithm='em', or draw from the posterior with hmm.PosteriorHMM"
            )
        of_states = (self.topology, self.training.tied, self.training.frozen, self.pseudocount)
        switching = {"switching_ar": self.switching_ar, "switching_variance": self.switching_variance}
        return LaggedChain(ChainArguments(n_states, length, *of_states), start, inputs, **switching)

    @property
    def _structure(self) -> Mapping[str, Any]:
        return {
            "order": self.order,
            "switching_ar": self.switching_ar,
            "switching_variance": self.switching_variance,
        }

    def _warn_before_fit(self, train: list[Example]) -> None:
        n_tuples, n_steps = self.n_states ** (self.order + 1), sum(len(each.values) for each in train)
        if n_tuples > MOST_TUPLES_A_STEP * n_steps:
            warn_caller(
                f"n_states={self.n_states} and order={self.order} make {n_tuples:,} states of "
                f"{self.order + 1} steps, but {n_steps:,} steps of data determine few of them; "
                "pass a smaller order, or fewer states"
            )

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
        transition_slopes: Any = None,
        emission_slopes: Any = None,
        initial_slopes: Any = None,
        inputs: InputScaling | Mapping[str, float] | None = None,
        **options: Any,
    ) -> Self:
        """Return a fitted model with the given parameters, in raw units.

        K states, D features, p past steps, U inputs. The order p, ``switching_ar`` and ``switching_variance`` follow
        from the shapes.

        Args:
            transition: probabilities of the next state, ``(K, K)``.
            means: means of the states, ``(K, D)``.
            autoregression: coefficients, one step back first, ``(p, D)``, or ``(K, p, D)`` for coefficients that
                switch.
            variances: variances of the innovations, ``(D,)``, or ``(K, D)`` for variances that switch.
            initial: distribution of the first state, ``(K,)``. None is the distribution that ``start`` determines: by
                default the stationary one, and under ``"free"`` the uniform one.
            final: probability of ending after each state, ``(K,)``, which sums to one with the rows of ``transition``;
                None is ``length="given"``.
            first_means: means of the first p steps, ``(D,)``. None is the mean over states, weighted with ``initial``.
            first_variances: variances of the first p steps, ``(D,)``. None is the variance of means and innovations
                together, weighted with ``initial``.
            transition_slopes: change of the log-odds of going from state i to state j for one unit of each raw input,
                ``(K, K, U)``; None if transitions depend on no inputs. Here and for the other slopes, that part of the
                model depends on all inputs, unless ``input_effects`` names some.
            emission_slopes: change of the means for one unit of each raw input, ``(K, D, U)``; None if means depend on
                no inputs.
            initial_slopes: change of the log-odds of starting in a state for one unit of each raw input of the first
                step, ``(K, U)``; None if the first state depends on no inputs.
            inputs: the U inputs by name, each with its value where the other parameters hold, such as
                ``{"heat": 20.0}``; or the ``input_scaling_`` of a fitted model.
            options: other arguments of ``MarkovSwitchingAR``.

        Raises:
            ValueError: rows do not sum to one, shapes do not fit, or a variance is below the floor; transitions that
                ``topology`` does not allow; there are slopes without inputs, or inputs that nothing depends on.

        >>> chain = [[0.9, 0.1], [0.25, 0.75]]
        >>> parameters = {"means": [[1.2], [-0.4]], "autoregression": [[0.1], [-0.2]], "variances": [0.6]}
        >>> model = MarkovSwitchingAR.from_parameters(chain, **parameters)
        >>> model.initial_.round(3), model.order
        (array([0.714, 0.286]), 2)
        """
        raw = RawRegressions.of(means, autoregression, variances)
        k = len(raw.mean)
        given = {"transitions": transition_slopes, "emissions": emission_slopes, "first_state": initial_slopes}
        options = with_implied_effects(options, given)
        if initial is not None or initial_slopes is not None:
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
        length: Length = "given" if final is None else "stop"
        topology = model._chain(k, start="free", length=length, inputs=InputOptions()).options.topology
        mask = topology.initial_mask(k).numpy()
        first = mask / mask.sum() if initial is None else initial
        chain = chain_parameters(first, transition, final, torch.zeros(k, 1, dtype=torch.float64))
        if initial is None:
            with suppress(np.linalg.LinAlgError):  # check_initial names a reducible chain better
                chain = with_start(chain, model.start, topology)
        check_initial(chain, model.start, topology)
        check_allowed(chain, topology, model.topology)
        mean, variance = raw.moments(chain.initial.numpy())
        encoding = Standardize().restore({"mean": mean, "scale": np.sqrt(variance)})
        setting = Setting.from_fitted(encoding, model._own_observation(), length, conditional=False)
        if model._regresses or inputs is not None:
            setting = setting.with_inputs(input_scaling(inputs))
        apply_setting(model, setting)
        emission = model._chain(k, start="free", length=length, inputs=InputOptions()).emission(
            model.observation_, encoding.size
        )
        first_mean = mean if first_means is None else numbers_of("first_means", first_means)
        first_variance = variance if first_variances is None else numbers_of("first_variances", first_variances)
        table = raw.encoded(emission, encoding, first_mean, first_variance)
        model._set_fitted(model._with_given_slopes(replace(chain, table=table), given), model.start)
        return model
