"""``Sequences``: ragged sequences of one kind in one container, validated; and the forms of data it is made from."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from collections.abc import Set as AnySet
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Literal, Self, overload

import numpy as np
import torch

from seqmodels.profile import grid_step, profile_of

if TYPE_CHECKING:
    import pandas as pd

Kind = Literal["vectors", "text", "symbols"]
Item = np.ndarray | str
FRAMES_IN_MEMORY = 1 << 16  # of a memory-mapped array, at once
UNITS: dict[Kind, str] = {"vectors": "frame", "text": "byte", "symbols": "symbol"}


class Sequences(Sequence[Item]):
    """A list of sequences of one kind, with one row of metadata each.

    Args:
        items: ``(T, D)`` float arrays (vectors), ``str`` (text) or 1-D integer arrays (symbols). NaN in a vector
            means missing, and so does what a masked array masks. Items are validated and copied to float64 or int64
            unless they already are; tensors are taken off their device and their graph; ``np.memmap`` stays on disk.
        names: a name for each sequence, for reports.
        labels: a label for each, such as the digit spoken.
        clusters: what each belongs to (a speaker, a document): sequences of one cluster are not independent.
        metadata: any further columns; ``name``, ``label`` and ``cluster`` are those above.
        grid: of vectors, for each feature the width of the noise that ``dithered`` added, in its raw unit; None: not
            dithered.

    Raises:
        ValueError: names the sequence, the position in it, and the way out.

    >>> x = Sequences([np.zeros((3, 2)), np.ones((2, 2))], clusters=["ann", "bob"])
    >>> x.kind, x.n_units.tolist(), x.n_features
    ('vectors', [3, 2], 2)
    """

    def __init__(
        self,
        items: Iterable[Any],
        *,
        names: Sequence[Any] | None = None,
        labels: Sequence[Any] | None = None,
        clusters: Sequence[Any] | None = None,
        metadata: pd.DataFrame | None = None,
        grid: Sequence[float] | None = None,
    ) -> None:
        _refuse_bare(items)
        raw = _listed(items)
        if not raw:
            raise ValueError("there are no sequences; pass a list with at least one")
        self.kind: Kind = _kind_of(raw[0])
        self.items: list[Item] = [_CHECK[self.kind](i, item) for i, item in enumerate(raw)]
        if self.kind == "vectors":
            _check_width(self.items)
        self.metadata = _metadata(len(raw), metadata, {"name": names, "label": labels, "cluster": clusters})
        self.grid: tuple[float, ...] | None = None if grid is None else tuple(map(float, grid))
        if self.grid is not None and (self.kind != "vectors" or len(self.grid) != self.n_features):
            raise ValueError(f"grid has {len(self.grid)} steps, one for each feature of vectors; these are {self!r}")

    # -- other forms of data -------------------------------------------------------------------------------

    @classmethod
    def from_lengths(cls, X: np.ndarray, lengths: Sequence[int], **metadata: Any) -> Self:
        """Sequences laid end to end, as in hmmlearn: ``X (N, D)`` or ``(N,)``, and ``lengths`` that sum to N."""
        X, counts = _with_mask(X), _whole_lengths(lengths)
        if X.ndim == 0:
            raise ValueError("X has no rows; pass an array of shape (N, D) or (N,)")
        if counts.sum() != len(X):
            raise ValueError(f"lengths sum to {counts.sum()} but X has {len(X)} rows; they must agree")
        return cls(np.split(X, np.cumsum(counts)[:-1]), **metadata)

    @classmethod
    def from_padded(cls, array: np.ndarray, lengths: Sequence[int], **metadata: Any) -> Self:
        """A padded array of shape ``(n, T, D)`` or ``(n, T)`` and the real length of each row."""
        array, counts = _with_mask(array), _whole_lengths(lengths)
        if array.ndim < 2:
            raise ValueError(f"the padded array has shape {array.shape}; pass (n, T, D) or (n, T)")
        if len(counts) != len(array):
            raise ValueError(f"there are {len(array)} padded sequences but {len(counts)} lengths; pass one each")
        too_long = [i for i, n in enumerate(counts) if n > array.shape[1]]
        if too_long:
            raise ValueError(
                f"sequence {too_long[0]} has length {counts[too_long[0]]} but the array holds {array.shape[1]}"
            )
        return cls([row[:n] for row, n in zip(array, counts, strict=True)], **metadata)

    @classmethod
    def from_frame(cls, frame: pd.DataFrame, *, by: str, columns: Sequence[str] | str, time: str | None = None) -> Self:
        """A long frame, one row a step: ``by`` names the sequence, ``columns`` its features (one ``str``: symbols)."""
        import pandas as pd

        if not isinstance(frame, pd.DataFrame):
            raise ValueError(f"the frame is {_in_words(frame)}; pass a pandas DataFrame, one row a step")
        missing = [c for c in [by, *([columns] if isinstance(columns, str) else columns)] if c not in frame.columns]
        if missing:
            raise ValueError(f"the frame has no column {missing[0]!r}; it has {', '.join(map(str, frame.columns))}")
        unnamed = frame[by].isna().to_numpy()
        if unnamed.any():
            raise ValueError(
                f"row {int(np.argmax(unnamed))} of the frame belongs to no sequence: its {by!r} is missing; fill it "
                "in, or leave the row out"
            )
        in_order = frame.sort_values(time, kind="stable") if time else frame
        features = columns if isinstance(columns, str) else list(columns)
        groups = in_order.groupby(by, sort=False)
        names, items = zip(*((name, group[features].to_numpy()) for name, group in groups), strict=True)
        return cls(items, names=names)

    @classmethod
    def from_dataset(cls, dataset: Any, **metadata: Any) -> Self:
        """A map-style torch dataset whose items are tensors, or tuples whose first entry is the sequence."""
        if not (isinstance(dataset, Sized) and hasattr(dataset, "__getitem__")):
            raise ValueError(
                f"the dataset is {_in_words(dataset)}; pass a map-style one, which has a length and items by number"
            )
        rows = (dataset[i] for i in range(len(dataset)))
        return cls([r[0] if isinstance(r, tuple) else r for r in rows], **metadata)

    # -- as a container ------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.items)

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> Sequences: ...
    def __getitem__(self, index: int | slice) -> Item | Sequences:
        if isinstance(index, slice):
            return self.take(np.arange(len(self))[index])
        return self.items[index]

    def __iter__(self) -> Iterator[Item]:
        return iter(self.items)

    def __repr__(self) -> str:
        what = f"{self.n_features}-dimensional vectors" if self.kind == "vectors" else self.kind
        return f"Sequences({len(self)} of {what}, {int(self.n_units.sum()):,} {self.unit}s)"

    def take(self, index: Any) -> Sequences:
        """The sequences at these positions (integers or a mask), with their metadata."""
        rows = np.arange(len(self))[np.asarray(index)]
        return Sequences([self.items[i] for i in rows], metadata=self.metadata.iloc[rows], grid=self.grid)

    @property
    def names(self) -> list[Any]:
        return list(self.metadata["name"]) if "name" in self.metadata else list(range(len(self)))

    @property
    def labels(self) -> list[Any] | None:
        return list(self.metadata["label"]) if "label" in self.metadata else None

    @property
    def clusters(self) -> list[Any] | None:
        return list(self.metadata["cluster"]) if "cluster" in self.metadata else None

    @property
    def unit(self) -> str:
        """What lengths are counted in: ``frame``, ``byte`` (UTF-8) or ``symbol``."""
        return UNITS[self.kind]

    @property
    def n_units(self) -> np.ndarray:
        """``(n,)`` length of each sequence in units of the raw data."""
        return np.array([len(x.encode()) if isinstance(x, str) else len(x) for x in self.items], dtype=np.int64)

    @property
    def n_features(self) -> int:
        """D of vectors; 1 for text and symbols."""
        first = self.items[0]
        return 1 if isinstance(first, str) or first.ndim == 1 else int(first.shape[1])

    # -- cutting -------------------------------------------------------------------------------------------

    def split(self, test: float = 0.2, *, by: str | None = None, random_state: int = 0) -> tuple[Sequences, Sequences]:
        """Train and test parts: whole sequences at random, or whole groups of the metadata column ``by``.

        A single sequence is cut in time instead: its tail is the test part.
        """
        import pandas as pd

        if not (isinstance(test, int | float | np.floating) and 0 < test < 1):
            raise ValueError(f"test is {test}; pass the fraction to hold out, between 0 and 1")
        if len(self) == 1:
            return self._cut_tail(test)
        if by is not None and by not in self.metadata:
            raise ValueError(
                f"there is no column {by!r} to split by; the metadata have "
                f"{', '.join(map(str, self.metadata.columns)) or 'none'}"
            )
        groups = pd.factorize(self.metadata[by])[0] if by else np.arange(len(self))
        n_groups = int(groups.max()) + 1
        if n_groups < 2:
            raise ValueError(f"all sequences have the same {by!r}; nothing would be left to train on")
        n_test = min(max(1, round(test * n_groups)), n_groups - 1)
        held_out = np.isin(groups, np.random.default_rng(random_state).permutation(n_groups)[:n_test])
        return self.take(~held_out), self.take(held_out)

    def _cut_tail(self, test: float) -> tuple[Sequences, Sequences]:
        item = self.items[0]
        at = len(item) - max(1, round(test * len(item)))
        if at < 1:
            raise ValueError("the one sequence is too short to split; it needs at least two steps")
        head, tail = (Sequences([part], metadata=self.metadata, grid=self.grid) for part in (item[:at], item[at:]))
        return head, tail

    def chunks(self, length: int) -> Sequences:
        """Consecutive pieces of ``length`` steps (characters of text).

        The cluster of a piece is the sequence it came from, if there are several and they have no clusters.
        """
        if not (isinstance(length, int | np.integer) and length >= 1):
            raise ValueError(f"length is {length!r}; pass at least 1")
        pieces = [(i, item[k : k + length]) for i, item in enumerate(self.items) for k in range(0, len(item), length)]
        rows = self.metadata.iloc[[i for i, _ in pieces]].reset_index(drop=True)
        if "cluster" not in rows and len(self) > 1:
            rows["cluster"] = [self.names[i] for i, _ in pieces]
        return Sequences([piece for _, piece in pieces], metadata=rows, grid=self.grid)

    def continuation(self, context: int) -> tuple[Sequences, Sequences]:
        """``(X, y)``: the first ``context`` steps (characters of text) of each sequence, and the rest.

        Sequences that are no longer than ``context`` are left out.
        """
        if not (isinstance(context, int | np.integer) and context >= 1):
            raise ValueError(f"context is {context!r}; pass at least 1")
        long_enough = [i for i, item in enumerate(self.items) if len(item) > context]
        if not long_enough:
            raise ValueError(f"no sequence is longer than context={context}; pass a shorter context")
        kept = self.take(long_enough)
        return (
            Sequences([item[:context] for item in kept.items], metadata=kept.metadata, grid=self.grid),
            Sequences([item[context:] for item in kept.items], metadata=kept.metadata, grid=self.grid),
        )

    def dithered(self, random_state: int = 0, *, like: Sequences | None = None) -> Sequences:
        """Vectors with uniform noise of one step of their grid added, by seed: the same noise for every model.

        Values on a grid make a density unbounded. The step of a feature is the smallest gap between its values: dither
        before ``split``, or learn the grid once, on the training part, and dither the others ``like`` it. The grid
        stays with the sequences and is part of a model's ``Measure``, since densities of data under wider noise are
        lower. The noise depends on the values, too, so that no two parts have the same.

        Args:
            random_state: seed.
            like: sequences that are dithered already: noise as wide as theirs.

        Raises:
            ValueError: sequences other than vectors, dithered already, or of other features than ``like``; ``like``
            without a grid.
        """
        if self.kind != "vectors":
            raise ValueError(f"only vectors are dithered, these are {self.kind}")
        if self.grid is not None:
            raise ValueError("these sequences are dithered already; take them as they are")
        frames = np.concatenate([np.asarray(x) for x in self.items])
        grid = np.array([grid_step(column) for column in frames.T] if like is None else self._grid_of(like))
        content = int.from_bytes(hashlib.blake2b(np.ascontiguousarray(frames).data, digest_size=8).digest())
        noise = np.random.default_rng([random_state, content]).uniform(-0.5, 0.5, frames.shape) * grid
        return Sequences(
            np.split(frames + noise, np.cumsum(self.n_units)[:-1]), metadata=self.metadata, grid=grid.tolist()
        )

    def _grid_of(self, like: Sequences) -> tuple[float, ...]:
        if like.grid is None:
            raise ValueError("like is not dithered, so it has no grid; pass like=train.dithered()")
        if like.n_features != self.n_features:
            raise ValueError(f"like has {like.n_features} features but these sequences have {self.n_features}")
        return like.grid

    def profile(self) -> pd.DataFrame:
        """A row a feature of vectors: what of its values would let a density grow without bound.

        Columns: ``missing`` (share of the frames), ``n_values`` (different ones), ``low``, ``high``, ``step`` (smallest
        gap between values; NaN where values hardly repeat), ``spike`` (the one value that far more frames have than any
        other; NaN: none), ``spike_share`` (of the frames observed), ``kind``: ``missing``, ``constant``, ``bits``,
        ``counts``, ``spike``, ``grid`` or ``reals``.

        >>> rain = np.where(np.arange(40) % 10 == 0, np.arange(40) * 0.37, 0.0)
        >>> Sequences([np.stack([rain, np.sin(np.arange(40))], axis=1)]).profile()["kind"].tolist()
        ['spike', 'reals']
        """
        import pandas as pd

        if self.kind != "vectors":
            raise ValueError(f"only vectors have a profile by feature, these are {self.kind}")
        frames = np.concatenate([np.asarray(x) for x in self.items])
        return pd.DataFrame([asdict(profile_of(column)) for column in frames.T])


def as_sequences(X: Any) -> Sequences:
    """What a user passes to a model, as validated ``Sequences``; raises ``ValueError`` as they do."""
    return X if isinstance(X, Sequences) else Sequences(X)


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
        raise ValueError(f"X is a {type(items).__name__}, which has no order of its own; pass a list of sequences")
    if isinstance(items, pd.DataFrame):
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


def _listed(items: Any) -> list[Any]:
    try:
        each = iter(items)
    except TypeError:
        raise ValueError(
            f"X is {_in_words(items)}, which holds no sequences; pass a list of (T, D) arrays, of texts or of 1-D "
            "integer arrays"
        ) from None
    return list(each)


def _in_words(value: Any) -> str:
    """A value in an error: itself where it is short, else its type."""
    return repr(value) if value is None or isinstance(value, bool | int | float) else f"of type {type(value).__name__}"


def _kind_of(item: Any) -> Kind:
    if isinstance(item, str):
        return "text"
    return "vectors" if (item if isinstance(item, np.memmap) else as_array(0, item)).ndim == 2 else "symbols"


def as_array(i: int, item: Any) -> np.ndarray:
    """One sequence of numbers as an array; masked arrays stay masked. Raises ``ValueError``, naming sequence ``i``."""
    if isinstance(item, bytes | bytearray):
        raise ValueError(f"sequence {i} is {type(item).__name__}; decode it first: x.decode('utf-8')")
    if isinstance(item, Mapping | AnySet):
        raise ValueError(f"sequence {i} is a {type(item).__name__}, which has no order; pass an array, one row a step")
    if isinstance(item, torch.Tensor):
        item = item.detach().cpu()
        item = item.double() if item.dtype == torch.bfloat16 else item  # which numpy does not know
    try:
        return item if isinstance(item, np.ma.MaskedArray) else np.asarray(item)
    except (ValueError, TypeError, RuntimeError, OverflowError) as error:
        raise ValueError(
            f"sequence {i}, {_in_words(item)}, is no array of numbers ({error}); pass a (T, D) array or a 1-D integer "
            "array"
        ) from None


def _with_mask(X: Any) -> np.ndarray:
    """An array, masked if it was."""
    return X if isinstance(X, np.ma.MaskedArray) else np.asarray(X)


def _whole_lengths(lengths: Any) -> np.ndarray:
    """``(n,)`` int64; raises ``ValueError`` for what cannot be the length of a sequence."""
    try:
        counts = np.asarray(lengths, dtype=np.float64)
    except (ValueError, TypeError):
        raise ValueError(
            f"lengths is {_in_words(lengths)}; pass a list of whole numbers, one for each sequence"
        ) from None
    if counts.ndim != 1:
        raise ValueError(f"lengths has shape {counts.shape}; pass a list of whole numbers, one for each sequence")
    wrong = ~((counts >= 1) & (counts == np.rint(counts)) & (counts < 2**53))
    if wrong.any():
        i = int(np.argmax(wrong))
        raise ValueError(f"sequence {i} has length {counts[i]:g}; pass whole numbers, 1 or more")
    return counts.astype(np.int64)


def _check_text(i: int, item: Any) -> str:
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
    array = item if isinstance(item, np.memmap) and item.dtype.kind in "iu" else as_array(i, item)
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
    array = array if isinstance(array, np.memmap) else np.asarray(array)
    if array.dtype.kind == "O":
        array = _integers(i, array)
    if array.dtype.kind not in "iub":
        if array.dtype.kind != "f":
            raise ValueError(f"sequence {i} is of type {array.dtype}; symbols are integers, counted from 0")
        if not (np.isfinite(array).all() and (array == np.rint(array)).all()):
            bad = int(np.argmax(~(np.isfinite(array) & (array == np.rint(array)))))
            raise ValueError(
                f"sequence {i} has the fractional symbol {array[bad]!r} at position {bad}; symbols are integers, for "
                "vectors of one feature pass x[:, None]"
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
    return array if isinstance(array, np.memmap) else array.astype(np.int64)


def _integers(i: int, array: np.ndarray) -> np.ndarray:
    """An array of Python's integers as int64."""
    for t, value in enumerate(array):
        if not isinstance(value, int | np.integer):
            raise ValueError(
                f"sequence {i} has {_in_words(value)} at position {t}; symbols are integers, counted from 0"
            )
        if not -(2**63) <= value < 2**63:
            raise ValueError(
                f"sequence {i} has the symbol {value} at position {t}, which int64 cannot hold; number symbols from 0"
            )
    return array.astype(np.int64)


