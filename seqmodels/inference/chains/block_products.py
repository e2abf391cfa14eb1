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
        power = _exponents(peak).clamp_(min=LEAST_EXPONENT)
        values = torch.threshold_(matrices * torch.exp2(-power).unsqueeze(-1), FLUSH, 0.0)
        return cls(values, (power + exponents).masked_fill_(peak == 0, OF_ZEROS))

    def __getitem__(self, index: Tensor) -> ScaledRows:
        """A copy of some of the matrices."""
        return ScaledRows(self.values[index], self.exponents[index])

    def __setitem__(self, index: Tensor, matrices: ScaledRows) -> None:
        """Put others in the place of some of the matrices."""
        self.values[index], self.exponents[index] = matrices.values, matrices.exponents

    def __matmul__(self, other: ScaledRows) -> ScaledRows:
        """The product; each of its rows is summed at the scale of its largest term."""
        mantissa, power = torch.frexp(self.values)
        exponents = (power + other.exponents.unsqueeze(-2)).masked_fill_(self.values == 0, OF_ZEROS)
        level = exponents.amax(-1, keepdim=True)
        weights = mantissa * torch.exp2(exponents - level)
        return ScaledRows.of(weights @ other.values, self.exponents + level.squeeze(-1))


@dataclass(frozen=True)
class OperatorPairs:
    """Operators of runs of segments, sequence after sequence, and how they are multiplied in pairs.

    Attributes:
        operators: (m, K, K).
        even: (p,) those at even places of their sequence: each begins a pair, or is left over.
        left: (q,) those of them that begin a pair; its other one follows.
        pair: (m,) which of the p each is in.
    """

    operators: ScaledRows
    even: Tensor
    left: Tensor
    pair: Tensor

    @classmethod
    def of(cls, operators: ScaledRows, count: Tensor) -> OperatorPairs:
        """Find the pairs of operators, ``count (n,)`` of each sequence."""
        first = (count.cumsum(0) - count).repeat_interleave(count)
        place = torch.arange(len(first), device=count.device) - first
        is_even = place % 2 == 0
        left = (is_even & (place + 1 < count.repeat_interleave(count))).nonzero()[:, 0]
        return cls(operators, is_even.nonzero()[:, 0], left, is_even.cumsum(0) - 1)

    def products(self) -> ScaledRows:
        """Return the product of each pair, and the operators left over, ``(p, K, K)``."""
        result = self.operators[self.even]
        result[self.pair[self.left]] = self.operators[self.left] @ self.operators[self.left + 1]
        return result

    def before_each(self, messages: ScaledRows) -> ScaledRows:
        """Return the rows before each operator, ``(m, 1, K)``, from the rows before each product, ``(p, 1, K)``."""
        result = messages[self.pair]
        result[self.left + 1] = result[self.left] @ self.operators[self.left]
        return result

    def after_each(self, messages: ScaledRows) -> ScaledRows:
        """Return the columns after each operator, ``(m, K, 1)``, from the columns after each product, ``(p, K, 1)``."""
        result = messages[self.pair]
        result[self.left] = self.operators[self.left + 1] @ result[self.left + 1]
        return result


@dataclass(frozen=True)
class BlockProducts:
    """The operators of all segments of n sequences, those of pairs of segments, of pairs of pairs and so on.

    Attributes:
        segments: that operators are of.
        transition: (K, K) float64.
        levels: from all segments to one or two operators a sequence; those of first segments begin with ``diag(b_1)``.
    """

    segments: Segments
    transition: Tensor
    levels: list[OperatorPairs]

    @classmethod
    def of(cls, transition: Tensor, b: Tensor, segments: Segments, slack: Tensor | None = None) -> BlockProducts:
        """Multiply up the frames of each segment, and the segments.

        Args:
            transition: (K, K) float64.
            b: (N, K) float64 densities, by the rows of ``segments.packing``.
            segments: of the N rows.
            slack: (N, K), what is added at each frame to every row, as a share of its sum: for upper bounds.
        """
        assert b.dtype == torch.float64, "products of thousands of operators in float32 are too far from exact"
        operators = _of_segments(transition, b, segments, slack)[segments.packing.rank]
        count, levels = torch.bincount(segments.owner), []
        while int(count.max()) > 1:
            levels.append(OperatorPairs.of(operators, count))
            operators, count = levels[-1].products(), (count + 1) // 2
        return cls(segments, transition, levels)

    def starts(self, initial: Tensor) -> Tensor:
        """Return what is predicted for the first state of each segment, ``(w, K)`` by rank.

        ``initial (1 or n, K)`` is p(z_1). Rows of impossible sequences are NaN.
        """
        initial = initial.expand(self.segments.n_sequences, -1)
        message = ScaledRows.of(initial[:, None, :])
        for level in reversed(self.levels):
            message = level.before_each(message)
        alpha = message.values[:, 0]
        predicted = alpha / alpha.sum(-1, keepdim=True) @ self.transition
        predicted[self.segments.first_segment] = initial
        return predicted[self.segments.packing.order]

    def ends(self, final: Tensor, last_alpha: Tensor) -> Tensor:
        """Return beta at the last frame of each segment, ``(w, K)`` by rank, up to a constant each.

        Args:
            final: (1 or n, K) probabilities of the end, or ones.
            last_alpha: (w, K) by rank, p(z | x so far) at these frames: what is returned is of the order of one where
                that weighs most.
        """
        message = ScaledRows.of(final.expand(self.segments.n_sequences, -1)[:, :, None])
        for level in reversed(self.levels):
            message = level.after_each(message)
        message = message[self.segments.packing.order]
        weight = (_exponents(last_alpha) + message.exponents).masked_fill_(last_alpha == 0, OF_ZEROS)
        return message.values[..., 0] * torch.exp2(message.exponents - weight.amax(-1, keepdim=True))


def _exponents(values: Tensor) -> Tensor:
    """Return the exponents of the powers of two just above the values."""
    return torch.frexp(values).exponent.to(values.dtype)


def _of_segments(transition: Tensor, b: Tensor, segments: Segments, slack: Tensor | None) -> ScaledRows:
    """(w, K, K) by rank: the operator of each segment."""
    K, (_, after) = len(transition), segments.neighbours
    values = torch.eye(K, dtype=b.dtype, device=b.device).repeat(segments.packing.n_sequences, 1, 1)
    exponents = values.new_zeros(values.shape[:2])
    for t, (low, high) in enumerate(segments.packing.blocks):
        rows = values[: high - low]
        predicted = rows @ transition if t else rows.index_put((after,), transition)
        joint = predicted * b[low:high, None, :]
        if slack is not None:
            joint += slack[low:high, None, :] * rows.sum(-1, keepdim=True)
        scaled = ScaledRows.of(joint, exponents[: high - low])
        values[: high - low], exponents[: high - low] = scaled.values, scaled.exponents
    return ScaledRows(values, exponents)
