"""Training a hidden chain by gradient, with the loop that trains networks and the objective of EM.

The gradient of ``log p`` is the E-step (``inference.chains.autograd``). The chain's probabilities are softmaxes of
logits, and the rates of a chain in continuous time are exponentials. The emission says which numbers stand for its
table (``Emission.unbounded``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from seqmodels.common.distributed import all_reduce_sum, is_rank_zero
from seqmodels.hmm.corpus import PackedBatch, Portion
from seqmodels.hmm.emissions import Emission
from seqmodels.hmm.learning.constraints import Constraints
from seqmodels.hmm.learning.em import MAPObjective
from seqmodels.hmm.learning.first_state import Start, differentiable_stationary
from seqmodels.hmm.learning.given_inputs import InputOptions
from seqmodels.hmm.parameters import SLOPES, Parameters
from seqmodels.inference.chains.autograd import log_prob_of_segments
from seqmodels.inference.chains.continuous_time import differentiable_log_transitions, generator_of, without_diagonal
from seqmodels.inference.chains.given_inputs import log_transitions
from seqmodels.training import (
    BatchResult,
    Callback,
    Checkpoints,
    FitResult,
    Row,
    StopRule,
    TrainConfig,
    interruptible,
    train,
)

MAX_KEPT = 1 << 24  # most frames times numbers of the table that are kept for the backward pass; bounds memory
RECOMPUTED = 1 << 22  # size of the blocks that are computed again in the backward pass where more would be kept


class DifferentiableChain(Protocol):
    """The methods that training by gradient needs of a hidden Markov chain, which every ``HiddenChain`` has."""

    def log_prob_of_batch(self, parameters: Parameters, emission: Emission, batch: PackedBatch) -> Tensor:
        """Return log p(x) of each sequence of a batch in nats, ``(n,)`` float64, of which the sum is differentiable.

        Args:
            parameters: parameters of the chain and its emissions.
            emission: the emission distribution.
            batch: n sequences.
        """

    def forward_log_prob(
        self, parameters: Parameters, emission: Emission, batch: PackedBatch, dtype: torch.dtype
    ) -> Tensor:
        """Return log p(x) of each sequence of a batch in nats, ``(n,)``, by the forward pass that is also used for
        scores.

        Args:
            parameters: parameters of the chain and its emissions.
            emission: the emission distribution.
            batch: n sequences.
            dtype: precision of the emission densities.
        """

    def refuse(self, impossible: Sequence[int]) -> None:
        """Raise ``ValueError`` if ``impossible``, the numbers of sequences of probability zero, is not empty; it names
        the first.
        """


def gradient_ascent(
    start: Parameters,
    chain: DifferentiableChain,
    objective: MAPObjective,
    portions: list[Portion],
    dtype: torch.dtype,
    stop: StopRule,
    *,
    lr: float,
    callback: Callback,
    checkpoints: Checkpoints | None = None,
) -> FitResult[Parameters]:
    """Train the parameters of a hidden Markov chain with AdamW for ``stop.max_iter`` epochs, with one step per batch.

    The last row of the history holds the log-probability and the objective at the final parameters. In the rows before
    it ``log_prob`` is a mean over the steps since the previous row, and ``objective`` is NaN. Training never counts as
    converged.

    Parameters that all states share (those of the first steps of an autoregression) are trained too, although EM leaves
    them at their initial values.

    Args:
        start: the parameters to begin with.
        chain: the kind of chain, which computes log-probabilities.
        objective: the objective to maximise.
        portions: this process's portion of each batch.
        dtype: precision of the computation.
        stop: the number of epochs and the limit in seconds.
        lr: peak learning rate.
        callback: is called with the last row of the history.
        checkpoints: where to write progress, and what to resume from; None writes none.
    """
    import pandas as pd

    of_chain = (objective.start, objective.inputs, objective.constraints)
    module = Unconstrained(start, objective.emission, *of_chain)
    parameters, is_interrupted = start, False
    history = pd.DataFrame({"step": [], "seconds": [], "log_prob": [], "objective": [], "floor_hits": []})
    if stop.max_iter:
        config = TrainConfig(None, stop.max_iter, stop.max_seconds, lr, weight_decay=0.0, patience=1)
        with interruptible() as interruption:
            trained, _ = train(
                module,
                lambda _: portions,
                _BlockObjective(module, chain, objective, portions, dtype),
                None,
                config,
                len(portions),
                checkpoints=checkpoints,
                parallel="replicate",
            )
            is_interrupted = interruption.requested and trained["step"].iloc[-1] < stop.max_iter * len(portions)
        history = trained[history.columns].assign(objective=math.nan)
        parameters = module.detached()
    step, seconds = (0.0, 0.0) if history.empty else history[["step", "seconds"]].iloc[-1]
    log_prob = _log_prob(chain, parameters, objective.emission, portions, dtype)
    row = objective.row(step, seconds, log_prob, objective.log_prior(parameters), parameters.table)
    last = {name: float(value) for name, value in row.items()}
    callback(last)
    history.loc[len(history)] = last
    rows: list[Row] = [dict(zip(row, each, strict=True)) for each in history.to_numpy(float).tolist()]
    return FitResult(parameters, rows, False, interrupted=is_interrupted)


class Unconstrained(nn.Module):
    """A module whose weights are the parameters of a hidden Markov chain on an unconstrained scale, for gradient
    training.

    They are logits of probabilities or logarithms of rates, output parameters and slopes on inputs. Calling the
    module returns ``Parameters``. Probabilities and rates that are zero at the start stay zero. Weights of frozen
    parameters have a gradient of zero, so that they stay as they are.

    Args:
        parameters: parameters to start from.
        emission: the emission distribution.
        start: how the distribution of the first state is determined; only a ``"free"`` one has weights.
        inputs: which parameters are regressed on inputs; None means none.
        constraints: frozen parameters, and states that share an emission; None means neither.
    """

    def __init__(
        self,
        parameters: Parameters,
        emission: Emission,
        start: Start = "free",
        inputs: InputOptions | None = None,
        constraints: Constraints | None = None,
    ) -> None:
        super().__init__()
        self.emission, self.start = emission, start
        self.constraints = constraints or Constraints.none(len(parameters.initial))
        is_fixed = start != "free" or self.constraints.frozen.initial
        self.has_final = parameters.final is not None
        self.has_rates = parameters.generator is not None
        transition_and_final = parameters.transition
        if parameters.generator is not None:
            transition_and_final = without_diagonal(parameters.generator)
        if parameters.final is not None:
            transition_and_final = torch.cat([transition_and_final, parameters.final.unsqueeze(1)], 1)
        self.possible_initial: Tensor
        self.possible_arcs: Tensor
        self.register_buffer("possible_initial", parameters.initial > 0)
        self.register_buffer("possible_arcs", transition_and_final > 0)
        self.initial: Tensor
        if not is_fixed:
            self.initial = nn.Parameter(_logits(parameters.initial))
        else:  # a buffer, because the distribution is fixed or follows from the transitions
            self.register_buffer("initial", _logits(parameters.initial))
        self.arcs = nn.Parameter(_logits(transition_and_final))
        self.table = nn.Parameter(emission.unbounded(parameters.table).clone())
        kept_rows = self.constraints.kept_rows(parameters)[:, None]
        kept_numbers = self.constraints.kept_numbers(parameters.table, emission)
        _freeze(self.arcs, kept_rows)
        _freeze(self.table, kept_numbers)
        of_durations = ~emission.has_free_durations(len(parameters.initial))[:, None]
        kept_slopes = (kept_rows[:, :, None], kept_numbers[:, :, None], torch.tensor(is_fixed), of_durations)
        self.slopes, self.are_free = nn.ParameterDict(), nn.Module()
        free = (inputs or InputOptions()).free_slopes(parameters, emission)
        for name, slopes, is_free, is_kept in zip(SLOPES, parameters.slopes, free, kept_slopes, strict=True):
            if slopes is not None:
                self.slopes[name] = nn.Parameter(slopes.clone())
                _freeze(self.slopes[name], is_kept)
                self.are_free.register_buffer(name, is_free)

    def forward(self) -> Parameters:
        initial = self.initial.masked_fill(~self.possible_initial, -torch.inf).softmax(-1)
        arcs, k, generator = self.arcs.masked_fill(~self.possible_arcs, -torch.inf), len(initial), None
        if self.has_rates:
            generator = generator_of(arcs.exp())
            transition_and_final = differentiable_log_transitions(generator, generator.new_ones(1))[0].exp()
        else:
            transition_and_final = arcs.softmax(-1)
        transition = transition_and_final[:, :k].contiguous()
        if self.start == "stationary":
            initial = differentiable_stationary(transition, ends=self.has_final)
        final = transition_and_final[:, k].contiguous() if self.has_final else None
        slopes = {name: each * self.are_free.get_buffer(name) for name, each in self.slopes.items()}
        if "table_slopes" in slopes:
            slopes["table_slopes"] = self.constraints.tying_of(self.emission).shared(slopes["table_slopes"])
        if "duration_slopes" in slopes:
            slopes["duration_slopes"] = self.emission.with_shared_durations(slopes["duration_slopes"])
        table = self.emission.of_unbounded(self.constraints.tying.shared(self.table))
        return Parameters(initial, transition, final, table, **slopes, generator=generator)

    @torch.no_grad()
    def detached(self) -> Parameters:
        """Return the current parameters of the chain as tensors without gradients."""
        p: Parameters = self()
        return replace(p, table=p.table.detach().clone())


def _freeze(weights: Tensor, is_kept: Tensor) -> None:
    """Make the gradient of ``weights`` zero where the mask ``is_kept``, which is broadcast to their shape, is True."""
    is_kept = is_kept.to(weights.device)
    if bool(is_kept.any()):
        weights.register_hook(lambda gradient: gradient.masked_fill(is_kept, 0.0))


def _logits(probabilities: Tensor) -> Tensor:
    return torch.where(probabilities > 0, probabilities, 1.0).log()


class _BlockObjective:
    """The loss function of training: the log-probability of one batch plus the batch's share of the log-prior."""

    def __init__(
        self,
        module: Unconstrained,
        chain: DifferentiableChain,
        objective: MAPObjective,
        portions: list[Portion],
        dtype: torch.dtype,
    ) -> None:
        self.module = module
        self.chain = chain
        self.objective = objective
        self.dtype = dtype
        self.n_frames = sum(portion.batch_frames for portion in portions)

    def __call__(self, portion: Portion, /) -> BatchResult:
        packed, parameters = portion.packed, self.module()
        if packed is None:
            zero = 0 * sum((p.sum() for p in self.module.parameters()), torch.zeros(()))
            return BatchResult(zero, portion.batch_frames, torch.zeros(()), 0.0, torch.zeros(()))
        emission, objective = self.module.emission, self.objective
        in_dtype = replace(parameters, table=parameters.table.to(self.dtype))
        log_prob = self.chain.log_prob_of_batch(in_dtype, emission, packed)
        self.chain.refuse(packed.impossible(log_prob.detach()))
        weighted_log_prob = packed.weight * log_prob.sum()
        share = packed.weight * len(packed.x) / self.n_frames
        log_prior = objective.log_prior_of(parameters)
        return BatchResult(
            weighted_log_prob=weighted_log_prob + share * log_prior,
            weight=portion.batch_frames,
            log_prob=weighted_log_prob.detach() + share * objective.log_det,
            n_units=share * objective.n_units,
            # Only process 0 counts states on a floor, because all processes have the same table.
            floor_hits=emission.floor_hits(parameters.table.detach()).sum() * is_rank_zero(),
        )


