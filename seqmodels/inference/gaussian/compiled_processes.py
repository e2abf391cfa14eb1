"""Maximum likelihood of linear processes ``a(B) y = u`` in compiled loops: the numbers of a process are searched for.

``u`` is Gaussian with autocovariances γ up to lag q. The columns of the Cholesky factor of its covariance are computed
one after the other, each from the q before it, and take y and the regressors apart into independent steps as they
appear. Once q columns equal the ones before, all later ones do, so that what is left is a filter with constant
coefficients. The plain form of the likelihood is ``evaluation/forecasting/linear_process.py``.
"""

from __future__ import annotations

import math

import numpy as np

from seqmodels.common.compiled import compiled

RIDGE = 1e-9  # of γ_0, added to it, so that the covariance has a Cholesky factor
SETTLED = 1e-11  # change of a column of the factor, relative to its first entry, from which it counts as constant
IMPOSSIBLE = 1e10  # loss of numbers that are no process
DIFFERENCE = 1e-5  # of a number, in gradients
BLOCK = 8  # numbers that loops over the columns of a factor take together
VANISHED = 1e-18  # size of a response to a shock from which it counts as over
MAX_ITERATIONS = 60
LEAST_GAIN, LEAST_GRADIENT = 1e-7, 1e-4  # of the loss, relative to it, and of its gradient, with which a search ends
ENOUGH_GAIN = 1e-4  # least decrease of the loss in a step, relative to that of its tangent
LARGEST_STEP = 0.125  # of the distance between the bounds of a number: far from the start little changes with it
LENGTHENED = 4.0  # factor of the next step where the loss is not convex along the last one
MOST_HALVINGS = 20  # of a step that does not decrease the loss
DEPENDENT = 1e-12  # share of a regressor's squares that others leave, below which it is left out
LOG_DEPENDENT = math.log(1e-10)  # logarithm of the volume that a missing value counts for if its regressor is left out


