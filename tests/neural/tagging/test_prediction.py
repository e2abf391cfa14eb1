"""Targets of many sources at once, of several lengths, against those of each source alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import seqmodels as sm
from seqmodels.neural.model import NeuralModel

SMALL: dict[str, Any] = {"d_model": 16, "n_layers": 1, "batch_size": 8, "dtype": "float64", "max_steps": 12}
LENGTHS = (7, 2, 4, 1, 7, 5)


def pairs(seed: int = 0, *, vectors: bool = False) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Labels of two kinds of steps, which hang together."""
    rng = np.random.default_rng(seed)
    y = [rng.integers(3, size=n) for n in LENGTHS]
    X = [rng.standard_normal((len(labels), 2)) + labels[:, None] if vectors else (labels + 1) % 3 for labels in y]
    return X, y


def fitted(model: NeuralModel, **options: Any) -> tuple[NeuralModel, list[np.ndarray]]:
    X, y = pairs(**options)
    return model.fit(X, y, validation=None), X


TAGGERS = {
    "lstm": lambda: fitted(sm.LSTMTagger(**SMALL)),
    "gru of vectors": lambda: fitted(sm.LSTMTagger(cell="gru", bidirectional=False, **SMALL), vectors=True),
    "transformer": lambda: fitted(sm.TransformerTagger(n_heads=2, **SMALL)),
    "causal transformer": lambda: fitted(sm.TransformerTagger(causal=True, positions="rotary", n_heads=2, **SMALL)),
}


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("name", TAGGERS)
@pytest.mark.parametrize("width", [1, 3])
def test_together_as_one_by_one(name: str, width: int) -> None:
    model, X = TAGGERS[name]()
    together = model.predict(X, n_beams=width, n_best=width)
    assert [len(found[0].item) for found in together] == list(LENGTHS)
    for x, found in zip(X, together, strict=True):
        alone = model.n_best(width, source=x, n_beams=width)
        assert [each.item.tolist() for each in found] == [each.item.tolist() for each in alone]
        assert_allclose([c.log_prob for c in found], [c.log_prob for c in alone], rtol=0, atol=1e-10)
    for size in (1, 4):
        some = model.predict(X, n_beams=width, batch_size=size)
        assert [labels.tolist() for labels in some] == [found[0].item.tolist() for found in together]


def test_sources_of_several_lengths_are_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model, X = TAGGERS["lstm"]()
    network, sizes = model._evaluation_module().network, []
    start = network.start
    monkeypatch.setattr(network, "start", lambda n, source: sizes.append(n) or start(n, source))
    model.predict(X)
    assert sizes == [len(X)]


def test_prefixes_of_unequal_sources_are_kept_to() -> None:
    model, X = TAGGERS["lstm"]()
    prefixes = [x[:1] if len(x) % 2 else x[:2] for x in X]  # among them a whole target
    for x, prefix, labels in zip(X, prefixes, model.predict(X, prefix=prefixes), strict=True):
        assert_array_equal(labels[: len(prefix)], prefix)
        assert_array_equal(labels, model.n_best(1, source=x, prefix=prefix, n_beams=1)[0].item)


def test_independent_labels_are_found_together_too() -> None:
    model, X = fitted(sm.LSTMTagger(autoregressive=False, **SMALL))
    for x, labels in zip(X, model.predict(X), strict=True):
        assert_array_equal(labels, model.predict([x])[0])
        assert len(labels) == len(x)
        others = [np.r_[labels[:-1], k] for k in range(3)]
        assert model.log_prob([x] * 3, others).argmax() == labels[-1]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("length", ["stop", "given"])
def test_encoder_decoders_read_unequal_sources_at_once(length: str) -> None:
    X, y = pairs()
    wanted: dict[str, Any] = (
        {"length": [3, 1, 2, 4, 1, 3]} if length == "given" else {"max_length": 2, "max_ratio": 1.0}
    )
    for model in (sm.LSTMSeq2Seq(length=length, **SMALL), sm.TransformerSeq2Seq(length=length, n_heads=2, **SMALL)):
        model.fit(X, y, validation=None)
        together = model.predict(X, n_beams=2, n_best=2, **wanted)
        apart = model.predict(X, n_beams=2, n_best=2, batch_size=1, **wanted)
        for one, other in zip(together, apart, strict=True):
            assert [each.item.tolist() for each in one] == [each.item.tolist() for each in other]
            assert_allclose([c.log_prob for c in one], [c.log_prob for c in other], rtol=0, atol=1e-10)
        if length == "given":
            assert [len(found[0].item) for found in together] == wanted["length"]
