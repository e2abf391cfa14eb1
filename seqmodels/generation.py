"""Sampling and streaming, written once on the cursor that every model has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from seqmodels.observations import Observation

CursorState = Any


@dataclass(frozen=True)
class Prediction:
    """What a model says of the next step, for n sequences at once: a mixture of K observations, and the end.

    Shapes: ``parameters (n, K, P)``, ``log_weights (n, K)`` normalised, ``past (n, p, D)`` or None, ``log_end (n,)`` the
    log-probability that the sequence has ended (None where its length is given).
    """

    observation: Observation
    parameters: Tensor
    log_weights: Tensor
    past: Tensor | None
    log_end: Tensor | None

    @torch.no_grad()
    def log_prob(self, x: Tensor) -> Tensor:
        """``(n,)`` log-probability that the sequence goes on, and with ``x``."""
        past = None if self.past is None else self.past.unsqueeze(1)
        x = x.to(self.parameters.dtype) if x.is_floating_point() else x  # a stream's steps come in float64
        each = self.observation.log_prob(self.parameters, x.unsqueeze(1), past)  # (n, K)
        return torch.logsumexp(self.log_weights + each, dim=-1) + self.log_continue

    @property
    def log_continue(self) -> Tensor | float:
        """``(n,)`` log-probability that the sequence goes on."""
        return 0.0 if self.log_end is None else torch.log(-torch.expm1(self.log_end))

    @property
    def stuck(self) -> Tensor:
        """``(n,)`` bool: no next step has any probability (the sequence must end, or was impossible already)."""
        return torch.isneginf(self.log_weights).all(-1)

    def _weights(self) -> Tensor:
        """``(n, K)``; flat where stuck, so that sequences that have ended can be carried along with the others."""
        return torch.where(self.stuck.unsqueeze(-1), 1 / self.log_weights.shape[-1], self.log_weights.exp())

    def sample(self, generator: torch.Generator) -> Tensor:
        """One next step each, given that the sequences go on: ``(n, D)`` or ``(n,)``."""
        chosen = torch.multinomial(self._weights(), 1, generator=generator).squeeze(-1)
        rows = torch.arange(len(chosen), device=chosen.device)
        return self.observation.sample(self.parameters[rows, chosen], self.past, generator)

    def as_distribution(self, shift: Tensor, scale: Tensor) -> Any:
        """The first sequence's prediction as a Pyro distribution over raw values.

        Symbols whose length is not given have one more category, the last: the end. Vectors: given that they go on.
        """
        import pyro.distributions as dist

        if self.stuck[0] and (self.log_end is None or self.log_end[0] < 0):
            raise ValueError("what came before has probability zero, so the model says nothing of what comes next")
        past = None if self.past is None else self.past[:1]
        weights = self._weights()[0].to(self.parameters.dtype)  # an HMM's belief is float64
        result = self.observation.distribution(self.parameters[0], weights, past, shift, scale)
        if self.log_end is None or self.observation.emits == "vectors":
            return result
        end = self.log_end[:1].exp()
        return dist.Categorical(probs=torch.cat([result.probs * (1 - end), end]))


class Cursor(Protocol):
    """A model as a chain of one-step predictions, over encoded steps, for ``n`` sequences at once."""

    def start(self, source: np.ndarray | None = None, n: int = 1) -> CursorState:
        """The state before the first step; ``source`` is one encoded sequence for all n."""

    def advance(self, state: CursorState, x: Tensor) -> CursorState:
        """The state after each sequence's next step, ``x (n, D)`` or ``(n,)``."""

    def distribution(self, state: CursorState) -> Prediction:
        """The prediction of the next step."""


def sample_steps(
    cursor: Cursor,
    n: int,
    *,
    prefix: np.ndarray,
    source: np.ndarray | None,
    length: int | None,
    max_length: int,
    generator: torch.Generator,
) -> list[np.ndarray]:
    """Draw n sequences of encoded steps that begin with ``prefix``; with ``length`` the end is masked."""
    state = cursor.start(source, n)
    for step in prefix:
        state = cursor.advance(state, torch.as_tensor(step).expand(n, *step.shape))
    total = max_length if length is None else length
    lengths = np.full(n, total)
    drawn: list[np.ndarray] = []
    for t in range(len(prefix), total):
        prediction = cursor.distribution(state)
        if length is None and prediction.log_end is not None:
            chance = torch.rand(n, generator=generator, dtype=torch.float64, device=generator.device)
            ended = (chance < prediction.log_end.exp()).cpu().numpy()
            lengths[ended & (lengths == total)] = t
            if (lengths < total).all():
                break
        if (prediction.stuck.cpu().numpy() & (lengths == total)).any():
            raise ValueError(f"no sequence that goes on after step {t} is possible here; pass another prefix or length")
        x = prediction.sample(generator)
        drawn.append(x.cpu().numpy())
        state = cursor.advance(state, x)
    if not drawn:
        return [prefix[:size] for size in lengths]
    steps = np.stack(drawn, axis=1)  # (n, T, ...)
    return [np.concatenate([prefix, row])[:size] for row, size in zip(steps, lengths, strict=True)]


class Stream:
    """A model listening to one sequence: the log-probability of each step as it comes.

    Made by ``SequenceModel.stream``. ``encode`` maps one raw step to encoded steps and the log-determinants to add.
    """

    def __init__(self, cursor: Cursor, encode: Any, affine: tuple[Tensor, Tensor], source: np.ndarray | None) -> None:
        self._cursor, self._encode, self._affine = cursor, encode, affine
        self._state = cursor.start(source, 1)

    def update(self, x: Any) -> float:
        """Take the next step (a frame ``(D,)``, a symbol, or a piece of text); returns its log p given the past, nats."""
        steps, log_dets = self._encode(x)
        total = 0.0
        for step, log_det in zip(steps, log_dets, strict=True):
            value = torch.as_tensor(step).unsqueeze(0)
            prediction = self._cursor.distribution(self._state)
            total += float(prediction.log_prob(value.to(prediction.parameters.device))) + float(log_det)
            self._state = self._cursor.advance(self._state, value)
        return total

    def predict_next(self) -> Any:
        """A Pyro distribution over the next raw step."""
        return self._cursor.distribution(self._state).as_distribution(*self._affine)

    def log_end(self) -> float:
        """Log-probability that the sequence ends here (``length="stop"``)."""
        log_end = self._cursor.distribution(self._state).log_end
        if log_end is None:
            raise ValueError('the model was fitted with length="given", so ends have no probability')
        return float(log_end)
