from __future__ import annotations

import numpy as np
import pytest

from seqmodels.data import MFCC, Speech, sha256, speech
from seqmodels.data.formant_synthesis import PHONES


@pytest.fixture(scope="module")
def said() -> Speech:
    return speech(24, 4, features="waveform")


@pytest.fixture(scope="module")
def cepstra() -> Speech:
    return speech(24, 4, features="mfcc")


@pytest.mark.slow
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
        np.testing.assert_allclose(features, extract(np.asarray(said.sequences[i])[:, 0], 8000), rtol=1e-12, atol=1e-12)
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


@pytest.mark.slow
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
    with pytest.raises(ValueError, match='"waveform" or "mfcc"'):
        speech(2, 1, features="fbank")  # type: ignore[arg-type]
