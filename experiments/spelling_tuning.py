"""Which settings let encoder-decoders learn spelling fastest?

``python experiments/spelling_tuning.py cmudict.dict STEPS [NAME ...] [--words N ...]``

Small batches and few steps, so that many settings can be tried; only the training part of ``spelling.py`` is read, of
which 2,000 words are kept to measure on. Nats a phoneme over all variants, one seed. Seconds are of the process, on one
thread of a machine that was shared. The table kept is of four runs, before and after batches were cut by the length of
the source too (``batches_by``); those of "default" are the latest.
"""

import argparse
import time
from typing import Any

import pandas as pd
from spelling import Words

from seqmodels import LSTMSeq2Seq, TransformerSeq2Seq
from seqmodels.data import Vocabulary
from seqmodels.evaluation.comparison.provenance import stamped
from seqmodels.neural.model import NeuralModel
from seqmodels.training import AdamW

MEASURED = 2_000
SHAPE: dict[str, Any] = {"d_model": 128, "n_layers": 3, "batch_size": 64}
LEAN: dict[str, Any] = {
    "activation": "relu2",
    "architecture__bias": False,
    "architecture__zero_init": True,
    "convolution_lags": 4,
    "training__weight_decay": 0.1,
}
CLASSIC: dict[str, Any] = {
    **{
        "activation": "gelu",
        "architecture__bias": True,
        "architecture__zero_init": False,
        "convolution_lags": 0,
        "training__weight_decay": 0.05,
    },
    **{"positions": "sinusoidal", "dropout": 0.1, "lr": 3e-3},
    **{"training__optimizer": AdamW(), "architecture__cross_bias": False},
}
TURNED: dict[str, Any] = {**CLASSIC, **LEAN, "positions": "rotary"}
WAVES: dict[str, Any] = {**CLASSIC, **LEAN, "positions": "sinusoidal"}
TRANSFORMERS: dict[str, dict[str, Any]] = {
    "classic": CLASSIC,
    "turned": TURNED,
    "waves": WAVES,
    "classic, zero init": {**CLASSIC, "architecture__zero_init": True},
    "classic, previous 2": {**CLASSIC, "convolution_lags": 2},
    "waves, previous 2": {**WAVES, "convolution_lags": 2},
    "waves, lr 5e-3": {**WAVES, "lr": 5e-3},
    "turned, lr 2e-3": {**TURNED, "lr": 2e-3},
    "waves, no dropout": {**WAVES, "dropout": 0.0},
    "t5": {**CLASSIC, **LEAN, "positions": "t5"},
    "waves, gelu": {**WAVES, "activation": "gelu"},
    "waves, biases": {**WAVES, "architecture__bias": True},
    "classic, lr 1e-3": {**CLASSIC, "lr": 1e-3},
    "default": {},
    "default, no lags": {"convolution_lags": 0},
    "default, four lags": {"convolution_lags": 4},
    "default, no cross bias": {"architecture__cross_bias": False},
    "default, AdamW": {"training__optimizer": AdamW(), "lr": 3e-3},
    "default, no dropout": {"dropout": 0.0},
    "default, dropout 0.1": {"dropout": 0.1},
}
LSTMS: dict[str, dict[str, Any]] = {
    f"lstm {attention}, lr {lr:g}, dropout {dropout}": {"attention": attention, "lr": lr, "dropout": dropout}
    for attention in ("multiplicative", "additive", None)
    for lr, dropout in ((4e-3, 0.1), (6e-3, 0.1), (8e-3, 0.1), (4e-3, 0.0))
}


def candidate(name: str, steps: int) -> NeuralModel:
    if name in LSTMS:
        return LSTMSeq2Seq(d_model=128, batch_size=64, max_steps=steps, **LSTMS[name])
    return TransformerSeq2Seq(max_steps=steps).set_params(**SHAPE, **TRANSFORMERS[name])


def main(given: argparse.Namespace) -> None:
    train = Words.read(given.file).split()["train"]
    letters = Vocabulary.learn(train.variants, unknown="?")
    phonemes = Vocabulary.learn((s for every in train.variants.values() for s in every), unknown=None)
    words = list(train.variants.items())
    test = Words(dict(words[:MEASURED])).pairs(letters, phonemes)
    rows = []
    for n in given.words:
        X, y = Words(dict(words[MEASURED:][:n])).pairs(letters, phonemes)
        for name in given.names or [*TRANSFORMERS, *LSTMS]:
            model, began = candidate(name, given.steps), time.process_time()
            model.fit(X, y, validation=None)
            seconds = time.process_time() - began
            passes = given.steps * model.batch_size / len(X)
            of_run = {"cpu_seconds": seconds, "steps": given.steps, "passes": passes}
            rows.append({"settings": name, "nats": -model.score(*test), **of_run})
            print(rows[-1], flush=True)
            stamped(pd.DataFrame(rows)).to_csv(given.out, index=False, float_format="%.5g")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", help="cmudict.dict")
    parser.add_argument("steps", type=int)
    parser.add_argument("names", nargs="*", help=f"of settings; default: all of {', '.join([*TRANSFORMERS, *LSTMS])}")
    parser.add_argument("--words", type=int, nargs="+", default=[None], help="of training; default: all")
    parser.add_argument("--out", default="experiments/results/tuning/spelling.csv")
    main(parser.parse_args())
