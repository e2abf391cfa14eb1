"""The command ``seqmodels decompress``: restore a file that ``seqmodels compress`` compressed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from seqmodels.cli.checks import check_outputs
from seqmodels.cli.compress import ENDING
from seqmodels.cli.console import Console, Json, Quiet
from seqmodels.cli.inputs import SavedModel, read_content
from seqmodels.common.files import replaced
from seqmodels.evaluation.coding import decompress_file


def decompress(
    file: Annotated[str, typer.Argument(help="A file that seqmodels compress wrote.", metavar="FILE")],
    model: Annotated[str | None, typer.Option(help="The model that it was compressed with, if there was one.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The file to write; by default FILE without its .sqm.")
    ] = None,
    any_arithmetic: Annotated[
        bool,
        typer.Option("--any-arithmetic", help="Try it even with other versions than it was compressed with."),
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Restore a file that seqmodels compress wrote, bit for bit.

    Example: seqmodels decompress book.sqm -o book.txt

    A file that is damaged, or was compressed with another model or with other versions of the libraries, is refused,
    and nothing is written.
    """
    console = Console(as_json, quiet)
    with console.errors():
        if out is None and not file.endswith(ENDING):
            raise ValueError(f"{file} does not end in {ENDING}, so it does not say what to write; pass --out")
        target = out if out is not None else Path(file.removesuffix(ENDING))
        check_outputs(files={"--out": target}, inputs=(file, model))
        data = read_content(file)
        loaded = None if model is None else SavedModel.read(model).model
        try:
            content = decompress_file(data, loaded, any_arithmetic=any_arithmetic)
        except ValueError as error:
            raise ValueError(f"{file}: {error}") from None
        with replaced(target) as partial:
            Path(partial).write_bytes(content)
        console.result({"file": str(target), "n_bytes": len(content)}, f"{target}: {len(content):,} bytes")
