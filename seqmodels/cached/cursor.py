"""A model of symbols with a cache, one step at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from seqmodels.cached.caches import Cache, mixed
from seqmodels.generation import Cursor, CursorState, Prediction, Source
from seqmodels.neural.cursor import NetworkCursor
from seqmodels.observations import Observation


@dataclass(frozen=True)
class CachedState:
    """The state of the model inside, and the last steps.

    Attributes:
        inner: of its cursor.
        features: (n, k, d), see ``Cache``; k is at most the window.
        symbols: (n, k).
    """

    inner: CursorState
    features: Tensor
    symbols: Tensor


class CachePredictor(ABC):
    """The cursor of the model inside, and what a cache knows the next step by."""

    @property
    @abstractmethod
    def cursor(self) -> Cursor:
        """The cursor of the model inside."""

    @abstractmethod
    def prediction(self, state: CursorState) -> Prediction:
        """Of the next step, without the cache."""

    @abstractmethod
    def features(self, state: CursorState) -> Tensor | None:
        """``(n, d)`` of the next step; None: it has none."""


@dataclass(frozen=True)
class ModelPredictor(CachePredictor):
    """Any model; steps have no features."""

    model_cursor: Cursor

    @property
    def cursor(self) -> Cursor:
        return self.model_cursor

    def prediction(self, state: CursorState) -> Prediction:
        return self.model_cursor.distribution(state)

    def features(self, state: CursorState) -> Tensor | None:
        return None


@dataclass(frozen=True)
class HiddenStatePredictor(CachePredictor):
    """A network, whose steps are known by their hidden states.

    Attributes:
        headless: a cursor of hidden states, as of ``without_head``.
        network_cursor: of the network itself.
    """

    headless: NetworkCursor[Any]
    network_cursor: NetworkCursor[Any]

    @property
    def cursor(self) -> Cursor:
        return self.headless

    @torch.no_grad()
    def prediction(self, state: CursorState) -> Prediction:
        outputs = self.network_cursor.module.head(state.outputs)
        return self.network_cursor.distribution(replace(state, outputs=outputs))

    def features(self, state: CursorState) -> Tensor | None:
        hidden: Tensor = state.outputs
        return hidden


@dataclass(frozen=True)
class CachedCursor:
    """``(1 - weight) p + weight p_cache``."""

    predictor: CachePredictor
    cache: Cache
    weight: float
    observation: Observation
    n_symbols: int

    def start(self, source: Source = None, n: int = 1) -> CachedState:
        """Before the first scored step, with an empty cache."""
        inner = self.predictor.cursor.start(source, n)
        features = self._features(inner)
        symbols = torch.zeros(n, 0, dtype=torch.int64, device=features.device)
        return CachedState(inner, features[:, None][:, :0], symbols)

    def advance(self, state: CachedState, x: Tensor) -> CachedState:
        """Take each sequence's next symbol into the cache."""
        features = torch.cat([state.features, self._features(state.inner)[:, None]], 1)
        symbols = torch.cat([state.symbols, x.to(state.symbols)[:, None]], 1)
        inner = self.predictor.cursor.advance(state.inner, x)
        return CachedState(inner, features[:, -self.cache.window :], symbols[:, -self.cache.window :])

    def distribution(self, state: CachedState) -> Prediction:
        """The prediction of the next symbol."""
        prediction = self.predictor.prediction(state.inner)
        log_probs = prediction.log_probs()  # (n, V), or (n, V + 1) with the end
        log_cache = self.cache.log_probs(self._features(state.inner), state.features, state.symbols, self.n_symbols).to(
            log_probs.device
        )
        symbols = mixed(log_probs[:, : self.n_symbols], log_cache, self.weight)
        if prediction.log_end is None:
            return Prediction(self.observation, symbols.unsqueeze(1), None, None, None)
        never = torch.where(log_cache[:, 0].isnan(), torch.nan, -torch.inf)  # a cache holds no ends
        log_end = mixed(log_probs[:, -1], never, self.weight)
        return Prediction(self.observation, symbols.unsqueeze(1), None, None, log_end, symbols.logsumexp(-1))

    def select(self, state: CachedState, index: Tensor) -> CachedState:
        """The state of the sequences ``index (m,)``, in this order."""
        here = index.to(state.symbols.device)
        inner = self.predictor.cursor.select(state.inner, index)
        return CachedState(inner, state.features.index_select(0, here), state.symbols.index_select(0, here))

    def _features(self, inner: CursorState) -> Tensor:
        """``(n, d)`` of the next step, d being 0 where there are none."""
        features = self.predictor.features(inner)
        if features is not None:
            return features
        output_parameters = self.predictor.prediction(inner).output_parameters
        return output_parameters.new_zeros(len(output_parameters), 0)
