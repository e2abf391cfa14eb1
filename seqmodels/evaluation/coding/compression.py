"""``compress`` and ``decompress``: a coder that turns sequences into bytes by a model's probabilities, and back.

A log-probability says how many bits a coder would need, ``-log2 p``, and this is the coder. If the code is longer, or
is not decoded, then the figure was no log-probability.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from seqmodels.common.parameters import check_options
from seqmodels.common.range_coder import RangeDecoder, RangeEncoder
from seqmodels.encodings import OpenSymbols
from seqmodels.encodings.precision import computing_in
from seqmodels.encodings.text import Text
from seqmodels.evaluation.coding import new_symbols
from seqmodels.evaluation.coding.arithmetic import arithmetic_here
from seqmodels.evaluation.coding.container import Container, first_of
from seqmodels.evaluation.coding.fingerprint import digest_of_items, digest_of_model
from seqmodels.generation import ImpossibleSymbolError, SymbolCoder, ToDecode
from seqmodels.inference.chains.threads import one_thread
from seqmodels.model import SequenceModel
from seqmodels.model.fitting import checked_data
from seqmodels.sequences import Item, as_sequences
from seqmodels.sequences.items import in_words, text_of


def compress(model: SequenceModel, X: Any, y: Any = None) -> bytes:
    """Compress sequences of symbols or text to bytes from which ``decompress`` restores them.

    The sequences are ``X``, or ``y`` if the model is of p(y | x). A range coder codes one step after the other by the
    model's predictions, so that they take ``-log2 p`` bits, with p as in ``model.log_prob``, and about 45 bytes for a
    head that says how they were coded. If ends are no events, the lengths are in the head. It computes in float64, on
    one thread of the CPU.

    The model is not in the data; to decode them, one needs its file.

    Args:
        model: a fitted model of symbols or text.
        X: the sequences, or the sources if the model is of p(y | x).
        y: targets of the sources; None if the model is of p(x).

    Raises:
        NotFittedError: the model is not fitted.
        ValueError: the model is of vectors or of p(x | inputs), or cannot predict step by step; it cannot read the
            sequences, or they have a past (earlier steps kept as context); it gives a symbol probability zero (the
            message names sequence and position); or there are more than 1,024 sequences or 2^20 steps for each byte of
            the result.

    >>> from seqmodels import NGram
    >>> model = NGram(2).fit(["abracadabra " * 20])
    >>> data = compress(model, ["abracadabra abracadabra"])
    >>> decompress(data, model)
    ['abracadabra abracadabra']
    """
    _check(model)
    data = checked_data(model, X, y)
    data.refuse_past("compress")
    examples = model._setting().examples(data)
    items = [text_of(item) if model.encoding_.reads == "text" else np.asarray(item) for item in data.scored.items]
    _check_lossless(model, items, [np.asarray(example.values) for example in examples])
    encoder = RangeEncoder()
    with one_thread():
        try:
            _coder(model).encode(examples, encoder)
        except ImpossibleSymbolError as error:
            raise ValueError(_in_words(model, error)) from None
    if isinstance(model.encoding_, OpenSymbols):
        for item in items:
            new_symbols.encode(model.encoding_, np.asarray(item), encoder)
    return Container(
        "model",
        arithmetic_here(),
        first_of(digest_of_model(model)),
        first_of(digest_of_items(items)),
        len(examples),
        None if model.length_ == "stop" else tuple(len(example.values) for example in examples),
        encoder.finish(),
    ).to_bytes()


def decompress(data: bytes, model: SequenceModel, X: Any = None, *, any_arithmetic: bool = False) -> list[Item]:
    """Restore the sequences from which ``compress`` made ``data``, exactly; integers are returned as int64.

    Args:
        data: the bytes that ``compress`` returned.
        model: the model that coded them, or the same model loaded from its file.
        X: the sources, if the model is of p(y | x); None if it is of p(x).
        any_arithmetic: whether to try it even if versions, platform or processor differ from those of the coder. A
            prediction may then differ in its last bit, and all that follows would be wrong; the check of the decoded
            sequences finds that.

    Raises:
        ValueError: the data are not what ``compress`` writes, or are damaged; or they were coded by another model, with
            another arithmetic, or with other sources.
    """
    check_options(decompress, any_arithmetic=any_arithmetic)
    container = Container.of_bytes(data)
    if container.coder != "model":
        raise ValueError("the data are a file that was compressed without a model; pass them to decompress_file")
    _check(model)
    if container.model != first_of(digest_of_model(model)):
        raise ValueError(
            f"the data were coded by another model than this {type(model).__name__}, or by the same before it was "
            "fitted again; pass the one that compressed them, or load it from its file"
        )
    sources = _sources(model, X, container.n)
    check_arithmetic(container, any_arithmetic)
    lengths = [None] * container.n if container.lengths is None else container.lengths
    decoder = RangeDecoder(container.code)
    with one_thread():
        known = [ToDecode(n, source) for n, source in zip(lengths, sources, strict=True)]
        values = _coder(model).decode(known, decoder)
    items: list[Item] = [model.encoding_.decode(each) for each in values]
    if isinstance(model.encoding_, OpenSymbols):
        items = [new_symbols.decode(model.encoding_, each, decoder) for each in values]
    if first_of(digest_of_items(items)) != container.content:
        what = "other sources, or " if model.measure_.conditional else ""
        raise ValueError(
            f"what was decoded is not what was coded: {what}a prediction differs here in its last bits; "
            "decode the data where they were coded"
        )
    return items


def n_code_bytes(data: bytes) -> int:
    """Return the number of bytes of compressed data without the head that says how they were coded.

    Args:
        data: the bytes that ``compress`` returned.
    """
    return len(Container.of_bytes(data).code)


def check_arithmetic(container: Container, any_arithmetic: bool) -> None:
    """Check that data were coded with these versions of packages, on this platform and this kind of processor.

    Args:
        container: the coded data with their head.
        any_arithmetic: True switches the check off.

    Raises:
        ValueError: something differs; the message names it.
    """
    differences = container.arithmetic.differences(arithmetic_here())
    if differences and not any_arithmetic:
        raise ValueError(
            f"the data were coded with {', '.join(differences)}, where predictions may have other last bits; decode "
            "them there, or try with any_arithmetic=True: what was decoded is checked"
        )


def _check(model: SequenceModel) -> None:
    """Check that a model can code sequences without loss.

    Raises:
        ValueError: it is of vectors, reads inputs, or is no ``SequenceModel``.
    """
    if not isinstance(model, SequenceModel):
        raise ValueError(f"model is {in_words(model)}; pass a fitted SequenceModel of symbols or text")
    setting = model._setting()
    if model.encoding_.reads == "vectors":
        raise ValueError(
            "the model is of vectors, but only symbols and text can be coded without loss; pass a model of those"
        )
    if setting.measure.inputs:
        raise ValueError("the model reads inputs, which compress cannot be given; fit one without")


def _coder(model: SequenceModel) -> SymbolCoder:
    return computing_in(model, "float64", "cpu")._symbol_coder()


def _check_lossless(model: SequenceModel, items: Sequence[Item], values: Sequence[np.ndarray]) -> None:
    if isinstance(model.encoding_, OpenSymbols):
        return  # because new symbols are coded separately
    for i, (item, each) in enumerate(zip(items, values, strict=True)):
        back = model.encoding_.decode(each)
        if not (back == item if isinstance(item, str) else np.array_equal(back, item)):
            raise ValueError(
                f"sequence {i} is not restored exactly by {model.encoding_!r}, so it cannot be coded; fit a model with "
                "an encoding that keeps it, such as bytes"
            )


def _sources(model: SequenceModel, X: Any, n: int) -> list[np.ndarray | None]:
    """Return the encoded source of each of n sequences; None for each if the model is not conditional.

    Args:
        model: a fitted model.
        X: the raw sources; None for a model of p(x).
        n: number of sequences.

    Raises:
        ValueError: the sources do not fit the model or their number is wrong.
    """
    setting = model._setting()
    if (X is not None) != setting.measure.conditional:
        expected = "p(y | x): pass X too" if setting.measure.conditional else "p(x): leave X out"
        raise ValueError(f"the model was fitted as {expected}")
    if X is None:
        return [None] * n
    sources = as_sequences(X)
    if len(sources) != n:
        raise ValueError(
            f"there are {len(sources)} sources, but {n} sequences were coded; pass the sources that compress was given"
        )
    setting.check_sources(sources, model._reads_missing())
    if setting.source_encoding is None:
        return [None] * n
    return [*setting.source_encoding.encode_all(sources)]


def _in_words(model: SequenceModel, error: ImpossibleSymbolError) -> str:
    encoding, symbol = model.encoding_, error.symbol
    if symbol == encoding.size:
        what = "ends"
    elif isinstance(encoding, Text):
        what = f"has {encoding.spelling()[symbol].decode(errors='backslashreplace')!r}"
    else:
        what = f"has symbol {encoding.decode(np.array([symbol]))[0]!s}"
    return (
        f"sequence {error.sequence} {what} at step {error.step}, where the model gives that probability zero, so no "
        "code is long enough; fit with a pseudocount, or to data that have it"
    )
