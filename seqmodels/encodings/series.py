"""Encodings of series: each step by a map that may look at the past of its own sequence, exactly invertible.

``log p(x_t | x_<t) = log p(z_t | z_<t) + log |dz_t / dx_t|``, where ``z_t`` is a one-to-one function of ``x_t`` given
``x_<t``. The first ``n_initial`` frames, of which no difference can be taken, have a Gaussian density of the encoding's
own and are no steps of the model's, so that every frame is scored.
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
    """What encodings that may look at the past of a sequence share.

    To add one, define what ``VectorEncoding`` asks for.
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
        """Raise ``ValueError``, naming sequence ``i``, for values of ``frames (T, D)`` that cannot be encoded."""

    def check_length(self, i: int, n_frames: int) -> None:
        """Raise ``ValueError``, naming sequence ``i``, if a model would have no step of it to read."""
        if n_frames <= self.n_initial:
            raise ValueError(
                f"sequence {i} has {n_frames} frames, but {self!r} takes no difference of the first {self.n_initial}; "
                f"pass at least {self.n_initial + 1}"
            )

    def refuse_short(self, sequences: Sequences) -> None:
        """Raise ``ValueError`` where no training sequence is long enough for a difference."""
        longest = int(sequences.n_units.argmax())
        self.check_length(longest, int(sequences.n_units[longest]))

    def log_det(self, item: Item) -> np.ndarray:
        """``(T - n_initial,)`` nats to add to the log-density of each encoded step."""
        return self.of_each_frame(as_frames(item))[self.n_initial :]

    def decode(self, steps: np.ndarray) -> Item:
        """Of steps with one map for all; ``ValueError`` elsewhere: ``step_maps.decoded_after`` is given the past."""
        if not self.has_constant_map:
            raise ValueError(f"what {self!r} encodes as these steps depends on the frames before them; give those too")
        return self.step_encoder(np.zeros((0, self.n_features))).map.decode(steps)

    def last_unit(self, steps: np.ndarray) -> np.ndarray:
        return self.n_initial + np.arange(len(steps))

    def affine(self) -> tuple[np.ndarray, np.ndarray]:
        """``(shift, scale)`` from encoded steps to what is modelled, such as differences: not to raw values."""
        return np.zeros(self.n_features), np.ones(self.n_features)

    def encoded_after(self, past: Item, item: Item) -> tuple[np.ndarray, int]:
        """The steps of a past and what follows it, and how many are of the past."""
        values = self.encode(np.concatenate([as_frames(past), as_frames(item)]))
        return values, max(0, len(past) - self.n_initial)

    def of_values_after(self, past: Item | None, item: Item) -> np.ndarray:
        """``(T, D)`` ``of_each_value`` of an item after its past."""
        if past is None:
            return self.of_each_value(as_frames(item))
        return self.of_each_value(np.concatenate([as_frames(past), as_frames(item)]))[len(past) :]

    def of_frames_after(self, past: Item | None, item: Item) -> np.ndarray:
        """``(T,)`` the sums of ``of_values_after``."""
        return np.asarray(self.of_values_after(past, item).sum(1))

    def in_raw_units(self, item: Item, steps: np.ndarray, past: Item | None = None) -> np.ndarray:
        """``(T,)`` nats of each frame, and perhaps of the end, from those of the encoded ``steps`` of the item.

        ``past`` is what came before the item, of which there are no ``steps``.
        """
        of_frames = self.of_frames_after(past, item)
        n_own = max(0, self.n_initial - (0 if past is None else len(past)))  # frames that are no steps
        n = len(of_frames) - n_own
        return np.concatenate([of_frames[:n_own], steps[:n] + of_frames[n_own:], steps[n:]])


@dataclass(eq=False, repr=False)
class Chain(SeriesEncoding):
    """Encodings one after the other: each encodes what the one before it makes of the frames.

    Args:
        encodings: of vectors. The last may be ``Quantize``, whose cells then are of what the others make of the frames.

    Raises:
        ValueError: no encodings; an alphabet; a power transformation (``Log``, ``BoxCox``) that is not the first;
            ``Quantize`` that is not the last.

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
                raise ValueError(f"encodings[{i}] is {encoding!r}, which is no encoding of vectors")
            if encoding.emits == "symbols" and i < len(self.encodings) - 1:
                raise ValueError(f"{encoding!r} is number {i} of {self!r}, and makes symbols; pass it last")

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
                raise ValueError(f"{encoding!r} is number {i} of {self!r}; a power transformation comes first")
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
        """Of the last encodings, from the last on that has not one affine map."""
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
            raise ValueError(f"the encodings are of {sorted(sizes)} features, and should be of one number")
        self.size = self.encodings[-1].size
        self.names = names_of_state(state, self.n_features)
        return self


@dataclass(frozen=True)
class ChainEncoder:
    """The encoders of a chain, each after what the one before it has made of the frames so far."""

    encoders: tuple[StepEncoder, ...]

    @property
    def map(self) -> StepMap:
        """That of the next step: of the first that takes no difference yet, after those before it; or of all."""
        whole = self.encoders[0].map
        for encoder in self.encoders[1:]:
            if not whole.is_modelled:
                break
            whole = encoder.map.after(whole)
        return whole

    def after(self, x: np.ndarray) -> ChainEncoder:
        """After each sequence's next raw step, ``x (n, D)``."""
        moved, encoders = [], list(self.encoders)
        while encoders:
            encoder = encoders.pop(0)
            moved.append(encoder.after(x))
            if not encoder.map.is_modelled:
                break
            x = encoder.map.scaled(x)
        return replace(self, encoders=(*moved, *encoders))

    def select(self, rows: np.ndarray) -> ChainEncoder:
        """Of the sequences ``rows (m,)``."""
        return replace(self, encoders=tuple(encoder.select(rows) for encoder in self.encoders))
