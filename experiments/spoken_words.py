"""From frames to a word and from a word to frames: ``python experiments/spoken_words.py FOLDER [SECONDS]``.

The free-spoken-digit recordings, 13 MFCC, files with index 0 to 4 held out (the official split). ``words``: p(word |
frames), the word spelled in bytes with its end; the word is found greedily, and as the most probable of the ten.
``frames``: p(frames | word, their number). The models that ignore the source are the floor: what is known of a word
before anything is heard, of frames before it is known what is said.
"""

import math
import sys
from pathlib import Path

import numpy as np
import torch

from seqmodels import (
    HMM,
    AutoregressiveGaussian,
    LSTMSeq2Seq,
    NGram,
    SequenceModel,
    Sequences,
    TransformerSeq2Seq,
    compare,
    data,
)
from seqmodels.evaluation import exact_match
from seqmodels.evaluation.comparison.provenance import stamped

WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
RESULTS = Path("experiments/results/digits")


def encoder_decoders(seconds: float) -> dict[str, SequenceModel]:
    """Those that read the one and write the other."""
    budget = {"d_model": 128, "max_seconds": seconds}
    return {
        "seq2seq-fixed": LSTMSeq2Seq(attention=None, **budget),
        "seq2seq-additive": LSTMSeq2Seq(attention="additive", **budget),
        "seq2seq-multiplicative": LSTMSeq2Seq(attention="multiplicative", **budget),
        "seq2seq-transformer": TransformerSeq2Seq(**budget),
    }


def heard(model: SequenceModel, frames: Sequences, words: Sequences) -> dict[str, float]:
    """The share of recordings whose word is spelled right, and is the most probable of the ten."""
    log_prob = np.stack([model.log_prob(frames, [word] * len(frames)) for word in WORDS])
    best = [WORDS[k] == word for k, word in zip(log_prob.argmax(0), words, strict=True)]
    spelled = exact_match(words, model.predict(frames, max_length=8))
    return {"spelled right": spelled, "right of ten": float(np.mean(best))}


def main(folder: str, seconds: float) -> None:
    torch.set_num_threads(1)
    recordings = data.audio(folder)
    recordings = recordings.with_metadata(recordings.metadata.drop(columns="cluster"))
    words = Sequences([WORDS[int(label)] for label in recordings.labels or []])
    held_out = recordings.metadata["index"].astype(int).to_numpy() < 5
    x, y = (recordings.take(~held_out), recordings.take(held_out)), (words.take(~held_out), words.take(held_out))
    floors = {
        "words": NGram(6, ignore_source=True),
        "frames": HMM(1, observation=AutoregressiveGaussian(), ignore_source=True),
    }
    for task, (source, target) in {"words": (x, y), "frames": (y, x)}.items():
        models = {"ignoring the source": floors[task], **encoder_decoders(seconds)}
        result = compare(models, source[0], target[0], test=(source[1], target[1]), title=f"Spoken digits: {task}")
        frame = result.frame
        if task == "words":
            right = {
                name: heard(model, *(source[1], target[1]))
                for name, model in models.items()
                if name in encoder_decoders(1)
            }
            for column in ("spelled right", "right of ten"):
                frame[column] = [right.get(name, {}).get(column, math.nan) for name in frame["model"]]
        print(result, "\n", frame.iloc[:, -2:].assign(model=frame["model"]) if task == "words" else "", flush=True)
        RESULTS.mkdir(parents=True, exist_ok=True)
        stamped(frame.assign(seconds=seconds)).to_csv(RESULTS / f"spoken-{task}.csv", index=False)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 60.0)
