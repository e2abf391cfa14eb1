"""Exact messages at the edges of segments, by products of operators (Särkkä and García-Fernández 2021).

What the frames ``s .. e`` of a segment do to any message is a K x K matrix, found side by side for all segments::

    O(i, j) = p(x_s .. x_e, z_e = j | z_s-1 = i)          O = A diag(b_s) A diag(b_s+1) ... A diag(b_e)

Neighbouring segments are multiplied in pairs, and pairs of pairs, until one operator stands for a sequence; on the way
back down these give the message before (forward) and after (backward) every segment, in as many steps as the number of
segments has binary digits. No chain has to forget for that, but a frame costs K times what it costs in a recursion.

Every row is scaled on its own, by powers of two that are kept beside it: one row may be as improbable as it likes
beside another. Within a row, what is below the ``flush`` of a scaled recursion is zero.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from seqmodels.inference.chains.segments import Segments

FLUSH = 1e-300  # relative to the largest of a row: smaller values become zero, as in ``scaled``
OF_ZEROS = -float(1 << 40)  # the exponent of a row of zeros: below that of any other
LEAST_EXPONENT = -1020  # of a number that can be scaled up to one


@dataclass(frozen=True)
class ScaledRows:
    """Matrices without negative entries, ``values[..., i, :] * 2 ** exponents[..., i]``.

    Attributes:
        values: (..., r, c) float64; the largest of each row is in [0.5, 1), or all are zero.
        exponents: (..., r) float64, whole numbers.
    """

    values: Tensor
    exponents: Tensor

    @classmethod
    def of(cls, matrices: Tensor, exponents: Tensor | float = 0.0) -> ScaledRows:
        """Return the matrices ``(..., r, c)`` with rows scaled further, beside ``exponents (..., r)`` they have."""
        peak = matrices.amax(-1)
        own = _exponents(peak).clamp_(min=LEAST_EXPONENT)
        values = torch.threshold_(matrices * torch.exp2(-own).unsqueeze(-1), FLUSH, 0.0)
        return cls(values, (own + exponents).masked_fill_(peak == 0, OF_ZEROS))

    def __getitem__(self, index: slice | Tensor | tuple[slice, slice]) -> ScaledRows:
        """Some of the matrices."""
        return ScaledRows(self.values[index], self.exponents[index])

    def __matmul__(self, other: ScaledRows) -> ScaledRows:
        """The product; each of its rows is summed at the scale of its own largest term."""
        mantissa, own = torch.frexp(self.values)
        exponents = (own + other.exponents.unsqueeze(-2)).masked_fill_(self.values == 0, OF_ZEROS)
        level = exponents.amax(-1, keepdim=True)
        weights = mantissa * torch.exp2(exponents - level)
        return ScaledRows.of(weights @ other.values, self.exponents + level.squeeze(-1))


@dataclass(frozen=True)
class BlockProducts:
    """The operators of all segments of n sequences, and those of pairs, of pairs of pairs and so on.

    Attributes:
        transition: (K, K) float64.
        levels: operators ``(n, m, K, K)``, at the last level of one m alone. Those of first segments begin with
            ``diag(b_1)``; after the last of a sequence identities fill up.
        place: (w,) by rank, where a segment stands among n times m.
    """

    transition: Tensor
    levels: list[ScaledRows]
    place: Tensor

    @classmethod
    def of(cls, transition: Tensor, b: Tensor, segments: Segments, slack: Tensor | None = None) -> BlockProducts:
        """Multiply up the frames of each segment, and the segments.

        Args:
            transition: (K, K) float64.
            b: (N, K) float64 densities, by the rows of ``segments.packing``.
            segments: of the N rows.
            slack: (N, K), what is added at each frame to every row, as a share of its sum: for upper bounds.
        """
        n, m = segments.n_sequences, -(-int(segments.lengths.max()) // segments.size)
        position = torch.arange(len(segments.owner), device=b.device) - segments.first_segment[segments.owner]
        place = (segments.owner * m + position)[segments.packing.order]
        operators = _of_segments(transition, b, segments, slack)
        filled = ScaledRows.of(torch.eye(len(transition), dtype=b.dtype, device=b.device).repeat(n * m, 1, 1))
        filled.values[place], filled.exponents[place] = operators.values, operators.exponents
        levels = [ScaledRows(filled.values.unflatten(0, (n, m)), filled.exponents.unflatten(0, (n, m)))]
        while levels[-1].values.shape[1] > 1:
            levels.append(_in_pairs(levels[-1]))
        return cls(transition, levels, place)

    def starts(self, initial: Tensor) -> Tensor:
        """Return what is predicted for the first state of each segment, ``(w, K)`` by rank.

        ``initial (1 or n, K)`` is p(z_1). Rows of impossible sequences are NaN.
        """
        n = len(self.levels[0].exponents)
        message = ScaledRows.of(initial.expand(n, -1)[:, None, None, :])
        for operators in reversed(self.levels[:-1]):
            half = operators.exponents.shape[1] // 2
            message = _interleaved(message, message[:, :half] @ operators[:, 0 : 2 * half : 2])
        alpha = message.values[:, :, 0]
        predicted = alpha / alpha.sum(-1, keepdim=True) @ self.transition
        predicted[:, 0] = initial
        return predicted.flatten(0, 1)[self.place]

    def ends(self, final: Tensor, last_alpha: Tensor) -> Tensor:
        """Return beta at the last frame of each segment, ``(w, K)`` by rank, up to a constant each.

        Args:
            final: (1 or n, K) probabilities of the end, or ones.
            last_alpha: (w, K) by rank, p(z | x so far) at these frames: what is returned is of the order of one where
                that weighs most.
        """
        n = len(self.levels[0].exponents)
        message = ScaledRows.of(final.expand(n, -1)[:, None, :, None])
        for operators in reversed(self.levels[:-1]):
            half = operators.exponents.shape[1] // 2
            before = operators[:, 1::2] @ message[:, :half]
            message = _interleaved(_joined(before, message[:, half:]), message[:, :half])
        exponents, values = message.exponents.flatten(0, 1)[self.place], message.values.flatten(0, 1)[self.place]
        weight = (_exponents(last_alpha) + exponents).masked_fill_(last_alpha == 0, OF_ZEROS)
        return values[..., 0] * torch.exp2(exponents - weight.amax(-1, keepdim=True))


def _exponents(values: Tensor) -> Tensor:
    """Of the powers of two just above them, as numbers."""
    return torch.frexp(values).exponent.to(values.dtype)


def _of_segments(transition: Tensor, b: Tensor, segments: Segments, slack: Tensor | None) -> ScaledRows:
    """(w, K, K) by rank: the operator of each segment."""
    K, (_, after) = len(transition), segments.neighbours
    values = torch.eye(K, dtype=b.dtype, device=b.device).repeat(segments.packing.n_sequences, 1, 1)
    exponents = values.new_zeros(values.shape[:2])
    for t, (low, high) in enumerate(segments.packing.blocks):
        rows = values[: high - low]
        if t:
            predicted = rows @ transition
        else:
            predicted = rows.index_put((after,), transition)
        joint = predicted * b[low:high, None, :]
        if slack is not None:
            joint += slack[low:high, None, :] * rows.sum(-1, keepdim=True)
        scaled = ScaledRows.of(joint, exponents[: high - low])
        values[: high - low], exponents[: high - low] = scaled.values, scaled.exponents
    return ScaledRows(values, exponents)


def _in_pairs(operators: ScaledRows) -> ScaledRows:
    """(n, m, K, K) -> (n, (m + 1) // 2, K, K); one that is left over stays as it is."""
    half = operators.exponents.shape[1] // 2
    return _joined(operators[:, 0 : 2 * half : 2] @ operators[:, 1::2], operators[:, 2 * half :])


def _joined(first: ScaledRows, second: ScaledRows) -> ScaledRows:
    """(n, m, r, c) and (n, k, r, c) -> (n, m + k, r, c)."""
    return ScaledRows(torch.cat([first.values, second.values], 1), torch.cat([first.exponents, second.exponents], 1))


def _interleaved(even: ScaledRows, odd: ScaledRows) -> ScaledRows:
    """(n, m, r, c) and (n, m or m - 1, r, c), in turn."""
    return ScaledRows(_in_turn(even.values, odd.values), _in_turn(even.exponents, odd.exponents))


def _in_turn(even: Tensor, odd: Tensor) -> Tensor:
    result = even.new_empty(len(even), even.shape[1] + odd.shape[1], *even.shape[2:])
    result[:, 0::2], result[:, 1::2] = even, odd
    return result
