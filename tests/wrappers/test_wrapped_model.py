"""Models around a model that reads inputs: which give it some, and which refuse it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import seqmodels as sm

SMALL: dict[str, Any] = {"d_model": 8, "max_steps": 3, "batch_size": 4}


@pytest.mark.parametrize(
    ("wrap", "model"),
    [
        (sm.Dynamic, sm.LSTM(**SMALL, inputs=True)),
        (sm.OnlineEM, sm.HMM(2, input_effects=sm.hmm.ChainInputEffects(emissions=["heat"]), max_iter=3)),
        (sm.LatentOffset, sm.HMM(2, input_effects=sm.hmm.ChainInputEffects(transitions=True), max_iter=3)),
        (sm.LatentOffset, sm.Mixture([sm.GRU(**SMALL), sm.GRU(**SMALL, inputs=True)])),
    ],
    ids=["dynamic", "online-em", "latent-offset", "mixture"],
)
def test_what_gives_no_inputs_says_so(wrap: Callable[..., sm.SequenceModel], model: sm.SequenceModel) -> None:
    rng = np.random.default_rng(0)
    X = sm.Sequences(
        [rng.normal(size=(9, 1)) for _ in range(6)], inputs=list(rng.normal(size=(6, 9))), input_names=["heat"]
    )
    said = rf"{wrap.__name__} gives its model no inputs, but .* reads some; let it read none, or take it by itself, in"
    with pytest.raises(ValueError, match=said):
        wrap(model).fit(X)
    fitted = model.clone().fit(X)
    with pytest.raises(ValueError, match=said):
        wrap.from_fitted(fitted)  # type: ignore[attr-defined]
