"""Checks of ``HMM.from_parameters``, and the conversion of its arguments to the parameters of a fitted HMM."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqmodels.common.array_checks import numbers_of
from seqmodels.common.display import a_or_an
from seqmodels.encodings import Encoding, Features, Standardize, Symbols
from seqmodels.encodings.defaults import default_encoding
from seqmodels.encodings.inputs import InputScaling
from seqmodels.hmm.emissions import Emission, emission_of
from seqmodels.hmm.emissions.given_inputs import regressed_columns
from seqmodels.hmm.learning.chain_arguments import ChainInputEffects
from seqmodels.hmm.learning.given_inputs import InputOptions
from seqmodels.hmm.parameters import Parameters
from seqmodels.observations import (
    AutoregressiveGaussian,
    Bernoulli,
    Categorical,
    Columns,
    GaussianMixture,
    IntervalCensored,
    Observation,
    Poisson,
)
from seqmodels.observations.exponential_family import ExponentialFamily
from seqmodels.observations.gaussian import CovarianceType, shape_of_covariance
from seqmodels.observations.gaussian_mixture import EM_TYPES

Table = tuple[Encoding, Observation, Tensor]
MIN_VARIANCE = 1e-140  # smallest variance in units of the data's, so that float64 holds squares divided by it


def chain_parameters(initial: Any, transition: Any, final: Any, table: Tensor) -> Parameters:
    """Return the parameters of a chain of K states with an emission table, after checking the chain's probabilities.

    Args:
        initial: probabilities of the first state, ``(K,)``.
        transition: transition probabilities, ``(K, K)``; each row, plus its entry of ``final``, sums to one.
        final: probability of the end after each state, ``(K,)``, or None if the end is not an event.
        table: output parameters of the emissions, one row for each state, ``(K, P)``; not checked.

    Raises:
        ValueError: a shape does not fit, or rows are not probabilities that sum to one.
    """
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
    emission_parameters: Mapping[str, Any] | None = None,
) -> Table:
    """Return the encoding, the observation and its output parameters, from the user's parameters of the emissions.

    Output parameters are the P numbers that the observation takes for each of K states, ``(K, P)``.

    Args:
        k: number of states, K.
        emission: probabilities of V symbols, ``(K, V)``, or None.
        probabilities: probabilities of D bits, ``(K, D)``, or None.
        rates: rates of D counts, ``(K, D)``, or None.
        mixture: weights, means, covariances and covariance type of Gaussian mixtures, in the forms that
            ``HMM.from_parameters`` takes; the arrays are None if not given.
        encoding: encoding of the data, or None for the default of that kind of data.
        observation: observation with the options of the M-step, or None for the default of that kind of data.
        emission_parameters: arrays of the parameters of any observation by name, or None.

    Raises:
        ValueError: parameters of several observations are given, or they do not fit ``encoding`` or ``observation``.
    """
    arguments = {
        "emission_parameters": emission_parameters,
        "emission": emission,
        "probabilities": probabilities,
        "rates": rates,
        "means": mixture[1],
    }
    names = [name for name, values in arguments.items() if values is not None]
    if len(names) > 1 and names != ["emission", "means"]:
        raise ValueError(f"{' and '.join(names)} are parameters of different observations; pass one of them")
    if emission_parameters is not None:
        return table_of_parameters(k, emission_parameters, encoding, observation)
    if probabilities is not None:
        return table_of_means(k, "probabilities", probabilities, Bernoulli, encoding, observation or Bernoulli())
    if rates is not None:
        return table_of_means(k, "rates", rates, Poisson, encoding, observation or Poisson())
    if emission is not None:
        return table_of_symbols(k, emission, encoding, observation)
    return table_of_mixture(k, *mixture, encoding, observation)


def table_of_parameters(
    k: int, parameters: Mapping[str, Any], encoding: Encoding | None, observation: Observation | None
) -> Table:
    """Return the encoding, the observation and its output parameters ``(K, P)``, given its parameters in raw units.

    Args:
        k: number of states, K.
        parameters: arrays by the names of the attributes of a fitted model, without the final ``_``. The weights of
            mixtures of one component may be left out.
        encoding: encoding of the data, or None for one that leaves features in their units; those of an autoregression
            are then standardised by the mean and deviations of its first steps.
        observation: the observation.

    Raises:
        ValueError: there is no observation, names or shapes are not its own, or values are out of range.
    """
    if observation is None:
        raise ValueError("emission_parameters are of any observation; pass observation= too, such as Gamma()")
    given = {f"{name}_": numbers_of(name, values) for name, values in parameters.items()}
    observation = observation.at_estimates() if isinstance(observation, AutoregressiveGaussian) else observation
    size = _size_of(k, given, observation)
    emission = emission_of(observation, size)
    observation.check(size)
    if encoding is None:
        default = default_encoding("symbols" if observation.emits == "symbols" else "vectors", observation, size)
        encoding = default.restore({"size": size}) if isinstance(default, Symbols) else _identity(default, size)
        if isinstance(observation, AutoregressiveGaussian):  # whose background is in units of standardised data
            variances = given["first_covariance_"]
            deviations = np.sqrt(np.diagonal(variances) if variances.ndim == 2 else variances)
            encoding = Standardize().restore({"mean": given["first_mean_"], "scale": deviations})
    shift, scale = _units(encoding, size)
    table = emission.table_of_raw(_completed(given, emission.example_of_raw(k)), shift, scale)
    _check_in_range(given, emission.raw_parameters(table, shift, scale))
    return encoding, observation, table


def _completed(given: Mapping[str, np.ndarray], example: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the given arrays with the weights of one component, which are 1, where they were left out."""
    left_out = {name: ones for name, ones in example.items() if name.startswith("weights") and (ones == 1).all()}
    return {**left_out, **given}


