"""The E-step: weighted sums of expectations, which add over sequences, batches and processes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields, replace
from functools import cached_property, reduce
from itertools import pairwise
from operator import add

import numpy as np
import torch

from seqmodels.common.compiled import is_compiling
from seqmodels.common.constants import LOG_2PI
from seqmodels.common.distributed import all_reduce_sum, is_distributed
from seqmodels.inference.gaussian.diffuse import diffuse_moments, split_by_length
from seqmodels.inference.gaussian.kalman import (
    CovarianceSums,
    Gains,
    SequenceGroup,
    filter_group,
    grouped,
    smooth_group,
    summed_covariances,
)
from seqmodels.inference.gaussian.missing import MissingBlock, missing_blocks, sums_of_block
from seqmodels.inference.gaussian.packing import StepPacking, aligned, widened
from seqmodels.linear_gaussian.parameters import Form, SystemParameters

MANY_SEQUENCES = 8  # without missing values, from which on loops run over sequences
WELL_CONDITIONED = 1e6  # largest over least eigenvalue of a covariance that is inverted
MOST_OF_SQUARES = 1e3  # terms over their sum, of which three digits of sixteen are lost
MANY_ALIKE = 16  # that miss the same values, from which on they share covariances
MANY_APART = 3  # that miss values in places of their own, from which on loops run over sequences


@dataclass(frozen=True)
class FirstStates:
    """Weighted sums over sequences of expectations of the first state z_1, given all values of each sequence.

    Attributes:
        n: weighted number of sequences, ``()``.
        sums: sum of E[z_1], ``(K,)`` for K states.
        squares: sum of E[z_1 z_1ᵀ], ``(K, K)``.
    """

    n: np.ndarray
    sums: np.ndarray
    squares: np.ndarray

    def summed_over_processes(self) -> FirstStates:
        """Return the sums over the data of all processes; in a single process these are the sums themselves."""
        if not is_distributed():
            return self
        sums, _ = all_reduce_sum([torch.tensor(each, dtype=torch.float64) for each in vars(self).values()])
        return FirstStates(*(each.numpy() for each in sums))

    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean ``(K,)`` and the covariance ``(K, K)`` of the first state over all sequences.

        The covariance includes what remains uncertain of the first state of each sequence.
        """
        mean = self.sums / self.n
        covariance = self.squares / self.n - np.outer(mean, mean)
        return mean, 0.5 * (covariance + covariance.T)


