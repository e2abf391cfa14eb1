"""Vectors whose next density is a distribution of torch or Pyro that a function of the past returns."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from seqmodels.encodings import Encoding, Features
from seqmodels.encodings.examples import Example
from seqmodels.generation import Prediction, Source, stacked_sources
from seqmodels.observations import Observation
from seqmodels.sequences import Kind
from seqmodels.sequences.measure import Length, Values
from seqmodels.wrappers.adapt.adapted import AdaptedModel, check_counts


class Distribution(Protocol):
    """A protocol with the methods that are used of a distribution of torch or Pyro over one frame of D features."""

    batch_shape: torch.Size
    event_shape: torch.Size

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the log-density of the frame ``value``, ``(D,)``, in nats."""
        ...

    def sample(self) -> Tensor:
        """Draw a frame, ``(D,)``, with torch's global generator."""
        ...


NextDensity = Callable[[np.ndarray], Distribution]


class FunctionDensity(Observation):
    """An observation (distribution of a step) of vectors, whose density at each step a user's function returned.

    A network's output parameter is here the index of the density among those that the observation holds.

    Args:
        values_of_features: kind of values of the features (``"reals"``, ``"bits"`` or ``"counts"``), one name for all
            or a list with one for each.
    """

    emits = "vectors"

    def __init__(self, values_of_features: Values | list[Values] = "reals") -> None:
        self.values_of_features = values_of_features
        self.distributions: tuple[Distribution, ...] = ()

    def with_distributions(self, distributions: tuple[Distribution, ...]) -> FunctionDensity:
        """Return a copy of this observation that holds other distributions.

        Args:
            distributions: density of a next frame for each index that an output parameter may have.
        """
        result = FunctionDensity(self.values_of_features)
        result.distributions = distributions
        return result

    def n_output_parameters(self, size: int) -> int:
        return 1

    def values(self, size: int) -> tuple[Values, ...]:
        if isinstance(self.values_of_features, str):
            return (self.values_of_features,) * size
        return tuple(self.values_of_features)

    def log_prob(self, output_parameters: Tensor, x: Tensor, past: Tensor | None = None) -> Tensor:
        shape = torch.broadcast_shapes(output_parameters.shape[:-1], x.shape[:-1])
        rows = output_parameters[..., 0].expand(shape).reshape(-1).long().tolist()
        frames = x.expand(*shape, x.shape[-1]).reshape(-1, x.shape[-1]).cpu()
        each = [self.distributions[row].log_prob(frame).double() for row, frame in zip(rows, frames, strict=True)]
        return torch.stack(each).view(shape).to(output_parameters.device)

    def sample(self, output_parameters: Tensor, past: Tensor | None, generator: torch.Generator) -> Tensor:
        seed = int(torch.randint(2**62, (), generator=generator, device=generator.device))
        rows = output_parameters[..., 0].long().tolist()
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            drawn = [self.distributions[row].sample().double() for row in rows]
        return torch.stack(drawn).to(output_parameters.device)

    def distribution(
        self, output_parameters: Tensor, *, log_weights: Tensor, past: Tensor | None, shift: Tensor, scale: Tensor
    ) -> Any:
        return copy.copy(self.distributions[int(output_parameters[0, 0])])  # values are not encoded


@dataclass(eq=False, repr=False)
class DensityModel(AdaptedModel):
    """A model of vectors for a function of the past that gives ``p(x_t | x_<t)``.

    ``from_callable(log_density=...)`` makes one.

    Args:
        log_density: function that takes the past frames in raw units, ``(t, D)`` with t from 0 on, and returns a
            distribution of torch or Pyro over the next, ``(D,)``; or a class whose instances do that, which a saved
            model can name.
        n_features: D, the number of features.
        kinds: values of the features: ``"reals"``, ``"bits"`` or ``"counts"``, or a list with one for each feature.
        context: how many past frames the function looks at; None means all.
        n_parameters: number that ``n_parameters_`` reports.

    The other arguments are explained in ``SequenceModel``; lengths are given.
    """

    log_density: NextDensity | type
    _: KW_ONLY
    n_features: int
    kinds: Values | list[Values] = "reals"
    context: int | None = None
    n_parameters: int = 0

    @property
    def context_(self) -> int | None:
        return self.context

    @property
    def n_parameters_(self) -> int:
        self._setting()
        return self.n_parameters

    def _check_hyperparameters(self) -> None:
        if not callable(self.log_density):
            raise ValueError(f"log_density is {self.log_density!r:.80}; pass a function of the past frames")
        check_counts(self.context, self.n_parameters)
        if self.n_features < 1:
            raise ValueError(f"n_features is {self.n_features}; pass at least 1")
        if self.length == "stop":
            raise ValueError('length is "stop", but a density of frames says nothing of ends; leave length="given"')

    def _known_encoding(self) -> Encoding:
        return Features(self.kinds).identity(self.n_features)

    def _default_length(self, kind: Kind) -> Length:
        return "given"

    def _default_observation(self, kind: Kind) -> Observation:
        if kind != "vectors":
            raise ValueError(f"log_density models vectors, but the sequences are {kind}; pass next_log_probs")
        return FunctionDensity(self.kinds)

    def _prepare(self) -> None:
        self.function_: NextDensity = self.log_density() if isinstance(self.log_density, type) else self.log_density
        self._density(np.zeros((0, self.n_features)))

    def _density(self, past: np.ndarray) -> Distribution:
        """Return the user's density of the frame after ``past``, ``(t, D)``.

        Raises:
            ValueError: If the density has a wrong shape.
        """
        distribution = self.function_(past)
        shapes = (tuple(distribution.batch_shape), tuple(distribution.event_shape))
        if shapes != ((), (self.n_features,)):
            raise ValueError(
                f"after {len(past)} frames log_density returns a distribution of batch shape {shapes[0]} and event "
                f"shape {shapes[1]}; return one over ({self.n_features},), for example Independent(Normal(mean, "
                "scale), 1)"
            )
        return distribution

    def _steps(self, examples: list[Example]) -> list[np.ndarray]:
        return [self._steps_of(np.asarray(example.values, dtype=np.float64)) for example in examples]

    @torch.no_grad()
    def _steps_of(self, frames: np.ndarray) -> np.ndarray:
        each = [
            self._density(frames[:t]).log_prob(torch.as_tensor(frames[t])).double().cpu() for t in range(len(frames))
        ]
        return torch.stack(each).numpy()

    def cursor(self, n_steps: int | None = None) -> DensityCursor:
        self._setting()
        observation = self.observation_
        assert isinstance(observation, FunctionDensity), "of a DensityModel it is"
        return DensityCursor(self._density, observation, self.n_features, self._device())


@dataclass(frozen=True)
class DensityState:
    """The state of a ``DensityCursor`` for n sequences: all t past frames of D features of each, ``(n, t, D)``."""

    frames: np.ndarray


@dataclass(frozen=True)
class DensityCursor:
    """A predictor, frame by frame, for a user's function of the past frames.

    Attributes:
        density: function from the t past frames of D features, ``(t, D)``, to a distribution of the next.
        observation: observation that makes predictions of these distributions.
        n_features: number D of features.
        device: device of the predictions.
    """

    density: NextDensity
    observation: FunctionDensity
    n_features: int
    device: torch.device

    def start(self, source: Source = None, n: int = 1) -> DensityState:
        """Return the state before the first frame of ``n`` sequences.

        ``source`` must be None, because the model is of x alone.
        """
        assert stacked_sources(source, n) is None, "the model is p(x)"
        return DensityState(np.zeros((n, 0, self.n_features)))

    def advance(self, state: DensityState, x: Tensor) -> DensityState:
        """Return the state after each sequence's next frame.

        Args:
            state: the state before it.
            x: the frame of each of n sequences, ``(n, D)``.
        """
        return replace(state, frames=np.concatenate([state.frames, x.double().cpu().numpy()[:, None]], axis=1))

    @torch.no_grad()
    def distribution(self, state: DensityState) -> Prediction:
        """Return the prediction of the next frame of each sequence, by the user's function of its past."""
        observation = self.observation.with_distributions(tuple(self.density(past) for past in state.frames))
        rows = torch.arange(len(state.frames), dtype=torch.float64, device=self.device)
        return Prediction(observation, rows.view(-1, 1, 1), None, None, None)

    def select(self, state: DensityState, index: Tensor) -> DensityState:
        """Return the state of some of the sequences, whose indices are ``index``, ``(m,)``."""
        return DensityState(state.frames[index.cpu().numpy()])
