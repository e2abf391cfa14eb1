"""How well does an HMM learn characters in a given time on one core? ``experiments/hmm_text.py FILE [--inside]``.

The split is nanoGPT's: the last 111,540 characters are held out. ``--inside`` holds out the end of the training part
instead: anything tuned was tuned there. One row a model goes to ``experiments/results/hmm_text/``, with the command,
the date and the hardware.
"""

import argparse
import time
from pathlib import Path

import pandas as pd
import torch

from seqmodels import HMM, Categorical, data
from seqmodels.evaluation.provenance import stamped

HELD_OUT = 111_540
RESULTS = Path("experiments/results/hmm_text")
BUDGETS = {64: 30.0, 256: 90.0}  # seconds of fitting, by the number of states


def learn(
    train: str, test: str, n_states: int, seconds: float | None, epochs: int, batches: int, decay: float
) -> dict[str, object]:
    model = HMM(
        n_states,
        observation=Categorical(0.01),
        length="given",
        pseudocount=0.01,
        algorithm="stepwise",
        batches=batches,
        step_decay=decay,
        max_iter=epochs,
        tol=0,
        max_seconds=seconds,
    )
    busy = time.process_time()
    model.fit([train])
    busy = time.process_time() - busy
    return {
        "states": n_states,
        "algorithm": "stepwise",
        "batches": batches,
        "step_decay": decay,
        "seconds": round(model.fit_seconds_, 1),
        "cpu_seconds": round(busy, 1),
        "epochs": len(model.history_),
        "train": round(-model.history_["log_prob"].iloc[-1], 4),
        "validation": round(-model.score([test]), 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file")
    parser.add_argument("--states", type=int, nargs="+", default=list(BUDGETS))
    parser.add_argument("--epochs", type=int, nargs="+", help="instead of seconds, on a machine that is shared")
    parser.add_argument("--batches", type=int, default=24)
    parser.add_argument("--decay", type=float, default=0.5)
    parser.add_argument("--inside", action="store_true")
    options = parser.parse_args()
    text = str(data.text(options.file)[0])
    train, test = text[:-HELD_OUT], text[-HELD_OUT:]
    if options.inside:
        train, test = train[:-HELD_OUT], train[-HELD_OUT:]
    torch.set_num_threads(1)
    rows = []
    for i, n_states in enumerate(options.states):
        seconds = None if options.epochs else BUDGETS.get(n_states, 60.0)
        epochs = options.epochs[i] if options.epochs else 10_000
        rows.append(learn(train, test, n_states, seconds, epochs, options.batches, options.decay))
        print(rows[-1], flush=True)
    if not options.inside:
        RESULTS.mkdir(parents=True, exist_ok=True)
        stamped(pd.DataFrame(rows)).to_csv(RESULTS / "characters.csv", index=False)


if __name__ == "__main__":
    main()
