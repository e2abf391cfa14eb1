"""``StateSpaceModel``: the part that linear-Gaussian systems with constant and with switching matrices share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

import numpy as np

from seqmodels.common.parameters import LARGEST_FLOOR
from seqmodels.encodings import Encoding, Features
from seqmodels.encodings.examples import Example
from seqmodels.encodings.inputs import InputScaling
from seqmodels.encodings.raw_data import Data
from seqmodels.encodings.raw_to_examples import Setting
from seqmodels.linear_gaussian.cursor import predicted_by
from seqmodels.model import SequenceModel
from seqmodels.model.fitting import apply_setting, learn_setting
from seqmodels.model.size_for_budget import largest_size
from seqmodels.observations import Observation
from seqmodels.sequences import Kind
from seqmodels.sequences.measure import Length
from seqmodels.training import EMTraining, StopRule

UNLIMITED_STEPS = 1_000_000  # where time alone ends a fit


class StateSpaceParameters(Protocol):
    """The matrices of a linear-Gaussian system in encoded units.

    In a switching system they have an axis of regimes first.
    """

    @property
    def transition(self) -> np.ndarray: ...
    @property
    def state_covariance(self) -> np.ndarray: ...
    @property
    def observation(self) -> np.ndarray: ...
    @property
    def intercept(self) -> np.ndarray: ...
    @property
    def observation_covariance(self) -> np.ndarray: ...
    @property
    def initial_mean(self) -> np.ndarray: ...
    @property
    def initial_covariance(self) -> np.ndarray: ...


ParametersT = TypeVar("ParametersT", bound=StateSpaceParameters)


class StateSpaceModel(SequenceModel, ABC, Generic[ParametersT]):
    """A base class of models whose hidden states move linearly and are observed linearly, with Gaussian noise.

    To add a model, define its hyperparameters, among them those that are named here, and how it is fitted, scores
    sequences and predicts their steps. Its fitted ``parameters_`` have the matrices of ``StateSpaceParameters``.
    """

    n_init: int
    max_iter: int
    tol: float
    max_seconds: float | None
    training: EMTraining
    min_covariance: float
    observation_noise: str

    _uses_validation: ClassVar[bool] = False
    _size: ClassVar[str | None] = "n_states"
    _sums_out_missing: ClassVar[bool] = True

    parameters_: ParametersT

    @property
    def context_(self) -> int | None:
        return None

    def _default_length(self, kind: Kind) -> Length:
        return "given"

    def _default_observation(self, kind: Kind) -> Observation:
        if kind != "vectors":
            raise ValueError(
                f"a {type(self).__name__} is of vectors, but the sequences are {kind}; use an HMM or a network"
            )
        return predicted_by()

    def _limits(self, seconds: float | None, steps: int | None) -> dict[str, Any]:
        time = {} if seconds is None else {"max_seconds": seconds}
        if steps is not None:
            return {"max_iter": steps, **time}
        return time if seconds is None else {"max_iter": UNLIMITED_STEPS, **time}

    def _stop_rule(self, n_starts: int) -> StopRule:
        """Return the rule that ends EM from one start; each of ``n_starts`` gets an equal share of ``max_seconds``."""
        return StopRule(self.max_iter, self.tol, self.max_seconds and self.max_seconds / n_starts)

    # -- arguments -----------------------------------------------------------------------------------------

    def _check_arguments_of_fit(self, least: Sequence[tuple[str, int]], choices: Sequence[tuple[str, Any]]) -> None:
        """Raise ``ValueError`` if an argument that all state-space models share has a value that is not allowed.

        Args:
            least: name and smallest value of each integer argument to check; ``"auto"`` is allowed.
            choices: name and allowed values of each argument that is a word.
        """
        self.training.check()
        for name, minimum in least:
            if getattr(self, name) != "auto" and getattr(self, name) < minimum:
                raise ValueError(f"{name} is {getattr(self, name)}; pass at least {minimum}")
        for name, known in choices:
            if getattr(self, name) not in known:
                raise ValueError(f"{name} is {getattr(self, name)!r}; pass one of {', '.join(map(repr, known))}")
        if not 0 < self.min_covariance <= LARGEST_FLOOR or not self.tol >= 0:
            raise ValueError(
                f"min_covariance is {self.min_covariance} and tol {self.tol}; pass a number above 0 to "
                f"{LARGEST_FLOOR:g}, in variances of the data, and one from 0 on"
            )
        if self.max_seconds is not None and not self.max_seconds > 0:
            raise ValueError(f"max_seconds is {self.max_seconds}; pass a number above zero, or None for no limit")
        if self.observation != "auto":
            raise ValueError(
                f"observation is {self.observation!r}, but a {type(self).__name__} has Gaussian noise; leave it "
                "'auto', and choose observation_noise"
            )
        if self.length == "stop":
            raise ValueError(
                "length is 'stop', but a linear-Gaussian system says nothing of ends; leave length='given'"
            )

    def _largest_n_states(self, n_parameters: int, data: Data, count: Callable[[Self, int], int]) -> int | None:
        """Return the largest number of states with at most ``n_parameters`` parameters; None if one has more.

        Args:
            n_parameters: largest number of parameters.
            data: training data, from which the model takes its features and inputs.
            count: function that returns the number of parameters of a model with the given number of states.
        """
        like = self.clone()
        apply_setting(like, learn_setting(like, data))
        return largest_size(partial(count, like), n_parameters, 1, "n_states")

    # -- fitted models -------------------------------------------------------------------------------------

    def _held_out_score(self, validation: list[Example]) -> float:
        """Return the log-probability of held-out examples in nats per raw unit; NaN if there are none."""
        if not validation:
            return np.nan
        log_prob = float(self._sums_of_steps(validation).sum()) + sum(e.log_det for e in validation)
        return log_prob / sum(e.n_units for e in validation)

    def _set_fitted(self, parameters: ParametersT, n_features: int, times: InputScaling | None = None) -> None:
        """Make this a fitted model with the given parameters, whose encoded units are the raw units.

        Args:
            parameters: matrices of the system.
            n_features: number of features.
            times: scaling of the times that the model reads; None if it reads none.
        """
        import pandas as pd

        encoding: Encoding = Features("reals").identity(n_features)
        setting = Setting.from_fitted(encoding, self._default_observation("vectors"), "given", conditional=False)
        apply_setting(self, setting.with_inputs(times))
        self.parameters_, self.history_ = parameters, pd.DataFrame()
        self.converged_, self.fit_seconds_ = True, 0.0

    def _check_observation(self) -> None:
        """Raise ``ValueError`` if a file's ``observation`` is not the density that the system predicts."""
        expected = self._default_observation("vectors")
        if repr(self.observation_) != repr(expected):
            raise ValueError(
                f"its observation is {self.observation_!r}, but the prediction of this {type(self).__name__} is "
                f"{expected!r}"
            )

    # -- parameters in raw units ---------------------------------------------------------------------------

    @property
    @abstractmethod
    def _state_scale(self) -> float:
        """The size of a unit of the states in raw units; 1 where states have units of their own."""

    @property
    def transition_(self) -> np.ndarray:
        """The transition matrix A of the K states, ``(K, K)``, which takes the state of a step to the mean of the next.

        It is ``(S, K, K)`` for a model with S regimes.
        """
        return np.asarray(self.parameters_.transition)

    @property
    def state_covariance_(self) -> np.ndarray:
        """The covariance Q of the noise that a step adds to the K states, ``(K, K)``.

        It is ``(S, K, K)`` for a model with S regimes, and in raw units if the model has a ``structure``.
        """
        return np.asarray(self._state_scale**2 * self.parameters_.state_covariance)

    @property
    def initial_mean_(self) -> np.ndarray:
        """The mean m of the K states at the first step, ``(K,)``, in raw units if the model has a ``structure``."""
        return np.asarray(self._state_scale * self.parameters_.initial_mean)

    @property
    def initial_covariance_(self) -> np.ndarray:
        """The covariance P of the K states at the first step, ``(K, K)``; in raw units under a ``structure``."""
        return np.asarray(self._state_scale**2 * self.parameters_.initial_covariance)

    @property
    def observation_matrix_(self) -> np.ndarray:
        """The observation matrix C in raw units, ``(D, K)``, which takes K states to the mean of D features.

        It is ``(S, D, K)`` for a model with S regimes.
        """
        _, scale = self.encoding_.affine()
        return np.asarray(np.reshape(scale, (-1, 1)) * self.parameters_.observation / self._state_scale)

    @property
    def intercept_(self) -> np.ndarray:
        """The intercept d in raw units, ``(D,)``: the mean of D features where the state is 0.

        Inputs are then at their means. It is ``(S, D)`` for a model with S regimes. Under a ``structure`` states are
        deviations from it, so the level of a series is ``intercept_`` and the first state together, as ``components``
        has it.
        """
        shift, scale = self.encoding_.affine()
        return np.asarray(shift + scale * self.parameters_.intercept)

    @property
    def observation_covariance_(self) -> np.ndarray:
        """The covariance R of the noise of the D observed features in raw units, ``(D, D)``.

        It is ``(S, D, D)`` for a model with S regimes.
        """
        _, scale = self.encoding_.affine()
        return np.asarray(np.outer(scale, scale) * self.parameters_.observation_covariance)


def encoded_sequences(examples: Sequence[Example]) -> list[np.ndarray]:
    """Return each example as one encoded sequence of T steps and D features, ``(T, D)`` float64.

    The sequence is the source of the example, if it has one, followed by its own values.
    """
    return [
        np.asarray(e.values if e.source is None else np.concatenate([e.source, e.values]), dtype=np.float64)
        for e in examples
    ]


def raw_size(examples: Sequence[Example], encoding: Encoding) -> tuple[float, float]:
    """Return the number of raw units in the examples and the log-determinant of their encoding, both weighted sums.

    Sources of examples are included. The log-determinant is in nats: added to a log-density of encoded values it gives
    that of raw values.
    """
    units = sum(e.weight * e.n_units for e in examples)
    log_det = sum(e.weight * e.log_det for e in examples)
    for e in examples:
        if e.source is not None:
            raw = encoding.decode(e.source)
            units += e.weight * len(raw)
            log_det += e.weight * float(np.broadcast_to(encoding.log_det(raw), len(e.source)).sum())
    return units, log_det
