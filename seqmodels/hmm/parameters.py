"""``Parameters``: all parameters that EM learns, of the chain and of its emissions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from seqmodels.common.array_checks import array_of, check_between, check_sums
from seqmodels.common.distributed import broadcast_tensors, is_distributed

SLOPES = ("transition_slopes", "table_slopes", "initial_slopes", "duration_slopes")  # as in ``Parameters.slopes``


@dataclass(frozen=True)
class Parameters:
    """The parameters of one chain of K states and of its emissions, in float64.

    If they depend on U standardised inputs u, ``initial``, ``transition`` and ``table`` hold where all inputs are at
    their mean. An ``HSMM`` has transitions from segment to segment, and parameters of durations in the table.

    Attributes:
        initial: probabilities of the first state, ``(K,)``.
        transition: transition probabilities, ``(K, K)``.
        final: probability of the end after each state, ``(K,)``; None if the end is not an event.
        table: output parameters of the emissions: for each state the P numbers that the observation takes, ``(K, P)``.
        transition_slopes: ``d log a_ij / d u`` before each row is normalised, ``(K, K, U)``; in continuous time those
            of rates, ``d log q_ij / d u``. None if transitions do not depend on inputs.
        table_slopes: ``d table / d u``, ``(K, P, U)``; None if emissions do not depend on inputs.
        initial_slopes: ``d log π_j / d u`` before they are normalised, for the inputs of the first step, ``(K, U)``;
            None if the first state does not depend on inputs.
        duration_slopes: ``d log p_j(d) / d u`` divided by ``d - 1`` before it is normalised, for the inputs of the
            first step of a segment of an ``HSMM``, ``(K, U)``; None if durations do not depend on inputs.
        generator: generator Q of a chain in continuous time, ``(K, K)``; ``transition`` is then ``exp(Q)``, that over
            one unit of time. None means that all steps take the same time.
    """

    initial: Tensor
    transition: Tensor
    final: Tensor | None
    table: Tensor
    transition_slopes: Tensor | None = None
    table_slopes: Tensor | None = None
    initial_slopes: Tensor | None = None
    duration_slopes: Tensor | None = None
    generator: Tensor | None = None

    @property
    def slopes(self) -> tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]:
        """Slopes on inputs of transitions, table, first state and durations, in this order; None for a part without."""
        return self.transition_slopes, self.table_slopes, self.initial_slopes, self.duration_slopes

    @property
    def has_one_matrix(self) -> bool:
        """True if transition probabilities are the same at all steps."""
        return self.transition_slopes is None and self.generator is None

    @classmethod
    def stack(cls, chains: Sequence[Parameters]) -> Parameters:
        """Return the parameters of R chains, ``chains``, in one object whose arrays have a leading axis R.

        Slopes and generators are left out.
        """
        finals = [chain.final for chain in chains if chain.final is not None]
        initial, transition, table = (
            torch.stack(arrays) for arrays in zip(*((c.initial, c.transition, c.table) for c in chains), strict=True)
        )
        return cls(initial, transition, torch.stack(finals) if finals else None, table)

    def detached(self) -> Parameters:
        """Return the same parameters as tensors without a gradient, cut off from the graph that computed them."""
        return replace(self, **{name: each.detach() for name, each in vars(self).items() if each is not None})

    def to(self, device: torch.device) -> Parameters:
        """Return the parameters on another ``device``."""
        final = None if self.final is None else self.final.to(device)
        slopes = (None if each is None else each.to(device) for each in self.slopes)
        initial, transition, table = (each.to(device) for each in (self.initial, self.transition, self.table))
        moved = Parameters(initial, transition, final, table, *slopes)
        return moved if self.generator is None else replace(moved, generator=self.generator.to(device))

    def of_first_process(self) -> Parameters:
        """Return the parameters of process 0 in every process of distributed training, because rounding may differ."""
        if not is_distributed():
            return self
        tensors = {name: t for name, t in vars(self).items() if t is not None}
        return Parameters(
            **{**vars(self), **dict(zip(tensors, broadcast_tensors(list(tensors.values())), strict=True))}
        )

    def take(self, order: Tensor) -> Parameters:
        """Return the parameters with states renumbered: the new state i is the old state ``order[i]``.

        ``order`` is a permutation of the K states, ``(K,)`` integers.
        """
        final = None if self.final is None else self.final[order]
        of_transition = None if self.transition_slopes is None else self.transition_slopes[order][:, order]
        others = (None if each is None else each[order] for each in self.slopes[1:])
        transition, slopes = self.transition[order][:, order], (of_transition, *others)
        taken = Parameters(self.initial[order], transition, final, self.table[order], *slopes)
        return taken if self.generator is None else replace(taken, generator=self.generator[order][:, order])

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the parameters that are not None as arrays by name, in the form in which a file stores them."""
        final = {} if self.final is None else {"final": self.final.numpy()}
        chain = {"initial": self.initial.numpy(), "transition": self.transition.numpy()}
        optional = zip((*SLOPES, "generator"), (*self.slopes, self.generator), strict=True)
        given = {name: each.numpy() for name, each in optional if each is not None}
        return {**chain, "table": self.table.numpy(), **final, **given}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Parameters:
        """Return the parameters stored as arrays by name, in the form that ``arrays()`` returns."""
        t = {name: torch.tensor(array) for name, array in arrays.items()}
        slopes = {name: t.get(name) for name in SLOPES}
        generator = t.get("generator")
        return cls(t["initial"], t["transition"], t.get("final"), t["table"], **slopes, generator=generator)


def check_arrays(
    arrays: Mapping[str, np.ndarray],
    n_states: int,
    *,
    has_end: bool,
    slopes: Sequence[str] = (),
    n_inputs: int = 0,
    n_rows: int | None = None,
) -> None:
    """Raise ``ValueError`` for arrays, read from a file, that cannot be fitted parameters of a chain.

    Names, shapes and probabilities are checked; the contents of the emission table are left to the observation.

    Args:
        arrays: arrays of a file by name.
        n_states: number of states, K.
        has_end: True if there should be an array ``final``, with probabilities of the end.
        slopes: names of further arrays that there should be, of slopes on inputs or ``"generator"``.
        n_inputs: number of inputs, U, the last axis of slopes.
        n_rows: number of rows of ``transition`` where they are not the K states; None for K.
    """
    n_rows = n_states if n_rows is None else n_rows
    k, names = n_states, {"initial", "transition", "table", *(["final"] if has_end else []), *slopes}
    if arrays.keys() != names:
        raise ValueError(f"an HMM has {', '.join(sorted(names))}, but the file has {', '.join(sorted(arrays))}")
    table = array_of(arrays, "table", np.float64, (k, None))
    shapes = {
        "transition_slopes": (k, k, n_inputs),
        "table_slopes": (k, table.shape[1], n_inputs),
        "initial_slopes": (k, n_inputs),
        "duration_slopes": (k, n_inputs),
        "generator": (k, k),
    }
    for name in slopes:
        if not np.isfinite(array_of(arrays, name, np.float64, shapes[name])).all():
            raise ValueError(f"{name} should be finite")
    check_between("initial", array_of(arrays, "initial", np.float64, (k,)), 0)
    check_between("transition", array_of(arrays, "transition", np.float64, (n_rows, k)), 0)
    check_sums("initial", arrays["initial"].sum(keepdims=True))
    final = check_between("final", array_of(arrays, "final", np.float64, (n_rows,)), 0) if has_end else 0.0
    check_sums("transition", arrays["transition"].sum(1) + final)
