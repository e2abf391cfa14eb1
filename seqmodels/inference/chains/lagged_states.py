"""Chains whose densities depend on the last p + 1 states, ``b(x_t | z_t, z_t-1, .., z_t-p)`` (Hamilton 1989).

The tuple ``(z_t, .., z_t-p)`` is a Markov chain of ``K^(p+1)`` states, each of which leads to only K others. A step
multiplies by the transition into the new state, and sums over the oldest state of the tuple,

    ``alpha_t(z_t, .., z_t-p) ∝ m_t-1(z_t-1, .., z_t-p) a_t(z_t-1, z_t) b_t(..)``
    ``m_t(z_t, .., z_t-p+1) = Σ_{z_t-p} alpha_t(z_t, .., z_t-p)``,

which takes ``K^(p+1)`` terms, where the transition matrix of the tuples has ``K^(2p+2)`` (Kim and Nelson 1999,
*State-space models with regime switching*, section 4.2). Messages and beliefs of the last p states are all that a step
needs. Transitions may differ from step to step. A chain whose densities depend on the newest state alone is one with
p = 1 whose densities are written once for all earlier states. Everything is computed in logarithms and float64. For few
sequences of many steps the passes are compiled loops, if numba is installed (``compiled_lagged_states``).

A tuple is written as two numbers: its newest state, and an index of its p earlier states among M = K^p,
``Σ_k z_t-k K^(p-k)``. States before the first step are written as state 0; the densities of the first p steps must not
depend on them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from seqmodels.common.compiled import is_compiling
from seqmodels.inference.chains.log_weights import draw, finite, relative_to_largest
from seqmodels.inference.chains.packing import Packing

MOST_TERMS_COMPILED = 1 << 14  # number of sums at one time above which tensor operations are as fast


@dataclass(frozen=True)
class LaggedStatesTrellis:
    """A problem of inference in chains whose densities depend on the last p + 1 states (lagged states).

    Attributes:
        log_initial: log-probabilities of the first of K states, ``(n, K)`` for n sequences by rank (longest first).
        log_transition: log-probabilities of the transitions, ``(K, K)``, or those into each of N packed rows,
            ``(N, K, K)``; the values of first rows are not read.
        log_final: log-probability that the sequence ends after each state, ``(K,)``; None if the length has no
            probability.
        log_b: log p(x_t | z_t, earlier states), ``(N, K, M)`` float64, for the M = K^p combinations of earlier states,
            or ``(N, K, 1)`` if they depend on no earlier state, where p = 1.
        packing: how the N rows make up the n sequences.
    """

    log_initial: Tensor
    log_transition: Tensor
    log_final: Tensor | None
    log_b: Tensor
    packing: Packing

    @property
    def n_states(self) -> int:
        """The number K of states of one step."""
        return self.log_b.shape[1]

    @property
    def log_a(self) -> Tensor:
        """The log-probabilities of the transitions into each row, ``(N, K, K)``, or ``(1, K, K)`` for all rows."""
        return self.log_transition[None] if self.log_transition.dim() == 2 else self.log_transition

    @property
    def log_ends(self) -> Tensor:
        """The log-probability of the end after each state, ``(n, K)``; zeros if the length has no probability."""
        log_final = self.log_b.new_zeros(self.n_states) if self.log_final is None else self.log_final
        return log_final.expand(self.packing.n_sequences, -1)


@dataclass(frozen=True)
class LaggedStatesFiltered:
    """The result of a forward pass with N packed rows, K states and M = K^p tuples of p earlier states.

    Attributes:
        log_alpha: log p(z_t, earlier states | x_1 .. x_t), ``(N, K, M)``; -inf from an impossible step on.
        steps: log p(x_t | x_<t) in nats, ``(N,)`` float64.
        ends: log p(end | x) of each sequence in the caller's order, ``(n,)``; 0 if the length has no probability, and
            -inf for a sequence of probability zero.
    """

    log_alpha: Tensor
    steps: Tensor
    ends: Tensor

    @property
    def log_beliefs(self) -> Tensor:
        """The log-probability of each state given the steps so far, log p(z_t | x_1 .. x_t), ``(N, K)``."""
        return torch.logsumexp(self.log_alpha, 2)


@dataclass(frozen=True)
class LaggedStatesPosterior:
    """The result of forward-backward with N packed rows, K states and M = K^p tuples of p earlier states.

    Attributes:
        log_prob: log p(x) of each sequence in nats, ``(n,)`` in the caller's order.
        gamma: p(z_t, earlier states | x), ``(N, K, M)``.
        transitions: p(z_t-1 = i, z_t = j | x), ``(N, K, K)``; zeros in first rows.
        initial: expected number of sequences that begin in each state, ``(K,)``.
        final: expected number of sequences that end in each state, ``(K,)``.
    """

    log_prob: Tensor
    gamma: Tensor
    transitions: Tensor
    initial: Tensor
    final: Tensor


# -- one step ----------------------------------------------------------------------------------------------------------


def tuples(n_states: int, order: int, device: torch.device | str = "cpu") -> Tensor:
    """Return all tuples of p + 1 of K states, the newest state first, ``(K^(p + 1), p + 1)``.

    ``n_states`` is K and ``order`` is p.

    >>> tuples(2, 1).tolist()
    [[0, 0], [0, 1], [1, 0], [1, 1]]
    """
    digits = torch.arange(n_states, device=device)
    return torch.cartesian_prod(*[digits] * (order + 1)).view(-1, order + 1)


def first_tuples(log_initial: Tensor, n_earlier: int) -> Tensor:
    """Return the log-probabilities of a first state together with its earlier states, ``(n, K, M)``.

    ``log_initial (n, K)`` are those of the first state, and ``n_earlier`` is M, the number of combinations of earlier
    states. Before the first step all earlier states are written as state 0; other combinations have -inf.
    """
    first = log_initial.new_full((*log_initial.shape, n_earlier), -torch.inf)
    first[..., 0] = log_initial
    return first


def next_tuples(log_alpha: Tensor, log_a: Tensor) -> Tensor:
    """Return the predicted log-probabilities of the next state together with its earlier states, ``(n, K, M)``.

    ``log_alpha (n, K, M)`` are the log-probabilities of a state and the M combinations of its earlier states at this
    step; ``log_a`` the log transition probabilities, ``(1, K, K)`` or ``(n, K, K)``.
    """
    return _joined(without_oldest(log_alpha), log_a)


def without_oldest(log_alpha: Tensor) -> Tensor:
    """Return the log-probabilities of the last p states, ``(n, M)``, by summing out the oldest of p + 1 states.

    ``log_alpha``, ``(n, K, M)``, are the log-probabilities of a state and the M = K^p combinations of p earlier states.
    """
    return torch.logsumexp(_by_oldest(log_alpha), 2)


def _by_oldest(values: Tensor) -> Tensor:
    """Reshape values of a state and M earlier states, ``(n, K, M)``, to ``(n, M, K)`` with the oldest state last."""
    n, k, m = values.shape
    return values.reshape(n, m, k)


def _joined(merged: Tensor, log_a: Tensor) -> Tensor:
    """Return the log-probabilities ``(n, K, M)`` of a new state and the last p states before it.

    ``merged``, ``(n, M)``, are the log-probabilities of the last p states, and ``log_a`` the log transition
    probabilities.
    """
    n, k = len(merged), log_a.shape[-1]
    return (merged.view(n, 1, k, merged.shape[1] // k) + log_a.mT.unsqueeze(-1)).flatten(2)


# -- the passes --------------------------------------------------------------------------------------------------------


def forward_pass(trellis: LaggedStatesTrellis) -> LaggedStatesFiltered:
    """Run the forward pass: compute the distribution of the last p + 1 states given the steps so far."""
    log_b, peak = _relative(trellis.log_b)
    log_alpha, log_scale, _ = forward(trellis.packing, trellis.log_a, log_b, trellis.log_initial)
    return LaggedStatesFiltered(log_alpha, log_scale + peak, _log_end(trellis, log_alpha))


def forward_backward_pass(trellis: LaggedStatesTrellis) -> LaggedStatesPosterior:
    """Run forward-backward (the E-step) over sequences whose densities depend on the last p + 1 states.

    A sequence of probability zero has ``log_prob`` -inf and adds nothing to the expected counts.
    """
    packing = trellis.packing
    log_b, peak = _relative(trellis.log_b)
    ran = log_alpha, log_scale, _ = forward(packing, trellis.log_a, log_b, trellis.log_initial)
    gamma, transitions = backward(packing, trellis.log_a, log_b, trellis.log_ends, *ran)
    marginal = gamma.sum(2)
    log_prob = packing.totals(log_scale + peak) + _log_end(trellis, log_alpha)
    first, last = marginal[packing.rank].sum(0), marginal[packing.last].sum(0)
    return LaggedStatesPosterior(log_prob, gamma, transitions, first, last)


def _log_end(trellis: LaggedStatesTrellis, log_alpha: Tensor) -> Tensor:
    """Return the log-probability that each of n sequences ends after its last step, log p(end | x), ``(n,)``.

    ``log_alpha (N, K, M)`` are the results of the forward pass.
    """
    return torch.logsumexp(torch.logsumexp(log_alpha[trellis.packing.last], 2) + trellis.log_ends, 1)


def forward(packing: Packing, log_a: Tensor, log_b: Tensor, log_start: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Run the forward pass over tuples of the last p + 1 of K states; M = K^p combinations are of earlier states.

    Args:
        packing: packing of the N rows.
        log_a: log-probabilities of the transitions into each row, ``(N, K, K)``, or ``(1, K, K)`` for all rows; first
            rows are not read.
        log_b: log-densities less the largest of their row, ``(N, K, M)``, or ``(N, K, 1)`` if they depend on no earlier
            state, where p = 1.
        log_start: log p(first state), ``(n, K)`` by rank (longest first).

    Returns:
        log p(z_t, earlier states | x_<=t), or log p(z_t | x_<=t), in the shape of ``log_b``; log p(x_t | x_<t) relative
        to the largest density of the row, ``(N,)``; and log p(last p states | x_<=t), ``(N, M)``. All are -inf from the
        first impossible step on.
    """
    if runs_compiled(packing, log_b):
        from seqmodels.inference.chains import compiled_lagged_states

        return compiled_lagged_states.forward(packing, log_a, log_b, log_start)
    n_rows, k, depth = log_b.shape
    log_alpha, log_scale = torch.empty_like(log_b), log_b.new_empty(n_rows)
    merged = log_b.new_empty(n_rows, max(k, depth))
    before, predicted = 0, first_tuples(log_start, depth)
    for low, high in packing.blocks:
        if low:
            predicted = _joined(merged[before : before + high - low], _into(log_a, low, high))
            predicted = predicted if depth >= k else without_oldest(predicted).unsqueeze(2)
        joint = predicted + log_b[low:high]
        log_scale[low:high] = torch.logsumexp(joint.flatten(1), 1)
        log_alpha[low:high] = joint - finite(log_scale[low:high])[:, None, None]
        merged[low:high] = without_oldest(log_alpha[low:high]) if depth >= k else log_alpha[low:high, :, 0]
        before = low
    return log_alpha, log_scale, merged


