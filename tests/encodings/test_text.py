from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqmodels.encodings import BPE, Bytes, Characters, Encoding
from seqmodels.sequences import Sequences

TRAINING = Sequences(["the cat sat on the mat, the naïve cat — and the hat\n" * 5, "eins zwei drei\r\n  vier"])
ENCODINGS: dict[str, Encoding] = {
    "bytes": Bytes().fit(TRAINING),
    "characters": Characters().fit(TRAINING),
    "bpe": BPE(n_symbols=290).fit(TRAINING),
    "bpe without merges": BPE(n_symbols=256).fit(TRAINING),
}
TEXTS = st.one_of(
    st.text(min_size=1),
    st.text("the cat\n  naï—é😀", min_size=1, max_size=40),
    st.text("\u0300\u200d\x00\x85 ", min_size=1),
)


@pytest.fixture(params=ENCODINGS)
def encoding(request: pytest.FixtureRequest) -> Encoding:
    return ENCODINGS[request.param]


@settings(derandomize=True, database=None, deadline=None, max_examples=150)
@given(text=TEXTS)
def test_any_text_comes_back(text: str) -> None:
    for name, encoding in ENCODINGS.items():
        steps = encoding.encode(text)
        assert encoding.decode(steps) == text, name
        assert steps.dtype == np.int64
        assert 0 <= steps.min() <= steps.max() < encoding.size


@settings(derandomize=True, database=None, deadline=None, max_examples=100)
@given(text=TEXTS)
def test_steps_complete_the_texts_bytes_in_order(text: str) -> None:
    raw = text.encode()
    for name, encoding in ENCODINGS.items():
        steps = encoding.encode(text)
        ends = encoding.last_unit(steps)
        assert (np.diff(ends, prepend=-1) >= 1).all(), name
        assert ends[-1] == len(raw) - 1, name
        for i in range(len(steps)):
            head = raw[: ends[i] + 1].decode(errors="replace")
            assert encoding.decode(steps[: i + 1]) == head, name


def test_text_has_no_scale(encoding: Encoding) -> None:
    assert encoding.log_det("né") == 0.0
    assert [a.tolist() for a in encoding.affine()] == [[0.0], [1.0]]
    encoding.check(0, "любой")


def test_state_is_all_there_is(encoding: Encoding) -> None:
    restored = encoding.clone().restore(json.loads(json.dumps(encoding.state())))
    for text in ("the cat", "né 😀"):
        np.testing.assert_array_equal(restored.encode(text), encoding.encode(text))
        np.testing.assert_array_equal(
            restored.last_unit(restored.encode(text)), encoding.last_unit(encoding.encode(text))
        )
    assert restored.size == encoding.size
    assert not hasattr(encoding.clone(), "size")


def test_bytes_have_one_spelling() -> None:
    assert ENCODINGS["bytes"].size == 256
    assert ENCODINGS["bytes"].exactness == "exact"
    assert ENCODINGS["bytes"].encode("né").tolist() == [110, 195, 169]


def test_characters_escape_the_unseen_in_bytes() -> None:
    encoding = Characters().fit(Sequences(["bé", "ab"]))
    assert encoding.size == 3 + 256
    assert encoding.exactness == "bound"
    assert encoding.encode("abéß").tolist() == [0, 1, 2, 3 + 0xC3, 3 + 0x9F]
    assert encoding.last_unit(encoding.encode("aéß")).tolist() == [0, 2, 3, 4]


def test_bpe_merges_what_is_frequent() -> None:
    few, many = ENCODINGS["bpe without merges"], ENCODINGS["bpe"]
    assert (few.size, many.size) == (256, 290)
    assert many.exactness == "bound"
    text = "the cat sat on the mat"
    assert len(many.encode(text)) < len(few.encode(text)) == len(text)


def test_pieces_and_the_merges_that_made_them_are_shown() -> None:
    encoding = BPE(n_symbols=260).fit(Sequences(["low lower lowest"]))
    assert encoding.merges() == [(b"l", b"o"), (b"lo", b"w"), (b" ", b"low"), (b" low", b"e")]
    assert encoding.spelling()[256:] == [b"lo", b"low", b" low", b" lowe"]
    assert encoding.pieces("low lows") == ["low", " low", "s"]
    assert BPE(n_symbols=256).fit(TRAINING).pieces("né") == ["n", "·", "é"]
    assert Characters().fit(Sequences(["né"])).pieces("né€") == ["n", "é", "·", "·", "€"]


def test_bpe_needs_a_piece_for_every_byte() -> None:
    with pytest.raises(ValueError, match="n_symbols is 255; every byte needs a piece"):
        BPE(n_symbols=255).fit(TRAINING)


def test_bpe_learns_the_same_pieces_again() -> None:
    assert BPE(n_symbols=290).fit(TRAINING).state() == ENCODINGS["bpe"].state()


def test_training_texts_small_for_the_vocabulary_give_a_smaller_one() -> None:
    small = BPE(n_symbols=4000).fit(Sequences(["abc"]))
    assert 256 <= small.size < 300
    assert small.decode(small.encode("né")) == "né"


def test_decoding_bytes_that_are_no_text_marks_them(encoding: Encoding) -> None:
    assert encoding.decode(encoding.encode("😀")[:1]) == "\ufffd"


@pytest.mark.parametrize("name", ENCODINGS)
def test_texts_are_encoded_together_as_each_is(name: str) -> None:
    encoding, texts = ENCODINGS[name], ["the cat", "n\u00efve \u20ac", "t"]
    together = encoding.encode_all(texts)
    assert [steps.tolist() for steps in together] == [encoding.encode(text).tolist() for text in texts]
    assert not encoding.has_log_det
