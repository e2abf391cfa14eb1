"""The loops over steps of ``kalman``, compiled by numba if it is installed; the same code runs without it.

Covariances are kept as upper triangular factors, ``P = uᵀu``; means are rows.
"""

from __future__ import annotations

import numpy as np

from seqmodels.common.compiled import compiled
from seqmodels.inference.gaussian.compiled_matrices import (
    add_scaled,
    copy,
    inverse_of_upper,
    is_diagonal,
    set_part,
    set_to_regression,
    take_part,
    triangular,
)

LOOK_EVERY = 16  # number of steps between two checks for convergence


@compiled(inner=True)
def set_to_conditional(upper: np.ndarray, factor: np.ndarray, backward: np.ndarray, rest: np.ndarray) -> None:
    """Fill ``backward`` and ``rest`` with the regression of a state on the next one and its residual covariance.

    Args:
        upper: factor u of the covariance ``uᵀu`` of the next state and the state together, the next first, ``(2K,
            2K)``.
        factor: factor of the covariance of the next state alone, ``(K, K)``.
        backward: result, the matrix of the regression, ``(K, K)``.
        rest: result, the covariance of the state given the next, ``(K, K)``.
    """
    K = len(factor)
    cross, left_over = np.empty((K, K)), np.empty((2 * K, K))
    take_part(upper, 0, K, cross)
    set_to_regression(factor, cross, backward)
    take_part(upper, K, K, left_over[:K])
    np.dot(factor, backward, left_over[K:])
    add_scaled(-1.0, cross, left_over[K:])  # zero, but where the factor is singular
    np.dot(left_over.T, left_over, rest)


@compiled
def covariances(
    transition_t: np.ndarray,
    state_factor: np.ndarray,
    observation_t: np.ndarray,
    noise_factor: np.ndarray,
    factor: np.ndarray,
    observed: np.ndarray,
    smooths: bool,
    white: np.ndarray,
    gain: np.ndarray,
    log_det: np.ndarray,
    filtered: np.ndarray,
    backward: np.ndarray,
    rest: np.ndarray,
    closed_loop: np.ndarray,
) -> np.ndarray:
    """Compute the parts of the Kalman filter and smoother that do not depend on observed values.

    Args:
        transition_t: transposed transition matrix of the move from each step to the next, ``(G, K, K)``; the last holds
            for all later moves.
        state_factor: factor u of the noise covariance ``uᵀu`` of the move from each step to the next, ``(G, K, K)``.
        observation_t: transposed observation matrix, ``(K, D)``.
        noise_factor: factor of the covariance of the observation noise, ``(D, D)``.
        factor: factor of the covariance of the first step's state, given everything before it, ``(K, K)``.
        observed: 1 where a value is observed, else 0, ``(T, D)``; no rows if all are observed.
        smooths: True if ``backward`` and ``rest`` are computed.
        white: result ``s⁻¹``, ``(T, D, D)``, where ``S = sᵀs`` is the covariance of the innovation ``e``, so that ``e
            s⁻¹`` is standard normal. Missing values have innovation 0 and variance 1.
        gain: result, ``(T, D, K)``: the filtered mean is the predicted mean plus ``e s⁻¹ gain``.
        log_det: result ``log |s|``, ``(T,)``.
        filtered: result, the covariance of z_t given x_1 .. x_t, ``(T, K, K)``.
        backward: result, ``(T, K, K)``: the mean of z_t given z_t+1 is the filtered mean plus ``(z_t+1 - predicted)
            backward``.
        rest: result, the covariance of z_t given z_t+1 and x_1 .. x_t, ``(T, K, K)``.
        closed_loop: ``(K, K)``, multiplied in place by the closed loop of each step, which takes a change of one
            predicted mean to the change of the next.

    Returns:
        The factor of the covariance of the state after the last step.
    """
    n_steps, D = white.shape[0], white.shape[1]
    K, last = transition_t.shape[1], transition_t.shape[0] - 1
    is_complete = observed.shape[0] == 0
    one_value_a_row = is_diagonal(noise_factor)
    n_noise = D if is_complete or one_value_a_row else 2 * D
    block, both, seen = np.empty((n_noise + K, D + K)), np.zeros((2 * K, 2 * K if smooths else K)), np.empty((K, D))
    s, through, u = np.empty((D, D)), np.empty((D, K)), np.empty((K, K))
    cross, other, factor = np.empty((K, K)), np.empty((K, K)), factor.copy()
    for t in range(n_steps):
        np.dot(factor, observation_t, seen)
        block[:] = 0.0
        set_part(block, 0, 0, noise_factor)
        if not is_complete:
            for d in range(D):
                if observed[t, d] == 0.0:
                    seen[:, d] = 0.0
                    block[:D, d] = 0.0
                    block[d if one_value_a_row else D + d, d] = 1.0
        set_part(block, n_noise, 0, seen)
        set_part(block, n_noise, D, factor)
        upper = triangular(block)
        total = 0.0
        for d in range(D):
            total += np.log(np.abs(upper[d, d]))
        log_det[t] = total
        take_part(upper, 0, 0, s)
        copy(inverse_of_upper(s), white[t])
        take_part(upper, 0, D, gain[t])
        take_part(upper, D, D, u)
        np.dot(u.T, u, filtered[t])
        move = min(t, last)
        np.dot(white[t], gain[t], through)
        if not is_complete:
            for d in range(D):
                if observed[t, d] == 0.0:
                    through[d] = 0.0
        np.dot(observation_t, through, cross)
        np.dot(closed_loop, cross, other)
        add_scaled(-1.0, other, closed_loop)
        np.dot(closed_loop, transition_t[move], other)
        copy(other, closed_loop)
        np.dot(u, transition_t[move], other)
        both[:] = 0.0
        set_part(both, 0, 0, other)
        set_part(both, K, 0, state_factor[move])
        if not smooths:
            copy(triangular(both), factor)
            continue
        set_part(both, 0, K, u)
        upper = triangular(both)
        take_part(upper, 0, 0, factor)
        set_to_conditional(upper, factor, backward[t], rest[t])
    return factor


