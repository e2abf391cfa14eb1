"""Training an HMM by gradient, through the loop that trains the networks: the same parameters and objective as EM's.

The gradient of ``log p`` is the E-step (``seqmodels.hmm.inference.autograd``); the chain's parameters are softmaxes of logits, those
of the observation are unconstrained already.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from seqmodels.distributed import add_up
from seqmodels.hmm.baum_welch import Fitted, Schedule, log_prior
from seqmodels.hmm.emissions import Emission
from seqmodels.hmm.inference.autograd import log_prob_of_segments
from seqmodels.hmm.inference.forward_backward import forward_pass
from seqmodels.hmm.parameters import Parameters
from seqmodels.hmm.pieces import Portion
from seqmodels.hmm.posterior import block_trellis, refuse_impossible
from seqmodels.hmm.priors import Pseudocounts
from seqmodels.training import Checkpoints, Recipe, Step, train

KEPT = 1 << 24  # frames times numbers of the table that densities may keep for the backward pass
CHUNK = 1 << 22  # beyond that they are computed in chunks of this size, and again in the backward pass


def gradient_ascent(
    parameters: Parameters,
    emission: Emission,
    portions: list[Portion],
    *,
    lr: float,
    pseudocount: Pseudocounts,
    schedule: Schedule,
    dtype: torch.dtype,
    n_units: float,
    log_det: float,
    observe: Callable[[dict[str, float]], None],
    checkpoints: Checkpoints | None = None,
) -> Fitted:
    """``schedule.max_iter`` passes of AdamW, one step a block, of which a process may have a portion; arguments as of ``baum_welch``.

    The last line of the history holds the figures of the parameters it ends with. In the lines before it ``log_prob`` is a mean over
    the steps since the line before, and ``objective`` is not known. It never stops by itself.

    What all states share (the first steps of an autoregression) is trained too, where EM leaves it as it starts.
    """
    module = Unconstrained(parameters, emission)
    history = pd.DataFrame({"step": [], "seconds": [], "log_prob": [], "objective": [], "floor_hits": []})
    if schedule.max_iter:
        objective = _Objective(module, portions, pseudocount, dtype, n_units, log_det)
        recipe = Recipe(None, schedule.max_iter, schedule.max_seconds, lr, weight_decay=0.0, patience=1)
        ran, _ = train(
            module,
            lambda _: portions,
            objective,
            None,
            recipe,
            len(portions),
            checkpoints=checkpoints,
            adds_up=True,
        )
        history = ran[history.columns].assign(objective=math.nan)
        parameters = module.detached()
    step, seconds = (0.0, 0.0) if history.empty else history[["step", "seconds"]].iloc[-1]
    log_prob = (_log_prob(parameters, emission, portions, dtype) + log_det) / n_units
    last = {
        "step": step,
        "seconds": seconds,
        "log_prob": log_prob,
        "objective": log_prob + log_prior(parameters, emission, pseudocount) / n_units,
        "floor_hits": float(emission.floor_hits(parameters.table).sum()),
    }
    observe(last)
    history.loc[len(history)] = last
    return Fitted(parameters, history, False, None)


class Unconstrained(nn.Module):
    """``Parameters`` as numbers that may take any value; probabilities that are zero stay zero."""

    def __init__(self, parameters: Parameters, emission: Emission) -> None:
        super().__init__()
        self.emission, self.stops = emission, parameters.final is not None
        arcs = parameters.transition
        if parameters.final is not None:
            arcs = torch.cat([arcs, parameters.final.unsqueeze(1)], 1)
        self.possible_initial: Tensor
        self.possible_arcs: Tensor
        self.register_buffer("possible_initial", parameters.initial > 0)
        self.register_buffer("possible_arcs", arcs > 0)
        self.initial = nn.Parameter(_logits(parameters.initial))
        self.arcs = nn.Parameter(_logits(arcs))
        self.table = nn.Parameter(parameters.table.clone())

    def forward(self) -> Parameters:
        initial = self.initial.masked_fill(~self.possible_initial, -torch.inf).softmax(-1)
        arcs = self.arcs.masked_fill(~self.possible_arcs, -torch.inf).softmax(-1)
        k = len(initial)
        final = arcs[:, k].contiguous() if self.stops else None
        return Parameters(initial, arcs[:, :k].contiguous(), final, self.emission.tie(self.table))

    @torch.no_grad()
    def detached(self) -> Parameters:
        """Plain numbers, as EM leaves them."""
        p: Parameters = self()
        return Parameters(p.initial, p.transition, p.final, p.table.detach().clone())


def _logits(probabilities: Tensor) -> Tensor:
    return torch.where(probabilities > 0, probabilities, 1.0).log()


class _Objective:
    """The log-probability of one block, and its share of the prior."""

    def __init__(
        self,
        module: Unconstrained,
        portions: list[Portion],
        pseudocount: Pseudocounts,
        dtype: torch.dtype,
        n_units: float,
        log_det: float,
    ) -> None:
        self.module, self.pseudocount, self.dtype = module, pseudocount, dtype
        self.n_units, self.log_det = n_units, log_det
        self.n_frames = sum(portion.weight for portion in portions)

    def __call__(self, batch: Any) -> Step:
        portion: Portion = batch
        block, parameters = portion.block, self.module()
        if block is None:
            nothing = sum((p.sum() for p in self.module.parameters()), torch.zeros(()))
            return Step(0 * nothing, portion.weight, torch.zeros(()), 0.0, torch.zeros(()))
        log_b = log_densities(self.module.emission, parameters.table.to(self.dtype), block.x, block.past)
        each = log_prob_of_segments(parameters.initial, parameters.transition, log_b, block.segments, parameters.final)
        refuse_impossible(each.detach(), block)
        total = block.weight * each.sum()
        share = block.weight * len(block.x) / self.n_frames
        return Step(
            total=total + share * self._log_prior(parameters),
            weight=portion.weight,
            log_prob=total.detach() + share * self.log_det,
            n_units=share * self.n_units,
            floor_hits=self.module.emission.floor_hits(parameters.table.detach()).sum(),
        )

    def _log_prior(self, parameters: Parameters) -> Tensor:
        return self.module.emission.log_prior(parameters.table) + self.pseudocount.log_prior(parameters)


def log_densities(emission: Emission, table: Tensor, x: Tensor, past: Tensor | None) -> Tensor:
    """(N, K) log p(x_t | state), differentiable in ``table (K, P)``; in memory a row of frames for each state."""
    observation, rows = emission.observation, table.unsqueeze(1)  # (K, 1, P)
    if observation.emits == "symbols":
        every = torch.arange(emission.size, device=x.device)
        return observation.log_prob(rows, every).index_select(1, x).T
    if len(x) * table.numel() <= KEPT:
        return observation.log_prob(rows, x, past).T
    size = max(1, CHUNK // table.numel())
    pasts = [None] * -(-len(x) // size) if past is None else past.split(size)
    pieces = [
        checkpoint(observation.log_prob, rows, frames, before, use_reentrant=False)
        for frames, before in zip(x.split(size), pasts, strict=True)
    ]
    return torch.cat(pieces, 1).T


@torch.no_grad()
def _log_prob(parameters: Parameters, emission: Emission, portions: list[Portion], dtype: torch.dtype) -> float:
    total = 0.0
    for block in (portion.block for portion in portions if portion.block is not None):
        densities, _ = emission.evaluate(parameters.table, block.x, block.past, dtype, block.scratch)
        found = forward_pass(block_trellis(parameters, densities, block))
        assert found.ends is not None
        total += block.weight * float((block.segments.totals(found.steps) + found.ends).sum())
    (everywhere,), _ = add_up([parameters.initial.new_tensor(total)])
    return float(everywhere)
