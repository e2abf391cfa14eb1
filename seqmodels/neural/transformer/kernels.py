"""One step of a causal Transformer in one call, compiled where numba is installed.

``TransformerStepper`` takes the same step in about fifty operations of torch, which for small matrices cost more than
the arithmetic in them. Here the step is products of a vector and a matrix.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from seqmodels.common.compiled import compiled

BELOW_ONE = 1 - 2.0**-52  # the same number as in ``seqmodels.generation.decoding``
RELU, SQUARED_RELU, GELU, TANH_GELU, SWIGLU = range(5)


class BlockWeights(NamedTuple):
    """The weights of the L blocks and of the final norm of a Transformer, as arrays for compiled single steps.

    Maps are (out, in); a bias that the model does not have is zero. There are H heads of queries and G heads of keys
    and values.

    Attributes:
        attention_norm: gain and shift of the norm before attention, (L, 2, d).
        project: map to queries (scaled), keys and values, (L, (H + 2 G) d_head, d).
        project_bias: bias of ``project``, (L, (H + 2 G) d_head).
        head_gain: gain of normalised queries and keys, (L, (H + G) d_head), or (L, 0) if they are not normalised.
        output: map from the heads' contexts, (L, d, H d_head).
        feedforward_norm: gain and shift of the norm before the feed-forward, (L, 2, d).
        expand: first map of the feed-forward, (L, E, d), where E is its hidden width F, or 2 F with a gate.
        expand_bias: bias of ``expand``, (L, E).
        contract: second map of the feed-forward, (L, d, F).
        output_bias: bias of ``output``, (L, d).
        contract_bias: bias of ``contract``, (L, d).
        final_norm: gain and shift of the last norm, (2, d).
        position: positions added to the inputs of the first T steps, (T, d), or (T, 0) if none are added.
        rotation: alternating cosines and sines of rotary embedding, (T, (H + G) d_head), or (T, 0) without it.
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
    """The settings that a compiled step of a Transformer needs besides its weights.

    Attributes:
        activation: the number of the nonlinearity, one of the constants of this module.
        centres: True if norms subtract the mean (layer norms).
        epsilon: the number that norms add to the mean square.
        head_epsilon: the number that the norms of queries and keys add to the sum of squares.
    """

    activation: int
    centres: bool
    epsilon: float
    head_epsilon: float


@compiled(any_order=True, inner=True)
def add_map(x: np.ndarray, weight: np.ndarray, y: np.ndarray) -> None:
    """Add ``W x`` to ``y (m,)`` in place, for ``x (n,)`` and ``weight (m, n)``."""
    m, n = weight.shape
    in_fours = m - m % 4
    for j in range(0, in_fours, 4):  # four sums stay in registers while x is read once
        w = weight[j : j + 4]
        a = b = c = d = x.dtype.type(0)
        for i in range(n):
            a += x[i] * w[0, i]
            b += x[i] * w[1, i]
            c += x[i] * w[2, i]
            d += x[i] * w[3, i]
        y[j] += a
        y[j + 1] += b
        y[j + 2] += c
        y[j + 3] += d
    for j in range(in_fours, m):
        a = x.dtype.type(0)
        for i in range(n):
            a += x[i] * weight[j, i]
        y[j] += a


@compiled(any_order=True, inner=True)
def add_map_of_two(x: np.ndarray, x2: np.ndarray, weight: np.ndarray, y: np.ndarray, y2: np.ndarray) -> None:
    """Add ``W x`` to ``y`` and ``W x2`` to ``y2`` in place, reading the weights only once, which takes longest.

    ``x`` and ``x2`` are ``(n,)``, ``weight`` is ``(m, n)``, and ``y`` and ``y2`` are ``(m,)``.
    """
    m, n = weight.shape
    in_fours = m - m % 4
    for j in range(0, in_fours, 4):
        w = weight[j : j + 4]
        a = b = c = d = a2 = b2 = c2 = d2 = x.dtype.type(0)
        for i in range(n):
            a += x[i] * w[0, i]
            b += x[i] * w[1, i]
            c += x[i] * w[2, i]
            d += x[i] * w[3, i]
            a2 += x2[i] * w[0, i]
            b2 += x2[i] * w[1, i]
            c2 += x2[i] * w[2, i]
            d2 += x2[i] * w[3, i]
        y[j] += a
        y[j + 1] += b
        y[j + 2] += c
        y[j + 3] += d
        y2[j] += a2
        y2[j + 1] += b2
        y2[j + 2] += c2
        y2[j + 3] += d2
    add_map(x, weight[in_fours:], y[in_fours:])
    add_map(x2, weight[in_fours:], y2[in_fours:])


