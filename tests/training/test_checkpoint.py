"""Checkpoints: when they are written, and what may go on from them."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seqmodels as sm
from seqmodels.common import storage
from seqmodels.encodings.examples import Example
from seqmodels.training import checkpoint
from seqmodels.training.checkpoint import Checkpoints, hashes
from seqmodels.training.fingerprint import MAY_DIFFER, hash_of, settings_of

TEXT = ["to be or not to be", "that is the question"] * 3
X = [np.random.default_rng(i).normal(size=(30, 2)) for i in range(6)]


def lstm(**options: Any) -> sm.LSTM:
    return sm.LSTM(d_model=8, max_steps=6).set_params(**options)


def gru(**options: Any) -> sm.GRU:
    return sm.GRU(d_model=8, max_steps=6).set_params(**options)


def hmm(**options: Any) -> sm.HMM:
    return sm.HMM(2, max_iter=5, tol=0).set_params(**options)


def test_checkpoints_are_written_by_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count(0.0, 10.0)
    written: list[float] = []
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(checkpoint, "write", lambda path, state: written.append(state["state"]["at"]))
    kept = Checkpoints(tmp_path / "run", 25.0, {}, written=[0.0])
    for at in range(10):
        if kept.due:
            kept.write({"at": at})
    assert written == [3, 6, 9]  # looking at the clock takes ten seconds here, and so does writing
    assert not Checkpoints().due


@pytest.mark.parametrize("seconds", [0, 300])
def test_a_run_writes_as_often_as_it_is_told_and_at_its_end(
    seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, write = [], checkpoint.write

    def watch(path: Any, state: Any) -> None:
        steps.append(state["state"]["counts"]["batches"])
        write(path, state)

    monkeypatch.setattr(checkpoint, "write", watch)
    lstm(training__checkpoint=str(tmp_path / "run"), training__checkpoint_seconds=seconds).fit(TEXT)
    assert steps == ([1, 2, 3, 4, 5, 6] if seconds == 0 else [6])


def test_nothing_is_hashed_without_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqmodels.training.checkpoint.hashes", lambda *_: pytest.fail("hashed"))
    lstm().fit(TEXT)
    hmm().fit(X)


@pytest.mark.parametrize(
    ("make", "changed", "says"),
    [
        (lstm, {"lr": 0.01}, r"lr=0\.008 but this model has lr=0\.01; set it back, or start anew without resume_from"),
        (lstm, {"batch_size": 2}, r"batch_size='auto' but this model has batch_size=2"),
        (lstm, {"random_state": 1}, "random_state=0 but this model has random_state=1"),
        (
            lstm,
            {"training__optimizer": sm.training.Muon()},
            r"training__optimizer=None but this model has training__optimizer=Muon\(\)",
        ),
        (lstm, {"d_model": 16}, "d_model=8 but this model has d_model=16"),
        (lstm, {"encoding": sm.Characters()}, r"encoding=Bytes\(\) but this model has encoding=Characters\(\)"),
        (hmm, {"max_iter": 9}, "max_iter=5 but this model has max_iter=9"),
        (
            hmm,
            {"observation": sm.GaussianMixture(2)},
            r"observation=GaussianMixture\(n_components=1, .*\) but this model has .*GaussianMixture\(n_components=2\)",
        ),
        (hmm, {"topology": np.triu(np.ones((2, 2)))}, "topology='ergodic' but this model has topology=array"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_another_setting_is_refused_by_name(make: Any, changed: dict[str, Any], says: str, tmp_path: Path) -> None:
    data, path = TEXT if make is lstm else X, str(tmp_path / "run")
    make(training__checkpoint=path).fit(data)
    with pytest.raises(ValueError, match=says):
        make(training__resume_from=path, **changed).fit(data)


def test_other_data_are_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "run")
    hmm(training__checkpoint=path).fit(X)
    other = [X[0] + 1e-9, *X[1:]]
    with pytest.raises(ValueError, match="written for other training data than fit is given now"):
        hmm(training__resume_from=path).fit(other)
    with pytest.raises(ValueError, match="other sample_weight"):
        hmm(training__resume_from=path).fit(X, sample_weight=[2.0] * 6)
    with pytest.raises(ValueError, match="other states"):
        hmm(training__resume_from=path).fit(X, states=[np.zeros(30, int), *[None] * 5])
    with pytest.raises(ValueError, match="other validation data"):
        hmm(training__resume_from=path).fit(X, validation=X[:1])
    with pytest.raises(ValueError, match="written by an HMM but this is an LSTM"):
        lstm(training__resume_from=path).fit(TEXT)


def test_another_version_and_older_checkpoints_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "run")
    hmm(training__checkpoint=path).fit(X)
    content = storage.read(path)
    monkeypatch.setattr("seqmodels.training.checkpoint.__version__", "9.9")
    with pytest.raises(ValueError, match=r"was written by seqmodels .* but this is seqmodels 9\.9"):
        hmm(training__resume_from=path).fit(X)
    del content["fingerprint"]
    storage.write(path, content)
    with pytest.raises(ValueError, match="of an earlier version, does not name the settings and data"):
        hmm(training__resume_from=path).fit(X)


def test_what_does_not_change_the_course_may_differ(tmp_path: Path) -> None:
    path = str(tmp_path / "run")
    straight = gru(max_steps=9).fit(TEXT, validation=None)
    gru(max_steps=9, training__checkpoint=path, training__checkpoint_seconds=0).fit(TEXT, validation=None)
    free = {
        "verbose": False,
        "device": "cpu",
        "training__patience": 7,
        "training__callbacks": [print],
        "max_seconds": 1e6,
    }
    resumed = gru(max_steps=9, training__resume_from=path, **free).fit(TEXT, validation=None)
    np.testing.assert_allclose(resumed.log_prob(TEXT), straight.log_prob(TEXT), rtol=1e-4)
    longer = gru(max_steps=12, training__resume_from=path).fit(TEXT, validation=None)
    assert longer.history_["step"].iloc[-1] == 12


@pytest.mark.parametrize("make", [lstm, hmm, sm.AlignmentHMM, sm.HMMTagger])
def test_seconds_below_zero_are_refused(make: Any) -> None:
    pairs = ([np.array([0, 1])] * 3, [np.array([1, 0])] * 3)
    with pytest.raises(ValueError, match="checkpoint_seconds is -1; pass a number of seconds"):
        make().set_params(training__checkpoint_seconds=-1).fit(*pairs)


def test_hashes_tell_apart_what_differs() -> None:
    a = np.arange(6.0)
    kinds = [a, a.astype(np.float32), a.reshape(2, 3), a[::2], [a], a.tolist(), None, "a", {"a": a}, np.append(a, 0.0)]
    assert len({hash_of(kind) for kind in kinds}) == len(kinds)
    assert hash_of(a[::2]) == hash_of(a[::2].copy())
    assert hash_of(sm.GaussianMixture(2)) != hash_of(sm.GaussianMixture(3))
    split = [Example(np.array([0, 1])), Example(np.array([2]))]
    joined = [Example(np.array([0])), Example(np.array([1, 2]))]
    assert hashes(split, [])["training data"] != hashes(joined, [])["training data"]


def test_what_processes_may_set_apart_is_not_compared() -> None:
    """Paths and callbacks within ``training`` are ignored by their own names; all else is named ``training__x``."""
    model = lstm(training__checkpoint="here", training__callbacks=[print], training__patience=9)
    found = settings_of(model, MAY_DIFFER)
    assert found["training__patience"] == 9
    assert not {"training", "training__checkpoint", "training__callbacks", "verbose"} & found.keys()
