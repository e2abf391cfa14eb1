"""The file ``run.toml``: the data, models, seeds and budget of a run of comparisons, so that it can be run again."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seqmodels.common.caller_warnings import warn_caller
from seqmodels.common.display import a_or_an
from seqmodels.common.files import write_text
from seqmodels.common.storage import ARGUMENTS_OF_FIT
from seqmodels.data.text import read_text
from seqmodels.evaluation.comparison.provenance import provenance
from seqmodels.evaluation.runs import toml
from seqmodels.evaluation.runs.datasets import DATASETS, Dataset, Pair, hashed
from seqmodels.evaluation.runs.suites import Choice, Task
from seqmodels.evaluation.runs.toml import from_table, to_table
from seqmodels.model import SequenceModel

HEAD = "# What was run. Again, exactly: seqmodels compare --config run.toml\n# Paths are seen from this file.\n\n"
Models = dict[str, SequenceModel]


@dataclass(frozen=True)
class RunConfig:
    """The configuration of a run of comparisons, which is read from ``run.toml`` or written to it.

    A task is one comparison of models on one data set.

    Args:
        data: data sets by name.
        models: models of each task, by the task's name; models under ``""`` are for every task. Empty means the
            standard models.
        choice: which of the standard models to fit, and the seed of everything random.
        seeds: number of fits of each model.
        seconds: seconds of training of each model instead of its own settings; None means its own.
        steps: number of training steps of each model instead of its own settings; None means its own.
        sha256: hashes of the data by name at the time when the file was written.
    """

    data: dict[str, Dataset]
    models: dict[str, Models] = field(default_factory=dict)
    choice: Choice = field(default_factory=Choice)
    seeds: int = 1
    seconds: float | None = None
    steps: int | None = None
    sha256: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> RunConfig:
        """Read the configuration of a run from a TOML file.

        Raises:
            ValueError: the file is no valid TOML or has an unknown entry.
            OSError: there is no such file.
        """
        try:
            table = tomllib.loads(read_text(path))
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path} is not TOML: {error}") from None
        try:
            return cls._from_table(table, path.parent)
        except (ValueError, TypeError) as error:
            raise ValueError(f"{path}: {error}") from None

    @classmethod
    def _from_table(cls, table: dict[str, Any], folder: Path) -> RunConfig:
        known = {"random_state", "seeds", "quick", "budget", "data", "models", "provenance"}
        _refuse_unknown(table, known, "the file")
        budget = _checked_table(table.get("budget", {}), "[budget]")
        _refuse_unknown(budget, {"seconds", "steps"}, "[budget]")
        entries = _checked_table(table.get("data", {}), "[data]")
        data = {name: dict(_checked_table(entry, f"data.{name}")) for name, entry in entries.items()}
        if not data:
            raise ValueError('there is no data; write [data.text] with class = "TextFiles" and path = "book.txt"')
        sha256 = {name: str(entry.pop("sha256")) for name, entry in data.items() if "sha256" in entry}
        return cls(
            {name: _dataset(name, entry).resolved_from(folder) for name, entry in data.items()},
            _models(_checked_table(table.get("models", {}), "[models]")),
            Choice((), _typed(table, "quick", bool, False), _typed(table, "random_state", int, 0)),
            _typed(table, "seeds", int, 1),
            budget.get("seconds"),
            budget.get("steps"),
            sha256,
        )

    def write(self, path: Path, tasks: list[Task], sha256: Mapping[str, str]) -> None:
        """Write the configuration of a run to a TOML file.

        Args:
            path: the file.
            tasks: the comparisons, all of whose models are written.
            sha256: hash of each data set by name.
        """
        write_text(path, HEAD + toml.dumps({**self._table(path, tasks, sha256), "provenance": provenance()}))

    def is_written(self, path: Path, tasks: list[Task], sha256: Mapping[str, str]) -> bool:
        """Return True if the file at ``path`` already describes the same run, whatever its date and versions.

        Args:
            path: the file.
            tasks: the comparisons with their models.
            sha256: hash of each data set by name.
        """
        try:
            written = tomllib.loads(path.read_text(encoding="utf-8"))
        except (UnicodeDecodeError, tomllib.TOMLDecodeError):
            return False
        written.pop("provenance", None)
        return written == tomllib.loads(toml.dumps(self._table(path, tasks, sha256)))

    def _table(self, path: Path, tasks: list[Task], sha256: Mapping[str, str]) -> dict[str, Any]:
        """Return the content of the TOML file as nested dictionaries, without date and versions.

        Args:
            path: the file, to whose folder paths of data are made relative.
            tasks: the comparisons with their models.
            sha256: hash of each data set by name.
        """
        budget = {k: v for k, v in (("seconds", self.seconds), ("steps", self.steps)) if v is not None}
        data = {name: to_table(entry.relative_to(path.parent), DATASETS) for name, entry in self.data.items()}
        return {
            "random_state": self.choice.random_state,
            "seeds": self.seeds,
            "quick": self.choice.quick,
            **({"budget": budget} if budget else {}),
            "data": {name: {**entry, "sha256": sha256[name]} for name, entry in data.items()},
            "models": {task.name: {name: to_table(m) for name, m in task.models.items()} for task in tasks},
        }

    def read_data(self) -> dict[str, Pair]:
        """Read all data and return them by name, as pairs of sequences and targets.

        Raises:
            ValueError: data have changed since the file was written.
        """
        return {name: self._read_one(name, entry) for name, entry in self.data.items()}

    def _read_one(self, name: str, entry: Dataset) -> Pair:
        pair = entry.read()
        hash_then = self.sha256.get(name)
        hash_now = hashed(pair)
        if hash_then is not None and hash_then != hash_now:
            where = " and ".join(entry.paths()) or f"the built-in {name}"
            raise ValueError(
                f"{where} has changed since the run was written: sha256 was {hash_then[:12]} and is {hash_now[:12]}; "
                "restore the data (built-in data need the same version of Python), or delete sha256 under "
                f"[data.{name}] to run on the data as they are"
            )
        return pair

    def tasks(self, read: Mapping[str, Pair]) -> list[Task]:
        """Return the comparisons to run.

        Args:
            read: sequences and targets of each data set by name.

        Raises:
            ValueError: no chosen model fits the data, or models are given for an unknown comparison.
        """
        standard = [task for name, entry in self.data.items() for task in entry.tasks(read[name], self.choice)]
        if not self.models:
            fitting = [task for task in standard if task.models]
            if not fitting:
                raise ValueError(
                    f"none of the models {', '.join(self.choice.names)} is for these data; choose others, or leave "
                    "--models out for all that are"
                )
            return fitting
        names = [task.name for task in standard]
        unknown = [name for name in self.models if name and name not in names]
        if unknown:
            raise ValueError(
                f"there are models for {unknown[0]!r}, which is no comparison; name one of {', '.join(names)}"
            )
        chosen = ((task, {**self.models.get("", {}), **self.models.get(task.name, {})}) for task in standard)
        return [_with_models(task, models) for task, models in chosen if models]


def _with_models(task: Task, models: Models) -> Task:
    baseline = task.baseline if task.baseline in models else next(iter(models))
    estimates = {name: task.estimates.get(name, 10.0) for name in models}
    return Task(task.name, task.title, task.train, task.test, models, sum(estimates.values()), baseline, estimates)


def _dataset(name: str, table: dict[str, Any]) -> Dataset:
    dataset = from_table(table, DATASETS)
    if not isinstance(dataset, Dataset):
        raise ValueError(f"[data.{name}] is {a_or_an(type(dataset))}, which is no data set; pass one such as TextFiles")
    return dataset


def _models(table: dict[str, Any]) -> dict[str, Models]:
    for name, entry in table.items():
        _checked_table(entry, f"models.{name}")
    everywhere = {name: entry for name, entry in table.items() if "class" in entry}
    by_task = {name: entry for name, entry in table.items() if name not in everywhere}
    groups = {**({"": everywhere} if everywhere else {}), **by_task}
    return {task: {name: _model(name, entry) for name, entry in group.items()} for task, group in groups.items()}


def _model(name: str, table: Any) -> SequenceModel:
    kept, left_out = _without_arguments_of_fit(_checked_table(table, f"models.{name}"))
    if left_out:
        warn_caller(
            f"models.{name} has {left_out[0]}, which is ignored: it says what fit reads, writes or calls, and a file "
            "cannot; pass it in Python, or with seqmodels fit --set",
        )
    model = from_table(kept)
    if not isinstance(model, SequenceModel):
        raise ValueError(f"{name!r} is {a_or_an(type(model))}, which is no model with a likelihood")
    return model


def _without_arguments_of_fit(value: Any) -> tuple[Any, list[str]]:
    """Remove settings that say what ``fit`` reads, writes or calls from nested tables.

    Args:
        value: a table of a TOML file, a list, or a plain value.

    Returns:
        The rest, and the names in ``ARGUMENTS_OF_FIT`` that were removed.
    """
    if isinstance(value, list):
        parts = [_without_arguments_of_fit(each) for each in value]
        return [part for part, _ in parts], [name for _, names in parts for name in names]
    if not isinstance(value, dict):
        return value, []
    left_out = [name for name in ARGUMENTS_OF_FIT if name in value]
    kept = {}
    for name, inner in value.items():
        if name not in left_out:
            kept[name], names = _without_arguments_of_fit(inner)
            left_out += names
    return kept, left_out


def _checked_table(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{where} is {value!r}; it takes a table: names and values")
    return value


def _typed(table: dict[str, Any], name: str, kind: type, default: Any) -> Any:
    value = table.get(name, default)
    if type(value) is not kind:
        raise ValueError(f"{name} is {value!r}; it takes {kind.__name__}")
    return value


def _refuse_unknown(table: dict[str, Any], known: set[str], where: str) -> None:
    unknown = sorted(set(table) - known)
    if unknown:
        raise ValueError(f"{where} has the unknown entry {unknown[0]!r}; it may have {', '.join(sorted(known))}")
