"""From encoded examples to fitted parameters: starts, EM in full or in batches, the best of several."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch

from seqmodels.encodings import Encoding
from seqmodels.hmm.baum_welch import Fitted, Memory, Observe, Schedule, baum_welch, everywhere
from seqmodels.hmm.blocks import ELEMENTS_AT_ONCE, Block
from seqmodels.hmm.emissions import Emission
from seqmodels.hmm.gradient import gradient_ascent
from seqmodels.hmm.inference.densities import possible_states
from seqmodels.hmm.inference.segments import NEGLIGIBLE, is_ergodic
from seqmodels.hmm.learning import Algorithm, Learning
from seqmodels.hmm.parameters import Parameters
from seqmodels.hmm.pieces import Corpus, Portion
from seqmodels.hmm.restarts import best_of, go_on, in_groups
from seqmodels.hmm.start import starts
from seqmodels.hmm.stepwise import Steps, expect_batch, stepwise_em
from seqmodels.preparation import Example
from seqmodels.training import Checkpoints

TOGETHER = 1 << 22  # densities of all starts that EM takes side by side: bounds memory; more of them gain nothing
STARTED = 1 << 26  # densities of the frames that a start is guessed from, if data are read in batches


@dataclass(frozen=True)
class Fitting:
    """One fit: what is learned, how, and in which units its history is."""

    emission: Emission
    learning: Learning
    schedule: Schedule
    algorithm: Algorithm
    batches: int
    step_decay: float
    lr: float
    n_units: float
    log_det: float

    def run(
        self,
        starts: Iterator[Parameters],
        corpus: Corpus,
        generator: torch.Generator,
        *,
        verbose: bool,
        checkpoints: Checkpoints | None = None,
    ) -> Fitted:
        """The best of EM from these starts, or from those that were left where ``checkpoints`` go on."""
        run: Callable[..., list[Fitted]] = partial(self._stepwise, corpus, generator)
        if self.algorithm == "em":
            run = partial(self._em, corpus.own_blocks(), corpus.dtype)
        elif self.algorithm == "gradient":
            run = partial(self._gradient, corpus.own_portions(), corpus.dtype)
        most = self.schedule.max_iter
        if checkpoints is not None and checkpoints.state is not None:
            return go_on(checkpoints.state, run, corpus.device, max_iter=most, verbose=verbose, checkpoints=checkpoints)
        # All starts first: the frames they are guessed from, joined, need not stay.
        firsts = [start.of_first_process() for start in starts]
        groups = in_groups(firsts, self._at_once(corpus))
        return best_of(groups, run, max_iter=most, verbose=verbose, checkpoints=checkpoints)

    def _at_once(self, corpus: Corpus) -> int:
        """How many starts EM takes side by side; every process must find the same."""
        if self.algorithm != "em" or self.emission.shares or corpus.device.type != "cpu":
            return 1
        return max(1, TOGETHER // (corpus.n_densities * sum(map(len, corpus.sequences))))

    def _em(
        self,
        blocks: list[Block],
        dtype: torch.dtype,
        starts: list[Parameters],
        observe: Observe,
        checkpoints: Checkpoints,
    ) -> list[Fitted]:
        most = self.schedule.max_seconds
        return baum_welch(
            starts,
            self.emission,
            blocks,
            pseudocount=self.learning.pseudocount,
            schedule=replace(self.schedule, max_seconds=most and most * len(starts)),
            dtype=dtype,
            n_units=self.n_units,
            log_det=self.log_det,
            observe=observe,
            constraints=self.learning.constraints,
            checkpoints=checkpoints,
        )

    def _gradient(
        self,
        portions: list[Portion],
        dtype: torch.dtype,
        starts: list[Parameters],
        observe: Observe,
        checkpoints: Checkpoints,
    ) -> list[Fitted]:
        run = partial(
            gradient_ascent,
            emission=self.emission,
            portions=portions,
            pseudocount=self.learning.pseudocount,
            schedule=self.schedule,
            dtype=dtype,
            lr=self.lr,
            n_units=self.n_units,
            log_det=self.log_det,
            observe=observe,
            checkpoints=checkpoints,
        )
        return [run(first) for first in starts]

    def _stepwise(
        self,
        corpus: Corpus,
        generator: torch.Generator,
        starts: list[Parameters],
        observe: Observe,
        checkpoints: Checkpoints,
    ) -> list[Fitted]:
        found = (self._stepwise_from(first, corpus, generator, observe, checkpoints) for first in starts)
        return [fitted for fitted in found if fitted is not None]

    def _stepwise_from(
        self, first: Parameters, corpus: Corpus, generator: torch.Generator, observe: Observe, checkpoints: Checkpoints
    ) -> Fitted | None:
        state = checkpoints.state
        if state is not None:
            generator.set_state(torch.tensor(state["generator"]))
        drawn_from = generator.get_state().numpy().copy()
        batches = corpus.batches(self.batches, generator, may_cut=is_ergodic(first.transition > NEGLIGIBLE))
        n_frames = sum(corpus.n_frames(batch) for batch in batches)
        return stepwise_em(
            first,
            self._steps(n_frames),
            corpus,
            batches,
            schedule=self.schedule,
            n_units=self.n_units,
            log_det=self.log_det,
            observe=observe,
            checkpoints=checkpoints.within({"generator": drawn_from}, None if state is None else state["running"]),
        )

    def one_step(
        self, parameters: Parameters, memory: Memory | None, corpus: Corpus, number: int
    ) -> tuple[Parameters, Memory, dict[str, float]]:
        """One M-step on what is remembered and all of the corpus; the history's line is of the corpus and the parameters before."""
        began = time.perf_counter()
        (batch,) = corpus.batches(1, torch.Generator(), may_cut=is_ergodic(parameters.transition > NEGLIGIBLE))
        own = expect_batch(parameters, self.emission, corpus, batch)
        assert own is not None, "nothing interrupts one step"
        (found,), _ = everywhere([own], [])
        steps = self._steps(None)
        after, kept = steps.take(parameters, memory, found, corpus.n_frames(batch))
        log_prob = (found.log_prob + self.log_det) / self.n_units
        row = {
            "step": number,
            "seconds": time.perf_counter() - began,
            "log_prob": log_prob,
            "objective": log_prob + steps.log_prior(parameters) / self.n_units,
            "floor_hits": int(self.emission.floor_hits(after.table).sum()),
        }
        return after, kept, row

    def starts(self, corpus: Corpus, n_states: int, n_init: int, seed: int, *, stops: bool) -> Iterator[Parameters]:
        """First guesses, of all that is in memory; of data read in batches, of the first."""
        blocks = corpus.blocks if self.algorithm != "stepwise" else self._first(corpus, n_states)
        return starts(
            self.emission,
            blocks,
            n_states,
            stops=stops,
            generators=[torch.Generator().manual_seed(seed + i) for i in range(n_init)],
            topology=self.learning.topology,
            tying=self.learning.constraints.tying,
        )

    def _first(self, corpus: Corpus, n_states: int) -> list[Block]:
        may_cut = is_ergodic(self.learning.topology.arcs(n_states))
        groups = corpus.batches(self.batches, torch.Generator().manual_seed(0), may_cut=may_cut)[0]
        return [corpus.block(group) for group in groups[: max(1, STARTED // ELEMENTS_AT_ONCE["cpu"])]]

    def _steps(self, n_frames: float | None) -> Steps:
        learning = self.learning
        return Steps(self.emission, learning.pseudocount, learning.constraints, self.step_decay, n_frames)


def corpus_of(
    examples: Sequence[Example], n_past: int, n_states: int, n_densities: int, device: torch.device, dtype: torch.dtype
) -> Corpus:
    """Sources and what follows them joined; the states of each where any sequence has some."""
    joined = [e.values if e.source is None else np.concatenate([e.source, e.values]) for e in examples]
    states = None
    if any(e.states is not None for e in examples):
        states = [np.full(len(x), -1) if e.states is None else e.states for x, e in zip(joined, examples, strict=True)]
        if any(known.ndim == 2 for known in states):
            states = [possible_states(torch.from_numpy(known), n_states).numpy() for known in states]
    return Corpus(joined, [e.weight for e in examples], states, n_past, n_states, n_densities, device, dtype)


def raw_size(examples: Sequence[Example], encoding: Encoding) -> tuple[float, float]:
    """Units and log-determinant of all that EM fits, sources too, by weight."""
    units, log_det = 0.0, 0.0
    for e in examples:
        units, log_det = units + e.weight * e.n_units, log_det + e.weight * e.log_det
        if e.source is not None:
            raw = encoding.decode(e.source)
            each = np.broadcast_to(encoding.log_det(raw), len(e.source))
            units += e.weight * len(raw.encode() if isinstance(raw, str) else raw)
            log_det += e.weight * float(each.sum())
    return units, log_det


def check_states(examples: Sequence[Example], n_states: int) -> None:
    """Raise ``ValueError``, naming the sequence, for labels that do not fit its encoded steps or the states there are."""
    for i, example in enumerate(examples):
        if example.states is None:
            continue
        n = len(example.values) + (0 if example.source is None else len(example.source))
        if example.states.ndim == 2:
            _check_possible(i, example.states, (n, n_states))
            continue
        if example.states.shape != (n,) or example.states.dtype.kind not in "iu":
            raise ValueError(
                f"states of sequence {i} have shape {example.states.shape} and type {example.states.dtype}; pass an integer for "
                f"each of its {n} encoded steps, -1 where the state is not known"
            )
        if example.states.min() < -1 or example.states.max() >= n_states:
            raise ValueError(
                f"states of sequence {i} go from {example.states.min()} to {example.states.max()}; pass 0 to {n_states - 1}, or "
                "-1 where the state is not known"
            )


def _check_possible(i: int, states: np.ndarray, shape: tuple[int, int]) -> None:
    if states.shape != shape or states.dtype != bool:
        raise ValueError(
            f"states of sequence {i} have shape {states.shape} and type {states.dtype}; pass booleans of shape {shape}, which states "
            "are possible at each encoded step, or an integer for each step"
        )
    if not states.any(1).all():
        raise ValueError(
            f"states of sequence {i} allow none at step {int(np.argmin(states.any(1)))}; allow at least one"
        )
