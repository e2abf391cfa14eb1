"""The command ``seqmodels compress``: compress a file with a model's probabilities."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from seqmodels.cli.checks import check_outputs
from seqmodels.cli.console import Console, Json, Quiet
from seqmodels.cli.inputs import SavedModel, read_content
from seqmodels.common.files import replaced
from seqmodels.evaluation.coding import compress_file

ENDING = ".sqm"


def compress(
    file: Annotated[
        str, typer.Argument(help="A file of any kind; with --model it must be UTF-8 text.", metavar="FILE")
    ],
    model: Annotated[
        str | None,
        typer.Option(help="A model of text that seqmodels fit (or model.save) wrote; by default none is needed."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The file to write; by default FILE followed by .sqm.")
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compress a file to -log2 p bits, with a saved model of text or with context mixing that learns from the file.

    Example: seqmodels compress book.txt -o book.sqm

    Without --model the compressed file is enough to restore the original. With it, the model is needed too. The file
    can be restored only with the same versions of torch, numpy and numba on a processor of the same kind; others refuse
    it.
    """
    console = Console(as_json, quiet)
    with console.errors():
        target = out if out is not None else Path(f"{file}{ENDING}")
        check_outputs(files={"--out": target}, inputs=(file, model))
        content = read_content(file)
        began = time.perf_counter()
        data = compress_file(content, None if model is None else SavedModel.read(model).model)
        seconds = time.perf_counter() - began
        with replaced(target) as partial:
            Path(partial).write_bytes(data)
        bits = 8 * len(data) / len(content) if content else None
        ratio = "" if bits is None else f", {bits:.3f} bits a byte"
        console.result(
            {"file": str(target), "n_bytes": len(content), "n_compressed": len(data), "bits": bits, "seconds": seconds},
            f"{target}: {len(content):,} bytes in {len(data):,}{ratio}",
        )
