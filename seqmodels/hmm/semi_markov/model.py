"""``HSMM``: a hidden semi-Markov chain, whose states have durations of their own, as a ``SequenceModel``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch

from seqmodels.common.array_checks import numbers_of
from seqmodels.common.parameters import checked, made_with
from seqmodels.encodings import Encoding
from seqmodels.encodings.setting import Setting
from seqmodels.hmm.from_parameters import chain_parameters, emission_table
from seqmodels.hmm.hidden_chain import HiddenChainModel
from seqmodels.hmm.learning.constraints import Frozen
from seqmodels.hmm.learning.first_state import Start
from seqmodels.hmm.learning.given_inputs import InputOptions
from seqmodels.hmm.learning.options import Algorithm, ChainArguments
from seqmodels.hmm.learning.priors import Pseudocounts
from seqmodels.hmm.semi_markov.chain import SemiMarkovChain
from seqmodels.hmm.semi_markov.durations import DurationName, duration_family
from seqmodels.hmm.semi_markov.from_parameters import check_successors, duration_table
from seqmodels.hmm.topology import breaks
from seqmodels.model.fitting import apply_setting
from seqmodels.observations import Observation
from seqmodels.sequences.measure import Length

MOST_DURATIONS = 10_000_000  # of all states, of which each takes some 50 bytes


@dataclass(eq=False, repr=False)
class HSMM(HiddenChainModel):
    """``p(x) = Σ π(j_1) Π_n p_{j_n}(d_n) Π_t b_{j_n}(x_t) Π_n a(j_n, j_n+1)``, summed over all segmentations: a hidden
    semi-Markov (explicit-duration hidden Markov) model, fitted by EM (Yu 2010, *Hidden semi-Markov models*).

    A state that is entered lasts d steps, ``d ~ p_j(d)``, and is followed by another. In an ``HMM`` durations are
    geometric: one step is the most probable, whatever the mean. An iteration takes ``K D + K²`` terms a step, D being
    ``max_duration``, where an ``HMM`` takes ``K²``.

    Args:
        n_states: K.
        durations: the family of the distributions ``p_j`` over 1 .. D: ``"negative-binomial"`` and ``"poisson"`` are of
            ``d - 1``, ``"logarithmic"`` of ``d``, cut off at D and normalised there; ``"categorical"`` is any
            distribution; ``"geometric"`` is the HMM with self-transitions, exactly, and is not cut off:
            ``max_duration`` has no say in it.
        max_duration: D, the most steps of a segment. A longer run of one state is possible only with another state in
            between; pass more than the longest run that is expected.
        left_censored: the first segment of a sequence may have begun before it: what is left of it has
            ``P(d >= r) / E[d]``, as in a process that was cut at any step. False: it begins with the sequence.
        duration_pseudocount: added to the expected count of every duration in the M-step of categorical durations, so
            that none that was not seen is impossible.
        max_iter: most EM steps a start.
        tol: EM stops when a step improves the objective by less, in nats per unit; 0 never stops early.
        n_init: starts, each from an HMM after EM of up to 100 steps; the best objective wins. ``"auto"``: as of
            ``HMM``, a density being a state and a duration.
        max_seconds: a cap on time, over all starts.
        pseudocount: added to every expected count of starts, transitions and ends in the M-step, or a ``Pseudocounts``;
            ``"auto"``: 0.01 under ``length="stop"``, otherwise 0.
        topology: which state may follow a segment of which, as of ``HMM``. What it says of a state after itself is
            passed over, but that a state that nothing else may follow, neither another state nor the end, is followed
            by itself, as is the only state (and all may be where durations are geometric).
        tied: a group number for each state, ``[0, 0, 1, ...]``: states of a group share one emission.
        tied_durations: the same of durations.
        frozen: what EM leaves as it is: names among ``initial``, ``transition`` (ends too), ``emission``,
            ``durations``; or a ``Frozen``.
        algorithm: ``"em"``, or ``"stepwise"``: an M-step after each of ``batches`` mini-batches of whole sequences an
            epoch (``max_iter`` counts epochs), for much data.
        step_decay: of stepwise EM and ``partial_fit``, from 0.5 (the newest batch counts most) to 1.

    With ``length="given"`` the last segment of a sequence may go on after it: it counts by the probability of lasting
    at least as long as was seen, and in EM by the durations that it may have had in full. With ``length="stop"`` a
    sequence ends where a segment does, with probability ``final_`` of its state.

    ``observation`` is any that an ``HMM`` has, and ``"auto"`` as there. The recursions are float64 whatever ``dtype``,
    which is that of the densities. Missing values say nothing of their feature; an autoregressive observation takes
    none here. The other arguments are those of ``training.Resumable`` and ``SequenceModel``; ``validation`` is scored
    once, at the end, and with targets EM fits p(x, y).

    Attributes, raw units: ``initial_ (K,)``, ``transition_ (K, K)`` from segment to segment (its diagonal zero, but for
    geometric durations), ``final_ (K,)``, ``durations_ (K, D)``, and those of the observation, as of ``HMM``. Of the
    durations before they are cut off: ``duration_rates_ (K,)`` (Poisson, of ``d - 1``); ``duration_sizes_``,
    ``duration_probabilities_`` (negative binomial of ``d - 1``, as in scipy); ``duration_probabilities_`` (logarithmic
    of ``d``, as in scipy). ``starts_``: a row for each start.

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
    tied: Sequence[int] | None = None
    tied_durations: Sequence[int] | None = None
    frozen: Sequence[str] | Frozen | None = None
    algorithm: Algorithm = "em"
    batches: int = 6
    step_decay: float = 0.7
    checkpoint: str | None = None
    checkpoint_seconds: float = 300.0
    resume_from: str | None = None

    _bounded_by_data: ClassVar[Mapping[str, str]] = {"n_states": "steps", "max_duration": "longest"}
    _costly: ClassVar[frozenset[str]] = frozenset({"n_states"})
    _sums_out_missing: ClassVar[bool] = True
    _algorithms: ClassVar[tuple[Algorithm, ...]] = ("em", "stepwise")

    def _chain(self, n_states: int, *, start: Start, length: str, inputs: InputOptions) -> SemiMarkovChain:
        _check_durations(n_states, self.max_duration)
        family = duration_family(self.durations, self.max_duration, self.duration_pseudocount)
        arguments = (n_states, length, self.topology, self.tied, self.frozen, self.pseudocount)
        of_segments = {"tied_durations": self.tied_durations, "left_censored": self.left_censored}
        return SemiMarkovChain(ChainArguments(*arguments), start, inputs, family=family, **of_segments)

    @property
    def _structure(self) -> Mapping[str, Any]:
        return {
            "durations": self.durations,
            "max_duration": self.max_duration,
            "left_censored": self.left_censored,
        }

    @property
    def durations_(self) -> np.ndarray:
        """``(K, max_duration)`` probability that a segment of each state lasts 1, 2, ... steps.

        Rows sum to one, but for geometric durations, which may be longer.
        """
        if self.durations == "geometric":
            stays = np.diag(self.transition_)[:, None]
            shares: np.ndarray = stays ** np.arange(self.max_duration) * (1 - stays)
            return shares
        return self._emission.durations(self.parameters_.table).log_pmf.exp().numpy()

    @property
    def mean_durations_(self) -> np.ndarray:
        """``(K,)`` expected steps of a segment of each state."""
        chain = self._fitted_chain
        return chain.mean_durations(self.parameters_, self._emission_of(chain))

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
        encoding: Encoding | None = None,
        observation: Observation | None = None,
        **options: Any,
    ) -> Self:
        """A fitted HSMM from its parameters, in raw units.

        Args:
            initial: ``(K,)`` probabilities of the first state.
            transition: ``(K, K)`` probabilities of the state of the next segment; rows, plus ``final``, sum to one, and
                the diagonal is zero (but for geometric durations, and for states that nothing else follows).
            final: ``(K,)`` probabilities of the end after a segment; None: ``length="given"``.
            durations: ``(K, D)`` probabilities of 1 to D steps: ``durations="categorical"``.
            duration_rates: ``(K,)``, instead of ``durations``: Poisson durations, of ``d - 1``, cut off at
                ``max_duration``.
            duration_sizes, duration_probabilities: ``(K,)`` each, instead of these: negative binomial ones, of
                ``d - 1``, as in scipy, cut off at ``max_duration``; ``duration_probabilities`` alone: logarithmic ones.
                Without any of these durations are geometric.
            weights, means, covariances, covariance_type, emission, probabilities, rates, encoding, observation: as of
                ``HMM.from_parameters``.
            options: other arguments of ``HSMM``.

        Raises:
            ValueError: as of ``HMM.from_parameters``; durations of several families, or that cannot be; a state that
                is followed by itself, or what ``topology`` does not allow.

        >>> chain = {"initial": [1.0, 0.0], "transition": [[0.0, 1.0], [1.0, 0.0]], "duration_rates": [2.0, 4.0]}
        >>> model = HSMM.from_parameters(**chain, means=[[0.0], [5.0]], covariances=[[1.0], [1.0]])
        >>> model.mean_durations_.round(3)
        array([3., 5.])
        """
        k = len(numbers_of("initial", initial, "(K,)"))
        encoding, observation, of_emission = emission_table(
            k,
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
                    f"durations are of up to {longest} steps, but max_duration={options['max_duration']}; leave it out"
                )
        parameters = chain_parameters(initial, transition, final, torch.cat([of_emission, of_durations], 1))
        length: Length = "given" if final is None else "stop"
        model = made_with(cls, options, n_states=k, durations=family, observation=observation, length=length)
        model._check_hyperparameters()
        apply_setting(model, Setting.from_fitted(encoding, observation.clone(), length, conditional=False))
        model.start_ = "free"
        options_of_chain = model._chain_of(k).options
        check_successors(parameters, options_of_chain.topology.transition_mask(k))
        if breaks(parameters, options_of_chain.topology):
            raise ValueError(
                f"the parameters allow transitions that topology={model.topology!r} does not; leave it out"
            )
        model._set_fitted(parameters, "free")
        return model


def _check_durations(n_states: int, max_duration: int) -> None:
    """Raise ``ValueError`` for more durations of all states than tables of them should have."""
    if n_states * max_duration > MOST_DURATIONS:
        raise ValueError(
            f"max_duration is {max_duration:,}, which is too long for {n_states:,} states; pass at most "
            f"{max(1, MOST_DURATIONS // n_states):,}"
        )
