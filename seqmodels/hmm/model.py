"""``HMM``: a hidden Markov model of vectors, symbols, text or any other observation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar, Literal, Self

from seqmodels.common.array_checks import numbers_of
from seqmodels.common.parameters import checked, made_with
from seqmodels.encodings import Encoding
from seqmodels.encodings.inputs import InputScaling
from seqmodels.encodings.precision import DTYPES
from seqmodels.encodings.raw_to_examples import Setting
from seqmodels.generation import CursorState, MergedStates
from seqmodels.hmm.chains.markov import MarkovChain
from seqmodels.hmm.cursor import merged_states
from seqmodels.hmm.from_parameters import (
    chain_parameters,
    emission_table,
    input_scaling,
    with_implied_effects,
)
from seqmodels.hmm.hidden_chain import HiddenChainModel
from seqmodels.hmm.hmmlearn import ARGUMENTS, hint_of_attribute
from seqmodels.hmm.learning.chain_arguments import ChainInputEffects, ChainTraining
from seqmodels.hmm.learning.first_state import Start, check_initial
from seqmodels.hmm.learning.given_inputs import InputOptions
from seqmodels.hmm.learning.options import Algorithm, ChainArguments, StartChoice
from seqmodels.hmm.learning.priors import Pseudocounts
from seqmodels.hmm.topology import check_allowed
from seqmodels.model.fitting import apply_setting
from seqmodels.observations import Observation
from seqmodels.sequences.measure import Length


@dataclass(eq=False, repr=False)
class HMM(HiddenChainModel):
    """Hidden Markov model: a Markov chain of hidden states that emit the steps of a sequence, each by its distribution.

    ``p(x) = Σ_z π(z_1) b_{z_1}(x_1) Π_t a(z_{t-1}, z_t) b_{z_t}(x_t)``, summed over all paths z of states, and fitted
    by EM (Rabiner 1989).

    Args:
        n_states: number of states, K.
        observation: distribution of a step in each state, such as ``GaussianMixture(4)``. ``"auto"`` is ``Categorical``
            for symbols, and for vectors ``GaussianMixture(1, prior=PseudoFrames(10), background=0.01)``, one diagonal
            Gaussian with a weak prior and a broad background. EM then finds the maximum a posteriori; the prior is part
            of ``objective``, and never of ``log_prob`` or ``score``. An observation that is passed has no prior unless
            it says so: ``GaussianMixture(1)`` is plain maximum likelihood.
        topology: the transitions that exist: ``"ergodic"`` (all), ``"left-to-right"``, a mask ``(K, K)``, or an object
            such as ``LeftToRight``, ``Banded``, ``Arcs`` or ``Series``. Other transitions have a probability of exactly
            zero.
        length: ``"given"`` models p(x | T), the sequence given its length; ``"stop"`` makes the end an event with a
            probability. ``"auto"`` is ``"given"`` for vectors and ``"stop"`` for text and symbols.
        n_init: number of starts of EM. The start with the best objective wins, but one in which a variance ends on its
            lower bound loses to one in which none does; ``starts_`` describes all. ``"auto"`` makes up to 8 starts on
            small data (2²⁰ densities in all), and 1 on large data, where states are known or ordered, and under
            algorithms other than EM. On a CPU the starts run side by side on small data, and ``seconds`` in
            ``history_`` are the seconds of all. A warning is given if the best start is clearly ahead of all others.
        random_state: seed of the starts, and of all other random numbers.
        max_iter: largest number of EM steps of a start.
        tol: EM stops when a step improves the objective by less than this, in nats per unit (a step of vectors or
            symbols, a byte of text); 0 never stops early.
        max_seconds: limit of the time of all starts together, in seconds; None means no limit.
        pseudocount: number added to every expected count of first states, transitions and ends in the M-step, or a
            ``Pseudocounts`` (asymmetric, sticky). ``"auto"`` is 0.01 under ``length="stop"``, because few ends are
            seen, else 0.
        start: distribution of the first state. ``"free"`` learns it; ``"uniform"`` fixes it; ``"stationary"`` is the
            distribution that the transitions of an irreducible chain leave as it is (under ``length="stop"``, given
            that the sequence continues). ``"auto"`` is ``"stationary"`` if fewer than 5 sequences are fitted by EM with
            ``length="given"`` and an irreducible topology, without known states or targets; else ``"free"``. ``start_``
            is the choice.
        algorithm: how the parameters are learned. ``"em"`` is EM. ``"stepwise"``, for much data, makes an M-step after
            each mini-batch; ``max_iter`` counts epochs, and long sequences are cut into subsequences, each with frames
            around it as a warm-up, if the topology lets every state reach every other. ``"gradient"`` is AdamW on the
            same objective, whose gradient follows from the posteriors of an E-step; it makes ``max_iter`` passes over
            the data and ignores ``tol``. ``"variational"`` is variational Bayes (MacKay 1997; Beal 2003) for
            ``Categorical``, ``Bernoulli``, ``Poisson``, diagonal or full ``GaussianMixture``,
            ``AutoregressiveGaussian``, and ``Columns`` of these; emissions may depend on inputs if they are
            ``GaussianMixture(1)`` or ``AutoregressiveGaussian``. Its ``objective`` is the evidence lower bound, and the
            parameters, which scores use, are the posterior mean. There ``observation="auto"`` is ``GaussianMixture(1)``
            for vectors, without prior and background.
        input_effects: a ``ChainInputEffects``, which says which inputs transitions, emissions and the first state
            depend on, linearly or by random effects of groups and smooth functions.
        training: a ``ChainTraining``, which holds what few users turn about the fit, such as tied or frozen parameters,
            the rates of the other algorithms, the prior of variational Bayes, and checkpoints.
        dtype: precision of the computation, ``"float32"`` or ``"float64"``. ``"auto"`` is ``"float64"`` where it costs
            little: if the training data have at most 2¹⁵ densities in all (frames times states times components), and
            after ``from_parameters`` with up to 8 densities a frame; else ``"float32"``. ``dtype_`` is the choice.
            Parameters are kept in float64.

    ``SequenceModel`` describes the other arguments. EM needs no held-out data: ``validation="auto"`` holds out nothing,
    and sequences that are passed are scored once, at the end. With targets EM fits p(x, y), so that the figures of
    ``history_`` are of x and y together. A warning is given if states end on the floor of a variance.

    Attributes, in raw units, for K states, M components, D features, V symbols and p past steps: ``initial_ (K,)``,
    ``transition_ (K, K)``, ``final_ (K,)`` (under ``length="stop"``, where ``transition_.sum(1) + final_ == 1``) and
    the parameters of the observation. These are for ``GaussianMixture`` ``weights_ (K, M)``, ``means_ (K, M, D)`` and
    ``covariances_ (K, M, D)``, ``(K, M, D, D)`` (full) or ``(D, D)`` (tied); for ``Categorical`` ``emission_ (K, V)``;
    for ``AutoregressiveGaussian`` ``coefficients_ (K, D, pD)``, ``intercepts_`` and ``covariances_``, and of the first
    p steps, which all states share, ``first_mean_ (D,)`` and ``first_covariance_``. ``starts_`` is a
    data frame with a row for each start and the columns ``start``, ``objective``, ``log_prob`` (both in nats per unit),
    ``floor_hits`` (variances on their lower bound) and ``chosen``. The last row of ``history_`` has the range of their
    objectives, ``starts_range``. ``shared_autoregression_`` is the encoded autoregression by which an autoregressive
    observation was fitted to missing values (``hmm.missing_past``), or None. After variational Bayes there are
    ``posterior_`` and ``lower_bound_``, and ``log_prob`` is in the last row of ``history_`` alone.

    >>> import numpy as np
    >>> x = [np.array([0, 1, 0, 1, 0, 1]), np.array([1, 0, 1, 0])]
    >>> model = HMM(2, length="given").fit(x)
    >>> round(model.score(x), 3)
    -0.139

    ``decode``, ``posterior``, ``filter``, ``sample_states`` and ``forecast_states`` return the states of encoded steps,
    first of ``x`` and then, with targets, of ``y``. A missing value (NaN) leaves its feature out of the density. If a
    series is read as changes, they return the states of frames: the first frames, which have no difference, get the
    state of the first step, and from ``filter``, which does not look ahead, they get ``initial_``.

    ``encoding="auto"`` standardizes vectors, whatever they look like, so that states have levels (``means_``). A
    warning is given if a series reaches levels that it never had before: pass ``encoding=AutoSeries()`` to read its
    changes.

    >>> chain = {"initial": [0.5, 0.5], "transition": [[0.9, 0.1], [0.2, 0.8]]}
    >>> model, x = HMM.from_parameters(**chain, emission=[[0.9, 0.1], [0.2, 0.8]]), [np.array([0, 0, 1])]
    >>> model.filter(x)[0].round(2)
    array([[0.82, 0.18],
           [0.94, 0.06],
           [0.43, 0.57]])
    >>> model.decode(x)[0]
    array([0, 0, 0])
    >>> model.forecast_states(x, 2)[0].states.round(2)
    array([[0.5 , 0.5 ],
           [0.55, 0.45]])
    >>> model.stationary_.round(3)
    array([0.667, 0.333])
    """

    n_states: int = 8
    max_iter: int = 100
    tol: float = 3e-4
    n_init: int | Literal["auto"] = "auto"
    max_seconds: float | None = None
    pseudocount: float | str | Pseudocounts = "auto"
    topology: Any = "ergodic"
    algorithm: Algorithm = "em"
    _: KW_ONLY
    dtype: str = "auto"
    start: StartChoice = "auto"
    input_effects: ChainInputEffects = field(default_factory=ChainInputEffects)
    training: ChainTraining = field(default_factory=ChainTraining)

    _in_other_words: ClassVar[Mapping[str, str]] = ARGUMENTS
    _bounded_by_data: ClassVar[Mapping[str, str]] = {"n_states": "steps"}
    _dtypes: ClassVar[tuple[str, ...]] = ("auto", *DTYPES)
    _sums_out_missing: ClassVar[bool] = True
    _takes_terms: ClassVar[bool] = True
    _filters_past: ClassVar[bool] = True
    _integrates: ClassVar[bool] = True
    _algorithms: ClassVar[tuple[Algorithm, ...]] = ("em", "stepwise", "gradient", "variational")
    _used_of_training: ClassVar[tuple[str, ...]] = ("tied", "frozen", "batches", "lr", "prior")

    def _chain(self, n_states: int, *, start: Start, length: str, inputs: InputOptions) -> MarkovChain:
        of_states = (self.topology, self.training.tied, self.training.frozen, self.pseudocount)
        return MarkovChain(ChainArguments(n_states, length, *of_states), start, inputs)

    def _merge_states(self, log_weights: list[float], states: list[CursorState]) -> MergedStates:
        return merged_states(log_weights, states)

    def _hint_of(self, name: str) -> str:
        return hint_of_attribute(name)

    @classmethod
    @checked
    def from_parameters(
        cls,
        initial: Any,
        transition: Any,
        final: Any = None,
        *,
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
        inputs: InputScaling | Mapping[str, float] | None = None,
        encoding: Encoding | None = None,
        observation: Observation | None = None,
        **options: Any,
    ) -> Self:
        """Return a fitted HMM with the given parameters, in raw units.

        The emissions are one of five kinds: a mixture (``means`` with ``covariances``), ``emission``,
        ``probabilities``, ``rates``, or any other observation with its ``emission_parameters``. Letters in shapes: K
        states, M components, D features, V symbols, U inputs.

        Args:
            initial: probabilities of the first state, ``(K,)``.
            transition: transition probabilities, ``(K, K)``; each row, plus its entry of ``final``, sums to one.
            final: probability of the end after each state, ``(K,)``; None makes the model one with ``length="given"``.
            weights, means, covariances: parameters of Gaussian mixtures, ``(K, M)``, ``(K, M, D)``, and by
                ``covariance_type`` ``(K, M, D)`` (diag), ``(K, M, D, D)`` (full), ``(D, D)`` (tied), ``(K, M)`` or
                ``(K, M, D)`` (spherical). Without ``weights`` M is 1 and the axis M is left out.
            covariance_type: form of ``covariances``: ``"diag"``, ``"full"``, ``"tied"`` or ``"spherical"``.
            emission: probabilities of symbols (``Categorical``), ``(K, V)``, instead of a mixture.
            probabilities: probabilities of bits (``Bernoulli``), ``(K, D)``, instead of a mixture.
            rates: rates of counts (``Poisson``), ``(K, D)``, instead of a mixture.
            emission_parameters: parameters of any kind of ``observation``, instead of a mixture: arrays in raw units by
                the names of the attributes of a fitted model without the final ``_``, such as ``{"shapes": ...,
                "rates": ...}`` of ``Gamma()``, each ``(K, D)``. Weights of mixtures of one component may be left out.
            transition_slopes: change of the log-odds of going from state i to state j, for one unit of each raw input,
                ``(K, K, U)``, as in ``transition_slopes_``; None if transitions depend on no inputs. Here and for the
                other slopes, that part of the model depends on all inputs, unless ``input_effects`` names some.
            emission_slopes: change of the emissions of each state for one unit of each raw input, ``(K, D, U)``, for
                symbols ``(K, V, U)``, as in ``emission_slopes_``; None if emissions depend on no inputs.
            initial_slopes: change of the log-odds of starting in a state for one unit of each raw input of the first
                step, ``(K, U)``, as in ``initial_slopes_``; None if the first state depends on no inputs.
            inputs: the U inputs by name, each with its value where the other parameters hold, such as
                ``{"heat": 20.0}``; or the ``input_scaling_`` of a fitted model.
            encoding: a fitted encoding, which reads symbols (``Bytes()`` for text; the default reads integers as they
                are) or sets the units in which vectors are computed (the default is the model's own mean and
                deviation).
            observation: observation with the options of the M-step (``pseudocount``, ``min_covariance``), for a ``fit``
                that continues with ``warm_start=True``; None takes their defaults.
            options: other arguments of ``HMM``.

        Raises:
            ValueError: rows do not sum to one, probabilities are negative, shapes do not fit, values are out of range,
                or a variance is below the floor; transitions that ``topology`` does not allow; there are slopes without
                inputs, or inputs that nothing depends on.

        >>> chain = {"initial": [0.5, 0.5], "transition": [[0.9, 0.1], [0.2, 0.8]], "rates": [[1.0], [5.0]]}
        >>> slopes = [[[0.0], [0.3]], [[0.0], [0.0]]]
        >>> model = HMM.from_parameters(**chain, transition_slopes=slopes, inputs={"heat": 20.0})
        >>> model.transition_at({"heat": [20.0, 25.0]})[:, 0].round(3)
        array([[0.9  , 0.1  ],
               [0.668, 0.332]])
        """
        k = len(numbers_of("initial", initial, "(K,)"))
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
        parameters = chain_parameters(initial, transition, final, table)
        length: Length = "given" if final is None else "stop"
        given = {"transitions": transition_slopes, "emissions": emission_slopes, "first_state": initial_slopes}
        options = with_implied_effects(options, given)
        model = made_with(cls, options, n_states=k, observation=observation, length=length)
        model._check_hyperparameters()
        setting = Setting.from_fitted(encoding, observation.clone(), length, conditional=False)
        if model._regresses or inputs is not None:
            setting = setting.with_inputs(input_scaling(inputs))
        apply_setting(model, setting)
        parameters = model._with_given_slopes(parameters, given)
        start: Start = "free" if model.start == "auto" else model.start
        model._set_fitted(parameters, start)
        chosen = model._fitted_chain.options
        check_allowed(parameters, chosen.topology, model.topology)
        if start != "free":
            chosen.check_first_state(start, model.algorithm, length)
            check_initial(parameters, start, chosen.topology)
        return model
