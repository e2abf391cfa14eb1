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

Rates may depend on inputs, ``log q_kl(u) = log q_kl + w_kl · u`` (Jackson 2011, *Multi-state models for panel data: the
msm package for R*, J. Stat. Softw. 38). Then each pair of a gap and inputs has a generator of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import Function, once_differentiable

from seqmodels.inference.chains.log_weights import safe_log
from seqmodels.inference.chains.parallel_segments import loops_are_compiled

LONGEST_STEP = 0.5  # largest λ δ of a short gap, from which longer ones are doubled
N_TERMS = 17  # terms of the series after the first that is not zero, because 0.5^17 / 17! < 1e-19
LEAST_PROBABILITY = 1e-290  # transitions below this are ignored, because counts over their probability overflow
MOST_STATES_COMPILED = 16  # number of states above which matrix products are faster than compiled loops
GAPS_AT_ONCE = 1 << 19  # number of matrix entries that are computed together
MOST_LOG_CHANGE = 100.0  # largest change of a log-rate by inputs, so that rates stay finite


def transition_probabilities(generator: Tensor, gaps: Tensor) -> Tensor:
    """Return the transition probabilities of a Markov jump process over gaps of time, ``exp(Q Δ)``, ``(G, K, K)``.

    Args:
        generator: generator Q of K states, ``(K, K)`` float64: rates off the diagonal, and rows that sum to zero; or
            one for each gap, ``(G, K, K)``.
        gaps: lengths of the gaps, ``(G,)`` float64, finite and at least 0.

    >>> generator = torch.tensor([[-0.1, 0.1], [0.3, -0.3]], dtype=torch.float64)
    >>> transition_probabilities(generator, torch.tensor([0.0, 2.0, 1e9], dtype=torch.float64)).round(decimals=4)[:, 0]
    tensor([[1.0000, 0.0000],
            [0.8623, 0.1377],
            [0.7500, 0.2500]], dtype=torch.float64)
    """
    series = _series_of(generator)
    if isinstance(series, ExponentialSeries) and series.runs_compiled:
        return series.probabilities_over(gaps)
    size = _at_once(generator)
    several: Iterator[ExponentialSeries | SeriesOfEach] = series.split(size)
    parts = [Doubling.over(*part).probabilities[-1] for part in zip(several, gaps.split(size), strict=False)]
    return torch.cat(parts) if parts else generator.new_empty(0, *generator.shape[-2:])


def generators_at(generator: Tensor, slopes: Tensor, inputs: Tensor) -> Tensor:
    """Return the generators of a Markov jump process whose rates depend on inputs, ``(N, K, K)``.

    Args:
        generator: generator (transition rates off the diagonal, rows that sum to zero) where all inputs are zero,
            ``(K, K)``; a rate that is zero here is zero everywhere.
        slopes: change of the logarithm of each rate with each input, ``(K, K, U)``.
        inputs: U inputs at each of N steps, ``(N, U)``. The result is differentiable by ``generator`` and ``slopes``.

    >>> generator = torch.tensor([[-0.1, 0.1], [0.3, -0.3]])
    >>> slopes = torch.tensor([[[0.0], [2.0]], [[0.0], [0.0]]]).log().nan_to_num(neginf=0.0)
    >>> generators_at(generator, slopes, torch.tensor([[1.0]]))
    tensor([[[-0.2000,  0.2000],
             [ 0.3000, -0.3000]]])
    """
    change = torch.einsum("nu,klu->nkl", inputs.to(slopes), slopes).clamp(-MOST_LOG_CHANGE, MOST_LOG_CHANGE)
    rates = without_diagonal(generator) * change.exp()
    return rates - torch.diag_embed(rates.sum(2))


class DistinctGaps(NamedTuple):
    """The G different gaps of time among N, for which transition probabilities are computed once.

    Attributes:
        generator: generator (transition rates) of the process, ``(K, K)`` for K states, or one for each different gap,
            ``(G, K, K)``.
        lengths: lengths of the different gaps, ``(G,)``; if rates depend on inputs, pairs of a gap and inputs count as
            different.
        which: for each of the N gaps, which of the G it is, ``(N,)``.
        inputs: the F inputs that rates depend on, for each different gap, ``(G, F)``; None if there are none.
    """

    generator: Tensor
    lengths: Tensor
    which: Tensor
    inputs: Tensor | None = None


