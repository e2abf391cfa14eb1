"""How a state emits a step: ``log p(x_t | output_parameters, past)``, shared by HMM tables and network outputs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from seqmodels.measure import Values
from seqmodels.parameters import Configurable


class Observation(Configurable, ABC):
    """A density or distribution over one encoded step, given P real numbers.

    An HMM keeps the numbers in a ``(K, P)`` table, a network projects its hidden state to them. To add one, define
    ``n_output_parameters``, ``log_prob``, ``sample``, ``distribution`` and ``starting_point``; add a file under
    ``seqmodels/hmm/emissions`` if EM is to fit it. One that needs learned weights besides, the same at every step, makes
    them in ``shared`` and gets them in ``bound``; only networks have such.

    Shapes: ``output_parameters (..., P)``; ``x (..., D)`` for vectors, ``(...)`` integers for symbols; ``past (..., p, D)``, the
    last p steps, oldest first, NaN where the sequence had not begun. ``size`` is D, or the number of symbols V.
    """

    emits: ClassVar[Literal["vectors", "symbols"]]

    def values(self, size: int) -> tuple[Values, ...]:
        """What each of ``size`` features may be: reals have a density and are standardised, bits and counts a probability."""
        reals: Values = "reals"
        return (reals,) * size

    def check(self, size: int) -> None:
        """Raise ``ValueError`` for hyperparameters that cannot be, or not with ``size`` features, before any work."""

    def shared(self, size: int) -> nn.Module | None:
        """New weights that every step's density has in common, learned with a network's; None: the output parameters say it all."""
        return None

    def bound(self, shared: nn.Module | None) -> Observation:
        """The observation with its ``shared`` weights: what is asked for densities and draws."""
        return self

    def check_table(self, table: Tensor, size: int) -> None:
        """Raise ``ValueError`` for output parameters ``(K, P)`` from a file that describe no density or distribution."""
        if table.shape[-1] != self.n_output_parameters(size):
            raise ValueError(
                f"{self!r} of {size} features or symbols has {self.n_output_parameters(size)} parameters a state, but the file has "
                f"{table.shape[-1]}"
            )
        wrong = ~self._possible(table, size).all(-1)
        if wrong.any():
            raise ValueError(f"the parameters of state {int(wrong.nonzero()[0])} are not those of {self!r}")

    def _possible(self, table: Tensor, size: int) -> Tensor:
        """``(K, any)``: False where a number, or several together, cannot be; finite numbers can."""
        return table.isfinite()

    @property
    @abstractmethod
    def n_past(self) -> int:
        """How many past steps the density looks at."""

    @property
    @abstractmethod
    def sums_out_missing(self) -> bool:
        """Whether NaN in ``x`` is marginalised exactly."""

    @abstractmethod
    def n_output_parameters(self, size: int) -> int:
        """P, the numbers that describe one state."""

    @abstractmethod
    def log_prob(self, output_parameters: Tensor, x: Tensor, past: Tensor | None = None) -> Tensor:
        """``log p(x | output_parameters, past)``, shape ``(...)``."""

    @abstractmethod
    def sample(self, output_parameters: Tensor, past: Tensor | None, generator: torch.Generator) -> Tensor:
        """One draw for each of ``output_parameters (n, P)``: ``(n, D)`` or ``(n,)``."""

    def log_probs(self, output_parameters: Tensor) -> Tensor:
        """``(..., V)`` log-probability of every symbol; ``ValueError`` for observations of vectors, which cannot be listed."""
        raise ValueError(f"the observation {self!r} emits vectors, which cannot be listed as symbols can")

    def tempered(self, output_parameters: Tensor, temperature: float) -> Tensor:
        """The output parameters ``(..., P)`` of ``p^(1/temperature)``, normalised (of a mixture: its weights and its components each).

        Raises:
            ValueError: an observation that has no such parameters.
        """
        raise ValueError(f"the observation {self!r} has no temperature; leave temperature at 1")

    @abstractmethod
    def distribution(
        self, output_parameters: Tensor, log_weights: Tensor, past: Tensor | None, shift: Tensor, scale: Tensor
    ) -> Any:
        """A Pyro distribution over ``shift + scale * x``: the mixture of K densities with normalised weights.

        Args:
            output_parameters: ``(K, P)``.
            log_weights: ``(K,)``, whose exponentials sum to one.
            past: ``(K or 1, p, D)``, encoded; None where ``n_past`` is 0.
            shift, scale: ``(D,)``, from encoded to raw units.
        """

    @abstractmethod
    def starting_point(self, size: int, generator: torch.Generator) -> Tensor:
        """``(P,)`` numbers from which gradient training starts: the bias of a network's output layer."""

    def starting_near(self, start: Tensor, total: Tensor, n: float) -> Tensor:
        """``start (P,)`` moved to ``n`` training frames that sum to ``total (D,)``: for bits and counts, which are not standardised."""
        return start

    def with_floor(self, factor: float) -> Observation:
        """With the floor of its variances times ``factor``; the same where it has none."""
        return self

    def on_floor(self, output_parameters: Tensor, size: int, factor: float) -> Tensor:
        """``output_parameters (..., P)`` with variances on the floor moved to ``factor`` times it, and none below that."""
        return output_parameters

    @abstractmethod
    def floor_hits(self, output_parameters: Tensor, size: int) -> Tensor:
        """For each of ``output_parameters (..., P)``, whether a floor set its density: ``(...)`` bool."""


def past_steps(values: Tensor, n_past: int) -> Tensor | None:
    """The last ``n_past`` steps before each of ``values (B, T, D)``: ``(B, T, n_past, D)``, NaN before the start."""
    if n_past == 0:
        return None
    padded = torch.nn.functional.pad(values, (0, 0, n_past, 0), value=float("nan"))
    return padded.unfold(1, n_past, 1)[:, :-1].transpose(-1, -2)  # (B, T, n_past, D)
