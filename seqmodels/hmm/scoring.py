"""``log p(x_t | x_<t)`` of many sequences: in blocks side by side, and what is longer than a block one slice after the other.

A slice starts from what the one before predicts. What is handed on holds in every state, for a state that is all but impossible may explain
what follows: that is certain where every frame hands every state more than can be lost, and otherwise looked at, by a warm-up from a flat
start; where neither vouches for it, the sequence is scored again with beliefs that are kept as logarithms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from seqmodels.hmm import log_semiring, scaled
from seqmodels.hmm.blocks import Block, frames_at_once
from seqmodels.hmm.emissions import Emission
from seqmodels.hmm.forward_backward import forward_of
from seqmodels.hmm.inference import block_trellis, log_going, scored_steps
from seqmodels.hmm.learning.corpus import Corpus, cut
from seqmodels.hmm.log_product import LogProduct
from seqmodels.hmm.parameters import Parameters
from seqmodels.hmm.roads import HARDLY
from seqmodels.hmm.topology import forgets
from seqmodels.hmm.trellis import Forward, Trellis

LOG_SHARE = 4  # of a block's frames in a slice of logarithms, which are float64


@torch.no_grad()
def score_steps(
    parameters: Parameters, emission: Emission, corpus: Corpus, sources: Sequence[np.ndarray | None]
) -> list[np.ndarray]:
    """Float64 nats of each sequence of the corpus without its source, the end last where it is an event."""
    results: list[np.ndarray] = [np.empty(0)] * len(sources)
    sliced = _sliced(parameters, corpus, sources)
    weights = [0.0 if i in sliced else w for i, w in enumerate(corpus.weights)]
    for block in replace(corpus, weights=weights).blocks:
        trellis = _trellis(parameters, emission, corpus, block)
        found = forward_of(trellis)
        steps, beliefs = block.cutting.split(found.steps), block.cutting.split(found.alpha)
        for j, i in enumerate(block.indices):
            source, going = sources[i], 0.0
            first = 0 if source is None else len(source)
            if first and parameters.final is not None and steps[j][first] > -torch.inf:
                going = log_going(trellis, beliefs[j][first - 1], j, first - 1)
            results[i] = scored_steps(steps[j], _end(parameters, found, j), first, going)
    for i in sliced:
        results[i] = _in_slices(parameters, emission, corpus, i)
    return results


def _sliced(parameters: Parameters, corpus: Corpus, sources: Sequence[np.ndarray | None]) -> set[int]:
    """Sequences longer than a block, if the chain may forget: the others are slow in slices, and read at once."""
    most = frames_at_once(corpus.n_densities, corpus.device)
    long = {i for i, x in enumerate(corpus.sequences) if sources[i] is None and corpus.weights[i] > 0 and len(x) > most}
    return long if long and forgets(parameters.transition > 0) else set()


def _in_slices(parameters: Parameters, emission: Emission, corpus: Corpus, i: int) -> np.ndarray:
    """One slice in memory at a time."""
    steps = None
    if forgets(parameters.transition > HARDLY):
        steps = _scaled_slices(parameters, emission, corpus, i)
    return _log_slices(parameters, emission, corpus, i) if steps is None else steps


def _scaled_slices(parameters: Parameters, emission: Emission, corpus: Corpus, i: int) -> np.ndarray | None:
    """None where it is not certain what a slice hands on."""
    length, start, ones = len(corpus.sequences[i]), parameters.initial, torch.ones_like(parameters.initial)
    steps, end = np.full(length, -np.inf), None if parameters.final is None else -np.inf
    for piece in cut(i, length, frames_at_once(corpus.n_densities, corpus.device)):
        block, last = corpus.block([piece]), piece.last == length
        chain = replace(parameters, initial=start, final=parameters.final if last else ones)
        trellis = _trellis(chain, emission, corpus, block)
        ran = scaled.forward(trellis)
        failed = bool(ran.failed.any())
        found = forward_of(trellis) if failed else Forward(ran.steps, ran.ends, ran.alpha)
        steps[piece.first : piece.last] = block.cutting.split(found.steps)[0].cpu().numpy()
        belief = found.alpha[block.cutting.last][0]
        if steps[piece.last - 1] == -np.inf:  # impossible, and so is all that follows
            break
        start = belief.double() @ parameters.transition
        if last:
            end = _end(parameters, found, 0)
        elif (failed or not scaled.refills(trellis, ran.scale)) and not scaled.warmed_up(
            trellis, start.to(belief.dtype)
        ):
            return None
    return steps if end is None else np.append(steps, end)


def _log_slices(parameters: Parameters, emission: Emission, corpus: Corpus, i: int) -> np.ndarray:
    """Exact: float64 logarithms are handed on."""
    length, start = len(corpus.sequences[i]), parameters.initial.log()[None]
    steps, end, onward = np.full(length, -np.inf), None, LogProduct(parameters.transition)
    everything = torch.zeros(1, dtype=torch.int64, device=corpus.device)
    for piece in cut(i, length, max(1, frames_at_once(corpus.n_densities, corpus.device) // LOG_SHARE)):
        trellis, _ = _trellis(parameters, emission, corpus, corpus.block([piece])).take(everything)
        found, belief = log_semiring.onward(trellis, start)
        steps[piece.first : piece.last] = found.cpu().numpy()
        start = onward(belief)
        if piece.last == length and parameters.final is not None:
            end = float(torch.logsumexp(belief[0] + parameters.final.log(), 0))
    return steps if end is None else np.append(steps, end)


def _trellis(parameters: Parameters, emission: Emission, corpus: Corpus, block: Block) -> Trellis:
    densities, _ = emission.evaluate(parameters.table, block.x, block.past, corpus.dtype, block.scratch)
    return block_trellis(parameters, densities, block)


def _end(parameters: Parameters, found: Forward, j: int) -> float | None:
    return None if parameters.final is None or found.ends is None else float(found.ends[j])
