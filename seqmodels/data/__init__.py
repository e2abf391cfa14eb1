"""Where sequences come from: text, pairs of texts, audio, and data made by rule."""

from seqmodels.data.audio import audio
from seqmodels.data.draws import KnownHMM, hmm_draws
from seqmodels.data.mfcc import MFCC, deltas
from seqmodels.data.parallel import pairs
from seqmodels.data.synthetic import Speech, speech
from seqmodels.data.text import builtin_text, sha256, text
from seqmodels.data.vocabulary import Vocabulary

__all__ = [
    "MFCC",
    "KnownHMM",
    "Speech",
    "Vocabulary",
    "audio",
    "builtin_text",
    "deltas",
    "hmm_draws",
    "pairs",
    "sha256",
    "speech",
    "text",
]
