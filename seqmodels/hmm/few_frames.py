"""Scores and states of few frames under a fitted HMM, with densities and recursions in compiled loops on arrays.

On 300 frames the loops take a tenth of a millisecond; packing, batches and tensors take several times that. The results
equal the results of ``scoring`` and ``state_queries``, which handle the cases that the loops cannot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from seqmodels.encodings.examples import Example
from seqmodels.hmm.emissions import Emission
from seqmodels.hmm.emissions.gaussian_mixture import MOST_VALUES_IN_LOOPS
from seqmodels.hmm.parameters import Parameters
from seqmodels.inference.chains.packing import PackedArrays
from seqmodels.inference.chains.parallel_segments import is_faster_uncut, runs_compiled, runs_sequentially
from seqmodels.inference.chains.viterbi import TO_GRID

ON_CPU = torch.device("cpu")


def are_few(parameters: Parameters, emission: Emission, examples: Sequence[Example]) -> bool:
    """Return True if ``FewFrames`` can read these examples and is faster on them than batches of tensors are.

    It reads few sequences, in memory and without sources, known states or inputs, and an emission that depends on no
    past steps. The caller must compute in float64 on a CPU.

    Args:
        parameters: parameters of the chain and its emissions.
        emission: the emission, which determines how many densities a frame has.
        examples: encoded sequences.
    """
    if emission.observation.n_past or any(each is not None for each in (*parameters.slopes, parameters.generator)):
        return False
    if any(type(e.values) is not np.ndarray or any(x is not None for x in (e.source, e.states)) for e in examples):
        return False
    k, lengths = len(parameters.initial), [len(example.values) for example in examples]
    n_values = sum(lengths) * emission.n_densities(k) * emission.size
    is_small = 0 < n_values <= MOST_VALUES_IN_LOOPS and min(lengths) > 0
    if not is_small or not runs_sequentially(k, sum(lengths), max(lengths), ON_CPU):
        return False
    in_blocks = runs_compiled(k, sum(lengths), ON_CPU)
    return in_blocks or is_faster_uncut(k, sum(lengths), max(lengths), torch.float64, ON_CPU)


@dataclass(frozen=True)
class FewFrames:
    """A few encoded sequences and one HMM as arrays, from which compiled loops compute scores and states.

    There are n sequences with N frames in all, and K states.

    Attributes:
        chain: initial ``(1, K)``, transition ``(K, K)`` and final ``(1, K)`` probabilities.
        has_final: True if ends are events.
        log_b: log-densities of the frames in each state in nats, ``(N, K)``.
        packed: positions of the frames of each sequence among the N rows.
    """

    chain: tuple[np.ndarray, np.ndarray, np.ndarray]
    has_final: bool
    log_b: np.ndarray
    packed: PackedArrays

    @classmethod
    def of(cls, parameters: Parameters, emission: Emission, examples: Sequence[Example]) -> FewFrames:
        """Return the sequences with the log-densities of their frames under an HMM; ``are_few`` must be True for them.

        Args:
            parameters: parameters of the chain and its emissions.
            emission: the emission, which names the observation and its number of features.
            examples: encoded sequences.
        """
        from seqmodels.hmm.chain_in_loops import log_densities_of

        initial, transition, final = parameters.initial.numpy(), parameters.transition.numpy(), parameters.final
        stop = np.ones(len(initial)) if final is None else final.numpy()
        values = [example.values for example in examples]
        packed = PackedArrays.of(list(map(len, values)))
        frames = packed.pack(values[0] if len(values) == 1 else np.concatenate(values))
        densities = log_densities_of(emission.observation, parameters.table, emission.size)
        log_b = np.ascontiguousarray(densities(frames))
        return cls((initial[None], np.ascontiguousarray(transition), stop[None]), final is not None, log_b, packed)

    def steps(self) -> list[np.ndarray] | None:
        """Return ``log p(x_t | x_<t)`` of each sequence in nats, ``(T,)``, followed by the end if that is an event.

        Return None if probabilities underflowed, so that the loops may have lost precision that matters.
        """
        filtered = self._filter()
        if filtered is None:
            return None
        _, steps, ends = filtered
        each = self.packed.split(steps)
        return [np.append(s, end) for s, end in zip(each, ends, strict=True)] if self.has_final else each

    def beliefs(self) -> list[np.ndarray] | None:
        """Return ``p(z_t | x_<=t)``, the filtered state probabilities of each sequence, ``(T, K)``.

        The rows are zero from an impossible step on. Return None if probabilities underflowed, so that the loops may
        have lost precision that matters.
        """
        filtered = self._filter()
        return None if filtered is None else self.packed.split(filtered[0])

    def posteriors(self) -> list[np.ndarray] | None:
        """Return ``p(z_t | x)``, the smoothed state probabilities of each sequence, ``(T, K)``.

        The result is None if probabilities underflowed, so that the loops may have lost precision that matters, or if a
        sequence has probability zero.
        """
        from seqmodels.inference.chains import sequential

        (n, k), packed, by_rank = self.log_b.shape, self.packed, self.packed.by_rank()
        memory, gamma, counts = (np.empty((n, k)), np.empty(n)), np.empty((n, k)), (np.zeros(k), np.zeros((k, k)))
        weights, sums = np.ones(len(packed.lengths)), (*counts, np.zeros(k))
        sequential.expectations(self.chain, self.log_b, packed, weights, memory, gamma, sums, by_rank)
        _, log_prob, has_failed = by_rank
        is_certain = not has_failed.any() and log_prob.min() > -np.inf
        return self.packed.split(gamma) if is_certain else None

    def paths(self) -> list[np.ndarray] | None:
        """Return the most probable states of each sequence (Viterbi), ``(T,)``; None if a sequence is impossible."""
        from seqmodels.inference.chains import sequential

        path, log_prob = sequential.paths(self.chain, self.log_b, self.packed, TO_GRID)
        return self.packed.parts(path) if log_prob.min() > -np.inf else None

    def _filter(self) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
        """Run the forward pass over all sequences; return None if underflow may have cost precision that matters.

        Returns:
            For N frames of n sequences: p(z_t | x_1 .. x_t) of each frame, ``(N, K)``; log p(x_t | x_<t) of each frame,
            ``(N,)``; and the log-probability of each sequence's end, ``(n,)``.
        """
        from seqmodels.inference.chains import sequential

        (n, k), (ends, log_prob, has_failed) = self.log_b.shape, self.packed.by_rank()
        alpha, ratio, steps = np.empty((n, k)), np.empty((n, k)), np.empty(n)
        sequential.forward(
            *self.chain, self.log_b, self.packed.offsets, self.packed.lengths, alpha, ratio, steps, ends,
            log_prob, False, has_failed,
        )  # fmt: skip
        return None if has_failed.any() else (alpha, steps, self.packed.by_sequence(ends))
