"""What the experiments on pairs have in common: arguments, the models, how decoded targets are counted, and what is written."""

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from stamp import stamped

from seqmodels import LSTMSeq2Seq, Sequences, TransformerSeq2Seq
from seqmodels.neural.model import NeuralModel

ATTENTIONS = {"fixed": None, "additive": "additive", "multiplicative": "multiplicative"}
NAMES = ("fixed", "additive", "multiplicative", "transformer")
Item = Sequence[Any] | np.ndarray


def arguments(description: str, data: str | None, *, seconds: float, out: str) -> argparse.Namespace:
    """Of the command line; ``data`` is what its one positional argument is called, None: there is none."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    if data is not None:
        parser.add_argument("data", metavar=data.upper())
    parser.add_argument("--seconds", type=float, default=seconds, help="of training, for each model, on one core")
    parser.add_argument("--steps", type=int, help="of training in place of seconds: runs that repeat exactly")
    parser.add_argument("--models", nargs="+", choices=NAMES, default=list(NAMES))
    parser.add_argument("--decoded", type=int, help="targets that are decoded, the first of the test part; all of them")
    parser.add_argument("--out", default=out, help="folder of the results")
    return parser.parse_args()


def budget(given: argparse.Namespace) -> dict[str, Any]:
    """How long to train, as models take it."""
    return {"max_seconds": given.seconds} if given.steps is None else {"max_steps": given.steps}


def recurrent(name: str, **settings: Any) -> LSTMSeq2Seq:
    """With the attention of that name."""
    return LSTMSeq2Seq(attention=ATTENTIONS[name], **settings)  # type: ignore[arg-type]


def models(names: Sequence[str], lstm: dict[str, Any], transformer: dict[str, Any]) -> dict[str, NeuralModel]:
    """Of ``NAMES``, by these settings."""
    return {n: TransformerSeq2Seq(**transformer) if n == "transformer" else recurrent(n, **lstm) for n in names}


def edit_distance(a: Item, b: Item) -> int:
    """Insertions, deletions and substitutions, the fewest (Levenshtein 1966)."""
    row = np.arange(len(b) + 1)
    for i, x in enumerate(a, start=1):
        differs = np.array([x != y for y in b], dtype=int)
        best = np.concatenate([[i], np.minimum(row[1:] + 1, row[:-1] + differs)])
        row = np.minimum.accumulate(best - np.arange(len(best))) + np.arange(len(best))  # what insertions add
    return int(row[-1])


def error_rates(found: Sequence[Item], references: Sequence[Sequence[Item]]) -> dict[str, float]:
    """Against the closest reference of each: edits per symbol of it, and the part of sequences that are none of theirs."""
    closest = [
        min(((edit_distance(f, r), len(r)) for r in each), key=lambda pair: (pair[0] / pair[1], pair[1]))
        for f, each in zip(found, references, strict=True)
    ]
    edits, lengths = (np.array(column) for column in zip(*closest, strict=True))
    return {"symbol_errors": float(edits.sum() / lengths.sum()), "sequence_errors": float((edits > 0).mean())}


def nats(model: NeuralModel, X: Any, y: Sequences) -> dict[str, float]:
    """Of the test part: nats a raw unit with the end in the numerator, lower is better."""
    return {"nats": -model.score(X, y)}


def decoded(model: NeuralModel, X: Sequences, references: Sequence[Sequence[Item]], n_beams: int) -> dict[str, float]:
    """Error rates of ``model.predict``; names end in what was asked for."""
    began = time.perf_counter()
    longest = max(len(r) for each in references for r in each)
    found = model.predict(X, n_beams=n_beams, max_length=2 * longest)
    how = "greedy" if n_beams == 1 else f"beam{n_beams}"
    rates = {f"{key}_{how}": value for key, value in error_rates(found, references).items()}
    return {**rates, f"decoded_{how}": len(X), f"seconds_{how}": time.perf_counter() - began}


def described(name: str, model: NeuralModel) -> dict[str, Any]:
    """What a row says of a fitted model."""
    return {
        "model": name,
        "n_parameters": model.n_parameters_,
        "steps": int(model.history_["step"].iloc[-1]),
        "fit_seconds": model.fit_seconds_,
    }


def fitted(
    candidates: dict[str, NeuralModel],
    X: Sequences,
    y: Sequences,
    validation: Any,
    measure: Callable[..., dict[str, Any]],
) -> pd.DataFrame:
    """Each model fitted in turn, a row each: ``described``, and what ``measure(model)`` says."""
    rows = []
    for name, model in candidates.items():
        model.fit(X, y, validation=validation)
        rows.append({**described(name, model), **measure(model)})
        print({k: round(v, 4) if isinstance(v, float) else v for k, v in rows[-1].items()}, flush=True)
    return pd.DataFrame(rows)


def written(frame: pd.DataFrame, file: Path) -> None:
    """With its stamp."""
    file.parent.mkdir(parents=True, exist_ok=True)
    stamped(frame).to_csv(file, index=False, float_format="%.5g")
    print(frame.to_string(index=False, float_format="%.4g"))


def verdict(claims: dict[str, bool]) -> str:
    """A sentence on which claims held."""
    said = [f"{claim}: {'yes' if held else 'NO'}" for claim, held in claims.items()]
    return "Held? " + "; ".join(said) + "."
