"""``compress`` and ``decompress``: sequences as the bytes that a model's probabilities are worth, and back.

A log-probability says what a coder would need, ``-log2 p`` bits; this is the coder. Where the bytes are more, or are
not decoded, the figure was none.
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
    """The sequences of symbols or text, ``X`` or of a model of p(y | x) ``y``, as bytes that ``decompress`` gives back.

    They are coded by a range coder, one step after the other, by what the model's cursor predicts; so they take
    ``-log2 p`` bits, as ``model.log_prob`` has it, and some 45 bytes, a head that says by what they were coded. Where
    ends are no events, the lengths are in the head. Computed in float64, on one thread of the CPU.

    The model is not in the data: whoever decodes has its file.

    Raises:
        NotFittedError: a model that is not fitted.
        ValueError: vectors; a model without a cursor, or of p(x | inputs); sequences that it cannot read, or that have
            a past; a symbol to which it gives probability zero, by sequence and position; more than 1,024 sequences or
            2^20 steps for each byte of the result.

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
    """The sequences that ``compress`` was given, to the last bit; integers as int64.

    Args:
        data: what ``compress`` returned.
        model: the model that coded them, or the same from its file.
        X: the sources, of a model of p(y | x).
        any_arithmetic: also try where versions, platform or processor are others than those it was coded with. A
            prediction may then differ in its last bit, and all that follows would be wrong; the check of what was
            decoded tells.

    Raises:
        ValueError: other data, damaged ones, another model, another arithmetic, other sources.
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
        raise ValueError(f"what was decoded is not what was coded: {what}a prediction differs here in its last bits")
    return items


def n_code_bytes(data: bytes) -> int:
    """Of what ``compress`` returned, the bytes of the code alone, without the head."""
    return len(Container.of_bytes(data).code)


def check_arithmetic(container: Container, any_arithmetic: bool) -> None:
    """Raise ``ValueError``, naming the difference, for what another arithmetic coded, unless any may be tried."""
    differences = container.arithmetic.differences(arithmetic_here())
    if differences and not any_arithmetic:
        raise ValueError(
            f"the data were coded with {', '.join(differences)}, where predictions may have other last bits; decode "
            "them there, or try with any_arithmetic=True: what was decoded is checked"
        )


def _check(model: SequenceModel) -> None:
    """Raise ``ValueError`` for a model that cannot code."""
    if not isinstance(model, SequenceModel):
        raise ValueError(f"model is {in_words(model)}; pass a fitted SequenceModel of symbols or text")
    setting = model._setting()
    if model.encoding_.reads == "vectors":
        raise ValueError("the model is of vectors, and only symbols and text can be coded without loss")
    if setting.measure.inputs:
        raise ValueError("the model reads inputs, which compress cannot be given; fit one without")


def _coder(model: SequenceModel) -> SymbolCoder:
    return computing_in(model, "float64", "cpu")._symbol_coder()


def _check_lossless(model: SequenceModel, items: Sequence[Item], values: Sequence[np.ndarray]) -> None:
    """Raise ``ValueError`` for a sequence that its encoding does not give back."""
    if isinstance(model.encoding_, OpenSymbols):
        return  # new symbols are coded besides
    for i, (item, each) in enumerate(zip(items, values, strict=True)):
        back = model.encoding_.decode(each)
        if not (back == item if isinstance(item, str) else np.array_equal(back, item)):
            raise ValueError(f"sequence {i} is not what {model.encoding_!r} gives back of it, so it cannot be coded")


def _sources(model: SequenceModel, X: Any, n: int) -> list[np.ndarray | None]:
    """The encoded source of each of n sequences."""
    setting = model._setting()
    if (X is not None) != setting.measure.conditional:
        expected = "p(y | x): pass X too" if setting.measure.conditional else "p(x): leave X out"
        raise ValueError(f"the model was fitted as {expected}")
    if X is None:
        return [None] * n
    sources = as_sequences(X)
    if len(sources) != n:
        raise ValueError(f"there are {len(sources)} sources, but {n} sequences were coded; pass those of compress")
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
