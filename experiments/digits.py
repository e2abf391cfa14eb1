"""Which family models spoken digits best? ``python experiments/digits.py FOLDER [SECONDS]``.

The free-spoken-digit recordings, 13 MFCC, files with index 0 to 4 held out: the official split. Density, and
continuation of the first 12 frames. Speakers are in both parts, so utterances are the independent units.
"""

import sys

import numpy as np

from seqmodels import (
    GRU,
    HMM,
    LSTM,
    AutoregressiveGaussian,
    ElmanRNN,
    GaussianMixture,
    LSTMSeq2Seq,
    SequenceModel,
    Transformer,
    TransformerSeq2Seq,
    data,
)
from seqmodels.evaluation.runs.run import run
from seqmodels.evaluation.runs.suites import Task
from seqmodels.training import GradientTraining

CONTEXT = 12


def families(seconds: float) -> dict[str, SequenceModel]:
    """Those that need no source."""
    return {
        "iid": HMM(1, observation=GaussianMixture(1, "full")),
        "hmm-16x4": HMM(16, observation=GaussianMixture(4)),
        "hmm-48x8": HMM(48, observation=GaussianMixture(8), max_seconds=seconds),
        "var": HMM(1, observation=AutoregressiveGaussian()),
        "ar-hmm-16": HMM(16, observation=AutoregressiveGaussian(), max_seconds=seconds),
        "elman": ElmanRNN(max_seconds=seconds),
        "lstm": LSTM(max_seconds=seconds),
        "gru": GRU(max_seconds=seconds),
        "transformer": Transformer(max_seconds=seconds),
    }


def encoder_decoders(seconds: float) -> dict[str, SequenceModel]:
    """Those that read the context with an encoder."""
    return {
        "seq2seq-fixed": LSTMSeq2Seq(d_model=128, attention=None, max_seconds=seconds),
        "seq2seq-additive": LSTMSeq2Seq(d_model=128, max_seconds=seconds),
        "seq2seq-multiplicative": LSTMSeq2Seq(d_model=128, attention="multiplicative", max_seconds=seconds),
        "seq2seq-transformer": TransformerSeq2Seq(max_seconds=seconds),
    }


def long_lstm() -> SequenceModel:
    """For about 100 seconds of a core: so many steps need more to hold them back. Chosen within the training part."""
    return LSTM(
        max_steps=2400, training=GradientTraining(averaging=0.2), dropout=0.3, observation=GaussianMixture(2, "full")
    )


if __name__ == "__main__":
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 40.0
    frames = data.audio(sys.argv[1])
    frames = frames.with_metadata(frames.metadata.drop(columns="cluster"))
    held_out = frames.metadata["index"].astype(int).to_numpy() < 5
    train, test = frames.take(~held_out), frames.take(held_out)
    pairs = train.continuation(CONTEXT), test.continuation(CONTEXT)
    density = {**families(seconds), "lstm-long": long_lstm()}
    both = {**families(seconds), **encoder_decoders(seconds)}
    n_networks = np.array([5, 9])
    tasks = [
        Task("digits-density", "Spoken digits: log p(x)", (train, None), (test, None), density),
        Task("digits-continuation", f"Spoken digits: log p(rest | first {CONTEXT} frames)", *pairs, both),
    ]
    estimates = n_networks * seconds + np.array([130, 30])
    tasks = [
        Task(t.name, t.title, t.train, t.test, t.models, s, "hmm-16x4") for t, s in zip(tasks, estimates, strict=True)
    ]
    run(tasks, "experiments/results/digits")
