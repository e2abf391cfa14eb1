"""``seqmodels compress``: a file as the bytes that a model's probabilities are worth."""

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
    file: Annotated[str, typer.Argument(help="A file of any kind; with --model UTF-8 text.", metavar="FILE")],
    model: Annotated[
        str | None,
        typer.Option(help="A model of text that seqmodels fit (or model.save) wrote; without it none is needed."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="What to write; by default FILE with .sqm after it.")
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compress a file: to -log2 p bits, by a saved model of text or by context mixing that learns from the file.

    Example: seqmodels compress book.txt -o book.sqm

    Without --model the file alone is enough to decompress it. With it, whoever decompresses needs the model, too. The
    same versions of torch, numpy and numba, on such a processor, give the file back; others refuse it.
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
