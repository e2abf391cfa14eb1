"""Pseudo-log-likelihoods, hidden states and attention weights of a bidirectional network, for any sequence length."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import torch

from seqmodels.neural.batches import Windowing
from seqmodels.neural.masked.network import MASK, BidirectionalNetwork, log_prob_of, with_boundaries
from seqmodels.neural.ops.padding import pad_right

MAX_BATCH_STEPS = 16_384  # padded steps in one batch: limits memory, changes no result


@torch.no_grad()
def conditional_log_probs(
    network: BidirectionalNetwork, values: list[np.ndarray], positions: list[np.ndarray], max_length: int
) -> list[np.ndarray]:
    r"""Return, for each sequence, ``log p(x_t | x_\t)`` in nats at each of its ``positions`` t (Salazar et al. 2020).

    Their sum over all t is the pseudo-log-likelihood, which is not a likelihood. It costs one forward pass per symbol:
    for each t there is a copy of the sequence in which only t is masked. A sequence longer than ``max_length`` (with
    its two boundaries) is seen through a window of that length, with t as near the middle as the sequence's ends allow.

    Args:
        network: the network, in evaluation mode.
        values: the symbols (T,) of each sequence.
        positions: the positions t of each sequence, counted from 0.
        max_length: how many steps the network sees at once.
    """
    rows = [with_boundaries(v, network.n_symbols) for v in values]
    masked_steps = [(i, int(t) + 1) for i, at in enumerate(positions) for t in at]  # + 1: the boundary at the beginning
    results = np.zeros(len(masked_steps))
    device = network.head.weight.device
    for batch in batches_by_length([min(len(rows[i]), max_length) for i, _ in masked_steps], MAX_BATCH_STEPS):
        inputs, steps = zip(
            *(
                _masked_window(rows[i], t, max_length, network.n_symbols)
                for i, t in map(masked_steps.__getitem__, batch)
            ),
            strict=True,
        )
        padded, mask = pad_right(list(inputs), device)
        masked = torch.arange(padded.shape[1], device=device) == torch.tensor(steps, device=device).unsqueeze(1)
        targets = torch.tensor([int(rows[i][t]) for i, t in map(masked_steps.__getitem__, batch)], device=device)
        results[batch] = log_prob_of(network(padded, mask, masked).double(), targets).cpu().numpy()
    return np.split(results, np.cumsum([len(at) for at in positions])[:-1])


def _masked_window(row: np.ndarray, t: int, max_length: int, n_symbols: int) -> tuple[np.ndarray, int]:
    """Return a window of a row around step t, with t masked, and the position of t in the window.

    Args:
        row: symbols with the special symbols of their boundaries, ``(T + 2,)``.
        t: the step in ``row``.
        max_length: number of steps of the window, at most.
        n_symbols: number of symbols V; special symbols are numbered from here on.
    """
    begin = max(0, min(t - max_length // 2, len(row) - max_length))
    window = row[begin : begin + max_length].copy()
    window[t - begin] = n_symbols + MASK
    return window, t - begin


def sampled_positions(values: np.ndarray, n_samples: int | None, random_state: int) -> np.ndarray:
    """Return ``n_samples`` positions of a sequence, drawn uniformly without replacement, in the order of the draws.

    All positions come in ascending order if ``n_samples`` is None, or not below the length.

    Args:
        values: symbols of the sequence, ``(T,)``; with the seed they determine the draw, whatever the sequence's place
            among others.
        n_samples: number of positions, or None for all.
        random_state: the seed.
    """
    if n_samples is None or n_samples >= len(values):
        return np.arange(len(values))
    rng = np.random.default_rng([random_state, zlib.crc32(values.tobytes())])
    return rng.permutation(len(values))[:n_samples]


@torch.no_grad()
def hidden_states(
    network: BidirectionalNetwork, rows: list[np.ndarray], max_length: int, layer: int
) -> list[np.ndarray]:
    """Return, for each row of T symbols, the hidden states (T, d) after ``layer`` blocks, in the network's dtype.

    Rows longer than ``max_length`` are read in windows that overlap by half, and each step's state comes from the
    window in which it is nearer the middle.

    Args:
        network: the network, in evaluation mode.
        rows: symbols with special symbols, (T,) each.
        max_length: how many steps the network sees at once.
        layer: number of blocks; 0 for the embedded inputs.
    """
    device = network.head.weight.device
    d_model = network.embedding.embedding_dim
    dtype = torch.empty(0, dtype=network.head.weight.dtype).numpy().dtype
    results = [np.zeros((len(row), d_model), dtype=dtype) for row in rows]
    parts = [(i, *window) for i, row in enumerate(rows) for window in central_windows(len(row), max_length)]
    for batch in batches_by_length([end - begin for _, begin, end, _, _ in parts], MAX_BATCH_STEPS):
        batch_parts = [parts[j] for j in batch]
        padded, mask = pad_right([rows[i][begin:end] for i, begin, end, _, _ in batch_parts], device)
        states = network.layer_states(padded, mask, layer).cpu().numpy()
        for (i, begin, _, first, last), window_states in zip(batch_parts, states, strict=True):
            results[i][first:last] = window_states[first - begin : last - begin]
    return results


@torch.no_grad()
def self_attention(
    network: BidirectionalNetwork, rows: list[np.ndarray], max_length: int, layer: int, head: int | None
) -> list[np.ndarray]:
    """Return, for each row of T symbols, the attention weights (T, T) of step t on step s in one layer.

    Rows longer than ``max_length`` are read in windows that overlap by half; steps outside of a step's window have
    weight zero.

    Args:
        network: the network, in evaluation mode.
        rows: symbols with special symbols, (T,) each.
        max_length: how many steps the network sees at once.
        layer: number of the layer, from 0.
        head: number of the head, or None for the mean of all heads.
    """
    results = []
    for row in rows:
        weights = np.zeros((len(row), len(row)))
        for begin, end, first, last in central_windows(len(row), max_length):
            inputs = torch.as_tensor(row[begin:end], device=network.head.weight.device)[None]
            heads = network.self_attention_weights(inputs, layer)[0].double()  # (H, t, t)
            of_window = heads.mean(0) if head is None else heads[head]
            weights[first:last, begin:end] = of_window[first - begin : last - begin].cpu().numpy()
        results.append(weights)
    return results


def central_windows(n: int, length: int) -> list[tuple[int, int, int, int]]:
    """Return windows of ``length`` steps that overlap by half over n steps, and the middle steps to take from each.

    Each is ``(begin, end, first, last)``: a window covers the steps ``begin .. end - 1``, and the steps ``first .. last
    - 1`` are taken from it.

    >>> central_windows(10, 4)
    [(0, 4, 0, 3), (2, 6, 3, 5), (4, 8, 5, 7), (6, 10, 7, 10)]
    """
    spans = [(begin, end) for begin, end, _ in Windowing(length).windows(n)]
    cuts = [0, *((end + begin) // 2 for (_, end), (begin, _) in pairwise(spans)), n]
    return [(*span, *cut) for span, cut in zip(spans, pairwise(cuts), strict=True)]


def batches_by_length(lengths: list[int], max_steps: int) -> Iterator[list[int]]:
    """Yield the indices of rows with the given lengths in batches of similar length.

    A batch has one row, or at most ``max_steps`` steps with padding.

    >>> list(batches_by_length([3, 1, 4, 2], max_steps=6))
    [[1, 3], [0], [2]]
    """
    batch: list[int] = []
    for i in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        if batch and (len(batch) + 1) * lengths[i] > max_steps:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch
