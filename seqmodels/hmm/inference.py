"""Inference in hidden Markov chains under its former name: ``seqmodels.inference.chains``."""

from seqmodels.inference.chains import (
    Filtered,
    Posterior,
    filter,
    forced_alignment,
    forward_backward,
    list_viterbi,
    log_prob,
    sample_states,
    smooth,
    textbook,
    viterbi,
)

__all__ = [
    "Filtered",
    "Posterior",
    "filter",
    "forced_alignment",
    "forward_backward",
    "list_viterbi",
    "log_prob",
    "sample_states",
    "smooth",
    "textbook",
    "viterbi",
]
