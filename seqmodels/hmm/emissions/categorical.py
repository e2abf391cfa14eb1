"""EM for symbols: ``b_k(v) = (expected count of v in state k + pseudocount) / ...`` (Rabiner 1989, eq. 40c)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqmodels.hmm.emissions.base import (
    MANY_STATES,
    ON_GPU,
    SUMMED,
    Emission,
    Statistics,
    add_sums,
    emission_of,
    jitter,
)
from seqmodels.hmm.emissions.kmeans import kmeans_labels
from seqmodels.inference.chains.densities import Densities, TableDensities
from seqmodels.inference.chains.scratch import Scratch
from seqmodels.observations import Categorical

DOMINANCE = 0.9  # share of a state's own group of symbols in its first distribution
SYMBOLS_A_STATE = 8  # with more symbols for each state, states start from groups of symbols, however many they are
DOMINANCE_OF_MANY = 0.5  # DOMINANCE with MANY_STATES or more, which share symbols
FRAMES_AT_ONCE = 4_096  # frames counted in the precision of gamma before they are added in float64
ONE_HOT_UP_TO = 1_024  # most symbols that are counted by matrix products on a GPU
CONTEXTS = 256  # most frequent symbols that are distinguished as neighbours; all others count as one


@emission_of.register(Categorical)
class CategoricalEmission(Emission):
    """EM computations for ``Categorical`` emissions, whose parameters are symbols' log-probabilities in each state."""

    observation: Categorical

    def log_prob(self, table: Tensor, x: Tensor, past: Tensor | None, dtype: torch.dtype) -> Tensor:
        return torch.log_softmax(table, dim=-1).T[x].to(dtype)

    def evaluate(
        self, table: Tensor, x: Tensor, past: Tensor | None, dtype: torch.dtype, scratch: Scratch
    ) -> tuple[Densities, Any]:
        return TableDensities(torch.log_softmax(table, dim=-1).T.to(dtype).contiguous(), x), None

    def statistics(self, table: Tensor, x: Tensor, past: Tensor | None, gamma: Tensor, memo: Any = None) -> Statistics:
        if x.device.type != "cpu":
            return (counts_on_gpu(x, gamma, self.size),)
        counts = torch.zeros(self.size, gamma.shape[1], dtype=torch.float64, device=x.device)
        for symbols, weights in zip(x.split(FRAMES_AT_ONCE), gamma.split(FRAMES_AT_ONCE), strict=True):
            part = torch.zeros(counts.shape, dtype=gamma.dtype, device=x.device)
            counts += part.index_add_(0, symbols, weights)
        return (counts.T,)

    def maximise(self, statistics: Statistics, table: Tensor) -> Tensor:
        counts = statistics[0] + self.observation.pseudocount
        total = counts.sum(-1, keepdim=True)
        return torch.where(total > 0, (counts / total).log(), table)

    def log_prior(self, table: Tensor) -> Tensor:
        if self.observation.pseudocount == 0:
            return table.new_zeros(())
        return self.observation.pseudocount * torch.log_softmax(table, dim=-1).sum()

    def labels(self, x: Tensor, n_states: int, generator: torch.Generator) -> Tensor:
        """Return a first guess of the state of each of N frames, ``(N,)``, which depends mostly on the frame's symbol.

        With fewer states than symbols, symbols with similar neighbours share a state. With more, each symbol gets one
        state and frequent symbols get several. From ``MANY_STATES`` states on, symbols get states in proportion to the
        square root of their frequency, and the frames of a symbol that gets none are given to states at random.

        Args:
            x: symbols of all sequences in order, ``(N,)``.
            n_states: number of states.
            generator: random generator.
        """
        counts = torch.bincount(x, minlength=self.size).double().cpu()
        present = torch.nonzero(counts).squeeze(1)
        # Symbol v owns the n_owned[v] states first[v], first[v] + 1, ...
        first = torch.zeros(self.size, dtype=torch.int64)
        n_owned = torch.zeros(self.size, dtype=torch.int64)
        many = n_states >= MANY_STATES and SYMBOLS_A_STATE * n_states >= len(present)
        if not many and n_states <= len(present):
            first[present] = kmeans_labels(self._neighbours(x, counts)[present], n_states, generator)
            n_owned[present] = 1
        else:
            share = _shares_of_many if many else _shares
            n_owned[present] = share(counts[present], n_states)
            first = n_owned.cumsum(0) - n_owned
            first[n_owned == 0] = 0
            n_owned[n_owned == 0] = n_states
        choice = torch.rand(len(x), generator=generator, dtype=torch.float64)
        symbols = x.cpu()
        return (first[symbols] + (choice * n_owned[symbols]).long()).to(x.device)

    def _neighbours(self, x: Tensor, counts: Tensor) -> Tensor:
        """Return for each symbol square roots of the frequencies of what follows and precedes it, ``(V, 2C)``.

        The C columns of each half are symbols or groups of them. ``x (N,)`` are the symbols in order, and ``counts
        (V,)`` how often each occurs.
        """
        frequent = counts.topk(min(CONTEXTS, self.size)).indices
        width = len(frequent) + 1
        context = torch.full((self.size,), len(frequent), dtype=torch.int64)
        context[frequent] = torch.arange(len(frequent))
        context = context.to(x.device)
        both = []
        for symbol, neighbour in ((x[:-1], x[1:]), (x[1:], x[:-1])):
            pairs = torch.bincount(symbol * width + context[neighbour], minlength=self.size * width)
            table = pairs.view(self.size, width).float().cpu()
            both.append(table / table.sum(1, keepdim=True).clamp(min=1))
        return torch.cat(both, dim=1).sqrt()  # square roots: Euclidean distance is then Hellinger's

    def from_labels(
        self, x: Tensor, past: Tensor | None, labels: Tensor, n_states: int, generator: torch.Generator
    ) -> Tensor:
        counts = torch.zeros(n_states, self.size, dtype=torch.float64, device=x.device)
        counts.view(-1).index_add_(0, labels * self.size + x, torch.ones(len(x), dtype=torch.float64, device=x.device))
        of_all = counts.sum(0) / counts.sum()
        of_state = counts / counts.sum(1, keepdim=True).clamp(min=1)
        # A pseudocount for the start alone, because EM never leaves a probability of zero.
        many = n_states >= MANY_STATES
        share = DOMINANCE_OF_MANY if many else DOMINANCE
        floor = (1 - share) * (0.99 * of_all + 0.01 / self.size)
        mixed = (share * of_state + floor) * jitter(of_state.shape, generator, strong=many).to(x.device)
        return (mixed / mixed.sum(1, keepdim=True)).log()

    def n_parameters(self, n_states: int) -> int:
        return n_states * (self.size - 1)

    def raw_parameters(self, table: Tensor, shift: np.ndarray, scale: np.ndarray) -> Mapping[str, np.ndarray]:
        return {"emission_": torch.softmax(table, dim=-1).cpu().numpy()}

    def table_of_raw(self, raw: Mapping[str, np.ndarray], shift: np.ndarray, scale: np.ndarray) -> Tensor:
        return torch.as_tensor(raw["emission_"]).log()

    def by_state(
        self, table: Tensor, shift: np.ndarray, scale: np.ndarray, names: Sequence[str]
    ) -> Mapping[str, np.ndarray]:
        probabilities = self.raw_parameters(table, shift, scale)["emission_"]
        return {f"p({name})": p for name, p in zip(names, probabilities.T, strict=True)}


