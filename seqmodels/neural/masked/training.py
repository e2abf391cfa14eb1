"""Training by predicting masked symbols: the choice of masked symbols, and the objective.

Training batches are masked anew every time they are read, held-out batches only once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from seqmodels.common import distributed
from seqmodels.encodings.raw_data import MAX_HELD_OUT
from seqmodels.neural.batches import Batching, Row
from seqmodels.neural.masked.inference import MAX_BATCH_STEPS, batches_by_length
from seqmodels.neural.masked.network import MASK, BidirectionalNetwork, log_prob_of
from seqmodels.neural.ops.padding import pad_right
from seqmodels.training import BatchResult, Checkpoints, Parallel, TrainConfig, train

if TYPE_CHECKING:
    import pandas as pd

MaskingObjective = Literal["tokens", "spans"]


# -- masking ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Masking:
    """A way to mask ``fraction`` of the symbols of a sequence (rounded, at least one), drawn anew at every call.

    ``"tokens"`` masks symbols independently (BERT: Devlin et al. 2019). ``"spans"`` masks contiguous spans of geometric
    length from uniform starts until the fraction is reached (SpanBERT: Joshi et al. 2020, without its longest length of
    ten). Spans may overlap, and the last one is cut to the number left. Each masked symbol (or each span as a whole) is
    replaced by the mask symbol, replaced by random symbols, or kept; it is predicted in every case.

    Args:
        objective: ``"tokens"`` or ``"spans"``.
        fraction: fraction of the symbols that is masked, above 0 and at most 1.
        span_mean: mean length of a span, in symbols.
        mask_share, random_share, keep_share: fractions of the masked symbols that are replaced by the mask symbol,
            replaced by random symbols, and kept. They sum to 1.

    Raises:
        ValueError: if a value is out of its range.
    """

    objective: MaskingObjective = "tokens"
    fraction: float = 0.15
    span_mean: float = 3.0
    mask_share: float = 0.8
    random_share: float = 0.1
    keep_share: float = 0.1

    def __post_init__(self) -> None:
        if self.objective not in get_args(MaskingObjective):
            raise ValueError(f'objective is {self.objective!r}; pass "tokens" or "spans"')
        if not 0 < self.fraction <= 1:
            raise ValueError(f"mask_fraction is {self.fraction}; pass a fraction above 0, at most 1")
        if not self.span_mean >= 1:
            raise ValueError(f"span_mean is {self.span_mean}; pass a mean length of at least 1 symbol")
        shares = (self.mask_share, self.random_share, self.keep_share)
        if min(shares) < 0 or not math.isclose(sum(shares), 1):
            raise ValueError(f"mask_share, random_share and keep_share are {shares}; pass three shares that sum to 1")

    def apply(self, symbols: np.ndarray, n_symbols: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Mask a sequence of T symbols: return the inputs of the model, and which symbols are to be predicted.

        Special symbols are never masked.

        Args:
            symbols: numbers of symbols, ``(T,)``, from 0 to ``n_symbols - 1``; special symbols are numbered from
                ``n_symbols`` on.
            n_symbols: number of symbols V.
            rng: generator of the choice.

        Returns:
            inputs: symbols after some were replaced, ``(T,)``.
            masked: True where a symbol is to be predicted, ``(T,)``.
        """
        group = np.full(len(symbols), -1)
        maskable = np.flatnonzero(symbols < n_symbols)
        group[maskable] = self.choose(len(maskable), rng)
        masked = group >= 0
        u = rng.random(len(symbols) + 1)[group]  # one for each group; unmasked symbols ignore theirs, the last
        replaced_by_mask = masked & (u < self.mask_share)
        replaced_at_random = masked & ~replaced_by_mask & (u < self.mask_share + self.random_share)
        random_symbols = rng.integers(n_symbols, size=len(symbols))
        inputs = np.where(replaced_by_mask, n_symbols + MASK, np.where(replaced_at_random, random_symbols, symbols))
        return inputs, masked

    def choose(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Choose the symbols to mask among n, and return the number of each one's span, ``(n,)``, or -1 if not masked.

        A single masked symbol is a span of its own. All symbols of a span are replaced in the same way.

        Args:
            n: number of symbols that may be masked.
            rng: generator of the choice.
        """
        count = min(n, max(1, round(self.fraction * n)))
        return _tokens(n, count, rng) if self.objective == "tokens" else _spans(n, count, self.span_mean, rng)


def _tokens(n: int, count: int, rng: np.random.Generator) -> np.ndarray:
    group = np.full(n, -1)
    group[rng.permutation(n)[:count]] = np.arange(count)
    return group


def _spans(n: int, count: int, mean: float, rng: np.random.Generator) -> np.ndarray:
    group = np.full(n, -1)
    n_spans = 0
    while (n_left := count - int(np.count_nonzero(group >= 0))) > 0:
        length: int = min(int(rng.geometric(1 / mean)), n_left)
        start = int(rng.integers(n - length + 1))
        span = group[start : start + length]
        span[span < 0] = n_spans
        n_spans = int(group.max()) + 1  # a span that fell only on masked symbols leaves its number free
    return group


# -- the objective ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MaskedBatch:
    """A padded batch of windows (sequences or parts of them) in which symbols are masked.

    Attributes:
        inputs: the symbols after some were replaced, B windows of T steps, (B, T).
        mask: False at padding, (B, T).
        masked: True where a symbol is to be predicted, (B, T).
        targets: the N symbols to be predicted, row by row, (N,).
        n_of_all: the sum of N over all processes that share the batch.
        counts: False if there are fewer windows than processes, so that this process repeats one whose result does not
            count.
    """

    inputs: Tensor
    mask: Tensor
    masked: Tensor
    targets: Tensor
    n_of_all: int
    counts: bool = True

    @classmethod
    def from_windows(
        cls, windows: list[np.ndarray], masking: Masking, network: BidirectionalNetwork, rng: np.random.Generator
    ) -> MaskedBatch:
        """Mask symbols in each window, and return the part of the batch for this process.

        Every process masks all windows, so that the result is the same as with one process.

        Args:
            windows: symbols of each window, ``(T,)``.
            masking: rule by which symbols are masked.
            network: the network, of which the number of symbols and the device are used.
            rng: generator of the masks.
        """
        device = network.head.weight.device
        parts = [(window, *masking.apply(window, network.n_symbols, rng)) for window in windows]
        n_of_all = sum(int(masked.sum()) for _, _, masked in parts)
        mine = distributed.shard(parts)
        inputs, masked = [x for _, x, _ in mine or parts[:1]], [at for _, _, at in mine or parts[:1]]
        padded, mask = pad_right(inputs, device)
        targets = torch.as_tensor(np.concatenate([window[at] for window, _, at in mine or parts[:1]]), device=device)
        return cls(padded, mask, pad_right(masked, device)[0], targets, n_of_all, counts=bool(mine))


@dataclass(frozen=True)
class MaskedObjective:
    """The training objective ``Σ log p(masked symbol | inputs)`` of a batch, a function of a ``MaskedBatch``.

    Args:
        network: the network that is trained.
    """

    network: BidirectionalNetwork

    def __call__(self, batch: MaskedBatch) -> BatchResult:
        """Return the log-probability of the masked symbols of a batch in nats, with their number as its weight."""
        log_prob = self.log_prob(batch).sum() * batch.counts
        n, n_of_all = float(len(batch.targets) * batch.counts), float(batch.n_of_all)
        return BatchResult(log_prob, n_of_all, log_prob.detach().double(), n, floor_hits=torch.zeros(()))

    def log_prob(self, batch: MaskedBatch) -> Tensor:
        return log_prob_of(self.network(batch.inputs, batch.mask, batch.masked), batch.targets)


@dataclass(frozen=True)
class MaskedData:
    """Rows of symbols for training and evaluation, and how they are masked and batched.

    Attributes:
        rows: training sequences with special symbols, ``(T,)`` each.
        held_out: the same for evaluation.
        masking: rule by which symbols are masked.
        batching: division of an epoch into batches.
        random_state: seed of batches and masks.
    """

    rows: list[np.ndarray]
    held_out: list[np.ndarray]
    masking: Masking
    batching: Batching
    random_state: int

    def epoch(self, number: int, network: BidirectionalNetwork) -> Iterator[MaskedBatch]:
        """Yield the training batches of an epoch, masked anew.

        Args:
            number: number of the epoch, which gives the seed.
            network: the network, of which the number of symbols and the device are used.
        """
        rng = np.random.default_rng([self.random_state, number])
        for batch, _continues in self.batching.epoch(self.batching_rows, rng):
            windows = [self.rows[span.row][span.begin : span.end] for span in batch]
            yield MaskedBatch.from_windows(windows, self.masking, network, rng)

    @cached_property
    def batching_rows(self) -> list[Row]:
        return [Row(row, 0, None, 1.0, False) for row in self.rows]

    def held_out_batches(self, network: BidirectionalNetwork) -> list[MaskedBatch]:
        """Return batches of the first held-out windows, masked once, so that every evaluation has the same targets.

        ``network`` gives the number of symbols and the device.
        """
        length = self.batching.bptt
        windows = [row[begin : begin + length] for row in self.held_out for begin in range(0, len(row), length)]
        n_kept = int(np.searchsorted(np.cumsum([len(window) for window in windows]), MAX_HELD_OUT)) + 1
        windows = windows[:n_kept]
        rng = np.random.default_rng(self.random_state)
        parts = batches_by_length([len(window) for window in windows], MAX_BATCH_STEPS)
        return [MaskedBatch.from_windows([windows[i] for i in part], self.masking, network, rng) for part in parts]


def train_masked(
    network: BidirectionalNetwork,
    data: MaskedData,
    config: TrainConfig,
    checkpoints: Checkpoints,
    generator: torch.Generator,
    parallel: Parallel | None,
) -> tuple[pd.DataFrame, bool]:
    """Train the network to predict masked symbols.

    Args:
        network: the network, which is trained in place.
        data: the sequences, and how they are masked and batched.
        config: settings of the training loop.
        checkpoints: where progress is written, and what to resume from.
        generator: generator of dropout.
        parallel: how several processes share the work; None for one process.

    Returns:
        The history, in nats per masked symbol, and True if training stopped because held-out data no longer improved.
    """
    held_out = data.held_out_batches(network)
    return train(
        network,
        lambda number: data.epoch(number, network),
        MaskedObjective(network),
        (lambda: _nats_per_symbol(network, held_out)) if held_out else None,
        config,
        data.batching.n_batches(data.batching_rows),
        checkpoints=checkpoints,
        generator=generator,
        parallel=parallel,
        units=network.units,
    )


@torch.no_grad()
def _nats_per_symbol(network: BidirectionalNetwork, batches: list[MaskedBatch]) -> float:
    network.eval()
    objective = MaskedObjective(network)
    log_prob = sum(float(objective.log_prob(batch).double().sum()) * batch.counts for batch in batches)
    return distributed.sum_of(log_prob) / sum(batch.n_of_all for batch in batches)
