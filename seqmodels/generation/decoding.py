"""Drawing of the next step from a model's prediction: temperature, top-k, nucleus and min-p sampling; scores are
unaffected.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from seqmodels.common.parameters import check_fields
from seqmodels.generation.cursor import Cursor, CursorState, Prediction

BELOW_ONE = 1 - 2.0**-52  # a uniform number times this, times a total, is below the total


@dataclass(frozen=True)
class Decoding:
    """The settings of the distribution from which steps are drawn; the default is the model's own distribution.

    For symbols, and the end among them if the model predicts ends, ``p^(1/temperature)`` is normalised first. A symbol
    is then kept if it passes every one of ``top_k``, ``top_p`` and ``min_p``, and the remaining probabilities are
    normalised again. The hidden states of an HMM are summed out first.

    Args:
        temperature: exponent 1/temperature of the probabilities; 0 takes the most probable symbol (greedy). For
            vectors, it raises the weights of states and of mixture components to the power 1/temperature, multiplies
            covariances by ``temperature`` and divides the log-odds of bits by it; ends are drawn unchanged.
        top_k: number of most probable symbols that are kept; of equally probable ones, the lowest. None keeps all.
        top_p: the fewest most probable symbols are kept whose probabilities sum to at least this number (Holtzman et
            al. 2020, *The curious case of neural text degeneration*). None keeps all.
        min_p: symbols are kept that are at least this fraction as probable as the most probable one (Nguyen et al.
            2024, *Min-p sampling*). None keeps all.

    Raises:
        ValueError: if a number is out of its range.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        if not 0 <= self.temperature < math.inf:
            raise ValueError(
                f"temperature is {self.temperature}; pass a finite number, 0 (greedy) or more; 1 draws as the model "
                "says"
            )
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"top_k is {self.top_k}; pass at least 1, or None to keep every symbol")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ValueError(f"top_p is {self.top_p}; pass a probability above 0, or None to keep every symbol")
        if self.min_p is not None and not 0 <= self.min_p <= 1:
            raise ValueError(f"min_p is {self.min_p}; pass a fraction from 0 to 1, or None to keep every symbol")

    @property
    def truncates(self) -> bool:
        """True if some symbols may be left out, because ``top_k``, ``top_p`` or ``min_p`` is set."""
        return self.top_k is not None or self.top_p is not None or self.min_p is not None

    def check_for_vectors(self) -> None:
        """Check that no setting is set that applies to symbols only, before vectors are drawn.

        Raises:
            ValueError: if ``top_k``, ``top_p`` or ``min_p`` is set, or ``temperature`` is 0.
        """
        if self.truncates or self.temperature == 0:
            raise ValueError(
                "top_k, top_p, min_p and temperature=0 select symbols, but vectors have a density; pass a temperature "
                "above 0, or none of them"
            )

    def probabilities(self, log_probs: Tensor) -> Tensor:
        """Return the probabilities from which symbols are drawn under these settings, ``(n, V)``.

        With ``top_k``, ``top_p`` or ``min_p``, a row need not sum to one. A row without a possible symbol is all zeros.

        Args:
            log_probs: the model's log-probabilities of V symbols for n sequences, ``(n, V)``; the end, if the model
                predicts it, is one of the V columns.
        """
        if self.temperature == 0:
            best = torch.nn.functional.one_hot(log_probs.argmax(-1), log_probs.shape[-1])
            return best.to(log_probs.dtype) * log_probs.isfinite().any(-1, keepdim=True)
        p = torch.nan_to_num(torch.softmax(log_probs / self.temperature, dim=-1))
        return self._truncated(p) if self.truncates else p

    def _truncated(self, p: Tensor) -> Tensor:
        ordered, order = p.sort(dim=-1, descending=True, stable=True)
        kept = torch.ones_like(ordered, dtype=torch.bool)
        if self.top_k is not None:
            kept[:, self.top_k :] = False
        if self.top_p is not None:
            kept &= ordered.cumsum(-1) - ordered < self.top_p  # the probability of those before it
        if self.min_p is not None:
            kept &= ordered >= self.min_p * ordered[:, :1]
        return torch.where(torch.zeros_like(kept).scatter(-1, order, kept), p, 0.0)


ANCESTRAL = Decoding()  # ancestral sampling: the model's own distribution


@dataclass(frozen=True)
class Draw:
    """A next step of n sequences that was drawn from their predictions.

    Attributes:
        x: the steps, vectors of D features, ``(n, D)``, or symbols, ``(n,)``; meaningless for rows that ended or are
            impossible.
        ended: bool ``(n,)``, True if the sequence ended before the step; None if no sequence can end.
        impossible: bool ``(n,)``, True if neither a step nor an end was possible; None if that never happens.
    """

    x: Tensor
    ended: Tensor | None
    impossible: Tensor | None


@dataclass(frozen=True)
class Draws:
    """T consecutive drawn steps of n sequences.

    Attributes:
        x: the steps, vectors of D features, ``(T, n, D)``, or symbols, ``(T, n)``; meaningless after the end of a
            sequence.
        ended: bool ``(T, n)``, True if the sequence ended before the step; None if no sequence can end.
        impossible: bool ``(T, n)``, True if neither a step nor an end was possible; None if that never happens.
    """

    x: Tensor
    ended: Tensor | None
    impossible: Tensor | None

    @classmethod
    def single(cls, step: Draw) -> Draws:
        ended, impossible = step.ended, step.impossible
        return cls(
            step.x.unsqueeze(0),
            None if ended is None else ended.unsqueeze(0),
            None if impossible is None else impossible.unsqueeze(0),
        )


