"""Steps of cursors in compiled loops are those of tensor operations, however far values lie."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

import seqmodels as sm
from seqmodels.generation.cursor import ScoredSteps, single_steps
from seqmodels.hmm import HSMM, ContinuousTimeHMM, MarkovSwitchingAR
from seqmodels.hmm.continuous_time.cursor import ContinuousTimeCursor
from seqmodels.inference.chains import parallel_segments

pytest.importorskip("numba")

rng = np.random.default_rng(3)
X = [np.repeat(rng.integers(0, 3, 6), 5)[:, None] * 3.0 + rng.standard_normal((30, 2)) for _ in range(3)]
SYMBOLS = [rng.integers(0, 4, 20) for _ in range(3)]
TIMED = sm.Sequences(X, times=[np.cumsum(rng.exponential(size=len(x))) for x in X])
OPTIONS: dict[str, Any] = {"max_iter": 2, "n_init": 1, "dtype": "float64"}
MODELS: dict[str, Callable[[], Any]] = {
    "segments": lambda: HSMM(3, max_duration=6, length="stop", **OPTIONS).fit(X),
    "segments of symbols": lambda: HSMM(2, max_duration=6, **OPTIONS).fit(SYMBOLS),
    "segments of regressions": lambda: HSMM(2, observation=sm.AutoregressiveGaussian(1), **OPTIONS).fit(X),
    "last states": lambda: MarkovSwitchingAR(2, order=2, length="stop", **OPTIONS).fit(X),
    "gaps": lambda: ContinuousTimeHMM(3, **OPTIONS).fit(TIMED),
}


def states_and_scores(model: Any, rows: torch.Tensor) -> tuple[list[Any], np.ndarray, np.ndarray]:
    """After each step of ``rows (n, T, ..)``: the state, what it was worth, and what was predicted of it."""
    cursor, states, scores, predicted = model.cursor(), [], [], []
    state = cursor.start(n=len(rows))
    for t, x in enumerate(rows.unbind(1)):
        if isinstance(cursor, ContinuousTimeCursor):
            state = cursor.given(state, torch.tensor([[1.3 * t], [0.1 * t], [t**3]], dtype=torch.float64))
        predicted.append(cursor.distribution(state).log_prob(x).numpy())
        state, log_prob = cursor.advance_and_score(state, x)
        states.append(state)
        scores.append(log_prob.numpy())
    return states, np.array(scores), np.array(predicted)


@pytest.mark.parametrize("name", MODELS)
def test_loops_and_tensors_agree(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = MODELS[name]()
    assert isinstance(single_steps(model.cursor()), ScoredSteps)
    rows = torch.tensor(np.stack([model.encoding_.encode(x[:12]) for x in (X if "symbols" not in name else SYMBOLS)]))
    if "symbols" not in name:
        # So far from every state that only logarithms tell them apart; farther, densities of tuples are rounded.
        rows[1, 4:6] = -300 if name == "last states" else -3e8
    states, scores, predicted = states_and_scores(model, rows)
    monkeypatch.setattr(parallel_segments, "_has_numba", lambda: False)
    expected, slow_scores, _ = states_and_scores(model, rows)
    assert_allclose(scores, slow_scores, rtol=1e-11, atol=1e-11)
    assert_allclose(scores, predicted, rtol=1e-11, atol=1e-11)
    for state, other in zip(states, expected, strict=True):
        for field, value in vars(other).items():
            if isinstance(value, torch.Tensor):
                assert_allclose(getattr(state, field), value, rtol=1e-10, atol=1e-10, err_msg=field)


@pytest.mark.parametrize("loops", [True, False])
def test_after_an_impossible_step_all_is_impossible(loops: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not loops:
        monkeypatch.setattr(parallel_segments, "_has_numba", lambda: False)
    emission = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    model = HSMM.from_parameters([1.0, 0.0], [[0.0, 1.0], [1.0, 0.0]], duration_rates=[0.5, 2.0], emission=emission)
    for symbols in ((0, 2, 0), (0, 1, 2)):  # whose densities are zero in every state
        stream = model.stream()
        nats = [stream.update(symbol) for symbol in symbols]
        assert np.isneginf(nats).tolist() == [False, symbols[1] == 2, True]
        assert stream.filtered.tolist() == [0.0, 0.0]
    stream = model.stream()
    assert stream.update(1) == stream.update(0) == -np.inf  # not the first state
