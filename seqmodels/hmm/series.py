"""States that last: each is sub-states in series that share one emission, so that its duration is no longer geometric.

A visit takes ``stages`` geometric times, one after the other. If all stay with probability q, its duration is negative binomial,
``p(d) = C(d - 1, stages - 1) (1 - q)^stages q^(d - stages)``; EM lets each stage have its own q. It is an ordinary chain, with the
topology and the tied states of ``HMM`` (Russell and Cook 1987, *Experimental evaluation of duration modelling techniques*).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from seqmodels.hmm.topology import Topology


@dataclass(eq=False, repr=False)
class Series(Topology):
    """``n_states / stages`` states of as many stages each: stay in a stage, go on to the next, from the last to another state.

    Pass ``tied=series.tied(n_states)`` too, or stages of one state emit differently. Stage s of state i is number
    ``i * stages + s``, so ``path // stages`` are the states of a decoded path. Sequences start in a first stage and may end in any.

    Args:
        stages: of each state; a visit lasts at least as many steps.

    Raises:
        ValueError: ``n_states`` is no multiple of ``stages``.

    >>> Series(2).arcs(4).int().tolist()
    [[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1], [1, 0, 0, 1]]
    >>> Series(2).tied(4)
    [0, 0, 1, 1]
    """

    stages: int

    @property
    def is_ordered(self) -> bool:
        return False

    def tied(self, n_states: int) -> list[int]:
        """The number of the state that each stage belongs to: ``HMM(tied=...)``."""
        if self.stages < 1 or n_states % self.stages:
            raise ValueError(
                f"n_states is {n_states}, no multiple of the {self.stages} stages of each state; pass states times stages"
            )
        return [stage // self.stages for stage in range(n_states)]

    def arcs(self, n_states: int) -> Tensor:
        state, stage = torch.tensor(self.tied(n_states)), torch.arange(n_states)
        onward = (stage == stage[:, None] + 1) & (state == state[:, None])
        leaves = self._last(n_states)[:, None] & self.starts(n_states) & (state != state[:, None])
        return torch.eye(n_states, dtype=torch.bool) | onward | leaves

    def starts(self, n_states: int) -> Tensor:
        self.tied(n_states)
        return torch.arange(n_states) % self.stages == 0

    def ends(self, n_states: int) -> Tensor:
        return torch.ones(n_states, dtype=torch.bool)

    def _last(self, n_states: int) -> Tensor:
        return torch.arange(n_states) % self.stages == self.stages - 1
