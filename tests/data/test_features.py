from __future__ import annotations

import numpy as np
import pytest
from scipy.fft import idct

from seqmodels.data import MFCC, FrameFeatures, SpeechFeatures, deltas


@pytest.fixture(scope="module")
def frames() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((30, 3)).cumsum(axis=0)


@pytest.fixture(scope="module")
def waveform() -> np.ndarray:
    rng, t = np.random.default_rng(1), np.arange(6000) / 8000
    return 0.2 * np.sin(2 * np.pi * (300 + 400 * t) * t) + 0.02 * rng.standard_normal(6000)


def test_frames_slopes_mean_and_deviation(frames: np.ndarray) -> None:
    raw = FrameFeatures(2, mean=False, variance=False)(frames)
    np.testing.assert_array_equal(raw[:, :3], frames)
    np.testing.assert_array_equal(raw[:, 3:6], deltas(frames))
    np.testing.assert_array_equal(raw[:, 6:], deltas(deltas(frames)))
    assert FrameFeatures(0, mean=False, variance=False, width=1)(frames).tolist() == frames.tolist()
    wide = FrameFeatures(1, mean=False, variance=False, width=3)
    np.testing.assert_array_equal(wide(frames)[:, 3:], deltas(frames, 3))
    normalised = FrameFeatures()(frames)
    np.testing.assert_allclose(normalised.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(normalised.std(axis=0), 1)
    np.testing.assert_allclose(normalised, (raw - raw.mean(axis=0)) / raw.std(axis=0))


def test_offset_and_scale_of_a_sequence_are_taken_away(frames: np.ndarray) -> None:
    moved = frames * np.array([2.0, 0.5, 8.0]) + np.array([10.0, -3.0, 0.0])
    np.testing.assert_allclose(FrameFeatures()(moved), FrameFeatures()(frames), atol=1e-9)
    only_mean = FrameFeatures(variance=False)
    np.testing.assert_allclose(only_mean(frames + 7), only_mean(frames), atol=1e-9)
    assert not np.allclose(only_mean(2 * frames), only_mean(frames))


def test_a_constant_column_has_no_deviation(frames: np.ndarray) -> None:
    flat = frames * np.array([1.0, 0.0, 1.0])
    with pytest.raises(ValueError, match="column 1 is constant over a sequence of 30 frames"):
        FrameFeatures(0)(flat)
    assert FrameFeatures(0, variance=False)(flat)[:, 1].tolist() == [0.0] * 30
    with pytest.raises(ValueError, match="orders is -1"):
        FrameFeatures(-1)(frames)


def test_speech_features_are_cepstra_at_one_level(waveform: np.ndarray) -> None:
    extract = SpeechFeatures(8000, mfcc=MFCC(dither=0.0), frames=FrameFeatures(1, mean=False, variance=False))
    cepstra = MFCC(dither=0.0)(waveform * (0.25 / np.abs(waveform).max()), 8000)
    np.testing.assert_allclose(extract(waveform), np.concatenate([cepstra, deltas(cepstra)], axis=1))
    np.testing.assert_array_equal(extract(waveform[:, None]), extract(waveform))
    np.testing.assert_allclose(extract(0.01 * waveform), extract(waveform), atol=1e-9)
    as_recorded = extract.clone().set_params(level=None)
    np.testing.assert_allclose(as_recorded(waveform)[:, :13], MFCC(dither=0.0)(waveform, 8000))


def test_noise_hides_what_is_far_below_the_loudest_sample(waveform: np.ndarray) -> None:
    nearly, silent = waveform.copy(), waveform.copy()
    nearly[3000:] *= 1e-4
    silent[3000:] = 0
    alone = FrameFeatures(0, mean=False, variance=False)

    def difference(mfcc: MFCC) -> float:  # of the mean log energies after the sound
        extract = SpeechFeatures(8000, mfcc=mfcc, frames=alone)
        return float(extract(nearly)[45:, 0].mean() - extract(silent)[45:, 0].mean())

    assert difference(MFCC(dither=1e-3)) > 10
    assert abs(difference(SpeechFeatures(8000).mfcc)) < 0.5


def test_speed_moves_frequencies_and_the_rate_of_speech_and_tempo_the_rate_alone() -> None:
    alone = FrameFeatures(0, mean=False, variance=False)
    plain = SpeechFeatures(8000, mfcc=MFCC(40, high=3000.0), frames=alone)
    faster, hurried = plain.perturbed(speeds=(1.25,))[0], plain.perturbed(tempos=(2.0,))[0]
    tone = np.sin(2 * np.pi * 1000 * np.arange(8000) / 8000)
    played_faster = np.sin(2 * np.pi * 1250 * np.arange(6400) / 8000)

    def loudest(cepstra: np.ndarray) -> list[int]:
        filters: list[int] = idct(cepstra, norm="ortho", axis=1).argmax(axis=1).tolist()
        return filters

    assert loudest(faster(tone)) == loudest(plain(played_faster))
    assert set(loudest(faster(tone))).isdisjoint(loudest(plain(tone)))
    assert len(hurried(tone)) == 49
    np.testing.assert_allclose(hurried(tone), plain(tone)[::2], atol=1e-9)


def test_perturbed_lists_all_combinations_but_the_unchanged_one() -> None:
    extract = SpeechFeatures(8000, speed=1.1)
    listed = extract.perturbed(speeds=(1.0, 0.5), warps=(1.0, 0.9))
    assert [(each.speed, each.mfcc.warp) for each in listed] == [(1.1, 0.9), (0.55, 1.0), (0.55, 0.9)]
    assert extract.mfcc.warp == 1.0  # what it was made from stays
    assert all(each.mfcc.dither == extract.mfcc.dither for each in listed)


@pytest.mark.parametrize(
    ("options", "samples", "message"),
    [
        ({"speed": 0.0}, np.ones(400), "speed is 0.0; pass a number from 0.01 to 100"),
        ({"tempo": float("inf")}, np.ones(400), "tempo is inf"),
        ({}, np.zeros(400), "has no sample but zeros"),
        ({}, np.ones(100), "100 samples but a window"),
        ({}, np.ones((400, 2)), r"shape \(400, 2\)"),
    ],
)
def test_errors_say_the_way_out(options: dict[str, float], samples: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SpeechFeatures(8000, **options)(samples)  # type: ignore[arg-type]


def test_means_of_some_columns(frames: np.ndarray) -> None:
    raw = FrameFeatures(1, mean=False, variance=False)(frames)
    read = FrameFeatures(1, mean=(0,), variance=False)(frames)
    np.testing.assert_allclose(read[:, 0], raw[:, 0] - raw[:, 0].mean(), atol=1e-12)
    np.testing.assert_array_equal(read[:, 1:], raw[:, 1:])
    with pytest.raises(ValueError, match="mean names the columns"):
        FrameFeatures(mean=(frames.shape[1],))(frames)
