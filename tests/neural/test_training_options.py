"""Compiled training: traced whole, once for all shapes, to the losses of eager training; errors without a compiler."""

from __future__ import annotations

import functools
import shutil

import numpy as np
import pytest
import torch

import seqmodels as sm
from seqmodels.neural.training_options import _compiler

SYMBOLS = [np.random.default_rng(i).integers(0, 4, size=n) for i, n in enumerate((7, 4, 6, 5))]


def fitted(**options) -> sm.Transformer:
    model = sm.Transformer(d_model=8, n_layers=1, n_heads=2, context=4, batch_size=3, max_steps=6)
    return model.set_params(**options).fit(SYMBOLS, validation=None)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which(_compiler()) is None, reason="needs a C++ compiler")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, when it loads its compiler and reads our code
@pytest.mark.filterwarnings("ignore:Guards may run slower on Python 3.13.0")  # torch's own, of that Python alone
def test_compiled_training_has_the_losses_of_eager_training(monkeypatch: pytest.MonkeyPatch) -> None:
    # What is traced is run as it is: to write and build C++ for it takes a minute.
    whole = functools.partial(torch.compile, backend="eager", fullgraph=True)
    monkeypatch.setattr(torch, "compile", whole)
    eager, compiled = (
        fitted(dropout=0.0, training__precision="float32", training__compile=how) for how in (False, True)
    )
    np.testing.assert_allclose(compiled.history_["log_prob"], eager.history_["log_prob"], atol=1e-4)
    np.testing.assert_allclose(compiled.log_prob(SYMBOLS), eager.log_prob(SYMBOLS), atol=1e-3)


def test_without_a_compiler_the_way_out_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(ValueError, match=r"no-such-compiler.*CXX.*compile=False"):
        fitted(training__compile=True)
    fitted(training__compile=False)


def test_a_mode_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="compile is 'fast'; pass one of False, True, 'reduce-overhead'"):
        fitted(training__compile="fast")