@compiled
def filter_means(
    transition_t: np.ndarray,
    observation_t: np.ndarray,
    white: np.ndarray,
    gain: np.ndarray,
    offsets: np.ndarray,
    x: np.ndarray,
    observed: np.ndarray,
    drive: np.ndarray,
    mean: np.ndarray,
    innovations: np.ndarray,
    predicted: np.ndarray,
    filtered: np.ndarray,
) -> None:
    """Run the means of the Kalman filter over n packed sequences, given the gains of each step.

    Packed rows are all first steps, then all second steps, and so on, the longest sequence first.

    Args:
        transition_t: transposed transition matrix of the move from each step to the next, ``(G, K, K)``; the last holds
            for all later moves.
        observation_t: transposed observation matrix, ``(K, D)``.
        white, gain: results of ``covariances``, which may have fewer steps than the data; the last holds for all later.
        offsets: first row of each step, and N at the end, ``(T + 1,)``.
        x: packed values, ``(N, D)``.
        observed: 1 where a value is observed, else 0, ``(T, D)``; no rows if all are observed.
        drive: vectors that are added to each predicted mean but the first, ``(N, K)``; no rows for none.
        mean: means of the first states, ``(n, K)``.
        innovations: result, standardised prediction errors, ``(N, D)``. The other results, ``predicted`` and
            ``filtered``, are the means of the state given the steps before, and given also its own step, ``(N, K)``.
    """
    last, last_move, D, K = len(white) - 1, len(transition_t) - 1, white.shape[1], transition_t.shape[1]
    residuals, products, corrections = np.empty((len(mean), D)), np.empty((len(mean), D)), np.empty((len(mean), K))
    for t in range(len(offsets) - 1):
        a, b = offsets[t], offsets[t + 1]
        g, n = min(t, last), b - a
        if t == 0:
            copy(mean, predicted[:n])
        else:
            before = offsets[t - 1]
            np.dot(filtered[before : before + n], transition_t[min(t - 1, last_move)], predicted[a:b])
            if len(drive):
                add_scaled(1.0, drive[a:b], predicted[a:b])
        residual, product, correction = residuals[:n], products[:n], corrections[:n]
        copy(x[a:b], residual)
        np.dot(predicted[a:b], observation_t, product)
        add_scaled(-1.0, product, residual)
        if len(observed):
            for d in range(D):
                if observed[t, d] == 0.0:
                    residual[:, d] = 0.0
        np.dot(residual, white[g], innovations[a:b])
        np.dot(innovations[a:b], gain[g], correction)
        copy(predicted[a:b], filtered[a:b])
        add_scaled(1.0, correction, filtered[a:b])


