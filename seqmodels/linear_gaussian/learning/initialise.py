"""Starting parameters for EM, by regressions on states that are guessed from the data.

The first start tries two guesses and takes the likelier: canonical variates of past and future (a subspace method:
Larimore 1990; Van Overschee and De Moor 1996) and principal components of a few frames. Later starts take random
states.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from seqmodels.linear_gaussian.learning.em import regression
from seqmodels.linear_gaussian.learning.stationary import with_stationary_start
from seqmodels.linear_gaussian.parameters import Form, SystemParameters

RIDGE = 1e-3  # of standardised regressors
LARGEST_RADIUS = 0.995  # of the eigenvalues of a transition that EM starts from
LEAST_NOISE = 1e-3  # variance of the noise of a state of variance 1
LARGEST_LAG = 8  # frames of past and future


def starts(
    values: Sequence[np.ndarray],
    n_states: int,
    form: Form,
    seed: int,
    inputs: Sequence[np.ndarray] | None = None,
) -> Callable[[int], list[SystemParameters]]:
    """Return a function that takes the number of an EM start, from 0, and returns the parameters to try for it.

    Start 0 has two guesses, from canonical variates and from principal components; later starts have one random guess
    each. The linear effect of inputs on observations is removed from the data first.

    Args:
        values: encoded sequences, each ``(T, D)``, NaN where a value is missing.
        n_states: number of states K.
        form: which parameters are free.
        seed: seed of the random guesses.
        inputs: standardised inputs of each sequence, ``(T, U)``; None if there are none.
    """
    filled = [_filled(each) for each in values]
    known = [np.zeros((len(x), 0)) for x in filled] if inputs is None else inputs
    u = np.concatenate([each[:, form.observation_inputs] for each in known])
    slopes = np.linalg.lstsq(u, np.concatenate(filled))[0].T  # (D, V)
    filled = [x - each[:, form.observation_inputs] @ slopes.T for x, each in zip(filled, known, strict=True)]
    drives = [each[:, form.state_inputs] for each in known]

    def of(number: int) -> list[SystemParameters]:
        rng = np.random.default_rng([seed, number])
        if number == 0:
            states = [_canonical_variates(filled, n_states, rng), _principal_components(filled, n_states, rng)]
        else:
            states = [_random_states(filled, n_states, rng)]
        return [_regressed(filled, each, form, drives, slopes) for each in states]

    return of


def _filled(x: np.ndarray) -> np.ndarray:
    """Return a sequence ``x (T, D)`` with missing values (NaN) interpolated linearly in time.

    A feature without any observed value becomes 0, the mean of the standardised data.
    """
    filled = np.array(x, dtype=np.float64)
    for column in filled.T:
        missing = np.isnan(column)
        if missing.all():
            column[:] = 0.0
        elif missing.any():
            column[missing] = np.interp(np.flatnonzero(missing), np.flatnonzero(~missing), column[~missing])
    return filled


def _windows(values: Sequence[np.ndarray], lags: Sequence[int]) -> np.ndarray:
    """Return for each of N steps the frames at the given L lags from it, side by side, ``(N, D L)``; 0 beyond the ends.

    ``values`` are the sequences, each ``(T, D)``; a lag is a number of steps, negative for earlier frames.
    """
    reach = max(abs(lag) for lag in lags)
    padded = [np.pad(x, ((reach, reach), (0, 0))) for x in values]
    return np.concatenate([np.concatenate([p[reach + lag : len(p) - reach + lag] for lag in lags], 1) for p in padded])


def _canonical_variates(values: Sequence[np.ndarray], n_states: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Return the combinations of past frames that correlate most with future ones, to serve as states of the sequences.

    Args:
        values: sequences without missing values, each ``(T, D)``.
        n_states: number of states K.
        rng: source of random numbers for states that the data do not give.

    Returns:
        States ``(T, K)`` of each sequence.
    """
    D = values[0].shape[1]
    n_lags = min(LARGEST_LAG, max(2, -(-n_states // D) + 1))
    past, future = _windows(values, range(-n_lags + 1, 1)), _windows(values, range(1, n_lags + 1))
    white_past, white_future = _whitening(past), _whitening(future)
    left, _, _ = np.linalg.svd(white_past.T @ (past.T @ future / len(past)) @ white_future)
    return _standardised(past @ (white_past @ left[:, :n_states]), values, n_states, rng)


def _whitening(x: np.ndarray) -> np.ndarray:
    """Return a matrix W ``(I, I)`` such that ``x W`` has nearly the identity as its covariance, for ``x (N, I)``.

    A small ridge is added to the variances first.
    """
    covariance = x.T @ x / len(x)
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray(vectors / np.sqrt(np.maximum(values, 0.0) + RIDGE * max(values.max(), 1e-300)))


def _principal_components(values: Sequence[np.ndarray], n_states: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Return principal components of a few consecutive frames, to serve as states of the sequences.

    As many frames, at most ``LARGEST_LAG`` steps away, are taken together as give at least K = ``n_states`` numbers.
    States are ``(T, K)`` for each sequence.
    """
    D = values[0].shape[1]
    reach = 0 if n_states <= D else min(LARGEST_LAG, -(-(-(-n_states // D) - 1) // 2))
    windows = _windows(values, range(-reach, reach + 1))
    vectors = np.linalg.eigh(windows.T @ windows)[1][:, ::-1]
    return _standardised(windows @ vectors[:, :n_states], values, n_states, rng)


def _random_states(values: Sequence[np.ndarray], n_states: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Return random projections of the frames, averaged over past steps, to serve as states.

    ``values`` are the sequences, each ``(T, D)``. States are ``(T, K)`` for each, with K = ``n_states``.
    """
    projections = rng.standard_normal((values[0].shape[1], n_states))
    decays = rng.uniform(0.0, 0.98, n_states)
    states = []
    for x in values:
        z, here = np.empty((len(x), n_states)), np.zeros(n_states)
        for t, projected in enumerate(x @ projections):
            here = z[t] = decays * here + projected
        states.append(z)
    return _standardised(np.concatenate(states), values, n_states, rng)


def _standardised(
    states: np.ndarray, values: Sequence[np.ndarray], n_states: int, rng: np.random.Generator
) -> list[np.ndarray]:
    """Return states of all steps, ``states (N, F)``, scaled to mean square 1, as ``(T, K)`` for each sequence.

    Columns that are constant zero are dropped, and columns of noise are added until there are K = ``n_states``.
    """
    scale = np.sqrt(np.square(states).mean(0))
    usable = scale > 1e-8 * scale.max(initial=0.0)
    columns = states[:, usable] / scale[usable]
    noise = rng.standard_normal((len(states), n_states - columns.shape[1]))
    joined = np.concatenate([columns, noise], 1)
    return np.split(joined, np.cumsum([len(x) for x in values])[:-1])


def _regressed(
    values: Sequence[np.ndarray],
    states: Sequence[np.ndarray],
    form: Form,
    drives: Sequence[np.ndarray],
    observation_slopes: np.ndarray,
) -> SystemParameters:
    """Return parameters estimated by regressions on the given states.

    Args:
        values: sequences without missing values, each ``(T, D)``.
        states: states of each sequence, ``(T, K)``.
        form: which parameters are free.
        drives: inputs of each sequence that the states read, ``(T, U)``.
        observation_slopes: effects of inputs on observations, ``(D, V)``, which are copied to the result.
    """
    K, D = states[0].shape[1], values[0].shape[1]
    z, x = np.concatenate(states), np.concatenate(list(values))
    before, after = np.concatenate([s[:-1] for s in states]), np.concatenate([s[1:] for s in states])
    ridge = RIDGE * len(z) * np.eye(K)
    observation = np.linalg.solve(z.T @ z + ridge, z.T @ x).T
    noise = form.floored(_covariance(x - z @ observation.T) + LEAST_NOISE * np.diag(np.square(x).mean(0)))
    u = np.concatenate([drive[1:] for drive in drives])
    h = np.concatenate([before, u], 1)
    is_free = np.ones((K, h.shape[1]), dtype=bool)
    if form.transition == "diag":
        is_free[:, :K] = np.eye(K, dtype=bool)
    slopes = regression(after.T @ h, h.T @ h + RIDGE * len(z) * np.eye(h.shape[1]), is_free)
    transition, state_slopes = slopes[:, :K], slopes[:, K:].copy()
    radius = np.abs(np.linalg.eigvals(transition)).max()
    transition = transition * min(1.0, LARGEST_RADIUS / max(radius, 1e-300))
    state_noise = _covariance(after - before @ transition.T - u @ state_slopes.T) if len(after) else np.eye(K)
    state_noise = state_noise + LEAST_NOISE * np.eye(K)
    if form.state_noise == "diag":
        state_noise = np.diag(np.diagonal(state_noise))
    elif form.state_noise == "identity":
        if form.transition == "diag":
            state_noise = np.diag(np.diagonal(state_noise))
        factor, state_noise = np.linalg.cholesky(state_noise), np.eye(K)
        transition, state_slopes = np.linalg.solve(factor, transition @ factor), np.linalg.solve(factor, state_slopes)
        observation = observation @ factor
    start = np.stack([s[0] for s in states])
    parameters = SystemParameters(
        *(transition, state_noise, observation, np.zeros(D), noise),
        *(start.mean(0), _covariance(start - start.mean(0)) + np.eye(K)),
        *(state_slopes, observation_slopes.copy()),
    )
    if form.state_noise == "identity":
        parameters = replace(parameters, initial_mean=np.zeros(K), initial_covariance=np.eye(K) * K)
    return with_stationary_start(parameters) if form.start == "stationary" else parameters


def _covariance(x: np.ndarray) -> np.ndarray:
    return np.asarray(x.T @ x / max(len(x), 1))