def log_prob_of_batch(emission: Emission, parameters: Parameters, batch: PackedBatch) -> Tensor:
    """Return log p(x) of each sequence of a batch in nats, ``(n,)``, differentiable in the parameters.

    The computation has the precision of ``parameters.table``, or float64 if emissions depend on inputs.

    Args:
        emission: the emission distribution.
        parameters: parameters of the chain and its emissions.
        batch: n sequences.
    """
    p, log_a = parameters, None
    if p.table_slopes is None:
        log_b = log_densities(emission, p.table, batch.x, batch.past)
    else:
        log_b = batch.log_densities_given_inputs(emission, p)
    if p.generator is not None:
        assert batch.gaps is not None
        log_a = differentiable_log_transitions(p.generator, batch.gaps, p.transition_slopes, batch.inputs)
    elif p.transition_slopes is not None:
        assert batch.inputs is not None
        log_a = log_transitions(p.transition, p.transition_slopes, batch.inputs)
    return log_prob_of_segments(batch.initial(p), p.transition, log_b, batch.segments, p.final, log_a)


def log_densities(emission: Emission, table: Tensor, x: Tensor, past: Tensor | None) -> Tensor:
    """Return log p(x_t | state) of each of N frames in each of K states, ``(N, K)``, differentiable in ``table``.

    The result is a transposed view: in memory the frames of one state stand beside each other.

    Args:
        emission: the emission distribution.
        table: P output parameters of each state, ``(K, P)``.
        x: encoded frames, ``(N, D)``, or symbols, ``(N,)``.
        past: frames before each frame, for an autoregression; else None.
    """
    observation, table_by_state = emission.observation, table.unsqueeze(1)  # (K, 1, P)
    if observation.emits == "symbols":
        symbols = torch.arange(emission.size, device=x.device)
        return observation.log_prob(table_by_state, symbols).index_select(1, x).T
    if len(x) * table.numel() <= MAX_KEPT:
        return observation.log_prob(table_by_state, x, past).T
    size = max(1, RECOMPUTED // table.numel())
    pasts = [None] * -(-len(x) // size) if past is None else past.split(size)
    parts = [
        checkpoint(observation.log_prob, table_by_state, frames, past_of_frames, use_reentrant=False)
        for frames, past_of_frames in zip(x.split(size), pasts, strict=True)
    ]
    return torch.cat(parts, 1).T


@torch.no_grad()
def _log_prob(
    chain: DifferentiableChain,
    parameters: Parameters,
    emission: Emission,
    portions: list[Portion],
    dtype: torch.dtype,
) -> float:
    log_prob = 0.0
    for packed in (portion.packed for portion in portions if portion.packed is not None):
        log_prob += packed.weight * float(chain.forward_log_prob(parameters, emission, packed, dtype).sum())
    (over_processes,), _ = all_reduce_sum([parameters.initial.new_tensor(log_prob)])
    return float(over_processes)
