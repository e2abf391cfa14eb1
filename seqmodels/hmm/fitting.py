"""One fit of a chain: the choice of its starts and of the algorithm, and how many starts run side by side."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from seqmodels.hmm.chains.base import HiddenChain
from seqmodels.hmm.corpus import ELEMENTS_AT_ONCE, Corpus, PackedBatch, Subsequence
from seqmodels.hmm.emissions.autoregressive import AutoregressiveEmission
from seqmodels.hmm.learning import small_data
from seqmodels.hmm.learning.em import BaumWelch, Expectations, MAPObjective, ParameterStore
from seqmodels.hmm.learning.gradient import gradient_ascent
from seqmodels.hmm.learning.one_regression import regression_batches, smoothed_e_step
from seqmodels.hmm.learning.options import Algorithm
from seqmodels.hmm.learning.small_data import SmallData
from seqmodels.hmm.learning.stepwise import StepOfBatch, Stepwise, e_step_of_batch
from seqmodels.hmm.learning.variational import VariationalObjective
from seqmodels.hmm.missing_past import filters_itself
from seqmodels.hmm.parameters import Parameters
from seqmodels.inference.chains.parallel_segments import is_ergodic
from seqmodels.training import Callback, Checkpoints, FitResult, RunOfStarts, StopRule, run_em

STARTS_AT_ONCE = 1 << 22  # densities of all starts that EM runs side by side; bounds memory, and more gain no speed
START_GROUPS_FROM_DISK = 2  # groups of subsequences from which a start is guessed, if data are on disk
START_FRAMES = 1 << 26  # densities of the frames from which a start is guessed, if data are read in batches


@dataclass(frozen=True)
class Fitting:
    """The settings of one fit of a chain, with methods that make its starts and the algorithm that runs from them.

    Attributes:
        chain: the chain, which has the E-step and the M-step.
        objective: the objective of maximum a posteriori EM: log-likelihood plus log-prior.
        stop: rule by which the run from each start stops.
        algorithm: name of the algorithm: EM, stepwise EM, gradient or variational Bayes.
        batches: mini-batches in an epoch of stepwise EM.
        step_decay: exponent of the step sizes of stepwise EM.
        lr: peak learning rate of training by gradient.
        n_init: number of starts.
        random_state: seed of the starts and of the order of mini-batches.
        variational: the evidence lower bound under ``algorithm="variational"``, whose parameters are the posterior's
            hyperparameters; None under any other algorithm.
    """

    chain: HiddenChain[Any]
    objective: MAPObjective
    stop: StopRule
    algorithm: Algorithm
    batches: int
    step_decay: float
    lr: float
    n_init: int
    random_state: int
    variational: VariationalObjective | None = None

    @property
    def stepwise(self) -> Stepwise:
        """Stepwise EM with these settings, for ``algorithm="stepwise"`` and ``partial_fit``."""
        cuts = self.chain.runs_side_by_side and not self.chain.inputs.n_inputs  # regressions read whole sequences
        step: StepOfBatch = e_step_of_batch
        if not cuts:
            step = partial(e_step_of_batch, of_parts=partial(_of_whole_sequences, self.chain))
        objective = self.chain.em_objective(self.objective)
        return Stepwise(objective, self.batches, self.step_decay, step, cuts)

    def algorithm_on(self, corpus: Corpus) -> RunOfStarts[Parameters, Parameters]:
        """Return a function that runs the algorithm from given starts and returns a ``FitResult`` for each start.

        The function fits the parameters to ``corpus``, the training data in batches.
        """
        if self.algorithm == "stepwise":
            generator = torch.Generator().manual_seed(self.random_state)
            return partial(self.stepwise.run, corpus=corpus, stop=self.stop, generator=generator)
        if self.algorithm == "gradient":
            return partial(self._gradient, corpus=corpus)
        if self.variational is not None:
            batches = self.variational.batches(corpus)
            expectations = partial(self.variational.expectations, batches=batches, dtype=corpus.dtype)
            return self._em(BaumWelch.one_by_one(self.variational, expectations), corpus)
        emission = self.objective.emission
        if not self.chain.runs_side_by_side:
            data = (emission, corpus.own_batches(), corpus.dtype)
            objective = self.chain.em_objective(self.objective)

            def of_chain(parameters: Parameters) -> Expectations:
                return self.chain.expectations(parameters, *data)

            return self._em(BaumWelch.one_by_one(objective, of_chain), corpus)
        if corpus.past_filter is not None:
            assert isinstance(emission, AutoregressiveEmission), "no other has a past that may miss values"
            if filters_itself(emission.observation, corpus.n_states):
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
        data = (self.chain, self.objective, corpus.own_portions(), corpus.dtype)
        options: dict[str, Any] = {"lr": self.lr, "callback": callback, "checkpoints": checkpoints}
        return [gradient_ascent(start, *data, self.stop, **options) for start in starts]

    def guesses(self, corpus: Corpus) -> Iterator[Parameters]:
        """Return an iterator over the first guess of the parameters for each of the ``n_init`` starts.

        They are guessed from all sequences of ``corpus`` if these are in memory; stepwise EM guesses them from its
        first mini-batch.
        """
        is_much = (
            corpus.is_on_disk and sum(map(len, corpus.sequences)) > START_GROUPS_FROM_DISK * corpus.frames_in_group
        )
        is_in_batches = self.algorithm == "stepwise" and (self.chain.runs_side_by_side or is_much)
        batches = self._first_batches(corpus) if is_in_batches else corpus.batches
        generators = [torch.Generator().manual_seed(self.random_state + i) for i in range(self.n_init)]
        return self.chain.guesses(self.objective, corpus, batches, generators, self.stop)

    def starts(self, corpus: Corpus) -> Iterator[Parameters]:
        """Return an iterator over the parameters from which each start of the fit begins.

        They are guessed from ``corpus``, and have slopes of zero for everything that depends on inputs. Under
        variational Bayes they are the hyperparameters of a posterior.
        """
        started = self.guesses(corpus)
        if self.variational is not None:
            return (self.variational.started(start, corpus) for start in started)
        return (self.objective.inputs.started(start, self.objective.emission) for start in started)

    def _first_batches(self, corpus: Corpus) -> list[PackedBatch]:
        may_cut = self.stepwise.cuts and is_ergodic(self.chain.options.topology.transition_mask(corpus.n_states))
        groups = corpus.mini_batches(self.batches, torch.Generator().manual_seed(0), may_cut=may_cut)[0]
        n_groups = START_GROUPS_FROM_DISK if corpus.is_on_disk else max(1, START_FRAMES // ELEMENTS_AT_ONCE["cpu"])
        return [corpus.pack(group) for group in groups[:n_groups]]

    def n_together(self, corpus: Corpus) -> int:
        """Return how many starts of EM run side by side in one E-step; it is the same number in every process.

        ``corpus`` is the training data; with much of it, or on a GPU, the number is 1.
        """
        is_em, emission = self.algorithm == "em" and self.chain.runs_side_by_side, self.objective.emission
        # Starts with inputs cannot share one E-step, because each has its own transition matrix at every frame.
        if corpus.inputs is not None or not is_em or emission.shares or corpus.device.type != "cpu":
            return 1
        return max(1, STARTS_AT_ONCE // (corpus.n_densities * sum(map(len, corpus.sequences))))


def _of_whole_sequences(
    chain: HiddenChain[Any], parameters: Parameters, emission: Any, corpus: Corpus, parts: list[Subsequence]
) -> Expectations:
    """Return log p(x) and expected counts of the given subsequences, each of which is a whole sequence.

    Args:
        chain: the hidden chain.
        parameters: parameters of the chain and its emissions.
        emission: the emission of its states.
        corpus: the sequences.
        parts: the subsequences, each from the first to the last frame of its sequence.
    """
    return chain.expectations(parameters, emission, [corpus.pack(parts)], corpus.dtype)
