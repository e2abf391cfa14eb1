"""The bar: how far each model is, and that nothing of it stays in the models."""

from __future__ import annotations

import numpy as np
import pytest

import seqmodels as sm
from seqmodels.evaluation.progress import Progress

X = [np.tile([0, 1, 2], 10)] * 4


class Seen(Progress):
    """Keeps what a bar would show."""

    def __init__(self, total: float) -> None:
        super().__init__(total, shown=False)
        self.places: list[tuple[str, float]] = []

    def at(self, name: str, share: float, fraction: float) -> None:
        super().at(name, share, fraction)
        self.places.append((name, fraction))


def test_networks_tell_how_far_they_are_and_seeds_add_up():
    bar, model = Seen(3.0), sm.LSTM(d_model=8, max_steps=10)
    with bar.of({"lstm": model, "hmm": sm.HMM(2)}, {"lstm": 2.0, "hmm": 1.0}, seeds=2) as watch:
        model.fit(X)
        half = [fraction for _, fraction in bar.places]
        model.clone().set_params(random_state=1).fit(X)
        watch.done()
        watch.done()
    assert half == sorted(half)
    assert half[-1] == pytest.approx(0.5)
    lstm = [fraction for name, fraction in bar.places if name == "lstm"]
    assert lstm == sorted(lstm)
    assert lstm[-1] == pytest.approx(1.0)
    assert bar.places[-1] == ("hmm", 0.0)
    assert model.callbacks == ()


def test_models_are_left_as_they_were_even_when_interrupted():
    bar, model = Seen(1.0), sm.LSTM(d_model=8, max_seconds=1.0, callbacks=[print])

    def watched() -> None:
        with bar.of({"lstm": model}, {"lstm": 1.0}, seeds=1):
            assert len(model.callbacks) == 2
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        watched()
    assert model.callbacks == [print]
