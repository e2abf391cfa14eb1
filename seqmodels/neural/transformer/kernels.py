"""One step of a causal Transformer in one call, compiled where numba is installed: products of a vector and a matrix.

``TransformerStepper`` takes the same step in about fifty operations of torch, which for small matrices cost more than
the arithmetic in them.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from seqmodels.compiled import compiled_with_reordered_sums

RELU, SQUARED_RELU, GELU, TANH_GELU, SWIGLU = range(5)


class StepWeights(NamedTuple):
    """The weights of L blocks and of the final norm. Maps are (in, out); a bias that is not there is zero.

    Attributes:
        attention_norm: (L, 2, d), gain and shift of the norm before attention.
        project: (L, d, (H + 2 G) d_head), queries (scaled), keys and values.
        project_bias: (L, (H + 2 G) d_head).
        head_gain: (L, (H + G) d_head), of normalised queries and keys; (L, 0) without.
        output: (L, H d_head, d).
        feedforward_norm: (L, 2, d).
        expand: (L, d, E), where E is F, or 2 F with a gate.
        expand_bias: (L, E).
        contract: (L, F, d).
        output_bias: (L, d).
        contract_bias: (L, d).
        final_norm: (2, d).
    """

    attention_norm: np.ndarray
    project: np.ndarray
    project_bias: np.ndarray
    head_gain: np.ndarray
    output: np.ndarray
    feedforward_norm: np.ndarray
    expand: np.ndarray
    expand_bias: np.ndarray
    contract: np.ndarray
    output_bias: np.ndarray
    contract_bias: np.ndarray
    final_norm: np.ndarray


class StepConstants(NamedTuple):
    """What a step needs to know besides its weights.

    Attributes:
        n_heads: H, of queries.
        activation: one of the numbers above.
        centres: whether norms subtract the mean.
        epsilon: of norms, added to the mean square.
        head_epsilon: of the norms of heads, added to the sum of squares.
    """

    n_heads: int
    activation: int
    centres: bool
    epsilon: float
    head_epsilon: float


@compiled_with_reordered_sums
def add_product(x: np.ndarray, weight: np.ndarray, y: np.ndarray) -> None:
    """``y += x W``, of ``x (n,)`` and ``weight (n, m)``; rows that are multiplied by zero are not read."""
    n, m = weight.shape
    rows = np.empty(4, np.int64)
    n_rows = 0
    for i in range(n):
        if x[i] != 0:
            rows[n_rows] = i
            n_rows += 1
        if n_rows == 4:  # at once, so that y is read and written once for four rows
            a, b, c, d = x[rows[0]], x[rows[1]], x[rows[2]], x[rows[3]]
            wa, wb, wc, wd = weight[rows[0]], weight[rows[1]], weight[rows[2]], weight[rows[3]]
            for j in range(m):
                y[j] += (a * wa[j] + b * wb[j]) + (c * wc[j] + d * wd[j])
            n_rows = 0
    for k in range(n_rows):
        a, wa = x[rows[k]], weight[rows[k]]
        for j in range(m):
            y[j] += a * wa[j]


@compiled_with_reordered_sums
def add_products(x: np.ndarray, weight: np.ndarray, y: np.ndarray) -> None:
    """``Y += X W``, of ``x (N, n)``, ``weight (n, m)`` and ``y (N, m)``."""
    n, m = weight.shape
    n_in_threes = n - n % 3
    for r in range(0, len(x) - 1, 2):  # two rows by three: as many pointers as LLVM vectorises
        xa, xb, ya, yb = x[r], x[r + 1], y[r], y[r + 1]
        for i in range(0, n_in_threes, 3):
            a, b, c = xa[i], xa[i + 1], xa[i + 2]
            d, e, f = xb[i], xb[i + 1], xb[i + 2]
            wa, wb, wc = weight[i], weight[i + 1], weight[i + 2]
            for j in range(m):
                ya[j] += a * wa[j] + b * wb[j] + c * wc[j]
                yb[j] += d * wa[j] + e * wb[j] + f * wc[j]
        add_product(xa[n_in_threes:], weight[n_in_threes:], ya)
        add_product(xb[n_in_threes:], weight[n_in_threes:], yb)
    if len(x) % 2:
        add_product(x[-1], weight, y[-1])


@compiled_with_reordered_sums
def normalise(x: np.ndarray, gain_and_shift: np.ndarray, centres: bool, epsilon: float, y: np.ndarray) -> None:
    """The layer norm or RMS norm ``y`` of ``x``, both (d,)."""
    d = len(x)
    mean = x.dtype.type(0)
    if centres:
        for i in range(d):
            mean += x[i]
        mean /= d
    square = x.dtype.type(0)
    for i in range(d):
        square += (x[i] - mean) * (x[i] - mean)
    scale = x.dtype.type(1 / math.sqrt(square / d + epsilon))
    for i in range(d):
        y[i] = (x[i] - mean) * scale * gain_and_shift[0, i] + gain_and_shift[1, i]


@compiled_with_reordered_sums
def normalise_heads(x: np.ndarray, gain: np.ndarray, d_head: int, epsilon: float) -> None:
    """Queries and keys at the beginning of ``x``, each divided by its length, times ``gain``, in place."""
    for begin in range(0, len(gain), d_head):
        square = x.dtype.type(0)
        for i in range(begin, begin + d_head):
            square += x[i] * x[i]
        scale = x.dtype.type(1 / math.sqrt(square + epsilon))
        for i in range(begin, begin + d_head):
            x[i] *= scale * gain[i]


@compiled_with_reordered_sums
def rotate_pairs(x: np.ndarray, rotation: np.ndarray) -> None:
    """Each pair of neighbours turned by its angle, in place; ``rotation`` has cosines and sines in turn."""
    for i in range(0, len(rotation), 2):
        a, b, cosine, sine = x[i], x[i + 1], rotation[i], rotation[i + 1]
        x[i] = a * cosine - b * sine
        x[i + 1] = a * sine + b * cosine


@compiled_with_reordered_sums
def attend(query: np.ndarray, keys: np.ndarray, values: np.ndarray, scores: np.ndarray, context: np.ndarray) -> None:
    """Add ``softmax(q kᵀ) v`` to ``context (d_head,)``; keys and values are (S, d_head), ``scores`` has space for S."""
    n, d = keys.shape
    largest = -math.inf
    for s in range(n):
        total = query.dtype.type(0)
        for i in range(d):
            total += query[i] * keys[s, i]
        scores[s] = total
        largest = max(largest, total)
    total = query.dtype.type(0)
    shift = query.dtype.type(largest)
    for s in range(n):
        scores[s] = math.exp(scores[s] - shift)
        total += scores[s]
    for s in range(n):
        scores[s] /= total
    add_product(scores[:n], values, context)


@compiled_with_reordered_sums
def activate(x: np.ndarray, activation: int, y: np.ndarray) -> None:
    """The position-wise nonlinearity ``y (F,)`` of ``x``, (F,), or (2 F,) with the gate first."""
    half = x.dtype.type(0.5)
    n = len(y)
    if activation == RELU:
        for i in range(n):
            y[i] = max(x[i], x.dtype.type(0))
    elif activation == SQUARED_RELU:
        for i in range(n):
            rectified = max(x[i], x.dtype.type(0))
            y[i] = rectified * rectified
    elif activation == GELU:
        for i in range(n):
            y[i] = half * x[i] * (1 + math.erf(x[i] * math.sqrt(0.5)))
    elif activation == TANH_GELU:
        for i in range(n):
            y[i] = half * x[i] * (1 + math.tanh(math.sqrt(2 / math.pi) * (x[i] + 0.044715 * x[i] * x[i] * x[i])))
    else:
        for i in range(n):
            y[i] = x[i] / (1 + math.exp(-x[i])) * x[n + i]


@compiled_with_reordered_sums
def read_steps(
    x: np.ndarray,
    key_value: np.ndarray,
    begin: int,
    rotation: np.ndarray,
    weights: StepWeights,
    constants: StepConstants,
) -> np.ndarray:
    """Hidden states ``(n, d)`` of the last of T steps of n sequences.

    Args:
        x: the inputs with their positions, (n T, d), those of a sequence together; changed.
        key_value: (L, 2, n, G, capacity, d_head), in which those of the steps are written.
        begin: steps before.
        rotation: (T, (H + 2 G) d_head), cosines and sines in turn; (T, 0) without rotary embedding.
        weights: of the network.
        constants: of the network.
    """
    n_layers, _, n, n_key_heads, _, d_head = key_value.shape
    n_heads, n_steps = constants.n_heads, len(rotation)
    n_sharing = n_heads // n_key_heads
    scores = np.empty(begin + n_steps, x.dtype)
    n_queries = n_steps  # a sequence
    for layer in range(n_layers):
        normed = np.empty_like(x)
        for row in range(len(x)):
            normalise(x[row], weights.attention_norm[layer], constants.centres, constants.epsilon, normed[row])
        projected = np.empty((len(x), weights.project.shape[2]), x.dtype)
        projected[:] = weights.project_bias[layer]
        add_products(normed, weights.project[layer], projected)
        for row in range(len(x)):
            sequence, t = row // n_steps, row % n_steps
            if weights.head_gain.shape[1]:
                normalise_heads(projected[row], weights.head_gain[layer], d_head, constants.head_epsilon)
            rotate_pairs(projected[row], rotation[t])
            for g in range(n_key_heads):
                key = (n_heads + g) * d_head
                value = key + n_key_heads * d_head
                key_value[layer, 0, sequence, g, begin + t] = projected[row, key : key + d_head]
                key_value[layer, 1, sequence, g, begin + t] = projected[row, value : value + d_head]
        if layer == n_layers - 1:  # of the last block's states only the last are computed
            n_queries = 1
            x, projected = x[n_steps - 1 :: n_steps].copy(), projected[n_steps - 1 :: n_steps].copy()
        context = np.zeros((len(x), n_heads * d_head), x.dtype)
        for row in range(len(x)):
            sequence, end = row // n_queries, begin + n_steps - n_queries + row % n_queries + 1
            for h in range(n_heads):
                keys = key_value[layer, 0, sequence, h // n_sharing, :end]
                values = key_value[layer, 1, sequence, h // n_sharing, :end]
                first, last = h * d_head, (h + 1) * d_head
                attend(projected[row, first:last], keys, values, scores, context[row, first:last])
        x += weights.output_bias[layer]
        add_products(context, weights.output[layer], x)
        normed = np.empty_like(x)
        for row in range(len(x)):
            normalise(x[row], weights.feedforward_norm[layer], constants.centres, constants.epsilon, normed[row])
        expanded = np.empty((len(x), weights.expand.shape[2]), x.dtype)
        expanded[:] = weights.expand_bias[layer]
        add_products(normed, weights.expand[layer], expanded)
        activated = np.empty((len(x), weights.contract.shape[1]), x.dtype)
        for row in range(len(x)):
            activate(expanded[row], constants.activation, activated[row])
        x += weights.contract_bias[layer]
        add_products(activated, weights.contract[layer], x)
    hidden = np.empty_like(x)
    for row in range(len(x)):
        normalise(x[row], weights.final_norm, constants.centres, constants.epsilon, hidden[row])
    return hidden


@compiled_with_reordered_sums
def take_step(
    row_ids: np.ndarray,
    pending: np.ndarray,
    inputs: np.ndarray,
    position: np.ndarray,
    key_value: np.ndarray,
    begin: int,
    rotation: np.ndarray,
    weights: StepWeights,
    constants: StepConstants,
) -> tuple[np.ndarray, np.ndarray]:
    """Hidden states ``(n, d)`` of one step of n sequences, and what is pending after it, ``(n, p d)``.

    Args:
        row_ids: of the inputs, (n,).
        pending: what inputs before add to the next p steps, (n, p d).
        inputs: (R, d + p d), each and what it adds to the next p steps.
        position: what is added to the inputs, (d,), or (0,).
        key_value, begin, rotation, weights, constants: as of ``read_steps``.
    """
    n, width = pending.shape
    d = weights.final_norm.shape[1]
    rows = np.empty((n, inputs.shape[1]), inputs.dtype)
    x = np.empty((n, d), inputs.dtype)
    for row in range(n):
        rows[row] = inputs[row_ids[row]]
        for i in range(width):
            rows[row, i] += pending[row, i]
        x[row] = rows[row, :d]
        if len(position):
            x[row] += position
    return read_steps(x, key_value, begin, rotation, weights, constants), rows[:, d:].copy()
