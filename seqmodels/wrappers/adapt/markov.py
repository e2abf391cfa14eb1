"""Hidden Markov models of hmmlearn, dynamax and Pyro as models of the same parameters, and so the same figures.

What they return is fitted, and ``fit`` leaves it as it is, so that it stands in ``compare`` with its figures: every
parameter is frozen. ``set_params(training__frozen=None)`` lets ``fit`` go on from these parameters by EM.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from seqmodels.common.display import a_or_an
from seqmodels.hmm import HMM, ChainTraining
from seqmodels.wrappers.adapt.linear_gaussian import LinearGaussianModel

ALL_TABLES = ("initial", "transition", "emission")


def from_hmmlearn(model: Any) -> HMM:
    """A fitted ``HMM`` with the parameters of one of hmmlearn's, and its log-probabilities.

    Lengths are given, as hmmlearn has them. Of ``CategoricalHMM`` sequences are of integers, ``(T,)``.

    Args:
        model: a fitted ``GaussianHMM``, ``GMMHMM``, ``CategoricalHMM`` or ``PoissonHMM``.

    Raises:
        ValueError: another class; a model that is not fitted.
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
        case "GaussianHMM":  # whose covars_ are full matrices of whatever type
            return _as_it_is(
                **chain, means=model.means_, covariances=model._covars_, covariance_type=model.covariance_type
            )
        case "GMMHMM":
            covariances, covariance_type = np.asarray(model.covars_), model.covariance_type
            if covariance_type == "tied":  # one matrix for the components of each state; here it would be one for all
                n_components = model.means_.shape[1]
                covariances, covariance_type = np.repeat(covariances[:, None], n_components, axis=1), "full"
            mixture = {"weights": model.weights_, "means": model.means_, "covariances": covariances}
            return _as_it_is(**chain, **mixture, covariance_type=covariance_type)
    raise ValueError(f"{a_or_an(name)} is not known here; pass a GaussianHMM, GMMHMM, CategoricalHMM or PoissonHMM")


def from_dynamax(parameters: Any) -> HMM:
    """A fitted ``HMM`` with the parameters of one of dynamax's, and its log-probabilities.

    Lengths are given. Of a ``CategoricalHMM`` of one dimension sequences are of integers, ``(T,)``.

    Args:
        parameters: what ``initialize`` or ``fit_em`` returns: ``.initial.probs``, ``.transitions.transition_matrix``
            and ``.emissions`` of a (diagonal, spherical, shared-covariance) ``GaussianHMM``, a (diagonal)
            ``GaussianMixtureHMM``, a ``CategoricalHMM``, ``BernoulliHMM`` or ``PoissonHMM``. Arrays of jax or numpy.

    Raises:
        ValueError: another model's parameters; several categorical features.
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


def from_pyro(distribution: Any) -> HMM | LinearGaussianModel:
    """A fitted model with the parameters of a hidden Markov model of Pyro, and its log-probabilities.

    Of a ``DiscreteHMM`` it is an ``HMM``: Pyro's makes a transition before the first observation, so the initial
    distribution here is Pyro's times the transition matrix. Of a ``GaussianHMM``, and of a ``LinearHMM`` whose noise is
    Gaussian (which has no ``log_prob`` in Pyro), it is a ``LinearGaussianModel``: the Kalman filter. Lengths are given.
    A model of Pyro that says the distribution of the next step from the past is for ``from_callable``.

    A ``GaussianMRF`` is not taken: its probability of some steps is not the marginal of that of more, so that there are
    no conditionals ``p(x_t | x_<t)``. Nor are a ``LinearHMM`` of other noise (Student's t, stable), whose likelihood is
    not known in closed form, and a ``GammaGaussianHMM``.

    Args:
        distribution: homogeneous in time, without batch axes. Observations of a ``DiscreteHMM`` are ``Categorical``,
            ``Normal``, ``MultivariateNormal``, ``Poisson`` or ``Bernoulli`` (``.to_event(1)`` for vectors); noise of a
            ``LinearHMM`` is ``MultivariateNormal`` or ``Normal(...).to_event(1)``, untransformed.

    Raises:
        ValueError: anything else.
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


def _gaussian_of_pyro(distribution: Any) -> LinearGaussianModel:
    """From ``p(z_0)``, ``p(z_t | z_{t-1})`` and ``p(x_t | z_t)``, which Pyro keeps in information form.

    It says them nowhere in public (seen in 1.9.2): ``tests/wrappers/adapt/test_linear_gaussian.py`` names the version.
    """
    k = int(distribution.hidden_dim)
    kept = [getattr(distribution, name, None) for name in ("_init", "_trans", "_obs")]
    if any(each is None for each in kept):
        raise ValueError(
            "the parameters of a GaussianHMM are not where Pyro 1.9 keeps them; pass a LinearHMM, or make a "
            "LinearGaussianModel of them, or install pyro-ppl==1.9.2"
        )
    initial, transition, observation = kept
    return _state_space(_moments(initial, 0), _moments(transition, k), _moments(observation, k))


@dataclass(frozen=True)
class _Affine:
    """``y = x matrix + noise`` of this mean and covariance; ``matrix`` has no rows where there is no x."""

    matrix: np.ndarray
    mean: np.ndarray
    covariance: np.ndarray


def _moments(gaussian: Any, k: int) -> _Affine:
    """Of a conditional ``p(y | x)`` of Pyro's, x of k dimensions: an ``AffineNormal``, or a ``Gaussian`` over both."""
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
        raise ValueError(
            f"the parameters have batch axes {lead}; pass those of one model, the same at every step, without batches"
        )


def _linear_of_pyro(distribution: Any) -> LinearGaussianModel:
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
    """The last axes of parameters that Pyro expanded over time; ``ValueError`` where they change."""
    rows = array.reshape(-1, *array.shape[array.ndim - n_axes :])
    if (rows != rows[0]).any():
        raise ValueError("the parameters change with time or over batch axes; pass those of one model, the same at all")
    first: np.ndarray = rows[0]
    return first


def _state_space(initial: _Affine, transition: _Affine, observation: _Affine) -> LinearGaussianModel:
    return LinearGaussianModel(
        initial.mean.tolist(),
        initial.covariance.tolist(),
        transition.matrix.tolist(),
        transition.covariance.tolist(),
        observation.matrix.tolist(),
        observation.covariance.tolist(),
        transition_mean=transition.mean.tolist(),
        observation_mean=observation.mean.tolist(),
        dtype="float64",
    )._adopted()


def _emission_of_pyro(distribution: Any, k: int) -> dict[str, Any]:
    """The arguments of ``HMM.from_parameters`` for observations ``(K,)`` or ``(1, K)`` of Pyro."""
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
    """Rows that sum to one in float64, also where they did in float32."""
    rows = _array(p)
    result: np.ndarray = rows / rows.sum(-1, keepdims=True)
    return result


def _as_it_is(initial: Any, transition: Any, **parameters: Any) -> HMM:
    """The fitted HMM, which ``fit`` does not change."""
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
