"""Scaled forward-backward, ``alpha_t = (alpha_t-1 A) ∘ b_t / c_t``, and the sequences for which it may be wrong.

Every product that underflows, or is flushed to zero before it can, loses a path, so that the result is a lower bound of
``p(x_1..x_t)``. Adding back at each step more than can have been lost gives an upper bound. If the two agree after
every frame, nothing that mattered was lost; if they do not, the sequence has failed.

With a backward pass the check is cheaper. A path that was lost was last lost at some frame, in a state with less mass
than the floor, and goes on from there as beta says. If beta times the floor never matters, nothing was lost.

The recursions over time take a few operations a step on all sequences that are still running. On a GPU they are two
kernels (``triton_kernels``); on a CPU, for few states and if numba is installed, compiled loops
(``compiled_recursions``).
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

import torch
from torch import Tensor

from seqmodels.common.onednn import linear
from seqmodels.inference.chains.block_products import BlockProducts
from seqmodels.inference.chains.packing import Packing, any_of
from seqmodels.inference.chains.parallel_segments import MARGIN, TOLERANCE, runs_compiled
from seqmodels.inference.chains.products import is_worth_onednn, product_with
from seqmodels.inference.chains.scratch import Scratch
from seqmodels.inference.chains.threads import one_thread_if_small
from seqmodels.inference.chains.trellis import Filtered, Posterior, Trellis

WIDER_MARGIN = 16  # factor by which margins are widened for a chain that is slow to forget
ROWS_AT_ONCE = 1 << 16  # number of rows that are checked together
ROWS_PER_SUM = {torch.float32: 1 << 11, torch.float64: 1 << 16}  # rows multiplied up at once: float32 sums stay short
ROWS_OF_A_PART = 1 << 10  # number of rows in one part of a GPU's products
GATHERED_AT_ONCE = 1 << 26  # number of values that a GPU gathers together
RESCALE_EVERY = 16  # steps back after which beta is scaled anew


@dataclass(frozen=True)
class Limits:
    """Limits of what a floating-point precision can hold, for scaled forward and backward recursions.

    Attributes:
        flush: values up to this become zero; it is well above the subnormal numbers, which are slow and inexact.
        floor: upper bound of the mass that one step can lose in one state by underflow, where a frame's mass is 1.
        loss: relative loss that is too small to check for.
        gap: largest accepted difference between the upper and the lower bound of log p(x), in nats.
        drift: largest accepted deviation from one of the sum of a row of gamma.
    """

    flush: float
    floor: float
    loss: float
    gap: float
    drift: float


LIMITS = {
    torch.float32: Limits(flush=1e-34, floor=1e-32, loss=1e-7, gap=1e-5, drift=1e-3),
    torch.float64: Limits(flush=1e-300, floor=1e-298, loss=1e-13, gap=1e-11, drift=1e-8),
}


@dataclass(frozen=True)
class ScaledChain:
    """The arrays that scaled recursions over time run on, all in the precision of ``b``.

    Attributes:
        transition: transition probabilities of K states, ``(..., K, K)``.
        b: densities, scaled so that the largest of each frame is one, ``(..., N, K)``.
        packing: packing of the N rows; its sequences are the segments of a trellis.
    """

    transition: Tensor
    b: Tensor
    packing: Packing


@dataclass(frozen=True)
class ScaledForward:
    """The result of a scaled forward pass over a trellis (a problem of inference) of n sequences and N frames.

    Attributes:
        chain: arrays that the pass ran on; ``chain.b``, ``(..., N, K)``, has a largest entry of one in each frame.
        alpha: probabilities of the states given the frames so far, p(z_t | x_<=t), ``(..., N, K)``.
        scale: scaling factors c of the frames, ``(..., N)``.
        steps: log p(x_t | x_<t) in nats, ``(..., N)`` float64.
        ends: log p(end | x) in nats, ``(..., n)`` float64.
        failed: True for the sequences for which the result may be wrong, ``(..., n)`` bool.
        products: products of the operators of the segments, if these start and end exactly; else None.
    """

    chain: ScaledChain
    alpha: Tensor
    scale: Tensor
    steps: Tensor
    ends: Tensor
    failed: Tensor
    products: BlockProducts | None

    @property
    def filtered(self) -> Filtered:
        """The results of the forward pass, without the arrays that only the backward pass needs."""
        return Filtered(alpha=self.alpha, steps=self.steps, ends=self.ends)


def forward(trellis: Trellis, *, bounded: bool = True) -> ScaledForward:
    """Run the forward pass with scaled probabilities, in the precision of the densities.

    Args:
        trellis: the problem of inference.
        bounded: True to find the sequences that lost something that matters to underflow, by an upper bound of p(x).
            Pass False if ``backward`` follows, which finds them itself, and for several chains.
    """
    dtype, segments, packing = trellis.densities.dtype, trellis.segments, trellis.packing
    b, peak = trellis.densities.scaled(trellis.scratch, LIMITS[dtype].flush)
    if runs_compiled(b.shape[-1], b.shape[-2], b.device) and not _is_compiled(b):
        b = trellis.scratch.buffer("b by state", tuple(b.mT.shape), dtype, b.device).copy_(b.mT).mT
    chain, starts = ScaledChain(trellis.transition.to(dtype), b, packing), trellis.starts(dtype)
    before, after = segments.neighbours
    products = BlockProducts.of(chain.transition, b, segments) if segments.are_exact else None
    with one_thread_if_small(chain.transition, packing.batch_sizes[0]):
        if products is not None:
            starts = products.starts(trellis.initial)
        elif len(after):
            warm = warm_start(chain, segments.size, segments.margin)
            starts[..., after, :] = warm[..., before, :]
        alpha, scale = forward_recursion(chain, starts, trellis.scratch)
    end_mass = (alpha[..., segments.last, :] * trellis.final.to(dtype)).sum(-1)
    failed = ~torch.isfinite(end_mass)
    if len(after) and products is None:
        predicted = alpha[..., packing.last[packing.order[before]], :] @ chain.transition
        assumed = starts[..., after, :]
        close = (predicted - assumed).abs() <= TOLERANCE[dtype] * torch.maximum(predicted, assumed)
        failed |= any_of(~close.all(-1), trellis.owner[after], segments.n_sequences)
    suspect = _suspects(trellis, alpha, scale) if bounded else failed[:0]
    if suspect.any():
        if products is not None:
            suspect = segments.any_segment(suspect)[segments.owner]  # a loss in one may matter in another
        lower = _LowerBound(chain, starts, alpha, scale)
        failed |= segments.any_segment(_bounds_differ(trellis, suspect.nonzero()[:, 0], lower))
    steps = trellis.scratch.buffer("steps", tuple(scale.shape), torch.float64, scale.device)
    steps = steps.copy_(scale).log_().add_(peak)
    return ScaledForward(chain, alpha, scale, steps, end_mass.double().log(), failed, products)


def backward(trellis: Trellis, ran: ScaledForward) -> tuple[Posterior, Tensor]:
    """Run the backward pass on the results of ``forward``, and return the posterior and which sequences failed.

    Failures, ``(..., n)`` bool, are sequences whose result may be wrong because of underflow; they are left out of the
    sums over sequences. The arrays of ``ran``, the results of ``forward``, are overwritten.
    """
    segments = trellis.segments
    gamma, ahead, failed = _gamma_and_ahead(trellis, ran)
    trellis.weighted(ahead, segments.sequence)
    xi = _expected_transitions(trellis, ran.alpha, ahead, failed)
    first = _sum_over_sequences(trellis, gamma[..., segments.first, :], failed)
    last = _sum_over_sequences(trellis, gamma[..., segments.last, :], failed)
    return Posterior(segments.totals(ran.steps) + ran.ends, gamma, xi, first, last), failed


def _gamma_and_ahead(trellis: Trellis, ran: ScaledForward) -> tuple[Tensor, Tensor, Tensor]:
    """Return the results of the backward recursion: gamma, ahead and which sequences failed.

    Gamma is p(z_t | x) and ahead is b beta / c, each ``(..., N, K)``. With these, the expected transitions are
    ``xi_t(i, j) = alpha_t(i) a_ij
    ahead_t+1(j)``. ``ahead`` is written over ``ran.chain.b``. The third result is True, ``(..., n)``, for sequences in
    which a state that matters later may have been lost to underflow; where the forward pass is right, beta is bounded.
    """
    segments, packing, dtype = trellis.segments, trellis.packing, ran.alpha.dtype
    chain, ends = ran.chain, trellis.ends(dtype)
    before, after = segments.neighbours
    last_alpha = ran.alpha[..., packing.last[packing.order], :]
    if ran.products is not None:
        ends[before] = ran.products.ends(trellis.final, last_alpha)[before]
    elif len(before):
        with one_thread_if_small(chain.transition, packing.batch_sizes[0]):
            ends[..., before, :] = warm_end(chain, ends, segments.margin)[..., after, :]
    ends.div_((last_alpha * ends).sum(-1, keepdim=True))
    gamma, ahead, beta_max = trellis.scratch.like("gamma", ran.alpha), chain.b, None
    if not loss_is_negligible(trellis, ran.scale):
        beta_max = trellis.scratch.buffer("beta_max", ran.scale.shape, dtype, gamma.device)
    with one_thread_if_small(chain.transition, packing.batch_sizes[0]):
        messages, drifted = backward_recursion(chain, ran.alpha, ran.scale, ends, gamma, beta_max=beta_max)
    safe, n = _safe_mass(gamma.shape[-1], dtype), segments.n_sequences
    failed = ran.failed | any_of(drifted, trellis.owner, n)
    failed |= ~(ran.ends.exp() > safe)
    if beta_max is not None:
        failed |= segments.any(~(beta_max.mul_(safe) < ran.scale))
    if len(before):
        assumed, computed = (last_alpha[..., before, :] * m for m in (ends[..., before, :], messages[..., after, :]))
        difference = (assumed - computed / computed.sum(-1, keepdim=True)).abs().sum(-1)
        failed |= any_of(~(difference <= TOLERANCE[dtype]), trellis.owner[before], n)
    return gamma, ahead, failed


def _sum_over_sequences(trellis: Trellis, rows: Tensor, failed: Tensor) -> Tensor:
    """Return the weighted sum of rows of sequences that have not failed, ``(..., K)`` float64.

    ``rows (..., n, K)`` has a row for each sequence, and ``failed (..., n)`` says which failed; their rows are set to
    0.
    """
    rows.masked_fill_(failed.unsqueeze(-1), 0.0)
    sequences = torch.arange(rows.shape[-2], device=rows.device)
    return trellis.weighted(rows, sequences).sum(-2, dtype=torch.float64)


def _expected_transitions(trellis: Trellis, alpha: Tensor, ahead: Tensor, failed: Tensor) -> Tensor:
    """Return the expected transitions of the sequences that have not failed, ``(..., K, K)`` float64.

    They are ``Σ_t alpha_t(i) a_ij ahead_t+1(j)``. ``alpha`` and ``ahead`` = b beta / c are ``(..., N, K)``; rows of
    failed sequences are set to 0 in place.
    """
    segments, packing = trellis.segments, trellis.packing
    if failed.any():
        left_out = failed[..., segments.sequence].unsqueeze(-1)
        ahead.masked_fill_(left_out, 0.0)
        alpha.masked_fill_(left_out, 0.0)
    total = _products_of_neighbours(alpha, ahead, packing)
    before, after = segments.neighbours
    ended = alpha[..., packing.last[packing.order[before]], :]
    total += ended.mT @ ahead[..., after, :]  # a segment's first frame stands at its rank
    return total.mul_(trellis.transition)


def _products_of_neighbours(alpha: Tensor, ahead: Tensor, packing: Packing) -> Tensor:
    """Return ``Σ_t alpha_t(i) ahead_t+1(j)`` over consecutive frames of segments, ``(..., K, K)`` float64.

    ``alpha`` and ``ahead`` are ``(..., N, K)`` packed.
    """
    if _is_compiled(alpha):
        from seqmodels.inference.chains import compiled_recursions

        return compiled_recursions.expected_transitions(alpha, ahead, packing)
    if alpha.device.type != "cpu":
        return _products_side_by_side(alpha, ahead, packing)
    K = alpha.shape[-1]
    total = torch.zeros(*alpha.shape[:-2], K, K, dtype=torch.float64, device=alpha.device)
    size = ROWS_PER_SUM[alpha.dtype]
    part, summed = torch.zeros_like(total, dtype=alpha.dtype), 0
    add = part.addmm_ if part.dim() == 2 else part.baddbmm_
    for shift, low, high in packing.spans:
        for start in range(low, high, size):
            stop = min(start + size, high)
            before, after = alpha[..., start - shift : stop - shift, :].mT, ahead[..., start:stop, :]
            if stop - start == size and is_worth_onednn(before, after):  # oneDNN generates code for each size
                part.add_(linear(before, after.mT))
            else:
                add(before, after)
            summed += stop - start
            if summed >= size:
                total += part
                part.zero_()
                summed = 0
    return total.add_(part)


def _products_side_by_side(alpha: Tensor, ahead: Tensor, packing: Packing) -> Tensor:
    """Return ``Σ_t alpha_t(i) ahead_t+1(j)`` over consecutive frames, ``(..., K, K)`` float64, on a GPU.

    Previous frames are gathered and multiplied in parts side by side, because one product of two narrow matrices would
    keep only a small part of a GPU busy.
    """
    K, size = alpha.shape[-1], ROWS_OF_A_PART
    total = torch.zeros(*alpha.shape[:-2], K, K, dtype=torch.float64, device=alpha.device)
    rows_at_once = max(1, GATHERED_AT_ONCE // (K * size)) * size
    later = ahead[..., packing.n_sequences :, :]
    for start in range(0, len(packing.previous), rows_at_once):
        previous, after = packing.previous[start : start + rows_at_once], later[..., start : start + rows_at_once, :]
        by_state = alpha.stride(-2) == 1  # gathered as they lie in memory
        before = alpha.mT.index_select(-1, previous) if by_state else alpha.index_select(-2, previous).mT  # (..., K, n)
        n = len(previous) // size * size
        if n:
            parts = (
                before[..., :n].unflatten(-1, (-1, size)).movedim(-2, -3),
                after[..., :n, :].unflatten(-2, (-1, size)),
            )
            total += (parts[0] @ parts[1]).sum(-3, dtype=torch.float64)  # (..., parts, K, K) added up
        total += before[..., n:] @ after[..., n:, :]
    return total


# -- the recursions over time ------------------------------------------------------------------------------------------

# Arrays are (N, K); in memory either axis may be contiguous, as in the densities that came, and every step works on
# (K, n) views, so that sums over states are sums of whole rows. With a leading axis, (R, N, K), R chains over the
# same sequences run side by side, because the time of a small problem depends on the number of its operations, not on
# their size.


def forward_recursion(
    chain: ScaledChain, starts: Tensor, scratch: Scratch, *, slack: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return the states' probabilities given the frames so far, ``(..., N, K)``, and scaling factors, ``(..., N)``.

    Args:
        chain: transition probabilities and densities of w packed segments.
        starts: predicted distributions of first states, ``(..., w, K)`` by rank (longest first).
        scratch: buffers that the results lie in.
        slack: mass that is added to each state at each step, ``(N, K)``, which makes the results upper bounds; None
            adds nothing.
    """
    transition, b, packing = chain.transition, chain.b, chain.packing
    alpha, scale = scratch.like("alpha", b), scratch.buffer("scale", b.shape[:-1], b.dtype, b.device)
    flush, sizes = LIMITS[b.dtype].flush, packing.batch_sizes
    if slack is None and _on_gpu(b):
        from seqmodels.inference.chains import triton_kernels

        triton_kernels.forward(transition, b, packing, starts=starts, alpha=alpha, scale=scale, flush=flush)
        return alpha, scale
    if slack is None and _is_compiled(b):
        from seqmodels.inference.chains import compiled_recursions

        compiled_recursions.forward(transition, b, packing, starts=starts, alpha=alpha, scale=scale, flush=flush)
        return alpha, scale
    n, product = starts.shape[-2], product_with(transition.mT.contiguous())
    message = _messages(b, n).copy_(starts.mT)
    added = [None] * len(sizes) if slack is None else slack.mT.split(sizes, -1)
    views = (sizes, alpha.mT.split(sizes, -1), b.mT.split(sizes, -1), scale.unsqueeze(-2).split(sizes, -1), added)
    for size, joint, b_t, c_t, slack_t in zip(*views, strict=True):
        if size < n:
            n, message = size, message[..., :size]
        torch.mul(message, b_t, out=joint)
        if slack_t is not None:
            joint.add_(slack_t)
        torch.sum(joint, -2, keepdim=True, out=c_t)
        torch.threshold_(joint.div_(c_t), flush, 0.0)
        message = product(joint, message)
    return alpha, scale