def _shares(counts: Tensor, n_states: int) -> Tensor:
    """Return the number of states of each symbol, ``(V,)``: one each, and the rest in proportion to ``counts (V,)``."""
    extra = counts / counts.sum() * (n_states - len(counts))
    n_owned = 1 + extra.floor().long()
    n_owned[torch.argsort(extra - extra.floor(), descending=True)[: n_states - int(n_owned.sum())]] += 1
    return n_owned


def _shares_of_many(counts: Tensor, n_states: int) -> Tensor:
    """Return the number of states of each symbol, ``(V,)``, in proportion to the square root of ``counts (V,)``.

    The numbers add up to ``n_states``; rare symbols may get none.
    """
    share = n_states * counts.sqrt() / counts.sqrt().sum()
    n_owned = share.floor().long()
    n_owned[torch.argsort(share - share.floor(), descending=True)[: n_states - int(n_owned.sum())]] += 1
    return n_owned


def counts_on_gpu(x: Tensor, gamma: Tensor, n_symbols: int) -> Tensor:
    """Return the expected count of each symbol in each state, ``(K, V)`` float64.

    Up to ``ONE_HOT_UP_TO`` symbols are counted by matrix products, which give the same sums in every run; more symbols
    are counted by ``index_add_``, whose threads add in any order.

    Args:
        x: symbols of N frames, ``(N,)``.
        gamma: posteriors of K states in each frame, ``(N, K)``.
        n_symbols: number of symbols, V.
    """
    n_states = gamma.shape[1]
    counts = torch.zeros(n_states, n_symbols, dtype=torch.float64, device=x.device)
    numbers = max(n_symbols, n_states, n_symbols * n_states // SUMMED)  # for each frame
    size = max(SUMMED, ON_GPU // numbers // SUMMED * SUMMED)
    every = torch.arange(n_symbols, device=x.device)[:, None]
    for symbols, weights in zip(x.split(size), gamma.split(size), strict=True):
        if n_symbols > ONE_HOT_UP_TO:
            counts.T.index_add_(0, symbols, weights.double())
        else:
            add_sums(counts, weights.T, (symbols == every).to(weights.dtype))
    return counts
