"""``log p(x_t | x_<t)`` of many sequences: in blocks side by side, and what is longer than a block one slice after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from seqmodels.hmm.blocks import Block, frames_at_once
from seqmodels.hmm.emissions import Emission
from seqmodels.hmm.forward_backward import forward_of
from seqmodels.hmm.inference import block_trellis, scored_steps
from seqmodels.hmm.parameters import Parameters
from seqmodels.hmm.pieces import Corpus, cut
from seqmodels.hmm.topology import forgets
from seqmodels.hmm.trellis import Forward


@torch.no_grad()
def score_steps(
    parameters: Parameters, emission: Emission, corpus: Corpus, sources: Sequence[np.ndarray | None]
) -> list[np.ndarray]:
    """Float64 nats of each sequence of the corpus without its source, the end last where it is an event."""
    results: list[np.ndarray] = [np.empty(0)] * len(sources)
    sliced = _sliced(parameters, corpus, sources)
    weights = [0.0 if i in sliced else w for i, w in enumerate(corpus.weights)]
    for block in replace(corpus, weights=weights).blocks:
        found = _forward(parameters, emission, corpus, block)
        steps, beliefs = block.cutting.split(found.steps), block.cutting.split(found.alpha)
        for j, i in enumerate(block.indices):
            end = _end(parameters, found, j)
            results[i] = scored_steps(steps[j], beliefs[j], end, parameters.final, sources[i])
    for i in sliced:
        results[i] = _in_slices(parameters, emission, corpus, i)
    return results


def _sliced(parameters: Parameters, corpus: Corpus, sources: Sequence[np.ndarray | None]) -> set[int]:
    """Sequences longer than a block, if the chain forgets: then no state that a float cannot hold matters to a later slice."""
    most = frames_at_once(corpus.n_densities, corpus.device)
    long = {i for i, x in enumerate(corpus.sequences) if sources[i] is None and corpus.weights[i] > 0 and len(x) > most}
    return long if long and forgets(parameters.transition > 0) else set()


def _in_slices(parameters: Parameters, emission: Emission, corpus: Corpus, i: int) -> np.ndarray:
    """Every slice starts from what the one before predicts, so that one is in memory at a time."""
    length, start, ones = len(corpus.sequences[i]), parameters.initial, torch.ones_like(parameters.initial)
    steps, end = np.full(length, -np.inf), None if parameters.final is None else -np.inf
    for piece in cut(i, length, frames_at_once(corpus.n_densities, corpus.device)):
        block, last = corpus.block([piece]), piece.last == length
        chain = replace(parameters, initial=start, final=parameters.final if last else ones)
        found = _forward(chain, emission, corpus, block)
        steps[piece.first : piece.last] = block.cutting.split(found.steps)[0].cpu().numpy()
        belief = found.alpha[block.cutting.last][0].double()
        if not belief.any():  # impossible, and so is all that follows
            break
        start = belief @ parameters.transition
        if last:
            end = _end(parameters, found, 0)
    return steps if end is None else np.append(steps, end)


def _forward(parameters: Parameters, emission: Emission, corpus: Corpus, block: Block) -> Forward:
    densities, _ = emission.evaluate(parameters.table, block.x, block.past, corpus.dtype, block.scratch)
    return forward_of(block_trellis(parameters, densities, block))


def _end(parameters: Parameters, found: Forward, j: int) -> float | None:
    return None if parameters.final is None or found.ends is None else float(found.ends[j])
