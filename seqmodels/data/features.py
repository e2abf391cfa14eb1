"""Features of whole recordings for a classifier: slopes, and normalisation of each recording."""

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
NOISE_FLOOR = 0.004  # standard deviation of the added noise, as a share of full scale


@dataclass(eq=False, repr=False)
class FrameFeatures(Configurable):
    """A transformation of frames into the frames and their slopes over time: ``(T, D)`` to ``(T, (1 + orders) D)``.

    There are T frames of D features, such as cepstra. The slopes of slopes and so on are appended up to ``orders``.
    Every number depends on the whole sequence, so this is not an encoding: a likelihood of the features is not
    comparable with one of the frames. It is meant for ``GenerativeClassifier(features=...)``, where all labels share
    it.

    Args:
        orders: 0 for the frames alone, 1 to append their slopes (``deltas``), 2 to append the slopes of the slopes too.
        mean: True to subtract from each column its mean over the sequence, because a channel or a speaker adds a
            constant to all frames of cepstra (Atal 1974). A tuple lists the columns of the frames that this applies to;
            ``(0,)`` is the energy of cepstra. False subtracts nothing.
        variance: True to divide each column by its standard deviation over the sequence (Viikki and Laurila 1998,
            *Cepstral domain segmental feature vector normalization for noise robust speech recognition*).
        width: number of frames to either side that a slope is fitted to.
        constant: what ``variance`` does with a column that is constant over a sequence: ``"refuse"`` raises an error,
            and ``"keep"`` does not divide the column.

    Raises:
        ValueError: on a call, if a column is constant over a sequence under ``variance`` and ``constant="refuse"``, or
            ``mean`` lists columns that the frames do not have.

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
        """Return the frames and their slopes, normalised over the sequence, float64, shape ``(T, (1 + orders) D)``.

        Args:
            frames: T frames of D features, shape ``(T, D)``.

        Raises:
            ValueError: a column is constant and cannot be normalised, or an argument of the constructor is invalid.
        """
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
        """Return the positions of the columns from which the mean is subtracted.

        Args:
            n_columns: number of columns of the frames.
            n_stacked: number of columns of the frames and all slopes.

        Raises:
            ValueError: ``mean`` lists columns that the frames do not have.
        """
        if isinstance(self.mean, bool):
            return list(range(n_stacked))
        columns = list(self.mean)
        if not all(0 <= column < n_columns for column in columns):
            raise ValueError(f"mean names the columns {columns}, but frames have {n_columns}; pass numbers below that")
        return columns


@dataclass(eq=False, repr=False)
class SpeechFeatures(Configurable):
    """A transformation of a waveform into T frames of D features without much of the speaker's identity, ``(T, D)``.

    The waveform is scaled so that its loudest sample has the same level in all recordings, and noise is added so that
    silence is alike in all. Then follow cepstra, slopes, and normalisation of each column to mean 0 and deviation 1.

    With ``speed``, ``tempo`` and ``mfcc__warp`` a recording is changed as if another voice had spoken it; ``perturbed``
    lists such variants for ``GenerativeClassifier(training_features=...)``.

    Args:
        sample_rate: the sample rate in Hz.
        mfcc: how cepstra are computed; its ``dither`` is the added noise.
        frames: how features are made of the cepstra.
        level: level of the loudest sample, where full scale is 1; None keeps the recorded level.
        speed: factor by which the recording is played faster, which multiplies all frequencies and the rate of speech
            (Ko et al. 2015, *Audio augmentation for speech recognition*).
        tempo: factor on the rate of speech alone, which multiplies the distance between frames.

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
        """Return the features of a waveform: T frames of D features, shape ``(T, D)``.

        Args:
            waveform: samples, floats in [-1, 1], shape ``(n,)`` or ``(n, 1)``.

        Raises:
            ValueError: the waveform is all zeros and ``level`` is given, an argument of the constructor is invalid, or
                ``MFCC`` or ``FrameFeatures`` refuses the waveform.
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
        """Return a variant of these features, which imitates another voice, for each combination of factors.

        The combination of ones, which changes nothing, is left out.

        Args:
            speeds: factors that multiply ``speed``.
            tempos: factors that multiply ``tempo``.
            warps: factors that multiply ``mfcc__warp``, the warp of the filters' frequencies.

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
