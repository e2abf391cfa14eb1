"""What do counts gain by going on within a text? ``python -m experiments.adaptive_counts FOLDER [NAMES]``.

``FOLDER`` holds ``input.txt``. The split is nanoGPT's: the last 111,540 characters are held out. The order of n-grams
is chosen on as many characters before them (rows ``inside``), context trees have their default depth; all are then
fitted on what is not held out. Nats a byte, and seconds of the processor in one thread, to fit and to score, go to
``experiments/results/adaptive_counts/text.csv``; the score by position in the held-out text to ``position.csv``.

``NAMES`` is a file of names, one a line, which are short sequences: a tenth of them, drawn, is scored after the others,
the end of each name being an event. Their figures go to ``names.csv``; given alone, as ``- NAMES``, only these.
"""

import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from seqmodels import ContextTree, NGram, SequenceModel, data
from seqmodels.evaluation.comparison.provenance import stamped

HELD_OUT = 111_540
RESULTS = Path("experiments/results/adaptive_counts")
EDGES = [0, 1_000, 3_000, 10_000, 30_000, HELD_OUT]
MODELS: dict[str, tuple[Callable[[int], SequenceModel], tuple[int, ...]]] = {
    "n-gram": (lambda n: NGram(n, length="given"), (6, 7)),
    "adaptive n-gram": (lambda n: NGram(n, adaptive=True, length="given"), (6, 7)),
    "context tree, static": (lambda n: ContextTree(n, adaptive=False, length="given"), (7,)),
    "context tree, bayes": (lambda n: ContextTree(n, weighting="bayes", length="given"), (7,)),
    "context tree": (lambda n: ContextTree(n, length="given"), (7,)),
}


def measure(model: SequenceModel, train: str, test: str) -> tuple[dict[str, object], np.ndarray]:
    began = time.process_time()
    model.fit([train])
    fitted = time.process_time()
    steps = model.log_prob_steps([test])[0]
    row = {
        "score": round(float(steps.mean()), 4),
        "fit_seconds": round(fitted - began, 2),
        "score_seconds": round(time.process_time() - fitted, 2),
        "parameters": model.n_parameters_,
    }
    return row, steps


def short_sequences(path: Path) -> None:
    """Of names: the order of the static n-gram is chosen on a tenth of them, which is then trained on as well."""
    names = path.read_text().split()
    order = np.random.default_rng(0).permutation(len(names))
    parts = [[names[i] for i in part] for part in np.split(order, [len(names) * 8 // 10, len(names) * 9 // 10])]
    train, chosen_on, test = parts
    best = max((3, 4, 5, 6), key=lambda n: NGram(n).fit(train).score(chosen_on))
    models = {
        f"{best}-gram": NGram(best),
        f"adaptive {best}-gram": NGram(best, adaptive=True),
        "context tree, static": ContextTree(adaptive=False),
        "context tree": ContextTree(),
    }
    rows = []
    for name, model in models.items():
        began = time.process_time()
        score = model.fit([*train, *chosen_on]).score(test)
        seconds = round(time.process_time() - began, 2)
        rows.append({"model": name, "memory": model.memory_, "score": round(score, 4), "seconds": seconds})
        print(rows[-1], flush=True)
    RESULTS.mkdir(parents=True, exist_ok=True)
    stamped(pd.DataFrame(rows)).to_csv(RESULTS / "names.csv", index=False)


def main() -> None:
    torch.set_num_threads(1)
    for path in sys.argv[2:]:
        short_sequences(Path(path))
    if sys.argv[1] == "-":
        return
    text = str(data.text(Path(sys.argv[1]) / "input.txt")[0])
    first, test = text[:-HELD_OUT], text[-HELD_OUT:]
    ContextTree(2).fit([first[:200]]).score([first[:200]])  # compiled before anything is timed
    rows, positions = [], []
    for name, (make, orders) in MODELS.items():
        inside = []
        for order in orders if len(orders) > 1 else ():
            row, _ = measure(make(order), first[:-HELD_OUT], first[-HELD_OUT:])
            inside.append({"part": "inside", "model": name, "order": order, **row})
        best = max(inside, key=lambda each: each["score"])["order"] if inside else orders[0]
        row, steps = measure(make(best), first, test)
        rows += [*inside, {"part": "test", "model": name, "order": best, **row}]
        print(pd.DataFrame(rows[-len(inside) - 1 :]).to_string(), flush=True)
        by_part = {f"{a:,} to {b:,}": round(float(steps[a:b].mean()), 4) for a, b in pairwise(EDGES)}
        positions.append({"model": name, "order": best, **by_part})
    RESULTS.mkdir(parents=True, exist_ok=True)
    stamped(pd.DataFrame(rows)).to_csv(RESULTS / "text.csv", index=False)
    stamped(pd.DataFrame(positions)).to_csv(RESULTS / "position.csv", index=False)


if __name__ == "__main__":
    main()
