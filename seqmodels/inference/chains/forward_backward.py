"""Forward-backward: the sum over all paths of hidden states, ``p(x) = Σ_z p(z, x)``, and the posterior of the states.

In the notation of Rabiner (1989, *A tutorial on hidden Markov models and selected applications in speech recognition*),
with alpha normalised at each step::

    alpha_t(j)  = Σ_i alpha_t-1(i) a_ij b_j(x_t) / c_t        p(z_t = j | x_1 .. x_t), with c_t = p(x_t | x_1 .. x_t-1)
    beta_t(i)   = Σ_j a_ij b_j(x_t+1) beta_t+1(j) / c_t+1
    gamma_t(i)  = alpha_t(i) beta_t(i)                        p(z_t = i | x)
    xi(i, j)    = Σ_t alpha_t(i) a_ij b_j(x_t+1) beta_t+1(j) / c_t+1

``textbook`` has the same recursions as plain loops. This module chooses how to compute each sequence in floating point.
Each attempt reports the sequences for which its result may be wrong, and only those are computed again, by the next
attempt (``_recompute``); no attempt clips a result:

1. scaled, in the precision of ``log_b``, with long sequences cut into segments that run side by side and are warmed up;
2. scaled, in float64, with long sequences cut into segments that start and end exactly (``block_products``), or, on a
    CPU, uncut in loops that are faster than these (``sequential``);
3. in logarithms (``log_space``), which never fails.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor

from seqmodels.inference.chains import log_space, scaled
from seqmodels.inference.chains.parallel_segments import Segments
from seqmodels.inference.chains.trellis import Filtered, Lengths, Posterior, Trellis

Result = TypeVar("Result", Filtered, Posterior)
Pass = Callable[[Trellis], Result]


@torch.no_grad()
def forward_backward(
    initial: Tensor, transition: Tensor, log_b: Tensor, final: Tensor | None = None, *, lengths: Lengths | None = None
) -> Posterior:
    """Return the probabilities of the states given the whole sequence, and expected transitions (the E-step).

    Args:
        initial: distribution of the first state p(z_1) over K states, ``(K,)``, or ``(n, K)`` with one row for each of
            n sequences.
        transition: transition probabilities p(z_t+1 = j | z_t = i), ``(K, K)``, the same at all times; with ``final``,
            ``transition.sum(1) + final == 1``.
        log_b: log-densities log p(x_t | z_t) in nats, ``(N, K)``: the frames of all sequences, one sequence after the
            other. float32 or float64, which sets the precision; its device is the device of the computation. For a
            padded batch ``(B, T, K)`` with a mask ``(B, T)``, pass ``log_b[mask]``.
        final: probability that the sequence ends after each state, ``(K,)``; None if the length has no probability.
        lengths: number of frames of each sequence, ``(n,)``; None if all N frames belong to one sequence.

    Returns:
        The posterior, with fields ``log_prob`` (n,), log p(x) of each sequence in nats; ``gamma`` (N, K), p(z_t | x) in
        the order of ``log_b``; and expected numbers over all sequences of transitions, ``xi`` (K, K), of first states,
        ``initial`` (K,), and of last states, ``final`` (K,).

    Raises:
        ValueError: If a sequence has probability zero (the message names it), or a shape or precision does not fit.

    >>> transition = torch.tensor([[0.5, 0.5], [0.0, 1.0]], dtype=torch.float64)
    >>> b = torch.tensor([[0.5, 0.25], [0.5, 0.25]], dtype=torch.float64)
    >>> posterior = forward_backward(torch.tensor([1.0, 0.0]), transition, b.log())
    >>> posterior.log_prob.exp(), posterior.gamma
    (tensor([0.1875], dtype=torch.float64),
     tensor([[1.0000, 0.0000],
             [0.6667, 0.3333]], dtype=torch.float64))
    >>> posterior.xi
    tensor([[0.6667, 0.3333],
            [0.0000, 0.0000]], dtype=torch.float64)
    """
    trellis = Trellis.of_concatenated(initial, transition, log_b, final, lengths)
    posterior = forward_backward_pass(trellis)
    refuse_impossible(posterior.log_prob)
    return replace(posterior, gamma=trellis.packing.unpack(posterior.gamma))


def smooth(
    initial: Tensor, transition: Tensor, log_b: Tensor, final: Tensor | None = None, *, lengths: Lengths | None = None
) -> Tensor:
    """Return the probabilities of the states given the whole sequence, p(z_t | x_1 .. x_T), shape ``(N, K)``.

    Args:
        initial: distribution of the first state p(z_1) over K states, ``(K,)``, or ``(n, K)`` with one row for each of
            n sequences.
        transition: transition probabilities p(z_t+1 = j | z_t = i), ``(K, K)``; with ``final``,
            ``transition.sum(1) + final == 1``.
        log_b: log-densities log p(x_t | z_t) in nats, ``(N, K)``, float32 or float64: the frames (steps) of all
            sequences, one sequence after the other.
        final: probability that the sequence ends after each state, ``(K,)``; None if the length has no probability.
        lengths: number of frames of each sequence, ``(n,)``; None if all N frames belong to one sequence.

    Raises:
        ValueError: If a sequence has probability zero (the message names it), or a shape or precision does not fit.

    >>> even, b = torch.full((2, 2), 0.5), torch.tensor([[0.9, 0.1], [0.2, 0.8]])
    >>> smooth(even[0], even, b.log())
    tensor([[0.9000, 0.1000],
            [0.2000, 0.8000]])
    """
    return forward_backward(initial, transition, log_b, final, lengths=lengths).gamma


@torch.no_grad()
def filter(
    initial: Tensor, transition: Tensor, log_b: Tensor, final: Tensor | None = None, *, lengths: Lengths | None = None
) -> Filtered:
    """Return the probabilities of the states given the frames so far, and the log-probability of each frame.

    Args:
        initial: distribution of the first state p(z_1) over K states, ``(K,)``, or ``(n, K)`` with one row for each of
            n sequences. A row may be the prediction after an earlier part of a sequence, ``alpha[-1] @ transition``:
            the pass then continues from there.
        transition: transition probabilities p(z_t+1 = j | z_t = i), ``(K, K)``; with ``final``,
            ``transition.sum(1) + final == 1``.
        log_b: log-densities log p(x_t | z_t) in nats, ``(N, K)``, float32 or float64: the frames (steps) of all
            sequences, one sequence after the other.
        final: probability that the sequence ends after each state, ``(K,)``; every step then includes the probability
            of not having ended yet. None if the length has no probability.
        lengths: number of frames of each sequence, ``(n,)``; None if all N frames belong to one sequence.

    Returns:
        The filtered beliefs: ``alpha`` (N, K), p(z_t | x_1 .. x_t); ``steps`` (N,), log p(x_t | x_<t) in nats; ``ends``
            (n,), log p(end | x), or None without ``final``. An impossible frame and all frames after it have step -inf
            and alpha of zeros.

    Raises:
        ValueError: If a shape or precision does not fit.

    >>> transition = torch.tensor([[0.5, 0.5], [0.0, 1.0]], dtype=torch.float64)
    >>> b = torch.tensor([[0.5, 0.25], [0.5, 0.25]], dtype=torch.float64)
    >>> filter(torch.tensor([1.0, 0.0]), transition, b.log()).steps.exp()
    tensor([0.5000, 0.3750], dtype=torch.float64)
    """
    trellis = Trellis.of_concatenated(initial, transition, log_b, final, lengths)
    filtered, unpack = forward_pass(trellis), trellis.packing.unpack
    ends = None if final is None else filtered.ends
    return Filtered(alpha=unpack(filtered.alpha), steps=unpack(filtered.steps), ends=ends)


def refuse_impossible(log_prob: Tensor) -> None:
    """Raise ``ValueError`` if a sequence has probability zero; the message has the number of the first such sequence.

    ``log_prob (n,)`` is the log-probability of each sequence.
    """
    impossible = (log_prob == -torch.inf).nonzero()[:, 0].tolist()
    if impossible:
        raise ValueError(
            f"sequence {impossible[0]} has probability zero, so its states have no posterior; leave it out, or keep "
            "emissions and transitions from being exactly zero"
        )


# -- passes over a Trellis, in its rows, with fallbacks where scaling fails -------------------------------------------


def forward_pass(trellis: Trellis) -> Filtered:
    """Return p(z_t | x_<=t) and log p(x_t | x_<t) for the packed rows of a trellis (a problem of inference).

    ``ends``, log p(end | x), is 0 where the length has no probability. Sequences for which scaled numbers fail are
    computed again in higher precision or in logarithms.
    """
    if trellis.log_transitions is not None:
        return log_space.forward_pass(trellis)
    if trellis.is_sequential:
        from seqmodels.inference.chains import sequential

        filtered, failed = sequential.forward_pass(trellis)
    else:
        ran = scaled.forward(trellis)
        filtered, failed = ran.filtered, ran.failed
    if failed.any():
        _recompute(trellis, filtered, failed, forward_pass, log_space.forward_pass)
    return filtered


def forward_backward_pass(trellis: Trellis) -> Posterior:
    """Return p(z_t | x) for the packed rows of a trellis (a problem of inference), log p(x) and expected counts.

    Counts are those of transitions, first states and last states. A sequence of probability zero has ``log_prob`` -inf
    and adds nothing to them. Sequences for which scaled numbers fail are computed again in higher precision or in
    logarithms.
    """
    if trellis.log_transitions is not None:
        return log_space.forward_backward_pass(trellis)
    if trellis.is_sequential:
        from seqmodels.inference.chains import sequential

        posterior, failed = sequential.forward_backward_pass(trellis)
    else:
        posterior, failed = scaled.backward(trellis, scaled.forward(trellis, bounded=False))
    if failed.any():
        _recompute(trellis, posterior, failed, forward_backward_pass, log_space.forward_backward_pass)
    return posterior


def _recompute(
    trellis: Trellis, result: Result, failed: Tensor, run: Pass[Result], in_logarithms: Pass[Result]
) -> None:
    """Replace the results of the sequences for which a pass failed, by a pass that is more exact and slower.

    Args:
        trellis: the problem of inference.
        result: the results of the pass, which are changed in place.
        failed: True for each sequence that failed in each chain, ``(..., n)``.
        run: the pass that failed. It is tried again in float64 with exact segments, where it may call this function in
            turn.
        in_logarithms: the pass that takes its place if the failed results were computed in float64 already.
    """
    for chain, chain_result, chain_failed in zip(trellis.chains, result.chains, torch.atleast_2d(failed), strict=True):
        if not chain_failed.any():
            continue
        sequences = chain_failed.nonzero()[:, 0]
        whole, rows = chain.take(sequences)
        is_exact = trellis.densities.dtype == torch.float64 and not trellis.segments.are_warmed_up
        if trellis.is_sequential or is_exact:
            chain_result.replace_sequences(rows, sequences, in_logarithms(whole))
        else:
            retry, retry_rows = whole.double().cut(Segments.exact(whole.segments.lengths, len(chain.transition)))
            chain_result.replace_sequences(rows[retry_rows], sequences, run(retry))
