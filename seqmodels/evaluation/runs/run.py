"""Run comparisons and write their results: an HTML page, a table, plots, and the comparison itself."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqmodels.common.files import locked_folder, replaced, write_text
from seqmodels.evaluation.comparison.compare import compare
from seqmodels.evaluation.comparison.comparison import Comparison
from seqmodels.evaluation.runs.suites import Task
from seqmodels.evaluation.tuning.budget import Budget, budget_of
from seqmodels.model import SequenceModel

CALLBACKS = "training__callbacks"  # the hyperparameter of models that are trained by gradient


def announce(tasks: Sequence[Task], n_seeds: int = 1) -> str:
    """Return a text that says what will be fitted and compared, and about how long it will take on two cores.

    Args:
        tasks: the comparisons.
        n_seeds: number of fits of each model.
    """
    lines = []
    for task in tasks:
        train, test = ((y or x) for x, y in (task.train, task.test))
        lines.append(
            f"{task.title}: {len(task.models)} models ({', '.join(task.models)}), fitted to "
            f"{int(train.n_units.sum()):,} {train.unit}s and compared on {int(test.n_units.sum()):,} held out"
        )
    minutes = n_seeds * sum(task.seconds for task in tasks) / 60
    return "\n".join(
        [*lines, f"This takes about {max(1, round(minutes))} min on two cores; Ctrl-C ends it and keeps what is done."]
    )


def run(
    tasks: Sequence[Task],
    out: str | os.PathLike[str],
    *,
    random_state: int = 0,
    n_seeds: int = 1,
    seconds: float | None = None,
    steps: int | None = None,
    n_jobs: int = 1,
    say: Callable[[str], None] = print,
    progress: bool = False,
    is_locked: bool = False,
) -> list[Comparison]:
    """Compare the models of each task, write the results into the folder ``out``, and return the comparisons.

    For a task called ``NAME`` the folder gets ``NAME.html``, ``NAME.csv``, ``NAME.json``, two PNG files, and the folder
    ``NAME`` with the comparison itself, for ``Comparison.load``. If it is interrupted (``KeyboardInterrupt``), the
    models fitted so far are compared and written before the exception is raised again; the model that was being fitted
    is not among them.

    Args:
        tasks: the comparisons to run.
        out: folder of the results, which is created.
        random_state: seed of the comparisons.
        n_seeds: number of fits of each model.
        seconds: seconds of training for every model instead of its own settings; None means its own.
        steps: number of training steps for every model instead of its own settings; None means its own.
        n_jobs: number of models that are fitted at the same time, -1 for one for each core; with several there is no
            progress bar.
        say: function that prints a text.
        progress: whether to show a bar with the time left on stderr, if that is a terminal.
        is_locked: whether the caller holds ``locked_folder(out)``, which keeps other runs from writing there.

    Raises:
        ValueError: another run is writing into ``out``; nothing has been fitted yet.
    """
    with nullcontext(Path(out)) if is_locked else locked_folder(out) as folder:
        budget = budget_of(seconds, steps)
        tasks = [task.under_budget(seconds=seconds, steps=steps) for task in tasks]
        say(announce(tasks, n_seeds))
        bar = TimeBar(n_seeds * sum(task.seconds for task in tasks), enabled=progress and n_jobs == 1)
        runner = _Runner(folder, random_state, n_seeds, budget, n_jobs, say, bar)
        try:
            results = [runner.run(task) for task in tasks]
        finally:
            bar.close()
    pages = "\n".join(f"  {folder / f'{task.name}.html'}" for task in tasks)
    say(f"\nWritten to {folder}/. Open\n{pages}")
    return results


@dataclass(frozen=True)
class _Runner:
    """A runner of comparisons, with the settings that all of them share.

    Attributes:
        folder: folder of the results.
        random_state: seed of the comparisons.
        n_seeds: number of fits of each model.
        budget: budget of every model; None means its own settings.
        n_jobs: number of models that are fitted at the same time.
        say: function that prints a text.
        bar: progress bar over all comparisons.
    """

    folder: Path
    random_state: int
    n_seeds: int
    budget: Budget | None
    n_jobs: int
    say: Callable[[str], None]
    bar: TimeBar

    def run(self, task: Task) -> Comparison:
        self._print(f"\n{task.title}")
        began = time.perf_counter()
        try:
            result = self._compare(task)
        except KeyboardInterrupt:
            self._compare_fitted(task, began)
            raise
        self._print(f"\n{result}")
        self._write(result, task, began)
        return result

    def _write(self, result: Comparison, task: Task, began: float) -> None:
        """Write a task's table and comparison, then draw its page and plots, which may be interrupted without loss.

        Args:
            result: the comparison.
            task: the task.
            began: time at which the comparison began, by ``time.perf_counter``.
        """
        write_figures(result, task, self.folder, time.perf_counter() - began)
        try:
            draw(result, task, self.folder)
        except KeyboardInterrupt:
            saved = self.folder / task.name
            self._print(f"\nInterrupted while the page was drawn. The comparison is saved: seqmodels report {saved}")
            raise

    def _print(self, text: str) -> None:
        with self.bar.hidden():
            self.say(text)

    def _compare(self, task: Task) -> Comparison:
        if self.n_jobs != 1:  # no bar, because callbacks of fits in other processes do not reach this one
            return self._compare_with(task, lambda line: self._print(f"  {line}"))
        equal_share = task.seconds / len(task.models)
        seconds = {name: self.n_seeds * task.estimates.get(name, equal_share) for name in task.models}
        with self.bar.watching(task.models, seconds, self.n_seeds) as fits:

            def on_progress(line: str) -> None:
                fits.model_done()
                self._print(f"  {line}")

            return self._compare_with(task, on_progress)

    def _compare_with(self, task: Task, progress: Callable[[str], None]) -> Comparison:
        return compare(
            task.models,
            *task.train,
            test=task.test if task.train[1] is not None else task.test[0],
            baseline=task.baseline,
            title=task.title,
            seeds=self.n_seeds,
            random_state=self.random_state,
            n_jobs=self.n_jobs,
            progress=progress,
            verbose=False,  # because this module shows a bar of its own
            budget=self.budget,
        )

    def _compare_fitted(self, task: Task, began: float) -> None:
        """Compare and write the models of a task that were fitted before an interrupt.

        Args:
            task: the task.
            began: time at which it began, by ``time.perf_counter``.
        """
        models = {name: model for name, model in task.models.items() if model.__sklearn_is_fitted__()}
        fitted = {name: model for name, model in models.items() if not model.interrupted_}
        if not fitted:
            return
        baseline = task.baseline if task.baseline in fitted else next(iter(fitted))
        title = f"{task.title}, interrupted: {len(fitted)} of {len(task.models)} models"
        result = compare(
            fitted, *task.test, baseline=baseline, title=title, random_state=self.random_state, verbose=False
        )
        self._print(f"\n{result}")
        self._write(result, task, began)
        self._print(f"\nWritten to {self.folder}/. Open\n  {self.folder / f'{task.name}.html'}")


def write_figures(result: Comparison, task: Task, folder: Path, seconds: float) -> None:
    """Write the results of a task: the table, the comparison itself, and its provenance.

    Args:
        result: the comparison.
        task: the task, whose name the files get.
        folder: folder of the results.
        seconds: seconds that the task took.
    """
    result.to_csv(folder / f"{task.name}.csv")
    result.save(folder / task.name)
    record = {"task": task.name, "seconds": round(seconds, 1), **result.provenance}
    write_text(folder / f"{task.name}.json", json.dumps(record, indent=2) + "\n")


def draw(result: Comparison, task: Task, folder: Path) -> None:
    """Write the HTML page and the plots of a task's result, which takes seconds.

    Args:
        result: the comparison.
        task: the task, whose name the files get.
        folder: folder of the results.
    """
    result.to_html(folder / f"{task.name}.html")
    for name, figure in ((task.name, result.ranking_figure()), (f"{task.name}-learning", result.curves_figure())):
        with replaced(folder / f"{name}.png") as partial:
            figure.savefig(partial, dpi=160)


# -- progress -------------------------------------------------------------------------------------------------


class TimeBar:
    """One progress bar on stderr over all models, in expected seconds of fitting, with the time left.

    Args:
        total: seconds that all fits are expected to take.
        enabled: False shows no bar; none is shown either if stderr is no terminal.
    """

    def __init__(self, total: float, *, enabled: bool) -> None:
        from tqdm.auto import tqdm

        self._bar = tqdm(
            total=total,
            disable=None if enabled else True,
            bar_format="{desc} {percentage:3.0f}% |{bar}| {elapsed} so far, {remaining} left",
            leave=False,
        )
        self._total = total
        self._done = 0.0  # seconds of ``total`` that the finished models were expected to take

    @contextmanager
    def watching(
        self, models: Mapping[str, SequenceModel], seconds: Mapping[str, float], n_seeds: int
    ) -> Iterator[_FitProgress]:
        """Return a context manager that shows the progress of models while they are fitted in its block.

        The block gets an object whose ``model_done`` is called when a model is done. Networks report progress by a
        callback that is added to them and removed again.

        Args:
            models: models by name, in the order in which they are fitted.
            seconds: expected seconds of each model, over all of its fits.
            n_seeds: number of fits of each model.
        """
        fits = _FitProgress(self, seconds, n_seeds)
        callbacks_before = {n: m.get_params()[CALLBACKS] for n, m in models.items() if CALLBACKS in m.get_params()}
        for name, callbacks in callbacks_before.items():
            models[name].set_params(**{CALLBACKS: (*callbacks, _HistoryCallback(fits, *_end(models[name])))})
        try:
            yield fits
        finally:
            for name, callbacks in callbacks_before.items():
                models[name].set_params(**{CALLBACKS: callbacks})

    def show(self, name: str, seconds: float, fraction: float) -> None:
        """Show how far the fits of one model are.

        Args:
            name: name of the model.
            seconds: seconds that its fits are expected to take in all.
            fraction: share of them that is done.
        """
        self._bar.set_description_str(name, refresh=False)
        self._move(self._done + seconds * fraction)

    def model_done(self, seconds: float) -> None:
        """Count a model as done.

        Args:
            seconds: seconds that its fits were expected to take.
        """
        self._done += seconds
        self._move(self._done)

    def _move(self, to: float) -> None:
        """Move the bar to the position ``to``, in seconds, but never back and never beyond its end."""
        self._bar.update(max(0.0, min(to, self._total) - self._bar.n))

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Return a context manager that hides the bar while something else is printed."""
        with self._bar.external_write_mode():
            yield

    def close(self) -> None:
        """Remove the bar from the terminal."""
        self._bar.close()


