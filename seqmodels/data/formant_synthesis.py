"""A source-filter speech synthesiser: pulses or noise through resonators, ``y_t = a x_t + b y_{t-1} + c y_{t-2}``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

CONTROL = 0.005  # seconds between two points of a formant's track
GLIDE = 0.035  # seconds that a formant takes from one target to the next
ONSET = 0.008  # seconds that an amplitude takes from one level to the next
OVERSAMPLING = 4  # factor for the glottal pulse, because its closure is sharper than a sample


@dataclass(frozen=True)
class Stage:
    """One part of a phone (speech sound) during which its sound sources are steady.

    Args:
        share: share of the phone's duration.
        voicing: amplitude of the glottal pulses.
        frication: amplitude of the noise that bypasses the formants.
        aspiration: amplitude of the noise that passes through the formants.
    """

    share: float
    voicing: float
    frication: float = 0.0
    aspiration: float = 0.0


@dataclass(frozen=True)
class Phone:
    """The parameters from which the synthesizer makes one phone (speech sound).

    Args:
        duration: mean duration in seconds.
        formants: frequencies of F1 to F3 in Hz for an adult male vocal tract.
        bandwidths: bandwidths of F1 to F3 in Hz.
        stages: parts with steady sound sources, in the order of time; only stops have more than one.
        noise: center and bandwidth in Hz of the frication noise, which bypasses the formants.
    """

    duration: float
    formants: tuple[float, float, float]
    bandwidths: tuple[float, float, float]
    stages: tuple[Stage, ...]
    noise: tuple[float, float] = (2000.0, 2000.0)


def _vowel(duration: float, *formants: float) -> Phone:
    f1, f2, f3 = formants
    return Phone(duration, (f1, f2, f3), (60.0, 90.0, 150.0), (Stage(1.0, 1.0),))


def _sonorant(
    duration: float, amplitude: float, formants: tuple[float, float, float], bandwidths: tuple[float, float, float]
) -> Phone:
    return Phone(duration, formants, bandwidths, (Stage(1.0, amplitude),))


def _fricative(
    duration: float,
    formants: tuple[float, float, float],
    noise: tuple[float, float],
    amplitude: float,
    voicing: float = 0.0,
) -> Phone:
    return Phone(duration, formants, (200.0, 120.0, 200.0), (Stage(1.0, voicing, amplitude, 0.004),), noise)


def _stop(duration: float, voiced: bool, formants: tuple[float, float, float], noise: tuple[float, float]) -> Phone:
    if voiced:
        stages = (Stage(0.70, 0.10), Stage(0.12, 0.15, 0.20), Stage(0.18, 0.60))
    else:
        stages = (Stage(0.55, 0.0), Stage(0.10, 0.0, 0.30), Stage(0.35, 0.0, 0.02, 0.04))
    return Phone(duration, formants, (150.0, 120.0, 200.0), stages, noise)


# Vowels: the men of Peterson and Barney (1952), table II. Consonants: after Klatt (1980), table III, noise
# centres brought below 4 kHz so that telephone speech still tells them apart.
PHONES: dict[str, Phone] = {
    "sil": Phone(0.12, (500.0, 1500.0, 2500.0), (200.0, 200.0, 200.0), (Stage(1.0, 0.0),)),
    "iy": _vowel(0.130, 270, 2290, 3010),
    "ih": _vowel(0.090, 390, 1990, 2550),
    "eh": _vowel(0.110, 530, 1840, 2480),
    "ae": _vowel(0.150, 660, 1720, 2410),
    "aa": _vowel(0.150, 730, 1090, 2440),
    "ao": _vowel(0.140, 570, 840, 2410),
    "uw": _vowel(0.130, 300, 870, 2240),
    "er": _vowel(0.130, 490, 1350, 1690),
    "m": _sonorant(0.070, 0.45, (280.0, 1270.0, 2130.0), (60.0, 250.0, 250.0)),
    "n": _sonorant(0.070, 0.45, (280.0, 1540.0, 2470.0), (60.0, 350.0, 350.0)),
    "l": _sonorant(0.065, 0.60, (310.0, 1050.0, 2880.0), (50.0, 100.0, 280.0)),
    "r": _sonorant(0.065, 0.60, (310.0, 1060.0, 1380.0), (70.0, 100.0, 120.0)),
    "w": _sonorant(0.065, 0.55, (290.0, 610.0, 2150.0), (50.0, 80.0, 60.0)),
    "f": _fricative(0.100, (340.0, 1100.0, 2080.0), (2000.0, 4000.0), 0.04),
    "s": _fricative(0.110, (320.0, 1390.0, 2530.0), (3600.0, 700.0), 0.14),
    "sh": _fricative(0.110, (300.0, 1840.0, 2750.0), (2600.0, 700.0), 0.20),
    "z": _fricative(0.080, (240.0, 1390.0, 2530.0), (3500.0, 800.0), 0.08, voicing=0.25),
    "p": _stop(0.100, False, (400.0, 1100.0, 2150.0), (900.0, 1500.0)),
    "t": _stop(0.105, False, (400.0, 1600.0, 2600.0), (3500.0, 1000.0)),
    "k": _stop(0.110, False, (300.0, 1990.0, 2850.0), (1900.0, 600.0)),
    "b": _stop(0.075, True, (200.0, 1100.0, 2150.0), (700.0, 1000.0)),
    "d": _stop(0.070, True, (200.0, 1600.0, 2600.0), (3300.0, 1000.0)),
    "g": _stop(0.080, True, (200.0, 1990.0, 2850.0), (1800.0, 600.0)),
}


@dataclass(frozen=True)
class Voice:
    """A speaker: the properties of a voice that do not depend on the phone.

    Args:
        pitch: mean fundamental frequency in Hz.
        tract: factor on all formants: 1 for an adult male vocal tract, larger for a shorter one.
        rate: factor on durations.
        tilt: pole of the one-pole low-pass filter on the source; a larger value sounds darker.
        breath: aspiration in voiced sound, relative to voicing.
        channel: coefficients of the FIR filter between mouth and recorder.
    """

    pitch: float
    tract: float
    rate: float
    tilt: float
    breath: float
    channel: tuple[float, ...]


@dataclass(frozen=True)
class Token:
    """One spoken phone (speech sound), with its deviations from the phone's parameters.

    Args:
        phone: its name.
        duration: its duration in seconds.
        formant_factors: factors on its formants, shape ``(3,)``.
        gain: factor on its amplitude.
    """

    phone: str
    duration: float
    formant_factors: np.ndarray
    gain: float


def synthesise(
    tokens: list[Token], voice: Voice, sample_rate: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return the waveform of successive phones, without recording noise, and the samples at which they begin and end.

    A cascade of resonators shapes voicing and aspiration, and a parallel resonator shapes frication. Formants glide
    over 35 ms around each boundary.

    Args:
        tokens: the S phones to speak.
        voice: the speaker.
        sample_rate: the sample rate in Hz.
        rng: generator of the noise.

    Returns:
        The waveform, shape ``(n,)``, and the positions where the phones begin and the last one ends, shape ``(S +
            1,)``.

    Klatt (1980), Software for a cascade/parallel formant synthesizer; Rosenberg (1971), Effect of glottal pulse shape
    on the quality of natural vowels.
    """
    from scipy.signal import lfilter  # lazily: slow to import, and few need it

    edges = np.rint(np.cumsum([0.0, *(token.duration for token in tokens)]) * sample_rate).astype(int)
    voicing, frication, aspiration = _amplitudes(tokens, edges, sample_rate)
    pulses, openness = _glottis(len(voicing), voice, sample_rate, rng)
    white = rng.standard_normal((2, len(voicing)))
    breath = lfilter([0.4], [1.0, -0.9], white[0]) * (aspiration + voice.breath * voicing * openness)
    frequencies, bandwidths = _tract(tokens, edges, voice, sample_rate)
    voiced = pulses * voicing + breath
    for frequency, bandwidth in zip(frequencies[:-1], bandwidths[:-1], strict=True):
        voiced = resonate(voiced, frequency, bandwidth, sample_rate)
    hiss = resonate(white[1] * frication, frequencies[-1], bandwidths[-1], sample_rate, at_peak=True)
    radiated = np.diff(voiced, prepend=0.0) * (sample_rate / 8000)  # a mouth radiates the derivative of its flow
    return lfilter(np.array(voice.channel), [1.0], radiated + hiss), edges


