"""NumPy's files: one array, or several by name."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

from seqmodels.data.kinds import as_kind, check_kind
from seqmodels.sequences import Kind, Sequences

CONCATENATED = ("X", "lengths")  # the arrays of a file that holds sequences laid end to end


def npy(path: str | Path, *, kind: Kind | None = None) -> Sequences:
    """The sequences of a ``.npy`` or ``.npz`` file.

    Args:
        path: ``.npy``: an array ``(T, D)`` or ``(T,)`` is one sequence; ``(n, T, D)`` are n of one length. ``.npz``: an
            array a sequence, by its name; or ``X (N, D)`` or ``(N,)`` and ``lengths (n,)``, as of
            ``Sequences.from_lengths``, with ``labels (n,)`` if there are any.
        kind: ``"vectors"``: ``(T,)`` are frames of one feature; ``"symbols"``: ``(n, T)`` are n sequences of whole
            numbers. None: ``(T,)`` of whole numbers or strings are symbols, everything else vectors.

    Raises:
        ValueError: a file that is no array, or holds Python objects, which only pickle could read.

    An array that is too large for memory stays on disk: ``data.on_disk(path)``.
    """
    check_kind(kind)
    path = Path(path)
    try:
        loaded = np.load(path, allow_pickle=False)
        arrays = {path.stem: loaded} if isinstance(loaded, np.ndarray) else {name: loaded[name] for name in loaded}
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        way_out = (
            "; it holds Python objects: save arrays of numbers, of several lengths by numpy.savez(path, *arrays)"
            if "pickle" in str(error).lower()
            else ""
        )
        raise ValueError(f"{path} cannot be read as NumPy's file: {error}{way_out}") from None
    if not arrays:
        raise ValueError(f"{path} holds no arrays; there is nothing to model")
    if set(CONCATENATED) <= arrays.keys():
        whole = as_kind(arrays["X"], _kind_of(arrays["X"], kind), f"{path}, X")
        labels = arrays["labels"].tolist() if "labels" in arrays else None
        return Sequences.from_lengths(whole, arrays["lengths"].tolist(), labels=labels)
    items: list[np.ndarray] = []
    names: list[str] = []
    for name, array in arrays.items():
        several = array.ndim == 3 or (array.ndim == 2 and kind == "symbols" and array.shape[1] > 1)
        parts = list(array) if several else [array]
        items += [as_kind(part, _kind_of(part, kind), f"{path}, {name}") for part in parts]
        names += [f"{name}:{i}" for i in range(len(parts))] if several else [name]
    return Sequences(items, names=names)


def _kind_of(array: np.ndarray, kind: Kind | None) -> Kind | None:
    """Of numbers ``(T,)`` that are not whole, vectors of one feature."""
    return "vectors" if kind is None and array.ndim == 1 and array.dtype.kind == "f" else kind
