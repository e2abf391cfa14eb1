"""Synthetic speech in an artificial language, in which the phone at each moment is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from seqmodels.common.parameters import NotNegativeFloat, Seed, checked
from seqmodels.data.formant_synthesis import PHONES, Token, Voice, synthesise
from seqmodels.data.mfcc import MFCC
from seqmodels.sequences import Sequences

VOWELS = ("iy", "ih", "eh", "ae", "aa", "ao", "uw", "er")
CONSONANTS = tuple(phone for phone in PHONES if phone not in (*VOWELS, "sil"))
N_SYLLABLES = 30
MIN_SAMPLE_RATE = 8000  # Hz


@dataclass(frozen=True)
class Speech:
    """Synthetic utterances together with the phones that were spoken in them.

    Args:
        sequences: waveforms in [-1, 1], shape ``(n, 1)``, or cepstra, shape ``(T, D)``. The metadata have ``name``,
            ``speaker``, ``cluster`` (the speaker), ``phones`` (the transcript) and ``utterance``, the position in the
            lists below, by which labels can be found after a split.
        phones: names of the phones; labels are positions in this tuple.
        labels: for each utterance the phone at the middle of each frame, or at each sample; integers, shape ``(T,)``.
        segments: for each utterance the times in seconds at which its S phones begin, and the end; shape ``(S + 1,)``.
        sample_rate: sample rate of the waveforms in Hz.
    """

    sequences: Sequences
    phones: tuple[str, ...]
    labels: list[np.ndarray]
    segments: list[np.ndarray]
    sample_rate: int


@checked
def speech(
    n_utterances: int = 200,
    n_speakers: int = 8,
    *,
    features: Literal["waveform", "mfcc"] = "waveform",
    mfcc: MFCC | None = None,
    syllables: tuple[int, int] = (2, 5),
    token_variation: NotNegativeFloat = 0.12,
    sample_rate: int = 8000,
    language: Seed = 0,
    random_state: Seed = 0,
) -> Speech:
    """Return utterances of about a second in a small artificial language, made by a formant synthesiser.

    Syllables (CV or CVC) follow each other as a Markov chain, with occasional pauses. Speakers differ in pitch, length
    of the vocal tract, rate, breath, tilt and channel. Every spoken phone has its own formants, gain and duration, and
    every utterance its own gain and noise level, because with variation between speakers alone models rank differently
    than on recorded speech.

    Args:
        n_utterances: number of utterances of all speakers together.
        n_speakers: number of speakers, among whom utterances are divided evenly.
        features: ``"waveform"`` for samples, or ``"mfcc"`` for the cepstra of each waveform.
        mfcc: how cepstra are computed; None means ``MFCC()``.
        syllables: the least and the most syllables in an utterance.
        token_variation: standard deviation of the logarithm of each formant of each spoken phone.
        sample_rate: the sample rate in Hz, at least 8000.
        language: seed of the syllables and of their Markov chain. Two calls that differ only in ``random_state`` speak
            the same language.
        random_state: seed of the speakers and of everything they say. Utterance i does not depend on ``n_utterances``.

    Raises:
        ValueError: there are more speakers than utterances, ``syllables`` is not an increasing pair of positive
            integers, or the sample rate is too low.

    >>> said = speech(4, 2, features="mfcc")
    >>> [said.phones[k] for k in said.labels[0][[0, -1]]]
    ['sil', 'sil']
    """
    _check_speech(n_utterances, n_speakers, syllables, sample_rate)
    grammar = _Language.draw(np.random.default_rng([language, 0]))
    voices = [_voice(np.random.default_rng([random_state, 0, s]), sample_rate) for s in range(n_speakers)]
    utterances = []
    for i in range(n_utterances):
        rng = np.random.default_rng([random_state, 1, i])
        voice = voices[i % n_speakers]
        tokens = [_token(phone, voice, token_variation, rng) for phone in grammar.utterance(rng, syllables)]
        waveform, edges = synthesise(tokens, voice, sample_rate, rng)
        utterances.append((_recorded(waveform, rng), edges, [token.phone for token in tokens]))
    return _as_speech(utterances, n_speakers, sample_rate, (mfcc or MFCC()) if features == "mfcc" else None)


@dataclass(frozen=True)
class _Language:
    """An artificial language: N syllables and the Markov chain that they follow.

    Attributes:
        syllables: the phones of each syllable.
        initial: probability of each syllable at the beginning, shape ``(N,)``.
        transition: probability of the next syllable given this one, shape ``(N, N)``.
    """

    syllables: list[tuple[str, ...]]
    initial: np.ndarray
    transition: np.ndarray

    @classmethod
    def draw(cls, rng: np.random.Generator) -> _Language:
        onsets, vowels = rng.permutation(CONSONANTS).tolist(), rng.permutation(VOWELS).tolist()
        # Onsets and vowels are cycled through so that every phone occurs. Because the cycles have 15 and 8 members, no
        # pair of them occurs twice in 30 syllables.
        heads = [(onsets[k % len(onsets)], vowels[k % len(vowels)]) for k in range(N_SYLLABLES)]
        syllables: list[tuple[str, ...]] = [
            (*head, str(rng.choice(CONSONANTS))) if rng.uniform() < 0.4 else head for head in heads
        ]
        # So sparse that about five syllables follow each: something is left to learn beyond the syllable.
        transition = rng.dirichlet(np.full(N_SYLLABLES, 0.1), size=N_SYLLABLES)
        return cls(syllables, rng.dirichlet(np.ones(N_SYLLABLES)), transition)

    def utterance(self, rng: np.random.Generator, syllables: tuple[int, int]) -> list[str]:
        phones = ["sil"]
        probability = self.initial
        for k in range(int(rng.integers(syllables[0], syllables[1] + 1))):
            if k and rng.uniform() < 0.1:
                phones.append("sil")
            now = int(rng.choice(N_SYLLABLES, p=probability))
            phones += self.syllables[now]
            probability = self.transition[now]
        return [*phones, "sil"]


def _voice(rng: np.random.Generator, sample_rate: int) -> Voice:
    size = rng.uniform()  # 0: a long tract and a low voice, 1: a short one and a high voice
    return Voice(
        pitch=105.0 * 2.0**size * np.exp(0.08 * rng.standard_normal()),
        tract=0.95 + 0.20 * size + 0.03 * rng.standard_normal(),
        rate=np.exp(0.12 * rng.standard_normal()),
        tilt=rng.uniform(0.0, 0.35) ** (8000 / sample_rate),  # one pole in seconds, at whatever rate
        breath=np.exp(rng.uniform(np.log(0.001), np.log(0.015))),
        channel=(1.0, rng.uniform(-0.4, 0.3), rng.uniform(-0.15, 0.15)),
    )


def _token(phone: str, voice: Voice, variation: float, rng: np.random.Generator) -> Token:
    duration = PHONES[phone].duration * voice.rate * np.exp(0.2 * rng.standard_normal())
    factors = np.exp(variation * rng.standard_normal(3).clip(-2.5, 2.5))
    return Token(phone, max(duration, 0.03), factors, 10 ** (rng.normal(0.0, 2.5) / 20))


def _recorded(waveform: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return a waveform at a random level, with white or low-pass noise 20 to 45 dB below it, and within ±0.99."""
    from scipy.signal import lfilter  # lazily: slow to import, and few need it

    speech_level = 0.08 * 10 ** (rng.normal(0.0, 4.0) / 20)
    noise = lfilter([1.0], [1.0, -rng.uniform(0.0, 0.8)], rng.standard_normal(len(waveform)))
    noise_level = speech_level * 10 ** (-rng.uniform(20.0, 45.0) / 20)
    recorded: np.ndarray = waveform * (speech_level / waveform.std()) + noise * (noise_level / noise.std())
    recorded *= min(1.0, 0.99 / np.abs(recorded).max())
    return recorded


