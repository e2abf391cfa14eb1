"""Encodings of series, which map each step by a function that may depend on the past of its own sequence.

``log p(x_t | x_<t) = log p(z_t | z_<t) + log |dz_t / dx_t|``, where ``z_t`` is a one-to-one function of ``x_t`` given
``x_<t``. The first ``n_initial`` frames, which have no difference, are not steps of the model; they have a Gaussian
density that belongs to the encoding, so that every frame is scored.
"""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass, replace
from typing import Literal, Self

import numpy as np

from seqmodels.common.storage import part
from seqmodels.encodings.base import State, names_of_state, names_to_state
from seqmodels.encodings.step_maps import StepEncoder, StepMap, VectorEncoding, as_frames
from seqmodels.sequences import Item, Sequences


class SeriesEncoding(VectorEncoding, ABC):
    """The base class of encodings of vectors that may depend on earlier frames of the sequence, such as differences.

    To add one, define the methods that ``VectorEncoding`` asks for.
    """

    reads = "vectors"
    is_series = True

    @property
    def has_constant_map(self) -> bool:
        return False

    def check(self, i: int, item: Item) -> None:
        frames = as_frames(item)
        if frames.shape[1] != self.n_features:
            raise ValueError(
                f"sequence {i} has {frames.shape[1]} features but the model was fitted on {self.n_features}; "
                "pass the same features as in fit"
            )
        self.check_values(i, frames)

    def check_values(self, i: int, frames: np.ndarray) -> None:
        """Raise ValueError if values of a sequence cannot be encoded; by default all can.

        Args:
            i: number of the sequence, which the message names.
            frames: raw frames, ``(T, D)``.
        """

    def check_length(self, i: int, n_frames: int) -> None:
        """Raise ValueError if a sequence has too few frames to have an encoded step, such as a difference.

        Args:
            i: number of the sequence, which the message names.
            n_frames: its number of frames.
        """
        if n_frames <= self.n_initial:
            raise ValueError(
                f"sequence {i} has {n_frames} frames, but {self!r} takes no difference of the first {self.n_initial}; "
                f"pass at least {self.n_initial + 1}"
            )

    def refuse_short(self, sequences: Sequences) -> None:
        """Raise ValueError if no training sequence is long enough to have an encoded step, such as a difference."""
        longest = int(sequences.n_units.argmax())
        self.check_length(longest, int(sequences.n_units[longest]))

    def log_det(self, item: Item) -> np.ndarray:
        """Return the nats to add to the log-density of each encoded step to express it in raw units.

        The result is ``(T - n_initial,)``: the first ``n_initial`` frames, of which no difference can be taken, have no
        encoded step.

        Args:
            item: T raw frames, ``(T, D)``.
        """
        return self.of_each_frame(as_frames(item))[self.n_initial :]

    def decode(self, steps: np.ndarray) -> Item:
        """Return the raw frames of encoded steps, ``(S, D)``, for an encoding that treats all steps alike.

        Args:
            steps: S encoded steps.

        Raises:
            ValueError: if the map depends on earlier frames; ``step_maps.decoded_after`` then decodes with the past.
        """
        if not self.has_constant_map:
            raise ValueError(
                f"the raw values of these steps under {self!r} depend on the frames before them; pass those too"
            )
        return self.step_encoder(np.zeros((0, self.n_features))).map.decode(steps)

    def last_unit(self, steps: np.ndarray) -> np.ndarray:
        return self.n_initial + np.arange(len(steps))

    def affine(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the shift and the scale from encoded steps to what is modelled, such as differences, each ``(D,)``.

        This need not be the raw values, because those depend on earlier frames.
        """
        return np.zeros(self.n_features), np.ones(self.n_features)

    def encoded_after(self, past: Item, item: Item) -> tuple[np.ndarray, int]:
        """Return the encoded steps of a past and the sequence that follows it, and how many of them belong to the past.

        Args:
            past: raw frames before the sequence.
            item: raw frames of the sequence.
        """
        values = self.encode(np.concatenate([as_frames(past), as_frames(item)]))
        return values, max(0, len(past) - self.n_initial)

    def of_values_after(self, past: Item | None, item: Item) -> np.ndarray:
        """Return the nats to add to the log-density of each value to express it in raw units, ``(T, D)``.

        Args:
            past: raw frames before the sequence; None if there are none.
            item: T raw frames of the sequence, ``(T, D)``.
        """
        if past is None:
            return self.of_each_value(as_frames(item))
        return self.of_each_value(np.concatenate([as_frames(past), as_frames(item)]))[len(past) :]

    def of_frames_after(self, past: Item | None, item: Item) -> np.ndarray:
        """Return the nats to add to the log-density of each frame to express it in raw units, ``(T,)``.

        Args:
            past: raw frames before the sequence; None if there are none.
            item: T raw frames of the sequence, ``(T, D)``.
        """
        return np.asarray(self.of_values_after(past, item).sum(1))

    def in_raw_units(self, item: Item, steps: np.ndarray, past: Item | None = None) -> np.ndarray:
        """Convert log-probabilities of a sequence's encoded steps to those of its T raw frames, in nats.

        The result is ``(T,)``, or ``(T + 1,)`` with the end of the sequence.

        Args:
            item: the raw frames, ``(T, D)``.
            steps: log-probabilities of the encoded steps of the item, without those of its past, and of the end if it
                is an event.
            past: raw frames before the item; None if there are none.
        """
        of_frames = self.of_frames_after(past, item)
        n_own = max(0, self.n_initial - (0 if past is None else len(past)))  # frames that are no steps
        n = len(of_frames) - n_own
        return np.concatenate([of_frames[:n_own], steps[:n] + of_frames[n_own:], steps[n:]])


@dataclass(eq=False, repr=False)
class Chain(SeriesEncoding):
    """An encoding of vectors by several encodings in turn, each of which encodes the result of the one before.

    Args:
        encodings: encodings of vectors. The last may be ``Quantize``, which then quantised the result of the others.

    Raises:
        ValueError: if the list is empty or contains an encoding of text or symbols, if a power transformation (``Log``,
            ``BoxCox``) is not first, or if ``Quantize`` is not last.

    >>> from seqmodels import Sequences
    >>> from seqmodels import Sequences, Standardize
    >>> from seqmodels.encodings import Chain, Differences
    >>> x = np.array([[1.0], [3.0], [7.0], [10.0]])
    >>> chain = Chain([Differences(1), Standardize()]).fit(Sequences([x]))
    >>> chain.encode(x).round(2).ravel().tolist()
    [-1.22, 1.22, 0.0]
    """

    encodings: list[VectorEncoding]

    def _check_encodings(self) -> None:
        if not self.encodings:
            raise ValueError("encodings is empty; pass a list such as [Differences(1), Standardize()]")
        for i, encoding in enumerate(self.encodings):
            if not isinstance(encoding, VectorEncoding):
                raise ValueError(f"encodings[{i}] is {encoding!r}, which is not an encoding of vectors")
            if encoding.emits == "symbols" and i < len(self.encodings) - 1:
                raise ValueError(f"{encoding!r} is number {i} of {self!r}, but makes symbols; put it last")

    @property
    def emits(self) -> Literal["vectors", "symbols"]:
        last = self.encodings[-1] if self.encodings else None
        return last.emits if isinstance(last, VectorEncoding) else "vectors"

    @property
    def n_features(self) -> int:
        return self.encodings[0].n_features

    @property
    def n_initial(self) -> int:
        return sum(encoding.n_initial for encoding in self.encodings)

    @property
    def n_past(self) -> int | None:
        each = [encoding.n_past for encoding in self.encodings]
        known = [n for n in each if n is not None]
        return sum(known) if len(known) == len(each) else None

    @property
    def has_constant_map(self) -> bool:
        return all(encoding.has_constant_map for encoding in self.encodings)

    def fit(self, sequences: Sequences) -> Self:
        self._check_encodings()
        self.refuse_short(sequences)
        for i, encoding in enumerate(self.encodings):
            encoding.fit(sequences)
            if i and encoding.step_encoder(np.zeros((0, encoding.n_features))).map.powers is not None:
                raise ValueError(f"{encoding!r} is number {i} of {self!r}; put a power transformation first")
            if i + 1 < len(self.encodings):
                each = [encoding.encode(item) for item in sequences]
                sequences = Sequences([steps for steps in each if len(steps)], features=sequences.features)
        self.size = self.encodings[-1].size
        return self

    def check_values(self, i: int, frames: np.ndarray) -> None:
        for k, encoding in enumerate(self.encodings):
            encoding.check(i, frames)
            if k + 1 < len(self.encodings):
                frames = encoding.encode(frames)

    def encode(self, item: Item) -> np.ndarray:
        steps = as_frames(item)
        for encoding in self.encodings:
            steps = encoding.encode(steps)
        return steps

    def of_each_value(self, frames: np.ndarray) -> np.ndarray:
        result, at = np.zeros(frames.shape), 0
        for k, encoding in enumerate(self.encodings):
            result[at:] += encoding.of_each_value(frames)
            if k + 1 < len(self.encodings):
                frames = encoding.encode(frames)
            at = min(at + encoding.n_initial, len(result))
        return result

    def step_encoder(self, past: np.ndarray) -> ChainEncoder:
        encoders = []
        for encoding in self.encodings:
            encoders.append(encoding.step_encoder(past))
            if encoding.emits == "vectors":
                past = encoding.encode(past)
        return ChainEncoder(tuple(encoders))

    def affine(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the shift and the scale of the affine encodings at the end of the chain taken together, each ``(D,)``.

        ``shift + scale * encoded`` is the input of the first of them, which is a raw value only if all encodings are
        affine.
        """
        shift, scale = np.zeros(self.n_features), np.ones(self.n_features)
        for encoding in reversed(self.encodings):
            outer = encoding.affine()
            shift, scale = outer[0] + outer[1] * shift, outer[1] * scale
            if encoding.is_series:
                break
        return shift, scale

    def state(self) -> State:
        each = {str(i): encoding.state() for i, encoding in enumerate(self.encodings)}
        return {"encodings": each, **names_to_state(self.names)}

    def restore(self, state: State) -> Self:
        self._check_encodings()
        each = state.get("encodings") if isinstance(state, dict) else None
        if not isinstance(each, dict) or len(each) != len(self.encodings):
            raise ValueError(f"the file should have the states of {len(self.encodings)} encodings")
        for i, encoding in enumerate(self.encodings):
            with part(str(i)):
                encoding.restore(each[str(i)])
        sizes = {encoding.n_features for encoding in self.encodings}
        if len(sizes) != 1:
            raise ValueError(f"the encodings have {sorted(sizes)} features; all should have the same number")
        self.size = self.encodings[-1].size
        self.names = names_of_state(state, self.n_features)
        return self


@dataclass(frozen=True)
class ChainEncoder:
    """The state of a ``Chain`` of encodings after some frames of n sequences, which encodes their next step.

    Args:
        encoders: state of each encoding, in the order of the chain.
    """

    encoders: tuple[StepEncoder, ...]

    @property
    def map(self) -> StepMap:
        """The map from the next raw step to its encoded step, composed of the maps of all encodings of the chain.

        If one of them has too few frames for a difference yet, the maps after it are left out.
        """
        whole = self.encoders[0].map
        for encoder in self.encoders[1:]:
            if not whole.is_modelled:
                break
            whole = encoder.map.after(whole)
        return whole

    def after(self, x: np.ndarray) -> ChainEncoder:
        moved, encoders = [], list(self.encoders)
        while encoders:
            encoder = encoders.pop(0)
            moved.append(encoder.after(x))
            if not encoder.map.is_modelled:
                break
            x = encoder.map.scaled(x)
        return replace(self, encoders=(*moved, *encoders))

    def select(self, rows: np.ndarray) -> ChainEncoder:
        return replace(self, encoders=tuple(encoder.select(rows) for encoder in self.encoders))
