"""Chains whose densities depend on the last p + 1 states, ``b(x_t | z_t, z_t-1, .., z_t-p)`` (Hamilton 1989).

The tuple ``(z_t, .., z_t-p)`` is a Markov chain of ``K^(p+1)`` states, each of which leads to only K others. A step
sums over the oldest state of the tuple, and then multiplies by the transition into the new one,

    ``m_t(z_t, .., z_t-p+1) = Σ_{z_t-p} alpha_t(z_t, .., z_t-p)``
    ``alpha_t+1(z_t+1, z_t, .., z_t-p+1) ∝ m_t(z_t, .., z_t-p+1) a(z_t, z_t+1) b_t+1(..)``,

which takes ``K^(p+1)`` terms, where the transition matrix of the tuples has ``K^(2p+2)`` (Kim and Nelson 1999,
*State-space models with regime switching*, section 4.2). Everything is computed in logarithms and float64. For few
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
from seqmodels.inference.chains.log_space import finite, relative_to_largest
from seqmodels.inference.chains.packing import Packing
from seqmodels.inference.chains.sampling import draw

MOST_TERMS_COMPILED = 1 << 12  # number of sums at one time above which tensor operations are as fast


@dataclass(frozen=True)
class LaggedStatesTrellis:
    """The problem of inference on n packed sequences of N rows, whose densities depend on the last p + 1 of K states.

    Attributes:
        log_initial: log p(z_1), ``(n, K)`` by rank (longest first).
        log_transition: log-probabilities of the transitions, ``(K, K)``, or ``(N, K, K)`` those into each row; the
            values of first rows are not read.
        log_final: log p(end | z_T), ``(K,)``; None if the end is no event.
        log_b: log p(x_t | z_t, earlier states), ``(N, K, M)`` float64, for the M = K^p combinations of earlier states.
        packing: how the N rows make up the n sequences.
    """

    log_initial: Tensor
    log_transition: Tensor
    log_final: Tensor | None
    log_b: Tensor
    packing: Packing

    @property
    def n_states(self) -> int:
        """K, the number of states of one step."""
        return self.log_b.shape[1]

    def into(self, rows: slice) -> Tensor:
        """Return the log-probabilities of the transitions into the r packed rows of a slice, ``(r, K, K)``.

        If they are the same at all steps, the result is ``(1, K, K)``.
        """
        return self.log_transition[None] if self.log_transition.dim() == 2 else self.log_transition[rows]

    @property
    def log_ends(self) -> Tensor:
        """Log-probability of the end after each state, ``(K,)``; zeros if the end is no event."""
        return self.log_b.new_zeros(self.n_states) if self.log_final is None else self.log_final


@dataclass(frozen=True)
class LaggedStatesFiltered:
    """Results of a forward pass with N rows, K states and M = K^p tuples of p earlier states.

    Attributes:
        log_alpha: log p(z_t, earlier states | x_1 .. x_t), ``(N, K, M)``; -inf from an impossible step on.
        steps: log p(x_t | x_<t) in nats, ``(N,)`` float64.
        ends: log p(end | x) of each sequence in the caller's order, ``(n,)``; 0 if the end is no event, and -inf for a
            sequence of probability zero.
    """

    log_alpha: Tensor
    steps: Tensor
    ends: Tensor

    @property
    def log_beliefs(self) -> Tensor:
        """log p(z_t | x_1 .. x_t), ``(N, K)``."""
        return torch.logsumexp(self.log_alpha, 2)


@dataclass(frozen=True)
class LaggedStatesPosterior:
    """Results of forward-backward with N rows, K states and M = K^p tuples of p earlier states.

    Attributes:
        log_prob: log p(x) in nats, ``(n,)`` in the caller's order.
        gamma: p(z_t, earlier states | x), ``(N, K, M)``.
        transitions: p(z_t-1 = i, z_t = j | x), ``(N, K, K)``; zeros in first rows.
        initial: expected number of first states, ``(K,)``.
        final: expected number of last states, ``(K,)``.
    """

    log_prob: Tensor
    gamma: Tensor
    transitions: Tensor
    initial: Tensor
    final: Tensor


# -- one step ----------------------------------------------------------------------------------------------------------


def tuples(n_states: int, order: int, device: torch.device | str = "cpu") -> Tensor:
    """Return the states of each tuple of p + 1 = ``order`` + 1 states, ``(K^(p+1), p + 1)``, the newest first.

    >>> tuples(2, 1).tolist()
    [[0, 0], [0, 1], [1, 0], [1, 1]]
    """
    digits = torch.arange(n_states, device=device)
    return torch.cartesian_prod(*[digits] * (order + 1)).view(-1, order + 1)


def first_tuples(log_initial: Tensor, n_earlier: int) -> Tensor:
    """Return the log-probabilities of a first state and earlier states, ``(n, K, M)``, from ``log_initial (n, K)``.

    ``n_earlier`` is M. Before the first step all earlier states are written as state 0; other combinations have -inf.
    """
    first = log_initial.new_full((*log_initial.shape, n_earlier), -torch.inf)
    first[..., 0] = log_initial
    return first


def next_tuples(log_alpha: Tensor, log_a: Tensor) -> Tensor:
    """Return the predicted log-probabilities of state and earlier states at the next step, ``(n, K, M)``.

    ``log_alpha`` are the log-probabilities at this step, ``(n, K, M)``; ``log_a`` the log transition probabilities,
    ``(1, K, K)`` or ``(n, K, K)``.
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
    """Run the forward pass: compute the distribution of the last p + 1 states after each step."""
    log_b, peak = _relative(trellis.log_b)
    log_alpha, log_scale, _ = _forward(trellis, log_b)
    last = torch.logsumexp(log_alpha[trellis.packing.last], 2)
    return LaggedStatesFiltered(log_alpha, log_scale + peak, torch.logsumexp(last + trellis.log_ends, 1))