def _check_vectors(i: int, item: Any) -> np.ndarray:
    if isinstance(item, np.memmap) and item.ndim == 2 and item.dtype.kind == "f" and item.size:
        if any(np.isinf(item[t : t + FRAMES_IN_MEMORY]).any() for t in range(0, len(item), FRAMES_IN_MEMORY)):
            raise ValueError(f"sequence {i} has an infinite value; remove it or mark it missing with NaN")
        return item  # not read into memory
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
    with np.errstate(over="ignore"):  # of numbers longer than float64: they are infinite then
        array = np.ascontiguousarray(array, dtype=np.float64)
    if mask is not None:
        array = np.where(mask, np.nan, array)
    if np.isinf(array).any():
        frame = int(np.argmax(np.isinf(array).any(axis=1)))
        raise ValueError(f"sequence {i} has an infinite value at frame {frame}; remove it or mark it missing with NaN")
    return array


def _floats(i: int, array: np.ndarray) -> np.ndarray:
    """A table of Python's numbers as float64."""
    for t, frame in enumerate(array):
        for feature, value in enumerate(frame):
            if not isinstance(value, int | float | np.integer | np.floating):
                raise ValueError(
                    f"sequence {i} has {_in_words(value)} at frame {t}, feature {feature}; pass numbers, and NaN for "
                    "what is missing"
                )
    try:
        return array.astype(np.float64)
    except OverflowError:
        raise ValueError(f"sequence {i} has a number that float64 cannot hold; pass it in other units") from None


_CHECK: dict[Kind, Callable[[int, Any], Item]] = {
    "text": _check_text,
    "symbols": _check_symbols,
    "vectors": _check_vectors,
}


def _check_width(items: list[Any]) -> None:
    width = items[0].shape[1]
    for i, item in enumerate(items):
        if item.shape[1] != width:
            raise ValueError(f"sequence {i} has {item.shape[1]} features but sequence 0 has {width}; all must agree")


def _metadata(n: int, metadata: pd.DataFrame | None, columns: dict[str, Sequence[Any] | None]) -> pd.DataFrame:
    import pandas as pd

    table = pd.DataFrame(index=range(n)) if metadata is None else metadata.reset_index(drop=True).copy()
    if len(table) != n:
        raise ValueError(f"metadata has {len(table)} rows but there are {n} sequences; pass one row each")
    for name, values in columns.items():
        if values is not None:
            if len(values) != n:
                raise ValueError(f"there are {len(values)} {name}s but {n} sequences; pass one each")
            table[name] = list(values)
    return table
