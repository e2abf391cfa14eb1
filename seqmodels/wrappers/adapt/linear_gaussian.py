"""``LinearGaussianModel``: a linear-Gaussian state-space model as it is: the Kalman filter gives ``p(x_t | x_<t)``.

::

    z_t = z_{t-1} A + w_t,  w_t ~ N(w, Q)
    x_t = z_t C + v_t,      v_t ~ N(v, R)
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqmodels.encodings import Encoding, Features
from seqmodels.encodings.examples import Example
from seqmodels.generation import Prediction, Source, stacked_sources
from seqmodels.observations import GaussianMixture, Observation
from seqmodels.observations.gaussian import shape_of_covariance
from seqmodels.sequences import Kind
from seqmodels.sequences.measure import Length
from seqmodels.wrappers.adapt.adapted import AdaptedModel

SMALLEST_VARIANCE = 1e-300  # a floor that no variance of a prediction comes near
Numbers = list[float]
Rows = list[list[float]]


@dataclass(frozen=True)
class LinearGaussianNumbers:
    """The numbers of a state-space model of K hidden and D observed dimensions; float64.

    Attributes:
        initial_mean, initial_covariance: (K,), (K, K), of the state before the first transition.
        transition, transition_mean, transition_covariance: A (K, K), w (K,), Q (K, K).
        observation, observation_mean, observation_covariance: C (K, D), v (D,), R (D, D).
    """

    initial_mean: Tensor
    initial_covariance: Tensor
    transition: Tensor
    transition_mean: Tensor
    transition_covariance: Tensor
    observation: Tensor
    observation_mean: Tensor
    observation_covariance: Tensor

    def predict(self, mean: Tensor, covariance: Tensor) -> tuple[Tensor, Tensor]:
        """Of the next state: ``(n, K)`` and ``(K, K)`` -> the same."""
        spread = self.transition.mT @ covariance @ self.transition + self.transition_covariance
        return mean @ self.transition + self.transition_mean, 0.5 * (spread + spread.mT)

    def observe(self, mean: Tensor, covariance: Tensor) -> tuple[Tensor, Tensor]:
        """Of the step that a state of this distribution emits: ``(n, D)`` and ``(D, D)``."""
        spread = self.observation.mT @ covariance @ self.observation + self.observation_covariance
        return mean @ self.observation + self.observation_mean, 0.5 * (spread + spread.mT)

    def correct(self, mean: Tensor, covariance: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """Of the state, given the step ``x (n, D)`` that it emitted, in the form of Joseph, which stays symmetric."""
        expected, spread = self.observe(mean, covariance)
        gain = torch.cholesky_solve((covariance @ self.observation).mT, torch.linalg.cholesky(spread))  # (D, K)
        rest = torch.eye(len(covariance), dtype=covariance.dtype, device=covariance.device) - self.observation @ gain
        noise = gain.mT @ self.observation_covariance @ gain
        return mean + (x - expected) @ gain, rest.mT @ covariance @ rest + noise


@dataclass(eq=False, repr=False)
class LinearGaussianModel(AdaptedModel):
    """A linear-Gaussian state-space model. ``from_pyro`` makes one of a ``GaussianHMM`` and, of Gaussian noise, of a
    ``LinearHMM``; by its arguments it can be made without Pyro.

    ``p(x_t | x_<t)`` is the Gaussian of the Kalman filter (Kalman 1960; Durbin and Koopman 2012, *Time series analysis
    by state space methods*, section 4.3), computed in float64 in raw units. The first step is emitted after one
    transition, as in Pyro. Lengths are given; values may not be missing.

    Args:
        initial_mean: ``(K,)``, of the state before the first transition.
        initial_covariance: ``(K, K)``.
        transition: ``(K, K)``, from the old state (rows) to the new.
        transition_covariance: ``(K, K)`` of the noise of the state.
        observation_matrix: ``(K, D)``, from the state (rows) to the step.
        observation_covariance: ``(D, D)`` of the noise of the step; positive definite.
        transition_mean, observation_mean: ``(K,)``, ``(D,)`` of the noise; None: zeros.

    The other arguments are those of ``SequenceModel``; ``dtype`` has no say.

    Raises:
        ValueError: shapes that do not fit; numbers that are not finite; a covariance that is none.

    >>> x = [np.array([[0.3], [0.1]])]
    >>> walk = LinearGaussianModel([0.0], [[1.0]], [[1.0]], [[0.5]], [[1.0]], [[0.1]]).fit(x)
    >>> walk.log_prob(x).round(3)
    array([-1.942])
    """

    initial_mean: Numbers
    initial_covariance: Rows
    transition: Rows
    transition_covariance: Rows
    observation_matrix: Rows
    observation_covariance: Rows
    _: KW_ONLY
    transition_mean: Numbers | None = None
    observation_mean: Numbers | None = None

    @property
    def context_(self) -> int | None:
        return None

    @property
    def n_parameters_(self) -> int:
        self._setting()
        k, d = np.shape(self.observation_matrix)
        return 2 * k + k * (k + 1) + k * k + k * d + d + d * (d + 1) // 2

    def _check_hyperparameters(self) -> None:
        shape = np.shape(self.observation_matrix)
        if len(shape) != 2 or 0 in shape:
            raise ValueError(f"observation_matrix has shape {shape}; pass (K, D), from hidden to observed dimensions")
        if self.length == "stop":
            raise ValueError('length is "stop", but a state-space model says nothing of ends; leave length="given"')
        k, d = shape
        expected = {
            **{"initial_mean": (k,), "initial_covariance": (k, k), "transition": (k, k)},
            **{"transition_covariance": (k, k), "observation_matrix": (k, d), "observation_covariance": (d, d)},
            **{"transition_mean": (k,), "observation_mean": (d,)},
        }
        for name, its_shape in expected.items():
            value = getattr(self, name)
            if value is None and name.endswith("_mean") and name != "initial_mean":
                continue
            array = np.asarray(value, dtype=np.float64)
            if array.shape != its_shape or not np.isfinite(array).all():
                raise ValueError(f"{name} has shape {array.shape}; pass finite numbers of shape {its_shape}")
            if name.endswith("covariance"):
                least = 0.0 if name == "observation_covariance" else -1e-9 * np.abs(array).max()
                is_symmetric = np.allclose(array, array.T, rtol=1e-6, atol=1e-12 * np.abs(array).max())
                if not is_symmetric or (eigenvalues := np.linalg.eigvalsh(array)).min() < least:
                    raise ValueError(f"{name} is no covariance: it is not symmetric, or an eigenvalue is negative")
                if name == "observation_covariance" and eigenvalues.min() == 0:
                    raise ValueError("observation_covariance is singular, so there is no density; add some noise")

    def _known_encoding(self) -> Encoding:
        return Features("reals").identity(np.shape(self.observation_matrix)[1])

    def _default_length(self, kind: Kind) -> Length:
        return "given"

    def _default_observation(self, kind: Kind) -> Observation:
        if kind != "vectors":
            raise ValueError(f"a LinearGaussianModel is of vectors, but the sequences are {kind}")
        return GaussianMixture(1, "full", min_covariance=SMALLEST_VARIANCE)

    def _restore(self, state: dict[str, Any]) -> None:
        shape = getattr(self.observation_, "n_components", 0), getattr(self.observation_, "covariance_type", "")
        if shape != (1, "full"):
            raise ValueError(f"its observation is {self.observation_!r}, but a LinearGaussianModel has one Gaussian")
        super()._restore(state)

    def _prepare(self) -> None:
        k, d = np.shape(self.observation_matrix)
        arrays = (
            *(self.initial_mean, self.initial_covariance, self.transition),
            *(np.zeros(k) if self.transition_mean is None else self.transition_mean, self.transition_covariance),
            *(self.observation_matrix, np.zeros(d) if self.observation_mean is None else self.observation_mean),
            self.observation_covariance,
        )
        self.parameters_ = LinearGaussianNumbers(*(torch.tensor(np.asarray(a, dtype=np.float64)) for a in arrays))

    @torch.no_grad()
    def _steps(self, examples: list[Example]) -> list[np.ndarray]:
        """All together: the covariances of the filter do not depend on the data."""
        cursor, lengths = self.cursor(), [len(example.values) for example in examples]
        state, results = cursor.start(n=len(examples)), [np.empty(n) for n in lengths]
        order = sorted(range(len(examples)), key=lambda i: -lengths[i])
        values = [torch.as_tensor(np.asarray(examples[i].values, dtype=np.float64)) for i in order]
        for t in range(max(lengths)):
            n = sum(length > t for length in lengths)
            if n < len(state.mean):
                state = cursor.select(state, torch.arange(n))
            x = torch.stack([each[t] for each in values[:n]]).to(state.mean)
            for i, nats in zip(order, cursor.log_prob(state, x).tolist(), strict=False):
                results[i][t] = nats
            state = cursor.advance(state, x)
        return results

    def cursor(self, n_steps: int | None = None) -> KalmanCursor:
        self._setting()
        device = self._device()
        parameters = LinearGaussianNumbers(*(each.to(device) for each in vars(self.parameters_).values()))
        return KalmanCursor(parameters, self.observation_)


@dataclass(frozen=True)
class KalmanState:
    """What the steps so far say of the next step's hidden state: ``mean (n, K)``, ``covariance (K, K)`` of all."""

    mean: Tensor
    covariance: Tensor


