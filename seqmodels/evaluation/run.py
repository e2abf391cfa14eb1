"""Run tasks and write what came out: a table, a picture with intervals, learning curves, a page, and the config."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from seqmodels.data import sha256
from seqmodels.evaluation.compare import compare
from seqmodels.evaluation.comparison import Comparison
from seqmodels.evaluation.provenance import provenance
from seqmodels.evaluation.standard import Task
from seqmodels.storage import describe


def announce(tasks: Sequence[Task]) -> str:
    """What will be done, and about how long it takes."""
    lines = []
    for task in tasks:
        train, test = ((y or x) for x, y in (task.train, task.test))
        lines.append(
            f"{task.title}: {len(task.models)} models ({', '.join(task.models)}), fitted to {int(train.n_units.sum()):,} "
            f"{train.unit}s and compared on {int(test.n_units.sum()):,} held out"
        )
    minutes = sum(task.seconds for task in tasks) / 60
    return "\n".join([*lines, f"This takes about {max(1, round(minutes))} min on two cores."])


def run(
    tasks: Sequence[Task], out: str | os.PathLike[str], *, random_state: int = 0, say: Callable[[str], None] = print
) -> list[Comparison]:
    """Compare the models of each task; write ``NAME.csv``, ``NAME.html``, two PNG and ``NAME.json`` into ``out``."""
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    say(announce(tasks))
    results = []
    for task in tasks:
        say(f"\n{task.title}")
        began = time.perf_counter()
        test = task.test if task.train[1] is not None else task.test[0]
        result = compare(
            task.models,
            *task.train,
            test=test,
            baseline=task.baseline,
            title=task.title,
            random_state=random_state,
            progress=lambda line: say(f"  {line}"),
        )
        write(result, task, folder, random_state, time.perf_counter() - began)
        say(f"\n{result}")
        results.append(result)
    say(f"\nwritten to {folder}/: {', '.join(sorted(p.name for p in folder.iterdir()))}")
    return results


def write(result: Comparison, task: Task, folder: Path, random_state: int, seconds: float) -> None:
    """The files of one comparison."""
    result.to_csv(folder / f"{task.name}.csv")
    result.to_html(folder / f"{task.name}.html")
    result.plot_forest().savefig(folder / f"{task.name}.png", dpi=160)
    result.plot_learning_curves().savefig(folder / f"{task.name}-learning.png", dpi=160)
    (folder / f"{task.name}.json").write_text(json.dumps(_config(task, random_state, seconds), indent=2) + "\n")


def _config(task: Task, random_state: int, seconds: float) -> dict[str, Any]:
    parts = {"train": task.train, "test": task.test}
    return {
        "task": task.name,
        **provenance(),
        "random_state": random_state,
        "seconds": round(seconds, 1),
        "sha256": {
            f"{k} {n}": sha256(s) for k, p in parts.items() for n, s in zip("xy", p, strict=True) if s is not None
        },
        "models": {name: describe(model) for name, model in task.models.items()},
    }
