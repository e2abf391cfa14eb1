"""Items of ``Sequences``: their kinds, and checks of items, names and times whose errors say what is wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from collections.abc import Set as AnySet
from decimal import Decimal
from itertools import pairwise
from numbers import Real
from typing import Any, Literal

import numpy as np
import torch

from seqmodels.common.display import a_or_an, listed
from seqmodels.sequences.columns.dates import read_dates
from seqmodels.sequences.columns.frames import frames_of_numbers
from seqmodels.sequences.mapped import MappedArray
from seqmodels.sequences.zones import has_zone, in_unit

Kind = Literal["vectors", "text", "symbols"]
Item = np.ndarray | str
UNITS: dict[Kind, str] = {"vectors": "frame", "text": "byte", "symbols": "symbol"}
MANY = 32  # the least number of sequences that are checked and encoded together
SHORT = 64  # mean steps of a sequence, up to which copying all sequences takes less time than a call for each


def items_of(X: Any) -> list[Any]:
    """Return a list of the sequences in what a user passed: a list, a generator, an array or the like.

    Raises:
        ValueError: it is not a list of sequences; the message says what to write.
    """
    _refuse_bare(X)
    may_end = isinstance(X, Iterable | Sized)  # an object with only __getitem__ may have items without end
    try:
        iterator = iter(X) if may_end else None
    except TypeError:
        iterator = None
    if iterator is None:
        raise ValueError(
            f"X is {in_words(X)}, which holds no sequences; pass a list of (T, D) arrays, of texts or of 1-D "
            "integer arrays"
        )
    items = list(iterator)
    if not items:
        raise ValueError("there are no sequences; pass a list with at least one")
    return frames_of_numbers(items) if any(hasattr(items[0], name) for name in ("iloc", "to_pandas")) else items


def are_many_short(items: Sequence[Sized]) -> bool:
    """Return True if sequences are so many and so short that copying them together is faster than a call for each."""
    return len(items) >= MANY and sum(map(len, items)) <= SHORT * len(items)


def _refuse_bare(items: Any) -> None:
    import pandas as pd

    if isinstance(items, str):
        raise ValueError("X is one str; pass a list of texts, for one text [text]")
    if isinstance(items, bytes | bytearray | memoryview):
        raise ValueError(
            f"X is one {type(items).__name__}; decode texts first and pass a list of them, for one text [text]"
        )
    if isinstance(items, Mapping):
        raise ValueError("X is a dictionary; pass list(X.values()), and names=list(X) to Sequences to keep its keys")
    if isinstance(items, AnySet):
        raise ValueError(f"X is {a_or_an(type(items))}, which has no order of its own; pass a list of sequences")
    if isinstance(items, pd.DataFrame) or (hasattr(items, "to_pandas") and hasattr(items, "columns")):
        raise ValueError("X is a DataFrame; use Sequences.from_frame(frame, by=..., columns=[...])")
    shape = getattr(items, "shape", None)
    if not isinstance(shape, tuple):
        return
    if len(shape) == 3:
        raise ValueError(
            "X is a 3-D array, so its padding cannot be told; use Sequences.from_padded(X, lengths), or list(X) if it "
            "has none"
        )
    if len(shape) == 1 and isinstance(next(iter(items), None), str):
        return  # a column of texts
    if getattr(items, "dtype", None) != np.dtype(object):
        raise ValueError(
            f"X is a bare array of shape {tuple(shape)}; for one sequence write [X], for several laid end to end "
            "Sequences.from_lengths(X, lengths)"
        )


def in_words(value: Any) -> str:
    """Return a value as an error message shows it: its ``repr`` for numbers, booleans and None, otherwise its type."""
    return repr(value) if value is None or isinstance(value, bool | int | float) else f"of type {type(value).__name__}"


def _a_value(value: Any) -> str:
    """Return a value as an error message shows it after the word "has"."""
    said = in_words(value)
    return f"a value {said}" if said.startswith("of type") else said


# -- items ---------------------------------------------------------------------------------------------------


def checked_items(raw: list[Any]) -> tuple[Kind, list[Item]]:
    """Check sequences, and return their kind (vectors, text or symbols) and each as an array or a text.

    The kind is that of the first sequence.

    Raises:
        ValueError: an item is invalid or of another kind; the message names the sequence.
    """
    kind = _kind_of(raw[0])
    items = _checked_at_once(kind, raw) or [_CHECK[kind](i, item) for i, item in enumerate(raw)]
    if kind == "vectors":  # of symbols ``named_symbols`` checks it, together with their past
        check_alike(kind, items)
    return kind, items


def _kind_of(item: Any) -> Kind:
    if isinstance(item, str) or is_mapped_text(item):
        return "text"
    return "vectors" if (item if isinstance(item, np.memmap) else as_array(0, item)).ndim == 2 else "symbols"


def as_array(i: int, item: Any) -> np.ndarray:
    """Return one sequence of a list as an array; masked arrays stay masked and tensors are copied to the CPU.

    Args:
        i: number of the sequence, which the message names.
        item: the sequence as a user passed it.

    Raises:
        ValueError: the item is not an array of real numbers; the message names the sequence.
    """
    if isinstance(item, bytes | bytearray):
        raise ValueError(f"sequence {i} is {type(item).__name__}; decode it first: x.decode('utf-8')")
    if isinstance(item, Mapping | AnySet):
        raise ValueError(f"sequence {i} is {a_or_an(type(item))}, which has no order; pass an array, one row a step")
    if item is None:
        raise ValueError(f"sequence {i} is None, which is not a sequence; leave it out")
    if isinstance(item, torch.Tensor):
        item = item.detach().cpu()
        item = item.double() if item.dtype == torch.bfloat16 else item  # because NumPy has no bfloat16
    try:
        array = item if isinstance(item, np.ma.MaskedArray) else np.asarray(item)
    except (ValueError, TypeError, RuntimeError, OverflowError) as error:
        why = _of_other_widths(item) or str(error)
        raise ValueError(
            f"sequence {i}, {in_words(item)}, is not an array of numbers ({why}); pass a (T, D) array or a 1-D integer "
            "array"
        ) from None
    if array.dtype.kind == "c":
        raise ValueError(
            f"sequence {i} holds complex numbers; model their real and imaginary parts as two features: "
            "numpy.column_stack([x.real, x.imag])"
        )
    return array


def _of_other_widths(item: Any) -> str:
    """Return a phrase that says which frame of a list of lists has another length than the first; "" if none has."""
    frames = item if isinstance(item, list | tuple) else []
    widths = [len(frame) if isinstance(frame, list | tuple) else None for frame in frames]
    other = next((t for t, width in enumerate(widths) if width != widths[0]), None)
    if other is None:
        return ""
    said = ["is not a list" if width is None else f"has {width} values" for width in (widths[other], widths[0])]
    return f"its frame {other} {said[0]}, but frame 0 {said[1]}"


def _checked_at_once(kind: Kind, raw: list[Any]) -> list[Item] | None:
    """Check and copy many plain arrays of one kind together, which is fast, and return them.

    Return None if they must be checked one by one, for example because one is invalid and has to be named.
    """
    n_axes, dtype = (2, np.dtype(np.float64)) if kind == "vectors" else (1, np.dtype(np.int64))
    if (
        kind == "text"
        or len(raw) < MANY
        or set(map(type, raw)) != {np.ndarray}
        or not all(x.ndim == n_axes and x.dtype == dtype and x.size for x in raw)
    ):
        return None
    if kind == "vectors" and len({x.shape[1] for x in raw}) > 1:
        return None
    together = np.concatenate(raw)
    if np.isinf(together).any() if kind == "vectors" else (together < 0).any():
        return None
    edges = np.cumsum([0, *map(len, raw)]).tolist()
    return [together[a:b] for a, b in pairwise(edges)]


def _check_text(i: int, item: Any) -> Item:
    if isinstance(item, MappedArray) and item.is_text and item.size:
        if item.summary.bad_byte is not None:
            raise ValueError(
                f"sequence {i} is not UTF-8 at byte {item.summary.bad_byte}; convert the file first, for example with "
                "iconv"
            )
        return item
    if not isinstance(item, str):
        raise ValueError(f"sequence {i} is {type(item).__name__} but the first is str; all must be of one kind")
    if not item:
        raise ValueError(f"sequence {i} is empty; leave it out")
    try:
        item.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(
            f"sequence {i} cannot be written as UTF-8 at character {error.start}; open the file with its real encoding"
        ) from None
    return item


def _check_symbols(i: int, item: Any) -> np.ndarray:
    if _is_mapped(item) and item.ndim == 1 and item.dtype.kind in "iu" and item.size:
        return _checked_mapped_symbols(i, MappedArray.of(item))
    array = as_array(i, item)
    if array.ndim == 0 and not isinstance(item, str):
        raise ValueError(
            f"sequence {i} is {in_words(item)}, no sequence; pass a list of arrays (the lengths of sequences that are "
            "laid end to end go into Sequences.from_lengths(X, lengths))"
        )
    if array.ndim == 1 and array.size and not isinstance(item, str):
        if array.dtype.kind == "U" and isinstance(item, list | tuple):
            array = np.array(item, dtype=object)  # numpy would make strings of the numbers among them
        if array.dtype.kind in "UOT" and any(isinstance(value, str) for value in array.tolist()):
            return _words(i, array)
    if isinstance(item, str) or array.ndim != 1:
        raise ValueError(
            f"sequence {i} has shape {array.shape} but the first is one-dimensional; symbols are 1-D integer arrays, "
            "vectors (T, D)"
        )
    if array.size == 0:
        raise ValueError(f"sequence {i} is empty; leave it out")
    if np.ma.is_masked(array):
        bad = int(np.argmax(np.ma.getmaskarray(array)))
        raise ValueError(
            f"sequence {i} masks its symbol at position {bad}; a symbol cannot be missing: give it a number of its own"
        )
    array = np.asarray(array)
    if array.dtype.kind == "O":
        array = _integers(i, array)
    if array.dtype.kind not in "iub":
        if array.dtype.kind != "f":
            raise ValueError(f"sequence {i} is of type {array.dtype}; symbols are integers, counted from 0")
        if not (np.isfinite(array).all() and (array == np.rint(array)).all()):
            bad = int(np.argmax(~(np.isfinite(array) & (array == np.rint(array)))))
            raise ValueError(
                f"sequence {i} has the fractional symbol {float(array[bad])} at position {bad}; symbols are integers, "
                "for vectors of one feature pass x[:, None]"
            )
    if (array < 0).any():
        bad = int(np.argmax(array < 0))
        raise ValueError(f"sequence {i} has the negative symbol {array[bad]} at position {bad}; symbols count from 0")
    if array.dtype.kind in "uf" and array.max() >= 2**63:
        bad = int(np.argmax(array >= 2**63))
        raise ValueError(
            f"sequence {i} has the symbol {array[bad]} at position {bad}, which int64 cannot hold; number symbols "
            "from 0"
        )
    return array.astype(np.int64)


def _is_mapped(item: Any) -> bool:
    return isinstance(item, np.memmap) and MappedArray.of(item).is_on_disk


def _checked_mapped_symbols(i: int, item: MappedArray) -> MappedArray:
    lowest, highest = int(item.summary.lowest[0]), int(item.summary.highest[0])
    if lowest < 0:
        bad = item.first(lambda block: block < 0)
        raise ValueError(f"sequence {i} has the negative symbol {item[bad]} at position {bad}; symbols count from 0")
    if highest >= 2**63:
        bad = item.first(lambda block: block >= 2**63)
        raise ValueError(
            f"sequence {i} has the symbol {item[bad]} at position {bad}, which int64 cannot hold; number symbols from 0"
        )
    return item


def _words(i: int, array: np.ndarray) -> np.ndarray:
    """Return an array of Python strings; raise ``ValueError`` if an element is not a string."""
    words = np.empty(len(array), dtype=object)
    for t, value in enumerate(array.tolist()):
        if not isinstance(value, str):
            raise ValueError(
                f"sequence {i} has {_a_value(value)} at position {t} among strings; a symbol cannot be missing: give "
                "it a name of its own"
            )
        words[t] = value
    return words


def _integers(i: int, array: np.ndarray) -> np.ndarray:
    """Return an array of Python integers as int64; raise ``ValueError`` if an element is not one or does not fit."""
    for t, value in enumerate(array):
        if not isinstance(value, int | np.integer):
            raise ValueError(
                f"sequence {i} has {_a_value(value)} at position {t}; symbols are integers, counted from 0"
            )
        if not -(2**63) <= value < 2**63:
            raise ValueError(
                f"sequence {i} has the symbol {value} at position {t}, which int64 cannot hold; number symbols from 0"
            )
    return array.astype(np.int64)


def _check_vectors(i: int, item: Any) -> np.ndarray:
    if _is_mapped(item) and item.ndim == 2 and item.dtype.kind in "iuf" and item.size:
        mapped = MappedArray.of(item)
        if mapped.dtype.kind == "f" and mapped.itemsize > 8:
            raise ValueError(f"sequence {i} is of {mapped.dtype} in its file; write it to one of float64")
        if mapped.summary.first_infinite is not None:
            raise ValueError(
                f"sequence {i} has an infinite value at frame {mapped.summary.first_infinite}; remove it or mark it "
                "missing with NaN"
            )
        return mapped  # not read into memory
    array = as_array(i, item)
    if array.dtype.kind == "O" and array.ndim == 2:
        array = _floats(i, array)
    if isinstance(item, str) or array.ndim != 2 or array.dtype.kind not in "iubf":
        raise ValueError(
            f"sequence {i} has shape {array.shape} and type {array.dtype}; pass (T, D) numbers, for one feature "
            "x[:, None]"
        )
    if array.shape[0] == 0 or array.shape[1] == 0:
        raise ValueError(f"sequence {i} is empty (shape {array.shape}); leave it out")
    mask = np.ma.getmaskarray(array) if np.ma.is_masked(array) else None
    with np.errstate(over="ignore"):  # because longer floats may overflow to infinity, which is refused below
        array = np.ascontiguousarray(array, dtype=np.float64)
    if mask is not None:
        array = np.where(mask, np.nan, array)
    if np.isinf(array).any() and not _are_intervals(array):
        frame = int(np.argmax(np.isinf(array).any(axis=1)))
        raise ValueError(f"sequence {i} has an infinite value at frame {frame}; remove it or mark it missing with NaN")
    return array


def _are_intervals(array: np.ndarray) -> bool:
    """Return True if the columns of an array are the lower and upper ends of intervals, in turn.

    Only ends of intervals may be infinite.

    Args:
        array: the array, ``(T, 2D)`` for intervals of D features.
    """
    if array.shape[1] % 2:
        return False
    low, high = array[:, 0::2], array[:, 1::2]
    return bool(((low < high) | (np.isnan(low) & np.isnan(high))).all())


def _floats(i: int, array: np.ndarray) -> np.ndarray:
    """Return a table of Python numbers as float64; raise ``ValueError`` if an element is not one or does not fit."""
    for t, frame in enumerate(array):
        for feature, value in enumerate(frame):
            if not isinstance(value, Real | Decimal | np.floating):
                raise ValueError(
                    f"sequence {i} has {_a_value(value)} at frame {t}, feature {feature}; pass numbers, and NaN for "
                    "what is missing"
                )
    try:
        return array.astype(np.float64)
    except OverflowError:
        raise ValueError(f"sequence {i} has a number that float64 cannot hold; pass it in other units") from None


def check_alike(kind: Kind, items: Sequence[Any]) -> None:
    """Raise ``ValueError`` if sequences differ from the first: vectors in number of features, symbols in their type.

    Args:
        kind: kind of the sequences: vectors, symbols, or text, which is not checked.
        items: the sequences.
    """
    if kind == "vectors":
        width = items[0].shape[1]
        for i, item in enumerate(items):
            if item.shape[1] != width:
                raise ValueError(
                    f"sequence {i} has {item.shape[1]} features but sequence 0 has {width}; all must agree"
                )
    elif kind == "symbols":
        are_words = [np.asarray(item).dtype.kind == "O" for item in items]
        if len(set(are_words)) > 1:
            i = are_words.index(not are_words[0])
            types = ("strings", "integers") if are_words[i] else ("integers", "strings")
            raise ValueError(
                f"sequence {i} holds {types[0]} but the first sequence holds {types[1]}; pass one type of symbols"
            )


_CHECK: dict[Kind, Callable[[int, Any], Item]] = {
    "text": _check_text,
    "symbols": _check_symbols,
    "vectors": _check_vectors,
}


def is_mapped_text(item: Any) -> bool:
    """Return True if a sequence is a text whose bytes are in a file that is read in parts."""
    return isinstance(item, MappedArray) and item.is_text


def text_of(item: Any) -> str:
    """Return a text as a string, read into memory if it is in a file."""
    return item.tobytes().decode("utf-8") if is_mapped_text(item) else str(item)


def largest_symbol(item: Any) -> int:
    """Return the largest symbol of a sequence of integers in memory or in a file."""
    return int(item.summary.highest[0] if isinstance(item, MappedArray) else np.max(np.asarray(item)))


# -- the past of items ---------------------------------------------------------------------------------------


def n_units_of(item: Any) -> int:
    """Return the length of a sequence: its number of frames or symbols, or of a text the number of UTF-8 bytes."""
    return len(item.encode()) if isinstance(item, str) else len(item)


def checked_past(past: Any, kind: Kind, items: list[Any]) -> dict[int, Item]:
    """Check the past of sequences, the steps before each, and return it by the number of the sequence.

    Sequences without a past are left out.

    Args:
        past: for each item the steps before it, or None.
        kind: kind of the sequences: vectors, text or symbols.
        items: the sequences, already checked.

    Raises:
        ValueError: a past does not fit its sequence; the message names the sequence.
    """
    before = [past] if isinstance(past, str) or not isinstance(past, Iterable) else list(past)
    if len(before) != len(items) or isinstance(past, str):
        raise ValueError(
            f"past is {in_words(past)} but there are {len(items)} sequences; pass a list with the steps before each "
            "sequence, or None for one without"
        )
    given = {i: item for i, item in enumerate(before) if item is not None and not _is_empty(item)}
    checked: dict[int, Any] = {}
    for i, item in given.items():
        try:
            if (kind == "text") != (isinstance(item, str) or is_mapped_text(item)):
                raise ValueError(
                    f"sequence {i} is {in_words(item)} but the sequences are {kind}; all must be of one kind"
                )
            checked[i] = _CHECK[kind](i, item)
        except ValueError as error:
            raise ValueError(f"in the past: {error}") from None
        if kind == "vectors" and checked[i].shape[1] != items[0].shape[1]:
            raise ValueError(
                f"the past of sequence {i} has {checked[i].shape[1]} features but the sequence has "
                f"{items[0].shape[1]}; all must agree"
            )
    return checked


def _is_empty(item: Any) -> bool:
    try:
        return len(item) == 0
    except TypeError:
        return False


def check_n_past(past: Any) -> None:
    """Raise ``ValueError`` unless a number of past steps to keep is an integer of at least 0, or None for all steps."""
    if past is not None and (isinstance(past, bool) or not isinstance(past, int | np.integer) or past < 0):
        raise ValueError(f"past is {in_words(past)}; pass a number of steps, 0 for none, or None for all there are")


def steps_before(item: Any, stop: int, n: int) -> Any:
    """Return the last steps of a sequence before a position, as a view if the sequence is an array.

    Args:
        item: the sequence.
        stop: the position.
        n: number of steps; for a text in a file of bytes, fewer if a character would be cut.
    """
    start = stop - n
    if is_mapped_text(item):
        while 0 < start < stop and int(item[start]) >> 6 == 0b10:  # a byte within a character
            start += 1
    return item[start:stop]


def joined_steps(parts: list[Any]) -> Any:
    """Concatenate parts of one sequence, arrays or texts of one kind, into one item in memory."""
    if any(isinstance(part, str) or is_mapped_text(part) for part in parts):
        return "".join(map(text_of, parts))
    return np.concatenate([np.asarray(part) for part in parts])


# -- names of symbols and features, times, lengths -----------------------------------------------------------


def named_symbols(
    items: list[Item], symbols: Iterable[str] | None, past: dict[int, Item]
) -> tuple[tuple[str, ...] | None, list[Item], dict[int, Item]]:
    """Return the names of all symbols, and sequences of symbols and their pasts as arrays of strings.

    If the items are integers and ``symbols`` is None, the names are None and everything is returned unchanged.

    Args:
        items: sequences of symbols.
        symbols: names that the caller passed; None means the strings that occur.
        past: the steps before some of the sequences, by the number of the sequence.

    Raises:
        ValueError: a symbol has no name, or items differ in type.
    """
    names = _symbol_names([*items, *past.values()] if past else items, symbols)
    if names is None:
        return None, items, past
    all_symbols, known = np.array(names, dtype=object), set(names)
    named: list[Item] = [_named(f"sequence {i}", item, all_symbols, known) for i, item in enumerate(items)]
    of_past: dict[int, Item] = {
        i: _named(f"the past of sequence {i}", item, all_symbols, known) for i, item in past.items()
    }
    return names, named, of_past


def _symbol_names(items: list[Item], symbols: Iterable[str] | None) -> tuple[str, ...] | None:
    """Return the names of all symbols in sequences; None for integers without names.

    Raise ``ValueError`` if the sequences differ in type.

    Args:
        items: sequences of integers or strings.
        symbols: names that the user gave, or None for the strings that occur.
    """
    check_alike("symbols", items)
    if symbols is not None:
        return checked_names("symbols", symbols)
    if np.asarray(items[0]).dtype.kind != "O":
        return None
    return checked_names("symbols", sorted(set().union(*(np.asarray(item).tolist() for item in items))))


def _named(what: str, item: Item, symbols: np.ndarray, known: set[str]) -> np.ndarray:
    """Return the symbols of one sequence as strings, after checking that each has a name.

    Args:
        what: the sequence in error messages.
        item: the sequence, of integers or strings.
        symbols: names of the symbols, shape ``(V,)``.
        known: the same names as a set.

    Raise ``ValueError`` for a symbol that has no name.
    """
    array = np.asarray(item)
    if array.dtype.kind == "O":
        t = next((t for t, word in enumerate(array) if word not in known), None)
        if t is not None:
            raise ValueError(
                f"{what} has {array[t]!r} at position {t}, which is not among the symbols "
                f"{listed(symbols.tolist())}; add it to symbols"
            )
        return array
    if array.max() >= len(symbols):
        t = int(np.argmax(array >= len(symbols)))
        raise ValueError(
            f"{what} has symbol {array[t]} at position {t}, but symbols names 0 to {len(symbols) - 1}; name all"
        )
    named: np.ndarray = symbols[array]
    return named


def checked_names(what: str, names: Iterable[str]) -> tuple[str, ...]:
    """Return names of features, inputs or symbols as a tuple, after checking that they are distinct strings.

    Args:
        what: beginning of the message of an error.
        names: the names.

    Raises:
        ValueError: a name is not a string, or occurs twice.
    """
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise ValueError(f"{what} is {'one str' if isinstance(names, str) else in_words(names)}; pass a list of names")
    checked = tuple(str(name) if isinstance(name, str) else name for name in names)
    for i, name in enumerate(checked):
        if not isinstance(name, str):
            raise ValueError(f"{what} has {_a_value(name)} at position {i}; a name is a str")
        _check_text(i, name or " ")
    twice = [name for name, n in Counter(checked).items() if n > 1]
    if twice:
        raise ValueError(f"{what} has {twice[0]!r} twice; pass different names")
    return checked


def checked_times(times: Sequence[Any], lengths: Sequence[int]) -> list[np.ndarray]:
    """Return the times of the steps of each sequence, an array of dates or numbers ``(T,)``, after checking them.

    Args:
        times: for each sequence the times of its steps.
        lengths: number of steps T of each sequence.

    Raises:
        ValueError: times do not fit their sequence, are missing or go back, or some are dates and others numbers.
    """
    if not isinstance(times, Sized) or isinstance(times, str):
        raise ValueError(f"times is {in_words(times)}; pass an array for each sequence")
    if len(times) != len(lengths):
        raise ValueError(f"there are times of {len(times)} sequences but {len(lengths)} sequences; pass an array each")
    checked = [_times_of(i, each, n) for i, (each, n) in enumerate(zip(times, lengths, strict=True))]
    kinds = ["dates" if each.dtype.kind == "M" else "numbers" for each in checked]
    if len(set(kinds)) > 1:
        i = next(i for i, kind in enumerate(kinds) if kind != kinds[0])
        raise ValueError(
            f"the times of sequence {i} are {kinds[i]} but the times of sequence 0 are {kinds[0]}; pass one kind"
        )
    return checked


def times_as_read(times: Any) -> Any:
    """Convert times that are words or objects to dates; return other times unchanged."""
    import pandas as pd

    if has_zone(times) or (hasattr(times, "dtype") and pd.api.types.is_numeric_dtype(times.dtype)):
        return times
    if np.asarray(times).dtype.kind not in "OU" or np.ndim(times) != 1:
        return times
    read = read_dates(pd.Series(times, name="times"), is_time=True)
    return times if read is None else read.times


def _times_of(i: int, times: Any, n: int) -> np.ndarray:
    """Return the times of one sequence as numbers or datetime64, shape ``(n,)``; dates with a zone are in UTC.

    Raise ``ValueError`` if they do not fit its steps, are missing or go back.

    Args:
        i: number of the sequence, which the message names.
        times: its times as a user passed them.
        n: its number of steps.
    """
    array = np.asarray(in_unit(times_as_read(times), None))
    if array.shape != (n,) or array.dtype.kind not in "iufMm":
        raise ValueError(
            f"the times of sequence {i} have shape {array.shape} and type {array.dtype}; pass a date or a number for "
            f"each of its {n} steps"
        )
    missing = np.isnat(array) if array.dtype.kind in "Mm" else ~np.isfinite(array)
    if missing.any():
        raise ValueError(f"sequence {i} has no time at step {int(np.argmax(missing))}; fill it in")
    back = array[1:] < array[:-1]
    if back.any():
        t = int(np.argmax(back)) + 1
        raise ValueError(
            f"the times of sequence {i} go back at step {t}, from {array[t - 1]} to {array[t]}; put its steps in "
            "order, or make two sequences of it"
        )
    return array


def checked_lengths(lengths: Any) -> np.ndarray:
    """Return lengths of sequences as int64, shape ``(n,)``, after checking them.

    Raises:
        ValueError: a length is not an integer of at least 1.
    """
    try:
        counts = np.asarray(lengths, dtype=np.float64)
    except (ValueError, TypeError):
        raise ValueError(
            f"lengths is {in_words(lengths)}; pass a list of whole numbers, one for each sequence"
        ) from None
    if counts.ndim != 1:
        raise ValueError(f"lengths has shape {counts.shape}; pass a list of whole numbers, one for each sequence")
    wrong = ~((counts >= 1) & (counts == np.rint(counts)) & (counts < 2**53))
    if wrong.any():
        i = int(np.argmax(wrong))
        raise ValueError(f"sequence {i} has length {counts[i]:g}; pass whole numbers, 1 or more")
    return counts.astype(np.int64)