@compiled
def smooth_means(
    backward: np.ndarray, offsets: np.ndarray, predicted: np.ndarray, filtered: np.ndarray, smoothed: np.ndarray
) -> None:
    """Fill ``smoothed`` with the means of the states given all of each sequence (Rauch, Tung and Striebel 1965).

    Args:
        backward: matrix of the smoother's step at each step, ``(G, K, K)``; the last holds for all later steps.
        offsets: first packed row of each step, and N at the end, ``(T + 1,)``.
        predicted, filtered: predicted and filtered means, ``(N, K)`` packed.
        smoothed: result, ``(N, K)`` packed.
    """
    last, n_steps = len(backward) - 1, len(offsets) - 1
    changes, products = np.empty((offsets[1], smoothed.shape[1])), np.empty((offsets[1], smoothed.shape[1]))
    copy(filtered, smoothed)
    for t in range(n_steps - 2, -1, -1):
        a, b, c = offsets[t], offsets[t + 1], offsets[t + 2]
        n_next = c - b
        change, product = changes[:n_next], products[:n_next]
        copy(smoothed[b:c], change)
        add_scaled(-1.0, predicted[b:c], change)
        np.dot(change, backward[min(t, last)], product)
        add_scaled(1.0, product, smoothed[a : a + n_next])


@compiled(inner=True)
def _add_product(row: np.ndarray, matrix: np.ndarray, target: np.ndarray) -> None:
    """Add the vector-matrix product ``row @ matrix`` of shapes ``(I,)`` and ``(I, J)`` to ``target``, ``(J,)``."""
    for i in range(len(row)):
        factor = row[i]
        for j in range(len(target)):
            target[j] += factor * matrix[i, j]


@compiled
def filter_means_of_one(
    transition_t: np.ndarray,
    observation_t: np.ndarray,
    white: np.ndarray,
    gain: np.ndarray,
    x: np.ndarray,
    observed: np.ndarray,
    drive: np.ndarray,
    mean: np.ndarray,
    innovations: np.ndarray,
    predicted: np.ndarray,
    filtered: np.ndarray,
) -> None:
    """Run the means of the Kalman filter over one sequence of T steps, given the gains of each step.

    Rows of one sequence are so short that a call of BLAS would cost more than its arithmetic.

    Args:
        transition_t: transposed transition matrix of the move from each step to the next, ``(G, K, K)``; the last holds
            for all later moves.
        observation_t: transposed observation matrix, ``(K, D)``.
        white, gain: results of ``covariances``; the last step holds for all later.
        x: values, ``(T, D)``.
        observed: 1 where a value is observed, else 0, ``(T, D)``; no rows if all are observed.
        drive: vectors that are added to each predicted mean but the first, ``(T, K)``; no rows for none.
        mean: mean of the first state, ``(K,)``.
        innovations: result, standardised prediction errors, ``(T, D)``.
        predicted, filtered: results, means of the state given the steps before, and given also its own, ``(T, K)``.
    """
    last, last_move, D, K = len(white) - 1, len(transition_t) - 1, x.shape[1], len(mean)
    residual = np.empty(D)
    for t in range(len(x)):
        g = min(t, last)
        here, out = predicted[t], filtered[t]
        if t == 0:
            for k in range(K):
                here[k] = mean[k]
        else:
            here[:] = 0.0
            _add_product(filtered[t - 1], transition_t[min(t - 1, last_move)], here)
            if len(drive):
                for k in range(K):
                    here[k] += drive[t, k]
        innovations[t] = 0.0
        residual[:] = 0.0
        _add_product(here, observation_t, residual)
        for d in range(D):
            residual[d] = x[t, d] - residual[d]
            if len(observed):
                residual[d] *= observed[t, d]
        _add_product(residual, white[g], innovations[t])
        for k in range(K):
            out[k] = here[k]
        _add_product(innovations[t], gain[g], out)


@compiled
def smooth_means_of_one(
    backward: np.ndarray, predicted: np.ndarray, filtered: np.ndarray, smoothed: np.ndarray
) -> None:
    """Fill ``smoothed`` with the means of the states of one sequence given all of it, ``(T, K)``.

    ``backward (G, K, K)`` has the matrix of the smoother's step at each step, of which the last holds for all later.
    ``predicted`` and ``filtered`` are the filter's means, ``(T, K)``.
    """
    last, change = len(backward) - 1, np.empty(predicted.shape[1])
    copy(filtered, smoothed)
    for t in range(len(filtered) - 2, -1, -1):
        for k in range(len(change)):
            change[k] = smoothed[t + 1, k] - predicted[t + 1, k]
        _add_product(change, backward[min(t, last)], smoothed[t])


