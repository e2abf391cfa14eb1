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
    """The interface of a fitted model that generation needs; every ``SequenceModel`` has it."""

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
        """Return the model as a chain of one-step predictions.

        ``n_steps`` is about how many steps will be taken, so that the work can be prepared; None means many.
        """

    def log_prob(self, X: Any, y: Any = None) -> np.ndarray:
        """Return the log-probability of each raw sequence in nats, ``(n,)``."""

    def _steps(self, examples: list[Example]) -> list[np.ndarray]:
        """Return the log-probability of each step of each example, ``(S,)`` float64 nats, given the steps before it."""

    def _most_probable_targets(self, sources: list[np.ndarray | None]) -> list[np.ndarray] | None:
        """Return the most probable target of each encoded source; None if it can only be found by a search."""

    def _merge_states(self, log_weights: list[float], states: list[CursorState]) -> MergedStates:
        """Group histories whose states can be replaced by one without changing the weighted probability of any future.

        Args:
            log_weights: logarithm of the weight of each history.
            states: state of the cursor after each history.

        Returns:
            For each group, the indices of its histories and the state that replaces theirs.
        """

    def _filtered(self, state: CursorState) -> np.ndarray:
        """Return the filtered probabilities of K hidden states at a state of the cursor, ``(K,)``.

        Raises:
            AttributeError: the model has no hidden states.
        """

    def _reads_missing(self) -> bool:
        """Return True if the model sums out missing values."""

    def _setting(self) -> Setting:
        """Return the encodings and the measure of the fitted model; NotFittedError if it is not fitted."""

    def _device(self) -> torch.device:
        """Return the device on which the model computes."""


def encode_prefix(model: GenerativeModel, item: Any) -> np.ndarray:
    """Return the encoded steps of a raw prefix: symbols ``(P,)`` or vectors ``(P, D)``.

    P is 0 for None or an empty prefix.

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
    """Return the encoder of the step after a raw ``prefix`` of a series; None for a model of other data."""
    if not isinstance(model.encoding_, SeriesEncoding):
        return None
    return model.encoding_.step_encoder(raw_frames(model, prefix))


def raw_frames(model: GenerativeModel, prefix: Any) -> np.ndarray:
    """Return the frames of a raw prefix of vectors, ``(P, D)`` float64; P is 0 for None or an empty prefix."""
    if prefix is None or len(prefix) == 0:
        return np.zeros((0, model.encoding_.n_features))
    return as_frames(Sequences([prefix]).items[0])


def encode_source(model: GenerativeModel, source: Any) -> np.ndarray | None:
    """Return the encoded steps of a raw source, symbols ``(S,)`` or vectors ``(S, D)``; None if the model reads none.

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
        inputs: raw inputs, as an array or by name.
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
    """Return the standardised inputs of the first n raw steps, without those that an encoding of series consumes.

    Such an encoding, like differencing, consumes the first F frames; the result is ``(n - F, U)``.

    Raises:
        ValueError: if inputs are missing, or if the model does not read them.
    """
    encoded = encode_inputs(model, inputs, n)
    return None if encoded is None else encoded[model._setting().n_initial :]


def n_steps_of_prefix(model: GenerativeModel, prefix: Any, encoded: np.ndarray) -> int:
    """Return the number of steps of a raw prefix that have inputs.

    These are its frames for a model of series, and otherwise its ``encoded`` steps.
    """
    return len(raw_frames(model, prefix)) if isinstance(model.encoding_, SeriesEncoding) else len(encoded)


def with_times(inputs: Any, times: Any) -> Any:
    """Return inputs by name with ``times`` added as the time input; ``times=None`` returns ``inputs``.

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
    """Return one raw step (a frame, a symbol or a piece of text) as a sequence of length one."""
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
    """Return ``(shift, scale)``, each ``(D,)``: raw values are ``shift + scale · x`` for encoded x."""
    dtype = getattr(torch, model.dtype_)
    shift, scale = (torch.as_tensor(values, dtype=dtype) for values in model.encoding_.affine())
    return shift, scale


def n_new_steps(model: GenerativeModel, length: int | None, source: np.ndarray | None, n_prefix: int) -> int | None:
    """Return the number of steps to generate after a prefix; None if they are drawn until the model predicts the end.

    It is ``length`` or, for a tagger, the number of steps by which the source is longer than the prefix.

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
    """Return the most steps of a target that a search tries, for a source of ``n_source`` steps.

    It is ``max_length`` or, if that is None, a bound that was learned from the lengths of targets in training.
    """
    if max_length is not None:
        return max_length
    lengths = model.target_lengths_
    return DEFAULT_MAX_LENGTH if lengths is None else lengths.max_steps(n_source)


def with_enough_precision(model: GenerativeModel, *encoded: np.ndarray | None) -> GenerativeModel:
    """Return the model, or a copy that computes in float64 if squares of the ``encoded`` values overflow float32.

    Raises:
        ValueError: if float64 cannot hold them either.
    """
    large = [values for values in encoded if values is not None and squares_exceed_float32(values)]
    for values in large:
        refuse_beyond_float64(values, "what comes before")
    return in_float64(model) if large else model
