"""One fit of an HMM: where it starts, by which algorithm, and how many starts are run side by side."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from seqmodels.hmm.corpus import ELEMENTS_AT_ONCE, Corpus, PackedBatch
from seqmodels.hmm.emissions.autoregressive import AutoregressiveEmission
from seqmodels.hmm.learning import small_data
from seqmodels.hmm.learning.em import BaumWelch, MAPObjective, ParameterStore
from seqmodels.hmm.learning.first_state import with_start
from seqmodels.hmm.learning.gradient import gradient_ascent
from seqmodels.hmm.learning.initialise import starts
from seqmodels.hmm.learning.one_regression import regression_batches, smoothed_e_step
from seqmodels.hmm.learning.options import Algorithm
from seqmodels.hmm.learning.small_data import SmallData
from seqmodels.hmm.learning.stepwise import Stepwise
from seqmodels.hmm.learning.variational import VariationalObjective
from seqmodels.hmm.parameters import Parameters
from seqmodels.hmm.topology import Topology
from seqmodels.inference.chains.segments import is_ergodic
from seqmodels.training import Callback, Checkpoints, FitResult, RunOfStarts, StopRule, run_em

STARTS_AT_ONCE = 1 << 22  # densities of all starts that EM runs side by side: bounds memory; more of them gain nothing
START_GROUPS_FROM_DISK = 2  # from which a start is guessed, if data are on disk
START_FRAMES = 1 << 26  # densities of the frames that a start is guessed from, if data are read in batches


@dataclass(frozen=True)
class Fitting:
    """One fit of an HMM of ``topology`` to the ``objective``, with or without a final distribution.

    ``stepwise`` is how ``algorithm="stepwise"`` and ``partial_fit`` read mini-batches. ``variational`` takes the place
    of the objective under ``algorithm="variational"``, where parameters are those of the posterior. The other
    attributes are the arguments of ``HMM``.
    """

    objective: MAPObjective
    topology: Topology
    stop: StopRule
    algorithm: Algorithm
    stepwise: Stepwise
    lr: float
    n_init: int
    random_state: int
    has_final: bool
    variational: VariationalObjective | None = None

    def algorithm_on(self, corpus: Corpus) -> RunOfStarts[Parameters, Parameters]:
        """Return the algorithm that fits to the corpus from some starts."""
        if self.algorithm == "stepwise":
            generator = torch.Generator().manual_seed(self.random_state)
            return partial(self.stepwise.run, corpus=corpus, stop=self.stop, generator=generator)
        if self.algorithm == "gradient":
            return partial(self._gradient, corpus=corpus)
        if self.variational is not None:
            expectations = partial(self.variational.expectations, batches=corpus.own_batches(), dtype=corpus.dtype)
            return self._em(BaumWelch.one_by_one(self.variational, expectations), corpus)
        emission = self.objective.emission
        if corpus.past_filter is not None and corpus.n_states == 1:
            # An autoregression of one state filters and smooths missing values itself.
            assert isinstance(emission, AutoregressiveEmission), "no other has a past that may miss values"
            expectations = partial(smoothed_e_step, regression_batches(corpus, emission), emission)
            return self._em(BaumWelch.one_by_one(self.objective, expectations), corpus)
        return partial(self._baum_welch, corpus=corpus)

    def _em(self, problem: BaumWelch, corpus: Corpus) -> RunOfStarts[Parameters, Parameters]:
        return partial(run_em, problem, stop=self.stop, store=ParameterStore(corpus.device))

    def _baum_welch(
        self, starts: Iterable[Parameters], *, corpus: Corpus, callback: Callback, checkpoints: Checkpoints
    ) -> list[FitResult[Parameters]]:
        data = (self.objective, corpus.own_batches(), corpus.dtype)
        if checkpoints.path is None and checkpoints.state is None:
            starts = list(starts)
            if small_data.runs_in_loops(starts[0], data[1]):
                return small_data.run_em_in_loops(SmallData(*data), starts, self.stop, callback)
        run = self._em(BaumWelch.on_batches(*data), corpus)
        return run(starts, callback=callback, checkpoints=checkpoints)

    def _gradient(
        self, starts: Iterable[Parameters], *, corpus: Corpus, callback: Callback, checkpoints: Checkpoints
    ) -> list[FitResult[Parameters]]:
        data = (self.objective, corpus.own_portions(), corpus.dtype)
        options: dict[str, Any] = {"lr": self.lr, "callback": callback, "checkpoints": checkpoints}
        return [gradient_ascent(start, *data, self.stop, **options) for start in starts]

    def starts(self, corpus: Corpus) -> Iterator[Parameters]:
        """First guesses, of all that is in memory; of data read in batches, of the first batch."""
        batches = corpus.batches if self.algorithm != "stepwise" else self._first_batches(corpus)
        guesses = starts(
            self.objective.emission,
            batches,
            corpus.n_states,
            has_final=self.has_final,
            generators=[torch.Generator().manual_seed(self.random_state + i) for i in range(self.n_init)],
            topology=self.topology,
            tying=self.objective.constraints.tying,
        )
        started = (with_start(guess, self.objective.start, self.topology) for guess in guesses)
        if self.variational is not None:
            return (self.variational.started(start, corpus) for start in started)
        return (self.objective.inputs.started(start, self.objective.emission) for start in started)

    def _first_batches(self, corpus: Corpus) -> list[PackedBatch]:
        may_cut = is_ergodic(self.topology.transition_mask(corpus.n_states))
        groups = corpus.mini_batches(self.stepwise.n_batches, torch.Generator().manual_seed(0), may_cut=may_cut)[0]
        n_groups = START_GROUPS_FROM_DISK if corpus.is_on_disk else max(1, START_FRAMES // ELEMENTS_AT_ONCE["cpu"])
        return [corpus.pack(group) for group in groups[:n_groups]]

    def n_together(self, corpus: Corpus) -> int:
        """Return how many starts are run side by side; every process must find the same."""
        is_em, emission = self.algorithm == "em", self.objective.emission
        # Where inputs are read each start has transitions of each frame of its own.
        if corpus.inputs is not None or not is_em or emission.shares or corpus.device.type != "cpu":
            return 1
        return max(1, STARTS_AT_ONCE // (corpus.n_densities * sum(map(len, corpus.sequences))))
