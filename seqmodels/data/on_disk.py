"""Files that stay on disk as ``Sequences``: arrays, tokens, tables and texts that may be larger than memory."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np

from seqmodels.common.display import listed
from seqmodels.common.files import replaced
from seqmodels.common.parameters import checked
from seqmodels.data.file_contents import NEVER_TEXT, check_file, files_in, is_file
from seqmodels.data.npy import DAMAGED, reason
from seqmodels.sequences import Kind, Sequences
from seqmodels.sequences.mapped import MappedArray

if TYPE_CHECKING:
    import pyarrow

COPIED = ".npy"  # the ending of the copy of a table, which lies beside it or in ``cache``
ARROW, PARQUET = (".arrow", ".feather"), (".parquet",)
OTHER_FILES = 512  # files that the process may need to open besides those of a folder
ROWS_AT_ONCE = 1 << 16  # rows of a table that are copied at once
ARROW_FILE = b"ARROW1"  # the first bytes of an Arrow file; an Arrow stream begins otherwise
MAX_NAME = 100  # the most characters of column names in the name of a copy
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@checked
def on_disk(
    path: str | Path,
    *,
    kind: Kind | None = None,
    dtype: str = "uint16",
    columns: str | Sequence[str] | None = None,
    cache: str | Path | None = None,
) -> Sequences:
    """Return sequences that stay on disk: one for a file, or one for each file of a folder in the order of their paths.

    Models read them block by block: HMMs with ``algorithm="stepwise"``, networks, n-grams, and every ``score``. The
    format is chosen by the ending:

    - ``.npy``: numbers of shape ``(T, D)`` are vectors, integers of shape ``(T,)`` are symbols;
    - ``.bin``: symbols as they lie in memory, without a header, such as the tokens that nanoGPT writes;
    - ``.parquet``, ``.arrow``, ``.feather`` (need ``pyarrow``): rows are steps in their order. They are copied once, a
      batch of rows at a time, to a ``.npy`` file, ``x.parquet`` to ``x.parquet.npy``, as float64, or int64 for a single
      column of integers;
    - anything else: UTF-8 text, unchanged except that a byte order mark is left out, and read as bytes.

    Each file stays open. If a folder has more files than the process may open, the process raises its limit.

    Args:
        path: the path of a file, or of a folder of files of one format.
        kind: ``"vectors"`` makes numbers of shape ``(T,)`` frames of one feature; ``"symbols"`` requires shape
            ``(T,)``; ``"text"`` takes uint8 of shape ``(T,)`` in a ``.npy`` or ``.bin`` file as the bytes of a text.
            None decides by the file.
        dtype: type of the symbols in a ``.bin`` file: ``"uint16"`` as nanoGPT writes them, ``"uint32"``, ``"uint8"``,
            ...
        columns: columns of a table to model; None means all columns of numbers or booleans.
        cache: folder for the copies of tables; None means beside them. A copy is made again if the table is newer.

    Raises:
        FileNotFoundError: there is nothing at ``path``.
        ValueError: a folder is empty, has files of several formats, or more files than the process may open; a file
            contradicts its ending or its header; a text has null bytes; the path is a pipe or a device; or the disk has
            no room for the copy of a table.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> np.arange(10, dtype=np.uint16).tofile(folder / "train.bin")
    >>> on_disk(folder / "train.bin")
    Sequences(1 of symbols, 10 symbols)
    """
    root = Path(path)
    files = [root] if is_file(root) else _files(root)
    _allow_open_files(len(files))
    suffix = files[0].suffix.lower()
    if suffix in (*ARROW, *PARQUET):
        copies = [_copied_table(file, columns, root, cache) for file in files]
        items = [_npy(copy, kind) for copy in copies]
    elif suffix == ".npy":
        items = [_npy(file, kind) for file in files]
    elif suffix == ".bin":
        items = [_tokens(file, _integer_type(dtype), kind) for file in files]
    else:
        items = [_text(file) for file in files]
    names = [file.relative_to(root).as_posix() if root.is_dir() else file.name for file in files]
    try:
        return Sequences(items, names=names)
    except ValueError as error:
        raise ValueError(f"{root}: {error} (the files are {listed(names)})") from None


def _files(root: Path) -> list[Path]:
    if not root.is_dir():
        raise FileNotFoundError(f"there is no file or folder {root}")
    files = sorted(check_file(file) for file in files_in(root) if file.name[0] != ".")
    tables = [file for file in files if file.suffix.lower() in (*ARROW, *PARQUET)]
    if tables:  # beside them lie their copies
        files = [file for file in files if file.suffix.lower() != COPIED]
    suffixes = sorted({file.suffix.lower() for file in files})
    if len(suffixes) != 1:
        raise ValueError(
            f"the folder {root} has files of several formats, {', '.join(suffixes)}; pass a folder of one"
            if suffixes
            else f"the folder {root} has no files; there is nothing to model"
        )
    return files


def _allow_open_files(n: int) -> None:
    """Let the process have ``n`` more files open than now, if the system permits it; each mapped file stays open.

    Raises:
        ValueError: if that is more than the process may have.
    """
    try:
        import resource
    except ImportError:  # Windows
        return
    most, hardest = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = n + OTHER_FILES
    if resource.RLIM_INFINITY in (most, hardest) or needed <= most:
        return
    if needed > hardest:
        raise ValueError(
            f"there are {n:,} files, but this process may have no more than {hardest:,} open; join them into fewer, or "
            "raise the limit (ulimit -Hn)"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hardest))


# -- one file --------------------------------------------------------------------------------------------------


def _npy(file: Path, kind: Kind | None) -> MappedArray:
    try:
        array = np.load(file, mmap_mode="r", allow_pickle=False)
    except DAMAGED as error:
        raise ValueError(f"{file} cannot be mapped as NumPy's file: {reason(error)}") from None
    if not isinstance(array, np.memmap):
        raise ValueError(f"{file} is an archive of arrays, which is not mapped; save each as .npy")
    if array.ndim not in (1, 2) or not array.size:
        raise ValueError(f"{file} has shape {array.shape}; pass (T, D) vectors or (T,) symbols")
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{file} holds {array.dtype}; save real numbers, (T, D) vectors or (T,) symbols")
    n_more = file.stat().st_size - array.offset - array.nbytes
    if n_more:
        raise ValueError(
            f"{file} goes on for {n_more:,} bytes after the array of shape {array.shape} that its header says: it has "
            "several arrays, or is damaged; save each to a file of its own"
        )
    stored = array.view(np.uint8) if array.dtype == bool else array
    assert isinstance(stored, np.memmap), "a view of one"
    return _of_kind(stored, file, kind)


def _integer_type(dtype: str) -> np.dtype:
    try:
        integers = np.dtype(dtype)
    except TypeError:
        integers = np.dtype(object)
    if integers.kind not in "iu":
        raise ValueError(
            f"dtype is {dtype!r}; pass that of the symbols of a .bin file: 'uint16', 'uint32', 'uint8', ..."
        )
    return integers


def _tokens(file: Path, dtype: np.dtype, kind: Kind | None) -> MappedArray:
    n_bytes = file.stat().st_size
    if not n_bytes:
        raise ValueError(f"{file} is empty; leave it out")
    if n_bytes % dtype.itemsize:
        raise ValueError(
            f"{file} has {n_bytes} bytes, which is not a whole number of {dtype} symbols; pass the symbols' dtype"
        )
    return _of_kind(np.memmap(file, dtype, "r"), file, kind)


def _text(file: Path) -> MappedArray:
    n_bytes = file.stat().st_size
    with file.open("rb") as opened:
        beginning = opened.read(8)
    first = len(BYTE_ORDER_MARK) if beginning.startswith(BYTE_ORDER_MARK) else 0
    if n_bytes <= first:
        raise ValueError(f"{file} is empty; leave it out")
    text = MappedArray.of(np.memmap(file, np.uint8, "r", offset=first), is_text=True)
    if beginning.startswith(NEVER_TEXT) or not text.summary.lowest[0]:
        what = "has null bytes" if not text.summary.lowest[0] else f"begins with {beginning!r}"
        raise ValueError(f"{file} {what}, so it is not text in UTF-8; convert it first, for example with iconv")
    return text


def _of_kind(array: np.memmap, file: Path, kind: Kind | None) -> MappedArray:
    if kind == "text" and (array.ndim != 1 or array.dtype != np.uint8):
        raise ValueError(f"{file} holds {array.dtype} of shape {array.shape}; a text is (T,) uint8")
    if kind == "symbols" and array.ndim != 1:
        raise ValueError(f"{file} has shape {array.shape}; symbols are (T,)")
    is_column = array.ndim == 1 and (kind == "vectors" or (kind is None and array.dtype.kind == "f"))
    mapped = MappedArray.of(array, is_text=kind == "text")
    return mapped[:, None] if is_column else mapped


# -- tables ----------------------------------------------------------------------------------------------------


def _copied_table(file: Path, columns: str | Sequence[str] | None, root: Path, cache: str | Path | None) -> Path:
    """Copy a table to a ``.npy`` file, unless there is a copy that is not older, and return the path of the copy.

    Args:
        file: path of the table.
        columns: columns to copy; None means all columns of numbers or booleans.
        root: the folder that the user named, relative to which the copy lies in ``cache``; or the file itself.
        cache: folder for copies; None means beside the table.
    """
    chosen = [columns] if isinstance(columns, str) else columns
    beside = file if cache is None else Path(cache) / (file.relative_to(root) if root.is_dir() else file.name)
    copy = beside.with_name(f"{file.name}{_marks(chosen)}{COPIED}")
    if copy.exists() and copy.stat().st_mtime >= file.stat().st_mtime:
        return copy
    if not file.stat().st_size:
        raise ValueError(f"{file} is empty; leave it out")
    copy.parent.mkdir(parents=True, exist_ok=True)
    with _open_table(file) as (n_rows, schema, batches):
        names = _numeric_columns(file, schema, chosen)
        if not n_rows:
            raise ValueError(f"{file} has no rows; leave it out")
        whole = len(names) == 1 and _is_whole(schema.field(names[0]).type)
        needed, free = 8 * n_rows * len(names), shutil.disk_usage(copy.parent).free
        if needed > free:
            raise ValueError(
                f"{file} has {n_rows:,} rows of {len(names)} columns, whose copy takes {needed:,} bytes, but there are "
                f"{free:,} free in {copy.parent}; pass cache= on another disk, or fewer columns"
            )
        with replaced(copy) as partial:
            shape = (n_rows,) if whole else (n_rows, len(names))
            written = np.lib.format.open_memmap(partial, "w+", np.int64 if whole else np.float64, shape)
            copied, row = MappedArray.of(written), 0
            for batch in batches(names):
                values = [_column(file, batch, name, whole=whole) for name in names]
                copied.write(row, values[0] if whole else np.stack(values, axis=1))
                row += batch.num_rows
            written.flush()
    return copy


def _marks(columns: Sequence[str] | None) -> str:
    """Return the part of a copy's file name that identifies the columns it holds; "" for None, meaning all columns."""
    if columns is None:
        return ""
    names = ",".join(quote(name, safe=" ") for name in columns)
    return f".{names if len(names) <= MAX_NAME else sha256(names.encode()).hexdigest()[:16]}"


