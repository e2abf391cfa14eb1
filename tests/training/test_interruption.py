"""Signals during fit: the first ends training and keeps the best, a second Ctrl-C ends at once, handlers come back."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import seqmodels as sm
from seqmodels.hmm.alignment.inference import AlignmentTrellis
from seqmodels.hmm.learning import em
from seqmodels.training.interruption import interruptible

TEXT = ["to be or not to be", "that is the question"] * 3
X = [np.random.default_rng(i).normal(size=(30, 1)) for i in range(6)]


def handlers() -> list[Any]:
    return [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]


def send_at(step: int, number: signal.Signals = signal.SIGINT) -> Callable[[dict[str, float]], None]:
    """A callback that sends a signal with the first line of history from this step on."""
    sent: list[float] = []

    def listen(row: dict[str, float]) -> None:
        if row["step"] >= step and not sent:
            sent.append(row["step"])
            signal.raise_signal(number)

    return listen


def lstm(**options: Any) -> sm.LSTM:
    return sm.LSTM(d_model=8, max_steps=40).set_params(**options)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_network_is_fitted_as_far_as_it_came(number: signal.Signals, tmp_path: Path) -> None:
    before, model = handlers(), lstm(training__callbacks=[send_at(10, number)])
    with pytest.warns(UserWarning, match=f"{number.name} ended fit.*checkpoint='run.ckpt'"):
        model.fit(TEXT)
    assert handlers() == before
    assert model.interrupted_
    assert not model.converged_
    assert 10 <= model.history_["step"].iloc[-1] < 20
    assert model.history_["interrupted"].tolist() == [0.0] * (len(model.history_) - 1) + [1.0]
    model.save(tmp_path / "model")
    loaded = sm.load(tmp_path / "model")
    assert loaded.interrupted_
    np.testing.assert_allclose(loaded.log_prob(TEXT), model.log_prob(TEXT), rtol=1e-5)
    again = lstm(training__callbacks=[]).fit(TEXT)
    assert not again.interrupted_
    assert "interrupted" not in again.history_


def test_the_best_weights_are_kept() -> None:
    evaluations = lstm(max_steps=10, lr=2.0).fit(TEXT).history_["validation"]
    best = int(evaluations.argmax())
    assert best < len(evaluations) - 1  # training goes on past the best
    model = lstm(max_steps=10, lr=2.0, training__callbacks=[send_at(5)])
    with pytest.warns(UserWarning, match="SIGINT"):
        model.fit(TEXT)
    held = sm.encodings.raw_data.hold_out(sm.encodings.raw_data.Data.of(TEXT), "auto", True, 0)[1]
    assert held is not None
    assert model.score(held.X) == pytest.approx(evaluations.max(), abs=1e-6)


def test_an_interrupted_run_goes_on_to_the_same_weights(tmp_path: Path) -> None:
    straight = lstm().fit(TEXT)
    with pytest.warns(UserWarning, match="resume_from='.*run' resumes it"):
        lstm(training__checkpoint=str(tmp_path / "run"), training__callbacks=[send_at(10)]).fit(TEXT)
    resumed = lstm(training__resume_from=str(tmp_path / "run")).fit(TEXT)
    np.testing.assert_allclose(resumed.log_prob(TEXT), straight.log_prob(TEXT), rtol=1e-4)
    pd.testing.assert_frame_equal(
        resumed.history_.drop(columns="seconds"), straight.history_.drop(columns="seconds"), rtol=1e-4, atol=1e-4
    )


def test_a_masked_model_is_fitted_as_far_as_it_came() -> None:
    model = sm.MaskedTransformer(
        d_model=8, n_layers=1, max_steps=40, training=sm.training.GradientTraining(callbacks=[send_at(10)])
    )
    with pytest.warns(UserWarning, match="SIGINT"):
        model.fit(TEXT, validation=None)
    assert model.interrupted_
    assert model.history_["step"].iloc[-1] < 20


HMMS = {
    "em": lambda **o: sm.HMM(2, n_init=1, tol=0, max_iter=50).set_params(**o),
    "restarts": lambda **o: sm.HMM(2, n_init=2, tol=0, max_iter=50).set_params(**o),
    "stepwise": lambda **o: sm.HMM(
        2, algorithm="stepwise", n_init=1, training=sm.hmm.ChainTraining(batches=3), tol=0, max_iter=50
    ).set_params(**o),
    "gradient": lambda **o: sm.HMM(2, algorithm="gradient", n_init=2, max_iter=50).set_params(**o),
}


@pytest.mark.parametrize("make", HMMS.values(), ids=HMMS)
def test_an_hmm_is_fitted_as_far_as_it_came(
    make: Callable[..., sm.HMM], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    straight = make().fit(X)
    calls, log_prior = [], sm.GaussianMixture.log_prob

    def sending(self: Any, *arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == 20:
            signal.raise_signal(signal.SIGTERM)
        return log_prior(self, *arguments)

    after = count_steps(monkeypatch, 7)
    if make().algorithm == "gradient":
        monkeypatch.setattr(sm.GaussianMixture, "log_prob", sending)
    before, model = handlers(), make(training__checkpoint=str(tmp_path / "run"))
    with pytest.warns(UserWarning, match="SIGTERM"):
        model.fit(X)
    assert handlers() == before
    assert after or calls
    assert model.interrupted_
    assert not model.converged_
    assert len(model.history_) < len(straight.history_)
    if model.algorithm != "stepwise":
        assert model.history_["log_prob"].iloc[-1] == pytest.approx(model.score(X), abs=1e-5)
    monkeypatch.undo()
    resumed = make(training__resume_from=str(tmp_path / "run")).fit(X)
    for name in ("initial", "transition", "table"):
        np.testing.assert_allclose(getattr(resumed.parameters_, name), getattr(straight.parameters_, name), rtol=1e-9)
    pd.testing.assert_frame_equal(
        resumed.history_.drop(columns="seconds"), straight.history_.drop(columns="seconds"), rtol=1e-9, atol=1e-9
    )


def count_steps(monkeypatch: pytest.MonkeyPatch, n: int) -> list[int]:
    """Send SIGTERM with the n-th M-step."""
    taken, m_step = [], em.m_step

    def sending(*arguments: Any) -> Any:
        taken.append(1)
        if len(taken) == n:
            signal.raise_signal(signal.SIGTERM)
        return m_step(*arguments)

    monkeypatch.setattr(em, "m_step", sending)
    return taken


def test_stepwise_em_that_a_signal_ends_at_the_end_of_an_epoch_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, row = HMMS["stepwise"], em.MAPObjective.row

    def sending(self: Any, step: float, *figures: Any) -> Any:
        if step == 2:
            signal.raise_signal(signal.SIGTERM)
        return row(self, step, *figures)

    straight = make().set_params(max_iter=5).fit(X)
    monkeypatch.setattr(em.MAPObjective, "row", sending)
    with pytest.warns(UserWarning, match="SIGTERM"):
        model = make(training__checkpoint=str(tmp_path / "run")).set_params(max_iter=5).fit(X)
    monkeypatch.undo()
    assert len(model.history_) == 3
    resumed = make(training__resume_from=str(tmp_path / "run")).set_params(max_iter=5).fit(X)
    np.testing.assert_allclose(resumed.parameters_.table, straight.parameters_.table, rtol=1e-9)
    assert resumed.history_["step"].tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("at", [5, 10, 14])
def test_an_alignment_model_is_fitted_as_far_as_it_came(
    at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources, targets = ["ab", "ba", "a", "bb"] * 4, ["AB", "BA", "A", "BB"] * 4
    straight = sm.AlignmentHMM(tol=0, dtype="float64").fit(sources, targets)
    calls, expectations = [], AlignmentTrellis.expectations

    def sending(self: AlignmentTrellis) -> Any:
        calls.append(1)
        if len(calls) == at:
            signal.raise_signal(signal.SIGINT)
        return expectations(self)

    monkeypatch.setattr(AlignmentTrellis, "expectations", sending)
    model = sm.AlignmentHMM(tol=0, dtype="float64", training=sm.training.EMTraining(checkpoint=str(tmp_path / "run")))
    with pytest.warns(UserWarning, match="SIGINT"):
        model.fit(sources, targets)
    monkeypatch.undo()
    assert model.interrupted_
    assert model.history_["log_prob"].iloc[-1] == pytest.approx(model.score(sources, targets), abs=1e-6)
    resumed = sm.AlignmentHMM(
        tol=0, dtype="float64", training=sm.training.EMTraining(resume_from=str(tmp_path / "run"))
    ).fit(sources, targets)
    np.testing.assert_allclose(resumed.log_prob(sources, targets), straight.log_prob(sources, targets), rtol=1e-9)
    pd.testing.assert_frame_equal(
        resumed.history_.drop(columns="seconds"), straight.history_.drop(columns="seconds"), rtol=1e-9, atol=1e-9
    )


def test_a_second_ctrl_c_ends_at_once_and_leaves_the_earlier_fit() -> None:
    def twice(row: dict[str, float]) -> None:
        if row["step"] >= 10:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

    model = lstm(max_steps=5).fit(TEXT)
    before, figures = handlers(), model.log_prob(TEXT)
    with pytest.raises(KeyboardInterrupt):
        model.set_params(max_steps=40, training__callbacks=[twice]).fit(TEXT)
    assert handlers() == before
    np.testing.assert_allclose(model.log_prob(TEXT), figures, rtol=1e-5, atol=1e-5)
    assert not model.interrupted_


def test_before_there_is_anything_to_keep_ctrl_c_is_what_it_was() -> None:
    model = lstm(training__callbacks=[send_at(0)])  # at the first step's line, before the step is over
    with pytest.raises(KeyboardInterrupt):
        model.fit(TEXT)
    assert not model.__sklearn_is_fitted__()


def test_fits_inside_a_fit_share_its_end() -> None:
    with interruptible() as outer, interruptible() as inner:
        assert inner is outer
        inner.hold()
        held = handlers()
        with interruptible() as again:
            again.hold()
        assert handlers() == held
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)  # who is being ended is told so more than once
        assert outer.signal == signal.SIGTERM
    assert handlers() == [signal.default_int_handler, signal.SIG_DFL]


def test_handlers_of_the_program_stay() -> None:
    def own(number: int, frame: Any) -> None:
        raise ArithmeticError("its own")

    signal.signal(signal.SIGINT, own)
    try:
        with pytest.raises(ArithmeticError, match="its own"):
            lstm(training__callbacks=[send_at(10)]).fit(TEXT)
        assert signal.getsignal(signal.SIGINT) is own
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def test_other_threads_touch_nothing() -> None:
    seen: list[Any] = []
    model = lstm(max_steps=3, training__callbacks=[lambda row: seen.append(handlers())])
    thread = threading.Thread(target=model.fit, args=(TEXT,))
    before = handlers()
    thread.start()
    thread.join()
    assert seen
    assert all(each == before for each in seen)


def test_comparisons_and_classifiers_end_as_a_whole() -> None:
    models = {"first": sm.NGram(2), "second": lstm(training__callbacks=[send_at(10)]), "third": sm.NGram(3)}
    with pytest.warns(UserWarning, match="SIGINT"), pytest.raises(KeyboardInterrupt):
        sm.compare(models, TEXT[:4], test=["or not", "to be is"])
    assert models["second"].interrupted_
    assert not models["third"].__sklearn_is_fitted__()
    classifier = sm.GenerativeClassifier(lstm(training__callbacks=[send_at(10)]), calibrate=False)
    with pytest.warns(UserWarning, match="SIGINT"), pytest.raises(KeyboardInterrupt):
        classifier.fit(TEXT, ["a", "b"] * 3, validation=None)
    assert not classifier.__sklearn_is_fitted__()


def test_cross_validation_ends_as_a_whole() -> None:
    selection = pytest.importorskip("sklearn.model_selection")
    with pytest.raises(KeyboardInterrupt):
        selection.cross_val_score(lstm(training__callbacks=[send_at(10)]), TEXT, cv=2)
