"""Stepwise EM: an M-step after each mini-batch, from running averages of statistics (Cappé and Moulines 2009).

The averages are ``S <- (1 - η) S + η s``, where ``s`` are the statistics per frame of the newest batch. The first batch
has η = 1; after t others it is ``max((t + 2)^-decay, share)``, where ``share`` is the batch's part of an epoch.
Statistics older than an epoch need not be remembered, and with one batch per epoch it is plain EM. Regressions on
inputs have no statistics of fixed size, so for them the steps of a batch are kept with its weight
(``RunningStatistics``).

A batch consists of subsequences of sequences. A subsequence's states depend on the frames before and after it, but a
chain forgets: the forward message is warmed up on ``WARM_UP`` frames before the subsequence, the backward message on as
many after it, and none of those frames count. The transition into a subsequence counts with the subsequence, so the
statistics of all subsequences sum to those of the sequence, to the accuracy of forgetting.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from seqmodels.common.distributed import shard
from seqmodels.hmm.corpus import Corpus, MiniBatch, Subsequence
from seqmodels.hmm.emissions import Emission
from seqmodels.hmm.learning.em import EMObjective, Expectations, RunningStatistics, sum_over_processes
from seqmodels.hmm.parameters import Parameters
from seqmodels.inference.chains.densities import Densities
from seqmodels.inference.chains.forward_backward import forward_backward_pass, forward_pass
from seqmodels.inference.chains.packing import Packing
from seqmodels.inference.chains.parallel_segments import NEGLIGIBLE, is_ergodic
from seqmodels.inference.chains.scratch import Scratch
from seqmodels.training import Callback, Checkpoints, FitResult, Interruption, Row, StopRule, interruptible

# The E-step on this process's share of a mini-batch; returns None if a signal came before it ended.
StepOfBatch = Callable[[Parameters, Any, Corpus, MiniBatch, Interruption | None], Expectations | None]
StepOfParts = Callable[[Parameters, Any, Corpus, list[Subsequence]], Expectations]


@dataclass(frozen=True)
class BatchUpdate:
    """The update of stepwise EM after each mini-batch: running averages of expected counts, then an M-step.

    Attributes:
        objective: the objective that M-steps increase.
        decay: exponent of the step sizes; 1 weights all batches equally, values towards 0.5 weight the newest more.
        n_frames: number of frames of all data, by weight, which determines how much priors weigh against data; None
            means the frames seen so far.
    """

    objective: EMObjective
    decay: float
    n_frames: float | None = None

    def __call__(
        self, parameters: Parameters, statistics: RunningStatistics | None, batch: Expectations, n_frames: float
    ) -> tuple[Parameters, RunningStatistics]:
        """Return the parameters after the M-step, and the running statistics updated by a mini-batch.

        Args:
            parameters: parameters before the step.
            statistics: running statistics of the batches before; None if there are none.
            batch: expected counts of the mini-batch.
            n_frames: number of frames of the mini-batch, by weight.
        """
        if statistics is None:
            statistics = RunningStatistics.first(batch, n_frames)
        else:
            min_rate = 0.0 if self.n_frames is None else n_frames / self.n_frames
            statistics = statistics.add(batch, n_frames, decay=self.decay, min_rate=min_rate)
        expectations = statistics.expectations(self.n_frames or statistics.n_frames)
        return self.objective.maximised(parameters, expectations), statistics


@dataclass(frozen=True)
class Stepwise:
    """Stepwise EM of a hidden Markov model: an M-step after each mini-batch, from running averages of statistics.

    Attributes:
        objective: the objective that M-steps increase.
        n_batches: number of mini-batches in an epoch.
        decay: exponent of the step sizes; 1 weights all batches equally, values towards 0.5 weight the newest more.
        e_step: computes the expectations of this process's share of a batch.
        cuts: True if sequences may be cut into subsequences, which requires that states depend little on frames far
            away.
    """

    objective: EMObjective
    n_batches: int
    decay: float
    e_step: StepOfBatch
    cuts: bool

    def run(
        self,
        starts: Iterable[Parameters],
        *,
        corpus: Corpus,
        stop: StopRule,
        generator: torch.Generator,
        callback: Callback,
        checkpoints: Checkpoints,
    ) -> list[FitResult[Parameters]]:
        """Fit by stepwise EM from one set of parameters after the other and return the results.

        A start is left out of the results if a signal came before its first M-step.

        Args:
            starts: the parameters to begin with.
            corpus: the training data.
            stop: when to stop, by improvement, time or ``max_iter``; ``max_iter`` counts epochs.
            generator: random generator that assigns the data to mini-batches, anew for each start.
            callback: is called with every row of the history.
            checkpoints: where to write progress, and what to resume from.
        """
        results: list[FitResult[Parameters]] = []
        for start in starts:
            state = checkpoints.state
            if state is not None:
                generator.set_state(torch.tensor(state["generator"]))
            generator_state = generator.get_state().numpy().copy()
            batches = corpus.mini_batches(self.n_batches, generator, may_cut=self._may_cut(start))
            inner = checkpoints.within({"generator": generator_state}, None if state is None else state["running"])
            result = self._epochs(start, corpus, batches, stop, callback, inner)
            results += [] if result is None else [result]
        return results

    def _epochs(
        self,
        start: Parameters,
        corpus: Corpus,
        batches: list[MiniBatch],
        stop: StopRule,
        callback: Callback,
        checkpoints: Checkpoints,
    ) -> FitResult[Parameters] | None:
        """Run epochs of M-steps until one improves too little; return None if a signal came before the first M-step.

        The history has a row for each epoch. ``log_prob`` sums each batch under the parameters before its M-step, and
        ``objective`` adds the prior of the parameters before the epoch. So an early row may be below the one before it,
        and the last M-step is in no row. A signal ends the epoch between two groups of subsequences; its row then
        covers the batches read so far.
        """
        objective, device = self.objective, start.initial.device
        epoch, rows, statistics = _Epoch(start, start), list[Row](), None
        began, converged = time.perf_counter(), False
        if checkpoints.state is not None:
            epoch = _Epoch.from_state(checkpoints.state, device)
            statistics = RunningStatistics.from_arrays(checkpoints.state["memory"], device)
            rows = list(checkpoints.state["rows"])
            began -= checkpoints.state["seconds"]
        sizes = [corpus.n_frames(batch) for batch in batches]
        update = BatchUpdate(objective, self.decay, sum(sizes))

        def state() -> dict[str, Any]:
            seconds = time.perf_counter() - began
            arrays = statistics and statistics.arrays()
            return {**epoch.state(), "memory": arrays, "rows": rows, "seconds": seconds}

        with interruptible() as interruption:
            while epoch.number < stop.max_iter and not converged:
                seconds, out_of_time = time.perf_counter() - began, False
                prior = objective.log_prior(epoch.first)
                for batch, size in zip(batches[epoch.n_taken :], sizes[epoch.n_taken :], strict=True):
                    share_of_batch = self.e_step(epoch.parameters, objective.emission, corpus, batch, interruption)
                    if share_of_batch is None:
                        break
                    # Only the clock and the rounding of process 0 decide when to stop, or one would stop without the
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
                if epoch.n_taken:
                    log_prob = epoch.log_prob * sum(sizes) / epoch.n_frames
                    row = objective.row(epoch.number, seconds, log_prob, prior, epoch.parameters.table)
                    callback(row)
                if interruption.requested:  # also by a signal that came in the callback
                    checkpoints.write(state())
                if not epoch.n_taken:
                    break
                rows.append(row)
                converged = stop.converged(rows)
                if out_of_time or interruption.requested:
                    break
                epoch = _Epoch(epoch.parameters, epoch.parameters, epoch.number + 1)
        if not rows:
            return None
        return FitResult(epoch.parameters, rows, converged, statistics, interruption.requested)

    def one_step(
        self, parameters: Parameters, statistics: RunningStatistics | None, corpus: Corpus, number: int
    ) -> tuple[Parameters, RunningStatistics, Row]:
        """Take one M-step of stepwise EM in which the whole corpus is one mini-batch, as ``partial_fit`` does.

        Args:
            parameters: parameters before the step.
            statistics: running statistics of earlier batches; None if there are none.
            corpus: the new sequences.
            number: number of the step, for the row of the history.

        Returns:
            The parameters after the step, the running statistics including the corpus, and a row of the history with
            the log-probability under the parameters before the step.
        """
        began = time.perf_counter()
        (batch,) = corpus.mini_batches(1, torch.Generator(), may_cut=self._may_cut(parameters))
        share_of_batch = self.e_step(parameters, self.objective.emission, corpus, batch, None)
        assert share_of_batch is not None, "nothing interrupts one step"
        (expectations,), _ = sum_over_processes([share_of_batch], [])
        update = BatchUpdate(self.objective, self.decay)
        updated, statistics = update(parameters, statistics, expectations, corpus.n_frames(batch))
        seconds, prior = time.perf_counter() - began, self.objective.log_prior(parameters)
        row = self.objective.row(number, seconds, expectations.log_prob, prior, updated.table)
        return updated, statistics, row

    def _may_cut(self, parameters: Parameters) -> bool:
        return self.cuts and is_ergodic(parameters.transition > NEGLIGIBLE)


@dataclass
class _Epoch:
    """The state of an epoch of stepwise EM in progress.

    Attributes:
        first: parameters at its start.
        parameters: current parameters.
        number: number of the epoch.
        n_taken: number of batches read so far.
        log_prob: log-probability of these batches, in nats.
        n_frames: number of frames of these batches, by weight.
    """

    first: Parameters
    parameters: Parameters
    number: int = 0
    n_taken: int = 0
    log_prob: float = 0.0
    n_frames: float = 0.0

    def state(self) -> dict[str, Any]:
        """Return the state as arrays and JSON values, in the form in which a checkpoint stores it."""
        first, current = (p.to(torch.device("cpu")).arrays() for p in (self.first, self.parameters))
        figures = {"number": self.number, "taken": self.n_taken, "log_prob": self.log_prob, "seen": self.n_frames}
        return {"first": first, "parameters": current, **figures}

    @classmethod
    def from_state(cls, state: Mapping[str, Any], device: torch.device) -> _Epoch:
        """Return the epoch that a checkpoint stores as ``state``, with tensors on ``device``."""
        first, current = (Parameters.from_arrays(state[name]).to(device) for name in ("first", "parameters"))
        return cls(first, current, state["number"], state["taken"], state["log_prob"], state["seen"])


# -- the E-step on subsequences ------------------------------------------------------------------------------------


@torch.no_grad()
def e_step_of_subsequences(
    parameters: Parameters, emission: Emission, corpus: Corpus, subsequences: list[Subsequence]
) -> Expectations:
    """Return the results of the E-step on parts of sequences (subsequences): log p(x) and expected counts.

    The distribution of the states at both ends of a subsequence is computed from the frames around it, which are not
    counted.

    Args:
        parameters: parameters of the hidden Markov model.
        emission: the emission distribution of the states.
        corpus: the sequences.
        subsequences: parts of them, computed together.

    Raises:
        ValueError: if a subsequence has probability zero; the message names its sequence.
    """
    packed = corpus.pack(subsequences)
    alpha_before, predicted = _alpha_before_and_predicted(parameters, emission, corpus, subsequences)
    beta = _beta_of_last(parameters, emission, corpus, subsequences)
    densities, memo = emission.evaluate(parameters.table, packed.x, packed.past, corpus.dtype, packed.scratch)
    trellis = replace(packed.trellis(parameters, densities), initial=predicted, final=beta)
    posterior = forward_backward_pass(trellis)
    _refuse_impossible(posterior.log_prob, subsequences)
    statistics = emission.statistics(parameters.table, packed.x, packed.past, posterior.gamma, memo)
    first, last = (posterior.gamma[rows].double() for rows in (packed.segments.first, packed.segments.last))
    is_first = torch.tensor([p.first == 0 for p in subsequences], device=first.device)
    is_last = torch.tensor([p.stop == p.length for p in subsequences], device=first.device)
    ratio = torch.where(predicted > 0, first / predicted, 0.0)[~is_first]
    xi = posterior.xi + parameters.transition * (alpha_before[~is_first].T @ ratio)
    # p(frames after | last state) is divided out, because it is no part of an inner subsequence's own probability.
    log_p_after = torch.where(beta > 0, last / beta, 0.0).sum(1).log()[~is_last].sum()
    log_prob = float(posterior.log_prob.sum() + log_p_after)
    initial, final = first[is_first].sum(0), last[is_last].sum(0)
    return Expectations(log_prob, initial, xi, final, tuple(statistics)).scaled(packed.weight)


def e_step_of_batch(
    parameters: Parameters,
    emission: Emission,
    corpus: Corpus,
    batch: MiniBatch,
    interruption: Interruption | None = None,
    of_parts: StepOfParts | None = None,
) -> Expectations | None:
    """Return log p(x) and the expected counts of this process's share of a mini-batch; None if a signal came.

    Args:
        parameters: parameters of the hidden Markov model.
        emission: the emission distribution of the states.
        corpus: the training sequences.
        batch: the mini-batch, groups of subsequences.
        interruption: tells whether a signal came; None means that none can come.
        of_parts: E-step on subsequences that are packed together; None means ``e_step_of_subsequences``.
    """
    of_parts = of_parts or e_step_of_subsequences
    parts = [part for group in map(shard, batch) if group for part in corpus.in_batches(group)]
    if not parts:  # the subsequences are fewer than the processes: this one adds nothing
        return of_parts(parameters, emission, corpus, batch[0][:1]).scaled(0.0)
    expectations = of_parts(parameters, emission, corpus, parts[0])
    for part in parts[1:]:
        if interruption is not None and interruption.requested:
            return None
        expectations = expectations + of_parts(parameters, emission, corpus, part)
    return expectations


def _alpha_before_and_predicted(
    parameters: Parameters, emission: Emission, corpus: Corpus, subsequences: list[Subsequence]
) -> tuple[Tensor, Tensor]:
    """Return the forward probabilities at the frame before each of n subsequences, and those predicted for its first.

    Both are ``(n, K)``: p(z_t-1 | frames before) and p(z_t | frames before). At the start of a sequence the first is
    zero and the second is ``initial``.
    """
    inner = [i for i, p in enumerate(subsequences) if p.first > 0]
    predicted = parameters.initial.repeat(len(subsequences), 1)
    alpha_before = torch.zeros_like(predicted)
    if inner:
        packed = corpus.pack([subsequences[i].warm_up_before for i in inner])
        densities, _ = emission.evaluate(parameters.table, packed.x, packed.past, corpus.dtype, packed.scratch)
        trellis = replace(packed.trellis(parameters, densities), final=torch.ones_like(predicted[:1]))
        even = torch.full_like(predicted[:1], 1 / predicted.shape[1])
        initial = [predicted[:1] if subsequences[i].warm_up_before.first == 0 else even for i in inner]
        filtered = forward_pass(replace(trellis, initial=torch.cat(initial)))
        alpha_before[inner] = filtered.alpha[packed.segments.last].double()
        predicted[inner] = alpha_before[inner] @ parameters.transition
    return alpha_before, predicted


def _beta_of_last(
    parameters: Parameters, emission: Emission, corpus: Corpus, subsequences: list[Subsequence]
) -> Tensor:
    """Return the backward probabilities at the last frame of each of n subsequences, up to a factor, ``(n, K)``.

    They are p(frames after it | state at the last frame), from a warm-up on the frames after it.
    """
    final = torch.ones_like(parameters.initial) if parameters.final is None else parameters.final
    beta = final.repeat(len(subsequences), 1)
    inner = [i for i, p in enumerate(subsequences) if p.stop < p.length]
    if inner:
        warm_ups = [subsequences[i].warm_up_after for i in inner]
        packed = corpus.pack(warm_ups)
        densities, _ = emission.evaluate(parameters.table, packed.x, packed.past, corpus.dtype, packed.scratch)
        last_beta = [final if p.stop == p.length else torch.ones_like(final) for p in warm_ups]
        known = packed.trellis(parameters, densities).densities
        beta[inner] = _beta_before(parameters.transition, known, packed.segments.packing, torch.stack(last_beta))
    return beta


def _beta_before(transition: Tensor, densities: Densities, packing: Packing, beta_after: Tensor) -> Tensor:
    """Return the backward probabilities at the frame before each of n sequences, ``(n, K)`` float64.

    They are scaled so that the largest of each sequence is 1.

    Args:
        transition: transition probabilities, ``(K, K)``.
        densities: densities of the frames.
        packing: positions of the frames of each sequence.
        beta_after: backward probabilities at the last frame of each sequence, ``(n, K)``.
    """
    assert packing.n_sequences == len(beta_after), "what comes after a subsequence is too short to be cut"
    b = densities.scaled(Scratch(), 0.0)[0]
    beta, transposed = beta_after[packing.order].to(b.dtype), transition.T.to(b.dtype).contiguous()
    for low, high in reversed(packing.blocks):
        unscaled = (b[low:high] * beta[: high - low]) @ transposed
        beta[: high - low] = unscaled / unscaled.amax(1, keepdim=True).clamp(min=torch.finfo(b.dtype).tiny)
    return beta[packing.rank].double()


def _refuse_impossible(log_prob: Tensor, subsequences: list[Subsequence]) -> None:
    impossible = (log_prob == -torch.inf).nonzero()[:, 0].tolist()
    if impossible:
        part = subsequences[impossible[0]]
        raise ValueError(
            f"sequence {part.sequence} has probability zero under this HMM between steps {part.first} and {part.stop}; "
            "leave it out, or keep emissions and transitions from being exactly zero (pseudocount, topology, states)"
        )
