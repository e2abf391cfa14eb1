"""Parallel text: sources and targets, a pair a line."""

from __future__ import annotations

from pathlib import Path

from seqmodels.common.parameters import checked
from seqmodels.data.text import read_text
from seqmodels.sequences import Sequences


@checked
def pairs(
    source: str | Path, target: str | Path | None = None, *, columns: tuple[int, int] = (0, 1)
) -> tuple[Sequences, Sequences]:
    r"""``(X, y)`` of two UTF-8 files with a sequence a line, or of two columns of one tab-separated file; ``.gz`` too.

    Lines are read as by ``text``: a byte order mark is dropped, ``\r\n`` is ``\n``, and nothing else is changed. Where
    both sides of a pair are blank it is dropped; the others are numbered as in the file all the same.

    Args:
        source: the file of the sources, or of both.
        target: the file of the targets; None: ``source`` holds both.
        columns: of the one file, counted from 0: that of the sources and that of the targets.

    Returns:
        Texts; a pair has one name on both sides: the file of the source and the number of the line, ``train.de:12``.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: files of different length, a line with too few columns, a pair with one side blank (names the line),
            nothing to read, or not UTF-8.
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
    """The lines of a file; the end of the last line begins no other."""
    lines = read_text(file).split("\n")
    return lines[:-1] if not lines[-1] else lines
