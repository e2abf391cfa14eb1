"""The base class of observations: ``log p(x_t | output_parameters, past)`` for tables of HMMs and outputs of
networks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from seqmodels.common.parameters import Configurable
from seqmodels.sequences.measure import Values


class FullConditionals(NamedTuple):
    """Log-densities of each feature of a vector given all its other features, in nats (D features).

    Attributes:
        each: ``log p(x_d | x without d)`` of each feature d, ``(..., D)``.
        others: ``log p(x without d)``, the marginal log-density of all features but d, ``(..., D)``.
    """

    each: Tensor
    others: Tensor


class LinearPrediction(NamedTuple):
    """A linear prediction of each vector from the one before, ``x_t = A x_{t-1} + c + e_t``, from which networks start.

    The errors are ``e_t ~ N(0, Σ)``, and the first step is ``x_1 ~ N(m, S)``. All arrays are float64 and in encoded
    (usually standardised) units; D is the number of features.

    Attributes:
        coefficients: A, ``(D, D)``.
        intercept: c, ``(D,)``.
        covariance: Σ, ``(D, D)``.
        first_mean: m, ``(D,)``.
        first_covariance: S, ``(D, D)``.
    """

    coefficients: Tensor
    intercept: Tensor
    covariance: Tensor
    first_mean: Tensor
    first_covariance: Tensor


class LinearOutputs(NamedTuple):
    """The parameters of a step's density as a linear function of the step before, ``bias + skip x_{t-1}``.

    At the first step of a sequence they are ``bias + first``. P is the number of parameters of the density, D the
    number of features of a step.

    Attributes:
        bias: constant term, ``(P,)``.
        skip: coefficients of the last step, ``(P, D)``.
        first: term added at the first step, ``(P,)``.
    """

    bias: Tensor
    skip: Tensor
    first: Tensor


class Observation(Configurable, ABC):
    """The base class of distributions of one encoded step of a sequence, given P real numbers, its output parameters.

    An HMM keeps the output parameters of its states in a table ``(K, P)``, one row for each state; a network projects
    its hidden state to them.

    To add one, write a dataclass (``eq=False, repr=False``) in a file of its own. Its fields are the hyperparameters,
    and it defines ``emits``, ``n_output_parameters``, ``log_prob`` and ``sample``. Networks can then train, score and
    generate with it; nothing has to be registered. All other methods have a default; override the ones that do not fit:

    - ``values``, if features are bits, counts or anything but reals. Reals come standardised; for a density of positive
      reals use ``encoding=Standardize(with_mean=False)``, which scales and does not shift.
    - ``starting_point`` and ``starting_near``, if zeros are a bad start for gradient training; ``starts_linear`` and
      ``starting_linear``, if a network can start from a linear prediction of each vector.
    - ``n_past``, for a density that depends on past steps; ``sums_out_missing``, for one that accepts NaN as a missing
      value.
    - ``distribution``, if Pyro has this distribution (the default does not know its variance); ``tempered``.
    - ``log_probs``, for symbols; ``step_log_prob``, if one step is faster without torch.
    - ``locations``, if inputs may shift its means or log-odds (``input_effects`` of hidden chains); ``location_units``
      if these have units.
    - ``full_conditionals``, the density of each feature given the others, if it follows neither from NaN nor from bits.
    - ``interval_log_prob``, if the cdf of each feature is known, for rounded or censored data.
    - ``with_floor``, ``on_floor`` and ``floor_hits``, if a floor bounds the density.
    - ``shared`` and ``bound``, for additional learned weights that are the same at every step; only networks have them.

    If EM is to fit it, also write an ``Emission`` for it (``seqmodels.hmm.emissions``).

    Shapes in all methods: ``output_parameters`` is ``(..., P)``. ``x`` is ``(..., D)`` for vectors and ``(...)``,
    integers, for symbols. ``past`` is ``(..., p, D)``, the last p steps, oldest first, with NaN for steps before the
    start of the sequence. ``size`` is D, or the number of symbols V.
    """

    emits: ClassVar[Literal["vectors", "symbols"]]

    # -- what an observation defines -----------------------------------------------------------------------

    @abstractmethod
    def n_output_parameters(self, size: int) -> int:
        """Return P, the number of real parameters that describe one density over vectors or symbols.

        Args:
            size: number of features of a vector, or of symbols of the alphabet.
        """

    @abstractmethod
    def log_prob(self, output_parameters: Tensor, x: Tensor, past: Tensor | None = None) -> Tensor:
        """Return the log-probability, or log-density, of encoded steps in nats, ``(...)``.

        The leading axes of all arguments broadcast. P is the number of parameters of a density, D of features.

        Args:
            output_parameters: parameters of the density of each step, ``(..., P)``.
            x: encoded steps, vectors ``(..., D)`` or integer symbols ``(...)``.
            past: the last p steps before each step, oldest first, ``(..., p, D)``, with NaN before the start of the
                sequence; None if the density does not depend on them.
        """

    @abstractmethod
    def sample(self, output_parameters: Tensor, past: Tensor | None, generator: torch.Generator) -> Tensor:
        """Draw one encoded step from each of n densities: vectors ``(n, D)`` or integer symbols ``(n,)``.

        Args:
            output_parameters: the P parameters of each density, ``(n, P)``.
            past: the last p steps before each step, oldest first, ``(n, p, D)``; None if the density does not depend on
                them.
            generator: source of random numbers.
        """

    # -- what it may define --------------------------------------------------------------------------------

    def step_log_prob(self, output_parameters: np.ndarray, x: np.ndarray) -> float:
        """Return the log-probability, or log-density, of a single encoded step in nats, computed on NumPy arrays.

        Scoring step by step calls this method, because a NumPy call costs less than a torch call for one step.

        Args:
            output_parameters: the P parameters of the density, ``(P,)``.
            x: the encoded step: a vector ``(D,)``, or the number of a symbol, ``()``.
        """
        parameters, value = torch.from_numpy(output_parameters), torch.as_tensor(x)
        with torch.no_grad():  # weights that all steps share are a network's
            return float(self.log_prob(parameters, value.to(parameters) if value.is_floating_point() else value))

    @property
    def n_past(self) -> int:
        """The number of past steps that the density depends on."""
        return 0

    @property
    def sums_out_missing(self) -> bool:
        """True if NaN in a vector is accepted as a missing value, which is then marginalised out exactly."""
        return False

    @property
    def has_marginal_cdfs(self) -> bool:
        """True if the cumulative distribution function (cdf) of each feature by itself is known.

        It is computed by ``marginal_cdfs`` or, for angles, from ``trigonometric_moments``.
        """
        return False

    def marginal_cdfs(self, output_parameters: Tensor, x: Tensor, past: Tensor | None = None) -> Tensor:
        """Return the cumulative probability ``P(X_d <= x_d)`` of each feature, ``(..., D)`` float64 on the CPU.

        If features only take certain values, such as whole numbers, ``x`` should hold such values; between them the
        result is a smooth continuation. The cdf of an angle is not defined: see ``trigonometric_moments``.

        Args:
            output_parameters: the P parameters of each density, ``(..., P)``.
            x: encoded vectors of D features, ``(..., D)``.
            past: the last p steps before each step, oldest first, ``(..., p, D)``; None if the density does not depend
                on them.

        Raises:
            NotImplementedError: if the observation has no known cdf.
        """
        raise NotImplementedError(f"{self!r} does not know the cdf of each feature")

    def marginal_log_probs(self, output_parameters: Tensor, x: Tensor) -> Tensor:
        """Return the marginal log-density, or log-probability, of each feature in nats, ``(..., D)`` float64.

        Args:
            output_parameters: the P parameters of each density, ``(..., P)``.
            x: encoded vectors of D features, ``(..., D)``.

        Raises:
            NotImplementedError: if the observation has no known density of single features.
        """
        raise NotImplementedError(f"{self!r} does not know the density of each feature")

    def marginal_means(self, output_parameters: Tensor) -> Tensor:
        """Return the mean of each feature in encoded units, ``(..., D)`` float64 on the CPU; NaN if there is none.

        Args:
            output_parameters: the P parameters of each density, ``(..., P)``.

        Raises:
            NotImplementedError: if the observation has no known mean.
        """
        raise NotImplementedError(
            f"the mean of {self!r} is not known in closed form; estimate it from draws: sample([10_000]).mean(0)"
        )

    def trigonometric_moments(self, output_parameters: Tensor) -> Tensor:
        """Return the moments ``E exp(i j x_d)`` of each angle x_d for j = 1 to J, ``(..., J, D)``, complex, on the CPU.

        The observation chooses J so large that the moments after J are negligible.

        Args:
            output_parameters: the P parameters of each density of D angles, ``(..., P)``.

        Raises:
            NotImplementedError: if the features are not angles, or their moments are not known.
        """
        raise NotImplementedError(f"{self!r} does not know the trigonometric moments of each feature")

    def nearest(self, x: Tensor) -> Tensor:
        """Return encoded vectors rounded to the nearest possible values, ``(..., D)``; unchanged for continuous values.

        Args:
            x: encoded vectors of D features, ``(..., D)``.
        """
        return x

    def values(self, size: int) -> tuple[Values, ...]:
        """Return the kind of values of each feature, such as ``"reals"``, ``"bits"`` or ``"counts"``.

        Reals are standardised before training and have a density; bits and counts are not standardised and have
        probabilities.

        Args:
            size: number of features.
        """
        reals: Values = "reals"
        return (reals,) * size

    def has_heavy_tails(self, size: int) -> tuple[bool, ...]:
        """Return for each feature True if outliers are likely, so that its scale must be estimated robustly.

        Args:
            size: number of features.
        """
        return (False,) * size

    def locations(self, size: int) -> list[slice]:
        """Return the slices of the parameters of a density that inputs shift linearly, if emissions depend on inputs.

        The L parameters in these slices are called locations; means and log-odds are examples. The list is empty by
        default, and a model whose emissions depend on inputs then refuses the observation.

        Args:
            size: number of features or symbols.
        """
        return []

    def location_units(self, scale: Tensor) -> Tensor:
        """Return the size in raw units of one encoded unit of each location, ``(L,)``.

        Locations are the L parameters of a density that inputs can shift, such as means or log-odds. The result is ones
        by default, because log-means and log-odds have no unit.

        Args:
            scale: size of one encoded unit of each of D features in raw units, ``(D,)``.
        """
        return scale.new_ones(sum(each.stop - each.start for each in self.locations(len(scale))))

    def location_labels(self, names: Sequence[Any]) -> list[Any]:
        """Return a label for each location, a parameter such as a mean that inputs can shift; by default ``names``.

        Args:
            names: names of the D features or of the symbols.
        """
        return list(names)

    def check(self, size: int) -> None:
        """Raise ValueError if a hyperparameter is out of range or does not fit the data.

        Args:
            size: number of features of the vectors, or of symbols.
        """

    def starting_point(self, size: int, generator: torch.Generator) -> Tensor:
        """Return the parameters of a density, ``(P,)``, from which gradient training of a network starts.

        They are the first bias of the network's output layer.

        Args:
            size: number of features or symbols.
            generator: source of random numbers, if any are needed.
        """
        return torch.zeros(self.n_output_parameters(size))

    def starting_near(self, start: Tensor, total: Tensor, n: float) -> Tensor:
        """Return the parameters of a density moved to the mean of the training data, where gradient training starts.

        By default ``start`` is returned unchanged, which suits standardised features.

        Args:
            start: the P parameters of the density before the change, ``(P,)``.
            total: sum of the training vectors, ``(D,)``; for symbols, the number of times each occurs, ``(V,)``.
            n: number of training steps in ``total``.
        """
        return start

    @property
    def starts_linear(self) -> bool:
        """True if ``starting_linear`` can start a network as a linear prediction of each vector from the one before."""
        return False

    def starting_linear(self, start: Tensor, linear: LinearPrediction) -> LinearOutputs:
        """Return parameters, as a linear function of the last step, of a density close to a given linear prediction.

        Args:
            start: parameters of a density, ``(P,)``, which make the components of a mixture differ from each other.
            linear: a linear prediction of each vector from the one before.

        Raises:
            NotImplementedError: if the observation cannot start from a linear prediction.
        """
        raise NotImplementedError(f"{self!r} cannot start from a linear prediction")

    def log_probs(self, output_parameters: Tensor) -> Tensor:
        """Return the log-probability of every one of V symbols in nats, ``(..., V)``.

        Args:
            output_parameters: the P parameters of each distribution over symbols, ``(..., P)``.

        Raises:
            ValueError: if the observation emits vectors.
        """
        raise ValueError(f"the observation {self!r} emits vectors, which cannot be enumerated as symbols can")

    def tempered(self, output_parameters: Tensor, temperature: float) -> Tensor:
        """Return the parameters of the normalised density ``p^(1/temperature)`` for each density p, ``(..., P)``.

        For a mixture, the weights and each component are raised to that power, not their sum.

        Args:
            output_parameters: the P parameters of each density p, ``(..., P)``.
            temperature: a number above 0; below 1 the density becomes sharper, above 1 flatter.

        Raises:
            ValueError: if no output parameters give that density.
        """
        raise ValueError(f"the observation {self!r} has no temperature; leave temperature at 1")

    def distribution(
        self, output_parameters: Tensor, *, log_weights: Tensor, past: Tensor | None, shift: Tensor, scale: Tensor
    ) -> Any:
        """Return a mixture of K densities of this kind as a Pyro distribution over raw values ``shift + scale * x``.

        Args:
            output_parameters: the P parameters of each density, ``(K, P)``.
            log_weights: log-weight of each density, ``(K,)``; the weights sum to one.
            past: the last p encoded steps before, oldest first, ``(K or 1, p, D)``; None if the densities do not depend
                on them.
            shift, scale: map from encoded x to raw units, each ``(D,)``; not used for symbols.
        """
        # Imported here: Pyro is slow to import and off the hot path. Parameters are always validated, although
        # torch.compile sets the default of all distributions to not.
        if self.emits == "symbols":
            from pyro.distributions import Categorical

            joint = log_weights.unsqueeze(-1) + self.log_probs(output_parameters)  # (K, V)
            return Categorical(logits=torch.logsumexp(joint, dim=0), validate_args=True)
        from seqmodels.observations.pyro_mixtures import MixtureOfObservations

        return MixtureOfObservations(
            self,
            output_parameters,
            log_weights=log_weights,
            past=past,
            shift=shift,
            scale=scale,
            is_density=self.grid(len(shift)) is None,
        )

    # -- one feature given the others ----------------------------------------------------------------------

    def has_full_conditionals(self, size: int) -> bool:
        """Return True if ``full_conditionals``, the density of each feature given all others, can be computed.

        By default it can for observations that marginalise out missing values (NaN), and for features that are all
        bits.

        Args:
            size: number of features.
        """
        return self.emits == "vectors" and (self.sums_out_missing or set(self.values(size)) == {"bits"})

    def full_conditionals(self, output_parameters: Tensor, x: Tensor, past: Tensor | None = None) -> FullConditionals:
        """Return the log-density of each feature given all others, and of all others, in nats, each ``(..., D)``.

        Args:
            output_parameters: the P parameters of each density, ``(..., P)``.
            x: encoded vectors of D features, ``(..., D)``.
            past: the last p steps before each step, oldest first, ``(..., p, D)``; None if the density does not depend
                on them.

        Raises:
            ValueError: if a single feature cannot be marginalised out of the density.
        """
        size = x.shape[-1]
        if not self.has_full_conditionals(size):
            raise ValueError(f"{self!r} does not know its density without one of the features")
        joint = self.log_prob(output_parameters, x, past).unsqueeze(-1)
        is_left_out = torch.eye(size, dtype=torch.bool, device=x.device)
        if self.sums_out_missing:
            without = [self.log_prob(output_parameters, x.masked_fill(row, torch.nan), past) for row in is_left_out]
            others = torch.stack(without, -1)
        else:  # bits: the other value of a feature is the only one that x has not
            flipped = [self.log_prob(output_parameters, torch.where(row, 1 - x, x), past) for row in is_left_out]
            others = torch.logaddexp(joint, torch.stack(flipped, -1))
        return FullConditionals(joint - others, others)

    # -- intervals -----------------------------------------------------------------------------------------

    @property
    def has_interval_probabilities(self) -> bool:
        """True if ``interval_log_prob`` is known, so that the observation can be used for rounded or censored data."""
        return False

    def interval_log_prob(self, output_parameters: Tensor, low: Tensor, high: Tensor) -> Tensor:
        """Return ``log p(low_d <= x_d < high_d for all features d)`` in nats, ``(...)``.

        Args:
            output_parameters: the P parameters of each density, ``(..., P)``.
            low, high: ends of the interval of each of D features in encoded units, each ``(..., D)``; NaN in both means
                that the feature is missing.

        Raises:
            ValueError: if the observation has no known probability of intervals.
        """
        raise ValueError(f"{self!r} does not know the probability of an interval")

    # -- raw units -----------------------------------------------------------------------------------------

    def grid(self, size: int) -> tuple[float, ...] | None:
        """Return the spacing of the possible values of each feature in raw units; None if features are not rounded.

        Args:
            size: number of features.
        """
        return None

    def in_units(self, scale: tuple[float, ...]) -> Observation:
        """Return this observation as it applies to encoded vectors whose units are known.

        Only observations that know the raw unit of their features, such as ``Rounded``, return another observation than
        themselves.

        Args:
            scale: size of one encoded unit of each of D features in raw units.
        """
        return self

    # -- floors of variances -------------------------------------------------------------------------------

    def with_floor(self, factor: float) -> Observation:
        """Return a copy of the observation whose lower bound of variances (the floor) is multiplied by a number.

        An observation without a floor returns itself.

        Args:
            factor: the number, above 0.
        """
        return self

    def on_floor(self, output_parameters: Tensor, size: int, factor: float) -> Tensor:
        """Return the parameters of densities after raising variances to at least ``factor`` times their floor.

        The result is ``(..., P)``. The floor is the observation's lower bound of variances. Variances that are on the
        floor are set to exactly ``factor`` times the floor, even if ``factor`` is below 1.

        Args:
            output_parameters: the P parameters of each density, ``(..., P)``.
            size: number of features.
            factor: the multiple of the floor.
        """
        return output_parameters

    def floor_hits(self, output_parameters: Tensor, size: int) -> Tensor:
        """Return True for each density that has a variance at its floor, the lower bound of variances, ``(...)`` bool.

        Args:
            output_parameters: the P parameters of each density, ``(..., P)``.
            size: number of features.
        """
        return torch.zeros(output_parameters.shape[:-1], dtype=torch.bool, device=output_parameters.device)

    # -- weights that all steps share ----------------------------------------------------------------------

    def shared(self, size: int) -> nn.Module | None:
        """Return new weights that the observation has beside its output parameters, or None if it has none.

        A network learns them together with its own. The same weights hold at every step.

        Args:
            size: number of features or symbols.
        """
        return None

    def bound(self, shared: nn.Module | None) -> Observation:
        """Return a copy of the observation that uses given learned weights; itself if the observation has no weights.

        Args:
            shared: weights as the method ``shared`` creates them, or None for an observation without any.
        """
        return self

    def on_cpu(self) -> Observation:
        """Return the observation with its learned weights, if it has any, on the CPU."""
        return self

    # -- tables from files ---------------------------------------------------------------------------------

    def check_table(self, table: Tensor, size: int) -> None:
        """Raise ValueError if a row of a table of parameters, read from a file, describes no density.

        Args:
            table: the P parameters of the density of each of K states, ``(K, P)``.
            size: number of features or symbols.
        """
        expected = self.n_output_parameters(size)
        if table.shape[-1] != expected:
            raise ValueError(
                f"{self!r} of {size} features or symbols has {expected} parameters for each state, but the file has "
                f"{table.shape[-1]}"
            )
        wrong = ~self.is_valid(table, size).all(-1)
        if wrong.any():
            raise ValueError(f"the parameters of state {int(wrong.nonzero()[0])} are not valid for {self!r}")

    def is_valid(self, table: Tensor, size: int) -> Tensor:
        """Return a bool array ``(K, n)`` that is False where a parameter of a density has a value that is not allowed.

        The second axis has one entry for each parameter, or for each group of parameters that is checked together. By
        default all finite numbers are allowed.

        Args:
            table: the P parameters of the density of each of K states, ``(K, P)``.
            size: number of features or symbols.
        """
        return table.isfinite()


def full_conditionals_of_independent(terms: Tensor) -> FullConditionals:
    """Return the log-density of each feature given all others, if the D features of a vector are independent.

    Args:
        terms: log-density of each feature by itself, ``(..., D)``.
    """
    is_left_out = torch.eye(terms.shape[-1], dtype=torch.bool, device=terms.device)
    # The sum is taken separately for each feature, because subtracting a large term from the total would lose the
    # digits of the small ones.
    return FullConditionals(terms, torch.where(is_left_out, 0.0, terms.unsqueeze(-2)).sum(-1))


def full_conditionals_of_mixture(log_weights: Tensor, components: FullConditionals) -> FullConditionals:
    """Return the log-density of each feature given all others under a mixture, from those of its M components.

    ``p(x_d | x without d) = Σ_m p(m | x without d) p_m(x_d | x without d)``; the result is NaN if the other features
    have probability zero.

    Args:
        log_weights: log-weight of each component, ``(..., M)``.
        components: log-densities of the D features under each component, arrays ``(..., M, D)``.
    """
    joint = log_weights.unsqueeze(-1) + components.others
    others = torch.logsumexp(joint, -2)
    posterior = joint - others.unsqueeze(-2)
    return FullConditionals(torch.logsumexp(posterior + components.each, -2), others)
