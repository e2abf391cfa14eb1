"""A mixture one step at a time, from the cursors of its members and the state of its weights."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

import numpy as np
import torch
from torch import Tensor

from seqmodels.generation import Cursor, CursorState, Prediction, Source
from seqmodels.generation.given_inputs import InputCursor
from seqmodels.observations import Categorical, OneOf


class MemberWeights(Protocol):
    """An interface of rules for the weights of the K members of a mixture, which follow the steps that are read.

    The state of the weights is a row of S numbers for each of n sequences.
    """

    @property
    def are_fixed(self) -> bool:
        """True if the weights never change, whatever steps are read."""

    def start(self, n: int) -> np.ndarray:
        """Return the state of the weights before the first step of n sequences, ``(n, S)``."""

    def log_weights(self, state: np.ndarray) -> np.ndarray:
        """Return the normalised log-weights of the K members for the next step, ``(n, K)``, in the state ``(n, S)``."""

    def after(self, state: np.ndarray, log_p: np.ndarray) -> np.ndarray:
        """Return the state of the weights after a step, ``(n, S)``.

        Args:
            state: state before the step, ``(n, S)``.
            log_p: log-probability of the step under each of the K members, ``(n, K)``.
        """


@dataclass(frozen=True)
class MixtureState:
    """The state of a ``MixtureCursor``, which predicts with a mixture of models, for n sequences.

    Attributes:
        members: state of each member's cursor.
        weights: state of the weights of the members, S numbers for each sequence, ``(n, S)``.
    """

    members: tuple[CursorState, ...]
    weights: np.ndarray


@dataclass(frozen=True)
class MixtureCursor:
    """A cursor (step-by-step predictor) of a mixture ``Σ_k w_t(k) p_k(x_t | x_<t)`` whose weights follow the steps.

    Attributes:
        members: cursors of the K members.
        weights: rule by which the weights change with the steps that are read.
        columns: for each member, the columns of the mixture's inputs that it reads.
    """

    members: list[Cursor]
    weights: MemberWeights
    columns: list[list[int]]

    def given(self, state: MixtureState, inputs: Tensor) -> MixtureState:
        """Return the state after it was told the inputs of the next step, which members read before they predict it.

        Args:
            state: state of n sequences after the steps before.
            inputs: the U inputs of the next step, ``(n, U)``, of which each member reads its own columns.
        """
        return replace(state, members=given_to_each(self.members, state.members, self.columns, inputs))

    def start(self, source: Source = None, n: int = 1) -> MixtureState:
        """Return the state of ``n`` sequences before the first step.

        Args:
            source: encoded source for all sequences, a list with one for each, or None.
            n: number of sequences.
        """
        return MixtureState(tuple(cursor.start(source, n) for cursor in self.members), self.weights.start(n))

    def advance(self, state: MixtureState, x: Tensor) -> MixtureState:
        """Return the state after every member has read a step and the weights were updated.

        Args:
            state: state of n sequences before the step.
            x: the step of each sequence, a vector of D features, ``(n, D)``, or a symbol, ``(n,)``.
        """
        weights = state.weights
        if not self.weights.are_fixed:
            log_p = [_numpy(p.log_prob(x.to(p.output_parameters.device))) for p in self._predictions(state)]
            weights = self.weights.after(weights, np.stack(log_p, axis=1))
        members = tuple(cursor.advance(s, x) for cursor, s in zip(self.members, state.members, strict=True))
        return MixtureState(members, weights)

    def distribution(self, state: MixtureState) -> Prediction:
        """Return the prediction of the next step: the mixture of the members' predictions with the current weights."""
        predictions = self._predictions(state)
        log_weights = torch.as_tensor(self.weights.log_weights(state.weights)).to(
            predictions[0].output_parameters.device
        )
        mix = mixed_symbols if predictions[0].observation.emits == "symbols" else mixed_vectors
        return mix(predictions, log_weights)

    def select(self, state: MixtureState, index: Tensor) -> MixtureState:
        """Return the part of a state that belongs to the sequences with the indices ``index (m,)``."""
        members = tuple(cursor.select(s, index) for cursor, s in zip(self.members, state.members, strict=True))
        return MixtureState(members, state.weights[index.cpu().numpy()])

    def _predictions(self, state: MixtureState) -> list[Prediction]:
        return [cursor.distribution(s) for cursor, s in zip(self.members, state.members, strict=True)]


