"""Emissions, the part of EM that depends on the observation: their abstract class, and functions that they share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import singledispatch
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from seqmodels.common.onednn import linear
from seqmodels.hmm.emissions.kmeans import in_comparable_units, kmeans_labels, with_neighbour_means
from seqmodels.inference.chains.densities import Densities, LogDensities
from seqmodels.inference.chains.products import is_worth_onednn
from seqmodels.inference.chains.scratch import Scratch
from seqmodels.observations import Observation

Statistics = tuple[Tensor, ...]  # float64 sums over frames: statistics of two batches add

SUMMED = 512  # frames whose products are summed in float32 before they are added in float64
FEW_PARTS = 8  # fewer matrices than this are faster to add one by one
IN_CACHE = 1 << 19  # numbers that a block of frames may need at once on a CPU, so that they stay in its cache
ON_GPU = 1 << 26  # numbers that a block of frames may need at once on a GPU
MOST_ROWS = 1 << 14  # most frames of a block on a CPU
NOT_VISITED = 1e-10  # a state with at most so many expected frames counts as not visited
MANY_STATES = 16  # so many states or more are not told apart by their symbols alone


class Emission(ABC):
    """Abstract base of the part of EM that depends on the emission distribution: densities, statistics, M-step and
    start.

    To add one, define the abstract methods in a file of its own and put ``@emission_of.register(MyObservation)`` before
    the class, where ``MyObservation`` is the class of the distribution. A distribution derived from ``MomentMatching``
    needs no emission of its own. ``evaluate`` and ``statistics`` may be called in several threads at once, each with
    its own frames and scratch memory.

    The methods share these arguments:

    - ``table``: P parameters of the distribution in each of K states, ``(K, P)`` float64.
    - ``x``: N encoded frames, ``(N, D)``, or symbols, ``(N,)``.
    - ``past``: the p frames before each frame, ``(N, p, D)``; None for distributions that do not depend on them.
    - ``gamma``: posterior probability of each state in each frame, ``(N, K)``.

    Args:
        observation: the family of distributions, such as ``GaussianMixture()``.
        size: number of features D, or of symbols V.
    """

    def __init__(self, observation: Observation, size: int) -> None:
        self.observation = observation
        self.size = size

    @property
    def n_statistics(self) -> int:
        """Number of tensors that the method ``statistics`` returns; by default one."""
        return 1

    @property
    def n_earlier_states(self) -> int:
        """Number of states before the current one that the density of a frame depends on; 0 for an ordinary HMM."""
        return 0

    @property
    def shares(self) -> bool:
        """True if states have output parameters in common, so that several models cannot be computed side by side."""
        return False

    @property
    def frozen_states(self) -> Tensor | None:
        """A mask ``(K,)`` of the states whose emission the M-step leaves unchanged; None if it changes all of them."""
        return None

    @property
    def tied_states(self) -> Tensor | None:
        """The group number of each of K states, ``(K,)``, if the M-step gives a group one emission; else None."""
        return None

    def has_free_durations(self, n_states: int) -> Tensor:
        """Return a mask ``(K,)`` of the states whose durations a fit learns; of states that share them, the first.

        It is False everywhere for an emission without durations.
        """
        return torch.zeros(n_states, dtype=torch.bool)

    def with_shared_durations(self, slopes: Tensor) -> Tensor:
        """Return slopes of durations, ``(K, U)``, with those of the first state for all states that share durations."""
        return slopes

    def is_kept(self, table: Tensor) -> Tensor:
        """Return a mask ``(K, P)`` of the output parameters that the M-step leaves unchanged; by default none.

        Args:
            table: P output parameters of each of K states, ``(K, P)``.
        """
        return torch.zeros_like(table, dtype=torch.bool)

    def observed(self, table: Tensor) -> Tensor:
        """Return, as a view, the columns of ``table`` that are parameters of the emission distribution, ``(K, P)``.

        These are all columns, unless the table also holds other parameters of states, such as those of their durations.

        Args:
            table: parameters of K states, one row for each, or their slopes on U inputs, with a last axis U.
        """
        return table

    def n_densities(self, n_states: int) -> int:
        """Return how many densities a frame has in a model of ``n_states`` states; by default one for each state."""
        return n_states

    def evaluate(
        self, table: Tensor, x: Tensor, past: Tensor | None, dtype: torch.dtype, scratch: Scratch
    ) -> tuple[Densities, Any]:
        """Return the density of each frame in each state, and intermediate results that ``statistics`` can use again.

        The second result is None if there is nothing to use again; ``statistics`` may overwrite it.

        Args:
            table: P output parameters of each of K states, ``(K, P)``.
            x: N encoded frames, ``(N, D)``, or symbols, ``(N,)``.
            past: the p frames before each frame, ``(N, p, D)``; None if the emission does not depend on them.
            dtype: precision of the densities.
            scratch: buffers that hold the arrays of both results, which are valid until it is used again.
        """
        return LogDensities(self.log_prob(table, x, past, dtype)), None

    def in_loops(self, table: Tensor, frames: Sequence[Tensor], dtype: torch.dtype) -> EmissionInLoops | None:
        """Return the E-step and M-step of this emission as compiled loops, or None if no loops compute in ``dtype``.

        Args:
            table: P output parameters of each of K states to start from, ``(K, P)``.
            frames: the frames of each batch, ``(N, D)``.
            dtype: precision of the computation.
        """
        return None

    def tie(self, table: Tensor) -> Tensor:
        """Return output parameters ``(K, P)`` in which all states have the first state's values of shared parameters.

        Training by gradient uses it, because the rows would otherwise differ. By default no parameter is shared.

        Args:
            table: P output parameters of each of K states, ``(K, P)``.
        """
        return table

    def unbounded(self, table: Tensor) -> Tensor:
        """Return output parameters as unconstrained real numbers of the same shape, for training by gradient.

        The inverse is ``of_unbounded``. By default any numbers are allowed as parameters, which are returned unchanged.

        Args:
            table: P output parameters of each of K states, ``(K, P)``.
        """
        return table

    def of_unbounded(self, numbers: Tensor) -> Tensor:
        """Return the output parameters ``(K, P)`` that ``unbounded`` maps to ``numbers``, differentiable in these."""
        return self.tie(numbers)

    def log_prob(self, table: Tensor, x: Tensor, past: Tensor | None, dtype: torch.dtype) -> Tensor:
        """Return the log-densities ``log p(x_t | state)`` of all frames and states in nats, ``(N, K)`` in ``dtype``.

        Args:
            table: P output parameters of each of K states, ``(K, P)``.
            x: N encoded frames in ``dtype``, ``(N, D)``, or symbols, ``(N,)``.
            past: the p frames before each frame, ``(N, p, D)``; None if the emission does not depend on them.
            dtype: precision of the result.
        """
        return self.observation.log_prob(table.unsqueeze(1), x, past).to(dtype).T

    def log_prob_by_state(self, table: Tensor, x: Tensor, past: Tensor | None, dtype: torch.dtype) -> Tensor:
        """Return scores ``(N, K)`` by which EM's first guess assigns each frame to the state of its highest score.

        By default the scores are the log-densities of ``log_prob``.

        Args:
            table: P output parameters of each of K states, ``(K, P)``.
            x: N encoded frames, ``(N, D)``, or symbols, ``(N,)``.
            past: the p frames before each frame, ``(N, p, D)``; None if the emission does not depend on them.
            dtype: precision of the scores.
        """
        return self.log_prob(table, x, past, dtype)

    @abstractmethod
    def statistics(self, table: Tensor, x: Tensor, past: Tensor | None, gamma: Tensor, memo: Any = None) -> Statistics:
        """Return the expected sufficient statistics of the emissions given the posteriors of the states.

        They are one or more float64 tensors whose first axis is the state; those of two batches add.

        Args:
            table: P output parameters of each of K states, ``(K, P)``.
            x: N encoded frames, ``(N, D)``, or symbols, ``(N,)``.
            past: the p frames before each frame, ``(N, p, D)``; None if the emission does not depend on them.
            gamma: posterior probability of each state in each frame, ``(N, K)``.
            memo: second result of ``evaluate`` for the same table and frames; None computes it again.
        """

    @abstractmethod
    def maximise(self, statistics: Statistics, table: Tensor) -> Tensor:
        """Return the output parameters ``(K, P)`` that maximise expected log-likelihood plus ``log_prior``: the
        M-step.

        Lower bounds of parameters, such as ``min_covariance``, hold. States without frames keep their rows of
        ``table``.

        Args:
            statistics: expected sufficient statistics, as ``statistics`` returns them.
            table: P output parameters of each of K states before the step, ``(K, P)``.
        """

    def log_prior(self, table: Tensor) -> Tensor:
        """Return the log-density of the parameters' prior in nats, up to a constant, as a differentiable scalar.

        It is added to the log-likelihood in the objective. It is zero without a prior.

        Args:
            table: P output parameters of each of K states, ``(K, P)``.
        """
        return table.new_zeros(())

    def floor_hits(self, table: Tensor) -> Tensor:
        """Return a mask ``(K,)`` of the states with a parameter at its lower bound, such as ``min_covariance``.

        Args:
            table: P output parameters of each of K states, ``(K, P)``.
        """
        return self.observation.floor_hits(table, self.size)

    def labels(self, x: Tensor, n_states: int, generator: torch.Generator) -> Tensor:
        """Return a first guess of the state of each frame, ``(N,)`` integers below ``n_states``.

        EM starts from it. The default is k-means of the frames, each taken together with the mean of its neighbours in
        time.

        Args:
            x: N encoded frames, ``(N, D)``, or symbols, ``(N,)``.
            n_states: number of states, K.
            generator: random generator.
        """
        frames = with_neighbour_means(in_comparable_units(x, self.observation.values(self.size)))
        return kmeans_labels(frames, n_states, generator)

    def from_labels(
        self, x: Tensor, past: Tensor | None, labels: Tensor, n_states: int, generator: torch.Generator
    ) -> Tensor:
        """Return output parameters ``(K, P)`` from which EM starts, estimated from frames with a guessed state.

        The default is the M-step from one-hot posteriors. Two average frames are added to each state, so that small
        groups of frames do not start with extreme parameters.

        Args:
            x: N encoded frames, ``(N, D)``, or symbols, ``(N,)``.
            past: the p frames before each frame, ``(N, p, D)``; None if the emission does not depend on them.
            labels: guessed state of each frame, ``(N,)`` integers below ``n_states``.
            n_states: number of states, K.
            generator: random generator.
        """
        table = torch.zeros(
            n_states, self.observation.n_output_parameters(self.size), dtype=torch.float64, device=x.device
        )
        gamma = torch.nn.functional.one_hot(labels, n_states).double()
        sums = self.statistics(table, x, past, gamma)
        return self.maximise(tuple(s + 2 * s.sum(0) / len(x) for s in sums), table)

    def n_parameters(self, n_states: int) -> int:
        """Return the number of free output parameters of ``n_states`` states."""
        return n_states * self.observation.n_output_parameters(self.size)

    @abstractmethod
    def raw_parameters(self, table: Tensor, shift: np.ndarray, scale: np.ndarray) -> Mapping[str, np.ndarray]:
        """Return the output parameters in raw units, arrays by name of the model's attribute, such as ``"means_"``.

        Args:
            table: P output parameters of each of K states, ``(K, P)``.
            shift: number to add to each of D encoded features times ``scale``, which gives its raw value, ``(D,)``.
            scale: factor of each encoded feature, ``(D,)``.
        """

    def example_of_raw(self, n_states: int) -> Mapping[str, np.ndarray]:
        """Return arrays such as ``raw_parameters`` gives of ``n_states`` states, for their names and shapes."""
        zeros = torch.zeros(n_states, self.observation.n_output_parameters(self.size), dtype=torch.float64)
        return self.raw_parameters(zeros, np.zeros(self.size), np.ones(self.size))

    def table_of_raw(self, raw: Mapping[str, np.ndarray], shift: np.ndarray, scale: np.ndarray) -> Tensor:
        """Return the output parameters ``(K, P)`` of given parameters in raw units, the inverse of ``raw_parameters``.

        Args:
            raw: arrays by name, as ``raw_parameters`` returns them; values that are out of range give any numbers.
            shift: number to add to each of D encoded features times ``scale``, which gives its raw value, ``(D,)``.
            scale: factor of each encoded feature, ``(D,)``.

        Raises:
            ValueError: the arrays that ``raw_parameters`` returns do not determine the output parameters.
        """
        raise ValueError(
            f"the parameters of {self.observation!r} cannot be given, because its fitted attributes are not all of them"
        )

    def by_state(
        self, table: Tensor, shift: np.ndarray, scale: np.ndarray, names: Sequence[str]
    ) -> Mapping[str, np.ndarray]:
        """Return the output parameters in raw units as columns ``(K,)``, one for each parameter and feature, by name.

        A name is such as ``"rates_pulse"`` for the feature ``pulse``. The default is for parameters that have one value
        for each feature of each state; an observation with other parameters overrides it.

        Args:
            table: P output parameters of each of K states, ``(K, P)``.
            shift: number to add to each of D encoded features times ``scale``, which gives its raw value, ``(D,)``.
            scale: factor of each encoded feature, ``(D,)``.
            names: names of the features or symbols; a single ``""`` adds nothing to the name of a column.
        """
        raw = self.raw_parameters(table, shift, scale)
        return {
            column: values[:, d]
            for parameter, values in raw.items()
            for d, column in enumerate(columns_of(parameter.removesuffix("_"), names))
        }


class EmissionInLoops(Protocol):
    """The emission part of EM in compiled loops on little data: parameters that change in place, and sums over batches.

    Batches are numbered by ``i`` from 0. ``GaussianMixtureEmission`` has one.
    """

    def log_densities(self, i: int) -> np.ndarray:
        """Return the log-densities of the N frames of batch ``i`` in all K states in nats, ``(N, K)`` float64."""

    def forget(self) -> None:
        """Set the expected statistics of all batches to zero, before an E-step."""

    def add(self, i: int, gamma: np.ndarray, weight: float) -> None:
        """Add the expected statistics of batch ``i``, times ``weight``, to the sums of the E-step.

        ``gamma (N, K)`` are the posteriors of the K states in the N frames of the batch.
        """

    def maximise(self) -> None:
        """Replace the parameters by those that maximise the expected log-likelihood plus the log-prior: the M-step."""

    def log_prior(self) -> float:
        """Return the log-density of the prior at the current parameters in nats, up to a constant."""

    def floor_hits(self) -> int:
        """Return the number of states with a parameter at its lower bound, such as ``min_covariance``."""

    def table(self) -> Tensor:
        """Return the current output parameters, P for each of K states, ``(K, P)`` float64."""

    def statistics(self) -> Statistics:
        """Return the expected statistics summed over all batches, as tensors whose first axis is the state."""


def columns_of(parameter: str, names: Sequence[str]) -> list[str]:
    """Return the column name of a parameter for each feature: ``parameter_name``, or ``parameter`` if the name is
    empty.

    >>> columns_of("mean", ["pulse", "pressure"]), columns_of("mean", [""])
    (['mean_pulse', 'mean_pressure'], ['mean'])
    """
    return [f"{parameter}_{name}" if name else parameter for name in names]


@singledispatch
def emission_of(observation: Observation, size: int) -> Emission:
    """Return the object that does the EM computations for an emission distribution over ``size`` features or symbols.

    Raises:
        ValueError: if none is registered for the class of ``observation``.
    """
    raise ValueError(
        f"EM cannot fit {observation!r}; use an observation that it can fit, such as GaussianMixture or Categorical, "
        "derive yours from MomentMatching, or write its Emission (emission_of.register)"
    )


def table_of_labels(
    emission: Emission, x: Tensor, past: Tensor | None, labels: Tensor, n_states: int, n_rounds: int
) -> Tensor:
    """Return first output parameters ``(K, P)`` of K states, estimated from frames with a guessed state.

    They are the parameters of the distribution's ``starting_point`` after ``n_rounds`` M-steps in which the guessed
    states are held fixed, and in which two average frames are added to each state.

    Args:
        emission: the emission distribution.
        x: N encoded frames, ``(N, D)``, or symbols, ``(N,)``.
        past: the p frames before each frame, ``(N, p, D)``; None if the emission does not depend on them.
        labels: guessed state of each frame, ``(N,)``.
        n_states: number of states, K.
        n_rounds: number of M-steps.
    """
    start = emission.observation.starting_point(emission.size, torch.Generator().manual_seed(0))
    table = start.to(x.device, torch.float64).expand(n_states, -1)
    gamma = torch.nn.functional.one_hot(labels, n_states).double()
    for _ in range(n_rounds):
        sums = emission.statistics(table, x, past, gamma)
        table = emission.maximise(tuple(s + 2 * s.sum(0) / len(x) for s in sums), table)
    return table


def row_blocks(n_frames: int, width: int, device: torch.device, most: int = MOST_ROWS) -> Iterator[slice]:
    """Yield slices that cut ``n_frames`` frames into parts whose intermediate results fit in cache or device memory.

    Args:
        n_frames: number of frames.
        width: how many numbers are computed for each frame.
        device: on a CPU a part fits in cache, otherwise in a share of device memory.
        most: largest number of frames in a part on a CPU.
    """
    max_rows = min(IN_CACHE // width, most) if device.type == "cpu" else ON_GPU // width
    size = max(SUMMED, max_rows // SUMMED * SUMMED)
    for start in range(0, n_frames, size):
        yield slice(start, min(start + size, n_frames))


def empty_by_state(n_states: int, n_frames: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return an uninitialised array ``(n_frames, n_states)`` in column-major layout.

    Recursions over time read this layout fastest.
    """
    return torch.empty(n_states, n_frames, dtype=dtype, device=device).T