@dataclass(frozen=True)
class Statistics:
    """The result of the E-step: weighted sums over sequences of expectations given all values of each sequence.

    The M-step computes the parameters from them. It regresses the K states z_t on ``h_t = (z_t-1, u_t)``, of size H,
    and the D observed features x_t on ``g_t = (z_t, 1, u_t)``, of size G, where u_t are the inputs that each reads. R
    is the covariance of the observation noise.

    Attributes:
        log_prob: log-probability of the encoded data, in nats, ``()``.
        n_first: weighted number of sequences, ``()``.
        first, first_square: sums of E[z_1], ``(K,)``, and of E[z_1 z_1ᵀ], ``(K, K)``.
        n_moves: weighted number of transitions, ``()``.
        now_now, now_before, before_before: sums over all steps but the first of E[z_t z_tᵀ] ``(K, K)``, E[z_t h_tᵀ]
            ``(K, H)`` and E[h_t h_tᵀ] ``(H, H)``.
        n_seen: weighted number of observed values of each feature, ``(D,)``, or of steps, ``(1,)``, if R is full.
        seen_seen: sum of E[y yᵀ], ``(D, D)``, where y is x less the present intercept and effects of inputs; only its
            diagonal is filled if R is diagonal.
        seen_state: sum of E[y gᵀ], ``(D, G)``.
        state_state: sum of E[g gᵀ] over the steps where each feature is observed, ``(D, G, G)``; ``(1, G, G)`` if R is
            full.
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

    @property
    def first_states(self) -> FirstStates:
        """The part of the sums that concerns first states."""
        return FirstStates(self.n_first, self.first, self.first_square)

    def __add__(self, other: Statistics) -> Statistics:
        return Statistics(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    @classmethod
    def zero(cls, parameters: SystemParameters, form: Form) -> Statistics:
        """Return sums of no sequences, all 0, to which those of sequences are added.

        ``parameters`` and ``form`` decide the shapes of the arrays.
        """
        (D, K), n_inputs = parameters.observation.shape, len(form.observation_inputs)
        H, G, S = K + len(form.state_inputs), K + 1 + n_inputs, 1 if form.observation_noise == "full" else D
        shapes = ((), (), (K,), (K, K), (), (K, K), (K, H), (H, H), (S,), (D, D), (D, G), (S, G, G))
        return cls(*(np.zeros(shape) for shape in shapes))

    def summed_over_processes(self) -> Statistics:
        """Return the sums over the data of all processes; in a single process these are the sums themselves."""
        if not is_distributed():
            return self
        sums, _ = all_reduce_sum([torch.tensor(getattr(self, f.name), dtype=torch.float64) for f in fields(self)])
        return Statistics(*(each.numpy() for each in sums))


@dataclass(frozen=True)
class SystemData:
    """Encoded sequences with their weights, and the inputs or gaps of time that belong to them.

    Attributes:
        values: values of each sequence, ``(T, D)``, NaN where one is missing.
        weights: weight of each of n sequences, ``(n,)``.
        inputs: U standardised inputs of each sequence, ``(T, U)``; None if no inputs are read.
        gaps: time from each step of a sequence to the next, in steps of the system, ``(T,)``, 0 after the last; None if
            all are one step.
    """

    values: list[np.ndarray]
    weights: np.ndarray
    inputs: list[np.ndarray] | None = None
    gaps: list[np.ndarray] | None = None

    def groups(
        self, parameters: SystemParameters, form: Form, *, without: Collection[int] = ()
    ) -> list[tuple[SequenceGroup, np.ndarray | None]]:
        """Return groups of sequences that miss the same values and have the same gaps, so that they share covariances.

        The values of a group are those of the sequences less the intercept and what inputs add to them.

        Args:
            parameters: parameters of the system.
            form: which inputs the system reads.
            without: numbers of sequences; groups whose first sequence is among them are left out.

        Returns:
            Each group with its packed inputs, or None if no inputs are read.
        """
        if self.inputs is None:
            chosen = [group for group in self._groups if int(group.numbers[0]) not in without]
            return [(replace(g, x=_without_missing(g.x - parameters.intercept, g)), None) for g in chosen]
        added = [
            x - parameters.intercept - u[:, form.observation_inputs] @ parameters.observation_slopes.T
            for x, u in zip(self.values, self.inputs, strict=True)
        ]
        drives = [u[:, form.state_inputs] @ parameters.state_slopes.T for u in self.inputs]
        groups = [group for group in grouped(added, drives) if int(group.numbers[0]) not in without]
        return [(group, group.packing.pack([self.inputs[i] for i in group.numbers])) for group in groups]

    @cached_property
    def _groups(self) -> list[SequenceGroup]:
        return grouped(self.values, gaps=self.gaps)

    @cached_property
    def missing(self) -> list[MissingBlock]:
        """The sequences whose pattern of missing values few others share, in blocks for compiled loops.

        The list is empty without numba, with inputs or gaps, and where there are few such sequences.
        """
        if not is_compiling() or self.inputs is not None or self.gaps is not None:
            return []
        apart = [g for g in self._groups if g.observed is not None and len(g.numbers) < MANY_ALIKE]
        if sum(len(g.numbers) for g in apart) < MANY_APART:
            return []
        return missing_blocks(self.values, np.concatenate([g.numbers for g in apart]), self.weights)

    @cached_property
    def blocks(self) -> Blocks | None:
        """The sequences without missing values, laid out for compiled loops; None without numba, or if they are few.

        It is also None if the sequences have inputs or gaps.
        """
        is_regular = self.inputs is None and self.gaps is None
        for group in self._groups if is_compiling() and is_regular else []:
            if group.observed is None and len(group.numbers) >= MANY_SEQUENCES:
                return Blocks.of(group, self.weights[group.numbers][group.packing.order])
        return None


def _without_missing(x: np.ndarray, group: SequenceGroup) -> np.ndarray:
    """Return packed values ``x (N, D)`` with 0 where the sequences of ``group`` miss a value.

    Packed rows are all first steps, then all second steps, and so on.
    """
    return x if group.observed is None else x * np.repeat(group.observed, group.packing.counts, 0)


@dataclass(frozen=True)
class Blocks:
    """Sequences without missing values, laid out for compiled loops that run over all sequences at each step.

    Attributes:
        numbers: number of each of the n sequences among all sequences, ``(n,)``.
        packing: order of the sequences and number of them at each of T steps.
        weights: weight of each sequence, the longest first, ``(n,)``.
        centre: mean of all steps, ``(D,)``; it is subtracted so that sums of squares keep their digits.
        offsets: where the block of each step begins, in rows of one number, ``(T + 1,)``.
        x: values less ``centre``, flattened: step t has ``n_t`` numbers for each of D features, and padding to whole
            vectors of the processor.
        n_frames, sums, squares: weighted number of steps, ``()``, and weighted sums of x, ``(D,)``, and of x xᵀ, ``(D,
            D)``.
    """

    numbers: np.ndarray
    packing: StepPacking
    weights: np.ndarray
    centre: np.ndarray
    offsets: np.ndarray
    x: np.ndarray
    n_frames: float
    sums: np.ndarray
    squares: np.ndarray

    @classmethod
    def of(cls, group: SequenceGroup, weights: np.ndarray) -> Blocks:
        """Return the block layout of a group of sequences without missing values.

        Args:
            group: packed sequences.
            weights: weight of each sequence, the longest first, ``(n,)``.
        """
        centre = group.x.mean(0)
        x, w = group.x - centre, weights[group.packing.ranks]
        counts, D = group.packing.counts, x.shape[1]
        offsets = np.concatenate([[0], np.cumsum(widened(counts))])
        blocks = aligned(int(offsets[-1]) * D)
        blocks[:] = 0.0
        for (a, b), (start, end) in zip(
            pairwise(group.packing.offsets.tolist()), pairwise(offsets.tolist()), strict=True
        ):
            blocks[start * D : end * D].reshape(D, -1)[:, : b - a] = x[a:b].T
        weighted = w[:, None] * x
        return cls(
            *(group.numbers, group.packing, weights, centre, offsets, blocks),
            *(float(w.sum()), weighted.sum(0), weighted.T @ x),
        )


def e_step(parameters: SystemParameters, form: Form, data: SystemData) -> Statistics:
    """Return the sums of expectations over all sequences, given their values and the parameters (the E-step).

    Args:
        parameters: parameters of the system.
        form: which parameters are free, and how the first state is distributed.
        data: encoded sequences.

    Raises:
        ValueError: under a diffuse start, a sequence that does not determine its first state; the message has its
            number.
    """
    parts, summed = list[Statistics](), set[int]()
    if form.start != "diffuse" and data.blocks is not None:
        parts.append(_of_blocks(parameters, form, data.blocks))
        summed.update(data.blocks.numbers.tolist())
    if form.start != "diffuse" and form.observation_noise == "diag":
        for block in data.missing:
            parts.append(_of_missing(parameters, block))
            summed.update(block.numbers.tolist())
    for group, inputs in data.groups(parameters, form, without=summed):
        parts.append(_of_group(parameters, form, group, inputs, data.weights))
    return reduce(add, parts) if parts else Statistics.zero(parameters, form)


def _of_missing(parameters: SystemParameters, block: MissingBlock) -> Statistics:
    (D, K), w = parameters.observation.shape, block.rows
    sums = sums_of_block(parameters.system, parameters.intercept, block)
    offset, n_seen = parameters.intercept - block.centre, w[:, :D].sum((0, 2))
    total = np.einsum("tdm,tdm->d", w[:, :D], block.x)
    squares = np.einsum("tdm,tdm->d", w[:, :D], np.square(block.x))
    state_state = np.empty((D, K + 1, K + 1))
    state_state[:, :K, :K], state_state[:, K, K] = sums.state_state, n_seen
    state_state[:, :K, K] = state_state[:, K, :K] = sums.state_sum
    by_state = sums.seen_state - offset[:, None] * sums.state_sum
    return Statistics(
        np.array((w[0, D] * sums.log_prob.sum(0)).sum()),
        np.array(w[0, D].sum()),
        *(sums.first, sums.first_square, np.array(w[:, D + 1].sum())),
        *(sums.now_now, sums.now_before, sums.before_before),
        *(n_seen, np.diag(squares - 2 * offset * total + np.square(offset) * n_seen)),
        *(np.concatenate([by_state, (total - offset * n_seen)[:, None]], 1), state_state),
    )


def _squares(
    p: SystemParameters, errors: np.ndarray, seen: np.ndarray, mean: np.ndarray, from_mean: np.ndarray
) -> float | None:
    """Return the weighted sum of squared standardised prediction errors, ``Σ w |e s⁻¹|²``, from sums over the data.

    The result is None if rounding would cost too many digits. The smoothed states minimise the sum of all squares, and
    this minimum is the sum of the values' squares, ``Σ y R⁻¹ y``, less ``Σ y R⁻¹ C z``, plus ``m P⁻¹ (m - z_1)``, with
    C the observation matrix, R the observation noise and P the first covariance.

    Args:
        p: parameters of the system.
        errors: sum of ``y yᵀ`` for ``y = x - d``, ``(D, D)``.
        seen: sum of ``y zᵀ`` for smoothed means z, ``(D, K + 1)``.
        mean: mean m of the first states, ``(K,)``.
        from_mean: sum of ``m - z_1``, ``(K,)``.
    """
    K = len(mean)
    least, largest = np.linalg.eigvalsh(p.initial_covariance)[[0, -1]]
    if not least * WELL_CONDITIONED > largest:
        return None
    precision = np.linalg.inv(p.observation_covariance)
    values = float((precision * errors).sum())
    explained = float((precision @ p.observation * seen[:, :K]).sum())
    at_start = float(mean @ np.linalg.solve(p.initial_covariance, from_mean))
    squares = values - explained + at_start
    return squares if max(values, abs(explained), abs(at_start)) < MOST_OF_SQUARES * squares else None


def _of_blocks(parameters: SystemParameters, form: Form, blocks: Blocks) -> Statistics:
    from seqmodels.inference.gaussian.compiled_sums import (
        filter_blocks,
        filter_blocks_alone,
        smooth_blocks,
    )

    p, packing, w = parameters, blocks.packing, blocks.weights
    system, (D, K) = p.system, p.observation.shape
    n, counts, intercept = len(w), packing.counts, p.intercept - blocks.centre
    width = int(blocks.offsets[1])
    gains = Gains.of(system, packing.n_steps, smooths=True)
    transition, observation = np.ascontiguousarray(p.transition), np.ascontiguousarray(p.observation)
    by_error = np.ascontiguousarray((gains.white @ gains.gain).swapaxes(1, 2))
    backward = np.ascontiguousarray(gains.backward.swapaxes(1, 2))
    filtered, mean = aligned(int(blocks.offsets[-1]) * K), np.ascontiguousarray(p.initial_mean)
    read = (counts, blocks.offsets, blocks.x)
    kept = np.eye(K) - by_error @ observation
    constant = -by_error @ intercept
    constant[0] += kept[0] @ mean
    filter_blocks_alone(kept @ transition, by_error, constant, *read, filtered)
    reaching = np.cumsum(w)[counts - 1]  # the weight of the sequences that have each step
    steps = np.minimum(np.arange(packing.n_steps), len(gains.log_det) - 1)
    constants = LOG_2PI * D * blocks.n_frames + 2 * float(gains.log_det[steps] @ reaching)
    first, now, ending = np.empty((K, n)), np.zeros((K, K)), np.zeros((K, K))
    now_before, seen_state, state_sum = np.zeros((K, K)), np.zeros((D, K)), np.zeros(K)
    smooth_blocks(
        np.eye(K) - backward @ transition,
        backward,
        *read,
        w,
        filtered,
        aligned(3 * K * width).reshape(3, K, width),
        first,
        now,
        now_before,
        seen_state,
        state_sum,
        ending,
    )
    now = np.triu(now) + np.triu(now, 1).T
    order = np.empty(n, dtype=np.int64)
    order[packing.order] = np.arange(n)
    covariances = summed_covariances(gains, packing, w[order])
    start = (w * first) @ first.T + covariances.now[0]
    every = now + covariances.now.sum(0)
    state_state = np.empty((K + 1, K + 1))
    state_state[:K, :K], state_state[K, K] = every, blocks.n_frames
    state_state[:K, K] = state_state[K, :K] = state_sum
    error_sum = blocks.sums - blocks.n_frames * intercept
    cross = np.outer(blocks.sums, intercept)
    errors = blocks.squares - cross - cross.T + blocks.n_frames * np.outer(intercept, intercept)
    seen = np.concatenate([seen_state - np.outer(intercept, state_sum), error_sum[:, None]], 1)
    squares = _squares(p, errors, seen, mean, w.sum() * mean - first @ w)
    if squares is None:
        white = np.ascontiguousarray(gains.white.swapaxes(1, 2))
        filtering = (transition, observation, intercept, white, by_error)
        squares = filter_blocks(*filtering, *read, mean, w, np.empty_like(filtered))
    is_full = form.observation_noise == "full"
    return Statistics(
        np.array(-0.5 * (squares + constants)),
        np.array(w.sum()),
        first @ w,
        start,
        np.array(blocks.n_frames - w.sum()),
        every - start,
        now_before + covariances.across.sum(0),
        now - ending + covariances.before,
        np.full(1 if is_full else D, blocks.n_frames),
        errors if is_full else np.diag(np.diagonal(errors)),
        seen,
        np.repeat(state_state[None], 1 if is_full else D, 0),
    )


def check_determined(rank: int, number: int, n_steps: int, n_unknown: int) -> None:
    """Raise ``ValueError`` if the values of a sequence do not determine its first state, as a diffuse start requires.

    Args:
        rank: how many elements of the first state the sequence determines.
        number: number of the sequence, for the message.
        n_steps: number of steps of the sequence, for the message.
        n_unknown: how many elements of the first state are unknown.
    """
    if rank < n_unknown:
        raise ValueError(
            f"sequence {number} has {n_steps} steps, which do not determine its first state, {n_unknown} numbers of "
            "which a diffuse start knows nothing; leave it out, pass start='learned', or a structure without "
            "components that are the same in part, such as two levels"
        )


def _of_group(
    parameters: SystemParameters, form: Form, group: SequenceGroup, inputs: np.ndarray | None, weights: np.ndarray
) -> Statistics:
    weights_of_group = weights[group.numbers]
    if form.start == "diffuse":
        total = Statistics.zero(parameters, form)
        system = form.without_start(parameters).system_over(group.gaps)
        for part in split_by_length(group):
            moments = diffuse_moments(system, part, form.directions(len(parameters.transition)))
            n_unknown = len(form.directions(len(parameters.transition)))
            check_determined(moments.rank, int(part.numbers[0]), part.packing.n_steps, n_unknown)
            w = weights[part.numbers]
            sums = moments.covariances.scaled(w.sum())
            rows = None if inputs is None else rows_of(group, part, inputs)
            total = total + _sums(parameters, form, part, rows, w, moments.means, sums, float(w @ moments.log_prob))
        return total
    system = parameters.system_over(group.gaps)
    gains = Gains.of(system, group.packing.n_steps, group.observed, smooths=True)
    filtered = filter_group(system, gains, group)
    means = smooth_group(gains, group, filtered)
    sums = summed_covariances(gains, group.packing, weights_of_group)
    w = weights_of_group[group.packing.order][group.packing.ranks]
    log_prob = float(w @ filtered.log_prob)
    return _sums(parameters, form, group, inputs, weights_of_group, means, sums, log_prob)


def rows_of(group: SequenceGroup, part: SequenceGroup, inputs: np.ndarray) -> np.ndarray:
    """Return the packed inputs of some of the sequences of a group.

    Args:
        group: the group.
        part: group of some of its sequences.
        inputs: packed inputs of the whole group, ``(N, U)``.
    """
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
    """Return the sums of expectations of a group of packed sequences, given the moments of their states.

    Args:
        parameters, form: parameters of the system, and which of them are free.
        group: the packed sequences.
        inputs: their packed inputs; None if there are none.
        weights: weight of each sequence of the group, ``(n,)``.
        means: smoothed means of the states, ``(N, K)`` packed.
        covariances: weighted sums of the smoothed covariances.
        log_prob: weighted log-probability of the group in nats.
    """
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
    """Return the arrays ``n_seen``, ``seen_seen``, ``seen_state`` and ``state_state`` of ``Statistics`` for a group.

    Args:
        parameters, form: parameters of the system, and which of them are free.
        group: packed sequences.
        w: weight of each of N packed rows, ``(N, 1)``.
        g: expected regressors of the observations, ``(N, G)``: states, 1 and inputs.
        covariances: weighted sums of the states' covariances at each step, ``(T, K, K)``.
    """
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
    """Return the sums of ``_seen`` for correlated observation noise, with expectations in place of missing values.

    Args:
        parameters: parameters of the system.
        group: packed sequences, some of whose values are missing.
        w: weight of each of N packed rows, ``(N, 1)``.
        g: expected regressors of the observations, ``(N, G)``: states, 1 and inputs.
        covariances: weighted sums of the states' covariances at each step, ``(T, K, K)``.
    """
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
