"""Scores ``log p(x_t | x_<t)`` of many sequences, in batches or, for a sequence longer than a batch, in parts.

A part starts from the prediction of the part before. That prediction must be precise in every state, because a state of
tiny probability may explain the next frames best. It is certain if every frame gives every state more probability than
rounding can lose; otherwise a warm-up from a uniform start checks it. If neither proves it, the sequence is scored
again in logarithms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from seqmodels.encodings.on_disk import OnDisk
from seqmodels.hmm.corpus import Corpus, PackedBatch, cut
from seqmodels.hmm.emissions import Emission
from seqmodels.hmm.parameters import Parameters
from seqmodels.inference.chains import scaled
from seqmodels.inference.chains.forward_backward import forward_pass
from seqmodels.inference.chains.log_space import LogProduct, log_alpha_and_steps
from seqmodels.inference.chains.parallel_segments import NEGLIGIBLE, is_ergodic
from seqmodels.inference.chains.trellis import Filtered, Trellis
from seqmodels.sequences.mapped import Steps, StepsSum, steps_arrays, total, write_steps

LOG_SHARE = 4  # a part scored in logarithms, which are float64, has so many times fewer frames than a batch
STEPS_AT_ONCE = 1 << 20  # log-probabilities of -inf that are written at once
NEAR_CERTAIN = 0.999  # from this probability of an end on, that of continuing is summed directly, since 1 - end cancels
StepsT = TypeVar("StepsT", bound=Steps)


def score_steps(
    parameters: Parameters, emission: Emission, corpus: Corpus, sources: Sequence[np.ndarray | None]
) -> list[np.ndarray]:
    """Return the log-probability of each step of each sequence given the steps before it, log p(x_t | x_<t).

    Args:
        parameters: parameters of an HMM and its emissions.
        emission: the emission of its states.
        corpus: encoded sequences, each with its source (earlier steps that it is conditioned on) before it.
        sources: the source of each sequence, or None where it has none.

    Returns:
        For each sequence nats in float64, ``(T,)``, without the steps of its source. If ends are events, the
        log-probability of the end comes last, ``(T + 1,)``.
    """
    n_steps = [len(x) + (parameters.final is not None) for x in corpus.sequences]
    if corpus.is_on_disk:
        of_sources = [0 if source is None else len(source) for source in sources]
        results = steps_arrays([n - m for n, m in zip(n_steps, of_sources, strict=True)])
        for i, steps in _scored(parameters, emission, corpus, sources, lambda i: results[i]):
            if steps is not results[i]:
                write_steps(results[i], 0, steps)
        return results
    results = [np.empty(0)] * len(sources)
    for i, steps in _scored(parameters, emission, corpus, sources, lambda i: np.empty(n_steps[i])):
        results[i] = steps
    return results


@torch.no_grad()
def score_sums(
    parameters: Parameters,
    emission: Emission,
    corpus: Corpus,
    sources: Sequence[np.ndarray | None],
    n_past: Sequence[int],
) -> np.ndarray:
    """Return the log-probability of each sequence of a corpus in nats, ``(n,)``, without its source.

    It is the sum of what ``score_steps`` returns, but only the steps of one batch are in memory at a time.

    Args:
        parameters: parameters of an HMM and its emissions.
        emission: the emission of its states.
        corpus: n encoded sequences, each with its source (earlier steps that it is conditioned on) before it.
        sources: the source of each sequence, or None where it has none.
        n_past: number of first steps of each sequence after its source that are read but not counted.
    """
    sums = np.zeros(len(sources))
    for i, steps in _scored(parameters, emission, corpus, sources, lambda i: StepsSum(first=n_past[i])):
        sums[i] = total(steps[n_past[i] :] if isinstance(steps, np.ndarray) else steps)
    return sums


def _scored(
    parameters: Parameters,
    emission: Emission,
    corpus: Corpus,
    sources: Sequence[np.ndarray | None],
    new_steps: Callable[[int], StepsT],
) -> Iterator[tuple[int, np.ndarray | StepsT]]:
    """Yield the number of each sequence, and the log-probabilities of its steps, log p(x_t | x_<t), in nats.

    Args:
        parameters: parameters of an HMM and its emissions.
        emission: the emission of its states.
        corpus: encoded sequences, each with its source before it.
        sources: the source of each sequence (earlier steps that it is conditioned on), or None.
        new_steps: function that makes the array for the steps of a sequence longer than a batch, given its number.
    """
    in_parts = _longer_than_a_batch(parameters, corpus, sources)
    weights = [0.0 if i in in_parts else w for i, w in enumerate(corpus.weights)] if in_parts else corpus.weights
    have_sources = any(source is not None for source in sources)
    for batch in replace(corpus, weights=weights).each_batch():
        trellis = _trellis(parameters, emission, corpus, batch)
        filtered = forward_pass(trellis)
        if not (have_sources and any(sources[i] is not None for i in batch.indices)):
            yield from zip(batch.indices, _scored_of_batch(parameters, batch, filtered), strict=True)
            continue
        steps, beliefs = batch.segments.split(filtered.steps), batch.segments.split(filtered.alpha)
        for j, i in enumerate(batch.indices):
            source, log_continue = sources[i], 0.0
            first = 0 if source is None else len(source)
            if first and parameters.final is not None and steps[j][first] > -torch.inf:
                log_continue = _log_continue(trellis, beliefs[j][first - 1], j, first - 1)
            yield i, _scored_steps(steps[j], _end(parameters, filtered, j), first, log_continue)
    for i in in_parts:
        yield i, _score_in_parts(parameters, emission, corpus, i, new_steps)


def _scored_of_batch(parameters: Parameters, batch: PackedBatch, filtered: Filtered) -> list[np.ndarray]:
    """Return log p(x_t | x_<t) of each sequence of a batch without sources, in nats, ``(T,)``.

    If ends are events, the log-probability of the end comes last.

    Args:
        parameters: parameters of an HMM and its emissions.
        batch: the sequences.
        filtered: result of the forward pass over the batch.
    """
    steps = batch.segments.packing.unpack(filtered.steps).cpu().numpy()
    lengths = batch.segments.lengths.cpu().numpy()
    if parameters.final is not None and filtered.ends is not None:
        steps = np.insert(steps, np.cumsum(lengths), filtered.ends.cpu().numpy())
        lengths = lengths + 1
    return [steps[a:b] for a, b in pairwise([0, *np.cumsum(lengths).tolist()])]


def _scored_steps(steps: Tensor, end: float | None, first: int, log_continue: float) -> np.ndarray:
    """Return the log-probabilities of the scored steps of one sequence, followed by that of its end.

    After a source the sequence cannot end at once, so the probability of its first step is divided by that of
    continuing.

    Args:
        steps: log-probabilities of all steps, those of the source first, ``(T,)``.
        end: log-probability of the end; None if the end is not an event.
        first: number of steps of the source.
        log_continue: log-probability that the sequence continues after the source.
    """
    scored = steps[first:].cpu().numpy().copy()
    if scored[0] > -np.inf:
        scored[0] -= log_continue
    return scored if end is None else np.append(scored, end)


def _log_continue(trellis: Trellis, belief: Tensor, sequence: int, frame: int) -> float:
    """Return the log-probability that a sequence goes on after one of its steps, given the steps up to that one.

    Args:
        trellis: parameters and densities of a batch.
        belief: p(z_t | x_1 .. x_t), the probabilities of the states at that step, ``(K,)``.
        sequence: the sequence's position in the batch.
        frame: the step's number t.
    """
    end = belief.double() @ trellis.final[0]
    if end < NEAR_CERTAIN:
        return float(torch.log1p(-end))
    # 1 - end may be rounding error, or lie in states that underflowed in the belief.
    whole, _ = trellis.take(torch.tensor([sequence], device=belief.device))
    exact = log_alpha_and_steps(whole)[0][frame : frame + 1]
    return float(torch.logsumexp(LogProduct(trellis.transition)(exact), 1))


def _longer_than_a_batch(parameters: Parameters, corpus: Corpus, sources: Sequence[np.ndarray | None]) -> set[int]:
    """Return the numbers of the sequences that are scored in parts, because they are longer than a batch.

    If the chain does not forget its start, scoring in parts is slow, and only sequences on disk are scored so.

    Args:
        parameters: parameters of an HMM and its emissions.
        corpus: encoded sequences.
        sources: the source of each sequence, or None; sequences with a source are not scored in parts.
    """
    if corpus.inputs is not None or corpus.gaps is not None:
        return set()
    most = corpus.frames_at_once
    lengths = np.fromiter(map(len, corpus.sequences), np.int64, len(corpus.sequences))
    long = {i for i in np.flatnonzero(lengths > most).tolist() if sources[i] is None and corpus.weights[i] > 0}
    if long and not is_ergodic(parameters.transition > 0):
        return {i for i in long if isinstance(corpus.sequences[i], OnDisk)}
    return long


def _score_in_parts(
    parameters: Parameters, emission: Emission, corpus: Corpus, i: int, new_steps: Callable[[int], StepsT]
) -> StepsT:
    steps = new_steps(i)
    is_tried = is_ergodic(parameters.transition > NEGLIGIBLE)
    if not (is_tried and _score_parts_scaled(parameters, emission, corpus, i, steps)):
        steps = new_steps(i)
        _score_parts_in_logarithms(parameters, emission, corpus, i, steps)
    return steps


def _score_parts_scaled(parameters: Parameters, emission: Emission, corpus: Corpus, i: int, steps: Steps) -> bool:
    """Write log p(x_t | x_<t) of one long sequence into ``steps``, by scaled forward passes over its parts.

    Return False if the prediction that leads from one part to the next may not be precise.

    Args:
        parameters: parameters of an HMM and its emissions.
        emission: the emission of its states.
        corpus: encoded sequences.
        i: number of the sequence.
        steps: is filled with log-probabilities in nats.
    """
    length, start, ones = len(corpus.sequences[i]), parameters.initial, torch.ones_like(parameters.initial)
    end = None if parameters.final is None else -np.inf
    for part in cut(i, length, corpus.frames_at_once):
        batch, last = corpus.pack([part]), part.stop == length
        chain = replace(parameters, initial=start, final=parameters.final if last else ones)
        trellis = _trellis(chain, emission, corpus, batch)
        ran = scaled.forward(trellis)
        failed = bool(ran.failed.any())
        filtered = forward_pass(trellis) if failed else ran.filtered
        of_part = batch.segments.split(filtered.steps)[0].cpu().numpy()
        write_steps(steps, part.first, of_part)
        belief = filtered.alpha[batch.segments.last][0]
        if of_part[-1] == -np.inf:  # impossible, and so is all that follows
            _write_impossible(steps, part.stop, length)
            break
        start = belief.double() @ parameters.transition
        if last:
            end = _end(parameters, filtered, 0)
            break
        certain = not failed and scaled.loss_is_negligible(trellis, ran.scale)
        if not certain and not scaled.has_forgotten_start(trellis, start.to(belief.dtype)):
            return False
    if end is not None:
        write_steps(steps, length, np.array([end]))
    return True


def _write_impossible(steps: Steps, start: int, stop: int) -> None:
    for t in range(start, stop, STEPS_AT_ONCE):
        write_steps(steps, t, np.full(min(STEPS_AT_ONCE, stop - t), -np.inf))


def _score_parts_in_logarithms(
    parameters: Parameters, emission: Emission, corpus: Corpus, i: int, steps: Steps
) -> None:
    """Write log p(x_t | x_<t) of one long sequence into ``steps``, by float64 forward passes in the log domain.

    Args:
        parameters: parameters of an HMM and its emissions.
        emission: the emission of its states.
        corpus: encoded sequences.
        i: number of the sequence.
        steps: is filled with log-probabilities in nats.
    """
    length, log_start = len(corpus.sequences[i]), parameters.initial.log()[None]
    advance = LogProduct(parameters.transition)
    only = torch.zeros(1, dtype=torch.int64, device=corpus.device)
    for part in cut(i, length, max(1, corpus.frames_at_once // LOG_SHARE)):
        trellis, _ = _trellis(parameters, emission, corpus, corpus.pack([part])).take(only)
        log_alpha, part_steps = log_alpha_and_steps(trellis, log_start)
        log_belief = log_alpha[trellis.segments.last]
        write_steps(steps, part.first, part_steps.cpu().numpy())
        log_start = advance(log_belief)
        if part.stop == length and parameters.final is not None:
            end = torch.logsumexp(log_belief[0] + parameters.final.log(), 0)
            write_steps(steps, length, np.array([float(end)]))


def _trellis(parameters: Parameters, emission: Emission, corpus: Corpus, batch: PackedBatch) -> Trellis:
    return batch.trellis(parameters, batch.densities(emission, parameters, corpus.dtype))


def _end(parameters: Parameters, filtered: Filtered, j: int) -> float | None:
    return None if parameters.final is None or filtered.ends is None else float(filtered.ends[j])
