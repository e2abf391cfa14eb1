"""Networks given inputs: those of a step are known when it is predicted, in batches and step by step alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import seqmodels as sm
from seqmodels.common.display import a_or_an
from seqmodels.neural.model import NeuralModel

SMALL: dict[str, Any] = {"d_model": 8, "max_steps": 4, "batch_size": 4, "inputs": True, "dtype": "float64"}
MODELS: list[NeuralModel] = [
    sm.ElmanRNN(**SMALL),
    sm.GRU(**SMALL),
    sm.LSTM(**SMALL, n_layers=2),
    sm.LSTM(**SMALL, observation=sm.AutoregressiveGaussian(2)),
    sm.Transformer(**SMALL, n_layers=1, n_heads=2, context=4),
    sm.Transformer(**SMALL, n_layers=1, n_heads=2, context=64, convolution_lags=2),
]


def drawn(kind: str, seed: int = 0, lengths: tuple[int, ...] = (11, 1, 6, 9, 2, 7)) -> sm.Sequences:
    """What is emitted follows the input of the same step."""
    rng = np.random.default_rng(seed)
    inputs = [np.stack([50.0 + 3.0 * rng.normal(size=n), rng.normal(size=n)], 1) for n in lengths]
    noise = [rng.normal(size=len(u)) for u in inputs]
    if kind == "symbols":
        items = [(u[:, 0] + e > 50.0).astype(int) + (e > 1.5) for u, e in zip(inputs, noise, strict=True)]
    else:
        items = [np.stack([u[:, 0] + e, e], 1) for u, e in zip(inputs, noise, strict=True)]
    return sm.Sequences(items, inputs=inputs, input_names=["heat", "noise"])


def cases() -> list[tuple[NeuralModel, str]]:
    return [(m, k) for m in MODELS for k in ("vectors", "symbols") if k == "vectors" or m.observation == "auto"]


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize(("model", "kind"), cases())
def test_batches_streams_and_files_agree(model: NeuralModel, kind: str, tmp_path: Path) -> None:
    X = drawn(kind)
    assert X.inputs is not None
    model = model.clone().fit(X)
    assert model.length_ == "given"
    steps = model.log_prob_steps(X)
    for item, inputs, of_sequence in zip(X, X.inputs, steps, strict=True):
        stream = model.stream()
        streamed = [stream.update(x, inputs=u) for x, u in zip(item, inputs, strict=True)]
        np.testing.assert_allclose(of_sequence, streamed, atol=1e-8)
    model.save(tmp_path / "model.safetensors")
    loaded = sm.load(tmp_path / "model.safetensors")
    for pair in zip(steps, loaded.log_prob_steps(X), strict=True):
        np.testing.assert_allclose(*pair, rtol=1e-5, atol=1e-5)
    assert loaded.input_names_ == ("heat", "noise")
    alone = np.concatenate([model.log_prob(X[i : i + 1]) for i in range(len(X))])
    np.testing.assert_allclose(alone, model.log_prob(X), atol=1e-9)
    head, tail = X.segments([(0, 0, 7)]), X.segments([(0, 7, 11)], past=None)
    np.testing.assert_allclose(model.log_prob_steps(tail)[0], steps[0][7:], atol=1e-8)
    stream = model.stream(past=head.items[0], past_inputs=X.inputs[0][:7])
    assert stream.update(X.items[0][7], inputs=X.inputs[0][7]) == pytest.approx(steps[0][7], abs=1e-8)
    next_step = model.predict_next(X.items[0][:7], inputs=X.inputs[0][:8])
    assert float(next_step.log_prob(torch.tensor(X.items[0][7]))) == pytest.approx(steps[0][7], abs=1e-6)


@pytest.mark.parametrize(("model", "kind"), cases())
def test_the_input_of_a_step_is_known_at_it_and_not_before(model: NeuralModel, kind: str) -> None:
    X = drawn(kind)
    assert X.inputs is not None
    model = model.clone().fit(X)
    changed = X.inputs[0].copy()
    changed[5:] += 5.0
    before, after = (model.log_prob_steps(each)[0] for each in (X, X[:1].with_inputs([changed], X.input_names)))
    np.testing.assert_allclose(before[:5], after[:5], atol=1e-10)
    assert abs(before[5] - after[5]) > 1e-6


@pytest.mark.parametrize(("model", "kind"), [(MODELS[2], "vectors"), (MODELS[4], "vectors"), (MODELS[4], "symbols")])
def test_ahead_and_drawn(model: NeuralModel, kind: str) -> None:
    X = drawn(kind)
    assert X.inputs is not None
    model = model.clone().fit(X)
    ahead = [np.array([[53.0, 0.0], [47.0, 0.0], [50.0, 0.0]])] * len(X)
    forecast = model.forecast(X, 3, inputs=ahead, n=20)
    assert set(forecast.frame["step"]) == {1, 2, 3}
    items = model.sample(3, prefix=X.items[0][:2], length=3, inputs=X.inputs[0][:5])
    assert all(len(x) == 5 for x in items)
    with pytest.raises(ValueError, match="pass inputs="):
        model.forecast(X, 3)
    with pytest.raises(ValueError, match="pass inputs="):
        model.sample(length=2)
    with pytest.raises(ValueError, match="not known"):
        model.cursor().distribution(model.cursor().start())
    cursor = model.cursor()
    state = cursor.given(cursor.start(), torch.zeros(1, 2))
    with pytest.raises(ValueError, match="given already"):
        cursor.given(state, torch.zeros(1, 2))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["vectors", "symbols"])
def test_what_inputs_say_is_learned(kind: str) -> None:
    X, test = drawn(kind, 1, (60,) * 12), drawn(kind, 2, (60,) * 6)
    options: dict[str, Any] = {"d_model": 16, "max_steps": 60, "batch_size": 4, "length": "given"}
    plain, given = (sm.GRU(**options, inputs=names).fit(X) for names in (None, ["heat"]))
    assert given.score(test) > plain.score(test) + 0.15
    assert given.input_names_ == ("heat",)
    assert plain.measure_.inputs == ()
    assert given.n_parameters_ > plain.n_parameters_


def test_refused_in_words() -> None:
    X = drawn("symbols")
    with pytest.raises(ValueError, match="say how long it is"):
        sm.GRU(**SMALL, length="stop").fit(X)
    for cls in (sm.LSTMSeq2Seq, sm.TransformerSeq2Seq, sm.LSTMTagger):
        said = f"{a_or_an(cls)} reads sources and no inputs beside them; leave inputs out, or take what reads inputs"
        with pytest.raises(ValueError, match=said):
            cls(inputs=True).fit(X, X)
    with pytest.raises(ValueError, match="leave y out"):
        sm.GRU(**SMALL).fit(X, X)
    with pytest.raises(ValueError, match="have none"):
        sm.GRU(**SMALL).fit(X.items)
    with pytest.raises(ValueError, match="Dynamic gives its model no inputs"):
        sm.Dynamic(sm.GRU(**SMALL)).fit(X)
