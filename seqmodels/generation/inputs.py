"""Raw prefixes, sources and steps -> what a cursor reads; and what generation needs of a fitted model."""

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
from seqmodels.encodings.series import SeriesEncoding
from seqmodels.encodings.setting import Setting
from seqmodels.encodings.step_maps import StepEncoder, as_frames
from seqmodels.generation.cursor import Cursor, CursorState, MergedStates
from seqmodels.sequences import Sequences
from seqmodels.sequences.items import as_array
from seqmodels.sequences.measure import Length, Measure

DEFAULT_MAX_LENGTH = 1000  # steps, where nothing says how long targets are


class GenerativeModel(Protocol):
    """What generation needs of a fitted model: encodings, a cursor and its scores; every ``SequenceModel`` has it."""

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
        """The precision of the computation."""

    @property
    def _input_scaling(self) -> InputScaling | None:
        """How the inputs that it reads are standardised; None: it reads none."""

    def cursor(self, n_steps: int | None = None) -> Cursor:
        """The model as a chain of one-step predictions, of which about ``n_steps`` will be taken; None: many."""

    def log_prob(self, X: Any, y: Any = None) -> np.ndarray:
        """``(n,)`` nats of each raw sequence."""

    def _steps(self, examples: list[Example]) -> list[np.ndarray]:
        """For each example the float64 log-probabilities of its encoded steps."""

    def _most_probable_targets(self, sources: list[np.ndarray | None]) -> list[np.ndarray] | None:
        """For each encoded source the most probable target, where it is found without a search; None: it is not."""

    def _merge_states(self, log_weights: list[float], states: list[CursorState]) -> MergedStates:
        """Histories whose future is the same up to their weights, merged."""

    def _filtered(self, state: CursorState) -> np.ndarray:
        """``(K,)`` probabilities of its hidden states, from a state of its cursor; ``AttributeError``: it has none."""

    def _reads_missing(self) -> bool:
        """Whether it sums out missing values."""

    def _setting(self) -> Setting:
        """How data are encoded and measured; raises ``NotFittedError``."""

    def _device(self) -> torch.device:
        """Where the model computes."""


def encode_prefix(model: GenerativeModel, item: Any) -> np.ndarray:
    """The encoded steps ``(P, ...)`` of a raw prefix; none of None or of an empty one."""
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
    # Inputs are what encode_inputs sees to.
    replace(setting, inputs=None).check(Data.of(sequences), model._reads_missing(), is_prefix=True)
    return encoding.encode(sequences.items[0])


def step_encoder_after(model: GenerativeModel, prefix: Any) -> StepEncoder | None:
    """Of a model of series, what encodes the frame after a raw ``prefix`` that ``encode_prefix`` takes; else None."""
    if not isinstance(model.encoding_, SeriesEncoding):
        return None
    return model.encoding_.step_encoder(raw_frames(model, prefix))


def raw_frames(model: GenerativeModel, prefix: Any) -> np.ndarray:
    """``(P, D)`` float64 of a raw prefix of vectors, none of None or of an empty one."""
    if prefix is None or len(prefix) == 0:
        return np.zeros((0, model.encoding_.n_features))
    return as_frames(Sequences([prefix]).items[0])


def encode_source(model: GenerativeModel, source: Any) -> np.ndarray | None:
    """The encoded steps ``(S, ...)`` of a raw source; None for a model without sources, or one that ignores them.

    Raises:
        ValueError: a source that is missing, that the model was not fitted with, or that cannot be read.
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
    """``(n, U)`` standardised inputs of n steps (None: of however many there are); None of a model that reads none.

    Raises:
        ValueError: inputs that are missing, or that the model does not read.
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
    """``(n - n_initial, U)`` those of the encoded steps among the first n raw ones of a sequence; as ``encode_inputs``.

    Raises:
        ValueError: as ``encode_inputs``.
    """
    encoded = encode_inputs(model, inputs, n)
    return None if encoded is None else encoded[model._setting().n_initial :]


def n_steps_of_prefix(model: GenerativeModel, prefix: Any, encoded: np.ndarray) -> int:
    """How many steps have inputs: the frames of a series, else the ``encoded`` steps."""
    return len(raw_frames(model, prefix)) if isinstance(model.encoding_, SeriesEncoding) else len(encoded)


def with_times(inputs: Any, times: Any) -> Any:
    """The inputs of some steps, and their times, of a model that reads these; raises ``ValueError`` for no mapping."""
    if times is None:
        return inputs
    if inputs is None:
        return {TIME: times}
    if isinstance(inputs, Mapping) or hasattr(inputs, "columns"):
        return {**{name: inputs[name] for name in inputs}, TIME: times}
    raise ValueError("times go beside inputs by name; pass inputs= as a mapping from names to values")


def raw_step(model: GenerativeModel, x: Any) -> Any:
    """One raw step as an item of one step; of symbols and vectors an array."""
    if isinstance(x, str) and model.encoding_.reads == "symbols":
        x = np.array(x, dtype=object)
    item = x if isinstance(x, str) else as_array(0, x)[None]
    if not isinstance(item, str) and np.ma.is_masked(item):
        item = np.ma.filled(item.astype(np.float64), np.nan)
    return item


def numpy_generator(generator: torch.Generator) -> np.random.Generator:
    """One of numpy's, seeded by the seed of a generator of torch's and by where that stands; it stays there."""
    return np.random.default_rng([generator.initial_seed(), zlib.crc32(generator.get_state().numpy().tobytes())])


def decoding_affine(model: GenerativeModel) -> tuple[Tensor, Tensor]:
    """``(shift, scale)`` from encoded to raw values, in the dtype in which the model computes; on the CPU."""
    dtype = getattr(torch, model.dtype_)
    shift, scale = (torch.as_tensor(values, dtype=dtype) for values in model.encoding_.affine())
    return shift, scale


def n_new_steps(model: GenerativeModel, length: int | None, source: np.ndarray | None, n_prefix: int) -> int | None:
    """How many encoded steps follow a prefix: ``length``, or of a tagger what its source has more; None: until the end.

    Raises:
        ValueError: no number of steps, another than the source leaves, or none where the model has no ends.
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
    """Most encoded steps that are searched after a prefix: ``max_length``, or None: by the lengths of fit's targets."""
    if max_length is not None:
        return max_length
    lengths = model.target_lengths_
    return DEFAULT_MAX_LENGTH if lengths is None else lengths.max_steps(n_source)


def with_enough_precision(model: GenerativeModel, *encoded: np.ndarray | None) -> GenerativeModel:
    """This model, or the same in float64 where float32 cannot hold what it is to read.

    Raises:
        ValueError: float64 cannot hold it either.
    """
    large = [values for values in encoded if values is not None and squares_exceed_float32(values)]
    for values in large:
        refuse_beyond_float64(values, "what comes before")
    return in_float64(model) if large else model
