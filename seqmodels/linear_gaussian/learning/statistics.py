"""The E-step: what EM needs of sequences are sums, which add over sequences, batches and processes."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import torch

from seqmodels.common.distributed import all_reduce_sum, is_distributed
from seqmodels.linear_gaussian.inference.diffuse import DiffuseMoments, diffuse_moments, split_by_length
from seqmodels.linear_gaussian.inference.kalman import (
    CovarianceSums,
    Gains,
    SequenceGroup,
    filter_group,
    grouped,
    smooth_group,
    summed_covariances,
)
from seqmodels.linear_gaussian.parameters import Form, SystemParameters


@dataclass(frozen=True)
class Statistics:
    """Weighted sums over sequences, given all of each; ``g_t = (z_t, 1, u_t)``, ``h_t = (z_t-1, u_t)``, where inputs
    are those that observations, or states, are regressed on.

    Attributes:
        log_prob: () nats of encoded data.
        n_first, first, first_square: () sequences, (K,) E[z_1], (K, K) E[z_1 z_1ᵀ].
        n_moves: () transitions.
        now_now, now_before, before_before: (K, K) E[z_t z_tᵀ], (K, H) E[z_t h_tᵀ], (H, H) E[h_t h_tᵀ], t from 2 on.
        n_seen: (D,) or (1,) observed values of each feature, under a full covariance of observations frames.
        seen_seen: (D, D) E[y yᵀ] of ``y = x - d - D u``; under a diagonal one its diagonal alone.
        seen_state: (D, G) E[y gᵀ].
        state_state: (D, G, G) or (1, G, G) E[g gᵀ], of the steps where the feature is observed.
    """

    log_prob: np.ndarray
    n_first: np.ndarray
    first: np.ndarray
    first_square: np.ndarray
    n_moves: np.ndarray
    now_now: np.ndarray
    now_before: np.ndarray
    before_before: np.ndarray
    n_seen: np.ndarray
    seen_seen: np.ndarray
    seen_state: np.ndarray
    state_state: np.ndarray

    def __add__(self, other: Statistics) -> Statistics:
        return Statistics(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    @classmethod
    def zero(cls, parameters: SystemParameters, form: Form) -> Statistics:
        """Of no sequences."""
        (D, K), n_inputs = parameters.observation.shape, len(form.observation_inputs)
        H, G, S = K + len(form.state_inputs), K + 1 + n_inputs, 1 if form.observation_noise == "full" else D
        shapes = ((), (), (K,), (K, K), (), (K, K), (K, H), (H, H), (S,), (D, D), (D, G), (S, G, G))
        return cls(*(np.zeros(shape) for shape in shapes))

    def summed_over_processes(self) -> Statistics:
        """The sums of all processes, each of which has those of its share."""
        if not is_distributed():
            return self
        sums, _ = all_reduce_sum([torch.tensor(getattr(self, f.name), dtype=torch.float64) for f in fields(self)])
        return Statistics(*(each.numpy() for each in sums))


@dataclass(frozen=True)
class SystemData:
    """Encoded sequences.

    Attributes:
        values: (T_i, D) each, NaN where missing.
        weights: (n,) of the sequences.
        inputs: (T_i, U) each, standardised; None: none are read.
    """

    values: list[np.ndarray]
    weights: np.ndarray
    inputs: list[np.ndarray] | None = None

    def groups(self, parameters: SystemParameters, form: Form) -> list[tuple[SequenceGroup, np.ndarray | None]]:
        """By patterns of missing values, less what inputs add; and the packed inputs of each."""
        if self.inputs is None:
            return [(group, None) for group in grouped([x - parameters.intercept for x in self.values])]
        added = [
            x - parameters.intercept - u[:, form.observation_inputs] @ parameters.observation_slopes.T
            for x, u in zip(self.values, self.inputs, strict=True)
        ]
        drives = [u[:, form.state_inputs] @ parameters.state_slopes.T for u in self.inputs]
        groups = grouped(added, drives)
        return [(group, group.packing.pack([self.inputs[i] for i in group.numbers])) for group in groups]


def e_step(parameters: SystemParameters, form: Form, corpus: SystemData) -> Statistics:
    """Sums over all sequences, under the parameters.

    Raises:
        ValueError: under a diffuse start a sequence that does not determine its first state, by number.
    """
    total = Statistics.zero(parameters, form)
    for group, inputs in corpus.groups(parameters, form):
        total = total + _of_group(parameters, form, group, inputs, corpus.weights)
    return total


def check_determined(moments: DiffuseMoments, group: SequenceGroup, directions: np.ndarray) -> None:
    """Raise ``ValueError`` where sequences leave something open of a first state of which nothing is known."""
    if moments.rank < len(directions):
        raise ValueError(
            f"sequence {int(group.numbers[0])} has {group.packing.n_steps} steps, which do not determine its first "
            f"state, {len(directions)} numbers of which a diffuse start knows nothing; leave it out, pass "
            "start='learned', or a structure without components that are the same in part, such as two levels"
        )


def _of_group(
    parameters: SystemParameters, form: Form, group: SequenceGroup, inputs: np.ndarray | None, weights: np.ndarray
) -> Statistics:
    weights_of_group = weights[group.numbers]
    if form.start == "diffuse":
        total = Statistics.zero(parameters, form)
        system = form.without_start(parameters).system
        for part in split_by_length(group):
            moments = diffuse_moments(system, part, form.directions(len(parameters.transition)))
            check_determined(moments, part, form.directions(len(parameters.transition)))
            w = weights[part.numbers]
            sums = moments.covariances.scaled(w.sum())
            rows = None if inputs is None else _rows_of(group, part, inputs)
            total = total + _sums(parameters, form, part, rows, w, moments.means, sums, float(w @ moments.log_prob))
        return total
    system = parameters.system
    gains = Gains.of(system, group.packing.n_steps, group.observed, smooths=True)
    filtered = filter_group(system, gains, group)
    means = smooth_group(gains, group, filtered)
    sums = summed_covariances(gains, group, weights_of_group)
    w = weights_of_group[group.packing.order][group.packing.ranks]
    log_prob = float(w @ filtered.log_prob)
    return _sums(parameters, form, group, inputs, weights_of_group, means, sums, log_prob)


def _rows_of(group: SequenceGroup, part: SequenceGroup, inputs: np.ndarray) -> np.ndarray:
    """The packed inputs of a part that ``split_by_length`` made."""
    place = {number: rank for rank, number in enumerate(group.numbers[group.packing.order].tolist())}
    ranks = np.array([place[number] for number in part.numbers.tolist()])
    return np.asarray(inputs[(group.packing.offsets[: part.packing.n_steps, None] + ranks).reshape(-1)])


def _sums(
    parameters: SystemParameters,
    form: Form,
    group: SequenceGroup,
    inputs: np.ndarray | None,
    weights: np.ndarray,
    means: np.ndarray,
    covariances: CovarianceSums,
    log_prob: float,
) -> Statistics:
    """From means ``(N, K)``, packed, and the weighted sums of covariances."""
    packing, K, n = group.packing, means.shape[1], group.packing.offsets[1]
    w = weights[packing.order][packing.ranks][:, None]  # (N, 1)
    weighted = w * means
    first, later, before = means[:n], means[n:], packing.previous
    u = np.zeros((len(means), 0)) if inputs is None else inputs
    h = np.concatenate([means[before], u[n:][:, form.state_inputs]], 1)
    g = np.concatenate([means, np.ones((len(means), 1)), u[:, form.observation_inputs]], 1)
    now_before, before_before = weighted[n:].T @ h, (w[n:] * h).T @ h
    now_before[:, :K] += covariances.across.sum(0)
    before_before[:K, :K] += covariances.before
    return Statistics(
        np.array(log_prob),
        np.array(weights.sum()),
        weighted[:n].sum(0),
        weighted[:n].T @ first + covariances.now[0],
        np.array(w[n:].sum()),
        weighted[n:].T @ later + covariances.now[1:].sum(0),
        now_before,
        before_before,
        *_seen(parameters, form, group, w, g, covariances.now),
    )


Seen = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def _seen(
    parameters: SystemParameters,
    form: Form,
    group: SequenceGroup,
    w: np.ndarray,
    g: np.ndarray,
    covariances: np.ndarray,
) -> Seen:
    """The sums of what is observed: ``n_seen``, ``seen_seen``, ``seen_state``, ``state_state``."""
    if form.observation_noise == "full" and group.observed is not None:
        return _seen_with_missing(parameters, group, w, g, covariances)
    K, D = covariances.shape[1], group.x.shape[1]
    weighted = w * g
    if group.observed is None:
        state_state, x = weighted.T @ g, group.x
        state_state[:K, :K] += covariances.sum(0)
        squares = (w * x).T @ x
        if form.observation_noise == "full":
            return np.array([w.sum()]), squares, x.T @ weighted, state_state[None]
        every = np.repeat(state_state[None], D, 0)
        return np.full(D, w.sum()), np.diag(np.diagonal(squares)), x.T @ weighted, every
    is_seen = np.repeat(group.observed, group.packing.counts, 0)  # (N, D)
    sums = np.zeros((D, g.shape[1], g.shape[1]))
    for d in range(D):
        sums[d] = weighted[is_seen[:, d]].T @ g[is_seen[:, d]]
        sums[d, :K, :K] += covariances[group.observed[:, d]].sum(0)
    squares = np.diag((w * np.square(group.x)).sum(0))  # values that are missing are 0
    return (w * is_seen).sum(0), squares, group.x.T @ weighted, sums


def _seen_with_missing(
    parameters: SystemParameters, group: SequenceGroup, w: np.ndarray, g: np.ndarray, covariances: np.ndarray
) -> Seen:
    """Under correlated noise what is missing is expected, given the state and what is observed beside it."""
    assert group.observed is not None, "else nothing is missing"
    C, R, K, D = parameters.observation, parameters.observation_covariance, covariances.shape[1], group.x.shape[1]
    state_state = (w * g).T @ g
    state_state[:K, :K] += covariances.sum(0)
    squares, with_state = np.zeros((D, D)), np.zeros((D, g.shape[1]))
    patterns, which = np.unique(group.observed, axis=0, return_inverse=True)
    for i, seen in enumerate(patterns):
        steps = which.reshape(-1) == i
        rows = np.repeat(steps, group.packing.counts)
        x, spread, here = group.x[rows].copy(), covariances[steps].sum(0), w[rows]
        if not seen.all():
            gone = ~seen
            beside = np.linalg.solve(R[np.ix_(seen, seen)], R[np.ix_(seen, gone)]).T  # (D - S, S)
            by_state = C[gone] - beside @ C[seen]
            x[:, gone] = g[rows, :K] @ by_state.T + x[:, seen] @ beside.T
            left = R[np.ix_(gone, gone)] - beside @ R[np.ix_(seen, gone)]
            squares[np.ix_(gone, gone)] += by_state @ spread @ by_state.T + here.sum() * left
            with_state[gone, :K] += by_state @ spread
        squares += (here * x).T @ x
        with_state += (here * x).T @ g[rows]
    return np.array([w.sum()]), squares, with_state, state_state[None]