@compiled(inner=True)
def _is_forgotten(power: np.ndarray, begun: np.ndarray, here: np.ndarray, unchanged: float) -> bool:
    """Return True if a recursion ``S <- V + Jᵀ S J`` over covariances has converged.

    Args:
        power: J to the power of the number of steps so far, ``(K, K)``.
        begun: the S that the recursion began with, ``(K, K)``.
        here: the present S, ``(K, K)``.
        unchanged: accepted distance to the limit, relative to the standard deviations of ``here``.
    """
    K = len(here)
    half, of_begun, of_here = np.empty((K, K)), np.empty((K, K)), np.empty((K, K))
    np.dot(power.T, begun, half)
    np.dot(half, power, of_begun)
    np.dot(power.T, here, half)
    np.dot(half, power, of_here)
    for i in range(K):
        for j in range(K):
            scale = np.sqrt(max(here[i, i], 0.0)) * np.sqrt(max(here[j, j], 0.0))
            if abs(of_begun[i, j]) + abs(of_here[i, j]) > unchanged * scale:
                return False
    return True


@compiled
def smooth_covariances(
    backward: np.ndarray,
    rest: np.ndarray,
    filtered: np.ndarray,
    ending: np.ndarray,
    going_on: np.ndarray,
    unchanged: float,
    smoothed: np.ndarray,
    across: np.ndarray,
    before: np.ndarray,
) -> None:
    """Compute weighted sums over sequences of the smoothed covariances of states, at each of T steps.

    The recursion is linear in the sums, so that sequences of all lengths take one pass.

    Args:
        backward, rest, filtered: results of ``covariances``; the last step holds for all later.
        ending: weight of the sequences whose last step this is, ``(T,)``.
        going_on: weight of the sequences that go on after this step, ``(T,)``.
        unchanged: largest relative effect that earlier sums may still have where the sums are taken to be constant.
        smoothed: result, the sums of Cov[z_t], ``(T, K, K)``.
        across: result, the sums of Cov[z_t+1, z_t], ``(T, K, K)``.
        before: result, the sum over steps of Cov[z_t] of the sequences that go on, ``(K, K)``.
    """
    n_steps, last, K = len(ending), len(backward) - 1, backward.shape[1]
    leaving, power, begun, product = np.empty((K, K)), np.empty((K, K)), np.empty((K, K)), np.empty((K, K))
    n_alike = 0  # steps of one recursion, from sums ``begun``: what is left of these is what ``power`` makes of them
    t = n_steps - 1
    while t >= 0:
        g, here = min(t, last), smoothed[t]
        here[:] = 0.0
        add_scaled(ending[t], filtered[g], here)
        if t < n_steps - 1:
            np.dot(smoothed[t + 1], backward[g], across[t])
            np.dot(backward[g].T, across[t], leaving)
            add_scaled(going_on[t], rest[g], leaving)
            add_scaled(1.0, leaving, before)
            add_scaled(1.0, leaving, here)
        if t <= last or ending[t] != 0.0:
            n_alike = 0
        else:
            if n_alike == 0:
                power[:] = 0.0
                for k in range(K):
                    power[k, k] = 1.0
                copy(here, begun)
            else:
                np.dot(backward[g], power, product)
                copy(product, power)
            n_alike += 1
            if n_alike % LOOK_EVERY == 0 and _is_forgotten(power, begun, here, unchanged):
                np.dot(here, backward[last], product)
                n_same = 0
                while t - 1 > last and ending[t - 1] == 0.0:
                    t, n_same = t - 1, n_same + 1
                    copy(here, smoothed[t])
                    copy(product, across[t])
                add_scaled(float(n_same), here, before)
                n_alike = 0
        t -= 1


