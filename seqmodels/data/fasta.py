"""FASTA and FASTQ: sequences of residues, each after a header that begins with ``>`` or ``@``."""

from __future__ import annotations

import re
from pathlib import Path

from seqmodels.common.parameters import checked
from seqmodels.data.file_format import FileFormat
from seqmodels.data.kinds import as_kind
from seqmodels.data.text import read_text
from seqmodels.sequences import Kind, Sequences

LINES_OF_A_READ = 4  # of FASTQ
RESIDUES = re.compile(r"[A-Za-z*.-]*")  # letters, an end of translation, gaps
NOT_RESIDUES = re.compile(r"[\s\d]")  # what is left out of the lines of FASTA
QUALITIES = re.compile(r"[!-~]*")


@checked
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
        ValueError: a file that does not begin with a header; a record without residues, named; a line with what is no
            residue (a letter, ``*``, ``-`` or ``.``), by its number.
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
        raise ValueError(f"{path} holds no header, a line that begins with '>'; it is no FASTA file")
    return _sequences([(header, "".join(lines)) for header, lines in records], kind, str(path))


FASTA = FileFormat("FASTA", (".fasta", ".fa", ".fna", ".faa", ".ffn"), fasta, options=("kind",))


@checked
def fastq(path: str | Path, *, kind: Kind | None = None) -> Sequences:
    """The reads of a FASTQ file (``.gz`` too), of four lines each, as ``fasta`` has them; qualities are left out.

    Raises:
        ValueError: a record that is not of four lines, ``@`` and ``+`` before the first and third, whose read and
            qualities differ in length, or that has other characters than theirs (Cock et al. 2010).
    """
    lines = read_text(Path(path)).rstrip("\n").split("\n")
    records = []
    for start in range(0, len(lines), LINES_OF_A_READ):
        header, *rest = (line.strip() for line in lines[start : start + LINES_OF_A_READ])
        if len(rest) < LINES_OF_A_READ - 1 or not header.startswith("@") or not rest[1].startswith("+"):
            raise ValueError(f"{path}:{start + 1} is no record of four lines: @name, residues, +, qualities")
        if len(rest[0]) != len(rest[2]):
            raise ValueError(f"{path}:{start + 2} has {len(rest[0])} residues but {len(rest[2])} qualities")
        if rest[1][1:].strip() not in ("", header[1:].strip()):
            raise ValueError(
                f"{path}:{start + 3} repeats another name, {rest[1][1:41]!r}, than that of the read, {header[1:41]!r}; "
                "the file is damaged: a line is missing or there twice"
            )
        _check_residues(f"{path}:{start + 2}", rest[0])
        if not QUALITIES.fullmatch(rest[2]):
            raise ValueError(
                f"{path}:{start + 4} has qualities that are no characters from '!' to '~': {rest[2]!r:.50}"
            )
        records.append((header[1:].strip(), rest[0].upper()))
    return _sequences(records, kind, str(path))


FASTQ = FileFormat("FASTQ", (".fastq", ".fq"), fastq, options=("kind",))


def _check_residues(where: str, residues: str) -> None:
    if not RESIDUES.fullmatch(residues):
        at = RESIDUES.match(residues)
        assert at is not None, "it matches nothing, too"
        raise ValueError(
            f"{where} has {residues[at.end()]!r}, which is no residue; residues are letters, '*', '-' and '.'"
        )


def _sequences(records: list[tuple[str, str]], kind: Kind | None, path: str) -> Sequences:
    """Records, a header and residues each."""
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
