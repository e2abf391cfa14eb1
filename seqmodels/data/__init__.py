"""Where sequences come from: text, audio, and data made by rule."""

from seqmodels.data.audio import audio
from seqmodels.data.draws import KnownHMM, hmm_draws
from seqmodels.data.mfcc import MFCC, deltas
from seqmodels.data.synthetic import Speech, speech
from seqmodels.data.text import builtin_text, sha256, text

__all__ = ["MFCC", "KnownHMM", "Speech", "audio", "builtin_text", "deltas", "hmm_draws", "sha256", "speech", "text"]
