"""Steps that are read one by one are encoded, and refused, as sequences are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import seqmodels as sm
from seqmodels.generation import step_reader
from seqmodels.generation.step_reader import StepReader

FEW = {"max_iter": 1, "n_init": 1}
rng = np.random.default_rng(0)
WHOLE = [rng.standard_normal((20, 2)) * 3.0 + 1.0 for _ in range(2)]
HOLES = [np.where(rng.random(x.shape) < 0.3, np.nan, x) for x in WHOLE]


def vectors(**options: Any) -> sm.HMM:
    return sm.HMM(2, encoding=sm.Standardize(), **FEW, **options).fit(HOLES)


@pytest.mark.parametrize(
    "x",
    [
        np.array([1.5, -2.0]),
        np.array([1.5, np.nan]),
        np.array([1, 2]),
        np.array([1.5, -2.0], np.float32),
        np.arange(4.0)[::2],
        [0.5, 1],
        np.ma.masked_array([1.5, 3.0], [True, False]),
    ],
)
def test_a_frame_is_encoded_as_in_a_sequence(x: Any) -> None:
    model = vectors()
    steps, log_dets = StepReader(model)(x)
    frame = np.ma.filled(np.ma.asarray(x).astype(float), np.nan)[None]
    np.testing.assert_array_equal(steps, model.encoding_.encode(frame))
    assert log_dets == model.encoding_.log_det(frame).tolist()


@pytest.mark.parametrize(
    ("x", "said"),
    [
        (np.array([1.0, np.inf]), "infinite value at frame 0"),
        (np.array([1.0]), "1 features but the model was fitted on 2"),
        (np.array([1.0 + 1j, 2.0]), "complex numbers"),
        (np.array([["a", "b"]], object), "the model was fitted on vectors|has shape"),
        (None, "is None"),
    ],
)
def test_what_cannot_be_read_is_refused_in_the_words_of_a_sequence(x: Any, said: str) -> None:
    reader = StepReader(vectors())
    reader(np.array([1.0, 2.0]))
    with pytest.raises(ValueError, match=said):
        reader(x)


def test_a_missing_value_is_refused_where_none_can_be_summed_out() -> None:
    model = sm.HMM(2, observation=sm.observations.VonMises(), **FEW).fit([rng.uniform(-3, 3, (30, 1))])
    model._reads_missing = lambda: False
    with pytest.raises(ValueError, match="sequence 0 of X has a NaN at frame 0"):
        StepReader(model)(np.array([np.nan]))


@pytest.mark.parametrize("x", [3, np.int64(3), np.uint8(3), np.array(3)])
def test_integers_of_every_kind_are_the_same_symbol(x: Any) -> None:
    model = sm.HMM(2, **FEW).fit([rng.integers(0, 5, 40)])
    reader = StepReader(model)
    for _ in range(2):
        steps, log_dets = reader(x)
        assert steps.tolist() == [3]
        assert steps.dtype == np.int64
        assert log_dets == [0.0]
        with pytest.raises(ValueError, match="symbol 9 at position 0"):
            reader(9)


def test_pieces_of_text_are_looked_up_and_only_so_many_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_reader, "MOST_KNOWN", 2)
    reader = StepReader(sm.NGram(2).fit(["a text of letters"]))
    for piece in ("a", "le", "t", "é", "a", "t"):
        assert reader(piece)[0].tolist() == [*piece.encode()]
    assert [*reader._known] == ["a", "le"]


def test_a_step_that_is_plain_takes_none_of_a_sequences_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    frames, symbols = vectors().stream(), sm.HMM(2, **FEW).fit([rng.integers(0, 5, 40)]).stream()
    symbols.update(1)
    monkeypatch.setattr(step_reader, "encode_prefix", None)
    assert np.isfinite(frames.update(np.array([1.0, 2.0])))
    assert np.isfinite(symbols.update(1))
    with pytest.raises(TypeError):
        symbols.update(2)


def test_a_piece_of_ascii_takes_none_of_a_sequences_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = sm.NGram(2).fit(["a text of letters"]).stream()
    stream.update("a")
    monkeypatch.setattr(step_reader, "encode_prefix", None)
    assert np.isfinite(stream.update(" text"))
    with pytest.raises(TypeError):
        stream.update("é")
