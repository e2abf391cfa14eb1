"""A model with an unknown offset one step at a time, and many sequences step by step side by side."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqmodels.encodings.examples import Example
from seqmodels.generation import Prediction, Source
from seqmodels.observations import GaussianMixture
from seqmodels.observations.gaussian import shape_of_factor
from seqmodels.wrappers.offsets.conditional import GivenOffset, NextStep
from seqmodels.wrappers.offsets.filtering import Belief, evidence, predicted_precisions, updated
from seqmodels.wrappers.offsets.scales import ScaleChain

SMALLEST_VARIANCE = 1e-300  # a floor that no variance of a prediction comes near
NUMBERS_AT_ONCE = 1 << 23  # that are held of the sequences read side by side


@dataclass(frozen=True)
class OffsetState:
    """What is known of n sequences: the state of the model given the offset, of the offset, and of the scale.

    ``log_scales (n, R)`` are log-probabilities of the next step's.
    """

    given: Any
    belief: Belief
    log_scales: Tensor


@dataclass(frozen=True)
class OffsetCursor:
    """One-step predictions of ``model`` whose offset is, before a sequence, known as ``prior`` (of one sequence)."""

    model: GivenOffset[Any]
    prior: Belief
    scales: ScaleChain

    @torch.no_grad()
    def start(self, source: Source = None, n: int = 1) -> OffsetState:
        belief = Belief(self.prior.mean.expand(n, -1), self.prior.covariance.expand(n, -1, -1))
        given, unread = self.model.start(source, n, belief.mean)
        state = OffsetState(given, belief, self.scales.start(n))
        for step in () if unread is None else unread.unbind(1):
            state = self.advance(state, step)
        return replace(state, given=self.model.begin(state.given))

    def advance(self, state: OffsetState, x: Tensor) -> OffsetState:
        """The state after ``x (n, D)``."""
        return self.step(state, x)[1]

    @torch.no_grad()
    def step(self, state: OffsetState, x: Tensor) -> tuple[Tensor, OffsetState]:
        """``(n,)`` log-probability that the sequence goes on, and with ``x``; and the state after it."""
        x = x.to(state.belief.mean)
        mixture, prediction = self._next_step(state)
        log_joint, belief = updated(mixture, state.belief, x)
        log_prob = torch.logsumexp(log_joint, -1) + prediction.log_continue
        given = self.model.advance(state.given, x, self.scales.by_component(log_joint), belief.mean)
        return log_prob, OffsetState(given, belief, self.scales.after(log_joint))

    @torch.no_grad()
    def distribution(self, state: OffsetState) -> Prediction:
        """A mixture of Gaussians, offset and scale integrated out, and the end."""
        mixture, prediction = self._next_step(state)
        shapes = shape_of_factor(predicted_precisions(mixture, state.belief))  # (n, J, S)
        zeros = mixture.means.new_zeros(*mixture.means.shape[:2], 1)
        table = torch.cat([zeros, mixture.means, shapes.expand(len(zeros), -1, -1)], -1)
        observation = GaussianMixture(1, "full", min_covariance=SMALLEST_VARIANCE)
        return Prediction(
            observation, table, mixture.log_weights, None, prediction.log_end, prediction.exact_log_continue
        )

    def select(self, state: OffsetState, index: Tensor) -> OffsetState:
        """The state of the sequences ``index (m,)``."""
        belief = Belief(state.belief.mean[index], state.belief.covariance[index])
        return OffsetState(self.model.select(state.given, index), belief, state.log_scales[index])

    def _next_step(self, state: OffsetState) -> NextStep:
        mixture, prediction = self.model.next_step(state.given, state.belief.mean)
        return NextStep(self.scales.widened(mixture, state.log_scales), prediction)


@torch.no_grad()
def log_prob_steps(cursor: OffsetCursor, examples: list[Example], *, has_end: bool) -> list[np.ndarray]:
    """For each example the log-probabilities of its steps, and with ``has_end`` of its end; float64."""
    results = [np.zeros(len(e.values) + has_end) for e in examples]
    for group in _groups(cursor.model, examples, len(cursor.scales.values)):
        sources: Any = [examples[i].source for i in group]
        state = cursor.start(None if sources[0] is None else sources, len(group))
        n_read = 0
        for t, reading in _side_by_side(examples, group, has_end=has_end):
            if len(reading) < n_read or not t:
                state = cursor.select(state, torch.arange(len(reading), device=cursor.prior.mean.device))
            n_read = len(reading)
            ending = [k for k, i in enumerate(reading) if len(examples[i].values) == t]
            if ending:  # the last of those that are read
                log_end = cursor.distribution(state).log_end
                assert log_end is not None, "ends are events"
                for k in ending:
                    results[reading[k]][t] = float(log_end[k])
                reading = reading[: ending[0]]
                if not reading:
                    break
                state = cursor.select(state, torch.arange(len(reading), device=log_end.device))
            x = torch.as_tensor(np.stack([examples[i].values[t] for i in reading]))
            log_prob, state = cursor.step(state, x)
            for i, value in zip(reading, log_prob.tolist(), strict=True):
                results[i][t] = value
    return results


@dataclass(frozen=True)
class Evidence:
    """What n sequences say of their offsets, linear around those that were assumed, and of scales.

    Attributes:
        precision: ``(n, D, D)``.
        gradient: ``(n, D)`` of the log-probability.
        draws: ``(n, R)`` how often each scale is expected to have been drawn.
    """

    precision: np.ndarray
    gradient: np.ndarray
    draws: np.ndarray


@torch.no_grad()
def evidence_of(model: GivenOffset[Any], examples: list[Example], offsets: np.ndarray, scales: ScaleChain) -> Evidence:
    """What each example says of its offset, read as if that were ``offsets (n, D)``.

    Components of a step, and scales, are weighed by what is known up to it, as in filtering.
    """
    n, size = offsets.shape
    result = Evidence(np.zeros((n, size, size)), np.zeros((n, size)), np.zeros((n, len(scales.values))))
    for group in _groups(model, examples, len(scales.values)):
        log_scales = scales.start(len(group))
        mean = torch.as_tensor(offsets[group], device=log_scales.device)
        sources: Any = [examples[i].source for i in group]
        given, unread = model.start(None if sources[0] is None else sources, len(group), mean)
        for step in () if unread is None else unread.unbind(1):
            mixture = scales.widened(model.next_step(given, mean).mixture, log_scales)
            log_joint, *_ = evidence(mixture, step)
            given = model.advance(given, step, scales.by_component(log_joint), mean)
            log_scales = scales.after(log_joint)
        given, n_read = model.begin(given), len(group)
        for t, reading in _side_by_side(examples, group, has_end=False):
            if len(reading) < n_read:
                n_read, mean, log_scales = len(reading), mean[: len(reading)], log_scales[: len(reading)]
                given = model.select(given, torch.arange(n_read, device=mean.device))
            x = torch.as_tensor(np.stack([examples[i].values[t] for i in reading])).to(mean)
            mixture = scales.widened(model.next_step(given, mean).mixture, log_scales)
            log_joint, precision, gradient = evidence(mixture, x)
            draws = scales.draws(log_scales, log_joint, is_first=not t)
            given = model.advance(given, x, scales.by_component(log_joint), mean)
            log_scales = scales.after(log_joint)
            result.precision[reading] += precision.cpu().numpy()
            result.gradient[reading] += gradient.cpu().numpy()
            result.draws[reading] += draws.cpu().numpy()
    return result


def _groups(model: GivenOffset[Any], examples: list[Example], n_scales: int) -> Iterator[list[int]]:
    """Examples that are read side by side: with sources of one length, the longest first."""
    size = examples[0].values.shape[1] if examples else 1
    most = max(1, NUMBERS_AT_ONCE // (n_scales * model.n_components * size * size))
    lengths = [0 if e.source is None else len(e.source) for e in examples]
    order = sorted(range(len(examples)), key=lambda i: (lengths[i], -len(examples[i].values)))
    begin = 0
    for k in range(1, len(order) + 1):
        if k == len(order) or k - begin == most or lengths[order[k]] != lengths[order[begin]]:
            yield order[begin:k]
            begin = k


def _side_by_side(examples: list[Example], group: list[int], *, has_end: bool) -> Iterator[tuple[int, list[int]]]:
    """Each step, and which have it (one more with ``has_end``)."""
    reading = group
    for t in range(len(examples[group[0]].values) + has_end):
        reading = [i for i in reading if len(examples[i].values) + has_end > t]
        yield t, reading
