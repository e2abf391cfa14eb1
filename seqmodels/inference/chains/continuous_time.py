"""Markov jump processes: transition probabilities over gaps, ``P(Δ) = exp(Q Δ)``, and expectations of the paths within.

Given expected transitions ``c_ij`` over gaps Δ and ``W_ij = c_ij / P_ij(Δ)``, the expected time in state k and the
expected number of jumps from k to l are

    ``E[τ_k] = M_kk``,  ``E[n_kl] = q_kl M_kl``,  ``M_kl = Σ_Δ Σ_ij W_ij ∫_0^Δ P_ik(s) P_lj(Δ - s) ds``

(Hobolth and Jensen 2011, *Summary statistics for endpoint-conditioned continuous-time Markov chains*, J. Appl. Prob.
48). M is the derivative of ``Σ_Δ Σ_ij W_ij P_ij(Δ)`` by Q, so that one backward pass through the computation of P gives
it for all gaps.

P is computed by uniformisation and doubling. With ``B = Q + λ I >= 0`` and a gap δ so short that ``λ δ <= 1/2``,
``P(δ) = exp(-λ δ) Σ_n (B δ)^n / n!``, and ``P(2 δ) = P(δ)²``. No step subtracts, so that every entry, however small,
has its leading digits right; and eigenvalues may coincide (Grassmann 1977; Moler and Van Loan 2003, *Nineteen dubious
ways to compute the exponential of a matrix*).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import Function, once_differentiable

from seqmodels.inference.chains.segments import loops_are_compiled

LONGEST_STEP = 0.5  # largest λ δ of a short gap, from which longer ones are doubled
N_TERMS = 17  # terms of the series after the first that is not zero, because 0.5^17 / 17! < 1e-19
LEAST_PROBABILITY = 1e-290  # transitions below this are ignored, because counts over their probability overflow
MOST_STATES_COMPILED = 16  # number of states above which matrix products are faster than compiled loops
GAPS_AT_ONCE = 1 << 19  # number of matrix entries that are computed together


def transition_probabilities(generator: Tensor, gaps: Tensor) -> Tensor:
    """Return the transition probabilities over gaps, ``exp(Q Δ)``, ``(G, K, K)``; rows sum to one.

    Args:
        generator: Q, ``(K, K)`` float64: rates off the diagonal, and rows that sum to zero.
        gaps: lengths of the gaps, ``(G,)`` float64, finite and at least 0.

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
    """Return the log-probabilities of the transitions into each of N steps, ``(N, K, K)``.

    ``generator`` is Q, ``(K, K)``; ``gaps`` is the time since the step before each step, ``(N,)``.
    """
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
    """Return M of the module's equations, ``(K, K)``, summed over all gaps.

    Args:
        generator: Q, ``(K, K)`` float64.
        gaps: lengths of the gaps, ``(G,)``.
        weights: W, ``(G, K, K)``; zero where no path leads from i to j.
    """
    series = ExponentialSeries.of(generator)
    size, total = _at_once(generator), torch.zeros_like(generator)
    for part, of_part in zip(gaps.split(size), weights.split(size), strict=True):
        total += Doubling.over(series, part).derivative(of_part)
    return total


