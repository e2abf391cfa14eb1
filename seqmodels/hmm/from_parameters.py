"""``HMM.from_parameters``: parameters as users write them, in raw units -> those of a fitted HMM, checked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqmodels.common.array_checks import numbers_of
from seqmodels.common.display import a_or_an
from seqmodels.encodings import Encoding, Features, Standardize, Symbols
from seqmodels.encodings.inputs import InputScaling
from seqmodels.hmm.emissions.given_inputs import regression_of
from seqmodels.hmm.learning.given_inputs import InputOptions
from seqmodels.hmm.parameters import Parameters
from seqmodels.observations import Bernoulli, Categorical, GaussianMixture, Observation, Poisson
from seqmodels.observations.exponential_family import ExponentialFamily
from seqmodels.observations.gaussian import CovarianceType, shape_of_covariance
from seqmodels.observations.gaussian_mixture import EM_TYPES

Table = tuple[Encoding, Observation, Tensor]
MIN_VARIANCE = 1e-140  # of the data's, of which float64 holds the inverse times the square of a value


def chain_parameters(initial: Any, transition: Any, final: Any, table: Tensor) -> Parameters:
    """Checked ``initial (K,)``, ``transition (K, K)`` and ``final (K,)`` or None, with an emission table."""
    pi, a = numbers_of("initial", initial), numbers_of("transition", transition)
    f = None if final is None else numbers_of("final", final)
    k = len(table)
    _check_rows("initial", pi, (k,))
    if a.shape != (k, k) or (f is not None and f.shape != (k,)):
        got = f"{a.shape}" if f is None else f"{a.shape} and {f.shape}"
        raise ValueError(
            f"initial has {k} states but transition (and final) have shape {got}; pass ({k}, {k}) (and ({k},))"
        )
    if f is None:
        _check_rows("transition", a, (k, k))
    else:
        _check_rows("transition with final", np.concatenate([a, f[:, None]], axis=1), (k, k + 1))
    end = None if f is None else torch.as_tensor(f)
    return Parameters(torch.as_tensor(pi), torch.as_tensor(a), end, table)


def emission_table(
    k: int,
    *,
    emission: Any,
    probabilities: Any,
    rates: Any,
    mixture: tuple[Any, Any, Any, CovarianceType],
    encoding: Encoding | None,
    observation: Observation | None,
) -> Table:
    """The encoding, the observation and its table of K states, from whichever argument is not None.

    ``mixture``: weights, means, covariances and their type. Raises ``ValueError`` for several at once.
    """
    arguments = {"emission": emission, "probabilities": probabilities, "rates": rates, "means": mixture[1]}
    names = [name for name, values in arguments.items() if values is not None]
    if len(names) > 1 and names != ["emission", "means"]:
        raise ValueError(f"{' and '.join(names)} are parameters of different observations; pass one of them")
    if probabilities is not None:
        return table_of_means(k, "probabilities", probabilities, Bernoulli, encoding, observation or Bernoulli())
    if rates is not None:
        return table_of_means(k, "rates", rates, Poisson, encoding, observation or Poisson())
    if emission is not None:
        return table_of_symbols(k, emission, encoding, observation)
    return table_of_mixture(k, *mixture, encoding, observation)


def table_of_means(
    k: int,
    name: str,
    expected: Any,
    family: type[ExponentialFamily],
    encoding: Encoding | None,
    observation: Observation,
) -> Table:
    """From the expected value of each feature, ``(K, D)``."""
    values = np.array(expected, dtype=np.float64)
    if values.ndim != 2 or len(values) != k or not values.shape[1]:
        raise ValueError(f"{name} have shape {values.shape}; pass ({k}, D): states, features")
    if not (np.isfinite(values).all() and (values >= 0).all() and (values <= family.largest_mean).all()):
        raise ValueError(f"{name} must be numbers from 0 to {family.largest_mean}, finite; they go {_range(values)}")
    if not isinstance(observation, family):
        raise ValueError(f"{name} belong to {a_or_an(family)} observation, not to {observation!r}")
    observation.check(values.shape[1])
    size = values.shape[1]
    encoding = encoding or Features(family.kind).identity(size)
    if encoding.size != size or encoding.values() != observation.values(size):
        raise ValueError(
            f"{name} are of {size} features, {family.kind}, but {encoding!r} reads others; leave encoding out"
        )
    return encoding, observation, observation.natural_parameter(torch.as_tensor(values))


def _range(values: np.ndarray) -> str:
    return f"from {values.min():g} to {values.max():g}"


def table_of_symbols(k: int, emission: Any, encoding: Encoding | None, observation: Observation | None) -> Table:
    """From ``emission (K, V)``."""
    b = numbers_of("emission", emission)
    if b.ndim != 2 or len(b) != k:
        raise ValueError(f"emission has shape {b.shape}; pass ({k}, V): a row for each state, a column for each symbol")
    _check_rows("emission", b, b.shape)
    encoding = Symbols(b.shape[1]).restore({"size": b.shape[1]}) if encoding is None else encoding
    if encoding.size != b.shape[1]:
        raise ValueError(f"emission has {b.shape[1]} symbols but {encoding!r} reads {encoding.size}; they must agree")
    observation = Categorical() if observation is None else observation
    if not isinstance(observation, Categorical):
        raise ValueError(f"emission belongs to a Categorical observation, not to {observation!r}")
    with np.errstate(divide="ignore"):
        return encoding, observation, torch.as_tensor(np.log(b))


def table_of_mixture(
    k: int,
    weights: Any,
    means: Any,
    covariances: Any,
    covariance_type: CovarianceType,
    encoding: Encoding | None,
    observation: Observation | None,
) -> Table:
    """From ``weights (K, M)``, ``means (K, M, D)`` and ``covariances``; without ``weights`` there is no axis M."""
    w, mu, sigma = _mixture_arrays(k, weights, means, covariances, covariance_type)
    encoding = _own_units(w, mu, sigma, covariance_type) if encoding is None else encoding
    shift, scale = (torch.as_tensor(v) for v in encoding.affine())
    if len(scale) != mu.shape[-1]:
        raise ValueError(f"means have {mu.shape[-1]} features but {encoding!r} reads {len(scale)}; they must agree")
    full = sigma.ndim == 4
    sigma = sigma / (scale.unsqueeze(1) * scale if full else scale.square())
    if covariance_type == "spherical" and not torch.allclose(sigma, sigma[..., :1], rtol=1e-6, atol=0.0):
        raise ValueError(
            "under covariance_type='spherical' the variances of a component must be one number in the units of "
            f"{encoding!r}; leave encoding out, or use 'diag'"
        )
    smallest = float(torch.linalg.eigvalsh(sigma).min() if full else sigma.min())
    if smallest < MIN_VARIANCE:
        raise ValueError(
            f"the smallest variance is {smallest:.3g} of that of all states together, which float64 cannot divide by; "
            "pass means that are nearer, or wider covariances"
        )
    if observation is None:
        observation = GaussianMixture(w.shape[1], covariance_type, min_covariance=min(1e-4, 0.5 * smallest))
    expected = (w.shape[1], covariance_type)
    if not isinstance(observation, GaussianMixture) or expected != (
        observation.n_components,
        observation.covariance_type,
    ):
        raise ValueError(f"the parameters are of a GaussianMixture{expected}, but observation is {observation!r}")
    if smallest < observation.min_covariance:
        raise ValueError(
            f"the smallest variance is {smallest:.3g} of the data's, below the floor min_covariance="
            f"{observation.min_covariance}; pass an observation with a lower one"
        )
    shapes = shape_of_covariance(sigma) if full else sigma.log()
    return encoding, observation, observation.pack(w.log(), (mu - shift) / scale, shapes)


def _mixture_arrays(
    k: int, weights: Any, means: Any, covariances: Any, covariance_type: CovarianceType
) -> tuple[Tensor, Tensor, Tensor]:
    if means is None or covariances is None:
        raise ValueError("pass means and covariances (and weights), or emission")
    if covariance_type not in EM_TYPES:
        raise ValueError(f"covariance_type is {covariance_type!r}; pass one of {', '.join(map(repr, EM_TYPES))}")
    mu, sigma = numbers_of("means", means), numbers_of("covariances", covariances)
    for name, array in (("means", mu), ("covariances", sigma)):
        if not array.ndim:
            raise ValueError(f"{name} is {array}; pass an array, of which the first axis is states")
    if weights is None:
        w, mu = np.ones((k, 1)), mu[:, None]
        sigma = sigma if covariance_type == "tied" else sigma[:, None]
    else:
        w = numbers_of("weights", weights)
        _check_rows("weights", w, (k, w.shape[-1] if w.ndim else 0))
    shape = (k, w.shape[1], mu.shape[-1])
    allowed = _covariance_shapes(shape, covariance_type)
    if mu.shape != shape or sigma.shape not in allowed:
        raise ValueError(
            f"means have shape {mu.shape} and covariances {sigma.shape}; pass {shape} and "
            f"{' or '.join(map(str, allowed))}"
            + (" (without weights, less the axis of length 1)" if weights is None else "")
        )
    if not (np.isfinite(mu).all() and np.isfinite(sigma).all()):
        raise ValueError("means and covariances must be finite")
    full = covariance_type in ("full", "tied")
    if full and not np.allclose(sigma, np.swapaxes(sigma, -1, -2)):
        raise ValueError("covariances must be symmetric")
    smallest = float(np.linalg.eigvalsh(sigma).min() if full else sigma.min())
    if smallest <= 0:
        raise ValueError(f"the smallest variance is {smallest}; covariances must be positive definite")
    with_features = sigma[..., None] if sigma.ndim == 2 and not full else sigma
    covariances_of_all = np.array(np.broadcast_to(with_features, shape + shape[2:] * full))
    return torch.as_tensor(w), torch.as_tensor(mu), torch.as_tensor(covariances_of_all)


def _covariance_shapes(shape: tuple[int, ...], covariance_type: CovarianceType) -> list[tuple[int, ...]]:
    """What may be passed for means of ``shape (K, M, D)``."""
    if covariance_type == "spherical":
        return [shape[:2], shape]
    return [{"diag": shape, "full": (*shape, shape[2]), "tied": (shape[2], shape[2])}[covariance_type]]


def _own_units(w: Tensor, mu: Tensor, sigma: Tensor, covariance_type: CovarianceType) -> Standardize:
    """Mean and deviation over all states alike, so that computing in float32 is as good as after ``fit``."""
    variances = sigma.diagonal(dim1=-2, dim2=-1) if sigma.ndim == 4 else sigma
    share = (w / len(w)).unsqueeze(-1)
    mean = (share * mu).sum((0, 1))
    scale = (share * (variances + (mu - mean).square())).sum((0, 1)).sqrt()
    if covariance_type == "spherical":  # only these units keep it so
        relative = variances[0, 0].sqrt()
        scale = relative * (scale / relative).square().mean().sqrt()
    if not bool(torch.isfinite(mean).all() and torch.isfinite(scale).all()):
        raise ValueError(
            "the means or covariances are so large that float64 cannot hold their squares; pass them, and data, in "
            "other units"
        )
    return Standardize().restore({"mean": mean.numpy(), "scale": scale.numpy()})


# -- what depends on inputs --------------------------------------------------------------------------------------------


def input_scaling(inputs: InputScaling | Mapping[str, float] | None) -> InputScaling:
    """That of a fitted model, or in raw units, about the value of each input by name."""
    if isinstance(inputs, InputScaling):
        return inputs
    if not isinstance(inputs, Mapping) or not inputs:
        raise ValueError(
            f"inputs is {inputs!r}; pass the value of each input, by name, where the other parameters hold, as "
            "{'heat': 20.0}, or the input_scaling_ of a fitted model"
        )
    means = numbers_of("inputs", list(inputs.values()))
    if means.shape != (len(inputs),) or not np.isfinite(means).all():
        raise ValueError(f"inputs is {dict(inputs)!r}; pass a finite number for each name")
    return InputScaling(tuple(map(str, inputs)), means, np.ones(len(means)))


def transition_slopes_of(slopes: Any, n_states: int, options: InputOptions, scale: np.ndarray) -> Tensor:
    """``(K, K, U)`` of standardised inputs, of which ``scale (U,)`` is a unit in raw ones; None are zeros."""
    shape = (n_states, n_states, options.n_inputs)
    return _checked_slopes("transition_slopes", slopes, shape, options.transition) * torch.as_tensor(scale)


def initial_slopes_of(slopes: Any, n_states: int, options: InputOptions, scale: np.ndarray) -> Tensor:
    """``(K, U)`` slopes of the first state, of standardised inputs; ``slopes`` and ``scale`` as of transitions."""
    shape = (n_states, options.n_inputs)
    return _checked_slopes("initial_slopes", slopes, shape, options.start) * torch.as_tensor(scale)


def table_slopes_of(
    slopes: Any, table: Tensor, observation: Observation, encoding: Encoding, options: InputOptions, scale: np.ndarray
) -> Tensor:
    """``(K, P, U)`` of standardised inputs from ``(K, D, U)`` in raw units; of symbols relative to the first."""
    regression = regression_of(observation, encoding.size)
    places = [p for each in regression.location for p in range(each.start, each.stop)]
    if not torch.isfinite(table[:, places]).all():
        raise ValueError(
            "emissions that depend on inputs have log-odds and log-rates, so none may be impossible, certain or zero; "
            "pass probabilities and rates above zero, and probabilities of bits below one"
        )
    checked = _checked_slopes("emission_slopes", slopes, (len(table), len(places), options.n_inputs), options.emission)
    if regression.n_free < encoding.size:
        checked = checked - checked[:, :1]
    units = encoding.affine()[1] if encoding.emits == "vectors" else np.ones(1)
    result = table.new_zeros(*table.shape, options.n_inputs)
    result[:, places] = checked * torch.as_tensor(scale / units[:, None])
    return result


def _checked_slopes(name: str, slopes: Any, shape: tuple[int, ...], columns: tuple[int, ...]) -> Tensor:
    values = np.zeros(shape) if slopes is None else numbers_of(name, slopes)
    if values.shape != shape:
        raise ValueError(f"{name} have shape {values.shape}; pass {shape}, the last axis in the order of inputs")
    if not np.isfinite(values).all():
        raise ValueError(f"{name} must be finite")
    others = np.delete(values, list(columns), axis=-1)
    if others.any():
        raise ValueError(f"{name} has slopes of inputs that input_effects does not name; name them, or pass zeros")
    return torch.tensor(values)


def _check_rows(name: str, rows: np.ndarray, shape: tuple[int, ...]) -> None:
    if rows.shape != shape:
        raise ValueError(f"{name} has shape {rows.shape}; pass {shape}")
    sums = rows.sum(-1)
    if not ((rows >= 0).all() and math.isclose(float(np.abs(sums - 1).max()), 0.0, abs_tol=1e-6)):
        raise ValueError(
            f"{name} must hold probabilities that sum to one along the last axis; the sums are {np.round(sums, 6)}"
        )
