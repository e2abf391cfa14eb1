"""Prediction of the next step after a prefix, and after each step of one sequence as it arrives."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from seqmodels.encodings import Encoding, OpenSymbols
from seqmodels.encodings.precision import refuse_beyond_float64, squares_exceed_float32
from seqmodels.encodings.step_maps import StepEncoder, StepMap
from seqmodels.generation.cursor import Cursor, CursorState, Prediction, single_steps, start_after
from seqmodels.generation.given_inputs import InputCursor, with_inputs
from seqmodels.generation.inputs import (
    GenerativeModel,
    decoding_affine,
    encode_inputs,
    encode_inputs_from_start,
    encode_prefix,
    encode_source,
    n_steps_of_prefix,
    step_encoder_after,
    with_enough_precision,
    with_times,
)
from seqmodels.generation.step_reader import StepReader

# Nats below which a step is checked for lost precision, because values that float32 holds well score higher.
LOWEST_UNCHECKED = -1e29


def predict_next(model: GenerativeModel, prefix: Any, source: Any, inputs: Any = None) -> Any:
    """Return a Pyro distribution over the next raw step after a prefix.

    Args:
        model: the fitted model.
        prefix: raw steps so far; None predicts the first step.
        source: raw source that the sequence is conditioned on, or None.
        inputs: for a model that reads inputs, those of the prefix and of the next step; else None.

    Raises:
        ValueError: if an argument cannot be read, or if the prefix has probability zero.
    """
    steps, encoded_source = encode_prefix(model, prefix), encode_source(model, source)
    precise = with_enough_precision(model, steps, encoded_source)
    encoder = step_encoder_after(model, prefix)
    if encoder is not None and not encoder.map.is_modelled:
        return over_raw_frames(encoder.map)
    n = n_steps_of_prefix(model, prefix, steps) + 1
    cursor = with_inputs(precise.cursor(len(steps)), encode_inputs_from_start(model, inputs, n))
    state = start_after(cursor, encoded_source, steps, 1)
    if encoder is not None:
        return over_raw_frames(encoder.map, cursor.distribution(state))
    return _over_raw_steps(model.encoding_, cursor.distribution(state).as_distribution(*decoding_affine(precise)))


def _over_raw_steps(encoding: Encoding | None, distribution: Any) -> Any:
    """Convert a Pyro distribution over encoded symbols to one over raw symbols, with the end as its last category.

    For an open alphabet, all symbols above the largest known one are one category, the last before the end. Other
    distributions are returned unchanged.

    Args:
        encoding: encoding of the model, or None.
        distribution: distribution over encoded symbols or vectors.
    """
    if not isinstance(encoding, OpenSymbols):
        return distribution
    import pyro.distributions as dist

    log_p = distribution.logits  # (K + 1,), or (K + 2,) with the end
    raw = torch.cat([encoding.raw_log_probs(log_p[: encoding.size]), log_p[encoding.size :]])
    result = dist.Categorical(logits=raw, validate_args=True)
    result.p_end = distribution.p_end
    return result


def over_raw_frames(step: StepMap, prediction: Prediction | None = None) -> Any:
    """Return the distribution of the next raw frame of a series as a Pyro distribution in float64.

    Its attribute ``p_end`` is the probability that the series ends here.

    Args:
        step: map from the raw frame to the encoded frame.
        prediction: the model's prediction of the encoded frame; None for a first frame that the encoding (such as
            differencing) consumes, which is standard normal.
    """
    import pyro.distributions as dist

    from seqmodels.observations.pyro_mixtures import PowerTransformed

    shift, scale = torch.tensor(step.shift[0]), torch.tensor(step.scale[0])
    if prediction is not None and step.cells is not None:
        return _over_cells(step, prediction)
    if prediction is None:
        result = dist.Normal(shift, scale, validate_args=True).to_event(1)
        result.p_end = 0.0
    else:
        result = prediction.as_distribution(shift, scale)
    if step.powers is None:
        return result
    raw = PowerTransformed(result, torch.tensor(step.powers))
    raw.p_end = result.p_end
    return raw


def _over_cells(step: StepMap, prediction: Prediction) -> Any:
    """Return a Pyro distribution over the next raw frame, for a model that predicts the cell in which the frame lies.

    Args:
        step: map from the raw frame to its cell, a combination of one interval of values for each feature.
        prediction: prediction of the cell.
    """
    from seqmodels.generation.pyro_cells import CellDistribution

    of_cells = prediction.as_distribution(torch.zeros(1), torch.ones(1))  # refuses a past of probability zero
    result = CellDistribution(step, prediction.cpu().log_probs(with_end=False)[0])
    result.p_end = of_cells.p_end
    return result


EncodeStep = Callable[[Any], tuple[np.ndarray, Sequence[float] | np.ndarray]]


class Stream:
    """A model reading one sequence, which returns the log-probability of each step as it arrives.

    ``SequenceModel.stream`` makes one.

    Args:
        cursor: cursor of the model.
        encode: function from a raw step to encoded steps and the log-determinant of the encoding for each, which is
            added to its log-probability.
        affine: ``(shift, scale)``: raw values are ``shift + scale · x`` for encoded x.
        source: encoded source; None if there is none.
        encoding: encoding of the model, for predictions over raw symbols; None gives predictions of encoded symbols.
        encode_after: function like ``encode`` for steps that are not the first; None uses ``encode``.
        past: P encoded steps read before the first one; None if there are none.
        filtered: function from a state of the cursor to the probabilities of hidden states; None if there are none.
        encode_inputs: function that standardises the inputs ``(U,)`` of one step; None if the model reads none.
        past_inputs: standardised inputs of the past, ``(P, U)``; None if the model reads none.
        series: for a model of series, the encoder of the next frame, and a function that returns a checked raw frame
            ``(1, D)``; else None.
    """

    def __init__(
        self,
        cursor: Cursor,
        encode: EncodeStep,
        affine: tuple[Tensor, Tensor],
        source: np.ndarray | None,
        encoding: Encoding | None = None,
        encode_after: EncodeStep | None = None,
        past: np.ndarray | None = None,
        filtered: Callable[[CursorState], np.ndarray] | None = None,
        encode_inputs: Callable[[Any], np.ndarray | None] | None = None,
        past_inputs: np.ndarray | None = None,
        series: tuple[StepEncoder, Callable[[Any], np.ndarray]] | None = None,
    ) -> None:
        self._filtered, self._encode_inputs, self._series = filtered, encode_inputs, series
        self._steps = single_steps(cursor)
        self._cursor, self._encode, self._affine, self._encoding = cursor, encode, affine, encoding
        self._encode_after = encode if encode_after is None else encode_after
        self._is_first = past is None or len(past) == 0
        if past is None:
            state = cursor.start(source, 1)
        else:
            state = start_after(with_inputs(cursor, past_inputs), source, past, 1)
            state = state if past_inputs is None else state.state
        self._at = self._steps.enter(state)

    @classmethod
    def of(cls, model: GenerativeModel, source: Any, past: Any = None, past_inputs: Any = None) -> Stream:
        """Return a stream of a fitted model, which reads a new sequence step by step.

        Args:
            model: the model.
            source: raw source that the sequence is conditioned on, or None.
            past: raw steps that precede the stream, or None.
            past_inputs: inputs of the past, or None.
        """
        encoded_source, encoded_past = encode_source(model, source), encode_prefix(model, past)
        known, n_past = None, n_steps_of_prefix(model, past, encoded_past)
        if n_past or past_inputs is not None:
            known = encode_inputs_from_start(model, past_inputs, n_past)
        precise, encoder = with_enough_precision(model, encoded_source, encoded_past), step_encoder_after(model, past)
        reader = StepReader(model)
        return cls(
            precise.cursor(),
            reader.first,
            decoding_affine(precise),
            encoded_source,
            model.encoding_,
            reader,
            encoded_past if len(encoded_past) else None,
            precise._filtered,
            partial(_inputs_of_step, model),
            known,
            None if encoder is None else (encoder, reader.frame),
        )

    @property
    def _state(self) -> CursorState:
        return self._steps.leave(self._at)

    def _given(self, inputs: Any) -> Any:
        """Return the state after all steps so far; if the model reads inputs, with those of the next step.

        Args:
            inputs: raw inputs of the next step; None if the model reads none.
        """
        encoded = None if self._encode_inputs is None else self._encode_inputs(inputs)
        if encoded is None:
            return self._at
        cursor = cast(InputCursor, self._cursor)  # inputs are given, so the model reads them
        return self._steps.enter(cursor.given(self._state, torch.as_tensor(encoded)))

    def update(self, x: Any, inputs: Any = None, *, time: Any = None) -> float:
        """Read the next step, and return its log-probability in nats given the steps read before.

        Args:
            x: the step: a frame of D features, ``(D,)``, a symbol, or a piece of text.
            inputs: for a model that reads inputs, the U inputs of this step, ``(U,)`` or a mapping by name.
            time: for a model that reads times, the time of this step; None means one step after the time before.

        Raises:
            ValueError: if the step cannot be read, or if the precision cannot hold its log-probability; the stream then
                stays as it was.
        """
        inputs = with_times(inputs, time)
        if self._series is not None:
            encoder, checked = self._series
            frame = checked(x)
            log_prob = self._update_series(encoder.map, frame, inputs)
            self._series = encoder.after(frame), checked
            return log_prob
        steps, log_dets = (self._encode if self._is_first else self._encode_after)(x)
        return self._update(steps, log_dets, inputs)

    def _update_series(self, step: StepMap, frame: np.ndarray, inputs: Any) -> float:
        """Read a raw frame of a series, and return its log-probability in nats.

        Args:
            step: map by which the frame is encoded.
            frame: the frame, ``(1, D)``.
            inputs: raw inputs of the frame; None if the model reads none.
        """
        z, log_det = step.encode(frame), step.log_det(frame)
        if step.is_modelled:
            return self._update(z, log_det, inputs)
        self._given(inputs)  # refuses missing inputs
        return float(-0.5 * np.nansum(z * z + math.log(2 * math.pi)) + log_det[0])  # NaN is missing

    def _update(self, steps: np.ndarray, log_dets: Sequence[float] | np.ndarray, inputs: Any) -> float:
        """Read the encoded steps of one raw step, and return its log-probability in nats.

        Args:
            steps: encoded steps, several for a piece of text.
            log_dets: log-determinant of the encoding for each, which is added to its log-probability.
            inputs: raw inputs of the step; None if the model reads none.
        """
        log_prob, at = 0.0, self._given(inputs)
        for step, log_det in zip(steps, log_dets, strict=True):
            after, nats = self._steps.advance(at, step)
            if not LOWEST_UNCHECKED < nats < math.inf:
                prediction = self._cursor.distribution(self._steps.leave(at))
                _refuse_unless_zero(prediction, torch.as_tensor(step).unsqueeze(0), nats)
            log_prob, at = log_prob + nats + float(log_det), after
        self._at, self._is_first = at, self._is_first and len(steps) == 0
        return log_prob

    def predict_next(self, inputs: Any = None, *, time: Any = None) -> Any:
        """Return a Pyro distribution over the next raw step, given the steps read so far.

        Its attribute ``p_end`` is the probability that the sequence ends here instead. For vectors, the distribution is
        conditioned on the sequence continuing; for symbols, the end is one more category, the last, if the model
        predicts ends.

        Args:
            inputs: for a model that reads inputs, the inputs of the next step, ``(U,)`` or a mapping by name.
            time: for a model that reads times, the time of the next step; None means one step after the time before.
        """
        if self._series is not None and not self._series[0].map.is_modelled:
            return over_raw_frames(self._series[0].map)
        prediction = self._cursor.distribution(self._steps.leave(self._given(with_times(inputs, time))))
        if self._series is not None:
            return over_raw_frames(self._series[0].map, prediction)
        return _over_raw_steps(self._encoding, prediction.as_distribution(*self._affine))

    @property
    def filtered(self) -> np.ndarray:
        """The filtered probabilities p(z_t | x_1 .. x_t) of an HMM's K states at the last step t, ``(K,)``.

        They are zeros if the sequence has probability zero.

        Raises:
            ValueError: if no step has been read, unless the model's encoding, such as differencing, has no step for
                first frames.
            AttributeError: if the model has no hidden states.

        >>> from seqmodels import HMM
        >>> model = HMM.from_parameters([0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]], emission=[[0.9, 0.1], [0.2, 0.8]])
        >>> stream = model.stream()
        >>> for symbol in (0, 0, 1):
        ...     _ = stream.update(symbol)
        >>> stream.filtered.round(2)
        array([0.43, 0.57])
        """
        if self._filtered is None:
            raise AttributeError("this stream has no model whose states could be filtered; make it with HMM.stream()")
        return self._filtered(self._state)

    def log_end(self) -> float:
        """Return the log-probability in nats that the sequence ends after the steps read so far.

        Raises:
            ValueError: if the model was fitted with ``length="given"``, and so predicts no ends.
        """
        log_end = self._cursor.distribution(self._state).log_end
        if log_end is None:
            raise ValueError('the model was fitted with length="given", so ends have no probability')
        return float(log_end)


def _inputs_of_step(model: GenerativeModel, inputs: Any) -> np.ndarray | None:
    """Return the U standardised inputs of one step, ``(1, U)``; None for a model that reads none.

    Args:
        model: the fitted model.
        inputs: raw inputs of the step, ``(U,)`` or a mapping by name.
    """
    if inputs is not None and isinstance(inputs, Mapping):
        inputs = {name: [value] for name, value in inputs.items()}
    elif inputs is not None:
        inputs = np.atleast_1d(np.asarray(inputs))[None]
    return encode_inputs(model, inputs, 1)


def _refuse_unless_zero(prediction: Prediction, value: Tensor, nats: float) -> None:
    """Check that a very low, infinite or NaN log-probability of a step is not caused by overflow.

    Args:
        prediction: prediction of the step.
        value: the step.
        nats: its log-probability.

    Raises:
        ValueError: if it is caused by overflow.
    """
    step = value.cpu().numpy()  # (1, D) or (1,)
    refuse_beyond_float64(step, "the step")
    in_float32 = prediction.output_parameters.dtype == torch.float32
    lost = math.isnan(nats) or nats == math.inf or (in_float32 and squares_exceed_float32(step))
    if not lost and prediction.observation.emits == "vectors":
        log_prob = prediction.log_prob_by_component(value.to(prediction.output_parameters.device))
        lost = not bool(torch.isfinite(log_prob).all())  # in every state, whatever its probability
    if lost:
        way_out = "set_params(dtype='float64') and begin a new stream, or rescale it" if in_float32 else "rescale it"
        raise ValueError(
            f"the step has a log-probability that {'float32' if in_float32 else 'float64'} cannot hold; {way_out}"
        )
