"""The cursor of an autoregression with missing values: steps read together, the past known again, forecasts exact."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

import seqmodels as sm
from seqmodels.hmm import cursor as cursors
from seqmodels.hmm.missing_past import PastFilter
from seqmodels.observations import gaussian
from tests.hmm.test_missing_past import HOLES, WHOLE


@cache
def fitted(n_states: int, order: int, dtype: str = "float64") -> sm.HMM:
    observation = sm.AutoregressiveGaussian(order, background=0.0, predictive="plug-in")
    return sm.HMM(n_states, observation=observation, max_iter=2, n_init=1, dtype=dtype).fit(HOLES)


def encoded(model: sm.HMM, x: np.ndarray) -> torch.Tensor:
    return torch.as_tensor(model.encoding_.encode(x))


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("n_states", "order", "terms"), [(1, 1, 1 << 22), (2, 3, 1 << 22), (2, 3, 50)])
def test_steps_read_together_give_the_state_of_single_steps(
    n_states: int, order: int, terms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cursors, "TERMS_AT_ONCE", terms)
    model = fitted(n_states, order)
    cursor = model.cursor()
    x = torch.stack([encoded(model, HOLES[0][:11]), encoded(model, HOLES[1][:11])])
    one_by_one = cursor.start(n=2)
    for t, step in enumerate(x.unbind(1)):
        one_by_one = cursor.advance(one_by_one, step)
        for first in {0, min(5, t), t}:
            together = cursor.read(cursor.read(cursor.start(n=2), x[:, :first]), x[:, first : t + 1])
            assert together.n_scored == one_by_one.n_scored
            assert_allclose(together.log_predicted, one_by_one.log_predicted, rtol=1e-12, atol=1e-12)
            # Of two sequences side by side one may have a gap still, and then both are as wide.
            assert_allclose(cursor.widened(together.past), cursor.widened(one_by_one.past), rtol=1e-12, atol=1e-12)


def test_after_as_many_complete_frames_the_past_is_known_and_filtered_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    model, advanced = fitted(2, 2, "float32"), []
    advance = PastFilter.advance
    monkeypatch.setattr(PastFilter, "advance", lambda *a: advanced.append(1) or advance(*a))
    stream = model.stream()
    x = WHOLE[0].copy()
    x[4, 1] = np.nan
    for frame in x:
        stream.update(frame)
    assert len(advanced) == 3  # of 30 steps
    state = model.cursor().read(model.cursor().start(), encoded(model, x)[None].float())
    assert state.past.shape == (1, 2, 2)
    assert state.past.dtype == torch.float32


def test_forecasts_of_one_state_are_exact_where_values_of_its_past_are_missing() -> None:
    """The mean of drawn paths, and the spread, are those in closed form."""
    model = fitted(1, 2)
    x = WHOLE[0][:8].copy()
    x[6:, 0] = np.nan
    exact = model.forecast([x], 3)
    assert (exact.frame["method"] == "exact").all()
    known = model.forecast([WHOLE[0][:8]], 3)
    width = [(each.frame["95%"] - each.frame["5%"]).to_numpy() for each in (exact, known)]
    assert (width[0] >= width[1] - 1e-9).all()
    cursor, k, n = model.cursor(), 3, 40_000
    state = cursor.read(cursor.start(), encoded(model, x)[None])
    predictions = cursor.predictions_ahead(state, k)
    assert predictions is not None
    generator = torch.Generator().manual_seed(0)
    paths, drawn = cursor.select(state, torch.zeros(n, dtype=torch.long)), []
    for _ in range(k):
        prediction = cursor.distribution(paths)
        drawn.append(prediction.observation.sample(prediction.output_parameters[:, 0], prediction.past, generator))
        paths = cursor.advance(paths, drawn[-1])
    for prediction, x_h in zip(predictions[1:], drawn[1:], strict=True):
        _, mean, shape = prediction.observation.unpack(prediction.output_parameters[0, 0], 2)
        covariance = np.cov(x_h.numpy().T)
        error = np.sqrt(np.diag(covariance) / n)
        assert (np.abs(x_h.mean(0).numpy() - mean[0].numpy()) < 5 * error).all()
        found = gaussian.covariance_of_shape(shape[0], 2, 1e-300).numpy()
        assert_allclose(found, covariance, rtol=0.05, atol=0.02)
