"""Exact messages at the edges of segments, by products of operators (Särkkä and García-Fernández 2021).

The effect of the frames ``s .. e`` of a segment on any message is a K x K matrix; it is computed for all segments at
the same time::

    O(i, j) = p(x_s .. x_e, z_e = j | z_s-1 = i)          O = A diag(b_s) A diag(b_s+1) ... A diag(b_e)

Neighbouring segments are multiplied in pairs, then pairs of pairs, until one operator is left for each sequence. On the
way back down, these products give the message before every segment (forward) and after it (backward), in log2 of the
number of segments steps. The chain need not be one that forgets its past, but a frame costs K times as much as in a
recursion.

Every row is scaled on its own by a power of two, stored beside it, so that rows of very different probabilities keep
their digits. Within a row, values below the ``flush`` of a scaled recursion become zero.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from seqmodels.inference.chains.parallel_segments import Segments

FLUSH = 1e-300  # values below this share of the largest of their row become zero, as in ``scaled``
OF_ZEROS = -float(1 << 40)  # exponent of a row of zeros, below every other exponent
LEAST_EXPONENT = -1020  # exponent of the least number that can be scaled up to one


@dataclass(frozen=True)
class ScaledRows:
    """A stack of non-negative matrices whose rows are scaled separately, so that none underflows.

    Attributes:
        values: scaled entries, ``(..., r, c)`` float64; the largest entry of each row is in [0.5, 1), or all are zero.
            Row i of a matrix is ``values[..., i, :] * 2 ** exponents[..., i]``.
        exponents: exponent of each row, ``(..., r)`` float64, whole numbers.
    """

    values: Tensor
    exponents: Tensor

    @classmethod
    def of(cls, matrices: Tensor, exponents: Tensor | float = 0.0) -> ScaledRows:
        """Return non-negative matrices ``(..., r, c)`` with each row scaled so that its largest entry is in [0.5, 1).

        Args:
            matrices: the matrices, up to ``exponents``.
            exponents: powers of two by which the rows of ``matrices`` are still to be multiplied, ``(..., r)`` or one
                number for all rows.
        """
        peak = matrices.amax(-1)
        power = _exponents(peak).clamp_(min=LEAST_EXPONENT)
        values = torch.threshold_(matrices * torch.exp2(-power).unsqueeze(-1), FLUSH, 0.0)
        return cls(values, (power + exponents).masked_fill_(peak == 0, OF_ZEROS))

    def __getitem__(self, index: Tensor) -> ScaledRows:
        return ScaledRows(self.values[index], self.exponents[index])

    def __setitem__(self, index: Tensor, matrices: ScaledRows) -> None:
        self.values[index], self.exponents[index] = matrices.values, matrices.exponents

    def __matmul__(self, other: ScaledRows) -> ScaledRows:
        """Return the matrix product with ``other``; each row is summed at the scale of its largest term."""
        mantissa, power = torch.frexp(self.values)
        exponents = (power + other.exponents.unsqueeze(-2)).masked_fill_(self.values == 0, OF_ZEROS)
        level = exponents.amax(-1, keepdim=True)
        weights = mantissa * torch.exp2(exponents - level)
        return ScaledRows.of(weights @ other.values, self.exponents + level.squeeze(-1))


@dataclass(frozen=True)
class OperatorPairs:
    """The transition operators of m consecutive parts of sequences, and the pairs in which neighbours are multiplied.

    The operator of a part is the K x K matrix of its effect on any message. Operators are in the order of their
    sequences, and within a sequence in the order of time. There are p products, of q pairs and of single operators left
    over.

    Attributes:
        operators: the m operators, ``(m, K, K)`` for K states.
        even: indices of the operators at even places of their sequence, ``(p,)``; each begins a pair or is left over.
        left: indices of the operators that begin a pair, ``(q,)``; the second of the pair follows it.
        pair: index of the product, among the p, that each operator belongs to, ``(m,)``.
    """

    operators: ScaledRows
    even: Tensor
    left: Tensor
    pair: Tensor

    @classmethod
    def of(cls, operators: ScaledRows, count: Tensor) -> OperatorPairs:
        """Return the operators of n sequences in pairs of neighbours.

        ``count (n,)`` is the number of operators of each sequence.
        """
        first = (count.cumsum(0) - count).repeat_interleave(count)
        place = torch.arange(len(first), device=count.device) - first
        is_even = place % 2 == 0
        left = (is_even & (place + 1 < count.repeat_interleave(count))).nonzero()[:, 0]
        return cls(operators, is_even.nonzero()[:, 0], left, is_even.cumsum(0) - 1)

    def products(self) -> ScaledRows:
        """Return the product of each pair, and the operators left over as they are, ``(p, K, K)``."""
        result = self.operators[self.even]
        result[self.pair[self.left]] = self.operators[self.left] @ self.operators[self.left + 1]
        return result

    def before_each(self, messages: ScaledRows) -> ScaledRows:
        """Return the forward message before each operator, ``(m, 1, K)``, from those before the products of pairs.

        ``messages`` are those before the products, ``(p, 1, K)``.
        """
        result = messages[self.pair]
        result[self.left + 1] = result[self.left] @ self.operators[self.left]
        return result

    def after_each(self, messages: ScaledRows) -> ScaledRows:
        """Return the backward message after each operator, ``(m, K, 1)``, from those after the products of pairs.

        ``messages`` are those after the products, ``(p, K, 1)``.
        """
        result = messages[self.pair]
        result[self.left] = self.operators[self.left + 1] @ result[self.left + 1]
        return result


@dataclass(frozen=True)
class BlockProducts:
    """The transition operators of all w segments of n sequences, and their products over pairs and pairs of pairs.

    Attributes:
        segments: segments that the operators belong to. An operator is the K x K matrix of a segment's effect on any
            message.
        transition: transition probabilities, ``(K, K)`` float64.
        levels: pairs of operators, from all segments up to one or two operators for each sequence. The operator of a
            sequence's first segment begins with ``diag(b_1)``, without a transition before it.
    """

    segments: Segments
    transition: Tensor
    levels: list[OperatorPairs]

    @classmethod
    def of(cls, transition: Tensor, b: Tensor, segments: Segments, slack: Tensor | None = None) -> BlockProducts:
        """Return the transition operator of each segment, computed from its frames, and products of neighbouring ones.

        Args:
            transition: transition probabilities, ``(K, K)`` float64.
            b: densities, ``(N, K)`` float64, in the order of the rows of ``segments.packing``.
            segments: segments that the N rows belong to.
            slack: share of the sum of a row that is added to each of its entries at each frame, ``(N, K)``, which makes
                the products upper bounds; None adds nothing.
        """
        assert b.dtype == torch.float64, "products of thousands of operators in float32 are too far from exact"
        operators = _of_segments(transition, b, segments, slack)[segments.packing.rank]
        count, levels = torch.bincount(segments.owner), []
        while int(count.max()) > 1:
            levels.append(OperatorPairs.of(operators, count))
            operators, count = levels[-1].products(), (count + 1) // 2
        return cls(segments, transition, levels)

    def starts(self, initial: Tensor) -> Tensor:
        """Return the predicted distribution of the first state of each of w segments, ``(w, K)`` by rank.

        ``initial`` is p(z_1), ``(1, K)`` or ``(n, K)``. Rows of sequences of probability zero are NaN.
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
        """Return the backward message beta at the last frame of each segment, ``(w, K)`` by rank.

        Args:
            final: probability that the sequence ends after each state, ``(1, K)`` or ``(n, K)``; ones if the length has
                no probability.
            last_alpha: p(z | x so far) at the last frame of each segment, ``(w, K)`` by rank (longest first). Each row
                of the result is up to a constant factor, and scaled so that the entry that weighs most under it is of
                the order of one.
        """
        message = ScaledRows.of(final.expand(self.segments.n_sequences, -1)[:, :, None])
        for level in reversed(self.levels):
            message = level.after_each(message)
        message = message[self.segments.packing.order]
        weight = (_exponents(last_alpha) + message.exponents).masked_fill_(last_alpha == 0, OF_ZEROS)
        return message.values[..., 0] * torch.exp2(message.exponents - weight.amax(-1, keepdim=True))


def _exponents(values: Tensor) -> Tensor:
    """Return for each value x the whole number e with ``2^(e-1) <= x < 2^e``."""
    return torch.frexp(values).exponent.to(values.dtype)


def _of_segments(transition: Tensor, b: Tensor, segments: Segments, slack: Tensor | None) -> ScaledRows:
    """Return the transition operator ``A diag(b_s) .. A diag(b_e)`` of each of w segments, ``(w, K, K)`` by rank.

    ``b (N, K)`` are densities. ``slack (N, K)`` is the share of the sum of a row that is added to each of its entries
    at each frame; None adds nothing.
    """
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