@compiled(any_order=True, inner=True)
def add_maps(x: np.ndarray, weight: np.ndarray, y: np.ndarray) -> None:
    """Add ``X Wᵀ`` to ``y (N, m)`` in place, where X is ``x (N, n)`` and W is ``weight (m, n)``."""
    for r in range(0, len(x) - 1, 2):
        add_map_of_two(x[r], x[r + 1], weight, y[r], y[r + 1])
    if len(x) % 2:
        add_map(x[-1], weight, y[-1])


@compiled(any_order=True, inner=True)
def add_weighted_rows(x: np.ndarray, rows: np.ndarray, y: np.ndarray) -> None:
    """Add ``Σ_i x_i row_i`` to ``y (m,)`` in place, for ``x (n,)`` and ``rows (n, m)``."""
    n, m = rows.shape
    in_fours = n - n % 4
    for i in range(0, in_fours, 4):  # so that y is read and written once for four rows
        a, b, c, d, r = x[i], x[i + 1], x[i + 2], x[i + 3], rows[i : i + 4]
        for j in range(m):
            y[j] += (a * r[0, j] + b * r[1, j]) + (c * r[2, j] + d * r[3, j])
    for i in range(in_fours, n):
        a = x[i]
        for j in range(m):
            y[j] += a * rows[i, j]


@compiled(any_order=True, inner=True)
def copy_to_rows(x: np.ndarray, y: np.ndarray) -> None:
    """Copy ``x (n,)`` to each row of ``y (N, n)``, in a loop, since numba takes 2 s to compile a whole assignment."""
    for r in range(len(y)):
        for i in range(len(x)):
            y[r, i] = x[i]


@compiled(any_order=True, inner=True)
def add_to_rows(x: np.ndarray, y: np.ndarray) -> None:
    """Add ``x (n,)`` to each row of ``y (N, n)`` in place."""
    for r in range(len(y)):
        for i in range(len(x)):
            y[r, i] += x[i]


@compiled(any_order=True, inner=True)
def normalise(x: np.ndarray, gain_and_shift: np.ndarray, centres: bool, epsilon: float, y: np.ndarray) -> None:
    """Write the layer norm (if ``centres``) or RMS norm of ``x (d,)`` to ``y (d,)``.

    Args:
        x: the input, ``(d,)``.
        gain_and_shift: gain and shift of the norm, ``(2, d)``.
        centres: True to subtract the mean, as a layer norm does.
        epsilon: is added to the mean square.
        y: result, ``(d,)``.
    """
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


@compiled(any_order=True, inner=True)
def normalise_heads(x: np.ndarray, gain: np.ndarray, d_head: int, epsilon: float) -> None:
    """Divide each query and key of one step by ``√(Σ x² + epsilon)``, its norm, and multiply it by its gains, in place.

    Args:
        x: queries and keys, ``d_head`` entries each, and then values, which stay as they are; one axis.
        gain: gain of each entry of the queries and keys, which says how many entries of ``x`` are normalised.
        d_head: entries of one query or key.
        epsilon: is added to the sum of squares.
    """
    for begin in range(0, len(gain), d_head):
        square = x.dtype.type(0)
        for i in range(begin, begin + d_head):
            square += x[i] * x[i]
        scale = x.dtype.type(1 / math.sqrt(square + epsilon))
        for i in range(begin, begin + d_head):
            x[i] *= scale * gain[i]


@compiled(any_order=True, inner=True)
def rotate_pairs(x: np.ndarray, rotation: np.ndarray) -> None:
    """Rotate each pair of neighbouring entries of queries and keys in ``x`` by its angle, in place.

    Args:
        x: queries, keys and then values of one step; one axis.
        rotation: alternating cosines and sines. Entries of ``x`` beyond its end, the values, stay as they are.
    """
    for i in range(0, len(rotation), 2):
        a, b, cosine, sine = x[i], x[i + 1], rotation[i], rotation[i + 1]
        x[i] = a * cosine - b * sine
        x[i + 1] = a * sine + b * cosine


@compiled(any_order=True)
def attend(query: np.ndarray, keys: np.ndarray, values: np.ndarray, scores: np.ndarray, context: np.ndarray) -> None:
    """Add the attention context ``softmax(q kᵀ) v`` of one query to ``context (d_head,)``.

    Args:
        query: the query, scaled already, (d_head,).
        keys, values: keys and values of S steps, (S, d_head) each.
        scores: a buffer for at least S numbers.
        context: result.
    """
    n = len(keys)
    scores[:n] = 0
    add_map(query, keys, scores)
    exponentials(scores[:n])
    total = query.dtype.type(0)
    for s in range(n):
        total += scores[s]
    for s in range(n):
        scores[s] /= total
    add_weighted_rows(scores[:n], values, context)


