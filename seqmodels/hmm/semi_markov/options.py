"""The hyperparameters of ``HSMM`` that determine how its chain is learned, with the checks of their values."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from seqmodels.hmm.learning.constraints import TABLES, Constraints, Frozen, Tying
from seqmodels.hmm.learning.options import ChainArguments, ChainOptions, chosen_pseudocounts
from seqmodels.hmm.parameters import Parameters
from seqmodels.hmm.semi_markov.expectations import SegmentConstraints
from seqmodels.hmm.topology import Arcs, Topology, as_topology
from seqmodels.observations import Observation


@dataclass(frozen=True)
class SegmentOptions:
    """The structure of an HSMM of K states for EM: which transitions exist, and what is tied or frozen.

    Attributes:
        chain: options of the chain from segment to segment: possible transitions, frozen ones, and the prior.
        steps: topology of the ordinary HMM from which EM starts, whose transitions are from step to step.
        constraints: states that share or keep their emission or durations.
        frozen: parameters that EM leaves unchanged.
    """

    chain: ChainOptions
    steps: Topology
    constraints: SegmentConstraints
    frozen: Frozen

    @classmethod
    def of(cls, arguments: ChainArguments, tied_durations: Any, *, follows_itself: bool) -> SegmentOptions:
        """Return the options that arguments of ``HSMM`` stand for.

        Args:
            arguments: number of states, topology, what is tied and frozen, and pseudocounts, as the user passed them.
            tied_durations: a group number for each state, whose states share their durations, or None.
            follows_itself: True if a state may follow itself, as states with geometric durations do.

        Raises:
            ValueError: a value is not allowed, or geometric durations are tied or frozen.
        """
        n_states, length = arguments.n_states, arguments.length
        k, chosen = n_states, as_topology(arguments.topology, n_states)
        names = (*TABLES, "durations")
        what = Frozen.of(arguments.frozen, k, names)
        if follows_itself and (tied_durations is not None or what.rows(what.durations, k).any()):
            raise ValueError(
                "geometric durations are the transitions of states to themselves, which cannot be tied or frozen by "
                "themselves; leave tied_durations out and freeze transition, or pass another family"
            )
        masks = chosen.transition_mask(k), chosen.initial_mask(k).tolist(), chosen.final_mask(k).tolist()
        segments = chosen
        if not follows_itself:
            after = successors(masks[0], chosen.final_mask(k) if length == "stop" else None)
            segments = Arcs(after.tolist(), *masks[1:], chosen.is_ordered)
        steps = chosen
        if not follows_itself and not masks[0].diagonal().all():
            steps = Arcs((masks[0] | torch.eye(k, dtype=torch.bool)).tolist(), *masks[1:], chosen.is_ordered)
        of_chain = Constraints(Frozen(what.initial, what.transition), Tying.from_argument(None, k))
        emission, durations = Tying.from_argument(arguments.tied, k), _tied_durations(tied_durations, k)
        constraints = SegmentConstraints(
            emission,
            durations,
            emission.whole_groups(what.rows(what.emission, k)),
            durations.whole_groups(what.rows(what.durations, k)),
        )
        chain = ChainOptions(segments, of_chain, chosen_pseudocounts(arguments.pseudocount, k, length))
        return cls(chain, steps, constraints, what)

    def check_together(self, observation: Observation) -> None:
        """Raise ``ValueError`` for tied or frozen states where the ``observation`` of the states allows none."""
        of_emission = Constraints(self.frozen, self.constraints.emission)
        replace(self.chain, constraints=of_emission).check_together(observation)

    def check_start(self, parameters: Parameters, length: str, tables: tuple[Tensor, Tensor]) -> None:
        """Raise ``ValueError`` if EM cannot continue from given parameters under these options.

        Args:
            parameters: parameters of the HSMM.
            length: ``"given"`` or ``"stop"``, the model's argument.
            tables: output parameters of the states, ``(K, P)``, and parameters of their durations, ``(K, Q)``, which
                must be equal for tied states.
        """
        self.chain.check_start(parameters, length)
        for name, tying, table in zip(("emissions", "durations"), self.constraints.tyings, tables, strict=True):
            if not torch.equal(tying.spread(tying.one_each(table)), table):
                raise ValueError(
                    f"states that are tied have different {name}, so EM cannot continue from them; leave "
                    f"{'tied' if name == 'emissions' else 'tied_durations'} out, or fit with warm_start=False"
                )


def successors(mask: Tensor, final_mask: Tensor | None) -> Tensor:
    """Return a mask ``(K, K)`` that is True where state j may follow a segment of state i.

    A state is not followed by itself, except where no other state and no end may follow it; so a single state is.

    Args:
        mask: True where the topology allows state j after state i, ``(K, K)``.
        final_mask: True where a sequence may end, ``(K,)``; None if ends are no events.
    """
    k = len(mask)
    if k == 1:
        return torch.ones_like(mask)
    others = mask & ~torch.eye(k, dtype=torch.bool)
    is_last = ~others.any(1)
    if final_mask is not None:
        is_last &= ~final_mask
    return others | torch.diag(is_last)


def _tied_durations(choice: Any, n_states: int) -> Tying:
    try:
        return Tying.from_argument(choice, n_states)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"tied_durations is {choice!r}; pass a group number for each of the {n_states} states, as [0, 0, 1, ...]"
        ) from error