@runtime_checkable
class PathCursor(Cursor, Protocol):
    """A cursor that draws many steps of each sequence in one call, without reading the drawn steps."""

    def draw_path(
        self, state: CursorState, n_steps: int, generator: torch.Generator, *, may_end: bool
    ) -> Iterator[Draws] | None:
        """Return an iterator over draws of the next ``n_steps`` steps from the model's own distribution.

        Args:
            state: state before these steps.
            n_steps: number of steps.
            generator: generator of the draws.
            may_end: False conditions the draws on the sequences continuing.

        Returns:
            The draws of consecutive steps, several at a time; None if steps can only be drawn one by one.
        """


def draw(prediction: Prediction, decoding: Decoding, generator: torch.Generator, *, may_end: bool = True) -> Draw:
    """Draw the next step of each sequence from its prediction, as changed by the settings ``decoding``.

    Args:
        prediction: predicted distribution of the next step of n sequences.
        decoding: temperature and truncation of the distribution.
        generator: generator of the draws.
        may_end: False conditions the draws on the sequences continuing.
    """
    log_end = prediction.log_end if may_end else None
    if prediction.observation.emits == "vectors":
        return _draw_vectors(prediction, log_end, decoding.temperature, generator)
    if decoding == ANCESTRAL:
        return _draw_symbols(prediction, log_end, generator)
    n_symbols = prediction.output_parameters.shape[-1]
    index, total = inverse_cdf(decoding.probabilities(prediction.log_probs(with_end=may_end)), generator)
    ended = None if log_end is None else index == n_symbols
    return Draw(index.clamp_(max=n_symbols - 1), ended, None if prediction.log_weights is None else total == 0)


def _draw_symbols(prediction: Prediction, log_end: Tensor | None, generator: torch.Generator) -> Draw:
    """Draw the next symbol of each of n sequences from the model's own distribution.

    Args:
        prediction: predicted distribution of the symbol.
        log_end: log-probability of the end, ``(n,)``; None means that no sequence can end.
        generator: generator of the draws.
    """
    p, n_symbols = _probabilities_of_one_component(prediction, generator), prediction.output_parameters.shape[-1]
    index, total = inverse_cdf(p, generator, log_end)
    impossible = None
    if prediction.log_weights is not None:
        impossible = total == 0 if log_end is None else (total == 0) & torch.isneginf(log_end)
    if log_end is None and impossible is None:
        return Draw(index, None, None)
    ended = None if log_end is None else index == n_symbols
    return Draw(index.clamp_(max=n_symbols - 1), ended, impossible)


def inverse_cdf(p: Tensor, generator: torch.Generator, log_end: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Draw a category for each of n rows of unnormalised probabilities by the inverse of the cumulative distribution.

    Args:
        p: probabilities of V categories, ``(n, V)``, which need not sum to one. A category with probability zero is
            never drawn.
        generator: generator of the uniform random numbers.
        log_end: log-probability that category V, the end, is drawn instead, ``(n,)``; None if there is no end.

    Returns:
        The categories, ``(n,)``, which are V for a row of zeros, and the sums of the rows, ``(n,)``.
    """
    cumulative = p.cumsum(-1, dtype=torch.float64)
    total = cumulative[:, -1:]
    u = torch.rand(len(p), 1, generator=generator, dtype=torch.float64, device=p.device)
    threshold = u.mul_(BELOW_ONE).mul_(total)
    if log_end is not None:
        # The end is one more category with probability total · p / (1 - p).
        threshold.div_(torch.expm1(log_end).abs_().unsqueeze(-1))
    return torch.searchsorted(cumulative, threshold, right=True).squeeze(-1), total.squeeze(-1)


def _probabilities_of_one_component(prediction: Prediction, generator: torch.Generator) -> Tensor:
    """Draw one mixture component for each of n sequences, and return its probabilities of V symbols, ``(n, V)``.

    A row without a possible component is all zeros.
    """
    if prediction.log_weights is None:
        return torch.softmax(prediction.output_parameters.squeeze(1), dim=-1)
    component, total = inverse_cdf(prediction.log_weights.exp(), generator)
    sequence = torch.arange(len(component), device=component.device)
    table = prediction.output_parameters[sequence, component.clamp(max=prediction.log_weights.shape[-1] - 1)]
    return torch.softmax(table, dim=-1) * (total > 0).unsqueeze(-1)


def _draw_vectors(
    prediction: Prediction, log_end: Tensor | None, temperature: float, generator: torch.Generator
) -> Draw:
    ended, output_parameters, weights = None, prediction.output_parameters, prediction.weights()
    if log_end is not None:
        uniform = torch.rand(len(output_parameters), generator=generator, dtype=torch.float64, device=generator.device)
        ended = uniform < log_end.exp()
    if temperature != 1:
        output_parameters = prediction.observation.tempered(output_parameters, temperature)
        weights = (weights.log() / temperature).softmax(-1)
    component = inverse_cdf(weights, generator)[0]
    sequence = torch.arange(len(component), device=component.device)
    x = prediction.observation.sample(output_parameters[sequence, component], prediction.past, generator)
    impossible = None
    if prediction.log_weights is not None:
        impossible = prediction.has_no_next_step if ended is None else prediction.has_no_next_step & ~ended
    return Draw(x, ended, impossible)
