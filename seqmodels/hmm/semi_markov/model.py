"""``HSMM``: a hidden semi-Markov model, in which every state has a distribution of its duration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch

from seqmodels.common.array_checks import numbers_of
from seqmodels.common.parameters import checked, made_with
from seqmodels.encodings import Encoding
from seqmodels.encodings.inputs import InputScaling
from seqmodels.encodings.raw_to_examples import Setting
from seqmodels.hmm.from_parameters import (
    chain_parameters,
    emission_table,
    input_scaling,
    with_implied_effects,
)
from seqmodels.hmm.hidden_chain import HiddenChainModel
from seqmodels.hmm.learning.chain_arguments import ChainInputEffects, ChainTraining
from seqmodels.hmm.learning.first_state import Start
from seqmodels.hmm.learning.given_inputs import InputOptions
from seqmodels.hmm.learning.options import Algorithm, ChainArguments
from seqmodels.hmm.learning.priors import Pseudocounts
from seqmodels.hmm.semi_markov.chain import SemiMarkovChain
from seqmodels.hmm.semi_markov.durations import DurationName, duration_family
from seqmodels.hmm.semi_markov.expectations import SegmentEmission
from seqmodels.hmm.semi_markov.from_parameters import check_successors, duration_table
from seqmodels.hmm.topology import check_allowed
from seqmodels.model.fitting import apply_setting
from seqmodels.observations import Observation
from seqmodels.sequences.measure import Length

MOST_DURATIONS = 10_000_000  # states times max_duration; bounds memory, because each takes some 50 bytes


@dataclass(eq=False, repr=False)
class HSMM(HiddenChainModel):
    """A hidden semi-Markov model, in which every state has a distribution of its duration, fitted by EM.

    It is also called an explicit-duration hidden Markov model (Yu 2010, *Hidden semi-Markov models*). Its density is
    ``p(x) = Σ π(j_1) Π_n p_{j_n}(d_n) Π_t b_{j_n}(x_t) Π_n a(j_n, j_n+1)``, summed over all segmentations. A segment is
    a visit to a state: a state j that is entered lasts d steps, ``d ~ p_j(d)``, and is followed by another state. In an
    ``HMM`` durations are geometric: one step is the most probable, whatever the mean. An EM iteration takes
    ``K D + K²`` terms a step, where D is ``max_duration``; an ``HMM`` takes ``K²``.

    Args:
        n_states: number of states, K.
        durations: the family of the distributions ``p_j`` over 1 .. D. ``"negative-binomial"`` and ``"poisson"`` are
            distributions of ``d - 1`` and ``"logarithmic"`` of ``d``, truncated at D and normalised there.
            ``"categorical"`` is any distribution. ``"geometric"`` is exactly the HMM with self-transitions; it is not
            truncated, and fitting does not use ``max_duration``.
        max_duration: D, the most steps of a segment. A longer run of one state is possible only with another state in
            between, so pass more than the longest run that you expect.
        left_censored: True if the first segment of a sequence may have begun before the sequence. The number of steps
            left of it then has the distribution ``P(d >= r) / E[d]``, as in a stationary process that is cut at any
            step. False: the first segment begins with the sequence.
        duration_pseudocount: count added to the expected count of every duration in the M-step of categorical
            durations, so that durations that the data do not show stay possible.
        max_iter: most EM steps of a start.
        tol: EM stops when a step improves the objective by less than this, in nats per unit; 0 never stops early.
        n_init: number of starts, each from an HMM after up to 100 EM steps; the best objective wins. ``"auto"`` is up
            to 8, fewer the more states, durations and data there are, and 1 for an ordered topology, known states or
            stepwise EM.
        max_seconds: limit on the time of all starts together; None is no limit.
        pseudocount: count added to every expected count of starts, transitions and ends in the M-step, or a
            ``Pseudocounts``; ``"auto"`` is 0.01 under ``length="stop"`` and 0 otherwise.
        topology: which states may follow a segment of each state, in the forms that ``HMM`` takes. Transitions of a
            state to itself are ignored, with two exceptions: a state that neither another state nor the end may follow
            is followed by itself, as is a single state, and with geometric durations all self-transitions count.
        tied_durations: a group number for each state, for example ``[0, 0, 1, ...]``; states of a group share one
            distribution of durations. None ties no states.
        algorithm: ``"em"``, ``"stepwise"``, ``"gradient"`` or ``"variational"``, as in ``HMM``; mini-batches are of
            whole sequences. Variational Bayes needs ``"categorical"`` or ``"geometric"`` durations, and does not use
            ``duration_pseudocount``.
        input_effects: a ``ChainInputEffects``, as in ``HMM``. Emissions depend on the inputs of their step, the first
            state on those of the first step, and transitions on those of the first step of the segment that they lead
            to: ``p(j_n+1 | j_n, u_t) ∝ a(j_n, j_n+1) exp(w · u_t)``, where it begins at step t. Its duration depends
            on the same inputs, ``p_j(d | u_t) ∝ p_j(d) exp((w_j · u_t) (d - 1))``: before truncation the logarithm of
            a Poisson rate is linear in them, and so is that of the probability of going on of negative binomial and
            logarithmic durations. With ``left_censored=True`` what is left of a first segment follows from the
            durations at the inputs of the first step. Geometric durations are transitions, and take inputs as such.
        training: a ``ChainTraining``, whose ``frozen`` may also name ``durations``.

    With ``length="given"`` the last segment of a sequence may continue after it: it counts with the probability of
    lasting at least as many steps as were seen, and in EM with the expected full durations. With ``length="stop"`` a
    sequence ends where a segment does, with the probability ``final_`` of its state.

    ``observation`` is any that an ``HMM`` has, with the same meaning of ``"auto"``. The recursions are float64;
    ``dtype`` is the precision of the densities. Missing values are summed out; an autoregressive observation takes none
    here. The other arguments are described in ``SequenceModel``; ``validation`` is scored once, at the end, and with
    targets EM fits p(x, y).

    After a fit these attributes are in raw units: ``initial_ (K,)``, ``transition_ (K, K)`` from segment to segment
    (its diagonal is zero, except for geometric durations), ``final_ (K,)``, ``durations_ (K, D)``, and the same
    attributes of the observation as in ``HMM``. The parameters of the durations before truncation are ``duration_rates_
    (K,)`` (Poisson, of ``d - 1``); ``duration_sizes_`` and ``duration_probabilities_`` (negative binomial of ``d - 1``,
    parametrised as in scipy); or ``duration_probabilities_`` (logarithmic of ``d``, as in scipy). ``starts_`` has a row
    for each start.

    >>> x = [np.repeat([0, 1, 0, 1, 0], [3, 4, 3, 4, 3]), np.repeat([1, 0, 1], [4, 3, 4])]
    >>> model = HSMM(2, durations="categorical", max_duration=6, length="given", duration_pseudocount=0.0).fit(x)
    >>> model.mean_durations_[model.decode([[0, 0, 0]])[0][0]].round(2)
    np.float64(3.0)
    """

    n_states: int = 8
    durations: DurationName = "negative-binomial"
    max_duration: int = 50
    left_censored: bool = False
    duration_pseudocount: float = 0.01
    max_iter: int = 100
    tol: float = 3e-4
    n_init: int | Literal["auto"] = "auto"
    max_seconds: float | None = None
    pseudocount: float | str | Pseudocounts = "auto"
    _: KW_ONLY
    dtype: str = "float64"
    topology: Any = "ergodic"
    tied_durations: Sequence[int] | None = None
    algorithm: Algorithm = "em"
    input_effects: ChainInputEffects = field(default_factory=ChainInputEffects)
    training: ChainTraining = field(default_factory=ChainTraining)

    _bounded_by_data: ClassVar[Mapping[str, str]] = {"n_states": "steps", "max_duration": "longest"}
    _takes_terms: ClassVar[bool] = True
    _costly: ClassVar[frozenset[str]] = frozenset({"n_states"})
    _sums_out_missing: ClassVar[bool] = True
    _has_durations: ClassVar[bool] = True
    _algorithms: ClassVar[tuple[Algorithm, ...]] = ("em", "stepwise", "gradient", "variational")
    _used_of_training: ClassVar[tuple[str, ...]] = ("tied", "frozen", "batches", "lr", "prior")

    def _chain(self, n_states: int, *, start: Start, length: str, inputs: InputOptions) -> SemiMarkovChain:
        _check_durations(n_states, self.max_duration)
        if self.durations == "geometric" and self.input_effects.durations:
            raise ValueError(
                "geometric durations are transitions of states to themselves; name the inputs as transitions of "
                "input_effects in place of durations, or pass another family"
            )
        family = duration_family(self.durations, self.max_duration, self.duration_pseudocount)
        arguments = (n_states, length, self.topology, self.training.tied, self.training.frozen, self.pseudocount)
        return SemiMarkovChain(
            ChainArguments(*arguments),
            start,
            inputs,
            family=family,
            tied_durations=self.tied_durations,
            left_censored=self.left_censored,
        )

    @property
    def _structure(self) -> Mapping[str, Any]:
        return {
            "durations": self.durations,
            "max_duration": self.max_duration,
            "left_censored": self.left_censored,
        }

    @property
    def durations_(self) -> np.ndarray:
        """Probability that a segment (a visit to a state) lasts 1, 2, ... steps, for each state, ``(K, max_duration)``.

        If durations depend on inputs, these are the probabilities where all inputs are at their mean. Rows sum to one,
        except for geometric durations, which may be longer than ``max_duration``.
        """
        if self.durations == "geometric":
            stays = np.diag(self.transition_)[:, None]
            shares: np.ndarray = stays ** np.arange(self.max_duration) * (1 - stays)
            return shares
        emission = self._emission
        assert isinstance(emission, SegmentEmission), "of this model"
        return np.asarray(emission.durations(self.parameters_.table).log_pmf.exp())

    @property
    def mean_durations_(self) -> np.ndarray:
        """Expected number of steps of a segment (a visit to a state), for each of the K states, ``(K,)``.

        If durations depend on inputs, it is the number where all inputs are at their mean.
        """
        chain = self._fitted_chain
        return chain.mean_durations(self.parameters_, self._emission_of(chain))

    @property
    def duration_slopes_(self) -> np.ndarray:
        """Slopes w of durations, ``p_j(d | u) ∝ p_j(d) exp((w_j · u) (d - 1))``, per unit of each input, ``(K, U)``.

        Units are those of raw inputs. For Poisson durations they are the change of the log-rate, for negative binomial
        and logarithmic ones that of the log-probability of going on, before truncation. The U inputs are in the order
        of ``input_names_``; those that durations do not depend on have zeros. ``AttributeError`` is raised if durations
        depend on no inputs.
        """
        slopes, scaling = self.parameters_.duration_slopes, self._effects_scaling
        if slopes is None or scaling is None:
            raise AttributeError(f"this {type(self).__name__} has durations that depend on no inputs")
        return np.asarray(slopes.numpy() / scaling.units)

    def durations_at(self, inputs: Any) -> np.ndarray:
        """Return the probabilities of durations of segments that begin at steps with given inputs, ``(T, K, D)``.

        T steps, K states; D is ``max_duration``.

        Args:
            inputs: raw values of the U inputs at each step, ``(T, U)``, or a mapping from names of inputs to their
                values.

        Raises:
            ValueError: durations depend on no inputs, or inputs are missing or have another shape.
        """
        u = self._encoded_inputs(self.parameters_.duration_slopes, inputs, "durations depend", "durations_")
        emission = self._emission
        assert isinstance(emission, SegmentEmission), "of this model"
        return emission.durations_given_inputs(self.parameters_, u, len(u)).log_pmf_of_rows.exp().numpy()

    @classmethod
    @checked
    def from_parameters(
        cls,
        initial: Any,
        transition: Any,
        final: Any = None,
        *,
        durations: Any = None,
        duration_rates: Any = None,
        duration_sizes: Any = None,
        duration_probabilities: Any = None,
        weights: Any = None,
        means: Any = None,
        covariances: Any = None,
        covariance_type: Literal["diag", "spherical", "full", "tied"] = "diag",
        emission: Any = None,
        probabilities: Any = None,
        rates: Any = None,
        emission_parameters: Mapping[str, Any] | None = None,
        transition_slopes: Any = None,
        emission_slopes: Any = None,
        initial_slopes: Any = None,
        duration_slopes: Any = None,
        inputs: InputScaling | Mapping[str, float] | None = None,
        encoding: Encoding | None = None,
        observation: Observation | None = None,
        **options: Any,
    ) -> Self:
        """Return a fitted HSMM with the given parameters, in raw units.

        Durations are geometric unless ``durations``, ``duration_rates``, or ``duration_probabilities`` with or without
        ``duration_sizes`` say otherwise.

        Args:
            initial: probabilities of the first state, ``(K,)``.
            transition: probabilities of the state of the next segment, ``(K, K)``. Rows, plus ``final``, sum to one,
                and the diagonal is zero (except for geometric durations, and for states that nothing else follows).
            final: probabilities of the end after a segment of each state, ``(K,)``; None is ``length="given"``.
            durations: probabilities of 1 to D steps, ``(K, D)``, for ``durations="categorical"``.
            duration_rates: rates of Poisson distributions of ``d - 1``, ``(K,)``, truncated at ``max_duration``.
            duration_sizes: sizes of negative binomial distributions of ``d - 1``, ``(K,)``, as in scipy, truncated at
                ``max_duration``; pass ``duration_probabilities`` too.
            duration_probabilities: probabilities of the negative binomial distributions, ``(K,)``; without
                ``duration_sizes``, probabilities of logarithmic distributions.
            weights: weights of Gaussian mixtures of M components, ``(K, M)``; without them M is 1 and the axis M is
                left out.
            means: means of D features, ``(K, M, D)``.
            covariances: by ``covariance_type`` ``(K, M, D)`` (diag), ``(K, M, D, D)`` (full), ``(D, D)`` (tied),
                ``(K, M)`` or ``(K, M, D)`` (spherical).
            covariance_type: form of ``covariances``: ``"diag"``, ``"full"``, ``"tied"`` or ``"spherical"``.
            emission: probabilities of V symbols (``Categorical``), ``(K, V)``, instead of a mixture.
            probabilities: probabilities of bits (``Bernoulli``), ``(K, D)``, instead of a mixture.
            rates: rates of counts (``Poisson``), ``(K, D)``, instead of a mixture.
            emission_parameters: parameters of any kind of ``observation``, instead of a mixture: arrays in raw units by
                the names of the attributes of a fitted model without the final ``_``, such as ``{"shapes": ...,
                "rates": ...}`` of ``Gamma()``, each ``(K, D)``. Weights of mixtures of one component may be left out.
            transition_slopes: change of the log-odds of the next segment's state for one unit of each of U raw inputs,
                ``(K, K, U)``; None if transitions depend on no inputs.
            emission_slopes: change of the emissions of each state for one unit of each raw input, ``(K, D, U)``; None
                if emissions depend on no inputs.
            initial_slopes: change of the log-odds of starting in a state for one unit of each raw input of the first
                step, ``(K, U)``; None if the first state depends on no inputs.
            duration_slopes: slopes of durations, as in ``duration_slopes_``, for one unit of each raw input of the
                first step of a segment, ``(K, U)``; None if durations depend on no inputs.
            inputs: the U inputs by name, each with its value where the other parameters hold, such as
                ``{"heat": 20.0}``; or the ``input_scaling_`` of a fitted model.
            encoding: a fitted encoding, or None for one that fits the emissions.
            observation: observation with the options of the M-step, for a ``fit`` that continues with
                ``warm_start=True``; None takes their defaults.
            options: other arguments of ``HSMM``.

        Raises:
            ValueError: rows do not sum to one, shapes do not fit, values are out of range, or slopes and inputs do not
                go together; durations are of several families, or out of range; a state is followed by itself; or
                ``topology`` does not allow a transition.

        >>> chain = {"initial": [1.0, 0.0], "transition": [[0.0, 1.0], [1.0, 0.0]], "duration_rates": [2.0, 4.0]}
        >>> model = HSMM.from_parameters(**chain, means=[[0.0], [5.0]], covariances=[[1.0], [1.0]])
        >>> model.mean_durations_.round(3)
        array([3., 5.])
        """
        k = len(numbers_of("initial", initial, "(K,)"))
        encoding, observation, of_emission = emission_table(
            k,
            emission_parameters=emission_parameters,
            emission=emission,
            probabilities=probabilities,
            rates=rates,
            mixture=(weights, means, covariances, covariance_type),
            encoding=encoding,
            observation=observation,
        )
        given = {"durations": durations, "duration_rates": duration_rates, "duration_sizes": duration_sizes}
        family, of_durations = duration_table(k, {**given, "duration_probabilities": duration_probabilities})
        if family == "categorical":
            longest = of_durations.shape[1]
            options = {"max_duration": longest, **options}
            if options["max_duration"] != longest:
                raise ValueError(
                    f"durations has {longest} columns, but max_duration={options['max_duration']}; leave the latter out"
                )
        parameters = chain_parameters(initial, transition, final, torch.cat([of_emission, of_durations], 1))
        length: Length = "given" if final is None else "stop"
        given = {"transitions": transition_slopes, "emissions": emission_slopes, "first_state": initial_slopes}
        given["durations"] = duration_slopes
        options = with_implied_effects(options, given)
        model = made_with(cls, options, n_states=k, durations=family, observation=observation, length=length)
        model._check_hyperparameters()
        setting = Setting.from_fitted(encoding, observation.clone(), length, conditional=False)
        if model._regresses or inputs is not None:
            setting = setting.with_inputs(input_scaling(inputs))
        apply_setting(model, setting)
        parameters = model._with_given_slopes(parameters, given)
        model.start_ = "free"
        options_of_chain = model._chain_of(k).options
        check_successors(parameters, options_of_chain.topology.transition_mask(k))
        check_allowed(parameters, options_of_chain.topology, model.topology)
        model._set_fitted(parameters, "free")
        return model


def _check_durations(n_states: int, max_duration: int) -> None:
    if n_states * max_duration > MOST_DURATIONS:
        raise ValueError(
            f"max_duration is {max_duration:,}, which is too long for {n_states:,} states; pass at most "
            f"{max(1, MOST_DURATIONS // n_states):,}"
        )