def _size_of(k: int, given: Mapping[str, np.ndarray], observation: Observation) -> int:
    """Return the number of features D for which the given arrays have the shapes of the observation's parameters."""
    if isinstance(observation, Columns):
        sizes = [sum(n for _, n in observation.groups)]
    else:
        sizes = sorted({length for array in given.values() for length in array.shape[1:]})
        if isinstance(observation, IntervalCensored):  # the ends of each interval are two columns
            sizes = [2 * size for size in sizes]
    expected: Mapping[str, np.ndarray] = {}
    for size in sizes:
        with suppress(ValueError):  # an observation that has a width for each feature refuses another number of them
            expected = emission_of(observation, size).example_of_raw(k)
            complete = _completed(given, expected)
            if {name: array.shape for name, array in complete.items()} == {n: a.shape for n, a in expected.items()}:
                return size
    shapes = ", ".join(f"{name.removesuffix('_')} {array.shape}" for name, array in expected.items())
    got = ", ".join(f"{name.removesuffix('_')} {array.shape}" for name, array in given.items())
    raise ValueError(
        f"emission_parameters are {got or 'none'}; {observation!r} has {shapes or 'arrays of states and features'}"
    )


def _identity(encoding: Encoding, size: int) -> Encoding:
    """Return a vector encoding fitted as one that changes nothing."""
    return encoding.restore({"mean": np.zeros(size), "scale": np.ones(size)})


