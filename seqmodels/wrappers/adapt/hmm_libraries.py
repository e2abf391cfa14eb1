"""Hidden Markov models of hmmlearn, dynamax and Pyro, as models with the same parameters and figures.

What these functions return is fitted, and ``fit`` leaves it as it is, so that it stands in ``compare`` with its
figures. ``fit`` goes on by EM from the parameters of an ``HMM`` after ``set_params(training__frozen=None)``, and from
those of a ``LinearGaussian`` after ``set_params(max_iter=100)``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from seqmodels.common.display import a_or_an
from seqmodels.hmm import HMM, ChainTraining
from seqmodels.linear_gaussian import LinearGaussian

ALL_TABLES = ("initial", "transition", "emission")


def from_hmmlearn(model: Any) -> HMM:
    """Return a fitted ``HMM`` with the parameters of an hmmlearn model, and so with its log-probabilities.

    The lengths of sequences have no probability (``length="given"``), as in hmmlearn. For a ``CategoricalHMM``,
    sequences are arrays of integers, ``(T,)``.

    Args:
        model: a fitted ``GaussianHMM``, ``GMMHMM``, ``CategoricalHMM`` or ``PoissonHMM``.

    Raises:
        ValueError: If the model is of another class, or is not fitted.
    """
    name = type(model).__name__
    if not hasattr(model, "transmat_"):
        raise ValueError(f"the {name} has no transmat_; fit it first, or pass a model of hmmlearn")
    chain = {"initial": model.startprob_, "transition": model.transmat_}
    match name:
        case "CategoricalHMM":
            return _as_it_is(**chain, emission=model.emissionprob_)
        case "PoissonHMM":
            return _as_it_is(**chain, rates=model.lambdas_)
        case "GaussianHMM":  # not covars_, which are full matrices for every type
            return _as_it_is(
                **chain, means=model.means_, covariances=model._covars_, covariance_type=model.covariance_type
            )
        case "GMMHMM":
            covariances, covariance_type = np.asarray(model.covars_), model.covariance_type
            if covariance_type == "tied":  # hmmlearn ties the components of each state, this library all components
                n_components = model.means_.shape[1]
                covariances, covariance_type = np.repeat(covariances[:, None], n_components, axis=1), "full"
            mixture = {"weights": model.weights_, "means": model.means_, "covariances": covariances}
            return _as_it_is(**chain, **mixture, covariance_type=covariance_type)
    raise ValueError(f"{a_or_an(name)} is not known here; pass a GaussianHMM, GMMHMM, CategoricalHMM or PoissonHMM")


def from_dynamax(parameters: Any) -> HMM:
    """Return a fitted ``HMM`` with the parameters of a dynamax model, and so with its log-probabilities.

    The lengths of sequences have no probability (``length="given"``). For a ``CategoricalHMM`` of one dimension,
    sequences are arrays of integers, ``(T,)``.

    Args:
        parameters: parameters that ``initialize`` or ``fit_em`` returns, with ``.initial.probs``,
            ``.transitions.transition_matrix`` and ``.emissions``, of a (diagonal, spherical, shared-covariance)
            ``GaussianHMM``, a (diagonal) ``GaussianMixtureHMM``, a ``CategoricalHMM``, ``BernoulliHMM`` or
            ``PoissonHMM``. Arrays may be of jax or numpy.

    Raises:
        ValueError: If the parameters are of another model, or there are several categorical features.
    """
    emissions = getattr(parameters, "emissions", None)
    if emissions is None:
        raise ValueError(
            f"{a_or_an(type(parameters))} has no emissions; pass the parameters of a dynamax HMM, the first of what "
            "initialize returns"
        )
    chain = {
        "initial": _array(parameters.initial.probs),
        "transition": _array(parameters.transitions.transition_matrix),
    }
    kind = type(emissions).__name__.removeprefix("Params").removesuffix("HMMEmissions")
    match kind:
        case "Categorical":
            probs = _array(emissions.probs)
            if probs.shape[1] != 1:
                raise ValueError(f"each step has {probs.shape[1]} categorical features; number their combinations")
            return _as_it_is(**chain, emission=probs[:, 0])
        case "Bernoulli":
            return _as_it_is(**chain, probabilities=_array(emissions.probs))
        case "Poisson":
            return _as_it_is(**chain, rates=_array(emissions.rates))
        case "Gaussian":
            return _as_it_is(**chain, **_gaussian(emissions, _array(emissions.covs), "full"))
        case "DiagonalGaussian":
            return _as_it_is(**chain, **_gaussian(emissions, _array(emissions.scale_diags) ** 2, "diag"))
        case "SphericalGaussian":
            return _as_it_is(**chain, **_gaussian(emissions, _array(emissions.scales) ** 2, "spherical"))
        case "SharedCovarianceGaussian":
            return _as_it_is(**chain, **_gaussian(emissions, _array(emissions.cov), "tied"))
        case "GaussianMixture":
            mixture = _gaussian(emissions, _array(emissions.covs), "full")
            return _as_it_is(**chain, **mixture, weights=_array(emissions.weights))
        case "DiagonalGaussianMixture":
            mixture = _gaussian(emissions, _array(emissions.scale_diags) ** 2, "diag")
            return _as_it_is(**chain, **mixture, weights=_array(emissions.weights))
    raise ValueError(
        f"emissions of {kind!r} are not known here; pass the parameters of a Gaussian, Gaussian mixture, categorical, "
        "Bernoulli or Poisson HMM"
    )


def from_pyro(distribution: Any) -> HMM | LinearGaussian:
    """Return a fitted model with the parameters, and so the log-probabilities, of a hidden Markov model of Pyro.

    A ``DiscreteHMM`` becomes an ``HMM``. A ``GaussianHMM``, and a ``LinearHMM`` whose noise is Gaussian (which has no
    ``log_prob`` in Pyro), become a ``LinearGaussian``, which uses the Kalman filter. Pyro's models make a transition
    before the first observation, so the distribution of the first state here is Pyro's initial one after a transition.
    If the noise of a transition has a mean, an additional state that is always 1 adds it. The lengths of sequences have
    no probability (``length="given"``). A model of Pyro that computes the distribution of the next step from the past
    can be passed to ``from_callable``.

    A ``GaussianMRF`` is refused, because its probability of some steps is not the marginal of its probability of more,
    so that there are no conditionals ``p(x_t | x_<t)``. A ``LinearHMM`` with other noise (Student's t, stable) and a
    ``GammaGaussianHMM`` are refused too, because their likelihood is not known in closed form.

    Args:
        distribution: a distribution that is homogeneous in time and has no batch axes. Observations of a
            ``DiscreteHMM`` are ``Categorical``, ``Normal``, ``MultivariateNormal``, ``Poisson`` or ``Bernoulli``
            (``.to_event(1)`` for vectors); noise of a ``LinearHMM`` is ``MultivariateNormal`` or
            ``Normal(...).to_event(1)``, untransformed.

    Raises:
        ValueError: If it is any other distribution.
    """
    name = type(distribution).__name__
    match name:
        case "DiscreteHMM":
            return _discrete_of_pyro(distribution)
        case "GaussianHMM":
            return _gaussian_of_pyro(distribution)
        case "LinearHMM":
            return _linear_of_pyro(distribution)
    raise ValueError(
        f"{a_or_an(name)} is not known here; pass a DiscreteHMM, GaussianHMM or LinearHMM of pyro.distributions, or a "
        "function that returns the distribution of the next step to from_callable(log_density=...)"
    )


def _discrete_of_pyro(distribution: Any) -> HMM:
    initial, transition = (_array(logits) for logits in (distribution.initial_logits, distribution.transition_logits))
    k = initial.shape[-1]
    if initial.size != k or transition.size != k * k:
        raise ValueError(
            f"the initial logits have shape {initial.shape} and the transition logits {transition.shape}; pass one of "
            f"({k},) and ({k}, {k}), the same at every step, without batch axes"
        )
    initial, transition = (_normalised(logits) for logits in (initial.reshape(k), transition.reshape(k, k)))
    chain = {"initial": initial @ transition, "transition": transition}
    return _as_it_is(**chain, **_emission_of_pyro(distribution.observation_dist, k))


def _gaussian_of_pyro(distribution: Any) -> LinearGaussian:
    """Convert a ``GaussianHMM`` of Pyro, whose three conditionals are kept in information form.

    They are ``p(z_0)``, ``p(z_t | z_{t-1})`` and ``p(x_t | z_t)``. Pyro (seen in 1.9.2) has no public access to them;
    ``tests/wrappers/adapt/test_linear_gaussian.py`` names the version.
    """
    k = int(distribution.hidden_dim)
    kept = [getattr(distribution, name, None) for name in ("_init", "_trans", "_obs")]
    if any(each is None for each in kept):
        raise ValueError(
            "the parameters of a GaussianHMM are not where Pyro 1.9 keeps them; pass a LinearHMM, or give them "
            "to LinearGaussian.from_parameters, or install pyro-ppl==1.9.2"
        )
    initial, transition, observation = kept
    return _state_space(_moments(initial, 0), _moments(transition, k), _moments(observation, k))


@dataclass(frozen=True)
class _Affine:
    """The parameters of a linear Gaussian conditional, ``y = x matrix + noise``.

    Attributes:
        matrix: matrix from rows x to rows y; without rows if there is no x.
        mean, covariance: mean and covariance of the noise.
    """

    matrix: np.ndarray
    mean: np.ndarray
    covariance: np.ndarray


def _moments(gaussian: Any, k: int) -> _Affine:
    """Convert a linear Gaussian conditional ``p(y | x)`` of Pyro to its matrix and the moments of its noise.

    Args:
        gaussian: an ``AffineNormal``, or a ``Gaussian`` over x and y.
        k: number of dimensions of x; 0 if y depends on nothing.
    """
    if type(gaussian).__name__ == "AffineNormal":
        matrix, mean, scale = (_array(each) for each in (gaussian.matrix, gaussian.loc, gaussian.scale))
        _check_homogeneous(matrix, 2)
        return _Affine(matrix.reshape(matrix.shape[-2:]), mean.reshape(-1), np.diag(scale.reshape(-1) ** 2))
    precision, information = _array(gaussian.precision), _array(gaussian.info_vec)
    _check_homogeneous(precision, 2)
    precision, information = precision.reshape(precision.shape[-2:]), information.reshape(-1)
    covariance = np.linalg.inv(precision[k:, k:])
    return _Affine(-precision[:k, k:] @ covariance, covariance @ information[k:], 0.5 * (covariance + covariance.T))


def _check_homogeneous(array: np.ndarray, n_axes: int) -> None:
    lead = array.shape[:-n_axes]
    if int(np.prod(lead)) != 1:
        raise ValueError(f"the parameters have batch axes {lead}; pass the parameters of one model, without batches")


def _linear_of_pyro(distribution: Any) -> LinearGaussian:
    if distribution.transforms:
        raise ValueError("observations of the LinearHMM are transformed; transform the data, and pass it without")
    parts = []
    noises = (distribution.initial_dist, distribution.transition_dist, distribution.observation_dist)
    matrices = (None, distribution.transition_matrix, distribution.observation_matrix)
    for noise, matrix in zip(noises, matrices, strict=True):
        base = noise.base_dist if type(noise).__name__ == "Independent" else noise
        if type(base).__name__ not in ("Normal", "MultivariateNormal"):
            raise ValueError(
                f"noise of {type(base).__name__} gives a LinearHMM no likelihood in closed form; pass Gaussian noise"
            )
        mean = _same_at_every_step(_array(noise.mean), 1)
        is_full = type(base).__name__ == "MultivariateNormal"
        covariance = (
            _same_at_every_step(_array(base.covariance_matrix), 2)
            if is_full
            else np.diag(_same_at_every_step(_array(noise.variance), 1))
        )
        rows = np.zeros((0, len(mean))) if matrix is None else _same_at_every_step(_array(matrix), 2)
        parts.append(_Affine(rows, mean, covariance))
    return _state_space(*parts)


def _same_at_every_step(array: np.ndarray, n_axes: int) -> np.ndarray:
    """Return the parameters of one step from an array in which Pyro has repeated them for every step.

    Args:
        array: the repeated parameters.
        n_axes: number of axes of the parameters of one step.

    Raises:
        ValueError: If they change with time.
    """
    rows = array.reshape(-1, *array.shape[array.ndim - n_axes :])
    if (rows != rows[0]).any():
        raise ValueError("the parameters change with time or over batch axes; pass the same ones for all steps")
    first: np.ndarray = rows[0]
    return first


def _state_space(initial: _Affine, transition: _Affine, observation: _Affine) -> LinearGaussian:
    """Return the fitted linear Gaussian model with given conditionals of the first state, a next state, and a step.

    ``fit`` does not change it.

    Raises:
        ValueError: If numbers are not finite or covariances are invalid.
    """
    mean = initial.mean @ transition.matrix + transition.mean  # of the first state, after one transition
    spread = transition.matrix.T @ initial.covariance @ transition.matrix + transition.covariance
    moves, noise, seen = transition.matrix.T, transition.covariance, observation.matrix.T
    if transition.mean.any():  # which a state that is always 1 adds at each step
        k = len(mean)
        moves = np.block([[moves, transition.mean[:, None]], [np.zeros((1, k)), np.ones((1, 1))]])
        noise, spread = (np.pad(each, (0, 1)) for each in (noise, spread))
        seen, mean = np.pad(seen, ((0, 0), (0, 1))), np.append(mean, 1.0)
    return LinearGaussian.from_parameters(
        *(moves, noise, seen, observation.covariance, mean, 0.5 * (spread + spread.T)),
        intercept=observation.mean,
        warm_start=True,
        max_iter=0,
        dtype="float64",
    )


def _emission_of_pyro(distribution: Any, k: int) -> dict[str, Any]:
    """Convert Pyro's observations in K states to the emission arguments of ``HMM.from_parameters``.

    Args:
        distribution: distribution of an observation, with the states as its batch axis.
        k: number of states K.

    Raises:
        ValueError: If its batch shape is neither ``(K,)`` nor ``(1, K)``, or its class is not known.
    """
    event = tuple(distribution.event_shape)
    base = distribution.base_dist if type(distribution).__name__ == "Independent" else distribution
    if len(event) > 1 or int(np.prod(tuple(distribution.batch_shape))) != k:
        raise ValueError(
            f"observations have batch shape {tuple(distribution.batch_shape)} and event shape {event}; pass ({k},), "
            "the same at every step, and vectors or numbers"
        )
    size = event[0] if event else 1
    match type(base).__name__:
        case "Categorical" if not event:
            return {"emission": _array(base.probs).reshape(k, -1)}
        case "Normal":
            means, scales = (_array(x.expand(base.batch_shape)).reshape(k, size) for x in (base.loc, base.scale))
            return {"means": means, "covariances": scales**2, "covariance_type": "diag"}
        case "MultivariateNormal":
            covariances = _array(base.covariance_matrix).reshape(k, size, size)
            return {"means": _array(base.loc).reshape(k, size), "covariances": covariances, "covariance_type": "full"}
        case "Poisson":
            return {"rates": _array(base.rate).reshape(k, size)}
        case "Bernoulli":
            return {"probabilities": _array(base.probs).reshape(k, size)}
    raise ValueError(
        f"observations of {type(base).__name__} are not known here; pass Categorical, Normal, MultivariateNormal, "
        "Poisson or Bernoulli"
    )


def _gaussian(emissions: Any, covariances: np.ndarray, covariance_type: str) -> dict[str, Any]:
    return {"means": _array(emissions.means), "covariances": covariances, "covariance_type": covariance_type}


def _array(values: Any) -> np.ndarray:
    detached = values.detach().cpu() if hasattr(values, "detach") else values
    return np.asarray(detached, dtype=np.float64)


def _normalised(logits: np.ndarray) -> np.ndarray:
    p: np.ndarray = np.exp(logits - logits.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    return p


def _rows(p: Any) -> np.ndarray:
    """Normalize rows of probabilities to sum to one in float64, because they may do so only in float32."""
    rows = _array(p)
    result: np.ndarray = rows / rows.sum(-1, keepdims=True)
    return result


def _as_it_is(initial: Any, transition: Any, **parameters: Any) -> HMM:
    """Return a fitted HMM with given parameters, all frozen, so that ``fit`` does not change them.

    Args:
        initial, transition: probabilities of the first state, ``(K,)``, and of a next state, ``(K, K)``.
        parameters: arguments of ``HMM.from_parameters`` that describe the observations.
    """
    for name in parameters.keys() & {"emission", "weights"}:
        parameters[name] = _rows(parameters[name])
    return HMM.from_parameters(
        _rows(initial),
        _rows(transition),
        **parameters,
        training=ChainTraining(frozen=ALL_TABLES),
        warm_start=True,
        dtype="float64",
    )
