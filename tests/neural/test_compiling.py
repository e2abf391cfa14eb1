"""Compiled training: the same losses as eager training, and an error where nothing can be compiled."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

import seqmodels as sm
from seqmodels.neural.compiling import _compiler

SYMBOLS = [np.random.default_rng(i).integers(0, 4, size=n) for i, n in enumerate((7, 4, 6, 5))]


def fitted(**options) -> sm.Transformer:
    model = sm.Transformer(
        d_model=8, n_layers=1, n_heads=1, context=4, batch_size=3, max_steps=8, training_precision="float32", **options
    )
    return model.fit(SYMBOLS, validation=None)


@pytest.mark.skipif(shutil.which(_compiler()) is None, reason="needs a C++ compiler")
@pytest.mark.filterwarnings(
    "ignore:`torch.jit:DeprecationWarning"
)  # torch's own, about itself, on importing its compiler
def test_compiled_training_has_the_losses_of_eager_training() -> None:
    eager, compiled = fitted(dropout=0.0), fitted(dropout=0.0, compile=True)
    np.testing.assert_allclose(compiled.history_["log_prob"], eager.history_["log_prob"], atol=1e-4)
    np.testing.assert_allclose(compiled.log_prob(SYMBOLS), eager.log_prob(SYMBOLS), atol=1e-3)


def test_without_a_compiler_the_way_out_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(ValueError, match=r"no-such-compiler.*CXX.*compile=False"):
        fitted(compile=True)
    assert fitted(compile=False).history_ is not None


def test_a_mode_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="compile is 'fast'; pass one of False, True, 'reduce-overhead'"):
        fitted(compile="fast")
