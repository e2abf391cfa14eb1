"""``HMM``: a hidden Markov chain and an observation as a ``SequenceModel``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, Literal, Self

from seqmodels.common.array_checks import numbers_of
from seqmodels.common.parameters import checked, made_with
from seqmodels.encodings import Encoding
from seqmodels.encodings.inputs import InputScaling
from seqmodels.encodings.precision import DTYPES
from seqmodels.encodings.setting import Setting
from seqmodels.generation import CursorState, MergedStates
from seqmodels.hmm.chains.markov import MarkovChain
from seqmodels.hmm.conjugate import ConjugatePrior
from seqmodels.hmm.cursor import merged_states
from seqmodels.hmm.from_parameters import (
    chain_parameters,
    emission_table,
    initial_slopes_of,
    input_scaling,
    table_slopes_of,
    transition_slopes_of,
)
from seqmodels.hmm.hidden_chain import HiddenChainModel
from seqmodels.hmm.hmmlearn import ARGUMENTS, hint_of_attribute
from seqmodels.hmm.learning.constraints import Frozen
from seqmodels.hmm.learning.first_state import Start, check_initial
from seqmodels.hmm.learning.given_inputs import InputOptions, relative_to_references
from seqmodels.hmm.learning.options import Algorithm, ChainArguments, StartChoice, check_with_inputs
from seqmodels.hmm.learning.priors import Pseudocounts
from seqmodels.model.fitting import apply_setting
from seqmodels.observations import Observation
from seqmodels.sequences.measure import Length


@dataclass(eq=False, repr=False)
class HMM(HiddenChainModel):
    """``p(x) = Σ_z π(z_1) b_{z_1}(x_1) Π_t a(z_{t-1}, z_t) b_{z_t}(x_t)``, fitted by EM (Rabiner 1989).

    Args:
        n_states: K.
        max_iter: most EM steps a start.
        tol: EM stops when a step improves the objective by less, in nats per unit; 0 never stops early.
        n_init: starts; the best objective wins, a start that ends on a floor loses to one that does not (``starts_``
            has all). ``"auto"``: up to 8 where data are small (2²⁰ densities in all), 1 where they are large, where
            states are known or ordered, and under other algorithms than EM. On a CPU EM from several runs side by side
            where data are small; ``seconds`` in ``history_`` are then those of all. A best start that is clearly ahead
            of all others is warned of.
        max_seconds: a cap on time, over all starts.
        pseudocount: added to every expected count of starts, transitions and ends in the M-step, or a ``Pseudocounts``
            (asymmetric, sticky); ``"auto"``: 0.01 under ``length="stop"``, where few ends are seen, otherwise 0.
        topology: which transitions exist: ``"ergodic"``, ``"left-to-right"``, a ``(K, K)`` mask, or a ``LeftToRight``,
            ``Banded``, ``Arcs`` or ``Series``. What is ruled out stays exactly zero.
        start: the distribution of the first state: ``"free"``: learned; ``"stationary"``: that which the transitions
            leave as it is (under ``length="stop"``: given that the sequence goes on), of an irreducible chain;
            ``"uniform"``. ``"auto"``: stationary where fewer than 5 sequences, with ``length="given"`` and without
            known states or targets, are fitted by EM with an irreducible topology; else free. ``start_`` says which.
        tied: a group number for each state, ``[0, 0, 1, ...]``: states of a group share one emission.
        frozen: what EM leaves as it is: names among ``initial``, ``transition`` (ends too), ``emission``; or a
            ``Frozen``.
        algorithm: ``"em"``, or ``"stepwise"``: an M-step after each of ``batches`` mini-batches an epoch (``max_iter``
            counts epochs), for much data; long sequences are cut, with a warm-up, unless the topology never forgets; or
            ``"gradient"``: AdamW on the same objective, whose gradient is the E-step; ``max_iter`` is then passes over
            the data, all of which are taken, and ``tol`` has no say; or ``"variational"``: variational Bayes (MacKay
            1997; Beal 2003) of ``Categorical``, ``Bernoulli``, ``Poisson`` and ``GaussianMixture`` (diagonal or full).
            Its ``objective`` is the evidence lower bound, and parameters, which score, are the posterior mean. There
            ``observation="auto"`` of vectors is ``GaussianMixture(1)``, without prior and background.
        step_decay: of stepwise EM and ``partial_fit``, from 0.5 (the newest batch counts most) to 1.
        lr: peak learning rate of ``algorithm="gradient"``.
        transition_inputs: names of inputs (``Sequences(items, inputs=...)``) that transitions depend on; True: all.
            ``p(z_t = j | z_t-1 = i, u_t) ∝ exp(b_ij + w_ij · u_t)``: the input of a step drives the transition into it,
            and none that into the first. In depmixS4 that of a step drives the transition out of it: there
            ``X.with_lagged_inputs(1)`` gives the same model. A row of transitions is a multinomial logistic regression,
            fitted in each M-step by Newton's method; ``transition_slopes_ (K, K, U)`` are w in units of one unit of
            each raw input, and ``transition_`` is the matrix where all inputs are at their mean in the training data.
            ``transition_at(inputs)`` has those of other inputs.
        emission_inputs: names of inputs that emissions depend on; True: all. The means of a ``GaussianMixture(1)`` or
            the intercepts of an ``AutoregressiveGaussian`` are linear in them, the log-odds of ``Categorical`` and
            ``Bernoulli`` and the log-rates of ``Poisson`` are, and so are those of ``Columns`` of these:
            ``emission_slopes_``, for one unit of each raw input; other parameters are those where all inputs are at
            their mean. ``observation="auto"`` is then ``GaussianMixture(1)``, without prior and background.
        start_inputs: names of inputs that the first state depends on, by those of the first step; True: all.
            ``p(z_1 = j | u_1) ∝ exp(b_j + w_j · u_1)``, learned (``start="free"``) as a row of transitions is:
            ``initial_slopes_ (K, U)`` are w, ``initial_`` is the distribution where all inputs are at their mean, and
            ``initial_at(inputs)`` has that of other inputs.
        transition_ridge: the prior ``-½ ridge Σ w²`` of slopes of transitions and of the first state, of standardised
            inputs and less their mean over j.
        prior: of variational Bayes; None: ``hmm.ConjugatePrior()``, under which states that data do not need empty out.
        dtype: ``"auto"``: ``"float64"`` where it costs nothing, which is where training data have at most 2¹⁵ densities
            in all, frames times states times components; after ``from_parameters`` with up to 8 densities a frame; else
            ``"float32"``. ``dtype_`` says which.

    ``observation="auto"`` is of vectors ``GaussianMixture(1, prior=PseudoFrames(10), background=0.01)``, one diagonal
    Gaussian a state with a weak prior and a broad background: EM then finds the maximum a posteriori, and the prior is
    in ``objective`` and never in ``log_prob`` or ``score``. An observation that is named has no prior unless it says
    so: ``observation=GaussianMixture(1)`` is plain maximum likelihood.

    The other arguments are those of ``training.Resumable`` and ``SequenceModel``. EM needs no held-out data:
    ``validation="auto"`` holds out nothing, and what is passed is scored once, at the end. With targets EM fits p(x,
    y), so the figures of ``history_`` are of x and y together. States that end on the floor of a variance are warned
    of. Parameters are kept in float64.

    Attributes, raw units: ``initial_ (K,)``, ``transition_ (K, K)``, ``final_ (K,)`` (with ``length="stop"``:
    ``transition_.sum(1) + final_ == 1``) and those of the observation: ``weights_ (K, M)``, ``means_ (K, M, D)``,
    ``covariances_ (K, M, D)``, ``(K, M, D, D)`` (full) or ``(D, D)`` (tied); ``emission_ (K, V)``;
    ``coefficients_ (K, D, pD)``, ``intercepts_``, ``covariances_``. ``starts_``: a frame with a row for each start:
    ``start``, ``objective``, ``log_prob`` (both nats per unit), ``floor_hits``, ``chosen``. The last row of
    ``history_`` has the range of their objectives, ``starts_range``. ``shared_autoregression_``: what an autoregressive
    observation was fitted with to missing values (``hmm.missing_past``), encoded; None: nothing. After variational
    Bayes there are ``posterior_`` and ``lower_bound_``, and ``log_prob`` in ``history_`` stands in the last row alone.

    >>> x = [np.array([0, 1, 0, 1, 0, 1]), np.array([1, 0, 1, 0])]
    >>> model = HMM(2, length="given").fit(x)
    >>> round(model.score(x), 3)
    -0.139

    States of given sequences (``decode``, ``posterior``, ``filter``, ``sample_states``, ``forecast_states``) are those
    of encoded steps, of ``x`` and then ``y`` where there are targets. A missing value (NaN) says nothing of its
    feature. Of a series that is read as changes they are of frames: the first ones, of which no difference can be
    taken, have the state of the first step, and ``filter``, which does not look ahead, has ``initial_`` of them.

    ``encoding="auto"`` standardises vectors, whatever they look like, so that states have levels (``means_``). A series
    that goes on to levels which it never had is warned about: pass ``encoding=AutoSeries()`` to read its changes.

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
    tied: Sequence[int] | None = None
    frozen: Sequence[str] | Frozen | None = None
    algorithm: Algorithm = "em"
    batches: int = 6
    step_decay: float = 0.7
    lr: float = 0.05
    _: KW_ONLY
    dtype: str = "auto"
    start: StartChoice = "auto"
    transition_inputs: Sequence[str] | bool | None = None
    emission_inputs: Sequence[str] | bool | None = None
    start_inputs: Sequence[str] | bool | None = None
    transition_ridge: float = 0.0
    checkpoint: str | None = None
    checkpoint_seconds: float = 300.0
    resume_from: str | None = None
    prior: ConjugatePrior | None = None

    _in_other_words: ClassVar[Mapping[str, str]] = ARGUMENTS
    _bounded_by_data: ClassVar[Mapping[str, str]] = {"n_states": "steps"}
    _dtypes: ClassVar[tuple[str, ...]] = ("auto", *DTYPES)
    _sums_out_missing: ClassVar[bool] = True
    _reads_from_disk: ClassVar[bool] = True
    _filters_past: ClassVar[bool] = True
    _algorithms: ClassVar[tuple[Algorithm, ...]] = ("em", "stepwise", "gradient", "variational")

    def _chain(self, n_states: int, *, start: Start, length: str, inputs: InputOptions) -> MarkovChain:
        arguments = (n_states, length, self.topology, self.tied, self.frozen, self.pseudocount)
        return MarkovChain(ChainArguments(*arguments), start, inputs)

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
        transition_slopes: Any = None,
        emission_slopes: Any = None,
        initial_slopes: Any = None,
        inputs: InputScaling | Mapping[str, float] | None = None,
        encoding: Encoding | None = None,
        observation: Observation | None = None,
        **options: Any,
    ) -> Self:
        """A fitted HMM from its parameters, in raw units.

        Args:
            initial: ``(K,)`` probabilities.
            transition: ``(K, K)`` probabilities; rows, plus ``final``, sum to one.
            final: ``(K,)`` probabilities of the end after each state; None: ``length="given"``.
            weights, means, covariances: ``(K, M)``, ``(K, M, D)``, and ``(K, M, D)`` (diag), ``(K, M, D, D)`` (full),
                ``(D, D)`` (tied), ``(K, M)`` or ``(K, M, D)`` (spherical); without ``weights``, M = 1 and the M axis is
                left out.
            covariance_type: what ``covariances`` are: ``"diag"``, ``"full"``, ``"tied"`` or ``"spherical"``.
            emission: ``(K, V)`` probabilities of symbols, instead of the four above.
            probabilities: ``(K, D)`` of bits (``Bernoulli``), instead of all these.
            rates: ``(K, D)`` of counts (``Poisson``), instead of all these.
            transition_slopes, emission_slopes, initial_slopes: ``(K, K, U)``, ``(K, D, U)`` and ``(K, U)``, as the
                attributes of these names, in units of one unit of each raw input. They depend on all inputs, unless
                ``transition_inputs``, ``emission_inputs`` and ``start_inputs`` name some.
            inputs: the U inputs by name, each with its value where the other parameters hold, as ``{"heat": 20.0}``; or
                the ``input_scaling_`` of a fitted model.
            encoding: a fitted one: how symbols are read (``Bytes()`` for text; by default integers as they are), or the
                units that vectors are computed in (by default the model's own mean and deviation).
            observation: for its M-step (``pseudocount``, ``min_covariance``), if ``fit`` is to go on with
                ``warm_start=True``.
            options: other arguments of ``HMM``.

        Raises:
            ValueError: rows that do not sum to one, negative probabilities, shapes that do not fit, values out of
                range, a variance below the floor; slopes without inputs, or of inputs that nothing depends on.

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
            emission=emission,
            probabilities=probabilities,
            rates=rates,
            mixture=(weights, means, covariances, covariance_type),
            encoding=encoding,
            observation=observation,
        )
        parameters = chain_parameters(initial, transition, final, table)
        length: Length = "given" if final is None else "stop"
        slopes_given = {"transition": transition_slopes, "emission": emission_slopes, "start": initial_slopes}
        for name, slopes in ((f"{name}_inputs", each) for name, each in slopes_given.items()):
            if slopes is not None:
                options.setdefault(name, True)
        model = made_with(cls, options, n_states=k, observation=observation, length=length)
        setting = Setting.from_fitted(encoding, observation.clone(), length, conditional=False)
        if model._regresses or inputs is not None:
            setting = setting.with_inputs(input_scaling(inputs))
        apply_setting(model, setting)
        if setting.inputs is not None:
            _check_given_inputs(model)
            slopes_of = model._input_options(), setting.inputs.scale
            if model.transition_inputs:
                of_transitions = transition_slopes_of(transition_slopes, k, *slopes_of)
                parameters = replace(parameters, transition_slopes=of_transitions)
            if model.emission_inputs:
                of_table = table_slopes_of(emission_slopes, table, observation, encoding, *slopes_of)
                parameters = replace(parameters, table_slopes=of_table)
            if model.start_inputs:
                parameters = replace(parameters, initial_slopes=initial_slopes_of(initial_slopes, k, *slopes_of))
            parameters = relative_to_references(parameters)
        start: Start = "free" if model.start == "auto" else model.start
        model._set_fitted(parameters, start)
        if start != "free":
            chosen = model._fitted_chain.options
            chosen.check_first_state(start, model.algorithm, length)
            check_initial(parameters, start, chosen.topology)
        return model


def _check_given_inputs(model: HMM) -> None:
    """Raise ``ValueError`` for inputs that are not those that the hyperparameters name, or that go not with others."""
    assert model._input_scaling is not None
    names = model._input_scaling.names
    read = model._inputs_among(names)
    if read != names:
        lacking = [name for name in read if name not in names]
        unread = [name for name in names if name not in read]
        problem = (
            f"has no {lacking[0]!r}, which is named" if lacking else f"has {unread[0]!r}, which nothing depends on"
        )
        raise ValueError(
            f"inputs {problem}; pass the inputs that transition_inputs, emission_inputs and start_inputs name, and "
            "slopes of them"
        )
    if model.length_ == "stop":
        raise ValueError("the inputs of a sequence say how long it is, so that its end is no event; leave final out")
    of_each = {"of_transitions": bool(model.transition_inputs), "of_start": bool(model.start_inputs)}
    check_with_inputs(model.algorithm, model.start, model.tied, **of_each)
