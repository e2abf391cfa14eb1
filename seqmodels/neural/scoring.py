"""Log-probabilities of encoded steps, for one padded batch in training and scoring, and for many sequences.

Sequences are scored whole, or by windows if a network's memory is limited.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from seqmodels.common import distributed
from seqmodels.encodings.examples import no_garbage_collection
from seqmodels.encodings.on_disk import OnDisk
from seqmodels.neural.batches import PaddedBatch, Row, StepRange, Windowing, assemble, cut
from seqmodels.neural.embedding_and_head import SequenceModule, split_end
from seqmodels.neural.evaluation_copy import evaluation_copy
from seqmodels.neural.network import State
from seqmodels.neural.ops.cross_entropy import linear_log_prob
from seqmodels.neural.ops.precision import autocast
from seqmodels.neural.ops.tied_linear import TiedLinear
from seqmodels.observations import Categorical, Observation
from seqmodels.sequences.mapped import Steps, StepsSum, steps_arrays, total, write_steps

LARGE_VOCABULARY = 1_024  # symbols; from so many on, output layer and softmax are computed together, in blocks
MAX_STEPS_PER_BATCH = 16_384  # limits memory, changes no result
STEPS_IN_CACHE = 2_048  # per thread; so many, if read at once, keep their arrays within a core's caches
STEPS_OF_RECURRENT = 4_096  # on a CPU, where more steps at once take longer
MAX_WINDOWS = 1 << 14  # windows of a row on disk that are in memory at once
MAX_STEPS_PER_CALL = 2_048  # steps of one sequence; the state is carried on


# -- one batch -------------------------------------------------------------------------------------------------


def batch_log_prob(
    module: SequenceModule[State],
    observation: Observation,
    batch: PaddedBatch,
    state: State,
    precision: torch.dtype | None = None,
) -> tuple[Tensor, Tensor, State]:
    """Compute the log-probability of each target of a padded batch.

    Args:
        module: the network with embedding and head (output layer).
        observation: the observation whose parameters are the module's outputs.
        batch: B rows of T steps.
        state: the network's state before the batch.
        precision: dtype of the network under autocast (training only); densities are computed in at least float32.

    Returns:
        log_prob: log-probability of each target, ``(B, T)`` nats.
        output_parameters: P parameters of the observation, ``(B, T, P)``; with a large alphabet
            (``has_large_vocabulary``) the hidden states, ``(B, T, d_model)``.
        state: the network's state after the last step.
    """
    predict = _predict_in_blocks if has_large_vocabulary(module, observation) else _predict
    log_prob, output_parameters, end, state = predict(module, observation, batch, state, precision)
    if end is not None:
        # log sigmoid of -inf has a NaN gradient, so the impossible end is masked before and after.
        end_logit = torch.where(batch.may_end, end, 0.0)
        log_continue = torch.where(batch.may_end, F.logsigmoid(-end_logit), 0.0)
        log_prob = torch.where(batch.is_end, F.logsigmoid(end_logit), log_prob + log_continue)
    return log_prob, output_parameters, state


# The log-probability of targets other than ends, output parameters, the end's log-odds, and the network's state.
Predicted = tuple[Tensor, Tensor, Tensor | None, State]


def _predict(
    module: SequenceModule[State],
    observation: Observation,
    batch: PaddedBatch,
    state: State,
    precision: torch.dtype | None,
) -> Predicted[State]:
    with autocast(batch.inputs.device, precision):
        outputs, state = module(batch.inputs, batch.is_start, batch.is_after_source, state, batch.exogenous)
    outputs = outputs.to(torch.promote_types(outputs.dtype, torch.float32))
    output_parameters, end = split_end(outputs, batch.may_end, module.spec.has_end)
    log_prob = observation.bound(module.shared).log_prob(output_parameters, batch.targets, batch.past)
    return log_prob, output_parameters, end, state


def _predict_in_blocks(
    module: SequenceModule[State],
    observation: Observation,
    batch: PaddedBatch,
    state: State,
    precision: torch.dtype | None,
) -> Predicted[State]:
    """Compute log-probabilities of the symbols of a batch without keeping the logits of a large alphabet.

    Returns:
        Log-probability of each target other than ends, ``(B, T)``; hidden states, ``(B, T, d_model)``; log-odds of the
        end, ``(B, T)``, or None; and the network's state after the batch.
    """
    size, head, end = module.spec.size, module.head, None
    symbol_weight: Tensor
    end_weight: Tensor | None
    if isinstance(head, TiedLinear):
        symbol_weight, end_weight = head.shared, head.extra
    elif module.spec.has_end:
        symbol_weight, end_weight = head.weight.split((size, len(head.weight) - size))
    else:
        symbol_weight, end_weight = head.weight, None  # the gradient of a slice is copied
    with autocast(batch.inputs.device, precision):
        hidden, state = module.hidden(batch.inputs, batch.is_start, batch.is_after_source, state, batch.exogenous)
        log_prob = linear_log_prob(hidden, symbol_weight, head.bias[:size], batch.targets)
        if module.spec.has_end and end_weight is not None:
            logit = F.linear(hidden, end_weight, head.bias[size:])[..., 0]
            end = torch.where(batch.may_end, logit.to(log_prob.dtype), -torch.inf)
    return log_prob, hidden, end, state


def has_large_vocabulary(module: SequenceModule[State], observation: Observation) -> bool:
    """Return True for an alphabet of 1024 symbols or more, whose logits at all steps should not be kept in memory."""
    return isinstance(observation, Categorical) and module.spec.size >= LARGE_VOCABULARY


# -- many sequences --------------------------------------------------------------------------------------------


@torch.no_grad()
def log_prob_steps(
    module: SequenceModule[State],
    observation: Observation,
    rows: list[Row],
    windowing: Windowing,
) -> list[np.ndarray]:
    """Return, for each row, the log-probabilities of its S scored steps in nats, ``(S,)`` float64.

    Args:
        module: the network with embedding and head, which is not changed; evaluation mode saves a copy.
        observation: the observation whose parameters are the module's outputs.
        rows: encoded sequences.
        windowing: the windows in which long rows are read.
    """
    from_disk = iter(steps_arrays([row.n_steps for row in rows if _is_on_disk(row)]))
    results = [next(from_disk) if _is_on_disk(row) else np.zeros(row.n_steps) for row in rows]
    _write_log_prob_steps(module, observation, rows, windowing, results, shares=False)
    return [log_prob[row.first :] for row, log_prob in zip(rows, results, strict=True)]


@torch.no_grad()
def log_prob_sums(
    module: SequenceModule[State],
    observation: Observation,
    rows: list[Row],
    windowing: Windowing,
    *,
    shares: bool = False,
) -> np.ndarray:
    """Return the log-probability of each of n rows in nats, ``(n,)``: the sum over its scored steps after its past.

    The past is steps that are only context. The log-probabilities of single steps of rows on disk are not kept.

    Args:
        module: the network with embedding and head, which is not changed; evaluation mode saves a copy.
        observation: the observation whose parameters are the module's outputs.
        rows: encoded sequences.
        windowing: the windows in which long rows are read.
        shares: True if each of several processes scores a part of every batch of windows, and has 0 for the other
            parts.
    """
    results = [StepsSum(first=row.first + row.n_past) if _is_on_disk(row) else np.zeros(row.n_steps) for row in rows]
    _write_log_prob_steps(module, observation, rows, windowing, results, shares=shares)
    return np.array(
        [
            total(log_prob[row.first + row.n_past :] if isinstance(log_prob, np.ndarray) else log_prob)
            for row, log_prob in zip(rows, results, strict=True)
        ]
    )


def _write_log_prob_steps(
    module: SequenceModule[State],
    observation: Observation,
    rows: list[Row],
    windowing: Windowing,
    results: Sequence[Steps],
    *,
    shares: bool,
) -> None:
    if module.training:
        parameter = next(module.parameters())
        module = evaluation_copy(module, parameter.device, parameter.dtype)
    n_steps = _steps_per_batch(module)
    if shares:  # machines may have different numbers of cores
        n_steps = int(distributed.of_rank_zero(n_steps))
    for every in _batches_of_windows(rows, windowing, n_steps):
        batch = (distributed.shard(every) or [(every[0][0], every[0][0].end)]) if shares else every
        for begin, scored in _score(module, observation, rows, [steps for steps, _ in batch]):
            for (steps, scored_from), log_prob in zip(batch, scored, strict=True):
                first = max(scored_from, steps.begin + begin)
                write_steps(results[steps.row], first, log_prob[first - steps.begin - begin :])


def _is_on_disk(row: Row) -> bool:
    return isinstance(row.values, OnDisk)


def _steps_per_batch(module: SequenceModule[Any]) -> int:
    if module.head.bias.device.type != "cpu":
        return MAX_STEPS_PER_BATCH
    at_once = module.network.reads_at_once
    return min(STEPS_IN_CACHE * torch.get_num_threads() if at_once else STEPS_OF_RECURRENT, MAX_STEPS_PER_BATCH)


def _batches_of_windows(rows: list[Row], windowing: Windowing, n_steps: int) -> Iterator[list[tuple[StepRange, int]]]:
    """Yield batches of windows, each with the step of its row from which it is scored; earlier steps are only read.

    A batch has one window, or at most ``n_steps`` steps with padding. Windows of similar length come together. The
    windows of a row on disk form batches of their own, in their order.
    """
    in_memory = [i for i, row in enumerate(rows) if not _is_on_disk(row)]
    lengths = [rows[i].n_steps for i in in_memory]
    windows_of = {n: windowing.windows(n) for n in set(lengths)}
    with no_garbage_collection():
        every = [(StepRange(i, b, e), s) for i, n in zip(in_memory, lengths, strict=True) for b, e, s in windows_of[n]]
    order = np.argsort([steps.end - steps.begin for steps, _ in every], kind="stable")
    yield from _in_batches([every[j] for j in order.tolist()], n_steps)
    for i, row in enumerate(rows):
        if _is_on_disk(row):
            windows = ((StepRange(i, b, e), s) for b, e, s in windowing.each_window(row.n_steps))
            while some := list(islice(windows, MAX_WINDOWS)):
                yield from _in_batches(some, n_steps)


def _in_batches(windows: list[tuple[StepRange, int]], n_steps: int) -> Iterator[list[tuple[StepRange, int]]]:
    at, lengths = 0, [steps.end - steps.begin for steps, _ in windows]
    while at < len(windows):
        size = 1
        limit = max(n_steps, lengths[at])
        while at + size < len(windows) and (size + 1) * lengths[at + size] <= limit:
            size += 1
        yield windows[at : at + size]
        at += size


def _score(
    module: SequenceModule[State], observation: Observation, rows: list[Row], ranges: list[StepRange]
) -> Iterator[tuple[int, list[np.ndarray]]]:
    """Score windows (``ranges``) by calls of the module that read at most 2048 steps of each window at once.

    Yield, for each call, the index in the windows of its first step, and for each window the log-probabilities in nats
    of the steps that the call read.
    """
    parameter = next(module.parameters())
    state: State | None = None
    for k in range(0, max(map(len, ranges)), MAX_STEPS_PER_CALL):
        call_ranges = [cut(steps, k, MAX_STEPS_PER_CALL) for steps in ranges]
        batch = assemble(rows, call_ranges, observation.n_past, parameter.device, parameter.dtype)
        state_before = module.start(len(ranges), batch.source, batch.source_mask) if state is None else state
        log_prob, _, state_after = batch_log_prob(module, observation, batch, state_before)
        state = state_after
        of_call = log_prob.double().cpu().numpy()
        yield k, [row[: len(steps)] for row, steps in zip(of_call, call_ranges, strict=True)]


# -- numbers of each step ----------------------------------------------------------------------------------------


@torch.no_grad()
def event_log_probs(
    module: SequenceModule[State], observation: Observation, rows: list[Row], windowing: Windowing
) -> list[np.ndarray]:
    """Return, for each row, the log-probability of every symbol, and of the end, at each of S scored steps, in nats.

    Args:
        module: the network with embedding and head, in evaluation mode.
        observation: the observation whose parameters are the module's outputs, which emits symbols.
        rows: encoded sequences.
        windowing: the windows in which long rows are read.

    Returns:
        Arrays ``(S, V)`` for V symbols, or ``(S, V + 1)`` with the end last if the model predicts ends, in the module's
        precision.
    """
    width = module.spec.size + module.spec.has_end
    return _of_each_step(module, observation, rows, windowing, width, batch_event_log_probs)


@torch.no_grad()
def output_parameters(
    module: SequenceModule[State], observation: Observation, rows: list[Row], windowing: Windowing
) -> list[np.ndarray]:
    """Return, for each row, the P parameters of the density of each of its S scored steps, ``(S, P)``.

    Args:
        module: the network with embedding and head, in evaluation mode.
        observation: the observation whose parameters are the module's outputs.
        rows: encoded sequences.
        windowing: the windows in which long rows are read.
    """

    def of_batch(
        module: SequenceModule[State], observation: Observation, batch: PaddedBatch, state: State
    ) -> tuple[Tensor, State]:
        _, of_steps, _, state = _predict(module, observation, batch, state, None)
        return of_steps, state

    width = observation.n_output_parameters(module.spec.size)
    return _of_each_step(module, observation, rows, windowing, width, of_batch)


# A function of a module, an observation, a batch and a state that returns W numbers of each step of the batch,
# ``(B, T, W)``, and the state after it.
OfBatch = Callable[[Any, Observation, PaddedBatch, Any], tuple[Tensor, Any]]


def _of_each_step(
    module: SequenceModule[State],
    observation: Observation,
    rows: list[Row],
    windowing: Windowing,
    width: int,
    of_batch: OfBatch,
) -> list[np.ndarray]:
    """Return ``width`` numbers of each of the S scored steps of each row, ``(S, width)``, in the module's precision."""
    parameter = next(module.parameters())
    dtype = np.float64 if parameter.dtype == torch.float64 else np.float32
    results = [np.zeros((row.n_steps, width), dtype) for row in rows]
    for batch in _batches_of_windows(rows, windowing, _steps_per_batch(module)):
        scored = _of_ranges(module, observation, rows, [steps for steps, _ in batch], of_batch)
        for row, (steps, scored_from) in enumerate(batch):
            results[steps.row][scored_from : steps.end] = scored[row, scored_from - steps.begin : len(steps)]
    return [each[row.first :] for row, each in zip(rows, results, strict=True)]


