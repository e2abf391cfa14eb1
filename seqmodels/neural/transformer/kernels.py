"""One step of a causal Transformer in one call, compiled where numba is installed: products of a vector and a matrix.

``TransformerStepper`` takes the same step in about fifty operations of torch, which for small matrices cost more than
the arithmetic in them.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from seqmodels.compiled import compiled

RELU, SQUARED_RELU, GELU, TANH_GELU, SWIGLU = range(5)


class BlockWeights(NamedTuple):
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
        position: (T, d), added to the input of each of the first T steps; (T, 0) where nothing is.
        rotation: (T, (H + G) d_head), cosines and sines in turn; (T, 0) without rotary embedding.
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
    position: np.ndarray
    rotation: np.ndarray


class BlockConstants(NamedTuple):
    """What a step needs to know besides its weights.

    Attributes:
        activation: one of the numbers above.
        centres: whether norms subtract the mean.
        epsilon: of norms, added to the mean square.
        head_epsilon: of the norms of heads, added to the sum of squares.
    """

    activation: int
    centres: bool
    epsilon: float
    head_epsilon: float


@compiled(any_order=True)
def add_product(x: np.ndarray, weight: np.ndarray, y: np.ndarray) -> None:
    """``y += x W``, of ``x (n,)`` and ``weight (n, m)``; rows that are multiplied by zero are not read."""
    n, m = weight.shape
    first = second = third = -1  # rows that wait for a fourth, so that y is read and written once for four
    for i in range(n):
        if x[i] == 0:
            continue
        if first < 0:
            first = i
        elif second < 0:
            second = i
        elif third < 0:
            third = i
        else:
            a, b, c, d = x[first], x[second], x[third], x[i]
            wa, wb, wc, wd = weight[first], weight[second], weight[third], weight[i]
            for j in range(m):
                y[j] += (a * wa[j] + b * wb[j]) + (c * wc[j] + d * wd[j])
            first = second = third = -1
    for i in (first, second, third):
        if i >= 0:
            a, wa = x[i], weight[i]
            for j in range(m):
                y[j] += a * wa[j]


@compiled(any_order=True)
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


@compiled(any_order=True)
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


@compiled(any_order=True)
def normalise_heads(x: np.ndarray, gain: np.ndarray, d_head: int, epsilon: float) -> None:
    """Queries and keys at the beginning of ``x``, each divided by its length, times ``gain``, in place."""
    for begin in range(0, len(gain), d_head):
        square = x.dtype.type(0)
        for i in range(begin, begin + d_head):
            square += x[i] * x[i]
        scale = x.dtype.type(1 / math.sqrt(square + epsilon))
        for i in range(begin, begin + d_head):
            x[i] *= scale * gain[i]


@compiled(any_order=True)
def rotate_pairs(x: np.ndarray, rotation: np.ndarray) -> None:
    """Each pair of neighbours turned by its angle, in place; ``rotation`` has cosines and sines in turn.

    What is beyond its end, the values, stays.
    """
    for i in range(0, len(rotation), 2):
        a, b, cosine, sine = x[i], x[i + 1], rotation[i], rotation[i + 1]
        x[i] = a * cosine - b * sine
        x[i + 1] = a * sine + b * cosine


@compiled(any_order=True)
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


@compiled(any_order=True)
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


@compiled(any_order=True)
def attend_in_block(
    projected: np.ndarray, layer: int, key_value: np.ndarray, row: int, t: int, scores: np.ndarray, context: np.ndarray
) -> None:
    """Write the keys and values of step t, in ``projected``, and add its queries' to ``context (H d_head,)``."""
    n_key_heads, d_head = key_value.shape[3], key_value.shape[5]
    n_heads = len(context) // d_head
    for g in range(n_key_heads):
        key = (n_heads + g) * d_head
        value = key + n_key_heads * d_head
        key_value[layer, 0, row, g, t] = projected[key : key + d_head]
        key_value[layer, 1, row, g, t] = projected[value : value + d_head]
    for h in range(n_heads):
        g = h * n_key_heads // n_heads
        keys, values = key_value[layer, 0, row, g, : t + 1], key_value[layer, 1, row, g, : t + 1]
        begin, end = h * d_head, (h + 1) * d_head
        attend(projected[begin:end], keys, values, scores, context[begin:end])


