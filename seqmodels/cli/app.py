"""The program ``seqmodels`` with all of its commands, each imported when it is called.

Importing all commands would take seconds, because most need torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from seqmodels.cli.console import CODES
from seqmodels.common.other_names import suggestion
from seqmodels.common.version import __version__

# The commands and the first sentence of their help. A command is a function in a module with the same name. To add one,
# write its module and add it here; nothing else lists them.
COMMANDS = {
    "compare": "Fit every family of models to the same data, and say which explains held-out data best.",
    "fit": "Fit one model to one set of data, and save it.",
    "choose": "Choose a value of one hyperparameter: by cross-validation, with BIC and AIC beside it.",
    "score": "Score files with a saved model.",
    "audit": "Audit a saved model: are its figures log-probabilities that may be compared?",
    "decode": "Segment sequences: the most probable path of hidden states (Viterbi) through each.",
    "classify": "Fit a classifier to labelled sequences and say how often it is right, or label files with a saved "
    "one.",
    "anomalies": "Find what is improbable under a saved model: steps given all before them, or whole sequences.",
    "sample": "Draw sequences from a saved model.",
    "forecast": "Forecast the next steps of each sequence of a file: mean and quantiles, or probabilities.",
    "compress": "Compress a file to -log2 p bits, with a saved model of text or with context mixing that learns "
    "from the file.",
    "decompress": "Restore a file that seqmodels compress wrote, bit for bit.",
    "inspect": "Describe a saved model.",
    "report": "Render the pages of saved comparisons again, without fitting anything.",
}


class LazyGroup(TyperGroup):
    """The group of all commands of the program, which lists ``COMMANDS`` without importing their modules.

    The classes of contexts and formatters come from click, which some versions of typer include under another name.
    """

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import and return a command, or None if there is none with this name.

        Args:
            ctx: click's context.
            cmd_name: name of the command.
        """
        if cmd_name not in COMMANDS:
            return None
        function = getattr(import_module(f"seqmodels.cli.{cmd_name}"), cmd_name)
        alone = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
        alone.command(name=cmd_name, epilog=CODES)(function)
        return typer.main.get_command(alone)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command at the beginning of the arguments; if there is none, exit with a suggestion.

        Args:
            ctx: click's context.
            args: arguments of the program.
        """
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            says = suggestion(args[0], COMMANDS) or f"; there are {', '.join(COMMANDS)}"
            ctx.fail(f"there is no command {args[0]!r}{says}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


app = typer.Typer(
    cls=LazyGroup, no_args_is_help=True, add_completion=True, rich_markup_mode=None, pretty_exceptions_enable=False
)


def print_version(is_asked_for: bool) -> None:
    """Print the version of the package and exit, if ``--version`` was given."""
    if is_asked_for:
        typer.echo(f"seqmodels {__version__}")
        raise typer.Exit


@app.callback(epilog=CODES)
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    """Fit sequence models, from an HMM to a Transformer, and compare them by likelihoods that may stand in one table.

    Start with `seqmodels compare --quick`: it prints two tables in a minute or so, made from built-in data.
    """
