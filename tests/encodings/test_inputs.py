from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from seqmodels import Sequences
from seqmodels.encodings.inputs import InputScaling

RAW = np.array([[1.0, 10.0], [3.0, 30.0], [5.0, 20.0]])
X = Sequences([np.zeros((3, 1))], inputs=[RAW], input_names=["a", "b"])


def test_standardised_by_name() -> None:
    scaling = InputScaling.learn(X, ["b", "a"])
    (encoded,) = scaling.encode(X)
    assert np.allclose(encoded.mean(0), 0)
    assert np.allclose(encoded.std(0), 1)
    assert np.allclose(encoded[:, 0], (RAW[:, 1] - 20.0) / RAW[:, 1].std())
    for given in (RAW[:, ::-1], {"a": RAW[:, 0], "b": RAW[:, 1]}, pd.DataFrame(RAW, columns=["a", "b"])):
        assert np.array_equal(scaling.encode_steps(given, 3), encoded)
    again = InputScaling.of_state(scaling.state())
    assert again.names == ("b", "a")
    assert np.array_equal(again.encode(X)[0], encoded)


def test_refused() -> None:
    with pytest.raises(ValueError, match=r"'a' is 0\.1 at every step"):
        InputScaling.learn(Sequences([np.zeros((7, 1))], inputs=[[0.1] * 7], input_names=["a"]), ["a"])
    with pytest.raises(ValueError, match="have the inputs a, b"):
        InputScaling.learn(X, ["c"])
    scaling = InputScaling.learn(X, ["a", "b"])
    with pytest.raises(ValueError, match="have no inputs"):
        scaling.check(Sequences([np.zeros((3, 1))]))
    bad: list[tuple[Any, str]] = [
        (None, "pass inputs="),
        ({"a": [1.0]}, "no 'b'"),
        (RAW[:2], r"pass \(3, 2\)"),
        (RAW[:, 0], r"pass \(3, 2\)"),
        (np.where(RAW == 30.0, np.nan, RAW), "'b' is nan at step 1"),
        ("ab", "no numbers"),
    ]
    for inputs, match in bad:
        with pytest.raises(ValueError, match=match):
            scaling.encode_steps(inputs, 3)
    for state in ({"scale": np.zeros(2)}, {"names": ["a", "a"]}, {"mean": np.zeros(3)}):
        with pytest.raises(ValueError, match=r"scales|different names|mean and a scale"):
            InputScaling.of_state({**scaling.state(), **state})
