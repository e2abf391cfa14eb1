"""Groups that ``fit`` has not seen: ``p(x) = 1/M Σ_m p(x | effects at point m)``, a mixture over points that are fixed.

The points stand for the normal distribution of a group's random effects. Because they do not depend on x, the mixture
is one normalised probability, the same in batches and step by step: that of a model whose random effects have a
discrete distribution. An adaptive quadrature (Pinheiro and Bates 1995), whose points follow each sequence, has smaller
errors with fewer points, but its results do not sum to one, and it needs the whole sequence.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from torch import Tensor

from seqmodels.encodings.examples import Example
from seqmodels.generation import Prediction, SingleSteps, Source, select_rows
from seqmodels.generation.cursor import ScoredSteps
from seqmodels.generation.given_inputs import refuse_without_inputs
from seqmodels.hmm.emissions import Emission
from seqmodels.hmm.learning.constraints import Tying
from seqmodels.hmm.learning.given_inputs import InputOptions
from seqmodels.hmm.parameters import SLOPES, Parameters
from seqmodels.hmm.penalised_terms import group_effects
from seqmodels.inference.chains.log_weights import finite

if TYPE_CHECKING:
    import pandas as pd

MOST_POINTS = 1 << 16
INPUTS_AT_ONCE = 1 << 22  # numbers of inputs that are held at once


@dataclass(frozen=True)
class NewGroups:
    """The distribution of the B random effects of a new group, as M equally likely points.

    A model given C columns of inputs becomes a model given C + B columns, in which the value of each of the last is the
    effect of the group in its standard deviations: zero in known groups, a coordinate of a point in new ones.

    Attributes:
        parameters: parameters of the model given C + B columns. The slope on each of the last is the standard deviation
            of an effect.
        columns: for each effect the one of the C columns that is not zero where the group is new, ``(B,)``.
        points: effects of a new group in their standard deviations, ``(M, B)``.
    """

    parameters: Parameters
    columns: list[int]
    points: np.ndarray

    @classmethod
    def of(
        cls,
        parameters: Parameters,
        options: InputOptions,
        terms: pd.DataFrame,
        emission: Emission,
        tying: Tying,
        scale: Tensor,
        labels: Sequence[Any],
        n_points: int,
    ) -> Self | None:
        """Return the new groups of a fitted model; None if it has no random effects.

        Args:
            parameters: parameters of the model given C columns.
            options: the terms of each part of the model.
            terms: the table of the standard deviations of terms, as ``terms_table`` returns it.
            emission: the emission of the states.
            tying: which states share an emission.
            scale: factor from encoded to raw units of each feature, ``(D,)``.
            labels: names of features or symbols.
            n_points: number of points, M, a power of two.
        """
        effects = group_effects(terms, options, emission, scale, labels)
        if not effects:
            return None
        widened: dict[str, Tensor] = {}
        for name in dict.fromkeys(effect.slopes for effect in effects):
            slopes = getattr(parameters, name)
            widened[name] = slopes.new_zeros(*slopes.shape[:-1], len(effects))
        for b, effect in enumerate(effects):
            widened[effect.slopes][(*effect.index, b)] = effect.sd
        if "table_slopes" in widened:
            widened["table_slopes"] = tying.shared(widened["table_slopes"])
        if "duration_slopes" in widened:
            widened["duration_slopes"] = emission.with_shared_durations(widened["duration_slopes"])
        for name in SLOPES:
            slopes = getattr(parameters, name)
            if slopes is not None:
                zeros = slopes.new_zeros(*slopes.shape[:-1], len(effects))
                widened[name] = torch.cat([slopes, widened.get(name, zeros)], -1)
        columns = [effect.column for effect in effects]
        return cls(replace(parameters, **widened), columns, normal_points(n_points, len(effects)))

    @property
    def log_weight(self) -> float:
        """Logarithm of the probability of each point, ``-log M``."""
        return -math.log(len(self.points))

    def has(self, example: Example) -> bool:
        """Return True if a group of ``example``, an encoded sequence, was not among the training sequences."""
        return example.inputs is not None and bool(example.inputs[:, self.columns].any())

    def at(self, example: Example, points: np.ndarray) -> list[Example]:
        """Return an encoded sequence of the model given C + B columns for each of some points.

        Args:
            example: the encoded sequence, with inputs ``(T, C)``.
            points: effects of its group in their standard deviations, ``(m, B)``; they count where the group is new.
        """
        assert example.inputs is not None, "a model with terms reads inputs"
        new = example.inputs[:, self.columns]
        return [replace(example, inputs=np.concatenate([example.inputs, new * point], 1)) for point in points]

    def at_all(self, example: Example) -> Iterator[list[Example]]:
        """Yield what ``at`` returns for all M points in their order, some at a time so that they fit into memory."""
        assert example.inputs is not None, "a model with terms reads inputs"
        width = example.inputs.shape[1] + len(self.columns)
        at_once = max(1, INPUTS_AT_ONCE // (len(example.inputs) * width))
        for first in range(0, len(self.points), at_once):
            yield self.at(example, self.points[first : first + at_once])

    def at_each_point(self, inputs: Tensor) -> Tensor:
        """Return the inputs of the next step of n sequences at all points, ``(n M, C + B)``, given ``inputs (n, C)``.

        The M rows of a sequence stand together.
        """
        new = inputs[:, None, self.columns] * torch.as_tensor(self.points).to(inputs)  # (n, M, B)
        return torch.cat([inputs[:, None].expand(-1, len(self.points), -1), new], -1).flatten(0, 1)


def check_n_points(n_points: int) -> None:
    """Raise ``ValueError`` if ``n_points``, the number of points of a new group, is no power of two, or too large."""
    is_number = isinstance(n_points, int | np.integer) and 1 <= n_points <= MOST_POINTS
    if not is_number or n_points & (n_points - 1):
        raise ValueError(f"new_group_points is {n_points!r}; pass a power of two from 1 to {MOST_POINTS}")


def normal_points(n_points: int, n_effects: int) -> np.ndarray:
    """Return M points whose B coordinates are spread like independent standard normal numbers, ``(M, B)``.

    They are normal quantiles of the first M points of Sobol's sequence (Joe and Kuo 2008), each in the middle of its
    cell, without random numbers, so that a saved model means the same everywhere.

    Args:
        n_points: number of points, M, a power of two.
        n_effects: number of coordinates, B.

    Raises:
        ValueError: ``n_points`` is no power of two, or too large.

    >>> normal_points(4, 2).round(2)
    array([[-1.15, -1.15],
           [ 0.32,  0.32],
           [ 1.15, -0.32],
           [-0.32,  1.15]])
    """
    from scipy.special import ndtri
    from scipy.stats.qmc import Sobol  # lazily, because scipy.stats is slow to import

    check_n_points(n_points)
    uniform = Sobol(n_effects, scramble=False).random(n_points) + 0.5 / n_points
    return np.asarray(ndtri(uniform))


def log_weights_of_points(steps: np.ndarray) -> np.ndarray:
    """Return the log-weight of each of M points after each of T steps, ``(M, T)``, by Bayes' rule.

    Columns are normalised, and all -inf once the steps are impossible. ``steps (M, T)`` are the log-probabilities of
    each step given the steps before it at each point, which are equally likely.
    """
    sums = np.cumsum(steps, 1)
    totals = np.logaddexp.reduce(sums, 0)
    return np.asarray(sums - np.where(np.isneginf(totals), 0.0, totals))


def mixed_steps(steps: np.ndarray) -> np.ndarray:
    """Return the log-probabilities of T steps under the mixture over M points, ``(T,)``, in nats.

    ``steps (M, T)`` are those of each step given the steps before it at each point, which are equally likely.
    """
    before = np.concatenate([np.full((len(steps), 1), -np.log(len(steps))), log_weights_of_points(steps)[:, :-1]], 1)
    return np.asarray(np.logaddexp.reduce(before + steps, 0))


@dataclass(frozen=True)
class NewGroupState:
    """The state of ``NewGroupCursor`` for n sequences.

    Attributes:
        state: state of the chain's cursor. It has n rows until a group is new, and then n M rows, of which the M of a
            sequence stand together.
        log_weights: log-probability of each of M points given the steps so far, ``(n, M)`` float64; None until a group
            is new.
    """

    state: Any
    log_weights: Tensor | None = None

    def mixed(self, log_beliefs: Tensor | None) -> Tensor | None:
        """Return log-probabilities of K hidden states, averaged over the points, ``(n, K)``.

        ``log_beliefs`` are those of each row of the HMM's cursor, or None before the first step.
        """
        if self.log_weights is None or log_beliefs is None:
            return log_beliefs
        n, m = self.log_weights.shape
        return torch.logsumexp(self.log_weights[:, :, None] + log_beliefs.view(n, m, -1), 1)


@dataclass(frozen=True)
class NewGroupCursor:
    """The cursor of a hidden chain with random effects, which averages over the effects of a group that is new.

    Attributes:
        cursor: the chain's ``InputCursor``, with the parameters of ``new_groups``; it must have ``unseen`` too.
        new_groups: the distribution of the effects of a new group.
    """

    cursor: Any
    new_groups: NewGroups

    def start(self, source: Source = None, n: int = 1) -> NewGroupState:
        return NewGroupState(self.cursor.start(source, n))

    def given(self, state: NewGroupState, inputs: Tensor) -> NewGroupState:
        """Return the state once the standardised inputs of the next step, ``inputs (n, C)``, are known."""
        of_effects = inputs[:, self.new_groups.columns]
        if state.log_weights is None and not of_effects.any():
            known = torch.cat([inputs, torch.zeros_like(of_effects)], 1)
            return NewGroupState(self.cursor.given(state.state, known))
        at_points, log_weights = state.state, state.log_weights
        if log_weights is None:
            shape = len(inputs), len(self.new_groups.points)
            device = at_points.log_predicted.device
            log_weights = torch.full(shape, self.new_groups.log_weight, dtype=torch.float64, device=device)
            at_points = self.cursor.select(at_points, torch.arange(shape[0]).repeat_interleave(shape[1]))
        return NewGroupState(self.cursor.given(at_points, self.new_groups.at_each_point(inputs)), log_weights)

    def advance(self, state: NewGroupState, x: Tensor) -> NewGroupState:
        return self.advance_and_score(state, x)[0]

    def advance_and_score(self, state: NewGroupState, x: Tensor) -> tuple[NewGroupState, Tensor]:
        """Return the state after the next step ``x`` of n sequences, and its log-probability in nats, ``(n,)``."""
        if state.log_weights is None:
            after, log_prob = self.cursor.advance_and_score(state.state, x)
            return NewGroupState(after), log_prob
        shape = state.log_weights.shape
        after, log_prob = self.cursor.advance_and_score(state.state, x.repeat_interleave(shape[1], 0))
        joint = state.log_weights + log_prob.view(shape)
        total = torch.logsumexp(joint, 1)
        return NewGroupState(after, joint - finite(total)[:, None]), total

    def unseen(self, state: NewGroupState) -> NewGroupState | None:
        """Return the state after a next step whose value is missing; None if the observation reads past steps."""
        after = self.cursor.unseen(state.state)
        return None if after is None else NewGroupState(after, state.log_weights)

    def distribution(self, state: NewGroupState) -> Prediction:
        refuse_without_inputs(state.state.inputs)
        each: Prediction = self.cursor.distribution(state.state)
        if state.log_weights is None:
            return each
        assert each.log_weights is not None, "a hidden chain predicts a mixture over its states"
        assert each.log_end is None, "a model that reads inputs has no ends"
        n, m = state.log_weights.shape
        return replace(
            each,
            output_parameters=each.output_parameters.reshape(n, -1, each.output_parameters.shape[-1]),
            log_weights=(state.log_weights[:, :, None] + each.log_weights.view(n, m, -1)).flatten(1),
            past=None if each.past is None else each.past[::m],
        )

    def select(self, state: NewGroupState, index: Tensor) -> NewGroupState:
        if state.log_weights is None:
            return NewGroupState(self.cursor.select(state.state, index))
        m = state.log_weights.shape[1]
        rows = (index[:, None] * m + torch.arange(m, device=index.device)).flatten()
        return NewGroupState(self.cursor.select(state.state, rows), select_rows(state.log_weights, index))

    def single_steps(self) -> SingleSteps | None:
        return ScoredSteps(self)
