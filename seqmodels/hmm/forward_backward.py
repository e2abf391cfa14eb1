"""The sum over all paths of hidden states, ``p(x) = Σ_z p(z, x)``, step by step, and what the states did given x.

Notation of Rabiner (1989), *A tutorial on hidden Markov models*. Three roads, each for the sequences that the one before cannot be
trusted with: scaled in the precision of ``log_b``, scaled in float64, and in logarithms. None of them clips a figure.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from seqmodels.hmm import log_semiring
from seqmodels.hmm.cutting import Cutting
from seqmodels.hmm.densities import LogDensities
from seqmodels.hmm.packing import Packing
from seqmodels.hmm.roads import scaled_forward, scaled_posterior, travel
from seqmodels.hmm.trellis import Forward, Posterior, Trellis


@torch.no_grad()
def filtered(
    initial: Tensor, transition: Tensor, log_b: Tensor, packing: Packing, final: Tensor | None = None
) -> Forward:
    """The forward pass: increments of log p(x) and the beliefs after each frame.

    Args:
        initial: (K,) p(z_1), or (n, K), one row a sequence in the caller's order (a belief to go on from).
        transition: (K, K) p(z_t+1 | z_t); with ``final``, ``transition.sum(1) + final == 1``, and every increment
            carries "has not ended yet".
        log_b: (N, K) packed log p(x_t | z_t) in nats, float32 or float64; sets precision and device.
        packing: which rows belong to which sequence.
        final: (K,) p(end | z_T), where the end is an event.

    Returns:
        ``steps`` (N,), ``ends`` (n,) or None, ``alpha`` (N, K). Impossible frames have step -inf, and so do all later ones.

    Raises:
        ValueError: shapes or precision that do not fit.

    >>> p = Packing.of([2])
    >>> a = torch.tensor([[0.5, 0.5], [0.0, 1.0]], dtype=torch.float64)
    >>> b = torch.tensor([[0.5, 0.25], [0.5, 0.25]], dtype=torch.float64)
    >>> filtered(torch.tensor([1.0, 0.0]), a, b.log(), p).steps.exp()
    tensor([0.5000, 0.3750], dtype=torch.float64)
    """
    trellis, rows = _trellis(initial, transition, log_b, packing, final)
    found = forward_of(trellis)
    alpha, steps = (torch.empty_like(a).index_copy_(0, rows, a) for a in (found.alpha, found.steps))
    return Forward(steps, None if final is None else found.ends, alpha)


def log_prob_steps(
    initial: Tensor, transition: Tensor, log_b: Tensor, packing: Packing, final: Tensor | None = None
) -> tuple[Tensor, Tensor | None]:
    """(N,) float64 packed log p(x_t | x_<t), and (n,) float64 log p(end | x) or None; arguments as of ``filtered``."""
    result = filtered(initial, transition, log_b, packing, final)
    return result.steps, result.ends


@torch.no_grad()
def posterior(
    initial: Tensor, transition: Tensor, log_b: Tensor, packing: Packing, final: Tensor | None = None
) -> Posterior:
    """The E-step of Baum and Welch: gamma, and expected transitions, starts and ends; arguments as of ``filtered``.

    Raises:
        ValueError: a sequence has probability zero (named), or shapes that do not fit.
    """
    trellis, rows = _trellis(initial, transition, log_b, packing, final)
    found = posterior_of(trellis)
    impossible = (found.log_prob == -torch.inf).nonzero()[:, 0].tolist()
    if impossible:
        raise ValueError(
            f"sequence {impossible[0]} has probability zero, so its states have no posterior; leave it out, or keep "
            "emissions and transitions from being exactly zero"
        )
    return replace(found, gamma=torch.empty_like(found.gamma).index_copy_(0, rows, found.gamma))


def forward_of(trellis: Trellis) -> Forward:
    """The forward pass over a trellis, by its rows; ``ends`` is log 1 where the end is no event."""
    return travel(trellis, scaled_forward, log_semiring.forward, exact_is_quick=True)


def posterior_of(trellis: Trellis) -> Posterior:
    """The E-step over a trellis, by its rows; sequences of probability zero have log_prob -inf and no part in the sums."""
    return travel(trellis, scaled_posterior, log_semiring.posterior)


def _trellis(
    initial: Tensor, transition: Tensor, log_b: Tensor, packing: Packing, final: Tensor | None
) -> tuple[Trellis, Tensor]:
    """Cut as suits it, and the caller's row of each of its rows."""
    whole = Cutting.whole(packing.lengths, log_b.device)
    return Trellis.of(initial, transition, LogDensities(log_b.detach()), whole, final).cut()
