from __future__ import annotations

import numpy as np
import pytest

from seqmodels.data import MFCC, deltas


@pytest.fixture(scope="module")
def waveform() -> np.ndarray:
    rng = np.random.default_rng(0)
    t = np.arange(4000) / 8000
    return 0.3 * np.sin(2 * np.pi * 440 * t) + 0.05 * rng.standard_normal(4000)


def by_hand(samples: np.ndarray, rate: int, n_filters: int, n_coefficients: int) -> np.ndarray:
    """The definition, one number at a time: a slow Fourier sum, filters by ``np.interp``, cosines written out."""
    width, hop = round(0.025 * rate), round(0.01 * rate)
    n_fft = 256
    x = samples - 0.97 * np.concatenate([samples[:1], samples[:-1]])
    mel = np.linspace(2595 * np.log10(1 + 20 / 700), 2595 * np.log10(1 + rate / 2 / 700), n_filters + 2)
    corners = 700 * (10 ** (mel / 2595) - 1)
    bins = np.arange(n_fft // 2 + 1) * rate / n_fft
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(width) / width)
    fourier = np.exp(-2j * np.pi * np.outer(np.arange(n_fft // 2 + 1), np.arange(width)) / n_fft)
    rows = []
    for start in range(0, len(x) - width + 1, hop):
        power = np.abs(fourier @ (hann * x[start : start + width])) ** 2
        energy = [power @ np.interp(bins, corners[m : m + 3], [0.0, 1.0, 0.0]) for m in range(n_filters)]
        angle = np.pi / n_filters * (np.arange(n_filters) + 0.5)
        scale = np.where(np.arange(n_coefficients) == 0, np.sqrt(1 / n_filters), np.sqrt(2 / n_filters))
        rows.append(scale * (np.cos(np.outer(np.arange(n_coefficients), angle)) @ np.log(energy)))
    return np.array(rows)


def test_the_definition_number_by_number(waveform: np.ndarray) -> None:
    got = MFCC(dither=0.0)(waveform, 8000)
    assert got.dtype == np.float64
    np.testing.assert_allclose(got, by_hand(waveform * 32768, 8000, 40, 13), rtol=0, atol=1e-9)


@pytest.mark.parametrize(("n", "n_frames"), [(200, 1), (279, 1), (280, 2), (3940, 47)])
def test_frames_lie_inside_the_waveform(waveform: np.ndarray, n: int, n_frames: int) -> None:
    whole, part = MFCC(dither=0.0)(waveform, 8000), MFCC(dither=0.0)(waveform[:n], 8000)
    assert part.shape == (n_frames, 13)
    np.testing.assert_allclose(part, whole[:n_frames], rtol=0, atol=1e-9)


def test_int16_and_floats_are_the_same_samples(waveform: np.ndarray) -> None:
    integers = np.rint(waveform * 32768).astype(np.int16)
    np.testing.assert_allclose(MFCC()(integers, 8000), MFCC()(integers / 32768, 8000), rtol=1e-12, atol=1e-12)


def test_gain_moves_only_the_first_coefficient(waveform: np.ndarray) -> None:
    louder = MFCC(dither=0.0)(2 * waveform, 8000) - MFCC(dither=0.0)(waveform, 8000)
    np.testing.assert_allclose(louder[:, 0], np.sqrt(40) * np.log(4), rtol=1e-9)
    np.testing.assert_allclose(louder[:, 1:], 0, atol=1e-9)


@pytest.mark.parametrize("warp", [0.8, 1.0, 1.25])
def test_a_warp_multiplies_frequencies_up_to_a_bound_and_keeps_half_the_sample_rate(warp: float) -> None:
    plain, warped = MFCC(n_filters=20).filters(8000), MFCC(n_filters=20, warp=warp).filters(8000)
    bins = np.arange(129) * 8000 / 256
    peaks, images = (bins[each.argmax(axis=1)] for each in (plain, warped))
    bound = 0.6 * 4000 * min(warp, 1) / warp
    below = peaks < bound - 100
    assert below.sum() > 8
    np.testing.assert_allclose(images[below], warp * peaks[below], atol=40)  # a bin has 31 Hz
    above = peaks > bound + 100
    slope = (4000 - warp * bound) / (4000 - bound)
    np.testing.assert_allclose(images[above], 4000 - slope * (4000 - peaks[above]), atol=40)
    assert (np.diff(images) >= 0).all()
    assert images[-1] < 4000


def test_a_warp_undoes_a_shift_of_the_formants() -> None:
    t = np.arange(4000) / 8000
    short, long = (sum(np.sin(2 * np.pi * f * scale * t) for f in (400, 900, 1500)) for scale in (1.15, 1.0))

    def distance(warp: float) -> float:
        return float(
            np.abs(MFCC(n_filters=20, warp=warp)(0.2 * short, 8000) - MFCC(n_filters=20)(0.2 * long, 8000)).mean()
        )

    assert distance(1.15) < 0.5 * distance(1.0)


def test_frames_lie_where_they_are_said_to() -> None:
    pulse = np.zeros(4000)
    pulse[1000] = 1.0
    quiet = MFCC(dither=1e-6, pre_emphasis=0.0, n_coefficients=1)
    loud = np.flatnonzero(quiet(pulse, 8000)[:, 0] > 0)
    covering = [t for t in range(48) if 80 * t < 1000 < 80 * t + 200]
    assert loud.tolist() == covering


def test_dither_repeats_by_seed_and_content_and_has_one_lsb() -> None:
    silence, other = np.zeros(80_000), np.zeros(80_000)
    other[0] = 0.5
    extract = MFCC(pre_emphasis=0.0)
    np.testing.assert_allclose(extract(silence, 8000), extract(silence, 8000), rtol=1e-12, atol=1e-12)
    assert not np.allclose(extract(silence, 8000)[10:], extract(other, 8000)[10:])
    assert not np.allclose(extract(silence, 8000), MFCC(pre_emphasis=0.0, random_state=1)(silence, 8000))
    # White noise of variance one has the expected power sum(window^2) in every bin.
    power = extract._power(extract._dithered(silence), 8000)
    assert power[:, 2:-2].mean() == pytest.approx(0.375 * 200, rel=0.02)


def test_global_random_state_is_untouched(waveform: np.ndarray) -> None:
    before = str(np.random.get_state(legacy=False)["state"]["key"].tolist())  # noqa: NPY002
    MFCC()(waveform, 8000)
    assert str(np.random.get_state(legacy=False)["state"]["key"].tolist()) == before  # noqa: NPY002


@pytest.mark.parametrize(
    ("extract", "samples", "message"),
    [
        (MFCC(), np.zeros(199), "199 samples but a window of 0.025 s at 8000 Hz has 200"),
        (MFCC(dither=0.0), np.zeros(400), r"frame 0 has no energy .* dither=1\.0"),
        (MFCC(high=5000.0), np.zeros(400), r"does not lie between 0 and 4000\.0 Hz"),
        (MFCC(n_filters=200), np.zeros(400), r"pass fewer n_filters"),
        (MFCC(n_coefficients=41), np.zeros(400), "pass 1 to 40"),
        (MFCC(warp=0.0), np.zeros(400), "warp is 0.0; pass a factor above 0"),
        (MFCC(), np.zeros((400, 2)), r"shape \(400, 2\)"),
        (MFCC(), np.zeros(400, dtype=np.int32), "int32; pass int16"),
        (MFCC(), np.array([0.0] * 300 + [np.nan] * 100), "not finite at sample 300"),
    ],
)
def test_errors_say_the_way_out(extract: MFCC, samples: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        extract(samples, 8000)


def test_parameters_are_scikit_learns() -> None:
    assert MFCC().set_params(n_filters=20).clone().get_params()["n_filters"] == 20
    assert repr(MFCC(n_coefficients=20)) == "MFCC(n_coefficients=20)"


def test_deltas_are_the_slopes_of_least_squares() -> None:
    x = np.random.default_rng(1).standard_normal((9, 3))
    got = deltas(x, width=2)
    padded = np.concatenate([x[[0, 0]], x, x[[-1, -1]]])
    for t in range(9):
        slope = np.polyfit(np.arange(-2, 3), padded[t : t + 5], 1)[0]
        np.testing.assert_allclose(got[t], slope, atol=1e-12)
    with pytest.raises(ValueError, match="width is 0"):
        deltas(x, width=0)


@pytest.mark.parametrize("sample_rate", [1, 0, -8000, 40])
def test_a_window_of_no_samples_is_refused(sample_rate: int) -> None:
    with pytest.raises(ValueError, match=f"at {sample_rate} Hz a window of .* pass the real sample rate"):
        MFCC()(np.sin(np.arange(8000.0)), sample_rate)


def test_a_hop_of_no_time_is_refused() -> None:
    with pytest.raises(ValueError, match=r"hop is 0\.0; pass a number above 0 and at most 60"):
        MFCC(hop=0.0)(np.sin(np.arange(8000.0)), 8000)