def _units(encoding: Encoding, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return shift and scale of D features; 0 and 1 for symbols."""
    shift, scale = encoding.affine() if encoding.emits == "vectors" else (np.zeros(size), np.ones(size))
    if len(scale) != size:
        raise ValueError(f"the parameters are of {size} features but {encoding!r} reads {len(scale)}; they must agree")
    return shift, scale


def _check_in_range(given: Mapping[str, np.ndarray], kept: Mapping[str, np.ndarray]) -> None:
    """Raise ValueError if an array is not what the observation makes of it, because its values are out of range."""
    for name, values in given.items():
        if not np.allclose(kept[name], values, rtol=1e-6, atol=1e-12):
            raise ValueError(
                f"{name.removesuffix('_')} has values that the observation cannot have, such as a variance, scale or "
                "rate that is not above 0 and above its least value (min_covariance, min_scale), or probabilities that "
                "do not sum to 1"
            )


def table_of_means(
    k: int,
    name: str,
    expected: Any,
    family: type[ExponentialFamily],
    encoding: Encoding | None,
    observation: Observation,
) -> Table:
    """Return the encoding, the observation and its output parameters, given the mean of each feature in each state.

    Output parameters are the P numbers that the observation takes for each state, ``(K, P)``; D features.

    Args:
        k: number of states, K.
        name: the argument of ``HMM.from_parameters``, for messages.
        expected: means, ``(K, D)``.
        family: class of the observation, such as ``Poisson``.
        encoding: encoding of the data, or None for one that leaves features as they are.
        observation: observation with the options of the M-step.

    Raises:
        ValueError: the values are not possible means of the family, or do not fit ``encoding`` or ``observation``.
    """
    values = np.array(expected, dtype=np.float64)
    if values.ndim != 2 or len(values) != k or not values.shape[1]:
        raise ValueError(f"{name} have shape {values.shape}; pass ({k}, D): states, features")
    if not (np.isfinite(values).all() and (values >= 0).all() and (values <= family.largest_mean).all()):
        raise ValueError(f"{name} must be finite numbers from 0 to {family.largest_mean}; they go {_range(values)}")
    if not isinstance(observation, family):
        raise ValueError(f"{name} belong to {a_or_an(family)} observation, not to {observation!r}")
    observation.check(values.shape[1])
    size = values.shape[1]
    encoding = encoding or Features(family.kind).identity(size)
    if encoding.size != size or encoding.values() != observation.values(size):
        raise ValueError(
            f"{name} are of {size} features of kind {family.kind}, but {encoding!r} reads others; leave encoding out"
        )
    return encoding, observation, observation.natural_parameter(torch.as_tensor(values))


def _range(values: np.ndarray) -> str:
    return f"from {values.min():g} to {values.max():g}"


def table_of_symbols(k: int, emission: Any, encoding: Encoding | None, observation: Observation | None) -> Table:
    """Return the encoding, the observation and its output parameters, given the probabilities of symbols in each state.

    Output parameters are here log-probabilities, ``(K, V)``.

    Args:
        k: number of states, K.
        emission: probability of each of V symbols in each state, ``(K, V)``.
        encoding: encoding of the data, or None for one that reads integers from 0 to V - 1.
        observation: a ``Categorical`` with the options of the M-step, or None for the default.

    Raises:
        ValueError: rows are not probabilities that sum to one, or do not fit ``encoding`` or ``observation``.
    """
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
    """Return the encoding, the observation and its output parameters, given the Gaussian mixture of each state.

    Output parameters are the P numbers that the observation takes for each state, ``(K, P)``, in encoded units.

    Args:
        k: number of states, K.
        weights: weights of M components, ``(K, M)``; None for one component, and then other arrays have no axis M.
        means: means of D features, ``(K, M, D)``, in raw units.
        covariances: ``(K, M, D)`` (diag), ``(K, M, D, D)`` (full), ``(D, D)`` (tied), ``(K, M)`` or ``(K, M, D)``
            (spherical), in raw units.
        covariance_type: form of ``covariances``.
        encoding: encoding of the data, or None for standardising by the mean and deviation of the given mixtures.
        observation: a ``GaussianMixture`` with the options of the M-step, or None for the default.

    Raises:
        ValueError: the parameters cannot be a mixture, or do not fit ``encoding`` or ``observation``.
    """
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
            f"the smallest variance is {smallest:.3g} of the variance of all states together, too small for float64; "
            "pass means that are closer together, or larger covariances"
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
        raise ValueError(
            "pass means and covariances (and weights) of a mixture, or emission, probabilities or rates, or an "
            "observation and its emission_parameters"
        )
    if covariance_type not in EM_TYPES:
        raise ValueError(f"covariance_type is {covariance_type!r}; pass one of {', '.join(map(repr, EM_TYPES))}")
    mu, sigma = numbers_of("means", means), numbers_of("covariances", covariances)
    for name, array in (("means", mu), ("covariances", sigma)):
        if not array.ndim:
            raise ValueError(f"{name} is {array}; pass an array whose first axis is the states")
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
        raise ValueError("means or covariances have values that are not finite; pass finite numbers")
    full = covariance_type in ("full", "tied")
    if full and not np.allclose(sigma, np.swapaxes(sigma, -1, -2)):
        raise ValueError("a covariance matrix is not symmetric; pass symmetric ones")
    smallest = float(np.linalg.eigvalsh(sigma).min() if full else sigma.min())
    if smallest <= 0:
        raise ValueError(f"the smallest variance is {smallest}; pass covariances that are positive definite")
    with_features = sigma[..., None] if sigma.ndim == 2 and not full else sigma
    covariances_of_all = np.array(np.broadcast_to(with_features, shape + shape[2:] * full))
    return torch.as_tensor(w), torch.as_tensor(mu), torch.as_tensor(covariances_of_all)


def _covariance_shapes(shape: tuple[int, ...], covariance_type: CovarianceType) -> list[tuple[int, ...]]:
    if covariance_type == "spherical":
        return [shape[:2], shape]
    return [{"diag": shape, "full": (*shape, shape[2]), "tied": (shape[2], shape[2])}[covariance_type]]


def _own_units(w: Tensor, mu: Tensor, sigma: Tensor, covariance_type: CovarianceType) -> Standardize:
    """Return the encoding that standardises by the mean and deviation of all states' mixtures, weighted alike.

    Computing in float32 is then as precise as after ``fit``. K states, M components, D features.

    Args:
        w: weights of the components, ``(K, M)``.
        mu: means, ``(K, M, D)``.
        sigma: variances ``(K, M, D)`` or covariances ``(K, M, D, D)``.
        covariance_type: form of the covariances; for ``"spherical"`` the units keep covariances spherical.

    Raises:
        ValueError: numbers are so large that float64 cannot hold their squares.
    """
    variances = sigma.diagonal(dim1=-2, dim2=-1) if sigma.ndim == 4 else sigma
    share = (w / len(w)).unsqueeze(-1)
    mean = (share * mu).sum((0, 1))
    scale = (share * (variances + (mu - mean).square())).sum((0, 1)).sqrt()
    if covariance_type == "spherical":  # because other units would make covariances diagonal
        relative = variances[0, 0].sqrt()
        scale = relative * (scale / relative).square().mean().sqrt()
    if not bool(torch.isfinite(mean).all() and torch.isfinite(scale).all()):
        raise ValueError(
            "the means or covariances are so large that float64 cannot hold their squares; pass them, and data, in "
            "other units"
        )
    return Standardize().restore({"mean": mean.numpy(), "scale": scale.numpy()})


# -- effects of inputs -------------------------------------------------------------------------------------------------


def input_scaling(inputs: InputScaling | Mapping[str, float] | None) -> InputScaling:
    """Return the scaling of inputs that the argument ``inputs`` of ``from_parameters`` stands for.

    Args:
        inputs: an ``InputScaling``, which is returned, or a mapping from the name of each input to its value where all
            other parameters hold; the result then has that value as mean, and raw units.

    Raises:
        ValueError: ``inputs`` is neither, or has values that are not finite numbers.
    """
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


def with_implied_effects(options: Mapping[str, Any], slopes: Mapping[str, Any]) -> dict[str, Any]:
    """Return constructor arguments in which each part of the model that was given slopes depends on inputs.

    Such a part depends on all inputs, unless the user's ``input_effects`` names some for it.

    Args:
        options: constructor arguments that the user passed, by name.
        slopes: slopes of each part of ``input_effects`` (``transitions``, ``emissions``, ``first_state``), or None.
    """
    effects = options.get("input_effects", ChainInputEffects())
    if not isinstance(effects, ChainInputEffects):  # which the constructor refuses
        return dict(options)
    implied = {name: True for name, of in slopes.items() if of is not None and not getattr(effects, name)}
    return {**options, "input_effects": effects.clone().set_params(**implied)}


def with_slopes(
    parameters: Parameters,
    slopes: Mapping[str, Any],
    effects: ChainInputEffects,
    options: InputOptions,
    scale: np.ndarray,
    emission: Emission,
    encoding: Encoding,
) -> Parameters:
    """Return the parameters with slopes for standardised inputs, given slopes for raw inputs.

    Args:
        parameters: parameters of the chain and its emissions, without slopes, where standardised inputs are zero.
        slopes: slopes for raw inputs of ``"transitions"``, ``"emissions"``, ``"first_state"`` and, if durations depend
            on inputs, ``"durations"``; None means zeros.
        effects: which of these parts of the model depend on inputs.
        options: the columns of the inputs that each part depends on.
        scale: raw size of one standardised unit of each of U inputs, ``(U,)``.
        emission: the emission, some of whose output parameters depend on inputs.
        encoding: the encoding of the frames.

    Raises:
        ValueError: slopes of a wrong shape, not finite, or of an input that the part does not depend on.
    """
    k, slopes_of = len(parameters.initial), (options, scale)
    if effects.transitions:
        name = "transition_slopes" if parameters.generator is None else "generator_slopes"
        of_transitions = transition_slopes_of(slopes["transitions"], k, *slopes_of, name)
        if parameters.generator is not None and bool(of_transitions.diagonal().any()):
            raise ValueError("generator_slopes has slopes on its diagonal, which holds no rates; pass zeros there")
        parameters = replace(parameters, transition_slopes=of_transitions)
    if effects.emissions:
        of_table = table_slopes_of(slopes["emissions"], parameters.table, emission, encoding, *slopes_of)
        parameters = replace(parameters, table_slopes=of_table)
    if effects.first_state:
        of_first = slopes_of_states("initial_slopes", slopes["first_state"], k, options.start, *slopes_of)
        parameters = replace(parameters, initial_slopes=of_first)
    if effects.durations:
        of_durations = slopes_of_states("duration_slopes", slopes["durations"], k, options.duration, *slopes_of)
        parameters = replace(parameters, duration_slopes=of_durations)
    return parameters


def transition_slopes_of(
    slopes: Any, n_states: int, options: InputOptions, scale: np.ndarray, name: str = "transition_slopes"
) -> Tensor:
    """Return the slopes of transitions on standardised inputs, ``(K, K, U)``, given slopes on raw inputs.

    Args:
        slopes: change of each log-probability (before rows are normalised) for one unit of each of U raw inputs,
            ``(K, K, U)``; None stands for zeros.
        n_states: number of states, K.
        options: the columns of the inputs that transitions depend on.
        scale: raw size of one standardised unit of each input, ``(U,)``.
        name: name of the user's argument, for error messages.

    Raises:
        ValueError: the shape does not fit, a slope is not finite, or an input that transitions do not depend on has a
            slope.
    """
    shape = (n_states, n_states, options.n_inputs)
    return _checked_slopes(name, slopes, shape, options.transition) * torch.as_tensor(scale)


def slopes_of_states(
    name: str, slopes: Any, n_states: int, columns: tuple[int, ...], options: InputOptions, scale: np.ndarray
) -> Tensor:
    """Return slopes that each state has on standardised inputs, ``(K, U)``, given slopes on raw inputs.

    They are those of the first state or of durations.

    Args:
        name: name of the user's argument, for error messages.
        slopes: slope for one unit of each of U raw inputs, ``(K, U)``; None stands for zeros.
        n_states: number of states, K.
        columns: the columns of the inputs that this part of the model depends on.
        options: options of the model, with the number of inputs.
        scale: raw size of one standardised unit of each input, ``(U,)``.

    Raises:
        ValueError: the shape does not fit, a slope is not finite, or an input that this part does not depend on has a
            slope.
    """
    return _checked_slopes(name, slopes, (n_states, options.n_inputs), columns) * torch.as_tensor(scale)


def table_slopes_of(
    slopes: Any, table: Tensor, emission: Emission, encoding: Encoding, options: InputOptions, scale: np.ndarray
) -> Tensor:
    """Return the slopes of the output parameters on standardised inputs, ``(K, P, U)``, given slopes on raw inputs.

    Args:
        slopes: change of each feature's mean, log-odds or log-rate for one unit of each of U raw inputs, ``(K, D, U)``;
            for V symbols the log-odds against the first symbol, ``(K, V, U)``. None stands for zeros.
        table: output parameters of the emissions, ``(K, P)``.
        emission: the emission, which says which columns of the table depend on inputs.
        encoding: the encoding of the frames.
        options: the columns of the inputs that emissions depend on.
        scale: raw size of one standardised unit of each input, ``(U,)``.

    Raises:
        ValueError: the shape does not fit, a slope is not finite, an input that emissions do not depend on has a slope,
            or a probability or rate in ``table`` is infinite on the scale of the slopes.
    """
    regression = regressed_columns(emission)
    places = regression.places
    if not torch.isfinite(table[:, places]).all():
        raise ValueError(
            "emissions that depend on inputs have finite log-odds and log-rates, so none may be impossible, certain or "
            "zero; pass probabilities and rates above zero, and probabilities of bits below one"
        )
    checked = _checked_slopes("emission_slopes", slopes, (len(table), len(places), options.n_inputs), options.emission)
    if regression.has_reference:
        checked = checked - checked[:, :1]
    units = regression.units(torch.as_tensor(encoding.affine()[1], dtype=torch.float64)).numpy()
    result = table.new_zeros(*table.shape, options.n_inputs)
    result[:, places] = checked * torch.as_tensor(scale / units[:, None])
    return result


def _checked_slopes(name: str, slopes: Any, shape: tuple[int, ...], columns: tuple[int, ...]) -> Tensor:
    values = np.zeros(shape) if slopes is None else numbers_of(name, slopes)
    if values.shape != shape:
        raise ValueError(f"{name} have shape {values.shape}; pass {shape}, with the last axis in the order of inputs")
    if not np.isfinite(values).all():
        raise ValueError(f"{name} must be finite, but some are not; pass finite numbers")
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