def backward(
    packing: Packing,
    log_a: Tensor,
    log_b: Tensor,
    log_end: Tensor,
    log_alpha: Tensor,
    log_scale: Tensor,
    merged: Tensor,
) -> tuple[Tensor, Tensor]:
    """Run the backward pass over tuples of the last p + 1 of K states; M = K^p combinations are of earlier states.

    Args:
        packing: packing of the N rows.
        log_a: log-probabilities of the transitions into each row, ``(N, K, K)``, or ``(1, K, K)`` for all rows.
        log_b: log-densities less the largest of their row, ``(N, K, M)``, or ``(N, K, 1)`` if they depend on no earlier
            state.
        log_end: log-probabilities of the end after each state, ``(n, K)`` by rank (longest first).
        log_alpha, log_scale, merged: results of ``forward``.

    Returns:
        p(z_t, earlier states | x), or p(z_t | x), in the shape of ``log_b``, and p(z_t-1, z_t | x), ``(N, K, K)``,
        zeros in first rows.
    """
    if runs_compiled(packing, log_b):
        from seqmodels.inference.chains import compiled_lagged_states

        return compiled_lagged_states.backward(packing, log_a, log_b, log_end, log_alpha, log_scale, merged)
    n_rows, k, depth = log_b.shape
    m, alike = merged.shape[1], k if depth >= k else 1  # combinations, and tuples with the same last p states
    gamma, transitions = log_b.new_zeros(log_b.shape), log_b.new_zeros(n_rows, k, k)
    ahead, after = log_b[:0], 0  # log of b_t+1 beta_t+1 / c_t+1 of sequences that go on, and their first row
    for low, high in reversed(packing.blocks):
        n = len(ahead)
        to_next = ahead.view(n, k, alike, m // k) + _into(log_a, after, after + n).mT.unsqueeze(-1)  # (n, j, i, ..)
        of_next = torch.logsumexp(to_next, 1).view(n, m, 1)  # whatever the oldest state is
        ends = log_end[n : high - low, :, None].expand(-1, -1, depth)
        log_beta = torch.cat([of_next.expand(n, m, alike).reshape(n, k, depth), ends])
        joint = log_alpha[low:high] + log_beta
        norm = finite(torch.logsumexp(joint.flatten(1), 1))[:, None, None]
        gamma[low:high] = (joint - norm).exp()
        pairs = merged[low : low + n].view(n, 1, k, m // k) + to_next - norm[:n].unsqueeze(-1)
        transitions[after : after + n] = pairs.exp().sum(3).mT
        ahead = log_b[low:high] + log_beta - norm - finite(log_scale[low:high, None, None])
        after = low
    return gamma, transitions


def _into(log_a: Tensor, low: int, high: int) -> Tensor:
    """Return the log-probabilities of the transitions into rows ``low .. high - 1``, or ``(1, K, K)`` for all rows."""
    return log_a if len(log_a) == 1 else log_a[low:high]


def runs_compiled(packing: Packing, log_b: Tensor) -> bool:
    """Return True if there is so little arithmetic at each time that compiled loops are faster than tensors.

    ``log_b`` are the packed log-densities, ``(N, K, M)``.
    """
    n_rows, k, depth = log_b.shape
    few_terms = n_rows * k * max(k, depth) <= len(packing.batch_sizes) * MOST_TERMS_COMPILED
    return few_terms and not log_b.is_cuda and is_compiling()


def best_paths(trellis: LaggedStatesTrellis) -> tuple[list[Tensor], Tensor]:
    """Return the most probable path of states of each sequence and its log-probability (Viterbi).

    Returns:
        Paths ``(T,)``, one for each sequence, and log p(path, x) in nats, ``(n,)``.
    """
    packing, log_a, log_b = trellis.packing, trellis.log_a, trellis.log_b
    if runs_compiled(packing, log_b):
        from seqmodels.inference.chains import compiled_lagged_states

        path, log_prob = compiled_lagged_states.best_paths(
            packing, log_a, log_b, trellis.log_initial, trellis.log_ends, 0.0
        )
        return list(path.split(packing.lengths.tolist())), log_prob
    log_b, peak = _relative(log_b)
    (n_rows, k, _), m = log_b.shape, max(log_b.shape[1:])
    oldest = torch.zeros(n_rows, m, dtype=torch.int64, device=log_b.device)  # of the best tuple of each combination
    best, level = log_b.new_empty(packing.n_sequences, m), log_b.new_zeros(packing.n_sequences)
    predicted = first_tuples(trellis.log_initial, m)
    for low, high in packing.blocks:
        n = high - low
        if low:
            predicted = _joined(best[:n], _into(log_a, low, high))
        best[:n], oldest[low:high] = _by_oldest(predicted + log_b[low:high]).max(2)
        largest = finite(best[:n].amax(1))
        best[:n] -= largest[:, None]
        level[:n] += peak[low:high] + largest
    log_prob, index = (best + trellis.log_ends.repeat_interleave(m // k, 1)).max(1)
    states = torch.empty(n_rows, dtype=torch.int64, device=log_b.device)
    for low, high in reversed(packing.blocks):
        now = index[: high - low]  # combination of the last p states of each running sequence, by rank
        states[low:high] = now // (m // k)
        index = index.clone()
        index[: high - low] = now % (m // k) * k + oldest[low:high].gather(1, now[:, None])[:, 0]
    return packing.split(states), (log_prob + level)[packing.rank]


def sample_paths(trellis: LaggedStatesTrellis, n: int, generator: torch.Generator) -> tuple[list[Tensor], Tensor]:
    """Draw ``n`` paths of states of each sequence from p(z | x), and return them with log p(x).

    Paths are ``(T, n)`` for each sequence, and log p(x) is ``(n_sequences,)`` in nats. A sequence whose log p(x) is
    -inf has no path, and its states are arbitrary.
    """
    filtered, packing = forward_pass(trellis), trellis.packing
    n_rows, k, m = trellis.log_b.shape
    states = torch.empty(n_rows, n, dtype=torch.int64, device=trellis.log_b.device)
    ends = (filtered.log_alpha[packing.last] + trellis.log_ends.unsqueeze(2)).flatten(1)
    index = draw(ends.unsqueeze(1).expand(-1, n, -1), generator)[packing.order].clamp(min=0)  # (n_sequences, n)
    for t, (low, high) in reversed(list(enumerate(packing.blocks))):
        now = index[: high - low]
        states[low:high] = now // m
        if not t:
            break
        before = now % m  # later frames depend on these only through the transition
        low_before = packing.blocks[t - 1][0]
        log_alpha = _by_oldest(filtered.log_alpha[low_before : low_before + high - low])  # (n, M, K)
        oldest = draw(log_alpha.gather(1, before.unsqueeze(-1).expand(-1, -1, k)), generator).clamp(min=0)
        index = index.clone()
        index[: high - low] = before * k + oldest
    return packing.split(states), packing.totals(filtered.steps) + filtered.ends


def _relative(log_b: Tensor) -> tuple[Tensor, Tensor]:
    """Return the log-densities less the largest of each row, ``(N, K, M)``, and that largest, ``(N,)``."""
    relative, peak = relative_to_largest(log_b.flatten(1))
    return relative.view_as(log_b), peak[:, 0]
