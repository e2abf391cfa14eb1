"""A fit goes on from a checkpoint to the parameters and the history of one without a break; starts share the time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from seqmodels import LinearGaussian, SequenceModel
from seqmodels.linear_gaussian import SwitchingLinearGaussian
from seqmodels.linear_gaussian.learning import structural
from seqmodels.training import EMTraining, StopRule
from tests.killed_runs import Killed, written

RNG = np.random.default_rng(0)
X = [RNG.normal(size=(30, 3)).cumsum(0) / 3 for _ in range(9)]
GAPS = [np.where(RNG.random(x.shape) < 0.1, np.nan, x) for x in X]
SERIES = [(RNG.normal(size=60).cumsum() + 2 * (np.arange(60) % 4 == 0))[:, None]]
CASES: dict[str, tuple[Callable[..., SequenceModel], list[np.ndarray]]] = {
    "em": (lambda **o: LinearGaussian(2, tol=0, max_iter=5).set_params(**o), X),
    "starts": (lambda **o: LinearGaussian(2, n_init=3, tol=1e-2, max_iter=6).set_params(**o), GAPS),
    "diffuse": (lambda **o: LinearGaussian(2, start="diffuse", n_init=2, tol=0, max_iter=3).set_params(**o), X),
    "structure": (
        lambda **o: (LinearGaussian.local_level() + LinearGaussian.seasonal(4)).set_params(
            **o, n_init=2, max_iter=8, min_covariance=1e-4
        ),
        SERIES,
    ),
    "regimes": (
        lambda **o: SwitchingLinearGaussian(2, 1, n_init=2, tol=0, max_iter=3, particle_steps=3).set_params(**o),
        X[:4],
    ),
    "one regime": (lambda **o: SwitchingLinearGaussian(1, 2, tol=0, max_iter=4).set_params(**o), X),
}


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize(("make", "data"), CASES.values(), ids=CASES)
def test_it_ends_where_a_run_without_a_break_ends(
    make: Callable[..., SequenceModel], data: list[np.ndarray], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    straight = make().fit(data)
    always = {"training__checkpoint": str(tmp_path / "run"), "training__checkpoint_seconds": 0}
    with monkeypatch.context() as patch:
        seen = written(patch, most=None)
        make(**always).fit(data)
    n = len(seen)
    assert n >= 4
    for most in sorted({1, n // 2, n}):
        (tmp_path / "run").unlink()
        with monkeypatch.context() as patch:
            written(patch, most=most)
            with pytest.raises(Killed):
                make(**always).fit(data)
        resumed = make(training__resume_from=always["training__checkpoint"]).fit(data)
        assert resumed._state().keys() == straight._state().keys()
        for name, before in straight._state().items():
            np.testing.assert_allclose(resumed._state()[name], before, rtol=1e-9, atol=1e-9)
        pd.testing.assert_frame_equal(
            resumed.history_.drop(columns="seconds"), straight.history_.drop(columns="seconds"), rtol=1e-9, atol=1e-9
        )
        assert resumed.converged_ == straight.converged_


def test_what_is_known_of_a_structure_is_not_evaluated_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, evaluate, path = [], structural._by_filter, str(tmp_path / "run")
    monkeypatch.setattr(structural, "_by_filter", lambda *a: (calls.append(1), evaluate(*a))[1])
    model = (LinearGaussian.local_level() + LinearGaussian.seasonal(4)).set_params(max_iter=20)
    model.clone().set_params(training__checkpoint=path).fit(SERIES)
    n = len(calls)
    model.clone().set_params(training__resume_from=path).fit(SERIES)
    assert len(calls) == n > 10


def test_a_start_that_ended_is_not_begun_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, began, start = str(tmp_path / "run"), list[int](), LinearGaussian._start
    monkeypatch.setattr(LinearGaussian, "_start", lambda *a: (began.append(a[1]), start(*a))[1])
    LinearGaussian(2, n_init=2, max_iter=2, tol=0, training=EMTraining(checkpoint=path)).fit(X)
    LinearGaussian(2, n_init=2, max_iter=2, tol=0, training=EMTraining(resume_from=path)).fit(X)
    assert began == [0, 1]


def test_other_data_and_arguments_are_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "run")
    LinearGaussian(2, max_iter=2, training=EMTraining(checkpoint=path)).fit(X)
    with pytest.raises(ValueError, match="n_states=2"):
        LinearGaussian(3, max_iter=2, training=EMTraining(resume_from=path)).fit(X)
    with pytest.raises(ValueError, match="other training data"):
        LinearGaussian(2, max_iter=2, training=EMTraining(resume_from=path)).fit([*X[1:], X[0]])
    with pytest.raises(ValueError, match="resume_from is 'auto'"):
        SwitchingLinearGaussian(2, 1, training=EMTraining(resume_from="auto")).fit(X)


@pytest.mark.parametrize(
    "model",
    [
        LinearGaussian(2, max_iter=1),
        LinearGaussian.local_level().set_params(max_iter=1),
        SwitchingLinearGaussian(2, 1, max_iter=1, particle_steps=0),
    ],
    ids=["system", "structure", "regimes"],
)
def test_a_warm_start_has_all_of_the_time(model: SequenceModel, monkeypatch: pytest.MonkeyPatch) -> None:
    caps = list[float | None]()

    class Watched(StopRule):
        def out_of_time(self, seconds: float) -> bool:
            caps.append(self.max_seconds)
            return super().out_of_time(seconds)

    for name in ("seqmodels.linear_gaussian.state_space.StopRule",):
        monkeypatch.setattr(name, Watched)
    x = SERIES if getattr(model, "structure", None) else X[:3]
    model.set_params(n_init=4, max_seconds=100.0).fit(x)
    assert set(caps) == {25.0}
    caps.clear()
    model.set_params(warm_start=True).fit(x)
    assert set(caps) == {100.0}
