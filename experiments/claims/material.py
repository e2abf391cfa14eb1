"""What claims are tested on where nothing else is asked for: the built-in text, and synthetic speech as cepstra."""

import argparse
from pathlib import Path

from seqmodels import data
from seqmodels.data.mfcc import MFCC
from seqmodels.sequences import Sequences

MANY_SPEAKERS = 20  # from here on whole speakers can be held out


def asks_for_text(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--text", type=Path, help="a UTF-8 file, instead of the built-in text")


def asks_for_audio(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--audio", type=Path, help="a folder of WAV files, instead of synthetic speech")


def asks_for_both(parser: argparse.ArgumentParser) -> None:
    asks_for_text(parser)
    asks_for_audio(parser)


def whole_text(given: argparse.Namespace) -> str:
    """All of it, as one string."""
    return str((data.builtin_text() if given.text is None else data.text(given.text))[0])


def text_parts(given: argparse.Namespace, *, quick: int = 60_000) -> tuple[Sequences, Sequences]:
    """One long text: its last tenth is held out. Of a quick run, the first characters alone."""
    whole = whole_text(given)
    return Sequences([whole[:quick] if given.quick else whole]).split(0.1)


def frames(given: argparse.Namespace, mfcc: MFCC | None = None) -> tuple[Sequences, Sequences]:
    """Utterances as 13 cepstra a frame, training and held-out part.

    A fifth of the speakers is held out; of few speakers a fifth of their utterances.
    """
    if given.audio is not None:
        return _split(data.audio(given.audio, mfcc=mfcc))
    n_utterances, n_speakers = (100, 25) if given.quick else (600, 60)
    return _split(data.speech(n_utterances, n_speakers, features="mfcc", mfcc=mfcc).sequences)


def _split(found: Sequences) -> tuple[Sequences, Sequences]:
    if "speaker" in found.metadata and found.metadata["speaker"].nunique() >= MANY_SPEAKERS:
        return found.split(0.2, by="speaker")
    # Few speakers are in both parts, so what is generalised over is utterances, and these are the independent units.
    return found.with_metadata(found.metadata.drop(columns="cluster", errors="ignore")).split(0.2)
