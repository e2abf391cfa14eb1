from __future__ import annotations

import numpy as np
import pytest
from scipy.signal import freqz, welch

from seqmodels.data.formant_synthesis import PHONES, Token, Voice, resonate, synthesise

VOICE = Voice(pitch=100.0, tract=1.0, rate=1.0, tilt=0.0, breath=0.0, channel=(1.0,))


def spoken(*phones: str, duration: float = 0.3) -> tuple[np.ndarray, np.ndarray]:
    tokens = [Token(phone, duration, np.ones(3), 1.0) for phone in phones]
    return synthesise(tokens, VOICE, 8000, np.random.default_rng(0))


def test_a_resonator_at_rest_is_klatts() -> None:
    impulse = np.zeros(4000)
    impulse[0] = 1.0
    response = resonate(impulse, np.full(4000, 1000.0), np.full(4000, 80.0), 8000)
    c = -np.exp(-2 * np.pi * 80 / 8000)
    b = 2 * np.exp(-np.pi * 80 / 8000) * np.cos(2 * np.pi * 1000 / 8000)
    _, wanted = freqz([1 - b - c], [1, -b, -c], worN=2000, fs=8000)
    np.testing.assert_allclose(np.fft.rfft(response)[:2000], wanted, atol=1e-9)


def test_a_moving_resonator_is_the_recursion_written_out() -> None:
    rng = np.random.default_rng(0)
    x, f, w = rng.standard_normal(50), np.linspace(300, 2500, 50), np.linspace(50, 400, 50)
    y = [0.0, 0.0]
    for t in range(50):
        r, angle = np.exp(-np.pi * w[t] / 8000), 2 * np.pi * f[t] / 8000
        poles = r * np.exp(np.array([1j, -1j]) * angle)
        a = np.poly(poles).real
        peak = abs(np.prod(1 - poles * np.exp(-1j * angle)))
        y.append(peak * x[t] - a[1] * y[-1] - a[2] * y[-2])
    np.testing.assert_allclose(resonate(x, f, w, 8000, at_peak=True), y[2:], atol=1e-12)


@pytest.mark.parametrize("phone", ["iy", "eh", "aa", "uw"])
def test_a_vowel_peaks_at_its_formants_and_has_its_pitch(phone: str) -> None:
    waveform, _ = spoken(phone, duration=0.6)
    frequency, power = welch(waveform[400:-400], 8000, nperseg=2048)
    level = 10 * np.log10(power)
    for formant in PHONES[phone].formants[:2]:
        near = level[np.abs(frequency - formant) < 90].max()
        assert near > level[np.abs(frequency - formant - 350) < 90].max() + 3
    spectrum = np.abs(np.fft.rfft(waveform * np.hanning(len(waveform)), 1 << 15))
    low = slice(round(70 * (1 << 15) / 8000), round(140 * (1 << 15) / 8000))
    assert 80 < (low.start + int(np.argmax(spectrum[low]))) * 8000 / (1 << 15) < 125


def test_sibilants_are_high_and_stops_begin_closed() -> None:
    def share_above(phone: str, cut: float) -> float:
        waveform, edges = spoken("aa", phone, "aa")
        frequency, power = welch(waveform[edges[1] + 400 : edges[2] - 400], 8000, nperseg=256)
        return float(power[frequency > cut].sum() / power.sum())

    assert share_above("s", 3000) > 0.8
    assert share_above("sh", 2000) > 0.8
    assert share_above("sh", 3000) < share_above("s", 3000)
    assert share_above("m", 1000) < 0.1
    waveform, edges = spoken("aa", "k", "aa")
    closed, burst = waveform[edges[1] + 400 : edges[1] + 1200], waveform[edges[1] + 1300 : edges[1] + 1600]
    assert closed.std() < 0.02 * burst.std()


def test_formants_glide() -> None:
    waveform, edges = spoken("uw", "iy", duration=0.2)
    steady, boundary = [], edges[1]
    for offset in (-600, 0, 600):
        piece = waveform[boundary + offset - 100 : boundary + offset + 100] * np.hanning(200)
        power = np.abs(np.fft.rfft(piece, 2048)) ** 2
        frequency = np.fft.rfftfreq(2048, 1 / 8000)
        band = (frequency > 650) & (frequency < 2700)
        steady.append(float((frequency * power)[band].sum() / power[band].sum()))
    assert steady[0] + 200 < steady[1] < steady[2] - 200