def resonate(
    source: np.ndarray, frequency: np.ndarray, bandwidth: np.ndarray, sample_rate: int, *, at_peak: bool = False
) -> np.ndarray:
    """Return n samples filtered by a resonator whose frequency and bandwidth vary from sample to sample, ``(n,)``.

    Args:
        source: samples, shape ``(n,)``.
        frequency: center frequency in Hz at each sample, shape ``(n,)``.
        bandwidth: bandwidth in Hz at each sample, shape ``(n,)``.
        sample_rate: the sample rate in Hz.
        at_peak: if True, the gain is one at the center frequency; otherwise it is one at frequency 0, so that a cascade
            sets the levels of its formants.
    """
    from scipy.linalg.blas import dtbsv

    radius = np.exp(-np.pi * bandwidth / sample_rate)
    angle = 2 * np.pi * frequency / sample_rate
    a1, a2 = -2 * radius * np.cos(angle), radius**2
    at = np.exp(-1j * angle) if at_peak else 1.0
    gain = np.abs(1 + a1 * at + a2 * at**2)
    # y_t + a1_t y_{t-1} + a2_t y_{t-2} = gain_t x_t, all t at once: a triangular system of three diagonals.
    diagonals = np.ones((3, len(source)))
    diagonals[1, :-1], diagonals[2, :-2] = a1[1:], a2[2:]
    return dtbsv(2, diagonals, gain * source, lower=1, diag=1)


