"""``PosteriorHMM``: the predictive distribution of a hidden chain, averaged over posterior draws of its parameters."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
import torch
from torch import Tensor

from seqmodels.common.array_checks import array_of
from seqmodels.common.caller_warnings import warn_caller
from seqmodels.common.parameters import Seed, checked
from seqmodels.common.progress import Verbose
from seqmodels.encodings import Encoding
from seqmodels.encodings.examples import Example
from seqmodels.encodings.precision import DTYPES
from seqmodels.encodings.raw_data import Data
from seqmodels.generation import Cursor
from seqmodels.hmm.chains.base import HiddenChain
from seqmodels.hmm.conjugate import ConjugatePrior, EmissionPrior
from seqmodels.hmm.coordinates import Coordinates, GivenInputs
from seqmodels.hmm.corpus import Corpus, PackedBatch
from seqmodels.hmm.hidden_chain import HiddenChainModel
from seqmodels.hmm.learning.given_inputs import relative_to_references
from seqmodels.hmm.learning.variational import mean_initial, prior_hyperparameters
from seqmodels.hmm.model import HMM
from seqmodels.hmm.parameters import Parameters
from seqmodels.hmm.posterior.cursor import cursor_of_draws
from seqmodels.hmm.posterior.density import PosteriorDensity
from seqmodels.hmm.posterior.nuts import effective_size, r_hat, sample_nuts
from seqmodels.hmm.posterior.relabelling import matching_order, posteriors
from seqmodels.hmm.topology import breaks
from seqmodels.model import SequenceModel
from seqmodels.model.fitting import apply_setting, check_arguments, checked_data, fit_member
from seqmodels.observations import Observation
from seqmodels.sequences import Kind
from seqmodels.sequences.measure import Length
from seqmodels.sequences.times import DateUnit

if TYPE_CHECKING:
    import pandas as pd

LEAST = 1e-12  # smallest probability that is a free parameter
MANY_STATES = 4096  # most states of all draws together in a cursor, because it holds a table of their transitions
CHAIN = ("initial", "transition", "final", "generator")


def _hmm() -> HiddenChainModel:
    return HMM()  # a default that is a class would be the only class allowed


@dataclass(eq=False, repr=False)
class PosteriorHMM(SequenceModel):
    """The posterior predictive distribution of a hidden chain, averaged over draws of its parameters by NUTS.

    ``p(x | data) ≈ 1/S Σ_s p(x | θ_s)``. The parameters ``θ_s`` are drawn from ``p(θ | data)`` by the no-U-turn sampler
    (Hoffman and Gelman 2014; Stan's sampler, here Pyro's). An average over draws takes the uncertainty of the
    parameters into account, which the best parameters alone do not. It is a Monte Carlo estimate of an integral
    (``measure_.kind`` is ``"estimate"``), with the standard error ``score_error``. ``fit`` fits ``model`` first and
    starts chains near it; if the posterior has several modes, a chain sees only the one where it starts.

    Args:
        model: the HMM, or another model of a hidden chain: an ``HSMM``, ``ContinuousTimeHMM`` or ``MarkovSwitchingAR``.
            Its observation is a ``GaussianMixture`` (diagonal or full) without prior and background, an
            ``AutoregressiveGaussian`` (of complete frames, with the Gaussian of the first steps held fixed), any
            density or distribution of independent features (``Poisson``, ``Gamma``, ``VonMises``, ...),
            ``Categorical``, or ``Columns`` of these; for vectors, ``"auto"`` is ``GaussianMixture(1)``. An emission
            that states share has one prior, and frozen parameters are the same in all draws.
        n_samples: number of draws kept of each chain of the sampler, S / C for S draws in all.
        warmup: number of steps of each chain before these draws, in which the sampler adapts.
        chains: number of chains of the sampler, C, which run one after the other.
        max_tree_depth: a draw takes at most ``2 ** max_tree_depth`` evaluations of the posterior density, each as long
            as an E-step.
        prior: the prior of the parameters. None is a prior whose concentrations of the chain, of durations and of
            weights are 1, which is flat, whose rates of jumps are exponential, and whose emissions count as much as one
            observation. Where an observation has no conjugate prior, as ``Gamma`` has none, its output parameters
            (log-means, log-shapes, locations, log-odds) are normal with mean 0 and deviation 5 in encoded units, and of
            ``VonMises`` κ cos μ and κ sin μ with deviation 50.

    Draws are float64, on the CPU; scores are computed in ``dtype``. States keep the numbers that they have in the
    model. A warning reports draws from trajectories that diverged, because the sampler then does not reach some parts
    of the posterior. The other arguments are described in ``SequenceModel``.

    After a fit, ``model_`` is the fitted model, ``n_divergent_`` the number of divergent draws, and ``draws_`` a
    mapping of parameters in raw units whose first axis is the draw: ``initial (S, K)``, ``transition (S, K, K)``,
    ``final``, ``generator``, slopes on inputs, and the parameters of the observation and of durations.

    >>> x = [np.array([0, 1, 0, 0, 1, 0])]
    >>> model = PosteriorHMM(HMM(1), n_samples=200, warmup=100, length="given").fit(x)
    >>> abs(model.draws_["emission"][:, 0, 0].mean() - 4.5 / 7) < 0.05  # (4 + 1/2) / (6 + 1), as the prior is worth one
    np.True_
    """

    model: HiddenChainModel = field(default_factory=_hmm)
    n_samples: int = 500
    warmup: int = 300
    chains: int = 1
    max_tree_depth: int = 8
    prior: ConjugatePrior | None = None

    _uses_validation: ClassVar[bool] = False

    # -- SequenceModel -------------------------------------------------------------------------------------

    @property
    def context_(self) -> int | None:
        return None

    @property
    def n_parameters_(self) -> int:
        self._setting()
        return self.model_.n_parameters_

    def _default_observation(self, kind: Kind) -> Observation:
        if isinstance(self.model.observation, Observation):
            return self.model.observation.clone()
        like = self.model.clone()
        like.algorithm = "variational"  # under which the observation has no prior of its own
        return like._default_observation(kind)

    def _sums_out(self, observation: Observation) -> bool:
        # With missing values in its past an autoregression needs the filter of a fitted model, which draws do not have.
        return isinstance(self.model, HiddenChainModel) and not observation.n_past and self.model._sums_out(observation)

    @property
    def _reads_inputs(self) -> bool:
        return isinstance(self.model, HiddenChainModel) and self.model._reads_inputs

    @property
    def _times_in(self) -> DateUnit | None:
        return self.model._times_in if isinstance(self.model, HiddenChainModel) else None

    def _inputs_among(self, names: tuple[str, ...]) -> tuple[str, ...]:
        return self.model._inputs_among(names)

    def _default_length(self, kind: Kind) -> Length:
        return super()._default_length(kind) if self.model.length == "auto" else self.model.length

    def _named_encoding(self) -> Encoding | Literal["auto"]:
        return self.model.encoding if self.encoding == "auto" else self.encoding

    def _default_encoding(self, kind: Kind, observation: Observation, n_features: int) -> Encoding:
        encoding = self.model.encoding
        return super()._default_encoding(kind, observation, n_features) if encoding == "auto" else encoding

    def _check_hyperparameters(self) -> None:
        if not isinstance(self.model, HiddenChainModel):
            raise ValueError(f"model is {self.model!r}; pass an HMM, or another model of a hidden chain")
        for name, least in (("n_samples", 1), ("warmup", 1), ("chains", 1), ("max_tree_depth", 1)):
            value = getattr(self, name)
            if not (isinstance(value, int | np.integer) and value >= least):
                raise ValueError(f"{name} is {value!r}; pass at least {least}")
        if self.warm_start:
            raise ValueError("warm_start is True, but a PosteriorHMM always samples anew; pass warm_start=False")
        check_arguments(self.model)
        self.model._check_hyperparameters()
        if self.model._terms:
            raise ValueError(
                f"{self.model._terms[0].label} is a penalised term, of which no posterior is drawn; leave it out"
            )

    def _fit(self, train: list[Example], validation: list[Example]) -> None:
        inner = self.model.clone()
        inner.verbose = self.verbose is True or inner.verbose
        fit_member(inner, self._setting(), train, validation)
        self.model_ = inner._at_estimates()  # the draws are the posterior
        self.history_, self.converged_ = inner.history_, inner.converged_
        self._draw(train, self.random_state)

    def _draw(self, examples: list[Example], seed: int) -> None:
        if any(example.source is not None for example in examples):
            raise ValueError("a PosteriorHMM is p(x); fit it without y, or pass ignore_source=True")
        family, chain, alone = self._family(), self._chain, [e.alone() for e in examples]
        corpus = chain.corpus(alone, family.emission, torch.device("cpu"), torch.float64)
        density = self._density(chain, family, alone, corpus)
        sampled = sample_nuts(
            density,
            density.coordinates.n,
            n_samples=self.n_samples,
            warmup=self.warmup,
            chains=self.chains,
            max_tree_depth=self.max_tree_depth,
            seed=seed,
            verbose=self.verbose,
        )
        reference = posteriors(chain, self.model_.parameters_, family.emission, corpus.batches)
        self._draws = [
            self._relabelled(u, chain, density.coordinates, reference, corpus.batches) for u in sampled.u.flatten(0, 1)
        ]
        self._n_chains, self.n_divergent_ = self.chains, sampled.n_divergent
        self.measure_ = replace(self.measure_, kind="estimate")
        if sampled.n_divergent:
            warn_caller(
                f"{sampled.n_divergent} of {len(self._draws)} draws came from trajectories that diverged, so "
                "that parts of the posterior may be missing; use fewer states, more data, or a stronger prior",
            )

    def _density(
        self, chain: HiddenChain[Any], family: EmissionPrior, examples: list[Example], corpus: Corpus
    ) -> PosteriorDensity:
        """Return the posterior log-density as a function of unconstrained numbers, which are zero near its mode.

        The parameters at zero are posterior means given the expected counts of the fitted model, for the chain and for
        emissions that have a conjugate prior.

        Args:
            chain: the hidden chain.
            family: family of the priors of the emissions' parameters.
            examples: encoded training sequences.
            corpus: the same sequences in batches.
        """
        fitted, rows = self.model_.parameters_, chain.rows_family(examples)
        flat = dict.fromkeys(("initial", "transition", "final", "weights", "jumps", "durations"), 1.0)
        chosen = self.prior or ConjugatePrior(**flat)
        constraints = chain.options.constraints
        of_chain: dict[str, Any] = {"has_final": self.length_ == "stop", "rows": rows, "n_rows": chain.n_rows}
        of_chain["constraints"] = constraints
        prior = prior_hyperparameters(chosen, family, chain.options.topology, chain.n_states, **of_chain)
        counts = chain.expectations(fitted, family.emission, corpus.batches, corpus.dtype)
        start, (of_transition, of_table, of_initial, of_durations) = self.model_.start_, fitted.slopes
        first = mean_initial(
            prior.initial + counts.initial * (prior.initial > 0), "free" if start != "uniform" else start
        )
        near = replace(
            rows.mean(rows.updated(prior, counts.xi, counts.final)),
            initial=first if of_initial is None else fitted.initial,
            table=family.near(fitted.table, prior.table, counts.emission) if of_table is None else fitted.table,
        )
        near = replace(
            constraints.keep(fitted, near, family.emission),
            transition_slopes=of_transition,
            table_slopes=of_table,
            initial_slopes=of_initial,
            duration_slopes=of_durations,
        )
        slopes = float(chosen.numbers("slopes", 1.0, ()))
        of_data = (slopes, corpus.batches, chain.log_prob_of_batch)
        return PosteriorDensity(self._coordinates(near, chain, family, corpus), family, rows, prior, *of_data)

    def _coordinates(
        self, parameters: Parameters, chain: HiddenChain[Any], family: EmissionPrior, corpus: Corpus | None = None
    ) -> Coordinates:
        encoding, scaling, given = self.encoding_, self.input_scaling_, None
        names = list(range(encoding.size)) if encoding.names is None else list(encoding.names)
        emitted = chain.emitted(family.emission, names, LEAST)
        if scaling is not None and self.model_._regresses:
            inputs = [np.zeros((1, len(scaling.names)))] if corpus is None or corpus.inputs is None else corpus.inputs
            given = GivenInputs.of(chain.inputs, scaling, parameters, emitted, inputs)
        start = self.model_.start_
        return Coordinates(parameters, family.emission, emitted, chain.options, start, LEAST, given, goes_far=True)

    def _relabelled(
        self,
        u: Tensor,
        chain: HiddenChain[Any],
        coordinates: Coordinates,
        reference: list[Tensor],
        batches: list[PackedBatch],
    ) -> Parameters:
        parameters, _ = coordinates.at(u)
        order = matching_order(reference, posteriors(chain, parameters, coordinates.emission, batches))
        taken = relative_to_references(chain.reordered(parameters, order))
        rates = taken.generator
        moves = taken if rates is None else replace(taken, transition=rates.clamp(min=0.0))
        # A permutation that breaks the topology or a tie gives another model; the draw then keeps its own numbers.
        options = coordinates.options
        is_another = breaks(moves, options.topology) or not options.constraints.hold(
            parameters, taken, coordinates.emission
        )
        return parameters if is_another else taken

    @property
    def _chain(self) -> HiddenChain[Any]:
        return self.model_._fitted_chain

    def _family(self) -> EmissionPrior:
        return self._chain.emission_prior(self.observation_, self.encoding_.size)

    # -- scores --------------------------------------------------------------------------------------------

    def _steps(self, examples: list[Example]) -> list[np.ndarray]:
        """Return the log-probability of each step given the steps before, under the average over draws, in nats.

        It is the increase of ``log mean_s p(x_1 .. x_t | θ_s)`` from step to step, ``(T,)`` for each encoded sequence;
        ``θ_s`` is draw s of the parameters.
        """
        chain, emission, corpus = self._chain, self._family().emission, self._corpus(examples)
        sources: list[np.ndarray | None] = [None] * len(examples)
        total: list[np.ndarray] = []
        for parameters in self._draws:
            scored = chain.scored(parameters.to(self._device()), emission, corpus, sources)
            sums = [np.cumsum(steps) for steps in scored]
            total = [np.logaddexp(a, b) for a, b in zip(total, sums, strict=True)] if total else sums
        n = np.log(len(self._draws))
        return [_increments(sums - n) for sums in total]

    def _corpus(self, examples: list[Example]) -> Corpus:
        if any(example.source is not None for example in examples):
            raise ValueError("a PosteriorHMM is p(x); pass sequences without y")
        unweighted = [replace(e, weight=1.0) for e in examples]
        return self._chain.corpus(unweighted, self._family().emission, self._device(), DTYPES[self.dtype_])

    def score_error(self, X: Any, y: Any = None) -> float:
        """Return the Monte Carlo standard error of ``score``, in nats per unit, due to the finite number of draws.

        It takes into account that draws are correlated, by their effective number. All sequences share the draws, so
        the errors of their log-probabilities do not average out over sequences. The result is NaN for fewer than four
        draws of a chain.

        Args:
            X: list of sequences, as ``score`` takes them.
            y: None, because the model is p(x).
        """
        data = checked_data(self, X, y)
        examples = self._setting().examples(data)
        chain, emission, corpus = self._chain, self._family().emission, self._corpus(examples)
        sources, n_past = [None] * len(examples), [e.n_past for e in examples]
        device = self._device()
        sums = np.stack([chain.score_sums(p.to(device), emission, corpus, sources, n_past) for p in self._draws])
        weights = np.exp(sums - sums.max(0))
        influence = (weights / weights.mean(0)).sum(1).reshape(self._n_chains, -1)
        n_effective = float(effective_size(influence))
        return float(influence.std() / np.sqrt(n_effective) / data.scored.n_units.sum())

    # -- one step at a time --------------------------------------------------------------------------------

    @checked
    def cursor(self, n_steps: int | None = None) -> Cursor:
        """Return a cursor, which reads sequences step by step and predicts each step by the average over draws.

        Draws of an HMM are one HMM with S times K states, whose S parts never lead to one another; of other chains each
        draw has a cursor of its own.

        Args:
            n_steps: not read.

        Raises:
            ValueError: all draws together have more than 4096 states.
        """
        self._setting()
        n, k = len(self._draws), self._chain.n_states
        if n * k > MANY_STATES:
            raise ValueError(
                f"{n} draws of {k} states are {n * k} states together, too many to predict step by step; thin the "
                f"draws (thinned({MANY_STATES // k}))"
            )
        draws = [parameters.to(self._device()) for parameters in self._draws]
        of_observation = self._family().emission.observation, self.encoding_.size, DTYPES[self.dtype_]
        n_inputs = 0 if self.input_scaling_ is None else len(self.input_scaling_.names)
        return cursor_of_draws(self._chain, draws, *of_observation, n_inputs)

    # -- what was drawn ------------------------------------------------------------------------------------

    @property
    def draws_(self) -> dict[str, np.ndarray]:
        """Draws of all parameters by name, in raw units, as arrays whose first axis is the draw.

        Names are those of the attributes of a fitted model without the final "_", such as ``transition (S, K, K)`` for
        S draws. The draws of one chain of the sampler come after those of the chain before it.
        """
        self._setting()
        each = [self._raw(parameters) for parameters in self._draws]
        return {name: np.stack([values[name].numpy() for values in each]) for name in each[0]}

    def _raw(self, parameters: Parameters) -> dict[str, Tensor]:
        shift, scale = (torch.as_tensor(v, dtype=torch.float64) for v in self.encoding_.affine())
        chain = {name: getattr(parameters, name) for name in CHAIN if getattr(parameters, name) is not None}
        coordinates = self._coordinates(parameters, self._chain, self._family())
        of_emission = coordinates.emitted.raw(parameters.table, shift, scale)
        return {**chain, **of_emission, **coordinates.raw_slopes(parameters, scale)}

    def summary(self) -> pd.DataFrame:
        """Return a frame with the mean, spread and quantiles of each parameter over the draws, and diagnostics.

        It has a row for each parameter. The columns are ``name`` of its array, its ``state`` and its ``feature`` (or
        symbol, next state, or pair of these); ``mean``, ``sd``, ``5%`` and ``95%`` of the draws in raw units;
        ``r_hat``, the split R-hat, which is near 1 where chains and halves of chains agree (Gelman et al. 2013, section
        11.4); and ``ess``, the effective sample size: the number of independent draws that would give the mean the same
        precision.
        """
        import pandas as pd

        draws = self.draws_
        estimates = self._coordinates(self._draws[0], self._chain, self._family()).estimates()
        values = np.stack([np.moveaxis(draws[e.name], 0, -1)[e.index] for e in estimates], -1)  # (S, R)
        by_chain = values.reshape(self._n_chains, -1, len(estimates))
        low, high = np.quantile(values, [0.05, 0.95], axis=0)
        return pd.DataFrame(
            {
                "name": [e.name for e in estimates],
                "state": pd.array([e.state for e in estimates], dtype="Int64"),
                "feature": pd.Series([e.feature for e in estimates], dtype=object),
                "mean": values.mean(0),
                "sd": values.std(0, ddof=1) if len(values) > 1 else np.nan,
                "5%": low,
                "95%": high,
                "r_hat": r_hat(by_chain),
                "ess": effective_size(by_chain),
            }
        )

    @checked
    def thinned(self, n: int) -> Self:
        """Return a copy with ``n`` of the draws, evenly spaced, which count as draws of one chain of the sampler.

        Raises:
            ValueError: ``n`` is below 1 or more than the number of draws.
        """
        self._setting()
        total = len(self._draws)
        if not 1 <= n <= total:
            raise ValueError(f"n is {n}; pass 1 to {total}, the number of draws")
        other, index = copy.copy(self), torch.linspace(0, total - 1, n).round().long()
        other._draws = [self._draws[i] for i in index.tolist()]
        other._n_chains = 1
        return other

    def models(self) -> list[HiddenChainModel]:
        """Return each draw as a fitted model with the drawn parameters, for scoring, sampling or decoding."""
        self._setting()
        result = []
        for parameters in self._draws:
            model = copy.copy(self.model_)
            model.parameters_, model._posterior = parameters, None
            result.append(model)
        return result

    # -- in a file -----------------------------------------------------------------------------------------

    def _members(self) -> dict[str, Any]:
        return {"model": self.model_}

    def _restore_members(self, members: dict[str, Any]) -> None:
        if set(members) != {"model"} or not isinstance(members["model"], HiddenChainModel):
            raise ValueError(
                f"a PosteriorHMM is made of one model of a hidden chain, but the file holds {sorted(members)}"
            )
        self.model_ = members["model"]

    def _state(self) -> dict[str, Any]:
        each = [parameters.arrays() for parameters in self._draws]
        stacked = {name: np.stack([arrays[name] for arrays in each]) for name in each[0]}
        return {**stacked, "chains": self._n_chains, "divergent": self.n_divergent_}

    def _restore(self, state: dict[str, Any]) -> None:
        arrays = {name: table for name, table in state.items() if name not in ("chains", "divergent")}
        k = len(self.model_.initial_)
        initial = array_of(arrays, "initial", np.float64, (None, k))
        n, chains, divergent = len(initial), state["chains"], state["divergent"]
        if not (isinstance(chains, int) and isinstance(divergent, int)) or chains < 1 or n < 1 or n % chains:
            raise ValueError(f"the file has {n} draws of {chains} chains, {divergent} divergent, which no fit gives")
        for name, table in arrays.items():
            if table.shape[0] != n:
                raise ValueError(f"{name} has {table.shape[0]} draws, and initial {n}")
        self.observation_.check(self.encoding_.size)
        chain, emission = self._chain, self._family().emission
        each = ({name: table[i] for name, table in arrays.items()} for i in range(n))
        self._draws = [chain.parameters_of_file(arrays, emission) for arrays in each]
        self._n_chains, self.n_divergent_ = chains, divergent


def _increments(sums: np.ndarray) -> np.ndarray:
    """Return the difference of each cumulative sum from the one before, ``(T,)``; -inf once a sum is -inf.

    ``sums (T,)`` are cumulative sums of log-probabilities; the first is its own difference.
    """
    before = np.concatenate([[0.0], sums[:-1]])
    return np.where(np.isneginf(sums), -np.inf, sums - np.where(np.isneginf(before), 0.0, before))


@checked
def sample_posterior(
    model: HiddenChainModel,
    X: Any,
    *,
    n_samples: int = 500,
    warmup: int = 300,
    chains: int = 1,
    max_tree_depth: int = 8,
    prior: ConjugatePrior | None = None,
    random_state: Seed | None = None,
    verbose: Verbose = "auto",
) -> PosteriorHMM:
    """Draw from the posterior of a fitted model's parameters by NUTS, and return the draws as a ``PosteriorHMM``.

    Nothing is fitted anew: the sampler starts near the model's parameters, and states keep its numbers.

    Args:
        model: the fitted model: an ``HMM``, ``HSMM``, ``ContinuousTimeHMM`` or ``MarkovSwitchingAR``.
        X: list of its training sequences.
        n_samples: number of draws kept of each chain of the sampler.
        warmup: number of steps of each chain before these draws, in which the sampler adapts.
        chains: number of chains of the sampler, which run one after the other.
        max_tree_depth: a draw takes at most ``2 ** max_tree_depth`` evaluations of the posterior density.
        prior: the prior of the parameters; None is the default of ``PosteriorHMM``.
        random_state: seed of the draws; None is the model's.
        verbose: True to show a progress bar.

    Raises:
        NotFittedError: the model is not fitted.
        ValueError: the observation has no prior here, or brings one of its own, or ``X`` has targets or a past.
    """
    setting = model._setting()
    seed = model.random_state if random_state is None else random_state
    options = (n_samples, warmup, chains, max_tree_depth, prior)
    result = PosteriorHMM(model, *options, random_state=seed, dtype=model.dtype_, device=model.device, verbose=verbose)
    result._check_hyperparameters()
    data = checked_data(model, Data.of(X).X)
    data.refuse_past("sample_posterior")
    apply_setting(result, setting)
    result.target_lengths_ = model.target_lengths_
    result.model_, result.history_, result.converged_ = model, model.history_, model.converged_
    result.fit_seconds_ = float(model.fit_seconds_)
    result._draw(setting.examples(data), seed)
    return result
