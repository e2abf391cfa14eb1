"""Networks fitted to vectors with missing values: where they are is read, and what is missing is summed out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal

import seqmodels as sm
from seqmodels.neural.batches import carried_forward

rng = np.random.default_rng(0)
WHOLE = [rng.normal(size=(n, 2)).cumsum(0) for n in (12, 7, 9, 15, 5)]
HOLES = [np.where(rng.random(x.shape) < 0.3, np.nan, x) for x in WHOLE]
HOLES[2][3] = np.nan  # a whole frame
Y = [x[: len(x) - 1] + 1 for x in HOLES]
SMALL: dict[str, Any] = {"d_model": 8, "max_steps": 4, "dtype": "float64"}
MODELS = {
    "gru-full": sm.GRU(**SMALL),
    "lstm-diag": sm.LSTM(observation=sm.GaussianMixture(2), n_layers=2, **SMALL),
    "elman-lowrank": sm.ElmanRNN(observation=sm.GaussianMixture(2, "lowrank", rank=1), **SMALL),
    "transformer-windows": sm.Transformer(context=4, n_heads=2, **SMALL),
    "gru-stop": sm.GRU(length="stop", **SMALL),
    "gru-ar": sm.GRU(observation=sm.AutoregressiveGaussian(1), **SMALL),
    "lstm-ar": sm.LSTM(observation=sm.AutoregressiveGaussian(3, "diag"), **SMALL),
    "transformer-ar": sm.Transformer(context=4, n_heads=2, observation=sm.AutoregressiveGaussian(2), **SMALL),
}


def rough(model: Any) -> Any:
    """With noise in every weight: near their initial values, models would differ too little for errors to show."""
    generator = torch.Generator().manual_seed(3)
    for parameter in model.module_.parameters():
        parameter.data += 0.2 * torch.randn(parameter.shape, generator=generator)
    return model


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("name", MODELS)
def test_batch_cursor_and_stream_agree(name: str) -> None:
    model = rough(MODELS[name].clone().fit(HOLES, validation=None))
    together = model.log_prob_steps(HOLES)
    for item, steps in zip(HOLES, together, strict=True):
        assert np.isfinite(steps).all()
        stream = model.stream()
        assert [stream.update(x) for x in item] == pytest.approx(steps[: len(item)].tolist(), abs=1e-10)
        if model.length_ == "stop":
            assert stream.log_end() == pytest.approx(steps[-1], abs=1e-10)
        assert model.log_prob([item])[0] == pytest.approx(steps.sum(), abs=1e-9)  # alone as in the batch
    assert together[2][3] == pytest.approx(0, abs=1e-12) or model.length_ == "stop"  # nothing observed, nothing scored
    assert not np.isnan(model.sample(1, length=3, prefix=HOLES[0][:4])[0][4:]).any()


@pytest.mark.parametrize("name", ["gru-full", "lstm-diag", "elman-lowrank"])
def test_what_is_missing_is_integrated_out(name: str) -> None:
    model = rough(MODELS[name].clone().fit(HOLES, validation=None))
    before = HOLES[0][:3]
    marginal = model.log_prob_steps([np.vstack([before, [0.5, np.nan]])])[0][3]
    values, widths = nodes(150.0)
    steps = model.log_prob_steps([np.vstack([before, [0.5, value]]) for value in values])
    assert np.log(np.exp([each[3] for each in steps]) @ widths) == pytest.approx(marginal, abs=1e-5)


def nodes(end: float) -> tuple[np.ndarray, np.ndarray]:
    """Return values from ``-end`` to ``end``, closest about zero, and the weights of a sum over them."""
    at = np.linspace(-1.0, 1.0, 1201) * np.arcsinh(10 * end)
    return 0.1 * np.sinh(at), 0.1 * np.cosh(at) * (at[1] - at[0])


def test_where_values_are_missing_is_read() -> None:
    """A missing value is not taken for the mean, which is what it is filled with."""
    model = rough(MODELS["gru-full"].clone().fit(HOLES, validation=None))
    mean = model.encoding_.mean
    missing, filled = np.array([[np.nan, 1.0], [0.0, 0.0]]), np.array([[mean[0], 1.0], [0.0, 0.0]])
    assert abs(model.log_prob_steps([missing])[0][1] - model.log_prob_steps([filled])[0][1]) > 1e-3


@pytest.mark.slow
def test_training_learns_from_what_is_observed() -> None:
    t = np.arange(60)[:, None]
    waves = [
        np.sin(0.7 * t + phase) + 0.1 * np.random.default_rng(i).normal(size=(60, 1))
        for i, phase in enumerate(range(12))
    ]
    holes = [np.where(np.random.default_rng(i).random(x.shape) < 0.2, np.nan, x) for i, x in enumerate(waves)]
    short = sm.GRU(d_model=16, max_steps=2).fit(holes, validation=None)
    long = sm.GRU(d_model=16, max_steps=50).fit(holes, validation=None)
    assert long.score(holes) > short.score(holes) + 0.3
    assert np.isfinite(long.history_["log_prob"]).all()


def test_without_missing_values_the_parameters_are_what_they_were() -> None:
    plain = sm.GRU(**SMALL).fit(WHOLE, validation=None)
    assert plain.module_.missing is None
    assert plain.n_parameters_ + 2 * 8 == sm.GRU(**SMALL).fit(HOLES, validation=None).n_parameters_
    for ask in (plain.log_prob, lambda x: plain.predict_next(x[0])):
        with pytest.raises(
            ValueError, match=r"sequence 0 of X has a NaN at frame .* fit a network to data in which some"
        ):
            ask(HOLES)
    plain.fit(HOLES, validation=None)  # again, and now it learns to
    assert np.isfinite(plain.log_prob(HOLES)).all()


def test_one_that_reads_missing_values_is_saved_and_continued(tmp_path: Any) -> None:
    model = rough(sm.GRU(**SMALL).fit(HOLES, validation=None))
    model.save(tmp_path / "model.safetensors")
    loaded = sm.load(tmp_path / "model.safetensors")
    np.testing.assert_allclose(loaded.log_prob(HOLES), model.log_prob(HOLES), rtol=1e-5)
    loaded.set_params(warm_start=True).fit(WHOLE, validation=None)  # data without any: the weights stay
    assert np.isfinite(loaded.log_prob(HOLES)).all()


def test_missing_values_in_targets_and_in_sources_that_are_read_with_them() -> None:
    shared = rough(sm.GRU(**SMALL).fit(HOLES, Y, validation=None))
    assert np.isfinite(shared.log_prob(HOLES, Y)).all()
    steps, stream = shared.log_prob_steps(HOLES[:1], Y[:1])[0], shared.stream(source=HOLES[0])
    assert [stream.update(x) for x in Y[0]] == pytest.approx(steps.tolist(), abs=1e-10)
    encoder = sm.LSTMSeq2Seq(**SMALL).fit(WHOLE, Y, validation=None)
    assert np.isfinite(encoder.log_prob(WHOLE, Y)).all()
    with pytest.raises(ValueError, match="sequence 0 of X has a NaN"):
        encoder.fit(HOLES, Y)
    independent = sm.LSTMTagger(autoregressive=False, **SMALL).fit(WHOLE, HOLES, validation=None)
    assert np.isfinite(independent.log_prob(WHOLE, HOLES)).all()


def test_an_observation_that_cannot_sum_them_out_refuses() -> None:
    with pytest.raises(ValueError, match="sequence 0 of X has a NaN"):
        sm.GRU(observation=sm.Columns([(sm.GaussianMixture(), 1), (sm.AutoregressiveGaussian(1), 1)]), **SMALL).fit(
            HOLES
        )


def test_an_autoregression_reads_the_last_value_of_each_feature() -> None:
    nan = np.nan
    x = np.array([[nan, 1.0], [2.0, nan], [nan, nan], [3.0, 4.0]])
    assert_array_equal(carried_forward(x), [[0.0, 1.0], [2.0, 1.0], [2.0, 1.0], [3.0, 4.0]])
    model = rough(MODELS["gru-ar"].clone().fit(HOLES, validation=None))
    cursor = model.cursor()
    state = cursor.start()
    for step, expected in zip(torch.as_tensor(x), carried_forward(x), strict=True):
        state = cursor.advance(state, step[None])
        assert_array_equal(cursor.distribution(state).past[0, -1], expected)
    read = cursor.read(cursor.start(), torch.as_tensor(x)[None])
    assert_array_equal(cursor.distribution(read).past, cursor.distribution(state).past)


def test_what_an_autoregression_gives_of_some_features_is_its_marginal() -> None:
    model = rough(MODELS["gru-ar"].clone().fit(HOLES, validation=None))
    x = HOLES[2][:6].copy()
    x[5] = [nan_free(x[5, 0]), np.nan]
    marginal = model.log_prob_steps([x])[0][5]
    values, widths = nodes(300.0)
    filled = [np.vstack([x[:5], [x[5, 0], value]]) for value in values]
    found = np.log(np.exp([each[5] for each in model.log_prob_steps(filled)]) @ widths)
    assert found == pytest.approx(marginal, abs=1e-6)


def nan_free(value: float) -> float:
    return 0.5 if np.isnan(value) else float(value)
