"""Drawing of sequences from a model step by step, n at once or one as it is drawn.

Temperature, top-k and nucleus sampling are in ``seqmodels.generation.decoding``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqmodels.common.main_memory import refuse_beyond_memory
from seqmodels.encodings.cells import shares_within
from seqmodels.encodings.series import SeriesEncoding
from seqmodels.encodings.step_maps import StepEncoder, decoded_after, repeated
from seqmodels.encodings.text import Text
from seqmodels.generation.cursor import Cursor, CursorState, DrawingCursor, start_after
from seqmodels.generation.decoding import ANCESTRAL, Decoding, Draws, PathCursor, draw
from seqmodels.generation.given_inputs import with_inputs
from seqmodels.generation.inputs import (
    GenerativeModel,
    encode_inputs,
    encode_prefix,
    encode_source,
    n_new_steps,
    n_steps_of_prefix,
    numpy_generator,
    raw_frames,
    step_encoder_after,
    with_enough_precision,
)
from seqmodels.generation.text import StopStrings, decode_stream
from seqmodels.sequences import Item

CHECK_EVERY = 16  # steps between checks whether all sequences have ended, because a check waits for the device

# -- raw sequences ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SamplingOptions:
    """The arguments of ``SequenceModel.sample`` and ``SequenceModel.generate`` as one value.

    Args:
        prefix: raw steps with which every sequence begins; None begins at the first step.
        source: raw source that the draws are conditioned on, for a model of p(y | x); else None.
        length: number of encoded steps to draw after the prefix; None draws until the sequence ends.
        max_length: most encoded steps to draw after the prefix if ``length`` is None.
        random_state: seed of the draws; None uses the model's.
        decoding: distribution that is drawn from, such as its temperature.
        stop: strings after the first of which a text ends; None if there are none.
        inputs: raw inputs of the prefix and of the steps to draw, for a model that reads inputs; else None.

    Raises:
        ValueError: if ``max_length`` is negative.
    """

    prefix: Any = None
    source: Any = None
    length: int | None = None
    max_length: int = 1000
    random_state: int | None = None
    decoding: Decoding = ANCESTRAL
    stop: Sequence[str] | None = None
    inputs: Any = None

    def __post_init__(self) -> None:
        if self.max_length < 0:
            raise ValueError(f"max_length is {self.max_length}; pass a number of steps")


def sample(model: GenerativeModel, n: int, options: SamplingOptions) -> list[Item]:
    """Draw ``n`` raw sequences from the model.

    Args:
        model: the fitted model.
        n: number of sequences.
        options: the prefix, length, seed and other arguments of ``SequenceModel.sample``.

    Raises:
        ValueError: if an option is out of its range or does not fit the model.
    """
    if not (isinstance(n, int | np.integer) and n >= 0):
        raise ValueError(f"n is {n!r}; pass a number of sequences")
    prefix, source = encode_prefix(model, options.prefix), encode_source(model, options.source)
    length, inputs = _length_and_inputs(model, options, source, n_steps_of_prefix(model, options.prefix, prefix))
    refuse_beyond_memory(f"{n} sequences", 8.0 * n * max(1, length or 1), "pass a smaller n or length")
    stop = _stop_strings(model, options.stop, prefix, n)
    _check_decoding(model, options.decoding)
    generator = _generator(model, options.random_state)
    if isinstance(model.encoding_, SeriesEncoding):
        return _sample_series(model, n, options, length, inputs, generator)
    drawn = sample_steps(
        with_inputs(with_enough_precision(model, prefix, source).cursor(), inputs),
        n,
        prefix=prefix,
        source=source,
        length=length,
        max_length=options.max_length,
        generator=generator,
        decoding=options.decoding,
        stop=stop,
    )
    if stop is not None:
        return [stop.truncate(steps).decode(errors="replace") for steps in drawn]
    return [model.encoding_.decode(steps) for steps in drawn]


def _sample_series(
    model: GenerativeModel,
    n: int,
    options: SamplingOptions,
    length: int | None,
    inputs: np.ndarray | None,
    generator: torch.Generator,
) -> list[Item]:
    """Draw ``n`` raw sequences from a model whose encoding of a frame depends on earlier frames, as differencing does.

    The first frames, which have no difference, are drawn from a standard normal if the prefix does not give them.

    Args:
        model: the fitted model.
        n: number of sequences.
        options: arguments of ``SequenceModel.sample``.
        length: number of steps after the prefix; None draws until the end.
        inputs: standardised inputs of the steps, or None.
        generator: generator of the draws.
    """
    first = _first_frames(model, options, length, generator, n)
    steps = sample_steps(
        with_inputs(with_enough_precision(model, first.prefix).cursor(), inputs),
        n,
        prefix=first.prefix,
        source=None,
        length=None if length is None else length - first.z.shape[1],
        max_length=options.max_length - first.z.shape[1],
        generator=generator,
        decoding=options.decoding,
    )
    drawn = [each[len(first.prefix) :] for each in steps]
    padded = np.zeros((n, max(map(len, drawn), default=0), *first.prefix.shape[1:]), dtype=first.prefix.dtype)
    for row, each in zip(padded, drawn, strict=True):
        row[: len(each)] = each
    encoder = repeated(first.encoder, n)
    if model.encoding_.emits == "symbols":
        within = shares_within(first.rng, (*padded.shape, first.frames.shape[1]))
        raw = decoded_after(encoder, first.z, padded, within)
    else:
        raw = decoded_after(encoder, np.concatenate([first.z, padded], axis=1))
    n_first = first.z.shape[1]
    return [np.concatenate([first.frames, x[: n_first + len(each)]]) for x, each in zip(raw, drawn, strict=True)]


@dataclass(frozen=True)
class FirstFrames:
    """The beginning of n drawn series: the frames of a prefix, and random numbers for frames without a step.

    An encoding such as differencing has no encoded step for the first frames of a series; these are standard normal.

    Attributes:
        frames: raw frames of the prefix, P frames of D features, ``(P, D)``.
        prefix: encoded steps of the prefix.
        encoder: state of the encoding after the prefix, which maps the next frame to an encoded step.
        z: standard normal numbers for the next F frames without an encoded step, ``(n, F, D)``.
        rng: generator for the positions of values within their cells, for encodings that divide values into cells.
    """

    frames: np.ndarray
    prefix: np.ndarray
    encoder: StepEncoder
    z: np.ndarray
    rng: np.random.Generator


def _first_frames(
    model: GenerativeModel, options: SamplingOptions, length: int | None, generator: torch.Generator, n: int
) -> FirstFrames:
    encoding, prefix = model.encoding_, encode_prefix(model, options.prefix)
    encoder = step_encoder_after(model, options.prefix)
    assert isinstance(encoding, SeriesEncoding)
    assert encoder is not None
    frames = raw_frames(model, options.prefix)
    n_frames = min(max(0, encoding.n_initial - len(frames)), options.max_length if length is None else length)
    size = n, n_frames, encoding.n_features
    z = torch.randn(size, generator=generator, dtype=torch.float64, device=generator.device).cpu().numpy()
    return FirstFrames(frames, prefix, encoder, z, numpy_generator(generator))


def _generate_series(
    model: GenerativeModel,
    options: SamplingOptions,
    length: int | None,
    inputs: np.ndarray | None,
    generator: torch.Generator,
) -> Iterator[np.ndarray]:
    """Yield the raw frames ``(D,)`` of one series as they are drawn, if its encoding depends on earlier frames.

    Args:
        model: the fitted model.
        options: arguments of ``SequenceModel.generate``.
        length: number of steps after the prefix; None draws until the end.
        inputs: standardised inputs of the steps, or None.
        generator: generator of the draws.
    """
    first = _first_frames(model, options, length, generator, 1)
    encoder, n_first = first.encoder, first.z.shape[1]
    steps = stream_steps(
        with_inputs(with_enough_precision(model, first.prefix).cursor(), inputs),
        prefix=first.prefix,
        source=None,
        length=None if length is None else length - n_first,
        max_length=options.max_length - n_first,
        generator=generator,
        decoding=options.decoding,
    )
    for z in chain(first.z[0], steps):
        is_cell = encoder.map.cells is not None
        within = shares_within(first.rng, (1, first.frames.shape[1])) if is_cell else None
        x = encoder.map.decode(z[None], within)
        encoder = encoder.after(x)
        yield x[0]


def generate(model: GenerativeModel, options: SamplingOptions) -> Iterator[Any]:
    """Yield the steps of one drawn raw sequence, or the characters of a drawn text, as they are drawn.

    The steps of the prefix are not yielded.

    Args:
        model: the fitted model.
        options: the prefix, length, seed and other arguments of ``SequenceModel.generate``.

    Raises:
        ValueError: if an option is out of its range or does not fit the model.
    """
    prefix, source = encode_prefix(model, options.prefix), encode_source(model, options.source)
    length, inputs = _length_and_inputs(model, options, source, n_steps_of_prefix(model, options.prefix, prefix))
    stop = _stop_strings(model, options.stop, prefix, 1)
    _check_decoding(model, options.decoding)
    if isinstance(model.encoding_, SeriesEncoding):
        return _generate_series(model, options, length, inputs, _generator(model, options.random_state))
    drawn = stream_steps(
        with_inputs(with_enough_precision(model, prefix, source).cursor(), inputs),
        prefix=prefix,
        source=source,
        length=length,
        max_length=options.max_length,
        generator=_generator(model, options.random_state),
        decoding=options.decoding,
    )
    encoding = model.encoding_
    if isinstance(encoding, Text):
        leading = b"" if len(prefix) else encoding.leading
        return decode_stream(drawn, encoding.spelling(), stop, leading)
    return (encoding.decode(step[None])[0] for step in drawn)


def _length_and_inputs(
    model: GenerativeModel, options: SamplingOptions, source: np.ndarray | None, n_prefix: int
) -> tuple[int | None, np.ndarray | None]:
    """Return the number of steps to draw after the prefix, and the standardised inputs of all encoded steps.

    The number is None if steps are drawn until the end. Inputs, if the model reads them, determine the number; without
    them they are None.

    Args:
        model: the fitted model.
        options: arguments of ``SequenceModel.sample``.
        source: encoded source, or None.
        n_prefix: number of steps of the prefix, or of its frames for a series.

    Raises:
        ValueError: if there are fewer inputs than steps of the prefix, or if the length is missing or is not a number
            of steps.
    """
    n = None if options.length is None else n_prefix + options.length
    inputs = encode_inputs(model, options.inputs, n)
    if inputs is not None and len(inputs) < n_prefix:
        raise ValueError(
            f"inputs are of {len(inputs)} steps, fewer than the {n_prefix} of the prefix; pass the inputs of the "
            "prefix and of the steps to draw"
        )
    length = len(inputs) - n_prefix if inputs is not None else options.length
    encoded = None if inputs is None else inputs[model._setting().n_initial :]
    return n_new_steps(model, length, source, n_prefix), encoded


def _generator(model: GenerativeModel, random_state: int | None) -> torch.Generator:
    seed = model.random_state if random_state is None else random_state
    return torch.Generator(model._device()).manual_seed(seed)


def _check_decoding(model: GenerativeModel, decoding: Decoding) -> None:
    if model.encoding_.reads == "vectors":
        decoding.check_for_vectors()


def _stop_strings(model: GenerativeModel, stop: Sequence[str] | None, prefix: np.ndarray, n: int) -> StopStrings | None:
    if stop is None:
        return None
    if not isinstance(model.encoding_, Text):
        raise ValueError(f"stop is for text, but the model was fitted on {model.encoding_.reads}; leave it out")
    return StopStrings(stop, model.encoding_.spelling(), prefix, n, model.encoding_.leading)


# -- encoded steps ------------------------------------------------------------------------------------------------


@torch.inference_mode()  # small networks spend less between operations than under no_grad
def sample_steps(
    cursor: Cursor,
    n: int,
    *,
    prefix: np.ndarray,
    source: np.ndarray | None,
    length: int | None,
    max_length: int,
    generator: torch.Generator,
    decoding: Decoding = ANCESTRAL,
    stop: StopStrings | None = None,
) -> list[np.ndarray]:
    """Draw n sequences of encoded steps that begin with ``prefix``, which they include, and leave out their ends.

    Args:
        cursor: cursor of the model.
        n: number of sequences.
        prefix: encoded steps with which every sequence begins, symbols ``(P,)`` or vectors ``(P, D)``; may be empty.
        source: encoded source; None if there is none.
        length: number of steps after the prefix, during which the end is forbidden; None draws until the end.
        max_length: most steps after the prefix if ``length`` is None, where a sequence is cut off.
        generator: torch generator of the draws.
        decoding: temperature and truncation of the distribution that is drawn from.
        stop: strings after which a text ends; None if there are none.

    Raises:
        ValueError: if a sequence that has not ended can neither continue nor end.
    """
    n_steps = max_length if length is None else length
    if n_steps <= 0:
        return [prefix.copy() for _ in range(n)]
    state = start_after(cursor, source, prefix, n)
    steps = _draws(cursor, state, decoding, generator, n_steps, may_end=length is None)
    drawn, stopped = _collect(steps, n, stop)
    x = torch.cat([steps.x for steps in drawn])  # (T, n, ...)
    n_drawn = _first_true([steps.ended for steps in drawn], n, len(x))
    _refuse_impossible(_first_true([steps.impossible for steps in drawn], n, len(x)), n_drawn, len(x), len(prefix))
    n_drawn = np.minimum(n_drawn, _first_true(stopped, n, len(x)) + 1)
    values = x.transpose(0, 1).cpu().numpy()  # (n, T, ...)
    return [np.concatenate([prefix, row[:size]]) for row, size in zip(values, n_drawn, strict=True)]


@torch.inference_mode()
def stream_steps(
    cursor: Cursor,
    *,
    prefix: np.ndarray,
    source: np.ndarray | None,
    length: int | None,
    max_length: int,
    generator: torch.Generator,
    decoding: Decoding = ANCESTRAL,
) -> Iterator[np.ndarray]:
    """Draw one sequence and yield its encoded steps after the prefix as they are drawn.

    With the same generator it is the sequence that ``sample_steps`` draws.

    Args:
        cursor: cursor of the model.
        prefix: encoded steps with which the sequence begins, symbols ``(P,)`` or vectors ``(P, D)``; may be empty.
        source: encoded source; None if there is none.
        length: number of steps after the prefix, during which the end is forbidden; None draws until the end.
        max_length: most steps after the prefix if ``length`` is None, where the sequence is cut off.
        generator: torch generator of the draws.
        decoding: temperature and truncation of the distribution that is drawn from.

    Raises:
        ValueError: if the sequence can neither continue nor end.
    """
    state, n_steps = start_after(cursor, source, prefix, 1), max_length if length is None else length
    steps = _draws(cursor, state, decoding, generator, n_steps, may_end=length is None)
    n_read = len(prefix)
    for drawn in steps:
        for t, x in enumerate(drawn.x[:, 0].cpu().numpy()):
            if drawn.impossible is not None and bool(drawn.impossible[t]):
                _refuse_step(n_read)
            if drawn.ended is not None and bool(drawn.ended[t]):
                return
            yield x
            n_read += 1


def _draws(
    cursor: Cursor, state: CursorState, decoding: Decoding, generator: torch.Generator, n_steps: int, *, may_end: bool
) -> Iterator[Draws]:
    """Yield draws of the next ``n_steps`` steps of all sequences, several steps at a time if the cursor can draw so.

    Sequences that have ended are drawn along with the others.

    Args:
        cursor: cursor of the model.
        state: its state before these steps.
        decoding: temperature and truncation of the distribution that is drawn from.
        generator: generator of the draws.
        n_steps: number of steps.
        may_end: False conditions the draws on the sequences continuing.
    """
    if decoding == ANCESTRAL and isinstance(cursor, PathCursor):
        path = cursor.draw_path(state, n_steps, generator, may_end=may_end)
        if path is not None:
            yield from path
            return
    drawing = cursor if decoding == ANCESTRAL and isinstance(cursor, DrawingCursor) else None
    x: Tensor | None = None  # the step drawn last
    while n_steps > 0:
        n_at_once = 0 if drawing is None or x is None else drawing.n_drawn_at_once(state)
        if drawing is not None and x is not None and n_at_once > 0:
            size = min(n_at_once, n_steps, CHECK_EVERY), len(x)
            uniform = torch.rand(size, generator=generator, dtype=torch.float64, device=x.device)
            symbols, ended, state = drawing.draw(state, x, uniform, may_end=may_end)
            yield Draws(symbols, ended, None)
            x, n_steps = symbols[-1], n_steps - len(symbols)
            continue
        if x is not None:
            state = cursor.advance(state, x)
        drawn = draw(cursor.distribution(state), decoding, generator, may_end=may_end)
        yield Draws.single(drawn)
        x, n_steps = drawn.x, n_steps - 1


def _collect(steps: Iterator[Draws], n: int, stop: StopStrings | None) -> tuple[list[Draws], list[Tensor | None]]:
    """Collect draws until all of n sequences have ended or completed a stop string.

    Args:
        steps: draws of consecutive steps.
        n: number of sequences.
        stop: detector of the stop strings; None if there are none.

    Returns:
        drawn: the draws, each of T steps.
        stopped: for each of them a mask ``(T, n)`` of steps that complete a stop string; None without stop strings.
    """
    drawn: list[Draws] = []
    stopped: list[Tensor | None] = []
    over, n_unchecked, n_checked = np.zeros(n, dtype=bool), 0, 0
    for several in steps:
        drawn.append(several)
        stopped.append(None if stop is None else torch.stack([_completes_string(stop, x) for x in several.x]))
        n_unchecked += len(several.x)
        if n_unchecked >= CHECK_EVERY:
            over |= _first_true([each.ended for each in drawn[n_checked:]], n, n_unchecked) < n_unchecked
            over |= _first_true(stopped[n_checked:], n, n_unchecked) < n_unchecked
            n_unchecked, n_checked = 0, len(drawn)
            if over.all():
                break
    return drawn, stopped


def _completes_string(stop: StopStrings, x: Tensor) -> Tensor:
    return torch.tensor([stop.advance(i, symbol) is not None for i, symbol in enumerate(x.tolist())])


def _first_true(masks: list[Tensor | None], n: int, n_steps: int) -> np.ndarray:
    """Return the first step at which each of n sequences is True in a mask, ``(n,)``; ``n_steps`` if it never is.

    Args:
        masks: bool masks ``(T, n)`` of consecutive groups of T steps each, in order; None stands for a mask that is all
            False.
        n: number of sequences.
        n_steps: number of steps of all groups together.
    """
    present = [mask for mask in masks if mask is not None]
    if not present:
        return np.full(n, n_steps)
    table = torch.cat(present).cpu().numpy()
    return np.where(table.any(0), table.argmax(0), n_steps)


def _refuse_impossible(impossible: np.ndarray, ended: np.ndarray, n_drawn: int, n_prefix: int) -> None:
    """Check that no sequence reaches, before it ends, a step at which it can neither continue nor end.

    Args:
        impossible: first such step of each sequence, ``(n,)``.
        ended: step at which each sequence ended, ``(n,)``.
        n_drawn: number of drawn steps, which stands for "never" in both arrays.
        n_prefix: number of steps of the prefix, for the message.

    Raises:
        ValueError: if a sequence does.
    """
    reached = (impossible < n_drawn) & (impossible <= ended)
    if reached.any():
        _refuse_step(n_prefix + int(impossible[reached].min()))


def _refuse_step(t: int) -> None:
    raise ValueError(f"no sequence that continues after step {t} is possible; pass another prefix or length")
