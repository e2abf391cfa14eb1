"""``MarkovChain``: the chain of an HMM, which stays in a state for a geometric number of steps (Rabiner 1989)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from seqmodels.encodings.examples import Example
from seqmodels.generation import CursorState
from seqmodels.hmm.chains.first_order import FirstOrderChain
from seqmodels.hmm.corpus import Corpus, PackedBatch
from seqmodels.hmm.cursor import HMMCursor, HMMState
from seqmodels.hmm.emissions import Emission
from seqmodels.hmm.few_frames import FewFrames, are_few
from seqmodels.hmm.learning.em import Expectations, MAPObjective, RunningStatistics, e_step
from seqmodels.hmm.learning.first_state import with_start
from seqmodels.hmm.missing_past import PastFilter
from seqmodels.hmm.parameters import Parameters
from seqmodels.hmm.scoring import score_sums
from seqmodels.observations import Observation
from seqmodels.training import StopRule


@dataclass(frozen=True)
class MarkovChain(FirstOrderChain):
    """The Markov chain of an HMM, ``p(z) = π(z_1) Π_t a(z_t-1, z_t)``, whose probabilities may depend on inputs."""

    def n_parameters(self, emission: Emission) -> int:
        free = self.options.free_rows(self.n_states)
        slopes = self.inputs.n_parameters(self.options.n_first_states, *free, emission)
        return self.options.n_parameters(self.arguments.length, emission, self.start) + slopes

    @property
    def has_one_matrix(self) -> bool:
        return not self.inputs.transition

    @property
    def runs_side_by_side(self) -> bool:
        return True

    def few_frames(self, parameters: Parameters, emission: Emission, examples: Sequence[Example]) -> FewFrames | None:
        return FewFrames.of(parameters, emission, examples) if are_few(parameters, emission, examples) else None

    def cursor(
        self,
        parameters: Parameters,
        observation: Observation,
        size: int,
        dtype: torch.dtype,
        make_past_filter: Callable[[], PastFilter] | None,
    ) -> HMMCursor:
        return HMMCursor(parameters, observation, size, dtype, make_past_filter)

    def together(self, draws: Sequence[Parameters]) -> Parameters | None:
        if any(slopes is not None for slopes in draws[0].slopes):
            return None
        finals = [p.final for p in draws if p.final is not None]
        return Parameters(
            torch.stack([p.initial for p in draws]).flatten() / len(draws),
            torch.block_diag(*(p.transition for p in draws)),
            torch.cat(finals) if finals else None,
            torch.cat([p.table for p in draws]),
        )

    def belief_of(self, state: CursorState) -> Tensor | None:
        assert isinstance(state, HMMState), "of this chain's cursor"
        return state.log_alpha

    def score_sums(
        self,
        parameters: Parameters,
        emission: Emission,
        corpus: Corpus,
        sources: Sequence[np.ndarray | None],
        n_past: Sequence[int],
    ) -> np.ndarray:
        return score_sums(parameters, emission, corpus, sources, n_past)

    def guesses(
        self,
        objective: MAPObjective,
        corpus: Corpus,
        batches: list[PackedBatch],
        generators: Sequence[torch.Generator],
        stop: StopRule,
    ) -> Iterator[Parameters]:
        guesses = self.first_order_guesses(objective.emission, batches, generators)
        return (with_start(guess, self.start, self.options.topology) for guess in guesses)

    def expectations_of_batch(
        self, parameters: Parameters, emission: Emission, batch: PackedBatch, dtype: torch.dtype
    ) -> Expectations:
        e_steps = e_step([parameters], emission, [batch], dtype)
        assert e_steps is not None, "nothing interrupts it"
        return e_steps[0]

    def statistics_of_frames(self, statistics: RunningStatistics | None, corpus: Corpus) -> RunningStatistics | None:
        return statistics  # every frame is a step
