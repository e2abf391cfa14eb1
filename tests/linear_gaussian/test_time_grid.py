"""``LinearGaussian(time_step=...)``: against the same system on the whole grid, where the steps between are missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from numpy.typing import NDArray

import seqmodels as sm
from seqmodels.linear_gaussian.cursor import SystemCursor
from seqmodels.linear_gaussian.time_grid import SystemCursorOnGrid, moved, on_grid

Array = NDArray[np.float64]
TRANSITION, NOISE = np.array([[0.9, 0.2], [-0.1, 0.8]]), np.array([[0.5, 0.1], [0.1, 0.3]])
SYSTEM: dict[str, Any] = {
    "transition": TRANSITION,
    "state_covariance": NOISE,
    "observation_matrix": [[1.0, 0.5]],
    "observation_covariance": [[0.2]],
}
STEP = 0.5
PLACES = [np.array([0, 1, 4, 5, 6, 20, 21, 33]), np.array([0]), np.array([0, 300, 301])]


def both(places: list[NDArray[np.int64]] = PLACES, seed: int = 0) -> tuple[sm.Sequences, list[Array]]:
    """Sequences at irregular times, and the same with missing steps between."""
    whole = sm.LinearGaussian.from_parameters(**SYSTEM)
    drawn = [whole.sample(1, length=int(at[-1]) + 1, random_state=seed + i)[0] for i, at in enumerate(places)]
    items = [x[at] for x, at in zip(drawn, places, strict=True)]
    return sm.Sequences(items, times=[STEP * at + 3.0 for at in places]), [
        on_grid(x, at) for x, at in zip(items, places, strict=True)
    ]


def timed(**options: Any) -> sm.LinearGaussian:
    return sm.LinearGaussian.from_parameters(**SYSTEM, time_step=STEP, **options)


def test_steps_between_are_missing_ones() -> None:
    X, whole = both()
    grid = sm.LinearGaussian.from_parameters(**SYSTEM)
    assert_allclose(timed().log_prob(X), grid.log_prob(whole), atol=1e-12)
    for name in ("filter", "smooth"):
        for here, there, at in zip(getattr(timed(), name)(X), getattr(grid, name)(whole), PLACES, strict=True):
            assert_allclose(here.means, there.means[at], atol=1e-12)
            assert_allclose(here.covariances, there.covariances[at], atol=1e-12)
    assert timed().measure_.inputs == ("time",)


def test_each_gap_moves_the_state_by_a_power_and_the_noise_of_all_its_steps() -> None:
    parameters = timed().cursor()
    assert isinstance(parameters, SystemCursorOnGrid)
    cursor: SystemCursor = parameters.cursor
    first = cursor.start(n=3)
    n_steps = torch.tensor([0, 1, 7])
    after = moved(cursor, first, n_steps)
    start = timed().initial_covariance_
    for i, n in enumerate(n_steps.tolist()):
        covariance = start
        for _ in range(n):
            covariance = TRANSITION @ covariance @ TRANSITION.T + NOISE
        assert_allclose(after.factor[i].T @ after.factor[i], covariance, rtol=1e-12)
        assert_allclose(after.mean[i], np.linalg.matrix_power(TRANSITION, n) @ timed().initial_mean_, atol=1e-14)
    together = moved(cursor, first, torch.tensor([7, 7, 7]))
    assert len(together.factor) == 1
    assert_allclose(together.factor[0].T @ together.factor[0], after.factor[2].T @ after.factor[2], rtol=1e-12)


def test_step_by_step_and_several_at_once() -> None:
    X, _ = both()
    assert X.times is not None
    steps = timed().log_prob_steps(X)
    for x, times, expected in zip(X, X.times, steps, strict=True):
        stream = timed().stream()
        assert_allclose([stream.update(frame, time=t) for frame, t in zip(x, times, strict=True)], expected, atol=1e-9)
    cursor = timed().cursor()
    assert isinstance(cursor, SystemCursorOnGrid)
    values = torch.tensor(np.stack([X[0][:3], X[2][:3]]))
    state = cursor.start(n=2)
    for t in range(3):
        at = torch.tensor([[X.times[0][t]], [X.times[2][t]]]) / STEP
        state = cursor.given(state, at)
        nats = cursor.distribution(state).log_prob(values[:, t])
        assert_allclose(nats, [steps[0][t], steps[2][t]], atol=1e-9)
        state = cursor.advance(state, values[:, t])
    chosen = cursor.select(state, torch.tensor([1]))
    assert_allclose(cursor.given(chosen, torch.tensor([[700.0]])).state.mean, 0.0, atol=1e-8)


def test_forecasts_are_of_the_times_that_are_asked_for() -> None:
    X, whole = both()
    assert X.times is not None
    ahead = [t[-1] + STEP * np.array([1, 4, 5]) for t in X.times]
    columns = ["mean", "5%", "95%"]
    frame = timed().forecast(X, 3, times=ahead).frame
    grid = sm.LinearGaussian.from_parameters(**SYSTEM).forecast(whole, 5).frame
    chosen = grid[grid["step"].isin([1, 4, 5])]
    assert_allclose(frame[columns], chosen[columns], atol=1e-9)
    assert_allclose(frame["time"], np.concatenate(ahead))
    with pytest.raises(ValueError, match=r"0\.5 times time_step after the one before"):
        timed().forecast(X, 1, times=[[t[-1] + 0.25] for t in X.times])


def test_without_times_each_step_is_one_of_the_system() -> None:
    _, whole = both()
    grid = sm.LinearGaussian.from_parameters(**SYSTEM)
    assert_allclose(timed().log_prob(whole), grid.log_prob(whole), atol=1e-12)
    assert_allclose(timed().forecast(whole[:1], 3).frame["mean"], grid.forecast(whole[:1], 3).frame["mean"])
    assert_allclose(timed().sample(1, length=5)[0], grid.sample(1, length=5)[0], atol=1e-12)


def test_a_tail_is_scored_given_the_times_of_its_past() -> None:
    X, _ = both(PLACES[:1])
    train, test = X.split(0.4)
    assert timed().log_prob(train) + timed().log_prob(test) == pytest.approx(timed().log_prob(X), abs=1e-10)


@pytest.mark.parametrize("structure", [False, True])
def test_a_fit_is_that_of_the_grid(structure: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    places = [np.append(0, 1 + np.sort(rng.choice(79, 39, replace=False))) for _ in range(2)]
    X, whole = both(places, seed=5)

    def make(**options: Any) -> sm.LinearGaussian:
        if structure:
            return sm.LinearGaussian.local_level(**options)
        return sm.LinearGaussian(2, max_iter=10, tol=0, **options)

    model, grid = make(time_step=STEP).fit(X), make().fit(whole)
    assert_allclose(model.log_prob(X), grid.log_prob(whole), atol=1e-3 if structure else 1e-8)
    if structure:
        assert_allclose(model.diffuse_log_prob(X), grid.diffuse_log_prob(whole), atol=1e-5)
        frame = model.components(X)[0]
        assert frame["step"].tolist() == list(range(40))
        expected = grid.components(whole)[0]
        assert_allclose(frame["mean"], expected["mean"].to_numpy()[places[0]], atol=1e-4)
    else:
        assert (np.diff(model.history_["log_prob"]) > -1e-12).all()
    model.save(tmp_path / "model.safetensors")
    loaded = sm.load(tmp_path / "model.safetensors")
    assert_allclose(loaded.log_prob(X), model.log_prob(X), rtol=1e-12)


def test_dates_are_counted_in_their_unit() -> None:
    X, _ = both(PLACES[:1])
    dates = [np.datetime64("2024-02-20") + (7 * PLACES[0]).astype("timedelta64[D]")]
    weekly = sm.Sequences(X.items, times=dates)
    expected = timed().log_prob(X)
    for options in ({"time_step": 7.0}, {"time_step": 1.0, "date_unit": "W"}):
        model = sm.LinearGaussian.from_parameters(**SYSTEM, **options)
        assert_allclose(model.log_prob(weekly), expected, atol=1e-12)


def test_refusals_name_the_way_out() -> None:
    X, _ = both()
    with pytest.raises(ValueError, match=r"step 1 of sequence 0 is 1\.66667 times time_step after its first one"):
        sm.LinearGaussian(2, time_step=0.3).fit(X)
    with pytest.raises(ValueError, match="steps 0 and 1 of sequence 0 are at one time"):
        timed().log_prob(sm.Sequences([np.zeros((2, 1))], times=[[1.0, 1.0]]))
    with pytest.raises(ValueError, match="goes over 40,000,000 times time_step; pass a larger"):
        timed().log_prob(sm.Sequences([np.zeros((2, 1))], times=[[0.0, 2e7]]))
    with pytest.raises(ValueError, match="pass a number above zero, or None"):
        sm.LinearGaussian(2, time_step=0.0).fit(X)
    with pytest.raises(ValueError, match="leave state_inputs and observation_inputs out"):
        sm.LinearGaussian(2, time_step=STEP, state_inputs=True).fit(X)
    with pytest.raises(ValueError, match="warm_start cannot continue"):
        timed(warm_start=True).set_params(time_step=0.25).fit(X)
