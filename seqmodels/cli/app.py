"""The commands in one program."""

from __future__ import annotations

import typer

from seqmodels.cli.compare import compare
from seqmodels.cli.console import CODES
from seqmodels.cli.fit import fit
from seqmodels.cli.inspect import inspect
from seqmodels.cli.report import report
from seqmodels.cli.sample import sample
from seqmodels.cli.score import score

app = typer.Typer(no_args_is_help=True, add_completion=True, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.callback(epilog=CODES)
def main() -> None:
    """Fit sequence models, from an HMM to a Transformer, and compare them by likelihoods that may stand in one table.

    Start with `seqmodels compare --quick`: two tables in a minute or so, of data that are built in.
    """


for command in (compare, fit, score, sample, inspect, report):
    app.command(epilog=CODES)(command)
