"""Models that earlier versions saved: they load, and say what they said then."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seqmodels as sm
from seqmodels.cli.inputs import SavedModel
from seqmodels.common import storage
from seqmodels.evaluation.runs.datasets import TextFiles
from seqmodels.training import checkpoint
from tests.fixtures.make import N_OF_EACH, RELEASED, figures, new_classes, symbols

FOLDERS = sorted(path for path in (Path(__file__).parent / "fixtures").iterdir() if (path / "expected.json").exists())
MERGED_CONTEXTS = Path(__file__).parent / "fixtures" / "merged_contexts"
RELEASES = [folder for folder in FOLDERS if folder.name != "next"]
EXPECTED = {folder: json.loads((folder / "expected.json").read_text(encoding="utf-8")) for folder in FOLDERS}
# Their sinusoids were a float32 table in float64 too.
ROUGH_SINUSOIDS = {("0.1.0", name) for name in ("transformer-tagger", "masked", "masked-text")}
EACH = [(folder, name) for folder in FOLDERS for name in EXPECTED[folder]["models"]]


def items(plain: list[Any] | None) -> list[Any] | None:
    return None if plain is None else [item if isinstance(item, str) else np.array(item) for item in plain]


@pytest.mark.parametrize(("folder", "name"), EACH, ids=lambda value: value if isinstance(value, str) else value.name)
def test_a_saved_model_says_what_it_said(folder: Path, name: str) -> None:
    then = EXPECTED[folder]["models"][name]
    data = EXPECTED[folder]["data"][then["data"]]
    model = sm.load(folder / f"{name}.safetensors")
    assert type(model).__name__ == then["class"]
    is_rough = name.endswith("float32") or (folder.name, name) in ROUGH_SINUSOIDS
    tolerance = {"rtol": 1e-6, "atol": 1e-6} if is_rough else {"rtol": 1e-12, "atol": 1e-12}
    for now, before in zip(figures(model, items(data["X"]), items(data["y"])), then["figures"], strict=True):
        np.testing.assert_allclose(now, before, **tolerance)


@pytest.mark.parametrize("name", ["context-tree", "context-tree-bayes", "context-tree-static", "mixture"])
def test_a_context_tree_whose_contexts_shared_counts_is_refused(name: str) -> None:
    """Alone and as a member: what earlier code added up cannot be told apart."""
    with pytest.raises(ValueError, match=rf"{name}.safetensors cannot be loaded: this ContextTree was.*fit it again"):
        sm.load(MERGED_CONTEXTS / f"{name}.safetensors")


def test_a_context_tree_without_contexts_says_what_it_said() -> None:
    """At depth 0 nothing was shared."""
    found = sm.load(MERGED_CONTEXTS / "depth-0.safetensors").log_prob(symbols())
    expected = [-11.697031344074285, -3.6693061713143083, -9.352091530512881, -14.6899701036663, -6.329941358683544]
    np.testing.assert_allclose(found, [*expected, -10.558825496280145], rtol=1e-12)


def test_there_are_three_of_each_class() -> None:
    for folder in RELEASES:
        classes = [model["class"] for model in EXPECTED[folder]["models"].values()]
        had = EXPECTED[folder].get("classes", RELEASED)
        assert all(classes.count(name) >= N_OF_EACH for name in had)


def test_there_are_three_of_each_class_that_learns_while_it_reads() -> None:
    content = EXPECTED[FOLDERS[-1]]
    assert FOLDERS[-1].name == "next"
    classes = [model["class"] for model in content["models"].values()]
    new = {*new_classes(RELEASED), sm.NGram}
    assert {sm.ContextMixing, sm.ContextTree, sm.Dynamic, sm.Mixture} <= new
    few = [cls.__name__ for cls in new if classes.count(cls.__name__) < N_OF_EACH]
    assert few == [], "python -m tests.fixtures.make --next"


@pytest.mark.parametrize("folder", RELEASES, ids=lambda folder: folder.name)
def test_a_saved_comparison_and_a_checkpoint_are_read(folder: Path) -> None:
    comparison = sm.evaluation.Comparison.load(folder / "comparison")
    for name, model in comparison.models.items():
        row = comparison.frame.set_index("model").loc[name]
        assert model.score(comparison.test) == pytest.approx(row["score"], abs=1e-6)
    state = checkpoint.read(folder / "run.checkpoint")
    model = sm.load(folder / "run.safetensors")
    last = {name: tensor.numpy() for name, tensor in model.module_.state_dict().items()}
    assert state["weights"].keys() == last.keys()
    np.testing.assert_allclose(
        *(np.concatenate([w[n].ravel() for n in last]) for w in (state["weights"], last)), atol=1e-6
    )


@pytest.mark.parametrize("folder", RELEASES, ids=lambda folder: folder.name)
def test_what_fit_reads_writes_and_calls_is_not_taken_from_a_file(folder: Path) -> None:
    described = storage.read(folder / "run.safetensors")["model"]["params"]
    if folder.name == "0.1.0":
        assert described["checkpoint"] == "written.checkpoint"
    model = sm.load(folder / "run.safetensors")
    training = model.training
    assert (training.checkpoint, training.resume_from, tuple(training.callbacks)) == (None, None, ())


@pytest.mark.parametrize("folder", RELEASES, ids=lambda folder: folder.name)
def test_a_model_of_the_command_line_knows_how_its_data_were_read(folder: Path) -> None:
    saved = SavedModel.read(str(folder / "command-line.safetensors"))
    assert saved.data == TextFiles("text.txt", "line") or repr(saved.data) == repr(TextFiles("text.txt", "line"))
    assert np.isfinite(saved.model.score(saved.like(str(folder / "text.txt")).read()[0]))