def distinct_gaps(
    generator: Tensor,
    gaps: Tensor,
    slopes: Tensor | None,
    inputs: Tensor | None,
    columns: Sequence[int] | None = None,
) -> DistinctGaps:
    """Return the different ones of N gaps of time, with the generator of the process in each.

    Args:
        generator: generator (transition rates off the diagonal, rows that sum to zero) where all inputs are zero,
            ``(K, K)``.
        gaps: lengths of the gaps, ``(N,)``.
        slopes: change of the logarithm of each rate with each input, ``(K, K, U)``; None if there are no inputs.
        inputs: inputs that hold over each gap, ``(N, U)``.
        columns: the F columns of ``inputs`` that rates depend on; None means those with slopes.
    """
    if slopes is None or inputs is None:
        return DistinctGaps(generator, *torch.unique(gaps, return_inverse=True))
    if columns is None:
        columns = (slopes.flatten(0, 1).any(0) | slopes.requires_grad).nonzero()[:, 0].tolist()
    pairs = torch.cat([gaps[:, None], inputs[:, columns].to(gaps)], 1)
    distinct, which = torch.unique(pairs, dim=0, return_inverse=True)
    at = distinct[:, 1:]
    return DistinctGaps(generators_at(generator, slopes[:, :, columns], at), distinct[:, 0], which, at)


def log_transitions_over(
    generator: Tensor, gaps: Tensor, slopes: Tensor | None = None, inputs: Tensor | None = None
) -> Tensor:
    """Return the log-probabilities of the transitions of a Markov jump process into each of N steps, ``(N, K, K)``.

    Args:
        generator: generator (transition rates off the diagonal, rows that sum to zero) where all inputs are zero,
            ``(K, K)``.
        gaps: time since the step before each step, ``(N,)``.
        slopes: change of the logarithm of each rate with each input, ``(K, K, U)``; None if there are no inputs.
        inputs: inputs that hold over each gap, ``(N, U)``.
    """
    distinct = distinct_gaps(generator, gaps, slopes, inputs)
    return transition_probabilities(distinct.generator, distinct.lengths).log()[distinct.which]


def differentiable_log_transitions(
    generator: Tensor, gaps: Tensor, slopes: Tensor | None = None, inputs: Tensor | None = None
) -> Tensor:
    """Return log-probabilities of transitions over gaps of time into each of N steps, ``(N, K, K)``, differentiably.

    They are once differentiable by ``generator`` and ``slopes``.

    Args:
        generator: generator (transition rates off the diagonal, rows that sum to zero) where all inputs are zero,
            ``(K, K)``.
        gaps: time since the step before each step, ``(N,)``.
        slopes: change of the logarithm of each rate with each input, ``(K, K, U)``; None if there are no inputs.
        inputs: inputs that hold over each gap, ``(N, U)``.
    """
    distinct = distinct_gaps(generator, gaps, slopes, inputs)
    over = (distinct.generator, distinct.lengths)
    probabilities: Tensor = _TransitionsOver.apply(*over)  # type: ignore[no-untyped-call]
    return safe_log(probabilities)[distinct.which]


class _TransitionsOver(Function):
    """The transition probabilities ``exp(Q Δ)`` over gaps Δ as an autograd function of the generator Q."""

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
    """Return the derivative of ``Σ_Δ Σ_ij W_ij P_ij(Δ)`` by the generator, summed over all gaps, ``(K, K)``.

    P(Δ) are the transition probabilities over a gap Δ. The derivative is ``M_kl = Σ_Δ Σ_ij W_ij ∫_0^Δ P_ik(s) P_lj(Δ -
    s) ds``. With a generator for each gap the sum over gaps is left out, and the result is ``(G, K, K)``.

    Args:
        generator: generator (transition rates), ``(K, K)`` float64, or one for each gap, ``(G, K, K)``.
        gaps: lengths of the gaps, ``(G,)``.
        weights: W, ``(G, K, K)``; zero where no path leads from i to j.
    """
    size = _at_once(generator)
    several: Iterator[ExponentialSeries | SeriesOfEach] = _series_of(generator).split(size)
    parts = zip(several, gaps.split(size), weights.split(size), strict=False)
    each = (Doubling.over(series, part).derivative(of_part) for series, part, of_part in parts)
    if generator.dim() == 3:
        return torch.cat([generator[:0], *each])
    total = torch.zeros_like(generator)
    for of_part in each:
        total += of_part
    return total


