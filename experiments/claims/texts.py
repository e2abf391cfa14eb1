"""The text that a script of this folder trains on: ``--text FILE``, or the built-in one."""

import argparse
from pathlib import Path

from seqmodels.data import builtin_text, text


def arguments(parser: argparse.ArgumentParser) -> None:
    """Ask for the file."""
    parser.add_argument("--text", type=Path, help="a file to train on in place of the built-in text")


def chosen(given: argparse.Namespace) -> str:
    """All of it, as one string."""
    return str((builtin_text() if given.text is None else text(given.text))[0])
