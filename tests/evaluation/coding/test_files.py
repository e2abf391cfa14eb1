"""``compress_file``: any bytes, with a model of text or without one."""

from __future__ import annotations

import lzma

import numpy as np
import pytest

import seqmodels as sm

TEXT = b"to be or not to be, that is the question:\r\nwhether 'tis nobler in the mind to suffer\r\n" * 3


@pytest.mark.parametrize("content", [b"", b"\0", bytes(range(256)), TEXT, np.random.default_rng(0).bytes(5000)])
def test_any_bytes_come_back_without_a_model(content: bytes) -> None:
    data = sm.evaluation.compress_file(content)
    assert sm.evaluation.decompress_file(data) == content
    assert len(data) <= 1.01 * len(content) + 64


def test_it_is_shorter_than_a_general_compressor() -> None:
    assert len(sm.evaluation.compress_file(TEXT)) < len(lzma.compress(TEXT))


def test_a_model_of_text_codes_a_file() -> None:
    model = sm.NGram(3).fit([TEXT.decode()])
    data = sm.evaluation.compress_file(TEXT, model)
    assert sm.evaluation.decompress_file(data, model) == TEXT
    assert sm.decompress(data, model) == [TEXT.decode()]
    with pytest.raises(ValueError, match="coded by a model; pass the one"):
        sm.evaluation.decompress_file(data)
    with pytest.raises(ValueError, match="without a model; leave the model out"):
        sm.evaluation.decompress_file(sm.evaluation.compress_file(TEXT), model)
    with pytest.raises(ValueError, match=r"no UTF-8 text \(at byte 0\)"):
        sm.evaluation.compress_file(b"\xff\xfe", model)
    with pytest.raises(ValueError, match="the file is empty"):
        sm.evaluation.compress_file(b"", model)
    with pytest.raises(ValueError, match="and not a file; pass them to decompress"):
        sm.evaluation.decompress_file(sm.compress(model, ["a", "b"]), model)
    with pytest.raises(ValueError, match="the model is of symbols"):
        sm.evaluation.compress_file(TEXT, sm.NGram(1).fit([[0, 1]]))


def test_damaged_data_are_refused() -> None:
    data = sm.evaluation.compress_file(TEXT)
    with pytest.raises(ValueError, match="damaged or cut off"):
        sm.evaluation.decompress_file(data[:-9])