Batches = Callable[[list[str]], Iterator[Any]]


@contextmanager
def _open_table(file: Path) -> Iterator[tuple[int, pyarrow.Schema, Batches]]:
    """Return a context that opens a Parquet or Arrow file: its number of rows, its schema, and a reader of its rows.

    The reader is a function that takes the names of the columns to read and yields record batches of pyarrow.

    Raises:
        ValueError: the file is not what its ending says.
        ImportError: pyarrow is not installed.
    """
    try:
        import pyarrow as pa
    except ImportError as error:
        raise ImportError("reading Parquet and Arrow needs pyarrow: pip install 'seqmodels[parquet]'") from error
    try:
        if file.suffix.lower() in PARQUET:
            with _opened_parquet(file) as table:
                yield (
                    table.metadata.num_rows,
                    table.schema_arrow,
                    # One group of rows at a time, because otherwise the reader keeps all that it has read in memory.
                    lambda names: (
                        batch
                        for group in range(table.metadata.num_row_groups)
                        for batch in table.iter_batches(batch_size=ROWS_AT_ONCE, row_groups=[group], columns=names)
                    ),
                )
        else:
            schema, batches = _record_batches(file)
            n_rows = sum(batch.num_rows for batch in batches)
            yield n_rows, schema, lambda names: _some_rows(file, names)
    except pa.ArrowException as error:
        raise ValueError(f"{file} is not what its ending says: {error}") from None
    finally:
        pa.default_memory_pool().release_unused()