def expected_path(generator: Tensor, gaps: Tensor, transitions: Tensor) -> Tensor:
    """Return expected numbers of jumps from state to state within gaps, ``(K, K)``, and expected times in states.

    The expected times are on the diagonal. With a generator for each gap they are those of each gap, ``(G, K, K)``.

    Args:
        generator: generator (transition rates), ``(K, K)`` float64, or one for each gap, ``(G, K, K)``; it may have
            more states after the K states of ``transitions``, which are never entered.
        gaps: lengths of the gaps, ``(G,)``, at least 0.
        transitions: expected transitions over each gap, ``(G, K, K)``; those whose probability is below 1e-290 are
            ignored.
    """
    k = transitions.shape[-1]
    n_more = generator.shape[-1] - k
    probabilities = transition_probabilities(generator, gaps)[:, :k, :k]
    weights = torch.where(probabilities > LEAST_PROBABILITY, transitions / probabilities, 0.0)
    padded = torch.nn.functional.pad(weights, (0, n_more, 0, n_more))
    integrals = path_integrals(generator, gaps, padded)[..., :k, :k]
    rates = generator[..., :k, :k].clone()
    rates.diagonal(dim1=-2, dim2=-1).fill_(1.0)
    return rates * integrals


def generator_of(rates: Tensor) -> Tensor:
    """Return the generator ``(K, K)`` of a Markov jump process with the given rates off its diagonal.

    Its diagonal makes rows sum to zero.
    """
    generator = without_diagonal(rates)
    return generator - torch.diag(generator.sum(1))


def without_diagonal(matrix: Tensor) -> Tensor:
    """Return a copy of ``matrix``, ``(K, K)``, with its diagonal set to 0."""
    return matrix - torch.diag(matrix.diagonal())