def _as_speech(
    utterances: list[tuple[np.ndarray, np.ndarray, list[str]]], n_speakers: int, sample_rate: int, mfcc: MFCC | None
) -> Speech:
    import pandas as pd

    inventory = tuple(PHONES)
    width, hop = (1, 1) if mfcc is None else mfcc.frame(sample_rate)
    items, labels = [], []
    for waveform, edges, phones in utterances:
        items.append(waveform[:, None] if mfcc is None else mfcc(waveform, sample_rate))
        middles = np.arange(len(items[-1])) * hop + width // 2
        position = np.searchsorted(edges[1:-1], middles, side="right")  # of the phone in the utterance
        labels.append(np.array([inventory.index(phone) for phone in phones])[position])
    speakers = [f"speaker{i % n_speakers}" for i in range(len(utterances))]
    metadata = pd.DataFrame(
        {
            "name": [f"utterance{i}" for i in range(len(utterances))],
            "utterance": range(len(utterances)),
            "speaker": speakers,
            "cluster": speakers,
            "phones": [" ".join(phones) for _, _, phones in utterances],
        }
    )
    segments = [edges / sample_rate for _, edges, _ in utterances]
    return Speech(Sequences(items, metadata=metadata), inventory, labels, segments, sample_rate)


def _check_speech(n_utterances: int, n_speakers: int, syllables: tuple[int, int], sample_rate: int) -> None:
    if not 1 <= n_speakers <= n_utterances:
        raise ValueError(f"there are {n_speakers} speakers for {n_utterances} utterances; each must have one")
    if not 1 <= syllables[0] <= syllables[1]:
        raise ValueError(f"syllables is {syllables}; pass the least and the most in an utterance, at least 1")
    if sample_rate < MIN_SAMPLE_RATE:
        raise ValueError(f"sample_rate is {sample_rate} Hz; the formants need at least {MIN_SAMPLE_RATE}")
