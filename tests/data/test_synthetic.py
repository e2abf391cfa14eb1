from __future__ import annotations

import numpy as np
import pytest
from scipy.signal import freqz, welch

from seqmodels.data import MFCC, Speech, hmm_draws, sha256, speech
from seqmodels.data.formants import PHONES, Token, Voice, resonate, synthesise

VOICE = Voice(pitch=100.0, tract=1.0, rate=1.0, tilt=0.0, breath=0.0, channel=(1.0,))


@pytest.fixture(scope="module")
def said() -> Speech:
    return speech(24, 4, features="waveform")


@pytest.fixture(scope="module")
def cepstra() -> Speech:
    return speech(24, 4, features="mfcc")


def spoken(*phones: str, duration: float = 0.3) -> tuple[np.ndarray, np.ndarray]:
    tokens = [Token(phone, duration, np.ones(3), 1.0) for phone in phones]
    return synthesise(tokens, VOICE, 8000, np.random.default_rng(0))


# -- the synthesiser ---------------------------------------------------------------------------------------


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


# -- utterances --------------------------------------------------------------------------------------------


def test_speech_repeats_by_seed_and_differs_between_seeds(said: Speech) -> None:
    assert sha256(speech(24, 4).sequences) == sha256(said.sequences)
    assert sha256(speech(24, 4, random_state=1).sequences) != sha256(said.sequences)
    assert sha256(speech(8, 4).sequences) == sha256(said.sequences[:8])


def test_waveforms_are_in_range_and_never_silent(said: Speech) -> None:
    for waveform in said.sequences:
        assert np.abs(waveform).max() < 1.0
        assert (np.diff(np.asarray(waveform)[:, 0]) != 0).all()
    assert 0.5 < said.sequences.n_units.mean() / said.sample_rate < 2.5


def test_labels_and_segments_say_the_transcript(said: Speech) -> None:
    for i, waveform in enumerate(said.sequences):
        labels, seconds = said.labels[i], said.segments[i]
        transcript = said.sequences.metadata["phones"][i].split()
        assert len(labels) == len(waveform)
        assert transcript[0] == transcript[-1] == "sil"
        edges = np.rint(seconds * said.sample_rate).astype(int)
        assert [said.phones[k] for k in labels[edges[:-1]]] == transcript
        assert [said.phones[k] for k in labels[edges[1:] - 1]] == transcript
        assert seconds[-1] == pytest.approx(len(waveform) / said.sample_rate)


def test_frame_labels_are_those_of_the_middle_sample(said: Speech, cepstra: Speech) -> None:
    extract = MFCC()
    for i, features in enumerate(cepstra.sequences):
        np.testing.assert_array_equal(features, extract(np.asarray(said.sequences[i])[:, 0], 8000))
        np.testing.assert_array_equal(cepstra.labels[i], said.labels[i][np.arange(len(features)) * 80 + 100])


def test_phones_are_told_apart_but_not_perfectly_by_frames(cepstra: Speech) -> None:
    train = [i for i in range(24) if cepstra.sequences.clusters[i] != "speaker0"]  # type: ignore[index]
    test = [i for i in range(24) if i not in train]
    known = np.concatenate([np.asarray(cepstra.sequences[i]) for i in train])
    labels = np.concatenate([cepstra.labels[i] for i in train])
    centres = np.array(
        [known[labels == k].mean(axis=0) if (labels == k).any() else np.full(13, np.inf) for k in range(24)]
    )
    frames = np.concatenate([np.asarray(cepstra.sequences[i]) for i in test]) / known.std(axis=0)
    nearest = ((frames[:, None] - centres / known.std(axis=0)) ** 2).sum(axis=2).argmin(axis=1)
    accuracy = (nearest == np.concatenate([cepstra.labels[i] for i in test])).mean()
    assert 0.3 < accuracy < 0.9


def test_formants_vary_by_token() -> None:
    def spread(variation: float) -> float:
        x = speech(12, 1, features="mfcc", token_variation=variation)
        frames = np.concatenate([np.asarray(item) for item in x.sequences])
        labels = np.concatenate(x.labels)
        return float(frames[labels == x.phones.index("aa"), 2:6].var(axis=0).sum())

    assert spread(0.12) > 1.3 * spread(0.0)


