"""``Parameters``: all that EM learns, of the chain and of its emissions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from seqmodels.common.array_checks import array_of, check_between, check_sums
from seqmodels.common.distributed import broadcast_tensors, is_distributed


@dataclass(frozen=True)
class Parameters:
    """``initial (K,)``, ``transition (K, K)``, ``final (K,)`` or None, and the emissions' ``table (K, P)``; float64."""

    initial: Tensor
    transition: Tensor
    final: Tensor | None
    table: Tensor

    @classmethod
    def stack(cls, chains: Sequence[Parameters]) -> Parameters:
        """The parameters of R chains, each with a leading axis R."""
        finals = [chain.final for chain in chains if chain.final is not None]
        initial, transition, table = (
            torch.stack(arrays) for arrays in zip(*((c.initial, c.transition, c.table) for c in chains), strict=True)
        )
        return cls(initial, transition, torch.stack(finals) if finals else None, table)

    def to(self, device: torch.device) -> Parameters:
        """The same parameters on another device."""
        final = None if self.final is None else self.final.to(device)
        return Parameters(self.initial.to(device), self.transition.to(device), final, self.table.to(device))

    def of_first_process(self) -> Parameters:
        """The parameters of process 0, if there are several processes: rounding may differ from machine to machine."""
        if not is_distributed():
            return self
        ends = [] if self.final is None else [self.final]
        initial, transition, table, *final = broadcast_tensors([self.initial, self.transition, self.table, *ends])
        return Parameters(initial, transition, final[0] if final else None, table)

    def take(self, order: Tensor) -> Parameters:
        """State i as it was at ``order[i]``."""
        final = None if self.final is None else self.final[order]
        return Parameters(self.initial[order], self.transition[order][:, order], final, self.table[order])

    def arrays(self) -> dict[str, np.ndarray]:
        """By name, to be stored."""
        final = {} if self.final is None else {"final": self.final.numpy()}
        chain = {"initial": self.initial.numpy(), "transition": self.transition.numpy()}
        return {**chain, "table": self.table.numpy(), **final}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Parameters:
        """The inverse of ``arrays``."""
        t = {name: torch.tensor(array) for name, array in arrays.items()}
        return cls(t["initial"], t["transition"], t.get("final"), t["table"])


def check_arrays(arrays: Mapping[str, np.ndarray], n_states: int, *, has_end: bool) -> None:
    """Raise ``ValueError`` for what no fit of ``n_states`` could have found; the observation checks the table."""
    k, names = n_states, {"initial", "transition", "table", *(["final"] if has_end else [])}
    if arrays.keys() != names:
        raise ValueError(f"an HMM has {', '.join(sorted(names))}, but the file has {', '.join(sorted(arrays))}")
    array_of(arrays, "table", np.float64, (k, None))
    check_between("initial", array_of(arrays, "initial", np.float64, (k,)), 0)
    check_between("transition", array_of(arrays, "transition", np.float64, (k, k)), 0)
    check_sums("initial", arrays["initial"].sum(keepdims=True))
    final = check_between("final", array_of(arrays, "final", np.float64, (k,)), 0) if has_end else 0.0
    check_sums("transition", arrays["transition"].sum(1) + final)