def stationary_of_generator(generator: Tensor) -> Tensor:
    """Return the stationary distribution π of an irreducible Markov jump process, with ``π Q = 0``, ``(K,)``.

    It is computed by elimination without subtraction (Grassmann, Taksar and Heyman 1985). ``generator`` is Q,
    ``(K, K)``, with rates off its diagonal.

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
    """The matrix powers of which the transition probabilities ``exp(Q δ)`` over a short gap δ are a weighted sum.

    Attributes:
        rate: λ, the uniformization rate, of the matrix B = Q + λ I without negative entries.
        powers: powers 0 .. N of ``B / λ``, ``(N + 1, K, K)``, enough for the first ``N_TERMS`` terms of every entry.
    """

    rate: float
    powers: Tensor

    @classmethod
    def of(cls, generator: Tensor) -> ExponentialSeries:
        """Return the series for the generator Q, ``(K, K)``: rates off the diagonal, and rows that sum to zero.

        λ is the largest rate at which a state is left, or 1 if no state ever is.
        """
        k = len(generator)
        rate = float(-generator.diagonal().min()) or 1.0
        b = generator.clone()
        b.diagonal().add_(rate)
        power = torch.eye(k, dtype=generator.dtype, device=generator.device)
        powers, reached, n_reached, n_last = [power], power > 0, k, 0
        # From the first power that leads to no new state on, N_TERMS more.
        while len(powers) <= n_last + N_TERMS:
            power = power @ b / rate  # powers of B / λ, because its entries are at most one
            powers.append(power)
            if n_reached < k * k:  # else no state is new, and the tests would take longer than the powers
                reached |= power > 0
                if (n_now := int(reached.sum())) > n_reached:
                    n_reached, n_last = n_now, len(powers) - 1
        return cls(rate, torch.stack(powers))

    def split(self, size: int) -> Iterator[ExponentialSeries]:
        """Yield this series without end, once for each part of the gaps, because all gaps share one generator.

        ``size``, the number of gaps in a part, is not read.
        """
        return repeat(self)

    @property
    def runs_compiled(self) -> bool:
        """True if the transition probabilities over a gap are faster in a compiled loop than as matrix products."""
        return self.powers.shape[1] <= MOST_STATES_COMPILED and loops_are_compiled(self.powers.device)

    def probabilities_over(self, gaps: Tensor) -> Tensor:
        from seqmodels.inference.chains import compiled_continuous_time

        result = gaps.new_empty(len(gaps), *self.powers.shape[1:])
        arrays = self.powers.numpy(), gaps.contiguous().numpy()
        compiled_continuous_time.probabilities_over(self.rate, *arrays, LONGEST_STEP, result.numpy())
        return result

    def beliefs_over(self, log_alpha: Tensor, gaps: Tensor) -> Tensor:
        """Return the log-probabilities of the states of n sequences after gaps of time, ``(n, K)``, by compiled loops.

        ``log_alpha`` are the log-probabilities before the gaps, ``(n, K)``; ``gaps`` the gap of each row, ``(n,)``.
        """
        from seqmodels.inference.chains import compiled_continuous_time

        before, result = log_alpha.contiguous().numpy(), np.empty(log_alpha.shape)
        arrays = self.powers.numpy(), gaps.contiguous().numpy()
        compiled_continuous_time.beliefs_over(self.rate, *arrays, LONGEST_STEP, before, result)
        return torch.from_numpy(result)

    def coefficients(self, steps: Tensor) -> Tensor:
        """Return the weights of the powers, ``exp(-λ δ) (λ δ)^n / n!``, for each of G short gaps δ, ``(G, N + 1)``.

        ``steps (G,)`` are the gaps.
        """
        n = torch.arange(len(self.powers), dtype=steps.dtype, device=steps.device)
        factorial = torch.lgamma(n + 1)
        x = (self.rate * steps)[:, None]
        return (torch.xlogy(n, x) - factorial - x).exp()

    def over_steps(self, steps: Tensor) -> Tensor:
        """Return the transition probabilities over short gaps of time, ``(G, K, K)``.

        ``steps (G,)`` are the gaps, whose products with the rate are at most 1/2.
        """
        summed = self.coefficients(steps) @ self.powers.flatten(1)
        return _normalised(summed.view(-1, *self.powers.shape[1:]))

    def derivative_over_steps(self, steps: Tensor, weights: Tensor) -> Tensor:
        """Return the derivative of ``Σ W P`` by the generator, ``(K, K)``, with P the transitions over short gaps.

        ``weights`` is W, ``(G, K, K)``, and ``steps (G,)`` the gaps.
        """
        summed = self.coefficients(steps).T @ weights.flatten(1)
        return self.derivative(summed.view(-1, *weights.shape[1:]))

    def derivative(self, weights: Tensor) -> Tensor:
        """Return the derivative of a weighted sum of the powers ``(B / λ)^n`` by B, ``(K, K)``.

        ``weights (N + 1, K, K)`` has a weight for each entry of each power.
        """
        b, total = self.powers[1].mT, torch.zeros_like(self.powers[0])
        adjoint = torch.zeros_like(total)
        for n in range(len(self.powers) - 1, 0, -1):
            adjoint = weights[n] + b @ adjoint
            total = total + adjoint @ self.powers[n - 1].mT
        return total / self.rate


@dataclass(frozen=True)
class SeriesOfEach:
    """The series of transition probabilities over short gaps of time, each of which has a generator of its own.

    Attributes:
        generators: generator (transition rates) of each gap, ``(G, K, K)``.
        rate: uniformization rate λ of each gap, ``(G,)``: the largest rate at which a state is left.
    """

    generators: Tensor
    rate: Tensor

    @classmethod
    def of(cls, generators: Tensor) -> SeriesOfEach:
        return cls(generators, -generators.diagonal(dim1=1, dim2=2).amin(1))

    def split(self, size: int) -> Iterator[SeriesOfEach]:
        return map(SeriesOfEach, self.generators.split(size), self.rate.split(size))

    def _uniformised(self, steps: Tensor) -> Tensor:
        """Return the matrix ``(Q + λ I) δ`` without negative entries for each gap δ, ``(G, K, K)``.

        ``steps (G,)`` are the gaps.
        """
        one = torch.eye(self.generators.shape[1]).to(self.generators)
        return (self.generators + self.rate[:, None, None] * one) * steps[:, None, None]

    @property
    def _n_terms(self) -> int:
        return self.generators.shape[1] - 1 + N_TERMS  # a state is reached by K - 1 jumps, or never

    def over_steps(self, steps: Tensor) -> Tensor:
        """Return the transition probabilities over short gaps of time, ``(G, K, K)``.

        ``steps (G,)`` are the gaps, whose products with the rate are at most 1/2.
        """
        b = self._uniformised(steps)
        term = total = torch.eye(b.shape[1]).to(b).expand_as(b)
        for n in range(1, self._n_terms + 1):
            term = term @ b / n
            total = total + term
        return _normalised(total)

    def derivative_over_steps(self, steps: Tensor, weights: Tensor) -> Tensor:
        """Return the derivative of ``Σ W P`` by each gap's generator, ``(G, K, K)``, over short gaps.

        P are the transition probabilities over ``steps (G,)``, and ``weights`` is W, ``(G, K, K)``. The n-th term of
        ``exp(B δ)``, ``T_n = T_n-1 B δ / n``, has the derivative ``L_n = (B' δ L_n-1 + W T'_n-1) / n``.
        """
        b = self._uniformised(steps).mT
        term, total = torch.eye(b.shape[1]).to(b).expand_as(b), torch.zeros_like(b)
        derivative = torch.zeros_like(b)
        for n in range(1, self._n_terms + 1):
            derivative = (b @ derivative + weights @ term) / n
            term = term @ b / n
            total = total + derivative
        return total * (steps * (-self.rate * steps).exp())[:, None, None]


@dataclass(frozen=True)
class Doubling:
    """The transition probabilities over G gaps of time, computed over a short step and then squared several times.

    Attributes:
        series: exponential series of the process, or of the process of each gap.
        steps: short gaps, ``(G,)``; each gap is ``steps * 2^n_doublings``.
        n_doublings: number of squarings for each gap, ``(G,)``, whole numbers.
        probabilities: transition probabilities after 0, 1, ... doublings, each ``(G, K, K)``. A gap that needs fewer
            doublings keeps its matrix.
    """

    series: ExponentialSeries | SeriesOfEach
    steps: Tensor
    n_doublings: Tensor
    probabilities: list[Tensor]

    @classmethod
    def over(cls, series: ExponentialSeries | SeriesOfEach, gaps: Tensor) -> Doubling:
        """Return the transition probabilities over ``gaps (G,)``, computed by squaring those over short steps.

        Rows are scaled to sum to one after each squaring.
        """
        n_doublings = torch.ceil(torch.log2((series.rate * gaps / LONGEST_STEP).clamp(min=1.0)))
        steps = torch.ldexp(gaps, -n_doublings)
        p = series.over_steps(steps)
        each = [p]
        for n in range(int(n_doublings.max()) if len(gaps) else 0):
            rows = (n_doublings > n).nonzero()[:, 0]
            p = p.clone()
            p[rows] = _normalised(p[rows] @ p[rows])
            each.append(p)
        return cls(series, steps, n_doublings, each)

    def derivative(self, weights: Tensor) -> Tensor:
        """Return the derivative of ``Σ W P`` by the generator, ``(K, K)``, with P the transition probabilities.

        ``weights`` is W, ``(G, K, K)``. With a generator for each gap the result is ``(G, K, K)``. Only non-negative
        terms are added, so that no digits are lost.
        """
        weights = weights.clone()
        for n in range(len(self.probabilities) - 2, -1, -1):
            rows = (self.n_doublings > n).nonzero()[:, 0]
            p, w = self.probabilities[n][rows].mT, weights[rows]
            weights[rows] = w @ p + p @ w
        return self.series.derivative_over_steps(self.steps, weights)


def _series_of(generator: Tensor) -> ExponentialSeries | SeriesOfEach:
    return ExponentialSeries.of(generator) if generator.dim() == 2 else SeriesOfEach.of(generator)


def _normalised(p: Tensor) -> Tensor:
    return p / p.sum(-1, keepdim=True)


def _at_once(generator: Tensor) -> int:
    return max(1, GAPS_AT_ONCE // generator.shape[-1] ** 2)
