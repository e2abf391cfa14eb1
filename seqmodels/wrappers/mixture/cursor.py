"""A mixture one step at a time: the states of the members' cursors, and of the weights."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from seqmodels.generation import Cursor, CursorState, Prediction, Source
from seqmodels.generation.given_inputs import InputCursor
from seqmodels.observations import Categorical, OneOf
from seqmodels.wrappers.mixture.weights import Weights


@dataclass(frozen=True)
class MixtureState:
    """``members``: the state of each member's cursor; ``weights``: the ``(n, S)`` state of the weights."""

    members: tuple[CursorState, ...]
    weights: np.ndarray


@dataclass(frozen=True)
class MixtureCursor:
    """``Σ_k w_t(k) p_k(x_t | x_<t)``, where the weights follow what each member gave to what was read.

    ``columns``: of the mixture's inputs, those that each member reads.
    """

    members: list[Cursor]
    weights: Weights
    columns: list[list[int]]

    def given(self, state: MixtureState, inputs: Tensor) -> MixtureState:
        """The same state, given the inputs ``(n, U)`` of the next step."""
        return replace(state, members=given_to_each(self.members, state.members, self.columns, inputs))

    def start(self, source: Source = None, n: int = 1) -> MixtureState:
        """Before the first step of ``n`` sequences."""
        return MixtureState(tuple(cursor.start(source, n) for cursor in self.members), self.weights.start(n))

    def advance(self, state: MixtureState, x: Tensor) -> MixtureState:
        """Every member reads ``x (n, ...)``, and the weights what each had given to it."""
        weights = state.weights
        if not self.weights.are_fixed:
            log_p = [_numpy(p.log_prob(x.to(p.output_parameters.device))) for p in self._predictions(state)]
            weights = self.weights.after(weights, np.stack(log_p, axis=1))
        members = tuple(cursor.advance(s, x) for cursor, s in zip(self.members, state.members, strict=True))
        return MixtureState(members, weights)

    def distribution(self, state: MixtureState) -> Prediction:
        """The mixture of the members' predictions."""
        predictions = self._predictions(state)
        log_weights = torch.as_tensor(self.weights.log_weights(state.weights)).to(
            predictions[0].output_parameters.device
        )
        mix = mixed_symbols if predictions[0].observation.emits == "symbols" else mixed_vectors
        return mix(predictions, log_weights)

    def select(self, state: MixtureState, index: Tensor) -> MixtureState:
        """Of sequences ``index (m,)``."""
        members = tuple(cursor.select(s, index) for cursor, s in zip(self.members, state.members, strict=True))
        return MixtureState(members, state.weights[index.cpu().numpy()])

    def _predictions(self, state: MixtureState) -> list[Prediction]:
        return [cursor.distribution(s) for cursor, s in zip(self.members, state.members, strict=True)]


def given_to_each(
    members: list[Cursor], states: tuple[CursorState, ...], columns: list[list[int]], inputs: Tensor
) -> tuple[CursorState, ...]:
    """The state of each member, given those columns of the inputs ``(n, U)`` of the next step that it reads."""
    return tuple(
        cast(InputCursor, cursor).given(state, inputs[:, read]) if read else state
        for cursor, state, read in zip(members, states, columns, strict=True)
    )


def mixed_symbols(predictions: list[Prediction], log_weights: Tensor) -> Prediction:
    """Of symbols: one ``Categorical`` over the mixed probabilities, from log-weights ``(n, K)`` float64."""
    log_p = torch.stack([p.log_probs() for p in predictions], dim=1)  # (n, K, V), or V + 1 with the end
    has_end = predictions[0].log_end is not None
    return categorical(torch.logsumexp(log_weights.unsqueeze(-1) + log_p, dim=1), has_end, predictions[0])


def categorical(log_p: Tensor, has_end: bool, like: Prediction) -> Prediction:
    """The prediction of ``log_p (n, V)`` float64, of which under ``has_end`` the last is the end."""
    symbols = log_p[:, :-1] if has_end else log_p
    log_continue = torch.logsumexp(symbols, -1)  # (n,)
    impossible = torch.isneginf(log_continue)
    logits = torch.where(impossible.unsqueeze(-1), 0.0, symbols).to(like.output_parameters.dtype)
    log_total = torch.where(impossible, -torch.inf, 0.0).unsqueeze(-1)
    log_end, exact = (log_p[:, -1], log_continue) if has_end else (None, None)
    return Prediction(Categorical(), logits.unsqueeze(1), log_total, None, log_end, exact)


def mixed_vectors(predictions: list[Prediction], log_weights: Tensor) -> Prediction:
    """Of vectors: the components of all members, from log-weights ``(n, K)`` float64 of the members."""
    log_end = log_continue = None
    if predictions[0].log_end is not None:
        ends = torch.stack([_double(p.log_end, log_weights[:, 0]) for p in predictions], dim=1)
        continues = torch.stack([_double(p.log_continue, log_weights[:, 0]) for p in predictions], dim=1)  # (n, K)
        log_end = torch.logsumexp(log_weights + ends, 1)
        log_weights = log_weights + continues
        log_continue = torch.logsumexp(log_weights, 1)
        log_weights = log_weights - torch.where(torch.isneginf(log_continue), 0.0, log_continue).unsqueeze(-1)
    # A member for which nothing comes next has no weight; what the others have is not normalised then.
    log_weights = torch.cat(
        [log_weights[:, k : k + 1] + _components(p) for k, p in enumerate(predictions)], dim=1
    )  # (n, K_1 + K_2 + ..)
    observation = OneOf([p.observation for p in predictions])
    table = observation.join([p.output_parameters for p in predictions])
    return Prediction(observation, table, log_weights, _joined_past(predictions), log_end, log_continue)


def _components(prediction: Prediction) -> Tensor:
    """``(n, K)`` float64 log-weights of the components, -inf where no next step has any probability."""
    if prediction.log_weights is None:
        return prediction.output_parameters.new_zeros(len(prediction.output_parameters), 1, dtype=torch.float64)
    return prediction.log_weights.double()


def _joined_past(predictions: list[Prediction]) -> Tensor | None:
    """``(n, p, D)`` of the member that looks back farthest."""
    pasts = [p.past for p in predictions if p.past is not None]
    return max(pasts, key=lambda past: past.shape[1]) if pasts else None


def _double(value: Any, like: Tensor) -> Tensor:
    return torch.as_tensor(value, device=like.device).double().expand(len(like))


def _numpy(values: Tensor) -> np.ndarray:
    return values.double().cpu().numpy()
