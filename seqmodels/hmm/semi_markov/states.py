"""Questions to a fitted HSMM about the states of sequences: what an algorithm finds for each sequence of a batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from seqmodels.hmm.corpus import PackedBatch
from seqmodels.hmm.semi_markov.expectations import refuse_impossible
from seqmodels.hmm.state_forecast import StepsAhead
from seqmodels.inference.chains.log_space import LogProduct
from seqmodels.inference.chains.segment_paths import (
    best_segment_alignments,
    k_best_segments,
    log_prob_of_segment_paths,
    log_steps_left,
    of_runs,
)
from seqmodels.inference.chains.semi_markov import (
    SemiMarkovTrellis,
    best_segments,
    forward_backward_pass,
    forward_pass,
    sample_paths,
)

Result = TypeVar("Result")
StateAlgorithm = Callable[[PackedBatch, SemiMarkovTrellis], list[Result]]  # a result for each sequence


def batch_paths(batch: PackedBatch, trellis: SemiMarkovTrellis) -> list[Tensor]:
    """The best path of each, ``(T,)``; ``ValueError`` for one of probability zero, as also below."""
    paths, log_prob = best_segments(of_runs(trellis))
    refuse_impossible(batch, log_prob)
    return [torch.from_numpy(path) for path in paths]


def batch_best_paths(batch: PackedBatch, trellis: SemiMarkovTrellis, k: int) -> list[tuple[Tensor, Tensor]]:
    """The ``k`` best paths of each, ``(m, T)``, and log p(path, x), ``(m,)`` nats of encoded data."""
    best = k_best_segments(trellis, k)
    refuse_impossible(batch, torch.tensor([0.0 if len(paths) else -torch.inf for paths, _ in best]))
    return best


def batch_log_prob_of_paths(batch: PackedBatch, trellis: SemiMarkovTrellis, paths: Sequence[Tensor]) -> list[Tensor]:
    """log p(path, x) of each, float64 nats; ``paths``, ``(T,)`` states, of all sequences of the corpus."""
    return list(log_prob_of_segment_paths(trellis, [paths[i] for i in batch.indices]))


def batch_alignments(
    batch: PackedBatch, trellis: SemiMarkovTrellis, groups: Sequence[list[list[int]]]
) -> list[tuple[Tensor, Tensor, float]]:
    """Of each the label of each step, ``(T,)``, its state, and log p(path, x) of encoded data; ``groups`` of all
    sequences of the corpus.

    Raises:
        ValueError: a sequence that no such path explains, named.
    """
    positions, states, log_prob = best_segment_alignments(trellis, [groups[i] for i in batch.indices])
    impossible = batch.impossible(log_prob)
    if impossible:
        raise ValueError(
            f"no path of sequence {min(impossible)} goes through its labels in their order: a transition, a duration "
            "or an emission that it would need has probability zero; check the labels, transition_ and durations_ (a "
            "label takes a segment at least, which lasts up to max_duration steps)"
        )
    return list(zip(positions, states, log_prob.tolist(), strict=True))


def batch_posterior(batch: PackedBatch, trellis: SemiMarkovTrellis) -> list[Tensor]:
    """p(z_t | x_1 .. x_T) of each, ``(T, K)``."""
    posterior = forward_backward_pass(trellis)
    refuse_impossible(batch, posterior.log_prob)
    return trellis.packing.split(posterior.gamma)


def batch_beliefs(batch: PackedBatch, trellis: SemiMarkovTrellis) -> list[Tensor]:
    """p(z_t | x_<=t) of each, ``(T, K)``; zeros once it is impossible."""
    return trellis.packing.split(forward_pass(trellis).log_beliefs.exp())


def batch_draws(batch: PackedBatch, trellis: SemiMarkovTrellis, n: int, generator: torch.Generator) -> list[Tensor]:
    """``n`` paths of each drawn from p(z | x), ``(T, n)``."""
    paths, log_prob = sample_paths(trellis, n, generator)
    refuse_impossible(batch, log_prob)
    return [torch.from_numpy(each.T) for each in paths]


def batch_steps_left(batch: PackedBatch, trellis: SemiMarkovTrellis) -> list[Tensor]:
    """log p(z_T, how many steps of its segment are left | x) of each, ``(K, D)``."""
    results = log_steps_left(trellis, forward_pass(trellis))
    refuse_impossible(batch, torch.stack([each.max() for each in results]))
    return results


def log_states_ahead(log_left: Tensor, transition: Tensor, log_pmf: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """``(k, K)``: log p(there are h more steps, the last in state j | x), and ``(K, D)`` of h = 1 by steps left.

    Args:
        log_left: ``(K, D)`` of the last step that was seen: of its state and the steps left of its segment, itself the
            first.
        transition: ``(K, K)`` between segments.
        log_pmf: ``(K, D)`` of durations.
        k: steps ahead.
    """
    follow, joint, rows = LogProduct(transition), log_left, []
    first = joint
    for h in range(k):
        going_on = torch.cat([joint[:, 1:], torch.full_like(joint[:, :1], -torch.inf)], 1)
        joint = torch.logaddexp(going_on, follow(joint[None, :, 0]).T + log_pmf)
        first = joint if h == 0 else first
        rows.append(torch.logsumexp(joint, 1))
    return torch.stack(rows), first


def segments_ahead(log_first: Tensor, transition: Tensor, log_pmf: Tensor) -> StepsAhead:
    """The chain of states and steps left, from ``log_first (K, D)`` one step ahead; as of ``log_states_ahead``."""
    (k, longest), pmf = log_pmf.shape, log_pmf.exp()

    def advance(values: Tensor) -> Tensor:
        at = values.reshape(k, longest, -1)
        later = pmf.unsqueeze(-1) * (transition.T @ at[:, 0]).unsqueeze(1)
        later[:, :-1] += at[:, 1:]
        return later.reshape(values.shape)

    first = (log_first - torch.logsumexp(log_first.flatten(), 0)).exp()
    return StepsAhead(first.flatten(), torch.arange(k).repeat_interleave(longest), advance)