def _opened_parquet(file: Path) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(file)
    except (OSError, pa.ArrowException) as error:
        raise ValueError(f"{file} is not what its ending says, or damaged: {error}") from None


def _record_batches(file: Path, mapped: MappedArray | None = None) -> tuple[pyarrow.Schema, Iterator[Any]]:
    """Return the schema of an Arrow file or stream, and its batches of rows as they were written.

    Args:
        file: path of the file.
        mapped: the file's content if it is already mapped into memory; None maps it.
    """
    import pyarrow as pa

    content = np.memmap(file, np.uint8, "r") if mapped is None else mapped
    source = pa.BufferReader(pa.py_buffer(content))
    if bytes(content[: len(ARROW_FILE)]) != ARROW_FILE:
        stream = pa.ipc.open_stream(source)
        return stream.schema, iter(stream)
    table = pa.ipc.open_file(source)
    return table.schema, (table.get_batch(i) for i in range(table.num_record_batches))


def _some_rows(file: Path, names: list[str]) -> Iterator[Any]:
    """Yield some columns of an Arrow file, at most ``ROWS_AT_ONCE`` rows at a time, keeping none of them in memory.

    Args:
        file: path of the file.
        names: names of the columns.
    """
    mapped = MappedArray.of(np.memmap(file, np.uint8, "r"))
    for batch in _record_batches(file, mapped)[1]:
        for row in range(0, batch.num_rows, ROWS_AT_ONCE):
            yield batch.slice(row, ROWS_AT_ONCE).select(names)
            mapped.release()


