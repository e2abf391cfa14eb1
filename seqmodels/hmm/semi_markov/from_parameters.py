"""The durations that users pass to ``HSMM.from_parameters``, checked and converted to a family and its table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqmodels.common.array_checks import numbers_of
from seqmodels.hmm.parameters import Parameters
from seqmodels.hmm.semi_markov.durations import LARGEST_LOG_SUCCESS, DurationName

SUMS_TO_ONE = 1e-6


def duration_table(k: int, given: Mapping[str, Any]) -> tuple[DurationName, Tensor]:
    """Return the family of durations that the user's arguments imply, and its table of parameters, ``(K, Q)`` float64.

    A row of the table has the Q parameters of one state's durations, as that family's ``DurationFamily`` takes them.

    Args:
        k: number of states, K.
        given: arguments of ``HSMM.from_parameters`` by name; one that is None counts as not given. ``durations (K, D)``
            is a categorical family, ``duration_rates (K,)`` Poisson, ``duration_sizes (K,)`` with
            ``duration_probabilities (K,)`` negative binomial, ``duration_probabilities`` alone logarithmic; no argument
            at all is geometric.

    Raises:
        ValueError: arguments of several families, shapes that do not fit, or values out of range.
    """
    names = {name for name, value in given.items() if value is not None}
    if names == {"durations"}:
        return "categorical", _probabilities(k, given["durations"])
    if names == {"duration_rates"}:
        rates = _positive("duration_rates", given["duration_rates"], k)
        return "poisson", torch.as_tensor(rates).log()[:, None]
    if names == {"duration_sizes", "duration_probabilities"}:
        sizes = _positive("duration_sizes", given["duration_sizes"], k)
        p = _below_one(given["duration_probabilities"], k)
        log_q = torch.log1p(-torch.as_tensor(p)).clamp(max=LARGEST_LOG_SUCCESS)
        return "negative-binomial", torch.stack([torch.as_tensor(sizes).log(), log_q], 1)
    if names == {"duration_probabilities"}:
        p = _below_one(given["duration_probabilities"], k)
        return "logarithmic", torch.as_tensor(p).log().clamp(max=LARGEST_LOG_SUCCESS)[:, None]
    if names:
        raise ValueError(
            f"{', '.join(sorted(names))} are of no one family of durations; pass durations, or duration_rates, or "
            "duration_sizes and duration_probabilities, or the latter alone, or none of them for geometric durations"
        )
    return "geometric", torch.empty(k, 0, dtype=torch.float64)


def check_successors(parameters: Parameters, allowed: Tensor) -> None:
    """Raise ``ValueError`` for a state that is followed by itself where that is not allowed.

    Args:
        parameters: parameters of an HSMM, whose transitions are from segment to segment.
        allowed: True where state j may follow state i, ``(K, K)`` bool.
    """
    wrong = ((parameters.transition.diagonal() > 0) & ~allowed.diagonal()).nonzero()[:, 0].tolist()
    if wrong:
        raise ValueError(
            f"transition[{wrong[0]}, {wrong[0]}] is {float(parameters.transition[wrong[0], wrong[0]]):g}, but a state "
            "must be followed by another one; pass a zero there, or leave durations out for geometric ones"
        )


def _probabilities(k: int, durations: Any) -> Tensor:
    pmf = numbers_of("durations", durations, "(K, D)")
    if pmf.ndim != 2 or len(pmf) != k or not pmf.shape[1]:
        raise ValueError(f"durations have shape {pmf.shape}; pass ({k}, D): states, durations of 1 to D steps")
    if not ((pmf >= 0).all() and np.abs(pmf.sum(1) - 1).max() <= SUMS_TO_ONE):
        raise ValueError(
            "durations must hold probabilities that sum to one along the last axis; the sums are "
            f"{np.round(pmf.sum(1), 6)}"
        )
    return torch.as_tensor(pmf)


def _positive(name: str, values: Any, k: int) -> np.ndarray:
    numbers = numbers_of(name, values, "(K,)")
    if numbers.shape != (k,):
        raise ValueError(f"{name} have shape {numbers.shape}; pass ({k},): one number a state")
    if not (np.isfinite(numbers).all() and (numbers > 0).all()):
        raise ValueError(f"{name} must be finite and above zero; the smallest is {numbers.min()}")
    return numbers


def _below_one(values: Any, k: int) -> np.ndarray:
    p = _positive("duration_probabilities", values, k)
    if not (p < 1).all():
        raise ValueError(f"duration_probabilities must be between 0 and 1; the largest is {p.max()}")
    return p
