"""``run.toml``: what is written is what is read."""

from __future__ import annotations

from pathlib import Path

import pytest

import seqmodels as sm
from seqmodels.evaluation.runs.datasets import BuiltinSpeech, TextFiles
from seqmodels.evaluation.runs.run_config import RunConfig
from seqmodels.evaluation.runs.suites import Choice

HEAD = '[data.text]\nclass = "TextFiles"\npath = "b.txt"\n'


@pytest.fixture
def book(tmp_path: Path) -> Path:
    (tmp_path / "b.txt").write_text("It was the best of times, it was the worst of times. " * 20)
    return tmp_path


def test_written_and_read_it_is_the_same_run(book, tmp_path):
    wanted = RunConfig({"text": TextFiles(str(book / "b.txt"))}, {}, Choice(("iid", "lstm"), True, 4), 2, 5.0, None)
    read = wanted.read_data()
    tasks = wanted.tasks(read)
    wanted.write(tmp_path / "run.toml", tasks, {"text": "0" * 64})
    again = RunConfig.read(tmp_path / "run.toml")
    assert (again.seeds, again.seconds, again.steps, again.choice) == (2, 5.0, None, Choice((), True, 4))
    assert again.sha256 == {"text": "0" * 64}
    (task,) = again.tasks(read)
    assert repr(task.models) == repr(tasks[0].models)
    assert task.train[0].items == tasks[0].train[0].items
    assert task.baseline == tasks[0].baseline
    with pytest.raises(ValueError, match="sha256 was 000000000000 and is"):
        again.read_data()


def test_models_may_be_for_every_task_or_for_one(book):
    (book / "run.toml").write_text(
        HEAD + '[models.mine]\nclass = "NGram"\norder = 2\n[models.text-density.mine]\nclass = "NGram"\norder = 3\n'
    )
    config = RunConfig.read(book / "run.toml")
    density, continuation = config.tasks({"text": (sm.Sequences(["abc " * 500]), None)})
    assert (density.models["mine"].order, continuation.models["mine"].order) == (3, 2)
    assert density.baseline == "mine"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (HEAD + "[budget]\nhours = 1\n", "'hours'"),
        (HEAD + "[models.text-density]\nx = 3\n", "models.x is 3; it takes a table"),
        ("budget = 3\n" + HEAD, "is 3; it takes a table"),
        ("seeds = 1.5\n" + HEAD, "seeds is 1.5; it takes int"),
        (HEAD + '[models.x]\nclass = "Poisson"\n', "no model with a likelihood"),
        (HEAD + "[models]\nx = 3\n", "models.x is 3; it takes a table"),
        ('[data.text]\nclass = "MFCC"\n', "which is no data set"),
        (HEAD + '[models.speech-density.x]\nclass = "NGram"\n', "no comparison; name one of text-density"),
    ],
)
def test_what_it_cannot_say_is_named(book, text, said):
    (book / "run.toml").write_text(text)
    with pytest.raises(ValueError, match=said):
        RunConfig.read(book / "run.toml").tasks({"text": (sm.Sequences(["abc " * 500]), None)})


def test_built_in_data_that_changed_are_named():
    config = RunConfig({"speech": BuiltinSpeech(2, 1)}, sha256={"speech": "1" * 64})
    with pytest.raises(ValueError, match="the built-in speech has changed"):
        config.read_data()


@pytest.mark.parametrize(
    "written",
    ['checkpoint = "elsewhere/run"', 'training = {class = "GradientTraining", checkpoint = "elsewhere/run"}'],
    ids=["as earlier versions wrote it", "in its group"],
)
def test_a_run_does_not_say_what_fit_reads_writes_and_calls(tmp_path, written):
    path = tmp_path / "run.toml"
    path.write_text(f'[data.text]\nclass = "BuiltinText"\n[models.lstm]\nclass = "LSTM"\n{written}\nd_model = 8\n')
    with pytest.warns(UserWarning, match="models.lstm has checkpoint, which is ignored"):
        config = RunConfig.read(path)
    assert config.models[""]["lstm"].training.checkpoint is None
    assert config.models[""]["lstm"].d_model == 8