@compiled(any_order=True)
def exponentials(x: np.ndarray) -> None:
    """Replace ``x`` by ``exp(x - max x)``, in place."""
    largest = x[0]
    for i in range(len(x)):
        largest = max(largest, x[i])
    for i in range(len(x)):
        x[i] = math.exp(x[i] - largest)


@compiled(any_order=True)
def activate(x: np.ndarray, activation: int, y: np.ndarray) -> None:
    """Write the activation of a feed-forward's hidden layer ``x`` to ``y (F,)``.

    Args:
        x: the hidden layer, (F,), or (2 F,) with the gate first.
        activation: the number of the nonlinearity, one of the constants of this module.
        y: result, (F,).
    """
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


@compiled(any_order=True, inner=True)
def attend_in_block(
    projected: np.ndarray, layer: int, key_value: np.ndarray, row: int, t: int, scores: np.ndarray, context: np.ndarray
) -> None:
    """Write the keys and values of step t to the cache, and add the attention contexts of all heads to ``context``.

    There are L layers, n sequences, H heads of queries and G heads of keys and values.

    Args:
        projected: queries, keys and values of the step in this layer, ((H + 2 G) d_head,).
        layer: index of the layer.
        key_value: keys and values, (L, 2, n, G, capacity, d_head).
        row: index of the sequence in it.
        t: how many steps came before.
        scores: a buffer for at least t + 1 numbers.
        context: result, (H d_head,).
    """
    n_key_heads, d_head = key_value.shape[3], key_value.shape[5]
    n_heads = len(context) // d_head
    for g in range(n_key_heads):
        key = (n_heads + g) * d_head
        value = key + n_key_heads * d_head
        key_value[layer, 0, row, g, t] = projected[key : key + d_head]
        key_value[layer, 1, row, g, t] = projected[value : value + d_head]
    for h in range(n_heads):
        g = h * n_key_heads // n_heads
        keys, values = key_value[layer, 0, row, g][: t + 1], key_value[layer, 1, row, g][: t + 1]
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
    """Take a step of n sequences in their window, and of N - n in the next window, which overlaps it.

    Args:
        row_ids: row of each sequence's input in ``inputs``, (n,).
        pending: sums of what earlier inputs contribute to each of the next p steps, (n, p d); see
            ``IncrementalConvolution``.
        key_value: keys and values of L layers and G heads, (L, 2, n, G, capacity, d_head); the step writes its own to
            them.
        t: how many steps came before in the window.
        pending_ahead, key_value_ahead, t_ahead: the same for the next window; ``pending_ahead`` is (0, p d) if that
            window has not begun.
        inputs: contributions of each of R possible inputs to its own step and to the next p, (R, d + p d).
        weights, constants: the weights and settings of the network.

    Returns:
        The hidden states ``(N, d)``, and the sums of contributions afterwards, ``(N, p d)``. The first n rows belong to
        the window, and the others to the next.
    """
    n_layers, n, width, d = len(weights.project), len(pending), pending.shape[1], weights.final_norm.shape[1]
    n_rows = n + len(pending_ahead)
    rows, x = np.empty((n_rows, inputs.shape[1]), inputs.dtype), np.empty((n_rows, d), inputs.dtype)
    for row in range(n_rows):
        copy_to_rows(inputs[row_ids[row % n]], rows[row : row + 1])
        before = pending[row] if row < n else pending_ahead[row - n]
        for i in range(width):
            rows[row, i] += before[i]
        copy_to_rows(rows[row, :d], x[row : row + 1])
        if weights.position.shape[1]:
            add_to_rows(weights.position[t if row < n else t_ahead], x[row : row + 1])
    normed = np.empty_like(x)
    projected = np.empty((n_rows, weights.project.shape[1]), x.dtype)
    context = np.empty((n_rows, weights.output.shape[2]), x.dtype)
    expanded = np.empty((n_rows, weights.expand.shape[1]), x.dtype)
    activated = np.empty((n_rows, weights.contract.shape[2]), x.dtype)
    scores = np.empty(max(t, t_ahead) + 1, x.dtype)
    for layer in range(n_layers):
        for row in range(n_rows):
            normalise(x[row], weights.attention_norm[layer], constants.centres, constants.epsilon, normed[row])
        copy_to_rows(weights.project_bias[layer], projected)
        add_maps(normed, weights.project[layer], projected)
        context[:] = 0
        for row in range(n_rows):
            if weights.head_gain.shape[1]:
                normalise_heads(projected[row], weights.head_gain[layer], key_value.shape[5], constants.head_epsilon)
            rotate_pairs(projected[row], weights.rotation[t if row < n else t_ahead])
            if row < n:
                attend_in_block(projected[row], layer, key_value, row, t, scores, context[row])
            else:
                attend_in_block(projected[row], layer, key_value_ahead, row - n, t_ahead, scores, context[row])
        add_to_rows(weights.output_bias[layer], x)
        add_maps(context, weights.output[layer], x)
        for row in range(n_rows):
            normalise(x[row], weights.feedforward_norm[layer], constants.centres, constants.epsilon, normed[row])
        copy_to_rows(weights.expand_bias[layer], expanded)
        add_maps(normed, weights.expand[layer], expanded)
        for row in range(n_rows):
            activate(expanded[row], constants.activation, activated[row])
        add_to_rows(weights.contract_bias[layer], x)
        add_maps(activated, weights.contract[layer], x)
    for row in range(n_rows):
        normalise(x[row], weights.final_norm, constants.centres, constants.epsilon, normed[row])
    return normed, rows[:, d:].copy()


