"""A run writes what it says; the progress bar shows how far each model is, and nothing of it stays in the models."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import seqmodels as sm
from seqmodels.evaluation.runs.run import TimeBar, announce, run
from seqmodels.evaluation.runs.suites import Choice, Task, text_tasks

TEXT = sm.Sequences(["It was the best of times, it was the worst of times. " * 200])
X = [np.tile([0, 1, 2], 10)] * 4


@pytest.mark.slow
def test_run_writes_tables_pictures_and_the_config(tmp_path):
    tasks = text_tasks(TEXT, Choice(("iid", "hmm"), quick=True))
    tasks[0].models["hmm"].set_params(n_states=4, max_iter=3)
    said: list[str] = []
    (result,) = run(tasks, tmp_path, say=said.append)
    assert {p.name for p in tmp_path.iterdir()} == {
        "text-density",
        "text-density.csv",
        "text-density.html",
        "text-density.png",
        "text-density-learning.png",
        "text-density.json",
    }
    config = json.loads((tmp_path / "text-density.json").read_text())
    assert config["sha256"]["test x"] == sm.data.sha256(tasks[0].test[0])
    assert config["models"]["hmm"]["params"]["n_states"] == 4
    assert config["random_state"] == 0
    assert pd.read_csv(tmp_path / "text-density.csv")["score"].tolist() == pytest.approx(result.frame["score"].tolist())
    assert said[0] == announce(tasks)
    assert "min on two cores" in said[0]


@pytest.mark.slow
def test_interrupted_the_models_that_were_fitted_are_compared(tmp_path):
    def interrupt(row: dict[str, float]) -> None:
        raise KeyboardInterrupt

    models = {
        "first": sm.NGram(2),
        "second": sm.LSTM(d_model=8, max_steps=2, training=sm.training.GradientTraining(callbacks=[interrupt])),
        "third": sm.NGram(3),
    }
    train, test = TEXT.split(0.1)
    task = Task("mine", "Mine", (train, None), (test, None), models, 3.0, "second")
    said: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        run([task], tmp_path, say=said.append)
    assert pd.read_csv(tmp_path / "mine.csv")["model"].tolist() == ["first"]
    assert "interrupted: 1 of 3 models" in "".join(said)
    assert (tmp_path / "mine.html").exists()


def test_interrupted_while_the_page_is_drawn_it_says_how_to_draw_it(tmp_path, monkeypatch):
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sm.evaluation.Comparison, "to_html", interrupt)
    train, test = TEXT.split(0.1)
    task = Task("mine", "Mine", (train, None), (test, None), {"one": sm.NGram(2)}, 1.0, "one")
    said: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        run([task], tmp_path, say=said.append)
    assert f"seqmodels report {tmp_path / 'mine'}" in said[-1]
    assert "one" in sm.evaluation.Comparison.load(tmp_path / "mine").frame["model"].tolist()
    assert not (tmp_path / "mine.html").exists()


class Seen(TimeBar):
    """Keeps what a bar would show."""

    def __init__(self, total: float) -> None:
        super().__init__(total, enabled=False)
        self.shown: list[tuple[str, float]] = []

    def show(self, name: str, seconds: float, fraction: float) -> None:
        super().show(name, seconds, fraction)
        self.shown.append((name, fraction))


def test_networks_tell_how_far_they_are_and_seeds_add_up():
    bar, model = Seen(3.0), sm.LSTM(d_model=8, max_steps=10)
    with bar.watching({"lstm": model, "hmm": sm.HMM(2)}, {"lstm": 2.0, "hmm": 1.0}, n_seeds=2) as fits:
        model.fit(X)
        half = [fraction for _, fraction in bar.shown]
        model.clone().set_params(random_state=1).fit(X)
        fits.model_done()
        fits.model_done()
    assert half == sorted(half)
    assert half[-1] == pytest.approx(0.5)
    lstm = [fraction for name, fraction in bar.shown if name == "lstm"]
    assert lstm == sorted(lstm)
    assert lstm[-1] == pytest.approx(1.0)
    assert bar.shown[-1] == ("hmm", 0.0)
    assert model.training.callbacks == ()


def test_models_are_left_as_they_were_even_when_interrupted():
    bar, model = (
        Seen(1.0),
        sm.LSTM(d_model=8, max_seconds=1.0, training=sm.training.GradientTraining(callbacks=[print])),
    )

    def watched() -> None:
        with bar.watching({"lstm": model}, {"lstm": 1.0}, n_seeds=1):
            assert len(model.training.callbacks) == 2
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        watched()
    assert model.training.callbacks == [print]
