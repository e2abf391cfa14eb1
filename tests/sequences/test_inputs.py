"""Inputs of each step go with sequences wherever these go."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest

from seqmodels import Sequences

LENGTHS = (5, 3, 4)


def with_inputs(**options: Any) -> Sequences:
    rng = np.random.default_rng(0)
    items = [rng.normal(size=(n, 1)) for n in LENGTHS]
    return Sequences(items, inputs=[rng.normal(size=(n, 2)) for n in LENGTHS], input_names=["a", "b"], **options)


def same(left: list[np.ndarray] | None, right: list[np.ndarray]) -> bool:
    return left is not None and all(np.array_equal(*pair) for pair in zip(left, right, strict=True))


def test_selected_cut_joined_and_pickled() -> None:
    x = with_inputs()
    assert x.inputs is not None
    assert x.input_names == ("a", "b")
    assert same(x[1:].inputs, x.inputs[1:])
    assert same(x.take([2, 0]).inputs, [x.inputs[2], x.inputs[0]])
    assert same(x.segments([(0, 1, 4), (2, 0, 2)]).inputs, [x.inputs[0][1:4], x.inputs[2][:2]])
    assert same(x.chunks(2).inputs, [u[t : t + 2] for u in x.inputs for t in range(0, len(u), 2)])
    train, test = x.split(0.4, random_state=1)
    assert sorted(len(u) for part in (train, test) for u in part.inputs or []) == sorted(LENGTHS)
    assert same(Sequences.joined([x, x[:1]]).inputs, [*x.inputs, x.inputs[0]])
    assert same(pickle.loads(pickle.dumps(x)).inputs, x.inputs)
    assert same(x.with_metadata(pd.DataFrame({"k": range(3)})).inputs, x.inputs)
    assert "inputs a, b" in repr(x)
    assert "inputs a, b" in x.describe()


def test_the_past_has_inputs_too() -> None:
    x = with_inputs()
    assert x.inputs is not None
    _, tail = x[:1].split(0.4, past=2)
    assert tail.past_inputs is not None
    assert same(tail.inputs, [x.inputs[0][3:]])
    assert np.array_equal(np.asarray(tail.past_inputs[0]), x.inputs[0][1:3])
    assert same(tail.inputs_after_past(), [x.inputs[0][1:]])
    assert tail.without_past().past_inputs is None
    assert same(tail.without_past().inputs, [x.inputs[0][3:]])
    nearer = tail.with_past_of(1)
    assert nearer.past_inputs is not None
    assert np.array_equal(np.asarray(nearer.past_inputs[0]), x.inputs[0][2:3])
    with pytest.raises(ValueError, match="past_inputs"):
        Sequences([np.zeros((2, 1))], past=[np.zeros((1, 1))], inputs=[[1.0, 2.0]])


def test_a_frame_and_back() -> None:
    x = with_inputs(by="who", names=["u", "v", "w"], features=["y"])
    frame = x.to_frame()
    assert list(frame) == ["who", "y", "a", "b"]
    back = Sequences.from_frame(frame, by="who", inputs=["a", "b"])
    assert back.features == ("y",)
    assert x.inputs is not None
    assert same(back.inputs, x.inputs)
    swapped = Sequences.from_frame(frame, by="who", columns=["y"], inputs=["b"])
    assert swapped.input_names == ("b",)
    assert same(swapped.inputs, [u[:, 1:] for u in x.inputs])
    with pytest.raises(ValueError, match="holds no numbers"):
        Sequences.from_frame(frame.assign(day="monday"), by="who", columns=["y"], inputs=["day"])
    with pytest.raises(ValueError, match="no column 'c'"):
        Sequences.from_frame(frame, by="who", inputs=["c"])
    holiday = Sequences.from_frame(pd.DataFrame({"y": [1.5, 2.5], "holiday": [True, False]}), inputs=["holiday"])
    assert same(holiday.inputs, [np.array([[1.0], [0.0]])])


def test_names() -> None:
    frames = [pd.DataFrame({"hot": [1.0, 2.0]})]
    assert Sequences([np.zeros((2, 1))], inputs=frames).input_names == ("hot",)
    assert Sequences([np.zeros((2, 1))], inputs=[np.zeros((2, 2))]).input_names == ("u0", "u1")
    assert Sequences([np.zeros((2, 1))]).with_inputs([[1.0, 2.0]], ["hot"]).input_names == ("hot",)
    with pytest.raises(ValueError, match="different inputs: a, b; u0"):
        Sequences.joined([with_inputs(), Sequences([np.zeros((1, 1))], inputs=[[1.0]])])
    assert Sequences.joined([with_inputs(), Sequences([np.zeros((1, 1))])]).inputs is None


def test_lagged_over_the_past() -> None:
    x = Sequences([np.zeros((5, 1))], inputs=[np.arange(5.0)])
    tail = x.segments([(0, 2, 5)], past=1).with_lagged_inputs(2)
    assert tail.inputs is not None
    assert tail.inputs[0].ravel().tolist() == [1.0, 1.0, 2.0]
    with pytest.raises(ValueError, match="no inputs"):
        Sequences([np.zeros((1, 1))]).with_lagged_inputs()
    with pytest.raises(ValueError, match="0 or more"):
        x.with_lagged_inputs(-1)


@pytest.mark.parametrize(
    ("inputs", "match"),
    [
        ([[0.0, np.nan]], "step 1, input 0; inputs are given and not modelled"),
        ([[0.0]], r"shape \(1, 1\); pass \(T, U\), a row for each of its 2 steps"),
        ([["a", "b"]], "are not numbers"),
        ([np.array([0, 1j])], "the inputs of sequence 0 are complex numbers; pass their real and imaginary parts"),
        ([pd.DataFrame({"u": [0, 1j]})], "the inputs of sequence 0 are complex numbers"),
        ([[0.0, 1.0], [1.0, 2.0]], "inputs of 2 sequences but 1"),
        (np.zeros((1, 2)), "pass a list"),
    ],
)
def test_what_is_refused(inputs: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        Sequences([np.zeros((2, 1))], inputs=inputs)


def test_texts_have_none_and_widths_agree() -> None:
    with pytest.raises(ValueError, match="texts have no inputs"):
        Sequences(["ab"], inputs=[[0.0, 1.0]])
    with pytest.raises(ValueError, match="sequence 1 has 2 inputs but there are 1"):
        Sequences([np.zeros((1, 1))] * 2, inputs=[np.zeros((1, 1)), np.zeros((1, 2))])
    with pytest.raises(ValueError, match="no inputs; pass inputs too"):
        Sequences([np.zeros((1, 1))], input_names=["a"])


def test_what_a_past_would_have_is_refused_where_there_is_none() -> None:
    item, u = np.zeros((2, 1)), np.ones((3, 1))
    for past in (None, [None, np.zeros((3, 1))]):
        with pytest.raises(ValueError, match="sequence 0 has past_inputs but no past that they could belong to"):
            Sequences([item, item], inputs=[[1, 2]] * 2, past=past, past_inputs=[u, None if past is None else u])
    times, past = [[5.0, 6.0]] * 2, [None, np.zeros((3, 1))]
    with pytest.raises(ValueError, match="sequence 0 has past_times but no past"):
        Sequences([item, item], times=times, past=past, past_times=[[1.0, 2.0, 3.0]] * 2)
    assert Sequences([item], inputs=[[1, 2]], past_inputs=[None]).past_inputs is None
