"""FASTA: sequences of residues, each after a header that begins with ``>``."""

from __future__ import annotations

from pathlib import Path

from seqmodels.data.kinds import as_kind, check_kind
from seqmodels.data.text import read_text
from seqmodels.sequences import Kind, Sequences


def fasta(path: str | Path, *, kind: Kind | None = None) -> Sequences:
    """The records of a FASTA file (``.gz`` too), as symbols: a letter a residue, lower case made upper.

    The lines of a record are joined; spaces and digits in them, and lines that begin with ``;``, are left out.

    Args:
        path: of the file.
        kind: ``"text"``: strings, whose bytes are modelled; None: symbols.

    Returns:
        Sequences that are named by the first word of their header; the rest of the header is the column
        ``description`` of the metadata. Headers are not modelled.

    Raises:
        ValueError: a file that does not begin with a header; a record without residues, named.
    """
    import pandas as pd

    check_kind(kind)
    records: list[tuple[str, list[str]]] = []
    for number, line in enumerate(read_text(Path(path)).split("\n"), start=1):
        if line.startswith(">"):
            records.append((line[1:].strip(), []))
        elif line.strip() and not line.startswith(";"):
            if not records:
                raise ValueError(f"{path}:{number} comes before the first header, a line that begins with '>'")
            records[-1][1].append("".join(c for c in line if not (c.isspace() or c.isdigit())).upper())
    if not records:
        raise ValueError(f"{path} holds no header, a line that begins with '>'; it is no FASTA file")
    items = ["".join(lines) for _, lines in records]
    if "" in items:
        raise ValueError(f"{path}: the record {records[items.index('')][0]!r} has no residues; leave it out")
    headers = [header.partition(" ") for header, _ in records]
    names = [name or str(i) for i, (name, _, _) in enumerate(headers)]
    metadata = pd.DataFrame({"name": names, "description": [rest.strip() for _, _, rest in headers]})
    if all(not description for description in metadata["description"]):
        metadata = metadata[["name"]]
    return Sequences([as_kind(item, kind or "symbols", str(path)) for item in items], metadata=metadata)
