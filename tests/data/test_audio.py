from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from seqmodels.data import MFCC, audio

soundfile = pytest.importorskip("soundfile")


def write(path: Path, n: int = 800, *, rate: int = 8000, channels: int = 1, seed: int = 0) -> np.ndarray:
    path.parent.mkdir(parents=True, exist_ok=True)
    samples = np.random.default_rng(seed).integers(-9000, 9000, (n, channels), dtype=np.int16)
    soundfile.write(path, samples, rate, subtype="PCM_16")
    return samples


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    for i, name in enumerate(["0_ann_0", "0_bob_10", "1_ann_2", "1_cy_1"]):
        write(tmp_path / f"{name}.wav", 800 + 80 * i, seed=i)
    return tmp_path


def test_names_become_metadata_and_speakers_are_split_whole(digits: Path) -> None:
    x = audio(digits)
    assert x.names == ["0_ann_0", "0_bob_10", "1_ann_2", "1_cy_1"]
    assert x.labels == ["0", "0", "1", "1"]
    assert x.clusters == list(x.metadata["speaker"]) == ["ann", "bob", "ann", "cy"]
    assert x.metadata["index"].tolist() == [0, 10, 2, 1]
    assert x.n_units.tolist() == [8, 9, 10, 11]
    train, test = x.split(test=0.3, by="speaker")
    assert set(train.clusters or []).isdisjoint(test.clusters or [])
    assert len(train) + len(test) == 4


def test_features_are_those_of_the_file(digits: Path) -> None:
    samples = write(digits / "0_ann_0.wav", 1000, seed=7)[:, 0]
    extract = MFCC(n_coefficients=5, random_state=3)
    cepstra, waves = audio(digits, mfcc=extract), audio(digits, features="waveform")
    np.testing.assert_allclose(cepstra[0], extract(samples, 8000), rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(waves[0], samples[:, None] / 32768)
    assert waves.metadata["sample_rate"].unique().tolist() == [8000]


def test_times_are_seconds(digits: Path) -> None:
    x = audio(digits, mfcc=MFCC(hop=0.02))
    assert x.times is not None
    assert (x.time_name, x.time_unit) == ("time", "s")
    np.testing.assert_allclose(x.times[3], np.arange(len(x[3])) * 0.02)
    waves = audio(digits, features="waveform")
    assert waves.times is not None
    np.testing.assert_allclose(waves.times[0][[0, -1]], [0, 799 / 8000])


def test_channels_are_averaged(tmp_path: Path) -> None:
    samples = write(tmp_path / "a.wav", channels=2)
    wave = np.asarray(audio(tmp_path, features="waveform")[0])
    np.testing.assert_allclose(wave[:, 0], samples.mean(axis=1) / 32768, atol=1e-12)


def test_otherwise_the_folder_is_the_label(tmp_path: Path) -> None:
    for name in ("yes/a.wav", "yes/b.WAV", "no/deep/a.wav"):
        write(tmp_path / name)
    x = audio(tmp_path, features="waveform")
    assert x.labels == ["deep", "yes", "yes"]
    assert x.names == ["no/deep/a", "yes/a", "yes/b"]  # stems repeat
    assert x.clusters is None


def test_one_folder_for_all_is_no_label(tmp_path: Path) -> None:
    write(tmp_path / "a.wav")
    assert audio(tmp_path).labels is None


def test_a_pattern_of_ones_own_is_searched_in_the_path(tmp_path: Path) -> None:
    for name in ("yes/ann-take1.wav", "no/bob-takeX.wav"):
        write(tmp_path / name)
    x = audio(tmp_path, pattern=r"(?P<label>\w+)/(?P<speaker>[^-]+)-take(?P<index>\w+)")
    assert x.labels == ["no", "yes"]
    assert x.clusters == ["bob", "ann"]
    assert x.metadata["index"].tolist() == ["X", "1"]  # not all are numbers
    with pytest.raises(ValueError, match=r"no/bob-takeX\.wav does not match"):
        audio(tmp_path, pattern=r"take(?P<index>\d+)")
    with pytest.raises(ValueError, match="no named group"):
        audio(tmp_path, pattern=r"(\w+)")


def test_a_file_that_does_not_fit_is_named(digits: Path) -> None:
    write(digits / "1_dee_0.wav", 100)
    with pytest.raises(ValueError, match=r"1_dee_0\.wav: the waveform has 100 samples"):
        audio(digits)
    write(digits / "1_dee_0.wav", 800, rate=16000)
    with pytest.raises(ValueError, match=r"1_dee_0\.wav has a sample rate of 16000 Hz but 0_ann_0\.wav has 8000"):
        audio(digits)
    write(digits / "1_dee_0.wav", 0)
    with pytest.raises(ValueError, match=r"1_dee_0\.wav holds no samples"):
        audio(digits, features="waveform")


def test_nothing_to_read_is_said(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no \.wav file"):
        audio(tmp_path)
    with pytest.raises(FileNotFoundError, match="missing"):
        audio(tmp_path / "missing")
    with pytest.raises(ValueError, match='"mfcc" or "waveform"'):
        audio(tmp_path, features="fbank")  # type: ignore[arg-type]


def test_without_soundfile_the_error_says_what_to_install(digits: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(ImportError, match=r"pip install 'seqmodels\[audio\]'"):
        audio(digits)


def test_one_file_is_read_as_in_its_folder(digits: Path) -> None:
    one = audio(digits / "1_cy_1.wav")
    np.testing.assert_allclose(one[0], audio(digits)[3], rtol=1e-12, atol=1e-12)
    assert (one.names, one.labels, one.clusters) == (["1_cy_1"], ["1"], ["cy"])


def test_what_is_no_audio_is_named(digits: Path) -> None:
    (digits / "2_dan_0.wav").write_bytes(b"RIFF")
    with pytest.raises(ValueError, match=r"2_dan_0\.wav is not a WAV file, because it begins with b'RIFF'; convert"):
        audio(digits)


def test_samples_that_are_no_numbers_are_named(tmp_path: Path) -> None:
    samples = np.zeros(800)
    samples[7] = np.nan
    soundfile.write(tmp_path / "a.wav", samples, 8000, subtype="FLOAT")
    with pytest.raises(ValueError, match=r"a\.wav is not finite at sample 7"):
        audio(tmp_path, features="waveform")
