"""NaN never leaves: float64 where float32 cannot hold a figure, else an error that names sequence and position."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

import seqmodels as sm

RNG = np.random.default_rng(0)
FRAMES = [RNG.standard_normal((n, 2)) for n in (12, 5, 9)]
MODELS = {
    "hmm": sm.HMM(2, max_iter=2, dtype="float32"),
    "hmm-full": sm.HMM(2, observation=sm.GaussianMixture(1, "full"), max_iter=2, dtype="float32"),
    "lstm": sm.LSTM(d_model=8, max_steps=2),
    "transformer": sm.Transformer(d_model=8, n_heads=2, max_steps=2, context=8),
}


def with_value(value: float, feature: int = 1) -> list[np.ndarray]:
    """The second sequence has one such value, at its frame 2."""
    items = [x.copy() for x in FRAMES]
    items[1][2, feature] = value
    return items


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest) -> sm.SequenceModel:
    return MODELS[request.param].clone().fit(FRAMES, validation=None)


@pytest.mark.parametrize("value", [1e16, -1e20, 1e35, 1e48])
def test_what_float32_cannot_hold_is_computed_in_float64(model: sm.SequenceModel, value: float) -> None:
    x = with_value(value)
    assert model.dtype == "float32"
    found, before = model.log_prob_steps(x), model.log_prob(FRAMES)
    for steps in found:
        assert np.isfinite(steps).all()
    exact = copy.deepcopy(model).set_params(dtype="float64")
    # After such a frame the rounding of its 1e30 nats decides on the state of an HMM.
    n = 3 if isinstance(model, sm.HMM) else None
    assert_allclose(found[1][:n], exact.log_prob_steps(x)[1][:n], rtol=1e-12)
    assert_allclose(model.log_prob(FRAMES), before, rtol=1e-5, atol=1e-5)
    assert_allclose(found[0], model.log_prob_steps(FRAMES)[0], rtol=1e-5, atol=1e-5)


def test_of_many_short_sequences_one_is_computed_in_float64(model: sm.SequenceModel) -> None:
    many = [*FRAMES] * 12
    large = with_value(1e20)[1]
    found = model.log_prob([*many, large])
    assert_allclose(found[:-1], model.log_prob(many), rtol=1e-5, atol=1e-5)
    assert_allclose(found[-1:], model.log_prob([large]), rtol=1e-12)


@pytest.mark.parametrize("value", [1e200, 1e300, -np.finfo(float).max])
def test_what_float64_cannot_hold_is_refused_by_sequence_and_position(model: sm.SequenceModel, value: float) -> None:
    for ask in (model.log_prob_steps, model.log_prob, model.score):
        with pytest.raises(ValueError, match=r"sequence 1 of X has no .*: it has .* at frame 2, feature 1; remove or"):
            ask(with_value(value))


@pytest.mark.products_repeat  # the rounding of 1e40 nats decides on the state after the prefix
def test_a_prefix_beyond_float32_is_read_in_float64(model: sm.SequenceModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.distributions.Distribution, "_validate_args", False)  # as torch.compile leaves it
    x = with_value(1e20)[1]
    step = model.log_prob_steps([x[:4]])[0][3]
    if isinstance(model, sm.HMM):
        assert float(model.predict_next(x[:3]).log_prob(torch.as_tensor(x[3]))) == pytest.approx(step, rel=1e-9)
        assert np.isfinite(model.sample(1, length=5, prefix=x[:3], random_state=0)[0]).all()
    else:  # a network's precision grows with what it reads
        with pytest.raises(ValueError, match=r"the distribution of the next step exceeds what torch.float64 can hold"):
            model.predict_next(x[:3])
    with pytest.raises(ValueError, match=r"what comes before has .* at frame 2, feature 1, whose density float64"):
        model.predict_next(with_value(1e200)[1])


def test_a_stream_refuses_what_its_precision_cannot_hold_and_goes_on(model: sm.SequenceModel) -> None:
    stream, twin = model.stream(), model.stream()
    heard = []
    for x in FRAMES[0]:
        with pytest.raises(ValueError, match="that float32 cannot hold; set_params"):
            stream.update(np.array([0.0, 1e20]))
        with pytest.raises(ValueError, match="float64 cannot hold"):
            stream.update(np.array([1e200, 0.0]))
        heard.append((stream.update(x), twin.update(x)))
    assert_allclose(*np.transpose(heard), rtol=1e-5, atol=1e-5)


def test_a_true_zero_stays_one() -> None:
    chain = sm.HMM.from_parameters([1, 0], [[0.5, 0.5], [0, 1]], emission=[[1, 0, 0], [0, 1, 0]])
    steps = chain.log_prob_steps([np.array([0, 1, 0, 1]), np.array([0, 2])])
    assert_array_equal(np.isneginf(steps[0]), [False, False, True, True])
    assert_array_equal(np.isneginf(steps[1]), [False, True])
    given = sm.HMM.from_parameters(
        [1, 0], [[0, 1], [0, 1]], [0, 0], means=[[0.0], [1.0]], covariances=[[1.0], [1.0]], topology=[[0, 1], [0, 1]]
    )
    assert np.isneginf(given.log_prob_steps([np.array([[1e30]])])[0]).tolist() == [False, True]  # ends never


def test_a_source_beyond_float32_is_read_in_float64() -> None:
    X, y = FRAMES, [RNG.integers(0, 3, len(x)) for x in FRAMES]
    model = sm.LSTMSeq2Seq(d_model=8, max_steps=2).fit(X, y, validation=None)
    exact = copy.deepcopy(model).set_params(dtype="float64")
    assert_allclose(model.log_prob(with_value(1e25), y)[1], exact.log_prob(with_value(1e25), y)[1], rtol=1e-12)
    predicted, wanted = (m.predict_next(None, source=with_value(1e25)[1]).probs for m in (model, exact))
    assert_allclose(predicted, wanted, rtol=1e-12)


def test_counts_beyond_float32() -> None:
    counts = [RNG.poisson(2.0, (6, 1)).astype(float) for _ in range(3)]
    model = sm.HMM(2, observation=sm.Poisson(), max_iter=2).fit(counts)
    exact = sm.HMM(2, observation=sm.Poisson(), max_iter=2, dtype="float64").fit(counts)
    large = [np.append(counts[0], [[1e40]], axis=0)]
    assert_allclose(model.log_prob(large), exact.log_prob(large), rtol=1e-6)
    with pytest.raises(
        ValueError,
        match=r"sequence 0 of X has no log-probability that float64 can hold: it has 1e\+307 .* at frame 6, feature 0",
    ):
        model.log_prob([np.append(counts[0], [[1e307]], axis=0)])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: x * 1e200, "feature 0 has standard deviation .*, whose square float64 cannot hold"),
        (lambda x: x * 5e307, "feature 0 is .* at frame .* of the training data, which float64 cannot add up"),
        (lambda x: x * 1e-200, "feature 0 has standard deviation"),
        (lambda x: x + 1e15, "feature 0 is constant over the training data up to rounding errors"),
    ],
)
def test_training_data_that_float64_cannot_hold_are_refused(change: Any, message: str) -> None:
    for each in (sm.HMM(2), sm.LSTM(d_model=8, max_steps=1)):
        with pytest.raises(ValueError, match=message):
            each.fit([change(x) for x in FRAMES], validation=None)


@pytest.mark.parametrize("bad", [None, 5, {"a": 1}, {1}, np.nan, np.zeros((2, 2, 2)), [[1, 2], [1]]], ids=str)
def test_steps_and_prefixes_that_are_none_are_refused_in_words(model: sm.SequenceModel, bad: Any) -> None:
    with pytest.raises(ValueError, match=r"sequence 0|fitted on vectors"):
        model.stream().update(bad)
    if bad is not None:
        with pytest.raises(ValueError, match=r"sequence 0|fitted on vectors"):
            model.predict_next(bad)


def test_a_masked_step_is_missing_and_a_tensor_is_its_array(model: sm.SequenceModel) -> None:
    hidden = np.ma.array([0.5, -999.0], mask=[0, 1])
    if isinstance(model, sm.HMM):
        assert model.stream().update(hidden) == pytest.approx(model.stream().update(np.array([0.5, np.nan])), rel=1e-5)
    else:
        with pytest.raises(ValueError, match="sequence 0 of X has a NaN at frame 0"):
            model.stream().update(hidden)
    step = torch.tensor([0.5, 1.0], dtype=torch.float64)
    of_tensor = model.stream().update(step.clone().requires_grad_())
    assert of_tensor == pytest.approx(model.stream().update(step.numpy()), rel=1e-5)


@pytest.mark.parametrize("weights", [[1, np.nan, 1], [1e308] * 3, ["a", "b", "c"], {}, 5, [1, 1]], ids=str)
def test_weights_that_are_none_are_refused_in_words(weights: Any) -> None:
    with pytest.raises(ValueError, match="sample_weight must be 3 finite numbers"):
        sm.HMM(2).fit(FRAMES, sample_weight=weights)


@pytest.mark.parametrize(
    "ask",
    [
        lambda: sm.HMM(2.5).fit(FRAMES),  # type: ignore[arg-type]
        lambda: sm.HMM("a").fit(FRAMES),  # type: ignore[arg-type]
        lambda: sm.LSTM(d_model=np.nan).fit(FRAMES),  # type: ignore[arg-type]
        lambda: sm.LSTM(d_model=200_000).fit(FRAMES),
        lambda: sm.HMM(2).fit(FRAMES, states=5),
        lambda: sm.AlignmentHMM().fit([np.zeros(2_200_000, int)], [np.array([1])]),
        lambda: sm.HMM(2).fit(FRAMES, validation=5),
        lambda: sm.HMM.from_parameters(
            [0.5, 0.5], np.full((2, 2), 0.5), means=[[1e200], [0]], covariances=[[1.0], [1]]
        ),
        lambda: sm.HMM.from_parameters(
            [0.5, 0.5], np.full((2, 2), 0.5), means=[[1e90], [0]], covariances=[[1e-90], [1]]
        ),
        lambda: sm.LSTM(d_model=4, observation=sm.Poisson()).fit([np.full((3, 1), 1e300)] * 3, validation=None),
        lambda: sm.HMM(2, max_iter=1).fit(FRAMES).sample(-1, length=3),
        lambda: sm.HMM(2, max_iter=1).fit(FRAMES).sample(1, length="a"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_is_refused_in_words(ask: Any) -> None:
    with pytest.raises(ValueError, match=r"pass|align shorter|remove or rescale"):
        ask()