@compiled(any_order=True)
def draw_symbol(outputs: np.ndarray, n_symbols: int, may_end: bool, uniform: float) -> int:
    """Draw one of V symbols, or the end, by the inverse cdf at ``uniform``; the end is returned as the number V.

    Args:
        outputs: P outputs: first V logits and, if there is an end, last the logit of its probability.
        n_symbols: V.
        may_end: True if the end, whose number is V, can be drawn.
        uniform: a random number from 0 to 1.
    """
    p, cumulative, total = outputs[:n_symbols].copy(), np.empty(n_symbols), 0.0
    exponentials(p)
    for i in range(n_symbols):
        total += p[i]
        cumulative[i] = total
    threshold = uniform * BELOW_ONE * total
    if may_end:  # as if the end were one more category, with weight total · p / (1 - p)
        threshold *= 1 + math.exp(outputs[n_symbols])
    return int(np.searchsorted(cumulative, threshold, side="right"))


@compiled(any_order=True)
def draw_steps(
    row_ids: np.ndarray,
    uniform: np.ndarray,
    pending: np.ndarray,
    key_value: np.ndarray,
    t: int,
    pending_ahead: np.ndarray,
    key_value_ahead: np.ndarray,
    t_ahead: int,
    inputs: np.ndarray,
    head: np.ndarray,
    head_bias: np.ndarray,
    n_symbols: int,
    may_end: bool,
    weights: BlockWeights,
    constants: BlockConstants,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw T symbols of each of n sequences, each of which is the input of the next step.

    They are read in their window and, for N - n sequences, in the next one, which overlaps it.

    Args:
        row_ids: row of each sequence's first input in ``inputs``, (n,).
        uniform: random numbers from 0 to 1, (T, n).
        pending: sums of what earlier inputs contribute to each of the next p steps, (n, p d).
        key_value: keys and values of L layers and G heads, (L, 2, n, G, capacity, d_head), to which the steps add
            theirs.
        t: how many steps came before in the window.
        pending_ahead, key_value_ahead, t_ahead: the same for the next window; ``pending_ahead`` is (0, p d) if that
            window has not begun.
        inputs: contributions of each of R possible inputs to its own step and to the next p, (R, d + p d).
        head: weights of the output layer, (P, d).
        head_bias: bias of the output layer, (P,).
        n_symbols: V, the number of symbols, whose logits are the first outputs.
        may_end: True if ends can be drawn; see ``draw_symbol``.
        weights, constants: the weights and settings of the network.

    Returns:
        The symbols ``(T, n)``, the outputs ``(n, P)`` from which the last ones were drawn, and the sums of
        contributions afterwards, ``(N, p d)``, as in ``take_step``.
    """
    n_steps, n = uniform.shape
    symbols, outputs = np.empty((n_steps, n), np.int64), np.empty((n, len(head)), inputs.dtype)
    row_ids, after = row_ids.copy(), np.concatenate((pending, pending_ahead))
    for k in range(n_steps):
        hidden, after = take_step(
            row_ids, after[:n], key_value, t + k, after[n:], key_value_ahead, t_ahead + k, inputs, weights, constants
        )
        copy_to_rows(head_bias, outputs)
        add_maps(hidden[:n], head, outputs)
        for row in range(n):
            symbols[k, row] = draw_symbol(outputs[row], n_symbols, may_end, uniform[k, row])
            row_ids[row] = min(symbols[k, row], n_symbols - 1)
    return symbols, outputs, after
