"""Reading parallel text: sources and targets, one pair per line."""

from __future__ import annotations

from pathlib import Path

from seqmodels.common.parameters import checked
from seqmodels.data.text import read_text
from seqmodels.sequences import Sequences


@checked
def pairs(
    source: str | Path, target: str | Path | None = None, *, columns: tuple[int, int] = (0, 1)
) -> tuple[Sequences, Sequences]:
    r"""Read pairs of texts ``(X, y)`` from two UTF-8 files with one text per line, or from two columns of one file.

    Lines are read as by ``text``: a byte order mark is dropped, ``\r\n`` becomes ``\n``, and nothing else is changed. A
    pair that is blank on both sides is dropped; the others keep their line numbers. Files may end in ``.gz``.

    Args:
        source: the file of the sources, or of both.
        target: the file of the targets; None means that ``source`` is tab-separated and holds both.
        columns: positions of the sources and of the targets in the single file, counted from 0.

    Returns:
        Sources X and targets y. A pair has the same name on both sides: the source file and the line number, such as
        ``train.de:12``.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the files differ in length, a line has too few columns, a pair is blank on one side (the message
            names the line), there is nothing to read, or a file is not UTF-8.
    """
    file = Path(source)
    lines = _columns(file, columns) if target is None else _side_by_side(file, Path(target))
    kept = [(f"{file.name}:{line}", x, y) for line, (x, y) in enumerate(lines, start=1) if x.strip() or y.strip()]
    if not kept:
        raise ValueError(f"{file} holds no pairs; there is nothing to model")
    for name, x, y in kept:
        if not (x.strip() and y.strip()):
            raise ValueError(f"{name} is blank on one side only; fill it in, or remove the line on both")
    names = [name for name, _, _ in kept]
    return Sequences([x for _, x, _ in kept], names=names), Sequences([y for _, _, y in kept], names=names)


def _side_by_side(source: Path, target: Path) -> list[tuple[str, str]]:
    xs, ys = _lines(source), _lines(target)
    if len(xs) != len(ys):
        raise ValueError(f"{source} has {len(xs)} lines but {target} has {len(ys)}; they must stand side by side")
    return list(zip(xs, ys, strict=True))


def _columns(file: Path, columns: tuple[int, int]) -> list[tuple[str, str]]:
    pairs = []
    for line, text in enumerate(_lines(file), start=1):
        cells = text.split("\t")
        if text.strip() and not all(0 <= column < len(cells) for column in columns):
            raise ValueError(
                f"{file}:{line} has {len(cells)} columns, but columns={columns}, counted from 0; separate by tabs, or "
                "pass a target file"
            )
        pairs.append((cells[columns[0]], cells[columns[1]]) if text.strip() else ("", ""))
    return pairs


def _lines(file: Path) -> list[str]:
    """Return the lines of a file without their ends; a line end at the end of the file begins no further line."""
    lines = read_text(file).split("\n")
    return lines[:-1] if not lines[-1] else lines
