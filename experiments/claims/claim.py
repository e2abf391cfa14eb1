"""A claim of the textbooks put to the test: what every script of this folder has in common.

A script defines ``measure(given) -> Finding`` and ends in ``main(__doc__, measure)``. ``python
experiments/claims/NAME.py [--quick]`` writes ``NAME.csv`` (the figures, with command, date and hardware), ``NAME.png``
and ``NAME.json`` (the claim, its parts with their verdicts, and a sentence).
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure
from verdict import Part

from seqmodels.common.files import replaced, write_text
from seqmodels.evaluation.comparison.provenance import provenance, stamped


@dataclass(frozen=True)
class Finding:
    """What came out.

    Attributes:
        claim: one sentence, as a textbook has it, with its source.
        parts: its statements, each with a verdict by the rule that the script's docstring states.
        sentence: what was seen, with its figures.
        frame: everything measured, a row each.
        figure: the picture.
    """

    claim: str
    parts: list[Part]
    sentence: str
    frame: pd.DataFrame
    figure: Figure


def main(
    description: str | None,
    measure: Callable[[argparse.Namespace], Finding],
    arguments: Callable[[argparse.ArgumentParser], None] = lambda parser: None,
) -> None:
    """Read the command line, measure, write.

    Args:
        description: what ``--help`` prints.
        measure: the experiment.
        arguments: adds options beside ``--quick`` and ``--out`` to the parser.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes: whether it runs, not what comes out")
    parser.add_argument("--out", type=Path, default=Path("experiments/results/claims"), help="folder of the results")
    arguments(parser)
    given = parser.parse_args()
    began = time.perf_counter()
    written(measure(given), given.out / Path(sys.argv[0]).stem, quick=given.quick, began=began)


def written(finding: Finding, stem: Path, *, quick: bool, began: float) -> None:
    """The three files, and the sentence for the reader."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    with replaced(stem.with_suffix(".csv")) as partial:
        stamped(finding.frame).to_csv(partial, index=False, float_format="%.6g")
    with replaced(stem.with_suffix(".png")) as partial:
        finding.figure.savefig(partial, dpi=160)
    parts = [asdict(part) for part in finding.parts]
    said = {"claim": finding.claim, "parts": parts, "sentence": finding.sentence, "quick": quick}
    said |= {"seconds": round(time.perf_counter() - began, 1), **provenance()}
    write_text(stem.with_suffix(".json"), json.dumps(said, indent=2) + "\n")
    print(finding.frame.to_string(index=False, float_format="%.4g"))
    verdicts = "\n".join(f"{part.verdict}: {part.claim}, {part.seen}" for part in finding.parts)
    print(f"\n{finding.claim}\n{finding.sentence}\n{verdicts}")