def _of_ranges(
    module: SequenceModule[State],
    observation: Observation,
    rows: list[Row],
    ranges: list[StepRange],
    of_batch: OfBatch,
) -> np.ndarray:
    """Return the numbers of ``of_batch`` at T steps of B windows (``ranges``), ``(B, T, W)``."""
    parameter = next(module.parameters())
    state: State | None = None
    parts = []
    for k in range(0, max(map(len, ranges)), MAX_STEPS_PER_CALL):
        call_ranges = [cut(steps, k, MAX_STEPS_PER_CALL) for steps in ranges]
        batch = assemble(rows, call_ranges, observation.n_past, parameter.device, parameter.dtype)
        before = module.start(len(ranges), batch.source, batch.source_mask) if state is None else state
        numbers, state = of_batch(module, observation, batch, before)
        parts.append(numbers.cpu().numpy())
    return np.concatenate(parts, axis=1)


def batch_event_log_probs(
    module: SequenceModule[State], observation: Observation, batch: PaddedBatch, state: State
) -> tuple[Tensor, State]:
    """Return the log-probabilities of all V symbols at each step of a batch, in nats, and the state after the batch.

    Args:
        module: the network with embedding and head (output layer).
        observation: the observation whose parameters are the module's outputs.
        batch: B rows of T steps.
        state: the network's state before the batch.

    Returns:
        Log-probabilities, ``(B, T, V)``, or ``(B, T, V + 1)`` with the end last if the model predicts ends; and the
        network's state after the batch.
    """
    _, output_parameters, end, state = _predict(module, observation, batch, state, None)
    log_p = observation.bound(module.shared).log_probs(output_parameters)
    if end is not None:
        log_p = torch.cat([log_p + F.logsigmoid(-end).unsqueeze(-1), F.logsigmoid(end).unsqueeze(-1)], -1)
    return log_p, state
