"""Does a mixture of a model of characters and one of byte pairs gain? ``python -m experiments.mixed_encodings FOLDER``.

``FOLDER`` holds ``input.txt``. The split is nanoGPT's: the last 111,540 characters are the test part. An LSTM of
characters and a Transformer of byte-pair pieces are fitted to the rest but for its first 50,000 characters, on which
the weights of mixtures are learned. Nats a byte, whose figures for pieces are bounds, and seconds of the processor in
one thread (fitting and scoring; of a mixture its members' and its own) go to
``experiments/results/mixtures/encodings.csv``.
"""

import sys
import time
from pathlib import Path

import pandas as pd
import torch

from seqmodels import BPE, LSTM, Characters, Mixture, SequenceModel, Transformer, data
from seqmodels.evaluation.comparison.provenance import stamped
from seqmodels.wrappers.mixture.model import WeightsName
from seqmodels.wrappers.mixture.weights import FixedShare

RESULTS = Path("experiments/results/mixtures")
HELD_OUT, FOR_WEIGHTS = 111_540, 50_000
WEIGHTS: tuple[WeightsName, ...] = ("static", "posterior", "switching")


def main() -> None:
    torch.set_num_threads(1)
    text = str(data.text(Path(sys.argv[1]) / "input.txt")[0])
    head, rest, test = text[:FOR_WEIGHTS], text[FOR_WEIGHTS:-HELD_OUT], text[-HELD_OUT:]
    members: dict[str, SequenceModel] = {
        "LSTM of characters": LSTM(d_model=128, max_steps=250, encoding=Characters(), length="given"),
        "Transformer of byte pairs": Transformer(
            d_model=128, n_layers=2, max_steps=300, encoding=BPE(1024), length="given"
        ),
    }
    rows, seconds = [], {}
    for name, model in members.items():
        began = time.process_time()
        model.fit([rest])
        score = model.score([test])
        seconds[name] = time.process_time() - began
        rows.append({"model": name, "score": round(score, 4), "kind": model.measure_.kind, "weights": ""})
        rows[-1]["cpu_seconds"] = round(seconds[name], 1)
        print(rows[-1], flush=True)
    for weights in WEIGHTS:
        began = time.process_time()
        mixture = Mixture.from_fitted([*members.values()], [head], weights=weights)
        score = mixture.score([test])
        assert isinstance(mixture.weights_, FixedShare)
        prior, rate = mixture.weights_.prior, mixture.weights_.rate
        said = " ".join(f"{w:.3f}" for w in prior) + (f", rate {rate:.4f}" if 0 < rate < 1 else "")
        rows.append({"model": f"{weights} mixture", "score": round(score, 4), "kind": mixture.measure_.kind})
        rows[-1] |= {"weights": said, "cpu_seconds": round(sum(seconds.values()) + time.process_time() - began, 1)}
        print(rows[-1], flush=True)
    RESULTS.mkdir(parents=True, exist_ok=True)
    stamped(pd.DataFrame(rows)).to_csv(RESULTS / "encodings.csv", index=False)


if __name__ == "__main__":
    main()
