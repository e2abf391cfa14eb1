"""Features of whole recordings for a classifier: slopes, and each recording less its own level, mean and deviation."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass, field
from itertools import product
from typing import Annotated, Literal

import numpy as np

from seqmodels.common.array_checks import numbers_of
from seqmodels.common.parameters import (
    Configurable,
    PositiveFloat,
    PositiveInt,
    Range,
    checked,
    refuse_wrong_arguments,
)
from seqmodels.data.mfcc import MFCC, SlopeWidth, deltas

Tempo = Annotated[float, Range(0.01, 100)]
NOISE_FLOOR = 0.004  # of full scale


@dataclass(eq=False, repr=False)
class FrameFeatures(Configurable):
    """``(T, D)`` frames in, ``(T, (1 + orders) D)`` out: frames, their slopes, the slopes of those, and so on.

    Every number depends on the whole sequence, so this is no density's encoding: a likelihood of what comes out is not
    comparable with one of the frames. It is for ``GenerativeClassifier(features=...)``, where all labels share it.

    Args:
        orders: 0: frames alone; 1: with slopes (``deltas``); 2: with the slopes of the slopes.
        mean: from each sequence its own mean is taken, which a channel or a speaker adds to all frames of cepstra
            (Atal 1974). Numbers of columns of the frames: from these alone; ``mean=(0,)`` is of the energy of cepstra.
        variance: each column is divided by its own standard deviation over the sequence (Viikki and Laurila 1998,
            *Cepstral domain segmental feature vector normalization for noise robust speech recognition*).
        width: frames to either side that a slope is fitted to.
        constant: what ``variance`` does with a column that is constant over a sequence, so that it has no deviation:
            ``"refuse"`` the sequence, or ``"keep"`` the column undivided.

    Raises:
        ValueError: a sequence in which a column is constant, under ``variance`` and ``constant="refuse"``; numbers of
            columns that the frames do not have.

    >>> FrameFeatures(1)(np.array([[0.0], [2.0], [4.0]])).shape
    (3, 2)
    """

    orders: Annotated[int, Range(0, 10)] = 2
    _: KW_ONLY
    mean: bool | tuple[int, ...] = True
    variance: bool = True
    width: SlopeWidth = 2
    constant: Literal["refuse", "keep"] = "refuse"

    def __call__(self, frames: np.ndarray) -> np.ndarray:
        """``(T, D)`` -> ``(T, (1 + orders) D)`` float64."""
        refuse_wrong_arguments(self)
        columns = [numbers_of("frames", frames, "(T, D)")]
        for _ in range(self.orders):
            columns.append(deltas(columns[-1], self.width))
        stacked = np.concatenate(columns, axis=1)
        if self.mean is not False:
            columns_of_mean = self._columns_of_mean(columns[0].shape[1], stacked.shape[1])
            stacked[:, columns_of_mean] -= stacked[:, columns_of_mean].mean(axis=0)
        if not self.variance:
            return stacked
        deviation = stacked.std(axis=0)
        if self.constant == "keep":
            deviation = np.where(deviation > 0, deviation, 1.0)
        if not (deviation > 0).all():
            raise ValueError(
                f"column {int(np.argmin(deviation > 0))} is constant over a sequence of {len(stacked)} frames, so it "
                "has no deviation to be divided by; leave the sequence out, or pass variance=False"
            )
        return np.asarray(stacked / deviation)

    def _columns_of_mean(self, n_columns: int, n_stacked: int) -> list[int]:
        """Those that are taken less their mean, of ``n_stacked``, of which ``n_columns`` are the frames."""
        if isinstance(self.mean, bool):
            return list(range(n_stacked))
        columns = list(self.mean)
        if not all(0 <= column < n_columns for column in columns):
            raise ValueError(f"mean names the columns {columns}, but frames have {n_columns}; pass numbers below that")
        return columns


@dataclass(eq=False, repr=False)
class SpeechFeatures(Configurable):
    """A waveform ``(n,)`` or ``(n, 1)`` in, ``(T, D)`` features out, from which much of who spoke has been taken away.

    The loudest sample is brought to one level and a floor of noise is added to all recordings, so that silence is alike
    in all; cepstra; slopes; and each column less its mean, over its deviation.

    With ``speed``, ``tempo`` and ``mfcc__warp`` one recording is read as another voice might have spoken it:
    ``perturbed`` lists such readings, for ``GenerativeClassifier(training_features=...)``.

    Args:
        sample_rate: in Hz.
        mfcc: cepstra; its ``dither`` is the floor of noise.
        frames: what is made of the cepstra.
        level: of the loudest sample, of full scale 1; None: as recorded.
        speed: as if the recording were played so much faster: all frequencies and the rate of speech times this (Ko et
            al. 2015, *Audio augmentation for speech recognition*).
        tempo: the rate of speech alone, times this: frames are so much further apart.

    >>> SpeechFeatures(8000)(np.sin(np.arange(8000) ** 1.5)).shape
    (98, 39)
    """

    sample_rate: PositiveInt
    _: KW_ONLY
    mfcc: MFCC = field(default_factory=lambda: MFCC(dither=NOISE_FLOOR * 32768))
    frames: FrameFeatures = field(default_factory=FrameFeatures)
    level: PositiveFloat | None = 0.25
    speed: Tempo = 1.0
    tempo: Tempo = 1.0

    def __call__(self, waveform: np.ndarray) -> np.ndarray:
        """``(n,)`` or ``(n, 1)`` floats in [-1, 1] -> ``(T, D)``.

        Raises:
            ValueError: what ``MFCC`` and ``FrameFeatures`` refuse; a waveform of zeros under ``level``; a ``speed`` or
                ``tempo`` that is not above 0.
        """
        refuse_wrong_arguments(self)
        samples = numbers_of("waveform", waveform)
        if samples.ndim == 2 and samples.shape[1] == 1:
            samples = samples[:, 0]
        if self.level is not None:
            loudest = np.abs(samples).max(initial=0.0)
            if not loudest > 0:
                raise ValueError("the waveform has no sample but zeros, so no level; leave it out, or pass level=None")
            samples = samples * (self.level / loudest)
        cepstra = self.mfcc.clone().set_params(hop=self.mfcc.hop * self.tempo)
        return self.frames(cepstra(samples, round(self.sample_rate * self.speed)))

    @checked
    def perturbed(
        self, *, speeds: Iterable[float] = (1.0,), tempos: Iterable[float] = (1.0,), warps: Iterable[float] = (1.0,)
    ) -> list[SpeechFeatures]:
        """Each combination of these factors, on top of its own, but for that in which all are 1.

        >>> SpeechFeatures(8000).perturbed(speeds=(0.8, 1.0, 1.25))
        [SpeechFeatures(sample_rate=8000, speed=0.8), SpeechFeatures(sample_rate=8000, speed=1.25)]
        """
        return [
            self.clone().set_params(
                speed=self.speed * speed, tempo=self.tempo * tempo, mfcc__warp=self.mfcc.warp * warp
            )
            for speed, tempo, warp in product(speeds, tempos, warps)
            if (speed, tempo, warp) != (1.0, 1.0, 1.0)
        ]
