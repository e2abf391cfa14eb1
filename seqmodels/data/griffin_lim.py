"""Waveforms from magnitude spectra without phases: a signal ``x`` whose ``|STFT(x)|`` is close to given magnitudes."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from seqmodels.common.array_checks import numbers_of
from seqmodels.common.parameters import PositiveInt, Range, Seed, checked
from seqmodels.data.mfcc import FULL_SCALE, MFCC

Iterations = Annotated[int, Range(0, 10_000)]
SampleRate = Annotated[int, Range(1, 10_000_000)]  # in Hz; recordings of bats need 500,000
MIN_WEIGHT = 1e-8  # a sample whose squared windows sum to less lies in no window


@checked
def from_mfcc(
    cepstra: np.ndarray,
    sample_rate: SampleRate,
    mfcc: MFCC | None = None,
    *,
    n_iter: Iterations = 60,
    random_state: Seed = 0,
) -> np.ndarray:
    """Return a waveform in [-1, 1] whose cepstra are close to the given ones.

    It has shape ``(n,)`` with ``n = window + (T - 1) hop`` samples. The coefficients that were left out are taken as
    zero, which smooths the spectrum. So the waveform has the spectral envelope of the original sound, and thus its
    vowels, but its pitch only if the filters resolved the harmonics.

    Args:
        cepstra: cepstra, shape ``(T, n_coefficients)``.
        sample_rate: sample rate in Hz of the recordings that the cepstra come from.
        mfcc: how the cepstra were computed; None means ``MFCC()``.
        n_iter: number of iterations of ``griffin_lim``.
        random_state: seed of the first phases.

    Raises:
        ValueError: the frames do not have the width that ``mfcc`` produces, or are not finite.
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
    """Return a waveform in [-1, 1], shape ``(n,)``, whose log mel energies are close to the given ones.

    The filters are inverted by their pseudo-inverse, with negative energies set to zero. Phases are found by
    ``griffin_lim``, and pre-emphasis is undone. A waveform that would exceed full scale is scaled down.

    Args:
        log_energies: natural logarithms of mel energies, shape ``(T, n_filters)``.
        sample_rate: sample rate in Hz of the recordings that the energies come from.
        mfcc: how the energies were computed; None means ``MFCC()``.
        n_iter: number of iterations of ``griffin_lim``.
        random_state: seed of the first phases.

    Raises:
        ValueError: the frames do not have the width that ``mfcc`` produces, or are not finite.
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
    """Return a signal, shape ``(n,)`` with ``n = width + (T - 1) hop``, whose spectra have about the given magnitudes.

    It starts from random phases and alternates two steps: the signal whose spectra are closest to the magnitudes with
    these phases in squared error, and the phases of that signal's spectra. The squared error of the magnitudes never
    grows.

    Args:
        magnitudes: magnitudes of T spectra at F frequencies, shape ``(T, F)`` with ``F = n_fft // 2 + 1`` and ``n_fft``
            at least ``width``.
        width: number of samples in the Hann window.
        hop: number of samples from one window to the next, at most ``width // 2``.
        n_iter: number of iterations.
        random_state: seed of the first phases.

    Raises:
        ValueError: ``width`` or ``hop`` does not fit the magnitudes.

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
    """Return the complex short-time spectra of a signal ``(n,)`` at F frequencies, shape ``(T, F)``.

    Frame t begins at sample ``t * hop`` and is multiplied by a Hann window of ``width`` samples, padded to ``n_fft``.
    """
    frames = np.lib.stride_tricks.sliding_window_view(signal, width)[::hop]
    return np.fft.rfft(frames * _hann(width), n_fft)


def _signal(target: np.ndarray, width: int, hop: int) -> np.ndarray:
    """Return the signal, shape ``(n,)``, whose spectra are closest to given complex spectra in squared error.

    Args:
        target: the spectra, shape ``(T, F)``.
        width: number of samples in the Hann window.
        hop: number of samples from one window to the next.
    """
    frames = np.fft.irfft(target)[:, :width] * _hann(width)  # samples beyond the window are dropped: they are padding
    weight = _weight(len(frames), width, hop)
    return _overlapped(frames, hop) / np.where(weight < MIN_WEIGHT, 1.0, weight)


def _weight(n_frames: int, width: int, hop: int) -> np.ndarray:
    """Return the sum of the squared windows that overlap at each sample, shape ``(n,)``, for ``n_frames`` frames.

    A window has ``width`` samples and begins ``hop`` samples after the one before it.
    """
    return _overlapped(np.broadcast_to(_hann(width) ** 2, (n_frames, width)), hop)


def _fade(n_frames: int, width: int, hop: int) -> np.ndarray:
    """Return a weight for each sample, shape ``(n,)``, that rises from 0 at both ends to 1.

    At the ends a single window is almost zero, which magnifies errors.

    Args:
        n_frames: number of frames.
        width: number of samples in a window.
        hop: number of samples from one window to the next.
    """
    weight = _weight(n_frames, width, hop)
    weight /= weight.max()
    return weight


def _overlapped(frames: np.ndarray, hop: int) -> np.ndarray:
    """Add frames, shape ``(T, width)``, placed ``hop`` samples apart, into one signal, shape ``(n,)``."""
    n_frames, width = frames.shape
    samples = np.zeros(width + (n_frames - 1) * hop)
    at = np.arange(n_frames)[:, None] * hop + np.arange(width)
    np.add.at(samples, at, frames)
    return samples


def _hann(width: int) -> np.ndarray:
    """Return a periodic Hann window, shape ``(width,)``, the same as in ``MFCC``."""
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
