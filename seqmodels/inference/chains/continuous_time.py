"""Markov jump processes: transitions over gaps, ``P(Δ) = exp(Q Δ)``, and what is expected of the paths within them.

With the transitions ``c_ij`` over gaps Δ and ``W_ij = c_ij / P_ij(Δ)``, the time spent in k and the jumps from k to l
are expected to be

    ``E[τ_k] = M_kk``,  ``E[n_kl] = q_kl M_kl``,  ``M_kl = Σ_Δ Σ_ij W_ij ∫_0^Δ P_ik(s) P_lj(Δ - s) ds``

(Hobolth and Jensen 2011, *Summary statistics for endpoint-conditioned continuous-time Markov chains*, J. Appl. Prob.
48). M is the derivative of ``Σ_Δ Σ_ij W_ij P_ij(Δ)`` by Q, so that one pass back through the computation of P finds it
for all gaps.

P is computed by uniformisation and doubling. With ``B = Q + λ I >= 0`` and a gap δ so short that ``λ δ <= 1/2``,
``P(δ) = exp(-λ δ) Σ_n (B δ)^n / n!``, and ``P(2 δ) = P(δ)²``. Nothing is ever subtracted, so that every entry, however
small, has its leading digits, and no two eigenvalues need differ (Grassmann 1977; Moler and Van Loan 2003, *Nineteen
dubious ways to compute the exponential of a matrix*).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import Function, once_differentiable

from seqmodels.inference.chains.segments import loops_are_compiled

LONGEST_STEP = 0.5  # λ δ of the gaps that are doubled
N_TERMS = 17  # of the series after the first that is not zero: 0.5^17 / 17! < 1e-19
LEAST_PROBABILITY = 1e-290  # of a transition whose path is summed up: that of a less probable one overflows
MOST_STATES_COMPILED = 16  # of transitions as compiled loops: with more, matrix products are faster
GAPS_AT_ONCE = 1 << 19  # entries of matrices that are worked on together


def transition_probabilities(generator: Tensor, gaps: Tensor) -> Tensor:
    """``(G, K, K)`` probabilities of state j after a gap from state i, ``exp(Q Δ)``; rows sum to one.

    Args:
        generator: (K, K) float64, rates off its diagonal, rows that sum to zero.
        gaps: (G,) float64, finite, 0 or more.

    >>> generator = torch.tensor([[-0.1, 0.1], [0.3, -0.3]], dtype=torch.float64)
    >>> transition_probabilities(generator, torch.tensor([0.0, 2.0, 1e9], dtype=torch.float64)).round(decimals=4)[:, 0]
    tensor([[1.0000, 0.0000],
            [0.8623, 0.1377],
            [0.7500, 0.2500]], dtype=torch.float64)
    """
    series = ExponentialSeries.of(generator)
    if series.runs_compiled:
        return series.probabilities_over(gaps)
    parts = [Doubling.over(series, part).probabilities[-1] for part in gaps.split(_at_once(generator))]
    return torch.cat(parts) if parts else generator.new_empty(0, *generator.shape)


def log_transitions_over(generator: Tensor, gaps: Tensor) -> Tensor:
    """``(N, K, K)`` logarithms of the transitions into N steps, ``gaps (N,)`` after those before them."""
    distinct, which = torch.unique(gaps, return_inverse=True)
    return transition_probabilities(generator, distinct).log()[which]


def differentiable_log_transitions(generator: Tensor, gaps: Tensor) -> Tensor:
    """Return what ``log_transitions_over`` returns, once differentiable by ``generator``."""
    distinct, which = torch.unique(gaps, return_inverse=True)
    probabilities: Tensor = _TransitionsOver.apply(generator, distinct)  # type: ignore[no-untyped-call]
    is_possible = probabilities > 0  # log 0 has no derivative
    return torch.where(is_possible, torch.where(is_possible, probabilities, 1.0).log(), -torch.inf)[which]


class _TransitionsOver(Function):
    """``exp(Q Δ)``, whose derivative by Q is that of ``path_integrals``."""

    @staticmethod
    def forward(ctx: Any, generator: Tensor, gaps: Tensor) -> Tensor:
        ctx.save_for_backward(generator, gaps)
        return transition_probabilities(generator.detach(), gaps)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        generator, gaps = ctx.saved_tensors
        return path_integrals(generator, gaps, gradient), None


def path_integrals(generator: Tensor, gaps: Tensor, weights: Tensor) -> Tensor:
    """``M (K, K)``, summed over G gaps, of ``weights W (G, K, K)``; zeros of W where no path leads."""
    series = ExponentialSeries.of(generator)
    size, total = _at_once(generator), torch.zeros_like(generator)
    for part, of_part in zip(gaps.split(size), weights.split(size), strict=True):
        total += Doubling.over(series, part).derivative(of_part)
    return total


def expected_path(generator: Tensor, gaps: Tensor, transitions: Tensor) -> Tensor:
    """``(K, K)``: the expected jumps ``n_kl``, and on the diagonal the times ``τ_k``.

    Args:
        generator: (K, K).
        gaps: (G,), 0 or more.
        transitions: (G, K, K) expected transitions over gaps of each length; those of probability below 1e-290 are
            passed over.
    """
    probabilities = transition_probabilities(generator, gaps)
    weights = torch.where(probabilities > LEAST_PROBABILITY, transitions / probabilities, 0.0)
    integrals = path_integrals(generator, gaps, weights)
    rates = generator.clone()
    rates.diagonal().fill_(1.0)
    return rates * integrals


def generator_of(rates: Tensor) -> Tensor:
    """Return a generator ``(K, K)`` with these rates off its diagonal, and the diagonal that makes rows sum to zero."""
    generator = without_diagonal(rates)
    return generator - torch.diag(generator.sum(1))


def without_diagonal(matrix: Tensor) -> Tensor:
    """Return a matrix ``(K, K)`` with zeros on its diagonal."""
    return matrix - torch.diag(matrix.diagonal())


def stationary_of_generator(generator: Tensor) -> Tensor:
    """``(K,)`` the one ``π Q = 0`` of an irreducible process, by elimination without subtraction (Grassmann, Taksar and
    Heyman 1985).

    >>> stationary_of_generator(torch.tensor([[-0.1, 0.1], [0.3, -0.3]], dtype=torch.float64))
    tensor([0.7500, 0.2500], dtype=torch.float64)
    """
    rates = generator.clone()
    k = len(rates)
    for n in range(k - 1, 0, -1):
        rates[:n, n] /= rates[n, :n].sum()
        rates[:n, :n] += rates[:n, n : n + 1] * rates[n : n + 1, :n]
    shares = torch.ones_like(rates[0])
    for n in range(1, k):
        shares[n] = shares[:n] @ rates[:n, n]
    return shares / shares.sum()


# -- the series of short gaps ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ExponentialSeries:
    """λ, the ``rate``, and ``powers (N + 1, K, K)`` of ``B / λ``, so many that no entry lacks its first terms."""

    rate: float
    powers: Tensor

    @classmethod
    def of(cls, generator: Tensor) -> ExponentialSeries:
        """λ is the largest rate at which a state is left; where none ever is, any."""
        k = len(generator)
        rate = float(-generator.diagonal().min()) or 1.0
        b = generator.clone()
        b.diagonal().add_(rate)
        power = torch.eye(k, dtype=generator.dtype, device=generator.device)
        powers, reached, n_last = [power], power > 0, 0
        # From the first power that leads to no new state on, N_TERMS more.
        while len(powers) <= n_last + N_TERMS:
            power = power @ b / rate  # of B / λ, whose entries are at most one
            powers.append(power)
            now = reached | (power > 0)
            if bool((now & ~reached).any()):
                n_last = len(powers) - 1
            reached = now
        return cls(rate, torch.stack(powers))

    @property
    def runs_compiled(self) -> bool:
        """Whether transitions over a gap are faster as a compiled loop than as matrix products."""
        return self.powers.shape[1] <= MOST_STATES_COMPILED and loops_are_compiled(self.powers.device)

    def probabilities_over(self, gaps: Tensor) -> Tensor:
        """``(G, K, K)`` transitions over gaps ``(G,)``, in compiled loops."""
        from seqmodels.inference.chains import compiled_continuous_time

        result = gaps.new_empty(len(gaps), *self.powers.shape[1:])
        arrays = self.powers.numpy(), gaps.contiguous().numpy()
        compiled_continuous_time.probabilities_over(self.rate, *arrays, LONGEST_STEP, result.numpy())
        return result

    def beliefs_over(self, log_alpha: Tensor, gaps: Tensor) -> Tensor:
        """``(n, K)`` log-probabilities of states after gaps ``(n,)`` from those before, in compiled loops."""
        from seqmodels.inference.chains import compiled_continuous_time

        before, result = log_alpha.contiguous().numpy(), np.empty(log_alpha.shape)
        arrays = self.powers.numpy(), gaps.contiguous().numpy()
        compiled_continuous_time.beliefs_over(self.rate, *arrays, LONGEST_STEP, before, result)
        return torch.from_numpy(result)

    def coefficients(self, steps: Tensor) -> Tensor:
        """``(G, N + 1)``: ``exp(-λ δ) (λ δ)^n / n!`` of short gaps ``steps (G,)``."""
        n = torch.arange(len(self.powers), dtype=steps.dtype, device=steps.device)
        factorial = torch.lgamma(n + 1)
        x = (self.rate * steps)[:, None]
        return (torch.xlogy(n, x) - factorial - x).exp()

    def derivative(self, weights: Tensor) -> Tensor:
        """``(K, K)``: the derivative by B of ``Σ_n <S_n, (B / λ)^n>``, ``weights S (N + 1, K, K)``."""
        b, total = self.powers[1].mT, torch.zeros_like(self.powers[0])
        adjoint = torch.zeros_like(total)
        for n in range(len(self.powers) - 1, 0, -1):
            adjoint = weights[n] + b @ adjoint
            total = total + adjoint @ self.powers[n - 1].mT
        return total / self.rate


@dataclass(frozen=True)
class Doubling:
    """How the transitions over gaps came about: those over ``steps (G,)``, doubled ``n_doublings (G,)`` times each.

    Attributes:
        series: of the process.
        steps: short gaps, such that a gap is ``steps * 2^n_doublings``.
        n_doublings: whole numbers.
        probabilities: ``(G, K, K)`` each, after 0, 1, ... doublings; of gaps with fewer those stay what they are.
    """

    series: ExponentialSeries
    steps: Tensor
    n_doublings: Tensor
    probabilities: list[Tensor]

    @classmethod
    def over(cls, series: ExponentialSeries, gaps: Tensor) -> Doubling:
        """Computes the probabilities, rows of which are made to sum to one after each doubling."""
        n_doublings = torch.ceil(torch.log2((series.rate * gaps / LONGEST_STEP).clamp(min=1.0)))
        steps = torch.ldexp(gaps, -n_doublings)
        p = _normalised((series.coefficients(steps) @ series.powers.flatten(1)).view(-1, *series.powers.shape[1:]))
        each = [p]
        for n in range(int(n_doublings.max()) if len(gaps) else 0):
            rows = (n_doublings > n).nonzero()[:, 0]
            p = p.clone()
            p[rows] = _normalised(p[rows] @ p[rows])
            each.append(p)
        return cls(series, steps, n_doublings, each)

    def derivative(self, weights: Tensor) -> Tensor:
        """``(K, K)``: that of ``Σ W P`` by Q, ``weights W (G, K, K)``, as sums of what is 0 or more."""
        weights = weights.clone()
        for n in range(len(self.probabilities) - 2, -1, -1):
            rows = (self.n_doublings > n).nonzero()[:, 0]
            p, w = self.probabilities[n][rows].mT, weights[rows]
            weights[rows] = w @ p + p @ w
        summed = self.series.coefficients(self.steps).T @ weights.flatten(1)
        return self.series.derivative(summed.view(-1, *weights.shape[1:]))


def _normalised(p: Tensor) -> Tensor:
    return p / p.sum(-1, keepdim=True)


def _at_once(generator: Tensor) -> int:
    return max(1, GAPS_AT_ONCE // generator.numel())