def add_sums(total: Tensor, weights: Tensor, features: Tensor) -> None:
    """Add the product ``weights @ features.T`` to ``total`` in place.

    Frames are added in short sums in the features' precision, and these in float64, so that float32 does not lose
    digits.

    Args:
        total: S sums of F features, ``(S, F)`` float64.
        weights: weight of each of n frames in each sum, ``(S, n)``.
        features: features of the frames, ``(F, n)``.
    """
    size = SUMMED if features.dtype == torch.float32 else features.shape[1]
    n_whole = features.shape[1] // size * size
    if n_whole and is_worth_onednn(weights[:, :size], features[:, :size].T):
        for start in range(0, n_whole, size):
            total.add_(linear(weights[:, start : start + size], features[:, start : start + size]))
    else:
        _add_in_parts(total, weights[:, :n_whole], features[:, :n_whole], size)
    if n_whole < features.shape[1]:
        total.add_(weights[:, n_whole:] @ features[:, n_whole:].T)


def _add_in_parts(total: Tensor, weights: Tensor, features: Tensor, size: int) -> None:
    weight_parts, feature_parts = (a.unflatten(1, (-1, size)).transpose(0, 1) for a in (weights, features))
    parts = torch.bmm(weight_parts, feature_parts.transpose(1, 2))  # (parts, S, F)
    for part in parts if len(parts) < FEW_PARTS else [parts.sum(0, dtype=torch.float64)]:
        total.add_(part)


def jitter(shape: tuple[int, ...], generator: torch.Generator, *, strong: bool) -> Tensor:
    """Return random factors that keep the states from starting alike, float64 of ``shape`` on the CPU.

    EM multiplies its first guess by them. They are uniform between 0.5 and 1.5, or if ``strong`` log-normal, most of
    them between 0.3 and 3. Many states that share a few symbols are near a saddle, which EM leaves slowly: on 0.9
    million characters with 64 states, strong noise is worth 0.1 nats a character after as many steps.
    """
    if strong:
        return torch.randn(shape, generator=generator, dtype=torch.float64).exp()
    return 0.5 + torch.rand(shape, generator=generator, dtype=torch.float64)