@compiled(any_order=True)
def take_step(
    row_ids: np.ndarray,
    pending: np.ndarray,
    key_value: np.ndarray,
    t: int,
    pending_ahead: np.ndarray,
    key_value_ahead: np.ndarray,
    t_ahead: int,
    inputs: np.ndarray,
    weights: BlockWeights,
    constants: BlockConstants,
) -> tuple[np.ndarray, np.ndarray]:
    """A step of n sequences in their window, and of N - n in the next one, which begins before this one ends.

    Args:
        row_ids: of the inputs, (n,).
        pending: what inputs before add to the next p steps, (n, p d).
        key_value: (L, 2, n, G, capacity, d_head), in which those of the step are written.
        t: steps before in the window.
        pending_ahead, key_value_ahead, t_ahead: the same of the next window; (0, p d) where it is not read yet.
        inputs: (R, d + p d), each and what it adds to the next p steps.
        weights, constants: of the network.

    Returns:
        Hidden states ``(N, d)``, and ``(N, p d)`` what is then pending; the first n are those of the window.
    """
    n_layers, n, width, d = len(weights.project), len(pending), pending.shape[1], weights.final_norm.shape[1]
    n_rows = n + len(pending_ahead)
    rows, x = np.empty((n_rows, inputs.shape[1]), inputs.dtype), np.empty((n_rows, d), inputs.dtype)
    for row in range(n_rows):
        rows[row] = inputs[row_ids[row % n]]
        before = pending[row] if row < n else pending_ahead[row - n]
        for i in range(width):
            rows[row, i] += before[i]
        x[row] = rows[row, :d]
        if weights.position.shape[1]:
            x[row] += weights.position[t if row < n else t_ahead]
    normed = np.empty_like(x)
    projected = np.empty((n_rows, weights.project.shape[2]), x.dtype)
    context = np.empty((n_rows, weights.output.shape[1]), x.dtype)
    expanded = np.empty((n_rows, weights.expand.shape[2]), x.dtype)
    activated = np.empty((n_rows, weights.contract.shape[1]), x.dtype)
    scores = np.empty(max(t, t_ahead) + 1, x.dtype)
    for layer in range(n_layers):
        for row in range(n_rows):
            normalise(x[row], weights.attention_norm[layer], constants.centres, constants.epsilon, normed[row])
        projected[:] = weights.project_bias[layer]
        add_products(normed, weights.project[layer], projected)
        context[:] = 0
        for row in range(n_rows):
            if weights.head_gain.shape[1]:
                normalise_heads(projected[row], weights.head_gain[layer], key_value.shape[5], constants.head_epsilon)
            rotate_pairs(projected[row], weights.rotation[t if row < n else t_ahead])
            if row < n:
                attend_in_block(projected[row], layer, key_value, row, t, scores, context[row])
            else:
                attend_in_block(projected[row], layer, key_value_ahead, row - n, t_ahead, scores, context[row])
        x += weights.output_bias[layer]
        add_products(context, weights.output[layer], x)
        for row in range(n_rows):
            normalise(x[row], weights.feedforward_norm[layer], constants.centres, constants.epsilon, normed[row])
        expanded[:] = weights.expand_bias[layer]
        add_products(normed, weights.expand[layer], expanded)
        for row in range(n_rows):
            activate(expanded[row], constants.activation, activated[row])
        x += weights.contract_bias[layer]
        add_products(activated, weights.contract[layer], x)
    for row in range(n_rows):
        normalise(x[row], weights.final_norm, constants.centres, constants.epsilon, normed[row])
    return normed, rows[:, d:].copy()
