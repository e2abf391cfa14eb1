"""Reading FASTA: sequences of residues, each after a header that begins with ``>``."""

from __future__ import annotations

import re
from pathlib import Path

from seqmodels.common.parameters import checked
from seqmodels.data.file_format import FileFormat
from seqmodels.data.kinds import as_kind
from seqmodels.data.text import read_text
from seqmodels.sequences import Kind, Sequences

RESIDUES = re.compile(r"[A-Za-z*.-]*")  # letters, the end of a translation, and gaps
NOT_RESIDUES = re.compile(r"[\s\d]")  # characters that are left out of the lines


@checked
def fasta(path: str | Path, *, kind: Kind | None = None) -> Sequences:
    """Read the records of a FASTA file as symbols, one letter per residue, with lower case made upper.

    The lines of a record are joined. Spaces and digits in them are left out, and so are lines that begin with ``;``.

    Args:
        path: the path of the file; it may end in ``.gz``.
        kind: ``"text"`` for strings, whose bytes are modelled; None for symbols.

    Returns:
        Sequences named by the first word of their header. The rest of the header is the column ``description`` of the
        metadata. Headers are not modelled.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file does not begin with a header; a record has no residues; or a line has a character that is
            not a residue (a letter, ``*``, ``-`` or ``.``). The message names the record or the line.
    """
    records: list[tuple[str, list[str]]] = []
    for number, line in enumerate(read_text(Path(path)).split("\n"), start=1):
        if line.startswith(">"):
            records.append((line[1:].strip(), []))
        elif line.strip() and not line.startswith(";"):
            if not records:
                raise ValueError(f"{path}:{number} comes before the first header, a line that begins with '>'")
            residues = NOT_RESIDUES.sub("", line)
            _check_residues(f"{path}:{number}", residues)
            records[-1][1].append(residues.upper())
    if not records:
        raise ValueError(f"{path} holds no header, a line that begins with '>'; it is not a FASTA file")
    return _sequences([(header, "".join(lines)) for header, lines in records], kind, str(path))


FASTA = FileFormat("FASTA", (".fasta", ".fa", ".fna", ".faa", ".ffn"), fasta, options=("kind",))


def _check_residues(where: str, residues: str) -> None:
    if not RESIDUES.fullmatch(residues):
        at = RESIDUES.match(residues)
        assert at is not None, "it matches nothing, too"
        raise ValueError(
            f"{where} has {residues[at.end()]!r}, which is not a residue; residues are letters, '*', '-' and '.'"
        )


def _sequences(records: list[tuple[str, str]], kind: Kind | None, path: str) -> Sequences:
    import pandas as pd

    empty = [header for header, residues in records if not residues]
    if empty:
        raise ValueError(f"{path}: the record {empty[0]!r} has no residues; leave it out")
    headers = [header.partition(" ") for header, _ in records]
    names = [name or str(i) for i, (name, _, _) in enumerate(headers)]
    metadata = pd.DataFrame({"name": names, "description": [rest.strip() for _, _, rest in headers]})
    if all(not description for description in metadata["description"]):
        metadata = metadata[["name"]]
    return Sequences([as_kind(residues, kind or "symbols", path) for _, residues in records], metadata=metadata)
