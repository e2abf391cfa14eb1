"""Log-densities and second moments of linear regressions in compiled loops, in float64, four states at a time.

Matrix products would need all products of two entries of every frame, written to memory and read again. Here a density
is computed from the squares of its whitened residuals, and products are formed while they are summed.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from seqmodels.common.compiled import compiled
from seqmodels.inference.chains.threads import Part, run_parts

PART = 1 << 15  # frames of a part, which one thread takes and whose sums are kept apart
FRAMES = 192  # frames of a block of densities, which the cache nearest to the processor holds
FRAMES_SUMMED = 512  # frames of a block of sums, longer because each reduction of a vector to a number costs time
FOUR = 4  # states, and columns, at a time, because registers hold the sums of 4 x 4 products


@compiled(any_order=True, inner=True)
def _copy(x: np.ndarray, y: np.ndarray) -> None:
    """Copy ``x (n,)`` to the front of ``y``.

    It is a loop because numba takes 2 s to compile the assignment of a whole array.
    """
    for i in range(len(x)):
        y[i] = x[i]


@compiled(any_order=True)
def _log_densities(
    whitening: np.ndarray,
    constants: np.ndarray,
    columns: np.ndarray,
    order: np.ndarray,
    part: Part,
    w: np.ndarray,
    residuals: np.ndarray,
    densities: np.ndarray,
    result: np.ndarray,
) -> None:
    """Fill ``result (K, N)`` with log-densities of the frames ``part[0]`` to ``part[1]`` in nats.

    Args:
        whitening: matrices whose products with a frame are whitened residuals, ``(K', D, W')``. K' and W' are K and W
            rounded up to multiples of four, padded with zeros; in row d the first d entries are zero.
        constants: log-density of a residual of zero, ``(K',)``.
        columns: regressors and features of the frames, ``(C, N)``.
        order: indices of the rows of ``columns`` in the order of ``whitening``, ``(W,)``.
        part: first frame, and the frame after the last.
        w: buffer of zeros, ``(W', FRAMES)``.
        residuals, densities: buffers, ``(4, FRAMES)``.
        result: log-densities to fill, ``(K, N)``.
    """
    K, (padded_states, D, width) = len(result), whitening.shape
    for start in range(part[0], part[1], FRAMES):
        stop = min(start + FRAMES, part[1])
        n = stop - start
        for i in range(len(order)):
            _copy(columns[order[i], start:stop], w[i])
        p0, p1, p2, p3 = densities[0, :n], densities[1, :n], densities[2, :n], densities[3, :n]
        r0, r1, r2, r3 = residuals[0, :n], residuals[1, :n], residuals[2, :n], residuals[3, :n]
        for k in range(0, padded_states, FOUR):
            for state in range(FOUR):
                densities[state] = constants[k + state]
            for d in range(D):
                residuals[:] = 0.0
                for i in range(d // FOUR * FOUR, width, FOUR):
                    x0, x1, x2, x3 = w[i, :n], w[i + 1, :n], w[i + 2, :n], w[i + 3, :n]
                    a, b, c, e = whitening[k, d], whitening[k + 1, d], whitening[k + 2, d], whitening[k + 3, d]
                    a0, a1, a2, a3 = a[i], a[i + 1], a[i + 2], a[i + 3]
                    b0, b1, b2, b3 = b[i], b[i + 1], b[i + 2], b[i + 3]
                    c0, c1, c2, c3 = c[i], c[i + 1], c[i + 2], c[i + 3]
                    e0, e1, e2, e3 = e[i], e[i + 1], e[i + 2], e[i + 3]
                    for t in range(n):
                        r0[t] += a0 * x0[t] + a1 * x1[t] + a2 * x2[t] + a3 * x3[t]
                        r1[t] += b0 * x0[t] + b1 * x1[t] + b2 * x2[t] + b3 * x3[t]
                        r2[t] += c0 * x0[t] + c1 * x1[t] + c2 * x2[t] + c3 * x3[t]
                        r3[t] += e0 * x0[t] + e1 * x1[t] + e2 * x2[t] + e3 * x3[t]
                for t in range(n):
                    p0[t] -= 0.5 * (r0[t] * r0[t])
                    p1[t] -= 0.5 * (r1[t] * r1[t])
                    p2[t] -= 0.5 * (r2[t] * r2[t])
                    p3[t] -= 0.5 * (r3[t] * r3[t])
            for state in range(min(FOUR, K - k)):
                _copy(densities[state, :n], result[k + state, start:stop])


@compiled(any_order=True)
def _second_moments(columns: np.ndarray, weights: np.ndarray, part: Part, sums: np.ndarray) -> None:
    """Add ``Σ_t weights[k, t] columns[i, t] columns[j, t]`` to ``sums[i, j, k]`` for i ≤ j, over some frames t.

    Args:
        columns: vectors of W entries, one for each frame, ``(W, N)``.
        weights: posterior of each of K states in each frame, ``(K, N)``.
        part: first frame, and the frame after the last.
        sums: ``(W, W + 3, K')``, where K' is K rounded up to a multiple of four.
    """
    K, W, padded_states = len(weights), len(columns), sums.shape[2]
    w, g = np.zeros((W + FOUR - 1, FRAMES_SUMMED)), np.zeros((padded_states, FRAMES_SUMMED))
    for start in range(part[0], part[1], FRAMES_SUMMED):
        stop = min(start + FRAMES_SUMMED, part[1])
        n = stop - start
        for i in range(W):
            _copy(columns[i, start:stop], w[i])
        for k in range(K):
            _copy(weights[k, start:stop], g[k])
        for i in range(W):
            x = w[i, :n]
            for j in range(i, W, FOUR):
                y0, y1, y2, y3 = w[j, :n], w[j + 1, :n], w[j + 2, :n], w[j + 3, :n]
                for k in range(0, padded_states, FOUR):
                    g0, g1, g2, g3 = g[k, :n], g[k + 1, :n], g[k + 2, :n], g[k + 3, :n]
                    a0, b0, c0, d0 = 0.0, 0.0, 0.0, 0.0
                    a1, b1, c1, d1 = 0.0, 0.0, 0.0, 0.0
                    a2, b2, c2, d2 = 0.0, 0.0, 0.0, 0.0
                    a3, b3, c3, d3 = 0.0, 0.0, 0.0, 0.0
                    for t in range(n):
                        a, b, c, d = x[t] * y0[t], x[t] * y1[t], x[t] * y2[t], x[t] * y3[t]
                        a0, b0, c0, d0 = a0 + g0[t] * a, b0 + g0[t] * b, c0 + g0[t] * c, d0 + g0[t] * d
                        a1, b1, c1, d1 = a1 + g1[t] * a, b1 + g1[t] * b, c1 + g1[t] * c, d1 + g1[t] * d
                        a2, b2, c2, d2 = a2 + g2[t] * a, b2 + g2[t] * b, c2 + g2[t] * c, d2 + g2[t] * d
                        a3, b3, c3, d3 = a3 + g3[t] * a, b3 + g3[t] * b, c3 + g3[t] * c, d3 + g3[t] * d
                    to = sums[i, j : j + FOUR, k : k + FOUR]
                    to[0, 0], to[1, 0], to[2, 0], to[3, 0] = to[0, 0] + a0, to[1, 0] + b0, to[2, 0] + c0, to[3, 0] + d0
                    to[0, 1], to[1, 1], to[2, 1], to[3, 1] = to[0, 1] + a1, to[1, 1] + b1, to[2, 1] + c1, to[3, 1] + d1
                    to[0, 2], to[1, 2], to[2, 2], to[3, 2] = to[0, 2] + a2, to[1, 2] + b2, to[2, 2] + c2, to[3, 2] + d2
                    to[0, 3], to[1, 3], to[2, 3], to[3, 3] = to[0, 3] + a3, to[1, 3] + b3, to[2, 3] + c3, to[3, 3] + d3


def log_densities(whitening: Tensor, constants: Tensor, columns: Tensor, order: Tensor, result: Tensor) -> None:
    """Fill ``result`` with the log-densities of N frames in K states in nats, ``constants - ½ ‖whitening @
    columns[order]‖²``.

    Args:
        whitening: matrices whose products with a frame are whitened residuals, ``(K, D, W)``, with zeros in the first d
            entries of row d.
        constants: log-density of a residual of zero, ``(K,)``.
        columns: regressors and features of each frame, one frame a column, ``(C, N)``.
        order: indices of the rows of ``columns`` in the order of ``whitening``, ``(W,)``.
        result: log-densities to fill, ``(K, N)``.
    """
    states, width = -len(whitening) % FOUR, -whitening.shape[2] % FOUR
    matrices = torch.nn.functional.pad(whitening.double(), (0, width, 0, 0, 0, states)).numpy()
    numbers = torch.nn.functional.pad(constants.double(), (0, states)).numpy()
    frames, rows, filled = columns.contiguous().numpy(), order.numpy(), result.numpy()

    def run(part: Part) -> None:
        # Torch's memory begins at multiples of 64 bytes, so that vectors do not straddle lines of the cache.
        heights = (matrices.shape[2], FOUR, FOUR)
        w, residuals, densities = (torch.zeros(n, FRAMES, dtype=torch.float64).numpy() for n in heights)
        _log_densities(matrices, numbers, frames, rows, part, w, residuals, densities, filled)

    run_parts(_parts(columns.shape[1]), run, is_worth_sharing=True)


def second_moments(columns: Tensor, weights: Tensor) -> Tensor:
    """Return the weighted second moments ``Σ_t weights[k, t] w_t w_tᵀ`` for each of K states, ``(K, W, W)`` float64.

    Only the upper triangles of the result are valid.

    Args:
        columns: vectors w_t of W entries, one for each of N frames, ``(W, N)``.
        weights: weight of each frame in each state, ``(K, N)``.
    """
    width, n = columns.shape
    n_states, parts = len(weights), _parts(n)
    frames, numbers = columns.contiguous().numpy(), weights.contiguous().numpy()
    sums = np.zeros((len(parts), width, width + FOUR - 1, n_states + -n_states % FOUR))
    run_parts(parts, lambda part: _second_moments(frames, numbers, part, sums[part[0] // PART]), is_worth_sharing=True)
    return torch.from_numpy(sums.sum(0)[:, :width, :n_states]).permute(2, 0, 1)


def _parts(n: int) -> list[Part]:
    """Return the first frame, and the frame after the last, of each part of n frames that one thread computes."""
    return [(start, min(start + PART, n)) for start in range(0, n, PART)]
