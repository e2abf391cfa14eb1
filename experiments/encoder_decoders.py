"""What the experiments on pairs share: arguments, models, error rates of decoded targets, tables and a picture."""

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from seqmodels import AlignmentHMM, LSTMSeq2Seq, SequenceModel, Sequences, Transformer, TransformerSeq2Seq, compare
from seqmodels.encodings import Encoding
from seqmodels.evaluation import error_rate, exact_match
from seqmodels.evaluation.comparison.provenance import stamped
from seqmodels.plot.style import COLOURS, GRID, WIDTH
from seqmodels.training import Muon

ATTENTIONS = {"fixed": None, "additive": "additive", "multiplicative": "multiplicative"}
NAMES = (*ATTENTIONS, "transformer", "decoder-only", "alignment")
SHOWN = [
    "model",
    "score",
    "difference",
    "ci_low",
    "ci_high",
    "p_value",
    "p_holm",
    "n_parameters",
    "steps",
    "fit_seconds",
]
Item = Sequence[Any] | np.ndarray
Pairs = tuple[Sequences, Sequences]


# -- the command line -----------------------------------------------------------------------------------------


def parser(description: str | None, *, seconds: float, out: str) -> argparse.ArgumentParser:
    """Of what all of them ask."""
    result = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    result.add_argument("--seconds", type=float, default=seconds, help="of training, for each model, on one core")
    result.add_argument("--steps", type=int, help="of training in place of seconds: runs that repeat exactly")
    result.add_argument("--seed", type=int, default=0, help="of first weights and of batches")
    result.add_argument("--models", nargs="+", choices=NAMES, default=list(NAMES))
    result.add_argument(
        "--decoded", type=int, help="how many targets are decoded, the first of the test part; default: all"
    )
    result.add_argument("--out", type=Path, default=Path(out), help="folder of the results")
    return result


def budget(given: argparse.Namespace) -> dict[str, Any]:
    """How long to train, and from which seed, as models take it."""
    limit = {"max_seconds": given.seconds} if given.steps is None else {"max_steps": given.steps}
    return {**limit, "random_state": given.seed}


def models(
    names: Sequence[str],
    lstm: dict[str, Any],
    transformer: dict[str, Any],
    joint: Encoding | Literal["auto"] = "auto",
) -> dict[str, SequenceModel]:
    """Of ``NAMES``, by these settings; an alignment HMM needs none but the encodings.

    ``joint`` is the encoding of a Transformer that reads source and target as one sequence.
    """
    return {name: _model(name, lstm, transformer, joint) for name in names}


def _model(
    name: str, lstm: dict[str, Any], transformer: dict[str, Any], joint: Encoding | Literal["auto"]
) -> SequenceModel:
    match name:
        case "transformer":
            return TransformerSeq2Seq(**transformer)
        case "decoder-only":
            apart = {key: value for key, value in transformer.items() if key not in ("encoding", "source_encoding")}
            model = Transformer(context=256, encoding=joint, convolution_lags=1, **apart)
            return model.set_params(lr=4e-3, training__optimizer=Muon(newton_schulz_steps=3))
        case "alignment":
            return AlignmentHMM(**{key: v for key, v in lstm.items() if key in ("encoding", "source_encoding")})
    return LSTMSeq2Seq(attention=ATTENTIONS[name], **lstm)  # type: ignore[arg-type]


# -- decoding -------------------------------------------------------------------------------------------------


def decoded(
    model: SequenceModel,
    X: Sequences,
    references: Sequence[Sequence[Item]],
    n_beams: int,
    read: Callable[[Any], Item] = lambda item: item,
) -> dict[str, float]:
    """Error rates of ``read(model.predict(...))``, each against the closest of its references.

    Their names end in the kind of search, greedy or beam.
    """
    began = time.perf_counter()
    longest = max(len(r) for each in references for r in each)
    found = model.predict(X, n_beams=n_beams, max_length=2 * longest)
    how = "greedy" if n_beams == 1 else f"beam{n_beams}"
    targets = [read(item) for item in found]
    rates = {"symbol_errors": error_rate(references, targets), "sequence_errors": 1 - exact_match(references, targets)}
    more = {"decoded": len(X), "decoding_seconds": round(time.perf_counter() - began, 1)}
    return {f"{key}_{how}": value for key, value in {**rates, **more}.items()}


# -- tables and a picture -------------------------------------------------------------------------------------


def table(
    candidates: Mapping[str, SequenceModel],
    train: Pairs,
    validation: Pairs,
    test: Pairs,
    measure: Callable[[SequenceModel], dict[str, Any]],
) -> pd.DataFrame:
    """Each model fitted in turn and compared on the test part, with what ``measure`` says of it beside; by model."""
    rows = {}
    for name, model in candidates.items():
        model.fit(*train, validation=validation)
        rows[name] = measure(model)
        figures = {"nats": -model.score(*test), "seconds": model.fit_seconds_, **rows[name]}
        print(name, {key: round(float(value), 4) for key, value in figures.items()}, flush=True)
    compared = compare(candidates, *test, baseline=next(iter(candidates))).frame[SHOWN]
    return compared.set_index("model").join(pd.DataFrame.from_dict(rows, orient="index"))


def written(frame: pd.DataFrame, file: Path) -> None:
    """With its stamp, and shown."""
    file.parent.mkdir(parents=True, exist_ok=True)
    stamped(frame.reset_index()).to_csv(file, index=False, float_format="%.5g")
    print(frame.to_string(float_format="%.4g"))


def verdict(claims: Mapping[str, bool]) -> str:
    """A sentence on which claims held."""
    return "Held? " + "; ".join(f"{claim}: {'yes' if held else 'no'}" for claim, held in claims.items()) + "."


def draw_by_length(
    candidates: Mapping[str, SequenceModel], test: Pairs, file: Path, *, title: str, n_bins: int = 12
) -> pd.DataFrame:
    """Draw nats a unit against the length of the source, in bins of about equally many pairs; returns what is drawn."""
    X, y = test
    edges = np.unique(np.quantile(X.n_units, np.linspace(0, 1, n_bins + 1)).round())
    bins = np.digitize(X.n_units, edges[1:-1], right=True)
    units = pd.Series(y.n_units).groupby(bins).sum()
    curves = {n: -pd.Series(m.log_prob(X, y)).groupby(bins).sum() / units for n, m in candidates.items()}
    frame = pd.DataFrame(curves).set_index(pd.Series(X.n_units).groupby(bins).mean().rename("source length"))
    draw_curves(frame, file, title=title, units=(X.unit, y.unit))
    return frame


def draw_curves(frame: pd.DataFrame, file: Path, *, title: str, units: tuple[str, str]) -> None:
    """A curve for each column of what ``draw_by_length`` returns; ``units`` of source and target."""
    figure, axes = plt.subplots(figsize=(WIDTH, 0.6 * WIDTH), layout="constrained")
    for (name, curve), colour in zip(frame.items(), COLOURS, strict=False):
        axes.plot(curve.index, curve, marker="o", markersize=3, color=colour, label=name)
    axes.set(title=title, xlabel=f"length of the source ({units[0]}s)", ylabel=f"nats a {units[1]}, lower is better")
    axes.grid(color=GRID)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside right upper", frameon=False)  # beside the curves, which may be anywhere
    figure.savefig(file, dpi=160)
    plt.close(figure)
