"""How a state emits a step: ``log p(x_t | output_parameters, past)``, shared by HMM tables and network outputs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from seqmodels.common.parameters import Configurable
from seqmodels.sequences.measure import Values


class FullConditionals(NamedTuple):
    """``log p(x_d | x without d)`` and ``log p(x without d)`` of each feature d, both ``(..., D)`` nats."""

    each: Tensor
    others: Tensor


class LinearPrediction(NamedTuple):
    """``x_t = A x_{t-1} + c + e_t``, ``e_t ~ N(0, Σ)``, and ``x_1 ~ N(m, S)``; encoded units, float64.

    Attributes:
        coefficients: A ``(D, D)``.
        intercept: c ``(D,)``.
        covariance: Σ ``(D, D)``.
        first_mean: m ``(D,)``.
        first_covariance: S ``(D, D)``.
    """

    coefficients: Tensor
    intercept: Tensor
    covariance: Tensor
    first_mean: Tensor
    first_covariance: Tensor


class LinearOutputs(NamedTuple):
    """Output parameters as a linear function of the last step, ``bias + skip x_{t-1}``, and ``bias + first`` without.

    Attributes:
        bias: ``(P,)``.
        skip: ``(P, D)``.
        first: ``(P,)``.
    """

    bias: Tensor
    skip: Tensor
    first: Tensor


class Observation(Configurable, ABC):
    """A density or distribution over one encoded step, given P real numbers: the output parameters.

    An HMM keeps them in a ``(K, P)`` table, one row a state; a network projects its hidden state to them.

    To add one, write a dataclass (``eq=False, repr=False``) in a file of its own: its fields are the hyperparameters,
    and it defines ``emits``, ``n_output_parameters``, ``log_prob`` and ``sample``. Networks then train, score and
    generate with it, and nothing has to be registered. All else has a default, to be overridden where it does not fit:

    - ``values``, where features are bits or counts. Reals come standardised; a density of positive reals is used with
      ``encoding=Standardize(with_mean=False)``, which scales and does not shift.
    - ``starting_point`` and ``starting_near``, where zeros are no good start for gradient training; ``starts_linear``
      and ``starting_linear``, where a network can start from a linear prediction of each vector.
    - ``n_past``, for a density that looks at past steps; ``sums_out_missing``, for one that takes NaN.
    - ``distribution``, where Pyro has this one (by default its mean and variance are not known); ``tempered``.
    - ``log_probs``, for symbols; ``step_log_prob``, where one step is faster without torch.
    - ``full_conditionals`` of each feature given the others, where neither NaN nor bits give it.
    - ``interval_log_prob``, where the cdf of each feature is known: for data that are rounded or censored.
    - ``with_floor``, ``on_floor`` and ``floor_hits``, where a floor bounds the density.
    - ``shared`` and ``bound``, for learned weights besides, the same at every step; only networks have such.

    If EM is to fit it, write an ``Emission`` for it too (``seqmodels.hmm.emissions``).

    Shapes: ``output_parameters (..., P)``; ``x (..., D)`` for vectors, ``(...)`` integers for symbols; ``past (..., p,
    D)``, the last p steps, oldest first, NaN where the sequence had not begun. ``size`` is D, or the number of symbols
    V.
    """

    emits: ClassVar[Literal["vectors", "symbols"]]

    # -- what an observation defines -----------------------------------------------------------------------

    @abstractmethod
    def n_output_parameters(self, size: int) -> int:
        """P, the numbers that describe one state."""

    @abstractmethod
    def log_prob(self, output_parameters: Tensor, x: Tensor, past: Tensor | None = None) -> Tensor:
        """``log p(x | output_parameters, past)``, nats ``(...)``; the arguments' leading axes broadcast."""

    @abstractmethod
    def sample(self, output_parameters: Tensor, past: Tensor | None, generator: torch.Generator) -> Tensor:
        """One draw for each of ``output_parameters (n, P)``: ``(n, D)`` or ``(n,)``."""

    # -- what it may define --------------------------------------------------------------------------------

    def step_log_prob(self, output_parameters: np.ndarray, x: np.ndarray) -> float:
        """``log_prob`` of one step ``x (D,)`` or ``()``, given ``output_parameters (P,)`` alone, both arrays; nats.

        For streams of single steps, in which a call of NumPy costs less than one of torch.
        """
        parameters, value = torch.from_numpy(output_parameters), torch.as_tensor(x)
        with torch.no_grad():  # weights that all steps share are a network's
            return float(self.log_prob(parameters, value.to(parameters) if value.is_floating_point() else value))

    @property
    def n_past(self) -> int:
        """How many past steps the density looks at."""
        return 0

    @property
    def sums_out_missing(self) -> bool:
        """Whether NaN in ``x`` is marginalised exactly."""
        return False

    @property
    def has_marginal_cdfs(self) -> bool:
        """Whether the cdf of each feature by itself is known.

        It is known by the methods ``marginal_`` or, where the observation looks at past steps or features vary
        together, from ``distribution``, which then is a mixture of Gaussians.
        """
        return False

    def marginal_cdfs(self, output_parameters: Tensor, x: Tensor) -> Tensor:
        """``P(X_d <= x_d)`` of each feature of ``x (..., D)`` by itself, ``(..., D)`` float64 on the CPU.

        Where only some values can be, x are such values, and between them the function is smooth. It is not defined
        for angles: see ``trigonometric_moments``.

        Raises:
            NotImplementedError: an observation of which it is not known.
        """
        raise NotImplementedError(f"{self!r} does not know the cdf of each feature")

    def marginal_log_probs(self, output_parameters: Tensor, x: Tensor) -> Tensor:
        """``log p(x_d)`` of each feature of ``x (..., D)`` by itself, ``(..., D)`` float64.

        Raises:
            NotImplementedError: an observation of which it is not known.
        """
        raise NotImplementedError(f"{self!r} does not know the density of each feature")

    def marginal_means(self, output_parameters: Tensor) -> Tensor:
        """The mean of each feature by itself, ``(..., D)`` float64 on the CPU, NaN where none exists.

        Raises:
            NotImplementedError: an observation of which it is not known.
        """
        raise NotImplementedError(
            f"the mean of {self!r} is not known in closed form; take that of draws, as sample([10_000]).mean(0)"
        )

    def trigonometric_moments(self, output_parameters: Tensor) -> Tensor:
        """Of angles ``E exp(i j x_d)`` for j of 1 to J, ``(..., J, D)`` complex on the CPU; those after J are 0.

        Raises:
            NotImplementedError: an observation that is not of angles, or does not know them.
        """
        raise NotImplementedError(f"{self!r} does not know the trigonometric moments of each feature")

    def nearest(self, x: Tensor) -> Tensor:
        """The value nearest to encoded ``x (..., D)`` among those that it emits; x itself where they are on no grid."""
        return x

    def values(self, size: int) -> tuple[Values, ...]:
        """What each of ``size`` features may be: reals have a density and are standardised, bits and counts do not."""
        reals: Values = "reals"
        return (reals,) * size

    def has_heavy_tails(self, size: int) -> tuple[bool, ...]:
        """Whether each of ``size`` features may have outliers, which then do not set the units that it comes in."""
        return (False,) * size

    def check(self, size: int) -> None:
        """Raise ``ValueError`` for hyperparameters that cannot be, or not with ``size`` features, before any work."""

    def starting_point(self, size: int, generator: torch.Generator) -> Tensor:
        """``(P,)`` numbers from which gradient training starts: the bias of a network's output layer."""
        return torch.zeros(self.n_output_parameters(size))

    def starting_near(self, start: Tensor, total: Tensor, n: float) -> Tensor:
        """``start (P,)`` moved to ``n`` training frames that sum to ``total (D,)``, where they are not standardised.

        Of symbols ``total (V,)`` is how often each of them stands among the ``n``.
        """
        return start

    @property
    def starts_linear(self) -> bool:
        """Whether a network of this observation starts from a linear prediction, by ``starting_linear``."""
        return False

    def starting_linear(self, start: Tensor, linear: LinearPrediction) -> LinearOutputs:
        """Output parameters whose density is about this linear prediction's; ``start (P,)`` tells components apart."""
        raise NotImplementedError(f"{self!r} starts from no linear prediction")

    def log_probs(self, output_parameters: Tensor) -> Tensor:
        """``(..., V)`` log-probability of every symbol; ``ValueError`` for observations of vectors."""
        raise ValueError(f"the observation {self!r} emits vectors, which cannot be listed as symbols can")

    def tempered(self, output_parameters: Tensor, temperature: float) -> Tensor:
        """The output parameters ``(..., P)`` of ``p^(1/temperature)``, normalised.

        Of a mixture the weights and each component are raised to that power, not their sum.

        Raises:
            ValueError: an observation that has no such output parameters.
        """
        raise ValueError(f"the observation {self!r} has no temperature; leave temperature at 1")

    def distribution(
        self, output_parameters: Tensor, *, log_weights: Tensor, past: Tensor | None, shift: Tensor, scale: Tensor
    ) -> Any:
        """A Pyro distribution over ``shift + scale * x``: the mixture of K densities with normalised weights.

        Args:
            output_parameters: ``(K, P)``.
            log_weights: ``(K,)``, whose exponentials sum to one.
            past: ``(K or 1, p, D)``, encoded; None where ``n_past`` is 0.
            shift, scale: ``(D,)``, from encoded to raw units; not for symbols.
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
        """Whether ``full_conditionals`` of ``size`` features is known: it is where NaN is summed out, and for bits."""
        return self.emits == "vectors" and (self.sums_out_missing or set(self.values(size)) == {"bits"})

    def full_conditionals(self, output_parameters: Tensor, x: Tensor, past: Tensor | None = None) -> FullConditionals:
        """Each feature of ``x (..., D)`` given all others, and all others without it.

        Raises:
            ValueError: a density whose features cannot be summed out.
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
        """Whether ``interval_log_prob`` is known, which ``Rounded`` and ``IntervalCensored`` ask for."""
        return False

    def interval_log_prob(self, output_parameters: Tensor, low: Tensor, high: Tensor) -> Tensor:
        """``log p(low_d <= x_d < high_d of all d)``, nats ``(...)``; both ends ``(..., D)``, NaN where d is missing.

        Raises:
            ValueError: a density of which it is not known.
        """
        raise ValueError(f"{self!r} does not know the probability of an interval")

    # -- vectors that are shifted --------------------------------------------------------------------------

    def shifted_means(self, output_parameters: Tensor, offset: Tensor, past: Tensor | None = None) -> Tensor:
        """``(..., M, D)`` means of the M Gaussians whose mixture x is, where ``x - offset (..., D)`` has this density.

        ``past`` is that of x, so that the density's is ``past - offset``.

        Raises:
            ValueError: a density that is no mixture of Gaussians.
        """
        raise ValueError(f"the observation {self!r} is no mixture of Gaussians, so its vectors have no offset")

    def mixture_precisions(
        self, output_parameters: Tensor, size: int, past: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Log-weights ``(..., M)`` of these Gaussians, and lower triangular L ``(..., M, D, D)``: precision ``L Lᵀ``.

        Raises:
            ValueError: a density that is no mixture of Gaussians.
        """
        raise ValueError(f"the observation {self!r} is no mixture of Gaussians, so its vectors have no offset")

    # -- raw units -----------------------------------------------------------------------------------------

    def grid(self, size: int) -> tuple[float, ...] | None:
        """The widths ``(D,)``, in raw units, of the grid whose points it emits; None: its values lie on none."""
        return None

    def in_units(self, scale: tuple[float, ...]) -> Observation:
        """The observation of vectors of which an encoded unit is ``scale (D,)`` raw ones; most do not depend on it."""
        return self

    # -- floors of variances -------------------------------------------------------------------------------

    def with_floor(self, factor: float) -> Observation:
        """With the floor of its variances times ``factor``; the same where it has none."""
        return self

    def on_floor(self, output_parameters: Tensor, size: int, factor: float) -> Tensor:
        """The output parameters with variances on the floor moved to ``factor`` times it, and none below that."""
        return output_parameters

    def floor_hits(self, output_parameters: Tensor, size: int) -> Tensor:
        """For each of ``output_parameters (..., P)``, whether a floor set its density: ``(...)`` bool."""
        return torch.zeros(output_parameters.shape[:-1], dtype=torch.bool, device=output_parameters.device)

    # -- weights that all steps share ----------------------------------------------------------------------

    def shared(self, size: int) -> nn.Module | None:
        """New weights that all steps have in common, learned with a network's; None: output parameters say it all."""
        return None

    def bound(self, shared: nn.Module | None) -> Observation:
        """The observation with its ``shared`` weights: the one whose densities and draws a network takes."""
        return self

    def on_cpu(self) -> Observation:
        """The observation with the weights it is bound to on the CPU."""
        return self

    # -- tables from files ---------------------------------------------------------------------------------

    def check_table(self, table: Tensor, size: int) -> None:
        """Raise ``ValueError`` for output parameters ``(K, P)`` from a file that are of no density."""
        expected = self.n_output_parameters(size)
        if table.shape[-1] != expected:
            raise ValueError(
                f"{self!r} of {size} features or symbols has {expected} parameters a state, but the file has "
                f"{table.shape[-1]}"
            )
        wrong = ~self.is_valid(table, size).all(-1)
        if wrong.any():
            raise ValueError(f"the parameters of state {int(wrong.nonzero()[0])} are not those of {self!r}")

    def is_valid(self, table: Tensor, size: int) -> Tensor:
        """``(K, any)``: False where a number, or several together, describe no density; by default finite ones do."""
        return table.isfinite()


def full_conditionals_of_independent(terms: Tensor) -> FullConditionals:
    """Of features that are independent, with ``log p(x_d)`` ``(..., D)``."""
    is_left_out = torch.eye(terms.shape[-1], dtype=torch.bool, device=terms.device)
    # Added up anew for each feature: the sum of all minus a large one would lose the small ones.
    return FullConditionals(terms, torch.where(is_left_out, 0.0, terms.unsqueeze(-2)).sum(-1))


def full_conditionals_of_mixture(log_weights: Tensor, components: FullConditionals) -> FullConditionals:
    """Of a mixture with log-weights ``(..., M)``, from those of its components ``(..., M, D)``.

    ``p(x_d | x without d) = Σ_m p(m | x without d) p_m(x_d | x without d)``; NaN where the others are impossible.
    """
    joint = log_weights.unsqueeze(-1) + components.others
    others = torch.logsumexp(joint, -2)
    posterior = joint - others.unsqueeze(-2)
    return FullConditionals(torch.logsumexp(posterior + components.each, -2), others)