@compiled(inner=True)
def convolved(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the product of two polynomials given by their coefficients, ``(len(left) + len(right) - 1,)``."""
    result = np.zeros(len(left) + len(right) - 1)
    for i in range(len(left)):
        if left[i] != 0.0:
            for j in range(len(right)):
                result[i + j] += left[i] * right[j]
    return result


@compiled(inner=True)
def stationary_polynomial(numbers: np.ndarray, lag: int | np.int64) -> np.ndarray:
    """Return ``1 - φ_1 B^lag - φ_2 B^2lag - ...`` whose partial autocorrelations are ``tanh(numbers)``."""
    n = len(numbers)
    coefficients, before = np.zeros(n), np.zeros(n)
    for k in range(n):
        partial = math.tanh(numbers[k])
        for i in range(k):
            before[i] = coefficients[i]
        for i in range(k):
            coefficients[i] = before[i] - partial * before[k - 1 - i]
        coefficients[k] = partial
    result = np.zeros(n * lag + 1)
    result[0] = 1.0
    for k in range(n):
        result[(k + 1) * lag] = -coefficients[k]
    return result


@compiled(inner=True)
def add_autocovariance(theta: np.ndarray, variance: float, gamma: np.ndarray) -> None:
    """Add the autocovariances of the moving average ``θ(B) ε`` to ``gamma``; ε has the given variance."""
    for lag in range(len(theta)):
        total = 0.0
        for i in range(len(theta) - lag):
            total += theta[i] * theta[i + lag]
        gamma[lag] += variance * total


@compiled(inner=True)
def polynomials_of(
    numbers: np.ndarray, orders: np.ndarray, parts: np.ndarray, is_damped: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the autoregressive polynomial of a process without its differences, and what u is.

    u is given by the moving-average polynomial θ of an ARIMA, or by the autocovariances γ of a structural process.

    Args:
        numbers: N shape parameters, ``(N,)``.
        orders: p, q, P, Q and the season of an ARIMA, ``(5,)``; not read if there are parts.
        parts: polynomials of the parts of a structural process (noise first), each of whose variances but the first is
            the exponential of a number, ``(K, L)``; an ARIMA has none, ``(0, 0)``.
        is_damped: whether a part is multiplied by ``1 - φ B`` with φ the hyperbolic tangent of the last number,
            ``(K,)``.
    """
    if len(parts):
        n_parts, length = parts.shape
        damped = np.zeros(1 + (len(numbers) == n_parts))
        damped[0] = 1.0
        if len(damped) > 1:
            damped[1] = -math.tanh(numbers[-1])
        gamma = np.zeros(length + len(damped) - 1)
        for k in range(n_parts):
            each = convolved(parts[k], damped) if is_damped[k] else parts[k]
            add_autocovariance(each, 1.0 if k == 0 else math.exp(numbers[k - 1]), gamma)
        return damped, gamma
    p, q, P, season = orders[0], orders[1], orders[2], orders[4]
    one = np.int64(1)  # a literal 1 would be a type of its own to numba, for which it compiles once more
    ar = convolved(stationary_polynomial(numbers[:p], one), stationary_polynomial(numbers[p + q : p + q + P], season))
    ma = convolved(stationary_polynomial(numbers[p : p + q], one), stationary_polynomial(numbers[p + q + P :], season))
    return ar, ma


@compiled(any_order=True, inner=True)
def whiten(gamma: np.ndarray, columns: np.ndarray) -> float:
    """Multiply C columns, ``(C, n)``, by ``L⁻¹`` in place; return the logarithm of the determinant of L.

    L is the Cholesky factor of the covariance of n steps whose autocovariances are ``gamma (q + 1,)``. The result is
    NaN if there is no factor.
    """
    n_columns, n = columns.shape
    q, log_det = len(gamma) - 1, 0.0
    width = (q + BLOCK) // BLOCK * BLOCK  # rows are padded with zeros, so that loops are whole vectors
    first = np.zeros(width)
    later = np.zeros((q + 1, width))  # row (j + i) % (q + 1): column j + i of what is left of the covariance
    for i in range(q + 1):
        first[i] = gamma[i] * (1 + RIDGE if i == 0 else 1)
        for j in range(q + 1):
            later[j, i] = first[i]
    before, here = np.zeros(width), np.zeros(2 * width)
    has_settled, n_alike = False, 0
    log_pivot, place = 0.0, 0
    for j in range(n):
        if not has_settled:
            row = later[place]
            if not row[0] > 0.0:
                return np.nan
            pivot = math.sqrt(row[0])
            change = 0.0
            for i in range(width):
                here[i] = row[i] / pivot
                change = max(change, abs(here[i] - before[i]))
                before[i] = here[i]
                row[i] = first[i]
            log_pivot = math.log(pivot)
            n_alike = n_alike + 1 if change <= SETTLED * here[0] else 0
            has_settled = n_alike > q  # because each column depends on the q before it
            place = place + 1 if place < q else 0
            target_place = place
            for i in range(1, q + 1):
                scale, target = here[i], later[target_place]
                for m in range((q + BLOCK - i) // BLOCK * BLOCK):
                    target[m] -= scale * here[i + m]
                target_place = target_place + 1 if target_place < q else 0
        log_det += log_pivot
        last = min(q, n - 1 - j)
        for c in range(n_columns):
            column = columns[c]
            each = column[j] / here[0]
            column[j] = each
            for i in range(1, last + 1):
                column[j + i] -= here[i] * each
    return log_det


@compiled(inner=True)
def nonzero_lags(theta: np.ndarray) -> np.ndarray:
    """Return the lags above 0 at which a polynomial has a coefficient, ``(L,)``, the smallest first."""
    lags = np.zeros(len(theta), dtype=np.int64)
    n = 0
    for lag in range(1, len(theta)):
        if theta[lag] != 0.0:
            lags[n] = lag
            n += 1
    return lags[:n]


@compiled(inner=True)
def invert(theta: np.ndarray, columns: np.ndarray) -> None:
    """Replace C series ``u = θ(B) ε``, ``(C, n)``, by ε, with ε zero before the first step."""
    lags = nonzero_lags(theta)
    for c in range(len(columns)):
        column = columns[c]
        for t in range(len(column)):
            each = column[t]
            for i in range(len(lags)):
                if lags[i] > t:
                    break
                each -= theta[lags[i]] * column[t - lags[i]]
            column[t] = each


@compiled(inner=True)
def set_to_identity(matrix: np.ndarray) -> None:
    """Set a matrix ``(N, N)`` to the identity."""
    for i in range(len(matrix)):
        for j in range(len(matrix)):
            matrix[i, j] = 1.0 if i == j else 0.0


@compiled(any_order=True, inner=True)
def explain_start(theta: np.ndarray, columns: np.ndarray, products: np.ndarray) -> float:
    """Subtract from the products of C inverted series what the q unknown ε before the first step explain of them.

    The products are then those of ``L⁻¹ u``, with L the Cholesky factor of the covariance of u; return the logarithm of
    its determinant. The unknown ε are coefficients of a regression with the variance 1, as in Ljung and Box (1979).

    Args:
        theta: coefficients of θ, ``(q + 1,)``.
        columns: the series as ``invert`` returns them, the target first, ``(C, n)``.
        products: products of all pairs, with the target last, ``(C, C)``.
    """
    n_columns, n = columns.shape
    q = len(theta) - 1
    lags = nonzero_lags(theta)
    if not len(lags):
        return 0.0
    response = np.zeros(n)  # of ε to a shock in u
    response[0] = 1.0
    length, n_small = n, 0
    for t in range(1, n):
        each = 0.0
        for i in range(len(lags)):
            if lags[i] > t:
                break
            each -= theta[lags[i]] * response[t - lags[i]]
        response[t] = each
        n_small = n_small + 1 if abs(each) < VANISHED else 0
        if n_small >= q:
            length = t + 1
            break
    # A shock at step i moves ε by the response from i on: gram has the products of these for i below q.
    gram, with_columns = np.zeros((q, q)), np.zeros((n_columns, q))
    for k in range(min(q, n)):
        total = 0.0
        for t in range(length - k):
            total += response[t] * response[t + k]
        gram[0, k] = total
        for i in range(1, min(q, n) - k):
            total -= response[n - i] * response[n - i - k]
            gram[i, i + k] = total
    for i in range(min(q, n)):
        for j in range(i):
            gram[i, j] = gram[j, i]
    for c in range(n_columns):
        column = columns[(c + 1) % n_columns]
        for i in range(min(q, n)):
            total = 0.0
            for t in range(min(length, n - i)):
                total += response[t] * column[t + i]
            with_columns[c, i] = total
    # ε at j + 1 steps before the first one is a shock of θ_(i + j + 1) at step i.
    half = np.zeros((q, q))
    moments, factor = np.zeros((n_columns, q)), np.zeros((q, q))
    set_to_identity(factor)
    for lag in lags:
        for i in range(lag):
            j = lag - 1 - i
            for m in range(q):
                half[j, m] += theta[lag] * gram[i, m]
            for c in range(n_columns):
                moments[c, j] += theta[lag] * with_columns[c, i]
    for lag in lags:
        for i in range(lag):
            j = lag - 1 - i
            for m in range(j, q):
                factor[m, j] += theta[lag] * half[m, i]
    log_det = 0.0
    for j in range(q):  # Cholesky, and the moments times its inverse
        for m in range(j):
            scale = factor[j, m]
            if scale != 0.0:
                for i in range(j, q):
                    factor[i, j] -= scale * factor[i, m]
        pivot = math.sqrt(factor[j, j])
        log_det += math.log(pivot)
        for i in range(j, q):
            factor[i, j] /= pivot
        for c in range(n_columns):
            each = moments[c, j] / pivot
            moments[c, j] = each
            for i in range(j + 1, q):
                moments[c, i] -= factor[i, j] * each
    for c in range(n_columns):
        for d in range(n_columns):
            total = 0.0
            for j in range(q):
                total += moments[c, j] * moments[d, j]
            products[c, d] -= total
    return log_det


@compiled(any_order=True, inner=True)
def loss_of(
    numbers: np.ndarray,
    orders: np.ndarray,
    parts: np.ndarray,
    is_damped: np.ndarray,
    series: np.ndarray,
    X: np.ndarray,
    n_missing: int,
    unit: float,
) -> float:
    """Return minus the concentrated log-likelihood per step; ``most_likely`` describes the arguments."""
    ar, of_u = polynomials_of(numbers, orders, parts, is_damped)
    n_series, n_steps = series.shape
    p, n = len(ar) - 1, series.shape[1] - len(ar) + 1
    n_columns = n_series + len(X)
    columns = np.zeros((n_columns, n))
    for lag in range(p + 1):
        if ar[lag] != 0.0:
            for c in range(n_series):
                for t in range(n):
                    columns[c, t] += ar[lag] * series[c, t + p - lag]
    for c in range(len(X)):
        for t in range(n):
            columns[n_series + c, t] = X[c, X.shape[1] - n + t]
    log_det = 0.0
    if len(parts):
        log_det = whiten(of_u, columns)
    else:
        invert(of_u, columns)
    products = np.zeros((n_columns, n_columns))  # the target stands last, after missing values, inputs and regressors
    for i in range(n_columns):
        for j in range(i + 1):
            left, right, total = columns[(i + 1) % n_columns], columns[(j + 1) % n_columns], 0.0
            for t in range(n):
                total += left[t] * right[t]
            products[i, j] = products[j, i] = total
    if not len(parts):
        log_det = explain_start(of_u, columns, products)
    squares = np.zeros(n_columns)
    for i in range(n_columns):
        squares[i] = products[i, i]
    for i in range(n_columns - 1):
        is_dependent = not products[i, i] > DEPENDENT * squares[i]
        if i < n_missing:  # the volume that the missing values take (Gómez, Maravall and Peña 1999)
            log_det += LOG_DEPENDENT if is_dependent else 0.5 * math.log(products[i, i])
        if is_dependent:
            continue
        for j in range(i + 1, n_columns):
            slope = products[j, i] / products[i, i]
            for k in range(i + 1, n_columns):
                products[j, k] -= slope * products[i, k]
    n_values, left_over = n - n_missing, products[-1, -1]
    if n_values < 1 or not left_over > 0.0:
        return IMPOSSIBLE
    log_prob = 0.5 * n_values * (-1 - math.log(2 * math.pi) - math.log(left_over / n_values)) - log_det
    return -(log_prob + unit) / n_steps if math.isfinite(log_prob) else IMPOSSIBLE


@compiled(inner=True)
def step_along(
    x: np.ndarray, direction: np.ndarray, length: float, bounds: np.ndarray, gradient: np.ndarray, new: np.ndarray
) -> float:
    """Set ``new (N,)`` to the point at a length along a direction from x, within bounds ``(N, 2)``.

    Return by how much the loss would change there if it were linear.
    """
    expected = 0.0
    for i in range(len(x)):
        new[i] = min(max(x[i] + length * direction[i], bounds[i, 0]), bounds[i, 1])
        expected += gradient[i] * (new[i] - x[i])
    return expected


@compiled(inner=True)
def update_inverse(
    inverse: np.ndarray,
    steps: np.ndarray,
    gradient: np.ndarray,
    old_gradient: np.ndarray,
    is_scaled: bool,
    changes: np.ndarray,
    along: np.ndarray,
) -> bool:
    """Update the inverse Hessian of BFGS, ``(N, N)``, by a step; return whether its size is known by now.

    Args:
        inverse: the inverse Hessian before the step, which is changed.
        steps: the step, ``(N,)``.
        gradient, old_gradient: gradients after and before it, ``(N,)``.
        is_scaled: whether the size of the inverse Hessian was known before.
        changes, along: arrays ``(N,)`` for what is computed on the way.
    """
    N = len(steps)
    curvature, steps_squared, changes_squared, product = 0.0, 0.0, 0.0, 0.0
    for i in range(N):
        changes[i] = gradient[i] - old_gradient[i]
        curvature += steps[i] * changes[i]
        steps_squared += steps[i] ** 2
        changes_squared += changes[i] ** 2
    if curvature < 0:  # the loss falls faster and faster: longer steps
        for i in range(N):
            for j in range(N):
                inverse[i, j] *= LENGTHENED
    if not curvature > 1e-10 * math.sqrt(steps_squared * changes_squared):
        return is_scaled
    if not is_scaled:
        set_to_identity(inverse)
        for i in range(N):
            inverse[i, i] = curvature / changes_squared
    for i in range(N):
        along[i] = 0.0
        for j in range(N):
            along[i] += inverse[i, j] * changes[j]
        product += changes[i] * along[i]
    factor = (curvature + product) / curvature**2
    for i in range(N):
        for j in range(N):
            inverse[i, j] += factor * steps[i] * steps[j]
            inverse[i, j] -= (along[i] * steps[j] + steps[i] * along[j]) / curvature
    return True


@compiled
def most_likely(
    start: np.ndarray,
    bounds: np.ndarray,
    orders: np.ndarray,
    parts: np.ndarray,
    is_damped: np.ndarray,
    series: np.ndarray,
    X: np.ndarray,
    n_missing: int,
    unit: float,
) -> tuple[np.ndarray, float]:
    """Return the N shape parameters within bounds that minimise a process's loss, and the loss, by BFGS.

    The loss is minus the log-likelihood per step that is largest over the coefficients of regressors and the variance.

    Args:
        start: numbers to begin with, ``(N,)``.
        bounds: least and largest of each number, ``(N, 2)``.
        orders, parts, is_damped: the process, as in ``polynomials_of``.
        series: the series after the process's differences, and after it the regressors that are differenced too:
            minus one at each of the missing values, and the inputs, ``(1 + n_missing + U, T)``.
        X: R regressors that are not differenced, ``(R, T)``.
        n_missing: number of missing values.
        unit: nats added to the log-likelihood.
    """
    N = len(start)
    # Nothing but zeros of floats, because numba takes a tenth of a second to compile another kind of new array.
    x, gradient, inverse = np.zeros(N), np.zeros(N), np.zeros((N, N))  # the inverse of the Hessian
    new, old_gradient, steps, changes = np.zeros(N), np.zeros(N), np.zeros(N), np.zeros(N)
    direction, along, is_free = np.zeros(N), np.zeros(N), np.zeros(N)
    for i in range(N):
        x[i] = new[i] = min(max(start[i], bounds[i, 0]), bounds[i, 1])
    no = N < 0  # False, but no literal, which would be a type of its own to numba
    is_scaled, is_fresh = no, True  # whether the size of the inverse is known; whether it begins anew
    value, length, expected = np.inf, 0.0, 0.0
    moved, n_halved, n_iterations = -1, 0, -1  # moved: which number is moved for the gradient, -1 for none
    # A round computes one loss, with a number moved for the gradient or after a step, so that numba compiles it once.
    while True:
        here = loss_of(new, orders, parts, is_damped, series, X, n_missing, unit)
        if moved >= 0:
            gradient[moved] = (here - value) / (new[moved] - x[moved])
            new[moved] = x[moved]
        else:
            has_moved = here <= value + ENOUGH_GAIN * expected
            if not has_moved and n_halved < MOST_HALVINGS:  # the minimum of the parabola through both and the slope
                curve = here - value - expected
                length *= min(max(-0.5 * expected / curve, 0.1), 0.5) if curve > 0 else 0.5
                n_halved += 1
                expected = step_along(x, direction, length, bounds, gradient, new)
                continue
            gain = value - here
            for i in range(N):
                steps[i] = new[i] - x[i] if has_moved and n_iterations >= 0 else 0.0
                x[i] = new[i] = new[i] if has_moved else x[i]
                old_gradient[i] = gradient[i]
            if has_moved:
                value = here
                if n_iterations >= 0 and gain <= LEAST_GAIN * max(abs(value), 1.0):
                    break
            elif not is_scaled:
                break
            else:
                is_fresh = True  # once more along the gradient
            n_iterations += 1
            if n_iterations == MAX_ITERATIONS:
                break
        moved += 1
        if moved < N:
            new[moved] = x[moved] + (DIFFERENCE if x[moved] + DIFFERENCE <= bounds[moved, 1] else -DIFFERENCE)
            continue
        moved = -1
        if is_fresh:
            set_to_identity(inverse)
            is_scaled, is_fresh = no, False
        else:
            is_scaled = update_inverse(inverse, steps, gradient, old_gradient, is_scaled, changes, along)
        largest, slope = 0.0, 0.0
        for i in range(N):
            at_bound = (x[i] <= bounds[i, 0] and gradient[i] > 0) or (x[i] >= bounds[i, 1] and gradient[i] < 0)
            is_free[i] = 0.0 if at_bound else 1.0
            if not at_bound:
                largest = max(largest, abs(gradient[i]))
        if largest <= LEAST_GRADIENT:
            break
        for i in range(N):
            direction[i] = 0.0
            if is_free[i] > 0:
                for j in range(N):
                    if is_free[j] > 0:
                        direction[i] -= inverse[i, j] * gradient[j]
                slope += direction[i] * gradient[i]
        if not slope < 0:
            set_to_identity(inverse)
            is_scaled = no
            for i in range(N):
                direction[i] = -gradient[i] if is_free[i] > 0 else 0.0
        length = 1.0
        for i in range(N):
            if direction[i] != 0.0:
                length = min(length, LARGEST_STEP * (bounds[i, 1] - bounds[i, 0]) / abs(direction[i]))
        n_halved = 1
        expected = step_along(x, direction, length, bounds, gradient, new)
    return x, value