def _numeric_columns(file: Path, schema: pyarrow.Schema, chosen: Sequence[str] | None) -> list[str]:
    from pyarrow import types

    missing = [name for name in chosen or () if name not in schema.names]
    if missing:
        raise ValueError(f"{file} has no column {missing[0]!r}; it has {', '.join(schema.names)}")
    numeric = [f.name for f in schema if _is_whole(f.type) or types.is_floating(_decoded(f.type))]
    if not (chosen or numeric):
        has = ", ".join(f"{f.name} ({f.type})" for f in schema) or "none at all"
        raise ValueError(f"{file} has no column of numbers; it has {has}")
    names = list(chosen or numeric)
    twice = [name for name in names if schema.names.count(name) > 1]
    if twice:
        raise ValueError(f"{file} has several columns {twice[0]!r}; give them different names")
    for name in names:
        if name not in numeric:
            held = schema.field(name).type
            way_out = "give each value a row" if types.is_nested(held) else "number what it holds from 0 first"
            raise ValueError(f"the column {name!r} of {file} holds no numbers but {held}; {way_out}")
    return names


def _decoded(type_: Any) -> Any:
    """Return the type of a column's values; for a dictionary-encoded column, the type of the dictionary's values."""
    from pyarrow import types

    return type_.value_type if types.is_dictionary(type_) else type_


def _is_whole(type_: Any) -> bool:
    from pyarrow import types

    return bool(types.is_integer(_decoded(type_)) or types.is_boolean(_decoded(type_)))


def _column(file: Path, batch: Any, name: str, *, whole: bool) -> np.ndarray:
    """Return the values of a column in a batch of N rows, ``(N,)``.

    Args:
        file: path of the table, for errors.
        batch: record batch of pyarrow.
        name: name of the column.
        whole: True returns int64, False float64 with NaN for gaps.

    Raises:
        ValueError: if ``whole`` is True and a value is missing or too large.
    """
    from pyarrow import types

    column = batch.column(name)
    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if types.is_boolean(column.type):
        column = column.cast("uint8")
    if whole and column.null_count:
        raise ValueError(f"the column {name!r} of {file} has missing values; a symbol cannot be missing")
    values: np.ndarray = column.to_numpy(zero_copy_only=False)
    if whole and values.dtype.kind == "u" and values.size and int(values.max()) >= 2**63:
        raise ValueError(
            f"the column {name!r} of {file} has the symbol {values.max()}, which int64 cannot hold; number symbols "
            "from 0"
        )
    return values.astype(np.int64 if whole else np.float64)
