from __future__ import annotations

import io
import time
from collections.abc import Callable

import numpy as np
import pytest

import seqmodels as sm
from seqmodels.common import progress
from seqmodels.common.progress import ProgressBar

X = [np.arange(20) % 3 for _ in range(4)]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def a_terminal(monkeypatch: pytest.MonkeyPatch, after: float = 0.0) -> Terminal:
    """Standard error that is a terminal, where bars appear after so many seconds.

    It is set within a test: between fixtures and tests pytest sets its own.
    """
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setattr(progress, "AFTER", after)
    return stream


def pause() -> None:
    """Wait until a bar may be drawn again."""
    time.sleep(0.11)


def shown(stream: io.StringIO) -> str:
    return stream.getvalue()


def work(verbose: progress.Verbose, within: Callable[[], None] = lambda: None) -> None:
    with ProgressBar(3, verbose, "outside") as bar:
        for i in range(3):
            within()
            bar.move(i + 1, "so far")


def test_a_bar_appears_in_a_terminal_and_is_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = a_terminal(monkeypatch)
    work("auto", pause)
    assert "outside" in shown(terminal)
    assert "so far" in shown(terminal)
    assert shown(terminal).rsplit("\r", 2)[-2].strip() == ""  # overwritten by blanks


def test_it_says_nothing_before_its_time_in_a_pipe_or_if_it_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = a_terminal(monkeypatch, after=600.0)  # the first fit of a process may take seconds
    work(False)
    work("auto")
    sm.HMM(2, max_iter=2, n_init=1).fit(X)
    monkeypatch.setattr("sys.stderr", pipe := io.StringIO())
    monkeypatch.setattr(progress, "AFTER", 0.0)
    work("auto")
    assert (shown(terminal), shown(pipe)) == ("", "")


def test_nested_work_has_one_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = a_terminal(monkeypatch)

    def inner() -> None:
        with ProgressBar(10, "auto", "inside") as bar:
            pause()
            bar.move(4, "deep")

    work("auto", inner)
    lines = [line for line in shown(terminal).split("\r") if line.strip()]
    assert all("outside" in line for line in lines)
    assert any("inside 40 % deep" in line for line in lines)


def test_false_silences_what_is_done_within(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = a_terminal(monkeypatch)
    work(False, lambda: work("auto", pause))
    assert shown(terminal) == ""


def test_a_bar_that_was_left_open_hides_no_later_one(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = a_terminal(monkeypatch)
    ProgressBar(3, "auto", "left").move(1)
    work("auto", pause)
    assert "outside" in shown(terminal)


def test_models_and_evaluations_show_one_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = a_terminal(monkeypatch)
    assert (sm.HMM().verbose, sm.LSTM().verbose, sm.NGram().verbose) == ("auto", "auto", "auto")
    sm.LSTM(d_model=8, max_seconds=0.3).fit(X)
    assert "training" in shown(terminal)
    before = len(shown(terminal))
    models = {"lstm": sm.LSTM(d_model=8, max_seconds=0.2), "hmm": sm.HMM(2, max_iter=2)}
    sm.compare(models, X, test=[np.arange(n) % 3 for n in range(5, 11)], prequential=2)
    lines = [line for line in shown(terminal)[before:].split("\r") if line.strip()]
    assert lines
    assert [line for line in lines if not line.startswith("compare: ")] == []
    before = len(shown(terminal))
    sm.choose(sm.LSTM(max_seconds=0.1), X, d_model=[4, 8], folds=2, verbose=False)
    assert shown(terminal)[before:] == ""


def test_a_fit_that_fails_hides_no_later_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(row: dict[str, float]) -> None:
        raise RuntimeError("no room")

    training = sm.training.GradientTraining(callbacks=[fail])
    with pytest.raises(RuntimeError, match="no room") as kept:  # which holds the frames of the fit, as notebooks do
        sm.LSTM(d_model=8, max_steps=2, training=training).fit(X)
    terminal = a_terminal(monkeypatch)
    work("auto", pause)
    assert "outside" in shown(terminal)
    del kept


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.* of 6 draws came from trajectories that diverged")
def test_forecasts_and_draws_of_a_posterior_show_one_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = a_terminal(monkeypatch)
    series = np.random.default_rng(0).normal(size=(150, 4))  # which take longer than a bar waits to be drawn again
    sm.forecast(series, 2)
    lines = [line for line in shown(terminal).split("\r") if line.strip()]
    assert lines
    assert [line for line in lines if not line.startswith("forecast: ")] == []
    assert any("models" in line for line in lines)
    before = len(shown(terminal))
    sm.forecast(series, 2, verbose=False)
    assert shown(terminal)[before:] == ""
    counts = [(np.arange(9.0) % 4)[:, None]]
    model = sm.HMM(1, observation=sm.Poisson(), max_iter=2, verbose=False).fit(counts)
    options = {"n_samples": 3, "warmup": 4, "chains": 2}
    sm.hmm.sample_posterior(model, counts, verbose=True, **options)
    assert "NUTS: 100%" in shown(terminal)[before:]
    before = len(shown(terminal))
    sm.hmm.sample_posterior(model, counts, verbose=False, **options)
    assert shown(terminal)[before:] == ""
