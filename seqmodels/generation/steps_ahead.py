"""The distribution of each of the next k steps of sequences, and paths through these steps.

``p(x_T+h | x_1 .. x_T) = E[p(x_T+h | x_1 .. x_T+h-1)]``, where the expectation is over the steps between. It is exact
if the model knows it in closed form. Otherwise it is the mean, over n paths, of the prediction of step h after the
first h - 1 steps of each path. One step ahead it is exact for every model, because there are no steps between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqmodels.encodings import Encoding
from seqmodels.encodings.cells import shares_within
from seqmodels.encodings.examples import Example
from seqmodels.encodings.series import SeriesEncoding
from seqmodels.encodings.step_maps import StepEncoder, StepMap, as_frames, repeated
from seqmodels.generation.cursor import ClosedFormCursor, Cursor, CursorState, Prediction, read_steps
from seqmodels.generation.decoding import ANCESTRAL, draw
from seqmodels.generation.feature_distributions import FeatureDistributions
from seqmodels.generation.given_inputs import with_inputs
from seqmodels.generation.inputs import GenerativeModel, numpy_generator, with_enough_precision
from seqmodels.generation.predicted_features import feature_distributions, features_of_draws, mixtures_of_steps
from seqmodels.observations import GaussianMixture, Observation

ROWS_AT_ONCE = 4096  # paths that are drawn together
SEQUENCES_AT_ONCE = 64  # sequences that are read together

StepDistribution = FeatureDistributions | np.ndarray  # distribution of a vector, or probabilities (V,) of symbols


@dataclass(frozen=True)
class Paths:
    """Simulated paths of one sequence: n joint draws of its next k steps.

    Attributes:
        x: steps as the model reads them, vectors of D features, ``(n, k, D)``, or symbols, ``(n, k)``; meaningless
            after the end of a path.
        lasts: bool ``(n, k)``, True if the path has the step.
        is_raw: True if ``x`` are raw vectors instead.
    """

    x: np.ndarray
    lasts: np.ndarray
    is_raw: bool = False

    def raw_vectors(self, encoding: Encoding) -> np.ndarray:
        """Return the paths of vectors in raw units, ``(n, k, D)``, with NaN after the end of a path.

        Args:
            encoding: encoding of the model, which converts vectors to raw units.
        """
        x = self.x if self.is_raw else np.asarray(encoding.decode(self.x))
        return np.where(self.lasts[..., None], x, np.nan)


@dataclass(frozen=True)
class Ahead:
    """The predicted distributions of the next k steps of one sequence after its first ``origin`` steps.

    Attributes:
        sequence: index of the sequence.
        origin: number of known steps.
        survival: probability that there are at least h more steps, for h = 1 to k, ``(k,)``; ones if the model predicts
            no ends.
        steps: distribution of each step given that it exists, of the features in raw units or as probabilities of
            symbols; None if it cannot exist.
        exact: bool ``(k,)``, True if the distribution is in closed form, False if it is a mean over paths.
        draw_paths: function that returns simulated paths of the sequence; if distributions were computed from paths, it
            returns these.
    """

    sequence: int
    origin: int
    survival: np.ndarray
    steps: list[StepDistribution | None]
    exact: np.ndarray
    draw_paths: Callable[[], Paths]


@torch.inference_mode()
def ahead_of(
    model: GenerativeModel,
    examples: Sequence[Example],
    origins: Sequence[Sequence[int]],
    k: int,
    n: int,
    seed: int,
    frames: Sequence[Any] = (),
) -> Iterator[Ahead]:
    """Yield the predicted distributions of the next k steps of each example after given numbers of known steps.

    These numbers are the origins of the forecasts. Each example is read once, however many origins it has. Results are
    labelled by example and origin; they do not come in the order of the examples.

    Args:
        model: fitted model that is not a tagger.
        examples: encoded sequences.
        origins: for each example, the numbers of its first steps (frames for a series) that are known; at least 1.
        k: number of steps ahead.
        n: number of simulated paths if there is no closed form.
        seed: seed of the draws.
        frames: for a series, the raw frames of each example including its past.

    Raises:
        ValueError: if the known steps of a sequence have probability zero (the message names it), or if an origin is
            among the first frames of a series that its encoding consumes.
    """
    if isinstance(model.encoding_, SeriesEncoding):
        yield from _ahead_of_series(model, model.encoding_, examples, origins, k, n, seed, frames)
        return
    generator = torch.Generator(model._device()).manual_seed(seed)
    encoded = [values for e in examples for values in (e.values, e.source) if values is not None]
    cursor = with_enough_precision(model, *encoded).cursor()
    time_column = None if model._input_scaling is None else model._input_scaling.time_column
    sampler = Sampler(cursor, k, n, generator, _affine(model), may_end=model.length_ == "stop", time_column=time_column)
    for group in _read_together(model, examples):
        yield from _after_origins(sampler, [examples[i] for i in group], [origins[i] for i in group], group)


def _ahead_of_series(
    model: GenerativeModel,
    encoding: SeriesEncoding,
    examples: Sequence[Example],
    origins: Sequence[Sequence[int]],
    k: int,
    n: int,
    seed: int,
    frames: Sequence[Any],
) -> Iterator[Ahead]:
    """Yield the predicted distributions of the next k frames of each series after given numbers of known frames.

    A series is a sequence of frames of which the model's encoding consumes the first ones, as differencing does.
    Results come example by example.

    Args:
        model: fitted model that is not a tagger.
        encoding: the model's encoding.
        examples: encoded series.
        origins: for each series, the numbers of its first raw frames that are known.
        k: number of steps ahead.
        n: number of simulated paths if there is no closed form.
        seed: seed of the draws.
        frames: the raw frames of each series including its past.

    Raises:
        ValueError: if an origin is among the first frames that the encoding consumes.
    """
    generator = torch.Generator(model._device()).manual_seed(seed)
    cursor = with_enough_precision(model, *(e.values for e in examples)).cursor()
    n_features = encoding.n_features
    affine = torch.zeros(n_features, dtype=torch.float64), torch.ones(n_features, dtype=torch.float64)
    sampler = Sampler(cursor, k, n, generator, affine, may_end=model.length_ == "stop")
    for i, (example, each) in enumerate(zip(examples, origins, strict=True)):
        n_read = [max(0, t - encoding.n_initial) for t in each]
        of_example = replace(sampler, cursor=with_inputs(cursor, _inputs_together([example], [n_read], k, [i], None)))
        known, state, before = as_frames(frames[i]), of_example.cursor.start(None, 1), 0
        for t in sorted(set(each)):
            if t < encoding.n_initial:
                raise ValueError(
                    f"{t} frames of sequence {i} are given, but {encoding!r} takes no difference of the first "
                    f"{encoding.n_initial}; give at least {encoding.n_initial}"
                )
            x = torch.as_tensor(np.asarray(example.values[before : t - encoding.n_initial]))[None]
            state, before = read_steps(of_example.cursor, state, x), t - encoding.n_initial
            series = ContinuedSeries(encoding.step_encoder(known[:t]), encoding.has_constant_map)
            yield from replace(of_example, series=series).ahead(state, [i], t)


def _affine(model: GenerativeModel) -> tuple[Tensor, Tensor]:
    shift, scale = (torch.as_tensor(each, dtype=torch.float64) for each in model.encoding_.affine())
    return shift.to(model._device()), scale.to(model._device())


def _read_together(model: GenerativeModel, examples: Sequence[Example]) -> list[list[int]]:
    """Return groups of indices of examples that can be read as one batch, at most ``SEQUENCES_AT_ONCE`` each.

    The sources in a group have equal lengths, unless the model pads sources. Short examples come first.

    Args:
        model: the fitted model.
        examples: the encoded sequences.
    """
    lengths = [0 if e.source is None or model._pads_sources else len(e.source) for e in examples]
    groups: dict[int, list[int]] = {}
    for i in sorted(range(len(examples)), key=lambda i: len(examples[i].values)):
        groups.setdefault(lengths[i], []).append(i)
    return [g[a : a + SEQUENCES_AT_ONCE] for g in groups.values() for a in range(0, len(g), SEQUENCES_AT_ONCE)]


def _after_origins(
    sampler: Sampler, examples: list[Example], origins: list[Sequence[int]], numbers: list[int]
) -> Iterator[Ahead]:
    """Yield the predicted distributions of the steps ahead of examples that are read as one batch.

    Args:
        sampler: computes the distributions from a state.
        examples: the m examples.
        origins: for each example, the numbers of its first steps that are known.
        numbers: index of each example among all, by which results are labelled.
    """
    sources = [e.source for e in examples if e.source is not None]
    inputs = _inputs_together(examples, origins, sampler.k, numbers, sampler.time_column)
    sampler = replace(sampler, cursor=with_inputs(sampler.cursor, inputs))
    state = sampler.cursor.start(sources or None, len(examples))
    values = [np.asarray(e.values[: max(each, default=1)]) for e, each in zip(examples, origins, strict=True)]
    longest = max(map(len, values))
    padded = [np.concatenate([v, np.repeat(v[-1:], longest - len(v), axis=0)]) for v in values]
    x, before = torch.as_tensor(np.stack(padded)), 0  # (m, T, ...)
    for t in sorted({t for each in origins for t in each}):
        state, before = read_steps(sampler.cursor, state, x[:, before:t]), t
        here = [i for i, each in enumerate(origins) if t in each]
        size = max(1, ROWS_AT_ONCE // sampler.n)
        for a in range(0, len(here), size):
            part = here[a : a + size]
            selected = sampler.cursor.select(state, torch.tensor(part, device=sampler.generator.device))
            yield from sampler.ahead(selected, [numbers[i] for i in part], t)


def _inputs_together(
    examples: list[Example], origins: list[Sequence[int]], k: int, numbers: list[int], time_column: int | None
) -> np.ndarray | None:
    """Return the U standardised inputs of m examples as one array, ``(m, T + k, U)``; None if the model reads none.

    Shorter ones are padded with their last inputs.

    Args:
        examples: examples with the inputs of all steps, including the k steps ahead.
        origins: for each example, the numbers of its first steps that are known; T is the largest of all.
        k: number of steps ahead.
        numbers: index of each example, for errors.
        time_column: index of the input that is the times, which are padded with NaN, meaning one step after the time
            before; None if there is none.

    Raises:
        ValueError: if inputs of the steps ahead are missing.
    """
    each, n_steps = [e.inputs for e in examples if e.inputs is not None], [max(o, default=1) + k for o in origins]
    if not each:
        return None
    for number, inputs, n in zip(numbers, each, n_steps, strict=True):
        if len(inputs) < n:
            raise ValueError(
                f"the model reads inputs, but for sequence {number} those of {n - len(inputs)} of the {k} steps ahead "
                "are not known; pass inputs=, a list with the inputs of the steps ahead of each sequence"
            )
    longest = max(n_steps)
    cut = [inputs[:longest] for inputs in each]
    padded = np.stack([np.concatenate([u, np.repeat(u[-1:], longest - len(u), axis=0)]) for u in cut])
    if time_column is not None:
        is_padding = np.arange(longest) >= np.array(list(map(len, cut)))[:, None]
        padded[is_padding, time_column] = np.nan
    return padded


@dataclass(frozen=True)
class ContinuedSeries:
    """The state of an encoding that depends on earlier frames, such as differencing, for a sequence that is continued.

    Attributes:
        encoder: map from the next raw frame to an encoded step, and its changes with further frames.
        has_constant_map: True if all further frames are encoded by the same affine map.
    """

    encoder: StepEncoder
    has_constant_map: bool


class PathStep(NamedTuple):
    """One step of n simulated paths of each of m sequences.

    Attributes:
        prediction: prediction of the step for the m · n paths.
        x: the drawn steps, as the model reads them, or raw for a series: vectors of D features, ``(m n, D)``, or
            symbols, ``(m n,)``.
        lasts: bool ``(m n,)``, True if the path has the step.
        map: for a series, the map by which the step of each path is encoded; else None.
    """

    prediction: Prediction
    x: np.ndarray
    lasts: np.ndarray
    map: StepMap | None


@dataclass(frozen=True)
class Sampler:
    """A forecaster of the next k steps of sequences from a state of the cursor, in closed form or by simulated paths.

    Attributes:
        cursor: cursor of the model.
        k: number of steps ahead.
        n: number of simulated paths of each sequence.
        generator: generator of the draws.
        affine: ``(shift, scale)``: raw values are ``shift + scale · x`` for encoded x, float64.
        may_end: True if the model predicts ends.
        series: for a single sequence of a model of series, the state of its encoding; None if ``affine`` holds for all
            steps.
        time_column: index of the input that is the times of steps; None if there is none.
    """

    cursor: Cursor
    k: int
    n: int
    generator: torch.Generator
    affine: tuple[Tensor, Tensor]
    may_end: bool
    series: ContinuedSeries | None = None
    time_column: int | None = None

    def ahead(self, state: CursorState, numbers: list[int], origin: int) -> Iterator[Ahead]:
        """Yield the predicted distributions of the next k steps of each of the m sequences of a state.

        Args:
            state: state of the cursor after the known steps.
            numbers: indices of the sequences, by which the results are labelled.
            origin: number of known steps, by which they are labelled too.

        Raises:
            ValueError: if a sequence has probability zero.
        """
        first = self.cursor.distribution(state)
        _refuse_impossible(first, numbers)
        closed = self._in_closed_form(state, first)
        if closed is None:
            yield from self._sampled(state, first, numbers, origin)
            return
        ones = np.ones((len(numbers), 1))
        survival = np.cumprod([self._p_continue(p) for p in closed], axis=0)  # (k, m)
        step = None if self.series is None else self.series.encoder.map
        steps = self._of_gaussians(closed, survival, step)
        if steps is None:
            steps = [self._mixtures(p, ones * lasts[:, None], step) for p, lasts in zip(closed, survival, strict=True)]
        draw_all = cache(partial(self._draw, state, len(numbers)))
        for i, number in enumerate(numbers):
            of_sequence, exact = [each[i] for each in steps], np.ones(self.k, dtype=bool)
            yield Ahead(number, origin, survival[:, i], of_sequence, exact, partial(_one, draw_all, i))

    def _of_gaussians(
        self, closed: list[Prediction], survival: np.ndarray, step: StepMap | None
    ) -> list[list[StepDistribution | None]] | None:
        """Return the distributions of k steps for each of m sequences, if all are mixtures of Gaussians; else None.

        Args:
            closed: predictions of the k steps in closed form.
            survival: probability that each sequence has each step, ``(k, m)``.
            step: for a series, the map by which steps are encoded; else None.
        """
        mixtures = mixtures_of_steps(closed, *self.affine, step)
        if mixtures is None:
            return None
        return [
            [each if lasts > 0 else None for each, lasts in zip(*of_step, strict=True)]
            for of_step in zip(mixtures, survival, strict=True)
        ]

    def _in_closed_form(self, state: CursorState, first: Prediction) -> list[Prediction] | None:
        if not isinstance(self.cursor, ClosedFormCursor) or not self._has_cdf(first):
            return None
        if self.series is not None and not self.series.has_constant_map:
            return None
        return self.cursor.predictions_ahead(state, self.k)

    def _has_cdf(self, prediction: Prediction) -> bool:
        """Return True if the distribution of each feature of a predicted step is known in closed form."""
        if prediction.observation.emits == "symbols" or type(prediction.observation) is GaussianMixture:
            return True
        usable = np.flatnonzero(~prediction.has_no_next_step.cpu().numpy())
        rows = slice(usable[0], usable[0] + 1) if len(usable) else slice(0, 1)
        return feature_distributions(prediction, rows, np.ones(1), *self.affine) is not None

    def _mixtures(
        self, prediction: Prediction, weights: np.ndarray, step: StepMap | None
    ) -> list[StepDistribution | None]:
        """Return for each of m sequences the distribution of a step as a mixture of the predictions for its r paths.

        Args:
            prediction: prediction of the step for the m · r paths.
            weights: weights of the paths, ``(m, r)``.
            step: for a series, the map by which its frames are encoded; else None.

        Returns:
            ``FeatureDistributions`` for vectors, probabilities of V symbols, ``(V,)``, for symbols, and None if all
            weights are zero.
        """
        m, r = weights.shape
        if prediction.observation.emits == "vectors" or (step is not None and step.cells is not None):
            return [
                feature_distributions(prediction, slice(i * r, (i + 1) * r), weights[i], *self.affine, step)
                if weights[i].any()
                else None
                for i in range(m)
            ]
        probabilities = prediction.log_probs(with_end=False).exp().cpu().numpy().reshape(m, r, -1)
        probabilities = np.where(weights[..., None] > 0, probabilities, 0.0)
        sums = np.einsum("mr,mrv->mv", weights, probabilities)
        return [row / w.sum() if w.any() else None for row, w in zip(sums, weights, strict=True)]

    def _p_continue(self, prediction: Prediction) -> np.ndarray:
        """Return the probability of a next step for each of the N sequences or paths of a prediction, ``(N,)``."""
        n = len(prediction.output_parameters)
        if not self.may_end:
            return np.ones(n)
        return np.broadcast_to(torch.as_tensor(prediction.log_continue).double().exp().cpu().numpy(), n)

    def _paths(self, state: CursorState, m: int) -> Iterator[PathStep]:
        """Simulate n paths of k steps for each of m sequences, and yield them step by step.

        Args:
            state: state of the cursor after the known steps of the m sequences.
            m: number of sequences.
        """
        encoder = None if self.series is None else repeated(self.series.encoder, m * self.n)
        index = torch.arange(m, device=self.generator.device).repeat_interleave(self.n)
        state, lasts = self.cursor.select(state, index), np.ones(m * self.n, dtype=bool)
        rng = numpy_generator(self.generator)
        for h in range(self.k):
            prediction = self.cursor.distribution(state)
            drawn = draw(prediction, ANCESTRAL, self.generator, may_end=self.may_end)
            if drawn.ended is not None:
                lasts = lasts & ~drawn.ended.cpu().numpy()
            x, step = drawn.x.cpu().numpy(), None
            if encoder is not None:
                step = encoder.map
                size = len(x), len(step.shift[0])
                x = step.decode(x, None if step.cells is None else shares_within(rng, size))
                encoder = encoder.after(x)
            yield PathStep(prediction, x, lasts, step)
            if h + 1 < self.k:
                state = self.cursor.advance(state, drawn.x)

    def _draw(self, state: CursorState, m: int) -> list[Paths]:
        with torch.inference_mode():
            steps = [(step.x, step.lasts) for step in self._paths(state, m)]
        return self._by_sequence(steps, m)

    def _by_sequence(self, steps: list[tuple[np.ndarray, np.ndarray]], m: int) -> list[Paths]:
        x, lasts = (np.stack([step[j] for step in steps], axis=1) for j in range(2))  # (m n, k, ...)
        rows = [slice(i * self.n, (i + 1) * self.n) for i in range(m)]
        return [Paths(x[each], lasts[each], is_raw=self.series is not None) for each in rows]

    def _sampled(self, state: CursorState, first: Prediction, numbers: list[int], origin: int) -> Iterator[Ahead]:
        """Yield the predicted distributions of the next k steps of each of m sequences, as means over simulated paths.

        Args:
            state: state of the cursor after the known steps.
            first: prediction of the first step, which is exact if its cdf has a closed form.
            numbers: indices of the sequences, by which the results are labelled.
            origin: number of known steps, by which they are labelled too.
        """
        m, has_cdf = len(numbers), self._has_cdf(first)
        drawn, survival, steps = [], [], []
        before = np.ones((m, self.n), dtype=bool)
        for h, (prediction, x, lasts, step) in enumerate(self._paths(state, m)):
            drawn.append((x, lasts))
            weights = before * self._p_continue(prediction).reshape(m, self.n)
            survival.append(weights.mean(1))
            if not has_cdf:
                steps.append(self._empirical(prediction.observation, *drawn[-1], m))
            elif h == 0:
                at_first = None if self.series is None else self.series.encoder.map
                steps.append(self._mixtures(first, weights[:, :1], at_first))
            else:
                steps.append(self._mixtures(prediction, weights, step))
            before = lasts.reshape(m, self.n)
        paths, exact = self._by_sequence(drawn, m), np.arange(self.k) < int(has_cdf)
        for i, number in enumerate(numbers):
            lasting, of_sequence = np.array([p[i] for p in survival]), [each[i] for each in steps]
            yield Ahead(number, origin, lasting, of_sequence, exact, partial(paths.__getitem__, i))

    def _empirical(
        self, observation: Observation, x: np.ndarray, lasts: np.ndarray, m: int
    ) -> list[StepDistribution | None]:
        """Return the empirical distribution of the draws of one step for each of m sequences; None without draws.

        Args:
            observation: the model's observation, which knows which of the D features are angles.
            x: draws of n paths of each sequence, ``(m n, D)``.
            lasts: bool ``(m n,)``, True if the path has the step.
            m: number of sequences.
        """
        # For a series x is raw, and the affine map is the identity.
        shift, scale = (each.cpu().numpy() for each in self.affine)
        raw, lasts = shift + scale * x.reshape(m, self.n, -1), lasts.reshape(m, self.n)
        are_angles = [value == "angles" for value in observation.values(raw.shape[-1])]
        return [
            features_of_draws(each[kept], are_angles) if kept.any() else None
            for each, kept in zip(raw, lasts, strict=True)
        ]


def _one(draw_all: Callable[[], list[Paths]], i: int) -> Paths:
    return draw_all()[i]


def _refuse_impossible(prediction: Prediction, numbers: list[int]) -> None:
    """Check that each sequence can continue or end.

    Args:
        prediction: prediction of the next step of the sequences.
        numbers: indices of the sequences, for the message.

    Raises:
        ValueError: if a sequence can neither continue nor end.
    """
    impossible = prediction.has_no_next_step
    if prediction.log_end is not None:
        impossible = impossible & torch.isneginf(prediction.log_end)
    if bool(impossible.any()):
        number = numbers[int(impossible.nonzero()[0])]
        raise ValueError(f"sequence {number} has probability zero under this model, so it has no forecast")
