"""Waveforms from frames: an exact inverse where phases are known, a falling error, a vowel that keeps its formants."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.fft import idct
from scipy.signal import stft

from seqmodels.data import MFCC
from seqmodels.data.formant_synthesis import Token, Voice, synthesise
from seqmodels.data.griffin_lim import from_log_mel, from_mfcc, griffin_lim, spectra

RATE = 8000
HOW = MFCC(dither=0.0)
WIDTH, HOP = HOW.frame(RATE)


def vowel(phone: str) -> np.ndarray:
    voice = Voice(pitch=110.0, tract=1.0, rate=1.0, tilt=0.1, breath=0.01, channel=(1.0,))
    wave, _ = synthesise([Token(phone, 0.4, np.ones(3), 1.0)], voice, RATE, np.random.default_rng(0))
    return 0.3 * wave / np.abs(wave).max()


def envelope(wave: np.ndarray) -> np.ndarray:
    """``(n_filters,)`` mean log mel energy over the steady middle."""
    full = MFCC(40, dither=1.0)
    cepstra = full(wave, RATE)[10:-10]
    return idct(cepstra, type=2, norm="ortho", axis=1).mean(axis=0)


def spectral_error(signal: np.ndarray, magnitudes: np.ndarray, width: int, hop: int) -> float:
    """``|| |STFT(x)| - magnitudes || / || magnitudes ||``, over the whole spectrum."""
    difference = np.abs(spectra(signal, width, hop, 2 * (magnitudes.shape[1] - 1))) - magnitudes
    weights = np.full(magnitudes.shape[1], 2.0)
    weights[[0, -1]] = 1.0  # negative frequencies mirror all but the first and the last
    return float(np.sqrt((difference**2 @ weights).sum() / (magnitudes**2 @ weights).sum()))


def test_spectra_are_scipys():
    x = np.random.default_rng(0).standard_normal(WIDTH + 5 * HOP)
    _, _, theirs = stft(
        x, window="hann", nperseg=WIDTH, noverlap=WIDTH - HOP, nfft=256, boundary=None, padded=False, scaling="spectrum"
    )
    mine = spectra(x, WIDTH, HOP, 256)
    assert mine / (WIDTH / 2) == pytest.approx(theirs.T)  # scipy divides by the sum of the window


def test_the_error_never_grows_and_falls_far():
    magnitudes = np.abs(spectra(vowel("aa"), WIDTH, HOP, HOW.n_fft(RATE)))
    errors = [
        spectral_error(griffin_lim(magnitudes, WIDTH, HOP, n_iter=n), magnitudes, WIDTH, HOP)
        for n in (0, 1, 2, 5, 20, 60)
    ]
    assert all(later <= sooner + 1e-12 for sooner, later in pairwise(errors))
    assert errors[-1] < 0.25 * errors[0]


@pytest.mark.parametrize("phone", ["iy", "aa", "uw"])
def test_a_vowel_keeps_its_envelope(phone: str):
    wave = vowel(phone)
    heard = from_mfcc(HOW(wave, RATE), RATE, HOW)
    assert len(heard) == WIDTH + (len(HOW(wave, RATE)) - 1) * HOP
    was, now = envelope(wave), envelope(heard)
    others = [envelope(vowel(other)) for other in ("iy", "aa", "uw") if other != phone]
    assert np.corrcoef(was, now)[0, 1] > 0.9
    assert all(np.linalg.norm(was - now) < np.linalg.norm(other - now) for other in others)


def test_log_mel_energies_come_back():
    full = MFCC(40, dither=0.0)
    wave = vowel("ae")
    wanted = idct(full(wave, RATE), type=2, norm="ortho", axis=1)
    again = idct(full(from_log_mel(wanted, RATE, full), RATE), type=2, norm="ortho", axis=1)
    loud = wanted > wanted.max() - 7  # 30 dB
    assert np.abs(again - wanted)[loud].mean() < 0.5


def test_it_is_the_level_of_the_recording_and_within_full_scale():
    wave = vowel("aa")
    heard = from_mfcc(HOW(wave, RATE), RATE, HOW)
    assert 0.5 < heard.std() / wave.std() < 2.0
    loud = HOW(wave, RATE)
    loud[:, 0] += 60
    assert np.abs(from_mfcc(loud, RATE, HOW)).max() == pytest.approx(1.0)


def test_what_cannot_be_is_said():
    with pytest.raises(ValueError, match=r"shape \(5, 12\), but n_coefficients is 13"):
        from_mfcc(np.zeros((5, 12)), RATE)
    with pytest.raises(ValueError, match="frame 1 is not finite"):
        from_mfcc(np.where(np.arange(3)[:, None] == 1, np.nan, np.zeros((3, 13))), RATE)
    with pytest.raises(ValueError, match="at most half the window"):
        griffin_lim(np.ones((3, 129)), 200, 150)
