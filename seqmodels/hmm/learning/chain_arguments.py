"""Arguments of hidden-chain models that few users turn: of the fit, and of regressions on inputs."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from seqmodels.common.display import a_or_an
from seqmodels.common.parameters import Configurable
from seqmodels.encodings.terms import RandomEffect, Smooth
from seqmodels.hmm.conjugate.prior import ConjugatePrior
from seqmodels.hmm.learning.constraints import Frozen
from seqmodels.training import EMTraining

__all__ = ["ChainInputEffects", "ChainTraining", "RandomEffect", "Smooth"]


@dataclass(kw_only=True, eq=False, repr=False)
class ChainTraining(EMTraining):
    """Less common options of the fit of a hidden Markov model, passed as its argument ``training``.

    One argument is changed in place by ``model.set_params(training__frozen=["emission"])``.

    Args:
        tied: group number of each state, ``[0, 0, 1, ...]``; the states of a group share one emission. None means that
            no states share one.
        frozen: parameters that the fit leaves unchanged: names among ``initial``, ``transition`` (with ends) and
            ``emission``, or a ``Frozen``. None means that it learns all. Under variational Bayes they have no
            posterior: their concentrations in ``posterior_`` are zero, and the emissions of frozen states have the
            prior's numbers.
        batches: number of mini-batches in an epoch of ``algorithm="stepwise"``.
        step_decay: exponent of the step sizes of ``algorithm="stepwise"`` and ``partial_fit``, from 0.5 (the newest
            batch counts most) to 1.
        lr: peak learning rate of ``algorithm="gradient"``.
        prior: prior of ``algorithm="variational"``; None means ``hmm.ConjugatePrior()``, under which states that the
            data do not need empty out.
        checkpoint, checkpoint_seconds, resume_from: path of a file to which the fit writes its state, least number of
            seconds between two writes, and path of such a file from which the fit resumes.
    """

    tied: Sequence[int] | None = None
    frozen: Sequence[str] | Frozen | None = None
    batches: int = 6
    step_decay: float = 0.7
    lr: float = 0.05
    prior: ConjugatePrior | None = None

    _listed_last: ClassVar[tuple[str, ...]] = ("checkpoint", "checkpoint_seconds", "resume_from")

    def check_unused(self, model: object, but: Collection[str]) -> None:
        """Raise ``ValueError`` if an argument that the fit of ``model`` does not use differs from its default.

        Args:
            model: the model, for the error message.
            but: names of the arguments that the fit uses.
        """
        for name, parameter in inspect.signature(type(self)).parameters.items():
            value = getattr(self, name)
            if name not in but and repr(value) != repr(parameter.default):  # arrays have no single truth
                raise ValueError(f"{name} is {value!r}, but the fit of {a_or_an(type(model))} has none; leave it out")


@dataclass(kw_only=True, eq=False, repr=False)
class ChainInputEffects(Configurable):
    """A choice of the inputs (covariates) that a hidden Markov model depends on, passed as its argument
    ``input_effects``.

    Each argument but the last three names inputs of ``Sequences(items, inputs=...)``; True stands for all, and None for
    none. In a list there may stand, beside names, a ``RandomEffect`` of groups and a ``Smooth`` function of an input,
    for an ``HMM`` or ``HSMM`` that is fitted by EM. The coefficients of each term in each regression (the log-odds of a
    transition, a mean) have a normal distribution of mean zero, whose variance is estimated by maximum marginal
    likelihood in Laplace's approximation (Wood 2011); ``terms_`` has the variances. A standard deviation is at most 10
    on the scale of what the term is added to: log-odds and log-means, where effects of one deviation multiply odds or
    means by 22,000, or for means 10 standard deviations of the feature over all steps. ``fit`` warns of deviations that
    reach this bound, as where groups are separated without any overlap, and of those that the data do not determine.

    Args:
        transitions: inputs that transitions depend on: ``p(z_t = j | z_t-1 = i, u_t) ∝ exp(b_ij + w_ij · u_t)``. The
            input of a step drives the transition into it, and no transition leads into the first step. (In depmixS4 the
            input of a step drives the transition out of it: there ``X.with_lagged_inputs(1)`` gives the same model.) A
            row of transitions is a multinomial logistic regression, fitted in each M-step by Newton's method.
            ``transition_slopes_ (K, K, U)`` are w in units of one unit of each raw input, and ``transition_`` is the
            matrix where all inputs are at their mean in the training data; ``transition_at(inputs)`` is the matrix at
            other inputs. In a ``ContinuousTimeHMM`` it is the rates that depend on inputs, each by itself.
        emissions: inputs that emissions depend on. Linear in the inputs are the means of a ``GaussianMixture``, in
            which each component has slopes of its own (a mixture of regressions), the intercepts of an
            ``AutoregressiveGaussian``, the locations of ``StudentT`` and ``LogNormal``, the log-means of counts and of
            ``Gamma`` (under ``ZeroInflated`` those of the counts that are no extra zeros), the log-odds of
            ``Categorical``, ``Bernoulli`` and the mean of ``Beta`` (by its a), and κ cos μ and κ sin μ of ``VonMises``;
            also within ``Columns``, ``Rounded`` and ``IntervalCensored``; and the means of the states of a
            ``MarkovSwitchingAR``. ``emission_slopes_`` has the slopes for one unit of each raw input. Other parameters
            are those where all inputs are at their mean; there a prior of pseudo-frames (``PseudoFrames``) holds, and a
            background depends on no inputs. ``observation="auto"`` is then ``GaussianMixture(1)``, without prior and
            background.
        first_state: inputs of the first step that the first state depends on: ``p(z_1 = j | u_1) ∝ exp(b_j + w_j ·
            u_1)``, learned (``start="free"``) as a row of transitions is. ``initial_slopes_ (K, U)`` are w,
            ``initial_`` is the distribution where all inputs are at their mean, and ``initial_at(inputs)`` is that at
            other inputs.
        durations: inputs of the first step of a segment that its duration depends on, in an ``HSMM`` whose durations
            are not geometric: ``p_j(d | u_t) ∝ p_j(d) exp((w_j · u_t) (d - 1))``. ``duration_slopes_ (K, U)`` are w,
            ``durations_`` are the distributions where all inputs are at their mean, and ``durations_at(inputs)`` are
            those at other inputs.
        ridge: strength of the prior ``-½ ridge Σ w²`` of the slopes of transitions, of the first state and of
            durations, for standardised inputs; from slopes other than those of rates and durations, their mean over j
            is subtracted first. 0 means no prior. Coefficients of penalised terms have none of it.
        restricted: True to estimate the variances of penalised terms by restricted maximum likelihood (REML), for which
            the other coefficients of the same regressions are integrated out too; False for maximum likelihood. Of
            durations these are the slopes and, where the family has one number that inputs add to (the logarithm of a
            Poisson rate, of q of negative binomial or of p of logarithmic durations), that number.
        new_group_points: number of equally likely points, a power of two, that stand for the normal distribution of the
            effects of a group that ``fit`` has not seen. For such a group, ``log_prob``, ``score``, ``stream``,
            ``forecast``, ``sample`` and probabilities of states are of ``p(x) = 1/M Σ_m p(x | effects at point m)``.
            That is one normalised probability, not an estimate or a bound, of a model whose random effects are
            discrete; more points bring it closer to the model with normal effects, and cost as much as so many
            sequences. ``decode``, ``align`` and ``path_log_prob`` take the effects at their most probable point given
            the sequence. 1 takes effects of zero, the mean of the population.

    >>> from seqmodels import HMM
    >>> HMM(2, input_effects=ChainInputEffects(transitions=["rain"])).get_params()["input_effects__transitions"]
    ['rain']
    """

    transitions: Sequence[str | RandomEffect | Smooth] | bool | None = None
    emissions: Sequence[str | RandomEffect | Smooth] | bool | None = None
    first_state: Sequence[str | RandomEffect | Smooth] | bool | None = None
    durations: Sequence[str | RandomEffect | Smooth] | bool | None = None
    ridge: float = 0.0
    restricted: bool = True
    new_group_points: int = 256

    _renamed: ClassVar[Mapping[str, str]] = {
        "transition_inputs": "transitions",
        "emission_inputs": "emissions",
        "start_inputs": "first_state",
        "transition_ridge": "ridge",
    }

    @property
    def choices(self) -> tuple[Sequence[str | RandomEffect | Smooth] | bool | None, ...]:
        """The inputs of transitions, of emissions, of the first state and of durations, in this order."""
        return self.transitions, self.emissions, self.first_state, self.durations
