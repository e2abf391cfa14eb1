"""Context mixing as a compressor: one compiled loop codes and decodes."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import seqmodels as sm
from seqmodels.common.range_coder import RangeDecoder, RangeEncoder
from seqmodels.counts.context_mixing import arithmetic_coding
from seqmodels.counts.context_mixing.untrained import untrained_bytes
from seqmodels.encodings.examples import Example
from seqmodels.generation import ToDecode

RNG = np.random.default_rng(0)
ITEMS = [(np.cumsum(RNG.random(n) < 0.3) + RNG.integers(2)) % 5 for n in (300, 1, 40, 7)]


@pytest.mark.parametrize("adaptive", [True, False])
@pytest.mark.parametrize("length", ["stop", "given"])
def test_sequences_are_decoded_from_as_many_bits_as_they_are_worth(
    adaptive: bool, length: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Most sequences then come in several parts, of which one begins with a 0.
    monkeypatch.setattr(arithmetic_coding, "SYMBOLS_AT_ONCE", 7)
    model = sm.ContextMixing(adaptive, length=length).fit(ITEMS)
    coder, encoder = model._symbol_coder(), RangeEncoder()
    before = model.log_prob(ITEMS)
    coder.encode([Example(item) for item in ITEMS], encoder)
    code = encoder.finish()
    assert len(code) - 1.5 <= -before.sum() / np.log(256) <= len(code) + 1
    known = [ToDecode(None if length == "stop" else len(item)) for item in ITEMS]
    for item, values in zip(ITEMS, coder.decode(known, RangeDecoder(code)), strict=True):
        assert_array_equal(values, item)
    assert_array_equal(model.log_prob(ITEMS), before)  # nothing of it stays with the model


def test_sources_are_contexts() -> None:
    X, y = ITEMS[:3], [item[::-1] for item in ITEMS[:3]]
    model = sm.ContextMixing().fit(X, y)
    coder, encoder = model._symbol_coder(), RangeEncoder()
    coder.encode([Example(values, source) for source, values in zip(X, y, strict=True)], encoder)
    code = encoder.finish()
    assert abs(len(code) + model.log_prob(X, y).sum() / np.log(256)) < 1.5
    for item, values in zip(y, coder.decode([ToDecode(None, source) for source in X], RangeDecoder(code)), strict=True):
        assert_array_equal(values, item)


def test_data_that_end_too_early_are_refused() -> None:
    model = sm.ContextMixing().fit(ITEMS)
    encoder = RangeEncoder()
    model._symbol_coder().encode([Example(ITEMS[0])], encoder)
    with pytest.raises(ValueError, match="go on behind the end"):
        model._symbol_coder().decode([ToDecode(10_000)], RangeDecoder(encoder.finish()[:3]))


def test_what_has_read_nothing_gives_what_fit_is_told() -> None:
    """Fitting reports the code length of what it reads before it has learned it, in tables of the same sizes."""
    text = "to be or not to be, that is the question. " * 5
    fitted = sm.ContextMixing(length="given", encoding=sm.Bytes()).fit([text])
    model = untrained_bytes(len(text))
    assert model.n_parameters_ == 0
    assert model.score([text]) == pytest.approx(float(fitted.history_["log_prob"].iloc[0]), abs=1e-12)
