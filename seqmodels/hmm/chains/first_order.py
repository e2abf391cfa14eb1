"""``FirstOrderChain``: inference in chains whose next state depends on the last one, by ``Trellis``."""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from seqmodels.hmm.chains.base import FilteredSteps, Groups, HiddenChain
from seqmodels.hmm.corpus import Corpus, PackedBatch
from seqmodels.hmm.emissions import Emission
from seqmodels.hmm.learning.gradient import log_prob_of_batch
from seqmodels.hmm.parameters import Parameters
from seqmodels.hmm.scoring import score_steps
from seqmodels.hmm.state_forecast import StatesAhead, StepsAhead
from seqmodels.inference.chains import scaled
from seqmodels.inference.chains.forced_alignment import best_alignments
from seqmodels.inference.chains.forward_backward import forward_backward_pass, forward_pass
from seqmodels.inference.chains.list_viterbi import k_best_paths
from seqmodels.inference.chains.log_space import (
    LogProduct,
    log_alpha_and_steps,
    log_given_others,
    log_predicted,
)
from seqmodels.inference.chains.sampling import sample_paths
from seqmodels.inference.chains.trellis import Trellis
from seqmodels.inference.chains.viterbi import best_paths, log_prob_of_paths


class FirstOrderChain(HiddenChain[Trellis], ABC):
    """Base class of hidden chains whose next state depends on the last one only, with a ``Trellis`` for inference.

    Transitions may differ from step to step. To add a chain, define the methods of ``HiddenChain`` that are not here.
    """

    def trellis(self, parameters: Parameters, emission: Emission, batch: PackedBatch, dtype: torch.dtype) -> Trellis:
        return batch.trellis(parameters, batch.densities(emission, parameters, dtype))

    def filtered(self, parameters: Parameters, trellis: Trellis) -> FilteredSteps:
        filtered = forward_pass(trellis)
        steps, beliefs = trellis.segments.split(filtered.steps), trellis.segments.split(filtered.alpha)
        log_stays_or_moves = parameters.transition.sum(1).log()

        def log_continues(sequence: int, t: int) -> float:
            return float(torch.logsumexp(beliefs[sequence][t].double().log() + log_stays_or_moves, 0))

        assert filtered.ends is not None, "a forward pass knows the ends"
        return FilteredSteps(steps, filtered.ends, log_continues)

    @torch.no_grad()
    def beliefs(self, trellis: Trellis) -> list[Tensor]:
        return trellis.segments.split(forward_pass(trellis).alpha)

    @torch.no_grad()
    def log_predicted(self, trellis: Trellis) -> list[Tensor]:
        whole = trellis.whole
        return whole.segments.split(log_predicted(whole))

    @torch.no_grad()
    def log_given_others(self, trellis: Trellis) -> list[Tensor]:
        whole = trellis.whole
        return whole.segments.split(log_given_others(whole))

    @torch.no_grad()
    def posteriors(self, trellis: Trellis) -> tuple[list[Tensor], Tensor]:
        posterior = forward_backward_pass(trellis)
        return trellis.segments.split(posterior.gamma), posterior.log_prob

    @torch.no_grad()
    def best_paths(self, trellis: Trellis) -> tuple[list[Tensor], Tensor]:
        paths, log_prob = best_paths(trellis)
        return list(paths.split(trellis.segments.lengths.tolist())), log_prob

    @torch.no_grad()
    def k_best_paths(self, trellis: Trellis, k: int) -> list[tuple[Tensor, Tensor]]:
        return k_best_paths(trellis, k)

    @torch.no_grad()
    def alignments(self, trellis: Trellis, groups: Sequence[Groups]) -> tuple[list[Tensor], list[Tensor], Tensor]:
        positions, states, log_prob = best_alignments(trellis, groups)
        lengths = trellis.segments.lengths.tolist()
        return list(positions.split(lengths)), list(states.split(lengths)), log_prob

    @torch.no_grad()
    def log_prob_of_paths(self, trellis: Trellis, paths: Sequence[Tensor]) -> Tensor:
        return log_prob_of_paths(trellis, torch.cat(list(paths)).to(trellis.densities.device))

    def draws(self, trellis: Trellis, n: int, generator: torch.Generator) -> tuple[list[Tensor], Tensor]:
        paths, log_prob = sample_paths(trellis, n, generator)
        return list(paths.split(trellis.segments.lengths.tolist())), log_prob

    @torch.no_grad()
    def last_beliefs(self, trellis: Trellis) -> list[Tensor]:
        """Return log p(z_T | x) of the K states at the last step of each sequence, ``(K,)`` float64.

        It is exact in every state, also where the probability is tiny. ``trellis`` has the parameters and densities of
        a batch of sequences.
        """
        if trellis.log_transitions is None:
            ran = scaled.forward(trellis)
            if not ran.failed.any() and scaled.loss_is_negligible(trellis, ran.scale):
                return list(ran.alpha[trellis.segments.last].double().log())
        whole, _ = trellis.take(torch.arange(trellis.segments.n_sequences, device=trellis.densities.device))
        return list(log_alpha_and_steps(whole)[0][whole.segments.last])

    def states_ahead(
        self, parameters: Parameters, emission: Emission, log_belief: Tensor, k: int, inputs: Tensor | None = None
    ) -> StatesAhead:
        step_forward, rows = LogProduct(parameters.transition), []
        joint = log_belief.log_softmax(0)[None]  # of float32, which sums to one but for rounding
        log_a = self.log_transitions_ahead(parameters, inputs)
        for h in range(k):
            joint = step_forward(joint) if log_a is None else torch.logsumexp(joint.T + log_a[h], 0, keepdim=True)
            rows.append(joint)
        if log_a is None:
            return StatesAhead(torch.cat(rows))
        each = log_a.exp()
        steps = StepsAhead(rows[0][0].exp(), torch.arange(self.n_states), lambda values, h: each[h].T @ values)
        return StatesAhead(torch.cat(rows), steps)

    def scored(
        self, parameters: Parameters, emission: Emission, corpus: Corpus, sources: Sequence[np.ndarray | None]
    ) -> list[np.ndarray]:
        return score_steps(parameters, emission, corpus, sources)

    @torch.no_grad()
    def forward_log_prob(
        self, parameters: Parameters, emission: Emission, batch: PackedBatch, dtype: torch.dtype
    ) -> Tensor:
        filtered = forward_pass(self.trellis(parameters, emission, batch, dtype))
        assert filtered.ends is not None, "a forward pass knows the ends"
        return batch.segments.totals(filtered.steps) + filtered.ends

    def log_prob_of_batch(self, parameters: Parameters, emission: Emission, batch: PackedBatch) -> Tensor:
        return log_prob_of_batch(emission, parameters, batch)
