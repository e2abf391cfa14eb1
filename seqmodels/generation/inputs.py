"""Encoding of raw prefixes, sources and inputs for a cursor, and the interface of a model that generation needs."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sized
from dataclasses import replace
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor

from seqmodels.common.main_memory import refuse_beyond_memory
from seqmodels.encodings import Encoding
from seqmodels.encodings.aligned_targets import n_steps_left
from seqmodels.encodings.examples import Example, TargetLengths
from seqmodels.encodings.inputs import TIME, InputScaling
from seqmodels.encodings.precision import in_float64, refuse_beyond_float64, squares_exceed_float32
from seqmodels.encodings.raw_data import Data
from seqmodels.encodings.raw_to_examples import Setting
from seqmodels.encodings.series import SeriesEncoding
from seqmodels.encodings.step_maps import StepEncoder, as_frames
from seqmodels.generation.cursor import Cursor, CursorState, MergedStates
from seqmodels.sequences import Sequences
from seqmodels.sequences.items import as_array
from seqmodels.sequences.measure import Length, Measure

DEFAULT_MAX_LENGTH = 1000  # steps, if the lengths of the fit's targets are not known


class GenerativeModel(Protocol):
    """The interface of a fitted model that sampling, search and forecasts need; every ``SequenceModel`` has it.

    Attributes:
        encoding_: fitted encoding of the sequences that are generated (the targets of a model of p(y | x)).
        source_encoding_: fitted encoding of the sources; None if they are not read.
        measure_: what the model's log-probabilities are about, such as whether it is a model of p(y | x).
        length_: ``"stop"`` if the model predicts the ends of sequences, ``"given"`` if it does not.
        target_lengths_: lengths of the targets of the fit; None if they are not known.
        random_state: default seed of draws.
        dtype: precision that the model was made with.
        device: device that the model was made with.
    """

    encoding_: Encoding
    source_encoding_: Encoding | None
    measure_: Measure
    length_: Length
    target_lengths_: TargetLengths | None
    random_state: int
    dtype: str
    device: str
    _is_tagger: ClassVar[bool]
    _pads_sources: ClassVar[bool]

    @property
    def dtype_(self) -> str:
        """The precision in which the model computes, ``"float32"`` or ``"float64"``."""

    @property
    def _input_scaling(self) -> InputScaling | None:
        """The standardisation of the inputs that the model reads; None if it reads none."""

    def cursor(self, n_steps: int | None = None) -> Cursor:
        """Return a cursor, which runs the model step by step: it predicts the next step and then reads it.

        Args:
            n_steps: about how many steps will be taken, so that the work can be prepared; None means many.
        """

    def log_prob(self, X: Any, y: Any = None) -> np.ndarray:
        """Return the log-probability of each of n raw sequences in nats, ``(n,)``.

        Args:
            X: the sequences or, for a model of p(y | x), the sources.
            y: the targets, for a model of p(y | x); else None.
        """

    def _steps(self, examples: list[Example]) -> list[np.ndarray]:
        """Return the log-probability of each of the S steps of each encoded sequence, ``(S,)`` float64, in nats.

        Each is conditioned on the steps before it.
        """

    def _most_probable_targets(self, sources: list[np.ndarray | None]) -> list[np.ndarray] | None:
        """Return the most probable target of each encoded source; None if it can only be found by a search."""

    def _merge_states(self, log_weights: list[float], states: list[CursorState]) -> MergedStates:
        """Group partial sequences whose states one state can replace without changing the probability of a future.

        Args:
            log_weights: logarithm of the weight of each partial sequence.
            states: state of the cursor after each of them.

        Returns:
            For each group, the indices of its partial sequences and the state that replaces theirs.
        """

    def _filtered(self, state: CursorState) -> np.ndarray:
        """Return the probabilities of K hidden states given the steps read so far, ``(K,)``.

        Args:
            state: state of the model's cursor, for one sequence.

        Raises:
            AttributeError: the model has no hidden states.
            ValueError: no step has been read.
        """

    def _reads_missing(self) -> bool:
        """Return True if the model can read missing values, which it sums out."""

    def _setting(self) -> Setting:
        """Return the encodings, the observation and the measure of the fitted model as one value.

        Raises:
            NotFittedError: if the model is not fitted.
        """

    def _device(self) -> torch.device:
        """Return the device on which the model computes."""


def encode_prefix(model: GenerativeModel, item: Any) -> np.ndarray:
    """Encode a raw prefix, the known beginning of a sequence, and return its P steps.

    Args:
        model: the fitted model.
        item: the raw prefix, one sequence of the kind that the model was fitted on; None for none.

    Returns:
        The encoded steps, symbols ``(P,)`` or vectors ``(P, D)``; P is 0 for None or an empty prefix.

    Raises:
        ValueError: if the model cannot read the prefix.
    """
    setting, encoding = model._setting(), model.encoding_
    if item is None or (isinstance(item, Sized) and len(item) == 0):
        if encoding.emits == "vectors":
            return np.zeros((0, encoding.size), dtype=np.float64)
        return np.zeros(0, dtype=np.int64)
    if isinstance(item, Sequences):
        raise ValueError(
            "the prefix is Sequences; pass one of them, X[0], and its times and inputs beside it (times=, inputs=)"
        )
    sequences = Sequences([item])
    # Inputs are left out here, because encode_inputs checks them.
    replace(setting, inputs=None).check(Data.of(sequences), model._reads_missing(), is_prefix=True)
    return encoding.encode(sequences.items[0])


def step_encoder_after(model: GenerativeModel, prefix: Any) -> StepEncoder | None:
    """Return the state of a model's encoding after a raw prefix, which maps the next frame to an encoded step.

    Return None if the encoding of a step does not depend on the steps before it.

    Args:
        model: the fitted model.
        prefix: raw prefix, or None.
    """
    if not isinstance(model.encoding_, SeriesEncoding):
        return None
    return model.encoding_.step_encoder(raw_frames(model, prefix))


def raw_frames(model: GenerativeModel, prefix: Any) -> np.ndarray:
    """Return the P frames of a raw prefix of vectors of D features as an array, ``(P, D)`` float64.

    Args:
        model: the fitted model.
        prefix: raw prefix; P is 0 if it is None or empty.
    """
    if prefix is None or len(prefix) == 0:
        return np.zeros((0, model.encoding_.n_features))
    return as_frames(Sequences([prefix]).items[0])


def encode_source(model: GenerativeModel, source: Any) -> np.ndarray | None:
    """Encode a raw source, and return its S steps, symbols ``(S,)`` or vectors ``(S, D)``.

    Args:
        model: the fitted model.
        source: the raw source that a target is conditioned on; None for a model of p(x).

    Returns:
        The encoded steps; None if the model reads no sources or ignores them.

    Raises:
        ValueError: if the source is missing, if the model has no sources, or if it cannot read this one.
    """
    setting = model._setting()
    if (source is not None) != setting.measure.conditional:
        expected = "p(y | x): pass source=" if setting.measure.conditional else "p(x): leave source out"
        raise ValueError(f"the model was fitted as {expected}")
    encoding = model.source_encoding_
    if source is None or encoding is None:
        return None
    sequences = Sequences([source])
    setting.check_sources(sequences, model._reads_missing())
    return encoding.encode(sequences.items[0])


def encode_inputs(model: GenerativeModel, inputs: Any, n: int | None) -> np.ndarray | None:
    """Return the U standardised inputs of n steps, ``(n, U)``; None for a model that reads no inputs.

    Args:
        model: the fitted model.
        inputs: raw inputs, as an array ``(n, U)`` or a mapping by name; None if the model reads none.
        n: number of steps; None takes it from the inputs.

    Raises:
        ValueError: if inputs are missing, or if the model does not read them.
    """
    scaling = model._input_scaling
    if scaling is not None:
        return scaling.encode_steps(inputs, n)
    if isinstance(inputs, Mapping) and list(inputs) == [TIME]:
        raise ValueError("the model reads no times; leave times out")
    if inputs is not None:
        raise ValueError("the model reads no inputs; leave inputs out")
    return None


def encode_inputs_from_start(model: GenerativeModel, inputs: Any, n: int | None) -> np.ndarray | None:
    """Return the U standardised inputs of the encoded steps of a sequence, given those of its first n raw steps.

    An encoding such as differencing has no encoded step for the first F frames, whose inputs are left out. F is 0 for
    other encodings.

    Args:
        model: the fitted model.
        inputs: raw inputs of the n raw steps, as an array or by name; None if the model reads none.
        n: number of raw steps; None takes it from the inputs.

    Returns:
        The inputs, ``(n - F, U)``; None for a model that reads none.

    Raises:
        ValueError: if inputs are missing, or if the model does not read them.
    """
    encoded = encode_inputs(model, inputs, n)
    return None if encoded is None else encoded[model._setting().n_initial :]


def n_steps_of_prefix(model: GenerativeModel, prefix: Any, encoded: np.ndarray) -> int:
    """Return the number of steps of a prefix that have inputs of their own.

    For a model whose encoding may difference frames these are the raw frames, and otherwise the encoded steps.

    Args:
        model: the fitted model.
        prefix: raw prefix, or None.
        encoded: its encoded steps.
    """
    return len(raw_frames(model, prefix)) if isinstance(model.encoding_, SeriesEncoding) else len(encoded)


def with_times(inputs: Any, times: Any) -> Any:
    """Return inputs by name with ``times`` added to them as one more input.

    Args:
        inputs: mapping or data frame from names to values; None if there are no other inputs.
        times: times of the same steps; None returns ``inputs`` unchanged.

    Raises:
        ValueError: if there are inputs that are not given by name.
    """
    if times is None:
        return inputs
    if inputs is None:
        return {TIME: times}
    if isinstance(inputs, Mapping) or hasattr(inputs, "columns"):
        return {**{name: inputs[name] for name in inputs}, TIME: times}
    raise ValueError("times go beside inputs by name; pass inputs= as a mapping from names to values")


def raw_step(model: GenerativeModel, x: Any) -> Any:
    """Return one raw step as a sequence of length one, which an encoding can read.

    Args:
        model: the fitted model.
        x: a frame, a symbol or a piece of text; masked values become NaN.
    """
    if isinstance(x, str) and model.encoding_.reads == "symbols":
        x = np.array(x, dtype=object)
    item = x if isinstance(x, str) else as_array(0, x)[None]
    if not isinstance(item, str) and np.ma.is_masked(item):
        item = np.ma.filled(item.astype(np.float64), np.nan)
    return item


def numpy_generator(generator: torch.Generator) -> np.random.Generator:
    """Return a NumPy generator seeded from the seed and the state of a torch generator, which is not advanced."""
    return np.random.default_rng([generator.initial_seed(), zlib.crc32(generator.get_state().numpy().tobytes())])


def decoding_affine(model: GenerativeModel) -> tuple[Tensor, Tensor]:
    """Return the map from the D encoded features x to raw values, ``shift + scale · x``, as ``(shift, scale)``.

    Both are tensors ``(D,)`` in the precision of the model.
    """
    dtype = getattr(torch, model.dtype_)
    shift, scale = (torch.as_tensor(values, dtype=dtype) for values in model.encoding_.affine())
    return shift, scale


def n_new_steps(model: GenerativeModel, length: int | None, source: np.ndarray | None, n_prefix: int) -> int | None:
    """Return the number of steps to generate after a prefix; None if they are drawn until the model predicts the end.

    Args:
        model: the fitted model.
        length: number of steps that was asked for, or None. For a tagger the source determines it.
        source: encoded source, or None.
        n_prefix: number of steps of the prefix.

    Raises:
        ValueError: if ``length`` is not a number of steps, if it differs from what the source leaves, or if it is None
            and the model predicts no ends.
    """
    if not (length is None or (isinstance(length, int | np.integer) and length >= 0)):
        raise ValueError(f"length is {length!r}; pass a number of steps")
    refuse_beyond_memory(f"a sequence of {length} steps", 8.0 * (length or 0), "pass a smaller length")
    if model._is_tagger and source is not None:
        return n_steps_left(source, n_prefix, length)
    if length is None and model.length_ == "given":
        raise ValueError('the model was fitted with length="given", so it has no ends; pass length=')
    return length


def most_steps(model: GenerativeModel, max_length: int | None, n_source: int) -> int:
    """Return the largest number of steps of a target that a search tries.

    Args:
        model: the fitted model.
        max_length: that number; None takes a bound that was learned from the lengths of targets in training.
        n_source: number of steps of the source.
    """
    if max_length is not None:
        return max_length
    lengths = model.target_lengths_
    return DEFAULT_MAX_LENGTH if lengths is None else lengths.max_steps(n_source)


def with_enough_precision(model: GenerativeModel, *encoded: np.ndarray | None) -> GenerativeModel:
    """Return the model, or a copy that computes in float64 if float32 cannot hold the squares of given values.

    Args:
        model: the fitted model.
        encoded: arrays of encoded values that the model will read; None is skipped.

    Raises:
        ValueError: if float64 cannot hold them either.
    """
    large = [values for values in encoded if values is not None and squares_exceed_float32(values)]
    for values in large:
        refuse_beyond_float64(values, "what comes before")
    return in_float64(model) if large else model
