"""Waveforms from spectra without phases: ``x`` whose ``|STFT(x)|`` is close to given magnitudes."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from seqmodels.common.array_checks import numbers_of
from seqmodels.common.parameters import PositiveInt, Range, Seed, checked
from seqmodels.data.mfcc import FULL_SCALE, MFCC

Iterations = Annotated[int, Range(0, 10_000)]
SampleRate = Annotated[int, Range(1, 10_000_000)]  # in Hz; bats need 500,000
MIN_WEIGHT = 1e-8  # a sum of squared windows below which a sample lies in no window


@checked
def from_mfcc(
    cepstra: np.ndarray,
    sample_rate: SampleRate,
    mfcc: MFCC | None = None,
    *,
    n_iter: Iterations = 60,
    random_state: Seed = 0,
) -> np.ndarray:
    """The ``(n,)`` waveform, in [-1, 1], of cepstra ``(T, n_coefficients)``, ``n = window + (T - 1) hop`` samples.

    The coefficients that were left out are taken as zero, which smooths the spectrum: what is heard has the envelope
    of the sound, and so its vowels, but its pitch only where the filters told the harmonics apart.

    Args:
        sample_rate: in Hz, of the recordings that the cepstra are of.
        mfcc: how the cepstra were computed; ``None`` is ``MFCC()``.
        n_iter, random_state: as in ``griffin_lim``.

    Raises:
        ValueError: frames of another width than ``mfcc`` makes, or that are not finite.
    """
    from scipy.fft import idct

    how = MFCC() if mfcc is None else mfcc
    frames = _checked("cepstra", cepstra, how.n_coefficients, "n_coefficients")
    missing = np.zeros((len(frames), how.n_filters - how.n_coefficients))
    log_mel = idct(np.concatenate([frames, missing], axis=1), type=2, norm="ortho", axis=1)
    return from_log_mel(log_mel, sample_rate, how, n_iter=n_iter, random_state=random_state)


@checked
def from_log_mel(
    log_energies: np.ndarray,
    sample_rate: SampleRate,
    mfcc: MFCC | None = None,
    *,
    n_iter: Iterations = 60,
    random_state: Seed = 0,
) -> np.ndarray:
    """The ``(n,)`` waveform of natural logarithms of mel energies ``(T, n_filters)``; the arguments of ``from_mfcc``.

    The filters are undone by their pseudo-inverse, cut at zero, the phases are found by ``griffin_lim``, and
    pre-emphasis is taken back. What would exceed full scale is brought below it.
    """
    from scipy.signal import lfilter  # lazily: slow to import, and few need it

    how = MFCC() if mfcc is None else mfcc
    energies = np.exp(_checked("log_energies", log_energies, how.n_filters, "n_filters"))
    power = (energies @ np.linalg.pinv(how.filters(sample_rate)).T).clip(min=0)  # (T, F)
    width, hop = how.frame(sample_rate)
    emphasised = griffin_lim(np.sqrt(power), width, hop, n_iter=n_iter, random_state=random_state)
    faded = emphasised * _fade(len(power), width, hop)
    samples: np.ndarray = lfilter([1.0], [1.0, -how.pre_emphasis], faded) / FULL_SCALE
    samples /= max(1.0, np.abs(samples).max())
    return samples


@checked
def griffin_lim(
    magnitudes: np.ndarray,
    width: PositiveInt,
    hop: PositiveInt,
    *,
    n_iter: Iterations = 60,
    random_state: Seed = 0,
) -> np.ndarray:
    """The ``(n,)`` signal, ``n = width + (T - 1) hop``, whose spectra have about these ``magnitudes (T, F)``.

    From random phases, in turn: the signal whose spectra are closest to magnitudes and phases in squares, and the
    phases of its spectra. The error of the spectra's magnitudes never grows.

    Args:
        magnitudes: of ``F = n_fft // 2 + 1`` frequencies, ``n_fft`` at least ``width``.
        width, hop: samples in the Hann window and from one to the next; ``hop`` at most ``width / 2``, for what is in
            no window is not known.
        random_state: of the first phases.

    Griffin and Lim (1984), Signal estimation from modified short-time Fourier transform.
    """
    magnitudes = numbers_of("magnitudes", magnitudes, "(T, F)")
    if not hop <= width // 2 or width > 2 * (magnitudes.shape[1] - 1):
        raise ValueError(
            f"a hop of {hop} and a window of {width} samples do not fit {magnitudes.shape[1]} frequencies; the hop is "
            f"at most half the window, and the window at most {2 * (magnitudes.shape[1] - 1)}"
        )
    phases = np.random.default_rng(random_state).uniform(0, 2 * np.pi, magnitudes.shape)
    signal = _signal(magnitudes * np.exp(1j * phases), width, hop)
    for _ in range(n_iter):
        phases = np.angle(spectra(signal, width, hop, 2 * (magnitudes.shape[1] - 1)))
        signal = _signal(magnitudes * np.exp(1j * phases), width, hop)
    return signal


def spectra(signal: np.ndarray, width: int, hop: int, n_fft: int) -> np.ndarray:
    """``(T, F)`` complex spectra of a signal ``(n,)``: frame t begins at sample ``t * hop``."""
    frames = np.lib.stride_tricks.sliding_window_view(signal, width)[::hop]
    return np.fft.rfft(frames * _hann(width), n_fft)


def _signal(target: np.ndarray, width: int, hop: int) -> np.ndarray:
    """The signal whose spectra are closest to ``target (T, F)`` in squares."""
    frames = np.fft.irfft(target)[:, :width] * _hann(width)  # what lies beyond the window is no part of a signal
    weight = _weight(len(frames), width, hop)
    return _overlapped(frames, hop) / np.where(weight < MIN_WEIGHT, 1.0, weight)


def _weight(n_frames: int, width: int, hop: int) -> np.ndarray:
    """``(n,)`` sums of squared windows."""
    return _overlapped(np.broadcast_to(_hann(width) ** 2, (n_frames, width)), hop)


def _fade(n_frames: int, width: int, hop: int) -> np.ndarray:
    """From 0, at the ends, where one window is almost zero and errors are magnified, to 1."""
    weight = _weight(n_frames, width, hop)
    weight /= weight.max()
    return weight


def _overlapped(frames: np.ndarray, hop: int) -> np.ndarray:
    """``(n,)``: frames ``(T, width)`` laid ``hop`` apart and added."""
    n_frames, width = frames.shape
    samples = np.zeros(width + (n_frames - 1) * hop)
    at = np.arange(n_frames)[:, None] * hop + np.arange(width)
    np.add.at(samples, at, frames)
    return samples


def _hann(width: int) -> np.ndarray:
    """A periodic Hann window ``(width,)``, as in ``MFCC``."""
    return 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(width) / width)


def _checked(what: str, frames: np.ndarray, width: int, name: str) -> np.ndarray:
    array = numbers_of(what, frames)
    if array.ndim != 2 or array.shape[1] != width:
        raise ValueError(
            f"the frames have shape {array.shape}, but {name} is {width}; pass (T, {width}), or the MFCC they are of"
        )
    if not np.isfinite(array).all():
        raise ValueError(f"frame {int(np.argmin(np.isfinite(array).all(axis=1)))} is not finite; fill it in first")
    return array
