"""``log(exp(rows) @ matrix)``: one step of a chain on beliefs that are kept as logarithms, exact however far states lie apart.

Scaled by the largest entry of its row it is a matrix product. An entry of the product that is not tiny holds all that matters: what
underflowed is less than its rounding. The others are computed again as sums of exponentials of their own scale, unless they are truly zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

LEAST = 1e-285  # of a sum over states of scaled products: below, what underflows in float64 could matter
CHUNK = 1 << 22  # terms of sums of exponentials held at once


@dataclass(frozen=True, eq=False)
class LogProduct:
    """From the right by ``matrix (K, K)``, or ``(n, K, K)`` with one for each row; float64, no entry negative."""

    matrix: Tensor

    def __call__(self, rows: Tensor) -> Tensor:
        """``(n, K)`` logarithms -> ``(n, K)``; -inf where every term is zero."""
        peak = rows.amax(-1, keepdim=True)
        shift = torch.where(peak == -torch.inf, 0.0, peak)
        scaled = (rows - shift).exp_()
        if self.matrix.dim() == 2:
            sums = scaled @ self.matrix
        else:
            sums = torch.bmm(scaled.unsqueeze(1), self.matrix).squeeze(1)
        found = sums.log().add_(shift)
        if self._refills:  # the largest entry of a row hands every state enough
            return found
        tiny = sums <= self._least
        if tiny.any():
            tiny &= self._reached(rows)
            where = tiny.nonzero()
            if len(where):
                found[tiny] = self._exact(rows, where)
        return found

    @property
    def _least(self) -> float:
        return LEAST * self.matrix.shape[-1]

    @cached_property
    def _refills(self) -> bool:
        return self.matrix.dim() == 2 and bool(self.matrix.amin() > self._least)

    @cached_property
    def _positive(self) -> Tensor:
        """Where the matrix is, as float64."""
        return (self.matrix > 0).double()

    def _reached(self, rows: Tensor) -> Tensor:
        """``(n, K)`` bool: where some term is more than zero."""
        possible = (rows > -torch.inf).double()
        if self.matrix.dim() == 2:
            return possible @ self._positive > 0
        return torch.bmm(possible.unsqueeze(1), self._positive).squeeze(1) > 0

    def _exact(self, rows: Tensor, where: Tensor) -> Tensor:
        """``(m,)`` the entries ``where (m, 2)``, each a sum over its predecessors."""
        size = max(1, CHUNK // (self.matrix.shape[-1] if self.matrix.dim() == 3 else self._predecessors[0].shape[1]))
        parts = []
        for n, j in (each.unbind(1) for each in where.split(size)):
            if self.matrix.dim() == 3:
                terms = rows[n] + self.matrix[n, :, j].log()
            else:
                before, log_arc = self._predecessors
                terms = rows[n[:, None], before[j]] + log_arc[j]
            parts.append(torch.logsumexp(terms, -1))
        return torch.cat(parts)

    @cached_property
    def _predecessors(self) -> tuple[Tensor, Tensor]:
        """``(K, m)`` the states that lead to each, and the logarithms of their arcs; -inf fills up those of few."""
        arcs = self.matrix.T
        most = max(1, int((arcs > 0).sum(1).max()))
        values, before = arcs.topk(most, dim=1)
        return before, values.log()
