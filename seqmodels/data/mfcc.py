"""Mel-frequency cepstra of a waveform: ``c = DCT(log(filters |STFT(emphasised x)|^2))``."""

from __future__ import annotations

import zlib
from typing import Annotated

import numpy as np
import torch

from seqmodels.common.array_checks import numbers_of
from seqmodels.common.parameters import (
    Configurable,
    NotNegativeFloat,
    Range,
    Seed,
    checked,
    refuse_wrong_arguments,
)

FULL_SCALE = 32768.0  # waveforms in [-1, 1] are analysed in units of the least significant of 16 bits
WARPED_PART = 0.6  # a warp is a factor up to this share of half the sample rate (4800 Hz at 16 kHz, as published)

Seconds = Annotated[float, Range(0, 60, may_be_low=False)]
SlopeWidth = Annotated[int, Range(1, 10_000)]  # frames to either side


class MFCC(Configurable):
    """A transformation of n samples of a waveform into ``T = 1 + (n - window) // hop`` frames of mel-frequency cepstra.

    The result has shape ``(T, n_coefficients)`` and is float64. The steps are dither, pre-emphasis, a Hann window, the
    power spectrum (zero-padded to a power of two), triangular filters whose corners are equally spaced in mel,
    ``2595 log10(1 + f / 700)``, the natural logarithm, and an orthonormal DCT-II without liftering. Coefficient 0 is
    the mean log energy of the filters times the square root of ``n_filters``. Every frame lies within the waveform;
    frame t begins at sample t * hop.

    Args:
        n_coefficients: number D of coefficients, from the lowest; at most ``n_filters``.
        n_filters: number of mel filters.
        window: length of the window in seconds, rounded to samples.
        hop: distance between the beginnings of two frames in seconds, rounded to samples.
        low: lower end of the filters' band in Hz.
        high: upper end of the filters' band in Hz; None means half the sample rate.
        pre_emphasis: factor a in ``x_t - a x_{t-1}``; 0 means none.
        dither: standard deviation of the Gaussian noise that is added, in units of the least significant of 16 bits. It
            keeps digital silence from having zero energy, which has no logarithm. 0 means none.
        random_state: seed of the dither. The noise depends on the seed and on the waveform, not on earlier calls.
        warp: factor above 0 that multiplies the filters' frequencies up to 0.6 of half the sample rate; above that they
            are mapped linearly so that half the sample rate stays fixed. A factor between 0.8 and 1.25 imitates a vocal
            tract of another length, so that recordings of few speakers can stand for more.

    Raises:
        ValueError: on a call, if the waveform is shorter than a window, the filters are too narrow for the spectrum, or
            a frame has no energy.

    Davis and Mermelstein (1980), Comparison of parametric representations for monosyllabic word recognition. Jaitly and
    Hinton (2013), Vocal tract length perturbation (VTLP) improves speech recognition.

    >>> MFCC()(np.sin(np.arange(8000)), 8000).shape
    (98, 13)
    """

    def __init__(
        self,
        n_coefficients: int = 13,
        n_filters: int = 40,
        *,
        window: Seconds = 0.025,
        hop: Seconds = 0.010,
        low: float = 20.0,
        high: float | None = None,
        pre_emphasis: Annotated[float, Range(0, 1)] = 0.97,
        dither: NotNegativeFloat = 1.0,
        random_state: Seed = 0,
        warp: float = 1.0,
    ) -> None:
        self.n_coefficients = n_coefficients
        self.n_filters = n_filters
        self.window = window
        self.hop = hop
        self.low = low
        self.high = high
        self.pre_emphasis = pre_emphasis
        self.dither = dither
        self.random_state = random_state
        self.warp = warp

    @checked
    def __call__(self, waveform: np.ndarray, sample_rate: int) -> np.ndarray:
        """Return the cepstra of a waveform at each of T frames, shape ``(T, n_coefficients)``, float64.

        Args:
            waveform: samples, shape ``(n,)``, floats in [-1, 1] or int16.
            sample_rate: the sample rate in Hz.

        Raises:
            ValueError: the waveform is shorter than a window, a frame has no energy, or an argument does not fit.
        """
        from scipy.fft import dct

        self._check()
        samples = _as_samples(waveform)
        width, hop = self.frame(sample_rate)
        if width < 2 or hop < 1:
            raise ValueError(
                f"at {sample_rate} Hz a window of {self.window} s has {width} samples and a hop of {self.hop} s has "
                f"{hop}; pass the real sample rate, or a longer window and hop"
            )
        if len(samples) < width:
            raise ValueError(
                f"the waveform has {len(samples)} samples but a window of {self.window} s at {sample_rate} Hz has "
                f"{width}; leave it out or pass a shorter window"
            )
        power = self._power(self._emphasised(self._dithered(samples)), sample_rate)  # (T, F)
        energy = power @ self.filters(sample_rate).T  # (T, n_filters)
        if not (energy > 0).all():
            frame = int(np.argmax((energy <= 0).any(axis=1)))
            raise ValueError(f"frame {frame} has no energy in some filter; pass dither=1.0")
        return dct(np.log(energy), type=2, norm="ortho", axis=1)[:, : self.n_coefficients]

    def frame(self, sample_rate: int) -> tuple[int, int]:
        """Return the number of samples in a window, and in a hop from one window to the next.

        Args:
            sample_rate: the sample rate in Hz.
        """
        return round(self.window * sample_rate), round(self.hop * sample_rate)

    def n_fft(self, sample_rate: int) -> int:
        """Return the length of the Fourier transform: the samples of a window, padded to a power of two.

        A spectrum has ``F = n_fft // 2 + 1`` frequencies. The sample rate is in Hz.
        """
        return 1 << (self.frame(sample_rate)[0] - 1).bit_length()

    def _check(self) -> None:
        refuse_wrong_arguments(self)
        if not 1 <= self.n_coefficients <= self.n_filters:
            raise ValueError(
                f"n_coefficients is {self.n_coefficients}; pass 1 to {self.n_filters}, the number of filters"
            )
        if not 0 < self.warp < np.inf:
            raise ValueError(f"warp is {self.warp}; pass a factor above 0, 1 for none")

    def _dithered(self, samples: np.ndarray) -> np.ndarray:
        if self.dither == 0:
            return samples
        # Seeded by the content too: two files that share a silence must not share its noise, frame by frame.
        rng = np.random.default_rng([self.random_state, zlib.crc32(samples.tobytes())])
        return samples + self.dither * rng.standard_normal(len(samples))

    def _emphasised(self, samples: np.ndarray) -> np.ndarray:
        previous = np.concatenate([samples[:1], samples[:-1]])  # the sample before the first is taken to equal it
        return samples - self.pre_emphasis * previous

    def _power(self, samples: np.ndarray, sample_rate: int) -> np.ndarray:
        width, hop = self.frame(sample_rate)
        n_fft = self.n_fft(sample_rate)
        n_before = (n_fft - width) // 2  # stft centres a short window in n_fft samples; this lets it start at sample 0
        padded = np.pad(samples, (n_before, n_fft - width - n_before))
        spectrum = torch.stft(
            torch.from_numpy(padded),
            n_fft,
            hop_length=hop,
            win_length=width,
            window=torch.hann_window(width, dtype=torch.float64),
            center=False,
            return_complex=True,
        )  # (F, T)
        return spectrum.abs().square().T.numpy()

    @checked
    def filters(self, sample_rate: int) -> np.ndarray:
        """Return the triangular mel filters over the F frequencies of a spectrum, shape ``(n_filters, F)``.

        They have height one and are linear in Hz.

        Args:
            sample_rate: the sample rate in Hz.

        Raises:
            ValueError: the band or the number of filters does not fit the sample rate.
        """
        self._check()
        n_fft = self.n_fft(sample_rate)
        high = sample_rate / 2 if self.high is None else self.high
        if not 0 <= self.low < high <= sample_rate / 2:
            raise ValueError(
                f"the band {self.low} to {high} Hz does not lie between 0 and {sample_rate / 2} Hz, half the sample "
                "rate"
            )
        if self.n_filters > n_fft // 2 + 1:
            raise ValueError(
                f"n_filters is {self.n_filters:,}, but the spectrum has {n_fft // 2 + 1:,} frequencies; pass fewer "
                "n_filters or a longer window"
            )
        corners = _warped(_hertz(np.linspace(_mel(self.low), _mel(high), self.n_filters + 2)), self.warp, sample_rate)
        frequency = np.arange(n_fft // 2 + 1) * (sample_rate / n_fft)
        lower, centre, upper = corners[:-2, None], corners[1:-1, None], corners[2:, None]
        filters: np.ndarray = np.minimum(
            (frequency - lower) / (centre - lower), (upper - frequency) / (upper - centre)
        ).clip(min=0)
        if not filters.any(axis=1).all():
            narrow = int(np.argmin(filters.any(axis=1)))
            raise ValueError(
                f"filter {narrow} of {self.n_filters} lies between two frequencies of the spectrum "
                f"({sample_rate / n_fft:.1f} Hz apart); pass fewer n_filters or a longer window"
            )
        return filters


def _warped(frequency: np.ndarray, warp: float, sample_rate: float) -> np.ndarray:
    """Return frequencies in Hz multiplied by ``warp`` up to a bound, and mapped linearly above it.

    Half the sample rate stays fixed.

    Args:
        frequency: frequencies in Hz, of any shape.
        warp: factor above 0.
        sample_rate: the sample rate in Hz.
    """
    half = sample_rate / 2
    image = WARPED_PART * half * min(warp, 1.0)  # of the bound
    bound = image / warp
    above = half - (half - image) / (half - bound) * (half - frequency)
    return np.where(frequency <= bound, warp * frequency, above)


@checked
def deltas(features: np.ndarray, width: SlopeWidth = 2) -> np.ndarray:
    """Return the slopes of D features over time at each of T frames, shape ``(T, D)``, without the features themselves.

    The slope at frame t is ``sum_k k (c_{t+k} - c_{t-k}) / (2 sum_k k^2)`` with k from 1 to ``width``. The first and
    last frames are repeated beyond the ends. ``recordings.map(lambda x: np.hstack([x, deltas(x)]))`` appends them to
    the features of every sequence. Slopes carry no new information, so a density of 13 cepstra and their slopes is not
    comparable with a density of the cepstra.

    Args:
        features: features, shape ``(T, D)``.
        width: number of frames to either side that a slope is fitted to.

    >>> deltas(np.arange(6.0)[:, None])[2:4, 0]
    array([1., 1.])
    """
    features = numbers_of("features", features, "(T, D)")
    n_frames = len(features)
    padded = np.pad(features, ((width, width), (0, 0)), mode="edge")
    weighted = np.zeros(features.shape)
    for k in range(1, width + 1):
        weighted += k * (padded[width + k : width + k + n_frames] - padded[width - k : width - k + n_frames])
    return weighted / (2 * sum(k * k for k in range(1, width + 1)))


def _as_samples(waveform: np.ndarray) -> np.ndarray:
    array = np.asarray(waveform)
    if array.ndim != 1 or array.dtype.kind not in "fi":
        raise ValueError(
            f"the waveform has shape {array.shape} and type {array.dtype}; pass (n,) floats in [-1, 1] or int16"
        )
    if array.dtype.kind == "i" and array.dtype != np.int16:
        raise ValueError(f"the waveform is {array.dtype}; pass int16, or floats in [-1, 1]")
    samples = array.astype(np.float64) * (FULL_SCALE if array.dtype.kind == "f" else 1.0)
    if not np.isfinite(samples).all():
        raise ValueError(f"the waveform is not finite at sample {int(np.argmin(np.isfinite(samples)))}")
    return samples


def _mel(hertz: float) -> float:
    return 2595.0 * float(np.log10(1.0 + hertz / 700.0))


def _hertz(mel: np.ndarray) -> np.ndarray:
    return 700.0 * (10.0 ** (mel / 2595.0) - 1.0)