def test_speakers_are_clusters_and_survive_a_split(cepstra: Speech) -> None:
    train, test = cepstra.sequences.split(test=0.25, by="speaker")
    assert cepstra.sequences.clusters == [f"speaker{i % 4}" for i in range(24)]
    assert len(set(test.clusters or [])) == 1
    for item, utterance in zip(test, test.metadata["utterance"], strict=True):
        assert len(item) == len(cepstra.labels[utterance])
    assert len(train) == 18


def test_a_language_has_every_phone_and_its_own_order_of_them() -> None:
    def transcripts(n: int, language: int) -> list[str]:
        said = speech(n, 1, syllables=(20, 20), language=language, random_state=5)
        return list(said.sequences.metadata["phones"])

    many = transcripts(12, 0)
    assert {phone for line in many for phone in line.split()} == set(PHONES)
    assert transcripts(1, 0) == many[:1]
    assert transcripts(1, 1) != many[:1]


def test_speech_refuses_what_it_cannot_say() -> None:
    with pytest.raises(ValueError, match="at least 8000"):
        speech(2, 1, sample_rate=4000)
    with pytest.raises(ValueError, match="3 speakers for 2 utterances"):
        speech(2, 3)
    with pytest.raises(ValueError, match=r"syllables is \(3, 2\)"):
        speech(2, 1, syllables=(3, 2))
    with pytest.raises(ValueError, match="'mfcc'"):
        speech(2, 1, features="fbank")  # type: ignore[arg-type]


# -- hidden Markov models ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["diag", "full"])
def test_gaussian_draws_have_the_parameters_they_come_with(kind: str) -> None:
    x, truth = hmm_draws(400, 50, n_states=3, n_features=2, covariance_type=kind, random_state=1)  # type: ignore[arg-type]
    assert truth.means is not None
    assert truth.covariances is not None
    frames, states = np.concatenate([np.asarray(item) for item in x]), np.concatenate(truth.states)
    for k in range(3):
        mine = frames[states == k]
        covariance = np.cov(mine.T)
        wanted = np.diag(truth.covariances[k]) if kind == "diag" else truth.covariances[k]
        np.testing.assert_allclose(mine.mean(axis=0), truth.means[k], atol=0.1)
        np.testing.assert_allclose(covariance, wanted, atol=0.1)


def test_paths_and_symbols_have_the_parameters_they_come_with() -> None:
    x, truth = hmm_draws(2000, 20, n_states=3, n_symbols=4, random_state=2)
    assert truth.emission is not None
    states, symbols = np.stack(truth.states), np.stack([np.asarray(item) for item in x])
    first = np.bincount(states[:, 0], minlength=3) / 2000
    pairs, seen = np.zeros((3, 3)), np.zeros((3, 4))
    np.add.at(pairs, (states[:, :-1].ravel(), states[:, 1:].ravel()), 1)
    np.add.at(seen, (states.ravel(), symbols.ravel()), 1)
    np.testing.assert_allclose(first, truth.initial, atol=0.04)
    np.testing.assert_allclose(pairs / pairs.sum(axis=1, keepdims=True), truth.transition, atol=0.02)
    np.testing.assert_allclose(seen / seen.sum(axis=1, keepdims=True), truth.emission, atol=0.02)
    np.testing.assert_allclose(truth.transition.sum(axis=1), 1.0)
    np.testing.assert_allclose(truth.transition.diagonal(), 0.8)


def test_draws_repeat_by_seed() -> None:
    same = [sha256(hmm_draws(5, 10, n_features=2, random_state=seed)[0]) for seed in (0, 0, 1)]
    assert same[0] == same[1] != same[2]
    x, truth = hmm_draws(3, 4, n_states=1, n_symbols=2)
    assert x.n_units.tolist() == [4, 4, 4]
    assert truth.transition.tolist() == [[1.0]]


def test_draws_refuse_what_makes_no_sense() -> None:
    with pytest.raises(ValueError, match="n_features for vectors or n_symbols"):
        hmm_draws(5, 10)
    with pytest.raises(ValueError, match="n_features is 2 and n_symbols is 3"):
        hmm_draws(5, 10, n_features=2, n_symbols=3)
    with pytest.raises(ValueError, match="count from 1"):
        hmm_draws(5, 0, n_symbols=3)
    with pytest.raises(ValueError, match="stay is 2"):
        hmm_draws(5, 10, n_symbols=3, stay=2)
    with pytest.raises(ValueError, match="'diag' or 'full'"):
        hmm_draws(5, 10, n_features=3, covariance_type="tied")  # type: ignore[arg-type]
