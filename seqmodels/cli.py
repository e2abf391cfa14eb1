"""The command line: ``seqmodels compare``."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)


@app.callback()
def main() -> None:
    """Fit sequence models, from an HMM to a Transformer, and compare them by likelihoods that may stand in one table."""


@app.command()
def compare(
    text: Annotated[Path | None, typer.Option(help="A UTF-8 text file (or a folder of .txt).", exists=True)] = None,
    audio: Annotated[Path | None, typer.Option(help="A folder of WAV files.", exists=True, file_okay=False)] = None,
    models: Annotated[str, typer.Option(help="Only these, separated by commas: hmm,lstm,transformer, ...")] = "",
    quick: Annotated[bool, typer.Option("--quick", help="Density only, fewer models, smaller budgets.")] = False,
    out: Annotated[Path, typer.Option(help="Where the tables and pictures go.")] = Path("results"),
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
) -> None:
    """Which model explains the data best?

    With neither --text nor --audio: the text and the synthetic speech that are built in. Two questions each: the density of whole
    sequences, log p(x), and continuation, log p(rest | beginning), where encoder-decoders take part too.
    """
    # Imported here, so that --help answers at once.
    from seqmodels import data
    from seqmodels.evaluation.run import run
    from seqmodels.evaluation.standard import speech_tasks, text_tasks

    warnings.simplefilter("once")
    names = [name.strip() for name in models.split(",") if name.strip()]
    both = text is None and audio is None
    try:
        tasks = []
        if text is not None or both:
            tasks += text_tasks(data.text(text) if text else None, names=names, quick=quick, random_state=seed)
        if audio is not None or both:
            tasks += speech_tasks(data.audio(audio) if audio else None, names=names, quick=quick, random_state=seed)
        run(tasks, out, random_state=seed, say=typer.echo)
    except (ValueError, ImportError, OSError) as error:
        typer.echo(f"seqmodels: {error}", err=True)
        raise typer.Exit(2) from None
