"""Which digit is being said, frame by frame? ``python experiments/tagging.py FOLDER [SECONDS]``.

Of the free-spoken-digit recordings those of one speaker are joined five at a time, in an order drawn once, and every
frame of 13 MFCC is labelled with its digit; files with index 0 to 4 are held out: the official split. Nats a frame of
p(labels | frames), and the share of frames whose predicted label is right: by Viterbi of the HMM, greedily of networks
that are told the labels before. ``labels-alone`` does not look at the frames: labels last, so most nats are saved
without any.
"""

import sys
from pathlib import Path

import numpy as np

from seqmodels import (
    LSTM,
    GaussianMixture,
    HMMTagger,
    LSTMTagger,
    SequenceModel,
    Sequences,
    TransformerTagger,
    compare,
    data,
)
from seqmodels.evaluation.comparison.provenance import stamped

RESULTS = Path("experiments/results/tagging")
DIGITS = 5  # a sequence
Pairs = tuple[list[np.ndarray], list[np.ndarray]]


def joined(frames: Sequences, seed: int) -> Pairs:
    """Sequences of frames ``(T, 13)`` and of labels ``(T,)``."""
    rng, X, y = np.random.default_rng(seed), [], []
    for speaker in sorted(set(frames.metadata["speaker"])):
        order = rng.permutation(np.flatnonzero(frames.metadata["speaker"] == speaker))
        for part in np.array_split(order, len(order) // DIGITS):
            items = [frames.items[i] for i in part]
            digits = frames.metadata["label"].iloc[part].astype(int)
            X.append(np.concatenate(items))
            y.append(np.repeat(digits, [len(item) for item in items]))
    return X, y


def models(seconds: float) -> dict[str, SequenceModel]:
    return {
        "labels-alone": LSTM(d_model=64, ignore_source=True, length="given", max_seconds=seconds),
        "hmm-16": HMMTagger(emission=GaussianMixture(16), max_iter=20),
        "hmm-64": HMMTagger(emission=GaussianMixture(64), max_iter=20),
        "hmm-8x4": HMMTagger(emission=GaussianMixture(4), n_states_per_label=8, max_iter=20),
        "lstm-causal": LSTMTagger(bidirectional=False, max_seconds=seconds),
        "lstm": LSTMTagger(max_seconds=seconds),
        "lstm-independent": LSTMTagger(autoregressive=False, max_seconds=seconds),
        "transformer-causal": TransformerTagger(causal=True, positions="rotary", max_seconds=seconds),
        "transformer": TransformerTagger(positions="rotary", max_seconds=seconds),
    }


def accuracy(model: SequenceModel, X: list[np.ndarray], y: list[np.ndarray]) -> float:
    """The share of frames."""
    found = model.predict(X, length=[len(labels) for labels in y])
    return float(np.mean(np.concatenate(found) == np.concatenate(y)))


if __name__ == "__main__":
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 60.0
    frames = data.audio(sys.argv[1])
    held_out = frames.metadata["index"].astype(int).to_numpy() < 5
    train, test = joined(frames.take(~held_out), 0), joined(frames.take(held_out), 1)
    title = "Spoken digits: log p(digit of each frame | frames)"
    taggers = models(seconds)
    result = compare(taggers, *train, test=test, baseline="hmm-16", title=title, progress=print)
    right = {name: accuracy(model, *test) for name, model in taggers.items()}
    frame = result.frame.assign(accuracy=result.frame["model"].map(right))
    RESULTS.mkdir(parents=True, exist_ok=True)
    stamped(frame).to_csv(RESULTS / "tagging.csv", index=False)
    print(result)
    print(frame[["model", "score", "accuracy"]])