def forward_backward_pass(trellis: LaggedStatesTrellis) -> LaggedStatesPosterior:
    """Run the E-step; a sequence of probability zero has ``log_prob`` -inf and adds nothing to the expected counts."""
    packing = trellis.packing
    log_b, peak = _relative(trellis.log_b)
    log_alpha, log_scale, merged = _forward(trellis, log_b)
    gamma, transitions = _backward(trellis, log_b, log_alpha, log_scale, merged)
    marginal = gamma.sum(2)
    ends = torch.logsumexp(torch.logsumexp(log_alpha[packing.last], 2) + trellis.log_ends, 1)
    log_prob = packing.totals(log_scale + peak) + ends
    first, last = marginal[packing.rank].sum(0), marginal[packing.last].sum(0)
    return LaggedStatesPosterior(log_prob, gamma, transitions, first, last)


def _forward(trellis: LaggedStatesTrellis, log_b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Run the forward pass on ``log_b``, log-densities less the largest of each row, ``(N, K, M)``.

    Returns:
        log p(z_t, earlier states | x_<=t), ``(N, K, M)``; log p(x_t | x_<t) less the largest log-density of the row,
        ``(N,)``; and the first result with the oldest state summed out, ``(N, M)``.
    """
    packing = trellis.packing
    if _runs_compiled(trellis):
        from seqmodels.inference.chains import compiled_lagged_states

        return compiled_lagged_states.forward(packing, trellis.into(slice(None)), log_b, trellis.log_initial)
    log_alpha, log_scale = log_b.new_empty(log_b.shape), log_b.new_empty(len(log_b))
    merged = log_b[:, 0].new_empty(log_b[:, 0].shape)
    predicted = first_tuples(trellis.log_initial, log_b.shape[2])
    before = slice(0)
    for t, (low, high) in enumerate(packing.blocks):
        if t:
            predicted = _joined(merged[before][: high - low], trellis.into(slice(low, high)))
        joint = predicted + log_b[low:high]
        log_scale[low:high] = torch.logsumexp(joint.flatten(1), 1)
        log_alpha[low:high] = joint - finite(log_scale[low:high])[:, None, None]
        merged[low:high] = without_oldest(log_alpha[low:high])
        before = slice(low, high)
    return log_alpha, log_scale, merged


def _backward(
    trellis: LaggedStatesTrellis, log_b: Tensor, log_alpha: Tensor, log_scale: Tensor, merged: Tensor
) -> tuple[Tensor, Tensor]:
    """Return p(z_t, earlier states | x), ``(N, K, M)``, and p(z_t-1, z_t | x), ``(N, K, K)``.

    ``log_alpha``, ``log_scale`` and ``merged`` are the results of ``_forward``.
    """
    packing = trellis.packing
    if _runs_compiled(trellis):
        from seqmodels.inference.chains import compiled_lagged_states

        return compiled_lagged_states.backward(
            packing, trellis.into(slice(None)), log_b, trellis.log_ends, log_alpha, log_scale, merged
        )
    n_rows, k, m = log_b.shape
    gamma, transitions = log_b.new_zeros(log_b.shape), log_b.new_zeros(n_rows, k, k)
    ahead, after = log_b[:0], 0  # log of b_t+1 beta_t+1 / c_t+1 of sequences that go on, and their first row
    for low, high in reversed(packing.blocks):
        n = len(ahead)
        to_next = ahead.view(n, k, k, m // k) + trellis.into(slice(after, after + n)).mT.unsqueeze(-1)  # (n, j, i, ..)
        of_next = torch.logsumexp(to_next, 1).view(n, m, 1)  # whatever the oldest state is
        ends = trellis.log_ends[None, :, None].expand(high - low - n, -1, m)
        log_beta = torch.cat([of_next.expand(n, m, k).reshape(n, k, m), ends])
        joint = log_alpha[low:high] + log_beta
        norm = finite(torch.logsumexp(joint.flatten(1), 1))[:, None, None]
        gamma[low:high] = (joint - norm).exp()
        pairs = merged[low : low + n].view(n, 1, k, m // k) + to_next - norm[:n].unsqueeze(-1)
        transitions[after : after + n] = pairs.exp().sum(3).mT
        ahead = log_b[low:high] + log_beta - norm - finite(log_scale[low:high, None, None])
        after = low
    return gamma, transitions


def _runs_compiled(trellis: LaggedStatesTrellis) -> bool:
    """Return True if the arithmetic at each time is so little that compiled loops are faster than tensors."""
    n_times, log_b = len(trellis.packing.batch_sizes), trellis.log_b
    few_terms = log_b.numel() <= n_times * MOST_TERMS_COMPILED
    return few_terms and not log_b.is_cuda and is_compiling()


def best_paths(trellis: LaggedStatesTrellis) -> tuple[list[Tensor], Tensor]:
    """Return the most probable path of states of each sequence, ``(T,)``, and log p(path, x), ``(n,)`` (Viterbi)."""
    log_b, packing = trellis.log_b, trellis.packing
    if _runs_compiled(trellis):
        from seqmodels.inference.chains import compiled_lagged_states

        return compiled_lagged_states.best_paths(
            packing, trellis.into(slice(None)), log_b, trellis.log_initial, trellis.log_ends
        )
    n_rows, k, m = log_b.shape
    oldest = torch.zeros(n_rows, m, dtype=torch.int64, device=log_b.device)  # oldest state of the tuple before
    delta = log_b.new_empty(log_b.shape)
    best = first_tuples(trellis.log_initial, m)
    for t, (low, high) in enumerate(packing.blocks):
        if t:
            merged, oldest[low:high] = _by_oldest(best[: high - low]).max(2)
            best = _joined(merged, trellis.into(slice(low, high)))
        best = delta[low:high] = best[: high - low] + log_b[low:high]
    ends = (delta[packing.last] + trellis.log_ends[:, None]).flatten(1)
    log_prob, last = ends.max(1)
    states = torch.empty(n_rows, dtype=torch.int64, device=log_b.device)
    index = last[packing.order]  # index of the tuple of each running sequence, by rank
    for low, high in reversed(packing.blocks):
        now = index[: high - low]
        states[low:high] = now // m
        before = now % m  # the tuple before, without its oldest state
        index = index.clone()
        index[: high - low] = before * k + oldest[low:high].gather(1, before[:, None])[:, 0]
    return packing.split(states), log_prob


def sample_paths(trellis: LaggedStatesTrellis, n: int, generator: torch.Generator) -> tuple[list[Tensor], Tensor]:
    """Draw ``n`` paths of each sequence, ``(T, n)``, from p(z | x), and return them with log p(x), ``(n_sequences,)``.

    A sequence whose log p(x) is -inf has no path, and the states returned for it mean nothing.
    """
    filtered, packing = forward_pass(trellis), trellis.packing
    n_rows, k, m = trellis.log_b.shape
    states = torch.empty(n_rows, n, dtype=torch.int64, device=trellis.log_b.device)
    ends = (filtered.log_alpha[packing.last] + trellis.log_ends[:, None]).flatten(1)
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
