"""A model with an unknown offset one step at a time, and many sequences step by step side by side."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqmodels.generation import Prediction, Source
from seqmodels.hmm.inference.log_space import finite
from seqmodels.observations import GaussianMixture
from seqmodels.observations.gaussian import shape_of_factor
from seqmodels.offsets.conditional import GivenOffset, NextStep
from seqmodels.offsets.filtering import Belief, evidence, predicted_precisions, updated, widened
from seqmodels.preparation import Example

SMALLEST_VARIANCE = 1e-300  # a floor that no variance of a prediction comes near
NUMBERS_AT_ONCE = 1 << 23  # that are held of the sequences read side by side


@dataclass(frozen=True)
class OffsetState:
    """What is known of n sequences, for each of R scales: n R rows, those of a sequence side by side.

    Attributes:
        given: the state of the model given the offset.
        belief: of the offset.
        log_scales: ``(n, R)`` posterior log-probabilities of the scales.
    """

    given: Any
    belief: Belief
    log_scales: Tensor


@dataclass(frozen=True)
class OffsetCursor:
    """One-step predictions of ``model`` whose offset is, before a sequence, known as ``prior`` (of one sequence).

    ``scales (R,)`` are those that its standard deviations may be times, and ``log_scales (R,)`` their log-probabilities
    before a sequence. For each of them the offset is filtered as if it were known.
    """

    model: GivenOffset[Any]
    prior: Belief
    scales: Tensor
    log_scales: Tensor

    @torch.no_grad()
    def start(self, source: Source = None, n: int = 1) -> OffsetState:
        rows = n * len(self.scales)
        belief = Belief(self.prior.mean.expand(rows, -1), self.prior.covariance.expand(rows, -1, -1))
        sources = [each for each in source for _ in self.scales] if isinstance(source, list) else source
        given, unread = self.model.start(sources, rows, belief.mean)
        state = OffsetState(given, belief, self.log_scales.expand(n, -1))
        for step in () if unread is None else unread[:: len(self.scales)].unbind(1):
            state = self.advance(state, step)
        return replace(state, given=self.model.begin(state.given))

    def advance(self, state: OffsetState, x: Tensor) -> OffsetState:
        """The state after ``x (n, D)``."""
        return self.step(state, x)[1]

    @torch.no_grad()
    def step(self, state: OffsetState, x: Tensor) -> tuple[Tensor, OffsetState]:
        """``(n,)`` log-probability that the sequence goes on, and with ``x``; and the state after it."""
        x = x.to(state.belief.mean).repeat_interleave(len(self.scales), 0)  # (n R, D)
        mixture, prediction = self._next_step(state)
        log_joint, belief = updated(mixture, state.belief, x)
        log_prob = torch.logsumexp(log_joint, -1) + prediction.log_continue
        by_scale = state.log_scales + log_prob.view_as(state.log_scales)
        total = torch.logsumexp(by_scale, -1)
        log_scales = torch.where(
            total.isneginf().unsqueeze(-1), state.log_scales, by_scale - finite(total).unsqueeze(-1)
        )
        given = self.model.advance(state.given, x, log_joint, belief.mean)
        return total, OffsetState(given, belief, log_scales)

    @torch.no_grad()
    def distribution(self, state: OffsetState) -> Prediction:
        """A mixture of Gaussians, offset and scale integrated out, and the end."""
        mixture, prediction = self._next_step(state)
        shapes = shape_of_factor(predicted_precisions(mixture, state.belief))  # (n R, J, S)
        zeros = mixture.means.new_zeros(*mixture.means.shape[:2], 1)
        table = torch.cat([zeros, mixture.means, shapes.expand(len(zeros), -1, -1)], -1)
        n, log_weights = len(state.log_scales), state.log_scales
        log_end = log_continue = None
        if prediction.log_end is not None:
            log_end = torch.logsumexp(log_weights + prediction.log_end.double().view_as(log_weights), -1)
            log_weights = log_weights + torch.as_tensor(prediction.log_continue).double().view_as(log_weights)
            log_continue = torch.logsumexp(log_weights, -1)
            log_weights = log_weights - finite(log_continue).unsqueeze(-1)
        joint = log_weights.unsqueeze(-1) + mixture.log_weights.unflatten(0, (n, -1))  # (n, R, J)
        observation = GaussianMixture(1, "full", min_covariance=SMALLEST_VARIANCE)
        return Prediction(
            observation, table.unflatten(0, (n, -1)).flatten(1, 2), joint.flatten(1), None, log_end, log_continue
        )

    def select(self, state: OffsetState, index: Tensor) -> OffsetState:
        """The state of the sequences ``index (m,)``."""
        n_scales = len(self.scales)
        rows = (index.unsqueeze(-1) * n_scales + torch.arange(n_scales, device=index.device)).flatten()
        belief = Belief(state.belief.mean[rows], state.belief.covariance[rows])
        return OffsetState(self.model.select(state.given, rows), belief, state.log_scales[index])

    def _next_step(self, state: OffsetState) -> NextStep:
        mixture, prediction = self.model.next_step(state.given, state.belief.mean)
        return NextStep(widened(mixture, self.scales.repeat(len(state.log_scales))), prediction)


@torch.no_grad()
def log_prob_steps(cursor: OffsetCursor, examples: list[Example], *, has_end: bool) -> list[np.ndarray]:
    """For each example the log-probabilities of its steps, and with ``has_end`` of its end; float64."""
    results = [np.zeros(len(e.values) + has_end) for e in examples]
    for group in _groups(cursor.model, examples, len(cursor.scales)):
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
    """What n sequences say of their offsets under each of R scales, linear around those that were assumed.

    Attributes:
        precision: ``(n, R, D, D)``.
        gradient: ``(n, R, D)`` of the log-probability.
        log_prob: ``(n, R)`` with the offsets that were assumed.
    """

    precision: np.ndarray
    gradient: np.ndarray
    log_prob: np.ndarray


@torch.no_grad()
def evidence_of(model: GivenOffset[Any], examples: list[Example], offsets: np.ndarray, scales: np.ndarray) -> Evidence:
    """What each example says of its offset, read as if that were ``offsets (n, D)``, under each of ``scales (R,)``.

    The components of a step are weighed by what is known up to it, as in filtering.
    """
    (n, size), n_scales = offsets.shape, len(scales)
    result = Evidence(np.zeros((n, n_scales, size, size)), np.zeros((n, n_scales, size)), np.zeros((n, n_scales)))
    for group in _groups(model, examples, n_scales):
        mean = torch.as_tensor(offsets[group]).repeat_interleave(n_scales, 0)
        scale = torch.as_tensor(scales, dtype=torch.float64).repeat(len(group))
        sources: Any = [examples[i].source for i in group for _ in scales]
        given, unread = model.start(None if sources[0] is None else sources, len(mean), mean)
        for step in () if unread is None else unread.unbind(1):
            log_joint, *_ = evidence(widened(model.next_step(given, mean).mixture, scale), step)
            given = model.advance(given, step, log_joint, mean)
        given, n_read = model.begin(given), len(group)
        for t, reading in _side_by_side(examples, group, has_end=False):
            if len(reading) < n_read:
                n_read, rows = len(reading), len(reading) * n_scales
                mean, scale = mean[:rows], scale[:rows]
                given = model.select(given, torch.arange(rows, device=mean.device))
            x = torch.as_tensor(np.stack([examples[i].values[t] for i in reading])).to(mean)
            x = x.repeat_interleave(n_scales, 0)
            log_joint, precision, gradient = evidence(widened(model.next_step(given, mean).mixture, scale), x)
            given = model.advance(given, x, log_joint, mean)
            log_prob = torch.logsumexp(log_joint, -1)
            for total, part in (
                (result.precision, precision),
                (result.gradient, gradient),
                (result.log_prob, log_prob),
            ):
                total[reading] += part.unflatten(0, (n_read, n_scales)).cpu().numpy()
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
