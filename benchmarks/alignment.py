"""``AlignmentHMM`` on translation: seconds and memory of training, seconds of ``predict``, by the number of pairs.

    OMP_NUM_THREADS=1 python benchmarks/alignment.py FOLDER    # of multi30k: train and test_2016_flickr, .de and .en

German to English in byte pairs, fitted with the settings of the class. Each size is a process of its own. ``fit_mb`` is
the most memory that ``fit`` held above what was held before it, ``seconds`` are of the processor on one thread.
``score`` and ``predicted_nats`` say that the figures are the same from one version to another: nats a byte of the test
part, and the mean log-probability of the predictions, which are greedy and as long as they may be by default.
"""

from __future__ import annotations

import argparse
import gzip
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from seqmodels import BPE, AlignmentHMM
from seqmodels.common.peak_memory import peak_memory
from seqmodels.evaluation.comparison.provenance import stamped

OUT = Path(__file__).parent / "results/alignment.csv"


def lines(folder: Path, name: str) -> list[str]:
    """Of a text, or of one that is packed."""
    file = folder / name
    text = file.read_bytes() if file.exists() else gzip.decompress((folder / f"{name}.gz").read_bytes())
    return text.decode().splitlines()


def pairs(folder: Path, part: str, n: int) -> tuple[list[str], list[str]]:
    """The first n sentences that have both sides."""
    both = [pair for pair in zip(lines(folder, f"{part}.de"), lines(folder, f"{part}.en"), strict=True) if all(pair)][
        :n
    ]
    return [german for german, _ in both], [english for _, english in both]


def measured(given: argparse.Namespace) -> dict[str, Any]:
    """A row of one size."""
    X, y = pairs(given.folder, "train", given.pairs)
    sources, targets = pairs(given.folder, "test_2016_flickr", given.sentences)
    model = AlignmentHMM(encoding=BPE(given.pieces), source_encoding=BPE(given.pieces))
    began = time.process_time()
    with peak_memory() as peak:
        model.fit(X, y)
    fitted = time.process_time()
    score = model.score(sources, targets)
    scored = time.process_time()
    predicted = model.predict(sources)
    ended = time.process_time()
    kept = [(x, guess) for x, guess in zip(sources, predicted, strict=True) if guess]
    return {
        "pairs": len(X),
        "pieces": given.pieces,
        "parameters": model.n_parameters_,
        "fit_seconds": fitted - began,
        "iterations": len(model.history_),
        "fit_mb": peak.megabytes,
        "sentences": len(sources),
        "score_seconds": scored - fitted,
        "predict_seconds": ended - scored,
        "score": score,
        "predicted_nats": float(np.mean(model.log_prob(*map(list, zip(*kept, strict=True))))),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="of multi30k")
    parser.add_argument("--sizes", type=int, nargs="+", default=[4_000, 29_000], help="pairs of training")
    parser.add_argument("--sentences", type=int, default=1_000)
    parser.add_argument("--pieces", type=int, default=4_000, help="of either language")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--pairs", type=int, help=argparse.SUPPRESS)  # of this process
    given = parser.parse_args()
    if given.pairs is not None:
        pd.DataFrame([measured(given)]).to_json(given.out, orient="records", double_precision=15)
        return
    rows = []
    for n in given.sizes:
        part = given.out.with_suffix(f".{n}.json")
        options = [str(given.folder), "--pairs", n, "--sentences", given.sentences, "--pieces", given.pieces]
        subprocess.run([sys.executable, __file__, *map(str, options), "--out", str(part)], check=True)
        rows.append(pd.read_json(part))
        part.unlink()
        print(rows[-1].T.to_string(), flush=True)
        stamped(pd.concat(rows)).to_csv(given.out, index=False, float_format="%.10g")


if __name__ == "__main__":
    main()
