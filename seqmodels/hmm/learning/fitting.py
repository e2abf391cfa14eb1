"""One fit of an HMM: where it starts, by which algorithm, and how many starts are run side by side."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from seqmodels.common.distributed import shard
from seqmodels.hmm.chains.base import Chain
from seqmodels.hmm.corpus import ELEMENTS_AT_ONCE, Corpus, MiniBatch, PackedBatch
from seqmodels.hmm.emissions.autoregressive import AutoregressiveEmission
from seqmodels.hmm.learning import small_data
from seqmodels.hmm.learning.em import (
    Callback,
    Expectations,
    FitResult,
    MAPObjective,
    Row,
    RunningStatistics,
    StopRule,
    baum_welch,
    sum_over_processes,
)
from seqmodels.hmm.learning.gradient import gradient_ascent
from seqmodels.hmm.learning.one_regression import regression_batches, smoothed_e_step
from seqmodels.hmm.learning.options import Algorithm
from seqmodels.hmm.learning.restarts import in_groups
from seqmodels.hmm.learning.stepwise import BatchUpdate, StepOfBatch, e_step_of_batch, stepwise_em
from seqmodels.hmm.learning.variational import VariationalObjective
from seqmodels.hmm.parameters import Parameters
from seqmodels.inference.chains.segments import NEGLIGIBLE, is_ergodic
from seqmodels.training import Checkpoints, Interruption

STARTS_AT_ONCE = 1 << 22  # densities of all starts that EM runs side by side: bounds memory; more of them gain nothing
START_GROUPS_FROM_DISK = 2  # from which a start is guessed, if data are on disk
START_FRAMES = 1 << 26  # densities of the frames that a start is guessed from, if data are read in batches


@dataclass(frozen=True)
class Fitting:
    """One fit of a chain.

    Attributes:
        chain: whose E-step and M-step they are.
        objective: what is maximised.
        stop: when each start stops.
        variational: what takes the place of the objective under ``algorithm="variational"``, where parameters are
            those of the posterior; else None.

    The other attributes are arguments of ``HMM``.
    """

    chain: Chain[Any]
    objective: MAPObjective
    stop: StopRule
    algorithm: Algorithm
    batches: int
    step_decay: float
    lr: float
    n_init: int
    random_state: int
    variational: VariationalObjective | None = None

    def algorithm_on(self, corpus: Corpus, generator: torch.Generator) -> Callable[..., list[FitResult]]:
        """``run(starts, callback=..., checkpoints=...)``, which fits from each of a group of starts.

        ``generator`` deals the data out to the batches of stepwise EM.
        """
        if self.algorithm == "em" and not self.chain.runs_side_by_side:
            own = {"emission": self.objective.emission, "batches": corpus.own_batches(), "dtype": corpus.dtype}
            return partial(
                baum_welch,
                objective=self.chain.em_objective(self.objective),
                batches=[],
                dtype=corpus.dtype,
                stop=self.stop,
                e_step_of_one=partial(self.chain.expectations, **own),
            )
        if self.algorithm == "em":
            if not self._is_smoothed(corpus):
                return partial(self._baum_welch, corpus=corpus)
            return partial(
                baum_welch,
                objective=self.objective,
                batches=[],
                dtype=corpus.dtype,
                stop=self.stop,
                e_step_of_one=self._smoothed_e_step(corpus),
            )
        if self.variational is not None:
            e_step_of_one = partial(self.variational.expectations, batches=corpus.own_batches(), dtype=corpus.dtype)
            return partial(
                baum_welch,
                objective=self.variational,
                batches=[],
                dtype=corpus.dtype,
                stop=self.stop,
                e_step_of_one=e_step_of_one,
            )
        fit_one: Callable[..., FitResult | None] = partial(self._stepwise, corpus=corpus, generator=generator)
        if self.algorithm == "gradient":
            fit_one = partial(
                gradient_ascent,
                objective=self.objective,
                portions=corpus.own_portions(),
                dtype=corpus.dtype,
                stop=self.stop,
                lr=self.lr,
            )

        def run(group: Sequence[Parameters], callback: Callback, checkpoints: Checkpoints) -> list[FitResult]:
            results = (fit_one(start, callback=callback, checkpoints=checkpoints) for start in group)
            return [result for result in results if result is not None]

        return run

    def _baum_welch(
        self, group: Sequence[Parameters], corpus: Corpus, callback: Callback, checkpoints: Checkpoints
    ) -> list[FitResult]:
        batches = corpus.own_batches()
        of_all = (self.objective, batches, corpus.dtype, self.stop)
        is_kept = checkpoints.path is not None or checkpoints.state is not None
        if not is_kept and small_data.runs_in_loops(group[0], batches):
            return small_data.baum_welch(group, *of_all, callback=callback)
        return baum_welch(group, *of_all, callback=callback, checkpoints=checkpoints)

    def _is_smoothed(self, corpus: Corpus) -> bool:
        """Whether EM is of an autoregression of one state that filters and smooths missing values itself."""
        return self.algorithm == "em" and corpus.past_filter is not None and corpus.n_states == 1

    def _smoothed_e_step(self, corpus: Corpus) -> Callable[[Parameters], Expectations]:
        emission = self.objective.emission
        assert isinstance(emission, AutoregressiveEmission), "no other has a past that may miss values"
        return partial(smoothed_e_step, regression_batches(corpus, emission), emission)

    def _stepwise(
        self,
        start: Parameters,
        corpus: Corpus,
        generator: torch.Generator,
        callback: Callback,
        checkpoints: Checkpoints,
    ) -> FitResult | None:
        state = checkpoints.state
        if state is not None:
            generator.set_state(torch.tensor(state["generator"]))
        generator_state = generator.get_state().numpy().copy()
        batches = corpus.mini_batches(self.batches, generator, may_cut=self._may_cut(start))
        update = BatchUpdate(self.objective, self.step_decay, sum(corpus.n_frames(batch) for batch in batches))
        running = None if state is None else state["running"]
        inner = checkpoints.within({"generator": generator_state}, running)
        options: dict[str, Any] = {"callback": callback, "checkpoints": inner, "e_step": self._step_of_batch}
        return stepwise_em(start, update, corpus, batches, self.stop, **options)

    @property
    def _step_of_batch(self) -> StepOfBatch:
        return e_step_of_batch if self.chain.runs_side_by_side else partial(_whole_sequences, self.chain)

    def _may_cut(self, parameters: Parameters) -> bool:
        return self.chain.runs_side_by_side and is_ergodic(parameters.transition > NEGLIGIBLE)

    def one_step(
        self, parameters: Parameters, statistics: RunningStatistics | None, corpus: Corpus, number: int
    ) -> tuple[Parameters, RunningStatistics, Row]:
        """One M-step from the running statistics and all of the corpus; the row is of the parameters before."""
        began = time.perf_counter()
        (batch,) = corpus.mini_batches(1, torch.Generator(), may_cut=self._may_cut(parameters))
        share_of_batch = self._step_of_batch(parameters, self.objective.emission, corpus, batch, None)
        assert share_of_batch is not None, "nothing interrupts one step"
        (expectations,), _ = sum_over_processes([share_of_batch], [])
        update = BatchUpdate(self.objective, self.step_decay)
        updated, statistics = update(parameters, statistics, expectations, corpus.n_frames(batch))
        seconds, prior = time.perf_counter() - began, self.objective.log_prior(parameters)
        row = self.objective.row(number, seconds, expectations.log_prob, prior, updated.table)
        return updated, statistics, row

    def starts(self, corpus: Corpus) -> Iterator[Parameters]:
        """First guesses, of all that is in memory; of data read in batches, of the first batch."""
        is_in_batches = self.algorithm == "stepwise" and self.chain.runs_side_by_side
        batches = self._first_batches(corpus) if is_in_batches else corpus.batches
        generators = [torch.Generator().manual_seed(self.random_state + i) for i in range(self.n_init)]
        started = self.chain.guesses(self.objective, corpus, batches, generators, self.stop)
        if self.variational is not None:
            return (self.variational.started(start, corpus) for start in started)
        return (self.objective.inputs.started(start, self.objective.emission) for start in started)

    def _first_batches(self, corpus: Corpus) -> list[PackedBatch]:
        topology = self.chain.options.topology
        may_cut = is_ergodic(topology.transition_mask(corpus.n_states))
        groups = corpus.mini_batches(self.batches, torch.Generator().manual_seed(0), may_cut=may_cut)[0]
        n_groups = START_GROUPS_FROM_DISK if corpus.is_on_disk else max(1, START_FRAMES // ELEMENTS_AT_ONCE["cpu"])
        return [corpus.pack(group) for group in groups[:n_groups]]

    def groups_of(self, starts: Iterator[Parameters], corpus: Corpus) -> list[Sequence[Parameters]]:
        """Starts in groups that are run side by side; every process must find the same."""
        size = 1
        # Where inputs are read each start has transitions of each frame of its own.
        if (
            corpus.inputs is None
            and self.algorithm == "em"
            and self.chain.runs_side_by_side
            and not self.objective.emission.shares
            and corpus.device.type == "cpu"
        ):
            size = max(1, STARTS_AT_ONCE // (corpus.n_densities * sum(map(len, corpus.sequences))))
        # All starts first: the frames they are guessed from, joined, need not stay.
        return in_groups([start.of_first_process() for start in starts], size)


def _whole_sequences(
    chain: Chain[Any],
    parameters: Parameters,
    emission: Any,
    corpus: Corpus,
    batch: MiniBatch,
    interruption: Interruption | None,
) -> Expectations | None:
    """Return the E-step on what this process has of a batch of whole sequences; None if a signal came in between."""
    parts = [part for group in map(shard, batch) if group for part in corpus.in_batches(group)]
    if not parts:  # the sequences are fewer than the processes: this one adds nothing
        return chain.expectations(parameters, emission, [corpus.pack(batch[0][:1])], corpus.dtype).scaled(0.0)
    total = chain.expectations(parameters, emission, [corpus.pack(parts[0])], corpus.dtype)
    for part in parts[1:]:
        if interruption is not None and interruption.requested:
            return None
        total = total + chain.expectations(parameters, emission, [corpus.pack(part)], corpus.dtype)
    return total