@dataclass(frozen=True)
class KalmanCursor:
    """The Kalman filter as a chain of one-step predictions."""

    parameters: LinearGaussianNumbers
    observation: Observation

    def start(self, source: Source = None, n: int = 1) -> KalmanState:
        """Before the first step of ``n`` sequences."""
        assert stacked_sources(source, n) is None, "the model is p(x)"
        p = self.parameters
        return KalmanState(*p.predict(p.initial_mean.expand(n, -1), p.initial_covariance))

    def advance(self, state: KalmanState, x: Tensor) -> KalmanState:
        """After each sequence's next step, ``x (n, D)``."""
        p = self.parameters
        return KalmanState(*p.predict(*p.correct(state.mean, state.covariance, x.to(state.mean))))

    def log_prob(self, state: KalmanState, x: Tensor) -> Tensor:
        """``(n,)`` nats of the next steps ``x (n, D)``."""
        return self.distribution(state).log_prob(x).double()

    def distribution(self, state: KalmanState) -> Prediction:
        """The prediction of the next step."""
        mean, covariance = self.parameters.observe(state.mean, state.covariance)
        shape = shape_of_covariance(covariance).expand(len(mean), -1)
        table = torch.cat([self._no_weight.expand(len(mean), -1), mean, shape], 1)
        return Prediction(self.observation, table.unsqueeze(1), None, None, None)

    @cached_property
    def _no_weight(self) -> Tensor:
        """``(1, 1)``: the logit of the one component."""
        return self.parameters.initial_mean.new_zeros(1, 1)

    def select(self, state: KalmanState, index: Tensor) -> KalmanState:
        """Of sequences ``index (m,)``."""
        return replace(state, mean=state.mean.index_select(0, index.to(state.mean.device)))