@compiled
def smooth_means_by_adjoints(
    transition: np.ndarray,
    observation: np.ndarray,
    white: np.ndarray,
    gain: np.ndarray,
    covariance: np.ndarray,
    offsets: np.ndarray,
    innovations: np.ndarray,
    filtered: np.ndarray,
    smoothed: np.ndarray,
) -> None:
    """Fill ``smoothed`` with the means of the states given all of each sequence, by the adjoints of the filter.

    The smoothed mean is ``a_t + r_t P_t``, with a_t and P_t the predicted mean and covariance and r_t the adjoint,
    computed from the last step to the first (Bryson and Frazier 1963).

    Args:
        transition: transition matrix of the move from each step to the next, ``(G, K, K)``; the last holds for all
            later moves.
        observation: observation matrix, ``(D, K)``.
        white, gain: results of ``covariances``; the last step holds for all later.
        covariance: the result ``filtered`` of ``covariances``.
        offsets: first row of each step, and N at the end.
        innovations: standardised innovations, ``(N, D)``.
        filtered: filtered means, ``(N, K)``.
        smoothed: result, ``(N, K)``.
    """
    last, n_steps, K, D = len(white) - 1, len(offsets) - 1, transition.shape[1], white.shape[1]
    last_move, n_first = len(transition) - 1, offsets[1]
    adjoints, moves, products = np.empty((n_first, K)), np.zeros((n_first, K)), np.empty((n_first, K))
    errors, expected, weights = np.empty((n_first, D)), np.empty((n_first, D)), np.empty((D, K))
    for t in range(n_steps - 1, -1, -1):
        a, b = offsets[t], offsets[t + 1]
        g, n = min(t, last), b - a
        n_next = 0 if t == n_steps - 1 else offsets[t + 2] - b
        moved, product, error, seen = moves[:n], products[:n], errors[:n], expected[:n]
        if n_next:
            np.dot(adjoints[:n_next], transition[min(t, last_move)], moves[:n_next])
        moves[n_next:n] = 0.0
        copy(filtered[a:b], smoothed[a:b])
        np.dot(moved, covariance[g], product)
        add_scaled(1.0, product, smoothed[a:b])
        copy(innovations[a:b], error)
        np.dot(moved, gain[g].T, seen)
        add_scaled(-1.0, seen, error)
        np.dot(white[g].T, observation, weights)
        np.dot(error, weights, product)
        copy(moved, adjoints[:n])
        add_scaled(1.0, product, adjoints[:n])


@compiled
def smooth_covariances_by_adjoints(
    transition: np.ndarray,
    state_covariance: np.ndarray,
    observation: np.ndarray,
    white: np.ndarray,
    gain: np.ndarray,
    filtered: np.ndarray,
    observed: np.ndarray,
    smoothed: np.ndarray,
    across: np.ndarray,
) -> None:
    """Compute the covariances of the states of one sequence given all of it, by the adjoints of the filter.

    Args:
        transition: transition matrix of the move from each step to the next, ``(G, K, K)``; the last holds for all
            later moves.
        state_covariance: noise covariance of the move from each step to the next, ``(G, K, K)``.
        observation: observation matrix, ``(D, K)``.
        white, gain, filtered: results of ``covariances``; the last step holds for all later.
        observed: 1 where a value is observed, else 0, ``(T, D)``; no rows if all are observed.
        smoothed: result, Cov[z_t], ``(T, K, K)``.
        across: result, Cov[z_t+1, z_t], ``(T, K, K)``; its last step is not set.
    """
    n_steps, last, K, D = len(smoothed), len(white) - 1, transition.shape[1], white.shape[1]
    spread, last_move = np.zeros((K, K)), len(transition) - 1
    moved, predicted, inner, product = np.empty((K, K)), np.empty((K, K)), np.empty((K, K)), np.empty((K, K))
    seen, weights, closed, through = np.empty((D, K)), np.empty((D, K)), np.empty((K, K)), np.empty((K, K))
    for t in range(n_steps - 1, -1, -1):
        g, move = min(t, last), min(t, last_move)
        covariance = filtered[g]
        np.dot(transition[move], covariance, moved)
        if t < n_steps - 1:
            np.dot(moved, transition[move].T, predicted)
            add_scaled(1.0, state_covariance[move], predicted)
            np.dot(spread, moved, product)
            np.dot(predicted, product, through)
            copy(moved, across[t])
            add_scaled(-1.0, through, across[t])
        np.dot(transition[move].T, spread, product)
        np.dot(product, transition[move], inner)
        np.dot(covariance, inner, product)
        np.dot(product, covariance, through)
        copy(covariance, smoothed[t])
        add_scaled(-1.0, through, smoothed[t])
        copy(observation, seen)
        if len(observed):
            for d in range(D):
                if observed[t, d] == 0.0:
                    seen[d] = 0.0
        np.dot(white[g].T, seen, weights)
        np.dot(gain[g].T, weights, closed)
        np.dot(inner, closed, product)
        copy(inner, through)
        add_scaled(-1.0, product, through)  # N (1 - K C)
        np.dot(closed.T, through, product)
        np.dot(weights.T, weights, spread)
        add_scaled(1.0, through, spread)
        add_scaled(-1.0, product, spread)
