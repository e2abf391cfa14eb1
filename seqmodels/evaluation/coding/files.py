"""``compress_file`` and ``decompress_file``: compress any bytes without a model, or text with a fitted one."""

from __future__ import annotations

import hashlib

import numpy as np

from seqmodels.common.parameters import check_options
from seqmodels.common.range_coder import RangeDecoder, RangeEncoder
from seqmodels.encodings.examples import Example
from seqmodels.evaluation.coding.arithmetic import arithmetic_here
from seqmodels.evaluation.coding.compression import check_arithmetic, compress, decompress
from seqmodels.evaluation.coding.container import N_DIGEST, Container, first_of
from seqmodels.generation import SymbolCoder, ToDecode
from seqmodels.model import SequenceModel
from seqmodels.sequences.items import in_words

NO_MODEL = bytes(N_DIGEST)


def compress_file(content: bytes, model: SequenceModel | None = None) -> bytes:
    """Compress the content of a file to bytes from which ``decompress_file`` restores it.

    Args:
        content: any bytes; with a model, UTF-8 text.
        model: a fitted model of text. None means ``ContextMixing`` over bytes that starts untrained and learns from
            what it codes, so that no model is needed to decode. Its tables grow with the content, to at most 16 MiB for
            each of 20 contexts and as much again.

    Raises:
        ValueError: ``content`` is not bytes; or with a model, it is of other data than text, the content is empty or no
            UTF-8 text, or the model gives a part of it probability zero.

    >>> data = compress_file(b"to be or not to be, that is the question" * 9)
    >>> len(data) < 120, decompress_file(data)[:18]
    (True, b'to be or not to be')
    """
    if not isinstance(content, bytes | bytearray | memoryview):
        raise ValueError(f"content is {in_words(content)}; pass the bytes of a file: Path(...).read_bytes()")
    content = bytes(content)
    if model is not None:
        return compress(model, [_text_of(content, model)])
    encoder = RangeEncoder()
    if content:
        values = np.frombuffer(content, dtype=np.uint8).astype(np.int64)
        _untrained(len(content)).encode([Example(values)], encoder)
    return Container(
        "context mixing",
        arithmetic_here(),
        NO_MODEL,
        first_of(hashlib.sha256(content).digest()),
        1,
        (len(content),),
        encoder.finish(),
    ).to_bytes()


def decompress_file(data: bytes, model: SequenceModel | None = None, *, any_arithmetic: bool = False) -> bytes:
    """Restore the content of a file from which ``compress_file`` made ``data``.

    Args:
        data: the bytes that ``compress_file`` returned.
        model: the model that coded the content; None if it was compressed without one.
        any_arithmetic: whether to try it even if versions, platform or processor differ from those of the coder. A
            prediction may then differ in its last bit; the check of the decoded content finds that.

    Raises:
        ValueError: the data are damaged or something else; they were coded by another model or with another arithmetic;
            a model is missing for data that a model coded, or one is given for data that were compressed without.
    """
    check_options(decompress_file, any_arithmetic=any_arithmetic)
    container = Container.of_bytes(data)
    if container.coder == "model":
        if model is None:
            raise ValueError("the data were coded by a model; pass the one that compressed them")
        items = decompress(data, model, any_arithmetic=any_arithmetic)
        if len(items) != 1 or not isinstance(items[0], str):
            raise ValueError("the data are sequences that compress coded, and not a file; pass them to decompress")
        return items[0].encode()
    if model is not None:
        raise ValueError("the data were compressed without a model; leave the model out")
    check_arithmetic(container, any_arithmetic)
    (n_bytes,) = container.lengths or (0,)
    content = b""
    if n_bytes:
        (values,) = _untrained(n_bytes).decode([ToDecode(n_bytes)], RangeDecoder(container.code))
        content = values.astype(np.uint8).tobytes()
    if first_of(hashlib.sha256(content).digest()) != container.content:
        raise ValueError("what was decoded is not what was coded: a prediction differs here in its last bits")
    return content


def _untrained(n_steps: int) -> SymbolCoder:
    from seqmodels.counts.context_mixing.untrained import untrained_bytes  # here, because numba is slow to load

    return untrained_bytes(n_steps)._symbol_coder()


def _text_of(content: bytes, model: SequenceModel) -> str:
    if not isinstance(model, SequenceModel):
        raise ValueError(f"model is {in_words(model)}; pass a fitted SequenceModel of text, or None")
    if model._setting().encoding.reads != "text":
        raise ValueError(
            f"the model is of {model.encoding_.reads}, but a file is compressed as text; pass the sequences to "
            "seqmodels.compress, or leave the model out"
        )
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise ValueError(
            f"the file is no UTF-8 text (at byte {error.start}), and the model is of text; leave the model out, which "
            "compresses any bytes"
        ) from None
    if not text:
        raise ValueError("the file is empty, and a model has no probability of an empty text; leave the model out")
    return text
