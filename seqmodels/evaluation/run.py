"""Run tasks and write what came out: a page, a table, pictures with intervals, and the comparison itself."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from seqmodels.evaluation.budget import Budget
from seqmodels.evaluation.compare import compare
from seqmodels.evaluation.comparison import Comparison
from seqmodels.evaluation.limits import budget_of, under_budget
from seqmodels.evaluation.progress import Progress
from seqmodels.evaluation.standard import Task

Say = Callable[[str], None]


def announce(tasks: Sequence[Task], seeds: int = 1) -> str:
    """What will be done, and about how long it takes."""
    lines = []
    for task in tasks:
        train, test = ((y or x) for x, y in (task.train, task.test))
        lines.append(
            f"{task.title}: {len(task.models)} models ({', '.join(task.models)}), fitted to {int(train.n_units.sum()):,} "
            f"{train.unit}s and compared on {int(test.n_units.sum()):,} held out"
        )
    minutes = seeds * sum(task.seconds for task in tasks) / 60
    return "\n".join(
        [*lines, f"This takes about {max(1, round(minutes))} min on two cores; Ctrl-C ends it and keeps what is done."]
    )


def run(
    tasks: Sequence[Task],
    out: str | os.PathLike[str],
    *,
    random_state: int = 0,
    seeds: int = 1,
    seconds: float | None = None,
    steps: int | None = None,
    say: Say = print,
    progress: bool = False,
) -> list[Comparison]:
    """Compare the models of each task; write ``NAME.html``, ``NAME.csv``, two PNG, ``NAME.json`` and the folder ``NAME`` into ``out``.

    ``NAME`` holds the comparison itself, for ``Comparison.load``. Interrupted (``KeyboardInterrupt``), the models fitted so far
    are compared and written before it goes on; the one that it came in is fitted as far as it was and not among them.

    Args:
        seconds, steps: a budget for every model, in the place of its own; see ``limited``.
        say: takes what is to be read.
        progress: show a bar with the time left on stderr, where that is a terminal.
    """
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    held = [under_budget(task, seconds=seconds, steps=steps) for task in tasks]
    say(announce(held, seeds))
    bar = Progress(seeds * sum(task.seconds for task in held), shown=progress)
    runner = _Runner(folder, random_state, seeds, budget_of(seconds, steps), say, bar)
    try:
        results = [runner.run(task) for task in held]
    finally:
        bar.close()
    pages = "\n".join(f"  {folder / f'{task.name}.html'}" for task in held)
    say(f"\nWritten to {folder}/. Open\n{pages}")
    return results


@dataclass(frozen=True)
class _Runner:
    """What the comparisons of a run have in common."""

    folder: Path
    random_state: int
    seeds: int
    budget: Budget | None
    say: Say
    bar: Progress

    def run(self, task: Task) -> Comparison:
        self._tell(f"\n{task.title}")
        began = time.perf_counter()
        try:
            result = self._compared(task)
        except KeyboardInterrupt:
            self._rescue(task, began)
            raise
        write(result, task, self.folder, time.perf_counter() - began)
        self._tell(f"\n{result}")
        return result

    def _tell(self, text: str) -> None:
        with self.bar.aside():
            self.say(text)

    def _compared(self, task: Task) -> Comparison:
        equal = task.seconds / len(task.models)
        shares = {name: self.seeds * task.estimates.get(name, equal) for name in task.models}
        with self.bar.of(task.models, shares, self.seeds) as watch:

            def hear(line: str) -> None:
                watch.done()
                self._tell(f"  {line}")

            return compare(
                task.models,
                *task.train,
                test=task.test if task.train[1] is not None else task.test[0],
                baseline=task.baseline,
                title=task.title,
                seeds=self.seeds,
                random_state=self.random_state,
                progress=hear,
                budget=self.budget,
            )

    def _rescue(self, task: Task, began: float) -> None:
        """What was fitted before the interrupt, compared as far as it goes."""
        models = {name: model for name, model in task.models.items() if model.__sklearn_is_fitted__()}
        fitted = {name: model for name, model in models.items() if not model.interrupted_}
        if not fitted:
            return
        baseline = task.baseline if task.baseline in fitted else next(iter(fitted))
        title = f"{task.title}, interrupted: {len(fitted)} of {len(task.models)} models"
        result = compare(fitted, *task.test, baseline=baseline, title=title, random_state=self.random_state)
        write(result, task, self.folder, time.perf_counter() - began)
        self._tell(f"\n{result}\n\nWritten to {self.folder}/. Open\n  {self.folder / f'{task.name}.html'}")


def write(result: Comparison, task: Task, folder: Path, seconds: float) -> None:
    """The files of one comparison."""
    result.to_csv(folder / f"{task.name}.csv")
    result.save(folder / task.name)
    result.to_html(folder / f"{task.name}.html")
    result.plot_forest().savefig(folder / f"{task.name}.png", dpi=160)
    result.plot_learning_curves().savefig(folder / f"{task.name}-learning.png", dpi=160)
    record = {"task": task.name, "seconds": round(seconds, 1), **result.provenance}
    (folder / f"{task.name}.json").write_text(json.dumps(record, indent=2) + "\n")
