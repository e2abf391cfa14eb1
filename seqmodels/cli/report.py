"""The command ``seqmodels report``: render the pages of saved comparisons again."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from seqmodels.cli.checks import check_folder
from seqmodels.cli.console import FAILED, Console, Json, Quiet
from seqmodels.common.files import locked_folder
from seqmodels.evaluation import Comparison
from seqmodels.evaluation.comparison.saved_comparison import MAIN


def report(
    folder: Annotated[
        Path, typer.Argument(help="A saved comparison, or a folder of them, such as compare writes to --out.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="The folder for the pages; by default they lie beside the saved comparisons.")
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Render the pages of saved comparisons again, without fitting anything: after an update, or to another folder.

    Example: seqmodels report results

    The figures are the saved ones, to the last digit; each page explains how to read them.
    """
    console = Console(as_json, quiet)
    with console.errors(), ExitStack() as locks:
        if out is not None:
            check_folder("--out", out)
        paths = _saved_comparisons(folder)
        for written in sorted({out or path.parent for path in paths}):
            locks.enter_context(locked_folder(written))
        comparisons = {path: Comparison.load(path) for path in paths}
        with console.errors(FAILED):
            pages = []
            for path, comparison in comparisons.items():
                page = (out or path.parent) / f"{path.resolve().name}.html"
                comparison.to_html(page)
                pages.append(str(page))
            console.result({"pages": pages}, "\n".join(f"Open {page}" for page in pages))


def _saved_comparisons(folder: Path) -> list[Path]:
    """Return those among a folder and its direct subfolders that hold a saved comparison.

    Raises:
        ValueError: none of them does.
        FileNotFoundError: there is no such folder.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder}")
    folders = [path for path in (folder, *sorted(folder.iterdir())) if (path / MAIN).is_file()]
    if not folders:
        raise ValueError(f"{folder} holds no saved comparison; seqmodels compare --out {folder} writes some")
    return folders
