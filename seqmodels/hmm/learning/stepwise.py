"""EM in mini-batches: an M-step after each batch, from statistics averaged over batches (Cappé and Moulines 2009).

``S <- (1 - η) S + η s``, with ``s`` the statistics a frame of the newest batch. The first batch has η = 1; after t
others it is ``max((t + 2)^-decay, share)``, where ``share`` is the batch's part of an epoch: what is older than an
epoch need not be remembered, and one batch an epoch is plain EM.

A batch is made of subsequences of sequences. A subsequence's states depend on what comes before and after it, but a
chain forgets: the forward message is warmed up on ``WARM_UP`` frames before the subsequence, the backward message on as
many after it, and none of those frames count. The transition into a subsequence counts with the subsequence, so the
statistics of all subsequences sum to those of the sequence, to the accuracy of forgetting.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from seqmodels.distributed import share
from seqmodels.hmm.corpus import Corpus, MiniBatch, Subsequence
from seqmodels.hmm.emissions import Emission
from seqmodels.hmm.inference.densities import Densities
from seqmodels.hmm.inference.forward_backward import forward_backward_pass, forward_pass
from seqmodels.hmm.inference.packing import Packing
from seqmodels.hmm.inference.scratch import Scratch
from seqmodels.hmm.learning.em import (
    Callback,
    Expectations,
    FitResult,
    History,
    MAPObjective,
    RunningStatistics,
    StopRule,
    m_step,
    sum_over_processes,
)
from seqmodels.hmm.parameters import Parameters
from seqmodels.hmm.posterior import batch_trellis
from seqmodels.training import Checkpoints, Interruption, interruptible


@dataclass(frozen=True)
class BatchUpdate:
    """The M-step after a batch.

    Attributes:
        objective: what is maximised.
        decay: κ; 1 averages all batches alike, towards 0.5 the newest count more.
        n_frames: by weight, of all data; None: of what was seen so far. Priors weigh against that many.
    """

    objective: MAPObjective
    decay: float
    n_frames: float | None = None

    def __call__(
        self, parameters: Parameters, statistics: RunningStatistics | None, batch: Expectations, n_frames: float
    ) -> tuple[Parameters, RunningStatistics]:
        """The parameters after it, and the running statistics with the ``batch`` of ``n_frames``."""
        if statistics is None:
            statistics = RunningStatistics.first(batch, n_frames)
        else:
            min_rate = 0.0 if self.n_frames is None else n_frames / self.n_frames
            statistics = statistics.add(batch, n_frames, decay=self.decay, min_rate=min_rate)
        expectations = statistics.mean.scaled(self.n_frames or statistics.n_frames)
        return m_step(parameters, expectations, self.objective), statistics


def stepwise_em(
    start: Parameters,
    update: BatchUpdate,
    corpus: Corpus,
    batches: list[MiniBatch],
    stop: StopRule,
    *,
    callback: Callback,
    checkpoints: Checkpoints | None = None,
) -> FitResult | None:
    """Epochs of M-steps until one improves too little; ``stop`` counts epochs. None: a signal came before the first
    M-step.

    The history has a row an epoch: ``log_prob`` is that of each batch under the parameters before its M-step,
    ``objective`` adds the prior of those before the epoch. An early row may be below the one before it; the last M-step
    is in none. A signal ends it between two groups of subsequences; the last row is then of the batches that it had.
    ``stop`` counts epochs.
    """
    checkpoints = checkpoints or Checkpoints()
    objective, device = update.objective, start.initial.device
    epoch, history, statistics = _Epoch(start, start), History(), None
    began, converged = time.perf_counter(), False
    if checkpoints.state is not None:
        epoch = _Epoch.of(checkpoints.state, device)
        statistics = RunningStatistics.of(checkpoints.state["memory"], device)
        history = History(list(checkpoints.state["rows"]))
        began -= checkpoints.state["seconds"]
    sizes = [corpus.n_frames(batch) for batch in batches]

    def state() -> dict[str, Any]:
        seconds = time.perf_counter() - began
        arrays = statistics and statistics.arrays()
        return {**epoch.state(), "memory": arrays, "rows": history.rows, "seconds": seconds}

    with interruptible() as interruption:
        while epoch.number < stop.max_iter and not converged:
            seconds, out_of_time = time.perf_counter() - began, False
            prior = objective.log_prior(epoch.first)
            for batch, size in zip(batches[epoch.n_taken :], sizes[epoch.n_taken :], strict=True):
                share_of_batch = expect_batch(epoch.parameters, objective.emission, corpus, batch, interruption)
                if share_of_batch is None:
                    break
                # When to stop hangs on the clock and the rounding of process 0 alone, or one would stop without the
                # others.
                numbers = [time.perf_counter() - began, prior]
                (expectations,), (seconds, prior) = sum_over_processes([share_of_batch], numbers)
                epoch.parameters, statistics = update(epoch.parameters, statistics, expectations, size)
                epoch.log_prob += expectations.log_prob
                epoch.n_frames += size
                epoch.n_taken += 1
                interruption.hold()
                out_of_time = stop.out_of_time(seconds)
                if out_of_time or interruption.requested:
                    break
                if checkpoints.due:
                    checkpoints.write(state())
            if interruption.requested:
                checkpoints.write(state())
            if not epoch.n_taken:
                break
            log_prob = epoch.log_prob * sum(sizes) / epoch.n_frames
            history.add(objective.row(epoch.number, seconds, log_prob, prior, epoch.parameters.table))
            callback(history.rows[-1])
            converged = stop.converged(history)
            if out_of_time or interruption.requested:
                break
            epoch = _Epoch(epoch.parameters, epoch.parameters, epoch.number + 1)
    if not history.rows:
        return None
    return FitResult(epoch.parameters, history.frame(), converged, statistics, interruption.requested)


@dataclass
class _Epoch:
    """An epoch so far: its first parameters and those now, and of the batches taken the number, the log-probability and
    the frames.
    """

    first: Parameters
    parameters: Parameters
    number: int = 0
    n_taken: int = 0
    log_prob: float = 0.0
    n_frames: float = 0.0

    def state(self) -> dict[str, Any]:
        """Arrays and JSON values for a checkpoint."""
        first, current = (p.to(torch.device("cpu")).arrays() for p in (self.first, self.parameters))
        figures = {"number": self.number, "taken": self.n_taken, "log_prob": self.log_prob, "seen": self.n_frames}
        return {"first": first, "parameters": current, **figures}

    @classmethod
    def of(cls, state: Mapping[str, Any], device: torch.device) -> _Epoch:
        """The inverse of ``state``."""
        first, current = (Parameters.of(state[name]).to(device) for name in ("first", "parameters"))
        return cls(first, current, state["number"], state["taken"], state["log_prob"], state["seen"])


# -- the E-step on subsequences ------------------------------------------------------------------------------------


def expect_batch(
    parameters: Parameters,
    emission: Emission,
    corpus: Corpus,
    batch: MiniBatch,
    interruption: Interruption | None = None,
) -> Expectations | None:
    """The E-step on what this process has of a batch, a group of subsequences at a time; None if a signal came between
    two groups.
    """
    groups = [group for group in map(share, batch) if group]
    if not groups:  # the subsequences are fewer than the processes: this one adds nothing
        return expect_pieces(parameters, emission, corpus, batch[0][:1]).scaled(0.0)
    total = expect_pieces(parameters, emission, corpus, groups[0])
    for group in groups[1:]:
        if interruption is not None and interruption.requested:
            return None
        total = total + expect_pieces(parameters, emission, corpus, group)
    return total


@torch.no_grad()
def expect_pieces(
    parameters: Parameters, emission: Emission, corpus: Corpus, subsequences: list[Subsequence]
) -> Expectations:
    """The E-step on these subsequences; raises ``ValueError`` naming a sequence that is impossible."""
    packed = corpus.pack(subsequences)
    beliefs, starts = _forward_messages(parameters, emission, corpus, subsequences)
    ends = _backward_messages(parameters, emission, corpus, subsequences)
    densities, memo = emission.evaluate(parameters.table, packed.x, packed.past, corpus.dtype, packed.scratch)
    trellis = replace(batch_trellis(parameters, densities, packed), initial=starts, final=ends)
    posterior = forward_backward_pass(trellis)
    _refuse_impossible(posterior.log_prob, subsequences)
    statistics = emission.statistics(parameters.table, packed.x, packed.past, posterior.gamma, memo)
    first, last = (posterior.gamma[rows].double() for rows in (packed.segments.first, packed.segments.last))
    is_first = torch.tensor([p.first == 0 for p in subsequences], device=first.device)
    is_last = torch.tensor([p.last == p.length for p in subsequences], device=first.device)
    ratio = torch.where(starts > 0, first / starts, 0.0)[~is_first]
    xi = posterior.xi + parameters.transition * (beliefs[~is_first].T @ ratio)
    # What follows an inner subsequence is no part of its own probability: p(after | last state) is taken out again.
    after = torch.where(ends > 0, last / ends, 0.0).sum(1).log()[~is_last].sum()
    log_prob = float(posterior.log_prob.sum() + after)
    initial, final = first[is_first].sum(0), last[is_last].sum(0)
    return Expectations(log_prob, initial, xi, final, tuple(statistics)).scaled(packed.weight)


def _forward_messages(
    parameters: Parameters, emission: Emission, corpus: Corpus, subsequences: list[Subsequence]
) -> tuple[Tensor, Tensor]:
    """``(n, K)`` the belief before each subsequence, and what it predicts for the first frame: ``initial`` at a
    sequence's start.
    """
    inner = [i for i, p in enumerate(subsequences) if p.first > 0]
    starts = parameters.initial.repeat(len(subsequences), 1)
    beliefs = torch.zeros_like(starts)
    if inner:
        packed = corpus.pack([subsequences[i].before for i in inner])
        densities, _ = emission.evaluate(parameters.table, packed.x, packed.past, corpus.dtype, packed.scratch)
        trellis = replace(batch_trellis(parameters, densities, packed), final=torch.ones_like(starts[:1]))
        even = torch.full_like(starts[:1], 1 / starts.shape[1])
        initial = [starts[:1] if subsequences[i].before.first == 0 else even for i in inner]
        ran = forward_pass(replace(trellis, initial=torch.cat(initial)))
        beliefs[inner] = ran.alpha[packed.segments.last].double()
        starts[inner] = beliefs[inner] @ parameters.transition
    return beliefs, starts


def _backward_messages(
    parameters: Parameters, emission: Emission, corpus: Corpus, subsequences: list[Subsequence]
) -> Tensor:
    """``(n, K)`` proportional to p(what comes after the subsequence | its last state)."""
    final = torch.ones_like(parameters.initial) if parameters.final is None else parameters.final
    ends = final.repeat(len(subsequences), 1)
    inner = [i for i, p in enumerate(subsequences) if p.last < p.length]
    if inner:
        after = [subsequences[i].after for i in inner]
        packed = corpus.pack(after)
        densities, _ = emission.evaluate(parameters.table, packed.x, packed.past, corpus.dtype, packed.scratch)
        final_messages = [final if p.last == p.length else torch.ones_like(final) for p in after]
        known = batch_trellis(parameters, densities, packed).densities
        ends[inner] = _messages_before(
            parameters.transition, known, packed.segments.packing, torch.stack(final_messages)
        )
    return ends


def _messages_before(transition: Tensor, densities: Densities, packing: Packing, beyond: Tensor) -> Tensor:
    """``(n, K)``: backward messages into the frame before each sequence's first, the largest of each 1; float64."""
    assert packing.n_sequences == len(beyond), "what comes after a subsequence is too short to be cut"
    b = densities.scaled(Scratch())[0]
    beta, step = beyond[packing.order].to(b.dtype), transition.T.to(b.dtype).contiguous()
    for low, high in reversed(packing.blocks):
        unscaled = (b[low:high] * beta[: high - low]) @ step
        beta[: high - low] = unscaled / unscaled.amax(1, keepdim=True).clamp(min=torch.finfo(b.dtype).tiny)
    return beta[packing.rank].double()


def _refuse_impossible(log_prob: Tensor, subsequences: list[Subsequence]) -> None:
    impossible = (log_prob == -torch.inf).nonzero()[:, 0].tolist()
    if impossible:
        part = subsequences[impossible[0]]
        raise ValueError(
            f"sequence {part.sequence} has probability zero under this HMM between steps {part.first} and {part.last}; "
            "leave it out, or keep emissions and transitions from being exactly zero (pseudocount, topology, states)"
        )
