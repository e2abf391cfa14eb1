"""Effects of inputs on a fitted chain: probabilities and parameters of emissions at given inputs, with intervals.

An effect is a function of the unconstrained numbers u of a model (``hmm.coordinates``), whose covariance is the inverse
of the observed information. The delta method takes it to the effect, ``J Cov J'`` with ``J = ∂ effect / ∂u``. With
penalised terms the information has their penalties, so that the covariance is that of the posterior of all numbers,
given the variances of the terms (Wood 2017, *Generalized Additive Models*, section 6.10).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from seqmodels.hmm.chains.base import HiddenChain
from seqmodels.hmm.coordinates import Coordinates
from seqmodels.hmm.emissions.given_inputs import regressed_columns
from seqmodels.hmm.estimates import Estimate
from seqmodels.hmm.parameters import Parameters
from seqmodels.hmm.standard_errors import FitObjective, Information, wald_interval, warn_far
from seqmodels.hmm.state_queries import closed_classes
from seqmodels.inference.chains.given_inputs import log_initial

if TYPE_CHECKING:
    import pandas as pd

ROUNDING = 1e-12  # share of a quantity below which its standard error is that of rounding
EffectOn = Literal["transitions", "stationary", "first_state", "emissions", "durations"]
PARTS: dict[EffectOn, tuple[tuple[str, ...], str]] = {  # the slopes that each depends on, and what they are of
    "transitions": (("transition_slopes",), "transitions"),
    "stationary": (("transition_slopes", "duration_slopes"), "transitions"),
    "first_state": (("initial_slopes",), "first state"),
    "emissions": (("table_slopes",), "emissions"),
    "durations": (("duration_slopes",), "durations"),
}


@dataclass(frozen=True)
class Effects:
    """Q quantities of a model at the inputs of a step, as a function of its parameters.

    Attributes:
        estimates: a description of each quantity.
        at: function of parameters, and of the C columns that the model reads at a step, ``(C,)``, that returns the
            quantities, ``(Q,)``, differentiable in the parameters.
    """

    estimates: Sequence[Estimate]
    at: Callable[[Parameters, Tensor], Tensor]

    @classmethod
    def of(
        cls, on: EffectOn, chain: HiddenChain[Any], coordinates: Coordinates, shift: Tensor, scale: Tensor
    ) -> Effects:
        """Return the quantities of one part of a model.

        Args:
            on: the part.
            chain: the hidden chain.
            coordinates: the parameters and the emission of the states.
            shift: raw values of D features are ``shift + scale * encoded``, ``(D,)``.
            scale: see ``shift``, ``(D,)``.

        Raises:
            ValueError: the part depends on no inputs, or there are several stationary distributions.
        """
        p, emission = coordinates.parameters, coordinates.emission
        slopes, part = PARTS[on]
        if all(getattr(p, name) is None for name in slopes):
            raise ValueError(f"no input changes the {part} of the model; name some in input_effects")
        if on == "emissions":
            return cls.of_emissions(coordinates, shift, scale)
        if on == "first_state":
            first = (p.initial > 0).nonzero()[:, 0]

            def of_first(p: Parameters, step: Tensor) -> Tensor:
                assert p.initial_slopes is not None
                return log_initial(p.initial, p.initial_slopes, step[None])[0, first].exp()

            return cls([Estimate("initial", (j,), j, None, "logit") for j in first.tolist()], of_first)
        if on == "durations":

            def of_durations(p: Parameters, step: Tensor) -> Tensor:
                return chain.mean_durations_at(p, emission, step[None])[0]

            each = [Estimate("mean_durations", (j,), j, None, "log") for j in range(len(p.initial))]
            return cls(each, of_durations)
        if on == "transitions":
            pairs = (p.transition > 0).nonzero()

            def of_pairs(p: Parameters, step: Tensor) -> Tensor:
                return chain.transitions_at(p, step[None])[0][pairs[:, 0], pairs[:, 1]]

            return cls([Estimate("transition", (i, j), i, j, "logit") for i, j in pairs.tolist()], of_pairs)
        states, *others = (torch.as_tensor(each) for each in closed_classes(p.transition.numpy(), None))
        if others:
            raise ValueError(
                "some states are never left for others, so that there are several stationary distributions; pass "
                "'transitions'"
            )

        def of_shares(p: Parameters, step: Tensor) -> Tensor:
            return chain.stationary_at(p, emission, step[None])[0, states]

        return cls([Estimate("stationary", (j,), j, None, "logit") for j in states.tolist()], of_shares)

    @classmethod
    def of_emissions(cls, coordinates: Coordinates, shift: Tensor, scale: Tensor) -> Effects:
        """Return the parameters of emissions that depend on inputs, in raw units; the arguments are those of ``of``."""
        p, emitted = coordinates.parameters, coordinates.emitted
        places = regressed_columns(coordinates.emission).places
        moved = p.table.clone()
        moved[:, places] += torch.linspace(0.1, 0.2, len(places), dtype=moved.dtype)
        before, after = emitted.raw(p.table, shift, scale), emitted.raw(moved, shift, scale)
        estimates = [
            each
            for each in emitted.estimates(p.table)
            if each.state is not None and before[each.name][each.index] != after[each.name][each.index]
        ]

        def of_table(p: Parameters, step: Tensor) -> Tensor:
            assert p.table_slopes is not None
            raw = emitted.raw(p.table + p.table_slopes @ step, shift, scale)
            return torch.stack([raw[each.name][each.index] for each in estimates])

        return cls(estimates, of_table)


def effects_table(objective: FitObjective, effects: Effects, steps: Tensor, level: float) -> pd.DataFrame:
    """Return the quantities at n steps with their standard errors and intervals, a row for each step and quantity.

    The columns are ``step``, the number of the step, ``name``, ``state``, ``feature``, ``estimate``,
    ``standard_error``, ``ci_low`` and ``ci_high``.

    Args:
        objective: what ``fit`` maximises on the training data, as a function of numbers that are zero at the estimates.
        effects: the Q quantities.
        steps: the C columns that the model reads at each step, ``(n, C)``.
        level: probability with which an interval is to contain the true value.
    """
    import pandas as pd

    information, coordinates = Information.of(objective.information()), objective.coordinates
    newton, u = objective.newton_step(information), torch.zeros(coordinates.n, dtype=torch.float64)
    values, errors, moved = [], [], []
    for step in steps:

        def at(u: Tensor, step: Tensor = step) -> Tensor:
            return effects.at(coordinates.at(u)[0], step)

        jacobian, value = torch.autograd.functional.jacobian(at, u), at(u)
        error = (jacobian @ information.root).square().sum(1).sqrt()
        has_error = information.is_identified(jacobian) & (error > ROUNDING * value.abs())
        values.append(value)
        moved.append(jacobian @ newton)
        errors.append(error.where(has_error, torch.nan))
    rows = list(product(range(len(steps)), effects.estimates))
    estimates, distances = [row for _, row in rows], (torch.cat(moved) / torch.cat(errors)).abs().nan_to_num()
    warn_far(estimates, distances)
    estimate, error = torch.cat(values).numpy(), torch.cat(errors).numpy()
    intervals = [
        wald_interval(*each, level)
        for each in zip(estimate.tolist(), error.tolist(), [row.link for row in estimates], strict=True)
    ]
    return pd.DataFrame(
        {
            "step": np.array([t for t, _ in rows]),
            "name": [row.name for row in estimates],
            "state": [row.state for row in estimates],
            "feature": pd.Series([row.feature for row in estimates], dtype=object),
            "estimate": estimate,
            "standard_error": error,
            "ci_low": [low for low, _ in intervals],
            "ci_high": [high for _, high in intervals],
        }
    )