def expected_path(generator: Tensor, gaps: Tensor, transitions: Tensor) -> Tensor:
    """Return the expected numbers of jumps, ``(K, K)``, with the expected times in each state on the diagonal.

    Args:
        generator: Q, ``(K, K)`` float64; it may have more states after these, which are never entered.
        gaps: lengths of the gaps, ``(G,)``, at least 0.
        transitions: expected transitions over each gap, ``(G, K, K)``; those whose probability is below 1e-290 are
            ignored.
    """
    k = transitions.shape[-1]
    n_more = len(generator) - k
    probabilities = transition_probabilities(generator, gaps)[:, :k, :k]
    weights = torch.where(probabilities > LEAST_PROBABILITY, transitions / probabilities, 0.0)
    integrals = path_integrals(generator, gaps, torch.nn.functional.pad(weights, (0, n_more, 0, n_more)))[:k, :k]
    rates = generator[:k, :k].clone()
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
    """Return the stationary distribution ``π Q = 0`` of an irreducible process, ``(K,)``.

    It is computed by elimination without subtraction (Grassmann, Taksar and Heyman 1985). ``generator`` is Q,
    ``(K, K)``.

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
    """The powers of ``B / λ`` of which the exponential series of a short gap is made.

    Attributes:
        rate: λ, the uniformisation rate.
        powers: powers 0 .. N of ``B / λ``, ``(N + 1, K, K)``, enough for the first ``N_TERMS`` terms of every entry.
    """

    rate: float
    powers: Tensor

    @classmethod
    def of(cls, generator: Tensor) -> ExponentialSeries:
        """Build the series of ``generator``, ``(K, K)``.

        λ is the largest rate at which a state is left, or 1 if no state ever is.
        """
        k = len(generator)
        rate = float(-generator.diagonal().min()) or 1.0
        b = generator.clone()
        b.diagonal().add_(rate)
        power = torch.eye(k, dtype=generator.dtype, device=generator.device)
        powers, reached, n_last = [power], power > 0, 0
        # From the first power that leads to no new state on, N_TERMS more.
        while len(powers) <= n_last + N_TERMS:
            power = power @ b / rate  # powers of B / λ, because its entries are at most one
            powers.append(power)
            now = reached | (power > 0)
            if bool((now & ~reached).any()):
                n_last = len(powers) - 1
            reached = now
        return cls(rate, torch.stack(powers))

    @property
    def runs_compiled(self) -> bool:
        """True if the transition probabilities over a gap are faster in a compiled loop than as matrix products."""
        return self.powers.shape[1] <= MOST_STATES_COMPILED and loops_are_compiled(self.powers.device)

    def probabilities_over(self, gaps: Tensor) -> Tensor:
        """Return the transition probabilities over ``gaps``, ``(G,)``, as ``(G, K, K)``, computed in compiled loops."""
        from seqmodels.inference.chains import compiled_continuous_time

        result = gaps.new_empty(len(gaps), *self.powers.shape[1:])
        arrays = self.powers.numpy(), gaps.contiguous().numpy()
        compiled_continuous_time.probabilities_over(self.rate, *arrays, LONGEST_STEP, result.numpy())
        return result

    def beliefs_over(self, log_alpha: Tensor, gaps: Tensor) -> Tensor:
        """Return the log-probabilities of the states after a gap, ``(n, K)``, computed in compiled loops.

        ``log_alpha`` are the log-probabilities before it, ``(n, K)``; ``gaps`` the gap of each row, ``(n,)``.
        """
        from seqmodels.inference.chains import compiled_continuous_time

        before, result = log_alpha.contiguous().numpy(), np.empty(log_alpha.shape)
        arrays = self.powers.numpy(), gaps.contiguous().numpy()
        compiled_continuous_time.beliefs_over(self.rate, *arrays, LONGEST_STEP, before, result)
        return torch.from_numpy(result)

    def coefficients(self, steps: Tensor) -> Tensor:
        """Return ``exp(-λ δ) (λ δ)^n / n!``, ``(G, N + 1)``, for short gaps δ = ``steps``, ``(G,)``."""
        n = torch.arange(len(self.powers), dtype=steps.dtype, device=steps.device)
        factorial = torch.lgamma(n + 1)
        x = (self.rate * steps)[:, None]
        return (torch.xlogy(n, x) - factorial - x).exp()

    def derivative(self, weights: Tensor) -> Tensor:
        """Return the derivative of ``Σ_n <S_n, (B / λ)^n>`` by B, ``(K, K)``; ``weights`` is S, ``(N + 1, K, K)``."""
        b, total = self.powers[1].mT, torch.zeros_like(self.powers[0])
        adjoint = torch.zeros_like(total)
        for n in range(len(self.powers) - 1, 0, -1):
            adjoint = weights[n] + b @ adjoint
            total = total + adjoint @ self.powers[n - 1].mT
        return total / self.rate


@dataclass(frozen=True)
class Doubling:
    """The transition probabilities over gaps as they were computed: over a short step, then squared several times.

    Attributes:
        series: exponential series of the process.
        steps: short gaps, ``(G,)``; each gap is ``steps * 2^n_doublings``.
        n_doublings: number of squarings for each gap, ``(G,)``, whole numbers.
        probabilities: transition probabilities after 0, 1, ... doublings, each ``(G, K, K)``. A gap that needs fewer
            doublings keeps its matrix.
    """

    series: ExponentialSeries
    steps: Tensor
    n_doublings: Tensor
    probabilities: list[Tensor]

    @classmethod
    def over(cls, series: ExponentialSeries, gaps: Tensor) -> Doubling:
        """Compute the transition probabilities over ``gaps``, ``(G,)``; rows are renormalised after each doubling."""
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
        """Return the derivative of ``Σ W P`` by Q, ``(K, K)``; ``weights`` is W, ``(G, K, K)``.

        Only non-negative terms are added, so that no digits are lost.
        """
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
