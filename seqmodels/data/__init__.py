"""Sources of sequences: text, pairs of texts, audio and synthetic data; and waveforms from spectral frames."""

from seqmodels.data.audio import audio
from seqmodels.data.griffin_lim import from_log_mel, from_mfcc, griffin_lim
from seqmodels.data.known_hmm import KnownHMM, hmm_draws
from seqmodels.data.mfcc import MFCC, deltas
from seqmodels.data.parallel import pairs
from seqmodels.data.speech import Speech, speech
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
    "from_log_mel",
    "from_mfcc",
    "griffin_lim",
    "hmm_draws",
    "pairs",
    "sha256",
    "speech",
    "text",
]
