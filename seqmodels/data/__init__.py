"""Readers of files in many formats, parallel text, synthetic data, and waveforms reconstructed from cepstra."""

from seqmodels.data.audio import audio
from seqmodels.data.fasta import fasta
from seqmodels.data.features import FrameFeatures, SpeechFeatures
from seqmodels.data.huggingface import from_rows
from seqmodels.data.jsonl import jsonl
from seqmodels.data.known_hmm import KnownHMM, hmm_draws
from seqmodels.data.mfcc import MFCC, deltas
from seqmodels.data.midi import midi
from seqmodels.data.npy import npy
from seqmodels.data.on_disk import on_disk
from seqmodels.data.parallel_text import pairs
from seqmodels.data.read import is_recordings, is_table, is_text, read
from seqmodels.data.speech import Speech, speech
from seqmodels.data.tables import table
from seqmodels.data.text import builtin_text, sha256, text
from seqmodels.data.tracks import track_steps
from seqmodels.data.ts import ts
from seqmodels.data.vocabulary import Vocabulary

__all__ = [
    "MFCC",
    "FrameFeatures",
    "KnownHMM",
    "Speech",
    "SpeechFeatures",
    "Vocabulary",
    "audio",
    "builtin_text",
    "deltas",
    "fasta",
    "from_rows",
    "hmm_draws",
    "is_recordings",
    "is_table",
    "is_text",
    "jsonl",
    "midi",
    "npy",
    "on_disk",
    "pairs",
    "read",
    "sha256",
    "speech",
    "table",
    "text",
    "track_steps",
    "ts",
]