def backward_recursion(
    chain: ScaledChain, alpha: Tensor, scale: Tensor, ends: Tensor, gamma: Tensor, *, beta_max: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Run the backward recursion: fill ``gamma`` = p(z_t | x), and overwrite ``chain.b`` with b beta / c.

    Args:
        chain: arrays of the forward recursion.
        alpha: alpha of the forward recursion, ``(..., N, K)``.
        scale: scaling factors of the forward recursion, ``(..., N)``.
        ends: backward messages beta at last frames of w segments, ``(..., w, K)`` by rank (longest first).
        gamma: result, ``(..., N, K)``.
        beta_max: filled with the largest beta of each frame, ``(..., N)``; None if it is not needed.

    Returns:
        The messages before first frames, ``(..., w, K)`` by rank, and True for each segment in which a row of gamma
        drifted from a sum of one, ``(..., w)``.
    """
    transition, ahead, packing = chain.transition, chain.b, chain.packing
    drift = LIMITS[gamma.dtype].drift
    if _on_gpu(ahead):
        from seqmodels.inference.chains import triton_kernels

        return triton_kernels.backward(
            transition,
            ahead,
            packing,
            alpha=alpha,
            scale=scale,
            ends=ends,
            gamma=gamma,
            drift=drift,
            beta_max=beta_max,
        )
    if _is_compiled(ahead):
        from seqmodels.inference.chains import compiled_recursions

        return compiled_recursions.backward(
            transition,
            ahead,
            packing,
            alpha=alpha,
            scale=scale,
            ends=ends,
            gamma=gamma,
            drift=drift,
            rescale_every=RESCALE_EVERY,
            beta_max=beta_max,
        )
    sizes, n_running, product = packing.batch_sizes, 0, product_with(transition)
    beta = _messages(ahead, ends.shape[-2])
    message = beta[..., :0]
    drifted = torch.zeros(ends.shape[:-1], dtype=torch.bool, device=gamma.device)
    largest = [None] * len(sizes) if beta_max is None else beta_max.unsqueeze(-2).split(sizes, -1)
    states = (a.mT.split(sizes, -1) for a in (alpha, gamma, ahead))
    views = zip(sizes, *states, scale.unsqueeze(-2).split(sizes, -1), largest, strict=True)
    for t, (n, alpha_t, gamma_t, ahead_t, c_t, largest_t) in reversed(list(enumerate(views))):
        if n > n_running:  # some segments end here
            if message.data_ptr() != beta.data_ptr():
                beta[..., :n_running] = message
            beta[..., n_running:n] = ends[..., n_running:n, :].mT
            n_running, message = n, beta[..., :n]
        torch.mul(alpha_t, message, out=gamma_t)
        if t % RESCALE_EVERY == 0:
            norm = gamma_t.sum(-2, keepdim=True)
            drifted[..., :n_running] |= ~((norm.squeeze(-2) - 1).abs() <= drift)
            gamma_t.div_(norm)
            message.div_(norm)
        if largest_t is not None:
            torch.amax(message, -2, keepdim=True, out=largest_t)
        ahead_t.mul_(message).div_(c_t)
        message = product(ahead_t, message)
    return message.mT, drifted


def warm_start(chain: ScaledChain, size: int, margin: int) -> Tensor:
    """Approximate the predicted state distribution after each of m segments of full size, ``(..., m, K)``.

    Args:
        chain: transition probabilities and densities of packed segments. Results are by rank, the longest segment
            first.
        size: number of frames of a full segment.
        margin: number of last frames to use, before which all states are taken to be equally probable.
    """
    transition, b, packing, flush = chain.transition, chain.b, chain.packing, LIMITS[chain.b.dtype].flush
    if _is_compiled(b):
        from seqmodels.inference.chains import compiled_recursions

        return compiled_recursions.warm_start(transition, b, packing, size=size, margin=margin, flush=flush)
    m = packing.batch_sizes[size - 1]
    product = product_with(transition.mT.contiguous())
    predicted, joint = _messages(b, m).fill_(1 / b.shape[-1]), _messages(b, m)
    for low, _ in packing.blocks[size - margin : size]:
        torch.mul(predicted, b[..., low : low + m, :].mT, out=joint)
        torch.threshold_(joint.div_(joint.sum(-2, keepdim=True)), flush, 0.0)
        predicted = product(joint, predicted)
    return predicted.mT


def warm_end(chain: ScaledChain, ends: Tensor, margin: int) -> Tensor:
    """Approximate the backward message beta before the first frame of each of w segments, ``(..., w, K)``.

    Args:
        chain: transition probabilities and densities of packed segments. Results are by rank, the longest segment
            first.
        ends: beta at last frames, ``(..., w, K)`` by rank, from which segments shorter than ``margin`` start.
        margin: number of first frames to use, after which beta is taken to be equal for all states.
    """
    transition, b, packing = chain.transition, chain.b, chain.packing
    if _is_compiled(b):
        from seqmodels.inference.chains import compiled_recursions

        return compiled_recursions.warm_end(transition, b, packing, ends=ends, margin=margin)
    sizes, w, product = packing.batch_sizes, ends.shape[-2], product_with(transition)
    beta, buffer = _messages(b, w), _messages(b, w)
    n_running = sizes[margin] if margin < len(sizes) else 0
    beta[..., :n_running] = 1.0
    for t in reversed(range(min(margin, len(sizes)))):
        n, low = sizes[t], packing.blocks[t][0]
        if n > n_running:
            beta[..., n_running:n] = ends[..., n_running:n, :].mT
            n_running = n
        ahead = torch.mul(b[..., low : low + n, :].mT, beta[..., :n], out=buffer[..., :n])
        message = product(ahead.div_(ahead.sum(-2, keepdim=True)), beta[..., :n])
        if message.data_ptr() != beta.data_ptr():
            beta[..., :n] = message
    return beta.mT


def _on_gpu(b: Tensor) -> bool:
    """Return True if the recursions on densities ``b`` can run as Triton kernels on a GPU.

    This needs Triton, which comes with torch for a GPU.
    """
    if not b.is_cuda or b.dim() > 2 or find_spec("triton") is None:
        return False
    from seqmodels.inference.chains import triton_kernels

    return triton_kernels.can_run(b)


def _is_compiled(b: Tensor) -> bool:
    """Return True if recursions on densities ``b``, ``(..., N, K)``, run as compiled loops.

    These need each state to be a row in memory.
    """
    return runs_compiled(b.shape[-1], b.shape[-2], b.device) and b.mT.is_contiguous()


def _messages(b: Tensor, n: int) -> Tensor:
    """Return an uninitialised tensor ``(..., K, n)`` for messages, with the memory layout of ``b (..., N, K)``."""
    lead, K = b.shape[:-2], b.shape[-1]
    return b.new_empty(*lead, K, n) if b.stride(-2) == 1 else b.new_empty(*lead, n, K).mT


# -- losses to underflow -----------------------------------------------------------------------------------------------


def has_forgotten_start(trellis: Trellis, predicted: Tensor) -> bool:
    """Return True if the prediction after a sequence does not depend on the state in which it started.

    ``trellis`` has this one sequence, and ``predicted (K,)`` is the predicted distribution of the state after it. It is
    compared with the prediction from the last frames alone, as is done for neighbouring segments.
    """
    dtype, length = trellis.densities.dtype, int(trellis.segments.lengths[0])
    frames = min(length, WIDER_MARGIN * MARGIN[dtype])
    time = torch.arange(length - frames, length, device=trellis.densities.device)
    rows = trellis.segments.rows(torch.zeros_like(time), time)
    b, _ = trellis.densities.take(rows).scaled(Scratch(), LIMITS[dtype].flush)
    chain = ScaledChain(trellis.transition.to(dtype), b, Packing.of([frames], b.device))
    flat = torch.full_like(b[:1], 1 / b.shape[1])
    alpha, _ = forward_recursion(chain, flat, Scratch())
    from_flat = alpha[-1] @ chain.transition
    return bool(((predicted - from_flat).abs() <= TOLERANCE[dtype] * torch.maximum(predicted, from_flat)).all())


def loss_is_negligible(trellis: Trellis, scale: Tensor) -> bool:
    """Return True if underflow cannot matter, because every state receives enough from the others at each frame.

    ``scale (..., N)`` are the scaling factors of the forward recursion over the ``trellis``.
    """
    received = scale.amin(-1) * trellis.transition.amin((-2, -1)).to(scale.dtype)
    return bool((received > _safe_mass(trellis.transition.shape[-1], scale.dtype)).all())


def has_every_state(trellis: Trellis, alpha: Tensor) -> bool:
    """Return True if every possible state has a positive probability in ``alpha (N, K)``, so that no path was lost.

    ``alpha`` is the result of a forward recursion over one chain. A state is possible if its density is positive and a
    state that was possible at the frame before leads to it.
    """
    before, after = trellis.segments.rows_before
    starts = torch.empty_like(alpha, dtype=torch.bool)
    starts[trellis.segments.first] = trellis.initial.expand(trellis.segments.n_sequences, -1) > 0
    leads = (trellis.transition > 0).to(alpha.dtype)
    for rows, previous in zip(after.split(ROWS_AT_ONCE), before.split(ROWS_AT_ONCE), strict=True):
        starts[rows] = (alpha[previous] > 0).to(alpha.dtype) @ leads > 0
    return bool(((alpha > 0) == (starts & (trellis.densities.log() > -torch.inf))).all())


def _safe_mass(n_states: int, dtype: torch.dtype) -> float:
    """Return the probability mass beside which the loss of one step to underflow is too small to check for."""
    limits = LIMITS[dtype]
    return n_states * limits.floor / limits.loss


def _suspects(trellis: Trellis, alpha: Tensor, scale: Tensor) -> Tensor:
    """Return True for each of w segments in which a loss to underflow could have mattered, ``(w,)``.

    The result errs towards True. A loss is harmless if it is small beside the mass that the same state kept; or, if
    every transition is possible, beside what every state receives from the others at the next step, because positive
    sums keep their proportions from then on.
    """
    packing, safe = trellis.packing, _safe_mass(alpha.shape[1], alpha.dtype)
    end_mass = alpha[packing.last] * trellis.ends(alpha.dtype)[packing.rank]
    faint = ~(end_mass.sum(1) > safe)
    if loss_is_negligible(trellis, scale):
        return faint
    least_transition = trellis.transition.amin().to(scale.dtype)
    rows = (~(scale * least_transition > safe)).nonzero()[:, 0]
    harmful = torch.zeros_like(scale, dtype=torch.bool)
    for part in rows.split(ROWS_AT_ONCE):
        kept = torch.where(trellis.densities.take(part).log() == -torch.inf, 1.0, alpha[part]).amin(1)
        harmful[part] = ~(scale[part] * kept > safe)
    return packing.any(harmful) | faint


@dataclass(frozen=True)
class _LowerBound:
    """A forward pass that may have lost mass to underflow, and so gives a lower bound of p(x).

    Attributes:
        chain: arrays that it ran on.
        starts: predicted distributions of first states, ``(w, K)``.
        alpha: its alpha, ``(N, K)``.
        scale: its scaling factors, ``(N,)``.
    """

    chain: ScaledChain
    starts: Tensor
    alpha: Tensor
    scale: Tensor


def _bounds_differ(trellis: Trellis, suspects: Tensor, lower: _LowerBound) -> Tensor:
    """Return True for each of w segments whose upper and lower bounds of ``p(x_1 .. x_t)`` differ, ``(w,)``.

    It is enough that they differ at some t. Only the segments numbered in ``suspects`` are checked. ``lower`` gives the
    lower bound; the upper bound is computed by adding at each step more than can have been lost.
    """
    b, packing, limits = lower.chain.b, trellis.packing, LIMITS[lower.chain.b.dtype]
    part, rows = packing.take(suspects)
    ranks = packing.rank[suspects[part.order]]  # rank among all segments, by rank in ``part``
    part_b = b.index_select(0, rows)
    slack = _slack(trellis, rows)
    ends, starts = trellis.ends(b.dtype)[ranks], lower.starts
    if trellis.segments.are_exact:
        every = torch.arange(len(b), device=b.device)
        upper = BlockProducts.of(lower.chain.transition, b, trellis.segments, _slack(trellis, every))
        starts = upper.starts(trellis.initial)
    chain = ScaledChain(lower.chain.transition, part_b, part)
    upper_alpha, upper_scale = forward_recursion(chain, starts[ranks], Scratch(), slack=slack)
    low = (lower.alpha[packing.last[suspects[part.order]]] * ends).sum(1)
    high = (upper_alpha[part.last[part.order]] * ends).sum(1) + limits.floor
    gap = upper_scale.double().log() - lower.scale[rows].double().log()
    broken = part.any(~torch.isfinite(gap))
    gaps = _cumulated(part, torch.where(torch.isfinite(gap), gap, 0.0))
    end_gap = gaps[part.last] + (high.double().log() - low.double().log())[part.rank]
    differ = torch.zeros(packing.n_sequences, dtype=torch.bool, device=b.device)
    differ[suspects] = broken | part.any(gaps.abs() > limits.gap) | ~(end_gap.abs() <= limits.gap)
    return differ


def _slack(trellis: Trellis, rows: Tensor) -> Tensor:
    """Return upper bounds of the mass that underflow can take from each state at each of m rows, ``(m, K)``.

    The mass of a row is 1. The bound is zero where the density is zero.
    """
    densities = trellis.densities.take(rows)
    return (densities.log() > -torch.inf).to(densities.dtype).mul_(LIMITS[densities.dtype].floor)


def _cumulated(packing: Packing, values: Tensor) -> Tensor:
    """Return the cumulative sum over time of packed ``values (N,)``, within each sequence, ``(N,)`` packed."""
    sums = packing.unpack(values).cumsum(0)
    before = torch.cat([sums.new_zeros(1), sums])[packing.lengths.cumsum(0) - packing.lengths]
    return packing.pack(sums) - before[packing.sequence]
