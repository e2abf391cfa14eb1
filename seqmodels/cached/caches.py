"""Caches: the probability of the next symbol by what followed where the sequence was like it is now.

A cache reads the steps 0, 1, ... of one sequence; at step t it holds those from ``t - window`` to ``t - 1``. It gives
symbols alone a probability, never the end, and none at all (weight 0) where it holds nothing to compare with.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

QUERIES_AT_ONCE = 512


class Cache(ABC):
    """``p_cache(x_t | x_<t)``, for a whole sequence and for the next step of several.

    To add one, define both. ``features`` are what a step is known by before its symbol is: of the hidden-state cache
    the network's hidden states, of counts nothing, ``(T, 0)``.
    """

    window: int

    @abstractmethod
    def log_prob(self, features: Tensor, symbols: Tensor) -> Tensor:
        """``(T + 1,)`` float64 nats of ``symbols (T,)`` and of the end after them.

        -inf of what the cache has not, as of every end; NaN where it has nothing.
        """

    @abstractmethod
    def log_probs(self, query: Tensor, features: Tensor, symbols: Tensor, size: int) -> Tensor:
        """``(n, V)`` float64 nats of every symbol of the next step; NaN where the cache has nothing.

        Args:
            query: ``(n, d)``, of the next step.
            features: ``(n, k, d)``, of the last steps, at most ``window``.
            symbols: ``(n, k)``, theirs.
            size: V.
        """


@dataclass(frozen=True)
class HiddenStateCache(Cache):
    """``p(w) ∝ Σ_i 1[x_i = w] exp(theta h_t · h_i)`` (Grave, Joulin and Usunier 2017)."""

    window: int
    theta: float

    def log_prob(self, features: Tensor, symbols: Tensor) -> Tensor:
        parts = []
        for begin in range(0, len(symbols), QUERIES_AT_ONCE):
            first, end = max(0, begin - self.window), min(begin + QUERIES_AT_ONCE, len(symbols))
            step = torch.arange(first, end, device=symbols.device)
            query = step[begin - first :]
            distance = query[:, None] - step
            scores = self.theta * (features[begin:end] @ features[first:end].t())
            scores = torch.where((distance > 0) & (distance <= self.window), scores.double(), -torch.inf)
            same = symbols[begin:end, None] == symbols[first:end]
            parts.append(
                torch.where(same, scores, -torch.inf).logsumexp(1) - scores.logsumexp(1)  # (-inf) - (-inf) is NaN
            )
        return torch.cat([*parts, parts[0].new_tensor([-torch.inf])])

    def log_probs(self, query: Tensor, features: Tensor, symbols: Tensor, size: int) -> Tensor:
        scores = self.theta * torch.einsum("nd,nkd->nk", query, features).double()
        return _log_shares(scores, symbols, size)


@dataclass(frozen=True)
class CountCache(Cache):
    """The share of ``w`` among what followed the last ``order - 1`` symbols before (Kuhn and De Mori 1990).

    With ``order`` 1 the share of ``w`` among the symbols of the window, which has at least ``order`` steps.
    """

    window: int
    order: int

    def log_prob(self, features: Tensor, symbols: Tensor) -> Tensor:
        listed: list[int] = symbols.tolist()
        n_context = self.order - 1
        counts: dict[tuple[int, ...], int] = defaultdict(int)
        totals: dict[tuple[int, ...], int] = defaultdict(int)
        result = np.full(len(listed) + 1, np.nan)
        for t in range(n_context, len(listed)):
            context, event = tuple(listed[t - n_context : t]), tuple(listed[t - n_context : t + 1])
            if totals[context]:
                count = counts[event]
                result[t] = np.log(count / totals[context]) if count else -np.inf
            totals[context] += 1
            counts[event] += 1
            begin = t - self.window  # of what the next step does not see any more
            if begin >= 0:
                totals[tuple(listed[begin : begin + n_context])] -= 1
                counts[tuple(listed[begin : begin + n_context + 1])] -= 1
        if len(listed) >= n_context and totals[tuple(listed[len(listed) - n_context :])]:
            result[-1] = -np.inf
        return torch.from_numpy(result).to(symbols.device)

    def log_probs(self, query: Tensor, features: Tensor, symbols: Tensor, size: int) -> Tensor:
        n_context, n_steps = self.order - 1, symbols.shape[1]
        scores = torch.full(symbols.shape, -torch.inf, dtype=torch.float64, device=symbols.device)
        if n_steps > n_context:
            is_same = torch.ones_like(symbols[:, n_context:], dtype=torch.bool)
            for lag in range(1, n_context + 1):
                is_same &= symbols[:, n_context - lag : n_steps - lag] == symbols[:, n_steps - lag, None]
            scores[:, n_context:] = torch.where(is_same, 0.0, -torch.inf)
        return _log_shares(scores, symbols, size)


def _log_shares(scores: Tensor, symbols: Tensor, size: int) -> Tensor:
    """``(n, V)`` logarithms of the shares of ``exp(scores) (n, k)`` by symbol; NaN where there are none."""
    shares = torch.where(torch.isneginf(scores).all(-1, keepdim=True), torch.nan, scores.softmax(-1))
    if not symbols.shape[1]:
        return torch.full((len(symbols), size), torch.nan, dtype=torch.float64, device=symbols.device)
    return (
        shares.new_zeros(len(symbols), size)
        .scatter_add_(1, symbols, shares)
        .masked_fill_(shares.isnan().any(-1, keepdim=True), torch.nan)
        .log()
    )


def mixed(log_prob: Tensor, log_cache: Tensor, weight: float) -> Tensor:
    """``log((1 - weight) p + weight p_cache)``; ``log p`` where the cache has nothing."""
    if weight == 0:
        return log_prob
    log_model = log_prob + float(np.log1p(-weight))
    return torch.where(log_cache.isnan(), log_prob, torch.logaddexp(log_model, log_cache + float(np.log(weight))))