def given_to_each(
    members: list[Cursor], states: tuple[CursorState, ...], columns: list[list[int]], inputs: Tensor
) -> tuple[CursorState, ...]:
    """Return the state of each member after it was told those inputs of the next step that it reads.

    Args:
        members: cursors of the members of a mixture.
        states: their states, which are returned unchanged for members that read no inputs.
        columns: for each member, the columns of ``inputs`` that it reads.
        inputs: all U inputs of the next step, ``(n, U)``.
    """
    return tuple(
        cast(InputCursor, cursor).given(state, inputs[:, read]) if read else state
        for cursor, state, read in zip(members, states, columns, strict=True)
    )


def mixed_symbols(predictions: list[Prediction], log_weights: Tensor) -> Prediction:
    """Mix the predictions of K members into one prediction of symbols, a ``Categorical`` distribution.

    Args:
        predictions: prediction of each member for n sequences.
        log_weights: log-weights of the members, ``(n, K)`` float64.
    """
    log_p = torch.stack([p.log_probs() for p in predictions], dim=1)  # (n, K, V), or V + 1 with the end
    has_end = predictions[0].log_end is not None
    return categorical(torch.logsumexp(log_weights.unsqueeze(-1) + log_p, dim=1), has_end, predictions[0])


def categorical(log_p: Tensor, has_end: bool, like: Prediction) -> Prediction:
    """Return a prediction of symbols with given log-probabilities.

    Args:
        log_p: log-probabilities of V symbols for n sequences, ``(n, V)`` float64, or ``(n, V + 1)`` with the end last.
        has_end: True if the last column is the end.
        like: prediction whose dtype the result has.
    """
    symbols = log_p[:, :-1] if has_end else log_p
    log_continue = torch.logsumexp(symbols, -1)  # (n,)
    impossible = torch.isneginf(log_continue)
    logits = torch.where(impossible.unsqueeze(-1), 0.0, symbols).to(like.output_parameters.dtype)
    log_total = torch.where(impossible, -torch.inf, 0.0).unsqueeze(-1)
    log_end, exact = (log_p[:, -1], log_continue) if has_end else (None, None)
    return Prediction(Categorical(), logits.unsqueeze(1), log_total, None, log_end, exact)


def mixed_vectors(predictions: list[Prediction], log_weights: Tensor) -> Prediction:
    """Mix the predictions of K members into one prediction of vectors, with the mixture components of all members.

    Args:
        predictions: prediction of each member for n sequences.
        log_weights: log-weights of the members, ``(n, K)`` float64.
    """
    log_end = log_continue = None
    if predictions[0].log_end is not None:
        ends = torch.stack([_double(p.log_end, log_weights[:, 0]) for p in predictions], dim=1)
        continues = torch.stack([_double(p.log_continue, log_weights[:, 0]) for p in predictions], dim=1)  # (n, K)
        log_end = torch.logsumexp(log_weights + ends, 1)
        log_weights = log_weights + continues
        log_continue = torch.logsumexp(log_weights, 1)
        log_weights = log_weights - torch.where(torch.isneginf(log_continue), 0.0, log_continue).unsqueeze(-1)
    # A member under which no next step is possible has no weight; the other weights are then not normalised.
    log_weights = torch.cat(
        [log_weights[:, k : k + 1] + _components(p) for k, p in enumerate(predictions)], dim=1
    )  # (n, K_1 + K_2 + ..)
    observation = OneOf([p.observation for p in predictions])
    table = observation.join([p.output_parameters for p in predictions])
    return Prediction(observation, table, log_weights, _joined_past(predictions), log_end, log_continue)


def _components(prediction: Prediction) -> Tensor:
    """Return the log-weights of the M components of a prediction, ``(n, M)`` float64; -inf without a next step."""
    if prediction.log_weights is None:
        return prediction.output_parameters.new_zeros(len(prediction.output_parameters), 1, dtype=torch.float64)
    return prediction.log_weights.double()


def _joined_past(predictions: list[Prediction]) -> Tensor | None:
    """Return the past steps, ``(n, p, D)``, of the prediction that looks back farthest; None if none looks back."""
    pasts = [p.past for p in predictions if p.past is not None]
    return max(pasts, key=lambda past: past.shape[1]) if pasts else None


def _double(value: Any, like: Tensor) -> Tensor:
    return torch.as_tensor(value, device=like.device).double().expand(len(like))


def _numpy(values: Tensor) -> np.ndarray:
    return values.double().cpu().numpy()