class _FitProgress:
    """The progress of the models of one comparison that are not done yet, of which the first is being fitted."""

    def __init__(self, bar: TimeBar, seconds: Mapping[str, float], n_seeds: int) -> None:
        self._bar = bar
        self._models_left = list(seconds.items())
        self._n_seeds = n_seeds
        self._n_seeds_done = 0
        self._last = 0.0
        self._show(0.0)

    def update(self, fraction: float) -> None:
        """Show how far the current fit is.

        Args:
            fraction: share of the fit that is done; if it is smaller than before, the fit with the next seed has begun.
        """
        self._n_seeds_done += fraction < self._last
        self._last = fraction
        self._show(min(1.0, (self._n_seeds_done + fraction) / self._n_seeds))

    def model_done(self) -> None:
        """Count the model that was being fitted as done, and show the progress of the next one."""
        _, seconds = self._models_left.pop(0)
        self._n_seeds_done = 0
        self._last = 0.0
        self._bar.model_done(seconds)
        self._show(0.0)

    def _show(self, fraction: float) -> None:
        if self._models_left:
            self._bar.show(*self._models_left[0], fraction)


class _HistoryCallback:
    """A callback of a network's training that shows the progress ``row[column] / end`` for each row of its history."""

    def __init__(self, fits: _FitProgress, column: str, end: float) -> None:
        self._fits = fits
        self._column = column
        self._end = end

    def __call__(self, row: dict[str, float]) -> None:
        self._fits.update(min(1.0, row[self._column] / self._end))


def _end(model: SequenceModel) -> tuple[str, float]:
    """Return the column of ``history_`` that measures the progress of a fit, and its value at the end of the fit.

    Args:
        model: a network, whose fit is limited by ``max_seconds`` or ``max_steps``.
    """
    params: dict[str, Any] = model.get_params(deep=False)
    if params["max_seconds"] is not None:
        return "seconds", float(params["max_seconds"])
    return "step", float(params["max_steps"]) if isinstance(params["max_steps"], int) else 2000.0