def _amplitudes(tokens: list[Token], edges: np.ndarray, sample_rate: int) -> np.ndarray:
    """Return the amplitudes of voicing, frication and aspiration at each of n samples, ``(3, n)``, with soft onsets.

    Args:
        tokens: the S phones to speak.
        edges: samples at which the phones begin, and the end, shape ``(S + 1,)``.
        sample_rate: the sample rate in Hz.
    """
    track = np.zeros((3, edges[-1]))
    for token, begin, end in zip(tokens, edges[:-1], edges[1:], strict=True):
        stages = PHONES[token.phone].stages
        boundaries = begin + np.rint(np.cumsum([0.0, *(s.share for s in stages)]) * (end - begin)).astype(int)
        for stage, first, stop in zip(stages, boundaries[:-1], boundaries[1:], strict=True):
            levels = (stage.voicing, stage.frication, stage.aspiration)
            track[:, first:stop] = token.gain * np.array(levels)[:, None]
    return _smoothed(track, round(ONSET * sample_rate))


def _glottis(n: int, voice: Voice, sample_rate: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return Rosenberg's glottal flow pulses with jitter and shimmer, and the opening of the glottis from 0 to 1.

    Both have shape ``(n,)``; the flow has mean zero.

    Args:
        n: number of samples.
        voice: the speaker, with pitch and tilt.
        sample_rate: the sample rate in Hz.
        rng: generator of intonation, jitter and shimmer.
    """
    fine = n * OVERSAMPLING
    seconds = np.arange(fine) / (sample_rate * OVERSAMPLING)
    wave = 0.06 * np.sin(2 * np.pi * (rng.uniform(1.5, 3.5) * seconds + rng.uniform()))  # intonation
    contour = voice.pitch * (1.1 - 0.2 * np.arange(fine) / fine + wave)
    from scipy.signal import lfilter, resample_poly

    steps = contour / (sample_rate * OVERSAMPLING)
    period = np.cumsum(steps).astype(int)  # which period a sample lies in
    jitter = 1 + 0.015 * rng.standard_normal(period[-1] + 1)
    cycle = np.cumsum(steps * jitter[period])
    shimmer = 1 + 0.06 * rng.standard_normal(int(cycle[-1]) + 1)
    phase = cycle % 1.0
    opening, closing = 0.40, 0.14  # shares of a period
    rise = 0.5 * (1 - np.cos(np.pi * phase / opening))
    fall = np.cos(0.5 * np.pi * (phase - opening) / closing)
    openness = np.where(phase < opening, rise, np.where(phase < opening + closing, fall, 0.0))
    flow = resample_poly(openness * shimmer[cycle.astype(int)], 1, OVERSAMPLING)
    tilted = lfilter([1 - voice.tilt], [1, -voice.tilt], flow - flow.mean())
    return tilted, openness[::OVERSAMPLING]


def _tract(tokens: list[Token], edges: np.ndarray, voice: Voice, sample_rate: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the frequencies and bandwidths of all resonators at each of n samples, in Hz, each ``(formants + 1, n)``.

    The last row is the resonator of the frication.

    Args:
        tokens: the S phones to speak.
        edges: samples at which the phones begin, and the end, shape ``(S + 1,)``.
        voice: the speaker, with the length of the vocal tract.
        sample_rate: the sample rate in Hz.
    """
    limit = 0.46 * sample_rate
    higher = np.arange(3500.0, limit, 1000.0)  # higher formants, which are those of a neutral tube
    targets: list[list[float]] = []
    widths: list[list[float]] = []
    for token in tokens:
        phone = PHONES[token.phone]
        formants = np.sort(np.array(phone.formants) * token.formant_factors * voice.tract)
        targets.append([*formants, *(higher * voice.tract), phone.noise[0] * token.formant_factors[2]])
        widths.append([*phone.bandwidths, *(0.1 * higher), phone.noise[1]])
    control = np.arange(0, edges[-1] + 1, round(CONTROL * sample_rate))
    token_at = np.searchsorted(edges[1:-1], control, side="right")
    tracks = _smoothed(np.hstack([targets, widths])[token_at].T, round(GLIDE / CONTROL))
    samples = np.arange(edges[-1])
    fine = np.stack([np.interp(samples, control, track) for track in tracks])
    frequencies, bandwidths = np.split(fine, 2)
    return frequencies.clip(150.0, limit), bandwidths


def _smoothed(track: np.ndarray, width: int) -> np.ndarray:
    """Return each row of an array, averaged over neighbouring points with the weights of a Hann window.

    Args:
        track: the array, shape ``(rows, n)``; beyond its ends the first and last values are repeated.
        width: number of points of the window.
    """
    bell = np.hanning(width + 2)[1:-1]
    padded = np.pad(track, ((0, 0), (width // 2, width - 1 - width // 2)), mode="edge")
    return np.stack([np.convolve(row, bell / bell.sum(), mode="valid") for row in padded])
